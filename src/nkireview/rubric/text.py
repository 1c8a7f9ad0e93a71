"""Rubrics and edited scorecards as plain lines."""

from __future__ import annotations

import math
from collections.abc import Iterator

from nkireview.rubric.model import Rubric
from nkireview.rubric.scorecard import Edit, Scorecard
from nkireview.rules.finding import Dimension


def points(value: float) -> str:
    """A total of 0 to 100; rounded down, so that a cap or a full score is not shown before it is reached."""
    return f"{math.floor(value + 1e-9)}"


def rubric_lines(rubric: Rubric) -> Iterator[str]:
    """A rubric: dimensions with their weights, criteria with what is behind them and their descriptors."""
    yield f"Rubric {rubric.name}. {rubric.about}".rstrip()
    for dimension in Dimension:
        items = rubric.of(dimension)
        if not items:
            continue
        table = rubric.dimensions[dimension]
        yield ""
        yield f"{dimension.value} (weight {table.weight:g}). {table.about}".rstrip()
        for key, item in items.items():
            kind = f"weight {item.weight:g}" if item.penalty is None else f"penalty {item.penalty:g}"
            behind = [*item.rules, *(one.name for one in item.measures)]
            yield f"  {key}: {item.title} ({'; '.join([kind, *behind])})"
            if item.unassessed:
                yield f"    not assessed: {item.unassessed}"
            for level, text in enumerate(item.levels):
                yield f"    {level}  {text}"
    yield ""
    for cap in rubric.caps:
        yield f"A blocker of {', '.join(cap.rules)} caps the total at {cap.total:g}. {cap.why}."


def edit_lines(before: Scorecard, after: Scorecard, edit: Edit) -> Iterator[str]:
    """What an edit changed: the criterion or blocker, the dimension, the total."""
    if edit.kind == "accept":
        yield f"{edit.code}: accepted by {edit.who}"
    else:
        yield f"{edit.criterion}: {_level(edit.before)} -> {_level(edit.after)}"
    for old, new in zip(before.dimensions, after.dimensions, strict=True):
        if old.score != new.score:
            yield f"{new.dimension.value}: {_score(old.score)} -> {_score(new.score)}"
    yield f"total: {_total(before)} -> {_total(after)}"


def _level(level: float | None) -> str:
    return "not assessed" if level is None else f"level {level:g}"


def _score(score: float | None) -> str:
    return "not assessed" if score is None else f"{score:.2f} of 4"


def _total(card: Scorecard) -> str:
    if card.total is None or card.uncapped is None:
        return "not assessed"
    capped = f" (capped by {', '.join(card.capped_by)}, else {points(card.uncapped)})"
    return f"{points(card.total)} of 100{capped if card.total < card.uncapped else ''}"

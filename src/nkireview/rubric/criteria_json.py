"""The criterion/points/tags JSON form of rubrics: a list of ``{"criterion", "points", "tags"}`` objects.

A criterion is one entry whose points are its share of 100; a negative one is a penalty. What the form has no key for
stands in tags: ``id: tiling.free``, ``dimension: tiling``, ``rules: NKR140-NKR149, NKR012``, ``needs: ...``,
``measure: pe_filled; 4 at 0.9; otherwise 1``, ``effects: minor 3``, ``unassessed: ...``, and the descriptors as
``level 4: ...``. A cap is a penalty tagged ``cap: 25`` and ``rules: ...``; caps stand after the criteria.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from nkireview.rubric import codes
from nkireview.rubric.loading import RubricError, checked, load
from nkireview.rubric.model import (
    LEVELS,
    TOP,
    Cap,
    Criterion,
    DimensionTable,
    OwnEffects,
    Rubric,
    Thresholds,
    dimension_of,
    is_word,
    points_problem,
)
from nkireview.rubric.scorecard import CriterionScore, Scorecard
from nkireview.rubric.scoring import POINTS
from nkireview.rules.finding import Dimension

BY_REVIEWER = "to be judged by a reviewer"
MET = 3.0
"""The level from which a criterion counts as met."""
INCURRED = 2.0
"""The level below which a penalty counts as met, that is incurred."""
DIGITS = 4
"""Decimals of points that are shares."""
_KEYS = ("criterion", "points", "tags")
_FILLED = ("met", "score", "level", "reason")

Entry = dict[str, Any]


def export_rubric(rubric: Rubric) -> list[Entry]:
    """The rubric as entries, caps last; imported entries come out as they came in."""
    criteria = (
        {"criterion": item.title, "points": _points(rubric, key), "tags": _tags(rubric, key)}
        for key, item in rubric.criteria.items()
    )
    return [*criteria, *(_cap_entry(cap) for cap in _own_caps(rubric))]


def export_scorecard(rubric: Rubric, card: Scorecard) -> list[Entry]:
    """The rubric's entries, filled: `level`, `met` and `score` of each criterion, null and a `reason` where unassessed.

    A criterion is met from level 3 on and scores its points times level / 4. A penalty is met below level 2 and scores
    its points times 1 - level / 4. A cap is met where a blocker of its rules was not accepted. Raise RubricError where
    the scorecard is not of this rubric.
    """
    scores = {item.id: item for dimension in card.dimensions for item in dimension.criteria}
    if set(scores) != set(rubric.criteria):
        raise RubricError([f"the scorecard is of rubric {card.rubric!r}; expected one of {rubric.name!r}"])
    entries = export_rubric(rubric)
    filled = [
        {**entry, **_filled(scores[key], entry["points"])}
        for key, entry in zip(rubric.criteria, entries, strict=False)
    ]
    standing = [item.code for item in card.blockers if not item.accepted]
    for cap, entry in zip(_own_caps(rubric), entries[len(filled) :], strict=True):
        met = any(codes.matches(cap.rules, code) for code in standing)
        filled.append({**entry, "met": met, "score": entry["points"] if met else 0.0})
    return filled


def import_text(text: str, where: str) -> Rubric:
    """The rubric of a JSON text; RubricError with every problem found, each beginning with `where`."""
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise RubricError([f"{where}: this is no valid JSON: {error}"]) from None
    return import_rubric(data, where, name=Path(where).stem)


def import_rubric(data: object, where: str, name: str = "imported") -> Rubric:
    """The rubric of a list of entries; RubricError with every problem found, each beginning with `where`.

    A tag that is a dimension's name, or ``dimension: NAME``, decides the dimension; kernel correctness without one.
    Criteria without rules and measures are to be judged by a reviewer.
    """
    if not isinstance(data, list) or not data:
        raise RubricError([f"{where}: expected a list of objects with the keys {', '.join(_KEYS)}"])
    wrong = [f"{where}: {text}" for at, entry in enumerate(data) for text in _wrong(at, entry)]
    if wrong:
        raise RubricError(wrong)
    positive = math.fsum(entry["points"] for entry in data if entry["points"] > 0)
    if not positive:
        raise RubricError([f"{where}: every entry is a penalty; expected one with points above 0"])
    criteria: dict[str, Criterion] = {}
    caps: list[Cap] = []
    for at, entry in enumerate(data):
        tags = _Tags(entry["tags"])
        try:
            if tags.one("cap"):
                caps.append(tags.cap(entry))
                continue
            key = tags.key(at, criteria)
            criteria[key] = tags.criterion(entry, positive)
        except (ValidationError, ValueError) as error:
            what = _first(error) if isinstance(error, ValidationError) else str(error)
            raise RubricError([f"{where}: entry {at}: {what}"]) from None
    return checked(_rubric(name, criteria, caps), where)


def _rubric(name: str, criteria: Mapping[str, Criterion], caps: Sequence[Cap]) -> Rubric:
    weights: dict[Dimension, list[float]] = {}
    for key, item in criteria.items():
        weights.setdefault(dimension_of(key), []).append(item.weight if item.penalty is None else 0.0)
    return Rubric(
        name=name or "imported",
        effects=load().effects,
        caps=tuple(caps) or load().caps,
        # a dimension of penalties only has no score to weigh
        dimensions={key: DimensionTable(weight=math.fsum(held) or 1.0) for key, held in weights.items()},
        criteria=dict(criteria),
    )


def _wrong(at: int, entry: object) -> Iterator[str]:
    place = f"entry {at}"
    if not isinstance(entry, dict):
        yield f"{place}: got {entry!r}; expected an object with the keys {', '.join(_KEYS)}"
        return
    for key in _KEYS:
        if key not in entry:
            yield f"{place}: {key}: missing"
    for key in entry:
        if key not in (*_KEYS, *_FILLED):
            yield f"{place}: {key}: unknown key; expected {', '.join(_KEYS)}"
    text, points, tags = (entry.get(key) for key in _KEYS)
    if "criterion" in entry and not (isinstance(text, str) and text):
        yield f"{place}: criterion: got {text!r}; expected a sentence"
    if "points" in entry and points_problem(points):
        yield f"{place}: points: {points_problem(points)}"
    if "tags" in entry and not (isinstance(tags, list) and all(isinstance(tag, str) for tag in tags)):
        yield f"{place}: tags: got {tags!r}; expected a list of strings"


def _first(error: ValidationError) -> str:
    found = error.errors(include_url=False)[0]
    key = ".".join(str(part) for part in found["loc"] if part != "[key]")
    what = str(found["ctx"]["error"]) if found["type"] == "value_error" else found["msg"]
    return f"{key}: {what}" if key else what


class _Tags:
    """The tags of one entry, read for what they say of the rubric."""

    def __init__(self, tags: Sequence[str]) -> None:
        self.tags = tuple(tags)

    def all(self, key: str) -> list[str]:
        """What follows each tag of that key."""
        prefix = f"{key}: "
        return [tag.removeprefix(prefix) for tag in self.tags if tag.startswith(prefix)]

    def one(self, key: str) -> str:
        """What follows the first tag of that key; empty without one."""
        return next(iter(self.all(key)), "")

    def cap(self, entry: Entry) -> Cap:
        """The cap that an entry stands for."""
        return Cap(
            total=_number(self.one("cap"), "cap"),
            rules=_listed(self.one("rules")),
            why=entry["criterion"],
            points=entry["points"],
            tags=self.tags,
        )

    def key(self, at: int, taken: Iterable[str]) -> str:
        """The id: that of a tag, else the dimension and the entry's position."""
        given, dimension = self.one("id"), self.dimension
        head, _, word = given.partition(".")
        own = head in Dimension.__members__ and is_word(word)
        key = given if own else f"{dimension.name}.entry-{at}"
        if key in taken:
            raise ValueError(f"id {key} is taken by an entry before it; expected each once")
        return key

    @property
    def dimension(self) -> Dimension:
        """The first dimension that a tag names, by its key or its title; kernel correctness without one."""
        for tag in self.tags:
            named = tag.removeprefix("dimension:").strip().casefold()
            for dimension in Dimension:
                if named in (dimension.name, dimension.value.casefold()):
                    return dimension
        return Dimension.correctness

    def criterion(self, entry: Entry, positive: float) -> Criterion:
        """The criterion that an entry stands for; `positive` is the sum of all points above 0."""
        points = entry["points"]
        rules, needs = _listed(self.one("rules")), _listed(self.one("needs"))
        measures = tuple(_thresholds(text) for text in self.all("measure"))
        unassessed = self.one("unassessed")
        if not (rules or needs or measures):
            unassessed = unassessed or BY_REVIEWER
        elif not (unassessed or needs or measures):
            needs = ("workloads_traced",)
        return Criterion(
            title=entry["criterion"],
            weight=abs(float(points)),
            rules=rules,
            needs=needs,
            measures=measures,
            effects=self._effects(),
            levels=self._levels(),
            unassessed=unassessed,
            penalty=POINTS * -points / positive if points < 0 else None,
            points=points,
            tags=self.tags,
        )

    def _levels(self) -> tuple[str, ...]:
        """The five descriptors; none where one is missing."""
        found = tuple(self.one(f"level {level}") for level in range(LEVELS))
        return found if all(found) else ()

    def _effects(self) -> OwnEffects:
        pairs = [text.split(" ") for text in _listed(self.one("effects"))]
        if any(len(pair) != 2 or pair[0] not in OwnEffects.model_fields for pair in pairs):
            raise ValueError(f"effects: got {self.one('effects')!r}; expected such as 'major 1, minor 3'")
        return OwnEffects(**{name: int(_number(level, "effects")) for name, level in pairs})


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",")) if text else ()


def _number(text: str, key: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{key}: got {text!r}; expected a number") from None


def _thresholds(text: str) -> Thresholds:
    name, *parts = (part.strip() for part in text.split(";"))
    at: dict[int, float] = {}
    otherwise = 0.0
    for part in parts:
        words = part.split(" ")
        if len(words) == 2 and words[0] == "otherwise":
            otherwise = _number(words[1], "measure")
        elif len(words) == 3 and words[1] == "at":
            at[int(_number(words[0], "measure"))] = _number(words[2], "measure")
        else:
            raise ValueError(f"measure: got {text!r}; expected such as 'pe_filled; 4 at 0.9; otherwise 1'")
    return Thresholds(name=name, at=at, otherwise=int(otherwise))


def _own_caps(rubric: Rubric) -> list[Cap]:
    """The caps, less those that an imported rubric took over from the default one."""
    imported = any(item.points is not None for item in rubric.criteria.values())
    return [cap for cap in rubric.caps if cap.points is not None or not imported]


def _cap_entry(cap: Cap) -> Entry:
    tags = [f"cap: {cap.total:g}", f"rules: {', '.join(cap.rules)}"]
    points = cap.total - POINTS if cap.points is None else cap.points
    return {"criterion": cap.why, "points": points, "tags": list(cap.tags) or tags}


def _points(rubric: Rubric, key: str) -> int | float:
    item, dimension = rubric.criteria[key], dimension_of(key)
    if item.points is not None:
        return item.points
    if item.penalty is not None:
        return -item.penalty
    counted = {
        one: math.fsum(other.weight for other in rubric.of(one).values() if other.penalty is None)
        for one in rubric.dimensions
    }
    total = math.fsum(rubric.dimensions[one].weight for one, weight in counted.items() if weight)
    return round(
        POINTS * rubric.dimensions[dimension].weight / total * item.weight / counted[dimension], DIGITS
    )


def _tags(rubric: Rubric, key: str) -> list[str]:
    item = rubric.criteria[key]
    if item.points is not None:
        return list(item.tags)
    effects, default = rubric.effects, load().effects
    own = [
        f"{name} {level}"
        for name in OwnEffects.model_fields
        for level in [getattr(item.effects, name)]
        for level in [getattr(effects, name) if level is None else level]
        if level != getattr(default, name)
    ]
    lists = (("rules", item.rules), ("needs", item.needs), ("effects", own))
    return [
        f"id: {key}",
        f"dimension: {dimension_of(key).value}",
        *(f"{name}: {', '.join(values)}" for name, values in lists if values),
        *(f"measure: {_spelled(thresholds)}" for thresholds in item.measures),
        *([f"unassessed: {item.unassessed}"] if item.unassessed else []),
        *(f"level {level}: {text}" for level, text in enumerate(item.levels)),
        *item.tags,
    ]


def _spelled(thresholds: Thresholds) -> str:
    bounds = (f"{level} at {thresholds.at[level]!r}" for level in sorted(thresholds.at, reverse=True))
    return "; ".join((thresholds.name, *bounds, f"otherwise {thresholds.otherwise}"))


def _filled(score: CriterionScore, points: float) -> Entry:
    if score.level is None:
        return {"level": None, "met": None, "score": None, "reason": score.reason}
    share = score.level / TOP
    if points < 0:
        return {"level": score.level, "met": score.level < INCURRED, "score": points * (1 - share)}
    return {"level": score.level, "met": score.level >= MET, "score": points * share}

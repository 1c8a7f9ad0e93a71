"""Reviewers' edits: appended beside the review they were made of, never rewritten, and applied to its scorecard on
reading."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from nkireview.rubric.model import TOP
from nkireview.rubric.scorecard import CriterionScore, Edit, Scorecard
from nkireview.rubric.scoring import settled
from nkireview.validation import suggestion

EDITS_FILE = "edits.jsonl"


class EditError(ValueError):
    """An edit that cannot be read or applied, in one sentence."""


def apply(card: Scorecard, edits: Iterable[Edit]) -> Scorecard:
    """The scorecard after the edits, in their order; EditError for the first that does not fit."""
    for edit in edits:
        card = _accepted(card, edit) if edit.kind == "accept" else _moved(card, edit)
    return card


def read_edits(path: Path, of: str) -> tuple[Edit, ...]:
    """The edits of a JSON-lines file; none where there is no such file.

    EditError for a line that is no edit, or one of another review than that of the identity `of`.
    """
    if not path.is_file():
        return ()
    return tuple(_parsed(path, path.read_bytes(), of))


def append_edit(path: Path, card: Scorecard, edit: Edit) -> Scorecard:
    """Append an edit to the file if it fits the scorecard after those already there; return the scorecard then.

    Holds a lock on the file meanwhile. EditError leaves the file as it was.
    """
    apply(apply(card, read_edits(path, edit.of)), (edit,))  # no file is made for an edit that fits nothing
    with _locked(path) as descriptor:
        held = b"".join(iter(lambda: os.read(descriptor, 1 << 16), b""))
        after = apply(apply(card, _parsed(path, held, edit.of)), (edit,))
        line = edit.model_dump_json().encode() + b"\n"
        if os.write(descriptor, line) != len(line):
            os.ftruncate(descriptor, len(held))
            raise EditError(f"{path}: the edit could not be written whole; free some space and repeat it")
        os.fsync(descriptor)
    return after


def proposed(
    card: Scorecard, criterion: str, level: str, accept: str, *, who: str, when: str, why: str, of: str
) -> Edit:
    """The edit that moves a criterion of the scorecard to a level ("none": not assessed), or accepts a blocker.

    `of` is the identity of the review.
    """
    if not (who.strip() and why.strip()):
        raise EditError("an edit names who makes it and why; expected both not to be empty")
    if accept:
        return Edit(kind="accept", who=who, when=when, why=why, of=of, code=accept)
    try:
        after = None if level == "none" else float(level)
    except ValueError:
        raise EditError(
            f"got level {level!r}; expected a number of 0 to {TOP}, or none for not assessed"
        ) from None
    before = _item(card, criterion).level
    return Edit(who=who, when=when, why=why, of=of, criterion=criterion, before=before, after=after)


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def _parsed(path: Path, text: bytes, of: str) -> Iterator[Edit]:
    lines = text.split(b"\n")
    if lines.pop():
        raise EditError(
            f"{path}: line {len(lines) + 1} has no end, so an edit was not written whole; remove it"
        )
    for number, line in enumerate(lines, 1):
        try:
            edit = Edit.model_validate_json(line)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            key = ".".join(map(str, first["loc"]))
            what = f"{key}: {first['msg']}" if key else first["msg"]
            raise EditError(f"{path}: line {number} is no edit: {what}") from None
        if edit.of != of:
            raise EditError(
                f"{path}: line {number}, by {edit.who}, was made of another review than the one beside it: the "
                "kernel, target, release, LNC, task or rubric has changed since; move the file away, then make those "
                "edits anew that still hold"
            )
        yield edit


def _moved(card: Scorecard, edit: Edit) -> Scorecard:
    known = {item.id: item for dimension in card.dimensions for item in dimension.criteria}
    item = known.get(edit.criterion)
    if item is None:
        raise EditError(
            f"there is no criterion {edit.criterion!r}; {suggestion(edit.criterion, list(known))}"
        )
    for level in (edit.before, edit.after):
        if level is not None and not 0 <= level <= TOP:
            raise EditError(
                f"level {level:g} of {item.id} is out of range; expected 0 to {TOP}, or none for not assessed"
            )
    if edit.before != item.level:
        raise EditError(
            f"{item.id} is at {shown(item.level)}, not at {shown(edit.before)} as the edit says; "
            "look at the scorecard again and repeat the edit"
        )
    if edit.after == item.level:
        raise EditError(f"{item.id} is at {shown(item.level)} already; expected another level")
    changed = item.model_copy(
        update={
            "level": edit.after,
            "descriptor": "" if edit.after is None else edit.why,
            "reason": edit.why if edit.after is None else "",
            "edited": True,
            "original": item.original if item.edited else item.level,
        }
    )
    return settled(_with(card, changed), (edit,))


def _item(card: Scorecard, criterion: str) -> CriterionScore:
    known = {item.id: item for dimension in card.dimensions for item in dimension.criteria}
    if criterion not in known:
        raise EditError(f"there is no criterion {criterion!r}; {suggestion(criterion, list(known))}")
    return known[criterion]


def _with(card: Scorecard, changed: CriterionScore) -> Scorecard:
    dimensions = tuple(
        dimension.model_copy(
            update={
                "criteria": tuple(changed if item.id == changed.id else item for item in dimension.criteria)
            }
        )
        for dimension in card.dimensions
    )
    return card.model_copy(update={"dimensions": dimensions})


def _accepted(card: Scorecard, edit: Edit) -> Scorecard:
    standing = sorted({item.code for item in card.blockers if not item.accepted})
    if edit.code not in standing:
        others = f"; {suggestion(edit.code, standing)}" if standing else ""
        raise EditError(f"there is no blocker {edit.code} to accept{others}")
    blockers = tuple(
        item.model_copy(update={"accepted": True}) if item.code == edit.code else item
        for item in card.blockers
    )
    return settled(card.model_copy(update={"blockers": blockers}), (edit,))


def shown(level: float | None) -> str:
    """A level as sentences say it."""
    return "not assessed" if level is None else f"level {level:g}"

"""Indices: counts and indices that are one off, and which of equal values is found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.diagnosis.algebra.hooks import Running, Values
from nkireview.diagnosis.algebra.lines import Change, Immediates, Line
from nkireview.diagnosis.flows.acting import Acting, operand
from nkireview.diagnosis.habits.survey import Survey
from nkireview.diagnosis.repair import Repair
from nkireview.execute import Core, Operands, Step

CAUSE, TIES = "index-off-by-one", "tie-order"
FIND = "nc_find_index8"


def shifted(survey: Survey) -> Iterator[Repair]:
    """Counts that begin one too early or too late, and indices that are one off."""
    for line in survey.of("iota"):
        for by in (1, -1):
            sentence = f"iota counts from here: from one {'more' if by > 0 else 'less'} the output matches"
            yield from line.repair(CAUSE, sentence, line.edits(_offset(by)))
    for one in survey.parameters:
        if one.kind.kind in ("int", "uint"):
            least = int(survey.arguments[one.buffer].min(initial=0))
            for by in (1, -1):
                if one.kind.kind == "uint" and least + by < 0:
                    continue
                sentence = (
                    f"{one.path} is taken as it is: {'plus' if by > 0 else 'less'} one the output matches"
                )
                yield survey.given(CAUSE, sentence, one, lambda values, by=by: values + by)  # type: ignore[misc]


def _offset(by: int) -> Change:
    def change(given: Immediates) -> Immediates | None:
        held = given.get("offset") or 0
        return {**given, "offset": held + by} if isinstance(held, int) else None

    return change


class Last(Acting):
    """Searches that find the last of equal values, and those before it next."""

    def __init__(self, line: Line) -> None:
        super().__init__()
        self._at = frozenset(line.instructions)

    def act(self, step: Step, core: Core, index: int, operands: Operands) -> None:
        """See `Acting`."""
        found = None
        if index in self._at:
            running = Running(step, core, operands)
            found = last_places(running.value("data"), running.value("vals"))
        step.run(core, index, operands)
        target = operand(step, operands, "dst")
        if found is not None and target is not None and found.size == target.form.size:
            before = target.read()
            known = found.reshape(before.shape)
            target.put(np.where(known < 0, before, known).astype(before.dtype))


def last_places(data: Values, wanted: Values) -> NDArray[np.int64]:
    """Where each row holds the values wanted of it, the last place first for equal ones; -1 where nowhere."""
    rows, sought = data.reshape(len(data), -1), wanted.reshape(len(wanted), -1)
    found = np.full(sought.shape, -1, np.int64)
    for lane in range(len(rows)):
        for slot, value in enumerate(sought[lane]):
            places: NDArray[Any] = np.flatnonzero(rows[lane] == value)[::-1]
            earlier = int((sought[lane, :slot] == value).sum())
            if earlier < len(places):
                found[lane, slot] = places[earlier]
    return found


def ties(survey: Survey) -> Iterator[Repair]:
    """The last of equal values found where the first is."""
    for line in survey.of(FIND):
        sentence = f"{FIND} finds the first of equal values: with the last the output matches"
        yield from line.repair(TIES, sentence, None, Last(line))

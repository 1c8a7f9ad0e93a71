"""Normalisers: a division by a row sum that is left out, made twice, or made before the sum is complete."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from nkireview.checks.dataflow import UNKNOWN, Slot
from nkireview.checks.steps import ACTIVATIONS, main_operand, steps, summed
from nkireview.diagnosis.algebra.hooks import Running, Values
from nkireview.diagnosis.algebra.lines import Line
from nkireview.diagnosis.arrangement.stepping import Compute, Recomputed, beside, named, through, views
from nkireview.diagnosis.flows.acting import Acting
from nkireview.diagnosis.habits.functions import output_stores
from nkireview.diagnosis.habits.survey import Survey
from nkireview.diagnosis.repair import Repair
from nkireview.execute import Core, Operands
from nkireview.execute import Step as Instruction

CAUSE = "normaliser-place"
SUMS, PLACES = 3, 3
"""Sums, and places to divide at, that are tried with each other."""
WAY = 6
"""Instructions that a divisor is followed back through."""


@dataclass(frozen=True, eq=False)
class Total:
    """A line that leaves a sum of each row in `result`; unread where nothing takes it up."""

    line: Line
    result: str
    unread: bool


@dataclass(frozen=True, eq=False)
class Division:
    """A line that divides `main` by a sum of each row, or multiplies it with the inverse: in its step `at`."""

    line: Line
    main: str
    at: int


class Normalised(Acting):
    """Divides what a line has made, or stored, by the sum that was made last, and does not divide where `left` does."""

    def __init__(self, total: Total, place: Line, left: Division | None = None) -> None:
        super().__init__()
        self._totals, self._result = frozenset(total.line.instructions), total.result
        self._places = frozenset(place.instructions)
        self._plain = Recomputed(left.line.instructions, _without(left)) if left is not None else None
        self._last: dict[int, Values] = {}

    def begin(self) -> None:
        """See `Acting`."""
        self._last.clear()

    def act(self, step: Instruction, core: Core, index: int, operands: Operands) -> None:
        """See `Acting`."""
        if self._plain is not None:
            self._plain.act(step, core, index, operands)
        else:
            step.run(core, index, operands)
        running = Running(step, core, operands)
        if index in self._totals:
            self._last[core.number] = np.array(running.value(self._result))
        total = self._last.get(core.number)
        if index in self._places and total is not None:
            values = running.value("dst")
            fits = values.size % total.shape[0] == 0
            rows = values.reshape(total.shape[0], -1) if fits else values
            other = beside(total, rows) if fits else None
            if other is not None:
                running.put("dst", (rows / other).reshape(values.shape))


def _without(division: Division) -> Compute:
    """The steps of a line but for the division."""

    def compute(running: Running, index: int) -> Values | None:
        call = division.line.flow.call(index)
        taken = (
            next((found for name, found in views(call) if name == division.main), ())
            if call is not None
            else ()
        )
        rest = [step for at, step in enumerate(taken) if at != division.at]
        return through(running.value(division.main), rest, running.value) if taken else None

    return compute


def totals(survey: Survey) -> list[Total]:
    """The sums of rows: those that nothing reads first, then the last made of running ones first."""
    found = []
    for line in survey.sites:
        name = summed(line.call)
        if not name and _running(line):
            name = "dst"
        if name and line.floats(name) and line.call.measure(name, "free") == 1:
            readers = [
                each for each in survey.flow.readers(line.slot(name)) if each.instruction != line.first
            ]
            found.append(Total(line, name, not readers))
    return sorted(found, key=lambda each: (not each.unread, -each.line.first))


def _running(line: Line) -> bool:
    """True for a sum of two tiles of one element a partition."""
    taken = steps(line.call)
    return bool(taken and line.call.has("dst") and taken[-1].op == "add" and taken[-1].operand)


def divisions(survey: Survey) -> list[Division]:
    """The lines that divide by sums of rows."""
    known = {index for total in totals(survey) for index in total.line.instructions}
    found = []
    for line in survey.sites:
        for main, taken in islice(views(line.call), 1):
            for at, step in enumerate(taken):
                if (
                    step.op not in ("multiply", "divide")
                    or not step.operand
                    or line.call.measure(main, "free") == 1
                ):
                    continue
                if line.call.measure(step.operand, "free") == 1 and _leads(
                    survey, line.slot(step.operand), known
                ):
                    found.append(Division(line, main, at))
    return found


def _leads(survey: Survey, slot: Slot, known: set[int]) -> bool:
    """True where an operand is made of one of the sums."""
    left = [slot]
    for _ in range(WAY):
        after = []
        for each in left:
            for writer in survey.flow.writers(each):
                call = survey.flow.call(writer.instruction) if writer.instruction != UNKNOWN else None
                if writer.instruction in known:
                    return True
                if call is not None and steps(call) is not None and main_operand(call):
                    after.append(Slot(writer.instruction, main_operand(call)))
        left = after
    return False


def repairs(survey: Survey) -> Iterator[Repair]:
    """Divisions left out, moved to the end, and made once where twice."""
    sums, made = totals(survey)[:SUMS], divisions(survey)
    places = _places(survey)
    if not made:
        for total in sums:
            for place in places:
                sentence = (
                    f"nothing is divided by the row sum of {named(survey, total.line.first)}: with the result of "
                    f"{place.opcode} divided by it the output matches"
                )
                yield from place.repair(CAUSE, sentence, None, Normalised(total, place))
    if len(made) > 1:
        for division in made[:SUMS]:
            sentence = (
                f"{division.line.opcode} divides by the row sum once more: without it the output matches"
            )
            around = Recomputed(division.line.instructions, _without(division))
            yield from division.line.repair(CAUSE, sentence, None, around)
    for division in made[:SUMS]:
        for total in sums:
            for place in places:
                if place.first <= division.line.first or _direct(survey, place, division.line):
                    continue
                sentence = (
                    f"{division.line.opcode} divides by the row sum before it is complete: with the result of "
                    f"{named(survey, place.first)} divided by that of {named(survey, total.line.first)} instead the "
                    "output matches"
                )
                yield from division.line.repair(CAUSE, sentence, None, Normalised(total, place, division))
    if made:
        for total in sums:
            if total.unread:
                for place in places[:1]:
                    sentence = (
                        f"nothing reads the row sum of {named(survey, total.line.first)}: with the result of "
                        f"{place.opcode} divided by it the output matches"
                    )
                    yield from place.repair(CAUSE, sentence, None, Normalised(total, place))


def _direct(survey: Survey, place: Line, line: Line) -> bool:
    """True where a place takes up what a line has divided as it is, so that it makes no difference which divides."""
    source = survey.origin(place.slot(main_operand(place.call)))
    return source is not None and source[0].instruction in line.instructions


def _places(survey: Survey) -> list[Line]:
    """Where a division may be meant: at the stores, on products as they are taken up, after exponentials."""
    powers = [line for line in survey.of(*ACTIVATIONS) if line.call.imm("op") == "exp" and not _lone(line)]
    stores = output_stores(survey)
    return [*stores[:1], *powers[:1], *stores[1:]][:PLACES]


def _lone(line: Line) -> bool:
    return line.call.measure("dst", "free") == 1 or not line.floats("dst")

"""Orders: steps of one instruction, or of two that follow one another, in the other order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations

import numpy as np

from nkireview.checks.dataflow import Slot
from nkireview.checks.steps import ACTIVATIONS, Step
from nkireview.diagnosis.algebra.hooks import Running, Values
from nkireview.diagnosis.algebra.lines import Line, with_alike
from nkireview.diagnosis.arrangement.stepping import (
    Compute,
    Recomputed,
    apart,
    held,
    named,
    said,
    same,
    settle,
    through,
    views,
)
from nkireview.diagnosis.flows.acting import Acting, operand, repeatable
from nkireview.diagnosis.habits.survey import Survey
from nkireview.diagnosis.repair import Repair
from nkireview.execute import Core, Operands
from nkireview.execute import Step as Instruction

CAUSE = "step-order"
SEVERAL = frozenset({"tensor_scalar", "scalar_tensor_tensor"}) | ACTIVATIONS
"""Opcodes with more than one step."""
Link = tuple[int, str, tuple[Step, ...], str, tuple[Step, ...]]
"""An earlier instruction, its main operand and steps, and the main operand and steps of the later one."""


def within(survey: Survey) -> Iterator[Repair]:
    """Steps of one instruction in each other order that may matter: those nearest to what is written first."""
    found = []
    for line in with_alike(survey.of(*SEVERAL)):
        for main, taken in views(line.call):
            for order in permutations(range(len(taken))):
                if not same(taken, order):
                    moves = sum(abs(rank - at) for rank, at in enumerate(order))
                    found.append((moves, line, main, taken, order))
    for _, line, main, taken, order in sorted(found, key=lambda each: each[0]):
        meant = said([taken[at] for at in order])
        sentence = f"{line.opcode} {said(taken)}: where it {meant}, the output matches"
        yield from line.repair(
            CAUSE, sentence, None, Recomputed(line.instructions, _ordered(line, main, order))
        )


def _ordered(line: Line, main: str, order: Sequence[int]) -> Compute:
    def compute(running: Running, index: int) -> Values | None:
        call = line.flow.call(index)
        found = next((taken for name, taken in views(call) if name == main), ()) if call is not None else ()
        if len(found) != len(order):
            return None
        return through(running.value(main), [found[at] for at in order], running.value)

    return compute


class Exchanged(Acting):
    """Later instructions of pairs that apply their steps to what the earlier ones read, then those of the earlier."""

    def __init__(self, survey: Survey, line: Line, main: str, first: Link) -> None:
        super().__init__()
        self._survey, self._line, self._main, self._first = survey, line, main, first
        self._links: dict[int, Link] | None = None
        self._held: dict[int, tuple[Values, dict[str, Values]]] = {}
        self._earlier: dict[int, tuple[str, tuple[Step, ...]]] = {}

    def begin(self) -> None:
        """See `Acting`."""
        self._held.clear()

    def act(self, step: Instruction, core: Core, index: int, operands: Operands) -> None:
        """See `Acting`."""
        if self._links is None:
            self._links = self._plan()
        running = Running(step, core, operands)
        if index in self._earlier:
            main, taken = self._earlier[index]
            self._held[index] = np.array(running.value(main)), held(running, taken)
        link = self._links.get(index)
        values = self._found(running, link) if link is not None and repeatable(step) else None
        step.run(core, index, operands)
        if values is not None:
            settle(step, core, operands, values)

    def _found(self, running: Running, link: Link) -> Values | None:
        at, _, earlier, _, later = link
        source, tiles = self._held.get(at, (None, {}))
        target = operand(running.step, running.operands, "dst")
        if source is None or target is None or source.size != target.form.size:
            return None
        found = through(source.reshape(target.form.shape), later, running.value)
        return None if found is None else through(found, earlier, tiles.__getitem__)

    def _plan(self) -> dict[int, Link]:
        found = {}
        for index in self._line.instructions:
            for link in links(self._survey, index, self._main):
                if link[1] == self._first[1] and _ops(link[2]) == _ops(self._first[2]):
                    found[index] = link
                    self._earlier[link[0]] = link[1], link[2]
        return found


def _ops(taken: Sequence[Step]) -> list[tuple[str, str]]:
    return [(step.op, step.operand) for step in taken]


def links(survey: Survey, index: int, main: str) -> Iterator[Link]:
    """The ways in which an instruction goes on, by one operand, from the elementwise one before it."""
    call = survey.flow.call(index)
    later = next((taken for name, taken in views(call) if name == main), None) if call is not None else None
    source = survey.origin(Slot(index, main)) if later is not None else None
    if later is None or source is None or source[0].operand != "dst":
        return
    for name, earlier in views(source[1]):
        if apart(earlier, later):
            yield source[0].instruction, name, earlier, main, later


def pairs(survey: Survey) -> Iterator[Repair]:
    """The steps of an instruction applied before those of the one whose result it takes up; functions first."""
    found = []
    for line in survey.lines:
        for main, _ in views(line.call):
            for link in links(survey, line.first, main):
                found.append((not _function(link), line, main, link))
    for _, line, main, link in sorted(found, key=lambda each: each[0]):
        at, _, earlier, _, later = link
        sentence = (
            f"{named(survey, at)} {said(earlier)}, and only then {line.opcode} {said(later)}: the other way round the "
            "output matches"
        )
        yield from line.repair(CAUSE, sentence, None, Exchanged(survey, line, main, link))


def _function(link: Link) -> bool:
    return any(step.number is None and not step.operand for step in (*link[2], *link[4]))

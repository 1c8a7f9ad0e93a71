"""Rows that are masked whole: minus infinity less itself is NaN, and a finite fill less itself is zero."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from nkireview.checks.steps import Step as Taken
from nkireview.checks.steps import main_operand, steps
from nkireview.diagnosis.algebra.epsilons import QUOTIENT, steep
from nkireview.diagnosis.algebra.hooks import Running, Values, affine, beside, run_with, slope, stepped
from nkireview.diagnosis.algebra.lines import Immediates, Line, joined
from nkireview.diagnosis.algebra.masks import LOWEST
from nkireview.diagnosis.algebra.numbers import number_of
from nkireview.diagnosis.repair import Repair
from nkireview.execute import Around, Core, Operands, Step
from nkireview.isa.enums import Memory
from nkireview.program.edited import edited

CAUSE = "mask-fully-masked"
HUGE = 1e25
"""Beyond this a value is a fill, or one that was scaled."""
PENALTY = -1e3
"""A finite fill whose exp is zero beside any other score."""
FILLS = {
    "affine_select": "on_false_value",
    "memset": "value",
    "select_reduce": "on_false",
    "tensor_copy_predicated": "src",
}


@dataclass(frozen=True)
class _Shift:
    """A difference, or a sum, of a line's main operand and a tile: `taken[at]`."""

    main: str
    taken: tuple[Taken, ...]
    at: int


def masked_rows(given: Sequence[Line]) -> Iterator[Repair]:
    """Rows without a visible element give zeros; else the mean over all elements, as finite fills make it."""
    exps = [line for line in given if line.call.imm("op") == "exp"]
    if not exps or not any(_takes_maximum(line) for line in given):
        return
    selects = [line for line in given if line.opcode in FILLS and _low(line)]
    place = selects[0] if selects else joined(exps)
    flow = place.flow
    edits: dict[int, Immediates] = {}
    for line in selects:
        edits.update(line.edits(_lowered))
    program = edited(flow.program, edits) if edits else flow.program
    finite = _finite(given)
    zeros = _zeros(given, finite)
    what = "a row whose elements are all masked"
    for around, gives in ((zeros, "zeros"), (finite, "the mean of the row")):
        sentence = f"{what} gives what its fills leave, or NaN: with {gives} the output matches{place.where}"
        yield Repair(CAUSE, sentence, place.first, program, around)


def _takes_maximum(line: Line) -> bool:
    return any(line.call.imm(name) == "maximum" for name in ("op", "op0", "op1", "reduce_op"))


def _low(line: Line) -> bool:
    """True where a line fills with what is to be as good as minus infinity."""
    ids = {int(line.flow.program.columns.immediates[index]) for index in line.instructions}
    return line.floats("dst") and any(_lowered(line.flow.program.immediates[each]) for each in ids)


def _lowered(given: Immediates) -> Immediates | None:
    """Immediates with a fill that has a finite difference from itself."""
    found = {
        name: LOWEST
        for name in FILLS.values()
        if (value := number_of(given.get(name))) is not None and value <= PENALTY
    }
    return {**given, **found} if found else None


def _finite(given: Sequence[Line]) -> Around:
    """Execution in which minus infinity comes into no tile from memory."""
    loads = frozenset(
        index
        for line in given
        if line.opcode == "dma_copy" and line.floats("dst") and line.call.memory("dst") is Memory.sbuf
        for index in line.instructions
    )

    def around(step: Step, core: Core, index: int, operands: Operands) -> None:
        step.run(core, index, operands)
        if index in loads:
            running = Running(step, core, operands)
            values = running.value("dst")
            infinite = np.isneginf(values)
            if infinite.any():
                running.put("dst", np.where(infinite, LOWEST, values))

    return around


def _zeros(given: Sequence[Line], then: Around) -> Around:
    """Execution in which a fill less itself is minus infinity, and nothing is divided by zero."""
    shifts: dict[int, _Shift] = {}
    quotients: dict[int, str] = {}
    for line in given:
        shift = _shift(line)
        if shift is not None:
            shifts.update(dict.fromkeys(line.instructions, shift))
            continue
        for found in steep(line):
            if found.kind == QUOTIENT:
                quotients.update(dict.fromkeys(line.instructions, found.operand))

    def around(step: Step, core: Core, index: int, operands: Operands) -> None:
        running = Running(step, core, operands)
        if index in shifts:
            shift = shifts[index]
            run_with(running, index, shift.main, _cancelled(running, shift), then)
        elif index in quotients:
            values = running.value(quotients[index])
            whole = None if np.all(values != 0) else np.where(values == 0, 1.0, values)
            run_with(running, index, quotients[index], whole, then)
        else:
            then(step, core, index, operands)

    return around


def _shift(line: Line) -> _Shift | None:
    taken, main = steps(line.call) or (), main_operand(line.call)
    for at, step in enumerate(taken):
        if not affine(step):
            return None
        if step.op in ("add", "subtract") and step.operand and not step.reverse and line.floats(main):
            return _Shift(main, taken, at)
    return None


def _cancelled(running: Running, shift: _Shift) -> Values | None:
    """The main operand with an infinity where a fill and a maximum of fills cancel; None where none do."""
    values, step = running.value(shift.main), shift.taken[shift.at]
    earlier = shift.taken[: shift.at]

    def operand(name: str) -> Values:
        return beside(running.value(name), values)

    masked = stepped(values, earlier, operand) < -HUGE
    if not masked.any():
        return None
    other = operand(step.operand)
    cancels = masked & ((other > HUGE) if step.op == "add" else (other < -HUGE))
    if not cancels.any():
        return None
    return np.where(cancels, -np.inf * np.sign(slope(running, earlier, values)), values)

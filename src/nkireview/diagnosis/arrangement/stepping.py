"""Stepping: instructions as steps on one operand, and instructions whose results are computed in another way."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import combinations
from types import MappingProxyType
from typing import Any

import numpy as np

from nkireview.checks.steps import COPIES, Step, main_operand, steps
from nkireview.diagnosis.algebra.hooks import Running, Values
from nkireview.diagnosis.algebra.numbers import shown
from nkireview.diagnosis.flows.acting import Acting, operand, repeatable, write
from nkireview.diagnosis.habits.survey import Survey
from nkireview.execute import Core, Operands
from nkireview.execute import Step as Instruction
from nkireview.isa import act, alu
from nkireview.isa.rows.arrays import apply
from nkireview.program.call import CallView

JOINS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {"add": np.sum, "maximum": np.max, "minimum": np.min}
)
"""Reduction -> its function over an axis."""
GROUPS = tuple(
    frozenset(each) for each in (("multiply", "divide"), ("add", "subtract"), ("maximum",), ("minimum",))
)
"""Steps of one group may change places with each other."""
SYMMETRIC = frozenset({"add", "multiply", "maximum", "minimum"})
VERBS = MappingProxyType(
    {"multiply": "multiplies with", "add": "adds", "subtract": "subtracts", "divide": "divides by"}
)

Get = Callable[[str], Values]
Compute = Callable[[Running, int], Values | None]


def views(call: CallView) -> Iterator[tuple[str, tuple[Step, ...]]]:
    """A call as steps on an operand of as many elements as it writes; a product of two tiles as those on either."""
    name, main = call.row.name, main_operand(call)
    taken = steps(call)
    if name in COPIES or not taken or not main or not call.has("dst"):
        return
    if not all(step.op in act.BY_NAME or _arithmetic(step.op) for step in taken):
        return
    size = call.measure("dst", "elements")
    if call.measure(main, "elements") == size:
        yield main, taken
    if name == "tensor_tensor" and call.tiles["data1"].access != call.tiles["data2"].access:
        if call.measure("data2", "elements") == size:
            op = taken[0].op
            yield "data2", (Step(op, operand="data1", reverse=op not in SYMMETRIC),)


def _arithmetic(op: str) -> bool:
    """True for an operator on numbers, false for one on bits."""
    return op in alu.BY_NAME and alu.of(op).kind == "arithmetic"


def squares(call: CallView) -> bool:
    """True for a product of a tile with itself."""
    return call.row.name == "tensor_tensor" and call.tiles["data1"].access == call.tiles["data2"].access


def commute(one: Step, other: Step) -> bool:
    """True where two steps give the same in either order."""
    if one == other:
        return True
    bounds = {step.op: step.number for step in (one, other)}
    low, high = bounds.get("maximum"), bounds.get("minimum")
    if low is not None and high is not None:
        return low <= high
    turned = any(step.op == "divide" and step.reverse for step in (one, other))
    turned = turned or any(step.op == "subtract" and step.reverse for step in (one, other))
    return not turned and any(one.op in group and other.op in group for group in GROUPS)


def same(taken: Sequence[Step], order: Sequence[int]) -> bool:
    """True where steps in another order surely give the same."""
    place = {at: rank for rank, at in enumerate(order)}
    return all(
        place[a] < place[b] or commute(taken[a], taken[b]) for a, b in combinations(range(len(taken)), 2)
    )


def apart(one: Sequence[Step], other: Sequence[Step]) -> bool:
    """True where the order of two groups of steps matters."""
    return not all(commute(a, b) for a in one for b in other)


def lone(taken: Sequence[Step]) -> bool:
    """True for steps that need no other tile."""
    return all(not step.operand for step in taken)


def linear(taken: Sequence[Step]) -> bool:
    """True for steps that multiply with, or divide by, a number."""
    return all(step.op in GROUPS[0] and not step.reverse and not step.operand for step in taken)


def through(values: Values, taken: Sequence[Step], get: Get) -> Values | None:
    """Steps applied to values; None where another operand does not fit to them."""
    found = values
    for step in taken:
        if step.op in alu.BY_NAME:
            other: Any = beside(get(step.operand), values) if step.operand else step.number
            if other is None and alu.of(step.op).arity == 2:
                return None
            found = apply(alu.of(step.op), found, other, step.reverse)
        elif step.op in act.BY_NAME:
            found = act.of(step.op).fn(found)
        else:
            return None
    return np.asarray(found)


def beside(values: Values, like: Values) -> Values | None:
    """Values against a tile: element by element, or one for each partition; None where they do not fit."""
    if values.size == like.size:
        return values.reshape(like.shape)
    if values.size == values.shape[0] == like.shape[0]:
        return values.reshape(like.shape[0], *([1] * (like.ndim - 1)))
    return None


def held(running: Running, taken: Sequence[Step]) -> dict[str, Values]:
    """Copies of the tiles that steps take."""
    return {step.operand: np.array(running.value(step.operand)) for step in taken if step.operand}


def named(survey: Survey, instruction: int) -> str:
    """``activation (kernel.py:12)``."""
    program = survey.program
    name: str = program.opcodes[program.columns.opcode[instruction]].name
    return name + survey.where(instruction)


def said(taken: Sequence[Step]) -> str:
    """Steps for a sentence."""
    found = []
    for step in taken:
        if step.op in VERBS and not step.reverse:
            other = step.operand or ("a number" if step.number is None else shown(step.number))
            found.append(f"{VERBS[step.op]} {other}")
        elif step.operand:
            found.append(f"takes {step.op} with {step.operand}")
        else:
            found.append(f"takes {step.op}" + ("" if step.number is None else f" with {shown(step.number)}"))
    return ", then ".join(found)


class Recomputed(Acting):
    """Instructions with other results, and what they reduce them to: what `compute` finds before each one runs.

    compute: the values of dst; None where the instruction stays as it is.
    """

    def __init__(self, instructions: Collection[int], compute: Compute) -> None:
        super().__init__()
        self._at, self._compute = frozenset(instructions), compute

    def act(self, step: Instruction, core: Core, index: int, operands: Operands) -> None:
        """See `Acting`."""
        values = None
        if index in self._at and repeatable(step):
            values = self._compute(Running(step, core, operands), index)
        step.run(core, index, operands)
        if values is not None:
            settle(step, core, operands, values)


def settle(step: Instruction, core: Core, operands: Operands, values: Values) -> None:
    """Overwrite what an instruction has left in dst, and in what it reduces that to, if the sizes fit."""
    target = operand(step, operands, "dst")
    if target is None or target.form.size != values.size:
        return
    write(core, target, values)
    total = operand(step, operands, "reduce_res")
    join = JOINS.get(str(step.immediates.get("reduce_op") or "add"))
    if total is not None and join is not None and total.form.size == values.shape[0]:
        write(core, total, join(values.reshape(values.shape[0], -1), axis=1))

"""Hooks: instructions that run with a changed operand, or whose result is changed; all others run as they are."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.checks.steps import Step as Taken
from nkireview.execute import Around, Core, Operands, Step
from nkireview.isa import act, alu
from nkireview.isa.rows.arrays import apply

Values = NDArray[Any]


@dataclass(frozen=True)
class Running:
    """An instruction that is about to run, or has run."""

    step: Step
    core: Core
    operands: Operands

    def value(self, name: str) -> Values:
        """A tile's compute values, read-only; LookupError where there is none."""
        operand = self.operands[self.step.slots[name]]
        if operand is None:
            raise LookupError(f"operand {name} is no tile")
        return operand.load(self.core.formats)

    def put(self, name: str, values: Values) -> None:
        """Write compute values to a tile, without a word about what is defined."""
        operand = self.operands[self.step.slots[name]]
        if operand is not None:
            held = self.core.formats.store(values, operand.form.kind)
            operand.put(held if held.shape == operand.form.shape else held.reshape(operand.form.shape))


def plainly(step: Step, core: Core, index: int, operands: Operands) -> None:
    """Run an instruction as it is."""
    step.run(core, index, operands)


def before(
    instructions: Collection[int],
    operand: str,
    change: Callable[[Running], Values | None],
    then: Around = plainly,
) -> Around:
    """Run the instructions with other values of an operand, which then holds its own again but for what was written.

    change: the values to have; None to leave them. then: how the instruction, and all others, are run.
    """
    wanted = frozenset(instructions)

    def around(step: Step, core: Core, index: int, operands: Operands) -> None:
        running = Running(step, core, operands)
        if index in wanted:
            run_with(running, index, operand, change(running), then)
        else:
            then(step, core, index, operands)

    return around


def run_with(running: Running, index: int, name: str, values: Values | None, then: Around = plainly) -> None:
    """Run an instruction with those values of an operand, and give it back what it held."""
    step, core, operands = running.step, running.core, running.operands
    operand = operands[step.slots[name]]
    if values is None or operand is None:
        then(step, core, index, operands)
        return
    held = operand.read().copy()
    running.put(name, values)
    try:
        then(step, core, index, operands)
    finally:
        targets = [target for at, _ in step.writes if (target := operands[at]) is not None]
        same = [target for target in targets if target.cell.store is operand.cell.store]
        results = [(target, target.read().copy()) for target in same]
        operand.put(held)
        for target, result in results:
            target.put(result)


def after(
    instructions: Collection[int],
    result: str,
    change: Callable[[Values], Values],
    then: Around = plainly,
) -> Around:
    """Run the instructions, then change a result. then: how the instruction, and all others, are run."""
    wanted = frozenset(instructions)

    def around(step: Step, core: Core, index: int, operands: Operands) -> None:
        then(step, core, index, operands)
        if index in wanted:
            running = Running(step, core, operands)
            running.put(result, change(running.value(result)))

    return around


def instead(instructions: Collection[int], change: Callable[[Running], Values | None]) -> Around:
    """Write other values to dst in the place of what the instructions compute; None where they run as they are."""
    wanted = frozenset(instructions)

    def around(step: Step, core: Core, index: int, operands: Operands) -> None:
        running = Running(step, core, operands)
        changed = change(running) if index in wanted else None
        target = operands[step.slots["dst"]] if "dst" in step.slots else None
        if changed is None or target is None:
            step.run(core, index, operands)
            return
        running.put("dst", changed)
        step.settle(index, target, None, None)

    return around


def stepped(values: Values, taken: Iterable[Taken], operand: Callable[[str], Values]) -> Values:
    """The steps of an instruction applied to values; `operand` gives what broadcasts against them."""
    for step in taken:
        if step.op in alu.BY_NAME:
            other = operand(step.operand) if step.operand else step.number
            values = apply(alu.of(step.op), values, other, step.reverse)
        else:
            values = act.of(step.op).fn(values)
    return values


def beside(values: Values, like: Values) -> Values:
    """A tile in a shape that broadcasts against another: element by element, or one element a partition."""
    if values.size == like.size:
        return values.reshape(like.shape)
    lanes = values.reshape(values.shape[0], -1)[: like.shape[0], :1]
    return lanes.reshape(lanes.shape[0], *([1] * (like.ndim - 1)))


def slope(running: Running, taken: Iterable[Taken], like: Values) -> Values:
    """What a change of the main operand is multiplied with by steps that are affine, see `affine`."""
    found: Values = np.ones((), running.core.formats.compute)
    for step in taken:
        other: Any = beside(running.value(step.operand), like) if step.operand else step.number
        if step.op == "multiply":
            found = found * other
        elif step.op == "divide":
            found = found / other
        elif step.op == "subtract" and step.reverse:
            found = -found
    return found


def affine(step: Taken) -> bool:
    """True for a step that multiplies with, divides by, or adds something."""
    if not step.operand and step.number is None:
        return False
    return step.op in ("add", "subtract", "multiply") or (step.op == "divide" and not step.reverse)

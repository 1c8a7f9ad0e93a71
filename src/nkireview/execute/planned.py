"""The step of a row whose meaning is planned: the plan is made once, then run on the arrays of each instruction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from nkireview.execute.formats import Formats
from nkireview.execute.result import NoMeaningError
from nkireview.execute.step import MEANINGLESS, Core, Operands, Step
from nkireview.execute.storage import Operand
from nkireview.isa.enums import Engine
from nkireview.isa.row import Compute, Plan, Planned, Row, Shapes


@dataclass(frozen=True, eq=False)
class Work:
    """A plan for operands of one kind.

    takes: positions of the operands whose values it takes. target: that of the result. direct: it is computed in its
    place; by_numpy: assigning it rounds as a store does. constant: the stored result, where it takes no values.
    """

    plan: Plan
    compute: Compute
    takes: tuple[int, ...]
    target: int
    direct: bool
    by_numpy: bool
    constant: NDArray[Any] | None = None


class PlannedStep(Step):
    """Plans on the first instruction; what reads undefined elements or scattered ones goes the way of other steps."""

    def __init__(
        self, row: Row, names: tuple[str, ...], immediates: Mapping[str, Any], asked: Engine
    ) -> None:
        super().__init__(row, names, immediates, asked)
        self._work: Work | None = None
        self._open = self.simple

    def run(self, core: Core, index: int, operands: Operands) -> None:
        """See `Step.run`."""
        work = self._work
        if work is None:
            if self._open:
                self._open = False
                work = self._work = self._prepared(core, operands)
            if work is None:
                return super().run(core, index, operands)
        arrays = []
        target = operands[work.target]
        for at in work.takes:
            operand = operands[at]
            if operand is None or not (operand.plain and operand.defined):
                return super().run(core, index, operands)
            form = operand.form
            if form.loads and not work.plan.bits:
                arrays.append(operand.load(core.formats))
            else:
                block = operand.cell.store.block
                view = None if block is None else block.reads.get(form)
                arrays.append(operand.read() if view is None else view)
        if target is None or not target.plain:
            return super().run(core, index, operands)
        try:
            if work.constant is not None:
                target.put(work.constant)
            elif work.direct:
                work.compute(*arrays, out=target.target())
            else:
                room = core.scratch(work.plan.shape)
                work.compute(*arrays, out=room)
                target.put(_held(room, work, target, core.formats))
        except MEANINGLESS as error:
            raise NoMeaningError("no meaning", str(error) or type(error).__name__) from error
        return self.settle(index, target, None, None)

    def _prepared(self, core: Core, operands: Operands) -> Work | None:
        """How to run the plan on operands of these kinds; None where there is none."""
        core.values.bind(self, operands, self.immediates)
        meaning = self.row.meaning
        assert isinstance(meaning, Planned)
        try:
            plan = meaning.plan(cast(Shapes, core.values))
        except MEANINGLESS as error:
            raise NoMeaningError("no meaning", str(error) or type(error).__name__) from error
        at = self.slots["dst"]
        target = operands[at]
        if plan is None or target is None:
            return None
        takes = tuple(self.slots[name] for name in plan.takes)
        form = target.form
        read = {slot for slot, _ in self.reads if operands[slot] is not None}
        if read != set(takes) or form.size != int(np.prod(plan.shape)):
            return None
        if plan.bits:
            held = {
                operand.form.dtype for operand in (operands[slot] for slot in takes) if operand is not None
            }
            direct = held == {form.dtype} and plan.shape == form.shape
            return Work(plan, plan.compute, takes, at, True, True) if direct else None
        direct = form.exact and plan.shape == form.shape
        # A dtype equals None where it is float64.
        by_numpy = form.accepts is not None and form.accepts == core.formats.compute
        work = Work(plan, plan.compute, takes, at, direct, by_numpy)
        if takes or direct:
            return work
        room = np.empty(plan.shape, core.formats.compute)
        plan.compute(out=room)
        constant = _held(room, work, target, core.formats).astype(form.dtype)
        return Work(plan, plan.compute, takes, at, direct, True, constant)


def _held(values: NDArray[Any], work: Work, target: Operand, formats: Formats) -> NDArray[Any]:
    """A result as it is stored or assigned, in the shape of the target."""
    form = target.form
    held = values if work.by_numpy else formats.store(values, form.kind)
    return held if held.shape == form.shape else held.reshape(form.shape)

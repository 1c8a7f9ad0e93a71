"""What repairs do around instructions: objects that forget all they know when another execution begins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.execute import Core, Operands, Step
from nkireview.execute.result import FaultLog
from nkireview.execute.storage import Operand

Array = NDArray[Any]
Float64 = NDArray[np.float64]


class Acting:
    """An `Around` that may be used for one execution after the other: `begin` is called at the first instruction."""

    def __init__(self) -> None:
        self._log: FaultLog | None = None

    def __call__(self, step: Step, core: Core, index: int, operands: Operands) -> None:
        """See `Around`."""
        if core.log is not self._log:
            self._log = core.log
            self.begin()
        self.act(step, core, index, operands)

    def begin(self) -> None:
        """Forget what the execution before left."""

    def act(self, step: Step, core: Core, index: int, operands: Operands) -> None:
        """Run one instruction."""
        step.run(core, index, operands)


class After(Acting):
    """Changes what some instructions write to one operand: ``change(values) -> values``, in the compute dtype."""

    def __init__(self, operands: dict[int, str], change: Callable[[Float64], Float64]) -> None:
        super().__init__()
        self._operands, self._change = operands, change

    def act(self, step: Step, core: Core, index: int, operands: Operands) -> None:
        """See `Acting`."""
        step.run(core, index, operands)
        name = self._operands.get(index)
        target = None if name is None else operand(step, operands, name)
        if target is not None:
            write(core, target, self._change(values(core, target)))


def operand(step: Step, operands: Operands, name: str) -> Operand | None:
    """The operand of that name; None where it is no tile, or its elements are scattered."""
    at = step.slots.get(name)
    found = None if at is None else operands[at]
    return found if found is not None and found.plain else None


def values(core: Core, target: Operand) -> Float64:
    """A copy of the elements as compute values."""
    return np.array(target.load(core.formats))


def write(core: Core, target: Operand, given: Array) -> None:
    """Write compute values, as many as the operand has elements; what is defined stays as it was."""
    target.put(core.formats.store(given, target.form.kind).reshape(target.form.shape))


def repeatable(step: Step) -> bool:
    """True where running an instruction twice gives the same: it keeps no accumulator register, and draws nothing."""
    return (
        (step.registers is None or step.registers.command in ("idle", "reset_reduce"))
        and not step.given
        and not step.taken
        and step.row.name not in DRAWING
    )


DRAWING = frozenset({"rng", "rand2", "dropout", "set_rng_seed", "rand_set_state"})

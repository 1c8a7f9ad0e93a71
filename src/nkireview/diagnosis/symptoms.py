"""Symptoms: what an execution shows at its instructions beside their values: where NaN and infinity begin, where
digits cancel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from nkireview.diagnosis.arithmetic import Work
from nkireview.diagnosis.shadow import picked
from nkireview.execute import Around, Core, Operands, Step
from nkireview.execute.storage import Operand
from nkireview.isa.dtypes import COMPUTE_DTYPES, to_compute
from nkireview.numerics.arrays import root_mean_square

CANCELLED = 64.0
"""Times that operands are larger than their difference from which digits cancel."""
LOST = 64
"""Instructions that are noted for making NaN or infinity."""
DIFFERENCES = frozenset({"subtract", "add"})


@dataclass(eq=False)
class NotFinite:
    """An `around` of `execute`: the instructions that write NaN or infinity though nothing they read held any.

    found: by instruction the first such value, and the largest magnitude among what it reads and does not overwrite; at
    most `LOST` of them.
    """

    kinds: Sequence[Work]
    of: Sequence[int]
    found: dict[int, tuple[float, float]] = field(default_factory=dict)
    _spoilt: set[int] = field(default_factory=set)

    def __call__(self, step: Step, core: Core, index: int, operands: Operands) -> None:
        """Run an instruction and look at what it wrote."""
        step.run(core, index, operands)
        for write in self.kinds[self.of[index]].writes:
            operand = operands[write.slot]
            if operand is None or not operand.plain or _finite(operand):
                continue
            reads = [each for slot, _ in step.reads if (each := operands[slot]) is not None and each.plain]
            clean = not any(id(each.cell) in self._spoilt for each in reads)
            self._spoilt.add(id(operand.cell))
            if clean and index not in self.found and len(self.found) < LOST:
                values = _values(operand)
                kept = [each for each in reads if each.cell is not operand.cell]
                largest = max((_largest(each) for each in kept), default=0.0)
                self.found[index] = float(values[~np.isfinite(values)][0]), largest


@dataclass(eq=False)
class Cancellation:
    """An `around` of `execute` without rounding: how many times larger the operands of a difference are than it."""

    kinds: Sequence[Work]
    of: Sequence[int]
    inner: Around | None = None
    factors: dict[int, float] = field(default_factory=dict)

    def __call__(self, step: Step, core: Core, index: int, operands: Operands) -> None:
        """Run an instruction; where it takes a difference, compare sizes."""
        size = 0.0
        if step.row.name in ("tensor_tensor", "tensor_scalar", "scalar_tensor_tensor", "activation"):
            taken = {str(step.immediates.get(key)) for key in ("op", "op0", "op1")}
            if taken & DIFFERENCES or step.row.name == "activation":
                sources = [operands[slot] for slot, _ in step.reads]
                floats = [each for each in sources if each is not None and each.plain]
                size = max(
                    (root_mean_square(picked(each)) for each in floats if each.form.kind.kind == "float"),
                    default=0.0,
                )
        if self.inner is None:
            step.run(core, index, operands)
        else:
            self.inner(step, core, index, operands)
        writes = self.kinds[self.of[index]].writes
        if size and writes and (operand := operands[writes[0].slot]) is not None and operand.plain:
            result = root_mean_square(picked(operand))
            if result and size / result >= CANCELLED:
                self.factors[index] = size / result


def _values(operand: Operand) -> NDArray[np.float64]:
    held = operand.read()
    if held.dtype == operand.form.kind.storage and operand.form.kind.kind != "packed":
        return np.asarray(to_compute(held, operand.form.kind, np.float64), np.float64)
    return np.asarray(held, np.float64)


def _finite(operand: Operand) -> bool:
    if operand.form.kind.kind != "float" or not operand.defined:
        return True
    held = operand.read()
    if held.dtype in COMPUTE_DTYPES and math.isfinite(float(held.sum())):
        return True  # a NaN or infinity shows in the sum
    return bool(np.isfinite(_values(operand)).all())


def _largest(operand: Operand) -> float:
    if operand.form.kind.kind != "float" or not operand.defined:
        return 0.0
    return float(np.abs(_values(operand)).max(initial=0.0))

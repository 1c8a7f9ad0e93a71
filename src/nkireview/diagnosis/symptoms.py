"""Symptoms: what an execution shows at its instructions beside their values: where NaN and infinity begin, where
digits cancel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from nkireview.diagnosis.arithmetic import Work
from nkireview.diagnosis.shadow import picked
from nkireview.execute import Around, Core, Operands, Step
from nkireview.execute.storage import Operand
from nkireview.isa.dtypes import to_compute

CANCELLED = 64.0
"""Times that operands are larger than their difference from which digits cancel."""
LOST = 64
"""Instructions that are noted for making NaN or infinity."""
DIFFERENCES = frozenset({"subtract", "add"})


@dataclass(eq=False)
class NotFinite:
    """An `around` of `execute`: the instructions that write NaN or infinity though they read neither.

    found: by instruction the first such value, and the largest magnitude that it reads; at most `LOST` of them.
    """

    kinds: Sequence[Work]
    of: Sequence[int]
    found: dict[int, tuple[float, float]] = field(default_factory=dict)

    def __call__(self, step: Step, core: Core, index: int, operands: Operands) -> None:
        """Run an instruction and look at what it wrote."""
        writes = self.kinds[self.of[index]].writes
        if not writes or len(self.found) >= LOST or index in self.found:
            return step.run(core, index, operands)
        reads = [
            operand for slot, _ in step.reads if (operand := operands[slot]) is not None and operand.plain
        ]
        clean = all(_finite(operand) for operand in reads)
        largest = max((_largest(operand) for operand in reads), default=0.0) if clean else 0.0
        step.run(core, index, operands)
        for write in writes:
            operand = operands[write.slot]
            if clean and operand is not None and operand.plain and not _finite(operand):
                values = _values(operand)
                self.found[index] = float(values[~np.isfinite(values)][0]), largest
                break
        return None


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
                size = max((_size(each) for each in floats if each.form.kind.kind == "float"), default=0.0)
        if self.inner is None:
            step.run(core, index, operands)
        else:
            self.inner(step, core, index, operands)
        writes = self.kinds[self.of[index]].writes
        if size and writes and (operand := operands[writes[0].slot]) is not None and operand.plain:
            result = _size(operand)
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
    return bool(np.isfinite(_values(operand)).all())


def _largest(operand: Operand) -> float:
    if operand.form.kind.kind != "float" or not operand.defined:
        return 0.0
    return float(np.abs(_values(operand)).max(initial=0.0))


def _size(operand: Operand) -> float:
    values = picked(operand)
    values = values[np.isfinite(values)]
    return float(np.sqrt(np.mean(np.square(values)))) if values.size else 0.0

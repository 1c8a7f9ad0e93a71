"""Ties: results so near the middle between two integers that rounding on their way decides which of them is stored."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.diagnosis.arithmetic import Work
from nkireview.execute import Around, Core, Operands, Step
from nkireview.isa.dtypes import rounded
from nkireview.isa.row import Bits

Float64 = NDArray[np.float64]

KEPT = 1 << 23
"""Elements that are kept of all results before they become integers."""


@dataclass(eq=False)
class Integers:
    """An `around` of `execute` without rounding: results of floats that are stored as integers, before they are."""

    kinds: Sequence[Work]
    of: Sequence[int]
    inner: Around | None = None
    found: dict[int, Float64] = field(default_factory=dict)
    kept: int = 0

    def __call__(self, step: Step, core: Core, index: int, operands: Operands) -> None:
        """Run an instruction, and keep its result where it becomes an integer."""
        write = _becomes_integer(step, self.kinds[self.of[index]], operands)
        if write is not None and self.kept < KEPT:
            result = _result(step, core, operands, step.names[write])
            if result is not None:
                self.found[index] = result
                self.kept += result.size
        if self.inner is None:
            step.run(core, index, operands)
        else:
            self.inner(step, core, index, operands)


@dataclass(eq=False)
class Moved:
    """An `around` of `execute` without rounding that moves what becomes an integer by the band of its instruction.

    bands: by instruction, a relative error; sign: 1 up, -1 down.
    """

    kinds: Sequence[Work]
    of: Sequence[int]
    bands: Mapping[int, float]
    sign: float

    def __call__(self, step: Step, core: Core, index: int, operands: Operands) -> None:
        """Run an instruction; what becomes an integer is moved first."""
        band = self.bands.get(index)
        write = None if band is None else _becomes_integer(step, self.kinds[self.of[index]], operands)
        result = None if write is None else _result(step, core, operands, step.names[write])
        step.run(core, index, operands)
        target = None if write is None else operands[write]
        if result is not None and target is not None and band is not None:
            moved = result + self.sign * band * np.abs(result)
            target.put(rounded(moved, target.form.kind).reshape(target.form.shape))


def bands(
    exact: Mapping[int, Float64], samples: Sequence[Mapping[int, Float64]], sigmas: float
) -> dict[int, float]:
    """By instruction how far, relative to each result, rounding on the way may move it."""
    found = {}
    for index, want in exact.items():
        size = math.sqrt(float(np.mean(np.square(want)))) if want.size else 0.0
        errors = [have[index] - want for have in samples if index in have and have[index].shape == want.shape]
        if not errors or not size:
            continue
        with np.errstate(invalid="ignore", divide="ignore"):
            share = np.abs(np.stack(errors)) / np.maximum(np.abs(want), 1e-3 * size)
        finite = share[np.isfinite(share)]
        spread = math.sqrt(float(np.mean(np.square(finite)))) if finite.size else 0.0
        found[index] = max(sigmas * spread, 2.0**-40)
    return found


def _becomes_integer(step: Step, work: Work, operands: Operands) -> int | None:
    """The slot of an integer that an instruction makes of floats; None where it makes none."""
    if not step.simple or not work.writes:
        return None
    slot = work.writes[0].slot
    target = operands[slot]
    if target is None or not target.plain or target.form.kind.kind not in ("int", "uint"):
        return None
    sources = [operand for at, _ in step.reads if (operand := operands[at]) is not None]
    floats = any(operand.form.kind.kind == "float" for operand in sources)
    return slot if floats and all(operand.defined for operand in sources) else None


def _result(step: Step, core: Core, operands: Operands, name: str) -> Float64 | None:
    core.values.bind(step, operands, step.immediates)
    found: Any = core.values.results().get(name)
    return None if found is None or isinstance(found, Bits) else np.array(found, np.float64)

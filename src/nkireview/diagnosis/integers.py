"""Integers that engines read as float32: what becomes of those that it does not hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.checks.dataflow import Dataflow, flow_of
from nkireview.checks.precision import INTEGERS
from nkireview.checks.steps import ACTIVATIONS
from nkireview.diagnosis.algebra.hooks import Running, plainly, run_with
from nkireview.execute import Around, Core, Operands, Step, execute
from nkireview.isa import dtypes
from nkireview.isa.enums import Engine
from nkireview.program.interning import by_opcode
from nkireview.program.program import Program

Array = NDArray[Any]
Float64 = NDArray[np.float64]

COMPUTING = ACTIVATIONS | {"tensor_tensor", "tensor_scalar", "scalar_tensor_tensor", "tensor_reduce"}
"""Rows that compute with what they read in float32, unless GpSimd computes integers of integers."""


@dataclass(eq=False)
class Narrowed:
    """An `around` of `execute` without rounding: integers are read as the float32 numbers next to them.

    found: for each instruction that such numbers were read by the largest of them.
    """

    flow: Dataflow
    found: dict[int, float] = field(default_factory=dict)

    def __call__(self, step: Step, core: Core, index: int, operands: Operands) -> None:
        """Run an instruction."""
        around: Around = plainly
        for name, values in self._integers(step, index, operands):
            narrow = values.astype(np.float32).astype(np.float64)
            if (narrow != values).any():
                largest = float(np.abs(values).max())
                self.found[index] = max(largest, self.found.get(index, 0.0))
                around = partial(_with, name, narrow, around)
        around(step, core, index, operands)

    def _integers(self, step: Step, index: int, operands: Operands) -> Iterator[tuple[str, Float64]]:
        """The tiles of integers that an instruction computes with in float32."""
        if step.row.name not in COMPUTING:
            return
        read = {slot for slot, _ in step.reads}
        for name, slot in step.slots.items():
            tile = operands[slot] if slot in read else None
            if tile is None or not (tile.plain and tile.defined and tile.form.kind.name in INTEGERS):
                continue
            call = self.flow.call(index)
            if call is None or (call.resolved_engine() is Engine.gpsimd and call.dtype("dst") in INTEGERS):
                return
            yield name, np.asarray(dtypes.to_compute(tile.read(), tile.form.kind, np.float64))


def _with(
    name: str, values: Float64, then: Around, step: Step, core: Core, index: int, operands: Operands
) -> None:
    run_with(Running(step, core, operands), index, name, values, then)


def narrowed(program: Program, arguments: Mapping[int, Array]) -> tuple[dict[int, float], Sequence[Float64]]:
    """The instructions that read integers which float32 does not hold, the largest, and the outputs with that alone."""
    if not _reads_integers(program):
        return {}, ()
    watch = Narrowed(flow_of(program))
    found = execute(program, arguments, compute=np.float64, rounding="off", around=watch)
    return watch.found, [np.asarray(output.values, np.float64) for output in found.outputs]


def _reads_integers(program: Program) -> bool:
    """True where an instruction that computes has an operand of integers."""
    whole = np.array([name in INTEGERS for name in program.dtypes], bool)
    computing = np.array([opcode.name in COMPUTING for opcode in program.opcodes], bool)
    for code, _, accesses in by_opcode(program):
        used = accesses[accesses >= 0]
        if computing[code] and whole[program.columns.access_dtype[used]].any():
            return True
    return False

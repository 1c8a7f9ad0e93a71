"""What each rounding costs: the roundings of one line at a time, on top of an execution without any."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.diagnosis.arithmetic import BORN, Work
from nkireview.execute import Around, Core, Operands, Step, execute
from nkireview.isa import dtypes
from nkireview.isa.dtypes import BY_NAME
from nkireview.numerics.arrays import pieces
from nkireview.program.program import Program

Array = NDArray[Any]
Float64 = NDArray[np.float64]


@dataclass(frozen=True)
class Line:
    """Instructions of one line and row that store in a float of fewer digits than float32."""

    place: int
    opcode: str
    dtype: str
    instructions: tuple[int, ...]


@dataclass(frozen=True)
class Cost:
    """What the roundings of one line alone do to an output: the largest error, and that as a share of the allowed."""

    line: Line
    output: int
    error: float
    share: float


@dataclass(eq=False)
class Rounded:
    """An `around` of `execute` without rounding that rounds what some instructions store, as their tiles would."""

    program: Program
    instructions: frozenset[int]

    def __call__(self, step: Step, core: Core, index: int, operands: Operands) -> None:
        """Run an instruction and round what it wrote."""
        step.run(core, index, operands)
        if index not in self.instructions:
            return
        for at, _ in step.writes:
            operand = operands[at]
            if operand is None or not operand.plain or operand.form.kind.kind != "float":
                continue
            kind = operand.form.kind
            values = operand.target()
            # by way of float32, in which engines compute
            held = dtypes.rounded(np.asarray(values, np.float32), kind)
            values[...] = dtypes.widened(held, kind, values.dtype)


def lines(program: Program, kinds: Sequence[Work], of: Sequence[int]) -> list[Line]:
    """The lines whose stores lose digits that float32 would keep, those of most instructions first."""
    found: dict[tuple[int, str, str], list[int]] = defaultdict(list)
    columns = program.columns
    for index, number in enumerate(of):
        opcode = program.opcodes[columns.opcode[index]]
        for write in kinds[number].writes:
            if write.rounds and write.dtype.kind == "float" and write.dtype.significand_bits < 24:
                found[int(columns.place[index]), opcode.name, write.dtype.name].append(index)
        if opcode.name in BORN and "dst" in opcode.operands:
            access = columns.operand[columns.operand_at[index] + opcode.operands.index("dst")]
            dtype = BY_NAME[program.dtypes[columns.access_dtype[access]]]
            if dtype.kind == "float" and dtype.significand_bits < 24:
                found[int(columns.place[index]), opcode.name, dtype.name].append(index)
    made = [Line(place, opcode, dtype, tuple(each)) for (place, opcode, dtype), each in found.items()]
    return sorted(made, key=lambda line: -len(line.instructions))


def costs(
    program: Program,
    arguments: Mapping[int, Array],
    exact: Sequence[Float64],
    allowed: Sequence[Float64],
    chosen: Sequence[Line],
) -> Iterator[Cost]:
    """What each of these lines costs each output, one execution for each."""
    for line in chosen:
        around: Around = Rounded(program, frozenset(line.instructions))
        found = execute(program, arguments, compute=np.float64, rounding="off", around=around)
        for at, output in enumerate(found.outputs):
            with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
                error, share = _largest(output.values, exact[at], allowed[at])
            yield Cost(line, at, error, share)


def _largest(have: Array, exact: Float64, allowed: Float64) -> tuple[float, float]:
    """The largest error, infinite for NaN, and the largest share of what is allowed."""
    error = share = 0.0
    got, want, most = (each.reshape(-1) for each in (have, exact, allowed))
    for piece in pieces(want.size):
        errors = np.abs(got[piece].astype(np.float64) - want[piece])
        errors[np.isnan(errors)] = np.inf
        error = max(error, float(errors.max()))
        np.divide(errors, most[piece], out=errors, where=most[piece] > 0)
        errors[(errors > 0) & ~(most[piece] > 0)] = np.inf
        share = max(share, float(errors.max()))
    return error, share

"""Naming: from the instruction at which a value goes wrong to the name of what is wrong there."""

from __future__ import annotations

import math
from collections.abc import Mapping

from nkireview.checks.precision import FP8
from nkireview.checks.steps import ACTIVATIONS
from nkireview.diagnosis.costs import Line
from nkireview.diagnosis.model import Cause
from nkireview.isa.dtypes import BY_NAME, DataType
from nkireview.program.program import Program

ADDING = frozenset({"tensor_tensor", "scalar_tensor_tensor", "nc_matmul", "nc_matmul_mx"})
ROOTS = frozenset({"rsqrt", "reciprocal", "divide", "power", "sqrt"})


def line_of(program: Program, instruction: int) -> str:
    """``file:line`` of an instruction, or its number."""
    if instruction < 0:
        return ""
    text = program.place_text(int(program.columns.place[instruction]))
    return text or f"instruction {instruction}"


def dtype_of(program: Program, instruction: int, operand: str = "dst") -> str:
    """The dtype of an operand of an instruction; empty where it has none of that name."""
    access = program.instruction(instruction).operands.get(operand)
    return "" if access is None else access.dtype


def not_finite(program: Program, instruction: int, value: float, largest: float) -> Cause:
    """The cause of a NaN or infinity that an instruction makes of finite operands."""
    call = program.instruction(instruction)
    immediates, line = call.immediates, line_of(program, instruction)
    written = dtype_of(program, instruction)
    taken = {str(immediates.get(key)) for key in ("op", "op0", "op1") if immediates.get(key) is not None}
    shown = "NaN" if math.isnan(value) else f"{value:g}"
    kind = BY_NAME.get(written)
    if "exp" in taken and call.opcode in ACTIVATIONS | {"exponential"}:
        return Cause(
            "exp-unshifted",
            f"exp overflows: its operands reach {largest:.4g}, and exp of more than 88.7 is {shown} in float32; no "
            f"maximum is subtracted that would keep them below zero ({line})",
            line,
            "not finite",
        )
    if "log" in taken and math.isinf(value):
        return Cause(
            "log-of-zero",
            f"{call.opcode} takes the logarithm of zero: what it reads has underflowed or was never more ({line})",
            line,
            "not finite",
        )
    if kind is not None and written in FP8 | {"float16"} and _overflows(kind, value):
        name = "fp8-overflow" if written in FP8 else "saturation-lost"
        return Cause(
            name,
            f"{call.opcode} stores results beyond {kind.max_finite:g}, the largest number of {written}: they become "
            f"{shown} ({line})",
            line,
            "not finite",
        )
    if taken & ROOTS or call.opcode == "reciprocal":
        return Cause(
            "division-by-zero",
            f"{call.opcode} divides by zero or takes the root of a negative number: it gives {shown} ({line})",
            line,
            "not finite",
        )
    return Cause(
        "not-finite",
        f"{call.opcode} gives {shown} of finite operands up to {largest:.4g} ({line})",
        line,
        "not finite",
    )


def _overflows(kind: DataType, value: float) -> bool:
    """True where a value is what a number beyond the largest becomes: infinity, or NaN in a format without it."""
    return math.isinf(value) or not kind.has_inf


def low_precision(program: Program, line: Line, share: float, wide: frozenset[int]) -> Cause:
    """The cause where the roundings of one line use `share` times what is allowed."""
    text = line_of(program, line.instructions[0])
    digits = BY_NAME[line.dtype].significand_bits
    count = len(line.instructions)
    if line.opcode in ("iota", "nc_find_index8"):
        return Cause(
            "indices-in-low-precision",
            f"{line.opcode} keeps positions in {line.dtype}, which has {digits} digits and does not hold every integer "
            f"above {2**digits}: the indices that come out are others ({text})",
            text,
            "rounding",
        )
    if wide & set(line.instructions) and line.opcode in ADDING:
        return Cause(
            "low-precision-sum",
            f"a sum is kept in {line.dtype} and rounded to {digits} digits at each of its additions ({count} "
            f"instructions): alone that makes {_times(share)} the error that is allowed; keep it in float32 ({text})",
            text,
            "rounding",
        )
    return Cause(
        "low-precision",
        f"{line.opcode} stores in {line.dtype} ({digits} digits): alone that makes {_times(share)} the error that is "
        f"allowed ({text})",
        text,
        "rounding",
    )


def wide_integers(program: Program, instruction: int, largest: float) -> Cause:
    """The cause where integers beyond 2^24 are read as float32."""
    line, opcode = line_of(program, instruction), program.instruction(instruction).opcode
    digits = BY_NAME["float32"].significand_bits
    spacing = 2.0 ** (math.floor(math.log2(largest)) + 1 - digits)
    return Cause(
        "integers-beyond-float32",
        f"{opcode} computes in float32, which does not hold every integer above {2**digits:,}: its operands reach "
        f"{largest:,.0f}, where they are read as multiples of {spacing:,.0f} ({line})",
        line,
        "rounding",
    )


def cancelled(program: Program, factors: Mapping[int, float]) -> Cause | None:
    """The cause where digits cancel: the difference that is smallest against its operands."""
    if not factors:
        return None
    instruction = max(factors, key=lambda index: factors[index])
    line, factor = line_of(program, instruction), factors[instruction]
    return Cause(
        "cancellation",
        f"{program.instruction(instruction).opcode} takes the difference of numbers {factor:.3g} times larger than it: "
        f"their rounding errors are {factor:.3g} times larger in the result than in them ({line})",
        line,
        "instability",
    )


def _times(share: float) -> str:
    return f"{share:.3g} times" if math.isfinite(share) else "infinitely many times"

"""What each instruction computes, as far as rounding goes: which writes round, which sum, which only move values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nkireview.checks.recipes import recipes
from nkireview.checks.steps import ACTIVATIONS, MATMUL, main_operand
from nkireview.checks.stored import EXACT, MOVES, operators
from nkireview.isa import act, dtypes
from nkireview.isa.dtypes import DataType
from nkireview.isa.row import Flow, Role, Row
from nkireview.program.call import CallView
from nkireview.program.program import Program
from nkireview.program.scope import Scope
from nkireview.program.storage import role_of

SUMMING = frozenset({"add", "average", "subtract"})
STATISTICS = frozenset({"bn_stats", "bn_aggr"})
SCANS = frozenset({"tensor_tensor_scan", "tensor_scalar_cumulative"})
BORN = frozenset({"iota", "memset", "nc_find_index8"})
"""Rows whose results are given numbers or positions, not rounded results of operands."""


@dataclass(frozen=True)
class Stored:
    """One written operand of a call.

    rounds: storing it rounds a computed value; a copy of what its dtype holds does not. sums: ``matmul``, ``reduce``
    (of the operand ``summed``), ``results`` (of what the same call writes to ``summed``), ``scan``, ``statistics``, or
    empty. source: the widest float that it is made of.
    """

    slot: int
    dtype: DataType
    rounds: bool
    sums: str = ""
    summed: int = -1
    source: str = ""


@dataclass(frozen=True)
class Work:
    """A call: what it writes, its main operand where it does several operations to it, whether it takes a function."""

    writes: tuple[Stored, ...]
    chained: tuple[int, ...] = ()
    function: bool = False


NOTHING = Work(())


def works(program: Program, rows: Mapping[str, Row]) -> tuple[list[Work], list[int]]:
    """The distinct kinds of work of a Program, and the number of that of each instruction."""
    found, of = recipes(Scope.of(program, rows), _work, lambda _: NOTHING)
    return found, of.tolist()


def _work(call: CallView, names: Sequence[str]) -> Work:
    if call.row.name in BORN:
        return NOTHING
    writes = tuple(
        _stored(call, names, slot)
        for slot, name in enumerate(names)
        if call.has(name) and role_of(call.row.operand(name), call.immediates) is not Role.read
    )
    several = [name for name in (main_operand(call), "bias") if name and call.has(name)]
    chained = tuple(names.index(name) for name in several) if _chained(call) else ()
    return Work(tuple(write for write in writes if write.dtype.kind != "packed"), chained, _function(call))


def _stored(call: CallView, names: Sequence[str], slot: int) -> Stored:
    name = names[slot]
    dtype = dtypes.BY_NAME[call.dtype(name)]
    sums, summed = _sums(call, name)
    found = operators(call, name)
    sources = [
        dtypes.BY_NAME[call.dtype(operand.name)]
        for operand in call.row.operands
        if operand.role is Role.read and call.has(operand.name)
    ]
    floats = [source for source in sources if source.kind == "float" and source.numpy is not None]
    widest = max(floats, key=lambda source: source.significand_bits, default=None)
    held = all(source.significand_bits <= dtype.significand_bits for source in floats)
    moved = call.row.name in MOVES or found <= EXACT
    rounds = dtype.kind == "float" and not (moved and held and not sums)
    return Stored(
        slot, dtype, rounds, sums, names.index(summed) if summed else -1, widest.name if widest else ""
    )


def _sums(call: CallView, name: str) -> tuple[str, str]:
    """How a written operand is a sum, and the operand that is summed."""
    row = call.row.name
    if row == MATMUL:
        return ("", "") if call.imm("is_transpose") else ("matmul", "stationary")
    if row == "tensor_reduce":
        return ("reduce", "data") if call.imm("op") in SUMMING else ("", "")
    if row in STATISTICS:
        return "statistics", "data"
    if row in SCANS:
        return "scan", ""
    if name == "reduce_res" and str(call.imm("reduce_op") or "add") in SUMMING and call.has("dst"):
        return "results", "dst"
    if call.row.flow.get(name) is Flow.contract:
        return "matmul", "stationary"
    return "", ""


def _chained(call: CallView) -> bool:
    """True where several operations in float32 follow one another before the result is stored."""
    row = call.row.name
    if row in ACTIVATIONS:
        return bool(operators(call, "dst") - {str(call.imm("op"))})
    return (row == "tensor_scalar" and call.imm("op1") is not None) or row == "scalar_tensor_tensor"


def _function(call: CallView) -> bool:
    names = {str(call.imm(key)) for key in ("op", "op0", "op1") if call.imm(key) is not None}
    known = names & (set(act.BY_NAME) | {"power", "rsqrt", "divide"})
    return bool(known - EXACT - {"square", "copy", "multiply", "add"}) or call.row.name in (
        "reciprocal",
        "exponential",
    )

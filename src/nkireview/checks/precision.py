"""Where a Program loses digits or range: dtypes against the values that pass through them, without data."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from nkireview.checks.counts import loop_trips
from nkireview.checks.dataflow import UNKNOWN, Dataflow, Site, Slot
from nkireview.checks.stability import Spot, divides
from nkireview.checks.steps import (
    ACTIVATIONS,
    COPIES,
    MATMUL,
    leaves,
    main_operand,
    steps,
    summed,
    terms_of,
    written,
)
from nkireview.isa import dtypes
from nkireview.isa.dtypes import DataType
from nkireview.isa.enums import Engine
from nkireview.isa.rows.arrays import affine
from nkireview.program.call import CallView
from nkireview.program.interning import by_opcode
from nkireview.program.storage import READS

LOW = frozenset({"bfloat16", "float16", "float8_e4m3", "float8_e4m3fn", "float8_e5m2"})
FP8 = frozenset({"float8_e4m3", "float8_e4m3fn", "float8_e5m2"})
NATIVE_FN = "v4"
"""The first generation that computes with float8_e4m3fn; earlier ones take such inputs for float8_e4m3."""
INTEGERS = frozenset({"int32", "uint32"})
ENUMERATED = 2**20
"""Index values that are checked one by one; of more, only the ends."""
FEW = 4
"""Terms from which on a sum kept in low precision is reported."""
FOLLOWED = 4
"""Instructions that a range of integers is followed back through."""
LONG = 32
"""Elements from which on a divisor's sum is reported where it is rounded to low precision."""
BOUNDED = frozenset({"sigmoid", "tanh", "erf", "sign", "arctan", "sin", "exp"})
CLAMPS = frozenset({"minimum", "maximum"})


@dataclass(frozen=True)
class Lossy:
    """Integers that a tile does not hold: the dtype, the largest value, and the first that is rounded."""

    instruction: int
    count: int
    dtype: str
    largest: int
    first: int
    becomes: float


@dataclass(frozen=True)
class Narrowed:
    """Values that pass through a dtype between two others."""

    instruction: int
    count: int
    wide: str
    narrow: str
    after: str


def lossy_indices(flow: Dataflow) -> Iterator[Lossy]:
    """iota, or positions found by nc_find_index8, in a dtype that does not hold all of them exactly."""
    for site in flow.sites(("iota", "nc_find_index8")):
        values = _index_values(site)
        if values is None:
            continue
        yield from _lossy(flow, site, values)
        for reader in flow.readers(site.slot("dst")):
            call = _copy(flow, reader)
            if call is not None and call.dtype("dst") != site.call.dtype("dst"):
                yield from _lossy(flow, Site(reader.instruction, 1, call), values)


def _copy(flow: Dataflow, reader: Slot) -> CallView | None:
    """The call that copies what an operand reads; None for any other, and where it says which elements are copied."""
    call = flow.call(reader.instruction) if reader.instruction != UNKNOWN else None
    copies = call is not None and call.row.name in COPIES and reader.operand == main_operand(call)
    return call if copies else None


def _index_values(site: Site) -> NDArray[np.int64] | None:
    call = site.call
    if call.row.name == "nc_find_index8":
        return np.arange(call.measure("data", "free"), dtype=np.int64)
    pattern, offset = call.imm("pattern"), call.imm("offset") or 0
    multiplier = call.imm("channel_multiplier") or 0
    if not isinstance(offset, int) or not isinstance(multiplier, int) or pattern is None:
        return None
    partitions = call.measure("dst", "partitions")
    free = math.prod(count for _, count in pattern)
    if partitions * free > ENUMERATED:
        low = offset + min(multiplier * (partitions - 1), 0) + sum(min(s * (c - 1), 0) for s, c in pattern)
        high = offset + max(multiplier * (partitions - 1), 0) + sum(max(s * (c - 1), 0) for s, c in pattern)
        return np.array([low, high], np.int64)
    return np.unique(affine(pattern, offset, multiplier, partitions)).astype(np.int64)


def _lossy(flow: Dataflow, site: Site, values: NDArray[np.int64]) -> Iterator[Lossy]:
    dtype = dtypes.BY_NAME[site.call.dtype("dst")]
    if dtype.kind not in ("float", "int", "uint"):
        return
    held = dtypes.to_compute(dtypes.cast(values.astype(np.float64), dtype), dtype, np.float64)
    wrong = np.flatnonzero(held != values)
    if len(wrong):
        first = min(wrong.tolist(), key=lambda at: abs(int(values[at])))
        largest = int(values[np.argmax(np.abs(values))])
        yield Lossy(site.instruction, site.count, dtype.name, largest, int(values[first]), float(held[first]))


@dataclass(frozen=True)
class RunningSum:
    """A sum that is read, added to and rounded again `terms` times in a dtype of few digits."""

    instruction: int
    terms: int
    dtype: str


def running_sums(flow: Dataflow) -> Iterator[RunningSum]:
    """Tiles of low precision that are added to in place, `FEW` times or more."""
    columns = flow.program.columns
    try:
        trips = loop_trips(flow.program)
    except ValueError:
        return
    terms: Counter[int] = Counter()
    first: dict[int, Slot] = {}
    for code, rows, accesses in by_opcode(flow.program):
        opcode = flow.program.opcodes[code]
        if opcode.name not in ("tensor_tensor", "scalar_tensor_tensor"):
            continue
        names = opcode.operands
        dst = accesses[:, names.index("dst")]
        sides = [accesses[:, names.index(n)] for n in ("data1", "data2", "data", "operand1") if n in names]
        in_place = np.any([side == dst for side in sides], axis=0) & (dst >= 0)
        low = np.array([name in LOW for name in flow.program.dtypes], bool)
        in_place &= low[columns.access_dtype[np.maximum(dst, 0)]]
        for at in np.flatnonzero(in_place).tolist():
            immediates = flow.program.immediates[columns.immediates[rows[at]]]
            if immediates.get("op", immediates.get("op1")) == "add":
                terms[int(dst[at])] += int(trips[rows[at]])
                first.setdefault(int(dst[at]), Slot(int(rows[at]), "dst"))
    by_line: dict[int, RunningSum] = {}
    for access, count in terms.items():
        slot = first[access]
        line = int(columns.place[slot.instruction])
        known = by_line.get(line)
        if count >= FEW and (known is None or known.terms < count):
            dtype = flow.program.access(access).dtype
            by_line[line] = RunningSum(slot.instruction, count, dtype)
    yield from sorted(by_line.values(), key=lambda item: item.instruction)


def low_psum(flow: Dataflow) -> Iterator[RunningSum]:
    """Matmuls that accumulate in a PSUM tile of low precision."""
    columns = flow.program.columns
    terms: Counter[int] = Counter()
    first: dict[int, int] = {}
    for code, rows, accesses in by_opcode(flow.program):
        opcode = flow.program.opcodes[code]
        if opcode.name != MATMUL:
            continue
        dst = accesses[:, opcode.operands.index("dst")]
        for at, access in enumerate(dst.tolist()):
            immediates = flow.program.immediates[columns.immediates[rows[at]]]
            if access >= 0 and not immediates.get("is_transpose"):
                if flow.program.dtypes[columns.access_dtype[access]] in LOW:
                    # accumulate=False starts a new sum in the same place
                    terms[access] = 1 if immediates.get("accumulate") is False else terms[access] + 1
                    first.setdefault(access, int(rows[at]))
    longest = max(terms, key=lambda access: terms[access], default=None)
    if longest is not None and terms[longest] > 1:
        yield RunningSum(first[longest], terms[longest], flow.program.access(longest).dtype)


def narrow_passages(flow: Dataflow) -> Iterator[Narrowed]:
    """Results of wide operands that are written to a narrower tile and copied into another dtype from there.

    `after` is wider than the tile (its digits are lost for nothing) or narrower (they are rounded twice).
    """
    for site in flow.sites():
        call = site.call
        if call.row.name in COPIES or not call.has("dst"):
            continue
        narrow = dtypes.BY_NAME[call.dtype("dst")]
        wide = _widest(flow, site)
        if narrow.kind != "float" or wide is None or wide.significand_bits <= narrow.significand_bits:
            continue
        after = _copied_into(flow, site.slot("dst"))
        if after is not None and after.kind == "float" and after.significand_bits != narrow.significand_bits:
            yield Narrowed(site.instruction, site.count, wide.name, narrow.name, after.name)


def _widest(flow: Dataflow, site: Site) -> DataType | None:
    found = [
        dtypes.BY_NAME[site.call.dtype(slot.operand)]
        for slot in flow.operands(site.instruction, READS)
        if not flow.operand_writes(slot)
    ]
    floats = [dtype for dtype in found if dtype.kind == "float"]
    return max(floats, key=lambda dtype: dtype.significand_bits, default=None)


def _copied_into(flow: Dataflow, slot: Slot) -> DataType | None:
    """The one dtype into which a tile is only ever copied; None where it is read otherwise, or not at all."""
    found = set()
    for reader in flow.readers(slot):
        call = _copy(flow, reader)
        if call is None or call.row.name == "nc_transpose":
            return None
        found.add(call.dtype("dst"))
    return dtypes.BY_NAME[found.pop()] if len(found) == 1 else None


def largest(name: str, generation: str) -> float:
    """The largest finite number of an fp8 dtype on a generation of NeuronCores (v2, v3, v4)."""
    held = "float8_e4m3" if name == "float8_e4m3fn" and generation != NATIVE_FN else name
    return dtypes.BY_NAME[held].max_finite


def raw_fp8(flow: Dataflow) -> Iterator[Spot]:
    """Wider values written as fp8 with nothing on their way that scales or bounds them."""
    for site in flow.sites():
        call = site.call
        name = main_operand(call)
        taken = steps(call)
        if not name or taken is None or not call.has("dst") or call.dtype("dst") not in FP8:
            continue
        source = dtypes.BY_NAME[call.dtype(name)]
        narrow = dtypes.BY_NAME[call.dtype("dst")]
        if source.kind != "float" or source.max_finite <= narrow.max_finite:
            continue
        if any(step.op in BOUNDED | CLAMPS or step.op in ("multiply", "divide", "select") for step in taken):
            continue
        found = leaves(flow, site.slot(name), frozenset({"add", "subtract", "add tile", "subtract tile"}))
        if found and all(
            (leaf is None or leaf.row.name == MATMUL) and step is None for _, leaf, step in found
        ):
            most = largest(narrow.name, flow.scope.hardware.generation)
            yield Spot(site.instruction, site.count, most, narrow.name)


def wide_clamps(flow: Dataflow) -> Iterator[Spot]:
    """minimum with a number beyond the largest of the narrow dtype that the result is written or copied to."""
    for site in flow.sites():
        taken = steps(site.call)
        if not taken or not site.call.has("dst"):
            continue
        bounds = [step.number for step in taken if step.op == "minimum" and step.number is not None]
        if not bounds:
            continue
        own = dtypes.BY_NAME[site.call.dtype("dst")]
        after = _copied_into(flow, site.slot("dst")) if own.name not in LOW else own
        dtype = after or own
        if dtype.name in FP8 | {"float16"} and bounds[-1] > dtype.max_finite:
            yield Spot(site.instruction, site.count, bounds[-1], dtype.name)


def fills(flow: Dataflow) -> Iterator[tuple[Spot, float]]:
    """Finite, nonzero numbers written into a float tile, and what the tile holds, where that is inf or zero."""
    for site in flow.sites(("memset", "affine_select")):
        value = site.call.imm("value" if site.call.row.name == "memset" else "on_false_value")
        dtype = dtypes.BY_NAME[site.call.dtype("dst")]
        if isinstance(value, bool) or not isinstance(value, int | float) or dtype.kind != "float":
            continue
        if not math.isfinite(value) or value == 0:
            continue
        held = float(dtypes.to_compute(dtypes.cast(np.float64(value), dtype), dtype, np.float64))
        if held == 0 or not math.isfinite(held):
            yield Spot(site.instruction, site.count, float(value), dtype.name), held


Integers = NDArray[np.int64]


def inexact_integers(flow: Dataflow) -> Iterator[Spot]:
    """Arithmetic on 32-bit integers through float32 with an operand or a result that float32 does not hold.

    Only where the values follow from iota, memset and arithmetic with numbers; `number` is the first that is lost.
    """
    for site in flow.sites(("tensor_scalar", "tensor_tensor", "scalar_tensor_tensor")):
        call = site.call
        names = [name for name in ("data", "data1", "data2", "operand0", "operand1") if call.has(name)]
        if call.dtype("dst") not in INTEGERS or any(call.dtype(name) not in INTEGERS for name in names):
            continue
        taken = steps(call) or ()
        if call.resolved_engine() is Engine.gpsimd or any(step.op not in _EXACT for step in taken):
            continue
        operand = _integers(flow, Slot(site.instruction, main_operand(call)), FOLLOWED)
        result = _integers(flow, Slot(site.instruction, "dst"), FOLLOWED, call)
        for values in (operand, result):
            lost = _lost(values) if values is not None else None
            if lost is not None:
                yield Spot(site.instruction, site.count, lost, taken[0].op)
                break


def _lost(values: Integers) -> float | None:
    """The value of least magnitude that float32 does not hold; None where it holds all."""
    rounded = values.astype(np.float32).astype(np.float64)
    lost = values[rounded != values]
    return float(lost[np.argmin(np.abs(lost))]) if len(lost) else None


def _integers(flow: Dataflow, slot: Slot, depth: int, own: CallView | None = None) -> Integers | None:
    """The integers that a tile holds, or that a call (`own`) writes; None where they are not known."""
    if own is None:
        writers = written(flow, slot)
        if not writers or len(writers) > 1 or not depth:
            return None
        writer, call = writers[0]
        return _integers(flow, writer, depth, call) if writer.operand == "dst" else None
    if own.row.name == "iota":
        return _index_values(Site(slot.instruction, 1, own))
    if own.row.name == "memset":
        return _constant(own.imm("value"))
    taken = steps(own)
    if taken is None or not main_operand(own):
        return None
    found = _integers(flow, Slot(slot.instruction, main_operand(own)), depth - 1)
    for step in taken:
        if step.operand:
            other = _integers(flow, Slot(slot.instruction, step.operand), depth - 1)
        else:
            other = _constant(step.number)
        # of two tiles of several values each, nothing says which meet
        if found is None or other is None or step.reverse or min(len(found), len(other)) > 1:
            return None
        combine = _EXACT.get(step.op)
        found = None if combine is None else np.unique(combine(found, other))
    return found if found is None or np.abs(found).max(initial=0) < 2**62 else None


_EXACT: Mapping[str, Callable[[Integers, Integers], Integers]] = MappingProxyType(
    {"add": np.add, "subtract": np.subtract, "multiply": np.multiply}
)


def _constant(value: object) -> Integers | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not float(value).is_integer():
        return None
    return np.array([int(value)], np.int64) if abs(value) < 2**31 else None


def rounded_divisors(flow: Dataflow) -> Iterator[RunningSum]:
    """Sums of `LONG` elements or more that are rounded to low precision and then divide."""
    for site in flow.sites(("tensor_reduce", *sorted(ACTIVATIONS))):
        out = summed(site.call)
        if out and site.call.dtype(out) in LOW and terms_of(site.call) >= LONG:
            if divides(flow, site.slot(out)):
                yield RunningSum(site.instruction, terms_of(site.call), site.call.dtype(out))


def rounded_statistics(flow: Dataflow) -> Iterator[RunningSum]:
    """Means and variances of bn_stats and bn_aggr that are written in low precision; `terms` go into each."""
    for site in flow.sites(("bn_stats", "bn_aggr")):
        if site.call.dtype("dst") in LOW:
            yield RunningSum(site.instruction, site.call.measure("data", "free"), site.call.dtype("dst"))


def downgraded_matmuls(flow: Dataflow) -> Iterator[Spot]:
    """Matmul operands of low precision that are copies of a float32 parameter, where an output is float32."""
    program = flow.program
    if not any(program.access(output.access).dtype == "float32" for output in program.outputs):
        return
    for site in flow.sites((MATMUL,)):
        for name in ("stationary", "moving"):
            if not site.call.has(name) or site.call.dtype(name) not in LOW or site.call.imm("is_transpose"):
                continue
            found = leaves(flow, site.slot(name), frozenset())
            parameters = {flow.parameter(slot) for slot, call, _ in found or () if call is None}
            wide = {flow.tile_dtype(slot) for slot, call, _ in found or () if call is None}
            if (
                found
                and all(call is None for _, call, _ in found)
                and all(parameters)
                and wide == {"float32"}
            ):
                yield Spot(
                    site.instruction, site.count, name=f"{sorted(parameters)[0]} {site.call.dtype(name)}"
                )
                break


def unequal_equals(flow: Dataflow) -> Iterator[Narrowed]:
    """Equality between float32 values and their own maximum or minimum, which was rounded to a narrower tile."""
    for site in flow.sites(("tensor_scalar", "tensor_tensor", "scalar_tensor_tensor")):
        name = main_operand(site.call)
        for step in steps(site.call) or ():
            if step.op not in ("equal", "not_equal") or not step.operand:
                continue
            for wide, narrow in ((name, step.operand), (step.operand, name)):
                if site.call.dtype(wide) != "float32" or site.call.dtype(narrow) not in LOW:
                    continue
                writers = written(flow, site.slot(narrow)) or ()
                reduced = [call for _, call in writers if call.row.name == "tensor_reduce"]
                if not reduced or any(call.imm("op") not in CLAMPS for call in reduced):
                    continue
                found = leaves(flow, site.slot(wide), frozenset())
                if all(call.dtype("data") == "float32" for call in reduced) and _truly_wide(flow, found):
                    dtype = site.call.dtype(narrow)
                    yield Narrowed(site.instruction, site.count, "float32", dtype, step.op)


def _truly_wide(flow: Dataflow, found: object) -> bool:
    """True where every leaf is float32 itself and no copy of narrower values."""
    if not isinstance(found, tuple) or not found:
        return False
    return all(flow.tile_dtype(slot) == "float32" for slot, _, _ in found)

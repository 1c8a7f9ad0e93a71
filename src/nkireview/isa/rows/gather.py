"""Rows of the GpSimd engine that gather, count and reduce across elements and partitions.

Eight processors serve 16 partitions each. Indices from the end of the data on gather nothing defined.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.isa import alu, dtypes
from nkireview.isa.enums import Engine
from nkireview.isa.limit import Call, Check, DtypeIn, Equal, Exactly, Limit, MultipleOf, SameDtype
from nkireview.isa.release import Release, Span
from nkireview.isa.row import Bits, Cost, Flow, Legacy, Operand, Param, Rate, Reader, Result, Role, Row
from nkireview.isa.rows.arrays import bit_pattern, rows_of, stored_bits
from nkireview.isa.rows.common import (
    INT32,
    NAME,
    NAME_SINCE_03,
    NOTES,
    SBUF,
    SINCE_05,
    SINCE_06,
    STUB,
    STUB_2_26,
    V3_UP,
    is_integer,
    only,
    placed_limits,
    returns,
    same_partitions,
    tile_limits,
)
from nkireview.isa.rows.gpsimd import START, integer_limits

Mask = NDArray[np.bool_]
Masks = Mapping[str, Mask]
Ints = NDArray[np.int64]

SINCE_02 = Span(since=Release(0, 2))  # release-notes/components/nki.rst: nc_n_gather new in SDK 2.27
GROUP = 16  # partitions of a processor: nki/api/nki/isa/__init__.py:1841-1843
PARTITIONS = "gpsimd.partitions_per_processor"
RUNS = (1, 2, 4, 8, 16, 32)  # nki/api/nki/isa/__init__.py:1877
INDICES_MAX = 4096  # nki/api/nki/isa/__init__.py:1878
GATHERED = 512  # elements of one group of instructions: nki/api/nki/isa/__init__.py:1904-1905
SNAKE_MIN, SNAKE_END, TOP_END = 8, 65536, 32768  # nki/api/nki/isa/__init__.py:3351-3352
BEYOND = "a gather index out of bounds"
FLOAT_OR_INT = frozenset({"float32", "int32"})


def _mask(reader: Reader, masks: Masks, name: str) -> Mask:
    """The definedness of a tile as (partitions, elements a partition)."""
    found = masks.get(name)
    return rows_of(np.ones(reader.shape(name), np.bool_) if found is None else found)


def _taken(rows: NDArray[Any], at: Ints) -> NDArray[Any]:
    """Elements of each row; beyond its end the last one."""
    return np.take_along_axis(rows, np.minimum(at, rows.shape[1] - 1), axis=1)


# Each partition by its own indices


def _own(reader: Reader) -> Ints:
    return rows_of(reader.raw("indices")).astype(np.int64)


def _gather(reader: Reader) -> dict[str, Result]:
    return {"dst": Bits(_taken(rows_of(reader.raw("data")), _own(reader)))}


def _gathered(reader: Reader, masks: Masks) -> Mask:
    data, at = _mask(reader, masks, "data"), _own(reader)
    return np.asarray(_taken(data, at) & (at < data.shape[1]) & _mask(reader, masks, "indices"))


def _gather_cycles(call: Call) -> float:
    count = max(call.measure("dst", "free"), 1)
    return 1.0 + call.hardware.number(START) * -(-count // GATHERED) / count


nc_n_gather = Row(
    name="nc_n_gather",
    signature=(Param("dst"), Param("data"), Param("indices"), NAME),
    operands=(
        Operand("dst", Role.write, SBUF),
        Operand("data", Role.read, SBUF),
        Operand("indices", Role.read, SBUF),
    ),
    engines=only(Engine.gpsimd),
    meaning=_gather,
    flow={"dst": Flow.whole},
    reach={"dst": _gathered},
    undefined=BEYOND,
    cost=Cost(
        subject="dst",
        per_element=1.0,
        formula="no figure is published; taken as iota for each of ceil(N/512) instructions: 150*ceil(N/512) + N",
        source=f"{STUB}:1904-1905",
        rates=(Rate(_gather_cycles, "any", lambda call: True, source=f"{STUB}:1904-1905"),),
    ),
    source=f"{STUB}:1891-1937",
    limits=(
        *tile_limits("dst", "data"),
        *placed_limits("indices"),
        same_partitions("data", "dst"),
        same_partitions("indices", "dst"),
        Equal(number=8, source=f"{STUB}:1931", left="indices.free", right="dst.free"),
        SameDtype(number=45, source=f"{STUB}:1919", left="dst", right="data"),
        DtypeIn(number=46, source=f"{STUB}:1920", operand="indices", allowed=frozenset({"uint32"})),
    ),
    releases=SINCE_02,
    legacy=Legacy("gather_flattened", "inside"),
)


# Sixteen partitions by the indices they hold together


def _number(call: Call, name: str, default: int) -> int:
    """An immediate that is a number; the default where it is absent or of another kind."""
    given = call.imm(name)
    return given if isinstance(given, int) and not isinstance(given, bool) else default


def _run(reader: Reader) -> tuple[int, int]:
    """Elements an index of a local_gather, as the instruction takes them, and indices a processor."""
    given = reader.imm("num_valid_indices")
    length = reader.imm("num_elem_per_idx") or 1
    valid = GROUP * rows_of(reader.raw("index")).shape[1] if given is None else given
    free = int(np.prod(reader.shape("dst")[1:], dtype=np.int64))
    # Known issue of 0.6: one element an index unless the sizes agree.
    alone = reader.release in SINCE_06 and free == valid != valid * length
    return (1 if alone else length), valid


def _in_groups(rows: NDArray[Any], count: int) -> NDArray[Any]:
    """The first elements of each 16 partitions, column after column, as (groups, count)."""
    if rows.shape[0] % GROUP:
        raise ValueError(f"{rows.shape[0]} partitions are no multiple of {GROUP}")
    groups = rows.reshape(-1, GROUP, rows.shape[1])
    return np.asarray(groups.transpose(0, 2, 1).reshape(len(groups), -1)[:, :count])


def _shared(reader: Reader) -> Ints:
    """For each element of dst, as (partitions, elements a partition), the place in its partition of src_buffer."""
    length, valid = _run(reader)
    held = _in_groups(rows_of(reader.raw("index")), valid).astype(np.int64)
    runs = held[:, :, None] + np.arange(length)
    return np.repeat(runs.reshape(len(held), -1), GROUP, axis=0)


def _local_gather(reader: Reader) -> dict[str, Result]:
    return {"dst": Bits(_taken(rows_of(reader.raw("src_buffer")), _shared(reader)))}


def _locally_gathered(reader: Reader, masks: Masks) -> Mask:
    data, at = _mask(reader, masks, "src_buffer"), _shared(reader)
    length, valid = _run(reader)
    known = np.repeat(_in_groups(_mask(reader, masks, "index"), valid), GROUP, axis=0)
    return np.asarray(_taken(data, at) & (at < data.shape[1]) & np.repeat(known, length, axis=1))


def _valid(call: Call) -> int:
    return _number(call, "num_valid_indices", GROUP * call.measure("index", "free"))


def _local_cycles(call: Call) -> float:
    length, size = _number(call, "num_elem_per_idx", 1), dtypes.BY_NAME[call.dtype("src_buffer")].bits / 8
    return 1 / (((28 + 4 * length) / (4 * length)) / min(4 / size, length))


def _run_lengths(call: Call) -> str | None:
    given = call.imm("num_elem_per_idx")
    if given is None or (given in RUNS and not isinstance(given, bool | float)):
        return None
    return f"num_elem_per_idx is {given!r}, expected one of {', '.join(map(str, RUNS))}"


def _index_count(call: Call) -> str | None:
    given, held = call.imm("num_valid_indices"), GROUP * call.measure("index", "free")
    if given is not None and (not isinstance(given, int) or isinstance(given, bool) or given < 1):
        return f"num_valid_indices is {given!r}, it must be a positive number"
    valid = _valid(call)
    if valid > held:
        return f"num_valid_indices is {valid}, each {GROUP} partitions of index hold {held}"
    if valid > INDICES_MAX:
        return f"{valid} indices for each {GROUP} partitions exceed {INDICES_MAX}"
    return None


def _gathered_size(call: Call) -> tuple[int, int, int]:
    return call.measure("dst", "free"), _valid(call), _number(call, "num_elem_per_idx", 1)


def _fits(call: Call) -> str | None:
    free, valid, length = _gathered_size(call)
    if free == valid * length or (call.release in SINCE_06 and free == valid):
        return None
    return f"dst free size is {free}, {valid} indices of {length} elements give {valid * length}"


def _ignored(call: Call) -> str | None:
    free, valid, length = _gathered_size(call)
    if length == 1 or free != valid:
        return None
    return (
        f"num_elem_per_idx {length} is ignored: dst free size is {free}, for {valid} indices it must be "
        f"{valid * length}"
    )


local_gather = Row(
    name="local_gather",
    signature=(
        Param("dst"),
        Param("src_buffer"),
        Param("index"),
        Param("num_elem_per_idx", 1),
        Param("num_valid_indices", None),
        NAME,
    ),
    operands=(
        Operand("dst", Role.write, SBUF),
        Operand("src_buffer", Role.read, SBUF),
        Operand("index", Role.read, SBUF),
    ),
    engines=only(Engine.gpsimd),
    meaning=_local_gather,
    flow={"dst": Flow.whole},
    reach={"dst": _locally_gathered},
    undefined=BEYOND,
    cost=Cost(
        subject="dst",
        per_element=1.0,
        extra=START,
        formula="150 + num_valid_indices * e / C, C = ((28 + 4e) / 4e) / min(4 / dtype_size, e), e = num_elem_per_idx",
        source=f"{STUB_2_26}:628-634",
        rates=(Rate(_local_cycles, "any", lambda call: True, source=f"{STUB_2_26}:628-634"),),
    ),
    source=f"{STUB}:1838-1889",
    limits=(
        *tile_limits("dst", "src_buffer"),
        *placed_limits("index"),
        MultipleOf(number=67, source=f"{STUB}:1874-1875", subject="src_buffer.partitions", bound=PARTITIONS),
        same_partitions("index", "src_buffer"),
        same_partitions("dst", "src_buffer"),
        Check(number=67, source=f"{STUB}:1876-1877", subject="num_elem_per_idx.value", find=_run_lengths),
        Check(number=67, source=f"{STUB}:1853-1854,1878", subject="index.indices", find=_index_count),
        Check(number=8, source=f"{STUB}:1848-1859", subject="dst.free", find=_fits),
        Check(number=68, source=f"{NOTES}:100-103", releases=SINCE_06, subject="dst.ignored", find=_ignored),
        SameDtype(number=45, source=f"{STUB}:1869-1870", left="dst", right="src_buffer"),
        DtypeIn(number=46, source=f"{STUB}:1870", operand="index", allowed=frozenset({"uint16"})),
    ),
    legacy=returns("local_gather"),
)


# Over all partitions

REDUCTIONS: Mapping[str, str] = {
    "add": "add",
    "average": "add",
    "max": "maximum",
    "maximum": "maximum",
    "bitwise_or": "bitwise_or",
    "bitwise_and": "bitwise_and",
}


def _partition_reduce(reader: Reader) -> dict[str, Result]:
    given = reader.imm("op")
    if given not in REDUCTIONS:
        raise ValueError(f"tensor_partition_reduce: op {given} is no reduction over partitions")
    op, dtype = alu.of(REDUCTIONS[given]), reader.dtype("dst")
    integers = reader.dtype("data").name in INT32 and dtype.name in INT32
    if op.kind == "bitvec":
        return {"dst": stored_bits(alu.reduce_fn(op)(bit_pattern(reader.raw("data")), (0,), True), dtype)}
    if integers and given != "average":
        # As tensor_tensor on this engine: 32-bit integers are exact, and wrap.
        held = reader.raw("data")
        exact = np.add.reduce(held, axis=0, dtype=held.dtype) if op.name == "add" else held.max(axis=0)
        return {"dst": stored_bits(exact[None], dtype)}
    data = reader.value("data")
    result = alu.reduce_fn(op)(data, (0,), True)
    return {"dst": result / reader.compute.type(len(data)) if given == "average" else result}


def _partitions_reduced(reader: Reader, masks: Masks) -> Mask:
    return np.asarray(_mask(reader, masks, "data").all(axis=0))


def _reduction(call: Call) -> str | None:
    given = call.imm("op")
    if given == "average" and call.release not in SINCE_05:
        return f"op average exists since NKI {SINCE_05.since}, not in NKI {call.release}"
    if given not in REDUCTIONS:
        return f"op {given} is no reduction over partitions, expected one of {_reductions(call)}"
    return None


def _reductions(call: Call) -> str:
    return ", ".join(
        name
        for name in ("add", "average", "max", "bitwise_or", "bitwise_and")
        if name != "average" or call.release in SINCE_05
    )


def _bits(operand: str) -> Callable[[Call], str | None]:
    def find(call: Call) -> str | None:
        given = str(call.imm("op"))
        if not given.startswith("bitwise_") or not call.has(operand) or is_integer(call.dtype(operand)):
            return None
        return f"{operand} dtype {call.dtype(operand)} is not allowed, {given} needs integers"

    return find


tensor_partition_reduce = Row(
    name="tensor_partition_reduce",
    signature=(Param("dst"), Param("op"), Param("data"), NAME),
    operands=(Operand("dst", Role.write, SBUF), Operand("data", Role.read, SBUF)),
    engines=only(Engine.gpsimd),
    meaning=_partition_reduce,
    flow={"dst": Flow.whole},
    reach={"dst": _partitions_reduced},
    cost=Cost(
        subject="data",
        per_element=1.0,
        extra=START,
        formula="no figure is published; taken as iota: 150 + N",
        source=f"{STUB}:1246-1252",
    ),
    source=f"{STUB}:1246-1252",
    limits=(
        *tile_limits("dst", "data"),
        Exactly(
            number=8,
            source=f"{STUB}:1247-1249",
            subject="dst.partitions",
            bound=1,
            hint="all partitions become one",
        ),
        Equal(number=8, source=f"{STUB}:1247-1249", left="dst.free", right="data.free"),
        Check(number=155, source=f"{STUB}:1250; {STUB_2_26}:1546", subject="op.kind", find=_reduction),
        Check(number=36, source=f"{STUB}:1250", subject="data.dtype", find=_bits("data")),
        Check(number=36, source=f"{STUB}:1250", subject="dst.dtype", find=_bits("dst")),
    ),
    legacy=returns("tensor_partition_reduce"),
)


# Bounds of segments


def _edges(breaks: Mask) -> tuple[Ints, Ints]:
    """First and last element of each element's run; breaks: where a run begins."""
    count = len(breaks)
    at = np.arange(count)
    first = np.maximum.accumulate(np.where(breaks, at, 0))
    ends = np.append(breaks[1:], True)
    last = np.minimum.accumulate(np.where(ends, at, count - 1)[::-1])[::-1]
    return first, last


def _bounds(reader: Reader) -> dict[str, Result]:
    ids = rows_of(reader.raw("segment_ids"))[0]
    first, last = _edges(np.append(True, ids[1:] != ids[:-1]))
    found = np.where(ids == 0, [[len(ids)], [-1]], [first, last + 1])
    if reader.dtype("dst").kind == "int":
        return {"dst": Bits(found.astype(np.int32)[None])}
    return {"dst": found.astype(reader.compute)[None]}


def _bounded(reader: Reader, masks: Masks) -> Mask:
    """A bound is known where the element is, and all up to the first that is known to differ."""
    ids, known = rows_of(reader.raw("segment_ids"))[0], _mask(reader, masks, "segment_ids")[0]
    first, last = _edges(np.append(True, (ids[1:] != ids[:-1]) | ~known[1:] | ~known[:-1]))
    padding, fence = ids == 0, np.concatenate([[True], known, [True]])
    return np.asarray(known & (padding | np.stack([fence[first], fence[last + 2]])))


def _both_bounds(call: Call) -> str | None:
    free, ids = call.measure("dst", "free"), call.measure("segment_ids", "free")
    return None if free == 2 * ids else f"dst free size is {free}, {ids} segment ids have {2 * ids} bounds"


def _one_partition(operand: str) -> Limit:
    return Exactly(number=8, source=f"{STUB}:2445", subject=f"{operand}.partitions", bound=1)


sequence_bounds = Row(
    name="sequence_bounds",
    signature=(Param("dst"), Param("segment_ids"), NAME),
    operands=(
        Operand("dst", Role.write, SBUF, dtypes=FLOAT_OR_INT),
        Operand("segment_ids", Role.read, SBUF, dtypes=FLOAT_OR_INT),
    ),
    engines=only(Engine.gpsimd),
    meaning=_bounds,
    flow={"dst": Flow.whole},
    reach={"dst": _bounded},
    cost=Cost(
        subject="dst",
        per_element=1.0,
        extra=START,
        formula="no figure is published; taken as one bound a cycle: 150 + 2*N",
        source=f"{STUB}:2434-2455",
    ),
    source=f"{STUB}:2434-2455",
    limits=(
        *placed_limits("dst", "segment_ids"),
        _one_partition("dst"),
        _one_partition("segment_ids"),
        Check(number=8, source=f"{STUB}:2444-2447", subject="dst.free", find=_both_bounds),
    ),
    legacy=returns("sequence_bounds"),
)


# Places of what is not zero


def _nonzero(reader: Reader) -> dict[str, Result]:
    found = rows_of(reader.raw("dst")).copy()
    numbers = (reader.imm("index_offset") or 0, reader.imm("padding_val"))
    offset, padding = numbers[0], -1 if numbers[1] is None else numbers[1]
    for row, marked in zip(found[::GROUP], rows_of(reader.raw("src"))[::GROUP] != 0, strict=True):
        at = np.flatnonzero(marked)
        row[: len(at)] = (at + offset).astype(np.int32)
        row[len(at) : -1] = padding
        row[-1] = len(at)
    return {"dst": Bits(found.reshape(reader.shape("dst")))}


def _nonzero_known(reader: Reader, masks: Masks) -> Mask:
    """The places before the first unknown element, and the padding that no unknown element can fill."""
    result = np.array(_mask(reader, masks, "dst"))
    known = _mask(reader, masks, "src")
    marked: Mask = rows_of(reader.raw("src")).astype(np.bool_)
    for row in range(0, len(result), GROUP):
        unknown = np.flatnonzero(~known[row])
        result[row] = True
        if len(unknown):
            sure = np.count_nonzero(marked[row, : unknown[0]])
            most = np.count_nonzero(marked[row] & known[row]) + len(unknown)
            result[row, sure:most] = False
            result[row, -1] = False
    return result


def _one_more(call: Call) -> str | None:
    free, src = call.measure("dst", "free"), call.measure("src", "free")
    return (
        None if free == src + 1 else f"dst free size is {free}, src has {src} elements: it must be {src + 1}"
    )


nonzero_with_count = Row(
    name="nonzero_with_count",
    signature=(Param("dst"), Param("src"), Param("index_offset", 0), Param("padding_val", -1), NAME_SINCE_03),
    operands=(
        Operand("dst", Role.accumulate, SBUF, dtypes=frozenset({"int32"})),
        Operand("src", Role.read, SBUF, dtypes=FLOAT_OR_INT),
    ),
    engines=only(Engine.gpsimd),
    meaning=_nonzero,
    flow={"dst": Flow.whole},
    reach={"dst": _nonzero_known},
    cost=Cost(
        subject="src",
        per_element=1.0,
        extra=START,
        formula="no figure is published; taken as one element a cycle: 150 + N",
        source=f"{STUB}:3221-3319",
    ),
    source=f"{STUB}:3221-3319",
    limits=(
        *placed_limits("dst", "src"),
        same_partitions("dst", "src"),
        Check(number=8, source=f"{STUB}:3269", subject="dst.free", find=_one_more),
        *integer_limits(159, f"{STUB}:3273", "index_offset", "padding_val"),
    ),
    generations=V3_UP,
    releases=SINCE_02,
)


# The largest of a snake


def _into_snake(into: NDArray[Any], ranked: NDArray[Any]) -> NDArray[Any]:
    """A tile with element k of each group at partition ``k % 16`` and column ``k // 16`` of its 16 partitions."""
    result = np.array(into)
    at = np.arange(ranked.shape[1])
    result.reshape(-1, GROUP, into.shape[1])[:, at % GROUP, at // GROUP] = ranked
    return result


def _top(reader: Reader) -> dict[str, Result]:
    count, wanted = reader.imm("n"), int(np.prod(reader.shape("val_dst")[1:], dtype=np.int64))
    values = _in_groups(rows_of(reader.value("src")), count)
    # Descending, the first of equals first, NaN last; then turned round.
    order = np.argsort(-values, axis=1, kind="stable")[:, :wanted][:, ::-1]
    held = np.take_along_axis(_in_groups(rows_of(reader.raw("src")), count), order, axis=1)
    index = reader.dtype("idx_dst").storage
    return {
        "val_dst": Bits(_into_snake(rows_of(reader.raw("val_dst")), held)),
        "idx_dst": Bits(_into_snake(rows_of(reader.raw("idx_dst")), order.astype(index))),
    }


def _top_known(written: str) -> Callable[[Reader, Masks], Mask]:
    def reach(reader: Reader, masks: Masks) -> Mask:
        into = _mask(reader, masks, written)
        known = _in_groups(_mask(reader, masks, "src"), reader.imm("n")).all(axis=1, keepdims=True)
        return np.asarray(_into_snake(into, np.repeat(known, into.shape[1], axis=1)))

    return reach


def _snake_size(call: Call) -> str | None:
    count, wanted = call.imm("n"), call.measure("val_dst", "free")
    if not isinstance(count, int) or isinstance(count, bool):
        return f"n is {count!r}, it must be a number"
    if not SNAKE_MIN <= count < SNAKE_END:
        return f"n is {count}, it must lie between {SNAKE_MIN} and {SNAKE_END - 1}"
    if not 1 <= wanted < TOP_END or wanted > count:
        return f"val_dst free size {wanted} must lie between 1 and {min(count, TOP_END - 1)}"
    held = GROUP * call.measure("src", "free")
    return f"n is {count}, each {GROUP} partitions of src hold {held}" if held < count else None


topk = Row(
    name="topk",
    signature=(Param("val_dst"), Param("idx_dst"), Param("src"), Param("n"), NAME),
    operands=(
        Operand("val_dst", Role.accumulate, SBUF),
        Operand("idx_dst", Role.accumulate, SBUF),
        Operand("src", Role.read, SBUF),
    ),
    engines=only(Engine.gpsimd),
    meaning=_top,
    flow={"val_dst": Flow.whole, "idx_dst": Flow.whole},
    reach={"val_dst": _top_known("val_dst"), "idx_dst": _top_known("idx_dst")},
    cost=Cost(
        subject="val_dst",
        per_element=1.0,
        formula="4*n + K",
        source=f"{STUB}:3339-3344",
        rates=(
            Rate(
                lambda call: 1.0 + 4.0 * _number(call, "n", 0) / max(call.measure("val_dst", "free"), 1),
                "any",
                lambda call: True,
                source=f"{STUB}:3339-3344",
            ),
        ),
    ),
    source=f"{STUB}:3321-3379",
    limits=(
        *placed_limits("val_dst", "idx_dst", "src"),
        MultipleOf(number=157, source=f"{STUB}:3354", subject="src.partitions", bound=PARTITIONS),
        same_partitions("val_dst", "src"),
        same_partitions("idx_dst", "src"),
        Equal(number=8, source=f"{STUB}:3349-3350", left="idx_dst.free", right="val_dst.free"),
        Check(number=157, source=f"{STUB}:3351-3353", subject="n.elements", find=_snake_size),
        DtypeIn(number=46, source=f"{STUB}:3348", operand="src", allowed=frozenset({"bfloat16"})),
        DtypeIn(number=46, source=f"{STUB}:3349", operand="val_dst", allowed=frozenset({"bfloat16"})),
        DtypeIn(number=46, source=f"{STUB}:3350", operand="idx_dst", allowed=frozenset({"uint32"})),
    ),
    releases=SINCE_06,
)

ROWS = (
    local_gather,
    nc_n_gather,
    tensor_partition_reduce,
    sequence_bounds,
    nonzero_with_count,
    topk,
)

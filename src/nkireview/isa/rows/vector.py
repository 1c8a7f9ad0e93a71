"""Scans, reductions, statistics and searches of the Vector engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.isa import alu
from nkireview.isa.enums import Engine
from nkireview.isa.limit import AtLeast, AtMost, Call, Check, DtypeIn, Exactly, Limit, MultipleOf
from nkireview.isa.release import Release
from nkireview.isa.row import Cost, Flow, Operand, Param, Rate, Reader, Result, Role, Row
from nkireview.isa.rows.arrays import (
    bit_pattern,
    quiet,
    rows_of,
    spread,
    stored_bits,
)
from nkireview.isa.rows.common import (
    BEFORE_04,
    MIGRATION,
    MIN_INTERVAL,
    NAME,
    ON_CHIP,
    SINCE_04,
    STUB,
    STUB_2_26,
    all_dtypes,
    known_op,
    not_both_psum,
    only,
    operator_limits,
    returns,
    same_layout,
    same_partitions,
    tile_limits,
    vector_limits,
)

REAL_AXES_SINCE = Release(0, 3)  # nki/migration/index.rst:514-522
TOP = 8  # values that max8 and nc_find_index8 handle: nki/api/nki/isa/__init__.py:2415-2424
SEARCH_MAX = 16384  # elements a partition: nki/api/nki/isa/__init__.py:2422,3177
SEARCH_DIMS, OLD_SEARCH_DIMS = 3, 5  # nki/api/nki/isa/__init__.py:2421, before NKI 0.4 five
STATISTICS = 6  # nki/api/nki/isa/__init__.py:1943-1950
UFUNCS: dict[str, np.ufunc] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
}


@quiet
def _scan(reader: Reader) -> dict[str, Result]:
    data0 = reader.value("data0")
    left, right = rows_of(data0), rows_of(reader.value("data1"))
    lanes = left.shape[0]
    start = np.empty(lanes, reader.compute)
    initial = reader.value("initial") if reader.has("initial") else None
    start[:] = reader.imm("initial") if initial is None else spread(initial, left)[:, 0]
    op0, op1 = reader.imm("op0"), reader.imm("op1")
    reverse = bool(reader.imm("reverse0")), bool(reader.imm("reverse1"))
    running = _running(op0, op1, left, right, start)
    if running is None:
        running = _recurrence(alu.of(op0), alu.of(op1), left, right, start, reverse)
    return {"dst": running.reshape(data0.shape)}


def _running(
    op0: str, op1: str, left: NDArray[Any], right: NDArray[Any], start: NDArray[Any]
) -> NDArray[Any] | None:
    """The scans that are one running operation, step for step the same; None for any other.

    With a commutative op0 equal to op1 the steps interleave data0 and data1; a data0 of ones under multiply leaves
    the state as it is.
    """
    if op0 == op1 and op0 in ("add", "multiply", "maximum", "minimum"):
        lanes, count = left.shape
        steps = np.empty((lanes, 2 * count + 1), left.dtype)
        steps[:, 0], steps[:, 1::2], steps[:, 2::2] = start, left, right
        return np.asarray(UFUNCS[op0].accumulate(steps, axis=1)[:, 2::2])
    if op0 == "multiply" and op1 in ("add", "maximum", "minimum") and bool(np.all(left == 1)):
        steps = np.concatenate([start[:, None], right], axis=1)
        return np.asarray(UFUNCS[op1].accumulate(steps, axis=1)[:, 1:])
    return None


def _recurrence(
    op0: alu.AluOp,
    op1: alu.AluOp,
    left: NDArray[Any],
    right: NDArray[Any],
    state: NDArray[Any],
    reverse: tuple[bool, bool],
) -> NDArray[Any]:
    first: Callable[..., NDArray[Any]] = UFUNCS.get(op0.name) or op0.fn
    second: Callable[..., NDArray[Any]] = UFUNCS.get(op1.name) or op1.fn
    columns = np.empty(left.T.shape, left.dtype)
    # Columns are contiguous after the transpose, so that each step is one pass over the lanes.
    lefts, rights = np.ascontiguousarray(left.T), np.ascontiguousarray(right.T)
    for column in range(len(columns)):
        x = first(state, lefts[column]) if reverse[0] else first(lefts[column], state)
        state = second(rights[column], x) if reverse[1] else second(x, rights[column])
        columns[column] = state
    return np.asarray(columns.T)


tensor_tensor_scan = Row(
    name="tensor_tensor_scan",
    signature=(
        Param("dst"),
        Param("data0"),
        Param("data1"),
        Param("initial"),
        Param("op0"),
        Param("op1"),
        Param("reverse0", False),
        Param("reverse1", False),
        NAME,
    ),
    operands=(
        Operand("dst", Role.write, ON_CHIP),
        Operand("data0", Role.read, ON_CHIP),
        Operand("data1", Role.read, ON_CHIP),
        Operand("initial", Role.read, ON_CHIP, number=True, vector=True),
    ),
    engines=only(Engine.vector),
    meaning=_scan,
    flow={"dst": Flow.scan},
    cost=Cost(
        subject="data0",
        per_element=2.0,
        minimum=MIN_INTERVAL,
        formula="max(MIN_II, 2N)",
        source=f"{STUB_2_26}:1886-1892",
    ),
    source=f"{STUB}:1997-2050",
    limits=(
        *tile_limits("dst", "data0", "data1", "initial"),
        *same_layout(f"{STUB}:2013-2014", "data0", "data1", "dst"),
        not_both_psum("data0", "data1", f"{STUB}:2020-2024"),
        *operator_limits(
            f"{STUB}:2026-2029", ("op0", "op1"), ("data0", "data1", "dst"), bitvec=False, binary=True
        ),
        *vector_limits("initial", "data0", 8, f"{STUB}:2015-2018", fp32=False),
    ),
    legacy=returns("tensor_tensor_scan"),
)


def reduced_axes(axis: Any, dims: int, release: Release) -> tuple[int, ...]:
    """The axes that tensor_reduce reduces, not negative, in order; a tile has `dims` dimensions."""
    axes = tuple(axis) if isinstance(axis, tuple | list) else (axis,)
    if release < REAL_AXES_SINCE and axes == (1,) and dims > 2:
        return (dims - 1,)
    return tuple(sorted(index + dims if index < 0 else index for index in axes))


def _reduce(reader: Reader) -> dict[str, Result]:
    op, shape = alu.of(reader.imm("op")), reader.shape("data")
    axes = reduced_axes(reader.imm("axis"), len(shape), reader.release)
    reduce = alu.reduce_fn(op)
    if op.kind == "bitvec":
        return {"dst": stored_bits(reduce(bit_pattern(reader.raw("data")), axes), reader.dtype("dst"))}
    result = reduce(reader.value("data"), axes)
    return {"dst": -result if reader.imm("negate") else result}


def _axes(call: Call) -> tuple[int, ...] | None:
    """The reduced axes of a call, None where they are no trailing free dimensions."""
    axis, dims = call.imm("axis"), len(call.counts("data"))
    parts = axis if isinstance(axis, tuple | list) else (axis,)
    if not parts or not all(isinstance(part, int) and not isinstance(part, bool) for part in parts):
        return None
    axes = reduced_axes(axis, dims, call.release)
    return axes if axes == tuple(range(dims - len(axes), dims)) and axes[0] > 0 else None


def _trailing(call: Call) -> str | None:
    if not call.has("data") or _axes(call) is not None:
        return None
    dims = len(call.counts("data"))
    return f"axis {call.imm('axis')} must name the last free dimensions of the {dims}-dimensional data, without axis 0"


def _reduced_size(call: Call) -> str | None:
    axes = _axes(call) if call.has("data") and call.has("dst") else None
    if axes is None:
        return None
    kept = call.measure("data", "free")
    for axis in axes:
        kept //= max(call.counts("data")[axis], 1)
    found = call.measure("dst", "free")
    return None if found == kept else f"dst free size is {found}, the reduction leaves {kept}"


def _negated_bits(call: Call) -> str | None:
    op = known_op(call.imm("op"))
    if not call.imm("negate") or op is None or op.kind != "bitvec":
        return None
    return f"negate needs an arithmetic operator, op is {op.name}"


def _fast_reduce(call: Call) -> bool:
    bf16 = all_dtypes(call, frozenset({"bfloat16"}), "data", "dst")
    return bf16 and call.imm("op") in ("add", "maximum")


tensor_reduce = Row(
    name="tensor_reduce",
    signature=(
        Param("dst"),
        Param("op"),
        Param("data"),
        Param("axis"),
        Param("negate", False),
        Param("keepdims", False),
        NAME,
    ),
    operands=(Operand("dst", Role.write, ON_CHIP), Operand("data", Role.read, ON_CHIP)),
    engines=only(Engine.vector),
    meaning=_reduce,
    flow={"dst": Flow.row},
    cost=Cost(
        subject="data",
        per_element=1.0,
        minimum=MIN_INTERVAL,
        formula="N/2 for bfloat16 in and out with add or maximum, else N",
        source=f"{STUB_2_26}:1597-1614",
        rates=(Rate(0.5, "bfloat16 add or maximum", _fast_reduce, source=f"{STUB_2_26}:1597-1614"),),
    ),
    source=f"{STUB}:1161-1244",
    limits=(
        *tile_limits("dst", "data"),
        same_partitions("dst", "data"),
        Check(
            number=64,
            source=f"{STUB}:1169-1171; {MIGRATION}:514-522",
            subject="axis.trailing",
            find=_trailing,
        ),
        Check(number=8, source=f"{STUB}:1211-1213", subject="dst.free", find=_reduced_size),
        *operator_limits(f"{STUB}:1188-1190", ("op",), ("data", "dst"), reduction=True),
        Check(number=36, source=f"{STUB}:1179-1181", subject="negate.op", find=_negated_bits),
    ),
    legacy=returns("tensor_reduce"),
)


@quiet
def _statistics(reader: Reader) -> dict[str, Result]:
    rows = rows_of(reader.value("data"))
    result = np.zeros((rows.shape[0], STATISTICS), reader.compute)
    for at, part in ((0, rows[:, 0::2]), (3, rows[:, 1::2])):
        count = part.shape[1]
        if count:
            mean = part.mean(axis=1)
            result[:, at], result[:, at + 1] = count, mean
            result[:, at + 2] = np.square(part - mean[:, None]).sum(axis=1)
    return {"dst": result}


bn_stats = Row(
    name="bn_stats",
    signature=(Param("dst"), Param("data"), NAME),
    operands=(Operand("dst", Role.write, ON_CHIP), Operand("data", Role.read, ON_CHIP)),
    engines=only(Engine.vector),
    meaning=_statistics,
    flow={"dst": Flow.row},
    cost=Cost(
        subject="data",
        per_element=1.0,
        minimum=MIN_INTERVAL,
        formula="max(MIN_II, N)",
        source=f"{STUB_2_26}:384-387",
    ),
    source=f"{STUB}:1939-1973",
    limits=(
        *tile_limits("dst", "data"),
        same_partitions("dst", "data"),
        AtMost(number=65, source=f"{STUB}:1960", subject="data.free", bound="limits.bn_stats_free_max"),
        Exactly(
            number=8,
            source=f"{STUB}:1943-1950",
            subject="dst.free",
            bound=STATISTICS,
            hint="count, mean and variance * count of the even and of the odd elements",
        ),
    ),
    legacy=returns("bn_stats"),
)


@quiet
def _aggregate(reader: Reader) -> dict[str, Result]:
    rows = rows_of(reader.value("data"))
    count, mean, spread_sum = (rows[:, part::3] for part in range(3))
    total = count.sum(axis=1)
    overall = (count * mean).sum(axis=1) / total
    between = count * np.square(mean - overall[:, None])
    return {"dst": np.stack([overall, (spread_sum + between).sum(axis=1) / total], axis=1)}


bn_aggr = Row(
    name="bn_aggr",
    signature=(Param("dst"), Param("data"), NAME),
    operands=(Operand("dst", Role.write, ON_CHIP), Operand("data", Role.read, ON_CHIP)),
    engines=only(Engine.vector),
    meaning=_aggregate,
    flow={"dst": Flow.row},
    cost=Cost(
        subject="data",
        per_element=13 / 3,
        minimum=MIN_INTERVAL,
        formula="max(MIN_II, 13 * (N/3))",
        source=f"{STUB_2_26}:335-338",
    ),
    source=f"{STUB}:1975-1995",
    limits=(
        *tile_limits("dst", "data"),
        same_partitions("dst", "data"),
        MultipleOf(number=65, source=f"{STUB}:1981-1982", subject="data.free", bound=3),
        Exactly(number=8, source=f"{STUB}:1993", subject="dst.free", bound=2, hint="mean and variance"),
    ),
    legacy=returns("bn_aggr"),
)


def _top8(reader: Reader) -> dict[str, Result]:
    rows = rows_of(reader.value("src"))
    largest = np.partition(rows, rows.shape[1] - TOP, axis=1)[:, -TOP:]
    return {"dst": np.sort(largest, axis=1)[:, ::-1]}


def _search_limits(data: str, source: str) -> tuple[Limit, ...]:
    """Rule 65 for the tile that is searched."""
    return (
        AtLeast(number=65, source=source, subject=f"{data}.free", bound=TOP),
        AtMost(number=65, source=source, subject=f"{data}.free", bound=SEARCH_MAX),
        AtMost(number=65, source=source, releases=SINCE_04, subject=f"{data}.dims", bound=SEARCH_DIMS),
        AtMost(number=65, source=source, releases=BEFORE_04, subject=f"{data}.dims", bound=OLD_SEARCH_DIMS),
        same_partitions("dst", data),
        Exactly(number=8, source=source, subject="dst.free", bound=TOP),
    )


max8 = Row(
    name="max8",
    signature=(Param("dst"), Param("src"), NAME),
    operands=(Operand("dst", Role.write, ON_CHIP), Operand("src", Role.read, ON_CHIP)),
    engines=only(Engine.vector),
    meaning=_top8,
    flow={"dst": Flow.row},
    cost=Cost(
        subject="src", per_element=1.0, minimum=MIN_INTERVAL, formula="N", source=f"{STUB_2_26}:671-675"
    ),
    source=f"{STUB}:2415-2432",
    limits=(*tile_limits("dst", "src"), *_search_limits("src", f"{STUB}:2421-2427")),
    legacy=returns("max8"),
)


def _find8(reader: Reader) -> dict[str, Result]:
    data, wanted = rows_of(reader.value("data")), rows_of(reader.value("vals"))
    dtype = reader.dtype("dst")
    unsigned = np.dtype(f"u{dtype.storage.itemsize}")
    found = np.full(wanted.shape, np.iinfo(unsigned).max, unsigned)
    for slot in range(wanted.shape[1]):
        value = wanted[:, slot : slot + 1]
        # The n-th of equal values takes the n-th place where data holds it.
        earlier = (wanted[:, :slot] == value).sum(axis=1)
        matches = data == value
        here = matches & (np.cumsum(matches, axis=1, dtype=np.int32) == earlier[:, None] + 1)
        lanes = here.any(axis=1)
        found[lanes, slot] = here[lanes].argmax(axis=1)
    return {"dst": stored_bits(found, dtype)}


nc_find_index8 = Row(
    name="nc_find_index8",
    signature=(Param("dst"), Param("data"), Param("vals"), NAME),
    operands=(
        Operand("dst", Role.write, ON_CHIP),
        Operand("data", Role.read, ON_CHIP),
        Operand("vals", Role.read, ON_CHIP),
    ),
    engines=only(Engine.vector),
    meaning=_find8,
    flow={"dst": Flow.row},
    cost=Cost(
        subject="data", per_element=1.0, minimum=MIN_INTERVAL, formula="N", source=f"{STUB_2_26}:746-750"
    ),
    source=f"{STUB}:3169-3191",
    limits=(
        *tile_limits("dst", "data", "vals"),
        *_search_limits("data", f"{STUB}:3175-3179"),
        same_partitions("vals", "data"),
        Exactly(number=8, source=f"{STUB}:3177-3178", subject="vals.free", bound=TOP),
        DtypeIn(
            number=46, source=f"{STUB}:3178-3179", operand="dst", allowed=frozenset({"uint16", "uint32"})
        ),
    ),
    legacy=returns("nc_find_index8"),
)


ROWS = (
    tensor_tensor_scan,
    tensor_reduce,
    bn_stats,
    bn_aggr,
    max8,
    nc_find_index8,
)

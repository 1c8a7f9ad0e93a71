"""Scans, reductions, statistics and shuffles of the Vector engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.isa import alu
from nkireview.isa.enums import Engine
from nkireview.isa.limit import AtMost, Call, Check, Equal, Exactly, MultipleOf, SameDtype
from nkireview.isa.release import Release
from nkireview.isa.row import (
    Bits,
    Cost,
    Flow,
    Legacy,
    Operand,
    Param,
    Plan,
    Planned,
    Rate,
    Reader,
    Result,
    Role,
    Row,
    Shapes,
)
from nkireview.isa.rows.arrays import (
    bit_pattern,
    rows_of,
    spread,
    stored_bits,
)
from nkireview.isa.rows.common import (
    LEGACY_ONLY,
    MIGRATION,
    MIN_INTERVAL,
    NAME,
    ON_CHIP,
    STUB,
    STUB_2_26,
    all_dtypes,
    indirect_limits,
    known_op,
    native_limits,
    not_both_psum,
    only,
    operator_limits,
    partition_limits,
    returns,
    same_layout,
    same_partitions,
    tile_limits,
    vector_limits,
)

REAL_AXES_SINCE = Release(0, 3)  # nki/migration/index.rst:514-522
SHUFFLED = (
    32  # partitions of a quadrant, and entries of a shuffle mask: nki/api/nki/isa/__init__.py:2056-2061
)
KEEP = 255  # the entry that leaves a partition as it is: nki/api/nki/isa/__init__.py:2059

STATISTICS = 6  # nki/api/nki/isa/__init__.py:1943-1950
_RUNNING = frozenset({"add", "subtract", "multiply", "maximum", "minimum"})  # whose results keep the dtype


def running(op: alu.AluOp) -> np.ufunc | None:
    """The NumPy function of an operator whose result can be its next operand."""
    return op.ufunc if op.name in _RUNNING else None


def _scan(reader: Reader) -> dict[str, Result]:
    data0 = reader.value("data0")
    left, right = rows_of(data0), rows_of(reader.value("data1"))
    lanes = left.shape[0]
    start = np.empty(lanes, reader.compute)
    initial = reader.value("initial") if reader.has("initial") else None
    start[:] = reader.imm("initial") if initial is None else spread(initial, left)[:, 0]
    op0, op1 = reader.imm("op0"), reader.imm("op1")
    reverse = bool(reader.imm("reverse0")), bool(reader.imm("reverse1"))
    states = _running(op0, op1, left, right, start)
    if states is None:
        states = _recurrence(alu.of(op0), alu.of(op1), left, right, start, reverse)
    return {"dst": states.reshape(data0.shape)}


def _running(
    op0: str, op1: str, left: NDArray[Any], right: NDArray[Any], start: NDArray[Any]
) -> NDArray[Any] | None:
    """The scans that are one running operation, step for step the same; None for any other.

    With a commutative op0 equal to op1 the steps interleave data0 and data1; a data0 of ones under multiply leaves
    the state as it is.
    """
    ufunc = running(alu.of(op1))
    if ufunc is None or op1 == "subtract":
        return None
    if op0 == op1:
        lanes, count = left.shape
        steps = np.empty((lanes, 2 * count + 1), left.dtype)
        steps[:, 0], steps[:, 1::2], steps[:, 2::2] = start, left, right
        return np.asarray(ufunc.accumulate(steps, axis=1)[:, 2::2])
    if op0 == "multiply" and bool(np.all(left == 1)):
        steps = np.concatenate([start[:, None], right], axis=1)
        return np.asarray(ufunc.accumulate(steps, axis=1)[:, 1:])
    return None


def _recurrence(
    op0: alu.AluOp,
    op1: alu.AluOp,
    left: NDArray[Any],
    right: NDArray[Any],
    state: NDArray[Any],
    reverse: tuple[bool, bool],
) -> NDArray[Any]:
    first: Callable[..., NDArray[Any]] = running(op0) or op0.fn
    second: Callable[..., NDArray[Any]] = running(op1) or op1.fn
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
    if dims == 2 and axis == 1:
        return (1,)
    axes = tuple(axis) if isinstance(axis, tuple | list) else (axis,)
    if axes == (1,) and dims > 2 and release < REAL_AXES_SINCE:
        return (dims - 1,)
    return tuple(sorted(index + dims if index < 0 else index for index in axes))


def _reduce_plan(call: Shapes) -> Plan | None:
    op, shape = alu.of(call.imm("op")), call.shape("data")
    if op.kind == "bitvec":
        return None
    axes = reduced_axes(call.imm("axis"), len(shape), call.release)
    keepdims = len(call.shape("dst")) == len(shape)
    sizes = [1 if axis in axes else size for axis, size in enumerate(shape) if keepdims or axis not in axes]
    reduce = alu.reduce_fn(op)
    lines: Any = op.ufunc.reduce if op.ufunc is not None and len(shape) == 2 and axes == (1,) else None

    def compute(data: NDArray[Any], *, out: NDArray[Any]) -> None:
        if lines is not None:
            lines(data, 1, out=out, keepdims=keepdims)
        else:
            out[...] = reduce(data, axes, keepdims)

    def negated(data: NDArray[Any], *, out: NDArray[Any]) -> None:
        compute(data, out=out)
        out *= -1  # NumPy's negative in place is wrong on rows of four elements

    return Plan(("data",), tuple(sizes), negated if call.imm("negate") else compute)


def _reduce_bits(reader: Reader) -> dict[str, Result]:
    axes = reduced_axes(reader.imm("axis"), len(reader.shape("data")), reader.release)
    reduce = alu.reduce_fn(alu.of(reader.imm("op")))
    return {"dst": stored_bits(reduce(bit_pattern(reader.raw("data")), axes), reader.dtype("dst"))}


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
    operands=(
        Operand("dst", Role.write, ON_CHIP, indirect=True),
        Operand("data", Role.read, ON_CHIP, indirect=True),
    ),
    engines=only(Engine.vector),
    meaning=Planned(_reduce_plan, _reduce_bits),
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
        *indirect_limits(
            f"{STUB}:1215-1230", "dst", "data", engines=frozenset({Engine.vector}), beside="data"
        ),
    ),
    legacy=returns("tensor_reduce"),
)


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


class _Shuffled(Operand):
    """A destination whose old content matters where the mask keeps partitions as they are."""

    def role_in(self, immediates: Mapping[str, Any]) -> Role:
        """See `Operand.role_in`."""
        mask = immediates.get("shuffle_mask")
        return self.role if not isinstance(mask, tuple | list) or KEEP in mask else Role.write


def _shuffle(reader: Reader) -> dict[str, Result]:
    mask = [int(entry) for entry in reader.imm("shuffle_mask")]
    same = reader.dtype("src") == reader.dtype("dst")
    look = reader.raw if same else reader.value
    src = rows_of(look("src"))
    wanted = [(lane, mask[lane % SHUFFLED]) for lane in range(reader.shape("dst")[0])]
    moved = [(lane, lane - lane % SHUFFLED + entry) for lane, entry in wanted if entry != KEEP]
    if any(lane >= len(src) for _, lane in moved):
        raise ValueError(
            f"shuffle_mask reads partition {max(lane for _, lane in moved)} of src, which has {len(src)}"
        )
    kept = len(moved) < len(wanted)
    result = rows_of(look("dst")).copy() if kept else np.empty((len(wanted), src.shape[1]), src.dtype)
    result[[lane for lane, _ in moved]] = src[[lane for _, lane in moved]]
    return {"dst": Bits(result) if same else result}


def _shuffle_mask(call: Call) -> str | None:
    mask = call.imm("shuffle_mask")
    if not isinstance(mask, tuple | list) or len(mask) != SHUFFLED:
        count = f"has {len(mask)} entries" if isinstance(mask, tuple | list) else f"is {mask}"
        return f"shuffle_mask {count}, must be a list of {SHUFFLED} partitions"
    for at, entry in enumerate(mask):
        if not isinstance(entry, int) or not (0 <= entry < SHUFFLED or entry == KEEP):
            return f"shuffle_mask[{at}] is {entry}, must be 0 to {SHUFFLED - 1}, or {KEEP} to keep dst"
    return None


def _shuffled_partitions(call: Call) -> str | None:
    if _shuffle_mask(call) or not (call.has("src") and call.has("dst")):
        return None
    mask, held = call.imm("shuffle_mask"), call.measure("src", "partitions")
    for lane in range(call.measure("dst", "partitions")):
        entry = mask[lane % SHUFFLED]
        if entry != KEEP and lane - lane % SHUFFLED + entry >= held:
            return f"partition {lane} of dst takes partition {lane - lane % SHUFFLED + entry} of src, which has {held}"
    return None


def _shuffle_start(operand: str) -> Callable[[Call], str | None]:
    def find(call: Call) -> str | None:
        if not (call.has("src") and call.has("dst")):
            return None
        most = max(call.measure(name, "partitions") for name in ("src", "dst"))
        active, start = -(-most // SHUFFLED) * SHUFFLED, call.measure(operand, "start")
        if not 1 <= active <= call.hardware.partitions:
            return None
        allowed = call.hardware.start_partitions(active)
        if start in allowed:
            return None
        places = ", ".join(map(str, allowed))
        return (
            f"{operand} starts at partition {start}, a shuffle of {active} partitions may start at {places}"
        )

    return find


nc_stream_shuffle = Row(
    name="nc_stream_shuffle",
    signature=(Param("dst"), Param("src"), Param("shuffle_mask"), NAME),
    orders=((LEGACY_ONLY, ("src", "dst", "shuffle_mask", "name")),),
    operands=(_Shuffled("dst", Role.accumulate, ON_CHIP), Operand("src", Role.read, ON_CHIP)),
    engines=only(Engine.vector),
    meaning=_shuffle,
    flow={"dst": Flow.select},
    cost=Cost(
        subject="src",
        per_element=1.0,
        minimum=MIN_INTERVAL,
        formula="max(MIN_II, N)",
        source=f"{STUB_2_26}:991-995",
    ),
    source=f"{STUB}:2052-2085",
    limits=(
        *partition_limits("dst", "src"),
        *(
            Check(number=2, source=f"{STUB}:2069-2080", subject=f"{name}.start", find=_shuffle_start(name))
            for name in ("dst", "src")
        ),
        *native_limits("dst", "src"),
        SameDtype(number=45, source=f"{STUB}:2067", left="dst", right="src"),
        Equal(number=8, source=f"{STUB}:2068", left="dst.free", right="src.free"),
        Check(number=0, source=f"{STUB}:2057-2059", subject="shuffle_mask.entries", find=_shuffle_mask),
        Check(
            number=115, source=f"{STUB}:2058-2062", subject="shuffle_mask.range", find=_shuffled_partitions
        ),
    ),
    legacy=Legacy("nc_stream_shuffle", "dst"),
)


ROWS = (
    tensor_tensor_scan,
    tensor_reduce,
    bn_stats,
    bn_aggr,
    nc_stream_shuffle,
)

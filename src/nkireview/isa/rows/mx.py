"""Rows of the MX formats: the matmul that dequantises, and the quantisation that feeds it (NeuronCore-v4)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.isa import mx
from nkireview.isa.enums import Engine
from nkireview.isa.limit import Call, Check, DtypeIn, Equal, Limit, MultipleOf
from nkireview.isa.release import Release, Span
from nkireview.isa.row import Bits, Cost, Engines, Flow, Operand, Param, Reader, Result, Role, Row
from nkireview.isa.rows.arrays import rows_of
from nkireview.isa.rows.common import (
    ALL,
    BEFORE_05,
    HALF,
    MIN_INTERVAL,
    NAME,
    NOTES,
    PSUM,
    SBUF,
    SINCE_03,
    SINCE_05,
    STUB,
    TENSOR_GROUP,
    V4,
    indirect_limits,
    only,
    partition_limits,
    same_partitions,
    snakes,
    start_limits,
)
from nkireview.isa.rows.tensor import (
    indirect_tiling,
    moving_columns,
    one_bank,
    result_shape,
    stationary_columns,
    tiling,
)

Mask = NDArray[np.bool_]
Masks = Mapping[str, Mask]

ARCH_V4 = "nki/guides/architecture/trainium3_arch.rst"
GUIDE = "nki/deep-dives/mxfp-matmul.rst"
STUB_2_30 = "nki/api/nki/isa/__init__.py at tag v2.30.0"
DATA = frozenset(mx.ELEMENTS)
QUANTISED = frozenset({"float8_e4m3fn_x4", "float8_e5m2_x4"})
RESULTS = frozenset({"float32", "bfloat16"})
SCALES = frozenset({"float8_e8m0fnu", "uint8"})
OLD_COLUMNS = {"float32": 512, "bfloat16": 1024}  # STUB_2_30 nc_matmul_mx
NATIVE = Span(since=Release(0, 2))


def scale_limits(scale: str, data: str, columns: str) -> tuple[Limit, ...]:
    """Rules 78 and 148 for the scale tile of some data; `columns`: the operand with as many elements a partition."""
    return (
        DtypeIn(
            number=148,
            source=f"{NOTES}:123; {STUB_2_30}",
            releases=BEFORE_05,
            operand=scale,
            allowed=frozenset({"uint8"}),
        ),
        Equal(number=78, source=f"{GUIDE}:103-112", left=f"{scale}.free", right=f"{columns}.free"),
        Check(number=78, source=f"{GUIDE}:103-112", subject=f"{scale}.partitions", find=_few(scale, data)),
        Check(number=78, source=f"{GUIDE}:244-256", subject=f"{scale}.start", find=_start(scale)),
        Check(number=78, source=f"{GUIDE}:92-99", subject=f"{scale}.quadrant", find=_quadrant(scale, data)),
    )


def _few(scale: str, data: str) -> Callable[[Call], str | None]:
    def find(call: Call) -> str | None:
        if not (call.has(scale) and call.has(data)):
            return None
        found, partitions = call.measure(scale, "partitions"), call.measure(data, "partitions")
        needed = mx.scale_partitions(partitions)
        if found >= needed:
            return None
        return (
            f"{scale} has {found} partitions, the scales of {partitions} partitions take {needed}: "
            f"{mx.SCALES} in each quadrant of {mx.QUADRANT}"
        )

    return find


def _start(scale: str) -> Callable[[Call], str | None]:
    def find(call: Call) -> str | None:
        if not call.has(scale):
            return None
        start = call.measure(scale, "start")
        if start % mx.QUADRANT in mx.SCALE_STARTS:
            return None
        places = ", ".join(map(str, mx.SCALE_STARTS))
        return f"{scale} starts at partition {start}, scales may start at {places} of a quadrant of {mx.QUADRANT}"

    return find


def _quadrant(scale: str, data: str) -> Callable[[Call], str | None]:
    def find(call: Call) -> str | None:
        if not (call.has(scale) and call.has(data) and call.placed(scale) and call.placed(data)):
            return None
        at, needed = (call.measure(name, "start") // mx.QUADRANT for name in (scale, data))
        if at == needed:
            return None
        return f"{scale} starts in quadrant {at}, {data} in quadrant {needed}: scales lie in the quadrant of their data"

    return find


def scale_values(reader: Reader, scale: str, partitions: int) -> NDArray[Any]:
    """The scales of so many partitions of data, as (blocks, elements a partition) values."""
    rows = mx.scale_rows(partitions)
    if reader.dtype(scale).kind == "float":
        return rows_of(reader.value(scale))[rows]
    return mx.scale_value(rows_of(reader.raw(scale))[rows], reader.compute)


def _matmul(reader: Reader) -> dict[str, Result]:
    sides = []
    for name in ("stationary", "moving"):
        packed = rows_of(reader.raw(name))
        scales = scale_values(reader, f"{name}_scale", len(packed))
        values = mx.dequantise(packed, reader.dtype(name).name, scales)
        # The contraction runs over the partitions and the four elements of each.
        sides.append(values.transpose(0, 2, 1).reshape(-1, packed.shape[1]))
    return {"dst": sides[0].T @ sides[1]}


def _product_reach(reader: Reader, masks: Masks) -> Mask:
    """Row m of stationary and column n of moving, each with its scales, but not what lies between those."""
    lines = []
    for name in ("stationary", "moving"):
        found = np.ones(math.prod(reader.shape(name)[1:]), np.bool_)
        if name in masks:
            found &= rows_of(masks[name]).all(axis=0)
        if f"{name}_scale" in masks:
            rows = mx.scale_rows(reader.shape(name)[0])
            found &= rows_of(masks[f"{name}_scale"])[rows].all(axis=0)
        lines.append(found)
    left, right = lines
    return left[:, None] & right[None, :]


def _blocks_defined(reader: Reader, masks: Masks) -> Mask:
    """Which blocks of src are defined throughout, as (blocks, packed elements a partition)."""
    partitions, free = reader.shape("src")[0], math.prod(reader.shape("src")[1:])
    defined = rows_of(masks["src"]) if "src" in masks else np.ones((partitions, free), np.bool_)
    blocks = defined.reshape(-1, mx.ROWS, free // mx.PACK, mx.PACK)
    return np.asarray(blocks.all(axis=(1, 3)))


def _data_reach(reader: Reader, masks: Masks) -> Mask:
    return np.repeat(_blocks_defined(reader, masks), mx.ROWS, axis=0)


def _scale_reach(reader: Reader, masks: Masks) -> Mask:
    shape = reader.shape("dst_scale")
    held = np.ones(shape, np.bool_) if "dst_scale" not in masks else masks["dst_scale"]
    found: Mask = rows_of(held).copy()
    found[mx.scale_rows(reader.shape("src")[0])] = _blocks_defined(reader, masks)
    return found


def _quantise(reader: Reader) -> dict[str, Result]:
    packed, codes = mx.quantise(rows_of(reader.value("src")), reader.dtype("dst").name, reader.release)
    rows = mx.scale_rows(packed.shape[0])
    if reader.dtype("dst_scale").kind == "float":
        scales = rows_of(reader.value("dst_scale")).copy()
        scales[rows] = mx.scale_value(codes, reader.compute)
        return {"dst": Bits(packed), "dst_scale": scales}
    held = rows_of(reader.raw("dst_scale")).copy()
    held[rows] = codes
    return {"dst": Bits(packed), "dst_scale": Bits(held)}


def _old_columns(call: Call) -> str | None:
    if not (call.has("moving") and call.has("dst")) or call.dtype("dst") not in OLD_COLUMNS:
        return None
    allowed, found = OLD_COLUMNS[call.dtype("dst")], call.measure("moving", "free")
    if found <= allowed:
        return None
    return f"moving free size {found} exceeds {allowed} before NKI 0.5"


def _even(call: Call) -> str | None:
    if not call.has("stationary") or call.measure("stationary", "free") % 2 == 0:
        return None
    return f"stationary free size {call.measure('stationary', 'free')} must be even"


def _row_tiles_only(call: Call) -> str | None:
    position: Any = call.imm("tile_position") or None
    size: Any = call.imm("tile_size") or None
    if position is not None and position[1] != 0:
        return f"tile_position column {position[1]} must be 0, an MX matmul has no column tiles"
    columns = call.hardware.integer("tensor.columns")
    if size is not None and size[1] != columns:
        return f"tile_size columns {size[1]} must be {columns}, an MX matmul has no column tiles"
    return None


def _rows_fit(call: Call) -> str | None:
    size: Any = call.imm("tile_size") or None
    if size is None or not call.has("stationary"):
        return None
    found = call.measure("stationary", "partitions")
    return (
        None
        if found <= size[0]
        else f"stationary partition size {found} exceeds {size[0]}, the rows of tile_size"
    )


def _pairs(call: Call) -> str | None:
    for name in ("stationary", "moving"):
        scale = f"{name}_scale"
        if not (call.has(name) and call.has(scale)):
            continue
        if snakes(call, name, scale) and not call.same_index(name, scale):
            return f"{name} and {scale} must be views made by indirect() with the same index, or neither"
    return None


INDIRECT = ("dst", "stationary", "moving", "stationary_scale", "moving_scale")

nc_matmul_mx = Row(
    name="nc_matmul_mx",
    signature=(
        Param("dst"),
        Param("stationary"),
        Param("moving"),
        Param("stationary_scale"),
        Param("moving_scale"),
        Param("tile_position", None),
        Param("tile_size", None),
        Param("accumulate", None, SINCE_03),
        NAME,
    ),
    operands=(
        Operand("dst", Role.accumulate, PSUM, RESULTS, indirect=True),
        Operand("stationary", Role.read, SBUF, DATA, indirect=True),
        Operand("moving", Role.read, SBUF, DATA, indirect=True),
        Operand("stationary_scale", Role.read, SBUF, SCALES, indirect=True),
        Operand("moving_scale", Role.read, SBUF, SCALES, indirect=True),
    ),
    engines=Engines(Engine.tensor, {Engine.tensor: ALL}),
    meaning=_matmul,
    flow={"dst": Flow.contract},
    reach={"dst": _product_reach},
    cost=Cost(
        subject="moving",
        per_element=1.0,
        minimum="tensor.min_interval_cycles",
        formula="max(64, N_moving) Tensor cycles, as a bfloat16 matmul that contracts a quarter",
        source=f"{ARCH_V4}:75-79",
    ),
    source=f"{STUB}:714-827",
    limits=(
        *partition_limits("dst", "stationary", "moving"),
        *start_limits("dst", "stationary", "moving"),
        Equal(number=78, source=f"{STUB}:779-780", left="moving.partitions", right="stationary.partitions"),
        MultipleOf(number=78, source=f"{STUB}:779-780", subject="stationary.partitions", bound=mx.QUADRANT),
        Check(number=78, source=f"{STUB}:781", subject="stationary.free", find=_even),
        Check(number=71, source=f"{STUB}:781", subject="stationary.free", find=stationary_columns),
        Check(
            number=71,
            source=f"{STUB}:782-783",
            releases=SINCE_05,
            subject="moving.free",
            find=moving_columns,
        ),
        Check(
            number=71,
            source=f"{STUB_2_30} nc_matmul_mx",
            releases=BEFORE_05,
            subject="moving.free",
            find=_old_columns,
        ),
        Check(
            number=13,
            source=f"{STUB_2_30} nc_matmul_mx",
            releases=BEFORE_05,
            subject="dst.span",
            find=one_bank,
        ),
        Check(number=72, source=f"{STUB}:770-773", subject="dst.shape", find=result_shape),
        Check(number=54, source=f"{STUB}:732-749", subject="tile_size.tiling", find=tiling),
        Check(number=54, source=f"{STUB}:732-740", subject="tile_size.columns", find=_row_tiles_only),
        Check(number=71, source=f"{STUB}:736", subject="stationary.tile_rows", find=_rows_fit),
        *scale_limits("stationary_scale", "stationary", "stationary"),
        *scale_limits("moving_scale", "moving", "moving"),
        *indirect_limits(
            f"{STUB}:791-812",
            *INDIRECT,
            engines=frozenset({Engine.tensor}),
            beside="stationary",
            group=TENSOR_GROUP,
        ),
        Check(number=145, source=f"{STUB}:795-800", subject="stationary.scale_index", find=_pairs),
        Check(number=145, source=f"{STUB}:800-801", subject="dst.tiling", find=indirect_tiling(*INDIRECT)),
    ),
    generations=V4,
    releases=NATIVE,
)


def _packed_width(call: Call) -> str | None:
    if not (call.has("src") and call.has("dst")):
        return None
    found, free = call.measure("dst", "free"), call.measure("src", "free")
    if free == found * mx.PACK:
        return None
    return f"dst free size {found} must be a quarter of src free size {free}: each element of dst packs {mx.PACK}"


quantize_mx = Row(
    name="quantize_mx",
    signature=(Param("dst"), Param("src"), Param("dst_scale"), NAME),
    operands=(
        Operand("dst", Role.write, SBUF, QUANTISED),
        Operand("src", Role.read, SBUF, HALF),
        # the partitions between the scales keep what they hold
        Operand("dst_scale", Role.accumulate, SBUF, SCALES),
    ),
    engines=only(Engine.vector),
    meaning=_quantise,
    flow={"dst": Flow.whole, "dst_scale": Flow.whole},
    reach={"dst": _data_reach, "dst_scale": _scale_reach},
    cost=Cost(
        subject="src",
        per_element=0.25,
        minimum=MIN_INTERVAL,
        formula="max(MIN_II, N / 4) Vector cycles, N the elements a partition of src",
        source=f"{ARCH_V4}:172",
    ),
    source=f"{STUB}:2741-2817",
    limits=(
        *partition_limits("dst", "src"),
        *start_limits("dst", "src"),
        MultipleOf(number=78, source=f"{STUB}:2779", subject="src.partitions", bound=mx.QUADRANT),
        MultipleOf(number=78, source=f"{STUB}:2780", subject="src.free", bound=mx.PACK),
        same_partitions("dst", "src"),
        Check(number=8, source=f"{STUB}:2782-2783", subject="dst.free", find=_packed_width),
        *scale_limits("dst_scale", "src", "dst"),
    ),
    generations=V4,
    releases=NATIVE,
)

ROWS: tuple[Row, ...] = (nc_matmul_mx, quantize_mx)

"""Rows of the Tensor engine (nc_transpose also runs on Vector)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.isa.enums import Engine, MatmulPerfMode, Memory
from nkireview.isa.limit import Call, Check, DtypeIn, Equal, Limit
from nkireview.isa.release import LEGACY, Release, Span
from nkireview.isa.row import (
    Bits,
    Cost,
    Engines,
    Flow,
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
from nkireview.isa.rows.arrays import rows_of
from nkireview.isa.rows.common import (
    ALL,
    BEFORE_04,
    BEFORE_V4,
    ENGINE,
    FP8,
    LEGACY_ONLY,
    MIN_INTERVAL,
    NAME,
    NOTES,
    ON_CHIP,
    PSUM,
    SBUF,
    SINCE_03,
    SINCE_04,
    STUB,
    STUB_2_26,
    TENSOR_GROUP,
    V2,
    V3_UP,
    V4,
    indirect_limits,
    returns,
    snakes,
    tile_limits,
)

OPERANDS = ("dst", "stationary", "moving")
INPUTS = FP8 | {"bfloat16", "float16", "tfloat32", "float32"}
INDIRECT_INPUTS = FP8 | {"bfloat16", "float16"}
WIDE = frozenset({"tfloat32", "float32"})
BF16_COLUMNS_SINCE = Release(0, 5)  # release notes of NKI 0.5, lines 150-152
VECTOR_TRANSPOSE_MAX = 32  # nki/api/nki/isa/__init__.py:858-860
OLD_TILE_MULTIPLE = 32  # nki/api/nki/isa/__init__.py at tag v2.26.1, lines 927-933


def _double_row(call: Call | Reader) -> bool:
    return bool(call.imm("perf_mode") == MatmulPerfMode.double_row.name)


def _columns(call: Call, operand: str) -> int:
    """Free size of a matmul operand, without the dimension that double_row contracts."""
    free = call.measure(operand, "free")
    return free // 2 if _double_row(call) else free


def _tile_size(call: Call) -> tuple[int, int]:
    """Rows and columns of the part of the array that a matmul uses."""
    size = call.imm("tile_size")
    if _is_pair(size):
        return int(size[0]), int(size[1])
    return call.hardware.integer("tensor.rows"), call.hardware.integer("tensor.columns")


def _is_pair(value: Any) -> bool:
    return (
        isinstance(value, tuple | list) and len(value) == 2 and all(isinstance(part, int) for part in value)
    )


def _both(call: Call) -> bool:
    return call.has("stationary") and call.has("moving")


def _width(call: Call) -> str | None:
    if not _both(call):
        return None
    stationary, moving = call.dtype("stationary"), call.dtype("moving")
    if (stationary in WIDE) == (moving in WIDE):
        return None
    return f"stationary dtype {stationary} and moving dtype {moving}: float32 and tfloat32 mix with each other only"


def _fp8_kinds(call: Call) -> str | None:
    if not _both(call) or {call.dtype("stationary"), call.dtype("moving")} != {
        "float8_e4m3",
        "float8_e4m3fn",
    }:
        return None
    return "float8_e4m3 and float8_e4m3fn cannot be mixed in one matmul"


def _old_fn(call: Call) -> str | None:
    names = [
        name for name in ("stationary", "moving") if call.has(name) and call.dtype(name) == "float8_e4m3fn"
    ]
    return f"{names[0]} dtype float8_e4m3fn is not allowed before NKI 0.4" if names else None


def _result_dtype(call: Call) -> str | None:
    if not call.has("dst") or call.imm("is_transpose"):
        return None
    allowed = ("float32", "bfloat16") if call.hardware.generation in V4 else ("float32",)
    found = call.dtype("dst")
    if found in allowed:
        return None
    return f"dst dtype {found} is not allowed, a matmul writes {' or '.join(allowed)}"


def _transpose_dtype(call: Call) -> str | None:
    if not (call.imm("is_transpose") and call.has("dst") and call.has("stationary")):
        return None
    found, needed = call.dtype("dst"), call.dtype("stationary")
    return (
        None
        if found == needed
        else f"dst dtype {found} differs from stationary dtype {needed} in a transpose"
    )


def _double_row_operands(call: Call) -> str | None:
    if not _double_row(call):
        return None
    for name in ("stationary", "moving"):
        if not call.has(name):
            continue
        if call.dtype(name) not in FP8:
            return f"{name} dtype {call.dtype(name)} is not allowed, double_row needs 8-bit floats"
        counts = call.counts(name)
        if len(counts) < 3 or counts[1] != 2:
            shape = ", ".join(map(str, counts))
            return f"{name} shape ({shape}) must have 2 as its first free dimension in double_row; pad with zeros"
    return None


def _double_row_mode(call: Call) -> str | None:
    if not _double_row(call):
        return None
    if call.imm("is_transpose"):
        return "perf_mode=double_row cannot be combined with is_transpose"
    columns = call.hardware.integer("tensor.columns")
    if _tile_size(call)[1] != columns:
        return f"perf_mode=double_row cannot be combined with tiles of {_tile_size(call)[1]} columns"
    return None


def _double_row_generation(call: Call) -> str | None:
    return "perf_mode=double_row needs NeuronCore-v3 or newer" if _double_row(call) else None


def tiling(call: Call) -> str | None:
    """Rule 54: the part of the array that a matmul uses."""
    position: Any = call.imm("tile_position") or None
    size: Any = call.imm("tile_size") or None
    if position is None and size is None:
        return None
    if not (_is_pair(position) and _is_pair(size)):
        return f"tile_position {position} and tile_size {size} must both be pairs of integers, or both be left out"
    hardware = call.hardware
    sides = (
        ("row", position[0], size[0], hardware.row_tiles),
        ("column", position[1], size[1], hardware.column_tiles),
    )
    if call.release == LEGACY:
        return _old_tiling(call, position, size)
    for side, start, extent, tiles in sides:
        if extent not in tiles:
            return f"tile_size {side}s {extent} must be one of {', '.join(map(str, sorted(tiles)))}"
        if start not in tiles[extent]:
            starts = ", ".join(map(str, tiles[extent]))
            return f"tile_position {side} {start} must be one of {starts} for {extent} {side}s"
    return None


def _old_tiling(call: Call, position: tuple[int, int], size: tuple[int, int]) -> str | None:
    for name, pair in (("tile_position", position), ("tile_size", size)):
        if any(part % OLD_TILE_MULTIPLE for part in pair):
            return f"{name} {tuple(pair)} must be multiples of {OLD_TILE_MULTIPLE}"
    if call.hardware.generation in V2 and tuple(size) == (OLD_TILE_MULTIPLE, OLD_TILE_MULTIPLE):
        return f"tile_size {tuple(size)} cannot be {OLD_TILE_MULTIPLE} on both sides"
    return None


def _rows_fit(call: Call) -> str | None:
    if not call.has("stationary"):
        return None
    rows, found = _tile_size(call)[0], call.measure("stationary", "partitions")
    # Without tiling this is the general limit on partitions.
    if found <= rows or not _is_pair(call.imm("tile_size")):
        return None
    return f"stationary partition size {found} exceeds {rows}, the rows of tile_size"


def stationary_columns(call: Call) -> str | None:
    """Rule 71: columns of the array that the stationary operand of a matmul takes."""
    if not call.has("stationary"):
        return None
    allowed = min(call.hardware.stationary_free_max, _tile_size(call)[1])
    found = _columns(call, "stationary")
    return None if found <= allowed else f"stationary free size {found} exceeds {allowed}"


def moving_columns(call: Call) -> str | None:
    """Rule 71: columns of the moving operand of a matmul, by what a partition of PSUM holds."""
    if not (call.has("moving") and call.has("dst")):
        return None
    dtype = call.dtype("dst")
    if call.release < BF16_COLUMNS_SINCE:
        dtype = "float32"
    allowed, found = call.hardware.moving_free_max(dtype), _columns(call, "moving")
    return None if found <= allowed else f"moving free size {found} exceeds {allowed}"


def result_shape(call: Call) -> str | None:
    """Rule 72: what a matmul writes."""
    if not (_both(call) and call.has("dst")):
        return None
    needed = (_columns(call, "stationary"), _columns(call, "moving"))
    found = (call.measure("dst", "partitions"), call.measure("dst", "free"))
    if found == needed:
        return None
    return (
        f"dst is {found[0]} x {found[1]} (partitions x elements), stationary and moving give "
        f"{needed[0]} x {needed[1]}"
    )


def one_bank(call: Call) -> str | None:
    """Rule 13: a matmul result that has to lie in one bank of PSUM."""
    if not call.has("dst") or call.memory("dst") is not Memory.psum:
        return None
    bank = call.hardware.psum_bank_bytes
    first, last = (byte // bank for byte in call.span("dst"))
    if first == last:
        return None
    return f"dst spans PSUM banks {first} to {last}, a matmul result must lie in one bank of {bank} bytes"


def _matmul(reader: Reader) -> dict[str, Result]:
    if reader.imm("is_transpose") and reader.generation in V3_UP:
        moved = _moved(reader)
        if moved is not None:
            return {"dst": moved}
    stationary, moving = reader.value("stationary"), reader.value("moving")
    if _double_row(reader):
        # The first free dimension holds the second half of the contraction.
        stationary, moving = _stacked(stationary), _stacked(moving)
    return {"dst": rows_of(stationary).T @ rows_of(moving)}


def _stacked(values: NDArray[Any]) -> NDArray[Any]:
    return values.reshape(values.shape[0] * 2, -1)


def _moved(reader: Reader) -> Result | None:
    """What the transpose mode does where each column of moving is a unit vector: move elements, None elsewhere."""
    moving = rows_of(reader.value("moving"))
    ones = moving == 1
    if not (np.all(ones | (moving == 0)) and np.all(ones.sum(axis=0) == 1)):
        return None
    source = ones.argmax(axis=0)
    if reader.dtype("dst") == reader.dtype("stationary"):
        return Bits(rows_of(reader.raw("stationary"))[source].T)
    values: NDArray[Any] = rows_of(reader.value("stationary"))[source].T
    return values


def _indirect_dtype(call: Call) -> str | None:
    for name in snakes(call, "stationary", "moving"):
        if call.dtype(name) not in INDIRECT_INPUTS:
            return f"{name} dtype {call.dtype(name)} is not allowed in a view made by indirect(), use 8 or 16 bits"
    return None


def _indirect_transpose(call: Call) -> str | None:
    if not call.imm("is_transpose") or not snakes(call, "moving"):
        return None
    return "moving is a view made by indirect(), which is_transpose cannot be combined with"


def indirect_tiling(*operands: str) -> Callable[[Call], str | None]:
    """Rule 145: a matmul with an operand made by indirect() uses the array from its first row and column on."""

    def find(call: Call) -> str | None:
        position: Any = call.imm("tile_position") or None
        found = snakes(call, *operands)
        if not found or position is None or tuple(position) == (0, 0):
            return None
        return f"{found[0]} is a view made by indirect(), tile_position {tuple(position)} must then be (0, 0)"

    return find


def _fp32(call: Call) -> bool:
    return call.has("moving") and call.dtype("moving") == "float32"


def _fp32_transpose(call: Call) -> bool:
    return _fp32(call) and bool(call.imm("is_transpose"))


def _passes(call: Call) -> int:
    """A float32 matmul is one of the high halves and one of the low halves; zeros and ones have no low halves."""
    return 2 if _fp32(call) and not (call.imm("is_transpose") or _fp32_onezero(call)) else 1


def _weight_load(call: Call) -> float:
    """Cycles to load the stationary operand, of one pass."""
    if not call.has("stationary"):
        return 0.0
    columns = call.measure("stationary", "free")
    return columns * _load_cycles(call, call.dtype("stationary") == "float32", bool(call.imm("is_transpose")))


def _load_cycles(call: Call, fp32: bool, transposes: bool) -> float:
    if not fp32:
        return 1 / call.hardware.number("tensor.fast_load_factor")
    return call.hardware.number("tensor.load_columns_fp32") / (2 if transposes else 1)


def _fp32_onezero(call: Call) -> bool:
    return _fp32(call) and bool(call.imm("is_stationary_onezero") or call.imm("is_moving_onezero"))


nc_matmul = Row(
    name="nc_matmul",
    signature=(
        Param("dst"),
        Param("stationary"),
        Param("moving"),
        Param("is_stationary_onezero", False),
        Param("is_moving_onezero", False),
        Param("is_transpose", False),
        # no argument of the legacy generation: what its psum[...] = and += mean
        Param("accumulate", None, LEGACY_ONLY),
        Param("accumulate", None, SINCE_03),
        Param("tile_position", ()),
        Param("tile_size", ()),
        Param("perf_mode", MatmulPerfMode.none),
        NAME,
    ),
    operands=(
        Operand("dst", Role.accumulate, PSUM, plain_if="is_transpose", indirect=True),
        Operand("stationary", Role.read, SBUF, indirect=True),
        Operand("moving", Role.read, SBUF, indirect=True),
    ),
    engines=Engines(Engine.tensor, {Engine.tensor: ALL}),
    meaning=_matmul,
    flow={"dst": Flow.contract},
    cost=Cost(
        subject="moving",
        per_element=1.0,
        minimum="tensor.min_interval_cycles",
        formula="max(64, N_moving, N_stationary/4) Tensor cycles up to tfloat32; float32: two passes of "
        "max(64, 2*N_moving, 2*N_stationary)",
        source=f"{STUB_2_26}:896-916; nki/guides/architecture/trainium_inferentia2_arch.rst:259-303",
        passes=_passes,
        load=_weight_load,
        rates=(
            Rate(0.5, "double_row: one column of two rows a cycle", _double_row, V3_UP, f"{STUB}:507-512"),
            Rate(
                "tensor.fp32_transpose_cost_factor",
                "float32 transpose",
                _fp32_transpose,
                source="nki/guides/architecture/trainium2_arch.rst:201",
            ),
            Rate(
                2.0,
                "float32 with an operand declared to hold only 0 and 1",
                _fp32_onezero,
                source=f"{STUB}:665-670",
            ),
            Rate(
                "tensor.fp32_cost_factor",
                "float32",
                _fp32,
                source="nki/guides/architecture/trainium_inferentia2_arch.rst:268-270",
            ),
        ),
    ),
    source=f"{STUB}:489-712",
    limits=(
        *tile_limits("dst", "stationary", "moving"),
        Equal(number=72, source=f"{STUB}:606-607", left="stationary.partitions", right="moving.partitions"),
        Check(number=71, source=f"{STUB}:607-610", subject="stationary.partitions", find=_rows_fit),
        Check(number=71, source=f"{STUB}:609-610", subject="stationary.free", find=stationary_columns),
        Check(
            number=71, source=f"{STUB}:612-615; {NOTES}:150-152", subject="moving.free", find=moving_columns
        ),
        Check(number=72, source=f"{STUB}:600-603", subject="dst.shape", find=result_shape),
        Check(
            number=13,
            source=f"{STUB}:612-613; nki/guides/architecture/trainium_inferentia2_arch.rst:169-170",
            generations=BEFORE_V4,
            subject="dst.span",
            find=one_bank,
        ),
        DtypeIn(number=29, source=f"{STUB}:575-585", operand="stationary", allowed=INPUTS),
        DtypeIn(number=29, source=f"{STUB}:575-585", operand="moving", allowed=INPUTS),
        Check(number=30, source=f"{STUB}:580-581", subject="moving.dtype", find=_width),
        Check(number=31, source=f"{STUB}:578", subject="moving.dtype", find=_fp8_kinds),
        Check(
            number=156, source=f"{NOTES}:244", releases=BEFORE_04, subject="stationary.dtype", find=_old_fn
        ),
        Check(number=32, source=f"{STUB}:588-589", subject="dst.dtype", find=_result_dtype),
        Check(
            number=32,
            source="nki/guides/architecture/trainium2_arch.rst:201-204",
            generations=V3_UP,
            subject="dst.dtype",
            find=_transpose_dtype,
        ),
        Check(number=33, source=f"{STUB}:582-599", subject="perf_mode.operands", find=_double_row_operands),
        Check(
            number=34,
            source="nki/guides/architecture/trainium2_arch.rst:117-121",
            subject="perf_mode.combination",
            find=_double_row_mode,
        ),
        Check(
            number=52,
            source=f"{STUB}:505-508",
            generations=V2,
            subject="perf_mode.generation",
            find=_double_row_generation,
        ),
        Check(
            number=54, source=f"{STUB}:513-534; {STUB_2_26}:927-933", subject="tile_size.tiling", find=tiling
        ),
        *indirect_limits(
            f"{STUB}:640-660",
            *OPERANDS,
            engines=frozenset({Engine.tensor}),
            beside="stationary",
            group=TENSOR_GROUP,
        ),
        Check(number=145, source=f"{STUB}:647-651", subject="stationary.index_dtype", find=_indirect_dtype),
        Check(number=145, source=f"{STUB}:644", subject="moving.index_transpose", find=_indirect_transpose),
        Check(number=145, source=f"{STUB}:645-647", subject="dst.tiling", find=indirect_tiling(*OPERANDS)),
    ),
    legacy=returns("nc_matmul"),
)


def _transpose_engine(call: Call) -> Engine:
    return Engine.tensor if call.has("dst") and call.memory("dst") is Memory.psum else Engine.vector


def _transpose_size(call: Call) -> str | None:
    if not call.has("data"):
        return None
    engine = call.resolved_engine()
    if engine is Engine.vector:
        rows = columns = VECTOR_TRANSPOSE_MAX
    else:
        rows, columns = call.hardware.integer("tensor.rows"), call.hardware.integer("tensor.columns")
    found = (call.measure("data", "partitions"), call.measure("data", "free"))
    if found[0] <= rows and found[1] <= columns:
        return None
    hint = "; the tensor engine, which writes to PSUM, takes more" if engine is Engine.vector else ""
    return (
        f"data is {found[0]} x {found[1]} (partitions x elements), the {engine.name} engine transposes at most "
        f"{rows} x {columns}{hint}"
    )


def _transpose_memory(call: Call) -> str | None:
    if call.resolved_engine() is not Engine.tensor:
        return None
    for name, needed in (("data", Memory.sbuf), ("dst", Memory.psum)):
        if call.has(name) and call.memory(name) is not needed:
            found = call.memory(name).name.upper()
            return f"{name} is in {found}, the tensor engine transposes from SBUF to PSUM"
    return None


def _transposed_shape(call: Call) -> str | None:
    if not (call.has("dst") and call.has("data")):
        return None
    needed = (call.measure("data", "free"), call.measure("data", "partitions"))
    found = (call.measure("dst", "partitions"), call.measure("dst", "free"))
    if found == needed:
        return None
    return f"dst is {found[0]} x {found[1]} (partitions x elements), the transposed data is {needed[0]} x {needed[1]}"


def _same_transposed_dtype(call: Call) -> str | None:
    if not (call.has("dst") and call.has("data")) or call.dtype("dst") == call.dtype("data"):
        return None
    return f"dst dtype {call.dtype('dst')} differs from data dtype {call.dtype('data')}"


def _matmul_transpose(call: Call) -> bool:
    return call.hardware.generation in V2 and call.resolved_engine() is Engine.tensor


def _transpose(call: Shapes) -> Plan:
    rows, *free = call.shape("data")
    shape = (math.prod(free), rows)
    if call.generation in V2 and call.engine is Engine.tensor:
        # A matmul with an identity: 0 * NaN and 0 * inf spread over the row.
        identity = np.eye(rows, dtype=call.compute)
        return Plan(("data",), shape, lambda data, out: np.matmul(rows_of(data).T, identity, out=out))
    bits = call.dtype("dst") is call.dtype("data")
    return Plan(("data",), shape, lambda data, out: np.copyto(out, rows_of(data).T), bits)


def _on_tensor_fp32(call: Call) -> bool:
    return call.resolved_engine() is Engine.tensor and call.has("data") and call.dtype("data") == "float32"


def _data_load(call: Call) -> float:
    """Cycles to load the data that a transpose holds still."""
    if call.resolved_engine() is not Engine.tensor or not call.has("data"):
        return 0.0
    return call.measure("data", "free") * _load_cycles(call, call.dtype("data") == "float32", True)


_TRANSPOSE_LIMITS: tuple[Limit, ...] = (
    *tile_limits("dst", "data"),
    Check(number=79, source=f"{STUB}:857-861", subject="data.shape", find=_transpose_size),
    Check(number=79, source=f"{STUB}:844-846", subject="dst.memory", find=_transpose_memory),
    Check(number=79, source=f"{STUB}:853-855", subject="dst.shape", find=_transposed_shape),
    Check(
        number=45,
        source=f"{STUB}:851",
        subject="dst.dtype",
        find=_same_transposed_dtype,
        exempt=_matmul_transpose,
        exemption="on v2 the Tensor engine transposes by an ordinary matmul, whose result is float32",
    ),
)

nc_transpose = Row(
    name="nc_transpose",
    signature=(Param("dst"), Param("data"), ENGINE, NAME),
    operands=(Operand("dst", Role.write, ON_CHIP), Operand("data", Role.read, ON_CHIP)),
    engines=Engines(
        Engine.tensor,
        {Engine.tensor: ALL, Engine.vector: ALL},
        choose=_transpose_engine,
        honoured=Span(since=SINCE_04.since),  # release notes of NKI 0.4: engine= was ignored before
    ),
    meaning=Planned(_transpose),
    flow={"dst": Flow.transpose},
    cost=Cost(
        subject="dst",
        per_element=1.0,
        minimum=MIN_INTERVAL,
        formula="Tensor: max(P, min(64, F)) cycles, twice that for float32; Vector: max(MIN_II, N)",
        source=f"{STUB_2_26}:1044-1063",
        load=_data_load,
        rates=(
            Rate(
                "tensor.fp32_transpose_cost_factor",
                "float32 on Tensor",
                _on_tensor_fp32,
                source="nki/guides/architecture/trainium2_arch.rst:201",
            ),
        ),
    ),
    source=f"{STUB}:829-867",
    limits=_TRANSPOSE_LIMITS,
    legacy=returns("nc_transpose"),
)

ROWS = (nc_matmul, nc_transpose)

"""Calls of the legacy generation: value-returning instructions with ``mask=`` and ``dtype=``, by the same rows."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from nkireview.isa.alu import BY_NAME as OPS
from nkireview.isa.enums import MatmulPerfMode
from nkireview.isa.release import LEGACY
from nkireview.isa.row import Row
from nkireview.isa.table import ROWS
from nkireview.nki.allocate import allocate
from nkireview.nki.dtypes import ALL, DType
from nkireview.nki.dtypes import of as dtype_of
from nkireview.nki.errors import Refusal
from nkireview.nki.legacy import masks
from nkireview.nki.legacy.state import OTHER, PRODUCT, ZERO, PsumState, psum
from nkireview.nki.legacy.symbols import Mask
from nkireview.nki.legacy.tile import Restriction, Result, Tile, access_of
from nkireview.nki.lowering import instruction, is_number, token
from nkireview.nki.operators import Operator
from nkireview.nki.tensor import MemoryRegion, NkiTensor
from nkireview.nki.trace import Trace, current
from nkireview.program.access import Bound

FP32, UINT32 = ALL["float32"], ALL["uint32"]
SOURCES = ("data", "data1", "data0", "src", "on_true_tile", "on_true", "segment_ids", "index")
"""The operand whose shape and dtype a result has, unless a row says otherwise, in this order."""
UFUNCS = {
    "absolute": "abs",
    "amax": "maximum",
    "amin": "minimum",
    "max": "maximum",
    "min": "minimum",
    "sum": "add",
    "prod": "multiply",
    "divide": "divide",
    "true_divide": "divide",
    "negative": "negative",
    "any": "logical_or",
    "all": "logical_and",
}
"""NumPy functions whose names differ from those of the operators they stand for."""
PERF_MODES = {"double_row_gen3": MatmulPerfMode.double_row}


def states(trace: Trace) -> PsumState:
    """The content of PSUM in this trace."""
    found: PsumState = trace.kept.setdefault("legacy psum", PsumState())
    return found


def note(view: NkiTensor, row: str) -> None:
    """Note what a view holds after an instruction of a row wrote it."""
    if psum(view):
        states(view._trace).note(view, PRODUCT if row in masks.MATMULS else OTHER)


def settle(view: NkiTensor) -> None:
    """Write the zeros of PSUM that are about to be read."""
    if psum(view):
        for part in states(view._trace).zeros(view):
            instruction("memset")(dst=part, value=0.0)


def zeroed(view: NkiTensor) -> None:
    """Note that a new tile of PSUM holds zeros, which are written only if something else than a matmul needs them."""
    states(view._trace).declare(view, ZERO)


def operator(value: Any) -> Any:
    """An operator as an instruction takes it: NumPy's functions stand for those of the language."""
    if isinstance(value, Operator):
        return token(value.name)
    name = getattr(value, "__name__", None)
    module = getattr(value, "__module__", "") or ""
    numpy = isinstance(value, np.ufunc) or (callable(value) and module.startswith("numpy"))
    if numpy and isinstance(name, str):
        return Operator(UFUNCS.get(name, name))
    return value


def part_of(tile: Tile, part: Restriction | None, oob: str = "error") -> NkiTensor:
    """A tile, or what a mask leaves of it, as an instruction takes it; oob: what an index out of bounds does."""
    left = tile.part(part)
    view = left.physical()
    bounds: tuple[Bound, ...] = ()
    if part is not None and part.bounds:
        starts = [start for start, _ in part.ranges]
        bounds = tuple(
            Bound(steps, constant + sum(step * start for step, start in zip(steps, starts, strict=True)))
            for steps, constant in part.bounds
        )
    if left.plain and not bounds:
        return view
    same = view._view(view.shape, view.strides, view.offset)
    same._access = access_of(left, bounds, oob)
    return same


def record(
    name: str,
    given: Mapping[str, Any],
    dst: Tile,
    mask: Any = None,
    axes: tuple[int, ...] = (),
    written: str = "dst",
) -> None:
    """Record an instruction that writes `dst`, or what a mask leaves of it."""
    trace = current(name)
    row = ROWS[name]
    reads = {key: value for key, value in given.items() if isinstance(value, Tile) and _reads(row, key)}
    writes = {key: value for key, value in given.items() if isinstance(value, Tile) and key not in reads}
    where = masks.taken(mask, name)
    if where is False:
        dst.result = Result(-1, name)
        return
    left: Restriction | None = None
    operands: dict[str, Restriction | None] = dict.fromkeys(reads)
    masked = isinstance(where, Mask)
    if name in masks.MATMULS and any(tile.mask is not None for tile in reads.values()):
        left, operands = masks.matmul_parts(reads, where if isinstance(where, Mask) else None)
        masked = True
    elif isinstance(where, Mask):
        left, operands = masks.parts(name, dst, reads, where, axes)
    if (left is not None and left.empty) or any(
        part is not None and part.empty for part in operands.values()
    ):
        dst.result = Result(-1, name)
        return
    oob = getattr(given.get("oob_mode"), "name", "error")
    views: dict[str, Any] = {key: operator(value) for key, value in given.items()}
    for key, tile in reads.items():
        views[key] = part_of(tile, operands[key], oob)
        settle(views[key])
    for key, tile in writes.items():
        other = masks.parts(name, tile, reads, where, axes)[0] if isinstance(where, Mask) else None
        views[key] = part_of(tile, other)
    target = part_of(dst, left, oob)
    if row.operand(written).role.reads and name not in masks.MATMULS:
        settle(target)
    views[written] = target
    views = {key: view for key, view in views.items() if view is not None or key in ("bias",)}
    instruction(name)(**views)
    note(target, name)
    if written == "dst" and dst.plain and not (left is not None and left.bounds):
        dst.result = Result(len(trace.builder) - 1, name, left if masked else None)


def _reads(row: Row, name: str) -> bool:
    return any(operand.name == name and operand.role.reads for operand in row.operands)


def fresh(shape: tuple[int, ...], kind: DType, region: MemoryRegion = MemoryRegion.sbuf) -> Tile:
    """A new tile for a result; one of a single dimension has it along the partitions."""
    sizes = shape if len(shape) > 1 else (*shape, 1)
    return Tile(allocate(sizes, kind, region, what="a result"))


def computed(
    name: str,
    given: Mapping[str, Any],
    dtype: Any = None,
    mask: Any = None,
    *,
    shape: tuple[int, ...] | None = None,
    kind: DType | None = None,
    region: MemoryRegion = MemoryRegion.sbuf,
    axes: tuple[int, ...] = (),
) -> Tile:
    """A fresh tile with the result of an instruction: of the shape and dtype of its first source, unless said."""
    source = next((given[key] for key in SOURCES if isinstance(given.get(key), Tile)), None)
    if shape is None:
        if source is None:
            raise Refusal(f"{name}: expected a tile among its arguments")
        shape = source.shape
    found = dtype_of(dtype, name) if dtype is not None else kind
    if found is None:
        found = _widest(given, source)
    dst = fresh(shape, found, region)
    record(name, given, dst, mask, axes)
    return dst


def _widest(given: Mapping[str, Any], source: Tile | None) -> DType:
    """The dtype of a result by those of its inputs: the higher precision of two tiles, else that of the one."""
    assert source is not None
    kinds = [
        given[key].kind for key in ("data1", "data2", "data0", "operand1") if isinstance(given.get(key), Tile)
    ]
    if len(kinds) < 2:
        return source.kind
    from nkireview.nki.lowering import result_dtype

    return result_dtype("dtype", None, *kinds)


Shaper = Callable[[Mapping[str, Any]], dict[str, Any]]


def _free(tile: Tile) -> int:
    return tile.size // tile.shape[0]


def _matmul(given: Mapping[str, Any]) -> dict[str, Any]:
    stationary, moving = given["stationary"], given["moving"]
    rows, rest = stationary.shape[-1], moving.shape[1:]
    if given.get("perf_mode") in (MatmulPerfMode.double_row, *PERF_MODES):
        rest = moving.shape[2:]
    elif stationary.ndim > 2:
        rows = _free(stationary)
    kind = stationary.kind if given.get("is_transpose") else FP32
    return {"shape": (rows, *rest), "kind": kind, "region": MemoryRegion.psum}


def _transpose(given: Mapping[str, Any]) -> dict[str, Any]:
    data = given["data"]
    engine = getattr(given.get("engine"), "name", "unknown")
    region = MemoryRegion.sbuf if engine == "vector" else MemoryRegion.psum
    return {"shape": (_free(data), data.shape[0]), "kind": data.kind, "region": region}


def axes_of(axis: Any, ndim: int, what: str) -> tuple[int, ...]:
    """The axes as positive numbers, ascending."""
    items = tuple(axis) if isinstance(axis, list | tuple) else (axis,)
    if not all(isinstance(item, int | np.integer) and not isinstance(item, bool) for item in items):
        raise Refusal(f"{what}: axis must be an integer or a list of integers, got {axis!r}")
    return tuple(sorted(int(item) + ndim if item < 0 else int(item) for item in items))


def _reduce(given: Mapping[str, Any]) -> dict[str, Any]:
    data = given["data"]
    axes = axes_of(given["axis"], data.ndim, "tensor_reduce")
    if given.get("keepdims"):
        shape = tuple(1 if dim in axes else size for dim, size in enumerate(data.shape))
    else:
        shape = tuple(size for dim, size in enumerate(data.shape) if dim not in axes)
    return {"shape": shape, "axes": axes}


def _like(operand: str, *free: int, kind: DType | None = None) -> Shaper:
    def shaper(given: Mapping[str, Any]) -> dict[str, Any]:
        data = given[operand]
        return {"shape": (data.shape[0], *free), "kind": kind or data.kind}

    return shaper


def _bounds(given: Mapping[str, Any]) -> dict[str, Any]:
    ids = given["segment_ids"]
    return {"shape": (ids.shape[0], 2, _free(ids)), "kind": ids.kind}


def _gathered(given: Mapping[str, Any]) -> dict[str, Any]:
    source, index = given["src_buffer"], given["index"]
    each = int(given.get("num_elem_per_idx") or 1)
    count = given.get("num_valid_indices")
    count = index.size // index.shape[0] * 16 if count is None else int(count)
    free = (count,) if each == 1 else (count, each)
    return {"shape": (source.shape[0], *free), "kind": source.kind}


def _swapped(given: Mapping[str, Any]) -> dict[str, Any]:
    src, axes = given["src"], given.get("axes")
    order = tuple(axes) if axes is not None else tuple(reversed(range(src.ndim)))
    return {"shape": tuple(src.shape[dim] for dim in order), "kind": src.kind}


SHAPES: Mapping[str, Shaper] = {
    "nc_matmul": _matmul,
    "nc_transpose": _transpose,
    "tensor_reduce": _reduce,
    "bn_stats": _like("data", 6),
    "bn_aggr": _like("data", 2),
    "max8": _like("src", 8),
    "nc_find_index8": _like("data", 8, kind=UINT32),
    "sequence_bounds": _bounds,
    "local_gather": _gathered,
    "dma_transpose": _swapped,
    "tensor_partition_reduce": lambda given: {"shape": (1, *given["data"].shape[1:])},
}
"""Results that have another shape, dtype or memory than the first source."""


def function(row: Row) -> Callable[..., Any]:
    """What a kernel calls for a row: it returns the tile that the instruction writes."""
    names = [param.name for param in row.parameters(LEGACY)]
    returns = row.legacy is not None and row.legacy.form == "returns"
    positions = [name for name in names if name != "dst"] if returns else names
    shaper = SHAPES.get(row.name)

    @functools.wraps(lambda *args, **kwargs: None)
    def call(*args: Any, mask: Any = None, dtype: Any = None, **kwargs: Any) -> Any:
        if len(args) > len(positions):
            raise Refusal(f"{row.name}: takes {len(positions)} arguments, got {len(args)}")
        given = dict(zip(positions, args, strict=False))
        for name, value in kwargs.items():
            if name in given:
                raise Refusal(f"{row.name}: argument {name!r} is given twice")
            if name not in names and not any(operand.name == name for operand in row.operands):
                current(row.name).event("note", f"{row.name}: {name} is no argument of it and ignored")
                continue
            given[name] = value
        given = {name: tiled(value) for name, value in given.items() if value is not None or name == "bias"}
        if "perf_mode" in given:
            given["perf_mode"] = PERF_MODES.get(given["perf_mode"], given["perf_mode"])
        if row.name in masks.MATMULS:
            given["accumulate"] = False
        if not returns or "dst" in given:
            dst = given.pop("dst", None)
            if not isinstance(dst, Tile):
                raise Refusal(f"{row.name}: dst must be a tensor, got {type(dst).__name__}")
            record(row.name, given, dst, mask)
            dst.result = None
            return dst
        more = shaper(given) if shaper else {}
        return computed(row.name, given, dtype, mask, **more)

    call.__name__ = call.__qualname__ = row.name
    call.__doc__ = f"{row.name}({', '.join(positions)}, mask=None, dtype=None)"
    return call


def tiled(value: Any) -> Any:
    """A NumPy number as Python's; everything else as it is."""
    if isinstance(value, np.generic) and is_number(value):
        return value.item()
    return value


def known_operator(name: str) -> bool:
    """True for operators of the ALU."""
    return name in OPS

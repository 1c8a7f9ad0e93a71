"""Calls of the legacy generation: value-returning instructions with ``mask=`` and ``dtype=``, by the same rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from typing import Any

import numpy as np

from nkireview.isa import dtypes as table
from nkireview.isa.enums import DgeMode
from nkireview.isa.release import LEGACY
from nkireview.isa.row import Role, Row
from nkireview.isa.table import ROWS
from nkireview.nki.dtypes import ALL, DType
from nkireview.nki.dtypes import of as dtype_of
from nkireview.nki.errors import Refusal
from nkireview.nki.legacy import masks
from nkireview.nki.legacy.operators import named, operator
from nkireview.nki.legacy.shapes import PERF_MODES, SHAPES, kind_by, source_of
from nkireview.nki.legacy.signatures import SIGNATURES
from nkireview.nki.legacy.state import MATMULS, note, settle
from nkireview.nki.legacy.symbols import Mask
from nkireview.nki.legacy.tile import Restriction, Result, Tile
from nkireview.nki.lowering import instruction, is_number
from nkireview.nki.tensor import MemoryRegion, NkiTensor
from nkireview.nki.trace import current

BOOL, UINT8 = ALL["bool_"], ALL["uint8"]
DGE_MODES = (DgeMode.none, DgeMode.swdge, DgeMode.hwdge, DgeMode.unknown)
"""What the integers of dge_mode stood for, which became others: nki/api/nki/isa/__init__.py:5-18."""
NONE_IS_GIVEN = frozenset({"bias"})
"""Arguments whose None says something other than their absence."""


# what PSUM holds


# operands


def tiled(value: Any) -> Any:
    """A NumPy number as Python's; everything else as it is."""
    if isinstance(value, np.generic) and is_number(value):
        return value.item()
    return value


def as_bytes(tile: Tile) -> Tile:
    """A tile of truth values as the bytes that it is stored in; any other tile as it is."""
    return tile.view(UINT8) if tile.kind == BOOL and tile.plain else tile


def filling(kind: DType, number: Any) -> Any:
    """A number as memset takes it for a dtype: whole ones for integers."""
    return float(number) if table.BY_NAME[kind.name].kind == "float" else int(number)


def part_of(tile: Tile, part: Restriction | None, oob: str = "error") -> NkiTensor:
    """A tile, or what a mask leaves of it, as an instruction takes it; oob: what an index out of bounds does."""
    return tile.operand(part, oob)


# instructions


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
    reading = _reading(name)
    views: dict[str, Any] = {}
    reads: dict[str, Tile] = {}
    writes: dict[str, Tile] = {}
    for key, value in given.items():
        if isinstance(value, Tile):
            (reads if key in reading else writes)[key] = value
        elif value is not None or key in NONE_IS_GIVEN:
            views[key] = operator(value)
    where = mask is None or masks.taken(mask, name)
    if where is False:
        dst.result = Result(-1, name)
        return
    left: Restriction | None = None
    operands: dict[str, Restriction | None] = {}
    if name in MATMULS and any(tile.mask is not None for tile in reads.values()):
        left, operands = masks.matmul_parts(reads, where if isinstance(where, Mask) else None)
    elif isinstance(where, Mask):
        left, operands = masks.parts(name, dst, reads, where, axes)
    if (left is not None and left.empty) or any(
        part is not None and part.empty for part in operands.values()
    ):
        dst.result = Result(-1, name)
        return
    oob = getattr(given.get("oob_mode"), "name", "error")
    for key, tile in reads.items():
        views[key] = view = tile.operand(operands.get(key), oob)
        settle(view)
    for key, tile in writes.items():
        other = masks.parts(name, tile, reads, where, axes)[0] if isinstance(where, Mask) else None
        views[key] = part_of(tile, other)
    if name in masks.REDUCTIONS and isinstance(views["data"], NkiTensor):
        views["data"], views["axis"] = _inner(views["data"], axes)
    target = part_of(dst, left, oob)
    if written in reading and name not in MATMULS:
        settle(target)
    views[written] = target
    instruction(name)(**views)
    note(target, name)
    if written == "dst" and dst.plain:
        dst.result = Result(len(trace.builder) - 1, name, left)


def _inner(data: NkiTensor, axes: tuple[int, ...]) -> tuple[NkiTensor, tuple[int, ...]]:
    """A tile seen with the dimensions that are reduced last, as the instruction takes it, and their new numbers."""
    dims = data.ndim
    order = [dim for dim in range(dims) if dim not in axes] + list(axes)
    if not axes or 0 in axes or order == list(range(dims)):
        return data, axes
    turned = data._view(
        tuple(data.shape[dim] for dim in order), tuple(data.strides[dim] for dim in order), data.offset
    )
    return turned, tuple(range(dims - len(axes), dims))


@cache
def _reading(name: str) -> frozenset[str]:
    """The operands that an instruction reads."""
    return frozenset(operand.name for operand in ROWS[name].operands if operand.role.reads)


def fresh(shape: tuple[int, ...], kind: DType, region: MemoryRegion = MemoryRegion.sbuf) -> Tile:
    """A new tile for a result; one of a single dimension has it along the partitions."""
    sizes = shape if len(shape) > 1 else (*shape, 1)
    if min(sizes) < 1:
        raise Refusal(f"a result: shape {sizes} has a dimension below 1")
    trace = current("a result")
    buffer = trace.buffer(region.memory, sizes, kind.name)
    trace.results.add(buffer.id)
    return Tile(NkiTensor.whole(trace, buffer))


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
    source = source_of(given)
    if source is None and (shape is None or (kind is None and dtype is None)):
        raise Refusal(f"{name}: expected a tile among its arguments")
    found = dtype_of(dtype, name) if dtype is not None else kind
    if found is None:
        assert source is not None
        found = kind_by(given, source)
    if shape is None:
        assert source is not None
        shape = source.shape
    dst = fresh(shape, found, region)
    record(name, given, dst, mask, axes)
    return dst


def result_of(view: NkiTensor) -> Tile:
    """A view that functions of the current generation gave; the instruction that wrote it last can still be moved."""
    found = Tile(view)
    trace = view._trace
    last = len(trace.builder) - 1
    row = ROWS[trace.builder.opcode(last)] if last >= 0 else None
    writes = row is not None and any(
        operand.name == "dst" and operand.role is Role.write for operand in row.operands
    )
    if row is not None and writes and trace.builder.operand(last, "dst") == view.access():
        found.result = Result(last, row.name)
    return found


Work = Callable[[dict[str, Any], Any, Any], Any]
"""What a call does with its arguments, ``dtype=`` and ``mask=``."""


def signed(name: str, work: Work, row: Row | None = None) -> Callable[..., Any]:
    """What a kernel calls as ``nisa.name``, by the signature of the stubs; row: the one whose arguments it has.

    Arguments come as the instruction takes them; keywords that the stubs leave open are passed on where the row
    knows them, else noted.
    """
    stub = SIGNATURES[name]
    operands = () if row is None else row.operands
    known = stub.names | {operand.name for operand in operands}
    if row is not None:
        known |= {param.name for param in row.parameters(LEGACY)}
    tiles = frozenset(operand.name for operand in operands if not operand.number)

    def call(*args: Any, **kwargs: Any) -> Any:
        bound = stub.bind(args, kwargs)
        mask, dtype = bound.pop("mask", None), bound.pop("dtype", None)
        given: dict[str, Any] = {}
        for key, value in bound.items():
            if key not in known:
                current(name).event("note", f"{name}: {key} is no argument of it and ignored")
            elif key in tiles and not isinstance(value, Tile) and (value is not None or key in stub.needed):
                raise Refusal(f"{name}: {key} must be a tile, got {type(value).__name__}")
            elif value is not None or key in NONE_IS_GIVEN:
                given[key] = tiled(value)
        mode = given.get("dge_mode")
        if isinstance(mode, int) and not isinstance(mode, Enum) and 0 <= mode < len(DGE_MODES):
            given["dge_mode"] = DGE_MODES[mode]
        if isinstance(given.get("predicate"), Tile):
            given["predicate"] = as_bytes(given["predicate"])
        return work(given, dtype, mask)

    call.__signature__ = stub.signature  # type: ignore[attr-defined]
    return named(call, name, stub.shown)


def function(row: Row) -> Callable[..., Any]:
    """What a kernel calls for a row: it returns the tile that the instruction writes."""
    returns = row.legacy is not None and row.legacy.form == "returns"
    shaper = SHAPES.get(row.name)

    def work(given: dict[str, Any], dtype: Any, mask: Any) -> Any:
        if "perf_mode" in given:
            given["perf_mode"] = PERF_MODES.get(given["perf_mode"], given["perf_mode"])
        if row.name in MATMULS:
            given["accumulate"] = False
        if returns and "dst" not in given:
            return computed(row.name, given, dtype, mask, **(shaper(given) if shaper else {}))
        dst = given.pop("dst")
        record(row.name, given, dst, mask)
        dst.result = None
        return dst

    return signed(row.name, work, row)

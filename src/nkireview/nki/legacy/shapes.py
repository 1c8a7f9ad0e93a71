"""Results of value-returning instructions: their shape, dtype and memory, where they are not those of the first source.

Source: nki/api/nki/isa/__init__.py at tag v2.26.1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from nkireview.isa.enums import MatmulPerfMode
from nkireview.nki.dtypes import ALL, DType
from nkireview.nki.errors import Refusal
from nkireview.nki.legacy.promotion import promoted
from nkireview.nki.legacy.tile import Tile
from nkireview.nki.tensor import MemoryRegion

FP32, UINT32 = ALL["float32"], ALL["uint32"]
SOURCES = ("data", "data1", "data0", "src", "on_true_tile", "on_true", "segment_ids", "src_buffer")
"""The operand whose shape and dtype a result has, unless `SHAPES` says otherwise, in this order."""
PAIRS = (("data1", "data2"), ("data0", "data1"))
"""Operands whose promoted dtype the result has."""
PERF_MODES = {"double_row_gen3": MatmulPerfMode.double_row}
"""Modes of the Tensor engine by the names they had."""
VECTOR_TRANSPOSE = (
    32  # rows and columns that the Vector engine transposes: nki/api/nki/isa/__init__.py:1029-1033
)
TRANSPOSED = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}
"""The order of dma_transpose for each number of dimensions: nki/api/nki/isa/__init__.py:472-476."""
GATHERERS = 16  # partitions of a GpSimd core

Shape = tuple[int, ...]
Given = Mapping[str, Any]
Shaper = Callable[[Given], dict[str, Any]]


def source_of(given: Given) -> Tile | None:
    """The first source among the arguments."""
    return next((given[key] for key in SOURCES if isinstance(given.get(key), Tile)), None)


def kind_by(given: Given, source: Tile) -> DType:
    """The dtype of a result: the promoted one of two tiles, else that of the source."""
    for pair in PAIRS:
        sides = [given[key].kind for key in pair if isinstance(given.get(key), Tile)]
        if len(sides) == len(pair):
            return promoted(*sides)
    return source.kind


def axes_of(axis: Any, ndim: int, what: str) -> tuple[int, ...]:
    """The axes as positive numbers, ascending; Refusal where they are not free axes of the tile."""
    items = tuple(axis) if isinstance(axis, list | tuple) else (axis,)
    if not items or not all(
        isinstance(item, int | np.integer) and not isinstance(item, bool) for item in items
    ):
        raise Refusal(f"{what}: axis must be an integer or a list of integers, got {axis!r}")
    axes = tuple(sorted(int(item) + ndim if item < 0 else int(item) for item in items))
    if axes[0] < 0 or axes[-1] >= ndim or len(set(axes)) != len(axes):
        raise Refusal(f"{what}: axis {axis} does not fit a {ndim}-D tile")
    return axes


def reduced(shape: Shape, axes: tuple[int, ...], keepdims: bool = False) -> Shape:
    """The shape of a reduction; the partitions of a tile always have a free dimension beside them."""
    if keepdims:
        return tuple(1 if dim in axes else size for dim, size in enumerate(shape))
    kept = tuple(size for dim, size in enumerate(shape) if dim not in axes)
    return kept if len(kept) > 1 else (*kept, 1)


def free(tile: Tile) -> int:
    """Elements a partition."""
    return tile.size // tile.shape[0]


def _matmul(given: Given) -> dict[str, Any]:
    stationary, moving = given["stationary"], given["moving"]
    rows, rest = stationary.shape[-1], moving.shape[1:]
    if given.get("perf_mode") in (MatmulPerfMode.double_row, *PERF_MODES):
        rest = moving.shape[2:]
    elif stationary.ndim > 2:
        rows = free(stationary)
    kind = stationary.kind if given.get("is_transpose") else FP32
    return {"shape": (rows, *rest), "kind": kind, "region": MemoryRegion.psum}


def _transpose(given: Given) -> dict[str, Any]:
    data = given["data"]
    engine = getattr(given.get("engine"), "name", "unknown")
    small = max(data.shape[0], free(data)) <= VECTOR_TRANSPOSE
    vector = engine == "vector" or (engine == "unknown" and small and data.region is MemoryRegion.psum)
    region = MemoryRegion.sbuf if vector else MemoryRegion.psum
    return {"shape": (free(data), data.shape[0]), "kind": data.kind, "region": region}


def _reduce(given: Given) -> dict[str, Any]:
    data = given["data"]
    axes = axes_of(given["axis"], data.ndim, "tensor_reduce")
    return {"shape": reduced(data.shape, axes, bool(given.get("keepdims"))), "axes": axes}


def _like(operand: str, *rest: int, kind: DType | None = None) -> Shaper:
    def shaper(given: Given) -> dict[str, Any]:
        data = given[operand]
        return {"shape": (data.shape[0], *rest), "kind": kind or data.kind}

    return shaper


def _bounds(given: Given) -> dict[str, Any]:
    ids = given["segment_ids"]
    return {"shape": (ids.shape[0], 2, free(ids)), "kind": ids.kind}


def _gathered(given: Given) -> dict[str, Any]:
    source, index = given["src_buffer"], given["index"]
    each = int(given.get("num_elem_per_idx") or 1)
    count = given.get("num_valid_indices")
    count = free(index) * GATHERERS if count is None else int(count)
    rest = (count,) if each == 1 else (count, each)
    return {"shape": (source.shape[0], *rest), "kind": source.kind}


def order_of(given: Given) -> Shape:
    """The dimensions of the source of a dma_transpose in the order of its result."""
    src, axes = given["src"], given.get("axes")
    order = tuple(axes) if axes is not None else TRANSPOSED.get(src.ndim)
    if order is None or sorted(order) != list(range(src.ndim)):
        choices = ", ".join(map(str, TRANSPOSED.values()))
        raise Refusal(
            f"dma_transpose: axes {axes} do not fit a {src.ndim}-D tensor, expected one of {choices}"
        )
    return order


def _swapped(given: Given) -> dict[str, Any]:
    src = given["src"]
    return {"shape": tuple(src.shape[dim] for dim in order_of(given)), "kind": src.kind}


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

"""Functions of the legacy generation that move data or change how it is seen."""

from __future__ import annotations

from typing import Any

from nkireview.isa.table import ROWS
from nkireview.nki import movement
from nkireview.nki.dtypes import ALL
from nkireview.nki.dtypes import of as dtype_of
from nkireview.nki.errors import Refusal
from nkireview.nki.legacy import calls, shapes
from nkireview.nki.legacy.broadcast import spread
from nkireview.nki.legacy.calls import computed, fresh, function, record, tiled
from nkireview.nki.legacy.narrowing import Part, narrowed
from nkireview.nki.legacy.operators import operator
from nkireview.nki.legacy.tile import Tile
from nkireview.nki.lowering import is_number, token
from nkireview.nki.tensor import MemoryRegion

PSUM = MemoryRegion.psum


def need(what: str, value: Any, name: str = "") -> None:
    """Refuse anything else than a tile."""
    if not isinstance(value, Tile):
        subject = f"{name} must be" if name else "expected"
        raise Refusal(f"{what}: {subject} a tile, got {type(value).__name__}")


def copy(src: Any, *, mask: Any = None, dtype: Any = None, **kwargs: Any) -> Tile:
    """A copy in SBUF."""
    need("nl.copy", src, "src")
    return computed("tensor_copy", {"src": src}, dtype, mask)


def load(src: Any, *, mask: Any = None, dtype: Any = None, **kwargs: Any) -> Tile:
    """A fresh SBUF tile with the content of an HBM tensor; the DMA casts."""
    need("nl.load", src, "src")
    if src.on_chip:
        raise Refusal(f"nl.load: src must be in HBM, it is in {src.region.value}")
    return computed("dma_copy", {"src": src}, dtype, mask)


def store(dst: Any, value: Any, *, mask: Any = None, **kwargs: Any) -> None:
    """Write a tile, or a number, to HBM."""
    what = "nl.store"
    _in_hbm(what, dst)
    value = _of_number(tiled(value), dst)
    need(what, value, "value")
    if value.region is PSUM:
        value = computed("tensor_copy", {"src": value}, None, mask)
    record("dma_copy", {"src": spread(value, dst.shape)}, dst, mask)
    dst.result = None


def atomic_rmw(dst: Any, value: Any, op: Any, *, mask: Any = None, **kwargs: Any) -> None:
    """Add a tile, or a number, to HBM element by element."""
    what = "nl.atomic_rmw"
    _in_hbm(what, dst)
    if getattr(operator(op), "name", None) != "add":
        raise Refusal(f"{what}: op must be np.add, got {op!r}")
    value = _of_number(tiled(value), dst)
    need(what, value, "value")
    record("dma_copy", {"src": spread(value, dst.shape), "dst_rmw_op": token("add")}, dst, mask)
    dst.result = None


def _in_hbm(what: str, dst: Any) -> None:
    need(what, dst, "dst")
    if dst.on_chip:
        raise Refusal(f"{what}: dst must be in HBM, it is in {dst.region.value}")


def _of_number(value: Any, dst: Tile) -> Any:
    """A number as a tile of the shape of what it is stored to; anything else as it is."""
    if not is_number(value):
        return value
    tile = fresh(dst.shape if dst.ndim > 1 else (1, *dst.shape), dst.kind)
    record("memset", {"value": calls.filling(tile.kind, value)}, tile)
    return tile


def matmul(x: Any, y: Any, *, transpose_x: bool = False, mask: Any = None, **kwargs: Any) -> Tile:
    """x @ y, or x.T @ y with transpose_x; x is transposed first where it is not."""
    need("nl.matmul", x, "x")
    need("nl.matmul", y, "y")
    # results of nl.transpose are handed over as they come, in PSUM
    x, y = (copy(item) if item.region is MemoryRegion.psum and item.mask is None else item for item in (x, y))
    if not transpose_x:
        if x.mask is not None or y.mask is not None or mask is not None:
            raise Refusal(
                "nl.matmul: a mask needs transpose_x=True, it names the dimensions of the transposed x"
            )
        x = copy(function(ROWS["nc_transpose"])(x))
    return function(ROWS["nc_matmul"])(x, y, mask=mask)  # type: ignore[no-any-return]


def transposed(data: Tile, dtype: Any, mask: Any, **more: Any) -> Tile:
    """A transpose and, into another dtype, a copy in the same memory."""
    given = {"data": data, **more}
    shaped = shapes.SHAPES["nc_transpose"](given)
    found = computed("nc_transpose", given, None, mask, **shaped)
    if dtype is None or dtype_of(dtype, "nc_transpose") == data.kind:
        return found
    cast = fresh(found.shape, dtype_of(dtype, "nc_transpose"), found.region)
    made = found.result
    assert made is not None
    if not made.nothing:
        record("tensor_copy", {"src": found.part(made.part)}, cast.part(made.part))
    return cast


def transpose(x: Any, *, dtype: Any = None, mask: Any = None, **kwargs: Any) -> Tile:
    """The transposed tile."""
    need("nl.transpose", x)
    if x.ndim != 2:
        raise Refusal(f"nl.transpose: x has {x.ndim} dimensions, expected 2")
    return transposed(x, dtype, mask)


def load_transpose2d(src: Any, *, mask: Any = None, dtype: Any = None, **kwargs: Any) -> Tile:
    """A fresh SBUF tile with the transposed content of a 2-D HBM tensor."""
    what = "nl.load_transpose2d"
    need(what, src, "src")
    if src.on_chip:
        raise Refusal(f"{what}: src must be in HBM, it is in {src.region.value}")
    if src.ndim != 2:
        raise Refusal(f"{what}: src has {src.ndim} dimensions, expected 2")
    return swapped(src, dtype, mask)


def swapped(src: Tile, dtype: Any, mask: Any, **more: Any) -> Tile:
    """A transpose by a DMA, which casts; a mask restricts the dimensions of src."""
    given = {"src": src, **more}
    shape = shapes.SHAPES["dma_transpose"](given)["shape"]
    order = shapes.order_of(given)
    kind = src.kind if dtype is None else dtype_of(dtype, "dma_transpose")

    def work(part: Part) -> Tile:
        left = part(src)
        turned = tuple(left.shape[dim] for dim in order)
        return computed("dma_transpose", {**given, "src": left}, kind, shape=turned)

    return narrowed(
        "dma_transpose", mask, src, shape, kind, work, lambda ranges: tuple(ranges[dim] for dim in order)
    )


def broadcast_to(src: Any, *, shape: Any, **kwargs: Any) -> Tile:
    """The tile with its dimensions of size 1 repeated."""
    need("nl.broadcast_to", src, "src")
    sizes = tuple(int(size) for size in shape)
    if len(sizes) < src.ndim or any(
        old not in (1, new) for old, new in zip(src.shape[::-1], sizes[::-1], strict=False)
    ):
        raise Refusal(f"nl.broadcast_to: {src.shape} does not broadcast to {sizes}")
    return spread(src, sizes)


def expand_dims(data: Any, axis: Any) -> Tile:
    """A view with new dimensions of size 1."""
    what = "nl.expand_dims"
    need(what, data, "data")
    items = tuple(axis) if isinstance(axis, list | tuple) else (axis,)
    rank = data.ndim + len(items)
    if not items or not all(isinstance(item, int) and -rank <= item < rank for item in items):
        raise Refusal(f"{what}: axis {axis} does not fit a {data.ndim}-D tile")
    places = {item + rank if item < 0 else item for item in items}
    view = calls.part_of(data, None)
    if 0 in places and view.on_chip:
        raise Refusal(
            f"{what}: axis {axis} comes before the partitions, the new dimension must be a free one"
        )
    for at in sorted(places):
        view = movement.expand_dims(view, at)
    return Tile(view)


def gather_flattened(data: Any, indices: Any, *, mask: Any = None, dtype: Any = None, **kwargs: Any) -> Tile:
    """For each partition, the elements of its flattened free dimensions that the indices (uint32) name."""
    what = "nl.gather_flattened"
    need(what, data, "data")
    need(what, indices, "indices")
    if indices.kind != ALL["uint32"]:
        raise Refusal(f"{what}: indices must be uint32, they are {indices.kind}")
    kind = data.kind if dtype is None else dtype_of(dtype, what)

    def work(part: Part) -> Tile:
        left = part(indices)
        found = fresh(left.shape, data.kind)
        record("nc_n_gather", {"data": part(data), "indices": left}, found)
        return found if kind == data.kind else copy(found, dtype=kind)

    return narrowed(what, mask, indices, indices.shape, kind, work)

"""Broadcasting of the legacy generation: NumPy's rule for tiles, over partitions too."""

from __future__ import annotations

import math

import numpy as np

from nkireview.nki import movement
from nkireview.nki.errors import Refusal
from nkireview.nki.legacy import calls, state
from nkireview.nki.legacy.tile import Tile
from nkireview.nki.tensor import NkiTensor

Shape = tuple[int, ...]


def spread(x: Tile, shape: Shape) -> Tile:
    """A tile seen in another shape: its dimensions of size 1 repeated, those of both left out.

    One partition is moved to all others. The partitions stay the first dimension, so dimensions that x lacks are
    its first free ones.
    """
    if x.shape == shape:
        return x
    view = calls.part_of(x, None)
    sizes, strides = list(view.shape), list(view.strides)
    first = 1 if view.on_chip else 0
    while len(sizes) < len(shape):
        sizes.insert(first, 1)
        strides.insert(first, 0)
    while len(sizes) > len(shape) and 1 in sizes[first:]:
        at = sizes.index(1, first)
        del sizes[at], strides[at]
    if len(sizes) == len(shape) and all(old in (1, new) for old, new in zip(sizes, shape, strict=True)):
        steps = tuple(0 if old != new else step for old, new, step in zip(sizes, shape, strides, strict=True))
        if sizes[0] == shape[0] or not view.on_chip:
            return Tile(view._view(tuple(shape), steps, view.offset))
        state.settle(view)
        row = _row(view)
        moved = movement.broadcast_to(row, (shape[0], row.size))
        return spread(Tile(moved.reshape((shape[0], *sizes[1:]))), shape)
    if math.prod(shape) == x.size:
        return x
    raise Refusal(f"a tile of shape {x.shape} does not broadcast to {shape}")


def _row(view: NkiTensor) -> NkiTensor:
    return view.reshape((1, view.size)) if view.ndim != 2 else view


def common(what: str, *shapes: Shape) -> Shape:
    """The shape that all broadcast to by NumPy's rule; Refusal where partitions would become a free dimension."""
    if shapes.count(shapes[0]) == len(shapes):
        return shapes[0]
    try:
        shape = tuple(int(size) for size in np.broadcast_shapes(*shapes))
    except ValueError:
        raise Refusal(f"{what}: shapes {' and '.join(map(str, shapes))} do not broadcast") from None
    for each in shapes:
        if len(each) < len(shape) and each[0] != 1:
            raise Refusal(
                f"{what}: shapes {' and '.join(map(str, shapes))} are of different ranks, which NumPy aligns at their "
                "last dimensions, so that partitions would meet a free dimension; give all tiles the same rank"
            )
    return shape


def together(what: str, *tiles: Tile) -> tuple[list[Tile], Shape]:
    """Tiles seen in the shape that all broadcast to, and that shape."""
    shape = common(what, *(tile.shape for tile in tiles))
    return [spread(tile, shape) for tile in tiles], shape

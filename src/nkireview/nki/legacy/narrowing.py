"""Masks of functions that are more than one instruction: they work on the box that a mask leaves of a tile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nkireview.nki.dtypes import DType
from nkireview.nki.errors import NotYetSupported
from nkireview.nki.legacy import masks
from nkireview.nki.legacy.calls import fresh, record
from nkireview.nki.legacy.tile import Restriction, Result, Tile

Ranges = tuple[tuple[int, int], ...]
Part = Callable[[Tile], Tile]
"""From a tile to the part of it that a mask leaves."""


def narrowed(
    what: str,
    mask: Any,
    domain: Tile,
    shape: tuple[int, ...],
    kind: DType,
    work: Callable[[Part], Tile],
    place: Callable[[Ranges], Ranges] = lambda ranges: ranges,
) -> Tile:
    """What `work` gives for a tile, or for the part of it that a mask leaves, in a tile of the whole `shape`.

    place: from the ranges of the domain's dimensions to those of the result.
    """
    where = masks.taken(mask, what)
    if where is True:
        return work(lambda tile: tile)
    dst = fresh(shape, kind)
    left = None if where is False else masks.restriction(where, domain.shape)
    if left is None or left.empty:
        dst.result = Result(-1, what)
        return dst
    if left.bounds:
        raise NotYetSupported(f"{what} with a mask that leaves no box")
    found = work(lambda tile: _part(tile, left, domain))
    target = dst.part(Restriction(place(left.ranges)))
    made = found.result
    if made is None or not target.take(found):
        record("tensor_copy", {"src": found}, target)
        made = target.result
        assert made is not None
    dst.result = Result(made.index, made.row, Restriction(place(left.ranges)))
    return dst


def _part(tile: Tile, left: Restriction, domain: Tile) -> Tile:
    """The part of a tile along the dimensions that it shares with the domain, all of it along others."""
    ranges = list(left.ranges[: tile.ndim])
    for dim, size in enumerate(tile.shape):
        if dim >= len(ranges):
            ranges.append((0, size))
        elif size != domain.shape[dim]:
            ranges[dim] = 0, size
    return tile.part(Restriction(tuple(ranges)))

"""Boxes: the partitions and bits within one that a view on chip may touch."""

from __future__ import annotations

from nkireview.program.call import Tile

Box = tuple[int, int, int, int]
"""First and last partition, first and last bit within one; half open."""


def box_of(tile: Tile) -> Box | None:
    """The box of a view; None in HBM and where it is not known."""
    access = tile.access
    steps = access.partition is not None and access.pattern[access.partition][0] == tile.row
    plain = access.table is None and access.index is None and not access.bounds
    if not (tile.on_chip and tile.row and plain and (steps or access.partitions == 1)):
        return None
    first, (low, high) = tile.first_partition, tile.free_range
    return first, first + access.partitions, low * tile.bits, (high + 1) * tile.bits


def overlap(box: Box, other: Box) -> bool:
    """True where two boxes of one buffer share a bit."""
    return box[0] < other[1] and other[0] < box[1] and box[2] < other[3] and other[2] < box[3]


def holds(box: Box, other: Box) -> bool:
    """True where the other box lies within this one."""
    return box[0] <= other[0] and other[1] <= box[1] and box[2] <= other[2] and other[3] <= box[3]


def bits(box: Box) -> int:
    """Bits in a box."""
    return (box[1] - box[0]) * (box[3] - box[2])

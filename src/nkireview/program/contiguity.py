"""How much of a tile lies in one piece of memory."""

from __future__ import annotations

import math

from nkireview.program.call import Tile
from nkireview.program.placement import REPLACING, merge


def contiguous_run(tile: Tile) -> int:
    """Bytes of a tile that follow each other in memory, within one partition on chip; 0 for an empty tile.

    What an index tile names lies anywhere: pieces are those of one index.
    """
    if tile.access.size == 0:
        return 0
    count, element = 1, tile.bits / 8
    index = tile.access.index
    apart = index.axis if index is not None and index.kind in REPLACING else None
    if tile.access.table is None:
        axes = enumerate(tile.access.pattern)
        merged = merge(tuple(pair for axis, pair in axes if axis not in (tile.access.partition, apart)))
        if merged and merged[-1][0] == 1:
            count = merged[-1][1]
    return max(math.ceil(count * element), 1)

"""How much of a tile lies in one piece of memory."""

from __future__ import annotations

import math

from nkireview.program.call import Tile
from nkireview.program.placement import merge


def contiguous_run(tile: Tile) -> int:
    """Bytes of a tile that follow each other in memory, within one partition on chip; 0 for an empty tile."""
    if tile.access.size == 0:
        return 0
    count, element = 1, tile.bits / 8
    if tile.access.table is None and tile.access.index is None:
        merged = merge(tile.free_axes)
        if merged and merged[-1][0] == 1:
            count = merged[-1][1]
    return max(math.ceil(count * element), 1)

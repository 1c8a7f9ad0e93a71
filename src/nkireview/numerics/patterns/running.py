"""Blocks that add up along an axis because an accumulator was not reset."""

from __future__ import annotations

import numpy as np

from nkireview.numerics.arrays import Float64
from nkireview.numerics.patterns.mismatch import Mismatch
from nkireview.numerics.patterns.names import Name, Pattern
from nkireview.numerics.patterns.trial import EXPLAINED, agreement, explained, slack
from nkireview.numerics.patterns.words import lines_along, of_wrong

LINES = 16
LINE_ELEMENTS = 1 << 15
# Axes longer than this are not searched: blocks would be longer than any tile.
LONGEST = 1 << 17
# Tile sizes of kernels, and into how many equal blocks an axis is cut besides.
TILES = (128, 512)
CUTS = range(2, 17)


def stale(found: Mismatch) -> Pattern | None:
    """The running sum of the reference over blocks along an axis, or each block plus the one before."""
    for axis in found.axes:
        if found.shape[axis] <= LONGEST:
            pattern = _along(found, axis)
            if pattern:
                return pattern
    return None


def tiles(size: int) -> list[int]:
    """Block lengths that an axis of ``size`` may be worked on in, those of kernels first."""
    cuts = [size // parts for parts in CUTS if size % parts == 0]
    powers = [2**power for power in range(size.bit_length()) if 2**power < size]
    return [tile for tile in dict.fromkeys([*TILES, *cuts, *reversed(powers)]) if tile < size]


def _along(found: Mismatch, axis: int) -> Pattern | None:
    size = found.shape[axis]
    at = found.lines(axis, max(1, min(LINES, LINE_ELEMENTS // size)))
    part, wrong = found.elements(at), found.wrong[at]
    lengths = tiles(size)
    for how, summed in (("running", _running), ("previous", _with_previous)):
        for tile in lengths:
            predicted = summed(part.ref, tile)
            room = np.maximum(summed(part.allowed, tile), slack(found, part, predicted))
            if agreement(part.got, predicted, room) < EXPLAINED:
                continue
            tried = 2 * len(lengths)
            share = explained(part.where(wrong), predicted[wrong], room[wrong], tried=tried)
            if share is not None:
                return _written(found, axis, tile, how, share)
    return None


def _blocks(values: Float64, tile: int) -> Float64:
    """Lines as (lines, blocks, tile), the last block filled up with zeros."""
    short = -values.shape[1] % tile
    return np.pad(values, ((0, 0), (0, short))).reshape(values.shape[0], -1, tile)


def _running(values: Float64, tile: int) -> Float64:
    summed = np.cumsum(_blocks(values, tile), axis=1)
    return summed.reshape(values.shape[0], -1)[:, : values.shape[1]]


def _with_previous(values: Float64, tile: int) -> Float64:
    blocks = _blocks(values, tile)
    blocks[:, 1:] += blocks[:, :-1].copy()
    return blocks.reshape(values.shape[0], -1)[:, : values.shape[1]]


def _written(found: Mismatch, axis: int, tile: int, how: str, share: float) -> Pattern:
    along = lines_along(found, axis)
    block = f"block of {tile} {along}" if tile > 1 else "index"
    earlier = f"all earlier {'blocks' if tile > 1 else 'ones'}" if how == "running" else "the one before it"
    where = f"along axis {axis}"
    return Pattern(
        Name.STALE,
        f"{of_wrong(found, share)} {'is' if found.count == 1 else 'are'} explained by sums: each {block} "
        f"{where} holds its own reference plus that of {earlier}",
        share,
        {"axis": axis, "tile": tile, "how": how},
    )

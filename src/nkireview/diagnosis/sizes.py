"""Sizes of large arrays, taken piece by piece: a piece stays in a cache, and no second large array is made."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]

PIECE = 1 << 15
"""Elements of a piece at most."""


def pieces(size: int) -> Iterator[slice]:
    """An array of so many elements, flat, piece by piece."""
    for start in range(0, size, PIECE):
        yield slice(start, min(start + PIECE, size))


def parts(shape: tuple[int, ...]) -> Iterator[tuple[slice, slice]]:
    """Rows and columns of a matrix, piece by piece."""
    width = min(shape[1], PIECE)
    height = max(1, PIECE // width)
    for top in range(0, shape[0], height):
        for left in range(0, shape[1], width):
            yield slice(top, min(top + height, shape[0])), slice(left, min(left + width, shape[1]))


def typical(values: Float64, less: Float64 | None = None) -> float:
    """The root mean square of the finite elements of an array, or of what it differs by from `less`; 0 for none."""
    flat, other = values.reshape(-1), None if less is None else less.reshape(-1)
    total, count = 0.0, 0
    with np.errstate(invalid="ignore", over="ignore"):
        for piece in pieces(flat.size):
            some = flat[piece] if other is None else flat[piece] - other[piece]
            squares = float(np.dot(some, some))
            if not math.isfinite(squares):
                some = some[np.isfinite(some)]
                squares = float(np.dot(some, some))
            total += squares
            count += some.size
    return math.sqrt(total / count) if count else 0.0

"""Walking large arrays in blocks, so that no float64 copy of a whole array is made."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from nkireview.isa import dtypes

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
Window = tuple[slice, slice]

BLOCK_ELEMENTS = 1 << 20
PIECE = 1 << 15
"""Elements that stay in a cache with what is made of them."""


def as_rows(array: Array) -> Array:
    """``array`` as a matrix whose rows run along its last axis longer than one; a view where possible."""
    shape = list(array.shape)
    while len(shape) > 1 and shape[-1] == 1:
        shape.pop()
    columns = max(1, shape[-1]) if shape else 1
    return array.reshape(array.size // columns, columns)


def pieces(size: int) -> Iterator[slice]:
    """Slices that cover a flat array of so many elements, each at most `PIECE` of them."""
    for start in range(0, size, PIECE):
        yield slice(start, min(start + PIECE, size))


def windows(rows: int, columns: int, *, most: int = BLOCK_ELEMENTS) -> Iterator[Window]:
    """Row and column slices that cover a matrix in C order, each at most `most` elements."""
    width = min(columns, most)
    height = max(1, most // width)
    for top in range(0, rows, height):
        for left in range(0, columns, width):
            yield slice(top, min(top + height, rows)), slice(left, min(left + width, columns))


def float64(block: Array) -> Float64:
    """A block of any real dtype as float64."""
    return block.astype(np.float64, copy=False)


def is_floating(array: Array) -> bool:
    """True for float arrays, the NKI formats and float64 included."""
    if array.dtype.kind in "biu":
        return False
    return array.dtype == np.float64 or dtypes.of(array.dtype).kind == "float"


def map_windows(array: Array, function: Callable[[Float64, Window], Float64]) -> Array:
    """A copy of a float ``array`` with ``function(block in float64, its window)`` applied block by block.

    Windows are those of ``as_rows(array)``. The result has the shape and dtype of ``array``, as ``stored``.
    """
    matrix = as_rows(array)
    changed = np.empty(matrix.shape, dtype=matrix.dtype)
    for window in windows(*matrix.shape):
        changed[window] = stored(function(float64(matrix[window]), window), array.dtype)
    return changed.reshape(array.shape)


def stored(values: Float64, dtype: np.dtype[Any]) -> Array:
    """``values`` rounded to a float NumPy dtype; finite values beyond its range are clipped to the range."""
    if dtype == np.float64:
        return values
    row = dtypes.of(dtype)
    inside = np.where(np.isfinite(values), np.clip(values, -row.max_finite, row.max_finite), values)
    return dtypes.cast(inside, row)


def row_rms(matrix: Array) -> Float64:
    """Root mean square of the finite elements of each row, as a column; 0 where a row has none."""
    squares, counts = np.zeros((matrix.shape[0], 1)), np.zeros((matrix.shape[0], 1))
    for window in windows(*matrix.shape):
        block = float64(matrix[window])
        finite = np.isfinite(block)
        squares[window[0]] += np.square(np.where(finite, block, 0)).sum(axis=1, keepdims=True)
        counts[window[0]] += np.count_nonzero(finite, axis=1, keepdims=True)
    return np.sqrt(squares / np.maximum(counts, 1))


def root_mean_square(array: Array, less: Array | None = None) -> float:
    """Root mean square over the finite elements of an array, or of what it differs by from `less`; 0 for none."""
    flat, other = array.reshape(-1), None if less is None else less.reshape(-1)
    total, count = 0.0, 0
    with np.errstate(invalid="ignore", over="ignore"):
        for piece in pieces(flat.size):
            block = float64(flat[piece])
            if other is not None:
                block = block - float64(other[piece])
            squares = float(np.dot(block, block))
            if not math.isfinite(squares):
                block = block[np.isfinite(block)]
                squares = float(np.dot(block, block))
            total += squares
            count += block.size
    return math.sqrt(total / count) if count else 0.0

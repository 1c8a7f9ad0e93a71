"""Sums in float32 as platforms take them; arrays hold float32 numbers, whatever their dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.diagnosis.platforms.table import Unit

Array = NDArray[Any]
Float64 = NDArray[np.float64]

SIGNIFICAND = 23
"""Bits of a float32 significand below the leading one."""
THREADS = 256
"""Threads of a block that sum a row."""
NOTHING = -4096
"""An exponent below all others, that of zero."""
LEAST = -900
"""The least exponent that is aligned to: below, everything is zero in float32."""
COLUMNS = 64
"""Columns that are added up together, so that a block stays in the cache."""
_DROPPED = np.uint64((1 << (52 - SIGNIFICAND)) - 1)


def fma_chain(start: Array | None, left: Array, right: Array) -> Float64:
    """``start + left.T @ right`` by one fused multiply-add after the other. left: (K, M), right: (K, N)."""
    total = _begun(start, left, right).astype(np.float32)
    exact = np.empty(total.shape)
    for one, other in zip(_wide(left), _wide(right), strict=True):
        np.multiply(one[:, None], other, out=exact)
        exact += total
        total[...] = exact
    return total.astype(np.float64)


def columns(start: Array | None, left: Array, right: Array) -> Float64:
    """``start`` plus a sum of float32 products, from the first to the last, in float32. left: (K, M), right: (K, N)."""
    total = np.zeros((left.shape[1], right.shape[1]), np.float32)
    for one, other in zip(left.astype(np.float32), right.astype(np.float32), strict=True):
        total += np.multiply.outer(one, other)
    if start is not None:
        total = start.astype(np.float32) + total
    return total.astype(np.float64)


def blocks(start: Array | None, left: Array, right: Array, products: int, unit: Unit) -> Float64:
    """``start + left.T @ right`` on a tensor core, `products` products at a time. left: (K, M), right: (K, N).

    The products of a block are exact. They and the sum so far are aligned to the largest exponent among them, cut off
    `unit.extra_bits` bits below the significand of that, added, and cut off to float32.
    """
    left, right = _wide(left), _wide(right)
    total: Float64 = _begun(start, left, right).copy()
    of_left, of_right = _exponents(left), _exponents(right)
    for first in range(0, right.shape[1], COLUMNS):
        part = slice(first, first + COLUMNS)
        held: Float64 = np.ascontiguousarray(total[:, part])
        for at in range(0, len(left), products):
            block = slice(at, at + products)
            terms = left[block, :, None] * right[block, None, part]
            largest = (of_left[block, :, None] + of_right[block, None, part]).max(axis=0)
            largest = np.maximum(np.maximum(largest, _exponents(held)), LEAST)
            step = np.ldexp(1.0, largest - (SIGNIFICAND + unit.extra_bits))
            scale: Float64 = 1 / step
            terms *= scale
            np.trunc(terms, out=terms)
            held = cut((terms.sum(axis=0) + np.trunc(held * scale)) * step)
        total[:, part] = held
    return total


def cut(values: Float64) -> Float64:
    """Values rounded toward zero to float32; those beyond its range become infinite, as by any rounding."""
    bits = np.ascontiguousarray(values).view(np.uint64) & ~_DROPPED
    kept = np.where(np.isfinite(values), bits.view(np.float64), values)
    with np.errstate(over="ignore"):
        narrow = kept.astype(np.float32)
    return narrow.astype(np.float64)


def tree(terms: Array) -> Float64:
    """The sum over the last axis: strided in each thread, then in a tree over the threads, in float32."""
    count = terms.shape[-1]
    threads = min(THREADS, 1 << max(count - 1, 0).bit_length())
    whole = -(-count // threads) * threads
    padded = np.zeros((*terms.shape[:-1], whole), np.float32)
    padded[..., :count] = terms
    parts = padded.reshape(*terms.shape[:-1], whole // threads, threads)
    total = np.add.accumulate(parts, axis=-2)[..., -1, :]
    while total.shape[-1] > 1:
        half = total.shape[-1] // 2
        total = total[..., :half] + total[..., half:]
    return np.asarray(total[..., 0], np.float64)


def stream(terms: Array) -> Float64:
    """The sum over the last axis, one element after the other, in float32."""
    return np.asarray(np.add.accumulate(terms.astype(np.float32), axis=-1)[..., -1], np.float64)


def _begun(start: Array | None, left: Array, right: Array) -> Float64:
    return np.zeros((left.shape[1], right.shape[1])) if start is None else _wide(start)


def _wide(values: Array) -> Float64:
    return np.asarray(values, np.float64)


def _exponents(values: Float64) -> NDArray[np.int16]:
    """The exponent of the leading bit of each number."""
    found = np.frexp(values)[1] - 1
    return np.where(values == 0, NOTHING, found).astype(np.int16)

"""One tile serves every iteration, so each load waits until the last one is used up."""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np


def sbuf(rows, columns, dtype=nl.float32):
    """A fresh SBUF tile."""
    return nl.ndarray((rows, columns), dtype=dtype, buffer=nl.sbuf)


def smoothed(x, tiles):
    """x [rows, 1024] fp32 -> tanh(x); the loop uses `tiles` in turn"""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in range(x.shape[0] // 128):
        tile, row = tiles[i % len(tiles)], i * 128
        nisa.dma_copy(dst=tile, src=x[row : row + 128, :])
        nisa.activation(dst=tile, op=nl.tanh, data=tile)
        nisa.dma_copy(dst=out[row : row + 128, :], src=tile)
    return out


@nki.jit
def bad(x):
    """One tile."""
    return smoothed(x, [sbuf(128, 1024)])


@nki.jit
def good(x):
    """As many as are in flight."""
    return smoothed(x, [sbuf(128, 1024) for _ in range(8)])


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((512, 1024)).astype(np.float32)]


def reference(x):
    return np.tanh(x)

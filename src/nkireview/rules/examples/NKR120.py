"""Rows come in pieces of 256 bytes, one DMA for each piece."""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np


def sbuf(rows, columns, dtype=nl.float32):
    """A fresh SBUF tile."""
    return nl.ndarray((rows, columns), dtype=dtype, buffer=nl.sbuf)


def doubled(x, width):
    """x [rows, columns] fp32 -> 2 x, loaded `width` columns at a time."""
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for row in range(0, rows, 128):
        tile = sbuf(128, columns)
        for column in range(0, columns, width):
            end = column + width
            nisa.dma_copy(dst=tile[:, column:end], src=x[row : row + 128, column:end])
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=out[row : row + 128, :], src=tile)
    return out


@nki.jit
def bad(x):
    """64 fp32 columns at a time."""
    return doubled(x, 64)


@nki.jit
def good(x):
    """Whole rows."""
    return doubled(x, x.shape[1])


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((512, 1024)).astype(np.float32)]


def reference(x):
    return 2.0 * x

"""A tile is loaded by 16 DMAs of 8 rows, each of which takes longer to issue than to move."""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np


def sbuf(rows, columns, dtype=nl.float32):
    """A fresh SBUF tile."""
    return nl.ndarray((rows, columns), dtype=dtype, buffer=nl.sbuf)


def doubled(x, height):
    """x [rows, columns] fp32 -> 2 x, loaded `height` rows at a time."""
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for row in range(0, rows, 128):
        tile = sbuf(128, columns)
        for part in range(0, 128, height):
            nisa.dma_copy(dst=tile[part : part + height, :], src=x[row + part : row + part + height, :])
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=out[row : row + 128, :], src=tile)
    return out


@nki.jit
def bad(x):
    """8 rows at a time."""
    return doubled(x, 8)


@nki.jit
def good(x):
    """128 rows at a time."""
    return doubled(x, 128)


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((512, 512)).astype(np.float32)]


def reference(x):
    return 2.0 * x

"""An activation works on 16 elements a partition at a time, side by side in one tile."""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np


def sbuf(rows, columns, dtype=nl.float32):
    """A fresh SBUF tile."""
    return nl.ndarray((rows, columns), dtype=dtype, buffer=nl.sbuf)


def exponentials(x, width):
    """x [rows, 1024] fp32 -> exp(x), `width` columns an instruction."""
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for row in range(0, rows, 128):
        tile, result = sbuf(128, columns), sbuf(128, columns)
        nisa.dma_copy(dst=tile, src=x[row : row + 128, :])
        for column in range(0, columns, width):
            end = column + width
            nisa.activation(dst=result[:, column:end], op=nl.exp, data=tile[:, column:end])
        nisa.dma_copy(dst=out[row : row + 128, :], src=result)
    return out


@nki.jit
def bad(x):
    """16 columns."""
    return exponentials(x, 16)


@nki.jit
def good(x):
    """All columns."""
    return exponentials(x, 1024)


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((256, 1024)).astype(np.float32)]


def reference(x):
    return np.exp(x)

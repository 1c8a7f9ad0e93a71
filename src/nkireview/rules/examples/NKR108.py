"""A tensor is loaded into tiles that no instruction reads."""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np


def sbuf(rows, columns, dtype=nl.float32):
    """A fresh SBUF tile."""
    return nl.ndarray((rows, columns), dtype=dtype, buffer=nl.sbuf)


def scaled(x, mask):
    """x [rows, 1024] fp32 -> 2 x; `mask` is loaded beside it."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for row in range(0, x.shape[0], 128):
        tile = sbuf(128, 1024)
        nisa.dma_copy(dst=tile, src=x[row : row + 128, :])
        if mask is not None:
            visible = sbuf(128, 1024)
            nisa.dma_copy(dst=visible, src=mask[row : row + 128, :])
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=out[row : row + 128, :], src=tile)
    return out


@nki.jit
def bad(x, mask):
    """The mask is no longer used."""
    return scaled(x, mask)


@nki.jit
def good(x, mask):
    """The mask stays where it is."""
    return scaled(x, None)


def inputs(seed=0):
    draw = np.random.default_rng(seed).standard_normal
    return [draw((640, 1024)).astype(np.float32), np.ones((640, 1024), np.float32)]


def reference(x, mask):
    return 2.0 * x

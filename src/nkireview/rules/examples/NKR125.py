"""The argument is copied within HBM before it is loaded."""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np


def sbuf(rows, columns, dtype=nl.float32):
    """A fresh SBUF tile."""
    return nl.ndarray((rows, columns), dtype=dtype, buffer=nl.sbuf)


def doubled(x, source):
    """x [rows, 1024] fp32 -> 2 x, loaded from `source`."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for row in range(0, x.shape[0], 128):
        tile = sbuf(128, 1024)
        nisa.dma_copy(dst=tile, src=source[row : row + 128, :])
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=out[row : row + 128, :], src=tile)
    return out


@nki.jit
def bad(x):
    """By way of a tensor of its own."""
    staged = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.private_hbm, name="staged")
    nisa.dma_copy(dst=staged, src=x)
    return doubled(x, staged)


@nki.jit
def good(x):
    """From the argument."""
    return doubled(x, x)


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((512, 1024)).astype(np.float32)]


def reference(x):
    return 2.0 * x

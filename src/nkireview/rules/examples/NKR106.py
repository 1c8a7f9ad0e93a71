"""The exponentials go to HBM and come back for the next step."""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np


def sbuf(rows, columns, dtype=nl.float32):
    """A fresh SBUF tile."""
    return nl.ndarray((rows, columns), dtype=dtype, buffer=nl.sbuf)


@nki.jit
def bad(x):
    """x [rows, 1024] fp32 -> 2 exp(x), in two loops with a tensor in HBM between them."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    between = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.private_hbm, name="between")
    for row in range(0, x.shape[0], 128):
        tile = sbuf(128, 1024)
        nisa.dma_copy(dst=tile, src=x[row : row + 128, :])
        nisa.activation(dst=tile, op=nl.exp, data=tile)
        nisa.dma_copy(dst=between[row : row + 128, :], src=tile)
    for row in range(0, x.shape[0], 128):
        tile = sbuf(128, 1024)
        nisa.dma_copy(dst=tile, src=between[row : row + 128, :])
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=out[row : row + 128, :], src=tile)
    return out


@nki.jit
def good(x):
    """Both steps in one loop."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for row in range(0, x.shape[0], 128):
        tile = sbuf(128, 1024)
        nisa.dma_copy(dst=tile, src=x[row : row + 128, :])
        nisa.activation(dst=tile, op=nl.exp, data=tile)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=out[row : row + 128, :], src=tile)
    return out


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((512, 1024)).astype(np.float32)]


def reference(x):
    return 2.0 * np.exp(x)

"""Four long rows lie on four partitions: one of 16 DMA engines moves them."""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np


def sbuf(rows, columns, dtype=nl.float32):
    """A fresh SBUF tile."""
    return nl.ndarray((rows, columns), dtype=dtype, buffer=nl.sbuf)


def doubled(x, rows):
    """x [4, columns] fp32 -> 2 x, on `rows` partitions."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    shape = (rows, x.shape[0] * x.shape[1] // rows)
    tile = sbuf(*shape)
    nisa.dma_copy(dst=tile, src=x.reshape(shape))
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=out.reshape(shape), src=tile)
    return out


@nki.jit
def bad(x):
    """One row of x a partition."""
    return doubled(x, 4)


@nki.jit
def good(x):
    """Each row of x on 32 partitions."""
    return doubled(x, 128)


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((4, 32768)).astype(np.float32)]


def reference(x):
    return 2.0 * x

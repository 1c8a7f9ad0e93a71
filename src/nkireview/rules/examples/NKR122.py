"""The result is transposed by the stores: each DMA writes one column, four bytes at a time."""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np


def sbuf(rows, columns, dtype=nl.float32):
    """A fresh SBUF tile."""
    return nl.ndarray((rows, columns), dtype=dtype, buffer=nl.sbuf)


def psum(rows, columns):
    """A fresh fp32 PSUM tile."""
    return nl.ndarray((rows, columns), dtype=nl.float32, buffer=nl.psum)


@nki.jit
def bad(x):
    """x [128, 128] fp32 -> x.T, one row of x and column of the result a DMA."""
    out = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = sbuf(128, 128)
    nisa.dma_copy(dst=tile, src=x)
    for row in range(128):
        nisa.dma_copy(dst=out[:, row : row + 1], src=tile[row : row + 1, :])
    return out


@nki.jit
def good(x):
    """The Tensor engine transposes, one DMA stores."""
    out = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.shared_hbm)
    tile, flipped, result = sbuf(128, 128), psum(128, 128), sbuf(128, 128)
    nisa.dma_copy(dst=tile, src=x)
    nisa.nc_transpose(dst=flipped, data=tile)
    nisa.tensor_copy(dst=result, src=flipped)
    nisa.dma_copy(dst=out, src=result)
    return out


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((128, 128)).astype(np.float32)]


def reference(x):
    return x.T

"""GpSimd does all the products, while Vector has nothing to do."""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np


def sbuf(rows, columns, dtype=nl.float32):
    """A fresh SBUF tile."""
    return nl.ndarray((rows, columns), dtype=dtype, buffer=nl.sbuf)


def fourth(x, engines):
    """x [rows, 1024] fp32 -> x ** 4, the engines taking the tiles in turn"""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for row in range(0, x.shape[0], 128):
        engine = engines[row // 128 % len(engines)]
        tile = sbuf(128, 1024)
        nisa.dma_copy(dst=tile, src=x[row : row + 128, :])
        for _ in range(2):
            square = sbuf(128, 1024)
            nisa.tensor_tensor(dst=square, data1=tile, data2=tile, op=nl.multiply, engine=engine)
            tile = square
        nisa.dma_copy(dst=out[row : row + 128, :], src=tile)
    return out


@nki.jit
def bad(x):
    """All on GpSimd."""
    return fourth(x, [nisa.gpsimd_engine])


@nki.jit
def good(x):
    """On both."""
    return fourth(x, [nisa.vector_engine, nisa.gpsimd_engine])


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((768, 1024)).astype(np.float32)]


def reference(x):
    return x**4

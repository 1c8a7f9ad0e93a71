"""A table is loaded again for every tile, although it never changes."""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np


def sbuf(rows, columns, dtype=nl.float32):
    """A fresh SBUF tile."""
    return nl.ndarray((rows, columns), dtype=dtype, buffer=nl.sbuf)


def load(src):
    tile = sbuf(*src.shape)
    nisa.dma_copy(dst=tile, src=src)
    return tile


@nki.jit
def bad(x, table):
    """x [rows, 1024], table [128, 1024] fp32 -> each block of 128 rows times the table."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for row in range(0, x.shape[0], 128):
        factors = load(table)
        tile = load(x[row : row + 128, :])
        nisa.tensor_tensor(dst=tile, data1=tile, data2=factors, op=nl.multiply)
        nisa.dma_copy(dst=out[row : row + 128, :], src=tile)
    return out


@nki.jit
def good(x, table):
    """The table is loaded once and stays in SBUF."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    factors = load(table)
    for row in range(0, x.shape[0], 128):
        tile = load(x[row : row + 128, :])
        nisa.tensor_tensor(dst=tile, data1=tile, data2=factors, op=nl.multiply)
        nisa.dma_copy(dst=out[row : row + 128, :], src=tile)
    return out


def inputs(seed=0):
    draw = np.random.default_rng(seed).standard_normal
    return [draw((640, 1024)).astype(np.float32), draw((128, 1024)).astype(np.float32)]


def reference(x, table):
    return x * np.tile(table, (x.shape[0] // 128, 1))

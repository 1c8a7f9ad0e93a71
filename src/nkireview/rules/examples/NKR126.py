"""Rows are regrouped through HBM, several times their own size, to make a small result."""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np


def sbuf(rows, columns, dtype=nl.float32):
    """A fresh SBUF tile."""
    return nl.ndarray((rows, columns), dtype=dtype, buffer=nl.sbuf)


@nki.jit
def bad(x):
    """x [128, columns] fp32 -> for each eighth of a row the sum of squares, [1024, 1]: through a tensor in HBM."""
    rows, columns = x.shape
    width = columns // 8
    out = nl.ndarray((rows * 8, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    between = nl.ndarray((rows * 8, width), dtype=x.dtype, buffer=nl.private_hbm, name="between")
    tile = sbuf(rows, columns)
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.multiply)
    nisa.dma_copy(dst=between.reshape((rows, columns)), src=tile)
    for row in range(0, rows * 8, 128):
        part, total = sbuf(128, width), sbuf(128, 1)
        nisa.dma_copy(dst=part, src=between[row : row + 128, :])
        nisa.tensor_reduce(dst=total, op=nl.add, data=part, axis=1)
        nisa.dma_copy(dst=out[row : row + 128, :], src=total)
    return out


@nki.jit
def good(x):
    """The eighths are reduced where they lie."""
    rows, columns = x.shape
    width = columns // 8
    out = nl.ndarray((rows * 8, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    tile, total = sbuf(rows, columns), sbuf(rows, 8)
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.multiply)
    nisa.tensor_reduce(dst=total, op=nl.add, data=tile.reshape((rows, 8, width)), axis=2)
    nisa.dma_copy(dst=out.reshape((rows, 8)), src=total)
    return out


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((128, 8192)).astype(np.float32)]


def reference(x):
    return (x * x).reshape(1024, -1).sum(axis=1, keepdims=True)

"""Each iteration of a parallel loop reads what the one before wrote."""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

NKI = "legacy"


def store(tile, dtype=None):
    """A tile as a result in HBM."""
    out = nl.ndarray(tile.shape, dtype=dtype or tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


@nki.jit
def bad(x):
    """x [4, 128, columns] fp32: the largest of the four."""
    best = nl.ndarray(x.shape[1:], dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=best, value=-3.0e38)
    for i in nl.affine_range(x.shape[0]):
        t = nl.ndarray(x.shape[1:], dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=t, src=x[i])
        nisa.tensor_tensor(dst=best, data1=best, data2=t, op=nl.maximum)
    return store(best)


@nki.jit
def good(x):
    """x [4, 128, columns] fp32: the largest of the four."""
    best = nl.ndarray(x.shape[1:], dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=best, value=-3.0e38)
    for i in nl.sequential_range(x.shape[0]):
        t = nl.ndarray(x.shape[1:], dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=t, src=x[i])
        nisa.tensor_tensor(dst=best, data1=best, data2=t, op=nl.maximum)
    return store(best)


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((4, 128, 64)).astype(np.float32)]


def reference(x):
    return x.max(axis=0)

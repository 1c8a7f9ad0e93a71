"""The result has another shape than the reference gives."""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np


def load(x, dtype=None):
    """x [rows, columns] as an SBUF tile."""
    tile = nl.ndarray(x.shape, dtype=dtype or x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    return tile


def store(tile, dtype=None):
    """A tile as a result in HBM."""
    out = nl.ndarray(tile.shape, dtype=dtype or tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


def total(x, columns):
    """The sums of the rows of x [128, n] fp32, in so many columns."""
    t = load(x)
    s = nl.ndarray((128, columns), dtype=nl.float32, buffer=nl.sbuf)
    for column in range(columns):
        nisa.tensor_reduce(dst=s[:, column : column + 1], op=nl.add, data=t, axis=1, keepdims=True)
    return store(s)


@nki.jit
def bad(x):
    """x [128, n] fp32."""
    return total(x, 2)


@nki.jit
def good(x):
    """x [128, n] fp32."""
    return total(x, 1)


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((128, 64)).astype(np.float32)]


def reference(x):
    return x.sum(axis=1, keepdims=True)

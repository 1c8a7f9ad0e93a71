"""A variance as the mean of squares less the square of the mean."""

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


def total(t):
    """The means of the rows of a tile."""
    s = nl.ndarray((t.shape[0], 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=s, op=nl.add, data=t, axis=1, keepdims=True)
    nisa.tensor_scalar(dst=s, data=s, op0=nl.multiply, operand0=1.0 / t.shape[1])
    return s


def squares(t):
    """The squares of a tile."""
    q = nl.ndarray(t.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.activation(dst=q, op=nl.square, data=t)
    return q


@nki.jit
def bad(x):
    """x [128, columns] fp32: the variance of each row."""
    t = load(x)
    variance = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=variance, data1=total(squares(t)), data2=squares(total(t)), op=nl.subtract)
    return store(variance)


@nki.jit
def good(x):
    """x [128, columns] fp32: the variance of each row."""
    t = load(x)
    nisa.tensor_scalar(dst=t, data=t, op0=nl.subtract, operand0=total(t))
    return store(total(squares(t)))


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((128, 64)).astype(np.float32)]


def reference(x):
    return x.var(axis=1, keepdims=True)

"""The weights of the columns are computed on the device."""

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


@nki.jit
def good(x):
    """x [128, 64] fp32: each column by its weight."""
    t = load(x)
    w = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.iota(dst=w, pattern=[[1, x.shape[1]]])
    nisa.tensor_scalar(dst=w, data=w, op0=nl.multiply, operand0=1.0 / 64.0, op1=nl.add, operand1=1.0)
    nisa.tensor_tensor(dst=t, data1=t, data2=w, op=nl.multiply)
    return store(t)


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((128, 64)).astype(np.float32)]


def reference(x):
    return x * (1.0 + np.arange(64) / 64.0)

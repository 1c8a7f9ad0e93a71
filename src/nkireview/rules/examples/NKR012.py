"""A matmul accumulates onto PSUM that a memset filled."""

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
def bad(a, b):
    """a [128, m], b [128, n] fp32: a.T @ b."""
    p = nl.ndarray((a.shape[1], b.shape[1]), dtype=nl.float32, buffer=nl.psum)
    nisa.memset(dst=p, value=0.0)
    nisa.nc_matmul(dst=p, stationary=load(a), moving=load(b), accumulate=True)
    s = nl.ndarray(p.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=s, src=p)
    return store(s)


@nki.jit
def good(a, b):
    """a [128, m], b [128, n] fp32: a.T @ b."""
    p = nl.ndarray((a.shape[1], b.shape[1]), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=p, stationary=load(a), moving=load(b), accumulate=False)
    s = nl.ndarray(p.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=s, src=p)
    return store(s)


def inputs(seed=0):
    draw = np.random.default_rng(seed)
    return [
        draw.standard_normal((128, 64)).astype(np.float32),
        draw.standard_normal((128, 96)).astype(np.float32),
    ]


def reference(a, b):
    return a.T @ b

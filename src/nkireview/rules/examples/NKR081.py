"""Float32 inputs are multiplied as bfloat16."""

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


def product(a, b, dtype):
    """a [128, m], b [128, n] fp32: a.T @ b with factors of a dtype."""
    p = nl.ndarray((a.shape[1], b.shape[1]), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=p, stationary=load(a, dtype), moving=load(b, dtype))
    s = nl.ndarray(p.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=s, src=p)
    return store(s)


@nki.jit
def bad(a, b):
    """a [128, m], b [128, n] fp32."""
    return product(a, b, nl.bfloat16)


@nki.jit
def good(a, b):
    """a [128, m], b [128, n] fp32."""
    return product(a, b, nl.float32)


def inputs(seed=0):
    # small integers, which bfloat16 holds
    draw = np.random.default_rng(seed)
    return [draw.integers(-9, 10, (128, columns)).astype(np.float32) for columns in (64, 96)]


def reference(a, b):
    return a.T @ b

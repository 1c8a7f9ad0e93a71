"""Values are compared with their maximum in bfloat16."""

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


def largest(x, dtype):
    """1.0 where an element of x [128, columns] fp32 is the largest of its row; the maximum is in a dtype."""
    t = load(x)
    m = nl.ndarray((128, 1), dtype=dtype, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=m, op=nl.maximum, data=t, axis=1, keepdims=True)
    beside = m.ap([[1, 128], [0, x.shape[1]]])
    nisa.tensor_tensor(dst=t, data1=t, data2=beside, op=nl.equal)
    return store(t)


@nki.jit
def bad(x):
    """x [128, columns] fp32; right as long as bfloat16 holds the maxima."""
    return largest(x, nl.bfloat16)


@nki.jit
def good(x):
    """x [128, columns] fp32."""
    return largest(x, nl.float32)


def inputs(seed=0):
    draw = np.random.default_rng(seed)
    return [np.stack([draw.permutation(64) for _ in range(128)]).astype(np.float32)]


def reference(x):
    return (x == x.max(axis=1, keepdims=True)).astype(np.float64)

"""An epsilon of 1e-9 in a float16 tile, whose smallest number is 6e-8."""

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


def inverse(x, dtype):
    """One over the root of x [128, columns] fp32 and a small constant, which stands in a tile of a dtype."""
    t = load(x)
    epsilon = nl.ndarray((128, 1), dtype=dtype, buffer=nl.sbuf)
    nisa.memset(dst=epsilon, value=1e-9)
    nisa.activation(dst=t, op=nl.rsqrt, data=t, bias=epsilon)
    return store(t)


@nki.jit
def bad(x):
    """x [128, columns] fp32."""
    return inverse(x, nl.float16)


@nki.jit
def good(x):
    """x [128, columns] fp32."""
    return inverse(x, nl.float32)


def inputs(seed=0):
    return [np.random.default_rng(seed).uniform(1.0, 2.0, (128, 64)).astype(np.float32)]


def reference(x):
    return 1.0 / np.sqrt(x + 1e-9)

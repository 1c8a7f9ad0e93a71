"""A float32 result is rounded to float16 and again to bfloat16."""

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


def twice(x, dtype):
    """x [128, columns] fp32 twice, through a tile of a dtype."""
    y = nl.ndarray(x.shape, dtype=dtype, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=y, data=load(x), op0=nl.multiply, operand0=2.0)
    return store(y, nl.bfloat16)


@nki.jit
def bad(x):
    """x [128, columns] fp32."""
    return twice(x, nl.float16)


@nki.jit
def good(x):
    """x [128, columns] fp32."""
    return twice(x, nl.float32)


def inputs(seed=0):
    # small integers, which both formats hold
    return [np.random.default_rng(seed).integers(-100, 100 + 1, (128, 64)).astype(np.float32)]


def reference(x):
    return 2.0 * x

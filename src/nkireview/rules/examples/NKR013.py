"""An instruction without meaning: a bit mask wider than the integers that it is applied to."""

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


def masked(x, mask):
    """x [128, columns] int32 with some of its bits."""
    t = load(x)
    nisa.tensor_scalar(dst=t, data=t, op0=nl.bitwise_and, operand0=mask)
    return store(t)


@nki.jit
def bad(x):
    """x [128, columns] int32."""
    return masked(x, 0xFF00000000FF)


@nki.jit
def good(x):
    """x [128, columns] int32."""
    return masked(x, 0xFF)


def inputs(seed=0):
    return [np.random.default_rng(seed).integers(0, 2**20, (128, 64), dtype=np.int32)]


def reference(x):
    return x & 0xFF

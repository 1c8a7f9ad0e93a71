"""A sine of whatever comes."""

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
def bad(x):
    """x [128, columns] fp32."""
    t = load(x)
    nisa.activation(dst=t, op=nl.sin, data=t)
    return store(t)


@nki.jit
def good(x):
    """x [128, columns] fp32."""
    t = load(x)
    bounds = {"op0": nl.minimum, "operand0": 3.1415925, "op1": nl.maximum, "operand1": -3.1415925}
    nisa.tensor_scalar(dst=t, data=t, **bounds)
    nisa.activation(dst=t, op=nl.sin, data=t)
    return store(t)


def inputs(seed=0):
    return [np.random.default_rng(seed).uniform(-3.0, 3.0, (128, 64)).astype(np.float32)]


def reference(x):
    return np.sin(np.clip(x, -np.pi, np.pi))

"""A result is returned from nl.hbm instead of nl.shared_hbm."""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np


def load(x, dtype=None):
    """x [rows, columns] as an SBUF tile."""
    tile = nl.ndarray(x.shape, dtype=dtype or x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    return tile


def twice(x, memory):
    """x [128, columns] fp32 twice, in HBM of a kind."""
    t = load(x)
    nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=2.0)
    out = nl.ndarray(t.shape, dtype=t.dtype, buffer=memory)
    nisa.dma_copy(dst=out, src=t)
    return out


@nki.jit
def bad(x):
    """x [128, columns] fp32."""
    return twice(x, nl.hbm)


@nki.jit
def good(x):
    """x [128, columns] fp32."""
    return twice(x, nl.shared_hbm)


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((128, 64)).astype(np.float32)]


def reference(x):
    return 2.0 * x

"""A call whose reading depends on the release: an offset given to ap on a view that has one."""

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
    """x [128, columns] fp32: the second half of the columns, twice."""
    t = load(x)
    half = x.shape[1] // 2
    y = nl.ndarray((128, half), dtype=nl.float32, buffer=nl.sbuf)
    view = t[:, half:].ap([[x.shape[1], 128], [1, half]], offset=half)
    nisa.tensor_scalar(dst=y, data=view, op0=nl.multiply, operand0=2.0)
    return store(y)


@nki.jit
def good(x):
    """x [128, columns] fp32: the second half of the columns, twice."""
    t = load(x)
    half = x.shape[1] // 2
    y = nl.ndarray((128, half), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=y, data=t[:, half:], op0=nl.multiply, operand0=2.0)
    return store(y)


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((128, 64)).astype(np.float32)]


def reference(x):
    return 2.0 * x[:, x.shape[1] // 2 :]

"""A loop on the device whose body does not give its condition a new value."""

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


def doubled(x, ends):
    """x [128, columns] fp32 times two, in a loop; `ends`: its condition becomes 0."""
    t = load(x)
    zero = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.memset(zero, 0)

    def body(go_on):
        nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=2.0)
        if ends:
            nisa.register_load(go_on, zero)
        return go_on

    nl.while_loop(nisa.register_alloc(1), body)
    return store(t)


@nki.jit
def bad(x):
    """x [128, columns] fp32."""
    return doubled(x, False)


@nki.jit
def good(x):
    """x [128, columns] fp32."""
    return doubled(x, True)


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((128, 64)).astype(np.float32)]


def reference(x):
    return 2.0 * x

"""A tile that is allocated in the body of a loop and used after it."""

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


def largest(x, outside):
    """The largest of rows of x [128, columns] fp32, gathered in a loop; `outside`: its tile is allocated before it."""
    t = load(x)
    held = [nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)] if outside else []

    def body(i):
        top = held[0] if outside else nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=top, op=nl.maximum, data=t, axis=1, keepdims=True)
        if not outside:
            held.append(top)

    nl.fori_loop(0, 2, body)
    return store(held[0])


@nki.jit
def bad(x):
    """x [128, columns] fp32."""
    return largest(x, False)


@nki.jit
def good(x):
    """x [128, columns] fp32."""
    return largest(x, True)


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((128, 64)).astype(np.float32)]


def reference(x):
    return x.max(axis=1, keepdims=True)

"""Rows are scattered to places of which two are the same."""

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


def sent(x, places, at_once):
    """The rows of x [64, columns] fp32 at places [64, 1] int32 of 96; the second half after the first, or at once."""
    count, columns = x.shape
    zero = nl.ndarray((96, columns), dtype=x.dtype, buffer=nl.sbuf)
    nisa.memset(zero, 0.0)
    out = store(zero)
    step = count if at_once else count // 2
    for first in range(0, count, step):
        tile, index = load(x[first : first + step]), load(places[first : first + step])
        view = out.ap([[columns, step], [1, columns]], offset=0, vector_offset=index, indirect_dim=0)
        nisa.dma_copy(dst=view, src=tile)
    return out


@nki.jit
def bad(x, places):
    """x [64, columns] fp32, places [64, 1] int32 below 96: what comes last stays."""
    return sent(x, places, True)


@nki.jit
def good(x, places):
    """x [64, columns] fp32, places [64, 1] int32 below 96, unique in each half: what comes last stays."""
    return sent(x, places, False)


def inputs(seed=0):
    draw = np.random.default_rng(seed)
    places = np.concatenate([draw.permutation(48)[:32], draw.permutation(48)[:32]]) + 24
    return [draw.standard_normal((64, 64)).astype(np.float32), places.astype(np.int32).reshape(64, 1)]


def reference(x, places):
    out = np.zeros((96, x.shape[1]))
    for row, place in zip(x, places[:, 0].astype(int), strict=True):
        out[place] = row
    return out

"""A scatter that adds two rows to the same place in one call."""

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


def histogram(x, rows, at_once):
    """The sums of rows of x [64, columns] fp32 by rows [64, 1] int32, of 32; in one call or in one for each half."""
    columns, count = x.shape[1], x.shape[0]
    zero = nl.ndarray((32, columns), dtype=x.dtype, buffer=nl.sbuf)
    nisa.memset(zero, 0.0)
    out = store(zero)
    tile, index = load(x), load(rows)
    step = count if at_once else count // 2
    for first in range(0, count, step):
        part = nl.ndarray((step, 1), dtype=rows.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=part, src=index[first : first + step, :])
        view = out.ap([[columns, step], [1, columns]], offset=0, vector_offset=part, indirect_dim=0)
        nisa.dma_compute(view, [view, tile[first : first + step, :]], reduce_op=nl.add)
    return out


@nki.jit
def bad(x, rows):
    """x [64, columns] fp32, rows [64, 1] int32 below 32, each once in either half."""
    return histogram(x, rows, True)


@nki.jit
def good(x, rows):
    """x [64, columns] fp32, rows [64, 1] int32 below 32, each once in either half."""
    return histogram(x, rows, False)


def inputs(seed=0):
    draw = np.random.default_rng(seed)
    rows = np.concatenate([draw.permutation(32), draw.permutation(32)])
    return [draw.standard_normal((64, 64)).astype(np.float32), rows.astype(np.int32).reshape(64, 1)]


def reference(x, rows):
    out = np.zeros((32, x.shape[1]))
    np.add.at(out, rows[:, 0].astype(int), x)
    return out

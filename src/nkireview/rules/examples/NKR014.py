"""Rows are gathered by more indices than were loaded."""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np


def store(tile, dtype=None):
    """A tile as a result in HBM."""
    out = nl.ndarray(tile.shape, dtype=dtype or tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


def gathered(x, rows, taken):
    """The rows of x [n, columns] fp32 named by rows [96, 1] uint32, of which so many are gathered."""
    index = nl.ndarray((128, 1), dtype=rows.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=index[0 : rows.shape[0], :], src=rows)
    columns = x.shape[1]
    tile = nl.ndarray((128, columns), dtype=x.dtype, buffer=nl.sbuf)
    view = x.ap([[columns, taken], [1, columns]], offset=0, vector_offset=index, indirect_dim=0)
    nisa.dma_copy(dst=tile[0:taken, :], src=view)
    return store(tile[0 : rows.shape[0], :])


@nki.jit
def bad(x, rows):
    """x [n, columns] fp32, rows [96, 1] uint32."""
    return gathered(x, rows, 128)


@nki.jit
def good(x, rows):
    """x [n, columns] fp32, rows [96, 1] uint32."""
    return gathered(x, rows, rows.shape[0])


def inputs(seed=0):
    draw = np.random.default_rng(seed)
    x = draw.standard_normal((256, 64)).astype(np.float32)
    return [x, draw.permutation(256)[:96].astype(np.uint32).reshape(96, 1)]


def reference(x, rows):
    return x[rows[:, 0].astype(int)]

"""Rows are gathered by indices that may lie beyond the tensor."""

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


def gathered(x, rows, bounded):
    """The rows of x [n, columns] fp32 named by rows [128, 1] int32; `bounded`: the last row for those beyond it."""
    index = load(rows)
    if bounded:
        nisa.tensor_scalar(dst=index, data=index, op0=nl.minimum, operand0=x.shape[0] - 1)
    columns = x.shape[1]
    tile = nl.ndarray((rows.shape[0], columns), dtype=x.dtype, buffer=nl.sbuf)
    view = x.ap([[columns, rows.shape[0]], [1, columns]], offset=0, vector_offset=index, indirect_dim=0)
    nisa.dma_copy(dst=tile, src=view)
    return store(tile)


@nki.jit
def bad(x, rows):
    """x [n, columns] fp32, rows [128, 1] int32."""
    return gathered(x, rows, False)


@nki.jit
def good(x, rows):
    """x [n, columns] fp32, rows [128, 1] int32."""
    return gathered(x, rows, True)


def inputs(seed=0):
    draw = np.random.default_rng(seed)
    x = draw.standard_normal((256, 64)).astype(np.float32)
    return [x, draw.permutation(300)[:128].astype(np.int32).reshape(128, 1)]


def reference(x, rows):
    return x[np.minimum(rows[:, 0].astype(int), len(x) - 1)]

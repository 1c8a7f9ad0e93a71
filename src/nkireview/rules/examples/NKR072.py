"""Matmuls accumulate in a bfloat16 PSUM tile."""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

TARGET = "trn3"


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


def product(a, b, dtype):
    """a [k, m], b [k, n] bf16: a.T @ b, accumulated over tiles of 128 rows in PSUM of a dtype."""
    p = nl.ndarray((a.shape[1], b.shape[1]), dtype=dtype, buffer=nl.psum)
    for row in range(0, a.shape[0], 128):
        left, right = load(a[row : row + 128, :]), load(b[row : row + 128, :])
        nisa.nc_matmul(dst=p, stationary=left, moving=right, accumulate=row > 0)
    s = nl.ndarray(p.shape, dtype=nl.bfloat16, buffer=nl.sbuf)
    nisa.tensor_copy(dst=s, src=p)
    return store(s)


@nki.jit
def bad(a, b):
    """a [k, m], b [k, n] bf16."""
    return product(a, b, nl.bfloat16)


@nki.jit
def good(a, b):
    """a [k, m], b [k, n] bf16."""
    return product(a, b, nl.float32)


def inputs(seed=0):
    # factors of -1, 0 and 1, whose sums bfloat16 still holds
    draw = np.random.default_rng(seed)
    return [draw.integers(-1, 2, (256, columns)).astype(ml_dtypes.bfloat16) for columns in (64, 96)]


def reference(a, b):
    return a.astype(np.float64).T @ b.astype(np.float64)

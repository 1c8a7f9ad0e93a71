"""A PSUM tile is cleared by memset, and the matmuls accumulate onto that.

On hardware: NeuronCore-v2 and -v3 define accumulate=True only after a matmul has started the sum; after a memset the
result is undefined, though a NumPy simulation gives the right one. NeuronCore-v4 allows it, so the same kernel is right
on trn3. In the twin the first matmul overwrites. Rests on constraint 74 (isa stubs 552-555).
"""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {"code": "NKR012", "target": "trn2", "severity": "blocker", "legal_on": "trn3"}


def operand(x, row):
    """128 rows of x in SBUF."""
    tile = nl.ndarray((128, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x[row : row + 128, :])
    return tile


@nki.jit
def bad(a, b):
    """a [256, 128], b [256, 256] fp32 -> a.T @ b."""
    out = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.shared_hbm)
    total = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.psum, name="total")
    nisa.memset(total, 0.0)  # first
    for row in (0, 128):
        nisa.nc_matmul(total, operand(a, row), operand(b, row), accumulate=True)  # second
    result = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=result, src=total)
    nisa.dma_copy(dst=out, src=result)
    return out


@nki.jit
def good(a, b):
    """a [256, 128], b [256, 256] fp32 -> a.T @ b; left to itself the first matmul overwrites."""
    out = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.shared_hbm)
    total = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.psum, name="total")
    for row in (0, 128):
        nisa.nc_matmul(total, operand(a, row), operand(b, row))
    result = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=result, src=total)
    nisa.dma_copy(dst=out, src=result)
    return out


def inputs(seed=0):
    draw = np.random.default_rng(seed).standard_normal
    return [draw((256, 128)).astype(np.float32), draw((256, 256)).astype(np.float32)]


def reference(a, b):
    return a.T @ b

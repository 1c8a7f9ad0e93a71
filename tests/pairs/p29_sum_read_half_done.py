"""A copy out of PSUM stands between the first and the second matmul of one sum.

On hardware: the sum is half done when it is read, and the compiler refuses to read an open accumulation group
(NCC_ISCH714). The twin makes two sums of one matmul each. Rests on constraint 75.
"""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {"code": "NKR027", "target": "trn2", "severity": "major"}


def operand(x, row):
    """128 rows of x in SBUF."""
    tile = nl.ndarray((128, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x[row : row + 128, :])
    return tile


@nki.jit
def bad(a, b):
    """a [256, 128], b [256, 256] fp32 -> a.T @ b, and the part of it that the first 128 rows give."""
    out, part = (nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.shared_hbm) for _ in range(2))
    total = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.psum, name="total")
    half = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
    result = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
    nisa.nc_matmul(total, operand(a, 0), operand(b, 0))
    nisa.tensor_copy(dst=half, src=total)  # first
    nisa.nc_matmul(total, operand(a, 128), operand(b, 128), accumulate=True)  # second
    nisa.tensor_copy(dst=result, src=total)
    nisa.dma_copy(dst=out, src=result)
    nisa.dma_copy(dst=part, src=half)
    return out, part


@nki.jit
def good(a, b):
    """a [256, 128], b [256, 256] fp32 -> a.T @ b, and the part of it that the first 128 rows give."""
    out, part = (nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.shared_hbm) for _ in range(2))
    total = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.psum, name="total")
    half = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
    result = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
    nisa.nc_matmul(total, operand(a, 0), operand(b, 0))
    nisa.tensor_copy(dst=half, src=total)
    nisa.nc_matmul(total, operand(a, 128), operand(b, 128), accumulate=False)
    nisa.tensor_tensor(dst=result, data1=half, data2=total, op=nl.add)
    nisa.dma_copy(dst=out, src=result)
    nisa.dma_copy(dst=part, src=half)
    return out, part


def inputs(seed=0):
    draw = np.random.default_rng(seed).standard_normal
    return [draw((256, 128)).astype(np.float32), draw((256, 256)).astype(np.float32)]


def reference(a, b):
    return a.T @ b, a[:128].T @ b[:128]

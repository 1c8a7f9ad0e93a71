"""Each matmul takes 64 rows of the contraction, so that half of the PE rows are idle."""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np


def sbuf(rows, columns, dtype=nl.float32):
    """A fresh SBUF tile."""
    return nl.ndarray((rows, columns), dtype=dtype, buffer=nl.sbuf)


def psum(rows, columns):
    """A fresh fp32 PSUM tile."""
    return nl.ndarray((rows, columns), dtype=nl.float32, buffer=nl.psum)


def product(lhs_t, rhs, depth):
    """lhs_t [2048, 128], rhs [2048, 512] fp32 -> lhs_t.T @ rhs, `depth` rows of the contraction a matmul."""
    out = nl.ndarray((128, 512), dtype=rhs.dtype, buffer=nl.shared_hbm)
    total, result = psum(128, 512), sbuf(128, 512)
    for row in range(0, 2048, 128):
        left, right = sbuf(128, 128), sbuf(128, 512)
        nisa.dma_copy(dst=left, src=lhs_t[row : row + 128, :])
        nisa.dma_copy(dst=right, src=rhs[row : row + 128, :])
        for part in range(0, 128, depth):
            end = part + depth
            nisa.nc_matmul(
                dst=total, stationary=left[part:end, :], moving=right[part:end, :], accumulate=row + part > 0
            )
    nisa.tensor_copy(dst=result, src=total)
    nisa.dma_copy(dst=out, src=result)
    return out


@nki.jit
def bad(lhs_t, rhs):
    """64 rows."""
    return product(lhs_t, rhs, 64)


@nki.jit
def good(lhs_t, rhs):
    """128 rows."""
    return product(lhs_t, rhs, 128)


def inputs(seed=0):
    draw = np.random.default_rng(seed).standard_normal
    return [draw((2048, 128)).astype(np.float32), draw((2048, 512)).astype(np.float32)]


def reference(lhs_t, rhs):
    return lhs_t.T @ rhs

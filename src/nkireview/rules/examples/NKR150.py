"""bfloat16 operands are widened to fp32 on their way in: each matmul takes four times as long."""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
from ml_dtypes import bfloat16


def sbuf(rows, columns, dtype=nl.float32):
    """A fresh SBUF tile."""
    return nl.ndarray((rows, columns), dtype=dtype, buffer=nl.sbuf)


def psum(rows, columns):
    """A fresh fp32 PSUM tile."""
    return nl.ndarray((rows, columns), dtype=nl.float32, buffer=nl.psum)


def loaded(src, dtype):
    """src [rows, columns] as tiles of 128 rows."""
    tiles = []
    for row in range(0, src.shape[0], 128):
        tile = sbuf(128, src.shape[1], dtype)
        nisa.dma_copy(dst=tile, src=src[row : row + 128, :])
        tiles.append(tile)
    return tiles


def product(lhs_t, rhs, dtype):
    """lhs_t [K, M], rhs [K, 512] bf16 -> lhs_t.T @ rhs in fp32; the operands are loaded as `dtype`."""
    out = nl.ndarray((lhs_t.shape[1], 512), dtype=nl.float32, buffer=nl.shared_hbm)
    left, right = loaded(lhs_t, dtype), loaded(rhs, dtype)
    for m in range(0, lhs_t.shape[1], 128):
        total, result = psum(128, 512), sbuf(128, 512)
        for k in range(len(left)):
            nisa.nc_matmul(dst=total, stationary=left[k][:, m : m + 128], moving=right[k], accumulate=k > 0)
        nisa.tensor_copy(dst=result, src=total)
        nisa.dma_copy(dst=out[m : m + 128, :], src=result)
    return out


@nki.jit
def bad(lhs_t, rhs):
    """As fp32."""
    return product(lhs_t, rhs, nl.float32)


@nki.jit
def good(lhs_t, rhs):
    """As they are."""
    return product(lhs_t, rhs, lhs_t.dtype)


def inputs(seed=0):
    draw = np.random.default_rng(seed).standard_normal
    return [draw((512, 512)).astype(bfloat16), draw((512, 512)).astype(bfloat16)]


def reference(lhs_t, rhs):
    return lhs_t.astype(np.float32).T @ rhs.astype(np.float32)

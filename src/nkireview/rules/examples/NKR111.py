"""Partial products are added up by the Vector engine instead of in PSUM."""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
from ml_dtypes import bfloat16


def sbuf(rows, columns, dtype=nl.bfloat16):
    """A fresh SBUF tile."""
    return nl.ndarray((rows, columns), dtype=dtype, buffer=nl.sbuf)


def psum(rows, columns):
    """A fresh fp32 PSUM tile."""
    return nl.ndarray((rows, columns), dtype=nl.float32, buffer=nl.psum)


def blocks(src):
    """The blocks of 128 rows of src [rows, columns], as tiles."""
    tiles = []
    for row in range(0, src.shape[0], 128):
        tile = sbuf(128, src.shape[1])
        nisa.dma_copy(dst=tile, src=src[row : row + 128, :])
        tiles.append(tile)
    return tiles


@nki.jit
def bad(lhs_t, rhs):
    """lhs_t [K, M], rhs [K, 512] bf16 -> lhs_t.T @ rhs; one PSUM tile for each block of K."""
    out = nl.ndarray((lhs_t.shape[1], 512), dtype=rhs.dtype, buffer=nl.shared_hbm)
    left, right = blocks(lhs_t), blocks(rhs)
    for m in range(0, lhs_t.shape[1], 128):
        total = sbuf(128, 512)
        nisa.memset(dst=total, value=0.0)
        for k in range(len(left)):
            product = psum(128, 512)
            nisa.nc_matmul(dst=product, stationary=left[k][:, m : m + 128], moving=right[k])
            nisa.tensor_tensor(dst=total, data1=total, data2=product, op=nl.add)
        nisa.dma_copy(dst=out[m : m + 128, :], src=total)
    return out


@nki.jit
def good(lhs_t, rhs):
    """One PSUM tile for all of them."""
    out = nl.ndarray((lhs_t.shape[1], 512), dtype=rhs.dtype, buffer=nl.shared_hbm)
    left, right = blocks(lhs_t), blocks(rhs)
    for m in range(0, lhs_t.shape[1], 128):
        product, total = psum(128, 512), sbuf(128, 512)
        for k in range(len(left)):
            nisa.nc_matmul(dst=product, stationary=left[k][:, m : m + 128], moving=right[k], accumulate=k > 0)
        nisa.tensor_copy(dst=total, src=product)
        nisa.dma_copy(dst=out[m : m + 128, :], src=total)
    return out


def inputs(seed=0):
    draw = np.random.default_rng(seed).standard_normal
    return [draw((512, 512)).astype(bfloat16), draw((512, 512)).astype(bfloat16)]


def reference(lhs_t, rhs):
    return (lhs_t.astype(np.float32).T @ rhs.astype(np.float32)).astype(bfloat16)

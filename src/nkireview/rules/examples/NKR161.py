"""Vector copies every product out of PSUM, while Scalar has nothing to do."""

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


def product(lhs_t, rhs, engines):
    """lhs_t [128, M], rhs [128, N] bf16 -> lhs_t.T @ rhs; the engines take the copies in turn."""
    rows, columns = lhs_t.shape[1], rhs.shape[1]
    out = nl.ndarray((rows, columns), dtype=rhs.dtype, buffer=nl.shared_hbm)
    left, right = sbuf(128, rows), sbuf(128, columns)
    nisa.dma_copy(dst=left, src=lhs_t)
    nisa.dma_copy(dst=right, src=rhs)
    for m in range(0, rows, 128):
        result = sbuf(128, columns)
        for i in range(columns // 512):
            part = slice(i * 512, (i + 1) * 512)
            made = psum(128, 512)
            nisa.nc_matmul(dst=made, stationary=left[:, m : m + 128], moving=right[:, part])
            nisa.tensor_copy(dst=result[:, part], src=made, engine=engines[i % len(engines)])
        nisa.dma_copy(dst=out[m : m + 128, :], src=result)
    return out


@nki.jit
def bad(lhs_t, rhs):
    """All on Vector."""
    return product(lhs_t, rhs, [nisa.vector_engine])


@nki.jit
def good(lhs_t, rhs):
    """On both."""
    return product(lhs_t, rhs, [nisa.vector_engine, nisa.scalar_engine])


def inputs(seed=0):
    draw = np.random.default_rng(seed).standard_normal
    return [draw((128, 1024)).astype(bfloat16), draw((128, 2048)).astype(bfloat16)]


def reference(lhs_t, rhs):
    return (lhs_t.astype(np.float32).T @ rhs.astype(np.float32)).astype(bfloat16)

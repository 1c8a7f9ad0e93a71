"""Nine accumulators of a bank each wait to be copied out of PSUM, which has eight banks."""

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


BANK = 512


def operands(lhs_t, rhs):
    left, right = sbuf(*lhs_t.shape), sbuf(*rhs.shape)
    nisa.dma_copy(dst=left, src=lhs_t)
    nisa.dma_copy(dst=right, src=rhs)
    return left, right


@nki.jit
def bad(lhs_t, rhs):
    """lhs_t [128, 128], rhs [128, 4608] fp32 -> lhs_t.T @ rhs; every product is made before the first is copied."""
    out = nl.ndarray(rhs.shape, dtype=rhs.dtype, buffer=nl.shared_hbm)
    left, right = operands(lhs_t, rhs)
    result = sbuf(*rhs.shape)
    products = [psum(128, BANK) for _ in range(rhs.shape[1] // BANK)]
    for i in range(len(products)):
        nisa.nc_matmul(dst=products[i], stationary=left, moving=right[:, i * BANK : (i + 1) * BANK])
    for i in range(len(products)):
        nisa.tensor_copy(dst=result[:, i * BANK : (i + 1) * BANK], src=products[i])
    nisa.dma_copy(dst=out, src=result)
    return out


@nki.jit
def good(lhs_t, rhs):
    """Each product is copied at once."""
    out = nl.ndarray(rhs.shape, dtype=rhs.dtype, buffer=nl.shared_hbm)
    left, right = operands(lhs_t, rhs)
    result = sbuf(*rhs.shape)
    for column in range(0, rhs.shape[1], BANK):
        product = psum(128, BANK)
        nisa.nc_matmul(dst=product, stationary=left, moving=right[:, column : column + BANK])
        nisa.tensor_copy(dst=result[:, column : column + BANK], src=product)
    nisa.dma_copy(dst=out, src=result)
    return out


def inputs(seed=0):
    draw = np.random.default_rng(seed).standard_normal
    return [draw((128, 128)).astype(np.float32), draw((128, 4608)).astype(np.float32)]


def reference(lhs_t, rhs):
    return lhs_t.T @ rhs

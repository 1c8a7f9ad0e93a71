"""The result is made the wrong way round and then transposed on the Tensor engine."""

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


def load(src, row):
    tile = sbuf(128, src.shape[1])
    nisa.dma_copy(dst=tile, src=src[row : row + 128, :])
    return tile


def store(out, row, made):
    result = sbuf(128, 128)
    nisa.tensor_copy(dst=result, src=made)
    nisa.dma_copy(dst=out[row : row + 128, :], src=result)


@nki.jit
def bad(w, x_t):
    """w [128, 128], x_t [rows, 128] fp32: for each block b of 128 rows of x_t, b.T @ w."""
    out = nl.ndarray(x_t.shape, dtype=x_t.dtype, buffer=nl.shared_hbm)
    weights = load(w, 0)
    for row in range(0, x_t.shape[0], 128):
        product, straight, flipped = psum(128, 128), sbuf(128, 128), psum(128, 128)
        nisa.nc_matmul(dst=product, stationary=weights, moving=load(x_t, row))
        nisa.tensor_copy(dst=straight, src=product)
        nisa.nc_transpose(dst=flipped, data=straight)
        store(out, row, flipped)
    return out


@nki.jit
def good(w, x_t):
    """With the operands swapped."""
    out = nl.ndarray(x_t.shape, dtype=x_t.dtype, buffer=nl.shared_hbm)
    weights = load(w, 0)
    for row in range(0, x_t.shape[0], 128):
        product = psum(128, 128)
        nisa.nc_matmul(dst=product, stationary=load(x_t, row), moving=weights)
        store(out, row, product)
    return out


def inputs(seed=0):
    draw = np.random.default_rng(seed).standard_normal
    return [draw((128, 128)).astype(np.float32), draw((2048, 128)).astype(np.float32)]


def reference(w, x_t):
    blocks = x_t.reshape(-1, 128, 128)
    return (blocks.transpose(0, 2, 1) @ w).reshape(x_t.shape)

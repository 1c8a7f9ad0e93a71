"""The result is made the wrong way round and then transposed on the Tensor engine."""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np


def sbuf(rows, columns, dtype=nl.float32):
    """A fresh SBUF tile."""
    return nl.ndarray((rows, columns), dtype=dtype, buffer=nl.sbuf)


def psum(rows, columns, dtype=nl.float32):
    """A fresh PSUM tile."""
    return nl.ndarray((rows, columns), dtype=dtype, buffer=nl.psum)


def load(src):
    tile = sbuf(*src.shape, src.dtype)
    nisa.dma_copy(dst=tile, src=src)
    return tile


def store(tile):
    out = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


@nki.jit
def bad(w, x):
    """w [128, 128], x [128, columns] bf16: for each block b of 128 columns of x, b.T @ w."""
    weights, blocks, result = load(w), load(x), sbuf(*x.shape, x.dtype)
    for column in range(0, x.shape[1], 128):
        block = slice(column, column + 128)
        product, straight, flipped = psum(128, 128), sbuf(128, 128, x.dtype), psum(128, 128, x.dtype)
        nisa.nc_matmul(dst=product, stationary=weights, moving=blocks[:, block])
        nisa.tensor_copy(dst=straight, src=product)
        nisa.nc_transpose(dst=flipped, data=straight)
        nisa.tensor_copy(dst=result[:, block], src=flipped)
    return store(result)


@nki.jit
def good(w, x):
    """With the operands swapped."""
    weights, blocks, result = load(w), load(x), sbuf(*x.shape, x.dtype)
    for column in range(0, x.shape[1], 128):
        block = slice(column, column + 128)
        product = psum(128, 128)
        nisa.nc_matmul(dst=product, stationary=blocks[:, block], moving=weights)
        nisa.tensor_copy(dst=result[:, block], src=product)
    return store(result)


def inputs(seed=0):
    draw = np.random.default_rng(seed).standard_normal
    return [draw(shape).astype(ml_dtypes.bfloat16) for shape in ((128, 128), (128, 8192))]


def reference(w, x):
    blocks = x.reshape(128, -1, 128).transpose(1, 2, 0)
    return (blocks @ w).transpose(1, 0, 2).reshape(x.shape)

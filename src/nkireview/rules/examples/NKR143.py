"""Each matmul takes 64 columns of the stationary tile, so that half of the PE columns are idle."""

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


def loaded(src):
    """src [rows, columns] as tiles of 128 rows."""
    tiles = []
    for row in range(0, src.shape[0], 128):
        tile = sbuf(128, src.shape[1])
        nisa.dma_copy(dst=tile, src=src[row : row + 128, :])
        tiles.append(tile)
    return tiles


def product(lhs_t, rhs, width):
    """lhs_t [K, 128], rhs [K, N] fp32 -> lhs_t.T @ rhs, `width` columns of lhs_t a matmul."""
    columns = rhs.shape[1]
    out = nl.ndarray((128, columns), dtype=rhs.dtype, buffer=nl.shared_hbm)
    left, right = loaded(lhs_t), loaded(rhs)
    for part in range(0, 128, width):
        result = sbuf(width, columns)
        for column in range(0, columns, 512):
            made = psum(width, 512)
            for k in range(len(left)):
                nisa.nc_matmul(
                    dst=made,
                    stationary=left[k][:, part : part + width],
                    moving=right[k][:, column : column + 512],
                    accumulate=k > 0,
                )
            nisa.tensor_copy(dst=result[:, column : column + 512], src=made)
        nisa.dma_copy(dst=out[part : part + width, :], src=result)
    return out


@nki.jit
def bad(lhs_t, rhs):
    """64 columns."""
    return product(lhs_t, rhs, 64)


@nki.jit
def good(lhs_t, rhs):
    """128 columns."""
    return product(lhs_t, rhs, 128)


def inputs(seed=0):
    draw = np.random.default_rng(seed).standard_normal
    return [draw((512, 128)).astype(np.float32), draw((512, 2048)).astype(np.float32)]


def reference(lhs_t, rhs):
    return lhs_t.T @ rhs

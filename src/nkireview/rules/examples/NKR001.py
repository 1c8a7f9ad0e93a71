"""An instruction breaks a limit: 160 partitions instead of tiles of 128."""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np


def tiles(x, height):
    """x [rows, columns] twice, in tiles of `height` rows."""
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for row in range(0, rows, height):
        size = min(height, rows - row)
        t = nl.ndarray((size, columns), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=t, src=x[row : row + size, :])
        nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=out[row : row + size, :], src=t)
    return out


@nki.jit
def bad(x):
    """x [160, columns] fp32."""
    return tiles(x, 160)


@nki.jit
def good(x):
    """x [rows, columns] fp32, any number of rows."""
    return tiles(x, nl.tile_size.pmax)


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((160, 64)).astype(np.float32)]


def reference(x):
    return 2.0 * x

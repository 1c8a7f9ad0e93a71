"""A result is stored row by row, in 128 DMAs of 2 KiB to each tile.

On hardware: a queue takes some 600 ns to issue a DMA, more than all 16 engines take to move what it asks for. The twin
stores a tile with one DMA. Rests on constraints 124 and 139.
"""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {"code": "NKR121", "target": "trn2", "severity": "major"}


@nki.jit
def bad(x):
    """x [rows, 512] fp32 -> 2 x."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for row in range(0, x.shape[0], 128):
        tile = nl.ndarray((128, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[row : row + 128, :])
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
        for lane in range(128):
            nisa.dma_copy(dst=out[row + lane : row + lane + 1, :], src=tile[lane : lane + 1, :])  # first
    return out


@nki.jit
def good(x):
    """x [rows, 512] fp32 -> 2 x."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for row in range(0, x.shape[0], 128):
        tile = nl.ndarray((128, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[row : row + 128, :])
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=out[row : row + 128, :], src=tile)
    return out


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((256, 512)).astype(np.float32)]


def reference(x):
    return 2.0 * x

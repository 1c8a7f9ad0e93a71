"""A result is stored in blocks of 32 columns, so that a descriptor moves 128 bytes.

On hardware: each descriptor costs a DMA engine a fixed time, which below 512 bytes is more than the data takes. The
twin stores whole rows. Rests on constraints 123 and 125.
"""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {"code": "NKR120", "target": "trn2", "severity": "major"}


BLOCK = 32


@nki.jit
def bad(x):
    """x [rows, 1024] fp32 -> 2 x."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for row in range(0, x.shape[0], 128):
        tile = nl.ndarray((128, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[row : row + 128, :])
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
        for column in range(0, x.shape[1], BLOCK):
            end = column + BLOCK
            nisa.dma_copy(dst=out[row : row + 128, column:end], src=tile[:, column:end])  # first
    return out


@nki.jit
def good(x):
    """x [rows, 1024] fp32 -> 2 x."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for row in range(0, x.shape[0], 128):
        tile = nl.ndarray((128, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[row : row + 128, :])
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=out[row : row + 128, :], src=tile)
    return out


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((256, 1024)).astype(np.float32)]


def reference(x):
    return 2.0 * x

"""A compute instruction begins at partition 16 of a tile.

On hardware: engines read and write from partition 0, 32, 64 or 96 for up to 32 partitions, so the instruction cannot
be encoded; a DMA may begin anywhere, which the twin uses. Rests on constraint 2.
"""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {"code": "NKR001", "target": "trn2", "severity": "blocker"}


@nki.jit
def bad(x):
    """x [64, 64] fp32 with rows 16 to 31 doubled."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_scalar(dst=tile[16:32, :], data=tile[16:32, :], op0=nl.multiply, operand0=2.0)  # first
    nisa.dma_copy(dst=out, src=tile)
    return out


@nki.jit
def good(x):
    """x [64, 64] fp32 with rows 16 to 31 doubled; these lie at the start of a tile of their own."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    part = nl.ndarray((16, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.dma_copy(dst=part, src=x[16:32, :])
    nisa.tensor_scalar(dst=part, data=part, op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=tile[16:32, :], src=part)
    nisa.dma_copy(dst=out, src=tile)
    return out


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((64, 64)).astype(np.float32)]


def reference(x):
    scaled = np.array(x)
    scaled[16:32] *= 2.0
    return scaled

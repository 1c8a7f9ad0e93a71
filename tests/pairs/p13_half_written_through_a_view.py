"""A view of every second column is filled, and the left half of the columns is read.

On hardware: half of what is read was never written and holds what was there before. The twin fills the view of the
left half, through which the other view is whole. Rests on constraints 116 and 120.
"""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {"code": "NKR010", "target": "trn2", "severity": "blocker"}


@nki.jit
def bad(x):
    """x [128, 64] fp32 -> x; by way of a tile that is as wide again."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.sbuf, name="tile")
    result = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    pairs = tile.reshape((128, 64, 2))
    nisa.dma_copy(dst=pairs[:, :, 0], src=x)
    nisa.tensor_copy(dst=result, src=tile[:, 0:64])  # first
    nisa.dma_copy(dst=out, src=result)  # second
    return out


@nki.jit
def good(x):
    """x [128, 64] fp32 -> x; by way of a tile that is as wide again."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.sbuf, name="tile")
    result = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    halves = tile.reshape((128, 2, 64))
    nisa.dma_copy(dst=halves[:, 0, :], src=x)
    nisa.tensor_scalar(dst=result, data=tile[:, 0:64], op0=nl.multiply, operand0=1.0)
    nisa.dma_copy(dst=out, src=result)
    return out


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((128, 64)).astype(np.float32)]


def reference(x):
    return x

"""One tile takes the blocks of every iteration, so a load waits for the store of the block before.

On hardware: the tile's address is one, so the loads, the exponentials and the stores run one after the
other. The twin allocates inside the loop and the compiler rotates addresses. Rests on constraint 136.
"""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {"code": "NKR160", "target": "trn2", "severity": "major"}


@nki.jit
def bad(x):
    """x [rows, 1024] fp32 -> exp(x), in blocks of 128 rows."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((128, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf, name="tile")
    for row in range(0, x.shape[0], 128):
        nisa.dma_copy(dst=tile, src=x[row : row + 128, :])  # first
        nisa.activation(dst=tile, op=nl.exp, data=tile)
        nisa.dma_copy(dst=out[row : row + 128, :], src=tile)  # second
    return out


@nki.jit
def good(x):
    """x [rows, 1024] fp32 -> exp(x), in blocks of 128 rows, each in a tile of its own."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for row in range(0, x.shape[0], 128):
        tile = nl.ndarray((128, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[row : row + 128, :])
        nisa.activation(dst=tile, op=nl.exp, data=tile)
        nisa.dma_copy(dst=out[row : row + 128, :], src=tile)
    return out


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((640, 1024)).astype(np.float32)]


def reference(x):
    return np.exp(x)

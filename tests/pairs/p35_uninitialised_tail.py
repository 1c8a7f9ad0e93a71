"""The last block of columns is narrower, but the sum runs over the whole tile.

On hardware: the columns behind those that were loaded hold what was there before; the sum may be right by luck. The
twin sums what was loaded. Rests on constraint 116.
"""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {"code": "NKR010", "target": "trn2", "severity": "blocker"}


BLOCK = 256


@nki.jit
def bad(x):
    """x [128, 600] fp32 -> the sums of its rows, 256 columns at a time."""
    out = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    parts = nl.ndarray((128, 3), dtype=nl.float32, buffer=nl.sbuf)
    total = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    for i in range(3):
        size = min(BLOCK, x.shape[1] - i * BLOCK)
        tile = nl.ndarray((128, BLOCK), dtype=x.dtype, buffer=nl.sbuf, name="tile")
        nisa.dma_copy(dst=tile[:, 0:size], src=x[:, i * BLOCK : i * BLOCK + size])
        nisa.tensor_reduce(dst=parts[:, i : i + 1], op=nl.add, data=tile, axis=1, keepdims=True)  # first
    nisa.tensor_reduce(dst=total, op=nl.add, data=parts, axis=1, keepdims=True)
    nisa.dma_copy(dst=out, src=total)  # second
    return out


@nki.jit
def good(x):
    """x [128, 600] fp32 -> the sums of its rows, 256 columns at a time."""
    out = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    parts = nl.ndarray((128, 3), dtype=nl.float32, buffer=nl.sbuf)
    total = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    for i in range(3):
        size = min(BLOCK, x.shape[1] - i * BLOCK)
        tile = nl.ndarray((128, BLOCK), dtype=x.dtype, buffer=nl.sbuf, name="tile")
        nisa.dma_copy(dst=tile[:, 0:size], src=x[:, i * BLOCK : i * BLOCK + size])
        nisa.tensor_reduce(dst=parts[:, i : i + 1], op=nl.add, data=tile[:, 0:size], axis=1, keepdims=True)
    nisa.tensor_reduce(dst=total, op=nl.add, data=parts, axis=1, keepdims=True)
    nisa.dma_copy(dst=out, src=total)
    return out


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((128, 600)).astype(np.float32)]


def reference(x):
    return x.sum(axis=1, keepdims=True)

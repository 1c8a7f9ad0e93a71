"""Core 0 writes the first 64 rows of the result, core 1 the last 33 of 64 rows of a view that are twice as long.

On hardware: rows 62 and 63 are written by both cores, in no order. The twin has core 1 write the last 32 rows of its
view. Rests on constraints 119 and 120: views of one tensor are one storage.
"""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {"code": "NKR025", "target": "trn2", "lnc": 2, "severity": "blocker"}


def scaled(src, factor):
    """What is loaded, times a factor."""
    tile = nl.ndarray(src.shape, dtype=src.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=src)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=factor)
    return tile


@nki.jit
def bad(x):
    """x [128, 64] fp32 -> twice its first 64 rows and three times the others."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm, name="out")
    long = out.reshape((64, 128))
    rows = x.reshape((64, 128))
    if nl.program_id(0) == 0:
        nisa.dma_copy(dst=out[0:64, :], src=scaled(x[0:64, :], 2.0))  # first
    else:
        nisa.dma_copy(dst=long[31:64, :], src=scaled(rows[31:64, :], 3.0))  # second
    return out


@nki.jit
def good(x):
    """x [128, 64] fp32 -> twice its first 64 rows and three times the others."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm, name="out")
    long = out.reshape((64, 128))
    rows = x.reshape((64, 128))
    if nl.program_id(0) == 0:
        nisa.dma_copy(dst=out[0:64, :], src=scaled(x[0:64, :], 2.0))
    else:
        nisa.dma_copy(dst=long[32:64, :], src=scaled(rows[32:64, :], 3.0))
    return out


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((128, 64)).astype(np.float32)]


def reference(x):
    return x * np.where(np.arange(128) < 64, 2.0, 3.0)[:, None]

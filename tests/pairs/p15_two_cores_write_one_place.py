"""Both cores of a launch write row 128 of the result, with other values: their ranges overlap by one row.

On hardware: nothing orders the stores of two cores, so the row holds whichever came last. The twin shares no row.
Rests on constraint 119 and the lnc page (cores share HBM and run on their own).
"""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {"code": "NKR025", "target": "trn2", "lnc": 2, "severity": "blocker"}


def rows(x, first, count, factor):
    """`count` rows of x [256, 64] fp32 from `first` on, times a factor."""
    tile = nl.ndarray((count, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x[first : first + count, :])
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=factor)
    return tile


@nki.jit
def bad(x):
    """x [256, 64] fp32 -> twice its first 128 rows and three times the others."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    if nl.program_id(0) == 0:
        nisa.dma_copy(dst=out[0:128, :], src=rows(x, 0, 128, 2.0))  # first
    else:
        nisa.dma_copy(dst=out[127:255, :], src=rows(x, 127, 128, 3.0))  # second
        nisa.dma_copy(dst=out[255:256, :], src=rows(x, 255, 1, 3.0))
    return out


@nki.jit
def good(x):
    """x [256, 64] fp32 -> twice its first 128 rows and three times the others."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    if nl.program_id(0) == 0:
        nisa.dma_copy(dst=out[0:128, :], src=rows(x, 0, 128, 2.0))
    else:
        nisa.dma_copy(dst=out[128:255, :], src=rows(x, 128, 127, 3.0))
        nisa.dma_copy(dst=out[255:256, :], src=rows(x, 255, 1, 3.0))
    return out


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((256, 64)).astype(np.float32)]


def reference(x):
    return x * np.where(np.arange(256) < 128, 2.0, 3.0)[:, None]

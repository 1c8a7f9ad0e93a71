"""One core waits at a barrier that the other one does not reach.

On hardware: the semaphore never comes and the launch hangs until its timeout. In the twin both cores reach it. Rests on
constraint 106 and the lnc page (139-148).
"""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {"code": "NKR015", "target": "trn2", "lnc": 2, "severity": "blocker"}


@nki.jit
def bad(x):
    """x [256, 64] fp32 -> 2 x, half of it on each core."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    mine = nl.program_id(0) * 128
    tile = nl.ndarray((128, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x[mine : mine + 128, :])
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=out[mine : mine + 128, :], src=tile)
    if nl.program_id(0) == 1:
        nisa.core_barrier(out, (0, 1))  # first
    return out


@nki.jit
def good(x):
    """x [256, 64] fp32 -> 2 x, half of it on each core."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    mine = nl.program_id(0) * 128
    tile = nl.ndarray((128, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x[mine : mine + 128, :])
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=out[mine : mine + 128, :], src=tile)
    nisa.core_barrier(out, (0, 1))
    return out


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((256, 64)).astype(np.float32)]


def reference(x):
    return 2.0 * x

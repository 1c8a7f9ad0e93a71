"""The cores meet at two barriers, one of them first at that on a and the other one first at that on b.

On hardware: each core waits for a semaphore that the other one sends only after its own wait is over; or, where the
semaphores are alike, the barriers pair up wrongly and order nothing. The twin keeps one order. Rests on constraint 106
(control flow that differs between cores).
"""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {"code": "NKR026", "target": "trn2", "lnc": 2, "severity": "blocker"}


def halves(x, factor):
    """This core's half of x [256, 64] fp32 times a factor, in shared HBM."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    mine = nl.program_id(0) * 128
    tile = nl.ndarray((128, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x[mine : mine + 128, :])
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=factor)
    nisa.dma_copy(dst=out[mine : mine + 128, :], src=tile)
    return out


@nki.jit
def bad(x):
    """x [256, 64] fp32 -> 2 x and 3 x."""
    a, b = halves(x, 2.0), halves(x, 3.0)
    if nl.program_id(0) == 0:
        nisa.core_barrier(a, (0, 1))  # first
        nisa.core_barrier(b, (0, 1))
    else:
        nisa.core_barrier(b, (0, 1))  # second
        nisa.core_barrier(a, (0, 1))
    return a, b


@nki.jit
def good(x):
    """x [256, 64] fp32 -> 2 x and 3 x."""
    a, b = halves(x, 2.0), halves(x, 3.0)
    if nl.program_id(0) == 0:
        nisa.core_barrier(a, (0, 1))
        nisa.core_barrier(b, (0, 1))
    else:
        nisa.core_barrier(a, (0, 1))
        nisa.core_barrier(b, (0, 1))
    return a, b


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((256, 64)).astype(np.float32)]


def reference(x):
    return 2.0 * x, 3.0 * x

"""The cores send to each other by pipes of different numbers.

On hardware: operations of one pipe wait for each other; these two never meet and the launch hangs. The twin uses one
pipe. Rests on nisa.sendrecv (isa stubs, 2993-2995).
"""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {"code": "NKR015", "target": "trn2", "lnc": 2, "severity": "blocker"}


@nki.jit
def bad(x):
    """x [256, 64] fp32 -> its halves swapped by the cores."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    core = nl.program_id(0)
    mine = core * 128
    tile = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf)
    theirs = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x[mine : mine + 128, :])
    if core == 0:
        nisa.sendrecv(tile, theirs, send_to_rank=1, recv_from_rank=1, pipe_id=0)  # first
    else:
        nisa.sendrecv(tile, theirs, send_to_rank=0, recv_from_rank=0, pipe_id=1)  # second
    nisa.dma_copy(dst=out[mine : mine + 128, :], src=theirs)
    return out


@nki.jit
def good(x):
    """x [256, 64] fp32 -> its halves swapped by the cores."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    core = nl.program_id(0)
    mine = core * 128
    tile = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf)
    theirs = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x[mine : mine + 128, :])
    if core == 0:
        nisa.sendrecv(tile, theirs, send_to_rank=1, recv_from_rank=1, pipe_id=0)
    else:
        nisa.sendrecv(tile, theirs, send_to_rank=0, recv_from_rank=0, pipe_id=0)
    nisa.dma_copy(dst=out[mine : mine + 128, :], src=theirs)
    return out


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((256, 64)).astype(np.float32)]


def reference(x):
    return np.concatenate([x[128:], x[:128]])

"""The cores meet at a barrier on a tensor that neither of them writes, and not on the one they exchange.

On hardware: a barrier is for its tensor: the compiler orders it after the stores to, and before the loads from, that
one; those of another tensor may pass it. The twin names the tensor that is exchanged. Rests on nisa.core_barrier (isa
stubs, 2623-2628).
"""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {"code": "NKR025", "target": "trn2", "lnc": 2, "severity": "major"}


@nki.jit
def bad(x):
    """x [256, 64] fp32 -> each half less the other one."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    between = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm, name="between")
    unrelated = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm, name="unrelated")
    mine = nl.program_id(0) * 128
    other = 128 - mine
    tile = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf)
    theirs = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x[mine : mine + 128, :])
    nisa.dma_copy(dst=between[mine : mine + 128, :], src=tile)  # first
    nisa.core_barrier(unrelated, (0, 1))
    nisa.dma_copy(dst=theirs, src=between[other : other + 128, :])  # second
    nisa.tensor_tensor(dst=tile, data1=tile, data2=theirs, op=nl.subtract)
    nisa.dma_copy(dst=out[mine : mine + 128, :], src=tile)
    return out


@nki.jit
def good(x):
    """x [256, 64] fp32 -> each half less the other one."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    between = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm, name="between")
    mine = nl.program_id(0) * 128
    other = 128 - mine
    tile = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf)
    theirs = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x[mine : mine + 128, :])
    nisa.dma_copy(dst=between[mine : mine + 128, :], src=tile)
    nisa.core_barrier(between, (0, 1))
    nisa.dma_copy(dst=theirs, src=between[other : other + 128, :])
    nisa.tensor_tensor(dst=tile, data1=tile, data2=theirs, op=nl.subtract)
    nisa.dma_copy(dst=out[mine : mine + 128, :], src=tile)
    return out


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((256, 64)).astype(np.float32)]


def reference(x):
    return np.concatenate([x[:128] - x[128:], x[128:] - x[:128]])

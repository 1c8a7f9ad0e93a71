"""The cores meet before they store what the other one is to load.

On hardware: nothing is between the store of a core and the load of the other one. The twin meets after the stores.
Rests on nisa.core_barrier (isa stubs, 2612-2616).
"""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {"code": "NKR025", "target": "trn2", "lnc": 2, "severity": "blocker"}


@nki.jit
def bad(x):
    """x [256, 64] fp32 -> each half less the other one."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    between = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm, name="between")
    mine = nl.program_id(0) * 128
    other = 128 - mine
    tile = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf)
    theirs = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x[mine : mine + 128, :])
    nisa.core_barrier(between, (0, 1))
    nisa.dma_copy(dst=between[mine : mine + 128, :], src=tile)  # first
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

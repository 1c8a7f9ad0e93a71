"""Both cores of a launch compute and store the whole sum.

On hardware: no faster than one core, and HBM moves everything twice. In the twin each core brings its half, one after
the other: they store to one place, but not the same work. Rests on lnc.rst:10-24 and nisa.core_barrier (2612-2616).
"""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {"code": "NKR165", "target": "trn2", "lnc": 2, "severity": "major"}


@nki.jit
def bad(x):
    """x [256, 512] fp32 -> x[:128] + x[128:]."""
    out = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    upper = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
    lower = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=upper, src=x[0:128, :])
    nisa.dma_copy(dst=lower, src=x[128:256, :])
    nisa.tensor_tensor(dst=upper, data1=upper, data2=lower, op=nl.add)
    nisa.dma_copy(dst=out, src=upper)  # first
    return out


@nki.jit
def good(x):
    """x [256, 512] fp32 -> x[:128] + x[128:]."""
    out = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    core = nl.program_id(0)
    mine = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=mine, src=x[core * 128 : core * 128 + 128, :])
    if core == 0:
        nisa.dma_copy(dst=out, src=mine)
    nisa.core_barrier(out, (0, 1))
    if core == 1:
        theirs = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=theirs, src=out)
        nisa.tensor_tensor(dst=mine, data1=mine, data2=theirs, op=nl.add)
        nisa.dma_copy(dst=out, src=mine)
    return out


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((256, 512)).astype(np.float32)]


def reference(x):
    return x[:128] + x[128:]

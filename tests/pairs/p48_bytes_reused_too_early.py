"""The second of two tiles takes half of the bytes of the first one before that is read.

On hardware: the load of b destroys the right half of a. The twin has the same addresses and loads b when a is used up:
to reuse bytes by address is what addresses are for, and right. Rests on constraint 16 (tiles that are alive at the same
time).
"""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {"code": "NKR103", "target": "trn2", "severity": "blocker"}


@nki.jit
def bad(x):
    """x [256, 64] fp32 -> 2 x."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    a = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf, name="a", address=(0, 0))
    b = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf, name="b", address=(0, 128))
    c = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf, name="c", address=(0, 1024))
    d = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf, name="d", address=(0, 2048))
    nisa.dma_copy(dst=a, src=x[0:128, :])
    nisa.dma_copy(dst=b, src=x[128:256, :])  # first
    nisa.tensor_scalar(dst=c, data=a, op0=nl.multiply, operand0=2.0)  # second
    nisa.tensor_scalar(dst=d, data=b, op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=out[0:128, :], src=c)
    nisa.dma_copy(dst=out[128:256, :], src=d)
    return out


@nki.jit
def good(x):
    """x [256, 64] fp32 -> 2 x."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    a = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf, name="a", address=(0, 0))
    b = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf, name="b", address=(0, 128))
    c = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf, name="c", address=(0, 1024))
    d = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf, name="d", address=(0, 2048))
    nisa.dma_copy(dst=a, src=x[0:128, :])
    nisa.tensor_scalar(dst=c, data=a, op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=b, src=x[128:256, :])
    nisa.tensor_scalar(dst=d, data=b, op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=out[0:128, :], src=c)
    nisa.dma_copy(dst=out[128:256, :], src=d)
    return out


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((256, 64)).astype(np.float32)]


def reference(x):
    return 2.0 * x

"""One tile has an explicit address and the other is left to the allocator.

On hardware: compilers are reported to refuse the mixture (NCC_EGCA111), since what the allocator places may
collide with the kernel's own addresses; as a kernel of AWS has one, this is worth a note and no more. The twin
places both. Rests on constraint 15.
"""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {"code": "NKR112", "target": "trn2", "severity": "note"}


@nki.jit
def bad(x):
    """x [128, 64] fp32 -> 2 x."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    a = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf, name="a", address=(0, 0))  # first
    b = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf, name="b")  # second
    nisa.dma_copy(dst=a, src=x)
    nisa.tensor_scalar(dst=b, data=a, op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=out, src=b)
    return out


@nki.jit
def good(x):
    """x [128, 64] fp32 -> 2 x; both tiles are placed."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    a = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf, name="a", address=(0, 0))
    b = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf, name="b", address=(0, 256))
    nisa.dma_copy(dst=a, src=x)
    nisa.tensor_scalar(dst=b, data=a, op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=out, src=b)
    return out


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((128, 64)).astype(np.float32)]


def reference(x):
    return 2.0 * x

"""A matmul of 512 columns writes from the middle of one bank of PSUM into the next.

On hardware: on NeuronCore-v2 and -v3 the output of a matmul lies in one bank of 2 KiB; on -v4 it may span all eight,
so that the same kernel is right on trn3. The twin begins at a bank. Rests on constraint 13.
"""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {"code": "NKR001", "target": "trn2", "severity": "blocker", "legal_on": "trn3"}


def product(a, b, first):
    """a.T @ b for a [128, 128], b [128, 512] fp32, in a tile of two banks from column `first`."""
    out = nl.ndarray(b.shape, dtype=b.dtype, buffer=nl.shared_hbm)
    left = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    right = nl.ndarray(b.shape, dtype=b.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=left, src=a)
    nisa.dma_copy(dst=right, src=b)
    banks = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=banks[:, first : first + 512], stationary=left, moving=right)  # first
    result = nl.ndarray(b.shape, dtype=b.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=result, src=banks[:, first : first + 512])
    nisa.dma_copy(dst=out, src=result)
    return out


@nki.jit
def bad(a, b):
    """a [128, 128], b [128, 512] fp32 -> a.T @ b, from the middle of a bank."""
    return product(a, b, 256)


@nki.jit
def good(a, b):
    """a [128, 128], b [128, 512] fp32 -> a.T @ b, from the start of a bank."""
    return product(a, b, 512)


def inputs(seed=0):
    draw = np.random.default_rng(seed).standard_normal
    return [draw((128, 128)).astype(np.float32), draw((128, 512)).astype(np.float32)]


def reference(a, b):
    return a.T @ b

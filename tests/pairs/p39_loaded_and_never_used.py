"""A second operand is loaded with every block, and the sum takes the first one twice.

On hardware: a third of what the kernel moves is thrown away. The twin uses what it loads. Rests on nki_perf_guide
117-140.
"""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {"code": "NKR108", "target": "trn2", "severity": "major"}


@nki.jit
def bad(x, y):
    """x, y [rows, 1024] fp32 -> 2 x."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for row in range(0, x.shape[0], 128):
        a = nl.ndarray((128, 1024), dtype=x.dtype, buffer=nl.sbuf)
        b = nl.ndarray((128, 1024), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=a, src=x[row : row + 128, :])
        nisa.dma_copy(dst=b, src=y[row : row + 128, :])  # first
        nisa.tensor_tensor(dst=a, data1=a, data2=a, op=nl.add)
        nisa.dma_copy(dst=out[row : row + 128, :], src=a)
    return out


@nki.jit
def good(x, y):
    """x, y [rows, 1024] fp32 -> x + y."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for row in range(0, x.shape[0], 128):
        a = nl.ndarray((128, 1024), dtype=x.dtype, buffer=nl.sbuf)
        b = nl.ndarray((128, 1024), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=a, src=x[row : row + 128, :])
        nisa.dma_copy(dst=b, src=y[row : row + 128, :])
        nisa.tensor_tensor(dst=a, data1=a, data2=b, op=nl.add)
        nisa.dma_copy(dst=out[row : row + 128, :], src=a)
    return out


def inputs(seed=0):
    draw = np.random.default_rng(seed).standard_normal
    return [draw((640, 1024)).astype(np.float32), draw((640, 1024)).astype(np.float32)]


def reference(x, y):
    return 2.0 * x


def reference_good(x, y):
    return x + y

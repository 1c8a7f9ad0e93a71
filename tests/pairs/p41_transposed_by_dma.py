"""The operand of a matmul is transposed by the access pattern of its load.

On hardware: neighbours on chip lie a row apart in HBM, so that each descriptor moves four bytes. The twin loads rows
and transposes with the Tensor engine. Rests on constraint 125 (nki_perf_guide 824-930).
"""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {"code": "NKR122", "target": "trn2", "severity": "major"}


def multiplied(left, b):
    """left.T @ b for left in SBUF, b [128, 128] fp32."""
    out = nl.ndarray((128, 128), dtype=b.dtype, buffer=nl.shared_hbm)
    right = nl.ndarray((128, 128), dtype=b.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=right, src=b)
    product = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(product, left, right)
    result = nl.ndarray((128, 128), dtype=b.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=result, src=product)
    nisa.dma_copy(dst=out, src=result)
    return out


@nki.jit
def bad(a, b):
    """a, b [128, 128] fp32 -> a @ b."""
    left = nl.ndarray((128, 128), dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=left, src=a.ap([[1, 128], [128, 128]], offset=0))  # first
    return multiplied(left, b)


@nki.jit
def good(a, b):
    """a, b [128, 128] fp32 -> a @ b."""
    rows = nl.ndarray((128, 128), dtype=a.dtype, buffer=nl.sbuf)
    flipped = nl.ndarray((128, 128), dtype=a.dtype, buffer=nl.psum)
    left = nl.ndarray((128, 128), dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=rows, src=a)
    nisa.nc_transpose(dst=flipped, data=rows)
    nisa.tensor_copy(dst=left, src=flipped)
    return multiplied(left, b)


def inputs(seed=0):
    draw = np.random.default_rng(seed).standard_normal
    return [draw((128, 128)).astype(np.float32), draw((128, 128)).astype(np.float32)]


def reference(a, b):
    return a @ b

"""Three accumulators of three banks each: nine banks are open at once, and PSUM has eight.

On hardware: an accumulator keeps its banks until it is copied out, so the matmuls of the third one find no bank, and
PSUM is not spilled. The twin copies each before the next begins. Rests on constraint 11 (16 KiB a partition).
"""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {"code": "NKR102", "target": "trn2", "severity": "major"}


BANK = 512


def operand(x):
    """x [128, columns] fp32 as an SBUF tile."""
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    return tile


def summed(left, right, first, banks):
    """The product of left and `banks` blocks of 512 columns of right, in one PSUM tile of as many banks."""
    product = nl.ndarray((128, banks, BANK), dtype=nl.float32, buffer=nl.psum)  # first
    for bank in range(banks):
        start = first + bank * BANK
        nisa.nc_matmul(product[:, bank, :], left, right[:, start : start + BANK])  # second
    return product


@nki.jit
def bad(a, b):
    """a [128, 128], b [128, 4608] fp32 -> a.T @ b; copied when all products are made."""
    out = nl.ndarray(b.shape, dtype=b.dtype, buffer=nl.shared_hbm)
    left, right = operand(a), operand(b)
    result = nl.ndarray((128, 9, BANK), dtype=b.dtype, buffer=nl.sbuf)
    products = [summed(left, right, first * BANK, 3) for first in (0, 3, 6)]
    for at, product in enumerate(products):
        nisa.tensor_copy(dst=result[:, 3 * at : 3 * at + 3, :], src=product)
    nisa.dma_copy(dst=out, src=result.reshape(b.shape))
    return out


@nki.jit
def good(a, b):
    """a [128, 128], b [128, 4608] fp32 -> a.T @ b; each product is copied before the next."""
    out = nl.ndarray(b.shape, dtype=b.dtype, buffer=nl.shared_hbm)
    left, right = operand(a), operand(b)
    result = nl.ndarray((128, 9, BANK), dtype=b.dtype, buffer=nl.sbuf)
    for at in range(3):
        product = summed(left, right, 3 * at * BANK, 3)
        nisa.tensor_copy(dst=result[:, 3 * at : 3 * at + 3, :], src=product)
    nisa.dma_copy(dst=out, src=result.reshape(b.shape))
    return out


def inputs(seed=0):
    draw = np.random.default_rng(seed).standard_normal
    return [draw((128, 128)).astype(np.float32), draw((128, 4608)).astype(np.float32)]


def reference(a, b):
    return a.T @ b

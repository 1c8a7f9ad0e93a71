"""Each product is copied to another tile of the same dtype and layout before it is used."""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np


def sbuf(rows, columns, dtype=nl.float32):
    """A fresh SBUF tile."""
    return nl.ndarray((rows, columns), dtype=dtype, buffer=nl.sbuf)


def multiplied(left, right, extra):
    if extra:
        copied = sbuf(*left.shape)
        nisa.tensor_copy(dst=copied, src=left)
        left = copied
    product = sbuf(*left.shape)
    nisa.tensor_tensor(dst=product, data1=left, data2=right, op=nl.multiply)
    return product


def power(x, extra):
    """x [128, 1024] fp32 -> x ** 17, one factor after the other."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    base = sbuf(*x.shape)
    nisa.dma_copy(dst=base, src=x)
    result = base
    for _ in range(16):
        result = multiplied(result, base, extra)
    nisa.dma_copy(dst=out, src=result)
    return out


@nki.jit
def bad(x):
    """With a copy before each product."""
    return power(x, True)


@nki.jit
def good(x):
    """Without it."""
    return power(x, False)


def inputs(seed=0):
    return [np.random.default_rng(seed).uniform(0.9, 1.1, (128, 1024)).astype(np.float32)]


def reference(x):
    return x**17

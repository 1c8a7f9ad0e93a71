"""A factor by tensor_scalar, then a tile by tensor_tensor."""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np


def sbuf(rows, columns, dtype=nl.float32):
    """A fresh SBUF tile."""
    return nl.ndarray((rows, columns), dtype=dtype, buffer=nl.sbuf)


def chain(x, step):
    """x [128, 2048] fp32, eight steps one after the other"""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    start = sbuf(*x.shape)
    nisa.dma_copy(dst=start, src=x)
    result = start
    for _ in range(8):
        made = sbuf(*x.shape)
        step(made, result, start)
        result = made
    nisa.dma_copy(dst=out, src=result)
    return out


def apart(made, last, start):
    scaled = sbuf(*last.shape)
    nisa.tensor_scalar(dst=scaled, data=last, op0=nl.multiply, operand0=0.5)
    nisa.tensor_tensor(dst=made, data1=scaled, data2=start, op=nl.add)


def together(made, last, start):
    nisa.scalar_tensor_tensor(dst=made, data=last, op0=nl.multiply, operand0=0.5, op1=nl.add, operand1=start)


@nki.jit
def bad(x):
    """Two instructions."""
    return chain(x, apart)


@nki.jit
def good(x):
    """One."""
    return chain(x, together)


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((128, 2048)).astype(np.float32)]


def reference(x):
    result = x
    for _ in range(8):
        result = 0.5 * result + x
    return result

"""A factor and a summand by two tensor_scalar instructions."""

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
    nisa.tensor_scalar(dst=made, data=scaled, op0=nl.add, operand0=1.0)


def together(made, last, start):
    nisa.tensor_scalar(dst=made, data=last, op0=nl.multiply, operand0=0.5, op1=nl.add, operand1=1.0)


@nki.jit
def bad(x):
    """One operator each."""
    return chain(x, apart)


@nki.jit
def good(x):
    """Both operators in one."""
    return chain(x, together)


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((128, 2048)).astype(np.float32)]


def reference(x):
    for _ in range(8):
        x = 0.5 * x + 1.0
    return x

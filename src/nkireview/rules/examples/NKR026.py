"""One core meets the other at the barrier on the first tensor, which that one passes after that on the second."""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

LNC = 2


def scaled(x, factor):
    """This core's half of x [256, columns] fp32 times a factor, in a tensor of both cores."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    first = nl.program_id(0) * 128
    tile = nl.ndarray((128, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x[first : first + 128, :])
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=factor)
    nisa.dma_copy(dst=out[first : first + 128, :], src=tile)
    return out


@nki.jit
def bad(x):
    """x [256, columns] fp32 -> 2 x, 3 x"""
    double, triple = scaled(x, 2.0), scaled(x, 3.0)
    if nl.program_id(0) == 0:
        nisa.core_barrier(double, (0, 1))
        nisa.core_barrier(triple, (0, 1))
    else:
        nisa.core_barrier(triple, (0, 1))
        nisa.core_barrier(double, (0, 1))
    return double, triple


@nki.jit
def good(x):
    """Both cores pass both barriers in one order."""
    double, triple = scaled(x, 2.0), scaled(x, 3.0)
    nisa.core_barrier(double, (0, 1))
    nisa.core_barrier(triple, (0, 1))
    return double, triple


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((256, 64)).astype(np.float32)]


def reference(x):
    return 2.0 * x, 3.0 * x

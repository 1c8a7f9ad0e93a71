"""Each core takes its half from what the other one has stored; nothing says that it has."""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

LNC = 2


def swapped(x, meet):
    """Each core stores one half of x [256, columns] fp32, doubled, and returns the other one plus one."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    between = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    mine = nl.program_id(0) * 128
    other = 128 - mine
    tile = nl.ndarray((128, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x[mine : mine + 128, :])
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=between[mine : mine + 128, :], src=tile)
    if meet:
        nisa.core_barrier(between, (0, 1))
    theirs = nl.ndarray((128, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=theirs, src=between[other : other + 128, :])
    nisa.tensor_scalar(dst=theirs, data=theirs, op0=nl.add, operand0=1.0)
    nisa.dma_copy(dst=out[other : other + 128, :], src=theirs)
    return out


@nki.jit
def bad(x):
    """x [256, columns] fp32 -> 2 x + 1"""
    return swapped(x, False)


@nki.jit
def good(x):
    """The cores meet when both have stored their half."""
    return swapped(x, True)


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((256, 64)).astype(np.float32)]


def reference(x):
    return 2.0 * x + 1.0

"""A schedule asks for an instruction after the one that reads what it writes."""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np


def load(x, dtype=None):
    """x [rows, columns] as an SBUF tile."""
    tile = nl.ndarray(x.shape, dtype=dtype or x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    return tile


def store(tile, dtype=None):
    """A tile as a result in HBM."""
    out = nl.ndarray(tile.shape, dtype=dtype or tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


def summed(x):
    """x [128, columns] fp32, above 0: 1 / x + x + 1."""
    held = load(x)
    a, b, c = (nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf) for _ in range(3))
    nisa.reciprocal(dst=a, data=held, name="recip")
    nisa.tensor_scalar(dst=b, data=held, op0=nl.add, operand0=1.0, name="plus1")
    nisa.tensor_tensor(dst=c, data1=a, data2=b, op=nl.add, name="sum")
    return store(c)


def after(consumer, producer):
    """Makes a kernel in which one instruction runs after another."""

    def scheduled(function):
        return nki.jit(function).with_schedule([(consumer, producer)])

    return scheduled


@after("plus1", "sum")
def bad(x):
    """x [128, columns] fp32, above 0."""
    return summed(x)


@after("recip", "plus1")
def good(x):
    """x [128, columns] fp32, above 0."""
    return summed(x)


def inputs(seed=0):
    return [np.random.default_rng(seed).uniform(1, 2, (128, 64)).astype(np.float32)]


def reference(x):
    return 1 / x + x + 1

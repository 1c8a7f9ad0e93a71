"""A scheduling edge contradicts a dependence that runs through two views of one tile.

On hardware: the sum reads the whole tile, and so what the other instruction wrote through the reshaped view; each waits
for the other. The twin writes the other half through the view, which the sum does not read. Rests on
how-to-scheduling-apis (48-59) and constraint 120.
"""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {"code": "NKR029", "target": "trn2", "severity": "blocker"}


def body(x, half):
    out = nl.ndarray((128, 33), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf, name="tile")
    total = nl.ndarray((128, 1), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    halves = tile.reshape((128, 2, 32))
    part = halves[:, half, :]
    nisa.tensor_scalar(dst=part, data=part, op0=nl.multiply, operand0=2.0, name="twice")  # first
    nisa.tensor_reduce(total, nl.add, tile[:, 0:32], axis=1, keepdims=True, name="total")  # second
    nisa.dma_copy(dst=out[:, 0:32], src=part)
    nisa.dma_copy(dst=out[:, 32:33], src=total)
    return out


@nki.jit
def first(x):
    """x [128, 64] fp32 -> twice its first half, beside the sums of that."""
    return body(x, 0)


@nki.jit
def last(x):
    """x [128, 64] fp32 -> twice its last half, beside the sums of the first one."""
    return body(x, 1)


bad = first.with_schedule([("twice", "total")])
good = last.with_schedule([("twice", "total")])


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((128, 64)).astype(np.float32)]


def reference(x):
    return np.concatenate([2.0 * x[:, :32], 2.0 * x[:, :32].sum(axis=1, keepdims=True)], axis=1)


def reference_good(x):
    return np.concatenate([2.0 * x[:, 32:], x[:, :32].sum(axis=1, keepdims=True)], axis=1)

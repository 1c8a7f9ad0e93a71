"""The maximum of another tensor stands between the two halves of a running maximum.

On hardware: the Vector engine has one set of accumulator registers, so the second half goes on with what that one
left. The twin finishes one before it begins the other. Rests on constraint 62 (isa stubs 2356-2365).
"""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {"code": "NKR019", "target": "trn2", "severity": "major"}


BEGIN, GO_ON = nisa.reduce_cmd.reset_reduce, nisa.reduce_cmd.reduce


def column():
    """A tile of one fp32 column."""
    return nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)


def loaded(x):
    """x in SBUF."""
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    return tile


def stored(tile):
    """A tile as a result."""
    out = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


@nki.jit
def bad(x, y):
    """x, y [128, 64] fp32 -> the largest of each row of either."""
    a, b, top, low = loaded(x), loaded(y), column(), column()
    left, right = a[:, :32], a[:, 32:]
    nisa.tensor_scalar_reduce(left, left, nl.multiply, 1.0, nl.maximum, top, reduce_cmd=BEGIN)
    nisa.tensor_scalar_reduce(b, b, nl.multiply, 1.0, nl.maximum, low, reduce_cmd=BEGIN)  # first
    nisa.tensor_scalar_reduce(right, right, nl.multiply, 1.0, nl.maximum, top, reduce_cmd=GO_ON)  # second
    return stored(top), stored(low)


@nki.jit
def good(x, y):
    """x, y [128, 64] fp32 -> the largest of each row of either."""
    a, b, top, low = loaded(x), loaded(y), column(), column()
    left, right = a[:, :32], a[:, 32:]
    nisa.tensor_scalar_reduce(left, left, nl.multiply, 1.0, nl.maximum, top, reduce_cmd=BEGIN)
    nisa.tensor_scalar_reduce(right, right, nl.multiply, 1.0, nl.maximum, top, reduce_cmd=GO_ON)
    nisa.tensor_scalar_reduce(b, b, nl.multiply, 1.0, nl.maximum, low, reduce_cmd=BEGIN)
    return stored(top), stored(low)


def inputs(seed=0):
    draw = np.random.default_rng(seed).standard_normal
    return [draw((128, 64)).astype(np.float32), draw((128, 64)).astype(np.float32)]


def reference(x, y):
    return x.max(axis=1, keepdims=True), y.max(axis=1, keepdims=True)

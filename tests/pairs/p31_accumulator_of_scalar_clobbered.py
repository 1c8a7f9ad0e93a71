"""An activation that sums y stands between two activations that sum the halves of x.

On hardware: the Scalar engine has one set of accumulator registers; the sum of the second half starts from that of y.
A plain activation, with reduce_cmd idle, leaves them alone, and the twin has one at that place. Rests on constraint 63
(isa stubs 1350-1382).
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
    """x, y [128, 64] fp32 -> the sums of the rows of x and of y."""
    a, b, sums, small = loaded(x), loaded(y), column(), column()
    left, right = a[:, :32], a[:, 32:]
    nisa.activation(left, nl.copy, left, reduce_op=nl.add, reduce_res=sums, reduce_cmd=BEGIN)
    nisa.activation(b, nl.copy, b, reduce_op=nl.add, reduce_res=small, reduce_cmd=BEGIN)  # first
    nisa.activation(right, nl.copy, right, reduce_op=nl.add, reduce_res=sums, reduce_cmd=GO_ON)  # second
    return stored(sums), stored(small)


@nki.jit
def good(x, y):
    """x, y [128, 64] fp32 -> the sums of the rows of x and of y."""
    a, b, sums, small = loaded(x), loaded(y), column(), column()
    left, right = a[:, :32], a[:, 32:]
    nisa.activation(left, nl.copy, left, reduce_op=nl.add, reduce_res=sums, reduce_cmd=BEGIN)
    nisa.activation(b, nl.copy, b)
    nisa.activation(right, nl.copy, right, reduce_op=nl.add, reduce_res=sums, reduce_cmd=GO_ON)
    nisa.tensor_reduce(small, nl.add, b, axis=1, keepdims=True)
    return stored(sums), stored(small)


def inputs(seed=0):
    draw = np.random.default_rng(seed).standard_normal
    return [draw((128, 64)).astype(np.float32), draw((128, 64)).astype(np.float32)]


def reference(x, y):
    return x.sum(axis=1, keepdims=True), y.sum(axis=1, keepdims=True)

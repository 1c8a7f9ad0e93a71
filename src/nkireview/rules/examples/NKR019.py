"""Two reductions in turns: the first goes on with what the second left, and is right by luck."""

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


def largest(x, y, in_turns):
    """The largest of rows of x and of y [128, columns] fp32; the first half of x is looked at twice."""
    tile, other, half = load(x), load(y), x.shape[1] // 2
    top, low = (nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf) for _ in range(2))
    begin, go_on = nisa.reduce_cmd.reset_reduce, nisa.reduce_cmd.reduce
    nisa.tensor_scalar_reduce(
        tile[:, :half], tile[:, :half], nl.multiply, 1.0, nl.maximum, reduce_res=top, reduce_cmd=begin
    )
    if in_turns:
        nisa.tensor_scalar_reduce(
            other, other, nl.multiply, 1.0, nl.maximum, reduce_res=low, reduce_cmd=begin
        )
    nisa.tensor_scalar_reduce(tile, tile, nl.multiply, 1.0, nl.maximum, reduce_res=top, reduce_cmd=go_on)
    if not in_turns:
        nisa.tensor_scalar_reduce(
            other, other, nl.multiply, 1.0, nl.maximum, reduce_res=low, reduce_cmd=begin
        )
    return store(top), store(low)


@nki.jit
def bad(x, y):
    """x, y [128, columns] fp32."""
    return largest(x, y, True)


@nki.jit
def good(x, y):
    """x, y [128, columns] fp32."""
    return largest(x, y, False)


def inputs(seed=0):
    x = np.random.default_rng(seed).standard_normal((128, 64)).astype(np.float32)
    return [x, x - np.float32(8)]


def reference(x, y):
    return x.max(axis=1, keepdims=True), y.max(axis=1, keepdims=True)

"""A reduction over two tiles that nothing begins."""

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


def total(x, first):
    """The sums of rows of x [128, columns] fp32, doubled, in two halves; `first`: the command of the first one."""
    t = load(x)
    half = x.shape[1] // 2
    sums = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    for at, command in ((0, first), (half, nisa.reduce_cmd.reduce)):
        part = t[:, at : at + half]
        nisa.tensor_scalar_reduce(
            dst=part,
            data=part,
            op0=nl.multiply,
            operand0=2.0,
            reduce_op=nl.add,
            reduce_res=sums,
            reduce_cmd=command,
        )
    return store(sums)


@nki.jit
def bad(x):
    """x [128, columns] fp32."""
    return total(x, nisa.reduce_cmd.reduce)


@nki.jit
def good(x):
    """x [128, columns] fp32."""
    return total(x, nisa.reduce_cmd.reset_reduce)


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((128, 64)).astype(np.float32)]


def reference(x):
    return 2.0 * x.sum(axis=1, keepdims=True)

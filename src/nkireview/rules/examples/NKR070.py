"""The positions of 512 columns in bfloat16, which holds 256 of them."""

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


def position(x, dtype):
    """The column of the largest element of each row of x [128, columns] fp32."""
    t = load(x)
    index = nl.ndarray(x.shape, dtype=dtype, buffer=nl.sbuf)
    nisa.iota(dst=index, pattern=[[1, x.shape[1]]])
    m = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=m, op=nl.maximum, data=t, axis=1, keepdims=True)
    found = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=found, data=t, op0=nl.equal, operand0=m)
    nisa.tensor_tensor(dst=found, data1=found, data2=index, op=nl.multiply)
    nisa.tensor_reduce(dst=m, op=nl.maximum, data=found, axis=1, keepdims=True)
    return store(m)


@nki.jit
def bad(x):
    """x [128, columns] fp32; right as long as the largest is among the first 256 columns."""
    return position(x, nl.bfloat16)


@nki.jit
def good(x):
    """x [128, columns] fp32."""
    return position(x, nl.float32)


def inputs(seed=0):
    # the second half of each row is small
    x = np.random.default_rng(seed).permutation(128 * 512).reshape(128, 512).astype(np.float32)
    x[:, 256:] *= 0.5
    return [x]


def reference(x):
    return x.argmax(axis=1)[:, None].astype(np.float64)

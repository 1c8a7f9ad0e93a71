"""Products of 32-bit integers beyond 2**24 on Vector."""

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


def mixed(x, engine):
    """x [rows, columns] int32, each element mixed with its position, which comes from a product."""
    index = nl.ndarray(x.shape, dtype=nl.int32, buffer=nl.sbuf)
    nisa.iota(dst=index, pattern=[[1, x.shape[1]]], channel_multiplier=x.shape[1])
    step = nl.ndarray(x.shape, dtype=nl.int32, buffer=nl.sbuf)
    nisa.memset(dst=step, value=8193)
    nisa.tensor_tensor(dst=index, data1=index, data2=step, op=nl.multiply, engine=engine)
    nisa.tensor_scalar(dst=index, data=index, op0=nl.right_shift, operand0=13)
    nisa.tensor_tensor(dst=index, data1=index, data2=load(x), op=nl.bitwise_xor)
    return store(index)


@nki.jit
def bad(x):
    """x [rows, columns] int32; right as long as the shift drops the digits that are wrong."""
    return mixed(x, nisa.engine.vector)


@nki.jit
def good(x):
    """x [rows, columns] int32."""
    return mixed(x, nisa.engine.gpsimd)


def inputs(seed=0):
    return [np.random.default_rng(seed).integers(0, 1000, (64, 64), dtype=np.int32)]


def reference(x):
    return ((np.arange(x.size).reshape(x.shape) * 8193) >> 13) ^ x

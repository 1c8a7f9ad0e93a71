"""Three tiles of 80,000 bytes, each made from the one before it, and both of the first two are read after the third.

On hardware: when c is made, b is its operand, and a waits for a product that needs c: 240,000 of 212,984 usable bytes
in every order that keeps the data, so the compiler has to spill or give up. The twin uses b up before it loads a for a
second time. Rests on constraints 9 and 10.
"""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {"code": "NKR104", "target": "trn2", "severity": "blocker"}


ROOM = 20000


def tile_of(x):
    """A tile of 80,000 bytes a partition, of which as many columns are used as x has."""
    tile = nl.ndarray((128, ROOM), dtype=x.dtype, buffer=nl.sbuf)  # second
    return tile[:, 0 : x.shape[1]]


def block(x):
    """x in a tile."""
    tile = tile_of(x)
    nisa.dma_copy(dst=tile, src=x)
    return tile


def stored(out, one, other):
    """The product of two tiles as rows of the result."""
    product = nl.ndarray(one.shape, dtype=one.dtype, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=product, data1=one, data2=other, op=nl.multiply)
    nisa.dma_copy(dst=out, src=product)


@nki.jit
def bad(x):
    """x [128, columns] fp32 -> ac and bc, for a = x, b = tanh(a), c = b * b."""
    out = nl.ndarray((256, x.shape[1]), dtype=x.dtype, buffer=nl.shared_hbm)
    a = block(x)
    b = tile_of(x)
    nisa.activation(dst=b, op=nl.tanh, data=a)
    c = tile_of(x)
    nisa.tensor_tensor(dst=c, data1=b, data2=b, op=nl.multiply)  # first
    stored(out[0:128, :], a, c)
    stored(out[128:256, :], b, c)
    return out


@nki.jit
def good(x):
    """x [128, columns] fp32 -> ac and bc, for a = x, b = tanh(a), c = b * b; a is loaded again."""
    out = nl.ndarray((256, x.shape[1]), dtype=x.dtype, buffer=nl.shared_hbm)
    a = block(x)
    b = tile_of(x)
    nisa.activation(dst=b, op=nl.tanh, data=a)
    c = tile_of(x)
    nisa.tensor_tensor(dst=c, data1=b, data2=b, op=nl.multiply)
    stored(out[128:256, :], b, c)
    stored(out[0:128, :], block(x), c)
    return out


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((128, 64)).astype(np.float32)]


def reference(x):
    b = np.tanh(x)
    return np.concatenate([x * b * b, b * b * b])

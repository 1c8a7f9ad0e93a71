"""Three tiles of 80,000 bytes are loaded before the first is used, though two are enough at any time.

On hardware: as written 240,000 of 212,984 usable bytes are alive; a compiler that moves the last load down fits the
kernel, one that does not spills. Other than p03 no blocker. Rests on constraints 9 and 10.
"""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {"code": "NKR101", "target": "trn2", "severity": "major"}


ROOM = 20000


def block(x, row):
    """A tile of 80,000 bytes a partition with 128 rows of x."""
    tile = nl.ndarray((128, ROOM), dtype=x.dtype, buffer=nl.sbuf)  # first
    nisa.dma_copy(dst=tile[:, 0 : x.shape[1]], src=x[row : row + 128, :])
    return tile[:, 0 : x.shape[1]]


def stored(out, row, one, other):
    """The product of two tiles as 128 rows of the result."""
    product = nl.ndarray(one.shape, dtype=one.dtype, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=product, data1=one, data2=other, op=nl.multiply)  # second
    nisa.dma_copy(dst=out[row : row + 128, :], src=product)


@nki.jit
def bad(x):
    """x [384, columns] fp32, blocks a, b, c of 128 rows -> ab, bc, and c squared."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    a = block(x, 0)
    b = block(x, 128)
    c = block(x, 256)
    stored(out, 0, a, b)
    stored(out, 128, b, c)
    stored(out, 256, c, c)
    return out


@nki.jit
def good(x):
    """x [384, columns] fp32, blocks a, b, c of 128 rows -> ab, bc, and c squared; c is loaded once a is used up."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    a = block(x, 0)
    b = block(x, 128)
    stored(out, 0, a, b)
    c = block(x, 256)
    stored(out, 128, b, c)
    stored(out, 256, c, c)
    return out


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((384, 64)).astype(np.float32)]


def reference(x):
    a, b, c = x[:128], x[128:256], x[256:]
    return np.concatenate([a * b, b * c, c * c])

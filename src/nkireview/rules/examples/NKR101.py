"""Three tiles of 80,000 bytes a partition are alive at once, though two are needed at a time."""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np


def sbuf(rows, columns, dtype=nl.float32):
    """A fresh SBUF tile."""
    return nl.ndarray((rows, columns), dtype=dtype, buffer=nl.sbuf)


ROOM = 20000  # columns that a tile has room for


def load(x, row):
    columns = x.shape[1]
    tile = sbuf(128, ROOM)
    nisa.dma_copy(dst=tile[:, 0:columns], src=x[row : row + 128, :])
    return tile[:, 0:columns]


@nki.jit
def bad(x):
    """x [384, columns] fp32 -> the sum of its three blocks of 128 rows; all are loaded first."""
    out = nl.ndarray((128, x.shape[1]), dtype=x.dtype, buffer=nl.shared_hbm)
    blocks = [load(x, row) for row in (0, 128, 256)]
    total = blocks[0]
    for block in blocks[1:]:
        nisa.tensor_tensor(dst=total, data1=total, data2=block, op=nl.add)
    nisa.dma_copy(dst=out, src=total)
    return out


@nki.jit
def good(x):
    """Each block is loaded when the one before it is used up."""
    out = nl.ndarray((128, x.shape[1]), dtype=x.dtype, buffer=nl.shared_hbm)
    total = load(x, 0)
    for row in (128, 256):
        block = load(x, row)
        nisa.tensor_tensor(dst=total, data1=total, data2=block, op=nl.add)
    nisa.dma_copy(dst=out, src=total)
    return out


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((384, 64)).astype(np.float32)]


def reference(x):
    return x[:128] + x[128:256] + x[256:]

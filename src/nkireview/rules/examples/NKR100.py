"""The operands of one instruction exceed SBUF: two rows of 28,000 fp32 elements, 224,000 bytes a partition."""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np


def sbuf(rows, columns, dtype=nl.float32):
    """A fresh SBUF tile."""
    return nl.ndarray((rows, columns), dtype=dtype, buffer=nl.sbuf)


ROOM = 28000  # columns that a tile has room for


@nki.jit
def bad(x):
    """x [128, columns] fp32 -> 2 x; columns <= ROOM."""
    columns = x.shape[1]
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = sbuf(128, ROOM)
    result = sbuf(128, ROOM)
    nisa.dma_copy(dst=tile[:, 0:columns], src=x)
    nisa.tensor_scalar(dst=result[:, 0:columns], data=tile[:, 0:columns], op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=out, src=result[:, 0:columns])
    return out


@nki.jit
def good(x):
    """The result takes the place of the operand."""
    columns = x.shape[1]
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = sbuf(128, ROOM)
    nisa.dma_copy(dst=tile[:, 0:columns], src=x)
    nisa.tensor_scalar(dst=tile[:, 0:columns], data=tile[:, 0:columns], op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=out, src=tile[:, 0:columns])
    return out


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((128, 64)).astype(np.float32)]


def reference(x):
    return 2.0 * x

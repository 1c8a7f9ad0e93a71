"""Column tiles whose last one runs past the end of the row."""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

WIDTH = 24


def doubled(x, end_of):
    """The first half of the rows of x [rows, columns] fp32, doubled; columns by tiles of WIDTH."""
    rows, columns = x.shape[0] // 2, x.shape[1]
    tiles = -(-columns // WIDTH)
    t = nl.ndarray((rows, tiles * WIDTH), dtype=x.dtype, buffer=nl.sbuf)
    nisa.memset(dst=t, value=0.0)
    for start in range(0, columns, WIDTH):
        end = end_of(start, columns)
        nisa.dma_copy(dst=t[:, start:end], src=x[:rows, start:end])
    nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=2.0)
    out = nl.ndarray((rows, columns), dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=t[:, :columns])
    return out


@nki.jit
def bad(x):
    """x [rows, columns] fp32; the last tile takes the first columns of the next row along."""
    return doubled(x, lambda start, columns: start + WIDTH)


@nki.jit
def good(x):
    """x [rows, columns] fp32."""
    return doubled(x, lambda start, columns: min(start + WIDTH, columns))


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((64, 64)).astype(np.float32)]


def reference(x):
    return 2.0 * x[: x.shape[0] // 2]

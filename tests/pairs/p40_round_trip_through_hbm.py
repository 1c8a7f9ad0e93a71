"""The squares go to HBM and come back for their sums, though all of them fit in SBUF.

On hardware: a store and a load of 2 MiB, and a latency of some 2 us each way, for data that was on chip. The twin keeps
the tiles. Rests on nki_perf_guide 117-170.
"""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {"code": "NKR106", "target": "trn2", "severity": "major"}


def square(x, row):
    """The squares of 128 rows of x in SBUF."""
    tile = nl.ndarray((128, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x[row : row + 128, :])
    nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.multiply)
    return tile


def total(out, row, tile):
    """The sums of the rows of a tile, as rows of the result."""
    sums = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=sums, op=nl.add, data=tile, axis=1, keepdims=True)
    nisa.dma_copy(dst=out[row : row + 128, :], src=sums)


@nki.jit
def bad(x):
    """x [rows, 1024] fp32 -> the sums of squares of its rows."""
    out = nl.ndarray((x.shape[0], 1), dtype=nl.float32, buffer=nl.shared_hbm)
    squares = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.private_hbm, name="squares")
    for row in range(0, x.shape[0], 128):
        nisa.dma_copy(dst=squares[row : row + 128, :], src=square(x, row))  # first
    for row in range(0, x.shape[0], 128):
        tile = nl.ndarray((128, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=squares[row : row + 128, :])  # second
        total(out, row, tile)
    return out


@nki.jit
def good(x):
    """x [rows, 1024] fp32 -> the sums of squares of its rows."""
    out = nl.ndarray((x.shape[0], 1), dtype=nl.float32, buffer=nl.shared_hbm)
    squares = []
    for row in range(0, x.shape[0], 128):
        squares.append(square(x, row))
    for row in range(0, x.shape[0], 128):
        total(out, row, squares[row // 128])
    return out


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((768, 1024)).astype(np.float32)]


def reference(x):
    return (x * x).sum(axis=1, keepdims=True)

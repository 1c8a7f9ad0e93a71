"""Each block of the argument is copied to another place in HBM, and loaded from there.

On hardware: the copy reads and writes the bandwidth that the loads need, and comes before them. The twin loads from the
argument. Rests on nki-dma-overview 16, 34.
"""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {"code": "NKR125", "target": "trn2", "severity": "major"}


def doubled(out, source, row):
    """128 rows of the result from those of `source`."""
    tile = nl.ndarray((128, source.shape[1]), dtype=source.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=source[row : row + 128, :])
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=out[row : row + 128, :], src=tile)


@nki.jit
def bad(x):
    """x [rows, 1024] fp32 -> 2 x."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    staged = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.private_hbm, name="staged")
    for row in range(0, x.shape[0], 128):
        nisa.dma_copy(dst=staged[row : row + 128, :], src=x[row : row + 128, :])  # first
        doubled(out, staged, row)
    return out


@nki.jit
def good(x):
    """x [rows, 1024] fp32 -> 2 x."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for row in range(0, x.shape[0], 128):
        doubled(out, x, row)
    return out


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((512, 1024)).astype(np.float32)]


def reference(x):
    return 2.0 * x

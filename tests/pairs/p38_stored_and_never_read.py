"""Each block is also written to a tensor in HBM that is neither returned nor loaded.

On hardware: the stores take half of the bandwidth of the kernel for nothing. The twin returns that tensor. Rests on
nki_perf_guide 117-140.
"""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {"code": "NKR107", "target": "trn2", "severity": "major"}


def tile_of(src):
    """An SBUF tile of what is loaded."""
    tile = nl.ndarray(src.shape, dtype=src.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=src)
    return tile


def body(x):
    """x [rows, 1024] fp32 -> 3 x in one tensor, and 2 x in another."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm, name="out")
    twice = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm, name="twice")
    for row in range(0, x.shape[0], 128):
        tile = tile_of(x[row : row + 128, :])
        double = nl.ndarray(tile.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=double, data=tile, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=twice[row : row + 128, :], src=double)  # first
        nisa.tensor_tensor(dst=tile, data1=tile, data2=double, op=nl.add)
        nisa.dma_copy(dst=out[row : row + 128, :], src=tile)
    return out, twice


@nki.jit
def bad(x):
    """x [rows, 1024] fp32 -> 3 x."""
    return body(x)[0]


@nki.jit
def good(x):
    """x [rows, 1024] fp32 -> 3 x and 2 x."""
    return body(x)


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((896, 1024)).astype(np.float32)]


def reference(x):
    return 3.0 * x


def reference_good(x):
    return 3.0 * x, 2.0 * x

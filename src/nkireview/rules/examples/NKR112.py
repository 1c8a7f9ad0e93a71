"""One tile of SBUF has an address of its own, the other one is left to the compiler."""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np


def doubled(x, tile, result):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_scalar(dst=result, data=tile, op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=out, src=result)
    return out


@nki.jit
def bad(x):
    """x [128, 512] fp32 -> 2 x."""
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf, name="tile", address=(0, 0))
    return doubled(x, tile, nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf, name="result"))


@nki.jit
def good(x):
    """Both have addresses: 512 fp32 elements are 2048 bytes a partition."""
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf, name="tile", address=(0, 0))
    return doubled(
        x, tile, nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf, name="result", address=(0, 2048))
    )


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((128, 512)).astype(np.float32)]


def reference(x):
    return 2.0 * x

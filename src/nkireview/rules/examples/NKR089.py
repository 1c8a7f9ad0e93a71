"""Masked elements are set to 0 where 128 stands for 0."""

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


def masked(x, valid, fill):
    """x [128, columns] fp32 through uint8 around 128, and 0 from column `valid` on."""
    tile, values = load(x), nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.sbuf)
    codes = nl.ndarray(x.shape, dtype=nl.uint8, buffer=nl.sbuf)
    kept = nl.ndarray(x.shape, dtype=nl.uint8, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=codes, data=tile, op0=nl.multiply, operand0=8.0, op1=nl.add, operand1=128.0)
    nisa.affine_select(
        dst=kept,
        pattern=[[-1, x.shape[1]]],
        offset=valid - 1,
        channel_multiplier=0,
        on_true_tile=codes,
        on_false_value=fill,
        cmp_op=nl.greater_equal,
    )
    nisa.tensor_scalar(
        dst=values, data=kept, op0=nl.subtract, operand0=128.0, op1=nl.multiply, operand1=0.125
    )
    return store(values)


@nki.jit
def bad(x):
    """x [128, columns] fp32."""
    return masked(x, x.shape[1], 0.0)


@nki.jit
def good(x):
    """x [128, columns] fp32."""
    return masked(x, x.shape[1], 128.0)


def inputs(seed=0):
    # multiples of an eighth, which the codes hold
    return [np.random.default_rng(seed).integers(-100, 100 + 1, (128, 64)).astype(np.float32) / 8]


def reference(x):
    return x

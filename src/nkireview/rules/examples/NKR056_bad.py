"""A table of numbers stands in the file."""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

# fmt: off
WEIGHTS = (
    1.0, 1.015625, 1.03125, 1.046875, 1.0625, 1.078125, 1.09375, 1.109375,
    1.125, 1.140625, 1.15625, 1.171875, 1.1875, 1.203125, 1.21875, 1.234375,
    1.25, 1.265625, 1.28125, 1.296875, 1.3125, 1.328125, 1.34375, 1.359375,
    1.375, 1.390625, 1.40625, 1.421875, 1.4375, 1.453125, 1.46875, 1.484375,
    1.5, 1.515625, 1.53125, 1.546875, 1.5625, 1.578125, 1.59375, 1.609375,
    1.625, 1.640625, 1.65625, 1.671875, 1.6875, 1.703125, 1.71875, 1.734375,
    1.75, 1.765625, 1.78125, 1.796875, 1.8125, 1.828125, 1.84375, 1.859375,
    1.875, 1.890625, 1.90625, 1.921875, 1.9375, 1.953125, 1.96875, 1.984375,
)
# fmt: on


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


@nki.jit
def bad(x):
    """x [128, 64] fp32: each column by its weight, from the table."""
    t = load(x)
    for column in range(x.shape[1]):
        here = t[:, column : column + 1]
        nisa.tensor_scalar(dst=here, data=here, op0=nl.multiply, operand0=WEIGHTS[column])
    return store(t)


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((128, 64)).astype(np.float32)]


def reference(x):
    return x * (1.0 + np.arange(64) / 64.0)

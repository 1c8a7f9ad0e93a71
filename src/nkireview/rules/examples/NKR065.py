"""A causal mask of -inf."""

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


def masked(x, fill):
    """The softmax of the rows of x [128, columns] fp32, row p over its first p + 1 columns."""
    t = load(x)
    m = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.sbuf)
    pattern = [[-1, x.shape[1]]]
    nisa.affine_select(
        dst=m,
        pattern=pattern,
        channel_multiplier=1,
        on_true_tile=t,
        on_false_value=fill,
        cmp_op=nl.greater_equal,
    )
    bias = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=bias, op=nl.maximum, data=m, axis=1, negate=True, keepdims=True)
    s = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.activation_reduce(dst=m, op=nl.exp, data=m, bias=bias, reduce_op=nl.add, reduce_res=s)
    nisa.reciprocal(dst=s, data=s)
    nisa.tensor_scalar(dst=m, data=m, op0=nl.multiply, operand0=s)
    return store(m)


@nki.jit
def bad(x):
    """x [128, columns] fp32."""
    return masked(x, float("-inf"))


@nki.jit
def good(x):
    """x [128, columns] fp32."""
    return masked(x, -3.0e38)


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((128, 64)).astype(np.float32)]


def reference(x):
    rows, columns = np.indices(x.shape)
    z = np.where(columns <= rows, x, -np.inf)
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)

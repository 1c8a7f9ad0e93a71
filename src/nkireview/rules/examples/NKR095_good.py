"""The test has a tolerance for float32, and rows near the size of the epsilon."""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np


@nki.jit
def good(x):
    """x [128, columns] fp32: each row over its length."""
    t = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    q = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.sbuf)
    s = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=x)
    nisa.activation_reduce(dst=q, op=nl.square, data=t, reduce_op=nl.add, reduce_res=s)
    nisa.tensor_scalar(dst=s, data=s, op0=nl.add, operand0=1e-6)
    nisa.activation(dst=s, op=nl.rsqrt, data=s)
    nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=s)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=t)
    return out


def test_rows_have_length_one():
    for columns in (96, 640):
        x = np.random.default_rng(columns).standard_normal((128, columns)).astype(np.float32) * 1e-3
        assert np.allclose(good(x), reference(x), rtol=1e-5, atol=1e-7)


def inputs(seed=0):
    return [np.random.default_rng(seed).standard_normal((128, 64)).astype(np.float32)]


def reference(x):
    return x / np.sqrt((x * x).sum(axis=1, keepdims=True) + 1e-6)

"""Attention whose maximum shift is not multiplied by the softmax scale.

True cause: `defective` gives the exponential the unscaled row maximum as its bias: its
``nisa.activation(dst=p, op=nl.exp, data=s, bias=shift, scale=sm_scale)`` computes exp(scale * s - max(s)) where
exp(scale * (s - max(s))) is meant, for the line that multiplies ``shift`` by ``sm_scale`` is missing. In rows of a
large maximum every exponential underflows, the sum is 0 and 0 * (1 / 0) is NaN; in rows of smaller scores the common
factor exp((scale - 1) * max(s)) cancels and the weights stay right. M20, M21.

Shapes are (queries, keys, head dimension).
"""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "b12",
    "cause": "softmax-shift-not-scaled",
    "also": ("max-shift-not-scaled", "shift-without-scale", "exp-underflow", "shift-unscaled"),
    "dtypes": ("float32", "bfloat16", "float16"),
    "shapes": ((128, 256, 64), (256, 384, 32), (300, 200, 64)),
}


@nki.jit
def honest(q_t, k_t, v):
    dim, queries = q_t.shape
    keys = k_t.shape[1]
    sm_scale = dim**-0.5
    out = nl.ndarray((queries, dim), dtype=v.dtype, buffer=nl.shared_hbm)
    kt = nl.ndarray((dim, keys), dtype=k_t.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=kt, src=k_t)
    for r0 in range(0, queries, 128):
        r = min(128, queries - r0)
        qt = nl.ndarray((dim, r), dtype=q_t.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=qt, src=q_t[:, r0 : r0 + r])
        scores = nl.ndarray((r, keys), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=scores, stationary=qt, moving=kt)
        s = nl.ndarray((r, keys), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=s, src=scores)
        shift = nl.ndarray((r, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=shift, op=nl.maximum, data=s, axis=(1,), negate=True, keepdims=True)
        nisa.tensor_scalar(dst=shift, data=shift, op0=nl.multiply, operand0=sm_scale)
        p = nl.ndarray((r, keys), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=p, op=nl.exp, data=s, bias=shift, scale=sm_scale)
        norm = nl.ndarray((r, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=norm, op=nl.add, data=p, axis=(1,), keepdims=True)
        nisa.reciprocal(dst=norm, data=norm)
        weights = nl.ndarray((r, keys), dtype=v.dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=weights, data=p, op0=nl.multiply, operand0=norm)
        mixed = nl.ndarray((r, dim), dtype=nl.float32, buffer=nl.psum)
        for c0 in range(0, keys, 128):
            c = min(128, keys - c0)
            turned = nl.ndarray((c, r), dtype=v.dtype, buffer=nl.psum)
            nisa.nc_transpose(dst=turned, data=weights[:, c0 : c0 + c])
            w_t = nl.ndarray((c, r), dtype=v.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=w_t, src=turned)
            value = nl.ndarray((c, dim), dtype=v.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=value, src=v[c0 : c0 + c, :])
            nisa.nc_matmul(dst=mixed, stationary=w_t, moving=value, accumulate=c0 > 0)
        o = nl.ndarray((r, dim), dtype=v.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=o, src=mixed)
        nisa.dma_copy(dst=out[r0 : r0 + r, :], src=o)
    return out


@nki.jit
def defective(q_t, k_t, v):
    dim, queries = q_t.shape
    keys = k_t.shape[1]
    sm_scale = dim**-0.5
    out = nl.ndarray((queries, dim), dtype=v.dtype, buffer=nl.shared_hbm)
    kt = nl.ndarray((dim, keys), dtype=k_t.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=kt, src=k_t)
    for r0 in range(0, queries, 128):
        r = min(128, queries - r0)
        qt = nl.ndarray((dim, r), dtype=q_t.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=qt, src=q_t[:, r0 : r0 + r])
        scores = nl.ndarray((r, keys), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=scores, stationary=qt, moving=kt)
        s = nl.ndarray((r, keys), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=s, src=scores)
        shift = nl.ndarray((r, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=shift, op=nl.maximum, data=s, axis=(1,), negate=True, keepdims=True)
        p = nl.ndarray((r, keys), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=p, op=nl.exp, data=s, bias=shift, scale=sm_scale)
        norm = nl.ndarray((r, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=norm, op=nl.add, data=p, axis=(1,), keepdims=True)
        nisa.reciprocal(dst=norm, data=norm)
        weights = nl.ndarray((r, keys), dtype=v.dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=weights, data=p, op0=nl.multiply, operand0=norm)
        mixed = nl.ndarray((r, dim), dtype=nl.float32, buffer=nl.psum)
        for c0 in range(0, keys, 128):
            c = min(128, keys - c0)
            turned = nl.ndarray((c, r), dtype=v.dtype, buffer=nl.psum)
            nisa.nc_transpose(dst=turned, data=weights[:, c0 : c0 + c])
            w_t = nl.ndarray((c, r), dtype=v.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=w_t, src=turned)
            value = nl.ndarray((c, dim), dtype=v.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=value, src=v[c0 : c0 + c, :])
            nisa.nc_matmul(dst=mixed, stationary=w_t, moving=value, accumulate=c0 > 0)
        o = nl.ndarray((r, dim), dtype=v.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=o, src=mixed)
        nisa.dma_copy(dst=out[r0 : r0 + r, :], src=o)
    return out


def inputs(shape, dtype, seed):
    queries, keys, dim = shape
    draw = np.random.default_rng(seed)
    stored = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    sizes = np.linspace(0.5, 48.0 / dim**0.5, queries)  # queries of small scores and of large ones
    q_t = (draw.standard_normal((dim, queries)) * draw.permutation(sizes)).astype(stored)
    k_t = draw.standard_normal((dim, keys)).astype(stored)
    return [q_t, k_t, draw.standard_normal((keys, dim)).astype(stored)]


def reference(q_t, k_t, v):
    q, k, v = q_t.astype(np.float64).T, k_t.astype(np.float64).T, v.astype(np.float64)
    s = q @ k.T / np.sqrt(q.shape[1])
    p = np.exp(s - s.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True) @ v

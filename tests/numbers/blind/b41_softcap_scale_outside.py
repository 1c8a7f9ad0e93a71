"""Attention with soft-capped logits, as Gemma 2 has it: softmax(50 tanh(q k / (50 sqrt(d)))) v.

True cause: the scale 1/sqrt(d) is applied behind the tanh, not before it. The usual attention kernel leaves
the scale to the activation that takes exp, and the cap was put in front of that: the defective twin takes
`(1.0 / CAP, CAP * scale)` for the scales of tanh and of exp, where `(scale / CAP, CAP)` is meant.
"""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "b41",
    "cause": "scale-behind-softcap",
    "also": ("softcap-before-scale", "logits-capped-unscaled"),
    "dtypes": ("float32", "bfloat16", "float16"),
    "shapes": ((128, 256, 64), (256, 384, 128), (200, 300, 64)),  # queries, keys, head dimension
}
CAP = 50.0


def attend(q_t, k_t, v, late):
    depth, queries = q_t.shape
    keys = k_t.shape[1]
    scale = depth**-0.5
    out = nl.ndarray((queries, depth), dtype=v.dtype, buffer=nl.shared_hbm)
    k_tile = nl.ndarray((depth, keys), dtype=k_t.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=k_tile, src=k_t)
    for row in range(0, queries, 128):
        size = min(128, queries - row)
        q_tile = nl.ndarray((depth, size), dtype=q_t.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=q_tile, src=q_t[:, row : row + size])
        logits = nl.ndarray((size, keys), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=logits, stationary=q_tile, moving=k_tile)
        inner, outer = (1.0 / CAP, CAP * scale) if late else (scale / CAP, CAP)
        capped = nl.ndarray((size, keys), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=capped, op=nl.tanh, data=logits, scale=inner)
        top = nl.ndarray((size, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=top, op=nl.maximum, data=capped, axis=(1,), keepdims=True)
        nisa.tensor_scalar(dst=top, data=top, op0=nl.multiply, operand0=-outer)
        powers = nl.ndarray((size, keys), dtype=v.dtype, buffer=nl.sbuf)
        nisa.activation(dst=powers, op=nl.exp, data=capped, bias=top, scale=outer)
        total = nl.ndarray((size, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=total, op=nl.add, data=powers, axis=(1,), keepdims=True)
        nisa.reciprocal(dst=total, data=total)
        mixed = nl.ndarray((size, depth), dtype=nl.float32, buffer=nl.psum)
        for key in range(0, keys, 128):
            part = min(128, keys - key)
            turned = nl.ndarray((part, size), dtype=v.dtype, buffer=nl.psum)
            nisa.nc_transpose(dst=turned, data=powers[:, key : key + part])
            powers_t = nl.ndarray((part, size), dtype=v.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=powers_t, src=turned)
            v_tile = nl.ndarray((part, depth), dtype=v.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=v_tile, src=v[key : key + part, :])
            nisa.nc_matmul(dst=mixed, stationary=powers_t, moving=v_tile, accumulate=key > 0)
        result = nl.ndarray((size, depth), dtype=v.dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=result, data=mixed, op0=nl.multiply, operand0=total)
        nisa.dma_copy(dst=out[row : row + size, :], src=result)
    return out


@nki.jit
def honest(q_t, k_t, v):
    """Scaled, then capped."""
    return attend(q_t, k_t, v, False)


@nki.jit
def defective(q_t, k_t, v):
    """Capped, then scaled."""
    return attend(q_t, k_t, v, True)


def inputs(shape, dtype, seed):
    """Queries and keys of a deviation of 2, so that unscaled logits reach the cap and scaled ones do not."""
    queries, keys, depth = shape
    draw = np.random.default_rng(seed)
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    q_t = 2.0 * draw.standard_normal((depth, queries))
    k_t = 2.0 * draw.standard_normal((depth, keys))
    v = draw.standard_normal((keys, depth))
    return [q_t.astype(kind), k_t.astype(kind), v.astype(kind)]


def reference(q_t, k_t, v):
    q, k, v = q_t.astype(np.float64).T, k_t.astype(np.float64).T, v.astype(np.float64)
    logits = q @ k.T / np.sqrt(q.shape[1])
    logits = CAP * np.tanh(logits / CAP)
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True) @ v

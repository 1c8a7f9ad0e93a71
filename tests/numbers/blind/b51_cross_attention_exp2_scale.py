"""Cross attention of decoder queries over encoder keys, where a mask leaves out the padded keys.

True cause: the logits are scaled for a power of 2 but the exponential is one of e. CUDA kernels fold
log2(e) into the scale because their exp2 is cheap; the Scalar Engine has exp alone. The defective twin
keeps the folded scale: its `factor / math.sqrt(width)` has LOG2E for `factor`, where 1.0 is meant, so
that its softmax is sharper than the model's (a temperature of ln 2).
"""

import math

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "b51",
    "cause": "exp2-scale-with-exp",
    "also": ("log2e-in-scale", "wrong-softmax-base", "wrong-softmax-temperature", "log-base"),
    "dtypes": ("float32", "bfloat16", "float16"),
    "shapes": ((128, 128, 64), (256, 192, 32), (200, 300, 48)),  # queries, keys, head width
}
LOG2E = 1.4426950408889634
HIDDEN = 30000.0


def attend(query, key, value, keep, factor):
    width, queries = query.shape
    keys = value.shape[0]
    scale = factor / math.sqrt(width)
    out = nl.ndarray((queries, width), dtype=query.dtype, buffer=nl.shared_hbm)
    k = nl.ndarray((width, keys), dtype=query.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=k, src=key)
    ones = nl.ndarray((1, 128), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=ones, value=1.0)
    mask = nl.ndarray((1, keys), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=mask, src=keep)
    nisa.tensor_scalar(dst=mask, data=mask, op0=nl.subtract, operand0=1.0, op1=nl.multiply, operand1=HIDDEN)
    spread = nl.ndarray((128, keys), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=spread, stationary=ones, moving=mask)
    hide = nl.ndarray((128, keys), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=hide, src=spread)
    for start in range(0, queries, 128):
        p = min(128, queries - start)
        q = nl.ndarray((width, p), dtype=query.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=q, src=query[:, start : start + p])
        bank = nl.ndarray((p, keys), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=bank, stationary=q, moving=k)
        logits = nl.ndarray((p, keys), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=logits, data1=bank, data2=hide[:p, :], op=nl.add)
        shift = nl.ndarray((p, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=shift, op=nl.maximum, data=logits, axis=(1,), keepdims=True)
        nisa.tensor_scalar(dst=shift, data=shift, op0=nl.multiply, operand0=-scale)
        powers = nl.ndarray((p, keys), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=powers, op=nl.exp, data=logits, bias=shift, scale=scale)
        total = nl.ndarray((p, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=total, op=nl.add, data=powers, axis=(1,), keepdims=True)
        nisa.reciprocal(dst=total, data=total)
        mixed = nl.ndarray((p, width), dtype=nl.float32, buffer=nl.psum)
        for at in range(0, keys, 128):
            size = min(128, keys - at)
            turned = nl.ndarray((size, p), dtype=nl.float32, buffer=nl.psum)
            nisa.nc_transpose(dst=turned, data=powers[:, at : at + size])
            weights = nl.ndarray((size, p), dtype=value.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=weights, src=turned)
            v = nl.ndarray((size, width), dtype=value.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=v, src=value[at : at + size, :])
            nisa.nc_matmul(dst=mixed, stationary=weights, moving=v)
        stored = nl.ndarray((p, width), dtype=query.dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=stored, data=mixed, op0=nl.multiply, operand0=total)
        nisa.dma_copy(dst=out[start : start + p, :], src=stored)
    return out


@nki.jit
def honest(query, key, value, keep):
    return attend(query, key, value, keep, 1.0)


@nki.jit
def defective(query, key, value, keep):
    return attend(query, key, value, keep, LOG2E)


def inputs(shape, dtype, seed):
    """Queries and keys (width, count), values (keys, width), and a mask that ends in a fifth of padding."""
    queries, keys, width = shape
    draw = np.random.default_rng(seed)
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    keep = (np.arange(keys) < keys - keys // 5).astype(np.float32)[None, :]
    query = 1.6 * draw.standard_normal((width, queries))
    key = 1.6 * draw.standard_normal((width, keys))
    value = draw.standard_normal((keys, width))
    return [query.astype(kind), key.astype(kind), value.astype(kind), keep]


def reference(query, key, value, keep):
    """softmax(Q K^T / sqrt(d)) V over the keys that are kept."""
    q, k, v = query.astype(np.float64).T, key.astype(np.float64).T, value.astype(np.float64)
    scores = q @ k.T / np.sqrt(q.shape[-1])
    scores = np.where(keep > 0, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = weights / weights.sum(axis=-1, keepdims=True)
    return weights @ v

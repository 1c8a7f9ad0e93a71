"""Grouped-query attention, 4 query heads on 2 key/value heads.

The defective twin reads key/value head `head % KV_HEADS`, where `head // (HEADS // KV_HEADS)` is meant, so that query
heads 1 and 2 attend to the keys and values of the other group: the `kv_head` that `defective` passes to `body`.
"""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

HEADS, KV_HEADS = 4, 2

PAIR = {
    "id": "b23",
    "cause": "query-head-on-wrong-kv-head",
    "also": (),
    "dtypes": ("float32", "bfloat16", "float16"),
    "shapes": ((128, 128, 64), (64, 256, 32), (128, 200, 64)),
}


def body(q_t, k_t, v, kv_head):
    """q_t: [HEADS * size, queries]; k_t: [KV_HEADS * size, keys]; v: [KV_HEADS * keys, size]."""
    queries, keys, size = q_t.shape[1], k_t.shape[1], v.shape[1]
    out = nl.ndarray((HEADS * queries, size), dtype=q_t.dtype, buffer=nl.shared_hbm)
    for head in range(HEADS):
        kv = kv_head(head)
        query = nl.ndarray((size, queries), dtype=q_t.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=query, src=q_t[head * size : (head + 1) * size, :])
        key = nl.ndarray((size, keys), dtype=q_t.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=key, src=k_t[kv * size : (kv + 1) * size, :])
        scores = nl.ndarray((queries, keys), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=scores, stationary=query, moving=key)
        logits = nl.ndarray((queries, keys), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=logits, data=scores, op0=nl.multiply, operand0=size**-0.5)
        shift = nl.ndarray((queries, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=shift, op=nl.maximum, data=logits, axis=(1,), negate=True, keepdims=True)
        weights = nl.ndarray((queries, keys), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=weights, op=nl.exp, data=logits, bias=shift)
        total = nl.ndarray((queries, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=total, op=nl.add, data=weights, axis=(1,), keepdims=True)
        nisa.reciprocal(dst=total, data=total)
        mixed = nl.ndarray((queries, size), dtype=nl.float32, buffer=nl.psum)
        for low in range(0, keys, 128):
            k = min(128, keys - low)
            turned = nl.ndarray((k, queries), dtype=nl.float32, buffer=nl.psum)
            nisa.nc_transpose(dst=turned, data=weights[:, low : low + k])
            stationary = nl.ndarray((k, queries), dtype=q_t.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=stationary, src=turned)
            value = nl.ndarray((k, size), dtype=q_t.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=value, src=v[kv * keys + low : kv * keys + low + k, :])
            nisa.nc_matmul(dst=mixed, stationary=stationary, moving=value, accumulate=low > 0)
        result = nl.ndarray((queries, size), dtype=q_t.dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=result, data=mixed, op0=nl.multiply, operand0=total)
        nisa.dma_copy(dst=out[head * queries : (head + 1) * queries, :], src=result)
    return out


@nki.jit
def honest(q_t, k_t, v):
    return body(q_t, k_t, v, lambda head: head // (HEADS // KV_HEADS))


@nki.jit
def defective(q_t, k_t, v):
    return body(q_t, k_t, v, lambda head: head % KV_HEADS)


def inputs(shape, dtype, seed):
    queries, keys, size = shape
    draw = np.random.default_rng(seed)
    sizes = ((HEADS * size, queries), (KV_HEADS * size, keys), (KV_HEADS * keys, size))
    return [draw.standard_normal(each).astype(getattr(ml_dtypes, dtype, dtype)) for each in sizes]


def reference(q_t, k_t, v):
    queries, keys, size = q_t.shape[1], k_t.shape[1], v.shape[1]
    query = q_t.astype(np.float64).reshape(HEADS, size, queries)
    key = k_t.astype(np.float64).reshape(KV_HEADS, size, keys).repeat(HEADS // KV_HEADS, axis=0)
    value = v.astype(np.float64).reshape(KV_HEADS, keys, size).repeat(HEADS // KV_HEADS, axis=0)
    logits = query.transpose(0, 2, 1) @ key / np.sqrt(size)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return (weights @ value).reshape(HEADS * queries, size)

"""Decode attention over a paged KV cache: the query heads of one group read keys and values through a slot table.

True cause: the values are read from the cache in logical order, where the slot table gives the row at which each token
lies; the keys do go through the table. In the defective twin it is the
`nisa.dma_copy(dst=value, src=v_cache[low : low + k, :])`, left from the cache that was one block: each weight meets the
value of another token.
"""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "b40",
    "cause": "value-rows-not-through-slot-table",
    "also": ("block-table-ignored-for-values", "wrong-value-rows", "contiguous-load-of-paged-cache"),
    "dtypes": ("float32", "bfloat16", "float16"),
    "shapes": ((32, 256, 64), (8, 384, 128), (16, 200, 32)),
}
PAGE = 16


def _decode(q, k_cache, v_cache, slots, paged):
    """q: [heads, size]; k_cache, v_cache: [rows, size]; slots: [tokens, 1] in int32, the row of each token."""
    (heads, size), tokens = q.shape, slots.shape[0]
    out = nl.ndarray((heads, size), dtype=q.dtype, buffer=nl.shared_hbm)
    query = nl.ndarray((size, heads), dtype=q.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=query, src=q.permute((1, 0)))
    logits = nl.ndarray((heads, tokens), dtype=nl.float32, buffer=nl.sbuf)
    values = []
    for low in range(0, tokens, 128):
        k = min(128, tokens - low)
        rows = nl.ndarray((k, 1), dtype=nl.int32, buffer=nl.sbuf)
        nisa.dma_copy(dst=rows, src=slots[low : low + k, :])
        key = nl.ndarray((k, size), dtype=q.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=key, src=k_cache.vector_select(0, rows))
        value = nl.ndarray((k, size), dtype=q.dtype, buffer=nl.sbuf)
        if paged:
            nisa.dma_copy(dst=value, src=v_cache.vector_select(0, rows))
        else:
            nisa.dma_copy(dst=value, src=v_cache[low : low + k, :])
        values.append(value)
        turned = nl.ndarray((size, k), dtype=q.dtype, buffer=nl.psum)
        nisa.nc_transpose(dst=turned, data=key)
        key_t = nl.ndarray((size, k), dtype=q.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=key_t, src=turned)
        scores = nl.ndarray((heads, k), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=scores, stationary=query, moving=key_t)
        nisa.tensor_scalar(dst=logits[:, low : low + k], data=scores, op0=nl.multiply, operand0=size**-0.5)
    shift = nl.ndarray((heads, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=shift, op=nl.maximum, data=logits, axis=(1,), negate=True, keepdims=True)
    weights = nl.ndarray((heads, tokens), dtype=nl.float32, buffer=nl.sbuf)
    nisa.activation(dst=weights, op=nl.exp, data=logits, bias=shift)
    total = nl.ndarray((heads, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=total, op=nl.add, data=weights, axis=(1,), keepdims=True)
    nisa.reciprocal(dst=total, data=total)
    mixed = nl.ndarray((heads, size), dtype=nl.float32, buffer=nl.psum)
    for low, value in zip(range(0, tokens, 128), values, strict=True):
        k = min(128, tokens - low)
        turned = nl.ndarray((k, heads), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_transpose(dst=turned, data=weights[:, low : low + k])
        stationary = nl.ndarray((k, heads), dtype=q.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=stationary, src=turned)
        nisa.nc_matmul(dst=mixed, stationary=stationary, moving=value, accumulate=low > 0)
    result = nl.ndarray((heads, size), dtype=q.dtype, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=result, data=mixed, op0=nl.multiply, operand0=total)
    nisa.dma_copy(dst=out, src=result)
    return out


@nki.jit
def honest(q, k_cache, v_cache, slots):
    """Keys and values are gathered by their slots."""
    return _decode(q, k_cache, v_cache, slots, True)


@nki.jit
def defective(q, k_cache, v_cache, slots):
    """Keys are gathered, values are read as they lie."""
    return _decode(q, k_cache, v_cache, slots, False)


def inputs(shape, dtype, seed):
    """A pool of twice the pages that the sequence needs, its pages drawn at random."""
    heads, tokens, size = shape
    random = np.random.default_rng(seed)
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    pages = 2 * -(-tokens // PAGE)
    table = random.permutation(pages)[: pages // 2]
    slots = (table[:, None] * PAGE + np.arange(PAGE)).reshape(-1, 1)[:tokens].astype(np.int32)
    q = 2.0 * random.standard_normal((heads, size))
    k_cache, v_cache = random.standard_normal((2, pages * PAGE, size))
    return [q.astype(kind), k_cache.astype(kind), v_cache.astype(kind), slots]


def reference(q, k_cache, v_cache, slots):
    """softmax(q k^T / sqrt(d)) v over the tokens of the sequence."""
    rows = slots[:, 0]
    k, v = k_cache.astype(np.float64)[rows], v_cache.astype(np.float64)[rows]
    logits = q.astype(np.float64) @ k.T / np.sqrt(q.shape[1])
    weights = np.exp(logits - logits.max(1, keepdims=True))
    return weights / weights.sum(1, keepdims=True) @ v

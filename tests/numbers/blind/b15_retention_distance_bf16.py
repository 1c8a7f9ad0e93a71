"""Retention weights of an earlier block of keys whose decay is taken from a distance held in bfloat16.

True cause: `defective` writes the distances between query and key to a bfloat16 tile
(``distance = nl.ndarray((r, keys), dtype=nl.bfloat16, ...)``, filled by ``nisa.iota``), whatever the dtype of the
scores: integers above 512 are rounded to a multiple of 4, above 1024 of 8, before gamma ** distance, so neighbouring
keys get the same decay, some too much and some too little. M25.

Shapes are (queries, keys); the block ended GAP positions before the first query.
"""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "b15",
    "cause": "position-in-bf16",
    "also": (
        "index-in-bf16",
        "distance-rounded-to-bf16",
        "integer-rounded-in-bf16",
        "indices-in-low-precision",
    ),
    "dtypes": ("float32", "bfloat16", "float16"),
    "shapes": ((128, 512), (256, 1024), (300, 700)),
}

GAP = 512
LOG_GAMMA = float(np.log1p(-(2.0**-5)))


@nki.jit
def honest(scores):
    queries, keys = scores.shape
    out = nl.ndarray((queries, keys), dtype=scores.dtype, buffer=nl.shared_hbm)
    for r0 in range(0, queries, 128):
        r = min(128, queries - r0)
        s = nl.ndarray((r, keys), dtype=scores.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=s, src=scores[r0 : r0 + r, :])
        distance = nl.ndarray((r, keys), dtype=nl.float32, buffer=nl.sbuf)
        nisa.iota(dst=distance, pattern=[[-1, keys]], offset=GAP + keys + r0, channel_multiplier=1)
        decay = nl.ndarray((r, keys), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=decay, op=nl.exp, data=distance, scale=LOG_GAMMA)
        norm = nl.ndarray((r, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=norm, op=nl.add, data=decay, axis=(1,), keepdims=True)
        nisa.reciprocal(dst=norm, data=norm)
        y = nl.ndarray((r, keys), dtype=scores.dtype, buffer=nl.sbuf)
        nisa.scalar_tensor_tensor(
            dst=y, data=decay, op0=nl.multiply, operand0=norm, op1=nl.multiply, operand1=s
        )
        nisa.dma_copy(dst=out[r0 : r0 + r, :], src=y)
    return out


@nki.jit
def defective(scores):
    queries, keys = scores.shape
    out = nl.ndarray((queries, keys), dtype=scores.dtype, buffer=nl.shared_hbm)
    for r0 in range(0, queries, 128):
        r = min(128, queries - r0)
        s = nl.ndarray((r, keys), dtype=scores.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=s, src=scores[r0 : r0 + r, :])
        distance = nl.ndarray((r, keys), dtype=nl.bfloat16, buffer=nl.sbuf)
        nisa.iota(dst=distance, pattern=[[-1, keys]], offset=GAP + keys + r0, channel_multiplier=1)
        decay = nl.ndarray((r, keys), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=decay, op=nl.exp, data=distance, scale=LOG_GAMMA)
        norm = nl.ndarray((r, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=norm, op=nl.add, data=decay, axis=(1,), keepdims=True)
        nisa.reciprocal(dst=norm, data=norm)
        y = nl.ndarray((r, keys), dtype=scores.dtype, buffer=nl.sbuf)
        nisa.scalar_tensor_tensor(
            dst=y, data=decay, op0=nl.multiply, operand0=norm, op1=nl.multiply, operand1=s
        )
        nisa.dma_copy(dst=out[r0 : r0 + r, :], src=y)
    return out


def inputs(shape, dtype, seed):
    draw = np.random.default_rng(seed)
    stored = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    return [draw.standard_normal(shape).astype(stored)]


def reference(scores):
    queries, keys = scores.shape
    distance = GAP + keys + np.arange(queries)[:, None] - np.arange(keys)[None, :]
    decay = np.exp(LOG_GAMMA * distance)
    return scores.astype(np.float64) * decay / decay.sum(-1, keepdims=True)

"""Retention scores whose decay is taken from a distance held in bfloat16.

True cause: `defective` writes the distances between query and key to a bfloat16 tile
(``distance = nl.ndarray((r, keys), dtype=nl.bfloat16, ...)``, filled by ``nisa.iota``), whatever the dtype of the scores:
integers above 256 are rounded to a multiple of 2 or 4 before gamma ** distance, so far keys decay by a step too much or
too little. M25. Shapes are (queries, keys); the queries are the last ones of the sequence.
"""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = dict(
    id="b15",
    cause="position-in-bf16",
    also=("index-in-bf16", "distance-rounded-to-bf16", "integer-rounded-in-bf16"),
    dtypes=("float32", "bfloat16", "float16"),
    shapes=((128, 512), (256, 1024), (300, 700)),
)

LOG_GAMMA = float(np.log1p(-(2.0**-8)))


@nki.jit
def honest(scores):
    queries, keys = scores.shape
    out = nl.ndarray((queries, keys), dtype=scores.dtype, buffer=nl.shared_hbm)
    for r0 in range(0, queries, 128):
        r = min(128, queries - r0)
        first = keys - queries + r0
        s = nl.ndarray((r, keys), dtype=scores.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=s, src=scores[r0 : r0 + r, :])
        distance = nl.ndarray((r, keys), dtype=nl.float32, buffer=nl.sbuf)
        nisa.iota(dst=distance, pattern=[[-1, keys]], offset=first, channel_multiplier=1)
        nisa.tensor_scalar(dst=distance, data=distance, op0=nl.maximum, operand0=0.0)
        decay = nl.ndarray((r, keys), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=decay, op=nl.exp, data=distance, scale=LOG_GAMMA)
        y = nl.ndarray((r, keys), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=y, data1=s, data2=decay, op=nl.multiply)
        stored = nl.ndarray((r, keys), dtype=scores.dtype, buffer=nl.sbuf)
        nisa.affine_select(
            dst=stored,
            pattern=[[-1, keys]],
            offset=first,
            channel_multiplier=1,
            on_true_tile=y,
            on_false_value=0.0,
            cmp_op=nl.greater_equal,
        )
        nisa.dma_copy(dst=out[r0 : r0 + r, :], src=stored)
    return out


@nki.jit
def defective(scores):
    queries, keys = scores.shape
    out = nl.ndarray((queries, keys), dtype=scores.dtype, buffer=nl.shared_hbm)
    for r0 in range(0, queries, 128):
        r = min(128, queries - r0)
        first = keys - queries + r0
        s = nl.ndarray((r, keys), dtype=scores.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=s, src=scores[r0 : r0 + r, :])
        distance = nl.ndarray((r, keys), dtype=nl.bfloat16, buffer=nl.sbuf)
        nisa.iota(dst=distance, pattern=[[-1, keys]], offset=first, channel_multiplier=1)
        nisa.tensor_scalar(dst=distance, data=distance, op0=nl.maximum, operand0=0.0)
        decay = nl.ndarray((r, keys), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=decay, op=nl.exp, data=distance, scale=LOG_GAMMA)
        y = nl.ndarray((r, keys), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=y, data1=s, data2=decay, op=nl.multiply)
        stored = nl.ndarray((r, keys), dtype=scores.dtype, buffer=nl.sbuf)
        nisa.affine_select(
            dst=stored,
            pattern=[[-1, keys]],
            offset=first,
            channel_multiplier=1,
            on_true_tile=y,
            on_false_value=0.0,
            cmp_op=nl.greater_equal,
        )
        nisa.dma_copy(dst=out[r0 : r0 + r, :], src=stored)
    return out


def inputs(shape, dtype, seed):
    draw = np.random.default_rng(seed)
    stored = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    return [draw.standard_normal(shape).astype(stored)]


def reference(scores):
    queries, keys = scores.shape
    distance = keys - queries + np.arange(queries)[:, None] - np.arange(keys)[None, :]
    decay = np.where(distance >= 0, np.exp(LOG_GAMMA * np.maximum(distance, 0)), 0.0)
    return scores.astype(np.float64) * decay

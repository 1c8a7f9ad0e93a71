"""Attention weights whose scores are scaled with the queries, and once more before the softmax."""

import ml_dtypes  # noqa: F401
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "scale applied twice",
    "cause": "factor",
    "dtypes": ["float32", "bfloat16", "float16"],
    "shapes": [(128, 128, 64), (128, 256, 32), (200, 160, 64)],
}


def weights_of(q, k, twice):
    d, queries = q.shape
    keys = k.shape[1]
    out = nl.ndarray((queries, keys), dtype=q.dtype, buffer=nl.shared_hbm)
    key = nl.ndarray((d, keys), dtype=k.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=key, src=k)
    for row in range(0, queries, 128):
        p = min(128, queries - row)
        query = nl.ndarray((d, p), dtype=q.dtype, buffer=nl.sbuf)
        scores = nl.ndarray((p, keys), dtype=nl.float32, buffer=nl.psum)
        seen = nl.ndarray((p, keys), dtype=nl.float32, buffer=nl.sbuf)
        top = nl.ndarray((p, 1), dtype=nl.float32, buffer=nl.sbuf)
        total = nl.ndarray((p, 1), dtype=nl.float32, buffer=nl.sbuf)
        result = nl.ndarray((p, keys), dtype=q.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=query, src=q[:, row : row + p])
        nisa.tensor_scalar(dst=query, data=query, op0=nl.multiply, operand0=d**-0.5)
        nisa.nc_matmul(dst=scores, stationary=query, moving=key)
        if twice:
            nisa.tensor_scalar(dst=seen, data=scores, op0=nl.multiply, operand0=d**-0.5)
        else:
            nisa.tensor_copy(dst=seen, src=scores)
        nisa.tensor_reduce(dst=top, op=nl.maximum, data=seen, axis=(1,), negate=True, keepdims=True)
        nisa.activation(
            dst=seen,
            op=nl.exp,
            data=seen,
            bias=top,
            reduce_op=nl.add,
            reduce_res=total,
            reduce_cmd=nisa.reduce_cmd.reset_reduce,
        )
        nisa.reciprocal(dst=total, data=total)
        nisa.tensor_scalar(dst=result, data=seen, op0=nl.multiply, operand0=total)
        nisa.dma_copy(dst=out[row : row + p, :], src=result)
    return out


@nki.jit
def honest(q, k):
    """q [d, queries], k [d, keys] -> softmax(q.T @ k / sqrt(d)) over the keys."""
    return weights_of(q, k, False)


@nki.jit
def defective(q, k):
    """softmax(q.T @ k / d)."""
    return weights_of(q, k, True)


def inputs(shape, dtype, seed):
    queries, keys, d = shape
    draw = np.random.default_rng(seed).standard_normal
    return [draw((d, queries)).astype(dtype), draw((d, keys)).astype(dtype)]


def reference(q, k):
    scores = q.astype(np.float64).T @ k.astype(np.float64) / np.sqrt(q.shape[0])
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)

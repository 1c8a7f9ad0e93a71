"""Causal attention in which each query also sees the key after its own."""

import ml_dtypes  # noqa: F401
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "causal mask off by one",
    "cause": "mask-off-by-one",
    "dtypes": ["float32", "bfloat16", "float16"],
    "shapes": [(128, 128, 64), (128, 256, 32), (160, 160, 64)],
}


def attention(q, k, v, ahead):
    d, queries = q.shape
    keys = k.shape[1]
    out = nl.ndarray((queries, d), dtype=q.dtype, buffer=nl.shared_hbm)
    key = nl.ndarray((d, keys), dtype=k.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=key, src=k)
    for row in range(0, queries, 128):
        p = min(128, queries - row)
        query = nl.ndarray((d, p), dtype=q.dtype, buffer=nl.sbuf)
        scores = nl.ndarray((p, keys), dtype=nl.float32, buffer=nl.psum)
        seen = nl.ndarray((p, keys), dtype=nl.float32, buffer=nl.sbuf)
        top = nl.ndarray((p, 1), dtype=nl.float32, buffer=nl.sbuf)
        total = nl.ndarray((p, 1), dtype=nl.float32, buffer=nl.sbuf)
        weights = nl.ndarray((p, keys), dtype=q.dtype, buffer=nl.sbuf)
        mixed = nl.ndarray((p, d), dtype=nl.float32, buffer=nl.psum)
        result = nl.ndarray((p, d), dtype=q.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=query, src=q[:, row : row + p])
        nisa.nc_matmul(dst=scores, stationary=query, moving=key)
        nisa.tensor_scalar(dst=seen, data=scores, op0=nl.multiply, operand0=d**-0.5)
        nisa.affine_select(
            dst=seen,
            pattern=[[-1, keys]],
            offset=row + keys - queries + ahead,
            channel_multiplier=1,
            on_true_tile=seen,
            on_false_value=-3.0e38,
            cmp_op=nl.greater_equal,
        )
        nisa.tensor_reduce(dst=top, op=nl.maximum, data=seen, axis=(1,), negate=True, keepdims=True)
        nisa.activation(
            dst=weights,
            op=nl.exp,
            data=seen,
            bias=top,
            reduce_op=nl.add,
            reduce_res=total,
            reduce_cmd=nisa.reduce_cmd.reset_reduce,
        )
        for first in range(0, keys, 128):
            n = min(128, keys - first)
            value = nl.ndarray((n, d), dtype=v.dtype, buffer=nl.sbuf)
            turned = nl.ndarray((n, p), dtype=q.dtype, buffer=nl.psum)
            across = nl.ndarray((n, p), dtype=q.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=value, src=v[first : first + n, :])
            nisa.nc_transpose(dst=turned, data=weights[:, first : first + n], engine=nisa.engine.tensor)
            nisa.tensor_copy(dst=across, src=turned)
            nisa.nc_matmul(dst=mixed, stationary=across, moving=value, accumulate=first > 0)
        nisa.reciprocal(dst=total, data=total)
        nisa.tensor_scalar(dst=result, data=mixed, op0=nl.multiply, operand0=total)
        nisa.dma_copy(dst=out[row : row + p, :], src=result)
    return out


@nki.jit
def honest(q, k, v):
    """q [d, queries], k [d, keys], v [keys, d] -> causal attention; the last query sees all keys."""
    return attention(q, k, v, 0)


@nki.jit
def defective(q, k, v):
    """The same with one key of the future."""
    return attention(q, k, v, 1)


def inputs(shape, dtype, seed):
    queries, keys, d = shape
    draw = np.random.default_rng(seed).standard_normal
    return [draw(each).astype(dtype) for each in ((d, queries), (d, keys), (keys, d))]


def reference(q, k, v):
    q, k, v = (each.astype(np.float64) for each in (q, k, v))
    scores = q.T @ k / np.sqrt(q.shape[0])
    rows, columns = scores.shape
    seen = np.where(np.tri(rows, columns, columns - rows, dtype=bool), scores, -np.inf)
    weights = np.exp(seen - seen.max(axis=1, keepdims=True))
    return weights @ v / weights.sum(axis=1, keepdims=True)

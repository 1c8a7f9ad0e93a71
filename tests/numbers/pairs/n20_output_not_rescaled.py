"""Attention with a running softmax that rescales the row sums for a new maximum, but not the output."""

import ml_dtypes  # noqa: F401
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "l rescaled but not O",
    "cause": "accumulator-not-rescaled",
    "dtypes": ["float32", "bfloat16", "float16"],
    "shapes": [(128, 384, 64), (96, 512, 32), (160, 400, 64)],
}


def attention(q, k, v, rescaled):
    d, queries = q.shape
    keys = k.shape[1]
    out = nl.ndarray((queries, d), dtype=q.dtype, buffer=nl.shared_hbm)
    key = nl.ndarray((d, keys), dtype=k.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=key, src=k)
    for row in range(0, queries, 128):
        p = min(128, queries - row)
        query = nl.ndarray((d, p), dtype=q.dtype, buffer=nl.sbuf)
        top = nl.ndarray((p, 1), dtype=nl.float32, buffer=nl.sbuf)
        total = nl.ndarray((p, 1), dtype=nl.float32, buffer=nl.sbuf)
        mixed = nl.ndarray((p, d), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=query, src=q[:, row : row + p])
        nisa.memset(dst=top, value=-3.0e38)
        nisa.memset(dst=total, value=0.0)
        nisa.memset(dst=mixed, value=0.0)
        for first in range(0, keys, 128):
            n = min(128, keys - first)
            scores = nl.ndarray((p, n), dtype=nl.float32, buffer=nl.psum)
            seen = nl.ndarray((p, n), dtype=nl.float32, buffer=nl.sbuf)
            higher = nl.ndarray((p, 1), dtype=nl.float32, buffer=nl.sbuf)
            negative = nl.ndarray((p, 1), dtype=nl.float32, buffer=nl.sbuf)
            decay = nl.ndarray((p, 1), dtype=nl.float32, buffer=nl.sbuf)
            part = nl.ndarray((p, 1), dtype=nl.float32, buffer=nl.sbuf)
            weights = nl.ndarray((p, n), dtype=q.dtype, buffer=nl.sbuf)
            turned = nl.ndarray((n, p), dtype=q.dtype, buffer=nl.psum)
            across = nl.ndarray((n, p), dtype=q.dtype, buffer=nl.sbuf)
            value = nl.ndarray((n, d), dtype=v.dtype, buffer=nl.sbuf)
            added = nl.ndarray((p, d), dtype=nl.float32, buffer=nl.psum)
            nisa.dma_copy(dst=value, src=v[first : first + n, :])
            nisa.nc_matmul(dst=scores, stationary=query, moving=key[:, first : first + n])
            nisa.tensor_scalar(dst=seen, data=scores, op0=nl.multiply, operand0=d**-0.5)
            nisa.tensor_reduce(dst=higher, op=nl.maximum, data=seen, axis=(1,), keepdims=True)
            nisa.tensor_tensor(dst=higher, data1=higher, data2=top, op=nl.maximum)
            nisa.tensor_scalar(dst=negative, data=higher, op0=nl.multiply, operand0=-1.0)
            nisa.activation(dst=decay, op=nl.exp, data=top, bias=negative)
            nisa.activation(
                dst=weights,
                op=nl.exp,
                data=seen,
                bias=negative,
                reduce_op=nl.add,
                reduce_res=part,
                reduce_cmd=nisa.reduce_cmd.reset_reduce,
            )
            nisa.scalar_tensor_tensor(
                dst=total, data=total, op0=nl.multiply, operand0=decay, op1=nl.add, operand1=part
            )
            nisa.nc_transpose(dst=turned, data=weights, engine=nisa.engine.tensor)
            nisa.tensor_copy(dst=across, src=turned)
            nisa.nc_matmul(dst=added, stationary=across, moving=value)
            if rescaled:
                nisa.tensor_scalar(dst=mixed, data=mixed, op0=nl.multiply, operand0=decay)
            nisa.tensor_tensor(dst=mixed, data1=mixed, data2=added, op=nl.add)
            nisa.tensor_copy(dst=top, src=higher)
        result = nl.ndarray((p, d), dtype=q.dtype, buffer=nl.sbuf)
        nisa.reciprocal(dst=total, data=total)
        nisa.tensor_scalar(dst=result, data=mixed, op0=nl.multiply, operand0=total)
        nisa.dma_copy(dst=out[row : row + p, :], src=result)
    return out


@nki.jit
def honest(q, k, v):
    """q [d, queries], k [d, keys], v [keys, d] -> softmax(q.T @ k / sqrt(d)) @ v, keys in tiles of 128."""
    return attention(q, k, v, True)


@nki.jit
def defective(q, k, v):
    """The same with the output of earlier tiles left at their own maximum."""
    return attention(q, k, v, False)


def inputs(shape, dtype, seed):
    queries, keys, d = shape
    draw = np.random.default_rng(seed)
    towards = draw.standard_normal((d, 1))
    towards *= np.sqrt(d) / np.linalg.norm(towards)
    q = 0.3 * draw.standard_normal((d, queries)) + towards
    # the score of a key grows with its number, from about 0 to about sqrt(d)
    k = 0.3 * draw.standard_normal((d, keys)) + towards * np.linspace(0, 1, keys)
    return [each.astype(dtype) for each in (q, k, draw.standard_normal((keys, d)))]


def reference(q, k, v):
    q, k, v = (each.astype(np.float64) for each in (q, k, v))
    scores = q.T @ k / np.sqrt(q.shape[0])
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights @ v / weights.sum(axis=1, keepdims=True)

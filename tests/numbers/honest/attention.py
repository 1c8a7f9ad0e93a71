"""Attention of one head: 128 queries on the partitions, keys in tiles of 128; P is transposed before P V."""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {"id": "attention", "cause": "", "dtypes": ["float32", "bfloat16"], "shapes": [(64, 256), (128, 512)]}


@nki.jit
def honest(q, k, v):
    """q, k: [d, n]; v: [n, d]."""
    depth, keys = k.shape
    queries = q.shape[1]
    out = nl.ndarray((queries, depth), dtype=q.dtype, buffer=nl.shared_hbm)
    left = nl.ndarray((depth, queries), dtype=q.dtype, buffer=nl.sbuf)
    right = nl.ndarray((depth, keys), dtype=q.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=left, src=q)
    nisa.dma_copy(dst=right, src=k)
    scores = nl.ndarray((queries, keys), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=scores, stationary=left, moving=right)
    scaled = nl.ndarray((queries, keys), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=scaled, data=scores, op0=nl.multiply, operand0=depth**-0.5)
    most = nl.ndarray((queries, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=most, op=nl.maximum, data=scaled, axis=(1,), negate=True, keepdims=True)
    total = nl.ndarray((queries, 1), dtype=nl.float32, buffer=nl.sbuf)
    power = nl.ndarray((queries, keys), dtype=q.dtype, buffer=nl.sbuf)
    nisa.activation(dst=power, op=nl.exp, data=scaled, bias=most, reduce_op=nl.add, reduce_res=total)
    result = nl.ndarray((queries, depth), dtype=nl.float32, buffer=nl.psum)
    for at in range(0, keys, 128):
        turned = nl.ndarray((128, queries), dtype=q.dtype, buffer=nl.psum)
        nisa.nc_transpose(dst=turned, data=power[:, at : at + 128])
        weights = nl.ndarray((128, queries), dtype=q.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=weights, src=turned)
        values = nl.ndarray((128, depth), dtype=q.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=values, src=v[at : at + 128, :])
        nisa.nc_matmul(dst=result, stationary=weights, moving=values)
    nisa.reciprocal(dst=total, data=total)
    held = nl.ndarray((queries, depth), dtype=q.dtype, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=held, data=result, op0=nl.multiply, operand0=total)
    nisa.dma_copy(dst=out, src=held)
    return out


def inputs(shape, dtype, seed):
    from nkireview.isa import dtypes

    depth, keys = shape
    generator = np.random.default_rng(seed)
    made = [generator.standard_normal(size) for size in ((depth, 128), (depth, keys), (keys, depth))]
    return [array.astype(dtypes.of(dtype).storage) for array in made]


def reference(q, k, v):
    q, k, v = (array.astype(np.float64) for array in (q, k, v))
    scores = q.T @ k / np.sqrt(q.shape[0])
    power = np.exp(scores - scores.max(1, keepdims=True))
    return power / power.sum(1, keepdims=True) @ v

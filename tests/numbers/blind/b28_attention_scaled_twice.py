"""Causal attention over tiles of 128 keys, with a running maximum and sum.

True cause: the logits are scaled twice, so that they are divided by dim and not by sqrt(dim): the query is multiplied
by 1/sqrt(dim) when it is loaded, and the defective twin multiplies the logits by it again as they leave PSUM.
"""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "b28",
    "cause": "scale-applied-twice",
    "also": (
        "attention-scale",
        "wrong-attention-scale",
        "factor",
    ),
    "dtypes": ("float32", "bfloat16", "float16"),
    "shapes": ((128, 64), (256, 128), (300, 32)),
}
LOWEST = -3.0e38


def _transposed(source, start, size, factor):
    dim = source.shape[1]
    tile = nl.ndarray((size, dim), dtype=source.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=source[start : start + size, :])
    bank = nl.ndarray((dim, size), dtype=source.dtype, buffer=nl.psum)
    nisa.nc_transpose(dst=bank, data=tile)
    turned = nl.ndarray((dim, size), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=turned, data=bank, op0=nl.multiply, operand0=factor)
    return turned


def _attention(q, k, v, again):
    length, dim = q.shape
    scale = dim**-0.5
    out = nl.ndarray((length, dim), dtype=q.dtype, buffer=nl.shared_hbm)
    for first in range(0, length, 128):
        rows = min(128, length - first)
        query = _transposed(q, first, rows, scale)
        top = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
        total = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
        mixed = nl.ndarray((rows, dim), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=top, value=-1.0e30)
        nisa.memset(dst=total, value=0.0)
        nisa.memset(dst=mixed, value=0.0)
        for start in range(0, first + rows, 128):
            keys = min(128, length - start)
            key = _transposed(k, start, keys, 1.0)
            product = nl.ndarray((rows, keys), dtype=nl.float32, buffer=nl.psum)
            nisa.nc_matmul(dst=product, stationary=query, moving=key)
            logits = nl.ndarray((rows, keys), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_scalar(dst=logits, data=product, op0=nl.multiply, operand0=scale if again else 1.0)
            if start == first:
                nisa.affine_select(
                    dst=logits,
                    pattern=[[-1, keys]],
                    channel_multiplier=1,
                    offset=first - start,
                    on_true_tile=logits,
                    on_false_value=LOWEST,
                    cmp_op=nl.greater_equal,
                )
            highest = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_reduce(dst=highest, op=nl.maximum, data=logits, axis=(1,), keepdims=True)
            nisa.tensor_tensor(dst=highest, data1=highest, data2=top, op=nl.maximum)
            kept = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_tensor(dst=kept, data1=top, data2=highest, op=nl.subtract)
            nisa.activation(dst=kept, op=nl.exp, data=kept)
            weights = nl.ndarray((rows, keys), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_scalar(dst=weights, data=logits, op0=nl.subtract, operand0=highest)
            nisa.activation(dst=weights, op=nl.exp, data=weights)
            added = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_reduce(dst=added, op=nl.add, data=weights, axis=(1,), keepdims=True)
            nisa.tensor_tensor(dst=total, data1=total, data2=kept, op=nl.multiply)
            nisa.tensor_tensor(dst=total, data1=total, data2=added, op=nl.add)
            bank = nl.ndarray((keys, rows), dtype=nl.float32, buffer=nl.psum)
            nisa.nc_transpose(dst=bank, data=weights)
            turned = nl.ndarray((keys, rows), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_copy(dst=turned, src=bank)
            loaded = nl.ndarray((keys, dim), dtype=v.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=loaded, src=v[start : start + keys, :])
            value = nl.ndarray((keys, dim), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_copy(dst=value, src=loaded)
            part = nl.ndarray((rows, dim), dtype=nl.float32, buffer=nl.psum)
            nisa.nc_matmul(dst=part, stationary=turned, moving=value)
            nisa.tensor_scalar(dst=mixed, data=mixed, op0=nl.multiply, operand0=kept)
            nisa.tensor_tensor(dst=mixed, data1=mixed, data2=part, op=nl.add)
            nisa.tensor_copy(dst=top, src=highest)
        nisa.reciprocal(dst=total, data=total)
        stored = nl.ndarray((rows, dim), dtype=q.dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=stored, data=mixed, op0=nl.multiply, operand0=total)
        nisa.dma_copy(dst=out[first : first + rows, :], src=stored)
    return out


@nki.jit
def honest(q, k, v):
    """The scale is in the query alone."""
    return _attention(q, k, v, False)


@nki.jit
def defective(q, k, v):
    """The scale is in the query and in the logits."""
    return _attention(q, k, v, True)


def inputs(shape, dtype, seed):
    """Queries and keys of deviation 1.5, so that the weights are far from even."""
    length, dim = shape
    random = np.random.default_rng(seed)
    stored = np.dtype(getattr(ml_dtypes, dtype, dtype))
    q, k, v = (factor * random.standard_normal((length, dim)) for factor in (1.5, 1.5, 1.0))
    return [q.astype(stored), k.astype(stored), v.astype(stored)]


def reference(q, k, v):
    """softmax(q k^T / sqrt(dim) + causal mask) v."""
    q, k, v = (each.astype(np.float64) for each in (q, k, v))
    logits = q @ k.T / np.sqrt(q.shape[1])
    logits = np.where(np.tril(np.ones(logits.shape, bool)), logits, -np.inf)
    weights = np.exp(logits - logits.max(1, keepdims=True))
    return weights / weights.sum(1, keepdims=True) @ v

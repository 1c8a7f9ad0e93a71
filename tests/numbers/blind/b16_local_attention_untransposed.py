"""Block-local attention: each block of 128 tokens attends to itself; q and k arrive as [d, n], v as [n, d].

True cause: the probabilities are the stationary operand of the second product without a transpose (the line
``stationary = probabilities``), and as nc_matmul computes stationary.T @ moving the block gives P.T @ V for P @ V.
"""

from __future__ import annotations

import math

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "b16",
    "cause": "probabilities-not-transposed",
    "also": (
        "matmul-operand-transposed",
        "stationary-not-transposed",
        "transposed-operand",
        "operand-transposed",
    ),
    "dtypes": ("float32", "bfloat16", "float16"),
    "shapes": ((256, 64), (128, 128), (300, 32)),  # tokens, head dimension
}
BLOCK = 128


def attention(q, k, v, transposed):
    depth, tokens = q.shape
    out = nl.ndarray((tokens, depth), dtype=v.dtype, buffer=nl.shared_hbm)
    for start in range(0, tokens, BLOCK):
        rows = min(BLOCK, tokens - start)
        q_tile = nl.ndarray((depth, rows), dtype=q.dtype, buffer=nl.sbuf)
        k_tile = nl.ndarray((depth, rows), dtype=k.dtype, buffer=nl.sbuf)
        v_tile = nl.ndarray((rows, depth), dtype=v.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=q_tile, src=q[:, start : start + rows])
        nisa.dma_copy(dst=k_tile, src=k[:, start : start + rows])
        nisa.dma_copy(dst=v_tile, src=v[start : start + rows, :])

        scores = nl.ndarray((rows, rows), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=scores, stationary=q_tile, moving=k_tile)
        scaled = nl.ndarray((rows, rows), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=scaled, data=scores, op0=nl.multiply, operand0=1.0 / math.sqrt(depth))
        shift = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=shift, op=nl.maximum, data=scaled, axis=(1,), negate=True, keepdims=True)
        nisa.activation(dst=scaled, op=nl.exp, data=scaled, bias=shift)
        total = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=total, op=nl.add, data=scaled, axis=(1,), keepdims=True)
        nisa.reciprocal(dst=total, data=total)
        probabilities = nl.ndarray((rows, rows), dtype=v.dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=probabilities, data=scaled, op0=nl.multiply, operand0=total)

        if transposed:
            turned = nl.ndarray((rows, rows), dtype=v.dtype, buffer=nl.psum)
            nisa.nc_transpose(dst=turned, data=probabilities)
            stationary = nl.ndarray((rows, rows), dtype=v.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=stationary, src=turned)
        else:
            stationary = probabilities
        mixed = nl.ndarray((rows, depth), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=mixed, stationary=stationary, moving=v_tile)
        stored = nl.ndarray((rows, depth), dtype=v.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=stored, src=mixed)
        nisa.dma_copy(dst=out[start : start + rows, :], src=stored)
    return out


@nki.jit
def honest(q, k, v):
    return attention(q, k, v, True)


@nki.jit
def defective(q, k, v):
    return attention(q, k, v, False)


def inputs(shape, dtype, seed):
    tokens, depth = shape
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    draw = np.random.default_rng(seed)
    q = 1.5 * draw.standard_normal((depth, tokens))
    k = draw.standard_normal((depth, tokens))
    v = draw.standard_normal((tokens, depth))
    return [each.astype(kind) for each in (q, k, v)]


def reference(q, k, v):
    q, k, v = (np.asarray(each, np.float64) for each in (q, k, v))
    depth, tokens = q.shape
    out = np.empty((tokens, depth))
    for start in range(0, tokens, BLOCK):
        block = slice(start, start + BLOCK)
        scores = q[:, block].T @ k[:, block] / math.sqrt(depth)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        out[block] = weights / weights.sum(axis=1, keepdims=True) @ v[block]
    return out

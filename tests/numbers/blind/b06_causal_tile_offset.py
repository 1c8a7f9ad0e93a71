"""Causal attention over key tiles: the mask of a tile forgets how far the keys lie behind the queries.

True cause, line 125, ``affine_select(..., offset=0)``: query q0 + r sees key k0 + c where r >= c, as if every key tile
were the one on the diagonal; so in the tiles left of it the keys c > r are lost (rows from 128 on are wrong).
"""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "b06",
    "cause": "causal-mask-tile-offset",
    "also": ("mask-offset", "causal-mask", "wrong-mask", "mask-tile-offset"),
    "dtypes": ("float32", "bfloat16", "float16"),
    "shapes": ((256, 64), (300, 128), (192, 40)),  # positions, head dimension
}
TILE = 128
STORED = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}


@nki.jit
def honest(q_t, k_t, v):
    head, length = q_t.shape
    out = nl.ndarray((length, head), dtype=v.dtype, buffer=nl.shared_hbm)
    for q0 in range(0, length, TILE):
        rows = min(TILE, length - q0)
        queries = nl.ndarray((head, rows), dtype=q_t.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=queries, src=q_t[:, q0 : q0 + rows])
        largest = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=largest, value=-3.0e38)
        total = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=total, value=0.0)
        mixed = nl.ndarray((rows, head), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=mixed, value=0.0)
        for k0 in range(0, q0 + rows, TILE):
            cols = min(TILE, length - k0)
            keys = nl.ndarray((head, cols), dtype=k_t.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=keys, src=k_t[:, k0 : k0 + cols])
            values = nl.ndarray((cols, head), dtype=v.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=values, src=v[k0 : k0 + cols, :])
            products = nl.ndarray((rows, cols), dtype=nl.float32, buffer=nl.psum)
            nisa.nc_matmul(dst=products, stationary=queries, moving=keys)
            scores = nl.ndarray((rows, cols), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_scalar(dst=scores, data=products, op0=nl.multiply, operand0=head**-0.5)
            seen = nl.ndarray((rows, cols), dtype=nl.float32, buffer=nl.sbuf)
            nisa.affine_select(
                dst=seen,
                pattern=[[-1, cols]],
                channel_multiplier=1,
                on_true_tile=scores,
                on_false_value=-3.0e38,
                cmp_op=nl.greater_equal,
                offset=q0 - k0,
            )
            here = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_reduce(dst=here, op=nl.maximum, data=seen, axis=(1,), keepdims=True)
            risen = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_tensor(dst=risen, data1=largest, data2=here, op=nl.maximum)
            step = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_tensor(dst=step, data1=largest, data2=risen, op=nl.subtract)
            fade = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.activation(dst=fade, op=nl.exp, data=step)
            nisa.tensor_copy(dst=largest, src=risen)
            lowered = nl.ndarray((rows, cols), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_scalar(dst=lowered, data=seen, op0=nl.subtract, operand0=risen)
            weights = nl.ndarray((rows, cols), dtype=nl.float32, buffer=nl.sbuf)
            nisa.activation(dst=weights, op=nl.exp, data=lowered)
            part = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_reduce(dst=part, op=nl.add, data=weights, axis=(1,), keepdims=True)
            nisa.scalar_tensor_tensor(
                dst=total, data=total, op0=nl.multiply, operand0=fade, op1=nl.add, operand1=part
            )
            turned = nl.ndarray((cols, rows), dtype=nl.float32, buffer=nl.psum)
            nisa.nc_transpose(dst=turned, data=weights)
            stored = nl.ndarray((cols, rows), dtype=v.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=stored, src=turned)
            added = nl.ndarray((rows, head), dtype=nl.float32, buffer=nl.psum)
            nisa.nc_matmul(dst=added, stationary=stored, moving=values)
            nisa.scalar_tensor_tensor(
                dst=mixed, data=mixed, op0=nl.multiply, operand0=fade, op1=nl.add, operand1=added
            )
        share = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.reciprocal(dst=share, data=total)
        done = nl.ndarray((rows, head), dtype=v.dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=done, data=mixed, op0=nl.multiply, operand0=share)
        nisa.dma_copy(dst=out[q0 : q0 + rows, :], src=done)
    return out


@nki.jit
def defective(q_t, k_t, v):
    head, length = q_t.shape
    out = nl.ndarray((length, head), dtype=v.dtype, buffer=nl.shared_hbm)
    for q0 in range(0, length, TILE):
        rows = min(TILE, length - q0)
        queries = nl.ndarray((head, rows), dtype=q_t.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=queries, src=q_t[:, q0 : q0 + rows])
        largest = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=largest, value=-3.0e38)
        total = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=total, value=0.0)
        mixed = nl.ndarray((rows, head), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=mixed, value=0.0)
        for k0 in range(0, q0 + rows, TILE):
            cols = min(TILE, length - k0)
            keys = nl.ndarray((head, cols), dtype=k_t.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=keys, src=k_t[:, k0 : k0 + cols])
            values = nl.ndarray((cols, head), dtype=v.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=values, src=v[k0 : k0 + cols, :])
            products = nl.ndarray((rows, cols), dtype=nl.float32, buffer=nl.psum)
            nisa.nc_matmul(dst=products, stationary=queries, moving=keys)
            scores = nl.ndarray((rows, cols), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_scalar(dst=scores, data=products, op0=nl.multiply, operand0=head**-0.5)
            seen = nl.ndarray((rows, cols), dtype=nl.float32, buffer=nl.sbuf)
            nisa.affine_select(
                dst=seen,
                pattern=[[-1, cols]],
                channel_multiplier=1,
                on_true_tile=scores,
                on_false_value=-3.0e38,
                cmp_op=nl.greater_equal,
                offset=0,
            )
            here = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_reduce(dst=here, op=nl.maximum, data=seen, axis=(1,), keepdims=True)
            risen = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_tensor(dst=risen, data1=largest, data2=here, op=nl.maximum)
            step = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_tensor(dst=step, data1=largest, data2=risen, op=nl.subtract)
            fade = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.activation(dst=fade, op=nl.exp, data=step)
            nisa.tensor_copy(dst=largest, src=risen)
            lowered = nl.ndarray((rows, cols), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_scalar(dst=lowered, data=seen, op0=nl.subtract, operand0=risen)
            weights = nl.ndarray((rows, cols), dtype=nl.float32, buffer=nl.sbuf)
            nisa.activation(dst=weights, op=nl.exp, data=lowered)
            part = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_reduce(dst=part, op=nl.add, data=weights, axis=(1,), keepdims=True)
            nisa.scalar_tensor_tensor(
                dst=total, data=total, op0=nl.multiply, operand0=fade, op1=nl.add, operand1=part
            )
            turned = nl.ndarray((cols, rows), dtype=nl.float32, buffer=nl.psum)
            nisa.nc_transpose(dst=turned, data=weights)
            stored = nl.ndarray((cols, rows), dtype=v.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=stored, src=turned)
            added = nl.ndarray((rows, head), dtype=nl.float32, buffer=nl.psum)
            nisa.nc_matmul(dst=added, stationary=stored, moving=values)
            nisa.scalar_tensor_tensor(
                dst=mixed, data=mixed, op0=nl.multiply, operand0=fade, op1=nl.add, operand1=added
            )
        share = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.reciprocal(dst=share, data=total)
        done = nl.ndarray((rows, head), dtype=v.dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=done, data=mixed, op0=nl.multiply, operand0=share)
        nisa.dma_copy(dst=out[q0 : q0 + rows, :], src=done)
    return out


def inputs(shape, dtype, seed):
    length, head = shape
    rng = np.random.default_rng(seed)
    stored = STORED[dtype]
    q_t = rng.standard_normal((head, length)).astype(stored)
    k_t = rng.standard_normal((head, length)).astype(stored)
    return [q_t, k_t, rng.standard_normal((length, head)).astype(stored)]


def reference(q_t, k_t, v):
    q, k, v = q_t.astype(np.float64).T, k_t.astype(np.float64).T, v.astype(np.float64)
    scores = np.where(np.tril(np.ones((len(q), len(k)), bool)), q @ k.T / np.sqrt(q.shape[1]), -np.inf)
    weights = np.exp(scores - scores.max(1, keepdims=True))
    return weights / weights.sum(1, keepdims=True) @ v

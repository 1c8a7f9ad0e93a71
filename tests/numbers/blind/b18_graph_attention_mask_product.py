"""Graph attention: softmax over each node's neighbours of leaky logits, then the weighted sum of their features.

True cause: the 0/1 adjacency is multiplied into the logits before the softmax (``op=nl.multiply`` on ``scores``), which
leaves a node that is no neighbour at logit 0 and weight exp(0 - m); it needs a large negative logit.
"""

from __future__ import annotations

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "b18",
    "cause": "mask-multiplied-before-softmax",
    "also": ("multiplicative-mask", "masked-logits-zero", "masked-entries-not-excluded", "mask-multiplied"),
    "dtypes": ("float32", "bfloat16", "float16"),
    "shapes": ((128, 256, 64), (256, 384, 32), (200, 300, 96)),  # nodes, possible neighbours, features
}
SLOPE = 0.2
LOW = 30000.0


def aggregate(logits, adjacency, features, excluded):
    nodes, others = logits.shape
    width = features.shape[1]
    out = nl.ndarray((nodes, width), dtype=features.dtype, buffer=nl.shared_hbm)
    for start in range(0, nodes, 128):
        rows = min(128, nodes - start)
        given = nl.ndarray((rows, others), dtype=logits.dtype, buffer=nl.sbuf)
        mask = nl.ndarray((rows, others), dtype=adjacency.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=given, src=logits[start : start + rows, :])
        nisa.dma_copy(dst=mask, src=adjacency[start : start + rows, :])

        scores = nl.ndarray((rows, others), dtype=nl.float32, buffer=nl.sbuf)
        nisa.scalar_tensor_tensor(
            dst=scores, data=given, op0=nl.multiply, operand0=SLOPE, op1=nl.maximum, operand1=given
        )
        if excluded:
            penalty = nl.ndarray((rows, others), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_scalar(
                dst=penalty, data=mask, op0=nl.multiply, operand0=LOW, op1=nl.subtract, operand1=LOW
            )
            nisa.tensor_tensor(dst=scores, data1=scores, data2=penalty, op=nl.add)
        else:
            nisa.tensor_tensor(dst=scores, data1=scores, data2=mask, op=nl.multiply)

        shift = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=shift, op=nl.maximum, data=scores, axis=(1,), negate=True, keepdims=True)
        nisa.activation(dst=scores, op=nl.exp, data=scores, bias=shift)
        total = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=total, op=nl.add, data=scores, axis=(1,), keepdims=True)
        nisa.reciprocal(dst=total, data=total)
        weights = nl.ndarray((rows, others), dtype=features.dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=weights, data=scores, op0=nl.multiply, operand0=total)

        mixed = nl.ndarray((rows, width), dtype=nl.float32, buffer=nl.psum)
        for first in range(0, others, 128):
            count = min(128, others - first)
            turned = nl.ndarray((count, rows), dtype=features.dtype, buffer=nl.psum)
            nisa.nc_transpose(dst=turned, data=weights[:, first : first + count])
            stationary = nl.ndarray((count, rows), dtype=features.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=stationary, src=turned)
            moving = nl.ndarray((count, width), dtype=features.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=moving, src=features[first : first + count, :])
            nisa.nc_matmul(dst=mixed, stationary=stationary, moving=moving, accumulate=first > 0)
        stored = nl.ndarray((rows, width), dtype=features.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=stored, src=mixed)
        nisa.dma_copy(dst=out[start : start + rows, :], src=stored)
    return out


@nki.jit
def honest(logits, adjacency, features):
    return aggregate(logits, adjacency, features, True)


@nki.jit
def defective(logits, adjacency, features):
    return aggregate(logits, adjacency, features, False)


def inputs(shape, dtype, seed):
    nodes, others, width = shape
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    draw = np.random.default_rng(seed)
    logits = 2.0 * draw.standard_normal((nodes, others))
    adjacency = draw.random((nodes, others)) < 0.15
    adjacency[np.arange(nodes), np.arange(nodes) % others] = True  # every node sees itself
    features = draw.standard_normal((others, width))
    return [each.astype(kind) for each in (logits, adjacency, features)]


def reference(logits, adjacency, features):
    logits, adjacency, features = (np.asarray(each, np.float64) for each in (logits, adjacency, features))
    scores = np.where(adjacency != 0, np.maximum(logits, SLOPE * logits), -np.inf)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True) @ features

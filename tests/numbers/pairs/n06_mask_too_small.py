"""Causal softmax whose masked scores are -30, which the visible scores of some rows fall below."""

import ml_dtypes  # noqa: F401
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "mask value too small",
    "cause": "mask-too-small",
    "dtypes": ["float32", "bfloat16", "float16"],
    "shapes": [(128, 128), (128, 224), (200, 200)],
}


def causal_softmax(scores, fill):
    rows, columns = scores.shape
    past = columns - rows
    out = nl.ndarray(scores.shape, dtype=scores.dtype, buffer=nl.shared_hbm)
    for row in range(0, rows, 128):
        p = min(128, rows - row)
        tile = nl.ndarray((p, columns), dtype=scores.dtype, buffer=nl.sbuf)
        seen = nl.ndarray((p, columns), dtype=nl.float32, buffer=nl.sbuf)
        top = nl.ndarray((p, 1), dtype=nl.float32, buffer=nl.sbuf)
        total = nl.ndarray((p, 1), dtype=nl.float32, buffer=nl.sbuf)
        result = nl.ndarray((p, columns), dtype=scores.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=scores[row : row + p, :])
        nisa.affine_select(
            dst=seen,
            pattern=[[-1, columns]],
            offset=row + past,
            channel_multiplier=1,
            on_true_tile=tile,
            on_false_value=fill,
            cmp_op=nl.greater_equal,
        )
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
def honest(scores):
    """scores [queries, keys] -> softmax over the keys up to each query; the last query sees all keys."""
    return causal_softmax(scores, -3.0e38)


@nki.jit
def defective(scores):
    """The same with -30 for the masked scores."""
    return causal_softmax(scores, -30.0)


def inputs(shape, dtype, seed):
    scores = 2 * np.random.default_rng(seed).standard_normal(shape)
    scores[::3] -= 35
    return [scores.astype(dtype)]


def reference(scores):
    rows, columns = scores.shape
    seen = np.where(np.tri(rows, columns, columns - rows, dtype=bool), scores.astype(np.float64), -np.inf)
    weights = np.exp(seen - seen.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)

"""Softmax that does not subtract the maximum of its row: exp overflows for large logits."""

import ml_dtypes  # noqa: F401
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "missing maximum shift",
    "cause": "exp-unshifted",
    "dtypes": ["float32", "bfloat16", "float16"],
    "shapes": [(128, 128), (128, 384), (200, 72)],
}


def softmax(x, shifted):
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for row in range(0, rows, 128):
        p = min(128, rows - row)
        tile = nl.ndarray((p, columns), dtype=x.dtype, buffer=nl.sbuf)
        top = nl.ndarray((p, 1), dtype=nl.float32, buffer=nl.sbuf)
        weights = nl.ndarray((p, columns), dtype=nl.float32, buffer=nl.sbuf)
        total = nl.ndarray((p, 1), dtype=nl.float32, buffer=nl.sbuf)
        result = nl.ndarray((p, columns), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[row : row + p, :])
        if shifted:
            nisa.tensor_reduce(dst=top, op=nl.maximum, data=tile, axis=(1,), negate=True, keepdims=True)
        nisa.activation(
            dst=weights,
            op=nl.exp,
            data=tile,
            bias=top if shifted else None,
            reduce_op=nl.add,
            reduce_res=total,
            reduce_cmd=nisa.reduce_cmd.reset_reduce,
        )
        nisa.reciprocal(dst=total, data=total)
        nisa.tensor_scalar(dst=result, data=weights, op0=nl.multiply, operand0=total)
        nisa.dma_copy(dst=out[row : row + p, :], src=result)
    return out


@nki.jit
def honest(x):
    """x [rows, columns] -> softmax along the columns."""
    return softmax(x, True)


@nki.jit
def defective(x):
    """The same without the shift."""
    return softmax(x, False)


def inputs(shape, dtype, seed):
    x = np.random.default_rng(seed).standard_normal(shape)
    x[::2] *= 100
    return [x.astype(dtype)]


def reference(x):
    x = x.astype(np.float64)
    weights = np.exp(x - x.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)

"""Log-softmax over rows, with logits far apart.

True cause: the log is taken of the finished softmax, log(exp(x - m) / s) (the activation ``op=nl.log, data=tile``),
whose small entries have underflowed to 0, so that they give -inf where x - m - log(s) is finite.
"""

from __future__ import annotations

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "b17",
    "cause": "log-of-underflowed-softmax",
    "also": ("log-of-softmax", "exp-underflow", "log-of-zero"),
    "dtypes": ("float32", "bfloat16", "float16"),
    "shapes": ((128, 512), (256, 1000), (200, 384)),  # rows, columns
}


def log_softmax(x, direct):
    rows, columns = x.shape
    out = nl.ndarray((rows, columns), dtype=x.dtype, buffer=nl.shared_hbm)
    for start in range(0, rows, 128):
        count = min(128, rows - start)
        given = nl.ndarray((count, columns), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=given, src=x[start : start + count, :])
        shift = nl.ndarray((count, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=shift, op=nl.maximum, data=given, axis=(1,), negate=True, keepdims=True)
        tile = nl.ndarray((count, columns), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=tile, op=nl.exp, data=given, bias=shift)
        total = nl.ndarray((count, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=total, op=nl.add, data=tile, axis=(1,), keepdims=True)
        result = nl.ndarray((count, columns), dtype=x.dtype, buffer=nl.sbuf)
        if direct:
            logarithm = nl.ndarray((count, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.activation(dst=logarithm, op=nl.log, data=total)
            nisa.tensor_scalar(
                dst=result, data=given, op0=nl.add, operand0=shift, op1=nl.subtract, operand1=logarithm
            )
        else:
            nisa.reciprocal(dst=total, data=total)
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=total)
            nisa.activation(dst=result, op=nl.log, data=tile)
        nisa.dma_copy(dst=out[start : start + count, :], src=result)
    return out


@nki.jit
def honest(x):
    return log_softmax(x, True)


@nki.jit
def defective(x):
    return log_softmax(x, False)


def inputs(shape, dtype, seed):
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    draw = np.random.default_rng(seed)
    return [(40.0 * draw.standard_normal(shape)).astype(kind)]


def reference(x):
    x = np.asarray(x, np.float64)
    shifted = x - x.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))

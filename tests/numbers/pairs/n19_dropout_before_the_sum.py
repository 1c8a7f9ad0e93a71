"""Softmax with dropout whose rows are summed after the mask: the weights that are kept then add up to one."""

import ml_dtypes  # noqa: F401
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "dropout before the row sum",
    "cause": "sum-after-mask",
    "dtypes": ["float32", "bfloat16", "float16"],
    "shapes": [(128, 128), (128, 320), (200, 96)],
}
KEPT = 0.8


def dropped_softmax(x, mask, before):
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for row in range(0, rows, 128):
        p = min(128, rows - row)
        tile = nl.ndarray((p, columns), dtype=x.dtype, buffer=nl.sbuf)
        keep = nl.ndarray((p, columns), dtype=mask.dtype, buffer=nl.sbuf)
        top = nl.ndarray((p, 1), dtype=nl.float32, buffer=nl.sbuf)
        weights = nl.ndarray((p, columns), dtype=nl.float32, buffer=nl.sbuf)
        left = nl.ndarray((p, columns), dtype=nl.float32, buffer=nl.sbuf)
        total = nl.ndarray((p, 1), dtype=nl.float32, buffer=nl.sbuf)
        result = nl.ndarray((p, columns), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[row : row + p, :])
        nisa.dma_copy(dst=keep, src=mask[row : row + p, :])
        nisa.tensor_reduce(dst=top, op=nl.maximum, data=tile, axis=(1,), negate=True, keepdims=True)
        nisa.activation(dst=weights, op=nl.exp, data=tile, bias=top)
        nisa.tensor_tensor(dst=left, data1=weights, data2=keep, op=nl.multiply)
        summed = left if before else weights
        nisa.tensor_reduce(dst=total, op=nl.add, data=summed, axis=(1,), keepdims=True)
        nisa.reciprocal(dst=total, data=total)
        nisa.tensor_scalar(
            dst=result, data=left, op0=nl.multiply, operand0=total, op1=nl.multiply, operand1=1 / KEPT
        )
        nisa.dma_copy(dst=out[row : row + p, :], src=result)
    return out


@nki.jit
def honest(x, mask):
    """x [rows, columns], mask uint8 of zeros and ones -> softmax(x) * mask / 0.8."""
    return dropped_softmax(x, mask, False)


@nki.jit
def defective(x, mask):
    """The same with the sum of the weights that the mask keeps."""
    return dropped_softmax(x, mask, True)


def inputs(shape, dtype, seed):
    draw = np.random.default_rng(seed)
    return [(2 * draw.standard_normal(shape)).astype(dtype), (draw.random(shape) < KEPT).astype(np.uint8)]


def reference(x, mask):
    x = x.astype(np.float64)
    weights = np.exp(x - x.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True) * mask / KEPT

"""Rows standardised by the variance over N - 1 where the original divides by N."""

import ml_dtypes  # noqa: F401
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "variance over N-1",
    "cause": "variance-divisor",
    "also": ["factor"],
    "dtypes": ["float32", "bfloat16", "float16"],
    "shapes": [(128, 32), (128, 48), (200, 40)],
}
EPS = 1e-6


def standardise(x, less):
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for row in range(0, rows, 128):
        p = min(128, rows - row)
        tile = nl.ndarray((p, columns), dtype=x.dtype, buffer=nl.sbuf)
        centred = nl.ndarray((p, columns), dtype=nl.float32, buffer=nl.sbuf)
        squares = nl.ndarray((p, columns), dtype=nl.float32, buffer=nl.sbuf)
        mean = nl.ndarray((p, 1), dtype=nl.float32, buffer=nl.sbuf)
        inverse = nl.ndarray((p, 1), dtype=nl.float32, buffer=nl.sbuf)
        result = nl.ndarray((p, columns), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[row : row + p, :])
        nisa.tensor_reduce(dst=mean, op=nl.add, data=tile, axis=(1,), keepdims=True)
        nisa.tensor_scalar(dst=mean, data=mean, op0=nl.multiply, operand0=1.0 / columns)
        nisa.tensor_scalar(dst=centred, data=tile, op0=nl.subtract, operand0=mean)
        nisa.tensor_tensor(dst=squares, data1=centred, data2=centred, op=nl.multiply)
        nisa.tensor_reduce(dst=inverse, op=nl.add, data=squares, axis=(1,), keepdims=True)
        nisa.tensor_scalar(
            dst=inverse,
            data=inverse,
            op0=nl.multiply,
            operand0=1.0 / (columns - less),
            op1=nl.add,
            operand1=EPS,
        )
        nisa.activation(dst=inverse, op=nl.rsqrt, data=inverse)
        nisa.tensor_scalar(dst=result, data=centred, op0=nl.multiply, operand0=inverse)
        nisa.dma_copy(dst=out[row : row + p, :], src=result)
    return out


@nki.jit
def honest(x):
    """x [rows, columns] -> (x - mean) / sqrt(sum((x - mean)^2) / columns + eps), by row."""
    return standardise(x, 0)


@nki.jit
def defective(x):
    """The same with columns - 1."""
    return standardise(x, 1)


def inputs(shape, dtype, seed):
    draw = np.random.default_rng(seed)
    return [(draw.standard_normal(shape) * 1.5 + draw.standard_normal((shape[0], 1))).astype(dtype)]


def reference(x):
    x = x.astype(np.float64)
    return (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + EPS)

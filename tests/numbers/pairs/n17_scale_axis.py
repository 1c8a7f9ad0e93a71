"""Quantised to int8 by the largest magnitude of each column where it should be that of each row."""

import ml_dtypes  # noqa: F401
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "scale along the wrong axis",
    "cause": "scale-axis",
    "dtypes": ["float32", "bfloat16", "float16"],
    "shapes": [(128, 128), (128, 320), (200, 96)],
}


def quantise(tile):
    """int8, each partition by its own largest magnitude."""
    p, columns = tile.shape
    magnitude = nl.ndarray((p, columns), dtype=nl.float32, buffer=nl.sbuf)
    factor = nl.ndarray((p, 1), dtype=nl.float32, buffer=nl.sbuf)
    result = nl.ndarray((p, columns), dtype=nl.int8, buffer=nl.sbuf)
    nisa.activation(dst=magnitude, op=nl.abs, data=tile)
    nisa.tensor_reduce(dst=factor, op=nl.maximum, data=magnitude, axis=(1,), keepdims=True)
    nisa.reciprocal(dst=factor, data=factor)
    nisa.tensor_scalar(
        dst=result, data=tile, op0=nl.multiply, operand0=factor, op1=nl.multiply, operand1=127.0
    )
    return result


@nki.jit
def honest(x):
    """x [rows, columns] -> 127 x / max|x| of its row to the nearest integer, int8."""
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=nl.int8, buffer=nl.shared_hbm)
    for row in range(0, rows, 128):
        p = min(128, rows - row)
        tile = nl.ndarray((p, columns), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[row : row + p, :])
        nisa.dma_copy(dst=out[row : row + p, :], src=quantise(tile))
    return out


@nki.jit
def defective(x):
    """The same by the largest magnitude of its column: the tiles hold columns on the partitions."""
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=nl.int8, buffer=nl.shared_hbm)
    for column in range(0, columns, 128):
        p = min(128, columns - column)
        tile = nl.ndarray((p, rows), dtype=x.dtype, buffer=nl.sbuf)
        turned = [[1, p], [columns, rows]]
        nisa.dma_copy(dst=tile, src=x.ap(pattern=turned, offset=column))
        nisa.dma_copy(dst=out.ap(pattern=turned, offset=column), src=quantise(tile))
    return out


def inputs(shape, dtype, seed):
    draw = np.random.default_rng(seed)
    return [(draw.standard_normal(shape) * 10 ** draw.uniform(-2, 1, (shape[0], 1))).astype(dtype)]


def reference(x):
    x = x.astype(np.float64)
    return np.rint(127 * x / np.abs(x).max(axis=1, keepdims=True))

"""RMS norm of each head of a query: ``out = x / sqrt(mean(x**2 over the head) + 1e-6) * gain``.

Truth: the defective twin divides each head's sum of squares by heads * dim, the width of the whole row, and not by dim.
Its mean square is too small by the number of heads, so ordinary rows come out larger by sqrt(heads), and tiny rows,
where the epsilon rules, by less.

x [rows, heads, dim]; gain [1, dim]. Shapes are (rows, heads, dim). Rows have scales of 5e-4 to 3.
"""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "b04",
    "cause": "factor",
    "also": ("mean-count", "variance-divisor"),
    "dtypes": ("float32", "bfloat16", "float16"),
    "shapes": ((128, 4, 64), (256, 8, 96), (200, 3, 128)),
}
STORED = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
ROWS, EPSILON = 128, 1e-6


def normalised(x, gain, count):
    rows, heads, dim = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    row = nl.ndarray((1, dim), dtype=gain.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=row, src=gain)
    ones = nl.ndarray((1, ROWS), dtype=gain.dtype, buffer=nl.sbuf)
    nisa.memset(dst=ones, value=1.0)
    spread = nl.ndarray((ROWS, dim), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=spread, stationary=ones, moving=row)
    for start in range(0, rows, ROWS):
        height = min(ROWS, rows - start)
        tile = nl.ndarray((height, heads, dim), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[start : start + height])
        squares = nl.ndarray((height, heads, dim), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=squares, data1=tile, data2=tile, op=nl.multiply)
        totals = nl.ndarray((height, heads), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=totals, op=nl.add, data=squares, axis=(2,))
        inverse = nl.ndarray((height, heads), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=inverse, op=nl.rsqrt, data=totals, scale=1.0 / count, bias=EPSILON)
        result = nl.ndarray((height, heads, dim), dtype=x.dtype, buffer=nl.sbuf)
        for head in range(heads):
            nisa.scalar_tensor_tensor(
                dst=result[:, head, :],
                data=tile[:, head, :],
                op0=nl.multiply,
                operand0=inverse[:, head : head + 1],
                op1=nl.multiply,
                operand1=spread[0:height, :],
            )
        nisa.dma_copy(dst=out[start : start + height], src=result)
    return out


@nki.jit
def honest(x, gain):
    return normalised(x, gain, x.shape[2])


@nki.jit
def defective(x, gain):
    return normalised(x, gain, x.shape[1] * x.shape[2])


def inputs(shape, dtype, seed):
    rows, _, dim = shape
    draw = np.random.default_rng(seed)
    scale = np.exp(draw.uniform(np.log(5e-4), np.log(3.0), (rows, 1, 1)))
    arrays = scale * draw.standard_normal(shape), 1.0 + 0.2 * draw.standard_normal((1, dim))
    return [each.astype(STORED[dtype]) for each in arrays]


def reference(x, gain):
    x, gain = x.astype(np.float64), gain.astype(np.float64)
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + EPSILON) * gain

"""RMSNorm: ``out = x / sqrt(mean(x**2) + 1e-5) * weight``.

Truth: the defective twin keeps the sum of squares of a row in float16. Above 65504 it overflows to infinity, the
reciprocal root becomes 0, and rows of a large scale come out as 0; the other rows are off by float16's rounding alone.

x [rows, columns]; weight [1, columns]. Shapes are (rows, columns). The inputs hold rows of scale 0.25 to 40.
"""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "b03",
    "cause": "fp16-overflow",
    "also": ("overflow", "low-precision-sum", "saturation-lost"),
    "dtypes": ("float32", "bfloat16", "float16"),
    "shapes": ((128, 512), (256, 768), (200, 1000)),
}
STORED = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
ROWS, BANK, EPSILON = 128, 512, 1e-5


def to_every_row(weight):
    """The weight [1, columns] in each of 128 partitions, in float32: a product with ones."""
    columns = weight.shape[1]
    row = nl.ndarray((1, columns), dtype=weight.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=row, src=weight)
    ones = nl.ndarray((1, ROWS), dtype=weight.dtype, buffer=nl.sbuf)
    nisa.memset(dst=ones, value=1.0)
    spread = nl.ndarray((ROWS, columns), dtype=nl.float32, buffer=nl.sbuf)
    for low in range(0, columns, BANK):
        high = min(low + BANK, columns)
        bank = nl.ndarray((ROWS, high - low), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=bank, stationary=ones, moving=row[:, low:high])
        nisa.tensor_copy(dst=spread[:, low:high], src=bank)
    return spread


def normalised(x, weight, statistics):
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    gain = to_every_row(weight)
    for start in range(0, rows, ROWS):
        height = min(ROWS, rows - start)
        tile = nl.ndarray((height, columns), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[start : start + height, :])
        squares = nl.ndarray((height, columns), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=squares, op=nl.square, data=tile)
        total = nl.ndarray((height, 1), dtype=statistics, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=total, op=nl.add, data=squares, axis=(1,), keepdims=True)
        inverse = nl.ndarray((height, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=inverse, op=nl.rsqrt, data=total, scale=1.0 / columns, bias=EPSILON)
        result = nl.ndarray((height, columns), dtype=x.dtype, buffer=nl.sbuf)
        nisa.scalar_tensor_tensor(
            dst=result,
            data=tile,
            op0=nl.multiply,
            operand0=inverse,
            op1=nl.multiply,
            operand1=gain[0:height, :],
        )
        nisa.dma_copy(dst=out[start : start + height, :], src=result)
    return out


@nki.jit
def honest(x, weight):
    return normalised(x, weight, nl.float32)


@nki.jit
def defective(x, weight):
    return normalised(x, weight, nl.float16)


def inputs(shape, dtype, seed):
    rows, columns = shape
    draw = np.random.default_rng(seed)
    scale = np.exp(draw.uniform(np.log(0.25), np.log(40.0), (rows, 1)))
    scale[0], scale[-1] = 40.0, 30.0
    arrays = scale * draw.standard_normal(shape), 1.0 + 0.2 * draw.standard_normal((1, columns))
    return [each.astype(STORED[dtype]) for each in arrays]


def reference(x, weight):
    x, weight = x.astype(np.float64), weight.astype(np.float64)
    return x / np.sqrt(np.mean(x * x, axis=1, keepdims=True) + EPSILON) * weight

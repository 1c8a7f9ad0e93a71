"""Residual addition fused with RMSNorm, as between Gemma's layers: r = x + residual, y = norm(r) * (1 + w).

True cause: the root mean square is that of the layer's output alone, not of the sum. The unfused norm
kernel read its input and squared it; when the addition was fused in front, the squares were left on the
loaded tile: the defective twin squares `tile` where `total` is meant (`data=tile if early else total`).
"""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "b52",
    "cause": "statistics-before-residual",
    "also": ("norm-statistics-of-wrong-tensor", "residual-missing-from-statistics", "term-order"),
    "dtypes": ("float32", "bfloat16", "float16"),
    "shapes": ((128, 256), (256, 192), (300, 500)),  # tokens, width
}
EPSILON = 1e-6


def add_norm(x, residual, weight, early):
    tokens, width = x.shape
    normed = nl.ndarray((tokens, width), dtype=x.dtype, buffer=nl.shared_hbm)
    summed = nl.ndarray((tokens, width), dtype=x.dtype, buffer=nl.shared_hbm)
    line = nl.ndarray((1, width), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=line, src=weight)
    nisa.tensor_scalar(dst=line, data=line, op0=nl.add, operand0=1.0)
    ones = nl.ndarray((1, 128), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=ones, value=1.0)
    bank = nl.ndarray((128, width), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=bank, stationary=ones, moving=line)
    gain = nl.ndarray((128, width), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=gain, src=bank)
    offset = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=offset, value=EPSILON)
    for start in range(0, tokens, 128):
        p = min(128, tokens - start)
        tile = nl.ndarray((p, width), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[start : start + p, :])
        skip = nl.ndarray((p, width), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=skip, src=residual[start : start + p, :])
        total = nl.ndarray((p, width), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=total, data1=tile, data2=skip, op=nl.add)
        kept = nl.ndarray((p, width), dtype=x.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=kept, src=total)
        nisa.dma_copy(dst=summed[start : start + p, :], src=kept)
        squares = nl.ndarray((p, width), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=squares, op=nl.square, data=tile if early else total)
        power = nl.ndarray((p, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=power, op=nl.add, data=squares, axis=(1,), keepdims=True)
        inverse = nl.ndarray((p, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=inverse, op=nl.rsqrt, data=power, bias=offset[:p, :], scale=1.0 / width)
        scaled = nl.ndarray((p, width), dtype=x.dtype, buffer=nl.sbuf)
        nisa.scalar_tensor_tensor(
            dst=scaled, data=total, op0=nl.multiply, operand0=inverse, op1=nl.multiply, operand1=gain[:p, :]
        )
        nisa.dma_copy(dst=normed[start : start + p, :], src=scaled)
    return normed, summed


@nki.jit
def honest(x, residual, weight):
    return add_norm(x, residual, weight, False)


@nki.jit
def defective(x, residual, weight):
    return add_norm(x, residual, weight, True)


def inputs(shape, dtype, seed):
    """A layer's output beside a residual stream that is larger, as it is deep in a model."""
    tokens, width = shape
    draw = np.random.default_rng(seed)
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    x = draw.standard_normal((tokens, width))
    residual = draw.uniform(1.5, 3.0, (tokens, 1)) * draw.standard_normal((tokens, width))
    weight = (0.2 * draw.standard_normal((1, width))).astype(np.float32)
    return [x.astype(kind), residual.astype(kind), weight]


def reference(x, residual, weight):
    """The normalised hidden states and the new residual stream."""
    hidden = x.astype(np.float64) + residual.astype(np.float64)
    variance = np.mean(hidden**2, axis=-1, keepdims=True)
    return hidden / np.sqrt(variance + EPSILON) * (1.0 + weight.astype(np.float64)), hidden

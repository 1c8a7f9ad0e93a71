"""Layer norm that adds epsilon to the standard deviation instead of to the variance."""

import ml_dtypes  # noqa: F401
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "eps outside the root",
    "cause": "eps-outside-root",
    "dtypes": ["float32", "bfloat16", "float16"],
    "shapes": [(128, 128), (128, 512), (200, 80)],
}
EPS = 1e-5


def layer_norm(x, inside):
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for row in range(0, rows, 128):
        p = min(128, rows - row)
        tile = nl.ndarray((p, columns), dtype=x.dtype, buffer=nl.sbuf)
        stats = nl.ndarray((p, 6), dtype=nl.float32, buffer=nl.sbuf)
        both = nl.ndarray((p, 2), dtype=nl.float32, buffer=nl.sbuf)
        deviation = nl.ndarray((p, 1), dtype=nl.float32, buffer=nl.sbuf)
        result = nl.ndarray((p, columns), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[row : row + p, :])
        nisa.bn_stats(dst=stats, data=tile)
        nisa.bn_aggr(dst=both, data=stats)
        if inside:
            nisa.tensor_scalar(dst=deviation, data=both[:, 1:2], op0=nl.add, operand0=EPS)
            nisa.activation(dst=deviation, op=nl.sqrt, data=deviation)
        else:
            nisa.activation(dst=deviation, op=nl.sqrt, data=both[:, 1:2])
            nisa.tensor_scalar(dst=deviation, data=deviation, op0=nl.add, operand0=EPS)
        nisa.reciprocal(dst=deviation, data=deviation)
        nisa.tensor_scalar(
            dst=result,
            data=tile,
            op0=nl.subtract,
            operand0=both[:, 0:1],
            op1=nl.multiply,
            operand1=deviation,
        )
        nisa.dma_copy(dst=out[row : row + p, :], src=result)
    return out


@nki.jit
def honest(x):
    """x [rows, columns] -> (x - mean) / sqrt(var + eps), by row."""
    return layer_norm(x, True)


@nki.jit
def defective(x):
    """(x - mean) / (sqrt(var) + eps)."""
    return layer_norm(x, False)


def inputs(shape, dtype, seed):
    x = np.random.default_rng(seed).standard_normal(shape)
    x[::3] *= 2e-3
    return [x.astype(dtype)]


def reference(x):
    x = x.astype(np.float64)
    return (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + EPS)

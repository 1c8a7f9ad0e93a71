"""RMS norm without its epsilon.

Rows whose mean square is far below epsilon come out several times too large; rows of ordinary size hide the fault.
"""

import ml_dtypes  # noqa: F401
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "eps dropped",
    "cause": "eps-missing",
    "dtypes": ["float32", "bfloat16", "float16"],
    "shapes": [(128, 128), (128, 320), (200, 96)],
}
EPS = 1e-5


def rms_norm(x, w, eps):
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for row in range(0, rows, 128):
        p = min(128, rows - row)
        tile = nl.ndarray((p, columns), dtype=x.dtype, buffer=nl.sbuf)
        weight = nl.ndarray((p, columns), dtype=w.dtype, buffer=nl.sbuf)
        squares = nl.ndarray((p, columns), dtype=nl.float32, buffer=nl.sbuf)
        total = nl.ndarray((p, 1), dtype=nl.float32, buffer=nl.sbuf)
        result = nl.ndarray((p, columns), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[row : row + p, :])
        nisa.dma_copy(dst=weight, src=w.ap(pattern=[[0, p], [1, columns]]))
        nisa.activation(
            dst=squares,
            op=nl.square,
            data=tile,
            reduce_op=nl.add,
            reduce_res=total,
            reduce_cmd=nisa.reduce_cmd.reset_reduce,
        )
        nisa.activation(dst=total, op=nl.rsqrt, data=total, scale=1.0 / columns, bias=eps)
        nisa.scalar_tensor_tensor(
            dst=result, data=tile, op0=nl.multiply, operand0=total, op1=nl.multiply, operand1=weight
        )
        nisa.dma_copy(dst=out[row : row + p, :], src=result)
    return out


@nki.jit
def honest(x, w):
    """x [rows, columns], w [1, columns] -> x / sqrt(mean(x^2) + eps) * w."""
    return rms_norm(x, w, EPS)


@nki.jit
def defective(x, w):
    """The same without eps."""
    return rms_norm(x, w, None)


def inputs(shape, dtype, seed):
    draw = np.random.default_rng(seed)
    x = draw.standard_normal(shape)
    x[::4] *= 1e-3
    return [x.astype(dtype), (1 + 0.2 * draw.standard_normal((1, shape[1]))).astype(dtype)]


def reference(x, w):
    x, w = x.astype(np.float64), w.astype(np.float64)
    return x / np.sqrt((x * x).mean(axis=1, keepdims=True) + EPS) * w

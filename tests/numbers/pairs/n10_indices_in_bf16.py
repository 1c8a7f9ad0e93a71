"""Argmax over more than 256 columns whose column numbers are kept in bf16."""

import ml_dtypes  # noqa: F401
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "bf16 indices",
    "cause": "indices-in-low-precision",
    "dtypes": ["float32", "bfloat16", "float16"],
    "shapes": [(128, 300), (128, 1000), (200, 520)],
}


def argmax(x, kept):
    rows, columns = x.shape
    out = nl.ndarray((rows, 1), dtype=nl.int32, buffer=nl.shared_hbm)
    for row in range(0, rows, 128):
        p = min(128, rows - row)
        tile = nl.ndarray((p, columns), dtype=x.dtype, buffer=nl.sbuf)
        number = nl.ndarray((p, columns), dtype=kept, buffer=nl.sbuf)
        top = nl.ndarray((p, 1), dtype=nl.float32, buffer=nl.sbuf)
        here = nl.ndarray((p, columns), dtype=nl.float32, buffer=nl.sbuf)
        result = nl.ndarray((p, 1), dtype=nl.int32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[row : row + p, :])
        nisa.iota(dst=number, pattern=[[1, columns]])
        nisa.tensor_reduce(dst=top, op=nl.maximum, data=tile, axis=(1,), keepdims=True)
        nisa.tensor_scalar(dst=here, data=tile, op0=nl.equal, operand0=top)
        nisa.tensor_tensor(dst=here, data1=here, data2=number, op=nl.multiply)
        nisa.tensor_reduce(dst=result, op=nl.maximum, data=here, axis=(1,), keepdims=True)
        nisa.dma_copy(dst=out[row : row + p, :], src=result)
    return out


@nki.jit
def honest(x):
    """x [rows, columns], one largest value in each row -> its column, int32 [rows, 1]."""
    return argmax(x, nl.float32)


@nki.jit
def defective(x):
    """The same with the column numbers in bf16."""
    return argmax(x, nl.bfloat16)


def inputs(shape, dtype, seed):
    rows, columns = shape
    draw = np.random.default_rng(seed)
    x = np.clip(draw.standard_normal(shape), -4, 4)
    x[np.arange(rows), draw.integers(0, columns, rows)] = 5
    return [x.astype(dtype)]


def reference(x):
    return x.astype(np.float64).argmax(axis=1)[:, None]

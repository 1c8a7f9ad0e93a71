"""Row sums over 8,192 columns whose running sum is kept in a bf16 tile."""

import ml_dtypes  # noqa: F401
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "bf16 running sum",
    "cause": "low-precision-sum",
    "dtypes": ["float32", "bfloat16", "float16"],
    "shapes": [(64, 8192), (128, 8192), (136, 8192)],
}
CHUNK = 128


def row_sums(x, kept):
    rows, columns = x.shape
    out = nl.ndarray((rows, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    for row in range(0, rows, 128):
        p = min(128, rows - row)
        tile = nl.ndarray((p, columns // CHUNK, CHUNK), dtype=x.dtype, buffer=nl.sbuf)
        parts = nl.ndarray((p, columns // CHUNK), dtype=nl.float32, buffer=nl.sbuf)
        total = nl.ndarray((p, 1), dtype=kept, buffer=nl.sbuf)
        result = nl.ndarray((p, 1), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[row : row + p, :])
        nisa.tensor_reduce(dst=parts, op=nl.add, data=tile, axis=(2,))
        nisa.memset(dst=total, value=0.0)
        for at in range(columns // CHUNK):
            nisa.tensor_tensor(dst=total, data1=total, data2=parts[:, at : at + 1], op=nl.add)
        nisa.tensor_copy(dst=result, src=total)
        nisa.dma_copy(dst=out[row : row + p, :], src=result)
    return out


@nki.jit
def honest(x):
    """x [rows, columns] -> the sum of each row, [rows, 1]."""
    return row_sums(x, nl.float32)


@nki.jit
def defective(x):
    """The same with the running sum in bf16."""
    return row_sums(x, nl.bfloat16)


def inputs(shape, dtype, seed):
    # parts of about 61 are rounded up to 64 as soon as the sum is above 1,024
    return [(0.4 + 0.15 * np.random.default_rng(seed).random(shape, np.float32)).astype(dtype)]


def reference(x):
    return x.sum(axis=1, keepdims=True, dtype=np.float64)

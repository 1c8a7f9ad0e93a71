"""A product whose accumulator in SBUF is cleared once, not for each tile of rows: later tiles hold earlier ones too."""

import ml_dtypes  # noqa: F401
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "stale accumulator",
    "cause": "stale-accumulator",
    "dtypes": ["float32", "bfloat16", "float16", "float8_e4m3"],
    "shapes": [(256, 256, 64), (384, 128, 128), (300, 192, 48)],
}


def product(a, b, cleared):
    k, rows = a.shape
    columns = b.shape[1]
    kept = nl.bfloat16 if a.dtype == nl.float8_e4m3 else a.dtype
    out = nl.ndarray((rows, columns), dtype=kept, buffer=nl.shared_hbm)
    total = nl.ndarray((128, columns), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=total, value=0.0)
    for row in range(0, rows, 128):
        p = min(128, rows - row)
        if cleared and row:
            nisa.memset(dst=total, value=0.0)
        for first in range(0, k, 128):
            n = min(128, k - first)
            left = nl.ndarray((n, p), dtype=a.dtype, buffer=nl.sbuf)
            right = nl.ndarray((n, columns), dtype=b.dtype, buffer=nl.sbuf)
            part = nl.ndarray((p, columns), dtype=nl.float32, buffer=nl.psum)
            nisa.dma_copy(dst=left, src=a[first : first + n, row : row + p])
            nisa.dma_copy(dst=right, src=b[first : first + n, :])
            nisa.nc_matmul(dst=part, stationary=left, moving=right, accumulate=False)
            nisa.tensor_tensor(dst=total[0:p, :], data1=total[0:p, :], data2=part, op=nl.add)
        result = nl.ndarray((p, columns), dtype=kept, buffer=nl.sbuf)
        nisa.tensor_copy(dst=result, src=total[0:p, :])
        nisa.dma_copy(dst=out[row : row + p, :], src=result)
    return out


@nki.jit
def honest(a, b):
    """a [k, rows], b [k, columns] -> a.T @ b."""
    return product(a, b, True)


@nki.jit
def defective(a, b):
    """The same with every tile of rows on top of those before it."""
    return product(a, b, False)


def inputs(shape, dtype, seed):
    rows, k, columns = shape
    draw = np.random.default_rng(seed).standard_normal
    return [draw((k, rows)).astype(dtype), draw((k, columns)).astype(dtype)]


def reference(a, b):
    return a.astype(np.float64).T @ b.astype(np.float64)

"""A product whose left operand is loaded as it lies, where the Tensor Engine needs it transposed.

The operand is square, so nothing but the values shows it.
"""

import ml_dtypes  # noqa: F401
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "operand transposed",
    "cause": "operand-transposed",
    "dtypes": ["float32", "bfloat16", "float16", "float8_e4m3"],
    "shapes": [(128, 128), (256, 256), (192, 320)],
}


def product(a, b, turned):
    size, columns = b.shape
    kept = nl.bfloat16 if a.dtype == nl.float8_e4m3 else a.dtype
    out = nl.ndarray((size, columns), dtype=kept, buffer=nl.shared_hbm)
    for row in range(0, size, 128):
        p = min(128, size - row)
        total = nl.ndarray((p, columns), dtype=nl.float32, buffer=nl.psum)
        result = nl.ndarray((p, columns), dtype=kept, buffer=nl.sbuf)
        for first in range(0, size, 128):
            n = min(128, size - first)
            left = nl.ndarray((n, p), dtype=a.dtype, buffer=nl.sbuf)
            right = nl.ndarray((n, columns), dtype=b.dtype, buffer=nl.sbuf)
            if turned:
                nisa.dma_copy(dst=left, src=a.ap(pattern=[[1, n], [size, p]], offset=row * size + first))
            else:
                nisa.dma_copy(dst=left, src=a[first : first + n, row : row + p])
            nisa.dma_copy(dst=right, src=b[first : first + n, :])
            nisa.nc_matmul(dst=total, stationary=left, moving=right, accumulate=first > 0)
        nisa.tensor_copy(dst=result, src=total)
        nisa.dma_copy(dst=out[row : row + p, :], src=result)
    return out


@nki.jit
def honest(a, b):
    """a [n, n], b [n, columns] -> a @ b."""
    return product(a, b, True)


@nki.jit
def defective(a, b):
    """a.T @ b."""
    return product(a, b, False)


def inputs(shape, dtype, seed):
    size, columns = shape
    draw = np.random.default_rng(seed).standard_normal
    return [draw((size, size)).astype(dtype), draw((size, columns)).astype(dtype)]


def reference(a, b):
    return a.astype(np.float64) @ b.astype(np.float64)

"""A product whose loop over K leaves out the last tile, which is not full."""

import ml_dtypes  # noqa: F401
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "last K tile lost",
    "cause": "input-part-unused",
    "dtypes": ["float32", "bfloat16", "float16", "float8_e4m3"],
    "shapes": [(128, 320, 128), (128, 576, 256), (200, 160, 96)],
}


def product(a, b, tiles):
    k, rows = a.shape
    columns = b.shape[1]
    kept = nl.bfloat16 if a.dtype == nl.float8_e4m3 else a.dtype
    out = nl.ndarray((rows, columns), dtype=kept, buffer=nl.shared_hbm)
    for row in range(0, rows, 128):
        p = min(128, rows - row)
        total = nl.ndarray((p, columns), dtype=nl.float32, buffer=nl.psum)
        result = nl.ndarray((p, columns), dtype=kept, buffer=nl.sbuf)
        for at in range(tiles):
            first = 128 * at
            n = min(128, k - first)
            left = nl.ndarray((n, p), dtype=a.dtype, buffer=nl.sbuf)
            right = nl.ndarray((n, columns), dtype=b.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=left, src=a[first : first + n, row : row + p])
            nisa.dma_copy(dst=right, src=b[first : first + n, :])
            nisa.nc_matmul(dst=total, stationary=left, moving=right, accumulate=at > 0)
        nisa.tensor_copy(dst=result, src=total)
        nisa.dma_copy(dst=out[row : row + p, :], src=result)
    return out


@nki.jit
def honest(a, b):
    """a [k, rows], b [k, columns] -> a.T @ b."""
    return product(a, b, -(-a.shape[0] // 128))


@nki.jit
def defective(a, b):
    """The same over the full tiles of k alone."""
    return product(a, b, a.shape[0] // 128)


def inputs(shape, dtype, seed):
    rows, k, columns = shape
    draw = np.random.default_rng(seed).standard_normal
    return [draw((k, rows)).astype(dtype), draw((k, columns)).astype(dtype)]


def reference(a, b):
    return a.astype(np.float64).T @ b.astype(np.float64)

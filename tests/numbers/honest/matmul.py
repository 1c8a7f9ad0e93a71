"""A product of two matrices: K on the partitions, in tiles of 128, accumulated in PSUM."""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "matmul",
    "cause": "",
    "dtypes": ["float32", "bfloat16"],
    "shapes": [(64, 16, 32), (1024, 32, 64)],
}


@nki.jit
def honest(a, b):
    depth, rows = a.shape
    columns = b.shape[1]
    out = nl.ndarray((rows, columns), dtype=a.dtype, buffer=nl.shared_hbm)
    total = nl.ndarray((rows, columns), dtype=nl.float32, buffer=nl.psum)
    for at in range(0, depth, 128):
        size = min(128, depth - at)
        left = nl.ndarray((size, rows), dtype=a.dtype, buffer=nl.sbuf)
        right = nl.ndarray((size, columns), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=left, src=a[at : at + size, :])
        nisa.dma_copy(dst=right, src=b[at : at + size, :])
        nisa.nc_matmul(dst=total, stationary=left, moving=right)
    held = nl.ndarray((rows, columns), dtype=a.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=held, src=total)
    nisa.dma_copy(dst=out, src=held)
    return out


def inputs(shape, dtype, seed):
    generator = np.random.default_rng(seed)
    depth, rows, columns = shape
    made = generator.standard_normal((depth, rows)), generator.standard_normal((depth, columns))
    return [array.astype(nl_dtype(dtype)) for array in made]


def nl_dtype(name):
    from nkireview.isa import dtypes

    return dtypes.of(name).storage


def reference(a, b):
    return a.astype(np.float64).T @ b.astype(np.float64)

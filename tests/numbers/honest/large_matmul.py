"""A product of two large matrices: tiles of 128 by 512, the stationary operand given with K first."""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "large-matmul",
    "cause": "input-part-unused",
    "dtypes": ["float32"],
    "shapes": [(2048, 2048, 2048)],
}


def product(a, b, depth):
    rows, columns = a.shape[1], b.shape[1]
    out = nl.ndarray((rows, columns), dtype=a.dtype, buffer=nl.shared_hbm)
    left, right = [], []
    for at in range(0, depth, 128):
        left.append(nl.ndarray((128, rows), dtype=a.dtype, buffer=nl.sbuf))
        nisa.dma_copy(dst=left[-1], src=a[at : at + 128, :])
        right.append(nl.ndarray((128, columns), dtype=a.dtype, buffer=nl.sbuf))
        nisa.dma_copy(dst=right[-1], src=b[at : at + 128, :])
    for row in range(0, rows, 128):
        for column in range(0, columns, 512):
            total = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
            for at in range(len(left)):
                nisa.nc_matmul(
                    dst=total,
                    stationary=left[at][:, row : row + 128],
                    moving=right[at][:, column : column + 512],
                )
            held = nl.ndarray((128, 512), dtype=a.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=held, src=total)
            nisa.dma_copy(dst=out[row : row + 128, column : column + 512], src=held)
    return out


@nki.jit
def honest(a, b):
    return product(a, b, a.shape[0])


@nki.jit
def defective(a, b):
    """Leaves the last 128 of K out."""
    return product(a, b, a.shape[0] - 128)


def inputs(shape, dtype, seed):
    from nkireview.isa import dtypes

    generator = np.random.default_rng(seed)
    depth, rows, columns = shape
    made = generator.standard_normal((depth, rows)), generator.standard_normal((depth, columns))
    return [array.astype(dtypes.of(dtype).storage) for array in made]


def reference(a, b):
    return a.astype(np.float64).T @ b.astype(np.float64)

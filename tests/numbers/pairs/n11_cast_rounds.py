"""Cells of a grid by a plain cast, which rounds to nearest even, where the original's ``(int)x`` truncates."""

import ml_dtypes  # noqa: F401
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "truncating cast",
    "cause": "integer-rounding",
    "dtypes": ["float32", "bfloat16", "float16"],
    "shapes": [(128, 64), (128, 256), (200, 100)],
}
CELLS = 8.0


def cells(x, truncated):
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=nl.int32, buffer=nl.shared_hbm)
    for row in range(0, rows, 128):
        p = min(128, rows - row)
        tile = nl.ndarray((p, columns), dtype=x.dtype, buffer=nl.sbuf)
        scaled = nl.ndarray((p, columns), dtype=nl.float32, buffer=nl.sbuf)
        result = nl.ndarray((p, columns), dtype=nl.int32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[row : row + p, :])
        nisa.tensor_scalar(dst=scaled, data=tile, op0=nl.multiply, operand0=CELLS)
        nisa.tensor_copy(dst=result, src=nl.trunc(scaled) if truncated else scaled)
        nisa.dma_copy(dst=out[row : row + p, :], src=result)
    return out


@nki.jit
def honest(x):
    """x [rows, columns] -> 8 x without its fraction, int32."""
    return cells(x, True)


@nki.jit
def defective(x):
    """8 x to the nearest integer."""
    return cells(x, False)


def inputs(shape, dtype, seed):
    return [(4 * np.random.default_rng(seed).standard_normal(shape)).astype(dtype)]


def reference(x):
    return np.trunc(CELLS * x.astype(np.float64))

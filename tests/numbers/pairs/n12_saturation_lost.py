"""Quantised to int8 without saturation: values beyond the range wrap around."""

import ml_dtypes  # noqa: F401
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "saturation lost",
    "cause": "saturation-lost",
    "dtypes": ["float32", "bfloat16", "float16"],
    "shapes": [(128, 64), (128, 256), (200, 100)],
}
STEPS = 16.0


def quantise(x, saturated):
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=nl.int8, buffer=nl.shared_hbm)
    for row in range(0, rows, 128):
        p = min(128, rows - row)
        tile = nl.ndarray((p, columns), dtype=x.dtype, buffer=nl.sbuf)
        scaled = nl.ndarray((p, columns), dtype=nl.float32, buffer=nl.sbuf)
        result = nl.ndarray((p, columns), dtype=nl.int8, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[row : row + p, :])
        nisa.tensor_scalar(dst=scaled, data=tile, op0=nl.multiply, operand0=STEPS)
        if saturated:
            nisa.tensor_scalar(
                dst=result, data=scaled, op0=nl.minimum, operand0=127.0, op1=nl.maximum, operand1=-128.0
            )
        else:
            whole = nl.ndarray((p, columns), dtype=nl.int32, buffer=nl.sbuf)
            nisa.tensor_copy(dst=whole, src=scaled)
            nisa.tensor_scalar(
                dst=whole, data=whole, op0=nl.bitwise_and, operand0=255, op1=nl.bitwise_xor, operand1=128
            )
            nisa.tensor_scalar(dst=result, data=whole, op0=nl.subtract, operand0=128.0)
        nisa.dma_copy(dst=out[row : row + p, :], src=result)
    return out


@nki.jit
def honest(x):
    """x [rows, columns] -> 16 x to the nearest integer, -128 to 127, int8."""
    return quantise(x, True)


@nki.jit
def defective(x):
    """The same with the low byte of the integer instead."""
    return quantise(x, False)


def inputs(shape, dtype, seed):
    return [(5 * np.random.default_rng(seed).standard_normal(shape)).astype(dtype)]


def reference(x):
    return np.clip(np.rint(STEPS * x.astype(np.float64)), -128, 127)

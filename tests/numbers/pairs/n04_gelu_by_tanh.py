"""Gated GELU by its tanh approximation where the original has the erf form."""

import ml_dtypes  # noqa: F401
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
from scipy import special

PAIR = {
    "id": "tanh GELU",
    "cause": "gelu-form",
    "dtypes": ["float32", "bfloat16", "float16"],
    "shapes": [(128, 128), (128, 256), (200, 100)],
}


def gated(x, gate, op):
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for row in range(0, rows, 128):
        p = min(128, rows - row)
        tile = nl.ndarray((p, columns), dtype=x.dtype, buffer=nl.sbuf)
        other = nl.ndarray((p, columns), dtype=gate.dtype, buffer=nl.sbuf)
        active = nl.ndarray((p, columns), dtype=nl.float32, buffer=nl.sbuf)
        result = nl.ndarray((p, columns), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[row : row + p, :])
        nisa.dma_copy(dst=other, src=gate[row : row + p, :])
        nisa.activation(dst=active, op=op, data=tile)
        nisa.tensor_tensor(dst=result, data1=active, data2=other, op=nl.multiply)
        nisa.dma_copy(dst=out[row : row + p, :], src=result)
    return out


@nki.jit
def honest(x, gate):
    """x, gate [rows, columns] -> gelu(x) * gate, the erf form."""
    return gated(x, gate, nl.gelu)


@nki.jit
def defective(x, gate):
    """The same by the tanh approximation."""
    return gated(x, gate, nl.gelu_apprx_tanh)


def inputs(shape, dtype, seed):
    draw = np.random.default_rng(seed)
    return [(2 * draw.standard_normal(shape)).astype(dtype), draw.standard_normal(shape).astype(dtype)]


def reference(x, gate):
    x, gate = x.astype(np.float64), gate.astype(np.float64)
    return x * special.ndtr(x) * gate

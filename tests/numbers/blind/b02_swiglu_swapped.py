"""SwiGLU: ``out = silu(x @ gate) * (x @ up)``.

Truth: the defective twin has gate and up swapped. It applies silu to the up product and multiplies by the bare gate
product, ``(x @ gate) * silu(x @ up)``.

xt [k, rows], x transposed; gate, up [k, columns]. Shapes are (rows, k, columns).
"""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "b02",
    "cause": "operands-swapped",
    "also": ("gate-up-swapped", "activation-misplaced", "operand-transposed"),
    "dtypes": ("float32", "bfloat16", "float16"),
    "shapes": ((128, 128, 256), (256, 384, 128), (200, 192, 320)),
}
STORED = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
PARTS = 128


def product(xt, weight, start, stop):
    """Rows start to stop of x @ weight, in PSUM."""
    inner, columns = weight.shape
    total = nl.ndarray((stop - start, columns), dtype=nl.float32, buffer=nl.psum)
    for low in range(0, inner, PARTS):
        high = min(low + PARTS, inner)
        left = nl.ndarray((high - low, stop - start), dtype=xt.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=left, src=xt[low:high, start:stop])
        right = nl.ndarray((high - low, columns), dtype=weight.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=right, src=weight[low:high, :])
        nisa.nc_matmul(dst=total, stationary=left, moving=right, accumulate=low > 0)
    return total


def gated(xt, activated, plain):
    rows, columns = xt.shape[1], plain.shape[1]
    out = nl.ndarray((rows, columns), dtype=xt.dtype, buffer=nl.shared_hbm)
    for start in range(0, rows, PARTS):
        stop = min(start + PARTS, rows)
        opened = nl.ndarray((stop - start, columns), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=opened, op=nl.silu, data=product(xt, activated, start, stop))
        result = nl.ndarray((stop - start, columns), dtype=xt.dtype, buffer=nl.sbuf)
        through = product(xt, plain, start, stop)
        nisa.tensor_tensor(dst=result, data1=opened, data2=through, op=nl.multiply)
        nisa.dma_copy(dst=out[start:stop, :], src=result)
    return out


@nki.jit
def honest(xt, gate, up):
    return gated(xt, activated=gate, plain=up)


@nki.jit
def defective(xt, gate, up):
    return gated(xt, activated=up, plain=gate)


def inputs(shape, dtype, seed):
    rows, inner, columns = shape
    draw = np.random.default_rng(seed)
    arrays = (
        draw.standard_normal((inner, rows)),
        draw.standard_normal((inner, columns)) * 1.5 / np.sqrt(inner),
        draw.standard_normal((inner, columns)) * 1.5 / np.sqrt(inner),
    )
    return [each.astype(STORED[dtype]) for each in arrays]


def reference(xt, gate, up):
    x, gate, up = xt.astype(np.float64).T, gate.astype(np.float64), up.astype(np.float64)
    opened = x @ gate
    return opened / (1.0 + np.exp(-opened)) * (x @ up)

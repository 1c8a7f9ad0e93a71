"""Group normalisation with a scale per sample.

The defective twin adds epsilon after the square root, 1 / (sqrt(variance) + eps), where 1 / sqrt(variance + eps) is
meant: the `tensor_scalar` that adds EPS to `deviation`, in place of the `bias=EPS` of the square root.
"""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

EPS = 1e-5
GROUPS = 4

PAIR = {
    "id": "b21",
    "cause": "epsilon-outside-root",
    "also": ("eps-outside-root",),
    "dtypes": ("float32", "bfloat16", "float16"),
    "shapes": ((128, 256), (200, 192), (256, 1024)),
}


def body(x, scale, inside):
    rows, columns = x.shape
    width = columns // GROUPS
    out = nl.ndarray((rows, columns), dtype=x.dtype, buffer=nl.shared_hbm)
    for start in range(0, rows, 128):
        p = min(128, rows - start)
        stored = nl.ndarray((p, columns), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=stored, src=x[start : start + p, :])
        gain = nl.ndarray((p, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=gain, src=scale[start : start + p, :])
        result = nl.ndarray((p, columns), dtype=x.dtype, buffer=nl.sbuf)
        for group in range(GROUPS):
            here = slice(group * width, (group + 1) * width)
            mean = nl.ndarray((p, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_reduce(dst=mean, op=nl.add, data=stored[:, here], axis=(1,), keepdims=True)
            nisa.tensor_scalar(dst=mean, data=mean, op0=nl.multiply, operand0=1.0 / width)
            centred = nl.ndarray((p, width), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_scalar(dst=centred, data=stored[:, here], op0=nl.subtract, operand0=mean)
            squares = nl.ndarray((p, width), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_tensor(dst=squares, data1=centred, data2=centred, op=nl.multiply)
            deviation = nl.ndarray((p, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_reduce(dst=deviation, op=nl.add, data=squares, axis=(1,), keepdims=True)
            if inside:
                nisa.activation(dst=deviation, op=nl.sqrt, data=deviation, scale=1.0 / width, bias=EPS)
            else:
                nisa.activation(dst=deviation, op=nl.sqrt, data=deviation, scale=1.0 / width)
                nisa.tensor_scalar(dst=deviation, data=deviation, op0=nl.add, operand0=EPS)
            nisa.reciprocal(dst=deviation, data=deviation)
            nisa.tensor_scalar(
                dst=result[:, here],
                data=centred,
                op0=nl.multiply,
                operand0=deviation,
                op1=nl.multiply,
                operand1=gain,
            )
        nisa.dma_copy(dst=out[start : start + p, :], src=result)
    return out


@nki.jit
def honest(x, scale):
    return body(x, scale, True)


@nki.jit
def defective(x, scale):
    return body(x, scale, False)


def inputs(shape, dtype, seed):
    rows, _ = shape
    draw = np.random.default_rng(seed)
    size = np.where(np.arange(rows) % 2, 1.0, 2e-3)[:, None]
    x = (draw.standard_normal(shape) * size).astype(getattr(ml_dtypes, dtype, dtype))
    return [x, draw.uniform(0.5, 1.5, (rows, 1)).astype(np.float32)]


def reference(x, scale):
    rows, columns = x.shape
    grouped = x.astype(np.float64).reshape(rows, GROUPS, columns // GROUPS)
    centred = grouped - grouped.mean(-1, keepdims=True)
    normal = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + EPS)
    return normal.reshape(rows, columns) * scale.astype(np.float64)

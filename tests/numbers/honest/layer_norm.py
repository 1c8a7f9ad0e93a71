"""Layer norm of the rows, in two passes."""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "layer-norm",
    "cause": "",
    "dtypes": ["float32", "bfloat16"],
    "shapes": [(128, 512), (64, 1024)],
}
EPS = 1e-5


@nki.jit
def honest(x):
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    given = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=given, src=x)
    mean = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=mean, op=nl.add, data=given, axis=(1,), keepdims=True)
    nisa.tensor_scalar(dst=mean, data=mean, op0=nl.multiply, operand0=1.0 / columns)
    centred = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=centred, data=given, op0=nl.subtract, operand0=mean)
    square = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=square, data1=centred, data2=centred, op=nl.multiply)
    spread = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=spread, op=nl.add, data=square, axis=(1,), keepdims=True)
    nisa.tensor_scalar(
        dst=spread, data=spread, op0=nl.multiply, operand0=1.0 / columns, op1=nl.add, operand1=EPS
    )
    nisa.activation(dst=spread, op=nl.rsqrt, data=spread)
    held = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=held, data=centred, op0=nl.multiply, operand0=spread)
    nisa.dma_copy(dst=out, src=held)
    return out


def inputs(shape, dtype, seed):
    from nkireview.isa import dtypes

    made = np.random.default_rng(seed).standard_normal(shape) + 0.5
    return [made.astype(dtypes.of(dtype).storage)]


def reference(x):
    x = x.astype(np.float64)
    centred = x - x.mean(1, keepdims=True)
    return centred / np.sqrt(np.square(centred).mean(1, keepdims=True) + EPS)

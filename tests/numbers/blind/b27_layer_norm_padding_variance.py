"""Layer norm of a residual sum, whose rows are padded with zeros to a multiple of 128 columns.

True cause: the padding is counted in the variance: after the mean is subtracted each padded column holds -mean, and the
sum of squares of the defective twin runs over the padded width (`counted = padded`), not over the row's own columns.
"""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "b27",
    "cause": "padding-in-variance",
    "also": ("padded-columns-counted", "tail-padding-in-reduction"),
    "dtypes": ("float32", "bfloat16", "float16"),
    "shapes": ((128, 200), (256, 840), (300, 333)),
}
EPSILON = 1e-5


def _layer_norm(x, residual, gamma, beta, all_columns):
    rows, width = x.shape
    padded = (width + 127) // 128 * 128
    counted = width
    if all_columns:
        counted = padded
    out = nl.ndarray((rows, width), dtype=x.dtype, buffer=nl.shared_hbm)
    ones = nl.ndarray((1, 128), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=ones, value=1.0)
    affine = []
    for given in (gamma, beta):
        line = nl.ndarray((1, width), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=line, src=given)
        spread = nl.ndarray((128, width), dtype=nl.float32, buffer=nl.sbuf)
        for at in range(0, width, 512):
            end = min(at + 512, width)
            bank = nl.ndarray((128, end - at), dtype=nl.float32, buffer=nl.psum)
            nisa.nc_matmul(dst=bank, stationary=ones, moving=line[:, at:end])
            nisa.tensor_copy(dst=spread[:, at:end], src=bank)
        affine.append(spread)
    for row in range(0, rows, 128):
        size = min(128, rows - row)
        a = nl.ndarray((size, width), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=a, src=x[row : row + size, :])
        b = nl.ndarray((size, width), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=b, src=residual[row : row + size, :])
        h = nl.ndarray((size, padded), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=h, value=0.0)
        nisa.tensor_tensor(dst=h[:, :width], data1=a, data2=b, op=nl.add)
        mean = nl.ndarray((size, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=mean, op=nl.add, data=h, axis=(1,), keepdims=True)
        nisa.tensor_scalar(dst=mean, data=mean, op0=nl.multiply, operand0=1.0 / width)
        nisa.tensor_scalar(dst=h, data=h, op0=nl.subtract, operand0=mean)
        squares = nl.ndarray((size, counted), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=squares, data1=h[:, :counted], data2=h[:, :counted], op=nl.multiply)
        scale = nl.ndarray((size, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=scale, op=nl.add, data=squares, axis=(1,), keepdims=True)
        nisa.tensor_scalar(
            dst=scale, data=scale, op0=nl.multiply, operand0=1.0 / width, op1=nl.add, operand1=EPSILON
        )
        nisa.activation(dst=scale, op=nl.sqrt, data=scale)
        nisa.reciprocal(dst=scale, data=scale)
        y = nl.ndarray((size, width), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=y, data=h[:, :width], op0=nl.multiply, operand0=scale)
        nisa.tensor_tensor(dst=y, data1=y, data2=affine[0][:size, :], op=nl.multiply)
        stored = nl.ndarray((size, width), dtype=x.dtype, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=stored, data1=y, data2=affine[1][:size, :], op=nl.add)
        nisa.dma_copy(dst=out[row : row + size, :], src=stored)
    return out


@nki.jit
def honest(x, residual, gamma, beta):
    """The squares of the row's own columns are summed."""
    return _layer_norm(x, residual, gamma, beta, False)


@nki.jit
def defective(x, residual, gamma, beta):
    """The squares of the padding are summed too."""
    return _layer_norm(x, residual, gamma, beta, True)


def inputs(shape, dtype, seed):
    """Rows whose mean is about twice their deviation."""
    rows, width = shape
    random = np.random.default_rng(seed)
    stored = np.dtype(getattr(ml_dtypes, dtype, dtype))
    x = (random.standard_normal((rows, width)) + 1.5 + random.uniform(0.0, 1.0, (rows, 1))).astype(stored)
    residual = (0.5 * random.standard_normal((rows, width)) + 0.5).astype(stored)
    gamma = random.uniform(0.5, 1.5, (1, width)).astype(np.float32)
    beta = (0.1 * random.standard_normal((1, width))).astype(np.float32)
    return [x, residual, gamma, beta]


def reference(x, residual, gamma, beta):
    """Layer norm of x + residual."""
    h = x.astype(np.float64) + residual.astype(np.float64)
    centred = h - h.mean(1, keepdims=True)
    variance = np.square(centred).mean(1, keepdims=True)
    return centred / np.sqrt(variance + EPSILON) * gamma.astype(np.float64) + beta.astype(np.float64)

"""Matmul with int8 weights, dequantised per output channel: the zero point is subtracted after the scale.

True cause, line 81, ``op0=nl.multiply, operand0=step, op1=nl.subtract, operand1=origin``: the weights become
q * scale - zero instead of (q - zero) * scale, so the zero point enters without its scale.
"""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "b08",
    "cause": "zero-point-not-scaled",
    "also": ("zero-point-after-scale", "dequantisation-order", "zero-point", "step-order"),
    "dtypes": ("float32", "bfloat16", "float16"),
    "shapes": ((128, 128, 128), (256, 256, 192), (300, 200, 160)),  # rows, inner, channels
}
TILE = 128
STORED = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}


@nki.jit
def honest(x_t, codes, scales, zeros):
    inner, count = x_t.shape
    channels = codes.shape[0]
    out = nl.ndarray((count, channels), dtype=x_t.dtype, buffer=nl.shared_hbm)
    for n0 in range(0, channels, TILE):
        wide = min(TILE, channels - n0)
        step = nl.ndarray((wide, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=step, src=scales[n0 : n0 + wide, :])
        origin = nl.ndarray((wide, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=origin, src=zeros[n0 : n0 + wide, :])
        columns = []
        for k0 in range(0, inner, TILE):
            deep = min(TILE, inner - k0)
            code = nl.ndarray((wide, deep), dtype=nl.int8, buffer=nl.sbuf)
            nisa.dma_copy(dst=code, src=codes[n0 : n0 + wide, k0 : k0 + deep])
            weight = nl.ndarray((wide, deep), dtype=x_t.dtype, buffer=nl.sbuf)
            nisa.tensor_scalar(
                dst=weight, data=code, op0=nl.subtract, operand0=origin, op1=nl.multiply, operand1=step
            )
            turned = nl.ndarray((deep, wide), dtype=x_t.dtype, buffer=nl.psum)
            nisa.nc_transpose(dst=turned, data=weight)
            column = nl.ndarray((deep, wide), dtype=x_t.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=column, src=turned)
            columns.append(column)
        for m0 in range(0, count, TILE):
            rows = min(TILE, count - m0)
            sums = nl.ndarray((rows, wide), dtype=nl.float32, buffer=nl.psum)
            for i, k0 in enumerate(range(0, inner, TILE)):
                deep = min(TILE, inner - k0)
                tile = nl.ndarray((deep, rows), dtype=x_t.dtype, buffer=nl.sbuf)
                nisa.dma_copy(dst=tile, src=x_t[k0 : k0 + deep, m0 : m0 + rows])
                nisa.nc_matmul(dst=sums, stationary=tile, moving=columns[i], accumulate=i > 0)
            done = nl.ndarray((rows, wide), dtype=x_t.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=done, src=sums)
            nisa.dma_copy(dst=out[m0 : m0 + rows, n0 : n0 + wide], src=done)
    return out


@nki.jit
def defective(x_t, codes, scales, zeros):
    inner, count = x_t.shape
    channels = codes.shape[0]
    out = nl.ndarray((count, channels), dtype=x_t.dtype, buffer=nl.shared_hbm)
    for n0 in range(0, channels, TILE):
        wide = min(TILE, channels - n0)
        step = nl.ndarray((wide, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=step, src=scales[n0 : n0 + wide, :])
        origin = nl.ndarray((wide, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=origin, src=zeros[n0 : n0 + wide, :])
        columns = []
        for k0 in range(0, inner, TILE):
            deep = min(TILE, inner - k0)
            code = nl.ndarray((wide, deep), dtype=nl.int8, buffer=nl.sbuf)
            nisa.dma_copy(dst=code, src=codes[n0 : n0 + wide, k0 : k0 + deep])
            weight = nl.ndarray((wide, deep), dtype=x_t.dtype, buffer=nl.sbuf)
            nisa.tensor_scalar(
                dst=weight, data=code, op0=nl.multiply, operand0=step, op1=nl.subtract, operand1=origin
            )
            turned = nl.ndarray((deep, wide), dtype=x_t.dtype, buffer=nl.psum)
            nisa.nc_transpose(dst=turned, data=weight)
            column = nl.ndarray((deep, wide), dtype=x_t.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=column, src=turned)
            columns.append(column)
        for m0 in range(0, count, TILE):
            rows = min(TILE, count - m0)
            sums = nl.ndarray((rows, wide), dtype=nl.float32, buffer=nl.psum)
            for i, k0 in enumerate(range(0, inner, TILE)):
                deep = min(TILE, inner - k0)
                tile = nl.ndarray((deep, rows), dtype=x_t.dtype, buffer=nl.sbuf)
                nisa.dma_copy(dst=tile, src=x_t[k0 : k0 + deep, m0 : m0 + rows])
                nisa.nc_matmul(dst=sums, stationary=tile, moving=columns[i], accumulate=i > 0)
            done = nl.ndarray((rows, wide), dtype=x_t.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=done, src=sums)
            nisa.dma_copy(dst=out[m0 : m0 + rows, n0 : n0 + wide], src=done)
    return out


def inputs(shape, dtype, seed):
    count, inner, channels = shape
    rng = np.random.default_rng(seed)
    x_t = rng.standard_normal((inner, count)).astype(STORED[dtype])
    codes = rng.integers(-128, 128, (channels, inner)).astype(np.int8)
    scales = rng.uniform(0.005, 0.02, (channels, 1)).astype(np.float32)
    # Zero points of either sign, none of them 0.
    zeros = (rng.integers(3, 21, (channels, 1)) * rng.choice([-1, 1], (channels, 1))).astype(np.float32)
    return [x_t, codes, scales, zeros]


def reference(x_t, codes, scales, zeros):
    weights = (codes.astype(np.float64) - zeros.astype(np.float64)) * scales.astype(np.float64)
    return x_t.astype(np.float64).T @ weights.T

"""Dequantised int4 matmul whose high nibble is rounded to the nearest integer where it must be floored.

True cause: `defective` unpacks the high nibble as byte * (1/16) stored to an integer tile
(``nisa.tensor_scalar(dst=high, data=byte, op0=nl.multiply, operand0=0.0625)``); the store rounds to nearest even where
C's ``byte / 16`` truncates, so about half the weights of the odd output channels, those whose low nibble is over 8,
come out one step too high. M23, M24.

Shapes are (K, N, M); a byte holds the 4-bit weights of columns 2j (low) and 2j + 1 (high).
"""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "b11",
    "cause": "int4-high-nibble-rounded",
    "also": (
        "cast-rounds-instead-of-truncating",
        "integer-division-rounded",
        "truncation-lost",
        "integer-rounding",
    ),
    "dtypes": ("float32", "bfloat16", "float16"),
    "shapes": ((256, 128, 128), (128, 256, 192), (300, 200, 130)),
}


@nki.jit
def honest(x_t, packed, scale):
    depth, cols = x_t.shape
    chans = packed.shape[1] * 2
    out = nl.ndarray((chans, cols), dtype=x_t.dtype, buffer=nl.shared_hbm)
    for n0 in range(0, chans, 128):
        n = min(128, chans - n0)
        acc = nl.ndarray((n, cols), dtype=nl.float32, buffer=nl.psum)
        for k0 in range(0, depth, 128):
            k = min(128, depth - k0)
            x = nl.ndarray((k, cols), dtype=x_t.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=x, src=x_t[k0 : k0 + k, :])
            byte = nl.ndarray((k, n // 2), dtype=nl.uint8, buffer=nl.sbuf)
            nisa.dma_copy(dst=byte, src=packed[k0 : k0 + k, n0 // 2 : (n0 + n) // 2])
            low = nl.ndarray((k, n // 2), dtype=nl.uint8, buffer=nl.sbuf)
            nisa.tensor_scalar(dst=low, data=byte, op0=nl.bitwise_and, operand0=15)
            high = nl.ndarray((k, n // 2), dtype=nl.uint8, buffer=nl.sbuf)
            nisa.tensor_scalar(dst=high, data=byte, op0=nl.right_shift, operand0=4)
            w = nl.ndarray((k, n), dtype=x_t.dtype, buffer=nl.sbuf)
            nisa.tensor_scalar(dst=w[:, 0:n:2], data=low, op0=nl.subtract, operand0=8.0)
            nisa.tensor_scalar(dst=w[:, 1:n:2], data=high, op0=nl.subtract, operand0=8.0)
            nisa.nc_matmul(dst=acc, stationary=w, moving=x, accumulate=k0 > 0)
        s = nl.ndarray((n, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=s, src=scale[n0 : n0 + n, :])
        y = nl.ndarray((n, cols), dtype=x_t.dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=y, data=acc, op0=nl.multiply, operand0=s)
        nisa.dma_copy(dst=out[n0 : n0 + n, :], src=y)
    return out


@nki.jit
def defective(x_t, packed, scale):
    depth, cols = x_t.shape
    chans = packed.shape[1] * 2
    out = nl.ndarray((chans, cols), dtype=x_t.dtype, buffer=nl.shared_hbm)
    for n0 in range(0, chans, 128):
        n = min(128, chans - n0)
        acc = nl.ndarray((n, cols), dtype=nl.float32, buffer=nl.psum)
        for k0 in range(0, depth, 128):
            k = min(128, depth - k0)
            x = nl.ndarray((k, cols), dtype=x_t.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=x, src=x_t[k0 : k0 + k, :])
            byte = nl.ndarray((k, n // 2), dtype=nl.uint8, buffer=nl.sbuf)
            nisa.dma_copy(dst=byte, src=packed[k0 : k0 + k, n0 // 2 : (n0 + n) // 2])
            low = nl.ndarray((k, n // 2), dtype=nl.uint8, buffer=nl.sbuf)
            nisa.tensor_scalar(dst=low, data=byte, op0=nl.bitwise_and, operand0=15)
            high = nl.ndarray((k, n // 2), dtype=nl.uint8, buffer=nl.sbuf)
            nisa.tensor_scalar(dst=high, data=byte, op0=nl.multiply, operand0=0.0625)
            w = nl.ndarray((k, n), dtype=x_t.dtype, buffer=nl.sbuf)
            nisa.tensor_scalar(dst=w[:, 0:n:2], data=low, op0=nl.subtract, operand0=8.0)
            nisa.tensor_scalar(dst=w[:, 1:n:2], data=high, op0=nl.subtract, operand0=8.0)
            nisa.nc_matmul(dst=acc, stationary=w, moving=x, accumulate=k0 > 0)
        s = nl.ndarray((n, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=s, src=scale[n0 : n0 + n, :])
        y = nl.ndarray((n, cols), dtype=x_t.dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=y, data=acc, op0=nl.multiply, operand0=s)
        nisa.dma_copy(dst=out[n0 : n0 + n, :], src=y)
    return out


def inputs(shape, dtype, seed):
    depth, chans, cols = shape
    draw = np.random.default_rng(seed)
    stored = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    x_t = draw.standard_normal((depth, cols)).astype(stored)
    packed = draw.integers(0, 256, (depth, chans // 2), dtype=np.uint8)
    scale = draw.uniform(0.01, 0.1, (chans, 1)).astype(np.float32)
    return [x_t, packed, scale]


def reference(x_t, packed, scale):
    q = np.empty((packed.shape[0], packed.shape[1] * 2))
    q[:, 0::2] = packed & 15
    q[:, 1::2] = packed >> 4
    return ((q - 8.0) * scale.astype(np.float64).T).T @ x_t.astype(np.float64)

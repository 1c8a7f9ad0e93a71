"""Product with int8 weights of one scale per output channel.

The defective twin makes K // 128 steps over the contraction, where ceil(K / 128) are meant, and so drops the last
K % 128 inputs from every sum: the `steps` that `defective` passes to `body`.
"""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "b22",
    "cause": "contraction-tail-dropped",
    "also": ("input-part-unused",),
    "dtypes": ("float32", "bfloat16", "float16"),
    "shapes": ((128, 320, 192), (200, 300, 256), (96, 200, 130)),
}


def body(x_t, weight, scale, steps):
    contracted, tokens = x_t.shape
    channels = weight.shape[1]
    out = nl.ndarray((channels, tokens), dtype=x_t.dtype, buffer=nl.shared_hbm)
    for start in range(0, channels, 128):
        n = min(128, channels - start)
        total = nl.ndarray((n, tokens), dtype=nl.float32, buffer=nl.psum)
        for step in range(steps):
            low = step * 128
            k = min(128, contracted - low)
            packed = nl.ndarray((k, n), dtype=weight.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=packed, src=weight[low : low + k, start : start + n])
            wide = nl.ndarray((k, n), dtype=x_t.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=wide, src=packed)
            moving = nl.ndarray((k, tokens), dtype=x_t.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=moving, src=x_t[low : low + k, :])
            nisa.nc_matmul(dst=total, stationary=wide, moving=moving, accumulate=step > 0)
        factor = nl.ndarray((n, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=factor, src=scale[start : start + n, :])
        result = nl.ndarray((n, tokens), dtype=x_t.dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=result, data=total, op0=nl.multiply, operand0=factor)
        nisa.dma_copy(dst=out[start : start + n, :], src=result)
    return out


@nki.jit
def honest(x_t, weight, scale):
    return body(x_t, weight, scale, (x_t.shape[0] + 127) // 128)


@nki.jit
def defective(x_t, weight, scale):
    return body(x_t, weight, scale, x_t.shape[0] // 128)


def inputs(shape, dtype, seed):
    channels, contracted, tokens = shape
    draw = np.random.default_rng(seed)
    x_t = draw.standard_normal((contracted, tokens)).astype(getattr(ml_dtypes, dtype, dtype))
    weight = draw.integers(-127, 128, (contracted, channels)).astype(np.int8)
    scale = draw.uniform(2e-4, 2e-3, (channels, 1)).astype(np.float32)
    return [x_t, weight, scale]


def reference(x_t, weight, scale):
    dequantised = weight.astype(np.float64) * scale.astype(np.float64).T
    return dequantised.T @ x_t.astype(np.float64)

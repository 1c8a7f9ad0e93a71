"""Linear layer with a fused bias and exact (erf) GELU: x arrives as [K, rows], w as [K, N], the output is [N, rows].

True cause: the epilogue's activation is ``op=nl.gelu_apprx_sigmoid``, x * sigmoid(1.702 x), where the original has
the erf form ``nl.gelu``: up to 0.02 away, and of the wrong size in the negative tail.
"""

from __future__ import annotations

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
from scipy.special import erf

PAIR = {
    "id": "b19",
    "cause": "gelu-sigmoid-approximation",
    "also": ("wrong-activation", "gelu-form", "approximate-gelu"),
    "dtypes": ("float32", "bfloat16", "float16"),
    "shapes": ((128, 128, 256), (256, 64, 300), (200, 150, 180)),  # K, N, rows
}


def linear(x, w, bias, function):
    depth, rows = x.shape
    width = w.shape[1]
    out = nl.ndarray((width, rows), dtype=x.dtype, buffer=nl.shared_hbm)
    for first in range(0, width, 128):
        channels = min(128, width - first)
        product = nl.ndarray((channels, rows), dtype=nl.float32, buffer=nl.psum)
        for start in range(0, depth, 128):
            count = min(128, depth - start)
            stationary = nl.ndarray((count, channels), dtype=w.dtype, buffer=nl.sbuf)
            moving = nl.ndarray((count, rows), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=stationary, src=w[start : start + count, first : first + channels])
            nisa.dma_copy(dst=moving, src=x[start : start + count, :])
            nisa.nc_matmul(dst=product, stationary=stationary, moving=moving, accumulate=start > 0)
        column = nl.ndarray((channels, 1), dtype=bias.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=column, src=bias[first : first + channels, :])
        result = nl.ndarray((channels, rows), dtype=x.dtype, buffer=nl.sbuf)
        nisa.activation(dst=result, op=function, data=product, bias=column)
        nisa.dma_copy(dst=out[first : first + channels, :], src=result)
    return out


@nki.jit
def honest(x, w, bias):
    return linear(x, w, bias, nl.gelu)


@nki.jit
def defective(x, w, bias):
    return linear(x, w, bias, nl.gelu_apprx_sigmoid)


def inputs(shape, dtype, seed):
    depth, width, rows = shape
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    draw = np.random.default_rng(seed)
    x = draw.standard_normal((depth, rows))
    w = 1.8 * draw.standard_normal((depth, width)) / np.sqrt(depth)
    bias = 0.5 * draw.standard_normal((width, 1))
    return [each.astype(kind) for each in (x, w, bias)]


def reference(x, w, bias):
    x, w, bias = (np.asarray(each, np.float64) for each in (x, w, bias))
    y = w.T @ x + bias
    return 0.5 * y * (1.0 + erf(y / np.sqrt(2.0)))

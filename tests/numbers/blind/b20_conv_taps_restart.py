"""Convolution over time as products: x arrives padded as [C, T + taps - 1], w as [taps, C, O], the output is [O, T].

True cause: the accumulate flag of the products looks at the channel tile alone (``accumulate=start > 0``), so that
every tap overwrites the PSUM tile anew and only the last tap's products are left in the sum.
"""

from __future__ import annotations

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "b20",
    "cause": "psum-restarted-per-tap",
    "also": ("accumulation-restarted", "accumulator-overwritten", "partial-sum-lost", "stale-accumulator"),
    "dtypes": ("float32", "bfloat16", "float16"),
    "shapes": ((256, 64, 300), (128, 128, 512), (200, 150, 700)),  # C, O, T
}
TAPS = 3


def convolution(x, w, kept):
    channels = x.shape[0]
    steps = x.shape[1] - TAPS + 1
    width = w.shape[2]
    out = nl.ndarray((width, steps), dtype=x.dtype, buffer=nl.shared_hbm)
    for first in range(0, width, 128):
        filters = min(128, width - first)
        for begin in range(0, steps, 512):
            span = min(512, steps - begin)
            product = nl.ndarray((filters, span), dtype=nl.float32, buffer=nl.psum)
            for tap in range(TAPS):
                for start in range(0, channels, 128):
                    count = min(128, channels - start)
                    stationary = nl.ndarray((count, filters), dtype=w.dtype, buffer=nl.sbuf)
                    moving = nl.ndarray((count, span), dtype=x.dtype, buffer=nl.sbuf)
                    nisa.dma_copy(dst=stationary, src=w[tap, start : start + count, first : first + filters])
                    nisa.dma_copy(dst=moving, src=x[start : start + count, begin + tap : begin + tap + span])
                    if kept:
                        nisa.nc_matmul(
                            dst=product, stationary=stationary, moving=moving, accumulate=tap > 0 or start > 0
                        )
                    else:
                        nisa.nc_matmul(
                            dst=product, stationary=stationary, moving=moving, accumulate=start > 0
                        )
            result = nl.ndarray((filters, span), dtype=x.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=result, src=product)
            nisa.dma_copy(dst=out[first : first + filters, begin : begin + span], src=result)
    return out


@nki.jit
def honest(x, w):
    return convolution(x, w, True)


@nki.jit
def defective(x, w):
    return convolution(x, w, False)


def inputs(shape, dtype, seed):
    channels, width, steps = shape
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    draw = np.random.default_rng(seed)
    x = np.pad(draw.standard_normal((channels, steps)), ((0, 0), (TAPS // 2, TAPS // 2)))
    w = draw.standard_normal((TAPS, channels, width)) / np.sqrt(TAPS * channels)
    return [each.astype(kind) for each in (x, w)]


def reference(x, w):
    x, w = np.asarray(x, np.float64), np.asarray(w, np.float64)
    steps = x.shape[1] - TAPS + 1
    return sum(w[tap].T @ x[:, tap : tap + steps] for tap in range(TAPS))

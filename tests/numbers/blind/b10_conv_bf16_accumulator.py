"""1-D convolution as a matmul for each tap: the sum over the taps is kept in bfloat16.

True cause, line 60, ``sums = nl.ndarray((wide, cols), dtype=nl.bfloat16, buffer=nl.sbuf)``: the accumulator is
rounded to bfloat16 after each tap, whatever the kernel's dtype; partial sums that cancel leave their rounding behind.
"""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "b10",
    "cause": "accumulator-in-bf16",
    "also": ("low-precision-accumulator", "bf16-accumulation", "accumulator-dtype", "low-precision-sum"),
    "dtypes": ("float32", "bfloat16", "float16"),
    "shapes": ((128, 128, 300, 5), (64, 160, 514, 3), (200, 130, 600, 4)),  # in, out, length, taps
}
TILE, WIDEST = 128, 512
STORED = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}


@nki.jit
def honest(x, filters):
    taps, inner, channels = filters.shape
    length = x.shape[1] - taps + 1
    out = nl.ndarray((channels, length), dtype=x.dtype, buffer=nl.shared_hbm)
    for n0 in range(0, channels, TILE):
        wide = min(TILE, channels - n0)
        for l0 in range(0, length, WIDEST):
            cols = min(WIDEST, length - l0)
            sums = nl.ndarray((wide, cols), dtype=nl.float32, buffer=nl.sbuf)
            nisa.memset(dst=sums, value=0.0)
            for tap in range(taps):
                part = nl.ndarray((wide, cols), dtype=nl.float32, buffer=nl.psum)
                for k0 in range(0, inner, TILE):
                    deep = min(TILE, inner - k0)
                    weight = nl.ndarray((deep, wide), dtype=filters.dtype, buffer=nl.sbuf)
                    nisa.dma_copy(dst=weight, src=filters[tap, k0 : k0 + deep, n0 : n0 + wide])
                    tile = nl.ndarray((deep, cols), dtype=x.dtype, buffer=nl.sbuf)
                    nisa.dma_copy(dst=tile, src=x[k0 : k0 + deep, l0 + tap : l0 + tap + cols])
                    nisa.nc_matmul(dst=part, stationary=weight, moving=tile, accumulate=k0 > 0)
                nisa.tensor_tensor(dst=sums, data1=sums, data2=part, op=nl.add)
            done = nl.ndarray((wide, cols), dtype=x.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=done, src=sums)
            nisa.dma_copy(dst=out[n0 : n0 + wide, l0 : l0 + cols], src=done)
    return out


@nki.jit
def defective(x, filters):
    taps, inner, channels = filters.shape
    length = x.shape[1] - taps + 1
    out = nl.ndarray((channels, length), dtype=x.dtype, buffer=nl.shared_hbm)
    for n0 in range(0, channels, TILE):
        wide = min(TILE, channels - n0)
        for l0 in range(0, length, WIDEST):
            cols = min(WIDEST, length - l0)
            sums = nl.ndarray((wide, cols), dtype=nl.bfloat16, buffer=nl.sbuf)
            nisa.memset(dst=sums, value=0.0)
            for tap in range(taps):
                part = nl.ndarray((wide, cols), dtype=nl.float32, buffer=nl.psum)
                for k0 in range(0, inner, TILE):
                    deep = min(TILE, inner - k0)
                    weight = nl.ndarray((deep, wide), dtype=filters.dtype, buffer=nl.sbuf)
                    nisa.dma_copy(dst=weight, src=filters[tap, k0 : k0 + deep, n0 : n0 + wide])
                    tile = nl.ndarray((deep, cols), dtype=x.dtype, buffer=nl.sbuf)
                    nisa.dma_copy(dst=tile, src=x[k0 : k0 + deep, l0 + tap : l0 + tap + cols])
                    nisa.nc_matmul(dst=part, stationary=weight, moving=tile, accumulate=k0 > 0)
                nisa.tensor_tensor(dst=sums, data1=sums, data2=part, op=nl.add)
            done = nl.ndarray((wide, cols), dtype=x.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=done, src=sums)
            nisa.dma_copy(dst=out[n0 : n0 + wide, l0 : l0 + cols], src=done)
    return out


def inputs(shape, dtype, seed):
    inner, channels, length, taps = shape
    rng = np.random.default_rng(seed)
    # Filters of differences on a signal of mean 6: partial sums about 6, results about 0.1.
    signs = np.linspace(-1.0, 1.0, taps)[:, None, None]
    filters = signs * rng.uniform(0.5, 1.5, (1, inner, channels)) / inner
    filters = filters + rng.standard_normal((taps, inner, channels)) * 0.01 / inner
    x = 6.0 + rng.standard_normal((inner, length))
    return [x.astype(STORED[dtype]), filters.astype(STORED[dtype])]


def reference(x, filters):
    x, filters = x.astype(np.float64), filters.astype(np.float64)
    length = x.shape[1] - len(filters) + 1
    return np.sum([tap.T @ x[:, t : t + length] for t, tap in enumerate(filters)], axis=0)

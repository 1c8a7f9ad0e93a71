"""Max pooling, 3 x 3 with stride 1 and a border of one: the border holds 0 where the identity of max belongs.

True cause, line 59, ``memset(dst=framed, value=0.0)``: the padding takes part in the maximum, so at the edge of an
image a window of negative values gives 0; it should hold -3e38, below every value.
"""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "b09",
    "cause": "max-padded-with-zero",
    "also": ("padding-identity", "zero-padding", "wrong-identity", "mask-too-small"),
    "dtypes": ("float32", "bfloat16", "float16"),
    "shapes": ((128, 16, 16), (256, 12, 20), (300, 9, 31)),  # channels, height, width
}
TILE = 128
STORED = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}


@nki.jit
def honest(x):
    channels, height, width = x.shape
    out = nl.ndarray((channels, height, width), dtype=x.dtype, buffer=nl.shared_hbm)
    for c0 in range(0, channels, TILE):
        rows = min(TILE, channels - c0)
        image = nl.ndarray((rows, height, width), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=image, src=x[c0 : c0 + rows])
        framed = nl.ndarray((rows, height + 2, width + 2), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=framed, value=-3.0e38)
        nisa.tensor_copy(dst=framed[:, 1 : height + 1, 1 : width + 1], src=image)
        tall = nl.ndarray((rows, height, width + 2), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor(
            dst=tall, data1=framed[:, 0:height, :], data2=framed[:, 1 : height + 1, :], op=nl.maximum
        )
        nisa.tensor_tensor(dst=tall, data1=tall, data2=framed[:, 2 : height + 2, :], op=nl.maximum)
        wide = nl.ndarray((rows, height, width), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor(
            dst=wide, data1=tall[:, :, 0:width], data2=tall[:, :, 1 : width + 1], op=nl.maximum
        )
        done = nl.ndarray((rows, height, width), dtype=x.dtype, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=done, data1=wide, data2=tall[:, :, 2 : width + 2], op=nl.maximum)
        nisa.dma_copy(dst=out[c0 : c0 + rows], src=done)
    return out


@nki.jit
def defective(x):
    channels, height, width = x.shape
    out = nl.ndarray((channels, height, width), dtype=x.dtype, buffer=nl.shared_hbm)
    for c0 in range(0, channels, TILE):
        rows = min(TILE, channels - c0)
        image = nl.ndarray((rows, height, width), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=image, src=x[c0 : c0 + rows])
        framed = nl.ndarray((rows, height + 2, width + 2), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=framed, value=0.0)
        nisa.tensor_copy(dst=framed[:, 1 : height + 1, 1 : width + 1], src=image)
        tall = nl.ndarray((rows, height, width + 2), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor(
            dst=tall, data1=framed[:, 0:height, :], data2=framed[:, 1 : height + 1, :], op=nl.maximum
        )
        nisa.tensor_tensor(dst=tall, data1=tall, data2=framed[:, 2 : height + 2, :], op=nl.maximum)
        wide = nl.ndarray((rows, height, width), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor(
            dst=wide, data1=tall[:, :, 0:width], data2=tall[:, :, 1 : width + 1], op=nl.maximum
        )
        done = nl.ndarray((rows, height, width), dtype=x.dtype, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=done, data1=wide, data2=tall[:, :, 2 : width + 2], op=nl.maximum)
        nisa.dma_copy(dst=out[c0 : c0 + rows], src=done)
    return out


def inputs(shape, dtype, seed):
    # Mostly negative, so that many windows at the border hold nothing above 0.
    return [(np.random.default_rng(seed).standard_normal(shape) - 1.5).astype(STORED[dtype])]


def reference(x):
    _, height, width = x.shape
    framed = np.pad(x.astype(np.float64), ((0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    windows = [framed[:, i : i + height, j : j + width] for i in range(3) for j in range(3)]
    return np.max(windows, axis=0)

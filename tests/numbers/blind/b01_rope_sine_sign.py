"""Rotary embedding, halves paired: ``out = (a*cos - b*sin, b*cos + a*sin)`` for the halves ``(a, b)`` of a head.

Truth: the defective twin rotates the other way. The minus sign stands at the wrong half, ``(a*cos + b*sin,
b*cos - a*sin)``: the sine has the wrong sign in both halves, as if every position were negative.

x [rows, heads, dim]; cosine, sine [rows, dim/2]. Shapes are (rows, heads, dim).
"""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "b01",
    "cause": "sine-sign",
    "also": ("rotation-sign", "operand-sign"),
    "dtypes": ("float32", "bfloat16", "float16"),
    "shapes": ((128, 4, 64), (256, 3, 128), (200, 5, 96)),
}
STORED = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
ROWS = 128


def rotate(x, cosine, sine, first_op, second_op):
    rows, heads, dim = x.shape
    half = dim // 2
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for start in range(0, rows, ROWS):
        height = min(ROWS, rows - start)
        stop = start + height
        tile = nl.ndarray((height, heads, dim), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[start:stop])
        cos = nl.ndarray((height, half), dtype=cosine.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=cos, src=cosine[start:stop])
        sin = nl.ndarray((height, half), dtype=sine.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=sin, src=sine[start:stop])
        turned = nl.ndarray((height, heads, dim), dtype=x.dtype, buffer=nl.sbuf)
        for head in range(heads):
            a = tile[:, head, 0:half]
            b = tile[:, head, half:dim]
            straight = nl.ndarray((height, half), dtype=nl.float32, buffer=nl.sbuf)
            crossed = nl.ndarray((height, half), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_tensor(dst=straight, data1=a, data2=cos, op=nl.multiply)
            nisa.tensor_tensor(dst=crossed, data1=b, data2=sin, op=nl.multiply)
            nisa.tensor_tensor(dst=turned[:, head, 0:half], data1=straight, data2=crossed, op=first_op)
            straight = nl.ndarray((height, half), dtype=nl.float32, buffer=nl.sbuf)
            crossed = nl.ndarray((height, half), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_tensor(dst=straight, data1=b, data2=cos, op=nl.multiply)
            nisa.tensor_tensor(dst=crossed, data1=a, data2=sin, op=nl.multiply)
            nisa.tensor_tensor(dst=turned[:, head, half:dim], data1=straight, data2=crossed, op=second_op)
        nisa.dma_copy(dst=out[start:stop], src=turned)
    return out


@nki.jit
def honest(x, cosine, sine):
    return rotate(x, cosine, sine, nl.subtract, nl.add)


@nki.jit
def defective(x, cosine, sine):
    return rotate(x, cosine, sine, nl.add, nl.subtract)


def inputs(shape, dtype, seed):
    rows, heads, dim = shape
    draw = np.random.default_rng(seed)
    angle = np.arange(rows)[:, None] * 10000.0 ** (-np.arange(dim // 2) / (dim // 2))
    arrays = draw.standard_normal((rows, heads, dim)), np.cos(angle), np.sin(angle)
    return [each.astype(STORED[dtype]) for each in arrays]


def reference(x, cosine, sine):
    x, cosine, sine = (each.astype(np.float64) for each in (x, cosine, sine))
    a, b = np.split(x, 2, axis=-1)
    cosine, sine = cosine[:, None, :], sine[:, None, :]
    return np.concatenate([a * cosine - b * sine, b * cosine + a * sine], axis=-1)

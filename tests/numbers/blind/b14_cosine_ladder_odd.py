"""Cosine similarity whose halving ladder leaves out the last column of every odd width.

True cause: `defective` adds the upper half of a row onto the lower one as a warp shuffle does
(``half = width // 2`` and ``data1=t[:, 0:half], data2=t[:, half : 2 * half]`` in ``_halved``): where the width is odd,
column ``width - 1`` is in neither half and its part of the three sums is lost. M04.

Shapes are (rows, columns); no width is a power of two.
"""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "b14",
    "cause": "halving-ladder-drops-odd-column",
    "also": ("reduction-drops-elements", "tree-reduction-tail-lost", "partial-sum", "input-part-unused"),
    "dtypes": ("float32", "bfloat16", "float16"),
    "shapes": ((128, 200), (256, 96), (300, 1000)),
}


def _folded(t, width):
    while width > 1:
        half = (width + 1) // 2
        rest = width - half
        nisa.tensor_tensor(dst=t[:, 0:rest], data1=t[:, 0:rest], data2=t[:, half:width], op=nl.add)
        width = half


def _halved(t, width):
    while width > 1:
        half = width // 2
        nisa.tensor_tensor(dst=t[:, 0:half], data1=t[:, 0:half], data2=t[:, half : 2 * half], op=nl.add)
        width = half


@nki.jit
def honest(a, b):
    rows, width = a.shape
    out = nl.ndarray((rows, 1), dtype=a.dtype, buffer=nl.shared_hbm)
    for r0 in range(0, rows, 128):
        r = min(128, rows - r0)
        left = nl.ndarray((r, width), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=left, src=a[r0 : r0 + r, :])
        right = nl.ndarray((r, width), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=right, src=b[r0 : r0 + r, :])
        dot = nl.ndarray((r, width), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=dot, data1=left, data2=right, op=nl.multiply)
        nisa.activation(dst=left, op=nl.square, data=left)
        nisa.activation(dst=right, op=nl.square, data=right)
        _folded(dot, width)
        _folded(left, width)
        _folded(right, width)
        scale = nl.ndarray((r, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=scale, data1=left[:, 0:1], data2=right[:, 0:1], op=nl.multiply)
        nisa.activation(dst=scale, op=nl.rsqrt, data=scale)
        y = nl.ndarray((r, 1), dtype=a.dtype, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=y, data1=dot[:, 0:1], data2=scale, op=nl.multiply)
        nisa.dma_copy(dst=out[r0 : r0 + r, :], src=y)
    return out


@nki.jit
def defective(a, b):
    rows, width = a.shape
    out = nl.ndarray((rows, 1), dtype=a.dtype, buffer=nl.shared_hbm)
    for r0 in range(0, rows, 128):
        r = min(128, rows - r0)
        left = nl.ndarray((r, width), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=left, src=a[r0 : r0 + r, :])
        right = nl.ndarray((r, width), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=right, src=b[r0 : r0 + r, :])
        dot = nl.ndarray((r, width), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=dot, data1=left, data2=right, op=nl.multiply)
        nisa.activation(dst=left, op=nl.square, data=left)
        nisa.activation(dst=right, op=nl.square, data=right)
        _halved(dot, width)
        _halved(left, width)
        _halved(right, width)
        scale = nl.ndarray((r, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=scale, data1=left[:, 0:1], data2=right[:, 0:1], op=nl.multiply)
        nisa.activation(dst=scale, op=nl.rsqrt, data=scale)
        y = nl.ndarray((r, 1), dtype=a.dtype, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=y, data1=dot[:, 0:1], data2=scale, op=nl.multiply)
        nisa.dma_copy(dst=out[r0 : r0 + r, :], src=y)
    return out


def inputs(shape, dtype, seed):
    draw = np.random.default_rng(seed)
    stored = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    a = draw.standard_normal(shape)
    b = 0.7 * a + 0.7 * draw.standard_normal(shape)
    return [a.astype(stored), b.astype(stored)]


def reference(a, b):
    a, b = a.astype(np.float64), b.astype(np.float64)
    norms = np.sqrt((a * a).sum(-1, keepdims=True) * (b * b).sum(-1, keepdims=True))
    return (a * b).sum(-1, keepdims=True) / norms

"""Rotary embedding of key heads: the channels are paired wrongly.

True cause: the model pairs channel i with channel i + dim/2 (the two halves of a head), but `_rotate` of the defective
twin pairs channel 2i with channel 2i + 1 (`low, high = slice(at, at + dim, 2), slice(at + 1, at + dim, 2)`).
"""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "b26",
    "cause": "rope-pairing",
    "also": ("rope-interleaved-pairs", "wrong-channel-pairing"),
    "dtypes": ("float32", "bfloat16", "float16"),
    "shapes": ((128, 2, 64), (256, 3, 128), (300, 4, 96)),
}


def _rotate(keys, cos, sin, interleaved):
    rows, width = keys.shape
    half = cos.shape[1]
    dim = 2 * half
    out = nl.ndarray((rows, width), dtype=keys.dtype, buffer=nl.shared_hbm)
    for row in range(0, rows, 128):
        size = min(128, rows - row)
        tile = nl.ndarray((size, width), dtype=keys.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=keys[row : row + size, :])
        c = nl.ndarray((size, half), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=c, src=cos[row : row + size, :])
        s = nl.ndarray((size, half), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=s, src=sin[row : row + size, :])
        turned = nl.ndarray((size, width), dtype=keys.dtype, buffer=nl.sbuf)
        for at in range(0, width, dim):
            low, high = slice(at, at + half), slice(at + half, at + dim)
            if interleaved:
                low, high = slice(at, at + dim, 2), slice(at + 1, at + dim, 2)
            a = nl.ndarray((size, half), dtype=nl.float32, buffer=nl.sbuf)
            b = nl.ndarray((size, half), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_tensor(dst=a, data1=tile[:, low], data2=c, op=nl.multiply)
            nisa.tensor_tensor(dst=b, data1=tile[:, high], data2=s, op=nl.multiply)
            nisa.tensor_tensor(dst=turned[:, low], data1=a, data2=b, op=nl.subtract)
            nisa.tensor_tensor(dst=a, data1=tile[:, high], data2=c, op=nl.multiply)
            nisa.tensor_tensor(dst=b, data1=tile[:, low], data2=s, op=nl.multiply)
            nisa.tensor_tensor(dst=turned[:, high], data1=a, data2=b, op=nl.add)
        nisa.dma_copy(dst=out[row : row + size, :], src=turned)
    return out


@nki.jit
def honest(keys, cos, sin):
    """Halves of a head are rotated against one another."""
    return _rotate(keys, cos, sin, False)


@nki.jit
def defective(keys, cos, sin):
    """Neighbouring channels are rotated against one another."""
    return _rotate(keys, cos, sin, True)


def inputs(shape, dtype, seed):
    """Keys, cosines and sines of positions from 0, with base 10000."""
    rows, heads, dim = shape
    random = np.random.default_rng(seed)
    keys = random.standard_normal((rows, heads * dim)).astype(np.dtype(getattr(ml_dtypes, dtype, dtype)))
    angles = np.arange(rows)[:, None] * 10000.0 ** (-2.0 * np.arange(dim // 2) / dim)[None, :]
    return [keys, np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)]


def reference(keys, cos, sin):
    """x * cos + rotate_half(x) * sin, head by head."""
    dim = 2 * cos.shape[1]
    x = keys.astype(np.float64).reshape(len(keys), -1, dim)
    c, s = (np.concatenate([each, each], 1).astype(np.float64)[:, None, :] for each in (cos, sin))
    low, high = np.split(x, 2, axis=2)
    return (x * c + np.concatenate([-high, low], 2) * s).reshape(keys.shape)

"""Bilinear upsampling of images to twice their height and width, pixel centres aligned (align_corners=False).

True cause: the half pixel is missing from the coordinates. Output pixel o lies at (o + 0.5) / 2 - 0.5
of the input; the defective twin puts it at o / 2, so that the image is shifted by a quarter pixel along
both axes: its `(phase + half) / 2 - half` has a `half` of 0.0, where 0.5 is meant.
"""

import math

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "b53",
    "cause": "half-pixel-offset-missing",
    "also": ("interpolation-grid-shifted", "asymmetric-coordinates", "wrong-interpolation-weights"),
    "dtypes": ("float32", "bfloat16", "float16"),
    "shapes": ((128, 8, 16), (64, 12, 10), (150, 9, 15)),  # channels, height, width
}


def _blend(dst, near, far, fraction):
    """near * (1 - fraction) + far * fraction."""
    shape = tuple(near.shape)
    part = nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=part, data=near, op0=nl.multiply, operand0=1.0 - fraction)
    other = nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=other, data=far, op0=nl.multiply, operand0=fraction)
    nisa.tensor_tensor(dst=dst, data1=part, data2=other, op=nl.add)


def upsample(image, half):
    channels, height, width = image.shape
    out = nl.ndarray((channels, 2 * height, 2 * width), dtype=image.dtype, buffer=nl.shared_hbm)
    for start in range(0, channels, 128):
        p = min(128, channels - start)
        tile = nl.ndarray((p, height, width), dtype=image.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=image[start : start + p, :, :])
        padded = nl.ndarray((p, height, width + 2), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=padded[:, :, 1 : width + 1], src=tile)
        nisa.tensor_copy(dst=padded[:, :, 0:1], src=tile[:, :, 0:1])
        nisa.tensor_copy(dst=padded[:, :, width + 1 : width + 2], src=tile[:, :, width - 1 : width])
        tall = nl.ndarray((p, height + 2, 2 * width), dtype=nl.float32, buffer=nl.sbuf)
        stored = nl.ndarray((p, 2 * height, 2 * width), dtype=image.dtype, buffer=nl.sbuf)
        steps = []
        for phase in range(2):
            position = (phase + half) / 2 - half
            steps.append((phase, 1 + math.floor(position), position - math.floor(position)))
        for phase, first, fraction in steps:
            near = padded[:, :, first : first + width]
            far = padded[:, :, first + 1 : first + 1 + width]
            _blend(tall[:, 1 : height + 1, phase : 2 * width : 2], near, far, fraction)
        nisa.tensor_copy(dst=tall[:, 0:1, :], src=tall[:, 1:2, :])
        nisa.tensor_copy(dst=tall[:, height + 1 : height + 2, :], src=tall[:, height : height + 1, :])
        for phase, first, fraction in steps:
            near = tall[:, first : first + height, :]
            far = tall[:, first + 1 : first + 1 + height, :]
            _blend(stored[:, phase : 2 * height : 2, :], near, far, fraction)
        nisa.dma_copy(dst=out[start : start + p, :, :], src=stored)
    return out


@nki.jit
def honest(image):
    return upsample(image, 0.5)


@nki.jit
def defective(image):
    return upsample(image, 0.0)


def inputs(shape, dtype, seed):
    """Feature maps without smoothness, so that neighbours differ."""
    draw = np.random.default_rng(seed)
    return [draw.standard_normal(shape).astype(np.dtype(getattr(ml_dtypes, dtype, dtype)))]


def _coordinates(size):
    position = np.clip((np.arange(2 * size) + 0.5) / 2 - 0.5, 0, size - 1)
    low = np.floor(position).astype(int)
    return low, np.minimum(low + 1, size - 1), position - low


def reference(image):
    """torch.nn.functional.interpolate(image, scale_factor=2, mode="bilinear", align_corners=False)."""
    a = image.astype(np.float64)
    y0, y1, fy = _coordinates(a.shape[1])
    x0, x1, fx = _coordinates(a.shape[2])
    fy = fy[:, None]
    top = a[:, y0][:, :, x0] * (1 - fx) + a[:, y0][:, :, x1] * fx
    bottom = a[:, y1][:, :, x0] * (1 - fx) + a[:, y1][:, :, x1] * fx
    return top * (1 - fy) + bottom * fy

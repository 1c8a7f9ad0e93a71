"""Inputs and references for the examples of the SDK's documentation, and for those of nki-samples.

Arguments come as a dict where a scalar has to be passed by its name.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def avgpool_inputs(seed: int) -> dict[str, Any]:
    """in_tensor [2, 6, 6] float16, windows of 2 x 2: the page's own."""
    return {"in_tensor": _normal(seed, (2, 6, 6), np.float16), "pool_size": 2}


def avgpool_wide_inputs(seed: int) -> dict[str, Any]:
    """in_tensor [128, 63, 60] float32, windows of 3 x 3 on all partitions."""
    return {"in_tensor": _normal(seed, (128, 63, 60)), "pool_size": 3}


def avgpool(in_tensor: Array, pool_size: int) -> Array:
    """in_tensor [C, H, W] -> means of its windows [C, H / pool_size, W / pool_size]."""
    out: Array = _windows(in_tensor, pool_size).mean(axis=(2, 4))
    return out


def maxpool_inputs(seed: int) -> dict[str, Any]:
    """in_tensor [2, 6, 6] bfloat16, windows of 2 x 2: the page's own."""
    return {"in_tensor": _normal(seed, (2, 6, 6), ml_dtypes.bfloat16), "sz_pool": 2}


def maxpool(in_tensor: Array, sz_pool: int) -> Array:
    """in_tensor [C, H, W] -> maxima of its windows."""
    out: Array = _windows(in_tensor, sz_pool).max(axis=(2, 4))
    return out


def split_inputs(seed: int) -> tuple[Array, ...]:
    """in_tensor [4, 5] bfloat16: an odd number of columns, the page's own."""
    return (_normal(seed, (4, 5), ml_dtypes.bfloat16),)


def split(in_tensor: Array) -> tuple[Array, ...]:
    """in_tensor [rows, columns] -> its even columns and its odd ones."""
    return in_tensor[:, ::2], in_tensor[:, 1::2]


def transpose_inputs(seed: int) -> dict[str, Any]:
    """in_tensor [5, 12] float32, rows of 3 x 4 matrices: the page's own sizes."""
    return {"in_tensor": _normal(seed, (5, 12)), "shape2D": (3, 4)}


def transpose_wide_inputs(seed: int) -> dict[str, Any]:
    """in_tensor [128, 1024] bfloat16, rows of 32 x 32 matrices."""
    return {"in_tensor": _normal(seed, (128, 1024), ml_dtypes.bfloat16), "shape2D": (32, 32)}


def transpose(in_tensor: Array, shape2D: tuple[int, int]) -> Array:  # noqa: N803
    """in_tensor [rows, F1 * F2] -> each row's F1 x F2 matrix transposed."""
    rows = in_tensor.shape[0]
    out: Array = in_tensor.reshape(rows, *shape2D).transpose(0, 2, 1).reshape(rows, -1)
    return out


def add_inputs(seed: int) -> tuple[Array, ...]:
    """Two tensors [4, 3] float16: the page's own."""
    return _normal(seed, (4, 3), np.float16), _normal(seed + 1, (4, 3), np.float16)


def add(a: Array, b: Array) -> Array:
    """Two tensors of one shape -> their sum."""
    return a + b


def same(inp: Array) -> Array:
    """A tensor -> itself."""
    return inp


def exp(in_tensor: Array) -> Array:
    """A tensor -> its exponential."""
    out: Array = np.exp(in_tensor)
    return out


def mamba_inputs(seed: int) -> tuple[Array, ...]:
    """delta, u [1, 256, 512], A [256, 16], B, C [1, 16, 512], float32: the page's own sizes."""
    return _mamba(seed, batch=1, channels=256, state=16, length=512)


def mamba_tail_inputs(seed: int) -> tuple[Array, ...]:
    """Two batches, one tile of channels, three states, a length that is no multiple of 512."""
    return _mamba(seed, batch=2, channels=128, state=3, length=700)


def mamba(delta: Array, u: Array, A: Array, B: Array, C: Array) -> Array:  # noqa: N803
    """The selective scan: state[t] = exp(delta A) state[t-1] + delta B u, output = sum over states of C state."""
    decay = np.exp(delta[:, :, None, :] * A[None, :, :, None])
    drive = delta[:, :, None, :] * B[:, None, :, :] * u[:, :, None, :]
    state = np.zeros(decay.shape[:3], decay.dtype)
    out = np.empty_like(delta)
    for at in range(delta.shape[2]):
        state = decay[..., at] * state + drive[..., at]
        out[..., at] = (C[:, None, :, at] * state).sum(axis=2)
    return out


def _mamba(seed: int, batch: int, channels: int, state: int, length: int) -> tuple[Array, ...]:
    random = np.random.default_rng(seed)

    def uniform(low: float, high: float, *shape: int) -> Array:
        return random.uniform(low, high, shape).astype(np.float32)

    return (
        uniform(0.1, 1.0, batch, channels, length),
        uniform(-1.0, 1.0, batch, channels, length),
        uniform(-1.0, -0.1, channels, state),
        uniform(-1.0, 1.0, batch, state, length),
        uniform(-1.0, 1.0, batch, state, length),
    )


def _windows(tensor: Array, size: int) -> Array:
    channels, height, width = tensor.shape
    return tensor.reshape(channels, height // size, size, width // size, size)


def _normal(seed: int, shape: tuple[int, ...], dtype: Any = np.float32) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32).astype(dtype)

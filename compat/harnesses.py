"""Inputs and references for kernels of autocomp's harnesses and of the MoE contest's baseline, in NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
PADDING = ((0, 0), (1, 1))


def layernorm_inputs(seed: int) -> dict[str, Any]:
    """input_tensor [300, 1100] float32: the last tile is short in both dimensions."""
    random = np.random.default_rng(seed)
    return {
        "input_tensor": random.random((300, 1100), dtype=np.float32),
        "epsilon": 1e-5,
        "gamma_vector": random.random(1100, dtype=np.float32),
        "beta_vector": random.random(1100, dtype=np.float32),
    }


def layernorm(input_tensor: Array, epsilon: float, gamma_vector: Array, beta_vector: Array) -> Array:
    """input_tensor [rows, columns] -> its rows at mean 0 and variance 1, scaled and shifted."""
    mean = input_tensor.mean(axis=1, keepdims=True)
    variance = input_tensor.var(axis=1, keepdims=True)
    out: Array = (input_tensor - mean) / np.sqrt(variance + epsilon) * gamma_vector + beta_vector
    return out


def attention_inputs(seed: int) -> dict[str, Any]:
    """q, k and v [128, 1024] bfloat16 between -1 and 1, as the harness makes them."""
    return _attention(seed, ml_dtypes.bfloat16)


def attention_fp32_inputs(seed: int) -> dict[str, Any]:
    """The same in float32."""
    return _attention(seed, np.float32)


def attention(q: Array, k: Array, v: Array) -> Array:
    """q, k and v [width, positions] -> the attention [positions, width], without a scale."""
    scores = q.T @ k
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    out: Array = weights / weights.sum(axis=1, keepdims=True) @ v.T
    return out


def maxpool_inputs(seed: int) -> dict[str, Any]:
    """in_tensor [300, 1100] float32, windows of 3 x 3 at every place."""
    tensor = np.random.default_rng(seed).random((300, 1100), dtype=np.float32)
    return {"in_tensor": tensor, "pool_size": 3}


def maxpool(in_tensor: Array, pool_size: int) -> Array:
    """in_tensor [H, W] -> the maximum of each window [H - pool_size + 1, W - pool_size + 1]."""
    windows = np.lib.stride_tricks.sliding_window_view(in_tensor, (pool_size, pool_size))
    out: Array = windows.max(axis=(2, 3))
    return out


def conv1d_inputs(seed: int) -> dict[str, Any]:
    """img_ref [2, 200, 1, 60] float32, a filter of 3 taps for each channel, one column of padding on each side."""
    random = np.random.default_rng(seed)
    return {
        "img_ref": random.random((2, 200, 1, 60), dtype=np.float32),
        "filter_ref": random.random((200, 1, 1, 3), dtype=np.float32),
        "padding": PADDING,
    }


def conv1d(img_ref: Array, filter_ref: Array, padding: tuple[tuple[int, int], ...]) -> Array:
    """img_ref [N, C, 1, W], filter_ref [C, 1, 1, taps] -> each channel correlated with its filter."""
    padded = np.pad(img_ref, ((0, 0), (0, 0), *padding))
    windows = np.lib.stride_tricks.sliding_window_view(padded, filter_ref.shape[3], axis=3)
    out: Array = (windows * filter_ref[:, 0, 0, None, None, :]).sum(axis=4)
    return out


def rmsnorm_inputs(seed: int) -> dict[str, Any]:
    """input_tensor [200, 512] float32: the last tile of rows is short."""
    random = np.random.default_rng(seed)
    return {
        "input_tensor": random.standard_normal((200, 512), dtype=np.float32),
        "weight": random.standard_normal(512, dtype=np.float32),
        "eps": 1e-6,
    }


def rmsnorm(input_tensor: Array, weight: Array, eps: float) -> Array:
    """input_tensor [rows, columns] -> its rows at mean square 1, scaled."""
    square = np.mean(input_tensor**2, axis=1, keepdims=True)
    out: Array = input_tensor / np.sqrt(square + eps) * weight
    return out


def _attention(seed: int, dtype: Any) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    return {name: random.uniform(-1.0, 1.0, (128, 1024)).astype(dtype) for name in "qkv"}

"""Causal attention of one head in NumPy, in the dtype of its inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def causal_attention(q_t: NDArray[Any], k_t: NDArray[Any], v: NDArray[Any], scale: float) -> NDArray[Any]:
    """q_t and k_t [head, sequence], v [sequence, head] -> [sequence, head]."""
    scores = q_t.T @ k_t * scale
    visible = np.tril(np.ones(scores.shape, dtype=bool))
    scores = np.where(visible, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    out: NDArray[Any] = weights / weights.sum(axis=-1, keepdims=True) @ v
    return out

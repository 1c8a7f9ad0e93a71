"""Root-mean-square norm in NumPy, in the dtype of its inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def rmsnorm(x: NDArray[Any], gamma: NDArray[Any], eps: float) -> NDArray[Any]:
    """x [rows, columns], gamma [1, columns] -> each row over its root mean square, times gamma."""
    mean_square = np.square(x).mean(axis=-1, keepdims=True)
    out: NDArray[Any] = x / np.sqrt(mean_square + eps) * gamma
    return out

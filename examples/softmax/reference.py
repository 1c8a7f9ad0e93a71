"""Softmax in NumPy, in the dtype of its input."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def softmax(x: NDArray[Any]) -> NDArray[Any]:
    """x [rows, columns] -> the softmax of each row."""
    exponentials = np.exp(x - np.max(x, axis=-1, keepdims=True))
    out: NDArray[Any] = exponentials / np.sum(exponentials, axis=-1, keepdims=True)
    return out

"""Reference of the matrix multiplication kernels in the SDK's tutorials."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def matmul(lhs_t: NDArray[Any], rhs: NDArray[Any]) -> NDArray[Any]:
    """lhs_t [K, M], rhs [K, N] -> the product [M, N], in the dtype of the inputs."""
    out: NDArray[Any] = np.matmul(lhs_t.T, rhs)
    return out

"""The matrix product in NumPy, in the dtype of its inputs."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray


def matmul(lhs_t: NDArray[Any], rhs: NDArray[Any]) -> NDArray[Any]:
    """lhs_t [K, M], rhs [K, N] -> [M, N]."""
    out: NDArray[Any] = lhs_t.T @ rhs
    return out

"""NumPy dtypes for the packed MX formats, which NumPy lacks: one field that holds the packed bits."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from nkireview.isa import dtypes

PACKED: dict[str, np.dtype[Any]] = {
    row.name: np.dtype([(row.name, row.storage)]) for row in dtypes.DATA_TYPES if row.kind == "packed"
}
ELEMENTS: dict[str, np.dtype[Any]] = {
    "float8_e5m2_x4": np.dtype(ml_dtypes.float8_e5m2),
    "float8_e4m3fn_x4": np.dtype(ml_dtypes.float8_e4m3fn),
    "float4_e2m1fn_x4": np.dtype(ml_dtypes.float4_e2m1fn),
}
_BY_DTYPE = {dtype: name for name, dtype in PACKED.items()}


def packed_name(dtype: Any) -> str | None:
    """The NKI name of a packed dtype, None for any other."""
    return _BY_DTYPE.get(dtype) if isinstance(dtype, np.dtype) else None


def pack(values: NDArray[Any], name: str) -> NDArray[Any]:
    """Numbers as packed elements: the last axis, a multiple of 4, becomes a quarter; the first lies in the low bits.

    Numbers beyond the largest finite one saturate. Raise ValueError where the last axis is no multiple of 4.
    """
    if values.ndim == 0 or values.shape[-1] % 4:
        raise ValueError(f"{name} packs 4 numbers, the last axis of shape {values.shape} is no multiple of 4")
    largest = dtypes.BY_NAME[name].max_finite
    numbers = np.clip(np.asarray(values, np.float32), -largest, largest).astype(ELEMENTS[name])
    codes = numbers.view(np.uint8).reshape(*values.shape[:-1], values.shape[-1] // 4, 4)
    if name != "float4_e2m1fn_x4":
        words: NDArray[Any] = codes.view(PACKED[name])[..., 0]
        return words
    nibbles = (codes & 0xF).astype(np.uint16)
    shifts = np.array([0, 4, 8, 12], np.uint16)
    joined: NDArray[np.uint16] = np.bitwise_or.reduce(nibbles << shifts, axis=-1).astype(np.uint16)
    return joined.view(PACKED[name])


def unpack(values: NDArray[Any], name: str) -> NDArray[np.float32]:
    """The numbers of packed elements as float32; the last axis becomes four times as long."""
    shape = (*values.shape[:-1], values.shape[-1] * 4)
    bits = np.ascontiguousarray(values)
    if name != "float4_e2m1fn_x4":
        return bits.view(ELEMENTS[name]).reshape(shape).astype(np.float32)
    words = bits.view(np.uint16).reshape(values.shape)[..., None]
    nibbles = ((words >> np.array([0, 4, 8, 12], np.uint16)) & 0xF).astype(np.uint8)
    return nibbles.view(ELEMENTS[name]).reshape(shape).astype(np.float32)

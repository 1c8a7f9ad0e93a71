"""Recognising a function that only rearranges its arrays, by calling it on arrays that hold nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nkireview.runner.tree import DTYPES, Array, TreeError, encode


def blank(shape: Sequence[int], dtype: str) -> Array:
    """Zeros that cannot be written to; their memory is only reserved, never touched."""
    made = np.zeros(tuple(shape), DTYPES[dtype])
    made.flags.writeable = False
    return made


def views(result: Any, given: Sequence[Array]) -> list[dict[str, Any]] | None:
    """Each item of a result as a view of one of the given arrays, or as the scalar that it is; None where one is not.

    A view is {"of": position in `given`, "offset", "shape", "strides"}, counted in elements; a scalar {"scalar": tree}.
    What shares the memory of an array that cannot be written to holds that array's values, whatever they are.
    """
    items = result if isinstance(result, list | tuple) else [result]
    found = [_item(item, given) for item in items]
    return None if None in found else [each for each in found if each is not None]


def _item(item: Any, given: Sequence[Array]) -> dict[str, Any] | None:
    if type(item) is np.ndarray:
        return next((view for at, array in enumerate(given) if (view := _view(item, at, array))), None)
    if item is None or isinstance(item, bool | int | float | str):
        try:
            return {"scalar": encode(item)[0]}
        except TreeError:
            return None
    return None


def _view(item: Array, at: int, array: Array) -> dict[str, Any] | None:
    size = array.itemsize
    offset = item.ctypes.data - array.ctypes.data
    inside = 0 <= offset < array.nbytes and item.dtype == array.dtype and item.size > 0
    if not inside or any(step % size for step in (offset, *item.strides)):
        return None
    return {
        "of": at,
        "offset": offset // size,
        "shape": list(item.shape),
        "strides": [step // size for step in item.strides],
    }

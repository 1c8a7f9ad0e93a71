"""Result dtypes of the legacy generation, where nobody asks for one.

Source: nki/api/nki.api.shared.rst:318-400 at tag v2.26.1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nkireview.isa import dtypes as table
from nkireview.isa.dtypes import DataType
from nkireview.nki.dtypes import ALL, DType
from nkireview.nki.dtypes import of as dtype_of
from nkireview.nki.errors import Refusal
from nkireview.nki.legacy.tile import Tile

WIDER_FLOATS = ("bfloat16", "float16", "float32")
"""Types that two floats widen to where neither holds the other, the first that fits."""
WIDER_INTEGERS = ("int16", "int32", "float32")
"""The same for two integers."""


def promoted(*kinds: DType) -> DType:
    """The dtype of an arithmetic result of inputs of these dtypes."""
    found = kinds[0]
    for kind in kinds[1:]:
        found = _wider(found, kind)
    return found


def _wider(left: DType, right: DType) -> DType:
    if left == right:
        return left
    a, b = table.BY_NAME[left.name], table.BY_NAME[right.name]
    if (a.kind == "float") != (b.kind == "float"):
        return left if a.kind == "float" else right
    new = WIDER_FLOATS if a.kind == "float" else WIDER_INTEGERS
    for name in (left.name, right.name, *new):
        if _holds(table.BY_NAME[name], a) and _holds(table.BY_NAME[name], b):
            return ALL[name]
    return ALL["float32"]


def _holds(outer: DataType, inner: DataType) -> bool:
    """True where every value of a type is one of another."""
    if outer.kind == inner.kind == "float":
        lowest = (outer.min_exponent or 0) <= (inner.min_exponent or 0)
        return (
            lowest
            and outer.significand_bits >= inner.significand_bits
            and outer.max_finite >= inner.max_finite
        )
    if outer.kind == "float":
        return False
    signed = outer.kind == "int" or inner.kind != "int"
    return signed and outer.significand_bits >= inner.significand_bits


def kind_of(value: Any) -> DType | None:
    """The dtype that a side of an operation has: a number is as wide as the hardware's, a NumPy number is what it says.

    None for what is neither a tile nor a number.
    """
    if isinstance(value, Tile):
        return value.kind
    if isinstance(value, np.generic):
        try:
            return dtype_of(value.dtype, "a number")
        except Refusal:
            value = value.item()
    if isinstance(value, bool):
        return ALL["uint8"]
    if isinstance(value, int):
        return ALL["int32"]
    return ALL["float32"] if isinstance(value, float) else None


def result(what: str, dtype: Any, *sides: Any) -> DType:
    """The dtype asked for, else the promoted one of tiles and numbers."""
    if dtype is not None:
        return dtype_of(dtype, what)
    return promoted(*(kind for side in sides if (kind := kind_of(side)) is not None))

"""`nl` dtypes: strings, as in the official stubs, that NumPy also takes for dtypes.

A dtype equals its NumPy and torch spellings; tfloat32 and the packed types, which have no NumPy dtype, equal only
themselves and their name. None equals none of them.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from nkireview.isa import dtypes as table
from nkireview.nki.errors import Refusal


class DType(str):
    """One NKI dtype; `dtype` is its NumPy dtype, or absent where NumPy has none."""

    __slots__ = ("_numpy", "name")
    _numpy: np.dtype[Any] | None
    name: str
    """The NKI name, as a plain string."""

    def __new__(cls, name: str) -> DType:
        self = super().__new__(cls, name)
        self._numpy = table.BY_NAME[name].numpy
        self.name = table.BY_NAME[name].name
        return self

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy dtype of the values."""
        if self._numpy is None:
            raise AttributeError(f"{self} has no NumPy dtype")
        return self._numpy

    @property
    def itemsize(self) -> int:
        """Bytes an element."""
        return table.BY_NAME[self.name].bits // 8

    def __eq__(self, other: object) -> bool:
        if type(other) is DType:
            return str.__eq__(self, other)
        if isinstance(other, str):
            return str.__eq__(self, other) or (
                self._numpy is not None and other in (self._numpy.name, f"torch.{self._numpy.name}")
            )
        if other is None or self._numpy is None:
            return False
        if isinstance(other, np.dtype | type):
            try:
                return np.dtype(other) == self._numpy
            except TypeError:
                return False
        return str(other) == f"torch.{self._numpy.name}"

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return str.__hash__(self)

    def __repr__(self) -> str:
        return f"nl.{str.__str__(self)}"

    def __call__(self, value: Any) -> Any:
        """A Python number of this dtype: what ``nl.float32(3)`` means in host code."""
        if self._numpy is None:
            raise Refusal(f"{self} has no scalar values")
        return self._numpy.type(value)


ALL = {name: DType(name) for name in table.BY_NAME}


@cache
def _of_type(spelling: Any) -> DType:
    return ALL[table.of(spelling).name]


def of(spelling: Any, what: str) -> DType:
    """The dtype of a spelling; Refusal names the call (`what`) and the choices."""
    if isinstance(spelling, DType):
        return spelling
    try:
        if isinstance(spelling, type | np.dtype):
            return _of_type(spelling)
        return ALL[table.of(spelling).name]
    except (ValueError, TypeError) as error:
        raise Refusal(f"{what}: {error}") from None

"""Formats: how a data type is held, and where values are rounded: at the store, or (as a shadow) nowhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.isa import dtypes
from nkireview.isa.dtypes import FLOAT32, ROUNDED_BY_NUMPY, DataType


@dataclass(frozen=True)
class Formats:
    """The compute dtype and the rounding policy; unrounded floats are held in the compute dtype.

    Used where NumPy's floating-point warnings are silenced.
    """

    compute: np.dtype[Any]
    rounds: bool = True

    def dtype(self, kind: DataType) -> np.dtype[Any]:
        """What holds one element."""
        return kind.storage if self.rounds or kind.kind != "float" else self.compute

    def exact(self, kind: DataType) -> bool:
        """True where storing a compute value changes nothing."""
        return self.dtype(kind) == self.compute and (kind.numpy is not None or not self.rounds)

    def accepted(self, kind: DataType) -> np.dtype[Any] | None:
        """The compute dtype, where assigning a value of it to an element rounds as a store does."""
        by_numpy = self.rounds and self.compute == FLOAT32 and kind.name in ROUNDED_BY_NUMPY
        return self.compute if by_numpy or self.exact(kind) else None

    def scale(self, unit: int) -> int:
        """Bytes held for each byte of the device in a store whose smallest elements have `unit` bytes."""
        return 1 if self.rounds else -(-self.compute.itemsize // unit)

    def load(self, held: NDArray[Any], kind: DataType) -> NDArray[Any]:
        """Held elements as compute values; not copied where they already are."""
        return held if held.dtype == self.compute else dtypes.widened(held, kind, self.compute)

    def store(self, values: NDArray[Any], kind: DataType) -> NDArray[Any]:
        """Compute values as held elements."""
        if self.rounds or kind.kind != "float":
            return dtypes.rounded(values, kind)
        return values.astype(self.compute, copy=False)

"""Who wrote a buffer: for the outputs of a Program, the instruction whose value each element holds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nkireview.execute.storage import Mask, Operand

LISTED = 4096  # writes kept as a list; from there on, one number for each unit of the store


class Writes:
    """The writes of one buffer in their order, or, once there are many or scattered ones, the last one of each unit."""

    def __init__(self, units: int) -> None:
        self._units = units
        self._listed: dict[tuple[int, Operand], None] = {}
        self._owners: NDArray[np.int32] | None = None

    def note(self, index: int, operand: Operand) -> None:
        """Note that an instruction was the last to write an operand."""
        if self._owners is None:
            if operand.plain and len(self._listed) < LISTED:
                self._listed.pop((index, operand), None)
                self._listed[(index, operand)] = None
                return
            self._owners = np.full(self._units, -1, np.int32)
            for at, write in self._listed:
                write.mark(self._owners, at)
            self._listed.clear()
        operand.mark(self._owners, index)

    def writer(self, operand: Operand, wrong: Mask) -> int:
        """The last instruction that stored one of these elements; -1 where none did."""
        if self._owners is not None:
            owners = operand.units_of(self._owners)
            return int(owners[wrong].max(initial=-1))
        marks = np.zeros(self._units, np.bool_)
        operand.mark(marks, wrong)
        for index, write in reversed(self._listed):
            if write.units_of(marks).any():
                return index
        return -1

    def last(self, operand: Operand) -> tuple[int, ...]:
        """Instructions some of whose elements no later one replaced, ascending."""
        if self._owners is not None:
            found = np.unique(operand.units_of(self._owners))
            return tuple(found[found >= 0].tolist())
        left = np.zeros(self._units, np.bool_)
        operand.mark(left, True)
        count, kept = operand.form.units, set()
        for index, write in reversed(self._listed):
            part = int(np.count_nonzero(write.units_of(left)))
            if part:
                kept.add(index)
                write.mark(left, False)
                count -= part
            if count <= 0:
                break
        return tuple(sorted(kept))

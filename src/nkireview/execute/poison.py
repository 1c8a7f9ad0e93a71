"""Poison: the bytes of memory that nothing has written yet."""

from __future__ import annotations

from enum import Enum


class Poison(Enum):
    """The byte that fills unwritten memory; two executions that differ in it must give the same defined values."""

    nan = 0xFF  # NaN in every float format, -1 or the largest number in the integer ones
    finite = 0x5A  # finite in every float format: it survives a maximum or a comparison, where NaN shows

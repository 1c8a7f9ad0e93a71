"""Extents: how many different bytes a set of accesses touches."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nkireview.isa import dtypes
from nkireview.program.access import Access
from nkireview.program.interning import Ints
from nkireview.program.placement import merge
from nkireview.program.program import Program

CELLS = 2**27
"""Marks made at most for one buffer; beyond, as much is taken to be touched as the buffer or the moves allow."""


class Extents:
    """Counts of different bytes, buffer by buffer."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def distinct(self, accesses: Ints) -> int | None:
        """Different bytes that accesses to one buffer touch; None where some address is made on the device.

        Exact, but for a set too finely cut to be counted, where it is the most it can be.
        """
        held = [self.program.access(number) for number in np.unique(accesses).tolist()]
        if any(access.index is not None or access.table is not None for access in held):
            return None
        buffer = self.program.buffer(held[0].buffer)
        bits = dtypes.BY_NAME[buffer.dtype].bits
        size = math.prod(buffer.shape)
        sane = all(access.dtype == buffer.dtype and _inside(access, size) for access in held)
        most = min(size, sum(access.size for access in held))
        found = self._marked(held, size) if sane else None
        return (most if found is None else found) * bits // 8

    def _marked(self, held: Sequence[Access], size: int) -> int | None:
        """Elements touched, counted in the largest grains that every access is made of."""
        grain = size
        for access in held:
            grain = math.gcd(grain, *_steps(access))
        if size // grain > CELLS or sum(access.size // grain for access in held) > CELLS:
            return None
        marks = np.zeros(size // grain, bool)
        for access in held:
            _mark(marks, access, grain)
        return int(np.count_nonzero(marks)) * grain


def _inside(access: Access, size: int) -> bool:
    low, high = access.extent
    return access.size > 0 and low >= 0 and high < size


def _split(access: Access) -> tuple[list[tuple[int, int]], int]:
    """The axes outside the innermost contiguous stretch, and the elements of that stretch."""
    axes = list(merge(access.pattern))
    inner = axes.pop()[1] if axes and axes[-1][0] == 1 else 1
    return axes, inner


def _steps(access: Access) -> list[int]:
    axes, inner = _split(access)
    return [access.base, inner, *(stride for stride, _ in axes)]


def _mark(marks: NDArray[np.bool_], access: Access, grain: int) -> None:
    """Set the marks of an access."""
    axes, inner = _split(access)
    shape = (*(count for _, count in axes), inner // grain)
    strides = (*(stride // grain for stride, _ in axes), 1)
    view: NDArray[np.bool_] = np.ndarray(shape, bool, marks.data, access.base // grain, strides)
    view[...] = True

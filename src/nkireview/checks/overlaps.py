"""Overlaps: how many elements two views of one buffer share, exactly, or that it cannot be said."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nkireview.isa import dtypes
from nkireview.program.access import Access
from nkireview.program.footprint import ENUMERATED, allowed, offsets
from nkireview.program.program import Program

STEPS = 2**16
"""Values tried for the indices of two views, above which it is not decided whether they share an element."""

Axes = tuple[tuple[int, int], ...]
"""(stride, count) of axes, strides positive and falling."""


def shared(program: Program, one: int, other: int) -> int | None:
    """Elements (of the first one's dtype) that two accesses to one buffer both touch; None where it is not decided.

    The number is a lower bound where counting all would take too long.
    """
    first, second = program.access(one), program.access(other)
    if first.index is not None or second.index is not None:
        return None
    widths = [dtypes.BY_NAME[access.dtype].bits for access in (first, second)]
    unit = math.gcd(*widths)
    found: int | None = None
    listed = first.table is not None or second.table is not None
    if not listed:
        (base, mine), (start, theirs) = (
            _form(access, width // unit) for access, width in zip((first, second), widths, strict=True)
        )
        found = _Equation.of(mine, theirs).solutions(start - base)
        listed = bool(first.bounds or second.bounds or not (_nested(mine) and _nested(theirs)))
    if listed and found != 0:
        left, right = (
            _pieces(program, access, width // unit)
            for access, width in zip((first, second), widths, strict=True)
        )
        found = None if left is None or right is None else len(np.intersect1d(left, right))
    return None if found is None else -(-found * unit // widths[0])


def _pieces(program: Program, access: Access, each: int) -> NDArray[np.int64] | None:
    """What an access touches, in pieces of which an element has `each`; None where they are too many."""
    if access.size * each > ENUMERATED:
        return None
    table = None if access.table is None else program.constants[access.table]
    found = offsets(access, table)[allowed(access)]
    pieces: NDArray[np.int64] = (found[:, None] * each + np.arange(each)).reshape(-1)
    return pieces


def _form(access: Access, each: int) -> tuple[int, Axes]:
    """Lowest piece and axes of an access whose elements have `each` pieces; axes that go on from each other as one."""
    base = access.base
    axes = [] if each == 1 else [(1, each)]
    for stride, count in access.pattern:
        if count == 0:
            return 0, ((1, 0),)
        if stride < 0:
            base += stride * (count - 1)
        if stride and count > 1:
            axes.append((abs(stride) * each, count))
    axes.sort(reverse=True)
    merged: list[tuple[int, int]] = []
    for stride, count in axes:
        if merged and merged[-1][0] == stride * count:
            merged[-1] = stride, merged[-1][1] * count
        else:
            merged.append((stride, count))
    return base * each, tuple(merged)


def _nested(axes: Axes) -> bool:
    """True where each element is touched once, since no axis reaches as far as a stride of those around it."""
    reach = 0
    for stride, count in reversed(axes):
        if stride <= reach:
            return False
        reach += stride * (count - 1)
    return True


@dataclass
class _Equation:
    """Sum of stride * (k - l) over axes, k below `mine` and l below `theirs`; what is left of each axis on is known."""

    strides: list[int]
    mine: list[int]
    theirs: list[int]
    low: list[int]
    high: list[int]
    divisor: list[int]
    left: int = STEPS

    @classmethod
    def of(cls, mine: Axes, theirs: Axes) -> _Equation:
        """An axis with a stride of both views is one."""
        rows: list[tuple[int, int, int]] = []
        ours, yours = list(mine), list(theirs)
        while ours or yours:
            stride = max(axes[0][0] for axes in (ours, yours) if axes)
            left, right = (axes.pop(0)[1] if axes and axes[0][0] == stride else 1 for axes in (ours, yours))
            rows.append((stride, left, right))
        low, high, divisor = [0], [0], [0]
        for stride, left, right in reversed(rows):
            low.append(low[-1] - stride * (right - 1))
            high.append(high[-1] + stride * (left - 1))
            divisor.append(math.gcd(divisor[-1], stride))
        strides, counts, others = ([row[at] for row in rows] for at in range(3))
        return cls(strides, counts, others, low[::-1], high[::-1], divisor[::-1])

    def solutions(self, total: int) -> int | None:
        """How many choices of k and l give the total; at least one where some are found but not all; None: unknown."""
        found = self._from(0, total)
        return found if found or self.left > 0 else None

    def _from(self, axis: int, total: int) -> int:
        if not self.low[axis] <= total <= self.high[axis]:
            return 0
        if axis == len(self.strides):
            return 1
        if total % self.divisor[axis]:
            return 0
        stride, mine, theirs = self.strides[axis], self.mine[axis], self.theirs[axis]
        first = max(-(theirs - 1), -((self.high[axis + 1] - total) // stride))
        last = min(mine - 1, (total - self.low[axis + 1]) // stride)
        found = 0
        for value in range(first, last + 1):
            self.left -= 1
            if self.left <= 0:
                break
            ways = min(mine, theirs + value) - max(0, value)
            found += ways * self._from(axis + 1, total - stride * value)
        return found

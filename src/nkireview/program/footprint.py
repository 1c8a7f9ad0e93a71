"""Which elements an access touches: ranges of affine forms over its index space, with its bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.program.access import Access, Bound

Range = tuple[int, int]
ENUMERATED = 2**22


@dataclass(frozen=True)
class Form:
    """``constant + sum(coefficients * index)`` over the axes of an access."""

    constant: int
    coefficients: tuple[int, ...]


def ranges(access: Access, forms: Sequence[Form]) -> tuple[Range, ...] | None:
    """Lowest and highest value of each form over the elements that the bounds let through; None where there are none.

    Exact, but for bounds over several axes and more than `ENUMERATED` elements, where the ranges may be too wide.
    """
    axes: list[Range] | None = [(0, count - 1) for count in access.shape]
    if any(count < 1 for count in access.shape):
        return None
    if access.bounds:
        axes = _tightened(axes or [], access.bounds)
        if axes is None:
            return None
        if any(_width(bound) > 1 for bound in access.bounds):
            return _enumerated(axes, access.bounds, forms)
    return tuple(_interval(form, axes or []) for form in forms)


def allowed(access: Access) -> NDArray[np.bool_]:
    """The elements that the bounds let through, in the shape of the access."""
    return _allowed([(0, count - 1) for count in access.shape], access.bounds)


def offsets(access: Access, table: NDArray[Any] | None = None) -> NDArray[np.int64]:
    """The element offsets of an access, in its shape and without its bounds and device-side index."""
    if table is not None:
        return table.astype(np.int64).reshape(access.shape)
    form = Form(access.base, tuple(stride for stride, _ in access.pattern))
    values = _values(form, [(0, count - 1) for count in access.shape])
    return np.broadcast_to(values, access.shape)


def _width(bound: Bound) -> int:
    return sum(coefficient != 0 for coefficient in bound.coefficients)


def _interval(form: Form, axes: Sequence[Range]) -> Range:
    low = high = form.constant
    for coefficient, (first, last) in zip(form.coefficients, axes, strict=True):
        ends = coefficient * first, coefficient * last
        low, high = low + min(ends), high + max(ends)
    return low, high


def _tightened(axes: list[Range], bounds: Sequence[Bound]) -> list[Range] | None:
    """The smallest box that one pass of each bound leaves; None where a bound lets nothing through."""
    for bound in bounds:
        _, highest = _interval(Form(bound.constant, bound.coefficients), axes)
        for axis, coefficient in enumerate(bound.coefficients):
            if not coefficient:
                continue
            first, last = axes[axis]
            slack = highest - max(coefficient * first, coefficient * last)
            if coefficient > 0:
                first = max(first, -(slack // coefficient))
            else:
                last = min(last, slack // -coefficient)
            if first > last:
                return None
            axes[axis] = first, last
        if highest < 0:
            return None
    return axes


def _enumerated(
    axes: Sequence[Range], bounds: Sequence[Bound], forms: Sequence[Form]
) -> tuple[Range, ...] | None:
    size = 1
    for first, last in axes:
        size *= last - first + 1
    if size > ENUMERATED:
        return tuple(_interval(form, axes) for form in forms)
    inside = _allowed(axes, bounds)
    if not inside.any():
        return None
    found = []
    for form in forms:
        values = np.broadcast_to(_values(form, axes), inside.shape)[inside]
        found.append((int(values.min()), int(values.max())))
    return tuple(found)


def _allowed(axes: Sequence[Range], bounds: Sequence[Bound]) -> NDArray[np.bool_]:
    inside = np.ones([last - first + 1 for first, last in axes], bool)
    for bound in bounds:
        inside &= _values(Form(bound.constant, bound.coefficients), axes) >= 0
    return inside


def _values(form: Form, axes: Sequence[Range]) -> NDArray[np.int64]:
    """The form over a box, with size 1 along the axes it does not depend on."""
    total = np.full([1] * len(axes), form.constant, np.int64)
    for axis, (coefficient, (first, last)) in enumerate(zip(form.coefficients, axes, strict=True)):
        if coefficient:
            shape = [1] * len(axes)
            shape[axis] = -1
            total = total + coefficient * np.arange(first, last + 1, dtype=np.int64).reshape(shape)
    return total

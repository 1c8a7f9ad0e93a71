"""Which elements of a tensor an index or a mask leaves: layouts of affine indices, restrictions of tiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.nki.errors import Refusal
from nkireview.nki.legacy.symbols import Form, Ints, Symbol
from nkireview.nki.tensor import NkiTensor


@dataclass(frozen=True, eq=False)
class Restriction:
    """What a mask leaves of the dimensions of a tile: a range of each, and affine inequalities where it is no box."""

    ranges: tuple[tuple[int, int], ...]
    bounds: tuple[tuple[tuple[int, ...], int], ...] = ()
    """Coefficients for each dimension and a constant, over the positions of the whole tile."""

    @property
    def empty(self) -> bool:
        """True where nothing is left."""
        return any(stop <= start for start, stop in self.ranges)

    @property
    def box(self) -> tuple[slice, ...]:
        """The ranges as NumPy takes them."""
        return tuple(slice(start, stop) for start, stop in self.ranges)

    def kept(self) -> NDArray[np.bool_]:
        """Which positions in the ranges the inequalities leave."""
        sizes = tuple(stop - start for start, stop in self.ranges)
        found = np.ones(sizes, np.bool_)
        for steps, constant in self.bounds:
            total = np.full((1,) * len(sizes), constant, np.int64)
            for dim, (step, (start, stop)) in enumerate(zip(steps, self.ranges, strict=True)):
                places = np.arange(start, stop, dtype=np.int64) * step
                total = total + places.reshape(-1, *(1,) * (len(sizes) - dim - 1))
            found &= total >= 0
        return found


@dataclass(frozen=True, eq=False)
class Layout:
    """An index of affine expressions and integers into a tensor, but for their bases.

    axes: for each dimension of the tensor its size, its stride and the expression's form, None for an integer.
    whole: with bases of 0 it is the tensor itself.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    axes: tuple[tuple[int, int, Form | None], ...]
    whole: bool


def fitted(part: Restriction, old: tuple[int, ...], new: tuple[int, ...]) -> Restriction | None:
    """A restriction of one shape as one of another that has the same dimensions but for those of size 1.

    None where the shapes differ in more.
    """
    if old == new:
        return part
    kept = [dim for dim, size in enumerate(old) if size != 1]
    if tuple(old[dim] for dim in kept) != tuple(size for size in new if size != 1):
        return None
    if any(stop <= start for start, stop in part.ranges):
        return Restriction(tuple((0, 0) for _ in new))
    places = iter(kept)
    source = [None if size == 1 else next(places) for size in new]
    ranges = tuple((0, 1) if dim is None else part.ranges[dim] for dim in source)
    bounds = tuple(
        (tuple(0 if dim is None else steps[dim] for dim in source), constant)
        for steps, constant in part.bounds
    )
    return Restriction(ranges, bounds)


def fitted_view(view: NkiTensor, shape: tuple[int, ...]) -> NkiTensor:
    """A view in a shape that differs in dimensions of size 1 only."""
    strides = iter(step for step, size in zip(view.strides, view.shape, strict=True) if size != 1)
    return view._view(shape, tuple(0 if size == 1 else next(strides) for size in shape), view.offset)


@lru_cache(1 << 14)
def layout_of(
    shape: tuple[int, ...], strides: tuple[int, ...], forms: tuple[Form | None, ...], on_chip: bool
) -> Layout:
    """The layout of these forms in a tensor of this shape; Refusal where they do not go together."""
    found = broadcast(
        tuple(form for form in forms if form is not None), [form.shape for form in forms if form is not None]
    )
    steps = [0] * len(found)
    axes = []
    for dim, (form, size, stride) in enumerate(zip(forms, shape, strides, strict=True)):
        if form is not None:
            form = Symbol(form, 0).expanded(found).form
            if on_chip:
                partitions_first(dim, found, form.coefficients)
            steps = [old + step * stride for old, step in zip(steps, form.coefficients, strict=True)]
        axes.append((size, stride, form))
    whole = found == shape and all(
        step == stride or size == 1 for step, stride, size in zip(steps, strides, shape, strict=True)
    )
    return Layout(found, tuple(steps), tuple(axes), whole)


def broadcast(forms: tuple[Form, ...], shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The shape of an index by index expressions and index tiles; Refusal where there is none."""
    if any(form.ndim < 2 for form in forms) and max(map(len, shapes)) < 2:
        raise Refusal(
            "nl.arange as an index has one dimension, expected two or more: write nl.arange(n)[:, None] or "
            "nl.arange(n)[None, :]"
        )
    try:
        return tuple(int(size) for size in np.broadcast_shapes(*shapes))
    except ValueError:
        texts = ", ".join(map(str, shapes))
        raise Refusal(f"the index expressions of shapes {texts} do not broadcast") from None


def partitions_first(dim: int, shape: tuple[int, ...], steps: Sequence[Any]) -> None:
    """Refuse an index of an on-chip tensor whose partitions are not its first dimension, and that alone."""
    wrong = any(steps[1:]) if dim == 0 else shape[0] > 1 and bool(steps[0])
    if wrong:
        raise Refusal(
            "an index of an on-chip tensor has the partitions in its first dimension, and there alone: dimension 0 is "
            "indexed by nl.arange(n)[:, None], the others by nl.arange(n)[None, :]"
        )


def changing(values: Ints) -> tuple[bool, ...]:
    """Along which dimensions integers change."""
    return tuple(bool((np.diff(values, axis=dim) != 0).any()) for dim in range(values.ndim))


def reach_of(index: Symbol | int, part: Restriction | None, shape: tuple[int, ...]) -> tuple[int, int]:
    """The lowest and the highest of an index, in a part."""
    if isinstance(index, int):
        return index, index
    if part is None:
        return index.extent()
    if index.table is not None or part.bounds:
        kept = index.values()[part.box][part.kept()]
        return (int(kept.min()), int(kept.max())) if kept.size else (0, 0)
    low = high = index.base
    for (start, stop), step in zip(part.ranges, index.coefficients, strict=True):
        first, last = start * step, (stop - 1) * step
        low, high = low + min(first, last), high + max(first, last)
    return low, high

"""Two arrays, what rounding explains between them, and the elements that it does not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from nkireview.numerics.arrays import BLOCK_ELEMENTS, Array, Float64, float64

Ints = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]

# Elements that a decision is made on; more would cost time and change no verdict.
SAMPLE = 1 << 15
RIGHT_SAMPLE = 1 << 12
# Rows times columns of the matrix that factors and offsets are fitted on.
MATRIX_SAMPLE = 1 << 16
# No stored format is coarser than this relative to its values.
COARSEST = 2.0**-4


@dataclass(frozen=True)
class Elements:
    """Elements of a mismatch at the flat indices ``at``, in float64; any shape, the same in all four."""

    at: Ints
    got: Float64
    ref: Float64
    allowed: Float64

    def where(self, mask: Mask) -> Elements:
        """Those that ``mask`` names, flat."""
        return Elements(self.at[mask], self.got[mask], self.ref[mask], self.allowed[mask])


@dataclass(frozen=True)
class Matrix:
    """Rows and columns that hold wrong elements, or a sample of them, out of a mismatch seen as a matrix."""

    elements: Elements
    wrong: Mask


@dataclass(frozen=True)
class Mismatch:
    """``got`` against ``ref``, each flat in C order, and which elements are wrong.

    An element is right where ``|got - ref| <= allowed``, where both are equal and where both are NaN. Against an
    infinite or NaN reference no error is allowed.
    """

    shape: tuple[int, ...]
    got: Array
    ref: Array
    allowed: Array
    wrong: Mask
    count: int

    @property
    def size(self) -> int:
        return self.wrong.size

    @cached_property
    def axes(self) -> tuple[int, ...]:
        """The axes longer than one."""
        return tuple(axis for axis, size in enumerate(self.shape) if size > 1)

    @cached_property
    def strides(self) -> tuple[int, ...]:
        """Elements between neighbours along each axis."""
        return tuple(math.prod(self.shape[axis + 1 :]) for axis in range(len(self.shape)))

    @cached_property
    def columns(self) -> int:
        """Elements along the last axis longer than one; all other axes together are the rows."""
        return self.shape[self.axes[-1]] if self.axes else 1

    @property
    def rows(self) -> int:
        return self.size // self.columns

    def generator(self) -> np.random.Generator:
        """The same draws for every question, so that a report does not change from run to run."""
        return np.random.default_rng(8)

    def elements(self, at: Ints) -> Elements:
        return Elements(at, float64(self.got[at]), float64(self.ref[at]), float64(self.allowed[at]))

    @cached_property
    def wrong_sample(self) -> Elements:
        """The wrong elements, or about ``SAMPLE`` of them, in C order."""
        return self.elements(_some(np.flatnonzero(self.wrong), SAMPLE, self.generator()))

    @cached_property
    def right_sample(self) -> Elements:
        """At most ``RIGHT_SAMPLE`` of the elements that are right."""
        if self.count == self.size:
            return self.elements(np.zeros(0, dtype=np.intp))
        if self.size <= 16 * RIGHT_SAMPLE:
            at = np.flatnonzero(~self.wrong)
        else:
            at = np.unique(self.generator().integers(0, self.size, 4 * RIGHT_SAMPLE))
            at = at[~self.wrong[at]]
        return self.elements(_some(at, RIGHT_SAMPLE, self.generator()))

    @cached_property
    def relative(self) -> float:
        """How much of its magnitude an element's allowance is, at the larger elements of ``ref``."""
        at = np.arange(self.size) if self.size <= SAMPLE else self.generator().integers(0, self.size, SAMPLE)
        some = self.elements(at)
        usable = np.isfinite(some.ref) & (some.ref != 0) & np.isfinite(some.allowed)
        if not usable.any():
            return 0.0
        magnitude, allowed = np.abs(some.ref[usable]), some.allowed[usable]
        large = magnitude >= np.quantile(magnitude, 0.75)
        return min(float(np.median(allowed[large] / magnitude[large])), COARSEST)

    @cached_property
    def matrix(self) -> Matrix:
        """The part of the matrix that factors and offsets of rows and columns are fitted on."""
        wrong = self.wrong.reshape(self.rows, self.columns)
        rows, columns = np.flatnonzero(wrong.any(axis=1)), np.flatnonzero(wrong.any(axis=0))
        width = min(columns.size, max(256, MATRIX_SAMPLE // rows.size))
        columns = _some(columns, width, self.generator())
        rows = _some(rows, max(1, MATRIX_SAMPLE // columns.size), self.generator())
        at = rows[:, None] * self.columns + columns
        return Matrix(self.elements(at), self.wrong[at])

    def lines(self, axis: int, count: int) -> Ints:
        """Flat indices of at most ``count`` different lines along ``axis`` that hold wrong elements."""
        through = _some(self.wrong_sample.at, 4 * count, self.generator())
        stride, size = self.strides[axis], self.shape[axis]
        starts = np.unique(through - through // stride % size * stride)
        return _some(starts, count, self.generator())[:, None] + stride * np.arange(size)


def mismatch(got: Array, ref: Array, allowed: Array | float) -> Mismatch:
    """Compare two arrays of one shape under an absolute ``allowed`` error that broadcasts to it.

    Raise ValueError where the shapes differ or ``allowed`` is negative or, at a finite reference, NaN.
    """
    got, ref = np.asarray(got), np.asarray(ref)
    if got.shape != ref.shape:
        raise ValueError(
            f"the output has shape {got.shape} and the reference {ref.shape}: expected one shape"
        )
    for name, array in (("the output", got), ("the reference", ref)):
        if array.dtype.kind in "cOSUMm":
            raise ValueError(f"{name} holds {array.dtype}: expected real numbers")
    try:
        limit = np.broadcast_to(float64(np.asarray(allowed)), got.shape)
    except ValueError:
        raise ValueError(
            f"the allowed error has shape {np.shape(allowed)}: expected one that broadcasts to {got.shape}"
        ) from None
    flat = (got.reshape(-1), ref.reshape(-1), limit.reshape(-1))
    wrong = np.empty(got.size, dtype=np.bool_)
    for start in range(0, got.size, BLOCK_ELEMENTS):
        block = slice(start, start + BLOCK_ELEMENTS)
        wrong[block] = _wrong(*(float64(array[block]) for array in flat))
    return Mismatch(got.shape, *flat, wrong, int(np.count_nonzero(wrong)))


def _wrong(got: Float64, ref: Float64, allowed: Float64) -> Mask:
    if not np.all(allowed >= 0):
        if (allowed < 0).any():
            raise ValueError(f"an allowed error is {np.nanmin(allowed)}: expected no less than 0")
        if (np.isnan(allowed) & np.isfinite(ref)).any():
            raise ValueError(
                "an allowed error is NaN where the reference is a number: expected a number there"
            )
    wrong = ~(np.abs(got - ref) <= allowed)
    strict = ~np.isfinite(ref)
    if strict.any():
        wrong |= strict
    if wrong.any():
        wrong &= (got != ref) & ~(np.isnan(got) & np.isnan(ref))
    return wrong


def _some(values: Ints, count: int, generator: np.random.Generator) -> Ints:
    """At most ``count`` of sorted ``values``, in order: one out of each of ``count`` equal stretches."""
    if values.size <= count:
        return values
    edges = np.arange(count) * (values.size / count)
    places = (edges + generator.random(count) * (values.size / count)).astype(np.intp)
    places = np.minimum(places, values.size - 1)
    return np.asarray(values[places[np.diff(places, prepend=-1) > 0]], dtype=np.intp)


def spread(values: Ints, count: int) -> Ints:
    """At most ``count`` of ``values`` at even distances, both ends among them."""
    if values.size <= count:
        return values
    return values[np.linspace(0, values.size - 1, count).astype(np.intp)]


def unravel(at: Ints, shape: Sequence[int]) -> tuple[Ints, ...]:
    """The index along each axis of flat indices."""
    return tuple(np.unravel_index(at, tuple(shape))) if shape else ()

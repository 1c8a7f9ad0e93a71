"""How far an output is from its reference, as figures; judging them is ``verdict``'s part.

``e = got - ref`` in float64. Figures are taken over the elements that are finite on both sides; a
non-finite element matches only the same non-finite value in the reference as the output dtype stores it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nkireview.isa import dtypes
from nkireview.numerics.arrays import Array, Float64, Window, as_rows, float64, windows
from nkireview.numerics.limits import Limits, table

Mask = npt.NDArray[np.bool_]

# Below this fraction of its row's rms an element's own ulp says nothing about the computation.
ULP_THRESHOLD = 2.0**-6


@dataclass(frozen=True)
class Worst:
    """The element with the largest absolute error: its index, the two values and the error."""

    index: tuple[int, ...]
    got: float
    ref: float
    error: float

    def __post_init__(self) -> None:
        if not self.error >= 0:
            raise ValueError(f"the largest absolute error is {self.error}: expected a number of at least 0")


@dataclass(frozen=True)
class NonFinite:
    """Elements whose NaN or infinity differs from the reference: how many, and the first of them.

    ``ref`` is the reference there as the output dtype stores it.
    """

    count: int
    index: tuple[int, ...]
    got: float
    ref: float

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"{self.count} non-finite mismatches: leave the field None where there are none")


@dataclass(frozen=True)
class LimitUse:
    """How much of its limits an output uses: 1 is all of it.

    ``over`` elements lie outside the limit for one element, ``element`` is the largest share used by any,
    ``rms`` the share of the rms limit, which ``rms_limit`` states with its small-output allowance.
    """

    over: int
    element: float
    rms: float
    rms_limit: float

    def __post_init__(self) -> None:
        _require_numbers(over=self.over, element=self.element, rms=self.rms, rms_limit=self.rms_limit)


@dataclass(frozen=True)
class ErrorFigures:
    """Error figures of a floating output.

    ``scaled_max`` is max|e| / rms(ref) and ``rms_ratio`` rms(e) / rms(ref), per row where the limits say so;
    both are infinite where the reference is 0 and the output is not. ``worst_ulps`` is the largest error in
    units of the output dtype's spacing at the reference, over elements above 2**-6 of the rms of their row.
    ``finite`` counts the elements compared as numbers; ``worst`` is None where there are none. ``use`` is
    None where no limits were given.
    """

    dtype: str
    elements: int
    finite: int
    rms_ref: float
    scaled_max: float
    rms_ratio: float
    worst_ulps: float
    worst: Worst | None
    nonfinite: NonFinite | None
    use: LimitUse | None

    def __post_init__(self) -> None:
        _require_numbers(
            rms_ref=self.rms_ref,
            scaled_max=self.scaled_max,
            rms_ratio=self.rms_ratio,
            worst_ulps=self.worst_ulps,
        )
        if not 0 <= self.finite <= self.elements:
            raise ValueError(f"{self.finite} finite elements of {self.elements}: expected no more than all")
        if (self.worst is None) != (self.finite == 0):
            raise ValueError("the worst element must be given exactly where finite elements were compared")
        if self.use is not None and self.use.over > self.finite:
            raise ValueError(f"{self.use.over} elements over their limit of {self.finite} compared")

    @property
    def max_error(self) -> float:
        """Largest absolute error; 0 where no finite elements were compared."""
        return self.worst.error if self.worst else 0.0

    @property
    def fraction_over(self) -> float:
        """Fraction of the compared elements outside their limit; 0 where no limits were given."""
        return self.use.over / self.finite if self.use and self.finite else 0.0


@dataclass(frozen=True)
class ExactFigures:
    """Figures of an output that must match exactly: how many elements differ, and the largest difference."""

    dtype: str
    elements: int
    mismatches: int
    worst: Worst | None

    def __post_init__(self) -> None:
        if not 0 <= self.mismatches <= self.elements:
            raise ValueError(f"{self.mismatches} mismatches of {self.elements} elements")
        if (self.worst is None) != (self.mismatches == 0):
            raise ValueError("the worst element must be given exactly where elements differ")


@dataclass(frozen=True)
class ShapeMismatch:
    """The output and the reference differ in shape, so no element was compared."""

    got: tuple[int, ...]
    ref: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.got == self.ref:
            raise ValueError(f"both shapes are {self.got}: that is no mismatch")


Comparison = ErrorFigures | ExactFigures | ShapeMismatch


def compare(got: Array, ref: Array, dtype_name: str, limits: Limits | None = None) -> Comparison:
    """Compare an output with its reference.

    ``got`` holds values of the output dtype ``dtype_name`` in any real array dtype; ``ref`` is the float64
    reference (or integers) in the same shape. Integers, bool and block scales are compared exactly. With
    ``limits`` the figures say how much of them is used. Raise ValueError for an unknown or packed dtype,
    for limits of another dtype, and for outputs without elements.
    """
    dtype = dtypes.of(dtype_name)
    if dtype.kind == "packed":
        raise ValueError(f"{dtype.name} outputs are packed: compare their unpacked values")
    if limits is not None and limits.dtype != dtype.name:
        raise ValueError(f"limits for {limits.dtype} cannot judge an output of {dtype.name}")
    if got.shape != ref.shape:
        return ShapeMismatch(got.shape, ref.shape)
    if got.size == 0:
        raise ValueError(f"an output of shape {got.shape} has no elements to compare")
    if dtype.name in table().exact:
        return _compare_exactly(got, ref, dtype)
    return _compare_floats(got, ref, dtype, limits)


def _compare_exactly(got: Array, ref: Array, dtype: dtypes.DataType) -> ExactFigures:
    got_rows, ref_rows = as_rows(got), as_rows(ref)
    mismatches, peak = 0, _Peak()
    for window in windows(*got_rows.shape):
        # Values of up to 32 bits are exact in float64.
        have, want = float64(got_rows[window]), float64(ref_rows[window])
        differs = (have != want) & ~(np.isnan(have) & np.isnan(want))
        count = int(np.count_nonzero(differs))
        if count:
            mismatches += count
            error = np.abs(have - want)
            error[np.isnan(error)] = np.inf
            peak.update(np.where(differs, error, -1.0), window, got_rows.shape[1])
    return ExactFigures(dtype.name, got.size, mismatches, peak.worst(got, ref))


class _Peak:
    """The largest value seen so far over the windows of a matrix, and where."""

    def __init__(self) -> None:
        self.value = -1.0
        self.flat = 0

    def update(self, values: Float64, window: Window, columns: int) -> None:
        place = int(values.argmax())
        value = float(values.flat[place])
        if value > self.value:
            self.value, self.flat = value, _flat(place, window, values.shape[1], columns)

    def worst(self, got: Array, ref: Array) -> Worst | None:
        if self.value < 0:
            return None
        index = _index(got.shape, self.flat)
        return Worst(index, float(got[index]), float(ref[index]), self.value)


@dataclass(frozen=True)
class _Scales:
    """What errors are measured against: rms of the reference by row and over all, and the one in use."""

    by_row: Float64
    total: float
    used: Float64
    effective: float


class _Tally:
    """Sums and maxima of the errors over the windows of a matrix."""

    def __init__(self, dtype: dtypes.DataType, scales: _Scales, limits: Limits | None) -> None:
        self.dtype, self.scales, self.limits = dtype, scales, limits
        self.finite = 0
        self.scaled_max = self.scaled_squares = self.worst_ulps = 0.0
        self.over, self.element_use, self.rms_use_squares = 0, 0.0, 0.0
        self.rms_limit = limits.rms * (1 + limits.spread / math.sqrt(scales.effective)) if limits else 0.0

    def add(self, error: Float64, want: Float64, rows: slice, finite: int) -> None:
        """Count a window: its absolute errors and references, 0 in both where not ``finite``."""
        self.finite += finite
        scale = self.scales.used[rows]
        scaled = _ratio(error, scale)
        self.scaled_max = max(self.scaled_max, float(scaled.max()))
        self.scaled_squares += float(np.sum(np.square(scaled)))
        magnitude = np.abs(want)
        counted = magnitude > ULP_THRESHOLD * self.scales.by_row[rows]
        ulps = np.divide(error, dtypes.ulp(want, self.dtype), out=np.zeros_like(error), where=counted)
        self.worst_ulps = max(self.worst_ulps, float(ulps.max()))
        if self.limits is not None:
            limits = self.limits
            use = _ratio(error, limits.rtol * magnitude + limits.atol * scale + limits.absolute)
            self.over += int(np.count_nonzero(use > 1))
            self.element_use = max(self.element_use, float(use.max()))
            rms_use = _ratio(error, self.rms_limit * scale + limits.absolute)
            self.rms_use_squares += float(np.sum(np.square(rms_use)))

    def mean_root(self, squares: float) -> float:
        return math.sqrt(squares / self.finite) if self.finite else 0.0

    def use(self) -> LimitUse | None:
        if self.limits is None:
            return None
        return LimitUse(self.over, self.element_use, self.mean_root(self.rms_use_squares), self.rms_limit)


def _compare_floats(got: Array, ref: Array, dtype: dtypes.DataType, limits: Limits | None) -> ErrorFigures:
    got_rows, ref_rows = as_rows(got), as_rows(ref)
    columns = got_rows.shape[1]
    scales = _scales(ref_rows, dtype, per_row=limits is not None and limits.per_row)
    tally, peak = _Tally(dtype, scales, limits), _Peak()
    mismatched, first = 0, 0
    with np.errstate(over="ignore"):
        for window in windows(*got_rows.shape):
            have, want = float64(got_rows[window]), float64(ref_rows[window])
            both, differs = _match(have, want, dtype)
            count = int(np.count_nonzero(differs))
            if count and not mismatched:
                first = _flat(int(differs.argmax()), window, differs.shape[1], columns)
            mismatched += count
            finite = int(np.count_nonzero(both))
            if finite:
                have, want = np.where(both, have, 0), np.where(both, want, 0)
                error = np.abs(have - want)
                peak.update(np.where(both, error, -1.0), window, columns)
                tally.add(error, want, window[0], finite)
    return ErrorFigures(
        dtype=dtype.name,
        elements=got.size,
        finite=tally.finite,
        rms_ref=scales.total,
        scaled_max=tally.scaled_max,
        rms_ratio=tally.mean_root(tally.scaled_squares),
        worst_ulps=tally.worst_ulps,
        worst=peak.worst(got, ref),
        nonfinite=_nonfinite(got, ref, dtype, first, mismatched),
        use=tally.use(),
    )


def _scales(ref_rows: Array, dtype: dtypes.DataType, *, per_row: bool) -> _Scales:
    rows, columns = ref_rows.shape
    squares, fourths, counts = np.zeros(rows), np.zeros(rows), np.zeros(rows)
    for window in windows(rows, columns):
        want = float64(ref_rows[window])
        inside = _inside(want, dtype)
        square = np.square(np.where(inside, want, 0))
        squares[window[0]] += square.sum(axis=1)
        fourths[window[0]] += np.square(square).sum(axis=1)
        counts[window[0]] += np.count_nonzero(inside, axis=1)
    by_row = np.sqrt(squares / np.maximum(counts, 1))
    total = math.sqrt(float(squares.sum()) / max(float(counts.sum()), 1.0))
    if per_row:
        some = by_row > 0
        weight = float(np.sum(squares[some] / by_row[some] ** 2))
        weight_squares = float(np.sum(fourths[some] / by_row[some] ** 4))
    else:
        weight, weight_squares = float(squares.sum()), float(fourths.sum())
    effective = weight**2 / weight_squares if weight_squares > 0 else 1.0
    used = by_row if per_row else np.full(rows, total)
    return _Scales(by_row[:, None], total, used[:, None], max(effective, 1.0))


def _inside(want: Float64, dtype: dtypes.DataType) -> Mask:
    """Which reference values the output dtype stores as finite numbers."""
    magnitude = np.abs(want)
    if magnitude.max() <= dtype.max_finite:
        return np.ones(want.shape, dtype=np.bool_)
    return np.isfinite(float64(dtypes.cast(want, dtype)))


def _match(have: Float64, want: Float64, dtype: dtypes.DataType) -> tuple[Mask, Mask]:
    """Which elements are finite on both sides, and which differ in a NaN or infinity."""
    have_finite, want_finite = np.isfinite(have), _inside(want, dtype)
    both = have_finite & want_finite
    if both.all():
        return both, np.zeros_like(both)
    stored = float64(dtypes.cast(want, dtype))
    same = (have == stored) | (np.isnan(have) & np.isnan(stored))
    return both, (have_finite != want_finite) | ~(have_finite | same)


def _ratio(error: Float64, allowed: Float64) -> Float64:
    """``error / allowed``, with no error at all 0 and any error against nothing infinite."""
    start = np.where(error > 0, np.inf, 0.0)
    return np.divide(error, allowed, out=start, where=np.broadcast_to(allowed > 0, error.shape))


def _flat(place: int, window: Window, width: int, columns: int) -> int:
    """The place in a window of ``width`` columns as a place in the matrix of ``columns`` columns."""
    row, column = divmod(place, width)
    return int((window[0].start + row) * columns + window[1].start + column)


def _nonfinite(got: Array, ref: Array, dtype: dtypes.DataType, first: int, count: int) -> NonFinite | None:
    if count == 0:
        return None
    index = _index(got.shape, first)
    expected = dtypes.cast(float64(np.asarray(ref[index])), dtype)
    return NonFinite(count, index, float(got[index]), float(expected))


def _index(shape: tuple[int, ...], flat: int) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(flat, shape)) if shape else ()


def _require_numbers(**figures: float) -> None:
    for name, value in figures.items():
        if not value >= 0:
            raise ValueError(f"{name} is {value}: expected a number of at least 0")

"""Outputs that exceed their limits by nothing but the rounding of what the program stores on the way to them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from nkireview.isa import dtypes
from nkireview.numerics.arrays import Array, as_rows, float64, windows
from nkireview.numerics.limits import Limits, table
from nkireview.numerics.verdict import Verdict, judge


@dataclass(frozen=True)
class Roundings:
    """Roundings of intermediates on the way to an output, its own left out.

    ``count``: those of the longest path. ``dtype``: the one of fewest digits that they round to. ``terms``: those of
    the longest running sum among them. Raise ValueError for a dtype that is no float.
    """

    count: int
    dtype: str
    terms: int = 0

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"{self.count} roundings: expected at least 1")
        dtypes.unit_roundoff(dtypes.of(self.dtype))

    @property
    def roundoff(self) -> float:
        """The unit roundoff of ``dtype``."""
        return dtypes.unit_roundoff(dtypes.of(self.dtype))


def widened(limits: Limits, ref: Array, roundings: Roundings) -> Limits | None:
    """The limits with what these roundings may do; None where nothing is granted for them.

    Nothing is granted to outputs that must match exactly, to intermediates of fewer digits than the output's dtype,
    and to running sums that are rounded ``sum`` times or more (``limits.toml``).
    """
    allowed = table().stored
    if limits.exact or roundings.terms >= allowed.sum:
        return None
    if roundings.roundoff > dtypes.unit_roundoff(dtypes.of(limits.dtype)):
        return None
    size = math.sqrt(min(roundings.count, allowed.most)) * roundings.roundoff
    return replace(
        limits,
        atol=limits.atol + allowed.peak * size * min(_peak(ref, per_row=limits.per_row), allowed.reach),
        rms=math.hypot(limits.rms, allowed.rms * size),
    )


def explains(got: Array, ref: Array, limits: Limits) -> Verdict:
    """Judge an output that was computed without any rounding, by what its limits leave to the way of computing."""
    share = table().stored.unrounded
    return judge(
        got, ref, replace(limits, rtol=limits.rtol * share, atol=limits.atol * share, rms=limits.rms * share)
    )


def _peak(ref: Array, *, per_row: bool) -> float:
    """The largest element over the rms, of the whole reference or of the row where that is least; 0 for zeros."""
    rows = as_rows(ref)
    most, squares, counts = np.zeros(rows.shape[0]), np.zeros(rows.shape[0]), np.zeros(rows.shape[0])
    for window in windows(*rows.shape):
        block = float64(rows[window])
        finite = np.isfinite(block)
        size = np.where(finite, np.abs(block), 0.0)
        most[window[0]] = np.maximum(most[window[0]], size.max(axis=1))
        squares[window[0]] += np.square(size).sum(axis=1)
        counts[window[0]] += np.count_nonzero(finite, axis=1)
    if per_row:
        some = most > 0
        peaks = most[some] / np.sqrt(squares[some] / counts[some])
        return float(peaks.min(initial=math.inf)) if some.any() else 0.0
    total = math.sqrt(float(squares.sum()) / max(float(counts.sum()), 1.0))
    return float(most.max()) / total if total > 0 else 0.0

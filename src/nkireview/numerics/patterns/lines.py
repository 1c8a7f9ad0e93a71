"""One factor or one offset for each row, for each column, or for both."""

from __future__ import annotations

import numpy as np

from nkireview.numerics.arrays import Float64
from nkireview.numerics.patterns.mismatch import Mask, Matrix, Mismatch
from nkireview.numerics.patterns.names import Name, Pattern
from nkireview.numerics.patterns.trial import explained, slack
from nkireview.numerics.patterns.words import number, of_wrong

# Wrong elements that each fitted number must be backed by, on average.
BACKING = 3
ROUNDS = 10


def line_patterns(found: Mismatch) -> list[Pattern]:
    """Factors by row, by column or by both, and offsets by row or by column, where they explain the wrong ones."""
    if found.rows < 2 or found.columns < 2:
        return []
    part = found.matrix
    factors = [
        _by_line(found, part, Name.ROW_FACTORS, axis=1, factor=True),
        _by_line(found, part, Name.COLUMN_FACTORS, axis=0, factor=True),
    ]
    if not any(factors):
        factors.append(_rank_one(found, part))
    offsets = [
        _by_line(found, part, Name.ROW_OFFSETS, axis=1, factor=False),
        _by_line(found, part, Name.COLUMN_OFFSETS, axis=0, factor=False),
    ]
    return [pattern for pattern in (*factors, *offsets) if pattern]


def _by_line(found: Mismatch, part: Matrix, name: Name, *, axis: int, factor: bool) -> Pattern | None:
    lines = part.wrong.shape[1 - axis]
    if np.count_nonzero(part.wrong) < BACKING * lines or lines < 2:
        return None
    fitted = _factors(part, axis) if factor else _offsets(part, axis)
    predicted = part.elements.ref * fitted if factor else part.elements.ref + fitted
    share = _share(found, part, predicted, np.abs(fitted) if factor else None, parameters=lines)
    if share is None:
        return None
    word = "row" if axis == 1 else "column"
    low, high = float(np.nanmin(fitted)), float(np.nanmax(fitted))
    what = "factor" if factor else "offset"
    joined = "times" if factor else "plus"
    verb = "is" if found.count == 1 else "are"
    return Pattern(
        name,
        f"{of_wrong(found, share)} {verb} the reference {joined} one {what} for each {word}, "
        f"from {number(low)} to {number(high)}",
        share,
        {f"smallest_{what}": low, f"largest_{what}": high, "fitted": int(lines)},
    )


def _share(
    found: Mismatch, part: Matrix, predicted: Float64, size: Float64 | None, parameters: int
) -> float | None:
    """The share of the wrong elements explained; a factor of ``size`` also scales what rounding explains."""
    wrong = part.wrong
    room = slack(found, part.elements, predicted)
    if size is not None:
        room = np.maximum(room, part.elements.allowed * np.maximum(1.0, size))
    return explained(part.elements.where(wrong), predicted[wrong], room[wrong], parameters=parameters)


def _median(values: Float64, axis: int) -> Float64:
    """Medians along an axis without the NaN, kept as an axis of one; NaN where nothing else is left."""
    ordered = np.sort(values, axis=axis)
    counts = np.count_nonzero(~np.isnan(values), axis=axis, keepdims=True)
    low = np.take_along_axis(ordered, np.maximum(counts - 1, 0) // 2, axis=axis)
    high = np.take_along_axis(ordered, np.minimum(counts // 2, values.shape[axis] - 1), axis=axis)
    return 0.5 * low + 0.5 * high


def _factors(part: Matrix, axis: int) -> Float64:
    """The factor of each line: the median of its ratios, then the least squares fit to those near it."""
    usable = (
        part.wrong
        & np.isfinite(part.elements.got)
        & np.isfinite(part.elements.ref)
        & (part.elements.ref != 0)
    )
    size = np.abs(np.where(usable, part.elements.ref, np.nan))
    ratio = np.where(usable & (size >= _median(size, axis)), part.elements.got / part.elements.ref, np.nan)
    first = _median(ratio, axis)
    near = usable & (
        np.abs(part.elements.got - first * part.elements.ref)
        <= 2 * part.elements.allowed * np.maximum(1.0, np.abs(first))
    )
    top = np.sum(np.where(near, part.elements.got * part.elements.ref, 0.0), axis=axis, keepdims=True)
    power = np.sum(np.where(near, part.elements.ref * part.elements.ref, 0.0), axis=axis, keepdims=True)
    return np.where(power > 0, top / power, first)


def _offsets(part: Matrix, axis: int) -> Float64:
    away = part.elements.got - part.elements.ref
    return _median(np.where(part.wrong & np.isfinite(away), away, np.nan), axis)


def _rank_one(found: Mismatch, part: Matrix) -> Pattern | None:
    rows, columns = part.wrong.shape
    if np.count_nonzero(part.wrong) < BACKING * (rows + columns) or min(rows, columns) < 2:
        return None
    usable = part.wrong & np.isfinite(part.elements.got) & np.isfinite(part.elements.ref)
    by_row, by_column = _alternate(part, usable, np.ones((1, columns)))
    near = np.abs(part.elements.got - by_row * part.elements.ref * by_column) <= 4 * (
        part.elements.allowed * np.maximum(1.0, np.abs(by_row * by_column))
    )
    by_row, by_column = _alternate(part, usable & near, by_column)
    factor = by_row * by_column
    predicted = part.elements.ref * factor
    share = _share(found, part, predicted, np.abs(factor), parameters=rows + columns - 1)
    if share is None:
        return None
    low, high = float(np.nanmin(factor)), float(np.nanmax(factor))
    return Pattern(
        Name.RANK_ONE,
        f"{of_wrong(found, share)} are the reference times a factor of the row times a factor of the column, "
        f"together from {number(low)} to {number(high)}",
        share,
        {"smallest_factor": low, "largest_factor": high, "rows": int(rows), "columns": int(columns)},
    )


def _alternate(part: Matrix, used: Mask, by_column: Float64) -> tuple[Float64, Float64]:
    """Least squares for the rows and for the columns in turn."""
    top = np.where(used, part.elements.got * part.elements.ref, 0.0)
    power = np.where(used, part.elements.ref * part.elements.ref, 0.0)
    by_row = np.ones((part.wrong.shape[0], 1))
    for _ in range(ROUNDS):
        by_row = _divided(top @ by_column.T, power @ (by_column * by_column).T)
        by_column = _divided(by_row.T @ top, (by_row * by_row).T @ power)
    return by_row, by_column


def _divided(top: Float64, power: Float64) -> Float64:
    return np.divide(top, power, out=np.zeros_like(top), where=power > 0)

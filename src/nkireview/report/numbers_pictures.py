"""The geometry of the pictures of numbers: heat map by tile, histogram in ulps, growth of an error with the terms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from nkireview.numbers_record import Growth, HeatMap, Histogram

WIDTH = HEIGHT = 1000.0
"""The box of a picture, which stretches to the page."""
HALF = 0.5
"""Share of the allowed error from which a cell is drawn stronger."""
TENFOLD = 10.0
STEPS = ("none", "low", "high", "over", "far", "lost")
"""Classes of a cell: nothing, up to half, up to all, beyond, ten times beyond, not finite where the reference is."""
MEANING = {
    "low": "up to half of what rounding explains",
    "high": "up to all of it",
    "over": "beyond it",
    "far": "more than ten times it",
    "lost": "NaN or infinity that is not the reference's, or another integer",
}
TALLEST_REM, LEAST_REM, ROW_REM = 18.0, 1.6, 1.1
MOST_TICKS = 6


@dataclass(frozen=True)
class Cell:
    """A rectangle of the heat map with the class of its colour and what is said when it is pointed at."""

    x: str
    y: str
    width: str
    height: str
    kind: str
    title: str


@dataclass(frozen=True)
class Tick:
    """A label on an axis, in percent from its begin."""

    at: str
    label: str


@dataclass(frozen=True)
class Heat:
    """A heat map for a template; `height` in rem."""

    cells: tuple[Cell, ...]
    rows: tuple[Tick, ...]
    columns: tuple[Tick, ...]
    legend: tuple[tuple[str, str], ...]
    height: str


@dataclass(frozen=True)
class Bar:
    """A bar of the histogram: height of 0 to 1, its range, its count, the share of all."""

    height: str
    label: str
    count: int
    share: float


@dataclass(frozen=True)
class Plot:
    """A log-log plot: the measured and the expected line in the box, and labels of both axes."""

    measured: str
    expected: str
    points: tuple[tuple[str, str, str], ...]
    additions: tuple[Tick, ...]
    errors: tuple[Tick, ...]


def kind_of(use: float) -> str:
    """The class of a cell by its use of the allowed error; below 0: not finite where the reference is."""
    if use < 0 or math.isnan(use):
        return "lost"
    if use == 0:
        return "none"
    if use <= 1:
        return "low" if use <= HALF else "high"
    return "over" if use <= TENFOLD else "far"


def heat(found: HeatMap) -> Heat:
    """The picture of a heat map."""
    down, across = _cells_of(found)
    width, height = WIDTH / max(across, 1), HEIGHT / max(down, 1)
    cells = []
    for at, use in enumerate(found.use[: down * across]):
        row, column = divmod(at, across)
        where = (
            f"rows {_span(row, found.row_step, found.rows)}, columns "
            f"{_span(column, found.column_step, found.columns)}"
        )
        kind = kind_of(use)
        said = MEANING["lost"] if kind == "lost" else f"{use:.3g} times what rounding explains"
        cells.append(
            Cell(
                _number(column * width),
                _number(row * height),
                _number(width),
                _number(height),
                kind,
                f"{where}: {said}",
            )
        )
    shown = {cell.kind for cell in cells}
    return Heat(
        tuple(cells),
        _ticks(found.rows, found.row_step, down),
        _ticks(found.columns, found.column_step, across),
        tuple((kind, text) for kind, text in MEANING.items() if kind in shown),
        _number(min(TALLEST_REM, max(LEAST_REM, down * ROW_REM))),
    )


def bars(found: Histogram) -> tuple[Bar, ...]:
    """The bars of a histogram, as high as the logarithm of their counts, so that a single element can be seen."""
    most = math.log1p(max(found.counts, default=0))
    total = sum(found.counts)
    return tuple(
        Bar(
            _number(math.log1p(count) / most if most else 0.0),
            label,
            count,
            count / total if total else 0.0,
        )
        for label, count in zip(ranges(found), found.counts, strict=True)
    )


def ranges(found: Histogram) -> tuple[str, ...]:
    """What each count is of: ``to 0.5``, ``0.5 to 1``, ..., ``over 256``."""
    if not found.edges:
        return ("all",)
    inner = [f"{low:g} to {high:g}" for low, high in pairwise(found.edges)]
    return (f"to {found.edges[0]:g}", *inner, f"over {found.edges[-1]:g}")


def growth(found: Growth) -> Plot | None:
    """The plot of an error that grows; None where there are fewer than two points with an error above zero."""
    points = [
        (float(count), error)
        for count, error in zip(found.additions, found.error, strict=False)
        if count > 0 and error > 0 and math.isfinite(error)
    ]
    wanted = [
        (float(count), error)
        for count, error in zip(found.additions, found.expected, strict=False)
        if count > 0 and error > 0 and math.isfinite(error)
    ]
    if len(points) < 2:
        return None
    every = points + wanted
    low_x, high_x = min(x for x, _ in every), max(x for x, _ in every)
    first, last = (
        math.floor(math.log10(min(y for _, y in every))),
        math.ceil(math.log10(max(y for _, y in every))),
    )
    last = max(last, first + 1)

    def x(value: float) -> float:
        return WIDTH * math.log(value / low_x) / math.log(high_x / low_x) if high_x > low_x else 0.0

    def y(value: float) -> float:
        return HEIGHT * (last - math.log10(value)) / (last - first)

    def path(line: Sequence[tuple[float, float]]) -> str:
        return "M" + "L".join(f"{_number(x(one))} {_number(y(other))}" for one, other in line) if line else ""

    return Plot(
        path(points),
        path(wanted),
        tuple(
            (_number(x(one) / 10), _number(y(other) / 10), f"{one:,.0f} additions: {other:.2g}")
            for one, other in points
        ),
        tuple(Tick(_number(x(one) / 10), f"{one:,.0f}") for one, _ in _some(points)),
        tuple(Tick(_number(y(10.0**power) / 10), f"1e{power}") for power in _powers(first, last)),
    )


def _cells_of(found: HeatMap) -> tuple[int, int]:
    return -(-found.rows // found.row_step), -(-found.columns // found.column_step)


def _span(at: int, step: int, total: int) -> str:
    first, last = at * step, min((at + 1) * step, total) - 1
    return f"{first:,}" if first == last else f"{first:,} to {last:,}"


def _ticks(total: int, step: int, cells: int) -> tuple[Tick, ...]:
    """Labels at begins of cells, few enough to be read."""
    every = -(-cells // MOST_TICKS)
    return tuple(Tick(_number(100 * at / max(cells, 1)), f"{at * step:,}") for at in range(0, cells, every))


def _some(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    every = -(-len(points) // MOST_TICKS)
    return points[::every]


def _powers(first: int, last: int) -> range:
    return range(first, last + 1, -(-(last - first) // MOST_TICKS))


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") or "0"

"""The accuracy of the timing model: as Markdown between two marks of a page, as a picture, on a terminal, as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from nkireview.calibration.accuracy import BAND, CLOSE, Accuracy, Line, Statistics
from nkireview.report import text as words
from nkireview.report.html import environment

BEGIN, END = "<!-- nkireview calibrate: begin -->", "<!-- nkireview calibrate: end -->"
"""What stands between these marks of a page is replaced; all else stays as it was written."""
MOST_NAMED = 8
"""Outliers that the picture names."""
WIDTH, HEIGHT = 860.0, 640.0
LEFT, RIGHT, TOP, BOTTOM = 70.0, 610.0, 30.0, 570.0
LEADING, NUMBER = 22.0, 10.0
"""Between the lines of the lists beside the picture, and the height of a number in it."""
UNITS = (("s", 6), ("ms", 3), ("us", 0), ("ns", -3))
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999")


@dataclass(frozen=True)
class _Tick:
    at: str
    across: str
    name: str


@dataclass(frozen=True)
class _Mark:
    x: str
    y: str
    colour: str
    title: str


@dataclass(frozen=True)
class _Name:
    x: str
    y: str
    number: str
    listed: str
    text: str


@dataclass(frozen=True)
class _Key:
    y: str
    colour: str
    name: str


@dataclass(frozen=True)
class Plot:
    """Predicted over measured, both logarithmic, on the same scale; positions in the picture."""

    ticks: tuple[_Tick, ...]
    marks: tuple[_Mark, ...]
    names: tuple[_Name, ...]
    keys: tuple[_Key, ...]
    equal: str
    close: str
    share: str = words.percent(CLOSE)
    width: int = int(WIDTH)
    height: int = int(HEIGHT)
    left: int = int(LEFT)
    right: int = int(RIGHT)
    top: int = int(TOP)
    bottom: int = int(BOTTOM)


class _Scale:
    """Whole decades that hold all times."""

    def __init__(self, lines: Sequence[Line]) -> None:
        times = [time for line in lines for time in (line.predicted, line.measured)]
        self.low = math.floor(math.log10(min(times)))
        self.high = max(math.ceil(math.log10(max(times))), self.low + 1)

    def share(self, us: float) -> float:
        """Where a time lies between the ends, 0 to 1."""
        return (math.log10(us) - self.low) / (self.high - self.low)

    def x(self, us: float) -> float:
        return LEFT + self.share(us) * (RIGHT - LEFT)

    def y(self, us: float) -> float:
        return BOTTOM - self.share(us) * (BOTTOM - TOP)


def plot(lines: Sequence[Line]) -> Plot:
    """The geometry of the picture; at least one line."""
    scale = _Scale(lines)
    names = sorted({line.repository for line in lines})
    colours = {name: COLOURS[at % len(COLOURS)] for at, name in enumerate(names)}
    first, last = 10.0**scale.low, 10.0**scale.high
    wide = 1 + CLOSE
    return Plot(
        ticks=tuple(
            _Tick(_at(scale.x(10.0**power)), _at(scale.y(10.0**power)), _decade(power))
            for power in range(scale.low, scale.high + 1)
        ),
        marks=tuple(
            _Mark(
                _at(scale.x(line.measured)),
                _at(scale.y(line.predicted)),
                colours[line.repository],
                f"{line.case}, {line.clock}: predicted {words.duration(line.predicted * 1e3)}, "
                f"measured {words.duration(line.measured * 1e3)} ({_signed(line.error)})",
            )
            for line in lines
        ),
        names=tuple(_named(_worst_of_each(lines)[:MOST_NAMED], scale, TOP + 44 + LEADING * len(names))),
        keys=tuple(_Key(_at(TOP + 14 + LEADING * at), colours[name], name) for at, name in enumerate(names)),
        equal=_path(scale, first, first, last, last),
        close=_path(scale, first, first * wide, last / wide, last)
        + _path(scale, first / (1 - CLOSE), first, last, last * (1 - CLOSE)),
    )


def _path(scale: _Scale, x0: float, y0: float, x1: float, y1: float) -> str:
    return f"M{_at(scale.x(x0))} {_at(scale.y(y0))}L{_at(scale.x(x1))} {_at(scale.y(y1))}"


def _named(worst: Sequence[Line], scale: _Scale, below: float) -> Iterator[_Name]:
    """Numbers beside the points, moved up until each stands free, and what they stand for in a list."""
    taken: list[tuple[float, float]] = []
    for at, line in enumerate(worst):
        x, y = scale.x(line.measured) + 7, scale.y(line.predicted) + 4
        while any(abs(x - other) < 2 * NUMBER and abs(y - high) < NUMBER for other, high in taken):
            y -= NUMBER
        taken.append((x, y))
        text = f"{at + 1}  {line.case} {_signed(line.error)}"
        yield _Name(_at(x), _at(y), str(at + 1), _at(below + LEADING * at), text)


def _worst_of_each(lines: Sequence[Line]) -> list[Line]:
    """Of each case that is not close the clock that is furthest off, the worst case first."""
    worst: dict[str, Line] = {}
    for line in outliers(lines):
        worst.setdefault(line.case, line)
    return list(worst.values())


def outliers(lines: Sequence[Line]) -> list[Line]:
    """Lines that are not close, the worst first."""
    off = [line for line in lines if abs(line.error) > CLOSE]
    return sorted(off, key=lambda line: -abs(math.log(line.predicted / line.measured)))


def _at(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _decade(power: int) -> str:
    """10 to a power of us: ``100 ns``, ``1 us``, ``10 ms``."""
    unit, scaled = next((unit, power - zero) for unit, zero in UNITS if power >= zero or unit == UNITS[-1][0])
    return f"{10.0**scaled:g} {unit}"


def svg(accuracy: Accuracy) -> str:
    """The picture; at least one line."""
    return environment().get_template("accuracy.svg.j2").render(plot=plot(accuracy.lines))


def _signed(error: float) -> str:
    return f"{error:+.0%}"


def _share(share: float | None) -> str:
    return "-" if share is None else words.percent(share)


def _us(us: float) -> str:
    return f"{us:,.1f}" if us < 1e4 else f"{us:,.0f}"


def summed_up(what: str, found: Statistics) -> str:
    """The errors of some lines in one sentence."""
    return (
        f"{what}: {found.count} rows, median error {found.median_error:.1%}, {words.percent(found.close)} within "
        f"{CLOSE:.0%}, mean |ln(predicted/measured)| {found.mean_log:.3f}; {words.percent(found.inside)} in their "
        f"band, whose median high/low is {found.width:.2f}, {found.below} below it"
    )


def sentences(accuracy: Accuracy) -> Iterator[str]:
    """What the table comes to."""
    if accuracy.overall is not None:
        yield summed_up("All", accuracy.overall)
    for kind, found in accuracy.kinds.items():
        yield summed_up(kind[:1].upper() + kind[1:], found)
    steps = accuracy.ladders
    if steps.pairs:
        right = steps.pairs - len(steps.inversions)
        yield f"Ladders: {right} of {steps.pairs} pairs in order ({_share(steps.in_order)})"
    for metric in dict.fromkeys(count.metric for count in accuracy.counts):
        counts = [count for count in accuracy.counts if count.metric == metric]
        exact = sum(count.exact for count in counts)
        near = median(
            abs(count.predicted / count.measured - 1) if count.measured else 0.0 for count in counts
        )
        yield f"{metric}: {exact} of {len(counts)} exact, median error {near:.1%}"
    if accuracy.classes:
        right = sum(each.right for each in accuracy.classes)
        yield f"What the legacy compiler changes most of the traffic by: right for {right} of {len(accuracy.classes)}"
    if accuracy.shares:
        yield f"Active time of engines: median {median(s.points for s in accuracy.shares):.1f} points off"
    if accuracy.not_run:
        missing = sum(bool(item.missing_clone) for item in accuracy.not_run)
        clones = f", {missing} of them for want of a clone" if missing else ""
        yield f"Not run: {len(accuracy.not_run)} cases{clones}"


def markdown(accuracy: Accuracy, picture: str = "") -> str:
    """The generated part of the page; `picture`: the file of the picture beside it, none where empty."""
    parts = ["\n".join(f"- {sentence}." for sentence in sentences(accuracy))]
    if picture and accuracy.lines:
        parts.append(f"![Predicted against measured time]({picture})")
    parts += [part for part in _sections(accuracy) if part]
    return "\n\n".join(parts) + "\n"


def _sections(accuracy: Accuracy) -> Iterator[str]:
    yield _section(
        "Predicted against measured",
        ("case", "class", "clock", "predicted us", "band us", "measured us", "error"),
        [
            (
                line.case,
                line.kind,
                line.clock if line.launches == 1 else f"{line.clock}, {line.launches} launches",
                _us(line.predicted),
                f"{_us(line.low)} to {_us(line.high)}",
                _us(line.measured),
                _signed(line.error),
            )
            for line in accuracy.lines
        ],
    )
    yield _section(
        f"Outliers: more than {CLOSE:.0%} off",
        ("case", "clock", "predicted/measured"),
        [
            (line.case, line.clock, f"{line.predicted / line.measured:.2f}")
            for line in outliers(accuracy.lines)
        ],
    )
    yield _section(
        f"The {BAND:.0%} band, fitted without a repository, on its rows",
        ("repository", "rows", "factor of the band", "rows in it"),
        [
            (
                each.repository,
                str(each.rows),
                "-" if each.scale is None else f"{each.scale:.2f}",
                _share(each.covered),
            )
            for each in accuracy.coverage
        ],
    )
    yield _section(
        "Versions that come out in the wrong order",
        ("ladder", "clock", "measured faster", "measured slower", "measured us", "predicted us"),
        [
            (
                each.ladder,
                each.clock,
                each.faster,
                each.slower,
                " < ".join(map(_us, each.measured)),
                " >= ".join(map(_us, each.predicted)),
            )
            for each in accuracy.ladders.inversions
        ],
    )
    yield _section(
        "What the legacy compiler changes most of the traffic by",
        ("case", "predicted", "as the bytes from HBM say"),
        [(each.case, each.predicted.value, each.measured.value) for each in accuracy.classes],
    )
    yield _section(
        "Bytes and instructions that are not exact",
        ("case", "figure", "predicted", "measured"),
        [
            (each.case, each.metric, f"{each.predicted:,.0f}", f"{each.measured:,.0f}")
            for each in accuracy.counts
            if not each.exact
        ],
    )
    yield _section(
        "Active time of engines, of the total time",
        ("case", "engine", "predicted", "measured", "points"),
        [
            (each.case, each.lane, _share(each.predicted), _share(each.measured), f"{each.points:.0f}")
            for each in accuracy.shares
        ],
    )
    yield _section("Not run", ("case", "why"), [(each.case, each.reason) for each in accuracy.not_run])
    yield _section(
        "Rows that no case takes",
        ("rows", "why"),
        [(str(rows), why or "no recipe names their kernel") for why, rows in accuracy.left_out.items()],
    )
    if accuracy.assumed:
        yield "### Assumed\n\n" + "\n".join(f"- {text}" for text in accuracy.assumed)


def _section(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table below its title; empty without rows."""
    if not rows:
        return ""
    told = [
        head,
        ["---"] * len(head),
        *([words.one_line(cell).replace("|", "\\|") for cell in row] for row in rows),
    ]
    return f"### {title}\n\n" + "\n".join(f"| {' | '.join(row)} |" for row in told)


def page(old: str, generated: str) -> str:
    """A page with its generated part replaced, or added at its end where it has no marks.

    ValueError, one sentence, for a page with one mark or with marks in the wrong order.
    """
    part = f"{BEGIN}\n{generated}{END}\n"
    if BEGIN not in old and END not in old:
        return f"{old.rstrip()}\n\n{part}" if old.strip() else part
    if old.count(BEGIN) != 1 or old.count(END) != 1 or old.index(BEGIN) > old.index(END):
        raise ValueError(f"expected {BEGIN} once, and {END} once below it, or neither of them")
    before, rest = old.split(BEGIN)
    after = rest.split(END)[1]
    return f"{before}{part.rstrip()}{after}"


def to_json(accuracy: Accuracy) -> str:
    """The table as JSON, with what is derived from each line; figures that are not finite are null."""
    told = asdict(accuracy)
    for entry, line in zip(told["lines"], accuracy.lines, strict=True):
        entry["error"] = line.error
    for entry, count in zip(told["counts"], accuracy.counts, strict=True):
        entry["exact"] = count.exact
    for entry, share in zip(told["shares"], accuracy.shares, strict=True):
        entry["points"] = share.points
    told["ladders"]["in_order"] = accuracy.ladders.in_order
    return json.dumps(_finite(told), indent=2)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_accuracy(accuracy: Accuracy, console: Console) -> None:
    """The table on a terminal, what it comes to below it."""
    shown = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("case", "class", "clock"):
        shown.add_column(name, no_wrap=True)
    for name in ("predicted us", "measured us", "error"):
        shown.add_column(name, justify="right", no_wrap=True)
    for line in accuracy.lines:
        style = "red" if abs(line.error) > CLOSE else ""
        cells = (line.case, line.kind, line.clock, _us(line.predicted), _us(line.measured))
        shown.add_row(*map(Text, cells), Text(_signed(line.error), style=style))
    if accuracy.lines:
        console.print(shown)
        console.print()
    for item in accuracy.not_run:
        console.print(Text(words.one_line(f"{item.case}: not run: {item.reason}"), style="yellow"))
    for each in accuracy.ladders.inversions:
        text = f"wrong order: {each.faster} was measured faster than {each.slower}, by the clock {each.clock}"
        console.print(Text(words.one_line(text)))
    for sentence in sentences(accuracy):
        console.print(Text(words.one_line(sentence)))

"""The geometry of the pictures: strips of busy time, steps of memory in use, the range of a prediction.

Every picture is drawn in a box of `WIDTH` by `HEIGHT` that stretches to the page; its labels are text outside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nkireview.record import MemoryCurve, TimeRecord

WIDTH = 1000.0
HEIGHT = 100.0
TICKS = 4
MOST_POINTS = 2000
LEVELS = 20
"""Shades of a strip: neighbours of the same shade are one cell."""


@dataclass(frozen=True)
class Cell:
    """A stretch of a strip, and how busy it is (0 to 1)."""

    x: str
    width: str
    busy: str


@dataclass(frozen=True)
class Range:
    """A prediction on a scale that holds its whole range: positions of 0 to `WIDTH`."""

    low: str
    width: str
    total: str
    floor: str
    end_ns: float


@dataclass(frozen=True)
class Curve:
    """Memory in use: the outline and the area below it, the height of the usable bytes, its percentage from the top."""

    line: str
    area: str
    usable: str
    usable_top: str
    over: bool


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def cells(activity: Sequence[float]) -> tuple[Cell, ...]:
    """The busy stretches of a lane; idle ones are left out."""
    made: list[Cell] = []
    step = WIDTH / max(1, len(activity))
    shades = [round(min(1.0, max(0.0, busy)) * LEVELS) if busy == busy else 0 for busy in activity]
    at = 0
    while at < len(shades):
        end = at
        while end < len(shades) and shades[end] == shades[at]:
            end += 1
        if shades[at]:
            made.append(Cell(_number(at * step), _number((end - at) * step), _number(shades[at] / LEVELS)))
        at = end
    return tuple(made)


def prediction(time: TimeRecord) -> Range:
    """The range of a predicted time, its middle and its floor."""
    end = max(time.high_ns, time.total_ns, time.floor_ns, 1e-9) * 1.05
    scale = WIDTH / end
    return Range(
        _number(time.low_ns * scale),
        _number(max(0.0, time.high_ns - time.low_ns) * scale),
        _number(time.total_ns * scale),
        _number(time.floor_ns * scale),
        end,
    )


def ticks(end_ns: float) -> tuple[float, ...]:
    """Equal times from 0 to the end."""
    return tuple(end_ns * at / TICKS for at in range(TICKS + 1))


def curve(memory: MemoryCurve, total_ns: float) -> Curve:
    """The steps of a memory curve over the whole predicted time."""
    top = max(memory.usable, memory.peak, max(memory.used, default=0), 1) * 1.08
    end = max(total_ns, memory.at_ns[-1] if memory.at_ns else 0.0, 1e-9)
    points = [(0.0, 0), *_thinned(list(zip(memory.at_ns, memory.used, strict=False)))]
    steps = [f"M0 {_number(HEIGHT)}"]
    for at_ns, used in points:
        steps.append(f"H{_number(at_ns / end * WIDTH)}V{_number(HEIGHT - used / top * HEIGHT)}")
    line = "".join([*steps, f"H{_number(WIDTH)}"])
    usable = HEIGHT - memory.usable / top * HEIGHT
    return Curve(
        line, f"{line}V{_number(HEIGHT)}Z", _number(usable), _number(usable), memory.peak > memory.usable
    )


def _thinned(points: list[tuple[float, int]]) -> list[tuple[float, int]]:
    """At most about `MOST_POINTS` points, of equal stretches the highest one."""
    if len(points) <= MOST_POINTS:
        return points
    stretch = -(-len(points) // MOST_POINTS)
    parts = [points[at : at + stretch] for at in range(0, len(points), stretch)]
    return [(part[0][0], max(used for _, used in part)) for part in parts]

"""The memory map as a picture: rectangles of bytes by time for the page, letters in a grid for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rich.text import Text

from nkireview.record import MapBlock, MapLine, MemoryMap
from nkireview.report import text as words

WIDTH = HEIGHT = 1000.0
"""The box of a map, which stretches to the page."""
LEAST_WIDTH, LEAST_HEIGHT = 1.0, 3.0
"""What can still be seen and pointed at."""
OUTLINED = 8.0
"""Width and height from which on a rectangle has an outline."""
COLOURS = 8
"""Lines with a colour of their own; the others share a grey."""
REST = "r"
HOMELESS = "x"
PALEST = 0.35
"""Opacity of a buffer of one partition, and of a rectangle that is hardly in use."""
TALLEST = 2.5
"""Most of the usable bytes that a picture is high: what has no room beyond that is cut."""
SMALL = 4
"""Where less than one part in so many of SBUF is ever taken, only what is taken is drawn."""
STEPS = 5
"""Most steps of the scale of bytes."""
APART = 7.0
"""Percent of the height that the labels of two ticks need between them."""
LANES = 128
LETTERS = "ABCDEFGH"
OTHER = "O"
STYLES = ("cyan", "yellow", "green", "magenta", "blue", "bright_cyan", "bright_yellow", "bright_green")
BANDS = 8
LABEL = 8
NARROW, WIDE = 24, 96
"""Cells of a line in a terminal, at least and at most."""
FAINT = 1e-4


@dataclass(frozen=True)
class Rectangle:
    """A rectangle in the box, with the class of its colour and what is said when it is pointed at; `bare`: without an
    outline, as it is no buffer of its own or as small as that."""

    x: str
    y: str
    width: str
    height: str
    kind: str
    opacity: str
    title: str
    bare: bool


@dataclass(frozen=True)
class Tick:
    """A label beside the picture, in percent from the top, and a word before it that a narrow page leaves out."""

    top: str
    label: str
    word: str = ""


@dataclass(frozen=True)
class Key:
    """An entry of the legend: class of the colour, the line's place (empty: several lines), what it holds."""

    kind: str
    place: str
    text: str


@dataclass(frozen=True)
class Drawn:
    """A map ready for a template: what lies in the box, borders of banks, the usable line, labels, legend.

    `usable` is where the line stands in the box, None where nothing lies above it; `reserved` is the height of what is
    reserved in percent and `reserved_top` where it begins. `cut`: bytes of a partition that lie above the picture.
    """

    rectangles: tuple[Rectangle, ...]
    banks: tuple[str, ...]
    usable: str | None
    reserved_top: str
    reserved: str
    ticks: tuple[Tick, ...]
    legend: tuple[Key, ...]
    cut: int


def drawn(found: MemoryMap) -> Drawn:
    """The picture of a map."""
    highest = _highest(found)
    top = _ceiling(found)
    if top is None:
        top = min(max(found.physical, highest), int(max(found.physical, found.usable * TALLEST)))
    end = max(found.end, 1e-9)

    def y(size: float) -> float:
        return HEIGHT - min(size, top) / top * HEIGHT

    rectangles = []
    for block in found.blocks:
        if block.start >= top:
            continue
        x, width = block.first / end * WIDTH, (block.last - block.first) / end * WIDTH
        bottom = y(block.start)
        height = max(bottom - y(block.stop), LEAST_HEIGHT)
        rectangles.append(
            Rectangle(
                x=_number(x),
                y=_number(bottom - height),
                width=_number(max(width, LEAST_WIDTH)),
                height=_number(height),
                kind=HOMELESS if block.start >= found.usable else _kind(block.line),
                opacity=_number(_opacity(block), 2),
                title=title(found, block),
                bare=block.buffers == 0 or min(width, height) < OUTLINED,
            )
        )
    line, full = y(found.usable), y(found.physical)
    return Drawn(
        rectangles=tuple(rectangles),
        banks=()
        if found.bank is None
        else tuple(_number(y(size)) for size in range(found.bank, found.usable, found.bank)),
        usable=_number(line) if top > found.usable else None,
        reserved_top=_number(full / HEIGHT * 100, 2),
        reserved=_number((line - full) / HEIGHT * 100, 2),
        ticks=tuple(_ticks(found, top)),
        legend=tuple(_legend(found)),
        cut=max(0, highest - top),
    )


def _highest(found: MemoryMap) -> int:
    return max((block.stop for block in found.blocks), default=0)


def _ceiling(found: MemoryMap) -> int | None:
    """Up to where SBUF is drawn if little of it is ever taken, a power of two or one and a half; else None."""
    highest = _highest(found)
    if found.bank is not None or highest * SMALL >= found.usable:
        return None
    power = 1 << max(highest - 1, 63).bit_length()
    return power * 3 // 4 if highest <= power * 3 // 4 else power


def _number(value: float, digits: int = 1) -> str:
    return f"{value:.{digits}f}".rstrip("0").rstrip(".") if digits else f"{value:.0f}"


def _kind(line: int) -> str:
    return str(line) if line < COLOURS else REST


def _opacity(block: MapBlock) -> float:
    filled = PALEST + (1 - PALEST) * min(block.partitions / LANES, 1.0)
    return filled * max(block.share, PALEST)


def moment(found: MemoryMap, at: float) -> str:
    """A time of the map with its unit."""
    if found.unit == "ns":
        return words.duration(at) if at else "0"
    return f"{at:,.0f}"


def title(found: MemoryMap, block: MapBlock) -> str:
    """What a rectangle is: name, line, bytes x partitions, from when to when."""
    line = found.lines[block.line]
    place = line.place or "other lines"
    size = f"{block.stop - block.start:,} B x {block.partitions} partitions"
    if block.buffers == 0:
        what = f"mostly {place}: {block.share:.0%} of the place in use"
    elif block.buffers == 1:
        what = f"{block.name} ({place}): {size}" if block.name else f"{place}: {size}"
        what += f" at byte {block.start:,}" if block.start < found.usable else ""
    else:
        what = f"{block.buffers:,} buffers of {place}: together {size}"
    homeless = "no room: " if block.start >= found.usable else ""
    unit = "instructions " if found.unit == "instructions" else ""
    text = f"{homeless}{what}; {unit}{moment(found, block.first)} to {moment(found, block.last)}"
    return words.one_line(text, 300)


def _ticks(found: MemoryMap, top: float) -> Iterator[Tick]:
    """The usable and the physical bytes, then equal steps where there is room for them; banks by number."""
    if found.bank is not None:
        for bank in range(found.usable // found.bank):
            middle = 100 - (bank + 0.5) * found.bank / top * 100
            yield Tick(_number(middle, 2), f"bank {bank}")
        if top > found.usable:
            yield Tick(_number(max(100 - (found.usable + top) / 2 / top * 100, 0.0), 2), "no room")
        return
    step = 64
    while top / step > STEPS:
        step *= 2
    wanted = [
        (found.usable, _kib(found.usable)),
        (0, "0"),
        (found.physical, _kib(found.physical)),
    ]
    wanted += [(size, _kib(size)) for size in range(step, int(top) + 1, step)]
    wanted = [(size, label) for size, label in wanted if size <= top]
    taken: list[float] = []
    for size, label in wanted:
        at = 100 - size / top * 100
        if all(abs(at - other) >= APART for other in taken):
            taken.append(at)
            yield Tick(_number(at, 2), label, "usable " if size == found.usable else "")


def _kib(size: int) -> str:
    return f"{size / 1024:.4g} KiB" if size >= 1024 else f"{size} B"


def _legend(found: MemoryMap) -> Iterator[Key]:
    for at, line in enumerate(found.lines[:COLOURS]):
        yield Key(str(at), line.place, holding(line))
    rest = found.lines[COLOURS:]
    if rest:
        several = len(rest) > 1 or not rest[0].place
        text = f"{'other lines' if several else ''}: {sum(line.buffers for line in rest):,} buffers"
        yield Key(REST, "" if several else rest[0].place, text.removeprefix(": "))
    if found.homeless:
        yield Key(HOMELESS, "", f"no room for {found.homeless:,} of {found.buffers:,} buffers")


def holding(line: MapLine) -> str:
    """What the buffers of a line hold: ``q, 16 buffers, 4.0 KiB each, 64.0 KiB at once``."""
    parts = [line.name] if line.name else []
    parts.append(f"{line.buffers:,} buffer{'s' if line.buffers > 1 else ''}")
    parts.append(f"{words.size(line.bytes)}{' at most' if line.buffers > 1 else ''}")
    if line.most > line.bytes:
        parts.append(f"{words.size(line.most)} at once")
    return words.one_line(", ".join(parts), 200)


def moments(found: MemoryMap) -> tuple[str, ...]:
    """The labels of the time axis, of equal steps from 0 to the end."""
    return tuple(moment(found, found.end * at / 4) for at in range(5))


def reading(found: MemoryMap) -> str:
    """How to read a picture."""
    text = "Each rectangle is a buffer from its first use to its last"
    if not found.whole:
        text = (
            "There are more buffers than can be drawn: those that follow each other at one place are one rectangle, "
            "small ones cells in the colour of the line that takes most"
        )
    text += "; the paler, the fewer partitions or the less time it is in use. Point at one for its name, size and time."
    top = _ceiling(found)
    if top is not None:
        text += f" Of {_kib(found.usable)} usable, the lowest {_kib(top)} are drawn; nothing lies above them."
    return text


def chart(found: MemoryMap, width: int, *, ascii_only: bool = False) -> list[Text]:
    """The map as lines of a terminal: a letter for the line that takes most of a cell, small where it is in use to less
    than half; what found no room stands above the usable bytes in red."""
    columns = max(NARROW, min(WIDE, width - LABEL - 3))
    edges = _bands(found)
    area, used = _cells(found, edges, columns)
    bar, corner, dash = ("|", "+", "-") if ascii_only else ("│", "└", "─")
    lines = []
    for band in reversed(range(len(edges) - 1)):
        over = edges[band] >= found.usable
        label = _label(found, edges, band)
        row = Text(f"{label:>{LABEL}} {bar}", style="dim")
        for column in range(columns):
            row.append_text(_cell(area[:, band, column], float(used[band, column]), over))
        lines.append(row)
    lines.append(Text(f"{'':{LABEL}} {corner}{dash * columns}", style="dim"))
    end = moment(found, found.end) + (" instructions" if found.unit == "instructions" else "")
    lines.append(Text(f"{'':{LABEL}}  0{end:>{columns - 1}}", style="dim"))
    for at, line in enumerate(found.lines[:COLOURS]):
        key = Text("  ")
        key.append(LETTERS[at], style=f"black on {STYLES[at]}")
        key.append(f" {words.one_line(line.place or '?', 80)}", style="bold")
        key.append(f"  {holding(line)}")
        lines.append(key)
    if len(found.lines) > COLOURS:
        rest = found.lines[COLOURS:]
        lines.append(
            Text(f"  {OTHER} other lines: {sum(line.buffers for line in rest):,} buffers", style="dim")
        )
    if found.homeless:
        lines.append(
            Text(f"  no room for {found.homeless:,} of {found.buffers:,} buffers, in red", style="red")
        )
    return lines


def _bands(found: MemoryMap) -> list[int]:
    """Borders in bytes of the rows of the chart, banks in PSUM; more above for what found no room."""
    count = BANDS if found.bank is None else found.usable // found.bank
    top = _ceiling(found) or found.usable
    edges = [top * at // count for at in range(count + 1)]
    highest = _highest(found)
    step = top // count
    while edges[-1] < highest and len(edges) <= count + BANDS:
        edges.append(edges[-1] + step)
    return edges


def _label(found: MemoryMap, edges: Sequence[int], band: int) -> str:
    if edges[band] >= found.usable:
        return "no room" if edges[band] == found.usable else ""
    if found.bank is not None:
        return f"bank {band}"
    return _kib(edges[band + 1]) if band % 2 else ""


def _cells(
    found: MemoryMap, edges: Sequence[int], columns: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """For each colour, row and column the share that is in use by it, and by all of them."""
    high = np.array(edges, np.float64)
    times = np.linspace(0.0, max(found.end, 1e-9), columns + 1)
    area = np.zeros((COLOURS + 1, len(edges) - 1, columns))
    for block in found.blocks:
        rows = np.clip(np.minimum(high[1:], block.stop) - np.maximum(high[:-1], block.start), 0, None)
        spent = np.clip(np.minimum(times[1:], block.last) - np.maximum(times[:-1], block.first), 0, None)
        area[min(block.line, COLOURS)] += rows[:, None] * spent[None, :] * block.share
    area /= np.diff(high)[None, :, None] * np.diff(times)[None, None, :]
    return area, area.sum(axis=0)


def _cell(shares: NDArray[np.float64], used: float, over: bool) -> Text:
    if used < FAINT:
        return Text(" " if over else ".", style="dim")
    at = int(shares.argmax())
    letter = LETTERS[at] if at < COLOURS else OTHER
    colour = "red" if over else STYLES[at] if at < COLOURS else "white"
    if used < 0.5:
        return Text(letter.lower(), style=colour)
    return Text(letter, style=f"black on {colour}")

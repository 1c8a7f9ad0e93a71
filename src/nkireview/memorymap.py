"""From where buffers lie to the memory map that a record holds: at most so many rectangles, whatever the trace."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from nkireview.checks.allocation import Placed
from nkireview.hardware import Hardware
from nkireview.isa.enums import Memory
from nkireview.program.interning import Ints
from nkireview.program.placement import row_bytes
from nkireview.program.program import Program
from nkireview.record import MapBlock, MapLine, MemoryMap
from nkireview.schedule.uses import Uses
from nkireview.timeline.timeline import Timeline, Times

BLOCKS = 1500
"""Rectangles of all maps of a review."""
LEAST = 60
"""Rectangles that every map may have."""
LINES = 40
"""Lines that a map tells apart."""
HAIR = 1 / 1000
"""Share of the time that nobody sees in a picture: buffers of a line that far apart at one place are one rectangle."""
SPECK = 1 / 4000
"""Share of a picture's area below which a buffer is not drawn on its own where there are too many."""
STEPS = 240
ROWS = 48
SHADES = 4
TRACE = 1e-4
"""Share of a cell in use from which on it is drawn."""
SEARCHED = 256
"""Neighbours that are looked at for room above the usable bytes."""
NAME = 60


def memory_maps(
    program: Program,
    placed: Sequence[Placed],
    used: Uses,
    hardware: Hardware,
    timeline: Timeline | None = None,
    most: int = BLOCKS,
) -> tuple[MemoryMap, ...]:
    """The maps of SBUF and PSUM of each core that uses them, in at most about `most` rectangles together.

    Times are those of the schedule, else positions of instructions. A buffer is drawn from the start of its first use
    to the end of its last. What found no room is stacked above the usable bytes.
    """
    if not placed:
        return ()
    clock = _Clock.of(program, used, timeline)
    groups: dict[tuple[int, Memory], list[Placed]] = {}
    for item in placed:
        groups.setdefault((item.core, item.memory), []).append(item)
    found = {}
    left = most
    order = sorted(groups, key=lambda key: len(groups[key]))
    for at, key in enumerate(order):
        room = max(LEAST, left // (len(order) - at))
        found[key] = _map(program, groups[key], clock, hardware, room)
        left -= len(found[key].blocks)
    return tuple(found[key] for key in sorted(groups, key=lambda key: (key[0], key[1] is not Memory.sbuf)))


@dataclass(frozen=True, eq=False)
class _Clock:
    """When instructions begin and end, and the span in which each buffer is really used."""

    unit: str
    end: float
    begin: Times
    stop: Times
    opened: Times
    closed: Times

    @classmethod
    def of(cls, program: Program, used: Uses, timeline: Timeline | None) -> _Clock:
        count = len(program)
        if timeline is None or not len(timeline):
            begin = np.arange(count, dtype=np.float64)
            stop, end, unit = begin + 1, float(count), "instructions"
        else:
            begin, stop = np.full(count, np.inf), np.full(count, -np.inf)
            held = timeline.instruction >= 0
            np.minimum.at(begin, timeline.instruction[held], timeline.start[held])
            np.maximum.at(stop, timeline.instruction[held], timeline.ready[held])
            # what takes no time happens when its neighbour in the program does
            known = np.flatnonzero(np.isfinite(begin))
            nearest = known[np.clip(np.searchsorted(known, np.arange(count)), 0, len(known) - 1)]
            begin, stop = begin[nearest], stop[nearest]
            end, unit = timeline.total_ns, "ns"
        buffers = program.columns.buffers
        opened, closed = np.full(buffers, np.inf), np.full(buffers, -np.inf)
        np.minimum.at(opened, used.buffer, begin[used.instruction])
        np.maximum.at(closed, used.buffer, stop[used.instruction])
        return cls(unit, max(end, float(stop.max(initial=0.0))), begin, stop, opened, closed)

    def spans(self, buffer: Ints, first: Ints, last: Ints) -> tuple[Times, Times]:
        """From when to when buffers live that live from one instruction to another."""
        return np.minimum(self.opened[buffer], self.begin[first]), np.maximum(
            self.closed[buffer], self.stop[last]
        )


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rectangles as columns; `buffers` in each, `share` of it in use."""

    line: Ints
    name: Ints
    buffers: Ints
    partitions: Ints
    first: Times
    last: Times
    start: Ints
    stop: Ints
    share: Times

    def __len__(self) -> int:
        return len(self.line)

    def where(self, rows: NDArray[np.bool_] | Ints) -> _Rows:
        """Some of the rows."""
        return _Rows(*(column[rows] for column in vars(self).values()))

    @property
    def area(self) -> Times:
        """Bytes over time."""
        return (self.last - self.first) * (self.stop - self.start)


def _map(program: Program, placed: list[Placed], clock: _Clock, hardware: Hardware, most: int) -> MemoryMap:
    psum = placed[0].memory is Memory.psum
    usable = hardware.psum_bytes if psum else hardware.sbuf_usable_bytes
    places, rows = _rows(program, placed, clock, usable)
    lines, rows = _ranked(program, places, rows)
    bank = hardware.psum_bank_bytes if psum else None
    drawn, whole = _fewer(rows, clock.end, usable, bank, most)
    return MemoryMap(
        memory="PSUM" if psum else "SBUF",
        core=placed[0].core,
        usable=usable,
        physical=hardware.psum_bytes if psum else hardware.sbuf_bytes,
        bank=bank,
        unit="ns" if clock.unit == "ns" else "instructions",
        end=round(clock.end, 1),
        buffers=len(placed),
        homeless=sum(item.start is None for item in placed),
        whole=whole,
        lines=lines,
        blocks=tuple(
            MapBlock(
                line=line,
                name=_name(program, name),
                buffers=buffers,
                partitions=partitions,
                first=round(first, 1),
                last=round(last, 1),
                start=start,
                stop=stop,
                share=round(share, 4),
            )
            for line, name, buffers, partitions, first, last, start, stop, share in zip(
                *(column.tolist() for column in vars(drawn).values()), strict=True
            )
        ),
    )


def _name(program: Program, name: int) -> str:
    return program.strings[name][:NAME] if name >= 0 else ""


def _rows(program: Program, placed: list[Placed], clock: _Clock, usable: int) -> tuple[Ints, _Rows]:
    """A place of each line, and one row for each buffer, whose line is a position in these."""
    count = len(placed)
    buffer = np.fromiter((item.buffer for item in placed), np.int64, count)
    first = np.fromiter((item.first for item in placed), np.int64, count)
    last = np.fromiter((item.last for item in placed), np.int64, count)
    begin, end = clock.spans(buffer, first, last)
    start = np.fromiter((-1 if item.start is None else item.start for item in placed), np.int64, count)
    stop = np.fromiter((-1 if item.stop is None else item.stop for item in placed), np.int64, count)
    homeless = np.flatnonzero(start < 0)
    if len(homeless):
        size = np.array([row_bytes(program.buffer(int(buffer[at]))) for at in homeless], np.int64)
        start[homeless] = usable + _stacked(begin[homeless], end[homeless], size)
        stop[homeless] = start[homeless] + size
    made = program.columns.buffer_place[buffer].astype(np.int64)
    known: dict[tuple[int, int], int] = {}
    of_place = [
        known.setdefault((frames[0].file, frames[0].line) if frames else (-1, -1), len(known))
        for frames in (*program.places, ())
    ]
    _, opened, line = np.unique(np.array(of_place)[made], return_index=True, return_inverse=True)
    name = program.columns.buffer_name[buffer].astype(np.int64)
    partitions = np.fromiter((item.partitions for item in placed), np.int64, count)
    ones = np.ones(count, np.int64)
    rows = _Rows(line.reshape(-1), name, ones, partitions, begin, end, start, stop, np.ones(count))
    return made[opened], rows


def _stacked(begin: Times, end: Times, size: Ints) -> Ints:
    """Where to draw what has no room, above the line: the lowest place that is free, among the nearest."""
    live: list[tuple[int, int]] = []
    ends: list[tuple[float, tuple[int, int]]] = []
    found = np.zeros(len(begin), np.int64)
    for at in np.lexsort((-size, begin)).tolist():
        while ends and ends[0][0] <= begin[at]:
            live.remove(heapq.heappop(ends)[1])
        low, needs = 0, int(size[at])
        for place, (start, stop) in enumerate(live):
            if place == SEARCHED:
                low = max(held for _, held in live)
                break
            if start >= low + needs:
                break
            low = max(low, stop)
        held = low, low + needs
        live.append(held)
        live.sort()
        heapq.heappush(ends, (float(end[at]), held))
        found[at] = low
    return found


def _ranked(program: Program, places: Ints, rows: _Rows) -> tuple[tuple[MapLine, ...], _Rows]:
    """The lines that take most first, all beyond `LINES` as one, and the rows with these lines."""
    weight = np.bincount(rows.line, weights=rows.area, minlength=len(places))
    order = np.argsort(-weight, kind="stable")
    rank = np.empty(len(places), np.int64)
    rank[order] = np.minimum(np.arange(len(places)), LINES)
    ranked = replace(rows, line=rank[rows.line])
    kinds = int(rank.max(initial=0)) + 1
    most = _most(ranked, kinds)
    lines = []
    for at in range(kinds):
        mine = ranked.line == at
        own = np.unique(ranked.name[mine])
        lines.append(
            MapLine(
                place=program.place_text(places[int(order[at])]) if at < LINES else "",
                name=_name(program, int(own[0])) if len(own) == 1 and at < LINES else "",
                buffers=int(mine.sum()),
                bytes=int((ranked.stop - ranked.start)[mine].max()),
                most=most[at],
            )
        )
    return tuple(lines), ranked


def _most(rows: _Rows, kinds: int) -> list[int]:
    """The most bytes of a partition that each line's buffers take at once."""
    found = []
    for at in range(kinds):
        mine = rows.where(rows.line == at)
        when = np.concatenate([mine.first, mine.last])
        size = mine.stop - mine.start
        change = np.concatenate([size, -size])
        level = np.cumsum(change[np.lexsort((change, when))])
        found.append(int(level.max(initial=0)))
    return found


def _fewer(rows: _Rows, end: float, usable: int, bank: int | None, most: int) -> tuple[_Rows, bool]:
    """At most about `most` rectangles, and whether each is still one buffer."""
    if len(rows) <= most:
        return rows.where(np.lexsort((rows.start, rows.first))), True
    joined = _beside(_after(rows, end * HAIR), end * HAIR)
    if len(joined) <= most:
        return joined, False
    large = np.argsort(-joined.area, kind="stable")[: most // 2]
    large = large[joined.area[large] >= end * usable * SPECK]
    small = np.setdiff1d(np.arange(len(joined)), large)
    cells = _cells(joined.where(small), end, usable, bank, most - len(large))
    columns = zip(vars(cells).values(), vars(joined.where(large)).values(), strict=True)
    # what is drawn last lies on top
    return _Rows(*(np.concatenate(pair) for pair in columns)), False


def _after(rows: _Rows, gap: float) -> _Rows:
    """Buffers of one line that follow each other at the same bytes, at most `gap` apart, as one."""
    order = np.lexsort((rows.first, rows.stop, rows.start, rows.line))
    rows = rows.where(order)
    same = np.zeros(len(rows), bool)
    same[1:] = (
        (rows.line[1:] == rows.line[:-1])
        & (rows.start[1:] == rows.start[:-1])
        & (rows.stop[1:] == rows.stop[:-1])
    )
    track = np.cumsum(~same)
    span = float(rows.last.max(initial=0.0)) + 2 * gap + 1
    reach = np.maximum.accumulate(rows.last + track * span)
    apart = np.append(True, rows.first[1:] + track[1:] * span > reach[:-1] + gap)
    return _joined(rows, apart)


def _beside(rows: _Rows, gap: float) -> _Rows:
    """Buffers of one line that lie one after the other in bytes and live as long, but for `gap`, as one."""
    step = max(gap, 1e-9)
    first, last = np.floor(rows.first / step), np.floor(rows.last / step)
    order = np.lexsort((rows.start, last, first, rows.line))
    rows, first, last = rows.where(order), first[order], last[order]
    joins = np.zeros(len(rows), bool)
    joins[1:] = (
        (rows.line[1:] == rows.line[:-1])
        & (first[1:] == first[:-1])
        & (last[1:] == last[:-1])
        & (rows.start[1:] == rows.stop[:-1])
    )
    return _joined(rows, ~joins)


def _joined(rows: _Rows, apart: NDArray[np.bool_]) -> _Rows:
    """Rows in order, each run of them that begins where `apart` as one."""
    at = np.flatnonzero(apart)
    held = np.add.reduceat(rows.area * rows.share, at)
    name = np.where(
        np.minimum.reduceat(rows.name, at) == np.maximum.reduceat(rows.name, at), rows.name[at], -1
    )
    made = _Rows(
        rows.line[at],
        name,
        np.add.reduceat(rows.buffers, at),
        np.maximum.reduceat(rows.partitions, at),
        np.minimum.reduceat(rows.first, at),
        np.maximum.reduceat(rows.last, at),
        np.minimum.reduceat(rows.start, at),
        np.maximum.reduceat(rows.stop, at),
        np.ones(len(at)),
    )
    share = np.minimum(held / np.maximum(made.area, 1e-9), 1.0)
    return replace(made, share=np.where(made.buffers == 1, 1.0, share))


def _cells(rows: _Rows, end: float, usable: int, bank: int | None, most: int) -> _Rows:
    """A grid of bytes and time, each cell of the line that takes most of it; runs that look alike are one rectangle.

    The grid is made coarser until there are at most `most`.
    """
    steps, bands = STEPS, ROWS if bank is None else usable // bank
    while True:
        found = _grid(rows, np.linspace(0.0, end, steps + 1), _edges(rows, usable, bands))
        if len(found) <= most or (steps == 1 and bands == 1):
            return found
        if steps > 2 * bands or bands == 1:
            steps = max(steps // 2, 1)
        else:
            bands = max(bands // 2, 1)


def _edges(rows: _Rows, usable: int, bands: int) -> Times:
    """The borders of `bands` equal bands of the usable bytes, and of half as many of what has no room."""
    edges = np.linspace(0.0, usable, bands + 1)
    top = float(rows.stop.max(initial=0))
    if top <= usable:
        return edges
    return np.concatenate([edges, np.linspace(usable, top, bands // 2 + 2)[1:]])


def _grid(rows: _Rows, times: Times, edges: Times) -> _Rows:
    lines, steps, bands = int(rows.line.max(initial=0)) + 1, len(times) - 1, len(edges) - 1
    low = np.clip(np.searchsorted(edges, rows.start, side="right") - 1, 0, bands - 1)
    high = np.clip(np.searchsorted(edges, rows.stop, side="left"), low + 1, bands)
    reps = high - low
    who = np.repeat(np.arange(len(rows)), reps)
    band = low[who] + np.arange(len(who)) - np.repeat(np.cumsum(reps) - reps, reps)
    height = np.minimum(edges[band + 1], rows.stop[who]) - np.maximum(edges[band], rows.start[who])
    height = np.maximum(height, 0.0) * rows.share[who]
    group = rows.line[who] * bands + band
    held = _held(group, lines * bands, height, rows.first[who], times)
    held -= _held(group, lines * bands, height, rows.last[who], times)
    area = np.diff(held, axis=1).reshape(lines, bands, steps)
    size = np.diff(edges)[:, None] * np.diff(times)[None, :]
    winner = area.argmax(axis=0)
    filled = np.minimum(area.sum(axis=0) / size, 1.0)
    shade = np.ceil(np.where(filled < TRACE, 0.0, filled) * SHADES).astype(np.int64)
    kind = np.where(shade > 0, winner * (SHADES + 1) + shade, -1)
    flat = kind.reshape(-1)
    begins = np.append(True, flat[1:] != flat[:-1])
    begins[::steps] = True
    at = np.flatnonzero(begins)
    until = np.append(at[1:], len(flat))
    shown = flat[at] >= 0
    at, until = at[shown], until[shown]
    band, step = np.divmod(at, steps)
    zeros = np.zeros(len(at), np.int64)
    passed = np.append(0.0, np.cumsum(filled))
    return _Rows(
        flat[at] // (SHADES + 1),
        zeros - 1,
        zeros,
        np.full(len(at), int(rows.partitions.max(initial=0))),
        times[step],
        times[step + until - at],
        np.rint(edges[band]).astype(np.int64),
        np.rint(edges[band + 1]).astype(np.int64),
        (passed[until] - passed[at]) / (until - at),
    )


def _held(group: Ints, groups: int, weight: Times, since: Times, times: Times) -> Times:
    """For each group and border of `times`, the sum of weight x time that has passed since."""
    step = np.searchsorted(times, since, side="left")
    kept = step < len(times)
    at = group[kept] * len(times) + step[kept]
    shape = (groups, len(times))
    size = groups * len(times)
    rate = np.bincount(at, weights=weight[kept], minlength=size).reshape(shape).cumsum(axis=1)
    base = np.bincount(at, weights=(weight * since)[kept], minlength=size).reshape(shape).cumsum(axis=1)
    passed: Times = rate * times[None, :] - base
    return passed

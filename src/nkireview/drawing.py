"""From slices to what a page draws of a timeline: merged where there are too many, stacked where they overlap."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.record import DrawnLane, DrawnTimeline
from nkireview.slices import SliceTable

STEPS = 1 << 14
"""The finest steps of the whole within which slices are merged."""
TENTH = 10.0
"""Times are written in tenths of ns."""
LONGEST = 400
"""Characters of operands."""

Rows = NDArray[np.int32]


def stacked(start: NDArray[np.float64], stop: NDArray[np.float64]) -> Rows:
    """The row of each slice, from 0, so that no two of one row overlap: the lowest that is free when it starts."""
    rows = np.zeros(len(start), np.int32)
    order = np.lexsort((stop, start))
    begins, ends = start[order], stop[order]
    if len(order) < 2 or np.all(begins[1:] >= np.maximum.accumulate(ends)[:-1]):
        return rows
    busy: list[tuple[float, int]] = []
    free: list[int] = []
    made: list[int] = []
    count = 0
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        while busy and busy[0][0] <= begin:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            row = heapq.heappop(free)
        else:
            row, count = count, count + 1
        heapq.heappush(busy, (end, row))
        made.append(row)
    rows[order] = made
    return rows


def stacked_by(keys: NDArray[np.int64], start: NDArray[np.float64], stop: NDArray[np.float64]) -> Rows:
    """The row of each slice among those of its key."""
    rows = np.zeros(len(keys), np.int32)
    order = np.argsort(keys, kind="stable")
    edges = np.flatnonzero(np.diff(keys[order])) + 1
    for part in np.split(order, edges):
        rows[part] = stacked(start[part], stop[part])
    return rows


def line_keys(table: SliceTable) -> NDArray[np.int64]:
    """A number for each lane, name and line, the same for slices that have all three in common."""
    names, places = len(table.names) + 1, len(table.places) + 1
    found: NDArray[np.int64] = (
        (table.lane.astype(np.int64) * names + table.name + 1) * places + table.place + 1
    )
    return found


@dataclass(frozen=True, eq=False)
class _Merged:
    """Slices to draw, as columns, by lane and start: each stands for `count` slices, the `first` of which is given.

    `busy` is how long those hold their lane; `blocker` the position of what the first waited for, -1 for nothing.
    """

    first: NDArray[np.int64]
    stop: NDArray[np.float64]
    count: NDArray[np.int64]
    busy: NDArray[np.float64]
    bytes: NDArray[np.int64]
    blocker: NDArray[np.int64]
    step_ns: float


def drawn(table: SliceTable, most: int) -> DrawnTimeline:
    """What is drawn of a timeline, at most about `most` slices.

    Above that, neighbours of one lane, name and line are merged that begin within the same small step of the whole: a
    fraction of a pixel, doubled until what is left can be drawn.
    """
    found = _choose(table, most)
    first = found.first
    start = np.rint(table.start[first] * TENTH).astype(np.int64)
    stop = np.rint(found.stop * TENTH).astype(np.int64)
    lane = table.lane[first].astype(np.int64)
    # as they are written, so that none overlap by a rounding
    row = stacked_by(lane, start.astype(np.float64), stop.astype(np.float64))
    used = sorted(set(lane.tolist()))
    lanes = tuple(
        DrawnLane(
            core=table.lanes[at].core,
            name=table.lanes[at].name,
            rows=int(row[lane == at].max(initial=0)) + 1,
        )
        for at in used
    )
    names, name_texts = _used(table.name[first], table.names)
    places, place_texts = _used(table.place[first], table.places)
    operands, operand_texts = _used(np.where(found.count > 1, -1, table.operands[first]), table.operand_texts)
    columns: dict[str, NDArray[Any]] = {
        "lane": np.searchsorted(np.array(used, np.int64), lane),
        "row": row,
        "start": np.diff(start, prepend=0),
        "length": stop - start,
        "name": names,
        "place": places,
        "operands": operands,
        "wait": table.wait[first],
        "blocker": found.blocker,
        "bytes": found.bytes,
        "latency": np.rint(np.maximum(table.ready[first] - table.stop[first], 0) * TENTH),
    }
    if (found.count > 1).any():
        columns |= {"count": found.count, "busy": np.rint(found.busy * TENTH)}
    return DrawnTimeline(
        slices=len(first),
        whole=len(table),
        step_ns=found.step_ns,
        end=round(float(max(table.stop.max(initial=0.0), table.ready.max(initial=0.0))) * TENTH),
        lanes=lanes,
        names=tuple(name_texts),
        places=tuple(place_texts),
        operands=tuple(text[:LONGEST] for text in operand_texts),
        waits=table.waits,
        columns={name: _written(column.astype(np.int64)) for name, column in columns.items()},
    )


def _choose(table: SliceTable, most: int) -> _Merged:
    length = len(table)
    if length <= most:
        return _merged(table, np.lexsort((table.stop, table.start, table.lane)), np.ones(length, bool), 0.0)
    keys = line_keys(table)
    order = np.lexsort((table.start, keys))
    begins, new = table.start[order], np.append(True, np.diff(keys[order]) != 0)
    if new.sum() > most and (table.place >= 0).any():
        # more lines than can be drawn: those of one name are one
        return _choose(replace(table, place=np.full(length, -1, np.int32)), most)
    total = max(float(table.stop.max()), 1.0)
    step = total / STEPS
    while (starts := new | _stepped(begins, step)).sum() > most and step < total:
        step *= 2
    return _merged(table, order, starts, step)


def _stepped(begins: NDArray[np.float64], step: float) -> NDArray[np.bool_]:
    """Whether each moment lies in another step of the whole than the one before it."""
    return np.append(True, np.diff(np.floor(begins / step)) != 0)


def _merged(
    table: SliceTable, order: NDArray[np.int64], starts: NDArray[np.bool_], step_ns: float
) -> _Merged:
    """One slice for each stretch of `order` that begins where `starts` says so."""
    length = len(order)
    at = np.flatnonzero(starts)
    first = order[at]
    stop = np.maximum.reduceat(table.stop[order], at) if length else np.zeros(0)
    shown = np.lexsort((stop, table.start[first], table.lane[first]))
    position = np.empty(len(at), np.int64)
    position[shown] = np.arange(len(at))
    of = np.empty(length, np.int64)
    of[order] = position[np.cumsum(starts) - 1]
    first = first[shown]
    blocker = table.blocker[first].astype(np.int64)
    blocked = blocker >= 0
    blocker[blocked] = of[blocker[blocked]]
    blocker[blocker == np.arange(len(at))] = -1
    return _Merged(
        first=first,
        stop=stop[shown],
        count=np.bincount(of, minlength=len(at)),
        busy=np.bincount(of, weights=table.stop - table.start, minlength=len(at)).astype(np.float64),
        bytes=np.bincount(of, weights=table.bytes, minlength=len(at)).astype(np.int64),
        blocker=blocker,
        step_ns=step_ns,
    )


def _written(column: NDArray[np.int64]) -> str:
    """A column as numbers with spaces between them, or its one number where all are the same."""
    if len(column) and np.all(column == column[0]):
        return str(int(column[0]))
    return " ".join(map(str, column.tolist()))


def _used(column: NDArray[np.int32], texts: Sequence[str]) -> tuple[NDArray[np.int64], list[str]]:
    """A column of positions in `texts`, and those of them that it needs; -1 stays."""
    values = np.unique(column[column >= 0])
    found = np.where(column >= 0, np.searchsorted(values, column), -1)
    return found.astype(np.int64), [texts[at] for at in values.tolist()]

"""Passes: a Timeline in which the time of a device loop's later passes lies on the slices of the pass shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from nkireview.timeline.timeline import Timeline, Times


def spread(timeline: Timeline, later: Mapping[int, Sequence[int]]) -> Timeline:
    """The Timeline without slices that stand for later passes: what they stand for is stretched in their place.

    later: for each core, how many passes each of its slices without an instruction stands for, in order. Every
    moment of the pass before such a slice then counts that many times more, so that whatever is measured of a lane
    counts all passes, and each core's whole stays as long as it was. ValueError where the numbers do not fit.
    """
    stands = timeline.instruction < 0
    if not stands.any():
        return timeline
    core_of = np.array([lane.core for lane in timeline.lanes])[timeline.lane]
    start, stop, ready = timeline.start.copy(), timeline.stop.copy(), timeline.ready.copy()
    for core in np.unique(core_of[stands]).tolist():
        rows = np.flatnonzero(stands & (core_of == core))
        extras = list(later.get(core, ()))
        if len(extras) != len(rows):
            raise ValueError(
                f"{len(extras)} numbers of passes for the {len(rows)} slices of core {core} that stand for some"
            )
        edges, lengths = _stretched(timeline, rows.tolist(), extras)
        mine = core_of == core
        for column in (start, stop, ready):
            column[mine] = np.interp(column[mine], edges, lengths)
    kept = np.flatnonzero(~stands)
    number = np.full(len(timeline) + 1, -1, np.int64)
    number[kept] = np.arange(len(kept))
    blocker = timeline.blocker.astype(np.int64)
    # a chain of loops in loops ends at the last slice of a pass
    while (through := (blocker >= 0) & stands[blocker]).any():
        blocker[through] = blocker[blocker[through]]
    return replace(
        timeline,
        lane=timeline.lane[kept],
        instruction=timeline.instruction[kept],
        wait=timeline.wait[kept],
        blocker=number[blocker[kept]].astype(np.int32),
        start=start[kept],
        stop=stop[kept],
        ready=ready[kept],
    )


def _stretched(timeline: Timeline, rows: list[int], extras: list[int]) -> tuple[Times, Times]:
    """Moments, and how much time lies before each once the passes are counted in."""
    spans: list[tuple[float, float, float]] = []
    for row, extra in zip(rows, extras, strict=True):
        start, stop = float(timeline.start[row]), float(timeline.stop[row])
        begin = start - (stop - start) / extra
        spans += [(begin, start, 1.0 + extra), (start, stop, 0.0)]
    ends = [float(max(timeline.stop.max(), timeline.ready.max()))]
    edges = np.unique([0.0, *ends, *(edge for span in spans for edge in span[:2])])
    weight = np.ones(len(edges) - 1)
    for begin, stop, factor in spans:
        weight[np.searchsorted(edges, begin) : np.searchsorted(edges, stop)] *= factor
    return edges, np.append(0.0, np.cumsum(np.diff(edges) * weight))

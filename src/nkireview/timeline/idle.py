"""Idle: the gaps between the slices of each lane, and what ended each of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nkireview.timeline.timeline import TRANSFER, Codes, Numbers, Timeline, Times, Wait

NO_MORE = -1
"""Cause of a gap after which nothing comes."""
STARTING = -2
"""Cause of a gap on the lane of transfers while one that was asked for is issued and begins."""


@dataclass(frozen=True, eq=False)
class Gaps:
    """Times at which a lane does nothing, as columns, by lane and then in order; times in ns.

    `cause` is a `Wait`, `NO_MORE` or `STARTING`; `blocker` the slice that was waited for, -1 where there is none.
    """

    lane: Codes
    start: Times
    stop: Times
    cause: Codes
    blocker: Numbers

    def __len__(self) -> int:
        return len(self.lane)

    @property
    def ns(self) -> Times:
        """How long each gap lasts."""
        return self.stop - self.start


def gaps(timeline: Timeline) -> Gaps:
    """The gaps of every lane that has a slice; with its busy time they add up to the whole.

    A gap is charged to what the slice after it waited for. On the lane of transfers that is the issue; what lies
    before the issue began is charged to what the issue waited for.
    """
    parts = [
        _of_lane(timeline, lane, mine)
        for lane in range(len(timeline.lanes))
        if len(mine := np.flatnonzero(timeline.lane == lane))
    ]
    columns = list(zip(*parts, strict=True)) or [()] * 5
    kinds = (np.int8, np.float64, np.float64, np.int8, np.int32)
    lane, start, stop, cause, blocker = (
        np.concatenate(column).astype(kind) if column else np.zeros(0, kind)
        for column, kind in zip(columns, kinds, strict=True)
    )
    return Gaps(lane, start, stop, cause, blocker)


def _of_lane(timeline: Timeline, lane: int, mine: NDArray[np.int64]) -> tuple[NDArray[np.generic], ...]:
    order = mine[np.argsort(timeline.start[mine], kind="stable")]
    reach = np.append(0.0, np.maximum.accumulate(timeline.stop[order]))
    starts = timeline.start[order]
    before = np.flatnonzero(starts > reach[:-1])
    after = order[before]
    begin, end = reach[before], starts[before]
    cause, blocker = timeline.wait[after].astype(np.int8), timeline.blocker[after].astype(np.int64)
    rows = [(begin, end, cause, blocker)]
    if timeline.lanes[lane].name == TRANSFER:
        rows = _asked(timeline, after, begin, end, cause, blocker)
    if timeline.total_ns > reach[-1]:
        last = np.array([reach[-1]]), np.array([timeline.total_ns])
        rows.append((*last, np.array([NO_MORE], np.int8), np.array([-1], np.int64)))
    start, stop, cause, blocker = (np.concatenate(column) for column in zip(*rows, strict=True))
    kept = np.argsort(start, kind="stable")
    kept = kept[stop[kept] > start[kept]]
    return np.full(len(kept), lane, np.int8), start[kept], stop[kept], cause[kept], blocker[kept]


_Rows = list[tuple[Times, Times, Codes, NDArray[np.int64]]]


def _asked(
    timeline: Timeline,
    after: NDArray[np.int64],
    begin: Times,
    end: Times,
    cause: Codes,
    blocker: NDArray[np.int64],
) -> _Rows:
    """Gaps before transfers, cut where the issue of the transfer began."""
    held = np.maximum(blocker, 0)
    issued = (
        (blocker >= 0)
        & (timeline.instruction[held] == timeline.instruction[after])
        & (timeline.lane[held] != timeline.lane[after])
    )
    began = np.clip(timeline.start[held], begin, end)
    cut = np.where(issued, began, begin)
    first = issued & (cut > begin)
    waited = timeline.wait[held].astype(np.int8)
    # an issue that could start at once leaves nothing else to blame than its own queue
    waited = np.where(waited == int(Wait.nothing), np.int8(STARTING), waited).astype(np.int8)
    return [
        (begin[first], cut[first], waited[first], timeline.blocker[held][first].astype(np.int64)),
        (cut, end, np.where(issued, np.int8(STARTING), cause).astype(np.int8), blocker),
    ]

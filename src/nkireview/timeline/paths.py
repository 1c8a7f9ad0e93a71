"""Paths: the critical path and the time of transfers that nothing hides, grouped by what the slices belong to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nkireview.timeline.summary import Path, Spans, merged, union
from nkireview.timeline.timeline import COMPUTE, TRANSFER, Timeline, Times, Wait


@dataclass(frozen=True)
class Stretch:
    """What one group of slices adds to the critical path, in ns; `latency_ns` of it nothing was at work."""

    group: int
    ns: float
    latency_ns: float
    wait: Wait
    """What most of this time waited for before it began."""


def stretches(timeline: Timeline, path: Path, group: NDArray[np.int64]) -> tuple[Stretch, ...]:
    """The critical path by group, the longest first; `group` has a number, at least 0, for each slice."""
    if not len(path.slice):
        return ()
    groups, of = np.unique(group[path.slice], return_inverse=True)
    ns = np.bincount(of, weights=path.ns, minlength=len(groups))
    latency = np.bincount(of, weights=np.where(path.latency, path.ns, 0.0), minlength=len(groups))
    waits = np.zeros((len(groups), len(Wait)))
    np.add.at(waits, (of, timeline.wait[path.slice].astype(np.int64)), path.ns)
    order = np.lexsort((groups, -ns))
    return tuple(
        Stretch(int(groups[at]), float(ns[at]), float(latency[at]), Wait(int(waits[at].argmax())))
        for at in order.tolist()
    )


@dataclass(frozen=True, eq=False)
class Hiding:
    """Transfers against computing, each core for itself and then added up, in ns.

    `exposed`: for each slice the time for which its transfer, being the first of those that run, goes on while no
    engine of its core computes.
    """

    transfer_ns: float
    compute_ns: float
    both_ns: float
    exposed: Times


def hiding(timeline: Timeline) -> Hiding:
    """How much of the transfers is hidden behind computing."""
    transfer = compute = both = 0.0
    exposed = np.zeros(len(timeline))
    for core in sorted({lane.core for lane in timeline.lanes}):
        computing = union(
            [
                merged(timeline.start[at], timeline.stop[at])
                for lane in timeline.lanes
                if lane.core == core and lane.name in COMPUTE
                for at in (timeline.of(lane),)
            ]
        )
        lanes = [at for at, lane in enumerate(timeline.lanes) if lane.core == core and lane.name == TRANSFER]
        mine = np.flatnonzero(np.isin(timeline.lane, lanes))
        moving = merged(timeline.start[mine], timeline.stop[mine])
        transfer += moving.total
        compute += computing.total
        both += moving.common(computing)
        exposed[mine] = _alone(timeline, mine, computing)
    return Hiding(transfer, compute, both, exposed)


def _alone(timeline: Timeline, mine: NDArray[np.int64], computing: Spans) -> Times:
    """What of each slice no earlier one covers, and no computing."""
    order = np.argsort(timeline.start[mine], kind="stable")
    start, stop = timeline.start[mine][order], timeline.stop[mine][order]
    reach = np.append(0.0, np.maximum.accumulate(stop)[:-1]) if len(stop) else stop
    begin = np.minimum(np.maximum(start, reach), stop)
    found = np.empty(len(mine))
    found[order] = (stop - begin) - (computing.before(stop) - computing.before(begin))
    return np.maximum(found, 0.0)

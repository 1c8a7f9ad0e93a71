"""What a Timeline says: how busy each lane is, what overlaps, the critical path, and what bounds the whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from nkireview.timeline.timeline import COMPUTE, TRANSFER, Timeline, Times, Wait


class Bound(str, Enum):
    """What most of the critical path is spent on."""

    memory = "memory"  # DMA transfers: engines or HBM
    compute = "compute"  # an engine at work
    issue = "issue"  # a queue that issues DMAs
    latency = "latency"  # fixed latencies: pipelines, the start of a DMA


@dataclass(frozen=True, eq=False)
class Spans:
    """Times at which something is busy: disjoint, rising [start, stop) in ns."""

    start: Times
    stop: Times

    @property
    def total(self) -> float:
        """Busy time in ns."""
        return float((self.stop - self.start).sum())

    def before(self, at: Times) -> Times:
        """Busy time before each moment of `at`."""
        if not len(self.start):
            return np.zeros(len(at))
        edges = np.column_stack([self.start, self.stop]).ravel()
        lengths = self.stop - self.start
        busy = np.column_stack([np.cumsum(lengths) - lengths, np.cumsum(lengths)]).ravel()
        found: Times = np.interp(at, edges, busy, left=0.0, right=float(busy[-1]))
        return found

    def common(self, other: Spans) -> float:
        """Time at which both are busy, in ns."""
        return self.total + other.total - union([self, other]).total


def union(parts: list[Spans]) -> Spans:
    """The times at which at least one is busy."""
    start = np.concatenate([part.start for part in parts]) if parts else np.zeros(0)
    stop = np.concatenate([part.stop for part in parts]) if parts else np.zeros(0)
    return merged(start, stop)


def merged(start: Times, stop: Times) -> Spans:
    """Spans of intervals that may overlap, in any order."""
    kept = stop > start
    start, stop = start[kept], stop[kept]
    if not len(start):
        return Spans(start, stop)
    order = np.argsort(start, kind="stable")
    start, stop = start[order], stop[order]
    reach = np.maximum.accumulate(stop)
    begins = np.append(True, start[1:] > reach[:-1])
    last = np.append(np.flatnonzero(begins)[1:] - 1, len(start) - 1)
    return Spans(start[begins], reach[last])


@dataclass(frozen=True, eq=False)
class Path:
    """The critical path, last slice first: slice, ns it holds up the end, and whether that time is a fixed latency."""

    slice: NDArray[np.int64]
    ns: Times
    latency: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Summary:
    """A Timeline summed up; times in ns. `bound_by` is the lane, or what of it, that the path mostly goes through."""

    total_ns: float
    busy: tuple[Spans, ...]
    """One for each lane of the Timeline."""
    path: Path
    shares: Mapping[Bound, float]
    bound: Bound
    bound_by: str
    overlap: float
    """Share of the transfer time during which an engine computes; 0 without transfers."""

    def activity(self, lane: int, bins: int) -> Times:
        """Busy share of a lane in equal steps of the whole."""
        if not self.total_ns:
            return np.zeros(bins)
        edges = np.linspace(0.0, self.total_ns, bins + 1)
        return np.clip(np.diff(self.busy[lane].before(edges)) / (self.total_ns / bins), 0.0, 1.0)


def summary(timeline: Timeline) -> Summary:
    """Sum up a Timeline."""
    lanes = timeline.lanes
    busy = tuple(
        merged(timeline.start[at], timeline.stop[at]) for at in (timeline.of(lane) for lane in lanes)
    )
    computing = union([spans for spans, lane in zip(busy, lanes, strict=True) if lane.name in COMPUTE])
    moving = union([spans for spans, lane in zip(busy, lanes, strict=True) if lane.name == TRANSFER])
    path = critical_path(timeline)
    kinds = _kinds(timeline, path)
    shares = {bound: float(path.ns[kinds == at].sum()) for at, bound in enumerate(Bound)}
    whole = sum(shares.values())
    bound = max(Bound, key=lambda each: shares[each])
    return Summary(
        total_ns=timeline.total_ns,
        busy=busy,
        path=path,
        shares={each: share / whole if whole else 0.0 for each, share in shares.items()},
        bound=bound,
        bound_by=_bound_by(timeline, path, kinds == list(Bound).index(bound)),
        overlap=moving.common(computing) / moving.total if moving.total else 0.0,
    )


def critical_path(timeline: Timeline) -> Path:
    """From the last result back: what each slice waited for, and how long each held up the end.

    A slice holds it up from its start; what lies between the end of its work and the moment it was waited for, and
    between its blocker and its start, is latency.
    """
    if not timeline.total_ns:
        return Path(np.zeros(0, np.int64), np.zeros(0), np.zeros(0, bool))
    found: list[tuple[int, float, bool]] = []
    starts, stops, readies = timeline.start.tolist(), timeline.stop.tolist(), timeline.ready.tolist()
    blockers = timeline.blocker.tolist()
    at = int(np.argmax(np.maximum(timeline.ready, timeline.stop)))
    until = max(readies[at], stops[at])
    while at >= 0:
        start, stop, blocker = starts[at], stops[at], blockers[at]
        if until > stop:
            found.append((at, until - stop, True))
            until = stop
        if until > start:
            found.append((at, until - start, False))
        until = start
        if blocker >= 0:
            free = max((end for end in (stops[blocker], readies[blocker]) if end <= start), default=start)
            if start > free:
                found.append((at, start - free, True))
                until = free
        elif start > 0:
            found.append((at, start, True))
        at = blocker
    slices, ns, latency = zip(*found, strict=True)
    return Path(np.array(slices, np.int64), np.array(ns), np.array(latency, bool))


def _kinds(timeline: Timeline, path: Path) -> NDArray[np.int64]:
    """The Bound, by number, of each piece of the path."""
    bounds = list(Bound)
    by_lane = np.array(
        [
            bounds.index(
                Bound.compute
                if lane.name in COMPUTE
                else Bound.memory
                if lane.name == TRANSFER
                else Bound.issue
            )
            for lane in timeline.lanes
        ],
        np.int64,
    )
    kinds = by_lane[timeline.lane[path.slice]]
    kinds[issuing(timeline)[path.slice]] = bounds.index(Bound.issue)
    kinds[path.latency] = bounds.index(Bound.latency)
    return kinds


def issuing(timeline: Timeline) -> NDArray[np.bool_]:
    """Slices in which a DMA holds an engine's queue: it is issued there, nothing is computed."""
    return np.isin(timeline.instruction, _transferred(timeline)) & ~_transfers(timeline)


def _transfers(timeline: Timeline) -> NDArray[np.bool_]:
    names = np.array([lane.name == TRANSFER for lane in timeline.lanes])
    found: NDArray[np.bool_] = names[timeline.lane]
    return found


def _transferred(timeline: Timeline) -> NDArray[np.int32]:
    held = timeline.instruction[_transfers(timeline)]
    return np.unique(held[held >= 0])


def _bound_by(timeline: Timeline, path: Path, chosen: NDArray[np.bool_]) -> str:
    """The lane that most of the chosen pieces lie on; for transfers also whether HBM held them."""
    if not chosen.any():
        return ""
    lanes = timeline.lane[path.slice[chosen]]
    totals = np.bincount(lanes, weights=path.ns[chosen], minlength=len(timeline.lanes))
    name = timeline.lanes[int(np.argmax(totals))].name
    if name != TRANSFER:
        return name
    slices = path.slice[chosen]
    saturated = path.ns[chosen][timeline.wait[slices] == int(Wait.bandwidth)].sum()
    return "HBM" if saturated > totals.sum() / 2 else "DMA engines"

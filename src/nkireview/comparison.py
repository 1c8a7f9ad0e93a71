"""Two reviews side by side: which is better, by how much, and what makes the difference."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict

from nkireview.record import CountsRecord, ReviewRecord, TimeRecord
from nkireview.rules.case import in_bytes, in_time
from nkireview.rules.finding import Finding, Severity

SCHEMA = 1
REASONS = 8
LINES = 10
LEAST = 0.02
"""Least share of the slower time that a difference must make to be given as a reason."""
Better = Literal["A", "B", "neither"]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Change(_Record):
    """One quantity of both; `unit` is ns, bytes or a count."""

    name: str
    unit: str
    a: float
    b: float

    @property
    def difference(self) -> float:
        """B less A; 0 where they are equal but for rounding."""
        return 0.0 if math.isclose(self.a, self.b, rel_tol=1e-9) else self.b - self.a


class LineOfBoth(_Record):
    """A line of A or of B with what it costs, for the lines with the longest time."""

    side: Literal["A", "B"]
    place: str
    opcode: str
    lane: str
    instructions: int
    held_ns: float
    transfer_ns: float
    critical_ns: float
    bytes: int


class WorkloadComparison(_Record):
    """One workload of both: predicted time, instructions, bytes, queues, lines, and the reasons in order of weight."""

    workload: str
    a_ns: float
    b_ns: float
    a_range: tuple[float, float]
    b_range: tuple[float, float]
    within_band: bool
    """True where the ranges of the two predictions overlap."""
    basis: tuple[str, str]
    """Whether what runs is what is written, of both: see `TimeRecord`."""
    bound: tuple[str, str]
    queues: tuple[Change, ...]
    instructions: tuple[Change, ...]
    bytes: tuple[Change, ...]
    lines: tuple[LineOfBoth, ...]
    reasons: tuple[str, ...]


class Side(_Record):
    """One of the two: its name, verdict, score and blockers."""

    name: str
    status: str
    reason: str
    total: float | None
    blockers: tuple[str, ...]


class Comparison(_Record):
    """Two reviews of the same task; `better` is the one to take, `why` the sentence for it."""

    schema_version: int = SCHEMA
    tool: str
    target: str
    release: str
    a: Side
    b: Side
    better: Better
    why: str
    workloads: tuple[WorkloadComparison, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    """Findings above note, and blockers, that only one of them has."""
    not_compared: tuple[str, ...] = ()


def compare(a: ReviewRecord, b: ReviewRecord, names: tuple[str, str]) -> Comparison:
    """Hold two reviews against each other; those of different targets or releases are refused with ValueError."""
    for what in ("target", "release", "lnc"):
        one, two = getattr(a.subject, what).value, getattr(b.subject, what).value
        if one != two:
            raise ValueError(
                f"A was reviewed for {what} {one}, B for {two}; review both for one {what}, for instance with "
                f"--{'nki' if what == 'release' else what}"
            )
    if a.subject.task != b.subject.task:
        raise ValueError(
            f"A is of {_task(a)}, B of {_task(b)}; only kernels of one task, with the same inputs, can be compared"
        )
    for name in sorted(_outputs(a).keys() & _outputs(b).keys()):
        one_shape, two_shape = _outputs(a)[name], _outputs(b)[name]
        if one_shape != two_shape:
            raise ValueError(
                f"workload {name} gives {one_shape} in A and {two_shape} in B; give both the same inputs"
            )
    times = {item.workload: item for item in b.times}
    counts = {item.workload: item for item in b.counts}
    mine = {item.workload: item for item in a.counts}
    pairs = [(item, times[item.workload]) for item in a.times if item.workload in times]
    workloads = tuple(
        _workload(one, two, mine[one.workload], counts[one.workload])
        for one, two in pairs
        if one.workload in mine and one.workload in counts
    )
    better, why = _verdict(a, b, workloads)
    shared = {item.workload for item in workloads}
    return Comparison(
        tool=a.tool,
        target=a.subject.target.value,
        release=a.subject.release.value,
        a=_side(a, names[0]),
        b=_side(b, names[1]),
        better=better,
        why=why,
        workloads=workloads,
        only_a=_only(a.findings, b.findings),
        only_b=_only(b.findings, a.findings),
        not_compared=tuple(
            sorted(
                {f"{item.workload}: no predicted time of both" for item in (*a.counts, *b.counts)}
                - {f"{name}: no predicted time of both" for name in shared}
            )
        ),
    )


def _task(record: ReviewRecord) -> str:
    return f"task {record.subject.task}" if record.subject.task else "no task"


def _outputs(record: ReviewRecord) -> Mapping[str, str]:
    """What each executed workload returns."""
    return {
        run.workload: ", ".join(f"{item.dtype}{list(item.shape)}" for item in run.outputs)
        for run in record.runs
        if run.outputs
    }


def _side(record: ReviewRecord, name: str) -> Side:
    return Side(
        name=name,
        status=record.status,
        reason=record.reason,
        total=record.scorecard.total if record.scorecard else None,
        blockers=tuple(
            f"{finding.code} {finding.message}"
            for finding in record.findings
            if finding.severity is Severity.blocker
        ),
    )


def _only(mine: Sequence[Finding], other: Sequence[Finding]) -> tuple[str, ...]:
    """Findings above note whose code the other does not have above note."""
    theirs = {finding.code for finding in other if finding.severity is not Severity.note}
    return tuple(
        f"{finding.severity.value} {finding.code} {finding.message}"
        for finding in mine
        if finding.severity is not Severity.note and finding.code not in theirs
    )


_ORDER = {"acceptable": 0, "rejected": 1, "not reviewed": 2}


def _verdict(a: ReviewRecord, b: ReviewRecord, workloads: Sequence[WorkloadComparison]) -> tuple[Better, str]:
    """Right before fast; of two that are right the one that is faster on the longest workload."""
    if "not reviewed" in (a.status, b.status):
        side = "A" if a.status == "not reviewed" else "B"
        return "neither", f"{side} was not reviewed: {(a if side == 'A' else b).reason}"
    if a.status != b.status:
        better: Better = "A" if _ORDER[a.status] < _ORDER[b.status] else "B"
        worse = b if better == "A" else a
        first = next(f for f in worse.findings if f.severity is Severity.blocker)
        return better, (
            f"{better} is acceptable, {'B' if better == 'A' else 'A'} is not: {first.code} {first.message}"
        )
    if a.status == "rejected":
        return "neither", "both have a blocker; speed does not matter until they are gone"
    if not workloads:
        return "neither", "there is no workload with a predicted time of both"
    longest = max(workloads, key=lambda item: max(item.a_ns, item.b_ns))
    slow, fast = max(longest.a_ns, longest.b_ns), min(longest.a_ns, longest.b_ns)
    if slow <= fast * (1 + LEAST):
        return "neither", f"the predicted times of {longest.workload} differ by less than {LEAST:.0%}"
    better = "A" if longest.a_ns < longest.b_ns else "B"
    band = (
        "; the ranges of the two overlap, but most of the model's error is common to both"
        if longest.within_band
        else ""
    )
    reason = f": {longest.reasons[0]}" if longest.reasons else ""
    return (
        better,
        f"{better} is predicted {slow / fast:.2f} times as fast on {longest.workload}{reason}{band}",
    )


def _workload(
    one: TimeRecord, two: TimeRecord, counts_a: CountsRecord, counts_b: CountsRecord
) -> WorkloadComparison:
    queues = _changes("ns", _busy(one), _busy(two))
    instructions = _changes("count", counts_a.by_opcode, counts_b.by_opcode)
    moved = _changes("bytes", counts_a.bytes_by_route, counts_b.bytes_by_route)
    overlap = one.low_ns <= two.high_ns and two.low_ns <= one.high_ns
    return WorkloadComparison(
        workload=one.workload,
        a_ns=one.total_ns,
        b_ns=two.total_ns,
        a_range=(one.low_ns, one.high_ns),
        b_range=(two.low_ns, two.high_ns),
        within_band=overlap,
        basis=(one.basis, two.basis),
        bound=(f"{one.bound} ({one.bound_by})", f"{two.bound} ({two.bound_by})"),
        queues=queues,
        instructions=instructions,
        bytes=moved,
        lines=(*_top("A", one), *_top("B", two)),
        reasons=tuple(_reasons(one, two, queues, instructions, moved))[:REASONS],
    )


def _busy(record: TimeRecord) -> Mapping[str, float]:
    found: dict[str, float] = defaultdict(float)
    for lane in record.lanes:
        found[lane.name] += lane.busy_ns
    return found


def _changes(unit: str, a: Mapping[str, float], b: Mapping[str, float]) -> tuple[Change, ...]:
    """Quantities of either, the largest difference first."""
    found = [Change(name=name, unit=unit, a=a.get(name, 0), b=b.get(name, 0)) for name in {**a, **b}]
    return tuple(sorted(found, key=lambda item: (-abs(item.difference), item.name)))


def _top(side: Literal["A", "B"], record: TimeRecord) -> Iterator[LineOfBoth]:
    for line in record.lines[:LINES]:
        yield LineOfBoth(side=side, **line.model_dump())


def _reasons(
    one: TimeRecord,
    two: TimeRecord,
    queues: Sequence[Change],
    instructions: Sequence[Change],
    moved: Sequence[Change],
) -> Iterator[str]:
    """Sentences for what differs, by the time that hangs on it: critical path by instruction first."""
    slower = max(one.total_ns, two.total_ns)
    paths = _changes("ns", _path(one), _path(two))
    counts = {change.name: change for change in instructions}
    for change in paths:
        if abs(change.difference) >= LEAST * slower:
            count = counts.get(change.name.split(" (")[0])
            tail = f" ({count.a:,.0f} and {count.b:,.0f} instructions)" if count else ""
            yield (
                f"{change.name} takes {in_time(change.a)} of A's critical path and "
                f"{in_time(change.b)} of B's{tail}"
            )
    for change in moved:
        if change.a != change.b and abs(change.difference) >= LEAST * max(change.a, change.b):
            yield f"{change.name} moves {in_bytes(change.a)} in A and {in_bytes(change.b)} in B"
    if abs(one.overlap - two.overlap) >= 0.1:
        yield f"{one.overlap:.0%} of A's transfer time lies under compute, {two.overlap:.0%} of B's"
    for change in queues:
        if abs(change.difference) >= LEAST * slower:
            yield f"{change.name} is busy for {in_time(change.a)} in A and {in_time(change.b)} in B"


def _path(record: TimeRecord) -> Mapping[str, float]:
    found: dict[str, float] = defaultdict(float)
    for step in record.critical:
        found[step.opcode] += step.ns
    return found

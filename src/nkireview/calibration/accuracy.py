"""Predicted against measured: what the timing model says of each case, and how far it is off over all of them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from statistics import fmean, median

import numpy as np

from nkireview import hardware
from nkireview.calibration.measured import Case, Measurement
from nkireview.checks.counts import loop_trips
from nkireview.checks.operations import operations
from nkireview.checks.transfers import transfers
from nkireview.isa import dtypes
from nkireview.isa.table import ROWS
from nkireview.program.program import Program
from nkireview.program.scope import Scope
from nkireview.schedule import launches
from nkireview.schedule.compiled import MATTERS, Change
from nkireview.schedule.launches import launch
from nkireview.schedule.parameters import Figures, Parameters
from nkireview.schedule.prediction import Prediction
from nkireview.schedule.timing import Timing
from nkireview.timeline.summary import merged

CLOCKS = (*launches.CLOCKS, launches.WINDOW)
CLOSE = 0.25
"""A prediction counts as close up to this relative error."""
APART = 0.05
"""Versions that were measured less than this apart are not ordered."""
BAND = 0.8
"""Share of the measurements that a printed band is to hold."""
COUNTS = ("hbm_read_bytes", "hbm_write_bytes", "matmul_instruction_count")
ACTIVE: Mapping[str, tuple[str, float]] = {
    **{f"{name}_engine_active_time_us": (name, 0.0) for name in ("tensor", "vector", "scalar", "gpsimd")},
    "dma_active_time_us": ("dma", 0.0),
    **{f"{name}_engine_active_time_percent": (name, 1.0) for name in ("vector", "scalar", "gpsimd")},
    **{f"{name}_engine_active_pct": (name, 0.01) for name in ("tensor", "vector")},
    "dma_active_pct": ("dma", 0.01),
}
"""Metric -> lane, and the factor that makes it a share of the total time; 0 for a time in us.

AccelOpt's metrics that are named percent are shares already, as the notes of its rows say.
"""


def timed(program: Program, flags: Sequence[str] = ()) -> Timing:
    """The timing of a Program that was compiled with some flags."""
    return Timing(program, Parameters({"static_dmas": "yes"} if "--disable-dge" in flags else {}))


@dataclass(frozen=True)
class Line:
    """One case by one clock; us, overheads of its launches included."""

    case: str
    repository: str
    ladder: str
    target: str
    kind: str
    clock: str
    launches: int
    predicted: float
    low: float
    high: float
    measured: float
    rows: tuple[str, ...]

    @property
    def error(self) -> float:
        """Relative error of the prediction."""
        return self.predicted / self.measured - 1.0

    @property
    def reach(self) -> float:
        """How often its own band the measurement lies away, in logarithms: at most 1 inside of it."""
        off = math.log(self.measured / self.predicted)
        edge = self.high if off > 0 else self.low
        width = abs(math.log(edge / self.predicted)) if edge > 0 else math.inf
        if not off:
            return 0.0
        return abs(off) / width if width else math.inf


@dataclass(frozen=True)
class Count:
    """A figure of a case that is counted: bytes over HBM, or instructions."""

    case: str
    metric: str
    predicted: float
    measured: float

    @property
    def exact(self) -> bool:
        """Whether they are equal."""
        return self.predicted == self.measured


@dataclass(frozen=True)
class Share:
    """How long an engine is active, as a share of the total time."""

    case: str
    lane: str
    predicted: float
    measured: float

    @property
    def points(self) -> float:
        """Percentage points that the prediction is off."""
        return 100.0 * abs(self.predicted - self.measured)


@dataclass(frozen=True)
class Class:
    """What the compiler was said to change most of a case's traffic by, and what the bytes from HBM say it did."""

    case: str
    predicted: Change
    measured: Change

    @property
    def right(self) -> bool:
        """Whether they agree."""
        return self.predicted is self.measured


@dataclass(frozen=True)
class Judged:
    """A case whose Programs were timed."""

    lines: tuple[Line, ...]
    counts: tuple[Count, ...]
    shares: tuple[Share, ...]
    classes: tuple[Class, ...]
    assumed: tuple[str, ...]


@dataclass(frozen=True)
class Statistics:
    """Errors of some lines. `inside`: share of the measurements in the band of their prediction; `width`: the median of
    high / low; `below`: how many measurements lie below the low end."""

    count: int
    median_error: float
    close: float
    mean_log: float
    inside: float
    width: float
    below: int


@dataclass(frozen=True)
class Coverage:
    """The band fitted on all other repositories, and the share of a repository's rows that it holds.

    `scale` multiplies the band of each prediction, in logarithms. None where there is no other repository.
    """

    repository: str
    rows: int
    scale: float | None
    covered: float | None


@dataclass(frozen=True)
class Inversion:
    """Two versions by one clock that come out in the wrong order; us."""

    ladder: str
    clock: str
    faster: str
    slower: str
    measured: tuple[float, float]
    predicted: tuple[float, float]


@dataclass(frozen=True)
class Ladders:
    """Pairs of versions of one operator that were measured apart, and those that come out in the wrong order."""

    pairs: int
    inversions: tuple[Inversion, ...]

    @property
    def in_order(self) -> float | None:
        """Share of the pairs in order; None without pairs."""
        return 1.0 - len(self.inversions) / self.pairs if self.pairs else None


@dataclass(frozen=True)
class NotRun:
    """A case without a prediction, and why."""

    case: str
    repository: str
    reason: str
    missing_clone: str = ""


@dataclass(frozen=True)
class Accuracy:
    """The whole table. `left_out`: reason -> number of rows that no case takes."""

    lines: tuple[Line, ...]
    counts: tuple[Count, ...]
    shares: tuple[Share, ...]
    classes: tuple[Class, ...]
    not_run: tuple[NotRun, ...]
    left_out: Mapping[str, int]
    assumed: tuple[str, ...]
    overall: Statistics | None = None
    kinds: Mapping[str, Statistics] = field(default_factory=dict)
    coverage: tuple[Coverage, ...] = ()
    ladders: Ladders = Ladders(0, ())


def judge(case: Case, programs: Sequence[Program]) -> Judged:
    """A case against its measurements, its launches added up; ProgramError for an instruction without a row."""
    figures = Figures(hardware.target(case.target))
    timings = [timed(program, case.flags) for program in programs]
    said = [timing.prediction for timing in timings]
    lines = tuple(_line(case, row, said, figures) for row in case.rows)
    counts = _counts(case, timings, figures)
    shares = _shares(case, timings, figures)
    classes = _classes(case, timings, counts)
    return Judged(lines, counts, shares, classes, figures.assumed)


def _line(case: Case, row: Measurement, said: Sequence[Prediction], figures: Figures) -> Line:
    each_launch = launch(row.clock, figures)
    beside, spread = each_launch.ns * row.launches, each_launch.spread_ns * row.launches
    kinds = dict.fromkeys(each.kind.value for each in said)
    return Line(
        case=case.id,
        repository=case.repository,
        ladder=case.ladder,
        target=case.target,
        kind=" and ".join(kinds),
        clock=row.clock,
        launches=row.launches,
        predicted=(sum(each.point_ns for each in said) + beside) / 1e3,
        low=(sum(each.low_ns for each in said) + beside - spread) / 1e3,
        high=(sum(each.high_ns for each in said) + beside + spread) / 1e3,
        measured=row.us,
        rows=row.rows,
    )


def _counts(case: Case, timings: Sequence[Timing], figures: Figures) -> tuple[Count, ...]:
    wanted = [metric for metric in COUNTS if metric in case.metrics]
    if not wanted:
        return ()
    found = dict.fromkeys(COUNTS, 0.0)
    for timing in timings:
        program, made = timing.program, timing.compiled
        scope = Scope.of(program)
        times = loop_trips(program, None).astype(np.float64)
        moves = transfers(scope, ROWS, times)
        moved = moves.bytes * moves.times
        bits = np.array([dtypes.BY_NAME[name].bits for name in program.dtypes], np.int64)
        read = np.maximum(bits[program.columns.access_dtype[moves.source_access]] // 8, 1)
        stored = np.maximum(bits[program.columns.access_dtype[moves.target_access]] // 8, 1)
        found["hbm_read_bytes"] += float(moved[moves.loads].sum())
        written = np.where(moves.loads, moved * stored / read, moved)
        found["hbm_write_bytes"] += float(written[moves.stores].sum())
        found["matmul_instruction_count"] += float((operations(scope, figures).matmuls * times).sum())
        if made is not None:
            out, back = made.spilled
            found["hbm_read_bytes"] += made.extra + back + made.constants - made.saved
            found["hbm_write_bytes"] += out
    return tuple(Count(case.id, metric, found[metric], case.metrics[metric]) for metric in wanted)


def _classes(case: Case, timings: Sequence[Timing], counts: Sequence[Count]) -> tuple[Class, ...]:
    """What the compiler changed, where the bytes that were read from HBM say it."""
    read = next((count for count in counts if count.metric == "hbm_read_bytes"), None)
    made = [timing.compiled for timing in timings]
    if read is None or len(made) != 1 or made[0] is None:
        return ()
    only = made[0]
    as_written = read.predicted - only.extra - only.spilled[1] + only.saved
    spilled = case.metrics.get("spill_save_bytes", 0.0) + case.metrics.get("spill_reload_bytes", 0.0)
    extra = read.measured - as_written - case.metrics.get("spill_reload_bytes", 0.0)
    sizes = {Change.merges: -extra, Change.fetches: extra, Change.spills: spilled}
    most = max(sizes, key=lambda each: sizes[each])
    matters = float(Parameters().value(MATTERS)) * as_written
    measured = most if sizes[most] >= matters else Change.none
    return (Class(case.id, only.change, measured),)


def _shares(case: Case, timings: Sequence[Timing], figures: Figures) -> tuple[Share, ...]:
    wanted = [metric for metric in ACTIVE if metric in case.metrics]
    if not wanted:
        return ()
    measured = next((row.us for row in case.rows if row.clock == "total"), None)
    busy: dict[str, float] = defaultdict(float)
    whole = 0.0
    for timing in timings:
        timeline = timing.timeline
        whole += timeline.total_ns + launch("total", figures).ns
        for lane in timeline.lanes:
            rows = timeline.of(lane)
            busy[lane.name] += merged(timeline.start[rows], timeline.stop[rows]).total
    found: dict[str, Share] = {}
    for metric in wanted:
        name, factor = ACTIVE[metric]
        if factor:
            share = case.metrics[metric] * factor
        elif measured:
            share = case.metrics[metric] / measured
        else:
            continue
        found.setdefault(name, Share(case.id, name, busy[name] / whole, share))
    return tuple(found.values())


def table(
    judged: Iterable[Judged], not_run: Iterable[NotRun] = (), left_out: Mapping[str, int] | None = None
) -> Accuracy:
    """The table of all cases, with its statistics."""
    cases = list(judged)
    lines = tuple(line for case in cases for line in case.lines)
    return Accuracy(
        lines=lines,
        counts=tuple(count for case in cases for count in case.counts),
        shares=tuple(share for case in cases for share in case.shares),
        classes=tuple(each for case in cases for each in case.classes),
        not_run=tuple(not_run),
        left_out=dict(left_out or {}),
        assumed=tuple(dict.fromkeys(text for case in cases for text in case.assumed)),
        overall=statistics(lines) if lines else None,
        kinds={
            kind: statistics([line for line in lines if line.kind == kind])
            for kind in sorted({line.kind for line in lines})
        },
        coverage=coverage(lines),
        ladders=ladders(lines),
    )


def statistics(lines: Sequence[Line]) -> Statistics:
    """Errors over some lines, at least one."""
    errors = [abs(line.error) for line in lines]
    return Statistics(
        count=len(lines),
        median_error=median(errors),
        close=fmean(error <= CLOSE for error in errors),
        mean_log=fmean(abs(math.log(line.predicted / line.measured)) for line in lines),
        inside=fmean(line.low <= line.measured <= line.high for line in lines),
        width=median(line.high / line.low if line.low > 0 else math.inf for line in lines),
        below=sum(line.measured < line.low for line in lines),
    )


def band(lines: Sequence[Line]) -> float | None:
    """The least factor for the bands of lines, in logarithms, at which they hold `BAND` of them; None without lines."""
    reach = sorted(line.reach for line in lines)
    return reach[math.ceil(BAND * len(reach)) - 1] if reach else None


def coverage(lines: Sequence[Line]) -> tuple[Coverage, ...]:
    """Each repository in turn under the band that is fitted on the others."""
    found = []
    for repository in sorted({line.repository for line in lines}):
        own = [line for line in lines if line.repository == repository]
        scale = band([line for line in lines if line.repository != repository])
        held = None if scale is None else fmean(line.reach <= scale for line in own)
        found.append(Coverage(repository, len(own), scale, held))
    return tuple(found)


def ladders(lines: Sequence[Line]) -> Ladders:
    """All pairs of versions of one operator, by one clock, that were measured apart."""
    steps: dict[tuple[str, str], list[Line]] = defaultdict(list)
    for line in lines:
        steps[line.ladder, line.clock].append(line)
    pairs, wrong = 0, []
    for (ladder, clock), versions in steps.items():
        for pair in combinations(versions, 2):
            fast, slow = sorted(pair, key=lambda line: line.measured)
            if slow.measured <= fast.measured * (1 + APART):
                continue
            pairs += 1
            if fast.predicted >= slow.predicted:
                wrong.append(
                    Inversion(
                        ladder,
                        clock,
                        fast.case,
                        slow.case,
                        (fast.measured, slow.measured),
                        (fast.predicted, slow.predicted),
                    )
                )
    return Ladders(pairs, tuple(wrong))

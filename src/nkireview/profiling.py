"""Why a kernel takes as long as it does: from a traced and scheduled program to a value that reports show."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.checks.bounds import BoundLine, bounds
from nkireview.checks.metrics import ENGINES, Figured, metrics
from nkireview.checks.operations import Operations, operations
from nkireview.checks.ran import Ran, ran
from nkireview.checks.roofline import Roofline, roofline
from nkireview.checks.survey import Survey
from nkireview.checks.usage import Usage, usage
from nkireview.hardware import Hardware
from nkireview.isa import dtypes
from nkireview.isa.enums import Engine
from nkireview.program.interning import intern
from nkireview.program.program import MEMORIES, Program
from nkireview.program.scope import Scope
from nkireview.schedule.launches import WINDOW, launch
from nkireview.schedule.parameters import Figures
from nkireview.schedule.timing import Timing
from nkireview.slices import LaneName, SliceTable
from nkireview.timeline.idle import NO_MORE, STARTING, gaps
from nkireview.timeline.passes import spread
from nkireview.timeline.paths import Stretch, hiding, stretches
from nkireview.timeline.summary import Summary, merged, summary
from nkireview.timeline.timeline import TRANSFER, Timeline, Wait

BINS = 120
"""Steps in which the activity of a lane is told."""
CAUSES = 24
"""Causes of a lane's idle time that are told apart, the longest first; the rest is one more."""
EXPOSED = 12
"""Lines whose unhidden transfers are told."""
CLOCKS = ("active", "benchmark", "total")
"""Clocks beside that of the window that a profile tells."""
WAITS = {
    Wait.nothing: "nothing",
    Wait.order: "the work before it in its queue",
    Wait.data: "data",
    Wait.reuse: "its destination to be free",
    Wait.rewrite: "an earlier write",
    Wait.engine: "DMA engines",
    Wait.bandwidth: "HBM bandwidth",
    Wait.named: "an explicit dependency",
    Wait.peer: "the other core",
    Wait.port: "another engine's access to the same memory",
}
STARTS = "the issue and start of a DMA"
ENDED = "no more work"
SPILL = "spilled tile"
"""The name of what a compiler stores and loads of its own, at the line before which it does."""
REST = "other causes"
_BEHIND = frozenset({int(Wait.engine), int(Wait.bandwidth)})


@dataclass(frozen=True)
class IdleCause:
    """Idle time of a lane by what it waited for, in words; `count` gaps of together `ns`.

    `name`, `place` and `lane`: the instruction whose end was waited for, "" where there is none. `behind`: what a
    transfer that was waited for had itself to wait for, "" where nothing.
    """

    waits: str
    name: str
    place: str
    lane: str
    behind: str
    ns: float
    count: int


@dataclass(frozen=True)
class LaneUse:
    """A lane of a core: its busy time, the share of the whole, that share in `BINS` equal steps, and why it idles.

    Busy time and the causes' times add up to the whole.
    """

    core: int
    name: str
    busy_ns: float
    share: float
    activity: tuple[float, ...]
    idle: tuple[IdleCause, ...]


@dataclass(frozen=True)
class PathLine:
    """What an instruction of a line adds to the critical path; `latency_ns` of its `ns` are fixed latencies.

    `waits`: what most of that time had waited for. `lane` tells the issue of a DMA from its transfer.
    """

    place: str
    name: str
    lane: str
    ns: float
    share: float
    waits: str
    latency_ns: float


@dataclass(frozen=True)
class ExposedLine:
    """Transfers of a line while no engine computes."""

    place: str
    name: str
    ns: float


@dataclass(frozen=True)
class Overlap:
    """Transfers against computing, each core for itself and then added up; `share` of the transfer time is hidden."""

    dma_ns: float
    compute_ns: float
    both_ns: float
    share: float
    exposed: tuple[ExposedLine, ...]


@dataclass(frozen=True, eq=False)
class Profile:
    """A simulated profile of one workload; times in ns. `assumed`: what the prediction takes for granted.

    `clocks`: window (first to last work), active, benchmark and total, as the Neuron tools time a launch. The figures
    count every trip of a device loop; `slices` show the first two passes, and the rest as one slice.
    """

    name: str
    target: str
    release: str
    lnc: int
    total_ns: float
    low_ns: float
    high_ns: float
    band_words: str
    assumed: tuple[str, ...]
    clocks: Mapping[str, float]
    spreads: Mapping[str, float]
    """How far what a clock adds may be off either way, in ns."""
    slices: SliceTable
    lanes: tuple[LaneUse, ...]
    critical: tuple[PathLine, ...]
    overlap: Overlap
    usage: Usage
    roofline: Roofline
    bounds: tuple[BoundLine, ...]
    metrics: Mapping[str, float | int]

    def range_ns(self, clock: str) -> tuple[float, float]:
        """Between which times, in ns, the prediction lies by a clock; KeyError for a clock that is not known."""
        beside, spread = self.clocks[clock] - self.total_ns, self.spreads[clock]
        return self.low_ns + beside - spread, self.high_ns + beside + spread


def profile(program: Program, timing: Timing, survey: Survey, hardware: Hardware, name: str) -> Profile:
    """The profile of a traced program. Raise ProgramError for an instruction without a row."""
    figures = Figures(hardware)
    made = operations(Scope.of(program), figures)
    drawn = timing.timeline
    timeline = spread(drawn, _later(program, timing))
    found = summary(timeline)
    clocks = {"window": drawn.total_ns}
    beside = {clock: launch(clock, figures) for clock in CLOCKS}
    clocks |= {clock: drawn.total_ns + each.ns for clock, each in beside.items()}
    said = timing.prediction
    labels = _Labels(program, timing)
    cores = max(len({stream.core for stream in program.streams}), 1)
    moves, runs = survey.moves, ran(timing, survey)
    ends = moves.loads.astype(np.int64) + moves.stores
    moved = float((moves.bytes * runs.times[moves.instruction] * ends).sum()) + runs.spilled + runs.restored
    table = _slices(program, drawn, survey, timing, made, labels)
    measured = _figured(program, timing, survey, hardware, made, timeline, clocks, runs)
    return Profile(
        name=name,
        target=program.header.target,
        release=program.header.release,
        lnc=max(program.header.lnc, 1),
        total_ns=drawn.total_ns,
        low_ns=said.low_ns,
        high_ns=said.high_ns,
        band_words=said.words,
        assumed=tuple(dict.fromkeys((*drawn.assumed, *figures.assumed))),
        clocks=clocks,
        spreads={WINDOW: 0.0} | {clock: each.spread_ns for clock, each in beside.items()},
        slices=table,
        lanes=_lanes(timeline, found, labels),
        critical=_critical(timeline, found, labels),
        overlap=_overlap(timeline, labels),
        usage=usage(timing, survey, hardware, moved, runs),
        roofline=roofline(_products(made, survey), moved, drawn.total_ns, cores, hardware),
        bounds=bounds(timeline, found, made, survey, hardware, moved, runs),
        metrics=metrics(measured),
    )


def slice_table(program: Program, timing: Timing, survey: Survey, hardware: Hardware) -> SliceTable:
    """The slices of a traced program alone. Raise ProgramError for an instruction without a row."""
    made = operations(Scope.of(program), Figures(hardware))
    return _slices(program, timing.timeline, survey, timing, made, _Labels(program, timing))


def _later(program: Program, timing: Timing) -> dict[int, list[int]]:
    """For each core, how many passes each slice of the schedule without an instruction stands for."""
    found: dict[int, list[int]] = defaultdict(list)
    for stream, steps in zip(program.streams, timing.plan.steps, strict=True):
        found[stream.core] += [step.extra for step in steps if step.extra]
    return found


class _Labels:
    """Names and lines of instructions as numbers, -1 for none; a transfer without a DMA is a spill's."""

    def __init__(self, program: Program, timing: Timing) -> None:
        self.names = (*(opcode.name for opcode in program.opcodes), SPILL)
        texts: dict[str, int] = {}
        of_place = [
            texts.setdefault(text, len(texts)) if (text := program.place_text(place)) else -1
            for place in range(len(program.places))
        ]
        lines = np.append(np.array(of_place, np.int64), -1)
        self.places = tuple(texts)
        columns = program.columns
        self._name = np.append(columns.opcode.astype(np.int64), -1)
        self._moves = np.append(timing.plan.costs.is_dma, True)
        self.place = np.append(np.where(columns.place >= 0, lines[columns.place], -1), -1)

    def name(self, instruction: NDArray[Any], transfer: NDArray[np.bool_]) -> NDArray[np.int64]:
        """The name of each slice's instruction."""
        spills = transfer & ~self._moves[instruction]
        return np.where(spills, len(self.names) - 1, self._name[instruction])

    def texts(self, name: int, instruction: int) -> tuple[str, str]:
        """A name, and the line of an instruction, "" where it has none."""
        place = int(self.place[instruction])
        return self.names[name] if name >= 0 else "", self.places[place] if place >= 0 else ""


def _slices(
    program: Program,
    timeline: Timeline,
    survey: Survey,
    timing: Timing,
    made: Operations,
    labels: _Labels,
) -> SliceTable:
    instruction = timeline.instruction
    transfer = _on(timeline, TRANSFER)
    is_dma = np.append(timing.plan.costs.is_dma, False)[instruction]
    asked = transfer & np.isin(timeline.wait, (int(Wait.nothing), int(Wait.order)))
    moves = survey.moves
    weight = np.bincount(moves.instruction, weights=moves.bytes, minlength=len(program)).astype(np.int64)
    # what ranks exchange is no row of the transfers
    weight = np.where(weight > 0, weight, timing.plan.costs.hbm_bytes)
    on_chip = np.append(made.touched, 0)[instruction]
    moved = np.append(weight, 0)[instruction]
    return SliceTable(
        lanes=tuple(LaneName(lane.core, lane.name) for lane in timeline.lanes),
        lane=timeline.lane,
        start=timeline.start,
        stop=timeline.stop,
        ready=timeline.ready,
        wait=np.where(asked, np.int8(len(Wait)), timeline.wait).astype(np.int8),
        blocker=timeline.blocker,
        instruction=instruction,
        name=labels.name(instruction, transfer).astype(np.int32),
        names=labels.names,
        place=labels.place[instruction].astype(np.int32),
        places=labels.places,
        operands=np.append(made.text, -1)[instruction].astype(np.int32),
        operand_texts=made.texts,
        bytes=np.where(transfer, moved, np.where(is_dma, 0, on_chip)),
        flops=np.append(2 * made.products, 0)[instruction],
        waits=(*(WAITS[wait] for wait in Wait), STARTS),
    )


def _on(timeline: Timeline, name: str) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = np.array([lane.name == name for lane in timeline.lanes], bool)[timeline.lane]
    return found


def _lanes(timeline: Timeline, found: Summary, labels: _Labels) -> tuple[LaneUse, ...]:
    causes = _causes(timeline, labels)
    return tuple(
        LaneUse(
            core=lane.core,
            name=lane.name,
            busy_ns=found.busy[at].total,
            share=found.busy[at].total / found.total_ns if found.total_ns else 0.0,
            activity=tuple(round(float(share), 4) for share in found.activity(at, BINS)),
            idle=causes.get(at, ()),
        )
        for at, lane in enumerate(timeline.lanes)
        if (timeline.lane == at).any()
    )


def _causes(timeline: Timeline, labels: _Labels) -> dict[int, tuple[IdleCause, ...]]:
    """For each lane its idle time by cause, the longest first."""
    idle = gaps(timeline)
    blocked = idle.blocker >= 0
    held = np.maximum(idle.blocker, 0)
    instruction = np.where(blocked, np.append(timeline.instruction, -1)[held], -1)
    lane = np.where(blocked, np.append(timeline.lane, -1)[held], -1)
    transfer = blocked & np.append(_on(timeline, TRANSFER), False)[held]
    wait = np.append(timeline.wait, 0)[held].astype(np.int64)
    behind = np.where(transfer & np.isin(wait, list(_BEHIND)), wait, -1)
    names = labels.name(instruction, transfer)
    keys: list[NDArray[Any]] = [idle.lane, idle.cause, names, labels.place[instruction], lane, behind]
    classes = intern([key.astype(np.int64) for key in keys], len(idle))
    ns = np.bincount(classes.of, weights=idle.ns, minlength=len(classes))
    counts = np.bincount(classes.of, minlength=len(classes))
    found: dict[int, list[IdleCause]] = defaultdict(list)
    for at in np.lexsort((classes.first, -ns)).tolist():
        first = int(classes.first[at])
        name, place = labels.texts(int(names[first]), int(instruction[first]))
        found[int(idle.lane[first])].append(
            IdleCause(
                waits=_words(int(idle.cause[first])),
                name=name,
                place=place,
                lane=timeline.lanes[int(lane[first])].name if lane[first] >= 0 else "",
                behind=WAITS[Wait(int(behind[first]))] if behind[first] >= 0 else "",
                ns=float(ns[at]),
                count=int(counts[at]),
            )
        )
    return {number: _shortened(causes) for number, causes in found.items()}


def _words(cause: int) -> str:
    if cause in (NO_MORE, STARTING):
        return ENDED if cause == NO_MORE else STARTS
    return WAITS[Wait(cause)]


def _shortened(causes: list[IdleCause]) -> tuple[IdleCause, ...]:
    rest = causes[CAUSES:]
    if not rest:
        return tuple(causes)
    ns, count = sum(cause.ns for cause in rest), sum(cause.count for cause in rest)
    return *causes[:CAUSES], IdleCause(REST, "", "", "", "", ns, count)


def _grouped(
    timeline: Timeline, labels: _Labels
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """A class for each slice by lane, name and line; a slice of each class; the names of all."""
    instruction, names = timeline.instruction, labels.name(timeline.instruction, _on(timeline, TRANSFER))
    lanes = [lane.name for lane in timeline.lanes]
    kind = np.array([lanes.index(name) for name in lanes], np.int64)[timeline.lane]
    classes = intern([kind, names, labels.place[instruction]], len(timeline))
    return classes.of, classes.first, names


def _critical(timeline: Timeline, found: Summary, labels: _Labels) -> tuple[PathLine, ...]:
    of, first, names = _grouped(timeline, labels)
    parts: tuple[Stretch, ...] = stretches(timeline, found.path, of)
    whole = sum(part.ns for part in parts)
    lines = []
    for part in parts:
        at = int(first[part.group])
        name, place = labels.texts(int(names[at]), int(timeline.instruction[at]))
        lane = timeline.lanes[int(timeline.lane[at])].name
        issued = lane == TRANSFER and part.wait in (Wait.nothing, Wait.order)
        lines.append(
            PathLine(
                place=place,
                name=name,
                lane=lane,
                ns=part.ns,
                share=part.ns / whole if whole else 0.0,
                waits=STARTS if issued else WAITS[part.wait],
                latency_ns=part.latency_ns,
            )
        )
    return tuple(lines)


def _overlap(timeline: Timeline, labels: _Labels) -> Overlap:
    found = hiding(timeline)
    of, first, names = _grouped(timeline, labels)
    ns = np.bincount(of, weights=found.exposed, minlength=len(first))
    exposed = []
    for at in np.lexsort((first, -ns)).tolist()[:EXPOSED]:
        if ns[at] > 0:
            name, place = labels.texts(int(names[first[at]]), int(timeline.instruction[first[at]]))
            exposed.append(ExposedLine(place, name, float(ns[at])))
    return Overlap(
        dma_ns=found.transfer_ns,
        compute_ns=found.compute_ns,
        both_ns=found.both_ns,
        share=found.both_ns / found.transfer_ns if found.transfer_ns else 0.0,
        exposed=tuple(exposed),
    )


def _products(made: Operations, survey: Survey) -> dict[str, float]:
    """Multiply-accumulates by dtype, over all trips of loops."""
    counted = made.dtype >= 0
    weights = (made.products * survey.times)[counted]
    totals = np.bincount(made.dtype[counted], weights=weights, minlength=len(made.dtypes))
    return {name: float(total) for name, total in zip(made.dtypes, totals.tolist(), strict=True)}


def _figured(
    program: Program,
    timing: Timing,
    survey: Survey,
    hardware: Hardware,
    made: Operations,
    timeline: Timeline,
    clocks: Mapping[str, float],
    runs: Ran,
) -> Figured:
    """What the profiler's metrics are made from."""
    times, priced, moves = runs.times, timing.plan.costs, survey.moves

    def total(column: NDArray[np.int64]) -> int:
        return round(float((column * times).sum()))

    lanes = defaultdict(list)
    for at, lane in enumerate(timeline.lanes):
        lanes[lane.name].append(at)
    rows = {name: np.flatnonzero(np.isin(timeline.lane, numbers)) for name, numbers in lanes.items()}
    spent = timeline.stop - timeline.start
    memory = np.array([kind.name for kind in MEMORIES])[program.columns.buffer_memory]
    bits = np.array([dtypes.BY_NAME[name].bits for name in program.dtypes], np.int64)
    source, target = (
        bits[program.columns.access_dtype[ends]] for ends in (moves.source_access, moves.target_access)
    )
    counted = np.where(moves.stores & ~moves.loads, target, source)
    each = moves.bytes * times[moves.instruction] / np.maximum(counted, 1)
    read, written = each * source, each * target
    into = {kind: round(float(written[memory[moves.target] == kind].sum())) for kind in ("sbuf", "psum")}
    out = {kind: round(float(read[memory[moves.source] == kind].sum())) for kind in ("sbuf", "psum")}
    activates = np.array([name.startswith("activat") for name in _names(program)], bool)[
        program.columns.opcode
    ]
    activates &= made.engine == Engine.scalar.value
    evacuates = (made.psum_read > 0) & (made.sbuf_write > 0)
    sizes = _sizes(program)
    return Figured(
        total=clocks["total"] / 1e9,
        active=clocks["active"] / 1e9,
        window=clocks["window"] / 1e9,
        busy={
            name: merged(timeline.start[held], timeline.stop[held]).total / 1e9 for name, held in rows.items()
        },
        spent={name: float(spent[held].sum()) / 1e9 for name, held in rows.items()},
        instructions={
            name: round(float((np.maximum(2 * made.matmuls, 1) * times)[priced.lane == at].sum()))
            for at, name in enumerate(ENGINES)
        },
        matmuls=total(made.matmuls),
        activations=round(float(times[activates].sum())),
        activation_time=float((priced.held * times)[activates].sum()) / 1e9,
        array_flops=total(made.array_flops),
        transpose_flops=total(made.transpose_flops),
        transfers=round(float(times[priced.is_dma].sum())),
        transferred=round(float(read.sum())),
        packet_time=float((priced.transfer * priced.engines * times)[priced.is_dma].sum()) / 1e9,
        hbm_read=round(float(read[moves.loads].sum()) + runs.restored),
        hbm_write=round(float(written[moves.stores].sum()) + runs.spilled),
        sbuf_read=total(made.sbuf_read) + out["sbuf"],
        sbuf_write=total(made.sbuf_write) + into["sbuf"],
        psum_read=total(made.psum_read) + out["psum"],
        psum_write=total(made.psum_write) + into["psum"],
        evacuated=total(made.sbuf_write * evacuates),
        evacuations=round(float(times[evacuates].sum())),
        inputs=sum(sizes[buffer] for _, buffer in program.parameter_buffers),
        outputs=sum(_access_bytes(program, output.access) for output in program.outputs),
        cores=max(len({stream.core for stream in program.streams}), 1),
        hardware=hardware,
    )


def _names(program: Program) -> list[str]:
    return [opcode.name for opcode in program.opcodes]


def _sizes(program: Program) -> dict[int, int]:
    """Bytes of each parameter's buffer."""
    found = {}
    for _, number in program.parameter_buffers:
        buffer = program.buffer(number)
        found[number] = int(np.prod(buffer.shape, dtype=np.int64)) * dtypes.BY_NAME[buffer.dtype].bits // 8
    return found


def _access_bytes(program: Program, number: int) -> int:
    access = program.access(number)
    return access.size * dtypes.BY_NAME[access.dtype].bits // 8

"""From a schedule to what a review records of it: range, bound, lanes, critical path, memory over time."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from nkireview.checks.counts import multiply_accumulates
from nkireview.checks.ran import ran
from nkireview.checks.survey import Survey
from nkireview.drawing import drawn
from nkireview.hardware import Hardware
from nkireview.isa.enums import Engine
from nkireview.isa.row import Flow
from nkireview.isa.table import ROWS
from nkireview.memorymap import BLOCKS, memory_maps
from nkireview.profiling import SPILL, WAITS, slice_table
from nkireview.program.interning import by_opcode, intern
from nkireview.program.program import Program
from nkireview.program.scope import Scope, distinct_calls
from nkireview.record import LaneRecord, LineCost, MemoryCurve, PathStep, TimeRecord
from nkireview.schedule.costs import LANES
from nkireview.schedule.occupancy import Occupancy, occupancy
from nkireview.schedule.timing import Timing
from nkireview.timeline.summary import Summary, summary
from nkireview.timeline.timeline import TRANSFER, Timeline, Wait

BINS = 120
STEPS = 12
LINES = 40
POINTS = 240
SLICES = 3000
"""Slices of a drawn timeline; more are merged."""
UNSAID = frozenset({Wait.nothing, Wait.order})
"""Waits that the critical path does not name: the line above in it says as much."""


def time_record(
    name: str,
    program: Program,
    timing: Timing,
    survey: Survey,
    hardware: Hardware,
    blocks: int = BLOCKS,
    slices: int = SLICES,
) -> TimeRecord:
    """The record of a workload's prediction.

    Its memory maps have about `blocks` rectangles at most, its drawn timeline about so many `slices`.
    """
    timeline = timing.timeline
    found = summary(timeline)
    said = timing.prediction
    return TimeRecord(
        workload=name,
        total_ns=timeline.total_ns,
        low_ns=said.low_ns,
        high_ns=said.high_ns,
        basis=said.basis,
        bound=found.bound.value,
        bound_by=found.bound_by,
        floor_ns=floor_ns(program, survey, hardware),
        overlap=found.overlap,
        lanes=tuple(
            LaneRecord(
                name=lane.name,
                core=lane.core,
                busy_ns=found.busy[at].total,
                share=found.busy[at].total / found.total_ns if found.total_ns else 0.0,
                activity=tuple(round(float(share), 4) for share in found.activity(at, BINS)),
            )
            for at, lane in enumerate(timeline.lanes)
            if len(found.busy[at].start)
        ),
        critical=_critical(program, timeline, found),
        lines=_lines(program, timing, survey, found),
        memory=tuple(
            _memory(program, curve, hardware) for curve in occupancy(program, timing.plan.storage, timeline)
        ),
        maps=memory_maps(program, survey.placed, survey.uses, hardware, timeline, blocks),
        drawn=drawn(slice_table(program, timing, survey, hardware), slices),
        assumed=timeline.assumed,
    )


def floor_ns(program: Program, survey: Survey, hardware: Hardware) -> float:
    """The work at the documented rates, in ns: bytes each moved once over HBM, and the full PE array.

    Loads count what they need once, stores what they write once; matmuls count their documented cycles on an array
    without an idle row or column.
    """
    moved = sum(load.bytes if load.needed is None else float(load.needed) for load in survey.traffic.loaded)
    moved += sum(
        store.bytes if store.distinct is None else float(store.distinct) for store in survey.traffic.stored
    )
    cores = max(len({stream.core for stream in program.streams}), 1)
    memory = moved / (cores * hardware.number("hbm.bandwidth_per_core")) * 1e9
    return max(memory, _array_ns(program, survey, hardware) / cores)


def _array_ns(program: Program, survey: Survey, hardware: Hardware) -> float:
    scope = Scope.of(program)
    cells = hardware.integer("tensor.rows") * hardware.integer("tensor.columns")
    cycles = 0.0
    for code, rows, accesses in by_opcode(program):
        row = scope.rows.get(program.opcodes[code].name)
        if row is None or Flow.contract not in row.flow.values():
            continue
        calls = distinct_calls(scope, row, program.opcodes[code].operands, rows, accesses)
        times = np.bincount(calls.classes.of, weights=survey.times[rows], minlength=len(calls.calls))
        for call, count in zip(calls.calls, times.tolist(), strict=True):
            if not call.imm("is_transpose"):
                each = multiply_accumulates(call) / cells
                cycles += count * each * row.cost.cycles_per_element(call)
    return cycles / hardware.number("tensor.clock_ghz")


def _critical(program: Program, timeline: Timeline, found: Summary) -> tuple[PathStep, ...]:
    """The lines of the critical path with the most time, and what each mostly waited for."""
    columns = program.columns
    ns: dict[tuple[int, int, str], float] = defaultdict(float)
    shown: dict[int, int] = {}
    waits: dict[tuple[int, int, str], dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for at, spent in zip(found.path.slice.tolist(), found.path.ns.tolist(), strict=True):
        instruction = int(timeline.instruction[at])
        lane = timeline.lanes[int(timeline.lane[at])].name
        line, opcode = -1, -1
        if instruction >= 0:
            place, opcode = int(columns.place[instruction]), int(columns.opcode[instruction])
            line = _line(program, place) if place >= 0 else -1
            shown.setdefault(line, place)
        key = line, opcode, lane
        ns[key] += spent
        waits[key][int(timeline.wait[at])] += spent
    whole = sum(ns.values())
    is_dma = {
        at: ROWS[opcode.name].engines.default is Engine.dma for at, opcode in enumerate(program.opcodes)
    }
    is_dma[-1] = False
    steps = []
    for key, spent in sorted(ns.items(), key=lambda item: (-item[1], item[0]))[:STEPS]:
        line, opcode, lane = key
        most = max(waits[key], key=lambda wait: waits[key][wait])
        name = program.opcodes[opcode].name if opcode >= 0 else lane
        if lane == TRANSFER and opcode >= 0 and not is_dma[opcode]:
            name = SPILL
        steps.append(
            PathStep(
                place=program.place_text(shown.get(line, -1)),
                opcode=f"{name} ({'transfer' if lane == TRANSFER else 'issue'})" if is_dma[opcode] else name,
                ns=spent,
                share=spent / whole if whole else 0.0,
                waits="" if Wait(most) in UNSAID else WAITS[Wait(most)],
            )
        )
    return tuple(steps)


def _lines(program: Program, timing: Timing, survey: Survey, found: Summary) -> tuple[LineCost, ...]:
    """Lines by the longest of the times that their instructions take: queue, transfers, critical path."""
    columns, timeline = program.columns, timing.timeline
    times = ran(timing, survey).times
    priced = timing.plan.costs
    lines = np.array([_line(program, place) for place in range(len(program.places))], np.int64)
    line = np.where(columns.place >= 0, np.append(lines, -1)[columns.place], -1)
    classes = intern([line, columns.opcode, priced.lane], len(program))
    held = np.bincount(classes.of, weights=priced.held * times, minlength=len(classes))
    transfer = np.bincount(classes.of, weights=priced.transfer * times, minlength=len(classes))
    counts = np.bincount(classes.of, weights=times, minlength=len(classes))
    critical = np.zeros(len(classes))
    instruction = timeline.instruction[found.path.slice]
    owned = instruction >= 0
    np.add.at(critical, classes.of[instruction[owned]], found.path.ns[owned])
    moved = np.zeros(len(program))
    moved[survey.moves.instruction] = survey.moves.bytes * times[survey.moves.instruction]
    weight = np.bincount(classes.of, weights=moved, minlength=len(classes))
    longest = np.maximum(np.maximum(held, transfer), critical)
    order = sorted(range(len(classes)), key=lambda at: (-longest[at], classes.first[at]))[:LINES]
    return tuple(
        LineCost(
            place=program.place_text(int(columns.place[classes.first[at]])),
            opcode=program.opcodes[int(columns.opcode[classes.first[at]])].name,
            lane=LANES[int(priced.lane[classes.first[at]])],
            instructions=int(counts[at]),
            held_ns=float(held[at]),
            transfer_ns=float(transfer[at]),
            critical_ns=float(critical[at]),
            bytes=int(weight[at]),
        )
        for at in order
    )


def _line(program: Program, place: int) -> int:
    """A number for the file and line of a place, whatever call led there; -1 where it has none."""
    frames = program.places[place]
    return frames[0].file << 32 | frames[0].line if frames else -1


def _memory(program: Program, curve: Occupancy, hardware: Hardware) -> MemoryCurve:
    psum = curve.memory.name == "psum"
    at, used = _thinned(curve)
    place = int(program.columns.place[curve.peak_at]) if curve.peak_at >= 0 else -1
    return MemoryCurve(
        memory="PSUM" if psum else "SBUF",
        core=curve.core,
        usable=hardware.psum_bytes if psum else hardware.sbuf_usable_bytes,
        peak=curve.peak,
        peak_place=program.place_text(place),
        at_ns=at,
        used=used,
    )


def _thinned(curve: Occupancy) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """The curve in at most POINTS steps; a step keeps the highest level inside it."""
    if len(curve.at_ns) <= POINTS:
        return tuple(curve.at_ns.tolist()), tuple(curve.used.tolist())
    starts = np.linspace(0, len(curve.at_ns), POINTS, endpoint=False).astype(np.int64)
    return tuple(curve.at_ns[starts].tolist()), tuple(np.maximum.reduceat(curve.used, starts).tolist())

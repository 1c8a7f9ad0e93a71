"""Rules of the whole: what keeps engines and DMAs from running at the same time, and how far the bound is."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from nkireview.program.interning import Ints
from nkireview.program.program import MEMORIES
from nkireview.rules.case import LONG_NS, Case, Floats, in_time, scheduled, share
from nkireview.rules.finding import Dimension, Evidence, Severity
from nkireview.rules.rule import LEAST_NS, SHARE, Draft, Rule
from nkireview.timeline.timeline import Wait

_PERF = "aws-neuron-sdk nki/deep-dives/nki_perf_guide.rst"
FAR = 3.0
"""Times the floor from which on the distance is mentioned."""
IDLE = 0.5
"""Share of the predicted time below which no queue is called busy."""


def _single_buffered(case: Case) -> Iterator[Draft]:
    """Tiles whose next content waits for the readers of the last one."""
    waiting, places, gaps = _reuse_waits(case)
    if not len(waiting):
        return
    lost = np.bincount(places, weights=gaps)
    # Waits of different queues overlap, so their sum is an upper bound.
    if lost.sum() < LEAST_NS or lost.sum() < SHARE * case.total_ns:
        return
    main = np.flatnonzero(lost >= 0.02 * lost.sum())
    buffers = np.flatnonzero(np.isin(case.survey.stored.of_buffer, main))
    gain = case.timing.stake(unshared=frozenset(buffers.tolist()))
    if not case.worth(gain):
        return
    order = main[np.argsort(-lost[main], kind="stable")]
    first = [int(np.flatnonzero(case.survey.stored.of_buffer == place)[0]) for place in order]
    names = case.labels(first)
    stalled = waiting[np.isin(places, main)]
    fits = _fits(case, buffers)
    yield case.draft(
        Severity.major if fits else Severity.minor,
        f"single-buffered: one tile for every iteration ({names}), so {len(stalled)} instructions wait until "
        f"the last content is read; {share(gain, case.total_ns)} of the predicted time",
        stalled,
        gain_ns=gain,
        group=names,
        change=f"allocate {names} inside the loop (or two of each, used in turn), so that the next "
        "iteration fills one while this one reads the other",
    )


def _plain(kind: str) -> str:
    return kind.replace("the SBUF tile made at", "the tile made at").replace(
        "the PSUM tile made at", "the tile made at"
    )


def _reuse_waits(case: Case) -> tuple[Ints, Ints, Floats]:
    """Instructions that waited for the reader or writer of what they overwrite, the place, and how long (ns)."""
    line, used = case.timing.timeline, case.survey.uses
    held = np.flatnonzero(
        np.isin(line.wait, [int(Wait.reuse), int(Wait.rewrite)])
        & (line.blocker >= 0)
        & (line.instruction >= 0)
    )
    if not len(held):
        return held, held, np.zeros(0)
    gap = _idle_before(case)[held]
    waiting = line.instruction[held].astype(np.int64)
    blocking = line.instruction[line.blocker[held]].astype(np.int64)
    count = case.survey.stored.count + 1
    written = np.unique(used.instruction[used.writes] * count + used.place[used.writes])
    touched = np.unique(used.instruction * count + used.place)
    start = np.searchsorted(written, waiting * count)
    stop = np.searchsorted(written, (waiting + 1) * count)
    row = np.repeat(np.arange(len(held)), stop - start)
    at = np.concatenate([np.arange(a, b) for a, b in zip(start, stop, strict=True)]).astype(np.int64)
    place = written[at] % count
    only = used.reads & ~used.writes
    read = np.unique(used.instruction[only] * count + used.place[only])
    shared = np.isin(blocking[row] * count + place, touched) & _on_chip(case, place)
    shared &= ~np.isin(waiting[row] * count + place, read)  # what is also read waits for its content
    return waiting[row[shared]], place[shared], gap[row[shared]]


def _on_chip(case: Case, places: Ints) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    stored = case.survey.stored
    chip = np.zeros(stored.count + 1, bool)
    memories = np.array([memory.on_chip for memory in MEMORIES])[case.program.columns.buffer_memory]
    chip[stored.of_buffer[memories]] = True
    found: np.ndarray[tuple[int], np.dtype[np.bool_]] = chip[places]
    return found


def _idle_before(case: Case) -> Floats:
    """For each slice the ns since the slice before it in its lane ended."""
    line = case.timing.timeline
    gap = np.zeros(len(line))
    for lane in line.lanes:
        rows = line.of(lane)
        before = np.append(0.0, np.maximum.accumulate(line.stop[rows])[:-1]) if len(rows) else np.zeros(0)
        gap[rows] = np.maximum(line.start[rows] - before, 0.0)
    return gap


def _fits(case: Case, buffers: Ints) -> bool:
    """True where SBUF and PSUM have room for one more of each buffer."""
    columns = case.program.columns
    for space in case.survey.space:
        mine = columns.buffer_memory[buffers] == MEMORIES.index(space.memory)
        sizes = {held.buffer: held.bytes for held in space.alive}
        more = sum(sizes.get(int(b), 0) for b in buffers[mine])
        if space.packed + more > space.usable:
            return False
    return True


def _latency(case: Case) -> Iterator[Draft]:
    """No queue is busy for half of the time."""
    line = case.timing.timeline
    if case.total_ns < LONG_NS:
        return
    busy = {
        lane: float((line.stop - line.start)[line.of(lane)].sum())
        for lane in line.lanes
        if lane.name != "dma"
    }
    busiest = max(busy, key=lambda lane: busy[lane], default=None)
    moving = _covered(case)
    if busiest is None or max(busy[busiest], moving) > IDLE * case.total_ns:
        return
    last = int(np.argmax(line.ready))
    path: list[int] = []
    while last >= 0 and len(path) <= len(line):
        path.append(last)
        last = int(line.blocker[last])
    instructions = np.unique(line.instruction[path])
    yield Draft(
        f"no queue is busy for half of {in_time(case.total_ns)}: {busiest.name} for "
        f"{share(busy[busiest], case.total_ns)}, DMA transfers for {share(moving, case.total_ns)}; each step waits for "
        "the one before",
        case.places(instructions[instructions >= 0].astype(np.int64)),
        workload=case.name,
        group="latency",
    )


def _covered(case: Case) -> float:
    """The ns during which some DMA transfers data."""
    line = case.timing.timeline
    rows = np.concatenate(
        [line.of(lane) for lane in line.lanes if lane.name == "dma"] or [np.zeros(0, np.int64)]
    )
    if not len(rows):
        return 0.0
    order = rows[np.argsort(line.start[rows], kind="stable")]
    start, stop = line.start[order], np.maximum.accumulate(line.stop[order])
    return float((stop - np.maximum(start, np.append(0.0, stop[:-1]))).clip(0).sum())


def _far(case: Case) -> Iterator[Draft]:
    """The predicted time against what bandwidth and arithmetic allow."""
    traffic, work = case.survey.traffic, case.survey.work
    cores = len({stream.core for stream in case.program.streams}) or 1
    distinct = sum(item.bytes if item.distinct is None else item.distinct for item in traffic.stored)
    moved = (traffic.needed_bytes + distinct) / case.figures.number("hbm.bandwidth_per_core") * 1e9 / cores
    products = float((work.products * work.times).sum())
    computed = 2 * products / case.figures.number("peak.tensor.bf16") * 1e9 / cores
    floor = max(moved, computed)
    if not floor or case.total_ns < max(FAR * floor, LONG_NS):
        return
    what = "HBM traffic that is needed" if moved >= computed else "matmuls at the bfloat16 peak"
    yield Draft(
        f"{in_time(case.total_ns)} is {case.total_ns / floor:.3g} times the floor of {in_time(floor)} for {what}",
        workload=case.name,
        group="floor",
    )


_PERFORMANCE = Dimension.performance

RULES = (
    Rule(
        "NKR160",
        "One tile serves every iteration: the next cannot begin before the last is read",
        Severity.major,
        _PERFORMANCE,
        Evidence.scheduled,
        "Engines and DMAs run at the same time only on different memory. A tile that every iteration uses again makes "
        "whoever fills it wait for whoever reads it, in every iteration.",
        scheduled(_single_buffered),
        citation=f"{_PERF}:329-395",
        suppresses=frozenset({"NKR162", "NKR163"}),
    ),
    Rule(
        "NKR162",
        "No queue is busy: the time is latency",
        Severity.note,
        _PERFORMANCE,
        Evidence.scheduled,
        "A DMA takes about 2 us from issue to data, an engine some 100 ns until its result can be read. A chain of "
        "steps that wait for each other adds these up.",
        scheduled(_latency),
        citation=f"{_PERF}:272-395",
        change="let independent tiles overlap: issue loads ahead, and interleave two tiles on each engine",
    ),
    Rule(
        "NKR163",
        "The predicted time is far from what the hardware allows",
        Severity.note,
        _PERFORMANCE,
        Evidence.scheduled,
        "The floor counts each needed byte once at the HBM bandwidth and each product once at the PE array's peak; no "
        "schedule is faster.",
        scheduled(_far),
        citation=f"{_PERF}:30-70",
        change="see which queue is busiest, and what it waits for, in the timeline",
    ),
)

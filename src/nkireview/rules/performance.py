"""Rules of the whole: what keeps engines and DMAs from running at the same time, and how far the bound is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from nkireview.checks.repetition import repetition
from nkireview.program.interning import Ints
from nkireview.program.program import MEMORIES
from nkireview.rules.case import LONG_NS, SHOWN, Case, Floats, in_time, scheduled, share
from nkireview.rules.finding import Dimension, Evidence, Severity
from nkireview.rules.lines import distinct
from nkireview.rules.rule import LEAST_NS, SHARE, Draft, Rule
from nkireview.schedule.schedule import schedule
from nkireview.timeline.timeline import Timeline, Wait

_PERF = "aws-neuron-sdk nki/deep-dives/nki_perf_guide.rst"
FAR = 3.0
"""Times the floor from which on the distance is mentioned."""
ROUNDS = 6
"""Times that a schedule without the waits found so far is asked for the next ones."""
IDLE = 0.5
"""Share of the predicted time below which no queue is called busy."""


@dataclass(frozen=True, eq=False)
class _Binding:
    """Storage places whose next content waits for the last one, and the ns saved without these waits.

    stalled: who waited; `stalled_at` and `awaited`: at which place and for whom.
    """

    places: Ints
    stalled: Ints
    stalled_at: Ints
    awaited: Ints
    gain_ns: float

    def of(self, chosen: NDArray[np.bool_], gain_ns: float) -> _Binding:
        """Some of the places, with the gain of these alone."""
        rows = np.isin(self.stalled_at, self.places[chosen])
        return _Binding(
            self.places[chosen], self.stalled[rows], self.stalled_at[rows], self.awaited[rows], gain_ns
        )


def _single_buffered(case: Case) -> Iterator[Draft]:
    """Tiles whose next content waits for the readers of the last one."""
    found = _binding(case)
    if found is None or not case.worth(found.gain_ns):
        return
    shared = np.array([_shared(case, place) for place in found.places.tolist()], bool)
    if shared.all() or not shared.any():
        yield _waits(case, found, bool(shared.all()))
        return
    apart = [
        (found.of(kind, case.timing.stake(unshared=_held_by(case, found.places[kind]))), by_address)
        for kind, by_address in ((~shared, False), (shared, True))
    ]
    alone = [(part, by_address) for part, by_address in apart if case.worth(part.gain_ns)]
    if not alone:
        yield _waits(case, found, bool(2 * shared.sum() > len(shared)))
    for part, by_address in alone:
        yield _waits(case, part, by_address)


def _binding(case: Case) -> _Binding | None:
    """The places that bind one after the other: once one has memory of its own, the next is what is waited for."""
    line, total = case.timing.timeline, case.total_ns
    least = max(LEAST_NS, SHARE * total)
    named = stalled = stalled_at = awaited = np.zeros(0, np.int64)
    for _ in range(ROUNDS):
        waiting, blocking, places, gaps = _reuse_waits(case, line)
        # Waits of different queues overlap, so their sum is an upper bound.
        if gaps.sum() < least:
            break
        lost = np.bincount(places, weights=gaps)
        main = np.flatnonzero(lost >= 0.02 * lost.sum())
        kept = np.isin(places, main)
        named = np.append(named, main[np.argsort(-lost[main], kind="stable")])
        stalled, stalled_at = np.append(stalled, waiting[kept]), np.append(stalled_at, places[kept])
        awaited = np.append(awaited, blocking[kept])
        line = schedule(case.timing.plan, None, _held_by(case, named))
    if not len(named):
        return None
    return _Binding(named, stalled, stalled_at, awaited, max(0.0, total - line.total_ns))


def _held_by(case: Case, places: Ints) -> frozenset[int]:
    """The buffers that stand at storage places."""
    return frozenset(np.flatnonzero(np.isin(case.survey.stored.of_buffer, places)).tolist())


def _waits(case: Case, found: _Binding, by_address: bool) -> Draft:
    """One finding for storage places that instructions waited for, in the order in which they bind."""
    buffers = np.array(sorted(_held_by(case, found.places)), np.int64)
    first = [int(np.flatnonzero(case.survey.stored.of_buffer == place)[0]) for place in found.places]
    count, gain = len(np.unique(found.stalled)), found.gain_ns
    lines = case.places(np.unique(found.awaited))
    until = f" at {lines[0]}" if lines else ""
    fits = _fits(case, buffers)
    if by_address:
        names = case.labels(buffers.tolist())
        message = f"tiles share an address ({names}), so {count} instructions wait until the one before is read{until}"
        change = (
            f"give each of {names} an address of its own: there is room"
            if fits
            else f"give the tile among {names} that is filled last the address of one that is free earlier"
        )
    else:
        names = case.labels(first)
        message = (
            f"single-buffered: one tile for every iteration ({names}), so {count} instructions wait until the last "
            f"content is read{until}"
        )
        change = (
            f"allocate {names} inside the loop (or two of each, used in turn), so that the next iteration fills one "
            "while this one reads the other"
        )
        if not fits:
            change += "; smaller tiles make room for that"
    draft = case.draft(
        Severity.major if fits else Severity.minor,
        f"{message}; {share(gain, case.total_ns)} of the predicted time",
        found.stalled,
        gain_ns=gain,
        group="shared address" if by_address else "single-buffered",
        change=change,
    )
    return replace(draft, places=distinct((*draft.places, *lines))[:SHOWN])


def _shared(case: Case, place: int) -> bool:
    """True where tiles of several names or lines lie at a storage place, or overlap it, by explicit address."""
    stored = case.survey.stored
    held = [case.program.buffer(int(at)) for at in np.flatnonzero(stored.of_buffer == place)]
    known = {(re.sub(r"\d+", "", buffer.name), case.program.place_text(buffer.place)) for buffer in held}
    return place in stored.touching or len(known) > 1


def _reuse_waits(case: Case, line: Timeline) -> tuple[Ints, Ints, Ints, Floats]:
    """Instructions that waited, for which reader or writer of what they overwrite, the place, and how long (ns)."""
    used = case.survey.uses
    held = np.flatnonzero(
        np.isin(line.wait, [int(Wait.reuse), int(Wait.rewrite)])
        & (line.blocker >= 0)
        & (line.instruction >= 0)
    )
    if not len(held):
        none = np.zeros(0, np.int64)
        return none, none, none, np.zeros(0)
    gap = _idle_before(case, line)[held]
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
    held = row[shared]
    return waiting[held], blocking[held], place[shared], gap[held]


def _on_chip(case: Case, places: Ints) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    stored = case.survey.stored
    chip = np.zeros(stored.count + 1, bool)
    memories = np.array([memory.on_chip for memory in MEMORIES])[case.program.columns.buffer_memory]
    chip[stored.of_buffer[memories]] = True
    found: np.ndarray[tuple[int], np.dtype[np.bool_]] = chip[places]
    return found


def _idle_before(case: Case, line: Timeline) -> Floats:
    """For each slice the ns since the slice before it in its queue ended; stores are issued on a queue of their own."""
    gap = np.zeros(len(line))
    stores = np.append(case.timing.plan.costs.stores, False)[line.instruction]
    for lane in line.lanes:
        held = line.of(lane)
        for rows in (held[stores[held]], held[~stores[held]]):
            if len(rows):
                before = np.append(0.0, np.maximum.accumulate(line.stop[rows])[:-1])
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
        f"no queue is busy for half of the predicted time: {busiest.name} for "
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
    latency = 2 * case.figures.number("dma.fixed_latency_ns")
    floor = max(moved, computed) + latency
    if not max(moved, computed) or case.total_ns < max(FAR * floor, LONG_NS):
        return
    what = "HBM traffic that is needed" if moved >= computed else "matmuls at the bfloat16 peak"
    yield Draft(
        f"the predicted time is {case.total_ns / floor:.3g} times the floor of {in_time(floor)} for {what} and "
        "the latency of a load and a store",
        workload=case.name,
        group="floor",
    )


def _repeated(case: Case) -> Iterator[Draft]:
    """What an earlier instruction has already computed from the same contents, and could have been kept."""
    found = repetition(case.program, case.survey.stored)
    again = found.instruction
    loads = np.isin(again, case.survey.moves.instruction)
    free = case.free_sbuf
    if loads.all() or found.kept_bytes > free:
        return
    gain = case.stake(again, 0.0)
    # what loads alone would save is told by the rule about re-loading
    if not case.worth(gain) or not case.worth(gain - case.stake(again[loads], 0.0)):
        return
    opcodes = case.program.columns.opcode[again]
    counts = np.bincount(opcodes, minlength=len(case.program.opcodes))
    kinds = ", ".join(
        f"{counts[code]} x {case.program.opcodes[code].name}"
        for code in np.argsort(-counts, kind="stable").tolist()
        if counts[code]
    )
    moved = case.survey.moves.source[np.isin(case.survey.moves.instruction, again)]
    names = case.labels(np.unique(moved).tolist())
    of = f" of {names}" if names else ""
    yield case.draft(
        Severity.major,
        f"{len(again)} instructions do again what was done before on the same inputs{of}: {kinds}; "
        f"{share(gain, case.total_ns)} of the predicted time",
        again,
        gain_ns=gain,
        group="repeated",
        change=f"do it once before the loop and keep the results in SBUF: {found.kept_bytes:,} bytes a partition, "
        f"{free:,} are free",
    )


_PERFORMANCE = Dimension.performance

RULES = (
    Rule(
        "NKR160",
        "One tile serves several uses: the next cannot begin before the last is read",
        Severity.major,
        _PERFORMANCE,
        Evidence.scheduled,
        "Engines and DMAs run at the same time only on different memory. A tile that every iteration uses again, or an "
        "address that several tiles have, makes whoever fills it wait for whoever reads what was there.",
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
        "The floor counts each needed byte once at the HBM bandwidth or each product once at the PE array's peak, and "
        "the latency of one load and one store; no schedule is faster.",
        scheduled(_far),
        citation=f"{_PERF}:30-70",
        change="see which queue is busiest, and what it waits for, in the timeline",
    ),
    Rule(
        "NKR164",
        "The same work is done again on inputs that have not changed",
        Severity.major,
        _PERFORMANCE,
        Evidence.scheduled,
        "An instruction whose opcode, settings and inputs are those of an earlier one makes what is there already, "
        "and costs its time again in every iteration. What does not depend on the iteration belongs before the loop, "
        "its result in a tile of its own.",
        scheduled(_repeated),
        citation=f"{_PERF}:75-110",
    ),
)

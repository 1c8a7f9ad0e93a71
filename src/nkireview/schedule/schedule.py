"""The schedule: engines as in-order queues, DMAs over their engines and HBM, instructions held up by what they touch.

Every queue takes its instructions in program order, or in the order that a compiler would choose (`compiled`). An
instruction starts once its queue is free, what it reads is there, and what it overwrites is no longer needed. A DMA
holds the queue that issues it, then after a fixed latency the DMA engines of its partitions, and HBM. Loads and stores
that name no queue wait in two queues, which share their pace.
Where cores meet, each waits for the last of them.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from nkireview.isa.table import ROWS
from nkireview.program.program import Program
from nkireview.program.scope import Scope
from nkireview.program.storage import READS, WRITES, Storage, storage
from nkireview.schedule.cells import Cells, cells
from nkireview.schedule.clock import Clock, Pace
from nkireview.schedule.costs import DMA, LANES, PORTS, STORES, SYNC, TENSOR, Costs, costs
from nkireview.schedule.fusing import idle_fills
from nkireview.schedule.parameters import Figures, Parameters
from nkireview.schedule.repeats import Step, steps
from nkireview.schedule.residence import Fetch
from nkireview.schedule.reuse import Arrivals, Places, reuse
from nkireview.schedule.touches import RegisterCells, cores_of, touches
from nkireview.schedule.transfers import Transfers
from nkireview.schedule.uses import uses
from nkireview.timeline.timeline import Lane, Timeline, Wait

STEPS = 100_000
"""Most steps into which the busy time of the DMA engines is cut."""
_NOTHING, _ORDER, _DATA, _REUSE, _REWRITE, _, _, _NAMED, _PEER, _PORT = (int(wait) for wait in Wait)
Meeting = tuple[float, int]
"""When a core comes to a meeting, and the slice that it waited for until then."""


@dataclass(frozen=True, eq=False)
class Changes:
    """What a compiler runs otherwise than it is written; nothing by default.

    `order`: the instructions in the order in which their queues take them. `dropped` need not run, and who waits for
    one of them waits for what `stands_in` names. `fetches`: instruction -> what comes into SBUF again before it.
    """

    order: Sequence[int] | None = None
    dropped: frozenset[int] = frozenset()
    stands_in: Mapping[int, Sequence[int]] = field(default_factory=dict)
    fetches: Mapping[int, Sequence[Fetch]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Plan:
    """What of a program does not change between schedules: costs, cells and who takes over whose memory."""

    program: Program
    storage: Storage
    costs: Costs
    cells: Cells
    arrivals: Arrivals
    steps: tuple[tuple[Step, ...], ...]
    meetings: tuple[int, ...]  # instructions by which cores meet
    bandwidth: float  # HBM bytes a ns of one core
    start_ns: float  # from the issue of a DMA to its start
    dma_engines: int
    dma_rate: float  # bytes a ns of all engines
    step_ns: float
    assumed: tuple[str, ...] = ()
    crowded: tuple[str, ...] = ()
    """What is assumed of memories that cannot hold all that is alive."""
    changes: Changes = Changes()
    pace: Pace | None = None

    @classmethod
    def of(cls, program: Program, parameters: Parameters, trips: Mapping[int, int]) -> Plan:
        """Look at every instruction once; ProgramError for one without a row or an unknown target."""
        scope = Scope.of(program, ROWS)
        figures = Figures(scope.hardware)
        held = storage(program, ROWS)
        arrivals, full = reuse(program, held, scope.hardware)
        order, unknown = steps(program, trips)
        priced = costs(
            scope, figures, parameters, {"yes": True, "no": False}.get(parameters.value("static_dmas"))
        )
        bandwidth = figures.number("hbm.bandwidth_per_core") / 1e9
        start_ns = figures.number("dma.fixed_latency_ns")
        engines, least = (
            int(figures.number("dma.engines_per_core")),
            float(parameters.value("transfer_step_ns")),
        )
        crowded = tuple(
            f"{memory.name.upper()} cannot hold all that is alive at once: spills are not in the prediction"
            for memory in full
        )
        return cls(
            program=program,
            storage=held,
            costs=priced,
            cells=cells(scope, held, int(parameters.value("cells"))),
            arrivals=arrivals,
            steps=order,
            meetings=_meetings(program),
            bandwidth=bandwidth,
            start_ns=start_ns,
            dma_engines=engines,
            dma_rate=engines * figures.number("dma.bytes_per_ns"),
            step_ns=max(least, float((priced.transfer * priced.engines).sum()) / engines / STEPS),
            assumed=(*unknown, *_assumed(program, figures), *figures.assumed),
            crowded=crowded,
            changes=Changes(
                dropped=idle_fills(program, priced, uses(program, held), Places.of(program, held))
            ),
            pace=Pace.of(figures),
        )


def schedule(
    plan: Plan, scale: NDArray[np.float64] | None = None, unshared: Collection[int] = ()
) -> Timeline:
    """Place every instruction in time; see `schedule.timing.Timing` for `scale` and `unshared`."""
    program = plan.program
    cores = cores_of(program)
    slices = _Slices()
    inputs = _Inputs.of(plan, scale, unshared)
    state = _State(inputs.cells)
    running = {number: _core(plan, inputs, state, slices, number, core) for number, core in enumerate(cores)}
    arrived: dict[int, Meeting] = {}
    while running:
        met = max(arrived.values(), default=None)
        arrived = {}
        for number, core_run in tuple(running.items()):
            try:
                arrived[number] = core_run.send(met)
            except StopIteration:
                del running[number]
    return slices.timeline(program.header.target, cores, (*plan.crowded, *plan.assumed))


def _core(
    plan: Plan, inputs: _Inputs, state: _State, slices: _Slices, number: int, core: int
) -> Generator[Meeting, Meeting | None, None]:
    """Run the streams of a core; where it meets others, say when it comes, and be told when the last of them does."""
    queues = _Queues(Transfers(plan.dma_engines, plan.step_ns))
    queues.clock = plan.pace.clock() if plan.pace else None
    marks: dict[int, float] = {}
    base, meetings = number * len(LANES), plan.meetings

    def run(start: int, stop: int, met: Meeting | None = None, *, dry: bool = False) -> Meeting:
        return _run(plan, inputs, state, queues, slices, base, range(start, stop), met, dry)

    if plan.changes.order is not None:
        _run(plan, inputs, state, queues, slices, base, plan.changes.order, None, dry=False)
        return
    for stream, order in zip(plan.program.streams, plan.steps, strict=True):
        if stream.core != core:
            continue
        for step in order:
            if step.extra:
                slices.stretch(queues.latest_slice, (queues.latest - marks[step.mark]) * step.extra)
                queues.pass_time((queues.latest - marks[step.mark]) * step.extra, len(slices.lane) - 1)
            elif step.mark >= 0:
                marks[step.mark] = queues.latest
                for register in step.waits:
                    cell = inputs.register_cell(number, register)
                    queues.hold(state.written[cell], state.writer[cell])
            else:
                at = step.start
                for meeting in meetings[bisect_left(meetings, at) : bisect_left(meetings, step.stop)]:
                    run(at, meeting)
                    met = yield run(meeting, meeting + 1, dry=True)
                    run(meeting, meeting + 1, met)
                    at = meeting + 1
                run(at, step.stop)


def _assumed(program: Program, figures: Figures) -> tuple[str, ...]:
    """What is taken for granted of instructions by which ranks meet."""
    if not any(opcode.name in ROWS and ROWS[opcode.name].meets == "ranks" for opcode in program.opcodes):
        return ()
    hop = figures.number("dma.ring_hop_ns") / 1000
    return (
        f"ranks come to a collective at one time, a step of its ring takes {hop:g} us (1 to 2 are documented), "
        "and links are as fast as DMA engines",
    )


def _meetings(program: Program) -> tuple[int, ...]:
    """The instructions by which cores meet."""
    meet = np.array(
        [opcode.name in ROWS and ROWS[opcode.name].meets == "cores" for opcode in program.opcodes], bool
    )
    return tuple(np.flatnonzero(meet[program.columns.opcode]).tolist()) if meet.any() else ()


class _Slices:
    """The columns of a Timeline, growing."""

    def __init__(self) -> None:
        self.lane, self.wait = array("b"), array("b")
        self.instruction, self.blocker = array("i"), array("i")
        self.start, self.stop, self.ready = array("d"), array("d"), array("d")

    def stretch(self, last: int, ns: float) -> None:
        """The later trips of a loop, as one slice after the last of its pass, on the same lane."""
        start = max(self.stop[last], self.ready[last])
        self.lane.append(self.lane[last])
        self.instruction.append(-1)
        self.start.append(start)
        self.stop.append(start + ns)
        self.ready.append(start + ns)
        self.wait.append(_ORDER)
        self.blocker.append(last)

    def timeline(self, target: str, cores: Sequence[int], assumed: tuple[str, ...]) -> Timeline:
        """The finished Timeline."""
        return Timeline(
            target=target,
            lanes=tuple(Lane(core, name) for core in cores for name in LANES),
            lane=np.array(self.lane, np.int8),
            instruction=np.array(self.instruction, np.int32),
            start=np.array(self.start, np.float64),
            stop=np.array(self.stop, np.float64),
            ready=np.array(self.ready, np.float64),
            wait=np.array(self.wait, np.int8),
            blocker=np.array(self.blocker, np.int32),
            assumed=assumed,
        )


class _State:
    """For each cell when its last write can be read, by which slice and queue, and when its last reader is done."""

    def __init__(self, count: int) -> None:
        self.written = [0.0] * count
        self.writer = [-1] * count
        self.queue = [-1] * count
        self.read = [0.0] * count
        self.reader = [-1] * count
        self.last: dict[int, tuple[float, int]] = {}  # instruction -> its last result and slice


class _Queues:
    """When each queue of a core is free, which slice held it last, and what of its DMAs is left."""

    def __init__(self, transfers: Transfers) -> None:
        self.free = [0.0] * (len(LANES) + 1)
        self.last = [-1] * (len(LANES) + 1)
        self.transfers = transfers
        self.clock: Clock | None = None
        self.ports = [(0.0, 0.0, -1, -1)] * len(PORTS)  # start, stop, queue and slice of who had each last
        self.issued = 0.0
        self.latest = 0.0
        self.latest_slice = -1

    def hold(self, until: float, holder: int) -> None:
        """Nothing new starts before; `holder` is the slice that is waited for."""
        self.last = [
            holder if free < until else last for free, last in zip(self.free, self.last, strict=True)
        ]
        self.free = [max(free, until) for free in self.free]

    def pass_time(self, ns: float, holder: int) -> None:
        """Nothing new starts for so long; `holder` is the slice that stands for it."""
        self.latest += ns
        self.latest_slice = holder
        self.issued += ns
        self.free = [self.latest] * len(self.free)
        self.last = [holder] * len(self.last)


@dataclass(frozen=True, eq=False)
class _Inputs:
    """The plan's columns as lists, with scaled costs."""

    queue: list[int]
    held: list[float]
    latency: list[float]
    transfer: list[float]
    hbm: list[float]
    engines: list[int]
    is_dma: list[bool]
    ports: list[int]
    skipped: frozenset[int]
    own: frozenset[int]
    at: list[int]
    cell: list[int]
    use: list[int]
    depends: Mapping[int, Sequence[int]]
    registers: RegisterCells
    cells: int

    def register_cell(self, core: int, register: int) -> int:
        """The cell of a register of the core at that position."""
        return self.registers.cell(core, register)

    @classmethod
    def of(cls, plan: Plan, scale: NDArray[np.float64] | None, unshared: Collection[int]) -> _Inputs:
        priced, columns = plan.costs, plan.program.columns
        factor = np.ones(len(plan.program)) if scale is None else np.asarray(scale, np.float64)
        queue = np.where(priced.is_dma & priced.stores & (priced.lane == SYNC), STORES, priced.lane)
        of_buffer, of_place = plan.storage.of_buffer, plan.cells.of_place
        found = touches(plan.program, plan.storage, plan.cells)
        explicit = np.flatnonzero(np.diff(columns.dependency_at))
        return cls(
            queue=queue.tolist(),
            held=(priced.held * factor).tolist(),
            latency=priced.latency.tolist(),
            transfer=(priced.transfer * factor).tolist(),
            hbm=(priced.hbm_bytes * factor / plan.bandwidth).tolist(),
            engines=priced.engines.tolist(),
            is_dma=priced.is_dma.tolist(),
            ports=priced.ports.tolist(),
            skipped=frozenset(np.flatnonzero(factor == 0).tolist()) | plan.changes.dropped,
            own=frozenset(cell for buffer in unshared for cell in of_place[int(of_buffer[buffer])]),
            at=found.at.tolist(),
            cell=found.cell.tolist(),
            use=found.use.tolist(),
            depends=dict(plan.changes.stands_in)
            | {
                index: [
                    producer
                    for producer in columns.dependency[
                        columns.dependency_at[index] : columns.dependency_at[index + 1]
                    ].tolist()
                    if producer < index
                ]
                + list(plan.changes.stands_in.get(index, ()))
                for index in explicit.tolist()
            },
            registers=found.registers,
            cells=found.count,
        )


def _run(
    plan: Plan,
    inputs: _Inputs,
    state: _State,
    queues: _Queues,
    slices: _Slices,
    base: int,
    indices: Iterable[int],
    met: Meeting | None,
    dry: bool,
) -> Meeting:
    """Place instructions on the queues of a core; one long loop, since it runs for every instruction.

    met: nothing starts before the other cores have come. dry: place nothing, but say when the first one could start.
    """
    floor, later = met or (0.0, -1)
    written, writer, of_queue, read, reader = (
        state.written,
        state.writer,
        state.queue,
        state.read,
        state.reader,
    )
    free, last = queues.free, queues.last
    arrivals, of_place = plan.arrivals, plan.cells.of_place
    touched_at, cells_of, uses, own = inputs.at, inputs.cell, inputs.use, inputs.own
    skipped, depends = inputs.skipped, inputs.depends
    is_dma, queue_of, held_of, latency_of = inputs.is_dma, inputs.queue, inputs.held, inputs.latency
    transfers, transfer_of, engines_of, hbm_of = queues.transfers, inputs.transfer, inputs.engines, inputs.hbm
    clock, ports, ports_of = queues.clock, queues.ports, inputs.ports
    stands_in = plan.changes.stands_in
    start_ns, fetches = plan.start_ns, plan.changes.fetches
    noted = bool(inputs.depends or fetches)
    number = len(slices.lane)
    for index in indices:
        if index in skipped:
            continue
        there, bringer = 0.0, -1
        if index in fetches:
            there, bringer = _bring(plan, inputs, state, queues, slices, base, fetches[index])
            number = len(slices.lane)
        queue = queue_of[index]
        at, by = free[queue], last[queue]
        wait = _ORDER if by >= 0 else _NOTHING
        dma = is_dma[index]
        if dma and queue >= SYNC and queues.issued > at:
            at = queues.issued
        touched = range(touched_at[index], touched_at[index + 1])
        for slot in touched:
            cell, use = cells_of[slot], uses[slot]
            if written[cell] > at and (use == READS or of_queue[cell] != queue):
                if use & READS:
                    at, wait, by = written[cell], _DATA, writer[cell]
                elif cell not in own:
                    at, wait, by = written[cell], _REWRITE, writer[cell]
            if use & WRITES and read[cell] > at and cell not in own:
                at, wait, by = read[cell], _REUSE, reader[cell]
        if index in arrivals:
            for place, before in arrivals[index]:
                if own and own.issuperset(of_place[place]):
                    continue
                for earlier in before:
                    for cell in of_place[earlier]:
                        if read[cell] > at:
                            at, wait, by = read[cell], _REUSE, reader[cell]
                        if written[cell] > at:
                            at, wait, by = written[cell], _REUSE, writer[cell]
        if index in depends:
            for earlier in depends[index]:
                ready, found = state.last.get(earlier, (0.0, -1))
                if ready > at:
                    at, by = ready, found
                    wait = _DATA if earlier in stands_in.get(index, ()) else _NAMED
        if there > at:
            at, wait, by = there, _DATA, bringer
        if dry:
            return at, by
        if floor > at:
            at, wait, by = floor, _PEER, later
        held = held_of[index]
        if ports_of[index] and not dma:
            for way, (bit, sharers) in enumerate(PORTS):
                if ports_of[index] & bit and queue in sharers:
                    start, end, owner, holder = ports[way]
                    if owner != queue and start < at + held and end > at:
                        at, wait, by = end, _PORT, holder
                    ports[way] = at, at + held, queue, number
        if queue == TENSOR and clock is not None and not dma:
            held = clock.held(at, held)
        stop = at + held
        free[queue], last[queue] = stop, number
        slices.lane.append(base + (SYNC if queue == STORES else queue))
        slices.instruction.append(index)
        slices.start.append(at)
        slices.stop.append(stop)
        slices.wait.append(wait)
        slices.blocker.append(by)
        if dma:
            if queue >= SYNC:
                queues.issued += held
            slices.ready.append(stop)
            begin = stop + start_ns
            done, wait = transfers.place(begin, transfer_of[index], engines_of[index], hbm_of[index])
            ready = done + latency_of[index]
            slices.lane.append(base + DMA)
            slices.instruction.append(index)
            slices.start.append(begin)
            slices.stop.append(done)
            slices.ready.append(ready)
            slices.wait.append(wait)
            slices.blocker.append(number)
            number += 1
        else:
            done, ready = stop, stop + latency_of[index]
            slices.ready.append(ready)
        if ready > queues.latest:
            queues.latest, queues.latest_slice = ready, number
        for slot in touched:
            cell, use = cells_of[slot], uses[slot]
            if use & READS and done > read[cell]:
                read[cell], reader[cell] = done, number
            if use & WRITES:
                written[cell], writer[cell], of_queue[cell] = ready, number, -1 if dma else queue
        if noted:
            state.last[index] = ready, number
        number += 1
    return 0.0, -1


def _bring(
    plan: Plan,
    inputs: _Inputs,
    state: _State,
    queues: _Queues,
    slices: _Slices,
    base: int,
    fetches: Sequence[Fetch],
) -> tuple[float, int]:
    """Repeat loads, or save tiles, once what gave way is no longer used; when all is there, and by which slice."""
    there, bringer = 0.0, -1
    for fetch in fetches:
        begin, by = state.last.get(fetch.after, (0.0, -1))
        begin += plan.start_ns
        if fetch.load >= 0:
            work, engines, hbm = (
                inputs.transfer[fetch.load],
                inputs.engines[fetch.load],
                inputs.hbm[fetch.load],
            )
        else:
            engines = plan.dma_engines
            work, hbm = fetch.bytes / plan.dma_rate, fetch.bytes / plan.bandwidth
        done, _ = queues.transfers.place(begin, work, engines, hbm)
        slices.lane.append(base + DMA)
        slices.instruction.append(fetch.load if fetch.load >= 0 else fetch.before)
        slices.start.append(begin)
        slices.stop.append(done)
        slices.ready.append(done)
        slices.wait.append(_REUSE if by >= 0 else _NOTHING)
        slices.blocker.append(by)
        if not fetch.saves and done > there:
            there, bringer = done, len(slices.lane) - 1
    return there, bringer

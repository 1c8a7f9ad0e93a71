"""What each instruction costs: the queue it holds and for how long, and what its DMA transfer needs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nkireview.isa.enums import DgeMode, Engine, Memory
from nkireview.isa.row import Flow
from nkireview.program.call import CallView, Tile
from nkireview.program.contiguity import contiguous_run
from nkireview.program.errors import ProgramError
from nkireview.program.interning import by_opcode
from nkireview.program.placement import REPLACING
from nkireview.program.scope import Scope, distinct_calls
from nkireview.schedule.parameters import Figures, Parameters

LANES = ("tensor", "vector", "scalar", "gpsimd", "sync", "dma")
"""Queues of one core: the engines, the queue that only issues, and the transfers."""
TENSOR, VECTOR, SCALAR, GPSIMD, SYNC, DMA = range(6)
_LANE = {
    Engine.tensor: TENSOR,
    Engine.vector: VECTOR,
    Engine.scalar: SCALAR,
    Engine.gpsimd: GPSIMD,
    Engine.sync: SYNC,
}


@dataclass(frozen=True)
class Cost:
    """One distinct call: times in ns. A DMA holds its queue for `held`, then `engines` DMA engines for `transfer`."""

    lane: int
    held: float
    latency: float = 0.0
    transfer: float = 0.0
    engines: int = 0
    hbm_bytes: int = 0
    table: str = ""


@dataclass(frozen=True, eq=False)
class Costs:
    """Costs as columns, one row for each instruction; `transfer` > 0 marks a DMA. Times in ns.

    `engines` is how many DMA engines a transfer uses; `stores` marks DMAs into HBM.
    """

    lane: NDArray[np.int8]
    held: NDArray[np.float64]
    latency: NDArray[np.float64]
    transfer: NDArray[np.float64]
    engines: NDArray[np.int8]
    hbm_bytes: NDArray[np.int64]
    is_dma: NDArray[np.bool_]
    stores: NDArray[np.bool_]
    accumulates: NDArray[np.bool_]


def costs(scope: Scope, figures: Figures, parameters: Parameters) -> Costs:
    """The costs of every instruction; ProgramError for an instruction without a row."""
    program = scope.program
    count = len(program)
    made = Costs(
        lane=np.zeros(count, np.int8),
        held=np.zeros(count),
        latency=np.zeros(count),
        transfer=np.zeros(count),
        engines=np.zeros(count, np.int8),
        hbm_bytes=np.zeros(count, np.int64),
        is_dma=np.zeros(count, bool),
        stores=np.zeros(count, bool),
        accumulates=np.zeros(count, bool),
    )
    price = _Price(figures, parameters)
    tables = np.full(count, -1, np.int64)
    numbers: dict[str, int] = {}
    for code, rows, accesses in by_opcode(program):
        opcode = program.opcodes[code]
        row = scope.rows.get(opcode.name)
        if row is None:
            raise ProgramError(f"{opcode.name} has no cost: this version does not know the instruction")
        calls = distinct_calls(scope, row, opcode.operands, rows, accesses)
        found = [price.of(call) for call in calls.calls]
        of = calls.classes.of
        for name in ("lane", "held", "latency", "transfer", "engines", "hbm_bytes"):
            values = np.array([getattr(cost, name) for cost in found], getattr(made, name).dtype)
            getattr(made, name)[rows] = values[of]
        made.is_dma[rows] = row.engines.default is Engine.dma
        made.stores[rows] = np.array([_stores(call) for call in calls.calls], bool)[of]
        made.accumulates[rows] = Flow.contract in row.flow.values()
        named = np.array(
            [numbers.setdefault(cost.table, len(numbers)) if cost.table else -1 for cost in found], np.int64
        )
        tables[rows] = named[of]
    _load_tables(scope, made, tables, figures)
    return made


class _Price:
    """Prices of distinct calls on one target."""

    def __init__(self, figures: Figures, parameters: Parameters) -> None:
        self.figures = figures
        self.free = frozenset(parameters.value("free_functions"))
        self.issue_lane = LANES.index(parameters.value("issue_lane"))

    def of(self, call: CallView) -> Cost:
        """The cost of a call."""
        engine = call.resolved_engine()
        if engine is Engine.dma:
            return self._transfer(call)
        lane = _LANE.get(engine, GPSIMD)
        return self._tensor(call) if lane == TENSOR else self._lanes(call, lane)

    def _tensor(self, call: CallView) -> Cost:
        figures = self.figures
        held = call.row.cost.interval(call) / figures.number("tensor.clock_ghz")
        return Cost(TENSOR, held, figures.number("tensor.pipeline_latency_ns"))

    def _lanes(self, call: CallView, lane: int) -> Cost:
        """Vector, Scalar and GpSimd: cycles for the elements plus a fixed overhead, see `hardware`."""
        figures, cost, name = self.figures, call.row.cost, LANES[lane]
        per_element = cost.cycles_per_element(call)
        cycles = per_element * (call.measure(cost.subject, "free") if call.has(cost.subject) else 0)
        if cost.extra and (not cost.extra_for or call.has(cost.extra_for)):
            cycles += figures.number(cost.extra)
        if any(_offset(tile) for tile in call.tiles.values()):
            cycles = max(cycles, figures.number("overhead.dynamic_min_interval_cycles"))
        table = ""
        if lane == SCALAR:
            cycles += figures.number("scalar.overhead_cycles")
            table = self._function(call)
            if table == "exp":
                source = "psum" if call.memory(_source(call)) is Memory.psum else "sbuf"
                cycles += figures.number(f"scalar.exp_extra_cycles.{source}")
        elif lane == VECTOR:
            fast = per_element < 1
            cycles += figures.number("vector.perf_mode_overhead_cycles" if fast else "vector.overhead_cycles")
        # no document gives the Sync engine a clock; nothing legal computes there
        clock = figures.number(f"{'gpsimd' if lane == SYNC else name}.clock_ghz")
        latency = "scalar" if lane == SCALAR else "vector"
        return Cost(lane, cycles / clock, figures.number(f"{latency}.pipeline_latency_ns"), table=table)

    def _function(self, call: CallView) -> str:
        name = call.imm("op") if call.row.name.startswith("activat") else None
        return str(name) if isinstance(name, str) and name not in self.free else ""

    def _transfer(self, call: CallView) -> Cost:
        """A DMA: descriptors of contiguous bytes, cut into packets, spread over the engines of its partitions.

        Where an index tile names what moves, software makes the descriptors; an offset in a register, or one scalar,
        leaves them to whoever makes those of a plain copy.
        """
        figures = self.figures
        sources, target = _ends(call)
        if target is None:
            return Cost(SYNC, 0.0)
        moved = sum(source.access.size * source.bits // 8 for source in sources)
        run = max(min(contiguous_run(end) for end in (*sources, target)), 1)
        software = call.dtype("src") != call.dtype("dst") if call.has("src") and call.has("dst") else False
        software |= call.dge is DgeMode.swdge or any(_scattered(end) for end in (*sources, target))
        packets = -(-run // int(figures.number("dma.packet_bytes")))
        each = packets * figures.number("dma.packet_ns") + run / figures.number("dma.bytes_per_ns")
        if software:
            each = max(each, figures.number("dma.software_packet_floor_ns"))
        descriptors = max(moved // run, 1)
        engines = _engines(sources[0], target, descriptors * packets, figures)
        lane = self._queue(call, software)
        issue = figures.number(f"dma.issue_ns.{LANES[lane]}")
        hbm = sum(moved for end in (sources[0], target) if not end.on_chip)
        latency = _hops(call) * figures.number("dma.ring_hop_ns") if call.row.meets == "ranks" else 0.0
        return Cost(lane, issue, latency, descriptors * each / engines, engines, hbm_bytes=hbm)

    def _queue(self, call: CallView, software: bool) -> int:
        if call.engine is not Engine.unknown and call.engine in _LANE:
            return _LANE[call.engine]
        return GPSIMD if software else self.issue_lane


def _source(call: CallView) -> str:
    return next(name for name in ("data", "src", "dst") if call.has(name))


def _ends(call: CallView) -> tuple[tuple[Tile, ...], Tile | None]:
    """What a DMA reads, and what it writes; None where the call has nothing of one of them.

    Of lists all elements are read; else the first operand that is read, the others only steer.
    """
    reads = [o.name for o in call.row.operands if not o.role.writes and call.has(o.name)]
    listed = {name for names in call.row.lists.values() for name in names}
    sources = [name for name in reads if name in listed] or reads[:1]
    written = [o.name for o in call.row.operands if o.role.writes and call.has(o.name)]
    if not (sources and written):
        return (), None
    return tuple(call.tiles[name] for name in sources), call.tiles[written[0]]


def _scattered(tile: Tile) -> bool:
    """True where an index tile names what is touched."""
    index = tile.access.index
    return index is not None and index.kind in REPLACING


def _offset(tile: Tile) -> bool:
    """True where a number that is only known on the device is added to the address."""
    index = tile.access.index
    return index is not None and index.kind not in REPLACING


def _hops(call: CallView) -> int:
    """Steps of a ring until the last rank has what it needs."""
    groups = call.imm("replica_group") or ()
    ranks = max((len(group) for group in groups), default=0)
    once = call.row.name.startswith("collective_permute")
    return 1 if once else (2 if call.row.name == "all_reduce" else 1) * max(ranks - 1, 0)


def _stores(call: CallView) -> bool:
    return any(
        operand.role.writes and call.has(operand.name) and not call.memory(operand.name).on_chip
        for operand in call.row.operands
    )


def _engines(source: Tile, target: Tile, packets: int, figures: Figures) -> int:
    """DMA engines at work: one for each eight partitions; HBM to HBM one for each packet."""
    most = int(figures.number("dma.engines_per_core"))
    on_chip = [end.access.partitions for end in (source, target) if end.on_chip]
    if not on_chip:
        return max(min(most, packets), 1)
    return max(min(most, -(-max(on_chip) // int(figures.number("dma.partitions_per_engine")))), 1)


def _load_tables(scope: Scope, made: Costs, tables: NDArray[np.int64], figures: Figures) -> None:
    """Charge an activation-table load where a stream's Scalar queue turns to another function."""
    load = None
    for stream in scope.program.streams:
        rows = np.flatnonzero(tables[stream.start : stream.stop] >= 0) + stream.start
        rows = rows[made.lane[rows] == SCALAR]
        if not len(rows):
            continue
        load = figures.number("scalar.table_load_ns")
        turns = np.append(True, tables[rows][1:] != tables[rows][:-1])
        made.held[rows[turns]] += load

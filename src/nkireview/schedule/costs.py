"""What each instruction costs: the queue it holds and for how long, and what its DMA transfer needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nkireview.isa.enums import Engine, Memory
from nkireview.isa.row import Flow, Role
from nkireview.program.call import CallView, Tile
from nkireview.program.errors import ProgramError
from nkireview.program.interning import by_opcode
from nkireview.program.placement import REPLACING
from nkireview.program.scope import Scope, distinct_calls
from nkireview.schedule.packets import Packets, packets
from nkireview.schedule.parameters import Figures, Parameters

LANES = ("tensor", "vector", "scalar", "gpsimd", "sync", "dma")
"""Queues of one core: the engines, the queue that only issues, and the transfers."""
STORES = len(LANES)
"""The queue of stores that name none, beside that of loads; both are shown as `sync`."""
TENSOR, VECTOR, SCALAR, GPSIMD, SYNC, DMA = range(6)
_LANE = {
    Engine.tensor: TENSOR,
    Engine.vector: VECTOR,
    Engine.scalar: SCALAR,
    Engine.gpsimd: GPSIMD,
    Engine.sync: SYNC,
}


PORTS = ((1, frozenset({VECTOR, GPSIMD})), (2, frozenset({VECTOR, SCALAR})))
"""Ways to SBUF and to PSUM as bits, each with the engines that exclude each other on it where an instruction has it."""

_Part = tuple[int, int, int, int]
"""First row, end, first column and end of the part of the PE array that a matmul uses."""


@dataclass(frozen=True)
class Cost:
    """One distinct call: times in ns. A DMA holds its queue for `held`, then `engines` DMA engines for `transfer`."""

    lane: int
    held: float
    latency: float = 0.0
    transfer: float = 0.0
    engines: int = 0
    hbm_bytes: int = 0
    spread: float = 0.0
    descriptors: int = 0
    software: bool = False
    least: float = 0.0
    ports: int = 0
    table: str = ""
    part: _Part | None = None


@dataclass(frozen=True, eq=False)
class Costs:
    """Costs as columns, one row for each instruction. Times in ns.

    `held` is how long an instruction holds its queue, `latency` how much later its result is there, give or take
    `spread`. A DMA then holds `engines` DMA engines for `transfer`, with `descriptors` that GpSimd writes where
    `software`; `stores` marks DMAs into HBM. `warms`: work of the Tensor engine, whose `held` is at the fast clock.
    `least` is the time of an engine's elements alone, without access or switching. `ports`: see `PORTS`.
    """

    lane: NDArray[np.int8]
    held: NDArray[np.float64]
    latency: NDArray[np.float64]
    transfer: NDArray[np.float64]
    engines: NDArray[np.int8]
    hbm_bytes: NDArray[np.int64]
    spread: NDArray[np.float64]
    descriptors: NDArray[np.int64]
    software: NDArray[np.bool_]
    least: NDArray[np.float64]
    ports: NDArray[np.int8]
    is_dma: NDArray[np.bool_]
    stores: NDArray[np.bool_]
    accumulates: NDArray[np.bool_]
    warms: NDArray[np.bool_]


_PRICED = (
    "lane",
    "held",
    "latency",
    "transfer",
    "engines",
    "hbm_bytes",
    "spread",
    "descriptors",
    "software",
    "least",
    "ports",
)


def costs(scope: Scope, figures: Figures, parameters: Parameters, static: bool | None = None) -> Costs:
    """The costs of every instruction; ProgramError for an instruction without a row.

    static: the compiler has written the descriptors of all DMAs whose addresses it knows. None: where the target has
    no hardware that writes them.
    """
    program = scope.program
    count = len(program)
    made = Costs(
        lane=np.zeros(count, np.int8),
        held=np.zeros(count),
        latency=np.zeros(count),
        transfer=np.zeros(count),
        engines=np.zeros(count, np.int8),
        hbm_bytes=np.zeros(count, np.int64),
        spread=np.zeros(count),
        descriptors=np.zeros(count, np.int64),
        software=np.zeros(count, bool),
        least=np.zeros(count),
        ports=np.zeros(count, np.int8),
        is_dma=np.zeros(count, bool),
        stores=np.zeros(count, bool),
        accumulates=np.zeros(count, bool),
        warms=np.zeros(count, bool),
    )
    if static is None:
        static = "hwdge" not in scope.hardware.value("dma.dge_kinds")
    price = Prices(figures, parameters, static)
    tables = np.full(count, -1, np.int64)
    numbers: dict[str, int] = {}
    parts: dict[int, _Part] = {}
    for code, rows, accesses in by_opcode(program):
        opcode = program.opcodes[code]
        row = scope.rows.get(opcode.name)
        if row is None:
            raise ProgramError(f"{opcode.name} has no cost: this version does not know the instruction")
        calls = distinct_calls(scope, row, opcode.operands, rows, accesses)
        found = [price.of(call) for call in calls.calls]
        of = calls.classes.of
        for name in _PRICED:
            values = np.array([getattr(cost, name) for cost in found], getattr(made, name).dtype)
            getattr(made, name)[rows] = values[of]
        made.is_dma[rows] = row.engines.default is Engine.dma
        made.stores[rows] = np.array([_stores(call) for call in calls.calls], bool)[of]
        made.accumulates[rows] = Flow.contract in row.flow.values()
        named = np.array(
            [numbers.setdefault(cost.table, len(numbers)) if cost.table else -1 for cost in found], np.int64
        )
        tables[rows] = named[of]
        if any(cost.part for cost in found):
            for at, kind in zip(rows.tolist(), of.tolist(), strict=True):
                part = found[kind].part
                if part is not None:
                    parts[at] = part
    made.warms[:] = (made.lane == TENSOR) & ~made.is_dma
    _load_tables(scope, made, tables, figures)
    _side_by_side(scope, made, parts)
    return made


class Prices:
    """Prices of distinct calls on one target; `static`: see `costs`."""

    def __init__(self, figures: Figures, parameters: Parameters, static: bool) -> None:
        self.figures = figures
        self.static = static
        self.free = frozenset(parameters.value("free_functions"))
        self.issue_lane = LANES.index(parameters.value("issue_lane"))

    def of(self, call: CallView) -> Cost:
        """The cost of a call."""
        engine = call.resolved_engine()
        if engine is Engine.dma:
            return self._transfer(call)
        lane = _LANE.get(engine, GPSIMD)
        return self._tensor(call) if lane == TENSOR else self._lanes(call, lane)

    def on(self, call: CallView, lane: int) -> Cost:
        """The cost of a call if Vector, Scalar or GpSimd ran it."""
        return self._lanes(call, lane)

    def _tensor(self, call: CallView) -> Cost:
        figures, cost = self.figures, call.row.cost
        cycles = cost.interval(call) + cost.passes(call) * figures.number("tensor.switch_cycles")
        clock = figures.number("tensor.clock_ghz")
        return Cost(
            TENSOR,
            cycles / clock,
            figures.number("tensor.pipeline_latency_ns"),
            least=cost.interval(call) / clock,
            part=_part(call),
        )

    def _lanes(self, call: CallView, lane: int) -> Cost:
        """Vector, Scalar and GpSimd: cycles for the elements plus a fixed overhead, see `hardware`."""
        figures, cost, name = self.figures, call.row.cost, LANES[lane]
        counted = call.has(cost.subject)
        cycles = self._per_element(call) * call.measure(cost.subject, "free") if counted else 0.0
        least = cycles
        if cost.extra and (not cost.extra_for or call.has(cost.extra_for)):
            cycles += figures.number(cost.extra)
        if any(_offset(tile) for tile in call.tiles.values()):
            cycles = max(cycles, figures.number("overhead.dynamic_min_interval_cycles"))
        table = ""
        if lane == SCALAR:
            cycles += figures.number("scalar.overhead_cycles")
            table = self._function(call)
            if table:
                source = "psum" if call.memory(_source(call)) is Memory.psum else "sbuf"
                cycles += figures.number(f"scalar.exp_extra_cycles.{source}")
        elif lane == VECTOR:
            cycles += figures.number("vector.overhead_cycles")
            cycles += _vectors(call) * figures.number("vector.operand_read_cycles")
        elif counted and cost.extra != "gpsimd.start_cycles":
            cycles += figures.number("gpsimd.overhead_cycles")
        # no document gives the Sync engine a clock; nothing legal computes there
        clock = figures.number(f"{'gpsimd' if lane == SYNC else name}.clock_ghz")
        latency = "scalar" if lane == SCALAR else "vector"
        return Cost(
            lane,
            cycles / clock,
            figures.number(f"{latency}.pipeline_latency_ns"),
            least=least / clock,
            ports=self._ports(call),
            table=table,
        )

    def _ports(self, call: CallView) -> int:
        """The ways to memory that the instruction does not share; banks of PSUM are not told apart."""
        held = {tile.buffer.memory for tile in call.tiles.values()}
        found = 0
        if Memory.sbuf in held:
            when = self.figures.target.value("sbuf.vector_gpsimd_exclusion")
            fast = call.row.cost.cycles_per_element(call) < 1
            found |= 1 if when == "always" or (when == "perf_mode" and fast) else 0
        if Memory.psum in held and self.figures.target.value("psum.vector_scalar_exclusion") == "always":
            found |= 2
        return found

    def _per_element(self, call: CallView) -> float:
        """Cycles an element. One pass over a tile with wide strides in SBUF takes longer: reads one after another."""
        per, figures = call.row.cost.cycles_per_element(call), self.figures
        if per < 1:
            return per
        most = figures.number("access.wide_stride_bytes")
        wide = [
            operand.role
            for operand in call.row.operands
            if call.has(operand.name) and _stride_bytes(call.tiles[operand.name]) > most
        ]
        slowdown = figures.number("access.wide_stride_slowdown")
        per += (slowdown - 1) * sum(not role.writes for role in wide)
        return max(per, slowdown) if wide else per

    def _function(self, call: CallView) -> str:
        name = call.imm("op") if call.row.name.startswith("activat") else None
        return str(name) if isinstance(name, str) and name not in self.free else ""

    def _transfer(self, call: CallView) -> Cost:
        figures = self.figures
        found = packets(call, figures, self.static)
        if found is None:
            return Cost(SYNC, 0.0)
        lane, held = self._issue(call, found)
        hops = _hops(call) if call.row.meets == "ranks" else 0
        return Cost(
            lane,
            held,
            latency=hops * figures.number("dma.ring_hop_ns") if hops else 0.0,
            transfer=found.transfer,
            engines=found.engines,
            hbm_bytes=found.hbm_bytes,
            spread=hops * figures.number("dma.ring_hop_spread_ns") if hops else 0.0,
            descriptors=found.descriptors,
            software=found.software,
        )

    def _issue(self, call: CallView, found: Packets) -> tuple[int, float]:
        """The queue that issues a DMA, and how long that holds it."""
        figures = self.figures
        lane = GPSIMD if found.software else self.issue_lane
        if call.engine is not Engine.unknown and call.engine in _LANE:
            lane = _LANE[call.engine]
        if found.static:
            return lane, figures.number("dma.issue_ns.static")
        if lane == GPSIMD:
            return lane, figures.number("dma.issue_ns.gpsimd")
        return lane, (
            figures.number(f"dma.issue_ns.{'scalar' if lane == SCALAR else 'sync'}")
            + found.descriptors * figures.number("dma.issue_ns_per_descriptor")
        )


def _source(call: CallView) -> str:
    return next(name for name in ("data", "src", "dst") if call.has(name))


def _offset(tile: Tile) -> bool:
    """True where a number that is only known on the device is added to the address."""
    index = tile.access.index
    return index is not None and index.kind not in REPLACING


def _vectors(call: CallView) -> int:
    """Operands of one element a partition that the instruction reads beside its data."""
    return sum(o.vector and o.role is Role.read and call.has(o.name) for o in call.row.operands)


def _stride_bytes(tile: Tile) -> int:
    """Bytes from one element to the next of a tile in SBUF; 0 elsewhere, which no access slows down."""
    if tile.buffer.memory is not Memory.sbuf:
        return 0
    return abs(tile.innermost_stride) * tile.bits // 8


def _part(call: CallView) -> _Part | None:
    """The part of the PE array that a call names; None for the whole, and where a register says which."""
    size, position = call.imm("tile_size"), call.imm("tile_position")
    if not size or not position:
        return None
    (rows, columns), (row, column) = size, position
    if not all(isinstance(number, int) for number in (rows, columns, row, column)):
        return None
    return row, row + rows, column, column + columns


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


def _side_by_side(scope: Scope, made: Costs, parts: Mapping[int, _Part]) -> None:
    """Let matmuls that follow each other in different parts of the PE array share the time of the longest."""
    if not parts:
        return
    for stream in scope.program.streams:
        group: list[int] = []
        tensor = np.flatnonzero(made.warms[stream.start : stream.stop]) + stream.start
        for at in (*tensor.tolist(), -1):
            part = parts.get(at)
            if part is None or any(_meet(part, parts[other]) for other in group):
                if len(group) > 1:
                    made.held[group] = made.held[group].max() / len(group)
                group = []
            if part is not None:
                group.append(at)


def _meet(one: _Part, other: _Part) -> bool:
    return one[0] < other[1] and other[0] < one[1] and one[2] < other[3] and other[2] < one[3]

"""What a Program consists of: instructions, bytes moved, multiply-accumulates, DMA transfers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nkireview.isa import dtypes
from nkireview.isa.enums import Engine, Memory
from nkireview.isa.row import Flow, Row
from nkireview.program.call import CallView, Tile
from nkireview.program.contiguity import contiguous_run
from nkireview.program.interning import Classes, by_opcode, intern
from nkireview.program.loops import known_trips, nests
from nkireview.program.program import Program
from nkireview.program.scope import Calls, Scope, distinct_calls

UNKNOWN = "unknown"


@dataclass(frozen=True)
class Counts:
    """Figures of a Program; an instruction in device-side loops counts once for each trip.

    `by_engine`: instructions by the name of the engine that runs them. `bytes_by_route`: bytes that DMAs read, by
    ``from->to`` (hbm, sbuf, psum). `multiply_accumulates`: of matmuls, transposes by matmul left out; `flops` are
    two for each. What ranks exchange is on no route and no transfer. `smallest_run` and `median_run`: bytes of the
    contiguous runs that DMA transfers fall into, the median over all runs; None where there is no DMA.
    `assumed_trips`: a loop without static bounds, or loops that are not nested, count as one trip.
    """

    instructions: int
    by_engine: Mapping[str, int]
    by_opcode: Mapping[str, int]
    bytes_by_route: Mapping[str, int]
    multiply_accumulates: int
    dma_transfers: int
    smallest_run: int | None
    median_run: int | None
    assumed_trips: bool

    @property
    def flops(self) -> int:
        """Floating-point operations of matmuls."""
        return 2 * self.multiply_accumulates

    @property
    def bytes_moved(self) -> int:
        """Bytes on all routes."""
        return sum(self.bytes_by_route.values())


def counts(program: Program, rows: Mapping[str, Row], trips: Mapping[int, int] | None = None) -> Counts:
    """The figures of a Program. Instructions without a row count by name and for the engine ``unknown``.

    trips: index of a loop in the program -> its trip count, where its bounds are not numbers.
    Raise ProgramError where the header names an unknown target or release.
    """
    scope = Scope.of(program, rows)
    times, assumed = _trips(program, trips)
    tally = _Tally()
    for code, instructions, accesses in by_opcode(program):
        opcode = program.opcodes[code]
        mine = times[instructions]
        tally.by_opcode[opcode.name] += int(mine.sum())
        row = rows.get(opcode.name)
        if row is None:
            tally.by_engine[UNKNOWN] += int(mine.sum())
            continue
        calls = distinct_calls(scope, row, opcode.operands, instructions, accesses)
        for call, weight in zip(calls.calls, _weights(calls.classes, mine), strict=True):
            tally.call(call, weight)
        if row.engines.default is Engine.dma and row.meets != "ranks":
            tally.dma_transfers += int(mine.sum())
            _transfers(scope, calls, mine, tally)
    return Counts(
        instructions=int(times.sum()),
        by_engine=dict(tally.by_engine),
        by_opcode=dict(tally.by_opcode),
        bytes_by_route=dict(tally.routes),
        multiply_accumulates=tally.products,
        dma_transfers=tally.dma_transfers,
        smallest_run=min(tally.runs, default=None),
        median_run=_median(tally.runs),
        assumed_trips=assumed,
    )


Times = NDArray[np.int64] | NDArray[np.object_]


def loop_trips(program: Program, trips: Mapping[int, int] | None = None) -> Times:
    """How often each instruction runs: the product of the trips of the loops around it, 1 for those not known.

    trips: index of a loop in the program -> its trip count, where its bounds are not numbers.
    Raise ValueError where the loops are malformed.
    """
    if not program.loops:
        return np.ones(len(program), np.int64)
    found = np.ones(len(program), object)  # Python integers, which a product of trips cannot overflow
    known = known_trips(program, trips)
    left = [nest for nested in nests(program) for nest in nested]
    while left:
        nest = left.pop()
        left.extend(nest.inner)
        count = known.get(id(nest.loop), 1)
        if count != 1:
            found[nest.loop.start : nest.loop.stop] *= count
    return found


def _trips(program: Program, trips: Mapping[int, int] | None) -> tuple[Times, bool]:
    """The trips of each instruction, and whether some of them had to be assumed."""
    try:
        return loop_trips(program, trips), len(known_trips(program, trips)) < len(program.loops)
    except ValueError:
        return np.ones(len(program), np.int64), True


def _weights(classes: Classes, times: Times) -> list[int]:
    """The times of all rows of each class together."""
    if times.dtype != object:
        return [int(count) for count in np.bincount(classes.of, minlength=len(classes)).tolist()]
    found = np.zeros(len(classes), object)
    np.add.at(found, classes.of, times)
    return [int(count) for count in found]


class _Tally:
    def __init__(self) -> None:
        self.by_engine: Counter[str] = Counter()
        self.by_opcode: Counter[str] = Counter()
        self.routes: Counter[str] = Counter()
        self.runs: Counter[int] = Counter()
        self.dma_transfers = 0
        self.products = 0

    def call(self, call: CallView, times: int) -> None:
        """Count one distinct call, which runs so many times."""
        self.by_engine[call.resolved_engine().name] += times
        if Flow.contract in call.row.flow.values() and not call.imm("is_transpose"):
            self.products += times * multiply_accumulates(call)


def _transfers(scope: Scope, calls: Calls, times: Times, tally: _Tally) -> None:
    """Count what the DMAs of one opcode move, each distinct pair of views once."""
    roles = {operand.name: operand.role for operand in calls.row.operands}
    slots = [(slot, roles[name]) for slot, name in enumerate(calls.names) if name in roles]
    for source, reads in slots:
        for target, writes in slots:
            if reads.writes or not writes.writes:
                continue
            held = np.flatnonzero((calls.views[:, [source, target]] >= 0).all(axis=1))
            classes = intern([calls.views[held, source], calls.views[held, target]], len(held))
            for first, weight in zip(held[classes.first], _weights(classes, times[held]), strict=True):
                moved, into = (scope.tiles[calls.views[first, slot]] for slot in (source, target))
                _transfer(moved, into, weight, tally)


def _transfer(source: Tile, target: Tile, times: int, tally: _Tally) -> None:
    moved = source.access.size * source.bits // 8
    tally.routes[f"{_side(source)}->{_side(target)}"] += times * moved
    run = min(contiguous_run(source), contiguous_run(target))
    if run:
        tally.runs[run] += times * max(moved // run, 1)


def multiply_accumulates(call: CallView) -> int:
    """Multiply-accumulates of a matmul: every element of stationary meets each column of the result."""
    if not (call.has("stationary") and call.has("dst")):
        return 0
    packed = dtypes.BY_NAME[call.dtype("stationary")].packed_count
    return call.measure("stationary", "elements") * packed * call.measure("dst", "free")


def _side(tile: Tile) -> str:
    memory = tile.buffer.memory
    return Memory.hbm.name if memory is Memory.shared_hbm else memory.name


def _median(runs: Mapping[int, int]) -> int | None:
    middle, seen = (sum(runs.values()) + 1) // 2, 0
    for run in sorted(runs):
        seen += runs[run]
        if seen >= middle:
            return run
    return None

"""Reduction lengths: how many terms were summed, one after the other, on the way to an output.

The rounding error of a sum grows with its number of terms, so tolerances are sized by this length. The rule:

* an element of a parameter has length 1, a constant and unwritten memory 0;
* what only moves or maps an element keeps the largest length L that it reads, at least 1;
* a sum of n such elements has length L - 1 + n: the rows of a matmul's operands, the free elements that a reduction or
  a scan takes together, two where an elementwise instruction adds tiles. Maxima, minima and searches sum nothing;
* an accumulation of n more elements onto a sum of length S has length max(S, L - 1) + n, so that a matmul of K rows
  accumulated A times has length A * K. Accumulator registers keep their length between instructions;
* a reduction over R ranks takes R terms together, one of several tensors as many as there are;
* a device-side loop of T trips grows a length T times by what one trip adds; where neither its bounds nor an
  execution says how often it runs, it counts as one;
* an overwrite of all of a buffer, or of the same view, replaces its length; any other write leaves the larger one.

Lengths are kept for each buffer and, on chip, for each view written; a read takes the largest of those it overlaps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from nkireview.checks.boxes import Box, box_of, overlap
from nkireview.checks.recipes import recipes
from nkireview.execute.flow import RegisterUse, register_use
from nkireview.isa import dtypes
from nkireview.isa.enums import Engine
from nkireview.isa.row import Flow, Role, Row
from nkireview.program.call import CallView
from nkireview.program.loops import Nest, known_trips, nests
from nkireview.program.program import Program
from nkireview.program.scope import Scope
from nkireview.program.storage import WHOLE, Storage, role_of, storage

ROUNDING = frozenset({"add", "subtract", "multiply", "average"})
ADDING = frozenset({"add", "subtract"})
SEARCHES = frozenset({"max8", "nc_find_index8"})
VIEWS = 32
"""Views of one buffer that are told apart; with more, the buffer has one length."""
VISITS = 32
"""Visits for each instruction, after which loops are no longer followed twice."""
ADDED_TO = frozenset({Flow.contract, Flow.elementwise})
"""Flows of what is added to the old content; any other call that reads its destination leaves some of it as it was."""
_RESETS = frozenset({"reset", "reset_reduce", "load_reduce"})
_BUFFER = -1
_NOTHING: Mapping[int, int] = {}


@dataclass(frozen=True)
class _Write:
    """What a call does to a written operand: how many terms it sums, and onto what; `keeps`: some of it stays."""

    slot: int
    terms: int
    accumulates: bool
    keeps: bool
    constant: bool
    registers: bool


@dataclass(frozen=True)
class _Recipe:
    """What a call does to lengths; `summed`: elements that it adds to the accumulator registers it uses."""

    reads: tuple[int, ...]
    writes: tuple[_Write, ...]
    use: RegisterUse | None = None
    summed: int = 1


def reduction_lengths(
    program: Program, rows: Mapping[str, Row], trips: Mapping[int, int] | None = None
) -> tuple[int, ...]:
    """The reduction length of each output, at least 1; see this module for the rule.

    trips: index of a loop in the program -> its trip count, where its bounds are not numbers.
    Raise ProgramError where the header names an unknown target or release.
    """
    scope = Scope.of(program, rows)
    lengths = _Lengths(scope, storage(program, rows), known_trips(program, trips))
    # what one stream writes another may read, and their order is not known
    for _ in program.streams[:2]:
        lengths.run()
    return tuple(max(lengths.of(output.access), 1) for output in program.outputs)


def terms(call: CallView, name: str) -> int:
    """How many elements a written operand's element is the sum of; 1 where nothing is summed."""
    row, flow = call.row, call.row.flow[name]
    reads = [operand for operand in row.operands if operand.role is Role.read and call.has(operand.name)]
    if not reads or flow is Flow.nothing:
        return 1
    if flow is Flow.contract:
        return _contracted(call, name)
    if row.meets == "ranks" or row.lists:
        return _joined(call, len(reads))
    if flow is Flow.whole:
        sums = call.imm("op") in ADDING | {"average"}
        return max(call.measure(operand.name, "partitions") for operand in reads) if sums else 1
    free = max(call.measure(operand.name, "free") for operand in reads)
    if flow is Flow.row:
        return max(_reduced(call, name, free), 1)
    operators = {call.imm(op) for op in ("op", "op0", "op1")}
    if flow is Flow.scan:
        return max(free, 1) if operators & ROUNDING else 1
    adds = flow is Flow.elementwise and bool(operators & ADDING or call.has("bias"))
    return 2 if adds and len(reads) > 1 else 1


def _joined(call: CallView, reads: int) -> int:
    """Ranks, or listed tensors, of which the call makes one."""
    if not {call.imm("op"), call.imm("reduce_op")} & ADDING:
        return 1
    if call.row.meets != "ranks":
        return reads
    groups = call.imm("replica_group") or ()
    ring = call.row.name.startswith("collective_permute")
    return 2 if ring else max((len(group) for group in groups), default=1)


def _contracted(call: CallView, name: str) -> int:
    if call.imm("is_transpose") or not call.has("stationary"):
        return 1
    packed = dtypes.BY_NAME[call.dtype("stationary")].packed_count
    return max(call.measure("stationary", "elements") * packed // max(call.measure(name, "partitions"), 1), 1)


def _reduced(call: CallView, name: str, free: int) -> int:
    if call.row.name in SEARCHES:
        return 1
    operator = call.imm("op") if name == "dst" else call.imm("reduce_op") or "add"
    if operator is None:
        return free
    return free // max(call.measure(name, "free"), 1) if operator in ROUNDING else 1


class _Lengths:
    """The length of what each place holds, from the first instruction to the last."""

    def __init__(self, scope: Scope, held: Storage, trips: Mapping[int, int]) -> None:
        program = scope.program
        self._trips = trips
        columns = program.columns
        self._scope = scope
        self._program = program
        self._held = held
        self._at: list[int] = columns.operand_at.tolist()
        self._access: list[int] = columns.operand.tolist()
        self._place: list[int] = held.place.tolist()
        self._whole: list[int] = (held.use & WHOLE).tolist()
        self._recipes, recipe = recipes(scope, _recipe, _unknown)
        self._recipe: list[int] = recipe.tolist()
        self._position: list[int] = scope.positions.of.tolist()
        self._boxes = [box_of(scope.tile(access)) for access in scope.positions.first.tolist()]
        self._content: dict[int, dict[int, int]] = {}
        self._before: dict[int, int] = {}
        self._registers: dict[Engine, int] = {}
        self._visits = 0
        self._loops: Sequence[Sequence[Nest]]
        try:
            self._loops = nests(program)
        except ValueError:
            self._loops = [()] * len(program.streams)
        self._start()

    def run(self) -> None:
        """Go through all streams once; what HBM held at the end of the last time may be read at any time."""
        hbm = {place for place, content in self._content.items() if set(content) == {_BUFFER}}
        self._before = {place: self._content[place][_BUFFER] for place in hbm} if self._visits else {}
        self._content = {}
        self._start()
        for stream, loops in zip(self._program.streams, self._loops, strict=True):
            self._registers = {}
            self._walk(stream.start, stream.stop, loops)

    def of(self, access: int) -> int:
        """The length of what an access would read."""
        columns = self._program.columns
        return self._read(int(self._held.of_buffer[columns.access_buffer[access]]), access)

    def _start(self) -> None:
        for _, buffer in self._program.parameter_buffers:
            self._content[int(self._held.of_buffer[buffer])] = {_BUFFER: 1}

    def _walk(self, start: int, stop: int, loops: Sequence[Nest]) -> None:
        for nest in loops:
            self._straight(start, nest.loop.start)
            self._loop(nest)
            start = nest.loop.stop
        self._straight(start, stop)

    def _loop(self, nest: Nest) -> None:
        loop, trips = nest.loop, self._trips.get(id(nest.loop), 1)
        self._walk(loop.start, loop.stop, nest.inner)
        if trips < 2 or self._visits > VISITS * len(self._program):
            return
        span = slice(self._at[loop.start], self._at[loop.stop])
        touched = [place for place in set(self._place[span]) if place >= 0]
        once = {place: dict(self._content.get(place, {})) for place in touched}
        registers = dict(self._registers)
        self._walk(loop.start, loop.stop, nest.inner)
        for place in touched:
            content = self._content.get(place, {})
            for view, length in content.items():
                grown = length - once[place].get(view, length)
                content[view] = length + max(grown, 0) * (trips - 2)
        for engine, length in self._registers.items():
            self._registers[engine] = length + max(length - registers.get(engine, length), 0) * (trips - 2)

    def _straight(self, start: int, stop: int) -> None:
        self._visits += max(stop - start, 0)
        at, places, accesses = self._at, self._place, self._access
        recipes, recipe = self._recipes, self._recipe
        for index in range(start, stop):
            found, begin = recipes[recipe[index]], at[index]
            longest = 1
            for slot in found.reads:
                if accesses[begin + slot] >= 0:
                    length = self._read(places[begin + slot], accesses[begin + slot])
                    if length > longest:
                        longest = length
            for write in found.writes:
                slot = begin + write.slot
                if accesses[slot] >= 0:
                    self._write(slot, self._length(write, found.use, slot, longest))
            if found.use is not None and not any(write.registers for write in found.writes):
                self._accumulate(found.use, longest, found.summed)

    def _length(self, write: _Write, use: RegisterUse | None, slot: int, longest: int) -> int:
        if write.constant:
            return 0
        if write.accumulates:
            return max(self._read(self._place[slot], self._access[slot]), longest - 1) + write.terms
        if write.keeps:
            return max(self._read(self._place[slot], self._access[slot]), longest - 1 + write.terms)
        if write.registers and use is not None:
            held = self._accumulate(use, longest, write.terms)
            if use.reads:
                return held
        return longest - 1 + write.terms

    def _accumulate(self, use: RegisterUse, longest: int, count: int) -> int:
        """What a call does to the accumulator registers of its engine; the length they hold then."""
        held = 0 if use.command in _RESETS else self._registers.get(use.engine, 0)
        if use.command not in ("idle", "reset"):
            held = max(held, longest - 1) + count
        self._registers[use.engine] = held
        return held

    def _read(self, place: int, access: int) -> int:
        content = self._content.get(place, _NOTHING)
        found: int | None = 0
        if len(content) == 1:
            found = content.get(access)
            if found is None:
                found = content.get(_BUFFER)
        if found is None or len(content) > 1:
            found = max(self._overlapping(content, access))
        if self._before:
            found = max(found, self._before.get(place, 0))
        if self._held.touching:
            for other in self._held.touching.get(place, ()):
                found = max(found, *self._content.get(other, _NOTHING).values(), 0)
        return found

    def _overlapping(self, content: Mapping[int, int], access: int) -> Iterator[int]:
        box = self._box(access)
        yield 0
        for view, length in content.items():
            other = None if view == _BUFFER else self._box(view)
            if box is None or other is None or overlap(box, other):
                yield length

    def _write(self, slot: int, length: int) -> None:
        place, access = self._place[slot], self._access[slot]
        view = _BUFFER if self._box(access) is None else access
        if self._whole[slot]:
            self._content[place] = {view: length}
            for other in self._held.inside.get(place, ()):
                self._content.pop(other, None)
            return
        content = self._content.setdefault(place, {})
        content[view] = length if view != _BUFFER else max(content.get(view, 0), length)
        if len(content) > VIEWS:
            self._content[place] = {_BUFFER: max(content.values())}

    def _box(self, access: int) -> Box | None:
        return self._boxes[self._position[access]]


def _unknown(operands: int) -> _Recipe:
    every = tuple(range(operands))
    return _Recipe(every, tuple(_Write(slot, 1, False, False, False, False) for slot in every))


def _recipe(call: CallView, names: Sequence[str]) -> _Recipe:
    reads, writes = [], []
    for slot, name in enumerate(names):
        role = role_of(call.row.operand(name), call.immediates)
        if role is Role.read:
            reads.append(slot)
        elif call.has(name):
            constant = call.row.flow[name] is Flow.nothing
            held = role is Role.accumulate
            adds = held and call.row.flow[name] in ADDED_TO
            writes.append(
                _Write(slot, terms(call, name), adds, held and not adds, constant, name == "reduce_res")
            )
    free = [call.measure(names[slot], "free") for slot in reads if call.has(names[slot])]
    return _Recipe(tuple(reads), tuple(writes), register_use(call.row, call.immediates), max(free, default=1))

"""Stations: what each line of a Program makes, in which dtype and memory, and which stations feed it.

One walk over the Program in order; what is alike in line, instruction, operand, dtype and memory is one station, so
that a Program of many tiles has as few stations as it has lines. A value keeps the stations that wrote it, for each
buffer and, on chip, for each view written; a read takes those of all views that it overlaps. Index tiles feed nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nkireview.checks.boxes import Box, bits, box_of, holds, overlap
from nkireview.checks.counts import loop_trips
from nkireview.checks.dataflow import Dataflow
from nkireview.checks.recipes import recipes
from nkireview.isa import dtypes
from nkireview.isa.row import Flow, Role
from nkireview.program.call import CallView
from nkireview.program.loops import Nest, nests
from nkireview.program.storage import WHOLE, role_of

VIEWS = 32
"""Views of one buffer that are told apart; with more, the buffer holds one value."""
AGAIN = 2
"""Times that the body of a device-side loop is followed, the second for what one pass leaves to the next."""
_BUFFER = -1
_Sources = frozenset[int]
_NONE: _Sources = frozenset()


@dataclass(frozen=True)
class Station:
    """What one line makes of what it reads.

    `instruction` is the first of `count` (each pass of a loop whose trips are known counts), -1 for an input, whose
    path is `operand`. `terms`: of a matmul the longest sum that accumulates in one place, 0 elsewhere.
    """

    instruction: int
    count: int
    place: str
    opcode: str
    operand: str
    dtype: str
    memory: str
    terms: int = 0


@dataclass(frozen=True, eq=False)
class Graph:
    """The stations of a Program, inputs first.

    `feeds[i]`: station -> the operand and dtype by which station i reads it, the first where there are several.
    `outputs`: the name of each output and the stations that it holds at the end.
    """

    stations: tuple[Station, ...]
    feeds: tuple[Mapping[int, tuple[str, str]], ...]
    outputs: tuple[tuple[str, _Sources], ...]


@dataclass(frozen=True)
class _Write:
    slot: int
    name: str
    dtype: str
    memory: str
    keeps: bool
    constant: bool
    terms: int  # of a matmul: elements of the contraction
    begins: bool | None


@dataclass(frozen=True)
class _Recipe:
    opcode: str
    reads: tuple[tuple[int, str, str], ...]
    writes: tuple[_Write, ...]


def graph(flow: Dataflow) -> Graph:
    """The stations of a Program. Raise ProgramError where the header names an unknown target or release."""
    walk = _Walk(flow)
    walk.run(first=True)
    if len(flow.program.streams) > 1:
        # what one stream writes another may read, and their order is not known
        walk.run(first=False)
    return walk.graph()


class _Walk:
    def __init__(self, flow: Dataflow) -> None:
        program = self._program = flow.program
        self._flow, self._held = flow, flow.held
        columns = program.columns
        self._at: list[int] = columns.operand_at.tolist()
        self._access: list[int] = columns.operand.tolist()
        self._place: list[int] = flow.held.place.tolist()
        self._whole: list[int] = (flow.held.use & WHOLE).tolist()
        self._line: list[int] = columns.place.tolist()
        self._recipes, recipe = recipes(flow.scope, _recipe, lambda operands: _Recipe("", (), ()))
        self._recipe: list[int] = recipe.tolist()
        self._content: dict[int, dict[int, _Sources]] = {}
        self._boxes: dict[int, tuple[Box | None, bool]] = {}
        self._numbers: dict[tuple[object, ...], int] = {}
        self._first: list[int] = []
        self._counts: list[int] = []
        self._made: list[tuple[int, str, str, str, str]] = []
        self._feeds: list[dict[int, tuple[str, str]]] = []
        self._terms: list[int] = []
        self._sums: dict[int, dict[int, int]] = {}
        self._seen: set[tuple[int, str, _Sources]] = set()
        try:
            self._loops: Sequence[Sequence[Nest]] = nests(program)
            self._trips: list[int] = [int(trips) for trips in loop_trips(program)]
        except ValueError:
            self._loops, self._trips = [()] * len(program.streams), [1] * len(program)
        for path, buffer in program.parameter_buffers:
            held = program.buffer(buffer)
            number = self._new(-1, "", path, held.dtype, held.memory.name, -1)
            self._content[int(flow.held.of_buffer[buffer])] = {_BUFFER: frozenset((number,))}

    def run(self, first: bool) -> None:
        """Go through all streams once, on top of what was held before; `first`: instructions are counted."""
        for stream, loops in zip(self._program.streams, self._loops, strict=True):
            self._walk(stream.start, stream.stop, loops, first)

    def graph(self) -> Graph:
        """What was found."""
        program = self._program
        outputs = []
        for output in program.outputs:
            place = int(self._held.of_buffer[program.columns.access_buffer[output.access]])
            outputs.append((output.name, self._read(place, output.access)))
        stations = []
        for number, (line, opcode, operand, dtype, memory) in enumerate(self._made):
            text = program.place_text(line)
            stations.append(
                Station(
                    self._first[number],
                    self._counts[number],
                    text,
                    opcode,
                    operand,
                    dtype,
                    memory,
                    self._terms[number],
                )
            )
        return Graph(tuple(stations), tuple(self._feeds), tuple(outputs))

    def _new(self, line: int, opcode: str, operand: str, dtype: str, memory: str, first: int) -> int:
        self._made.append((line, opcode, operand, dtype, memory))
        self._first.append(first)
        self._counts.append(0)
        self._terms.append(0)
        self._feeds.append({})
        return len(self._made) - 1

    def _walk(self, start: int, stop: int, loops: Sequence[Nest], first: bool) -> None:
        for nest in loops:
            self._straight(start, nest.loop.start, first)
            for again in range(AGAIN):
                self._walk(nest.loop.start, nest.loop.stop, nest.inner, first and not again)
            start = nest.loop.stop
        self._straight(start, stop, first)

    def _straight(self, start: int, stop: int, first: bool) -> None:
        for index in range(start, stop):
            recipe, begin = self._recipes[self._recipe[index]], self._at[index]
            taken = [
                (name, dtype, self._read(self._place[begin + slot], self._access[begin + slot]))
                for slot, name, dtype in recipe.reads
            ]
            for write in recipe.writes:
                at = begin + write.slot
                number = self._station(index, recipe, write)
                if first:
                    self._counts[number] += self._trips[index]
                    self._sum(index, at, number, write)
                if not write.constant:
                    for name, dtype, sources in taken:
                        self._feed(number, name, dtype, sources)
                kept = self._read(self._place[at], self._access[at]) if write.keeps else _NONE
                self._write(at, kept | {number})

    def _feed(self, number: int, name: str, dtype: str, sources: _Sources) -> None:
        key = (number, name, sources)
        if key in self._seen:
            return
        self._seen.add(key)
        for source in sources:
            self._feeds[number].setdefault(source, (name, dtype))

    def _station(self, index: int, recipe: _Recipe, write: _Write) -> int:
        line = self._line[index]
        key = (line, recipe.opcode, write.name, write.dtype, write.memory)
        found = self._numbers.get(key)
        if found is None:
            found = self._new(line, recipe.opcode, write.name, write.dtype, write.memory, index)
            self._numbers[key] = found
        return found

    def _sum(self, index: int, at: int, number: int, write: _Write) -> None:
        """Count the elements that matmuls have added up in a place since something else was written there."""
        place, access = self._place[at], self._access[at]
        if not write.terms:
            self._sums.pop(place, None)
            return
        held = self._sums.setdefault(place, {})
        trips = self._trips[index] if write.begins is False else 1
        held[access] = write.terms * trips + (0 if write.begins else held.get(access, 0))
        self._terms[number] = max(self._terms[number], held[access])

    def _read(self, place: int, access: int) -> _Sources:
        found = _NONE
        for near in (place, *self._held.touching.get(place, ())):
            content = self._content.get(near)
            if not content:
                continue
            if len(content) == 1 and (access in content or _BUFFER in content):
                found |= next(iter(content.values()))
                continue
            box = self._box(access)[0]
            for view, value in content.items():
                other = None if view == _BUFFER else self._box(view)[0]
                if box is None or other is None or overlap(box, other):
                    found |= value
        return found

    def _write(self, slot: int, value: _Sources) -> None:
        place, access = self._place[slot], self._access[slot]
        box, dense = self._box(access)
        view = _BUFFER if box is None else access
        if self._whole[slot]:
            self._content[place] = {view: value}
            for other in self._held.inside.get(place, ()):
                self._content.pop(other, None)
            return
        content = self._content.setdefault(place, {})
        if box is None:
            value |= content.get(view, _NONE)
        elif dense:
            for other in [other for other in content if other not in (view, _BUFFER)]:
                inner = self._box(other)[0]
                if inner is not None and holds(box, inner):
                    del content[other]
        content[view] = value
        if len(content) > VIEWS:
            self._content[place] = {_BUFFER: _NONE.union(*content.values())}

    def _box(self, access: int) -> tuple[Box | None, bool]:
        found = self._boxes.get(access)
        if found is None:
            tile = self._flow.scope.tile(access)
            box = box_of(tile)
            found = self._boxes[access] = box, box is not None and bits(box) == tile.access.size * tile.bits
        return found


def _recipe(call: CallView, names: Sequence[str]) -> _Recipe:
    reads, writes = [], []
    for slot, name in enumerate(names):
        if not call.has(name):
            continue
        role = role_of(call.row.operand(name), call.immediates)
        if role is Role.read:
            reads.append((slot, name, call.dtype(name)))
            continue
        flow = call.row.flow[name]
        sums = flow is Flow.contract and not call.imm("is_transpose")
        told = call.imm("accumulate")
        writes.append(
            _Write(
                slot,
                name,
                call.dtype(name),
                call.memory(name).name,
                keeps=role is Role.accumulate and not call.imm("is_transpose"),
                constant=flow is Flow.nothing,
                terms=contracted(call) if sums else 0,
                begins=None if told is None else not told,
            )
        )
    return _Recipe(call.row.name, tuple(reads), tuple(writes))


def contracted(call: CallView) -> int:
    """Elements that each result of a matmul adds up."""
    if not (call.has("stationary") and call.has("dst")):
        return 0
    packed = dtypes.BY_NAME[call.dtype("stationary")].packed_count
    return call.measure("stationary", "elements") * packed // max(call.measure("dst", "partitions"), 1)

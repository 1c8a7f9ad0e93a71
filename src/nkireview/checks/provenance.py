"""Which parameters reach which output of a Program, through which instructions, and which of their elements are read.

Nothing is executed. Facts travel from the outputs backwards: each instruction is visited once, and those of a
device-side loop, or of several streams, again as long as something changes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from nkireview.isa import dtypes
from nkireview.isa.row import Row
from nkireview.program.access import Access
from nkireview.program.footprint import Form, allowed, offsets, ranges
from nkireview.program.loops import Nest, nests
from nkireview.program.program import Program
from nkireview.program.registers import register_uses
from nkireview.program.storage import INDEXED, READS, WHOLE, WRITES, Storage, loop_registers, storage

Mask = NDArray[np.bool_]
PLACES = 64
"""Last writers of an output that are told apart; what comes through any further one counts for all of those."""
ROUNDS = 32
"""Visits for each instruction, after which everything is taken to reach everything."""
ENUMERATED = 2**26
"""Elements of an access that are marked one by one; a larger one marks the whole parameter."""
_MASKS = 4


@dataclass(frozen=True)
class OutputPaths:
    """What reaches one output.

    `writers` are the places of the instructions that may have written what is returned; `parameters` gives, for each
    parameter that reaches it, those of them that it comes through: none where the parameter itself is returned.
    """

    name: str
    writers: tuple[int, ...]
    parameters: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class _Reads:
    """The accesses of one parameter on the way to one output; `all`: any element may get there."""

    buffer: int
    accesses: tuple[int, ...]
    all: bool


@dataclass(frozen=True, eq=False)
class Provenance:
    """Paths from parameters to outputs. Where a path cannot be excluded it is taken to exist.

    `complete` is False where the program was too entangled to follow and everything is taken to reach everything.
    """

    outputs: tuple[OutputPaths, ...]
    complete: bool
    _program: Program = field(repr=False)
    _reads: Mapping[str, Sequence[_Reads]] = field(repr=False)
    _masks: dict[tuple[str, int], Mask] = field(default_factory=dict, repr=False)

    @property
    def constant_outputs(self) -> tuple[int, ...]:
        """The outputs that no parameter reaches, by position."""
        return tuple(at for at, output in enumerate(self.outputs) if not output.parameters)

    def accesses(self, path: str) -> frozenset[int]:
        """The accesses by which a parameter is read on the way to any output; none where paths are not complete."""
        return frozenset(access for reads in self._reads[path] for access in reads.accesses)

    def coverage(self, path: str, output: int) -> Mask:
        """Which elements of a parameter are read on the way to an output, in the parameter's shape.

        Raise KeyError for an unknown parameter and IndexError for an unknown output.
        """
        key = path, output
        if key not in self._masks:
            reads = self._reads[path][output]
            if len(self._masks) >= _MASKS:
                self._masks.pop(next(iter(self._masks)))
            self._masks[key] = _coverage(self._program, reads)
        return self._masks[key]

    def covers(self, path: str, output: int, region: tuple[slice, ...]) -> bool:
        """Whether some element in a region of a parameter is read on the way to an output; raises like `coverage`."""
        return bool(self.coverage(path, output)[region].any())


def provenance(program: Program, rows: Mapping[str, Row]) -> Provenance:
    """The paths of a Program.

    Each written operand, and each register that is written, depends on all that its instruction reads, on the index
    tiles and registers of their addresses, on the registers of the device-side loops around it and, where cores meet,
    on what the others bring. A write of all of a buffer ends what it held;
    any other write adds to it. Buffers with overlapping explicit addresses share what they hold. What several streams
    touch is never ended, since their order is not known.
    """
    walk = _Walk(program, storage(program, rows), rows)
    complete = walk.run()
    reads: dict[str, list[_Reads]] = {}
    for path, buffer in program.parameter_buffers:
        held = range(len(program.outputs))
        reads[path] = [walk.reads(buffer, at) if complete else _Reads(buffer, (), True) for at in held]
    outputs = []
    for at, output in enumerate(program.outputs):
        writers = walk.writers(at)
        paths = {}
        for path, buffer in program.parameter_buffers:
            found = reads[path][at]
            if found.all or found.accesses:
                paths[path] = walk.through(buffer, at) if complete else writers
        outputs.append(OutputPaths(output.name, writers, paths))
    return Provenance(tuple(outputs), complete, program, reads)


class _Entangled(Exception):
    """The walk takes too long."""


class _Walk:
    """For each place, the bits of what its content reaches, from the last instruction to the first.

    A bit stands for an output and the place of an instruction that wrote what is returned; `_final` says of which
    outputs a place itself is what is returned.
    """

    def __init__(self, program: Program, held: Storage, rows: Mapping[str, Row]) -> None:
        columns = program.columns
        self._program = program
        self._peers = _peers(program, rows)
        uses, of = register_uses(program, rows)
        self._register_use: list[int] = of.tolist()
        self._registers = [
            tuple(
                tuple(held.register_of[register] for register in names) for names in (use.reads, use.writes)
            )
            for use in uses
        ]
        self._held = held
        self._at: list[int] = columns.operand_at.tolist()
        self._place: list[int] = held.place.tolist()
        self._use: list[int] = held.use.tolist()
        self._access: list[int] = columns.operand.tolist()
        self._lines: list[int] = columns.place.tolist()
        self._returned: dict[int, tuple[int, ...]] = {}
        for at, output in enumerate(program.outputs):
            place = int(held.of_buffer[columns.access_buffer[output.access]])
            self._returned[place] = (*self._returned.get(place, ()), at)
        self._final = dict(self._returned)
        self._replaced: set[int] = set()
        self._bit_of: list[dict[int, int]] = [{} for _ in program.outputs]
        self._bits = 0
        self._read: dict[int, dict[int, int]] = {
            int(held.of_buffer[buffer]): {} for _, buffer in program.parameter_buffers
        }
        self._of_stream = [self._touched(stream.start, stream.stop) for stream in program.streams]
        self._shared = self._touched_by_several()
        self._live = [0] * held.count
        self._depth = 0
        self._visits = 0

    def run(self) -> bool:
        """Walk until nothing changes; False where that takes too long or the loops are malformed."""
        try:
            loops = nests(self._program)
            while self._round(loops):
                pass
        except (_Entangled, ValueError):
            return False
        return True

    def _round(self, loops: Sequence[Sequence[Nest]]) -> bool:
        """Walk all streams; True where what several of them touch has changed."""
        live = self._live
        before = [live[place] for place in self._shared]
        for stream, touched, nested in zip(self._program.streams, self._of_stream, loops, strict=True):
            for place in touched:
                if place not in self._shared:
                    live[place] = 0
            self._final = dict(self._returned)
            self._walk(stream.start, stream.stop, nested)
            self._replaced.update(self._returned.keys() - self._final.keys())
        return before != [live[place] for place in self._shared]

    def writers(self, output: int) -> tuple[int, ...]:
        """The places of the last writers of an output."""
        return tuple(sorted(self._bit_of[output]))

    def reads(self, buffer: int, output: int) -> _Reads:
        """How a parameter reaches an output."""
        place, mask = int(self._held.of_buffer[buffer]), self._mask(output)
        passed = output in self._returned.get(place, ()) and place not in self._replaced
        found = self._read[place]
        return _Reads(buffer, tuple(access for access, bits in found.items() if bits & mask), passed)

    def through(self, buffer: int, output: int) -> tuple[int, ...]:
        """The last writers of an output through which a parameter reaches it."""
        bits = 0
        for found in self._read[int(self._held.of_buffer[buffer])].values():
            bits |= found
        return tuple(sorted(line for line, bit in self._bit_of[output].items() if bit & bits))

    def _mask(self, output: int) -> int:
        mask = 0
        for bit in self._bit_of[output].values():
            mask |= bit
        return mask

    def _touched_by_several(self) -> frozenset[int]:
        count = np.zeros(self._held.count, np.int64)
        for touched in self._of_stream:
            count[touched] += 1
        return frozenset(np.flatnonzero(count > 1).tolist())

    def _touched(self, start: int, stop: int) -> list[int]:
        """The places that the instructions [start, stop) may read or write, and those that overlap them."""
        held, columns = self._held, self._program.columns
        span = slice(self._at[start], self._at[stop])
        found = set(np.unique(held.place[span]).tolist()) - {-1}
        if held.indices:
            for access in np.unique(columns.operand[span]).tolist():
                found.update(place for place, _ in held.indices.get(access, ()))
        if held.registers:
            for number in np.unique(columns.immediates[start:stop]).tolist():
                found.update(held.registers.get(number, ()))
        for index in self._peers.keys() & range(start, stop) if self._peers else ():
            for peer in self._peers[index]:
                found.update(
                    place for place in self._place[self._at[peer] : self._at[peer + 1]] if place >= 0
                )
        for place in tuple(found):
            found.update(held.touching.get(place, ()))
        return sorted(found)

    def _walk(self, start: int, stop: int, loops: Sequence[Nest]) -> int:
        """Go back over [start, stop); the bits that its instructions write."""
        outs = 0
        for nest in reversed(loops):
            outs |= self._straight(nest.loop.stop, stop)
            outs |= self._loop(nest)
            stop = nest.loop.start
        return outs | self._straight(start, stop)

    def _loop(self, nest: Nest) -> int:
        """A loop may run never, once or often: what is live after it and before its body join."""
        live, loop = self._live, nest.loop
        registers = [self._held.register_of[register] for register in loop_registers(loop)]
        touched = sorted({*self._touched(loop.start, loop.stop), *registers, *self._loop_places(nest)})
        after = [live[place] for place in touched]
        final, self._depth = dict(self._final), self._depth + 1
        while True:
            joined = [live[place] for place in touched]
            outs = self._walk(loop.start, loop.stop, nest.inner)
            for register in registers:
                outs |= live[register]
            for register in registers:
                live[register] |= outs
            for at, place in enumerate(touched):
                live[place] |= after[at]
            self._final = dict(final)
            if joined == [live[place] for place in touched]:
                self._depth -= 1
                return outs

    def _loop_places(self, nest: Nest) -> set[int]:
        found: set[int] = set()
        for inner in nest.inner:
            found.update(self._held.register_of[register] for register in loop_registers(inner.loop))
            found |= self._loop_places(inner)
        return found

    def _straight(self, start: int, stop: int) -> int:
        """Go back over instructions without loops; the bits that they write."""
        self._visits += max(stop - start, 0)
        if self._visits > ROUNDS * len(self._program):
            raise _Entangled
        at, places, uses, live = self._at, self._place, self._use, self._live
        touching, final, peers = self._held.touching, self._final, self._peers
        registers, register_use = self._registers, self._register_use
        every = 0
        for index in range(stop - 1, start - 1, -1):
            outs = 0
            operands = range(at[index], at[index + 1])
            for slot in operands:
                if uses[slot] & WRITES:
                    place = places[slot]
                    outs |= live[place]
                    if touching:
                        for other in touching.get(place, ()):
                            outs |= live[other]
                    if place in final:
                        outs |= self._written(final[place], index)
            asked, made = registers[register_use[index]]
            for place in made:
                outs |= live[place]
            if not outs:
                continue
            every |= outs
            for slot in operands:
                if uses[slot] & WHOLE:
                    self._replace(places[slot])
            for slot in operands:
                use = uses[slot]
                if use & READS:
                    self._reach(places[slot], self._access[slot], outs)
                if use & INDEXED:
                    for place, access in self._held.indices[self._access[slot]]:
                        self._reach(place, access, outs)
            for place in asked:
                live[place] |= outs
            for peer in peers.get(index, ()):
                for slot in range(at[peer], at[peer + 1]):
                    if uses[slot] & READS:
                        self._reach(places[slot], self._access[slot], outs)
        return every

    def _reach(self, place: int, access: int, outs: int) -> None:
        self._live[place] |= outs
        if place in self._read and access >= 0:
            found = self._read[place]
            found[access] = found.get(access, 0) | outs

    def _replace(self, place: int) -> None:
        """A write of all of a place: nothing before it matters."""
        if place in self._shared:
            return
        self._live[place] = 0
        for other in self._held.inside.get(place, ()):
            self._live[other] = 0
        self._final.pop(place, None)
        # a loop may run never, and then what it replaces is still there
        if place in self._read and not self._depth:
            self._read[place].clear()

    def _written(self, outputs: tuple[int, ...], index: int) -> int:
        """The bits of an instruction that writes what is returned."""
        found, line = 0, self._lines[index]
        for output in outputs:
            bits = self._bit_of[output]
            bit = bits.get(line)
            if bit is None:
                if len(bits) < PLACES:
                    bit, self._bits = 1 << self._bits, self._bits + 1
                else:
                    bit = max(bits.values())
                bits[line] = bit
            found |= bit
        return found


def _peers(program: Program, rows: Mapping[str, Row]) -> dict[int, tuple[int, ...]]:
    """For each instruction by which cores meet those of the other streams, the n-th of one row with the n-th."""
    meeting = {
        code
        for code, opcode in enumerate(program.opcodes)
        if opcode.name in rows and rows[opcode.name].meets == "cores"
    }
    found: dict[int, tuple[int, ...]] = {}
    for code in meeting:
        together = [
            np.flatnonzero(program.columns.opcode[stream.start : stream.stop] == code) + stream.start
            for stream in program.streams
        ]
        for group in zip_longest(*(part.tolist() for part in together)):
            for index in group:
                if index is not None:
                    found[index] = tuple(other for other in group if other not in (None, index))
    return found


def _coverage(program: Program, reads: _Reads) -> Mask:
    buffer = program.buffer(reads.buffer)
    count, width = math.prod(buffer.shape), dtypes.BY_NAME[buffer.dtype].bits
    if reads.all:
        return np.ones(buffer.shape, bool)
    found = np.zeros(count, bool)
    fine: dict[int, Mask] = {width: found}
    for number in reads.accesses:
        access = program.access(number)
        bits = dtypes.BY_NAME[access.dtype].bits
        unit = math.gcd(bits, width)
        units = fine.setdefault(unit, np.zeros(count * width // unit, bool))
        table = None if access.table is None else program.constants[access.table]
        if (
            access.index is not None
            or access.size > ENUMERATED
            or not _mark(units, access, bits // unit, table)
        ):
            return np.ones(buffer.shape, bool)
    for unit, units in fine.items():
        if unit != width:
            found |= units.reshape(count, width // unit).any(axis=1)
    return found.reshape(buffer.shape)


def _mark(units: Mask, access: Access, width: int, table: NDArray[np.int64] | None) -> bool:
    """Mark the elements of an access, each of `width` units; False where the access is malformed."""
    rank = len(access.pattern)
    if any(len(bound.coefficients) != rank for bound in access.bounds) or (
        table is not None and table.size != access.size
    ):
        return False
    strides = [stride for stride, _ in access.pattern]
    if table is None and not access.bounds:
        reach = ranges(access, (Form(access.base, tuple(strides)),))
        if reach is None:
            return True
        low, high = reach[0]
        if low >= 0 and (high + 1) * width <= len(units):
            steps = [*(stride * width for stride in strides), 1]
            as_strided(units[access.base * width :], (*access.shape, width), steps)[...] = True
            return True
    flat = offsets(access, table)
    flat = (flat[allowed(access)] if access.bounds else flat).reshape(-1)
    flat = flat[(flat >= 0) & ((flat + 1) * width <= len(units))]
    for part in range(width):
        units[flat * width + part] = True
    return True

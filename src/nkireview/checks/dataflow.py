"""Who wrote what an instruction reads, and who reads what it wrote: asked for one operand at a time.

Nothing is walked beforehand but an index of the operands of each storage place. Views on chip are told apart by the
partitions and bytes that they may touch; in HBM, by whether they are the same view. Where a question takes more than
`FAR` steps, or several streams write a place, the answer is `UNKNOWN`, and nothing may be concluded from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from nkireview.checks.boxes import Box, bits, box_of, holds, overlap
from nkireview.isa.row import Row
from nkireview.isa.table import ROWS
from nkireview.program.call import CallView
from nkireview.program.interning import Ints, by_opcode, intern
from nkireview.program.program import Program
from nkireview.program.scope import Scope, distinct_calls
from nkireview.program.storage import READS, WHOLE, WRITES, Storage, storage

FAR = 256
"""Operands of one place that are looked at for one question."""
DEPTH = 24
"""Instructions that a path is followed through."""
UNKNOWN = -2
"""Stands for a writer or reader that cannot be told."""
KEPT = 8
"""Programs whose dataflow is kept for whoever asks next."""
_INDEX = ".index"


@dataclass(frozen=True)
class Slot:
    """An operand of an instruction."""

    instruction: int
    operand: str


@dataclass(frozen=True)
class Site:
    """Instructions of one line that limits cannot tell apart: the first of them, how many there are, the call."""

    instruction: int
    count: int
    call: CallView

    def slot(self, operand: str) -> Slot:
        """An operand of the first of them."""
        return Slot(self.instruction, operand)


@dataclass(frozen=True, eq=False)
class Dataflow:
    """The questions. An instruction in a device-side loop is also reached from the end of the loop's body.

    The index tile of an operand is an operand too, which is read, named ``operand.index``.
    """

    scope: Scope
    held: Storage = field(repr=False)

    @classmethod
    def of(cls, program: Program, rows: Mapping[str, Row]) -> Dataflow:
        """Raise ProgramError where the header names an unknown target or release."""
        return cls(Scope.of(program, rows), storage(program, rows))

    @property
    def program(self) -> Program:
        """The Program that is asked about."""
        return self.scope.program

    def sites(self, opcodes: Sequence[str] = ()) -> Iterator[Site]:
        """The sites of some opcodes, or of all, in order of the program."""
        found = (
            self._sites if not opcodes else [site for site in self._sites if site.call.row.name in opcodes]
        )
        return iter(found)

    @cached_property
    def _sites(self) -> list[Site]:
        columns = self.program.columns
        found = []
        for code, rows, accesses in by_opcode(self.program):
            opcode = self.program.opcodes[code]
            row = self.scope.rows.get(opcode.name)
            if row is None or not set(opcode.operands) <= {operand.name for operand in row.operands}:
                continue
            calls = distinct_calls(self.scope, row, opcode.operands, rows, accesses)
            classes = intern([calls.classes.of, columns.place[rows]], len(rows))
            times = np.bincount(classes.of, minlength=len(classes)).tolist()
            for first, count in zip(classes.first.tolist(), times, strict=True):
                call = calls.calls[int(calls.classes.of[first])]
                found.append(Site(int(rows[first]), count, call))
        return sorted(found, key=lambda site: site.instruction)

    def call(self, instruction: int) -> CallView | None:
        """The instruction as limits see it; None where it has no row."""
        found = self._calls.get(instruction)
        if found is None:
            opcode = self.program.opcodes[self.program.columns.opcode[instruction]]
            row = self.scope.rows.get(opcode.name)
            if row is None or not set(opcode.operands) <= {operand.name for operand in row.operands}:
                return None
            found = self._calls[instruction] = self.scope.call(row, opcode.operands, instruction)
        return found

    def writers(self, slot: Slot) -> tuple[Slot, ...]:
        """The operands that may have written what a read operand reads, latest first.

        Empty where nothing wrote it: a parameter, a constant, or memory that was never written. A Slot of the
        instruction `UNKNOWN` stands for what cannot be told.
        """
        return self._cached(self._writers, slot, self._find_writers)

    def readers(self, slot: Slot) -> tuple[Slot, ...]:
        """The operands that may read what a written operand writes, in order; like `writers`."""
        return self._cached(self._readers, slot, self._find_readers)

    def parameter(self, slot: Slot) -> str:
        """The path of the parameter that an operand touches; empty where it is none."""
        return self._parameters.get(self._place_of(slot), "")

    def place(self, slot: Slot) -> int:
        """The storage place that an operand touches."""
        return self._place_of(slot)

    def tile_dtype(self, slot: Slot) -> str:
        """The dtype of an operand."""
        return self.program.access(int(self._operand[self._flat(slot)])).dtype

    def operand_writes(self, slot: Slot) -> bool:
        """True where the operand is written."""
        return bool(self._use[self._flat(slot)] & WRITES)

    def operands(self, instruction: int, uses: int) -> Iterator[Slot]:
        """The operands of an instruction with one of the uses (READS, WRITES)."""
        columns = self.program.columns
        names = self.program.opcodes[columns.opcode[instruction]].operands
        begin = int(columns.operand_at[instruction])
        for at, name in enumerate(names):
            if columns.operand[begin + at] >= 0 and self._use[begin + at] & uses:
                yield Slot(instruction, name)

    def _cached(
        self,
        known: dict[Slot, tuple[Slot, ...]],
        slot: Slot,
        find: Callable[[int], tuple[Slot, ...]],
    ) -> tuple[Slot, ...]:
        if slot not in known:
            known[slot] = find(self._flat(slot))
        return known[slot]

    def _flat(self, slot: Slot) -> int:
        columns = self.program.columns
        if slot.operand.endswith(_INDEX):
            return len(columns.operand) + self._tile_slots.index(slot)
        names = self.program.opcodes[columns.opcode[slot.instruction]].operands
        return int(columns.operand_at[slot.instruction]) + int(names.index(slot.operand))

    def _place_of(self, slot: Slot) -> int:
        return int(self._place[self._flat(slot)])

    @cached_property
    def _tiles(self) -> dict[Slot, tuple[int, int]]:
        """The index tiles of all operands, each with its access and place."""
        columns = self.program.columns
        found = {}
        for flat in np.flatnonzero(np.isin(columns.operand, list(self.held.indices))).tolist():
            owner = int(np.searchsorted(columns.operand_at, flat, side="right")) - 1
            name = self.program.opcodes[columns.opcode[owner]].operands[flat - int(columns.operand_at[owner])]
            for place, tile in self.held.indices[int(columns.operand[flat])]:
                name = f"{name}{_INDEX}"
                if tile >= 0:
                    found[Slot(owner, name)] = tile, place
        return found

    @cached_property
    def _tile_slots(self) -> list[Slot]:
        return list(self._tiles)

    @cached_property
    def _operand(self) -> Ints:
        """The access of each operand, index tiles at the end."""
        tiles = np.array([tile for tile, _ in self._tiles.values()], np.int64)
        return np.concatenate([self.program.columns.operand.astype(np.int64), tiles])

    @cached_property
    def _place(self) -> Ints:
        """The storage place of each operand."""
        return np.concatenate(
            [self.held.place, np.array([place for _, place in self._tiles.values()], np.int64)]
        )

    @cached_property
    def _use(self) -> NDArray[np.int8]:
        """What is done to each operand."""
        return np.concatenate([self.held.use, np.full(len(self._tiles), READS, np.int8)])

    @cached_property
    def _calls(self) -> dict[int, CallView]:
        return {}

    @cached_property
    def _writers(self) -> dict[Slot, tuple[Slot, ...]]:
        return {}

    @cached_property
    def _readers(self) -> dict[Slot, tuple[Slot, ...]]:
        return {}

    @cached_property
    def _parameters(self) -> dict[int, str]:
        return {int(self.held.of_buffer[buffer]): path for path, buffer in self.program.parameter_buffers}

    @cached_property
    def _index(self) -> tuple[Ints, Ints, Ints, Ints]:
        """Flat operands sorted by place then position, where each place begins, owners, and ranks of flat operands."""
        columns = self.program.columns
        place = self._place
        owner = np.repeat(np.arange(len(self.program)), np.diff(columns.operand_at)).astype(np.int64)
        owner = np.concatenate([owner, np.array([slot.instruction for slot in self._tiles], np.int64)])
        order = np.lexsort((owner, place)).astype(np.int64)
        count = int(place.max()) + 2 if len(place) else 1
        starts = np.searchsorted(place[order], np.arange(count)).astype(np.int64)
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        return order, starts, owner, rank

    def _loops(self, instruction: int) -> list[tuple[int, int]]:
        """The device-side loops around an instruction, the innermost first."""
        around = [
            (loop.stop - loop.start, loop.start, loop.stop)
            for loop in self.program.loops
            if loop.start <= instruction < loop.stop
        ]
        return [(start, stop) for _, start, stop in sorted(around)]

    def _stream(self, instruction: int) -> tuple[int, int]:
        for stream in self.program.streams:
            if stream.start <= instruction < stream.stop:
                return stream.start, stream.stop
        return 0, len(self.program)

    def _slot(self, flat: int) -> Slot:
        columns = self.program.columns
        if flat >= len(columns.operand):
            return self._tile_slots[flat - len(columns.operand)]
        owner = int(self._index[2][flat])
        names = self.program.opcodes[columns.opcode[owner]].operands
        return Slot(owner, names[flat - int(columns.operand_at[owner])])

    def _elsewhere(self, place: int, stream: tuple[int, int]) -> bool:
        """True where another stream, or a place that shares bytes, may write the place."""
        if place in self.held.touching:
            return True
        if len(self.program.streams) < 2:
            return False
        order, starts, owner, _ = self._index
        flats = order[starts[place] : starts[place + 1]]
        owners = owner[flats]
        outside = (owners < stream[0]) | (owners >= stream[1])
        return bool((outside & ((self._use[flats] & WRITES) != 0)).any())

    def _find_writers(self, flat: int) -> tuple[Slot, ...]:
        order, starts, owner, rank = self._index
        place = int(self._place[flat])
        mine = int(owner[flat])
        stream = self._stream(mine)
        unknown = (Slot(UNKNOWN, ""),)
        if place < 0 or self._elsewhere(place, stream):
            return unknown
        found: list[Slot] = []
        at, steps, loops = int(rank[flat]) - 1, 0, self._loops(mine)
        first = int(starts[place])
        while True:
            while loops and (at < first or owner[order[at]] < loops[0][0]):
                # the iteration before: from the end of the body down to this instruction
                around = self._around(flat, place, loops.pop(0))
                found.extend(slot for slot in around if slot not in found)
            if at < first or owner[order[at]] < stream[0]:
                return tuple(found)
            other = int(order[at])
            at, steps = at - 1, steps + 1
            if steps > FAR:
                return (*found, *unknown)
            if owner[other] == mine or not self._use[other] & WRITES or not self._meets(flat, other):
                continue
            found.append(self._slot(other))
            if self._covers(other, flat) and self._use[other] & (READS | WRITES) == WRITES:
                return tuple(found)

    def _around(self, flat: int, place: int, loop: tuple[int, int]) -> list[Slot]:
        order, starts, owner, _ = self._index
        flats = order[starts[place] : starts[place + 1]]
        inside = flats[(owner[flats] >= owner[flat]) & (owner[flats] < loop[1])]
        found = []
        for other in inside[::-1][:FAR].tolist():
            if self._use[other] & WRITES and self._meets(flat, other):
                found.append(self._slot(other))
                if self._covers(other, flat):
                    break
        return found

    def _find_readers(self, flat: int) -> tuple[Slot, ...]:
        order, starts, owner, rank = self._index
        place = int(self._place[flat])
        mine = int(owner[flat])
        stream = self._stream(mine)
        unknown = (Slot(UNKNOWN, ""),)
        if place < 0 or self._elsewhere(place, stream) or bool(self._loops(mine)):
            return unknown
        found: list[Slot] = []
        last, covered = int(starts[place + 1]), -1
        for steps, at in enumerate(range(int(rank[flat]) + 1, last)):
            other = int(order[at])
            # an instruction reads before it writes, whatever the order of its operands
            if owner[other] >= stream[1] or (covered >= 0 and owner[other] != covered):
                break
            if steps > FAR:
                return (*found, *unknown)
            if owner[other] == mine or not self._meets(flat, other):
                continue
            if self._use[other] & READS:
                found.append(self._slot(other))
            elif self._covers(other, flat):
                covered = int(owner[other])
        return tuple(found)

    def _box(self, flat: int) -> Box | None:
        access = int(self._operand[flat])
        known = self._boxes
        if access not in known:
            known[access] = box_of(self.scope.tile(access))
        return known[access]

    @cached_property
    def _boxes(self) -> dict[int, Box | None]:
        return {}

    def _meets(self, flat: int, other: int) -> bool:
        a, b = self._box(flat), self._box(other)
        return a is None or b is None or overlap(a, b)

    def _covers(self, writer: int, flat: int) -> bool:
        """True where what one operand writes is surely all that the other touches."""
        if self._use[writer] & WHOLE:
            return True
        access = int(self._operand[writer])
        if access == self._operand[flat] and access not in self.program.extras:
            return True
        a, b = self._box(writer), self._box(flat)
        return a is not None and b is not None and holds(a, b) and self._dense(writer, a)

    def _dense(self, flat: int, box: Box) -> bool:
        """True where an access touches every bit of its box."""
        tile = self.scope.tile(int(self._operand[flat]))
        return bits(box) == tile.access.size * tile.bits


@lru_cache(maxsize=KEPT)
def flow_of(program: Program) -> Dataflow:
    """The dataflow of a Program, made once for all who ask of the Programs that are under judgement.

    Raise ProgramError where the header names an unknown target or release.
    """
    return Dataflow.of(program, ROWS)

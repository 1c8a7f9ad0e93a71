"""Residence: which tiles a compiler that manages SBUF itself keeps there, fetches again, saves, or need not make.

The legacy compiler does not run a kernel as written. It loads a region once where the tile can stay until it is loaded
again, drops what would be computed a second time from it, and where more is alive than fits it gives up the tiles
that were used longest ago: what came from HBM unchanged is fetched again, what was computed is saved first. A tile
that was fetched serves at once all instructions that could run by then. So each instruction is followed in order over
a memory of the target's usable bytes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from nkireview.hardware import Hardware
from nkireview.isa.enums import Engine, Memory
from nkireview.isa.row import Flow
from nkireview.isa.table import ROWS
from nkireview.program.interning import Ints, by_opcode
from nkireview.program.program import MEMORIES, Program
from nkireview.program.scope import Scope
from nkireview.program.storage import Storage
from nkireview.schedule.reuse import Places
from nkireview.schedule.touches import cores_of
from nkireview.schedule.uses import Uses

_SBUF = MEMORIES.index(Memory.sbuf)


@dataclass(frozen=True)
class Fetch:
    """Bytes that come back into SBUF before an instruction, or are saved before it.

    `load` is the DMA that is repeated, -1 for a tile that was computed. `after` is the last instruction that used what
    gave way, -1 where nothing did. `bytes` over all partitions.
    """

    before: int
    load: int
    after: int
    bytes: int
    saves: bool = False


@dataclass(frozen=True, eq=False)
class Residence:
    """What differs from the program as written.

    `dropped` marks instructions that need not run; `source` has the one whose result stands in, -1 where nobody needs
    it. `fetches` by the instruction they come before. `repeats`: some region of HBM is loaded twice, unchanged.
    """

    dropped: NDArray[np.bool_]
    source: Ints
    fetches: Sequence[Fetch]
    repeats: bool = False

    def renamed(self, order: Ints) -> Residence:
        """With the instructions' own numbers, where these are positions in an order."""
        dropped, source = np.empty_like(self.dropped), np.empty_like(self.source)
        names = np.append(order, -1).tolist()
        dropped[order] = self.dropped
        source[order] = np.where(self.source >= 0, order[self.source], -1)
        return replace(
            self,
            dropped=dropped,
            source=source,
            fetches=tuple(
                replace(fetch, before=names[fetch.before], load=names[fetch.load], after=names[fetch.after])
                for fetch in self.fetches
            ),
        )


def residence(
    scope: Scope, stored: Storage, used: Uses, hardware: Hardware, order: Ints, spare: float
) -> Residence:
    """Follow a program in a legal order; one with device-side loops or addresses of its own is taken as it is.

    spare: share of SBUF that is not filled with tiles that are only kept for later.
    """
    program = scope.program
    places = Places.of(program, stored)
    nothing = Residence(np.zeros(len(program), bool), np.full(len(program), -1, np.int64), ())
    own = places.addressed & (places.memory == _SBUF)
    if program.loops or own.any() or stored.touching or len(cores_of(program)) != 1:
        return nothing
    place_in = np.empty(len(order), np.int64)
    place_in[order] = np.arange(len(order))
    when = place_in[used.instruction]
    rows = np.argsort(when * 2 + used.writes, kind="stable")
    facts = _Facts.of(scope, stored, replace(used.where(rows), instruction=when[rows]), places, order)
    run = _Run(facts, hardware.sbuf_usable_bytes, spare)
    for instruction in range(len(program)):
        run.step(instruction)
    return run.finish().renamed(order)


@dataclass(frozen=True, eq=False)
class _Facts:
    """Per instruction what it reads and writes; per place its size, last use and what value it holds in the end."""

    count: int
    reads: list[list[int]]
    writes: list[list[int]]
    is_load: list[bool]
    is_store: list[bool]
    sums: list[bool]  # matmuls, whose order within a sum is free
    size: list[int]  # bytes a partition, 0 where a place is not in SBUF
    total: list[int]  # bytes over all partitions
    last: list[int]
    value: list[int]  # places of equal number hold equal values in the end; -1: changes after it was read
    first_writer: list[int]
    clean: list[bool]  # only loads from HBM that nobody writes made it
    writers: list[list[int]]
    again: list[bool]  # a later place holds the same value

    @classmethod
    def of(cls, scope: Scope, stored: Storage, used: Uses, places: Places, order: Ints) -> _Facts:
        program = scope.program
        count, number = len(program), max(stored.count, 1)
        reads: list[list[int]] = [[] for _ in range(count)]
        writes: list[list[int]] = [[] for _ in range(count)]
        forms: list[list[tuple[int, int, bool]]] = [[] for _ in range(count)]
        position = scope.positions.of
        access = used.access
        form = position[access]
        on_chip = places.memory[used.place] >= 0
        hbm_written = np.zeros(number, bool)
        hbm_written[used.place[used.writes & ~on_chip]] = True
        for instruction, place, kind, chip, which, read, write in zip(
            used.instruction.tolist(),
            used.place.tolist(),
            form.tolist(),
            on_chip.tolist(),
            access.tolist(),
            used.reads.tolist(),
            used.writes.tolist(),
            strict=True,
        ):
            # an access to HBM is named itself, one on chip by where in its tile it lies
            forms[instruction].append((place, kind if chip else which, write))
            if chip:
                if read:
                    reads[instruction].append(place)
                if write:
                    writes[instruction].append(place)
        is_load, is_store = _transfers(program, used, on_chip, order)
        pure = _pure(program)[order].tolist()
        value = [0] * number
        numbers: dict[tuple[object, ...], int] = {}
        was_read, shown = [False] * number, [False] * number  # at all, and by what does not write it
        last, first_writer = [-1] * number, [-1] * number
        clean = [True] * number
        writers: list[list[int]] = [[] for _ in range(number)]
        codes = program.columns.opcode[order].tolist()
        given = program.columns.immediates[order].tolist()
        fresh = 1
        for instruction in range(count):
            for place in reads[instruction]:
                was_read[place] = True
                shown[place] |= place not in writes[instruction]
                last[place] = instruction
            if not writes[instruction]:
                continue
            known = pure[instruction] and all(
                value[place] >= 0 if places.memory[place] >= 0 else not hbm_written[place]
                for place, _, write in forms[instruction]
                if not write
            )
            came = is_load[instruction] and known
            for at in writes[instruction]:
                last[at] = instruction
                if first_writer[at] < 0:
                    first_writer[at] = instruction
                writers[at].append(instruction)
                clean[at] = clean[at] and came
                if shown[at] or (was_read[at] and at not in reads[instruction]):
                    value[at] = -1
                if value[at] < 0:
                    continue
                if not known:
                    value[at], fresh = -1, fresh + 1
                    continue
                key = (
                    value[at],
                    codes[instruction],
                    given[instruction],
                    tuple(
                        (value[place] if places.memory[place] >= 0 else -1 - place, kind, write)
                        for place, kind, write in forms[instruction]
                        if not (write and place != at)
                    ),
                )
                value[at] = numbers.setdefault(key, len(numbers) + 1)
        sbuf = places.memory == _SBUF
        later: dict[int, int] = {}
        again = [False] * number
        for place in range(number - 1, -1, -1):
            if sbuf[place] and value[place] > 0:
                again[place] = value[place] in later
                later[value[place]] = place
        return cls(
            count=count,
            reads=reads,
            writes=writes,
            is_load=is_load,
            is_store=is_store,
            sums=_sums(program)[order].tolist(),
            size=np.where(sbuf, places.size, 0).tolist(),
            total=np.where(sbuf, places.size * places.partitions, 0).tolist(),
            last=last,
            value=value,
            first_writer=first_writer,
            clean=clean,
            writers=writers,
            again=again,
        )


def _transfers(
    program: Program, used: Uses, on_chip: NDArray[np.bool_], order: Ints
) -> tuple[list[bool], list[bool]]:
    """Which positions load from HBM, and which store to it."""
    dma = np.array(
        [
            opcode.name in ROWS and ROWS[opcode.name].engines.default is Engine.dma
            for opcode in program.opcodes
        ],
        bool,
    )[program.columns.opcode[order]]
    to_hbm, from_hbm = np.zeros(len(program), bool), np.zeros(len(program), bool)
    to_hbm[used.instruction[used.writes & ~on_chip]] = True
    from_hbm[used.instruction[used.reads & ~on_chip]] = True
    return (dma & from_hbm & ~to_hbm).tolist(), (dma & to_hbm).tolist()


def _sums(program: Program) -> NDArray[np.bool_]:
    """Instructions that add products to what is there."""
    adds = [
        opcode.name in ROWS and Flow.contract in ROWS[opcode.name].flow.values() for opcode in program.opcodes
    ]
    found: NDArray[np.bool_] = np.array(adds, bool)[program.columns.opcode]
    return found


def _pure(program: Program) -> NDArray[np.bool_]:
    """Instructions whose result depends on nothing but their operands."""
    drawn = np.zeros(len(program), bool)
    for code, rows, _ in by_opcode(program):
        name = program.opcodes[code].name
        drawn[rows] = (
            name not in ROWS or name.startswith(("rng", "rand", "dropout")) or ROWS[name].meets != ""
        )
    return ~drawn


class _Run:
    """The memory while the program goes by."""

    def __init__(self, facts: _Facts, room: int, spare: float) -> None:
        self.facts = facts
        self.left = room
        self.spare = int(room * spare)
        self.live: OrderedDict[int, int] = (
            OrderedDict()
        )  # place -> last instruction that used it; oldest first
        self.kept: OrderedDict[int, int] = OrderedDict()  # no longer used itself, but made again later
        self.by_value: dict[int, int] = {}
        self.away: set[int] = set()
        self.saved: set[int] = set()
        self.stands: dict[int, int] = {}  # place -> the one that stands in for it
        self.fetches: list[Fetch] = []
        self.dropped = np.zeros(facts.count, bool)
        self.ends: dict[int, int] = {}  # place -> last use, those that stand in for others included
        self.wrote: dict[int, int] = {}
        self.came: dict[int, int] = {}  # place -> when it was last brought into SBUF

    def step(self, instruction: int) -> None:
        facts = self.facts
        pinned = {self._of(place) for place in (*facts.reads[instruction], *facts.writes[instruction])}
        for place in facts.writes[instruction]:
            if not facts.size[place]:
                continue
            if facts.first_writer[place] == instruction:
                twin = self.by_value.get(facts.value[place], -1) if facts.value[place] > 0 else -1
                if twin >= 0 and facts.last[twin] < facts.count and self._whole(twin, instruction):
                    self._stand_in(twin, place, instruction)
        if all(place in self.stands for place in facts.writes[instruction]) and facts.writes[instruction]:
            self.dropped[instruction] = True
            self._release(instruction)
            return
        for place in facts.reads[instruction]:
            place = self._of(place)
            if facts.size[place] and place in self.away and not self._served(place, instruction):
                self._fetch(place, instruction, pinned)
        for place in facts.writes[instruction]:
            place = self._of(place)
            self.wrote[place] = instruction
            if facts.size[place] and place not in self.live:
                if place in self.away:
                    self._fetch(place, instruction, pinned)
                else:
                    self._room(place, instruction, pinned)
        for place in pinned:
            if place in self.live:
                self.live.move_to_end(place)
                self.live[place] = instruction
        self._release(instruction)

    def finish(self) -> Residence:
        """Drop as well what only dropped instructions read."""
        facts, dropped = self.facts, self.dropped
        readers: dict[int, int] = {}
        for instruction in np.flatnonzero(~dropped).tolist():
            for place in facts.reads[instruction]:
                place = self._of(place)
                readers[place] = readers.get(place, 0) + 1
        wasted = bool(dropped.any())
        for instruction in range(facts.count - 1, -1, -1) if wasted else ():
            made = facts.writes[instruction]
            if dropped[instruction] or not made or facts.is_store[instruction]:
                continue
            # what nobody read in the first place stays: the kernel wrote it for a reason that is not known here
            if all(not readers.get(place) and self._read_once(place) for place in made):
                dropped[instruction] = True
                for place in facts.reads[instruction]:
                    readers[self._of(place)] -= 1
        source = np.full(facts.count, -1, np.int64)
        for place, twin in self.stands.items():
            for late, early in zip(facts.writers[place], facts.writers[twin], strict=False):
                source[late] = early
        fetches = tuple(
            fetch
            for fetch in self.fetches
            if not dropped[fetch.before] and not (fetch.load >= 0 and dropped[fetch.load])
        )
        twice = any(again and clean for again, clean in zip(facts.again, facts.clean, strict=True))
        return Residence(dropped, source, fetches, twice)

    def _read_once(self, place: int) -> bool:
        return self.facts.last[place] > self.facts.writers[place][-1]

    def _of(self, place: int) -> int:
        return self.stands.get(place, place)

    def _whole(self, twin: int, instruction: int) -> bool:
        return (twin in self.live or twin in self.kept) and self.facts.writers[twin][-1] < instruction

    def _stand_in(self, twin: int, place: int, instruction: int) -> None:
        """From now on an earlier tile is used where this one would be."""
        self.stands[place] = twin
        self.ends[twin] = max(self.ends.get(twin, self.facts.last[twin]), self.facts.last[place])
        if twin in self.kept:
            self.live[twin] = self.kept.pop(twin)
        self.live.move_to_end(twin)
        self.live[twin] = instruction

    def _room(self, place: int, instruction: int, pinned: set[int]) -> int:
        """Make room for a tile; the last instruction that used what gave way."""
        after = self._give(self.facts.size[place], instruction, pinned)
        self.live[place] = self.came[place] = instruction
        self.left -= self.facts.size[place]
        self.away.discard(place)
        if self.facts.value[place] > 0:
            self.by_value[self.facts.value[place]] = place
        return after

    def _give(self, size: int, instruction: int, pinned: set[int]) -> int:
        after = self._forget(size)
        while self.left < size:
            gone = next((place for place in self.live if place not in pinned), -1)
            if gone < 0:
                break
            when = self.live.pop(gone)
            self.left += self.facts.size[gone]
            self.away.add(gone)
            after = max(after, when)
            if not self.facts.clean[gone] and gone not in self.saved:
                self.saved.add(gone)
                self.fetches.append(Fetch(instruction, -1, when, self.facts.total[gone], saves=True))
        return after

    def _forget(self, size: int) -> int:
        """Give up what is only kept until there is room for so much and some to spare."""
        after = -1
        while self.left < size + self.spare and self.kept:
            gone, when = self.kept.popitem(last=False)
            self.left += self.facts.size[gone]
            after = max(after, when)
        return after

    def _fetch(self, place: int, instruction: int, pinned: set[int]) -> None:
        after = self._room(place, instruction, pinned)
        facts = self.facts
        if facts.clean[place]:
            for load in facts.writers[place]:
                if load < instruction:
                    self.fetches.append(Fetch(instruction, load, after, 0))
        else:
            self.fetches.append(Fetch(instruction, -1, after, facts.total[place]))

    def _served(self, place: int, instruction: int) -> bool:
        """True where the instruction could have run while the tile was there the last time."""
        made = self.facts.writes[instruction] if self.facts.sums[instruction] else ()
        others = (self._of(other) for other in self.facts.reads[instruction] if other not in made)
        came = self.came.get(place, -1)
        return all(self.wrote.get(other, -1) < came for other in others if other != place)

    def _release(self, instruction: int) -> None:
        """Free what is not used any more, or keep it for the tile that would be made again."""
        facts = self.facts
        for place in (*facts.reads[instruction], *facts.writes[instruction]):
            place = self._of(place)
            if place in self.live and self.ends.get(place, facts.last[place]) <= instruction:
                when = self.live.pop(place)
                if facts.again[place] and facts.value[place] > 0:
                    self.kept[place] = when
                    self._forget(0)
                else:
                    self.left += facts.size[place]

"""Reuse: where buffers lie on chip, and which of them take over the memory of which earlier ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nkireview.hardware import Hardware
from nkireview.isa import dtypes
from nkireview.isa.enums import Memory
from nkireview.isa.release import Release
from nkireview.isa.table import ROWS
from nkireview.program.interning import Ints, by_opcode, by_rank
from nkireview.program.program import MEMORIES, Program
from nkireview.program.storage import Storage
from nkireview.schedule.lifetime import Lifetimes, lifetimes
from nkireview.schedule.ring import Fixed, Request, Ring
from nkireview.schedule.uses import Uses, uses

Arrivals = Mapping[int, Sequence[tuple[int, tuple[int, ...]]]]
"""instruction -> (place that is first used there, places whose memory it takes over)."""


ONE_BANK = 13
"""The limit by which a result has to lie in one bank of PSUM."""


@dataclass(frozen=True, eq=False)
class Allocation:
    """Where the buffers on chip that are used lie, as columns; `start` and `stop` are bytes of a partition.

    `start` is -1 where there is no room. `first` and `last` are a buffer's own; `arrivals` is by storage place.
    """

    buffer: Ints
    memory: Ints
    core: Ints
    partition: Ints
    partitions: Ints
    start: Ints
    stop: Ints
    first: Ints
    last: Ints
    explicit: NDArray[np.bool_]
    arrivals: Arrivals
    full: tuple[Memory, ...]
    """The memories that cannot hold all that is alive at once."""


def reuse(program: Program, storage: Storage, hardware: Hardware) -> tuple[Arrivals, tuple[Memory, ...]]:
    """Who takes over whose memory, and the memories that cannot hold all that is alive at once."""
    found = allocation(program, storage, hardware, uses(program, storage))
    return found.arrivals, found.full


def allocation(program: Program, storage: Storage, hardware: Hardware, used: Uses) -> Allocation:
    """Where each buffer on chip lies.

    Addresses of the kernel's own are kept. The other buffers are placed by first use, each after the one before it,
    around the end of the memory, beside what has an address and is needed at the same time; what is live is not
    overwritten, also not what a device-side loop carries. Where that leaves one without room, the memory is given out
    anew and tightly: from its lowest free byte, with buffers of few partitions side by side. One for which there is
    still no room stays without an address and a predecessor.
    """
    places = Places.of(program, storage)
    lives = lifetimes(program, used, used.place, max(storage.count, 1))
    needed = _needed(storage, lives, places.addressed)
    held = np.flatnonzero((lives.first >= 0) & (places.memory >= 0))
    held = held[np.lexsort((lives.opened[held], lives.first[held]))]
    banked = _one_bank(program, storage, hardware, len(places.size))
    start = np.where(places.addressed, places.start, -1)
    partition = np.where(places.addressed, places.partition, 0)
    taken: list[tuple[int, int, tuple[int, ...]]] = []
    full = []
    homes = places.memory * (int(places.core.max()) + 1) + places.core
    for home in np.unique(homes[held]).tolist():
        mine = held[homes[held] == home]
        if places.addressed[mine].all():
            continue
        memory = MEMORIES[int(places.memory[mine[0]])]
        runs = [_Run.of(places, lives, needed, banked, mine, memory, hardware, tight=False)]
        if runs[0].missing:
            runs.append(_Run.of(places, lives, needed, banked, mine, memory, hardware, tight=True))
        run = min(runs, key=lambda each: each.missing)
        start[mine], partition[mine] = run.start, run.partition
        taken += run.taken
        if run.missing:
            full.append(memory)
    arrivals: dict[int, list[tuple[int, tuple[int, ...]]]] = {}
    for opened, place, before in sorted(taken, key=lambda row: row[:2]):
        arrivals.setdefault(opened, []).append((place, before))
    return _columns(
        program,
        storage,
        used,
        start,
        partition,
        arrivals,
        tuple(sorted(set(full), key=lambda memory: memory.name)),
    )


@dataclass(frozen=True, eq=False)
class _Run:
    """One way to place the buffers of a memory: their first bytes and partitions, and how many bytes found no room."""

    start: Ints
    partition: Ints
    taken: Sequence[tuple[int, int, tuple[int, ...]]]  # first use, place, places whose bytes it takes over
    missing: int

    @classmethod
    def of(
        cls,
        places: Places,
        lives: Lifetimes,
        needed: tuple[Ints, Ints],
        banked: NDArray[np.bool_],
        mine: Ints,
        memory: Memory,
        hardware: Hardware,
        *,
        tight: bool,
    ) -> _Run:
        size, partitions = places.size, places.partitions
        fixed = [
            Fixed(
                place,
                int(needed[0][place]),
                int(needed[1][place]),
                int(places.partition[place]),
                int(partitions[place]),
                int(places.start[place]),
                int(places.start[place] + size[place]),
            )
            for place in mine[places.addressed[mine]].tolist()
        ]
        narrow = bool(np.any(partitions[mine] <= hardware.partitions // 2))
        ring = Ring(memory, hardware, fixed, tight=tight, shared=tight and narrow)
        starts, rows, taken, missing = [], [], [], 0
        columns = (lives.first, lives.last, lives.opened, size, partitions, banked, places.addressed)
        own = dict(zip((each.place for each in fixed), fixed, strict=True))
        for place, first, last, opened, bytes_, across, bank, addressed in zip(
            mine.tolist(), *(column[mine].tolist() for column in columns), strict=True
        ):
            if addressed:
                at: tuple[int, int] | None = (own[place].partition, own[place].start)
            elif bytes_:
                at = ring.place(Request(place, first, last, bytes_, across, bank))
            else:
                at = 0, 0
            starts.append(-1 if at is None else at[1])
            rows.append(0 if at is None else at[0])
            if at is None:
                missing += bytes_ * across
            elif bytes_:
                before = ring.take(place, at[0], across, at[1], at[1] + bytes_)
                # places with addresses know by themselves which others they touch
                before = tuple(each for each in before if each not in own) if addressed else before
                if before:
                    taken.append((opened, place, before))
        return cls(np.array(starts, np.int64), np.array(rows, np.int64), taken, missing)


def _needed(storage: Storage, lives: Lifetimes, addressed: NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """First and last use of each place, of one with an address those of all that are linked to it by shared bytes."""
    first, last = lives.first.copy(), lives.last.copy()
    left = {place for place in storage.touching if addressed[place]}
    while left:
        group, reach = [], [left.pop()]
        while reach:
            group.append(reach.pop())
            near = left.intersection(storage.touching[group[-1]])
            left -= near
            reach += near
        used = [place for place in group if lives.first[place] >= 0]
        if used:
            first[used], last[used] = lives.first[used].min(), lives.last[used].max()
    return first, last


def _one_bank(program: Program, storage: Storage, hardware: Hardware, count: int) -> NDArray[np.bool_]:
    """Which places receive results that have to lie in one bank of PSUM."""
    found = np.zeros(count, bool)
    release = Release.parse(program.header.release)
    for code, instructions, _ in by_opcode(program):
        opcode = program.opcodes[code]
        row = ROWS.get(opcode.name)
        limits = row.limits if row else ()
        if "dst" in opcode.operands and any(
            limit.number == ONE_BANK
            and hardware.generation in limit.generations
            and release in limit.releases
            for limit in limits
        ):
            at = program.columns.operand_at[instructions] + opcode.operands.index("dst")
            written = storage.place[at]
            found[written[written >= 0]] = True
    return found


def _columns(
    program: Program,
    storage: Storage,
    used: Uses,
    start: Ints,
    partition: Ints,
    arrivals: Arrivals,
    full: tuple[Memory, ...],
) -> Allocation:
    """The allocation by buffer, from that by place."""
    columns = program.columns
    lives = lifetimes(program, used, used.buffer, columns.buffers)
    size, partitions = _extents(program)
    on_chip = np.array([memory.on_chip for memory in MEMORIES])[columns.buffer_memory]
    buffer = np.flatnonzero(on_chip & (lives.first >= 0))
    explicit = columns.buffer_partition_address[buffer] >= 0
    place = storage.of_buffer[buffer]
    begin = np.where(explicit, columns.buffer_byte_address[buffer], start[place])
    return Allocation(
        buffer=buffer,
        memory=columns.buffer_memory[buffer].astype(np.int64),
        core=np.maximum(columns.buffer_core[buffer].astype(np.int64), 0),
        partition=np.where(explicit, columns.buffer_partition_address[buffer], partition[place]).astype(
            np.int64
        ),
        partitions=partitions[buffer],
        start=begin.astype(np.int64),
        stop=np.where(begin >= 0, begin + size[buffer], -1).astype(np.int64),
        first=lives.first[buffer],
        last=lives.last[buffer],
        explicit=explicit,
        arrivals=arrivals,
        full=full,
    )


def _extents(program: Program) -> tuple[Ints, Ints]:
    """Bytes a partition and partitions of each buffer."""
    columns = program.columns
    bits = np.array([dtypes.BY_NAME[name].bits for name in program.dtypes], np.int64)
    size, partitions = np.ones(columns.buffers, np.int64), np.ones(columns.buffers, np.int64)
    for rank, rows, at in by_rank(columns.dim_at):
        if rank:
            size[rows] = columns.dim[at[:, 1:]].prod(axis=1)
            partitions[rows] = columns.dim[at[:, 0]]
    return -(-size * bits[columns.buffer_dtype] // 8), partitions


@dataclass(frozen=True, eq=False)
class Places:
    """For each storage place its memory (position in MEMORIES, -1: not on chip), core, bytes a partition, partitions,
    and whether it has an address of its own, then its first partition and byte."""

    memory: NDArray[np.int64]
    core: NDArray[np.int64]
    size: NDArray[np.int64]
    partitions: NDArray[np.int64]
    addressed: NDArray[np.bool_]
    partition: NDArray[np.int64]
    start: NDArray[np.int64]

    @classmethod
    def of(cls, program: Program, storage: Storage) -> Places:
        """The places of a Program; one of several buffers reaches from the first to the last of their bytes."""
        columns = program.columns
        bytes_of, partitions_of = _extents(program)
        on_chip = np.flatnonzero(np.array([memory.on_chip for memory in MEMORIES])[columns.buffer_memory])
        count = max(storage.count, 1)
        places = storage.of_buffer[on_chip]
        memory, core = np.full(count, -1, np.int64), np.zeros(count, np.int64)
        memory[places] = columns.buffer_memory[on_chip]
        core[places] = np.maximum(columns.buffer_core[on_chip], 0)
        addressed = np.zeros(count, bool)
        addressed[places] = columns.buffer_partition_address[on_chip] >= 0
        start, size = _reach(
            places, np.maximum(columns.buffer_byte_address[on_chip], 0), bytes_of[on_chip], count
        )
        partition, partitions = _reach(
            places, np.maximum(columns.buffer_partition_address[on_chip], 0), partitions_of[on_chip], count
        )
        return cls(memory, core, size, partitions, addressed, partition, start)


def _reach(places: Ints, begin: Ints, length: Ints, count: int) -> tuple[Ints, Ints]:
    """For each place the first of its bytes, and how many there are to the last."""
    first, last = np.full(count, np.iinfo(np.int64).max), np.zeros(count, np.int64)
    np.minimum.at(first, places, begin)
    np.maximum.at(last, places, begin + length)
    first = np.minimum(first, last)
    return first, last - first

"""Reuse: which buffers take over the memory of which earlier ones, as a rotating allocator would place them."""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nkireview.hardware import Hardware
from nkireview.isa import dtypes
from nkireview.isa.enums import Memory
from nkireview.program.interning import by_rank
from nkireview.program.program import MEMORIES, Program
from nkireview.program.storage import Storage
from nkireview.schedule.lifetime import lifetimes
from nkireview.schedule.uses import uses

Arrivals = Mapping[int, Sequence[tuple[int, tuple[int, ...]]]]
"""instruction -> (place that is first used there, places whose memory it takes over)."""


def reuse(program: Program, storage: Storage, hardware: Hardware) -> tuple[Arrivals, tuple[Memory, ...]]:
    """Who takes over whose memory, and the memories that cannot hold all that is alive at once.

    Buffers without an address are placed by first use, each after the one before it, around the end of the memory;
    what is live is not overwritten, also not what a device-side loop carries. One for which there is no room is left
    without a predecessor.
    """
    places = Places.of(program, storage)
    memories, cores, sizes = places.memory.tolist(), places.core.tolist(), places.size.tolist()
    addressed = places.addressed.tolist()
    rings: dict[tuple[int, int], _Ring] = {}
    arrivals: dict[int, list[tuple[int, tuple[int, ...]]]] = {}
    full: set[Memory] = set()
    used = uses(program, storage)
    lives = lifetimes(program, used, used.place, max(storage.count, 1))
    held = np.flatnonzero(lives.first >= 0)
    order = held[np.lexsort((lives.opened[held], lives.first[held]))]
    spans = (column[order].tolist() for column in (lives.first, lives.last, lives.opened))
    for place, first, last, opened in zip(order.tolist(), *spans, strict=True):
        memory = memories[place]
        if memory < 0 or addressed[place]:
            continue
        key = memory, cores[place]
        ring = rings.get(key)
        if ring is None:
            ring = rings[key] = _Ring.of(MEMORIES[memory], hardware)
        taken = ring.place(place, first, last, sizes[place])
        if taken is None:
            full.add(MEMORIES[memory])
        elif taken:
            arrivals.setdefault(opened, []).append((place, taken))
    return arrivals, tuple(sorted(full, key=lambda memory: memory.name))


@dataclass(frozen=True, eq=False)
class Places:
    """For each storage place its memory (position in MEMORIES, -1: not on chip), core, bytes a partition, and whether
    it has an address of its own."""

    memory: NDArray[np.int64]
    core: NDArray[np.int64]
    size: NDArray[np.int64]
    addressed: NDArray[np.bool_]

    @classmethod
    def of(cls, program: Program, storage: Storage) -> Places:
        """The places of a Program; one of several buffers is as large as the largest of them."""
        columns = program.columns
        bits = np.array([dtypes.BY_NAME[name].bits for name in program.dtypes], np.int64)
        bytes_of = np.zeros(columns.buffers, np.int64)
        for rank, rows, at in by_rank(columns.dim_at):
            if rank:
                bytes_of[rows] = columns.dim[at[:, 1:]].prod(axis=1)
        bytes_of = -(-bytes_of * bits[columns.buffer_dtype] // 8)
        on_chip = np.array([memory.on_chip for memory in MEMORIES])[columns.buffer_memory]
        count = max(storage.count, 1)
        memory, core = np.full(count, -1, np.int64), np.zeros(count, np.int64)
        size, addressed = np.zeros(count, np.int64), np.zeros(count, bool)
        places = storage.of_buffer[on_chip]
        memory[places], core[places] = columns.buffer_memory[on_chip], columns.buffer_core[on_chip]
        np.maximum.at(size, places, bytes_of[on_chip])
        addressed[places] = columns.buffer_partition_address[on_chip] >= 0
        return cls(memory, core, size, addressed)


class _Ring:
    """The bytes of one partition of a memory, given out in turn."""

    def __init__(self, size: int, align: int, large_align: int) -> None:
        self.size, self.align, self.large_align = size, align, large_align
        self._next = 0
        self._live: list[tuple[int, int, int]] = []
        self._ends: list[tuple[int, tuple[int, int, int]]] = []
        self._last: list[tuple[int, int, int]] = []  # start, stop, place: who held each byte last

    @classmethod
    def of(cls, memory: Memory, hardware: Hardware) -> _Ring:
        if memory is Memory.psum:
            align = hardware.integer("psum.min_align")
            return cls(hardware.psum_bytes, align, hardware.psum_bank_bytes)
        align = hardware.integer("sbuf.min_align")
        return cls(hardware.sbuf_usable_bytes, align, align)

    def place(self, place: int, first: int, last: int, size: int) -> tuple[int, ...] | None:
        """Give room to a place; the places that had it before, None where there is no room."""
        while self._ends and self._ends[0][0] < first:
            _, gone = heapq.heappop(self._ends)
            del self._live[bisect_left(self._live, gone)]
        start = self._find(size, self.large_align)
        if start is None and self.align < self.large_align:
            start = self._find(size, self.align)
        if start is None:
            return None
        held = start, start + size, place
        insort(self._live, held)
        heapq.heappush(self._ends, (last, held))
        self._next = start + size
        return self._take(held)

    def _find(self, size: int, align: int) -> int | None:
        """The first room for `size` bytes at or after the last one given out, else from the beginning."""
        for begin, limit in ((self._next, self.size), (0, self.size)):
            start = -(-begin // align) * align
            at = max(bisect_left(self._live, (start,)) - 1, 0)
            for low, high, _ in self._live[at:]:
                if high <= start:
                    continue
                if low >= start + size:
                    break
                start = -(-high // align) * align
            if start + size <= limit:
                return start
        return None

    def _take(self, held: tuple[int, int, int]) -> tuple[int, ...]:
        """Note the new holder of some bytes; who held them before."""
        low, high, _ = held
        at = max(bisect_left(self._last, (low,)) - 1, 0)
        if at < len(self._last) and self._last[at][1] <= low:
            at += 1
        if at < len(self._last) and self._last[at][:2] == (low, high):
            previous, self._last[at] = self._last[at][2], held
            return (previous,)
        stop = at
        before: list[int] = []
        kept: list[tuple[int, int, int]] = []
        while stop < len(self._last) and self._last[stop][0] < high:
            first, last, place = self._last[stop]
            stop += 1
            if last <= low:
                kept.append((first, last, place))
                continue
            before.append(place)
            if first < low:
                kept.append((first, low, place))
            if last > high:
                kept.append((high, last, place))
        self._last[at:stop] = sorted([*kept, held])
        return tuple(dict.fromkeys(before))

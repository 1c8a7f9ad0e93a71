"""The bytes of one memory of a core, given out to one buffer after the other."""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass

from nkireview.hardware import Hardware
from nkireview.isa.enums import Memory

Interval = tuple[int, int, int]
"""Bytes [start, stop) of a partition, and the place that holds them."""


@dataclass(frozen=True)
class Request:
    """Room for a place, from its first to its last use: bytes of each of its partitions.

    `one_bank`: it may not lie across the border of two banks of PSUM.
    """

    place: int
    first: int
    last: int
    size: int
    partitions: int
    one_bank: bool = False


@dataclass(frozen=True)
class Fixed:
    """A place with an address of its own, and from when to when its bytes are needed."""

    place: int
    first: int
    last: int
    partition: int
    partitions: int
    start: int
    stop: int


class Ring:
    """Gives out the bytes of a memory; what is alive at the same time never shares a byte of a partition.

    As it stands, each request takes its bytes of all partitions, after those of the one before it, around the end of
    the memory. A `tight` ring begins at the lowest free byte, and if `shared`, requests of few partitions share a
    range of bytes at the start partitions that the hardware allows them.
    """

    def __init__(
        self,
        memory: Memory,
        hardware: Hardware,
        fixed: Sequence[Fixed] = (),
        *,
        tight: bool = False,
        shared: bool = False,
    ) -> None:
        psum = memory is Memory.psum
        self.size = hardware.psum_bytes if psum else hardware.sbuf_usable_bytes
        self.align = hardware.integer("psum.min_align" if psum else "sbuf.min_align")
        self.bank = hardware.psum_bank_bytes if psum else self.align
        self.tight = tight
        self._hardware = hardware
        starts = hardware.start_partitions(1) if shared else (0,)
        self._borders = (*starts, hardware.partitions)
        self._lanes = [_Lane() for _ in self._borders[1:]]
        self._aligns = tuple(dict.fromkeys((self.bank, self.align)))
        self._all = range(1)
        self._next = 0
        self._free = self.size * len(self._lanes)
        self._ends: list[tuple[int, int, range, Interval]] = []
        self._fixed = sorted(fixed, key=lambda held: held.first)
        self._begun: list[tuple[int, int]] = []  # last use and number of fixed places that have begun
        self._coming = 0

    def place(self, request: Request) -> tuple[int, int] | None:
        """Give room to a request, those that come in order of their first use: (partition, byte), None: no room."""
        self._release(request.first)
        self._begin(request.first)
        found = self._room(request)
        if found is None:
            return None
        lanes, start = found
        held = start, start + request.size, request.place
        for lane in lanes:
            insort(self._lanes[lane].live, held)
        heapq.heappush(self._ends, (request.last, request.place, lanes, held))
        self._free -= request.size * len(lanes)
        self._next = start + request.size
        return self._borders[lanes.start], start

    def take(self, place: int, partition: int, partitions: int, start: int, stop: int) -> tuple[int, ...]:
        """Note the new holder of some bytes; who held them before."""
        if len(self._lanes) == 1:
            return self._lanes[0].take((start, stop, place))
        lanes = [self._lanes[lane] for lane in self._across(partition, partitions)]
        return tuple(dict.fromkeys(who for lane in lanes for who in lane.take((start, stop, place))))

    def _release(self, now: int) -> None:
        while self._ends and self._ends[0][0] < now:
            _, _, lanes, gone = heapq.heappop(self._ends)
            for lane in lanes:
                self._lanes[lane].release(gone)
            self._free += (gone[1] - gone[0]) * len(lanes)

    def _begin(self, now: int) -> None:
        while self._coming < len(self._fixed) and self._fixed[self._coming].first < now:
            heapq.heappush(self._begun, (self._fixed[self._coming].last, self._coming))
            self._coming += 1
        while self._begun and self._begun[0][0] < now:
            heapq.heappop(self._begun)

    def _room(self, request: Request) -> tuple[range, int] | None:
        size = request.size
        if size > self.size:
            return None
        blocked = self._blocked(request) if self._fixed else ()
        if len(self._lanes) == 1:
            options = [self._all]
        else:
            rows = min(max(request.partitions, 1), self._borders[-1])
            options = [
                self._across(start, request.partitions) for start in self._hardware.start_partitions(rows)
            ]
        for align in self._aligns:
            # what is larger than a bank begins with one, so that its pieces lie in one each
            whole = request.one_bank and size <= self.bank
            if align < self.bank and request.one_bank and not whole:
                break
            best: tuple[range, int] | None = None
            for lanes in options:
                if size * len(lanes) > self._free:
                    continue
                start = self._find(request, lanes, blocked, align, whole)
                if start is not None and (best is None or start < best[1]):
                    best = lanes, start
            if best is not None:
                return best
        return None

    def _find(
        self, request: Request, lanes: range, blocked: Sequence[Sequence[Interval]], align: int, whole: bool
    ) -> int | None:
        """The first room at or after the last one given out, else from the beginning."""
        if not blocked and len(lanes) == 1:
            held: list[Sequence[Interval]] = [self._lanes[lanes.start].live]
        else:
            held = [self._lanes[lane].live for lane in lanes]
            if blocked:
                held += [blocked[lane] for lane in lanes]
        begins = (max(self._lanes[lane].full_up_to() for lane in lanes),) if self.tight else (self._next, 0)
        for begin in begins:
            found = (
                self._in_gap(held[0], begin, request.size, align, whole)
                if len(held) == 1
                else self._in_all(held, begin, request.size, align, whole)
            )
            if found is not None:
                return found
        return None

    def _in_gap(self, held: Sequence[Interval], begin: int, size: int, align: int, whole: bool) -> int | None:
        """The first room from `begin` on between what is held."""
        low = begin
        for at in range(max(bisect_left(held, (begin,)) - 1, 0), len(held)):
            start, stop, _ = held[at]
            if start - low >= size:
                found = self._aligned(low, size, align, whole)
                if found + size <= start:
                    return found
            low = max(low, stop)
        found = self._aligned(low, size, align, whole)
        return found if found + size <= self.size else None

    def _in_all(
        self, held: Sequence[Sequence[Interval]], begin: int, size: int, align: int, whole: bool
    ) -> int | None:
        """The first room from `begin` on that none of several holds."""
        start = self._aligned(begin, size, align, whole)
        while start + size <= self.size:
            moved = max(_past(each, start, start + size) for each in held)
            if moved == start:
                return start
            start = self._aligned(moved, size, align, whole)
        return None

    def _aligned(self, begin: int, size: int, align: int, whole: bool) -> int:
        """The first start from `begin` on, for what lies in one bank if it is to be `whole`."""
        start = -(-begin // align) * align
        if whole and start // self.bank != (start + size - 1) // self.bank:
            return -(-start // self.bank) * self.bank
        return start

    def _blocked(self, request: Request) -> list[list[Interval]]:
        """For each lane what places with an address need while the request lives, without overlaps, in order."""
        needed = [self._fixed[number] for _, number in self._begun]
        coming = self._coming
        while coming < len(self._fixed) and self._fixed[coming].first <= request.last:
            needed.append(self._fixed[coming])
            coming += 1
        needed.sort(key=lambda held: held.start)
        found: list[list[Interval]] = [[] for _ in self._lanes]
        for each in needed:
            for lane in self._across(each.partition, each.partitions):
                mine = found[lane]
                if mine and each.start <= mine[-1][1]:
                    mine[-1] = (mine[-1][0], max(mine[-1][1], each.stop), -1)
                else:
                    mine.append((each.start, each.stop, -1))
        return found

    def _across(self, partition: int, partitions: int) -> range:
        """The lanes that hold some of these partitions."""
        first = 0
        while first + 2 < len(self._borders) and self._borders[first + 1] <= partition:
            first += 1
        stop = first + 1
        while stop + 1 < len(self._borders) and self._borders[stop] < partition + partitions:
            stop += 1
        return range(first, stop)


class _Lane:
    """Some partitions: what is alive in their bytes, in order, and who held each byte last."""

    def __init__(self) -> None:
        self.live: list[Interval] = []
        self._last: list[Interval] = []
        self._full = 0

    def release(self, gone: Interval) -> None:
        """Take back what no longer lives."""
        del self.live[bisect_left(self.live, gone)]
        self._full = min(self._full, gone[0])

    def full_up_to(self) -> int:
        """The first byte that nothing lives in."""
        at = bisect_left(self.live, (self._full,))
        while at < len(self.live) and self.live[at][0] == self._full:
            self._full = self.live[at][1]
            at += 1
        return self._full

    def take(self, held: Interval) -> tuple[int, ...]:
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
        kept: list[Interval] = []
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


def _past(held: Sequence[Interval], start: int, stop: int) -> int:
    """The end of the first interval that shares a byte with [start, stop), `start` where none does."""
    at = bisect_left(held, (start + 1,)) - 1
    if at >= 0 and held[at][1] > start:
        return held[at][1]
    at += 1
    return held[at][1] if at < len(held) and held[at][0] < stop else start

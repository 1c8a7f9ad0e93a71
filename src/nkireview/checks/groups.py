"""Accumulation groups: sums of matmuls in PSUM that something reads before their last matmul.

A matmul opens a group on the elements it overwrites, and one that adds to them goes on with it. Whatever else writes
an element ends its group. Only elements count: a read of one region of a tile says nothing of another.
Sources: nki/api/nki/isa/__init__.py:538-555 (NKI 0.6); nki/nki_direct_allocation_guide.rst:427 at tag v2.26.1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nkireview.isa import dtypes
from nkireview.isa.enums import Memory
from nkireview.isa.row import Role, Row
from nkireview.program.call import Tile
from nkireview.program.interning import Ints
from nkireview.program.loops import Nest, nests
from nkireview.program.program import MEMORIES, Program
from nkireview.schedule.uses import Uses

OTHER, STARTS, GOES_ON, ADDS = range(4)
"""What an instruction does to its destination: no sum, a group begun, begun or gone on with, gone on with."""


@dataclass(frozen=True)
class PartialRead:
    """`read` reads elements that `before` wrote and that `after`, a matmul, adds to; `buffer` holds them.

    later: `after` is that of the next pass of a loop.
    """

    before: int
    read: int
    after: int
    buffer: int
    later: bool = False


def partial_reads(program: Program, rows: Mapping[str, Row], used: Uses) -> tuple[PartialRead, ...]:
    """The reads of unfinished groups, by buffer; each pair of a read and the matmul that goes on once.

    Where loops are malformed none is followed.
    """
    psum = program.columns.buffer_memory == MEMORIES.index(Memory.psum)
    mine = used.where(np.flatnonzero(psum[used.buffer]))
    if not len(mine):
        return ()
    acts = _acts(program, rows, mine)
    order = np.argsort(mine.buffer, kind="stable")
    mine, acts = mine.where(order), acts[order]
    outer = _outermost(program)
    starts = np.flatnonzero(np.append(True, mine.buffer[1:] != mine.buffer[:-1]))
    regions = _Regions(program)
    found: dict[tuple[int, int, int], PartialRead] = {}
    for number in _suspects(mine, acts, starts, outer):
        low = int(starts[number])
        high = int(starts[number + 1]) if number + 1 < len(starts) else len(mine)
        for each in _Groups(regions, mine, acts, range(low, high)).partial(outer):
            found.setdefault((each.buffer, each.read, each.after), each)
    return tuple(found.values())


def _outermost(program: Program) -> list[Nest]:
    try:
        return [nest for each in nests(program) for nest in each]
    except ValueError:
        return []


def _acts(program: Program, rows: Mapping[str, Row], used: Uses) -> Ints:
    """What each use does to a sum."""
    columns = program.columns
    adding = {
        number: operand
        for number, opcode in enumerate(program.opcodes)
        if opcode.name in rows
        for operand in rows[opcode.name].operands
        if operand.role is Role.accumulate and Memory.psum in operand.memories
    }
    found = np.full(len(used), OTHER, np.int64)
    codes = columns.opcode[used.instruction]
    known: dict[tuple[int, int], int] = {}
    for at in np.flatnonzero(np.isin(codes, list(adding)) & used.writes).tolist():
        key = int(codes[at]), int(columns.immediates[used.instruction[at]])
        if key not in known:
            immediates = program.immediates[key[1]]
            accumulate = immediates.get("accumulate")
            known[key] = (
                OTHER
                if adding[key[0]].role_in(immediates) is not Role.accumulate
                else GOES_ON
                if accumulate is None
                else ADDS
                if accumulate
                else STARTS
            )
        found[at] = known[key]
    return found


def _suspects(used: Uses, acts: Ints, starts: Ints, outer: Sequence[Nest]) -> list[int]:
    """The buffers, by position in `starts`, that are read between two matmuls, whatever the regions."""
    numbers = np.arange(len(used))
    sums, reads, adds = acts != OTHER, used.reads & (acts == OTHER), acts >= GOES_ON
    first_sum = np.minimum.reduceat(np.where(sums, numbers, len(used)), starts)
    last_add = np.maximum.reduceat(np.where(adds, numbers, -1), starts)
    of = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(used))))
    between = reads & (numbers > first_sum[of]) & (numbers < last_add[of])
    # in a loop what comes first may follow in the next pass
    repeated = np.zeros(len(used), bool)
    for nest in outer:
        repeated |= (used.instruction >= nest.loop.start) & (used.instruction < nest.loop.stop)
    again = np.logical_or.reduceat(repeated & reads, starts) & (last_add >= 0)
    found: list[int] = np.flatnonzero(np.logical_or.reduceat(between, starts) | again).tolist()
    return found


@dataclass(frozen=True, eq=False)
class _Region:
    """Partitions and, within one, the first byte of each element of `size` bytes, ascending."""

    partitions: slice
    first: Ints
    size: int

    @cached_property
    def run(self) -> slice | None:
        """The bytes, where no other lies between them."""
        low, high = int(self.first[0]), int(self.first[-1]) + self.size
        return slice(low, high) if high - low == len(self.first) * self.size else None


class _Regions:
    """The regions of accesses to PSUM."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._known: dict[int, _Region | None] = {}

    def of(self, access: int) -> _Region | None:
        """The region of an access; None where it is not known before the kernel runs."""
        if access not in self._known:
            self._known[access] = self._region(access)
        return self._known[access]

    def _region(self, number: int) -> _Region | None:
        access = self.program.access(number)
        tile = Tile(access, self.program.buffer(access.buffer))
        bits = dtypes.BY_NAME[access.dtype].bits
        at = access.partition
        if access.index or access.table or access.bounds or at is None or not tile.row or bits % 8:
            return None
        stride, count = access.pattern[at]
        if count > 1 and stride != tile.row:
            return None
        first = np.array([access.base - tile.first_partition * tile.row], np.int64)
        for axis, (step, size) in enumerate(access.pattern):
            if axis != at:
                first = (first[:, None] + step * np.arange(size)).reshape(-1)
        held = math.prod(tile.buffer.shape[1:]) * dtypes.BY_NAME[tile.buffer.dtype].bits // 8
        first = np.unique(first) * (bits // 8)
        if first[0] < 0 or first[-1] >= held or tile.first_partition < 0:
            return None
        return _Region(slice(tile.first_partition, tile.first_partition + count), first, bits // 8)


class _Groups:
    """The groups of one buffer: for each piece of it the last matmul of its open group, and who read it since."""

    def __init__(self, regions: _Regions, used: Uses, acts: Ints, rows: range) -> None:
        self.used, self.acts, self.rows = used, acts, rows
        program = regions.program
        self.buffer = int(used.buffer[rows.start])
        held = program.buffer(self.buffer)
        accesses = used.access[rows.start : rows.stop]
        known = {int(number): regions.of(int(number)) for number in np.unique(accesses)}
        sized = [region for region in known.values() if region is not None]
        rows_at = _cuts({0, held.shape[0]}, (region.partitions for region in sized))
        row = math.prod(held.shape[1:]) * dtypes.BY_NAME[held.dtype].bits // 8
        runs = [region.run for region in sized if region.run is not None]
        unit = math.gcd(*(region.size for region in sized)) if sized else 1
        # where every region is a run of bytes, only their ends tell them apart
        cuts = (
            _cuts({0, row}, runs)
            if len(runs) == len(sized)
            else dict(zip(range(0, row + 1, unit), range(row // unit + 1), strict=True))
        )
        self.at = {
            number: None
            if region is None
            else (_between(rows_at, region.partitions), _within(region, unit, cuts))
            for number, region in known.items()
        }
        shape = len(rows_at) - 1, len(cuts) - 1
        self.group = np.full(shape, -1, np.int64)
        self.read = np.full(shape, -1, np.int64)
        self.seen: set[tuple[int, int]] = set()
        self.summed = -1  # the access that the last use, a matmul, had

    def partial(self, outer: Sequence[Nest]) -> Iterator[PartialRead]:
        """The partial reads, in order."""
        rows = self.rows
        used = self.used.instruction[rows.start : rows.stop]
        inside = [n for n in outer if np.any((used >= n.loop.start) & (used < n.loop.stop))]
        first = int(used[0])
        # the first use in a loop makes the tile anew, unless it is a matmul that is told to add to it
        fresh = any(n.loop.start <= first < n.loop.stop for n in inside) and self.acts[rows.start] != ADDS
        for row in _passes(used, rows, inside):
            if fresh and row == rows.start:
                self.group.fill(-1)
                self.read.fill(-1)
                self.summed = -1
            yield from self._step(row)

    def _step(self, row: int) -> Iterator[PartialRead]:
        used, act = self.used, int(self.acts[row])
        access, instruction = int(used.access[row]), int(used.instruction[row])
        at, before = self.at[access], self.summed
        self.summed = access if act != OTHER else -1
        if access == self.summed == before:
            if at is not None:
                self.group[at] = instruction
        elif act == OTHER:
            if used.reads[row] and at is not None:
                mine, group = self.read[at], self.group[at]
                self.read[at] = np.where((group >= 0) & (mine < 0), instruction, mine)
            if used.writes[row]:
                where = at if at is not None else (slice(None), slice(None))
                self.group[where] = self.read[where] = -1
        elif at is not None:
            if act != STARTS:
                readers = self.read[at]
                reader = int(readers.max(initial=-1))
                if reader >= 0 and (reader, instruction) not in self.seen:
                    self.seen.add((reader, instruction))
                    begun = int(self.group[at][readers == reader].max())
                    yield PartialRead(begun, reader, instruction, self.buffer, reader > instruction)
            self.group[at], self.read[at] = instruction, -1


def _cuts(ends: set[int], spans: Iterable[slice]) -> dict[int, int]:
    """The number of the piece that begins at each end of a span, in order."""
    found = ends | {edge for span in spans for edge in (span.start, span.stop)}
    return {edge: at for at, edge in enumerate(sorted(found))}


def _between(cuts: Mapping[int, int], span: slice) -> slice:
    return slice(cuts[span.start], cuts[span.stop])


def _within(region: _Region, unit: int, cuts: Mapping[int, int]) -> slice | NDArray[np.int64]:
    """The pieces of a region within a partition; those of `unit` bytes where it is no run."""
    if region.run is not None:
        return _between(cuts, region.run)
    return (region.first[:, None] // unit + np.arange(region.size // unit)).reshape(-1)


def _passes(used: Ints, rows: range, inside: Sequence[Nest]) -> Iterator[int]:
    """The rows in the order in which they run, each body of a loop twice unless it runs once."""
    at = 0
    for nest in inside:
        low, high = (int(edge) for edge in np.searchsorted(used, [nest.loop.start, nest.loop.stop]))
        yield from rows[at:low]
        for _ in range(1 if nest.loop.trips == 1 else 2):
            yield from _passes(used[low:high], rows[low:high], nest.inner)
        at = high
    yield from rows[at:]

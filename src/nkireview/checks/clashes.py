"""Clashes: a buffer is read after another one, at an overlapping explicit address, was written over it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nkireview.isa import dtypes
from nkireview.program.call import Tile
from nkireview.program.interning import Ints
from nkireview.program.program import Program
from nkireview.program.storage import Storage
from nkireview.schedule.lifetime import Lifetimes
from nkireview.schedule.uses import Uses

CELLS = 2**22
"""Reads times writes compared at once."""


@dataclass(frozen=True)
class Clash:
    """`lost` was written, then `by` was written over some of it at `written`, then `lost` was read at `read`."""

    lost: int
    by: int
    written: int
    read: int


def clashes(program: Program, stored: Storage, used: Uses, lives: Lifetimes, mine: Ints) -> tuple[Clash, ...]:
    """The first clash of each pair of overlapping regions; buffers of one region are one by intent."""
    pairs = _pairs(stored, lives, mine)
    if not pairs:
        return ()
    boxes = _Boxes(program, used)
    found = []
    for lost, by in pairs:
        clash = boxes.clash(lost, by)
        if clash is not None:
            found.append(clash)
    return tuple(found)


def _pairs(stored: Storage, lives: Lifetimes, mine: Ints) -> list[tuple[int, int]]:
    """Pairs of touching places with buffers that are alive at one time, both ways round."""
    members: dict[int, list[int]] = {}
    for buffer in mine.tolist():
        place = int(stored.of_buffer[buffer])
        if place in stored.touching:
            members.setdefault(place, []).append(buffer)
    spans = {
        place: np.array(sorted((int(lives.first[b]), int(lives.last[b])) for b in held), np.int64)
        for place, held in members.items()
    }
    return [
        (place, other)
        for place in sorted(spans)
        for other in stored.touching[place]
        if other in spans and _meet(spans[place], spans[other])
    ]


def _meet(left: Ints, right: Ints) -> bool:
    """True where an interval of one list overlaps one of the other; both sorted by start."""
    reach = np.maximum.accumulate(right[:, 1])
    before = np.searchsorted(right[:, 0], left[:, 1], side="right") - 1
    return bool(np.any((before >= 0) & (reach[np.maximum(before, 0)] >= left[:, 0])))


class _Boxes:
    """What accesses to buffers with addresses touch: partitions and bytes, as boxes."""

    def __init__(self, program: Program, used: Uses) -> None:
        self.program = program
        self.used = used
        self.order = np.argsort(used.place, kind="stable")
        self.sorted = used.place[self.order]
        self.known: dict[int, tuple[int, int, int, int]] = {}

    def clash(self, lost: int, by: int) -> Clash | None:
        """The first read of `lost` whose newest bytes in reach were written through `by`."""
        mine, theirs = self._rows(lost), self._rows(by)
        used = self.used
        reads = mine[used.reads[mine]]
        own, over = mine[used.writes[mine]], theirs[used.writes[theirs]]
        if not (len(reads) and len(own) and len(over)):
            return None
        step = max(1, CELLS // (len(own) + len(over)))
        for at in range(0, len(reads), step):
            part = reads[at : at + step]
            mine_last, _ = self._newest(part, own)
            over_last, which = self._newest(part, over)
            bad = np.flatnonzero((mine_last >= 0) & (over_last > mine_last))
            if len(bad):
                row, writer = part[bad[0]], over[which[bad[0]]]
                return Clash(
                    int(used.buffer[row]),
                    int(used.buffer[writer]),
                    int(used.instruction[writer]),
                    int(used.instruction[row]),
                )
        return None

    def _newest(self, reads: Ints, writes: Ints) -> tuple[Ints, Ints]:
        """For each read the newest earlier write that touches it (its instruction, -1: none), and which it is."""
        read, write = self._boxes(reads), self._boxes(writes)
        touches = np.ones((len(reads), len(writes)), bool)
        for low, high in ((0, 1), (2, 3)):
            touches &= (read[:, None, low] < write[None, :, high]) & (
                write[None, :, low] < read[:, None, high]
            )
        when = self.used.instruction[writes][None, :]
        times = np.where(touches & (when < self.used.instruction[reads][:, None]), when, -1)
        which = times.argmax(axis=1)
        return times[np.arange(len(reads)), which], which

    def _rows(self, place: int) -> Ints:
        low, high = np.searchsorted(self.sorted, [place, place + 1])
        return np.sort(self.order[low:high])

    def _boxes(self, rows: Ints) -> NDArray[np.int64]:
        """Partitions and bytes (half open) of the accesses of uses."""
        return np.array([self._box(int(access)) for access in self.used.access[rows]], np.int64).reshape(
            -1, 4
        )

    def _box(self, access: int) -> tuple[int, int, int, int]:
        found = self.known.get(access)
        if found is None:
            held = self.program.access(access)
            tile = Tile(held, self.program.buffer(held.buffer))
            address = tile.buffer.address or (0, 0)
            first, last = tile.free_range
            bits = dtypes.BY_NAME[held.dtype].bits
            found = self.known[access] = (
                tile.start,
                tile.start + held.partitions,
                address[1] + first * bits // 8,
                address[1] + -(-(last + 1) * bits // 8),
            )
        return found

"""Lifetimes: after which instruction of each stream a buffer is used no more."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Set

import numpy as np
from numpy.typing import NDArray

from nkireview.isa.enums import Memory
from nkireview.program.program import MEMORIES, Program

Ints = NDArray[np.int64]


class Lifetimes:
    """How many streams still use each buffer; a buffer that none uses any more is handed to `free`.

    kept: buffers that stay to the end.
    """

    def __init__(self, program: Program, kept: Set[int], free: Callable[[int], None]) -> None:
        self._free = free
        indices, buffers = _uses(program)
        last = np.full(program.columns.buffers, -1, np.int64)
        users = np.zeros(program.columns.buffers, np.int64)
        self._ends: list[tuple[list[int], list[int]]] = []
        remain = np.ones(program.columns.buffers, np.bool_)
        remain[list(kept)] = False
        for stream in program.streams:
            begin, end = np.searchsorted(indices, [stream.start, stream.stop])
            index, buffer = indices[begin:end], buffers[begin:end]
            # of repeated positions the last assignment holds, and instructions ascend
            last[buffer] = index
            ends = (last[buffer] == index) & remain[buffer]
            np.add.at(users, buffer[ends], 1)
            self._ends.append((index[ends].tolist(), buffer[ends].tolist()))
        self._users: list[int] = users.tolist()

    def of(self, stream: int, length: int) -> Ends:
        """The last uses in a stream."""
        return Ends(*self._ends[stream], length, self._users, self._free)


class Ends:
    """Last uses in one stream, ascending; `next` is the first that was not carried out."""

    def __init__(
        self,
        indices: list[int],
        buffers: list[int],
        length: int,
        users: list[int],
        free: Callable[[int], None],
    ) -> None:
        self._indices, self._buffers = [*indices, length], buffers
        self._users, self._free = users, free
        self._at = 0
        self.next = self._indices[0]

    def before(self, stop: int) -> int:
        """Let go of what no instruction of the stream from `stop` on uses; the next last use."""
        indices, buffers, users, at = self._indices, self._buffers, self._users, self._at
        while indices[at] < stop:
            buffer = buffers[at]
            users[buffer] -= 1
            if not users[buffer]:
                self._free(buffer)
            at += 1
        self._at, self.next = at, indices[at]
        return self.next


Begun = tuple[int, tuple[int, ...]]
"""A buffer, and those that are in use before its first instruction and after it."""


def first_in_loops(program: Program) -> dict[int, list[Begun]]:
    """The PSUM buffers that are first used inside a device-side loop, by the instruction that uses them first."""
    columns = program.columns
    if not program.loops:
        return {}
    index, buffer = _uses(program)
    chosen = columns.buffer_memory[buffer] == MEMORIES.index(Memory.psum)
    index, buffer = index[chosen], buffer[chosen]
    buffers, at = np.unique(buffer, return_index=True)
    first, last = index[at], np.full(columns.buffers, -1, np.int64)
    last[buffer] = index
    last = last[buffers]
    found: dict[int, list[Begun]] = defaultdict(list)
    inside = np.zeros(len(buffers), np.bool_)
    for loop in program.loops:
        inside |= (first >= loop.start) & (first < loop.stop)
    for number, begin in zip(buffers[inside].tolist(), first[inside].tolist(), strict=True):
        others = tuple(buffers[(first < begin) & (last >= begin)].tolist())
        found[begin].append((number, others))
    return dict(found)


def _uses(program: Program) -> tuple[Ints, Ints]:
    """Instruction and buffer of each use, instructions ascending, with those of index tiles."""
    columns = program.columns
    index = np.repeat(np.arange(columns.instructions, dtype=np.int64), np.diff(columns.operand_at))
    used = columns.operand >= 0
    index, access = index[used], columns.operand[used].astype(np.int64)
    owner = columns.access_buffer.astype(np.int64)
    tiles = np.full(columns.accesses, -1, np.int64)
    for number, extra in program.extras.items():
        if extra.index is not None and extra.index.kind != "register":
            tiles[number] = extra.index.source
    if (tiles < 0).all():
        return index, owner[access]
    indices, accesses = [index], [access]
    while len(access):
        source = tiles[access]
        index, access = index[source >= 0], source[source >= 0]
        indices.append(index)
        accesses.append(access)
    every = np.concatenate(indices)
    order = np.argsort(every, kind="stable")
    return every[order], owner[np.concatenate(accesses)[order]]

"""Occupancy: bytes of SBUF and PSUM in use over the time of a schedule."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nkireview.isa.enums import Memory
from nkireview.program.program import MEMORIES, Program
from nkireview.program.storage import Storage
from nkireview.schedule.reuse import Places
from nkireview.timeline.timeline import Timeline, Times


@dataclass(frozen=True, eq=False)
class Occupancy:
    """A step curve: `used[i]` bytes a partition from `at_ns[i]` on; `peak_at`: the instruction that brings the peak."""

    memory: Memory
    core: int
    at_ns: Times
    used: NDArray[np.int64]
    peak: int
    peak_at: int


def occupancy(program: Program, storage: Storage, timeline: Timeline) -> tuple[Occupancy, ...]:
    """The occupancy of each core and memory on chip that is used.

    A buffer is in use from the start of its first instruction to the end of its last; places that share bytes count
    each.
    """
    places = Places.of(program, storage)
    begin = np.full(len(program), np.inf)
    end = np.zeros(len(program))
    held = timeline.instruction >= 0
    np.minimum.at(begin, timeline.instruction[held], timeline.start[held])
    np.maximum.at(end, timeline.instruction[held], timeline.stop[held])
    user = np.repeat(np.arange(len(program)), np.diff(program.columns.operand_at))
    used = (storage.place >= 0) & np.isfinite(begin)[user]
    first = np.full(len(places.memory), np.inf)
    last = np.zeros(len(places.memory))
    np.minimum.at(first, storage.place[used], begin[user[used]])
    np.maximum.at(last, storage.place[used], end[user[used]])
    opener = np.full(len(places.memory), -1, np.int64)
    opens = begin[user[used]] == first[storage.place[used]]
    opener[storage.place[used][opens]] = user[used][opens]
    found = []
    for memory in sorted({int(number) for number in places.memory if number >= 0}):
        for core in sorted({int(each) for each in places.core[places.memory == memory]}):
            mine = np.flatnonzero(
                (places.memory == memory) & (places.core == core) & np.isfinite(first) & (places.size > 0)
            )
            if len(mine):
                found.append(
                    _curve(MEMORIES[memory], core, first[mine], last[mine], places.size[mine], opener[mine])
                )
    return tuple(found)


def _curve(
    memory: Memory,
    core: int,
    first: Times,
    last: Times,
    size: NDArray[np.int64],
    opener: NDArray[np.int64],
) -> Occupancy:
    at = np.concatenate([first, last])
    change = np.concatenate([size, -size])
    who = np.concatenate([opener, np.full(len(last), -1)])
    order = np.lexsort((change, at))  # what ends goes before what begins at the same time
    at, level, who = at[order], np.cumsum(change[order]), who[order]
    highest = int(np.argmax(level))
    final = np.append(at[1:] != at[:-1], True)
    return Occupancy(memory, core, at[final], level[final], int(level[highest]), int(who[highest]))

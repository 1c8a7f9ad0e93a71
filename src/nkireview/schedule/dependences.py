"""Dependences: which earlier instructions of its core each instruction has to come after, and why.

They are what the compiler sees: uses of one tensor through whatever views, registers, and what a kernel asks for by
name or ``nl.no_reorder``. Different tensors that share bytes count where they have one explicit region.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from nkireview.program.interning import Ints
from nkireview.program.program import Program
from nkireview.program.storage import READS, WRITES
from nkireview.schedule.touches import Touches, core_of


class Why(IntEnum):
    """Why one instruction comes after another."""

    data = 0
    """It reads what the other wrote."""
    reuse = 1
    """It overwrites what the other read."""
    rewrite = 2
    """It overwrites what the other wrote."""
    named = 3
    """The kernel asks for it."""


@dataclass(frozen=True, eq=False)
class Dependences:
    """Instruction i comes after `producer[at[i]:at[i + 1]]`, ascending and without repeats; `why` has the least `Why`.

    Every producer lies before its consumer, in the same core's streams: cores have no order but by meeting. What a
    device-side loop carries from one trip to the next is not among them.
    """

    at: Ints
    producer: Ints
    why: NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.producer)

    def of(self, instruction: int) -> Ints:
        """The producers of one instruction."""
        return self.producer[self.at[instruction] : self.at[instruction + 1]]


def dependences(program: Program, touched: Touches) -> Dependences:
    """The dependences of a Program: linear in its touches, but for sorting them."""
    count = len(program)
    owner, uses = touched.instruction, touched.use
    core = core_of(program)[owner]
    reads, writes = (uses & READS) > 0, (uses & WRITES) > 0
    # a read of an instruction comes before its own write
    rows = np.concatenate([np.flatnonzero(reads), np.flatnonzero(writes)])
    is_write = np.arange(len(rows)) >= np.count_nonzero(reads)
    # two ascending runs, which a stable sort only merges
    order = np.argsort(owner[rows] * 2 + is_write, kind="stable")
    rows, is_write = rows[order], is_write[order]
    cell = touched.cell[rows] + core[rows] * touched.count
    order = np.argsort(cell, kind="stable")
    rows, is_write, cell = rows[order], is_write[order], cell[order]
    at = owner[rows]
    before = _before(cell, is_write)
    found = [
        _edges(at, before, ~is_write, Why.data),
        _edges(at, before, is_write, Why.rewrite),
        _reused(at, cell, is_write),
        _named(program),
    ]
    consumer, producer, why = (np.concatenate(parts) for parts in zip(*found, strict=True))
    kept = producer != consumer
    # one number for each edge sorts several times faster than three columns
    keys = np.sort((consumer[kept] * count + producer[kept]) * len(Why) + why[kept])
    pairs, why = np.divmod(keys, len(Why))
    consumer, producer = np.divmod(pairs, max(count, 1))
    fresh = np.ones(len(consumer), bool)
    fresh[1:] = (consumer[1:] != consumer[:-1]) | (producer[1:] != producer[:-1])
    starts = np.searchsorted(consumer[fresh], np.arange(count + 1))
    return Dependences(starts, producer[fresh], why[fresh].astype(np.int8))


Edges = tuple[Ints, Ints, Ints]
"""Consumers, their producers, and why."""


def _before(cell: Ints, is_write: NDArray[np.bool_]) -> Ints:
    """For each row the last write of its cell before it, -1 for none; rows by cell, in program order."""
    numbers = np.arange(len(cell))
    latest = np.maximum.accumulate(np.where(is_write, numbers, -1))
    before = np.append(-1, latest[:-1])[: len(cell)]
    first = np.maximum.accumulate(np.where(np.append(True, cell[1:] != cell[:-1])[: len(cell)], numbers, 0))
    return np.where(before >= first, before, -1)


def _edges(at: Ints, before: Ints, wanted: NDArray[np.bool_], why: Why) -> Edges:
    rows = np.flatnonzero(wanted & (before >= 0))
    return at[rows], at[before[rows]], np.full(len(rows), why, np.int64)


def _reused(at: Ints, cell: Ints, is_write: NDArray[np.bool_]) -> Edges:
    """From each read to the next write of its cell."""
    count = len(cell)
    numbers = np.arange(count)
    later = np.minimum.accumulate(np.where(is_write, numbers, count)[::-1])[::-1]
    rows = np.flatnonzero(~is_write & (later < count))
    rows = rows[cell[later[rows]] == cell[rows]]
    return at[later[rows]], at[rows], np.full(len(rows), Why.reuse, np.int64)


def _named(program: Program) -> Edges:
    columns = program.columns
    consumer = np.repeat(np.arange(len(program), dtype=np.int64), np.diff(columns.dependency_at))
    # a producer recorded later is one that no order can keep, or that asks for another one
    earlier = columns.dependency < consumer
    consumer, producer = consumer[earlier], columns.dependency[earlier].astype(np.int64)
    return consumer, producer, np.full(len(consumer), Why.named, np.int64)

"""Space: what SBUF and PSUM hold over the program, where they are fullest, and what cannot fit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nkireview.checks.clashes import Clash, clashes
from nkireview.hardware import Hardware
from nkireview.isa.enums import Memory
from nkireview.program.interning import Ints
from nkireview.program.placement import row_bytes
from nkireview.program.program import MEMORIES, Program
from nkireview.program.scope import Scope
from nkireview.program.storage import Storage
from nkireview.schedule.lifetime import Lifetimes, lifetimes
from nkireview.schedule.uses import Uses

SHOWN = 1000
"""Buffers named at a peak."""


@dataclass(frozen=True)
class Held:
    """A buffer that is alive at a peak: bytes a partition, partitions, first and last use, where it was made.

    `name` is empty where the kernel gave none.
    """

    buffer: int
    name: str
    bytes: int
    partitions: int
    first: int
    last: int
    place: str

    @property
    def label(self) -> str:
        """Its name, else where it was made."""
        return self.name or f"the tile made at {self.place or '?'}"


@dataclass(frozen=True)
class Crowd:
    """An instruction whose operands together exceed the memory, whatever the order: bytes a partition."""

    instruction: int
    bytes: int


@dataclass(frozen=True, eq=False)
class Space:
    """One memory of one core, in bytes a partition.

    `used[i]` bytes are in use from instruction position `at[i]` on, in program order: each buffer from its first to
    its last use, in PSUM rounded up to banks. Buffers of at most 32 (64) partitions share their bytes four (two) to
    one, buffers of one explicit region all of them. `peak` is the most, reached at `peak_at`, `alive` the largest
    buffers there; `packed` is the most without rounding to banks. `crowds`: instructions whose operands
    exceed `usable`.
    """

    memory: Memory
    core: int
    usable: int
    at: Ints
    used: Ints
    peak: int
    peak_at: int
    packed: int
    alive: tuple[Held, ...]
    crowds: tuple[Crowd, ...]
    clashes: tuple[Clash, ...]


def space(scope: Scope, hardware: Hardware, stored: Storage, used: Uses) -> tuple[Space, ...]:
    """SBUF and PSUM of each core that uses them."""
    program = scope.program
    lives = lifetimes(program, used, used.buffer, program.columns.buffers)
    columns = program.columns
    kinds = [program.buffer(first) for first in scope.buffer_classes.first.tolist()]
    of = scope.buffer_classes.of
    rows = np.array([row_bytes(buffer) for buffer in kinds], np.int64)[of]
    partitions = np.array([buffer.shape[0] if buffer.shape else 1 for buffer in kinds], np.int64)[of]
    sizes = _Sizes(rows, partitions, hardware)
    found = []
    for core in range(max(program.header.lnc, 1)):
        for memory in (Memory.sbuf, Memory.psum):
            mine = np.flatnonzero(
                (columns.buffer_memory == MEMORIES.index(memory))
                & (np.maximum(columns.buffer_core, 0) == core)
                & (lives.first >= 0)
            )
            if len(mine):
                found.append(_one(program, hardware, stored, used, lives, sizes, memory, core, mine))
    return tuple(found)


class _Sizes:
    """Bytes a partition of each buffer, as they count."""

    def __init__(self, rows: Ints, partitions: Ints, hardware: Hardware) -> None:
        self.rows = rows
        self.partitions = partitions
        self.lanes = hardware.partitions
        bank = hardware.psum_bank_bytes
        self.rounded = {Memory.sbuf: rows, Memory.psum: -(-rows // bank) * bank}
        share = np.where(partitions <= self.lanes // 4, 1, np.where(partitions <= self.lanes // 2, 2, 4))
        self.quarters = share


def _one(
    program: Program,
    hardware: Hardware,
    stored: Storage,
    used: Uses,
    lives: Lifetimes,
    sizes: _Sizes,
    memory: Memory,
    core: int,
    mine: Ints,
) -> Space:
    usable = hardware.sbuf_usable_bytes if memory is Memory.sbuf else hardware.psum_bytes
    begin, end, of = _intervals(program, stored, lives, mine)
    at, curve = _curve(begin, end, (sizes.rounded[memory] * sizes.quarters)[of])
    _, packed = _curve(begin, end, (sizes.rows * sizes.quarters)[of])
    top = int(curve.argmax())
    peak_at = int(at[top])
    alive = mine[(lives.first[mine] <= peak_at) & (lives.last[mine] >= peak_at)]
    largest = alive[np.argsort(-(sizes.rows * sizes.quarters)[alive], kind="stable")][:SHOWN]
    return Space(
        memory=memory,
        core=core,
        usable=usable,
        at=at,
        used=-(-curve // 4),
        peak=-(-int(curve[top]) // 4),
        peak_at=peak_at,
        packed=-(-int(packed.max()) // 4),
        alive=tuple(_held(program, lives, sizes, number) for number in largest.tolist()),
        crowds=_crowds(used, sizes, mine, usable),
        clashes=clashes(program, stored, used, lives, mine),
    )


def _intervals(program: Program, stored: Storage, lives: Lifetimes, mine: Ints) -> tuple[Ints, Ints, Ints]:
    """Begin, end (half open) and a buffer of each stretch in use; buffers of one explicit region are one stretch."""
    fixed = program.columns.buffer_partition_address[mine] >= 0
    free, placed = mine[~fixed], mine[fixed]
    begin, end = lives.first[free], lives.last[free] + 1
    if not len(placed):
        return begin, end, free
    region = stored.of_buffer[placed]
    order = np.lexsort((lives.first[placed], region))
    placed, region = placed[order], region[order]
    span = int(lives.last.max()) + 2
    first, last = lives.first[placed] + region * span, lives.last[placed] + region * span
    reach = np.maximum.accumulate(last)
    fresh = np.append(True, first[1:] > reach[:-1])
    starts = np.flatnonzero(fresh)
    until = np.maximum.reduceat(last, starts)
    return (
        np.concatenate([begin, first[starts] % span]),
        np.concatenate([end, until % span + 1]),
        np.concatenate([free, placed[starts]]),
    )


def _curve(begin: Ints, end: Ints, weight: Ints) -> tuple[Ints, Ints]:
    """Positions, and what is in use from each of them on."""
    times = np.concatenate([begin, end])
    change = np.concatenate([weight, -weight])
    at, of = np.unique(times, return_inverse=True)
    step = np.bincount(of.reshape(-1), weights=change.astype(np.float64), minlength=len(at))
    return at, np.rint(np.cumsum(step)).astype(np.int64)


def _held(program: Program, lives: Lifetimes, sizes: _Sizes, number: int) -> Held:
    buffer = program.buffer(number)
    return Held(
        number,
        buffer.name,
        int(sizes.rows[number]),
        int(sizes.partitions[number]),
        int(lives.first[number]),
        int(lives.last[number]),
        program.place_text(buffer.place),
    )


def _crowds(used: Uses, sizes: _Sizes, mine: Ints, usable: int) -> tuple[Crowd, ...]:
    """Instructions whose operands exceed the memory even if they were cut into single partitions."""
    area = sizes.rows * sizes.partitions
    if int(area[mine].max()) * 5 <= usable * sizes.lanes:
        return ()
    here = np.zeros(len(area), bool)
    here[mine] = True
    rows = np.flatnonzero(here[used.buffer])
    pairs = np.unique(np.stack([used.instruction[rows], used.place[rows], used.buffer[rows]]), axis=1)
    fresh = np.append(True, np.any(pairs[:2, 1:] != pairs[:2, :-1], axis=0))
    instruction, buffer = pairs[0, fresh], pairs[2, fresh]
    held = np.bincount(instruction, weights=area[buffer].astype(np.float64))
    over = np.flatnonzero(held > usable * sizes.lanes)
    return tuple(Crowd(int(at), -(-int(held[at]) // sizes.lanes)) for at in over.tolist())

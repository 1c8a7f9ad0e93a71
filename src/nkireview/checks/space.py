"""Space: what SBUF and PSUM hold over the program, where they are fullest, and what cannot fit."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nkireview.checks.changes import Change, Stretches, smallest
from nkireview.checks.clashes import Clash, clashes
from nkireview.checks.unavoidable import Orders
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
        return self.name or self.unnamed

    @property
    def unnamed(self) -> str:
        """Where it was made, in words."""
        return f"the tile made at {self.place or '?'}"


@dataclass(frozen=True)
class Crowd:
    """An instruction whose operands together exceed the memory, whatever the order: bytes a partition."""

    instruction: int
    bytes: int


@dataclass(frozen=True)
class Bound:
    """What no legal order of the program avoids: `bytes` a partition at `instruction`, of these buffers.

    The sum of bytes times partitions, over all partitions of the memory: what fits by it may still not fit. `change`
    is the smallest one by which it falls to what is usable.
    """

    instruction: int
    bytes: int
    alive: tuple[Held, ...]
    change: Change | None


@dataclass(frozen=True, eq=False)
class Space:
    """One memory of one core, in bytes a partition.

    `used[i]` bytes are in use from instruction position `at[i]` on, in program order: each buffer from its first to
    its last use, in PSUM rounded up to banks. Buffers of at most 32 (64) partitions share their bytes four (two) to
    one, buffers of one explicit region all of them. `peak` is the most, reached at `peak_at`, `alive` the largest
    buffers there; `packed` is the most without rounding to banks. `crowds`: instructions whose operands
    exceed `usable`. Where `packed` exceeds it, `bound` is the most that is sure to be needed in every order, and
    `change` the smallest one by which the program's own order fits; None where none was found.
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
    bound: Bound | None = None
    change: Change | None = None


def space(scope: Scope, hardware: Hardware, stored: Storage, used: Uses) -> tuple[Space, ...]:
    """SBUF and PSUM of each core that uses them."""
    program = scope.program
    lives = lifetimes(program, used, used.buffer, program.columns.buffers)
    orders = _Later(scope, stored, used)
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
                found.append(_one(program, hardware, stored, used, lives, sizes, memory, core, mine, orders))
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
    orders: _Later,
) -> Space:
    usable = hardware.sbuf_usable_bytes if memory is Memory.sbuf else hardware.psum_bytes
    begin, end, of = _intervals(program, stored, lives, mine)
    at, curve = _curve(begin, end, (sizes.rounded[memory] * sizes.quarters)[of])
    positions, packed = _curve(begin, end, (sizes.rows * sizes.quarters)[of])
    top = int(curve.argmax())
    peak_at = int(at[top])
    alive = mine[(lives.first[mine] <= peak_at) & (lives.last[mine] >= peak_at)]
    largest = alive[np.argsort(-(sizes.rows * sizes.quarters)[alive], kind="stable")][:SHOWN]
    bound, change = None, None
    if int(packed.max()) > 4 * usable:
        fullest = int(positions[packed.argmax()])
        at_once = mine[(lives.first[mine] <= fullest) & (lives.last[mine] >= fullest)]
        bound = _bound(program, stored, lives, sizes, mine, at_once, memory, usable, orders)
        stretches = Stretches(begin, end, (sizes.rows * sizes.quarters)[of], of)
        change = smallest(program, stretches, usable, narrower=memory is Memory.sbuf)
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
        bound=bound,
        change=change,
    )


class _Later:
    """The legal orders of a Program, looked into once they are needed."""

    def __init__(self, scope: Scope, stored: Storage, used: Uses) -> None:
        self._of = scope, stored, used

    @cached_property
    def known(self) -> Orders:
        """The orders."""
        return Orders(*self._of)


def _bound(
    program: Program,
    stored: Storage,
    lives: Lifetimes,
    sizes: _Sizes,
    mine: Ints,
    at_once: Ints,
    memory: Memory,
    usable: int,
    orders: _Later,
) -> Bound | None:
    """What no order avoids; `at_once` are the buffers that are alive at the fullest moment."""
    area = np.zeros(stored.count + 1, np.int64)
    area[stored.of_buffer[mine]] = (sizes.rows * sizes.partitions)[mine]
    buffer_of = np.zeros(stored.count + 1, np.int64)
    buffer_of[stored.of_buffer[mine][::-1]] = mine[::-1]
    found = orders.known.unavoidable(area, np.unique(stored.of_buffer[at_once]))
    if found is None:
        return None
    buffers = buffer_of[list(found.places)]
    largest = buffers[np.argsort(-area[list(found.places)], kind="stable")]
    weight = (sizes.rows * sizes.partitions)[buffers] * 4 / sizes.lanes
    change = None
    if found.bytes > usable * sizes.lanes:
        now = np.zeros(len(buffers), np.int64)
        stretches = Stretches(now, now + 1, np.ceil(weight).astype(np.int64), buffers)
        change = smallest(program, stretches, usable, narrower=memory is Memory.sbuf)
    return Bound(
        found.instruction,
        -(-found.bytes // sizes.lanes),
        tuple(_held(program, lives, sizes, number) for number in largest[:SHOWN].tolist()),
        change,
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

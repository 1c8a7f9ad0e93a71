"""Traffic: what DMAs move over HBM against what has to be moved, buffer by buffer."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nkireview.checks.extent import Extents
from nkireview.checks.transfers import Transfers
from nkireview.program.interning import Ints, intern, members
from nkireview.program.prints import prints
from nkireview.program.program import MEMORIES, Program
from nkireview.schedule.uses import Uses


@dataclass(frozen=True, eq=False)
class Loaded:
    """Loads of one HBM buffer by one stream; `rows` are rows of the transfers.

    `needed` is how many different bytes they touch, None where the addresses are known only on the device; `repeats`
    are the rows that load nothing but what an earlier row with the same access loaded. `spread` is how often one load
    moves each byte that it touches: 128 where it copies a row to all partitions.
    """

    buffer: int
    stream: int
    rows: Ints
    bytes: float
    needed: int | None
    repeats: Ints
    spread: float = 1.0

    @property
    def factor(self) -> float:
        """How often each byte is loaded, on average; 1 where it is not known."""
        return self.bytes / self.needed if self.needed else 1.0


@dataclass(frozen=True, eq=False)
class Stored:
    """Stores into one HBM buffer: bytes, and how many of them are different (None: not known)."""

    buffer: int
    rows: Ints
    bytes: float
    distinct: int | None


@dataclass(frozen=True, eq=False)
class Traffic:
    """What a Program moves over HBM.

    `unread`: buffers that are stored to, are no output and no argument, and are never read. `round_trips`: such
    buffers that a stream both stores and loads, in the same layout. `copies`: rows of HBM-to-HBM transfers.
    """

    loaded: tuple[Loaded, ...]
    stored: tuple[Stored, ...]
    unread: tuple[int, ...]
    round_trips: tuple[int, ...]
    copies: Ints

    @property
    def load_bytes(self) -> float:
        """Bytes loaded from HBM."""
        return sum(item.bytes for item in self.loaded)

    @property
    def needed_bytes(self) -> float:
        """Different bytes loaded, those of unknown address counted as they are moved."""
        return sum(item.bytes if item.needed is None else item.needed for item in self.loaded)

    @property
    def store_bytes(self) -> float:
        """Bytes stored to HBM."""
        return sum(item.bytes for item in self.stored)


def traffic(program: Program, moves: Transfers, used: Uses) -> Traffic:
    """The traffic of a Program."""
    extents = Extents(program)
    private = _private(program)
    read = np.zeros(program.columns.buffers, bool)
    read[used.buffer[used.reads]] = True
    stored = tuple(
        Stored(buffer, rows, _bytes(moves, rows), extents.distinct(moves.target_access[rows]))
        for (buffer,), rows in _groups(moves, np.flatnonzero(moves.stores), (moves.target,))
    )
    return Traffic(
        loaded=tuple(
            _loaded(program, moves, extents, buffer, stream, rows)
            for (buffer, stream), rows in _groups(
                moves, np.flatnonzero(moves.loads), (moves.source, moves.stream)
            )
        ),
        stored=stored,
        unread=tuple(item.buffer for item in stored if private[item.buffer] and not read[item.buffer]),
        round_trips=tuple(
            item.buffer for item in stored if private[item.buffer] and _returns(program, moves, item.buffer)
        ),
        copies=np.flatnonzero(moves.loads & moves.stores),
    )


def _bytes(moves: Transfers, rows: Ints) -> float:
    return float((moves.bytes[rows] * moves.times[rows]).sum())


def _groups(moves: Transfers, rows: Ints, keys: tuple[Ints, ...]) -> list[tuple[tuple[int, ...], Ints]]:
    classes = intern([key[rows] for key in keys], len(rows))
    return [
        (tuple(int(key[rows[part[0]]]) for key in keys), rows[part])
        for part in members(classes.of, len(classes))
    ]


def _loaded(
    program: Program, moves: Transfers, extents: Extents, buffer: int, stream: int, rows: Ints
) -> Loaded:
    accesses = moves.source_access[rows]
    _, first = np.unique(accesses, return_index=True)
    again = np.ones(len(rows), bool)
    again[first] = False
    again &= ~np.isin(
        accesses, [number for number in np.unique(accesses).tolist() if _moving(program, number)]
    )
    total = _bytes(moves, rows)
    once = float((moves.bytes[rows] * moves.times[rows] / _copies(program, accesses)).sum())
    spread = total / once if once else 1.0
    return Loaded(buffer, stream, rows, total, extents.distinct(accesses), rows[again], spread)


def _moving(program: Program, access: int) -> bool:
    """True where an access may be other elements each time."""
    return program.access(access).index is not None


def _copies(program: Program, accesses: Ints) -> Ints:
    """How often each access touches every element of its own: the sizes of its axes without a stride."""
    held, of = np.unique(accesses, return_inverse=True)
    counts = [
        math.prod(count for stride, count in program.access(number).pattern if stride == 0)
        for number in held.tolist()
    ]
    found: Ints = np.maximum(np.array(counts, np.int64), 1)[of.reshape(-1)]
    return found


def _private(program: Program) -> NDArray[np.bool_]:
    """HBM buffers that nobody outside the kernel sees."""
    columns = program.columns
    found = np.array([not memory.on_chip for memory in MEMORIES])[columns.buffer_memory]
    found[[buffer for _, buffer in program.parameter_buffers]] = False
    seen = (*program.outputs, *prints(program))
    found[[int(columns.access_buffer[output.access]) for output in seen]] = False
    return found


def _returns(program: Program, moves: Transfers, buffer: int) -> bool:
    """True where one stream stores a buffer from chip and loads it again, partition for partition alike."""
    into = np.flatnonzero((moves.target == buffer) & ~moves.loads)
    out = np.flatnonzero((moves.source == buffer) & ~moves.stores)
    if not (len(into) and len(out)):
        return False
    if len(np.unique(np.concatenate([moves.stream[into], moves.stream[out]]))) != 1:
        return False
    steps = [
        {_partition_step(program, access) for access in np.unique(accesses).tolist()}
        for accesses in (moves.target_access[into], moves.source_access[out])
    ]
    return steps[0] == steps[1] and None not in steps[0]


def _partition_step(program: Program, access: int) -> tuple[int, int] | None:
    """Count and stride of the outermost axis, which lies on the partitions; None for an address made on the device."""
    held = program.access(access)
    if held.index is not None or held.table is not None or not held.pattern:
        return None
    stride, count = held.pattern[0]
    return count, stride

"""Traffic: what DMAs move over HBM against what has to be moved, buffer by buffer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nkireview.checks.extent import Extents
from nkireview.checks.reloads import Reloads, reloads
from nkireview.checks.transfers import Transfers
from nkireview.program.interning import Ints, intern, members
from nkireview.program.prints import prints
from nkireview.program.program import MEMORIES, Program
from nkireview.schedule.uses import Uses


@dataclass(frozen=True, eq=False)
class Loaded:
    """Loads of one HBM buffer by one stream; `rows` are rows of the transfers.

    `needed` is how many bytes they bring that the core did not have: different ones, and those that were changed since;
    None where some address is made on the device. `repeats` are the rows that bring no such byte. `spread` is how often
    one load moves each byte that it touches: 128 where it copies a row to all partitions.
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
    buffers of which a core loads what it stored itself, in the same layout, while none loads what another stored.
    `copies`: rows of HBM-to-HBM transfers. `reloads`: the loads one by one.
    """

    loaded: tuple[Loaded, ...]
    stored: tuple[Stored, ...]
    unread: tuple[int, ...]
    round_trips: tuple[int, ...]
    copies: Ints
    reloads: Reloads

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
    again = reloads(program, moves, used)
    read = np.zeros(program.columns.buffers, bool)
    read[used.buffer[used.reads]] = True
    stored = tuple(
        Stored(buffer, rows, _bytes(moves, rows), extents.distinct(moves.target_access[rows]))
        for (buffer,), rows in _groups(moves, np.flatnonzero(moves.stores), (moves.target,))
    )
    return Traffic(
        loaded=tuple(
            _loaded(moves, again, buffer, stream, rows)
            for (buffer, stream), rows in _groups(
                moves, np.flatnonzero(moves.loads), (moves.source, moves.stream)
            )
        ),
        stored=stored,
        unread=tuple(item.buffer for item in stored if private[item.buffer] and not read[item.buffer]),
        round_trips=tuple(
            item.buffer
            for item in stored
            if private[item.buffer] and _returns(program, moves, again, item.buffer)
        ),
        copies=np.flatnonzero(moves.loads & moves.stores),
        reloads=again,
    )


def _bytes(moves: Transfers, rows: Ints) -> float:
    return float((moves.bytes[rows] * moves.times[rows]).sum())


def _groups(moves: Transfers, rows: Ints, keys: tuple[Ints, ...]) -> list[tuple[tuple[int, ...], Ints]]:
    classes = intern([key[rows] for key in keys], len(rows))
    return [
        (tuple(int(key[rows[part[0]]]) for key in keys), rows[part])
        for part in members(classes.of, len(classes))
    ]


def _loaded(moves: Transfers, again: Reloads, buffer: int, stream: int, rows: Ints) -> Loaded:
    moved = moves.bytes[rows] * moves.times[rows]
    once = float((moved / again.copies[rows]).sum())
    known = bool(again.known[rows].all())
    return Loaded(
        buffer=buffer,
        stream=stream,
        rows=rows,
        bytes=float(moved.sum()),
        needed=round(float(again.fresh[rows].sum())) if known else None,
        repeats=rows[again.known[rows] & (again.fresh[rows] == 0)],
        spread=float(moved.sum()) / once if once else 1.0,
    )


def _private(program: Program) -> NDArray[np.bool_]:
    """HBM buffers that nobody outside the kernel sees."""
    columns = program.columns
    found = np.array([not memory.on_chip for memory in MEMORIES])[columns.buffer_memory]
    found[[buffer for _, buffer in program.parameter_buffers]] = False
    seen = (*program.outputs, *prints(program))
    found[[int(columns.access_buffer[output.access]) for output in seen]] = False
    return found


def _returns(program: Program, moves: Transfers, again: Reloads, buffer: int) -> bool:
    """True where cores store a buffer from chip and load their own bytes again, partition for partition alike."""
    into = np.flatnonzero((moves.target == buffer) & ~moves.loads)
    out = np.flatnonzero((moves.source == buffer) & ~moves.stores)
    if not (len(into) and again.returned[out].any()) or again.others[out].any():
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

"""Uses: every operand of every instruction as one row, in the order in which each storage place sees them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nkireview.program.interning import Ints
from nkireview.program.program import Program
from nkireview.program.storage import READS, WHOLE, WRITES, Storage

Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Uses:
    """One row for each operand that is a tile, index tiles included, in program order, reads before writes.

    `place` is the operand's storage place, `whole` marks a write of all of the buffer that reads nothing of it.
    """

    instruction: Ints
    access: Ints
    buffer: Ints
    place: Ints
    reads: Flags
    writes: Flags
    whole: Flags

    def __len__(self) -> int:
        return len(self.instruction)

    def where(self, rows: Flags | Ints) -> Uses:
        """Some of the rows."""
        return Uses(
            self.instruction[rows],
            self.access[rows],
            self.buffer[rows],
            self.place[rows],
            self.reads[rows],
            self.writes[rows],
            self.whole[rows],
        )


def uses(program: Program, storage: Storage) -> Uses:
    """The uses of a Program."""
    columns = program.columns
    counts = np.diff(columns.operand_at)
    instruction = np.repeat(np.arange(len(program), dtype=np.int64), counts)
    access, flags = columns.operand.astype(np.int64), storage.use
    held = access >= 0
    instruction, access, flags = instruction[held], access[held], flags[held]
    if storage.indices:
        instruction, access, flags = _with_indices(storage, instruction, access, flags)
    order = (
        np.lexsort(((flags & WRITES) > 0, instruction))
        if storage.indices
        else _reads_first(flags, instruction)
    )
    instruction, access, flags = instruction[order], access[order], flags[order]
    buffer = columns.access_buffer[access].astype(np.int64)
    return Uses(
        instruction,
        access,
        buffer,
        storage.of_buffer[buffer],
        (flags & READS) > 0,
        (flags & WRITES) > 0,
        (flags & WHOLE) > 0,
    )


def _reads_first(flags: NDArray[np.int8], instruction: Ints) -> Ints:
    """Rows by instruction, those that write last."""
    return np.argsort(instruction * 2 + ((flags & WRITES) > 0), kind="stable")


def _with_indices(
    storage: Storage, instruction: Ints, access: Ints, flags: NDArray[np.int8]
) -> tuple[Ints, Ints, NDArray[np.int8]]:
    """The rows, and one more for each index tile of an operand."""
    more: list[tuple[Ints, int]] = []
    for number, sources in storage.indices.items():
        rows = instruction[access == number]
        more += [(rows, tile) for _, tile in sources if tile >= 0]
    if not more:
        return instruction, access, flags
    tiles = np.concatenate([np.full(len(rows), tile) for rows, tile in more])
    return (
        np.concatenate([instruction, *(rows for rows, _ in more)]),
        np.concatenate([access, tiles]),
        np.concatenate([flags, np.full(len(tiles), READS, np.int8)]),
    )

"""Duplication: elements of an output that several cores of a logical core store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from nkireview.checks.extent import Extents
from nkireview.checks.replicas import replicas
from nkireview.checks.transfers import Transfers
from nkireview.isa.row import Row
from nkireview.program.interning import Ints
from nkireview.program.program import Program
from nkireview.program.storage import READS, Storage
from nkireview.schedule.touches import core_of


@dataclass(frozen=True, eq=False)
class Duplicated:
    """Stores of several cores into one output: `bytes` of it are stored by more than one core, of `distinct` in all.

    `instructions` are all stores into it that add to nothing.
    """

    buffer: int
    cores: int
    bytes: int
    distinct: int
    instructions: Ints


def duplicated(program: Program, moves: Transfers, stored: Storage) -> tuple[Duplicated, ...]:
    """The outputs of which several cores store the same elements; a store that adds to what is there does not count.

    Left out are outputs of which some address is made on the device.
    """
    outputs = {int(program.columns.access_buffer[output.access]) for output in program.outputs}
    core = np.array([stream.core for stream in program.streams], np.int64)[moves.stream]
    extents = Extents(program)
    found = []
    for buffer in sorted(outputs):
        rows = np.flatnonzero((moves.target == buffer) & ~_adds(program, moves, stored))
        cores = np.unique(core[rows])
        if len(cores) < 2:
            continue
        parts = [extents.distinct(moves.target_access[rows[core[rows] == number]]) for number in cores]
        union = extents.distinct(moves.target_access[rows])
        known = [part for part in parts if part is not None]
        if union is None or len(known) < len(parts):
            continue
        twice = sum(known) - union
        if twice > 0:
            found.append(
                Duplicated(buffer, len(cores), twice // (len(cores) - 1), union, moves.instruction[rows])
            )
    return tuple(found)


def of_equal_values(
    program: Program, rows: Mapping[str, Row], stored: Storage, items: Sequence[Duplicated]
) -> tuple[Duplicated, ...]:
    """Those of which several cores surely store the same values, by their numbering."""
    if not items:
        return ()
    values, core = replicas(program, rows, stored), core_of(program)
    kept = []
    for item in items:
        pairs = np.unique(np.stack([values[item.instructions], core[item.instructions]]), axis=1)
        if len(np.unique(pairs[0])) < pairs.shape[1]:
            kept.append(item)
    return tuple(kept)


def _adds(program: Program, moves: Transfers, stored: Storage) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which transfers also read their target."""
    columns = program.columns
    found = np.zeros(len(moves), bool)
    for at, instruction in enumerate(moves.instruction.tolist()):
        span = slice(int(columns.operand_at[instruction]), int(columns.operand_at[instruction + 1]))
        mine = columns.operand[span] == moves.target_access[at]
        found[at] = bool((stored.use[span][mine] & READS).any())
    return found

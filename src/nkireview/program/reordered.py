"""Reordered: a Program with its instructions in another order, and how far they may move at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from nkireview.program.columns import Ints, Small
from nkireview.program.errors import ProgramError
from nkireview.program.model import Loop, Stream
from nkireview.program.program import Program

PLAIN = ("opcode", "place", "immediates", "engine", "dge", "name")


def stretches(program: Program, fixed: Sequence[int] | Ints = ()) -> Ints:
    """The number of the straight stretch of each instruction, ascending.

    A stretch ends where a stream or a device-side loop begins or ends. `fixed`: instructions that each are one.
    """
    begins = np.zeros(len(program) + 1, bool)
    parts: tuple[Stream | Loop, ...] = (*program.streams, *program.loops)
    for part in parts:
        begins[[part.start, part.stop]] = True
    alone = np.asarray(fixed, np.int64)
    begins[alone] = begins[alone + 1] = True
    return np.cumsum(begins[: len(program)], dtype=np.int64)


def reordered(program: Program, order: Ints) -> Program:
    """The Program whose instruction i is the old instruction ``order[i]``; buffers, accesses and places stay.

    Raise ProgramError where `order` is no permutation, or moves an instruction into or out of a loop or stream.
    """
    count = len(program)
    old = np.asarray(order, np.int64)
    if len(old) != count or not np.array_equal(np.sort(old), np.arange(count)):
        raise ProgramError(f"an order of {count} instructions must name each of them once")
    home = stretches(program)
    moved = np.flatnonzero(home[old] != home)
    if len(moved):
        raise ProgramError(f"an order moves instruction {old[moved[0]]} across the end of a loop or stream")
    columns = program.columns
    new = np.empty(count, np.int64)
    new[old] = np.arange(count)
    operand_at, operand = _ragged(columns.operand_at, columns.operand, old)
    dependency_at, dependency = _ragged(columns.dependency_at, columns.dependency, old)
    return replace(
        program,
        columns=replace(
            columns,
            **{name: getattr(columns, name)[old] for name in PLAIN},
            operand_at=operand_at,
            operand=operand,
            dependency_at=dependency_at,
            dependency=new[dependency].astype(np.int32),
        ),
    )


def _ragged(at: Ints, flat: Small, order: Ints) -> tuple[Ints, NDArray[np.int32]]:
    """The rows of a ragged column in another order."""
    lengths = np.diff(at)[order]
    ends = np.append(0, np.cumsum(lengths))
    source = np.arange(int(ends[-1])) - np.repeat(ends[:-1] - at[:-1][order], lengths)
    return ends.astype(np.int64), flat[source]

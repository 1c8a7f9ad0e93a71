"""Interning: rows of integer columns as class numbers, so that each distinct row is looked at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.program.program import Program

Ints = NDArray[np.int64]
_SPAN = 2**62


@dataclass(frozen=True, eq=False)
class Classes:
    """`of[i]` is the class of row i; `first[c]` the first row of class c."""

    of: Ints
    first: Ints

    def __len__(self) -> int:
        return len(self.first)


def intern(columns: Sequence[NDArray[Any]], rows: int) -> Classes:
    """Classes of equal rows of integer columns of length `rows`; linear but for sorting where values are sparse."""
    key, span = np.zeros(rows, np.int64), 1
    if not rows:
        return Classes(key, key)
    for column in columns:
        low = int(column.min())
        width = int(column.max()) - low + 1
        if width == 1:
            continue
        digits = column.astype(np.int64) - low
        if width > _SPAN // span:
            key, span = _dense(key, span)
        if width > _SPAN // span:
            digits, width = _dense(digits, width)
        key = key * width + digits
        span *= width
    found, _ = _dense(key, span)
    first = np.empty(int(found.max()) + 1, np.int64)
    first[found[::-1]] = np.arange(rows - 1, -1, -1)
    return Classes(found, first)


def _dense(key: Ints, span: int) -> tuple[Ints, int]:
    if span <= 4 * len(key):
        used = np.zeros(span, bool)
        used[key] = True
        return np.cumsum(used)[key] - 1, int(np.count_nonzero(used))
    values, inverse = np.unique(key, return_inverse=True)
    return inverse.reshape(-1).astype(np.int64), len(values)


def padded(offsets: Ints, flat: NDArray[Any], padding: int) -> list[Ints]:
    """A ragged table as columns, short rows padded at the end; at least one column."""
    ranks = np.diff(offsets)
    columns = []
    for at in range(max(int(ranks.max(initial=0)), 1)):
        column = np.full(len(ranks), padding, np.int64)
        there = ranks > at
        column[there] = flat[offsets[:-1][there] + at]
        columns.append(column)
    return columns


def members(classes: Ints, count: int) -> list[Ints]:
    """The rows of each class 0..count-1, in order."""
    if not count:
        return []
    order = np.argsort(classes, kind="stable")
    ends = np.cumsum(np.bincount(classes, minlength=count))
    return [part.astype(np.int64) for part in np.split(order, ends[:-1])]


def by_opcode(program: Program) -> Iterator[tuple[int, Ints, Ints]]:
    """For each opcode in use: its number, its instructions, their access ids (instructions x operands, -1: none)."""
    columns = program.columns
    for code, rows in enumerate(members(columns.opcode.astype(np.int64), len(program.opcodes))):
        if not len(rows):
            continue
        width = len(program.opcodes[code].operands)
        at = columns.operand_at[rows][:, None] + np.arange(width)
        yield code, rows, columns.operand[at].astype(np.int64)


def by_rank(offsets: Ints) -> Iterator[tuple[int, Ints, Ints]]:
    """For each rank of a ragged table: the rank, its rows, and where their entries lie (rows x rank)."""
    ranks = np.diff(offsets)
    for rank in np.unique(ranks).tolist():
        rows = np.flatnonzero(ranks == rank)
        yield rank, rows, offsets[rows][:, None] + np.arange(rank)

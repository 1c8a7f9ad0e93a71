"""Values: which instruction surely reads what which other one wrote into which buffer on chip.

Only what an order of the program cannot change is told: a read counts where its bytes, and who wrote them last, are
known for certain. What device-side loops repeat, what several cores use, buffers that share bytes with others, and
views by index, table or mask are left out, unless one instruction wrote all of the buffer that such a view reads.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from nkireview.isa import dtypes
from nkireview.isa.row import Role, Row
from nkireview.program.interning import Ints, by_opcode
from nkireview.program.program import MEMORIES, Program
from nkireview.program.scope import Scope
from nkireview.program.storage import Storage, whole_accesses
from nkireview.schedule.touches import core_of
from nkireview.schedule.uses import Uses

Box = tuple[tuple[int, int], ...]
"""Half-open ranges of indices, one for each dimension of a buffer."""
CELLS = 4096
"""Pieces into which a buffer is cut at most; one with more counts only where it is used as a whole."""


@dataclass(frozen=True, eq=False)
class Values:
    """Row by row: `reader` reads in `place` what `writer` wrote there, both instructions of one core."""

    writer: Ints
    reader: Ints
    place: Ints


def values(scope: Scope, stored: Storage, used: Uses) -> Values:
    """The values of a Program that are known for certain; none where it has an unknown instruction."""
    program = scope.program
    nothing = np.zeros(0, np.int64)
    if any(opcode.name not in scope.rows for opcode in program.opcodes):
        return Values(nothing, nothing, nothing)
    rows = np.flatnonzero(_plain(program, stored, used)[used.place])
    if not len(rows):
        return Values(nothing, nothing, nothing)
    whole = whole_accesses(program)
    accesses = np.unique(used.access[rows])
    of_access, exact = _cells(scope, stored, accesses, whole)
    counts = np.array([len(of_access[access]) for access in used.access[rows].tolist()], np.int64)
    cell = np.fromiter(
        (cell for access in used.access[rows].tolist() for cell in of_access[access]),
        np.int64,
        int(counts.sum()),
    )
    row = np.repeat(rows, counts)
    found = _pairs(used, row, cell, exact[used.access[row]], _guessed(program, scope.rows))
    inside = np.zeros(len(program), bool)
    for loop in program.loops:
        inside[loop.start : loop.stop] = True
    writer, reader, place = found
    outside = ~(inside[writer] | inside[reader])
    return Values(writer[outside], reader[outside], place[outside])


def _plain(program: Program, stored: Storage, used: Uses) -> NDArray[np.bool_]:
    """Places on chip that share bytes with no other, hold one buffer or one region, and are used by one core."""
    columns = program.columns
    found = np.zeros(stored.count + 1, bool)
    on_chip = np.array([memory.on_chip for memory in MEMORIES])[columns.buffer_memory]
    found[stored.of_buffer[on_chip]] = True
    found[list(stored.touching)] = False
    fixed = np.flatnonzero(on_chip & (columns.buffer_partition_address >= 0))
    place = stored.of_buffer[fixed]
    # so many overlaps that their places are taken for one
    apart = columns.buffer_byte_address[fixed] != columns.buffer_byte_address[place]
    apart |= columns.buffer_partition_address[fixed] != columns.buffer_partition_address[place]
    found[place[apart]] = False
    core = core_of(program)
    least, most = np.full(stored.count + 1, 2**31), np.full(stored.count + 1, -1)
    np.minimum.at(least, used.place, core[used.instruction])
    np.maximum.at(most, used.place, core[used.instruction])
    plain: NDArray[np.bool_] = found & (least == most)
    return plain


def _guessed(program: Program, rows: Mapping[str, Row]) -> NDArray[np.bool_]:
    """Instructions of which the kernel does not say whether they add to what they write or overwrite it."""
    found = np.zeros(len(program), bool)
    unsaid = np.array([dict(given).get("accumulate") is not True for given in program.immediates], bool)
    for code, instructions, _ in by_opcode(program):
        row = rows[program.opcodes[code].name]
        if any(operand.role is Role.accumulate for operand in row.operands):
            found[instructions] = unsaid[program.columns.immediates[instructions]]
    return found


def _pairs(
    used: Uses, row: Ints, cell: Ints, exact: NDArray[np.bool_], guessed: NDArray[np.bool_]
) -> tuple[Ints, Ints, Ints]:
    """Writers, readers and places, from what the rows of uses touch."""
    order = np.lexsort((row, cell))
    row, cell, exact = row[order], cell[order], exact[order]
    reads, writes, when = used.reads[row], used.writes[row], used.instruction[row]
    numbers = np.arange(len(row))
    before = np.append(-1, np.maximum.accumulate(np.where(writes, numbers, -1))[:-1])
    first = np.maximum.accumulate(np.where(np.append(True, cell[1:] != cell[:-1]), numbers, 0))
    known = reads & (before >= first)
    known[known] = when[before[known]] < when[known]
    # a matmul that says nothing may begin anew once its bank was read
    known &= ~(writes & guessed[when] & (before != numbers - 1))
    sure = np.zeros(len(row), bool)
    sure[known] = exact[before[known]]
    writer = np.where(sure, when[before], -1)
    wanted = reads & exact & sure
    vague = np.flatnonzero(reads & ~exact)
    if len(vague):
        wanted[vague] = _agreed(row[vague], writer[vague])
    pairs = np.unique(np.stack([writer[wanted], when[wanted], used.place[row[wanted]]]), axis=1)
    return pairs[0], pairs[1], pairs[2]


def _agreed(row: Ints, writer: Ints) -> NDArray[np.bool_]:
    """Which rows belong to a use all of whose cells were written by one instruction."""
    _, use = np.unique(row, return_inverse=True)
    use = use.reshape(-1)
    least, most = np.full(use.max() + 1, 2**62), np.full(use.max() + 1, -1)
    np.minimum.at(least, use, writer)
    np.maximum.at(most, use, writer)
    agreed: NDArray[np.bool_] = ((least == most) & (least >= 0))[use]
    return agreed


def _cells(
    scope: Scope, stored: Storage, accesses: Ints, whole: NDArray[np.bool_]
) -> tuple[dict[int, Sequence[int]], NDArray[np.bool_]]:
    """The cells of each access, and whether it touches every element of them."""
    program = scope.program
    buffers = program.columns.access_buffer[accesses].astype(np.int64)
    places = stored.of_buffer[buffers]
    order = np.argsort(places, kind="stable")
    forms, shapes = scope.positions.of, scope.buffer_classes.of
    of_access: dict[int, Sequence[int]] = {}
    exact = np.zeros(program.columns.accesses, bool)
    memo: dict[tuple[int, ...], _Grid] = {}
    count = 0
    accesses = accesses[order]
    starts = np.flatnonzero(np.append(True, np.diff(places[order]) != 0))
    for mine in np.split(accesses, starts[1:]):
        if whole[mine].all():
            of_access.update(dict.fromkeys(mine.tolist(), (count,)))
            exact[mine] = True
            count += 1
            continue
        shape = shapes[program.columns.access_buffer[mine]]
        key = (*shape.tolist(), *forms[mine].tolist())
        if key not in memo:
            memo[key] = _Grid.of(program, mine.tolist(), whole[mine].tolist())
        grid = memo[key]
        for access, cells, sure in zip(mine.tolist(), grid.cells, grid.exact, strict=True):
            of_access[access] = [count + cell for cell in cells]
            exact[access] = sure
        count += grid.count
    return of_access, exact


@dataclass(frozen=True)
class _Grid:
    """The cells of one place: those of each access, and whether it touches all of every one of them."""

    count: int
    cells: Sequence[Sequence[int]]
    exact: Sequence[bool]

    @classmethod
    def of(cls, program: Program, accesses: Sequence[int], whole: Sequence[bool]) -> _Grid:
        shape = program.buffer(int(program.columns.access_buffer[accesses[0]])).shape
        boxes = [
            tuple((0, size) for size in shape) if all_ else _box(program, access, shape)
            for access, all_ in zip(accesses, whole, strict=True)
        ]
        known = [box for box in boxes if box is not None]
        edges = [
            sorted({0, size, *(edge for box in known for edge in box[dim])}) for dim, size in enumerate(shape)
        ]
        sizes = [max(len(edge) - 1, 1) for edge in edges]
        count = math.prod(sizes)
        if count > CELLS:
            return cls(1, [(0,)] * len(accesses), list(whole))
        steps = [math.prod(sizes[dim + 1 :]) for dim in range(len(sizes))]
        everything = range(count)
        found: list[Sequence[int]] = []
        for box in boxes:
            if box is None:
                found.append(everything)
                continue
            spans = [
                range(bisect_left(edge, low), bisect_left(edge, high))
                for edge, (low, high) in zip(edges, box, strict=True)
            ]
            found.append([sum(map(int.__mul__, steps, at)) for at in product(*spans)])
        return cls(count, found, [box is not None for box in boxes])


def _box(program: Program, access: int, shape: tuple[int, ...]) -> Box | None:
    """The indices that an access touches; None where they are no full box of its buffer, or not known."""
    found = program.access(access)
    buffer = program.buffer(found.buffer)
    if found.bounds or found.index is not None or found.table is not None or buffer.shape != shape:
        return None
    if dtypes.BY_NAME[found.dtype].bits != dtypes.BY_NAME[buffer.dtype].bits:
        return None
    return full_box(shape, found.base, found.pattern)


def full_box(shape: tuple[int, ...], base: int, pattern: tuple[tuple[int, int], ...]) -> Box | None:
    """The box of indices all of which a pattern of (stride, count) touches; None where it is none."""
    axes = sorted((stride, count) for stride, count in pattern if count != 1)
    if any(stride < 1 or count < 1 for stride, count in axes):
        return None
    found: list[tuple[int, int]] = []
    step, rest = 1, base
    for size in reversed(shape):
        low, rest = rest % size, rest // size
        run = 1
        while axes and axes[0][0] == step * run and low + run * axes[0][1] <= size:
            run *= axes.pop(0)[1]
        found.append((low, low + run))
        step *= size
    return None if axes or rest else tuple(reversed(found))

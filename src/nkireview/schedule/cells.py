"""Cells: the pieces of each storage place that a program's accesses tell apart, so that dependences are by piece."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from nkireview.isa import dtypes
from nkireview.program.program import MEMORIES, Program
from nkireview.program.scope import Scope
from nkireview.program.storage import READS, WRITES, Storage, whole_accesses

Box = tuple[tuple[int, int], ...]
"""Half-open ranges of indices, one for each dimension of a buffer."""


@dataclass(frozen=True, eq=False)
class Cells:
    """`of_access` holds the cells of each access, empty where no order matters; `of_place` all those of a place."""

    count: int
    of_access: Sequence[Sequence[int]]
    of_place: Sequence[range]


def cells(scope: Scope, storage: Storage, most: int, kept: NDArray[np.int64] | None = None) -> Cells:
    """The cells of a program; a place is cut into `most` of them or fewer, and those `kept` have some whatever is done.

    HBM that is only read, or only written, needs no order and has no cells. A place that is only written as a whole is
    one cell, and so is one of several buffers, or accessed in another dtype's units or through an index or table.
    """
    program = scope.program
    columns = program.columns
    ordered = _ordered(program, storage)
    if kept is not None:
        ordered[kept] = True
    place_of = storage.of_buffer[columns.access_buffer] if columns.accesses else np.zeros(0, np.int64)
    divided = _divided(program, storage, place_of, ordered)
    reader = _Boxes(program)
    forms, shapes = scope.positions.of.tolist(), scope.buffer_classes.of[columns.access_buffer].tolist()
    memo: dict[tuple[int, ...], tuple[int, Sequence[Sequence[int]]] | None] = {}
    of_place: list[range] = []
    own: dict[int, Sequence[int]] = {}
    at = 0
    for place, count in enumerate(ordered.astype(np.int64).tolist()):
        inside = divided.get(place)
        if inside:
            key = shapes[inside[0]], *(forms[access] for access in inside)
            if key not in memo:
                memo[key] = _divide(reader, inside, most)
            found = memo[key]
            if found is not None:
                count, parts = found
                for access, part in zip(inside, parts, strict=True):
                    own[access] = [at + cell for cell in part]
        of_place.append(range(at, at + count))
        at += count
    of_access: list[Sequence[int]] = [of_place[place] for place in place_of.tolist()]
    for access, held in own.items():
        of_access[access] = held
    return Cells(at, _with_overlaps(of_access, place_of, of_place, storage), of_place)


def _divided(
    program: Program, storage: Storage, place_of: NDArray[np.int64], ordered: NDArray[np.bool_]
) -> dict[int, list[int]]:
    """For each place that is written in part, the accesses to a part of it."""
    columns = program.columns
    whole = whole_accesses(program)
    shared = np.bincount(storage.of_buffer, minlength=storage.count) > 1
    in_parts = np.zeros(storage.count, bool)
    present = columns.operand >= 0
    written = present & ((storage.use & WRITES) > 0)
    in_parts[storage.place[written][~whole[columns.operand[written]]]] = True
    cut = ~whole & (ordered & ~shared & in_parts)[place_of]
    divided: dict[int, list[int]] = {}
    for access in np.flatnonzero(cut).tolist():
        divided.setdefault(int(place_of[access]), []).append(access)
    return divided


def _with_overlaps(
    of_access: list[Sequence[int]], place_of: NDArray[np.int64], of_place: Sequence[range], storage: Storage
) -> list[Sequence[int]]:
    """An access to a place that shares bytes with others touches those too."""
    if not storage.touching:
        return of_access
    return [
        (*own, *(cell for other in storage.touching[place] for cell in of_place[other]))
        if place in storage.touching
        else own
        for own, place in zip(of_access, place_of.tolist(), strict=True)
    ]


def _ordered(program: Program, storage: Storage) -> NDArray[np.bool_]:
    """Places where the order of uses matters: on chip and registers always, HBM where it is read and written."""
    columns = program.columns
    ordered = np.ones(storage.count, bool)
    on_chip = np.array([memory.on_chip for memory in MEMORIES])[columns.buffer_memory]
    ordered[storage.of_buffer[~on_chip]] = False
    used = storage.place >= 0
    reads, writes = np.zeros(storage.count, bool), np.zeros(storage.count, bool)
    reads[storage.place[used & ((storage.use & READS) > 0)]] = True
    writes[storage.place[used & ((storage.use & WRITES) > 0)]] = True
    found: NDArray[np.bool_] = ordered | (reads & writes)
    return found


def _divide(reader: _Boxes, accesses: Sequence[int], most: int) -> tuple[int, Sequence[Sequence[int]]] | None:
    """Number of cells of a place, and those of each access, counted from 0; None where it is one."""
    boxes = [box for box in map(reader.box, accesses) if box is not None]
    if len(boxes) < len(accesses):
        return None
    edges = [
        sorted({0, size, *(edge for box in boxes for edge in box[dim])})
        for dim, size in enumerate(reader.dims(accesses[0]))
    ]
    while _pieces(edges) > most:
        widest = max(edges, key=len)
        widest[1:-1] = widest[2:-1:2]
    sizes = [len(edge) - 1 for edge in edges]
    if _pieces(edges) == 1:
        return None
    steps = [math.prod(sizes[dim + 1 :]) for dim in range(len(sizes))]
    memo: dict[Box, Sequence[int]] = {}
    for box in boxes:
        if box not in memo:
            spans = [
                range(bisect_right(edge, low) - 1, _last(edge, high))
                for edge, (low, high) in zip(edges, box, strict=True)
            ]
            memo[box] = tuple(
                sum(step * at for step, at in zip(steps, cell, strict=True)) for cell in product(*spans)
            )
    return _pieces(edges), [memo[box] for box in boxes]


def _last(edges: Sequence[int], high: int) -> int:
    """Number of pieces that begin before `high`."""
    at = bisect_right(edges, high - 1)
    return min(at, len(edges) - 1)


def _pieces(edges: Sequence[Sequence[int]]) -> int:
    count = 1
    for edge in edges:
        count *= max(len(edge) - 1, 1)
    return count


class _Boxes:
    """The box of indices that each access touches."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def dims(self, access: int) -> tuple[int, ...]:
        """The shape of the access's buffer."""
        return self.program.buffer(self.program.access(access).buffer).shape

    def box(self, access: int) -> Box | None:
        """The indices that an access touches; None where they are no box in its buffer's dtype."""
        found = self.program.access(access)
        buffer = self.program.buffer(found.buffer)
        same = dtypes.BY_NAME[found.dtype].bits == dtypes.BY_NAME[buffer.dtype].bits
        if not same or found.index is not None or found.table is not None:
            return None
        return _box(buffer.shape, found.base, found.pattern)


def _box(shape: tuple[int, ...], base: int, pattern: tuple[tuple[int, int], ...]) -> Box | None:
    """Ranges of indices; where an axis runs across dimensions, the box that surely holds it."""
    strides = [1] * len(shape)
    for dim in range(len(shape) - 2, -1, -1):
        strides[dim] = strides[dim + 1] * shape[dim + 1]
    low = [base // stride % size for stride, size in zip(strides, shape, strict=True)]
    high = list(low)
    for step, count in pattern:
        if count <= 1 or step == 0:
            continue
        dim = next(
            (d for d, stride in enumerate(strides) if shape[d] > 1 and step % stride == 0 and step >= stride),
            -1,
        )
        if dim < 0:
            return None
        high[dim] += step // strides[dim] * (count - 1)
        if high[dim] >= shape[dim]:
            return _extent(shape, strides, base, pattern)
    return tuple((first, last + 1) for first, last in zip(low, high, strict=True))


def _extent(
    shape: tuple[int, ...], strides: list[int], base: int, pattern: tuple[tuple[int, int], ...]
) -> Box | None:
    """The rows of the outermost dimension that an access reaches, whole."""
    low = base + sum(min(step * (count - 1), 0) for step, count in pattern)
    high = base + sum(max(step * (count - 1), 0) for step, count in pattern)
    first, last = low // strides[0], high // strides[0]
    if not 0 <= first <= last < shape[0]:
        return None
    return ((first, last + 1), *((0, size) for size in shape[1:]))

"""Cells: the pieces of each storage place that a program's accesses tell apart, so that dependences are by piece."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from nkireview.isa import dtypes
from nkireview.program.program import MEMORIES, Program
from nkireview.program.storage import Storage, whole_accesses

Box = tuple[tuple[int, int], ...]
"""Half-open ranges of indices, one for each dimension of a buffer."""


@dataclass(frozen=True, eq=False)
class Cells:
    """`of_access` holds the cells of each access, empty where no order matters; `of_place` all those of a place."""

    count: int
    of_access: Sequence[Sequence[int]]
    of_place: Sequence[range]


def cells(program: Program, storage: Storage, most: int) -> Cells:
    """The cells of a program; a place is cut into `most` of them or fewer.

    HBM that is only read, or only written, needs no order and has no cells. A place of several buffers, and one
    accessed in another dtype's units or through an index or table, is one cell.
    """
    columns = program.columns
    ordered = _ordered(program, storage)
    whole = whole_accesses(program)
    place_of = storage.of_buffer[columns.access_buffer] if columns.accesses else np.zeros(0, np.int64)
    shared = np.bincount(storage.of_buffer, minlength=storage.count) > 1
    divided: dict[int, list[int]] = {}
    cut = ~whole & ordered[place_of] & ~shared[place_of]
    for access in np.flatnonzero(cut).tolist():
        divided.setdefault(int(place_of[access]), []).append(access)
    of_place: list[range] = []
    reader = _Boxes(program)
    at = 0
    parts: dict[int, dict[int, Sequence[int]]] = {}
    for place in range(storage.count):
        count = int(ordered[place])
        inside = divided.get(place)
        if inside:
            found = _divide(reader, inside, most)
            if found is not None:
                count, parts[place] = found
        of_place.append(range(at, at + count))
        at += count
    of_access: list[Sequence[int]] = []
    for access, place in enumerate(place_of.tolist()):
        own = parts.get(place, {}).get(access)
        held = of_place[place]
        of_access.append(held if own is None else tuple(held.start + cell for cell in own))
    return Cells(at, _with_overlaps(of_access, place_of, of_place, storage), of_place)


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
    reads[storage.place[used & ((storage.use & 1) > 0)]] = True
    writes[storage.place[used & ((storage.use & 2) > 0)]] = True
    found: NDArray[np.bool_] = ordered | (reads & writes)
    return found


def _divide(
    reader: _Boxes, accesses: Sequence[int], most: int
) -> tuple[int, dict[int, Sequence[int]]] | None:
    """Number of cells of a place, and those of each access, counted from 0; None where it is one."""
    boxes = [reader.box(access) for access in accesses]
    if any(box is None for box in boxes):
        return None
    known = [box for box in boxes if box is not None]
    edges = [
        sorted({0, size, *(edge for box in known for edge in box[dim])})
        for dim, size in enumerate(reader.dims(accesses[0]))
    ]
    while _pieces(edges) > most:
        widest = max(edges, key=len)
        widest[1:-1] = widest[2:-1:2]
    sizes = [len(edge) - 1 for edge in edges]
    if _pieces(edges) == 1:
        return None
    steps = [int(np.prod(sizes[dim + 1 :])) for dim in range(len(sizes))]
    found: dict[int, Sequence[int]] = {}
    memo: dict[Box, Sequence[int]] = {}
    for access, box in zip(accesses, known, strict=True):
        if box not in memo:
            spans = [
                range(bisect_right(edge, low) - 1, _last(edge, high))
                for edge, (low, high) in zip(edges, box, strict=True)
            ]
            memo[box] = tuple(
                sum(step * at for step, at in zip(steps, cell, strict=True)) for cell in product(*spans)
            )
        found[access] = memo[box]
    return _pieces(edges), found


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
    """The box of indices that each access touches, decoded once for each form."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._memo: dict[tuple[object, ...], Box | None] = {}

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
        key = (buffer.shape, found.base, found.pattern)
        if key not in self._memo:
            self._memo[key] = _box(buffer.shape, found.base, found.pattern)
        return self._memo[key]


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

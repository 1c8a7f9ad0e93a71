"""A Program with its accesses and calls as classes, so that whatever looks alike is looked at once."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview import hardware
from nkireview.hardware import Hardware
from nkireview.isa import dtypes
from nkireview.isa.release import Release
from nkireview.isa.row import Row
from nkireview.isa.table import ROWS
from nkireview.program.call import CallView, Tile
from nkireview.program.errors import ProgramError
from nkireview.program.interning import Classes, Ints, by_rank, intern
from nkireview.program.placement import Misplaced, misplaced
from nkireview.program.program import DGES, ENGINES, MEMORIES, Program

_EXACT = 2.0**52
_TABLE = "nki/api/nki/isa/__init__.py"


@dataclass(frozen=True, eq=False)
class Scope:
    """A Program with what it is judged by, and its accesses as classes."""

    program: Program
    rows: Mapping[str, Row]
    hardware: Hardware
    release: Release

    @classmethod
    def of(cls, program: Program, rows: Mapping[str, Row] = ROWS) -> Scope:
        """The scope that the header names; ProgramError where it is unknown."""
        header = program.header
        try:
            target, release = hardware.target(header.target), Release.parse(header.release)
        except ValueError as error:
            raise ProgramError(f"the program's header: {error}") from error
        for name in program.dtypes:
            if name not in dtypes.BY_NAME:
                raise ProgramError(f"the program has the unknown dtype {name!r}")
        return cls(program, rows, target, release)

    def tile(self, access: int) -> Tile:
        """An access with its buffer."""
        found = self.program.access(access)
        return Tile(found, self.program.buffer(found.buffer))

    @cached_property
    def views(self) -> Classes:
        """Classes of accesses that placement rules and limits cannot tell apart, but for their span.

        An access that surely lies inside its buffer is known by its dtype, pattern and, on chip, by the buffer's
        geometry and the partition where it begins; any other by its base as well, and one with bounds, index or table
        is on its own.
        """
        columns = self.program.columns
        own = np.zeros(columns.accesses, np.int64)
        extras = np.fromiter(self.program.extras, np.int64, len(self.program.extras))
        own[extras] = extras + 1
        on_chip = np.array([memory.on_chip for memory in MEMORIES])[columns.buffer_memory]
        of = np.empty(columns.accesses, np.int64)
        first: list[Ints] = []
        for rank, rows, at in by_rank(columns.axis_at):
            strides, counts = columns.axis_stride[at], columns.axis_count[at]
            buffers, base = columns.access_buffer[rows], columns.access_base[rows]
            chip = on_chip[buffers]
            row = self.row_elements(rows)
            begin = base // np.maximum(row, 1)
            inside = np.where(
                chip, self._inside_rows(rows, strides, counts, row), self._inside(rows, strides, counts)
            )
            plain = inside & (own[rows] == 0)
            found = intern(
                [
                    plain,
                    np.where(
                        plain & ~chip, -1 - columns.buffer_memory[buffers], self.buffer_classes.of[buffers]
                    ),
                    columns.access_dtype[rows],
                    columns.access_partition[rows],
                    np.where(plain, np.where(chip, begin, 0), base),
                    own[rows],
                    *(strides[:, axis] for axis in range(rank)),
                    *(counts[:, axis] for axis in range(rank)),
                ],
                len(rows),
            )
            of[rows] = found.of + sum(len(part) for part in first)
            first.append(rows[found.first])
        return Classes(of, np.concatenate(first) if first else np.zeros(0, np.int64))

    @cached_property
    def positions(self) -> Classes:
        """Classes of accesses by view and base: what can be said of where one lies within a partition."""
        return intern([self.views.of, self.program.columns.access_base], self.program.columns.accesses)

    @cached_property
    def buffer_classes(self) -> Classes:
        """Classes of buffers by memory, dtype, address and shape."""
        columns = self.program.columns
        of = np.empty(columns.buffers, np.int64)
        first: list[Ints] = []
        for rank, rows, at in by_rank(columns.dim_at):
            found = intern(
                [
                    columns.buffer_memory[rows],
                    columns.buffer_dtype[rows],
                    columns.buffer_partition_address[rows],
                    columns.buffer_byte_address[rows],
                    *(columns.dim[at[:, axis]] for axis in range(rank)),
                ],
                len(rows),
            )
            of[rows] = found.of + sum(len(part) for part in first)
            first.append(rows[found.first])
        return Classes(of, np.concatenate(first) if first else np.zeros(0, np.int64))

    def _inside(self, rows: Ints, strides: Ints, counts: Ints) -> NDArray[np.bool_]:
        """Accesses that surely lie inside their buffer; floats are exact as far as it matters here."""
        columns = self.program.columns
        base = columns.access_base[rows].astype(np.float64)
        reach = strides.astype(np.float64) * (counts - 1)
        low, high = base + np.minimum(reach, 0).sum(axis=1), base + np.maximum(reach, 0).sum(axis=1)
        size = self._elements(self._sizes[0], rows)
        sane = (size < _EXACT) & (np.abs(low) < _EXACT) & (np.abs(high) < _EXACT) & np.all(counts > 0, axis=1)
        inside: NDArray[np.bool_] = sane & (low >= 0) & (high < size)
        return inside

    def _inside_rows(self, rows: Ints, strides: Ints, counts: Ints, row: Ints) -> NDArray[np.bool_]:
        """On-chip accesses with the partition axis first that surely stay in their partitions and storage rows."""
        columns = self.program.columns
        if not strides.shape[1]:
            return np.zeros(len(rows), bool)
        held = np.maximum(row, 1)
        first, begin = np.divmod(columns.access_base[rows], held)
        reach = strides[:, 1:].astype(np.float64) * (counts[:, 1:] - 1)
        low, high = begin + np.minimum(reach, 0).sum(axis=1), begin + np.maximum(reach, 0).sum(axis=1)
        partitions = self._sizes[1][columns.access_buffer[rows]]
        steps = (counts[:, 0] == 1) | (strides[:, 0] == row)
        inside: NDArray[np.bool_] = (
            (columns.access_partition[rows] == 0)
            & steps
            & np.all(counts > 0, axis=1)
            & (first >= 0)
            & (first + counts[:, 0] <= partitions)
            & (low >= 0)
            & (high < row)
        )
        return inside

    def row_elements(self, rows: Ints) -> Ints:
        """Elements in a storage row of the buffer of each access, if it is on chip; 0 where that is no sane number."""
        sizes, partitions = self._sizes
        elements = self._elements(sizes / np.maximum(partitions, 1), rows)
        return np.where(elements < _EXACT, elements, 0).astype(np.int64)

    def _elements(self, sizes: NDArray[np.float64], rows: Ints) -> NDArray[np.float64]:
        """A number of elements of each buffer as one of elements of each access to it."""
        columns = self.program.columns
        bits = np.array([dtypes.BY_NAME[name].bits for name in self.program.dtypes], np.float64)
        buffers = columns.access_buffer[rows]
        scaled = sizes[buffers] * bits[columns.buffer_dtype[buffers]] // bits[columns.access_dtype[rows]]
        return np.asarray(scaled, np.float64)

    @cached_property
    def _sizes(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Elements and size of the first dimension of each buffer."""
        columns = self.program.columns
        sizes, firsts = np.ones(columns.buffers), np.ones(columns.buffers)
        for rank, rows, at in by_rank(columns.dim_at):
            if rank:
                dims = columns.dim[at].astype(np.float64)
                sizes[rows], firsts[rows] = dims.prod(axis=1), dims[:, 0]
        return sizes, firsts

    @cached_property
    def tiles(self) -> tuple[Tile, ...]:
        """A representative of each class of `views`."""
        return tuple(self.tile(access) for access in self.views.first.tolist())

    @cached_property
    def placements(self) -> tuple[tuple[Misplaced, ...], ...]:
        """What is wrong with each class of `views`, its index tile included."""
        return tuple(self.placement(access) for access in self.views.first.tolist())

    def placement(self, access: int) -> tuple[Misplaced, ...]:
        """What is wrong with where an access and its index tile lie."""
        tile = self.tile(access)
        table = tile.access.table
        found = misplaced(tile, self.hardware, None if table is None else self.program.constants[table])
        index = tile.access.index
        if index is None or index.kind == "register":
            return found
        source = self.tile(index.source)
        inner = [
            Misplaced(
                each.number, f"index.{each.measure}", f"index tile {each.text}", each.source, each.blocking
            )
            for each in misplaced(source, self.hardware)
        ]
        if dtypes.BY_NAME[source.access.dtype].kind not in ("int", "uint"):
            text = f"index dtype {source.access.dtype} is not allowed, expected an integer"
            inner.append(Misplaced(46, "index.dtype", text, f"{_TABLE}:300-304", blocking=True))
        return (*found, *inner)

    @cached_property
    def shapes(self) -> Ints:
        """For each class of `views` its class by what limits see of it: all but the span."""
        numbers: dict[Any, int] = {}
        found = []
        for tile in self.tiles:
            access = tile.access
            key = (
                *(tile.buffer.memory, access.dtype, access.partition, access.shape),
                *(tile.start, tile.innermost_stride, tile.buffer.address is None, access.index),
            )
            found.append(numbers.setdefault(key, len(numbers)))
        return np.array(found, np.int64)

    def call(self, row: Row, names: tuple[str, ...], index: int) -> CallView:
        """The instruction at a position of the columns, as limits see it."""
        columns = self.program.columns
        ids = columns.operand[columns.operand_at[index] : columns.operand_at[index + 1]].tolist()
        tiles = {name: self.tile(access) for name, access in zip(names, ids, strict=True) if access >= 0}
        for name, tile in tuple(tiles.items()):
            held = tile.access.index
            if held is not None and held.kind != "register":
                tiles[f"{name}.index"] = self.tile(held.source)
        return CallView(
            row,
            self.hardware,
            self.release,
            tiles,
            self.program.immediates[columns.immediates[index]],
            ENGINES[int(columns.engine[index])],
            DGES[int(columns.dge[index])],
            max(self.program.header.lnc, 1),
        )


@dataclass(frozen=True, eq=False)
class Calls:
    """The instructions of one opcode: positions, access ids, classes that limits cannot tell apart, one call of each.

    `views` holds the class in `Scope.views` of each access, -1 where there is none.
    """

    row: Row
    names: tuple[str, ...]
    rows: Ints
    accesses: Ints
    views: Ints
    classes: Classes
    calls: tuple[CallView, ...]


def distinct_calls(
    scope: Scope,
    row: Row,
    names: tuple[str, ...],
    rows: Ints,
    accesses: Ints,
    spanned: Collection[str] = (),
) -> Calls:
    """The distinct calls of an opcode, which differ in something a limit may ask for.

    The span within a partition is such a thing only for the operands `spanned`.
    """
    columns = scope.program.columns
    views = _at(scope.views.of, accesses)
    keys = [columns.immediates[rows], columns.engine[rows], columns.dge[rows], *_at(scope.shapes, views).T]
    keys += [_at(scope.positions.of, accesses[:, names.index(name)]) for name in spanned]
    classes = intern(keys, len(rows))
    calls = tuple(scope.call(row, names, int(rows[first])) for first in classes.first)
    return Calls(row, names, rows, accesses, views, classes, calls)


def _at(table: Ints, positions: Ints) -> Ints:
    """The entries at the positions, -1 where the position is negative."""
    found = np.full(positions.shape, -1, np.int64)
    held = positions >= 0
    found[held] = table[positions[held]]
    return found

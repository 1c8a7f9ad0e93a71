"""Addresses that are no fixed affine map: device-side indices, bounds and explicit tables, resolved at each execution.

Source of index order: flat_indices = idx.T.flatten() (nki/api/nki/isa/__init__.py:897-903); of snakes:
nki/api/nki/language/__init__.py:546-564; of out-of-bounds modes: nki/api/nki/isa/__init__.py:262-268, 368-378.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.execute.layout import partition_step
from nkireview.execute.registers import RegisterFile
from nkireview.execute.result import NoMeaningError
from nkireview.execute.scattered import Ints, Rows, Scattered, placeless
from nkireview.execute.storage import Cell, Mask, Operand
from nkireview.isa.dtypes import DataType
from nkireview.program.access import Access, Index
from nkireview.program.program import Program

KEPT = 4096  # operands kept of one access that registers or scalars move

Tile = Callable[[int, RegisterFile | None], Operand]
"""The operand of an index tile, by access id."""


@dataclass(frozen=True, eq=False)
class Indices:
    """Index values in a shape that broadcasts over the access; `unknown`: those not defined."""

    values: Ints
    unknown: Mask | None
    source: str


class Irregular:
    """An access with an index, bounds or a table; `operand` gives its elements of this time.

    doubted: where to note undefined indices by access, to go on with what their tile holds; None: they are faults.
    """

    def __init__(
        self,
        program: Program,
        number: int,
        cell: Cell,
        kind: DataType,
        tile: Tile,
        doubted: dict[int, str] | None,
    ) -> None:
        access = program.access(number)
        layout = cell.layout
        self._program, self._number, self._access = program, number, access
        self._cell, self._kind, self._tile, self._doubted = cell, kind, tile, doubted
        self._row = layout.row(kind, access.shape, access.partition)
        self._form = placeless(layout, kind, access.shape, access.partitions)
        self._inside = _inside(access)
        index = access.index
        self._moves_rows = (
            index is not None
            and layout.on_chip
            and index.stride % self._row == 0
            and (self._row > 1 or index.axis == access.partition)
        )
        self._affine = index is not None and index.kind in ("register", "scalar") and self._inside is None
        self._affine = self._affine and access.table is None
        self._known: dict[int, Operand] = {}
        self._parts = self._inside is None and access.table is None and self._apart()

    @property
    def fixed(self) -> bool:
        """True where every execution has the same elements."""
        return self._access.index is None

    def operand(self, registers: RegisterFile | None) -> Operand:
        """The elements of this time; NoMeaningError where an index is undefined or out of bounds."""
        index = self._access.index
        if index is None:
            return self._scattered(np.zeros((1,) * len(self._access.shape), np.int64), None)
        found = self._indices(index, registers)
        if self._affine:
            return self._moved(index, found)
        if self._parts:
            picked = self._picked(index, found)
            if picked is not None:
                return picked
        return self._scattered(found.values, found)

    def _static(self) -> tuple[Ints, Ints]:
        """Partition and element in it of each element, as far as no index decides, broadcasting over the access.

        Not kept: they may be larger than the elements, and most accesses never need them.
        """
        access, row = self._access, self._row
        layout, rank = self._cell.layout, len(self._access.shape)
        if access.table is not None:
            table = self._program.constants[access.table].reshape(access.shape).astype(np.int64)
            if layout.on_chip:
                rows, columns = np.divmod(table, row)
                return rows, columns
            return np.zeros((1,) * rank, np.int64), table
        first, at = layout.split(access.base, row)
        rows, columns = (np.full((1,) * rank, value, np.int64) for value in (first, at))
        replaced = access.index.axis if access.index and access.index.kind in ("vector", "snake") else None
        for axis, (stride, count) in enumerate(access.pattern):
            if axis == replaced:
                continue
            each = _along(axis, rank, np.arange(count, dtype=np.int64))
            if axis == access.partition:
                rows = rows + each * partition_step(stride, count, row)
            else:
                columns = columns + each * stride
        return rows, columns

    def _moved(self, index: Index, found: Indices) -> Operand:
        """The affine map, moved by one index."""
        value = int(found.values.flat[0])
        held = self._known.get(value)
        if held is not None:
            return held
        access, cell = self._access, self._cell
        rows, columns = self._steps(index, value)
        try:
            if index.limit is not None and not 0 <= value < index.limit:
                raise NoMeaningError("out of bounds", f"is outside 0 to {index.limit - 1}")
            form = cell.layout.form(self._kind, access.base, access.pattern, access.partition, rows, columns)
        except NoMeaningError as error:
            if error.kind != "out of bounds":
                raise
            if index.oob == "skip":
                return self._scattered(found.values, found)
            raise NoMeaningError("out of bounds", f"index {value}{found.source} {error}") from error
        if len(self._known) >= KEPT:
            self._known.clear()
        held = self._known[value] = Operand(cell, form, self._number)
        return held

    def _apart(self) -> bool:
        """True where a vector picks parts of which no two share an element."""
        access, index = self._access, self._access.index
        if index is None or index.kind != "vector" or not index.stride:
            return False
        if self._moves_rows:
            return index.axis == access.partition
        reach = 0
        for axis, (stride, count) in enumerate(access.pattern):
            if axis == index.axis:
                continue
            if axis != access.partition:
                reach += abs(stride) * (count - 1)
            elif not stride:
                return False
        return index.axis != access.partition and reach < abs(index.stride)

    def _picked(self, index: Index, found: Indices) -> Operand | None:
        """The parts that a vector picks; None where an index is undefined or out of bounds."""
        values = found.values.reshape(-1)
        low, high = int(values.min()), int(values.max())
        if found.unknown is not None or (index.limit is not None and not 0 <= low <= high < index.limit):
            return None
        access, cell = self._access, self._cell
        pattern = list(access.pattern)
        pattern[index.axis] = (index.stride, high - low + 1)
        rows, columns = self._steps(index, low)
        try:
            form = cell.layout.form(self._kind, access.base, tuple(pattern), access.partition, rows, columns)
        except NoMeaningError:
            return None
        return Rows(Operand(cell, form), index.axis, values - low, self._form, self._number)

    def _steps(self, index: Index, value: int) -> tuple[int, int]:
        """How many partitions, and elements of a row, an index moves by."""
        if self._moves_rows:
            return value * (index.stride // self._row), 0
        return 0, value * index.stride

    def _scattered(self, values: Ints, found: Indices | None) -> Operand:
        access, layout, row = self._access, self._cell.layout, self._row
        index = access.index
        rows, columns = self._static()
        if index is not None:
            if self._moves_rows:
                rows = rows + values * (index.stride // row)
            else:
                columns = columns + values * index.stride
        skipped = None
        wrong = self._wrong(rows, columns)
        if index is not None and found is not None:
            skipped = self._judged(index, found, wrong)
        elif wrong is not None:
            self._refuse(rows, columns, wrong)
        unit, itemsize = layout.unit, self._kind.storage.itemsize
        at = (layout.offset + rows * layout.row_stride + columns * itemsize) // unit
        holes = None if self._inside is None else ~self._inside
        return Scattered(
            self._cell,
            self._form,
            np.ascontiguousarray(np.broadcast_to(at, access.shape)),
            holes,
            skipped,
            self._number,
        )

    def _wrong(self, rows: Ints, columns: Ints) -> Mask | None:
        """Which elements lie outside the buffer; None where none does."""
        row, count = self._row, self._cell.layout.rows
        low, high, low_row, high_row = columns.min(), columns.max(), rows.min(), rows.max()
        if low >= 0 and low_row >= 0 and high < row and high_row < count:
            return None
        wrong = (columns < 0) | (columns >= row) | (rows < 0) | (rows >= count)
        wrong = np.broadcast_to(wrong, self._access.shape)
        if self._inside is not None:
            wrong = wrong & self._inside
        return wrong if wrong.any() else None

    def _refuse(self, rows: Ints, columns: Ints, wrong: Mask) -> None:
        """NoMeaningError for the first element outside."""
        first = np.unravel_index(int(wrong.argmax()), wrong.shape)
        row, column = (int(np.broadcast_to(part, wrong.shape)[first]) for part in (rows, columns))
        self._cell.layout.check(self._row, column, column, row, row)

    def _judged(self, index: Index, found: Indices, wrong: Mask | None) -> Mask | None:
        """The elements that are skipped; NoMeaningError for an index that is undefined or out of bounds."""
        values, shape = found.values, self._access.shape
        shared = tuple(axis for axis, count in enumerate(values.shape) if count == 1)
        needed = None if self._inside is None else self._inside.any(axis=shared, keepdims=True)
        if found.unknown is not None:
            unknown = found.unknown if needed is None else found.unknown & needed
            if unknown.any():
                where = self._position(index, values, int(unknown.argmax()))
                raise NoMeaningError("undefined index", f"the index{where}{found.source} is undefined")
        bad = np.zeros(values.shape, np.bool_)
        if index.limit is not None:
            bad |= (values < 0) | (values >= index.limit)
            if needed is not None:
                bad &= needed
        if index.oob == "skip":
            if wrong is None and not bad.any():
                return None
            left_out = np.broadcast_to(bad, shape)
            return left_out.copy() if wrong is None else left_out | wrong
        if wrong is not None:
            bad |= wrong.any(axis=shared, keepdims=True)
        if bad.any():
            self._refuse_index(index, found, wrong, int(bad.argmax()))
        return None

    def _refuse_index(self, index: Index, found: Indices, wrong: Mask | None, at: int) -> None:
        """NoMeaningError for the index at a position of the values."""
        values, shape = found.values, self._access.shape
        value = int(values.reshape(-1)[at])
        text = f"index {value}{self._position(index, values, at)}{found.source}"
        if index.limit is not None and not 0 <= value < index.limit:
            raise NoMeaningError("out of bounds", f"{text} is outside 0 to {index.limit - 1}")
        place = np.unravel_index(at, values.shape)
        here = np.zeros(shape, np.bool_)
        here[
            tuple(slice(None) if count == 1 else int(place[axis]) for axis, count in enumerate(values.shape))
        ] = True
        (rows, columns), (down, along) = self._static(), self._steps(index, value)
        assert wrong is not None
        try:
            self._refuse(rows + down, columns + along, wrong & here)
        except NoMeaningError as error:
            raise NoMeaningError("out of bounds", f"{text} {error}") from error

    def _position(self, index: Index, values: Ints, at: int) -> str:
        """Where an index stands: its position along the axis it replaces, and the partition where that matters."""
        if index.kind not in ("vector", "snake"):
            return ""
        place = np.unravel_index(at, values.shape)
        text = f" at position {int(place[index.axis])}"
        partition = self._access.partition
        if index.kind == "snake" and partition is not None:
            text += f" of partition {int(place[partition])}"
        return text

    def _indices(self, index: Index, registers: RegisterFile | None) -> Indices:
        rank = len(self._access.shape)
        one = (1,) * rank
        if index.kind == "register":
            if registers is None:
                raise NoMeaningError("unsupported", "is addressed by a register outside any stream")
            value = registers.read(index.source, "is addressed by")
            return Indices(np.full(one, value, np.int64), None, f" of register {index.source}")
        tile = self._tile(index.source, registers)
        kind, lanes = tile.form.kind, tile.form.shape[0]
        if kind.kind not in ("int", "uint"):
            raise NoMeaningError("no meaning", f"has an index tile of {kind.name}, expected integers")
        held, mask = tile.read().reshape(lanes, -1), tile.mask()
        source = self._described(tile)
        if mask is not None and self._doubted is not None:
            self._doubted.setdefault(self._number, f"the index{source} is undefined")
            mask = None
        known = None if mask is None else mask.reshape(lanes, -1)
        if index.kind == "scalar":
            if held.size != 1:
                raise NoMeaningError(
                    "no meaning", f"has a scalar index tile of {held.size} elements, expected 1"
                )
            if known is not None and not known.all():
                raise NoMeaningError("undefined index", f"the index{source} is undefined")
            return Indices(held.astype(np.int64).reshape(one), None, source)
        if index.kind == "vector":
            return self._vector(index, held, known, source)
        return self._snake(index, held, known, source)

    def _vector(self, index: Index, held: Ints, known: Mask | None, source: str) -> Indices:
        rank, count = len(self._access.shape), self._access.shape[index.axis]
        if held.size < count:
            raise NoMeaningError(
                "no meaning", f"has an index tile of {held.size} elements, axis {index.axis} needs {count}"
            )
        values = _along(index.axis, rank, held.T.reshape(-1)[:count].astype(np.int64))
        unknown = None if known is None else _along(index.axis, rank, ~known.T.reshape(-1)[:count])
        return Indices(values, unknown, source)

    def _snake(self, index: Index, held: Ints, known: Mask | None, source: str) -> Indices:
        access = self._access
        assert access.partition is not None
        lanes, count = access.partitions, access.shape[index.axis]
        group, position = np.arange(lanes) // index.group, np.arange(count)
        rows = group[:, None] * index.group + position[None, :] % index.group
        columns = np.broadcast_to(position // index.group, rows.shape)
        if rows.max() >= held.shape[0] or columns.max() >= held.shape[1]:
            raise NoMeaningError(
                "no meaning",
                f"has an index tile of {list(held.shape)}, {lanes} partitions of {count} elements in groups of "
                f"{index.group} need [{int(rows.max()) + 1}, {int(columns.max()) + 1}]",
            )
        shape = [1] * len(access.shape)
        shape[access.partition], shape[index.axis] = lanes, count

        partition = access.partition

        def placed(each: NDArray[Any]) -> NDArray[Any]:
            return (each if partition < index.axis else each.T).reshape(shape)

        values = placed(held[rows, columns].astype(np.int64))
        return Indices(values, None if known is None else placed(~known[rows, columns]), source)

    def _described(self, tile: Operand) -> str:
        buffer = self._program.buffer(tile.cell.buffer)
        return f" of tile {buffer.name}" if buffer.name else ""


def _along(axis: int, rank: int, values: NDArray[Any]) -> NDArray[Any]:
    """A vector along one axis of so many."""
    return values.reshape(*(1,) * axis, -1, *(1,) * (rank - axis - 1))


def _inside(access: Access) -> Mask | None:
    """Which elements are inside the bounds; None where all are."""
    if not access.bounds:
        return None
    rank = len(access.shape)
    inside = np.ones(access.shape, np.bool_)
    for bound in access.bounds:
        total = np.full((1,) * rank, bound.constant, np.int64)
        for axis, coefficient in enumerate(bound.coefficients):
            if coefficient:
                total = total + _along(
                    axis, rank, np.arange(access.shape[axis], dtype=np.int64) * coefficient
                )
        inside &= total >= 0
    return None if inside.all() else inside

"""Layout: where the elements of a buffer, and of an access to it, lie in the bytes that hold them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.execute.formats import Formats
from nkireview.execute.result import NoMeaningError
from nkireview.isa.dtypes import DataType

Pattern = tuple[tuple[int, int], ...]

KEPT = 1024  # answers kept of which parts cover a layout


class Form:
    """An access as NumPy sees it, for any buffer of one layout: shape, dtype, byte offset and byte strides.

    units, unit_shape, unit_offset and unit_strides address the definedness mask; where an element covers
    several units, `split` is their number and the last axis of unit_shape. exact: storing a value of the
    compute dtype is no rounding. accepts: the dtype of which an assigned value is rounded as by a store, None for
    none. loads: elements are no compute values, `Formats.load` makes them such; widens: a plain conversion does.
    """

    __slots__ = (
        "accepts",
        "dtype",
        "exact",
        "kind",
        "loads",
        "offset",
        "partitions",
        "shape",
        "size",
        "split",
        "strides",
        "unit_offset",
        "unit_shape",
        "unit_strides",
        "units",
        "whole",
        "widens",
    )

    def __init__(
        self,
        layout: Layout,
        kind: DataType,
        shape: tuple[int, ...],
        offset: int,
        strides: tuple[int, ...],
        partitions: int,
        whole: bool,
    ) -> None:
        itemsize, unit = kind.storage.itemsize, layout.unit
        self.kind = kind
        self.dtype: np.dtype[Any] = layout.formats.dtype(kind)
        self.shape = shape
        self.size = math.prod(shape)
        self.partitions = partitions
        self.whole = whole
        self.exact = layout.formats.exact(kind)
        self.accepts = layout.formats.accepted(kind)
        self.loads = self.dtype != layout.formats.compute
        self.widens = self.loads and kind.kind == "float"
        scale = layout.scale
        self.offset = offset * scale
        self.strides = tuple(stride * scale for stride in strides)
        self.split = itemsize // unit
        self.units = self.size * self.split
        self.unit_offset = offset // unit
        self.unit_shape, self.unit_strides = shape, tuple(stride // unit for stride in strides)
        if self.split > 1:
            self.unit_shape, self.unit_strides = (*shape, self.split), (*self.unit_strides, 1)


@dataclass(frozen=True, eq=False)
class Layout:
    """Rows of bytes of a buffer in its store.

    rows, row_bytes: partitions and bytes a partition on chip, one row in HBM. row_stride, offset: bytes in
    the store between rows, and of the first. unit: bytes that one element of the definedness mask covers. All
    are bytes of the device; the store has `scale` bytes for each, to hold unrounded floats.
    """

    rows: int
    row_bytes: int
    on_chip: bool
    row_stride: int
    offset: int
    unit: int
    own: DataType
    formats: Formats
    coverage: dict[tuple[Form, ...], bool] = field(default_factory=dict)

    @cached_property
    def scale(self) -> int:
        """Bytes of the store for one byte of the device."""
        return self.formats.scale(self.unit)

    @cached_property
    def units(self) -> int:
        """Elements of the definedness mask of a store of its own."""
        return self.rows * self.row_bytes // self.unit

    @cached_property
    def nbytes(self) -> int:
        """Bytes of a store of its own."""
        return self.rows * self.row_bytes * self.scale

    def covered(self, parts: tuple[Form, ...]) -> bool:
        """True where these forms hold every unit of a store of its own."""
        found = self.coverage.get(parts)
        if found is None:
            if len(self.coverage) >= KEPT:
                self.coverage.clear()
            found = self.coverage[parts] = bool(marked(self.units, parts).all())
        return found

    def overlaps(self, other: Layout) -> bool:
        """True where two layouts of one store, with the same row stride, share bytes."""
        (row, byte), (other_row, other_byte) = (
            divmod(each.offset, each.row_stride) for each in (self, other)
        )
        return (
            row < other_row + other.rows
            and other_row < row + self.rows
            and byte < other_byte + other.row_bytes
            and other_byte < byte + self.row_bytes
        )

    def row(self, kind: DataType, shape: tuple[int, ...], partition: int | None) -> int:
        """Elements of `kind` in a row, for an access of that shape; NoMeaningError where it is malformed."""
        if not self.formats.rounds and not _same_values(kind, self.own):
            raise NoMeaningError(
                "unsupported", f"a {self.own.name} buffer read as {kind.name} has no meaning without rounding"
            )
        if self.on_chip != (partition is not None):
            where = "on chip and has no" if self.on_chip else "in HBM and has a"
            raise NoMeaningError("no meaning", f"is {where} partition axis")
        if math.prod(shape) == 0:
            raise NoMeaningError("no meaning", "has no elements")
        row, rest = divmod(self.row_bytes, kind.storage.itemsize)
        if rest or row == 0:
            raise NoMeaningError(
                "no meaning", f"rows of {self.row_bytes} bytes hold no whole number of {kind.name} elements"
            )
        return row

    def form(
        self,
        kind: DataType,
        base: int,
        pattern: Pattern,
        partition: int | None,
        rows: int = 0,
        columns: int = 0,
    ) -> Form:
        """The form of an access, in elements of `kind`; NoMeaningError where it is malformed or outside.

        rows, columns: how far it is moved, in partitions and in elements of a row.
        """
        shape = tuple(count for _, count in pattern)
        row, itemsize = self.row(kind, shape, partition), kind.storage.itemsize
        first, at = self.split(base, row)
        first, at = first + rows, at + columns
        low, high, low_row, high_row = at, at, first, first
        strides = []
        for axis, (stride, count) in enumerate(pattern):
            if axis == partition:
                step = partition_step(stride, count, row)
                low_row, high_row = (
                    low_row + min(step * (count - 1), 0),
                    high_row + max(step * (count - 1), 0),
                )
                strides.append(step * self.row_stride)
            else:
                low, high = low + min(stride * (count - 1), 0), high + max(stride * (count - 1), 0)
                strides.append(stride * itemsize)
        self.check(row, low, high, low_row, high_row)
        offset = self.offset + first * self.row_stride + at * itemsize
        partitions = 1 if partition is None else shape[partition]
        whole = math.prod(shape) == self.rows * row and _dense(pattern)
        return Form(self, kind, shape, offset, tuple(strides), partitions, whole)

    def split(self, base: int, row: int) -> tuple[int, int]:
        """The partition, and the element in it, of an element of a buffer with `row` elements a row."""
        return divmod(base, row) if self.on_chip else (0, base)

    def check(self, row: int, low: int, high: int, low_row: int, high_row: int) -> None:
        """NoMeaningError where the elements [low, high] of the partitions [low_row, high_row] are not all inside."""
        if not self.on_chip and not 0 <= low <= high < row:
            reach = low if low < 0 else high
            raise NoMeaningError("out of bounds", f"reaches element {reach} of a tensor of {row} elements")
        if not 0 <= low_row <= high_row < self.rows:
            reach = low_row if low_row < 0 else high_row
            raise NoMeaningError(
                "out of bounds", f"reaches partition {reach} of a tile of {self.rows} partitions"
            )
        if not 0 <= low <= high < row:
            reach = low if low < 0 else high
            raise NoMeaningError(
                "out of bounds", f"reaches element {reach} of the {row} elements of a partition"
            )


def marked(units: int, parts: Sequence[Form]) -> NDArray[np.bool_]:
    """A mask of a store that is True in these parts of it."""
    mask = np.zeros(units, np.bool_)
    for form in parts:
        part: NDArray[np.bool_] = np.ndarray(
            form.unit_shape, np.bool_, mask, form.unit_offset, form.unit_strides
        )
        part[...] = True
    return mask


def partition_step(stride: int, count: int, row: int) -> int:
    """Partitions from one index of the partition axis to the next."""
    step, odd = divmod(stride, row) if count > 1 else (0, 0)
    if odd:
        raise NoMeaningError(
            "no meaning", f"partition stride {stride} is no multiple of the {row} elements of a partition"
        )
    return step


def _same_values(kind: DataType, own: DataType) -> bool:
    if kind.kind == "float" or own.kind == "float":
        return kind is own or {kind.name, own.name} == {"float32", "tfloat32"}
    return kind.bits == own.bits


def _dense(pattern: Pattern) -> bool:
    expected = 1
    for stride, count in reversed(pattern):
        if count != 1 and stride != expected:
            return False
        expected *= count
    return True

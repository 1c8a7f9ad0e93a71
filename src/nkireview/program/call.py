"""A recorded instruction as the limits of its row see it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from nkireview.hardware import Hardware
from nkireview.isa import dtypes
from nkireview.isa.enums import DgeMode, Engine, Memory
from nkireview.isa.release import Release
from nkireview.isa.row import Row
from nkireview.program.access import Access
from nkireview.program.footprint import Form, Range, ranges
from nkireview.program.model import Buffer


@dataclass(frozen=True)
class Tile:
    """An access and the buffer it touches; positions and counts are in elements of the access's dtype."""

    access: Access
    buffer: Buffer

    @cached_property
    def bits(self) -> int:
        """Bits an element of the access."""
        return dtypes.BY_NAME[self.access.dtype].bits

    @cached_property
    def elements(self) -> int:
        """Elements of the access's dtype that the buffer holds."""
        return math.prod(self.buffer.shape) * dtypes.BY_NAME[self.buffer.dtype].bits // self.bits

    @cached_property
    def row(self) -> int:
        """Elements in one partition of an on-chip buffer, its storage row; 0 where no whole element fits."""
        return math.prod(self.buffer.shape[1:]) * dtypes.BY_NAME[self.buffer.dtype].bits // self.bits

    @property
    def on_chip(self) -> bool:
        """True in SBUF and PSUM."""
        return self.buffer.memory.on_chip

    @property
    def first_partition(self) -> int:
        """Partition of the buffer where the access begins; 0 in HBM."""
        return self.access.base // self.row if self.on_chip and self.row else 0

    @property
    def start(self) -> int:
        """Partition of the memory where the access begins, a buffer without an address taken to begin at 0."""
        address = self.buffer.address
        return self.first_partition + (address[0] if address and self.on_chip else 0)

    @cached_property
    def free_axes(self) -> tuple[tuple[int, int], ...]:
        """(stride, count) of the axes that are not the partition axis."""
        return tuple(pair for axis, pair in enumerate(self.access.pattern) if axis != self.access.partition)

    @property
    def innermost_stride(self) -> int:
        """Stride of the innermost axis with more than one element; 1 where there is none."""
        return next((stride for stride, count in reversed(self.free_axes) if count > 1), 1)

    @cached_property
    def free_range(self) -> Range:
        """First and last element touched, counted from the start of a storage row; twice the first where none is."""
        begin = self.access.base - self.first_partition * self.row
        strides = (
            0 if axis == self.access.partition else s for axis, (s, _) in enumerate(self.access.pattern)
        )
        found = ranges(self.access, (Form(begin, tuple(strides)),))
        return found[0] if found else (begin, begin)


@dataclass
class CallView:
    """One instruction, as `isa.limit.Call` describes it.

    `spans_read` collects the operands whose `span` was asked for: what was found may differ in calls that are the
    same in everything else.
    """

    row: Row
    hardware: Hardware
    release: Release
    tiles: Mapping[str, Tile]
    immediates: Mapping[str, Any]
    engine: Engine = Engine.unknown
    dge: DgeMode = DgeMode.unknown
    lnc: int = 1
    spans_read: set[str] = field(default_factory=set)

    def has(self, operand: str) -> bool:
        """True where the operand is a tile."""
        return operand in self.tiles

    def measure(self, operand: str, measure: str) -> int:
        """partitions, free (elements a partition), elements, dims, start (partition) or stride of a tile."""
        tile = self.tiles[operand]
        access = tile.access
        if measure == "partitions":
            return access.partitions
        if measure == "free":
            return access.free
        if measure == "elements":
            return access.size
        if measure == "dims":
            return len(access.pattern)
        if measure == "start":
            return tile.start
        if measure == "stride":
            return tile.innermost_stride
        raise ValueError(f"{measure!r} is no measure of a tile")

    def counts(self, operand: str) -> tuple[int, ...]:
        """The shape of a tile's access."""
        return self.tiles[operand].access.shape

    def span(self, operand: str) -> tuple[int, int]:
        """First and last byte, within a partition, of a tile on chip; see `isa.limit.Call.span`."""
        self.spans_read.add(operand)
        tile = self.tiles[operand]
        first, last = tile.free_range
        begin = tile.buffer.address[1] if tile.buffer.address else 0
        return begin + first * tile.bits // 8, begin + ((last + 1) * tile.bits - 1) // 8

    def index(self, operand: str) -> str:
        """The kind of a tile's device-side index, "" where its address is known."""
        found = self.tiles[operand].access.index
        return found.kind if found else ""

    def index_axis(self, operand: str) -> int:
        """The axis that a tile's vector or snake index replaces, -1 where there is none."""
        found = self.tiles[operand].access.index
        return found.axis if found and found.kind in ("vector", "snake") else -1

    def same_index(self, one: str, other: str) -> bool:
        """True where two tiles have the same device-side index, or none."""
        a, b = (self.tiles[operand].access.index for operand in (one, other))
        return (a and (a.kind, a.source)) == (b and (b.kind, b.source))

    def placed(self, operand: str) -> bool:
        """True where the kernel chose the address of a tile's buffer."""
        return self.tiles[operand].buffer.address is not None

    def memory(self, operand: str) -> Memory:
        """Where a tile lives."""
        return self.tiles[operand].buffer.memory

    def dtype(self, operand: str) -> str:
        """A tile's dtype name."""
        return self.tiles[operand].access.dtype

    def imm(self, name: str) -> Any:
        """An immediate, as it was recorded; None if absent."""
        return self.immediates.get(name)

    def resolved_engine(self) -> Engine:
        """The engine that will run the instruction."""
        return self.row.engines.resolve(self)

"""Places: where the rows and columns of a tile begin in the tensors that its data was loaded from."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from nkireview.checks.dataflow import DEPTH, UNKNOWN, Dataflow, Slot
from nkireview.checks.steps import MATMUL
from nkireview.diagnosis.habits.survey import Survey
from nkireview.program.access import Access
from nkireview.program.call import CallView, Tile

COPIED = frozenset({"tensor_copy", "dma_copy"})
TURNED = frozenset({"nc_transpose", "dma_transpose"})
FOLLOWED = ("data", "src", "on_true_tile", "on_true", "data1", "operand1", "data2")
"""The operands that a walk goes back through, the first of as many elements as the result."""
Pair = tuple[int, int]


@dataclass(frozen=True)
class Start:
    """Where an axis of a tile begins: the place `index` along an axis of a buffer in HBM of that many places."""

    buffer: int
    axis: int
    index: int
    length: int


@dataclass(frozen=True)
class Corner:
    """Where the rows (partitions) and the columns (the last free axis) of a tile begin; None where not known."""

    row: Start | None
    column: Start | None

    @property
    def known(self) -> bool:
        """True where both are known."""
        return self.row is not None and self.column is not None

    @property
    def at(self) -> Pair:
        """The two places, 0 where one is not known."""
        return (self.row.index if self.row else 0, self.column.index if self.column else 0)


@dataclass(frozen=True, eq=False)
class Places:
    """Follows elements of tiles back to HBM: through copies, transposes, element by element, and through matmuls.

    The rows of a product are those of `stationary`'s columns, its columns those of `moving`.
    """

    flow: Dataflow
    _known: dict[Slot, Corner] = field(default_factory=dict)

    def corner(self, slot: Slot) -> Corner:
        """The corner of what an operand reads."""
        found = self._known.get(slot)
        if found is None:
            call = self.flow.call(slot.instruction)
            size = call.tiles[slot.operand].access if call is not None and call.has(slot.operand) else None
            row = column = None
            if size is not None and size.partitions and size.free:
                row = self._start(slot, size.free) if size.partitions > 1 else None
                column = self._start(slot, 1) if size.free > 1 else None
            found = self._known[slot] = Corner(row, column)
        return found

    def origin(self, slot: Slot, place: int) -> Pair | None:
        """The buffer in HBM and the address of which one element that an operand reads is a copy.

        place: its number in the access.
        """
        found = self._address(slot, (place, place), plain=True)
        return None if found is None else (found[0], found[1][0])

    def _start(self, slot: Slot, step: int) -> Start | None:
        """Where the axis along which elements are `step` apart begins."""
        found = self._address(slot, (0, step))
        if found is None:
            return None
        number, (first, second) = found
        shape, apart = self.flow.program.buffer(number).shape, second - first
        stride = 1
        for axis in reversed(range(len(shape))):
            if shape[axis] > 1 and apart == stride:
                return Start(number, axis, first // stride % shape[axis], shape[axis])
            stride *= shape[axis]
        return None

    def _address(self, slot: Slot, pair: Pair, plain: bool = False) -> tuple[int, Pair] | None:
        """The addresses that two elements of what an operand reads come from; plain: by copies and transposes alone."""
        for _ in range(DEPTH):
            call = self.flow.call(slot.instruction)
            if call is None or not call.has(slot.operand):
                return None
            tile = call.tiles[slot.operand]
            if tile.access.index is not None or tile.access.table is not None:
                return None
            places = (_offset(tile.access, pair[0]), _offset(tile.access, pair[1]))
            if not tile.on_chip:
                return tile.buffer.id, places
            found = self._written(slot, tile, places)
            if found is None:
                return None
            writer, call, pair = found
            if plain and call.row.name not in COPIED | TURNED:
                return None
            back = next(iter(self._back(writer, call, pair)), None)
            if back is None:
                return None
            slot, pair = back
        return None

    def _written(self, slot: Slot, tile: Tile, places: Pair) -> tuple[Slot, CallView, Pair] | None:
        """The latest writer of both elements, with their numbers in what it writes."""
        for writer in self.flow.writers(slot):
            call = self.flow.call(writer.instruction) if writer.instruction != UNKNOWN else None
            if call is None:
                return None
            target = call.tiles[writer.operand]
            if target.buffer.id != tile.buffer.id or target.bits != tile.bits:
                return None
            found = [_number(target.access, place) for place in places]
            if found[0] is not None and found[1] is not None:
                return writer, call, (found[0], found[1])
        return None

    def _back(self, writer: Slot, call: CallView, pair: Pair) -> Iterator[tuple[Slot, Pair]]:
        """The operand that two elements of a result come from, and their numbers in it."""
        name, index = call.row.name, writer.instruction
        if writer.operand != "dst":
            return
        shape = call.counts("dst")
        lanes, wide = shape[0], math.prod(shape[1:])
        if name == MATMUL and not call.imm("is_transpose"):
            (m0, n0), (m1, n1) = divmod(pair[0], wide), divmod(pair[1], wide)
            # element (k, m) of stationary and (k, n) of moving are the m-th and n-th of partition 0
            yield (Slot(index, "stationary"), (m0, m1)) if m0 != m1 else (Slot(index, "moving"), (n0, n1))
        elif name in TURNED or name == MATMUL:
            source = "src" if call.has("src") else "data" if call.has("data") else "stationary"
            # a transposing product has its data in either operand: which is not looked into
            if name != MATMUL and len(shape) == 2 and call.counts(source) == shape[::-1]:
                yield Slot(index, source), (_turned(pair[0], wide, lanes), _turned(pair[1], wide, lanes))
        else:
            size = lanes * wide
            yield from (
                (Slot(index, each), pair)
                for each in FOLLOWED
                if call.has(each) and call.measure(each, "elements") == size and self._leads(index, each)
            )

    def _leads(self, index: int, name: str) -> bool:
        """False for an operand that holds nothing but fills."""
        call = self.flow.call(index)
        if call is not None and not call.tiles[name].on_chip:
            return True
        writers = self.flow.writers(Slot(index, name))
        calls = [self.flow.call(each.instruction) for each in writers if each.instruction != UNKNOWN]
        return any(each is not None and each.row.name not in ("memset", "iota") for each in calls)


@dataclass(frozen=True, eq=False)
class Arranged(Survey):
    """A Program with its arguments, and where its tiles lie."""

    @cached_property
    def places(self) -> Places:
        """Where they do."""
        return Places(self.flow)


def _turned(place: int, wide: int, lanes: int) -> int:
    return place % wide * lanes + place // wide


def _offset(access: Access, place: int) -> int:
    """The address of an element of an access by its number."""
    found = access.base
    for stride, count in reversed(access.pattern):
        place, at = divmod(place, count)
        found += at * stride
    return found


def _number(access: Access, address: int) -> int | None:
    """The number of the element of an access at an address; None where it holds none."""
    left = address - access.base
    at = [0] * len(access.pattern)
    for axis in sorted(range(len(access.pattern)), key=lambda each: -access.pattern[each][0]):
        stride, count = access.pattern[axis]
        if count > 1 and stride > 0:
            at[axis] = min(left // stride, count - 1) if left >= 0 else 0
            left -= at[axis] * stride
    if left:
        return None
    return int(np.ravel_multi_index(at, access.shape))

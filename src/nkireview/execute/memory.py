"""Memory: the bytes of a Program's buffers, which of them are defined, and views of them.

A store starts with no bytes at all. A first write that covers its whole buffer needs neither poison nor a mask;
any other fills the store with poison and begins a mask of its defined elements, which goes when all are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.execute.formats import Formats
from nkireview.execute.layout import Form, Layout
from nkireview.execute.poison import Poison
from nkireview.execute.result import NoMeaningError
from nkireview.isa import dtypes
from nkireview.isa.dtypes import DataType
from nkireview.isa.enums import Memory as Region
from nkireview.program.errors import ProgramError
from nkireview.program.program import MEMORIES, Program

Bytes = NDArray[np.uint8]
Mask = NDArray[np.bool_]

POOLED_BYTES = 4 * 2**20
ROW_ALIGNMENT = 64


class Pool:
    """Poisoned or raw bytes; what was freed is handed out again, so that pages stay mapped and warm."""

    def __init__(self, poison: Poison) -> None:
        self.poison = poison
        self._free: dict[int, list[Bytes]] = {}

    def take(self, nbytes: int) -> Bytes:
        """Bytes of any content."""
        held = self._free.get(nbytes)
        return held.pop() if held else np.empty(nbytes, np.uint8)

    def give(self, data: Bytes) -> None:
        """Take bytes back that nobody looks at any more."""
        if data.nbytes <= POOLED_BYTES:
            self._free.setdefault(data.nbytes, []).append(data)


class Store:
    """Bytes that one buffer, or all explicitly addressed buffers of a memory, lie in.

    data None: nothing was written. defined None (and data): everything is. tainted: once written with a value
    that depended on undefined memory. epoch counts such writes. loaded: compute values of accesses, until the next
    write. matmul: what last wrote PSUM, see `psum`.
    """

    __slots__ = (
        "borrowed",
        "data",
        "defined",
        "epoch",
        "loaded",
        "matmul",
        "nbytes",
        "pool",
        "shared",
        "tainted",
        "units",
    )

    def __init__(self, nbytes: int, units: int, pool: Pool, shared: bool = False) -> None:
        self.nbytes, self.units, self.pool, self.shared = nbytes, units, pool, shared
        self.data: Bytes | None = None
        self.defined: Mask | None = None
        self.tainted: Mask | None = None
        self.epoch = 0
        self.matmul: int | NDArray[np.int8] = 0
        self.loaded: dict[Form, NDArray[Any]] | None = None
        self.borrowed = False
        if shared:
            self.poison()

    def poison(self) -> Bytes:
        """Fill a store that has no bytes."""
        data = self.data = self.pool.take(self.nbytes)
        data.fill(self.pool.poison.value)
        self.defined = np.zeros(self.units, np.bool_)
        return data

    def release(self) -> None:
        """Forget the bytes of a store that is used no more."""
        if self.data is not None and not self.borrowed:
            self.pool.give(self.data)
        self.data = self.defined = self.tainted = self.loaded = None
        self.matmul = 0


class Origin:
    """Where undefined values came from: the first instruction that read them, and the buffer it read."""

    __slots__ = ("buffer", "instruction")

    def __init__(self, instruction: int, buffer: int | None) -> None:
        self.instruction, self.buffer = instruction, buffer


class Cell:
    """A buffer while it is executed."""

    __slots__ = ("buffer", "full_at", "layout", "origin", "psum", "since_check", "store", "writes")

    def __init__(self, buffer: int, layout: Layout, store: Store, psum: bool, logged: bool) -> None:
        self.buffer, self.layout, self.store, self.psum = buffer, layout, store, psum
        self.full_at = -1  # epoch of a shared store at which all of this buffer was seen defined
        self.since_check = 0
        self.origin: Origin | None = None
        self.writes: dict[tuple[int, Operand], None] | None = {} if logged else None

    def log(self, index: int, operand: Operand) -> None:
        """Note that an instruction was the last to write an operand of this buffer."""
        if self.writes is not None:
            self.writes.pop((index, operand), None)
            self.writes[(index, operand)] = None

    def region(self, mask: Mask) -> Mask:
        """The units of this buffer in a mask of its store."""
        layout, unit = self.layout, self.layout.unit
        shape = (layout.rows, layout.row_bytes // unit)
        strides = (layout.row_stride // unit, 1)
        view: Mask = np.ndarray(shape, np.bool_, mask, layout.offset // unit, strides)
        return view


class Operand:
    """An access of a buffer."""

    __slots__ = ("access", "cell", "form")

    def __init__(self, cell: Cell, form: Form, access: int = -1) -> None:
        self.cell, self.form, self.access = cell, form, access

    def read(self) -> NDArray[Any]:
        """A view of the held elements; poison where nothing was written."""
        form, store = self.form, self.cell.store
        data = store.data
        if data is None:
            data = store.poison()
        view: NDArray[Any] = np.ndarray(form.shape, form.dtype, data, form.offset, form.strides)
        return view

    def load(self, formats: Formats) -> NDArray[Any]:
        """The elements as compute values, read-only; on chip, where tiles are used again, converted once."""
        form, store = self.form, self.cell.store
        if form.dtype == formats.compute:
            held = self.read()
            held.flags.writeable = False
            return held
        if not self.cell.layout.on_chip:
            return formats.load(self.read(), form.kind)
        if store.loaded is None:
            store.loaded = {}
        found = store.loaded.get(form)
        if found is None:
            found = store.loaded[form] = formats.load(self.read(), form.kind)
            found.flags.writeable = False
        return found

    def target(self) -> NDArray[Any]:
        """A view to write every element of; call `settle` next."""
        form, store = self.form, self.cell.store
        store.loaded = None
        data = store.data
        if data is None:
            if form.whole:
                data = store.data = store.pool.take(store.nbytes)
            else:
                data = store.poison()
        view: NDArray[Any] = np.ndarray(form.shape, form.dtype, data, form.offset, form.strides)
        return view

    @property
    def defined(self) -> bool:
        """True where every element is known to be defined, without looking at each."""
        store = self.cell.store
        if store.defined is None:
            return store.data is not None
        return self.cell.full_at == store.epoch

    def mask(self) -> Mask | None:
        """Which elements are defined, as a new array of the access's shape; None where all are."""
        if self.defined:
            return None
        store = self.cell.store
        if store.defined is None:
            return np.zeros(self.form.shape, np.bool_)
        units = self.units_of(store.defined)
        if units.all():
            return None
        return np.asarray(units.all(axis=-1)) if self.form.split > 1 else units.copy()

    def tainted(self) -> Mask:
        """Which elements were written with a value that depended on undefined memory; some may be defined since."""
        tainted = self.cell.store.tainted
        if tainted is None:
            return np.zeros(self.form.shape, np.bool_)
        units = self.units_of(tainted)
        return np.asarray(units.any(axis=-1)) if self.form.split > 1 else units.copy()

    def settle(self, mask: Mask | None) -> None:
        """Note that every element was written: with defined values, or where `mask` is True only."""
        store = self.cell.store
        if mask is None:
            if store.defined is not None:
                self._define(store, store.defined)
            return
        if store.data is None:
            store.poison()
        if store.defined is None:
            store.defined = np.ones(store.units, np.bool_)
        if store.tainted is None:
            store.tainted = np.zeros(store.units, np.bool_)
        each = mask[..., None] if self.form.split > 1 else mask
        self.units_of(store.defined)[...] = each
        self.units_of(store.tainted)[...] = ~each
        store.epoch += 1

    def _define(self, store: Store, defined: Mask) -> None:
        cell, form = self.cell, self.form
        if form.whole and not store.shared:
            store.defined = store.tainted = None
            return
        if cell.full_at == store.epoch:
            return
        self.units_of(defined)[...] = True
        # A look at all elements is due only after as many were written: cheap for any order of tiles.
        cell.since_check += form.units
        layout = cell.layout
        if cell.since_check * layout.unit >= layout.rows * layout.row_bytes:
            cell.since_check = 0
            if cell.region(defined).all():
                if store.shared:
                    cell.full_at = store.epoch
                else:
                    store.defined = store.tainted = None

    def units_of(self, mask: NDArray[Any]) -> NDArray[Any]:
        """This access's part of an array of one element for each unit of its store."""
        form = self.form
        view: NDArray[Any] = np.ndarray(
            form.unit_shape, mask.dtype, mask, form.unit_offset, form.unit_strides
        )
        return view


def final(operand: Operand) -> NDArray[Any]:
    """What an operand holds at the end, read-only: a view, but of a copy where the bytes are the caller's."""
    held = operand.read()
    if operand.cell.store.borrowed:
        held = held.copy()
    held.flags.writeable = False
    return held


class Memory:
    """The buffers of a Program, made as they are first used; `operands` holds those resolved so far."""

    def __init__(
        self,
        program: Program,
        formats: Formats,
        poison: Poison,
        arguments: Mapping[int, NDArray[Any]],
        written: NDArray[np.bool_],
        kept: frozenset[int],
    ) -> None:
        columns = program.columns
        self._program = program
        self._formats = formats
        self._pool = Pool(poison)
        self._given = arguments
        self._writes = written
        self._kept = kept
        self._kinds: list[DataType] = [dtypes.of(name) for name in program.dtypes]
        self._cells: list[Cell | None] = [None] * columns.buffers
        self.operands: list[Operand | None] = [None] * columns.accesses
        self._layouts: dict[tuple[Any, ...], Layout] = {}
        self._arenas: dict[tuple[int, int], tuple[Store, int, int]] = {}
        self._access_buffer = columns.access_buffer.tolist()
        self._access_dtype = columns.access_dtype.tolist()
        self._access_base = columns.access_base.tolist()
        self._access_partition = columns.access_partition.tolist()
        self._axis_at = columns.axis_at.tolist()
        self._axis_stride = columns.axis_stride.tolist()
        self._axis_count = columns.axis_count.tolist()
        self._buffer_memory = columns.buffer_memory.tolist()
        self._buffer_dtype = columns.buffer_dtype.tolist()
        self._dim_at = columns.dim_at.tolist()
        self._dim = columns.dim.tolist()
        on_chip = np.array([region.on_chip for region in MEMORIES])[columns.buffer_memory]
        self._addressed = (on_chip & (columns.buffer_partition_address >= 0)).tolist()
        self._units = self._smallest_items()

    def operand(self, access: int) -> Operand:
        """The operand of an access id; NoMeaningError where it has none."""
        found = self.operands[access]
        if found is None:
            found = self.operands[access] = self._resolve(access)
        return found

    def cell(self, buffer: int) -> Cell:
        """The buffer of that id."""
        found = self._cells[buffer]
        if found is None:
            found = self._cells[buffer] = self._make(buffer)
        return found

    def free(self, buffer: int) -> None:
        """Let go of a buffer that no later instruction uses."""
        cell = self._cells[buffer]
        if cell is not None and not cell.store.shared:
            cell.store.release()

    def _resolve(self, access: int) -> Operand:
        extra = self._program.extras.get(access)
        if extra is not None:
            found = (
                "a device-side index" if extra.index else "bounds" if extra.bounds else "a table of offsets"
            )
            raise NoMeaningError("unsupported", f"an access with {found} cannot be executed yet")
        first, last = self._axis_at[access], self._axis_at[access + 1]
        pattern = tuple(self._axis_stride[first:last]), tuple(self._axis_count[first:last])
        cell = self.cell(self._access_buffer[access])
        kind = self._kinds[self._access_dtype[access]]
        form = cell.layout.form(kind, self._access_base[access], pattern, self._access_partition[access])
        return Operand(cell, form, access)

    def _smallest_items(self) -> list[int]:
        columns = self._program.columns
        sizes = np.array([kind.storage.itemsize for kind in self._kinds], dtype=np.int64)
        units = sizes[columns.buffer_dtype]
        np.minimum.at(units, columns.access_buffer, sizes[columns.access_dtype])
        return [int(unit) for unit in units]

    def _make(self, buffer: int) -> Cell:
        region = MEMORIES[self._buffer_memory[buffer]]
        psum, logged = region is Region.psum, buffer in self._kept
        if self._addressed[buffer]:
            store, row_stride, unit = self._arena(buffer)
            partition, byte = self._program.buffer(buffer).address or (0, 0)
            layout = self._layout(buffer, row_stride, partition * row_stride + byte, unit)
            return self._filled(Cell(buffer, layout, store, psum, logged))
        layout = self._layout(buffer, None, 0, self._units[buffer])
        nbytes = layout.rows * layout.row_bytes
        store = Store(nbytes * layout.scale, nbytes // layout.unit, self._pool)
        return self._filled(Cell(buffer, layout, store, psum, logged))

    def _filled(self, cell: Cell) -> Cell:
        if cell.buffer in self._given or cell.buffer in self._program.buffer_constants:
            self._fill(cell)
        return cell

    def _layout(self, buffer: int, row_stride: int | None, offset: int, unit: int) -> Layout:
        shape = tuple(self._dim[self._dim_at[buffer] : self._dim_at[buffer + 1]])
        key = (shape, self._buffer_dtype[buffer], self._buffer_memory[buffer], row_stride, offset, unit)
        found = self._layouts.get(key)
        if found is None:
            kind = self._kinds[self._buffer_dtype[buffer]]
            on_chip = MEMORIES[self._buffer_memory[buffer]].on_chip
            rows = shape[0] if on_chip and shape else 1
            row_bytes = math.prod(shape[1:] if on_chip else shape) * kind.storage.itemsize
            stride = row_bytes if row_stride is None else row_stride
            found = Layout(rows, row_bytes, on_chip, stride, offset, unit, kind, self._formats)
            self._layouts[key] = found
        return found

    def _arena(self, buffer: int) -> tuple[Store, int, int]:
        """The store of all explicitly addressed buffers of a core's memory, bytes of a partition, unit."""
        columns = self._program.columns
        key = (int(columns.buffer_core[buffer]), self._buffer_memory[buffer])
        found = self._arenas.get(key)
        if found is None:
            same = (columns.buffer_core == key[0]) & (columns.buffer_memory == key[1])
            members = np.flatnonzero(same & np.array(self._addressed, dtype=np.bool_)).tolist()
            rows = width = 0
            unit = ROW_ALIGNMENT
            for member in members:
                record = self._program.buffer(member)
                partition, byte = record.address or (0, 0)
                itemsize = self._kinds[self._buffer_dtype[member]].storage.itemsize
                rows = max(rows, partition + record.shape[0])
                width = max(width, byte + math.prod(record.shape[1:]) * itemsize)
                unit = math.gcd(unit, math.gcd(self._units[member], byte))
            row_stride = -(-width // ROW_ALIGNMENT) * ROW_ALIGNMENT
            scale = self._formats.scale(unit)
            store = Store(rows * row_stride * scale, rows * row_stride // unit, self._pool, shared=True)
            found = self._arenas[key] = (store, row_stride, unit)
        return found

    def _fill(self, cell: Cell) -> None:
        buffer, layout, store = cell.buffer, cell.layout, cell.store
        values = self._given.get(buffer)
        if values is None:
            values = self._program.constants[self._program.buffer_constants[buffer]]
        shape, kind = self._program.buffer(buffer).shape, layout.own
        dtype = self._formats.dtype(kind)
        if values.shape != shape or values.dtype not in (kind.storage, dtype):
            raise ProgramError(
                f"buffer {buffer} takes a constant of {kind.storage} {shape}, got {values.dtype} {values.shape}"
            )
        dense = values.dtype == dtype and values.nbytes == store.nbytes and values.flags.c_contiguous
        if dense and not store.shared and not self._writes[buffer]:
            store.data, store.borrowed = values.reshape(-1).view(np.uint8), True
            return
        operand = self._all_of(cell)
        operand.target()[...] = values
        operand.settle(None)

    def whole(self, buffer: int) -> NDArray[Any]:
        """The content of a buffer, read-only."""
        return final(self._all_of(self.cell(buffer)))

    def _all_of(self, cell: Cell) -> Operand:
        shape = self._program.buffer(cell.buffer).shape
        strides = tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
        layout = cell.layout
        return Operand(cell, layout.form(layout.own, 0, (strides, shape), 0 if layout.on_chip else -1))

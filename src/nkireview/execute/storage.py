"""Storage: the bytes of a Program's buffers, which of them are defined, and views of them.

A store starts with no bytes at all. A first write that covers its whole buffer needs neither poison nor a mask;
any other fills the store with poison and begins a mask of its defined elements, which goes when all are.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from nkireview.execute.formats import Formats
from nkireview.execute.layout import Form, Layout
from nkireview.execute.poison import Poison

Bytes = NDArray[np.uint8]
Mask = NDArray[np.bool_]
Mark = TypeVar("Mark", np.bool_, np.int8)

POOLED_BYTES = 4 * 2**20


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

    def region(self, marks: NDArray[Mark]) -> NDArray[Mark]:
        """The units of this buffer in marks of one byte for each unit of its store."""
        layout, unit = self.layout, self.layout.unit
        shape = (layout.rows, layout.row_bytes // unit)
        strides = (layout.row_stride // unit, 1)
        view: NDArray[Mark] = np.ndarray(shape, marks.dtype, marks, layout.offset // unit, strides)
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

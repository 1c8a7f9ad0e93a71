"""Storage: the bytes of a Program's buffers, which of them are defined, and views of them.

A store starts with no bytes at all. A first write that covers its whole buffer needs neither poison nor a mask;
any other fills the store with poison and begins a mask of its defined elements, which goes when all are.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from nkireview.execute.formats import Formats
from nkireview.execute.layout import Form, Layout, marked
from nkireview.execute.poison import Poison
from nkireview.isa.enums import Memory as Region

if TYPE_CHECKING:
    from nkireview.execute.writes import Writes

Bytes = NDArray[np.uint8]
Mask = NDArray[np.bool_]
Mark = TypeVar("Mark", np.bool_, np.int8)

POOLED_BYTES = 4 * 2**20
LAZY_BYTES = 2**20  # stores from this size on are filled with poison only where somebody looks at it
VIEWS = 1024  # kept of one block
PARTS = 16  # writes of parts of a store before a mask is made of them
UNMADE: Mask = np.zeros(0, np.bool_)
"""Stands for a mask that is not made yet: `Store.parts` says what it would hold."""


class Block:
    """Bytes, and the views of them made last; `reading` and `writing` make others."""

    __slots__ = ("data", "nbytes", "reads", "writes")

    def __init__(self, data: Bytes) -> None:
        self.data, self.nbytes = data, data.nbytes
        self.reads: dict[Form, NDArray[Any]] = {}
        self.writes: dict[Form, NDArray[Any]] = {}

    def reading(self, form: Form) -> NDArray[Any]:
        """A new read-only view."""
        view: NDArray[Any] = np.ndarray(form.shape, form.dtype, self.data, form.offset, form.strides)
        view.flags.writeable = False
        _keep(self.reads, form, view)
        return view

    def writing(self, form: Form) -> NDArray[Any]:
        """A new view to write to."""
        view: NDArray[Any] = np.ndarray(form.shape, form.dtype, self.data, form.offset, form.strides)
        _keep(self.writes, form, view)
        return view


def _keep(views: dict[Form, NDArray[Any]], form: Form, view: NDArray[Any]) -> None:
    if len(views) >= VIEWS:
        views.clear()
    views[form] = view


class Pool:
    """Poisoned or raw bytes; what was freed is handed out again, so that pages stay mapped and warm."""

    def __init__(self, poison: Poison) -> None:
        self.poison = poison
        self._free: dict[int, list[Block]] = defaultdict(list)

    def take(self, nbytes: int) -> Block:
        """Bytes of any content."""
        held = self._free[nbytes]
        return held.pop() if held else Block(np.empty(nbytes, np.uint8))

    def give(self, block: Block) -> None:
        """Take bytes back that nobody looks at any more."""
        if block.nbytes <= POOLED_BYTES:
            self._free[block.nbytes].append(block)


class Store:
    """Bytes that one buffer, or all explicitly addressed buffers of a memory, lie in.

    block None: nothing was written. defined None (and a block): everything is. parts: while no mask is made, the forms
    of what was written. tainted: once written with a value that depended on undefined memory. epoch counts such
    writes. loaded: compute values of accesses, until the next write. matmul: what last wrote PSUM, see `psum`. raw:
    what was never written is still to be filled with poison, see `expose`.
    """

    __slots__ = (
        "block",
        "borrowed",
        "defined",
        "epoch",
        "loaded",
        "matmul",
        "nbytes",
        "parts",
        "pool",
        "raw",
        "shared",
        "tainted",
        "units",
    )

    def __init__(self, nbytes: int, units: int, pool: Pool, shared: bool = False) -> None:
        self.nbytes, self.units, self.pool, self.shared = nbytes, units, pool, shared
        self.block: Block | None = None
        self.defined: Mask | None = None
        self.parts: list[Form] | None = None
        self.tainted: Mask | None = None
        self.epoch = 0
        self.matmul: int | NDArray[np.int8] = 0
        self.loaded: dict[Form, NDArray[Any]] | None = None
        self.borrowed = self.raw = False
        if shared:
            self.poison()

    def poison(self) -> Block:
        """Fill a store that has no bytes."""
        block = self.block = self.pool.take(self.nbytes)
        self.raw = self.nbytes >= LAZY_BYTES and not self.shared
        if not self.raw:
            block.data.fill(self.pool.poison.value)
        if self.shared:
            self.defined = np.zeros(self.units, np.bool_)
        else:
            self.defined, self.parts = UNMADE, []
        return block

    def own(self) -> None:
        """Hold bytes of its own instead of the caller's, so that they may be changed."""
        if self.block is not None and self.borrowed:
            self.block, self.borrowed = Block(self.block.data.copy()), False

    def expose(self) -> None:
        """Fill what was never written with poison, before somebody looks at it."""
        self.raw = False
        if self.block is not None and self.defined is not None:
            never = ~self.mask() if self.tainted is None else ~(self.mask() | self.tainted)
            self.block.data.reshape(self.units, -1)[never] = self.pool.poison.value

    def mask(self) -> Mask:
        """The mask of a store that is not known to be defined."""
        if self.parts is not None:
            self.defined = marked(self.units, self.parts)
            self.parts = None
        assert self.defined is not None
        return self.defined

    def release(self) -> None:
        """Forget the bytes of a store that is used no more."""
        block = self.block
        if block is not None and not self.borrowed:
            self.pool.give(block)
        self.block = self.defined = self.parts = self.tainted = self.loaded = None
        self.matmul, self.raw = 0, False


class Origin:
    """Where undefined values came from: the first instruction that read them, and the buffer it read.

    cause: what else they came from, of that instruction, such as a register that was never set; empty for memory.
    """

    __slots__ = ("buffer", "cause", "instruction")

    def __init__(self, instruction: int, buffer: int | None, cause: str = "") -> None:
        self.instruction, self.buffer, self.cause = instruction, buffer, cause


class Cell:
    """A buffer while it is executed, and the operands that are affine maps into it, by their forms."""

    __slots__ = (
        "buffer",
        "full_at",
        "layout",
        "operands",
        "origin",
        "psum",
        "since_check",
        "store",
        "writes",
    )

    def __init__(self, buffer: int, layout: Layout, store: Store, region: Region) -> None:
        self.buffer, self.layout, self.store = buffer, layout, store
        self.psum = region is Region.psum
        self.operands: dict[Form, Operand] = {}
        self.full_at = -1  # epoch of a shared store at which all of this buffer was seen defined
        self.since_check = 0
        self.origin: Origin | None = None
        self.writes: Writes | None = None  # where somebody asks who wrote it

    def units_of(self, marks: NDArray[Mark]) -> NDArray[Mark]:
        """The units of this buffer in marks of one byte for each unit of its store."""
        layout, unit = self.layout, self.layout.unit
        shape = (layout.rows, layout.row_bytes // unit)
        strides = (layout.row_stride // unit, 1)
        view: NDArray[Mark] = np.ndarray(shape, marks.dtype, marks, layout.offset // unit, strides)
        return view


class Operand:
    """An access of a buffer: here one whose addresses are an affine map; see `scattered` for any others.

    plain: such a map. skipped: elements that are left out, neither read nor written.
    """

    __slots__ = ("access", "cell", "form")

    plain = True
    skipped: Mask | None = None

    def __init__(self, cell: Cell, form: Form, access: int = -1) -> None:
        self.cell, self.form, self.access = cell, form, access

    def read(self) -> NDArray[Any]:
        """A read-only view of the held elements; poison where nothing was written."""
        form, store = self.form, self.cell.store
        block = store.block or store.poison()
        if store.raw and self.mask() is not None:
            store.expose()
        view = block.reads.get(form)
        return block.reading(form) if view is None else view

    def load(self, formats: Formats) -> NDArray[Any]:
        """The elements as compute values, read-only; on chip, where tiles are used again, converted once."""
        form, store = self.form, self.cell.store
        if not form.loads:
            return self.read()
        if not self.cell.layout.on_chip:
            return formats.load(self.read(), form.kind)
        if store.loaded is None:
            store.loaded = {}
        found = store.loaded.get(form)
        if found is None:
            held = self.read()
            found = held.astype(formats.compute) if form.widens else formats.load(held, form.kind)
            found.flags.writeable = False
            store.loaded[form] = found
        return found

    def target(self) -> NDArray[Any]:
        """A view to write every element of; call `settle` next."""
        form, store = self.form, self.cell.store
        store.loaded = None
        block = store.block
        if block is None:
            block = store.block = store.pool.take(store.nbytes) if form.whole else store.poison()
        view = block.writes.get(form)
        return block.writing(form) if view is None else view

    def put(self, values: NDArray[Any]) -> None:
        """Write held elements, in the shape of the access; call `settle` next."""
        self.target()[...] = values

    @property
    def defined(self) -> bool:
        """True where every element is known to be defined, without looking at each."""
        store = self.cell.store
        if store.defined is None:
            return store.block is not None
        if store.parts is not None:
            return self.plain and self.form in store.parts
        return self.cell.full_at == store.epoch

    def mask(self) -> Mask | None:
        """Which elements are defined, as a new array of the access's shape; None where all are."""
        return None if self.defined else self._stored_mask()

    def _stored_mask(self) -> Mask | None:
        store = self.cell.store
        if store.defined is None:
            return np.zeros(self.form.shape, np.bool_) if store.block is None else None
        units = self.units_of(store.mask())
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
                self._define(store)
            return
        if store.block is None:
            store.poison()
        defined = np.ones(store.units, np.bool_) if store.defined is None else store.mask()
        store.defined = defined
        if store.tainted is None:
            store.tainted = np.zeros(store.units, np.bool_)
        self.mark(defined, mask)
        self.mark(store.tainted, ~mask)
        store.epoch += 1

    def _define(self, store: Store) -> None:
        cell, form = self.cell, self.form
        if form.whole and not store.shared:
            store.defined = store.parts = store.tainted = None
            return
        if cell.full_at == store.epoch:
            return
        if store.parts is not None and self.plain:
            if form in store.parts:
                return
            store.parts.append(form)
            cell.since_check += form.units
            if cell.since_check >= store.units and cell.layout.covered(tuple(store.parts)):
                store.defined = store.parts = store.tainted = None
            elif len(store.parts) >= PARTS:
                store.mask()
            return
        defined = store.mask()
        self.mark(defined, True)
        # A look at all elements is due only after as many were written: cheap for any order of tiles.
        cell.since_check += form.units
        layout = cell.layout
        if cell.since_check * layout.unit >= layout.rows * layout.row_bytes:
            cell.since_check = 0
            if cell.units_of(defined).all():
                if store.shared:
                    cell.full_at = store.epoch
                else:
                    store.defined = store.tainted = None

    def units_of(self, marks: NDArray[Any]) -> NDArray[Any]:
        """This access's part, in `Form.unit_shape`, of an array of one element for each unit of its store."""
        form, size = self.form, marks.itemsize
        strides = form.unit_strides if size == 1 else tuple(stride * size for stride in form.unit_strides)
        view: NDArray[Any] = np.ndarray(form.unit_shape, marks.dtype, marks, form.unit_offset * size, strides)
        return view

    def mark(self, marks: NDArray[Any], value: Any) -> None:
        """Write a number, or one for each element, to this access's part of an array of units."""
        if self.form.split > 1 and isinstance(value, np.ndarray):
            value = value[..., None]
        self.units_of(marks)[...] = value

    def places(self) -> NDArray[np.int64]:
        """The first unit of each element, in the shape of the access."""
        form = self.form
        found = np.full(form.shape, form.unit_offset, np.int64)
        for axis, (count, stride) in enumerate(zip(form.shape, form.unit_strides, strict=False)):
            rest = (1,) * (len(form.shape) - axis - 1)
            found += (np.arange(count, dtype=np.int64) * stride).reshape(-1, *rest)
        return found


def final(operand: Operand) -> NDArray[Any]:
    """What an operand holds at the end, read-only: a view, but of a copy where the bytes are the caller's."""
    held = operand.read()
    if operand.cell.store.borrowed:
        held = held.copy()
        held.flags.writeable = False
    return held

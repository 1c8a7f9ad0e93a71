"""Scattered operands: elements at any places of a store, some of which may be left out."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.execute.formats import Formats
from nkireview.execute.layout import Form, Layout
from nkireview.execute.storage import Bytes, Cell, Mask, Operand
from nkireview.isa.dtypes import DataType

Ints = NDArray[np.int64]


def placeless(layout: Layout, kind: DataType, shape: tuple[int, ...], partitions: int) -> Form:
    """The form of an access whose elements lie anywhere."""
    return Form(layout, kind, shape, 0, (0,) * len(shape), partitions, whole=False)


class Scattered(Operand):
    """Elements by their first unit in the store, in the shape of the access.

    holes: elements outside the bounds of the access, undefined where they are read and never written. skipped:
    elements that are left out. Where neither is, the unit lies in the buffer; elsewhere it does not matter. Of
    elements written to one place the last one stays.
    """

    __slots__ = ("_at", "_chosen", "holes", "outside", "skipped")

    plain = False

    def __init__(
        self,
        cell: Cell,
        form: Form,
        at: Ints,
        holes: Mask | None = None,
        skipped: Mask | None = None,
        access: int = -1,
    ) -> None:
        super().__init__(cell, form, access)
        outside = holes if skipped is None else skipped if holes is None else holes | skipped
        if outside is not None:
            # places that do not matter are those of a neighbour, so that looking at them needs no mask
            inside = at[~outside]
            at = np.where(outside, inside[0] if inside.size else cell.layout.offset // cell.layout.unit, at)
        self.holes, self.skipped, self.outside = holes, skipped, outside
        self._at = at
        self._chosen: Ints | None = None

    def read(self) -> NDArray[Any]:
        """A copy of the held elements; poison where nothing was written, and for what is left out."""
        values = self._held(self._data()).take(self._held_at())
        if self.outside is not None:
            each = values.view(np.uint8).reshape(*self.form.shape, values.itemsize)
            each[self.outside] = self.cell.store.pool.poison.value
        values.flags.writeable = False
        return values

    def load(self, formats: Formats) -> NDArray[Any]:
        """The elements as compute values."""
        return formats.load(self.read(), self.form.kind)

    def target(self) -> NDArray[Any]:
        """There is no view of scattered elements: use `put`."""
        raise TypeError("scattered elements have no view")

    def put(self, values: NDArray[Any]) -> None:
        """See `Operand.put`."""
        self.cell.store.loaded = None
        chosen = self._kept()
        self._held(self._data())[self._held_at().reshape(-1)[chosen]] = values.reshape(-1)[chosen]

    @property
    def defined(self) -> bool:
        """See `Operand.defined`."""
        return self.outside is None and super().defined

    def mask(self) -> Mask | None:
        """See `Operand.mask`: False in holes, True for what is skipped."""
        found = self._stored_mask()
        if self.outside is None:
            return found
        if found is None:
            found = np.ones(self.form.shape, np.bool_)
        if self.holes is not None:
            found &= ~self.holes
        if self.skipped is not None:
            found |= self.skipped
        return None if found.all() else found

    def units_of(self, marks: NDArray[Any]) -> NDArray[Any]:
        """A copy of this access's part of an array of units; what is left out shows a neighbour's."""
        return marks.take(self._units(self._at))

    def mark(self, marks: NDArray[Any], value: Any) -> None:
        """See `Operand.mark`."""
        chosen = self._kept()
        if isinstance(value, np.ndarray):
            value = value.reshape(-1)[chosen]
            if self.form.split > 1:
                value = value[:, None]
        marks[self._units(self._at.reshape(-1)[chosen])] = value

    def places(self) -> Ints:
        """See `Operand.places`."""
        return self._at

    @property
    def shares(self) -> bool:
        """True where two of the elements lie at one place."""
        return len(self._kept()) < len(self.taken())

    def _units(self, at: Ints) -> Ints:
        split = self.form.split
        return at if split == 1 else at[..., None] + np.arange(split)

    def _data(self) -> Bytes:
        store = self.cell.store
        block = store.block or store.poison()
        if store.raw:
            store.expose()
        return block.data

    def _held(self, data: Bytes) -> NDArray[Any]:
        """All elements of the store that lie as these do."""
        dtype, rest = self.form.dtype, self._rest()
        count = (data.nbytes - rest) // dtype.itemsize
        view: NDArray[Any] = np.ndarray((count,), dtype, data, rest)
        return view

    def _rest(self) -> int:
        """Bytes before the first element that lies as these do."""
        return int(self._at.flat[0]) * self._unit() % self.form.dtype.itemsize

    def _held_at(self) -> Ints:
        unit, itemsize = self._unit(), self.form.dtype.itemsize
        if unit == itemsize:
            return self._at
        return (self._at * unit - self._rest()) // itemsize

    def _unit(self) -> int:
        """Bytes of the store that one unit covers."""
        layout = self.cell.layout
        return layout.unit * layout.scale

    def taken(self) -> Ints:
        """The elements that are not left out, by position."""
        if self.outside is None:
            return np.arange(self.form.size)
        return np.flatnonzero(~self.outside)

    def _kept(self) -> Ints:
        """The elements that are written, by position: the last one of each place."""
        if self._chosen is None:
            taken = self.taken()
            at = self._at.reshape(-1)[taken]
            ascending = np.sort(at)
            if (ascending[1:] == ascending[:-1]).any():
                _, last = np.unique(at[::-1], return_index=True)
                taken = np.sort(taken[len(at) - 1 - last])
            self._chosen = taken
        return self._chosen


class Rows(Operand):
    """Parts of a window that an index along one of its axes picks: rows of a tensor, most often.

    window: an affine operand that holds them all, no two positions of the axis sharing an element. Of parts written
    to one place the last one stays.
    """

    __slots__ = ("_apart", "_at", "_axis", "_window")

    plain = False

    def __init__(self, window: Operand, axis: int, at: Ints, form: Form, access: int) -> None:
        super().__init__(window.cell, form, access)
        self._window, self._axis, self._at = window, axis, at
        self._apart: tuple[Ints | None, Ints] | None = None

    def read(self) -> NDArray[Any]:
        """A copy of the held elements; poison where nothing was written."""
        values = self._picked(self._window.read())
        values.flags.writeable = False
        return values

    def load(self, formats: Formats) -> NDArray[Any]:
        """The elements as compute values."""
        return formats.load(self.read(), self.form.kind)

    def target(self) -> NDArray[Any]:
        """There is no view of picked elements: use `put`."""
        raise TypeError("picked elements have no view")

    def put(self, values: NDArray[Any]) -> None:
        """See `Operand.put`."""
        if self.cell.store.block is None:
            self.cell.store.poison()
        self._assign(self._window.target(), values)

    def units_of(self, marks: NDArray[Any]) -> NDArray[Any]:
        """A copy of this access's part of an array of units."""
        return self._picked(self._window.units_of(marks))

    def mark(self, marks: NDArray[Any], value: Any) -> None:
        """See `Operand.mark`."""
        if self.form.split > 1 and isinstance(value, np.ndarray):
            value = np.broadcast_to(value[..., None], (*self.form.shape, self.form.split))
        self._assign(self._window.units_of(marks), value)

    def places(self) -> Ints:
        """See `Operand.places`."""
        return self._picked(self._window.places())

    def _picked(self, view: NDArray[Any]) -> NDArray[Any]:
        if self._axis == 0:
            return view[self._at]
        return np.moveaxis(np.moveaxis(view, self._axis, 0)[self._at], 0, self._axis)

    @property
    def shares(self) -> bool:
        """True where two of the parts lie at one place."""
        return self._parted()[0] is not None

    def _parted(self) -> tuple[Ints | None, Ints]:
        """Which parts are written, by position and None for all, and where along the axis they lie."""
        if self._apart is None:
            places, last = np.unique(self._at[::-1], return_index=True)
            chosen = None if len(places) == len(self._at) else len(self._at) - 1 - last
            self._apart = (chosen, self._at if chosen is None else places)
        return self._apart

    def _assign(self, view: NDArray[Any], values: Any) -> None:
        chosen, places = self._parted()
        if isinstance(values, np.ndarray):
            values = np.moveaxis(values, self._axis, 0)
            values = values if chosen is None else values[chosen]
        np.moveaxis(view, self._axis, 0)[places] = values


def restricted(operand: Operand, kept: Mask) -> Scattered:
    """An operand of which only the elements in `kept` are written."""
    form, cell = operand.form, operand.cell
    skipped = ~kept if operand.skipped is None else ~kept | operand.skipped
    holes = operand.holes if isinstance(operand, Scattered) else None
    plain = placeless(cell.layout, form.kind, form.shape, form.partitions)
    return Scattered(cell, plain, operand.places(), holes, skipped, operand.access)


def shared_places(operand: Operand) -> int:
    """How many elements of an operand lie where another of its elements lies too."""
    taken = operand.taken() if isinstance(operand, Scattered) else np.arange(operand.form.size)
    counts = np.unique(operand.places().reshape(-1)[taken], return_counts=True)[1]
    return int(counts[counts > 1].sum())


def contested(operand: Operand, values: NDArray[Any]) -> Ints:
    """The places, ascending, to which different ones of the values go; values: as they are held, one an element."""
    if not isinstance(operand, Scattered | Rows) or not operand.shares:
        return np.zeros(0, np.int64)
    taken = operand.taken() if isinstance(operand, Scattered) else np.arange(operand.form.size)
    places = operand.places().reshape(-1)[taken]
    held = np.ascontiguousarray(values.reshape(-1)[taken])
    bits = held.view(np.uint8).reshape(len(held), -1)
    order = np.argsort(places, kind="stable")
    places, bits = places[order], bits[order]
    differ = (places[1:] == places[:-1]) & np.any(bits[1:] != bits[:-1], axis=1)
    return np.unique(places[1:][differ])


def summed(
    operand: Operand, values: NDArray[Any], mask: Mask | None, formats: Formats
) -> tuple[NDArray[Any], Mask | None]:
    """The content of an operand with compute values added, and where the sums are defined, given where the values are.

    A place that several elements share gets all their values.
    """
    form = operand.form
    taken = operand.taken() if isinstance(operand, Scattered) else np.arange(form.size)
    places, first, place_of = np.unique(
        operand.places().reshape(-1)[taken], return_index=True, return_inverse=True
    )
    sums = operand.load(formats).reshape(-1)[taken][first]
    np.add.at(sums, place_of, values.reshape(-1)[taken])
    total = np.zeros(form.size, sums.dtype)
    total[taken] = sums[place_of]
    defined = operand.mask()
    if defined is None and mask is None:
        return total.reshape(form.shape), None
    known = np.ones(len(places), np.bool_)
    for each in (defined, mask):
        if each is not None:
            np.logical_and.at(known, place_of, each.reshape(-1)[taken])
    result = np.ones(form.size, np.bool_)
    result[taken] = known[place_of]
    return total.reshape(form.shape), result.reshape(form.shape)

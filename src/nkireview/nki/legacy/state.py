"""What PSUM holds in a trace of the legacy generation: zeros still to be written, products of matmuls, or else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.isa.enums import Memory
from nkireview.nki.lowering import instruction
from nkireview.nki.tensor import NkiTensor
from nkireview.nki.trace import Trace

FRESH, ZERO, PRODUCT, OTHER, MIXED = range(5)
"""Content of PSUM: nothing yet, zeros that no instruction has written, products of matmuls, anything else, several."""

MATMULS = ("nc_matmul",)
Cells = NDArray[np.int8]
Ranges = tuple[tuple[int, int], ...]


class PsumState:
    """The content of each PSUM buffer: one number for all of it, or one for each element."""

    def __init__(self) -> None:
        self._held: dict[int, int | Cells] = {}

    def declare(self, tensor: NkiTensor, content: int) -> None:
        """Note the content of a whole buffer."""
        self._held[tensor.storage.id] = content

    def content(self, view: NkiTensor) -> int:
        """The content of a view; MIXED where it differs from element to element."""
        held = self._held.get(view.storage.id, FRESH)
        if isinstance(held, int):
            return held
        part = _part(held, view)
        low, high = int(part.min()), int(part.max())
        return low if low == high else MIXED

    def note(self, view: NkiTensor, content: int) -> None:
        """Note what a view was written with."""
        held = self._held.get(view.storage.id, FRESH)
        whole = view.size * view.itemsize == NkiTensor.whole(view._trace, view.storage).size * _itemsize(view)
        if whole:
            self._held[view.storage.id] = content
            return
        if isinstance(held, int):
            if held == content:
                return
            held = np.full(view.storage.shape, held, np.int8).reshape(view.storage.shape[0], -1)
            self._held[view.storage.id] = held
        _part(held, view)[...] = content

    def zeros(self, view: NkiTensor) -> Iterator[NkiTensor]:
        """The rectangles of a view's buffer that are still to be zeroed before the view is read; they count as done."""
        held = self._held.get(view.storage.id, FRESH)
        whole = NkiTensor.whole(view._trace, view.storage)
        if isinstance(held, int):
            if held == ZERO:
                self._held[view.storage.id] = OTHER
                yield whole
            return
        wanted = np.zeros(held.shape, np.bool_)
        _part(wanted, view)[...] = True
        wanted &= held == ZERO
        held[wanted] = OTHER
        rows = whole.reshape(held.shape) if whole.ndim != 2 else whole
        for (first, last), (start, stop) in boxes(wanted):
            yield rows[first:last, start:stop]


def boxes(wanted: NDArray[np.bool_]) -> Iterator[Ranges]:
    """Ranges of the dimensions that together hold every True of an array, once."""
    if wanted.ndim == 1:
        edges = np.flatnonzero(np.diff(np.concatenate([[False], wanted, [False]]).astype(np.int8))).tolist()
        yield from (((start, stop),) for start, stop in zip(edges[::2], edges[1::2], strict=True))
        return
    first = 0
    while first < len(wanted):
        last = first + 1
        while last < len(wanted) and np.array_equal(wanted[last], wanted[first]):
            last += 1
        yield from (((first, last), *rest) for rest in boxes(wanted[first]))
        first = last


def _itemsize(view: NkiTensor) -> int:
    return NkiTensor.whole(view._trace, view.storage).itemsize


def _part(cells: NDArray[Any], view: NkiTensor) -> NDArray[Any]:
    """A view's elements in an array with one item for each element of its buffer."""
    row = cells.shape[1]
    first, at = divmod(view.offset, row)
    strides = (view.strides[0] // row * cells.strides[0] if view.shape[0] > 1 else 0, *view.strides[1:])
    found: NDArray[Any] = np.ndarray(view.shape, cells.dtype, cells, first * cells.strides[0] + at, strides)
    return found


def psum(view: NkiTensor) -> bool:
    """True for views of PSUM."""
    return view.storage.memory is Memory.psum


def states(trace: Trace) -> PsumState:
    """The content of PSUM in this trace."""
    found: PsumState = trace.kept.setdefault("legacy psum", PsumState())
    return found


def note(view: NkiTensor, row: str) -> None:
    """Note what a view holds after an instruction of a row wrote it."""
    if psum(view):
        states(view._trace).note(view, PRODUCT if row in MATMULS else OTHER)


def settle(view: NkiTensor) -> None:
    """Write the zeros of PSUM that are about to be read."""
    if psum(view):
        for part in states(view._trace).zeros(view):
            instruction("memset")(dst=part, value=0.0)


def zeroed(view: NkiTensor) -> None:
    """Note that a new tile of PSUM holds zeros, which are written only if something else than a matmul needs them."""
    states(view._trace).declare(view, ZERO)

"""Tile: what a kernel of the legacy generation holds: a tensor, a block of it, an indexed view, or a result.

A result that nobody has read yet can still be moved: ``t[...] = nl.load(x)`` and ``psum += nisa.nc_matmul(a, b)`` are
one instruction each, as they are for the compiler.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

import numpy as np

from nkireview.isa import dtypes as table
from nkireview.isa.table import ROWS
from nkireview.nki.dtypes import DType
from nkireview.nki.dtypes import of as dtype_of
from nkireview.nki.errors import NotYetSupported, Refusal
from nkireview.nki.legacy.declared import Declared
from nkireview.nki.legacy.symbols import Mask, Symbol
from nkireview.nki.tensor import MemoryRegion, NkiTensor
from nkireview.nki.views import integer, slice_of
from nkireview.program.access import Access, Bound, Index


@dataclass(frozen=True)
class Result:
    """The instruction that writes a tile nobody has read: its number, its row, and which part of the tile it writes."""

    index: int
    row: str
    part: Restriction | None = None

    @property
    def nothing(self) -> bool:
        """True where a mask left nothing to do: no instruction was recorded."""
        return self.index < 0


@dataclass(frozen=True, eq=False)
class Restriction:
    """What a mask leaves of the dimensions of a tile: a range of each, and affine inequalities where it is no box."""

    ranges: tuple[tuple[int, int], ...]
    bounds: tuple[tuple[tuple[int, ...], int], ...] = ()
    """Coefficients for each dimension and a constant, over the positions of the whole tile."""

    @property
    def empty(self) -> bool:
        """True where nothing is left."""
        return any(stop <= start for start, stop in self.ranges)


@dataclass(frozen=True, eq=False)
class Position:
    """Along one dimension of a tensor: its size, and the symbol or number that indexes it."""

    size: int
    index: Symbol | int
    dim: int


class Tile:
    """A tensor of the legacy generation; operators are those of the hooks that `language` sets."""

    __slots__ = (
        "_at",
        "_declared",
        "_gather",
        "_mask",
        "_positions",
        "_result",
        "_table",
        "_view",
        "parameter",
    )
    __array_priority__ = 3000
    __array_ufunc__ = None

    apply: ClassVar[Callable[..., Tile]]
    """Records an operator: called with its name and its operands."""
    move: ClassVar[Callable[[Tile, Any], None]]
    """Records ``tile[...] = value`` as a copy or a fill."""
    accumulate: ClassVar[Callable[[Tile, Any], None]]
    """Records ``tile += value``."""

    def __init__(self, view: NkiTensor | None = None, declared: Declared | None = None) -> None:
        self._view = view
        self._declared = declared
        self._at: tuple[int, ...] = ()
        self._positions: tuple[Position, ...] = ()
        self._table: Any = None
        self._gather: tuple[Tile, int] | None = None
        self._mask: Mask | None = None
        self._result: Result | None = None
        self.parameter = ""

    # what it is

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the dimensions, block dimensions first."""
        if self._view is None:
            assert self._declared is not None
            return self._declared.blocks[len(self._at) :] + self._declared.shape
        return self._view.shape

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def kind(self) -> DType:
        """The dtype as the current generation names it."""
        if self._view is not None:
            return self._view.dtype
        assert self._declared is not None
        return self._declared.dtype

    @property
    def dtype(self) -> Any:
        """The dtype: a NumPy dtype, or the name of one that NumPy lacks."""
        numpy = table.BY_NAME[self.kind.name].numpy
        return self.kind if numpy is None else numpy

    @property
    def itemsize(self) -> int:
        """Bytes an element."""
        return self.kind.itemsize

    @property
    def region(self) -> MemoryRegion:
        """Where it lives."""
        if self._view is not None:
            return self._view.buffer
        assert self._declared is not None
        return self._declared.region

    buffer = region

    @property
    def on_chip(self) -> bool:
        """True in SBUF and PSUM."""
        return self.region in (MemoryRegion.sbuf, MemoryRegion.psum)

    @property
    def name(self) -> str:
        """The name it was declared with."""
        return self._declared.name if self._declared is not None else self.parameter

    @property
    def result(self) -> Result | None:
        """The instruction that can still be moved to write somewhere else."""
        return self._result

    @result.setter
    def result(self, found: Result | None) -> None:
        self._result = found

    def view(self, dtype: Any = None) -> Any:
        """The same bytes seen as another dtype."""
        if dtype is None:
            raise Refusal("view takes a dtype")
        return self._derived(self.physical().view(dtype_of(dtype, "view")))

    # where it is

    def physical(self) -> NkiTensor:
        """The view as an instruction takes it; Refusal where block dimensions are left."""
        self._result = None
        if self._view is None:
            declared = self._declared
            assert declared is not None
            left = declared.blocks[len(self._at) :]
            if left:
                sizes = ", ".join(map(str, left))
                raise Refusal(
                    f"tensor {self._label()} has block dimensions ({sizes}) left; an instruction takes one tile: "
                    "index them"
                )
            self._view = declared.tile(self._at)
        return self._view

    def __getitem__(self, key: Any) -> Tile:
        if isinstance(key, Mask):
            return self._masked(key)
        items: list[Any] = list(key) if isinstance(key, tuple) else [key]
        if self._view is None:
            assert self._declared is not None
            items, at = self._blocked(items)
            if at is not None:
                found = Tile(None, self._declared)
                found._at = at
                if not items:
                    return found
                return found._indexed(items)
        return self._indexed(items)

    def _blocked(self, items: list[Any]) -> tuple[list[Any], tuple[int, ...] | None]:
        """The indices that block dimensions do not take, and the block index."""
        declared = self._declared
        assert declared is not None
        left = len(declared.blocks) - len(self._at)
        if len(items) == 1 and items[0] is Ellipsis:
            return [], self._at
        at = list(self._at)
        while left and items and items[0] is not Ellipsis:
            item = items.pop(0)
            if not isinstance(item, int | np.integer) or isinstance(item, bool):
                raise Refusal(
                    f"block dimension {len(at)} of tensor {self._label()} is indexed by a {_kind(item)}, expected an "
                    "integer known while tracing: each block is a tile of its own"
                )
            size, number = declared.blocks[len(at)], int(item)
            number = number + size if number < 0 else number
            if not 0 <= number < size:
                raise Refusal(
                    f"block index {int(item)} is outside of the {size} blocks of tensor {self._label()}"
                )
            at.append(number)
            left -= 1
        if left and items:
            raise Refusal(
                f"tensor {self._label()} has {left} more block dimensions than are indexed before its tile is"
            )
        return items, tuple(at)

    def _indexed(self, items: list[Any]) -> Tile:
        tensor = self.physical()
        if any(isinstance(item, Symbol | Tile) for item in items):
            return self._advanced(tensor, items)
        if all(item is Ellipsis or (isinstance(item, slice) and item == slice(None)) for item in items):
            found = self._derived(tensor)
            found._positions = self._positions
            return found
        if self._positions:
            items = [item for item in items if item is not Ellipsis] if len(items) > tensor.ndim else items
        clipped = [_clipped(item) for item in items]
        return self._derived(tensor[tuple(clipped)])

    def _advanced(self, tensor: NkiTensor, items: list[Any]) -> Tile:
        """Indices that are index expressions, integers and index tiles: one element for each of their positions."""
        dots = [at for at, item in enumerate(items) if item is Ellipsis]
        if dots:
            at = dots[0]
            items[at : at + 1] = [slice(None)] * (tensor.ndim - len(items) + 1)
        if len(items) != tensor.ndim:
            if len(items) > tensor.ndim or not all(size == 1 for size in tensor.shape[len(items) :]):
                raise Refusal(f"{len(items)} indices are given to the {tensor.ndim}-D tensor {self._label()}")
            items = [*items, *[0] * (tensor.ndim - len(items))]
        mixed = next((item for item in items if isinstance(item, slice) or item is None), None)
        if mixed is not None:
            raise Refusal(
                f"tensor {self._label()} is indexed by slices and by index expressions at once; use one kind: "
                "slices and nl.ds, or nl.arange and nl.mgrid for each dimension"
            )
        shapes = [item.shape for item in items if isinstance(item, Symbol | Tile)]
        if any(isinstance(item, Symbol) and item.ndim < 2 for item in items) and max(map(len, shapes)) < 2:
            raise Refusal(
                "nl.arange as an index has one dimension, expected two or more: write nl.arange(n)[:, None] or "
                "nl.arange(n)[None, :]"
            )
        try:
            shape = tuple(int(size) for size in np.broadcast_shapes(*shapes))
        except ValueError:
            texts = ", ".join(map(str, shapes))
            raise Refusal(f"the index expressions of shapes {texts} do not broadcast") from None
        offset, strides = tensor.offset, [0] * len(shape)
        offsets: Any = None
        positions: list[Position] = []
        gather: tuple[Tile, int] | None = None
        for dim, (item, size, stride) in enumerate(zip(items, tensor.shape, tensor.strides, strict=True)):
            if isinstance(item, Tile):
                if gather is not None:
                    raise NotYetSupported("a tensor indexed by two index tiles")
                gather = item, stride
                continue
            if isinstance(item, Symbol):
                symbol = item.expanded(shape)
                positions.append(Position(size, symbol, dim))
                if symbol.table is not None:
                    offsets = symbol.table * stride + (0 if offsets is None else offsets)
                    continue
                offset += symbol.base * stride
                strides = [
                    old + step * stride for old, step in zip(strides, symbol.coefficients, strict=True)
                ]
                continue
            number = integer(item, f"index of dimension {dim}")
            number = number + size if number < 0 else number
            positions.append(Position(size, number, dim))
            offset += number * stride
        view = tensor._view(shape, tuple(strides), offset)
        found = self._derived(view)
        found._positions = tuple(positions)
        if offsets is not None:
            found._table = offsets
        found._gather = gather
        return found

    def _masked(self, mask: Mask) -> Tile:
        """``tile[mask]``: an operand of a matmul with a mask of its own."""
        found = self._derived(self.physical())
        found._positions, found._mask = self._positions, mask
        return found

    def _derived(self, view: NkiTensor) -> Tile:
        found = Tile(view)
        found.parameter = self.parameter
        return found

    @property
    def plain(self) -> bool:
        """True where the address is one affine map known while tracing."""
        return self._table is None and self._gather is None

    @property
    def mask(self) -> Mask | None:
        """The mask of an operand of its own."""
        return self._mask

    def checked(self, part: Restriction | None = None) -> None:
        """Note an index that runs out of a dimension of its tensor, in the part that is used."""
        for position in self._positions:
            low, high = _reach(position.index, part, self.shape)
            if low < 0 or high >= position.size:
                tensor = self.physical()
                text = f"{low}" if low == high else f"{low}:{high + 1}"
                tensor._trace.event(
                    "overrun",
                    f"index {text} of dimension {position.dim} (size {position.size}) of tensor {self._label()} runs "
                    "into other elements of its memory",
                )
                return

    def part(self, part: Restriction | None) -> Tile:
        """The part of the tile that a restriction leaves."""
        if part is None:
            self.checked()
            return self
        view = self.physical()
        self.checked(part)
        offset = view.offset + sum(
            start * stride for (start, _), stride in zip(part.ranges, view.strides, strict=True)
        )
        shape = tuple(stop - start for start, stop in part.ranges)
        found = self._derived(view._view(shape, view.strides, offset))
        if self._table is not None:
            found._table = self._table[tuple(slice(start, stop) for start, stop in part.ranges)]
        if self._gather is not None:
            tile, stride = self._gather
            kept = (part.ranges[0], *((0, size) for size in tile.shape[1:]))
            found._gather = tile.part(Restriction(kept)), stride
        return found

    # what is done with it

    def __setitem__(self, key: Any, value: Any) -> None:
        target = self[key]
        if isinstance(value, Tile) and value is not self:
            if value._result is None and value._same(target):
                return  # t[...] += x: done in place
            result = value._result
            if result is not None and sys.getrefcount(value) <= TEMPORARY:
                if result.nothing or target.take(value):
                    return
                if result.part is not None and value.shape == target.shape:
                    Tile.move(target.part(result.part), value.part(result.part))
                    return
        Tile.move(target, value)

    def _same(self, other: Tile) -> bool:
        if self._view is None or other._view is None or not (self.plain and other.plain):
            return self._view is other._view and self._declared is other._declared and self._at == other._at
        mine, its = self._view, other._view
        return mine.storage is its.storage and (mine.offset, mine.shape, mine.strides, mine.dtype) == (
            its.offset,
            its.shape,
            its.strides,
            its.dtype,
        )

    def take(self, value: Tile) -> bool:
        """Let the instruction of a result write this tile instead of a fresh one; False where it cannot."""
        result, source = value._result, value._view
        assert result is not None and source is not None
        dst = ROWS[result.row].operand("dst")
        if not self.plain or self.region.memory not in dst.memories or self.size != source.size:
            return False
        if not _keeps(source.dtype, self.kind) or (
            dst.dtypes is not None and self.kind.name not in dst.dtypes
        ):
            return False
        if result.row == "nc_transpose" and self.region is not source.buffer:
            return False  # the memory of dst decides which engine transposes
        if self.shape != source.shape:
            if result.part is not None:
                return False
            if tuple(size for size in self.shape if size != 1) != tuple(s for s in source.shape if s != 1):
                return False
        trace = source._trace
        declared = self._declared
        if self._view is None and declared is not None and self._at not in declared.tiles:
            same = source.buffer is declared.region and source.dtype == declared.dtype
            if same and declared.place is None and source.shape == declared.shape and result.part is None:
                # the tile does not exist yet: it is the result's own
                declared.tiles[self._at] = source
                value._result = None
                return True
        trace.builder.take_back(result.index, "dst")
        view = self.part(result.part).physical()
        trace.builder.retarget(result.index, "dst", view.access())
        written(view, result.row)
        value._view, value._result = view, None
        return True

    def astype(self, dtype: Any) -> Tile:
        """A copy in another dtype."""
        return Tile.apply("copy", self, dtype=dtype)

    def broadcast_to(self, shape: Any) -> Tile:
        """The tile with its dimensions of size 1 repeated."""
        return Tile.apply("broadcast_to", self, shape=shape)

    def expand_dims(self, axis: int) -> Tile:
        """A view with a new dimension of size 1."""
        return Tile.apply("expand_dims", self, axis)

    def reshape(self, *sizes: Any, shape: Any = None) -> Tile:
        """The same elements in another shape."""
        given: Any = sizes if shape is None else (shape,)
        wanted = given[0] if len(given) == 1 and isinstance(given[0], list | tuple) else given
        return self._derived(self.physical().reshape(tuple(int(size) for size in wanted)))

    def assert_shape(self, shape: Any) -> Tile:
        """The tile itself; Refusal where it has another shape."""
        if tuple(self.shape) != tuple(shape):
            raise Refusal(f"tensor {self._label()} has shape {self.shape}, expected {tuple(shape)}")
        return self

    def _binary(name: str, reverse: bool = False) -> Any:  # type: ignore[misc]  # noqa: N805
        def method(self: Tile, other: Any) -> Any:
            return Tile.apply(name, other, self) if reverse else Tile.apply(name, self, other)

        return method

    __add__, __radd__ = _binary("add"), _binary("add", reverse=True)
    __sub__, __rsub__ = _binary("subtract"), _binary("subtract", reverse=True)
    __mul__, __rmul__ = _binary("multiply"), _binary("multiply", reverse=True)
    __truediv__, __rtruediv__ = _binary("divide"), _binary("divide", reverse=True)
    __pow__, __rpow__ = _binary("power"), _binary("power", reverse=True)
    __and__, __rand__ = _binary("bitwise_and"), _binary("bitwise_and", reverse=True)
    __or__, __ror__ = _binary("bitwise_or"), _binary("bitwise_or", reverse=True)
    __xor__, __rxor__ = _binary("bitwise_xor"), _binary("bitwise_xor", reverse=True)
    __lshift__, __rshift__ = _binary("left_shift"), _binary("right_shift")
    __lt__, __le__ = _binary("less"), _binary("less_equal")
    __gt__, __ge__ = _binary("greater"), _binary("greater_equal")
    __eq__ = _binary("equal")
    __ne__ = _binary("not_equal")
    __hash__ = object.__hash__
    del _binary

    def __neg__(self) -> Tile:
        return Tile.apply("negative", self)

    def __invert__(self) -> Tile:
        return Tile.apply("invert", self)

    def __iadd__(self, other: Any) -> Tile:  # type: ignore[misc]
        Tile.accumulate(self, other)
        return self

    def _in_place(name: str) -> Any:  # type: ignore[misc]  # noqa: N805
        def method(self: Tile, other: Any) -> Tile:
            Tile.move(self, Tile.apply(name, self, other))
            return self

        return method

    __isub__, __imul__, __itruediv__ = _in_place("subtract"), _in_place("multiply"), _in_place("divide")
    del _in_place

    def __bool__(self) -> bool:
        trace = self.physical()._trace if self._view is not None else self._declared.trace  # type: ignore[union-attr]
        trace.event("truth", f"the truth of tensor {self._label()} was asked for and is True")
        return True

    def __len__(self) -> int:
        return self.shape[0]

    def __index__(self) -> NoReturn:
        self._no_value("an index")

    def __float__(self) -> NoReturn:
        self._no_value("float()")

    def __int__(self) -> NoReturn:
        self._no_value("int()")

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        self._no_value("a NumPy array")

    def _no_value(self, wanted: str) -> NoReturn:
        raise Refusal(
            f"tensor {self._label()} has no value while the kernel is traced, {wanted} of it cannot be taken"
        )

    def __repr__(self) -> str:
        return f"Tile({self.shape}, {self.kind}, {self.region.value}{', ' + self.name if self.name else ''})"

    def _label(self) -> str:
        return self.name or f"of shape {self.shape}"


def written(view: NkiTensor, row: str) -> None:
    """Note what a PSUM view holds from now on."""
    from nkireview.nki.legacy import calls

    calls.note(view, row)


def access_of(tile: Tile, bounds: Sequence[Bound] = (), oob: str = "error") -> int:
    """The interned access of a tile whose address is no plain affine map, or that has bounds; oob: see `Index`."""
    view = tile.physical()
    pattern = tuple(zip(view.strides, view.shape, strict=True))
    key: str | None = None
    base = view.offset
    if tile._table is not None:
        steps = np.zeros(view.shape, np.int64)
        for dim, (stride, size) in enumerate(pattern):
            lead = (1,) * (len(pattern) - dim - 1)
            steps = steps + (np.arange(size, dtype=np.int64) * stride).reshape(-1, *lead)
        key = view._trace.builder.constant(steps + tile._table + base)
        pattern, base = tuple((0, size) for size in view.shape), 0
    partition = 0 if view.on_chip else None
    index = None
    if tile._gather is not None:
        source, stride = tile._gather
        index = Index("vector", source.physical().access(), 0, stride, oob)
    return view._trace.builder.access(
        Access(view.storage.id, view.dtype.name, base, pattern, partition, tuple(bounds), index, key)
    )


def _reach(index: Symbol | int, part: Restriction | None, shape: tuple[int, ...]) -> tuple[int, int]:
    if isinstance(index, int):
        return index, index
    if part is None:
        return index.extent()
    if index.table is not None:
        kept = index.table[tuple(slice(start, stop) for start, stop in part.ranges)]
        return int(kept.min()), int(kept.max())
    low = high = index.base
    for (start, stop), step in zip(part.ranges, index.coefficients, strict=True):
        first, last = start * step, (stop - 1) * step
        low, high = low + min(first, last), high + max(first, last)
    return low, high


def _clipped(item: Any) -> Any:
    if isinstance(item, np.integer):
        return operator.index(item)
    return item


def _kind(item: Any) -> str:
    return "slice" if isinstance(item, slice) else "tile" if isinstance(item, Tile) else type(item).__name__


def _keeps(source: DType, target: DType) -> bool:
    """True where writing a result as `target` at once gives what rounding it to `source` first would, or is closer."""
    if source == target:
        return True
    a, b = table.BY_NAME[source.name], table.BY_NAME[target.name]
    return a.kind == b.kind == "float" and a.bits >= b.bits


def _temporary() -> int:
    """References to a value that only an assignment holds, as `__setitem__` counts them."""

    class Probe:
        found = 0

        def __setitem__(self, key: Any, value: Any) -> None:
            Probe.found = sys.getrefcount(value)

    Probe()[0] = object()
    return Probe.found


TEMPORARY = _temporary()
__all__ = ["Position", "Restriction", "Result", "Tile", "access_of", "slice_of"]

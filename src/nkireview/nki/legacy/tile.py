"""Tile: what a kernel of the legacy generation holds: a tensor, a block of it, an indexed view, or a result.

A result that nobody has read yet can still be moved: ``t[...] = nl.load(x)`` and ``psum += nisa.nc_matmul(a, b)`` are
one instruction each, as they are for the compiler.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, NoReturn

import numpy as np

from nkireview.isa import dtypes as table
from nkireview.isa.enums import Memory
from nkireview.isa.table import ROWS
from nkireview.nki.dtypes import DType
from nkireview.nki.dtypes import of as dtype_of
from nkireview.nki.errors import NotYetSupported, Refusal
from nkireview.nki.legacy import references
from nkireview.nki.legacy.declared import Declared
from nkireview.nki.legacy.layout import (
    Layout,
    Restriction,
    broadcast,
    changing,
    fitted,
    fitted_view,
    layout_of,
    partitions_first,
    reach_of,
)
from nkireview.nki.legacy.state import note
from nkireview.nki.legacy.symbols import Form, Ints, Mask, Symbol
from nkireview.nki.tensor import MemoryRegion, NkiTensor
from nkireview.nki.views import expand
from nkireview.program.access import Access, Bound, Index


@dataclass(frozen=True)
class Result:
    """The instruction that writes a tile nobody has read: its number, its row, and which part of the tile it writes.

    follows: operands that are the tile as well. widens: its dtype was left open, so that it may become any other.
    """

    index: int
    row: str
    part: Restriction | None = None
    follows: tuple[str, ...] = ()
    widens: bool = False

    @property
    def nothing(self) -> bool:
        """True where a mask left nothing to do: no instruction was recorded."""
        return self.index < 0


@dataclass(frozen=True, eq=False)
class Position:
    """One dimension of a tensor: its size, and the symbol or integer that indexes it."""

    size: int
    index: Symbol | int


class Tile:
    """A tensor of the legacy generation; operators are those of the hooks that `language` sets."""

    __slots__ = (
        "_at",
        "_bases",
        "_declared",
        "_fits",
        "_gather",
        "_layout",
        "_mask",
        "_positions",
        "_result",
        "_root",
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
        self._root: NkiTensor | None = None
        self._layout: Layout | None = None
        self._bases: tuple[int, ...] = ()
        self._fits = True
        self._positions: tuple[Position, ...] = ()
        self._table: Ints | None = None
        self._gather: tuple[Tile, int] | None = None
        self._mask: Mask | None = None
        self._result: Result | None = None
        self.parameter = ""

    # what it is

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the dimensions, block dimensions first."""
        if self._view is not None:
            return self._view.shape
        if self._layout is not None:
            return self._layout.shape
        assert self._declared is not None
        return self._declared.blocks[len(self._at) :] + self._declared.shape

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
        held = self._declared if self._root is None else self._root
        assert held is not None
        return held.dtype

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
        held = self._root if self._view is None else self._view
        if held is not None:
            return held.buffer
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
        return self._derived(self._affine("view").view(dtype_of(dtype, "view")))

    # where it is

    def physical(self) -> NkiTensor:
        """The view as an instruction takes it; Refusal where block dimensions are left."""
        self._result = None
        found = self._view
        if found is None:
            found = self._view = self._made()
        return found

    def _made(self) -> NkiTensor:
        layout, root = self._layout, self._root
        if root is None:
            declared = self._declared
            assert declared is not None
            left = declared.blocks[len(self._at) :]
            if left:
                sizes = ", ".join(map(str, left))
                raise Refusal(
                    f"tensor {self._label()} has block dimensions ({sizes}) left; an instruction takes one tile: "
                    "index them"
                )
            root = declared.tile(self._at)
        if layout is None:
            return root
        offset = root.offset
        for base, (_, stride, _) in zip(self._bases, layout.axes, strict=True):
            offset += base * stride
        return root._view(layout.shape, layout.strides, offset)

    def _affine(self, what: str) -> NkiTensor:
        """The view, where its address is known; NotYetSupported for indices that are not affine."""
        if not self.plain:
            raise NotYetSupported(f"{what} of a tensor indexed by an index tile, or by // or % of nl.arange")
        return self.physical()

    def __getitem__(self, key: Any) -> Tile:
        if not isinstance(key, tuple):
            if isinstance(key, Mask):
                return self._masked(key)
            key = (key,)
        if self._view is not None or self._layout is not None:
            return self._picked(key)
        declared = self._declared
        assert declared is not None
        blocks = len(declared.blocks) - len(self._at)
        if not blocks:
            return self._picked(key)
        block, rest = self._blocked(key, blocks)
        return block._picked(rest) if rest else block

    def _blocked(self, key: tuple[Any, ...], left: int) -> tuple[Tile, tuple[Any, ...]]:
        """The block that the leading indices name, and the other indices."""
        declared = self._declared
        assert declared is not None
        found = Tile(None, declared)
        at = list(self._at)
        if key[0] is Ellipsis:
            if len(key) == 1:
                found._at = self._at
                return found, ()
            raise Refusal(
                f"tensor {self._label()} has {left} more block dimensions than are indexed before its tile is"
            )
        for item in key[:left]:
            if item is Ellipsis:
                break
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
        rest = key[len(at) - len(self._at) :]
        missing = len(declared.blocks) - len(at)
        if missing and len(rest) > 1:
            raise Refusal(
                f"tensor {self._label()} has {missing} more block dimensions than are indexed before its tile is"
            )
        found._at = tuple(at)
        return found, () if missing else rest

    def _picked(self, key: tuple[Any, ...]) -> Tile:
        """What an index selects of a tile without block dimensions."""
        bases: list[int] = []
        forms: list[Form | None] = []
        affine = False
        for item in key:
            kind = type(item)
            if kind is Symbol and item.table is None:
                forms.append(item.form)
                bases.append(item.base)
                affine = True
            elif kind is int or (isinstance(item, int | np.integer) and not isinstance(item, bool)):
                forms.append(None)
                bases.append(int(item))
            else:
                break
        else:
            if affine and self._layout is None and self.plain:
                return self._laid(tuple(forms), bases)
        if any(isinstance(item, Symbol | Tile) for item in key):
            return self._advanced(list(key))
        return self._basic(key)

    def _laid(self, forms: tuple[Form | None, ...], bases: list[int]) -> Tile:
        """What affine expressions and integers, one for each dimension, select; carried out when it is used."""
        root = self._view
        if root is not None:
            shape, strides = root.shape, root.strides
        else:
            assert self._declared is not None
            shape, strides = self._declared.shape, self._declared.strides
        if len(forms) != len(shape):
            missing = self._missing(len(forms), shape)
            forms, bases = (*forms, *(None,) * missing), [*bases, *(0,) * missing]
        found = Tile(None, self._declared)
        found._layout = layout = layout_of(shape, strides, forms, self.on_chip)
        found._at, found._root, found.parameter = self._at, root, self.parameter
        for dim, (size, _, form) in enumerate(layout.axes):
            base = bases[dim]
            if form is None:
                if base < 0:
                    base = bases[dim] = base + size
                found._fits &= 0 <= base < size
            else:
                found._fits &= base + form.low >= 0 and base + form.high < size
        found._bases = tuple(bases)
        return found

    def _missing(self, given: int, shape: tuple[int, ...]) -> int:
        """How many trailing dimensions of size 1 the indices leave out; Refusal where they do not fit."""
        if given > len(shape) or any(size != 1 for size in shape[given:]):
            raise Refusal(f"{given} indices are given to the {len(shape)}-D tensor {self._label()}")
        return len(shape) - given

    def _basic(self, key: tuple[Any, ...]) -> Tile:
        """What slices and integers select."""
        shape = self.shape
        given = sum(item is not None and item is not Ellipsis for item in key)
        if given > len(shape):
            raise Refusal(f"{given} indices are given to the {len(shape)}-D tensor {self._label()}")
        if not any(item is None for item in key) and all(map(_entire, expand(key, len(shape)), shape)):
            return self._again()
        tensor = self.physical()
        if self._gather is not None:
            raise NotYetSupported("a part of a tensor that is indexed by an index tile")
        found = self._derived(tensor[key])
        if self._table is not None:
            items = tuple(int(item) if isinstance(item, np.integer) else item for item in key)
            found._table = self._table[items].reshape(found.shape)
        return found

    def _again(self) -> Tile:
        """The same tile, which is no result."""
        found = Tile(self._view, self._declared)
        found._at, found._root, found._layout, found._bases = self._at, self._root, self._layout, self._bases
        found._positions, found._table, found._gather = self._positions, self._table, self._gather
        found._mask, found._fits, found.parameter = self._mask, self._fits, self.parameter
        if self._view is not None:
            self._result = None
        return found

    def _advanced(self, items: list[Any]) -> Tile:
        """Indices that are index expressions, integers and index tiles: one element for each of their positions."""
        if not self.plain:
            raise NotYetSupported(
                "an index of a tensor that is indexed by an index tile, or by // or % of nl.arange"
            )
        tensor = self.physical()
        spare = len(items) - tensor.ndim
        items = [item for item in items if item is not Ellipsis or spare != 1]
        if any(isinstance(item, slice) or item is None or item is Ellipsis for item in items):
            raise Refusal(
                f"tensor {self._label()} is indexed by slices and by index expressions at once; use one kind: "
                "slices and nl.ds, or nl.arange and nl.mgrid for each dimension"
            )
        items = [*items, *[0] * self._missing(len(items), tensor.shape)]
        for dim, item in enumerate(items):
            if not isinstance(item, Symbol | Tile | int | np.integer) or isinstance(item, bool):
                raise Refusal(f"index of dimension {dim} is a {_kind(item)}, expected an integer")
        forms = tuple(item.form for item in items if isinstance(item, Symbol))
        shapes = [item.shape for item in items if isinstance(item, Symbol | Tile)]
        shape = broadcast(forms, shapes)
        tables = np.zeros((1,) * len(shape), np.int64)
        strides, offset = [0] * len(shape), tensor.offset
        positions: list[Position] = []
        gather: tuple[Tile, int] | None = None
        for dim, (item, size, stride) in enumerate(zip(items, tensor.shape, tensor.strides, strict=True)):
            if isinstance(item, Tile):
                if gather is not None:
                    raise NotYetSupported("a tensor indexed by two index tiles")
                gather = item, stride
                continue
            if not isinstance(item, Symbol):
                number = int(item) + size if item < 0 else int(item)
                positions.append(Position(size, number))
                offset += number * stride
                continue
            symbol = item.expanded(shape)
            positions.append(Position(size, symbol))
            if symbol.table is not None:
                if tensor.on_chip:
                    partitions_first(dim, symbol.table.shape, changing(symbol.table))
                tables = tables + symbol.table * stride
                continue
            if tensor.on_chip:
                partitions_first(dim, shape, symbol.coefficients)
            offset += symbol.base * stride
            strides = [old + step * stride for old, step in zip(strides, symbol.coefficients, strict=True)]
        found = self._derived(tensor._view(shape, tuple(strides), offset))
        found._positions, found._gather, found._fits = tuple(positions), gather, False
        if any(isinstance(item, Symbol) and item.table is not None for item in items):
            found._table = np.broadcast_to(tables, shape)
        return found

    def _masked(self, mask: Mask) -> Tile:
        """``tile[mask]``: an operand of a matmul with a mask of its own."""
        found = self._again()
        found._mask = mask
        return found

    def _derived(self, view: NkiTensor) -> Tile:
        found = Tile(view)
        found.parameter = self.name
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
        if self._fits:
            return
        if self._layout is not None:
            for dim, (base, (size, _, form)) in enumerate(zip(self._bases, self._layout.axes, strict=True)):
                low, high = reach_of(base if form is None else Symbol(form, base), part, self.shape)
                if low < 0 or high >= size:
                    self._overrun(dim, size, low, high)
        for dim, position in enumerate(self._positions):
            low, high = reach_of(position.index, part, self.shape)
            if low < 0 or high >= position.size:
                self._overrun(dim, position.size, low, high)

    def _overrun(self, dim: int, size: int, low: int, high: int) -> None:
        text = f"{low}" if low == high else f"{low}:{high + 1}"
        self.physical()._trace.event(
            "overrun",
            f"index {text} of dimension {dim} (size {size}) of tensor {self._label()} runs into other elements of its "
            "memory",
        )

    def part(self, part: Restriction | None) -> Tile:
        """The part of the tile that a restriction leaves, without its inequalities."""
        self.checked(part)
        if part is None:
            return self
        view = self.physical()
        offset = view.offset + sum(
            start * stride for (start, _), stride in zip(part.ranges, view.strides, strict=True)
        )
        shape = tuple(stop - start for start, stop in part.ranges)
        found = self._derived(view._view(shape, view.strides, offset))
        if self._table is not None:
            found._table = self._table[part.box]
        if self._gather is not None:
            tile, stride = self._gather
            kept = (part.ranges[0], *((0, size) for size in tile.shape[1:]))
            found._gather = tile if tile.size == 1 else tile.part(Restriction(kept)), stride
        return found

    def operand(self, part: Restriction | None = None, oob: str = "error") -> NkiTensor:
        """The tile, or what a mask leaves of it, as an instruction takes it; oob: what an index out of bounds does."""
        left = self.part(part)
        view = left.physical()
        bounds: tuple[Bound, ...] = ()
        if part is not None and part.bounds:
            starts = [start for start, _ in part.ranges]
            bounds = tuple(
                Bound(steps, constant + sum(step * start for step, start in zip(steps, starts, strict=True)))
                for steps, constant in part.bounds
            )
        elif left.plain:
            return view
        same = view._view(view.shape, view.strides, view.offset)
        same._access = access_of(left, bounds, oob)
        return same

    # what is done with it

    def __setitem__(self, key: Any, value: Any) -> None:
        target = self[key]
        if isinstance(value, Tile) and value is not self:
            count = sys.getrefcount(value)
            if value._result is None:
                if value._same(target):
                    return  # t[...] += x: done in place
            elif count > references.STORED or (
                references.BORROWED and references.named(value, sys._getframe(1))
            ):
                value._result = None
        target._assign(value)

    def _assign(self, value: Any) -> None:
        """``self[...] = value``: by the instruction of the value itself where nobody else holds it."""
        result = value._result if isinstance(value, Tile) else None
        if result is None:
            Tile.move(self, value)
        elif not (result.nothing or self.take(value)):
            if result.part is None:
                Tile.move(self, value)
            else:
                self._copied(value, result.part)

    def _copied(self, value: Tile, part: Restriction) -> None:
        """Copy the part of a result that a mask left."""
        mine = fitted(part, value.shape, self.shape)
        if mine is None or (part.bounds and value.shape != self.shape):
            raise NotYetSupported(
                f"a result of shape {value.shape} with a mask, assigned to a tensor of shape {self.shape}"
            )
        source = self._derived(value.operand(part))
        target = self._derived(self.operand(mine))
        source.parameter = value.parameter
        Tile.move(target, source)

    def _same(self, other: Tile) -> bool:
        """True for two views of the same elements."""
        if self._gather is not None or other._gather is not None or (self.plain != other.plain):
            return False
        if self.region is not other.region or self.shape != other.shape or self.kind != other.kind:
            return False
        mine, its = self.physical(), other.physical()
        if mine.storage is not its.storage or mine.offset != its.offset or mine.strides != its.strides:
            return False
        return self.plain or np.array_equal(self._table, other._table)  # type: ignore[arg-type]

    def take(self, value: Tile) -> bool:
        """Let the instruction of a result, the last one, write this tile instead of a fresh one.

        False where it cannot.
        """
        result, source = value._result, value._view
        assert result is not None and source is not None
        trace = source._trace
        if result.index != len(trace.builder) - 1:
            return False  # what was recorded since may read what is here
        memories, dtypes = _written_by(result.row)
        region, kind = self.region, self.kind
        if self._table is not None or self._gather is not None or region.memory not in memories:
            return False
        if kind is not source.dtype and not (result.widens or _keeps(source.dtype, kind)):
            return False
        if dtypes is not None and kind.name not in dtypes:
            return False
        if region is not source.buffer and (result.row == "nc_transpose" or result.follows):
            return False  # the memory of dst decides which engine transposes, and what else may be in PSUM
        part = result.part
        shape = self.shape
        if shape != source.shape:
            if part is not None:
                part = fitted(part, source.shape, shape)
                if part is None:
                    return False
            if tuple(size for size in shape if size != 1) != tuple(
                size for size in source.shape if size != 1
            ):
                return False
        declared = self._declared
        if self._view is None and self._root is None and declared is not None and part is None:
            if self._at not in declared.tiles and self._entire and not result.follows:
                if declared.adopts(source):
                    declared.adopt(self._at, source)
                    value._result = None
                    return True
        if not result.follows:
            trace.builder.take_back(result.index, "dst")
            trace.results.discard(source.storage.id)
        view = self.operand(part)
        for name in ("dst", *result.follows):
            trace.builder.retarget(result.index, name, view.access())
        if region is MemoryRegion.psum:
            note(view, result.row)
        value._view, value._result = view, None
        value.moved(self)
        return True

    def moved(self, target: Tile) -> None:
        """Called where the instruction of this result writes another tile instead."""

    @property
    def _entire(self) -> bool:
        """True for all of a declared tile, in its own order."""
        return self._layout is None or (self._layout.whole and not any(self._bases))

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
        return self._derived(self._affine("reshape").reshape(tuple(int(size) for size in wanted)))

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
    __lshift__, __rlshift__ = _binary("left_shift"), _binary("left_shift", reverse=True)
    __rshift__, __rrshift__ = _binary("right_shift"), _binary("right_shift", reverse=True)
    __mod__, __rmod__ = _binary("mod"), _binary("mod", reverse=True)
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
        if isinstance(other, Tile):
            count = sys.getrefcount(other)
            if count > references.ADDED or (
                references.BORROWED and references.named(other, sys._getframe(1))
            ):
                other._result = None
        Tile.accumulate(self, other)
        return self

    def _in_place(name: str) -> Any:  # type: ignore[misc]  # noqa: N805
        def method(self: Tile, other: Any) -> Tile:
            self._assign(Tile.apply(name, self, other))
            return self

        return method

    __isub__, __imul__, __itruediv__ = _in_place("subtract"), _in_place("multiply"), _in_place("divide")
    __iand__, __ior__, __ixor__ = _in_place("bitwise_and"), _in_place("bitwise_or"), _in_place("bitwise_xor")
    __ilshift__, __irshift__ = _in_place("left_shift"), _in_place("right_shift")
    __ipow__, __imod__ = _in_place("power"), _in_place("mod")
    del _in_place

    def __bool__(self) -> bool:
        held = self._root if self._view is None else self._view
        trace = held._trace if held is not None else self._declared.trace  # type: ignore[union-attr]
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
        # one index moves all of a view; of several, each is that of a row
        alone = source.size == 1 and (view.on_chip or view.shape[0] > 1)
        index = Index("scalar" if alone else "vector", source.physical().access(), 0, stride, oob)
    return view._trace.builder.access(
        Access(view.storage.id, view.dtype.name, base, pattern, partition, tuple(bounds), index, key)
    )


@cache
def _written_by(row: str) -> tuple[tuple[Memory, ...], tuple[str, ...] | None]:
    """The memories and the dtypes of what an instruction writes."""
    dst = ROWS[row].operand("dst")
    return tuple(dst.memories), None if dst.dtypes is None else tuple(dst.dtypes)


def _entire(item: Any, size: int) -> bool:
    """True for what selects all of a dimension."""
    return type(item) is slice and item.indices(size) == (0, size, 1) and (item.stop or size) <= size


def _kind(item: Any) -> str:
    return "slice" if isinstance(item, slice) else "tile" if isinstance(item, Tile) else type(item).__name__


def _keeps(source: DType, target: DType) -> bool:
    """True where writing a result as `target` at once gives what rounding it to `source` first would, or is closer."""
    if source == target:
        return True
    a, b = table.BY_NAME[source.name], table.BY_NAME[target.name]
    if a.kind != "float" or b.kind != "float" or a.min_exponent is None or b.min_exponent is None:
        return False
    return (
        a.significand_bits >= b.significand_bits
        and a.min_exponent <= b.min_exponent
        and a.max_finite >= b.max_finite
    )


__all__ = ["Position", "Restriction", "Result", "Tile", "access_of", "fitted", "fitted_view"]

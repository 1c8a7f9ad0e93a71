"""NkiTensor: storage and a strided view of it. Views record what was written and never clamp."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any, ClassVar, NoReturn, TypeVar

import numpy as np

from nkireview.isa.enums import Memory
from nkireview.isa.release import Release
from nkireview.nki.dtypes import DType, of
from nkireview.nki.errors import Refusal
from nkireview.nki.registers import VirtualRegister
from nkireview.nki.trace import Trace, current
from nkireview.nki.views import (
    DynamicSlice,
    Pointer,
    Rearrangement,
    dense,
    expand,
    fill,
    integer,
    merged,
    restride,
    row_major,
    span,
)
from nkireview.program.access import Access, Index
from nkireview.program.model import Buffer

F = TypeVar("F", bound=Callable[..., Any])
VIEWS_SINCE = Release(0, 5)
INHERIT_SINCE = Release(0, 5)  # release notes 0.5: the default of ap's offset became None
POINTERS_SINCE = Release(0, 4)  # release notes 0.4: an induction variable became usable as scalar_offset


class MemoryRegion(Enum):
    """Memory regions of the language; ``nl.hbm`` is an alias of private_hbm."""

    sbuf = "sbuf"
    psum = "psum"
    private_hbm = "private_hbm"
    shared_hbm = "shared_hbm"

    @property
    def memory(self) -> Memory:
        """The memory of the instruction table."""
        return Memory.hbm if self is MemoryRegion.private_hbm else Memory(self.value)


def _since(release: Release) -> Callable[[F], F]:
    """Refuse a method in releases that do not have it yet."""

    def wrap(method: F) -> F:
        @functools.wraps(method)
        def guarded(self: NkiTensor, *args: Any, **kwargs: Any) -> Any:
            if self._trace.release < release:
                raise Refusal(
                    f"NkiTensor.{method.__name__} exists since NKI {release}, "
                    f"this kernel is judged by {self._trace.release}"
                )
            return method(self, *args, **kwargs)

        return guarded  # type: ignore[return-value]

    return wrap


_SBUF, _PSUM = Memory.sbuf, Memory.psum
REGION_OF = {region.memory: region for region in MemoryRegion}


class NkiTensor:
    """A tensor of a kernel: shape, strides, offset and dtype of a view, known while tracing; values are not.

    Strides and offset are in elements of `dtype`. On chip, dim 0 is the partition dimension and the result of any
    view stays at least 2-D.
    """

    __slots__ = ("_access", "_buffer", "_dtype", "_offset", "_pointer", "_shape", "_strides", "_trace")
    __array_priority__ = 1000

    assign: ClassVar[Callable[[NkiTensor, Any], None] | None] = None
    """What carries out ``view[...] = value``: records the instructions that write a value to a view."""

    _trace: Trace
    _buffer: Buffer
    _shape: tuple[int, ...]
    _strides: tuple[int, ...]
    _offset: int
    _dtype: DType
    _pointer: Pointer | None
    _access: int

    def __init__(
        self, shape: Any, dtype: Any, storage: Any, buffer: Any = MemoryRegion.sbuf, name: str = ""
    ) -> None:
        """Bind a shape and a dtype to the storage of another tensor, its `storage`, from its first element on.

        `buffer` and `name` are those of the storage.
        """
        if not isinstance(storage, Buffer):
            raise Refusal(
                f"NkiTensor: storage must be the storage of a tensor, got {type(storage).__name__}; nl.ndarray "
                "makes a tensor with fresh storage"
            )
        sizes = tuple(integer(size, "NkiTensor shape") for size in shape)
        self._trace, self._buffer = current("NkiTensor"), storage
        self._shape, self._strides, self._offset = sizes, row_major(sizes), 0
        self._dtype, self._pointer, self._access = of(dtype, "NkiTensor"), None, -1

    @classmethod
    def whole(cls, trace: Trace, buffer: Buffer) -> NkiTensor:
        """The contiguous view of a whole buffer."""
        shape = buffer.shape
        return _made(trace, buffer, shape, row_major(shape), 0, of(buffer.dtype, "tensor"), None)

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the dimensions."""
        return self._shape

    @property
    def strides(self) -> tuple[int, ...]:
        """Strides in elements."""
        return self._strides

    @property
    def offset(self) -> int:
        """Offset in elements from the start of the storage."""
        return self._offset

    @property
    def dtype(self) -> DType:
        """The dtype of the view."""
        return self._dtype

    @property
    def buffer(self) -> MemoryRegion:
        """Where the tensor lives."""
        return REGION_OF[self._buffer.memory]

    @property
    def name(self) -> str:
        """The debug name."""
        return self._buffer.name

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self._shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self._shape)

    @property
    def itemsize(self) -> int:
        """Bytes an element."""
        return self._dtype.itemsize

    @property
    def storage(self) -> Buffer:
        """The buffer under the view."""
        return self._buffer

    @property
    def on_chip(self) -> bool:
        """True in SBUF and PSUM."""
        memory = self._buffer.memory
        return memory is _SBUF or memory is _PSUM

    def access(self) -> int:
        """The interned access of this view; a dynamic one is out of bounds with an error."""
        if self._access < 0:
            if self._pointer is not None:
                self._access = self.dynamic("error", 0)
                return self._access
            memory = self._buffer.memory
            self._access = self._trace.builder.affine(
                self._buffer.id,
                self._dtype.name,
                self._offset,
                self._strides,
                self._shape,
                0 if memory is _SBUF or memory is _PSUM else None,
            )
        return self._access

    def dynamic(self, oob: str, group: int) -> int:
        """The interned access of an indirect view, as an instruction takes it.

        oob: ``error`` or ``skip``; group: offsets in a column of an index tile, for a view made by `indirect`.
        """
        pointer = self._pointer
        assert pointer is not None
        index = replace(
            pointer.index,
            oob=oob,
            group=group if pointer.index.kind == "snake" else 0,
            limit=None if pointer.sliced and oob == "skip" else pointer.index.limit,
        )
        pattern = tuple(zip(self._strides, self._shape, strict=True))
        partition = 0 if self.on_chip else None
        return self._trace.builder.access(
            Access(self._buffer.id, self._dtype.name, self._offset, pattern, partition, index=index)
        )

    @_since(VIEWS_SINCE)
    def is_contiguous(self) -> bool:
        """True where the view is dense and row-major; the partition dimension is not looked at."""
        first = 1 if self.on_chip else 0
        return dense(self._shape[first:], self._strides[first:])

    @_since(VIEWS_SINCE)
    def is_indirect(self) -> bool:
        """True where part of the address is only known on the device."""
        return self._pointer is not None

    def get_pattern(self) -> list[list[int]]:
        """The layout as a list of [stride, count], as `ap` takes it."""
        return [list(pair) for pair in zip(self._strides, self._shape, strict=True)]

    def __getitem__(self, key: Any) -> NkiTensor:
        items: Sequence[Any] = key if isinstance(key, tuple) else (key,)
        shape, strides = self._shape, self._strides
        if len(items) != len(shape) or not all(type(item) is slice for item in items):
            return self._picked(expand(tuple(items), len(shape)))
        if self._pointer is not None:
            return self._picked(list(items))
        counts: list[int] = []
        steps: list[int] = []
        offset, past = self._offset, ""
        for dim, item in enumerate(items):
            size, stride = shape[dim], strides[dim]
            begin, end, step = item.start, item.stop, item.step
            if step is None and type(begin) is int and type(end) is int and 0 <= begin < end <= size:
                offset += begin * stride
                counts.append(end - begin)
                steps.append(stride)
            elif begin is None and end is None and step is None:
                counts.append(size)
                steps.append(stride)
            else:
                start, count, step = span(item, size, dim)
                past = past or _past(start, start + (count - 1) * step, size, dim)
                offset += start * stride
                counts.append(count)
                steps.append(stride * step)
        if past:
            self._overrun(past, counts, steps, offset)
        return _made(self._trace, self._buffer, tuple(counts), tuple(steps), offset, self._dtype, None)

    def _picked(self, items: Sequence[Any]) -> NkiTensor:
        """The view that an index selects, given one item for each dimension, and None for a new one."""
        shape: list[int] = []
        strides: list[int] = []
        kept: list[tuple[int, int, int]] = []  # position, size 1 and stride of dropped dimensions
        offset, dim, pointer = self._offset, 0, self._pointer
        moved, past = -1, ""
        for item in items:
            if item is None:
                if dim == 0 and self.on_chip:
                    raise Refusal("an on-chip tensor takes no new axis before its partition dimension")
                if dim == 0 and self._first_fixed:
                    raise Refusal("an indirect tensor takes no new axis before its indexed dimension")
                shape.append(1)
                strides.append(0)
                continue
            size, stride = self._shape[dim], self._strides[dim]
            if pointer is self._pointer and pointer is not None and dim == pointer.dim:
                self._whole(item, size, dim)
                moved = len(shape)
            if isinstance(item, slice):
                start, count, step = span(item, size, dim)
                past = past or _past(start, start + (count - 1) * step, size, dim)
                offset += start * stride
                shape.append(count)
                strides.append(stride * step)
            elif isinstance(item, DynamicSlice):
                pointer = self._pointed(item.start, dim, "index", size - item.size + 1, at=len(shape))
                shape.append(item.size)
                strides.append(stride)
            else:
                if type(item) is VirtualRegister:
                    pointer = self._pointed(item, dim, "index", size)
                elif isinstance(item, NkiTensor):
                    raise Refusal(
                        f"a tensor as index of dimension {dim} is not possible; use select, vector_select or "
                        "ap(scalar_offset=)"
                    )
                else:
                    index = integer(item, f"index of dimension {dim}")
                    index = index + size if index < 0 else index
                    past = past or _past(index, index, size, dim)
                    offset += index * stride
                if self.on_chip and dim == 0:
                    shape.append(1)
                    strides.append(stride)
                else:
                    kept.append((len(shape), 1, stride))
            dim += 1
        if self.on_chip and len(shape) < 2 and kept:
            at, size, stride = kept[-1]
            shape.insert(at, size)
            strides.insert(at, stride)
        if past:
            self._overrun(past, shape, strides, offset)
        if pointer is not None and pointer is self._pointer:
            pointer = replace(pointer, dim=moved)
        return self._view(tuple(shape), tuple(strides), offset, pointer=pointer)

    def _whole(self, item: Any, size: int, dim: int) -> None:
        """Refuse to take a part of the dimension that an indirect view is indexed along."""
        if not (isinstance(item, slice) and span(item, size, dim) == (0, size, 1)):
            raise Refusal(
                f"dimension {dim} of the indirect tensor {self._label()} is indexed on the device and cannot be "
                "sliced or selected again"
            )

    def _pointed(
        self, source: Any, dim: int, what: str, limit: int | None, *, at: int = -1, stride: int | None = None
    ) -> Pointer:
        """The pointer of one device-side index along a dimension; `at` is where a slice leaves the dimension."""
        if self._pointer is not None:
            raise Refusal(
                f"tensor {self._label()} is indirect already (is_indirect()), it takes one device-side index only"
            )
        step = self._strides[dim] if stride is None else stride
        if type(source) is VirtualRegister:
            if source.plain:
                raise Refusal(
                    f"{what}: the induction variable of nl.dynamic_range is a plain scalar until NKI "
                    f"{POINTERS_SINCE} and cannot address a tensor; count in a (1, 1) tile and pass that"
                )
            kind, number = "register", source.number
        elif isinstance(source, NkiTensor):
            kind, number = "scalar", self._index_tile(source, what)
        else:
            raise Refusal(f"{what} must be a register or a (1, 1) tile, got {type(source).__name__}")
        if self.on_chip and dim == 0 and stride is None:
            raise Refusal(
                f"{what} of the partition dimension of an on-chip tensor must be an integer known while tracing"
            )
        return Pointer(Index(kind, number, 0, step, limit=limit), at, sliced=at >= 0)

    def _index_tile(self, source: NkiTensor, what: str) -> int:
        if source._pointer is not None:
            raise Refusal(f"{what}: the index tile {source._label()} is itself an indirect view")
        return source.access()

    @property
    def _first_fixed(self) -> bool:
        """True where dimension 0 must stay first and whole: each position of it has an index of its own."""
        return self._pointer is not None and self._pointer.first

    @property
    def _first(self) -> str:
        return (
            "the partition dimension of an on-chip tensor"
            if self.on_chip
            else "the indexed dimension of an indirect tensor"
        )

    def _overrun(self, past: str, shape: Sequence[int], strides: Sequence[int], offset: int) -> None:
        if self._pointer is None and self._holds(shape, strides, offset):
            self._trace.event(
                "overrun", f"index {past} of tensor {self._label()} runs into other elements of its memory"
            )

    def _holds(self, shape: Sequence[int], strides: Sequence[int], offset: int) -> bool:
        """True where elements lie inside the buffer, or on chip its row, so that `verify` cannot see that they are not
        those meant."""
        axes = list(zip(strides, shape, strict=True))
        inner = self._buffer.shape[1:] if self.on_chip else self._buffer.shape
        size = math.prod(inner) * of(self._buffer.dtype, "tensor").itemsize // self._dtype.itemsize
        if self.on_chip:
            axes, offset = axes[1:], offset % size if size else 0
        reach = [stride * (count - 1) for stride, count in axes]
        return (
            offset + sum(min(step, 0) for step in reach) >= 0
            and offset + sum(max(s, 0) for s in reach) < size
        )

    def __setitem__(self, key: Any, value: Any) -> None:
        assign = NkiTensor.assign
        if assign is None:
            raise Refusal("a tensor view takes no assignment; use nisa.tensor_copy or nisa.dma_copy")
        assign(self[key], value)

    @_since(VIEWS_SINCE)
    def slice(self, dim: int, start: int, end: int, step: int = 1) -> NkiTensor:
        """The elements start, start+step, ... below end of one dimension."""
        at = self._dim(dim)
        begin, stop = integer(start, "slice start"), integer(end, "slice end")
        if begin < 0 or stop <= begin:
            raise Refusal(f"slice({dim}, {start}, {end}) needs 0 <= start < end")
        key = [slice(None)] * self.ndim
        key[at] = slice(begin, stop, integer(step, "slice step"))
        return self[tuple(key)]

    @_since(VIEWS_SINCE)
    def select(self, dim: int, index: Any) -> NkiTensor:
        """The view without a dimension, at an index of it: an integer, a register or a (1, 1) tile."""
        at = self._dim(dim)
        if type(index) is not VirtualRegister and not isinstance(index, NkiTensor):
            key: list[Any] = [slice(None)] * self.ndim
            key[at] = integer(index, "select")
            return self[tuple(key)]
        pointer = self._pointed(index, at, "select", self._shape[at])
        if self.on_chip and self.ndim == 2:
            return self._view(
                (self._shape[0], 1), (self._strides[0], self._strides[1]), self._offset, pointer=pointer
            )
        return self._view(
            _without(self._shape, at), _without(self._strides, at), self._offset, pointer=pointer
        )

    @_since(VIEWS_SINCE)
    def vector_select(self, dim: int, vector_offset: Any) -> NkiTensor:
        """The view of an HBM tensor whose position k of dimension 0 is at index k of an (n, 1) tile."""
        if self._dim(dim) != 0:
            raise Refusal(f"vector_select({dim}) is not possible, the dimension must be 0")
        if self.on_chip:
            raise Refusal(f"vector_select needs a tensor in HBM, {self._label()} is in {self.buffer.value}")
        if not isinstance(vector_offset, NkiTensor):
            raise Refusal(f"vector_select: vector_offset must be a tile, got {type(vector_offset).__name__}")
        pointer = self._vector(vector_offset, self._strides[0], "vector_select", self._shape[0])
        shape = (vector_offset.shape[0], *self._shape[1:])
        return self._view(shape, self._strides, self._offset, pointer=pointer)

    def _vector(self, source: NkiTensor, stride: int, what: str, limit: int | None) -> Pointer:
        if self._pointer is not None:
            raise Refusal(
                f"tensor {self._label()} is indirect already (is_indirect()), it takes one device-side index only"
            )
        return Pointer(Index("vector", self._index_tile(source, what), 0, stride, limit=limit), 0)

    @_since(VIEWS_SINCE)
    def indirect(self, index: Any, num_elem: int | None = None) -> NkiTensor:
        """The view (P, num_elem) whose elements lie at offsets of the free dimensions given by an index tile (v4).

        `num_elem` is the size of the index tile unless it is given.
        """
        if not isinstance(index, NkiTensor):
            raise Refusal(f"indirect: index must be a tile, got {type(index).__name__}")
        if not self.on_chip:
            raise Refusal(
                f"indirect needs a tensor in SBUF or PSUM, {self._label()} is in {self.buffer.value}"
            )
        if self._pointer is not None:
            raise Refusal(
                f"tensor {self._label()} is indirect already (is_indirect()), it takes one device-side index only"
            )
        stride = merged(self._shape[1:], self._strides[1:])
        if stride is None:
            raise Refusal(f"indirect needs contiguous free dimensions, the strides are {self._strides[1:]}")
        count = index.size if num_elem is None else integer(num_elem, "num_elem")
        if count < 1:
            raise Refusal(f"indirect: num_elem is {count}, expected at least 1")
        limit = math.prod(self._shape[1:])
        found = Index("snake", self._index_tile(index, "indirect"), 1, stride, limit=limit)
        shape, strides = (self._shape[0], count), (self._strides[0], stride)
        return self._view(shape, strides, self._offset, pointer=Pointer(found, 1))

    @_since(VIEWS_SINCE)
    def permute(self, dims: Sequence[int]) -> NkiTensor:
        """The dimensions in another order; on chip the partition dimension stays first."""
        order = tuple(self._dim(dim) for dim in dims)
        if sorted(order) != list(range(self.ndim)):
            raise Refusal(f"permute{tuple(dims)} is no permutation of the {self.ndim} dimensions")
        if order[0] != 0 and self.on_chip:
            raise Refusal(f"permute{tuple(dims)} moves the partition dimension of an on-chip tensor")
        if order[0] != 0 and self._first_fixed:
            raise Refusal(f"permute{tuple(dims)} moves the indexed dimension of an indirect tensor")
        return self._view(
            tuple(self._shape[dim] for dim in order),
            tuple(self._strides[dim] for dim in order),
            self._offset,
            pointer=self._led(order.index),
        )

    @_since(VIEWS_SINCE)
    def broadcast(self, dim: int, size: int) -> NkiTensor:
        """A dimension of size 1 repeated with stride 0; not the partition dimension."""
        dim = self._free_dim(dim, "broadcast")
        if self._shape[dim] != 1:
            raise Refusal(f"broadcast of dimension {dim} needs size 1, it has {self._shape[dim]}")
        count = integer(size, "broadcast size")
        if count < 1:
            raise Refusal(f"broadcast size is {count}, expected at least 1")
        shape, strides = list(self._shape), list(self._strides)
        shape[dim], strides[dim] = count, 0
        return self._view(tuple(shape), tuple(strides), self._offset, pointer=self._led(_same))

    @_since(VIEWS_SINCE)
    def expand_dim(self, dim: int) -> NkiTensor:
        """A new dimension of size 1 at `dim`; not before the partition dimension."""
        at = dim + self.ndim + 1 if dim < 0 else dim
        if not 0 <= at <= self.ndim or (at == 0 and (self.on_chip or self._first_fixed)):
            what = "an indirect" if self._first_fixed else f"a {self.ndim}-D"
            raise Refusal(f"expand_dim({dim}) is not possible on {what} tensor in {self.buffer.value}")
        stride = self._strides[at] * self._shape[at] if at < self.ndim else 1
        shape = (*self._shape[:at], 1, *self._shape[at:])
        strides = (*self._strides[:at], stride, *self._strides[at:])
        return self._view(
            shape, strides, self._offset, pointer=self._led(lambda held: held + 1 if held >= at else held)
        )

    @_since(VIEWS_SINCE)
    def squeeze_dim(self, dim: int) -> NkiTensor:
        """The view without a dimension of size 1; not the partition dimension."""
        at = self._free_dim(dim, "squeeze_dim")
        if self._shape[at] != 1:
            raise Refusal(f"squeeze_dim({dim}) needs size 1, it has {self._shape[at]}")
        return self._view(
            _without(self._shape, at),
            _without(self._strides, at),
            self._offset,
            pointer=self._led(lambda held: -1 if held == at else held - 1 if held > at else held),
        )

    @_since(VIEWS_SINCE)
    def reshape_dim(self, dim: int, shape: Sequence[int]) -> NkiTensor:
        """One dimension split into several; one of them may be -1."""
        at = self._dim(dim)
        sizes = fill(tuple(integer(size, "reshape_dim") for size in shape), self._shape[at], "reshape_dim")
        if len(sizes) > 1:
            self._free_dim(dim, "reshape_dim")
        inner = tuple(stride * self._strides[at] for stride in row_major(sizes))
        more = len(sizes) - 1
        return self._view(
            self._shape[:at] + sizes + self._shape[at + 1 :],
            self._strides[:at] + inner + self._strides[at + 1 :],
            self._offset,
            pointer=self._led(lambda held: held + more if held > at else -1 if held == at and more else held),
        )

    @_since(VIEWS_SINCE)
    def flatten_dims(self, start_dim: int, end_dim: int) -> NkiTensor:
        """The dimensions start_dim..end_dim (inclusive) as one; they must be contiguous."""
        start, end = self._free_dim(start_dim, "flatten_dims"), self._dim(end_dim)
        if end < start:
            raise Refusal(f"flatten_dims({start_dim}, {end_dim}) is an empty range")
        stride = merged(self._shape[start : end + 1], self._strides[start : end + 1])
        if stride is None:
            raise Refusal(f"flatten_dims({start_dim}, {end_dim}) needs contiguous dimensions")
        size, less = math.prod(self._shape[start : end + 1]), end - start
        return self._view(
            (*self._shape[:start], size, *self._shape[end + 1 :]),
            (*self._strides[:start], stride, *self._strides[end + 1 :]),
            self._offset,
            pointer=self._led(
                lambda held: held - less if held > end else -1 if held >= start and less else held
            ),
        )

    def reshape(self, shape: Any = None, *sizes: int, new_shape: Any = None) -> NkiTensor:
        """The same elements in another shape; on chip the partition dimension stays."""
        wanted = new_shape if shape is None else shape
        if wanted is None:
            raise Refusal("reshape needs a shape")
        flat = (wanted, *sizes) if isinstance(wanted, int | np.integer) else tuple(wanted)
        target = fill(tuple(integer(size, "reshape") for size in flat), self.size, "reshape")
        if self.on_chip or self._first_fixed:
            if target[0] != self._shape[0]:
                what = "partition dimension" if self.on_chip else "indexed dimension"
                tensor = "an on-chip tensor" if self.on_chip else "an indirect tensor"
                raise Refusal(f"reshape{target} changes the {what} {self._shape[0]} of {tensor}")
            free = restride(self._shape[1:], self._strides[1:], target[1:])
            strides = None if free is None else (self._strides[0], *free)
        else:
            strides = restride(self._shape, self._strides, target)
        if strides is None:
            raise Refusal(f"reshape{target} of a view of shape {self._shape} needs contiguous dimensions")
        return self._view(
            target,
            strides,
            self._offset,
            pointer=self._led(lambda held: held if target[: held + 1] == self._shape[: held + 1] else -1),
        )

    @_since(VIEWS_SINCE)
    def rearrange(self, src_pattern: Any, dst_pattern: Any, fixed_sizes: Any = None) -> NkiTensor:
        """Dimensions split, reordered and merged by name, as in ``rearrange(('b', ('h', 'w')), ('b', 'w', 'h'))``.

        `fixed_sizes` gives sizes by name; one name of a group may be left open.
        """
        plan = Rearrangement.of(src_pattern, dst_pattern, fixed_sizes, self._shape)
        view = self
        for dim in range(self.ndim - 1, -1, -1):
            if len(plan.split[dim]) > 1:
                view = view.reshape_dim(dim, plan.split[dim])
        view = view.permute(plan.order)
        for at, count in enumerate(plan.merge):
            if count > 1:
                view = view.flatten_dims(at, at + count - 1)
        return view

    def view(self, dtype: Any) -> NkiTensor:
        """The same bits as another dtype; the last dimension rescales and must be contiguous."""
        target = of(dtype, "view")
        old, new = self._dtype.itemsize, target.itemsize
        if self._pointer is not None:
            raise Refusal(f"view({target}) of the indirect tensor {self._label()} is not possible")
        if old == new:
            return self._view(self._shape, self._strides, self._offset, target)
        if self._strides[-1] != 1:
            raise Refusal(
                f"view({target}) needs a contiguous last dimension, its stride is {self._strides[-1]}"
            )
        scaled = [*(stride * old for stride in self._strides[:-1]), self._shape[-1] * old, self._offset * old]
        if any(value % new for value in scaled):
            raise Refusal(
                f"view({target}) of shape {self._shape} does not divide into elements of {new} bytes"
            )
        strides = (*(value // new for value in scaled[:-2]), 1)
        return self._view((*self._shape[:-1], scaled[-2] // new), strides, scaled[-1] // new, target)

    reinterpret_cast = view

    def ap(
        self,
        pattern: Sequence[Sequence[int]],
        offset: int | None = None,
        scalar_offset: Any = None,
        vector_offset: Any = None,
        indirect_dim: int = 0,
        dtype: Any = None,
    ) -> NkiTensor:
        """A raw access pattern over the storage; shape and strides of the view are dropped.

        `offset` None inherits the view's offset (since 0.5; 0 before); a number replaces it. A register or (1, 1)
        tile `scalar_offset` adds itself times the stride of dimension `indirect_dim` of this view; an (n, 1) tile
        `vector_offset` gives each position of the first dimension an index of its own.
        """
        target = self._dtype if dtype is None else of(dtype, "ap")
        pairs = [tuple(integer(part, "ap pattern") for part in pair) for pair in pattern]
        if not pairs or any(len(pair) != 2 or pair[1] < 1 for pair in pairs):
            raise Refusal(
                f"ap pattern {pattern!r} must be a list of [stride, count] with counts of at least 1"
            )
        if offset is None:
            inherited = self._offset * self._dtype.itemsize // target.itemsize
            start = inherited if self._trace.release >= INHERIT_SINCE else 0
        else:
            start = integer(offset, "ap offset")
            if self._offset:
                self._trace.event("note", "ap(offset=) replaces the offset of the view it is called on")
        strides, counts = (tuple(part) for part in zip(*pairs, strict=True))
        pointer = None
        if scalar_offset is not None or vector_offset is not None:
            pointer = self._offset_pointer(scalar_offset, vector_offset, indirect_dim, target, strides[0])
            if start and scalar_offset is not None and self._buffer.memory.on_chip:
                self._trace.event(
                    "note", "ap(offset=) with scalar_offset on chip is reported to use an absolute address"
                )
        elif self._pointer is not None:
            self._trace.event("note", f"ap drops the device-side index of tensor {self._label()}")
        return self._view(counts, strides, start, target, pointer=pointer)

    def _offset_pointer(
        self, scalar: Any, vector: Any, indirect_dim: Any, target: DType, leading: int
    ) -> Pointer:
        """The pointer of ``ap(scalar_offset=)`` or ``ap(vector_offset=)``, its stride in elements of `target`."""
        if scalar is not None and vector is not None:
            raise Refusal("ap takes scalar_offset or vector_offset, not both")
        dim = self._dim(indirect_dim)
        bytes_ = self._strides[dim] * self._dtype.itemsize
        if bytes_ % target.itemsize:
            raise Refusal(
                f"ap: a step of {bytes_} bytes along dimension {dim} is no whole number of {target} elements"
            )
        stride = bytes_ // target.itemsize
        if scalar is not None:
            return self._pointed(scalar, dim, "ap scalar_offset", None, stride=stride)
        if not isinstance(vector, NkiTensor):
            raise Refusal(f"ap: vector_offset must be a tile, got {type(vector).__name__}")
        if dim != 0:
            raise Refusal(f"ap: vector_offset needs indirect_dim=0, got {indirect_dim}")
        if leading != stride:
            self._trace.event(
                "note",
                f"ap(vector_offset=) ignores the leading stride {leading} of its pattern, it steps by {stride}",
            )
        return self._vector(vector, stride, "ap vector_offset", None)

    def __bool__(self) -> bool:
        self._trace.event("truth", f"the truth of tensor {self._label()} was asked for and is True")
        return True

    def __len__(self) -> int:
        return self._shape[0]

    def __iter__(self) -> Iterator[NkiTensor]:
        return (self[index] for index in range(self._shape[0]))

    def __int__(self) -> NoReturn:
        self._no_value("int()")

    def __index__(self) -> NoReturn:
        self._no_value("an index")

    def __float__(self) -> NoReturn:
        self._no_value("float()")

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        self._no_value("a NumPy array")

    def item(self) -> NoReturn:
        """Refused: a trace has no values."""
        self._no_value("item()")

    def __repr__(self) -> str:
        text = f"NkiTensor({self._shape}, {self._dtype}, {self.buffer.value}{', ' + self.name if self.name else ''})"
        return text if self._trace.shown is None else f"{text}\n{self._trace.shown(self)}"

    def _no_value(self, wanted: str) -> NoReturn:
        raise Refusal(
            f"tensor {self._label()} has no value while the kernel is traced, {wanted} of it cannot be taken; "
            "keep the decision on the device or pass the number as an argument"
        )

    def _operator(symbol: str) -> Any:  # type: ignore[misc]  # noqa: N805
        def refuse(self: NkiTensor, *_: Any) -> NoReturn:
            raise Refusal(
                f"tensors have no operator {symbol} in this generation (tensor {self._label()}); "
                "use an nl function or nisa.tensor_tensor / tensor_scalar"
            )

        return refuse

    __add__ = __radd__ = __iadd__ = _operator("+")
    __sub__ = __rsub__ = __isub__ = _operator("-")
    __mul__ = __rmul__ = __imul__ = _operator("*")
    __truediv__ = __rtruediv__ = __itruediv__ = _operator("/")
    __matmul__ = __rmatmul__ = _operator("@")
    __neg__ = _operator("- (negation)")
    __lt__ = _operator("<")
    __le__ = _operator("<=")
    __gt__ = _operator(">")
    __ge__ = _operator(">=")
    del _operator

    def _label(self) -> str:
        return self.name or f"of shape {self._shape}"

    def _view(
        self,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        offset: int,
        dtype: DType | None = None,
        *,
        pointer: Pointer | None = None,
    ) -> NkiTensor:
        kind = self._dtype if dtype is None else dtype
        return _made(self._trace, self._buffer, shape, strides, offset, kind, pointer)

    def _led(self, to: Callable[[int], int]) -> Pointer | None:
        """The pointer of a view whose dimensions moved: `to` says where the one that takes part is now."""
        pointer = self._pointer
        if pointer is None:
            return None
        if pointer.index.kind == "snake":
            raise Refusal(
                f"tensor {self._label()} is a view made by indirect(), which no other view can be made of"
            )
        return pointer if pointer.dim < 0 else replace(pointer, dim=to(pointer.dim))

    def _dim(self, dim: int) -> int:
        at = integer(dim, "dimension")
        at = at + self.ndim if at < 0 else at
        if not 0 <= at < self.ndim:
            raise Refusal(f"dimension {dim} is not one of the {self.ndim} of tensor {self._label()}")
        return at

    def _free_dim(self, dim: int, what: str) -> int:
        at = self._dim(dim)
        if at == 0 and (self.on_chip or self._first_fixed):
            raise Refusal(f"{what} of {self._first} is not possible")
        return at


def _made(
    trace: Trace,
    buffer: Buffer,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    offset: int,
    dtype: DType,
    pointer: Pointer | None,
) -> NkiTensor:
    made = _new(NkiTensor)
    made._trace = trace
    made._buffer = buffer
    made._shape = shape
    made._strides = strides
    made._offset = offset
    made._dtype = dtype
    made._pointer = pointer
    made._access = -1
    return made


_new = object.__new__


def _past(first: int, last: int, size: int, dim: int) -> str:
    """Which part of an index lies outside its dimension; empty where none does."""
    if last < first or (first >= 0 and last < size):
        return ""
    text = f"{first}" if first == last else f"{first}:{last + 1}"
    return f"{text} of dimension {dim} (size {size})"


def _without(items: tuple[int, ...], at: int) -> tuple[int, ...]:
    return items[:at] + items[at + 1 :]


def _same(dim: int) -> int:
    return dim

"""NkiTensor: storage and a strided view of it. Views record what was written and never clamp."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Any, NoReturn, TypeVar

import numpy as np

from nkireview.isa.enums import Memory
from nkireview.isa.release import Release
from nkireview.nki.dtypes import DType, of
from nkireview.nki.errors import NotYetSupported, Refusal
from nkireview.nki.trace import Trace
from nkireview.program.model import Buffer

F = TypeVar("F", bound=Callable[..., Any])
VIEWS_SINCE = Release(0, 5)
INHERIT_SINCE = Release(0, 5)  # release notes 0.5: the default of ap's offset became None


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


REGION_OF = {region.memory: region for region in MemoryRegion}


class NkiTensor:
    """A tensor of a kernel: shape, strides, offset and dtype of a view, known while tracing; values are not.

    Strides and offset are in elements of `dtype`. On chip, dim 0 is the partition dimension and the result of any
    view stays at least 2-D.
    """

    __slots__ = ("_access", "_buffer", "_dtype", "_offset", "_shape", "_strides", "_trace")
    __array_priority__ = 1000

    def __init__(
        self,
        trace: Trace,
        buffer: Buffer,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        offset: int,
        dtype: DType,
    ) -> None:
        self._trace = trace
        self._buffer = buffer
        self._shape = shape
        self._strides = strides
        self._offset = offset
        self._dtype = dtype
        self._access = -1

    @classmethod
    def whole(cls, trace: Trace, buffer: Buffer) -> NkiTensor:
        """The contiguous view of a whole buffer."""
        return cls(trace, buffer, buffer.shape, _row_major(buffer.shape), 0, of(buffer.dtype, "tensor"))

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
        return self._buffer.memory.on_chip

    def access(self) -> int:
        """The interned access of this view."""
        if self._access < 0:
            self._access = self._trace.builder.affine(
                self._buffer.id,
                self._dtype.name,
                self._offset,
                self._strides,
                self._shape,
                0 if self._buffer.memory.on_chip else None,
            )
        return self._access

    @_since(VIEWS_SINCE)
    def is_contiguous(self) -> bool:
        """True where the view is dense and row-major; the partition dimension is not looked at."""
        first = 1 if self.on_chip else 0
        return _dense(self._shape[first:], self._strides[first:])

    @_since(VIEWS_SINCE)
    def is_indirect(self) -> bool:
        """True where part of the address is only known on the device."""
        return False

    def get_pattern(self) -> list[list[int]]:
        """The layout as a list of [stride, count], as `ap` takes it."""
        return [list(pair) for pair in zip(self._strides, self._shape, strict=True)]

    def __getitem__(self, key: Any) -> NkiTensor:
        items: Sequence[Any] = key if isinstance(key, tuple) else (key,)
        if len(items) != self.ndim or not all(type(item) is slice for item in items):
            items = _expand(tuple(items), self.ndim)
        shape: list[int] = []
        strides: list[int] = []
        kept: list[tuple[int, int, int]] = []  # position, size 1 and stride of dropped dimensions
        offset, dim = self._offset, 0
        past = ""
        for item in items:
            if item is None:
                if self.on_chip and dim == 0:
                    raise Refusal("an on-chip tensor takes no new axis before its partition dimension")
                shape.append(1)
                strides.append(0)
                continue
            size, stride = self._shape[dim], self._strides[dim]
            if isinstance(item, slice):
                start, count, step = _slice(item, size, dim)
                if start < 0 or start + (count - 1) * step >= size:
                    past = (
                        past or f"{start}:{start + (count - 1) * step + 1} of dimension {dim} (size {size})"
                    )
                offset += start * stride
                shape.append(count)
                strides.append(stride * step)
            else:
                index = _integer(item, f"index of dimension {dim}")
                index = index + size if index < 0 else index
                if not 0 <= index < size:
                    past = past or f"{index} of dimension {dim} (size {size})"
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
        if past and self._holds(shape, strides, offset):
            self._trace.event(
                "overrun", f"index {past} of tensor {self._label()} runs into other elements of its memory"
            )
        return self._view(tuple(shape), tuple(strides), offset)

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

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        raise NotYetSupported("assignment to a tensor view (use nisa.tensor_copy or nisa.dma_copy)")

    @_since(VIEWS_SINCE)
    def slice(self, dim: int, start: int, end: int, step: int = 1) -> NkiTensor:
        """The elements start, start+step, ... below end of one dimension."""
        dim = self._dim(dim)
        _, count, _ = _slice(slice(start, end, step), self._shape[dim], dim)
        shape, strides = list(self._shape), list(self._strides)
        shape[dim], strides[dim] = count, strides[dim] * step
        return self._view(tuple(shape), tuple(strides), self._offset + start * self._strides[dim])

    @_since(VIEWS_SINCE)
    def select(self, dim: int, index: Any) -> NkiTensor:
        """The view without a dimension, at a fixed index of it."""
        if isinstance(index, NkiTensor):
            raise NotYetSupported("NkiTensor.select with a tensor index")
        dim = self._dim(dim)
        key = tuple(_integer(index, "select") if at == dim else slice(None) for at in range(self.ndim))
        return self[key]

    @_since(VIEWS_SINCE)
    def permute(self, dims: Sequence[int]) -> NkiTensor:
        """The dimensions in another order; on chip the partition dimension stays first."""
        order = tuple(self._dim(dim) for dim in dims)
        if sorted(order) != list(range(self.ndim)):
            raise Refusal(f"permute{tuple(dims)} is no permutation of the {self.ndim} dimensions")
        if self.on_chip and order[0] != 0:
            raise Refusal(f"permute{tuple(dims)} moves the partition dimension of an on-chip tensor")
        return self._view(
            tuple(self._shape[dim] for dim in order), tuple(self._strides[dim] for dim in order), self._offset
        )

    @_since(VIEWS_SINCE)
    def broadcast(self, dim: int, size: int) -> NkiTensor:
        """A dimension of size 1 repeated with stride 0; not the partition dimension."""
        dim = self._free_dim(dim, "broadcast")
        if self._shape[dim] != 1:
            raise Refusal(f"broadcast of dimension {dim} needs size 1, it has {self._shape[dim]}")
        shape, strides = list(self._shape), list(self._strides)
        shape[dim], strides[dim] = int(size), 0
        return self._view(tuple(shape), tuple(strides), self._offset)

    @_since(VIEWS_SINCE)
    def expand_dim(self, dim: int) -> NkiTensor:
        """A new dimension of size 1 at `dim`; not before the partition dimension."""
        at = dim + self.ndim + 1 if dim < 0 else dim
        if not 0 <= at <= self.ndim or (self.on_chip and at == 0):
            raise Refusal(
                f"expand_dim({dim}) is not possible on a {self.ndim}-D tensor in {self.buffer.value}"
            )
        stride = self._strides[at] * self._shape[at] if at < self.ndim else 1
        shape = (*self._shape[:at], 1, *self._shape[at:])
        return self._view(shape, (*self._strides[:at], stride, *self._strides[at:]), self._offset)

    @_since(VIEWS_SINCE)
    def squeeze_dim(self, dim: int) -> NkiTensor:
        """The view without a dimension of size 1; not the partition dimension."""
        dim = self._free_dim(dim, "squeeze_dim")
        if self._shape[dim] != 1:
            raise Refusal(f"squeeze_dim({dim}) needs size 1, it has {self._shape[dim]}")
        return self._view(
            self._shape[:dim] + self._shape[dim + 1 :],
            self._strides[:dim] + self._strides[dim + 1 :],
            self._offset,
        )

    @_since(VIEWS_SINCE)
    def reshape_dim(self, dim: int, shape: Sequence[int]) -> NkiTensor:
        """One dimension split into several; one of them may be -1."""
        dim = self._free_dim(dim, "reshape_dim")
        sizes = _fill(tuple(_integer(size, "reshape_dim") for size in shape), self._shape[dim], "reshape_dim")
        inner = tuple(stride * self._strides[dim] for stride in _row_major(sizes))
        return self._view(
            self._shape[:dim] + sizes + self._shape[dim + 1 :],
            self._strides[:dim] + inner + self._strides[dim + 1 :],
            self._offset,
        )

    @_since(VIEWS_SINCE)
    def flatten_dims(self, start_dim: int, end_dim: int) -> NkiTensor:
        """The dimensions start_dim..end_dim (inclusive) as one; they must be contiguous."""
        start, end = self._free_dim(start_dim, "flatten_dims"), self._dim(end_dim)
        if end < start:
            raise Refusal(f"flatten_dims({start_dim}, {end_dim}) is an empty range")
        stride = _merged(self._shape[start : end + 1], self._strides[start : end + 1])
        if stride is None:
            raise Refusal(f"flatten_dims({start_dim}, {end_dim}) needs contiguous dimensions")
        size = math.prod(self._shape[start : end + 1])
        return self._view(
            (*self._shape[:start], size, *self._shape[end + 1 :]),
            (*self._strides[:start], stride, *self._strides[end + 1 :]),
            self._offset,
        )

    def reshape(self, shape: Any = None, *sizes: int, new_shape: Any = None) -> NkiTensor:
        """The same elements in another shape; on chip the partition dimension stays."""
        wanted = new_shape if shape is None else shape
        if wanted is None:
            raise Refusal("reshape needs a shape")
        flat = (wanted, *sizes) if isinstance(wanted, int | np.integer) else tuple(wanted)
        target = _fill(tuple(_integer(size, "reshape") for size in flat), self.size, "reshape")
        if self.on_chip:
            if target[0] != self._shape[0]:
                raise Refusal(
                    f"reshape{target} changes the partition dimension {self._shape[0]} of an on-chip tensor"
                )
            free = _restride(self._shape[1:], self._strides[1:], target[1:])
            strides = None if free is None else (self._strides[0], *free)
        else:
            strides = _restride(self._shape, self._strides, target)
        if strides is None:
            raise Refusal(f"reshape{target} of a view of shape {self._shape} needs contiguous dimensions")
        return self._view(target, strides, self._offset)

    def view(self, dtype: Any) -> NkiTensor:
        """The same bits as another dtype; the last dimension rescales and must be contiguous."""
        target = of(dtype, "view")
        old, new = self._dtype.itemsize, target.itemsize
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

        `offset` None inherits the view's offset (since 0.5; 0 before); a number replaces it.
        """
        if scalar_offset is not None or vector_offset is not None:
            raise NotYetSupported("NkiTensor.ap with scalar_offset or vector_offset")
        target = self._dtype if dtype is None else of(dtype, "ap")
        pairs = [tuple(_integer(part, "ap pattern") for part in pair) for pair in pattern]
        if not pairs or any(len(pair) != 2 or pair[1] < 1 for pair in pairs):
            raise Refusal(
                f"ap pattern {pattern!r} must be a list of [stride, count] with counts of at least 1"
            )
        if offset is None:
            inherited = self._offset * self._dtype.itemsize // target.itemsize
            start = inherited if self._trace.release >= INHERIT_SINCE else 0
        else:
            start = _integer(offset, "ap offset")
            if self._offset:
                self._trace.event("note", "ap(offset=) replaces the offset of the view it is called on")
        strides, counts = zip(*pairs, strict=True)
        return self._view(counts, strides, start, target)

    @_since(VIEWS_SINCE)
    def rearrange(self, src_pattern: Any, dst_pattern: Any, fixed_sizes: Any = None) -> NoReturn:
        """Not traced yet."""
        raise NotYetSupported("NkiTensor.rearrange")

    @_since(VIEWS_SINCE)
    def vector_select(self, dim: int, vector_offset: Any) -> NoReturn:
        """Not traced yet."""
        raise NotYetSupported("NkiTensor.vector_select")

    @_since(VIEWS_SINCE)
    def indirect(self, index: Any, num_elem: Any = None) -> NoReturn:
        """Not traced yet."""
        raise NotYetSupported("NkiTensor.indirect")

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
        return f"NkiTensor({self._shape}, {self._dtype}, {self.buffer.value}{', ' + self.name if self.name else ''})"

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
        self, shape: tuple[int, ...], strides: tuple[int, ...], offset: int, dtype: DType | None = None
    ) -> NkiTensor:
        return NkiTensor(
            self._trace, self._buffer, shape, strides, offset, self._dtype if dtype is None else dtype
        )

    def _dim(self, dim: int) -> int:
        at = _integer(dim, "dimension")
        at = at + self.ndim if at < 0 else at
        if not 0 <= at < self.ndim:
            raise Refusal(f"dimension {dim} is not one of the {self.ndim} of tensor {self._label()}")
        return at

    def _free_dim(self, dim: int, what: str) -> int:
        at = self._dim(dim)
        if self.on_chip and at == 0:
            raise Refusal(f"{what} of the partition dimension of an on-chip tensor is not possible")
        return at


def _row_major(shape: Sequence[int]) -> tuple[int, ...]:
    strides = [1] * len(shape)
    for dim in range(len(shape) - 2, -1, -1):
        strides[dim] = strides[dim + 1] * shape[dim + 1]
    return tuple(strides)


def _merged(shape: Sequence[int], strides: Sequence[int]) -> int | None:
    """The one stride of dimensions that form an arithmetic progression, or None."""
    pairs = [(size, stride) for size, stride in zip(shape, strides, strict=True) if size != 1]
    for (_, outer), (size, inner) in itertools.pairwise(pairs):
        if outer != size * inner:
            return None
    return pairs[-1][1] if pairs else (strides[-1] if strides else 1)


def _dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    stride = _merged(shape, strides)
    return stride == 1 or math.prod(shape) == 1


def _restride(shape: Sequence[int], strides: Sequence[int], target: Sequence[int]) -> tuple[int, ...] | None:
    """Strides of `target` over the same elements, grouping dimensions as far as they merge; None if impossible."""
    found: list[int] = []
    source = [(size, stride) for size, stride in zip(shape, strides, strict=True) if size != 1]
    at, position = 0, 0
    while position < len(target):
        if target[position] == 1:
            found.append(1)
            position += 1
            continue
        if at >= len(source):
            return None
        group, taken = [source[at]], source[at][0]
        at += 1
        sizes = [target[position]]
        position += 1
        while math.prod(sizes) != taken:
            if math.prod(sizes) < taken:
                if position >= len(target):
                    return None
                sizes.append(target[position])
                position += 1
            else:
                if at >= len(source):
                    return None
                group.append(source[at])
                taken *= source[at][0]
                at += 1
        stride = _merged([size for size, _ in group], [stride for _, stride in group])
        if stride is None:
            return None
        found.extend(step * stride for step in _row_major(sizes))
    return tuple(found)


def _fill(sizes: tuple[int, ...], total: int, what: str) -> tuple[int, ...]:
    if sizes.count(-1) == 1:
        known = -math.prod(sizes)
        if known and total % known == 0:
            sizes = tuple(total // known if size == -1 else size for size in sizes)
    if math.prod(sizes) != total or any(size < 1 for size in sizes):
        raise Refusal(f"{what}{sizes} has not the {total} elements of the view")
    return sizes


def _expand(items: tuple[Any, ...], ndim: int) -> list[Any]:
    used = sum(1 for item in items if item is not None and item is not Ellipsis)
    if used > ndim:
        raise Refusal(f"{used} indices are given to a {ndim}-D tensor")
    ellipses = [at for at, item in enumerate(items) if item is Ellipsis]
    if len(ellipses) > 1:
        raise Refusal("an index may hold one ... only")
    at = ellipses[0] if ellipses else len(items)
    rest = [slice(None)] * (ndim - used)
    return [*items[:at], *rest, *items[at + len(ellipses) :]]


def _slice(item: slice, size: int, dim: int) -> tuple[int, int, int]:
    start, stop, step = (
        default
        if part is None
        else part
        if type(part) is int
        else _integer(part, f"slice of dimension {dim}")
        for part, default in ((item.start, 0), (item.stop, size), (item.step, 1))
    )
    if step < 1:
        raise Refusal(f"slice of dimension {dim} has step {step}, expected at least 1")
    start = start + size if start < 0 else start
    stop = stop + size if stop < 0 else stop
    if stop <= start:
        raise Refusal(f"slice {start}:{stop} of dimension {dim} (size {size}) is empty")
    return start, -(-(stop - start) // step), step


def _integer(value: Any, what: str) -> int:
    if type(value) is int:
        return value
    if isinstance(value, NkiTensor):
        raise NotYetSupported(f"a tensor as {what}")
    if isinstance(value, bool | np.bool_):
        raise Refusal(f"{what} is a truth value, expected an integer")
    if isinstance(value, int | np.integer):
        return int(value)
    raise Refusal(f"{what} is a {type(value).__name__}, expected an integer")

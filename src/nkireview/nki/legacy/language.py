"""The namespace ``neuronxcc.nki.language``: functions on tiles, with ``mask=`` and ``dtype=``, as instructions."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np

from nkireview.isa import dtypes as table
from nkireview.isa.alu import BY_NAME as OPS
from nkireview.isa.table import ROWS
from nkireview.nki import elementwise, fills, movement, random, reductions
from nkireview.nki.dtypes import ALL
from nkireview.nki.dtypes import of as dtype_of
from nkireview.nki.errors import NotYetSupported, Refusal
from nkireview.nki.language import ACTIVATIONS, BINARY, REDUCTIONS
from nkireview.nki.legacy import calls, loops, masks
from nkireview.nki.legacy.calls import axes_of, computed, fresh, function, operator, record
from nkireview.nki.legacy.declared import Allocator, Declared, ParDim, sizes
from nkireview.nki.legacy.state import FRESH, PRODUCT, ZERO
from nkireview.nki.legacy.symbols import MeshGrid, arange
from nkireview.nki.legacy.tile import Tile
from nkireview.nki.lowering import is_number, result_dtype, token
from nkireview.nki.operators import Operator
from nkireview.nki.order import no_reorder
from nkireview.nki.tensor import MemoryRegion, NkiTensor
from nkireview.nki.tilesize import TileSize
from nkireview.nki.trace import active, current
from nkireview.nki.views import slice_of

SBUF, PSUM = MemoryRegion.sbuf, MemoryRegion.psum
FP32 = ALL["float32"]
COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
REGIONS = {"sbuf": SBUF, "psum": PSUM, "hbm": MemoryRegion.private_hbm, "shared_hbm": MemoryRegion.shared_hbm}
REGIONS["private_hbm"] = MemoryRegion.private_hbm


class Function(Operator):
    """A function of the language whose name is an operator too; it can be called in this generation."""

    def __init__(self, name: str, call: Callable[..., Any]) -> None:
        super().__init__(name)
        self._function = call
        self.__doc__ = call.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)


# where tensors come from


def declare(
    shape: Any,
    dtype: Any,
    buffer: Any = None,
    name: str = "",
    what: str = "nl.ndarray",
    *,
    zero: bool = False,
) -> Tile:
    """A declared tensor; `zero`: of zeros, which PSUM need not be written with."""
    trace = current(what)
    allocator = buffer if isinstance(buffer, Allocator) else Allocator(_region(buffer, what))
    on_chip = allocator.region in (SBUF, PSUM)
    blocks, tile = sizes(shape, on_chip, what)
    if on_chip and len(tile) == 1:
        tile = (*tile, 1)
    lazily = calls.zeroed if zero and allocator.region is PSUM else None
    eagerly = (lambda view: fills.fill(view, 0.0)) if zero and allocator.region is SBUF else None
    declared = Declared(
        trace,
        blocks,
        tile,
        dtype_of(FP32 if dtype is None else dtype, what),
        allocator.region,
        str(name or ""),
        allocator.place,
        lazily or eagerly,
    )
    found = Tile(None, declared)
    if not on_chip:
        found.physical()
    elif eagerly is not None:
        for at in np.ndindex(*blocks):
            declared.tile(tuple(int(index) for index in at))
    return found


def _region(buffer: Any, what: str) -> MemoryRegion:
    if buffer is None:
        return SBUF
    if isinstance(buffer, MemoryRegion):
        return buffer
    if isinstance(buffer, str) and buffer in REGIONS:
        return REGIONS[buffer]
    raise Refusal(
        f"{what}: buffer must be nl.sbuf, nl.psum, nl.hbm, nl.shared_hbm or an allocator of nki.compiler, got "
        f"{buffer!r}"
    )


def ndarray(shape: Any, dtype: Any = None, *, buffer: Any = None, name: str = "", **ignored: Any) -> Tile:
    """An uninitialised tensor."""
    return declare(shape, dtype, buffer, name)


def zeros(shape: Any, dtype: Any = None, *, buffer: Any = None, name: str = "", **ignored: Any) -> Tile:
    """A tensor of zeros on chip."""
    return full(shape, 0.0, dtype, buffer=buffer, name=name)


def ones(shape: Any, dtype: Any = None, *, buffer: Any = None, name: str = "", **ignored: Any) -> Tile:
    """A tensor of ones on chip."""
    return full(shape, 1.0, dtype, buffer=buffer, name=name)


def full(
    shape: Any, fill_value: Any, dtype: Any = None, *, buffer: Any = None, name: str = "", **ignored: Any
) -> Tile:
    """A tensor on chip filled with a number."""
    region = buffer.region if isinstance(buffer, Allocator) else _region(buffer, "nl.full")
    if region not in (SBUF, PSUM):
        raise Refusal(
            f"nl.full: a tensor in {region.value} takes no initial value; fill a tile and nl.store it"
        )
    if not is_number(fill_value):
        raise Refusal(f"nl.full: fill_value must be a number, got {type(fill_value).__name__}")
    found = declare(shape, dtype, buffer, name, "nl.full", zero=fill_value == 0)
    if fill_value != 0:
        for at in np.ndindex(*found._declared.blocks):  # type: ignore[union-attr]
            block = found[tuple(int(index) for index in at)] if at else found
            move(block, fill_value)
    return found


def zeros_like(a: Any, dtype: Any = None, *, buffer: Any = None, name: str = "", **ignored: Any) -> Tile:
    """Zeros of the shape and dtype of another tensor."""
    return zeros(_shape_of(a), a.kind if dtype is None else dtype, buffer=buffer, name=name)


def empty_like(a: Any, dtype: Any = None, *, buffer: Any = None, name: str = "", **ignored: Any) -> Tile:
    """An uninitialised tensor of the shape and dtype of another tensor."""
    return ndarray(_shape_of(a), a.kind if dtype is None else dtype, buffer=buffer, name=name)


def _shape_of(a: Tile) -> tuple[int, ...]:
    declared = a._declared
    if declared is None or not declared.blocks[len(a._at) :]:
        return a.shape
    return (*declared.blocks[len(a._at) :], ParDim(declared.shape[0]), *declared.shape[1:])


def shared_constant(constant: Any, dtype: Any = None, **ignored: Any) -> Tile:
    """A tensor in HBM that holds an array."""
    values = constant if dtype is None else table.cast(np.asarray(constant), table.of(dtype))
    return Tile(fills.shared_constant(np.asarray(values)))


def shared_identity_matrix(n: int, dtype: Any = np.uint8, **ignored: Any) -> Tile:
    """An identity matrix in HBM, as `shared_constant` gives it."""
    kind = dtype_of(dtype, "nl.shared_identity_matrix")
    return shared_constant(table.cast(np.eye(n, dtype=np.float32), table.BY_NAME[kind.name]))


# assignment


def move(target: Tile, value: Any) -> None:
    """What ``target[...] = value`` records."""
    if isinstance(value, Reduced):
        value.into(target)
        return
    if isinstance(value, np.generic):
        value = value.item()
    if is_number(value):
        view = calls.part_of(target, None)
        whole = view.size == NkiTensor.whole(view._trace, view.storage).size
        if target.region is PSUM and value == 0 and whole:
            calls.zeroed(view)
            return
        if target.on_chip:
            record("memset", {"value": value}, target)
        else:
            fills.assign(view, value)
        return
    if not isinstance(value, Tile):
        raise Refusal(f"assignment to a tensor takes a tensor or a number, got {type(value).__name__}")
    source = spread(value, target.shape)
    name = "tensor_copy" if target.on_chip and source.on_chip else "dma_copy"
    if name == "dma_copy" and target.region is PSUM:
        raise Refusal("a DMA cannot write PSUM; load into SBUF first")
    record(name, {"src": source}, target)
    target.result = None


def accumulate(target: Tile, value: Any) -> None:
    """What ``target += value`` records: a product goes into PSUM itself where that holds products or nothing yet."""
    result = value.result if isinstance(value, Tile) else None
    if result is not None and result.row in masks.MATMULS and target.region is PSUM:
        view = calls.part_of(target, result.part) if target.plain else None
        content = calls.states(view._trace).content(view) if view is not None else None
        if content in (FRESH, ZERO, PRODUCT):
            index = result.index
            if target.take(value):
                if content == PRODUCT:
                    current("+=").builder.change(index, accumulate=True)
                return
    if is_number(value):
        record("tensor_scalar", {"data": target, "op0": token("add"), "operand0": tiled(value)}, target)
    else:
        paired("add", target, value, dst=target)
    target.result = None


tiled = calls.tiled


class Reduced(Tile):
    """What `loop_reduce` gives: a value that the passes of some loops combine, once it is assigned."""

    __slots__ = ("_first", "_op", "_value", "_where")

    def __init__(self, value: Tile, op: str, first: bool, where: Any) -> None:
        super().__init__(value.physical())
        self._value, self._op, self._first, self._where = value, op, first, where

    def into(self, target: Tile) -> None:
        """Store the first value, or combine another one with what is there; what a mask hides adds nothing."""
        seen = masks.taken(self._where, "nl.loop_reduce")
        if self._first and seen is True:
            move(target, self._value)
            return
        if self._first:
            identity = OPS[self._op].identity
            if identity is None:
                raise Refusal(f"nl.loop_reduce: op {self._op} has no value to start from under a mask")
            move(target, identity)
        if seen is not False:
            paired(self._op, target, self._value, mask=self._where, dst=target)


def loop_reduce(
    x: Tile, op: Any, loop_indices: Any, *, dtype: Any = None, mask: Any = None, **ignored: Any
) -> Tile:
    """Combine the values that the passes of the loops of these indices give."""
    indices = loop_indices if isinstance(loop_indices, list | tuple) else [loop_indices]
    if not indices or not all(isinstance(index, loops.LoopIndex) for index in indices):
        raise Refusal(
            "nl.loop_reduce: loop_indices must be the indices of the loops it reduces over, as they are"
        )
    found = operator(op)
    return Reduced(x, found.name, all(index.first for index in indices), mask)


# broadcasting


def spread(x: Tile, shape: tuple[int, ...]) -> Tile:
    """A tile seen in another shape: its free dimensions of size 1 repeated, those of both left out."""
    if x.shape == shape:
        return x
    view = calls.part_of(x, None)
    sizes, strides = list(view.shape), list(view.strides)
    while len(sizes) < len(shape):
        at = 1 if view.on_chip else 0
        sizes.insert(at, 1)
        strides.insert(at, 0)
    while len(sizes) > len(shape) and 1 in sizes[1 if view.on_chip else 0 :]:
        at = sizes.index(1, 1 if view.on_chip else 0)
        del sizes[at], strides[at]
    if len(sizes) == len(shape) and all(old in (1, new) for old, new in zip(sizes, shape, strict=True)):
        steps = tuple(0 if old != new else step for old, new, step in zip(sizes, shape, strides, strict=True))
        if sizes[0] == shape[0] or not view.on_chip:
            return Tile(view._view(tuple(shape), steps, view.offset))
        return spread(Tile(movement.broadcast_to(_one_row(view), (shape[0], view.size))), shape)
    if math.prod(shape) == x.size:
        return x
    raise Refusal(f"a tile of shape {x.shape} does not broadcast to {shape}")


def _one_row(view: NkiTensor) -> NkiTensor:
    return view.reshape((1, view.size)) if view.ndim != 2 else view


def together(x: Tile, y: Tile, what: str) -> tuple[Tile, Tile, tuple[int, ...]]:
    """Two tiles of the shape that both broadcast to."""
    try:
        shape = tuple(int(size) for size in np.broadcast_shapes(x.shape, y.shape))
    except ValueError:
        raise Refusal(f"{what}: shapes {x.shape} and {y.shape} do not broadcast") from None
    return spread(x, shape), spread(y, shape), shape


def paired(op: str, x: Tile, y: Any, dtype: Any = None, mask: Any = None, *, dst: Tile | None = None) -> Tile:
    """An operator on two tiles, or a tile and a vector of one element a partition."""
    if not isinstance(y, Tile):
        raise Refusal(f"nl.{op}: expected a tile or a number, got {type(y).__name__}")
    kind = result_dtype(f"nl.{op}", dtype, x.kind, y.kind)
    vector = y.ndim == 2 and x.ndim >= 2 and y.shape == (x.shape[0], 1) and x.shape != y.shape
    if vector and y.kind == FP32:
        return _into(dst, kind, x.shape, "tensor_scalar", {"data": x, "op0": token(op), "operand0": y}, mask)
    turned = x.ndim == 2 and y.ndim >= 2 and x.shape == (y.shape[0], 1) and x.shape != y.shape
    if turned and x.kind == FP32:
        given = {"data": y, "op0": token(op), "operand0": x, "reverse0": True}
        return _into(dst, kind, y.shape, "tensor_scalar", given, mask)
    left, right, shape = together(x, y, f"nl.{op}")
    if left.region is PSUM and right.region is PSUM:
        right = copy(right)
    return _into(dst, kind, shape, "tensor_tensor", {"data1": left, "data2": right, "op": token(op)}, mask)


def _into(
    dst: Tile | None, kind: Any, shape: tuple[int, ...], name: str, given: dict[str, Any], mask: Any
) -> Tile:
    if dst is None:
        return computed(name, given, None, mask, shape=shape, kind=kind)
    record(name, given, dst, mask)
    return dst


def binary(op: str) -> Callable[..., Any]:
    """An elementwise function of two tiles, or of a tile and a number."""

    def apply(x: Any, y: Any, *, dtype: Any = None, mask: Any = None, **ignored: Any) -> Any:
        x, y = tiled(x), tiled(y)
        what = f"nl.{op}"
        if is_number(x) and is_number(y):
            raise Refusal(f"{what}: one side must be a tile, got two numbers")
        if op in COMPARISONS and dtype is None:
            dtype = np.uint8  # which holds 0 and 1
        if op == "divide" and dtype is None and not any(_is_float(side) for side in (x, y)):
            dtype = FP32
        if isinstance(x, Tile) and is_number(y):
            kind = result_dtype(what, dtype, x.kind)
            given = {"data": x, "op0": token(op), "operand0": y}
            return computed("tensor_scalar", given, None, mask, kind=kind)
        if isinstance(y, Tile) and is_number(x):
            kind = result_dtype(what, dtype, y.kind)
            given = {"data": y, "op0": token(op), "operand0": x, "reverse0": True}
            return computed("tensor_scalar", given, None, mask, kind=kind)
        if not isinstance(x, Tile) or not isinstance(y, Tile):
            raise Refusal(f"{what}: expected tiles or numbers, got {type(x).__name__} and {type(y).__name__}")
        return paired(op, x, y, dtype, mask)

    apply.__name__ = op
    return apply


def _is_float(side: Any) -> bool:
    return isinstance(side, Tile) and table.BY_NAME[side.kind.name].kind == "float"


def activation(op: str) -> Callable[..., Any]:
    """An elementwise function of the Scalar engine."""

    def apply(x: Any, *, dtype: Any = None, mask: Any = None, **ignored: Any) -> Tile:
        _need(x, f"nl.{op}")
        return computed("activation", {"op": token(op), "data": x}, dtype, mask)

    apply.__name__ = op
    return apply


def copy(src: Any, *, dtype: Any = None, mask: Any = None, **ignored: Any) -> Tile:
    """A copy in SBUF."""
    _need(src, "nl.copy")
    return computed("tensor_copy", {"src": src}, dtype, mask)


def negative(x: Any, *, dtype: Any = None, mask: Any = None, **ignored: Any) -> Tile:
    """-x."""
    return binary("multiply")(x, -1.0, dtype=dtype, mask=mask)  # type: ignore[no-any-return]


def reciprocal(x: Any, *, dtype: Any = None, mask: Any = None, **ignored: Any) -> Tile:
    """1/x."""
    _need(x, "nl.reciprocal")
    return computed("reciprocal", {"data": x}, dtype, mask)


def where(condition: Any, x: Any, y: Any, *, dtype: Any = None, mask: Any = None, **ignored: Any) -> Tile:
    """x where the condition holds, y elsewhere: a copy of y and a predicated copy of x."""
    _need(condition, "nl.where")
    tiles = [each for each in (x, y) if isinstance(each, Tile)]
    kind = result_dtype("nl.where", dtype, *([tile.kind for tile in tiles] or [FP32]))
    shape = condition.shape
    for tile in tiles:
        shape = tuple(int(size) for size in np.broadcast_shapes(shape, tile.shape))
    dst = fresh(shape, kind)
    move(dst, y)
    source = x if isinstance(x, Tile) and x.kind == kind else fresh(shape, kind)
    if source is not x:
        move(source, x)
    predicate = condition
    if condition.kind.name not in elementwise.PREDICATES:
        predicate = computed("tensor_copy", {"src": condition}, np.uint8, mask)
    given = {"src": spread(source, shape), "predicate": spread(predicate, shape)}
    record("tensor_copy_predicated", given, dst, mask)
    dst.result = None
    return dst


def lowered(name: str, call: Callable[..., NkiTensor]) -> Callable[..., Any]:
    """A function of the current generation on tiles of this one."""

    def apply(*args: Any, mask: Any = None, **kwargs: Any) -> Any:
        if masks.taken(mask, f"nl.{name}") is not True:
            raise NotYetSupported(f"nl.{name} with a mask")
        values = [_seen(value) for value in args]
        return Tile(call(*values, **{key: _seen(value) for key, value in kwargs.items()}))

    apply.__name__ = name
    return apply


def _seen(value: Any) -> Any:
    if isinstance(value, Tile):
        view = calls.part_of(value, None)
        calls.settle(view)
        return view
    return tiled(value)


# reductions


def reduction(name: str, op: str) -> Callable[..., Any]:
    """A reduction over free dimensions."""

    def apply(
        x: Any, axis: Any, *, dtype: Any = None, mask: Any = None, keepdims: bool = False, **ignored: Any
    ) -> Tile:
        _need(x, f"nl.{name}")
        axes = axes_of(axis, x.ndim, f"nl.{name}")
        given = {"op": token(op), "data": x, "axis": axes, "keepdims": keepdims}
        shape = tuple(
            1 if dim in axes else size for dim, size in enumerate(x.shape) if keepdims or dim not in axes
        )
        return computed("tensor_reduce", given, dtype, mask, shape=shape, axes=axes)

    apply.__name__ = name
    return apply


def mean(
    x: Any, axis: Any, *, dtype: Any = None, mask: Any = None, keepdims: bool = False, **ignored: Any
) -> Tile:
    """The mean over free dimensions."""
    _need(x, "nl.mean")
    axes = axes_of(axis, x.ndim, "nl.mean")
    count = math.prod(x.shape[dim] for dim in axes)
    total = reduction("mean", "add")(x, axis, dtype=FP32, mask=mask, keepdims=keepdims)
    return binary("multiply")(total, 1.0 / count, dtype=x.kind if dtype is None else dtype, mask=None)  # type: ignore[no-any-return]


# data movement


def load(src: Any, *, mask: Any = None, dtype: Any = None, **ignored: Any) -> Tile:
    """A fresh SBUF tile with the content of an HBM tensor; the DMA casts."""
    _need(src, "nl.load")
    if src.on_chip:
        raise Refusal(f"nl.load: src must be in HBM, it is in {src.region.value}")
    return computed("dma_copy", {"src": src}, dtype, mask)


def store(dst: Any, value: Any, *, mask: Any = None, **ignored: Any) -> None:
    """Write a tile, or a number, to HBM."""
    _need(dst, "nl.store", "dst")
    if dst.on_chip:
        raise Refusal(f"nl.store: dst must be in HBM, it is in {dst.region.value}")
    value = tiled(value)
    if is_number(value):
        shape = dst.shape if dst.ndim > 1 else (1, *dst.shape)
        tile = fresh(shape, dst.kind)
        move(tile, value)
        value = tile
    _need(value, "nl.store", "value")
    if value.region is PSUM:
        value = computed("tensor_copy", {"src": value}, None, mask)
    source = spread(value, dst.shape)
    record("dma_copy", {"src": source}, dst, mask)
    dst.result = None


def atomic_rmw(dst: Any, value: Any, op: Any, *, mask: Any = None, **ignored: Any) -> None:
    """Add a tile to HBM, element by element."""
    found = operator(op)
    if getattr(found, "name", None) != "add":
        raise Refusal(f"nl.atomic_rmw: op must be np.add, got {op!r}")
    record("dma_copy", {"src": spread(value, dst.shape), "dst_rmw_op": token("add")}, dst, mask)
    dst.result = None


def matmul(x: Any, y: Any, *, transpose_x: bool = False, mask: Any = None, **ignored: Any) -> Tile:
    """x @ y, or x.T @ y with transpose_x; x is transposed first where it is not."""
    _need(x, "nl.matmul", "x")
    _need(y, "nl.matmul", "y")
    if not transpose_x:
        turned = function(ROWS["nc_transpose"])(x)
        x = computed("tensor_copy", {"src": turned})
    return function(ROWS["nc_matmul"])(x, y, mask=mask)  # type: ignore[no-any-return]


def transpose(x: Any, *, dtype: Any = None, mask: Any = None, **ignored: Any) -> Tile:
    """The transposed tile."""
    _need(x, "nl.transpose")
    found = function(ROWS["nc_transpose"])(x, mask=mask)
    return found if dtype is None else copy(found, dtype=dtype)


def load_transpose2d(src: Any, *, mask: Any = None, dtype: Any = None, **ignored: Any) -> Tile:
    """A fresh SBUF tile with the transposed content of a 2-D HBM tensor."""
    _need(src, "nl.load_transpose2d")
    found = computed("dma_transpose", {"src": src}, None, mask, shape=(src.shape[1], src.shape[0]))
    return found if dtype is None or dtype_of(dtype, "dtype") == src.kind else copy(found, dtype=dtype)


def broadcast_to(src: Any, *, shape: Any, **ignored: Any) -> Tile:
    """The tile with its dimensions of size 1 repeated."""
    _need(src, "nl.broadcast_to")
    return spread(src, tuple(int(size) for size in shape))


def expand_dims(data: Any, axis: int) -> Tile:
    """A view with a new dimension of size 1."""
    _need(data, "nl.expand_dims")
    at = axis + data.ndim + 1 if axis < 0 else axis
    view = calls.part_of(data, None)
    if at == 0 and view.on_chip:
        return Tile(view)
    return Tile(movement.expand_dims(view, axis))


def gather_flattened(data: Any, indices: Any, *, mask: Any = None, dtype: Any = None, **ignored: Any) -> Tile:
    """For each partition, the elements of its flattened free dimensions that the indices name."""
    found: Tile = lowered("gather_flattened", movement.gather_flattened)(
        data, indices, mask=mask, dtype=dtype
    )
    return found


def rand(shape: Any, dtype: Any = np.float32, **ignored: Any) -> Any:
    """Random numbers from 0 to 1: a tile in a kernel, an array on the host."""
    if active() is None:
        return np.random.random_sample(tuple(shape)).astype(table.of(dtype).numpy)
    return Tile(random.rand(tuple(shape), dtype_of(dtype, "nl.rand")))


def static_cast(value: Any, dtype: Any) -> Any:
    """A host number or array in another dtype."""
    kind = dtype_of(dtype, "nl.static_cast")
    numpy = table.BY_NAME[kind.name].numpy
    if numpy is None:
        raise Refusal(f"nl.static_cast: {kind} has no values on the host")
    return np.asarray(value).astype(numpy)


def device_print(prefix: Any, x: Any, *, mask: Any = None, **ignored: Any) -> None:
    """Print a tensor when the kernel runs."""
    from nkireview.nki.order import device_print as printed

    printed(str(prefix), _seen(x))


def _need(value: Any, what: str, name: str = "") -> None:
    if not isinstance(value, Tile):
        raise Refusal(
            f"{what}: {name or 'expected'}{' must be' if name else ''} a tile, got {type(value).__name__}"
        )


def _limits(kind: Any) -> SimpleNamespace:
    info: Any = ml_dtypes.finfo(kind)  # type: ignore[no-untyped-call]
    return SimpleNamespace(
        min=float(info.min), max=float(info.max), eps=float(info.eps), tiny=float(info.tiny)
    )


def operators() -> dict[str, Callable[..., Any]]:
    """Functions whose names also name an operator."""
    found: dict[str, Callable[..., Any]] = {
        name: binary(name) for name in BINARY if not name.startswith("abs_")
    }
    found.update({name: activation(name) for name in (*ACTIVATIONS, "sin", "rsqrt")})
    found.update({name: binary(name) for name in ("divide", "mod", "fmod")})
    found["copy"], found["reciprocal"] = copy, reciprocal
    return found


def namespace() -> dict[str, Any]:
    """Everything a kernel finds in ``neuronxcc.nki.language``."""
    found: dict[str, Any] = {name: Function(name, call) for name, call in operators().items()}
    for name, op in REDUCTIONS.items():
        found[name] = Function(op, reduction(name, op))
    found["negative"] = Function("negative", negative)
    for name in ("ceil", "floor", "trunc"):
        found[name] = lowered(name, elementwise.rounding(name))
    for module, names in (
        (elementwise, ("cos", "tan", "invert", "logical_not")),
        (reductions, ("var", "softmax", "rms_norm")),
        (random, ("dropout",)),
    ):
        found.update({name: lowered(name, getattr(module, name)) for name in names})
    found["random_seed"] = lambda seed, *, mask=None, **ignored: random.random_seed(_seen(seed))
    found["all"] = lowered("all", reductions.every)
    for call in (
        *(ndarray, zeros, ones, full, zeros_like, empty_like, shared_constant, shared_identity_matrix),
        *(rand, where, mean, load, store, atomic_rmw, matmul, transpose, load_transpose2d, broadcast_to),
        *(expand_dims, gather_flattened, static_cast, device_print, loop_reduce, no_reorder, arange),
        *(loops.program_id, loops.num_programs, loops.program_ndim, loops.spmd_dim, loops.nc),
    ):
        found[call.__name__] = call
    for name in ("affine_range", "sequential_range", "static_range"):
        found[name] = loops.loop(name)
    for name, kind in ALL.items():
        numpy = table.BY_NAME[name].numpy
        found[name] = kind if numpy is None else numpy
    found.update({name: getattr(np, name) for name in ("float32", "float16", "int8", "int16", "int32")})
    found.update({name: getattr(np, name) for name in ("uint8", "uint16", "uint32")}, bool_=np.bool_)
    found.update(REGIONS, mgrid=MeshGrid(), par_dim=ParDim, ds=slice_of, tile_size=TileSize())
    found.update(fp32=_limits(np.float32), bfp16=_limits(ml_dtypes.bfloat16), fp16=_limits(np.float16))
    found["finfo"] = lambda dtype: _limits(table.BY_NAME[dtype_of(dtype, "nl.finfo").name].numpy)
    return found


def _apply(name: str, *args: Any, **kwargs: Any) -> Any:
    """An operator or a method of tiles."""
    methods: dict[str, Callable[..., Any]] = {
        "broadcast_to": broadcast_to,
        "expand_dims": expand_dims,
        "negative": negative,
        "invert": lowered("invert", elementwise.invert),
    }
    return (methods.get(name) or operators()[name])(*args, **kwargs)


Tile.apply = staticmethod(_apply)
Tile.move = staticmethod(move)
Tile.accumulate = staticmethod(accumulate)

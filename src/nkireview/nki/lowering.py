"""`nl` functions as the instructions they become. Sources by function: docs/decisions.md and the release notes.

Results are fresh SBUF tiles (PSUM for matmul and transpose); `dtype` None follows the inputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from nkireview.isa import dtypes as table
from nkireview.isa.enums import Engine
from nkireview.isa.release import Release
from nkireview.isa.table import ROWS
from nkireview.nki.allocate import allocate, tile
from nkireview.nki.dtypes import ALL, DType, of
from nkireview.nki.errors import NotYetSupported, Refusal
from nkireview.nki.operators import Operator
from nkireview.nki.recorders import recorder
from nkireview.nki.tensor import MemoryRegion, NkiTensor
from nkireview.nki.trace import current

_NISA = {name: recorder(row) for name, row in ROWS.items()}
COPY_ON_VECTOR_SINCE = Release(0, 6)  # release notes 0.6: nl.copy on Vector, result in SBUF
RSQRT_ON_GPSIMD_SINCE = Release(0, 5)  # release notes 0.5: nl.rsqrt on GpSimd
BN_STATS_FMAX = "limits.bn_stats_free_max"
FP32, INT32 = ALL["float32"], ALL["int32"]


def binary(op: str) -> Callable[..., NkiTensor]:
    """An elementwise function of two tiles of one shape, or of a tile and a number."""

    def apply(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
        what = f"nl.{op}"
        if isinstance(x, NkiTensor) and isinstance(y, NkiTensor):
            if x.shape != y.shape:
                raise Refusal(f"{what}: shapes {x.shape} and {y.shape} differ; nl functions do not broadcast")
            dst = tile(x, _result(what, dtype, x.dtype, y.dtype))
            _NISA["tensor_tensor"](dst=dst, data1=x, data2=y, op=_token(op))
            return dst
        if op == "power":
            raise Refusal(
                f"{what}: both sides must be tiles; a number as exponent is not supported on hardware"
            )
        if isinstance(x, NkiTensor):
            dst = tile(x, _result(what, dtype, x.dtype))
            _NISA["tensor_scalar"](dst=dst, data=x, op0=_token(op), operand0=_number(what, y))
            return dst
        if isinstance(y, NkiTensor):
            dst = tile(y, _result(what, dtype, y.dtype))
            _NISA["tensor_scalar"](dst=dst, data=y, op0=_token(op), operand0=_number(what, x), reverse0=True)
            return dst
        raise Refusal(f"{what}: one side must be a tensor, got {type(x).__name__} and {type(y).__name__}")

    return apply


def activation(op: str) -> Callable[..., NkiTensor]:
    """An elementwise function of the Scalar engine."""

    def apply(x: NkiTensor, dtype: Any = None) -> NkiTensor:
        _tensor(f"nl.{op}", x)
        dst = tile(x, _result(f"nl.{op}", dtype, x.dtype))
        _NISA["activation"](dst=dst, op=_token(op), data=x)
        return dst

    return apply


def reduction(name: str, op: str) -> Callable[..., NkiTensor]:
    """A reduction over the trailing free axes."""

    def apply(x: NkiTensor, axis: Any, dtype: Any = None, keepdims: bool = False) -> NkiTensor:
        return _reduce(f"nl.{name}", op, x, axis, dtype, keepdims)

    return apply


def reciprocal(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """1/x on the Vector engine."""
    _tensor("nl.reciprocal", x)
    dst = tile(x, _result("nl.reciprocal", dtype, x.dtype))
    _NISA["reciprocal"](dst=dst, data=x)
    return dst


def rsqrt(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """1/sqrt(x): GpSimd since 0.5, the Scalar engine before."""
    if current("nl.rsqrt").release < RSQRT_ON_GPSIMD_SINCE:
        return activation("rsqrt")(x, dtype)
    _tensor("nl.rsqrt", x)
    dst = tile(x, _result("nl.rsqrt", dtype, x.dtype))
    _NISA["tensor_scalar"](dst=dst, data=x, op0=_token("rsqrt"), operand0=0.0, engine=Engine.gpsimd)
    return dst


def copy(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """A copy in SBUF (since 0.6); before, a Scalar activation into the memory of x."""
    trace = current("nl.copy")
    _tensor("nl.copy", x)
    kind = _result("nl.copy", dtype, x.dtype)
    if trace.release >= COPY_ON_VECTOR_SINCE:
        dst = tile(x, kind)
        _NISA["tensor_copy"](dst=dst, src=x)
        return dst
    dst = allocate(x.shape, kind, x.buffer, what="nl.copy")
    _NISA["activation"](dst=dst, op=_token("copy"), data=x)
    return dst


def negative(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """-x."""
    return binary("multiply")(x, -1.0, dtype)


def invert(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """Bitwise not."""
    _tensor("nl.invert", x)
    return binary("bitwise_xor")(x, -1 if x.dtype.startswith("int") else 2 ** (8 * x.itemsize) - 1, dtype)


def logical_not(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """XOR with 1: right for 0 and 1 only."""
    return binary("logical_xor")(x, 1, dtype)


def sin(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """sin(x) after range reduction to [-pi, pi]."""
    return _sine("nl.sin", x, 0.0, dtype)


def cos(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """cos(x) as sin(x + pi/2) after range reduction."""
    return _sine("nl.cos", x, math.pi / 2, dtype)


def tan(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """sin(x) times the reciprocal of cos(x)."""
    _tensor("nl.tan", x)
    kind = _result("nl.tan", dtype, x.dtype)
    return binary("multiply")(sin(x, FP32), reciprocal(cos(x, FP32)), kind)


def rounding(name: str) -> Callable[..., NkiTensor]:
    """ceil, floor or trunc: a round trip through int32, corrected where it rounded the wrong way.

    Exact for |x| < 2^31; larger values are integers already but saturate here.
    """

    def apply(x: NkiTensor, dtype: Any = None) -> NkiTensor:
        what = f"nl.{name}"
        _tensor(what, x)
        kind = _result(what, dtype, x.dtype)
        if name == "trunc":
            magnitude = _round_towards("floor", activation("abs")(x, FP32))
            return binary("multiply")(magnitude, activation("sign")(x, FP32), kind)
        return binary("add")(_round_towards(name, binary("multiply")(x, 1.0, FP32)), 0.0, kind)

    return apply


def mean(x: NkiTensor, axis: Any, dtype: Any = None, keepdims: bool = False) -> NkiTensor:
    """The mean over the trailing free axes, summed in float32."""
    _tensor("nl.mean", x)
    kind = _result("nl.mean", dtype, x.dtype)
    count = math.prod(x.shape[dim] for dim in _axes("nl.mean", x, axis))
    return binary("multiply")(_reduce("nl.mean", "add", x, axis, FP32, keepdims), 1.0 / count, kind)


def var(x: NkiTensor, axis: Any, dtype: Any = None, keepdims: bool = False) -> NkiTensor:
    """The variance over all free axes by bn_stats and bn_aggr; the axes are always kept."""
    trace = current("nl.var")
    _tensor("nl.var", x)
    kind = _result("nl.var", dtype, x.dtype)
    axes = _axes("nl.var", x, axis)
    if len(axes) != x.ndim - 1:
        raise NotYetSupported("nl.var over some of the free axes")
    step = int(trace.hardware.value(BN_STATS_FMAX))
    flat = x.reshape((x.shape[0], x.size // x.shape[0]))
    chunks = -(-flat.shape[1] // step)
    stats = allocate((x.shape[0], 6 * chunks), FP32, what="nl.var")
    for at in range(chunks):
        stop = min((at + 1) * step, flat.shape[1])
        _NISA["bn_stats"](dst=stats[:, 6 * at : 6 * at + 6], data=flat[:, at * step : stop])
    both = allocate((x.shape[0], 2), FP32, what="nl.var")
    _NISA["bn_aggr"](dst=both, data=stats)
    dst = allocate((x.shape[0], *(1,) * len(axes)), kind, what="nl.var")
    _NISA["tensor_copy"](dst=dst, src=both[:, 1:2])
    return dst


def every(x: NkiTensor, axis: Any, dtype: Any = None) -> NkiTensor:
    """``nl.all``: logical and over the trailing free axes."""
    return _reduce("nl.all", "logical_and", x, axis, dtype, False)


def load(src: NkiTensor, dtype: Any = None) -> NkiTensor:
    """A fresh SBUF tile with the content of an HBM tensor; the DMA casts."""
    _tensor("nl.load", src)
    if src.on_chip:
        raise Refusal(f"nl.load: src must be in HBM, it is in {src.buffer.value}")
    dst = tile(src, _result("nl.load", dtype, src.dtype))
    _NISA["dma_copy"](dst=dst, src=src)
    return dst


def store(dst: NkiTensor, value: Any) -> None:
    """Write an SBUF tile to HBM."""
    _tensor("nl.store", dst)
    if not isinstance(value, NkiTensor):
        raise Refusal(f"nl.store: value must be an SBUF tensor, got {type(value).__name__}")
    _NISA["dma_copy"](dst=dst, src=value)


def matmul(x: NkiTensor, y: NkiTensor, transpose_x: bool = False) -> NkiTensor:
    """x.T @ y into a fresh PSUM tile; only transpose_x=True works on hardware."""
    _tensor("nl.matmul", x)
    _tensor("nl.matmul", y)
    if not transpose_x:
        raise Refusal("nl.matmul: transpose_x=False is not supported on hardware; pass x transposed")
    dst = allocate((x.shape[1], y.shape[1]), FP32, MemoryRegion.psum, what="nl.matmul")
    _NISA["nc_matmul"](dst=dst, stationary=x, moving=y)
    return dst


def transpose(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """The transposed tile in PSUM."""
    _tensor("nl.transpose", x)
    kind = _result("nl.transpose", dtype, x.dtype)
    dst = allocate((x.size // x.shape[0], x.shape[0]), kind, MemoryRegion.psum, what="nl.transpose")
    _NISA["nc_transpose"](dst=dst, data=x)
    return dst


def filled(name: str, value: float | None) -> Callable[..., NkiTensor]:
    """zeros, ones or full: a fresh tensor and a memset."""

    def make(shape: Any, fill: Any, dtype: Any, buffer: Any, label: str) -> NkiTensor:
        fresh = allocate(shape, dtype, buffer, label, what=f"nl.{name}")
        if not fresh.on_chip:
            raise NotYetSupported(f"nl.{name} in HBM")
        whole = fresh.dtype.startswith(("int", "uint", "bool")) and float(fill).is_integer()
        _NISA["memset"](dst=fresh, value=int(fill) if whole else fill)
        return fresh

    if value is None:

        def full(shape: Any, fill_value: Any, dtype: Any, buffer: Any = None, name: str = "") -> NkiTensor:
            return make(shape, fill_value, dtype, buffer, name)

        return full

    def fixed(shape: Any, dtype: Any, buffer: Any = None, name: str = "") -> NkiTensor:
        return make(shape, value, dtype, buffer, name)

    return fixed


def zeros_like(x: NkiTensor, dtype: Any = None, buffer: Any = None, name: str = "") -> NkiTensor:
    """Zeros of the shape, dtype and memory of another tensor."""
    return filled("zeros_like", 0.0)(x.shape, dtype or x.dtype, buffer or x.buffer, name)


def empty_like(x: NkiTensor, dtype: Any = None, buffer: Any = None, name: str = "") -> NkiTensor:
    """An uninitialised tensor of the shape, dtype and memory of another tensor."""
    return allocate(x.shape, dtype or x.dtype, buffer or x.buffer, name, what="nl.empty_like")


def expand_dims(x: NkiTensor, axis: int) -> NkiTensor:
    """A view with a new dimension of size 1."""
    _tensor("nl.expand_dims", x)
    at = axis + x.ndim + 1 if axis < 0 else axis
    if not 0 <= at <= x.ndim:
        raise Refusal(f"nl.expand_dims: axis {axis} does not fit a {x.ndim}-D tensor")
    return x[tuple([slice(None)] * at + [None])]


def broadcast_to(x: NkiTensor, shape: Any, dtype: Any = None) -> NkiTensor:
    """A stride-0 view over free dimensions of size 1; x itself where the shape is the same."""
    _tensor("nl.broadcast_to", x)
    sizes = tuple(int(size) for size in shape)
    if len(sizes) != x.ndim:
        raise Refusal(f"nl.broadcast_to: shape {sizes} has another rank than {x.shape}")
    if any(old not in (new, 1) for old, new in zip(x.shape, sizes, strict=True)):
        raise Refusal(f"nl.broadcast_to: {x.shape} does not broadcast to {sizes}")
    if x.on_chip and x.shape[0] != sizes[0]:
        raise NotYetSupported("nl.broadcast_to over the partition dimension")
    if dtype is not None and of(dtype, "nl.broadcast_to") != x.dtype:
        raise NotYetSupported("nl.broadcast_to with another dtype")
    strides = tuple(
        stride if old == new else 0 for stride, old, new in zip(x.strides, x.shape, sizes, strict=True)
    )
    return x.ap([[stride, size] for stride, size in zip(strides, sizes, strict=True)], offset=x.offset)


def refused(name: str, instead: str) -> Callable[..., Any]:
    """A function that exists in the language but does not work on hardware."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise Refusal(f"nl.{name} is not supported on hardware; {instead}")

    return refuse


def _reduce(what: str, op: str, x: NkiTensor, axis: Any, dtype: Any, keepdims: bool) -> NkiTensor:
    _tensor(what, x)
    axes = _axes(what, x, axis)
    shape = [1 if dim in axes else size for dim, size in enumerate(x.shape)]
    if not keepdims:
        shape = [size for dim, size in enumerate(x.shape) if dim not in axes]
        shape += [1] * (2 - len(shape))
    dst = tile(x, _result(what, dtype, x.dtype), shape)
    _NISA["tensor_reduce"](dst=dst, op=_token(op), data=x, axis=axes, keepdims=keepdims)
    return dst


def _axes(what: str, x: NkiTensor, axis: Any) -> tuple[int, ...]:
    given = axis if isinstance(axis, list | tuple) else (axis,)
    axes = tuple(sorted(int(dim) + x.ndim if int(dim) < 0 else int(dim) for dim in given))
    if not axes or any(not 0 <= dim < x.ndim for dim in axes):
        raise Refusal(f"{what}: axis {axis} does not fit a {x.ndim}-D tensor")
    return axes


def _round_towards(name: str, x: NkiTensor) -> NkiTensor:
    whole = binary("add")(x, 0.0, INT32)
    back = binary("add")(whole, 0.0, FP32)
    if name == "floor":
        return binary("subtract")(back, binary("greater")(back, x, FP32), FP32)
    return binary("add")(back, binary("less")(back, x, FP32), FP32)


def _sine(what: str, x: NkiTensor, phase: float, dtype: Any) -> NkiTensor:
    _tensor(what, x)
    kind = _result(what, dtype, x.dtype)
    shifted = tile(x, FP32)
    _NISA["tensor_scalar"](dst=shifted, data=x, op0=_token("add"), operand0=phase)
    turns = tile(x, INT32)
    _NISA["tensor_scalar"](dst=turns, data=shifted, op0=_token("multiply"), operand0=1 / (2 * math.pi))
    # two-part 2*pi, so that turns * high is exact for small counts
    high = float(np.float32(6.28125))
    for part in (high, 2 * math.pi - high):
        reduced = tile(x, FP32)
        _NISA["scalar_tensor_tensor"](
            dst=reduced,
            data=turns,
            op0=_token("multiply"),
            operand0=-part,
            op1=_token("add"),
            operand1=shifted,
        )
        shifted = reduced
    limit = float(np.nextafter(np.float32(math.pi), np.float32(0)))
    inside = tile(x, FP32)
    _NISA["tensor_scalar"](
        dst=inside,
        data=shifted,
        op0=_token("minimum"),
        operand0=limit,
        op1=_token("maximum"),
        operand1=-limit,
    )
    return activation("sin")(inside, kind)


def _result(what: str, dtype: Any, *inputs: DType) -> DType:
    if dtype is not None:
        return of(dtype, what)
    return max(inputs, key=lambda kind: (table.BY_NAME[str(kind)].kind == "float", kind.itemsize))


def _number(what: str, value: Any) -> Any:
    if isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool):
        return value
    raise Refusal(f"{what}: expected a tensor or a number, got {type(value).__name__}")


def _tensor(what: str, value: Any) -> None:
    if not isinstance(value, NkiTensor):
        raise Refusal(f"{what}: expected a tensor, got {type(value).__name__}")


def _token(op: str) -> Operator:
    return Operator(op)

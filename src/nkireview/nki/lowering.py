"""What `nl` functions share on their way to instructions: recorders, operands, result dtypes, casts and axes.

Results are fresh SBUF tiles (PSUM for matmul and transpose); `dtype` None follows the inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from nkireview.isa import dtypes as table
from nkireview.isa.table import ROWS
from nkireview.nki.allocate import tile
from nkireview.nki.dtypes import ALL, DType, of
from nkireview.nki.errors import Refusal
from nkireview.nki.operators import Operator
from nkireview.nki.recorders import missing, recorder
from nkireview.nki.tensor import NkiTensor

FP32, INT32, UINT8 = ALL["float32"], ALL["int32"], ALL["uint8"]


@cache
def instruction(name: str) -> Callable[..., Any]:
    """The recorder of a row of the instruction table."""
    return recorder(ROWS[name]) if name in ROWS else missing(name)


@cache
def token(op: str) -> Operator:
    """The operator as an instruction takes it."""
    return Operator(op)


def result_dtype(what: str, dtype: Any, *inputs: DType) -> DType:
    """The dtype asked for or, where that is None, the widest float among the inputs, else the widest integer."""
    if dtype is not None:
        return of(dtype, what)
    return max(inputs, key=lambda kind: (table.BY_NAME[str(kind)].kind == "float", kind.itemsize))


def is_number(value: Any) -> bool:
    """True for Python and NumPy numbers, truth values left out."""
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def need_number(what: str, value: Any, name: str = "") -> Any:
    """The value, if it is a number."""
    if is_number(value):
        return value
    subject = f"{name} must be a number" if name else "expected a tensor or a number"
    raise Refusal(f"{what}: {subject}, got {type(value).__name__}")


def need_tensor(what: str, value: Any, name: str = "") -> NkiTensor:
    """The value, if it is a tensor."""
    if isinstance(value, NkiTensor):
        return value
    subject = f"{name} must be a tensor" if name else "expected a tensor"
    raise Refusal(f"{what}: {subject}, got {type(value).__name__}")


def same_shape(what: str, first: NkiTensor, **others: NkiTensor) -> None:
    """Refuse tensors of another shape than the first."""
    for name, other in others.items():
        if other.shape != first.shape:
            raise Refusal(
                f"{what}: {name} has shape {other.shape}, expected {first.shape}; nl functions do not broadcast"
            )


def cast(x: NkiTensor, kind: DType) -> NkiTensor:
    """The tile itself or, where its dtype is another, a copy in SBUF of that dtype."""
    if x.dtype == kind:
        return x
    dst = tile(x, kind)
    instruction("tensor_copy")(dst=dst, src=x)
    return dst


def spread(x: NkiTensor, shape: tuple[int, ...]) -> NkiTensor:
    """A view of `shape` that repeats the dimensions of size 1 with stride 0."""
    strides = tuple(
        stride if old == new else 0 for stride, old, new in zip(x.strides, x.shape, shape, strict=True)
    )
    return x._view(shape, strides, x.offset)


def axes_of(what: str, x: NkiTensor, axis: Any) -> tuple[int, ...]:
    """The axes as positive numbers, ascending."""
    given = tuple(axis) if isinstance(axis, list | tuple) else (axis,)
    for dim in given:
        if isinstance(dim, bool) or not isinstance(dim, int | np.integer):
            raise Refusal(f"{what}: axis must be an integer or a tuple of integers, got {axis!r}")
    axes = tuple(sorted(int(dim) + x.ndim if dim < 0 else int(dim) for dim in given))
    if not axes or axes[0] < 0 or axes[-1] >= x.ndim:
        raise Refusal(f"{what}: axis {axis} does not fit a {x.ndim}-D tensor")
    if len(set(axes)) != len(axes):
        raise Refusal(f"{what}: axis {axis} names a dimension twice")
    return axes


def covers_row(x: NkiTensor, axes: tuple[int, ...]) -> bool:
    """True where the axes are all the free dimensions: one result a partition."""
    return axes == tuple(range(1, x.ndim))


def reduce(
    x: NkiTensor, op: str, axes: tuple[int, ...], kind: DType, keepdims: bool, *, negate: bool = False
) -> NkiTensor:
    """A tensor_reduce into a fresh tile, which has at least two dimensions."""
    shape = tuple(1 if dim in axes else size for dim, size in enumerate(x.shape))
    if not keepdims:
        shape = tuple(size for dim, size in enumerate(x.shape) if dim not in axes)
        shape += (1,) * (2 - len(shape))
    dst = tile(x, kind, shape)
    instruction("tensor_reduce")(dst=dst, op=token(op), data=x, axis=axes, negate=negate, keepdims=keepdims)
    return dst


def scaled(x: NkiTensor, op: str, operand: Any, kind: DType, **more: Any) -> NkiTensor:
    """A tensor_scalar into a fresh tile of the shape of x; `more` are its further arguments."""
    dst = tile(x, kind)
    instruction("tensor_scalar")(dst=dst, data=x, op0=token(op), operand0=operand, **more)
    return dst


def paired(x: NkiTensor, y: NkiTensor, op: str, kind: DType) -> NkiTensor:
    """A tensor_tensor into a fresh tile of the shape of x."""
    dst = tile(x, kind)
    instruction("tensor_tensor")(dst=dst, data1=x, data2=y, op=token(op))
    return dst


def activated(x: NkiTensor, op: str, kind: DType, **more: Any) -> NkiTensor:
    """An activation into a fresh tile of the shape of x; `more` are its further arguments."""
    dst = tile(x, kind)
    instruction("activation")(dst=dst, op=token(op), data=x, **more)
    return dst

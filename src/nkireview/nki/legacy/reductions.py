"""Reductions of the legacy generation over free dimensions, and what is built on them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from nkireview.isa import dtypes as table
from nkireview.nki import reductions
from nkireview.nki.dtypes import ALL, DType
from nkireview.nki.dtypes import of as dtype_of
from nkireview.nki.errors import NotYetSupported, Refusal
from nkireview.nki.legacy import calls, state
from nkireview.nki.legacy.broadcast import spread
from nkireview.nki.legacy.calls import computed, tiled
from nkireview.nki.legacy.movement import copy, need
from nkireview.nki.legacy.narrowing import Part, Ranges, narrowed
from nkireview.nki.legacy.operators import named
from nkireview.nki.legacy.shapes import axes_of, reduced
from nkireview.nki.legacy.tile import Tile
from nkireview.nki.lowering import is_number, token
from nkireview.nki.tensor import NkiTensor
from nkireview.nki.trace import current

FP32 = ALL["float32"]


def reduction(name: str, op: str) -> Callable[..., Any]:
    """A reduction over free dimensions."""
    what = f"nl.{name}"

    def apply(
        x: Any, axis: Any, *, dtype: Any = None, mask: Any = None, keepdims: bool = False, **kwargs: Any
    ) -> Tile:
        return _reduce(what, op, x, axis, dtype, mask, keepdims)

    return named(apply, what, f"{op} over the free dimensions that axis names.")


def every(x: Any, axis: Any, *, dtype: Any = bool, mask: Any = None, **kwargs: Any) -> Tile:
    """Whether all elements are true, over free dimensions."""
    return _reduce("nl.all", "logical_and", x, axis, bool if dtype is None else dtype, mask, False)


def _reduce(what: str, op: str, x: Any, axis: Any, dtype: Any, mask: Any, keepdims: bool) -> Tile:
    need(what, x, "x")
    axes = axes_of(axis, x.ndim, what)
    given = {"op": token(op), "data": x, "axis": axes, "keepdims": keepdims}
    return computed("tensor_reduce", given, dtype, mask, shape=reduced(x.shape, axes, keepdims), axes=axes)


def mean(
    x: Any, axis: Any, *, dtype: Any = None, mask: Any = None, keepdims: bool = False, **kwargs: Any
) -> Tile:
    """The mean over free dimensions, of the elements that a mask leaves; float32 for integers."""
    what = "nl.mean"
    need(what, x, "x")
    axes = axes_of(axis, x.ndim, what)
    kind = _kind(what, x, dtype)

    def work(part: Part) -> Tile:
        left = part(x)
        total = _reduce(what, "add", left, axes, FP32, None, keepdims)
        count = math.prod(left.shape[dim] for dim in axes)
        given = {"data": total, "op0": token("multiply"), "operand0": 1.0 / count}
        return computed("tensor_scalar", given, None, kind=kind)

    return narrowed(
        what,
        mask,
        x,
        reduced(x.shape, axes, keepdims),
        kind,
        work,
        lambda ranges: _kept(ranges, axes, keepdims),
    )


def var(x: Any, axis: Any, *, dtype: Any = None, mask: Any = None, **kwargs: Any) -> Tile:
    """The variance over free dimensions, of the elements that a mask leaves; float32 for integers."""
    what = "nl.var"
    need(what, x, "x")
    axes = axes_of(axis, x.ndim, what)
    kind = _kind(what, x, dtype)

    def work(part: Part) -> Tile:
        kept = _whole(what, reductions.var, part(x), axes, dtype=kind)
        return kept if kept.shape == (shape := reduced(kept.shape, axes)) else kept.reshape(shape)

    return narrowed(
        what, mask, x, reduced(x.shape, axes), kind, work, lambda ranges: _kept(ranges, axes, False)
    )


def _kind(what: str, x: Tile, dtype: Any) -> DType:
    if dtype is not None:
        return dtype_of(dtype, what)
    return x.kind if table.BY_NAME[x.kind.name].kind == "float" else FP32


def _kept(ranges: Ranges, axes: tuple[int, ...], keepdims: bool) -> Ranges:
    """The ranges of a reduction's result."""
    if keepdims:
        return tuple((0, 1) if dim in axes else each for dim, each in enumerate(ranges))
    kept = tuple(each for dim, each in enumerate(ranges) if dim not in axes)
    return kept if len(kept) > 1 else (*kept, (0, 1))


def softmax(
    x: Any, axis: Any, *, dtype: Any = None, compute_dtype: Any = None, mask: Any = None, **kwargs: Any
) -> Tile:
    """exp(x - max) / sum of it, over free dimensions."""
    what = "nl.softmax"
    need(what, x, "x")
    axes = axes_of(axis, x.ndim, what)
    kind = _either(what, x, dtype, compute_dtype)
    return narrowed(
        what, mask, x, x.shape, kind, lambda part: _whole(what, reductions.softmax, part(x), axes, dtype=kind)
    )


def rms_norm(
    x: Any,
    w: Any,
    axis: Any,
    n: Any,
    epsilon: Any = 1e-06,
    *,
    dtype: Any = None,
    compute_dtype: Any = None,
    mask: Any = None,
    **kwargs: Any,
) -> Tile:
    """x / sqrt(sum(x^2) / n + epsilon) * w, the sum over free dimensions; w broadcasts to x."""
    what = "nl.rms_norm"
    need(what, x, "x")
    need(what, w, "w")
    axes = axes_of(axis, x.ndim, what)
    kind = _either(what, x, dtype, compute_dtype)
    for name, number in (("n", n), ("epsilon", epsilon)):
        if not is_number(tiled(number)):
            raise Refusal(f"{what}: {name} must be a number, got {type(number).__name__}")
    weight = spread(w, x.shape)

    def work(part: Part) -> Tile:
        return _whole(
            what, reductions.rms_norm, part(x), part(weight), axes, tiled(n), tiled(epsilon), dtype=kind
        )

    return narrowed(what, mask, x, x.shape, kind, work)


def _either(what: str, x: Tile, dtype: Any, compute_dtype: Any) -> DType:
    """The dtype of the result: dtype and compute_dtype do the same, nki/api/nki/language/__init__.py:1385-1386."""
    asked = compute_dtype if dtype is None else dtype
    return x.kind if asked is None else dtype_of(asked, what)


def _whole(what: str, call: Callable[..., NkiTensor], *args: Any, **more: Any) -> Tile:
    """A function of the current generation on tiles of this one."""
    return calls.result_of(call(*(_seen(value) for value in args), **more))


def _seen(value: Any) -> Any:
    if not isinstance(value, Tile):
        return value
    view = calls.part_of(value, None)
    state.settle(view)
    return view


def all_reduce(
    x: Any,
    op: Any,
    program_axes: Any,
    *,
    dtype: Any = None,
    mask: Any = None,
    parallel_reduce: bool = True,
    asynchronous: bool = False,
    **kwargs: Any,
) -> Tile:
    """The tile itself where only one instance of the launch grid takes part; more of them are refused."""
    what = "nl.all_reduce"
    need(what, x, "x")
    grid = current(what).grid
    axes = program_axes if isinstance(program_axes, list | tuple) else (program_axes,)
    if math.prod(grid[axis] for axis in axes if axis < len(grid)) > 1:
        raise NotYetSupported(
            f"{what} over several instances of a launch grid, which run one after another here"
        )
    return copy(x, dtype=dtype, mask=mask)

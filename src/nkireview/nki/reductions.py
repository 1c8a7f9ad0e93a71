"""Reductions of `nl` over the trailing free axes, and what is built on them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from nkireview.isa.enums import ReduceCmd
from nkireview.nki.allocate import allocate, tile
from nkireview.nki.dtypes import DType, of
from nkireview.nki.elementwise import reciprocal, rsqrt
from nkireview.nki.errors import Refusal
from nkireview.nki.lowering import (
    FP32,
    activated,
    axes_of,
    covers_row,
    instruction,
    need_number,
    need_tensor,
    paired,
    reduce,
    result_dtype,
    same_shape,
    scaled,
    spread,
    token,
)
from nkireview.nki.tensor import NkiTensor
from nkireview.nki.trace import current

BN_STATS_FMAX = "limits.bn_stats_free_max"
STATISTICS = 6  # nki/api/nki/isa/__init__.py:1943-1950: elements of a result of bn_stats


def reduction(name: str, op: str) -> Callable[..., NkiTensor]:
    """A reduction over the trailing free axes."""

    def apply(x: NkiTensor, axis: Any, dtype: Any = None, keepdims: bool = False) -> NkiTensor:
        what = f"nl.{name}"
        axes = axes_of(what, need_tensor(what, x), axis)
        return reduce(x, op, axes, result_dtype(what, dtype, x.dtype), keepdims)

    return apply


def every(x: NkiTensor, axis: Any, dtype: Any = None) -> NkiTensor:
    """``nl.all``: logical and over the trailing free axes."""
    return reduction("all", "logical_and")(x, axis, dtype)


def mean(x: NkiTensor, axis: Any, dtype: Any = None, keepdims: bool = False) -> NkiTensor:
    """The mean over the trailing free axes, summed in float32."""
    axes = axes_of("nl.mean", need_tensor("nl.mean", x), axis)
    return _mean(x, axes, result_dtype("nl.mean", dtype, x.dtype), keepdims)


def _mean(x: NkiTensor, axes: tuple[int, ...], kind: DType, keepdims: bool) -> NkiTensor:
    count = math.prod(x.shape[dim] for dim in axes)
    return scaled(reduce(x, "add", axes, FP32, keepdims), "multiply", 1.0 / count, kind)


def var(x: NkiTensor, axis: Any, dtype: Any = None, keepdims: bool = False) -> NkiTensor:
    """The variance over the trailing free axes, which are always kept as size 1; float32 inside.

    Over all of them it is bn_stats and bn_aggr, else the mean of the squared deviations.
    """
    axes = axes_of("nl.var", need_tensor("nl.var", x), axis)
    kind = result_dtype("nl.var", dtype, x.dtype)
    if covers_row(x, axes):
        return _row_variance(x, kind)
    deviation = paired(x, spread(_mean(x, axes, FP32, True), x.shape), "subtract", FP32)
    return _mean(paired(deviation, deviation, "multiply", FP32), axes, kind, True)


def _row_variance(x: NkiTensor, kind: DType) -> NkiTensor:
    step = int(current("nl.var").hardware.value(BN_STATS_FMAX))
    flat = x.reshape((x.shape[0], x.size // x.shape[0]))
    chunks = -(-flat.shape[1] // step)
    stats = tile(x, FP32, (x.shape[0], STATISTICS * chunks))
    for at in range(chunks):
        part = slice(STATISTICS * at, STATISTICS * (at + 1))
        stop = min((at + 1) * step, flat.shape[1])
        instruction("bn_stats")(dst=stats[:, part], data=flat[:, at * step : stop])
    both = tile(x, FP32, (x.shape[0], 2))
    instruction("bn_aggr")(dst=both, data=stats)
    dst = tile(x, kind, (x.shape[0], *(1,) * (x.ndim - 1)))
    instruction("tensor_copy")(dst=dst, src=both[:, 1:2])
    return dst


def softmax(x: NkiTensor, axis: Any = -1, dtype: Any = None) -> NkiTensor:
    """exp(x - max) / sum of it over the trailing free axes, float32 inside.

    Over all free axes the maximum is the bias of the activation, which also sums.
    """
    axes = axes_of("nl.softmax", need_tensor("nl.softmax", x), axis)
    kind = result_dtype("nl.softmax", dtype, x.dtype)
    if covers_row(x, axes):
        bias = _column(x)
        instruction("tensor_reduce")(dst=bias, op=token("maximum"), data=x, axis=axes, negate=True)
        powers, sums = _with_row_sum(x, "exp", FP32, bias=bias)
        return scaled(powers, "multiply", reciprocal(sums), kind)
    shifted = paired(x, spread(reduce(x, "maximum", axes, FP32, True), x.shape), "subtract", FP32)
    powers = activated(shifted, "exp", FP32)
    inverse = reciprocal(reduce(powers, "add", axes, FP32, True))
    return paired(powers, spread(inverse, x.shape), "multiply", kind)


def rms_norm(
    x: NkiTensor,
    w: NkiTensor,
    axis: Any,
    n: Any,
    epsilon: Any = 1e-6,
    dtype: Any = None,
    compute_dtype: Any = None,
) -> NkiTensor:
    """x / sqrt(sum(x^2) / n + epsilon) * w, over the trailing free axes.

    The statistics are float32; `compute_dtype` (float32 where it is None) is that of x / rms before it meets w.
    """
    what = "nl.rms_norm"
    axes = axes_of(what, need_tensor(what, x, "x"), axis)
    same_shape(what, x, w=need_tensor(what, w, "w"))
    if need_number(what, n, "n") <= 0:
        raise Refusal(f"{what}: n is {n}, expected the number of values in the mean")
    need_number(what, epsilon, "epsilon")
    kind = result_dtype(what, dtype, x.dtype)
    inner = FP32 if compute_dtype is None else of(compute_dtype, what)
    row = covers_row(x, axes)
    if row:
        _, sums = _with_row_sum(x, "square", inner)
    else:
        sums = reduce(activated(x, "square", FP32), "add", axes, FP32, True)
    inverse = rsqrt(scaled(sums, "multiply", 1.0 / n, FP32, op1=token("add"), operand1=float(epsilon)), FP32)
    if row:
        normal = scaled(x, "multiply", inverse, inner)
    else:
        normal = paired(x, spread(inverse, x.shape), "multiply", inner)
    return paired(normal, w, "multiply", kind)


def _with_row_sum(x: NkiTensor, op: str, kind: DType, **more: Any) -> tuple[NkiTensor, NkiTensor]:
    """An activation, and the float32 sum of each partition of it, of shape (P, 1)."""
    sums = _column(x)
    applied = activated(
        x, op, kind, reduce_op=token("add"), reduce_res=sums, reduce_cmd=ReduceCmd.reset_reduce, **more
    )
    return applied, sums


def _column(x: NkiTensor) -> NkiTensor:
    return allocate((x.shape[0], 1), FP32, what="nl")

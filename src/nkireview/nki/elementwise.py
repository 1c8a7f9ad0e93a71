"""Elementwise `nl` functions as the instructions they become."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from nkireview.isa.enums import Engine
from nkireview.isa.release import Release
from nkireview.nki.allocate import tile
from nkireview.nki.dtypes import DType
from nkireview.nki.errors import Refusal
from nkireview.nki.lowering import (
    FP32,
    INT32,
    UINT8,
    activated,
    cast,
    instruction,
    need_number,
    need_tensor,
    paired,
    result_dtype,
    same_shape,
    scaled,
    token,
)
from nkireview.nki.tensor import NkiTensor
from nkireview.nki.trace import current

RSQRT_ON_GPSIMD_SINCE = Release(0, 5)  # release notes 0.5: nl.rsqrt on GpSimd
BROADCASTING = ("abs_max", "abs_min")  # the stub's examples set a (128, 1) tile beside a (128, 512) one
PREDICATES = ("uint8", "uint16", "uint32")  # what tensor_copy_predicated takes
TURN_HIGH = 6.28125  # 2*pi in eight bits, so that its product with a count below 2^16 is exact
TURN_LOW = 2 * math.pi - TURN_HIGH
SINE_LIMIT = float(np.nextafter(np.float32(math.pi), np.float32(0)))


def binary(op: str) -> Callable[..., NkiTensor]:
    """An elementwise function of two tiles of one shape, or of a tile and a number."""

    def apply(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
        what = f"nl.{op}"
        if isinstance(x, NkiTensor) and isinstance(y, NkiTensor):
            return _of_tiles(what, op, x, y, result_dtype(what, dtype, x.dtype, y.dtype))
        if op == "power":
            raise Refusal(
                f"{what}: both sides must be tiles; a number as exponent is not supported on hardware"
            )
        if isinstance(x, NkiTensor):
            return scaled(x, op, need_number(what, y), result_dtype(what, dtype, x.dtype))
        if isinstance(y, NkiTensor):
            kind = result_dtype(what, dtype, y.dtype)
            return scaled(y, op, need_number(what, x), kind, reverse0=True)
        raise Refusal(f"{what}: one side must be a tensor, got {type(x).__name__} and {type(y).__name__}")

    return apply


def _of_tiles(what: str, op: str, x: NkiTensor, y: NkiTensor, kind: DType) -> NkiTensor:
    if x.shape == y.shape:
        return paired(x, y, op, kind)
    if op in BROADCASTING and y.shape == (x.shape[0], 1):
        return scaled(x, op, cast(y, FP32), kind)
    if op in BROADCASTING and x.shape == (y.shape[0], 1):
        return scaled(y, op, cast(x, FP32), kind, reverse0=True)
    raise Refusal(f"{what}: shapes {x.shape} and {y.shape} differ; nl functions do not broadcast")


def activation(op: str) -> Callable[..., NkiTensor]:
    """An elementwise function of the Scalar engine."""

    def apply(x: NkiTensor, dtype: Any = None) -> NkiTensor:
        need_tensor(f"nl.{op}", x)
        return activated(x, op, result_dtype(f"nl.{op}", dtype, x.dtype))

    return apply


def reciprocal(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """1/x on the Vector engine."""
    need_tensor("nl.reciprocal", x)
    dst = tile(x, result_dtype("nl.reciprocal", dtype, x.dtype))
    instruction("reciprocal")(dst=dst, data=x)
    return dst


def rsqrt(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """1/sqrt(x): GpSimd since 0.5, which takes no PSUM tile; the Scalar engine before."""
    need_tensor("nl.rsqrt", x)
    kind = result_dtype("nl.rsqrt", dtype, x.dtype)
    if current("nl.rsqrt").release < RSQRT_ON_GPSIMD_SINCE:
        return activated(x, "rsqrt", kind)
    return scaled(x, "rsqrt", 0.0, kind, engine=Engine.gpsimd)


def negative(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """-x."""
    need_tensor("nl.negative", x)
    return scaled(x, "multiply", -1.0, result_dtype("nl.negative", dtype, x.dtype))


def invert(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """Bitwise not, as XOR with all ones."""
    need_tensor("nl.invert", x)
    ones = -1 if x.dtype.startswith("int") else 2 ** (8 * x.itemsize) - 1
    return scaled(x, "bitwise_xor", ones, result_dtype("nl.invert", dtype, x.dtype))


def logical_not(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """XOR with 1: right for 0 and 1 only."""
    need_tensor("nl.logical_not", x)
    return scaled(x, "logical_xor", 1, result_dtype("nl.logical_not", dtype, x.dtype))


def sin(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """sin(x) after range reduction to [-pi, pi]."""
    need_tensor("nl.sin", x)
    return _sine(x, 0.0, result_dtype("nl.sin", dtype, x.dtype))


def cos(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """cos(x) as sin(x + pi/2) after range reduction."""
    need_tensor("nl.cos", x)
    return _sine(x, 0.25, result_dtype("nl.cos", dtype, x.dtype))


def tan(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """sin(x) times the reciprocal of cos(x)."""
    need_tensor("nl.tan", x)
    kind = result_dtype("nl.tan", dtype, x.dtype)
    return paired(_sine(x, 0.0, FP32), reciprocal(_sine(x, 0.25, FP32)), "multiply", kind)


def _sine(x: NkiTensor, phase: float, kind: DType) -> NkiTensor:
    """sin(x + 2*pi*phase), with the phase added after the whole turns are taken off."""
    turns = tile(x, INT32)
    instruction("tensor_scalar")(
        dst=turns,
        data=x,
        op0=token("multiply"),
        operand0=1 / (2 * math.pi),
        op1=token("add"),
        operand1=phase,
    )
    rest = x
    for part in (TURN_HIGH, TURN_LOW):
        rest = _two_steps(turns, "multiply", -part, "add", rest, FP32)
    if phase:
        rest = scaled(rest, "add", 2 * math.pi * phase, FP32)
    inside = scaled(rest, "minimum", SINE_LIMIT, FP32, op1=token("maximum"), operand1=-SINE_LIMIT)
    return activated(inside, "sin", kind)


def rounding(name: str) -> Callable[..., NkiTensor]:
    """ceil, floor or trunc: through int32 and back, corrected where that rounded the wrong way."""

    def apply(x: NkiTensor, dtype: Any = None) -> NkiTensor:
        what = f"nl.{name}"
        need_tensor(what, x)
        kind = result_dtype(what, dtype, x.dtype)
        if name != "trunc":
            return _round_towards(name, x, kind)
        whole = _round_towards("floor", scaled(x, "abs", 0.0, FP32), FP32)
        return paired(whole, activated(x, "sign", FP32), "multiply", kind)

    return apply


def _round_towards(name: str, x: NkiTensor, kind: DType) -> NkiTensor:
    """floor or ceil; beyond int32, where the cast saturates, every float32 is an integer and is kept."""
    wrong, step, outer = ("greater", "subtract", "minimum") if name == "floor" else ("less", "add", "maximum")
    inner = "maximum" if name == "floor" else "minimum"
    nearest = cast(x, INT32)
    corrected = paired(nearest, paired(nearest, x, wrong, FP32), step, FP32)
    bounded = paired(corrected, x, outer, FP32)
    return _two_steps(x, step, 1.0, inner, bounded, kind)


def _two_steps(
    data: NkiTensor, op0: str, operand0: float, op1: str, operand1: NkiTensor, kind: DType
) -> NkiTensor:
    dst = tile(data, kind)
    instruction("scalar_tensor_tensor")(
        dst=dst, data=data, op0=token(op0), operand0=operand0, op1=token(op1), operand1=operand1
    )
    return dst


def where(condition: NkiTensor, x: NkiTensor, y: NkiTensor, dtype: Any = None) -> NkiTensor:
    """x where the condition is 1.0, y where it is 0.0: a copy of y and a predicated copy of x.

    What is not chosen has no influence, NaN and infinities included.
    """
    what = "nl.where"
    for name, value in (("condition", condition), ("x", x), ("y", y)):
        need_tensor(what, value, name)
    same_shape(what, condition, x=x, y=y)
    kind = result_dtype(what, dtype, x.dtype, y.dtype)
    dst = tile(x, kind)
    instruction("tensor_copy")(dst=dst, src=y)
    predicate = condition if condition.dtype.name in PREDICATES else cast(condition, UINT8)
    instruction("tensor_copy_predicated")(dst=dst, src=cast(x, kind), predicate=predicate)
    return dst


def refused(name: str, instead: str) -> Callable[..., Any]:
    """A function that exists in the language but does not work on hardware."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise Refusal(f"nl.{name} is not supported on hardware; {instead}")

    return refuse

"""Elementwise functions of the legacy generation: broadcasting by NumPy's rule, numbers on either side, masks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from nkireview.isa import dtypes as table
from nkireview.isa.alu import BY_NAME as OPS
from nkireview.nki import elementwise
from nkireview.nki.dtypes import ALL, DType
from nkireview.nki.dtypes import of as dtype_of
from nkireview.nki.errors import Refusal
from nkireview.nki.legacy.broadcast import common, spread, together
from nkireview.nki.legacy.calls import BOOL, UINT8, as_bytes, computed, filling, fresh, record, tiled
from nkireview.nki.legacy.movement import copy, need
from nkireview.nki.legacy.operators import named
from nkireview.nki.legacy.promotion import kind_of, promoted, result
from nkireview.nki.legacy.tile import Tile
from nkireview.nki.lowering import is_number, token
from nkireview.nki.tensor import MemoryRegion

FP32, INT32 = ALL["float32"], ALL["int32"]
PSUM = MemoryRegion.psum
BOOLEAN = frozenset(
    {
        *("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"),
        *("logical_and", "logical_or", "logical_xor"),
    }
)
"""Functions whose dtype is bool unless another one is asked for."""
TRUTHS = {"bitwise_and": "logical_and", "bitwise_or": "logical_or", "bitwise_xor": "logical_xor"}
"""What a function of bits is on truth values."""
ON_GPSIMD = frozenset({"power"})
"""Operators of an engine that cannot reach PSUM."""


# two sides


def paired(op: str, x: Tile, y: Any, dtype: Any = None, mask: Any = None, *, dst: Tile | None = None) -> Tile:
    """An operator on two tiles, or a tile and a vector of one element a partition."""
    what = f"nl.{op}"
    need(what, y)
    kind = result(what, dtype, x, y)
    x, y = _operand(op, x), _operand(op, y)
    vector = y.ndim == 2 and x.ndim >= 2 and y.shape == (x.shape[0], 1) and x.shape != y.shape
    if vector and y.kind == FP32 and x.ndim == y.ndim:
        return _into(dst, kind, x.shape, "tensor_scalar", {"data": x, "op0": token(op), "operand0": y}, mask)
    turned = x.ndim == 2 and y.ndim == 2 and x.shape == (y.shape[0], 1) and x.shape != y.shape
    if turned and x.kind == FP32 and dst is None:
        given = {"data": y, "op0": token(op), "operand0": x, "reverse0": True}
        return _into(dst, kind, y.shape, "tensor_scalar", given, mask)
    if dst is not None:
        left, right, shape = x, spread(y, x.shape), x.shape
    else:
        (left, right), shape = together(what, x, y)
    if left.region is PSUM and right.region is PSUM:
        right = copy(right)
    return _into(dst, kind, shape, "tensor_tensor", {"data1": left, "data2": right, "op": token(op)}, mask)


def _operand(op: str, tile: Tile) -> Tile:
    """An operand as the operator takes it: truth values as bytes for operators on bits, SBUF for GpSimd."""
    if op in ON_GPSIMD and tile.region is PSUM:
        return copy(tile)
    return as_bytes(tile) if OPS[op].kind == "bitvec" else tile


def _into(
    dst: Tile | None, kind: Any, shape: tuple[int, ...], name: str, given: dict[str, Any], mask: Any
) -> Tile:
    if dst is None:
        return computed(name, given, None, mask, shape=shape, kind=kind)
    record(name, given, dst, mask)
    return dst


def _binary(op: str, x: Any, y: Any, dtype: Any, mask: Any) -> Tile:
    what = f"nl.{op}"
    sides = x, y
    if all(isinstance(side, Tile) and side.kind == BOOL for side in sides) and op in TRUTHS:
        op, dtype = TRUTHS[op], BOOL if dtype is None else dtype
    if op == "divide" and dtype is None and not any(_is_float(side) for side in sides):
        dtype = FP32
    for side in sides:
        if kind_of(side) is None:
            raise Refusal(f"{what}: expected tiles or numbers, got {type(side).__name__}")
    if not any(isinstance(side, Tile) for side in sides):
        raise Refusal(f"{what}: one side must be a tile, got two numbers")
    if isinstance(x, Tile) and isinstance(y, Tile):
        return paired(op, x, y, dtype, mask)
    kind = result(what, dtype, x, y)
    tile, number = (x, y) if isinstance(x, Tile) else (y, x)
    given = {"data": _operand(op, tile), "op0": token(op), "operand0": _scalar(number)}
    if tile is y:
        given["reverse0"] = True
    return computed("tensor_scalar", given, None, mask, kind=kind)


def _scalar(number: Any) -> Any:
    return int(number) if isinstance(number, bool | np.bool_) else tiled(number)


def binary(op: str) -> Callable[..., Any]:
    """An elementwise function of two tiles, or of a tile and a number."""
    if op in BOOLEAN:

        def truth(x: Any, y: Any, *, dtype: Any = bool, mask: Any = None, **kwargs: Any) -> Any:
            return _binary(op, x, y, bool if dtype is None else dtype, mask)

        return named(truth, f"nl.{op}", f"{op} of x and y, element by element.")

    def apply(x: Any, y: Any, *, dtype: Any = None, mask: Any = None, **kwargs: Any) -> Any:
        return _binary(op, x, y, dtype, mask)

    return named(apply, f"nl.{op}", f"{op} of x and y, element by element.")


def remainder(op: str) -> Callable[..., Any]:
    """``nl.mod`` or ``nl.fmod``, whose dtype and mask also come by position."""

    def apply(x: Any, y: Any, dtype: Any = None, mask: Any = None, **kwargs: Any) -> Any:
        return _binary(op, x, y, dtype, mask)

    return named(apply, f"nl.{op}", f"{op} of x and y, element by element.")


def _is_float(side: Any) -> bool:
    kind = kind_of(side)
    return kind is not None and table.BY_NAME[kind.name].kind == "float"


# one side


def activation(op: str) -> Callable[..., Any]:
    """An elementwise function of the Scalar engine."""

    def apply(x: Any, *, dtype: Any = None, mask: Any = None, **kwargs: Any) -> Tile:
        need(f"nl.{op}", x)
        return computed("activation", {"op": token(op), "data": x}, dtype, mask)

    return named(apply, f"nl.{op}", f"{op} of each element, on the Scalar engine.")


def negative(x: Any, *, dtype: Any = None, mask: Any = None, **kwargs: Any) -> Tile:
    """-x."""
    need("nl.negative", x)
    return _scaled(x, "multiply", -1.0, result("nl.negative", dtype, x), mask)


def reciprocal(x: Any, *, dtype: Any = None, mask: Any = None, **kwargs: Any) -> Tile:
    """1/x."""
    need("nl.reciprocal", x)
    return computed("reciprocal", {"data": x}, dtype, mask)


def invert(x: Any, *, dtype: Any = None, mask: Any = None, **kwargs: Any) -> Tile:
    """Every bit turned over; of truth values the other one."""
    need("nl.invert", x)
    if x.kind == BOOL:
        return logical_not(x, dtype=bool if dtype is None else dtype, mask=mask)
    return _scaled(x, "invert", 0, result("nl.invert", dtype, x), mask)


def logical_not(x: Any, *, dtype: Any = bool, mask: Any = None, **kwargs: Any) -> Tile:
    """1 where x is 0, else 0."""
    need("nl.logical_not", x)
    return _scaled(x, "logical_not", 0.0, dtype_of(bool if dtype is None else dtype, "nl.logical_not"), mask)


def _scaled(x: Tile, op: str, operand: Any, kind: DType, mask: Any, **more: Any) -> Tile:
    given = {"data": x, "op0": token(op), "operand0": operand, **more}
    return computed("tensor_scalar", given, None, mask, kind=kind)


def _two_steps(x: Tile, op0: str, operand0: float, op1: str, operand1: Tile, kind: DType, mask: Any) -> Tile:
    given = {"data": x, "op0": token(op0), "operand0": operand0, "op1": token(op1), "operand1": operand1}
    return computed("scalar_tensor_tensor", given, None, mask, kind=kind)


# through whole numbers


def rounding(name: str) -> Callable[..., Any]:
    """ceil, floor or trunc: through int32 and back, corrected where that rounded the wrong way."""
    what = f"nl.{name}"

    def apply(x: Any, *, dtype: Any = None, mask: Any = None, **kwargs: Any) -> Tile:
        need(what, x)
        kind = result(what, dtype, x)
        if name != "trunc":
            return _towards(name, x, kind, mask)
        whole = _towards("floor", _scaled(x, "abs", 0.0, FP32, mask), FP32, mask)
        sign = computed("activation", {"op": token("sign"), "data": x}, FP32, mask)
        return paired("multiply", whole, sign, kind, mask)

    return named(apply, what, f"{name} of each element.")


def _towards(name: str, x: Tile, kind: DType, mask: Any) -> Tile:
    """floor or ceil; beyond int32, where the cast saturates, every float32 is an integer and is kept."""
    down = name == "floor"
    wrong, step, outer = ("greater", "subtract", "minimum") if down else ("less", "add", "maximum")
    inner = "maximum" if down else "minimum"
    nearest = computed("tensor_copy", {"src": x}, INT32, mask)
    corrected = paired(step, nearest, paired(wrong, nearest, x, FP32, mask), FP32, mask)
    bounded = paired(outer, corrected, x, FP32, mask)
    return _two_steps(x, step, 1.0, inner, bounded, kind, mask)


# angles


def cos(x: Any, *, dtype: Any = None, mask: Any = None, **kwargs: Any) -> Tile:
    """cos(x) as sin(x + pi/2), after whole turns are taken off."""
    need("nl.cos", x)
    return _sine(x, 0.25, result("nl.cos", dtype, x), mask)


def tan(x: Any, *, dtype: Any = None, mask: Any = None, **kwargs: Any) -> Tile:
    """sin(x) times the reciprocal of cos(x), after whole turns are taken off."""
    need("nl.tan", x)
    inverse = reciprocal(_sine(x, 0.25, FP32, mask), mask=mask)
    return paired("multiply", _sine(x, 0.0, FP32, mask), inverse, result("nl.tan", dtype, x), mask)


def _sine(x: Tile, phase: float, kind: DType, mask: Any) -> Tile:
    """sin(x + 2*pi*phase), with the phase added after the whole turns are taken off."""
    turn = 1 / (2 * math.pi)
    turns = _scaled(x, "multiply", turn, INT32, mask, op1=token("add"), operand1=phase)
    rest = x
    for part in (elementwise.TURN_HIGH, elementwise.TURN_LOW):
        rest = _two_steps(turns, "multiply", -part, "add", rest, FP32, mask)
    if phase:
        rest = _scaled(rest, "add", 2 * math.pi * phase, FP32, mask)
    limit = elementwise.SINE_LIMIT
    inside = _scaled(rest, "minimum", limit, FP32, mask, op1=token("maximum"), operand1=-limit)
    return computed("activation", {"op": token("sin"), "data": inside}, kind, mask)


# choices


def where(condition: Any, x: Any, y: Any, *, dtype: Any = None, mask: Any = None, **kwargs: Any) -> Tile:
    """x where the condition holds, y elsewhere: a fill or copy of y and a predicated copy of x."""
    what = "nl.where"
    need(what, condition, "condition")
    x, y = tiled(x), tiled(y)
    tiles = [side for side in (x, y) if isinstance(side, Tile)]
    for name, side in (("x", x), ("y", y)):
        if not isinstance(side, Tile) and not is_number(side):
            raise Refusal(f"{what}: {name} must be a tile or a number, got {type(side).__name__}")
    kind = (
        dtype_of(dtype, what) if dtype is not None else promoted(*([tile.kind for tile in tiles] or [FP32]))
    )
    shape = common(what, condition.shape, *(tile.shape for tile in tiles))
    predicate = spread(_predicate(condition, mask), shape)
    dst = fresh(shape, kind)
    if isinstance(y, Tile):
        record("tensor_copy", {"src": spread(y, shape)}, dst, mask)
    else:
        record("memset", {"value": filling(kind, y)}, dst, mask)
    chosen = x
    if isinstance(x, Tile):
        chosen = spread(x if x.kind == kind else copy(x, dtype=kind, mask=mask), shape)
        if chosen.region is PSUM and predicate.region is PSUM:
            chosen = copy(chosen, mask=mask)
    record("tensor_copy_predicated", {"src": chosen, "predicate": predicate}, dst, mask)
    dst.result = None
    return dst


def _predicate(condition: Tile, mask: Any) -> Tile:
    """The condition in a dtype that an instruction takes for one."""
    condition = as_bytes(condition)
    if condition.kind.name in elementwise.PREDICATES:
        return condition
    return _scaled(condition, "not_equal", 0.0, UINT8, mask)

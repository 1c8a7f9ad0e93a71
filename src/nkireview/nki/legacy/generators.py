"""Instructions of the legacy generation that take index expressions or shapes: iota, affine_select, memset."""

from __future__ import annotations

from typing import Any

import numpy as np

from nkireview.nki.dtypes import of as dtype_of
from nkireview.nki.errors import Refusal
from nkireview.nki.legacy import masks
from nkireview.nki.legacy.calls import computed, filling, fresh, record
from nkireview.nki.legacy.symbols import Mask, Symbol
from nkireview.nki.legacy.tile import Tile
from nkireview.nki.lowering import is_number, token


def iota(given: dict[str, Any], dtype: Any, mask: Any) -> Tile:
    """A tile of the integers that an index expression stands for."""
    expr = given.get("expr")
    if not isinstance(expr, Symbol):
        raise Refusal(f"iota: expr must be an index expression of nl.arange, got {type(expr).__name__}")
    if expr.ndim < 2:
        raise Refusal("iota: expr has one dimension, expected two or more: write nl.arange(n)[:, None]")
    dst = fresh(expr.shape, dtype_of(dtype, "iota"))
    record("iota", pattern(expr, "iota: expr", mask), dst, mask)
    return dst


def pattern(expr: Symbol, what: str, mask: Any) -> dict[str, Any]:
    """An index expression, or the part of it that a mask leaves, as the arguments of an instruction.

    Refusal where it is not affine.
    """
    where = masks.taken(mask, what)
    if isinstance(where, Mask) and not (left := masks.restriction(where, expr.shape)).empty:
        expr = expr[tuple(slice(start, stop) for start, stop in left.ranges)]
    if expr.table is not None:
        raise Refusal(f"{what} must be affine: sums of nl.arange, of its multiples and of integers")
    free = list(zip(expr.coefficients[1:], expr.shape[1:], strict=True))
    return {
        "pattern": [[step, size] for step, size in free],
        "offset": expr.base,
        "channel_multiplier": expr.coefficients[0],
    }


def affine_select(given: dict[str, Any], dtype: Any, mask: Any) -> Tile:
    """on_true_tile where a comparison of index expressions holds, a number elsewhere."""
    pred, on_true_tile, number = given.get("pred"), given.get("on_true_tile"), given.get("on_false_value")
    what = "affine_select"
    if not isinstance(on_true_tile, Tile):
        raise Refusal(f"{what}: on_true_tile must be a tile, got {type(on_true_tile).__name__}")
    if not is_number(number):
        raise Refusal(f"{what}: on_false_value must be a number, got {type(number).__name__}")
    source = on_true_tile
    kind = source.kind if dtype is None else dtype_of(dtype, what)
    if isinstance(pred, bool | np.bool_):
        if pred:
            return computed("tensor_copy", {"src": source}, kind, mask)
        dst = fresh(source.shape, kind)
        record("memset", {"value": filling(kind, number)}, dst, mask)
        return dst
    if not isinstance(pred, Mask):
        raise Refusal(f"{what}: pred must be a comparison of index expressions, got {type(pred).__name__}")
    for atom, compare in comparisons(pred):
        call = pattern(atom.expanded(source.shape), f"{what}: pred", mask)
        call.update(on_true_tile=source, on_false_value=number, cmp_op=token(compare))
        source = computed(what, call, kind, mask)
    return source


def comparisons(pred: Mask) -> list[tuple[Symbol, str]]:
    """The comparisons with 0 that a predicate is: an equality is one, a conjunction is refused."""
    atoms = list(pred.atoms)
    if len(atoms) == 2 and _opposite(*atoms):
        return [(atoms[0], "equal")]
    if len(atoms) > 1:
        raise Refusal("affine_select: pred must be one comparison, not several joined by &; use nl.where")
    return [(atoms[0], "greater_equal")]


def _opposite(left: Symbol, right: Symbol) -> bool:
    """True for the two halves of an equality: each is the other times -1."""
    return (
        left.table is None
        and right.table is None
        and left.shape == right.shape
        and left.base == -right.base
        and left.coefficients == tuple(-step for step in right.coefficients)
    )


def memset(given: dict[str, Any], dtype: Any, mask: Any) -> Tile:
    """A tile filled with a number, which is cast to the dtype."""
    shape, number = given.pop("shape"), given.pop("value", None)
    sizes = tuple(int(size) for size in (shape if isinstance(shape, list | tuple) else (shape,)))
    kind = dtype_of(dtype, "memset")
    if not is_number(number):
        raise Refusal(f"memset: value must be a number, got {type(number).__name__}")
    dst = fresh(sizes, kind)
    record("memset", {"value": filling(kind, number), **given}, dst, mask)
    return dst

"""The namespace ``neuronxcc.nki.isa``: value-returning functions for the rows that have a legacy form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nkireview.isa.enums import Engine
from nkireview.isa.release import LEGACY
from nkireview.isa.table import ROWS
from nkireview.nki.dtypes import of as dtype_of
from nkireview.nki.errors import Refusal
from nkireview.nki.isa import get_nc_version
from nkireview.nki.legacy import calls
from nkireview.nki.legacy.calls import computed, fresh, function, record
from nkireview.nki.legacy.symbols import Mask, Symbol
from nkireview.nki.legacy.tile import Tile
from nkireview.nki.lowering import token
from nkireview.nki.recorders import ENUMS, NkiInstruction


def iota(expr: Any, dtype: Any, *, mask: Any = None, **ignored: Any) -> Tile:
    """A tile of the integers that an index expression stands for."""
    if not isinstance(expr, Symbol):
        raise Refusal(f"iota: expr must be an index expression of nl.arange, got {type(expr).__name__}")
    if expr.ndim < 2:
        raise Refusal("iota: expr has one dimension, expected two or more: write nl.arange(n)[:, None]")
    if expr.table is not None:
        raise Refusal("iota: expr must be affine in nl.arange")
    dst = fresh(expr.shape, dtype_of(dtype, "iota"))
    record("iota", _pattern(expr), dst, mask)
    return dst


def _pattern(expr: Symbol) -> dict[str, Any]:
    free = list(zip(expr.coefficients[1:], expr.shape[1:], strict=True))
    return {
        "pattern": [[step, size] for step, size in free],
        "offset": expr.base,
        "channel_multiplier": expr.coefficients[0],
    }


def affine_select(
    pred: Any,
    on_true_tile: Tile,
    on_false_value: Any,
    *,
    mask: Any = None,
    dtype: Any = None,
    **ignored: Any,
) -> Tile:
    """on_true_tile where a comparison of index expressions holds, a number elsewhere."""
    source = on_true_tile
    kind = source.kind if dtype is None else dtype_of(dtype, "affine_select")
    if isinstance(pred, bool | np.bool_):
        if pred:
            return computed("tensor_copy", {"src": source}, kind, mask)
        dst = fresh(source.shape, kind)
        record("memset", {"value": calls.tiled(on_false_value)}, dst, mask)
        return dst
    if not isinstance(pred, Mask):
        raise Refusal(
            f"affine_select: pred must be a comparison of index expressions, got {type(pred).__name__}"
        )
    for atom in pred.atoms:
        given = _pattern(atom.expanded(source.shape))
        given.update(on_true_tile=source, on_false_value=calls.tiled(on_false_value))
        given["cmp_op"] = token("greater_equal")
        source = computed("affine_select", given, kind, mask)
    return source


def memset(
    shape: Any, value: Any, dtype: Any, *, mask: Any = None, engine: Any = None, **ignored: Any
) -> Tile:
    """A tile filled with a number."""
    sizes = tuple(int(size) for size in (shape if isinstance(shape, list | tuple) else (shape,)))
    kind = dtype_of(dtype, "memset")
    dst = fresh(sizes, kind)
    number = calls.tiled(value)
    whole = not kind.name.startswith(("float", "bfloat", "tfloat"))
    given: dict[str, Any] = {"value": int(number) if whole else float(number)}
    if engine is not None:
        given["engine"] = engine
    record("memset", given, dst, mask)
    return dst


def dma_copy(*, dst: Tile, src: Tile, mask: Any = None, dst_rmw_op: Any = None, **more: Any) -> None:
    """Copy or add a tensor to another."""
    given = {"src": src, **{key: value for key, value in more.items() if value is not None}}
    if dst_rmw_op is not None:
        given["dst_rmw_op"] = calls.operator(dst_rmw_op)
    record("dma_copy", given, dst, mask)
    dst.result = None


def dropout(data: Tile, prob: Any, *, mask: Any = None, dtype: Any = None, **ignored: Any) -> Tile:
    """The tile with elements set to zero at random."""
    return computed("dropout", {"data": data, "prob": calls.tiled(prob)}, dtype, mask)


def tensor_reduce(
    op: Any,
    data: Tile,
    axis: Any,
    *,
    mask: Any = None,
    dtype: Any = None,
    negate: bool = False,
    keepdims: bool = False,
    **ignored: Any,
) -> Tile:
    """A reduction over free dimensions."""
    axes = calls.axes_of(axis, data.ndim, "tensor_reduce")
    given = {"op": calls.operator(op), "data": data, "axis": axes, "negate": negate, "keepdims": keepdims}
    shape = tuple(
        1 if dim in axes else size for dim, size in enumerate(data.shape) if keepdims or dim not in axes
    )
    return computed("tensor_reduce", given, dtype, mask, shape=shape or (data.shape[0],), axes=axes)


def namespace() -> dict[str, Any]:
    """Everything a kernel finds in ``neuronxcc.nki.isa``."""
    found: dict[str, Callable[..., Any]] = {
        name: function(row)
        for name, row in ROWS.items()
        if row.namespace == "nki.isa" and (row.legacy is not None or LEGACY in row.releases)
    }
    for call in (iota, affine_select, memset, dma_copy, dropout, tensor_reduce):
        found[call.__name__] = call
    found.update({f"{engine.name}_engine": engine for engine in Engine})  # type: ignore[misc]
    members: dict[str, Any] = {
        **found,
        **ENUMS,
        "get_nc_version": get_nc_version,
        "NkiInstruction": NkiInstruction,
    }
    return members

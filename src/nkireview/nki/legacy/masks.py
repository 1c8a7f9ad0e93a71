"""From masks to the parts of operands that an instruction works on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from nkireview.nki.errors import NotYetSupported, Refusal
from nkireview.nki.legacy.state import MATMULS
from nkireview.nki.legacy.symbols import Form, Ints, Mask, Symbol
from nkireview.nki.legacy.tile import Restriction, Tile, fitted

Shape = tuple[int, ...]
Inequality = tuple[tuple[int, ...], int]
"""Coefficients for each dimension, and a constant: their sum over a position is at least 0."""
TRANSPOSES = ("nc_transpose",)
REDUCTIONS = ("tensor_reduce",)


def taken(mask: Any, what: str) -> Mask | bool:
    """A mask as it was given: True for none."""
    if mask is None or mask is True or isinstance(mask, np.bool_ | bool):
        return mask is None or bool(mask)
    if isinstance(mask, Mask):
        return mask
    raise Refusal(
        f"{what}: mask must be a comparison of index expressions, or several joined by &, got {type(mask).__name__}"
    )


def restriction(mask: Mask, shape: Shape) -> Restriction:
    """What a mask leaves of a tile of this shape."""
    return left(mask, shape) or Restriction(tuple((0, size) for size in shape))


def left(mask: Mask, shape: Shape) -> Restriction | None:
    """What a mask leaves of a tile of this shape, None for all of it."""
    ranges: list[tuple[int, int]] | None = None
    bounds: list[Inequality] = []
    for atom in mask.atoms:
        form = _fitted(atom.form, shape)
        if atom.table is not None:
            ranges = ranges or [(0, size) for size in shape]
            lead = max(0, atom.ndim - len(shape))
            _by_values(np.broadcast_to(atom.table.reshape(atom.shape[lead:]), shape), ranges)
        elif atom.base + form.high < 0:
            return Restriction(tuple((0, 0) for _ in shape))
        elif atom.base + form.low < 0:
            ranges = ranges or [(0, size) for size in shape]
            bounds.append((form.coefficients, atom.base))
    if ranges is None:
        return None
    while True:
        before = list(ranges)
        for bound in bounds:
            _narrow(ranges, bound)
        found = Restriction(tuple(ranges))
        if found.empty or ranges == before:
            break
    left = tuple(bound for bound in bounds if _lowest(bound, ranges) < 0)
    found = Restriction(tuple(ranges), left)
    if found.empty or (len(left) > 1 and not found.kept().any()):
        return Restriction(tuple((0, 0) for _ in shape))
    return found


def _narrow(ranges: list[tuple[int, int]], bound: Inequality) -> None:
    """Leave out of each dimension what no place of the others makes true."""
    steps, constant = bound
    if any(stop <= start for start, stop in ranges):
        return
    highest = constant + sum(
        max(step * start, step * (stop - 1)) for step, (start, stop) in zip(steps, ranges, strict=True)
    )
    for dim, step in enumerate(steps):
        if not step:
            continue
        start, stop = ranges[dim]
        # step * i + rest >= 0 with the best of the other dimensions
        rest = highest - max(step * start, step * (stop - 1))
        ranges[dim] = (
            (max(start, -(rest // step)), stop) if step > 0 else (start, min(stop, rest // -step + 1))
        )


def _lowest(bound: Inequality, ranges: list[tuple[int, int]]) -> int:
    steps, constant = bound
    return constant + sum(
        min(step * start, step * (stop - 1)) for step, (start, stop) in zip(steps, ranges, strict=True)
    )


@lru_cache(1 << 14)
def _fitted(form: Form, shape: Shape) -> Form:
    """A comparison over the dimensions of a tile, leading dimensions of size 1 left out."""
    found = Symbol(form, 0)
    while found.ndim > len(shape) and found.shape[0] == 1:
        found = found[0]
    try:
        return found.expanded(shape).form
    except Refusal:
        raise Refusal(
            f"a mask of shape {form.shape} does not fit a tile of shape {shape}: each comparison restricts the "
            "dimensions of the tile"
        ) from None


def _by_values(values: Ints, ranges: list[tuple[int, int]]) -> None:
    """Narrow the ranges by a comparison that is not affine, where it leaves a box."""
    held = values >= 0
    box = []
    for dim in range(held.ndim):
        others = tuple(axis for axis in range(held.ndim) if axis != dim)
        there = np.flatnonzero(held.any(axis=others))
        box.append((int(there[0]), int(there[-1]) + 1) if len(there) else (0, 0))
    if held.sum() != math.prod(stop - start for start, stop in box):
        raise Refusal(
            "a mask is a conjunction of affine comparisons, this one divides or multiplies index expressions and "
            "leaves no box"
        )
    for dim, (start, stop) in enumerate(box):
        ranges[dim] = (max(ranges[dim][0], start), min(ranges[dim][1], stop))


def parts(
    row: str, dst: Tile | None, reads: Mapping[str, Tile], mask: Mask, axes: tuple[int, ...] = ()
) -> tuple[Restriction | None, dict[str, Restriction | None]]:
    """What a mask leaves of the result and of each operand. axes: those that a reduction reduces."""
    if row in MATMULS:
        return _of_matmul(reads, mask)
    domain = _domain(row, dst, reads)
    whole = left(mask, domain.shape)
    if whole is None:
        return None, dict.fromkeys(reads)
    found = {name: _for(tile, domain.shape, whole) for name, tile in reads.items()}
    if dst is None:
        return None, found
    if row in TRANSPOSES:
        first, *free = whole.ranges
        return Restriction((free[0], first)), found
    if row in REDUCTIONS:
        if whole.bounds:
            raise NotYetSupported("a reduction with a mask that leaves no box")
        kept = [part for dim, part in enumerate(whole.ranges) if dim not in axes]
        if len(kept) < dst.ndim:
            kept = [(0, 1) if dim in axes else part for dim, part in enumerate(whole.ranges)][: dst.ndim]
        return Restriction(tuple(kept)), found
    return _for(dst, domain.shape, whole), found


def _domain(row: str, dst: Tile | None, reads: Mapping[str, Tile]) -> Tile:
    for name in ("data", "data1", "data0", "src", "on_true_tile", "on_true"):
        if name in reads:
            return reads[name]
    if dst is not None:
        return dst
    raise Refusal(f"{row}: mask is given, but no tile that it could restrict")


def _for(tile: Tile, domain: Shape, whole: Restriction) -> Restriction | None:
    """The restriction of an operand of another shape: of the same elements, or of the same partitions."""
    shape = tile.shape
    if shape == domain:
        return whole
    same = fitted(whole, domain, shape)
    if same is not None:
        return same
    if shape and shape[0] == domain[0]:
        return Restriction((whole.ranges[0], *((0, size) for size in shape[1:])))
    return None


def _of_matmul(
    reads: Mapping[str, Tile], mask: Mask | None
) -> tuple[Restriction | None, dict[str, Restriction | None]]:
    """The contraction dimension by the mask of the call, the others by masks of the operands."""
    left, right = reads["stationary"], reads["moving"]
    sizes = {"k": (0, left.shape[0]), "m": (0, left.shape[1]), "n": (0, right.shape[-1])}
    ranges = dict(sizes)
    for tile, free in ((left, "m"), (right, "n")):
        if tile.mask is not None:
            own = restriction(tile.mask, (tile.shape[0], tile.shape[-1]))
            _boxed(own)
            ranges["k"], ranges[free] = _both(ranges["k"], own.ranges[0]), own.ranges[1]
    for atom in () if mask is None else mask.atoms:
        for name, kept in _of_axes(atom, sizes):
            ranges[name] = _both(ranges[name], kept)
    k, m, n = ranges["k"], ranges["m"], ranges["n"]
    middle = tuple((0, size) for size in right.shape[1:-1])
    return (
        Restriction((m, *middle, n)),
        {"stationary": Restriction((k, m)), "moving": Restriction((k, *middle, n))},
    )


def _of_axes(atom: Symbol, ranges: Mapping[str, tuple[int, int]]) -> list[tuple[str, tuple[int, int]]]:
    """What a comparison in the mask of a matmul leaves of contraction k, rows m and columns n.

    One of three dimensions has an axis for each; one of two has the contraction first, and as its other dimension the
    one of m and n that has its size.
    """
    sizes = {name: stop for name, (_, stop) in ranges.items()}
    one = Mask((atom,))
    if atom.ndim == 3:
        own = restriction(one, tuple(sizes.values()))
        _boxed(own)
        return list(zip(sizes, own.ranges, strict=True))
    if atom.table is not None or not any(atom.coefficients[1:]):
        return [("k", restriction(one, (sizes["k"], 1)).ranges[0])]
    fitting = [name for name in ("m", "n") if sizes[name] == atom.shape[-1]]
    if len(fitting) != 1 or any(atom.coefficients[:-1]):
        raise Refusal(
            "nc_matmul: mask cannot tell the free dimensions of stationary and moving apart; mask the operands, as in "
            "stationary[i_m < m]"
        )
    return [(fitting[0], restriction(one, (1, sizes[fitting[0]])).ranges[1])]


def matmul_parts(
    reads: Mapping[str, Tile], mask: Mask | None
) -> tuple[Restriction | None, dict[str, Restriction | None]]:
    """The parts of a matmul whose operands have masks of their own."""
    return _of_matmul(reads, mask)


def _both(left: tuple[int, int], right: tuple[int, int]) -> tuple[int, int]:
    return max(left[0], right[0]), min(left[1], right[1])


def _boxed(part: Restriction) -> None:
    if part.bounds:
        raise NotYetSupported("an operand of a matmul with a mask that leaves no box")

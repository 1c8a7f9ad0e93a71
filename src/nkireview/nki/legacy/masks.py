"""From masks to the parts of operands that an instruction works on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from nkireview.nki.errors import NotYetSupported, Refusal
from nkireview.nki.legacy.symbols import Mask, Symbol
from nkireview.nki.legacy.tile import Restriction, Tile

Shape = tuple[int, ...]
MATMULS = ("nc_matmul",)
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
    ranges = [(0, size) for size in shape]
    bounds: list[tuple[tuple[int, ...], int]] = []
    for atom in mask.atoms:
        each = _fitted(atom, shape)
        if each.table is not None:
            _by_values(each, ranges)
            continue
        used = [dim for dim, step in enumerate(each.coefficients) if step]
        low, high = each.extent()
        if low >= 0:
            continue
        if high < 0:
            return Restriction(tuple((0, 0) for _ in shape))
        if len(used) == 1:
            dim, step = used[0], each.coefficients[used[0]]
            start, stop = ranges[dim]
            # step * i + base >= 0
            ranges[dim] = (
                (max(start, -(each.base // step)), stop)
                if step > 0
                else (start, min(stop, each.base // -step + 1))
            )
        else:
            bounds.append((each.coefficients, each.base))
    return Restriction(tuple(ranges), tuple(bounds))


def _fitted(atom: Symbol, shape: Shape) -> Symbol:
    """A comparison over the dimensions of a tile, leading dimensions of size 1 left out."""
    while atom.ndim > len(shape) and atom.shape[0] == 1:
        atom = atom[0]
    try:
        return atom.expanded(shape)
    except Refusal:
        raise Refusal(
            f"a mask of shape {atom.shape} does not fit a tile of shape {shape}: each comparison restricts the "
            "dimensions of the tile"
        ) from None


def _by_values(atom: Symbol, ranges: list[tuple[int, int]]) -> None:
    """Narrow the ranges by a comparison that is not affine, where it leaves a box."""
    held = atom.values() >= 0
    box = []
    for dim in range(held.ndim):
        others = tuple(axis for axis in range(held.ndim) if axis != dim)
        there = np.flatnonzero(held.any(axis=others))
        box.append((int(there[0]), int(there[-1]) + 1) if len(there) else (0, 0))
    if held.sum() != np.prod([stop - start for start, stop in box]):
        raise NotYetSupported("a mask of index expressions that are not affine and leave no box")
    for dim, (start, stop) in enumerate(box):
        ranges[dim] = (max(ranges[dim][0], start), min(ranges[dim][1], stop))


def parts(
    row: str, dst: Tile | None, reads: Mapping[str, Tile], mask: Mask, axes: tuple[int, ...] = ()
) -> tuple[Restriction | None, dict[str, Restriction | None]]:
    """What a mask leaves of the result and of each operand. axes: those that a reduction reduces."""
    if row in MATMULS:
        return _of_matmul(reads, mask)
    domain = _domain(row, dst, reads)
    whole = restriction(mask, domain.shape)
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
    if tuple(size for size in shape if size != 1) == tuple(size for size in domain if size != 1):
        kept = iter(part for part, size in zip(whole.ranges, domain, strict=True) if size != 1)
        if whole.bounds:
            raise NotYetSupported("a mask that leaves no box, on operands of different ranks")
        return Restriction(tuple((0, 1) if size == 1 else next(kept) for size in shape))
    if shape and shape[0] == domain[0]:
        return Restriction((whole.ranges[0], *((0, size) for size in shape[1:])))
    return None


def _of_matmul(
    reads: Mapping[str, Tile], mask: Mask | None
) -> tuple[Restriction | None, dict[str, Restriction | None]]:
    """The contraction dimension by the mask of the call, the others by masks of the operands."""
    left, right = reads["stationary"], reads["moving"]
    ranges = {"k": (0, left.shape[0]), "m": (0, left.shape[1]), "n": (0, right.shape[-1])}
    for tile, free in ((left, "m"), (right, "n")):
        if tile.mask is not None:
            own = restriction(tile.mask, (tile.shape[0], tile.shape[-1]))
            _boxed(own)
            ranges["k"], ranges[free] = _both(ranges["k"], own.ranges[0]), own.ranges[1]
    for atom in () if mask is None else mask.atoms:
        steps = atom.coefficients
        if atom.table is None and any(steps[1:]):
            size = atom.shape[-1]
            sides = {"m": left.shape[1], "n": right.shape[-1]}
            fitting = [name for name, length in sides.items() if length == size]
            if len(fitting) != 1 or any(steps[:-1]):
                raise Refusal(
                    "nc_matmul: mask cannot tell the free dimensions of stationary and moving apart; mask the "
                    "operands, as in stationary[i_m < m]"
                )
            own = restriction(Mask((atom[0] if atom.ndim > 1 else atom,)), (size,))
            ranges[fitting[0]] = _both(ranges[fitting[0]], own.ranges[0])
            continue
        own = restriction(Mask((atom,)), (left.shape[0], 1))
        ranges["k"] = _both(ranges["k"], own.ranges[0])
    k, m, n = ranges["k"], ranges["m"], ranges["n"]
    middle = tuple((0, size) for size in right.shape[1:-1])
    return (
        Restriction((m, *middle, n)),
        {"stationary": Restriction((k, m)), "moving": Restriction((k, *middle, n))},
    )


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

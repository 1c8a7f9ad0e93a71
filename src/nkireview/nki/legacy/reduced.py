"""``nl.loop_reduce``: a tile that the passes of some loops combine, whether each pass assigns it or a name holds it.

A sum of one call belongs to the passes of its loops, of all loops inside them that it does not reduce over, and to the
how-manyth call it is in its pass. An element is taken over the first time that a mask leaves it, combined afterwards.
Source: nki/api/nki/language/__init__.py:990-1031 at tag v2.26.1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.isa.alu import BY_NAME as OPS
from nkireview.nki.errors import Refusal
from nkireview.nki.legacy import masks
from nkireview.nki.legacy.calls import computed, fresh, record
from nkireview.nki.legacy.elementwise import paired
from nkireview.nki.legacy.loops import LoopIndex, running
from nkireview.nki.legacy.operators import operator
from nkireview.nki.legacy.promotion import result
from nkireview.nki.legacy.state import boxes
from nkireview.nki.legacy.symbols import Mask
from nkireview.nki.legacy.tile import Restriction, Result, Tile, fitted_view
from nkireview.nki.lowering import token
from nkireview.nki.tensor import MemoryRegion, NkiTensor
from nkireview.nki.trace import Trace, current

WHAT = "nl.loop_reduce"
Held = NDArray[np.bool_]


@dataclass(eq=False)
class Total:
    """Where a reduction keeps what the passes gave so far, and which elements that is."""

    tile: Tile
    held: Held


@dataclass(eq=False)
class Site:
    """The reductions of one call in the kernel's text, while their outermost loop runs."""

    loop: int
    calls: Counter[Hashable] = field(default_factory=Counter)
    totals: dict[Hashable, Total] = field(default_factory=dict)


class Sum(Tile):
    """A tile with what the passes gave so far; assigned, it goes on in the tensor that it is assigned to."""

    __slots__ = ("_total",)

    def __init__(self, total: Total) -> None:
        super().__init__(total.tile.physical())
        self._total = total

    def moved(self, target: Tile) -> None:
        """Go on where the value is now."""
        self._total.tile = Tile(fitted_view(target.physical(), self._total.held.shape))


class Combined(Tile):
    """A value for loops that are named by numbers: it is combined with the tensor that it is assigned to."""

    __slots__ = ("_mask_given", "_op", "_value")

    def __init__(self, value: Tile, op: str, where: Any) -> None:
        super().__init__(value.physical())
        self._value, self._op, self._mask_given = value, op, where

    def physical(self) -> NkiTensor:
        """Refused: no tensor holds what the passes before gave."""
        raise Refusal(
            f"{WHAT}: loop_indices are numbers, which do not say when their loop begins; assign the result to a tensor "
            "with a first value, as in total[...] = nl.loop_reduce(...), or give the indices of nl.affine_range"
        )

    def _same(self, other: Tile) -> bool:
        return False

    def into(self, target: Tile) -> None:
        """Combine the value with what is in a tensor."""
        paired(self._op, target, self._value, mask=self._mask_given, dst=target)
        target.result = None


def loop_reduce(
    x: Any, op: Any, loop_indices: Any, *, dtype: Any = None, mask: Any = None, **kwargs: Any
) -> Tile:
    """What the passes of some loops give, combined by an operator."""
    trace = current(WHAT)
    indices = loop_indices if isinstance(loop_indices, list | tuple) else [loop_indices]
    if not indices or not all(
        isinstance(index, int | np.integer) and not isinstance(index, bool) for index in indices
    ):
        raise Refusal(f"{WHAT}: loop_indices must be the indices of the loops it reduces over")
    if not isinstance(x, Tile):
        raise Refusal(f"{WHAT}: x must be a tile, got {type(x).__name__}")
    found = operator(op)
    if getattr(found, "name", None) not in OPS:
        raise Refusal(f"{WHAT}: op must be a reduction such as np.add, np.max or np.min, got {op!r}")
    where = masks.taken(mask, WHAT)
    loops = {index.loop: index for index in indices if isinstance(index, LoopIndex)}
    if not loops:
        return Combined(x, found.name, where)
    kind = result(WHAT, dtype, x)
    left = masks.left(where, x.shape) if isinstance(where, Mask) else None
    new = np.ones(x.shape, np.bool_)
    if where is False:
        new[...] = False
    elif left is not None:
        new[...] = False
        new[left.box] = left.kept()
    site, key = _site(trace, loops)
    total = site.totals.get(key)
    if total is None:
        total = site.totals[key] = Total(fresh(x.shape, kind), np.zeros(x.shape, np.bool_))
    made = _added(trace, total, x, found.name, new, left)
    total.held = total.held | new
    summed = Sum(total)
    summed.result = None if made is None else replace(made, widens=dtype is None)
    return summed


def _site(trace: Trace, loops: dict[int, LoopIndex]) -> tuple[Site, Hashable]:
    """The call in the kernel's text, and what tells its sums from each other."""
    outermost = min(loops)
    sites: dict[int, Site] = trace.kept.setdefault("legacy reductions", {})
    place = trace.place()
    site = sites.get(place)
    if site is None or site.loop != outermost:
        site = sites[place] = Site(outermost)
    others = tuple(
        (depth, int(index))
        for depth, (number, index) in enumerate(running(trace).items())
        if number > outermost and number not in loops
    )
    this = others, tuple(loops.items())
    nth = site.calls[this]
    site.calls[this] += 1
    return site, (others, nth)


def _added(
    trace: Trace, total: Total, x: Tile, op: str, new: Held, left: Restriction | None
) -> Result | None:
    """Record what takes over or combines the new elements; the instruction, where it is one that can be moved."""
    tile = total.tile
    if not new.any():
        return Result(-1, "tensor_copy")
    again = total.held & new
    if not again.any():
        _record("tensor_copy", {"src": x}, tile, left)
        return Result(len(trace.builder) - 1, "tensor_copy", left)
    if tile.region is x.region is MemoryRegion.psum:
        x = computed("tensor_copy", {"src": x})
    if again.sum() == new.sum():
        _record("tensor_tensor", {"data1": tile, "data2": x, "op": token(op)}, tile, left)
        return Result(len(trace.builder) - 1, "tensor_tensor", left, follows=("data1",))
    for ranges in boxes(again):
        _record("tensor_tensor", {"data1": tile, "data2": x, "op": token(op)}, tile, Restriction(ranges))
    for ranges in boxes(new & ~again):
        _record("tensor_copy", {"src": x}, tile, Restriction(ranges))
    return None


def _record(name: str, given: dict[str, Any], dst: Tile, part: Restriction | None) -> None:
    """Record an instruction on a part of tiles of one shape."""
    if part is None:
        record(name, given, dst)
        return
    reads = {
        key: Tile(value.operand(part)) if isinstance(value, Tile) else value for key, value in given.items()
    }
    record(name, reads, Tile(dst.operand(part)))


__all__ = ["Combined", "Sum", "loop_reduce"]

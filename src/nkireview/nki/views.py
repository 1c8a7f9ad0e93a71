"""The arithmetic of views: shapes, strides, slices, patterns of `rearrange`, and what only the device knows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nkireview.nki.errors import Refusal
from nkireview.nki.registers import VirtualRegister
from nkireview.program.access import Index


@dataclass(frozen=True)
class Pointer:
    """The part of a view's address that is known on the device only.

    `index` is that of the access but for what the instruction says: its out-of-bounds mode and group. `dim` is the
    dimension of the view that takes part, -1 where none is left. `sliced`: a slice starts there, so that with ``skip``
    the end of the buffer alone bounds its elements.
    """

    index: Index
    dim: int = -1
    sliced: bool = False

    @property
    def first(self) -> bool:
        """True where dimension 0 must stay first: each position of it has an index of its own."""
        return self.index.kind == "vector"


@dataclass(frozen=True)
class DynamicSlice:
    """``nl.ds(start, size)`` whose start is a register or a (1, 1) tile."""

    start: Any
    size: int


def slice_of(start: Any, size: Any) -> slice | DynamicSlice:
    """``nl.ds``: `size` elements from `start`, an integer, a register or a (1, 1) tile."""
    count = integer(size, "size of nl.ds")
    if isinstance(start, int | np.integer) and not isinstance(start, bool):
        return slice(int(start), int(start) + count)
    if count < 1:
        raise Refusal(f"nl.ds: size is {count}, expected at least 1")
    return DynamicSlice(start, count)


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a dense tensor."""
    strides = [1] * len(shape)
    for dim in range(len(shape) - 2, -1, -1):
        strides[dim] = strides[dim + 1] * shape[dim + 1]
    return tuple(strides)


def merged(shape: Sequence[int], strides: Sequence[int]) -> int | None:
    """The one stride of dimensions that form an arithmetic progression, or None."""
    pairs = [(size, stride) for size, stride in zip(shape, strides, strict=True) if size != 1]
    for (_, outer), (size, inner) in itertools.pairwise(pairs):
        if outer != size * inner:
            return None
    return pairs[-1][1] if pairs else (strides[-1] if strides else 1)


def dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """True where the elements form one run without gaps, in order."""
    return merged(shape, strides) == 1 or math.prod(shape) == 1


def restride(shape: Sequence[int], strides: Sequence[int], target: Sequence[int]) -> tuple[int, ...] | None:
    """Strides of `target` over the same elements, grouping dimensions as far as they merge; None if impossible."""
    found: list[int | None] = []
    source = [(size, stride) for size, stride in zip(shape, strides, strict=True) if size != 1]
    at, position = 0, 0
    while position < len(target):
        if target[position] == 1:
            found.append(None)
            position += 1
            continue
        if at >= len(source):
            return None
        group, taken = [source[at]], source[at][0]
        at += 1
        sizes = [target[position]]
        position += 1
        while math.prod(sizes) != taken:
            if math.prod(sizes) < taken:
                if position >= len(target):
                    return None
                sizes.append(target[position])
                position += 1
            else:
                if at >= len(source):
                    return None
                group.append(source[at])
                taken *= source[at][0]
                at += 1
        stride = merged([size for size, _ in group], [stride for _, stride in group])
        if stride is None:
            return None
        found.extend(step * stride for step in row_major(sizes))
    # a dimension of one element steps over what lies to its right, as in a dense tensor
    whole = [1] * len(target)
    for dim in range(len(target) - 1, -1, -1):
        step = found[dim]
        inner = whole[dim + 1] * target[dim + 1] if dim + 1 < len(target) else 1
        whole[dim] = inner if step is None else step
    return tuple(whole)


def fill(sizes: tuple[int, ...], total: int, what: str) -> tuple[int, ...]:
    """The sizes with -1 replaced; Refusal where they do not hold `total` elements."""
    if sizes.count(-1) == 1:
        known = -math.prod(sizes)
        if known and total % known == 0:
            sizes = tuple(total // known if size == -1 else size for size in sizes)
    if math.prod(sizes) != total or any(size < 1 for size in sizes):
        raise Refusal(f"{what}{sizes} has not the {total} elements of the view")
    return sizes


def expand(items: tuple[Any, ...], ndim: int) -> list[Any]:
    """The items of an index, one for each dimension."""
    used = sum(1 for item in items if item is not None and item is not Ellipsis)
    if used > ndim:
        raise Refusal(f"{used} indices are given to a {ndim}-D tensor")
    ellipses = [at for at, item in enumerate(items) if item is Ellipsis]
    if len(ellipses) > 1:
        raise Refusal("an index may hold one ... only")
    at = ellipses[0] if ellipses else len(items)
    rest = [slice(None)] * (ndim - used)
    return [*items[:at], *rest, *items[at + len(ellipses) :]]


def span(item: slice, size: int, dim: int) -> tuple[int, int, int]:
    """Start, count and step of a slice of a dimension, never clamped; an empty view may be made, but not used."""
    start, stop, step = (
        default if part is None else part if type(part) is int else integer(part, f"slice of dimension {dim}")
        for part, default in ((item.start, 0), (item.stop, size), (item.step, 1))
    )
    if step < 1:
        raise Refusal(f"slice of dimension {dim} has step {step}, expected at least 1")
    start = start + size if start < 0 else start
    stop = stop + size if stop < 0 else stop
    return start, max(0, -(-(stop - start) // step)), step


def integer(value: Any, what: str) -> int:
    """An integer known while tracing; Refusal says what stands in its place."""
    if type(value) is int:
        return value
    if isinstance(value, bool | np.bool_):
        raise Refusal(f"{what} is a truth value, expected an integer")
    if isinstance(value, int | np.integer):
        return int(value)
    if type(value) is VirtualRegister:
        raise Refusal(f"{what} is a register, expected an integer known while tracing")
    raise Refusal(f"{what} is a {type(value).__name__}, expected an integer")


Pattern = tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Rearrangement:
    """A pattern of `rearrange` carried out: each dimension split, all permuted, runs of them merged."""

    split: tuple[tuple[int, ...], ...]
    order: tuple[int, ...]
    merge: tuple[int, ...]

    @classmethod
    def of(cls, src: Any, dst: Any, sizes: Any, shape: Sequence[int]) -> Rearrangement:
        """Read the patterns of a tensor of that shape; Refusal names what does not fit."""
        left, right = _pattern(src, "src_pattern"), _pattern(dst, "dst_pattern")
        given = _sizes(sizes)
        names = [name for group in left for name in group]
        wanted = [name for group in right for name in group]
        if len(left) != len(shape):
            raise Refusal(f"rearrange: src_pattern has {len(left)} dimensions, the tensor {len(shape)}")
        for side, listed in (("src_pattern", names), ("dst_pattern", wanted)):
            twice = next((name for name in listed if listed.count(name) > 1), None)
            if twice is not None:
                raise Refusal(f"rearrange: {side} names {twice!r} twice")
        if set(names) != set(wanted):
            odd = sorted(set(names) ^ set(wanted))[0]
            raise Refusal(f"rearrange: {odd!r} stands in one of the two patterns only")
        strange = sorted(set(given) - set(names))
        if strange:
            raise Refusal(f"rearrange: fixed_sizes names {strange[0]!r}, which is not in the patterns")
        split = tuple(_split(group, size, given) for group, size in zip(left, shape, strict=True))
        return cls(split, tuple(names.index(name) for name in wanted), tuple(map(len, right)))


def _pattern(pattern: Any, what: str) -> Pattern:
    if not isinstance(pattern, tuple | list) or not pattern:
        raise Refusal(f"rearrange: {what} must be a tuple of names and of tuples of names, got {pattern!r}")
    groups = tuple((item,) if isinstance(item, str) else item for item in pattern)
    for group in groups:
        good = isinstance(group, tuple | list) and group and all(isinstance(name, str) for name in group)
        if not good:
            raise Refusal(f"rearrange: {what} must be a tuple of names and of tuples of names, got {group!r}")
    return tuple(tuple(group) for group in groups)


def _sizes(sizes: Any) -> Mapping[str, int]:
    if sizes is None:
        return {}
    if not isinstance(sizes, dict):
        raise Refusal(f"rearrange: fixed_sizes must be a dict of sizes by name, got {type(sizes).__name__}")
    return {name: integer(size, f"rearrange: size of {name!r}") for name, size in sizes.items()}


def _split(group: tuple[str, ...], size: int, given: Mapping[str, int]) -> tuple[int, ...]:
    """Sizes of the names of a group; one of them may be open."""
    found = tuple(given.get(name, -1) for name in group)
    if len(group) == 1 and found[0] in (-1, size):
        return (size,)
    if found.count(-1) > 1:
        unknown = ", ".join(name for name in group if name not in given)
        raise Refusal(
            f"rearrange: the sizes of {unknown} are open in one dimension, give all but one in fixed_sizes"
        )
    known = abs(math.prod(found))
    sound = all(each == -1 or each >= 1 for each in found)
    if sound and found.count(-1) == 1 and size % known == 0:
        return tuple(size // known if each == -1 else each for each in found)
    if not sound or -1 in found or known != size:
        text = " x ".join("?" if each == -1 else str(each) for each in found)
        raise Refusal(f"rearrange: {' x '.join(group)} of {text} does not make a dimension of {size}")
    return found

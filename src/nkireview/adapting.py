"""Kernels that take and return their arrays in another form than the reference: the task's own functions between.

A function that only rearranges (it reshapes, transposes, slices) is recognised by one call on arrays that hold nothing,
and then carried out here; any other is called in a child with the values of each run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nkireview.arguments import Arguments, Array, Callee, InputSource, ReferenceFailed, call, called
from nkireview.numerics.sensitivity import Region
from nkireview.runner import ForkServer, Limits
from nkireview.runner.tree import decode, leaves, map_leaves

# A view from a child may repeat elements, but no output is larger than this.
MOST_ELEMENTS = 1 << 31


@dataclass(frozen=True)
class View:
    """An array that shows elements of the array at position `source`; offset and strides count elements."""

    source: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def read(cls, told: Mapping[str, Any], arrays: Sequence[Array]) -> View:
        """What a child says of a view; ValueError where it does not lie inside of its array."""
        source, offset = int(told["of"]), int(told["offset"])
        shape, strides = tuple(map(int, told["shape"])), tuple(map(int, told["strides"]))
        if not (0 <= source < len(arrays) and len(shape) == len(strides) and all(n > 0 for n in shape)):
            raise ValueError("no view of a given array")
        reach = [(size - 1) * step for size, step in zip(shape, strides, strict=True)]
        low = offset + sum(step for step in reach if step < 0)
        high = offset + sum(step for step in reach if step > 0)
        if not (0 <= low <= high < arrays[source].size and math.prod(shape) <= MOST_ELEMENTS):
            raise ValueError("a view beyond its array")
        return cls(source, offset, shape, strides)

    def of(self, arrays: Sequence[Array]) -> Array:
        """The view as a contiguous array: without a copy where it only reshapes."""
        flat = np.ascontiguousarray(arrays[self.source]).reshape(-1)
        steps = tuple(step * flat.itemsize for step in self.strides)
        shown = np.lib.stride_tricks.as_strided(flat[self.offset :], self.shape, steps, writeable=False)
        return np.ascontiguousarray(shown)


Blank = tuple[Sequence[int], str]


class Adapted:
    """Inputs as the reference takes them; the kernel gets what the task's function makes of their list."""

    def __init__(self, inputs: InputSource, function: Callee) -> None:
        self.inputs = inputs
        self.function = function
        self._items: dict[str, list[Any] | None] = {}

    def structure(self, server: ForkServer, limits: Limits) -> Arguments:
        """See `InputSource`."""
        return self.kernel(self.inputs.structure(server, limits), server, limits)

    def make(self, seed: int, server: ForkServer, limits: Limits) -> Arguments:
        """See `InputSource`."""
        return self.kernel(self.inputs.make(seed, server, limits), server, limits)

    def kernel(self, given: Arguments, server: ForkServer, limits: Limits) -> Arguments:
        """The kernel's arguments for those of the reference; what goes by keyword stays. Raises `ReferenceFailed`."""
        asked = Arguments((list(given.positional),), {})
        key = repr(given.node())
        if key not in self._items:
            self._items[key] = _rearranged(self.function, asked, asked.arrays(), (), server, limits)
        items = self._items[key]
        if items is not None:
            arrays = asked.arrays()
            made: Any = [item.of(arrays) if isinstance(item, View) else item for item in items]
        else:
            made = call(server, limits, self.function, asked, what="function of the kernel's inputs")
        return Arguments(tuple(made) if isinstance(made, list | tuple) else (made,), given.keywords)


def drawn(inputs: InputSource, seed: int, server: ForkServer, limits: Limits) -> tuple[Arguments, Arguments]:
    """What the reference is called with for a seed, and what the kernel; the same object where nothing is between."""
    if not isinstance(inputs, Adapted):
        made = inputs.make(seed, server, limits)
        return made, made
    asked = inputs.inputs.make(seed, server, limits)
    return asked, inputs.kernel(asked, server, limits)


class Returned:
    """What a kernel returned, as the reference returns it: by the task's function of both.

    Of what the reference returned the function gets shapes and dtypes alone: what is judged cannot be made from it.
    """

    def __init__(self, function: Callee, server: ForkServer, limits: Limits) -> None:
        self._function = function
        self._server = server
        self._limits = limits
        self._items: dict[str, list[Any] | None] = {}

    def __call__(self, values: Sequence[Array], wanted: Sequence[Array]) -> list[Array]:
        """The outputs to compare; `ReferenceFailed` where the function refuses the kernel's."""
        blanks: list[Blank] = [(array.shape, array.dtype.name) for array in wanted]
        holders = [np.empty(0, array.dtype) for array in wanted]
        asked = Arguments((_one_or_all(values), _one_or_all(holders)), {})
        key = repr([(array.shape, array.dtype.name) for array in (*values, *wanted)])
        if key not in self._items:
            self._items[key] = _rearranged(self._function, asked, values, blanks, self._server, self._limits)
        items = self._items[key]
        if items is not None and all(isinstance(item, View) for item in items):
            return [item.of(values) for item in items]
        made = call(
            self._server,
            self._limits,
            self._function,
            asked,
            what="function of the kernel's outputs",
            blanks=[*(None for _ in values), *blanks],
        )
        return [np.asarray(array) for _, array in leaves(made)]


def changed_regions(before: Arguments, after: Arguments, name: str) -> list[tuple[int, Region]]:
    """For each array that is not the same, its position and the smallest block that holds all that changed."""
    found = []
    for at, (old, new) in enumerate(zip(before.arrays(), after.arrays(), strict=True)):
        differs = (old != new) & ~((old != old) & (new != new))
        if differs.any():
            axes = [np.flatnonzero(differs.any(axis=_but(axis, old.ndim))) for axis in range(old.ndim)]
            ranges = tuple((int(each[0]), int(each[-1]) + 1) for each in axes)
            found.append((at, Region(name, ranges)))
    return found


def _but(axis: int, count: int) -> tuple[int, ...]:
    return tuple(other for other in range(count) if other != axis)


def _one_or_all(arrays: Sequence[Array]) -> Any:
    return arrays[0] if len(arrays) == 1 else tuple(arrays)


def _rearranged(
    function: Callee,
    asked: Arguments,
    arrays: Sequence[Array],
    more: Sequence[Blank],
    server: ForkServer,
    limits: Limits,
) -> list[Any] | None:
    """What a function returns, as views of `arrays` and scalars; None where it does more than rearrange them.

    arrays: the first of the arrays in `asked`; `more` are shapes and dtypes of the others.
    """
    tree = map_leaves(asked.tree, lambda array: np.empty(0, array.dtype))
    blanks = [*((array.shape, array.dtype.name) for array in arrays), *more]
    outcome = called(server, limits, function, Arguments(*tree), blanks=blanks, views=True)
    told = outcome.header.get("views") if outcome.status == "done" else None
    if told is None:
        return None  # a function that fails is called again with values, and then says why
    try:
        return [decode(item["scalar"], []) if "scalar" in item else View.read(item, arrays) for item in told]
    except (KeyError, TypeError, ValueError) as problem:
        raise ReferenceFailed(f"{function}: its answer cannot be read: {problem}") from None


__all__ = ["Adapted", "Returned", "View", "changed_regions", "drawn"]

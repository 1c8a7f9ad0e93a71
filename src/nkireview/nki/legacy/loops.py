"""Loops, grids and program ids of the legacy generation. Loops are unrolled while tracing.

That generation's compiler runs the body of a loop once; `body_key` tells what is the same for it in all passes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nkireview.nki.errors import Refusal
from nkireview.nki.trace import Trace, current


class LoopIndex(int):
    """A value of a loop's index, and the number of the loop."""

    loop: int

    @classmethod
    def of(cls, value: int, loop: int) -> LoopIndex:
        """The index of one pass."""
        made = cls(value)
        made.loop = loop
        return made


def running(trace: Trace) -> dict[int, LoopIndex]:
    """The loops that run at this moment, by number, outermost first, with the index of their pass."""
    found: dict[int, LoopIndex] = trace.kept.setdefault("legacy running", {})
    return found


@dataclass
class _Body:
    """The body of a loop, or the kernel's: which one, and how often each line has asked for a key in this pass."""

    key: tuple[Hashable, ...] = ()
    asked: Counter[Hashable] = field(default_factory=Counter)


def _bodies(trace: Trace) -> list[_Body]:
    """The bodies that are being traced, outermost first."""
    found: list[_Body] = trace.kept.setdefault("legacy bodies", [_Body()])
    return found


def body_key(trace: Trace) -> tuple[Hashable, ...]:
    """A key for what is made at this line, the same in every pass of the loops around it, and else for nothing."""
    body = _bodies(trace)[-1]
    line = trace.place()
    body.asked[line] += 1
    return (*body.key, line, body.asked[line])


def loop(name: str) -> Any:
    """``nl.affine_range`` and its kin; the compiler unrolls ``static_range`` too."""

    def run(*bounds: Any, directives: Any = None) -> Iterator[LoopIndex]:
        for bound in bounds:
            if isinstance(bound, bool) or not isinstance(bound, int | np.integer):
                raise Refusal(
                    f"nl.{name}: bounds must be integers known while tracing, got {type(bound).__name__}"
                )
        if not 1 <= len(bounds) <= 3:
            raise Refusal(f"nl.{name} takes a stop, or start, stop and step, got {len(bounds)} arguments")
        if len(bounds) == 3 and int(bounds[2]) == 0:
            raise Refusal(f"nl.{name}: step must not be 0")
        trace = current(f"nl.{name}")
        numbers = range(*(int(bound) for bound in bounds))
        kept = trace.kept
        kept["legacy loops"] = number = kept.get("legacy loops", 0) + 1
        open_loops = running(trace)
        bodies = _bodies(trace)
        depth = len(bodies)
        key = body_key(trace) if name != "static_range" else ()
        with directives if hasattr(directives, "__enter__") else nullcontext():
            try:
                for value in numbers:
                    index = open_loops[number] = LoopIndex.of(value, number)
                    if key:
                        bodies[depth:] = [_Body(key)]
                    yield index
            finally:
                if key:
                    del bodies[depth:]
                open_loops.pop(number, None)

    run.__name__ = run.__qualname__ = name
    return run


@dataclass(frozen=True)
class CoreDim:
    """``nl.nc(n)``: a part of a grid dimension that n physical cores share; times an integer, a grid dimension."""

    cores: int

    def __mul__(self, other: Any) -> SpmdDim:
        return SpmdDim((self, *_parts(other)))

    def __rmul__(self, other: Any) -> SpmdDim:
        return SpmdDim((*_parts(other), self))


@dataclass(frozen=True)
class SpmdDim:
    """``nl.spmd_dim(a, b)``: a grid dimension of a * b instances, the outer part first."""

    parts: tuple[Any, ...]

    def __post_init__(self) -> None:
        for part in self.parts:
            if not isinstance(part, CoreDim) and (not _whole(part) or int(part) < 1):
                found = part if _whole(part) else type(part).__name__
                raise Refusal(f"nl.spmd_dim takes integers from 1 on and nl.nc(n), got {found}")

    def __mul__(self, other: Any) -> SpmdDim:
        return SpmdDim((*self.parts, *_parts(other)))

    def __rmul__(self, other: Any) -> SpmdDim:
        return SpmdDim((*_parts(other), *self.parts))


def _parts(factor: Any) -> tuple[Any, ...]:
    return factor.parts if isinstance(factor, SpmdDim) else (factor,)


def spmd_dim(*parts: Any) -> SpmdDim:
    """A grid dimension whose parts are laid out over instances and cores."""
    return SpmdDim(parts)


def nc(cores: Any) -> CoreDim:
    """So many physical cores as part of a grid dimension."""
    if not _whole(cores) or int(cores) < 1:
        raise Refusal(f"nl.nc takes a number of cores, got {cores!r}")
    return CoreDim(int(cores))


@dataclass(frozen=True)
class LaunchGrid:
    """A launch grid: its shape, and the core of each instance in order."""

    shape: tuple[int, ...]
    cores: tuple[int, ...]

    @property
    def lnc(self) -> int:
        """Physical cores in use."""
        return max(self.cores) + 1

    @classmethod
    def of(cls, grid: Any) -> LaunchGrid:
        """The grid of what stands in ``kernel[...]``; Refusal where it is none."""
        axes = () if grid is None else grid if isinstance(grid, tuple | list) else (grid,)
        shape, owners = [], np.zeros((), np.int64)
        for axis in axes:
            parts = axis.parts if isinstance(axis, SpmdDim) else (axis,)
            sizes = []
            for part in parts:
                if isinstance(part, CoreDim):
                    owners = np.add.outer(owners * part.cores, np.arange(part.cores))
                    sizes.append(part.cores)
                elif _whole(part) and int(part) >= 1:
                    owners = np.add.outer(owners, np.zeros(int(part), np.int64))
                    sizes.append(int(part))
                else:
                    raise Refusal(
                        f"kernel[{axis!r}]: a grid dimension is an integer from 1 on, nl.nc(n) or nl.spmd_dim, got "
                        f"{type(part).__name__}"
                    )
            shape.append(math.prod(sizes))
        return cls(tuple(shape), tuple(int(core) for core in owners.reshape(-1)))


def program_id(axis: Any = None) -> int:
    """The position of this instance along an axis of the grid."""
    trace = current("nl.program_id")
    if not _whole(axis):
        raise Refusal(f"nl.program_id takes an axis, got {axis!r}")
    if not trace.grid and int(axis) == 0:
        trace.event("note", "nl.program_id(0) is 0, for the kernel is launched without a grid")
        return 0
    _axis(trace.grid, axis, "nl.program_id")
    return int(np.unravel_index(trace.instance, trace.grid)[int(axis)])


def num_programs(axes: Any = None) -> int:
    """Instances along the axes, all of them for None."""
    grid = current("nl.num_programs").grid
    wanted = range(len(grid)) if axes is None else axes if isinstance(axes, list | tuple) else (axes,)
    if not grid:
        return 1
    for axis in wanted:
        _axis(grid, axis, "nl.num_programs")
    return math.prod(grid[int(axis)] for axis in wanted)


def program_ndim() -> int:
    """Rank of the grid."""
    return len(current("nl.program_ndim").grid)


def _axis(grid: tuple[int, ...], axis: Any, what: str) -> None:
    if not _whole(axis) or not 0 <= int(axis) < len(grid):
        if not grid:
            raise Refusal(
                f"{what}: there is no axis {axis}, for the kernel is launched without a grid; launch it over one, as "
                "kernel[4, 2] or with --grid 4,2"
            )
        raise Refusal(f"{what}: axis {axis} is not one of the grid's {len(grid)}")


def _whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)

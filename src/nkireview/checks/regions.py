"""Regions: the bytes of an HBM buffer that accesses touch, in the largest pieces that none of them cuts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nkireview.isa import dtypes
from nkireview.program.footprint import ENUMERATED, allowed, offsets
from nkireview.program.interning import Ints, intern, members
from nkireview.program.placement import merge
from nkireview.program.program import Program

GRAINS = 2**25
"""Grains of one buffer, and of its accesses together, that are looked at; beyond, regions are not compared."""
LARGEST = 2**23
"""Grains of one access, beyond which the regions of its buffer are not compared."""
_CHUNK = 2**22


@dataclass(frozen=True, eq=False)
class Pattern:
    """What accesses at different bases share, in bits: runs of `run` bits at the steps of `axes`, or at `starts`.

    Axes of stride 0 are left out; `copies` is how often they name each element. `low` and `high` (exclusive) bound the
    bits, counted from the base.
    """

    axes: tuple[tuple[int, int], ...]
    run: int
    copies: int
    starts: Ints | None = None

    @property
    def steps(self) -> list[int]:
        """Every distance that a grain must divide."""
        starts = [] if self.starts is None else [int(np.gcd.reduce(self.starts))]
        return [self.run, *(stride for stride, _ in self.axes), *starts]

    @property
    def pieces(self) -> int:
        """Number of runs."""
        if self.starts is not None:
            return len(self.starts)
        return math.prod(count for _, count in self.axes)

    @property
    def extent(self) -> tuple[int, int]:
        """Lowest bit and the one after the highest, from the base."""
        if self.starts is not None:
            return int(self.starts.min()), int(self.starts.max()) + self.run
        reach = [stride * (count - 1) for stride, count in self.axes]
        return sum(min(step, 0) for step in reach), sum(max(step, 0) for step in reach) + self.run

    @property
    def least_bits(self) -> int:
        """Different bits that it touches, or fewer where runs may overlap."""
        if self.starts is not None:
            return self.run * len(np.unique(self.starts))
        reach = self.run
        for stride, count in sorted(self.axes, key=lambda axis: abs(axis[0])):
            if abs(stride) < reach:
                return self.run
            reach += abs(stride) * (count - 1)
        return self.run * self.pieces

    def grains(self, grain: int) -> Ints:
        """The grains that it touches, from the base."""
        found = np.zeros(1, np.int64) if self.starts is None else self.starts // grain
        for stride, count in self.axes:
            found = (found[:, None] + np.arange(count) * (stride // grain)).reshape(-1)
        inner = self.run // grain
        return found if inner == 1 else (found[:, None] + np.arange(inner)).reshape(-1)


def pattern_of(axes: tuple[tuple[int, int], ...], bits: int) -> Pattern:
    """The pattern of axes (stride, count) in elements of that many bits."""
    copies = math.prod(count for stride, count in axes if stride == 0)
    kept = list(merge(tuple(axis for axis in axes if axis[0])))
    run = kept.pop()[1] if kept and kept[-1][0] == 1 else 1
    return Pattern(tuple((stride * bits, count) for stride, count in kept), run * bits, copies)


@dataclass(frozen=True, eq=False)
class Forms:
    """Accesses as patterns: `pattern[i]` (-1: not known before the kernel runs) begins at bit `base[i]`."""

    patterns: tuple[Pattern, ...]
    pattern: Ints
    base: Ints


def forms(program: Program, accesses: Ints, loops: Ints) -> Forms:
    """The accesses as patterns; `loops[i]` is the loop whose register moves an access, -1 for none.

    A register that counts a loop of known bounds names all that it reaches over the trips; any other index is unknown.
    """
    columns = program.columns
    bits = np.array([dtypes.BY_NAME[name].bits for name in program.dtypes], np.int64)
    width = bits[columns.access_dtype[accesses]] if len(accesses) else np.zeros(0, np.int64)
    pattern, base = np.full(len(accesses), -1, np.int64), columns.access_base[accesses] * width
    rare = np.isin(accesses, np.fromiter(program.extras, np.int64, len(program.extras)))
    made: list[Pattern] = []
    plain = np.flatnonzero(~rare)
    ranks = np.diff(columns.axis_at)[accesses[plain]]
    for rank in np.unique(ranks).tolist():
        rows = plain[ranks == rank]
        at = columns.axis_at[accesses[rows]][:, None] + np.arange(rank)
        strides, counts = columns.axis_stride[at], columns.axis_count[at]
        found = intern([width[rows], *strides.T, *counts.T], len(rows))
        pattern[rows] = found.of + len(made)
        for first in found.first.tolist():
            axes = tuple(zip(strides[first].tolist(), counts[first].tolist(), strict=True))
            made.append(pattern_of(axes, int(width[rows[first]])))
    for row in np.flatnonzero(rare).tolist():
        found_one = _rare(program, int(accesses[row]), int(loops[row]), int(width[row]))
        if found_one is not None:
            held, begin = found_one
            pattern[row], base[row] = len(made), begin
            made.append(held)
    empty = np.array([not held.pieces for held in made], bool)
    if empty.any():
        pattern[(pattern >= 0) & empty[pattern]] = -1
    return Forms(tuple(made), pattern, base)


def _rare(program: Program, number: int, loop: int, bits: int) -> tuple[Pattern, int] | None:
    """The pattern and base of an access with bounds, a table or an index; None where its address is not known."""
    access = program.access(number)
    if access.index is not None:
        if loop < 0 or access.bounds or access.table is not None:
            return None
        held = program.loops[loop]
        if held.trips is None or not isinstance(held.lower, int):
            return None
        moved = ((access.index.stride * held.step, held.trips),) if access.index.stride else ()
        return pattern_of((*moved, *access.pattern), bits), (
            access.base + access.index.stride * held.lower
        ) * bits
    if not 0 < access.size <= ENUMERATED:
        return None
    table = None if access.table is None else program.constants[access.table]
    flat = offsets(access, table)
    starts = (flat[allowed(access)] if access.bounds else flat).reshape(-1).astype(np.int64) * bits
    return (Pattern((), bits, 1, starts), 0) if len(starts) else None


@dataclass(frozen=True, eq=False)
class Regions:
    """Some forms in one buffer of `count` grains of `grain` bits. `exact` is False where there are too many of them.

    `rows` are the forms that are known and lie inside the buffer.
    """

    held: Forms
    rows: Ints
    grain: int
    count: int
    exact: bool

    @property
    def grain_bytes(self) -> float:
        """Bytes of a grain."""
        return self.grain / 8

    def grains(self, row: int) -> Ints:
        """The grains of a form, each as often as it is touched."""
        found: Ints = self.held.patterns[self.held.pattern[row]].grains(self.grain) + int(
            self.held.base[row] // self.grain
        )
        return found

    def first(self) -> Ints:
        """For each of `rows` how many grains it touches that none before it does."""
        marks = np.full(self.count, len(self.rows), np.int32)
        for order, flat in self._chunks():
            new = order < marks[flat]
            marks[flat[new]] = order[new]
        found = np.bincount(marks, minlength=len(self.rows) + 1)[: len(self.rows)]
        return found.astype(np.int64)

    def mark(self) -> NDArray[np.bool_]:
        """The grains that any of `rows` touches."""
        marks = np.zeros(self.count, bool)
        for _, flat in self._chunks():
            marks[flat] = True
        return marks

    def _chunks(self) -> Iterator[tuple[Ints, Ints]]:
        """Grains, and for each the position of its form in `rows`; of one chunk's duplicates the first comes last."""
        classes = intern([self.held.pattern[self.rows]], len(self.rows))
        for part in members(classes.of, len(classes)):
            inner = self.held.patterns[self.held.pattern[self.rows[part[0]]]].grains(self.grain)
            begins = self.held.base[self.rows[part]] // self.grain
            step = max(_CHUNK // len(inner), 1)
            for start in range(0, len(part), step):
                some = slice(start, start + step)
                order, begin = part[some][::-1], begins[some][::-1]
                yield np.repeat(order, len(inner)), (begin[:, None] + inner).reshape(-1)


def regions(program: Program, buffer: int, held: Forms, rows: Ints) -> Regions:
    """Those of some forms in a buffer whose addresses are known."""
    found = program.buffer(buffer)
    size = math.prod(found.shape) * dtypes.BY_NAME[found.dtype].bits
    rows = rows[held.pattern[rows] >= 0]
    classes, of = np.unique(held.pattern[rows], return_inverse=True)
    of = of.reshape(-1)
    kinds = [held.patterns[number] for number in classes.tolist()]
    low, high = (np.array([kind.extent[side] for kind in kinds], np.int64) for side in (0, 1))
    if len(rows):
        inside = (held.base[rows] + low[of] >= 0) & (held.base[rows] + high[of] <= size)
        rows, of = rows[inside], of[inside]
    used = np.unique(of).tolist()
    grain = math.gcd(size, int(np.gcd.reduce(held.base[rows])) if len(rows) else 0)
    for at in used:
        grain = math.gcd(grain, *kinds[at].steps)
    grain = max(grain, 1)
    pieces = np.array([kind.pieces * (kind.run // grain) for kind in kinds], np.float64)
    touched = float(pieces[of].sum()) if len(rows) else 0.0
    exact = max(touched, size / grain) <= GRAINS and float(pieces[used].max(initial=0.0)) <= LARGEST
    return Regions(held, rows, grain, size // grain, exact)

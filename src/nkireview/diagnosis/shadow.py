"""Shadows: what instructions wrote in a run as stored, beside what the same ones wrote without rounding.

Kept are a few elements of each write, the same in every run, so that a run of any length can be held against another.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from numpy.typing import NDArray

from nkireview.diagnosis.arithmetic import Work
from nkireview.execute import Around, Core, Operands, Step
from nkireview.execute.storage import Operand
from nkireview.isa import dtypes
from nkireview.numerics.arrays import root_mean_square
from nkireview.program.program import Program

Float64 = NDArray[np.float64]

ELEMENTS = 64
"""Elements of each write that are kept."""
INSTRUCTIONS = 200_000
"""Writes that are kept."""
GROWS, POINTS, SERIES = 8, 32, 2
"""Additions from which on a sum is shown, points that are shown of it, and sums that are shown."""
UNEXPLAINED = 12.0
"""Times its expected spread from which a deviation counts."""


@dataclass(eq=False)
class Digest:
    """An `around` of `execute` that keeps elements of what is written; `inner` runs the instructions."""

    kinds: Sequence[Work]
    of: Sequence[int]
    inner: Around | None = None
    found: list[tuple[int, Float64]] = field(default_factory=list)

    def __call__(self, step: Step, core: Core, index: int, operands: Operands) -> None:
        """Run an instruction and keep some of what it writes."""
        if self.inner is None:
            step.run(core, index, operands)
        else:
            self.inner(step, core, index, operands)
        if len(self.found) >= INSTRUCTIONS:
            return
        writes = self.kinds[self.of[index]].writes
        if writes and (operand := operands[writes[0].slot]) is not None and operand.plain:
            self.found.append((index, picked(operand)))


def picked(operand: Operand) -> Float64:
    """At most `ELEMENTS` elements of an operand, evenly spread and off the diagonal, as float64."""
    held = operand.read()
    if held.ndim >= 2 and held.size > ELEMENTS:
        rows = held.shape[0]
        down, across = _chosen(rows, held.size // rows)
        some = held[down, across] if held.ndim == 2 else held[down].reshape(len(held[down]), -1)[:, across]
    else:
        some = held.reshape(-1)[:: max(held.size // ELEMENTS, 1)][:ELEMENTS]
    if some.dtype == np.float64 or not _stored(operand):
        return np.array(some, np.float64)  # a copy: the store will hold something else
    return np.array(dtypes.to_compute(some, operand.form.kind, np.float64), np.float64)


@cache
def _chosen(rows: int, columns: int) -> tuple[slice, slice]:
    """The rows and columns of a large matrix that are kept."""
    wide = min(columns, 8)
    tall = min(rows, ELEMENTS // wide)
    down, across = max(rows // tall, 1), max(columns // wide, 1)
    return slice(0, down * tall, down), slice(0, across * wide, across)


def _stored(operand: Operand) -> bool:
    return operand.form.dtype == operand.form.kind.storage and operand.form.kind.kind != "packed"


@dataclass(frozen=True)
class Deviation:
    """The first instruction whose value leaves its shadow: by how many times what rounding explains there."""

    instruction: int
    got: float
    shadow: float
    times: float


def first_deviation(
    stored: Sequence[tuple[int, Float64]],
    exact: Sequence[tuple[int, Float64]],
    samples: Sequence[Sequence[tuple[int, Float64]]],
) -> Deviation | None:
    """Hold the digests of a run as stored against those of the exact run; `samples`: of runs with noise."""
    count = _alike(stored, exact)
    if not count:
        return None
    spreads = np.array([_spread(exact, sample) for sample in samples] or [np.zeros(len(exact))])
    expected = np.sqrt(np.mean(np.square(spreads), axis=0))[:count]
    have, want, starts = _flat(stored, count), _flat(exact, count), _starts(exact, count)
    finite = np.isfinite(want)
    wrong = np.logical_or.reduceat(finite & ~np.isfinite(have), starts)
    with np.errstate(invalid="ignore"):
        error = np.where(finite & np.isfinite(have), np.abs(have - want), 0.0)
    worst = np.maximum.reduceat(error, starts)
    smallest = np.maximum(expected, 2.0**-40 * _means(np.where(finite, want, 0.0), starts))
    found = np.flatnonzero(wrong | ((smallest > 0) & (worst > UNEXPLAINED * smallest)))
    if not found.size:
        return None
    at = int(found[0])
    index, numbers = stored[at]
    part = slice(int(starts[at]), int(starts[at]) + numbers.size)
    places = (finite & ~np.isfinite(have))[part] if wrong[at] else error[part]
    place = int(places.argmax())
    times = math.inf if wrong[at] else float(worst[at] / smallest[at])
    return Deviation(index, float(have[part][place]), float(want[part][place]), times)


def _alike(one: Sequence[tuple[int, Float64]], other: Sequence[tuple[int, Float64]]) -> int:
    """How many writes two digests begin with that are of the same instructions and shapes."""
    count = 0
    for (index, have), (at, want) in zip(one, other, strict=False):
        if index != at or have.shape != want.shape:
            break
        count += 1
    return count


def _flat(digest: Sequence[tuple[int, Float64]], count: int) -> Float64:
    return np.concatenate([values.reshape(-1) for _, values in digest[:count]])


def _starts(digest: Sequence[tuple[int, Float64]], count: int) -> NDArray[np.int64]:
    """Where each write begins in what `_flat` gives."""
    sizes = np.array([values.size for _, values in digest[:count]], np.int64)
    return np.cumsum(sizes) - sizes


def _means(values: Float64, starts: NDArray[np.int64]) -> Float64:
    """The root mean square of each write, all finite."""
    counts = np.diff(starts, append=values.size)
    with np.errstate(over="ignore"):
        return np.asarray(np.sqrt(np.add.reduceat(np.square(values), starts) / counts))


def _spread(exact: Sequence[tuple[int, Float64]], other: Sequence[tuple[int, Float64]]) -> Float64:
    """By write the rms difference between two digests, as far as they are alike; 0 after that."""
    found = np.zeros(len(exact))
    count = _alike(exact, other)
    if count:
        with np.errstate(invalid="ignore"):
            error = _flat(other, count) - _flat(exact, count)
        error[~np.isfinite(error)] = 0.0
        found[:count] = _means(error, _starts(exact, count))
    return found


@dataclass(frozen=True)
class Series:
    """How the error of one running sum grows: after so many additions, its rms error over its own rms.

    expected: what rounding is expected to do there; 0 where nothing was sampled.
    """

    instruction: int
    additions: tuple[int, ...]
    error: tuple[float, ...]
    expected: tuple[float, ...]


def growth(
    program: Program,
    stored: Sequence[tuple[int, Float64]],
    exact: Sequence[tuple[int, Float64]],
    samples: Sequence[Sequence[tuple[int, Float64]]],
) -> list[Series]:
    """The running sums whose errors are largest at their ends: places that one line writes again and again."""
    spreads = [_spread(exact, sample) for sample in samples]
    mean = np.sqrt(np.mean(np.square(spreads), axis=0)) if spreads else np.zeros(len(exact))
    errors_of = _spread(exact, stored)
    columns = program.columns
    groups: dict[tuple[int, int], list[int]] = defaultdict(list)
    for at, (index, _) in enumerate(exact):
        if at < len(stored) and stored[at][0] == index:
            access = int(columns.operand[columns.operand_at[index]])
            groups[int(columns.place[index]), access].append(at)
    found = []
    for members in groups.values():
        if len(members) < GROWS:
            continue
        errors, expected = [], []
        for at in members:
            size = root_mean_square(exact[at][1])
            errors.append(float(errors_of[at]) / size if size else 0.0)
            expected.append(float(mean[at]) / size if size else 0.0)
        step = -(-len(members) // POINTS)
        chosen = [*range(0, len(members) - 1, step), len(members) - 1]
        found.append(
            Series(
                exact[members[0]][0],
                tuple(at + 1 for at in chosen),
                tuple(errors[at] for at in chosen),
                tuple(expected[at] for at in chosen),
            )
        )
    return sorted(found, key=lambda series: -series.error[-1])[:SERIES]

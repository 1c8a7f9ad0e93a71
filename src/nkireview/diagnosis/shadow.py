"""Shadows: what instructions wrote in a run as stored, beside what the same ones wrote without rounding.

Kept are a few elements of each write, the same in every run, so that a run of any length can be held against another.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

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
        columns = held.size // rows
        wide = min(columns, 8)
        tall = min(rows, ELEMENTS // wide)
        some = held[:: max(rows // tall, 1)][:tall].reshape(tall, -1)
        some = some[:, :: max(columns // wide, 1)][:, :wide]
    else:
        some = held.reshape(-1)[:: max(held.size // ELEMENTS, 1)][:ELEMENTS]
    wide = dtypes.to_compute(some, operand.form.kind, np.float64) if _stored(operand) else some
    return np.array(wide, np.float64)  # a copy: the store will hold something else


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
    spreads = (
        np.array([_spread(exact, sample) for sample in samples]) if samples else np.zeros((1, len(exact)))
    )
    expected = np.sqrt(np.mean(np.square(spreads), axis=0))
    for at, ((index, have), (other, want)) in enumerate(zip(stored, exact, strict=False)):
        if index != other or have.shape != want.shape:
            return None
        finite = np.isfinite(want)
        wrong = finite & ~np.isfinite(have)
        if wrong.any():
            place = int(wrong.argmax())
            return Deviation(index, float(have[_at(have, place)]), float(want[_at(want, place)]), math.inf)
        error = np.where(finite & np.isfinite(have), np.abs(have - want), 0.0)
        size = root_mean_square(np.where(finite, want, 0.0))
        allowed = UNEXPLAINED * max(float(expected[at]), 2.0**-40 * size)
        if float(error.max(initial=0.0)) > allowed > 0:
            place = int(error.argmax())
            return Deviation(
                index,
                float(have[_at(have, place)]),
                float(want[_at(want, place)]),
                float(error.max()) / max(float(expected[at]), 2.0**-40 * size),
            )
    return None


def _at(array: Float64, place: int) -> Any:
    return np.unravel_index(place, array.shape)


def _spread(exact: Sequence[tuple[int, Float64]], sample: Sequence[tuple[int, Float64]]) -> list[float]:
    found = []
    for (_, want), (_, have) in zip(exact, sample, strict=False):
        with np.errstate(invalid="ignore"):
            found.append(root_mean_square(np.nan_to_num(have - want, nan=0.0, posinf=0.0, neginf=0.0)))
    return found + [0.0] * (len(exact) - len(found))


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
            with np.errstate(invalid="ignore"):
                error = root_mean_square(
                    np.nan_to_num(stored[at][1] - exact[at][1], nan=0.0, posinf=0.0, neginf=0.0)
                )
            errors.append(error / size if size else 0.0)
            mean = math.sqrt(sum(spread[at] ** 2 for spread in spreads) / len(spreads)) if spreads else 0.0
            expected.append(mean / size if size else 0.0)
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

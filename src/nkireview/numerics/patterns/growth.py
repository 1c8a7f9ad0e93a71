"""Errors that grow along an axis as those of a running sum do."""

from __future__ import annotations

import itertools

import numpy as np

from nkireview.numerics.arrays import Float64
from nkireview.numerics.patterns.mismatch import SAMPLE, Mismatch
from nkireview.numerics.patterns.names import Name, Pattern
from nkireview.numerics.patterns.trial import EXPLAINED
from nkireview.numerics.patterns.words import lines_along, of_wrong

# Stretches that an axis is cut into: as many as leave so many elements in each, within bounds.
LEAST_BINS, MOST_BINS = 8, 32
IN_BIN = 512
SHORTEST = 16
# How well the squared errors must follow the law, and how much of the last may be there from the start.
FIT = 0.9
START = 0.15
# From this part of the axis on every median must be within a factor of the law.
LATE, NEAR = 1 / 8, 2.0
# An element further than so many median errors from the law does not follow it.
TIMES = 6.0
LAWS = {"sqrt(n)": 1, "n": 2}


def growing(found: Mismatch) -> Pattern | None:
    """An error whose median grows from the start of an axis like its index or the root of it."""
    best: tuple[float, Pattern] | None = None
    for axis in found.axes:
        result = _along(found, axis)
        if result and (best is None or result[0] > best[0]):
            best = result
    return best[1] if best else None


def _along(found: Mismatch, axis: int) -> tuple[float, Pattern] | None:
    size = found.shape[axis]
    count = min(found.size // size, max(1, SAMPLE // size))
    elements = count * min(size, SAMPLE)
    if size < SHORTEST or elements < LEAST_BINS**2:
        return None
    bins = min(size, max(LEAST_BINS, min(elements // IN_BIN, MOST_BINS)))
    at = found.lines(axis, count)
    if size > SAMPLE:
        at = at[:, :: size // SAMPLE]
    part = found.elements(at)
    error = np.abs(part.got - part.ref)
    if not np.all(np.isfinite(error)):
        return None
    edges = np.linspace(0, at.shape[1], bins + 1).astype(np.intp)
    middles = (edges[:-1] + edges[1:]) / 2 / at.shape[1]
    heights = _medians(error, edges)
    fitted = max(
        ((_fit(heights, middles**power), law) for law, power in LAWS.items()), key=lambda one: one[0][0]
    )
    (quality, slope), law = fitted
    law_curve = np.sqrt(slope * middles ** LAWS[law])
    late = middles >= LATE
    near = np.all((heights[late] > law_curve[late] / NEAR) & (heights[late] < law_curve[late] * NEAR))
    if quality < FIT or not near or _alike(_medians(np.abs(part.ref), edges), heights):
        return None
    curve = np.sqrt(slope * (np.arange(1, at.shape[1] + 1) / at.shape[1]) ** LAWS[law])
    wrong = found.wrong[at]
    share = float(np.mean((error <= TIMES * curve + part.allowed)[wrong]))
    if not share >= EXPLAINED:
        return None
    along = lines_along(found, axis)
    last = float(np.sqrt(slope))
    verb = "follows" if found.count == 1 else "follow"
    sentence = (
        f"{of_wrong(found, share)} {verb} an error that grows like {'the root of n' if law == 'sqrt(n)' else 'n'} "
        f"along axis {axis} ({along}) to a median of {last:.3g} at its end"
    )
    return quality, Pattern(Name.GROWING, sentence, share, {"axis": axis, "law": law, "last": last})


def _medians(values: Float64, edges: np.ndarray[tuple[int], np.dtype[np.intp]]) -> Float64:
    return np.array([np.median(values[:, start:stop]) for start, stop in itertools.pairwise(edges)])


def _fit(heights: Float64, law: Float64) -> tuple[float, float]:
    """How well squared heights follow a line in ``law``, and its slope; 0 where it does not start near 0."""
    squares = heights * heights
    slope, start = np.polyfit(law, squares, 1)
    spread = float(np.sum((squares - squares.mean()) ** 2))
    if not slope > 0 or abs(start) > START * slope or spread == 0:
        return 0.0, 0.0
    rest = float(np.sum((squares - slope * law - start) ** 2))
    return 1 - rest / spread, float(slope)


def _alike(references: Float64, heights: Float64) -> bool:
    """Whether the reference grows about as much as the error, which is then no drift."""
    half = references.size // 2
    before, after = float(np.mean(references[:half])), float(np.mean(references[half:]))
    errors = float(np.mean(heights[half:])) / max(float(np.mean(heights[:half])), 1e-300)
    return before > 0 and after / before > 1 + 0.5 * (errors - 1)

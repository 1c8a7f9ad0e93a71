"""Whether a prediction explains wrong elements, and does so by more than chance."""

from __future__ import annotations

import math

import numpy as np

from nkireview.numerics.arrays import Float64
from nkireview.numerics.patterns.mismatch import Elements, Mismatch

EXPLAINED = 0.95
# A prediction that fits elements it was not made for this often says nothing.
OFTEN = 0.7
SELDOM = 0.02
SURPRISE = 1e-4
# Up to so many elements every prediction is tried on every other element.
PAIRS = 64


def agreement(got: Float64, predicted: Float64, slack: Float64) -> float:
    """The share of ``got`` within ``slack`` of what is predicted; 1 of no elements."""
    if got.size == 0:
        return 1.0
    near = (np.abs(got - predicted) <= slack) | (got == predicted)
    return float(np.count_nonzero(near)) / got.size


def explained(
    elements: Elements, predicted: Float64, slack: Float64, *, parameters: int = 0, tried: int = 1
) -> float | None:
    """The share of wrong elements that a prediction explains; None where it does not, or by chance.

    A prediction must halve the error at least, and chance is measured: how often predictions for other elements
    fit. ``parameters`` were fitted to these elements and this is one of ``tried`` predictions.
    """
    share = agreement(elements.got, predicted, slack)
    if share < EXPLAINED or not _halves(elements, predicted):
        return None
    count = elements.got.size
    chance = by_chance(elements.got.ravel(), predicted.ravel(), slack.ravel())
    if chance > OFTEN or not unlikely(chance, count - parameters, tried):
        return None
    return share


def unlikely(chance: float, times: float, tried: float) -> bool:
    """Whether one of ``tried`` predictions fits so many elements by more than chance."""
    return times >= 1 and math.log(tried) + times * math.log(chance) < math.log(SURPRISE)


def _halves(elements: Elements, predicted: Float64) -> bool:
    before, after = np.abs(elements.got - elements.ref), np.abs(elements.got - predicted)
    finite = np.isfinite(before) & np.isfinite(after)
    if not finite.any():
        return True
    return float(np.median(after[finite])) <= 0.5 * float(np.median(before[finite]))


def by_chance(got: Float64, predicted: Float64, slack: Float64) -> float:
    """How often ``got`` is within the slack of the prediction for another element.

    Few elements were not tried often, which counts as one fit more; the result is never 0.
    """
    count = got.size
    if count > PAIRS:
        other = np.random.default_rng(1).permutation(count)
        return max(agreement(got, predicted[other], slack[other]), SELDOM)
    near = (np.abs(got[:, None] - predicted) <= slack) | (got[:, None] == predicted)
    fits = int(np.count_nonzero(near)) - int(np.count_nonzero(np.diagonal(near)))
    return max((fits + 1) / (count * (count - 1) + 2), SELDOM)


def slack(found: Mismatch, elements: Elements, predicted: Float64) -> Float64:
    """What rounding explains around ``predicted``: more than at the reference where it is larger."""
    larger = np.maximum(np.abs(predicted) - np.abs(elements.ref), 0)
    return np.asarray(elements.allowed + found.relative * np.nan_to_num(larger, posinf=0.0), dtype=np.float64)

"""Patterns that each wrong element shows by itself: zeros, one constant, a sign, a factor, an offset."""

from __future__ import annotations

import math

import numpy as np

from nkireview.numerics.arrays import BLOCK_ELEMENTS, Float64, float64
from nkireview.numerics.patterns import factor_names
from nkireview.numerics.patterns.mismatch import Elements, Mask, Mismatch
from nkireview.numerics.patterns.names import Figure, Name, Pattern
from nkireview.numerics.patterns.trial import EXPLAINED, agreement, explained, slack, unlikely
from nkireview.numerics.patterns.words import number, of_wrong

EVERYWHERE = "everywhere"
WHERE_WRONG = "where wrong"

# Below this fraction of the reference a value within the allowed error of 0 is taken for 0.
NEGLIGIBLE = 2.0**-6
# A constant may be rounded differently from element to element, by as much as bfloat16 does.
ONE_VALUE = 2.0**-7
# So few elements can hold one value by chance; they must hold it exactly.
FEW = 8
LEAST = 3


def element_patterns(found: Mismatch) -> list[Pattern]:
    """The simplest pattern that the elements show one by one; a factor and an offset where both fit."""
    some = found.wrong_sample
    stuck = _saturated(found, some) or _zeros(found, some) or _constant(found, some)
    if stuck:
        return [stuck]
    simple = _off_by_one(found, some) or _sign(found, some)
    if simple:
        return [simple]
    fits = [fit for fit in (_scaled(found, some), _offset(found, some)) if fit]
    return [pattern for _, pattern in sorted(fits, key=lambda fit: fit[0])]


def _place(found: Mismatch, holds: bool) -> str:
    return EVERYWHERE if found.count == found.size or holds else WHERE_WRONG


def _subject(found: Mismatch, place: str, share: float) -> str:
    if place == EVERYWHERE:
        return "the output"
    return of_wrong(found, share)


def _verb(subject: str, singular: str, plural: str) -> str:
    return singular if subject in ("the output", "the only wrong element") else plural


def _written(found: Mismatch, name: Name, share: float, place: str, what: str, figure: Figure) -> Pattern:
    subject = _subject(found, place, share)
    verb = _verb(subject, "is", "are")
    return Pattern(name, f"{subject} {verb} {what}", share, {**figure, "place": place})


def _zeros(found: Mismatch, some: Elements) -> Pattern | None:
    zero = _is_zero(some)
    share = float(np.mean(zero))
    if share < EXPLAINED:
        return None
    right = found.right_sample
    place = _place(found, right.got.size > 0 and bool(np.mean(_is_zero(right)) >= EXPLAINED))
    exact = bool(np.all(some.got[zero] == 0))
    if not exact and some.got.size < FEW:
        return None
    if exact and place == WHERE_WRONG and not _rare(found, 0.0, some.got.size):
        return None
    return _written(found, Name.ZEROS, share, place, "0" if exact else "0 up to rounding", {"value": 0})


def _is_zero(elements: Elements) -> Mask:
    small = np.abs(elements.got) <= np.minimum(elements.allowed, NEGLIGIBLE * np.abs(elements.ref))
    return np.asarray((elements.got == 0) | small, dtype=np.bool_)


def _constant(found: Mismatch, some: Elements) -> Pattern | None:
    finite = some.got[np.isfinite(some.got)]
    if finite.size < LEAST:
        return None
    value = float(np.median(finite))
    room = 0.0 if finite.size < FEW else ONE_VALUE * abs(value)
    around = np.minimum(slack(found, some, np.full_like(some.ref, value)), room)
    share = agreement(some.got, np.full_like(some.got, value), around)
    exact = float(np.mean(some.got == value))
    share = max(share, exact)
    if share < EXPLAINED or not _rare(found, value, finite.size - 1):
        return None
    right = found.right_sample
    same = right.got.size > 0 and bool(np.mean(np.abs(right.got - value) <= room) >= EXPLAINED)
    what = f"{'one value' if exact >= EXPLAINED else 'one value up to rounding'}, {number(value)}"
    return _written(found, Name.CONSTANT, share, _place(found, same), what, {"value": value})


def _rare(found: Mismatch, value: float, times: int) -> bool:
    """Whether so many elements hold ``value`` by more than chance, going by how often the reference does."""
    references = np.concatenate((found.wrong_sample.ref, found.right_sample.ref))
    chance = float(np.mean(references == value))
    return chance == 0 or unlikely(chance, times, 1)


def _saturated(found: Mismatch, some: Elements) -> Pattern | None:
    ends = _extremes(found)
    if ends is None:
        return None
    low, high = ends
    at_high = (some.got == high) & (some.ref > high)
    at_low = (some.got == low) & (some.ref < low)
    share = float(np.mean(at_high | at_low))
    if share < EXPLAINED:
        return None
    highs, lows = int(np.count_nonzero(at_high)), int(np.count_nonzero(at_low))
    if highs + lows < LEAST or not _varies(found, low, high):
        return None
    subject = _subject(found, WHERE_WRONG, share)
    verb = _verb(subject, "is", "are")
    figure: dict[str, int | float | str] = {"place": WHERE_WRONG}
    said = []
    if highs:
        figure["largest"] = high
        said.append(f"the largest value, {number(high)}, where the reference is larger")
    if lows:
        figure["smallest"] = low
        said.append(f"the smallest value, {number(low)}, where the reference is smaller")
    return Pattern(Name.SATURATED, f"{subject} {verb} stuck at {' or '.join(said)}", share, figure)


def _extremes(found: Mismatch) -> tuple[float, float] | None:
    """The smallest and the largest finite value of the output; None without one."""
    low, high = math.inf, -math.inf
    for start in range(0, found.size, BLOCK_ELEMENTS):
        block = float64(found.got[start : start + BLOCK_ELEMENTS])
        least, most = float(block.min()), float(block.max())
        if not (math.isfinite(least) and math.isfinite(most)):
            finite = block[np.isfinite(block)]
            if not finite.size:
                continue
            least, most = float(finite.min()), float(finite.max())
        low, high = min(low, least), max(high, most)
    return (low, high) if low <= high else None


def _varies(found: Mismatch, low: float, high: float) -> bool:
    """Whether the output holds other values than its extremes where it is right."""
    right = found.right_sample.got
    return bool(np.any((right != low) & (right != high)))


def _off_by_one(found: Mismatch, some: Elements) -> Pattern | None:
    if "b" in (found.got.dtype.kind, found.ref.dtype.kind):
        return None
    right = found.right_sample
    values = np.concatenate((some.got, some.ref, right.got, right.ref))
    if not np.all(np.isfinite(values)) or not np.all(values == np.rint(values)):
        return None
    references = np.concatenate((some.ref, right.ref))
    if some.got.size < LEAST or np.ptp(references) <= 1:
        return None
    away = some.got - some.ref
    if np.mean(np.abs(away) == 1) < EXPLAINED:
        return None
    step = np.where(away < 0, -1.0, 1.0)
    share = explained(some, some.ref + step, np.zeros_like(step))
    if share is None:
        return None
    above = float(np.mean(away == 1))
    direction = "above" if above == 1 else "below" if above == 0 else "above or below"
    holds = (
        direction != "above or below"
        and right.got.size > 0
        and bool(np.all(right.got - right.ref == step[0]))
    )
    what = f"whole numbers one {direction} the reference"
    return _written(found, Name.OFF_BY_ONE, share, _place(found, holds), what, {"above": above})


def _sign(found: Mismatch, some: Elements) -> Pattern | None:
    share = explained(some, -some.ref, some.allowed)
    if share is None:
        return None
    right = found.right_sample
    place = _place(found, _all_right(right, -right.ref, right.allowed))
    return _written(found, Name.SIGN, share, place, "the reference with its sign turned", {"factor": -1})


def _all_right(right: Elements, predicted: Float64, room: Float64) -> bool:
    return right.got.size > 0 and agreement(right.got, predicted, room) >= EXPLAINED


def _scaled(found: Mismatch, some: Elements) -> tuple[float, Pattern] | None:
    fitted = fit_factor(found, some)
    if fitted is None:
        return None
    factor, error = fitted
    predicted, room = factor_prediction(found, some, factor)
    share = explained(some, predicted, room, parameters=1)
    if share is None:
        return None
    right = found.right_sample
    place = _place(found, _all_right(right, *factor_prediction(found, right, factor)))
    known = factor_names.name(factor, error, found.shape)
    figure: dict[str, int | float | str] = {"factor": factor}
    what = f"the reference times {number(factor)}"
    if known:
        figure["factor_name"] = known
        what += "" if known == number(factor) else f", which is {known}"
    pattern = _written(found, Name.SCALED, share, place, what, figure)
    return _misfit(some, predicted), pattern


def factor_prediction(found: Mismatch, elements: Elements, factor: float) -> tuple[Float64, Float64]:
    """``factor`` times the reference, and what rounding explains around it."""
    predicted = factor * elements.ref
    room = np.maximum(elements.allowed * max(1.0, abs(factor)), slack(found, elements, predicted))
    return predicted, room


def fit_factor(found: Mismatch, some: Elements) -> tuple[float, float] | None:
    """The one factor between the reference and the output, and its relative standard error."""
    usable = np.isfinite(some.got) & np.isfinite(some.ref) & (some.ref != 0)
    if not usable.any():
        return None
    got, ref = some.got[usable], some.ref[usable]
    size = np.abs(ref)
    large = size >= min(np.median(size), size.max())
    factor = float(np.median(got[large] / ref[large]))
    if not math.isfinite(factor):
        return None
    predicted, room = factor_prediction(found, some, factor)
    inside = usable & (np.abs(some.got - predicted) <= room)
    got, ref = some.got[inside], some.ref[inside]
    power = float(np.dot(ref, ref))
    if not 0 < power < math.inf:
        return None
    factor = float(np.dot(got, ref)) / power
    rest = got - factor * ref
    error = math.sqrt(float(np.dot(rest, rest)) / power / got.size)
    return (factor, error / abs(factor)) if factor and math.isfinite(factor) else None


def _offset(found: Mismatch, some: Elements) -> tuple[float, Pattern] | None:
    away = some.got - some.ref
    away = away[np.isfinite(away)]
    if not away.size:
        return None
    offset = float(np.median(away))
    predicted = some.ref + offset
    share = explained(some, predicted, slack(found, some, predicted), parameters=1)
    if share is None:
        return None
    right = found.right_sample
    moved = right.ref + offset
    place = _place(found, _all_right(right, moved, slack(found, right, moved)))
    what = f"the reference {'plus' if offset > 0 else 'minus'} {number(abs(offset))}"
    return _misfit(some, predicted), _written(found, Name.OFFSET, share, place, what, {"offset": offset})


def _misfit(some: Elements, predicted: Float64) -> float:
    return float(np.nanmedian(np.abs(some.got - predicted)))

"""What form a mismatch has: zeros, a factor, swapped axes, a tile, a diagonal, ...; no tolerance is chosen here."""

from __future__ import annotations

import numpy as np

from nkireview.numerics.arrays import Array
from nkireview.numerics.patterns.elements import EVERYWHERE, element_patterns
from nkireview.numerics.patterns.growth import growing
from nkireview.numerics.patterns.lines import line_patterns
from nkireview.numerics.patterns.mismatch import Mismatch, mismatch, unravel
from nkireview.numerics.patterns.moves import shifted, transposed
from nkireview.numerics.patterns.names import Name, Pattern
from nkireview.numerics.patterns.nonfinite import not_finite
from nkireview.numerics.patterns.orders import permuted
from nkireview.numerics.patterns.places import places
from nkireview.numerics.patterns.running import stale
from nkireview.numerics.patterns.words import capital, number, percent

__all__ = ["Name", "Pattern", "patterns"]


def patterns(got: Array, ref: Array, allowed: Array | float) -> tuple[Pattern, ...]:
    """The patterns of the elements of ``got`` that differ from ``ref`` by more than ``allowed``, the best first.

    ``got`` and ``ref`` are real arrays of one shape, 64-bit integers exact up to 2**53; ``allowed`` is the absolute
    error that rounding explains, a number or an array that broadcasts. Patterns of values come before those of
    places, and richer ones are only tried where simpler ones fail: a value pattern explains 95% of the wrong
    elements, a place holds 99% of them. Rows are all axes but the last one longer than 1, columns are that one.
    ``scattered`` alone says that elements are wrong and none of the others holds. Empty where nothing is wrong.
    Raise ValueError for shapes that differ, complex or other non-real dtypes, and an ``allowed`` that is negative
    or NaN.
    """
    # Infinities and NaN are outcomes here: what overflows explains nothing.
    with np.errstate(all="ignore"):
        found = mismatch(np.asarray(got), np.asarray(ref), allowed)
        return tuple(_told(pattern) for pattern in _patterns(found))


def _patterns(found: Mismatch) -> list[Pattern]:
    if not found.count:
        return []
    values = _values(found)
    if not values or values[0].figure.get("place") != EVERYWHERE:
        values += places(found)
    return values or [_scattered(found)]


def _values(found: Mismatch) -> list[Pattern]:
    """What the wrong values are, by the simplest kind of pattern that explains them."""
    bad = not_finite(found)
    if bad:
        return [bad]
    alone = element_patterns(found)
    if alone:
        return alone
    for search in (transposed, shifted, stale, permuted):
        pattern = search(found)
        if pattern:
            return [pattern]
    drift = growing(found)
    return [*([drift] if drift else []), *line_patterns(found)]


def _scattered(found: Mismatch) -> Pattern:
    matrix = found.wrong.reshape(found.rows, found.columns)
    rows, columns = (int(np.count_nonzero(matrix.any(axis=axis))) for axis in (1, 0))
    share = found.count / found.size
    if found.count == 1:
        one = found.wrong_sample
        index = tuple(int(along[0]) for along in unravel(one.at, found.shape))
        held = f"{number(one.got[0])} instead of {number(one.ref[0])}"
        which = "the only element" if found.size == 1 else f"one of {found.size:,} elements, that at {index},"
        sentence = f"{which} is wrong: {held}"
    else:
        spread = f", in {rows:,} of {found.rows:,} rows and {columns:,} of {found.columns:,} columns"
        sentence = (
            f"{found.count:,} of {found.size:,} elements ({percent(share)}) are wrong"
            f"{spread if found.rows > 1 and found.count < found.size else ''}, in no pattern that has a name"
        )
    bad = float(np.mean(~np.isfinite(found.wrong_sample.got)))
    if bad and found.count > 1:
        sentence += f"; {percent(bad)} of them are NaN or infinite"
    figure = {
        "wrong": found.count,
        "elements": found.size,
        "rows": rows,
        "columns": columns,
        "not_finite": bad,
    }
    return Pattern(Name.SCATTERED, sentence, 1.0, figure)


def _told(pattern: Pattern) -> Pattern:
    return Pattern(pattern.name, capital(pattern.sentence) + ".", pattern.explains, pattern.figure)

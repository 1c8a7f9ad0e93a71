"""NaN and infinities that the reference does not hold, or the other way round."""

from __future__ import annotations

import numpy as np

from nkireview.numerics.arrays import BLOCK_ELEMENTS, Float64, float64
from nkireview.numerics.patterns.elements import EVERYWHERE
from nkireview.numerics.patterns.mismatch import Ints, Mask, Mismatch
from nkireview.numerics.patterns.names import Name, Pattern
from nkireview.numerics.patterns.trial import EXPLAINED
from nkireview.numerics.patterns.words import listed, of_wrong, percent


def not_finite(found: Mismatch) -> Pattern | None:
    """The pattern of wrong NaN and infinities, where nearly all wrong elements are such."""
    some = found.wrong_sample
    for said, missing in ((some.got, False), (some.ref, True)):
        bad = ~np.isfinite(said)
        share = float(np.mean(bad))
        if share >= EXPLAINED:
            return _pattern(found, share, _kind(said[bad]), missing)
    return None


def _kind(values: Float64) -> str:
    kinds = {"NaN": np.isnan(values), "inf": values == np.inf, "-inf": values == -np.inf}
    present = [name for name, held in kinds.items() if held.any()]
    return " or ".join(present)


def _pattern(found: Mismatch, share: float, kind: str, missing: bool) -> Pattern:
    bad = _all_bad(found, missing)
    where, place, lines = _where(found, bad)
    first = (
        ", ".join(str(int(i)) for i in np.unravel_index(int(bad.argmax()), found.shape))
        if found.shape
        else ""
    )
    subject = of_wrong(found, share)
    verb = "is" if found.count == 1 else "are"
    what = f"no longer the {kind} of the reference" if missing else f"{kind} where the reference is not"
    return Pattern(
        Name.NOT_FINITE,
        f"{subject} {verb} {what}: {place}",
        share,
        {
            "value": kind,
            "missing": int(missing),
            "where": where,
            "place": EVERYWHERE if where == EVERYWHERE else place,
            "count": int(np.count_nonzero(bad)),
            "lines": lines,
            "first": f"({first})",
        },
    )


def _all_bad(found: Mismatch, missing: bool) -> Mask:
    bad: Mask = found.wrong.copy()
    said = found.ref if missing else found.got
    for start in range(0, found.size, BLOCK_ELEMENTS):
        block = slice(start, start + BLOCK_ELEMENTS)
        bad[block] &= ~np.isfinite(float64(said[block]))
    return bad


def _where(found: Mismatch, bad: Mask) -> tuple[str, str, int]:
    """Where they are as a word and as a phrase, and how many whole rows or columns they fill."""
    count, size = int(np.count_nonzero(bad)), bad.size
    if count >= EXPLAINED * size:
        return EVERYWHERE, f"{percent(count / size)} of the output", found.rows
    matrix = bad.reshape(found.rows, found.columns)
    if found.rows > 1 and found.columns > 1:
        for word, axis in (("rows", 1), ("columns", 0)):
            lines, inside = _whole(matrix, axis)
            if inside >= EXPLAINED * count:
                whole = f"whole {word}" if lines.size > 1 else f"one whole {word.removesuffix('s')}"
                return word, f"{whole}, {listed(lines)}", int(lines.size)
    rows = int(np.count_nonzero(matrix.any(axis=1)))
    return (
        "scattered",
        f"scattered over {rows:,} of {found.rows:,} rows" if found.rows > 1 else "scattered",
        0,
    )


def _whole(matrix: Mask, axis: int) -> tuple[Ints, int]:
    """Lines that are bad nearly all along, and the bad elements in them."""
    counts = np.count_nonzero(matrix, axis=axis)
    lines = np.flatnonzero(counts >= EXPLAINED * matrix.shape[axis])
    return lines, int(counts[lines].sum())

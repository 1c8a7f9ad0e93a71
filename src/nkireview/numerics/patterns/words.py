"""How shares, axes and indices are put into sentences."""

from __future__ import annotations

from collections.abc import Sequence

from nkireview.numerics.patterns.mismatch import Ints, Mismatch

# Ranges of indices that a sentence lists before it stops.
LISTED = 6


def percent(share: float) -> str:
    """A share as a percentage that says 100% of all only."""
    if share >= 1:
        return "100%"
    return f"{min(100 * share, 99.9):.3g}%"


def number(value: float) -> str:
    """A figure with as many digits as a reader can use."""
    return f"{value:.6g}"


def of_wrong(found: Mismatch, share: float) -> str:
    """``share`` of the wrong elements in words, as the subject of a sentence."""
    if found.count == 1:
        return "the only wrong element"
    if share >= 1:
        return f"all {found.count:,} wrong elements"
    return f"{percent(share)} of the {found.count:,} wrong elements"


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def lines_along(found: Mismatch, axis: int | None) -> str:
    """What indices along ``axis`` are called; of the flattened output for None."""
    if axis is None:
        return "flat indices"
    if len(found.axes) < 2:
        return "elements"
    if axis == found.axes[-1]:
        return "columns"
    return "rows" if axis == found.axes[-2] else f"indices of axis {axis}"


def span(plural: str, start: int, stop: int) -> str:
    """``rows 3 to 9`` for the half-open range from ``start`` to ``stop``; ``row 3`` for one."""
    if stop - start == 1:
        return numbered(singular(plural), f"{start}")
    return numbered(plural, f"{start} to {stop - 1}")


def numbered(word: str, which: str) -> str:
    """``rows 3 to 9``, ``indices 3 to 9 of axis 0``."""
    noun, of, rest = word.partition(" of ")
    return f"{noun} {which}{of}{rest}"


def singular(plural: str) -> str:
    if plural.startswith("indices"):
        return "index" + plural.removeprefix("indices")
    return "flat index" if plural == "flat indices" else plural.removesuffix("s")


def ordinal(count: int) -> str:
    """``second``, ``third``, and from there ``4th``, ``22nd``."""
    if count in (2, 3):
        return "second" if count == 2 else "third"
    ending = "th" if count // 10 % 10 == 1 else {1: "st", 2: "nd", 3: "rd"}.get(count % 10, "th")
    return f"{count}{ending}"


def listed(indices: Ints | Sequence[int]) -> str:
    """Sorted indices as ranges, ``3, 7 to 9``; only the first of many."""
    ranges: list[list[int]] = []
    for index in indices:
        if ranges and index == ranges[-1][1] + 1:
            ranges[-1][1] = int(index)
        elif len(ranges) == LISTED:
            return ", ".join(_range(*ends) for ends in ranges) + " and more"
        else:
            ranges.append([int(index), int(index)])
    return ", ".join(_range(*ends) for ends in ranges)


def _range(first: int, last: int) -> str:
    return f"{first}" if first == last else f"{first} to {last}"

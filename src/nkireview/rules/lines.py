"""One cause at several lines: a sentence that names the first of them and says how many more there are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

Item = TypeVar("Item")


def distinct(places: Iterable[str]) -> tuple[str, ...]:
    """The places, each once and in order, those that nobody knows left out."""
    return tuple(dict.fromkeys(place for place in places if place))


def located(sentence: str, places: Sequence[str]) -> str:
    """``sentence (kernel.py:3 and 2 more lines)``; the sentence alone where there is no place."""
    if not places:
        return sentence
    more = len(places) - 1
    rest = f" and {more} more line{'s' if more > 1 else ''}" if more else ""
    return f"{sentence} ({places[0]}{rest})"


def by_cause(items: Iterable[Item], cause: Callable[[Item], object]) -> list[list[Item]]:
    """Items by what causes them, in order of the first of each."""
    found: dict[object, list[Item]] = {}
    for item in items:
        found.setdefault(cause(item), []).append(item)
    return list(found.values())

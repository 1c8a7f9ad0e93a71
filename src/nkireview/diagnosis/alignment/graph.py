"""The steps of a reference as a graph: what is made of what, and what only moves values."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from nkireview.observed import RESULT, VIEW, Observation

MOVED = frozenset(
    {VIEW, "concatenate", "stack", "split", "repeat", "tile", "broadcast_to", "pad", "roll", "flip"}
    | {"swapaxes", "transpose", "reshape", "moveaxis", "take", "take_along_axis"}
)
"""Operations of NumPy that only move values."""


def counterpart(observed: Sequence[Observation], figures: Collection[int]) -> Observation | None:
    """The reference's first step of all of those figures, but for how they are arranged."""
    wanted = set(figures)
    for each in observed:
        if each.name not in MOVED and each.name != RESULT and wanted <= _sources(observed, each):
            return each
    return None


def below(observed: Sequence[Observation], figures: Collection[int]) -> set[int]:
    """The observations that are made of some of those, and themselves."""
    found, size = set(figures), -1
    while len(found) > size:  # what a loop carries is read before it is made
        size = len(found)
        found.update(number for number, each in enumerate(observed) if found.intersection(each.reads))
    return found


def arranged(observed: Sequence[Observation], figure: int) -> set[int]:
    """The observations that have values of one, and of nothing else, in other order."""
    found = {figure}
    for number, each in enumerate(observed):
        if each.name in MOVED and each.reads and found.issuperset(each.reads):
            found.add(number)
    return found


def beside(observed: Sequence[Observation], figure: int) -> list[int]:
    """The observations that one reads, and those that read it."""
    made = [number for number, each in enumerate(observed) if figure in each.reads]
    return [*made, *observed[figure].reads]


def _sources(observed: Sequence[Observation], observation: Observation) -> set[int]:
    found: set[int] = set()
    left, seen = list(observation.reads), set(observation.reads)
    while left:
        number = left.pop()
        if observed[number].name not in MOVED:
            found.add(number)
            continue
        new = set(observed[number].reads) - seen
        seen |= new
        left += new
    return found

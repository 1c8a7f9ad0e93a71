"""Loops of a reference: the steps that one line makes again and again, as one step each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from nkireview.observed import INPUT, RESULT, Observation

TURNS = 8
"""Steps of one line, one operation and one shape from which on they are one."""


def together(observed: Sequence[Observation]) -> list[Observation]:
    """The observations, those of a loop stacked along a first axis, which then read what any of them reads."""
    groups: dict[object, list[int]] = defaultdict(list)
    for number, each in enumerate(observed):
        reads = tuple(observed[read].name for read in each.reads)
        alone = each.name in (INPUT, RESULT)
        groups[number if alone else (each.name, each.line, each.values.shape, reads)].append(number)
    parts = [
        part
        for group in groups.values()
        for part in ([group] if len(group) >= TURNS else [[number] for number in group])
    ]
    parts.sort()
    of = {number: at for at, part in enumerate(parts) for number in part}
    return [_one(observed, part, at, of) for at, part in enumerate(parts)]


def _one(observed: Sequence[Observation], part: Sequence[int], at: int, of: dict[int, int]) -> Observation:
    first = observed[part[0]]
    reads = dict.fromkeys(of[read] for number in part for read in observed[number].reads)
    values = first.values if len(part) == 1 else np.stack([observed[number].values for number in part])
    return Observation(
        first.name, first.line, first.text, tuple(read for read in reads if read != at), values
    )

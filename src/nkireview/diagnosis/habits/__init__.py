"""Habits: repairs of what else goes wrong in ports and in generated kernels.

For Programs whose unrounded run differs from the reference, after the repairs of `algebra` and `flows`. Each changes
one thing in the instructions of one line, in one operand, or in one parameter, and is exact in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice

from nkireview.checks.dataflow import Dataflow
from nkireview.diagnosis.flows.acting import Array
from nkireview.diagnosis.habits import (
    bounds,
    carry,
    functions,
    indices,
    inputs,
    roundings,
    signs,
    swaps,
    tiles,
)
from nkireview.diagnosis.habits.survey import Survey
from nkireview.diagnosis.repair import Repair, by_turns, once

__all__ = ["LIMIT", "repairs"]

LIMIT = 150
"""Repairs in all."""

FAMILIES: tuple[tuple[int, int, Callable[[Survey], Iterator[Repair]]], ...] = (
    (3, 6, carry.scans),
    (4, 0, signs.parameters),
    (4, 4, indices.shifted),
    (3, 3, bounds.edges),
    (1, 0, indices.ties),
    (3, 3, swaps.gates),
    (4, 4, inputs.offsets),
    (4, 4, inputs.inverted),
    (4, 10, signs.terms),
    (4, 8, carry.fills),
    (4, 8, carry.partial),
    (4, 12, tiles.permuted),
    (4, 6, tiles.starts),
    (3, 5, inputs.scales),
    (8, 3, functions.missing),
    (5, 7, bounds.moved),
    (4, 6, functions.extra),
    (4, 4, inputs.unread),
    (6, 6, inputs.missing),
    (8, 19, functions.missing_inside),
    (5, 10, bounds.missing),
    (6, 12, inputs.terms),
    (4, 8, functions.missing_factors),
    (5, 6, functions.around_reductions),
    (4, 8, swaps.halves),
    (2, 8, signs.halves),
    (4, 4, swaps.pairs),
    (2, 2, swaps.exchanged),
    (2, 4, swaps.transposed),
    (3, 5, inputs.orders),
    (3, 3, carry.axes),
    (3, 3, functions.bases),
    (4, 8, inputs.applied),
    (6, 16, roundings.roundings),
    (3, 9, signs.two_terms),
    (4, 8, tiles.rolled),
    (3, 3, swaps.outputs),
)
"""Kinds of repairs, the most plausible first: how many of each at once, and how many more once all have had a turn."""


def repairs(flow: Dataflow, arguments: Mapping[int, Array]) -> Iterator[Repair]:
    """At most `LIMIT` repairs, made one at a time, the most plausible first; arguments: by parameter buffer.

    Each may be executed any number of times, one after the other. Those of sums over several blocks (`carry`) execute
    the Program once for each reduction to learn what it comes to.
    """
    return islice(once(by_turns(FAMILIES, Survey(flow, arguments))), LIMIT)

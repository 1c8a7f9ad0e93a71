"""Arrangement: repairs of kernels that do the right things in the wrong order, at the wrong place, for the wrong tile.

For Programs whose unrounded run differs from the reference. Each changes one thing in the instructions of one line, or
of lines alike, and is exact in float64; instructions of other shapes, such as those of tail tiles, stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice

from nkireview.checks.dataflow import Dataflow
from nkireview.diagnosis.arrangement import (
    indices,
    masks,
    missing_masks,
    moves,
    normalisers,
    norms,
    orders,
    parameters,
)
from nkireview.diagnosis.arrangement.places import Arranged
from nkireview.diagnosis.flows.acting import Array
from nkireview.diagnosis.repair import Repair, by_turns, once

__all__ = ["LIMIT", "repairs"]

LIMIT = 150
"""Repairs in all."""

FAMILIES: tuple[tuple[int, int, Callable[[Arranged], Iterator[Repair]]], ...] = (
    (6, 12, masks.offsets),
    (3, 3, masks.reused),
    (2, 2, masks.guarded),
    (2, 8, missing_masks.missing),
    (2, 6, missing_masks.extra),
    (4, 14, orders.within),
    (4, 12, orders.pairs),
    (4, 12, normalisers.repairs),
    (4, 8, norms.epsilons),
    (2, 6, norms.magnitudes),
    (2, 6, norms.centres),
    (2, 6, norms.roots),
    (3, 6, parameters.missing),
    (3, 6, parameters.axes),
    (3, 8, parameters.others),
    (2, 8, moves.around_reductions),
    (3, 8, moves.around_matmuls),
    (2, 4, indices.descending),
    (2, 4, indices.compared),
    (2, 4, indices.gathered),
    (2, 4, indices.loaded),
    (2, 8, norms.means),
)
"""Kinds of repairs, the most plausible first: how many of each at once, and how many more once all have had a turn."""


def repairs(flow: Dataflow, arguments: Mapping[int, Array]) -> Iterator[Repair]:
    """At most `LIMIT` repairs, made one at a time, the most plausible first; arguments: by parameter buffer.

    Each may be executed any number of times, one after the other.
    """
    return islice(once(by_turns(FAMILIES, Arranged(flow, arguments))), LIMIT)

"""Habits: repairs of what else goes wrong in ports and in generated kernels.

For Programs whose unrounded run differs from the reference, after the repairs of `algebra` and `flows`. Each changes
one thing in the instructions of one line, in one operand, or in one parameter, and is exact in float64.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
from nkireview.diagnosis.repair import Repair

__all__ = ["LIMIT", "repairs"]

LIMIT = 150
"""Repairs in all."""


def repairs(flow: Dataflow, arguments: Mapping[int, Array]) -> Iterator[Repair]:
    """At most `LIMIT` repairs, made one at a time, the most plausible first; arguments: by parameter buffer.

    Each may be executed any number of times, one after the other. Those of sums over several blocks (`carry`) execute
    the Program once for each reduction to learn what it comes to.
    """
    return islice(_once(_repairs(Survey(flow, arguments))), LIMIT)


def _once(found: Iterator[Repair]) -> Iterator[Repair]:
    """Repairs without those that are said before."""
    said = set()
    for repair in found:
        key = repair.instruction, repair.sentence
        if key not in said:
            said.add(key)
            yield repair


def _repairs(survey: Survey) -> Iterator[Repair]:
    first = (
        (8, carry.scans),
        (4, signs.parameters),
        (6, indices.shifted),
        (4, bounds.edges),
        (4, swaps.gates),
        (6, inputs.offsets),
        (6, inputs.inverted),
        (10, signs.terms),
        (8, carry.fills),
        (8, carry.partial),
        (10, tiles.permuted),
        (6, tiles.starts),
        (6, inputs.scales),
        (11, functions.missing),
        (8, bounds.moved),
        (5, bounds.missing),
        (6, functions.extra),
        (9, inputs.missing),
    )
    rest = (
        (27, functions.missing_inside),
        (10, inputs.terms),
        (12, functions.missing_factors),
        (8, functions.around_reductions),
        (8, swaps.halves),
        (4, signs.halves),
        (4, swaps.pairs),
        (3, swaps.exchanged),
        (2, swaps.transposed),
        (4, inputs.orders),
        (4, carry.axes),
        (4, functions.bases),
        (6, inputs.applied),
        (12, roundings.roundings),
        (6, signs.two_terms),
        (8, tiles.rolled),
        (4, swaps.outputs),
        (1, indices.ties),
    )
    for most, found in (*first, *rest):
        yield from islice(found(survey), most)

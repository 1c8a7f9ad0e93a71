"""Algebra: repairs of a kernel whose arithmetic is wrong, by its immediates or by what an instruction means.

For Programs whose unrounded run already differs from the reference. Each repair is exact in float64: it changes one
thing, in all instructions of a line or of lines alike, which a reference may be meant to do otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from nkireview.checks.dataflow import Dataflow
from nkireview.diagnosis.algebra import biases, divisors, epsilons, factors, forms, masked_rows, masks, orders
from nkireview.diagnosis.algebra.counts import counts
from nkireview.diagnosis.algebra.lines import lines_of
from nkireview.diagnosis.repair import Repair, once

LIMIT = 240
"""Repairs in all."""


def repairs(flow: Dataflow) -> Iterator[Repair]:
    """At most `LIMIT` repairs, made one at a time: those with a reason in the Program first."""
    return islice(once(_repairs(flow)), LIMIT)


def _repairs(flow: Dataflow) -> Iterator[Repair]:
    given = lines_of(flow)
    known = counts(flow, given)
    for most, found in (
        (8, biases.wide(given)),
        (2, masked_rows.masked_rows(given)),
        (8, factors.added(flow, given)),
        (21, epsilons.bare_roots(flow, given)),
        (12, forms.gelus(given)),
        (14, forms.written_out(given)),
        (24, masks.edges(given)),
        (10, masks.fills(given)),
        (12, divisors.divisors(given, known)),
        (24, epsilons.sizes(given, known)),
        (8, epsilons.beyond_root(given)),
        (8, biases.turned(given)),
        (30, factors.multipliers(given, known)),
        (24, factors.missing(given, known)),
        (10, masks.turned(given)),
        (12, orders.exchanged(given)),
        (12, orders.signs(given)),
        (8, forms.typed(given)),
        (12, factors.terms(given)),
        (21, epsilons.bare(flow, given, (epsilons.ROOT, epsilons.LOGARITHM))),
        (14, epsilons.bare(flow, given, (epsilons.QUOTIENT,))),
        (16, forms.confused(given)),
        (20, orders.operators(given)),
        (8, factors.outputs(given, known)),
    ):
        yield from islice(found, most)

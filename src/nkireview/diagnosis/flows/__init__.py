"""Repairs of order and flow, and experiments on the reference: what a kernel whose arithmetic is wrong does wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from nkireview.checks.dataflow import Dataflow
from nkireview.diagnosis.flows import (
    accumulators,
    arguments,
    casts,
    masking,
    parts,
    reductions,
    rescaling,
    results,
    scales,
    shifts,
    updates,
)
from nkireview.diagnosis.flows.acting import Array
from nkireview.diagnosis.flows.explaining import Case, Explanation, Reference
from nkireview.diagnosis.flows.lines import Lines
from nkireview.diagnosis.repair import Repair
from nkireview.isa.table import ROWS
from nkireview.program.program import Program

__all__ = ["Explanation", "Reference", "explanations", "repairs"]


def repairs(flow: Dataflow, given: Mapping[int, Array]) -> Iterator[Repair]:
    """The changes of arguments, order and flow after which a Program may be right, the most plausible first.

    given: the arguments, by parameter buffer. Each repair may be executed any number of times, one after the other;
    its `around` forgets what it knew when an execution begins. At most about a hundred, each made when it is asked
    for.
    """
    lines = Lines(flow)
    yield from arguments.transposed(flow, given)
    yield from arguments.exchanged(flow, given)
    yield from shifts.repairs(flow, lines)
    yield from accumulators.repairs(flow, lines)
    yield from updates.read_too_late(flow, lines)
    yield from rescaling.not_rescaled(flow, lines)
    yield from casts.rounded_otherwise(flow, lines)
    yield from casts.saturated(flow, lines)
    yield from masking.multiplied(flow, lines)
    yield from masking.untransposed(flow, lines)
    yield from reductions.masked_too_early(flow, lines)
    yield from reductions.masked_too_late(flow, lines)
    yield from arguments.backwards(flow, given)


def constants(
    program: Program,
    given: Mapping[int, Array],
    base: Sequence[Array],
    wanted: Sequence[Array],
    reference: Reference,
) -> Iterator[Explanation]:
    """Outputs that are always the same: what `explanations` begins with, known without a call of the reference."""
    yield from results.constant(Case.of(program, given, base, wanted, reference), ROWS)


def explanations(
    program: Program,
    given: Mapping[int, Array],
    base: Sequence[Array],
    wanted: Sequence[Array],
    reference: Reference,
    tries: int = parts.TRIES,
) -> Iterator[Explanation]:
    """What holds of a Program whose unrounded outputs `base` are not those of its reference, by experiments on that.

    given: the arguments by parameter buffer; reference: outputs from the arrays of all parameters, in their order;
    wanted: those of the arguments.
    tries: how often the reference may be called for parts of inputs. An experiment that it refuses with one of
    `explaining.REFUSALS` does not hold.
    """
    case = Case.of(program, given, base, wanted, reference)
    if case.right:
        return
    yield from results.constant(case, ROWS)
    yield from results.copied(case)
    yield from results.elsewhere(case)
    yield from parts.unused(case, ROWS, tries)
    yield from scales.wrong_axis(case)

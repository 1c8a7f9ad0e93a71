"""Rules over ways of computing that break on data that a small test does not have."""

from __future__ import annotations

from collections.abc import Iterator

from nkireview.checks import stability
from nkireview.checks.dataflow import Dataflow
from nkireview.rules.facts import WorkloadFacts
from nkireview.rules.finding import Dimension, Evidence, Severity
from nkireview.rules.flows import at, opcode_of, place_of, traced, wrong_inputs
from nkireview.rules.rule import Draft, Rule


def _evacuated(facts: WorkloadFacts, flow: Dataflow) -> Iterator[Draft]:
    for item in stability.shifted_evacuations(flow):
        places, opcode = place_of(flow, item.instruction), opcode_of(flow, item.instruction)
        failing = wrong_inputs(facts)
        tail = "; a maximum is taken of what is written, so that the constant cancels" if item.name else ""
        severity = Severity.blocker if failing else Severity.minor if item.name else None
        yield Draft(
            f"{opcode}: a matmul's result is copied out of PSUM with 1.0 added{tail}{at(places)}",
            places,
            item.count,
            facts.name,
            severity=severity,
            failing=failing,
        )


def _unshifted(facts: WorkloadFacts, flow: Dataflow) -> Iterator[Draft]:
    for item in stability.unshifted_softmax(flow):
        places = place_of(flow, item.instruction)
        yield Draft(
            "exp is taken of values from which no maximum was subtracted, and its sum divides: above 88.7 the "
            f"sum is inf and the row NaN or zero{at(places)}",
            places,
            item.count,
            facts.name,
            failing="a row with an element above 88.7, or with all of them below -104",
        )


def _unguarded(facts: WorkloadFacts, flow: Dataflow) -> Iterator[Draft]:
    for item in stability.unguarded_norms(flow):
        places, opcode = place_of(flow, item.instruction), opcode_of(flow, item.instruction)
        yield Draft(
            f"{opcode}: {item.name} of a sum of squares or a variance to which nothing, or zero, was added{at(places)}",
            places,
            item.count,
            facts.name,
            failing="a row of zeros",
        )


def _variances(facts: WorkloadFacts, flow: Dataflow) -> Iterator[Draft]:
    for item in stability.cancelling_variances(flow):
        places = place_of(flow, item.instruction)
        yield Draft(
            f"the variance is the mean of squares less the square of the mean, in {item.name}: with a mean of "
            f"m standard deviations its relative error is about m*m times the rounding{at(places)}",
            places,
            item.count,
            facts.name,
            severity=None if item.name == "float32" else Severity.major,
            failing="rows with a mean of 1000 standard deviations",
        )


def _ranges(facts: WorkloadFacts, flow: Dataflow) -> Iterator[Draft]:
    for item in stability.out_of_range(flow):
        places = place_of(flow, item.instruction)
        yield Draft(
            f"{item.name} of a value that nothing brings into its range of {-item.number:.4g} to "
            f"{item.number:.4g}{at(places)}",
            places,
            item.count,
            facts.name,
            failing=f"any argument beyond {item.number:.4g}",
        )


def _fills(facts: WorkloadFacts, flow: Dataflow) -> Iterator[Draft]:
    for item in stability.infinite_fills(flow):
        places, opcode = place_of(flow, item.instruction), opcode_of(flow, item.instruction)
        yield Draft(
            f"{opcode}: -inf is the fill of a {item.name} tile whose maximum is taken{at(places)}",
            places,
            item.count,
            facts.name,
            failing="a row that is filled whole: -inf less -inf is NaN",
        )


def _unread(facts: WorkloadFacts, flow: Dataflow) -> Iterator[Draft]:
    for path in stability.unread_parameters(flow):
        yield Draft(f"no instruction reads or writes the parameter {path}", workload=facts.name, group=path)


_SHARED = "aws-neuron-sdk nki/api/nki.api.shared.rst"
_ISA = "aws-neuron-sdk nki/api/nki/isa/__init__.py"
_MINOR, _NOTE = Severity.minor, Severity.note

RULES = (
    Rule(
        "NKR060",
        "PSUM is evacuated with 1.0 added",
        _NOTE,
        Dimension.correctness,
        Evidence.traced,
        "Copying PSUM to SBUF with an operator needs its neutral element: 1.0 for multiply, 0.0 for add. Adding 1.0 "
        "shifts every element, and a softmax behind it hides the shift from a test of the whole. A blocker where an "
        "output is wrong, minor where the constant cancels.",
        traced(_evacuated),
        citation=f"{_ISA}:1090-1160",
        change="Multiply by 1.0, or use nisa.tensor_copy; keep the addition only if the formula has it.",
    ),
    Rule(
        "NKR061",
        "A softmax does not subtract the maximum",
        Severity.major,
        Dimension.numerics,
        Evidence.traced,
        "exp overflows float32 above 88.7, and random data of unit variance never gets there. Subtracting the row's "
        "maximum leaves the result unchanged and keeps every argument at or below zero.",
        traced(_unshifted),
        citation=f"{_SHARED}:137-205",
        change="Reduce the row with maximum (negate=True) and pass it as the bias of the activation.",
    ),
    Rule(
        "NKR062",
        "A norm divides by a root that may be zero",
        _MINOR,
        Dimension.numerics,
        Evidence.traced,
        "Scalar's rsqrt is specified from 2**-87 to 2**97 and reciprocal from 2**-42: a row of zeros, such as "
        "padding, is outside, and the hardware need not even return infinity there.",
        traced(_unguarded),
        citation=f"{_SHARED}:190-201",
        change="Add a small constant before the root: the bias of the activation, or op0=add of tensor_scalar.",
    ),
    Rule(
        "NKR063",
        "A variance is the difference of two large numbers",
        _MINOR,
        Dimension.numerics,
        Evidence.traced,
        "The mean of squares and the square of the mean share their leading digits when the mean is large "
        "against the spread; their difference keeps only the rounding errors and may be negative. Major in "
        "low precision.",
        traced(_variances),
        citation=f"{_ISA}:1939-1973",
        change="Subtract the mean first and sum the squares of what is left, or use nisa.bn_stats and nisa.bn_aggr.",
    ),
    Rule(
        "NKR064",
        "sin or arctan outside the range where it is computed",
        _MINOR,
        Dimension.numerics,
        Evidence.traced,
        "Scalar evaluates piecewise polynomials: sin from -pi to pi, arctan from -pi/2 to pi/2. Outside it "
        "extrapolates: sin(9.0) comes out near 27.65, with no NaN to show it, and a NumPy run does not see it.",
        traced(_ranges),
        citation=f"{_SHARED}:190-216",
        change="Reduce the argument first, for example with op0=mod of tensor_scalar and a shift by pi.",
    ),
    Rule(
        "NKR065",
        "A mask of -inf reaches a maximum",
        _NOTE,
        Dimension.numerics,
        Evidence.traced,
        "Where a whole row is masked its maximum is -inf, and what is subtracted from it is NaN. A large "
        "finite number gives the same result in every other row.",
        traced(_fills),
        citation=f"{_ISA}:2842-2846",
        change="Fill with a large finite number of the tile's dtype, such as -3e38 in float32.",
    ),
    Rule(
        "NKR066",
        "A tensor parameter is not used",
        _NOTE,
        Dimension.correctness,
        Evidence.traced,
        "The kernel takes a tensor that no instruction touches, for these shapes and scalars. Either the "
        "parameter is left over, or a branch that should use it was not taken.",
        traced(_unread),
        citation="aws-neuron-sdk nki/get-started/nki-language-guide.rst:116",
        change="Remove the parameter, or use it.",
    ),
)

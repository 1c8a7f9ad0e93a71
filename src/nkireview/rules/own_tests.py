"""Rules over an author's own tests: what they compare, on which inputs, and what they would let pass."""

from __future__ import annotations

from collections.abc import Iterator

from nkireview.rules.facts import Facts, JudgedMutant, OwnEvidence
from nkireview.rules.finding import Dimension, Evidence, Severity
from nkireview.rules.lines import distinct, located
from nkireview.rules.rule import Draft, Rule

MOVES = frozenset(
    {"dma_copy", "tensor_copy", "nc_transpose", "dma_transpose", "memset", "iota", "nc_stream_shuffle"}
)
"""What computes nothing: any values serve to test it."""
HALF = 0.5
NEARLY_ALL = 0.999
MISSED = 0.25
"""Share of mutants that tests may miss."""
NAMED = 4
"""Mutants that a message names."""


def _weight(own: OwnEvidence, usual: Severity) -> Severity:
    """One step more where the author's tests are all the evidence there is."""
    if not own.alone:
        return usual
    return Severity.major if usual is Severity.minor else Severity.minor


def _itself(facts: Facts) -> Iterator[Draft]:
    own = facts.own_tests
    if own is None:
        return
    same = [item for item in own.tests.comparisons if item.same]
    for item in same:
        yield Draft(
            f"{item.test} compares {item.left} with itself ({item.place})",
            (item.place,),
            severity=_weight(own, Severity.minor),
            group=item.place,
        )
    both = [item for item in own.tests.comparisons if item.kernel == "both" and not item.same]
    if both and not own.tests.against_others:
        places = distinct(item.place for item in both)
        yield Draft(
            located("the tests compare results of the kernel with each other and with nothing else", places),
            places,
            len(both),
            severity=_weight(own, Severity.minor),
        )
    shared = [item for item in own.tests.comparisons if item.helpers]
    if shared and len(shared) == len(own.tests.against_others):
        names = ", ".join(dict.fromkeys(name for item in shared for name in item.helpers))
        places = distinct(item.place for item in shared)
        yield Draft(
            located(f"the reference of the tests is computed by {names}, which the kernel calls too", places),
            places,
            len(shared),
            severity=_weight(own, Severity.note),
            change="Write the reference without functions of the kernel: a mistake in them is in both.",
        )


def _unit(facts: Facts) -> Iterator[Draft]:
    own = facts.own_tests
    if own is None or not own.tests.only_unit or not _computes(facts):
        return
    drawn = [item for item in own.tests.given if item.kind == "unit"]
    places = distinct(item.place for item in drawn)
    yield Draft(
        located("the tests give the kernel numbers from [0, 1) and no others", places),
        places,
        len(drawn),
        severity=_weight(own, Severity.note),
    )


def _computes(facts: Facts) -> bool:
    """False where every program only moves data."""
    opcodes = {
        opcode.name
        for workload in facts.workloads
        if workload.program is not None
        for opcode in workload.program.opcodes
    }
    return not opcodes or not opcodes <= MOVES


def _zeros(facts: Facts) -> Iterator[Draft]:
    own = facts.own_tests
    for item in own.zeros if own is not None else ():
        if own is None or item.share < HALF:
            continue
        whole = item.share >= NEARLY_ALL
        much = "every element" if item.share == 1.0 else f"{100 * item.share:.3g}% of the elements"
        yield Draft(
            f"with rtol {item.rtol:g} and atol {item.atol:g} the tests let {much} of {item.output} be zero, those "
            f"that are zero apart ({item.place})",
            (item.place,),
            severity=_weight(own, Severity.minor if whole else Severity.note),
            group=item.output,
        )


def _square(facts: Facts) -> Iterator[Draft]:
    own = facts.own_tests
    if own is None or not own.tests.only_square:
        return
    matrices = [item for item in own.tests.given if item.square]
    places = distinct(item.place for item in matrices)
    yield Draft(
        located("every matrix that the tests give has as many rows as columns", places),
        places,
        len(matrices),
        severity=_weight(own, Severity.note),
    )


def _once(facts: Facts) -> Iterator[Draft]:
    own = facts.own_tests
    if own is None or not own.tests.one_draw:
        return
    places = distinct(item.place for item in own.tests.drawn)
    yield Draft(
        located(f"the tests try one draw, of seed {own.tests.seeds[0]:g} and of one shape", places),
        places,
        severity=_weight(own, Severity.note),
    )


def _printed(facts: Facts) -> Iterator[Draft]:
    own = facts.own_tests
    comparisons = own.tests.comparisons if own is not None else ()
    if own is None or not comparisons or any(item.asserted for item in comparisons):
        return
    places = distinct(item.place for item in comparisons)
    yield Draft(
        located("the outcome of the comparison is printed, and nothing fails", places),
        places,
        len(comparisons),
        severity=_weight(own, Severity.note),
    )


def _missed(facts: Facts) -> Iterator[Draft]:
    own = facts.own_tests
    if own is None:
        return
    survived = [item for item in own.mutants if item.state == "survived"]
    counted = [item for item in own.mutants if item.state != "equal"]
    if len(survived) < 2 or len(survived) <= MISSED * len(counted):
        return
    places = distinct(item.place for item in own.tests.relied_on)
    noticed = len(counted) - len(survived)
    yield Draft(
        f"the tests would notice {noticed} of {len(counted)} mutants of the kernel; not: {_named(survived)}",
        places,
        len(survived),
        severity=_weight(own, Severity.note),
        failing="; ".join(_sentences(survived)),
    )


def _named(mutants: list[JudgedMutant]) -> str:
    names = list(dict.fromkeys(item.name for item in mutants))
    more = f" and {len(names) - NAMED} more kinds" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _sentences(mutants: list[JudgedMutant]) -> Iterator[str]:
    for item in mutants[:NAMED]:
        yield f"{item.sentence} ({item.place})" if item.place else item.sentence


_NUMPY = "numpy.org/doc/stable/reference/generated/numpy.allclose.html"
_NOTE = Severity.note

RULES = (
    Rule(
        "NKR090",
        "A test compares the kernel with itself",
        Severity.minor,
        Dimension.numerics,
        Evidence.source,
        "Both sides have the same mistakes, so that the comparison holds whatever the kernel computes. That two runs "
        "agree says that the kernel is deterministic, and no more.",
        _itself,
        change="Compare with a reference that shares nothing with the kernel: NumPy in float64, from the definition.",
    ),
    Rule(
        "NKR091",
        "The tests draw from [0, 1) alone",
        _NOTE,
        Dimension.numerics,
        Evidence.source,
        "Numbers that are all positive and near each other hide what others show: sums do not cancel, exp does not "
        "overflow, a missing epsilon or maximum, the sign of a mask and the form of a GELU make no difference.",
        _unit,
        change="Draw from a normal distribution, and add cases that are scaled by 1e-3 and by 100 and rows of zeros.",
    ),
    Rule(
        "NKR092",
        "The tolerance of a test lets zeros pass",
        _NOTE,
        Dimension.numerics,
        Evidence.executed,
        "Elements below atol are not compared at all. Where outputs are small, as those of a softmax over many "
        "columns, a kernel that writes none of them passes. Minor where nearly all may be zero.",
        _zeros,
        citation=_NUMPY,
        change="Choose atol from the size of the outputs, such as rtol times their root mean square.",
    ),
    Rule(
        "NKR093",
        "The tests have square matrices only",
        _NOTE,
        Dimension.numerics,
        Evidence.source,
        "With as many rows as columns a transposed operand, a sum over the other axis and swapped sizes fit as well, "
        "and no bound is exceeded.",
        _square,
        change="Add a case in which every axis has another size, one of them no multiple of 128.",
    ),
    Rule(
        "NKR094",
        "The tests try one draw",
        _NOTE,
        Dimension.numerics,
        Evidence.source,
        "One seed and one shape are one case. Tails, ties, other tile counts and values beyond those drawn are not "
        "looked at.",
        _once,
        change="Run the test for several seeds and shapes, with pytest.mark.parametrize.",
    ),
    Rule(
        "NKR095",
        "Mutants of the kernel pass its tests",
        _NOTE,
        Dimension.numerics,
        Evidence.executed,
        "Each mutant is the kernel with one mistake that people make. One that passes is a mistake that the tests "
        "would not have noticed, on inputs like those that they draw and within their tolerances.",
        _missed,
        change="Tighten the tolerance to what rounding explains, and add inputs on which the mistakes show: tiny rows "
        "for an epsilon, large values for a maximum, few columns for N-1.",
    ),
    Rule(
        "NKR096",
        "A comparison is only printed",
        _NOTE,
        Dimension.numerics,
        Evidence.source,
        "Nothing depends on the outcome: a test run and a script end well when the kernel is wrong.",
        _printed,
        change="Assert it, or use numpy.testing.assert_allclose, which also says what differs.",
    ),
)

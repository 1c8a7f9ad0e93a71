"""Rules over what `verify` found, and over kernels that could not be traced at all."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nkireview.isa.release import Release, Span
from nkireview.rules.facts import Facts, WorkloadFacts
from nkireview.rules.finding import Dimension, Evidence, Severity
from nkireview.rules.lines import by_cause, distinct, located
from nkireview.rules.rule import Draft, Rule, each

RETURNED_MEMORY = 23
"""Number of the constraint that results are returned from shared HBM; a matter of its own (see NKR002)."""

DIMENSIONS = {
    Dimension.tiling: (*range(1, 9), 14, 17, 54, 58, 64, 65, 66, 67, 71, 72, 78, 79, 115, 144),
    Dimension.memory: (*range(9, 14), 15, 16, 18, 19, 20, 24, 25, 26, 27, 28, 73, 74, 75, 154),
    Dimension.dma: (21, 22, 44, 69, 70, 80, 81, *range(82, 92), 106, 107, 109, 110, 111),
    Dimension.precision: (*range(29, 44), *range(45, 49), 145, 146, 148, 156),
    Dimension.hardware: (49, 50, 51, 52, 53, 61, 68, 155),
    Dimension.sdk: (23, *range(55, 58), *range(96, 105), 147, *range(149, 152)),
}
_OF = {number: dimension for dimension, numbers in reversed(DIMENSIONS.items()) for number in numbers}
LANGUAGE = frozenset({"refused", "import", "not python", "no kernel"})
LIMITS = frozenset(
    {"timeout", "cpu", "memory", "killed", "exited", "output", "scratch", "response", "limits"}
)
FORGED = frozenset({"malformed", "forged"})
SENTENCES = 3
"""Kinds of instructions that a finding about one limit quotes."""
DIVERGE = "cores diverge"
"""How the notes of a trace begin whose cores allocate different shared tensors."""
GRIDLESS = "nl.program_id(0) is 0, "
"""How the note of a legacy kernel begins that asks for its instance and is launched without a grid."""
LOCAL = " was made in the body of "
"""What the notes about tensors of a loop's body say that are used outside of it."""


def dimension_of(number: int) -> Dimension:
    """The rubric's dimension of a constraint."""
    return _OF.get(number, Dimension.hardware)


def _illegal(facts: WorkloadFacts) -> Iterator[Draft]:
    """One finding for each rule of the constraint list, or for what an instruction's own declaration asks."""
    program = facts.program
    broken = [violation for violation in facts.violations if violation.number != RETURNED_MEMORY]
    for items in by_cause(broken, lambda v: (v.number,) if v.number else (v.row, v.subject)):
        assert program is not None
        places = distinct(program.place_text(item.place) for item in items)
        # one sentence for each instruction of another kind
        first = [group[0] for group in by_cause(items, lambda v: v.row)][:SENTENCES]
        more = len(places) - len(distinct(program.place_text(item.place) for item in first))
        yield Draft(
            message=f"{'; '.join(item.message for item in first)}{f', and at {more} more' if more else ''}",
            places=places,
            count=sum(len(item.instructions) or 1 for item in items),
            workload=facts.name,
            citation=items[0].source,
            dimension=dimension_of(items[0].number),
        )


def _returned(facts: WorkloadFacts) -> Iterator[Draft]:
    for violation in facts.violations:
        if violation.number == RETURNED_MEMORY:
            yield Draft(message=violation.message, workload=facts.name, citation=violation.source)


def _failed(kinds: frozenset[str], what: str) -> object:
    def find(facts: WorkloadFacts) -> Iterator[Draft]:
        failure = facts.failure
        if failure is not None and failure.kind in kinds:
            place = f" ({failure.place})" if failure.place else ""
            kind = "integrity" if failure.kind in FORGED else ""
            places = (failure.place,) if failure.place else ()
            yield Draft(f"{what}: {failure.message}{place}", places, workload=facts.name, kind=kind)

    return find


def _diverging(facts: WorkloadFacts) -> Iterator[Draft]:
    """One finding: after the first tensor that differs those that follow do not meet either."""
    found = [(detail, place) for detail, place in _events(facts, "note") if detail.startswith(DIVERGE)]
    if found:
        places = distinct(place for _, place in found)
        yield Draft(located(found[0][0], places), places, len(found), facts.name, group="diverge")


def _overrun(facts: WorkloadFacts) -> Iterator[Draft]:
    for items in by_cause(_events(facts, "overrun"), lambda event: event[0].split(" of tensor ")[-1]):
        places = distinct(place for _, place in items)
        group = items[0][0].split(" of tensor ")[-1]
        yield Draft(located(items[0][0], places), places, len(items), facts.name, group=group)


def _parameters(facts: WorkloadFacts) -> Iterator[Draft]:
    """One finding for each parameter."""
    for items in by_cause(_events(facts, "parameter"), lambda event: event[0]):
        places = distinct(place for _, place in items)
        yield Draft(located(items[0][0], places), places, len(items), facts.name, group=items[0][0])


def _truth(facts: Facts) -> Iterator[Draft]:
    """One finding: it is one habit, whatever the tensors."""
    found = _all_events(facts, "truth")
    if found:
        places = distinct(place for _, place in found)
        rest = len(distinct(detail for detail, _ in found)) - 1
        more = f", and so of {rest} more" if rest else ""
        sentence = f"{found[0][0]}{more}; a tensor counts as present, whatever its values"
        yield Draft(located(sentence, places), places, len(found))


def _deprecated(facts: Facts) -> Iterator[Draft]:
    """One finding for each name, whatever number stands in its place."""
    for items in by_cause(_all_events(facts, "deprecated"), lambda event: re.split(" is |=", event[0])[0]):
        places = distinct(place for _, place in items)
        yield Draft(located(items[0][0], places), places, len(items))


def _escaped(facts: WorkloadFacts) -> Iterator[Draft]:
    """One finding for each operand of an instruction and loop."""
    found = [event for event in _events(facts, "note") if LOCAL in event[0]]
    for items in by_cause(found, lambda event: event[0]):
        places = distinct(place for _, place in items)
        yield Draft(located(items[0][0], places), places, len(items), facts.name, group=items[0][0])


def _notes(facts: Facts) -> Iterator[Draft]:
    notes = [
        event
        for event in _all_events(facts, "note")
        if not event[0].startswith((DIVERGE, GRIDLESS)) and LOCAL not in event[0]
    ]
    for items in by_cause(notes, lambda event: event[0]):
        places = distinct(place for _, place in items)
        yield Draft(located(items[0][0], places), places, len(items))


def _events(facts: WorkloadFacts, kind: str) -> Iterator[tuple[str, str]]:
    """(detail, ``file:line``) of the events of a kind."""
    program = facts.program
    if program is not None:
        for event in program.events:
            if event.kind == kind:
                yield event.detail, program.place_text(event.place)


def _all_events(facts: Facts, kind: str) -> list[tuple[str, str]]:
    """Those of all workloads, each once: the file is the same."""
    return list(dict.fromkeys(event for workload in facts.workloads for event in _events(workload, kind)))


def _stubs(facts: Facts) -> Iterator[Draft]:
    if facts.stubs:
        yield Draft(f"imported as inert stubs, since no kernel needs them: {', '.join(facts.stubs)}")


def _target(facts: Facts) -> Iterator[Draft]:
    if facts.file_target and facts.file_target != facts.target:
        yield Draft(f"the file asks for {facts.file_target}, the review is for {facts.target}")


def _authored(facts: Facts) -> Iterator[Draft]:
    if facts.authored:
        yield Draft(f"the author of the submission supplied the {' and the '.join(facts.authored)}")


_BLOCKER, _NOTE = Severity.blocker, Severity.note

RULES = (
    Rule(
        "NKR001",
        "An instruction breaks a limit of the target or release",
        _BLOCKER,
        Dimension.hardware,
        Evidence.traced,
        "Every limit of the instruction table is re-derived from the Program: partitions, memories, dtypes, sizes, "
        "engines, by target and release. The compiler refuses such a kernel, or the result is undefined.",
        each(_illegal),
        suppresses=frozenset({"NKR013", "NKR017"}),
        change="Keep the limit named: split the work into smaller tiles where a size is too large (nl.tile_size has "
        "the figures of the target), else give the instruction the dtype, memory, engine or address that it takes.",
    ),
    Rule(
        "NKR002",
        "A result is returned from memory other than shared HBM",
        Severity.major,
        Dimension.sdk,
        Evidence.traced,
        "Since NKI 0.3 returned tensors must be in nl.shared_hbm. Some pages of the public "
        "documentation still return "
        "nl.hbm, so this is major and no blocker.",
        each(_returned),
        citation="aws-neuron-sdk nki/migration/index.rst:608-620",
        change="Allocate what is returned with buffer=nl.shared_hbm.",
    ),
    Rule(
        "NKR003",
        "The kernel raises while it is traced",
        _BLOCKER,
        Dimension.correctness,
        Evidence.traced,
        "The kernel's own Python raised for shapes and scalars that the task asks for.",
        each(_failed(frozenset({"raised"}), "the kernel raises")),  # type: ignore[arg-type]
        change="Handle the shapes and scalars of the task, or have the task not ask for them.",
    ),
    Rule(
        "NKR004",
        "The file or a call is no NKI of this release",
        _BLOCKER,
        Dimension.sdk,
        Evidence.traced,
        "The file cannot be imported as a kernel, or uses the language in a way that it refuses.",
        each(_failed(LANGUAGE, "not traced")),  # type: ignore[arg-type]
        citation="aws-neuron-sdk nki/get-started/nki-language-guide.rst:55",
        change="Use the calls of this release and no value of a tensor while the kernel is traced.",
    ),
    Rule(
        "NKR005",
        "The kernel exceeds a limit of the trace",
        _BLOCKER,
        Dimension.correctness,
        Evidence.traced,
        "The child that traces the kernel ran out of time, memory, processes or output, or ended before it answered.",
        each(_failed(LIMITS, "tracing the kernel")),  # type: ignore[arg-type]
        change="Let every loop end for every shape, and unroll no more than the kernel needs.",
    ),
    Rule(
        "NKR006",
        "The kernel forges its Program",
        _BLOCKER,
        Dimension.correctness,
        Evidence.traced,
        "What came back from the child is no Program, or one for another kernel, target, release or arguments.",
        each(_failed(FORGED, "the program is forged")),  # type: ignore[arg-type]
        change="Leave the objects of the framework alone; a kernel computes with the calls of nki only.",
    ),
    Rule(
        "NKR007",
        "The two cores allocate different shared tensors",
        Severity.major,
        Dimension.dma,
        Evidence.traced,
        "A shared buffer of two cores is one by name, else by allocation order, shape and dtype. "
        "Where these disagree "
        "the cores do not run the same program, and control flow that differs is undefined.",
        each(_diverging),
        citation="aws-neuron-sdk nki/get-started/about/lnc.rst:139-148",
        change="Allocate shared tensors in the same order and shape on both cores, outside of branches on "
        "nl.program_id.",
    ),
    Rule(
        "NKR008",
        "An index runs past the end of its dimension",
        Severity.major,
        Dimension.tiling,
        Evidence.traced,
        "A view is an offset and strides; nothing clamps it. An index beyond the size of an inner "
        "dimension addresses "
        "the next row, or another part of the same one, and what is read there, or overwritten, is "
        "not what was meant.",
        each(_overrun),
        citation="aws-neuron-sdk nki/deep-dives/nki-aps.rst:33-60",
        change="End the last tile at the size of the dimension, for instance with min(start + size, columns).",
    ),
    Rule(
        "NKR009",
        "A parameter is written that the kernel may only read",
        _BLOCKER,
        Dimension.memory,
        Evidence.traced,
        "In the legacy generation a kernel that returns its results may write no parameter but those "
        "annotated nt.mutable_tensor, and these it has to return; the compiler refuses any other. A kernel that "
        "returns nothing is of the older convention and writes the parameters that are its results.",
        each(_parameters),
        citation="aws-neuron-sdk nki/api/nki.errors.rst at tag v2.26.1:179-228,478-513",
        change="Write into a tensor of nl.shared_hbm and return it, or annotate the parameter with nt.mutable_tensor "
        "and return it.",
        releases=Span(until=Release(0, 2)),
    ),
    Rule(
        "NKR024",
        "A tensor of a loop's body is used outside of it",
        Severity.major,
        Dimension.sdk,
        Evidence.traced,
        "The body of nl.fori_loop and nl.while_loop is a scope of its own: what is allocated there "
        "is gone when the loop "
        "ends, and its place may hold something else.",
        each(_escaped),
        citation="aws-neuron-sdk nki/migration/index.rst:139-140",
        change="Allocate before the loop what is needed after it.",
        releases=Span(since=Release(0, 6)),
    ),
    Rule(
        "NKR040",
        "The truth of a tensor decides control flow",
        _NOTE,
        Dimension.sdk,
        Evidence.traced,
        "While a kernel is traced a tensor has no value; its truth is True, as in the official tools.",
        _truth,
        citation="aws-neuron-sdk nki/get-started/nki-language-guide.rst:210-212",
        change="Compare with None where presence is meant; select by value with nisa instructions.",
    ),
    Rule(
        "NKR041",
        "A spelling that the release deprecates",
        _NOTE,
        Dimension.sdk,
        Evidence.traced,
        "The call still works in this release, and the release notes announce its end.",
        _deprecated,
        citation="aws-neuron-sdk release-notes/components/nki.rst:56-59",
        change="Use the spelling that the message names.",
    ),
    Rule(
        "NKR042",
        "Host packages were replaced by stubs",
        _NOTE,
        Dimension.sdk,
        Evidence.traced,
        "A kernel's file may import host packages that are not needed to trace it; they are stubs that raise if a "
        "kernel calls them.",
        _stubs,
        change="Move what needs the package into a file of its own.",
    ),
    Rule(
        "NKR043",
        "The file asks for another target",
        _NOTE,
        Dimension.sdk,
        Evidence.source,
        "The target of the review wins over what the file sets in its environment.",
        _target,
        change="Leave the target to whoever compiles the kernel, or review with --target of the file.",
    ),
    Rule(
        "NKR044",
        "The reference was supplied by the author of the submission",
        _NOTE,
        Dimension.numerics,
        Evidence.source,
        "A reference or input function in the submission's own file is no independent oracle.",
        _authored,
        change="Compare with a reference that somebody else wrote, for example a task of your team.",
    ),
    Rule(
        "NKR045",
        "A call whose reading depends on the release",
        _NOTE,
        Dimension.sdk,
        Evidence.traced,
        "The public documents disagree on what the call means; docs/decisions.md says which reading is taken.",
        _notes,
        change="Write the call so that every release reads it the same way: give offsets and axes in full.",
    ),
)

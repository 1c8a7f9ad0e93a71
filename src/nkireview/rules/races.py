"""Rules over the cores of a launch: uses of one place without an order, barriers that one of them does not reach."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from nkireview.checks.races import READ_WRITE, WRITE_READ, WRITE_WRITE, Race
from nkireview.program.program import Program
from nkireview.rules.case import label_of
from nkireview.rules.facts import Difference, Orders, WorkloadFacts
from nkireview.rules.finding import Dimension, Evidence, Severity
from nkireview.rules.lines import by_cause, distinct
from nkireview.rules.rule import Draft, Rule, each

_LNC = "aws-neuron-sdk nki/get-started/about/lnc.rst"
_DOES = {WRITE_WRITE: ("writes", "writes"), WRITE_READ: ("writes", "reads"), READ_WRITE: ("reads", "writes")}
_TOLD = (WRITE_READ, READ_WRITE, WRITE_WRITE)
"""Kinds in the order in which they are told: what is read too early or too late explains what both write."""


def _races(facts: WorkloadFacts) -> Iterator[Draft]:
    """One finding for each tensor."""
    program, survey = facts.program, facts.survey
    if program is None or survey is None:
        return
    for races in by_cause(survey.races.races, lambda race: label_of(program, race.buffer)):
        label = label_of(program, races[0].buffer)
        mine = sorted(races, key=lambda race: (_TOLD.index(race.kind), race.first, race.second))
        severity, outcome = (
            (Severity.minor, "; benign: they write the same values")
            if all(race.same for race in mine)
            else _outcome(facts.orders, all(race.abreast for race in mine))
        )
        yield Draft(
            _sentence(program, label, mine) + outcome,
            distinct(_line(program, at) for race in mine for at in (race.first, race.second)),
            sum(race.count for race in mine),
            facts.name,
            severity=severity,
            group=label,
            change=_change(program, label, mine[0]),
            legacy="Give each core a part of the tensor of its own, by nl.program_id.",
        )


def _sentence(program: Program, label: str, races: Sequence[Race]) -> str:
    race = races[0]
    does, too = _DOES[race.kind]
    one, other = (f" ({line})" if line else "" for line in _sides(program, race))
    pairs = {tuple(_sides(program, each)) for each in races}
    more = len(pairs) - 1
    return (
        f"core {race.cores[0]} {does} {label}{one} and core {race.cores[1]} {too} it{other} in any order, "
        f"{race.elements:,} element{'s' if race.elements > 1 else ''} in common"
        + (f"; so at {more} more pair{'s' if more > 1 else ''} of lines" if more else "")
    )


def _outcome(orders: Orders | None, abreast: bool) -> tuple[Severity, str]:
    """How much races weigh, by what other orders of execution showed, and that in words.

    No execution takes an instruction across a meeting, so that only uses abreast are seen in either order.
    """
    past = "" if abreast else "; the cores meet in between, but nothing there waits for either"
    if orders is None or not orders.tried or not (orders.differing or abreast):
        return Severity.major, past
    if not orders.differing:
        return (
            Severity.minor,
            f"; benign on these inputs: the same bits in {len(orders.tried) + 1} orders of execution",
        )
    worst = min(orders.differing, key=lambda item: (item.within, -_apart(item)))
    where = f"{worst.output}[{', '.join(map(str, worst.index))}]" if worst.index else worst.output
    values = (
        f"{_value(worst.first)} in the order of the program and {_value(worst.second)} with {worst.order}"
    )
    text = f"; {where} is {values}"
    if worst.within:
        return Severity.major, f"{text}, both within its limits"
    return Severity.blocker, text


def _apart(item: Difference) -> float:
    apart = abs(item.first - item.second)
    return math.inf if math.isnan(apart) else apart


def _value(value: float) -> str:
    return "undefined" if math.isnan(value) else f"{value:.9g}"


def _change(program: Program, label: str, race: Race) -> str:
    one, other = _sides(program, race)
    if race.kind == WRITE_WRITE:
        return (
            f"Give each core a part of {label} of its own, by nl.program_id; where one has to come after the other, "
            f"let both call nisa.core_barrier on {label} between the two."
        )
    lines = " and ".join(line for line in (one, other) if line)
    return (
        f"Let both cores call nisa.core_barrier on {label} between the write and the read"
        + (f" ({lines})" if lines else "")
        + ", whichever of them is to come first; where a later pass writes it again, also after the read."
    )


def _sides(program: Program, race: Race) -> tuple[str, str]:
    return _line(program, race.first), _line(program, race.second)


def _line(program: Program, instruction: int) -> str:
    return program.place_text(int(program.columns.place[instruction]))


def _mismatched(facts: WorkloadFacts) -> Iterator[Draft]:
    program = facts.program
    found = facts.survey.races.mismatched if facts.survey is not None else None
    if program is None or found is None:
        return
    one, other = found.cores
    line, instead = (_line(program, at) if at >= 0 else "" for at in (found.instruction, found.other))
    if found.other >= 0:
        text = (
            f"core {one} comes to {_called(program, found.instruction)} where core {other} comes to "
            f"{_called(program, found.other)}"
        )
    else:
        text = (
            f"core {one} reaches {_called(program, found.instruction)} {_times(found.times[0])}, core {other} "
            f"{_times(found.times[1])}: they meet {_times(found.totals[0])} and {_times(found.totals[1])}"
        )
    yield Draft(text, distinct((line, instead)), workload=facts.name)


def _times(count: int) -> str:
    return "never" if not count else "once" if count == 1 else f"{count:,} times"


def _called(program: Program, instruction: int) -> str:
    """A meeting with what tells it from others, and its line."""
    name: str = program.opcodes[program.columns.opcode[instruction]].name
    pipe = program.immediates[program.columns.immediates[instruction]].get("pipe_id")
    line = _line(program, instruction)
    return name + (f" of pipe {pipe}" if pipe is not None else "") + (f" ({line})" if line else "")


RULES = (
    Rule(
        "NKR025",
        "Two cores use one place without an order",
        Severity.major,
        Dimension.dma,
        Evidence.traced,
        "The cores of a launch share HBM and run side by side. Nothing but a core_barrier or a sendrecv orders what "
        "one does to what the other does: a barrier waits for the uses of its own tensor that are before it, and "
        "those that are after it wait for it. What a core reads too early is what was there before; of two writes "
        "either may stay.",
        each(_races),
        citation=f"{_LNC}:15-24, nki/api/nki/isa/__init__.py:2612-2628",
        suppresses=frozenset({"NKR010", "NKR033"}),
        change="Let both cores call nisa.core_barrier on the tensor between the two uses, or give each a part of it.",
        legacy="Give each core a part of the tensor of its own, by nl.program_id.",
    ),
    Rule(
        "NKR026",
        "The cores do not meet at the same barriers",
        Severity.blocker,
        Dimension.dma,
        Evidence.traced,
        "Every core has to come to the same barriers, on the same tensors, and to the same exchanges, in one order. A "
        "core that waits alone waits forever; barriers that pair up wrongly order nothing. Control flow that differs "
        "between cores is undefined.",
        each(_mismatched),
        citation=f"{_LNC}:139-148",
        change="Let both cores call the same barriers and exchanges in the same order, outside of branches on "
        "nl.program_id.",
    ),
)

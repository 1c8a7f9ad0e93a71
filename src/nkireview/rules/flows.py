"""Rules over the dataflow of the Program under judgement."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from nkireview.checks.dataflow import Dataflow, flow_of
from nkireview.rules.facts import Facts, WorkloadFacts
from nkireview.rules.rule import Draft, each


def traced(
    find: Callable[[WorkloadFacts, Dataflow], Iterable[Draft]],
) -> Callable[[Facts], Iterator[Draft]]:
    """Ask every workload that has a Program."""

    def over(facts: WorkloadFacts) -> Iterator[Draft]:
        if facts.program is not None:
            yield from find(facts, flow_of(facts.program))

    return each(over)


def place_of(flow: Dataflow, instruction: int) -> tuple[str, ...]:
    """The ``file:line`` of an instruction, as the places of a finding."""
    text = flow.program.place_text(int(flow.program.columns.place[instruction]))
    return (text,) if text else ()


def opcode_of(flow: Dataflow, instruction: int) -> str:
    """The name of an instruction."""
    name: str = flow.program.opcodes[flow.program.columns.opcode[instruction]].name
    return name


def at(places: tuple[str, ...]) -> str:
    """`` (file:line)`` of the first place, or nothing."""
    return f" ({places[0]})" if places else ""


def wrong_inputs(facts: WorkloadFacts) -> str:
    """The inputs within the contract on which an output is wrong; empty where none is."""
    for item in facts.wrong:
        if item.in_contract:
            return (
                f"seed {item.seed}"
                if item.inputs == "as drawn"
                else f"{item.inputs} inputs, seed {item.seed}"
            )
    return ""

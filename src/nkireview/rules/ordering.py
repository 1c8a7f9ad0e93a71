"""Rules over protocols: sums in PSUM read too early, scatters onto one row, schedules, exchanges between cores."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from nkireview.checks.groups import partial_reads
from nkireview.checks.pairing import Unpaired, unpaired
from nkireview.checks.schedules import Contradiction, contradictions
from nkireview.checks.survey import Survey
from nkireview.execute.result import CONTESTED
from nkireview.isa.table import ROWS
from nkireview.program.program import Program
from nkireview.rules.facts import WorkloadFacts
from nkireview.rules.finding import Dimension, Evidence, Severity
from nkireview.rules.lines import by_cause, distinct
from nkireview.rules.rule import Draft, Rule, each
from nkireview.schedule.dependences import Why

SPARE = "duplicate scatter to a spare row"


def _named(program: Program, instruction: int) -> str:
    """The row of an instruction and its line: ``nc_matmul (kernel.py:7)``."""
    opcode, line = program.opcodes[program.columns.opcode[instruction]].name, _line(program, instruction)
    return f"{opcode} ({line})" if line else opcode


def _line(program: Program, instruction: int) -> str:
    return program.place_text(int(program.columns.place[instruction]))


def _partial(facts: WorkloadFacts) -> Iterator[Draft]:
    """One finding for each pair of lines."""
    program, survey = facts.program, facts.survey
    if program is None or survey is None:
        return
    for items in by_cause(
        partial_reads(program, ROWS, survey.uses),
        lambda item: (_line(program, item.read), _line(program, item.after)),
    ):
        first = items[0]
        again = " of the next pass" if first.later else ""
        yield Draft(
            f"{_named(program, first.read)} reads PSUM that {_named(program, first.before)} has summed up to there, "
            f"and {_named(program, first.after)}{again} goes on with the sum",
            distinct(_line(program, at) for at in (first.read, first.after, first.before)),
            len(items),
            facts.name,
        )


def _scattered(facts: WorkloadFacts) -> Iterator[Draft]:
    """One finding for each scatter; a spare row is told of only where no other row is."""
    program = facts.program
    found = [fault for fault in facts.faults if fault.kind in CONTESTED]
    worse = {fault.place for fault in found if fault.kind != SPARE}
    for fault in found:
        spare = fault.kind == SPARE
        if (spare and fault.place in worse) or not _matters(program, facts.survey, fault.instruction):
            continue
        place = program.place_text(fault.place) if program else ""
        yield Draft(
            fault.message,
            (place,) if place else (),
            fault.count,
            facts.name,
            severity=Severity.minor if spare else None,
        )


def _matters(program: Program | None, survey: Survey | None, instruction: int) -> bool:
    """True where a tensor that the instruction writes is read somewhere, or lives on after the kernel."""
    if program is None or survey is None:
        return True
    used, columns = survey.uses, program.columns
    mine = np.unique(used.buffer[(used.instruction == instruction) & used.writes])
    kept = [int(columns.access_buffer[output.access]) for output in program.outputs]
    kept += [buffer for _, buffer in program.parameter_buffers]
    return bool(np.isin(mine, kept).any() or np.isin(mine, used.buffer[used.reads]).any())


_DOES = {
    Why.data: ("reads", "writes"),
    Why.reuse: ("overwrites", "reads"),
    Why.rewrite: ("overwrites", "writes"),
}
"""What an instruction does with a tensor, and an earlier one that it has to come after."""


def _contradicting(facts: WorkloadFacts) -> Iterator[Draft]:
    """One finding for each dependency that cannot be kept."""
    program = facts.program
    if program is None:
        return
    for items in by_cause(
        contradictions(program), lambda item: tuple(_called(program, at) for at in item.path)
    ):
        first = items[0]
        consumer, producer = _called(program, first.consumer), _called(program, first.producer)
        via = ""
        if len(first.path) > 2:
            via = f" by way of {' and '.join(_called(program, at) for at in first.path[1:-1])}"
        yield Draft(
            f"{consumer} is asked to run after {producer}, which {_needs(program, first)}{via}",
            distinct(_line(program, at) for at in (first.consumer, first.producer, *first.path[1:-1])),
            len(items),
            facts.name,
        )


def _needs(program: Program, item: Contradiction) -> str:
    """Why the second instruction of a path comes after the first, in the words of a relative clause."""
    name = _name(program, item.consumer)
    if len(item.path) > 2:
        return f"has to run after {name}"
    why = item.whys[0]
    if why is Why.named:
        return f"is asked to run after {name}"
    later, earlier = _DOES[why]
    return f"{later} {_tensor(program, item.buffer)} that {name} {earlier}"


def _tensor(program: Program, buffer: int) -> str:
    if buffer < 0:
        return "a register"
    held = program.buffer(buffer)
    where = program.place_text(held.place)
    return f"the tensor {held.name}" if held.name else f"the tensor made at {where}" if where else "a tensor"


def _name(program: Program, instruction: int) -> str:
    """The name that a kernel gave an instruction, in quotes, else that of its row."""
    number = int(program.columns.name[instruction])
    opcode: str = program.opcodes[program.columns.opcode[instruction]].name
    return f"'{program.strings[number]}'" if number >= 0 else opcode


def _called(program: Program, instruction: int) -> str:
    """The name of an instruction and its line."""
    line = _line(program, instruction)
    return f"{_name(program, instruction)} ({line})" if line else _name(program, instruction)


def _unpaired(facts: WorkloadFacts) -> Iterator[Draft]:
    """One finding for each pair of lines and cores."""
    program = facts.program
    if program is None:
        return
    for items in by_cause(
        unpaired(program, ROWS),
        lambda item: (item.sender, _line(program, item.sends), _line(program, item.takes), item.named),
    ):
        first = items[0]
        one, other = (f" ({line})" if line else "" for line in _lines(program, first))
        if first.sent is not None and first.taken is not None:
            text = (
                f"core {first.sender} sends {_held(first.sent)}{one}, and core {first.receiver} takes "
                f"{_held(first.taken)}{other}"
            )
        elif first.of_sender:
            text = (
                f"core {first.receiver} receives from core {first.sender}{other}, which sends to core "
                f"{first.named}{one}"
            )
        else:
            text = (
                f"core {first.sender} sends to core {first.receiver}{one}, which receives from core "
                f"{first.named}{other}"
            )
        yield Draft(text, distinct(_lines(program, first)), len(items), facts.name)


def _lines(program: Program, item: Unpaired) -> tuple[str, str]:
    return _line(program, item.sends), _line(program, item.takes)


def _held(tile: tuple[int, int, str]) -> str:
    partitions, elements, dtype = tile
    return f"{partitions} partitions of {elements} {dtype}"


RULES = (
    Rule(
        "NKR027",
        "PSUM is read before its accumulation group is complete",
        Severity.major,
        Dimension.memory,
        Evidence.traced,
        "The matmuls that add to one place in PSUM are a group, which is complete with the last of them. Something "
        "reads the place in between: it gets a partial sum, and the compiler refuses groups that are interleaved "
        "with other uses. Without accumulate= a matmul adds to whatever matmuls have left in the same tensor.",
        each(_partial),
        citation="aws-neuron-sdk nki/nki_direct_allocation_guide.rst at tag v2.26.1:425-428",
        change="Read the tile after its last matmul; to begin another sum in it, give the first matmul "
        "accumulate=False or take a new tile.",
        legacy="Read the tile after its last matmul, and take a new tile of nl.psum for another sum.",
    ),
    Rule(
        "NKR028",
        "A scatter sends different values to one place",
        Severity.major,
        Dimension.dma,
        Evidence.executed,
        "Indices of one call name a row twice. The transfers of a DMA are spread over engines that work in parallel, "
        "so that either value may stay; a simulation keeps the last. Where a single row at an end of the tensor gets "
        "them all, as the padding of a batch does, this is minor, as nobody is meant to read it.",
        each(_scattered),
        citation="aws-neuron-sdk nki/guides/architecture/trainium_inferentia2_arch.rst:613-616",
        change="Make the indices of one call unique, or give those to be dropped an index out of bounds and pass "
        "oob_mode=nisa.oob_mode.skip.",
    ),
    Rule(
        "NKR029",
        "A schedule contradicts the data",
        Severity.blocker,
        Dimension.dma,
        Evidence.traced,
        "An instruction is asked to run after one that needs what it does. Dependencies of with_schedule and "
        "depends_on are kept beside those of the data, as semaphores that the engines wait for: two that wait for "
        "each other never go on, and the compiler refuses them.",
        each(_contradicting),
        citation="aws-neuron-sdk nki/guides/how-to-scheduling-apis.rst:64-66",
        change="Take the pair out of the schedule, or turn it round: the consumer comes first, then its producers.",
    ),
    Rule(
        "NKR034",
        "Two cores exchange tiles that do not match",
        Severity.blocker,
        Dimension.dma,
        Evidence.traced,
        "A sendrecv is one exchange with two sides: what a core sends is what the other one takes. Where ranks do not "
        "cross, or partitions, elements or dtype differ, a core waits for data that never come, or gets some that "
        "belong elsewhere.",
        each(_unpaired),
        citation="aws-neuron-sdk nki/api/nki/isa/__init__.py:2988-2991,3009-3014",
        suppresses=frozenset({"NKR010", "NKR011", "NKR015", "NKR018", "NKR020", "NKR021", "NKR026"}),
        change="Let both cores name each other, and give the src of each the partitions, elements and dtype of the "
        "other one's dst.",
    ),
)

"""Rules over executions: undefined memory, PSUM state, wrong values, outputs that do not depend on their inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from nkireview.checks.accumulators import broken_chains
from nkireview.checks.extent import Extents
from nkireview.checks.pairing import unpaired
from nkireview.execute import Fault
from nkireview.execute.result import CONTESTED
from nkireview.isa import dtypes
from nkireview.isa.table import ROWS
from nkireview.program.program import Program
from nkireview.rules.facts import WorkloadFacts, WrongOutput
from nkireview.rules.finding import Dimension, Evidence, Severity
from nkireview.rules.lines import by_cause, distinct
from nkireview.rules.rule import Draft, Rule, each

UNINITIALISED = frozenset({"uninitialised"})
UNWRITTEN = frozenset({"unwritten output"})
LEFT = frozenset({"undefined result"})
OF_OUTPUTS = UNINITIALISED | UNWRITTEN | LEFT | {"not executed"}
FILLED = "psum accumulate after value init"
PSUM = frozenset({"psum accumulate onto undefined", FILLED})
STEERED = frozenset({"undefined index", "undefined register"})
DEADLOCK = frozenset({"deadlock"})
ENDLESS = frozenset({"endless loop"})
OUTSIDE = frozenset({"out of bounds"})
TWICE = frozenset({"duplicate indices"})
MEANINGLESS = (
    frozenset(Fault.KINDS)
    - UNINITIALISED
    - UNWRITTEN
    - LEFT
    - PSUM
    - STEERED
    - DEADLOCK
    - ENDLESS
    - OUTSIDE
    - TWICE
    - CONTESTED
)


def _fault(wanted: frozenset[str]) -> Callable[[WorkloadFacts], Iterator[Draft]]:
    def find(facts: WorkloadFacts) -> Iterator[Draft]:
        for fault in facts.faults:
            if fault.kind in wanted:
                place = facts.program.place_text(fault.place) if facts.program else ""
                # faults of an output count its elements, and say so in their sentence
                times = 1 if fault.kind in OF_OUTPUTS else fault.count
                yield Draft(fault.message, (place,) if place else (), times, facts.name)

    return find


def _accumulated(facts: WorkloadFacts) -> Iterator[Draft]:
    """Both lines where something else than a matmul wrote what a matmul adds to."""
    program = facts.program
    for fault in facts.faults:
        if fault.kind not in PSUM:
            continue
        message, place, before = fault.message, program.place_text(fault.place) if program else "", ""
        written = _filled(facts, fault.instruction) if fault.kind == FILLED else None
        if program is not None and written is not None:
            before = program.place_text(int(program.columns.place[written]))
            name = program.opcodes[program.columns.opcode[written]].name
            message = f"{message}; {name} wrote it ({before})" if before else message
        yield Draft(message, distinct((place, before)), fault.count, facts.name)


def _filled(facts: WorkloadFacts, matmul: int) -> int | None:
    """The last instruction before a matmul that wrote some of its destination, and is no matmul."""
    program, survey = facts.program, facts.survey
    if program is None or survey is None:
        return None
    used = survey.uses
    target = used.where((used.instruction == matmul) & used.writes)
    matmuls = [number for number, row in enumerate(program.opcodes) if row.name.startswith("nc_matmul")]
    rows = np.flatnonzero(used.writes & (used.instruction < matmul) & np.isin(used.buffer, target.buffer))
    rows = rows[~np.isin(program.columns.opcode[used.instruction[rows]], matmuls)]
    low, high = program.access(int(target.access[0])).extent
    for row in rows[::-1].tolist():
        least, most = program.access(int(used.access[row])).extent
        if least <= high and low <= most:
            return int(used.instruction[row])
    return None


def _meaningless(facts: WorkloadFacts) -> Iterator[Draft]:
    """All but those of an exchange between cores that does not fit, which is told of with both its lines."""
    faults = [fault for fault in facts.faults if fault.kind in MEANINGLESS]
    found = unpaired(facts.program, ROWS) if facts.program and faults else ()
    told = {instruction for each in found for instruction in (each.sends, each.takes)}
    kept = [fault for fault in faults if fault.instruction not in told]
    # what an output lacks names no instruction but in words
    if told and all(fault.kind == "not executed" for fault in kept):
        kept = []
    yield from _fault(MEANINGLESS)(replace(facts, faults=kept))


def _broken(facts: WorkloadFacts) -> Iterator[Draft]:
    """One finding for each line that goes on with a sum."""
    program = facts.program
    if program is None:
        return
    columns = program.columns

    def line(instruction: int) -> str:
        return program.place_text(int(columns.place[instruction]))

    for items in by_cause(
        broken_chains(program, ROWS), lambda item: line(item.instruction) or item.instruction
    ):
        first = items[0]
        opcode, other = (program.opcodes[columns.opcode[at]].name for at in (first.instruction, first.by))
        here, between, begun = line(first.instruction), line(first.by), line(first.begun)
        engine = first.engine.name.capitalize()
        yield Draft(
            f"{opcode} goes on with a reduction{f' begun at {begun}' if begun else ''} after {other}"
            f"{f' at {between}' if between else ''} has used the accumulator registers of {engine} for another one: it "
            f"starts from what that left{f' ({here})' if here else ''}",
            distinct((here, between, begun)),
            len(items),
            facts.name,
        )


def _wrong(facts: WorkloadFacts) -> Iterator[Draft]:
    for output in sorted({item.output for item in facts.wrong if item.in_contract}):
        items = [item for item in facts.wrong if item.output == output and item.in_contract]
        first = items[0]
        drawn = (
            f"seed {first.seed}"
            if first.inputs == "as drawn"
            else f"{first.inputs} inputs, seed {first.seed}"
        )
        yield Draft(
            f"output {output} is wrong ({drawn}): {first.reason}{_because(items)}",
            count=len(items),
            workload=facts.name,
            group=f"{output}, {first.inputs}",
            failing=f"workload {facts.name}, {drawn}",
        )


def _because(items: Sequence[WrongOutput]) -> str:
    """The cause of the first of these outputs that has one, to end a sentence with."""
    cause = next((item.cause for item in items if item.cause), "")
    return f"; cause: {cause}" if cause else ""


def _outside_contract(facts: WorkloadFacts) -> Iterator[Draft]:
    for item in facts.wrong:
        if not item.in_contract:
            yield Draft(
                f"output {item.output} on {item.inputs} inputs, which the contract does not ask for: {item.reason}"
                f"{_because([item])}",
                workload=facts.name,
                group=f"{item.output}, {item.inputs}",
            )


def _mismatch(facts: WorkloadFacts) -> Iterator[Draft]:
    if facts.mismatch:
        yield Draft(facts.mismatch, workload=facts.name)


def _unreached(facts: WorkloadFacts) -> Iterator[Draft]:
    for item in facts.unreached:
        yield Draft(
            f"output {item.output} does not depend on {item.region} of input {item.parameter}, which the reference "
            "needs: no instruction carries it there",
            workload=facts.name,
            kind="integrity",
        )


def _unloaded(facts: WorkloadFacts) -> Iterator[Draft]:
    """Parameters of which a part is never read; the first rows that no load reaches, where there are such."""
    program, survey = facts.program, facts.survey
    if program is None or survey is None:
        return
    names = {buffer: path for path, buffer in program.parameter_buffers}
    wrong = any(item.in_contract for item in facts.wrong)
    found: list[str] = []
    for buffer in dict.fromkeys(item.buffer for item in survey.traffic.loaded):
        loaded = [item for item in survey.traffic.loaded if item.buffer == buffer]
        if buffer not in names or any(item.needed is None for item in loaded):
            continue
        rows = np.concatenate([item.rows for item in loaded])
        accesses = np.unique(survey.moves.hbm[rows])
        needed = Extents(program).distinct(accesses)
        held = program.buffer(buffer)
        size = math.prod(held.shape) * dtypes.BY_NAME[held.dtype].bits // 8
        if needed is None or needed >= size:
            continue
        missing = _missing_rows(program, held.shape, accesses)
        where = f" (rows {missing[0]} to {missing[1] - 1} of {held.shape[0]})" if missing else ""
        found.append(f"{100 * (1 - needed / size):.3g}% of input {names[buffer]}{where}")
    if found:
        yield Draft(
            f"never loaded: {'; '.join(found)}",
            count=len(found),
            workload=facts.name,
            severity=Severity.major if wrong else Severity.note,
            group="unloaded",
        )


def _missing_rows(
    program: Program, shape: Sequence[int], accesses: NDArray[np.int64]
) -> tuple[int, int] | None:
    """The first range of indices of the first dimension that surely no access reaches."""
    if not shape:
        return None
    reached = np.zeros(shape[0] + 1, np.int64)
    row = math.prod(shape[1:])
    for number in accesses.tolist():
        low, high = program.access(number).extent
        first, last = max(low // row, 0), min(high // row, shape[0] - 1)
        if first <= last:
            reached[first] += 1
            reached[last + 1] -= 1
    free = np.flatnonzero(np.cumsum(reached)[:-1] == 0)
    if not len(free):
        return None
    end = np.flatnonzero(np.diff(free) > 1)
    return int(free[0]), int(free[end[0]] if len(end) else free[-1]) + 1


def _written(facts: WorkloadFacts) -> Iterator[Draft]:
    for name in facts.written_parameters:
        yield Draft(f"the kernel writes its argument {name}, which it does not return", workload=facts.name)


_BLOCKER = Severity.blocker
_AFTER = frozenset({"NKR010", "NKR011", "NKR013", "NKR018", "NKR020", "NKR021"})
"""What follows where instructions could not be executed."""

RULES = (
    Rule(
        "NKR010",
        "Memory that was never written reaches an output",
        _BLOCKER,
        Dimension.memory,
        Evidence.executed,
        "An element that no instruction wrote flows into an output. On hardware it holds what was there before; the "
        "answer may even be right by luck.",
        each(_fault(UNINITIALISED)),
        citation="aws-neuron-sdk nki/guides/nki_simulator.rst:212-243",
        suppresses=frozenset({"NKR020", "NKR021"}),
        causes=frozenset({"NKR012"}),
        change="Load or memset the whole tile, or read only the part that was written.",
    ),
    Rule(
        "NKR011",
        "Elements of an output are never written",
        _BLOCKER,
        Dimension.correctness,
        Evidence.executed,
        "The kernel returns a tensor of which it did not store every element.",
        each(_fault(UNWRITTEN)),
        citation="aws-neuron-sdk nki/get-started/about/tiling-overview.rst:150-163",
        suppresses=frozenset({"NKR020", "NKR021"}),
        change="Store every tile of the output, the last and narrower one included.",
    ),
    Rule(
        "NKR012",
        "A matmul accumulates onto PSUM that no matmul has started",
        _BLOCKER,
        Dimension.memory,
        Evidence.executed,
        "accumulate=True is defined only after a matmul with accumulate=False wrote the location. On "
        "NeuronCore-v2 and "
        "-v3 a memset or copy does not count; a plain NumPy simulation still gives the right number.",
        each(_accumulated),
        citation="aws-neuron-sdk nki/api/nki/isa/__init__.py:541-555",
        suppresses=frozenset({"NKR020", "NKR021"}),
        change="Give the first matmul accumulate=False (or leave it out) and drop the memset.",
        legacy="Declare the accumulator with nl.zeros(..., buffer=nl.psum), and add to it by += of matmuls alone.",
    ),
    Rule(
        "NKR013",
        "An instruction has no meaning",
        _BLOCKER,
        Dimension.correctness,
        Evidence.executed,
        "Operands whose element counts differ, or an operator and numbers that do not go together: "
        "the instruction was "
        "left out of the execution.",
        each(_meaningless),
        suppresses=frozenset({"NKR010", "NKR011", "NKR020", "NKR021"}),
        change="Give operands of equal element counts, and operators and numbers that the instruction takes.",
    ),
    Rule(
        "NKR014",
        "Something undefined decides an address, a bound or the course of a loop",
        _BLOCKER,
        Dimension.memory,
        Evidence.executed,
        "An index tile or a register that nothing wrote addresses a tensor, bounds a loop or says "
        "whether it goes on. On "
        "hardware it holds what was there before: the kernel may touch any address, or never end.",
        each(_fault(STEERED)),
        citation="aws-neuron-sdk nki/guides/nki_simulator.rst:212-243",
        suppresses=_AFTER,
        change="Load or memset every element of the index tile that is used, and give the register a value with "
        "nisa.register_move or nisa.register_load first.",
    ),
    Rule(
        "NKR015",
        "Cores or ranks wait for each other and none goes on",
        _BLOCKER,
        Dimension.dma,
        Evidence.executed,
        "An instruction at which cores or ranks meet is reached by some and never by the others, or "
        "by two of them at "
        "different places. On hardware the launch hangs until a timeout.",
        each(_fault(DEADLOCK)),
        citation="aws-neuron-sdk nki/get-started/about/lnc.rst:139-148",
        suppresses=_AFTER | {"NKR026"},
        change="Let every core and rank reach the same barriers, sends and collectives in the same order: outside of "
        "branches on nl.program_id or the rank.",
    ),
    Rule(
        "NKR016",
        "A loop on the device does not end",
        _BLOCKER,
        Dimension.correctness,
        Evidence.executed,
        "Nothing in the body of a while loop writes the register that it goes on by, or the loop was still running "
        "after the most instructions that an execution takes.",
        each(_fault(ENDLESS)),
        citation="aws-neuron-sdk nki/deep-dives/nki-dynamic-loops.rst",
        suppresses=_AFTER,
        change="Let the body of the loop end with the next value of its condition, 0 to end it: "
        "nisa.register_load it, or "
        "count with nl.fori_loop.",
    ),
    Rule(
        "NKR017",
        "An index of the device is out of bounds",
        _BLOCKER,
        Dimension.dma,
        Evidence.executed,
        "A register or an index tile names a row or an element that the tensor does not have. On "
        "hardware a DMA stops "
        "with an error, and a compute instruction touches its neighbours.",
        each(_fault(OUTSIDE)),
        citation="aws-neuron-sdk nki/api/nki/isa/__init__.py:262-268",
        suppresses=_AFTER,
        change="Bound the indices before they are used; or, for a DMA, fill the destination and pass "
        "oob_mode=nisa.oob_mode.skip.",
    ),
    Rule(
        "NKR018",
        "What an instruction leaves undefined reaches an output",
        _BLOCKER,
        Dimension.memory,
        Evidence.executed,
        "All that is read is defined, and yet some of the result is not: a gather index out of "
        "bounds, a value that a "
        "search did not find, or accumulator registers that nothing has set, or that a call with "
        "reduce_cmd.idle cleared.",
        each(_fault(LEFT)),
        citation="aws-neuron-sdk nki/api/nki/isa/__init__.py:1859,2356-2359",
        suppresses=frozenset({"NKR020", "NKR021"}),
        change="Keep gather indices inside the tile, select away what was not found, and begin a reduction with "
        "reduce_cmd.reset_reduce.",
    ),
    Rule(
        "NKR019",
        "A reduction goes on with the accumulator of another one",
        Severity.major,
        Dimension.memory,
        Evidence.traced,
        "Each engine has one set of accumulator registers. A call with reduce_cmd.reduce adds to "
        "whatever the last call "
        "left there, of whatever reduction; between the calls of one reduction no other may use them.",
        each(_broken),
        citation="aws-neuron-sdk nki/api/nki/isa/__init__.py:1350-1382,2356-2365",
        change="Finish one reduction before the next begins, or keep partial results in tiles and add those.",
    ),
    Rule(
        "NKR023",
        "A DMA adds to one place more than once",
        Severity.major,
        Dimension.dma,
        Evidence.executed,
        "The indices of a scatter that adds name a row twice. The DMA reads, adds and writes "
        "elements in flight, so that "
        "one of the additions may be lost; only unique indices are supported. Here all of them were added.",
        each(_fault(TWICE)),
        citation="aws-neuron-sdk nki/api/nki/isa/__init__.py:2687-2690",
        change="Make the indices of one call unique: add up what goes to the same row first, or use a call for each.",
    ),
    Rule(
        "NKR020",
        "The result is wrong",
        _BLOCKER,
        Dimension.numerics,
        Evidence.executed,
        "An output differs from the float64 reference, computed on inputs rounded as the kernel gets them, by more "
        "than its limits; or it is not finite where the reference is.",
        each(_wrong),
        suppresses=frozenset({"NKR021"}),
        causes=frozenset(
            {
                "NKR008",
                "NKR019",
                "NKR023",
                "NKR024",
                "NKR025",
                "NKR026",
                "NKR027",
                "NKR028",
                "NKR032",
                "NKR033",
                "NKR050",
                "NKR060",
                "NKR061",
                "NKR062",
                "NKR063",
                "NKR064",
            }
            | {f"NKR{number:03}" for number in range(70, 83)}
        ),
        change="Start from the element named: run it with nkireview run and compare the intermediates.",
    ),
    Rule(
        "NKR021",
        "The result is wrong on inputs outside the contract",
        Severity.note,
        Dimension.numerics,
        Evidence.executed,
        "Inputs scaled by 100, with tiny rows or with a large mean break the kernel; the task does not ask for them.",
        each(_outside_contract),
        change="Make the kernel safe for such inputs, or say in the contract that they do not occur.",
    ),
    Rule(
        "NKR022",
        "The outputs are not those of the reference",
        _BLOCKER,
        Dimension.correctness,
        Evidence.executed,
        "Number or shape of the returned tensors differs from what the reference returns.",
        each(_mismatch),
        change="Return as many tensors as the reference, in its order and shapes.",
    ),
    Rule(
        "NKR030",
        "An output does not depend on an input it should depend on",
        _BLOCKER,
        Dimension.correctness,
        Evidence.traced,
        "Perturbing the input changes the reference's output, but no path in the Program leads from "
        "it to the output.",
        each(_unreached),
        suppresses=frozenset({"NKR020", "NKR021"}),
        change="Compute the output from the input; no constant can stand for it.",
    ),
    Rule(
        "NKR032",
        "A part of an input is never loaded",
        Severity.note,
        Dimension.correctness,
        Evidence.traced,
        "No DMA reads it, whatever the inputs hold. Where the result is wrong as well, most likely a tile at the end "
        "of a dimension was left out.",
        each(_unloaded),
        change="Let the loops run to the end of the dimension, the last and smaller tile included; or take as an "
        "argument only what is needed.",
    ),
    Rule(
        "NKR031",
        "The kernel writes an argument that it does not return",
        Severity.minor,
        Dimension.correctness,
        Evidence.executed,
        "Legal since NKI 0.3, but a caller that re-uses the argument sees it changed.",
        each(_written),
        change="Write into a tensor of the kernel's own, or return the argument.",
    ),
)

"""Rules over executions: undefined memory, PSUM state, wrong values, outputs that do not depend on their inputs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from nkireview.checks.extent import Extents
from nkireview.isa import dtypes
from nkireview.program.program import Program
from nkireview.rules.facts import WorkloadFacts
from nkireview.rules.finding import Dimension, Evidence, Severity
from nkireview.rules.rule import Draft, Rule, each

UNINITIALISED = frozenset({"uninitialised"})
UNWRITTEN = frozenset({"unwritten output"})
OF_OUTPUTS = UNINITIALISED | UNWRITTEN | {"not executed"}
PSUM = frozenset({"psum accumulate onto undefined", "psum accumulate after value init"})


def _fault(facts: WorkloadFacts, wanted: frozenset[str] | None) -> Iterator[Draft]:
    for fault in facts.faults:
        named = fault.kind in UNINITIALISED | UNWRITTEN | PSUM
        if fault.kind in wanted if wanted is not None else not named:
            place = facts.program.place_text(fault.place) if facts.program else ""
            # faults of an output count its elements, and say so in their sentence
            times = 1 if fault.kind in OF_OUTPUTS else fault.count
            yield Draft(fault.message, (place,) if place else (), times, facts.name)


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
            f"output {output} is wrong ({drawn}): {first.reason}",
            count=len(items),
            workload=facts.name,
            group=f"{output}, {first.inputs}",
            failing=f"workload {facts.name}, {drawn}",
        )


def _outside_contract(facts: WorkloadFacts) -> Iterator[Draft]:
    for item in facts.wrong:
        if not item.in_contract:
            yield Draft(
                f"output {item.output} on {item.inputs} inputs, which the contract does not ask for: {item.reason}",
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

RULES = (
    Rule(
        "NKR010",
        "Memory that was never written reaches an output",
        _BLOCKER,
        Dimension.memory,
        Evidence.executed,
        "An element that no instruction wrote flows into an output. On hardware it holds what was there before; the "
        "answer may even be right by luck.",
        each(lambda facts: _fault(facts, UNINITIALISED)),
        citation="aws-neuron-sdk nki/guides/nki_simulator.rst:212-243",
        suppresses=frozenset({"NKR020", "NKR021"}),
        change="Load or memset the whole tile, or read only the part that was written.",
    ),
    Rule(
        "NKR011",
        "Elements of an output are never written",
        _BLOCKER,
        Dimension.correctness,
        Evidence.executed,
        "The kernel returns a tensor of which it did not store every element.",
        each(lambda facts: _fault(facts, UNWRITTEN)),
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
        "accumulate=True is defined only after a matmul with accumulate=False wrote the location. On NeuronCore-v2 and "
        "-v3 a memset or copy does not count; a plain NumPy simulation still gives the right number.",
        each(lambda facts: _fault(facts, PSUM)),
        citation="aws-neuron-sdk nki/api/nki/isa/__init__.py:541-555",
        suppresses=frozenset({"NKR020", "NKR021"}),
        change="Give the first matmul accumulate=False (or leave it out) and drop the memset.",
    ),
    Rule(
        "NKR013",
        "An instruction has no meaning",
        _BLOCKER,
        Dimension.correctness,
        Evidence.executed,
        "Out of bounds, or operands whose element counts differ: the instruction was left out of the execution.",
        each(lambda facts: _fault(facts, None)),
        suppresses=frozenset({"NKR010", "NKR011", "NKR020", "NKR021"}),
        change="Keep every access inside its tensor and give operands of equal element counts.",
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
            {"NKR008", "NKR032", "NKR050", "NKR060", "NKR061", "NKR062", "NKR063", "NKR064"}
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
        "Perturbing the input changes the reference's output, but no path in the Program leads from it to the output.",
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

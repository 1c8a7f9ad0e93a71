"""Moves: steps taken on the wrong side of a reduction or of a matmul."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from nkireview.checks.dataflow import UNKNOWN, Dataflow, Slot
from nkireview.checks.steps import MATMUL, Step
from nkireview.diagnosis.algebra.hooks import Running, Values, run_with
from nkireview.diagnosis.algebra.lines import Line
from nkireview.diagnosis.arrangement.stepping import (
    JOINS,
    held,
    linear,
    lone,
    named,
    said,
    settle,
    through,
    views,
)
from nkireview.diagnosis.flows.acting import Acting, operand, repeatable
from nkireview.diagnosis.habits.survey import PASSED, Survey
from nkireview.diagnosis.repair import Repair
from nkireview.execute import Core, Operands
from nkireview.execute import Step as Instruction
from nkireview.isa.enums import Memory

CAUSE = "step-order"
WAY = 8
"""Copies and transposes that a walk goes back through."""
TURNED = frozenset({"nc_transpose", "dma_transpose"})
Taken = tuple[str, tuple[Step, ...]]
"""A main operand and the steps on it."""


def fixed(op: str, taken: tuple[Step, ...]) -> bool:
    """True where steps surely give the same before and after a reduction of rows."""
    if op == "add":
        return all(step.op in ("multiply", "divide") and not step.reverse for step in taken) and all(
            step.number is not None for step in taken
        )
    return all(step.op in ("add", "subtract", op) and not step.reverse for step in taken)


class Late(Acting):
    """Reductions of what the instructions before them read, whose steps are taken on the result."""

    def __init__(self, survey: Survey, line: Line, main: str) -> None:
        super().__init__()
        self._survey, self._line, self._main = survey, line, main
        self._links: dict[int, tuple[int, tuple[Step, ...]]] | None = None
        self._earlier: dict[int, tuple[Step, ...]] = {}
        self._held: dict[int, tuple[Values, dict[str, Values]]] = {}

    def begin(self) -> None:
        """See `Acting`."""
        self._held.clear()

    def act(self, step: Instruction, core: Core, index: int, operands: Operands) -> None:
        """See `Acting`."""
        if self._links is None:
            self._links = self._plan()
            self._earlier = dict(self._links.values())
        running = Running(step, core, operands)
        if index in self._earlier:
            self._held[index] = np.array(running.value(self._main)), held(running, self._earlier[index])
        found = self._found(running, self._links[index]) if index in self._links else None
        step.run(core, index, operands)
        if found is not None:
            settle(step, core, operands, found)

    def _found(self, running: Running, link: tuple[int, tuple[Step, ...]]) -> Values | None:
        source, tiles = self._held.get(link[0], (None, {}))
        if source is None or source.size != running.value("data").size:
            return None
        total = reduced(running, source.reshape(running.value("data").shape))
        return None if total is None else through(total, link[1], tiles.__getitem__)

    def _plan(self) -> dict[int, tuple[int, tuple[Step, ...]]]:
        found = {}
        for index in self._line.instructions:
            source = self._survey.origin(Slot(index, "data"))
            for name, taken in views(source[1]) if source is not None else ():
                if source is not None and name == self._main:
                    found[index] = source[0].instruction, taken
        return found


def reduced(running: Running, data: Values) -> Values | None:
    """What tensor_reduce would make of other data that it takes row by row; None where it does not."""
    target = operand(running.step, running.operands, "dst")
    join = JOINS.get(str(running.step.immediates.get("op")))
    if target is None or join is None or target.form.size != data.shape[0]:
        return None
    total: Values = join(data.reshape(data.shape[0], -1), axis=1, keepdims=True)
    return -total if running.step.immediates.get("negate") else total


class Early(Acting):
    """Instructions that take the reduction of steps on what was reduced, where they take steps on the reduction."""

    def __init__(self, survey: Survey, line: Line, main: str) -> None:
        super().__init__()
        self._survey, self._line, self._main = survey, line, main
        self._links: dict[int, int] | None = None
        self._reductions: frozenset[int] = frozenset()
        self._held: dict[int, tuple[Running, Values]] = {}

    def begin(self) -> None:
        """See `Acting`."""
        self._held.clear()

    def act(self, step: Instruction, core: Core, index: int, operands: Operands) -> None:
        """See `Acting`."""
        if self._links is None:
            self._links = self._plan()
            self._reductions = frozenset(self._links.values())
        running = Running(step, core, operands)
        if index in self._reductions:
            self._held[index] = running, np.array(running.value("data"))
        found = self._found(running, index) if index in self._links and repeatable(step) else None
        step.run(core, index, operands)
        if found is not None:
            settle(step, core, operands, found)

    def _found(self, running: Running, index: int) -> Values | None:
        reducing, data = self._held.get(self._links[index] if self._links else -1, (None, None))
        call = self._survey.flow.call(index)
        if reducing is None or data is None or call is None:
            return None
        taken = next((each for name, each in views(call) if name == self._main), ())
        changed = through(data, taken, running.value)
        return None if changed is None else reduced(reducing, changed)

    def _plan(self) -> dict[int, int]:
        found = {}
        for index in self._line.instructions:
            source = self._survey.origin(Slot(index, self._main))
            if source is not None and source[1].row.name == "tensor_reduce":
                found[index] = source[0].instruction
        return found


def around_reductions(survey: Survey) -> Iterator[Repair]:
    """Steps before a reduction of rows taken after it, and those after it taken before."""
    for line in survey.lines:
        if line.opcode == "tensor_reduce" and line.call.measure("dst", "free") == 1 and line.floats("dst"):
            op = str(line.call.imm("op"))
            source = survey.origin(line.slot("data"))
            for main, taken in views(source[1]) if source is not None and op in JOINS else ():
                if source is not None and not fixed(op, taken):
                    sentence = (
                        f"{named(survey, source[0].instruction)} {said(taken)} before the reduction by {op}: after it "
                        "the output matches"
                    )
                    yield from line.repair(CAUSE, sentence, None, Late(survey, line, main))
            continue
        for main, taken in views(line.call):
            source = survey.origin(line.slot(main))
            if (
                source is None
                or source[1].row.name != "tensor_reduce"
                or source[1].measure("dst", "free") != 1
            ):
                continue
            op = str(source[1].imm("op"))
            if op in JOINS and not fixed(op, taken):
                sentence = (
                    f"{line.opcode} {said(taken)} after the reduction by {op}{survey.where(source[0].instruction)}: "
                    "before it the output matches"
                )
                yield from line.repair(CAUSE, sentence, None, Early(survey, line, main))


@dataclass(frozen=True, eq=False)
class Move:
    """Steps that some instructions leave out, and that are taken on operands of others before they run.

    out: instruction -> (main operand, steps). over: instruction -> the operands.
    """

    out: dict[int, Taken]
    over: dict[int, tuple[str, ...]]


class Moved(Acting):
    """Steps taken elsewhere: see `Move`. Both are looked for when the first instruction runs."""

    def __init__(self, plan: Callable[[], Move], taken: tuple[Step, ...]) -> None:
        super().__init__()
        self._make, self._taken = plan, taken
        self._move: Move | None = None
        self._tiles: dict[str, Values] = {}

    def begin(self) -> None:
        """See `Acting`."""
        self._tiles.clear()

    def act(self, step: Instruction, core: Core, index: int, operands: Operands) -> None:
        """See `Acting`."""
        if self._move is None:
            self._move = self._make()
        running = Running(step, core, operands)
        left = self._move.out.get(index)
        plain = None
        if left is not None:
            plain = np.array(running.value(left[0]))
            self._tiles.update(held(running, left[1]))
        self._run(running, index, self._move.over.get(index, ()))
        if plain is not None:
            settle(step, core, operands, plain)

    def _run(self, running: Running, index: int, names: tuple[str, ...]) -> None:
        if not names:
            running.step.run(running.core, index, running.operands)
            return
        changed = None
        if self._tiles.keys() >= {step.operand for step in self._taken if step.operand}:
            changed = through(running.value(names[0]), self._taken, self._tiles.__getitem__)

        def then(step: Instruction, core: Core, at: int, operands: Operands) -> None:
            self._run(Running(step, core, operands), at, names[1:])

        run_with(running, index, names[0], changed, then)


def around_matmuls(survey: Survey) -> Iterator[Repair]:
    """Steps on an operand of matmuls taken on their result, and those on their result taken on an operand."""
    known = set()
    for line in survey.sites_of(MATMUL):
        if line.call.imm("is_transpose") or not line.floats("stationary"):
            continue
        group = summed_up(survey, line)
        if group in known:
            continue
        known.add(group)
        for name in ("moving", "stationary"):
            yield from _later(survey, line, group, name)
        yield from _sooner(survey, line, group)


def _later(survey: Survey, line: Line, group: Sequence[int], name: str) -> Iterator[Repair]:
    source = made(survey.flow, line.slot(name))
    call = survey.flow.call(source) if source is not None else None
    for main, taken in views(call) if call is not None else ():
        if linear(taken) or source is None:
            continue

        def plan(main: str = main, taken: tuple[Step, ...] = taken) -> Move:
            out: dict[int, Taken] = {}
            for index in group:
                at = made(survey.flow, Slot(index, name))
                given = survey.flow.call(at) if at is not None else None
                for each, steps in views(given) if given is not None else ():
                    if at is not None and each == main and len(steps) == len(taken):
                        out[at] = each, steps
            return Move(out, taken_up(survey, group))

        sentence = (
            f"{named(survey, source)} {said(taken)} before the matmul{line.where}, to its operand {name}: "
            "to its result instead the output matches"
        )
        yield survey.repair(CAUSE, sentence, source, Moved(plan, taken))


def _sooner(survey: Survey, line: Line, group: Sequence[int]) -> Iterator[Repair]:
    first = next(iter(consumers(survey, group).items()), None)
    call = survey.flow.call(first[0]) if first is not None else None
    for main, taken in views(call) if call is not None else ():
        if first is None or main != first[1] or linear(taken) or not lone(taken):
            continue
        for name in ("moving", "stationary"):

            def plan(name: str = name, main: str = main, taken: tuple[Step, ...] = taken) -> Move:
                alike = {at for at, each in consumers(survey, group).items() if each == main}
                out: dict[int, Taken] = dict.fromkeys(alike, (main, taken))
                return Move(out, dict.fromkeys(group, (name,)))

            sentence = (
                f"{named(survey, first[0])} {said(taken)} after the matmul{line.where}: taken on its operand {name} "
                "instead the output matches"
            )
            yield survey.repair(CAUSE, sentence, first[0], Moved(plan, taken))


def summed_up(survey: Survey, line: Line) -> tuple[int, ...]:
    """The matmuls of a line, and of others, that add to the same results."""
    found = set(line.instructions)
    for reader, names in taken_up(survey, line.instructions).items():
        for name in names:
            for writer in survey.flow.writers(Slot(reader, name)):
                call = survey.flow.call(writer.instruction) if writer.instruction != UNKNOWN else None
                if call is not None and call.row.name == MATMUL:
                    found.add(writer.instruction)
    return tuple(sorted(found))


def consumers(survey: Survey, group: Sequence[int]) -> dict[int, str]:
    """The elementwise instructions that go on from the results of matmuls, by way of copies, with their operands."""
    found: dict[int, str] = {}
    left = [(index, name) for index, names in taken_up(survey, group).items() for name in names]
    seen = set(left)
    while left:
        index, name = left.pop(0)
        call = survey.flow.call(index)
        if call is None:
            continue
        if call.row.name not in PASSED:
            if any(main == name for main, _ in views(call)):
                found[index] = name
            continue
        readers = survey.flow.readers(Slot(index, "dst")) if call.tiles["dst"].on_chip else ()
        for reader in readers:
            key = reader.instruction, reader.operand
            if reader.instruction != UNKNOWN and key not in seen:
                seen.add(key)
                left.append(key)
    return found


def made(flow: Dataflow, slot: Slot) -> int | None:
    """The instruction that made what an operand reads, before it was copied or transposed."""
    for _ in range(WAY):
        writers = flow.writers(slot)
        if len(writers) != 1 or writers[0].instruction == UNKNOWN:
            return None
        call = flow.call(writers[0].instruction)
        if call is None or writers[0].operand != "dst":
            return None
        if call.row.name not in PASSED | TURNED:
            return writers[0].instruction
        slot = Slot(writers[0].instruction, "src" if call.has("src") else "data")
    return None


def taken_up(survey: Survey, group: Sequence[int]) -> dict[int, tuple[str, ...]]:
    """The instructions that read what matmuls leave in PSUM, with the operands by which they do."""
    found: dict[int, tuple[str, ...]] = {}
    for index in group:
        for reader in survey.flow.readers(Slot(index, "dst")):
            call = survey.flow.call(reader.instruction) if reader.instruction != UNKNOWN else None
            if call is not None and call.row.name != MATMUL and call.has(reader.operand):
                names = found.get(reader.instruction, ())
                if call.memory(reader.operand) is Memory.psum and reader.operand not in names:
                    found[reader.instruction] = (*names, reader.operand)
    return found

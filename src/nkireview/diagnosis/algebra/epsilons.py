"""Epsilons: none before a root, a quotient or a logarithm, one of another size, one on the other side of the root."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from nkireview.checks import stability
from nkireview.checks.dataflow import Dataflow
from nkireview.checks.steps import Step, main_operand, steps, written
from nkireview.diagnosis.algebra.hooks import Running, Values, affine, after, before, plainly, slope
from nkireview.diagnosis.algebra.lines import Line, with_alike
from nkireview.diagnosis.algebra.numbers import FILL, Number, all_numbers, numbers, shown
from nkireview.diagnosis.repair import Repair
from nkireview.execute import Around

EPSILONS = (1e-5, 1e-6, 1e-8, 1e-12, 1e-3, 1e-7, 1e-10)
LARGEST = 1e-2
"""The largest number that is taken for an epsilon."""
ROOT, QUOTIENT, LOGARITHM = "square root", "reciprocal", "logarithm"
MISSING, OUTSIDE = "eps-missing", "eps-outside-root"


@dataclass(frozen=True, eq=False)
class Steep:
    """A step of a line that is steep near zero: `taken[at]`, of an operand. inverse: it divides as well."""

    line: Line
    taken: tuple[Step, ...]
    at: int
    operand: str
    kind: str
    inverse: bool = False

    @property
    def main(self) -> bool:
        """True where the argument is what the line's steps before it made, false for another tile."""
        return self.operand == main_operand(self.line.call)

    def with_added(self, number: float, then: Around = plainly) -> Around:
        """Execution with a number added to the argument."""
        before_it = self.taken[: self.at] if self.main else ()

        def change(running: Running) -> Values:
            held = running.value(self.operand)
            changed: Values = held + number / slope(running, before_it, held)
            return changed

        return before(self.line.instructions, self.operand, change, then)


def steep(line: Line) -> Iterator[Steep]:
    """The roots, quotients and logarithms of a line to whose argument something can be added."""
    taken, main = steps(line.call), main_operand(line.call)
    if taken is None or not main:
        return
    for at, step in enumerate(taken):
        reached = all(affine(each) for each in taken[:at]) and line.floats(main)
        power = step.number if step.op == "power" else None
        if step.op == "divide" and step.operand and not step.reverse:
            if line.floats(step.operand):
                yield Steep(line, taken, at, step.operand, QUOTIENT, True)
        elif not reached:
            continue
        elif step.op in ("sqrt", "rsqrt") or power in (0.5, -0.5):
            yield Steep(line, taken, at, main, ROOT, step.op == "rsqrt" or power == -0.5)
        elif step.op == "reciprocal" or power == -1.0 or (step.op == "divide" and step.reverse):
            yield Steep(line, taken, at, main, QUOTIENT, True)
        elif step.op == "log":
            yield Steep(line, taken, at, main, LOGARITHM)


def bare_roots(flow: Dataflow, given: Sequence[Line]) -> Iterator[Repair]:
    """An epsilon before the roots of a sum of squares or a variance to which nothing was added."""
    suspected = {spot.instruction for spot in stability.unguarded_norms(flow)}
    for line in with_alike(line for line in given if suspected & set(line.instructions)):
        for found in steep(line):
            yield from _missing(found)


def bare(flow: Dataflow, given: Sequence[Line], kinds: Sequence[str]) -> Iterator[Repair]:
    """An epsilon before the other steps of some kinds to whose argument nothing small was added."""
    suspected = {spot.instruction for spot in stability.unguarded_norms(flow)}
    owner = owners(given)
    for line in with_alike(line for line in given if not suspected & set(line.instructions)):
        for found in steep(line):
            if found.kind in kinds and added_before(found, owner) is None:
                yield from _missing(found)


def _missing(found: Steep) -> Iterator[Repair]:
    for size in EPSILONS:
        alone = f"the {found.kind} is taken of its argument alone"
        sentence = f"{alone}: with {shown(size)} added before it the output matches"
        yield from found.line.repair(MISSING, sentence, around=found.with_added(size))


def sizes(given: Sequence[Line], known: Sequence[int]) -> Iterator[Repair]:
    """Epsilons of another size: usual ones, none, and those meant before or after a division by a count."""
    for number in all_numbers(given):
        if not _is_epsilon(number):
            continue
        if number.op == FILL and any(abs(number.value * count - 1) < 1e-6 for count in known):
            continue
        scaled = [number.value * count for count in known] + [number.value / count for count in known]
        for size in dict.fromkeys((*EPSILONS, 0.0, *scaled)):
            if size == number.value:
                continue
            sentence = f"an epsilon of {shown(number.value)} is added: with {shown(size)} the output matches"
            yield from number.line.repair(MISSING, sentence, number.to(size))


def _is_epsilon(number: Number) -> bool:
    if not 0 < number.value <= LARGEST:
        return False
    return number.op == "add" or (number.line.opcode == "memset" and number.line.floats("dst"))


@dataclass(frozen=True, eq=False)
class Added:
    """A small number that a line adds: as an immediate, or by a tile that was filled with it."""

    line: Line
    value: float
    number: Number | None = None
    tile: str = ""


def owners(given: Sequence[Line]) -> dict[int, Line]:
    """The line of each instruction."""
    return {index: line for line in given for index in line.instructions}


def added_before(found: Steep, owner: dict[int, Line]) -> Added | None:
    """What is added to the argument of a step right before it: by its own line, or by the one that wrote it."""
    if found.main:
        for step in found.taken[: found.at]:
            own = _added(found.line, step)
            if own is not None:
                return own
    line = _writer(found.line, found.operand, owner)
    taken = steps(line.call) if line is not None else None
    return _added(line, taken[-1]) if line is not None and taken else None


def _writer(line: Line, operand: str, owner: dict[int, Line]) -> Line | None:
    """The one line that wrote an operand."""
    writers = written(line.flow, line.slot(operand)) or ()
    found = {id(owner[slot.instruction]): owner[slot.instruction] for slot, _ in writers}
    return next(iter(found.values())) if len(found) == 1 else None


def _added(line: Line, step: Step) -> Added | None:
    """The small number that a step adds."""
    if step.op != "add":
        return None
    if not step.operand:
        for number in numbers(line):
            if number.op == "add" and number.value == step.number and 0 < number.value <= LARGEST:
                return Added(line, number.value, number)
        return None
    writers = written(line.flow, line.slot(step.operand)) or ()
    values = {call.imm("value") for _, call in writers if call.row.name == "memset"}
    value = (
        values.pop() if len(values) == 1 and all(call.row.name == "memset" for _, call in writers) else None
    )
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= LARGEST:
        return None
    return Added(line, float(value), None, step.operand)


def beyond_root(given: Sequence[Line]) -> Iterator[Repair]:
    """An epsilon that is added to a root, added to its argument instead, and the other way round."""
    owner = owners(given)
    for line in given:
        for found in steep(line):
            if found.kind != ROOT:
                continue
            inside = added_before(found, owner)
            if inside is not None and found.at == len(found.taken) - 1 and line.floats("dst"):
                yield from _moved_out(found, inside)
        yield from _moved_in(line, owner)


def _moved_in(line: Line, owner: dict[int, Line]) -> Iterator[Repair]:
    """A root to which this line adds an epsilon: of its own, or of the line before it."""
    taken = steps(line.call) or ()
    for at, step in enumerate(taken):
        added = _added(line, step)
        if added is None:
            continue
        root_line: Line | None = line
        if at == 0:
            root_line = _writer(line, main_operand(line.call), owner)
        roots = [] if root_line is None else [each for each in steep(root_line) if each.kind == ROOT]
        for root in roots:
            last = root.at == (at - 1 if root.line is line else len(root.taken) - 1)
            if last:
                sentence = (
                    f"{shown(added.value)} is added to the square root: added before it the output matches"
                )
                there = functools.partial(root.with_added, added.value)
                yield from _exchanged(added, sentence, root.line, there)


def _moved_out(found: Steep, added: Added) -> Iterator[Repair]:
    size = added.value
    changes: list[tuple[str, Callable[[Values], Values]]] = []
    if found.inverse:
        changes.append(("to the square root", lambda values: 1 / (1 / values + size)))
    changes.append(("to its result", lambda values: values + size))
    for where, change in changes:
        sentence = f"{shown(size)} is added before the square root: added {where} instead the output matches"
        there = functools.partial(after, found.line.instructions, "dst", change)
        yield from _exchanged(added, sentence, found.line, there)


def _exchanged(
    added: Added, sentence: str, root: Line, there: Callable[[Around], Around]
) -> Iterator[Repair]:
    """Without what is added, and with another execution of the root's line."""
    if added.number is not None:
        yield from root.repair(OUTSIDE, sentence, added.number.to(0.0), there(plainly))
    else:
        without = before(added.line.instructions, added.tile, lambda running: 0 * running.value(added.tile))
        yield from root.repair(OUTSIDE, sentence, None, there(without))

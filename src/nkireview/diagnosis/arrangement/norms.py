"""Norms: an epsilon inside a maximum or added, magnitudes, roots, means and variances that are taken another way."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np

from nkireview.checks.dataflow import UNKNOWN, Dataflow, Slot
from nkireview.checks.steps import is_square, steps, summed, terms_of
from nkireview.diagnosis.algebra.epsilons import (
    LARGEST,
    QUOTIENT,
    ROOT,
    Steep,
    added_before,
    owners,
    steep,
)
from nkireview.diagnosis.algebra.hooks import Running, Values, after, before
from nkireview.diagnosis.algebra.lines import Line, with_alike
from nkireview.diagnosis.algebra.numbers import Number, all_numbers, shown
from nkireview.diagnosis.arrangement.stepping import Compute, Recomputed, settle, squares, through, views
from nkireview.diagnosis.flows.acting import Acting, repeatable
from nkireview.diagnosis.habits.survey import Survey
from nkireview.diagnosis.repair import Repair
from nkireview.execute import Core, Operands
from nkireview.execute import Step as Instruction
from nkireview.program.call import CallView

EPSILON, MAGNITUDE, ROOTLESS, MEAN, CENTRE = (
    "eps-in-maximum",
    "magnitude-missing",
    "root-missing",
    "mean-for-sum",
    "variance-centre",
)
SITES = 4
"""Lines of one kind that are tried."""


def epsilons(survey: Survey) -> Iterator[Repair]:
    """``max(x, eps)`` for ``x + eps``, before the root or after it, and the other way round."""
    owner = owners(survey.sites)
    for number in all_numbers(survey.lines):
        if not 0 < number.value <= LARGEST or not number.operator:
            continue
        if number.op == "maximum":
            sentence = (
                f"the larger of a value and {shown(number.value)} is taken: with their sum the output matches"
            )
            yield from number.line.repair(EPSILON, sentence, number.to(number.value, "add"))
            yield from _inside(number, owner)
        elif number.op == "add":
            sentence = (
                f"{shown(number.value)} is added: with the larger of the two instead the output matches"
            )
            yield from number.line.repair(EPSILON, sentence, number.to(number.value, "maximum"))
    for line in survey.sites:
        for found in steep(line):
            added = added_before(found, owner)
            if (
                found.kind != ROOT
                or added is None
                or found.at != len(found.taken) - 1
                or not line.floats("dst")
            ):
                continue
            sentence = (
                f"{shown(added.value)} is added before the square root: with the larger of the root and it instead the "
                "output matches"
            )
            if added.number is not None:
                around = after(line.instructions, "dst", _at_least(added.value, found.inverse))
                yield from line.repair(EPSILON, sentence, added.number.to(0.0), around)
            else:
                nothing = before(added.line.instructions, added.tile, partial(_zero, added.tile))
                around = after(line.instructions, "dst", _at_least(added.value, found.inverse), nothing)
                yield from line.repair(EPSILON, sentence, None, around)


def _inside(number: Number, owner: dict[int, Line]) -> Iterator[Repair]:
    """An epsilon that a root is raised to, added before it, as it is and as its square."""
    line = number.line
    taken = steps(line.call) or ()
    at = next(
        (at for at, step in enumerate(taken) if step.op == "maximum" and step.number == number.value), -1
    )
    found = [each for each in steep(line) if each.kind == ROOT and each.at == at - 1]
    if at == 0:
        writers = line.flow.writers(line.slot(next(views(line.call), ("", ()))[0] or "data"))
        makers = {
            id(owner[each.instruction]): owner[each.instruction]
            for each in writers
            if each.instruction in owner
        }
        if len(makers) == 1 and all(each.instruction != UNKNOWN for each in writers):
            maker = next(iter(makers.values()))
            found = [each for each in steep(maker) if each.kind == ROOT and each.at == len(each.taken) - 1]
    for root in found:
        for value, said in (
            (number.value, shown(number.value)),
            (number.value**2, f"{shown(number.value)} squared"),
        ):
            sentence = (
                f"a square root is raised to {shown(number.value)}: with {said} added before it instead the output "
                "matches"
            )
            yield from line.repair(EPSILON, sentence, number.to(-math.inf), root.with_added(value))


def _at_least(value: float, inverse: bool) -> Callable[[Values], Values]:
    if inverse:
        return lambda values: 1 / np.maximum(1 / values, value)
    return lambda values: np.maximum(values, value)


def _zero(name: str, running: Running) -> Values:
    return np.zeros_like(running.value(name))


def magnitudes(survey: Survey) -> Iterator[Repair]:
    """The largest of magnitudes, where the largest of values is taken: in all reductions alike, then in each."""
    reductions = [
        line for line in survey.of("tensor_reduce", "tensor_partition_reduce") if _takes_maximum(line)
    ]
    for line in with_alike(reductions):
        sentence = f"{line.opcode} takes the largest of its data: of their magnitudes the output matches"
        around = before(line.instructions, "data", lambda running: np.abs(running.value("data")))
        yield from line.repair(MAGNITUDE, sentence, None, around)
    if reductions:
        joined = [index for line in reductions for index in line.instructions]
        pairs = [line for line in survey.of("tensor_tensor") if _takes_maximum(line)]
        for line in pairs[:SITES]:
            sentence = f"{line.opcode} takes the larger of two: of their magnitudes the output matches"
            inner = before(joined, "data", lambda running: np.abs(running.value("data")))
            yield from line.repair(MAGNITUDE, sentence, None, after(line.instructions, "dst", np.abs, inner))


def _takes_maximum(line: Line) -> bool:
    return line.call.imm("op") == "maximum" and line.floats("dst")


def roots(survey: Survey) -> Iterator[Repair]:
    """What is divided by, the root of it instead."""
    for line in with_alike(survey.lines):
        for found in steep(line):
            if found.kind == QUOTIENT and found.at == 0 and line.floats(found.operand):
                sentence = (
                    f"{line.opcode} divides by {found.operand}: by the square root of it the output matches"
                )
                around = before(line.instructions, found.operand, _root(found))
                yield from line.repair(ROOTLESS, sentence, None, around)


def _root(found: Steep) -> Callable[[Running], Values]:
    return lambda running: np.sqrt(running.value(found.operand))


def means(survey: Survey) -> Iterator[Repair]:
    """Sums where means are meant and back, by the count of what each takes together: alike ones at once, then each."""
    sums = [line for line in survey.lines if summed(line.call) and line.floats(summed(line.call))]
    for line in with_alike(sums):
        own = max(terms_of(line.call), 1)
        for count in dict.fromkeys((own, own * max(survey.repeated(line), 1))):
            if count < 2:
                continue
            for said, factor in ((f"divided by {count}", 1 / count), (f"times {count}", float(count))):
                sentence = f"{line.opcode} sums {own} elements at a time: {said} the output matches"
                around = after(line.instructions, summed(line.call), partial(np.multiply, factor))
                yield from line.repair(MEAN, sentence, None, around)


class Uncentred(Acting):
    """Squares of what was there before something was subtracted from it.

    links: square -> (the difference, the operand of it that something was subtracted from).
    """

    def __init__(self, flow: Dataflow, links: Mapping[int, tuple[int, str]]) -> None:
        super().__init__()
        self._flow, self._links, self._differences = flow, links, dict(links.values())
        self._held: dict[int, Values] = {}

    def begin(self) -> None:
        """See `Acting`."""
        self._held.clear()

    def act(self, step: Instruction, core: Core, index: int, operands: Operands) -> None:
        """See `Acting`."""
        running = Running(step, core, operands)
        if index in self._differences:
            self._held[index] = np.array(running.value(self._differences[index]))
        source = self._held.get(self._links[index][0]) if index in self._links else None
        squared = self._squared(running, index, source) if source is not None and repeatable(step) else None
        step.run(core, index, operands)
        if squared is not None:
            settle(step, core, operands, squared)

    def _squared(self, running: Running, index: int, source: Values) -> Values | None:
        call = self._flow.call(index)
        if call is None or squares(call):
            return np.square(source)
        return through(source, steps(call) or (), running.value)


def centres(survey: Survey) -> Iterator[Repair]:
    """Sums of squares about the mean where about zero is meant, and the other way round."""
    for line in survey.sites:
        square = is_square(survey.flow, Slot(line.first, "dst"), line.call)
        if (
            square is not None
            and line.floats(square.operand)
            and line.call.measure(square.operand, "free") > 1
        ):
            yield from _centres(survey, line, square.operand)
        elif line.opcode == "bn_aggr" and line.floats("dst"):
            sentence = "bn_aggr gives the variance about the mean: about zero the output matches"
            yield from line.repair(CENTRE, sentence, None, after(line.instructions, "dst", _about_zero))


def _centres(survey: Survey, line: Line, name: str) -> Iterator[Repair]:
    zero = "values less something: those of the values themselves (about zero) the output matches"
    links = {}
    for index in line.instructions:
        found = survey.origin(Slot(index, name))
        main = _minuend(found[1]) if found is not None else ""
        if found is not None and main:
            links[index] = found[0].instruction, main
    if line.call.has("bias"):
        sentence = f"{line.opcode} takes squares of {zero}"
        yield from line.repair(CENTRE, sentence, None, Recomputed(line.instructions, _unbiased(line)))
    elif links:
        sentence = f"{line.opcode} takes squares of {zero}"
        yield from line.repair(CENTRE, sentence, None, Uncentred(survey.flow, links))
    else:
        sentence = (
            f"{line.opcode} takes squares of values as they are (about zero): less the mean of their row the output "
            "matches"
        )
        yield from line.repair(CENTRE, sentence, None, before(line.instructions, name, _less_mean(name)))


def _minuend(call: CallView) -> str:
    """The operand of a call from which it subtracts a tile; empty where it does not."""
    for main, taken in views(call):
        if any(step.op in ("subtract", "add") and step.operand and not step.reverse for step in taken):
            return main
    return ""


def _unbiased(line: Line) -> Compute:
    def compute(running: Running, index: int) -> Values | None:
        call = line.flow.call(index)
        taken = [step for step in steps(call) or () if step.op != "add"] if call is not None else []
        return through(running.value("data"), taken, running.value)

    return compute


def _less_mean(name: str) -> Callable[[Running], Values]:
    def change(running: Running) -> Values:
        values = running.value(name)
        mean: Values = values.mean(axis=tuple(range(1, values.ndim)), keepdims=True)
        return values - mean

    return change


def _about_zero(values: Values) -> Values:
    changed = np.array(values)
    flat = changed.reshape(len(changed), -1)
    if flat.shape[1] > 1:
        flat[:, 1] += flat[:, 0] ** 2
    return changed

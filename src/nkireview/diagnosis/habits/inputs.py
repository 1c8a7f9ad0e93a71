"""Inputs: parameters and terms that are applied another way, too often, too early, or not at all."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from types import MappingProxyType

import numpy as np

from nkireview.checks.dataflow import Slot
from nkireview.checks.steps import ACTIVATIONS
from nkireview.diagnosis.algebra.hooks import Running, Values, after, before
from nkireview.diagnosis.algebra.lines import Line, having
from nkireview.diagnosis.algebra.numbers import all_numbers, shown
from nkireview.diagnosis.flows.acting import Acting, Float64, operand, values, write
from nkireview.diagnosis.habits.functions import inner_lines, rescaled
from nkireview.diagnosis.habits.rewriting import Final, positions
from nkireview.diagnosis.habits.survey import Parameter, Survey
from nkireview.diagnosis.repair import Repair
from nkireview.execute import Around, Core, Operands, Step
from nkireview.isa import act, dtypes
from nkireview.program.edited import edited

OFFSET, INVERTED, APPLIED = "parameter-offset", "factor-inverted", "parameter-function"
MISSING, TWICE, EXTRA, ORDER = "term-missing", "term-twice", "term-extra", "term-order"
SCALE = "scale-after-exp"
OTHERS = MappingProxyType({"multiply": "divide", "divide": "multiply"})
OPERATORS = MappingProxyType(
    {
        "tensor_tensor": (("op", "data2"),),
        "tensor_scalar": (("op0", "operand0"), ("op1", "operand1")),
        "scalar_tensor_tensor": (("op0", "operand0"), ("op1", "operand1")),
    }
)
"""Opcode -> (immediate of an operator, its second operand)."""
VERBS = MappingProxyType({"add": "is added", "subtract": "is subtracted", "multiply": "is multiplied with"})
FUNCTIONS: MappingProxyType[str, Callable[[Values], Values]] = MappingProxyType(
    {
        "exp of": np.exp,
        "the root of": np.sqrt,
        "the square of": np.square,
        "twice": lambda values: 2 * values,
        "the sigmoid of": lambda values: np.asarray(act.of("sigmoid").fn(values)),
    }
)
"""What may be meant of a parameter."""
FEW = 4
"""Parameters that are tried one by one."""


def offsets(survey: Survey) -> Iterator[Repair]:
    """Each parameter as one plus it, or as it less one: gamma for 1 + gamma and back."""
    for one in survey.floats:
        for said, other, change in (
            ("as it is", f"1 + {one.path}", lambda values: values + 1),
            ("plus one", f"{one.path} - 1", lambda values: values - 1),
        ):
            sentence = f"{one.path} is taken {said}: as {other} the output matches"
            yield from _loaded(survey, OFFSET, sentence, one, change)


def inverted(survey: Survey) -> Iterator[Repair]:
    """Tiles that are divided by where multiplied with is meant, and back; parameters whose inverse is meant."""
    for line in survey.lines:
        for name, other in OPERATORS.get(line.opcode, ()):
            op = str(line.call.imm(name))
            if op in OTHERS and line.call.has(other):
                verb = (
                    ("multiplies with", "divided by")
                    if op == "multiply"
                    else ("divides by", "multiplied with")
                )
                sentence = f"{line.opcode} {verb[0]} {other}: {verb[1]} it the output matches"
                yield from line.repair(INVERTED, sentence, line.edits(having(name, OTHERS[op])))
    for one in survey.floats:
        if np.count_nonzero(survey.arguments[one.buffer]) == survey.arguments[one.buffer].size:
            sentence = f"{one.path} is taken as it is: as 1/{one.path} the output matches"
            yield from _loaded(survey, INVERTED, sentence, one, lambda values: 1 / values)


def applied(survey: Survey) -> Iterator[Repair]:
    """Parameters of which a function is meant."""
    smallest = sorted(survey.floats, key=lambda each: int(np.prod(each.shape)))[:FEW]
    for name, change in FUNCTIONS.items():
        for one in smallest:
            sentence = f"{one.path} is taken as it is: with {name} {one.path} the output matches"
            yield from _loaded(survey, APPLIED, sentence, one, change)


def _loaded(
    survey: Survey, cause: str, sentence: str, one: Parameter, change: Callable[[Values], Values]
) -> Iterator[Repair]:
    if one.loads:
        yield survey.repair(cause, sentence, min(one.loads), after(one.loads, "dst", change))


def scales(survey: Survey) -> Iterator[Repair]:
    """A factor that is applied after an exponential where it belongs into it."""
    exponentials = [line for line in survey.of(*ACTIVATIONS) if line.call.imm("op") == "exp"]
    for number in all_numbers(survey.lines):
        if number.op not in ("multiply", "divide") or number.value in (0.0, 1.0) or number.reverse:
            continue
        for line in exponentials:
            if number.line.first <= line.first:
                continue
            factor = number.value if number.op == "multiply" else 1 / number.value
            sentence = (
                f"{shown(number.value)} is applied{number.line.where} after the exponential: to its argument instead "
                "the output matches"
            )
            for inner in rescaled(line, SCALE, sentence, factor):
                program = edited(survey.program, number.to(1.0))
                yield Repair(inner.cause, inner.sentence, inner.instruction, program, inner.around)


def terms(survey: Survey) -> Iterator[Repair]:
    """Tiles that are added, or multiplied with, in vain or not often enough."""
    found = [(line, op, name) for line in survey.lines for op, name in _operands(line)]
    for line, op, name in found:
        without = before(line.instructions, name, _set(name, 1.0 if op == "multiply" else 0.0))
        sentence = f"{name} of {line.opcode} {VERBS[op]}: without it the output matches"
        yield from line.repair(EXTRA, sentence, None, without)
    for line, op, name in found:
        again = before(line.instructions, name, _squared(name) if op == "multiply" else _doubled(name))
        sentence = f"{name} of {line.opcode} {VERBS[op]} once: twice the output matches"
        yield from line.repair(TWICE, sentence, None, again)


def _operands(line: Line) -> Iterator[tuple[str, str]]:
    """Operators of a line with the tiles that they add, subtract or multiply with."""
    for name, second in OPERATORS.get(line.opcode, ()):
        op = str(line.call.imm(name))
        if op in VERBS and line.call.has(second):
            both = line.opcode == "tensor_tensor" and op != "subtract"
            yield from ((op, each) for each in (second, "data1")[: 1 + both] if line.floats(each))
    if line.opcode in ACTIVATIONS:
        for op, name in (("add", "bias"), ("multiply", "scale")):
            if line.floats(name):
                yield op, name


def _set(name: str, value: float) -> Callable[[Running], Values]:
    return lambda running: np.full_like(running.value(name), value)


def _doubled(name: str) -> Callable[[Running], Values]:
    return lambda running: 2 * running.value(name)


def _squared(name: str) -> Callable[[Running], Values]:
    return lambda running: np.square(running.value(name))


class Shifted(Acting):
    """Loads of one parameter with the elements of another array at the same places added."""

    def __init__(self, one: Parameter, other: Float64) -> None:
        super().__init__()
        self._at, self._other = frozenset(one.loads), other.reshape(-1)

    def act(self, step: Step, core: Core, index: int, operands: Operands) -> None:
        """See `Acting`."""
        step.run(core, index, operands)
        source = operand(step, operands, "src") if index in self._at else None
        target = operand(step, operands, "dst") if source is not None else None
        if source is not None and target is not None and source.form.size == target.form.size:
            added = self._other[positions(source)].reshape(target.form.shape)
            write(core, target, values(core, target) + added)


def missing(survey: Survey) -> Iterator[Repair]:
    """Parameters that an output lacks as a term or as a factor, or holds once too often."""
    for output in survey.outputs[:2]:
        for one in survey.floats:
            whole = _along(survey, one, output.shape)
            if whole is None:
                continue
            for said, change in (
                (f"{one.path} not added", _plus(whole)),
                (f"not multiplied with {one.path}", _by(whole)),
                (f"{one.path} not subtracted", _plus(-whole)),
            ):
                sentence = f"output {output.name} is stored as it is, {said}: with that it matches"
                yield survey.repair(MISSING, sentence, output.first, Final([output], change))


def unread(survey: Survey) -> Iterator[Repair]:
    """Parameters that nothing reads once they are loaded: added to, or multiplied with, what a line makes."""
    for one in survey.floats[:FEW]:
        if any(survey.flow.readers(Slot(index, name)) for index, name in one.loads.items()):
            continue
        for line in inner_lines(survey)[:FEW]:
            whole = _along(survey, one, line.call.counts("dst"))
            if whole is None:
                continue
            for verb, change in (("added to", _plus(whole)), ("multiplied with", _by(whole))):
                sentence = f"{one.path} is never used: {verb} the result of {line.opcode} the output matches"
                around = after(line.instructions, "dst", _where_fits(change, whole.shape))
                yield from line.repair(MISSING, sentence, None, around)


def _where_fits(change: Callable[[Values], Values], shape: tuple[int, ...]) -> Callable[[Values], Values]:
    return lambda found: change(found) if found.shape == shape else found


def orders(survey: Survey) -> Iterator[Repair]:
    """Terms that are added before, where after all else is meant, and the other way round."""
    for line in survey.lines:
        for name, second in OPERATORS.get(line.opcode, ()):
            if line.call.imm(name) != "add" or not line.call.has(second):
                continue
            for operand_name in (second, "data1") if line.opcode == "tensor_tensor" else (second,):
                one = _parameter(survey, Slot(line.first, operand_name))
                if one is None or not line.floats(operand_name):
                    continue
                yield from _moved(
                    survey, line.first, before(line.instructions, operand_name, _set(operand_name, 0.0)), one
                )


def _moved(survey: Survey, instruction: int, without: Around, one: Parameter) -> Iterator[Repair]:
    """A term left out where it is added, and added to an output or to another input instead."""
    for output in survey.outputs[:2]:
        whole = _along(survey, one, output.shape)
        if whole is not None:
            sentence = f"{one.path} is added before the end: added to output {output.name} last it matches"
            yield survey.repair(ORDER, sentence, instruction, Final([output], _plus(whole), _Then(without)))
    for other in survey.floats[:FEW]:
        whole = _along(survey, one, other.shape)
        if other is not one and whole is not None and other.loads:
            sentence = f"{one.path} is added late: added to {other.path} first the output matches"
            yield survey.repair(ORDER, sentence, instruction, _Then(without, Shifted(other, whole)))


class _Then(Acting):
    """Runs instructions by one or the other of two changes: the loads that the second one knows by that."""

    def __init__(self, around: Around, loads: Shifted | None = None) -> None:
        super().__init__()
        self._around, self._loads = around, loads

    def act(self, step: Step, core: Core, index: int, operands: Operands) -> None:
        """See `Acting`."""
        if self._loads is not None and step.row.name == "dma_copy":
            self._loads(step, core, index, operands)
        else:
            self._around(step, core, index, operands)


def _parameter(survey: Survey, slot: Slot) -> Parameter | None:
    """The parameter that an operand holds a copy of."""
    writers = survey.flow.writers(slot)
    for _ in range(FEW):
        if len(writers) != 1 or writers[0].instruction < 0:
            return None
        index = writers[0].instruction
        for one in survey.floats:
            if index in one.loads:
                return one
        call = survey.flow.call(index)
        if call is None or call.row.name not in ("tensor_copy", "dma_copy"):
            return None
        writers = survey.flow.writers(Slot(index, "src"))
    return None


def _along(survey: Survey, one: Parameter, shape: tuple[int, ...]) -> Float64 | None:
    """A parameter spread over a shape, along its last axis or its first one; None where it does not fit."""
    count, own = math.prod(shape), math.prod(one.shape)
    if one.shape == shape:
        return np.asarray(_wide(survey, one))
    if not shape or own >= count or own != max(one.shape, default=1):
        return None
    if own in (1, shape[-1]):
        return np.broadcast_to(_wide(survey, one).reshape(-1), shape)
    if own == shape[0]:
        return np.broadcast_to(_wide(survey, one).reshape(-1, *(1,) * (len(shape) - 1)), shape)
    return None


def _wide(survey: Survey, one: Parameter) -> Float64:
    return np.asarray(dtypes.widened(survey.arguments[one.buffer], one.kind, np.float64))


def _plus(whole: Float64) -> Callable[[Float64], Float64]:
    return lambda found: found + whole


def _by(whole: Float64) -> Callable[[Float64], Float64]:
    return lambda found: found * whole

"""Functions: an activation, a root, a square or an absolute value that is left out, or is one too many."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from types import MappingProxyType

import numpy as np

from nkireview.checks.steps import ACTIVATIONS, main_operand, steps
from nkireview.diagnosis.algebra.hooks import Running, Values, after, before, beside, instead, stepped
from nkireview.diagnosis.algebra.lines import Line, having
from nkireview.diagnosis.habits.carry import reduced
from nkireview.diagnosis.habits.survey import Survey
from nkireview.diagnosis.repair import Repair
from nkireview.isa import act
from nkireview.isa.enums import Memory

MISSING, EXTRA, BASE, REDUCTION = "function-missing", "function-extra", "log-base", "reduction-operator"
Function = Callable[[Values], Values]


def _of(name: str) -> Function:
    return lambda values: np.asarray(act.of(name).fn(values))


OUTER = (
    "relu",
    "silu",
    "gelu",
    "gelu_apprx_tanh",
    "sigmoid",
    "tanh",
    "exp",
    "sqrt",
    "square",
    "abs",
    "reciprocal",
)
"""What a whole output may lack."""
INNER = ("relu", "silu", "gelu", "gelu_apprx_tanh", "sigmoid", "tanh", "exp", "square", "abs")
"""What an intermediate result may lack."""
GATING = ("sigmoid", "silu", "gelu", "exp", "tanh", "relu")
"""What a factor may lack."""
TAKEN = MappingProxyType({"add": ("square", "abs", "exp"), "maximum": ("abs",), "minimum": ("abs",)})
"""What may be left out before a reduction."""
LEFT = ("sqrt", "reciprocal", "square", "rsqrt")
"""And after one."""
UNARY = frozenset({"reciprocal", "exponential"})
"""Opcodes that are one function of what they read."""
SITES = 3
"""Lines of one kind that are tried."""


def missing(survey: Survey) -> Iterator[Repair]:
    """Outputs without the function that was to be applied last."""
    for line in output_stores(survey)[:2]:
        for name in OUTER:
            sentence = f"the output is stored without {name}: with it the output matches"
            yield from line.repair(MISSING, sentence, None, after(line.instructions, "dst", _of(name)))


def missing_inside(survey: Survey) -> Iterator[Repair]:
    """Sums, evacuated products and copies without a function."""
    for line in inner_lines(survey)[:SITES]:
        for name in INNER:
            sentence = f"the result of {line.opcode} goes on without {name}: with it the output matches"
            yield from line.repair(MISSING, sentence, None, after(line.instructions, "dst", _of(name)))


def missing_factors(survey: Survey) -> Iterator[Repair]:
    """Factors of a product that are not activated."""
    products = [line for line in survey.of("tensor_tensor") if line.call.imm("op") == "multiply"]
    for line in products[:SITES]:
        for operand in ("data1", "data2"):
            if not line.floats(operand) or line.call.tiles["data1"].access == line.call.tiles["data2"].access:
                continue
            for name in GATING:
                sentence = f"{operand} of a product is taken as it is: with {name} of it the output matches"
                around = before(line.instructions, operand, _changed(operand, _of(name)))
                yield from line.repair(MISSING, sentence, None, around)


def around_reductions(survey: Survey) -> Iterator[Repair]:
    """A square, absolute value or exponential before a reduction; a root, reciprocal or square after it."""
    found = [(line, taken) for line in survey.lines if (taken := reduced(line)) is not None]
    for line, (result, op) in found[:SITES]:
        if line.opcode == "tensor_reduce":
            # the other ones are tried among the operators that are taken for one another
            if op != "add":
                sentence = f"tensor_reduce takes {op} of its data: with their sum the output matches"
                yield from line.repair(REDUCTION, sentence, line.edits(having("op", "add")))
            for name in TAKEN[op]:
                sentence = (
                    f"tensor_reduce takes {op} of its data as they are: of their {name} the output matches"
                )
                around = before(line.instructions, "data", _changed("data", _of(name)))
                yield from line.repair(MISSING, sentence, None, around)
        for name in LEFT:
            sentence = f"what {line.opcode} reduces to goes on as it is: with {name} of it the output matches"
            yield from line.repair(MISSING, sentence, None, after(line.instructions, result, _of(name)))


def extra(survey: Survey) -> Iterator[Repair]:
    """Functions left out that a line takes."""
    for line in survey.lines:
        op = str(line.call.imm("op"))
        if line.opcode in ACTIVATIONS and op not in ("copy", "None"):
            sentence = f"{line.opcode} takes {op}: without it the output matches"
            yield from line.repair(EXTRA, sentence, line.edits(having("op", "copy")))
        elif line.opcode in UNARY and line.floats("dst") and not line.call.has("reduce_res"):
            sentence = f"{line.opcode} is not needed: without it the output matches"
            main = main_operand(line.call)
            if main:
                yield from line.repair(EXTRA, sentence, None, instead(line.instructions, _plain(main)))
        elif line.opcode == "tensor_tensor" and op == "multiply":
            if line.call.tiles["data1"].access == line.call.tiles["data2"].access and line.floats("data1"):
                sentence = "tensor_tensor squares its operand: without that the output matches"
                yield from line.repair(EXTRA, sentence, None, instead(line.instructions, _plain("data1")))


def bases(survey: Survey) -> Iterator[Repair]:
    """Logarithms and exponentials of another base; log2 and 2^x."""
    for line in survey.of(*ACTIVATIONS):
        op = line.call.imm("op")
        if op not in ("log", "exp") or not line.floats("dst"):
            continue
        for number, said in ((2.0, "2"), (10.0, "10")):
            factor = 1 / math.log(number) if op == "log" else math.log(number)
            name = f"log{said}" if op == "log" else f"{said}^x"
            sentence = f"{line.opcode} takes {op}: with {name} the output matches"
            yield from (
                rescaled(line, BASE, sentence, factor)
                if op == "exp"
                else line.repair(BASE, sentence, None, after(line.instructions, "dst", _times(factor)))
            )


def rescaled(line: Line, cause: str, sentence: str, factor: float) -> Iterator[Repair]:
    """The repair by which the argument of an activation is multiplied with a number."""
    taken = [step for step in steps(line.call) or () if step.op in ("multiply", "add")]
    if not line.call.has("bias"):
        # scale * x + bias, times the factor, is that of another x where there is no bias
        if line.call.imm("bias"):
            return
        yield from line.repair(
            cause, sentence, None, before(line.instructions, "data", _changed("data", _times(factor)))
        )
        return

    def change(running: Running) -> Values:
        data = running.value("data")
        return np.asarray(factor * stepped(data, taken, lambda name: beside(running.value(name), data)))

    if not line.call.has("reduce_res"):
        function = act.of(str(line.call.imm("op"))).fn
        yield from line.repair(
            cause,
            sentence,
            None,
            instead(line.instructions, lambda running: np.asarray(function(change(running)))),
        )
        return
    both = before(
        line.instructions,
        "data",
        _changed("data", _times(factor)),
        before(line.instructions, "bias", _changed("bias", _times(factor))),
    )
    yield from line.repair(cause, sentence, None, both)


def output_stores(survey: Survey) -> list[Line]:
    """The lines that store nothing but outputs."""
    stores = {index for output in survey.outputs for index in output.stores}
    return [
        line for line in survey.of("dma_copy") if stores.issuperset(line.instructions) and line.floats("dst")
    ]


def inner_lines(survey: Survey) -> list[Line]:
    """Lines whose results an activation may be forgotten of: sums first, then products in PSUM, then the others."""
    sums, products, others = [], [], []
    for line in survey.lines:
        if not line.call.has("dst") or not line.floats("dst") or line.call.measure("dst", "free") == 1:
            continue
        taken = steps(line.call)
        if taken is None or line.opcode in ("dma_copy", "nc_transpose") or _function(line):
            continue
        main = main_operand(line.call)
        if main and line.call.memory(main) is Memory.psum:
            products.append(line)
        elif any(step.op in ("add", "subtract") for step in taken[-1:]):
            sums.append(line)
        elif line.opcode in ("tensor_copy", "activation"):
            others.append(line)
    return [*products[:1], *sums[:1], *products[1:], *sums[1:], *others]


def _function(line: Line) -> bool:
    return any(step.op in act.BY_NAME and step.op != "copy" for step in steps(line.call) or ())


def _times(factor: float) -> Function:
    return lambda values: values * factor


def _changed(operand: str, function: Function) -> Callable[[Running], Values]:
    return lambda running: np.asarray(function(running.value(operand)))


def _plain(operand: str) -> Callable[[Running], Values]:
    return lambda running: np.array(running.value(operand))

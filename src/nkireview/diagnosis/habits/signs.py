"""Signs: a parameter, an operand, or half of one that enters with the wrong sign."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from types import MappingProxyType

import numpy as np

from nkireview.diagnosis.algebra.hooks import Running, Values, before
from nkireview.diagnosis.algebra.lines import Line
from nkireview.diagnosis.habits.survey import Survey
from nkireview.diagnosis.repair import Repair

CAUSE = "operand-sign"
SUMS = frozenset({"add", "subtract"})
TERMS = MappingProxyType(
    {
        "tensor_tensor": (("op", "data1", "data2"),),
        "scalar_tensor_tensor": (("op0", "data", "operand0"), ("op1", "data", "operand1")),
        "tensor_scalar": (("op0", "data", "operand0"), ("op1", "data", "operand1")),
    }
)
"""Opcode -> (immediate of an operator, its two operands)."""
PAIRED = 4
"""Lines of which two are changed at once."""


def parameters(survey: Survey) -> Iterator[Repair]:
    """Each parameter of floats negated."""
    for one in survey.floats:
        sentence = f"{one.path} enters with this sign: negated the output matches"
        yield survey.given(CAUSE, sentence, one, np.negative)


def terms(survey: Survey) -> Iterator[Repair]:
    """Each operand of a sum, a difference, or a product of tiles negated, in one line."""
    for op, name, line in _terms(survey):
        sentence = f"{name} of {line.opcode} enters {op} with this sign: negated the output matches"
        yield from line.repair(CAUSE, sentence, None, before(line.instructions, name, negative(name)))


def two_terms(survey: Survey) -> Iterator[Repair]:
    """One operand of a sum or a difference negated in each of two lines."""
    found = [(name, line) for op, name, line in _terms(survey) if op in SUMS]
    few = list(dict.fromkeys(line for _, line in found))[:PAIRED]
    for one, other in combinations(few, 2):
        a, b = (next(name for name, line in reversed(found) if line is chosen) for chosen in (one, other))
        around = before(one.instructions, a, negative(a), before(other.instructions, b, negative(b)))
        sentence = (
            f"{a} and, in {other.where.strip(' ()') or 'another line'}, {b} enter with these signs: both negated the "
            "output matches"
        )
        yield from one.repair(CAUSE, sentence, None, around)


def halves(survey: Survey) -> Iterator[Repair]:
    """One half of a factor negated, as where two halves are turned against each other."""
    for line in survey.sites_of("tensor_tensor"):
        if line.call.imm("op") != "multiply":
            continue
        for name in ("data2", "data1"):
            if line.floats(name) and line.call.counts(name)[-1] % 2 == 0 and len(line.call.counts(name)) > 1:
                for which in ("first", "second"):
                    sentence = f"the {which} half of {name} of tensor_tensor has this sign: negated the output matches"
                    around = before(line.instructions, name, _half(name, which))
                    yield from line.repair(CAUSE, sentence, None, around)


def _terms(survey: Survey) -> Iterator[tuple[str, str, Line]]:
    """Operands with their operators and lines."""
    for line in survey.lines:
        if line.opcode == "nc_matmul" and not line.call.imm("is_transpose") and line.floats("stationary"):
            yield "the product", "stationary", line
        for op, one, other in TERMS.get(line.opcode, ()):
            used = line.call.imm(op)
            if used in SUMS and line.call.has(other):
                yield from ((str(used), name, line) for name in (one, other) if line.floats(name))
            elif used == "multiply" and line.opcode == "tensor_tensor" and line.floats(one):
                yield "the product", one, line


def negative(operand: str) -> Callable[[Running], Values]:
    """The change of an operand to its negative."""
    return lambda running: -running.value(operand)


def _half(operand: str, which: str) -> Callable[[Running], Values]:
    def change(running: Running) -> Values:
        values = np.array(running.value(operand))
        middle = values.shape[-1] // 2
        part = values[..., :middle] if which == "first" else values[..., middle:]
        part *= -1
        return values

    return change

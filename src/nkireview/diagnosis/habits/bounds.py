"""Bounds: a clamp that is missing, or at another bound, and comparisons with or without equality."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from types import MappingProxyType

import numpy as np

from nkireview.diagnosis.algebra.hooks import Values, after
from nkireview.diagnosis.algebra.lines import having
from nkireview.diagnosis.algebra.numbers import all_numbers, shown
from nkireview.diagnosis.habits.functions import inner_lines, output_stores
from nkireview.diagnosis.habits.survey import Survey
from nkireview.diagnosis.repair import Repair

MISSING, BOUND, EDGE, SIGN = "clamp-missing", "clamp-bound", "comparison-edge", "modulo-sign"
BOUNDS = MappingProxyType(
    {
        "maximum": (("no bound", -math.inf), ("0", 0.0), ("1", 1.0), ("-1", -1.0), ("1e-06", 1e-6)),
        "minimum": (("no bound", math.inf), ("6", 6.0), ("1", 1.0), ("0", 0.0)),
    }
)
"""Operator -> the bounds that are tried in the place of another one."""
RANGES = ((0.0, 6.0), (0.0, 1.0), (-1.0, 1.0), (-math.inf, 0.0), (-math.inf, 6.0))
"""Ranges that a result may be meant to be clamped to; from zero on is the function relu."""
EDGES = MappingProxyType(
    {"greater": "greater_equal", "greater_equal": "greater", "less": "less_equal", "less_equal": "less"}
)
REMAINDERS = MappingProxyType({"mod": "fmod", "fmod": "mod"})
COMPARED = ("op", "op0", "op1")
"""Immediates that name an operator."""
LINES = 3
"""Lines that are tried."""


def moved(survey: Survey) -> Iterator[Repair]:
    """Clamps at other bounds, or left out."""
    for number in all_numbers(survey.lines):
        for said, value in BOUNDS.get(number.op, ()):
            if value != number.value:
                verb = "raised to" if number.op == "maximum" else "cut to"
                sentence = f"values are {verb} {shown(number.value)}: with {said} the output matches"
                yield from number.line.repair(BOUND, sentence, number.to(value))


def missing(survey: Survey) -> Iterator[Repair]:
    """Outputs and sums that are not clamped."""
    found = [("the output", line) for line in output_stores(survey)[:1]]
    found += [("a result", line) for line in inner_lines(survey)[:LINES]]
    for low, high in RANGES:
        for what, line in found:
            sentence = f"{what} of {line.opcode} is not clamped: to {low:g} and {high:g} the output matches"
            yield from line.repair(MISSING, sentence, None, after(line.instructions, "dst", _clip(low, high)))


def _clip(low: float, high: float) -> Callable[[Values], Values]:
    return lambda found: np.clip(found, low, high)


def edges(survey: Survey) -> Iterator[Repair]:
    """Comparisons with equality for those without, and remainders of the other sign."""
    for line in survey.lines:
        for name in COMPARED:
            op = str(line.call.imm(name))
            if op in EDGES:
                sentence = f"{line.opcode} takes {op}: with {EDGES[op]} the output matches"
                yield from line.repair(EDGE, sentence, line.edits(having(name, EDGES[op])))
            if op in REMAINDERS:
                sign = "dividend" if op == "mod" else "divisor"
                sentence = (
                    f"{line.opcode} takes {op}: with {REMAINDERS[op]} (sign of the {sign}) the output matches"
                )
                yield from line.repair(SIGN, sentence, line.edits(having(name, REMAINDERS[op])))

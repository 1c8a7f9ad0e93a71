"""Divisors: a mean or a variance that is divided by another count than was meant."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from nkireview.diagnosis.algebra.hooks import Values, after
from nkireview.diagnosis.algebra.lines import Line, with_alike
from nkireview.diagnosis.algebra.numbers import FILL, Number, all_numbers
from nkireview.diagnosis.repair import Repair

CAUSE = "variance-divisor"
CLOSE = 2e-7
"""Relative difference within which a number is one over a count: that of a count kept in float32."""


def divisors(given: Sequence[Line], known: Sequence[int]) -> Iterator[Repair]:
    """N for N - 1 and back, first; then one count for another."""
    found = [number for number in all_numbers(given) if _divides(number)]
    beside = [pair for count in known for pair in ((count - 1, count), (count, count - 1))]
    others = [(held, meant) for held in known for meant in known if held != meant]
    near = dict.fromkeys(pair for pair in beside if min(pair) > 1)
    for number in found:
        for held, meant in near:
            if _is(number, held):
                yield from _repair(number, held, meant)
    yield from _aggregates(given, known)
    for number in found:
        for held, meant in dict.fromkeys(others):
            if _is(number, held) and (held, meant) not in near:
                yield from _repair(number, held, meant)


def _divides(number: Number) -> bool:
    if number.op == FILL:
        return number.line.opcode == "memset" and number.line.floats("dst")
    return number.op in ("multiply", "divide") and not number.reverse


def _is(number: Number, count: int) -> bool:
    divisor = number.value if number.op == "divide" else 1 / number.value if number.value else 0.0
    return bool(abs(divisor / count - 1) < CLOSE)


def _repair(number: Number, held: int, meant: int) -> Iterator[Repair]:
    sentence = f"a sum is divided by {held}: divided by {meant} the output matches"
    yield from number.line.repair(
        CAUSE, sentence, number.to(float(meant) if number.op == "divide" else 1 / meant)
    )


def _aggregates(given: Sequence[Line], known: Sequence[int]) -> Iterator[Repair]:
    """The variance of bn_aggr, which divides by N."""
    for line in with_alike(line for line in given if line.opcode == "bn_aggr" and line.floats("dst")):
        for count in known:
            sentence = f"bn_aggr divides the variance by {count}: divided by {count - 1} the output matches"
            around = after(line.instructions, "dst", _scaled(count))
            yield from line.repair(CAUSE, sentence, None, around)


def _scaled(count: int) -> Callable[[Values], Values]:
    def change(values: Values) -> Values:
        changed: Values = values.copy()
        changed.reshape(len(changed), -1)[:, 1] *= count / (count - 1)
        return changed

    return change

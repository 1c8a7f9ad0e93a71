"""Factors: applied twice or not at all, inverted, of the wrong sign; a number added where it was meant to multiply."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from nkireview.checks import stability
from nkireview.checks.dataflow import Dataflow
from nkireview.checks.steps import MATMUL, summed, terms_of
from nkireview.diagnosis.algebra.counts import contracted
from nkireview.diagnosis.algebra.hooks import Running, Values, after, before
from nkireview.diagnosis.algebra.lines import Line, with_alike
from nkireview.diagnosis.algebra.numbers import FILL, Number, all_numbers, shown
from nkireview.diagnosis.repair import Repair
from nkireview.execute import Around

CAUSE = "factor"
PLAIN = (("2", 2.0), ("0.5", 0.5), ("-1", -1.0))
"""Factors that an output may lack."""
LEAST_FILL = 1e4
"""From this on a number that memset writes is taken for a fill."""
MOST = 4
"""Counts that are tried at each place."""


def added(flow: Dataflow, given: Sequence[Line]) -> Iterator[Repair]:
    """A number that is added to a matmul's result where it was meant to multiply it, or by which nothing was meant."""
    suspected = {spot.instruction for spot in stability.shifted_evacuations(flow)}
    for number in all_numbers([line for line in given if suspected & set(line.instructions)]):
        yield from _unadded(number)


def terms(given: Sequence[Line]) -> Iterator[Repair]:
    """Other numbers that are added: meant as factors, or not meant; and factors that are meant as terms."""
    for number in all_numbers(given):
        if number.op in ("add", "subtract") and not number.reverse:
            yield from _unadded(number)
        elif number.op == "multiply" and number.operator:
            sentence = f"{shown(number.value)} is multiplied with: added instead the output matches"
            yield from number.line.repair(CAUSE, sentence, number.to(number.value, "add"))


def _unadded(number: Number) -> Iterator[Repair]:
    if number.op not in ("add", "subtract") or not number.value:
        return
    verb = "added" if number.op == "add" else "subtracted"
    if number.operator:
        sentence = f"{shown(number.value)} is {verb}: multiplied with instead the output matches"
        yield from number.line.repair(CAUSE, sentence, number.to(number.value, "multiply"))
    sentence = f"{shown(number.value)} is {verb}: without it the output matches"
    yield from number.line.repair(CAUSE, sentence, number.to(0.0))
    sentence = f"{shown(number.value)} is {verb}: with the other sign the output matches"
    yield from number.line.repair(CAUSE, sentence, number.to(-number.value))


def multipliers(given: Sequence[Line], known: Sequence[int]) -> Iterator[Repair]:
    """Factors: not applied, applied once more, inverted, their root, with the other sign, of another count."""
    found = [number for number in all_numbers(given) if _multiplies(number)]
    seen = {(number.line.instructions, number.name, number.value): {number.value} for number in found}
    for said, value_of in _KINDS:
        for number in found:
            value = value_of(number.value)
            known_values = seen[number.line.instructions, number.name, number.value]
            if value is None or value in known_values or (value == -number.value and _even(number)):
                continue
            known_values.add(value)
            sentence = f"the factor {shown(number.value)} {said}: with {shown(value)} the output matches"
            yield from number.line.repair(CAUSE, sentence, number.to(value))
    for number in found:
        yield from _other_roots(number, known)


_KINDS: tuple[tuple[str, Callable[[float], float | None]], ...] = (
    ("is not needed, or applied elsewhere too", lambda value: 1.0),
    ("is applied once where twice is meant", lambda value: value * value),
    ("is meant inverted", lambda value: 1 / value),
    ("is meant as its root", lambda value: math.sqrt(value) if value > 0 else None),
    ("has the wrong sign", lambda value: -value),
)


def _multiplies(number: Number) -> bool:
    if number.value == 0:
        return False
    if number.op == FILL:
        return _is_factor(number)
    return number.op in ("multiply", "divide")


def _is_factor(number: Number) -> bool:
    """True where what a memset writes may be a factor: no fill of a mask, no one, no bound of a range."""
    line, value = number.line, abs(number.value)
    if line.opcode != "memset" or not line.floats("dst") or value >= LEAST_FILL or value == 1:
        return False
    return not any(reader.operand.startswith("bound") for reader in line.flow.readers(line.slot("dst")))


def _even(number: Number) -> bool:
    """True where the sign of what the number multiplies is lost in the same instruction."""
    line = number.line
    return (
        line.call.imm("op") in ("square", "abs") and not line.call.has("bias") and not line.call.imm("bias")
    )


def _other_roots(number: Number, known: Sequence[int]) -> Iterator[Repair]:
    """1/sqrt of another count than the one a factor is made of."""
    inverse = number.op != "divide"
    held = number.value**-2 if inverse else number.value**2
    if not any(abs(held / count - 1) < 1e-6 for count in known):
        return
    for count in known[:MOST]:
        if abs(held / count - 1) >= 1e-6:
            value = count**-0.5 if inverse else math.sqrt(count)
            sentence = f"the factor is 1/sqrt({held:.6g}): with 1/sqrt({count}) the output matches"
            yield from number.line.repair(CAUSE, sentence, number.to(value))


def missing(given: Sequence[Line], known: Sequence[int]) -> Iterator[Repair]:
    """1/sqrt(d), 1/d or sqrt(d) that a matmul's result or a sum lacks, and simple factors that an output lacks."""
    sizes = tuple(dict.fromkeys((*contracted(given), *known)))[:MOST]
    products = [line for line in given if line.opcode == MATMUL and not line.call.imm("is_transpose")]
    for said, factor in _scales(sizes):
        for line in with_alike(products):
            if line.floats("stationary"):
                around = before(line.instructions, "stationary", _times_operand("stationary", factor))
                yield from _lacking(line, "the matmul's result", said, around)
    for line in with_alike(line for line in given if summed(line.call) and line.floats(summed(line.call))):
        own = tuple(dict.fromkeys((max(terms_of(line.call), 2), *known)))[:MOST]
        for said, factor in [(f"1/{size}", 1 / size) for size in own]:
            around = after(line.instructions, summed(line.call), _times(factor))
            yield from _lacking(line, "the sum", said, around)


def outputs(given: Sequence[Line], known: Sequence[int]) -> Iterator[Repair]:
    """Simple factors that what is stored to an output lacks."""
    stores = [line for line in given if line.opcode == "dma_copy" and _stores(line)]
    for line in with_alike(stores):
        for said, factor in (*PLAIN, *_scales(known[:2])):
            yield from _lacking(line, "the output", said, after(line.instructions, "dst", _times(factor)))


def _stores(line: Line) -> bool:
    program = line.flow.program
    kept = {int(program.columns.access_buffer[output.access]) for output in program.outputs}
    return line.floats("dst") and line.call.tiles["dst"].buffer.id in kept


def _scales(sizes: Sequence[int]) -> Iterator[tuple[str, float]]:
    for size in sizes:
        yield f"1/sqrt({size})", size**-0.5
    for size in sizes:
        yield f"1/{size}", 1 / size
    for size in sizes[:1]:
        yield f"sqrt({size})", math.sqrt(size)


def _lacking(line: Line, what: str, said: str, around: Around) -> Iterator[Repair]:
    sentence = f"{what} lacks a factor: times {said} the output matches"
    yield from line.repair(CAUSE, sentence, None, around)


def _times(factor: float) -> Callable[[Values], Values]:
    return lambda values: values * factor


def _times_operand(operand: str, factor: float) -> Callable[[Running], Values]:
    return lambda running: running.value(operand) * factor

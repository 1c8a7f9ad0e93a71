"""Masks: fills that are not small enough, edges that are off by one, masks turned over."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

from nkireview.checks.dataflow import UNKNOWN
from nkireview.checks.steps import steps
from nkireview.diagnosis.algebra.hooks import Running, Values, before
from nkireview.diagnosis.algebra.lines import Change, Immediates, Line, flipped, having, with_alike
from nkireview.diagnosis.algebra.numbers import FILL, Number, all_numbers, number_of, shown
from nkireview.diagnosis.repair import Repair

SMALL, EDGE = "mask-too-small", "mask-off-by-one"
LOWEST = -1e30
"""A fill that is as good as minus infinity, and still has a finite difference from itself."""
LOW_ENOUGH = -1e29
LEAST_PENALTY = 9.0
"""The least number that may be added, or multiply a mask, as a penalty."""
SELECTS = frozenset({"affine_select", "select_reduce"})
COMPARING = ("tensor_scalar", "tensor_tensor", "scalar_tensor_tensor", "range_select", "tensor_scalar_reduce")

STRICT: Mapping[str, str] = MappingProxyType(
    {"greater": "greater_equal", "greater_equal": "greater", "less": "less_equal", "less_equal": "less"}
)
"""Comparison -> the one that differs from it where both sides are equal."""
OPPOSITE: Mapping[str, str] = MappingProxyType(
    {
        "greater": "less_equal",
        "less_equal": "greater",
        "less": "greater_equal",
        "greater_equal": "less",
        "equal": "not_equal",
        "not_equal": "equal",
    }
)
SAME_AS: Mapping[str, int] = MappingProxyType(
    {"greater": 1, "greater_equal": -1, "less": -1, "less_equal": 1}
)
"""Comparison of whole numbers with zero -> what added to them is the same as `STRICT`."""
MIRRORED: Mapping[str, str] = MappingProxyType(
    {"greater": "less", "less": "greater", "greater_equal": "less_equal", "less_equal": "greater_equal"}
)


def fills(given: Sequence[Line]) -> Iterator[Repair]:
    """Fills and penalties that leave a masked element some weight."""
    for number in all_numbers(given):
        if number.op == FILL and _leaks(number):
            sentence = f"masked elements get {shown(number.value)}: with {LOWEST:g} the output matches"
            yield from number.line.repair(SMALL, sentence, number.to(LOWEST))
    for number in all_numbers(given):
        if number.op in ("add", "subtract", "multiply") and LEAST_PENALTY <= abs(number.value) < -LOW_ENOUGH:
            sentence = f"a mask weighs {shown(number.value)}: with 1e+30 in its place the output matches"
            yield from number.line.repair(SMALL, sentence, number.line.edits(_heavier(number)))


def _leaks(number: Number) -> bool:
    line, target = number.line, "dst"
    if not line.floats(target) or not LOW_ENOUGH < number.value <= 0:
        return False
    if line.opcode in SELECTS or line.opcode == "tensor_copy_predicated":
        return True
    return number.value <= -1 or _starts_maximum(line)


def _starts_maximum(line: Line) -> bool:
    """True where what is filled is an operand of a maximum, as the first of a running one."""
    for reader in line.flow.readers(line.slot("dst")):
        call = line.flow.call(reader.instruction) if reader.instruction != UNKNOWN else None
        if call is not None and any(step.op == "maximum" for step in steps(call) or ()):
            return True
    return False


def _heavier(number: Number) -> Change:
    """All numbers of the same size become as large as a mask needs: ``m * 1e4 - 1e4`` has two."""
    size = abs(number.value)

    def change(given: Immediates) -> Immediates | None:
        found = {
            name: -LOWEST if value > 0 else LOWEST
            for name, held in given.items()
            if (value := number_of(held)) is not None and abs(value) == size
        }
        return {**given, **found} if found else None

    return change


def edges(given: Sequence[Line]) -> Iterator[Repair]:
    """Edges of masks one element to either side."""
    for line in with_alike(given):
        if line.opcode == "affine_select":
            yield from _affine_edges(line)
        elif line.opcode == "range_select":
            yield from _bounds(line)
    for line in with_alike(line for line in given if line.opcode in COMPARING):
        for name, value in _comparisons(line):
            meant = STRICT.get(value)
            if meant:
                sentence = f"the mask compares with {value}: with {meant} the output matches"
                yield from line.repair(EDGE, sentence, line.edits(having(name, meant)))
    for line in with_alike(line for line in given if line.opcode == "iota"):
        for move in (1, -1):
            sentence = f"iota begins at its offset: {_moved(move)} the output matches"
            yield from line.repair(EDGE, sentence, line.edits(_offset("offset", move)))


def _affine_edges(line: Line) -> Iterator[Repair]:
    compare = str(line.call.imm("cmp_op") or "equal")
    strict = STRICT.get(compare)
    for move in (1, -1):
        if strict and move == SAME_AS[compare]:
            sentence = f"affine_select compares with {compare}: with {strict} the output matches"
            yield from line.repair(EDGE, sentence, line.edits(having("cmp_op", strict)))
        else:
            sentence = f"affine_select begins at its offset: {_moved(move)} the output matches"
            yield from line.repair(EDGE, sentence, line.edits(_offset("offset", move)))


def _bounds(line: Line) -> Iterator[Repair]:
    for name in ("comp_op0", "comp_op1"):
        compare = str(line.call.imm(name))
        meant = STRICT.get(compare)
        if meant:
            sentence = f"range_select compares with {compare}: with {meant} the output matches"
            yield from line.repair(EDGE, sentence, line.edits(having(name, meant)))
    for name in ("bound0", "bound1"):
        for move in (1, -1):
            sentence = f"range_select compares with {name}: {_moved(move)} the output matches"
            around = before(line.instructions, name, _plus(name, move))
            yield from line.repair(EDGE, sentence, None, around)
    for move in (1, -1):
        sentence = f"range_select counts from its range_start: {_moved(move)} the output matches"
        yield from line.repair(EDGE, sentence, line.edits(_offset("range_start", move)))


def turned(given: Sequence[Line]) -> Iterator[Repair]:
    """Masks that keep the other part, or the other side of the diagonal."""
    for line in with_alike(given):
        if line.opcode == "affine_select":
            compare = str(line.call.imm("cmp_op") or "equal")
            sentence = "affine_select masks what it should keep: with the mask inverted the output matches"
            yield from line.repair(EDGE, sentence, line.edits(having("cmp_op", OPPOSITE[compare])))
            sentence = (
                "affine_select keeps the other side of the diagonal: with it turned over the output matches"
            )
            yield from line.repair(EDGE, sentence, line.edits(_mirrored))
        elif line.opcode in ("select_reduce", "tensor_copy_predicated"):
            sentence = f"{line.opcode} takes the other elements: with reverse_pred turned the output matches"
            yield from line.repair(EDGE, sentence, line.edits(flipped("reverse_pred")))
    for line in with_alike(line for line in given if line.opcode in COMPARING):
        for name, value in _comparisons(line):
            for table, what in ((OPPOSITE, "inverted"), (MIRRORED, "turned over")):
                meant = table.get(value)
                if meant:
                    sentence = f"the mask compares with {value}: {what}, with {meant}, the output matches"
                    yield from line.repair(EDGE, sentence, line.edits(having(name, meant)))


def _comparisons(line: Line) -> Iterator[tuple[str, str]]:
    """The immediates of a line that name comparisons, with them."""
    if line.opcode == "range_select":
        return
    for name in ("op", "op0", "op1"):
        value = line.call.imm(name)
        if isinstance(value, str) and value in OPPOSITE:
            yield name, value


def _offset(name: str, move: int) -> Change:
    def change(given: Immediates) -> Immediates | None:
        held = given.get(name) or 0
        return {**given, name: held + move} if isinstance(held, int) else None

    return change


def _moved(move: int) -> str:
    return "one more, and" if move > 0 else "one less, and"


def _plus(name: str, move: int) -> Callable[[Running], Values]:
    return lambda running: running.value(name) + move


def _mirrored(given: Immediates) -> Immediates | None:
    multiplier, pattern = given.get("channel_multiplier"), given.get("pattern")
    if not isinstance(multiplier, int) or not isinstance(pattern, list | tuple):
        return None
    return {
        **given,
        "channel_multiplier": -multiplier,
        "pattern": [[-int(step), count] for step, count in pattern],
    }

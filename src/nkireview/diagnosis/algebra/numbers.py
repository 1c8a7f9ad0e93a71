"""Numbers: the constants among the immediates of a line, and what each does to the values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from nkireview.diagnosis.algebra.lines import Immediates, Line, joined

FEW = 4
"""Values of one immediate in one line that are tried; of more it is taken for an address or an offset."""

FILL = "fill"
"""What a number does that is written as it is."""

KEPT = MappingProxyType(
    {
        "tensor_scalar": (("op0", "operand0", "reverse0"), ("op1", "operand1", "reverse1")),
        "scalar_tensor_tensor": (("op0", "operand0", "reverse0"),),
        "tensor_scalar_reduce": (("op0", "operand0", "reverse0"),),
        "tensor_scalar_cumulative": (("op0", "imm0", ""),),
        "activate2": (("op0", "imm0", "reverse0"), ("op1", "imm1", "reverse1")),
        "activation": (("=multiply", "scale", ""), ("=add", "bias", "")),
        "activation_reduce": (("=multiply", "scale", ""), ("=add", "bias", "")),
        "memset": ((f"={FILL}", "value", ""),),
        "affine_select": ((f"={FILL}", "on_false_value", ""),),
        "select_reduce": ((f"={FILL}", "on_false", ""),),
        "tensor_copy_predicated": ((f"={FILL}", "src", ""),),
    }
)
"""Opcode -> (immediate that names the operator or ``=operator``, immediate of the number, that of `reverse`)."""


@dataclass(frozen=True, eq=False)
class Number:
    """A constant of a line. op: its operator, or FILL; operator: the immediate that names it, empty where none does."""

    line: Line
    op: str
    operator: str
    name: str
    value: float
    reverse: bool = False

    def to(self, value: float, op: str = "") -> dict[int, Immediates]:
        """The edits by which the number has another value, and another operator if one is given."""
        return self.line.edits(lambda given: self.changed(given, value, op))

    def changed(self, given: Immediates, value: float, op: str = "") -> Immediates | None:
        """Immediates with another value of this number; None where they hold another number."""
        if number_of(given.get(self.name)) != self.value:
            return None
        extra = {self.operator: op} if op and self.operator else {}
        return {**given, self.name: value, **extra}


def numbers(line: Line) -> Iterator[Number]:
    """The numbers of a line that are read, each value of an immediate on its own."""
    program = line.flow.program
    kept = KEPT.get(line.opcode, ())
    ids = {int(program.columns.immediates[index]) for index in line.instructions} if kept else set()
    for operator, name, reverse in kept:
        fixed = operator.startswith("=")
        op = operator[1:] if fixed else line.call.imm(operator)
        if line.call.has(name) or not isinstance(op, str):
            continue
        values = {number_of(program.immediates[each].get(name)) for each in ids}
        known = sorted(value for value in values if value is not None and math.isfinite(value))
        if len(known) <= FEW:
            turned = bool(reverse and line.call.imm(reverse))
            for value in known:
                yield Number(line, op, "" if fixed else operator, name, value, turned)


def all_numbers(given: Sequence[Line]) -> Iterator[Number]:
    """The numbers that several lines have in common, as one; then those of each line."""
    every = [number for line in given for number in numbers(line)]
    alike: dict[tuple[object, ...], list[Number]] = {}
    for number in every:
        key = (number.line.opcode, number.op, number.name, number.value, number.reverse)
        alike.setdefault(key, []).append(number)
    for group in alike.values():
        if len(group) > 1:
            yield replace(group[0], line=joined([number.line for number in group]))
    yield from every


def number_of(value: object) -> float | None:
    """An immediate as a number; None where it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)


def shown(value: float) -> str:
    """A number as a sentence has it."""
    return f"{value:.6g}"

"""Orders: operands that are exchanged, one operator for another, a sign."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import MappingProxyType

from nkireview.checks.steps import ACTIVATIONS
from nkireview.diagnosis.algebra.hooks import Running, Values, after, before
from nkireview.diagnosis.algebra.lines import Line, flipped, having, with_alike
from nkireview.diagnosis.repair import Repair

ORDER, OPERATOR = "operand-order", "operator"
SCALED = MappingProxyType(
    {
        "tensor_scalar": (("op0", "reverse0", "operand0"), ("op1", "reverse1", "operand1")),
        "scalar_tensor_tensor": (("op0", "reverse0", "operand0"), ("op1", "reverse1", "operand1")),
        "tensor_scalar_reduce": (("op0", "reverse0", "operand0"),),
        "tensor_tensor": (("op", "", "data2"),),
        "activate2": (("op0", "reverse0", "imm0"), ("op1", "reverse1", "imm1")),
    }
)
"""Opcode -> (immediate of the operator, that of `reverse`, the other operand)."""
EXCHANGED: MappingProxyType[str, Callable[[Values], Values]] = MappingProxyType(
    {"subtract": lambda values: -values, "divide": lambda values: 1 / values}
)
"""Operator -> its result with the operands the other way round."""
TAKEN_FOR = MappingProxyType(
    {
        "maximum": ("minimum",),
        "minimum": ("maximum",),
        "subtract": ("add",),
        "add": ("subtract", "multiply"),
        "multiply": ("add",),
    }
)
"""Operator -> those that it is taken for."""
REDUCED = MappingProxyType({"maximum": ("minimum",), "minimum": ("maximum",), "add": ("maximum",)})


def exchanged(given: Sequence[Line]) -> Iterator[Repair]:
    """Operands of a difference or a quotient the other way round."""
    for line in with_alike(line for line in given if line.opcode in SCALED):
        for name, reverse, _ in SCALED[line.opcode]:
            op = line.call.imm(name)
            if op not in EXCHANGED:
                continue
            sentence = f"{line.opcode} takes the operands of {op} in this order: the other way round the output matches"
            if reverse:
                yield from line.repair(ORDER, sentence, line.edits(flipped(reverse)))
            elif line.floats("dst"):
                yield from line.repair(ORDER, sentence, None, after(line.instructions, "dst", EXCHANGED[op]))


def signs(given: Sequence[Line]) -> Iterator[Repair]:
    """The sign of a bias, and of what a reduction leaves."""
    for line in with_alike(given):
        if line.opcode in ACTIVATIONS and line.call.has("bias") and line.floats("bias"):
            sentence = "the bias is added: subtracted the output matches"
            yield from line.repair(
                OPERATOR, sentence, None, before(line.instructions, "bias", _negative("bias"))
            )
        elif line.opcode == "tensor_reduce":
            said = "negated: as it is" if line.call.imm("negate") else "kept as it is: negated"
            sentence = f"the result of the reduction is {said} the output matches"
            yield from line.repair(OPERATOR, sentence, line.edits(flipped("negate")))


def operators(given: Sequence[Line]) -> Iterator[Repair]:
    """Another operator with the same operands, where one of them is a tile; and another reduction."""
    for line in with_alike(given):
        for name, _, other in SCALED.get(line.opcode, ()):
            if line.call.has(other):
                yield from _taken_for(line, name, TAKEN_FOR)
        if line.opcode == "tensor_reduce":
            yield from _taken_for(line, "op", REDUCED)


def _taken_for(line: Line, name: str, table: MappingProxyType[str, tuple[str, ...]]) -> Iterator[Repair]:
    op = line.call.imm(name)
    for meant in table.get(str(op), ()):
        sentence = f"{line.opcode} takes {op}: with {meant} the output matches"
        yield from line.repair(OPERATOR, sentence, line.edits(having(name, meant)))


def _negative(operand: str) -> Callable[[Running], Values]:
    return lambda running: -running.value(operand)

"""Biases: a vector that goes along the partitions where it is meant along the free dimension."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from types import MappingProxyType

from nkireview.checks.steps import main_operand, steps
from nkireview.diagnosis.algebra.hooks import Running, Values, beside, instead, stepped
from nkireview.diagnosis.algebra.lines import Line, with_alike
from nkireview.diagnosis.repair import Repair

CAUSE = "bias-axis"
VECTORS = MappingProxyType(
    {
        "activation": ("bias", "scale"),
        "activation_reduce": ("bias", "scale"),
        "tensor_scalar": ("operand0", "operand1"),
        "scalar_tensor_tensor": ("operand0",),
    }
)
"""Opcode -> the operands that hold one element a partition."""


def wide(given: Sequence[Line]) -> Iterator[Repair]:
    """Vectors of several elements a partition, of which an engine takes one: applied element by element."""
    for line in with_alike(_vectored(given)):
        for name in VECTORS[line.opcode]:
            if not line.call.has(name) or line.call.measure(name, "free") == 1:
                continue
            main = line.call.counts(main_operand(line.call))
            if math.prod(line.call.counts(name)) == math.prod(main):
                sentence = (
                    f"{name} of {line.opcode} has {line.call.measure(name, 'free')} elements a partition where one is "
                    "taken: applied element by element the output matches"
                )
                yield from line.repair(
                    CAUSE, sentence, None, instead(line.instructions, _elementwise(line, ""))
                )


def turned(given: Sequence[Line]) -> Iterator[Repair]:
    """Vectors of one element a partition that are as long as a row of square tiles: applied by column."""
    for line in with_alike(_vectored(given)):
        for name in VECTORS[line.opcode]:
            if not line.call.has(name) or line.call.measure(name, "free") != 1:
                continue
            main = line.call.counts(main_operand(line.call))
            if len(main) == 2 and main[0] == main[1] == line.call.measure(name, "partitions") > 1:
                sentence = f"{name} of {line.opcode} goes by row: applied by column the output matches"
                around = instead(line.instructions, _elementwise(line, name))
                yield from line.repair(CAUSE, sentence, None, around)


def _vectored(given: Sequence[Line]) -> Iterator[Line]:
    """Lines with vectors that write nothing but dst."""
    return (
        line
        for line in given
        if line.opcode in VECTORS and not line.call.has("reduce_res") and line.floats("dst")
    )


def _elementwise(line: Line, by_column: str) -> Callable[[Running], Values | None]:
    """What gives a line's result with one of its vectors by column, the others beside its main operand.

    None for a tile at the end of the line's that is no square.
    """
    taken, main = steps(line.call) or (), main_operand(line.call)

    def change(running: Running) -> Values | None:
        values = running.value(main)
        if by_column and running.value(by_column).size != values.shape[-1]:
            return None

        def operand(name: str) -> Values:
            held = running.value(name)
            return held.reshape(1, -1) if name == by_column else beside(held, values)

        return stepped(values, taken, operand)

    return change

"""Recipes: what each distinct call does, worked out once, and which recipe each instruction follows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from nkireview.program.call import CallView
from nkireview.program.interning import Ints, by_opcode
from nkireview.program.scope import Scope, distinct_calls

Recipe = TypeVar("Recipe")


def recipes(
    scope: Scope, known: Callable[[CallView, Sequence[str]], Recipe], unknown: Callable[[int], Recipe]
) -> tuple[list[Recipe], Ints]:
    """The distinct recipes, and the number of that of each instruction.

    known: the recipe of a call with the names of its operands. unknown: that of an instruction without a row of its
    operands, by their number.
    """
    found: list[Recipe] = []
    numbers = np.zeros(len(scope.program), np.int64)
    for code, instructions, accesses in by_opcode(scope.program):
        opcode = scope.program.opcodes[code]
        row = scope.rows.get(opcode.name)
        if row is None or not set(opcode.operands) <= {operand.name for operand in row.operands}:
            numbers[instructions] = len(found)
            found.append(unknown(len(opcode.operands)))
            continue
        calls = distinct_calls(scope, row, opcode.operands, instructions, accesses)
        numbers[instructions] = calls.classes.of + len(found)
        found.extend(known(call, opcode.operands) for call in calls.calls)
    return found, numbers

"""Lines: a Program by the lines that mutants are made of."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeGuard

import numpy as np

from nkireview.checks.dataflow import Site, flow_of
from nkireview.checks.steps import ACTIVATIONS, MATMUL, main_operand, summed
from nkireview.mutants.mutant import Mutant
from nkireview.program.call import CallView
from nkireview.program.edited import edited
from nkireview.program.program import Program


@dataclass(frozen=True)
class Number:
    """A number in an instruction: the operator that it is for, its value, its immediate, its place among the steps."""

    op: str
    value: float
    name: str
    at: int


class Lines:
    """A Program by the lines that mutants are made of."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.flow = flow_of(program)

    @cached_property
    def sites(self) -> list[Site]:
        """The sites of the Program, in order."""
        return list(self.flow.sites())

    def place(self, index: int) -> str:
        """``file:line`` of an instruction."""
        return self.program.place_text(int(self.program.columns.place[index]))

    def alike(self, index: int) -> list[int]:
        """The instructions of the same line, opcode and immediates."""
        columns = self.program.columns
        same = (columns.place == columns.place[index]) & (columns.opcode == columns.opcode[index])
        mine = self.program.immediates[columns.immediates[index]]
        return [
            at
            for at in np.flatnonzero(same).tolist()
            if self.program.immediates[columns.immediates[at]] == mine
        ]

    def line(self, index: int) -> frozenset[int]:
        """The instructions of the same line and opcode, whatever their immediates."""
        columns = self.program.columns
        same = (columns.place == columns.place[index]) & (columns.opcode == columns.opcode[index])
        return frozenset(np.flatnonzero(same).tolist())

    def changed(self, index: int, changes: Mapping[str, Any]) -> Program:
        """The Program with other immediates in an instruction and those alike."""
        mine = self.program.immediates[self.program.columns.immediates[index]]
        new = {**mine, **changes}
        return edited(self.program, dict.fromkeys(self.alike(index), new))

    def mutant(self, name: str, index: int, sentence: str, changes: Mapping[str, Any]) -> Mutant:
        """A mutant by other immediates."""
        return Mutant(name, sentence, self.place(index), self.changed(index, changes))

    @cached_property
    def lengths(self) -> frozenset[int]:
        """Sizes that a mean may be taken over: of axes of parameters, of sums, of pairs of axes."""
        found: set[int] = set()
        for _, number in self.program.parameter_buffers:
            shape = self.program.buffer(number).shape
            found |= {math.prod(shape[a:b]) for a in range(len(shape)) for b in range(a + 1, len(shape) + 1)}
        for site in self.sites:
            if summed(site.call) and main_operand(site.call):
                found.add(site.call.measure(main_operand(site.call), "free"))
        return frozenset(found)

    @cached_property
    def groups(self) -> list[list[int]]:
        """Sums of matmuls: those that write one place, from one that may overwrite it to the last that adds."""
        program, columns = self.program, self.program.columns
        open_: dict[int, list[int]] = {}
        found: list[list[int]] = []
        for site in range(len(program)):
            opcode = program.opcodes[columns.opcode[site]]
            if opcode.name != MATMUL:
                continue
            imms = program.immediates[columns.immediates[site]]
            dst = int(columns.operand[columns.operand_at[site] + opcode.operands.index("dst")])
            if imms.get("is_transpose") or imms.get("accumulate") is False or dst not in open_:
                open_[dst] = []
                found.append(open_[dst])
            if not imms.get("is_transpose"):
                open_[dst].append(site)
        return [group for group in found if len(group) > 1]


def numbers_of(call: CallView) -> list[Number]:
    """The numbers of a call's steps, in the order in which they are applied to its main operand."""
    if call.row.name in ACTIVATIONS:
        names = (("multiply", "scale"), ("add", "bias"))
        return [
            Number(op, float(call.imm(name)), name, at)
            for at, (op, name) in enumerate(names)
            if not call.has(name) and is_number(call.imm(name))
        ]
    found = []
    for at, (op, name) in enumerate((("op0", "operand0"), ("op1", "operand1"))):
        value = call.imm(name)
        if call.imm(op) is not None and not call.has(name) and is_number(value):
            found.append(Number(str(call.imm(op)), float(value), name, at))
    return found


def is_number(value: object) -> TypeGuard[int | float]:
    """True for what an immediate holds as a number; not for a bool."""
    return isinstance(value, int | float) and not isinstance(value, bool)

"""Lines: the instructions of one row that one place of the source made, and how they hang together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from nkireview.checks.boxes import Box, box_of, holds, overlap
from nkireview.checks.dataflow import DEPTH, UNKNOWN, Dataflow, Slot
from nkireview.checks.steps import steps
from nkireview.isa import dtypes
from nkireview.program.call import CallView
from nkireview.program.storage import READS, WRITES


@dataclass(frozen=True)
class Line:
    """Instructions of one row and one place, ascending."""

    number: int
    opcode: str
    instructions: tuple[int, ...]

    @property
    def first(self) -> int:
        """The first of them."""
        return self.instructions[0]

    @property
    def asked(self) -> tuple[int, ...]:
        """The first, the middle and the last of them."""
        found = self.instructions
        return tuple(dict.fromkeys((found[0], found[len(found) // 2], found[-1])))


@dataclass(frozen=True, eq=False)
class Lines:
    """The lines of a Program, in order of their first instructions."""

    flow: Dataflow

    @cached_property
    def all(self) -> tuple[Line, ...]:
        """Every line."""
        columns, opcodes = self.flow.program.columns, self.flow.program.opcodes
        held: dict[tuple[int, int, int], list[int]] = {}
        for index, (code, place) in enumerate(
            zip(columns.opcode.tolist(), columns.place.tolist(), strict=True)
        ):
            held.setdefault((code, place, index if place < 0 else -1), []).append(index)
        return tuple(
            Line(number, opcodes[code].name, tuple(found))
            for number, ((code, _, _), found) in enumerate(held.items())
        )

    @cached_property
    def _of(self) -> Mapping[int, Line]:
        return {index: line for line in self.all for index in line.instructions}

    def of(self, instruction: int) -> Line:
        """The line of an instruction."""
        return self._of[instruction]

    def text(self, instruction: int) -> str:
        """``tensor_copy (kernel.py:12)``."""
        program = self.flow.program
        opcode = program.opcodes[program.columns.opcode[instruction]].name
        where = program.place_text(int(program.columns.place[instruction]))
        return f"{opcode} ({where})" if where else f"{opcode} (instruction {instruction})"

    def where(self, instruction: int) -> str:
        """``kernel.py:12``, or the number of the instruction where no place is known."""
        program = self.flow.program
        found = program.place_text(int(program.columns.place[instruction]))
        return found or f"instruction {instruction}"

    def access(self, slot: Slot) -> int:
        """The access id of an operand."""
        columns = self.flow.program.columns
        names = self.flow.program.opcodes[columns.opcode[slot.instruction]].operands
        return int(columns.operand[columns.operand_at[slot.instruction] + names.index(slot.operand)])

    def slots(self, instruction: int, uses: int = READS | WRITES) -> Iterator[Slot]:
        """The operands of an instruction with one of the uses."""
        return self.flow.operands(instruction, uses)

    def written(self, instruction: int) -> tuple[Slot, ...]:
        """The operands that an instruction writes."""
        return tuple(self.slots(instruction, WRITES))

    def is_float(self, slot: Slot) -> bool:
        """True where an operand is read or written as plain floats."""
        return dtypes.BY_NAME[self.flow.tile_dtype(slot)].kind == "float"

    def box(self, access: int) -> Box | None:
        """The box of an access on chip."""
        if access not in self._boxes:
            self._boxes[access] = box_of(self.flow.scope.tile(access))
        return self._boxes[access]

    @cached_property
    def _boxes(self) -> dict[int, Box | None]:
        return {}

    def overlap(self, a: int, b: int) -> bool:
        """True where two accesses of one place may share an element."""
        one, other = self.box(a), self.box(b)
        return a == b or one is None or other is None or overlap(one, other)

    def holds(self, a: int, b: int) -> bool:
        """True where the first of two accesses of one place is surely all of the second, or the same."""
        one, other = self.box(a), self.box(b)
        return a == b or (one is not None and other is not None and holds(one, other))

    def writers(self, slot: Slot) -> tuple[int, ...]:
        """The instructions that surely wrote what an operand reads; empty where one cannot be told."""
        found = self.flow.writers(slot)
        if any(writer.instruction == UNKNOWN for writer in found):
            return ()
        return tuple(writer.instruction for writer in found)

    def carried(self, line: Line) -> str:
        """The operand by which a line goes on from what it made before; empty where it does not.

        The way back goes through copies, products and sums of tiles as large as the result.
        """
        if line.number not in self._carried:
            found = (self._goes_on(index) for index in line.instructions[1:2] + line.asked)
            self._carried[line.number] = next((name for name in found if name), "")
        return self._carried[line.number]

    @cached_property
    def _carried(self) -> dict[int, str]:
        return {}

    def in_place(self, instruction: int) -> str:
        """The operand that is the same tile as the first result; empty where there is none."""
        written = self.written(instruction)
        target = self.access(written[0]) if written else -1
        same = (slot.operand for slot in self.slots(instruction, READS) if self.access(slot) == target)
        return next(same, "")

    def _goes_on(self, instruction: int) -> str:
        line = self.of(instruction)
        return next((slot.operand for slot in self._alike(instruction) if self._returns(slot, line)), "")

    def _alike(self, instruction: int) -> list[Slot]:
        """The operands of floats that an instruction reads as many elements of as it writes first."""
        call, written = self.flow.call(instruction), self.written(instruction)
        if call is None or not written:
            return []
        size = call.measure(written[0].operand, "elements")
        return [
            slot
            for slot in self.slots(instruction, READS)
            if call.has(slot.operand)
            and call.measure(slot.operand, "elements") == size
            and self.is_float(slot)
        ]

    def _returns(self, slot: Slot, line: Line) -> bool:
        left, seen = [slot], {slot}
        while left and len(seen) <= DEPTH:
            for writer in self.flow.writers(left.pop()):
                if writer.instruction == UNKNOWN:
                    return False
                if self.of(writer.instruction) is line:
                    return True
                call = self.flow.call(writer.instruction)
                if call is None or not _joins(call):
                    continue
                for back in self._alike(writer.instruction):
                    if back not in seen:
                        seen.add(back)
                        left.append(back)
        return False


def _joins(call: CallView) -> bool:
    """True where a call copies its main operand, multiplies it, or adds to it."""
    taken = steps(call)
    return taken is not None and all(step.op in ("multiply", "add") for step in taken)

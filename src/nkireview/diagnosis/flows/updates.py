"""Tiles that are read after an update where what they held before is meant: a state carried from block to block."""

from __future__ import annotations

from collections.abc import Iterator

from nkireview.checks.dataflow import UNKNOWN, Dataflow
from nkireview.diagnosis.algebra.hooks import Running, run_with
from nkireview.diagnosis.flows.acting import Acting, Float64, operand, values
from nkireview.diagnosis.flows.lines import Line, Lines
from nkireview.diagnosis.repair import Repair
from nkireview.execute import Core, Operands, Step

MOST = 12
"""Pairs of an updating and a reading line that are tried."""


class Before(Acting):
    """Lets the instructions of one line read what a tile held before those of another changed it."""

    def __init__(self, updating: Line, reading: Line, name: str) -> None:
        super().__init__()
        self._updating, self._reading = frozenset(updating.instructions), frozenset(reading.instructions)
        self._name = name
        self._held: dict[tuple[int, object], Float64] = {}

    def begin(self) -> None:
        """See `Acting`."""
        self._held = {}

    def act(self, step: Step, core: Core, index: int, operands: Operands) -> None:
        """See `Acting`."""
        if index in self._updating:
            target = operand(step, operands, "dst")
            if target is not None and target.defined:
                self._held[id(target.cell.store), target.form] = values(core, target)
        tile = operand(step, operands, self._name) if index in self._reading else None
        held = None if tile is None else self._held.get((id(tile.cell.store), tile.form))
        if held is None:
            step.run(core, index, operands)
        else:
            run_with(Running(step, core, operands), index, self._name, held)


def read_too_late(flow: Dataflow, lines: Lines) -> Iterator[Repair]:
    """Each line that reads what another has just added to, with what that was before."""
    tried = 0
    for updating in lines.all:
        if len(updating.instructions) < 2 or not lines.in_place(updating.instructions[1]):
            continue
        for reading, name in _readers(flow, lines, updating):
            if tried >= MOST:
                return
            tried += 1
            yield Repair(
                "read-after-update",
                f"{lines.text(reading.first)} reads what {lines.text(updating.first)} has changed already: with what "
                "was there before the output matches",
                reading.first,
                flow.program,
                Before(updating, reading, name),
            )


def _readers(flow: Dataflow, lines: Lines, updating: Line) -> Iterator[tuple[Line, str]]:
    """The lines that read the whole of what a line updates, and the operand by which they do."""
    seen = set()
    for index in updating.asked:
        for slot in lines.written(index)[:1]:
            for reader in flow.readers(slot):
                if reader.instruction == UNKNOWN or flow.operand_writes(reader):
                    continue
                line = lines.of(reader.instruction)
                key = line.number, reader.operand
                if line is not updating and key not in seen and lines.access(slot) == lines.access(reader):
                    seen.add(key)
                    yield line, reader.operand

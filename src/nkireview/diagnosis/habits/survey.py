"""Survey: what repairs ask of a Program: its lines, where its parameters are loaded, which outputs can be rewritten."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from nkireview.checks.dataflow import UNKNOWN, Dataflow, Slot
from nkireview.checks.steps import main_operand
from nkireview.diagnosis.algebra.hooks import Values
from nkireview.diagnosis.algebra.lines import Line, lines_of
from nkireview.diagnosis.flows.acting import Array
from nkireview.diagnosis.repair import Repair
from nkireview.execute import Around
from nkireview.isa import dtypes
from nkireview.isa.dtypes import DataType
from nkireview.program.call import CallView
from nkireview.program.program import Program

PASSED = frozenset({"tensor_copy", "dma_copy"})
"""Opcodes whose result is what they read, in the same order."""
CALLERS = 2
"""Frames of a place that a sentence names."""
WAY = 8
"""Copies that `origin` goes back through."""


@dataclass(frozen=True)
class Parameter:
    """A parameter. loads: the DMA copies that read it, each with its result, which is of the parameter's kind."""

    path: str
    buffer: int
    shape: tuple[int, ...]
    kind: DataType
    loads: Mapping[int, str]


@dataclass(frozen=True)
class Returned:
    """An output that is written by DMA copies outside of loops and never read. stores: those copies."""

    name: str
    buffer: int
    shape: tuple[int, ...]
    stores: frozenset[int]

    @property
    def first(self) -> int:
        """The first store."""
        return min(self.stores)


@dataclass(frozen=True, eq=False)
class Survey:
    """A Program with its arguments by parameter buffer."""

    flow: Dataflow
    arguments: Mapping[int, Array] = field(repr=False)

    @property
    def program(self) -> Program:
        """The Program."""
        return self.flow.program

    @cached_property
    def sites(self) -> tuple[Line, ...]:
        """The lines, those of functions apart for each place that calls them."""
        return tuple(site for _, each in self._sites for site in each)

    @cached_property
    def lines(self) -> tuple[Line, ...]:
        """See `lines_of`; a line of a function is followed by its sites where there are several."""
        found: list[Line] = []
        for line, sites in self._sites:
            found += [line, *sites] if len(sites) > 1 else [line]
        return tuple(found)

    @cached_property
    def _sites(self) -> list[tuple[Line, list[Line]]]:
        places = self.program.columns.place
        found = []
        for line in lines_of(self.flow):
            by_place: dict[int, list[int]] = {}
            for index in line.instructions:
                by_place.setdefault(int(places[index]), []).append(index)
            sites = []
            for place, indices in by_place.items():
                call = self.flow.call(indices[0])
                if call is not None:
                    sites.append(Line(self.flow, (self._text(place),), tuple(indices), call))
            found.append((line, sites))
        return found

    def _text(self, place: int) -> str:
        """``file:line`` of a place, with where it is called from."""
        frames = self.program.places[place] if place >= 0 else ()
        said = []
        for frame in frames[:CALLERS]:
            sources = self.program.header.sources
            path = sources[frame.file].path if frame.file < len(sources) else "?"
            said.append(f"{path.rsplit('/', 1)[-1]}:{frame.line}")
        return " called at ".join(said)

    def of(self, *opcodes: str) -> list[Line]:
        """The lines of some opcodes."""
        return [line for line in self.lines if line.opcode in opcodes]

    def sites_of(self, *opcodes: str) -> list[Line]:
        """The sites of some opcodes."""
        return [line for line in self.sites if line.opcode in opcodes]

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters that an argument is given for."""
        found = []
        for path, number in self.program.parameter_buffers:
            if number in self.arguments:
                held = self.program.buffer(number)
                loads = {
                    slot.instruction: "dst"
                    for slot in self.touching(number)
                    if slot.operand == "src" and self._copies(slot.instruction)
                }
                found.append(Parameter(path, number, held.shape, dtypes.BY_NAME[held.dtype], loads))
        return tuple(found)

    @cached_property
    def floats(self) -> tuple[Parameter, ...]:
        """The parameters of floats."""
        return tuple(each for each in self.parameters if each.kind.kind == "float")

    @cached_property
    def outputs(self) -> tuple[Returned, ...]:
        """The outputs of floats that are stored whole and never read again."""
        found = []
        for output in self.program.outputs:
            access = self.program.access(output.access)
            held = self.program.buffer(access.buffer)
            stores = []
            for slot in self.touching(access.buffer):
                stores.append(slot.instruction)
                if (
                    slot.operand != "dst"
                    or not self._copies(slot.instruction)
                    or self.looped(slot.instruction)
                ):
                    break
            else:
                if stores and dtypes.BY_NAME[held.dtype].kind == "float":
                    found.append(Returned(output.name, access.buffer, held.shape, frozenset(stores)))
        return tuple(found)

    def touching(self, buffer: int) -> Iterator[Slot]:
        """The operands that access a buffer, in order."""
        columns = self.program.columns
        held = columns.operand >= 0
        held[held] = columns.access_buffer[columns.operand[held]] == buffer
        for flat in np.flatnonzero(held).tolist():
            owner = int(np.searchsorted(columns.operand_at, flat, side="right")) - 1
            names = self.program.opcodes[columns.opcode[owner]].operands
            yield Slot(owner, names[flat - int(columns.operand_at[owner])])

    def looped(self, instruction: int) -> bool:
        """True in a device-side loop."""
        return any(loop.start <= instruction < loop.stop for loop in self.program.loops)

    def repeated(self, line: Line) -> int:
        """How often a core runs a line; 0 where loops decide it."""
        if any(self.looped(index) for index in line.instructions):
            return 0
        starts = [stream.start for stream in self.program.streams]
        cores = Counter(np.searchsorted(starts, line.instructions, side="right").tolist())
        return max(cores.values())

    def origin(self, slot: Slot) -> tuple[Slot, CallView] | None:
        """What wrote all that an operand reads, before it was copied; None where that is not one instruction."""
        for _ in range(WAY):
            writers = self.flow.writers(slot)
            if len(writers) != 1 or writers[0].instruction == UNKNOWN:
                return None
            call = self.flow.call(writers[0].instruction)
            if call is None:
                return None
            if call.row.name not in PASSED or call.measure("src", "elements") != call.measure(
                "dst", "elements"
            ):
                return writers[0], call
            slot = Slot(writers[0].instruction, main_operand(call))
        return None

    def where(self, instruction: int) -> str:
        """The place of an instruction for the end of a sentence; empty where it is not known."""
        if instruction < 0:
            return ""
        text = self._text(int(self.program.columns.place[instruction]))
        return f" ({text})" if text else ""

    def repair(
        self,
        cause: str,
        sentence: str,
        instruction: int,
        around: Around | None = None,
        program: Program | None = None,
        arguments: Mapping[int, Array] | None = None,
    ) -> Repair:
        """The repair, with the place of its instruction at the end of its sentence."""
        said = f"{sentence}{self.where(instruction)}"
        return Repair(cause, said, instruction, program or self.program, around, arguments or {})

    def given(self, cause: str, sentence: str, one: Parameter, change: Callable[[Values], Values]) -> Repair:
        """The repair by another argument: what `change` makes of it, in its dtype."""
        made = {one.buffer: np.ascontiguousarray(change(self.arguments[one.buffer]))}
        return self.repair(cause, sentence, min(one.loads, default=-1), arguments=made)

    def _copies(self, instruction: int) -> bool:
        """True for a plain copy by DMA."""
        program = self.program
        if program.opcodes[program.columns.opcode[instruction]].name not in ("dma_copy", "dma_transpose"):
            return False
        return not program.immediates[program.columns.immediates[instruction]].get("dst_rmw_op")


def like(line: Line, one: str, other: str) -> bool:
    """True where two operands of a line are tiles of one shape."""
    return line.call.has(one) and line.call.has(other) and line.call.counts(one) == line.call.counts(other)

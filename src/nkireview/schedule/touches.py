"""Touches: the cells that each instruction reads and writes, those of index tiles and registers included."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from nkireview.isa.table import ROWS
from nkireview.program.interning import Ints
from nkireview.program.program import Program
from nkireview.program.registers import register_uses
from nkireview.program.storage import READS, WRITES, Storage
from nkireview.schedule.cells import Cells


@dataclass(frozen=True, eq=False)
class RegisterCells:
    """Each core has cells of its own for the registers: `of` numbers those, the ones of the first core from `first`."""

    first: int
    of: Mapping[int, int]

    def cell(self, core: int, register: int) -> int:
        """The cell of a register of the core at that position."""
        return self.first + core * len(self.of) + self.of[register]


@dataclass(frozen=True, eq=False)
class Touches:
    """What instruction i touches: `cell[at[i]:at[i + 1]]`, and in `use` what it does there, READS, WRITES or both.

    `count`: how many cells there are, those of registers last.
    """

    at: Ints
    cell: Ints
    use: NDArray[np.int8]
    count: int
    registers: RegisterCells

    @property
    def instruction(self) -> Ints:
        """The instruction of each touch."""
        return np.repeat(np.arange(len(self.at) - 1, dtype=np.int64), np.diff(self.at))


def touches(program: Program, stored: Storage, held: Cells) -> Touches:
    """What every instruction touches, in program order."""
    registers = RegisterCells(
        held.count, {register: at for at, register in enumerate(sorted(stored.register_of))}
    )
    count = held.count + len(registers.of) * len(cores_of(program))
    columns, of_access = program.columns, held.of_access
    counts = np.array([*map(len, of_access), 0], np.int64)  # the last for operand -1, which touches nothing
    begins = np.cumsum(counts) - counts
    cells = np.fromiter(chain.from_iterable(of_access), np.int64, int(counts.sum()))
    each = counts[columns.operand]
    ends = np.append(0, np.cumsum(each))
    at = np.arange(int(ends[-1])) - np.repeat(ends[:-1] - begins[columns.operand], each)
    use = np.repeat(stored.use & (READS | WRITES), each)
    first = ends[columns.operand_at]
    if not registers.of and not stored.indices:
        return Touches(first, cells[at], use, count, registers)
    owner = np.repeat(np.arange(len(program)), np.diff(first))
    more = [*_indices(program, stored, held, registers), *_registers(program, registers)]
    owners = np.concatenate([owner, *(rows for rows, _, _ in more)])
    touched = np.concatenate([cells[at], *(cell for _, cell, _ in more)])
    uses = np.concatenate([use, *(np.full(len(rows), kind, np.int8) for rows, _, kind in more)])
    order = np.argsort(owners, kind="stable")
    positions = np.searchsorted(owners[order], np.arange(len(program) + 1))
    return Touches(positions, touched[order], uses[order], count, registers)


def cores_of(program: Program) -> list[int]:
    """The cores that have a stream."""
    return sorted({stream.core for stream in program.streams}) or [0]


def core_of(program: Program) -> Ints:
    """The core of each instruction."""
    found = np.zeros(len(program), np.int64)
    for stream in program.streams:
        found[stream.start : stream.stop] = stream.core
    return found


Rows = tuple[Ints, Ints, int]
"""Instructions, the cell that each touches, and how."""


def _indices(program: Program, stored: Storage, held: Cells, registers: RegisterCells) -> Iterator[Rows]:
    """What the addresses of operands are read from."""
    columns = program.columns
    owner = np.repeat(np.arange(len(program)), np.diff(columns.operand_at))
    register_at = {place: register for register, place in stored.register_of.items()}
    for access, sources in stored.indices.items():
        rows = np.unique(owner[columns.operand == access])
        for place, tile in sources:
            if tile < 0:
                yield rows, _own_cells(program, registers, rows, register_at[place]), READS
            else:
                for cell in held.of_access[tile]:
                    yield rows, np.full(len(rows), cell, np.int64), READS


def _registers(program: Program, registers: RegisterCells) -> Iterator[Rows]:
    """The registers that instructions read and write."""
    if not registers.of:
        return
    found, of = register_uses(program, ROWS)
    for number, use in enumerate(found):
        rows = np.flatnonzero(of == number) if use.reads or use.writes else np.zeros(0, np.int64)
        for names, kind in ((use.reads, READS), (use.writes, WRITES)):
            for register in names if len(rows) else ():
                yield rows, _own_cells(program, registers, rows, register), kind


def _own_cells(program: Program, registers: RegisterCells, rows: Ints, register: int) -> Ints:
    """The cell of a register on the core of each instruction."""
    streams, cores = program.streams, cores_of(program)
    stops = np.array([stream.stop for stream in streams], np.int64)
    positions = np.array([cores.index(stream.core) for stream in streams], np.int64)
    core = positions[np.searchsorted(stops, rows, side="right")]
    found: Ints = registers.first + core * len(registers.of) + registers.of[register]
    return found

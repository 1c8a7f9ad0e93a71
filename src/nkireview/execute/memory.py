"""Memory: the buffers and accesses of a Program as storage, made as they are first used."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.execute import psum
from nkireview.execute.addresses import Irregular
from nkireview.execute.formats import Formats
from nkireview.execute.geometry import geometry
from nkireview.execute.layout import Form, Layout
from nkireview.execute.poison import Poison
from nkireview.execute.registers import RegisterFile
from nkireview.execute.storage import Block, Cell, Operand, Pool, Store, final
from nkireview.execute.writes import Writes
from nkireview.hardware import Hardware
from nkireview.isa import dtypes
from nkireview.program.errors import ProgramError
from nkireview.program.program import MEMORIES, Program


class Memory:
    """The storage of one execution; `operands` holds, by access id, those that stay the same, once resolved."""

    def __init__(
        self,
        program: Program,
        hardware: Hardware,
        formats: Formats,
        poison: Poison,
        arguments: Mapping[int, NDArray[Any]],
        written: NDArray[np.bool_],
        kept: frozenset[int],
        trusting: bool,
        wide: NDArray[np.bool_],
    ) -> None:
        columns = program.columns
        self.doubted: dict[int, str] | None = {} if trusting else None
        self._program, self._formats = program, formats
        self._wide, self._wider = wide, Formats(formats.compute, rounds=False)
        self._pool = Pool(poison)
        self._given = {buffer: program.constants[key] for buffer, key in program.buffer_constants.items()}
        self._given.update(arguments)
        self._written, self._kept = written, kept
        self._kinds = [dtypes.of(name) for name in program.dtypes]
        self._geometry = geometry(program, self._kinds, hardware, wide)
        self._cells: list[Cell | None] = [None] * columns.buffers
        self.operands: list[Operand | None] = [None] * columns.accesses
        self._arenas: dict[int, Store] = {}
        self._alive: dict[int, dict[int, Cell]] = {}  # arena -> buffers in it that are in use
        self._layouts: list[Layout | None] = [None] * len(self._geometry.layouts)
        self._forms: list[Form | None] = [None] * (len(self._geometry.forms) + 1)
        self._layout_of: list[int] = self._geometry.layouts.of.tolist()
        form_of = self._geometry.forms.of.copy()
        form_of[list(program.extras)] = len(self._forms) - 1  # one that is never made
        self._form_of: list[int] = form_of.tolist()
        self._arena_of: list[int] = self._geometry.arena.tolist()
        self._access_buffer: list[int] = columns.access_buffer.tolist()
        self._region: list[int] = columns.buffer_memory.tolist()
        self._spare: dict[int, list[Cell]] = defaultdict(list)  # by layout
        self._irregular: dict[int, Irregular] = {}
        self._extras = program.extras

    def operand(self, access: int, registers: RegisterFile | None = None) -> Operand:
        """The operand of an access id at this time; NoMeaningError where it has none.

        registers: those of the stream that asks.
        """
        found = self.operands[access]
        if found is not None:
            return found
        form = self._forms[self._form_of[access]]
        if form is None and access in self._extras:
            return self._moving(access, registers)
        buffer = self._access_buffer[access]
        cell = self._cells[buffer] or self.cell(buffer)
        if form is None:
            form = self._resolve(access, cell)
        found = cell.operands.get(form)
        if found is None:
            found = cell.operands[form] = Operand(cell, form, access)
        self.operands[access] = found
        return found

    def _moving(self, access: int, registers: RegisterFile | None) -> Operand:
        irregular = self._irregular.get(access)
        if irregular is None:
            buffer = self._access_buffer[access]
            kind = self._kinds[self._program.columns.access_dtype[access]]
            irregular = Irregular(self._program, access, self.cell(buffer), kind, self.operand, self.doubted)
            self._irregular[access] = irregular
        found = irregular.operand(registers)
        if irregular.fixed:
            self.operands[access] = found
        return found

    def cell(self, buffer: int) -> Cell:
        """The buffer of that id."""
        found = self._cells[buffer]
        if found is None:
            spare = self._spare.get(self._layout_of[buffer])
            if spare and buffer not in self._given:
                found = self._cells[buffer] = spare.pop()
                found.buffer, found.origin, found.since_check = buffer, None, 0
                return found
            layout = self._layouts[self._layout_of[buffer]] or self._layout(buffer)
            arena = self._arena_of[buffer]
            store = Store(layout.nbytes, layout.units, self._pool) if arena < 0 else self._arena(arena)
            found = self._cells[buffer] = Cell(buffer, layout, store, MEMORIES[self._region[buffer]])
            if arena >= 0:
                self._alive.setdefault(arena, {})[buffer] = found
            if buffer in self._kept:
                found.writes = Writes(store.units)
            if buffer in self._given:
                self._fill(found, self._given[buffer])
        return found

    def free(self, buffer: int) -> None:
        """Let go of a buffer that no later instruction uses; what is next put at its address starts anew in PSUM."""
        cell = self._cells[buffer]
        if cell is None:
            return
        store = cell.store
        if not store.shared:
            store.release()
            if not store.borrowed:
                # A buffer of the same layout may take over the cell with its operands.
                self._spare[self._layout_of[buffer]].append(cell)
            return
        alive = self._alive[self._arena_of[buffer]]
        alive.pop(buffer, None)
        if cell.psum and not any(cell.layout.overlaps(other.layout) for other in alive.values()):
            psum.forget(cell)

    def begin(self, buffer: int, others: tuple[int, ...]) -> None:
        """Let no matmul have written a buffer of PSUM yet, unless it shares its place with others in use."""
        cell = self.cell(buffer)
        alive = [self.cell(other) for other in others] if cell.store.shared else []
        if not any(each.store is cell.store and each.layout.overlaps(cell.layout) for each in alive):
            psum.forget(cell)

    def whole(self, buffer: int) -> NDArray[Any]:
        """The content of a buffer, read-only."""
        return final(self._all_of(self.cell(buffer)))

    def _resolve(self, access: int, cell: Cell) -> Form:
        record = self._program.access(access)
        form = cell.layout.form(dtypes.of(record.dtype), record.base, record.pattern, record.partition)
        self._forms[self._form_of[access]] = form
        return form

    def _layout(self, buffer: int) -> Layout:
        found = self._geometry
        layout = Layout(
            rows=int(found.rows[buffer]),
            row_bytes=int(found.row_bytes[buffer]),
            on_chip=bool(found.on_chip[buffer]),
            row_stride=int(found.row_stride[buffer]),
            offset=int(found.offset[buffer]),
            unit=int(found.unit[buffer]),
            own=self._kinds[self._program.columns.buffer_dtype[buffer]],
            formats=self._wider if self._wide[buffer] else self._formats,
        )
        self._layouts[self._layout_of[buffer]] = layout
        return layout

    def _arena(self, number: int) -> Store:
        found = self._arenas.get(number)
        if found is None:
            arena = self._geometry.arenas[number]
            nbytes = arena.rows * arena.row_stride
            scale = self._formats.scale(arena.unit)
            found = Store(nbytes * scale, nbytes // arena.unit, self._pool, shared=True)
            self._arenas[number] = found
        return found

    def _fill(self, cell: Cell, values: NDArray[Any]) -> None:
        """Give a buffer its argument or constant: the caller's own bytes, where nothing writes them."""
        shape, kind = self._program.buffer(cell.buffer).shape, cell.layout.own
        dtype = self._formats.dtype(kind)
        if values.shape != shape or values.dtype not in (kind.storage, dtype):
            raise ProgramError(
                f"buffer {cell.buffer} takes a constant of {kind.storage} {shape}, got {values.dtype} {values.shape}"
            )
        store = cell.store
        dense = values.dtype == dtype and values.nbytes == store.nbytes and values.flags.c_contiguous
        if dense and not store.shared and not self._written[cell.buffer]:
            store.block, store.borrowed = Block(values.reshape(-1).view(np.uint8)), True
            return
        operand = self._all_of(cell)
        operand.target()[...] = values
        operand.settle(None)

    def _all_of(self, cell: Cell) -> Operand:
        shape, layout = self._program.buffer(cell.buffer).shape, cell.layout
        pattern = tuple((math.prod(shape[axis + 1 :]), size) for axis, size in enumerate(shape))
        return Operand(cell, layout.form(layout.own, 0, pattern, 0 if layout.on_chip else None))

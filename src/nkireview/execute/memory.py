"""Memory: the buffers and accesses of a Program as storage, made as they are first used."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.execute import psum
from nkireview.execute.formats import Formats
from nkireview.execute.geometry import geometry
from nkireview.execute.layout import Form, Layout
from nkireview.execute.poison import Poison
from nkireview.execute.result import NoMeaningError
from nkireview.execute.storage import Cell, Operand, Pool, Store, final
from nkireview.hardware import Hardware
from nkireview.isa import dtypes
from nkireview.isa.enums import Memory as Region
from nkireview.program.errors import ProgramError
from nkireview.program.program import MEMORIES, Program


class Memory:
    """The storage of one execution; `operands` holds, by access id, those resolved so far."""

    def __init__(
        self,
        program: Program,
        hardware: Hardware,
        formats: Formats,
        poison: Poison,
        arguments: Mapping[int, NDArray[Any]],
        written: NDArray[np.bool_],
        kept: frozenset[int],
    ) -> None:
        columns = program.columns
        self._program, self._formats = program, formats
        self._pool = Pool(poison)
        self._given = {buffer: program.constants[key] for buffer, key in program.buffer_constants.items()}
        self._given.update(arguments)
        self._written, self._kept = written, kept
        self._kinds = [dtypes.of(name) for name in program.dtypes]
        self._geometry = geometry(program, self._kinds, hardware)
        self._cells: list[Cell | None] = [None] * columns.buffers
        self.operands: list[Operand | None] = [None] * columns.accesses
        self._arenas: dict[int, Store] = {}
        self._alive: dict[int, dict[int, Cell]] = {}  # arena -> buffers in it that are in use
        self._layouts: list[Layout | None] = [None] * len(self._geometry.layouts)
        self._forms: list[Form | None] = [None] * len(self._geometry.forms)
        self._layout_of: list[int] = self._geometry.layouts.of.tolist()
        self._form_of: list[int] = self._geometry.forms.of.tolist()
        self._arena_of: list[int] = self._geometry.arena.tolist()
        self._access_buffer: list[int] = columns.access_buffer.tolist()
        self._psum: list[bool] = (columns.buffer_memory == MEMORIES.index(Region.psum)).tolist()

    def operand(self, access: int) -> Operand:
        """The operand of an access id; NoMeaningError where it has none."""
        found = self.operands[access]
        if found is None:
            cell = self.cell(self._access_buffer[access])
            form = self._forms[self._form_of[access]]
            if form is None or access in self._program.extras:
                form = self._resolve(access, cell)
            found = self.operands[access] = Operand(cell, form, access)
        return found

    def cell(self, buffer: int) -> Cell:
        """The buffer of that id."""
        found = self._cells[buffer]
        if found is None:
            layout = self._layouts[self._layout_of[buffer]] or self._layout(buffer)
            if self._arena_of[buffer] < 0:
                nbytes = layout.rows * layout.row_bytes
                store = Store(nbytes * layout.scale, nbytes // layout.unit, self._pool)
            else:
                store = self._arena(self._arena_of[buffer])
            found = Cell(buffer, layout, store, self._psum[buffer], buffer in self._kept)
            self._cells[buffer] = found
            if store.shared:
                self._alive.setdefault(self._arena_of[buffer], {})[buffer] = found
            if buffer in self._given:
                self._fill(found, self._given[buffer])
        return found

    def free(self, buffer: int) -> None:
        """Let go of a buffer that no later instruction uses; what is next put at its address starts anew in PSUM."""
        cell = self._cells[buffer]
        if cell is None:
            return
        if not cell.store.shared:
            cell.store.release()
            return
        alive = self._alive[self._arena_of[buffer]]
        alive.pop(buffer, None)
        if cell.psum and not any(cell.layout.overlaps(other.layout) for other in alive.values()):
            psum.forget(cell)

    def whole(self, buffer: int) -> NDArray[Any]:
        """The content of a buffer, read-only."""
        return final(self._all_of(self.cell(buffer)))

    def _resolve(self, access: int, cell: Cell) -> Form:
        record, extra = self._program.access(access), self._program.extras.get(access)
        if extra is not None:
            found = (
                "a device-side index" if extra.index else "bounds" if extra.bounds else "a table of offsets"
            )
            raise NoMeaningError("unsupported", f"an access with {found} cannot be executed yet")
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
            formats=self._formats,
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
            store.data, store.borrowed = values.reshape(-1).view(np.uint8), True
            return
        operand = self._all_of(cell)
        operand.target()[...] = values
        operand.settle(None)

    def _all_of(self, cell: Cell) -> Operand:
        shape, layout = self._program.buffer(cell.buffer).shape, cell.layout
        pattern = tuple((math.prod(shape[axis + 1 :]), size) for axis, size in enumerate(shape))
        return Operand(cell, layout.form(layout.own, 0, pattern, 0 if layout.on_chip else None))

"""How a meaning sees the operands of the instruction that is being executed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from nkireview.execute.formats import Formats
from nkireview.execute.storage import Operand
from nkireview.hardware import Hardware
from nkireview.isa.dtypes import DataType
from nkireview.isa.enums import Engine
from nkireview.isa.release import Release
from nkireview.isa.row import Reader, Result, Row
from nkireview.program.call import CallView, Tile
from nkireview.program.program import Program


class Values:
    """A `row.Reader` of stored values; `bind` moves it to the next instruction."""

    def __init__(
        self,
        program: Program,
        hardware: Hardware,
        release: Release,
        formats: Formats,
        state: dict[str, NDArray[Any]],
    ) -> None:
        self.compute = formats.compute
        self.generation: str = hardware.generation
        self.release = release
        self.state = state
        self._hardware = hardware
        self._formats = formats
        self._program = program
        self._row: Row | None = None
        self._asked = Engine.unknown
        self._immediates: Mapping[str, Any] = {}
        self._operands: dict[str, Operand | None] = {}

    def bind(
        self,
        row: Row,
        names: Sequence[str],
        operands: Sequence[Operand | None],
        immediates: Mapping[str, Any],
        asked: Engine,
    ) -> None:
        """Look at another instruction."""
        self._row, self._asked, self._immediates = row, asked, immediates
        self._operands = dict(zip(names, operands, strict=True))

    @property
    def engine(self) -> Engine:
        """The engine that runs the instruction."""
        assert self._row is not None
        program, tiles = self._program, {}
        for name, operand in self._operands.items():
            if operand is not None:
                tiles[name] = Tile(program.access(operand.access), program.buffer(operand.cell.buffer))
        call = CallView(self._row, self._hardware, self.release, tiles, self._immediates, self._asked)
        return self._row.engines.resolve(call)

    def results(self) -> dict[str, Result]:
        """What the meaning of the instruction gives."""
        assert self._row is not None
        # A protocol's attribute may be set; here the engine is only looked up where a meaning asks for it.
        return self._row.meaning(cast(Reader, self))

    def has(self, name: str) -> bool:
        """See `row.Reader`."""
        return self._operands.get(name) is not None

    def value(self, name: str) -> NDArray[Any]:
        """See `row.Reader`; read-only."""
        return self.operand(name).load(self._formats)

    def raw(self, name: str) -> NDArray[Any]:
        """See `row.Reader`; read-only."""
        held = self.operand(name).read()
        held.flags.writeable = False
        return held

    def dtype(self, name: str) -> DataType:
        """See `row.Reader`."""
        return self.operand(name).form.kind

    def shape(self, name: str) -> tuple[int, ...]:
        """See `row.Reader`."""
        return self.operand(name).form.shape

    def imm(self, name: str) -> Any:
        """See `row.Reader`; None where the call had nothing there."""
        return self._immediates.get(name)

    def operand(self, name: str) -> Operand:
        """The operand of that name; LookupError where it is no tile."""
        found = self._operands.get(name)
        if found is None:
            raise LookupError(f"operand {name} is no tile")
        return found


class MaskValues(Values):
    """The same instruction, but each tile shows 1 where it is defined and 0 where not; `real` ones do not.

    A number in the place of a selected tile is 1 as well. The engine state is a copy.
    """

    def __init__(self, values: Values, masks: Mapping[str, NDArray[np.bool_]], real: frozenset[str]) -> None:
        self.__dict__.update(values.__dict__)
        self.state = {name: array.copy() for name, array in values.state.items()}
        self._masks = masks
        self._real = real

    def value(self, name: str) -> NDArray[Any]:
        """Ones and zeros in the compute dtype."""
        return super().value(name) if name in self._real else self._ones(name, self.compute)

    def raw(self, name: str) -> NDArray[Any]:
        """Bit patterns of one and zero in the storage dtype."""
        if name in self._real:
            return super().raw(name)
        dtype = self.operand(name).form.dtype
        return self._ones(name, np.dtype(f"u{dtype.itemsize}")).view(dtype)

    def imm(self, name: str) -> Any:
        """Immediates, with 1 for a number to select."""
        given = super().imm(name)
        return 1.0 if name.startswith(("on_true", "on_false")) and given is not None else given

    def _ones(self, name: str, dtype: np.dtype[Any]) -> NDArray[Any]:
        mask = self._masks.get(name)
        return np.ones(self.shape(name), dtype) if mask is None else mask.astype(dtype)

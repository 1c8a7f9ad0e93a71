"""How a meaning sees the operands of the instruction that is being executed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from nkireview.execute.formats import Formats
from nkireview.execute.storage import Operand
from nkireview.hardware import Hardware
from nkireview.isa import dtypes
from nkireview.isa.dtypes import DataType
from nkireview.isa.enums import Engine
from nkireview.isa.release import Release
from nkireview.isa.row import Reader, Result, Row
from nkireview.program.call import CallView, Tile
from nkireview.program.program import Program


class Recipe(Protocol):
    """What is the same in all instructions that a step stands for.

    slots: the position of each operand. asked: the engine that the call names; engine: the one that runs it, None
    until somebody asks.
    """

    row: Row
    slots: dict[str, int]
    asked: Engine
    engine: Engine | None


class Values:
    """A `row.Reader` of stored values; `bind` moves it to the next instruction.

    imm: see `row.Reader`; None where the call had nothing there.
    """

    _recipe: Recipe
    immediates: Mapping[str, Any]
    imm: Callable[[str], Any]
    _operands: Sequence[Operand | None]
    _slots: dict[str, int]

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
        self.peers: tuple[Values, ...] = (self,)
        self.position = 0
        self._hardware = hardware
        self._formats = formats
        self._program = program

    def bind(self, recipe: Recipe, operands: Sequence[Operand | None], immediates: Mapping[str, Any]) -> None:
        """Look at another instruction."""
        self._recipe, self._operands, self.immediates = recipe, operands, immediates
        self._slots, self.imm = recipe.slots, immediates.get

    @property
    def engine(self) -> Engine:
        """The engine that runs the instruction."""
        recipe = self._recipe
        if recipe.engine is None:
            recipe.engine = recipe.row.engines.resolve(self._call())
        return recipe.engine

    def _call(self) -> CallView:
        recipe, program, tiles = self._recipe, self._program, {}
        for name, at in recipe.slots.items():
            operand = self._operands[at]
            if operand is not None:
                tiles[name] = Tile(program.access(operand.access), program.buffer(operand.cell.buffer))
        return CallView(recipe.row, self._hardware, self.release, tiles, self.immediates, recipe.asked)

    def results(self) -> dict[str, Result]:
        """What the meaning of the instruction gives."""
        # A protocol's attribute may be set; here the engine is only looked up where a meaning asks for it.
        return self._recipe.row.meaning(cast(Reader, self))

    def has(self, name: str) -> bool:
        """See `row.Reader`."""
        at = self._slots.get(name)
        return at is not None and self._operands[at] is not None

    def value(self, name: str) -> NDArray[Any]:
        """See `row.Reader`; read-only."""
        at = self._slots.get(name)
        operand = None if at is None else self._operands[at]
        if operand is None:
            raise LookupError(f"operand {name} is no tile")
        form = operand.form
        if form.loads or not operand.plain:
            return operand.load(self._formats)
        store = operand.cell.store
        block = store.block
        view = None if block is None or store.raw else block.reads.get(form)
        return operand.read() if view is None else view

    def raw(self, name: str) -> NDArray[Any]:
        """See `row.Reader`; read-only."""
        operand = self.operand(name)
        held, kind = operand.read(), operand.form.kind
        wide = self._formats.rounds and held.dtype != kind.storage
        return dtypes.rounded(held, kind) if wide else held

    def dtype(self, name: str) -> DataType:
        """See `row.Reader`."""
        at = self._slots.get(name)
        found = None if at is None else self._operands[at]
        return self.operand(name).form.kind if found is None else found.form.kind

    def shape(self, name: str) -> tuple[int, ...]:
        """See `row.Reader`."""
        return self.operand(name).form.shape

    def operand(self, name: str) -> Operand:
        """The operand of that name; LookupError where it is no tile."""
        at = self._slots.get(name)
        found = None if at is None else self._operands[at]
        if found is None:
            raise LookupError(f"operand {name} is no tile")
        return found


class MaskValues(Values):
    """The same instruction, but each tile shows `defined` (1) or the other of 0 and 1; `real` ones do not.

    A number in the place of a selected tile counts as defined as well. The engine state is a copy.
    """

    def __init__(
        self, values: Values, masks: Mapping[str, NDArray[np.bool_]], real: frozenset[str], defined: int = 1
    ) -> None:
        self.__dict__.update(values.__dict__)
        self.state = {name: array.copy() for name, array in values.state.items()}
        self.peers = (self,)
        self.imm = self._shown
        self._masks = masks
        self._real = real
        self._defined = defined

    def value(self, name: str) -> NDArray[Any]:
        """Ones and zeros in the compute dtype."""
        return super().value(name) if name in self._real else self._marks(name, self.compute)

    def raw(self, name: str) -> NDArray[Any]:
        """Bit patterns of one and zero in the storage dtype."""
        if name in self._real:
            return super().raw(name)
        dtype = self.operand(name).form.dtype
        return self._marks(name, np.dtype(f"u{dtype.itemsize}")).view(dtype)

    def _shown(self, name: str) -> Any:
        """Immediates, with that of a defined element for a number to select."""
        given = self.immediates.get(name)
        selected = name == "src" or name.startswith(("on_true", "on_false"))
        return float(self._defined) if selected and given is not None else given

    def _marks(self, name: str, dtype: np.dtype[Any]) -> NDArray[Any]:
        mask = self._masks.get(name)
        if mask is None:
            return np.full(self.shape(name), self._defined, dtype)
        marks: NDArray[Any] = (mask == bool(self._defined)).astype(dtype)
        return marks

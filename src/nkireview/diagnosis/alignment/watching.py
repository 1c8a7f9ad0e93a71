"""Watching: which instructions of an unrounded run write values of the reference, and which read them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from nkireview.diagnosis.algebra.hooks import Running, plainly, run_with
from nkireview.diagnosis.alignment.figures import NEUTRAL, Figures, Float64, Sight, flat
from nkireview.diagnosis.arithmetic import Work
from nkireview.diagnosis.flows.acting import Acting, values, write
from nkireview.execute import Around, Core, Operands, Step
from nkireview.execute.matmul import Matmul
from nkireview.execute.storage import Operand


class Written(Acting):
    """Keeps what each instruction writes first is of the reference's; `inner` runs the instructions.

    Of a sum that several matmuls make in one place only the last counts. found: by instruction.
    """

    def __init__(
        self, figures: Figures, kinds: Sequence[Work], of: Sequence[int], inner: Around = plainly
    ) -> None:
        super().__init__()
        self._figures, self._kinds, self._of, self._inner = figures, kinds, of, inner
        self._last: dict[int, int] = {}
        self.found: dict[int, Sight] = {}

    def act(self, step: Step, core: Core, index: int, operands: Operands) -> None:
        """See `Acting`."""
        writes = self._kinds[self._of[index]].writes
        target = operands[writes[0].slot] if writes else None
        added = target is not None and isinstance(step, Matmul) and step.adds(target)
        self._inner(step, core, index, operands)
        if target is None or not target.plain or writes[0].dtype.kind != "float":
            return
        place = id(target.cell)
        if added:
            self.found.pop(self._last.get(place, -1), None)
        self._last[place] = index
        self.found[index] = self._figures.columns(flat(values(core, target)))


class Read(Acting):
    """Keeps what some instructions read and write, by instruction; operands by name.

    found: what the tiles are that are read; sizes: their rows and columns. written: values [rows, columns] of dst.
    scaled, partly: what is written where it, or most of it, is a figure times a number.
    """

    def __init__(
        self,
        figures: Figures,
        instructions: Collection[int],
        seen: Mapping[int, Sight],
        inner: Around = plainly,
    ) -> None:
        super().__init__()
        self._figures, self._asked, self._seen, self._inner = figures, frozenset(instructions), seen, inner
        self._held: dict[tuple[int, tuple[int, ...]], Sight] = {}
        self.found: dict[int, dict[str, Sight]] = {}
        self.sizes: dict[int, dict[str, tuple[int, int]]] = {}
        self.written: dict[int, Float64] = {}
        self.scaled: dict[int, Sight] = {}
        self.partly: dict[int, Sight] = {}

    def act(self, step: Step, core: Core, index: int, operands: Operands) -> None:
        """See `Acting`."""
        if index not in self._asked:
            return self._inner(step, core, index, operands)
        read = {slot for slot, _ in step.reads}
        tiles = {
            name: tile
            for name, slot in step.slots.items()
            if slot in read and (tile := operands[slot]) is not None and _readable(tile)
        }
        held = {name: flat(values(core, tile)) for name, tile in tiles.items()}
        found = {name: self._tile(tiles[name], made) for name, made in held.items()}
        self._inner(step, core, index, operands)
        self.found[index] = found
        self.sizes[index] = {name: (made.shape[0], made.shape[1]) for name, made in held.items()}
        at = step.slots.get("dst")
        target = None if at is None else operands[at]
        if target is not None and target.plain:
            made = self.written[index] = flat(values(core, target))
            key = id(target.cell.store), target.form.shape
            self._held.pop(key, None)
            reads = [(sight, held[name].shape[1]) for name, sight in found.items()]
            off = self._seen.get(index, NEUTRAL).kind == "off"
            scaled = self._figures.scaled(made, reads) if off else None
            if scaled is not None:
                self._held[key] = scaled
                (self.scaled if scaled.kind == "known" else self.partly)[index] = scaled
        return None

    def _tile(self, tile: Operand, made: Float64) -> Sight:
        known = self._held.get((id(tile.cell.store), tile.form.shape))
        return self._figures.seen(made) if known is None else known


class Put(Acting):
    """Writes other values where instructions wrote theirs: [rows, columns] by instruction."""

    def __init__(self, given: Mapping[int, Float64], inner: Around = plainly) -> None:
        super().__init__()
        self._given, self._inner = given, inner

    def act(self, step: Step, core: Core, index: int, operands: Operands) -> None:
        """See `Acting`."""
        self._inner(step, core, index, operands)
        new = self._given.get(index)
        target = None if new is None else operands[step.slots["dst"]]
        if new is not None and target is not None and target.plain:
            write(core, target, new)


class Given(Acting):
    """Runs instructions with other values of an operand: [rows, columns] by instruction."""

    def __init__(self, name: str, given: Mapping[int, Float64], inner: Around = plainly) -> None:
        super().__init__()
        self._name, self._given, self._inner = name, given, inner

    def act(self, step: Step, core: Core, index: int, operands: Operands) -> None:
        """See `Acting`."""
        if index in self._given:
            run_with(Running(step, core, operands), index, self._name, self._given[index], self._inner)
        else:
            self._inner(step, core, index, operands)


def _readable(tile: Operand) -> bool:
    return bool(tile.plain and tile.defined and tile.form.kind.kind != "packed")

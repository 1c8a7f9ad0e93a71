"""Watching: which instructions of an unrounded run write values of the reference, and which read them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from nkireview.diagnosis.algebra.hooks import plainly
from nkireview.diagnosis.alignment.figures import Figures, Float64, Sight, flat
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
        self.found[index] = self._figures.seen(flat(values(core, target)))


class Read(Acting):
    """Keeps what the tiles are that some instructions read, and what they write, by instruction and operand."""

    def __init__(self, figures: Figures, instructions: Collection[int], inner: Around = plainly) -> None:
        super().__init__()
        self._figures, self._asked, self._inner = figures, frozenset(instructions), inner
        self.found: dict[int, dict[str, Sight]] = {}
        self.reads: dict[int, dict[str, tuple[int, int]]] = {}
        self.shapes: dict[int, tuple[int, int]] = {}
        self.written: dict[int, Float64] = {}

    def act(self, step: Step, core: Core, index: int, operands: Operands) -> None:
        """See `Acting`."""
        if index not in self._asked:
            return self._inner(step, core, index, operands)
        held: dict[str, Sight] = {}
        sizes: dict[str, tuple[int, int]] = {}
        read = {slot for slot, _ in step.reads}
        for name, slot in step.slots.items():
            tile = operands[slot]
            if slot in read and tile is not None and _readable(tile):
                made = flat(values(core, tile))
                held[name], sizes[name] = self._figures.seen(made), (made.shape[0], made.shape[1])
        self._inner(step, core, index, operands)
        self.found[index], self.reads[index] = held, sizes
        at = step.slots.get("dst")
        target = None if at is None else operands[at]
        if target is not None and target.plain:
            made = flat(values(core, target))
            self.shapes[index], self.written[index] = (made.shape[0], made.shape[1]), made
        return None


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


def _readable(tile: Operand) -> bool:
    return bool(tile.plain and tile.defined and tile.form.kind.kind == "float")

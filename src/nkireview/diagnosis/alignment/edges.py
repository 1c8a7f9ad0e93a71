"""Edges: the lines at which an unrounded run leaves its reference, and the values that may be put there."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from nkireview.checks.dataflow import UNKNOWN, Slot
from nkireview.diagnosis.alignment.figures import Figure, Figures, Float64, Sight, blocks
from nkireview.diagnosis.alignment.watching import Read
from nkireview.diagnosis.flows.lines import Line, Lines

FAR = 2
"""Lines between the last that reads only values of the reference and one that is looked at for it."""
RETURNING = 512
"""Instructions that what a line writes is followed through."""
INVERTING = frozenset({"reciprocal", "activation", "tensor_scalar"})
"""Rows that may write one over what the reference has."""
MOVING = ("copy", "transpose", "shuffle")
"""What the names of rows that only move values have in them."""


@dataclass(frozen=True, eq=False)
class Edge:
    """A line that leaves the reference.

    wrong: its instructions that do. example: the instruction that is told of: it reads only the reference's values, or
    what `start`, an edge before it, writes. sure: what is read is surely the reference's. returns: all that is made of
    what is written is the reference's again. scaled: what is written is the reference's times a number.
    """

    line: Line
    wrong: tuple[int, ...]
    example: int
    read: Read
    seen: Mapping[int, Sight]
    sure: bool
    returns: bool
    scaled: bool
    start: Edge | None = None

    @property
    def moves(self) -> bool:
        """True where the line only moves values."""
        return any(word in self.line.opcode for word in MOVING)

    @property
    def sources(self) -> set[int]:
        """The figures that are read, here or at the edge before."""
        own = {sight.figure for sight in self.read.found[self.example].values() if sight.figure >= 0}
        return own if self.start is None else own | self.start.sources

    def partly(self, index: int) -> Sight:
        """What an instruction writes, some of which is a figure's, or a figure's times a number."""
        return self.read.partly.get(index, self.seen[index])

    def without_others(self, figures: Figures) -> dict[int, Float64] | None:
        """The values with zeros where they are none of the figure that the others are of."""
        found = {}
        for index in self.wrong:
            sight, values = self.partly(index), self.read.written[index]
            if sight.kind == "part":
                figure, place = figures[sight.figure], sight.place
                has = figure.has(values) if place is None else figure.agrees(values / sight.factor, place)
                if (values[~has] != 0).any():
                    found[index] = np.where(has, values, 0.0)
        return found or None

    def filled(self, figure: Figure, figures: Figures) -> Iterator[dict[int, Float64]]:
        """The figure's values in the places of the wrong instructions', in each way that fits."""
        shapes = {index: self.read.written[index].shape for index in self.wrong}
        placed = self._placed(figure, figures, shapes)
        if placed is not None:
            yield placed
            if self.line.opcode in INVERTING:
                with np.errstate(divide="ignore"):
                    yield {index: 1 / given for index, given in placed.items()}
        rows, columns = shapes[self.wrong[0]]
        every = [index for index in self.line.instructions if index in self.read.written]
        for cut in blocks(figure.values, rows, columns):
            for group in (every, list(self.wrong)):
                found = {index: cut[at % len(cut)] for at, index in enumerate(group)}
                given = {index: found[index] for index in self.wrong}
                if all(given[index].shape == shapes[index] for index in self.wrong):
                    yield given

    def other_operands(self, name: str, figure: Figure, figures: Figures) -> Iterator[dict[int, Float64]]:
        """The figure's values in the place of what the line reads as one operand, in each way that fits."""
        sizes = {
            index: self.read.sizes[index][name]
            for index in self.line.instructions
            if name in self.read.sizes.get(index, {})
        }
        if figure.number != self.read.found[self.example][name].figure:
            placed = self._placed(figure, figures, sizes, name)
            if placed is not None:
                yield placed
        for cut in blocks(figure.values, *sizes[self.example]):
            given = {index: cut[at % len(cut)] for at, index in enumerate(sizes)}
            fits = all(values.shape == sizes[index] for index, values in given.items())
            if fits and not all(self._is_read(index, name, given[index], figures) for index in given):
                yield given

    def _is_read(self, index: int, name: str, values: Float64, figures: Figures) -> bool:
        """True where these are the magnitudes that an instruction reads as an operand already."""
        sight = self.read.found[index][name]
        if sight.place is None:
            return False
        held = figures[sight.figure].values.reshape(-1)[sight.place.of(*values.shape)]
        return np.array_equal(np.abs(held), np.abs(values))

    def _placed(
        self,
        figure: Figure,
        figures: Figures,
        shapes: Mapping[int, tuple[int, ...]],
        only: str = "",
    ) -> dict[int, Float64] | None:
        """The elements of a figure, in tiles of those shapes, by where those lie that the instructions read.

        only: the operand by which; any of them where it is empty.
        """
        found = {}
        for index, shape in shapes.items():
            ways = (
                figures.position(sight, self.read.sizes[index][name][1], figure, shape)
                for name, sight in self.read.found[index].items()
                if only in ("", name)
            )
            at = next((way for way in ways if way is not None), None)
            if at is None:
                return None
            found[index] = figure.values.reshape(-1)[at]
        return found


@dataclass(frozen=True, eq=False)
class Search:
    """Searches for edges among the lines that write what is none of the reference's."""

    lines: Lines
    off: Sequence[Line]
    read: Read
    seen: Mapping[int, Sight]

    def edges(self) -> list[Edge]:
        """Those that read only the reference's values first, then those that follow them, then what may be meant.

        What some instances of a line write is taken to be of the reference's where what others read of it becomes that
        again: such edges are not sure.
        """
        back = {line.number for line in self.off if self._returns(line)}
        found: dict[int, Edge] = {}
        for line in self.off:
            wrong = self._wrong(line)
            for sure in (True, False):
                fine = [
                    index for index in wrong if self.read.found[index] and all(self._fine(index, back, sure))
                ]
                if fine:
                    found[line.number] = self._edge(line, wrong, fine[0], sure, back)
                    break
        every = [*found.values(), *self._following(found, back)]
        # what returns to the reference, or is only multiplied with a number, may be meant so
        return sorted(
            every,
            key=lambda edge: (not edge.sure, edge.returns or edge.scaled, edge.start is not None),
        )

    def _following(self, before: Mapping[int, Edge], back: Collection[int]) -> Iterator[Edge]:
        """The lines that read what edges write, and those that read what these write."""
        found = dict(before)
        for _ in range(FAR):
            new: dict[int, Edge] = {}
            for line in self.off:
                wrong = () if line.number in found else self._wrong(line)
                for index in wrong:
                    starts = [found.get(number) for number in self._origins(index)]
                    if starts and all(start is not None and start.sure for start in starts):
                        new[line.number] = self._edge(line, wrong, index, True, back, starts[0])
                        break
            found.update(new)
            yield from new.values()

    def _edge(
        self,
        line: Line,
        wrong: tuple[int, ...],
        example: int,
        sure: bool,
        back: Collection[int],
        start: Edge | None = None,
    ) -> Edge:
        scaled = all(index in self.read.scaled for index in wrong)
        return Edge(line, wrong, example, self.read, self.seen, sure, line.number in back, scaled, start)

    def _wrong(self, line: Line) -> tuple[int, ...]:
        return tuple(
            index
            for index in line.instructions
            if index in self.read.written and index in self.seen and self.seen[index].kind in ("off", "part")
        )

    def _fine(self, index: int, back: Collection[int], sure: bool) -> Iterator[bool]:
        """For each tile that an instruction reads whether it is the reference's."""
        for name, sight in self.read.found[index].items():
            writers = () if sure else self.lines.writers(Slot(index, name))
            again = bool(writers) and all(self.lines.of(writer).number in back for writer in writers)
            yield sight.kind != "off" or again

    def _origins(self, index: int) -> Iterator[int]:
        """The numbers of the lines that wrote what an instruction reads that is none of the reference's."""
        for name, sight in self.read.found[index].items():
            if sight.kind == "off":
                for writer in self.lines.writers(Slot(index, name)) or (-1,):
                    yield self.lines.of(writer).number if writer >= 0 else -1

    def _returns(self, line: Line) -> bool:
        """True where all that is made of what a line writes wrong is the reference's again before it is stored."""
        left = [index for index in line.instructions if index in self.seen and not self._known(index)]
        met = set(left)
        while left:
            slot = next(iter(self.lines.written(left.pop())), None)
            readers = self.lines.flow.readers(slot) if slot is not None else ()
            found = {reader.instruction for reader in readers}
            if not found or UNKNOWN in found or len(met) > RETURNING:
                return False
            new = {index for index in found - met if index in self.seen and not self._known(index)}
            met |= new
            left += new
        return bool(met)

    def _known(self, index: int) -> bool:
        return self.seen[index].kind == "known"

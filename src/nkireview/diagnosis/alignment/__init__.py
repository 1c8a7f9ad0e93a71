"""Alignment: the first line of a kernel that leaves its reference, and what the reference has in its place.

The values of a reference's steps are searched for what each instruction of an unrounded run writes. Where what a line
reads are values of the reference and what it writes is none, those of a step of the reference are put there instead: it
is the cause where the outputs are right then. A line may differ from the reference and be right, as long as no change
of it makes wrong outputs right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.checks.dataflow import UNKNOWN, Slot, flow_of
from nkireview.diagnosis.algebra.hooks import plainly
from nkireview.diagnosis.alignment.figures import Figure, Figures, Float64, Place, Sight, blocks
from nkireview.diagnosis.alignment.watching import Put, Read, Written
from nkireview.diagnosis.flows.lines import Line, Lines
from nkireview.diagnosis.tolerance import Derivation
from nkireview.execute import Around
from nkireview.execute.step import MEANINGLESS
from nkireview.observed import RESULT, Observation

__all__ = ["Departure", "departure"]

AGREES, ROUNDED = 1e-7, 2e-5
"""Relative difference of one value in kernel and reference, and where the reference computes in float32."""
LINES, TRIES = 12, 96
"""Lines that leave the reference which are looked at, and runs with other values."""
PLACES = 3
"""Lines that are changed together."""


@dataclass(frozen=True)
class Departure:
    """Where a kernel leaves its reference: the instruction, a sentence; proven where a change makes it right."""

    instruction: int
    sentence: str
    proven: bool


def departure(
    derivation: Derivation,
    arguments: Mapping[int, NDArray[Any]],
    observed: Sequence[Observation],
    right: Callable[[Sequence[Float64]], bool],
    *,
    rounded: bool = False,
    more: Callable[[], bool] = lambda: True,
) -> Departure | None:
    """The first line that leaves the reference; None where none can be told.

    observed: the steps of the reference on these arguments. right: whether unrounded outputs are. rounded: the
    reference computes in float32. more: whether there is time for another run.
    """
    return _Alignment(derivation, arguments, observed, right, rounded, more).found()


@dataclass(frozen=True)
class _Change:
    """Other values for some instructions of a line, and the figure they are of; None for zeros."""

    line: Line
    given: Mapping[int, Float64]
    figure: Figure | None


class _Alignment:
    def __init__(
        self,
        derivation: Derivation,
        arguments: Mapping[int, NDArray[Any]],
        observed: Sequence[Observation],
        right: Callable[[Sequence[Float64]], bool],
        rounded: bool,
        more: Callable[[], bool],
    ) -> None:
        self._derivation, self._arguments, self._right, self._more = derivation, arguments, right, more
        self._figures = Figures(observed, ROUNDED if rounded else AGREES)
        self._lines = Lines(flow_of(derivation.program))
        self._tries = 0

    def found(self) -> Departure | None:
        if not self._figures.all:
            return None
        around: Around = plainly
        first: tuple[_Change, _Edge] | None = None
        others: list[_Change] = []
        fallback: Departure | None = None
        for _ in range(PLACES):
            seen = self._watched(around)
            edges = list(self._edges(seen, around))
            if first is None:
                fallback = self._left(edges)
                edges = [edge for edge in edges if edge.sure]
            edge, change, gained = self._best(edges, seen, around)
            if edge is None or change is None:
                break
            if first is None:
                first = change, edge
            else:
                others.append(change)
            if not gained:
                return self._proven(*first, others)
            if not others:
                fallback = self._follows(*first, gained)
            around = Put(change.given, around)
        return fallback

    def _run(self, around: Around) -> list[Float64] | None:
        """The outputs; None where the change has no meaning."""
        try:
            return self._derivation.run(self._arguments, around)
        except MEANINGLESS:
            return None

    def _watched(self, around: Around) -> dict[int, Sight]:
        watch = Written(self._figures, self._derivation.kinds, self._derivation.of, around)
        self._run(watch)
        return watch.found

    def _edges(self, seen: Mapping[int, Sight], around: Around) -> Iterator[_Edge]:
        """The lines that read values of the reference and write others.

        What only some instances of a line write is taken to be of the reference's where what others read of it becomes
        that again: those are not sure.
        """
        off = [
            line
            for line in self._lines.all
            if any(seen[index].kind in ("off", "part") for index in line.instructions if index in seen)
        ][:LINES]
        asked = [index for line in off for index in line.instructions if index in seen]
        read = Read(self._figures, asked, around)
        self._run(read)
        back = {line.number for line in off if self._returns(line, seen)}
        for line in off:
            wrong = [
                index
                for index in line.instructions
                if index in read.shapes and index in seen and seen[index].kind in ("off", "part")
            ]
            for strict in (True, False):
                fine = [
                    index
                    for index in wrong
                    if read.found[index] and all(self._fine(index, read, back, strict))
                ]
                if fine:
                    yield _Edge(line, tuple(wrong), fine[0], read, seen, strict, line.number in back)
                    break

    def _fine(self, index: int, read: Read, back: set[int], strict: bool) -> Iterator[bool]:
        """For each tile that an instruction reads whether it is the reference's."""
        for name, sight in read.found[index].items():
            if sight.kind != "off" or strict:
                yield sight.kind != "off"
                continue
            writers = self._lines.writers(Slot(index, name))
            yield bool(writers) and all(self._lines.of(writer).number in back for writer in writers)

    def _returns(self, line: Line, seen: Mapping[int, Sight]) -> bool:
        """True where something that reads what a line writes wrong is the reference's again."""
        return any(
            reader.instruction in seen and seen[reader.instruction].kind == "known"
            for index in line.instructions
            if index in seen and seen[index].kind != "known"
            for slot in self._lines.written(index)[:1]
            for reader in self._lines.flow.readers(slot)
            if reader.instruction != UNKNOWN
        )

    def _best(
        self, edges: Sequence[_Edge], seen: Mapping[int, Sight], around: Around
    ) -> tuple[_Edge | None, _Change | None, int]:
        """The first change that makes the outputs right, or further values those of the reference, and how many."""
        claimed = {sight.figure for sight in seen.values() if sight.kind == "known"}
        for edge in edges:
            for change in self._changes(edge, claimed):
                if self._tries >= TRIES or not self._more():
                    return None, None, 0
                self._tries += 1
                watch = Written(
                    self._figures, self._derivation.kinds, self._derivation.of, Put(change.given, around)
                )
                made = self._run(watch)
                if made is not None and self._right(made):
                    return edge, change, 0
                gained = 0 if made is None else _gained(watch.found, seen, change)
                if gained >= len(change.given):
                    return edge, change, gained
        return None, None, 0

    def _changes(self, edge: _Edge, claimed: set[int]) -> Iterator[_Change]:
        if (zeros := edge.without_others(self._figures)) is not None:
            yield _Change(edge.line, zeros, None)
        figures = [figure for figure in self._figures.all if not figure.given or edge.copies]
        # what the kernel never has comes first
        for figure in sorted(figures, key=lambda each: each.number in claimed):
            tried: list[Mapping[int, Float64]] = []
            for given in edge.filled(figure, self._figures):
                if not any(_same(given, other) for other in tried):
                    tried.append(given)
                    yield _Change(edge.line, given, figure)

    def _left(self, edges: Sequence[_Edge]) -> Departure | None:
        """What is known where no change makes it right: the first line that goes from the reference for good."""
        edge = next((each for each in edges if each.sure and not each.returns), None)
        if edge is None:
            return None
        text = self._lines.text(edge.example)
        return Departure(
            edge.example,
            f"{text} is where the kernel leaves its reference: it reads {self._reads(edge)}, and no step of the "
            "reference gives what it writes",
            False,
        )

    def _follows(self, change: _Change, edge: _Edge, gained: int) -> Departure:
        """What is known where a change makes further values right, and not all."""
        example, what = self._told(change, edge)
        return Departure(
            example, f"{what} in its place {gained} more instructions write the reference's values", False
        )

    def _proven(self, change: _Change, edge: _Edge, others: Sequence[_Change]) -> Departure:
        example, what = self._told(change, edge)
        also = ", ".join(self._lines.text(next(iter(each.given))) for each in others)
        once = f", once the same is done for {also}" if others else ""
        return Departure(example, f"{what} in its place the output is right{once}", True)

    def _told(self, change: _Change, edge: _Edge) -> tuple[int, str]:
        """The instruction that is changed, and the sentence up to what then holds."""
        example = edge.example if edge.example in change.given else next(iter(change.given))
        text, count = self._lines.text(example), len(change.line.instructions)
        of = f"in {len(change.given)} of {count} instructions " if len(change.given) < count else ""
        if change.figure is None:
            return example, (
                f"{text} writes {of}more than a step of the reference has: with zeros for what "
                f"{_step(self._figures[edge.seen[example].figure].observation)} has not"
            )
        return example, (
            f"{text} writes {of}from {self._reads(edge)} what no step of the reference gives: with "
            f"{_step(change.figure.observation)}"
        )

    def _reads(self, edge: _Edge) -> str:
        shapes = edge.read.reads[edge.example]
        names = [
            self._named(self._figures[sight.figure], sight, shapes[name])
            for name, sight in edge.read.found[edge.example].items()
            if sight.figure >= 0
        ]
        return " and ".join(dict.fromkeys(names)) or "other values"

    def _named(self, figure: Figure, sight: Sight, shape: tuple[int, int]) -> str:
        """An input with the part of it that is read, or a step."""
        if not figure.given:
            return _step(figure.observation)
        paths = [path for path, _ in self._derivation.program.parameter_buffers]
        name = paths[figure.number] if figure.number < len(paths) else f"argument {figure.number}"
        return name + ("" if sight.place is None else _part(sight.place, shape, figure.values.shape))


@dataclass(frozen=True, eq=False)
class _Edge:
    """A line that leaves the reference.

    wrong: its instructions that do; example: one that reads only the reference's values. sure: it surely does. returns:
    something that reads what it writes is the reference's again.
    """

    line: Line
    wrong: tuple[int, ...]
    example: int
    read: Read
    seen: Mapping[int, Sight]
    sure: bool
    returns: bool

    @property
    def copies(self) -> bool:
        return "copy" in self.line.opcode or "transpose" in self.line.opcode

    def without_others(self, figures: Figures) -> dict[int, Float64] | None:
        """The values with zeros where they are none of the figure that the others are of."""
        found = {}
        for index in self.wrong:
            sight, values = self.seen[index], self.read.written[index]
            if sight.kind == "part":
                has = figures[sight.figure].has(values.reshape(-1)).reshape(values.shape)
                if (values[~has] != 0).any():
                    found[index] = np.where(has, values, 0.0)
        return found or None

    def filled(self, figure: Figure, figures: Figures) -> Iterator[dict[int, Float64]]:
        """The figure's values in the places of the wrong instructions', in each way that fits."""
        placed = self._placed(figure, figures)
        if placed is not None:
            yield placed
        rows, columns = self.read.shapes[self.wrong[0]]
        every = [index for index in self.line.instructions if index in self.read.shapes]
        for cut in blocks(figure.values, rows, columns):
            for group in (every, list(self.wrong)):
                found = {index: cut[at % len(cut)] for at, index in enumerate(group)}
                given = {index: found[index] for index in self.wrong}
                if all(given[index].shape == self.read.shapes[index] for index in self.wrong):
                    yield given

    def _placed(self, figure: Figure, figures: Figures) -> dict[int, Float64] | None:
        """By where the elements lie that the instructions read."""
        found = {}
        for index in self.wrong:
            rows, columns = self.read.shapes[index]
            for sight in self.read.found[index].values():
                if sight.place is None or sight.figure < 0:
                    continue
                like = figures[sight.figure].values
                if like.shape == figure.values.shape:
                    at = sight.place.of(rows, columns)
                elif like.ndim and columns == 1 and figure.values.size * like.shape[-1] == like.size:
                    at = sight.place.of(rows, 1) // like.shape[-1]
                else:
                    continue
                if at.min() >= 0 and at.max() < figure.values.size:
                    found[index] = figure.values.reshape(-1)[at]
                    break
            else:
                return None
        return found


def _gained(after: Mapping[int, Sight], before: Mapping[int, Sight], change: _Change) -> int:
    """Writes that are now the reference's and no copies of what was put there."""
    number = -1 if change.figure is None else change.figure.number
    return sum(
        sight.kind == "known" and sight.figure != number and before[index].kind != "known"
        for index, sight in after.items()
        if index in before and index not in change.given
    )


def _same(one: Mapping[int, Float64], other: Mapping[int, Float64]) -> bool:
    return all(np.array_equal(one[index], other[index], equal_nan=True) for index in one)


def _part(place: Place, shape: tuple[int, int], of: tuple[int, ...]) -> str:
    """``[0:128, 0:64:2]``: the rows and columns of an array that a tile's elements are; empty where it is all."""
    width = of[-1] if of else 1
    sides = []
    start = divmod(place.first, width)
    ends = []
    for step, count in ((place.row, shape[0]), (place.column, shape[1])):
        ends.append((count, step))
    (rows, down), (columns, beside) = ends
    if rows > 1 and down % width and not beside % width:
        (rows, down), (columns, beside) = (columns, beside), (rows, down)
    if down % width or abs(beside) >= width:
        return ""
    for first, count, step in ((start[0], rows, down // width), (start[1], columns, beside)):
        stop = first + (count - 1) * step + (1 if step >= 0 else -1)
        sides.append(f"{first}:{stop}" + (f":{step}" if count > 1 and step not in (0, 1) else ""))
    return f"[{', '.join(sides)}]"


def _step(observation: Observation) -> str:
    if observation.name == RESULT:
        return "the reference's result"
    where = f" (line {observation.line} of the reference: `{observation.text}`)" if observation.line else ""
    return f"its {observation.name}{where}"

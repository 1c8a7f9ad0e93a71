"""Alignment: the first line of a kernel that leaves its reference, and what the reference has in its place.

The values of a reference's steps are searched for what each instruction of an unrounded run writes. Where what a line
reads are values of the reference and what it writes is none, those of a step of the reference are put there instead: it
is the cause where the outputs are right then. A line may differ from the reference and be right, as long as no change
of it makes wrong outputs right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.checks.dataflow import flow_of
from nkireview.diagnosis.algebra.hooks import plainly
from nkireview.diagnosis.alignment.edges import Edge, Search
from nkireview.diagnosis.alignment.figures import Figure, Figures, Float64, Sight
from nkireview.diagnosis.alignment.graph import arranged, below, beside, counterpart
from nkireview.diagnosis.alignment.loops import together
from nkireview.diagnosis.alignment.telling import part, quoted, reads, replaced
from nkireview.diagnosis.alignment.watching import Given, Put, Read, Written
from nkireview.diagnosis.flows.lines import Lines
from nkireview.diagnosis.tolerance import Derivation
from nkireview.execute import Around
from nkireview.execute.step import MEANINGLESS
from nkireview.observed import INPUT, RESULT, VIEW, Observation

__all__ = ["Departure", "departure"]

AGREES, ROUNDED = 1e-7, 2e-5
"""Relative difference of one value in kernel and reference, and where the reference computes in float32."""
LINES, TRIES = 16, 96
"""Lines that leave the reference which are looked at, and runs with other values for each that is changed."""
FURTHER = 32
"""Runs that are made in search of a change that makes all right after one that makes much right."""
TOGETHER = 3
"""Lines that are changed together."""
GAINED = 3
"""Further instructions that must write the reference's values after a change for each that is changed."""
MENDED = 0.75
"""Share of the wrong elements that may be left after a change that is kept for others to follow."""


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
    wrong: Callable[[Sequence[Float64]], float],
    *,
    rounded: bool = False,
    more: Callable[[], bool] = lambda: True,
) -> Departure | None:
    """The first line that leaves the reference; None where none can be told.

    observed: the steps of the reference on these arguments. wrong: the share of the elements of unrounded outputs that
    are. rounded: the reference computes in float32. more: whether there is time for another run.
    """
    return _Alignment(derivation, arguments, observed, wrong, rounded, more).found()


@dataclass(frozen=True)
class _Change:
    """Other values for the instructions of an edge, and the figure they are of; None for zeros.

    operand: what is read with these values; empty where they are written. left: the share of the outputs' elements that
    is wrong with them; gained: instructions that then write values of the reference and did not before.
    """

    edge: Edge
    given: Mapping[int, Float64]
    figure: Figure | None
    operand: str = ""
    left: float = 1.0
    gained: int = 0

    def around(self, inner: Around) -> Around:
        """What runs the Program with the change."""
        return Given(self.operand, self.given, inner) if self.operand else Put(self.given, inner)


class _Alignment:
    def __init__(
        self,
        derivation: Derivation,
        arguments: Mapping[int, NDArray[Any]],
        observed: Sequence[Observation],
        wrong: Callable[[Sequence[Float64]], float],
        rounded: bool,
        more: Callable[[], bool],
    ) -> None:
        self._derivation, self._arguments, self._wrong, self._more = derivation, arguments, wrong, more
        self._observed = together(observed)
        self._figures = Figures(self._observed, ROUNDED if rounded else AGREES)
        self._lines = Lines(flow_of(derivation.program))

    def found(self) -> Departure | None:
        """See `departure`."""
        if not self._figures.all or all(each.name in (INPUT, RESULT, VIEW) for each in self._observed):
            return None  # of a reference that is not NumPy's the result alone would stand for every step
        around: Around = plainly
        made: list[_Change] = []
        left = 1.0
        fallback: Departure | None = None
        for _ in range(TOGETHER):
            seen, share = self._watched(around)
            left = min(left, share)
            if left == 0:
                break
            edges = self._edges(seen, around)
            if not made:
                fallback = self._leaves(edges)
                edges = [edge for edge in edges if edge.sure]
            change = self._best(edges, seen, around, left)
            if change is None:
                break
            made.append(change)
            if change.left == 0:
                return self._proven(made)
            if len(made) == 1:
                fallback = self._follows(change)
            left = change.left
            around = change.around(around)
        return fallback

    def _run(self, around: Around) -> list[Float64] | None:
        """The outputs; None where the change has no meaning."""
        try:
            return self._derivation.run(self._arguments, around)
        except MEANINGLESS:
            return None

    def _watched(self, around: Around) -> tuple[dict[int, Sight], float]:
        """What each instruction writes, and the share of the outputs that is wrong."""
        watch = Written(self._figures, self._derivation.kinds, self._derivation.of, around)
        made = self._run(watch)
        return watch.found, 1.0 if made is None else self._wrong(made)

    def _edges(self, seen: Mapping[int, Sight], around: Around) -> list[Edge]:
        off = [
            line
            for line in self._lines.all
            if any(seen[index].kind in ("off", "part") for index in line.instructions if index in seen)
        ][:LINES]
        asked = [index for line in off for index in line.instructions]
        read = Read(self._figures, asked, seen, around)
        self._run(read)
        return Search(self._lines, off, read, seen).edges()

    def _best(
        self, edges: Sequence[Edge], seen: Mapping[int, Sight], around: Around, before: float
    ) -> _Change | None:
        """The first change that makes the outputs right; else that which makes many of them, or further values."""
        claimed = {sight.figure for sight in seen.values() if sight.kind == "known"}
        tries, most, kept = 0, TRIES, None
        for edge in edges:
            for changes in self._changes(edge, claimed):
                best: _Change | None = None
                for change in changes:
                    if tries >= most or not self._more():
                        return kept
                    tries += 1
                    after, left = self._watched(change.around(around))
                    found = replace(change, left=left, gained=_gained(after, seen, change))
                    if best is None or (left, -found.gained) < (best.left, -best.gained):
                        best = found
                    if left == 0:
                        break
                if best is not None and best.left == 0:
                    return best
                if kept is None and best is not None and (best.left <= MENDED * before or _follows(best)):
                    kept, most = best, min(TRIES, tries + FURTHER)
        return kept

    def _changes(self, edge: Edge, claimed: set[int]) -> Iterator[Iterator[_Change]]:
        """The changes that are tried of an edge, those that say the same in another way together."""
        if (zeros := edge.without_others(self._figures)) is not None:
            yield iter([_Change(edge, zeros, None)])
        for name, others in self._other_operands(edge):
            for number in others:
                figure = self._figures.get(number)
                if figure is not None:
                    yield self._operands(edge, name, figure)
        made = below(self._observed, edge.sources)
        figures = [
            figure
            for figure in self._figures.all
            if (figure.number not in edge.sources if edge.moves else not figure.given)
            and (not edge.sources or figure.number in made or figure.observation.name == RESULT)
        ]
        # what the kernel never has comes first
        for figure in sorted(figures, key=lambda each: each.number in claimed):
            yield self._results(edge, figure)

    def _other_operands(self, edge: Edge) -> Iterator[tuple[str, list[int]]]:
        """For each operand of an edge the figures that may be meant instead.

        Those with the same elements, those it is made of and those made of it; where it is nothing that is known, what
        the reference's step of the other operands reads.
        """
        if edge.start is not None:
            return
        like = counterpart(self._observed, edge.sources) if edge.sources else None
        for name, sight in edge.read.found[edge.example].items():
            if sight.kind == "known":
                others = arranged(self._observed, sight.figure)
                size = self._figures[sight.figure].values.size
                near = [
                    number
                    for number in beside(self._observed, sight.figure)
                    if number not in others and self._observed[number].values.size == size
                ]
                yield name, [*sorted(others), *near]
            elif sight.kind == "neutral" and like is not None:
                yield name, [number for number in like.reads if number not in edge.sources]

    def _operands(self, edge: Edge, name: str, figure: Figure) -> Iterator[_Change]:
        for given in edge.other_operands(name, figure, self._figures):
            yield _Change(edge, given, figure, name)

    def _results(self, edge: Edge, figure: Figure) -> Iterator[_Change]:
        tried: list[Mapping[int, Float64]] = []
        for given in edge.filled(figure, self._figures):
            if not any(_same(given, other) for other in tried):
                tried.append(given)
                yield _Change(edge, given, figure)

    def _leaves(self, edges: Sequence[Edge]) -> Departure | None:
        """What is known where no change makes it right: the first line that goes from the reference for good."""
        edge = next((each for each in edges if each.sure and not each.returns and each.start is None), None)
        if edge is None:
            return None
        like = counterpart(self._observed, edge.sources)
        other = "" if like is None else f"; of these the reference makes {quoted(like)}"
        return Departure(
            edge.example,
            f"{self._lines.text(edge.example)} is where the kernel leaves its reference: it reads {self._reads(edge)}, "
            f"and no step of the reference gives what it writes{other}",
            False,
        )

    def _follows(self, change: _Change) -> Departure:
        """What is known where a change makes more right, and not all."""
        then = (
            f"{change.gained} more instructions write the reference's values"
            if change.gained
            else f"{1 - change.left:.0%} of the output is right"
        )
        return Departure(change.edge.example, f"{self._told(change)} {then}", False)

    def _proven(self, made: Sequence[_Change]) -> Departure:
        also = ", ".join(self._lines.text(change.edge.example) for change in made[1:])
        once = f", once the same is done for {also}" if also else ""
        return Departure(made[0].edge.example, f"{self._told(made[0])} the output is right{once}", True)

    def _told(self, change: _Change) -> str:
        """The sentence up to what then holds."""
        edge, count = change.edge, len(change.edge.line.instructions)
        text = self._lines.text(edge.example)
        of = f" in {len(change.given)} of {count} instructions" if len(change.given) < count else ""
        if change.figure is None:
            like = self._figures[edge.partly(next(iter(change.given))).figure].observation
            more = f"{text} writes{of} more than a step of the reference has"
            return f"{more}: with zeros for what {quoted(like)} has not in its place"
        start = edge
        while start.start is not None:
            start = start.start
        by = "" if start is edge else f", by {self._lines.text(start.example)}"
        if change.operand:
            mine = replaced(edge, change.operand, self._figures, self._derivation.program)
            read = edge.read.found[edge.example][change.operand]
            other = part(change.figure, change.given[edge.example], read, self._derivation.program)
            return f"{text} reads {self._reads(edge)}: with {other} for {mine}"
        return (
            f"{text} writes{of}, from {self._reads(start)}{by}, what no step of the reference gives: with "
            f"{quoted(change.figure.observation)} in its place"
        )

    def _reads(self, edge: Edge) -> str:
        return reads(edge, self._figures, self._derivation.program)


def _gained(after: Mapping[int, Sight], before: Mapping[int, Sight], change: _Change) -> int:
    """Writes that are now the reference's and no copies of what was put there, or of what is read beside it."""
    own = set() if change.figure is None else {change.figure.number}
    if change.operand:
        own |= change.edge.sources
    put = () if change.operand else change.given
    return sum(
        sight.kind == "known" and sight.figure not in own and before[index].kind != "known"
        for index, sight in after.items()
        if index in before and index not in put
    )


def _follows(change: _Change) -> bool:
    """True where so much is the reference's after a change that it must be right."""
    return change.gained >= (len(change.edge.wrong) if change.operand else GAINED * len(change.given))


def _same(one: Mapping[int, Float64], other: Mapping[int, Float64]) -> bool:
    return all(np.array_equal(one[index], other[index], equal_nan=True) for index in one)

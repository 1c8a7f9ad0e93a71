"""Tiles that are read from, or stored to, another place than was meant."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from nkireview.checks.dataflow import Slot
from nkireview.diagnosis.algebra.hooks import Values
from nkireview.diagnosis.algebra.lines import Line
from nkireview.diagnosis.habits.rewriting import moved, rewired
from nkireview.diagnosis.habits.survey import Survey
from nkireview.diagnosis.repair import Repair

CAUSE = "tile-offset"
LINES = 6
"""Lines that are tried."""
ROLLED = 4
"""Parameters that are tried."""


@dataclass(frozen=True)
class Tiles:
    """The tiles in HBM that a line reads or writes by one operand.

    at: instruction -> access, in order; bases, by access; alike: the accesses of the most common pattern, ascending.
    """

    line: Line
    operand: str
    at: Mapping[int, int]
    bases: Mapping[int, int]
    alike: tuple[int, ...]

    @property
    def verb(self) -> str:
        """What the line does with them."""
        return "reads" if self.operand == "src" else "stores"

    @property
    def step(self) -> int:
        """How far each tile lies after the one before; 0 where that differs."""
        apart = {self.bases[b] - self.bases[a] for a, b in pairwise(self.alike)}
        return apart.pop() if len(apart) == 1 else 0


def tiles(survey: Survey) -> Iterator[Tiles]:
    """Those of the first lines that have several."""
    program, columns = survey.program, survey.program.columns
    made = 0
    for line in survey.sites_of("dma_copy"):
        for operand in ("src", "dst"):
            if not line.call.has(operand) or line.call.tiles[operand].on_chip or made == LINES:
                continue
            at = {}
            for index in line.instructions:
                names = program.opcodes[columns.opcode[index]].operands
                at[index] = int(columns.operand[columns.operand_at[index] + names.index(operand)])
            if any(access in program.extras for access in at.values()):
                continue
            groups: dict[tuple[object, ...], list[int]] = {}
            for access in dict.fromkeys(at.values()):
                held = program.access(access)
                groups.setdefault((held.buffer, held.pattern), []).append(access)
            most = max(groups.values(), key=len)
            bases = {access: program.access(access).base for access in at.values()}
            if len(at) > 1:
                made += 1
                yield Tiles(line, operand, at, bases, tuple(sorted(most, key=bases.__getitem__)))


def permuted(survey: Survey) -> Iterator[Repair]:
    """Tiles in another order: the next, the one before, the last first, the grid of them transposed."""
    for found in tiles(survey):
        count = len(found.alike)
        if count < 2:
            continue
        for said, order in _orders(count):
            place = {access: found.alike[order[at]] for at, access in enumerate(found.alike)}
            given = {
                Slot(index, found.operand): place[access]
                for index, access in found.at.items()
                if access in place
            }
            sentence = (
                f"{found.line.opcode} {found.verb} {count} tiles in this order: {said} the output matches"
            )
            yield survey.repair(CAUSE, sentence, found.line.first, program=rewired(survey.program, given))


def _orders(count: int) -> Iterator[tuple[str, list[int]]]:
    """Which of so many tiles each one may stand for."""
    every = list(range(count))
    yield "in reverse order", every[::-1]
    if count > 2:
        yield "each one tile further on", every[1:] + every[:1]
        yield "each one tile further back", every[-1:] + every[:-1]
    side = math.isqrt(count)
    if side * side == count and side > 1:
        yield "with rows and columns of tiles exchanged", [at % side * side + at // side for at in every]


def starts(survey: Survey) -> Iterator[Repair]:
    """Tiles that do not begin where the ones before them end; all tiles one further on or back."""
    for found in tiles(survey):
        line, step = found.line, found.step
        tail = [index for index, access in found.at.items() if access not in found.alike]
        for by in _extents(survey, found):
            at = found.bases[found.alike[-1]] + by
            given = {
                Slot(index, found.operand): (found.at[index], at)
                for index in tail
                if found.bases[found.at[index]] != at and _inside(survey, found.at[index], at)
            }
            if given:
                sentence = (
                    f"the last tile that {line.opcode} {found.verb} begins at {found.bases[found.at[tail[0]]]}: "
                    f"at {at}, where the tiles before it end, the output matches"
                )
                yield survey.repair(CAUSE, sentence, tail[0], program=moved(survey.program, given))
        yield from _straight(survey, found)
        # stores that are all moved would leave a tile without a value
        both = (("further on", step), ("further back", -step)) if found.operand == "src" and step else ()
        for said, by in both:
            given = _shifted(survey, found, lambda at, base, by=by: base + by)  # type: ignore[misc]
            if given:
                sentence = (
                    f"{line.opcode} {found.verb} tiles that begin here: one tile {said} the output matches"
                )
                yield survey.repair(CAUSE, sentence, line.first, program=moved(survey.program, given))


def _extents(survey: Survey, found: Tiles) -> tuple[int, ...]:
    """How far tiles that follow one another may lie apart: as most of them do, by their rows, by their columns."""
    pattern = survey.program.access(found.alike[0]).pattern
    rows, columns = pattern[0][0] * pattern[0][1], pattern[-1][0] * pattern[-1][1]
    narrow = len(pattern) > 1 and columns < pattern[-2][0]
    return tuple(dict.fromkeys([step for step in (found.step, columns if narrow else 0, rows) if step]))


def _straight(survey: Survey, found: Tiles) -> Iterator[Repair]:
    """Each tile right after the one before, where the line has some twice."""
    first = found.bases[found.alike[0]]
    apart_now = {b - a for a, b in pairwise(found.bases[access] for access in found.at.values())}
    for apart in _extents(survey, found):
        if apart_now == {apart}:
            return
        given = _shifted(survey, found, lambda at, base, apart=apart: first + at * apart)  # type: ignore[misc]
        if given:
            sentence = (
                f"{found.line.opcode} {found.verb} {len(found.at)} tiles that do not follow one another: each {apart} "
                "elements after the one before the output matches"
            )
            yield survey.repair(CAUSE, sentence, found.line.first, program=moved(survey.program, given))


def _shifted(survey: Survey, found: Tiles, where: Callable[[int, int], int]) -> dict[Slot, tuple[int, int]]:
    """Tiles at other bases where those lie in the buffer: where(number of the instruction, base)."""
    given = {}
    for at, (index, access) in enumerate(found.at.items()):
        base = where(at, found.bases[access])
        if base != found.bases[access] and _inside(survey, access, base):
            given[Slot(index, found.operand)] = access, base
    return given


def _inside(survey: Survey, access: int, base: int) -> bool:
    held = survey.program.access(access)
    if any(stride < 0 for stride, _ in held.pattern):
        return False
    last = base + sum(stride * (count - 1) for stride, count in held.pattern)
    return base >= 0 and last < math.prod(survey.program.buffer(held.buffer).shape)


def rolled(survey: Survey) -> Iterator[Repair]:
    """A parameter read one element, row or column too far on, or too far back."""
    for one in survey.floats[:ROLLED]:
        for axis in range(len(one.shape))[-2:]:
            if one.shape[axis] < 2:
                continue
            for said, by in (("on", 1), ("back", -1)):
                sentence = (
                    f"{one.path} is read one place too far {said} along axis {axis}: read from the place beside it the "
                    "output matches"
                )
                yield survey.given(CAUSE, sentence, one, _roll(by, axis))


def _roll(by: int, axis: int) -> Callable[[Values], Values]:
    return lambda values: np.roll(values, by, axis)

"""Lines: instructions of one line of the source that do the same, which a repair changes together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nkireview.checks.dataflow import Dataflow, Slot
from nkireview.diagnosis.repair import Repair
from nkireview.execute import Around
from nkireview.isa import dtypes
from nkireview.program.call import CallView
from nkireview.program.edited import edited
from nkireview.program.interning import by_opcode, intern

Immediates = Mapping[str, Any]
Change = Callable[[Immediates], Immediates | None]
"""The immediates to have instead of those given; None where they stay."""

NAMED = 2
"""Lines that a sentence names; of more it says how many."""


@dataclass(frozen=True, eq=False)
class Line:
    """Instructions with one opcode, the same operators and the same operands, of one line or of lines alike.

    places: their ``file:line``. instructions: ascending; call: the first of them.
    """

    flow: Dataflow = field(repr=False)
    places: tuple[str, ...]
    instructions: tuple[int, ...]
    call: CallView = field(repr=False)

    @property
    def first(self) -> int:
        """The first instruction."""
        return self.instructions[0]

    @property
    def opcode(self) -> str:
        """The name of the row."""
        return self.call.row.name

    @property
    def where(self) -> str:
        """The places for the end of a sentence, in brackets after a blank; empty where they are not known."""
        known = [place for place in self.places if place]
        if not known:
            return ""
        rest = f" and {len(known) - NAMED} more" if len(known) > NAMED else ""
        return f" ({', '.join(known[:NAMED])}{rest})"

    def slot(self, operand: str) -> Slot:
        """An operand of the first instruction."""
        return Slot(self.first, operand)

    def floats(self, operand: str) -> bool:
        """True where the operand is a tile of floats."""
        return self.call.has(operand) and dtypes.BY_NAME[self.call.dtype(operand)].kind == "float"

    def edits(self, change: Change) -> dict[int, Immediates]:
        """What `edited` takes to change all instructions; those whose immediates stay are left out."""
        program = self.flow.program
        made: dict[int, Immediates | None] = {}
        found: dict[int, Immediates] = {}
        for index in self.instructions:
            number = int(program.columns.immediates[index])
            if number not in made:
                made[number] = change(program.immediates[number])
            given = made[number]
            if given is not None:
                found[index] = given
        return found

    def repair(
        self,
        cause: str,
        sentence: str,
        edits: Mapping[int, Immediates] | None = None,
        around: Around | None = None,
    ) -> Iterator[Repair]:
        """The repair by edits of immediates, by another execution, or both; none where edits are given but empty."""
        program = self.flow.program
        if edits is not None:
            if not edits:
                return
            program = edited(program, edits)
        yield Repair(cause, f"{sentence}{self.where}", self.first, program, around)


def lines_of(flow: Dataflow) -> tuple[Line, ...]:
    """All lines, in order of the program; instructions without a row are left out."""
    program, columns = flow.program, flow.program.columns
    groups: dict[tuple[Any, ...], list[int]] = {}
    for code, rows, accesses in by_opcode(program):
        name = program.opcodes[code].name
        given = [accesses[:, at] >= 0 for at in range(accesses.shape[1])]
        classes = intern([columns.place[rows], columns.immediates[rows], *given], len(rows))
        order = np.argsort(classes.of, kind="stable")
        members = np.split(rows[order], np.flatnonzero(np.diff(classes.of[order])) + 1)
        for at, indices in zip(classes.first.tolist(), members, strict=True):
            place, immediates = int(columns.place[rows[at]]), int(columns.immediates[rows[at]])
            tiles = tuple(bool(column[at]) for column in given)
            where = program.place_text(place) or place
            key = (where, name, tiles, _signature(program.immediates[immediates]))
            groups.setdefault(key, []).extend(indices.tolist())
    found = []
    for (where, *_), members_of in groups.items():
        call = flow.call(min(members_of))
        if call is not None:
            places = (where,) if isinstance(where, str) else ("",)
            found.append(Line(flow, places, tuple(sorted(members_of)), call))
    return tuple(sorted(found, key=lambda line: line.first))


def with_alike(given: Iterable[Line]) -> Iterator[Line]:
    """Lines that are alike as one, as a kernel may do the same wrong thing in several places; then each line."""
    every = list(given)
    alike: dict[tuple[Any, ...], list[Line]] = {}
    for line in every:
        alike.setdefault((line.opcode, _signature(line.call.immediates), *line.call.tiles), []).append(line)
    yield from (joined(group) for group in alike.values() if len(group) > 1)
    yield from every


def joined(group: Sequence[Line]) -> Line:
    """Several lines as one."""
    indices = sorted(index for line in group for index in line.instructions)
    places = tuple(dict.fromkeys(place for line in group for place in line.places))
    return Line(group[0].flow, places, tuple(indices), group[0].call)


def having(name: str, value: str) -> Change:
    """Immediates with another operator, or another name."""
    return lambda given: {**given, name: value}


def flipped(name: str) -> Change:
    """Immediates with a flag the other way."""
    return lambda given: {**given, name: not given.get(name)}


def _signature(immediates: Immediates) -> tuple[tuple[str, str], ...]:
    """What of the immediates is no number: operators and flags."""
    kept = ((name, str(value)) for name, value in immediates.items() if isinstance(value, str | bool))
    return tuple(sorted((name, value) for name, value in kept if name != "name"))

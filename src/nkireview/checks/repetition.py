"""Repetition: instructions that do again, on contents that have not changed, what was done before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.isa.rows import random
from nkireview.isa.table import ROWS
from nkireview.program.interning import Ints, by_rank, intern
from nkireview.program.program import Program
from nkireview.program.storage import READS, WHOLE, WRITES, Storage
from nkireview.schedule.reuse import Places

VIEWS = 32
"""Views of one place that are told apart; with more, they are taken together as one."""
DRAWING = frozenset(row.name for row in random.ROWS)
"""Instructions that draw, each time anew."""
_ODD, _TOGETHER = -1, -2
"""Views of their own kind: one that is not affine or is addressed on the device, and several taken as one."""
_Key = tuple[object, ...]


@dataclass(frozen=True, eq=False)
class Repetition:
    """Instructions whose result an earlier one has left behind in the same form.

    `instruction`: those that write on chip only, and whose result nothing but the like of them changes in place, so
    that the first result could have been kept. `kept_bytes`: bytes a partition of the results that others read, once
    each, on the core that needs most.
    """

    instruction: Ints
    kept_bytes: int


def repetition(program: Program, stored: Storage) -> Repetition:
    """The repetitions of a Program, by the numbering of values.

    Two instructions are alike where opcode, immediates, views and the contents that they read are. A content is what
    was written to a place, view by view, or what HBM held from the start. What several streams touch, what overlaps by
    explicit address and what is addressed on the device is never alike. Programs with device-side loops are not
    looked at: one pass does not tell what their bodies find on the second trip.
    """
    if program.loops:
        return Repetition(np.zeros(0, np.int64), 0)
    walk = _Walk(program, stored)
    kept = 0
    for stream in program.streams:
        kept = max(kept, walk.run(stream.start, stream.stop))
    return Repetition(np.array(sorted(walk.repeated), np.int64), kept)


class _Walk:
    """Each stream from its first instruction to its last."""

    def __init__(self, program: Program, stored: Storage) -> None:
        columns = program.columns
        self._at: list[int] = columns.operand_at.tolist()
        self._place: list[int] = stored.place.tolist()
        self._use: list[int] = stored.use.tolist()
        self._access: list[int] = columns.operand.tolist()
        self._view: list[int] = _views(program).tolist()
        what: list[NDArray[Any]] = [columns.opcode, columns.immediates, columns.engine]
        self._what: list[int] = intern(what, len(program)).of.tolist()
        self._strange = _strange(program, stored)
        self._apart = frozenset(stored.touching) | _shared(program, stored)
        places = Places.of(program, stored)
        self._size: list[int] = places.size.tolist()
        self._on_chip: list[bool] = (places.memory >= 0).tolist()
        self._content: dict[int, dict[int, int]] = {}
        self._tokens: dict[int, int] = {}
        self._numbers: dict[_Key, int] = {}
        self._next = 0
        self._made: dict[int, dict[int, int]] = {}
        self.repeated: set[int] = set()

    def run(self, start: int, stop: int) -> int:
        """Walk a stream; the bytes a partition of what would have to be kept."""
        self._content, self._tokens, self._numbers, self._made = {}, {}, {}, {}
        kept: dict[int, int] = {}
        for index in range(start, stop):
            number, again = self._number(index)
            span = range(self._at[index], self._at[index + 1])
            if again:
                self.repeated.add(index)
            else:
                for slot in span:
                    if self._use[slot] & READS and self._made.get(self._place[slot]):
                        kept[self._token(self._place[slot])] = self._size[self._place[slot]]
            read = {self._place[slot] for slot in span if self._use[slot] & READS}
            for slot in span:
                if self._use[slot] & WRITES:
                    # the position among the operands tells two results of one instruction apart
                    result = self._of(("result", number, slot - span.start))[0]
                    self._write(slot, result, self._place[slot] in read, index if again else None)
        return sum(kept.values())

    def _number(self, index: int) -> tuple[int, bool]:
        """The number of what an instruction computes, and whether it was computed before and stays on chip."""
        key: list[object] = [self._what[index]]
        alike, here = not self._strange[index], True
        for slot in range(self._at[index], self._at[index + 1]):
            place, access = self._place[slot], self._access[slot]
            if access < 0:
                key.append(None)
                continue
            alike = alike and self._view[access] != _ODD and place not in self._apart
            key.append(self._view[access])
            if self._use[slot] & READS:
                key.append(self._token(place))
            if self._use[slot] & WRITES:
                here = here and self._on_chip[place]
        if not alike:
            return self._fresh(), False
        number, known = self._of(tuple(key))
        return number, known and here

    def _of(self, key: _Key) -> tuple[int, bool]:
        known = self._numbers.get(key)
        if known is not None:
            return known, True
        number = self._numbers[key] = self._fresh()
        return number, False

    def _fresh(self) -> int:
        self._next += 1
        return self._next

    def _token(self, place: int) -> int:
        """The number of what a place holds."""
        found = self._tokens.get(place)
        if found is None:
            content = self._content.get(place)
            # memory on chip that nothing wrote holds nothing in particular
            key = tuple(content.items()) if content else () if self._on_chip[place] else ("given", place)
            found = self._tokens[place] = self._of(("content", key))[0]
        return found

    def _write(self, slot: int, result: int, reads: bool, again: int | None) -> None:
        """Note what an operand writes; `reads` where the instruction also reads that place, `again` is the instruction
        where it is a repetition."""
        place, view = self._place[slot], self._view[self._access[slot]]
        whole = self._use[slot] & WHOLE
        content, made = self._content.setdefault(place, {}), self._made.setdefault(place, {})
        if not content and not self._on_chip[place]:
            content[_TOGETHER] = self._token(place)
        if again is None:
            changed = made.values() if reads else () if whole else _others(made, view)
            self.repeated.difference_update(changed)
            made.clear()
        elif whole:
            made.clear()
        if whole:
            content.clear()
        content.pop(view, None)
        content[view] = result
        if len(content) > VIEWS:
            together = self._of(("together", tuple(content.items())))[0]
            content.clear()
            content[_TOGETHER] = together
        if again is not None:
            made[view] = again
        self._tokens.pop(place, None)


def _others(made: Mapping[int, int], view: int) -> tuple[int, ...]:
    return tuple(index for known, index in made.items() if known != view)


def _views(program: Program) -> Ints:
    """A number for what each access touches, whichever its buffer; `_ODD` where that is not affine."""
    columns = program.columns
    found = np.full(columns.accesses, _ODD, np.int64)
    count = 0
    for _, rows, at in by_rank(columns.axis_at):
        axes = [
            column[at[:, axis]]
            for axis in range(at.shape[1])
            for column in (columns.axis_stride, columns.axis_count)
        ]
        given: list[NDArray[Any]] = [
            columns.access_dtype[rows],
            columns.access_base[rows],
            columns.access_partition[rows],
        ]
        classes = intern([*given, *axes], len(rows))
        found[rows] = classes.of + count
        count += len(classes)
    found[list(program.extras)] = _ODD
    return found


def _strange(program: Program, stored: Storage) -> list[bool]:
    """Which instructions also depend on registers, on the state of an engine, or on what others bring to a meeting."""
    odd = [
        number in stored.registers or row.get("reduce_cmd") not in (None, "idle")
        for number, row in enumerate(program.immediates)
    ]
    apart = [
        opcode.name in DRAWING or (opcode.name in ROWS and bool(ROWS[opcode.name].meets))
        for opcode in program.opcodes
    ]
    columns = program.columns
    strange = np.array(odd or [False], bool)[columns.immediates]
    found: list[bool] = (strange | np.array(apart or [False], bool)[columns.opcode]).tolist()
    return found


def _shared(program: Program, stored: Storage) -> frozenset[int]:
    """The places that several streams touch and one writes."""
    columns = program.columns
    touched: list[Ints] = []
    for stream in program.streams:
        span = slice(int(columns.operand_at[stream.start]), int(columns.operand_at[stream.stop]))
        touched.append(np.unique(stored.place[span]))
    places, counts = np.unique(np.concatenate(touched or [np.zeros(0, np.int64)]), return_counts=True)
    written = np.unique(stored.place[(stored.use & WRITES) > 0])
    return frozenset(np.intersect1d(places[counts > 1], written).tolist())

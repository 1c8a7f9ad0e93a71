"""Replicas: instructions of several cores that surely compute the same value, by the numbering of values.

Two instructions are alike where opcode, immediates, views and the contents that they read are. The content of a place
is what its core has written to it since it was empty or given. What draws, meets, uses registers, runs in a loop on the
device or is addressed there is like nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.isa.row import Row
from nkireview.isa.rows import random
from nkireview.program.interning import Ints, by_rank, intern
from nkireview.program.program import MEMORIES, Program
from nkireview.program.storage import READS, WHOLE, WRITES, Storage

DRAWING = frozenset(row.name for row in random.ROWS)


def replicas(program: Program, rows: Mapping[str, Row], stored: Storage) -> Ints:
    """A number for each instruction; instructions with one number compute the same from the same."""
    numbers = _Numbers()
    columns = program.columns
    what = intern([columns.opcode, columns.immediates, columns.engine], len(program)).of.tolist()
    views, odd, chains = _views(program), _odd(program, rows, stored).tolist(), _chains(program, rows)
    at, access = columns.operand_at.tolist(), columns.operand.tolist()
    place, use, opcode = stored.place.tolist(), stored.use.tolist(), columns.opcode.tolist()
    given = _given(program, stored)
    found = np.zeros(len(program), np.int64)
    for core in sorted({stream.core for stream in program.streams}):
        content: dict[int, int] = {}

        def of(where: int, content: dict[int, int] = content) -> int:
            held = content.get(where)
            return numbers.of(("given", where if given[where] else -1)) if held is None else held

        engine = 0
        for stream in program.streams:
            for index in range(stream.start, stream.stop) if stream.core == core else ():
                span = range(at[index], at[index + 1])
                key: list[object] = [what[index], engine if chains[opcode[index]] else 0]
                for slot in span:
                    reads = place[slot] >= 0 and use[slot] & READS
                    key.append((views[access[slot]], of(place[slot]) if reads else 0))
                number = numbers.fresh() if odd[index] else numbers.of(tuple(key))
                found[index] = number
                if chains[opcode[index]]:
                    engine = number
                for slot in span:
                    if not use[slot] & WRITES:
                        continue
                    written = number, slot - span.start
                    old = 0 if use[slot] & WHOLE else of(place[slot])
                    content[place[slot]] = numbers.of(("written", old, views[access[slot]], *written))
                    for other in stored.touching.get(place[slot], ()):
                        content[other] = numbers.of(("over", of(other), *written))
    return found


class _Numbers:
    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], int] = {}
        self._next = 0

    def of(self, key: tuple[object, ...]) -> int:
        """The number of a key."""
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self.fresh()
        return found

    def fresh(self) -> int:
        """A number of its own."""
        self._next += 1
        return self._next


def _views(program: Program) -> list[int]:
    """A number for what each access touches, whichever its buffer; the last one for no access."""
    columns = program.columns
    found = np.zeros(columns.accesses + 1, np.int64)
    count = 1
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
    extras: dict[object, int] = {}
    for access, extra in program.extras.items():
        key = int(found[access]), extra.bounds, extra.table
        found[access] = extras.setdefault(key, count + len(extras))
    numbers: list[int] = found.tolist()
    return numbers


def _odd(program: Program, rows: Mapping[str, Row], stored: Storage) -> NDArray[np.bool_]:
    """Instructions that are like nothing else."""
    columns = program.columns
    names = [opcode.name for opcode in program.opcodes]
    apart = [name not in rows or bool(rows[name].meets) or name in DRAWING for name in names]
    found = np.array([*apart, False])[columns.opcode]
    found |= np.array([*(number in stored.registers for number in range(len(program.immediates))), False])[
        columns.immediates
    ]
    for loop in program.loops:
        found[loop.start : loop.stop] = True
    vague = np.zeros(columns.accesses + 1, bool)
    vague[list(stored.indices)] = True
    owner = np.repeat(np.arange(len(program)), np.diff(columns.operand_at))
    found[owner[vague[columns.operand]]] = True
    return found


def _chains(program: Program, rows: Mapping[str, Row]) -> list[bool]:
    """Opcodes that may use what earlier ones have left in registers of an engine."""
    return [
        opcode.name in rows
        and (
            "reduce_res" in rows[opcode.name].flow
            or any(param.name == "reduce_cmd" for param in rows[opcode.name].signature)
        )
        for opcode in program.opcodes
    ]


def _given(program: Program, stored: Storage) -> list[bool]:
    """Places in HBM, which may hold something from the start; anything else is empty."""
    columns = program.columns
    on_chip = np.array([memory.on_chip for memory in MEMORIES])[columns.buffer_memory]
    found = np.zeros(stored.count + 1, bool)
    found[stored.of_buffer[~on_chip]] = True
    held: list[bool] = found.tolist()
    return held

"""Dependences, against the order that every two conflicting instructions of a small program must keep."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from execute_kit import Kernel, View, counted
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from nkireview.isa.table import ROWS
from nkireview.program.footprint import offsets
from nkireview.program.program import Program
from nkireview.program.scope import Scope
from nkireview.program.storage import storage
from nkireview.schedule.cells import cells
from nkireview.schedule.dependences import Dependences, Why, dependences
from nkireview.schedule.touches import touches

CELLS = 256


def found(program: Program) -> Dependences:
    stored = storage(program, ROWS)
    return dependences(program, touches(program, stored, cells(Scope.of(program, ROWS), stored, CELLS)))


def pairs(program: Program) -> dict[tuple[int, int], Why]:
    """(producer, consumer) and why."""
    edges = found(program)
    consumer = np.repeat(np.arange(len(program)), np.diff(edges.at)).tolist()
    return {
        (producer, at): Why(why)
        for producer, at, why in zip(edges.producer.tolist(), consumer, edges.why.tolist(), strict=True)
    }


def test_each_kind_of_dependence() -> None:
    kernel = Kernel()
    x = kernel.argument(counted(128, 8))
    tile, other = kernel.sbuf(128, 8), kernel.sbuf(128, 8)
    kernel.copy(tile, x)
    kernel.copy(other, tile)
    kernel.copy(tile, x)
    kernel.copy(tile, x)
    kernel.store(other)
    assert pairs(kernel.program()) == {
        (0, 1): Why.data,
        (1, 2): Why.reuse,
        (0, 2): Why.rewrite,
        (2, 3): Why.rewrite,
        (1, 4): Why.data,
    }


def test_parts_of_a_tile_are_told_apart() -> None:
    kernel = Kernel()
    x, tile, half = kernel.argument(counted(128, 8)), kernel.sbuf(128, 8), kernel.sbuf(128, 4)
    kernel.copy(tile[:, 0:4], x[:, 0:4])
    kernel.copy(tile[:, 4:8], x[:, 4:8])
    kernel.copy(half, tile[:, 4:8])
    kernel.store(half)
    assert pairs(kernel.program()) == {(1, 2): Why.data, (2, 3): Why.data}


def test_an_instruction_that_reads_what_it_writes() -> None:
    kernel = Kernel()
    x, tile = kernel.argument(counted(128, 8)), kernel.sbuf(128, 8)
    kernel.copy(tile, x)
    kernel.call("tensor_tensor", dst=tile, data1=tile, data2=tile, op="add")
    kernel.copy(tile, x)
    kernel.store(tile)
    assert pairs(kernel.program()) == {(0, 1): Why.data, (1, 2): Why.rewrite, (2, 3): Why.data}


@st.composite
def copies(draw: st.DrawFn) -> list[tuple[int, slice, int, slice]]:
    """Copies between parts of three tiles of eight columns: (to, columns, from, columns)."""
    count = draw(st.integers(1, 14))
    rows = []
    for _ in range(count):
        width = draw(st.sampled_from([1, 2, 4]))
        to, source = draw(st.integers(0, 2)), draw(st.integers(0, 2))
        first, second = (draw(st.integers(0, 8 - width)) for _ in range(2))
        rows.append((to, slice(first, first + width), source, slice(second, second + width)))
    return rows


def _elements(program: Program) -> list[list[tuple[int, frozenset[int], bool]]]:
    """By instruction: buffer, elements, whether they are written."""
    columns = program.columns
    result: list[list[tuple[int, frozenset[int], bool]]] = []
    for index in range(len(program)):
        opcode = program.opcodes[columns.opcode[index]]
        row = {operand.name: operand.role for operand in ROWS[opcode.name].operands}
        uses = []
        for slot, name in enumerate(opcode.operands):
            number = int(columns.operand[columns.operand_at[index] + slot])
            if number >= 0:
                access = program.access(number)
                held = frozenset(offsets(access).reshape(-1).tolist())
                uses.append((access.buffer, held, row[name].writes))
        result.append(uses)
    return result


def _closure(count: int, edges: set[tuple[int, int]]) -> NDArray[np.bool_]:
    before = np.zeros((count, count), bool)
    for producer, consumer in edges:
        before[producer, consumer] = True
    for middle in range(count):
        before |= before[:, middle : middle + 1] & before[middle : middle + 1, :]
    return before


@settings(max_examples=200, deadline=None)
@given(copies())
def test_they_order_what_conflicts_and_nothing_else(rows: list[tuple[int, slice, int, slice]]) -> None:
    kernel = Kernel()
    tiles: list[View] = [kernel.sbuf(128, 8) for _ in range(3)]
    for to, columns, source, others in rows:
        kernel.copy(tiles[to][:, columns], tiles[source][:, others])
    program = kernel.program()
    elements = _elements(program)
    conflicts = {
        (first, second)
        for first, second in combinations(range(len(program)), 2)
        if any(
            one[0] == other[0] and one[1] & other[1] and (one[2] or other[2])
            for one in elements[first]
            for other in elements[second]
        )
    }
    edges = found(program)
    consumer = np.repeat(np.arange(len(program)), np.diff(edges.at)).tolist()
    mine = set(zip(edges.producer.tolist(), consumer, strict=True))
    assert mine <= conflicts
    np.testing.assert_array_equal(_closure(len(program), mine), _closure(len(program), conflicts))

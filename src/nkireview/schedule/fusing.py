"""Fusing: copies and narrow instructions that the legacy compiler does away with, or runs as one.

A copy from PSUM goes where all that read the copy can read PSUM, and so does a sum with zeros just written.
Instructions of one line of a parallel loop that touch a few elements of each partition run as one for many turns of
the loop, and so do copies of small tiles of PSUM into one tile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nkireview.isa import dtypes
from nkireview.isa.enums import Memory
from nkireview.program.interning import Ints, by_opcode, intern, members
from nkireview.program.program import MEMORIES, Program
from nkireview.program.scope import Scope
from nkireview.schedule.costs import GPSIMD, SCALAR, TENSOR, VECTOR, Costs
from nkireview.schedule.dependences import Dependences, Why
from nkireview.schedule.reuse import Places
from nkireview.schedule.uses import Uses

Flags = NDArray[np.bool_]
COPY = "tensor_copy"


@dataclass(frozen=True, eq=False)
class Fusions:
    """What is fused.

    `elided` marks copies that are not made; `source`: the instruction whose result is read in their stead, -1 for the
    others, and `stands`: place of the copy -> place that is read. `group`: narrow instructions of one number run as
    one, -1 for the others. `follows`: copies for whose access another one has paid.
    """

    elided: Flags
    source: Ints
    stands: Mapping[int, int]
    group: Ints
    follows: Flags


def fusions(
    scope: Scope,
    priced: Costs,
    used: Uses,
    places: Places,
    needs: Dependences,
    narrow: int,
    turns: int,
    bank_bytes: int,
) -> Fusions:
    """What the compiler fuses.

    `narrow`: elements a partition that an instruction touches at most to be called so; `turns`: how many of a line it
    runs as one at most, lines of more stay as they are.
    """
    program = scope.program
    level = levels(needs, len(program))
    elements = _elements(scope, used)
    simple = np.isin(priced.lane, [VECTOR, SCALAR, GPSIMD]) & ~priced.is_dma
    elided, source, stands = _elided(program, priced, used, places, needs)
    _first_sums(program, needs, elided, source)
    return Fusions(
        elided,
        source,
        stands,
        _groups(program, simple & ~elided & (elements <= narrow), level, turns),
        _followers(program, used, places, elided, elements, level, bank_bytes),
    )


def idle_fills(program: Program, priced: Costs, used: Uses, places: Places) -> frozenset[int]:
    """Fills of PSUM with zeros that matmuls follow: the first of these overwrites what is there, so none is needed."""
    psum = MEMORIES.index(Memory.psum)
    fills = _zero_fills(program)
    if not fills.any():
        return frozenset()
    rows = np.flatnonzero(places.memory[used.place] == psum)
    order = rows[np.lexsort((rows, used.place[rows]))]
    place, instruction = used.place[order], used.instruction[order]
    follows = np.append(place[1:] == place[:-1], False)
    later = np.append(instruction[1:], -1)
    idle = fills[instruction] & follows & (priced.lane[later] == TENSOR)
    # a fill of part of a tile may leave the rest to others, and a matmul may be told to add to the zeros
    idle &= used.whole[order] & ~_adding(program)[program.columns.immediates[later]]
    return frozenset(instruction[idle].tolist())


def _named(program: Program, name: str) -> Flags:
    """The instructions of an opcode."""
    found: Flags = np.array([opcode.name == name for opcode in program.opcodes], bool)[program.columns.opcode]
    return found


def _adding(program: Program) -> Flags:
    """For each set of immediates whether it says to add to what is there."""
    return np.array([dict(given).get("accumulate") is True for given in program.immediates], bool)


def _zero_fills(program: Program) -> Flags:
    """Fills with zeros."""
    zero = np.array([dict(given).get("value") == 0 for given in program.immediates], bool)
    found: Flags = _named(program, "memset") & zero[program.columns.immediates]
    return found


def levels(needs: Dependences, count: int) -> Ints:
    """For each instruction the length of the longest chain of dependences that ends in it."""
    found = [0] * count
    at, producers = needs.at.tolist(), needs.producer.tolist()
    for index in range(count):
        deepest = -1
        for edge in range(at[index], at[index + 1]):
            if found[producers[edge]] > deepest:
                deepest = found[producers[edge]]
        found[index] = deepest + 1
    return np.array(found, np.int64)


def _elements(scope: Scope, used: Uses) -> Ints:
    """The most elements of a partition that an instruction touches."""
    each = [tile.access.size // max(tile.access.partitions, 1) for tile in scope.tiles]
    found = np.zeros(len(scope.program), np.int64)
    np.maximum.at(found, used.instruction, np.array(each, np.int64)[scope.views.of[used.access]])
    return found


def _elided(
    program: Program, priced: Costs, used: Uses, places: Places, needs: Dependences
) -> tuple[Flags, Ints, dict[int, int]]:
    """Copies from PSUM that change no dtype, and whose readers are on Vector or Scalar and read nothing else there."""
    count = len(program)
    elided, source = np.zeros(count, bool), np.full(count, -1, np.int64)
    stands: dict[int, int] = {}
    psum, sbuf = MEMORIES.index(Memory.psum), MEMORIES.index(Memory.sbuf)
    copies = np.flatnonzero(_named(program, COPY))
    if not len(copies):
        return elided, source, stands
    consumer = np.repeat(np.arange(count), np.diff(needs.at))
    data = needs.why == int(Why.data)
    order = np.argsort(needs.producer[data], kind="stable")
    readers, feeds = consumer[data][order], needs.producer[data][order]
    first = np.searchsorted(feeds, np.arange(count + 1))
    last_write = np.full(len(places.size), -1, np.int64)
    np.maximum.at(last_write, used.place[used.writes], used.instruction[used.writes])
    rows_at = np.searchsorted(used.instruction, np.arange(count + 1))
    kind = program.columns.access_dtype
    on_lanes = np.isin(priced.lane, [VECTOR, SCALAR]) & ~priced.is_dma
    writers_of: dict[tuple[int, int], int] = {}
    for edge in np.flatnonzero(data).tolist():
        writer = int(needs.producer[edge])
        for row in range(rows_at[writer], rows_at[writer + 1]):
            if used.writes[row]:
                key = int(consumer[edge]), int(used.place[row])
                writers_of[key] = writers_of.get(key, 0) + 1
    for copy in copies.tolist():
        rows = range(int(rows_at[copy]), int(rows_at[copy + 1]))
        came = [row for row in rows if used.reads[row]]
        went = [row for row in rows if used.writes[row]]
        if len(came) != 1 or len(went) != 1:
            continue
        here, there = int(used.place[came[0]]), int(used.place[went[0]])
        mine = readers[first[copy] : first[copy + 1]]
        if (
            places.memory[here] == psum
            and places.memory[there] == sbuf
            and kind[used.access[came[0]]] == kind[used.access[went[0]]]
            and last_write[here] < copy
            and len(mine)
            and on_lanes[mine].all()
            and all(writers_of[int(reader), there] == 1 for reader in mine)
        ):
            at = slice(needs.at[copy], needs.at[copy + 1])
            makers = needs.producer[at][needs.why[at] == int(Why.data)]
            if len(makers):
                elided[copy], source[copy] = True, makers[-1]
                stands[there] = here
    return elided, source, stands


def _first_sums(program: Program, needs: Dependences, elided: Flags, source: Ints) -> None:
    """Sums in place that add to a tile of zeros: what is added could be written there."""
    columns = program.columns
    zeros = _zero_fills(program)
    if not zeros.any():
        return
    adds = [dict(given).get("op") == "add" for given in program.immediates]
    for code, rows, accesses in by_opcode(program):
        opcode = program.opcodes[code]
        if opcode.name != "tensor_tensor":
            continue
        dst, data = opcode.operands.index("dst"), opcode.operands.index("data1")
        for index, mine in zip(rows.tolist(), accesses.tolist(), strict=True):
            if mine[dst] != mine[data] or not adds[columns.immediates[index]]:
                continue
            at = slice(needs.at[index], needs.at[index + 1])
            feeds = needs.producer[at][needs.why[at] == int(Why.data)]
            others = feeds[~zeros[feeds]]
            # of a copy that is not made the sum itself takes the place
            if len(others) == 1 and len(feeds) == 2 and not elided[others[0]]:
                elided[index], source[index] = True, others[0]


def _groups(program: Program, wanted: Flags, level: Ints, turns: int) -> Ints:
    """Instructions of one line, opcode and level, two or more."""
    found = np.full(len(program), -1, np.int64)
    rows = np.flatnonzero(wanted & (program.columns.place >= 0))
    if len(rows):
        columns = program.columns
        classes = intern([columns.place[rows], columns.opcode[rows], level[rows]], len(rows))
        sizes = np.bincount(classes.of)
        several = (sizes[classes.of] > 1) & (sizes[classes.of] <= turns)
        found[rows[several]] = classes.of[several]
    return found


def _followers(
    program: Program, used: Uses, places: Places, elided: Flags, elements: Ints, level: Ints, bank_bytes: int
) -> Flags:
    """Copies from PSUM of one line into one tile, but for the first of each bank."""
    count = len(program)
    found = np.zeros(count, bool)
    psum = MEMORIES.index(Memory.psum)
    copies = _named(program, COPY)
    target, source = np.full(count, -1, np.int64), np.full(count, -1, np.int64)
    bits = np.array([dtypes.BY_NAME[name].bits for name in program.dtypes], np.int64)
    width = np.zeros(count, np.int64)
    target[used.instruction[used.writes]] = used.place[used.writes]
    source[used.instruction[used.reads]] = used.place[used.reads]
    width[used.instruction[used.reads]] = bits[program.columns.access_dtype[used.access[used.reads]]] // 8
    copies &= ~elided & (source >= 0) & (target >= 0)
    rows = np.flatnonzero(copies)
    rows = rows[places.memory[source[rows]] == psum]
    if not len(rows):
        return found
    columns = program.columns
    classes = intern([columns.place[rows], target[rows], level[rows]], len(rows))
    for part in members(classes.of, len(classes)):
        mine = np.sort(rows[part])
        most = max(bank_bytes // max(int((elements * width)[mine[0]]), 1), 1)
        found[mine] = np.arange(len(mine)) % most > 0
    return found

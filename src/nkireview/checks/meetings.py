"""Meetings: which barriers and exchanges of the cores of a launch are one, and where the cores do not agree on them."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from nkireview.isa.row import Row
from nkireview.program.program import Program
from nkireview.schedule.touches import cores_of

UNROLLED = 2**17
"""Meetings of a core, loops unrolled, above which cores whose loops differ are not compared."""

Key = tuple[str, Any, int]
"""Opcode, pipe of an exchange, shared buffer of a barrier (-1: none): what two meetings have in common to be one."""


@dataclass(frozen=True)
class Mismatch:
    """The first of `cores` comes to `instruction` where the second one has come to `other`, which is another meeting.

    Where the cores do not meet equally often, `other` is -1, and the line of `instruction` is one that the first core
    reaches `times[0]` times and the second one `times[1]` times, which is less.
    """

    instruction: int
    other: int
    cores: tuple[int, int]
    times: tuple[int, int]
    totals: tuple[int, int]
    """Meetings of each of the cores, trips of loops included."""


@dataclass(frozen=True)
class Meetings:
    """`together`: the instructions by which cores meet, one of each core in the order of their numbers; in order.

    None where the cores agree, or may do so, but not instruction by instruction: one has a loop where the other has
    none, or takes pipes in another order.
    """

    together: tuple[tuple[int, ...], ...] | None
    mismatched: Mismatch | None = None


@dataclass(frozen=True)
class _At:
    """A meeting of one core: `nest` are the loops around it, outermost first; `shape` is the same on cores alike."""

    instruction: int
    key: Key
    line: object
    nest: tuple[int, ...]
    shape: tuple[tuple[int, int | None], ...]


def meetings(program: Program, rows: Mapping[str, Row], trips: Mapping[int, int] | None = None) -> Meetings:
    """The meetings of the cores. trips: loop -> its trip count, where its bounds are not numbers."""
    found = _meeting(program, rows)
    cores = cores_of(program)
    if len(cores) < 2 or not found:
        return Meetings(())
    counts = {number: (trips or {}).get(number, loop.trips) for number, loop in enumerate(program.loops)}
    each = [_of_core(program, core, found, counts) for core in cores]
    first = each[0]
    if all(_alike(first, other) for other in each[1:]):
        straight = all([at.key for at in other] == [at.key for at in first] for other in each[1:])
        pairs = zip(*([at.instruction for at in one] for one in each), strict=True)
        return Meetings(tuple(pairs) if straight else None)
    for core, other in zip(cores[1:], each[1:], strict=True):
        mismatch = _mismatch((cores[0], core), first, other, counts)
        if mismatch is not None:
            return Meetings(None, mismatch)
    return Meetings(None)


def _meeting(program: Program, rows: Mapping[str, Row]) -> dict[int, Key]:
    """The instructions by which all cores meet."""
    columns, everyone = program.columns, set(cores_of(program))
    meets = [name in rows and rows[name].meets == "cores" for name in (o.name for o in program.opcodes)]
    if not any(meets):
        return {}
    found: dict[int, Key] = {}
    for index in np.flatnonzero(np.array(meets)[columns.opcode]).tolist():
        opcode = program.opcodes[columns.opcode[index]]
        immediates = program.immediates[columns.immediates[index]]
        named = immediates.get("cores")
        taking_part = everyone if named is None else set(named if isinstance(named, Collection) else (named,))
        if taking_part >= everyone:
            data = int(columns.operand[columns.operand_at[index]]) if "data" in opcode.operands else -1
            buffer = int(columns.access_buffer[data]) if data >= 0 else -1
            shared = buffer >= 0 and columns.buffer_core[buffer] < 0
            found[index] = opcode.name, immediates.get("pipe_id"), buffer if shared else -1
    return found


def _of_core(
    program: Program, core: int, found: Mapping[int, Key], counts: Mapping[int, int | None]
) -> list[_At]:
    streams = [stream for stream in program.streams if stream.core == core]
    order = sorted(found)
    mine = [
        index
        for stream in streams
        for index in order[bisect_left(order, stream.start) : bisect_left(order, stream.stop)]
    ]
    nests: dict[int, list[int]] = {index: [] for index in mine}
    outermost = sorted(enumerate(program.loops), key=lambda each: (each[1].start - each[1].stop, each[0]))
    for number, loop in outermost:
        for index in order[bisect_left(order, loop.start) : bisect_left(order, loop.stop)]:
            if index in nests:
                nests[index].append(number)
    ranks: dict[int, int] = {}
    made = []
    for index in mine:
        shape = tuple((ranks.setdefault(loop, len(ranks)), counts[loop]) for loop in nests[index])
        line = program.place_text(int(program.columns.place[index])) or index
        made.append(_At(index, found[index], line, tuple(nests[index]), shape))
    return made


def _alike(one: Sequence[_At], other: Sequence[_At]) -> bool:
    """True where two cores meet in the same loops, at the same barriers, and between them by the same pipes."""
    if [at.shape for at in one] != [at.shape for at in other]:
        return False
    return _blocks([at.key for at in one]) == _blocks([at.key for at in other])


def _blocks(keys: Sequence[Key]) -> list[object]:
    """Exchanges in a row may take their pipes in any order; else the order counts."""
    found: list[object] = []
    for pipes, group in groupby(keys, key=lambda key: key[1] is not None):
        held = list(group)
        found += [frozenset(Counter(held).items())] if pipes else held
    return found


def _mismatch(
    cores: tuple[int, int], one: Sequence[_At], other: Sequence[_At], counts: Mapping[int, int | None]
) -> Mismatch | None:
    """Where two cores surely do not meet as often, or in the same order."""
    totals = [sum(_times(at, counts) for at in side) for side in (one, other)]
    if not (one and other):
        side = one or other
        sure = next((at for at in side if all(counts[loop] for loop in at.nest)), None)
        if sure is None:
            return None
        times = sum(_times(at, counts) for at in side if at.line == sure.line)
        return Mismatch(sure.instruction, -1, cores if one else cores[::-1], (times, 0), (max(totals), 0))
    unknown = any(counts[loop] is None for at in (*one, *other) for loop in at.nest)
    if unknown or max(totals) > UNROLLED:
        return None
    mine, theirs = (list(_unrolled(side, counts, 0)) for side in (one, other))
    if _blocks([at.key for at in mine]) == _blocks([at.key for at in theirs]):
        return None
    if len(mine) == len(theirs):
        pairs = zip(mine, theirs, strict=True)
        at, instead = next((one, other) for one, other in pairs if one.key != other.key)
        return Mismatch(at.instruction, instead.instruction, cores, (1, 1), (len(mine), len(theirs)))
    swapped = len(theirs) > len(mine)
    more, less = (theirs, mine) if swapped else (mine, theirs)
    lines, others = Counter(at.line for at in more), Counter(at.line for at in less)
    at = next(at for at in more if lines[at.line] > others[at.line])
    reached = lines[at.line], others[at.line]
    return Mismatch(at.instruction, -1, cores[::-1] if swapped else cores, reached, (len(more), len(less)))


def _times(at: _At, counts: Mapping[int, int | None]) -> int:
    """How often a meeting is reached; 1 for what is not known."""
    times = 1
    for loop in at.nest:
        count = counts[loop]
        times *= 1 if count is None else count
    return times


def _unrolled(side: Sequence[_At], counts: Mapping[int, int | None], depth: int) -> Iterator[_At]:
    """The meetings in the order in which a core comes to them."""
    for loop, group in groupby(side, key=lambda at: at.nest[depth] if len(at.nest) > depth else -1):
        if loop < 0:
            yield from group
        else:
            body = list(_unrolled(list(group), counts, depth + 1))
            for _ in range(counts[loop] or 0):
                yield from body

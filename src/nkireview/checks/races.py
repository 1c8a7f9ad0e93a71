"""Races: two cores use one place, at least one of them writes it, and nothing says which comes first.

Only what is sure is a race: two views that share elements, by their affine maps, and no way by dependences, queues and
meetings from the one instruction to the other. The body of a device-side loop counts once: what its trips do to each
other is not looked at. On one core the compiler sees the order of all uses of a place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from nkireview.checks.before import Before, before
from nkireview.checks.meetings import Mismatch, meetings
from nkireview.checks.overlaps import shared
from nkireview.checks.replicas import replicas
from nkireview.isa import dtypes
from nkireview.isa.row import Row
from nkireview.program.interning import Ints, by_rank, intern
from nkireview.program.program import Program
from nkireview.program.scope import Scope
from nkireview.program.storage import READS, WRITES, Storage
from nkireview.schedule.cells import cells
from nkireview.schedule.dependences import Dependences, dependences
from nkireview.schedule.touches import core_of, cores_of, touches
from nkireview.schedule.uses import Uses

CELLS = 256
"""Pieces of a place that dependences tell apart."""
PAIRS = 2**25
"""Pairs of views, or of uses of two views, looked at; those beyond are not decided."""
AT_ONCE = 2**20
"""Pairs held at one time."""
WRITE_WRITE, WRITE_READ, READ_WRITE = "write-write", "write-read", "read-write"
_KINDS = (READ_WRITE, WRITE_READ, WRITE_WRITE)


@dataclass(frozen=True)
class Race:
    """Instruction `first` of core ``cores[0]`` and `second` of ``cores[1]`` use elements of a buffer in any order.

    kind: what the first and the second do there. They stand for all pairs of their two lines; `elements` is the most
    that a pair shares, `count` the number of pairs. `abreast`: in none of them do the cores meet
    between the two as the program has it. Where they do, the meeting is none that either of the two is ordered by.
    `same`: both write, and surely the same values.
    """

    buffer: int
    first: int
    second: int
    cores: tuple[int, int]
    kind: str
    elements: int
    count: int = 1
    abreast: bool = True
    same: bool = False


@dataclass(frozen=True)
class Races:
    """The races of a Program; none are looked for where the cores do not meet alike, since then nothing is ordered.

    `undecided`: pairs of lines of which it is not known whether they use one place, or in which order: an address is
    made on the device, or the cores meet in loops that differ.
    """

    races: tuple[Race, ...] = ()
    mismatched: Mismatch | None = None
    undecided: int = 0


def races(scope: Scope, stored: Storage, used: Uses, trips: Mapping[int, int] | None = None) -> Races:
    """The races between the cores of a launch. trips: loop -> its trip count, where its bounds are not numbers."""
    program = scope.program
    cores = sorted({stream.core for stream in program.streams})
    if len(cores) < 2:
        return Races()
    met = meetings(program, scope.rows, trips)
    if met.mismatched is not None:
        return Races(mismatched=met.mismatched)
    common = _common(program, used)
    mine = _Accesses.of(scope, used, common)
    found: list[Race] = []
    undecided = 0
    order: Before | None = None
    values: Ints | None = None
    for one, other in combinations(range(len(cores)), 2):
        views = _conflicts(scope, mine, one, other)
        if not len(views):
            continue
        if order is None:
            # where the cores meet in a way that is not known, nothing is ordered
            order = before(scope, ordering(scope, stored, common), met.together or ())
        stops = [np.array([at[core] for at in met.together or ()], np.int64) for core in (one, other)]
        left = _Groups.of(program, mine.where(one), views.one, order, stops[0])
        right = _Groups.of(program, mine.where(other), views.other, order, stops[1])
        lines, unknown = _unordered(program, left, right, views)
        undecided += unknown
        if values is None and any(line.kind == WRITE_WRITE for line in lines):
            values = replicas(program, scope.rows, stored)
        for line in lines:
            same = values is not None and _same(program, mine, views, values, line, (one, other))
            found.append(replace(line, cores=(cores[one], cores[other]), same=same))
    if met.together is None:
        return Races(undecided=undecided + len(found))
    return Races(tuple(found), undecided=undecided)


def _same(
    program: Program, mine: _Accesses, views: _Views, values: Ints, race: Race, cores: tuple[int, int]
) -> bool:
    """True where the lines of a race write the same value to each view, and no two of their views overlap in part."""
    if race.kind != WRITE_WRITE:
        return False
    place, buffer = program.columns.place, program.columns.access_buffer
    sides: list[dict[int, set[int]]] = []
    for core, instruction in zip(cores, (race.first, race.second), strict=True):
        kept = (mine.core == core) & mine.writes & (buffer[mine.access] == race.buffer)
        kept &= place[mine.instruction] == place[instruction]
        written: dict[int, set[int]] = {}
        for access, at in zip(mine.access[kept].tolist(), mine.instruction[kept].tolist(), strict=True):
            written.setdefault(access, set()).add(int(values[at]))
        sides.append(written)
    left, right = sides
    apart = (views.one != views.other) & np.isin(views.one, list(left)) & np.isin(views.other, list(right))
    alike = all(right.get(access) == held for access, held in left.items() if access in right)
    return alike and not apart.any() and all(len(held) == 1 for held in (*left.values(), *right.values()))


def ordering(scope: Scope, stored: Storage, common: Ints) -> Dependences:
    """The dependences of a Program in which a barrier waits for all uses of its data, and all later ones for it.

    common: buffers of which the uses are ordered even where none of them reads.
    """
    program = scope.program
    data = np.repeat(_barriers(program, scope.rows), np.diff(program.columns.operand_at)) & (
        stored.place >= 0
    )
    kept = np.unique(np.concatenate([stored.place[data], stored.of_buffer[common]]))
    use = np.where(data, stored.use | READS | WRITES, stored.use).astype(np.int8)
    asked = replace(stored, use=use)
    return dependences(program, touches(program, asked, cells(scope, asked, CELLS, kept)))


def _barriers(program: Program, rows: Mapping[str, Row]) -> NDArray[np.bool_]:
    """The instructions by which cores meet and nothing is moved."""
    names = [opcode.name for opcode in program.opcodes]
    known = [name in rows and rows[name].meets == "cores" and not rows[name].flow for name in names]
    return _of_opcodes(program, known)


def _collectives(program: Program, rows: Mapping[str, Row]) -> NDArray[np.bool_]:
    """The instructions by which ranks meet."""
    names = [opcode.name for opcode in program.opcodes]
    return _of_opcodes(program, [name in rows and rows[name].meets == "ranks" for name in names])


def _of_opcodes(program: Program, wanted: Sequence[bool]) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = np.array([*wanted, False])[program.columns.opcode]
    return found


def _core_of(program: Program, instruction: Ints) -> Ints:
    """The position of the core of instructions among the cores that have a stream."""
    found: Ints = np.searchsorted(cores_of(program), core_of(program)[instruction])
    return found


def _common(program: Program, used: Uses) -> Ints:
    """The buffers that several cores use and at least one writes."""
    count = program.columns.buffers
    core = _core_of(program, used.instruction)
    first = np.full(count, -1, np.int64)
    first[used.buffer[::-1]] = core[::-1]
    several = np.zeros(count, bool)
    several[used.buffer[core != first[used.buffer]]] = True
    written = np.zeros(count, bool)
    written[used.buffer[used.writes]] = True
    return np.flatnonzero(several & written)


@dataclass(frozen=True, eq=False)
class _Accesses:
    """Uses of what several cores use: instruction, access, position of its core, whether it writes.

    By access `low` and `high`: the first bit and the one after the last that it may touch; all of its buffer where the
    access is `vague`.
    """

    instruction: Ints
    access: Ints
    core: Ints
    writes: NDArray[np.bool_]
    low: Ints
    high: Ints
    vague: NDArray[np.bool_]

    @classmethod
    def of(cls, scope: Scope, used: Uses, buffers: Ints) -> _Accesses:
        """The uses of some buffers; barriers touch nothing, and of what ranks exchange the place is not looked at."""
        program = scope.program
        common = np.zeros(program.columns.buffers, bool)
        common[buffers] = True
        kept = common[used.buffer] & ~_barriers(program, scope.rows)[used.instruction]
        mine = used.where(kept)
        low, high = _extents(scope)
        vague = np.zeros(program.columns.accesses, bool)
        vague[[access for access, extra in program.extras.items() if extra.index is not None]] = True
        vague[mine.access[_collectives(program, scope.rows)[mine.instruction]]] = True
        size = _bits(program)[program.columns.access_buffer]
        low, high = np.where(vague, 0, np.clip(low, 0, size)), np.where(vague, size, np.clip(high, 0, size))
        core = _core_of(program, mine.instruction)
        return cls(mine.instruction, mine.access, core, mine.writes, low, high, vague)

    def where(self, core: int) -> _Accesses:
        """The uses of one core."""
        rows = self.core == core
        return replace(
            self,
            instruction=self.instruction[rows],
            access=self.access[rows],
            core=self.core[rows],
            writes=self.writes[rows],
        )


def _bits(program: Program) -> Ints:
    """Bits that each buffer holds."""
    columns = program.columns
    widths = np.array([dtypes.BY_NAME[name].bits for name in program.dtypes], np.int64)
    found = np.ones(columns.buffers, np.int64)
    for rank, rows, at in by_rank(columns.dim_at):
        if rank:
            found[rows] = columns.dim[at].prod(axis=1)
    return found * widths[columns.buffer_dtype]


def _extents(scope: Scope) -> tuple[Ints, Ints]:
    """For each access the first bit that it touches, by its affine map, and the one after the last."""
    program, columns = scope.program, scope.program.columns
    low = columns.access_base.astype(np.int64)
    high = low.copy()
    for rank, rows, at in by_rank(columns.axis_at):
        if rank:
            reach = columns.axis_stride[at] * np.maximum(columns.axis_count[at] - 1, 0)
            low[rows] += np.minimum(reach, 0).sum(axis=1)
            high[rows] += np.maximum(reach, 0).sum(axis=1)
    tables = [access for access, extra in program.extras.items() if extra.table is not None]
    for access in tables:
        table = program.constants[str(program.extras[access].table)]
        low[access], high[access] = (int(table.min()), int(table.max())) if table.size else (0, -1)
    widths = np.array([dtypes.BY_NAME[name].bits for name in program.dtypes], np.int64)[columns.access_dtype]
    return low * widths, (high + 1) * widths


@dataclass(frozen=True, eq=False)
class _Views:
    """Pairs of accesses of two cores, and how many elements they share; -1 where that is not known."""

    one: Ints
    other: Ints
    elements: Ints

    def __len__(self) -> int:
        return len(self.one)


def _conflicts(scope: Scope, mine: _Accesses, one: int, other: int) -> _Views:
    """The pairs of distinct accesses of two cores that share elements, or may, of which at least one is written."""
    left, right = (np.unique(mine.access[mine.core == core]) for core in (one, other))
    written = [np.zeros(len(mine.low), bool) for _ in range(2)]
    for core, flags in zip((one, other), written, strict=True):
        flags[mine.access[(mine.core == core) & mine.writes]] = True
    parts = []
    for first, second in _near(scope.program, mine, left, right):
        kept = written[0][first] | written[1][second]
        first, second = first[kept], second[kept]
        elements = _shared(scope, mine, first, second)
        held = elements != 0
        parts.append((first[held], second[held], elements[held]))
    if not parts:
        nothing = np.zeros(0, np.int64)
        return _Views(nothing, nothing, nothing)
    return _Views(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _near(program: Program, mine: _Accesses, left: Ints, right: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Pairs of accesses to one buffer of which the extents meet, some at a time."""
    buffers = program.columns.access_buffer.astype(np.int64)
    span = int(mine.high.max(initial=0)) + 1
    lengths = np.frexp(np.maximum(mine.high - mine.low, 1)[left].astype(np.float64))[1]
    for length in np.unique(lengths).tolist():
        held = left[lengths == length]
        keys = buffers[held] * span + mine.low[held]
        order = np.argsort(keys, kind="stable")
        held, keys = held[order], keys[order]
        reach = int((mine.high - mine.low)[held].max())
        floor = buffers[right] * span
        begin = np.searchsorted(keys, floor + np.maximum(mine.low[right] - reach, 0), side="left")
        end = np.searchsorted(keys, floor + mine.high[right], side="left")
        for rows, at in _expanded(begin, end):
            first, second = held[at], right[rows]
            kept = (mine.low[second] < mine.high[first]) & (mine.low[first] < mine.high[second])
            yield first[kept], second[kept]


def _expanded(begin: Ints, end: Ints) -> Iterator[tuple[Ints, Ints]]:
    """The rows with a range each, and each number of their ranges, some at a time."""
    counts = np.maximum(end - begin, 0)
    total = np.cumsum(counts)
    done = 0
    while done < len(counts):
        before_it = int(total[done - 1]) if done else 0
        stop = max(int(np.searchsorted(total, before_it + AT_ONCE, side="right")), done + 1)
        some = counts[done:stop]
        rows = np.repeat(np.arange(done, stop), some)
        at = np.arange(int(some.sum())) - np.repeat(np.cumsum(some) - some, some) + begin[rows]
        yield rows, at
        done = stop


def _shared(scope: Scope, mine: _Accesses, first: Ints, second: Ints) -> Ints:
    """How many elements pairs of accesses share, -1 where it is not known; pairs that lie alike are looked at once."""
    program = scope.program
    views, base = scope.views.of, program.columns.access_base
    vague = mine.vague[first] | mine.vague[second]
    classes = intern([vague, views[first], views[second], base[second] - base[first]], len(first))
    found = np.array(
        [
            -1
            if vague[row] or (count := shared(program, int(first[row]), int(second[row]))) is None
            else count
            for row in classes.first.tolist()
        ],
        np.int64,
    )
    return found[classes.of] if len(first) else np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class _Groups:
    """Uses of one core that are alike: by access, what they do, line and order. `first` is the first of `count`.

    `passed`: how many meetings lie before them as the program has it.
    """

    access: Ints
    writes: NDArray[np.bool_]
    place: Ints
    first: Ints
    count: Ints
    passed: Ints
    known: Ints
    following: Ints

    @classmethod
    def of(cls, program: Program, uses: _Accesses, accesses: Ints, order: Before, stops: Ints) -> _Groups:
        """The groups of the uses with some accesses, by access and then by the last meeting before.

        stops: the meetings of the core, ascending.
        """
        rows = np.flatnonzero(np.isin(uses.access, accesses))
        at = uses.instruction[rows]
        known, following = order.known[:, at].astype(np.int64), order.following[:, at].astype(np.int64)
        passed = np.searchsorted(stops, at)
        columns = [
            uses.access[rows],
            uses.writes[rows],
            program.columns.place[at],
            passed,
            *known,
            *following,
        ]
        classes = intern(columns, len(rows))
        first = classes.first
        order_of = np.lexsort((known[0, first], uses.access[rows[first]]))
        first = first[order_of]
        return cls(
            uses.access[rows[first]],
            uses.writes[rows[first]],
            program.columns.place[at[first]].astype(np.int64),
            at[first],
            np.bincount(classes.of, minlength=len(classes))[order_of],
            passed[first],
            known[:, first],
            following[:, first],
        )

    def __len__(self) -> int:
        return len(self.access)


def _unordered(program: Program, left: _Groups, right: _Groups, views: _Views) -> tuple[list[Race], int]:
    """The races of pairs of views, one for each pair of lines and kind, and how many more are not decided."""
    found = _Found()
    looked = 0
    for pair, mine, theirs in _concurrent(left, right, views):
        looked += len(pair)
        found.add(program, left, right, mine, theirs, views.elements[pair])
        if looked > PAIRS:
            return found.races(), found.unknown + 1
    return found.races(), found.unknown


def _concurrent(left: _Groups, right: _Groups, views: _Views) -> Iterator[tuple[Ints, Ints, Ints]]:
    """(pair of views, group of one core, group of the other) without an order, at least one of which writes.

    Two uses are unordered where the meetings between which the one lies, those known before it and first after it,
    overlap with those of the other.
    """
    spans = [_spans(groups, accesses) for groups, accesses in ((left, views.one), (right, views.other))]
    few = (spans[0][1] - spans[0][0]) <= (spans[1][1] - spans[1][0])
    for swapped in (False, True):
        pairs = np.flatnonzero(few != swapped)
        (begin, end), (near, far) = (spans[1], spans[0]) if swapped else spans
        own, others = (right, left) if swapped else (left, right)
        window = _Window(others)
        for rows, group in _expanded(begin[pairs], end[pairs]):
            pair = pairs[rows]
            first, last = window.of(own, group, near[pair], far[pair])
            for at, partner in _expanded(first, last):
                mine, held = group[at], pair[at]
                kept = own.writes[mine] | others.writes[partner]
                kept &= (own.known[:, mine] < others.following[:, partner]).all(axis=0)
                kept &= (others.known[:, partner] < own.following[:, mine]).all(axis=0)
                mine, partner, held = mine[kept], partner[kept], held[kept]
                yield (held, partner, mine) if swapped else (held, mine, partner)


def _spans(groups: _Groups, accesses: Ints) -> tuple[Ints, Ints]:
    """Where the groups of each access begin and end."""
    return (
        np.searchsorted(groups.access, accesses, side="left"),
        np.searchsorted(groups.access, accesses, side="right"),
    )


class _Window:
    """Finds the groups of an access that may lie between the same meetings of the first chain as another group."""

    def __init__(self, groups: _Groups) -> None:
        self.groups = groups
        rank = (
            np.cumsum(np.append(0, groups.access[1:] != groups.access[:-1])) if len(groups) else groups.access
        )
        self.rank = rank * 2**32
        self.known = self.rank + groups.known[0] + 1
        self.reach = np.maximum.accumulate(self.rank + groups.following[0] + 1)

    def of(self, own: _Groups, group: Ints, near: Ints, far: Ints) -> tuple[Ints, Ints]:
        """For each of the other's groups the first and the end of those to compare, within ``near:far``."""
        base = self.rank[near]
        first = np.searchsorted(self.reach, base + own.known[0][group] + 1, side="right")
        last = np.searchsorted(self.known, base + own.following[0][group] + 1, side="left")
        return np.clip(first, near, far), np.clip(last, near, far)


class _Found:
    """Unordered pairs, added up by buffer, lines and kind."""

    def __init__(self) -> None:
        self.lines: dict[tuple[int, int, int, int], list[int]] = {}
        self.vague: set[tuple[int, int, int, int]] = set()

    @property
    def unknown(self) -> int:
        """Pairs of lines that may use one place, and of which no race is known."""
        return len(self.vague - set(self.lines))

    def add(
        self, program: Program, left: _Groups, right: _Groups, mine: Ints, theirs: Ints, elements: Ints
    ) -> None:
        """Take up pairs of groups that share so many elements, -1: not known."""
        if not len(mine):
            return
        buffer = program.columns.access_buffer[left.access[mine]].astype(np.int64)
        kind = left.writes[mine] + 2 * right.writes[theirs]
        keys = [buffer, left.place[mine], right.place[theirs], np.array([-1, 1, 0, 2])[kind]]
        classes = intern(keys, len(mine))
        order = np.lexsort((right.first[theirs], left.first[mine], elements < 0, classes.of))
        starts = np.searchsorted(classes.of[order], np.arange(len(classes)))
        sure = elements >= 0
        most = np.zeros(len(classes), np.int64)
        np.maximum.at(most, classes.of[sure], elements[sure])
        abreast = np.ones(len(classes), bool)
        np.logical_and.at(abreast, classes.of[sure], (left.passed[mine] == right.passed[theirs])[sure])
        pairs = np.bincount(classes.of[sure], (left.count[mine] * right.count[theirs])[sure], len(classes))
        for number, row in enumerate(order[starts].tolist()):
            key = (int(keys[0][row]), int(keys[1][row]), int(keys[2][row]), int(keys[3][row]))
            if not sure[row]:
                self.vague.add(key)
                continue
            first, second = int(left.first[mine[row]]), int(right.first[theirs[row]])
            held = self.lines.setdefault(key, [first, second, 0, 0, 1])
            held[:2] = min((held[0], held[1]), (first, second))
            held[2] = max(held[2], int(most[number]))
            held[3] += int(pairs[number])
            held[4] &= int(abreast[number])

    def races(self) -> list[Race]:
        """The races, by where they are in the program."""
        made = [
            Race(buffer, first, second, (0, 1), _KINDS[kind], elements, count, bool(abreast))
            for (buffer, _, _, kind), (first, second, elements, count, abreast) in self.lines.items()
        ]
        return sorted(made, key=lambda race: (race.first, race.second, race.kind))

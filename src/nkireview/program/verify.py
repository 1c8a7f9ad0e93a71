"""verify: every limit of a Program, re-derived from the instruction table. It trusts nothing the Program says.

Each distinct call is judged once: accesses are interned by what placement rules see of them, calls by what limits see
of them, and a breach is then attributed to all its occurrences.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview import hardware
from nkireview.hardware import Hardware
from nkireview.isa import dtypes
from nkireview.isa.enums import Engine, Memory
from nkireview.isa.release import Release
from nkireview.isa.row import Row
from nkireview.isa.table import KNOWN_NAMES, ROWS
from nkireview.program.call import CallView, Tile
from nkireview.program.errors import ProgramError
from nkireview.program.interning import Classes, Ints, by_opcode, by_rank, intern, members
from nkireview.program.judge import Judgement, covered, judge
from nkireview.program.placement import CONTRACT, Misplaced, misplaced, name_of, unaligned
from nkireview.program.program import DGES, ENGINES, MEMORIES, Program

SHARED_OUTPUTS_SINCE = Release(0, 3)
UNSUPPORTED = "row.unsupported"
_COMPUTE = (Engine.tensor, Engine.vector, Engine.scalar, Engine.gpsimd)
_EXACT = 2.0**52
_ARCH = "nki/guides/architecture/trainium_inferentia2_arch.rst"
_TABLE = "nki/api/nki/isa/__init__.py"


@dataclass(frozen=True)
class Violation:
    """A breach of one rule at one place.

    `row` is the instruction's name, or ``buffer``, ``output`` or ``kernel``; `subject` is ``operand.measure``;
    `number` is the rule in the constraint list, 0 where the instruction's own declaration is the rule; `source` is
    public. `message` is the sentence of the first occurrence, `instructions` are all of them, in order. `place` is an
    index into the program's places, -1: unknown. `blocking`: the instruction has no meaning then (unknown row, out of
    bounds, sizes that differ, a buffer that fits nowhere). `unsupported`: nki.isa has it, the table not yet.
    """

    row: str
    subject: str
    number: int
    source: str
    message: str
    instructions: tuple[int, ...]
    place: int
    blocking: bool
    unsupported: bool = False


def verify(program: Program, rows: Mapping[str, Row] = ROWS) -> tuple[Violation, ...]:
    """The violations of a Program: of the kernel and its buffers first, then by first instruction, then of outputs.

    Raise ProgramError where target, release or a dtype of the Program is unknown.
    """
    scope = Scope.of(program, rows)
    ledger = _Ledger(program)
    _check_kernel(scope, ledger)
    _check_buffers(scope, ledger)
    _check_instructions(scope, ledger)
    _check_outputs(scope, ledger)
    return ledger.violations()


@dataclass(frozen=True, eq=False)
class Scope:
    """A Program with what it is judged by, and its accesses as classes.

    `views` are accesses that placement rules cannot tell apart; `shapes` those that limits cannot tell apart, but
    for their span within a partition.
    """

    program: Program
    rows: Mapping[str, Row]
    hardware: Hardware
    release: Release

    @classmethod
    def of(cls, program: Program, rows: Mapping[str, Row] = ROWS) -> Scope:
        """The scope that the header names; ProgramError where it is unknown."""
        header = program.header
        try:
            target, release = hardware.target(header.target), Release.parse(header.release)
        except ValueError as error:
            raise ProgramError(f"the program's header: {error}") from error
        for name in program.dtypes:
            if name not in dtypes.BY_NAME:
                raise ProgramError(f"the program has the unknown dtype {name!r}")
        return cls(program, rows, target, release)

    def tile(self, access: int) -> Tile:
        """An access with its buffer."""
        found = self.program.access(access)
        return Tile(found, self.program.buffer(found.buffer))

    @cached_property
    def views(self) -> Classes:
        """Classes of accesses by buffer geometry, dtype, base and pattern; HBM accesses inside their buffer share one
        base, and accesses with bounds, index or table are each their own."""
        columns = self.program.columns
        total = columns.accesses
        geometry, own = self.buffer_classes.of, np.zeros(total, np.int64)
        extras = np.fromiter(self.program.extras, np.int64, len(self.program.extras))
        own[extras] = extras + 1
        on_chip = np.array([memory.on_chip for memory in MEMORIES])[columns.buffer_memory]
        of = np.empty(total, np.int64)
        first: list[Ints] = []
        for rank, rows, at in by_rank(columns.axis_at):
            strides, counts = columns.axis_stride[at], columns.axis_count[at]
            buffers, base = columns.access_buffer[rows], columns.access_base[rows]
            plain = self._inside(rows, strides, counts) & ~on_chip[buffers] & (own[rows] == 0)
            found = intern(
                [
                    np.where(plain, -1 - columns.buffer_memory[buffers], geometry[buffers]),
                    columns.access_dtype[rows],
                    columns.access_partition[rows],
                    np.where(plain, 0, base),
                    own[rows],
                    *(strides[:, axis] for axis in range(rank)),
                    *(counts[:, axis] for axis in range(rank)),
                ],
                len(rows),
            )
            of[rows] = found.of + sum(len(part) for part in first)
            first.append(rows[found.first])
        return Classes(of, np.concatenate(first) if first else np.zeros(0, np.int64))

    @cached_property
    def buffer_classes(self) -> Classes:
        """Classes of buffers by memory, dtype, address and shape."""
        columns = self.program.columns
        of = np.empty(columns.buffers, np.int64)
        first: list[Ints] = []
        for rank, rows, at in by_rank(columns.dim_at):
            found = intern(
                [
                    columns.buffer_memory[rows],
                    columns.buffer_dtype[rows],
                    columns.buffer_partition_address[rows],
                    columns.buffer_byte_address[rows],
                    *(columns.dim[at[:, axis]] for axis in range(rank)),
                ],
                len(rows),
            )
            of[rows] = found.of + sum(len(part) for part in first)
            first.append(rows[found.first])
        return Classes(of, np.concatenate(first) if first else np.zeros(0, np.int64))

    def _inside(self, rows: Ints, strides: Ints, counts: Ints) -> NDArray[np.bool_]:
        """Accesses that surely lie inside their buffer; floats are exact as far as it matters here."""
        columns = self.program.columns
        bits = np.array([dtypes.BY_NAME[name].bits for name in self.program.dtypes], np.float64)
        reach = strides.astype(np.float64) * (counts - 1)
        base = columns.access_base[rows].astype(np.float64)
        low, high = base + np.minimum(reach, 0).sum(axis=1), base + np.maximum(reach, 0).sum(axis=1)
        buffers = columns.access_buffer[rows]
        size = self._sizes[buffers] * bits[columns.buffer_dtype[buffers]] // bits[columns.access_dtype[rows]]
        sane = (size < _EXACT) & (np.abs(low) < _EXACT) & (np.abs(high) < _EXACT) & np.all(counts > 0, axis=1)
        inside: NDArray[np.bool_] = sane & (low >= 0) & (high < size)
        return inside

    @cached_property
    def _sizes(self) -> NDArray[np.float64]:
        columns = self.program.columns
        sizes = np.ones(columns.buffers)
        for rank, rows, at in by_rank(columns.dim_at):
            if rank:
                sizes[rows] = columns.dim[at].astype(np.float64).prod(axis=1)
        return sizes

    @cached_property
    def tiles(self) -> tuple[Tile, ...]:
        """A representative of each class of `views`."""
        return tuple(self.tile(access) for access in self.views.first.tolist())

    @cached_property
    def placements(self) -> tuple[tuple[Misplaced, ...], ...]:
        """What is wrong with each class of `views`, its index tile included."""
        return tuple(self.placement(access) for access in self.views.first.tolist())

    def placement(self, access: int) -> tuple[Misplaced, ...]:
        """What is wrong with where an access and its index tile lie."""
        tile = self.tile(access)
        table = tile.access.table
        found = misplaced(tile, self.hardware, None if table is None else self.program.constants[table])
        index = tile.access.index
        if index is None or index.kind == "register":
            return found
        source = self.tile(index.source)
        inner = [
            Misplaced(
                each.number, f"index.{each.measure}", f"index tile {each.text}", each.source, each.blocking
            )
            for each in misplaced(source, self.hardware)
        ]
        if dtypes.BY_NAME[source.access.dtype].kind not in ("int", "uint"):
            text = f"index dtype {source.access.dtype} is not allowed, expected an integer"
            inner.append(Misplaced(46, "index.dtype", text, f"{_TABLE}:300-304", blocking=True))
        return (*found, *inner)

    @cached_property
    def shapes(self) -> Ints:
        """For each class of `views` its class by memory, dtype, partition axis, counts, start and innermost stride."""
        numbers: dict[Any, int] = {}
        found = []
        for tile in self.tiles:
            access = tile.access
            key = (
                *(tile.buffer.memory, access.dtype, access.partition, access.shape),
                *(tile.start, tile.innermost_stride),
            )
            found.append(numbers.setdefault(key, len(numbers)))
        return np.array(found, np.int64)

    @cached_property
    def spans(self) -> Ints:
        """For each class of `views` its class by the bytes it spans within a partition."""
        numbers: dict[Any, int] = {}
        found = []
        for tile, wrong in zip(self.tiles, self.placements, strict=True):
            plain = tile.on_chip and not any(each.blocking for each in wrong)
            address = tile.buffer.address if plain else None
            key = (tile.bits, tile.free_range, address and address[1]) if plain else None
            found.append(numbers.setdefault(key, len(numbers)))
        return np.array(found, np.int64)

    def call(self, row: Row, names: tuple[str, ...], index: int) -> CallView:
        """The instruction at a position of the columns, as limits see it."""
        columns = self.program.columns
        ids = columns.operand[columns.operand_at[index] : columns.operand_at[index + 1]].tolist()
        return CallView(
            row,
            self.hardware,
            self.release,
            {name: self.tile(access) for name, access in zip(names, ids, strict=True) if access >= 0},
            self.program.immediates[columns.immediates[index]],
            ENGINES[int(columns.engine[index])],
            DGES[int(columns.dge[index])],
        )


@dataclass(frozen=True, eq=False)
class Calls:
    """The instructions of one opcode: positions, access ids, classes that limits cannot tell apart, one call of each.

    `views` holds the class in `Scope.views` of each access, -1 where there is none.
    """

    row: Row
    names: tuple[str, ...]
    rows: Ints
    accesses: Ints
    views: Ints
    classes: Classes
    calls: tuple[CallView, ...]


def distinct_calls(
    scope: Scope,
    row: Row,
    names: tuple[str, ...],
    rows: Ints,
    accesses: Ints,
    spanned: Collection[str] = (),
) -> Calls:
    """The distinct calls of an opcode, which differ in something a limit may ask for.

    The span within a partition is such a thing only for the operands `spanned`.
    """
    columns = scope.program.columns
    views = _at(scope.views.of, accesses)
    keys = [columns.immediates[rows], columns.engine[rows], columns.dge[rows], *_at(scope.shapes, views).T]
    keys += [_at(scope.spans, views[:, names.index(name)]) for name in spanned]
    classes = intern(keys, len(rows))
    calls = tuple(scope.call(row, names, int(rows[first])) for first in classes.first)
    return Calls(row, names, rows, accesses, views, classes, calls)


def _judged(
    scope: Scope, row: Row, names: tuple[str, ...], rows: Ints, accesses: Ints
) -> tuple[Calls, list[tuple[Judgement, ...]]]:
    """The distinct calls and what is wrong with each; spans tell calls apart as soon as a limit asks for one."""
    spanned: set[str] = set()
    while True:
        calls = distinct_calls(scope, row, names, rows, accesses, sorted(spanned))
        judgements = [judge(call) for call in calls.calls]
        fresh = {name for call in calls.calls for name in call.spans_read} - spanned
        if not fresh:
            return calls, judgements
        spanned |= fresh


def _at(table: Ints, positions: Ints) -> Ints:
    """The entries at the positions, -1 where the position is negative."""
    found = np.full(positions.shape, -1, np.int64)
    held = positions >= 0
    found[held] = table[positions[held]]
    return found


@dataclass
class _Group:
    first: int
    source: str
    message: str
    parts: list[Ints] = field(default_factory=list)


class _Ledger:
    """Violations being collected, one for each breach and place."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._groups: dict[tuple[str, str, int, bool, int], _Group] = {}

    def add(self, row: str, found: Judgement, rank: int, place: int, rows: Ints, label: str = "") -> None:
        """Add occurrences; `rank` orders violations, `label` begins the message where it is not the row's name."""
        key = (row, found.subject, found.number, found.blocking, place)
        group = self._groups.get(key)
        if group is None or rank < group.first:
            where = self._program.place_text(place)
            target = self._program.header.target
            message = f"{label or row}: {found.text} on {target}{f' ({where})' if where else ''}"
            fresh = _Group(rank, found.source, message, group.parts if group else [])
            group = self._groups[key] = fresh
        group.parts.append(rows)

    def violations(self) -> tuple[Violation, ...]:
        """Everything collected, in order of rank."""
        ordered = sorted(self._groups.items(), key=lambda item: item[1].first)
        return tuple(
            Violation(
                row=row,
                subject=subject,
                number=number,
                source=group.source,
                message=group.message,
                instructions=tuple(np.unique(np.concatenate(group.parts)).tolist()),
                place=place,
                blocking=blocking,
                unsupported=subject == UNSUPPORTED,
            )
            for (row, subject, number, blocking, place), group in ordered
        )


_NONE = np.zeros(0, np.int64)


def _check_kernel(scope: Scope, ledger: _Ledger) -> None:
    """Rule 109: cores that one logical core can have."""
    lnc, degrees = scope.program.header.lnc, scope.hardware.lnc_degrees
    if lnc not in degrees:
        text = f"LNC {lnc} is not possible, expected {' or '.join(map(str, degrees))}"
        ledger.add(
            "kernel", Judgement(109, "lnc", text, "nki/get-started/about/lnc.rst:44-60"), -2, -1, _NONE
        )


def _check_buffers(scope: Scope, ledger: _Ledger) -> None:
    classes, places = scope.buffer_classes, scope.program.columns.buffer_place
    bad = {}
    for number, first in enumerate(classes.first.tolist()):
        if list(unaligned(scope.program.buffer(first), scope.hardware)):
            bad[number] = first
    for number in bad:
        held = np.flatnonzero(classes.of == number)
        for place, first in zip(*np.unique(places[held], return_index=True), strict=True):
            buffer = scope.program.buffer(int(held[first]))
            label = f"{buffer.memory.name.upper()} tile {name_of(buffer)}"
            for wrong in unaligned(buffer, scope.hardware):
                subject = f"{buffer.memory.name}.{wrong.measure}"
                found = Judgement(wrong.number, subject, wrong.text, wrong.source, wrong.blocking)
                ledger.add("buffer", found, -1, int(place), _NONE, label)


def _check_instructions(scope: Scope, ledger: _Ledger) -> None:
    program = scope.program
    for code, rows, accesses in by_opcode(program):
        opcode = program.opcodes[code]
        row = scope.rows.get(opcode.name)
        refusal = _unknown(opcode.name) if row is None else _wrong_names(row, opcode.operands)
        if row is None or refusal:
            for part in _by_place(program, rows):
                assert refusal is not None
                ledger.add(opcode.name, refusal, int(part[0]), int(program.columns.place[part[0]]), part)
            continue
        calls, judgements = _judged(scope, row, opcode.operands, rows, accesses)
        _attribute_judgements(scope, ledger, calls, judgements)
        _attribute_placements(scope, ledger, calls)


def _unknown(name: str) -> Judgement:
    if name in KNOWN_NAMES:
        return Judgement(0, UNSUPPORTED, "not yet supported", _TABLE, blocking=True)
    return Judgement(0, "row.unknown", "no such instruction in nki.isa", _TABLE, blocking=True)


def _wrong_names(row: Row, names: tuple[str, ...]) -> Judgement | None:
    known = [operand.name for operand in row.operands]
    strange = [name for name in names if name not in known]
    if not strange and len(set(names)) == len(names):
        return None
    found = f"unknown operand {strange[0]}" if strange else "an operand is named twice"
    text = f"{found}, expected {', '.join(known)}"
    return Judgement(0, "operands.names", text, row.source, blocking=True)


def _by_place(program: Program, rows: Ints) -> Iterator[Ints]:
    """The rows of each place, in order."""
    places = program.columns.place[rows].astype(np.int64)
    if places.min() == places.max():
        yield rows
        return
    classes = intern([places], len(rows))
    for part in members(classes.of, len(classes)):
        yield rows[part]


def _attribute_judgements(
    scope: Scope, ledger: _Ledger, calls: Calls, judgements: Sequence[tuple[Judgement, ...]]
) -> None:
    bad = np.array([bool(found) for found in judgements])
    if not bad.any():
        return
    hit = np.flatnonzero(bad[calls.classes.of])
    groups = members(calls.classes.of[hit], len(calls.classes))
    for number, part in enumerate(groups):
        for judgement in judgements[number]:
            for rows in _by_place(scope.program, calls.rows[hit[part]]):
                place = int(scope.program.columns.place[rows[0]])
                ledger.add(calls.row.name, judgement, int(rows[0]), place, rows)


def _attribute_placements(scope: Scope, ledger: _Ledger, calls: Calls) -> None:
    program, row = scope.program, calls.row
    own = {number: covered(row, number) for number in (1, 2)}
    bad = np.array([bool(found) for found in scope.placements])
    for slot, name in enumerate(calls.names):
        present = np.flatnonzero(calls.accesses[:, slot] >= 0)
        views = calls.views[present, slot]
        general = _general(scope, row, name, own)
        flagged = bad | general if general is not None else bad
        hit = flagged[views] if len(views) else np.zeros(0, bool)
        if not hit.any():
            continue
        present, views = present[hit], views[hit]
        classes = intern([views, program.columns.place[calls.rows[present]]], len(present))
        for part in members(classes.of, len(classes)):
            rows = calls.rows[present[part]]
            access = int(calls.accesses[present[part[0]], slot])
            place = int(program.columns.place[rows[0]])
            found = [*scope.placement(access)]
            if not any(each.number == 0 for each in found):
                found += _partition_rules(scope, row, name, scope.tile(access), own)
            for each in found:
                judgement = Judgement(
                    each.number, f"{name}.{each.measure}", f"{name} {each.text}", each.source, each.blocking
                )
                ledger.add(row.name, judgement, int(rows[0]), place, rows)


def _general(
    scope: Scope, row: Row, name: str, own: Mapping[int, frozenset[str]]
) -> NDArray[np.bool_] | None:
    """Classes of views that break rule 1 or 2 as operands of a row that does not state these rules itself."""
    if all(name in own[number] for number in own):
        return None
    return np.array(
        [
            not any(each.number == 0 for each in wrong)
            and bool(_partition_rules(scope, row, name, tile, own))
            for tile, wrong in zip(scope.tiles, scope.placements, strict=True)
        ],
        bool,
    )


def _partition_rules(
    scope: Scope, row: Row, name: str, tile: Tile, own: Mapping[int, frozenset[str]]
) -> list[Misplaced]:
    """Rules 1 and 2 for an on-chip operand, where the row has no limit of its own for it."""
    if not tile.on_chip:
        return []
    count, most = tile.access.partitions, scope.hardware.partitions
    if count > most:
        text = f"partition size {count} exceeds {most}"
        source = "nki/get-started/about/tiling-overview.rst:96"
        return [] if name in own[1] else [Misplaced(1, "partitions", text, source)]
    if name in own[2] or row.engines.default not in _COMPUTE or any(own[2]):
        return []
    starts = scope.hardware.start_partitions(count)
    if tile.start in starts:
        return []
    places = ", ".join(map(str, starts))
    text = f"starts at partition {tile.start}, a tile of {count} partitions may start at {places}"
    return [Misplaced(2, "start", text, f"{_ARCH}:708-713")]


def _check_outputs(scope: Scope, ledger: _Ledger) -> None:
    program = scope.program
    parameters = dict(program.parameter_buffers)
    last = len(program)
    for output in program.outputs:
        tile = scope.tile(output.access)
        buffer, memory = tile.buffer, tile.buffer.memory
        found = []
        if memory.on_chip:
            text = f"is returned from {memory.name.upper()}, an output must be in HBM"
            found.append(Judgement(24, "memory", text, "nki/migration/index.rst:608-620", blocking=True))
        elif (
            memory is not Memory.shared_hbm
            and buffer.id not in parameters.values()
            and scope.release >= SHARED_OUTPUTS_SINCE
        ):
            text = f"is returned from nl.hbm, expected nl.shared_hbm since NKI {SHARED_OUTPUTS_SINCE}"
            found.append(Judgement(23, "memory", text, "nki/migration/index.rst:608-620"))
        if output.alias is not None and parameters.get(output.alias) != buffer.id:
            text = f"is said to alias parameter {output.alias}, whose storage it is not"
            found.append(Judgement(0, "alias", text, CONTRACT, blocking=True))
        found.extend(
            Judgement(each.number, each.measure, each.text, each.source, each.blocking)
            for each in scope.placement(output.access)
        )
        for each in found:
            subject = f"{output.name}.{each.subject}"
            named = Judgement(each.number, subject, each.text, each.source, each.blocking)
            ledger.add("output", named, last, buffer.place, _NONE, f"output {output.name}")

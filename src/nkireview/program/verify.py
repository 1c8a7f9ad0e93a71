"""verify: every limit of a Program, re-derived from the instruction table. It trusts nothing the Program says.

Each distinct call is judged once: accesses are interned by what placement rules see of them, calls by what limits see
of them, and a breach is then attributed to all its occurrences.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from nkireview.isa.enums import Engine, Memory
from nkireview.isa.release import Release
from nkireview.isa.row import Row
from nkireview.isa.table import KNOWN_NAMES, ROWS
from nkireview.program.call import Tile
from nkireview.program.interning import Ints, by_opcode, intern, members
from nkireview.program.judge import Judgement, covered, judge
from nkireview.program.loops import nests
from nkireview.program.placement import CONTRACT, Misplaced, misindexed, name_of, unaligned
from nkireview.program.program import Program
from nkireview.program.scope import Calls, Scope, distinct_calls

SHARED_OUTPUTS_SINCE = Release(0, 3)
UNSUPPORTED = "row.unsupported"
_COMPUTE = (Engine.tensor, Engine.vector, Engine.scalar, Engine.gpsimd)
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
    """Rule 109, cores that one logical core can have; and that loops are nested."""
    lnc, degrees = scope.program.header.lnc, scope.hardware.lnc_degrees
    if lnc not in degrees:
        text = f"LNC {lnc} is not possible, expected {' or '.join(map(str, degrees))}"
        ledger.add(
            "kernel", Judgement(109, "lnc", text, "nki/get-started/about/lnc.rst:44-60"), -2, -1, _NONE
        )
    try:
        nests(scope.program)
    except ValueError as error:
        ledger.add("kernel", Judgement(0, "loops", str(error), CONTRACT, blocking=True), -2, -1, _NONE)


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
    for slot, name in enumerate(calls.names):
        present = np.flatnonzero(calls.accesses[:, slot] >= 0)
        kinds = _kinds(scope, row, name, calls.views[present, slot])
        present, kinds = present[kinds > 0], kinds[kinds > 0]
        places = program.columns.place[calls.rows[present]]
        classes = intern([kinds, places], len(present))
        for part in members(classes.of, len(classes)):
            rows = calls.rows[present[part]]
            access = int(calls.accesses[present[part[0]], slot])
            for each in _operand_placement(scope, row, name, scope.tile(access), scope.placement(access)):
                subject, text = f"{name}.{each.measure}", f"{name} {each.text}"
                found = Judgement(each.number, subject, text, each.source, each.blocking)
                ledger.add(row.name, found, int(rows[0]), int(program.columns.place[rows[0]]), rows)


def _kinds(scope: Scope, row: Row, name: str, views: Ints) -> Ints:
    """Which rules each view breaks as an operand: equal numbers for equal rules, 0 for none."""
    numbers: dict[tuple[tuple[int, str, bool], ...], int] = {(): 0}
    distinct = intern([views], len(views))
    kinds = np.zeros(len(distinct), np.int64)
    for at, view in enumerate(views[distinct.first].tolist()):
        found = _operand_placement(scope, row, name, scope.tiles[view], scope.placements[view])
        kind = tuple((each.number, each.measure, each.blocking) for each in found)
        kinds[at] = numbers.setdefault(kind, len(numbers))
    return kinds[distinct.of]


def _operand_placement(
    scope: Scope, row: Row, name: str, tile: Tile, wrong: tuple[Misplaced, ...]
) -> tuple[Misplaced, ...]:
    """What is wrong with a tile as an operand: also rules 1, 2 and 84, where the row does not state them itself."""
    index = tile.access.index
    if index is not None and index.kind == "scalar" and name not in covered(row, 84):
        known = {(each.number, each.measure) for each in wrong}
        inner = misindexed(tile, scope.tile(index.source))
        wrong = (*wrong, *(each for each in inner if (each.number, each.measure) not in known))
    if not tile.on_chip or any(each.number == 0 for each in wrong):
        return wrong
    count, most = tile.access.partitions, scope.hardware.partitions
    if count > most:
        if name in covered(row, 1):
            return wrong
        text = f"partition size {count} exceeds {most}"
        return (*wrong, Misplaced(1, "partitions", text, "nki/get-started/about/tiling-overview.rst:96"))
    starts = scope.hardware.start_partitions(count)
    if tile.start in starts or covered(row, 2) or row.engines.default not in _COMPUTE:
        return wrong
    places = ", ".join(map(str, starts))
    text = f"starts at partition {tile.start}, a tile of {count} partitions may start at {places}"
    return (*wrong, Misplaced(2, "start", text, f"{_ARCH}:708-713"))


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

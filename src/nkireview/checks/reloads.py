"""Re-loads: what of each DMA brings bytes that its core already had, or had itself sent to HBM.

Each core's loads and stores are followed in program order, byte for byte. A store ends what was known of the bytes that
it changes; what another core stores may change at any time, so that loading it is never for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from nkireview.checks.regions import GRAINS, Forms, Regions, forms, regions
from nkireview.checks.transfers import Transfers
from nkireview.isa import dtypes
from nkireview.program.interning import Ints, intern, members
from nkireview.program.program import MEMORIES, Program
from nkireview.schedule.uses import Uses

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
EVENTS = 200_000
"""Loads and stores of one buffer that are followed one after the other; beyond, none counts as a re-load."""


@dataclass(frozen=True, eq=False)
class Ends:
    """The HBM ends of transfers as `form`, a number in `held`: one for each row of `row`, loads before stores.

    `copies`: how often the end names each of its elements. `loop`: the loop whose trips its form covers, -1 for none.
    """

    held: Forms
    row: Ints
    form: Ints
    buffer: Ints
    stores: Flags
    copies: Ints
    loop: Ints

    def of(self, stores: bool, buffer: int) -> Ints:
        """The loads, or the stores, of one buffer, in program order."""
        return np.flatnonzero((self.stores == stores) & (self.buffer == buffer))


@dataclass(frozen=True, eq=False)
class Reloads:
    """For each row of the transfers, bytes over all executions; 0 where it loads nothing from HBM.

    `fresh`: different bytes that the core did not have. `again`: what is moved although the core loaded it before and
    nobody changed it. `returned`: what the core had stored itself. `others`: what another core stores. `known` is False
    where the address of a load is made on the device, and `copies` is how often it names each element. `changed`:
    the program may have written some of it before.
    """

    fresh: Floats
    again: Floats
    returned: Floats
    others: Floats
    known: Flags
    changed: Flags
    copies: Ints
    ends: Ends = field(repr=False)


def hbm_ends(program: Program, moves: Transfers) -> Ends:
    """The HBM ends of the transfers that are executed at all."""
    runs = moves.times > 0
    load, store = np.flatnonzero(moves.loads & runs), np.flatnonzero(moves.stores & runs)
    row = np.concatenate([load, store])
    access = np.concatenate([moves.source_access[load], moves.target_access[store]])
    loop = _loops(program, moves.instruction[row], access)
    keys = intern([access, loop], len(row))
    held = forms(program, access[keys.first], loop[keys.first])
    copies = np.array([pattern.copies for pattern in held.patterns] or [1], np.int64)[held.pattern]
    return Ends(
        held=held,
        row=row,
        form=keys.of,
        buffer=np.concatenate([moves.source[load], moves.target[store]]),
        stores=np.arange(len(row)) >= len(load),
        copies=np.where(held.pattern >= 0, copies, 1)[keys.of] if len(row) else row,
        loop=loop,
    )


def _loops(program: Program, instruction: Ints, access: Ints) -> Ints:
    """The innermost loop around each instruction whose counter moves the access, -1 where none does."""
    found = np.full(len(access), -1, np.int64)
    moved = {
        number: extra.index.source
        for number, extra in program.extras.items()
        if extra.index is not None and extra.index.kind == "register"
    }
    if not moved or not program.loops:
        return found
    register = np.full(program.columns.accesses, -1, np.int64)
    register[list(moved)] = list(moved.values())
    asked = register[access]
    order = sorted(range(len(program.loops)), key=lambda number: program.loops[number].start)
    for number in order:
        loop = program.loops[number]
        if loop.kind == "for":
            inside = (instruction >= loop.start) & (instruction < loop.stop) & (asked == loop.register)
            found[inside] = number
    return found


def reloads(program: Program, moves: Transfers, used: Uses) -> Reloads:
    """What the loads of a Program bring that is new, and what they bring again."""
    ends = hbm_ends(program, moves)
    count = len(moves)
    found = Reloads(
        fresh=np.zeros(count),
        again=np.zeros(count),
        returned=np.zeros(count),
        others=np.zeros(count),
        known=np.ones(count, bool),
        changed=np.zeros(count, bool),
        copies=np.ones(count, np.int64),
        ends=ends,
    )
    loads = np.flatnonzero(~ends.stores)
    found.copies[ends.row[loads]] = ends.copies[loads]
    changes = _Changes(program, moves, used, ends)
    buffers = ends.buffer[loads]
    classes = intern([buffers], len(buffers))
    for part in members(classes.of, len(classes)):
        mine = loads[part]
        buffer = int(ends.buffer[mine[0]])
        if changes.any(buffer):
            _Replay(program, moves, ends, buffer, changes).run(found, mine)
        else:
            _unchanged(program, moves, ends, buffer, mine, found)
    return found


def _unchanged(
    program: Program, moves: Transfers, ends: Ends, buffer: int, mine: Ints, found: Reloads
) -> None:
    """Loads of a buffer that nobody writes."""
    size = math.prod(program.buffer(buffer).shape) * dtypes.BY_NAME[program.buffer(buffer).dtype].bits / 8
    # what is copied within HBM is not on chip afterwards
    within = mine[moves.stores[ends.row[mine]]]
    copied = ends.row[within]
    found.known[copied] = ends.held.pattern[ends.form[within]] >= 0
    found.fresh[copied] = (moves.bytes * moves.times)[copied] / found.copies[copied]
    mine = mine[~moves.stores[ends.row[mine]]]
    streams = moves.stream[ends.row[mine]]
    for stream in np.unique(streams).tolist():
        own = mine[streams == stream]
        rows = ends.row[own]
        keys, at = np.unique(ends.form[own], return_index=True)
        order = np.argsort(at, kind="stable")
        keys, at = keys[order], at[order]
        held = regions(program, buffer, ends.held, keys)
        new = np.zeros(len(ends.held.pattern))
        if held.exact:
            new[held.rows] = held.first() * held.grain_bytes
        else:
            kinds = [ends.held.patterns[number] for number in ends.held.pattern[held.rows].tolist()]
            new[held.rows] = [kind.pieces * kind.run / 8 for kind in kinds]
            new *= min(1.0, size / max(float(new.sum()), 1.0))
        known = np.isin(ends.form[own], held.rows)
        found.known[rows] = known
        found.fresh[rows[at]] = new[keys]
        moved = (moves.bytes * moves.times)[rows]
        again = np.where(known, moved - found.fresh[rows] * found.copies[rows], 0.0)
        found.again[rows] = np.maximum(again, 0.0)
        found.fresh[rows[~known]] = moved[~known]


class _Changes:
    """Who writes HBM buffers, and in which loops."""

    def __init__(self, program: Program, moves: Transfers, used: Uses, ends: Ends) -> None:
        stores = np.flatnonzero(ends.stores)
        hbm = np.array([not memory.on_chip for memory in MEMORIES])[program.columns.buffer_memory]
        rows = np.flatnonzero(used.writes & hbm[used.buffer] & ~np.isin(used.instruction, moves.instruction))
        self.wild: dict[int, list[int]] = {}
        for buffer, instruction in zip(
            used.buffer[rows].tolist(), used.instruction[rows].tolist(), strict=True
        ):
            self.wild.setdefault(buffer, []).append(instruction)
        self._stored = set(np.unique(ends.buffer[stores]).tolist())
        self._loops = [(loop.start, loop.stop, loop.trips or 1) for loop in program.loops]

    def any(self, buffer: int) -> bool:
        """True where something writes the buffer."""
        return buffer in self._stored or buffer in self.wild

    def rounds(self, instructions: Ints, writers: Ints) -> tuple[Ints, Ints, Flags]:
        """For each instruction how often loops that also hold a writer run it, and the outermost of them (-1: none).

        For each loop whether it holds a writer.
        """
        found = np.ones(len(instructions), np.int64)
        outermost = np.full(len(instructions), -1, np.int64)
        holding = np.zeros(len(self._loops) + 1, bool)
        for number, (start, stop, trips) in sorted(enumerate(self._loops), key=_outer_first):
            holding[number] = bool(np.any((writers >= start) & (writers < stop)))
            if holding[number]:
                inside = (instructions >= start) & (instructions < stop)
                found[inside] *= trips
                outermost[inside & (outermost < 0)] = number
        return found, outermost, holding

    def span(self, loop: int) -> tuple[int, int]:
        """Begin and end of a loop."""
        return self._loops[loop][:2]


def _outer_first(item: tuple[int, tuple[int, int, int]]) -> tuple[int, int]:
    return item[1][0], -item[1][1]


class _Replay:
    """Loads and stores of a buffer that changes, one after the other."""

    def __init__(
        self, program: Program, moves: Transfers, ends: Ends, buffer: int, changes: _Changes
    ) -> None:
        self.program, self.moves, self.ends, self.buffer, self.changes = program, moves, ends, buffer, changes
        self.stores = ends.of(True, buffer)
        self.wild = np.array(sorted(changes.wild.get(buffer, ())), np.int64)
        self.stops = np.array([stream.stop for stream in program.streams], np.int64)

    def run(self, found: Reloads, loads: Ints) -> None:
        """Note the fate of every load."""
        ends, moves = self.ends, self.moves
        rows = ends.row[loads]
        moved = (moves.bytes * moves.times)[rows]
        found.fresh[rows] = moved / found.copies[rows]
        found.changed[rows] = True
        found.known[rows] = ends.held.pattern[ends.form[loads]] >= 0
        keys = np.unique(ends.form[np.concatenate([loads, self.stores])])
        held = regions(self.program, self.buffer, ends.held, keys)
        found.known[rows] = np.isin(ends.form[loads], held.rows)
        streams = moves.stream[rows]
        touched = self._touched(held, np.concatenate([loads, self.stores]))
        if not held.exact or touched > 2 * GRAINS or len(loads) + len(self.stores) > EVENTS:
            return
        for stream in np.unique(streams).tolist():
            self._stream(found, held, loads[streams == stream], stream)

    def _touched(self, held: Regions, some: Ints) -> float:
        sizes = np.array(
            [kind.pieces * (kind.run // held.grain) for kind in self.ends.held.patterns], np.float64
        )
        known = self.ends.held.pattern[self.ends.form[some]]
        return float(sizes[known[known >= 0]].sum())

    def _stream(self, found: Reloads, held: Regions, loads: Ints, stream: int) -> None:
        ends, moves = self.ends, self.moves
        of_store = moves.stream[ends.row[self.stores]]
        of_wild = np.searchsorted(self.stops, self.wild, side="right")
        others = self._marked(held, self.stores[of_store != stream], bool(np.any(of_wild != stream)))
        stores = self.stores[of_store == stream]
        wild = self.wild[of_wild == stream]
        rows = ends.row[loads]
        writers = np.concatenate([moves.instruction[ends.row[stores]], wild])
        rounds, outermost, holding = self.changes.rounds(moves.instruction[rows], writers)
        renewed = {
            loop: self._written(held, stores, wild, *self.changes.span(loop))
            for loop in np.unique(outermost[outermost >= 0]).tolist()
        }
        state = _State(held, others)
        for _, kind, at in self._events(loads, stores, wild):
            if kind == _WILD:
                state.forget()
            elif kind == _STORE:
                state.store(self._grains(held, stores[at]))
            else:
                row = int(rows[at])
                if moves.stores[row]:
                    continue  # what is copied within HBM is not on chip afterwards
                grains = self._grains(held, loads[at])
                if grains is None:
                    continue
                found.changed[row] = state.changed(grains)
                new, mine, foreign = state.load(grains, renewed.get(int(outermost[at])))
                moved = float(moves.bytes[row] * moves.times[row])
                copies = float(found.copies[row])
                found.returned[row] = moved * mine / len(grains)
                found.others[row] = moved * foreign / len(grains)
                if not holding[ends.loop[loads[at]]]:
                    fresh = new * held.grain_bytes * float(rounds[at]) + found.others[row] / copies
                    found.fresh[row] = fresh
                    found.again[row] = max(moved - fresh * copies, 0.0)

    def _marked(self, held: Regions, stores: Ints, wild: bool) -> Flags:
        """The grains that stores touch; all where some address is unknown, or something `wild` writes."""
        stored = np.unique(self.ends.form[stores])
        known = np.isin(stored, held.rows)
        if wild or not known.all():
            return np.ones(held.count, bool)
        marks = np.zeros(held.count, bool)
        for form in stored.tolist():
            marks[held.grains(form)] = True
        return marks

    def _written(self, held: Regions, stores: Ints, wild: Ints, start: int, stop: int) -> Flags:
        """The grains that a loop's body may change."""
        at = self.moves.instruction[self.ends.row[stores]]
        inside = stores[(at >= start) & (at < stop)]
        return self._marked(held, inside, bool(np.any((wild >= start) & (wild < stop))))

    def _events(self, loads: Ints, stores: Ints, wild: Ints) -> list[tuple[int, int, int]]:
        """Instruction, kind, and position among its like, in program order; an instruction loads before it stores."""
        at = self.moves.instruction
        return sorted(
            (
                *_numbered(at[self.ends.row[loads]], _LOAD),
                *_numbered(at[self.ends.row[stores]], _STORE),
                *_numbered(wild, _WILD),
            )
        )

    def _grains(self, held: Regions, end: int) -> Ints | None:
        """What an end touches; None where it is not known."""
        form = int(self.ends.form[end])
        at = int(np.searchsorted(held.rows, form))
        return held.grains(form) if at < len(held.rows) and held.rows[at] == form else None


_LOAD, _STORE, _WILD = range(3)


def _numbered(instructions: Ints, kind: int) -> Sequence[tuple[int, int, int]]:
    return [(instruction, kind, at) for at, instruction in enumerate(instructions.tolist())]


class _State:
    """What one core knows of a buffer."""

    def __init__(self, held: Regions, others: Flags) -> None:
        self.loaded, self.mine, self.written = (np.zeros(held.count, bool) for _ in range(3))
        self.others = others

    def forget(self) -> None:
        """Anything may have changed."""
        self.loaded[:] = False
        self.mine[:] = False
        self.written[:] = True

    def changed(self, grains: Ints) -> bool:
        """True where the program may have written some of them."""
        return bool((self.written[grains] | self.others[grains]).any())

    def store(self, grains: Ints | None) -> None:
        """The core writes there."""
        if grains is None:
            self.forget()
        else:
            self.loaded[grains], self.mine[grains], self.written[grains] = False, True, True

    def load(self, grains: Ints, renewed: Flags | None) -> tuple[int, int, int]:
        """Grains that are new to the core; and, as often as they are named, those it stored and those of others.

        What a loop around the load changes, `renewed`, is new each time.
        """
        foreign = self.others[grains]
        own = grains[~foreign]
        fresh = ~self.loaded[own]
        new = own[fresh if renewed is None else fresh | renewed[own]]
        self.loaded[own] = True
        return len(np.unique(new)), int(np.count_nonzero(self.mine[own])), int(np.count_nonzero(foreign))

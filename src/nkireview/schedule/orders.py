"""Orders: other legal orders of a Program's instructions, for executions that show what depends on the order.

What the compiler keeps decides what is legal: uses of the same bytes by one core, registers, what a kernel asks for by
name, and state that instructions share. Nothing moves across a loop's ends or an instruction that meets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from enum import Enum
from heapq import heapify, heappop, heappush
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from nkireview.isa.enums import Engine
from nkireview.isa.row import Row
from nkireview.isa.rows import random
from nkireview.isa.table import ROWS
from nkireview.program.interning import Ints
from nkireview.program.prints import PRINTED
from nkireview.program.program import Program
from nkireview.program.reordered import stretches
from nkireview.program.scope import Scope
from nkireview.program.storage import READS, WRITES, Storage
from nkireview.schedule.cells import cells
from nkireview.schedule.dependences import Dependences, dependences
from nkireview.schedule.parameters import Parameters
from nkireview.schedule.touches import Touches, touches

_RANDOM = frozenset(row.name for row in random.ROWS)


class Policy(Enum):
    """How an order is chosen among the legal ones."""

    late = "late"
    """A DMA runs when something needs it, or at the end."""
    early = "early"
    """A DMA runs as soon as what it needs is there."""
    shuffled = "shuffled"
    """Any order, by a seed."""


def seen(program: Program, stored: Storage) -> Touches:
    """What instructions touch; HBM that is only written counts, too, as the last write stays."""
    written = np.where(stored.use & WRITES, stored.use | READS, stored.use).astype(np.int8)
    held = cells(Scope.of(program), replace(stored, use=written), int(Parameters().value("cells")))
    return touches(program, stored, held)


def needed(program: Program, stored: Storage) -> Dependences:
    """The dependences that every legal order keeps."""
    return dependences(program, seen(program, stored))


def orders(program: Program, needs: Dependences, policy: Policy, seed: int = 0) -> Ints:
    """A legal order: the instructions' numbers in the order in which they run. `seed`: which of the shuffled ones."""
    count = len(program)
    home = stretches(program, _fixed(program))
    consumer = np.repeat(np.arange(count, dtype=np.int64), np.diff(needs.at))
    pairs = [(needs.producer, consumer), *_chains(program)]
    before, after = (np.concatenate(parts).astype(np.int64) for parts in zip(*pairs, strict=True))
    inside = (home[before] == home[after]) & (before < after)
    before, after = before[inside], after[inside]
    backwards = policy is Policy.late
    if backwards:
        # as late as possible is as early as possible, looked at from the end
        home = home[-1:] - home[::-1]
        before, after = count - 1 - after, count - 1 - before
    rank = _ranks(program, policy, seed)
    found = _sorted(home, before, after, rank[::-1] if backwards else rank)
    return count - 1 - found[::-1] if backwards else found


def asked(program: Program, needs: Dependences, producer: Ints, consumer: Ints) -> Ints | None:
    """The order nearest to the recorded one in which each consumer also runs after its producer; None for none."""
    home = stretches(program, _fixed(program))
    if np.any(home[producer] != home[consumer]):
        return None
    needing = np.repeat(np.arange(len(program), dtype=np.int64), np.diff(needs.at))
    pairs = [(needs.producer, needing), *_chains(program)]
    before, after = (np.concatenate(parts).astype(np.int64) for parts in zip(*pairs, strict=True))
    inside = (home[before] == home[after]) & (before < after)
    before, after = np.append(before[inside], producer), np.append(after[inside], consumer)
    found = _sorted(home, before, after, np.arange(len(program)))
    return found if len(found) == len(program) else None


def _ranks(program: Program, policy: Policy, seed: int) -> Ints:
    """Of the instructions that may run, the one with the least rank does."""
    count = len(program)
    if policy is Policy.shuffled:
        return np.random.default_rng(seed).permutation(count)
    dma = np.array([_of(row, Engine.dma) for row in _rows(program)], bool)[program.columns.opcode]
    chosen = np.lexsort((np.arange(count) * (-1 if policy is Policy.late else 1), ~dma))
    ranks = np.empty(count, np.int64)
    ranks[chosen] = np.arange(count)
    return ranks


def _sorted(home: Ints, before: Ints, after: Ints, rank: Ints) -> Ints:
    """Topological order, stretch by stretch; `before` and `after` are the ends of each edge."""
    count = len(home)
    by_start = np.argsort(before, kind="stable")
    targets: list[int] = after[by_start].tolist()
    starts: list[int] = np.searchsorted(before[by_start], np.arange(count + 1)).tolist()
    waits: list[int] = np.bincount(after, minlength=count).tolist()
    ranks: list[int] = rank.tolist()
    at_rank: list[int] = np.argsort(rank).tolist()
    found: list[int] = []
    bounds = [*np.flatnonzero(np.diff(home, prepend=-1)).tolist(), count]
    for start, stop in pairwise(bounds):
        ready = [ranks[at] for at in range(start, stop) if not waits[at]]
        heapify(ready)
        while ready:
            at = at_rank[heappop(ready)]
            found.append(at)
            for other in targets[starts[at] : starts[at + 1]]:
                waits[other] -= 1
                if not waits[other]:
                    heappush(ready, ranks[other])
    return np.array(found, np.int64)


def _rows(program: Program) -> list[Row | None]:
    return [ROWS.get(opcode.name) for opcode in program.opcodes]


def _of(row: Row | None, engine: Engine) -> bool:
    return row is not None and row.engines.default is engine


def _fixed(program: Program) -> Ints:
    """The instructions that nothing moves across: those that meet, and those without a row."""
    stays = np.array([row is None or bool(row.meets) for row in _rows(program)], bool)
    return np.flatnonzero(stays[program.columns.opcode])


def _chains(program: Program) -> Iterator[tuple[Ints, Ints]]:
    """Edges between instructions that share state and keep their order: accumulators, random numbers, prints."""
    rows = _rows(program)
    groups = [
        {at for at, row in enumerate(rows) if row is not None and _accumulates(row) and _of(row, engine)}
        for engine in (Engine.vector, Engine.scalar, Engine.gpsimd)
    ]
    groups.append({at for at, row in enumerate(rows) if row is not None and row.name in _RANDOM})
    opcode = program.columns.opcode
    for group in groups:
        chain = np.flatnonzero(np.isin(opcode, list(group))) if group else np.zeros(0, np.int64)
        yield chain[:-1], chain[1:]
    chain = np.flatnonzero(_prints(program))
    yield chain[:-1], chain[1:]


def _accumulates(row: Row) -> bool:
    """True where accumulator registers may be used."""
    return "reduce_res" in row.flow or any(param.name == "reduce_cmd" for param in row.signature)


def _prints(program: Program) -> NDArray[np.bool_]:
    """The instructions that copy to where the runtime prints from."""
    columns = program.columns
    names = [number for number, text in enumerate(program.strings) if text.startswith(PRINTED)]
    found = np.zeros(len(program), bool)
    if names:
        shown = np.isin(columns.buffer_name, names)
        used = columns.operand >= 0
        owner = np.repeat(np.arange(len(program)), np.diff(columns.operand_at))[used]
        found[owner[shown[columns.access_buffer[columns.operand[used]]]]] = True
    return found

"""Schedules: dependencies that a kernel asks for against the order it is recorded in.

``with_schedule`` and ``depends_on`` may name a producer that is recorded after its consumer. Where data allows, the
two change places; where the producer needs what the consumer does, nobody can keep both.
Source: nki/guides/how-to-scheduling-apis.rst.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nkireview.isa.table import ROWS
from nkireview.program.interning import Ints
from nkireview.program.program import Program
from nkireview.program.reordered import reordered
from nkireview.program.storage import READS, WRITES, storage
from nkireview.schedule.dependences import Dependences, Why
from nkireview.schedule.orders import asked, needed


@dataclass(frozen=True)
class Contradiction:
    """`consumer` is to run after `producer`, which has to run after it.

    `path`: from the consumer to the producer, each of which has to come after the one before it, and `whys` why;
    `buffer`: through which the second of the path depends on the first, -1 where it is not through one.
    """

    consumer: int
    producer: int
    path: tuple[int, ...]
    whys: tuple[Why, ...]
    buffer: int


def contradictions(program: Program) -> tuple[Contradiction, ...]:
    """What is asked for against the data, registers, or what else is asked for, in program order."""
    producer, consumer = _backwards(program)
    if not len(producer):
        return ()
    return _contradictions(program, producer, consumer, needed(program, storage(program, ROWS)))


def as_asked(program: Program) -> Program:
    """The Program in the order that its dependencies ask for, as far as data and loops allow; most often itself."""
    producer, consumer = _backwards(program)
    if not len(producer):
        return program
    needs = needed(program, storage(program, ROWS))
    against = {(each.consumer, each.producer) for each in _contradictions(program, producer, consumer, needs)}
    kept = np.array([pair not in against for pair in zip(consumer.tolist(), producer.tolist(), strict=True)])
    order = asked(program, needs, producer[kept], consumer[kept]) if kept.any() else None
    return program if order is None else reordered(program, order)


def _backwards(program: Program) -> tuple[Ints, Ints]:
    """The producers that are recorded after their consumers, and those consumers."""
    columns = program.columns
    consumer = np.repeat(np.arange(len(program), dtype=np.int64), np.diff(columns.dependency_at))
    found = columns.dependency >= consumer
    return columns.dependency[found].astype(np.int64), consumer[found]


def _contradictions(
    program: Program, producer: Ints, consumer: Ints, needs: Dependences
) -> tuple[Contradiction, ...]:
    """Those that the data contradict, and of the others those that contradict each other."""
    needing = np.repeat(np.arange(len(program), dtype=np.int64), np.diff(needs.at))
    edges = list(zip(consumer.tolist(), producer.tolist(), strict=True))
    alone = _Graph(len(program), needs.producer, needing, needs.why.astype(np.int64))
    found = {edge: path for edge in edges if (path := alone.path(*edge, most=edge[1])) is not None}
    left = np.array([edge for edge in edges if edge not in found], np.int64).reshape(-1, 2)
    if len(left) > 1:
        together = _Graph(
            len(program),
            np.append(needs.producer, left[:, 1]),
            np.append(needing, left[:, 0]),
            np.append(needs.why.astype(np.int64), np.full(len(left), Why.named)),
        )
        for first, last in left.tolist():
            path = together.path(first, last, most=len(program))
            if path is not None:
                found[first, last] = path
    made = []
    for (first, last), (steps, whys) in sorted(found.items()):
        through = -1 if whys[0] is Why.named else _shared(program, steps[0], steps[1], whys[0])
        made.append(Contradiction(first, last, steps, whys, through))
    return tuple(made)


class _Graph:
    """Which instructions have to come after which, and why."""

    def __init__(self, count: int, before: Ints, after: Ints, why: Ints) -> None:
        order = np.argsort(before, kind="stable")
        self.after, self.why = after[order], why[order]
        self.starts = np.searchsorted(before[order], np.arange(count + 1))

    def path(self, first: int, last: int, most: int) -> tuple[tuple[int, ...], tuple[Why, ...]] | None:
        """A shortest path from one instruction to another through none above `most`, and why each step."""
        came: dict[int, tuple[int, int]] = {first: (-1, -1)}
        front = [first]
        while front and last not in came:
            reached = []
            for at in front:
                for edge in range(int(self.starts[at]), int(self.starts[at + 1])):
                    other = int(self.after[edge])
                    if other not in came and other <= most:
                        came[other] = at, edge
                        reached.append(other)
            front = reached
        if last not in came:
            return None
        steps, whys = [last], []
        while steps[-1] != first:
            at, edge = came[steps[-1]]
            steps.append(at)
            whys.append(Why(int(self.why[edge])))
        return tuple(reversed(steps)), tuple(reversed(whys))


def _shared(program: Program, first: int, second: int, why: Why) -> int:
    """The buffer through which one instruction depends on an earlier one, -1 where it is not a buffer."""
    held = storage(program, ROWS)
    columns = program.columns

    def buffers(instruction: int, writes: bool) -> Sequence[int]:
        at = slice(columns.operand_at[instruction], columns.operand_at[instruction + 1])
        used = columns.operand[at] >= 0
        chosen = used & ((held.use[at] & (WRITES if writes else READS)) > 0)
        found = columns.access_buffer[columns.operand[at][chosen]].tolist()
        if not writes:
            for access in columns.operand[at][used].tolist():
                found += [
                    int(columns.access_buffer[tile]) for _, tile in held.indices.get(access, ()) if tile >= 0
                ]
        return list(found)

    mine = buffers(first, why is not Why.reuse)
    theirs = {int(held.of_buffer[each]): each for each in buffers(second, why is not Why.data)}
    return next((theirs[held.of_buffer[each]] for each in mine if int(held.of_buffer[each]) in theirs), -1)

"""What is alive at one instruction whatever the order of the program: a lower bound on the memory it needs.

A buffer is alive just before an instruction where something that must come before it wrote a value that it, or
something that must come after it, reads; and just after it likewise. Orders are those that keep every read after the
write of its value, and what the kernel asks for by name.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nkireview.checks.values import Values, values
from nkireview.program.interning import Ints
from nkireview.program.program import Program
from nkireview.program.scope import Scope
from nkireview.program.storage import Storage
from nkireview.schedule.uses import Uses

SAMPLED = 62
"""Buffers of the fullest moment by which instructions are sought that much must be alive at."""
TRIED = 8
"""Instructions at which all that must be alive is added up."""
Bits = NDArray[np.uint64]


@dataclass(frozen=True)
class Unavoidable:
    """What no order avoids: at `instruction`, these storage places are alive, of so many bytes over all partitions."""

    instruction: int
    bytes: int
    places: tuple[int, ...]


class Orders:
    """The orders of a Program that are legal, as far as they are known for certain."""

    def __init__(self, scope: Scope, stored: Storage, used: Uses) -> None:
        self.count = len(scope.program)
        self.values: Values = values(scope, stored, used)
        pairs = np.concatenate(
            [np.stack([self.values.reader, self.values.writer]), _named(scope.program)], axis=1
        )
        consumer, producer = np.unique(pairs, axis=1)
        self._consumer: list[int] = consumer.tolist()
        self._producer: list[int] = producer.tolist()

    def unavoidable(self, area: Ints, alive: Ints) -> Unavoidable | None:
        """The most that must be alive at one of the likeliest instructions; None where nothing must.

        area: bytes over all partitions of each storage place, 0 for those of other memories. alive: the places that
        are alive at the fullest moment of program order.
        """
        mine = np.flatnonzero(area[self.values.place] > 0)
        if not len(mine):
            return None
        writer, reader, place = (
            column[mine] for column in (self.values.writer, self.values.reader, self.values.place)
        )
        best: Unavoidable | None = None
        tried = self._likeliest(writer, reader, place, area, alive)
        seed = np.zeros(self.count, np.uint64)
        seed[tried] |= np.uint64(1) << np.arange(len(tried), dtype=np.uint64)
        upto, onward = self._before(seed), self._after(seed)
        for moment in ((upto & ~seed)[writer] & onward[reader], upto[writer] & (onward & ~seed)[reader]):
            for bit, instruction in enumerate(tried.tolist()):
                held = np.unique(place[(moment >> np.uint64(bit)) & np.uint64(1) > 0])
                total = int(area[held].sum())
                if total and (best is None or total > best.bytes):
                    best = Unavoidable(instruction, total, tuple(held.tolist()))
        return best

    def _likeliest(self, writer: Ints, reader: Ints, place: Ints, area: Ints, alive: Ints) -> Ints:
        """Instructions that have most of a sample of the places that are alive before and after them."""
        sample = alive[np.argsort(-area[alive], kind="stable")]
        sample = sample[np.linspace(0, len(sample) - 1, min(SAMPLED, len(sample))).astype(np.int64)]
        bit_of = np.full(len(area), -1, np.int64)
        bit_of[sample] = np.arange(len(sample))
        bits = bit_of[place]
        held = bits >= 0
        made, needed = np.zeros(self.count, np.uint64), np.zeros(self.count, np.uint64)
        flags = np.uint64(1) << bits[held].astype(np.uint64)
        np.bitwise_or.at(made, writer[held], flags)
        np.bitwise_or.at(needed, reader[held], flags)
        both = self._after(made) & self._before(needed)
        score = np.zeros(self.count, np.int64)
        for bit, each in enumerate(sample.tolist()):
            score += ((both >> np.uint64(bit)) & np.uint64(1)).astype(np.int64) * int(area[each])
        best = np.flatnonzero(score == score.max())
        if len(best) > TRIED:
            return best[np.linspace(0, len(best) - 1, TRIED).astype(np.int64)]
        return np.argsort(-score, kind="stable")[:TRIED]

    def _after(self, seed: Bits) -> Bits:
        """For each instruction the bits of itself and of all that must come before it."""
        found: list[int] = seed.tolist()
        for consumer, producer in zip(self._consumer, self._producer, strict=True):
            found[consumer] |= found[producer]
        return np.array(found, np.uint64)

    def _before(self, seed: Bits) -> Bits:
        """For each instruction the bits of itself and of all that must come after it."""
        found: list[int] = seed.tolist()
        for consumer, producer in zip(reversed(self._consumer), reversed(self._producer), strict=True):
            found[producer] |= found[consumer]
        return np.array(found, np.uint64)


def _named(program: Program) -> Ints:
    """What the kernel asks for by name, outside of device-side loops: (consumers, producers)."""
    columns = program.columns
    consumer = np.repeat(np.arange(len(program), dtype=np.int64), np.diff(columns.dependency_at))
    producer = columns.dependency.astype(np.int64)
    inside = np.zeros(len(program), bool)
    for loop in program.loops:
        inside[loop.start : loop.stop] = True
    return np.stack([consumer, producer])[:, ~(inside[consumer] | inside[producer])]

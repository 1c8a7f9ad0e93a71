"""Listing: the order in which a compiler that is free to reorder would run a program.

The legacy compiler starts on each engine what is ready, the earliest in the program first, as long as SBUF and PSUM
have room for its result. Where a kernel names no engine it takes the one that is done first.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from nkireview.hardware import Hardware
from nkireview.isa.enums import Memory
from nkireview.program.interning import Ints
from nkireview.program.program import MEMORIES
from nkireview.schedule.costs import STORES, SYNC, Costs
from nkireview.schedule.dependences import Dependences
from nkireview.schedule.fusing import Fusions
from nkireview.schedule.residence import Residence
from nkireview.schedule.reuse import Arrivals, Places
from nkireview.schedule.uses import Uses


@dataclass(frozen=True, eq=False)
class Listing:
    """A legal order of what is not dropped, and which instructions run on their other engine.

    `follows` marks narrow instructions that run as one with the one before.
    `arrivals`: instruction -> (place that is first used there, places that had to be free before).
    """

    order: Sequence[int]
    moved: NDArray[np.bool_]
    follows: NDArray[np.bool_]
    arrivals: Arrivals


@dataclass(frozen=True, eq=False)
class Choice:
    """The other queue that an instruction may run on, -1 for none, and for how many ns it holds that."""

    queue: NDArray[np.int8]
    held: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Pace:
    """How fast DMAs go while an order is chosen: from issue to start in ns, and how many engines share the work."""

    start_ns: float
    engines: int


def listing(
    costs: Costs,
    needs: Dependences,
    places: Places,
    used: Uses,
    kept: Residence,
    hardware: Hardware,
    choice: Choice,
    pace: Pace,
    window: int,
    fused: Fusions,
    order: Ints,
) -> Listing:
    """Choose the order. `window`: how many instructions beyond the oldest open one the compiler looks at.

    order: a legal order by which the compiler prefers one instruction to another.
    """
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    memory = _Memory(places, used, kept, hardware, fused, rank)
    lists = _Lists(costs, kept, choice, pace, window, memory, fused, order)
    lists.connect(needs, kept, rank)
    return lists.run()


class _Memory:
    """What is left of SBUF and PSUM, and when more comes free."""

    def __init__(
        self, places: Places, used: Uses, kept: Residence, hardware: Hardware, fused: Fusions, rank: Ints
    ) -> None:
        sbuf, psum = MEMORIES.index(Memory.sbuf), MEMORIES.index(Memory.psum)
        self.size, self.memory = places.size.tolist(), places.memory.tolist()
        self.left = {sbuf: hardware.sbuf_usable_bytes, psum: hardware.psum_bytes}
        self.freed: dict[int, list[tuple[float, int]]] = {sbuf: [], psum: []}
        self.users = [0] * len(self.size)
        self.last = [0.0] * len(self.size)
        self.opened = [False] * len(self.size)
        self.touched: list[list[int]] = [[] for _ in range(len(kept.dropped))]
        live = ~kept.dropped[used.instruction]
        live &= np.isin(places.memory[used.place], [sbuf, psum])
        for key in np.unique(rank[used.instruction[live]] * len(self.size) + used.place[live]).tolist():
            instruction, place = divmod(key, len(self.size))
            place = fused.stands.get(place, place)
            if place in self.touched[instruction]:
                continue
            self.touched[instruction].append(place)
            self.users[place] += 1

    def take(self, index: int, force: bool) -> tuple[float, tuple[int, ...], int] | None:
        """Room for what the instruction uses first: from when on, what gave way, and the first of the new places.

        None where nothing that is known to end leaves enough.
        """
        fresh = [place for place in self.touched[index] if not self.opened[place]]
        if not fresh:
            return 0.0, (), -1
        needed: dict[int, int] = {}
        for place in fresh:
            needed[self.memory[place]] = needed.get(self.memory[place], 0) + self.size[place]
        moment, gave = 0.0, []
        for memory, size in needed.items():
            while self.left[memory] < size and self.freed[memory]:
                at, place = heappop(self.freed[memory])
                self.left[memory] += self.size[place]
                moment = max(moment, at)
                gave.append(place)
        if not force and any(self.left[memory] < size for memory, size in needed.items()):
            for place in gave:
                self.left[self.memory[place]] -= self.size[place]
                heappush(self.freed[self.memory[place]], (self.last[place], place))
            return None
        for memory, size in needed.items():
            self.left[memory] -= size
        for place in fresh:
            self.opened[place] = True
        return moment, tuple(gave), fresh[0]

    def release(self, index: int, ended: float) -> bool:
        """Note the end of an instruction; True where it frees something."""
        found = False
        for place in self.touched[index]:
            self.last[place] = max(self.last[place], ended)
            self.users[place] -= 1
            if not self.users[place]:
                heappush(self.freed[self.memory[place]], (self.last[place], place))
                found = True
        return found


class _Lists:
    """What is ready for each queue."""

    def __init__(
        self,
        costs: Costs,
        kept: Residence,
        choice: Choice,
        pace: Pace,
        window: int,
        memory: _Memory,
        fused: Fusions,
        order: Ints,
    ) -> None:
        self.window, self.memory, self.pace, self.names = window, memory, pace, order
        self.dropped = kept.dropped[order].tolist()
        self.count = len(self.dropped)
        queue = np.where(costs.is_dma & costs.stores & (costs.lane == SYNC), STORES, costs.lane)
        self.queue = queue[order].tolist()
        self.held, self.latency = costs.held[order].tolist(), costs.latency[order].tolist()
        self.other, self.other_held = choice.queue[order].tolist(), choice.held[order].tolist()
        self.is_dma, self.transfer = costs.is_dma[order].tolist(), costs.transfer[order].tolist()
        self.share = (costs.transfer * costs.engines / pace.engines)[order].tolist()
        self.when = [0.0] * self.count
        self.waiting: list[tuple[float, int]] = []
        self.beyond: list[int] = []
        self.pools: list[list[int]] = [[] for _ in range(STORES + 1)]
        self.oldest = 0
        self.group = fused.group[order].tolist()
        self.missing = np.bincount(fused.group[(fused.group >= 0) & ~kept.dropped]).tolist()
        self.gathered: dict[int, list[int]] = {}
        self.follows = np.zeros(self.count, bool)

    def connect(self, needs: Dependences, kept: Residence, rank: Ints) -> None:
        """Who waits for whom; for a dropped instruction, the one that stands in for it."""
        numbers = np.arange(self.count)
        stands = np.where(kept.dropped, kept.source, numbers)
        consumer = np.repeat(numbers, np.diff(needs.at))
        producer = stands[needs.producer]
        wanted = (producer >= 0) & ~kept.dropped[consumer]
        consumer, producer = rank[consumer[wanted]], rank[producer[wanted]]
        order = np.argsort(producer, kind="stable")
        self.after = consumer[order].tolist()
        self.after_at = np.searchsorted(producer[order], np.arange(self.count + 1)).tolist()
        self.open = np.bincount(consumer, minlength=self.count).tolist()

    def run(self) -> Listing:
        """Choose one instruction after the other: of what is ready first, the earliest in the program."""
        order: list[int] = []
        moved = np.zeros(self.count, bool)
        arrivals: dict[int, list[tuple[int, tuple[int, ...]]]] = {}
        free = [0.0] * len(self.pools)
        blocked: list[int] = []
        placed = list(self.dropped)
        clock = moving = 0.0
        for index in range(self.count):
            if not placed[index] and not self.open[index]:
                self._offer(index)
        while True:
            while self.oldest < self.count and placed[self.oldest]:
                self.oldest += 1
            while self.beyond and self.beyond[0] < self.oldest + self.window:
                index = heappop(self.beyond)
                heappush(self.waiting, (self.when[index], index))
            while self.waiting and self.waiting[0][0] <= clock:
                index = heappop(self.waiting)[1]
                heappush(self.pools[self.queue[index]], index)
            full = [queue for queue, pool in enumerate(self.pools) if pool]
            queue = min(full, key=free.__getitem__, default=-1)
            if self.waiting and (queue < 0 or self.waiting[0][0] < free[queue]):
                clock = max(clock, self.waiting[0][0])
                continue
            if queue < 0 and self.gathered:
                self._let_go(min(self.gathered, key=lambda number: self.gathered[number][0]))
                continue
            if queue < 0 and not blocked:
                break
            forced = queue < 0
            if forced:
                index = heappop(blocked)
                queue = self.queue[index]
            else:
                index = heappop(self.pools[queue])
            room = self.memory.take(index, forced)
            if room is None:
                heappush(blocked, index)
                continue
            moment, gave, place = room
            if blocked and place >= 0:
                self._retry(blocked)
            if gave:
                arrivals[index] = [(place, gave)]
            moment = max(moment, self.when[index])
            at, held = max(free[queue], moment), self.held[index]
            other = self.other[index]
            if other >= 0 and max(free[other], moment) + self.other_held[index] < at + held:
                moved[index] = True
                queue, held = other, self.other_held[index]
                at = max(free[queue], moment)
            free[queue] = ended = at + held
            if self.is_dma[index]:
                moving = max(ended + self.pace.start_ns, moving) + self.share[index]
                ended = max(moving, ended + self.pace.start_ns + self.transfer[index])
            ended += self.latency[index]
            order.append(index)
            placed[index] = True
            for edge in range(self.after_at[index], self.after_at[index + 1]):
                later = self.after[edge]
                self.when[later] = max(self.when[later], ended)
                self.open[later] -= 1
                if not self.open[later]:
                    self._offer(later)
            if self.memory.release(index, ended) and blocked:
                self._retry(blocked)
        names = self.names.tolist()
        return Listing(
            [names[index] for index in order],
            self._named(moved),
            self._named(self.follows),
            {names[index]: given for index, given in arrivals.items()},
        )

    def _named(self, ranked: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """A column by the instructions' own numbers."""
        found = np.zeros(self.count, bool)
        found[self.names] = ranked
        return found

    def _retry(self, blocked: list[int]) -> None:
        """Let the earliest instruction that had no room try again; where it finds some, the next one follows."""
        index = heappop(blocked)
        heappush(self.pools[self.queue[index]], index)

    def _let_go(self, number: int) -> None:
        """Run what is ready of a group of narrow instructions as one."""
        mine = self.gathered.pop(number)
        when = max(self.when[index] for index in mine)
        for index in mine:
            self.when[index] = when
            self.missing[number] -= 1
            heappush(self.waiting, (when, index))
        self.follows[mine[1:]] = True

    def _offer(self, index: int) -> None:
        number = self.group[index]
        if number >= 0:
            insort(self.gathered.setdefault(number, []), index)
            if len(self.gathered[number]) == self.missing[number]:
                self._let_go(number)
            return
        if index >= self.oldest + self.window:
            heappush(self.beyond, index)
        else:
            heappush(self.waiting, (self.when[index], index))

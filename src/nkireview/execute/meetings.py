"""Meetings: the streams of a launch, and of the ranks of a group, run in turns, each until it meets its peers.

The cores of one rank run side by side: each executes one instruction, then the next core does.

Whoever reaches an instruction of a row that `meets` waits until all who take part in the same call have arrived.
Then every one's results are computed before any is stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from nkireview.execute.result import FaultLog, NoMeaningError
from nkireview.execute.step import Core, Operands, Seen, Step, Write

Place = tuple[int, int]
"""Who takes part: (rank, core)."""


class Machine(Protocol):
    """What a meeting needs of the execution of one rank."""

    rank: int
    log: FaultLog
    executed: int

    def failed(self, core: Core, index: int, error: NoMeaningError) -> None:
        """Note that an instruction could not be carried out."""

    def given_up(self, core: Core, start: int, stop: int) -> None:
        """Let everything be undefined that the instructions [start, stop) would have written."""


@dataclass(eq=False)
class Arrival:
    """A stream at an instruction that meets: its operands, or why it cannot take part.

    begin: where what is lost begins if nobody comes: the outermost loop around it, or the instruction.
    """

    index: int
    step: Step
    operands: Operands
    seen: Seen
    immediates: Mapping[str, Any]
    error: NoMeaningError | None
    begin: int


class Task:
    """One stream, run until it waits or ends. `after`: the stream that the same core runs before."""

    def __init__(
        self,
        machine: Machine,
        core: Core,
        run: Iterator[Arrival | None],
        span: tuple[int, int],
        after: Task | None,
    ) -> None:
        self.machine, self.core, self.after = machine, core, after
        self.place: Place = (machine.rank, core.number)
        self.start, self.stop = span
        self.waits: Arrival | None = None
        self.participants: tuple[Place, ...] = ()
        self.ended = False
        self._run = run

    @property
    def ready(self) -> bool:
        """True where it can go on."""
        return not self.ended and self.waits is None and (self.after is None or self.after.ended)

    def proceed(self) -> None:
        """Run until another core has its turn, or it waits or ends."""
        try:
            self.waits = next(self._run)
        except StopIteration:
            self.ended = True

    def abandon(self) -> None:
        """End it where it is; what it would have written is undefined."""
        begin = self.start if self.waits is None else self.waits.begin
        self._run = iter(())
        self.waits, self.ended = None, True
        self.machine.given_up(self.core, begin, self.stop)


def run_together(tasks: Sequence[Task], ranks: int, cores: int) -> None:
    """Run all streams to their ends; `ranks` and `cores` are how many there are."""
    open_ = list(tasks)
    while open_:
        moved = settled = False
        for task in open_:
            if task.ready:
                task.proceed()
                moved = True
                if task.waits is not None:
                    _arrive(task, ranks, cores)
                settled = settled or task.ended or task.waits is not None
        if moved and not settled:
            continue
        open_ = [task for task in open_ if not task.ended]
        for group in _complete(open_):
            _meet(group)
            moved = True
        if not moved:
            _deadlock(tasks, open_)
            open_ = []


def _arrive(task: Task, ranks: int, cores: int) -> None:
    """Find out whom a stream waits for."""
    assert task.waits is not None
    row, immediates = task.waits.step.row, task.waits.immediates
    try:
        task.participants = (
            tuple((rank, task.place[1]) for rank in ranks_of(immediates, task.place[0], ranks))
            if row.meets == "ranks"
            else tuple((task.place[0], core) for core in cores_of(immediates, task.place[1], cores))
        )
    except NoMeaningError as error:
        task.participants = (task.place,)
        task.waits.error = task.waits.error or error


def cores_of(immediates: Mapping[str, Any], core: int, cores: int) -> tuple[int, ...]:
    """The cores that meet: those that the call names, else all of the launch."""
    named = immediates.get("cores")
    if named is None:
        return tuple(range(cores))
    if core not in named:
        raise NoMeaningError("no meaning", f"core {core} takes part but is none of cores {tuple(named)}")
    return tuple(sorted(named))


def ranks_of(immediates: Mapping[str, Any], rank: int, ranks: int) -> tuple[int, ...]:
    """The ranks that meet, in the order of their group; all where the call names none."""
    groups = immediates.get("replica_group")
    found: Sequence[int] = range(ranks)
    if groups is not None:
        holding = next((group for group in groups if rank in group), None)
        if holding is None:
            raise NoMeaningError("no meaning", f"rank {rank} is in no group of replica_group {groups}")
        found = holding
    named = [*found, *(each for pair in immediates.get("source_target_pairs") or () for each in pair)]
    missing = sorted({each for each in named if not 0 <= each < ranks})
    if missing:
        there = "rank 0 runs" if ranks == 1 else f"ranks 0 to {ranks - 1} run"
        names = ", ".join(map(str, missing))
        what = "replica_group" if groups is not None else "source_target_pairs"
        raise NoMeaningError(
            "unsupported",
            f"{what} names {'rank' if len(missing) == 1 else 'ranks'} {names}, but only {there}: "
            "run all of them with execute_ranks, which takes the arguments of each rank",
        )
    return tuple(found)


def _complete(tasks: Sequence[Task]) -> Iterator[list[Task]]:
    """The groups of streams that all wait at the same call."""
    waiting = {task.place: task for task in tasks if task.waits is not None}
    for task in tasks:
        if task.waits is None or waiting.get(task.place) is not task:
            continue
        group = [waiting[place] for place in task.participants if place in waiting]
        if len(group) == len(task.participants) and all(_same(task, other) for other in group):
            for other in group:
                del waiting[other.place]
            yield group


def _same(task: Task, other: Task) -> bool:
    """True where two streams wait at the same call."""
    one, two = task.waits, other.waits
    assert one is not None and two is not None
    return (
        one.step.row is two.step.row
        and one.immediates.get("pipe_id") == two.immediates.get("pipe_id")
        and task.participants == other.participants
    )


def _meet(group: Sequence[Task]) -> None:
    """Carry out one call of all who take part."""
    arrivals = [task.waits for task in group if task.waits is not None]
    readers = tuple(task.core.values for task in group)
    for position, reader in enumerate(readers):
        reader.peers, reader.position = readers, position
    absent = next((task for task, arrival in zip(group, arrivals, strict=True) if arrival.error), None)
    origin = next((arrival.seen.origin for arrival in arrivals if arrival.seen.origin), None)
    masks = [arrival.seen.masks for arrival in arrivals]
    found: list[list[Write] | None] = []
    for task, arrival in zip(group, arrivals, strict=True):
        try:
            if arrival.error:
                raise arrival.error
            if absent is not None:
                raise NoMeaningError("no meaning", f"{_name(task, absent.place)} could not take part")
            prepared = arrival.step.prepare(
                task.core, arrival.index, arrival.operands, arrival.seen, masks if any(masks) else ()
            )
            # a swap in place: a result may be a view of what the commit of a peer changes
            found.append([write._replace(value=write.value.copy()) for write in prepared])
        except NoMeaningError as error:
            task.machine.failed(task.core, arrival.index, error)
            found.append(None)
    for task, arrival, writes in zip(group, arrivals, found, strict=True):
        if writes is not None:
            arrival.step.commit(arrival.index, writes, origin)
            task.machine.executed += 1
    for task, reader in zip(group, readers, strict=True):
        reader.peers, reader.position = (reader,), 0
        task.waits = None


def _deadlock(tasks: Sequence[Task], open_: Sequence[Task]) -> None:
    """Nobody can go on: a fault for each who waits, and an end to all."""
    for task in open_:
        if task.waits is None:
            continue
        waiting = {other.place: other for other in open_ if other.waits is not None}
        other = next(
            place for place in task.participants if place not in waiting or not _same(task, waiting[place])
        )
        text = f"{_name(task, task.place)} waits here for {_name(task, other)}, which {_doing(tasks, other)}"
        task.machine.log.instruction("deadlock", task.waits.index, text)
    for task in open_:
        task.abandon()


def _name(task: Task, place: Place) -> str:
    """How somebody is called in a meeting that a stream takes part in."""
    among = task.waits.step.row.meets if task.waits else ""
    return f"rank {place[0]}" if among == "ranks" else f"core {place[1]}"


def _doing(tasks: Sequence[Task], place: Place) -> str:
    """What somebody does when nobody can go on."""
    own = [task for task in tasks if task.place == place]
    if not own:
        return "does not run"
    log = own[-1].machine.log
    waiting = next((task.waits for task in own if task.waits is not None), None)
    if waiting is None:
        last = max((task.stop - 1 for task in own if task.stop > task.start), default=None)
        return "has finished" + (f" with {log.opcode(last)}{log.at(last)}" if last is not None else "")
    pipe = waiting.immediates.get("pipe_id")
    text = f"waits at {waiting.step.row.name}{log.at(waiting.index)}"
    return text if pipe is None else f"{text} with pipe_id {pipe}"

"""Many submissions under review at once: a process of ours for each, as many as keep the asked number of CPUs busy.

A submission that hangs in its sleep costs time but no processor. So another is begun whenever fewer processes than
`jobs` are ready to run, up to `most`; how many are under way has no influence on any record.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field

from nkireview.grading.record import GradeRecord
from nkireview.grading.reviewer import (
    LOST,
    PATIENCE,
    Reply,
    over_budget,
    reviewing_process,
    unreviewed,
)
from nkireview.grading.submissions import Entry, Prepared
from nkireview.runner import ForkServer, RunnerError, processes
from nkireview.runner.job import STARVED

# Flights at once for each job.
OVERLAP = 8
# How often, and in how many looks one after the other, too few processes must be ready before one more is begun.
LOOK_EVERY_S = 0.1
LOOKS = 3
# How often a fork server that a submission has killed may be the reason to try it again.
TRIES = 2
# A review that neither ends nor uses its processor time: a fault of ours.
STUCK_S = 60.0
READ_BYTES = 1 << 20


@dataclass
class _Flight:
    """One submission under review. `executed` is False the second time, when execution took too long.

    `server` is the process id of the fork server that it uses.
    """

    entry: Entry
    digest: str
    server: int
    pid: int
    reply: int
    until: float
    executed: bool
    tries: int
    data: bytearray = field(default_factory=bytearray)


@dataclass(frozen=True)
class _Task:
    """A submission that waits for its review."""

    entry: Entry
    digest: str
    executed: bool = True
    tries: int = 0


@dataclass(frozen=True)
class Done:
    """A record, and what the one who runs us should know of it."""

    record: GradeRecord
    fault: str = ""


def most_at_once(jobs: int, memory_bytes: int) -> int:
    """How many submissions may be under way, so that all their children together fit into half of the memory."""
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):  # the system does not tell
        return jobs
    return max(1, min(OVERLAP * jobs, total // 2 // memory_bytes))


class Flights:
    """Reviews submissions in processes of ours; close it to end those under way."""

    def __init__(self, prepared: Prepared, server: ForkServer, jobs: int, most: int) -> None:
        self._prepared = prepared
        self._server = server
        self._jobs = min(jobs, most)
        self._most = most
        self._flights: dict[int, _Flight] = {}
        self._waiting: list[_Task] = []
        self._alone: list[_Task] = []
        self._count = 0
        self._idle_looks = 0
        self._look_at = 0.0

    def review(self, entries: Sequence[tuple[Entry, str]]) -> Generator[Done | None, None, None]:
        """Records as they come, of entries with their digests; None at least once a second."""
        self._waiting = [_Task(entry, digest) for entry, digest in reversed(entries)]
        try:
            while self._waiting or self._alone or self._flights:
                while self._may_begin():
                    self._begin(self._waiting.pop() if self._waiting else self._alone.pop())
                yield from self._wait()
                yield None
        finally:
            self.close()

    def close(self) -> None:
        """End every review that is under way."""
        for flight in self._flights.values():
            os.kill(flight.pid, signal.SIGKILL)
        for flight in list(self._flights.values()):
            os.waitpid(flight.pid, 0)
            os.close(flight.reply)
        self._flights.clear()

    def _may_begin(self) -> bool:
        under_way = len(self._flights)
        if not self._waiting:
            # one that may have killed the server runs when nothing else does
            return bool(self._alone) and under_way == 0
        if under_way < self._jobs:
            return True
        return under_way < self._most and self._idle_looks >= LOOKS

    def _begin(self, task: _Task) -> None:
        self._idle_looks = 0
        self._server.revive()
        reading, writing = os.pipe()
        self._count += 1
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            reviewing_process(
                task.entry,
                task.digest,
                self._prepared,
                self._server,
                numbers=self._count,
                executed=task.executed,
                answer=writing,
                parent=parent,
            )
        os.close(writing)
        limits = self._prepared.template.limits
        until = time.monotonic() + STUCK_S + 2 * STARVED * PATIENCE * limits.cpu_s
        self._flights[reading] = _Flight(
            task.entry, task.digest, self._server.pid, pid, reading, until, task.executed, task.tries
        )

    def _wait(self) -> Iterator[Done]:
        crowded = bool(self._waiting) and len(self._flights) < self._most
        ready = select.select(list(self._flights), [], [], LOOK_EVERY_S if crowded else 1.0)[0]
        for descriptor in ready:
            flight = self._flights[descriptor]
            part = os.read(descriptor, READ_BYTES)
            flight.data += part
            if not part:
                yield from self._land(flight)
        for flight in list(self._flights.values()):
            if time.monotonic() > flight.until:
                os.kill(flight.pid, signal.SIGKILL)
        if crowded and time.monotonic() >= self._look_at:
            self._look()

    def _look(self) -> None:
        """Count the processes below this one that run or could run."""
        self._look_at = time.monotonic() + LOOK_EVERY_S
        if sys.platform == "linux":
            idle = processes.ready_below(os.getpid()) < self._jobs
            self._idle_looks = self._idle_looks + 1 if idle else 0

    def _serves(self, flight: _Flight) -> bool:
        """Whether the fork server that a flight used lives on."""
        return self._server.pid == flight.server and self._server.alive

    def _land(self, flight: _Flight) -> Iterator[Done]:
        del self._flights[flight.reply]
        os.close(flight.reply)
        os.waitpid(flight.pid, 0)
        reply = Reply.decode(bytes(flight.data))
        if (reply is not None and reply.fault == LOST) or not self._serves(flight):
            # another's doing, perhaps: what it said is void unless it was alone
            if flight.tries < TRIES:
                self._alone.append(_Task(flight.entry, flight.digest, flight.executed, flight.tries + 1))
                return
        if reply is not None:
            for kept, made in zip(self._prepared.kept, reply.checks, strict=False):
                kept.checks.update(made)
        if reply is not None and reply.record is not None:
            yield Done(reply.record, reply.fault)
        elif reply is not None:
            raise RunnerError("the fork server does not stay alive")
        elif flight.executed:
            self._waiting.append(_Task(flight.entry, flight.digest, executed=False))
        else:
            reason = over_budget(self._prepared.template.limits)
            yield Done(unreviewed(flight.entry, flight.digest, reason))

"""The guardian of one job: forks the worker, holds it to its limits, ends all it started, and reports.

Trusted code in a process of its own. The worker's response and output are bytes from an untrusted source: they are
capped while they are read and parsed strictly. Of a session the worker stays, and each call is a process below it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import struct
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nkireview.runner import isolation, processes, scratch, verdict, wire, worker
from nkireview.runner.job import STARVED, Job
from nkireview.runner.verdict import Verdict

REQUEST_LIMIT = 8 << 30
CHUNK = 1 << 20
DRAIN_READS = 4
# How often use of scratch, processes and memory is looked at.
INSPECT_EVERY_S = 0.1
# A slow start is the machine's fault, not the job's: the deadline runs from the end of the worker's setup.
SETUP_S = 30.0

# struct ucred: process, user, group.
_CREDENTIALS = struct.Struct("=iII")

Report = tuple[dict[str, Any], list[bytes | bytearray]]


class AbandonedError(Exception):
    """Nobody waits for this job any more, or the server is ending."""


@dataclass
class _Pipe:
    """The reading end of a worker's pipe; keeps the first `keep` bytes and counts them all."""

    descriptor: int
    keep: int
    data: bytearray = field(default_factory=bytearray)
    count: int = 0
    open: bool = True

    def read(self) -> None:
        try:
            chunk = self._receive()
        except BlockingIOError:
            return
        self.open = bool(chunk)
        self.count += len(chunk)
        self.data += chunk[: self.keep - len(self.data)]

    def drain(self) -> None:
        """Read what is left after the worker's end; a survivor that goes on writing cannot hold us."""
        for _ in range(DRAIN_READS):
            if self.open:
                self.read()

    def reset(self) -> None:
        """Forget what came before the next call."""
        self.data, self.count = bytearray(), 0

    def _receive(self) -> bytes:
        return os.read(self.descriptor, CHUNK)


class _Response(_Pipe):
    """The response channel, a socket that says which process wrote; on macOS it does not."""

    def __init__(self, channel: socket.socket, keep: int) -> None:
        super().__init__(channel.fileno(), keep)
        self.channel = channel
        self.writers: set[int] = set()

    def reset(self) -> None:
        super().reset()
        self.writers = set()

    def _receive(self) -> bytes:
        chunk, ancillary, _, _ = self.channel.recvmsg(CHUNK, socket.CMSG_SPACE(_CREDENTIALS.size))
        for level, kind, data in ancillary if chunk else ():
            if sys.platform == "linux" and (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
                self.writers.add(_CREDENTIALS.unpack(data)[0])
        return chunk


@dataclass
class _End:
    """How the worker ended, once it has."""

    wait_status: int | None = None
    cpu_s: float = 0.0


def guard(channel: socket.socket, place: Path) -> None:
    """Serve the job that arrives on `channel`, with `place` (not yet there) as its scratch directory."""
    server = os.getppid()
    job = Job.from_message(*wire.receive(channel, REQUEST_LIMIT))
    place.mkdir(mode=0o700)
    try:
        ward = _Ward(job, place, channel, server)
        if job.session:
            _serve(ward, channel)
            return
        report = ward.run()
    finally:
        scratch.remove(place)
    wire.send(channel, *report)


def _serve(ward: _Ward, channel: socket.socket) -> None:
    """Answer calls until the channel closes or a limit ends the worker."""
    try:
        alive = True
        while alive:
            ward.wait_for_call()
            report, alive = ward.call(*wire.receive(channel, REQUEST_LIMIT))
            wire.send(channel, *report)
    finally:
        ward.end_all()


class _Ward:
    """One worker with the channels to it."""

    def __init__(self, job: Job, place: Path, channel: socket.socket, server: int) -> None:
        self.job, self.place, self.channel, self.server = job, place, channel, server
        self.not_subreaper = _subreaper()
        self.wake = processes.signal_channel()
        setup_read, setup_write = os.pipe()
        output_read, output_write = os.pipe()
        request_read, self.request = os.pipe()
        ended_read, ended_write = os.pipe()
        response, theirs = socket.socketpair()
        if sys.platform == "linux":  # before the first byte can be written
            response.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        guardian = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            worker.main(
                job,
                place,
                guardian,
                worker.Channels(setup_write, theirs.fileno(), output_write, request_read, ended_write),
            )
        theirs.close()
        for descriptor in (setup_write, output_write, request_read, ended_write):
            os.close(descriptor)
        self.end = _End()
        self.response = _Response(response, job.limits.response_bytes + 1)
        self.output = _Pipe(output_read, job.limits.output_bytes)
        self.ended = _Pipe(ended_read, worker.ENDED.size)
        self.pending = memoryview(b"")
        for descriptor in (
            self.response.descriptor,
            self.output.descriptor,
            self.ended.descriptor,
            self.request,
        ):
            os.set_blocking(descriptor, False)
        try:
            self.layers = _setup(setup_read)
        except BaseException:
            self.end_all()
            raise

    def run(self) -> Report:
        """Wait for the worker's end; the report holds what an `Outcome` does, printed and returned bytes as blobs."""
        started = time.monotonic()
        try:
            found = self._watch()
            wall_s = time.monotonic() - started
        finally:
            survivors = self.end_all()
        self.response.drain()
        self.output.drain()
        return self._report(found or self._final(self.pid, self.end), wall_s, self.end.cpu_s, survivors)

    def wait_for_call(self) -> None:
        """Return when the channel has something to say."""
        while not select.select([self.channel.fileno()], [], [], INSPECT_EVERY_S)[0]:
            if signal.SIGTERM in processes.signals_in(self.wake) or os.getppid() != self.server:
                raise AbandonedError

    def call(self, header: dict[str, Any], blobs: list[bytes]) -> tuple[Report, bool]:
        """Pass one call on and report on it, and whether there can be another."""
        started = time.monotonic()
        for pipe in (self.response, self.output, self.ended):
            pipe.reset()
        self.pending = memoryview(wire.pack(header, blobs))
        found = self._watch()
        wall_s = time.monotonic() - started
        alive = found is None and self.end.wait_status is None
        survivors: list[int] = []
        if not alive:
            survivors = self.end_all()
        elif sys.platform == "linux":
            processes.kill_descendants(spare={self.pid})
        self.response.drain()
        self.output.drain()
        if not alive and self.response.writers - {self.pid}:
            self.response.reset()  # half an answer says nothing about the end of the session
        by, end = self.pid, self.end
        if alive:
            by, status, cpu_s = worker.ENDED.unpack(self.ended.data)
            end = _End(status, cpu_s)
        report, returned = self._report(found or self._final(by, end), wall_s, end.cpu_s, survivors)
        return ({**report, "alive": alive}, returned), alive

    def end_all(self) -> list[int]:
        """Kill the worker, its process group and all below this guardian; returns what could not be killed."""
        if self.end.wait_status is None:
            os.kill(self.pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):  # the whole group has ended
            os.killpg(self.pid, signal.SIGKILL)
        if sys.platform == "linux":
            return processes.kill_descendants()
        return []

    def _watch(self) -> Verdict | None:
        """Wait for the end of the worker or of a call (None) or for the first limit that it exceeds."""
        limits = self.job.limits
        started = now = time.monotonic()
        deadline = now + limits.wall_s
        waited = processes.queued_s([self.pid])
        inspect_at = now + INSPECT_EVERY_S
        pipes = {pipe.descriptor: pipe for pipe in (self.response, self.output, self.ended)}
        while True:
            listening = [self.channel.fileno(), self.wake]
            listening += [each for each, pipe in pipes.items() if pipe.open]
            writing = [self.request] if self.pending else []
            ready, writable, _ = select.select(
                listening, writing, [], max(0.0, min(deadline, inspect_at) - now)
            )
            for descriptor in ready:
                if descriptor in pipes:
                    pipes[descriptor].read()
            if writable:
                self._pass_on()
            told_to_end = self.wake in ready and signal.SIGTERM in processes.signals_in(self.wake)
            if told_to_end or self.channel.fileno() in ready or os.getppid() != self.server:
                raise AbandonedError
            _reap(self.pid, self.end)
            now = time.monotonic()
            if self.response.count > limits.response_bytes:
                return verdict.over_response(limits)
            if self.end.wait_status is not None or len(self.ended.data) == worker.ENDED.size:
                return None
            if now >= deadline:
                queued = processes.queued_s([self.pid, *processes.descendants(self.pid)]) - waited
                deadline = started + limits.wall_s + min(queued, (STARVED - 1) * limits.wall_s)
                if now >= deadline:
                    return verdict.over_time(limits)
            if now >= inspect_at:
                if exceeded := _inspect(self.job, self.place):
                    return exceeded
                inspect_at = now + INSPECT_EVERY_S

    def _pass_on(self) -> None:
        try:
            self.pending = self.pending[os.write(self.request, self.pending[:CHUNK]) :]
        except BlockingIOError:  # less room than the system's least write
            return
        except BrokenPipeError:  # the worker is ending, and its end says why
            self.pending = memoryview(b"")

    def _final(self, by: int, end: _End) -> Verdict:
        """The verdict on a process that ended by itself; only `by` may have written its response."""
        limits, response = self.job.limits, self.response
        if exceeded := _inspect_scratch(self.job, self.place, 0):
            return exceeded
        if response.count > limits.response_bytes:
            return verdict.over_response(limits)
        if response.writers - {by}:
            return verdict.second_writer()
        if end.wait_status is None:
            raise RuntimeError("the worker has no wait status")
        return verdict.ended(end.wait_status, end.cpu_s, response.data, limits)

    def _report(self, found: Verdict, wall_s: float, cpu_s: float, survivors: list[int]) -> Report:
        held = [*self.layers["held"], "wall time", "output", "response"]
        not_held = [*self.layers["not_held"], *self.not_subreaper]
        if survivors:
            not_held.append(f"descendants: {len(survivors)} processes could not be killed")
        if sys.platform == "linux":
            held.append("process count")
        if not self.not_subreaper:
            held.append("subreaper")
        report: dict[str, Any] = {
            "status": found.status,
            "detail": found.detail,
            "printed_bytes": self.output.count,
            "wall_s": wall_s,
            "cpu_s": cpu_s,
            "held": held,
            "not_held": not_held,
        }
        blobs: list[bytes | bytearray] = [self.output.data]
        if found.status == "done":
            blobs.append(self.response.data)
        return report, blobs


def _inspect(job: Job, place: Path) -> Verdict | None:
    limits = job.limits
    below = processes.descendants(os.getpid())
    if len(below) > limits.processes:
        return verdict.over_processes(limits)
    # One process is bound by its own limit of address space.
    if len(below) > 1 and processes.resident_bytes(below) > limits.memory_bytes:
        return verdict.over_memory(limits)
    return _inspect_scratch(job, place, processes.deleted_file_bytes(below))


def _inspect_scratch(job: Job, place: Path, deleted_bytes: int) -> Verdict | None:
    try:
        used = scratch.used_bytes(place, job.limits.scratch_bytes)
    except scratch.ScratchError as error:
        return Verdict("scratch", str(error))
    return verdict.over_scratch(job.limits) if used + deleted_bytes > job.limits.scratch_bytes else None


def _reap(pid: int, end: _End) -> None:
    """Take in every child that has ended: the worker, and orphans that came to this subreaper."""
    while True:
        try:
            ended, status, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if ended == 0:
            return
        if ended == pid:
            end.wait_status, end.cpu_s = status, usage.ru_utime + usage.ru_stime


def _setup(descriptor: int) -> dict[str, list[str]]:
    """The worker's report on its own isolation, written before anything untrusted runs."""
    report = bytearray()
    end = time.monotonic() + SETUP_S
    while select.select([descriptor], [], [], max(0.0, end - time.monotonic()))[0]:
        chunk = os.read(descriptor, CHUNK)
        if not chunk:
            break
        report += chunk
    os.close(descriptor)
    try:
        header, _ = wire.unpack(report, CHUNK)
    except wire.WireError as error:
        text = report.decode("utf-8", "replace") or f"no report within {SETUP_S:g} s"
        raise RuntimeError(f"the worker could not be set up: {text}") from error
    return {name: list(header[name]) for name in ("held", "not_held")}


def _subreaper() -> list[str]:
    try:
        isolation.become_subreaper()
    except (isolation.NotHeldError, OSError) as reason:
        return [f"subreaper: {reason}"]
    return []

"""The guardian of one job: forks the worker, holds it to its limits, ends all it started, and reports.

Trusted code in a process of its own. The worker's response and output are bytes from an untrusted source: they are
capped while they are read and parsed strictly.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nkireview.runner import isolation, processes, scratch, verdict, wire, worker
from nkireview.runner.job import Job
from nkireview.runner.verdict import Verdict

REQUEST_LIMIT = 8 << 30
CHUNK = 1 << 20
DRAIN_READS = 4
# How often use of scratch, processes and memory is looked at.
INSPECT_EVERY_S = 0.1
# A slow start is the machine's fault, not the job's: the deadline runs from the end of the worker's setup.
SETUP_S = 30.0


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
            chunk = os.read(self.descriptor, CHUNK)
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


@dataclass
class _End:
    """How the worker ended, once it has."""

    wait_status: int | None = None
    cpu_s: float = 0.0


def guard(channel: socket.socket, place: Path) -> None:
    """Serve the one job that arrives on `channel`, with `place` (not yet there) as its scratch directory."""
    server = os.getppid()
    job = Job.from_message(*wire.receive(channel, REQUEST_LIMIT))
    place.mkdir(mode=0o700)
    try:
        header, payload = _run(job, place, channel, server)
    finally:
        scratch.remove(place)
    wire.send(channel, header, payload)


def _run(
    job: Job, place: Path, channel: socket.socket, server: int
) -> tuple[dict[str, Any], list[bytes | bytearray]]:
    """The report on the job: what an `Outcome` holds, with what was printed and returned as blobs."""
    subreaper = _subreaper()
    wake = processes.signal_channel()
    setup_read, setup_write = os.pipe()
    response_read, response_write = os.pipe()
    output_read, output_write = os.pipe()
    guardian = os.getpid()
    pid = os.fork()
    if pid == 0:
        worker.main(job, place, guardian, worker.Channels(setup_write, response_write, output_write))
    for descriptor in (setup_write, response_write, output_write):
        os.close(descriptor)
    end = _End()
    response = _Pipe(response_read, job.limits.response_bytes + 1)
    output = _Pipe(output_read, job.limits.output_bytes)
    for pipe in (response, output):
        os.set_blocking(pipe.descriptor, False)
    try:
        layers = _setup(setup_read)
        started = time.monotonic()
        found = _watch(job, place, pid, _Watched(channel, server, wake, response, output), end)
        wall_s = time.monotonic() - started
    finally:
        survivors = _end_all(pid, end)
    response.drain()
    output.drain()
    found = found or _final(job, place, response, end)
    held = [*layers["held"], "wall time", "output", "response"]
    not_held = [*layers["not_held"], *subreaper]
    if survivors:
        not_held.append(f"descendants: {len(survivors)} processes could not be killed")
    if sys.platform == "linux":
        held.append("process count")
    if not subreaper:
        held.append("subreaper")
    report = {
        "status": found.status,
        "detail": found.detail,
        "printed_bytes": output.count,
        "wall_s": wall_s,
        "held": held,
        "not_held": not_held,
    }
    return report, [output.data, response.data] if found.status == "done" else [output.data]


@dataclass(frozen=True)
class _Watched:
    """What a guardian listens to while its worker runs."""

    channel: socket.socket
    server: int
    wake: int
    response: _Pipe
    output: _Pipe


def _watch(job: Job, place: Path, pid: int, on: _Watched, end: _End) -> Verdict | None:
    """Wait for the worker's end (None) or for the first limit that it exceeds."""
    now = time.monotonic()
    deadline = now + job.limits.wall_s
    inspect_at = now + INSPECT_EVERY_S
    pipes = {pipe.descriptor: pipe for pipe in (on.response, on.output)}
    while True:
        listening = [on.channel.fileno(), on.wake, *(each for each, pipe in pipes.items() if pipe.open)]
        ready = select.select(listening, [], [], max(0.0, min(deadline, inspect_at) - now))[0]
        for descriptor in ready:
            if descriptor in pipes:
                pipes[descriptor].read()
        told_to_end = on.wake in ready and signal.SIGTERM in processes.signals_in(on.wake)
        if told_to_end or on.channel.fileno() in ready or os.getppid() != on.server:
            raise AbandonedError
        _reap(pid, end)
        now = time.monotonic()
        if on.response.count > job.limits.response_bytes:
            return verdict.over_response(job.limits)
        if end.wait_status is not None:
            return None
        if now >= deadline:
            return verdict.over_time(job.limits)
        if now >= inspect_at:
            if exceeded := _inspect(job, place):
                return exceeded
            inspect_at = now + INSPECT_EVERY_S


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


def _final(job: Job, place: Path, response: _Pipe, end: _End) -> Verdict:
    if exceeded := _inspect_scratch(job, place, 0):
        return exceeded
    if response.count > job.limits.response_bytes:
        return verdict.over_response(job.limits)
    if end.wait_status is None:
        raise RuntimeError("the worker has no wait status")
    return verdict.ended(end.wait_status, end.cpu_s, response.data, job.limits)


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


def _end_all(pid: int, end: _End) -> list[int]:
    """Kill the worker, its process group and all below this guardian; returns what could not be killed."""
    if end.wait_status is None:
        os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):  # the whole group has ended
        os.killpg(pid, signal.SIGKILL)
    if sys.platform == "linux":
        return processes.kill_descendants()
    return []


def _subreaper() -> list[str]:
    try:
        isolation.become_subreaper()
    except (isolation.NotHeldError, OSError) as reason:
        return [f"subreaper: {reason}"]
    return []

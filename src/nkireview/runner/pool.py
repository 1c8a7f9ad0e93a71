"""The parent's side: a fork server that runs jobs in isolated children. Nothing untrusted is imported here."""

from __future__ import annotations

import dataclasses
import itertools
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from nkireview.runner import wire
from nkireview.runner.job import MIB, STARVED, Job, Outcome, RunnerError

PRELOAD = (
    "numpy",
    "ml_dtypes",
    "nkireview.runner.reference",
    "nkireview.runner.trace",
    "nkireview.runner.warm",
)
START_S = 120.0
# A guardian reports within its job's wall time and this; one that does not was stopped or killed.
GRACE_S = 60.0
CLOSE_S = 15.0

_PASSED_ON = ("PATH", "LANG", "LC_ALL", "VIRTUAL_ENV", "HOME")
_OURS = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONUTF8": "1",
}
# The package's folder goes first only where it is not on the path anyway, so that nothing in it, nor in the
# current folder, shadows the standard library.
_BOOT = (
    "import sys; root = sys.argv.pop(1); sys.path[:] = [p for p in sys.path if p];"
    " root in sys.path or sys.path.insert(0, root);"
    " from nkireview.runner.server import main; main(sys.argv[1:])"
)


class ForkServer:
    """Runs jobs, each in its own isolated process; a context manager, safe to share between threads.

    Raises `RunnerError` if the platform cannot isolate jobs or the server does not start.
    """

    def __init__(self, preload: Sequence[str] = PRELOAD) -> None:
        if sys.platform == "win32":
            raise RunnerError(
                "submissions cannot be run on Windows, which has no process isolation that this package knows; "
                "use Linux, macOS or WSL"
            )
        self._preload = tuple(preload)
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._closed = False
        self._start()

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def control(self) -> int:
        """The descriptor that a process forked from this one keeps open for `Lent`."""
        return self._control.fileno()

    @property
    def alive(self) -> bool:
        """Whether the server runs; one that a job has killed is started again by the next job."""
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id of the server."""
        return self._process.pid

    def run(self, job: Job) -> Outcome:
        """Run one job to its end; every fault of the job is an `Outcome`, a fault of ours is a `RunnerError`."""
        channel, number = self._open()
        with channel:
            started = time.monotonic()
            try:
                wire.send(channel, job.message(), job.blobs)
            except OSError:
                return _lost("its guardian process was killed", started)
            return self._report(job, channel, number)[0]

    def session(self, job: Job) -> Session:
        """A session: the entry of `job` prepares once, and each call runs in a fork of what it prepared."""
        return Session(self, dataclasses.replace(job, session=True))

    def _open(self) -> tuple[socket.socket, int]:
        """A channel to a guardian of its own, and the number of its job."""
        mine, theirs = socket.socketpair()
        with theirs:
            try:
                return mine, self._order_run(theirs)
            except BaseException:
                mine.close()
                raise

    def _report(self, job: Job, channel: socket.socket, number: int) -> tuple[Outcome, bool]:
        """What a guardian says of its job, or of one call, and whether it waits for another."""
        started = time.monotonic()
        channel.settimeout(STARVED * job.limits.wall_s + GRACE_S)
        try:
            header, blobs = wire.receive(channel, _report_limit(job))
        except TimeoutError:
            self._order_kill(number)
            return _lost("its guardian process stopped answering", started), False
        except (OSError, wire.ChannelClosed):
            return _lost("its guardian process was killed", started), False
        if "error" in header:
            raise RunnerError(f"a job could not be run: {header['error']}")
        return _outcome(job, header, blobs), header.get("alive", False)

    def revive(self) -> None:
        """Start the server again if it has ended."""
        with self._lock:
            if not self._closed and not self.alive:
                self._stop()
                self._start()

    def close(self) -> None:
        """End the server and everything below it; running jobs end as "killed"."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._stop()

    def _order_run(self, channel: socket.socket) -> int:
        with self._lock:
            if self._closed:
                raise RunnerError("the fork server is closed")
            number = next(self._numbers)
            order = [wire.ORDER.pack(wire.RUN, number)]
            try:
                socket.send_fds(self._control, order, [channel.fileno()])
            except OSError:  # a job has killed the server
                self._stop()
                self._start()
                socket.send_fds(self._control, order, [channel.fileno()])
            return number

    def _order_kill(self, number: int) -> None:
        with self._lock:
            if not self._closed:
                self._control.sendall(wire.ORDER.pack(wire.KILL, number))

    def _start(self) -> None:
        self._scratch = Path(tempfile.mkdtemp(prefix="nkireview-"))
        self._control, theirs = socket.socketpair()
        root = str(Path(__file__).resolve().parents[2])
        environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        command = [
            sys.executable,
            "-c",
            _BOOT,
            root,
            str(theirs.fileno()),
            str(self._scratch),
            *self._preload,
        ]
        with theirs, tempfile.TemporaryFile() as errors:
            self._process = subprocess.Popen(
                command,
                cwd="/",
                env={**environment, **_OURS},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
            theirs.close()
            self._control.settimeout(START_S)
            try:
                greeting, _ = wire.receive(self._control, MIB)
                reason = greeting.get("error")
            except (OSError, wire.WireError) as error:
                errors.seek(0)
                lines = errors.read().decode("utf-8", "replace").split("\n")
                reason = next((line for line in reversed(lines) if line.strip()), str(error))
            self._control.settimeout(None)
        if reason:
            self._stop()
            raise RunnerError(f"the fork server did not start: {reason}")

    def _stop(self) -> None:
        self._control.close()
        try:
            self._process.wait(CLOSE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._scratch, ignore_errors=True)


class Session:
    """Calls answered one after the other by forks of one prepared process; a context manager, for one thread.

    The limits hold for each call, those of wall and processor time for the preparation with the first of them. A call
    that ends the session has its `Outcome` like any other, and the next one prepares anew.
    """

    def __init__(self, server: ForkServer, job: Job) -> None:
        self._server = server
        self._job = job
        self._channel: socket.socket | None = None
        self._number = 0

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def call(self, header: dict[str, Any], blobs: Sequence[wire.Blob] = ()) -> Outcome:
        """Answer one call; see `ForkServer.run`."""
        if self._channel is not None and select.select([self._channel], [], [], 0)[0]:
            self.close()  # nothing was asked: the guardian has gone
        started = time.monotonic()
        try:
            if self._channel is None:
                self._channel, self._number = self._server._open()
                wire.send(self._channel, self._job.message(), self._job.blobs)
            wire.send(self._channel, header, blobs)
        except OSError:
            self.close()
            return _lost("its guardian process was killed", started)
        try:
            outcome, alive = self._server._report(self._job, self._channel, self._number)
        except RunnerError:
            self.close()
            raise
        if not alive:
            self.close()
        return outcome

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """End the prepared process; so does the end of the last reference to this."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None


class Lent(ForkServer):
    """A fork server as a process forked from its owner may use it: it does not start, restart or end the server.

    `numbers` sets the jobs of this process apart from those of others: each needs another one.
    """

    def __init__(self, server: ForkServer, numbers: int) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count(numbers << 32)
        self._closed = False
        self._control = server._control

    def close(self) -> None:
        """Make no more use of the server."""
        self._closed = True

    def _start(self) -> None:
        raise RunnerError("the fork server has ended")

    def _stop(self) -> None:
        """The owner ends the server."""


def _report_limit(job: Job) -> int:
    return job.limits.response_bytes + job.limits.output_bytes + MIB


def _outcome(job: Job, report: dict[str, Any], blobs: list[bytes]) -> Outcome:
    returned: dict[str, Any] = {}
    results: list[bytes] = []
    if report["status"] == "done":
        answer, results = wire.unpack(blobs[1], job.limits.response_bytes)
        returned = answer["returned"]
    return Outcome(
        status=report["status"],
        header=returned,
        blobs=results,
        detail=report["detail"],
        stdout=blobs[0].decode("utf-8", "replace"),
        printed_bytes=report["printed_bytes"],
        wall_s=report["wall_s"],
        cpu_s=report["cpu_s"],
        held=tuple(report["held"]),
        not_held=tuple(report["not_held"]),
    )


def _lost(what: str, started: float) -> Outcome:
    return Outcome(
        status="killed",
        header={},
        blobs=[],
        detail=what,
        stdout="",
        printed_bytes=0,
        wall_s=time.monotonic() - started,
        held=(),
        not_held=("every layer: the guardian did not report",),
    )

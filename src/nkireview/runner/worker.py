"""The worker: isolates itself, calls the entry function, and writes what came of it to its response channel.

After the entry has loaded untrusted code, nothing this process says can be trusted: its reader checks every byte.
"""

from __future__ import annotations

import dataclasses
import importlib
import io
import os
import struct
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from nkireview.runner import isolation, processes, wire
from nkireview.runner.job import Job

CHANNEL_LOST = 97
SETUP_FAILED = 98
# How one call of a session ended: process, wait status, seconds of processor time.
ENDED = struct.Struct("<iid")
TEXT_LIMIT = 2000
READ_BYTES = 1 << 20


@dataclass(frozen=True)
class Channels:
    """File descriptors to write to: the setup report, the response, and all that is printed.

    Of a session also where its calls are read, and where the end of each is told.
    """

    setup: int
    response: int
    output: int
    request: int
    ended: int


def main(job: Job, scratch: Path, guardian: int, channels: Channels) -> NoReturn:
    """Run one job in this freshly forked process and end it."""
    try:
        processes.default_signals()
        _redirect(channels, job.session)
        setting = isolation.Setting(job.limits, scratch, _environment(job, scratch), guardian)
        layers = isolation.apply(setting)
        sys.path.extend(path for path in job.env.get("PYTHONPATH", "").split(os.pathsep) if path)
        sys.dont_write_bytecode = True
        _write(channels.setup, wire.parts(dataclasses.asdict(layers), []))
        os.close(channels.setup)
    except BaseException as error:
        os.write(channels.setup, last_line(error).encode())
        os._exit(SETUP_FAILED)
    if job.session:
        try:
            _serve(job, channels)
        finally:
            os._exit(1)
    _keep_to_this_process(channels.response)
    _respond(_answer(lambda: _entry(job)(job.header, job.blobs)), channels)


def _serve(job: Job, channels: Channels) -> NoReturn:
    """Prepare once, then answer each call in a fork of this process, so that no call sees what another left."""
    prepared: list[Callable[[dict[str, Any], list[bytes]], Any]] = []

    def prepare() -> tuple[dict[str, Any], list[bytes]]:
        prepared.append(_entry(job)(job.header, job.blobs))
        return {}, []

    failure = _answer(prepare)
    if not prepared:
        _respond(failure, channels)
    while True:
        header, blobs = wire.read(lambda count: _take(channels.request, count), sys.maxsize)
        pid = os.fork()
        if pid == 0:
            os.close(channels.request)
            os.close(channels.ended)
            _keep_to_this_process(channels.response)
            _respond(_answer(partial(prepared[0], header, blobs)), channels)
        _, status, usage = os.wait4(pid, 0)
        os.write(channels.ended, ENDED.pack(pid, status, usage.ru_utime + usage.ru_stime))


def _keep_to_this_process(descriptor: int) -> None:
    """A process that the job forks must not answer in its place."""
    left = [descriptor]

    def close() -> None:
        # the handler runs in grandchildren too, where the number may be a file of their own
        while left:
            os.close(left.pop())

    os.register_at_fork(after_in_child=close)


def _respond(answer: list[wire.Blob], channels: Channels) -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:  # the job may have replaced the stream by anything
            continue
    try:
        _write(channels.response, answer)
    except OSError:
        os._exit(CHANNEL_LOST)
    os._exit(0)


def _take(descriptor: int, count: int) -> bytes:
    """Exactly `count` bytes; the end of the channel is the end of this process."""
    parts: list[bytes] = []
    while count:
        part = os.read(descriptor, min(count, READ_BYTES))
        if not part:
            os._exit(0)
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def last_line(error: BaseException) -> str:
    """Type and message of an exception in one line, whatever its `__str__` does."""
    try:
        text = " ".join(str(error).split())[:TEXT_LIMIT]
    except Exception:  # the text of an untrusted exception may itself raise
        text = "<no printable message>"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _entry(job: Job) -> Callable[..., Any]:
    module, _, name = job.entry.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return found


def _answer(call: Callable[[], tuple[dict[str, Any], list[bytes]]]) -> list[wire.Blob]:
    try:
        header, blobs = call()
        return wire.parts({"returned": header}, blobs)
    except MemoryError:
        return _raised("memory", "")
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
        return _raised("exit", str(code))
    except BaseException as error:
        return _raised("exception", last_line(error))


def _raised(kind: str, text: str) -> list[wire.Blob]:
    return wire.parts({"raised": kind, "text": text}, [])


def _environment(job: Job, scratch: Path) -> dict[str, str]:
    """The server's own small environment, what the job adds, and the scratch directory as the only home."""
    return {**os.environ, **job.env, "TMPDIR": str(scratch), "HOME": str(scratch)}


def _redirect(channels: Channels, session: bool) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(channels.output, 1)
    os.dup2(channels.output, 2)
    session_only = (channels.request, channels.ended) if session else ()
    processes.close_all_but((0, 1, 2, channels.setup, channels.response, *session_only))
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout, sys.stderr = _text(1), _text(2)


def _text(descriptor: int) -> io.TextIOWrapper:
    raw = open(descriptor, "wb", closefd=False)  # noqa: SIM115
    return io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", line_buffering=True)


def _write(descriptor: int, buffers: Sequence[wire.Blob]) -> None:
    for buffer in buffers:
        view = memoryview(buffer)
        while view:
            view = view[os.write(descriptor, view) :]

"""The worker: isolates itself, calls the entry function, and writes what came of it to its response channel.

After the entry has loaded untrusted code, nothing this process says can be trusted: its reader checks every byte.
"""

from __future__ import annotations

import dataclasses
import importlib
import io
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from nkireview.runner import isolation, processes, wire
from nkireview.runner.job import Job

CHANNEL_LOST = 97
SETUP_FAILED = 98
TEXT_LIMIT = 2000


@dataclass(frozen=True)
class Channels:
    """File descriptors to write to: the setup report, the response, and all that is printed."""

    setup: int
    response: int
    output: int


def main(job: Job, scratch: Path, guardian: int, channels: Channels) -> NoReturn:
    """Run one job in this freshly forked process and end it."""
    try:
        processes.default_signals()
        _redirect(channels)
        setting = isolation.Setting(job.limits, scratch, _environment(job, scratch), guardian)
        layers = isolation.apply(setting)
        sys.path.extend(path for path in job.env.get("PYTHONPATH", "").split(os.pathsep) if path)
        sys.dont_write_bytecode = True
        _write(channels.setup, wire.parts(dataclasses.asdict(layers), []))
        os.close(channels.setup)
    except BaseException as error:
        os.write(channels.setup, last_line(error).encode())
        os._exit(SETUP_FAILED)
    answer = _answer(job)
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


def last_line(error: BaseException) -> str:
    """Type and message of an exception in one line, whatever its `__str__` does."""
    try:
        text = " ".join(str(error).split())[:TEXT_LIMIT]
    except Exception:  # the text of an untrusted exception may itself raise
        text = "<no printable message>"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _answer(job: Job) -> list[wire.Blob]:
    try:
        module, _, name = job.entry.partition(":")
        entry = getattr(importlib.import_module(module), name)
        header, blobs = entry(job.header, job.blobs)
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


def _redirect(channels: Channels) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(channels.output, 1)
    os.dup2(channels.output, 2)
    processes.close_all_but((0, 1, 2, channels.setup, channels.response))
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

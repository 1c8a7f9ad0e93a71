"""What every command does with its screen: width, progress, one sentence for a wrong call, and a reader that left."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

import click
from rich.console import Console
from rich.status import Status

from nkireview.arguments import ArgumentError, ReferenceFailed
from nkireview.record import ExitCode
from nkireview.requests import UsageError
from nkireview.rubric import edits, loading
from nkireview.runner import RunnerError
from nkireview.task import TaskError

WRONG_CALL = int(ExitCode.not_judged)
INTERRUPTED = 130
BROKEN_PIPE = 141
"""What a shell gives a process that wrote to a closed pipe: 128 and SIGPIPE."""
SLOW_S = 2.0
PIPE_WIDTH = 400
_WRONG = (
    UsageError,
    ArgumentError,
    TaskError,
    RunnerError,
    ReferenceFailed,
    loading.RubricError,
    edits.EditError,
)


_EXPECTED = (
    (FileNotFoundError, "a file or folder that is there"),
    (IsADirectoryError, "a file"),
    ((NotADirectoryError, FileExistsError), "a folder"),
    (PermissionError, "one with the right to read and write it"),
    (OSError, "a file that can be read and written"),
)


class _Screen(Console):
    def on_broken_pipe(self) -> None:
        _leave()


def screen() -> Console:
    """The terminal; where there is none, lines wide enough not to be broken."""
    return _Screen() if sys.stdout.isatty() else _Screen(width=PIPE_WIDTH)


def _leave() -> NoReturn:
    """End without a word, and without a verdict in the exit code: whoever read the output has left."""
    # what is still buffered is flushed at exit, and must not fail again
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(BROKEN_PIPE)


@contextmanager
def sentences() -> Iterator[None]:
    """Wrong calls end with one sentence and exit code 2, a closed pipe with 141."""
    try:
        yield
        sys.stdout.flush()
    except _WRONG as error:
        click.echo(f"nkireview: {error}", err=True)
        sys.exit(WRONG_CALL)
    except BrokenPipeError:
        _leave()
    except OSError as error:
        expected = next(text for kind, text in _EXPECTED if isinstance(error, kind))
        click.echo(
            f"nkireview: {error.filename or 'a file'}: {error.strerror or error}; expected {expected}",
            err=True,
        )
        sys.exit(WRONG_CALL)
    except Exception:
        # exit code 1 says that the kernel has a blocker; a fault of ours says nothing about the kernel
        traceback.print_exc()
        click.echo(
            "nkireview: a fault of nkireview itself, nothing was judged; report it with these lines", err=True
        )
        sys.exit(WRONG_CALL)


@contextmanager
def progress(console: Console) -> Iterator[Callable[[str], None]]:
    """A status line on a terminal once the work takes longer than two seconds."""
    started = time.monotonic()
    status: Status | None = None

    def show(text: str) -> None:
        nonlocal status
        if not console.is_terminal or time.monotonic() - started < SLOW_S:
            return
        if status is None:
            status = console.status(text)
            status.start()
        status.update(text)

    try:
        yield show
    finally:
        if status is not None:
            status.stop()

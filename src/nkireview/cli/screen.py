"""What every command does with its screen: width, progress, and one sentence for a wrong call."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

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


def screen() -> Console:
    """The terminal; where there is none, lines wide enough not to be broken."""
    return Console() if sys.stdout.isatty() else Console(width=PIPE_WIDTH)


@contextmanager
def sentences() -> Iterator[None]:
    """Wrong calls end with one sentence and exit code 2."""
    try:
        yield
    except _WRONG as error:
        click.echo(f"nkireview: {error}", err=True)
        sys.exit(WRONG_CALL)
    except OSError as error:
        click.echo(f"nkireview: {error.filename or 'file'}: {error.strerror}", err=True)
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

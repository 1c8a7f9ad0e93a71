"""Tasks that are no task folders: an operator of a bench, or a problem file, named by a prefix and its path."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from nkireview.sources import kernelbench, nkibench
from nkireview.task import Submission, Task, TaskError, load_task

Opened = tuple[Task, list[Submission]]
SOURCES: dict[str, Callable[[str], Opened]] = {
    nkibench.PREFIX: nkibench.load,
    kernelbench.PREFIX: kernelbench.load,
}


def is_source(name: str | Path) -> bool:
    """Whether a name is written PREFIX:REST with the prefix of a source."""
    prefix, colon, _ = str(name).partition(":")
    return bool(colon) and prefix in SOURCES


def load(name: str | Path) -> Opened:
    """The task of a source, and the submissions that come with it; `TaskError` says what is wrong."""
    prefix, _, rest = str(name).partition(":")
    return SOURCES[prefix](rest)


def task_at(name: str | Path) -> Task:
    """The task of a source or of a task folder."""
    return load(name)[0] if is_source(name) else load_task(name)


def submission_of(file: Path) -> Submission:
    """A kernel file as a submission, called by its stem; `TaskError` where there is none."""
    if not file.is_file():
        raise TaskError(
            [f"--submission {file}: there is no such file; expected a Python file with the kernel"]
        )
    return Submission(file.stem, file.parent, file)

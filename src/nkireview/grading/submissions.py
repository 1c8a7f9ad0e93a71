"""The submissions in a folder: sub-folders with a kernel file, or single Python files; names, digests, requests."""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nkireview.answers import Answers, Kept
from nkireview.requests import UsageError, from_task
from nkireview.rules.facts import Failure
from nkireview.runner import ForkServer, Limits
from nkireview.task import Submission, Task
from nkireview.tracing import Request, Workload, settle_target

# Of a submission's own files: what is beyond is told by its size alone, so that a digest is never long in the making.
DIGEST_BYTES = 64 << 20
DIGEST_FILES = 10_000


@dataclass(frozen=True)
class Options:
    """What a user may ask beyond the task: see `requests.from_task`."""

    target: str | None = None
    nki: str | None = None
    lnc: int | None = None
    seeds: int | None = None

    @property
    def keywords(self) -> dict[str, Any]:
        """As `requests.from_task` takes them."""
        return {name: getattr(self, name) for name in ("target", "nki", "lnc", "seeds")}


@dataclass(frozen=True)
class Entry:
    """One submission: its name, its kernel file below the folder of submissions, and what lies there."""

    name: str
    root: Path
    kernel: Path

    @property
    def file(self) -> str:
        """The kernel file, relative to the folder of submissions, in printable characters."""
        return _printable(self.kernel.relative_to(self.root.parent).as_posix())

    def digest(self) -> str:
        """SHA-256 of all files of the submission, by name and content; unreadable ones by name alone."""
        total = hashlib.sha256()
        left = DIGEST_BYTES
        for number, path in enumerate(_files(self.root)):
            if number == DIGEST_FILES:
                break
            try:
                size = path.stat().st_size if path.is_file() else -1
                data = path.read_bytes() if 0 <= size <= left else b""
            except OSError:
                size, data = -1, b""
            left -= len(data)
            name = os.fsencode(path.relative_to(self.root.parent))
            total.update(f"{len(name)} {size} {len(data)}\0".encode() + name + data)
        return total.hexdigest()


def entries(folder: Path, task: Task) -> list[Entry]:
    """The submissions in a folder, by name; UsageError where there is none.

    Folders and ``.py`` files count, whatever they hold, but for names that begin with a dot or an underscore. A file
    is called by its stem, with ``.py`` where a folder has that name.
    """
    expected = f"expected a folder with NAME/{task.kernel_file} or NAME.py for each submission"
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder; {expected}")
    found: dict[str, Entry] = {}
    paths = sorted(
        (path for path in folder.iterdir() if path.name[0] not in "._"), key=lambda path: path.name
    )
    for path in (path for path in paths if path.is_dir()):
        name = _free(found, path.name)
        found[name] = Entry(name, path, path / task.kernel_file)
    for path in (path for path in paths if not path.is_dir() and path.suffix == ".py"):
        name = _free(found, path.stem, path.name)
        found[name] = Entry(name, path, path)
    if not found:
        raise UsageError(f"{folder}: there is no submission in it; {expected}")
    return [found[name] for name in sorted(found)]


@dataclass(frozen=True)
class Prepared:
    """A task with the answers of its reference, for any number of submissions."""

    task: Task
    options: Options
    template: Request

    @property
    def kept(self) -> tuple[Kept, ...]:
        """The answers, by workload."""
        return tuple(each.inputs for each in self.template.workloads if isinstance(each.inputs, Kept))

    def request(self, entry: Entry) -> Request:
        """The request for one submission; whatever it is made of, there is one."""
        submission = Submission(entry.name, entry.root, entry.kernel)
        asked = self.options
        common = {
            "limits": replace(self.template.limits, readable=(os.path.realpath(entry.root),)),
            "workloads": self.template.workloads,
            "seed": self.template.seed,
        }
        failure = _unfit(entry, self.task)
        if failure is None:
            try:
                request = from_task(self.task, submission, **asked.keywords)
                return replace(request, **common)  # type: ignore[arg-type]
            except UsageError as error:  # it went away in this moment
                failure = Failure("not python", str(error))
        return replace(
            self.template,
            source=None,
            file=entry.kernel,
            submission=entry.name,
            target=settle_target(asked.target, self.task.target, None),
            failure=failure,
            **common,  # type: ignore[arg-type]
        )


def prepare(
    task: Task, options: Options, seed: int, limits: Limits, server: ForkServer
) -> Iterator[str | Prepared]:
    """Ask the reference everything that reviews with this seed can need; yields what it is at, then the result.

    limits: of each submission; the reference has the usual ones.
    """
    # The reference's own file stands in for a submission: only what the task asks for is taken from the request.
    stand_in = Submission("", task.folder, task.path(task.reference.file))
    request = from_task(task, stand_in, **options.keywords, seed=seed)
    workloads: list[Workload] = []
    for workload in request.workloads:
        yield f"asking the reference: {workload.name}"
        kept = _kept(request, workload, range(seed, seed + workload.seeds), server)
        workloads.append(replace(workload, inputs=kept))
    yield Prepared(task, options, replace(request, workloads=tuple(workloads), limits=limits))


def _kept(request: Request, workload: Workload, seeds: Sequence[int], server: ForkServer) -> Kept:
    assert request.reference is not None
    if workload.schedule_only:
        return Kept.structure_only(workload.inputs, server, request.task_limits)
    answers = Answers(workload.inputs, request.reference, server, request.task_limits, workload.probes)
    try:
        return Kept.of(answers, seeds, server, request.task_limits, sorted(workload.hostile))
    finally:
        answers.close()


def _unfit(entry: Entry, task: Task) -> Failure | None:
    """Why there is nothing to read; only the file's own name is in the sentence."""
    expected = f"expected a Python file with the kernel {task.kernel!r}"
    try:
        if entry.kernel.is_file():
            return None
        there = os.path.lexists(entry.kernel)
    except OSError as error:
        return Failure("not python", f"{entry.kernel.name}: {error.strerror}; {expected}")
    what = "this is no regular file" if there else "there is no such file"
    return Failure("not python", f"{entry.kernel.name}: {what}; {expected}")


def _files(root: Path) -> Iterator[Path]:
    """Files of a submission in order of their names; links are not followed."""
    if root.is_symlink() or not root.is_dir():
        yield root
    for folder, folders, files in os.walk(root):
        folders.sort()
        yield from (Path(folder, name) for name in sorted(files))


def _free(taken: Mapping[str, Entry], *names: str) -> str:
    """The first of these names, made printable, that is not taken; else the last with a number."""
    wanted = [_printable(name) for name in names]
    numbered = (f"{wanted[-1]} ({number})" for number in itertools.count(2))
    return next(name for name in itertools.chain(wanted, numbered) if name not in taken)


def _printable(name: str) -> str:
    """A file's name as text; bytes that are none are written as escapes."""
    text = os.fsencode(name).decode("utf-8", "backslashreplace")
    return "".join(each if each.isprintable() else f"\\x{ord(each):02x}" for each in text)

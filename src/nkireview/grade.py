"""Grading many submissions of one task: a record for each, whatever it does, and a run that can be resumed."""

from __future__ import annotations

import gc
import hashlib
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

import nkireview
from nkireview.grading.flight import Flights, most_at_once
from nkireview.grading.journal import SUFFIX, Header, Journal, read_journal, read_results
from nkireview.grading.record import GradeRecord, Summary
from nkireview.grading.reviewer import MEMORY_BYTES, child_limits
from nkireview.grading.seed import Secret
from nkireview.grading.submissions import Entry, Options, Prepared, entries, prepare
from nkireview.grading.summary import summarise
from nkireview.grading.warm import warm_up
from nkireview.requests import UsageError
from nkireview.runner import ForkServer
from nkireview.sources import task_at
from nkireview.task import SUBMISSIONS, Task

DEFAULT_BUDGET_S = 60.0
MAX_BUDGET_S = 86400.0


_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m)")
_SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0}


def seconds_of(text: str) -> float:
    """Seconds of a duration such as 5s, 500ms or 2m; UsageError for anything else."""
    match = _DURATION.fullmatch(text.strip())
    seconds = float(match[1]) * _SECONDS[match[2]] if match else 0.0
    if not 0 < seconds < MAX_BUDGET_S:
        raise UsageError(
            f"--budget {text!r} is no duration; expected 5s, 500ms or 2m, above 0 and below a day"
        )
    return seconds


def cpus() -> int:
    """How many CPUs this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


@dataclass(frozen=True)
class Plan:
    """One call of `grade`. `jobs` is the number of CPUs to keep busy; `budget_s` is processor time, a submission."""

    task: Path
    submissions: Path
    out: Path
    jobs: int = 1
    budget_s: float = DEFAULT_BUDGET_S
    memory_bytes: int = MEMORY_BYTES
    seed_file: Path | None = None
    resume: bool = False
    force: bool = False
    options: Options = field(default_factory=Options)

    @property
    def journal(self) -> Path:
        """Where finished records are until all are there."""
        return self.out.with_name(self.out.name + SUFFIX)


@dataclass(frozen=True)
class Step:
    """How far a run is: what it does, or how many submissions are done; `note` is for the one who runs it."""

    done: int
    total: int
    doing: str = ""
    note: str = ""


def grade(plan: Plan, tell: Callable[[Step], None] = lambda _: None) -> Summary:
    """Grade every submission and write the results, sorted by name.

    UsageError or TaskError for a wrong call, before anything is written. The journal stays where the run is cut off,
    by an exception as well.
    """
    task = task_at(plan.task)
    found = [(entry, entry.digest()) for entry in entries(plan.submissions, task)]
    if not plan.out.absolute().parent.is_dir():
        raise UsageError(f"--out {plan.out}: there is no folder {plan.out.parent} to write it to")
    if (finished := _finished(plan, found)) is not None:
        return summarise(finished, task.name, str(plan.out))
    secret = Secret.read(plan.seed_file) if plan.seed_file else None
    journal, records, secret = _journal(plan, task, secret)
    current = {entry.name: digest for entry, digest in found}
    records = {name: record for name, record in records.items() if record.sha256 == current.get(name)}
    with journal:
        left = [(entry, digest) for entry, digest in found if entry.name not in records]
        if left:
            tell(Step(len(records), len(found), "starting"))
            _review(plan, task, secret, left, records, journal, tell, len(found))
        journal.finish(plan.out, records)
    return summarise([records[name] for name in sorted(records)], task.name, str(plan.out))


def _review(
    plan: Plan,
    task: Task,
    secret: Secret,
    left: Sequence[tuple[Entry, str]],
    records: dict[str, GradeRecord],
    journal: Journal,
    tell: Callable[[Step], None],
    total: int,
) -> None:
    """Review what is left; each record is in the journal before it counts."""
    limits = child_limits(plan.budget_s, plan.memory_bytes, _hidden(plan, task))
    with threadpool_limits(1), ForkServer() as server:
        warm_up(server)
        prepared: Prepared | None = None
        for said in prepare(task, plan.options, secret.seed, limits, server):
            if isinstance(said, str):
                tell(Step(len(records), total, said))
            else:
                prepared = said
        assert prepared is not None
        gc.collect()
        gc.freeze()  # forked processes then share these pages
        flights = Flights(prepared, server, plan.jobs, most_at_once(plan.jobs, plan.memory_bytes))
        with closing(flights.review(left)) as landed:
            for done in landed:
                if done is not None:
                    journal.append(done.record)
                    records[done.record.name] = done.record
                tell(Step(len(records), total, note=done.fault if done else ""))


def _finished(plan: Plan, found: Sequence[tuple[Entry, str]]) -> list[GradeRecord] | None:
    """The records of a run that is already finished, where it is to be resumed; UsageError for anything in the way."""
    if plan.resume and plan.force:
        raise UsageError("give either --resume or --force, not both")
    if plan.force or (plan.resume and plan.journal.exists()):
        return None
    if plan.journal.exists():
        raise UsageError(
            f"{plan.journal} is the journal of a run that was cut off; go on with --resume, or start again with --force"
        )
    if not plan.out.exists():
        return None
    if not plan.resume:
        raise UsageError(
            f"{plan.out} is there already; name another file with --out, or overwrite it with --force"
        )
    records = read_results(plan.out)
    if {name: record.sha256 for name, record in records.items()} != {
        entry.name: digest for entry, digest in found
    }:
        raise UsageError(
            f"{plan.out} is finished, and {plan.submissions} has changed since; name another file with --out, or "
            "overwrite it with --force"
        )
    return list(records.values())


def _journal(plan: Plan, task: Task, secret: Secret | None) -> tuple[Journal, dict[str, GradeRecord], Secret]:
    """The journal of this run, new or resumed, the records in it, and the secret of the run."""
    known = read_journal(plan.journal) if plan.resume and plan.journal.exists() else None
    if known is not None and secret is None and known.header.secret:
        secret = Secret(known.header.secret, own=True)
    secret = secret or Secret.drawn()
    header = Header(
        tool=f"nkireview {nkireview.__version__}",
        task=_task_digest(task),
        options=_options(plan),
        seed=secret.identity,
        secret=secret.text if secret.own else "",
    )
    if known is None:
        return Journal.create(plan.journal, header), {}, secret
    if changed := known.header.differs(header):
        raise UsageError(
            f"{plan.journal} was begun with another {changed}; resume with what it was begun with, or start again "
            "with --force"
        )
    return Journal.reopen(plan.journal, known.size), known.records, secret


def _options(plan: Plan) -> dict[str, str]:
    """What a record depends on, by the name of its option."""
    return {
        "budget": f"{plan.budget_s:g}s",
        "memory": str(plan.memory_bytes),
        "target": plan.options.target or "",
        "nki": plan.options.nki or "",
        "lnc": str(plan.options.lnc or ""),
        "seeds": str(plan.options.seeds or ""),
    }


def _task_digest(task: Task) -> str:
    """SHA-256 of the files that say what the task is."""
    total = hashlib.sha256()
    for path in task.files:
        data = path.read_bytes()
        total.update(f"{path.name} {len(data)}\0".encode("utf-8", "backslashreplace") + data)
    return total.hexdigest()


def _hidden(plan: Plan, task: Task) -> list[str]:
    """What no submission may read: the others, the seed, and the results so far."""
    paths = [plan.submissions, task.folder / SUBMISSIONS, plan.out, plan.journal]
    paths += [plan.seed_file] if plan.seed_file else []
    return [os.path.realpath(path) for path in paths]

"""One submission reviewed in a process of ours, within its budget; its record comes back as a line of JSON."""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from nkireview.grading.record import GradedFinding, GradedTime, GradeRecord, rounded
from nkireview.grading.scrub import Scrub
from nkireview.grading.submissions import Entry, Prepared
from nkireview.numerics.void import Skipped, VoidCheck, VoidReason
from nkireview.record import ReviewRecord
from nkireview.review import review
from nkireview.rules.finding import Severity
from nkireview.runner import ForkServer, Job, Lent, Limits, Outcome, RunnerError, processes
from nkireview.runner.job import size

if sys.platform != "win32":
    import resource

    from nkireview.runner import isolation

# Wall time of a child, as a multiple of its processor time: for one that sleeps.
PATIENCE = 3.0
MEMORY_BYTES = 1 << 30
# Memory for our own work on a submission, as a multiple of what its children may use.
OWN_MEMORY = 2
# Outcomes after which the other workloads of a submission are not traced.
ENDED = frozenset({"timeout", "cpu", "memory", "killed", "output", "scratch", "response"})
NOT_TRIED = "not tried after a limit was exceeded"
LOST = "lost"


def child_limits(budget_s: float, memory_bytes: int, hidden: Sequence[str]) -> Limits:
    """What each child of a submission may use; processor time is counted in whole seconds."""
    seconds = max(1, math.ceil(budget_s))
    return Limits(
        wall_s=PATIENCE * seconds, cpu_s=seconds, memory_bytes=memory_bytes, unreadable=tuple(hidden)
    )


class Budgeted(Lent):
    """A fork server for the children of one submission: none is started after one has used up the budget."""

    def __init__(self, server: ForkServer, numbers: int, cpu_s: float) -> None:
        super().__init__(server, numbers)
        self._left = cpu_s
        self._over = False

    def run(self, job: Job) -> Outcome:
        """See `ForkServer.run`."""
        if self._over:
            return Outcome("killed", {}, [], NOT_TRIED, "", 0, 0.0, (), ())
        outcome = super().run(job)
        self._left -= outcome.cpu_s
        self._over = outcome.status in ENDED or self._left <= 0
        return outcome


Checks = tuple[Mapping[str, VoidCheck], ...]


@dataclass(frozen=True)
class Reply:
    """What a reviewing process says: a record, or that the fork server is gone; `fault` is for the one who ran it.

    `checks` are void checks that it made, for the reviews to come: one mapping for each workload.
    """

    record: GradeRecord | None
    fault: str = ""
    checks: Checks = ()

    def encoded(self) -> bytes:
        """The reply as bytes."""
        record = self.record.model_dump(mode="json") if self.record else None
        checks = [{key: asdict(check) for key, check in each.items()} for each in self.checks]
        return json.dumps({"record": record, "fault": self.fault, "checks": checks}).encode("ascii")

    @classmethod
    def decode(cls, data: bytes) -> Reply | None:
        """The reply in these bytes; None where the process ended before it had said all of it."""
        try:
            found = json.loads(data)
        except ValueError:
            return None
        record = found["record"]
        checks = tuple({key: _check(value) for key, value in each.items()} for each in found["checks"])
        return cls(GradeRecord.model_validate(record) if record else None, found["fault"], checks)


def _check(value: Mapping[str, Any]) -> VoidCheck:
    return VoidCheck(
        tuple(VoidReason(**each) for each in value["reasons"]),
        tuple(Skipped(**each) for each in value["skipped"]),
    )


def reviewing_process(
    entry: Entry,
    digest: str,
    prepared: Prepared,
    server: ForkServer,
    *,
    numbers: int,
    executed: bool,
    answer: int,
    parent: int,
) -> NoReturn:
    """Review one submission in this freshly forked process, write the `Reply` to `answer`, and end."""
    code = 1
    try:
        processes.default_signals()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if sys.platform == "linux":
            isolation.die_with_parent(parent)
        processes.close_all_but((0, 1, 2, answer, server.control))
        limits = prepared.template.limits
        _bound(limits)
        reply = _reply(entry, digest, prepared, Budgeted(server, numbers, limits.cpu_s), executed)
        data = memoryview(reply.encoded())
        while data:
            data = data[os.write(answer, data) :]
        code = 0
    finally:
        os._exit(code)


def _bound(limits: Limits) -> None:
    """Hold our own work on a submission to its budget, and to memory beyond what we have now."""
    resource.setrlimit(resource.RLIMIT_CPU, (limits.cpu_s, limits.cpu_s + 1))
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + OWN_MEMORY * limits.memory_bytes
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _reply(entry: Entry, digest: str, prepared: Prepared, server: Budgeted, executed: bool) -> Reply:
    limits = prepared.template.limits
    known = [set(each.checks) for each in prepared.kept]
    try:
        request = prepared.request(entry)
        if not executed:
            without = tuple(replace(each, schedule_only=True) for each in request.workloads)
            request = replace(request, workloads=without)
        found = review(request, server)
        made = tuple(
            {key: check for key, check in kept.checks.items() if key not in before}
            for kept, before in zip(prepared.kept, known, strict=True)
        )
        return Reply(graded(found, entry, digest, prepared, executed), checks=made)
    except RunnerError:
        return Reply(None, LOST)
    except MemoryError:
        return Reply(unreviewed(entry, digest, over_memory(limits)))
    except Exception as error:
        lines = traceback.format_exception_only(error)
        where = traceback.extract_tb(error.__traceback__)[-1]
        said = f"{lines[-1].strip()} ({Path(where.filename).name}:{where.lineno})"
        reason = f"a fault of nkireview itself: {scrub_for(entry, prepared)(said)}"
        return Reply(unreviewed(entry, digest, reason), fault=f"{entry.name}: {reason}")


def over_memory(limits: Limits) -> str:
    """Why a review ended that took too much memory."""
    return f"its review needs more than {size(OWN_MEMORY * limits.memory_bytes)} of memory"


def over_budget(limits: Limits) -> str:
    """Why a review ended that took too long, though nothing was executed."""
    return f"its review takes more than {limits.cpu_s} s of processor time, even without execution (--budget)"


def unreviewed(entry: Entry, digest: str, reason: str) -> GradeRecord:
    """The record of a submission that could not be reviewed."""
    return GradeRecord(
        name=entry.name, file=entry.file, sha256=digest, status="not reviewed", exit_code=2, reason=reason
    )


def scrub_for(entry: Entry, prepared: Prepared) -> Scrub:
    """What takes paths and seeds out of the texts on a submission."""
    folders = [*_spellings(entry.root), *_spellings(entry.root.parent), *_spellings(prepared.task.folder)]
    folders += [*_spellings(Path(tempfile.gettempdir())), *_spellings(Path.cwd())]
    most = max((workload.seeds for workload in prepared.template.workloads), default=0)
    base = prepared.template.seed or 0
    return Scrub(folders, range(base, base + most))


def graded(found: ReviewRecord, entry: Entry, digest: str, prepared: Prepared, executed: bool) -> GradeRecord:
    """The record of a submission from its review."""
    scrub = scrub_for(entry, prepared)
    tried = [finding for finding in found.findings if NOT_TRIED not in finding.message]
    cut = [
        f"workload {finding.workload}: not traced, since a limit was exceeded before"
        for finding in found.findings
        if NOT_TRIED in finding.message
    ]
    if not executed:
        seconds = prepared.template.limits.cpu_s
        cut.append(f"execution: it takes more than {seconds} s of processor time (--budget)")
    blocked = any(finding.severity is Severity.blocker for finding in found.findings)
    unexecuted = not executed and not blocked and found.status == "acceptable"
    status = "not reviewed" if unexecuted else found.status
    card = found.scorecard
    return GradeRecord(
        name=entry.name,
        file=entry.file,
        sha256=digest,
        status=status,
        exit_code=2 if unexecuted else int(found.exit_code),  # type: ignore[arg-type]
        total=None if card is None or card.total is None else rounded(card.total),
        dimensions={
            item.dimension.value: None if item.score is None else rounded(item.score)
            for item in (card.dimensions if card else ())
        },
        times=tuple(
            GradedTime(
                workload=time.workload,
                predicted_ns=rounded(time.total_ns),
                low_ns=rounded(time.low_ns),
                high_ns=rounded(time.high_ns),
                basis=time.basis,
                bound=time.bound,
            )
            for time in found.times
        ),
        findings=tuple(
            GradedFinding(
                code=finding.code,
                severity=finding.severity.value,
                dimension=finding.dimension.value,
                message=scrub(finding.message),
                **_place(finding.places),  # type: ignore[arg-type]
            )
            for finding in tried
        ),
        reason=scrub(cut[-1] if unexecuted else found.reason),
        cut=tuple(cut),
    )


def _place(places: Sequence[str]) -> dict[str, str | int | None]:
    """File and line of the first place."""
    if not places:
        return {}
    file, _, line = places[0].rpartition(":")
    if not line.isdecimal():
        return {"file": Path(places[0]).name}
    return {"file": Path(file).name, "line": int(line)}


def _spellings(path: Path) -> set[str]:
    """A folder as it was given, made absolute, and without links."""
    return {str(path.absolute()), os.path.realpath(path)}

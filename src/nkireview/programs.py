"""From a request to the Program of each of its workloads, for commands that execute and score nothing."""

from __future__ import annotations

from collections.abc import Callable

from nkireview.arguments import ReferenceFailed
from nkireview.checks.integrity import forbidden
from nkireview.program.program import Program
from nkireview.program.verify import Violation, verify
from nkireview.record import Subject
from nkireview.runner import ForkServer
from nkireview.tracing import Request, Workload, trace


class NotJudged(Exception):
    """What keeps the kernel from being judged, in one sentence."""


def subject_of(request: Request) -> Subject:
    """What is looked at, for which target; NotJudged where the file cannot be read or may not be run."""
    if request.failure is not None:
        raise NotJudged(request.failure.message)
    if request.source is not None:
        for trespass in forbidden(request.source, request.kernel):
            raise NotJudged(f"{request.file}:{trespass.line}: not run, since the file {trespass.message}")
    return Subject(
        kernel=request.kernel,
        file=str(request.file),
        sha256=request.source.sha256 if request.source else "",
        task=request.task,
        submission=request.submission,
        target=request.target,
        release=request.release,
        lnc=request.lnc,
        grid=request.grid,
    )


def program_of(
    request: Request, workload: Workload, server: ForkServer, progress: Callable[[str], None]
) -> tuple[Program, tuple[Violation, ...]]:
    """The traced Program of a workload, and the limits that it breaks; NotJudged where there is none."""
    progress(f"{workload.name}: tracing")
    try:
        traced = trace(request, workload, server)
    except ReferenceFailed as error:
        raise NotJudged(str(error)) from None
    if traced.unsupported:
        raise NotJudged(traced.unsupported)
    program = traced.program
    if program is None:
        assert traced.failure is not None
        place = f" ({traced.failure.place})" if traced.failure.place else ""
        raise NotJudged(f"{workload.name}: {traced.failure.message}{place}")
    violations = verify(program)
    for violation in violations:
        if violation.unsupported:
            raise NotJudged(f"{workload.name}: {violation.message}")
    return program, violations

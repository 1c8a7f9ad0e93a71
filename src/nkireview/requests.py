"""From what a user names (a task folder, a submission, a kernel file) to requests for the pipeline."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from nkireview.adapting import Adapted
from nkireview.arguments import ArgumentError, Called, Callee, Drawn, InputSource
from nkireview.checks.integrity import forbidden
from nkireview.checks.source import SourceError, SourceFacts, choose_kernel, read_source
from nkireview.numerics.inputs import (
    InputError,
    Scalar,
    Spec,
    default_distribution,
    parse_distribution,
    parse_input,
)
from nkireview.numerics.sensitivity import REGIONS
from nkireview.rubric.loading import of_task
from nkireview.rules.facts import Failure
from nkireview.runner import Limits
from nkireview.runner.job import GIB
from nkireview.task import Entry, Submission, Task
from nkireview.task import Workload as TaskWorkload
from nkireview.tracing import (
    DEFAULT_SEEDS,
    Request,
    Workload,
    settle_grid,
    settle_lnc,
    settle_release,
    settle_target,
)

PROCESSORS = 16
"""A call may take its seconds on so many processors at once: libraries compute in threads."""


class UsageError(ValueError):
    """A call that cannot be carried out; one sentence."""


def from_file(
    path: Path,
    *,
    kernel: str | None,
    reference: str | None,
    inputs: Sequence[str],
    inputs_from: str | None,
    target: str | None,
    nki: str | None,
    lnc: int | None,
    grid: str | None = None,
    seed: int | None = None,
    seeds: int | None = None,
    schedule_only: bool = False,
    need_reference: bool = True,
) -> Request:
    """A request for a kernel file and the reference and inputs named beside it.

    A file that may not be run needs neither: its review ends with what its source says.
    """
    source, failure = _source(path) if path.is_file() else (None, None)
    barred = source is not None and bool(forbidden(source, kernel or ""))
    if need_reference and reference is None and not barred:
        raise UsageError(
            f"{path}: nothing to compare with; give --reference FILE:FUNCTION, or the path of a task folder"
        )
    if bool(inputs) == bool(inputs_from) and inputs:
        raise UsageError("give either --input or --inputs-from, not both")
    if not inputs and not inputs_from and not barred:
        raise UsageError(
            f"{path}: no inputs; give --input x=bf16[4096,2048] ... or --inputs-from FILE:FUNCTION"
        )
    callee = Callee.parse(reference, "--reference") if reference else None
    made: InputSource
    if inputs_from:
        made = Called(Callee.parse(inputs_from, "--inputs-from"), {})
    else:
        made = Drawn(_parsed(inputs))
    if not path.is_file():
        source, failure = _source(path)
    chosen = kernel or ""
    if source is not None:
        try:
            chosen = choose_kernel(source, kernel)
        except SourceError as error:
            if kernel is not None or source.kernels:
                raise UsageError(str(error)) from None
            failure = Failure("no kernel", str(error))
    if source is not None and inputs:
        _check_names(path, source, chosen, _parsed(inputs))
    if schedule_only and seeds is not None:
        raise UsageError("give either --seeds or --schedule-only, not both")
    seeds = 1 if schedule_only else seeds or DEFAULT_SEEDS
    with _saying("--grid"):
        launch = settle_grid(grid, None)
        cores = settle_lnc(lnc, None, launch)
    return Request(
        source=source,
        file=path,
        kernel=chosen,
        reference=callee,
        workloads=(Workload("inputs", made, schedule_only=schedule_only, seeds=seeds),),
        target=settle_target(target, None, source, chosen),
        release=settle_release(nki, None, source, chosen),
        lnc=cores,
        grid=launch,
        authored=_authored(path, callee, made),
        paths=_paths(made),
        seed=seed,
        failure=failure,
    )


def _check_names(path: Path, source: SourceFacts, kernel: str, given: Mapping[str, Spec | Scalar]) -> None:
    """Tensors go by position and scalars by keyword: a name that says otherwise is a mistake."""
    known, function = source.parameters(kernel), source.functions.get(kernel)
    if not known or function is None or function.args.kwarg or function.args.vararg:
        return
    listed = ", ".join(known)
    tensors = [name for name, item in given.items() if isinstance(item, Spec)]
    for at, name in enumerate(tensors):
        if name in known and known.index(name) != at:
            raise UsageError(
                f"{path}: --input {name} is tensor {at + 1}, but parameter {known.index(name) + 1} of "
                f"{kernel}({listed}); give the tensors in that order, or a dict with --inputs-from"
            )
    for name in given:
        if name not in tensors and name not in known:
            raise UsageError(f"{path}: --input {name}: {kernel}({listed}) has no parameter of that name")


def from_task(
    task: Task,
    submission: Submission,
    *,
    target: str | None,
    nki: str | None,
    lnc: int | None,
    seed: int | None = None,
    seeds: int | None = None,
) -> Request:
    """A request for one submission of a task; `seeds` is how many are executed, where the task is not to say it."""
    source, failure = _source(submission.kernel_path)
    kernel = task.kernel
    if source is not None and failure is None:
        kernel = next((name for name in (kernel, *task.kernel_also) if name in source.functions), kernel)
        failure = _unwanted(task, submission)
        try:
            choose_kernel(source, kernel)
        except SourceError as error:
            failure = Failure("no kernel", str(error))
    workloads = tuple(_workload(task, name, item) for name, item in task.workloads.items())
    if target is None and nki is None and lnc is None and not workloads:
        raise UsageError(f"{task.folder}: the task has no workloads")
    callee = Callee(task.path(task.reference.file), task.reference.function, task.float64)
    left_out = [_left_out(workload, seeds) for workload in workloads if seeds is not None]
    left_out += [_unprobed(workload) for workload in workloads]
    if seeds is not None:
        workloads = tuple(replace(workload, seeds=seeds) for workload in workloads)
    with _saying(f"{task.folder.name}: grid"):
        launch = settle_grid(None, task.grid)
        cores = settle_lnc(lnc, task.lnc, launch)
    return Request(
        source=source,
        file=submission.kernel_path,
        kernel=kernel,
        reference=callee,
        workloads=workloads,
        target=settle_target(target, task.target, source, kernel),
        release=settle_release(nki, task.nki, source, kernel),
        lnc=cores,
        grid=launch,
        policy=task.tolerance.policy,
        task=task.name,
        submission=submission.name,
        rubric=of_task(task.folder, task.rubric),
        paths=_paths(*(workload.inputs for workload in workloads)),
        seed=seed,
        failure=failure,
        returned=_callee(task, task.kernel_outputs) if task.kernel_outputs else None,
        reference_limits=_reference_limits(task),
        not_checked=tuple(sentence for sentence in left_out if sentence),
    )


@contextmanager
def _saying(where: str) -> Iterator[None]:
    """UsageError for what is wrong with a setting."""
    try:
        yield
    except ValueError as error:
        raise UsageError(f"{where}: {error}") from None


def with_limits(request: Request, wall_s: float | None) -> Request:
    """The request with another wall time for each child; UsageError for one that is no number."""
    if wall_s is None:
        return request
    if not math.isfinite(wall_s):
        raise UsageError(f"--wall is {wall_s}: expected a number of seconds")
    times = {"wall_s": wall_s, "cpu_s": max(1, int(wall_s) + 1)}
    own = request.reference_limits
    return replace(
        request,
        limits=replace(request.limits, **times),  # type: ignore[arg-type]
        reference_limits=own and replace(own, **times),  # type: ignore[arg-type]
    )


def _callee(task: Task, entry: Entry) -> Callee:
    return Callee(task.path(entry.file), entry.function)


def _reference_limits(task: Task) -> Limits | None:
    """What the task asks for its own functions; None where it asks for nothing."""
    asked = task.reference_limits
    changes: dict[str, float] = {}
    if asked.seconds is not None:
        changes |= {"wall_s": asked.seconds, "cpu_s": math.ceil(asked.seconds) * PROCESSORS}
    if asked.memory_gib is not None:
        changes["memory_bytes"] = math.ceil(asked.memory_gib * GIB)
    if asked.answer_gib is not None:
        changes["response_bytes"] = math.ceil(asked.answer_gib * GIB)
    return Limits(**changes) if changes else None  # type: ignore[arg-type]


def _left_out(workload: Workload, seeds: int) -> str:
    """What of a workload is not executed for want of seeds; empty where nothing is left out."""
    if workload.schedule_only or seeds >= workload.seeds:
        return ""
    return f"{workload.name}: {workload.seeds - seeds} of the task's {workload.seeds} seeds (--seeds {seeds})"


def _unprobed(workload: Workload) -> str:
    """Which parts of its inputs a workload does not ask about; empty where it asks about all."""
    if workload.schedule_only or workload.probes >= REGIONS:
        return ""
    return f"{workload.name}: whether parts of an input count, beyond {workload.probes} of each (the task's probes)"


def _unwanted(task: Task, submission: Submission) -> Failure | None:
    """The first text, comments aside, that the task's contract does not allow in a kernel file."""
    text = submission.kernel_path.read_text(encoding="utf-8", errors="replace")
    for number, line in enumerate(text.splitlines(), 1):
        found = [each for each in task.contract.without if each in line.partition("#")[0]]
        if found:
            what = f"the task allows no {found[0]!r} in a kernel file, comments aside"
            return Failure("refused", what, f"{submission.kernel_path.name}:{number}")
    return None


def _workload(task: Task, name: str, item: TaskWorkload) -> Workload:
    where = f"{task.folder.name}: workloads.{name}"
    keywords: Mapping[str, Scalar] = item.keywords
    made: InputSource
    if item.inputs:
        specs: dict[str, Spec | Scalar] = {}
        for key, entry in item.inputs.items():
            try:
                given = parse_distribution(entry.distribution) if entry.distribution else None
                spec = Spec(entry.dtype, entry.shape, given or default_distribution(entry.dtype))
            except (InputError, ValueError) as error:
                raise UsageError(f"{where}.inputs.{key}: {error}") from None
            specs[key] = spec
        made = Drawn({**specs, **keywords})
    else:
        assert task.inputs_from is not None
        made = Called(_callee(task, task.inputs_from), dict(keywords))
    if task.kernel_inputs is not None:
        made = Adapted(made, _callee(task, task.kernel_inputs))
    return Workload(
        name,
        made,
        schedule_only=item.schedule_only,
        seeds=item.seeds or DEFAULT_SEEDS,
        hostile=frozenset(task.contract.hostile),
        probes=item.probes or REGIONS,
    )


def _parsed(inputs: Sequence[str]) -> dict[str, Spec | Scalar]:
    found: dict[str, Spec | Scalar] = {}
    for text in inputs:
        try:
            name, value = parse_input(text)
        except InputError as error:
            raise UsageError(f"--input: {error}") from None
        if name in found:
            raise UsageError(f"--input: {name} is given twice")
        found[name] = value
    return found


def _source(path: Path) -> tuple[SourceFacts | None, Failure | None]:
    """A missing file is a wrong call; a file that is not Python is a result."""
    try:
        return read_source(path), None
    except SourceError as error:
        if not path.is_file():
            raise UsageError(str(error)) from None
        return None, Failure("not python", str(error))


def _authored(path: Path, reference: Callee | None, inputs: InputSource) -> tuple[str, ...]:
    found = []
    if reference is not None and reference.file.resolve() == path.resolve():
        found.append("reference")
    if isinstance(inputs, Called) and inputs.callee.file.resolve() == path.resolve():
        found.append("input function")
    return tuple(found)


def _paths(*inputs: InputSource) -> tuple[str, ...]:
    """Folders in which classes of the arguments are found."""
    made = [item.inputs if isinstance(item, Adapted) else item for item in inputs]
    folders = [str(item.callee.file.resolve().parent) for item in made if isinstance(item, Called)]
    return tuple(dict.fromkeys(folders))


__all__ = ["ArgumentError", "UsageError", "from_file", "from_task"]

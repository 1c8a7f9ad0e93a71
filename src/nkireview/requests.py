"""From what a user names (a task folder, a submission, a kernel file) to requests for the pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

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
from nkireview.rubric.loading import of_task
from nkireview.rules.facts import Failure
from nkireview.task import Submission, Task
from nkireview.task import Workload as TaskWorkload
from nkireview.tracing import (
    DEFAULT_SEEDS,
    Request,
    Workload,
    settle_lnc,
    settle_release,
    settle_target,
)


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
    seed: int | None = None,
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
    seeds = 1 if schedule_only else DEFAULT_SEEDS
    return Request(
        source=source,
        file=path,
        kernel=chosen,
        reference=callee,
        workloads=(Workload("inputs", made, schedule_only=schedule_only, seeds=seeds),),
        target=settle_target(target, None, source),
        release=settle_release(nki, None),
        lnc=settle_lnc(lnc, None),
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
) -> Request:
    """A request for one submission of a task."""
    source, failure = _source(submission.kernel_path)
    if source is not None and failure is None:
        try:
            choose_kernel(source, task.kernel)
        except SourceError as error:
            failure = Failure("no kernel", str(error))
    workloads = tuple(_workload(task, name, item) for name, item in task.workloads.items())
    if target is None and nki is None and lnc is None and not workloads:
        raise UsageError(f"{task.folder}: the task has no workloads")
    callee = Callee(task.path(task.reference.file), task.reference.function)
    return Request(
        source=source,
        file=submission.kernel_path,
        kernel=task.kernel,
        reference=callee,
        workloads=workloads,
        target=settle_target(target, task.target, source),
        release=settle_release(nki, task.nki),
        lnc=settle_lnc(lnc, task.lnc),
        policy=task.tolerance.policy,
        task=task.name,
        submission=submission.name,
        rubric=of_task(task.folder, task.rubric),
        paths=_paths(*(workload.inputs for workload in workloads)),
        seed=seed,
        failure=failure,
    )


def with_limits(request: Request, wall_s: float | None) -> Request:
    """The request with another wall time for each child."""
    if wall_s is None:
        return request
    return replace(request, limits=replace(request.limits, wall_s=wall_s, cpu_s=max(1, int(wall_s) + 1)))


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
        made = Called(Callee(task.path(task.inputs_from.file), task.inputs_from.function), dict(keywords))
    return Workload(
        name,
        made,
        schedule_only=item.schedule_only,
        seeds=item.seeds or DEFAULT_SEEDS,
        hostile=frozenset(task.contract.hostile),
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
    folders = [str(item.callee.file.resolve().parent) for item in inputs if isinstance(item, Called)]
    return tuple(dict.fromkeys(folders))


__all__ = ["ArgumentError", "UsageError", "from_file", "from_task"]

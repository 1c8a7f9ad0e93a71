"""nkireview review."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from nkireview.cli.group import main
from nkireview.cli.options import kernel_options, seeds_option, submission_option
from nkireview.cli.screen import progress, screen, sentences
from nkireview.report import machine, terminal
from nkireview.report.sources import read_sources
from nkireview.requests import UsageError, from_file, from_task, with_limits
from nkireview.review import review
from nkireview.runner import ForkServer
from nkireview.sources import is_source, load, submission_of
from nkireview.task import TASK_FILE, Submission, Task, load_task, resolve
from nkireview.tracing import Request

OUT = "nkireview-out"
SINGLE = frozenset({"html", "sarif"})
LISTED = frozenset({"json", "agent"})


@main.command("review")
@click.argument("path", type=click.Path(path_type=Path))
@submission_option
@kernel_options
@seeds_option
@click.option("--schedule-only", is_flag=True, help="Trace, verify and time a kernel file; execute nothing.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["terminal", *machine.FORMS]),
    default="terminal",
    help="What to print; default: the screen. The files are written in any case.",
)
def review_command(
    path: Path, out: Path | None, as_json: bool, wall: float | None, form: str, **options: Any
) -> None:
    """Review a task, one of its submissions, or a kernel file.

    \b
    Examples:
      nkireview review examples/softmax
      nkireview review examples/softmax/submissions/good --target trn3
      nkireview review kernel.py --kernel softmax --reference ref.py:softmax --input x=bf16[4096,2048]
      nkireview review nkibench:AccelOpt#silu --submission kernel.py
      nkireview review kernelbench:problem.py --submission kernel.py

    Writes review.json, review.md, review.html, review.sarif and agent.json below --out (default nkireview-out).
    """
    with sentences():
        form = _form(form, as_json)
        requests = [with_limits(request, wall) for request in requests_of(path, options)]
        if len(requests) > 1 and form in SINGLE:
            raise UsageError(
                f"--format {form} prints one review, {path} has {len(requests)} submissions; name one of them, or "
                "take the files below --out"
            )
        console = Console(stderr=True)
        codes: list[int] = []
        texts: list[str] = []
        with ForkServer() as server:
            for request in requests:
                with progress(console) as tell:
                    record = review(request, server, tell)
                sources = read_sources(record, request.file)
                folder = (out or Path(OUT)) / _folder(request, many=len(requests) > 1 or not out)
                target = machine.write(record, folder, sources.texts, sources.paths)
                codes.append(int(record.exit_code))
                if form == "terminal":
                    console_out = screen()
                    terminal.print_review(record, console_out)
                    console_out.print(f"Report: {target}\n", style="dim", highlight=False, markup=False)
                else:
                    texts.append(machine.form(form, record, sources.texts, sources.paths))
        if form in LISTED and len(texts) > 1:
            click.echo(f"[{','.join(texts)}]")
        elif texts:
            click.echo("\n".join(texts), nl=False)
    sys.exit(max(codes))


def _form(form: str, as_json: bool) -> str:
    """The form to print; ``--json`` is the short spelling of one of them."""
    if as_json and form not in ("terminal", "json"):
        raise UsageError(f"give either --json or --format {form}, not both")
    return "json" if as_json else form


@dataclass(frozen=True)
class Chosen:
    """A task, and those of its submissions that are meant."""

    task: Task
    submissions: list[Submission]


def task_of(path: Path, submission: Path | None, kernel: str | None = None) -> Chosen | None:
    """The task that is named together with a kernel file, or by a source; None where `path` is neither."""
    if not is_source(path):
        if submission is None:
            return None
        if not (path / TASK_FILE).is_file():
            raise UsageError(
                f"{path}: --submission belongs to a task; expected a folder with {TASK_FILE} in it"
            )
        if kernel is not None:
            raise UsageError(f"{path}: --kernel belongs to a kernel file; a task names its own")
        return Chosen(load_task(path), [submission_of(submission)])
    task, own = load(path)
    if kernel is not None and own:
        raise UsageError(f"{path}: --kernel belongs to a kernel file; a task names its own")
    if submission is None and not own:
        raise UsageError(f"{path} comes without a kernel; give one with --submission FILE")
    task = task.model_copy(update={"kernel": kernel}) if kernel is not None else task
    return Chosen(task, own if submission is None else [submission_of(submission)])


def requests_of(path: Path, options: dict[str, Any]) -> list[Request]:
    """The requests of a call; UsageError or TaskError for a wrong one. Takes its options out of `options`."""
    named = [name for name in ("kernel", "reference", "inputs", "inputs_from", "grid") if options.get(name)]
    schedule_only = options.pop("schedule_only", False)
    submission = options.pop("submission", None)
    asked = {name: options.get(name) for name in ("target", "nki", "lnc", "seed", "seeds")}
    chosen = task_of(path, submission, options["kernel"])
    if chosen is not None:
        for name in named:
            if name != "kernel":
                raise UsageError(f"{path}: --{_spelled(name)} belongs to a kernel file; a task names its own")
        if schedule_only:
            raise UsageError(f"{path}: --schedule-only belongs to a kernel file")
        return [from_task(chosen.task, each, **asked) for each in chosen.submissions]
    if not path.exists():
        raise UsageError(f"{path}: no such file or folder; expected a task folder or a kernel file")
    if path.is_file() and named:
        return [from_file(path, **options, schedule_only=schedule_only, need_reference=not schedule_only)]
    if schedule_only:
        raise UsageError(
            f"{path}: --schedule-only belongs to a kernel file; a workload of a task says it itself"
        )
    if named:
        spelled = ", ".join(f"--{_spelled(name)}" for name in named)
        belong = "belongs" if len(named) == 1 else "belong"
        raise UsageError(f"{path} is a folder: {spelled} {belong} to a kernel file; a task names its own")
    task, submissions = resolve(path)
    return [from_task(task, each, **asked) for each in submissions]


def _spelled(name: str) -> str:
    return "input" if name == "inputs" else name.replace("_", "-")


def _folder(request: Request, many: bool) -> Path:
    if not many:
        return Path()
    if request.task:
        return Path(request.task) / request.submission
    return Path(f"{request.file.stem}-{request.kernel or 'kernel'}")

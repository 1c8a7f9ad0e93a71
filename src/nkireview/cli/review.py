"""nkireview review."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from nkireview.cli.group import main
from nkireview.cli.options import kernel_options
from nkireview.cli.screen import progress, screen, sentences
from nkireview.report import machine, terminal
from nkireview.report.sources import read_sources
from nkireview.requests import UsageError, from_file, from_task, with_limits
from nkireview.review import review
from nkireview.runner import ForkServer
from nkireview.task import resolve
from nkireview.tracing import Request

OUT = "nkireview-out"
SINGLE = frozenset({"html", "sarif"})
LISTED = frozenset({"json", "agent"})


@main.command("review")
@click.argument("path", type=click.Path(path_type=Path))
@kernel_options
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
    """Review a task folder, one of its submissions, or a kernel file.

    \b
    Examples:
      nkireview review examples/softmax
      nkireview review examples/softmax/submissions/good --target trn3
      nkireview review kernel.py --kernel softmax --reference ref.py:softmax --input x=bf16[4096,2048]

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


def requests_of(path: Path, options: dict[str, Any]) -> list[Request]:
    if not path.exists():
        raise UsageError(f"{path}: no such file or folder; expected a task folder or a kernel file")
    named = [name for name in ("kernel", "reference", "inputs", "inputs_from") if options[name]]
    schedule_only = options.pop("schedule_only", False)
    if path.is_file() and named:
        return [from_file(path, **options, schedule_only=schedule_only, need_reference=not schedule_only)]
    if schedule_only:
        raise UsageError(
            f"{path}: --schedule-only belongs to a kernel file; a workload of a task says it itself"
        )
    if named:
        spelled = ", ".join(f"--{'input' if name == 'inputs' else name.replace('_', '-')}" for name in named)
        belong = "belongs" if len(named) == 1 else "belong"
        raise UsageError(f"{path} is a folder: {spelled} {belong} to a kernel file; a task names its own")
    common = {name: options[name] for name in ("target", "nki", "lnc", "seed")}
    task, submissions = resolve(path)
    return [from_task(task, submission, **common) for submission in submissions]


def _folder(request: Request, many: bool) -> Path:
    if not many:
        return Path()
    if request.task:
        return Path(request.task) / request.submission
    return Path(f"{request.file.stem}-{request.kernel or 'kernel'}")

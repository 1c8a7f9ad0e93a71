"""nkireview grade."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from nkireview.cli.group import main
from nkireview.cli.options import release, seeds_option
from nkireview.cli.screen import INTERRUPTED, screen, sentences
from nkireview.grade import Plan, Step, cpus, grade, seconds_of
from nkireview.grading.submissions import Options
from nkireview.report.progress import Meter
from nkireview.report.summary import print_summary


@main.command("grade")
@click.argument("task", type=click.Path(path_type=Path))
@click.argument("submissions", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), default="results.jsonl", show_default=True,
              help="File for the records, one line of JSON a submission, sorted by name.")  # fmt: skip
@click.option("--jobs", type=click.IntRange(1), metavar="N", help="CPUs to keep busy; default: all.")
@click.option("--budget", metavar="TIME", default="60s", show_default=True,
              help="Processor time for each submission: 5s, 500ms, 2m.")  # fmt: skip
@click.option("--seed-file", type=click.Path(path_type=Path), metavar="FILE",
              help="A secret from which the inputs are drawn; default: drawn once, kept in the journal.")  # fmt: skip
@click.option("--resume", is_flag=True, help="Go on with a run that was cut off.")
@click.option("--force", is_flag=True, help="Overwrite what is at --out.")
@click.option(
    "--target", type=click.Choice(["trn1", "inf2", "trn2", "trn3"]), help="Default: the task's, trn2."
)
@click.option("--nki", metavar="RELEASE", callback=release, help="NKI release; default: the task's, 0.6.")
@click.option("--lnc", type=click.IntRange(1, 2), help="Logical NeuronCore size; default: the task's, 1.")
@seeds_option
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def grade_command(
    task: Path, submissions: Path, as_json: bool, jobs: int | None, budget: str, **options: Any
) -> None:
    """Grade every submission in a folder: sub-folders with a kernel file, or single Python files.

    \b
    Examples:
      nkireview grade examples/softmax examples/softmax/submissions --budget 5s
      nkireview grade nkibench:AccelOpt#silu SUBMISSIONS --budget 10m
      nkireview grade TASK SUBMISSIONS --jobs 8 --seed-file secret.txt --out results.jsonl --resume

    Exits with 0 when all were graded, whatever their verdicts, and with 2 for a wrong call.
    """
    chosen = {name: options.pop(name) for name in ("target", "nki", "lnc", "seeds")}
    with sentences():
        plan = Plan(
            task,
            submissions,
            jobs=jobs or cpus(),
            budget_s=seconds_of(budget),
            options=Options(**chosen),
            **options,
        )
        try:
            with Meter(Console(stderr=True), "graded") as meter:
                summary = grade(plan, lambda step: _show(meter, step))
        except KeyboardInterrupt:
            click.echo(f"nkireview: stopped; {plan.journal} is kept, go on with --resume", err=True)
            sys.exit(INTERRUPTED)
        if as_json:
            click.echo(summary.model_dump_json(indent=2))
        else:
            print_summary(summary, screen())


def _show(meter: Meter, step: Step) -> None:
    if step.note:
        meter.note(f"nkireview: {step.note}")
    meter.update(step.done, step.total, step.doing)

"""nkireview numerics."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from nkireview.cli.group import main
from nkireview.cli.memory import only
from nkireview.cli.options import kernel_options, submission_option
from nkireview.cli.review import requests_of
from nkireview.cli.screen import WRONG_CALL, progress, screen, sentences
from nkireview.numbering import KINDS, Asked, numbering
from nkireview.programs import NotJudged
from nkireview.report.machine import ascii_text, write_texts
from nkireview.report.numerics import FILES, numerics_html, print_numerics
from nkireview.requests import UsageError, with_limits
from nkireview.runner import ForkServer
from nkireview.task import TaskError


@main.command("numerics")
@click.argument("path", metavar="KERNEL", type=click.Path(path_type=Path))
@submission_option
@kernel_options
@click.option(
    "--inputs-kind",
    "kind",
    type=click.Choice(KINDS),
    metavar="KIND",
    help=f"Make the inputs hostile: {', '.join(KINDS)}; default: as drawn.",
)
@click.option(
    "--full", is_flag=True, help="Other platforms, the precision of each line and the routes of values too."
)
@click.option("--domain", "shapes", is_flag=True, help="Try sizes around tile edges as well.")
@click.option(
    "--seconds",
    type=click.FloatRange(0.1),
    metavar="S",
    help="Time of each diagnosis; default: ten times an execution.",
)
def numerics_command(
    path: Path,
    out: Path | None,
    as_json: bool,
    wall: float | None,
    kind: str | None,
    full: bool,
    shapes: bool,
    seconds: float | None,
    **options: Any,
) -> None:
    """Say whether a kernel differs from its reference by rounding alone or is wrong, and why.

    \b
    Examples:
      nkireview numerics kernel.py --reference ref.py:softmax --input x=bf16[256,2048]
      nkireview numerics examples/softmax/submissions/good --inputs-kind scale-100
      nkireview numerics nkibench:AccelOpt#silu --submission kernel.py --full --out numbers

    Executes each workload once, derives from the program's own arithmetic how far rounding may move each element, and
    finds the cause of what is beyond it. KERNEL is named as for review; --seed defaults to 0. With --out numerics.json
    and numerics.html are written.

    \b
    Exit codes: 0 rounding explains every difference; 1 a defect; 2 it could not be judged.
    """
    with sentences():
        if seconds is not None and not math.isfinite(seconds):
            raise UsageError(f"--seconds is {seconds}: expected a number of seconds")
        asked = Asked(
            seed=options["seed"] or 0,
            full=full,
            shapes=shapes,
            seconds=seconds,
            **({} if kind is None else {"kind": kind}),
        )
        request = with_limits(only(path, _requests(path, options)), wall)
        try:
            with ForkServer() as server, progress(Console(stderr=True)) as tell:
                summary = numbering(request, server, asked, tell)
        except NotJudged as error:
            click.echo(f"nkireview: {error}", err=True)
            sys.exit(WRONG_CALL)
        text = ascii_text(summary.model_dump_json(indent=2))
        if out is not None:
            write_texts(dict(zip(FILES, (text + "\n", numerics_html(summary)), strict=True)), out)
        if as_json:
            click.echo(text)
        else:
            console = screen()
            print_numerics(summary, console)
            if out is not None:
                console.print(f"\nPage: {out / FILES[1]}", style="dim", highlight=False, markup=False)
    sys.exit(int(summary.exit_code))


def _requests(path: Path, options: dict[str, Any]) -> Any:
    """The requests of a call; a kernel file needs a reference and inputs unless it lies in a task."""
    try:
        return requests_of(path, options)
    except TaskError:
        if not path.is_file():
            raise
        raise UsageError(
            f"{path}: nothing to compare with, and it lies in no task; give --reference FILE:FUNCTION and "
            "--input x=bf16[4096,2048] ... or --inputs-from FILE:FUNCTION"
        ) from None

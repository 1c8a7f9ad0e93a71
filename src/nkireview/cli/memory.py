"""nkireview memory."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from nkireview.cli.group import main
from nkireview.cli.options import kernel_options, submission_option
from nkireview.cli.review import requests_of
from nkireview.cli.screen import WRONG_CALL, progress, screen, sentences
from nkireview.memory import memory
from nkireview.programs import NotJudged
from nkireview.report.machine import write_texts
from nkireview.report.memory import FILES, memory_html, print_memory
from nkireview.requests import UsageError, with_limits
from nkireview.runner import ForkServer
from nkireview.sources import is_source
from nkireview.task import TaskError
from nkireview.tracing import Request

FILE_ONLY = ("kernel", "inputs", "inputs_from", "grid")


@main.command("memory")
@click.argument("path", metavar="KERNEL", type=click.Path(path_type=Path))
@submission_option
@kernel_options
def memory_command(path: Path, out: Path | None, as_json: bool, wall: float | None, **options: Any) -> None:
    """Show what a kernel does with SBUF, PSUM and HBM; nothing is executed.

    \b
    Examples:
      nkireview memory kernel.py --input x=bf16[4096,2048]
      nkireview memory examples/matmul/submissions/good --target trn3
      nkireview memory nkibench:AccelOpt#silu --submission kernel.py --out maps

    Says where each memory is fullest, what is alive there, whether it fits and what to change if not, the bytes that
    each line moves, and draws what lies where over time. KERNEL is named as for review; --reference and --seed are
    taken and not needed. With --out memory.json and memory.html are written.

    \b
    Exit codes: 0 it fits, or may fit in another order; 1 it cannot fit, or is not legal; 2 it
    could not be judged.
    """
    with sentences():
        request = request_of(path, options, wall)
        try:
            with ForkServer() as server, progress(Console(stderr=True)) as tell:
                summary = memory(request, server, tell)
        except NotJudged as error:
            click.echo(f"nkireview: {error}", err=True)
            sys.exit(WRONG_CALL)
        text = summary.model_dump_json(indent=2)
        if out is not None:
            write_texts(dict(zip(FILES, (text + "\n", memory_html(summary)), strict=True)), out)
        if as_json:
            click.echo(text)
        else:
            console = screen()
            print_memory(summary, console)
            if out is not None:
                console.print(f"\nPage: {out / FILES[1]}", style="dim", highlight=False, markup=False)
    sys.exit(int(summary.exit_code))


def request_of(path: Path, options: dict[str, Any], wall: float | None) -> Request:
    """The one request of a call; UsageError or TaskError for a wrong one. Takes its options out of `options`."""
    return with_limits(only(path, _requests(path, options)), wall)


def only(path: Path, requests: list[Request]) -> Request:
    """The one request of a call that must name one submission."""
    if len(requests) > 1:
        named = ", ".join(request.submission for request in requests[:4])
        raise UsageError(
            f"{path} has {len(requests)} submissions ({named}{', ...' if len(requests) > 4 else ''}); name one of them"
        )
    return requests[0]


def _requests(path: Path, options: dict[str, Any]) -> list[Request]:
    """The requests of a call; a kernel file needs no reference, and inputs unless it lies in a task."""
    own = path.is_file() and options["submission"] is None and not is_source(path)
    if own and any(options[name] for name in FILE_ONLY):
        return requests_of(path, {**options, "schedule_only": True})
    try:
        return requests_of(path, options)
    except TaskError:
        if not own:
            raise
        raise UsageError(
            f"{path}: no inputs, and it lies in no task; give --input x=bf16[4096,2048] ... or --inputs-from "
            "FILE:FUNCTION"
        ) from None

"""nkireview run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from nkireview.cli.group import main
from nkireview.cli.options import kernel_options, submission_option
from nkireview.cli.review import requests_of
from nkireview.cli.screen import progress, screen, sentences
from nkireview.report import terminal
from nkireview.requests import from_file, with_limits
from nkireview.run import RunFailed, run, save_outputs
from nkireview.runner import ForkServer
from nkireview.sources import is_source


@main.command("run")
@click.argument("kernel_file", type=click.Path(path_type=Path))
@submission_option
@kernel_options
@click.option("--schedule-only", is_flag=True, help="Trace, verify and count; draw and execute nothing.")
def run_command(
    kernel_file: Path,
    submission: Path | None,
    out: Path | None,
    as_json: bool,
    wall: float | None,
    seed: int | None,
    **options: Any,
) -> None:
    """Run a kernel once: outputs, error against a reference, instructions by engine, bytes moved.

    \b
    Examples:
      nkireview run kernel.py --input x=f32[256,512]
      nkireview run kernel.py --kernel helper --inputs-from data.py:inputs --reference ref.py:f --out results
      nkireview run nkibench:AccelOpt#silu --submission kernel.py

    With --out the outputs are written to outputs.npz.
    """
    with sentences():
        if submission is not None or is_source(kernel_file):
            (request,) = requests_of(kernel_file, {**options, "seed": seed, "submission": submission})
        else:
            request = from_file(kernel_file, need_reference=False, seed=seed, **options)
        request = with_limits(request, wall)
        with ForkServer() as server, progress(Console(stderr=True)) as tell:
            tell(f"running {request.kernel}")
            try:
                summary, values = run(request, server, 0 if seed is None else seed)
            except RunFailed as error:
                click.echo(f"nkireview: {error}", err=True)
                sys.exit(error.code)
        written = save_outputs(values, out) if out and values else None
        if as_json:
            click.echo(summary.model_dump_json(indent=2))
        else:
            terminal.print_run(summary, screen())
            if written:
                click.echo(f"Outputs: {written}")

"""nkireview coverage."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path

import click

from nkireview.cli.group import main
from nkireview.cli.screen import screen, sentences
from nkireview.coverage.proofs import ProofError, proofs
from nkireview.coverage.support import coverage
from nkireview.report.coverage import coverage_json, print_coverage
from nkireview.requests import UsageError


@main.command("coverage")
@click.option(
    "--tests",
    "folder",
    type=click.Path(path_type=Path),
    default=Path("tests"),
    show_default=True,
    help="The folder of tests that prove names.",
)
@click.option("--all", "every", is_flag=True, help="Every name, not only what is missing.")
@click.option("--at-least", type=float, metavar="PERCENT", help="Exit with 1 where an area has less.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the screen.")
def coverage_command(folder: Path, every: bool, at_least: float | None, as_json: bool) -> None:
    """Say how much of the NKI language is supported, and what proves it.

    A name counts as supported where it has limits, engines, a cost and a meaning, as far as it is an instruction,
    and at least one test that compares it with an oracle other than the instruction table.

    \b
    Examples:
      nkireview coverage
      nkireview coverage --all
      nkireview coverage --at-least 98
    """
    with sentences():
        console = screen()
        try:
            with console.status("collecting the tests") if console.is_terminal else nullcontext():
                proved = proofs(folder)
        except ProofError as error:
            raise UsageError(str(error)) from None
        found = coverage(proved)
        if as_json:
            click.echo(coverage_json(found))
        else:
            print_coverage(found, console, every)
        if at_least is not None and any(share.percent < at_least for share in found.shares):
            sys.exit(1)

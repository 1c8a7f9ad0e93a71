"""nkireview migrate-check."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from nkireview.checks.migration import migration
from nkireview.checks.source import SourceError, read_source
from nkireview.cli.group import main
from nkireview.cli.screen import screen, sentences
from nkireview.isa.release import LATEST, Release
from nkireview.report.migration import migration_json, migration_markdown, print_migration
from nkireview.requests import UsageError

FORMS = ("terminal", "md", "json")


@main.command("migrate-check")
@click.argument("kernel", type=click.Path(path_type=Path))
@click.option(
    "--from",
    "start",
    metavar="RELEASE",
    help="Release the kernel is written for; default: legacy where it imports neuronxcc.nki, else 0.2.",
)
@click.option("--to", default=str(LATEST), show_default=True, metavar="RELEASE", help="Release to move to.")
@click.option("--format", "form", type=click.Choice(FORMS), help="What to print; default: terminal.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the screen.")
def migrate_check_command(kernel: Path, start: str | None, to: str, form: str | None, as_json: bool) -> None:
    """Say what a kernel file needs to move to a later NKI release: what is gone, renamed, changed in form, meaning or
    default, with line, replacement, release and source. The file is read, never imported.

    \b
    Examples:
      nkireview migrate-check kernel.py
      nkireview migrate-check kernel.py --from 0.3 --to 0.5
      nkireview migrate-check kernel.py --format md

    Exit codes: 0 nothing must change; 1 something must change, or the file mixes generations; 2 it could not be read.
    """
    with sentences():
        if as_json and form not in (None, "json"):
            raise UsageError(f"give either --json or --format {form}, not both")
        try:
            found = migration(read_source(kernel), _release("--from", start), _release("--to", to) or LATEST)
        except (SourceError, ValueError) as error:
            raise UsageError(str(error)) from None
        if as_json or form == "json":
            click.echo(migration_json(found))
        elif form == "md":
            click.echo(migration_markdown(found), nl=False)
        else:
            print_migration(found, screen())
        if not found.clean:
            sys.exit(1)


def _release(option: str, text: str | None) -> Release | None:
    if text is None:
        return None
    try:
        return Release.parse(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None

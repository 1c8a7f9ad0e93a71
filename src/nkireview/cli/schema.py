"""nkireview schema."""

from __future__ import annotations

import click

from nkireview.cli.group import main
from nkireview.cli.screen import sentences
from nkireview.report.schema import profile_schema, review_schema


@main.command("schema")
@click.option("--profile", is_flag=True, help="The schema of what `nkireview profile --json` prints.")
def schema_command(profile: bool) -> None:
    """Print the JSON Schema of review.json."""
    with sentences():
        click.echo(profile_schema() if profile else review_schema(), nl=False)

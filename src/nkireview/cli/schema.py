"""nkireview schema."""

from __future__ import annotations

import click

from nkireview.cli.group import main
from nkireview.cli.screen import sentences
from nkireview.report.schema import review_schema


@main.command("schema")
def schema_command() -> None:
    """Print the JSON Schema of review.json."""
    with sentences():
        click.echo(review_schema(), nl=False)

"""nkireview schema."""

from __future__ import annotations

import click

from nkireview.cli.group import main
from nkireview.report.schema import review_schema


@main.command("schema")
def schema_command() -> None:
    """Print the JSON Schema of review.json."""
    click.echo(review_schema(), nl=False)

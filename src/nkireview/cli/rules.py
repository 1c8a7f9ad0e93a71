"""nkireview rules."""

from __future__ import annotations

import click

from nkireview.cli.group import main
from nkireview.cli.screen import screen, sentences
from nkireview.report import catalogue
from nkireview.requests import UsageError


@main.command("rules")
@click.argument("code", required=False)
@click.option("--dimension", type=click.Choice(catalogue.DIMENSIONS), help="Only rules of this dimension.")
@click.option("--severity", type=click.Choice(catalogue.SEVERITIES), help="Only rules of this severity.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the screen.")
def rules_command(code: str | None, dimension: str | None, severity: str | None, as_json: bool) -> None:
    """List the rules, or explain one with a bad and a good example.

    \b
    Examples:
      nkireview rules
      nkireview rules NKR012
      nkireview rules --dimension precision --severity major
    """
    with sentences():
        if code is not None and (dimension or severity):
            raise UsageError("give either CODE, or --dimension and --severity, not both")
        if code is None:
            chosen = catalogue.chosen(dimension, severity)
            if as_json:
                click.echo(catalogue.rules_json(chosen))
            else:
                catalogue.print_rules(chosen, screen())
            return
        try:
            if as_json:
                click.echo(catalogue.rule_json(code))
            else:
                catalogue.print_rule(code, screen())
        except ValueError as error:
            raise UsageError(str(error)) from None

"""The catalogue of rules: a table, one rule in full, and both as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from nkireview.rules.catalogue import KINDS, example, generations_of, releases_of, rule_of, targets_of
from nkireview.rules.finding import Dimension, Severity
from nkireview.rules.registry import RULES
from nkireview.rules.rule import Rule

DIMENSIONS = tuple(dimension.value for dimension in Dimension)
SEVERITIES = tuple(severity.value for severity in Severity)
_COLOURS = {"blocker": "bold red", "major": "yellow", "minor": "cyan", "note": "dim"}


def chosen(dimension: str | None, severity: str | None) -> tuple[Rule, ...]:
    """The rules of a dimension and a severity, by their values; None is any. In the order of the dimensions."""
    order = {item: at for at, item in enumerate(Dimension)}
    found = [
        rule
        for rule in RULES
        if dimension in (None, rule.dimension.value) and severity in (None, rule.severity.value)
    ]
    return tuple(sorted(found, key=lambda rule: (order[rule.dimension], rule.code)))


def print_rules(rules: Sequence[Rule], console: Console) -> None:
    """A table of rules for each dimension, and how many there are."""
    for dimension in Dimension:
        group = [rule for rule in rules if rule.dimension is dimension]
        if not group:
            continue
        console.print(Text(dimension.value, style="bold"))
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 2))
        for rule in group:
            severity = Text(rule.severity.value, style=_COLOURS[rule.severity.value])
            table.add_row(rule.code, severity, rule.evidence.value, rule.title)
        console.print(table)
    many = "1 rule" if len(rules) == 1 else f"{len(rules)} rules"
    console.print(f"{many}; nkireview rules CODE explains one of them", style="dim", highlight=False)


def print_rule(code: str, console: Console) -> None:
    """One rule in full, with its examples; ValueError where there is none of that code."""
    rule = rule_of(code)
    head = Text.assemble((rule.code, "bold"), "  ", (rule.title, "bold"))
    console.print(head)
    console.print(
        f"{rule.severity.value}, {rule.dimension.value}, rests on what is {_EVIDENCE[rule.evidence.value]}",
        highlight=False,
    )
    for name, text in facts(rule):
        console.print()
        console.print(Text(name, style="bold"))
        console.print(Text(text))
    for name, text in examples(rule.code):
        console.print()
        console.print(Text(name, style="bold"))
        if console.is_terminal:
            console.print(Syntax(text, "python", theme="ansi_dark", background_color="default"))
        else:
            console.out(text, end="", highlight=False)


def examples(code: str) -> tuple[tuple[str, str], ...]:
    """The examples of a rule, as pairs of a heading and a text: one where both stand in one file."""
    held = [item for kind in KINDS if (item := example(code, kind)) is not None]
    if len({item.path for item in held}) == 1:
        return (("Bad and good", held[0].source(KINDS)),)
    return tuple((item.kind.capitalize(), item.source((item.kind,))) for item in held)


_EVIDENCE = {
    "source": "written in the source",
    "traced": "in the traced program",
    "executed": "seen when the program is executed",
    "scheduled": "predicted by the timing model",
    "measured": "measured on a device",
}


def facts(rule: Rule) -> tuple[tuple[str, str], ...]:
    """What there is to say of a rule, as pairs of a heading and a sentence; empty ones left out."""
    found = (
        ("Why", rule.explanation),
        ("Change", rule.change),
        ("In the legacy generation", rule.legacy),
        ("Targets", targets_of(rule)),
        ("Releases", releases_of(rule)),
        ("Explains", ", ".join(sorted(rule.suppresses))),
        ("Source", rule.citation),
    )
    return tuple((name, text) for name, text in found if text)


def rules_json(rules: Sequence[Rule]) -> str:
    """Rules without their examples, as a JSON list."""
    return json.dumps([_record(rule) for rule in rules], indent=2)


def rule_json(code: str) -> str:
    """One rule with its examples, as a JSON object; ValueError where there is none of that code."""
    rule = rule_of(code)
    held = {kind: example(rule.code, kind) for kind in KINDS}
    texts = {kind: None if item is None else item.source((kind,)) for kind, item in held.items()}
    return json.dumps({**_record(rule), **texts}, indent=2)


def _record(rule: Rule) -> dict[str, Any]:
    return {
        "code": rule.code,
        "title": rule.title,
        "severity": rule.severity.value,
        "dimension": rule.dimension.value,
        "evidence": rule.evidence.value,
        "explanation": rule.explanation,
        "change": rule.change,
        "citation": rule.citation,
        "generations": generations_of(rule),
        "since": str(rule.releases.since) if rule.releases.since else None,
        "until": str(rule.releases.until) if rule.releases.until else None,
        "suppresses": sorted(rule.suppresses),
    }

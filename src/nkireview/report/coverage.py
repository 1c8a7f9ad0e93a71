"""How much of the language is supported: a table, and the same as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict

from rich.console import Console
from rich.table import Table
from rich.text import Text

from nkireview.coverage.support import Coverage, Support


def print_coverage(found: Coverage, console: Console, every: bool) -> None:
    """What is missing, or every name, and the share of each area."""
    shown = [each for each in found.names if every or not each.supported]
    if shown:
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
        for head in ("name", "limits", "engines", "cost", "tests", "missing"):
            table.add_column(head, justify="right" if head in ("limits", "tests") else "left")
        for each in shown:
            table.add_row(*_cells(each))
        console.print(table)
        console.print()
    for line in found.loose:
        console.print(Text(line, style="yellow"))
    for share in found.shares:
        text = f"{share.area}: {share.supported} of {share.of} names supported, {share.percent:.1f}%"
        console.print(text, style="bold", highlight=False)


def _cells(each: Support) -> tuple[Text, ...]:
    instruction = bool(each.engines)
    values = (
        each.name,
        str(each.limits) if instruction else "",
        ", ".join(each.engines),
        each.cost,
        str(each.tests),
    )
    return (*map(Text, values), Text(", ".join(each.missing), style="red"))


def coverage_json(found: Coverage) -> str:
    """Names, shares and loose constraints as JSON."""
    shares = {
        share.area: {"supported": share.supported, "of": share.of, "percent": round(share.percent, 1)}
        for share in found.shares
    }
    names = [{**asdict(each), "supported": each.supported} for each in found.names]
    return json.dumps({"shares": shares, "names": names, "constraints": list(found.loose)}, indent=2)

"""The summary of a run of `grade`, as a screen."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from nkireview.grading.record import Best, Summary
from nkireview.report.text import ranged
from nkireview.rubric.text import points

MESSAGE_WIDTH = 100


def print_summary(summary: Summary, console: Console) -> None:
    """Counts by status, the best, the most frequent findings, and where the records are."""
    counts = ", ".join(f"{count} {status}" for status, count in summary.statuses.items())
    console.print(Text(f"{summary.task}: {summary.submissions} submissions: {counts}", style="bold"))
    if summary.best:
        table = Table("score", "predicted", "submission", title="Best", title_justify="left", box=None)
        for item in summary.best:
            table.add_row(points(item.total), _time(item), Text(item.name))
        console.print(table)
    if summary.frequent:
        table = Table(
            "submissions", "code", "severity", "first message", title="Most frequent findings",
            title_justify="left", box=None,
        )  # fmt: skip
        for each in summary.frequent:
            table.add_row(str(each.submissions), each.code, each.severity, Text(_short(each.message)))
        console.print(table)
    console.print(Text(f"Records: {summary.results}"), soft_wrap=True)


def _time(item: Best) -> str:
    if item.predicted_ns is None or item.low_ns is None or item.high_ns is None:
        return "-"
    return ranged(item.predicted_ns, item.low_ns, item.high_ns)


def _short(message: str) -> str:
    return message if len(message) <= MESSAGE_WIDTH else f"{message[: MESSAGE_WIDTH - 3]}..."

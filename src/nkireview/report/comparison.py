"""A comparison on the terminal: the verdict, each workload's reasons, what changed, and the lines that cost most."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from nkireview.comparison import Change, Comparison, WorkloadComparison
from nkireview.report.text import UNEXECUTED, basis_of, duration, one_line, ranged
from nkireview.rubric.text import points
from nkireview.rules.case import in_bytes

ROWS = 6


def print_comparison(found: Comparison, console: Console) -> None:
    """Print a comparison."""
    verdict = "No difference to decide by" if found.better == "neither" else f"{found.better} is better"
    console.print(f"[bold]{verdict}[/bold]: {escape(one_line(found.why))}", highlight=False)
    console.print(f"for {found.target}, NKI {found.release}", style="dim", highlight=False)
    for letter, side in (("A", found.a), ("B", found.b)):
        score = "" if side.total is None else f", {points(side.total)} of 100"
        # only a review without any execution is acceptable for a reason
        verdict = UNEXECUTED if side.status == "acceptable" and side.reason else side.status
        console.print(f"{letter}  {escape(side.name)}: {verdict}{score}", highlight=False)
        if side.reason:
            console.print(f"   {escape(one_line(side.reason, 300))}", highlight=False)
        for blocker in side.blockers:
            console.print(f"   blocker {escape(one_line(blocker, 300))}", highlight=False)
    for workload in found.workloads:
        _workload(workload, found.release, console)
    _only("Only A has", found.only_a, console)
    _only("Only B has", found.only_b, console)
    for sentence in found.not_compared:
        console.print(f"Not compared: {escape(sentence)}", highlight=False)


def _workload(found: WorkloadComparison, release: str, console: Console) -> None:
    one, two = (basis_of(basis, release) for basis in found.basis)
    console.print(
        f"\n[bold]{escape(found.workload)}[/bold]  A {ranged(found.a_ns, *found.a_range, one)}, {found.bound[0]}; "
        f"B {ranged(found.b_ns, *found.b_range, two)}, {found.bound[1]}",
        highlight=False,
    )
    for reason in found.reasons:
        console.print(f"  - {escape(one_line(reason))}", highlight=False)
    if not found.reasons:
        console.print("  no difference that matters for the time", style="dim", highlight=False)
        return
    changed = [*_largest(found.queues), *_largest(found.instructions), *_largest(found.bytes)]
    if changed:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for name in ("", "A", "B", "B less A"):
            table.add_column(name, justify="left" if not name else "right")
        for change in changed:
            table.add_row(
                f"  {_name(change)}",
                _shown(change.a, change.unit),
                _shown(change.b, change.unit),
                _signed(change),
            )
        console.print(table, highlight=False)
    lines = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), title="  lines with the longest time")
    lines.title_justify = "left"
    for name in ("", "line", "instruction", "on"):
        lines.add_column(name)
    for name in ("count", "queue", "transfer", "critical path"):
        lines.add_column(name, justify="right")
    for side in ("A", "B"):
        for line in [item for item in found.lines if item.side == side][:ROWS]:
            lines.add_row(
                f"  {side}",
                escape(one_line(line.place, 60)),
                escape(line.opcode),
                line.lane,
                f"{line.instructions:,}",
                duration(line.held_ns),
                duration(line.transfer_ns) if line.transfer_ns else "",
                duration(line.critical_ns),
            )
    if lines.row_count:
        console.print(lines, highlight=False)


def _largest(changes: Iterable[Change]) -> list[Change]:
    return [change for change in changes if change.difference][:ROWS]


def _name(change: Change) -> str:
    return {"ns": f"{change.name} busy", "bytes": change.name, "count": change.name}[change.unit]


def _shown(value: float, unit: str) -> str:
    if unit == "ns":
        return duration(value)
    return in_bytes(value) if unit == "bytes" else f"{value:,.0f}"


def _signed(change: Change) -> str:
    sign = "+" if change.difference > 0 else "-"
    return f"{sign}{_shown(abs(change.difference), change.unit)}"


def _only(title: str, sentences: Iterable[str], console: Console) -> None:
    for at, sentence in enumerate(sentences):
        if not at:
            console.print(f"\n[bold]{title}[/bold]", highlight=False)
        console.print(f"  - {escape(one_line(sentence, 300))}", highlight=False)

"""A review on one screen: verdict, legality, correctness, counts, findings."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from nkireview.record import CountsRecord, ReviewRecord, Run, RunSummary
from nkireview.rules.finding import Finding, Severity

STYLES = {
    Severity.blocker: "bold red",
    Severity.major: "yellow",
    Severity.minor: "cyan",
    Severity.note: "dim",
}
STATUS_STYLES = {"acceptable": "bold green", "rejected": "bold red", "not reviewed": "bold yellow"}

SHOWN_NOTES = 8


def print_review(record: ReviewRecord, console: Console) -> None:
    """Print a review."""
    console.print(render(record), soft_wrap=False)


def render(record: ReviewRecord) -> RenderableType:
    """The renderable of a review."""
    parts: list[RenderableType] = [_head(record), Text()]
    parts.append(_legality(record))
    if record.runs:
        parts.append(_correctness(record.runs))
    if record.counts:
        parts.append(_counts(record.counts))
    if record.findings:
        parts += [Text(), _findings(record.findings, frozenset(item.workload for item in record.counts))]
    parts.append(_foot(record))
    return Group(*parts)


def print_run(summary: RunSummary, console: Console) -> None:
    """Print what a run showed."""
    text = Text(f"{summary.kernel}", style="bold")
    text.append(f"  {summary.target}, NKI {summary.release}, seed {summary.seed}", style="dim")
    parts: list[RenderableType] = [text, _counts([summary.counts])]
    table = Table(box=None, pad_edge=False, show_edge=False, header_style="dim")
    for name in ("output", "min", "max", "mean", "non-finite", "max|e|/rms", "rms ratio", "ulps"):
        table.add_column(name, justify="left" if name == "output" else "right", no_wrap=True)
    for output in summary.outputs:
        wrong = "" if output.mismatches is None else f"{output.mismatches} differ"
        table.add_row(
            f"{output.name} {output.dtype}{list(output.shape)}",
            *(f"{value:.4g}" for value in (output.minimum, output.maximum, output.mean)),
            str(output.nonfinite),
            wrong if output.scaled_max is None else f"{output.scaled_max:.2e}",
            "" if output.rms_ratio is None else f"{output.rms_ratio:.2e}",
            _ulps(output.max_ulps),
        )
    if summary.outputs:
        parts += [Text("Outputs", style="bold"), table]
    parts += [Text(f"  breaks a limit: {message}", style="red") for message in summary.violations]
    parts += [Text(f"  undefined: {message}", style="red") for message in summary.faults]
    console.print(Group(*parts))


def _head(record: ReviewRecord) -> Text:
    subject = record.subject
    text = Text()
    text.append(record.status.upper(), style=STATUS_STYLES[record.status])
    name = f"{subject.task}/{subject.submission}" if subject.task else subject.file
    text.append(f"  {name}: kernel {subject.kernel}\n")
    text.append(
        f"{subject.target.value} ({subject.target.origin}), NKI {subject.release.value} "
        f"({subject.release.origin}), LNC {subject.lnc.value} ({subject.lnc.origin})",
        style="dim",
    )
    if record.reason:
        text.append(f"\n{record.reason}")
    return text


def _legality(record: ReviewRecord) -> Text:
    legality = record.legality
    text = Text("Legality     ", style="bold")
    style = {"legal": "green", "illegal": "red", "not assessed": "yellow"}[legality.status]
    text.append(legality.status, style=style)
    if legality.violations:
        text.append(f", {legality.violations} instructions break a limit")
    if legality.reason:
        text.append(f" ({legality.reason})")
    return text


def _correctness(runs: Iterable[Run]) -> RenderableType:
    table = Table(box=None, pad_edge=False, show_edge=False, header_style="dim", title_justify="left")
    for name, justify in (
        ("workload", "left"),
        ("inputs", "left"),
        ("output", "left"),
        ("result", "left"),
        ("max|e|/rms", "right"),
        ("rms ratio", "right"),
        ("ulps", "right"),
    ):
        table.add_column(name, justify=justify, no_wrap=name != "inputs")  # type: ignore[arg-type]
    for run in runs:
        what = run.inputs if run.in_contract else f"{run.inputs} (no contract)"
        if not run.outputs:
            table.add_row(run.workload, what, "", Text(run.status, style=_run_style(run)))
        for output in run.outputs:
            figures = output.figures
            if figures is None:
                numbers = ("", "", "")
            elif figures.nonfinite_mismatches:
                numbers = ("not finite", "", "")
            else:
                numbers = (f"{figures.scaled_max:.2e}", f"{figures.rms_ratio:.2e}", _ulps(figures.max_ulps))
            style = "green" if output.status == "correct" else ("red" if run.in_contract else "yellow")
            label = f"{output.name} {output.dtype}{list(output.shape)}"
            table.add_row(run.workload, what, label, Text(output.status, style=style), *numbers)
    return Group(Text("Correctness  against the float64 reference", style="bold"), table)


def _run_style(run: Run) -> str:
    return {"correct": "green", "wrong": "red", "not assessed": "yellow"}[run.status]


def _ulps(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def _counts(counts: Iterable[CountsRecord]) -> RenderableType:
    lines = [Text("Counts", style="bold")]
    for item in counts:
        engines = ", ".join(f"{name} {number:,}" for name, number in item.by_engine.items())
        routes = ", ".join(f"{route} {_size(number)}" for route, number in item.bytes_by_route.items())
        line = (
            f"  {item.workload}: {item.instructions:,} instructions"
            f"{f' ({engines})' if engines else ''}; moved {routes or 'nothing'}"
        )
        if item.multiply_accumulates:
            line += f"; {item.multiply_accumulates:,} multiply-accumulates"
        if item.assumed_trips:
            line += "; device-side loops without static bounds are counted once"
        lines.append(Text(line))
    return Group(*lines)


def _findings(findings: tuple[Finding, ...], workloads: frozenset[str]) -> RenderableType:
    lines: list[RenderableType] = [Text("Findings", style="bold")]
    notes = [finding for finding in findings if finding.severity is Severity.note]
    for finding in findings:
        if finding.severity is Severity.note and len(notes) > SHOWN_NOTES and finding in notes[SHOWN_NOTES:]:
            continue
        text = Text("  ")
        text.append(f"{finding.severity.value:8}", style=STYLES[finding.severity])
        text.append(f"{finding.code} ", style="dim")
        text.append(f"[{finding.dimension.value}] ", style="dim")
        text.append(finding.message)
        if finding.workload and len(workloads) > 1:
            text.append(f" [{finding.workload}]", style="dim")
        if finding.count > 1:
            text.append(f" ({finding.count} times)", style="dim")
        lines.append(text)
    if len(notes) > SHOWN_NOTES:
        lines.append(Text(f"  ... and {len(notes) - SHOWN_NOTES} more notes in review.json", style="dim"))
    return Group(*lines)


def _foot(record: ReviewRecord) -> Text:
    text = Text(style="dim")
    text.append("\nSilence means: no known pattern found.")
    if record.not_checked:
        text.append(f" Not checked: {'; '.join(record.not_checked)}.")
    if record.isolation_not_held:
        text.append(f"\nIsolation not held: {'; '.join(record.isolation_not_held)}.")
    if record.seconds:
        spent = ", ".join(f"{name} {seconds:.2f}" for name, seconds in record.seconds.items())
        text.append(f"\nSeconds: {spent}.")
    return text


def _size(number: int) -> str:
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if number >= 1024**power:
            return f"{number / 1024**power:.1f} {unit}"
    return f"{number} B"

"""What `nkireview memory` tells: the same on a terminal and as a page."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from nkireview.record import HeldRecord, MemorySummary, SpaceRecord, TrafficRecord, WorkloadMemory
from nkireview.report import memory_map
from nkireview.report import text as words
from nkireview.report.html import TEMPLATES, environment
from nkireview.rules.finding import Severity

FILES = ("memory.json", "memory.html")
STYLES = {
    "fits": "bold green",
    "may not fit": "bold yellow",
    "cannot fit": "bold red",
    "not legal": "bold red",
}
SEVERITIES = {Severity.blocker: "bold red", Severity.major: "yellow", Severity.minor: "cyan"}
MOST_HELD = 12
MOST_LINES = 20
PLACE = 24


def settings(summary: MemorySummary) -> str:
    """Target, release, LNC and launch grid, each with its origin."""
    subject = summary.subject
    named = [("", subject.target), ("NKI ", subject.release), ("LNC ", subject.lnc)]
    if subject.grid is not None:
        named.append(("grid ", subject.grid))
    return words.one_line(", ".join(f"{name}{item.value} ({item.origin})" for name, item in named), 200)


def name_of(summary: MemorySummary) -> str:
    """What was looked at: ``task/submission``, or the file."""
    subject = summary.subject
    return words.one_line(f"{subject.task}/{subject.submission}" if subject.task else subject.file, 200)


def core_of(workload: WorkloadMemory, core: int) -> str:
    """`` of core 1`` where the program runs on several."""
    return f" of core {core}" if len({space.core for space in workload.spaces}) > 1 else ""


def fullest(space: SpaceRecord) -> str:
    """Where a memory is fullest: ``196,608 of 212,984 usable bytes a partition (92%) at kernel.py:12``."""
    at = f" at {space.peak_place}" if space.peak_place else ""
    share = words.percent(space.peak / space.usable)
    if space.peak > space.usable and share == words.percent(1.0):
        share = f"over {share}"
    return words.one_line(
        f"{space.peak:,} of {space.usable:,} usable bytes a partition ({share}){at}, "
        f"instruction {space.peak_instruction:,}"
    )


def held(item: HeldRecord) -> str:
    """Buffers alike that are alive: ``kernel.py:12 q: 16 x 2,048 B x 128 partitions``."""
    count = f"{item.count:,} x " if item.count > 1 else ""
    name = f" {item.name}" if item.name else ""
    return words.one_line(
        f"{item.place or '?'}{name}: {count}{item.bytes:,} B x {item.partitions} partitions", 200
    )


def moved(traffic: TrafficRecord) -> str:
    """Bytes moved over HBM against the least there is, in one sentence."""
    text = f"{words.size(traffic.moved)} moved over HBM, {words.size(traffic.compulsory)} must move"
    if traffic.compulsory > 0:
        text += f" ({traffic.moved / traffic.compulsory:.2f} times that)"
    if traffic.least > traffic.compulsory:
        text += f"; with this SBUF at least {words.size(traffic.least)}"
    else:
        text += ", with this SBUF as without"
    text += f": {traffic.least_why}" if traffic.least_why else ""
    if not traffic.attainable and traffic.moved > traffic.least:
        text += "; whether that can be reached is not known"
    return words.one_line(text)


def timed(workload: WorkloadMemory, release: str) -> str:
    """The predicted time that the maps span, with its range; empty where nothing is timed."""
    time = workload.predicted
    if time is None or not time.total_ns:
        return ""
    found = words.ranged(time.total_ns, time.low_ns, time.high_ns, words.basis_of(time.basis, release))
    return f"Predicted time: {found}"


def memory_html(summary: MemorySummary) -> str:
    """The page: offline, without scripts."""
    return (
        environment()
        .get_template("memory.html.j2")
        .render(
            summary=summary,
            css=(TEMPLATES / "review.css").read_text(encoding="utf-8"),
            name=name_of(summary),
            settings=settings(summary),
            core_of=core_of,
            fullest=fullest,
            held=held,
            moved=moved,
            timed=timed,
            most_held=MOST_HELD,
            most_lines=MOST_LINES,
        )
    )


def print_memory(summary: MemorySummary, console: Console) -> None:
    """Print everything, workload by workload, as wide as the terminal."""
    head = Text(f"{name_of(summary)}: kernel {words.one_line(summary.subject.kernel, 200)}", style="bold")
    print_line(head, console)
    print_line(Text(settings(summary), style="dim"), console)
    for workload in summary.workloads:
        for line in _lines(workload, summary.subject.release.value, console):
            print_line(line, console)


def print_line(line: Text, console: Console) -> None:
    """Print a line as it is, however long."""
    line.rstrip()
    console.print(line, soft_wrap=True, highlight=False)


def _lines(workload: WorkloadMemory, release: str, console: Console) -> Iterator[Text]:
    yield Text("")
    yield Text.assemble(
        (workload.verdict.upper(), STYLES[workload.verdict]),
        f"  {words.one_line(workload.workload, 80)}: {workload.instructions:,} instructions",
    )
    for finding in workload.findings:
        style = SEVERITIES.get(finding.severity, "dim")
        yield from hanging(
            Text(f"  {finding.severity.value:8}", style=style), f"{finding.code} {finding.message}", console
        )
        if finding.change:
            yield from hanging(Text(f"{'':10}change: ", style="bold"), finding.change, console)
    for space in workload.spaces:
        yield Text("")
        yield Text.assemble(
            (f"{space.memory}{core_of(workload, space.core)}", "bold"),
            f": {fullest(space)}",
            style="red" if space.peak > space.usable else "",
        )
        for item in space.alive[:MOST_HELD]:
            yield Text(f"  {held(item)}")
        if len(space.alive) > MOST_HELD:
            yield Text(f"  and {len(space.alive) - MOST_HELD} more kinds of buffers", style="dim")
        for found in workload.maps:
            if (found.memory, found.core) == (space.memory, space.core):
                yield from memory_map.chart(found, console.width, ascii_only=console.options.ascii_only)
    if workload.traffic is not None:
        yield Text("")
        yield from _traffic(workload.traffic, console)
    if found_time := timed(workload, release):
        yield Text(found_time)
    if workload.assumed:
        yield Text(words.one_line(f"Assumed: {'; '.join(workload.assumed)}."), style="dim")


def _traffic(traffic: TrafficRecord, console: Console) -> Iterator[Text]:
    yield from hanging(Text("Traffic: ", style="bold"), moved(traffic), console)
    for route, size in traffic.by_route.items():
        yield Text(f"  {route:24} {words.size(size):>12}")
    if not traffic.lines:
        return
    yield Text(
        f"  {'line':{PLACE}} {'route':16} {'moved':>11} {'instructions':>12} {'descriptors':>12} {'each':>10} "
        f"{'again':>11}",
        style="dim",
    )
    for line in traffic.lines[:MOST_LINES]:
        runs = f"{line.descriptors:,.0f}" if line.descriptors else ""
        each = words.size(round(line.descriptor_bytes)) if line.descriptors else ""
        again = words.size(line.reloaded_bytes) if line.reloaded_bytes else ""
        yield Text(
            f"  {words.one_line(line.place or '?', PLACE):{PLACE}} {words.one_line(line.route, 16):16} "
            f"{words.size(line.bytes):>11} {line.transfers:>12,.0f} {runs:>12} {each:>10} {again:>11}"
        )
    if len(traffic.lines) > MOST_LINES:
        yield Text(f"  and {len(traffic.lines) - MOST_LINES} more lines", style="dim")


def hanging(first: Text, text: str, console: Console) -> Iterator[Text]:
    """A text that hangs beside its label."""
    indent = len(first)
    body = Text(words.one_line(text)).wrap(console, max(console.width, indent + 20) - indent)
    for at, line in enumerate(body):
        yield Text.assemble(" " * indent if at else first, line)

"""What `nkireview profile` tells: the same on a terminal and as a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from rich.console import Console
from rich.text import Text

from nkireview.checks.roofline import Roofline
from nkireview.checks.usage import Usage
from nkireview.drawing import drawn
from nkireview.profiling import IdleCause, LaneUse, Overlap, PathLine, Profile
from nkireview.record import Subject
from nkireview.report import text as words
from nkireview.report import timeline_page
from nkireview.report.html import environment, style
from nkireview.report.memory import hanging, print_line

CLOCKS = MappingProxyType(
    {
        "benchmark": "nki.benchmark clock",
        "active": "total_active_time clock",
        "total": "total_time clock",
        "window": "first to last work",
    }
)
"""Clocks that a headline can have, the usual one first, and what they are called."""
BLOCKS = " ▁▂▃▄▅▆▇█"
ASCII_BLOCKS = " .:-=+*%#"
SHOWN_CAUSES = 3
SHOWN_STEPS = 10
SHOWN_EXPOSED = 3
MOST_LINES = 60
LABEL = 10
NARROW, WIDE = 20, 120
PLACE = 22
FAINT = 0.002
"""A share below which a bar or a cause is not worth a line."""
GROUPS = ("memory", "compute", "pipeline")


@dataclass(frozen=True, eq=False)
class Shown:
    """A profile and what it is of; `clock`: whose time the headline says."""

    tool: str
    subject: Subject
    profile: Profile
    clock: str = "benchmark"
    several: bool = False
    """Whether the subject has more workloads than this."""
    illegal: str = ""
    """The limit that the kernel breaks, though it could be timed; empty for a legal one."""


def predicted(shown: Shown) -> str:
    """The predicted time by the clock, with its range: ``38.0 us (25 to 51 us)``."""
    found = shown.profile
    return words.ranged(found.clocks[shown.clock], *found.range_ns(shown.clock))


def headline(shown: Shown) -> str:
    """``about 38.0 us (25 to 51 us), nki.benchmark clock, simulated on trn2``."""
    told = f"about {predicted(shown)}, {CLOCKS[shown.clock]}, simulated on {shown.profile.target}"
    return f"{told}; {words.one_line(shown.illegal)}" if shown.illegal else told


def clocks(shown: Shown) -> str:
    """The time by all clocks, each with its range, and what that of the window rests on."""
    found = shown.profile
    times = ", ".join(
        f"{CLOCKS[clock]} {words.ranged(found.clocks[clock], *found.range_ns(clock))}"
        for clock in CLOCKS
        if clock in found.clocks
    )
    return words.one_line(f"{times}; range of the last {found.band_words}")


def lane_name(profile: Profile, lane: LaneUse) -> str:
    """``vector``, or ``vector 1`` where there are several cores."""
    return f"{lane.name} {lane.core}" if len({each.core for each in profile.lanes}) > 1 else lane.name


def cause(found: IdleCause) -> str:
    """What was waited for: ``data of dma_copy kernel.py:12 on dma, which waited for HBM bandwidth``."""
    text = found.waits
    what = " ".join(part for part in (found.name, found.place) if part)
    if what:
        text += f": {what}"
    if found.lane:
        text += f" on {found.lane}"
    if found.behind:
        text += f", which waited for {found.behind}"
    if found.count > 1:
        text += f" ({found.count:,} times)"
    return words.one_line(text, 300)


def step(found: PathLine) -> str:
    """What a piece of the critical path is: ``nc_matmul on tensor, after data; 1.2 us of it latency``."""
    text = f"{found.name or 'work of no instruction'} on {found.lane}"
    if found.waits and found.waits != "nothing":
        text += f", after {found.waits}"
    if found.latency_ns >= found.ns:
        text += "; latency only"
    elif found.latency_ns > 0:
        text += f"; {words.duration(found.latency_ns)} of it latency"
    return words.one_line(text, 200)


def overlap(found: Overlap) -> str:
    """How much of the transfer time is hidden behind computing, and where not, in one sentence."""
    if not found.dma_ns:
        return "no DMA transfers"
    text = (
        f"{words.percent(found.share)} of {words.duration(found.dma_ns)} of DMA transfers run while an engine computes "
        f"(engines compute for {words.duration(found.compute_ns)})"
    )
    if found.exposed:
        lines = ", ".join(
            f"{line.name} {line.place} {words.duration(line.ns)}" for line in found.exposed[:SHOWN_EXPOSED]
        )
        text += f"; not hidden: {lines}"
        more = len(found.exposed) - SHOWN_EXPOSED
        text += f" and {more} more line{'s' if more > 1 else ''}" if more > 0 else ""
    return words.one_line(text)


def use(found: Usage) -> str:
    """How full what works is, in one sentence."""
    parts = []
    if found.rows is not None and found.columns is not None and found.cells is not None:
        parts.append(
            f"PE rows {words.percent(found.rows)}, columns {words.percent(found.columns)}, cells "
            f"{words.percent(found.cells)} while it works"
        )
    if found.lanes:
        each = ", ".join(f"{name} {words.percent(share)}" for name, share in found.lanes.items())
        parts.append(f"lanes with a partition to work on: {each}")
    parts.append(f"HBM {words.percent(found.hbm)} of its bandwidth over the whole time")
    if found.transfer_engines is not None:
        parts.append(
            f"a transfer uses {found.transfer_engines:.1f} of {found.engines} DMA engines, {found.engines_busy:.1f} "
            "are busy on average"
        )
    return words.one_line("; ".join(parts))


def roof(found: Roofline) -> str:
    """Where the kernel stands under the roof, in one sentence."""
    if not found.flops:
        return f"no matmuls; {words.size(found.hbm_bytes)} over HBM: memory side"
    reached = f"attains {_rate(found.attained)} of {_rate(found.attainable)} attainable"
    if found.attainable:
        reached += f" ({words.percent(found.attained / found.attainable)})"
    where = (
        f"{found.intensity:,.4g} FLOP a byte of HBM, ridge at {found.ridge:,.4g}"
        if found.intensity != float("inf")
        else "no byte over HBM"
    )
    return words.one_line(
        f"{found.side}: {where}; {reached}; peak of {', '.join(found.dtypes)} {_rate(found.peak_flops)}"
    )


def _rate(flops: float) -> str:
    for scale, unit in ((1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1e6, "MFLOP/s")):
        if flops >= scale:
            return f"{flops / scale:.3g} {unit}"
    return f"{flops:.3g} FLOP/s"


def profile_html(shown: Shown) -> str:
    """The page: offline, with the one script that draws the timeline."""
    found = shown.profile
    picture = drawn(found.slices, timeline_page.MOST)
    lines = timeline_page.by_line(found.slices)
    script = timeline_page.script()
    return (
        environment()
        .get_template("profile.html.j2")
        .render(
            shown=shown,
            profile=found,
            css=f"{style('review.css')}\n{style('timeline.css')}",
            policy=timeline_page.policy([script]),
            script=script,
            name=words.subject_name(shown),
            settings=words.settings(shown),
            headline=headline(shown),
            predicted=predicted(shown),
            clock=CLOCKS[shown.clock],
            clocks=clocks(shown),
            drawn=picture,
            lines=lines[:MOST_LINES],
            more_lines=max(0, len(lines) - MOST_LINES),
            lane_name=lane_name,
            cause=cause,
            step=step,
            overlap=overlap(found.overlap),
            use=use(found.usage),
            roof=roof(found.roofline),
            causes=[(lane, each) for lane in found.lanes for each in lane.idle[:SHOWN_CAUSES] if each.ns > 0],
            faint=FAINT,
            shown_steps=2 * SHOWN_STEPS,
        )
    )


def print_profile(shown: Shown, console: Console, *, head: bool = True) -> None:
    """Print everything, as wide as the terminal; without `head` not what it is of, which stands above already."""
    if head:
        subject = Text(
            f"{words.subject_name(shown)}: kernel {words.one_line(shown.subject.kernel, 200)}", style="bold"
        )
        print_line(subject, console)
        print_line(Text(words.settings(shown), style="dim"), console)
    for line in _lines(shown, console):
        print_line(line, console)


def _lines(shown: Shown, console: Console) -> Iterator[Text]:
    found = shown.profile
    yield Text("")
    name = f"{words.one_line(found.name, 80)}: " if shown.several else ""
    yield from hanging(Text("", style="bold"), f"{name}{headline(shown)}", console)
    yield from _dim(f"  {clocks(shown)}", console)
    yield Text("")
    yield from _bars(found, console)
    yield Text("")
    yield from _idle(found, console)
    yield Text("")
    yield from _critical(found.critical, console)
    yield Text("")
    for label, text in (
        ("Overlap", overlap(found.overlap)),
        ("Use", use(found.usage)),
        ("Roofline", roof(found.roofline)),
    ):
        yield from hanging(Text(f"{label:{LABEL}}", style="bold"), text, console)
    for at, group in enumerate(GROUPS):
        times = ", ".join(
            f"{bound.name} {words.duration(bound.ns)}" for bound in found.bounds if bound.group == group
        )
        title = Text(f"{'' if at else 'Bounds':{LABEL}}", style="bold")
        yield from hanging(title, f"{group}: {times}", console)
    if found.assumed:
        yield Text("")
        yield from _dim(f"Assumed: {'; '.join(found.assumed)}.", console)


def _dim(text: str, console: Console) -> Iterator[Text]:
    indent = len(text) - len(text.lstrip())
    for line in hanging(Text(" " * indent), text.strip(), console):
        line.stylize("dim")
        yield line


def _bars(found: Profile, console: Console) -> Iterator[Text]:
    ascii_only = console.options.ascii_only
    columns = max(NARROW, min(WIDE, console.width - LABEL - 8))
    yield Text.assemble((f"{'Busy':{LABEL}}", "bold"), ("how busy each queue is over time", "dim"))
    for lane in found.lanes:
        row = Text(f"  {lane_name(found, lane):{LABEL - 2}}")
        row.append(_bar(lane.activity, columns, ASCII_BLOCKS if ascii_only else BLOCKS), style="cyan")
        row.append(f" {words.percent(lane.share):>5}")
        yield row
    end = words.duration(found.total_ns)
    yield Text(f"{'':{LABEL}}0{end:>{columns - 1}}", style="dim")


def _bar(activity: Sequence[float], columns: int, blocks: str) -> str:
    """Activity in so many columns; what is busy at all is never blank."""
    if not activity:
        return " " * columns
    edges = np.linspace(0, len(activity), columns + 1)
    sums = np.interp(edges, np.arange(len(activity) + 1), np.append(0.0, np.cumsum(activity)))
    shares = np.diff(sums) / np.diff(edges)
    levels = np.where(
        shares > FAINT, np.clip(np.rint(shares * (len(blocks) - 1)), 1, len(blocks) - 1), 0
    ).astype(int)
    return "".join(blocks[level] for level in levels.tolist())


def _idle(found: Profile, console: Console) -> Iterator[Text]:
    yield Text.assemble((f"{'Idle':{LABEL}}", "bold"), ("and what each queue waited for", "dim"))
    for lane in found.lanes:
        label = lane_name(found, lane)
        for at, each in enumerate(lane.idle[:SHOWN_CAUSES]):
            share = each.ns / found.total_ns if found.total_ns else 0.0
            if at and share < FAINT:
                break
            first = f"  {'' if at else label:{LABEL}}{words.duration(each.ns):>8} {words.percent(share):>4}  "
            yield from hanging(Text(first), cause(each), console)


def _critical(steps: Sequence[PathLine], console: Console) -> Iterator[Text]:
    yield Text.assemble((f"{'Critical path':{LABEL}}", "bold"), (" by line", "dim"))
    for each in steps[:SHOWN_STEPS]:
        place = words.one_line(each.place or "?", PLACE)
        first = f"  {place:{PLACE}} {words.duration(each.ns):>8} {words.percent(each.share):>4}  "
        yield from hanging(Text(first), step(each), console)
    if len(steps) > SHOWN_STEPS:
        rest = sum(each.ns for each in steps[SHOWN_STEPS:])
        yield Text(f"  and {len(steps) - SHOWN_STEPS} more, {words.duration(rest)}", style="dim")

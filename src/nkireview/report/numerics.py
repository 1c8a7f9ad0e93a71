"""What `nkireview numerics` tells: the same on a terminal and as a page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from nkireview.numbers_record import HeatMap, Histogram, NumbersRecord, OutputNumbers, RoundingCost
from nkireview.record import NumericsSummary
from nkireview.report import numbers
from nkireview.report import numbers_pictures as pictures
from nkireview.report import text as words
from nkireview.report.html import environment, style
from nkireview.report.memory import hanging, print_line

FILES = ("numerics.json", "numerics.html")
STYLES = {"rounding": "bold green", "defect": "bold red"}
MOST_COSTS = 8
MOST_LINES = 12
"""Most lines of a list of sentences on a terminal."""
MAP_ROWS, MAP_COLUMNS = 8, 32
BLOCKS, ASCII_BLOCKS = " ▁▂▃▄▅▆▇█", " .:-=+*%#"
CELLS = {"none": "·", "low": "░", "high": "▒", "over": "▓", "far": "█", "lost": "!"}
ASCII_CELLS = {"none": ".", "low": "-", "high": "+", "over": "#", "far": "@", "lost": "!"}
PLACE, NAME = 21, 12
LEAST_SHARE = 1e-5


def numerics_html(summary: NumericsSummary) -> str:
    """The page: offline, without scripts."""
    return (
        environment()
        .get_template("numerics.html.j2")
        .render(
            summary=summary,
            css="\n".join([style("review.css"), style("numbers.css")]),
            **numbers.page_words(),
        )
    )


def print_numerics(summary: NumericsSummary, console: Console) -> None:
    """Print everything, workload by workload, as wide as the terminal."""
    head = f"{words.subject_name(summary)}: kernel {words.one_line(summary.subject.kernel, 200)}"
    print_line(Text(head, style="bold"), console)
    print_line(Text(words.settings(summary), style="dim"), console)
    for found in summary.numbers:
        print_line(Text(""), console)
        for line in _lines(found, console):
            print_line(line, console)
    if summary.notes:
        print_line(Text(""), console)
    for note in summary.notes:
        print_line(Text(words.one_line(note), style="dim"), console)


def _lines(found: NumbersRecord, console: Console) -> Iterator[Text]:
    yield from hanging(
        Text.assemble((found.verdict.upper(), STYLES[found.verdict]), "  "),
        f"{numbers.title(found)}: {found.sentence}",
        console,
    )
    for cause in found.causes:
        at = f" at {cause.place}" if cause.place else ""
        told = numbers.cause_of(cause) if cause.sentence != found.sentence else f"{cause.name}{at}"
        yield from _labelled("cause", told, console)
        yield from _labelled("", f"shown by: {numbers.shown_by(cause)}", console)
    if found.deviation:
        yield from _labelled("deviation", found.deviation, console)
    for output in found.outputs:
        yield from _output(output, console)
    yield from _costs(found.costs, console)
    for growth in found.growth:
        if numbers.grown(growth):
            yield from _labelled("growth", numbers.grown(growth), console)
    if found.own_tolerance:
        yield from _labelled("tolerance", numbers.own_of(found), console)
        through = [f"lets through {each.name}: {each.sentence}" for each in found.let_through]
        yield from _listed("", through, console)
    yield from _listed("platforms", [numbers.platform_of(item) for item in found.platforms], console)
    if found.between:
        yield from _labelled("", found.between, console)
    for heading, items in numbers.lists_of(found):
        yield from _listed(heading.lower(), items, console)


def _labelled(label: str, text: str, console: Console) -> Iterator[Text]:
    yield from hanging(Text(f"  {label:{NAME}}", style="bold"), words.one_line(text), console)


def _listed(label: str, items: Sequence[str], console: Console) -> Iterator[Text]:
    for at, item in enumerate(items[:MOST_LINES]):
        yield from _labelled("" if at else label, item, console)
    if len(items) > MOST_LINES:
        yield from _labelled("", f"and {len(items) - MOST_LINES} more in the JSON", console)


def _output(output: OutputNumbers, console: Console) -> Iterator[Text]:
    """Use and tolerance, and the histogram; where rounding does not explain it all that is known."""
    wrong = output.verdict == "defect"
    told = f"{numbers.named(output)}: {numbers.use_of(output)}"
    yield from _labelled("output", told if wrong else f"{told}; choose {numbers.chosen_of(output)}", console)
    if wrong:
        beyond = (
            f"{output.over:,} of {numbers.elements(output):,} elements are beyond it; {numbers.worst(output)}"
        )
        yield from _labelled("", beyond, console)
        for pattern in output.patterns:
            yield from _labelled("", f"{pattern.name}: {pattern.sentence}", console)
        yield from _labelled("", f"choose {numbers.chosen_of(output)}", console)
    if output.ulps is not None:
        yield from _labelled("ulps", histogram(output.ulps, console.options.ascii_only), console)
    if wrong and output.heat is not None:
        yield from heat_map(output.heat, console)


def histogram(found: Histogram, ascii_only: bool = False) -> str:
    """One line of blocks, each as high as the logarithm of its count, with the share of each range that has any."""
    blocks = ASCII_BLOCKS if ascii_only else BLOCKS
    drawn = "".join(
        blocks[max(1, round(float(bar.height) * (len(blocks) - 1)))] if bar.count else blocks[0]
        for bar in pictures.bars(found)
    )
    parts = [f"{bar.label}: {_share(bar.share)}" for bar in pictures.bars(found) if bar.count]
    return f"|{drawn}| {', '.join(parts) or 'nothing to compare'}"


def _share(share: float) -> str:
    if share >= 0.01:
        return f"{share:.0%}"
    return f"{100 * share:.1g}%" if share >= LEAST_SHARE else f"under {100 * LEAST_SHARE:g}%"


def heat_map(found: HeatMap, console: Console) -> Iterator[Text]:
    """A small grid of the use of the allowed error, rows down and columns across."""
    signs = ASCII_CELLS if console.options.ascii_only else CELLS
    grid = _grid(found)
    kinds = {pictures.kind_of(use) for row in grid for use in row}
    if len(kinds) == 1:
        (kind,) = kinds
        yield Text(f"  {'':{NAME}}every tile: {pictures.MEANING.get(kind, 'no error')}", style="dim")
        return
    step = -(-found.rows // found.row_step)
    down = -(-step // MAP_ROWS) * found.row_step
    width = max(len(f"{found.rows:,}"), 4)
    yield Text(
        f"  {'':{NAME}}{'row':>{width}}  columns 0 to {found.columns - 1:,}, rows {down:,} to a line",
        style="dim",
    )
    for at, row in enumerate(grid):
        line = Text(f"  {'':{NAME}}{at * down:>{width},} ", style="dim")
        for use in row:
            kind = pictures.kind_of(use)
            line.append(signs[kind], style="red" if kind in ("over", "far", "lost") else "not dim green")
        yield line
    legend = ", ".join(f"{signs[kind]} {text}" for kind, text in pictures.MEANING.items() if kind in kinds)
    yield from hanging(Text(f"  {'':{NAME}}{'':{width}} "), legend, console)


def _grid(found: HeatMap) -> list[list[float]]:
    """At most `MAP_ROWS` by `MAP_COLUMNS` cells, each the worst of those in it."""
    across = -(-found.columns // found.column_step)
    down = -(-found.rows // found.row_step)
    rows = [list(found.use[at * across : (at + 1) * across]) for at in range(down)]
    tall, wide = -(-down // MAP_ROWS), -(-across // MAP_COLUMNS)
    return [
        [
            max((use for row in rows[top : top + tall] for use in row[left : left + wide]), key=_badness)
            for left in range(0, across, wide)
        ]
        for top in range(0, down, tall)
    ]


def _badness(use: float) -> float:
    return math.inf if use < 0 or math.isnan(use) else use


def _costs(costs: Sequence[RoundingCost], console: Console) -> Iterator[Text]:
    if not costs:
        return
    yield Text(
        f"  {'roundings':{NAME}}{'line':{PLACE}} {'instruction':18} {'rounds to':12} {'times':>7} {'error':>9} "
        f"{'of the allowed':>14}",
        style="dim",
    )
    for item in costs[:MOST_COSTS]:
        yield Text(
            f"  {'':{NAME}}{words.one_line(item.place or '?', PLACE):{PLACE}} "
            f"{words.one_line(item.opcode, 18):18} {item.dtype:12} {item.instructions:>7,} {item.error:>9.1e} "
            f"{numbers.portion(item.share):>14}"
        )
    if len(costs) > MOST_COSTS:
        yield Text(f"  {'':{NAME}}and {len(costs) - MOST_COSTS} more lines", style="dim")

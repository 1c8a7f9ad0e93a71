"""A review on one screen: verdict, score by dimension, time, findings, what was done well, what was not checked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from nkireview.record import CountsRecord, OutputSummary, ReviewRecord, RunSummary
from nkireview.report import numbers
from nkireview.report import text as words
from nkireview.rubric.scorecard import DimensionScore
from nkireview.rules.finding import Finding, Severity

STYLES = {
    Severity.blocker: "bold red",
    Severity.major: "yellow",
    Severity.minor: "cyan",
    Severity.note: "dim",
}
VERDICT_STYLES = {"acceptable": "bold green", "rejected": "bold red"}
ADVISED = frozenset({Severity.blocker, Severity.major})
"""Findings below which the change stands."""

LABEL = 13
NAME = 24
BAR = 8
CELL = NAME + BAR + 4
GAP = 3
PROMPT = 3
"""Lines of the window that the path of the report and the prompt take."""
LEAST_FINDINGS = 3
MOST_LINES = 4
"""Most lines of one finding's message on a terminal."""
MOST_CHANGE = 2
"""Most lines of its change there."""
ENOUGH = 3
"""Lines of a finding for which the rest of the screen is shortened."""
SHOWN_NOTES = 8
SHOWN_TIMES = 3
SHOWN_STRENGTHS = 3


def print_review(record: ReviewRecord, console: Console) -> None:
    """Print a review: to fit the window on a terminal, whole where there is none."""
    height = console.height - PROMPT if console.is_terminal else None
    _Screen(record, console, height).show()


class _Screen:
    """The lines of one review; `height` bounds them where it can."""

    def __init__(self, record: ReviewRecord, console: Console, height: int | None) -> None:
        self.record = record
        self.console = console
        self.height = height
        self.ascii = console.options.ascii_only
        self.found = [finding for _, finding in words.numbered(record)]
        self.rest = 2

    def show(self) -> None:
        for line in self._lines():
            line.rstrip()
            self.console.print(line, soft_wrap=True, highlight=False)

    def _lines(self) -> list[Text]:
        """Everything; where the window is too low for it, the rest is shortened before the findings are."""
        above = [finding for finding in self.found if finding.severity is not Severity.note]
        whole = [
            len(self._message(finding, MOST_LINES)) + len(self._change(finding, MOST_CHANGE))
            for finding in above
        ]
        for self.rest in (2, 1):
            top, bottom = [*self._head(), *self._bars(), *self._facts()], [*self._strengths(), *self._foot()]
            if self.height is None:
                return [*top, *self._findings(self.found, None), *bottom]
            room = self.height - len(top) - len(bottom) - 1
            if sum(min(ENOUGH, lines) for lines in whole) <= room:
                break
        return [*top, *self._findings(above, _allotted(whole, max(LEAST_FINDINGS, room))), *bottom]

    def _text(self, text: str) -> str:
        """One line, in characters that the output can show."""
        line = words.one_line(text)
        return line.encode("ascii", "backslashreplace").decode() if self.ascii else line

    def _wrap(self, text: Text, indent: int, lines: int | None, first: Text | str = "") -> list[Text]:
        """A text that hangs `indent` characters to the right, beside `first`; at most `lines` lines of it."""
        width = max(self.console.width, indent + 20) - indent
        wrapped = list(text.wrap(self.console, width))
        if self.height is not None and lines is not None and len(wrapped) > lines:
            wrapped = wrapped[:lines]
            wrapped[-1].rstrip()
            wrapped[-1].truncate(width - 3)
            wrapped[-1].append("...")
        return [Text.assemble(" " * indent if at else first, line) for at, line in enumerate(wrapped)]

    def _labelled(self, label: str, text: Text | str, lines: int | None = None) -> list[Text]:
        """A label and its text, which hangs beside it."""
        body = Text(self._text(text)) if isinstance(text, str) else text
        return self._wrap(body, LABEL, lines, Text(f"{label:{LABEL}}", style="bold"))

    def _head(self) -> list[Text]:
        record = self.record
        text = Text()
        verdict = words.verdict(record)
        text.append(verdict.upper(), style=VERDICT_STYLES.get(verdict, "bold yellow"))
        text.append(f"  {self._text(words.subject_name(record))}: kernel {self._text(record.subject.kernel)}")
        lines = self._wrap(text, 2, None)
        lines += self._wrap(Text(self._text(words.settings(record)), style="dim"), 2, None)
        if record.reason:
            lines += self._labelled("Why", record.reason, 2 * self.rest)
        if record.scorecard is not None:
            lines += self._labelled("Score", words.total(record))
        return lines

    def _bars(self) -> list[Text]:
        if self.record.scorecard is None:
            return []
        cells = [self._bar(item) for item in self.record.scorecard.dimensions]
        if self.console.width < 2 * CELL + GAP + 2:
            return [Text.assemble("  ", cell) for cell in cells]
        rows = -(-len(cells) // 2)
        return [
            Text.assemble("  ", cells[at], " " * GAP, cells[at + rows] if at + rows < len(cells) else "")
            for at in range(rows)
        ]

    def _bar(self, item: DimensionScore) -> Text:
        cell = Text(f"{item.dimension.value:{NAME}}")
        if item.score is None:
            cell.append(f"{words.score(None):{BAR + 4}}", style="dim")
            return cell
        full, empty = ("#", ".") if self.ascii else ("█", "░")
        filled = round(item.score / 4 * BAR)
        style = "green" if item.score >= 3 else "yellow" if item.score >= 2 else "red"
        cell.append(full * filled, style=style)
        cell.append(empty * (BAR - filled), style="dim")
        cell.append(f" {words.score(item.score)}")
        return cell

    def _facts(self) -> list[Text]:
        record = self.record
        style = {"legal": "green", "illegal": "red", "not assessed": "yellow"}[record.legality.status]
        legal = Text(self._text(words.legality(record)))
        legal.stylize(style, 0, len(record.legality.status))
        lines = self._labelled("Legality", legal, self.rest)
        if record.runs or record.counts:
            lines += self._labelled("Correctness", words.correctness(record), self.rest)
        if record.orders:
            lines += self._labelled("Determinism", words.determinism(record), 1)
        for at, told in enumerate(
            numbers.brief(record.numbers)[: None if self.height is None else self.rest]
        ):
            lines += self._labelled("" if at else "Numbers", told, 1)
        lines += self._times()
        if self.height is None and record.counts:
            lines += _counts(record.counts)
        return lines

    def _times(self) -> list[Text]:
        times = sorted(self.record.times, key=lambda time: -time.total_ns)
        lines: list[Text] = []
        for at, time in enumerate(times[: None if self.height is None else SHOWN_TIMES]):
            name = f"{time.workload}: " if len(times) > 1 else ""
            by = f" ({time.bound_by})" if time.bound_by else ""
            said = words.predicted(time, self.record.subject.release.value)
            lines += self._labelled("" if at else "Time", f"{name}{said}{by}", 1)
        if self.height is not None and len(times) > SHOWN_TIMES:
            lines.append(Text(f"{'':{LABEL}}and {len(times) - SHOWN_TIMES} shorter", style="dim"))
        return lines

    def _findings(self, findings: Sequence[Finding], allotted: Sequence[int] | None) -> list[Text]:
        """The given findings below their number, the first ones in the lines `allotted` to them; notes are folded."""
        lines = self._labelled("Findings", words.tally(self.record) or "none")
        notes = 0
        for at, finding in enumerate(findings if allotted is None else findings[: len(allotted)]):
            notes += finding.severity is Severity.note
            if notes <= SHOWN_NOTES:
                lines += self._finding(finding, None if allotted is None else allotted[at])
        if allotted is not None and len(allotted) < len(findings):
            lines.append(Text(f"  ... and {len(findings) - len(allotted)} more in review.md", style="dim"))
        if notes > SHOWN_NOTES:
            lines.append(Text(f"  ... and {notes - SHOWN_NOTES} more notes in review.json", style="dim"))
        return lines

    def _finding(self, finding: Finding, lines: int | None) -> list[Text]:
        """A finding and what to change, in at most `lines` lines: one of each before the rest of the message."""
        if lines is None:
            return [*self._message(finding, None), *self._change(finding, None)]
        message = len(self._message(finding, MOST_LINES))
        spared = min(MOST_CHANGE, max(1, lines - message))
        change = self._change(finding, spared) if lines > 1 else []
        return [*self._message(finding, lines - len(change)), *change]

    def _change(self, finding: Finding, lines: int | None) -> list[Text]:
        if finding.severity not in ADVISED or not finding.change:
            return []
        return self._wrap(Text(self._text(finding.change)), 18, lines, Text(f"{'':10}change: ", style="bold"))

    def _message(self, finding: Finding, lines: int | None) -> list[Text]:
        text = Text()
        text.append(f"{finding.code} ", style="dim")
        message = self._text(finding.message)
        if finding.places and finding.places[0] not in message:
            text.append(f"{self._text(finding.places[0])} ", style="bold")
        text.append(message)
        saved = words.gain(finding, self.record.times)
        if saved:
            text.append(f"; saves {saved}", style="green")
        named = [finding.dimension.value]
        if finding.workload and len(self.record.counts) > 1:
            named.append(self._text(finding.workload))
        text.append(f" [{', '.join(named)}]", style="dim")
        if finding.count > 1:
            text.append(f" ({finding.count:,} times)", style="dim")
        return self._wrap(
            text, 10, lines, Text(f"  {finding.severity.value:8}", style=STYLES[finding.severity])
        )

    def _strengths(self) -> list[Text]:
        lines: list[Text] = []
        for at, strength in enumerate(self.record.strengths[: SHOWN_STRENGTHS if self.rest > 1 else 1]):
            lines += self._labelled("" if at else "Done well", strength, 1)
        return lines

    def _foot(self) -> list[Text]:
        record = self.record
        missing = "; ".join(record.not_checked)
        lines = self._labelled("Not checked", missing, self.rest) if missing else []
        if record.isolation_not_held:
            lines += self._labelled("Not held", "; ".join(record.isolation_not_held), 1)
        lines += self._wrap(Text(words.SILENCE, style="dim"), 2, None)
        if record.seconds and self.height is None:
            spent = ", ".join(f"{name} {seconds:.2f}" for name, seconds in record.seconds.items())
            lines.append(Text(self._text(f"Seconds: {spent}."), style="dim"))
        return lines


def _allotted(whole: Sequence[int], room: int) -> list[int]:
    """Lines for each finding of `room` lines, by turns, the first first; fewer numbers where not all find room."""
    shown = len(whole) if len(whole) <= room else max(1, room - 1)
    lines = [1] * shown
    spare = room - shown - (shown < len(whole))
    while spare > 0 and any(had < wants for had, wants in zip(lines, whole, strict=False)):
        for at in range(shown):
            if spare > 0 and lines[at] < whole[at]:
                lines[at] += 1
                spare -= 1
    return lines


def print_run(summary: RunSummary, console: Console) -> None:
    """Print what a run showed."""
    text = Text(f"{summary.kernel}", style="bold")
    text.append(f"  {summary.target}, NKI {summary.release}, seed {summary.seed}", style="dim")
    parts: list[RenderableType] = [text, *_counts([summary.counts])]
    table = Table(box=None, pad_edge=False, show_edge=False, header_style="dim")
    compared = any(item.scaled_max is not None or item.mismatches is not None for item in summary.outputs)
    errors = ("max|e|/rms", "rms ratio", "ulps") if compared else ()
    for name in ("output", "min", "max", "mean", "non-finite", *errors):
        table.add_column(name, justify="left" if name == "output" else "right", no_wrap=True)
    for output in summary.outputs:
        table.add_row(
            f"{output.name} {output.dtype}{list(output.shape)}",
            *(f"{value:.4g}" for value in (output.minimum, output.maximum, output.mean)),
            str(output.nonfinite),
            *(_errors(output) if compared else ()),
        )
    if summary.outputs:
        parts += [Text("Outputs", style="bold"), table]
    parts += [Text(f"  breaks a limit: {message}", style="red") for message in summary.violations]
    parts += [Text(f"  undefined: {message}", style="red") for message in summary.faults]
    console.print(Group(*parts))


def _errors(output: OutputSummary) -> tuple[str, str, str]:
    wrong = "" if output.mismatches is None else f"{output.mismatches} differ"
    return (
        wrong if output.scaled_max is None else f"{output.scaled_max:.2e}",
        "" if output.rms_ratio is None else f"{output.rms_ratio:.2e}",
        "" if output.max_ulps is None else f"{output.max_ulps:.1f}",
    )


def _counts(counts: Iterable[CountsRecord]) -> list[Text]:
    lines = [Text("Counts", style="bold")]
    for item in counts:
        engines = ", ".join(f"{name} {number:,}" for name, number in item.by_engine.items())
        routes = ", ".join(f"{route} {words.size(number)}" for route, number in item.bytes_by_route.items())
        line = (
            f"{item.workload}: {item.instructions:,} instructions"
            f"{f' ({engines})' if engines else ''}; moved {routes or 'nothing'}"
        )
        if item.multiply_accumulates:
            line += f"; {item.multiply_accumulates:,} multiply-accumulates"
        if item.assumed_trips:
            line += "; device-side loops without static bounds are counted once"
        lines.append(Text(f"  {words.one_line(line)}"))
    return lines

"""A review as Markdown that can be pasted into a review: no raw HTML, no mentions, long lists folded to a number."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from nkireview.record import ReviewRecord, Run
from nkireview.report import numbers
from nkireview.report import text as words
from nkireview.rules.finding import Finding, Severity

SHOWN_NOTES = 8
SHOWN_FINDINGS = 60
SHOWN_PLACES = 5
SHOWN_RUNS = 12
SHOWN_STEPS = 5
SHOWN_ITEMS = 12
LEAST_SHARE = 0.01
"""Share of the predicted time from which a step of the critical path is worth a line."""

_SPECIAL = re.compile(r"[\\`*\[<|~$&]|(?<!\w)_|_(?!\w)")
_START = re.compile(r"(?:[-+=>#]|\d+(?=[.)]))")
_LINKED = re.compile(r"(?:https?://|www\.)\S+|(?<![\w`])[@#][\w][\w./-]*|\b[\w.+-]+@[\w-]+\.[\w.]+")
_ADDRESS = re.compile(r"https?://[\w./#?=&%:~+-]+")


def markdown(record: ReviewRecord) -> str:
    """The text of review.md."""
    parts = [
        _head(record),
        _scores(record),
        _times(record),
        _runs(record),
        _numbers(record),
        _findings(record),
        _list("Done well", record.strengths),
        _list("Not checked", record.not_checked),
        _foot(record),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def escape(text: str) -> str:
    """A text on one line in which nothing is markup, a link or a mention."""
    line = words.one_line(text)
    made, at = [], 0
    for match in _LINKED.finditer(line):
        made += [_plain(line[at : match.start()]), code(match[0], cell=True)]
        at = match.end()
    made.append(_plain(line[at:]))
    start = _START.match(line)
    joined = "".join(made)
    if start is None or not joined.startswith(start[0]):
        return joined
    stop = start.end() - (0 if start[0][0].isdigit() else 1)
    return f"{joined[:stop]}\\{joined[stop:]}"


def _plain(text: str) -> str:
    return _SPECIAL.sub(lambda match: f"\\{match[0]}", text)


def code(text: str, cell: bool = False) -> str:
    """A code span, which may stand in a cell of a table; the fence is longer than any run of backticks inside."""
    line = words.one_line(text, 300)
    if not line:
        return ""
    fence = "`" * (max((len(run) for run in re.findall(r"`+", line)), default=0) + 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    span = f"{fence}{pad}{line}{pad}{fence}"
    return span.replace("|", "\\|") if cell else span


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _folded(items: Sequence[str], shown: int, more: str) -> list[str]:
    """The first items, and how many there are besides."""
    rest = len(items) - shown
    return [*items[:shown], *([f"and {rest:,} more {more}".rstrip()] if rest > 0 else [])]


def _head(record: ReviewRecord) -> str:
    subject = record.subject
    first = [f"**{words.verdict(record).capitalize()}.**"]
    if record.scorecard is not None:
        first.append(f"Score: {escape(words.total(record))}.")
    if record.times:
        longest = max(record.times, key=lambda time: time.total_ns)
        name = f" for {code(longest.workload)}" if len(record.times) > 1 else ""
        first.append(f"Predicted time{name}: {words.predicted(longest, subject.release.value)}.")
    if record.findings:
        first.append(f"Findings: {words.tally(record)}.")
    lines = [
        f"# Review of {code(subject.kernel) or 'a kernel'} in {code(words.subject_name(record))}",
        "",
        " ".join(first),
    ]
    if record.reason:
        lines += ["", f"Why: {escape(record.reason)}"]
    lines += [
        "",
        f"- Judged for {escape(words.settings(record))}",
        f"- Legality: {escape(words.legality(record))}",
        f"- Correctness: {escape(words.correctness(record))}",
        *([f"- Determinism: {escape(words.determinism(record))}"] if record.orders else []),
        f"- Next step: {escape(words.next_step(record))}",
    ]
    return "\n".join(lines)


def _scores(record: ReviewRecord) -> str:
    card = record.scorecard
    if card is None:
        return ""
    rows = []
    for item in card.dimensions:
        assessed = [criterion for criterion in item.criteria if criterion.level is not None]
        lowest = min(assessed, key=lambda criterion: criterion.level or 0.0, default=None)
        why = item.reason
        if lowest is not None and not why:
            why = f"{lowest.title}: {lowest.descriptor}" if lowest.descriptor else lowest.title
        value = words.score(item.score) if item.score is None else f"{words.score(item.score)} of 4"
        rows.append((item.dimension.value, value, f"{item.weight:g}", escape(words.clip(why, 160))))
    text = f"## Score\n\n{_table(('dimension', 'score', 'weight', 'lowest criterion'), rows)}"
    if card.edits:
        text += "\n\n" + "\n".join(f"- {escape(words.edit(edit))}" for edit in card.edits)
    return text


def _times(record: ReviewRecord) -> str:
    if not record.times:
        return ""
    rows = [
        (
            code(time.workload, cell=True),
            words.predicted(time, record.subject.release.value),
            escape(time.bound_by),
            words.duration(time.floor_ns),
            words.percent(time.overlap),
        )
        for time in record.times[:SHOWN_RUNS]
    ]
    head = ("workload", "predicted time (range)", "bound by", "floor", "transfers overlapped")
    text = f"## Predicted time\n\n{_table(head, rows)}"
    if len(record.times) > SHOWN_RUNS:
        text += f"\n\nand {len(record.times) - SHOWN_RUNS} more workloads"
    longest = max(record.times, key=lambda time: time.total_ns)
    if any(step.share >= LEAST_SHARE for step in longest.critical):
        steps = [
            f"- {code(step.place) or 'no line'} {code(step.opcode)}: {words.percent(step.share)}"
            f"{f', waits for {escape(step.waits)}' if step.waits else ''}"
            for step in longest.critical[:SHOWN_STEPS]
            if step.share >= LEAST_SHARE
        ]
        text += f"\n\nCritical path of {code(longest.workload)}, share of its predicted time:\n\n"
        text += "\n".join(steps)
    assumed = list(dict.fromkeys(item for time in record.times for item in time.assumed))
    if assumed:
        folded = _folded([escape(item) for item in assumed], SHOWN_ITEMS, "")
        text += "\n\nAssumed: " + "; ".join(folded)
    return text


def _runs(record: ReviewRecord) -> str:
    if not record.runs:
        return ""
    rows = [row for run in record.runs for row in _run(run)]
    rows.sort(key=lambda row: row[3] != "wrong")
    head = ("workload", "inputs", "output", "result", "max error / rms", "rms ratio", "ulps")
    text = f"## Correctness\n\n{_table(head, rows[:SHOWN_RUNS])}"
    if len(rows) > SHOWN_RUNS:
        text += f"\n\nand {len(rows) - SHOWN_RUNS:,} more; the wrong ones come first"
    return text


def _numbers(record: ReviewRecord) -> str:
    if not record.numbers:
        return ""
    sentence, *more = numbers.brief(record.numbers)
    parts = ["## Numbers", f"{escape(sentence)}."]
    if more:
        parts.append(
            "\n".join(f"- {line}" for line in _folded([escape(each) for each in more], SHOWN_ITEMS, ""))
        )
    rows = [
        (
            code(found.workload, cell=True),
            escape(found.inputs),
            code(numbers.named(output), cell=True),
            numbers.use_of(output),
            numbers.chosen_of(output),
        )
        for found in sorted(record.numbers, key=lambda each: each.verdict != "defect")
        for output in found.outputs
    ]
    parts.append(_table(("workload", "inputs", "output", "error", "tolerance to choose"), rows[:SHOWN_RUNS]))
    if len(rows) > SHOWN_RUNS:
        parts.append(f"and {len(rows) - SHOWN_RUNS:,} more; the wrong ones come first")
    return "\n\n".join(parts)


def _run(run: Run) -> list[tuple[str, ...]]:
    inputs = escape(run.inputs if run.in_contract else f"{run.inputs} (not in the contract)")
    if not run.outputs:
        return [
            (
                code(run.workload, cell=True),
                inputs,
                "",
                run.status,
                escape(words.clip(run.reason, 100)),
                "",
                "",
            )
        ]
    rows: list[tuple[str, ...]] = []
    for output in run.outputs:
        label = code(f"{output.name} {output.dtype}{list(output.shape)}", cell=True)
        numbers = ("", "", "")
        if output.figures is not None and output.figures.nonfinite_mismatches:
            numbers = (f"{output.figures.nonfinite_mismatches:,} not finite", "", "")
        elif output.figures is not None:
            ulps = "" if output.figures.max_ulps is None else f"{output.figures.max_ulps:.1f}"
            numbers = (words.figure(output.figures.scaled_max), words.figure(output.figures.rms_ratio), ulps)
        rows.append((code(run.workload, cell=True), inputs, label, output.status, *numbers))
    return rows


def _findings(record: ReviewRecord) -> str:
    if not record.findings:
        return "## Findings\n\nNone."
    found = [finding for _, finding in words.numbered(record)]
    notes = [finding for finding in found if finding.severity is Severity.note]
    above = [finding for finding in found if finding.severity is not Severity.note]
    parts = ["## Findings"]
    parts += [_finding(at, finding, record) for at, finding in enumerate(above[:SHOWN_FINDINGS], 1)]
    if len(above) > SHOWN_FINDINGS:
        parts.append(f"and {len(above) - SHOWN_FINDINGS:,} more in review.json")
    if notes:
        lines = [
            f"- {finding.code} {escape(words.clip(finding.message, 300))}{_where(finding)}"
            for finding in notes
        ]
        parts.append("### Notes\n\n" + "\n".join(_fold_list(lines, SHOWN_NOTES, "in review.json")))
    return "\n\n".join(parts)


def _fold_list(lines: Sequence[str], shown: int, more: str) -> list[str]:
    folded = _folded(lines, shown, more)
    return [*folded[:shown], *(f"- {line}" for line in folded[shown:])]


def _where(finding: Finding) -> str:
    """The place, unless the message names it."""
    unnamed = finding.places and finding.places[0] not in finding.message
    return f" ({code(finding.places[0])})" if unnamed else ""


def _finding(number: int, finding: Finding, record: ReviewRecord) -> str:
    title = escape(words.clip(finding.title or finding.message, 120))
    lines = [
        f"### {number}. {finding.severity.value.capitalize()}: {title} ({finding.code})",
        "",
        f"{escape(finding.message)}",
        "",
    ]
    if finding.why:
        lines.append(f"- **Why here:** {escape(finding.why)}")
    if finding.change:
        lines.append(f"- **Change:** {escape(finding.change)}")
    saved = words.gain(finding, record.times)
    if saved:
        lines.append(f"- **Predicted gain:** {saved}")
    if finding.failing:
        lines.append(f"- **Failing input:** {escape(finding.failing)}")
    if finding.places:
        times = f", {finding.count:,} times" if finding.count > 1 else ""
        places = _folded([code(place) for place in finding.places], SHOWN_PLACES, "places")
        lines.append(f"- **Where:** {', '.join(places)}{times}")
    if finding.workload:
        lines.append(f"- **Workload:** {escape(finding.workload)}")
    lines.append(f"- **Dimension:** {finding.dimension.value}. **Rests on:** {finding.evidence.value}")
    if finding.citation:
        whole = _ADDRESS.fullmatch(finding.citation)
        lines.append(f"- **Source:** {f'<{finding.citation}>' if whole else escape(finding.citation)}")
    return "\n".join(lines)


def _list(title: str, items: Sequence[str]) -> str:
    if not items:
        return ""
    lines = [f"- {escape(item)}" for item in items]
    return f"## {title}\n\n" + "\n".join(_fold_list(lines, SHOWN_ITEMS, ""))


def _foot(record: ReviewRecord) -> str:
    text = f"{words.SILENCE} Written by {escape(record.tool)}."
    if record.isolation_not_held:
        text += f" Isolation not held: {escape('; '.join(record.isolation_not_held))}."
    return text

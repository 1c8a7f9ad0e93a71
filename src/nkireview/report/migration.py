"""What a file needs to move to another release: a screen by line, the same as Markdown and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.text import Text

from nkireview.checks.migration import Migration, Needed
from nkireview.report import text as words
from nkireview.report.markdown import code, escape

STYLES = {"gone": "bold red", "renamed": "yellow", "form": "yellow", "meaning": "magenta", "default": "cyan"}
DOCUMENTS = "aws-neuron-sdk"
"""The repository that sources are files of."""
LONGEST_LINE = 100
LEAST_WIDTH = 40
MARK = len("meaning 0.2  ")
_NAMES = {"legacy": "neuronxcc.nki", "current": "nki", "both": "nki and neuronxcc.nki"}
NOT_SEEN = (
    "Silence means that nothing known to have changed was seen in the text: shapes, dtypes and what other files define "
    "are not followed; nkireview review checks the ported kernel."
)


def print_migration(found: Migration, console: Console) -> None:
    """Everything by line: first what must change, then what is to be checked."""
    console.print(Text(words.one_line(heading(found)), style="bold"))
    console.print(Text(summary(found), style="green" if found.clean else "red"))
    for title, lines in (
        ("Mixes generations", mixed_lines(found)),
        ("Newer than it says", later_lines(found)),
    ):
        if lines:
            console.print()
            console.print(Text(title, style="bold"))
            for line in lines:
                console.print(Text(f"  {words.one_line(line)}"))
    known: dict[tuple[str, str], int] = {}
    texts = source_lines(found)
    for title, items in (("To change", found.to_change), ("To check", found.to_check)):
        if items:
            console.print()
            console.print(Text(title, style="bold"))
            _print_lines(found, items, texts, known, console)
    console.print()
    for part in Text(NOT_SEEN, style="dim").wrap(console, console.width):
        _print(part, console)


def _print_lines(
    found: Migration,
    items: Sequence[Needed],
    texts: Sequence[str],
    known: dict[tuple[str, str], int],
    console: Console,
) -> None:
    for line, group in groupby(items, key=lambda item: item.line):
        text = words.one_line(texts[line - 1], LONGEST_LINE) if line <= len(texts) else ""
        head = Text.assemble((f"  {found.source.at(line)}", "bold"), "  ", (text, "dim"))
        head.truncate(console.width, overflow="ellipsis")
        _print(head, console)
        for item in group:
            said, source = advice(item, known)
            told = Text.assemble((words.one_line(item.what), "bold"), f": {words.one_line(said)}")
            if source:
                told.append(f" [{source}]", style="dim")
            mark = f"    {f'{item.kind} {item.since}':{MARK}}"
            for at, part in enumerate(told.wrap(console, max(console.width - len(mark), LEAST_WIDTH))):
                first = Text(mark, style=STYLES[item.kind]) if not at else Text(" " * len(mark))
                _print(first.append_text(part), console)


def _print(line: Text, console: Console) -> None:
    line.rstrip()
    console.print(line, soft_wrap=True, highlight=False)


def advice(item: Needed, known: dict[tuple[str, str], int]) -> tuple[str, str]:
    """What to do and the source of that; after the first time, the line of the first."""
    first = known.setdefault((item.id, item.replacement), item.line)
    if first != item.line:
        return f"as in line {first}", ""
    return item.replacement, item.source


def heading(found: Migration) -> str:
    """Which file, from where to where."""
    imports = _NAMES.get(found.generation, "no import of NKI, names by convention")
    return f"{found.source.path.name} ({imports}): from NKI {found.start} to {found.to}"


def summary(found: Migration) -> str:
    """The verdict in one sentence."""
    change, check = found.to_change, found.to_check
    lines = len({item.line for item in change})
    if change:
        where = "1 line" if lines == 1 else f"{lines} lines"
        text = f"{_places(len(change))} to change, on {where}"
    else:
        text = "nothing to change"
    text += f"; {_places(len(check))} to check" if check else ""
    return f"it mixes two generations of NKI; {text}" if found.mixed else text


def _places(count: int) -> str:
    return "1 place" if count == 1 else f"{count} places"


def mixed_lines(found: Migration) -> list[str]:
    """The lines that are of the other generation."""
    return [f"{found.source.at(item.line)}: {item.what}" for item in found.mixed]


def later_lines(found: Migration) -> list[str]:
    """What the release that the file is said to be written for does not have."""
    return [
        f"{found.source.at(line)}: {what} came with NKI {release}: with --from {release} less may be left to check"
        for line, what, release in found.later
    ]


def source_lines(found: Migration) -> list[str]:
    """The lines of the file, as its syntax tree counts them."""
    return found.source.path.read_bytes().decode("utf-8", "replace").split("\n")


def migration_markdown(found: Migration) -> str:
    """Everything as Markdown that can be pasted into a review."""
    parts = [f"# {escape(heading(found))}", f"**{escape(summary(found).capitalize())}.**"]
    for title, lines in (
        ("Mixes generations", mixed_lines(found)),
        ("Newer than it says", later_lines(found)),
    ):
        if lines:
            parts.append("\n".join([f"## {title}", "", *(f"* {escape(line)}" for line in lines)]))
    known: dict[tuple[str, str], int] = {}
    for title, items in (("To change", found.to_change), ("To check", found.to_check)):
        if items:
            parts.append("\n".join([f"## {title}", "", *_table(found, items, known)]))
    parts.append(escape(NOT_SEEN))
    return "\n\n".join(parts) + "\n"


def _table(found: Migration, items: Sequence[Needed], known: dict[tuple[str, str], int]) -> Iterator[str]:
    yield "| place | what stands there | change | what to do | source |"
    yield "| --- | --- | --- | --- | --- |"
    for item in items:
        said, source = advice(item, known)
        cells = (
            code(found.source.at(item.line), cell=True),
            code(item.what, cell=True),
            f"{item.kind} in {item.since}",
            escape(said),
            code(source, cell=True),
        )
        yield f"| {' | '.join(cells)} |"


def migration_json(found: Migration) -> str:
    """Everything as JSON; places are ``file:line``."""
    at = found.source.at
    told: dict[str, Any] = {
        "file": str(found.source.path),
        "sha256": found.source.sha256,
        "generation": found.generation,
        "from": str(found.start),
        "to": str(found.to),
        "clean": found.clean,
        "mixed": [{"place": at(item.line), "line": item.line, "what": item.what} for item in found.mixed],
        "later": [
            {"place": at(line), "line": line, "what": what, "since": str(release)}
            for line, what, release in found.later
        ],
        "needed": [
            {
                "place": at(item.line),
                "line": item.line,
                "id": item.id,
                "act": item.act,
                "kind": item.kind,
                "what": item.what,
                "since": str(item.since),
                "replacement": item.replacement,
                "source": f"{DOCUMENTS} {item.source}",
            }
            for item in found.needed
        ],
    }
    return json.dumps(told, indent=2)

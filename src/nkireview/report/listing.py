"""The source beside the findings: numbered lines, bounded, each with the findings that point at it."""

from __future__ import annotations

import io
import keyword
import re
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from nkireview.report import text as words
from nkireview.rules.finding import Finding

MOST_LINES = 1500
CONTEXT = 12
"""Lines shown on each side of a finding where a source is too long to be shown whole."""
LONGEST_LINE = 400
LONGEST_TOKENIZED = 1 << 20
"""Characters of a source beyond which it is shown without colours."""

_CLASSES = {tokenize.COMMENT: "c", tokenize.STRING: "s", tokenize.NUMBER: "n"}


@dataclass(frozen=True)
class Mark:
    """What a rule found on a line: the first of its findings by position in the record, and how many there are."""

    finding: Finding
    position: int
    count: int


@dataclass(frozen=True)
class Line:
    """A line of a source: its number, its text as (class, text) pieces, its marks, the heaviest first."""

    number: int
    pieces: tuple[tuple[str, str], ...]
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True)
class Listing:
    """A source as shown: runs of consecutive lines, and how many lines it has."""

    index: int
    file: str
    blocks: tuple[tuple[Line, ...], ...]
    total: int

    @property
    def shown(self) -> int:
        """How many lines are shown."""
        return sum(len(block) for block in self.blocks)

    def anchor(self, number: int) -> str:
        """The anchor of a line."""
        return f"s{self.index}-{number}"


def listings(sources: Mapping[str, str], findings: Sequence[tuple[int, Finding]]) -> tuple[Listing, ...]:
    """The sources that findings point at first, then the others; at most `MOST_LINES` lines in all."""
    marks: dict[str, dict[int, list[tuple[int, Finding]]]] = {}
    for position, finding in findings:
        for place in dict.fromkeys(finding.places):
            file, number = words.place_of(place)
            if number is not None and file in sources:
                marks.setdefault(file, {}).setdefault(number, []).append((position, finding))
    order = [*marks, *sorted(set(sources) - set(marks))]
    texts = {file: split(sources[file]) for file in order}
    whole = sum(len(lines) for lines in texts.values()) <= MOST_LINES
    room = MOST_LINES
    made = []
    for index, file in enumerate(order):
        lines, marked = texts[file], marks.get(file, {})
        wanted = list(range(1, len(lines) + 1)) if whole else _windows(len(lines), list(marked))
        wanted = sorted(wanted[:room])
        room -= len(wanted)
        if wanted:
            pieces = _pieces(sources[file], lines)
            blocks = tuple(
                tuple(Line(n, pieces[n - 1], _marks(marked.get(n, ()))) for n in run) for run in _runs(wanted)
            )
            made.append(Listing(index, file, blocks, len(lines)))
    return tuple(made)


def _marks(found: Sequence[tuple[int, Finding]]) -> tuple[Mark, ...]:
    by_code: dict[str, list[tuple[int, Finding]]] = {}
    for position, finding in found:
        by_code.setdefault(finding.code, []).append((position, finding))
    return tuple(Mark(same[0][1], same[0][0], len(same)) for same in by_code.values())


def anchors(made: Sequence[Listing]) -> dict[str, str]:
    """The anchor of each place ``file:line`` that is shown."""
    return {
        f"{listing.file}:{line.number}": listing.anchor(line.number)
        for listing in made
        for block in listing.blocks
        for line in block
    }


def split(source: str) -> list[str]:
    """Lines as Python numbers them."""
    lines = re.split(r"\r\n|\r|\n", source)
    return lines[:-1] if lines[-1] == "" else lines


def _windows(total: int, numbers: Sequence[int]) -> list[int]:
    """Lines around those that findings point at, the first finding's first; the beginning where there is none."""
    wanted: dict[int, None] = {}
    for number in numbers or (1,):
        for line in range(max(1, number - CONTEXT), min(total, number + CONTEXT) + 1):
            wanted[line] = None
    return list(wanted)


def _runs(numbers: Sequence[int]) -> Iterator[list[int]]:
    """Consecutive numbers, run by run."""
    run: list[int] = []
    for number in numbers:
        if run and number != run[-1] + 1:
            yield run
            run = []
        run.append(number)
    if run:
        yield run


def _pieces(source: str, lines: Sequence[str]) -> list[tuple[tuple[str, str], ...]]:
    """Each line as pieces with a class: comment, string, number, keyword or none."""
    spans: list[list[tuple[int, int, str]]] = [[] for _ in lines]
    for kind, start, stop in _tokens(source):
        for row in range(start[0], min(stop[0], len(lines)) + 1):
            begin = start[1] if row == start[0] else 0
            end = stop[1] if row == stop[0] else len(lines[row - 1])
            spans[row - 1].append((begin, end, kind))
    return [_cut(line, found) for line, found in zip(lines, spans, strict=True)]


def _tokens(source: str) -> Iterator[tuple[str, tuple[int, int], tuple[int, int]]]:
    """Class, start and end of what has a colour, up to the first thing that is no Python."""
    if len(source) > LONGEST_TOKENIZED:
        return
    text = re.sub(r"\r\n|\r", "\n", source)
    try:
        for token in tokenize.generate_tokens(io.StringIO(text, newline="\n").readline):
            kind = _CLASSES.get(token.type, "")
            if token.type == tokenize.NAME and keyword.iskeyword(token.string):
                kind = "k"
            if kind:
                yield kind, token.start, token.end
    except (tokenize.TokenError, SyntaxError, ValueError):
        # the rest stays without colours: a listing shows what is there, Python or not
        return


def _cut(line: str, spans: Sequence[tuple[int, int, str]]) -> tuple[tuple[str, str], ...]:
    pieces: list[tuple[str, str]] = []
    at = 0
    for begin, end, kind in spans:
        if begin >= at and end > begin:
            pieces += [("", line[at:begin]), (kind, line[begin:end])]
            at = end
    pieces.append(("", line[at:]))
    return tuple(_bounded(pieces))


def _bounded(pieces: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """The pieces with controls made visible, together at most `LONGEST_LINE` characters."""
    room = LONGEST_LINE
    for kind, text in pieces:
        if not text or room <= 0:
            continue
        shown = words.clip(words.escape_controls(text), room)
        room = room - len(shown) if not shown.endswith("…") else 0
        yield kind, shown

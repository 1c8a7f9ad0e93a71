"""What a source has to change to move from one release to another: facts from the text, which is never imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from nkireview.checks.api import generation_of, generations, imports_of
from nkireview.checks.migration_calls import CALLS
from nkireview.checks.migration_code import CODE, block_markers
from nkireview.checks.migration_reading import (
    Called,
    Detector,
    Meant,
    Move,
    Reading,
    Seen,
    short,
)
from nkireview.checks.source import SourceFacts
from nkireview.isa.migration import Change, covers, migration_table, removed_since
from nkireview.isa.names import Name, changed_names
from nkireview.isa.release import LATEST, LEGACY, Release

FIRST = Release(0, 2)
"""The first release of the current generation."""
DETECTORS: dict[str, Detector] = {**CALLS, **CODE}
"""Each construct of the table with what finds it."""
_LOST = ("gone", "renamed")


@dataclass(frozen=True)
class Needed:
    """One thing to change or to check: what stands in which line, the release since when, and what to do.

    `id`, `kind` and `act` are those of isa/migration.toml; `legacy` where it belongs to the legacy generation alone.
    """

    id: str
    kind: str
    act: str
    line: int
    what: str
    since: Release
    replacement: str
    source: str
    legacy: bool = False

    @property
    def must(self) -> bool:
        """True where the text cannot stay as it is."""
        return self.act == "change"


@dataclass(frozen=True)
class Mixed:
    """A line of the other generation than the file's."""

    line: int
    what: str


@dataclass(frozen=True)
class Migration:
    """What a file needs for a move. `later` names what no release up to `start` has, with the release that brought it.

    `generation` is ``legacy``, ``current``, ``both`` or empty where the file imports nothing of NKI; its names are
    then taken by convention.
    """

    source: SourceFacts
    start: Release
    to: Release
    generation: str
    needed: tuple[Needed, ...]
    mixed: tuple[Mixed, ...]
    later: tuple[tuple[int, str, Release], ...]

    @property
    def to_change(self) -> tuple[Needed, ...]:
        """What cannot stay."""
        return tuple(item for item in self.needed if item.must)

    @property
    def to_check(self) -> tuple[Needed, ...]:
        """What may stay, and means or defaults to something else."""
        return tuple(item for item in self.needed if not item.must)

    @property
    def clean(self) -> bool:
        """True where nothing must change."""
        return not self.mixed and not self.to_change


def migration(source: SourceFacts, start: Release | None = None, to: Release = LATEST) -> Migration:
    """What a source needs to move from a release to another.

    Without `start`: legacy for a file that imports neuronxcc.nki, else 0.2. What is imported of one generation is
    judged as of that generation. ValueError where `to` is older, or `start` of a generation that is not imported.
    """
    generation = _generation(source)
    asked = start if start is not None else _default(source, generation)
    if generation in ("legacy", "current") and generation_of(asked) != generation:
        module = "neuronxcc.nki" if generation == "legacy" else "nki"
        fits = f"{LEGACY}" if generation == "legacy" else f"{FIRST} or later"
        raise ValueError(
            f"{source.path}: imports {module}, which is release {fits}, not {asked}; name that, or none"
        )
    if to < asked:
        raise ValueError(f"NKI {to} is older than {asked}: a move goes to a later release, or stays")
    reading = Reading(source, legacy=asked == LEGACY)
    move = Move(asked, to)
    needed = tuple(_needed(reading, move))
    mixed = () if not generation else tuple(_mixed(reading, generation, needed))
    later = () if asked == LEGACY else tuple(_later(reading, asked))
    return Migration(source, asked, to, generation, needed, mixed, later)


def _generation(source: SourceFacts) -> str:
    found = generations(source)
    if len(found) == 2:
        return "both"
    if found:
        return next(iter(found))
    reading = Reading(source)
    if reading.conventional:
        return ""
    return "legacy" if reading.legacy_alone else "current"


def _default(source: SourceFacts, generation: str) -> Release:
    if generation == "current":
        return FIRST
    if generation:
        return LEGACY
    reading = Reading(source, legacy=False)
    return LEGACY if any(item.legacy for item in _needed(reading, Move(FIRST, LATEST))) else FIRST


def _needed(reading: Reading, move: Move) -> Iterator[Needed]:
    found = dict.fromkeys((*_names(reading, move), *_tabled(reading, move), *_constructs(reading, move)))
    yield from sorted(found, key=lambda item: (item.line, not item.must, item.since, item.what))


def _judged(change: Change, seen: Seen, move: Move) -> Needed | None:
    """What an entry says of something seen, where it counts for this move."""
    since = seen.since or change.since
    start = move.from_(seen.legacy)
    if since is None or since > move.to or (change.until is not None and move.to >= change.until):
        return None
    if change.written_since is not None and start < change.written_since:
        return None
    # what is gone does not work where it is gone, whatever the file is written for
    lost = change.act == "change" and (change.kind in _LOST or change.legacy)
    certain = lost and change.id not in _GUESSED
    if start >= since and not certain:
        return None
    return Needed(
        change.id,
        change.kind,
        change.act,
        seen.line,
        seen.what,
        since,
        seen.use or change.replacement,
        seen.source or change.source,
        legacy=change.legacy,
    )


_GUESSED = frozenset({"tile-operator", "tile-method", "grid", "psum-accumulation"})
"""Entries on what a name holds or a launch means: for a file of that generation only."""


def _uses(reading: Reading) -> Iterator[tuple[Meant, int, ast.AST]]:
    """Names of NKI wherever they are used."""
    for node in reading.nodes:
        if isinstance(node, ast.Attribute | ast.Name):
            meant = reading.meant(node)
            if meant is not None:
                yield meant, node.lineno, node


def _names(reading: Reading, move: Move) -> Iterator[Needed]:
    blocks = {node.func for node, _ in block_markers(reading)}
    tabled = [change for change in migration_table().changes if change.names]
    for meant, line, node in _uses(reading):
        if node in blocks:
            continue
        known = changed_names().get(meant.full)
        lost = _lost(known, move) if known is not None else None
        if known is not None and lost is not None:
            yield _gone(known, line, lost)
        for change in tabled:
            whole = not isinstance(reading.parents.get(node), ast.Attribute)
            # of nki.compiler.sbuf.alloc the whole name, and not its beginning once more
            if any(covers(name, meant.full) and (whole or not name.endswith(".*")) for name in change.names):
                item = _judged(change, Seen("", line, meant.short, meant.legacy, meant.full), move)
                if item is not None:
                    yield item


def _lost(name: Name, move: Move) -> Release | None:
    """Since when a release lacks a name that an earlier one had; None where it has it or never had."""
    if move.to in name:
        return None
    ends = [span.until for span in name.spans if span.until is not None and span.until <= move.to]
    return max(ends, default=None)


def _gone(name: Name, line: int, since: Release) -> Needed:
    kind = "renamed" if name.name in migration_table().renamed else "gone"
    use = name.use or "nothing in its place"
    back = [span.since for span in name.spans if span.since is not None and span.since > since]
    use += f"; it is back in {min(back)}" if back else ""
    legacy = since == FIRST and not back
    return Needed(name.name, kind, "change", line, short(name.name), since, use, name.source, legacy)


def _tabled(reading: Reading, move: Move) -> Iterator[Needed]:
    """Entries on calls, on keywords and on arguments that are not passed."""
    changes = migration_table().changes
    for call in reading.calls:
        for change in changes:
            for seen in _of_call(change, call):
                item = _judged(change, seen, move)
                if item is not None:
                    yield item


def _of_call(change: Change, call: Called) -> Iterator[Seen]:
    name, brief, legacy = call.name, call.meant.short, call.meant.legacy
    if name in change.called:
        yield Seen("", call.line, brief, legacy, name)
    if not change.of or not change.fits(name):
        return
    for keyword in call.node.keywords:
        if keyword.arg in change.keywords:
            since = removed_since(name, keyword.arg) if change.since is None else None
            yield Seen("", keyword.value.lineno, f"{keyword.arg}= of {brief}", legacy, name, since)
    if change.without and not call.spread and call.argument(change.without, change.at) is None:
        yield Seen("", call.line, f"{brief} without {change.without}=", legacy, name)


def _constructs(reading: Reading, move: Move) -> Iterator[Needed]:
    table = migration_table()
    for detect in dict.fromkeys(DETECTORS.values()):
        for seen in detect(reading, move):
            change = table.of_construct(seen.construct, seen.name)
            item = _judged(change, seen, move) if change is not None else None
            if item is not None:
                yield item


def _mixed(reading: Reading, generation: str, needed: tuple[Needed, ...]) -> Iterator[Mixed]:
    source = reading.source
    if generation == "both":
        yield Mixed(next(imports_of(source, "current")), "imports nki, of the current generation")
        yield Mixed(next(imports_of(source, "legacy")), "imports neuronxcc.nki, of the legacy generation")
    found: dict[Mixed, None] = {}
    if generation == "current":
        for item in needed:
            if item.legacy:
                found[Mixed(item.line, f"{item.what}, of the legacy generation, under import nki")] = None
    for what, line in _current(reading):
        found[Mixed(line, f"{what}, of the current generation, under neuronxcc")] = None
    yield from sorted(found, key=lambda item: item.line)


def _current(reading: Reading) -> Iterator[tuple[str, int]]:
    """What is of the current generation and comes from the legacy one's import."""
    for meant, line, _ in _uses(reading):
        name = changed_names().get(meant.full)
        if meant.legacy and name is not None and all(_after_legacy(span.since) for span in name.spans):
            yield meant.short, line
    for call in reading.calls:
        row = call.row
        if not call.meant.legacy or row is None:
            if call.name == ".ap" and call.meant.legacy:
                yield ".ap(...)", call.line
            continue
        form = row.legacy.form if row.legacy is not None else ""
        if form == "returns" and (call.keyword("dst") is not None or _current_form(call)):
            yield f"{call.meant.short} with dst", call.line
        for keyword in call.node.keywords:
            params = [param for param in row.signature if param.name == keyword.arg]
            if params and all(_after_legacy(param.span.since) for param in params):
                yield f"{keyword.arg}= of {call.meant.short}", keyword.value.lineno


def _current_form(call: Called) -> bool:
    """True for a statement whose arguments by position are a destination and all that is needed."""
    return not call.used and bool(call.node.args) and not call.spread and call.binds(LATEST)


def _after_legacy(since: Release | None) -> bool:
    return since is not None and since > LEGACY


def _later(reading: Reading, start: Release) -> Iterator[tuple[int, str, Release]]:
    """Names and parameters that a later release than the file's brought."""
    found: dict[str, tuple[int, Release]] = {}
    for meant, line, _ in _uses(reading):
        name = changed_names().get(meant.full)
        if name is not None and not meant.legacy:
            first = min((span.since for span in name.spans if span.since is not None), default=start)
            if first > start and all(span.since is not None for span in name.spans):
                found.setdefault(short(name.name), (line, first))
    for call in reading.calls:
        if call.row is None or call.meant.legacy:
            continue
        for keyword in call.node.keywords:
            since = [param.span.since for param in call.row.signature if param.name == keyword.arg]
            first = min((each for each in since if each is not None), default=start)
            if since and None not in since and first > start:
                found.setdefault(f"{keyword.arg}= of {call.meant.short}", (keyword.value.lineno, first))
    yield from (
        (line, what, since) for what, (line, since) in sorted(found.items(), key=lambda item: item[1])
    )

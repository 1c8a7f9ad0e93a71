"""What a move to a later release changes in a kernel: the table of ``migration.toml``, checked when it is read."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any

from nkireview.isa.names import changed_names
from nkireview.isa.release import Release
from nkireview.isa.table import ROWS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

KINDS = ("gone", "renamed", "form", "meaning", "default")
ACTS = ("change", "check")
_ACT = {"gone": "change", "renamed": "change", "form": "change", "meaning": "check", "default": "check"}
_MATCHES = ("names", "called", "keywords", "without", "construct")
_RELEASES = ("since", "until", "written_since")
_TUPLES = ("names", "called", "of", "keywords")


class MigrationError(ValueError):
    """An entry of the table that says too little, too much, or what another table says; one sentence."""


@dataclass(frozen=True)
class Change:
    """One entry of ``migration.toml``; what its fields mean stands at the head of that file.

    `since` and `source` are None and empty where another table says them: the instruction table for parameters, the
    checks of the language's Python for constructs.
    """

    id: str
    kind: str
    replacement: str
    act: str = ""
    since: Release | None = None
    until: Release | None = None
    written_since: Release | None = None
    legacy: bool = False
    names: tuple[str, ...] = ()
    called: tuple[str, ...] = ()
    of: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()
    without: str = ""
    at: int = -1
    construct: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise MigrationError(f"{self.id}: kind {self.kind!r} is not one of {', '.join(KINDS)}")
        object.__setattr__(self, "act", self.act or _ACT[self.kind])
        if self.act not in ACTS:
            raise MigrationError(f"{self.id}: act {self.act!r} is not one of {', '.join(ACTS)}")
        given = [name for name in _MATCHES if getattr(self, name)]
        if len(given) != 1:
            raise MigrationError(
                f"{self.id}: has {len(given)} of {', '.join(_MATCHES)}; expected exactly one"
            )
        if (self.keywords or self.without) and not self.of:
            raise MigrationError(f"{self.id}: does not say of what its argument is; expected of")
        if bool(self.without) != (self.at >= 0):
            raise MigrationError(f"{self.id}: without and at belong together")
        for name in self.names:
            known = changed_names().get(name)
            if known is not None and any(span.until is not None for span in known.spans):
                raise MigrationError(f"{self.id}: {name} stands in names.toml already")
        derived = self.keywords and all(_removed(pattern, self.keywords) for pattern in self.of)
        if derived and self.since is not None:
            raise MigrationError(f"{self.id}: the instruction table says since when; leave since out")
        if self.since is None and not derived and not self.construct:
            raise MigrationError(f"{self.id}: says nothing of the release that changed it; expected since")
        if not self.source and not self.construct:
            raise MigrationError(f"{self.id}: names no source")

    def fits(self, name: str) -> bool:
        """True where the entry is about calls of this name; one without `of` is about all."""
        return not self.of or any(covers(pattern, name) for pattern in self.of)


def covers(pattern: str, name: str) -> bool:
    """True where a name is the pattern, or below it where that ends in ``.*``."""
    if pattern.endswith(".*"):
        return name == pattern[:-2] or name.startswith(pattern[:-1])
    return name == pattern


def removed_since(name: str, keyword: str) -> Release | None:
    """The release from which an instruction has lost a parameter; None where it never had it or still has it."""
    row = ROWS.get(name.rpartition(".")[2])
    if row is None or f"{row.namespace}.{row.name}" != name:
        return None
    spans = [param.span for param in row.signature if param.name == keyword]
    if not spans or any(span.until is None for span in spans):
        return None
    return max(span.until for span in spans if span.until is not None)


def _removed(pattern: str, keywords: tuple[str, ...]) -> bool:
    names = [f"{row.namespace}.{row.name}" for row in ROWS.values()]
    below = [name for name in names if covers(pattern, name)]
    return all(any(removed_since(name, keyword) is not None for name in below) for keyword in keywords)


@dataclass(frozen=True)
class MigrationTable:
    """All entries, the names of ``names.toml`` that are renamed rather than gone, and NumPy's names of operators.

    `operators` maps a function of NumPy to the operator of nki.language where the names differ; to an empty text where
    there is none.
    """

    changes: tuple[Change, ...]
    renamed: frozenset[str]
    operators: Mapping[str, str]

    def of_construct(self, construct: str, name: str) -> Change | None:
        """The first entry on a construct in calls of a name."""
        found = (item for item in self.changes if item.construct == construct and item.fits(name))
        return next(found, None)


@cache
def migration_table() -> MigrationTable:
    """The table as it stands in the package."""
    text = resources.files("nkireview.isa").joinpath("migration.toml").read_text(encoding="utf-8")
    return read_table(text)


def read_table(text: str) -> MigrationTable:
    """Read the text of such a file; MigrationError where an entry is wrong."""
    held = tomllib.loads(text)
    renamed = frozenset(held.get("renamed", ()))
    for name in sorted(renamed - set(changed_names())):
        raise MigrationError(f"renamed: {name} does not stand in names.toml")
    changes = tuple(_change(row) for row in held.get("change", ()))
    seen: set[str] = set()
    for change in changes:
        if change.id in seen:
            raise MigrationError(f"{change.id}: stands twice")
        seen.add(change.id)
    return MigrationTable(changes, renamed, MappingProxyType(dict(held.get("operators", {}))))


def _change(row: Mapping[str, Any]) -> Change:
    known = {field.name for field in fields(Change)}
    for key in row:
        if key not in known:
            raise MigrationError(f"{row.get('id', 'an entry')}: has an unknown key {key!r}")
    for key in ("id", "kind", "replacement"):
        if key not in row:
            raise MigrationError(f"{row.get('id', 'an entry')}: has no {key}")
    values: dict[str, Any] = dict(row)
    for key in _TUPLES:
        values[key] = tuple(row.get(key, ()))
    for key in _RELEASES:
        if key in row:
            values[key] = Release.parse(row[key])
    return Change(**values)

"""Names that came or went with a release: one table for the namespaces of a trace and for the rules over the source."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any

from nkireview.isa import act, alu
from nkireview.isa.release import ALWAYS, Release, Span
from nkireview.isa.table import ROWS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True)
class Name:
    """A name in full (``nki.isa.iota``), the releases that have it, what replaces it, and the source of that."""

    name: str
    spans: tuple[Span, ...]
    use: str
    source: str

    def __contains__(self, release: Release) -> bool:
        return any(release in span for span in self.spans)

    def when(self, release: Release) -> str:
        """Since when there is the name, or before when there was, seen from a release that lacks it."""
        return when(self.spans, release)


def when(spans: tuple[Span, ...], release: Release) -> str:
    """``since NKI 0.4`` or ``before NKI 0.2``: the nearest span seen from a release outside all of them."""
    later = [span.since for span in spans if span.since is not None and span.since > release]
    if later:
        return f"since NKI {min(later)}"
    return f"before NKI {max(span.until for span in spans if span.until is not None)}"


@cache
def changed_names() -> Mapping[str, Name]:
    """Every name that some release lacks, by its name in full."""
    text = resources.files("nkireview.isa").joinpath("names.toml").read_text(encoding="utf-8")
    found = {name.name: name for group in tomllib.loads(text)["group"] for name in _named(group)}
    found.update({name.name: name for name in _of_tables()})
    return MappingProxyType(found)


def _named(group: Mapping[str, Any]) -> Iterator[Name]:
    since, until, again = (
        Release.parse(group[key]) if key in group else None for key in ("since", "until", "again")
    )
    spans = (Span(since, until), *([Span(again)] if again else []))
    for name in group["names"]:
        yield Name(name, spans, group.get("use", ""), group["source"])


def _of_tables() -> Iterator[Name]:
    """Instructions, operators and activation functions."""
    for row in ROWS.values():
        if row.releases != ALWAYS:
            yield Name(f"{row.namespace}.{row.name}", (row.releases,), "", row.source)
    tables: tuple[alu.AluOp | act.Activation, ...] = (*alu.BY_NAME.values(), *act.BY_NAME.values())
    operators: dict[str, list[alu.AluOp | act.Activation]] = {}
    for operator in tables:
        operators.setdefault(operator.name, []).append(operator)
    for name, both in operators.items():
        spans = tuple(dict.fromkeys(operator.releases for operator in both))
        # one that an engine lost, as logical_not, is still a function
        if ALWAYS not in spans and all(span.until is None for span in spans):
            yield Name(f"nki.language.{name}", spans, "", both[0].source)

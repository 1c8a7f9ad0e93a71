"""Refusals of the names of NKI that the release of a trace does not have, by the table of `isa.names`.

The stub of 0.2 prints the operators of `nki.language` as functions that "are not supported": there they are names for
``op=`` only.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from nkireview.isa.names import Name, changed_names, when
from nkireview.isa.release import Release, Span
from nkireview.isa.table import ROWS
from nkireview.nki.errors import Refusal
from nkireview.nki.trace import nearest

SHORT = {"nki.language": "nl", "nki.isa": "nisa"}
"""How kernels spell a namespace."""
CALLS = Span(since=Release(0, 3))
"""Releases in which the name of an operator can also be called as a function."""


class Absent(Refusal, AttributeError):
    """A name that the release of the trace does not have; ``hasattr`` of it is False."""


def changed(namespace: str, name: str) -> Name | None:
    """What the table says of a name of ``nki.language`` or ``nki.isa``; None where every release has it, or none.

    None for instructions too, of which `verify` says so and lets the trace go on.
    """
    row = ROWS.get(name)
    if row is not None and row.namespace == namespace:
        return None
    return changed_names().get(f"{namespace}.{name}")


def require(namespace: str, name: str, release: Release) -> None:
    """Raise Absent with the sentence that says since when there is a name, or before when and what replaces it."""
    found = changed(namespace, name)
    if found is not None and release not in found:
        instead = f"; use {found.use}" if found.use else ""
        raise Absent(
            f"{SHORT.get(namespace, namespace)}.{name} exists {found.when(release)}, this kernel is judged by "
            f"{release}{instead}"
        )


def require_call(name: str, release: Release) -> None:
    """Raise Absent where an operator is a name for ``op=`` and no function yet."""
    require("nki.language", name, release)
    if release not in CALLS:
        raise Absent(
            f"nl.{name} can be called {when((CALLS,), release)}, this kernel is judged by {release}, "
            "where it is a name for op= only; use the instruction of nki.isa"
        )


def module(name: str, namespace: str, members: dict[str, Any], doc: str | None) -> ModuleType:
    """A fresh module object, which looks up the names that some release lacks when they are asked for."""
    made = ModuleType(name, doc)
    spanned = {key: value for key, value in members.items() if changed(namespace, key) is not None}
    made.__dict__.update((key, value) for key, value in members.items() if key not in spanned)
    made.__dict__["__getattr__"] = _lookup(name, namespace, spanned)
    return made


def _lookup(module_name: str, namespace: str, spanned: dict[str, Any]) -> Callable[[str], Any]:
    def lookup(name: str) -> Any:
        trace = nearest()
        if trace is not None:
            require(namespace, name, trace.release)
        if name in spanned:
            return spanned[name]
        raise AttributeError(f"{module_name} has no {name!r} in the current generation")

    return lookup

"""The names of NKI that a source uses, and how they stand to a release."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from nkireview.checks.source import Import, SourceFacts
from nkireview.isa.names import Name, changed_names
from nkireview.isa.release import LEGACY, Release


@dataclass(frozen=True)
class Use:
    """A use of a name of NKI, spelled in full (``nki.isa.iota``), whatever it was imported as."""

    name: str
    line: int


def absent_names(source: SourceFacts, kernel: str, release: Release) -> tuple[tuple[Use, Name], ...]:
    """The names that the kernel, or a function that it mentions, uses and the release does not have."""
    known = changed_names()
    found = []
    for use in uses(source, kernel):
        name = known.get(use.name)
        if name is not None and release not in name:
            found.append((use, name))
    return tuple(found)


def uses(source: SourceFacts, kernel: str) -> tuple[Use, ...]:
    """The names of NKI in the kernel and the functions that it mentions, in order of their lines."""
    bound = {item.bound: _full(item.module, item.name) for item in source.imports if _is_nki(item.module)}
    bound = {name: full for name, full in bound.items() if full}
    found: dict[Use, None] = {}
    for function in source.reachable(kernel):
        for node in ast.walk(function):
            if isinstance(node, ast.Attribute | ast.Name):
                full = _spelled(node, bound)
                if full:
                    found[Use(full, node.lineno)] = None
    return tuple(sorted(found, key=lambda use: (use.line, use.name)))


def generations(source: SourceFacts) -> frozenset[str]:
    """``current`` and ``legacy``, by the imports of the file that no ``try`` guards."""
    found = set()
    for item in source.imports:
        if not item.guarded and _is_nki(item.module, item.name):
            found.add("legacy" if item.module.startswith("neuronxcc") else "current")
    return frozenset(found)


def kernel_generations(source: SourceFacts, kernel: str) -> frozenset[str]:
    """``current`` and ``legacy``, by the modules that a kernel and the functions that it mentions use.

    Of a kernel that names none, or that is not of this file, the first import of the file that is a generation's.
    """
    bound: dict[str, Import] = {}
    for item in source.imports:
        if _computes(item) and not (item.guarded and item.bound in bound):
            bound[item.bound] = item  # of several under ``try`` the first is the one that is wanted
    found = set()
    for function in source.reachable(kernel):
        for node in ast.walk(function):
            if isinstance(node, ast.Name) and node.id in bound:
                found.add(_generation(bound[node.id]))
    if not found and bound:
        found.add(_generation(min(bound.values(), key=lambda item: item.line)))
    return frozenset(found)


def fallback(source: SourceFacts) -> bool:
    """True where a file imports one generation and, where that fails, the other: both under ``try``."""
    found = {_generation(item): item.guarded for item in source.imports if _computes(item)}
    return len(found) == 2 and all(found.values())


def _computes(item: Import) -> bool:
    """True for imports that a kernel computes with; of the old package some files of today take annotations."""
    full = f"{item.module}.{item.name}" if item.name else item.module
    kept = ("neuronxcc.nki.typing", "neuronxcc.nki.compiler")
    return _is_nki(item.module, item.name) and not full.startswith(kept)


def _generation(item: Import) -> str:
    return "legacy" if item.root == "neuronxcc" else "current"


def generation_of(release: Release) -> str:
    """The generation of a release."""
    return "legacy" if release == LEGACY else "current"


def _is_nki(module: str, name: str = "nki") -> bool:
    return (
        module.split(".")[0] == "nki"
        or module.startswith("neuronxcc.nki")
        or (module == "neuronxcc" and name == "nki")
    )


def _full(module: str, name: str) -> str:
    """The current spelling of what an import binds."""
    if not name:
        return module.removeprefix("neuronxcc.")
    return f"{module}.{name}".removeprefix("neuronxcc.")


def _spelled(node: ast.expr, bound: Mapping[str, str]) -> str:
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in bound:
        return ""
    first = bound[node.id]
    # ``import nki.language`` binds the package alone
    first = first.split(".")[0] if node.id == first.split(".")[0] else first
    return ".".join((first, *reversed(names)))


def imports_of(source: SourceFacts, generation: str) -> Iterator[int]:
    """The lines of the unguarded imports of one generation."""
    for item in source.imports:
        legacy = item.module.startswith("neuronxcc")
        if not item.guarded and _is_nki(item.module, item.name) and legacy == (generation == "legacy"):
            yield item.line

"""What is there of each name of the language, and what is missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nkireview.coverage.names import AREAS, Name, names
from nkireview.hosted.simulate import simulate
from nkireview.isa.constraints import Constraint, constraints
from nkireview.isa.row import Row
from nkireview.isa.table import ROWS
from nkireview.nki import collectives, isa, language
from nkireview.nki.control import LOOPS
from nkireview.nki.jit import Kernel, jit
from nkireview.nki.modules import TypingTensor
from nkireview.nki.tensor import NkiTensor

PACKAGE: Mapping[str, object] = {
    "nki.jit": jit,
    "nki.simulate": simulate,
    "nki.kernel.with_schedule": Kernel.with_schedule,
    "nki.experimental.while_loop": LOOPS["while_loop"],
    "nki.typing.tensor": TypingTensor,
}


@dataclass(frozen=True)
class Support:
    """One name: what of it is there, the number of tests that prove it, and what is missing."""

    name: str
    kind: str
    area: str
    limits: int
    engines: tuple[str, ...]
    cost: str
    tests: int
    missing: tuple[str, ...]

    @property
    def supported(self) -> bool:
        """True where nothing is missing."""
        return not self.missing


@dataclass(frozen=True)
class Share:
    """How many names of an area are supported."""

    area: str
    supported: int
    of: int

    @property
    def percent(self) -> float:
        """Supported names in percent."""
        return 100.0 * self.supported / self.of


@dataclass(frozen=True)
class Coverage:
    """All names, and the constraints that nothing holds although they say so."""

    names: tuple[Support, ...]
    loose: tuple[str, ...]

    @property
    def shares(self) -> tuple[Share, ...]:
        """One share for each area."""
        return tuple(
            Share(area, sum(each.supported for each in held), len(held))
            for area in AREAS
            if (held := [each for each in self.names if each.area == area])
        )


def coverage(proved: Mapping[str, int], rows: Mapping[str, Row] = ROWS) -> Coverage:
    """Count what is there; `proved` are the tests that prove each name, see `proofs.proofs`."""
    return Coverage(tuple(_support(name, proved.get(name.name, 0), rows) for name in names()), _loose(rows))


def _support(name: Name, tests: int, rows: Mapping[str, Row]) -> Support:
    row = rows.get(name.last) if name.kind in ("instruction", "collectives") else None
    missing = [] if tests else ["a test"]
    if row is None:
        if not _there(name):
            missing.insert(0, "the name")
        return Support(name.name, name.kind, name.area, 0, (), "", tests, tuple(missing))
    engines = tuple(dict.fromkeys((row.engines.default.name, *(each.name for each in row.engines.allowed))))
    if not row.cost.formula:
        missing.append("a cost")
    if not row.cost.source or not row.source:
        missing.append("a source")
    return Support(
        name.name, name.kind, name.area, len(row.limits), engines, row.cost.formula, tests, tuple(missing)
    )


def _there(name: Name) -> bool:
    """True where a kernel finds the name; an instruction needs a row."""
    if name.kind == "instruction":
        return False
    if name.kind == "tensor":
        return hasattr(NkiTensor, name.last)
    if name.kind == "tile_size":
        return hasattr(language.TileSize, name.last.partition(".")[2])
    spaces: Mapping[str, Mapping[str, Any]] = {
        "isa": isa.namespace(),
        "language": language.namespace(),
        "collectives": collectives.namespace(),
    }
    if name.kind in spaces:
        return _reached(spaces[name.kind], name.last)
    return name.name in PACKAGE


def _reached(space: Mapping[str, Any], path: str) -> bool:
    first, *rest = path.split(".")
    if first not in space:
        return False
    found = space[first]
    for part in rest:
        if not hasattr(found, part):
            return False
        found = getattr(found, part)
    return True


def _loose(rows: Mapping[str, Row]) -> tuple[str, ...]:
    """Where the table of constraints and the limits of the rows disagree."""
    cited = {limit.number for row in rows.values() for limit in row.limits}
    known = constraints()
    found = [
        f"constraint {item.number} is said to be held by a limit, and no limit cites it: {item.text}"
        for item in known.values()
        if "limit" in item.by and item.number not in cited and not _elsewhere(item)
    ]
    found += [
        f"a limit cites constraint {number}, which is not listed" for number in cited - {0} - set(known)
    ]
    return tuple(sorted(found))


def _elsewhere(item: Constraint) -> bool:
    """True where the limits that hold a constraint cite another number, which `why` names."""
    return bool(item.why)

"""The platforms of ``platforms.toml``: how each does arithmetic, what that rests on, and what no document states."""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any, Literal, TypeVar

from nkireview.isa import dtypes

# A plain conditional import would need tomli installed to type-check for Python 3.10 on a newer interpreter.
tomllib = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")

Basis = Literal["documented", "published", "derived", "hole"]
Engine = Literal["scalar", "vector"]
"""Where a function is taken: on the Scalar engine, whose functions are tables, or anywhere else."""

ANY = "*"
OPERANDS = ("", "tfloat32", "float16", "bfloat16")


@dataclass(frozen=True)
class Fact:
    """Something a platform's arithmetic rests on."""

    name: str
    text: str
    basis: Basis
    source: str


@dataclass(frozen=True)
class Unit:
    """A tensor core: how many products of 16-bit operands and of TF32 it adds at once, aligned and truncated to
    `extra_bits` bits below a float32 significand."""

    name: str
    products: int
    tf32_products: int
    extra_bits: int
    basis: Basis
    source: str


@dataclass(frozen=True)
class Function:
    """How far a function may be off before its result is rounded; ``platforms.toml`` has the formula."""

    set: str
    name: str
    basis: Basis
    source: str
    ulps: float = 0.0
    slope: float = 0.0
    whole_slope: bool = False
    relative: float = 0.0
    absolute: float = 0.0
    per_argument: float = 0.0
    over: tuple[float, float] = (math.inf, -math.inf)


@dataclass(frozen=True)
class Platform:
    """How one platform does arithmetic.

    matmul: ``fma``, a chain of fused multiply-adds; ``tensor``, blocks of exact products, truncated, on `unit`;
    ``columns``, float32 products added to a float32 sum, then that to PSUM. operands: the float that wider operands of
    a matmul are rounded to; empty for none. reduction: ``tree`` or ``stream``. contraction: a product that is added on
    is not rounded. flush: subnormal float32 results become zero. scalar, vector: the errors of functions by name, or
    ``*`` for all, on the Scalar engine and elsewhere. stochastic: casts from float32 to narrower floats are random.

    What no document states is a placeholder: replace it with `with_function`, or any field with `dataclasses.replace`.
    """

    name: str
    title: str
    matmul: Literal["fma", "tensor", "columns"]
    reduction: Literal["tree", "stream"]
    contraction: bool
    flush: bool
    scalar: Mapping[str, Function] = field(hash=False, repr=False)
    vector: Mapping[str, Function] = field(hash=False, repr=False)
    facts: tuple[Fact, ...] = field(repr=False)
    operands: str = ""
    unit: Unit | None = None
    stochastic: bool = False

    def __post_init__(self) -> None:
        if self.operands not in OPERANDS:
            raise ValueError(
                f"operands of platform {self.name} is {self.operands!r}: expected one of "
                f"{', '.join(repr(name) for name in OPERANDS)}"
            )
        if (self.matmul == "tensor") != (self.unit is not None):
            raise ValueError(
                f"platform {self.name} has matmul {self.matmul!r} and unit {self.unit}: only tensor has one"
            )

    def function(self, name: str, engine: Engine) -> Function | None:
        """The error of a function; None where it has none of its own."""
        rows = self.scalar if engine == "scalar" else self.vector
        return rows.get(name, rows.get(ANY))

    def with_function(self, engine: Engine, name: str = ANY, *, source: str, **bounds: Any) -> Platform:
        """This platform with another error of a function, or of all that have no row of their own.

        bounds: fields of `Function`, those left out zero. source: where it was measured or read. Raise ValueError for
        a bound that is negative or no number, or has no such name.
        """
        known = [
            each.name for each in fields(Function) if each.name not in ("set", "name", "basis", "source")
        ]
        for key, value in bounds.items():
            if key not in known:
                raise ValueError(f"{key} is no bound of a function: expected one of {', '.join(known)}")
            if key != "over" and not 0 <= value < math.inf:
                raise ValueError(f"{key} of {name} is {value}: expected a finite number of at least 0")
        row = Function(set="given", name=name, basis="published", source=source, **bounds)
        rows = MappingProxyType({**(self.scalar if engine == "scalar" else self.vector), name: row})
        return replace(self, scalar=rows) if engine == "scalar" else replace(self, vector=rows)


@dataclass(frozen=True)
class Table:
    """``platforms.toml`` as read, everything by name; functions by their set."""

    platforms: Mapping[str, Platform]
    units: Mapping[str, Unit]
    facts: Mapping[str, Fact]
    functions: Mapping[str, Mapping[str, Function]]


def platform(name: str) -> Platform:
    """The platform of that name; raise ValueError naming those there are."""
    known = table().platforms
    if name not in known:
        raise ValueError(f"there is no platform {name!r}: expected one of {', '.join(known)}")
    return known[name]


@cache
def table() -> Table:
    """``platforms.toml``; raise ValueError where it names something twice, or what is not there."""
    data = tomllib.loads(resources.files(__package__).joinpath("platforms.toml").read_text(encoding="utf-8"))
    facts = _named([Fact(**entry) for entry in data["fact"]])
    units = _named([Unit(**entry) for entry in data["unit"]])
    sets: dict[str, dict[str, Function]] = {}
    for entry in data["function"]:
        row = Function(**{**entry, "over": tuple(entry.get("over", Function.over))})
        if row.name in sets.setdefault(row.set, {}):
            raise ValueError(f"platforms.toml: function {row.name} stands twice in {row.set}")
        sets[row.set][row.name] = row
    functions = {name: MappingProxyType(rows) for name, rows in sets.items()}
    entries: dict[str, dict[str, Any]] = {}
    for entry in data["platform"]:
        like = entry.pop("like", None)
        entries[entry["name"]] = {**(entries[like] if like else {}), **entry}
    platforms = _named([_platform(entry, facts, units, functions) for entry in entries.values()])
    return Table(platforms, units, facts, MappingProxyType(functions))


def _platform(
    entry: Mapping[str, Any],
    facts: Mapping[str, Fact],
    units: Mapping[str, Unit],
    functions: Mapping[str, Mapping[str, Function]],
) -> Platform:
    made = {**entry, "facts": tuple(facts[name] for name in entry["facts"])}
    made["scalar"], made["vector"] = functions[entry["scalar"]], functions[entry["vector"]]
    if "unit" in entry:
        made["unit"] = units[entry["unit"]]
    if entry.get("operands"):
        made["operands"] = dtypes.of(entry["operands"]).name
    return Platform(**made)


Row = TypeVar("Row", Fact, Unit, Platform)


def _named(rows: list[Row]) -> Mapping[str, Row]:
    found: dict[str, Row] = {}
    for row in rows:
        if row.name in found:
            raise ValueError(f"platforms.toml: {row.name} stands twice")
        found[row.name] = row
    return MappingProxyType(found)

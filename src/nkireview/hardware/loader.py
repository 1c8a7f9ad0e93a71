"""Loads a target's figures from the TOML tables beside this module."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cache
from importlib import resources
from math import isfinite
from typing import Any, Literal, cast

# A plain conditional import would need tomli installed to type-check for Python 3.10 on a newer interpreter.
tomllib = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")

Generation = Literal["v2", "v3", "v4"]
Confidence = Literal["documented", "documented-old", "measured", "derived", "inferred", "overridden"]

TARGETS = ("trn1", "trn2", "trn3")

_ZERO_ALLOWED = ("ns", "cycles")


class UnknownFigureError(LookupError):
    """A figure that no document states and nobody has measured for this target."""


@dataclass(frozen=True)
class Figure:
    """One figure; `value` is a number, a string, or a tuple of such (lists of the TOML file, nested or not).

    `source` is a place in public documentation, "measured on ...", "derived: ..." or "overridden by the
    caller"; `note` tells which sources disagree and which side is taken.
    """

    value: Any
    unit: str
    source: str
    confidence: Confidence
    note: str = ""


@dataclass(frozen=True)
class Unknown:
    """A figure known to be missing: its unit, and the reason."""

    unit: str
    reason: str


@dataclass(frozen=True)
class Hardware:
    """All figures of one target; made by `target`.

    `entries` maps each path, such as "dma.packet_ns", to its figure; the paths are the same for every target.
    """

    name: str
    entries: Mapping[str, Figure | Unknown] = field(repr=False, hash=False)

    @property
    def paths(self) -> tuple[str, ...]:
        """Every path in order, those of unknown figures included."""
        return tuple(sorted(self.entries))

    @property
    def unknown(self) -> dict[str, str]:
        """Path -> reason for each figure that is unknown on this target."""
        return {p: e.reason for p, e in sorted(self.entries.items()) if isinstance(e, Unknown)}

    def knows(self, path: str) -> bool:
        """Whether `path` has a value here; ValueError if there is no such path."""
        return isinstance(self._entry(path), Figure)

    def figure(self, path: str) -> Figure:
        """The figure at `path`; UnknownFigureError if unknown here, ValueError if there is no such path."""
        entry = self._entry(path)
        if isinstance(entry, Unknown):
            raise UnknownFigureError(
                f"{path} is not known for {self.name}: {entry.reason}; "
                f"give a value in {entry.unit} as an override"
            )
        return entry

    def value(self, path: str) -> Any:
        """The bare value at `path`; raises like `figure`."""
        return self.figure(path).value

    def number(self, path: str) -> float:
        """The value at `path` as a float; TypeError if it is not a number."""
        value = self.value(path)
        if not isinstance(value, (int, float)):
            raise TypeError(f"{path} of {self.name} is {value!r}, not a number")
        return float(value)

    def integer(self, path: str) -> int:
        """The value at `path`; TypeError if it is not an integer."""
        value = self.value(path)
        if not isinstance(value, int):
            raise TypeError(f"{path} of {self.name} is {value!r}, not an integer")
        return value

    @property
    def generation(self) -> Generation:
        """NeuronCore generation."""
        return cast("Generation", self.value("target.generation"))

    @property
    def nc_version(self) -> str:
        """Name of the generation in ``nki.isa.nc_version``: "gen2", "gen3" or "gen4"."""
        return str(self.value("target.nc_version"))

    @property
    def aliases(self) -> tuple[str, ...]:
        """Other names that `target` accepts for this one."""
        return tuple(self.value("target.aliases"))

    @property
    def lnc_degrees(self) -> tuple[int, ...]:
        """Numbers of cores that may form one logical core."""
        return tuple(self.value("chip.lnc_degrees"))

    @property
    def clocks(self) -> dict[str, float]:
        """Compute engine -> GHz; no document gives the clock of the Sync engine."""
        return {e: self.number(f"{e}.clock_ghz") for e in ("tensor", "vector", "scalar", "gpsimd")}

    @property
    def partitions(self) -> int:
        """Partitions of SBUF and of PSUM."""
        return self.integer("partitions")

    @property
    def sbuf_bytes(self) -> int:
        """Bytes of SBUF in one partition, the compiler's reserve included."""
        return self.integer("sbuf.bytes_per_partition")

    @property
    def sbuf_usable_bytes(self) -> int:
        """Bytes of SBUF in one partition that a kernel may use."""
        return self.integer("sbuf.usable_bytes_per_partition")

    @property
    def psum_bytes(self) -> int:
        """Bytes of PSUM in one partition."""
        return self.integer("psum.bytes_per_partition")

    @property
    def psum_banks(self) -> int:
        """PSUM banks."""
        return self.integer("psum.banks")

    @property
    def psum_bank_bytes(self) -> int:
        """Bytes of one PSUM bank in one partition."""
        return self.integer("psum.bank_bytes")

    @property
    def stationary_free_max(self) -> int:
        """Largest free size of a matmul's stationary operand, in elements."""
        return self.integer("limits.stationary_free_max")

    @property
    def bn_stats_free_max(self) -> int:
        """Largest free size that bn_stats reads, in elements."""
        return self.integer("limits.bn_stats_free_max")

    @property
    def row_tiles(self) -> dict[int, tuple[int, ...]]:
        """Legal row sizes of a tile of the PE array -> the rows where a tile of that size may start."""
        return dict(self.value("tensor.row_tiles"))

    @property
    def column_tiles(self) -> dict[int, tuple[int, ...]]:
        """Legal column sizes of a tile of the PE array -> the columns where a tile of that size may start."""
        return dict(self.value("tensor.column_tiles"))

    def moving_free_max(self, dst_dtype: str) -> int:
        """Largest free size of a matmul's moving operand, in elements, for a destination of `dst_dtype`."""
        path = f"limits.moving_free_max.{dst_dtype}"
        return self.integer(path if path in self.entries else "limits.moving_free_max.other")

    def start_partitions(self, count: int) -> tuple[int, ...]:
        """Partitions where a compute engine's operand of `count` partitions may start.

        ValueError if `count` is not in 1..128. Not a rule for DMA operands.
        """
        if count >= 1:
            for largest, starts in self.value("limits.start_partitions"):
                if count <= largest:
                    return tuple(starts)
        raise ValueError(f"an operand of {count} partitions is outside 1..{self.partitions} on {self.name}")

    def _entry(self, path: str) -> Figure | Unknown:
        if path not in self.entries:
            raise ValueError(f"unknown figure {path!r} of {self.name}: {_nearest(path, self.paths)}")
        return self.entries[path]

    def _overridden(self, path: str, value: object) -> Figure:
        old = self._entry(path)
        new = _number(path, value, old)
        if isinstance(old, Unknown):
            return Figure(new, old.unit, "overridden by the caller", "overridden", "unknown otherwise")
        note = f"instead of {old.value} ({old.source})"
        return replace(old, value=new, source="overridden by the caller", confidence="overridden", note=note)


def target(name: str, overrides: Mapping[str, float] | None = None) -> Hardware:
    """The figures of trn1 (also inf2), trn2 or trn3, with those in `overrides` (path -> number) replaced.

    ValueError for an unknown name or path, or a value that the figure cannot take.
    """
    known = {alias: _load(t) for t in TARGETS for alias in (t, *_load(t).aliases)}
    if name not in known:
        options = (f"{t} (also {' or '.join(_load(t).aliases)})" for t in TARGETS)
        raise ValueError(f"unknown target {name!r}: expected one of {', '.join(options)}")
    hardware = known[name]
    if not overrides:
        return hardware
    changed = {path: hardware._overridden(path, value) for path, value in overrides.items()}
    return replace(hardware, entries={**hardware.entries, **changed})


@cache
def _load(name: str) -> Hardware:
    return Hardware(name, {**dict(_read("common")), **dict(_read(name))})


def _read(stem: str) -> Iterator[tuple[str, Figure | Unknown]]:
    text = resources.files("nkireview.hardware").joinpath(f"{stem}.toml").read_text(encoding="utf-8")
    return _entries("", tomllib.loads(text))


def _entries(prefix: str, table: Mapping[str, Any]) -> Iterator[tuple[str, Figure | Unknown]]:
    for key, inner in table.items():
        path = f"{prefix}{key}"
        if "unknown" in inner:
            yield path, Unknown(inner["unit"], inner["reason"])
        elif "value" in inner:
            yield path, Figure(**{**inner, "value": _frozen(inner["value"])})
        else:
            yield from _entries(f"{path}.", inner)


def _frozen(value: Any) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value


def _number(path: str, value: object, old: Figure | Unknown) -> int | float:
    whole = isinstance(old, Figure) and isinstance(old.value, int)
    if isinstance(old, Figure) and not isinstance(old.value, (int, float)):
        raise ValueError(f"{path} is {old.value!r}: only numbers can be overridden")
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not isfinite(value):
        raise ValueError(f"override of {path} is {value!r}: expected a finite number in {old.unit}")
    if old.unit in _ZERO_ALLOWED and value < 0:
        raise ValueError(f"override of {path} is {value!r}: expected 0 {old.unit} or more")
    if old.unit not in _ZERO_ALLOWED and value <= 0:
        raise ValueError(f"override of {path} is {value!r}: expected more than 0 {old.unit}")
    if whole and value != int(value):
        raise ValueError(f"override of {path} is {value!r}: expected a whole number of {old.unit}")
    return int(value) if whole else value


def _nearest(path: str, paths: tuple[str, ...]) -> str:
    close = get_close_matches(path, paths, n=3, cutoff=0.5)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"figures are grouped under {', '.join(sorted({p.split('.')[0] for p in paths}))}"

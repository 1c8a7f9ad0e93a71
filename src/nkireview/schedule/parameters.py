"""Parameters of the timing model, and the hardware figures it needs with those of trn2 where a target's are unknown."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

from nkireview import hardware
from nkireview.hardware import Hardware

tomllib = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")

MEASURED = "trn2"
"""The target whose figures stand in where another's are unknown: the only one that was measured throughout."""


@dataclass(frozen=True)
class Parameters:
    """Values of ``model.toml`` by name, with `overrides` in their place."""

    overrides: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        unknown = set(self.overrides) - set(_table())
        if unknown:
            raise ValueError(
                f"unknown parameter {sorted(unknown)[0]!r} of the timing model: expected one of {', '.join(_table())}"
            )

    def value(self, name: str) -> Any:
        """The value of a parameter."""
        return self.overrides.get(name, _table()[name]["value"])


class Figures:
    """Figures of a target; an unknown one is that of trn2, and is remembered in `assumed`."""

    def __init__(self, target: Hardware) -> None:
        self.target = target
        self.generation = target.generation
        self._fallback = hardware.target(MEASURED)
        self._assumed: list[str] = []

    def number(self, path: str) -> float:
        """The figure at a path."""
        if self.target.knows(path):
            return self.target.number(path)
        if path not in self._assumed:
            self._assumed.append(path)
        return self._fallback.number(path)

    @property
    def assumed(self) -> tuple[str, ...]:
        """One sentence for the figures that were taken from trn2."""
        if not self._assumed:
            return ()
        return (f"unknown on {self.target.name}, taken from {MEASURED}: {', '.join(sorted(self._assumed))}",)


@cache
def _table() -> dict[str, dict[str, Any]]:
    text = resources.files("nkireview.schedule").joinpath("model.toml").read_text(encoding="utf-8")
    table: dict[str, dict[str, Any]] = tomllib.loads(text)
    return table

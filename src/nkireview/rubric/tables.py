"""The tables beside this module: what each measure means, and what is worth praising."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

# A plain conditional import would need tomli installed to type-check for Python 3.10 on a newer interpreter.
tomllib = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")


class Measure(BaseModel):
    """One measure: what it means, whether more of it is better, what it rests on, and why it may be absent."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    title: str
    unit: Literal["share", "ratio", "ns"]
    direction: Literal["higher", "lower"]
    needs: Literal["program", "run", "timeline"]
    meaning: str
    absent: str

    def reaches(self, value: float, bound: float) -> bool:
        """Whether a value is as good as a bound; NaN never is."""
        return value >= bound if self.direction == "higher" else value <= bound


class Strength(BaseModel):
    """What to praise where a measure reaches `at`, unless a finding above note is among the rules `unless`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    measure: str
    at: float
    text: str
    unless: tuple[str, ...] = Field(default=())


@cache
def measures() -> Mapping[str, Measure]:
    """The measures by name, in the order of ``measures.toml``."""
    table = read("measures.toml")
    return MappingProxyType({name: Measure(name=name, **keys) for name, keys in table.items()})


@cache
def strengths() -> tuple[Strength, ...]:
    """The rows of ``strengths.toml``."""
    return tuple(Strength(**row) for row in read("strengths.toml")["strengths"])


def read(name: str) -> dict[str, Any]:
    """A TOML file of this room as plain data."""
    text = resources.files("nkireview.rubric").joinpath(name).read_text(encoding="utf-8")
    table: dict[str, Any] = tomllib.loads(text)
    return table

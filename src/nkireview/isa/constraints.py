"""The constraints of the language by number: what they say, and what holds them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

KINDS = ("C", "R", "W", "S")
HOLDERS = ("limit", "verify", "trace", "run")


@dataclass(frozen=True)
class Constraint:
    """One constraint. kind: C error when compiled, R error at run time, W silently wrong or undefined, S slow.

    by: `HOLDERS` and codes of rules; empty where nothing holds it, and `why` says why.
    """

    number: int
    kind: str
    text: str
    by: tuple[str, ...]
    why: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"constraint {self.number}: kind {self.kind!r} is not one of {', '.join(KINDS)}")
        strange = [name for name in self.by if name not in HOLDERS and not name.startswith("NKR")]
        if strange:
            raise ValueError(f"constraint {self.number}: {strange[0]!r} is no holder and no rule")
        if not self.by and not self.why:
            raise ValueError(f"constraint {self.number} is held by nothing and does not say why")


@cache
def constraints() -> Mapping[int, Constraint]:
    """All constraints by number."""
    text = resources.files("nkireview.isa").joinpath("constraints.toml").read_text(encoding="utf-8")
    rows = tomllib.loads(text)["constraint"]
    found = [Constraint(**{**row, "by": tuple(row["by"])}) for row in rows]
    return MappingProxyType({item.number: item for item in found})

"""The names of the language that coverage counts."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache
from importlib import resources

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

AREAS = ("isa", "language")
KINDS = ("instruction", "isa", "language", "tensor", "tile_size", "package", "collectives")


@dataclass(frozen=True)
class Name:
    """A name as kernels spell it (``nisa.iota``, ``nl.exp``, ``NkiTensor.ap``, ``ncc.rank_id``), its kind and area."""

    name: str
    kind: str
    area: str

    def __post_init__(self) -> None:
        if self.kind not in KINDS or self.area not in AREAS:
            raise ValueError(f"{self.name}: kind {self.kind!r} in area {self.area!r} is not known")

    @property
    def last(self) -> str:
        """The name in its namespace."""
        return self.name.partition(".")[2]


@cache
def names() -> tuple[Name, ...]:
    """All names, in the order of ``names.toml``."""
    text = resources.files("nkireview.coverage").joinpath("names.toml").read_text(encoding="utf-8")
    groups = tomllib.loads(text)["group"]
    return tuple(Name(name, group["kind"], group["area"]) for group in groups for name in group["names"])

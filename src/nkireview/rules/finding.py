"""Finding: what a review says, how much it weighs, in which dimension, and what it rests on."""

from __future__ import annotations

from enum import Enum

from pydantic import BaseModel, ConfigDict, Field


class Severity(str, Enum):
    """blocker > major > minor > note; a blocker caps the grade whatever the rest scores."""

    blocker = "blocker"
    major = "major"
    minor = "minor"
    note = "note"

    @property
    def rank(self) -> int:
        """0 for a blocker, rising as the weight falls."""
        return list(Severity).index(self)


class Dimension(str, Enum):
    """The eleven dimensions of the rubric."""

    correctness = "kernel correctness"
    hardware = "hardware fit"
    tiling = "tiling"
    memory = "memory hierarchy"
    dma = "DMA and synchronisation"
    performance = "performance"
    numerics = "numerical validation"
    precision = "precision"
    sdk = "SDK and compiler"
    migration = "migration"
    claims = "benchmark claims"


class Evidence(str, Enum):
    """What a finding rests on."""

    source = "source"
    traced = "traced"
    executed = "executed"
    scheduled = "scheduled"
    measured = "measured"


class Finding(BaseModel):
    """One finding; `places` are ``file:line``, `count` the number of occurrences behind it.

    `group` names what the finding is about: findings of one rule and group in several workloads are one.
    """

    model_config = ConfigDict(frozen=True)

    code: str = Field(pattern=r"^NKR\d{3}$")
    severity: Severity
    dimension: Dimension
    evidence: Evidence
    message: str = Field(min_length=1)
    places: tuple[str, ...] = ()
    count: int = Field(default=1, ge=1)
    kind: str = ""
    citation: str = ""
    workload: str = ""
    group: str = ""


def in_order(findings: list[Finding]) -> tuple[Finding, ...]:
    """Findings by severity, then code, then place."""
    return tuple(sorted(findings, key=lambda f: (f.severity.rank, f.code, f.places, f.message)))

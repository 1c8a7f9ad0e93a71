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

    `message` says what happens with this run's figures, `why` why that matters on this hardware, `change` what to do;
    `gain_ns` is the predicted time that the change saves, `failing` the input on which the kernel goes wrong.
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
    title: str = ""
    why: str = ""
    change: str = ""
    gain_ns: float | None = Field(default=None, ge=0)
    failing: str = ""


def in_order(findings: list[Finding]) -> tuple[Finding, ...]:
    """Findings by severity, then the time their change saves, then code and place."""
    return tuple(
        sorted(findings, key=lambda f: (f.severity.rank, -(f.gain_ns or 0.0), f.code, f.places, f.message))
    )

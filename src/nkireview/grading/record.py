"""What `grade` writes down: one record a submission, and the summary of a run."""

from __future__ import annotations

import json
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

SCHEMA = 1
DIGITS = 6
"""Significant digits of every floating figure in a record."""

Status = Literal["acceptable", "rejected", "not reviewed"]


def rounded(value: float) -> float:
    """A figure with `DIGITS` significant digits."""
    return float(f"{value:.{DIGITS}g}")


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class GradedTime(_Record):
    """What the timing model predicts for a workload, in ns, with its range and what that rests on."""

    workload: str
    predicted_ns: float
    low_ns: float
    high_ns: float
    basis: str = "as traced"
    bound: str


class GradedFinding(_Record):
    """One finding; `line` is None where it has no place."""

    code: str
    severity: str
    dimension: str
    message: str
    file: str = ""
    line: int | None = None


class GradeRecord(_Record):
    """One submission. No clock, host or absolute path; figures have `DIGITS` significant digits.

    `sha256` is of the submission's files. `total` is of 100 and `dimensions` of 4 each, None where not assessed.
    `cut` says what was left out because of a limit.
    """

    name: str
    file: str
    sha256: str
    status: Status
    exit_code: Literal[0, 1, 2]
    total: float | None = None
    dimensions: dict[str, float | None] = Field(default_factory=dict)
    times: tuple[GradedTime, ...] = ()
    findings: tuple[GradedFinding, ...] = ()
    reason: str = ""
    cut: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _bound(self) -> GradeRecord:
        if self.exit_code != ("acceptable", "rejected", "not reviewed").index(self.status):
            raise ValueError(
                f"exit code {self.exit_code} does not belong to a submission that is {self.status}"
            )
        if self.status == "not reviewed" and not self.reason:
            raise ValueError("a submission that was not reviewed needs a reason")
        return self

    def line(self) -> str:
        """The record as one line of JSON, keys in the order of the fields."""
        return json.dumps(self.model_dump(mode="json"), allow_nan=False, separators=(", ", ": "))


class Best(_Record):
    """A submission near the top; the predicted time of all its workloads has their ranges together."""

    name: str
    total: float
    predicted_ns: float | None
    low_ns: float | None = None
    high_ns: float | None = None


class Frequent(_Record):
    """A finding by the number of submissions that have it; `message` is that of the first."""

    code: str
    severity: str
    submissions: int
    message: str


class Summary(_Record):
    """What a run of `grade` came to."""

    schema_version: int = SCHEMA
    task: str
    submissions: int
    statuses: dict[str, int]
    best: tuple[Best, ...]
    frequent: tuple[Frequent, ...]
    results: str

"""What rules are given: the facts of one review, gathered by the pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from nkireview.execute import Fault
from nkireview.program.program import Program
from nkireview.program.verify import Violation


@dataclass(frozen=True)
class Failure:
    """Why there is no Program: `kind` is raised, refused, import, limits, forged, or a runner's status."""

    kind: str
    message: str
    place: str = ""


@dataclass(frozen=True)
class WrongOutput:
    """An output that differs from the reference; `inputs` says which values were given."""

    output: str
    reason: str
    seed: int
    inputs: str
    in_contract: bool


@dataclass(frozen=True)
class Unreached:
    """An input that the reference needs for an output, without a path to it in the Program."""

    parameter: str
    output: str
    region: str


@dataclass(frozen=True)
class WorkloadFacts:
    """Facts of one workload."""

    name: str
    program: Program | None = None
    failure: Failure | None = None
    violations: Sequence[Violation] = ()
    faults: Sequence[Fault] = ()
    wrong: Sequence[WrongOutput] = ()
    mismatch: str = ""
    unreached: Sequence[Unreached] = ()
    written_parameters: Sequence[str] = ()


@dataclass(frozen=True)
class Facts:
    """Facts of a review."""

    kernel: str
    workloads: Sequence[WorkloadFacts] = ()
    stubs: Sequence[str] = ()
    file_target: str | None = None
    target: str = ""
    authored: Sequence[str] = field(default=())
    """What the author of the submission supplied: reference, input function."""

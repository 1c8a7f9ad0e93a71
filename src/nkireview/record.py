"""What a review holds once it is done: plain, validated, frozen records that reports render."""

from __future__ import annotations

import json
from enum import IntEnum
from hashlib import sha256
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from nkireview.rubric.scorecard import Scorecard
from nkireview.rules.finding import Finding, Severity

SCHEMA = 1


class ExitCode(IntEnum):
    """0 acceptable; 1 a blocker, report written; 2 could not be judged."""

    acceptable = 0
    blocker = 1
    not_judged = 2


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class Setting(_Record):
    """An argument of the judgement and where it came from."""

    value: str
    origin: str


class Subject(_Record):
    """What was reviewed, for which target, release and LNC."""

    kernel: str
    file: str
    sha256: str = ""
    task: str = ""
    submission: str = ""
    reference: str = ""
    reference_by_author: bool = False
    target: Setting
    release: Setting
    lnc: Setting
    grid: Setting | None = None


class Figures(_Record):
    """Error figures of one output: see `numerics.errors`."""

    scaled_max: float
    rms_ratio: float
    max_ulps: float | None
    max_abs: float
    at: tuple[int, ...]
    got: str
    expected: str
    elements: int
    nonfinite_mismatches: int


class StoredRoundings(_Record):
    """Why an output outside its limits is correct: the roundings of its intermediates, the wider limits that allow for
    them and that it was judged by, and its errors when it is computed without any rounding."""

    count: int = Field(ge=1)
    dtype: str
    over: int = Field(ge=0)
    """Elements outside the limits that allow for no such roundings."""
    limits: dict[str, float]
    unrounded_scaled_max: float
    unrounded_rms_ratio: float


class OutputResult(_Record):
    """One output of one run: ``correct`` needs figures, ``wrong`` needs a reason.

    It was judged by ``limits``, or by those of ``stored`` where that is given.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    status: Literal["correct", "wrong", "not compared"]
    figures: Figures | None = None
    limits: dict[str, float] = Field(default_factory=dict)
    stored: StoredRoundings | None = None
    reason: str = ""

    @model_validator(mode="after")
    def _bound(self) -> OutputResult:
        if self.stored is not None and self.status != "correct":
            raise ValueError(f"an output that is {self.status} is not allowed any stored roundings")
        if self.stored is not None and (
            self.limits.keys() != self.stored.limits.keys()
            or any(self.stored.limits[name] < figure for name, figure in self.limits.items())
        ):
            raise ValueError("the limits that allow for stored roundings are none that are wider")
        if self.status == "correct" and self.figures is None:
            raise ValueError("a correct output needs its error figures")
        if self.status != "correct" and not self.reason:
            raise ValueError(f"an output that is {self.status} needs a reason")
        return self


class Run(_Record):
    """One execution: a workload with a seed, as drawn or with hostile values."""

    workload: str
    seed: int
    inputs: str = "as drawn"
    in_contract: bool = True
    status: Literal["correct", "wrong", "not assessed"]
    outputs: tuple[OutputResult, ...] = ()
    reason: str = ""

    @model_validator(mode="after")
    def _bound(self) -> Run:
        if self.status == "correct" and not self.outputs:
            raise ValueError("a correct run needs its outputs")
        if self.status == "not assessed" and not self.reason:
            raise ValueError("a run that was not assessed needs a reason")
        return self


class Legality(_Record):
    """Whether the program is legal on the target; ``illegal`` carries the number of violations."""

    status: Literal["legal", "illegal", "not assessed"]
    violations: int = 0
    reason: str = ""


class CountsRecord(_Record):
    """What a workload's program consists of."""

    workload: str
    instructions: int
    by_engine: dict[str, int]
    by_opcode: dict[str, int]
    bytes_by_route: dict[str, int]
    multiply_accumulates: int
    dma_transfers: int
    assumed_trips: bool = False


class LaneRecord(_Record):
    """One queue in time: ns busy, share of the predicted time, and the share busy in equal steps of it."""

    name: str
    core: int = 0
    busy_ns: float
    share: float
    activity: tuple[float, ...] = ()


class PathStep(_Record):
    """What the critical path spends on one line and instruction, and what it waited for there."""

    place: str
    opcode: str
    ns: float
    share: float
    waits: str = ""


class LineCost(_Record):
    """What one line's instructions of one name cost: how many, ns on their queue, ns of DMA transfers, ns on the
    critical path, bytes. Transfers overlap each other, so theirs is what they would take one after the other."""

    place: str
    opcode: str
    lane: str
    instructions: int
    held_ns: float
    transfer_ns: float = 0.0
    critical_ns: float = 0.0
    bytes: int = 0


class MemoryCurve(_Record):
    """Bytes a partition in use over time; a step curve: `used[i]` holds from `at_ns[i]` on."""

    memory: Literal["SBUF", "PSUM"]
    core: int = 0
    usable: int
    peak: int
    peak_place: str = ""
    at_ns: tuple[float, ...] = ()
    used: tuple[int, ...] = ()


class TimeRecord(_Record):
    """What the timing model predicts for a workload; a prediction is never without its range."""

    workload: str
    total_ns: float
    low_ns: float
    high_ns: float
    bound: Literal["memory", "compute", "issue", "latency"]
    bound_by: str
    floor_ns: float
    """The work at the documented rates and nothing else: bytes that must move over HBM, or FLOPs over the peak."""
    overlap: float
    """Share of the DMA transfer time during which an engine computes."""
    lanes: tuple[LaneRecord, ...] = ()
    critical: tuple[PathStep, ...] = ()
    lines: tuple[LineCost, ...] = ()
    """The lines with the longest time: on their queue, in transfers or on the critical path."""
    memory: tuple[MemoryCurve, ...] = ()
    assumed: tuple[str, ...] = ()


class ReviewRecord(_Record):
    """A whole review."""

    schema_version: int = SCHEMA
    tool: str
    subject: Subject
    status: Literal["acceptable", "rejected", "not reviewed"]
    reason: str = ""
    legality: Legality
    runs: tuple[Run, ...] = ()
    counts: tuple[CountsRecord, ...] = ()
    times: tuple[TimeRecord, ...] = ()
    findings: tuple[Finding, ...] = ()
    measures: dict[str, float] = Field(default_factory=dict)
    """Measures by name, as listed in ``rubric/measures.toml``."""
    scorecard: Scorecard | None = None
    strengths: tuple[str, ...] = ()
    """What was done well, with this run's figures."""
    not_checked: tuple[str, ...] = ()
    isolation_held: tuple[str, ...] = ()
    isolation_not_held: tuple[str, ...] = ()
    stubs: tuple[str, ...] = ()
    seconds: dict[str, float] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _bound(self) -> ReviewRecord:
        blocked = any(finding.severity is Severity.blocker for finding in self.findings)
        if self.status == "acceptable" and blocked:
            raise ValueError("an acceptable review has no blocker")
        if self.status == "rejected" and not blocked:
            raise ValueError("a rejected review names its blocker")
        if self.status == "not reviewed" and not self.reason:
            raise ValueError("a review that did not happen says why")
        return self

    @property
    def identity(self) -> str:
        """A digest of what was judged and by what: kernel, target, release, LNC, task and rubric; `Edit.of`."""
        subject = self.subject
        judged = (
            subject.sha256,
            subject.kernel,
            subject.target.value,
            subject.release.value,
            subject.lnc.value,
            subject.task,
            "" if self.scorecard is None else self.scorecard.rubric,
            *(() if subject.grid is None else (subject.grid.value,)),
        )
        return sha256(json.dumps(judged).encode()).hexdigest()

    @property
    def exit_code(self) -> ExitCode:
        """What the process exits with."""
        if self.status == "not reviewed":
            return ExitCode.not_judged
        return ExitCode.acceptable if self.status == "acceptable" else ExitCode.blocker


class OutputSummary(_Record):
    """One output of a run: shape, range over its finite values and, with a reference, its errors."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    minimum: float
    maximum: float
    mean: float
    nonfinite: int
    scaled_max: float | None = None
    rms_ratio: float | None = None
    max_ulps: float | None = None
    mismatches: int | None = None


class RunSummary(_Record):
    """What one run of a kernel showed, without a judgement."""

    schema_version: int = SCHEMA
    kernel: str
    target: str
    release: str
    seed: int
    counts: CountsRecord
    violations: tuple[str, ...]
    faults: tuple[str, ...]
    outputs: tuple[OutputSummary, ...]

"""What a review holds once it is done: plain, validated, frozen records that reports render."""

from __future__ import annotations

import json
from enum import IntEnum
from hashlib import sha256
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from nkireview.numbers_record import NumbersRecord
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

    It was judged by ``limits``, or by those of ``stored`` where that is given. explained: an output beyond its limits
    that is right all the same; the most that any element uses of what the kernel's own arithmetic explains there.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    status: Literal["correct", "wrong", "not compared"]
    figures: Figures | None = None
    limits: dict[str, float] = Field(default_factory=dict)
    stored: StoredRoundings | None = None
    explained: float | None = Field(default=None, ge=0, le=1)
    reason: str = ""

    @model_validator(mode="after")
    def _bound(self) -> OutputResult:
        if self.explained is not None and (self.status != "correct" or self.stored is not None):
            raise ValueError("only an output that is correct, without stored roundings, can be explained")
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


class OrderDifference(_Record):
    """An output of other bits in another order: the element that differs most, its value in the ordinary order and in
    the other (``nan``: undefined), and whether both keep within the output's limits."""

    output: str
    order: str
    at: tuple[int, ...]
    first: str
    second: str
    elements: int = Field(ge=1)
    within_limits: bool


class OrdersRecord(_Record):
    """Determinism of a workload: the other legal orders in which it was executed, and what differs. None was tried
    where every legal order gives the same bits, because no memory is shared without an order."""

    workload: str
    tried: tuple[str, ...] = ()
    differing: tuple[OrderDifference, ...] = ()

    @model_validator(mode="after")
    def _bound(self) -> OrdersRecord:
        if not {each.order for each in self.differing} <= set(self.tried):
            raise ValueError("an order that differs is none that was tried")
        return self


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


class MapLine(_Record):
    """The buffers that one line makes in a memory: how many, bytes a partition of the largest and of the most that
    are alive at once. Without a place: those of all other lines."""

    place: str = ""
    name: str = ""
    """Of its buffers, where all have the same."""
    buffers: int
    bytes: int
    most: int


class MapBlock(_Record):
    """A rectangle of a memory map: buffers of one line (by its position in `lines`), at bytes [start, stop) of up to
    `partitions` partitions, from `first` to `last`.

    It is one buffer, or several that follow each other at the same place, or, where `buffers` is 0, a stretch of which
    that line's buffers take the largest part; `share` is the part in use. What begins at `usable` or
    above found no room.
    """

    line: int
    name: str = ""
    buffers: int = 1
    partitions: int
    first: float
    last: float
    start: int
    stop: int
    share: float = 1.0


class MemoryMap(_Record):
    """Where the buffers of one memory of a core lie over time, in bytes of a partition.

    Times run from 0 to `end`, in ns of the predicted schedule or in instructions. `physical` includes what is reserved
    above `usable`; `bank` is the size of a bank, None where there are none. `buffers` is how many there are, `homeless`
    how many of them found no room; `whole`: each is a block of its own.
    """

    memory: Literal["SBUF", "PSUM"]
    core: int = 0
    usable: int
    physical: int
    bank: int | None = None
    unit: Literal["ns", "instructions"]
    end: float
    buffers: int
    homeless: int = 0
    whole: bool = True
    lines: tuple[MapLine, ...] = ()
    """Those that take most bytes over time first."""
    blocks: tuple[MapBlock, ...] = ()


class DrawnLane(_Record):
    """A lane of a drawn timeline: slices that overlap lie in several rows."""

    core: int
    name: str
    rows: int


class DrawnTimeline(_Record):
    """What is drawn of a timeline: `slices` of the `whole` number, in columns of integers with spaces between them.

    A column whose values are all the same has one. `lane`, `name`, `place`, `operands` and `wait` are positions in the
    texts, `blocker` is the position of the slice that was waited for, -1 is none. `start` is a step from the slice
    before, `length` and `latency` (from the end of a slice to its result) are times, as `end` is, in tenths of ns.
    Merged slices begin within `step_ns` of each other; `count` is how many are one, `busy` how long they take together.
    """

    slices: int
    whole: int
    step_ns: float = 0.0
    end: int
    lanes: tuple[DrawnLane, ...]
    names: tuple[str, ...]
    places: tuple[str, ...]
    operands: tuple[str, ...]
    waits: tuple[str, ...]
    columns: dict[str, str]


class TimeRecord(_Record):
    """What the timing model predicts for a workload; a prediction is never without its range."""

    workload: str
    total_ns: float
    low_ns: float
    high_ns: float
    basis: str = "as traced"
    """Whether what runs is what is written, or what the compiler is taken to have changed."""
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
    maps: tuple[MemoryMap, ...] = ()
    drawn: DrawnTimeline | None = None
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
    orders: tuple[OrdersRecord, ...] = ()
    numbers: tuple[NumbersRecord, ...] = ()
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


class HeldRecord(_Record):
    """Buffers of one line and size that are alive where a memory is fullest: bytes of each of the partitions, and the
    name of the first, followed by an ellipsis where they differ."""

    place: str
    name: str = ""
    bytes: int
    partitions: int
    count: int


class SpaceRecord(_Record):
    """One memory of a core in bytes a partition: what is usable, and the most that is in use, where and by what."""

    memory: Literal["SBUF", "PSUM"]
    core: int = 0
    usable: int
    physical: int
    peak: int
    peak_instruction: int
    peak_place: str = ""
    alive: tuple[HeldRecord, ...] = ()


class TrafficLine(_Record):
    """What one line moves over one route, such as ``HBM->SBUF``: bytes read at the source, by how many instructions.

    `descriptors` of DMAs are contiguous runs of `descriptor_bytes` on average, 0 for compute instructions;
    `reloaded_bytes` is what is loaded again although it has not changed.
    """

    place: str
    route: str
    bytes: float
    transfers: float
    descriptors: float
    descriptor_bytes: float
    reloaded_bytes: float


class TrafficRecord(_Record):
    """Bytes moved over HBM, what must move at least whatever SBUF holds, and the least with the SBUF of the target.

    `attainable`: something is known to come near the least. `by_route` and `lines` hold what stays on chip as well.
    """

    moved: float
    compulsory: float
    least: float
    least_why: str = ""
    attainable: bool = False
    by_route: dict[str, float] = Field(default_factory=dict)
    lines: tuple[TrafficLine, ...] = ()


class Predicted(_Record):
    """A predicted time with its range, and whether what runs is what is written."""

    total_ns: float
    low_ns: float
    high_ns: float
    basis: str


class WorkloadMemory(_Record):
    """Space and traffic of one workload; `findings` say what does not fit, the smallest change with each.

    A program that breaks a limit is "not legal", or "cannot fit" where the limit is the size of a memory; where an
    instruction then has no meaning, there are no spaces, maps or traffic.
    """

    workload: str
    verdict: Literal["fits", "may not fit", "cannot fit", "not legal"]
    instructions: int
    spaces: tuple[SpaceRecord, ...] = ()
    findings: tuple[Finding, ...] = ()
    traffic: TrafficRecord | None = None
    maps: tuple[MemoryMap, ...] = ()
    predicted: Predicted | None = None
    assumed: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _bound(self) -> WorkloadMemory:
        blocked = any(finding.severity is Severity.blocker for finding in self.findings)
        if blocked != (self.verdict in ("cannot fit", "not legal")):
            raise ValueError(f"a workload that {self.verdict} has {'a' if blocked else 'no'} blocker")
        return self


class MemorySummary(_Record):
    """What a kernel does with the memories of a target, workload by workload; nothing was executed."""

    schema_version: int = SCHEMA
    tool: str
    subject: Subject
    workloads: tuple[WorkloadMemory, ...]

    @property
    def exit_code(self) -> ExitCode:
        """What the process exits with: 1 where a workload cannot fit or is not legal."""
        cannot = any(workload.verdict in ("cannot fit", "not legal") for workload in self.workloads)
        return ExitCode.blocker if cannot else ExitCode.acceptable


class NumericsSummary(_Record):
    """The numbers of a kernel, workload by workload; `notes`: what was left out, and why."""

    schema_version: int = SCHEMA
    tool: str
    subject: Subject
    numbers: tuple[NumbersRecord, ...] = Field(min_length=1)
    notes: tuple[str, ...] = ()

    @property
    def exit_code(self) -> ExitCode:
        """What the process exits with: 1 where some output is wrong beyond what rounding explains."""
        wrong = any(item.verdict == "defect" for item in self.numbers)
        return ExitCode.blocker if wrong else ExitCode.acceptable

"""What a review records of its numbers: error against what rounding explains, causes, costs of roundings."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class CauseRecord(_Record):
    """Why an output is wrong: a stable name, one sentence, ``file:line``, and what shows it."""

    name: str
    sentence: str
    place: str = ""
    evidence: str


class PatternRecord(_Record):
    """A pattern of the wrong elements, and the share of them that it accounts for."""

    name: str
    sentence: str
    explains: float


class RoundingCost(_Record):
    """What the roundings of one line alone do: the largest error, and its share of what rounding may do in all."""

    place: str
    opcode: str
    dtype: str
    instructions: int
    error: float
    share: float


class HeatMap(_Record):
    """The largest use of the allowed error in each cell of an output, seen as a matrix.

    use: row after row, at most 32 x 32 cells of ``row_step`` x ``column_step`` elements; -1 where a NaN or infinity is
    not the reference's.
    """

    rows: int
    columns: int
    row_step: int
    column_step: int
    use: tuple[float, ...]


class Histogram(_Record):
    """Errors in units of the output's spacing at the reference: ``counts[i]`` are at most ``edges[i]`` and above the
    edge before; the last count is of what is above all edges."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]


class Growth(_Record):
    """How the error of a running sum grows: after so many additions at ``place`` its rms error over its own rms.

    expected: what rounding is expected to do.
    """

    place: str
    dtype: str
    additions: tuple[int, ...]
    error: tuple[float, ...]
    expected: tuple[float, ...]


class Chosen(_Record):
    """The tolerance that we would choose: ``|e| <= rtol * |ref| + atol * rms(row)``, of the row of the reference."""

    rtol: float
    atol: float


class LetThrough(_Record):
    """A defect that the task's own tolerance does not notice on these inputs."""

    name: str
    sentence: str
    place: str = ""


class OutputNumbers(_Record):
    """One output: the largest use of what rounding explains, where, and the shape of the error.

    use: None where it is infinite. zeros: the share of elements, those apart that are zero, that the tolerance in
    force would let be zero.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    verdict: Literal["rounding", "defect"]
    use: float | None
    over: int
    at: tuple[int, ...]
    got: str
    expected: str
    chosen: Chosen | None = None
    patterns: tuple[PatternRecord, ...] = ()
    heat: HeatMap | None = None
    ulps: Histogram | None = None
    zeros: float | None = None


class PlatformNumbers(_Record):
    """What the same computation gives on another platform: its error, as a share of the rms of the output."""

    platform: str
    output: str
    max_error: float
    rms_error: float
    ulps: float | None = None


class AuditLine(_Record):
    """What another precision at one line would do: verdict keep, could be, or must be."""

    place: str
    dtype: str
    other: str
    verdict: str
    use: float | None = None
    gain_ns: float = 0.0
    sentence: str = ""


class NumbersRecord(_Record):
    """The numbers of one workload on one set of inputs.

    sentence: all of it in one sentence. deviation: the first line whose value leaves its own float64 shadow. skipped:
    what was cut, and why. own_tolerance: the task's own is in force, of which `let_through` says what it misses.
    """

    workload: str
    inputs: str
    seed: int
    verdict: Literal["rounding", "defect"]
    sentence: str
    outputs: tuple[OutputNumbers, ...] = Field(min_length=1)
    causes: tuple[CauseRecord, ...] = ()
    costs: tuple[RoundingCost, ...] = ()
    deviation: str = ""
    growth: tuple[Growth, ...] = ()
    own_tolerance: bool = False
    let_through: tuple[LetThrough, ...] = ()
    noticed: int = 0
    platforms: tuple[PlatformNumbers, ...] = ()
    between: str = ""
    """One sentence on comparing two platforms."""
    audit: tuple[AuditLine, ...] = ()
    routes: tuple[str, ...] = ()
    domain: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    seconds: float = 0.0

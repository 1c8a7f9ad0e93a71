"""What rules are given: the facts of one review, gathered by the pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from nkireview import hardware
from nkireview.checks.own_tests import OwnTests
from nkireview.checks.source import SourceFacts
from nkireview.checks.survey import Survey
from nkireview.execute import Fault
from nkireview.isa.release import LATEST, Release
from nkireview.program.program import Program
from nkireview.program.verify import Violation
from nkireview.schedule.timing import Timing


@dataclass(frozen=True)
class Failure:
    """Why there is no Program: `kind` is raised, refused, import, limits, forged, or a runner's status."""

    kind: str
    message: str
    place: str = ""


@dataclass(frozen=True)
class WrongOutput:
    """An output that differs from the reference; `inputs`: which values were given; `cause`: why, where it is known."""

    output: str
    reason: str
    seed: int
    inputs: str
    in_contract: bool
    cause: str = ""


@dataclass(frozen=True)
class RoundedOutput:
    """An output outside its ordinary limits by nothing but the rounding of its stored intermediates.

    `over` of `elements` lie outside their limit; `rms` is the share of its limit that the rms error uses. `roundings`
    to `dtype` lie on the way to it, at `places`; `inputs` says which values were given.
    """

    output: str
    seed: int
    inputs: str
    in_contract: bool
    over: int
    elements: int
    rms: float
    roundings: int
    dtype: str
    places: tuple[str, ...] = ()


@dataclass(frozen=True)
class Unreached:
    """An input that the reference needs for an output, without a path to it in the Program."""

    parameter: str
    output: str
    region: str


@dataclass(frozen=True)
class Difference:
    """An output of which `order` gives other bits than the ordinary order of execution.

    `index`: the element that differs most, a value that is wrong or undefined before others; `first` is what it holds
    in the ordinary order and `second` in the other, NaN where it is undefined. `elements`: how many differ. `within`:
    the output keeps within its limits in both orders. `places`: the lines of what may be to blame, where that is known.
    """

    output: str
    index: tuple[int, ...]
    first: float
    second: float
    order: str
    elements: int
    within: bool = False
    places: tuple[str, ...] = ()


@dataclass(frozen=True)
class Orders:
    """Other orders that a workload was executed in, by name, and what differs; nothing tried: nothing can differ."""

    tried: tuple[str, ...] = ()
    differing: tuple[Difference, ...] = ()


@dataclass(frozen=True)
class ZeroShare:
    """The share of an output's elements, those apart that are zero, which a test lets be zero; at `place`."""

    output: str
    place: str
    share: float
    rtol: float
    atol: float


@dataclass(frozen=True)
class JudgedMutant:
    """A mutant of the kernel, and what the author's tests say of it: killed, survived, or equal to the kernel."""

    name: str
    sentence: str
    place: str
    state: str


@dataclass(frozen=True)
class OwnEvidence:
    """The author's own tests, and what they would notice. alone: nothing else was compared with the kernel."""

    tests: OwnTests
    zeros: Sequence[ZeroShare] = ()
    mutants: Sequence[JudgedMutant] = ()
    alone: bool = False


@dataclass(frozen=True)
class WorkloadFacts:
    """Facts of one workload."""

    name: str
    program: Program | None = None
    failure: Failure | None = None
    violations: Sequence[Violation] = ()
    faults: Sequence[Fault] = ()
    wrong: Sequence[WrongOutput] = ()
    rounded: Sequence[RoundedOutput] = ()
    mismatch: str = ""
    unreached: Sequence[Unreached] = ()
    written_parameters: Sequence[str] = ()
    timing: Timing | None = None
    survey: Survey | None = None
    """Space, traffic and how full the engines are; None without a Program."""
    orders: Orders | None = None
    """None where no other order was considered."""


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
    source: SourceFacts | None = None
    release: Release = LATEST
    own_tests: OwnEvidence | None = None
    """None where nobody looked for tests of the author's."""

    @property
    def generation(self) -> str:
        """NeuronCore generation of the target; that of trn2 where none is named."""
        return hardware.target(self.target or "trn2").generation

"""What a diagnosis says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from nkireview.diagnosis.shadow import Series
from nkireview.diagnosis.tolerance import Tolerance
from nkireview.numerics.patterns import Pattern

Verdict = Literal["rounding", "defect"]
Evidence = Literal[
    "repair", "rounding", "shadow", "not finite", "reference", "pattern", "instability", "alignment"
]


@dataclass(frozen=True)
class Cause:
    """Why an output is wrong: a stable name, one sentence, where, and what shows it."""

    name: str
    sentence: str
    line: str
    evidence: Evidence


@dataclass(frozen=True)
class LineCost:
    """What the roundings of one line cost: the largest error that they alone make, and its share of the allowed."""

    line: str
    opcode: str
    dtype: str
    count: int
    error: float
    share: float


@dataclass(frozen=True, eq=False)
class OutputDiagnosis:
    """One output: its tolerance and how much of it is used.

    use: the largest error over what is allowed there, infinite for a NaN or infinity that the reference has not.
    over: elements beyond it. values: what was compared, as float64.
    """

    name: str
    verdict: Verdict
    tolerance: Tolerance
    use: float
    over: int
    elements: int
    index: tuple[int, ...]
    got: float
    wanted: float
    patterns: tuple[Pattern, ...]
    values: NDArray[np.float64]


@dataclass(frozen=True)
class Diagnosis:
    """Whether the difference from the reference is rounding or a defect, and of what.

    causes: the likeliest first; empty where everything is rounding, and where a defect has no known cause (then
    `deviation` and the patterns are what is known). deviation: the first line whose value leaves its own float64
    shadow. costs: what each narrow rounding costs, the dearest first. growth: of the running sums of largest error.
    skipped: what was cut, and why.
    """

    verdict: Verdict
    outputs: tuple[OutputDiagnosis, ...]
    causes: tuple[Cause, ...]
    costs: tuple[LineCost, ...]
    deviation: str
    growth: tuple[Series, ...]
    skipped: tuple[str, ...]
    seconds: float

    def __post_init__(self) -> None:
        if (self.verdict == "rounding") != all(output.verdict == "rounding" for output in self.outputs):
            raise ValueError("a diagnosis is rounding exactly where each of its outputs is")

    @property
    def sentence(self) -> str:
        """The diagnosis in one sentence."""
        if self.verdict == "rounding":
            worst = max(self.outputs, key=lambda output: output.use)
            return f"rounding explains it: the largest error is {worst.use:.0%} of what is allowed there"
        if self.causes:
            return self.causes[0].sentence
        worst = max(self.outputs, key=lambda output: output.use)
        shown = worst.patterns[0].sentence.rstrip(".") if worst.patterns else "in no pattern that is known"
        shown = shown[:1].lower() + shown[1:]
        return f"output {worst.name} is wrong in {worst.over:,} of {worst.elements:,} elements: {shown}"

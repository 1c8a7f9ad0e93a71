"""Whether a task can be graded at all: kernels that compute nothing must fail its limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from nkireview.numerics.arrays import Array, as_rows, float64, is_floating, windows
from nkireview.numerics.errors import ErrorFigures
from nkireview.numerics.verdict import Verdict

JudgeOutput = Callable[[str, Array], Verdict]

ZEROS = "zeros"


@dataclass(frozen=True)
class VoidReason:
    """A baseline that would pass an output's limits, and the sentence that says so."""

    output: str
    baseline: str
    sentence: str


@dataclass(frozen=True)
class Skipped:
    """A baseline that equals the reference of an output exactly, so passing it shows nothing."""

    output: str
    baseline: str
    sentence: str


@dataclass(frozen=True)
class VoidCheck:
    """The task is void where there is any reason; ``skipped`` names the baselines that showed nothing."""

    reasons: tuple[VoidReason, ...]
    skipped: tuple[Skipped, ...]

    @property
    def void(self) -> bool:
        """Whether the task cannot be graded."""
        return bool(self.reasons)


def void_checks(
    reference_outputs: Mapping[str, Array], inputs: Mapping[str, Array], judge_output: JudgeOutput
) -> VoidCheck:
    """Hold baselines that compute nothing against each output's own limits.

    The baselines are zeros, the mean of a floating reference, every input of the same shape and the same
    class of dtype (floating, integer or bool), and the reference with its rows rotated by one (along the
    last axis where there is one row). ``judge_output(name, candidate)`` judges a candidate as it would
    judge the kernel's output of that name. A task whose every reference is zero is void as well.
    """
    reasons: list[VoidReason] = []
    skipped: list[Skipped] = []
    for name, reference in reference_outputs.items():
        for baseline, candidate in _baselines(reference, inputs):
            if _equal(candidate, reference):
                sentence = f"output {name} is not held against {baseline}: the reference equals it exactly"
                skipped.append(Skipped(name, baseline, sentence))
                continue
            verdict = judge_output(name, candidate)
            if verdict.passed:
                reasons.append(VoidReason(name, baseline, _sentence(name, baseline, verdict)))
    zero = {entry.output for entry in skipped if entry.baseline == ZEROS}
    if reference_outputs and zero == set(reference_outputs):
        sentence = (
            "every output of the reference is zero, so a kernel that only writes zeros passes: "
            "this test cannot grade this task"
        )
        reasons.append(VoidReason(next(iter(reference_outputs)), ZEROS, sentence))
    return VoidCheck(tuple(reasons), tuple(skipped))


def _baselines(reference: Array, inputs: Mapping[str, Array]) -> Iterator[tuple[str, Array]]:
    yield ZEROS, np.zeros_like(reference)
    if is_floating(reference):
        mean = _finite_mean(reference)
        if mean is not None:
            yield "the mean of the reference in every element", np.full_like(reference, mean)
    for name, values in inputs.items():
        if values.shape == reference.shape and _dtype_class(values) == _dtype_class(reference):
            yield f"a copy of input {name}", values
    if reference.ndim and as_rows(reference).shape[0] == 1:
        yield "the reference rotated by one along its row", np.roll(reference, 1).reshape(reference.shape)
    elif reference.ndim:
        yield "the reference with its rows rotated by one", np.roll(reference, 1, axis=_row_axis(reference))


def _row_axis(reference: Array) -> int:
    return next(axis for axis, size in enumerate(reference.shape) if size > 1)


def _dtype_class(array: Array) -> str:
    if is_floating(array):
        return "floating"
    return "bool" if array.dtype.kind == "b" else "integer"


def _finite_mean(reference: Array) -> float | None:
    rows = as_rows(reference)
    total, count = 0.0, 0
    for window in windows(*rows.shape):
        block = float64(rows[window])
        finite = block[np.isfinite(block)]
        total, count = total + float(finite.sum()), count + finite.size
    return total / count if count else None


def _equal(candidate: Array, reference: Array) -> bool:
    have, want = as_rows(candidate), as_rows(reference)
    for window in windows(*want.shape):
        if not np.array_equal(float64(have[window]), float64(want[window]), equal_nan=True):
            return False
    return True


def _sentence(name: str, baseline: str, verdict: Verdict) -> str:
    figures = verdict.comparison
    quoted = ""
    if isinstance(figures, ErrorFigures) and figures.use is not None:
        quoted = (
            f" (scaled max error {figures.scaled_max:.2g}, largest error {figures.max_error:.2g}, "
            f"{100 * figures.use.element:.2g}% of what the limit allows there)"
        )
    return f"{baseline} would pass the tolerance of output {name}{quoted}: this test cannot grade this task"

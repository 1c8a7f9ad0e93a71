"""Passing or failing an output, with the reason in one sentence."""

from __future__ import annotations

from dataclasses import dataclass

from nkireview.numerics.arrays import Array
from nkireview.numerics.errors import Comparison, ErrorFigures, ExactFigures, ShapeMismatch, compare
from nkireview.numerics.limits import Limits

# An absolute term this far below rms(ref) decides nothing and is left out of the sentence.
_NEGLIGIBLE = 1e-6


@dataclass(frozen=True)
class Verdict:
    """Whether an output passes its limits; ``reason`` is empty exactly when it passes."""

    passed: bool
    reason: str
    comparison: Comparison

    def __post_init__(self) -> None:
        if self.passed == bool(self.reason):
            raise ValueError("a failed verdict needs a reason, and a passed one has none")
        if self.passed and isinstance(self.comparison, ShapeMismatch):
            raise ValueError("an output of another shape cannot pass")


def judge(got: Array, ref: Array, limits: Limits) -> Verdict:
    """Compare an output with its float64 reference and hold the figures against ``limits``."""
    return judge_figures(compare(got, ref, limits.dtype, limits), limits)


def judge_figures(comparison: Comparison, limits: Limits) -> Verdict:
    """Hold figures that ``compare`` made with these ``limits`` against them.

    Raise ValueError for floating figures made without limits.
    """
    if isinstance(comparison, ShapeMismatch):
        reasons = [f"the output has shape {comparison.got} and the reference {comparison.ref}"]
    elif isinstance(comparison, ExactFigures):
        reasons = _exact_reasons(comparison)
    else:
        reasons = _floating_reasons(comparison, limits)
    return Verdict(not reasons, "; ".join(reasons), comparison)


def _exact_reasons(figures: ExactFigures) -> list[str]:
    worst = figures.worst
    if worst is None:
        return []
    return [
        f"{_of(figures.mismatches, figures.elements)} differ and {figures.dtype} must match exactly; "
        f"the largest difference is at {list(worst.index)}: got {worst.got:.10g}, expected {worst.ref:.10g}"
    ]


def _floating_reasons(figures: ErrorFigures, limits: Limits) -> list[str]:
    use, worst, wrong = figures.use, figures.worst, figures.nonfinite
    if use is None:
        raise ValueError("these figures were made without limits: give compare the limits to judge by")
    reasons = []
    if wrong is not None:
        reasons.append(
            f"{_of(wrong.count, figures.elements)} differ in NaN or infinity; "
            f"the first is at {list(wrong.index)}: got {wrong.got:.6g}, expected {wrong.ref:.6g}"
        )
    if worst is None:
        return reasons or ["no element of the reference is finite, so nothing can be judged"]
    scale = "the rms of its row" if limits.per_row else "rms(ref)"
    if use.over:
        reasons.append(
            f"{_of(use.over, figures.finite)} exceed {limits.rtol:.2g} x |ref| + {limits.atol:.2g} x {scale}"
            f"{f' + {limits.absolute:.2g}' if limits.absolute > _NEGLIGIBLE * figures.rms_ref else ''}; "
            f"the largest error {worst.error:.2g} is at {list(worst.index)}: "
            f"got {worst.got:.6g}, expected {worst.ref:.6g} (scaled max error {figures.scaled_max:.2g})"
        )
    if use.rms > 1:
        reasons.append(
            f"the rms error is {figures.rms_ratio:.3g} of the reference's rms, limit {use.rms_limit:.3g}"
        )
    return reasons


def _of(count: int, total: int) -> str:
    return f"{count:,} of {total:,} elements ({_percent(count, total)})"


def _percent(count: int, total: int) -> str:
    share = 100 * count / total
    return f"{share:.1f}%" if 99 < share < 100 else f"{share:.0f}%" if share >= 10 else f"{share:.2g}%"

"""The numbers of a kernel in words: the same on a terminal, in Markdown and on a page."""

from __future__ import annotations

import math
from collections.abc import Sequence

from nkireview.numbers_record import CauseRecord, Growth, NumbersRecord, OutputNumbers, PlatformNumbers
from nkireview.report import numbers_pictures as pictures
from nkireview.report import text as words

EVIDENCE = {
    "repair": "with this put right, the output without any rounding is the reference's",
    "rounding": "the rounding of this line alone takes most of what is allowed",
    "shadow": "the first line whose value leaves its own float64 shadow",
    "not finite": "the first value that is no number, where the reference has numbers",
    "reference": "the reference, changed in the same way, gives what the kernel gives",
    "pattern": "the pattern of the wrong elements",
    "instability": "how far this line enlarges errors, measured without rounding",
    "alignment": "what the lines of the kernel read and write, held against the steps of the reference",
}
"""What shows a cause, by the kind of evidence."""
MOST_RECORDS = 24
"""Records that a page shows."""


def use_of(output: OutputNumbers) -> str:
    """How much of the allowed error is used: ``41% of what rounding explains``."""
    if output.use is None and output.chosen is None:
        return "other integers than the reference's, which must be equal"
    if output.use is None:
        return "NaN or infinity that is not the reference's"
    if output.use <= 1:
        return f"{words.percent(output.use)} of what rounding explains"
    return f"{_times(output.use)} times what rounding explains"


def _times(value: float) -> str:
    return f"{value:,.0f}" if 100 <= value < 1e6 else f"{value:.3g}"


def chosen_of(output: OutputNumbers) -> str:
    """The tolerance to choose: ``rtol 3.9e-3, atol 2.1e-6 x rms of the row``; ``exact`` for integers."""
    if output.chosen is None:
        return "equal, as integers are"
    return f"rtol {output.chosen.rtol:.1e}, atol {output.chosen.atol:.1e} x rms of the row"


def named(output: OutputNumbers) -> str:
    """``out bfloat16[128, 512]``."""
    return f"{words.one_line(output.name, 60)} {output.dtype}{list(output.shape)}"


def elements(output: OutputNumbers) -> int:
    """Elements of an output."""
    return math.prod(output.shape)


def worst(output: OutputNumbers) -> str:
    """The worst element: ``worst at [3, 5]: 1.25 where the reference has 1.5``."""
    where = f"worst at {list(output.at)}" if output.at else "worst"
    return f"{where}: {_short(output.got)} where the reference has {_short(output.expected)}"


def _short(number: str) -> str:
    try:
        return f"{float(number):.6g}"
    except ValueError:
        return words.one_line(number, 40)


def title(found: NumbersRecord) -> str:
    """Which inputs: ``small, as drawn, seed 0``."""
    return words.one_line(f"{found.workload}, {found.inputs}, seed {found.seed}", 120)


def shown_by(cause: CauseRecord) -> str:
    """What shows a cause, in words."""
    return EVIDENCE.get(cause.evidence, words.one_line(cause.evidence, 300))


def cause_of(cause: CauseRecord) -> str:
    """``eps-missing at kernel.py:12: ...``."""
    at = f" at {cause.place}" if cause.place else ""
    return f"{cause.name}{at}: {cause.sentence}"


def zeros_of(output: OutputNumbers) -> str:
    """How much the task's tolerance would let be zero; empty where it sets none."""
    if output.zeros is None:
        return ""
    return f"{words.percent(output.zeros)} of {words.one_line(output.name, 60)} could be zero"


def own_of(found: NumbersRecord) -> str:
    """What the task's own tolerance lets through, in one sentence; empty where it sets none."""
    if not found.own_tolerance:
        return ""
    zeros = [text for text in map(zeros_of, found.outputs) if text]
    tried = found.noticed + len(found.let_through)
    text = "the task's own tolerance"
    parts = [f"{', '.join(zeros)} unnoticed"] if zeros else []
    if tried:
        parts.append(f"{found.noticed} of {tried} planted defects noticed")
    return words.one_line(f"{text}: {'; '.join(parts) or 'nothing was planted to try it'}")


def grown(found: Growth) -> str:
    """How a running sum's error grew, in one sentence; empty where nothing was measured."""
    if not found.additions:
        return ""
    at = f" at {found.place}" if found.place else ""
    dtype = f" in {found.dtype}" if found.dtype else ""
    return (
        f"the sum{at}{dtype}: after {found.additions[-1]:,} additions its error is {found.error[-1]:.1e} of its size, "
        f"where {found.expected[-1]:.1e} is expected"
    )


def platform_of(item: PlatformNumbers) -> str:
    """``gpu-tf32: largest error 1.2e-03 of the rms, rms 2.0e-04``."""
    ulps = f", {item.ulps:.3g} ulps" if item.ulps is not None else ""
    return f"{item.platform}: largest error {item.max_error:.1e} of the rms{ulps}, rms {item.rms_error:.1e}"


def lists_of(found: NumbersRecord) -> tuple[tuple[str, Sequence[str]], ...]:
    """What is told as sentences, under one heading each; lines that keep their precision are one of them."""
    changed = [item.sentence for item in found.audit if item.verdict != "keep"]
    kept = len(found.audit) - len(changed)
    if kept:
        changed.append(f"{kept} {'line keeps its' if kept == 1 else 'lines keep their'} precision")
    return (
        ("Precision", changed),
        ("Routes", tuple(dict.fromkeys(found.routes))),
        ("Sizes", found.domain),
        ("Skipped", found.skipped),
    )


def verdict(records: Sequence[NumbersRecord]) -> str:
    """All numbers of a review in one sentence."""
    wrong = [item for item in records if item.verdict == "defect"]
    if not wrong:
        most = max(
            (output.use for item in records for output in item.outputs if output.use is not None), default=0.0
        )
        return (
            f"rounding explains every difference: at most {words.percent(most)} of what it explains is used"
        )
    first = wrong[0]
    name = f"{first.workload}, {first.inputs}: " if len(records) > 1 else ""
    more = f"; and {len(wrong) - 1} more" if len(wrong) > 1 else ""
    return words.one_line(f"not rounding: {name}{first.sentence}{more}")


def summary_of(found: NumbersRecord) -> str:
    """Verdict and how much is used: ``rounding, 41% of what it explains``; a defect with the name of its cause."""
    if found.verdict == "rounding":
        most = max((output.use for output in found.outputs if output.use is not None), default=0.0)
        return f"rounding, {words.percent(most)} of what it explains"
    return f"defect{f': {found.causes[0].name}' if found.causes else ''}"


def portion(share: float) -> str:
    """A share of what is allowed: ``41%``, ``37 times``."""
    return words.percent(share) if share <= 1 else f"{_times(share)} times"


def brief(records: Sequence[NumbersRecord]) -> list[str]:
    """The numbers of a review: a sentence, then causes; uses per output where something is wrong. Nothing of none."""
    if not records:
        return []
    lines = [verdict(records)]
    for found in records:
        lines += [f"{cause_of(cause)} (shown by: {shown_by(cause)})" for cause in found.causes]
    for found in records:
        if found.verdict == "defect":
            lines += [
                f"{named(output)}: {use_of(output)}; {worst(output)}"
                for output in found.outputs
                if output.verdict == "defect"
            ]
    return lines


def page_words() -> dict[str, object]:
    """What the templates of numbers call."""
    return {
        "told": {
            "use": use_of,
            "chosen": chosen_of,
            "named": named,
            "elements": elements,
            "worst": worst,
            "title": title,
            "shown_by": shown_by,
            "own": own_of,
            "grown": grown,
            "portion": portion,
            "lists": lists_of,
            "verdict": verdict,
            "summary": summary_of,
        },
        "drawings": pictures,
        "most_numbers": MOST_RECORDS,
    }

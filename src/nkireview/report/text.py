"""Text that every form shares: figures with units and ranges, places, and strings made harmless."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Protocol

from nkireview.isa.release import LEGACY
from nkireview.record import OutputResult, ReviewRecord, Run, Subject, TimeRecord
from nkireview.rubric.scorecard import Edit
from nkireview.rubric.text import points
from nkireview.rules.finding import Finding, Severity

SILENCE = "Silence means that no known pattern was found."
UNRANGED = "no range: there is no predicted time"
UNEXECUTED = "no blocker found"
UNORDERED = frozenset({"NKR023", "NKR025", "NKR028"})
"""Rules by which something has no order, although no other order of instructions shows it."""
"""The verdict where nothing is wrong and nothing was executed."""
AS_DRAWN = "as drawn"
"""What a run calls inputs that were not changed after they were drawn."""
LONGEST = 2000
"""Most characters of one message that a form shows; review.json holds it whole."""

_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u115f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
    "|[\U000e0000-\U000e007f]"
)
_COMMAND = re.compile(r"(^|(?<=\s))::(?=[\w-])")
_TIMES = ((1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns"))
_SIZES = ((1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB"))


def escape_controls(text: str) -> str:
    """Control, bidirectional, zero-width and surrogate characters as visible escapes; line ends and tabs stay."""
    return _UNSAFE.sub(_visible, text.replace("\r\n", "\n"))


def _visible(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def one_line(text: str, longest: int = LONGEST) -> str:
    """A text on one line of at most `longest` characters, without controls or workflow commands."""
    joined = _COMMAND.sub(r"\1: :", " ".join(escape_controls(text).split()))
    return clip(joined, longest)


def clip(text: str, longest: int) -> str:
    """A text of at most `longest` characters; an ellipsis says that there was more."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _unit(ns: float) -> tuple[float, str]:
    rounded = float(f"{ns:.3g}")
    return next(((scale, unit) for scale, unit in _TIMES if rounded >= scale), _TIMES[-1])


def _digits(value: float, digits: int) -> str:
    """A value of at least zero to some significant digits, without an exponent."""
    if value == 0:
        return "0"
    places = max(0, digits - 1 - math.floor(math.log10(float(f"{value:.{digits}g}"))))
    return f"{float(f'{value:.{digits}g}'):,.{places}f}"


def duration(ns: float) -> str:
    """A time to three digits: ``28.3 ms``."""
    if not math.isfinite(ns):
        return "not finite"
    scale, unit = _unit(ns)
    return f"{_digits(ns / scale, 3)} {unit}"


def _outward(value: float, up: bool) -> float:
    """A value to two digits, away from the middle of its range, so that the range shown holds the one meant."""
    exact = float(f"{value:.6g}")
    if exact == 0 or not math.isfinite(exact):
        return exact
    step = 10.0 ** (math.floor(math.log10(exact)) - 1)
    steps = round(exact / step, 6)
    return (math.ceil(steps) if up else math.floor(steps)) * step


def ranged(value_ns: float, low_ns: float, high_ns: float, basis: str = "") -> str:
    """A predicted time with its range in the same unit, rounded outwards: ``28.3 ms (25 to 32 ms)``.

    `basis` is what the range rests on, where that is not always the same: ``28.3 ms (25 to 32 ms, as traced)``.
    """
    scale, unit = _unit(value_ns)
    low = _digits(_outward(low_ns / scale, up=False), 2)
    high = _digits(_outward(high_ns / scale, up=True), 2)
    return f"{duration(value_ns)} ({low} to {high} {unit}{f', {basis}' if basis else ''})"


def predicted(time: TimeRecord, release: str) -> str:
    """The predicted time of a workload with its range and bound: ``28.3 ms (25 to 32 ms), compute-bound``.

    Of the legacy generation also whether what runs is what is written; of the others it always is.
    """
    basis = basis_of(time.basis, release)
    return f"{ranged(time.total_ns, time.low_ns, time.high_ns, basis)}, {time.bound}-bound"


def basis_of(basis: str, release: str) -> str:
    """What a prediction rests on; empty for a release whose programs always run as they are written."""
    return basis if release == str(LEGACY) else ""


def gain_range(finding: Finding, times: Sequence[TimeRecord]) -> tuple[float, float] | None:
    """The range of a finding's gain in ns: the widest relative range of its workloads' predicted times."""
    if finding.gain_ns is None:
        return None
    named = {name.strip() for name in finding.workload.split(",")}
    known = [time for time in times if time.total_ns > 0]
    known = [time for time in known if time.workload in named] or known
    if not known:
        return None
    low = min(time.low_ns / time.total_ns for time in known)
    high = max(time.high_ns / time.total_ns for time in known)
    return finding.gain_ns * low, finding.gain_ns * high


def gain(finding: Finding, times: Sequence[TimeRecord]) -> str:
    """What a change is predicted to save, with its range; empty where nothing is predicted."""
    if finding.gain_ns is None:
        return ""
    found = gain_range(finding, times)
    if found is None:
        return f"{duration(finding.gain_ns)} ({UNRANGED})"
    return ranged(finding.gain_ns, *found)


def size(number: float) -> str:
    """Bytes with a unit: ``24.0 KiB``."""
    return next(
        (f"{number / scale:,.1f} {unit}" for scale, unit in _SIZES if number >= scale), f"{number:g} B"
    )


def percent(share: float) -> str:
    """A share as a percentage without decimals."""
    return f"{share:.0%}" if math.isfinite(share) else "not finite"


def score(value: float | None) -> str:
    """A score of 0 to 4."""
    return "not assessed" if value is None else f"{value:.1f}"


def figure(value: float | None) -> str:
    """An error figure."""
    if value is None:
        return ""
    return f"{value:.2e}" if math.isfinite(value) else "not finite"


def measure(value: float) -> str:
    """The value of a measure."""
    return f"{value:,.4g}" if abs(value) < 1e6 else f"{value:.3e}"


def place_of(place: str) -> tuple[str, int | None]:
    """File and line of ``file:line``; the line is None where there is none."""
    file, _, line = place.rpartition(":")
    return (file, int(line)) if file and re.fullmatch(r"[1-9][0-9]{0,8}", line) else (place, None)


class Named(Protocol):
    """What tells its subject: a review, or what a command shows without one."""

    @property
    def subject(self) -> Subject: ...


def subject_name(record: Named) -> str:
    """What was reviewed: ``task/submission``, or the file."""
    subject = record.subject
    return one_line(f"{subject.task}/{subject.submission}" if subject.task else subject.file, 200)


def settings(record: Named) -> str:
    """Target, release, LNC and, of a kernel that has one, the launch grid, each with its origin."""
    subject = record.subject
    named = [("", subject.target), ("NKI ", subject.release), ("LNC ", subject.lnc)]
    if subject.grid is not None:
        named.append(("grid ", subject.grid))
    return one_line(", ".join(f"{name}{item.value} ({item.origin})" for name, item in named), 200)


def total(record: ReviewRecord) -> str:
    """The total with what caps it; says so where nothing was scored."""
    card = record.scorecard
    if card is None or card.total is None:
        return "not assessed"
    text = f"{points(card.total)} of 100"
    if card.cap is not None and card.uncapped is not None and card.uncapped > card.total:
        by = f" by {', '.join(card.capped_by)}" if card.capped_by else ""
        text += f" (capped{by}; {points(card.uncapped)} without the cap)"
    return text


def edit(change: Edit) -> str:
    """A reviewer's change in one sentence."""
    by = f"{change.who} ({change.when})"
    if change.kind == "accept":
        return one_line(f"{by} accepted {change.code}: {change.why}")
    levels = f"from {score(change.before)} to {score(change.after)}"
    return one_line(f"{by} changed {change.criterion} {levels}: {change.why}")


def executed(record: ReviewRecord) -> bool:
    """Whether any run says whether the result is right."""
    return any(run.status != "not assessed" for run in record.runs)


def verdict(record: ReviewRecord) -> str:
    """The verdict for people: a kernel that was not executed is not called acceptable."""
    return UNEXECUTED if record.status == "acceptable" and not executed(record) else record.status


def numbered(record: ReviewRecord) -> list[tuple[int, Finding]]:
    """Findings by severity, each with its position in the record."""
    return sorted(enumerate(record.findings), key=lambda item: item[1].severity.rank)


def tally(record: ReviewRecord) -> str:
    """How many findings of each severity there are."""
    counts = dict.fromkeys(Severity, 0)
    for finding in record.findings:
        counts[finding.severity] += 1
    plural = {Severity.blocker: "blockers", Severity.note: "notes"}
    return ", ".join(
        f"{number} {plural.get(severity, severity.value) if number > 1 else severity.value}"
        for severity, number in counts.items()
        if number
    )


def correctness(record: ReviewRecord) -> str:
    """The runs in one sentence: how many were correct, on which inputs not, the worst error of the correct ones."""
    if not record.runs:
        return "not assessed: nothing was executed"
    wrong = [run for run in record.runs if run.status == "wrong"]
    asked = [run for run in wrong if run.in_contract]
    right = sum(run.status == "correct" for run in record.runs)
    text = f"{right} of {len(record.runs)} runs correct against the float64 reference"
    if asked:
        text = f"wrong {_kinds(asked)}; {text}"
    elif wrong:
        text += f"; wrong {_kinds(wrong)}, which the contract does not ask for"
    worst = max((item.figures.scaled_max for item in correct_outputs(record) if item.figures), default=None)
    if worst is not None:
        text += f"; largest error of these {figure(worst)} of the rms"
    return one_line(text)


def determinism(record: ReviewRecord) -> str:
    """Whether other orders of execution give the same bits, in one sentence; empty where none was considered."""
    if not record.orders:
        return ""
    tried = list(dict.fromkeys(name for item in record.orders for name in item.tried))
    differing = [each for item in record.orders for each in item.differing]
    if not tried and UNORDERED & {finding.code for finding in record.findings}:
        return ""
    if not tried:
        return "every legal order gives the same bits: no shared place without an order"
    if not differing:
        return one_line(f"the same bits in {_counted(tried, 'other order')}")
    names = list(dict.fromkeys(each.order for each in differing))
    rest = "only by rounding" if all(each.within_limits for each in differing) else "beyond the limits"
    return one_line(f"other bits in {_counted(names, 'order')} of the {len(tried)} tried, {rest}")


def _counted(names: Sequence[str], what: str) -> str:
    """A number of things with their names: ``2 orders (DMAs late, DMAs early)``."""
    return f"{len(names)} {what}{'s' if len(names) > 1 else ''} ({', '.join(names)})"


def correct_outputs(record: ReviewRecord) -> list[OutputResult]:
    """The correct outputs of all runs, those with figures."""
    return [item for run in record.runs for item in run.outputs if item.status == "correct" and item.figures]


def _kinds(runs: Sequence[Run]) -> str:
    """Which inputs: ``as drawn and on scale-100, tiny-rows inputs``."""
    names = list(dict.fromkeys(run.inputs for run in runs))
    hostile = ", ".join(name for name in names if name != AS_DRAWN)
    parts = [AS_DRAWN] if AS_DRAWN in names else []
    return " and ".join([*parts, *([f"on {hostile} inputs"] if hostile else [])])


def legality(record: ReviewRecord) -> str:
    """Whether the program is legal, in one clause."""
    found = record.legality
    text: str = found.status
    if found.violations:
        text += f", {found.violations:,} instruction{'s' if found.violations > 1 else ''} break a limit"
    return one_line(text + (f" ({found.reason})" if found.reason else ""))


def next_step(record: ReviewRecord) -> str:
    """What to do first."""
    if record.status == "not reviewed":
        return one_line(f"make the review possible: {record.reason}")
    above = [finding for _, finding in numbered(record) if finding.severity is not Severity.note]
    if not above and not executed(record):
        return "execute the kernel against a reference: nothing says yet whether its result is right"
    if not above:
        return "nothing above a note was found; check what was not checked"
    first = above[0]
    where = f" at {first.places[0]}" if first.places else ""
    return one_line(f"{first.code}{where}: {first.change or first.title or first.message}")

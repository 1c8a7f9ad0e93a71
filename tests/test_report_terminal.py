"""The screen: one window at 80 columns, no line too wide, whole where there is no window, nothing harmful."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from report_kit import (
    SAMPLES,
    bad,
    counts,
    excellent,
    finding,
    hostile,
    middling,
    minor,
    note,
    record,
    time,
    unexecuted,
)
from rich.cells import cell_len
from rich.console import Console

from nkireview.record import OutputSummary, ReviewRecord, RunSummary
from nkireview.report.terminal import PROMPT, print_review, print_run

every_sample = pytest.mark.parametrize("make", SAMPLES.values(), ids=SAMPLES)


def screen(
    made: ReviewRecord, width: int = 80, height: int = 24, terminal: bool = True, **options: Any
) -> str:
    file = io.StringIO()
    color = options.pop("color_system", None)
    console = Console(
        file=file, width=width, height=height, force_terminal=terminal, color_system=color, **options
    )
    print_review(made, console)
    return file.getvalue()


@pytest.mark.parametrize("width", [80, 100, 120])
@pytest.mark.parametrize("make", [bad, middling, excellent, SAMPLES["early"], SAMPLES["not_reviewed"]])
def test_a_review_fits_one_window(make: Any, width: int) -> None:
    lines = screen(make(), width).splitlines()
    assert len(lines) <= 24 - PROMPT


@pytest.mark.parametrize("width", [40, 60, 80, 120])
@every_sample
def test_no_line_is_wider_than_the_window(make: Any, width: int) -> None:
    for line in screen(make(), width).splitlines():
        assert cell_len(line) <= width, line
        assert line == line.rstrip()


def test_the_screen_has_verdict_total_time_findings_strengths_and_gaps_in_order() -> None:
    text = screen(bad())
    wanted = (
        "REJECTED  softmax/wrong: kernel softmax",
        "Score        38 of 100 (capped by NKR020; 62 without the cap)",
        "kernel correctness      ██░░░░░░ 0.8",
        "benchmark claims        not assessed",
        "Time         28.3 ms (25 to 32 ms), compute-bound",
        "Findings     1 blocker, 1 major, 1 minor, 11 notes",
        "blocker NKR020 kernel.py:12 output out is wrong",
        "major   NKR060 kernel.py:10 tiles use 64 of 128",
        "minor   NKR071",
        "Done well    exponentials",
        "Not checked  benchmark claims",
        "Not held     network namespace",
    )
    at = -1
    for part in wanted:
        assert text.find(part, at + 1) > at, part
        at = text.find(part)
    assert "NKR045" not in text


def test_all_eleven_dimensions_are_shown_and_none_as_zero() -> None:
    for width in (60, 80):
        text = screen(bad(), width)
        assert len(re.findall(r"[█░]{8} \d\.\d", text)) == 9 and text.count("not assessed") == 2


def test_a_narrow_window_has_one_dimension_a_line() -> None:
    lines = screen(bad(), 60).splitlines()
    assert sum(bool(re.search(r"[█░]{8}|not assessed$", line)) for line in lines) == 11


def test_without_a_terminal_nothing_is_cut_and_notes_are_listed() -> None:
    text = screen(bad(), 400, terminal=False)
    assert "the first is at [0, 2]: got nan, expected 0" in text
    # the dots of the change are its own
    assert text.count("...") == text.count("... and") + text.count("nisa.activation(...,") == 2
    assert text.count("NKR045") == 8 and "... and 3 more notes in review.json" in text
    assert "1,280 instructions (dma 512, scalar 512, vector 256)" in text and "\x1b" not in text


def test_colour_is_for_terminals_only() -> None:
    assert "\x1b[" in screen(bad(), color_system="standard")
    assert "\x1b[" not in screen(bad(), 400, terminal=False, color_system="auto")


def test_an_output_without_unicode_gets_ascii() -> None:
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    odd = bad().model_copy(update={"strengths": ("μ-kernel ✓",)})
    print_review(odd, Console(file=file, width=80, height=24, force_terminal=True, color_system=None))
    file.seek(0)
    text = file.read()
    assert "##......" in text and "\\u03bc-kernel \\u2713" in text


def test_what_a_submission_wrote_cannot_steer_the_terminal_or_a_workflow() -> None:
    for width in (60, 80, 400):
        text = screen(hostile(), width, terminal=width != 400)
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e]", text)
        assert not re.search(r"^\s*::\w", text, flags=re.M)


def test_many_findings_are_cut_to_the_window_and_counted() -> None:
    many = record(findings=tuple(finding(code=f"NKR{at:03}") for at in range(100, 140)))
    lines = screen(many).splitlines()
    shown = sum("major   NKR" in line for line in lines)
    assert len(lines) <= 24 - PROMPT and shown >= 2
    assert f"  ... and {40 - shown} more in review.md" in lines


def test_a_high_window_shows_messages_whole() -> None:
    text = " ".join(screen(bad(), 80, 60).split())
    assert "got nan, expected 0" in text and "saves 4.10 ms (3.6 to 4.6 ms)" in text


def test_room_goes_to_the_first_findings() -> None:
    made = record(findings=(finding(message="a " * 200), minor()))
    lines = screen(made).splitlines()
    first = next(at for at, line in enumerate(lines) if "NKR060" in line)
    second = next(at for at, line in enumerate(lines) if "NKR071" in line)
    assert second - first >= 3 and lines[second - 2].endswith("...")


def test_blockers_and_majors_say_what_to_change_below_the_finding() -> None:
    lines = screen(bad(), 400, terminal=False).splitlines()
    at = next(at for at, line in enumerate(lines) if "blocker NKR020" in line)
    assert [line[:60] for line in lines[at + 1 : at + 5 : 2]] == [
        "          change: subtract the maximum of the row before exp",
        "          change: make the row tile 128 and halve the number",
    ]
    assert "load several rows in one transfer" not in "".join(lines)


def test_the_first_change_has_room_in_a_small_window() -> None:
    lines = screen(bad()).splitlines()
    at = next(at for at, line in enumerate(lines) if "blocker NKR020" in line)
    assert lines[at + 1] == "          change: subtract the maximum of the row before exp:..."
    lines = screen(middling()).splitlines()
    assert "          change: make the row tile 128 and halve the number of turns" in lines


def test_a_change_is_cut_to_its_lines_and_leaves_the_message_the_rest() -> None:
    made = record(findings=(finding(message="m " * 200, change="c " * 200),))
    lines = screen(made, height=60).splitlines()
    at = next(at for at, line in enumerate(lines) if "NKR060" in line)
    shown = [line.split()[0] for line in lines[at : at + 6]]
    assert shown == ["major", "m", "m", "m", "change:", "c"]
    assert lines[at + 3].endswith("...") and lines[at + 5].endswith("...")


def test_nothing_executed_is_not_called_acceptable() -> None:
    lines = screen(unexecuted()).splitlines()
    assert lines[0] == "NO BLOCKER FOUND  softmax/wrong: kernel softmax"
    assert lines[2].startswith(
        "Why          nothing was executed: whether the result is right was not looked"
    )


def ran(**changes: Any) -> str:
    output = OutputSummary(
        name="out", dtype="float32", shape=(2, 3), minimum=0, maximum=1, mean=0.5, nonfinite=0, **changes
    )
    summary = RunSummary(
        kernel="k",
        target="trn2",
        release="0.6",
        seed=0,
        counts=counts(),
        violations=(),
        faults=(),
        outputs=(output,),
    )
    file = io.StringIO()
    print_run(summary, Console(file=file, width=120, color_system=None))
    return file.getvalue()


def test_a_run_has_columns_of_errors_only_where_it_was_compared() -> None:
    assert "rms" not in ran() and "ulps" not in ran()
    compared = ran(scaled_max=1.5e-7, rms_ratio=2e-8, max_ulps=1.0)
    assert "max|e|/rms  rms ratio  ulps" in compared and "1.50e-07   2.00e-08   1.0" in compared
    assert "6 differ" in ran(mismatches=6)


def test_several_workloads_are_named_and_folded() -> None:
    names = [f"w{at}" for at in range(5)]
    made = record(times=tuple(time(name) for name in names), counts=tuple(counts(name) for name in names))
    text = screen(made)
    assert "w0: 28.3 ms (25 to 32 ms)" in text and "and 2 shorter" in text and "w3:" not in text
    assert "w4: 28.3 ms" in screen(made, 400, terminal=False)


def test_notes_alone_are_counted() -> None:
    text = screen(record(findings=(note(), note(1))))
    assert "Findings     2 notes" in text and "NKR045" not in text

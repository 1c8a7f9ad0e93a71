"""Text of the reports: figures with their range, places, harmless strings; expected values worked out by hand."""

from __future__ import annotations

import io
import unicodedata

import pytest
from report_kit import (
    NASTY,
    bad,
    early,
    excellent,
    finding,
    not_reviewed,
    record,
    run,
    time,
    wrong_run,
)
from rich.console import Console

from nkireview.grading.record import Best, Summary
from nkireview.report import text as words
from nkireview.report.summary import print_summary
from nkireview.rubric.scorecard import Edit
from nkireview.rubric.text import points


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"),
        (7.4, "7.40 ns"),
        (999.4, "999 ns"),
        (999.6, "1.00 us"),
        (28_300_000, "28.3 ms"),
        (999_700, "1.00 ms"),
        (1.5e9, "1.50 s"),
        (4.2e12, "4,200 s"),
        (float("nan"), "not finite"),
    ],
)
def test_a_time_has_three_digits(ns: float, text: str) -> None:
    assert words.duration(ns) == text


@pytest.mark.parametrize(
    ("value", "low", "high", "text"),
    [
        (28.3e6, 25.0e6, 31.6e6, "28.3 ms (25 to 32 ms)"),
        (28.3e6, 24.9e6, 32.1e6, "28.3 ms (24 to 33 ms)"),
        (1.04e6, 1.02e6, 1.043e6, "1.04 ms (1.0 to 1.1 ms)"),
        (283e3, 251e3, 319e3, "283 us (250 to 320 us)"),
        (1.1e6, 0.95e6, 1.25e6, "1.10 ms (0.95 to 1.3 ms)"),
        (0, 0, 0, "0 ns (0 to 0 ns)"),
        (1.0e6, 0.0, 2.0e6, "1.00 ms (0 to 2.0 ms)"),
    ],
)
def test_a_range_is_rounded_outwards_in_the_unit_of_its_middle(
    value: float, low: float, high: float, text: str
) -> None:
    assert words.ranged(value, low, high) == text


def test_a_prediction_has_its_range_and_bound() -> None:
    assert words.predicted(time(), "0.6") == "28.3 ms (25 to 32 ms), compute-bound"


def test_a_legacy_prediction_says_whether_what_runs_is_what_is_written() -> None:
    assert words.predicted(time(), "0.1") == "28.3 ms (25 to 32 ms, as traced), compute-bound"
    free = time(basis="compiler-free: loads merged")
    assert words.predicted(free, "0.1") == (
        "28.3 ms (25 to 32 ms, compiler-free: loads merged), compute-bound"
    )


def test_a_gain_has_the_relative_range_of_its_workload() -> None:
    times = (time(low_ns=25.47e6, high_ns=31.13e6), time("tile", 1.0, low_ns=14.15e6, high_ns=56.6e6))
    gained = finding(gain_ns=1e6, workload="large")
    # 0.9 and 1.1 of the predicted time
    assert words.gain_range(gained, times) == pytest.approx((0.9e6, 1.1e6))
    assert words.gain(gained, times) == "1.00 ms (0.90 to 1.1 ms)"
    both = finding(gain_ns=1e6, workload="large, tile")
    assert words.gain_range(both, times) == pytest.approx((0.5e6, 2e6))
    unknown = finding(gain_ns=1e6, workload="elsewhere")
    assert words.gain_range(unknown, times) == pytest.approx((0.5e6, 2e6))


def test_a_gain_without_a_predicted_time_says_that_it_has_no_range() -> None:
    assert words.gain(finding(gain_ns=1e6), ()) == "1.00 ms (no range: there is no predicted time)"
    assert words.gain(finding(gain_ns=None), (time(),)) == ""


@pytest.mark.parametrize(
    ("text", "file", "line"),
    [
        ("kernel.py:41", "kernel.py", 41),
        ("a:b.py:7", "a:b.py", 7),
        ("kernel.py", "kernel.py", None),
        ("kernel.py:0", "kernel.py:0", None),
        ("kernel.py:-3", "kernel.py:-3", None),
        (":3", ":3", None),
        ("kernel.py:٣", "kernel.py:٣", None),
        ("kernel.py:" + "9" * 30, "kernel.py:" + "9" * 30, None),
    ],
)
def test_places_are_file_and_line(text: str, file: str, line: int | None) -> None:
    assert words.place_of(text) == (file, line)


def test_no_control_or_invisible_character_stays() -> None:
    every = "".join(map(chr, range(0x110000)))
    kept = words.escape_controls(every)
    left = {
        c for c in kept if unicodedata.category(c) in ("Cc", "Cs") or unicodedata.bidirectional(c) in BIDI
    }
    assert left == {"\n", "\t"}
    assert words.escape_controls("\x1b[31m\u202e\ud800\U000e0041") == "\\x1b[31m\\u202e\\ud800\\U000e0041"


BIDI = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")


def test_one_line_is_one_line_without_workflow_commands() -> None:
    line = words.one_line("a\r\n::error file=x::y\n\n  b\t c std::max " + NASTY)
    assert "\n" not in line and "\x1b" not in line and "\u202e" not in line
    assert " ::error" not in line and "std::max" in line
    assert words.one_line("::warning::x").startswith(": :warning")
    assert words.one_line("x" * 50, 10) == "x" * 9 + "…"


def test_a_total_names_its_cap_and_says_when_it_is_not_assessed() -> None:
    assert words.total(bad()) == "38 of 100 (capped by NKR020; 62 without the cap)"
    assert words.total(excellent()) == "96 of 100"
    assert words.total(not_reviewed()) == "not assessed"


def test_a_total_is_never_rounded_up() -> None:
    assert points(99.99) == "99" and points(100) == "100" and points(40.0) == "40"


def test_the_summary_of_grade_rounds_totals_as_every_form_does() -> None:
    one = Best(name="one", total=79.96, predicted_ns=2e3, low_ns=1.7e3, high_ns=2.35e3)
    best = (one, Best(name="two", total=12.5, predicted_ns=None))
    summary = Summary(
        task="t", submissions=2, statuses={"acceptable": 2}, best=best, frequent=(), results="r.jsonl"
    )
    screen = io.StringIO()
    print_summary(summary, Console(file=screen, width=80, color_system=None))
    lines = [line.split() for line in screen.getvalue().splitlines()]
    assert ["79", "2.00", "us", "(1.7", "to", "2.4", "us)", "one"] in lines and ["12", "-", "two"] in lines
    assert '"total":79.96' in summary.model_dump_json()


def test_the_tally_counts_by_severity() -> None:
    assert words.tally(bad()) == "1 blocker, 1 major, 1 minor, 11 notes"
    assert words.tally(excellent()) == ""


def test_correctness_names_the_wrong_inputs_first() -> None:
    assert words.correctness(bad()).startswith("wrong on scale-100 inputs; 2 of 3 runs correct")
    drawn = wrong_run().model_copy(update={"inputs": "as drawn"})
    assert words.correctness(record(runs=(drawn, wrong_run()))).startswith(
        "wrong as drawn and on scale-100 inputs;"
    )
    assert words.correctness(record(runs=(drawn,))).startswith("wrong as drawn; 0 of 1 runs correct")
    assert words.correctness(record(runs=())) == "not assessed: nothing was executed"
    outside = wrong_run().model_copy(update={"in_contract": False})
    text = words.correctness(record(runs=(run(), outside)))
    assert text.startswith("1 of 2 runs correct") and "which the contract does not ask for" in text


def test_the_next_step_is_the_heaviest_finding() -> None:
    assert words.next_step(bad()).startswith("NKR020 at kernel.py:12: subtract the maximum")
    assert words.next_step(early()).startswith("NKR020: subtract")
    assert words.next_step(not_reviewed()) == (
        "make the review possible: the task is void: a kernel of zeros would pass"
    )
    assert words.next_step(excellent()) == "nothing above a note was found; check what was not checked"


def test_edits_are_said_in_one_sentence() -> None:
    level = Edit(who="R", when="2025-01-02", why="w", of="o", criterion="c", before=None, after=1)
    accept = Edit(kind="accept", who="R", when="2025-01-02", why="w", of="o", code="NKR020")
    assert words.edit(level) == "R (2025-01-02) changed c from not assessed to 1.0: w"
    assert words.edit(accept) == "R (2025-01-02) accepted NKR020: w"

"""The numbers in reports: words and pictures against figures worked out by hand; nothing where there is nothing."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from report_kit import NASTY, excellent, record, subject
from rich.console import Console
from test_report_html import Page

from nkireview.numbers_record import (
    AuditLine,
    CauseRecord,
    Chosen,
    Growth,
    HeatMap,
    Histogram,
    LetThrough,
    NumbersRecord,
    OutputNumbers,
    PatternRecord,
    PlatformNumbers,
    RoundingCost,
)
from nkireview.record import NumericsSummary, ReviewRecord
from nkireview.report import numbers
from nkireview.report import numbers_pictures as pictures
from nkireview.report.html import html
from nkireview.report.machine import to_json
from nkireview.report.markdown import markdown
from nkireview.report.numerics import heat_map, histogram, numerics_html, print_numerics
from nkireview.report.terminal import print_review

HEAT = HeatMap(
    rows=200,
    columns=96,
    row_step=50,
    column_step=32,
    use=(0.2, 0.0, 0.9, 0.3, 0.4, 1.0, 1.5, 40.0, -1.0, 0, 0, 0),
)
ULPS = Histogram(edges=(0.5, 1.0, 2.0), counts=(900, 90, 0, 10))
GROWTH = Growth(
    place="kernel.py:12",
    dtype="bfloat16",
    additions=(1, 16, 256, 4096),
    error=(1e-3, 4e-3, 1.6e-2, 6.4e-2),
    expected=(1e-3, 2e-3, 4e-3, 8e-3),
)


def output(**changes: Any) -> OutputNumbers:
    values: dict[str, Any] = {
        "name": "out",
        "dtype": "bfloat16",
        "shape": (200, 96),
        "verdict": "rounding",
        "use": 0.41,
        "over": 0,
        "at": (3, 5),
        "got": "1.25",
        "expected": "1.5",
        "chosen": Chosen(rtol=3.9e-3, atol=2.1e-6),
        "heat": HEAT,
        "ulps": ULPS,
    }
    return OutputNumbers(**{**values, **changes})


def fine(**changes: Any) -> NumbersRecord:
    values: dict[str, Any] = {
        "workload": "small",
        "inputs": "as drawn",
        "seed": 7,
        "verdict": "rounding",
        "sentence": "rounding explains it: the largest error is 41% of what is allowed there",
        "outputs": (output(),),
    }
    return NumbersRecord(**{**values, **changes})


def defect(**changes: Any) -> NumbersRecord:
    values: dict[str, Any] = {
        "verdict": "defect",
        "sentence": "the tanh form of gelu is used: with gelu in its place the output matches (kernel.py:9)",
        "inputs": "sweep",
        "outputs": (
            output(
                verdict="defect",
                use=37.25,
                over=12_345,
                patterns=(
                    PatternRecord(name="scaled", sentence="All are the reference times 2.", explains=1.0),
                ),
            ),
        ),
        "causes": (
            CauseRecord(
                name="gelu-form",
                sentence="the tanh form of gelu is used: with gelu in its place the output matches (kernel.py:9)",
                place="kernel.py:9",
                evidence="repair",
            ),
        ),
        "costs": (
            RoundingCost(
                place="kernel.py:12",
                opcode="tensor_tensor",
                dtype="bfloat16",
                instructions=64,
                error=0.012,
                share=3.4,
            ),
        ),
        "deviation": "kernel.py:12: tensor_tensor writes 1 where it would be 2",
        "growth": (GROWTH,),
        "own_tolerance": True,
        "let_through": (LetThrough(name="eps-missing", sentence="without epsilon", place="kernel.py:8"),),
        "noticed": 3,
        "platforms": (
            PlatformNumbers(platform="gpu-tf32", output="out", max_error=1e-3, rms_error=2e-4, ulps=6.5),
        ),
        "between": "ask for a ratio of errors of at most 2",
        "audit": (
            AuditLine(
                place="kernel.py:5", dtype="float32", other="bfloat16", verdict="keep", sentence="it stays"
            ),
            AuditLine(
                place="kernel.py:6",
                dtype="float32",
                other="bfloat16",
                verdict="could be",
                sentence="kernel.py:6: float32 could be bfloat16",
            ),
        ),
        "routes": ("x to out: float32", "x to out: float32"),
        "domain": ("rows: multiples of 128 only",),
        "skipped": ("the roundings of 3 lines, for want of time",),
    }
    return fine(**{**values, **changes})


def summary(*records: NumbersRecord) -> NumericsSummary:
    return NumericsSummary(tool="nkireview 0", subject=subject(), numbers=records)


def screen(*records: NumbersRecord, width: int = 110) -> str:
    console = Console(width=width, record=True, file=None, color_system=None, force_terminal=False)
    with console.capture() as held:
        print_numerics(summary(*records), console)
    return held.get()


def reviewed(*records: NumbersRecord) -> ReviewRecord:
    return excellent().model_copy(update={"numbers": records})


# Words


@pytest.mark.parametrize(
    ("use", "said"),
    [
        (0.41, "41% of what rounding explains"),
        (1.0, "100% of what rounding explains"),
        (37.25, "37.2 times what rounding explains"),
        (457_261.4, "457,261 times what rounding explains"),
        (1.5e9, "1.5e+09 times what rounding explains"),
        (None, "NaN or infinity that is not the reference's"),
    ],
)
def test_use_in_words(use: float | None, said: str) -> None:
    assert numbers.use_of(output(use=use)) == said


def test_an_output_in_words() -> None:
    assert numbers.named(output()) == "out bfloat16[200, 96]"
    assert numbers.chosen_of(output()) == "rtol 3.9e-03, atol 2.1e-06 x rms of the row"
    assert numbers.chosen_of(output(chosen=None)) == "equal, as integers are"
    assert numbers.worst(output()) == "worst at [3, 5]: 1.25 where the reference has 1.5"
    assert numbers.worst(output(got="nan")) == "worst at [3, 5]: nan where the reference has 1.5"


def test_what_a_tolerance_lets_through_in_words() -> None:
    found = fine(own_tolerance=True, noticed=5, outputs=(output(zeros=0.123),))
    assert numbers.own_of(found) == (
        "the task's own tolerance: 12% of out could be zero unnoticed; 5 of 5 planted defects noticed"
    )
    assert numbers.own_of(defect()) == "the task's own tolerance: 3 of 4 planted defects noticed"
    assert numbers.own_of(fine()) == ""


def test_growth_in_words() -> None:
    assert numbers.grown(GROWTH) == (
        "the sum at kernel.py:12 in bfloat16: after 4,096 additions its error is 6.4e-02 of its size, where 8.0e-03 is "
        "expected"
    )


@pytest.mark.parametrize(
    "kind", ["repair", "rounding", "shadow", "not finite", "reference", "pattern", "instability"]
)
def test_every_kind_of_evidence_has_words(kind: str) -> None:
    cause = CauseRecord(name="n", sentence="s", evidence=kind)
    assert numbers.shown_by(cause) != kind
    other = CauseRecord(name="n", sentence="s", evidence="a new kind")
    assert numbers.shown_by(other) == "a new kind"


# Pictures


@pytest.mark.parametrize(
    ("use", "kind"),
    [
        (0.0, "none"),
        (0.5, "low"),
        (0.51, "high"),
        (1.0, "high"),
        (1.01, "over"),
        (10.0, "over"),
        (10.1, "far"),
        (-1.0, "lost"),
        (math.nan, "lost"),
    ],
)
def test_the_class_of_a_cell(use: float, kind: str) -> None:
    assert pictures.kind_of(use) == kind


def test_the_heat_map_is_where_its_cells_are() -> None:
    """4 x 3 cells of 50 x 32 elements in a box of 1000 x 1000."""
    drawn = pictures.heat(HEAT)
    assert len(drawn.cells) == 12
    far = drawn.cells[7]
    assert (far.x, far.y, far.width, far.height) == ("333.33", "500", "333.33", "250")
    assert far.kind == "far"
    assert far.title == "rows 100 to 149, columns 32 to 63: 40 times what rounding explains"
    assert [cell.kind for cell in drawn.cells] == [
        *("low", "none", "high", "low", "low", "high"),
        *("over", "far", "lost", "none", "none", "none"),
    ]
    assert [(tick.at, tick.label) for tick in drawn.rows] == [
        ("0", "0"),
        ("25", "50"),
        ("50", "100"),
        ("75", "150"),
    ]
    assert [tick.label for tick in drawn.columns] == ["0", "32", "64"]
    assert [kind for kind, _ in drawn.legend] == ["low", "high", "over", "far", "lost"]


def test_the_last_cells_are_smaller() -> None:
    found = HeatMap(rows=65, columns=10, row_step=3, column_step=1, use=(0.5,) * 220)
    assert "rows 63 to 64, columns 9" in pictures.heat(found).cells[-1].title


def test_the_histogram_is_logarithmic() -> None:
    bars = pictures.bars(ULPS)
    assert [bar.label for bar in bars] == ["to 0.5", "0.5 to 1", "1 to 2", "over 2"]
    most = math.log(901)
    for bar, count in zip(bars, (900, 90, 0, 10), strict=True):
        assert bar.count == count and bar.share == count / 1000
        assert float(bar.height) == pytest.approx(math.log(count + 1) / most, abs=0.006)
    assert histogram(ULPS) == "|█▅ ▃| to 0.5: 90%, 0.5 to 1: 9%, over 2: 1%"
    assert histogram(ULPS, ascii_only=True).isascii()
    assert histogram(Histogram(edges=(1.0,), counts=(0, 0))) == "|  | nothing to compare"


def test_a_share_too_small_for_a_percentage_is_still_told() -> None:
    said = histogram(Histogram(edges=(1.0, 2.0), counts=(10**7, 40_000, 3)))
    assert said.endswith("to 1: 100%, 1 to 2: 0.4%, over 2: under 0.001%")


def test_growth_is_a_line_in_a_log_log_plot() -> None:
    plot = pictures.growth(GROWTH)
    assert plot is not None
    # four times the error at 16 times the additions: a slope of a half, from 1e-3 to 6.4e-2 in decades 1e-3 to 1e-1
    points = [(float(x), float(y)) for x, y, _ in plot.points]
    assert [x for x, _ in points] == pytest.approx([0, 100 / 3, 200 / 3, 100], abs=0.01)
    assert [y for _, y in points] == pytest.approx(
        [100 - 50 * math.log10(4**at) for at in range(4)], abs=0.01
    )
    assert [tick.label for tick in plot.errors] == ["1e-3", "1e-2", "1e-1"]
    assert [tick.label for tick in plot.additions] == ["1", "16", "256", "4,096"]
    assert plot.expected.startswith("M0 1000L333.33 ")


def test_growth_of_one_point_is_no_plot() -> None:
    assert (
        pictures.growth(Growth(place="", dtype="", additions=(1,), error=(1e-3,), expected=(1e-3,))) is None
    )
    flat = Growth(place="", dtype="", additions=(1, 2), error=(0.0, 0.0), expected=(1e-3, 1e-3))
    assert pictures.growth(flat) is None


def test_the_map_of_a_terminal_keeps_the_worst_of_what_it_merges() -> None:
    """16 x 64 cells become 8 x 32: each shows the worst of four."""
    use = [0.1] * (16 * 64)
    use[5 * 64 + 41] = 3.0
    use[15 * 64 + 63] = -1.0
    found = HeatMap(rows=32, columns=128, row_step=2, column_step=2, use=tuple(use))
    head, *rows, legend = [line.plain for line in heat_map(found, Console(width=200))]
    assert "columns 0 to 127, rows 4 to a line" in head
    grid = [row[-32:] for row in rows]
    assert len(grid) == 8
    marked = {
        (at, column): sign for at, row in enumerate(grid) for column, sign in enumerate(row) if sign != "░"
    }
    assert marked == {(2, 20): "▓", (7, 31): "!"}
    assert "▓ beyond it" in legend and "! NaN" in legend


def test_a_map_that_is_alike_everywhere_is_one_line() -> None:
    (line,) = heat_map(HeatMap(rows=4, columns=4, row_step=1, column_step=1, use=(20.0,) * 16), Console())
    assert line.plain.strip() == "every tile: more than ten times it"


# Screen


def test_what_is_fine_is_short() -> None:
    lines = screen(fine()).splitlines()[3:]
    assert lines == [
        "ROUNDING  small, as drawn, seed 7: rounding explains it: the largest error is 41% of what is allowed there",
        "  output      out bfloat16[200, 96]: 41% of what rounding explains; choose rtol 3.9e-03, atol 2.1e-06 "
        "x rms of",
        "              the row",
        "  ulps        |█▅ ▃| to 0.5: 90%, 0.5 to 1: 9%, over 2: 1%",
    ]


def test_a_defect_tells_everything_once() -> None:
    text = screen(defect(), width=400)
    for wanted in (
        "DEFECT  small, sweep, seed 7: the tanh form of gelu is used: with gelu in its place the output matches",
        "  cause       gelu-form at kernel.py:9\n",
        "shown by: with this put right, the output without any rounding is the reference's",
        "  deviation   kernel.py:12: tensor_tensor writes 1 where it would be 2",
        "out bfloat16[200, 96]: 37.2 times what rounding explains",
        "12,345 of 19,200 elements are beyond it; worst at [3, 5]: 1.25 where the reference has 1.5",
        "scaled: All are the reference times 2.",
        "kernel.py:12          tensor_tensor      bfloat16          64   1.2e-02      3.4 times",
        "  growth      the sum at kernel.py:12 in bfloat16",
        "  tolerance   the task's own tolerance: 3 of 4 planted defects noticed",
        "lets through eps-missing: without epsilon",
        "  platforms   gpu-tf32: largest error 1.0e-03 of the rms, 6.5 ulps, rms 2.0e-04",
        "ask for a ratio of errors of at most 2",
        "  precision   kernel.py:6: float32 could be bfloat16",
        "1 line keeps its precision",
        "  sizes       rows: multiples of 128 only",
        "  skipped     the roundings of 3 lines, for want of time",
    ):
        assert text.count(wanted) == 1, wanted
    assert text.count("x to out: float32") == 1


def test_no_line_is_wider_than_the_terminal() -> None:
    assert max(map(len, screen(defect(), width=100).splitlines())) <= 100


# Page


def test_the_page_draws_every_picture() -> None:
    text = numerics_html(summary(defect(), fine()))
    page = Page(text)
    rectangles = [given["class"] for name, given in page.elements if name == "rect"]
    assert len(rectangles) == 2 * 12 and rectangles.count("heat-far") == 2
    classes = [given.get("class") for name, given in page.elements if name == "figure"]
    assert classes.count("heat") == 2 and classes.count("ulps") == 2 and classes.count("growth") == 1
    assert not {"script", "img", "link"} & {name for name, _ in page.elements}
    assert "default-src 'none'" in text
    for wanted in (
        "gelu-form",
        "37.2 times what rounding explains",
        "could be bfloat16",
        "gpu-tf32",
        "eps-missing",
    ):
        assert wanted in page.text, wanted


def test_every_class_of_the_pictures_has_a_colour() -> None:
    text = numerics_html(summary(defect()))
    for kind in pictures.STEPS:
        assert f"rect.heat-{kind}" in text
    assert text.count("--heat-far:") == 2 and "prefers-color-scheme: dark" in text


def test_what_a_kernel_says_is_no_markup() -> None:
    nasty = defect(
        sentence=NASTY,
        workload=NASTY,
        deviation=NASTY,
        causes=(CauseRecord(name=NASTY, sentence=NASTY, place=NASTY, evidence=NASTY),),
        outputs=(output(verdict="defect", name=NASTY, got=NASTY, use=2.0, over=1),),
        skipped=(NASTY,),
        routes=(NASTY,),
    )
    for text in (numerics_html(summary(nasty)), html(reviewed(nasty), {})):
        Page(text)
        assert "<script>alert" not in text and "\x1b" not in text and "\u202e" not in text
    assert "\x1b" not in screen(nasty)
    assert "\x1b" not in markdown(reviewed(nasty))


# Review


def test_a_review_without_numbers_says_nothing_of_them() -> None:
    plain = excellent()
    assert "## Numbers" not in markdown(plain)
    assert 'id="numbers"' not in html(plain, {}) and "--heat-far" not in html(plain, {})
    assert "\nNumbers" not in reviewed_screen(plain)


def reviewed_screen(found: ReviewRecord) -> str:
    console = Console(width=200, color_system=None, force_terminal=False)
    with console.capture() as held:
        print_review(found, console)
    return held.get()


def test_a_review_tells_its_numbers_in_short() -> None:
    found = reviewed(fine(), defect())
    text = reviewed_screen(found)
    assert "Numbers      not rounding: small, sweep: the tanh form of gelu is used" in text
    assert (
        "gelu-form at kernel.py:9: " in text
        and "out bfloat16[200, 96]: 37.2 times what rounding explains" in text
    )
    made = markdown(found)
    section = made.split("## Numbers", 1)[1].split("\n## ", 1)[0]
    assert "not rounding: small, sweep: the tanh form" in section and "gelu-form at kernel.py:9" in section
    rows = [line for line in section.splitlines() if line.startswith("| `small`")]
    assert len(rows) == 2 and "37.2 times" in rows[0] and "rtol 3.9e-03" in rows[1]
    page = Page(html(found, {}))
    assert "Numbers" in page.text and "small, sweep, seed 7" in page.text
    assert sum(name == "rect" for name, _ in page.elements) >= 24
    fine_only = reviewed_screen(reviewed(fine()))
    assert "rounding explains every difference: at most 41% of what it explains is used" in fine_only


def test_a_window_that_is_low_keeps_the_numbers_short() -> None:
    many = reviewed(*[defect(workload=f"w{at}") for at in range(9)])
    console = Console(width=100, height=30, color_system=None, force_terminal=True)
    with console.capture() as held:
        print_review(many, console)
    said = re.sub(r"\x1b\[[0-9;]*m", "", held.get())
    assert said.count("gelu-form at") <= 1 and "Numbers" in said


def test_numbers_are_in_the_json() -> None:
    found = reviewed(defect(outputs=(output(verdict="defect", use=None, over=3),)))
    assert ReviewRecord.model_validate_json(to_json(found)) == found
    assert record().numbers == ()

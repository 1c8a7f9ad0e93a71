"""The page: structure, escaping, anchors both ways, bounds, contrast; read with the parser of the standard library."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from report_kit import (
    NASTY,
    SAMPLES,
    SOURCE,
    bad,
    curve,
    early,
    excellent,
    finding,
    hostile,
    lanes,
    middling,
    not_reviewed,
    record,
    time,
)

from nkireview.record import ReviewRecord
from nkireview.report import pictures
from nkireview.report.html import MOST_FINDINGS, TEMPLATES, html
from nkireview.report.listing import LONGEST_LINE, MOST_LINES, anchors, listings, split

VOID = {"meta", "br", "rect", "line", "path", "input"}
every_sample = pytest.mark.parametrize("make", SAMPLES.values(), ids=SAMPLES)


class Page(HTMLParser):
    """Elements with their attributes, and the text of each; fails on an element that is not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def ids(self) -> list[str]:
        return [str(given["id"]) for _, given in self.elements if "id" in given]

    def links(self) -> list[str]:
        return [str(given["href"]) for _, given in self.elements if "href" in given]


def page(made: ReviewRecord, sources: dict[str, str] | None = None) -> Page:
    return Page(html(made, {"kernel.py": SOURCE} if sources is None else sources))


@every_sample
def test_the_page_is_closed_has_no_script_and_asks_for_nothing(make: Any) -> None:
    nasty = {"kernel.py": f"# {NASTY}\nx = '{NASTY}'\n{NASTY}\n", NASTY: f"{NASTY}\n" * 5}
    made = page(make(), nasty)
    names = {name for name, _ in made.elements}
    assert not names & {"script", "img", "iframe", "object", "embed", "form", "base", "video", "audio", "b"}
    assert sum(name == "style" for name, _ in made.elements) == 1
    for _, given in made.elements:
        assert not [key for key in given if key.startswith("on")]
        assert str(given.get("href", "#")).startswith("#") and "src" not in given
    policy = [given["content"] for _, given in made.elements if "http-equiv" in given]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"]


def test_nothing_in_the_style_asks_for_anything() -> None:
    css = (TEMPLATES / "review.css").read_text(encoding="utf-8")
    assert not re.search(r"url\(|@import|@font-face|<|expression", css)


def test_what_a_submission_wrote_is_shown_as_text() -> None:
    made = page(hostile(), {"kernel.py": "1\n2\n" + NASTY})
    assert "<script>alert(1)</script>" in made.text and "\\x1b[31mred\\u202etxt\\u200b<b>&amp;" in made.text


@every_sample
def test_ids_are_unique_and_every_anchor_leads_somewhere(make: Any) -> None:
    made = page(make())
    assert len(set(made.ids())) == len(made.ids())
    assert {link.removeprefix("#") for link in made.links()} <= set(made.ids())


def test_findings_and_lines_point_at_each_other() -> None:
    text = html(bad(), {"kernel.py": SOURCE})
    article = text.split('id="f1"', 1)[1].split("</article>", 1)[0]
    (anchor,) = re.findall(r'href="#(s\d+-\d+)"[^>]*>kernel\.py:12<', article)
    line = text.split(f'id="{anchor}"', 1)[1].split("</li>", 1)[0]
    assert 'href="#f1"' in line and "activation" in line and "NKR020" in line
    shared = text.split('id="s0-11"', 1)[1].split("</li>", 1)[0]
    assert 'href="#f2"' in shared and 'href="#f3"' in shared


def test_several_findings_of_one_rule_on_a_line_are_one_mark() -> None:
    line = html(bad(), {"kernel.py": SOURCE}).split('id="s0-8"', 1)[1].split("</li>", 1)[0]
    assert line.count("NKR045") == 1 and "NKR045 ×11" in line


def test_the_page_has_every_part_of_a_review() -> None:
    made = page(bad())
    wanted = {"score", "findings", "source", "time", "errors", "well", "unchecked", "figures"}
    assert wanted <= set(made.ids())
    for text in (
        "38 of 100",
        "62 without the cap by NKR020",
        "28.3 ms (25 to 32 ms), compute-bound",
        "Half of the partitions idle",
        "Predicted gain 4.10 ms (3.6 to 4.6 ms)",
        "Failing input scale-100 inputs, seed 7",
        "12,148 differ in NaN or infinity",
        "usable 192.0 KiB; peak 96.0 KiB (50%) at kernel.py:10",
        "floor 19.0 ms",
        "A reviewer (2025-01-02) changed partitions",
        "partition_share = 0.5: level 2: at least 0.5",
        "there is no CUDA original",
        "network namespace: not granted here",
    ):
        assert text in made.text, text


def test_a_dimension_that_was_not_assessed_has_no_bar() -> None:
    text = html(bad(), {})
    part = text.split("benchmark claims</span>", 1)[1].split("</summary>", 1)[0]
    assert "not assessed" in part and "fill" not in part
    assert 'style="width: 10.0%"' in text.split("numerical validation</span>", 1)[1].split("</summary>", 1)[0]


@pytest.mark.parametrize("make", [not_reviewed, early])
def test_a_review_that_ended_early_has_a_page(make: Any) -> None:
    made = page(make(), {})
    assert not {"score", "time", "source", "errors"} & set(made.ids()) and "findings" in made.ids()


def test_a_review_without_findings_says_what_silence_means() -> None:
    assert "Silence means that no known pattern was found." in page(excellent()).text


def test_every_prediction_stands_with_its_range() -> None:
    made = page(middling())
    for total, low in (("28.3 ms", "25 to 32 ms"), ("28.3 us", "25 to 32 us")):
        assert f"{total} ({low})" in made.text


# pictures


def test_a_strip_has_one_cell_for_each_stretch_that_is_as_busy() -> None:
    found = pictures.cells((0.5, 0.5, 0.0, 1.0))
    assert [(cell.x, cell.width, cell.busy) for cell in found] == [("0", "500", "0.5"), ("750", "250", "1")]
    assert pictures.cells(()) == () and pictures.cells((float("nan"), 7.0, -1.0))[0].busy == "1"


def test_the_range_of_a_prediction_is_to_scale() -> None:
    drawn = pictures.prediction(time(total_ns=100.0, low_ns=50.0, high_ns=200.0, floor_ns=20.0))
    # the scale ends at 210 ns: 1000 / 210 for each ns
    assert (drawn.low, drawn.width, drawn.total, drawn.floor) == ("238.1", "714.29", "476.19", "95.24")


def test_a_memory_curve_is_made_of_steps() -> None:
    memory = curve(usable=100, peak=50).model_copy(update={"at_ns": (0.0, 5.0), "used": (25, 50)})
    drawn = pictures.curve(memory, 10.0)
    # 108 bytes are 100 high: 25 bytes reach 76.85 from the top, 50 reach 53.7, the usable 100 reach 7.41
    assert drawn.line == "M0 100H0V100H0V76.85H500V53.7H1000"
    assert drawn.area == f"{drawn.line}V100Z" and drawn.usable == "7.41" and not drawn.over


def test_a_curve_above_the_usable_line_says_that_it_does_not_fit() -> None:
    made = record(times=(time(memory=(curve(usable=1000, peak=1500),)),))
    assert pictures.curve(curve(usable=1000, peak=1500), 1.0).over
    assert "peak 1.5 KiB (150%) at kernel.py:10 : it does not fit" in page(made).text


def test_a_long_curve_keeps_its_peak() -> None:
    count = 5000
    used = tuple(900 if at == 4321 else 100 for at in range(count))
    memory = curve(usable=1000, peak=900).model_copy(
        update={"at_ns": tuple(map(float, range(count))), "used": used}
    )
    line = pictures.curve(memory, float(count)).line
    assert line.count("H") <= pictures.MOST_POINTS + 2
    assert f"V{100 - 900 / 1080 * 100:.2f}" in line


def test_lanes_of_several_cores_are_told_apart() -> None:
    both = (*lanes({"vector": 0.5}), *lanes({"vector": 0.4}, core=1))
    text = page(record(times=(time(lanes=both),))).text
    assert "vector 0" in text and "vector 1" in text


# listings


def numbers(made: Any) -> list[list[int]]:
    return [[line.number for line in block] for block in made.blocks]


def test_lines_are_numbered_as_python_numbers_them() -> None:
    source = "a\r\nb\rc\x0cd\u2028e\n\nf"
    assert split(source) == ["a", "b", "c\x0cd\u2028e", "", "f"]
    assert split("") == [] and split("x\n") == ["x"]


def test_a_long_source_is_shown_around_its_findings() -> None:
    source = "x = 1\n" * 4000
    found = [(0, finding(places=("k.py:100", "k.py:110", "k.py:3999")))]
    (made,) = listings({"k.py": source}, found)
    assert numbers(made) == [list(range(88, 123)), list(range(3987, 4001))] and made.total == 4000
    text = page(record(findings=(found[0][1],)), {"k.py": source}).text
    assert "49 of 4,000 lines" in text and "⋯" in text


def test_listings_never_exceed_their_bound() -> None:
    places = tuple(f"k.py:{at}" for at in range(1, 9000, 3))
    made = listings({"k.py": "x = 1\n" * 9000, "other.py": "y\n" * 50}, [(0, finding(places=places))])
    assert sum(item.shown for item in made) == MOST_LINES
    assert "k.py:1" in anchors(made) and "k.py:8998" not in anchors(made)


def test_a_source_without_findings_is_shown_from_its_beginning() -> None:
    (made,) = listings({"k.py": "x\n" * 2000}, [])
    assert numbers(made) == [list(range(1, 14))]


def test_a_long_line_is_cut() -> None:
    (made,) = listings({"k.py": "x = '" + "y" * 5000 + "'  # z\n"}, [])
    shown = "".join(text for _, text in made.blocks[0][0].pieces)
    assert len(shown) == LONGEST_LINE and shown.endswith("…")


def test_pieces_have_the_class_of_their_token_and_give_the_line_back() -> None:
    (made,) = listings({"k.py": 'def f(a):  # note\n    return """x\ny""", 1\n'}, [])
    first, second, third = made.blocks[0]
    assert first.pieces == (("k", "def"), ("", " f(a):  "), ("c", "# note"))
    assert second.pieces == (("", "    "), ("k", "return"), ("", " "), ("s", '"""x'))
    assert third.pieces == (("s", 'y"""'), ("", ", "), ("n", "1"))


@pytest.mark.parametrize(
    "source", ["def (\n'''", "\tx\n  y\n z", "\x00\x01", "a\x0c= 1\r\nb = '\\\r\nc'\rd", "é = 'ü'"]
)
def test_a_source_that_is_no_python_is_shown_all_the_same(source: str) -> None:
    (made,) = listings({"k.py": source}, [])
    shown = ["".join(text for _, text in line.pieces) for block in made.blocks for line in block]
    assert [
        line.replace("\\x0c", "\x0c").replace("\\x00", "\0").replace("\\x01", "\1") for line in shown
    ] == split(source)


def test_the_page_is_bounded() -> None:
    long = "x" * 200_000
    many = tuple(finding(message=f"{at} {long}", why=long, change=long) for at in range(MOST_FINDINGS + 40))
    text = html(record(findings=many), {"kernel.py": SOURCE})
    assert "and 40 more in review.json" in text and len(text) < 2_000_000


# colours


def colours(block: str) -> dict[str, str]:
    return dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{3,6})", block))


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(c * 2 for c in colour[1:])
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", [0, 1, 2], ids=["light", "dark", "print"])
def test_text_has_the_contrast_that_wcag_asks_for(theme: int) -> None:
    css = Path(TEMPLATES / "review.css").read_text(encoding="utf-8")
    found = colours(re.findall(r":root \{(.*?)\}", css, flags=re.S)[theme])
    inks = ("ink", "dim", "accent", "bad", "middling", "good", "minor", "note", "string", "keyword", "number")
    for ink in inks:
        for ground in ("page", "panel", "bad-wash", "middling-wash", "minor-wash", "note-wash"):
            assert contrast(found[ink], found[ground]) >= 4.5, (ink, ground)

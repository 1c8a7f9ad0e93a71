"""The timeline of a page: what is drawn against the slices it is of, merging, and the page's script in a browser."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profile_kit import drawn as long_table
from profile_kit import table
from report_kit import bad
from test_report_html import Page

from nkireview.drawing import drawn
from nkireview.record import DrawnTimeline
from nkireview.report.html import environment, html
from nkireview.report.timeline_page import by_line, data, policy, said, script
from nkireview.slices import SliceTable

CHROMIUM = shutil.which("chromium")


def columns(found: DrawnTimeline) -> dict[str, list[int]]:
    """The columns as their reader sees them; starts in tenths of ns from 0."""
    made = {}
    for name, text in found.columns.items():
        values = [int(value) for value in text.split()]
        made[name] = values if len(values) == found.slices else values * found.slices
        assert len(made[name]) == found.slices
    made["start"] = np.cumsum(made["start"]).tolist()
    return made


def texts(table: SliceTable, at: int) -> tuple[str, str, str]:
    return table.name_of(at), table.place_of(at), table.operands_of(at)


@pytest.mark.parametrize("cores", [1, 2])
def test_slices_that_fit_are_drawn_exactly(cores: int) -> None:
    source = long_table(900, seed=3, cores=cores)
    found = drawn(source, 1000)
    made = columns(found)
    assert (found.slices, found.whole, found.step_ns) == (900, 900, 0.0) and "count" not in made
    expected = {}
    for at in range(900):
        lane = source.lanes[int(source.lane[at])]
        other = int(source.blocker[at])
        key = (lane.core, lane.name, round(float(source.start[at]) * 10), *texts(source, at))
        waited = None
        if other >= 0:
            waited = (
                source.lanes[int(source.lane[other])].name,
                round(float(source.start[other]) * 10),
                source.name_of(other),
            )
        expected[key] = (
            round(float(source.stop[at]) * 10),
            source.waits[int(source.wait[at])],
            int(source.bytes[at]),
            waited,
            600,
        )
    shown = {}
    for at in range(900):
        lane_ = found.lanes[made["lane"][at]]
        other = made["blocker"][at]
        key = (
            lane_.core,
            lane_.name,
            made["start"][at],
            found.names[made["name"][at]],
            found.places[made["place"][at]],
            found.operands[made["operands"][at]],
        )
        waited = None
        if other >= 0:
            waited = (
                found.lanes[made["lane"][other]].name,
                made["start"][other],
                found.names[made["name"][other]],
            )
        shown[key] = (
            made["start"][at] + made["length"][at],
            found.waits[made["wait"][at]],
            made["bytes"][at],
            waited,
            made["latency"][at],
        )
    assert shown == expected
    no_overlap(found)


def no_overlap(found: DrawnTimeline) -> None:
    made = columns(found)
    reach: dict[tuple[int, int], int] = {}
    for at in range(found.slices):
        row = (made["lane"][at], made["row"][at])
        assert made["start"][at] >= reach.get(row, 0)
        assert made["row"][at] < found.lanes[made["lane"][at]].rows
        reach[row] = made["start"][at] + made["length"][at]


@pytest.mark.parametrize("most", [2000, 300, 20])
def test_merging_keeps_every_slice_busy_time_and_byte(most: int) -> None:
    source = long_table(9000, seed=1, cores=2)
    found = drawn(source, most)
    made = columns(found)
    assert 0 < found.slices <= most and found.whole == 9000 and sum(made["count"]) == 9000
    assert found.step_ns > 0
    spent: dict[tuple[Any, ...], list[float]] = {}
    for at in range(9000):
        lane = source.lanes[int(source.lane[at])]
        each = spent.setdefault(
            (lane.core, lane.name, source.name_of(at), source.place_of(at)), [0.0, 0.0, 0.0]
        )
        each[0] += 1
        each[1] += float(source.stop[at] - source.start[at])
        each[2] += int(source.bytes[at])
    told: dict[tuple[Any, ...], list[float]] = {}
    for at in range(found.slices):
        lane_ = found.lanes[made["lane"][at]]
        place = found.places[made["place"][at]] if made["place"][at] >= 0 else ""
        key = (lane_.core, lane_.name, found.names[made["name"][at]], place)
        each = told.setdefault(key, [0.0, 0.0, 0.0])
        each[0] += made["count"][at]
        each[1] += made["busy"][at] / 10
        each[2] += made["bytes"][at]
        longest = 3200 * 10
        assert made["length"][at] <= found.step_ns * 10 + longest + 1
    if most > 40:
        assert told.keys() == spent.keys()
        for key, (count, busy, size) in spent.items():
            assert told[key][0] == count and told[key][2] == size
            assert told[key][1] == pytest.approx(busy, abs=0.05 * found.slices)
    no_overlap(found)


def test_two_that_begin_in_one_step_are_one_and_others_are_not() -> None:
    rows = [("vector", 1000.0 * at, 1000.0 * at + 10, "iota", "k.py:1") for at in range(10)]
    rows += [("vector", 4020.0, 4030.0, "iota", "k.py:1"), ("vector", 4040.0, 4050.0, "iota", "k.py:2")]
    found = drawn(table(rows, blockers={10: (4, 2)}), 11)
    made = columns(found)
    assert sorted(zip(made["start"], made["count"], strict=True))[4:6] == [(40000, 2), (40400, 1)]
    assert found.slices == 11
    at = made["count"].index(2)
    assert (made["length"][at], made["busy"][at], made["operands"][at]) == (300, 200, -1)
    assert said(found).startswith("12 slices, drawn as 11: 1 are merged")


@given(st.integers(0, 60), st.integers(1, 40))
def test_any_number_can_be_drawn(count: int, most: int) -> None:
    found = drawn(long_table(count), most)
    made = columns(found)
    assert found.slices <= max(most, 7) and sum(made.get("count", [1] * found.slices)) == count
    no_overlap(found)


def test_the_same_by_line() -> None:
    rows = [
        ("vector", 0.0, 30.0, "iota", "k.py:1"),
        ("vector", 30.0, 40.0, "iota", "k.py:1"),
        ("tensor", 0.0, 100.0, "nc_matmul", "k.py:2"),
        ("scalar", 0.0, 5.0, "iota", "k.py:1"),
        ("dma", 0.0, 1.0, "", ""),
    ]
    found = [
        (line.place, line.name, line.lane, line.count, line.busy_ns, line.bytes)
        for line in by_line(table(rows))
    ]
    assert found == [
        ("k.py:2", "nc_matmul", "tensor", 1, 100.0, 4096 * 3),
        ("k.py:1", "iota", "vector", 2, 40.0, 4096 * 3),
        ("k.py:1", "iota", "scalar", 1, 5.0, 4096 * 4),
        ("", "", "dma", 1, 1.0, 4096 * 5),
    ]
    assert by_line(table([])) == []


def test_what_stands_in_a_page_cannot_end_it() -> None:
    nasty = "</script><script>alert(1)</script>\x1b[31m\u202e&"
    text = data(drawn(table([("vector", 0.0, 1.0, nasty, nasty)]), 10))
    assert not re.search(r"[<>&\x1b\u202e]", text)
    read = json.loads(text)
    assert read["names"] == ["</script><script>alert(1)</script>\\x1b[31m\\u202e&"]


def test_only_the_script_of_the_page_may_run() -> None:
    assert "script-src" not in policy([])
    # sha256 of the empty text, as in FIPS 180-2's examples
    assert "script-src 'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='" in policy([""])
    assert "unsafe" not in policy([script()]).split("script-src")[1]


def test_a_review_draws_its_timelines() -> None:
    record = bad()
    source = long_table(50)
    times = [time.model_copy(update={"drawn": drawn(source, 100)}) for time in record.times]
    text = html(record.model_copy(update={"times": tuple(times)}), {})
    page = Page(text)
    assert sum(given.get("class") == "timeline" for _, given in page.elements) == len(times)
    assert "50 slices, each drawn by itself." in page.text
    (allowed,) = [given["content"] for _, given in page.elements if "http-equiv" in given]
    assert allowed == policy([script()]) and f"<script>{script()}</script>" in text
    assert len(set(page.ids())) == len(page.ids())


# In a browser

PAGE = """<!doctype html><meta charset="utf-8"><style>:root { --map-a: #123456; }</style>%s<pre id="out"></pre>
<script>%s</script><script>%s</script>"""


def in_browser(tmp_path: Path, source: SliceTable, most: int, code: str) -> Any:
    """What `code` returns, run with `T` (the timeline), `F` (its figure) and `C` (its canvas)."""
    figure = environment().get_template("timeline.html.j2").render(drawn=drawn(source, most))
    run = (
        "const F = document.querySelector('figure.timeline'), T = F.timeline, C = F.querySelector('canvas');"
        "const key = (k) => C.dispatchEvent(new KeyboardEvent('keydown', {key: k, cancelable: true}));"
        f"document.getElementById('out').textContent = 'OUT' + JSON.stringify((() => {{ {code} }})()) + 'END';"
    )
    page = tmp_path / "page.html"
    page.write_text(PAGE % (figure, script(), run), encoding="utf-8")
    assert CHROMIUM is not None
    call = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1000,700"]
    call += [f"--user-data-dir={tmp_path / 'browser'}", "--virtual-time-budget=3000", "--dump-dom"]
    done = subprocess.run([*call, page.as_uri()], capture_output=True, text=True, check=False, timeout=120)
    match = re.search(r'"out">OUT(.*?)END</pre>', done.stdout, flags=re.S)
    assert match, done.stdout[-2000:] + done.stderr[-2000:]
    return json.loads(match[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))


HAND = table(
    [
        ("sync", 0.0, 50.0, "dma_copy", "k.py:3"),
        ("dma", 40.0, 900.0, "dma_copy", "k.py:3"),
        ("tensor", 900.0, 1100.0, "nc_matmul", "k.py:5"),
        ("tensor", 1100.0, 1200.0, "nc_matmul", "k.py:5"),
    ],
    blockers={1: (0, 2), 2: (1, 2), 3: (2, 1)},
)
browser = pytest.mark.skipif(CHROMIUM is None, reason="no browser to run the page's script in")


@browser
def test_the_script_shows_zooms_and_finds(tmp_path: Path) -> None:
    found = in_browser(
        tmp_path,
        HAND,
        100,
        "const all = T.state(); key('+'); const half = T.state(); key('ArrowRight'); const right = T.state();"
        "key('0'); const again = T.state(); T.pin(0); key('b'); const blocker = F.querySelector('.pinned').innerText;"
        "key('Escape'); const let_go = F.querySelector('.pinned').hidden;"
        "const I = F.querySelector('input'); I.value = '5'; I.dispatchEvent(new Event('input'));"
        "return {all, half, right, again, blocker, let_go, found: F.querySelector('output').textContent,"
        " legend: [...F.querySelectorAll('.legend li')].map((e) => e.textContent), ready: F.className,"
        " matches: T.state().matches};",
    )
    assert (found["all"]["from"], found["all"]["to"]) == (0, 12100)
    assert (found["half"]["from"], found["half"]["to"]) == (3025, 9075)
    assert (found["right"]["from"], found["right"]["to"]) == (4235, 10285)
    assert found["again"]["to"] == 12100 and found["let_go"] is True and "ready" in found["ready"]
    # the first slice drawn is the first matmul, which waited for the transfer
    assert "dma_copy k.py:3" in found["blocker"] and "dma, start 40 ns, duration 860 ns" in found["blocker"]
    assert "waited for data: dma_copy k.py:3 on sync, done at 50 ns" in found["blocker"]
    assert found["matches"] == 2 and found["found"] == "2 slices, 300 ns"
    assert found["legend"] == ["dma_copy 910 ns", "nc_matmul 300 ns"]


@browser
def test_a_pointer_shows_what_is_below_it(tmp_path: Path) -> None:
    found = in_browser(
        tmp_path,
        HAND,
        100,
        "const W = T.state().width, x = (t) => 74 + t / 12100 * (W - 74);"
        "T.point(x(9500), 30); const first = [T.state().hovered, F.querySelector('.tip').innerText];"
        "T.point(x(11500), 30); const second = T.state().hovered; T.point(x(4000), 30);"
        "return {first, second, none: T.state().hovered, hidden: F.querySelector('.tip').hidden};",
    )
    assert found["first"][0] == 0 and found["second"] == 1 and found["none"] == -1 and found["hidden"] is True
    text = found["first"][1]
    assert "nc_matmul k.py:5" in text and HAND.operands_of(2) in text
    assert "tensor, start 900 ns, duration 200 ns, result 10 ns later" in text
    assert "waited for data: dma_copy k.py:3 on dma, done at 900 ns" in text
    assert "12.0 KiB read and written on chip" in text


@browser
def test_merged_slices_say_how_many_they_are(tmp_path: Path) -> None:
    found = in_browser(
        tmp_path,
        long_table(2000),
        100,
        "T.pin(0); return F.querySelector('.pinned').innerText + F.innerText;",
    )
    assert (
        re.search(r"\d+ slices on tensor, merged; from .* busy", found) and "2,000 slices, drawn as" in found
    )

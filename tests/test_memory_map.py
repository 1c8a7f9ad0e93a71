"""Memory maps: rectangles against places and times worked out by hand, the picture, the chart, and bounds on size."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from execute_kit import Kernel
from report_kit import SOURCE, curve, record
from report_kit import time as time_record
from rich.text import Text
from test_report_html import Page

from nkireview import hardware
from nkireview.checks.allocation import Placed
from nkireview.checks.survey import survey
from nkireview.isa.enums import Memory
from nkireview.isa.table import ROWS
from nkireview.memorymap import BLOCKS, LINES, memory_maps
from nkireview.program.program import Program
from nkireview.record import MapBlock, MapLine, MemoryMap
from nkireview.report.html import html
from nkireview.report.memory_map import COLOURS, chart, drawn, moments, title
from nkireview.schedule.uses import Uses
from nkireview.timeline.timeline import Lane, Timeline

TRN2 = hardware.target("trn2")
USABLE = 212_984


def placed(buffer: int, start: int | None, size: int, first: int, last: int, **changes: Any) -> Placed:
    values: dict[str, Any] = {"memory": Memory.sbuf, "core": 0, "partition": 0, "partitions": 128}
    stop = None if start is None else start + size
    return Placed(
        buffer, start=start, stop=stop, first=first, last=last, explicit=False, **{**values, **changes}
    )


def traced(count: int = 3, lines: int = 3, columns: int = 256) -> tuple[Program, Uses]:
    """Buffers of `columns` float32 made in turn at lines 1 to `lines`; instruction i fills buffer i, then all again."""
    kernel = Kernel()
    tiles = []
    for at in range(count):
        kernel.line = at % lines
        tiles.append(kernel.sbuf(128, columns, name=f"t{at % 2}"))
    kernel.line = 100
    for tile in (*tiles, *tiles):
        kernel.call("memset", dst=tile, value=0.0)
    program = kernel.program()
    return program, survey(program, ROWS, TRN2).uses


def timeline(begin: list[float], stop: list[float]) -> Timeline:
    count = len(begin)
    return Timeline(
        target="trn2",
        lanes=(Lane(0, "vector"),),
        lane=np.zeros(count, np.int8),
        instruction=np.arange(count, dtype=np.int32),
        start=np.array(begin),
        stop=np.array(stop),
        ready=np.array(stop),
        wait=np.zeros(count, np.int8),
        blocker=np.full(count, -1, np.int32),
    )


def one(program: Program, used: Uses, places: list[Placed], *given: Any) -> MemoryMap:
    (found,) = memory_maps(program, places, used, TRN2, *given)
    return found


def test_each_buffer_is_a_rectangle_from_its_first_use_to_its_last() -> None:
    program, used = traced()
    places = [placed(0, 0, 1024, 0, 3), placed(1, 1024, 1024, 1, 4), placed(2, 4096, 1024, 2, 5)]
    found = one(program, used, places)
    assert (found.memory, found.core, found.unit, found.end) == ("SBUF", 0, "instructions", 6)
    assert (found.usable, found.physical, found.bank) == (USABLE, 229_376, None)
    assert (found.buffers, found.homeless, found.whole) == (3, 0, True)
    assert [(block.name, block.first, block.last, block.start, block.stop) for block in found.blocks] == [
        ("t0", 0, 4, 0, 1024),
        ("t1", 1, 5, 1024, 2048),
        ("t0", 2, 6, 4096, 5120),
    ]
    assert [found.lines[block.line].place for block in found.blocks] == [
        f"kernel.py:{at}" for at in (1, 2, 3)
    ]
    assert {(line.buffers, line.bytes, line.most) for line in found.lines} == {(1, 1024, 1024)}


def test_with_a_schedule_times_are_its_ns() -> None:
    program, used = traced(1)
    made = timeline([10.0, 50.0], [20.0, 90.0])
    found = one(program, used, [placed(0, 0, 1024, 0, 1)], made)
    assert (found.unit, found.end) == ("ns", 90)
    assert [(block.first, block.last) for block in found.blocks] == [(10, 90)]


def test_a_use_that_runs_earlier_than_the_program_says_counts() -> None:
    program, used = traced(1)
    found = one(program, used, [placed(0, 0, 1024, 0, 1)], timeline([50.0, 10.0], [90.0, 20.0]))
    assert [(block.first, block.last) for block in found.blocks] == [(10, 90)]


def test_what_a_loop_carries_lives_as_long_as_the_survey_says() -> None:
    program, used = traced(2)
    # buffer 1 is used by instructions 1 and 3, and is said to live from 0
    found = one(program, used, [placed(1, 0, 1024, 0, 3)])
    assert [(block.first, block.last) for block in found.blocks] == [(0, 4)]


def test_what_has_no_room_is_stacked_above_the_usable_bytes() -> None:
    program, used = traced(4, 1)
    # alive from 0 to 4, 1 to 5, 2 to 6 and 3 to 7: all at once
    found = one(program, used, [placed(at, None, 1024, at, at + 4) for at in range(4)])
    assert found.homeless == 4
    assert [(block.start, block.stop) for block in found.blocks] == [
        (USABLE + at * 1024, USABLE + (at + 1) * 1024) for at in range(4)
    ]


def test_what_has_no_room_takes_the_place_of_what_is_gone() -> None:
    kernel = Kernel()
    for _ in range(2):
        kernel.call("memset", dst=kernel.sbuf(128, 256), value=0.0)
    program = kernel.program()
    used = survey(program, ROWS, TRN2).uses
    found = one(program, used, [placed(at, None, 1024, at, at) for at in range(2)])
    assert [block.start for block in found.blocks] == [USABLE, USABLE]


def test_cores_and_memories_have_maps_of_their_own() -> None:
    program, used = traced(3)
    places = [
        placed(0, 0, 1024, 0, 3, core=1),
        placed(1, 0, 1024, 1, 4),
        placed(2, 2048, 1024, 2, 5, memory=Memory.psum, partitions=32),
    ]
    found = memory_maps(program, places, used, TRN2)
    assert [(item.memory, item.core) for item in found] == [("SBUF", 0), ("PSUM", 0), ("SBUF", 1)]
    assert (found[1].usable, found[1].physical, found[1].bank) == (16_384, 16_384, 2048)
    assert found[1].blocks[0].partitions == 32


def test_nothing_on_chip_is_no_map() -> None:
    program, used = traced(1)
    assert memory_maps(program, [], used, TRN2) == ()


def test_lines_beyond_the_most_are_one() -> None:
    program, used = traced(LINES + 20, LINES + 20)
    # the later, the larger: line n has n + 1 buffers' worth of bytes
    places = [placed(at, at * 64, 64, 0, LINES + 20) for at in range(LINES + 20)]
    found = one(program, used, places)
    assert len(found.lines) == LINES + 1
    assert found.lines[-1].place == "" and found.lines[-1].buffers == 20
    assert all(line.place for line in found.lines[:-1])


# Too many to be drawn


def rotating(count: int, lines: int = 3, slots: int = 100) -> tuple[Program, Uses, list[Placed]]:
    program, used = traced(count, lines, 64)
    size = USABLE // slots
    # each lives for five instructions; the uses far behind are left out of the question by an empty table
    places = [placed(at, at % slots * size, size, at, min(at + 5, count)) for at in range(count)]
    none = used.where(np.zeros(len(used), bool))
    return program, none, places


def test_neighbours_of_a_line_at_one_place_are_one() -> None:
    program, used = traced(4000, 1, 64)
    none = used.where(np.zeros(len(used), bool))
    # three places, each given to one buffer after the other, two of them side by side
    starts = (0, 1000, 5000)
    places = [placed(at, starts[at % 3], 1000, at, at + 2) for at in range(3000)]
    found = one(program, none, places, None, 100)
    assert not found.whole and found.buffers == 3000
    assert [(b.start, b.stop, b.first, b.last, b.buffers) for b in found.blocks] == [
        (0, 2000, 0, 3001, 2000),
        (5000, 6000, 2, 3002, 1000),
    ]


@pytest.mark.parametrize("most", [200, 1500])
def test_however_many_buffers_there_are_rectangles_are_bounded(most: int) -> None:
    program, used, places = rotating(20_000)
    found = one(program, used, places, None, most)
    assert 20 < len(found.blocks) <= most
    assert not found.whole and found.buffers == 20_000
    assert sum(line.buffers for line in found.lines) == 20_000


def area(found: MemoryMap) -> float:
    return sum(
        (block.last - block.first) * (block.stop - block.start) * block.share for block in found.blocks
    )


def test_rectangles_hold_the_bytes_over_time_that_the_buffers_hold() -> None:
    program, used, places = rotating(6000)
    whole = sum((item.last + 1 - item.first) * ((item.stop or 0) - (item.start or 0)) for item in places)
    for most in (60, 300, 1000):
        assert area(one(program, used, places, None, most)) == pytest.approx(whole, rel=0.02)


def test_a_cell_has_the_line_that_takes_most_of_it() -> None:
    """Two lines far apart in bytes: the low half is all of the first, the high half all of the second."""
    count = 8000
    program, used = traced(count, 2, 64)
    none = used.where(np.zeros(len(used), bool))
    half = USABLE // 2
    places = [placed(at, at % 2 * half + at // 2 % 50 * 2000, 2000, at, at + 30) for at in range(count)]
    found = one(program, none, places, None, 100)
    cells = [block for block in found.blocks if block.buffers == 0]
    assert len(cells) > 2
    for block in cells:
        wanted = "kernel.py:1" if block.start < half - USABLE / 40 else "kernel.py:2"
        assert found.lines[block.line].place == wanted or abs(block.start - half) < USABLE / 40


def test_what_is_large_stays_itself_among_many_small_ones() -> None:
    count = 6000
    program, used = traced(count, 2, 64)
    none = used.where(np.zeros(len(used), bool))
    places = [placed(0, 0, 65_536, 0, 2 * count - 1)]
    places += [placed(at, 70_000 + at % 97 * 1000, 1000, at, at + 3) for at in range(1, count)]
    found = one(program, none, places, None, 200)
    (large,) = [block for block in found.blocks if block.buffers == 1 and block.start == 0]
    assert (large.name, large.stop, large.first, large.last) == ("t0", 65_536, 0, 2 * count)
    assert len(found.blocks) <= 200


def test_the_page_of_a_long_trace_is_small() -> None:
    program, used, places = rotating(20_000)
    found = one(program, used, places)
    assert len(found.blocks) <= BLOCKS
    made = record(times=(time_record(maps=(found,)),))
    assert len(html(made, {"kernel.py": SOURCE})) < 1_000_000


# The picture


def made_map(**changes: Any) -> MemoryMap:
    values: dict[str, Any] = {
        "memory": "SBUF",
        "usable": 200_000,
        "physical": 250_000,
        "unit": "ns",
        "end": 1000.0,
        "buffers": 2,
        "lines": (
            MapLine(place="kernel.py:10", name="tile", buffers=1, bytes=100_000, most=100_000),
            MapLine(place="kernel.py:11", buffers=1, bytes=50_000, most=50_000),
        ),
        "blocks": (
            MapBlock(line=0, name="tile", partitions=128, first=0, last=500, start=0, stop=100_000),
            MapBlock(line=1, partitions=64, first=250, last=1000, start=150_000, stop=200_000),
        ),
    }
    return MemoryMap(**{**values, **changes})


def test_the_box_holds_time_to_the_right_and_bytes_upwards() -> None:
    found = drawn(made_map())
    low, high = found.rectangles
    assert (low.x, low.width, low.y, low.height) == ("0", "500", "600", "400")
    assert (high.x, high.width, high.y, high.height) == ("250", "750", "200", "200")
    assert (low.kind, high.kind) == ("0", "1")
    assert float(high.opacity) < float(low.opacity) == 1
    assert (found.usable, found.reserved_top, found.reserved) == ("200", "0", "20")
    assert [(tick.top, tick.word + tick.label) for tick in found.ticks[:3]] == [
        ("20", "usable 195.3 KiB"),
        ("100", "0"),
        ("0", "244.1 KiB"),
    ]


def test_what_is_small_can_still_be_seen_and_has_no_outline() -> None:
    block = MapBlock(line=0, partitions=128, first=10, last=10.001, start=100_000, stop=100_004)
    small = drawn(made_map(blocks=(block, *made_map().blocks))).rectangles[0]
    # 1 px of about 300 px and 1,000 px: 100,000 bytes of 250,000 are 400 from the bottom
    assert (small.x, small.y, small.width, small.height, small.bare) == ("10", "597", "1", "3", True)
    assert not any(box.bare for box in drawn(made_map()).rectangles)


def test_labels_of_the_scale_do_not_collide() -> None:
    for physical in (200_000, 201_000, 212_984, 229_376, 262_144):
        tops = sorted(float(tick.top) for tick in drawn(made_map(physical=physical)).ticks)
        assert all(after - before >= 7 for before, after in pairwise(tops))


def test_what_has_no_room_is_red_and_above_the_line() -> None:
    block = MapBlock(line=0, name="big", partitions=128, first=0, last=1000, start=200_000, stop=400_000)
    found = drawn(made_map(blocks=(block,), homeless=1))
    (box,) = found.rectangles
    # 400,000 bytes high: the line in the middle, the block in all of the upper half
    assert (box.kind, box.y, box.height, found.usable) == ("x", "0", "500", "500")
    assert box.title.startswith("no room: big (kernel.py:10): 200,000 B x 128 partitions;")
    assert found.legend[-1].kind == "x" and "no room for 1 of 2 buffers" in found.legend[-1].text


def test_what_would_dwarf_the_picture_is_cut() -> None:
    block = MapBlock(line=0, partitions=128, first=0, last=1000, start=200_000, stop=10_000_000)
    found = drawn(made_map(blocks=(block,), homeless=1))
    assert (found.rectangles[0].y, found.usable) == ("0", "600")
    assert found.cut == 9_500_000
    made = record(times=(time_record(maps=(made_map(blocks=(block,), homeless=1),)),))
    assert "9.1 MiB of a partition more lie above what is drawn." in Page(html(made, {})).text


def test_psum_has_a_row_for_each_bank() -> None:
    block = MapBlock(line=0, partitions=128, first=0, last=1000, start=2048, stop=4096)
    found = drawn(made_map(memory="PSUM", usable=16_384, physical=16_384, bank=2048, blocks=(block,)))
    assert [tick.label for tick in found.ticks] == [f"bank {at}" for at in range(8)]
    assert found.banks == ("875", "750", "625", "500", "375", "250", "125")
    assert (found.rectangles[0].y, found.rectangles[0].height) == ("750", "125")
    assert found.usable is None and found.reserved == "0"


def test_where_little_is_ever_taken_only_that_is_drawn() -> None:
    block = MapBlock(line=0, partitions=128, first=0, last=1000, start=0, stop=5000)
    found = drawn(made_map(blocks=(block,)))
    # the next of 4096, 6144, 8192 is 6144
    assert float(found.rectangles[0].height) == pytest.approx(1000 * 5000 / 6144, abs=0.1)
    assert found.usable is None and float(found.reserved) == 0
    assert all(0 <= float(tick.top) <= 100 for tick in found.ticks)


def test_titles_say_name_line_size_and_time() -> None:
    found = made_map()
    assert title(found, found.blocks[0]) == (
        "tile (kernel.py:10): 100,000 B x 128 partitions at byte 0; 0 to 500 ns"
    )
    assert title(found, found.blocks[1]) == (
        "kernel.py:11: 50,000 B x 64 partitions at byte 150,000; 250 ns to 1.00 us"
    )
    several = found.blocks[0].model_copy(update={"buffers": 12, "name": ""})
    assert title(found, several).startswith("12 buffers of kernel.py:10: together 100,000 B x 128")
    cell = found.blocks[0].model_copy(update={"buffers": 0, "share": 0.25})
    assert title(found, cell).startswith("mostly kernel.py:10: 25% of the place in use;")
    counted = made_map(unit="instructions", end=7.0)
    assert title(counted, counted.blocks[0]).endswith("; instructions 0 to 500")
    assert moments(counted)[-1] == "7"


def test_lines_beyond_the_colours_share_a_grey() -> None:
    lines = tuple(MapLine(place=f"k.py:{at}", buffers=2, bytes=8, most=8) for at in range(COLOURS + 3))
    blocks = tuple(
        MapBlock(line=at, partitions=128, first=0, last=1, start=at * 10_000, stop=at * 10_000 + 8)
        for at in range(COLOURS + 3)
    )
    found = drawn(made_map(lines=lines, blocks=blocks))
    assert [box.kind for box in found.rectangles] == [*map(str, range(COLOURS)), "r", "r", "r"]
    assert [key.kind for key in found.legend] == [*map(str, range(COLOURS)), "r"]
    assert found.legend[-1].text == "other lines: 6 buffers"


def test_the_review_draws_the_map_in_place_of_the_curve() -> None:
    psum = made_map(memory="PSUM", usable=16_384, physical=16_384, bank=2048, blocks=())
    made = record(times=(time_record(memory=(curve(), curve("PSUM", 16384, 4096)), maps=(made_map(), psum)),))
    text = html(made, {"kernel.py": SOURCE})
    page = Page(text)
    figures = [given["class"] for name, given in page.elements if name == "figure" and "class" in given]
    assert [name for name in figures if name in ("map sbuf", "map psum", "memory")] == [
        "map sbuf",
        "map psum",
    ]
    assert "tile (kernel.py:10): 100,000 B x 128 partitions at byte 0; 0 to 500 ns" in page.text
    assert "Peak 96.0 KiB of 192.0 KiB usable (50%) at kernel.py:10" in page.text
    # the legend leads to the line in the source
    assert re.search(r'class="swatch m0"></span><a class="place" href="#s0-10">kernel.py:10</a>', text)


def test_a_review_without_a_map_of_a_memory_keeps_its_curve() -> None:
    made = record(times=(time_record(memory=(curve(), curve("PSUM", 16384, 4096)), maps=(made_map(),)),))
    figures = [
        given["class"]
        for name, given in Page(html(made, {})).elements
        if name == "figure" and "class" in given
    ]
    assert [name for name in figures if name in ("map sbuf", "memory")] == ["map sbuf", "memory"]


def test_what_a_kernel_names_is_shown_as_text() -> None:
    block = MapBlock(line=0, name="</title><script>", partitions=1, first=0, last=9, start=0, stop=9)
    line = MapLine(place="<b>.py:3", name="\x1b[31m<i>", buffers=1, bytes=9, most=9)
    made = record(times=(time_record(maps=(made_map(lines=(line,), blocks=(block,)),)),))
    page = Page(html(made, {}))
    assert not {"script", "b"} & {name for name, _ in page.elements}
    assert "</title><script>" in page.text and "\x1b" not in page.text


# The chart of a terminal


def plain(lines: list[Text]) -> list[str]:
    return [line.plain for line in lines]


def test_the_chart_has_a_letter_for_the_line_that_takes_a_cell() -> None:
    lines = plain(chart(made_map(), 8 + 3 + 40))
    rows = [line.split("│", 1)[1] for line in lines if "│" in line]
    assert len(rows) == 8 and {len(row) for row in rows} == {40}
    # rows of 25,000 bytes from the top: B in the upper two from a quarter on, A in the lower four up to the middle
    assert rows[0] == rows[1] == "." * 10 + "B" * 30
    assert rows[2] == rows[3] == "." * 40
    assert rows[4] == rows[7] == "A" * 20 + "." * 20
    assert any(re.search(r"A kernel\.py:10  tile, 1 buffer, 97\.7 KiB", line) for line in lines)


def test_what_is_in_use_to_less_than_half_is_small() -> None:
    block = MapBlock(line=1, partitions=128, first=0, last=1000, start=0, stop=10_000)
    bigger = MapBlock(line=0, partitions=128, first=0, last=1000, start=175_000, stop=200_000)
    rows = [
        line.split("│", 1)[1] for line in plain(chart(made_map(blocks=(block, bigger)), 60)) if "│" in line
    ]
    assert set(rows[-1]) == {"b"} and set(rows[0]) == {"A"}


def test_what_has_no_room_is_red_above_the_rest() -> None:
    block = MapBlock(line=0, partitions=128, first=0, last=1000, start=200_000, stop=250_000)
    lines = chart(made_map(blocks=(block,), homeless=1), 60)
    assert lines[1].plain.startswith(" no room │A")
    assert any("red" in str(span.style) for span in lines[1].spans)
    assert lines[-1].plain == "  no room for 1 of 2 buffers, in red"


@pytest.mark.parametrize("width", [40, 80, 110, 400])
def test_the_chart_is_no_wider_than_the_terminal(width: int) -> None:
    lines = plain(chart(made_map(), width))
    rows = [line for line in lines if "│" in line or "└" in line]
    assert max(len(line) for line in rows) <= min(width, 107)


def test_the_chart_of_psum_has_its_banks_and_ascii_will_do() -> None:
    psum = made_map(memory="PSUM", usable=16_384, physical=16_384, bank=2048, blocks=())
    lines = plain(chart(psum, 60, ascii_only=True))
    assert [line.split("|")[0].strip() for line in lines[:8]] == [f"bank {at}" for at in reversed(range(8))]
    assert all(line.isascii() for line in lines)

"""Timeline: busy and idle arithmetic, overlap, the critical path and the bound, against hand-drawn schedules."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nkireview.timeline.summary import Bound, critical_path, merged, summary, union
from nkireview.timeline.timeline import Lane, Timeline, Wait

LANES = ("tensor", "vector", "scalar", "gpsimd", "sync", "dma")
Slice = tuple[str, int, float, float, float, Wait, int]


def timeline(*slices: Slice) -> Timeline:
    """Slices as (lane, instruction, start, stop, ready, wait, blocker)."""
    columns = list(zip(*slices, strict=True)) if slices else [()] * 7
    return Timeline(
        target="trn2",
        lanes=tuple(Lane(0, name) for name in LANES),
        lane=np.array([LANES.index(str(name)) for name in columns[0]], np.int8),
        instruction=np.array(columns[1], np.int32),
        start=np.array(columns[2], np.float64),
        stop=np.array(columns[3], np.float64),
        ready=np.array(columns[4], np.float64),
        wait=np.array([int(wait) for wait in columns[5]], np.int8),
        blocker=np.array(columns[6], np.int32),
    )


LOAD_AND_ADD = timeline(
    ("sync", 0, 0, 600, 600, Wait.nothing, -1),
    ("dma", 0, 1900, 2900, 2900, Wait.order, 0),
    ("vector", 1, 2900, 3500, 3600, Wait.data, 1),
    ("sync", 2, 3600, 4200, 4200, Wait.data, 2),
    ("dma", 2, 5500, 6000, 6000, Wait.order, 3),
)
"""A load, an addition and a store, one after the other."""


def test_the_critical_path_of_a_chain_adds_up_to_the_whole() -> None:
    path = critical_path(LOAD_AND_ADD)
    assert path.ns.sum() == pytest.approx(6000)
    pieces = {
        (int(at), bool(late)): ns for at, ns, late in zip(path.slice, path.ns, path.latency, strict=True)
    }
    assert pieces == {
        (0, False): 600,
        (1, True): 1300,  # from the issue to the first byte
        (1, False): 1000,
        (2, False): 600,
        (2, True): 100,  # the pipeline's latency
        (3, False): 600,
        (4, True): 1300,
        (4, False): 500,
    }


def test_what_bounds_a_chain_and_how_its_time_divides() -> None:
    found = summary(LOAD_AND_ADD)
    assert found.total_ns == 6000
    assert found.shares == pytest.approx(
        {
            Bound.memory: 1500 / 6000,
            Bound.compute: 600 / 6000,
            Bound.issue: 1200 / 6000,
            Bound.latency: 2700 / 6000,
        }
    )
    assert found.bound is Bound.latency
    assert found.overlap == 0.0
    assert [spans.total for spans in found.busy] == [0, 600, 0, 0, 1200, 1500]


def test_a_saturated_engine_is_a_compute_bound() -> None:
    slices: list[Slice] = [("tensor", 0, 0, 200, 360, Wait.nothing, -1)]
    slices += [
        ("tensor", at, 200 * at, 200 * at + 200, 200 * at + 360, Wait.order, at - 1) for at in range(1, 50)
    ]
    found = summary(timeline(*slices))
    assert found.bound is Bound.compute and found.bound_by == "tensor"
    assert found.path.ns.sum() == pytest.approx(50 * 200 + 160)


def test_issuing_on_an_engine_that_computes_is_issue_time() -> None:
    found = summary(
        timeline(
            ("scalar", 0, 0, 600, 600, Wait.nothing, -1),
            ("dma", 0, 600, 610, 610, Wait.order, 0),
        )
    )
    assert found.bound is Bound.issue and found.bound_by == "scalar"


def test_hbm_is_named_where_it_held_the_transfers() -> None:
    found = summary(timeline(("dma", 0, 0, 900, 900, Wait.bandwidth, -1)))
    assert found.bound is Bound.memory and found.bound_by == "HBM"
    found = summary(timeline(("dma", 0, 0, 900, 900, Wait.engine, -1)))
    assert found.bound_by == "DMA engines"


def test_overlap_is_the_share_of_transfer_time_under_compute() -> None:
    found = summary(
        timeline(
            ("dma", 0, 0, 100, 100, Wait.nothing, -1),
            ("dma", 1, 50, 200, 200, Wait.nothing, -1),
            ("vector", 2, 150, 250, 250, Wait.nothing, -1),
            ("scalar", 3, 180, 260, 260, Wait.nothing, -1),
        )
    )
    assert found.overlap == pytest.approx(50 / 200)


def test_activity_is_the_busy_share_in_equal_steps() -> None:
    found = summary(
        timeline(
            ("vector", 0, 0, 10, 10, Wait.nothing, -1),
            ("vector", 1, 30, 40, 40, Wait.nothing, -1),
        )
    )
    assert found.activity(1, 4).tolist() == [1.0, 0.0, 0.0, 1.0]
    assert found.activity(0, 4).tolist() == [0.0] * 4


def test_an_empty_timeline_has_no_time_and_no_path() -> None:
    found = summary(timeline())
    assert found.total_ns == 0 and not len(found.path.ns) and found.activity(0, 3).tolist() == [0, 0, 0]


INTERVALS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=12)


@given(INTERVALS)
def test_merged_spans_cover_the_same_moments(given_: list[tuple[int, int]]) -> None:
    start = np.array([begin for begin, _ in given_], np.float64)
    stop = start + np.array([length for _, length in given_], np.float64)
    covered = {moment for begin, length in given_ for moment in range(begin, begin + length)}
    spans = merged(start, stop)
    assert spans.total == len(covered)
    assert np.all(spans.start[1:] > spans.stop[:-1])
    edges = np.arange(82, dtype=np.float64)
    assert np.diff(spans.before(edges)).tolist() == [float(moment in covered) for moment in range(81)]


@given(INTERVALS, INTERVALS)
def test_common_time_is_the_intersection(left: list[tuple[int, int]], right: list[tuple[int, int]]) -> None:
    def spans(given_: list[tuple[int, int]]) -> tuple[set[int], object]:
        start = np.array([begin for begin, _ in given_], np.float64)
        stop = start + np.array([length for _, length in given_], np.float64)
        return {m for begin, length in given_ for m in range(begin, begin + length)}, merged(start, stop)

    (one, first), (two, second) = spans(left), spans(right)
    assert first.common(second) == len(one & two)  # type: ignore[attr-defined]
    assert union([first, second]).total == len(one | two)  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("slices", "message"),
    [
        ([("vector", 0, 10, 5, 10, Wait.nothing, -1)], "a slice ends before it starts"),
        ([("vector", 0, 10, 15, 5, Wait.nothing, -1)], "a slice ends before it starts"),
    ],
)
def test_a_slice_must_end_after_it_starts(slices: list[Slice], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        timeline(*slices)


def test_columns_have_one_length() -> None:
    good = LOAD_AND_ADD
    with pytest.raises(ValueError, match="column ready has 2 rows, expected 5"):
        Timeline(
            good.target, good.lanes, good.lane, good.instruction, good.start, good.stop, good.ready[:2],
            good.wait, good.blocker,
        )  # fmt: skip

"""Idle time by cause, passes of loops, hidden transfers and paths by group, against hand-drawn and drawn timelines."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nkireview.timeline.idle import NO_MORE, STARTING, gaps
from nkireview.timeline.passes import spread
from nkireview.timeline.paths import hiding, stretches
from nkireview.timeline.summary import Bound, critical_path, summary
from nkireview.timeline.timeline import COMPUTE, Lane, Timeline, Wait

NAMES = ("tensor", "vector", "scalar", "gpsimd", "sync", "dma")
Slice = tuple[str, int, float, float, float, Wait, int]


def timeline(*slices: Slice, cores: int = 1) -> Timeline:
    """Slices as (lane, instruction, start, stop, ready, wait, blocker); ``vector1`` is a lane of core 1."""
    lanes = [f"{name}{core or ''}" for core in range(cores) for name in NAMES]
    columns = list(zip(*slices, strict=True)) if slices else [()] * 7
    return Timeline(
        target="trn2",
        lanes=tuple(Lane(core, name) for core in range(cores) for name in NAMES),
        lane=np.array([lanes.index(str(name)) for name in columns[0]], np.int8),
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


def told(of: Timeline) -> list[tuple[str, float, float, int, int]]:
    """Lane, begin, end, cause and blocker of each gap."""
    found = gaps(of)
    return [
        (of.lanes[lane].name, start, stop, cause, blocker)
        for lane, start, stop, cause, blocker in zip(
            found.lane.tolist(),
            found.start.tolist(),
            found.stop.tolist(),
            found.cause.tolist(),
            found.blocker.tolist(),
            strict=True,
        )
    ]


def test_each_gap_of_a_chain_is_charged_to_what_ended_it() -> None:
    assert told(LOAD_AND_ADD) == [
        ("vector", 0, 2900, Wait.data, 1),
        ("vector", 3500, 6000, NO_MORE, -1),
        ("sync", 600, 3600, Wait.data, 2),
        ("sync", 4200, 6000, NO_MORE, -1),
        ("dma", 0, 1900, STARTING, 0),
        ("dma", 2900, 3600, Wait.data, 2),  # the store could not be asked for before
        ("dma", 3600, 5500, STARTING, 3),
    ]


def test_a_transfer_that_its_engines_hold_up_is_no_start() -> None:
    held = timeline(
        ("sync", 0, 0, 10, 10, Wait.nothing, -1),
        ("dma", 0, 30, 40, 40, Wait.order, 0),
        ("sync", 1, 10, 20, 20, Wait.order, 0),
        ("dma", 1, 50, 60, 60, Wait.engine, 1),
    )
    assert told(held)[-2:] == [("dma", 0, 30, STARTING, 0), ("dma", 40, 50, Wait.engine, 1)]


def test_nothing_is_idle_where_there_is_nothing() -> None:
    assert len(gaps(timeline())) == 0


@st.composite
def drawn(draw: st.DrawFn) -> Timeline:
    """Slices at whole times, some of no length, some on lanes where they overlap, with blockers before them."""
    slices: list[Slice] = []
    for at in range(draw(st.integers(1, 12))):
        start, length = draw(st.integers(0, 40)), draw(st.integers(0, 12))
        wait = draw(st.sampled_from(list(Wait)))
        blocker = draw(st.integers(-1, at - 1))
        lane = draw(st.sampled_from([*NAMES, "vector1", "dma1"]))
        ready = start + length + draw(st.integers(0, 3))
        slices.append((lane, draw(st.integers(0, at)), start, start + length, ready, wait, blocker))
    return timeline(*slices, cores=2)


def busy_ticks(of: Timeline, lanes: list[int]) -> set[int]:
    """Whole times at which one of the lanes is busy."""
    return {
        tick
        for lane, start, stop in zip(of.lane.tolist(), of.start.tolist(), of.stop.tolist(), strict=True)
        if lane in lanes
        for tick in range(int(start), int(stop))
    }


@given(drawn())
def test_gaps_are_exactly_what_is_not_busy(of: Timeline) -> None:
    found = gaps(of)
    for lane in sorted(set(of.lane.tolist())):
        mine = found.lane == lane
        idle = [
            tick
            for start, stop in zip(found.start[mine].tolist(), found.stop[mine].tolist(), strict=True)
            for tick in range(int(start), int(stop))
        ]
        assert sorted(idle) == sorted(set(range(int(of.total_ns))) - busy_ticks(of, [lane]))
    for lane, busy in enumerate(summary(of).busy):
        if (of.lane == lane).any():
            assert busy.total + found.ns[found.lane == lane].sum() == of.total_ns


@given(drawn())
def test_hidden_and_exposed_transfers_tick_by_tick(of: Timeline) -> None:
    found = hiding(of)
    moving = computing = both = 0
    exposed = [0] * len(of)
    for core in (0, 1):
        lanes = [at for at, lane in enumerate(of.lanes) if lane.core == core]
        compute = busy_ticks(of, [at for at in lanes if of.lanes[at].name in COMPUTE])
        transfers = [at for at in lanes if of.lanes[at].name == "dma"]
        move = busy_ticks(of, transfers)
        moving, computing, both = moving + len(move), computing + len(compute), both + len(move & compute)
        for tick in move - compute:
            running = [
                at for at in range(len(of)) if of.lane[at] in transfers and of.start[at] <= tick < of.stop[at]
            ]
            exposed[min(running, key=lambda at: (of.start[at], at))] += 1
    assert (found.transfer_ns, found.compute_ns, found.both_ns) == (moving, computing, both)
    assert found.exposed.tolist() == exposed
    assert sum(exposed) == moving - both


def test_the_path_by_group() -> None:
    path = critical_path(LOAD_AND_ADD)
    group = LOAD_AND_ADD.lane.astype(np.int64)
    found = stretches(LOAD_AND_ADD, path, group)
    # transfers 1000 + 500 and twice 1300 to start, issues twice 600, the addition 600 and 100 to be seen
    assert [(NAMES[part.group], part.ns, part.latency_ns, part.wait) for part in found] == [
        ("dma", 4100, 2600, Wait.order),
        ("sync", 1200, 0, Wait.nothing),
        ("vector", 700, 100, Wait.data),
    ]
    assert stretches(timeline(), critical_path(timeline()), np.zeros(0, np.int64)) == ()


def test_later_passes_of_a_loop_count_as_the_last_one() -> None:
    looped = timeline(
        ("vector", 0, 0, 10, 10, Wait.nothing, -1),
        ("scalar", 1, 12, 20, 20, Wait.data, 0),
        ("scalar", -1, 20, 80, 80, Wait.order, 1),  # three more passes of 20 ns
        ("vector", 2, 80, 90, 90, Wait.order, 2),
    )
    found = spread(looped, {0: [3]})
    assert found.instruction.tolist() == [0, 1, 2]
    assert found.blocker.tolist() == [-1, 0, 1]
    assert (found.start.tolist(), found.stop.tolist()) == ([0, 48, 80], [40, 80, 90])
    assert found.total_ns == 90
    shares = summary(found)
    assert [spans.total for spans in shares.busy][1:3] == [4 * 10 + 10, 4 * 8]
    assert shares.shares[Bound.compute] == pytest.approx((4 * 18 + 10) / 90)


def test_loops_in_loops_multiply() -> None:
    looped = timeline(
        ("vector", 0, 0, 3, 3, Wait.nothing, -1),
        ("scalar", 1, 3, 4, 4, Wait.data, 0),
        ("scalar", -1, 4, 12, 12, Wait.order, 1),  # two more passes of 4 ns
        ("gpsimd", 2, 12, 14, 14, Wait.order, 2),
        ("gpsimd", -1, 14, 28, 28, Wait.order, 3),  # one more pass of 14 ns
    )
    found = spread(looped, {0: [2, 1]})
    assert found.total_ns == 28
    assert [spans.total for spans in summary(found).busy][1:4] == [3 * 3 * 2, 3 * 1 * 2, 2 * 2]
    assert gaps(found).ns.sum() + 28 == 3 * 28  # three lanes, never two at once


def test_passes_that_do_not_fit_are_refused() -> None:
    looped = timeline(("vector", 0, 0, 1, 1, Wait.nothing, -1), ("vector", -1, 1, 3, 3, Wait.order, 0))
    with pytest.raises(ValueError, match="0 numbers of passes for the 1 slices of core 0"):
        spread(looped, {})
    assert spread(LOAD_AND_ADD, {}) is LOAD_AND_ADD

"""The clock of the Tensor engine: slow until warm, against windows worked out by hand and by brute force."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from execute_kit import Kernel
from hypothesis import given, settings
from hypothesis import strategies as st

from nkireview.hardware import target
from nkireview.schedule.clock import Clock, Pace
from nkireview.schedule.parameters import Figures
from nkireview.schedule.timing import Timing

WINDOW, SHARE, SLOWDOWN = 3413.0, 0.38, 2.0
"""Measured on trn2; see tensor.clock_window_ns."""
HALF = Pace(1000.0, 0.5, 2.0)
"""A slow window has to be busy to its end, so steady work is fast after 0.5 to 1.5 windows: the mean leaves 500 ns."""
PER_MATMUL = (512 + 5) / 2.4


def steady(clock: Clock, work: float, count: int, at: float = 0.0) -> list[float]:
    """For how long each of some works in a row holds the engine."""
    found = []
    for _ in range(count):
        found.append(clock.held(at, work))
        at += found[-1]
    return found


def warmed(pace: Pace) -> tuple[Clock, float]:
    """A clock that just turned fast, and the window's edge at which it did."""
    clock, at = pace.clock(), 50_000.0
    while (held := clock.held(at, 1.0)) > 1.5:
        at += held
    # the work before lies across the edge where it took between 1 and 2 ns
    return clock, at


def test_figures_of_the_targets() -> None:
    assert Pace.of(Figures(target("trn2"))) == Pace(WINDOW, SHARE, SLOWDOWN)
    for name in ("trn1", "inf2", "trn3"):
        assert Pace.of(Figures(target(name))) is None


def test_steady_work_is_slow_until_the_first_fast_window() -> None:
    """500 ns of the first window are left, which hold 250 ns of work, then 1000 slow ones hold the 500 it takes."""
    assert steady(HALF.clock(), 100.0, 12) == [200.0] * 7 + [150.0] + [100.0] * 4


def test_when_work_begins_does_not_matter() -> None:
    """Windows run freely; the first work says where in one it begins, at 0 as at any later time."""
    for pace in (HALF, Pace(WINDOW, SHARE, SLOWDOWN)):
        late = steady(pace.clock(), 215.0, 40, at=1_000_000.0)
        for at in (0.0, 1.0, 499.0, 500.0, 1700.0, 2600.0):
            assert steady(pace.clock(), 215.0, 40, at) == pytest.approx(late)


def test_trn2_is_fast_after_one_window_or_two() -> None:
    """With 0.76 of a slow window left the next one is fast, with less the one after it."""
    held = steady(Pace(WINDOW, SHARE, SLOWDOWN).clock(), 215.0, 40)
    slow = sum(each for each in held if each > 215.0 + 1e-6)
    assert 0.76 * WINDOW <= slow <= 1.76 * WINDOW + 430
    turn = next(at for at, each in enumerate(held) if each < 430.0 - 1e-6)
    assert held[:turn] == pytest.approx([430.0] * turn) and turn >= 6
    assert held[turn + 1 :] == pytest.approx([215.0] * (39 - turn))


def test_steady_work_on_trn2_is_fast_after_the_mean_of_all_times() -> None:
    """Mean over where in a window work begins, r of it left: r where r >= 0.76, else r + 1. That is 0.5 + 0.76."""
    rest = (np.arange(100_000) + 0.5) / 100_000
    mean = float(np.where(rest * WINDOW / SLOWDOWN >= SHARE * WINDOW, rest, rest + 1).mean())
    assert mean == pytest.approx(1.26, abs=1e-4)
    assert target("trn2").number("tensor.cold_ns") == pytest.approx(mean * WINDOW, rel=0.001)
    held = steady(Pace(WINDOW, SHARE, SLOWDOWN).clock(), 1.0, 6000)
    assert sum(each for each in held if each > 1.0 + 1e-6) == pytest.approx(mean * WINDOW, abs=2.0)


@pytest.mark.parametrize(("share", "fast"), [(0.36, False), (0.40, True), (0.77, True)])
def test_a_window_cools_where_the_one_before_held_too_little(share: float, fast: bool) -> None:
    clock, edge = warmed(Pace(1000.0, SHARE, SLOWDOWN))
    assert clock.held(edge, share * 1000) == pytest.approx(share * 1000)
    # the next window begins up to 2 ns sooner
    assert clock.held(edge + 1010, 100.0) == pytest.approx(100.0 if fast else 200.0)


def test_work_in_a_slow_window_counts_half_its_time() -> None:
    for busy, fast in ((0.74, False), (0.78, True)):
        clock, edge = warmed(Pace(1000.0, SHARE, SLOWDOWN))
        assert clock.held(edge + 2100, 10.0) == 20.0  # a whole window without work
        assert clock.held(edge + 3010, busy * 500) == pytest.approx(busy * 1000)
        assert clock.held(edge + 4010, 10.0) == (10.0 if fast else 20.0)


def test_work_is_cut_at_the_edge_of_a_window() -> None:
    """By hand on windows from -500 on: 750 ns of work fill 1500 slow ns, what is left runs at the fast clock."""
    for extra in (0.0, 1.0, 600.0):
        assert HALF.clock().held(0.0, 750.0 + extra) == 1500.0 + extra
    clock = HALF.clock()
    assert clock.held(0.0, 250.0) == 500.0  # to the edge itself
    assert clock.held(500.0, 500.0) == 1000.0
    assert clock.held(1500.0, 500.0) == 500.0
    # the fast window held just enough; 490 of the next do not, and the 20 across the edge are half slow
    assert clock.held(2500.0, 480.0) == 480.0
    assert clock.held(3490.0, 20.0) == 10.0 + 20.0


def test_idle_gaps() -> None:
    for gap, fast in ((0.0, True), (499.0, True), (500.0, True), (501.0, False)):
        clock = HALF.clock()
        assert clock.held(0.0, 750.0) == 1500.0  # fast from 1500 on
        done = 1500.0 + clock.held(1500.0, 1000.0 - gap)
        assert done == 2500.0 - gap
        assert clock.held(2500.0, 10.0) == (10.0 if fast else 20.0)
    clock = HALF.clock()
    clock.held(0.0, 750.0)
    assert clock.held(1500.0, 1000.0) == 1000.0
    assert clock.held(3500.0, 10.0) == 20.0  # one window passed without work


def test_very_long_work() -> None:
    assert HALF.clock().held(0.0, 10e6) == pytest.approx(1500 + 10e6 - 750)


def brute(pace: Pace, works: list[tuple[int, int]]) -> list[Fraction]:
    """Held times, window by window on a grid; `works` are (idle before, work). Half of the first window is left."""
    window, rates = Fraction(pace.window), {True: Fraction(1), False: Fraction(pace.slowdown)}
    done: dict[int, Fraction] = {}
    moment, begin, found = Fraction(0), None, []
    for gap, work in works:
        moment += gap
        begin = moment - window / 2 if begin is None else begin
        start, left = moment, Fraction(work)
        while left:
            number = (moment - begin) // window
            rate = rates[done.get(number - 1, 0) >= Fraction(pace.share) * window]
            piece = min(left, (begin + (number + 1) * window - moment) / rate)
            done[number] = done.get(number, Fraction(0)) + piece
            moment, left = moment + piece * rate, left - piece
        found.append(moment - start)
    return found


WORKS = st.lists(st.tuples(st.integers(0, 2500), st.integers(1, 1800)), min_size=1, max_size=40)
STEADY = st.lists(st.tuples(st.integers(0, 300), st.integers(1, 900)), min_size=1, max_size=60)


@given(st.one_of(WORKS, STEADY), st.sampled_from([Pace(1000.0, 0.5, 2.0), Pace(1024.0, 0.25, 4.0)]))
@settings(max_examples=200, deadline=None)
def test_any_work_against_brute_force(works: list[tuple[int, int]], pace: Pace) -> None:
    clock, at, found = pace.clock(), 0.0, []
    for gap, work in works:
        found.append(clock.held(at + gap, float(work)))
        at += gap + found[-1]
    assert found == [float(each) for each in brute(pace, works)]


@given(st.one_of(WORKS, STEADY))
@settings(max_examples=100, deadline=None)
def test_work_is_held_once_to_twice_its_time(works: list[tuple[int, int]]) -> None:
    clock, at = Pace(WINDOW, SHARE, SLOWDOWN).clock(), 0.0
    for gap, work in works:
        held = clock.held(at + gap, float(work))
        assert work - 1e-6 <= held <= 2 * work + 1e-6
        at += gap + held


def matmuls(target_name: str, count: int, cores: int = 1) -> Kernel:
    kernel = Kernel(target=target_name, lnc=cores)
    for core in range(cores):
        stationary = kernel.sbuf(128, 128, dtype="bfloat16")
        moving, result = kernel.sbuf(128, 512, dtype="bfloat16"), kernel.psum(128, 512)
        for _ in range(count):
            kernel.matmul(result, stationary, moving)
        if core + 1 < cores:
            kernel.switch_core()
    return kernel


def test_a_schedule_runs_its_matmuls_by_the_clock() -> None:
    line = Timing(matmuls("trn2", 60).program()).timeline
    held = line.stop - line.start
    assert held[:6] == pytest.approx([2 * PER_MATMUL] * 6)
    assert held[-40:] == pytest.approx([PER_MATMUL] * 40)
    between = held[(held > PER_MATMUL * 1.001) & (held < PER_MATMUL * 1.999)]
    assert len(between) <= 1
    assert line.start[1:] == pytest.approx(line.stop[:-1])


def test_a_target_without_a_measured_clock_has_none() -> None:
    line = Timing(matmuls("trn1", 40).program()).timeline
    held = line.stop - line.start
    assert held == pytest.approx([(512 + 80) / 2.8] * 40)


def test_each_core_has_a_clock_of_its_own() -> None:
    one, two = (Timing(matmuls("trn2", 30, cores).program()).timeline for cores in (1, 2))
    assert two.total_ns == pytest.approx(one.total_ns)
    assert two.stop - two.start == pytest.approx(np.tile(one.stop - one.start, 2))


def test_other_engines_and_dmas_are_not_slowed_down() -> None:
    kernel = Kernel()
    tile, out = kernel.psum(128, 512), kernel.sbuf(128, 512)
    for _ in range(3):
        kernel.copy(out, tile)
    timing = Timing(kernel.program())
    assert (timing.timeline.stop - timing.timeline.start).tolist() == pytest.approx(timing.held_ns.tolist())

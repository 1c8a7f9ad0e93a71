"""Measures: each against figures worked out by hand, from records and from small Programs written by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from execute_kit import Kernel, counted
from hypothesis import given
from hypothesis import strategies as st

from nkireview import hardware
from nkireview.checks.survey import survey
from nkireview.isa.table import ROWS
from nkireview.measures import (
    dma_issue_share,
    headroom,
    largest_share,
    measures,
    rms_share,
)
from nkireview.record import Figures, LaneRecord, OutputResult, Run, TimeRecord
from nkireview.rubric import tables
from nkireview.rules.facts import Failure, WorkloadFacts
from nkireview.timeline.timeline import Lane, Timeline

TRN2 = hardware.target("trn2")
LIMITS = {"rtol": 0.01, "atol": 0.02, "rms": 0.004, "absolute": 0.0}


def figures(**keys: Any) -> Figures:
    given = {
        "scaled_max": 0.01,
        "rms_ratio": 0.001,
        "max_ulps": 1.0,
        "max_abs": 0.02,
        "at": (0,),
        "got": "1.02",
        "expected": "1.0",
        "elements": 4,
        "nonfinite_mismatches": 0,
    }
    return Figures(**{**given, **keys})


def output(status: str = "correct", limits: dict[str, float] = LIMITS, **keys: Any) -> OutputResult:
    reason = "" if status == "correct" else "r"
    return OutputResult(
        name="out",
        dtype="float32",
        shape=(4,),
        status=status,
        figures=figures(**keys),
        limits=limits,
        reason=reason,
    )  # type: ignore[arg-type]


def run(
    status: str = "correct", workload: str = "w", inputs: str = "as drawn", inside: bool = True, **keys: Any
) -> Run:
    outputs = () if status == "not assessed" else (output(status, **keys),)
    return Run(
        workload=workload,
        seed=0,
        inputs=inputs,
        in_contract=inside,
        status=status,
        outputs=outputs,
        reason="r",
    )  # type: ignore[arg-type]


def timed(total: float, floor: float, hidden: float = 0.0, workload: str = "w", **lanes: float) -> TimeRecord:
    return TimeRecord(
        workload=workload,
        total_ns=total,
        low_ns=total,
        high_ns=total,
        bound="memory",
        bound_by="x",
        floor_ns=floor,
        overlap=hidden,
        lanes=tuple(LaneRecord(name=name, busy_ns=busy, share=busy / total) for name, busy in lanes.items()),
    )


def surveyed(kernel: Kernel, name: str = "w") -> WorkloadFacts:
    program = kernel.program()
    target = hardware.target(kernel.target)
    return WorkloadFacts(name, program=program, survey=survey(program, ROWS, target))


def of(*facts: WorkloadFacts) -> dict[str, float]:
    return measures((), (), facts, TRN2)


# ---------------------------------------------------------------------------------------------------------- runs


def test_nothing_to_rest_on_is_absent() -> None:
    assert measures((), (), (), TRN2) == {}
    failed = WorkloadFacts("w", failure=Failure("raised", "x"))
    assert measures([run("not assessed")], (), [failed], TRN2) == {}


def test_runs_are_counted_within_and_outside_the_contract() -> None:
    runs = [
        run(),
        run("wrong"),
        run("wrong", inputs="scale-100"),
        run(workload="v"),
        run("not assessed"),
        run(inputs="nan", inside=False),
        run("wrong", inputs="zeros", inside=False),
        run("wrong", inputs="scale-100", inside=False),
        run("not assessed", inputs="large-mean", inside=False),
    ]
    found = measures(runs, (), [WorkloadFacts("w"), WorkloadFacts("v"), WorkloadFacts("u")], TRN2)
    assert found["correct_runs"] == 2 / 4
    assert found["hostile_runs"] == 1 / 3
    assert found["workloads_executed"] == 2 / 3
    assert "workloads_traced" not in found and "workloads_timed" not in found


def test_the_largest_error_against_its_limit() -> None:
    # rms(ref) = 0.02 / 0.01 = 2; limit = 0.01 * |-3| + 0.02 * 2 + 0.01 = 0.08; 0.02 / 0.08
    limits = {**LIMITS, "absolute": 0.01}
    assert largest_share(output(limits=limits, expected="-3.0")) == pytest.approx(0.25)
    assert rms_share(output()) == pytest.approx(0.25)
    exact = dict.fromkeys(LIMITS, 0.0)
    assert largest_share(output(limits=exact, scaled_max=0.0, rms_ratio=0.0, expected="")) == 0
    assert rms_share(output(limits=exact, scaled_max=0.0, rms_ratio=0.0)) == 0
    assert largest_share(output(limits=exact)) == rms_share(output(limits=exact)) == math.inf
    assert largest_share(output(scaled_max=math.inf)) == math.inf


def test_headroom_is_that_of_the_worst_run_as_drawn() -> None:
    # limits of the first: 0.01 * 1 + 0.02 * 2 = 0.05: 0.02 / 0.05 = 0.4; of the second 0.03 / 0.07, rms(ref) = 3
    runs = [
        run(),
        run(max_abs=0.03),
        run("wrong", inputs="scale-100"),
        run("wrong", inputs="x", inside=False),
    ]
    found = measures(runs, (), [WorkloadFacts("w")], TRN2)
    assert found["error_headroom"] == pytest.approx(1 - 3 / 7)
    assert found["rms_headroom"] == pytest.approx(0.75)
    assert headroom([*runs[:2], run("wrong")], rms_share) == 0
    assert headroom([run(rms_ratio=0.005)], rms_share) == 0
    assert headroom([], rms_share) is None


# ---------------------------------------------------------------------------------------------------------- time


def test_times_of_several_workloads_are_taken_together() -> None:
    times = [
        timed(1000.0, 250.0, 0.5, vector=300.0, dma=600.0),
        timed(3000.0, 1750.0, 1.0, "v", tensor=1800.0, dma=200.0),
        timed(1000.0, 0.0, 0.0, "u", scalar=600.0, sync=900.0),
    ]
    found = measures((), times, [WorkloadFacts(name) for name in ("w", "v", "u", "t")], TRN2)
    assert found == {
        "workloads_timed": 3 / 4,
        "overlap": pytest.approx((0.5 * 600 + 1.0 * 200) / 800),
        "bound_share": pytest.approx((600 + 1800 + 600) / 5000),
        "roofline_share": pytest.approx(2000 / 5000),
    }


def timeline(*slices: tuple[str, int, float, float]) -> Timeline:
    names = ("vector", "sync", "gpsimd", "dma")
    lane, instruction, start, stop = (np.array(column) for column in zip(*slices, strict=True))
    return Timeline(
        target="trn2",
        lanes=tuple(Lane(0, name) for name in names),
        lane=np.array([names.index(name) for name in lane], np.int8),
        instruction=instruction.astype(np.int32),
        start=start.astype(np.float64),
        stop=stop.astype(np.float64),
        ready=stop.astype(np.float64),
        wait=np.zeros(len(slices), np.int8),
        blocker=np.full(len(slices), -1, np.int32),
    )


def test_the_queue_that_issues_most_counts_with_its_dmas_only() -> None:
    one = timeline(
        ("sync", 0, 0, 60),
        ("dma", 0, 60, 200),
        ("gpsimd", 1, 0, 100),
        ("dma", 1, 100, 300),
        ("gpsimd", 2, 300, 900),
        ("vector", 3, 900, 1000),
    )
    assert dma_issue_share([one]) == pytest.approx(100 / 1000)
    other = timeline(("sync", 0, 0, 500), ("dma", 0, 500, 1000))
    assert dma_issue_share([one, other]) == pytest.approx(600 / 2000)
    assert dma_issue_share([timeline(("vector", 0, 0, 10))]) is None
    assert dma_issue_share([]) is None


# ------------------------------------------------------------------------------------------------------- programs


def test_a_tile_of_a_matmul() -> None:
    kernel = Kernel()
    stationary = kernel.load(counted(128, 64))
    moving = kernel.load(counted(128, 512))
    result, out = kernel.psum(64, 512), kernel.sbuf(64, 512)
    kernel.matmul(result, stationary, moving)
    kernel.copy(out, result)
    kernel.store(out)
    found = of(surveyed(kernel))
    assert found["workloads_traced"] == 1
    # all 128 rows and 64 of 128 columns; 64 of 128 partitions copied
    assert found["pe_filled"] == 0.5 and found["partitions_used"] == 0.5
    # everything moves once
    assert found["reload_factor"] == 1 and found["needed_bytes_share"] == 1
    # rows of 64 float32 are 256 bytes, those of 512 are 2048, which trn2 recommends
    assert found["dma_run_share"] == pytest.approx((128 + 64) * 2048 / ((128 + 64) * 2048 + 128 * 256))
    # one bank of eight, which two tiles of 64 partitions can share
    assert found["psum_peak_share"] == 1 / 16
    # both operands, 256 + 2048 bytes a partition, are dead before `out`, 2048 of them on 64 partitions, begins
    assert found["sbuf_peak_share"] == pytest.approx(2304 / 212984)


def test_what_is_loaded_again_counts_again() -> None:
    kernel = Kernel()
    source = kernel.argument(counted(128, 512))
    tile = kernel.sbuf(128, 512)
    total = kernel.sbuf(128, 512)
    kernel.copy(tile, source)
    kernel.copy(total, tile)
    kernel.copy(tile, source)
    kernel.call("tensor_tensor", dst=total, data1=total, data2=tile, op="add")
    kernel.store(total)
    found = of(surveyed(kernel))
    assert found["reload_factor"] == 2
    # a tile is read that counts and one written, of three moved
    assert found["needed_bytes_share"] == pytest.approx(2 / 3)


def test_an_intermediate_in_hbm_is_not_needed() -> None:
    kernel = Kernel()
    tile = kernel.load(counted(128, 512))
    spill = kernel.hbm(128, 512)
    kernel.copy(spill, tile)
    again = kernel.sbuf(128, 512)
    kernel.copy(again, spill)
    kernel.store(again)
    found = of(surveyed(kernel))
    assert found["reload_factor"] == 1
    assert found["needed_bytes_share"] == pytest.approx(2 / 4)


def test_partitions_are_weighted_by_the_time_of_their_instructions() -> None:
    kernel = Kernel()
    narrow, wide = kernel.load(counted(32, 1024)), kernel.load(counted(128, 128))
    kernel.copy(kernel.sbuf(32, 1024), narrow)
    kernel.copy(kernel.sbuf(128, 128), wide)
    facts = surveyed(kernel)
    assert facts.survey is not None
    long, short = facts.survey.work.interval
    found = of(facts)
    assert found["partitions_used"] == pytest.approx((long * 0.25 + short * 1.0) / (long + short))
    assert 0.25 < found["partitions_used"] < 0.5
    assert "pe_filled" not in found and "psum_peak_share" not in found


@pytest.mark.parametrize("columns", [16, 128, 512])
def test_the_fixed_cost_of_an_instruction_is_no_work(columns: int) -> None:
    kernel = Kernel()
    tile = kernel.load(counted(128, columns))
    kernel.call("activation", dst=kernel.sbuf(128, columns), data=tile, op="relu")
    found = of(surveyed(kernel))
    # N elements a partition beside the fixed 60 cycles
    assert found["free_size_share"] == pytest.approx(columns / (columns + 60))


def test_moving_columns_are_the_free_size_of_a_matmul() -> None:
    kernel = Kernel()
    kernel.matmul(kernel.psum(128, 128), kernel.load(counted(128, 128)), kernel.load(counted(128, 128)))
    assert of(surveyed(kernel))["free_size_share"] == pytest.approx(128 / 512)


def test_transposes_do_not_fill_the_array() -> None:
    kernel = Kernel()
    tile = kernel.load(counted(128, 128))
    kernel.matmul(kernel.psum(128, 128), tile, tile)
    alone = of(surveyed(kernel))["pe_filled"]
    small = kernel.load(counted(128, 32))
    kernel.matmul(kernel.psum(32, 128), small, tile, is_transpose=True)
    assert of(surveyed(kernel))["pe_filled"] == alone == 1


def test_a_few_matmuls_do_not_make_a_kernel_of_matmuls() -> None:
    kernel = Kernel()
    tile = kernel.load(counted(128, 512))
    kernel.matmul(kernel.psum(1, 512), kernel.load(counted(128, 1)), tile)
    alone = of(surveyed(kernel))
    assert alone["pe_filled"] == pytest.approx(1 / 128)
    for _ in range(40):
        kernel.copy(kernel.sbuf(128, 512), tile)
    assert "pe_filled" not in of(surveyed(kernel))


def test_loops_count_as_often_as_they_run() -> None:
    kernel = Kernel()
    source = kernel.argument(counted(128, 512))
    tile = kernel.sbuf(128, 512)
    with kernel.loop(3):
        kernel.copy(tile, source)
    kernel.store(tile)
    assert of(surveyed(kernel))["reload_factor"] == 3


def test_figures_of_workloads_are_summed() -> None:
    parts = []
    for columns in (64, 512):
        kernel = Kernel()
        kernel.store(kernel.load(counted(128, columns)))
        parts.append(surveyed(kernel, str(columns)))
    assert of(*parts)["dma_run_share"] == pytest.approx(512 / (512 + 64))
    assert of(*parts)["sbuf_peak_share"] == of(parts[1])["sbuf_peak_share"]


def test_idle_partitions_count_by_the_time_of_their_engine_and_not_below_the_floor() -> None:
    kernel = Kernel()
    narrow = kernel.load(counted(32, 1024))
    kernel.copy(kernel.sbuf(32, 1024), narrow)
    facts = surveyed(kernel)
    # three of four lanes are idle while Vector works
    for total, floor, busy, share in (
        (1000.0, 100.0, 400.0, 0.3),
        (1000.0, 900.0, 400.0, 0.1),
        (1000.0, 0.0, 0.0, 0),
    ):
        found = measures((), [timed(total, floor, vector=busy, dma=500.0)], [facts], TRN2)
        assert found["partitions_idle"] == pytest.approx(share)
        assert "pe_idle" not in found
    assert "partitions_idle" not in of(facts)
    assert "partitions_idle" not in measures((), [timed(1.0, 0.0, 0.0, "v", vector=1.0)], [facts], TRN2)


def test_an_empty_array_counts_by_the_time_of_the_tensor_engine() -> None:
    kernel = Kernel()
    kernel.matmul(kernel.psum(1, 512), kernel.load(counted(128, 1)), kernel.load(counted(128, 512)))
    facts = surveyed(kernel)
    near = measures((), [timed(1000.0, 950.0, tensor=970.0)], [facts], TRN2)
    far = measures((), [timed(1000.0, 100.0, tensor=640.0)], [facts], TRN2)
    assert near["pe_filled"] == far["pe_filled"] == pytest.approx(1 / 128)
    assert near["pe_idle"] == pytest.approx(0.05)
    assert far["pe_idle"] == pytest.approx(0.64 * 127 / 128)
    both = measures(
        (),
        [timed(1000.0, 950.0, tensor=970.0), timed(3000.0, 300.0, 0.0, "v", tensor=1920.0)],
        [facts, surveyed(kernel, "v")],
        TRN2,
    )
    assert both["pe_idle"] == pytest.approx((50 + 1920 * 127 / 128) / 4000)


def test_the_fixed_cost_counts_by_the_time_of_the_engine_that_loses_most() -> None:
    kernel = Kernel()
    tile = kernel.load(counted(128, 60))
    kernel.call("activation", dst=kernel.sbuf(128, 60), data=tile, op="relu")
    # Scalar: 60 of 120 cycles are fixed
    found = measures((), [timed(1000.0, 0.0, scalar=800.0, vector=100.0)], [surveyed(kernel)], TRN2)
    assert found["fixed_cost"] == pytest.approx(0.4)


def test_the_most_reloaded_buffer_is_told_beside_the_reload_factor_of_all() -> None:
    kernel = Kernel()
    big, row = kernel.argument(counted(512, 512)), kernel.argument(counted(1, 512))
    for at in range(4):
        kernel.copy(kernel.sbuf(128, 512), big[128 * at : 128 * at + 128])
        kernel.copy(kernel.sbuf(1, 512), row)
    found = of(surveyed(kernel))
    assert found["worst_reload"] == 4
    assert found["reload_factor"] == pytest.approx((512 + 4) / (512 + 1))


@given(st.lists(st.builds(timed, st.floats(1, 1e6), st.floats(0, 1e6), st.floats(0, 1)), max_size=3))
def test_measures_are_finite_named_and_in_the_order_of_the_table(times: list[TimeRecord]) -> None:
    found = measures([run()], times, [WorkloadFacts("w")], TRN2)
    assert [name for name in tables.measures() if name in found] == list(found)
    assert all(math.isfinite(value) for value in found.values())

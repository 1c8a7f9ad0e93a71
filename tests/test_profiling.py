"""Profiles: what explains a schedule, on programs made by hand; the profiler's metrics, on public profiles."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from execute_kit import Kernel

from nkireview import hardware
from nkireview.checks.metrics import METRICS, Figured, metrics
from nkireview.checks.survey import survey
from nkireview.isa.table import ROWS
from nkireview.profiling import BINS, CAUSES, ENDED, REST, SPILL, STARTS, Profile, profile
from nkireview.schedule.timing import Timing

TRN2 = hardware.target("trn2")
EVIDENCE = Path(__file__).resolve().parents[2] / "shared" / "evidence"
SAMPLES = sorted(EVIDENCE.glob("samples/trn2/*/*_profile_full.json"))


def profiled(kernel: Kernel) -> Profile:
    program = kernel.program()
    target = hardware.target(kernel.target)
    return profile(program, Timing(program), survey(program, ROWS, target), target, "drawn")


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def doubled(kernel: Kernel, columns: int = 512) -> None:
    """Load a tile, add it to itself, store the sum."""
    tile = kernel.load(zeros(128, columns))
    total = kernel.sbuf(128, columns)
    kernel.call("tensor_tensor", dst=total, data1=tile, data2=tile, op="add")
    kernel.store(total)


def add_up(found: Profile) -> None:
    """Busy and idle time of every lane are the whole."""
    assert found.lanes
    for lane in found.lanes:
        assert lane.busy_ns + sum(cause.ns for cause in lane.idle) == pytest.approx(found.total_ns)
        assert len(lane.activity) == BINS
        assert sum(lane.activity) / BINS == pytest.approx(lane.share, abs=1e-3)
    assert sum(line.ns for line in found.critical) == pytest.approx(found.total_ns)
    assert sum(line.share for line in found.critical) == pytest.approx(1)


def test_a_chain_explains_itself() -> None:
    kernel = Kernel()
    doubled(kernel)
    found = profiled(kernel)
    add_up(found)
    assert (found.name, found.target, found.release, found.lnc) == ("drawn", "trn2", "0.6", 1)
    assert found.low_ns < found.total_ns < found.high_ns
    by_lane = {lane.name: lane for lane in found.lanes}
    assert set(by_lane) == {"vector", "sync", "dma"}
    first, last = by_lane["vector"].idle if by_lane["vector"].idle[0].name else by_lane["vector"].idle[::-1]
    assert (first.waits, first.name, first.lane, first.count) == ("data", "dma_copy", "dma", 1)
    assert (last.waits, last.name, last.place) == (ENDED, "", "")
    load = found.slices.place_of(0)
    assert first.place == load
    assert {cause.waits for cause in by_lane["dma"].idle} == {STARTS, "data"}
    assert {line.name for line in found.critical} == {"dma_copy", "tensor_tensor"}
    assert {(line.lane, line.waits) for line in found.critical if line.lane == "dma"} == {("dma", STARTS)}


def test_slices_say_what_they_do() -> None:
    kernel = Kernel()
    doubled(kernel)
    table = profiled(kernel).slices
    lanes = [table.lanes[lane].name for lane in table.lane.tolist()]
    assert lanes == ["sync", "dma", "vector", "sync", "dma"]
    assert [table.name_of(at) for at in range(5)] == ["dma_copy"] * 2 + ["tensor_tensor"] + ["dma_copy"] * 2
    size = 128 * 512 * 4
    assert table.bytes.tolist() == [0, size, 3 * size, 0, size]
    assert table.flops.tolist() == [0] * 5
    assert table.operands_of(1) == "dst=sbuf float32[128,512] src=hbm float32[128,512]"
    words = [table.waits[code] for code in table.wait.tolist()]
    assert words == ["nothing", STARTS, "data", "data", STARTS]
    assert table.blocker.tolist() == [-1, 0, 1, 2, 3]


def test_transfers_of_a_chain_are_all_exposed() -> None:
    kernel = Kernel()
    doubled(kernel)
    found = profiled(kernel).overlap
    assert (found.both_ns, found.share) == (0.0, 0.0)
    assert sum(line.ns for line in found.exposed) == pytest.approx(found.dma_ns)
    assert len({line.place for line in found.exposed}) == 2


def test_clocks_add_what_a_launch_adds() -> None:
    kernel = Kernel()
    doubled(kernel)
    found = profiled(kernel)
    window = found.total_ns
    assert found.clocks["window"] == window
    assert found.clocks["active"] - window == TRN2.number("launch.active_time_overhead_ns")
    assert found.clocks["benchmark"] - window == TRN2.number("launch.benchmark_overhead_ns")
    assert found.clocks["total"] - window == TRN2.number("launch.total_time_overhead_ns")
    assert found.metrics["total_time"] == pytest.approx(found.clocks["total"] / 1e9)


def test_metrics_of_a_chain() -> None:
    kernel = Kernel()
    doubled(kernel)
    found = profiled(kernel).metrics
    size = 128 * 512 * 4
    assert (found["hbm_read_bytes"], found["hbm_write_bytes"]) == (size, size)
    assert found["sbuf_write_bytes"] == size + 512 * 4  # a DMA all of it, an engine one partition
    assert found["sbuf_read_bytes"] == size + 2 * 512 * 4
    assert (found["dma_transfer_count"], found["dma_transfer_total_bytes"]) == (2, 2 * size)
    assert found["dma_transfer_average_bytes"] == size
    assert (found["vector_engine_instruction_count"], found["sync_engine_instruction_count"]) == (1, 2)
    assert found["inputs_outputs_weights_size_bytes"] == 2 * size
    assert found["hardware_flops"] == 0
    assert not {name for name in found if "spill" in name}


def loaded_twice(nki: str) -> Profile:
    """A sum of what is loaded twice from one place, 256 KiB each time, stored."""
    kernel = Kernel(nki=nki)
    x = kernel.argument(zeros(128, 512))
    one, two, total = kernel.sbuf(128, 512), kernel.sbuf(128, 512), kernel.sbuf(128, 512)
    kernel.copy(one, x)
    kernel.copy(two, x)
    kernel.call("tensor_tensor", dst=total, data1=one, data2=two, op="add")
    kernel.store(total)
    return profiled(kernel)


@pytest.mark.parametrize(("nki", "loads"), [("0.6", 2), ("0.1", 1)])
def test_what_the_legacy_compiler_merges_does_not_count(nki: str, loads: int) -> None:
    found = loaded_twice(nki)
    size = 128 * 512 * 4
    moves = [lane.name for lane in (found.slices.lanes[at] for at in found.slices.lane)].count("dma")
    assert moves == loads + 1
    assert found.metrics["hbm_read_bytes"] == loads * size and found.metrics["hbm_write_bytes"] == size
    assert found.roofline.hbm_bytes == (loads + 1) * size
    bounds = {(bound.group, bound.name): bound.ns for bound in found.bounds}
    # 362.5 bytes a ns
    assert bounds["memory", "ideal"] == pytest.approx((loads + 1) * size / 362.5)
    assert bounds["memory", "ideal"] <= bounds["memory", "active"] + 1e-6
    assert found.usage.hbm == pytest.approx((loads + 1) * size / 362.5 / found.total_ns)
    assert found.usage.engines_busy <= found.usage.engines


def test_what_the_compiler_spills_has_a_name_of_its_own() -> None:
    """Thirty tiles of 8 KiB a partition are needed again when their sum is known, 240 KiB, where 208 find room."""
    kernel = Kernel(nki="0.1")
    start, total = kernel.load(zeros(128, 2048)), kernel.sbuf(128, 2048)
    kernel.call("memset", dst=total, value=0.0)
    tiles = [kernel.sbuf(128, 2048) for _ in range(30)]
    for at, tile in enumerate(tiles):
        kernel.call("tensor_scalar", dst=tile, data=start, op0="multiply", operand0=at + 2.0)
        kernel.call("tensor_tensor", dst=total, data1=total, data2=tile, op="add")
    for tile in tiles:
        kernel.call("tensor_tensor", dst=tile, data1=tile, data2=total, op="subtract")
        kernel.store(tile)
    found = profiled(kernel)
    assert "compiler-free: tiles spilled" in found.band_words
    table, size = found.slices, 128 * 2048 * 4
    on_dma = {at for at in range(len(table)) if table.lanes[int(table.lane[at])].name == "dma"}
    names = [table.name_of(at) for at in on_dma]
    assert set(names) == {"dma_copy", SPILL} and names.count("dma_copy") == 1 + 30
    assert SPILL not in {table.name_of(at) for at in set(range(len(table))) - on_dma}
    # what goes out comes back: each transfer of the compiler's own has a tile
    spilled = found.metrics["hbm_write_bytes"] - 30 * size
    assert spilled == found.metrics["hbm_read_bytes"] - size == names.count(SPILL) * size / 2
    assert found.roofline.hbm_bytes == 31 * size + 2 * spilled
    bounds = {(bound.group, bound.name): bound.ns for bound in found.bounds}
    # transfers share HBM in steps of 500 ns
    assert bounds["memory", "ideal"] <= bounds["memory", "active"] + 500
    assert bounds["memory", "without re-loads"] == pytest.approx(31 * size / 362.5)


def test_what_leaves_psum_has_the_size_it_is_written_in() -> None:
    kernel = Kernel()
    kernel.copy(kernel.sbuf(128, 512, dtype="bfloat16"), kernel.psum(128, 512))
    kernel.call("tensor_reduce", dst=kernel.sbuf(128, 1), op="max", data=kernel.psum(128, 512), axis=1)
    kernel.copy(kernel.sbuf(128, 512), kernel.sbuf(128, 512))
    found = profiled(kernel).metrics
    assert (found["psum_read_sbuf_write_bytes"], found["psum_read_sbuf_write_count"]) == (1024 + 4, 2)
    assert found["psum_read_bytes"] == 2 * 2048


def test_every_trip_of_a_device_loop_counts() -> None:
    kernel = Kernel()
    tile = kernel.load(zeros(128, 512))
    with kernel.loop(7):
        kernel.call("tensor_tensor", dst=tile, data1=tile, data2=tile, op="add")
    kernel.store(tile)
    program = kernel.program()
    timing = Timing(program)
    found = profile(program, timing, survey(program, ROWS, TRN2), TRN2, "loop")
    add_up(found)
    vector = next(lane for lane in found.lanes if lane.name == "vector")
    each = float(timing.plan.costs.held[1])
    assert vector.busy_ns == pytest.approx(7 * each)
    assert found.metrics["vector_engine_instruction_count"] == 7
    assert (found.slices.instruction == -1).sum() == 1
    stands = int(np.flatnonzero(found.slices.instruction == -1)[0])
    assert (found.slices.name_of(stands), found.slices.place_of(stands)) == ("", "")
    assert (found.slices.operands_of(stands), found.slices.bytes[stands]) == ("", 0)
    assert all(line.name for line in found.critical)


def test_two_cores() -> None:
    kernel = Kernel(lnc=2)
    doubled(kernel)
    kernel.switch_core()
    doubled(kernel, 256)
    found = profiled(kernel)
    add_up(found)
    assert found.lnc == 2
    assert {(lane.core, lane.name) for lane in found.lanes} == {
        (core, name) for core in (0, 1) for name in ("vector", "sync", "dma")
    }
    assert found.metrics["hbm_read_bytes"] == 128 * (512 + 256) * 4
    assert found.roofline.peak_bandwidth == pytest.approx(725e9)
    busy = {(lane.core, lane.name): lane.busy_ns for lane in found.lanes}
    assert found.overlap.dma_ns == pytest.approx(busy[0, "dma"] + busy[1, "dma"])


def test_loops_of_two_cores_stretch_each_core_by_itself() -> None:
    kernel = Kernel(lnc=2)
    for core, trips in enumerate((5, 9)):
        if core:
            kernel.switch_core()
        tile = kernel.load(zeros(128, 512))
        with kernel.loop(trips):
            kernel.call("tensor_tensor", dst=tile, data1=tile, data2=tile, op="add")
            with kernel.loop(4):
                kernel.call("activation", dst=tile, op="exp", data=tile)
        kernel.store(tile)
    found = profiled(kernel)
    add_up(found)
    busy = {(lane.core, lane.name): lane.busy_ns for lane in found.lanes}
    assert busy[0, "vector"] / busy[1, "vector"] == pytest.approx(5 / 9)
    assert found.metrics["activate_instruction_count"] == (5 + 9) * 4
    # the first one loads its table
    table = TRN2.number("scalar.table_load_ns")
    assert (busy[0, "scalar"] - table) / (busy[1, "scalar"] - table) < 1


def test_rare_causes_are_added_up() -> None:
    kernel = Kernel()
    for _ in range(CAUSES + 8):
        tile = kernel.load(zeros(128, 2048))
        kernel.call("memset", dst=tile[:, 0:8], value=0.0)
    found = profiled(kernel)
    add_up(found)
    vector = next(lane for lane in found.lanes if lane.name == "vector")
    assert len(vector.idle) == CAUSES + 1
    assert vector.idle[-1].waits == REST
    assert sum(cause.count for cause in vector.idle) == CAUSES + 8 + 1  # before each memset, and at the end


def test_what_is_unknown_of_a_target_is_said() -> None:
    kernel = Kernel(target="trn1")
    doubled(kernel)
    found = profiled(kernel)
    assert any("launch.total_time_overhead_ns" in text for text in found.assumed)
    kernel = Kernel(target="trn3")
    doubled(kernel)
    assert "mbu_estimated_percent" not in profiled(kernel).metrics


def test_an_empty_program() -> None:
    found = profiled(Kernel())
    assert (found.total_ns, found.lanes, found.critical, len(found.slices)) == (0.0, (), (), 0)
    assert found.overlap.share == 0.0


def real_summary(path: Path) -> dict[str, Any]:
    held = json.loads(path.read_text(encoding="utf-8"))["summary"]
    found: dict[str, Any] = held[0] if isinstance(held, list) else held
    return found


needs_samples = pytest.mark.skipif(not SAMPLES, reason="needs the public profiles, which do not lie here")


@needs_samples
@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.parent.name)
def test_derived_metrics_are_those_of_real_profiles(path: Path) -> None:
    real = real_summary(path)
    lanes = ("tensor", "vector", "scalar", "gpsimd", "sync")
    found = metrics(
        Figured(
            total=real["total_time"],
            active=real["total_active_time"],
            window=0.0,
            busy={lane: real[f"{lane}_engine_active_time"] for lane in lanes}
            | {"dma": real["dma_active_time"]},
            spent={lane: real[f"{lane}_engine_instruction_time"] for lane in lanes},
            instructions={lane: real[f"{lane}_engine_instruction_count"] for lane in lanes},
            matmuls=real["matmul_instruction_count"],
            activations=real["activate_instruction_count"],
            activation_time=real["activate_instruction_time"],
            array_flops=real["hardware_flops"],
            transpose_flops=real["transpose_flops"],
            transfers=0,
            transferred=0,
            packet_time=real["dma_packet_time"],
            hbm_read=real["hbm_read_bytes"],
            hbm_write=real["hbm_write_bytes"],
            sbuf_read=real["sbuf_read_bytes"],
            sbuf_write=real["sbuf_write_bytes"],
            psum_read=real["psum_read_bytes"],
            psum_write=real["psum_write_bytes"],
            evacuated=real["psum_read_sbuf_write_bytes"],
            evacuations=real["psum_read_sbuf_write_count"],
            inputs=real["inputs_and_weights_size_bytes"],
            outputs=real["inputs_outputs_weights_size_bytes"] - real["inputs_and_weights_size_bytes"],
            cores=1,
            hardware=TRN2,
        )
    )
    shared = set(found) & set(real)
    assert len(shared) >= 40
    for name in sorted(shared):
        assert found[name] == pytest.approx(real[name], rel=1e-6), name
    # of those that are not in this version of the summary, all but one are in its glossary
    assert set(found) - set(real) == {"total_exec_time", "dma_transfer_count", "dma_transfer_total_bytes"}


@needs_samples
@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.parent.name)
def test_on_chip_bytes_are_counted_as_real_profiles_count_them(path: Path) -> None:
    """Matmuls pass by pass, work by their elements; from PSUM to SBUF what those that read PSUM write."""
    held = json.loads(path.read_text(encoding="utf-8"))
    real = real_summary(path)
    out = [one for one in held["instruction"] if one.get("psum_read_bytes") and one.get("sbuf_write_bytes")]
    assert len(out) == real["psum_read_sbuf_write_count"]
    assert sum(one["sbuf_write_bytes"] for one in out) == real["psum_read_sbuf_write_bytes"]
    passes = [one for one in held["instruction"] if one["opcode"] == "MATMUL"]
    assert len(passes) == real["matmul_instruction_count"]
    assert sum(one["elements"] for one in passes) * 2 == real["hardware_flops"]


@pytest.mark.skipif(
    not EVIDENCE.exists(),
    reason="compares names and scales with the profiler's glossary, data of others and no part of the project; the "
    "values of the metrics are tested everywhere",
)
def test_every_metric_has_a_name_and_a_scale_of_the_profiler() -> None:
    with (EVIDENCE / "summary_metrics.csv").open(encoding="utf-8") as file:
        known = {row["metric"]: row for row in csv.DictReader(file)}
    groups = json.loads((EVIDENCE / "summary_groups_2.28.json").read_text(encoding="utf-8"))
    assert {metric.name for metric in METRICS} <= set(known)
    for metric in METRICS:
        scale = known[metric.name]["actual_scale"]
        if metric.name.endswith("_percent"):
            assert (metric.unit, scale[:13]) == ("fraction 0..1", "fraction 0..1")
        if scale.startswith("seconds"):
            assert metric.unit == "seconds"
        assert metric.group == groups.get(metric.name, ""), metric.name
    assert len({metric.name for metric in METRICS}) == len(METRICS)

"""What instructions touch and compute, how full the hardware is, roofline and bounds, against figures by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from execute_kit import Kernel, View

from nkireview import hardware
from nkireview.checks.bounds import bounds
from nkireview.checks.operations import Operations, operations
from nkireview.checks.ran import ran
from nkireview.checks.roofline import peak_flops, roofline
from nkireview.checks.survey import Survey, survey
from nkireview.checks.usage import usage
from nkireview.isa.enums import Engine
from nkireview.isa.table import ROWS
from nkireview.program.program import Program
from nkireview.program.scope import Scope
from nkireview.schedule.costs import LANES
from nkireview.schedule.parameters import Figures
from nkireview.schedule.residence import Fetch
from nkireview.schedule.schedule import Changes
from nkireview.schedule.timing import Timing
from nkireview.timeline.summary import summary

TRN2 = hardware.target("trn2")


def made(kernel: Kernel) -> Operations:
    return operations(Scope.of(kernel.program()), Figures(TRN2))


def surveyed(program: Program) -> Survey:
    return survey(program, ROWS, TRN2)


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def product(kernel: Kernel, rows: int, columns: int, free: int, dtype: str) -> View:
    dst = kernel.psum(columns, free)
    kernel.matmul(dst, kernel.sbuf(rows, columns, dtype=dtype), kernel.sbuf(rows, free, dtype=dtype))
    return dst


def test_a_matmul_in_bf16() -> None:
    kernel = Kernel()
    product(kernel, 128, 64, 512, "bfloat16")
    found = made(kernel)
    assert found.texts == (
        "dst=psum float32[64,512] stationary=sbuf bfloat16[128,64] moving=sbuf bfloat16[128,512]",
    )
    assert found.products.tolist() == [128 * 64 * 512]
    assert found.array_flops.tolist() == [2 * 128 * 64 * 512]
    assert (found.matmuls.tolist(), found.transpose_flops.tolist()) == ([1], [0])
    assert found.dtypes == ("bfloat16",)
    assert found.sbuf_read.tolist() == [(64 + 512) * 2]
    assert found.psum_write.tolist() == [512 * 4]
    assert (found.psum_read.tolist(), found.sbuf_write.tolist()) == ([0], [0])
    # half of the columns idle: the documented 512 cycles would do for twice as many
    assert found.array_ns.tolist() == pytest.approx([512 / 2.4 / 2])


def test_a_public_profile_of_fp32_attention() -> None:
    """The Tensor work of fused_fp32_s512: its summary counts 60 matmuls, 352321536 FLOP, 83886080 of transposes."""
    kernel = Kernel()
    for _ in range(4):
        product(kernel, 128, 128, 512, "float32")
    for _ in range(16):
        product(kernel, 128, 128, 128, "float32")
    for _ in range(20):
        dst, data = kernel.psum(128, 128), kernel.sbuf(128, 128)
        kernel.call("nc_transpose", dst=dst, data=data, engine=Engine.tensor)
    found = made(kernel)
    assert found.matmuls.sum() == 60
    assert found.array_flops.sum() == 352321536
    assert found.transpose_flops.sum() == 83886080
    assert found.psum_write.sum() == 43008
    assert found.products.sum() == (352321536 - 83886080) // 4


def test_tensor_multiplies_nothing_at_a_barrier() -> None:
    kernel = Kernel(lnc=2)
    kernel.call("core_barrier", engine=Engine.tensor, data=kernel.hbm(128, 64, shared=True), cores=(0, 1))
    kernel.switch_core()
    kernel.call("core_barrier", engine=Engine.tensor, data=kernel.hbm(128, 64, shared=True), cores=(0, 1))
    found = made(kernel)
    assert found.engine.tolist() == [Engine.tensor.value] * 2
    assert (found.matmuls.tolist(), found.array_flops.tolist()) == ([0, 0], [0, 0])


def test_what_an_engine_reads_and_writes() -> None:
    kernel = Kernel()
    kernel.call(
        "activation",
        dst=kernel.sbuf(64, 100, dtype="bfloat16"),
        op="exp",
        data=kernel.psum(64, 100),
        bias=kernel.sbuf(64, 1),
        scale=1.0,
    )
    found = made(kernel)
    assert (found.psum_read.tolist(), found.sbuf_write.tolist()) == ([400], [200])
    assert found.sbuf_read.tolist() == [0]  # the bias of ACTIVATE is in no count of a public profile
    assert found.touched.tolist() == [64 * (400 + 200 + 4)]
    assert (found.products.tolist(), found.matmuls.tolist(), found.array_ns.tolist()) == ([0], [0], [0])


def test_a_dma_touches_nothing_on_an_engine() -> None:
    kernel = Kernel()
    kernel.load(zeros(128, 64))
    found = made(kernel)
    assert (found.touched.tolist(), found.sbuf_write.tolist()) == ([0], [0])
    assert found.texts == ("dst=sbuf float32[128,64] src=hbm float32[128,64]",)


def test_half_a_pe_array_and_a_quarter_of_the_lanes() -> None:
    kernel = Kernel()
    dst = product(kernel, 128, 64, 512, "bfloat16")
    product(kernel, 64, 128, 512, "bfloat16")
    kernel.call("memset", engine=Engine.gpsimd, dst=kernel.sbuf(32, 64), value=0.0)
    kernel.copy(kernel.sbuf(64, 512), dst)
    program = kernel.program()
    timing = Timing(program)
    found = usage(timing, surveyed(program), TRN2, 3625.0, ran(timing, surveyed(program)))
    assert (found.rows, found.columns, found.cells) == pytest.approx((0.75, 0.75, 0.5))
    assert found.lanes["gpsimd"] == 0.25
    assert "scalar" not in found.lanes
    assert (found.transfer_engines, found.engines_busy) == (None, 0.0)
    assert found.hbm == pytest.approx(10 / timing.total_ns)  # at 362.5 bytes a ns


def test_how_often_instructions_run() -> None:
    kernel = Kernel()
    kernel.load(zeros(128, 64))
    kernel.load(zeros(128, 64))
    kernel.call("memset", dst=kernel.sbuf(128, 64), value=0.0)
    program = kernel.program()
    facts = surveyed(program)
    changes = Changes(
        dropped=frozenset({1}),
        fetches={
            2: [
                Fetch(before=2, load=0, after=-1, bytes=32768),
                Fetch(before=2, load=-1, after=-1, bytes=100, saves=True),
                Fetch(before=2, load=-1, after=-1, bytes=300),
            ]
        },
    )
    found = ran(
        cast(
            Timing, SimpleNamespace(plan=SimpleNamespace(changes=changes, costs=Timing(program).plan.costs))
        ),
        facts,
    )
    assert found.times.tolist() == [2, 0, 1]
    assert [LANES[lane] for lane in found.lane.tolist()] == ["sync", "sync", "vector"]
    assert (found.spilled, found.restored) == (100, 300)


def test_engines_of_a_transfer() -> None:
    kernel = Kernel()
    kernel.load(zeros(32, 1024))
    program = kernel.program()
    timing = Timing(program)
    found = usage(timing, surveyed(program), TRN2, 32 * 4096.0, ran(timing, surveyed(program)))
    assert found.transfer_engines == 4  # eight partitions an engine
    assert found.engines_busy == pytest.approx(4 * timing.plan.costs.transfer[0] / timing.total_ns)
    assert (found.rows, found.lanes) == (None, {})


def test_a_point_left_of_the_ridge() -> None:
    found = roofline({"bfloat16": 1e6}, 1e5, 1e4, 1, TRN2)
    assert (found.flops, found.intensity, found.side) == (2e6, 20.0, "memory side")
    assert found.ridge == pytest.approx(78.6432e12 / 362.5e9)
    assert found.attainable == pytest.approx(20 * 362.5e9)
    assert found.attained == pytest.approx(2e6 / 1e-5)


def test_a_point_right_of_the_ridge_on_two_cores() -> None:
    found = roofline({"float32": 1e9}, 1e5, 1e6, 2, TRN2)
    assert found.side == "compute side"
    assert found.attainable == found.peak_flops == pytest.approx(2 * 19.6608e12)
    assert found.peak_bandwidth == pytest.approx(725e9)


def test_mixed_dtypes_share_the_array_by_time() -> None:
    found = roofline({"bfloat16": 4e6, "float32": 1e6}, 1e5, 1e4, 1, TRN2)
    # 8e6 FLOP at 78.6 TFLOP/s and 2e6 at a quarter of that take the same time
    assert found.peak_flops == pytest.approx(10e6 / (2 * 8e6 / 78.6432e12))
    assert found.dtypes == ("bfloat16", "float32")


def test_programs_without_products_or_without_traffic() -> None:
    copied = roofline({}, 1e5, 1e4, 1, TRN2)
    assert (copied.intensity, copied.attained, copied.side) == (0.0, 0.0, "memory side")
    resident = roofline({"bfloat16": 1e6}, 0.0, 1e4, 1, TRN2)
    assert resident.side == "compute side"
    assert resident.attainable == pytest.approx(78.6432e12)


def test_the_peak_of_each_dtype() -> None:
    assert peak_flops("float16", TRN2) == pytest.approx(78.6432e12)
    assert peak_flops("float8_e4m3", TRN2) == pytest.approx(157.2864e12)
    assert peak_flops("float8_e4m3fn_x4", hardware.target("trn3")) == pytest.approx(314.5728e12)


def test_bounds_of_a_load_that_is_repeated() -> None:
    kernel = Kernel()
    x = kernel.argument(zeros(128, 512))
    tile, again = kernel.sbuf(128, 512), kernel.sbuf(128, 512)
    kernel.copy(tile, x)
    kernel.copy(again, x)
    total = kernel.sbuf(128, 512)
    kernel.call("tensor_tensor", dst=total, data1=tile, data2=again, op="add")
    kernel.store(total)
    program = kernel.program()
    timing = Timing(program)
    facts = surveyed(program)
    line = timing.timeline
    scope = operations(Scope.of(program), Figures(TRN2))
    size = 128 * 512 * 4
    rows = bounds(line, summary(line), scope, facts, TRN2, 3.0 * size, ran(timing, facts))
    found = {(row.group, row.name): row.ns for row in rows}
    assert found["memory", "ideal"] == pytest.approx(3 * size / 362.5)
    assert found["memory", "without re-loads"] == pytest.approx(2 * size / 362.5)
    assert found["compute", "useful"] == 0
    vector = line.stop[line.lane == 1] - line.start[line.lane == 1]
    assert found["compute", "active"] == pytest.approx(vector.sum())
    assert 0 < found["compute", "ideal"] <= found["compute", "active"]
    longest = max(found["memory", "active"], found["compute", "active"])
    assert found["pipeline", "what is left"] == pytest.approx(line.total_ns - longest)
    assert found["memory", "active"] >= found["memory", "ideal"] * (1 - 1e-9)

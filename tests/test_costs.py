"""Costs of instructions and DMAs: which figures and rules apply where, against numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from execute_kit import Kernel, View, counted

from nkireview.hardware import target
from nkireview.isa.enums import DgeMode, Engine
from nkireview.isa.table import ROWS
from nkireview.program.scope import Scope
from nkireview.schedule.costs import GPSIMD, SYNC, Costs, costs
from nkireview.schedule.packets import packet_ns
from nkireview.schedule.parameters import Figures, Parameters


def priced(kernel: Kernel, static: bool | None = None) -> Costs:
    program = kernel.program()
    return costs(Scope.of(program, ROWS), Figures(target(kernel.target)), Parameters(), static)


def cycles(kernel: Kernel, engine: str) -> list[float]:
    """What each instruction holds its engine, less the fixed overhead, in cycles."""
    chip = target(kernel.target)
    fixed = chip.number(f"{engine}.overhead_cycles")
    return [
        round(float(held) * chip.number(f"{engine}.clock_ghz") - fixed, 6) for held in priced(kernel).held
    ]


@pytest.mark.parametrize(
    ("name", "dtype", "strided", "expected"),
    [
        ("trn2", "float32", False, 512),  # 256 elements a cycle for two inputs of 128 lanes
        ("trn2", "bfloat16", False, 256),
        ("trn2", "bfloat16", True, 512),
        ("trn1", "float32", False, 768),  # fitted: 1.5 cycles an element, documented as 2
        ("trn1", "bfloat16", False, 512),
    ],
)
def test_two_inputs_on_vector(name: str, dtype: str, strided: bool, expected: float) -> None:
    kernel = Kernel(target=name)
    tiles = [kernel.sbuf(128, 1024, dtype=dtype) for _ in range(3)]
    one, two, out = (tile[:, 0:1024:2] if strided else tile[:, 0:512] for tile in tiles)
    kernel.call("tensor_tensor", dst=out, data1=one, data2=two, op="add")
    assert cycles(kernel, "vector") == [expected]


def test_an_operand_that_lies_in_a_tile_is_read_beside_the_data() -> None:
    kernel = Kernel()
    data = kernel.psum(128, 256)
    kernel.call("tensor_scalar", dst=kernel.sbuf(128, 256), data=data, op0="add", operand0=2.0)
    kernel.call(
        "tensor_scalar", dst=kernel.sbuf(128, 256), data=data, op0="add", operand0=kernel.sbuf(128, 1)
    )
    plain, read = cycles(kernel, "vector")
    assert (plain, read) == (256, 256 + 64)


@pytest.mark.parametrize(
    ("step", "reads", "expected"),
    # 16 B do not exceed 16 B, 20 B do; two inputs take 1.5 cycles an element on trn1
    [(4, 1, 256), (5, 1, 512), (5, 2, 256 * 3.5), (4, 2, 256 * 1.5)],
    ids=lambda value: str(value),
)
def test_wide_strides_in_sbuf_take_a_cycle_more_for_each_read(step: int, reads: int, expected: float) -> None:
    kernel = Kernel(target="trn1")
    tile = kernel.sbuf(128, 256 * step)[:, 0 : 256 * step : step]
    out = kernel.sbuf(128, 256)
    if reads == 1:
        kernel.call("tensor_copy", dst=out, src=tile, engine=Engine.vector)
    else:
        kernel.call("tensor_tensor", dst=out, data1=tile, data2=tile, op="add")
    assert cycles(kernel, "vector") == [expected]


def test_every_activation_function_but_a_copy_reads_a_bias() -> None:
    kernel = Kernel()
    data = kernel.psum(128, 128)
    for op in ("tanh", "tanh", "copy"):
        kernel.call("activation", dst=kernel.sbuf(128, 128), op=op, data=data)
    assert cycles(kernel, "scalar")[1:] == [pytest.approx(128 + 112), pytest.approx(128)]


def test_gpsimd_starts_an_instruction_too() -> None:
    kernel = Kernel()
    kernel.call("memset", dst=kernel.sbuf(128, 512), value=1.0, engine=Engine.gpsimd)
    kernel.call("iota", dst=kernel.sbuf(128, 512, dtype="int32"), pattern=[[1, 512]], offset=0)
    held = priced(kernel).held * 1.2
    assert held.tolist() == pytest.approx([512 + 60, 512 + 150])


def matmul(kernel: Kernel, columns: int, moving: int, dtype: str, **given: Any) -> None:
    kernel.call(
        "nc_matmul",
        dst=kernel.psum(columns, moving),
        stationary=kernel.sbuf(128, columns, dtype=dtype),
        moving=kernel.sbuf(128, moving, dtype=dtype),
        **given,
    )


@pytest.mark.parametrize(
    ("dtype", "columns", "moving", "passes", "each"),
    [
        ("bfloat16", 128, 512, 1, 512),
        ("bfloat16", 128, 1, 1, 64),  # the floor; 32 cycles of weights hide
        ("float32", 128, 512, 2, 1024),
        ("float32", 128, 32, 2, 256),  # the weights of each pass take longer than its columns
        ("float32", 16, 8, 2, 64),
    ],
)
def test_a_matmul_takes_its_columns_or_its_weights(
    dtype: str, columns: int, moving: int, passes: int, each: int
) -> None:
    kernel = Kernel()
    matmul(kernel, columns, moving, dtype)
    made = priced(kernel)
    assert made.held[0] * 2.4 == pytest.approx(passes * (each + 5))
    assert made.warms.tolist() == [True]


def test_matmuls_in_other_parts_of_the_array_run_side_by_side() -> None:
    kernel = Kernel()
    for position in ((0, 0), (64, 0), (0, 0), (64, 64)):
        size = (64, 64) if position[1] else (64, 128)
        kernel.call(
            "nc_matmul",
            dst=kernel.psum(64, 512),
            stationary=kernel.sbuf(64, 64, dtype="bfloat16"),
            moving=kernel.sbuf(64, 512, dtype="bfloat16"),
            tile_position=position,
            tile_size=size,
        )
    matmul(kernel, 128, 512, "bfloat16")
    alone = (512 + 5) / 2.4
    # two pairs, then one on the whole array
    assert priced(kernel).held.tolist() == pytest.approx([alone / 2] * 4 + [alone])


def moved(kernel: Kernel, dst: View, src: View) -> None:
    kernel.call("dma_copy", dst=dst, src=src)


def test_a_long_row_is_one_descriptor() -> None:
    """The curve of nki-dma-overview.rst still rises from 4 to 32 KiB a partition: 0.966, 0.983, 0.992, 1."""
    figures = Figures(target("trn2"))
    rates = np.array([size / packet_ns(size, figures) for size in (4096, 8192, 16384, 32768)])
    assert (rates / rates[-1]).tolist() == pytest.approx([0.966, 0.983, 0.992, 1.0], abs=0.01)
    kernel = Kernel()
    moved(kernel, kernel.sbuf(128, 8192), kernel.argument(counted(128, 8192)))
    made = priced(kernel)
    assert made.descriptors[0] == 128
    assert made.transfer[0] == pytest.approx(8 * (7.6 + 32768 / 27.2))


@pytest.mark.parametrize(
    ("name", "partitions", "engines"), [("trn2", 4, 1), ("trn2", 128, 16), ("trn1", 4, 4)]
)
def test_engines_by_partitions(name: str, partitions: int, engines: int) -> None:
    kernel = Kernel(target=name)
    moved(kernel, kernel.sbuf(partitions, 64), kernel.argument(counted(partitions, 64)))
    assert priced(kernel).engines[0] == engines


@pytest.mark.parametrize(
    ("stores", "bytes_", "measured"),
    [
        # GB/s of 128 partitions on inf2, many DMAs in a row; small loads in kernels that keep the rings full, which
        # sweeps of loads alone (40.8 at 128 B, 207.5 and 220.0 at these sizes) do not
        (False, 2048, 236.0),
        (False, 4096, 257.0),
        (False, 32768, 270.8),
        (True, 128, 106.1),
        (True, 4096, 237.5),
        (True, 16384, 266.2),
        (True, 32768, 267.0),
    ],
)
def test_rates_on_inf2(stores: bool, bytes_: int, measured: float) -> None:
    kernel = Kernel(target="trn1")
    tile, outside = kernel.sbuf(128, bytes_ // 4), kernel.argument(counted(128, bytes_ // 4))
    moved(kernel, *((outside, tile) if stores else (tile, outside)))
    made = priced(kernel)
    assert 128 * bytes_ / made.transfer[0] == pytest.approx(measured, rel=0.1)
    assert made.held[0] < made.transfer[0]  # the compiler's descriptors do not hold the queue up


@pytest.mark.parametrize(("columns", "microseconds"), [(128, 187), (512, 701), (2048, 2839), (4096, 5740)])
def test_stores_of_single_elements_on_inf2(columns: int, microseconds: float) -> None:
    kernel = Kernel(target="trn1")
    moved(kernel, kernel.hbm(128, 2 * columns)[:, 0 : 2 * columns : 2], kernel.sbuf(128, columns))
    made = priced(kernel)
    assert made.descriptors[0] == 128 * columns
    assert made.transfer[0] / 1000 == pytest.approx(microseconds, rel=0.06)


def test_a_cast_counts_each_element_once_and_both_ends() -> None:
    kernel = Kernel()
    moved(kernel, kernel.sbuf(128, 128, dtype="bfloat16"), kernel.argument(counted(128, 128)))
    moved(kernel, kernel.hbm(128, 128, dtype="bfloat16"), kernel.argument(counted(128, 128)))
    made = priced(kernel)
    assert made.descriptors.tolist() == [
        128,
        16,
    ]  # between two places in HBM in pieces of 4 KiB of the wider end
    assert made.software.tolist() == [True, True] and made.lane.tolist() == [GPSIMD, GPSIMD]
    assert made.hbm_bytes.tolist() == [128 * 128 * 4, 128 * 128 * (4 + 2)]


@pytest.mark.parametrize(
    ("static", "mode", "held"),
    [
        (False, DgeMode.unknown, 500 + 128 * 0.42),
        (True, DgeMode.unknown, 70),
        (None, DgeMode.unknown, 500 + 128 * 0.42),
        (False, DgeMode.none, 70),
        (True, DgeMode.hwdge, 500 + 128 * 0.42),
        (True, DgeMode.swdge, 582),
    ],
)
def test_who_writes_the_descriptors(static: bool | None, mode: DgeMode, held: float) -> None:
    kernel = Kernel()
    kernel.call("memset", dst=kernel.sbuf(128, 8), value=0.0)  # opens the stream
    ends = (kernel.sbuf(128, 64), kernel.argument(counted(128, 64)))
    accesses = [kernel.builder.access(end.access) for end in ends]
    kernel.builder.append("dma_copy", ("dst", "src"), accesses, {}, place=kernel.place(), dge=mode)
    assert priced(kernel, static).held[1] == pytest.approx(held)


def test_no_compiler_writes_descriptors_of_addresses_that_it_does_not_know() -> None:
    kernel = Kernel(target="trn1")
    index = kernel.load(np.zeros((128, 1), np.int32))
    source = kernel.indexed(kernel.argument(counted(128, 64)), "vector", index, axis=0)
    moved(kernel, kernel.sbuf(128, 64), source)
    made = priced(kernel)
    assert made.lane.tolist() == [SYNC, GPSIMD]
    assert made.held.tolist() == pytest.approx([70, 582])


def test_a_dma_transpose_takes_longer_than_a_copy() -> None:
    kernel = Kernel()
    source, tile = kernel.argument(counted(128, 128)), kernel.sbuf(128, 128)
    moved(kernel, tile, source)
    kernel.call("dma_transpose", dst=tile, src=source, axes=(1, 0))
    kernel.call("dma_transpose", dst=kernel.sbuf(128, 128), src=tile, axes=(1, 0))
    copied, from_hbm, on_chip = priced(kernel).transfer.tolist()
    assert [copied / from_hbm, copied / on_chip] == pytest.approx([0.9, 0.5])

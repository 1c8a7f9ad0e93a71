"""How much of its engine each compute instruction fills, held against figures worked out by hand."""

from __future__ import annotations

import pytest
from execute_kit import Kernel

from nkireview import hardware
from nkireview.checks.survey import survey
from nkireview.checks.utilisation import Work
from nkireview.isa.enums import Engine
from nkireview.isa.table import ROWS


def of(kernel: Kernel, target: str = "trn2") -> Work:
    return survey(kernel.program(), ROWS, hardware.target(target)).work


def test_partitions_and_free_size() -> None:
    kernel = Kernel()
    kernel.call("activation", dst=kernel.sbuf(64, 3, 100), data=kernel.sbuf(64, 3, 100), op="exp")
    found = of(kernel)
    assert (found.partitions.tolist(), found.free.tolist()) == ([64], [300])
    assert found.engine.tolist() == [Engine.scalar.value]
    assert found.interval.tolist() == pytest.approx([300 / 1.2])
    assert found.filled(Engine.scalar, 128) == 0.5
    assert found.filled(Engine.vector, 128) is None
    assert found.rows.tolist() == [0]


def test_rows_and_columns_of_a_matmul() -> None:
    kernel = Kernel()
    stationary, moving = kernel.sbuf(64, 32, dtype="bfloat16"), kernel.sbuf(64, 512, dtype="bfloat16")
    kernel.matmul(kernel.psum(32, 512), stationary, moving)
    found = of(kernel)
    assert (found.rows.tolist(), found.columns.tolist()) == ([64], [32])
    assert found.products.tolist() == [64 * 32 * 512]
    assert not found.fp32.any() and not found.moves.any()
    assert found.interval.tolist() == pytest.approx([512 / 2.4])
    assert found.filled(Engine.tensor, 128) == 0.125


def test_a_float32_matmul_takes_four_passes() -> None:
    kernel = Kernel()
    kernel.matmul(kernel.psum(128, 512), kernel.sbuf(128, 128), kernel.sbuf(128, 512))
    found = of(kernel)
    assert found.fp32.tolist() == [True]
    assert found.interval.tolist() == pytest.approx([4 * 512 / 2.4])


def test_transposes_move_and_multiply_nothing() -> None:
    kernel = Kernel()
    tile, bank = kernel.sbuf(128, 64), kernel.psum(64, 128)
    kernel.call("nc_transpose", dst=bank, data=tile)
    kernel.matmul(bank, kernel.sbuf(128, 64), kernel.sbuf(128, 128), is_transpose=True)
    found = of(kernel)
    assert found.moves.tolist() == [True, True]
    assert found.products.tolist() == [0.0, 0.0]
    assert (found.rows.tolist(), found.columns.tolist()) == ([128, 128], [64, 64])


def test_a_share_is_weighted_by_interval_and_trips() -> None:
    kernel = Kernel()
    narrow, wide = kernel.sbuf(32, 960), kernel.sbuf(128, 960)
    with kernel.loop(3):
        kernel.call("activation", dst=narrow, data=narrow, op="exp")
    kernel.call("activation", dst=wide, data=wide, op="exp")
    assert of(kernel).filled(Engine.scalar, 128) == pytest.approx((3 * 0.25 + 1) / 4)


@pytest.mark.parametrize(("target", "engines"), [("trn1", {"gpsimd"}), ("trn2", {"gpsimd", "scalar"})])
def test_engines_that_may_run_a_copy_too(target: str, engines: set[str]) -> None:
    kernel = Kernel(target)
    kernel.copy(kernel.sbuf(128, 8), kernel.sbuf(128, 8))
    (mask,) = of(kernel, target).elsewhere.tolist()
    assert {engine.name for engine in Engine if mask >> engine.value & 1} == engines

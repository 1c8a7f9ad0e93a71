"""reduction_lengths: each clause of the rule, and a hand-computed length for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from execute_kit import Kernel, View, counted

from nkireview.checks.reduction import reduction_lengths

ALL = slice(None)


def lengths(kernel: Kernel) -> tuple[int, ...]:
    return reduction_lengths(kernel.program(), kernel.rows)


def length(kernel: Kernel, view: View) -> int:
    kernel.store(view)
    (found,) = lengths(kernel)
    return found


def test_a_copy_sums_nothing() -> None:
    kernel = Kernel()
    assert length(kernel, kernel.load(counted(128, 8))) == 1


def test_constants_and_unwritten_outputs_have_length_1() -> None:
    kernel = Kernel()
    t = kernel.sbuf(128, 8)
    kernel.call("memset", dst=t, value=1.0)
    kernel.store(t)
    kernel.output(kernel.hbm(4, 4))
    assert lengths(kernel) == (1, 1)


def test_a_matmul_sums_its_rows() -> None:
    kernel = Kernel()
    result, out = kernel.psum(16, 32), kernel.sbuf(16, 32)
    kernel.matmul(result, kernel.load(counted(96, 16)), kernel.load(counted(96, 32)))
    kernel.copy(out, result)
    assert length(kernel, out) == 96


@pytest.mark.parametrize(("accumulate", "wanted"), [(None, 4 * 128), (True, 4 * 128), (False, 128)])
def test_accumulations_add_up_unless_they_start_afresh(accumulate: bool | None, wanted: int) -> None:
    kernel = Kernel()
    result, out = kernel.psum(16, 32), kernel.sbuf(16, 32)
    for _ in range(4):
        kernel.matmul(
            result, kernel.load(counted(128, 16)), kernel.load(counted(128, 32)), accumulate=accumulate
        )
    kernel.copy(out, result)
    assert length(kernel, out) == wanted


def test_a_second_matmul_adds_its_rows_to_those_of_the_first() -> None:
    kernel = Kernel()
    first, second = kernel.psum(64, 32), kernel.psum(16, 32)
    between, out = kernel.sbuf(64, 32), kernel.sbuf(16, 32)
    kernel.matmul(first, kernel.load(counted(128, 64)), kernel.load(counted(128, 32)))
    kernel.copy(between, first)
    for _ in range(2):
        kernel.matmul(second, kernel.load(counted(64, 16)), between)
    kernel.copy(out, second)
    assert length(kernel, out) == 127 + 2 * 64


def test_double_row_sums_two_rows_a_partition() -> None:
    kernel = Kernel()
    result, out = kernel.psum(16, 32), kernel.sbuf(16, 32)
    stationary, moving = (
        kernel.sbuf(128, 2, 16, dtype="float8_e4m3"),
        kernel.sbuf(128, 2, 32, dtype="float8_e4m3"),
    )
    kernel.matmul(result, stationary, moving, perf_mode="double_row")
    kernel.copy(out, result)
    assert length(kernel, out) == 256


def test_a_transpose_by_matmul_sums_nothing() -> None:
    kernel = Kernel()
    result, out = kernel.psum(32, 32), kernel.sbuf(32, 32)
    x = kernel.load(counted(32, 32))
    kernel.matmul(result, x, x, is_transpose=True)
    kernel.copy(out, result)
    assert length(kernel, out) == 1


def test_banks_of_one_psum_tile_are_told_apart() -> None:
    kernel = Kernel()
    result, out = kernel.psum(16, 4, 32), kernel.sbuf(16, 4, 32)
    for _ in range(3):
        for bank in range(4):
            view = result[:, bank : bank + 1]
            kernel.matmul(view, kernel.load(counted(128, 16)), kernel.load(counted(128, 32)))
    kernel.copy(out, result)
    assert length(kernel, out) == 3 * 128


def test_views_that_overlap_are_one_sum() -> None:
    kernel = Kernel()
    result, out = kernel.psum(16, 32), kernel.sbuf(16, 32)
    stationary = kernel.load(counted(128, 16))
    kernel.matmul(result[:, :20], stationary, kernel.load(counted(128, 20)))
    kernel.matmul(result[:, 10:30], stationary, kernel.load(counted(128, 20)))
    kernel.matmul(result[:, 30:], stationary, kernel.load(counted(128, 2)))
    kernel.copy(out, result)
    assert length(kernel, out) == 256


def test_many_views_of_a_buffer_share_a_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nkireview.checks.reduction.VIEWS", 2)
    kernel = Kernel()
    result, out = kernel.psum(16, 8), kernel.sbuf(16, 8)
    for column in range(4):
        kernel.matmul(
            result[:, column : column + 1], kernel.load(counted(10, 16)), kernel.load(counted(10, 1))
        )
    kernel.copy(out, result)
    assert length(kernel, out) == 20


@pytest.mark.parametrize(
    ("op", "shape", "axis", "wanted"),
    [
        ("add", (128, 1), (1, 2), 48),
        ("add", (128, 6), (2,), 8),
        ("multiply", (128, 1), (1, 2), 48),
        ("maximum", (128, 1), (1, 2), 1),
    ],
)
def test_a_reduction_sums_the_free_elements_it_takes_together(
    op: str, shape: tuple[int, ...], axis: tuple[int, ...], wanted: int
) -> None:
    kernel = Kernel()
    x, out = kernel.load(counted(128, 6, 8)), kernel.sbuf(*shape)
    kernel.call("tensor_reduce", dst=out, op=op, data=x, axis=axis)
    assert length(kernel, out) == wanted


@pytest.mark.parametrize(("ops", "wanted"), [(("multiply", "add"), 64), (("maximum", "minimum"), 1)])
def test_a_scan_sums_its_row(ops: tuple[str, str], wanted: int) -> None:
    kernel = Kernel()
    x, y, out = kernel.load(counted(128, 64)), kernel.load(counted(128, 64)), kernel.sbuf(128, 64)
    kernel.call("tensor_tensor_scan", dst=out, data0=x, data1=y, initial=0.0, op0=ops[0], op1=ops[1])
    assert length(kernel, out) == wanted


def reduce(kernel: Kernel, x: View, result: View | None, **given: Any) -> None:
    views = {} if result is None else {"reduce_res": result}
    kernel.call("activation", dst=kernel.sbuf(128, x.pattern[1][1]), data=x, op="exp", **views, **given)


def test_an_activation_sums_into_its_result_only() -> None:
    kernel = Kernel()
    x, dst, result = kernel.load(counted(128, 24)), kernel.sbuf(128, 24), kernel.sbuf(128, 1)
    kernel.call("activation_reduce", dst=dst, data=x, op="exp", reduce_op="add", reduce_res=result)
    kernel.store(dst)
    kernel.store(result)
    assert lengths(kernel) == (1, 24)


def test_accumulator_registers_keep_their_length() -> None:
    kernel = Kernel()
    x, result = kernel.load(counted(128, 24)), kernel.sbuf(128, 1)
    reduce(kernel, x, None, reduce_op="add", reduce_cmd="reset_reduce")
    reduce(kernel, x, None, reduce_op="add", reduce_cmd="reduce")
    reduce(kernel, x, result, reduce_op="add", reduce_cmd="reduce")
    assert length(kernel, result) == 3 * 24
    kernel = Kernel()
    x, result = kernel.load(counted(128, 24)), kernel.sbuf(128, 1)
    reduce(kernel, x, None, reduce_op="add", reduce_cmd="reset_reduce")
    reduce(kernel, x, result, reduce_op="add", reduce_cmd="reset_reduce")
    assert length(kernel, result) == 24


def test_statistics_sum_their_row_and_searches_nothing() -> None:
    kernel = Kernel()
    x, stats, top = kernel.load(counted(128, 40)), kernel.sbuf(128, 6), kernel.sbuf(128, 8)
    kernel.call("bn_stats", dst=stats, data=x)
    kernel.call("max8", dst=top, src=x)
    kernel.store(stats)
    kernel.store(top)
    assert lengths(kernel) == (40, 1)


def test_adding_tiles_sums_two_terms() -> None:
    kernel = Kernel()
    x, total = kernel.load(counted(128, 8)), kernel.load(counted(128, 8))
    for _ in range(9):
        kernel.call("tensor_tensor", dst=total, data1=total, data2=x, op="add")
    assert length(kernel, total) == 10


@pytest.mark.parametrize("trips", [1, 4])
def test_a_predicated_copy_adds_nothing_to_what_it_leaves(trips: int) -> None:
    kernel = Kernel()
    x, summed, kept = kernel.load(counted(128, 24)), kernel.sbuf(128, 1), kernel.load(counted(128, 1))
    chosen = kernel.load(counted(128, 1, dtype=np.uint8))
    kernel.call("tensor_reduce", dst=summed, op="add", data=x, axis=1)
    for _ in range(trips):
        kernel.call("tensor_copy_predicated", dst=summed, src=kept, predicate=chosen)
    assert length(kernel, summed) == 24


@pytest.mark.parametrize(("op", "wanted"), [("subtract", 2), ("multiply", 1), ("maximum", 1)])
def test_only_sums_count(op: str, wanted: int) -> None:
    kernel = Kernel()
    x, y = kernel.load(counted(128, 8)), kernel.load(counted(128, 8))
    kernel.call("tensor_tensor", dst=x, data1=x, data2=y, op=op)
    assert length(kernel, x) == wanted


def test_a_number_is_no_term_and_a_bias_is_one() -> None:
    kernel = Kernel()
    x, bias, out = kernel.load(counted(128, 8)), kernel.load(counted(128, 1)), kernel.sbuf(128, 8)
    kernel.call("tensor_scalar", dst=x, data=x, op0="add", operand0=1.0)
    kernel.call("activation", dst=out, data=x, op="exp", bias=bias)
    kernel.store(x)
    kernel.store(out)
    assert lengths(kernel) == (1, 2)


def test_an_overwrite_replaces_and_a_part_does_not() -> None:
    for part, wanted in (((ALL, ALL), 1), ((ALL, slice(0, 31)), 96)):
        kernel = Kernel()
        result, x = kernel.psum(16, 32), kernel.load(counted(16, 32))
        kernel.matmul(result, kernel.load(counted(96, 16)), kernel.load(counted(96, 32)))
        kernel.copy(result[part], x[part])
        out = kernel.sbuf(16, 32)
        kernel.copy(out, result)
        assert length(kernel, out) == wanted


def test_the_same_view_is_replaced() -> None:
    kernel = Kernel()
    t, x = kernel.sbuf(128, 8), kernel.load(counted(128, 24))
    kernel.call("tensor_reduce", dst=t[:, 2:3], op="add", data=x, axis=(1,))
    kernel.copy(t[:, 2:3], x[:, :1])
    assert length(kernel, t) == 1


def test_the_longest_path_counts() -> None:
    kernel = Kernel()
    x, total = kernel.load(counted(128, 24)), kernel.sbuf(128, 1)
    kernel.call("tensor_reduce", dst=total, op="add", data=x, axis=(1,))
    kernel.call("tensor_scalar", dst=x, data=x, op0="multiply", operand0=total)
    assert length(kernel, x) == 24


@pytest.mark.parametrize("trips", [1, 2, 7])
def test_a_loop_grows_a_length_by_its_trips(trips: int) -> None:
    kernel = Kernel()
    result, out = kernel.psum(16, 32), kernel.sbuf(16, 32)
    stationary, moving = kernel.load(counted(128, 16)), kernel.load(counted(128, 32))
    with kernel.loop(trips), kernel.loop(3):
        kernel.matmul(result, stationary, moving)
    kernel.copy(out, result)
    assert length(kernel, out) == 3 * trips * 128


def test_a_sum_that_starts_afresh_in_a_loop_does_not_grow() -> None:
    kernel = Kernel()
    x, total, out = kernel.load(counted(128, 24)), kernel.sbuf(128, 1), kernel.hbm(128, 1)
    with kernel.loop(50):
        kernel.call("tensor_reduce", dst=total, op="add", data=x, axis=(1,))
        kernel.copy(out, total)
    kernel.output(out)
    assert lengths(kernel) == (24,)


def test_a_loop_without_static_bounds_counts_as_one_trip() -> None:
    kernel = Kernel()
    result, out = kernel.psum(16, 32), kernel.sbuf(16, 32)
    stationary, moving = kernel.load(counted(128, 16)), kernel.load(counted(128, 32))
    with kernel.loop(("register", 3)):
        kernel.matmul(result, stationary, moving)
    kernel.copy(out, result)
    assert length(kernel, out) == 128


def test_what_a_core_reads_from_a_later_one() -> None:
    kernel = Kernel(lnc=2)
    x = kernel.argument(counted(128, 24), shared=True)
    scratch, out = kernel.hbm(128, 1, shared=True), kernel.hbm(128, 1, shared=True)
    t = kernel.sbuf(128, 1)
    kernel.copy(t, scratch)
    kernel.copy(out, t)
    kernel.switch_core()
    wide, total = kernel.sbuf(128, 24), kernel.sbuf(128, 1)
    kernel.copy(wide, x)
    kernel.call("tensor_reduce", dst=total, op="add", data=wide, axis=(1,))
    kernel.copy(scratch, total)
    kernel.output(out)
    assert lengths(kernel) == (24,)


def test_overlapping_addresses_share_a_length() -> None:
    kernel = Kernel()
    x = kernel.load(counted(128, 24))
    total, alias = kernel.sbuf(128, 1, address=(0, 8)), kernel.sbuf(128, 4, address=(0, 0))
    kernel.call("tensor_reduce", dst=total, op="add", data=x, axis=(1,))
    kernel.store(alias)
    kernel.copy(alias, x[:, :4])
    kernel.store(total)
    assert lengths(kernel) == (24, 1)


def test_an_unknown_row_keeps_the_longest_length() -> None:
    kernel = Kernel()
    x, total, t = kernel.load(counted(128, 24)), kernel.sbuf(128, 1), kernel.sbuf(128, 1)
    kernel.call("tensor_reduce", dst=total, op="add", data=x, axis=(1,))
    kernel.raw("frobnicate", {"a": t.access, "b": total.access})
    assert length(kernel, t) == 24

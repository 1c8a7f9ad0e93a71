"""Dynamic and irregular addresses against NumPy: registers, scalars, vectors, snakes, bounds and tables."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from execute_kit import Kernel, View, counted
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from nkireview.execute import Execution, Poison, execute
from nkireview.isa import dtypes
from nkireview.program.access import Bound

Array = NDArray[Any]


def register(number: int) -> tuple[str, int]:
    return ("register", number)


def faults(execution: Execution) -> list[tuple[str, str]]:
    return [(fault.kind, fault.message) for fault in execution.faults]


def clean(execution: Execution) -> list[Array]:
    assert not execution.faults
    return [output.values for output in execution.outputs]


def added(execution: Execution, twice: int) -> list[Array]:
    """The outputs of an addition in which so many elements meet others."""
    found = [fault.message.split(": ", 1)[1].split(" of ")[0] for fault in execution.faults]
    assert found == ([str(twice)] if twice else [])
    assert {fault.kind for fault in execution.faults} <= {"duplicate indices"}
    return [output.values for output in execution.outputs]


SCATTERED = {"duplicate scatter", "duplicate scatter to a spare row"}


def scattered(execution: Execution, parts: list[tuple[object, bytes]]) -> list[Array]:
    """The outputs of a scatter of such bytes to such places, at fault where two of them differ at one place."""
    contested = any(place == other and held != also for place, held in parts for other, also in parts)
    assert len(execution.faults) == contested
    assert {fault.kind for fault in execution.faults} <= SCATTERED
    return [output.values for output in execution.outputs]


def column(values: list[int], dtype: type = np.int32) -> Array:
    return np.array(values, dtype).reshape(-1, 1)


def gather(source: Array, index: Array, **fields: Any) -> Kernel:
    """The rows of an HBM tensor at the indices of a tile, as an SBUF tile."""
    kernel = Kernel()
    idx, held = kernel.load(index), kernel.argument(source)
    rows = replace(held, pattern=((source.shape[1], index.size), (1, source.shape[1])))
    out = kernel.load(np.full((index.size, source.shape[1]), -1, source.dtype))
    kernel.call("dma_copy", dst=out, src=kernel.indexed(rows, "vector", idx, **fields))
    kernel.store(out)
    return kernel


def scatter(target: Array, index: Array, values: Array, opcode: str = "dma_copy", **fields: Any) -> Kernel:
    """Rows of an SBUF tile written to an HBM tensor at the indices of a tile."""
    kernel = Kernel()
    idx, src = kernel.load(index), kernel.load(values)
    out = kernel.hbm(*target.shape, dtype=dtypes.of(target.dtype).name)
    kernel.copy(out, kernel.argument(target))
    rows = replace(out, pattern=((target.shape[1], index.size), (1, target.shape[1])))
    into = kernel.indexed(rows, "vector", idx, **fields)
    if opcode == "dma_copy":
        kernel.call("dma_copy", dst=into, src=src)
    else:
        kernel.call("dma_compute", dst=into, srcs0=into, srcs1=src, reduce_op="add")
    kernel.output(out)
    return kernel


# Registers and scalars


@settings(max_examples=60, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 5), st.integers(1, 6)),
    axis=st.integers(0, 1),
    scalar=st.booleans(),
    on_chip=st.booleans(),
    data=st.data(),
)
def test_a_register_or_scalar_moves_a_slice(
    shape: tuple[int, int], axis: int, scalar: bool, on_chip: bool, data: st.DataObject
) -> None:
    size = data.draw(st.integers(1, shape[axis]), label="size")
    start = data.draw(st.integers(0, shape[axis] - size), label="start")
    values, where = counted(*shape), [slice(None), slice(None)]
    where[axis] = slice(start, start + size)
    kernel = Kernel()
    source = kernel.load(values) if on_chip else kernel.argument(values)
    target = kernel.sbuf(*shape) if on_chip else kernel.hbm(*shape)
    kernel.copy(target, kernel.argument(np.full(shape, -1, np.float32)))
    kernel.call("register_alloc", x=start, dst=register(0))
    index: Any = kernel.load(np.array([[start]], np.int32)) if scalar else 0
    first = [slice(None), slice(None)]
    first[axis] = slice(0, size)
    read, write = (
        kernel.indexed(view[tuple(first)], "scalar" if scalar else "register", index, axis)
        for view in (source, target)
    )
    tile = kernel.sbuf(*read.shape)
    kernel.call("dma_copy", dst=tile, src=read)
    kernel.call("dma_copy", dst=write, src=tile)
    kernel.store(tile)
    kernel.store(target)
    found = clean(kernel.run())
    np.testing.assert_array_equal(found[0], values[tuple(where)])
    expected = np.full(shape, -1, np.float32)
    expected[tuple(where)] = values[tuple(where)]
    np.testing.assert_array_equal(found[1], expected)


def test_a_loop_writes_the_tile_that_its_register_names() -> None:
    kernel = Kernel()
    values = counted(8, 4)
    out = kernel.hbm(8, 4)
    source, tile = kernel.argument(values), kernel.sbuf(2, 4)
    with kernel.loop(8, step=2, register=0):
        kernel.call("dma_copy", dst=tile, src=kernel.indexed(source[0:2], "register", 0))
        kernel.call("tensor_scalar", dst=tile, data=tile, op0="multiply", operand0=2.0)
        kernel.call("dma_copy", dst=kernel.indexed(out[0:2], "register", 0), src=tile)
    kernel.output(out)
    execution = kernel.run()
    np.testing.assert_array_equal(clean(execution)[0], values * 2)
    assert execution.outputs[0].last_writers == (2,)


def test_what_a_loop_leaves_out_is_not_written() -> None:
    kernel = Kernel()
    out = kernel.hbm(4, 2)
    tile = kernel.load(counted(1, 2))
    with kernel.loop(4, step=2, register=0):
        kernel.call("dma_copy", dst=kernel.indexed(out[0:1], "register", 0), src=tile)
    kernel.output(out)
    execution = kernel.run()
    assert faults(execution) == [
        ("unwritten output", "output out: 4 of 8 elements are never written (first at [1, 0])")
    ]
    np.testing.assert_array_equal(execution.outputs[0].written, [[True] * 2, [False] * 2] * 2)


def test_more_moved_places_than_are_kept_stay_right() -> None:
    kernel = Kernel()
    count = 5000
    out, tile = kernel.hbm(count, 1), kernel.load(np.zeros((1, 1), np.float32))
    with kernel.loop(count, register=0):
        kernel.call("tensor_scalar", dst=tile, data=tile, op0="add", operand0=1.0)
        kernel.call("dma_copy", dst=kernel.indexed(out[0:1], "register", 0), src=tile)
    kernel.output(out)
    execution = kernel.run()
    np.testing.assert_array_equal(clean(execution)[0][:, 0], np.arange(1, count + 1))
    assert execution.outputs[0].last_writers == (2,)


def moved_row(index: int, rows: int = 4, **fields: Any) -> Kernel:
    kernel = Kernel()
    kernel.call("register_alloc", x=index, dst=register(2))
    out = kernel.load(np.full((2, 3), -1, np.float32))
    source = kernel.indexed(kernel.argument(counted(rows, 3))[0:2], "register", 2, **fields)
    kernel.call("dma_copy", dst=out, src=source)
    kernel.store(out)
    return kernel


@pytest.mark.parametrize(
    ("index", "fields", "message"),
    [
        (
            3,
            {},
            "dma_copy: src index 3 of register 2 reaches element 14 of a tensor of 12 elements (kernel.py:6)",
        ),
        (
            -1,
            {},
            "dma_copy: src index -1 of register 2 reaches element -3 of a tensor of 12 elements (kernel.py:6)",
        ),
        (3, {"limit": 3}, "dma_copy: src index 3 of register 2 is outside 0 to 2 (kernel.py:6)"),
    ],
)
def test_a_register_out_of_bounds_is_a_fault(index: int, fields: dict[str, int], message: str) -> None:
    execution = moved_row(index, **fields).run()
    assert faults(execution)[0] == ("out of bounds", message)
    assert execution.outputs[0].written is not None and not execution.outputs[0].written.any()


def test_a_register_just_inside_is_none() -> None:
    np.testing.assert_array_equal(clean(moved_row(2, limit=3).run())[0], counted(4, 3)[2:4])


def test_a_register_beyond_its_limit_skips_everything() -> None:
    np.testing.assert_array_equal(clean(moved_row(3, limit=3, oob="skip").run())[0], np.full((2, 3), -1))


def test_without_a_limit_only_what_lies_outside_is_skipped() -> None:
    expected = np.array([[9, 10, 11], [-1, -1, -1]])
    np.testing.assert_array_equal(clean(moved_row(3, oob="skip").run())[0], expected)


def test_an_output_has_no_registers() -> None:
    kernel = Kernel()
    out = kernel.hbm(4, 2)
    kernel.output(kernel.indexed(out[0:1], "register", 0))
    assert faults(kernel.run()) == [
        ("unsupported", "output out: is addressed by a register outside any stream")
    ]


def test_on_chip_a_moved_tile_stays_in_its_partitions() -> None:
    kernel = Kernel()
    kernel.call("register_alloc", x=1, dst=register(0))
    tile = kernel.load(counted(4, 6))
    kernel.store(kernel.indexed(tile[0:1, 0:4], "register", 0, 1, 3))
    assert faults(kernel.run())[0] == (
        "out of bounds",
        "dma_copy: src index 1 of register 0 reaches element 6 of the 6 elements of a partition (kernel.py:6)",
    )


def test_a_scalar_index_of_several_elements_has_no_meaning() -> None:
    kernel = Kernel()
    idx = kernel.load(column([0, 1]))
    kernel.store(kernel.indexed(kernel.argument(counted(4, 2))[0:1], "scalar", idx))
    assert faults(kernel.run())[0] == (
        "no meaning",
        "dma_copy: src has a scalar index tile of 2 elements, expected 1 (kernel.py:6)",
    )


# Vectors


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(1, 6),
    columns=st.integers(1, 4),
    dtype=st.sampled_from([np.int32, np.uint32, np.int16, np.uint16]),
    data=st.data(),
)
def test_a_gather_is_fancy_indexing(rows: int, columns: int, dtype: type, data: st.DataObject) -> None:
    index = data.draw(st.lists(st.integers(0, rows - 1), min_size=1, max_size=9))
    source = counted(rows, columns)
    for poison in Poison:
        found = clean(gather(source, column(index, dtype)).run(poison=poison))
        np.testing.assert_array_equal(found[0], source[index])


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(1, 6),
    columns=st.integers(1, 4),
    dtype=st.sampled_from([np.float32, np.float16, np.int16]),
    data=st.data(),
)
def test_a_scatter_is_fancy_assignment_and_the_last_one_wins(
    rows: int, columns: int, dtype: type, data: st.DataObject
) -> None:
    index = data.draw(st.lists(st.integers(0, rows - 1), min_size=1, max_size=9))
    target = np.full((rows, columns), -1, dtype)
    values = counted(len(index), columns, dtype=dtype)
    expected = target.copy()
    for at, row in enumerate(index):
        expected[row] = values[at]
    parts = [(row, values[at].tobytes()) for at, row in enumerate(index)]
    found = scattered(scatter(target, column(index), values).run(), parts)
    np.testing.assert_array_equal(found[0], expected)


@settings(max_examples=40, deadline=None)
@given(rows=st.integers(1, 5), columns=st.integers(1, 4), data=st.data())
@pytest.mark.oracle("nisa.dma_compute")
def test_a_scatter_that_adds_sums_all_that_comes_for_a_row(
    rows: int, columns: int, data: st.DataObject
) -> None:
    index = data.draw(st.lists(st.integers(0, rows - 1), min_size=1, max_size=9))
    target, values = counted(rows, columns), counted(len(index), columns) + 100
    expected = target.astype(np.float64)
    for at, row in enumerate(index):
        expected[row] += values[at]
    execution = scatter(target, column(index), values, "dma_compute").run()
    twice = sum(index.count(row) > 1 for row in index) * columns
    np.testing.assert_array_equal(added(execution, twice)[0], expected)


def test_a_copy_that_adds_sums_all_that_comes_for_a_row() -> None:
    kernel = Kernel()
    idx, src = kernel.load(column([1, 1, 0])), kernel.load(counted(3, 2))
    out = kernel.hbm(2, 2)
    kernel.copy(out, kernel.argument(counted(2, 2) * 10))
    rows = replace(out, pattern=((2, 3), (1, 2)))
    kernel.call("dma_copy", dst=kernel.indexed(rows, "vector", idx), src=src, dst_rmw_op="add")
    kernel.output(out)
    np.testing.assert_array_equal(added(kernel.run(), 4)[0], [[0 + 4, 10 + 5], [20 + 0 + 2, 30 + 1 + 3]])


def test_a_copy_that_is_told_of_equal_indices_may_add_them() -> None:
    kernel = Kernel()
    idx, src = kernel.load(column([1, 1])), kernel.load(counted(2, 2))
    out = kernel.hbm(2, 2)
    kernel.copy(out, kernel.argument(counted(2, 2)))
    rows = replace(out, pattern=((2, 2), (1, 2)))
    into = kernel.indexed(rows, "vector", idx)
    kernel.call("dma_copy", dst=into, src=src, dst_rmw_op="add", unique_indices=False)
    kernel.output(out)
    np.testing.assert_array_equal(clean(kernel.run())[0], [[0, 1], [2 + 0 + 2, 3 + 1 + 3]])


def test_sums_into_a_half_are_rounded_once() -> None:
    target = np.array([[2048]], np.float16)
    values = np.ones((4, 1), np.float16)
    found = added(scatter(target, column([0] * 4), values, "dma_compute").run(), 4)
    assert found[0].item() == 2052  # four additions rounded one by one would all be lost


def test_a_sum_with_an_undefined_row_is_undefined_there_alone() -> None:
    kernel = Kernel()
    idx, src = kernel.load(column([1, 1, 0])), kernel.sbuf(3, 2)
    kernel.call("memset", dst=src[1:3], value=1.0)
    out = kernel.hbm(3, 2)
    kernel.copy(out, kernel.argument(counted(3, 2)))
    into = kernel.indexed(replace(out, pattern=((2, 3), (1, 2))), "vector", idx)
    kernel.call("dma_compute", dst=into, srcs0=into, srcs1=src, reduce_op="add")
    kernel.output(out)
    written = kernel.run().outputs[0].written
    np.testing.assert_array_equal(written, [[True] * 2, [False] * 2, [True] * 2])


@settings(max_examples=40, deadline=None)
@given(rows=st.integers(1, 4), columns=st.integers(1, 3), wide=st.integers(1, 3), data=st.data())
def test_an_index_tile_is_read_column_by_column(
    rows: int, columns: int, wide: int, data: st.DataObject
) -> None:
    lanes = data.draw(st.integers(1, 3))
    index = np.array(
        data.draw(st.lists(st.integers(0, rows - 1), min_size=lanes * wide, max_size=lanes * wide)), np.int32
    ).reshape(lanes, wide)
    source = counted(rows, columns)
    found = clean(gather(source, index).run())
    np.testing.assert_array_equal(found[0], source[index.T.flatten()])


@settings(max_examples=40, deadline=None)
@given(index=st.lists(st.integers(-2, 6), min_size=1, max_size=8), limit=st.sampled_from([None, 4]))
def test_skipped_rows_leave_what_was_there(index: list[int], limit: int | None) -> None:
    source = counted(4, 3)
    expected = np.full((len(index), 3), -1, np.float32)
    target, values = np.full((4, 3), -1, np.float32), counted(len(index), 3)
    written = target.copy()
    for at, row in enumerate(index):
        if 0 <= row < 4:
            expected[at] = source[row]
            written[row] = values[at]
    found = clean(gather(source, column(index), oob="skip", limit=limit).run())
    np.testing.assert_array_equal(found[0], expected)
    parts = [(row, values[at].tobytes()) for at, row in enumerate(index) if 0 <= row < 4]
    stored = scattered(scatter(target, column(index), values, oob="skip", limit=limit).run(), parts)
    np.testing.assert_array_equal(stored[0], written)


def test_a_skipped_row_keeps_its_definedness() -> None:
    kernel = Kernel()
    idx, out = kernel.load(column([9, 0, 9])), kernel.sbuf(3, 2)
    kernel.call("memset", dst=out[0:2], value=7.0)
    rows = replace(kernel.argument(counted(4, 2)), pattern=((2, 3), (1, 2)))
    kernel.call("dma_copy", dst=out, src=kernel.indexed(rows, "vector", idx, oob="skip"))
    kernel.store(out)
    execution = kernel.run()
    np.testing.assert_array_equal(execution.outputs[0].values[:2], [[7, 7], [0, 1]])
    np.testing.assert_array_equal(execution.outputs[0].written, [[True] * 2, [True] * 2, [False] * 2])


def test_a_transpose_leaves_the_columns_of_skipped_rows() -> None:
    kernel = Kernel()
    source, out = kernel.argument(counted(20, 3, dtype=np.float16)), kernel.sbuf(3, 16, dtype="float16")
    index = np.arange(16) * 2  # 20 rows: from the tenth index on, all lie outside
    idx = kernel.load(column(index.tolist(), np.uint32))
    kernel.call("memset", dst=out[:, 0:12], value=-1.0)
    rows = kernel.indexed(replace(source, pattern=((3, 16), (1, 3))), "vector", idx, oob="skip")
    kernel.call("dma_transpose", dst=out, src=rows, axes=(1, 0))
    kernel.store(out)
    output = kernel.run().outputs[0]
    np.testing.assert_array_equal(output.values[:, :10], counted(20, 3)[index[:10]].T)
    np.testing.assert_array_equal(output.values[:, 10:12], np.full((3, 2), -1))
    np.testing.assert_array_equal(output.written, np.tile(np.arange(16) < 12, (3, 1)))


@pytest.mark.parametrize("value", [-1, 4])
@pytest.mark.parametrize("limit", [None, 4])
def test_a_vector_out_of_bounds_names_index_position_and_size(value: int, limit: int | None) -> None:
    kernel = Kernel()
    idx = kernel.sbuf(3, 1, dtype="int32", name="idx")
    kernel.copy(idx, kernel.argument(column([0, value, 3])))
    rows = replace(kernel.argument(counted(4, 2)), pattern=((2, 3), (1, 2)))
    kernel.store(kernel.indexed(rows, "vector", idx, limit=limit))
    place = "is outside 0 to 3" if limit else f"reaches element {value * 2} of a tensor of 8 elements"
    execution = kernel.run()
    assert faults(execution)[0] == (
        "out of bounds",
        f"dma_copy: src index {value} at position 1 of tile idx {place} (kernel.py:6)",
    )
    assert execution.outputs[0].written is not None and not execution.outputs[0].written.any()


@settings(max_examples=40, deadline=None)
@given(
    index=st.lists(st.integers(0, 4), min_size=1, max_size=6),
    columns=st.integers(1, 3),
    on_chip=st.booleans(),
)
def test_what_a_scatter_does_not_reach_stays_unwritten(index: list[int], columns: int, on_chip: bool) -> None:
    kernel = Kernel()
    idx = kernel.load(column(index))
    values = counted(len(index), columns)
    out = kernel.sbuf(5, columns) if on_chip else kernel.hbm(5, columns)
    rows = replace(out, pattern=((columns, len(index)), (1, columns)))
    kernel.call("dma_copy", dst=kernel.indexed(rows, "vector", idx), src=kernel.load(values))
    kernel.store(out) if on_chip else kernel.output(out)
    expected, reached = np.zeros((5, columns), np.float32), np.zeros(5, np.bool_)
    for at, row in enumerate(index):
        expected[row], reached[row] = values[at], True
    output = kernel.run().outputs[0]
    written = np.ones((5, columns), np.bool_) if output.written is None else output.written
    np.testing.assert_array_equal(written, np.repeat(reached[:, None], columns, 1))
    np.testing.assert_array_equal(output.values[reached], expected[reached])


@settings(max_examples=40, deadline=None)
@given(
    index=st.lists(st.integers(0, 6), min_size=1, max_size=6),
    width=st.integers(1, 5),
    stride=st.integers(1, 4),
)
def test_parts_that_overlap_are_written_in_the_order_of_their_indices(
    index: list[int], width: int, stride: int
) -> None:
    kernel = Kernel()
    idx = kernel.load(column(index))
    values, out = counted(len(index), width) + 1, kernel.hbm(1, 40)
    kernel.copy(out, kernel.argument(np.zeros((1, 40), np.float32)))
    parts = replace(out, pattern=((stride, len(index)), (1, width)))
    kernel.call("dma_copy", dst=kernel.indexed(parts, "vector", idx), src=kernel.load(values))
    kernel.store(kernel.indexed(parts, "vector", idx))
    kernel.output(out)
    flat = np.zeros(40, np.float32)
    for at, each in enumerate(index):
        flat[each * stride : each * stride + width] = values[at]
    sent = [
        (each * stride + element, values[at, element].tobytes())
        for at, each in enumerate(index)
        for element in range(width)
    ]
    read, written = scattered(kernel.run(), sent)
    np.testing.assert_array_equal(written[0], flat)
    np.testing.assert_array_equal(read, [flat[each * stride : each * stride + width] for each in index])


def test_an_unsigned_index_with_its_top_bit_set_is_large() -> None:
    execution = gather(counted(4, 2), column([0, 2**32 - 1], np.uint32)).run()
    assert faults(execution)[0] == (
        "out of bounds",
        "dma_copy: src index 4294967295 at position 1 reaches element 8589934590 of a tensor of 8 elements "
        "(kernel.py:8)",
    )


def test_an_undefined_index_is_a_fault() -> None:
    kernel = Kernel()
    idx = kernel.sbuf(3, 1, dtype="int32", name="idx")
    kernel.call("memset", dst=idx[0:2], value=1)
    rows = replace(kernel.argument(counted(4, 2)), pattern=((2, 3), (1, 2)))
    kernel.store(kernel.indexed(rows, "vector", idx))
    assert faults(kernel.run())[0] == (
        "undefined index",
        "dma_copy: src the index at position 2 of tile idx is undefined (kernel.py:5)",
    )


def test_only_the_indices_that_are_used_must_be_defined() -> None:
    kernel = Kernel()
    idx = kernel.sbuf(3, 1, dtype="int32")
    kernel.call("memset", dst=idx[0:2], value=1)
    rows = replace(kernel.argument(counted(4, 2)), pattern=((2, 2), (1, 2)))
    kernel.store(kernel.indexed(rows, "vector", idx))
    np.testing.assert_array_equal(clean(kernel.run())[0], counted(4, 2)[[1, 1]])


@pytest.mark.parametrize("kind", ["scalar", "vector"])
def test_a_trusted_index_is_noted_and_taken_as_it_is_held(kind: str) -> None:
    kernel = Kernel()
    idx = kernel.sbuf(1, 1, dtype="uint8", name="idx")  # poison of 0xFF
    kernel.store(kernel.indexed(kernel.argument(counted(256, 2))[0:1], kind, idx))
    execution = kernel.run(trusting=True)
    np.testing.assert_array_equal(execution.outputs[0].values, counted(256, 2)[255:])
    assert faults(execution) == [
        ("undefined index", "dma_copy: src the index of tile idx is undefined (kernel.py:4)")
    ]


def test_an_undefined_scalar_index_is_a_fault() -> None:
    kernel = Kernel()
    idx = kernel.sbuf(1, 1, dtype="int32")
    kernel.store(kernel.indexed(kernel.argument(counted(4, 2))[0:1], "scalar", idx))
    assert faults(kernel.run())[0] == (
        "undefined index",
        "dma_copy: src the index is undefined (kernel.py:4)",
    )


def test_too_few_indices_have_no_meaning() -> None:
    kernel = Kernel()
    idx = kernel.load(column([0, 1]))
    rows = replace(kernel.argument(counted(4, 2)), pattern=((2, 3), (1, 2)))
    kernel.store(kernel.indexed(rows, "vector", idx))
    assert faults(kernel.run())[0] == (
        "no meaning",
        "dma_copy: src has an index tile of 2 elements, axis 0 needs 3 (kernel.py:6)",
    )


def test_an_index_must_be_an_integer() -> None:
    kernel = gather(counted(4, 2), np.array([[0.0], [1.0]], np.float32))
    assert faults(kernel.run())[0] == (
        "no meaning",
        "dma_copy: src has an index tile of float32, expected integers (kernel.py:8)",
    )


def test_an_index_tile_lasts_as_long_as_it_is_used() -> None:
    kernel = gather(counted(4, 2), column([2, 0]))
    for _ in range(3):  # other tiles of the size of the index tile, into whose bytes it would be freed
        kernel.load(column([9, 9]))
    np.testing.assert_array_equal(clean(kernel.run())[0], counted(4, 2)[[2, 0]])


def test_an_index_tile_is_looked_at_anew_in_each_pass() -> None:
    kernel = Kernel()
    idx, out, each = kernel.load(column([0, 1])), kernel.hbm(3, 2, 2), kernel.sbuf(2, 2)
    source = kernel.argument(counted(4, 2))
    with kernel.loop(3, register=0):
        rows = kernel.indexed(replace(source, pattern=((2, 2), (1, 2))), "vector", idx)
        kernel.call("dma_copy", dst=each, src=rows)
        kernel.call("dma_copy", dst=kernel.indexed(out[0:1].reshape(2, 2), "register", 0, stride=4), src=each)
        kernel.call("tensor_scalar", dst=idx, data=idx, op0="add", operand0=1.0)
    kernel.output(out)
    values = counted(4, 2)
    np.testing.assert_array_equal(clean(kernel.run())[0], [values[[at, at + 1]] for at in range(3)])


def test_a_vector_of_a_free_axis_gathers_columns() -> None:
    kernel = Kernel()
    idx = kernel.load(column([4, 0, 2, 2]))
    part = kernel.load(counted(3, 5))[:, 0:4]
    kernel.store(kernel.indexed(part, "vector", idx, 1))
    np.testing.assert_array_equal(clean(kernel.run())[0], counted(3, 5)[:, [4, 0, 2, 2]])


def test_a_vector_of_the_partition_axis_gathers_partitions() -> None:
    kernel = Kernel()
    idx = kernel.load(column([2, 0]))
    part = kernel.load(counted(3, 5))[0:2]
    kernel.store(kernel.indexed(part, "vector", idx, 0))
    np.testing.assert_array_equal(clean(kernel.run())[0], counted(3, 5)[[2, 0]])


def test_a_gathered_tile_keeps_what_is_undefined() -> None:
    kernel = Kernel()
    idx, tile = kernel.load(column([2, 0, 1])), kernel.sbuf(2, 3)
    kernel.call("memset", dst=tile[:, 0:2], value=1.0)
    kernel.store(kernel.indexed(tile, "vector", idx, 1))
    np.testing.assert_array_equal(kernel.run().outputs[0].written, [[False, True, True]] * 2)


@pytest.mark.parametrize("rounding", ["storage", "off"])
def test_gathers_and_scatters_of_narrow_types(rounding: Any) -> None:
    source = counted(5, 3, dtype=np.float16)
    options = {"compute": np.float64, "rounding": rounding}
    found = clean(gather(source, column([4, 1])).run(**options))
    np.testing.assert_array_equal(found[0], source[[4, 1]])
    stored = clean(scatter(source, column([3, 0]), counted(2, 3, dtype=np.float16) + 50).run(**options))
    expected = source.copy()
    expected[[3, 0]] = counted(2, 3) + 50
    np.testing.assert_array_equal(stored[0], expected)


def test_addressed_tiles_are_gathered_and_scattered_too() -> None:
    kernel = Kernel()
    idx = kernel.load(column([2, 0]))
    tile = kernel.sbuf(3, 4, address=(0, 6), dtype="float16")
    kernel.sbuf(3, 4, address=(0, 2), dtype="uint8")
    kernel.copy(tile, kernel.argument(counted(3, 4, dtype=np.float16)))
    kernel.call("tensor_copy", dst=kernel.indexed(tile[:, 0:2], "vector", idx, 1), src=tile[:, 2:4])
    kernel.store(tile)
    expected = counted(3, 4, dtype=np.float16)
    expected[:, [2, 0]] = counted(3, 4)[:, 2:4]
    np.testing.assert_array_equal(clean(kernel.run())[0], expected)


# Snakes


@settings(max_examples=30, deadline=None)
@given(groups=st.integers(1, 3), group=st.sampled_from([2, 4]), count=st.integers(1, 8), data=st.data())
@pytest.mark.oracle("NkiTensor.indirect")
def test_a_snake_takes_offsets_down_the_partitions_of_its_group(
    groups: int, group: int, count: int, data: st.DataObject
) -> None:
    lanes, wide = groups * group, -(-count // group)
    seed = data.draw(st.integers(0, 1000))
    index = np.random.default_rng(seed).integers(0, 6, (lanes, wide)).astype(np.uint16)
    values = counted(lanes, 6)
    kernel = Kernel("trn3")
    tile, idx = kernel.load(values), kernel.load(index)
    part = replace(tile, pattern=((6, lanes), (1, count)))
    view = kernel.indexed(part, "snake", idx, 1, group=group)
    read = kernel.sbuf(lanes, count)
    kernel.call("tensor_copy", dst=read, src=view)
    kernel.store(read)
    expected = np.empty((lanes, count), np.float32)
    into = np.full((lanes, 6), -1, np.float32)
    for lane in range(lanes):
        first = lane // group * group
        for at in range(count):
            offset = index[first + at % group, at // group]
            expected[lane, at] = values[lane, offset]
            into[lane, offset] = at
    target = kernel.load(np.full((lanes, 6), -1, np.float32))
    scattered = kernel.indexed(
        replace(target, pattern=((6, lanes), (1, count))), "snake", idx, 1, group=group
    )
    kernel.call("tensor_copy", dst=scattered, src=kernel.load(np.tile(counted(1, count), (lanes, 1))))
    kernel.store(target)
    found = clean(kernel.run())
    np.testing.assert_array_equal(found[0], expected)
    np.testing.assert_array_equal(found[1], into)


def snake(index: Array, lanes: int = 4, count: int = 4, name: str = "", **fields: Any) -> Kernel:
    kernel = Kernel("trn3")
    tile = kernel.load(counted(lanes, 6))
    idx = kernel.sbuf(*index.shape, dtype=dtypes.of(index.dtype).name, name=name)
    kernel.copy(idx, kernel.argument(index))
    part = replace(tile, pattern=((6, lanes), (1, count)))
    kernel.store(kernel.indexed(part, "snake", idx, 1, group=2, **fields))
    return kernel


def test_an_offset_of_a_snake_out_of_bounds_names_its_partition() -> None:
    index = np.array([[0, 1], [2, 3], [4, 5], [6, 0]], np.uint16)
    assert faults(snake(index, name="idx").run())[0] == (
        "out of bounds",
        "dma_copy: src index 6 at position 1 of partition 2 of tile idx reaches element 6 of the 6 elements of "
        "a partition (kernel.py:8)",
    )


def test_a_snake_needs_whole_groups() -> None:
    assert faults(snake(np.zeros((3, 2), np.uint16), lanes=3).run())[0] == (
        "no meaning",
        "dma_copy: src has an index tile of [3, 2], 3 partitions of 4 elements in groups of 2 need [4, 2] "
        "(kernel.py:8)",
    )


# Bounds


def bounded(view: View, *bounds: tuple[tuple[int, ...], int]) -> View:
    return replace(view, bounds=tuple(Bound(each, constant) for each, constant in bounds))


@settings(max_examples=40, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 4), st.integers(1, 5)),
    bound=st.tuples(st.integers(-2, 2), st.integers(-2, 2), st.integers(-4, 4)),
    poison=st.sampled_from(list(Poison)),
)
def test_elements_outside_bounds_are_neither_read_nor_written(
    shape: tuple[int, int], bound: tuple[int, int, int], poison: Poison
) -> None:
    values = counted(*shape) + 1
    rows, columns = np.indices(shape)
    inside = bound[0] * rows + bound[1] * columns + bound[2] >= 0
    kernel = Kernel()
    source, old = kernel.load(values), kernel.load(np.full(shape, -1, np.float32))
    kernel.copy(bounded(old, (bound[:2], bound[2])), source)
    kernel.store(old)
    read = kernel.sbuf(*shape)
    kernel.copy(read, bounded(source, (bound[:2], bound[2])))
    kernel.store(read)
    execution = kernel.run(poison=poison)
    written, taken = execution.outputs
    np.testing.assert_array_equal(written.values, np.where(inside, values, -1))
    assert written.written is None
    defined = np.ones(shape, np.bool_) if taken.written is None else taken.written
    np.testing.assert_array_equal(defined, inside)
    np.testing.assert_array_equal(taken.values[inside], values[inside])


def test_a_bounded_read_that_flows_into_a_bounded_write_is_defined() -> None:
    kernel = Kernel()
    source, total = kernel.load(counted(4, 4)), kernel.load(np.zeros((4, 4), np.float32))
    half = ((0, -1), 1)
    kernel.call("tensor_tensor", dst=bounded(total, half), data1=bounded(source, half), data2=total, op="add")
    kernel.store(total)
    expected = np.zeros((4, 4))
    expected[:, 0:2] = counted(4, 4)[:, 0:2]
    np.testing.assert_array_equal(clean(kernel.run())[0], expected)


def test_what_bounds_leave_out_may_lie_outside_the_tensor() -> None:
    kernel = Kernel()
    source = replace(kernel.argument(counted(3, 2)), pattern=((2, 5), (1, 2)))
    out = kernel.load(np.full((5, 2), -1, np.float32))
    mask = ((-1, 0), 2)
    kernel.copy(bounded(out, mask), bounded(source, mask))
    kernel.store(out)
    expected = np.full((5, 2), -1)
    expected[:3] = counted(3, 2)
    np.testing.assert_array_equal(clean(kernel.run())[0], expected)


def test_bounds_that_reach_too_far_are_a_fault() -> None:
    kernel = Kernel()
    source = replace(kernel.argument(counted(3, 2)), pattern=((2, 5), (1, 2)))
    kernel.store(bounded(source, ((-1, 0), 3)))
    assert faults(kernel.run())[0] == (
        "out of bounds",
        "dma_copy: src reaches element 6 of a tensor of 6 elements (kernel.py:3)",
    )


def test_indices_that_bounds_leave_out_do_not_matter() -> None:
    kernel = Kernel()
    idx = kernel.sbuf(4, 1, dtype="int32")
    kernel.copy(idx[0:3], kernel.argument(column([2, 0, 99])))
    source = replace(kernel.argument(counted(3, 2)), pattern=((2, 4), (1, 2)))
    out = kernel.load(np.full((4, 2), -1, np.float32))
    mask = ((-1, 0), 1)
    kernel.copy(bounded(out, mask), bounded(kernel.indexed(source, "vector", idx), mask))
    kernel.store(out)
    expected = np.full((4, 2), -1)
    expected[:2] = counted(3, 2)[[2, 0]]
    np.testing.assert_array_equal(clean(kernel.run())[0], expected)


def test_a_matmul_into_bounds_leaves_the_rest_of_psum() -> None:
    kernel = Kernel()
    left, right = counted(2, 3), counted(2, 4)
    product = kernel.psum(3, 4)
    kernel.call("memset", dst=product, value=5.0)
    kernel.matmul(bounded(product, ((-1, 0), 1)), kernel.load(left), kernel.load(right), accumulate=False)
    kernel.store(product)
    expected = np.full((3, 4), 5.0)
    expected[:2] = (left.T @ right)[:2]
    np.testing.assert_array_equal(clean(kernel.run())[0], expected)


# Tables


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 4),
    columns=st.integers(1, 4),
    shape=st.tuples(st.integers(1, 3), st.integers(1, 4)),
    on_chip=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_a_table_names_each_element(
    rows: int, columns: int, shape: tuple[int, int], on_chip: bool, seed: int
) -> None:
    offsets = np.random.default_rng(seed).integers(0, rows * columns, shape)
    values, new = counted(rows, columns), counted(*shape) + 100
    kernel = Kernel()
    held = kernel.load(values) if on_chip else kernel.argument(values)
    kernel.store(kernel.table(held, offsets))
    target = kernel.load(values) if on_chip else kernel.hbm(rows, columns)
    if not on_chip:
        kernel.copy(target, kernel.argument(values))
    kernel.call("dma_copy", dst=kernel.table(target, offsets), src=kernel.argument(new))
    kernel.store(target)
    expected = values.copy()
    for at in np.ndindex(*shape):
        expected.reshape(-1)[offsets[at]] = new[at]
    found = clean(kernel.run())
    np.testing.assert_array_equal(found[0], values.reshape(-1)[offsets])
    np.testing.assert_array_equal(found[1], expected)


@pytest.mark.parametrize(
    ("on_chip", "message"),
    [
        (False, "dma_copy: src reaches element 6 of a tensor of 6 elements (kernel.py:3)"),
        (True, "dma_copy: src reaches partition 3 of a tile of 3 partitions (kernel.py:5)"),
    ],
)
def test_a_table_that_reaches_too_far_is_a_fault(on_chip: bool, message: str) -> None:
    kernel = Kernel()
    held = kernel.load(counted(3, 2)) if on_chip else kernel.argument(counted(3, 2))
    kernel.store(kernel.table(held, np.array([[0, 6]])))
    assert faults(kernel.run())[0] == ("out of bounds", message)


def test_a_table_moved_by_a_register() -> None:
    kernel = Kernel()
    kernel.call("register_alloc", x=2, dst=register(0))
    held = kernel.table(kernel.argument(counted(4, 2)), np.array([[0, 3]]))
    kernel.store(kernel.indexed(held, "register", 0, 0, 2))
    np.testing.assert_array_equal(clean(kernel.run())[0], [[4, 7]])


# Operands of any instruction


@pytest.mark.parametrize("kind", ["register", "vector", "table", "bounds"])
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 1000))
def test_every_instruction_reads_and_writes_dynamic_operands(kind: str, seed: int) -> None:
    draw = np.random.default_rng(seed)
    values = draw.standard_normal((4, 6)).astype(np.float32)
    old = draw.standard_normal((4, 6)).astype(np.float32)
    kernel = Kernel()
    source, target = kernel.load(values), kernel.load(old)
    start, chosen = int(draw.integers(0, 3)), draw.permutation(6)[:4]
    offsets = draw.permutation(24)[:16].reshape(4, 4)
    where: Any = (slice(None), slice(start, start + 4))
    if kind == "register":
        kernel.call("register_alloc", x=start, dst=register(0))
        views = [kernel.indexed(view[:, 0:4], "register", 0, 1) for view in (source, target)]
    elif kind == "vector":
        idx = kernel.load(chosen.astype(np.int32).reshape(-1, 1))
        views = [kernel.indexed(view[:, 0:4], "vector", idx, 1) for view in (source, target)]
        where = (slice(None), chosen)
    elif kind == "table":
        views = [kernel.table(view, offsets) for view in (source, target)]
        where = np.unravel_index(offsets, (4, 6))
    else:
        views = [bounded(view, ((0, -1), 3)) for view in (source, target)]
        where = (slice(None), slice(0, 4))
    kernel.call("tensor_scalar", dst=views[1], data=views[0], op0="multiply", operand0=3.0)
    kernel.call("tensor_tensor", dst=views[1], data1=views[1], data2=views[0], op="add")
    kernel.store(target)
    expected = old.copy()
    expected[where] = np.float32(3) * values[where] + values[where]
    np.testing.assert_allclose(clean(kernel.run())[0], expected, rtol=1e-6)


def test_moved_accesses_keep_no_address_for_each_element() -> None:
    kernel = Kernel()
    source = kernel.argument(np.ones((2, 128, 4096), np.int8))
    row = kernel.load(np.array([[1]], np.int32))
    for _ in range(32):
        tile = kernel.sbuf(128, 4096, dtype="int8")
        kernel.call("dma_copy", dst=tile, src=kernel.indexed(source[0:1], "scalar", row))
    kernel.store(tile)
    program = kernel.program()
    tracemalloc.start()
    try:
        execution = execute(program, kernel.arguments, rows=kernel.rows)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(clean(execution)[0], np.ones((128, 4096), np.int8))
    assert peak < 32 * 2**20  # addresses of 8 bytes for each element would take 128 MiB

"""execute: values, views, storage, loops and streams, against hand-computed values."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from execute_kit import Kernel, View, counted

from nkireview.execute import Fault, Poison, execute
from nkireview.isa.enums import Memory
from nkireview.isa.row import Flow, Operand, Param, Reader, Result, Role, Row
from nkireview.isa.table import ROWS
from nkireview.program.access import Access
from nkireview.program.errors import ProgramError
from nkireview.program.model import Header
from nkireview.program.program import Program

BF16 = np.dtype(ml_dtypes.bfloat16)


def only(kernel: Kernel, **options: Any) -> np.ndarray[Any, Any]:
    """The one output of a kernel without faults."""
    execution = kernel.run(**options)
    assert execution.faults == ()
    (output,) = execution.outputs
    assert output.written is None
    return output.values


def test_a_copy_through_sbuf() -> None:
    kernel = Kernel()
    kernel.store(kernel.load(counted(4, 8)))
    execution = kernel.run()
    (output,) = execution.outputs
    np.testing.assert_array_equal(output.values, counted(4, 8))
    assert output.values.dtype == np.float32 and output.written is None
    assert output.last_writers == (1,) and execution.executed == 2 and execution.faults == ()


def test_results_are_read_only_and_arguments_stay_as_they_are() -> None:
    kernel = Kernel()
    given = counted(2, 4)
    argument = kernel.argument(given)
    tile = kernel.sbuf(2, 4)
    kernel.copy(tile, argument)
    kernel.call("tensor_scalar", dst=tile, data=tile, op0="add", operand0=1.0)
    kernel.copy(argument, tile)
    kernel.output(argument, alias="p0")
    execution = kernel.run()
    np.testing.assert_array_equal(given, counted(2, 4))
    np.testing.assert_array_equal(execution.outputs[0].values, counted(2, 4) + 1)
    np.testing.assert_array_equal(execution.parameters["p0"], counted(2, 4) + 1)
    assert not execution.outputs[0].values.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        execution.parameters["p0"][0, 0] = 1


def test_an_argument_returned_unwritten_is_a_copy() -> None:
    kernel = Kernel()
    given = counted(2, 4)
    kernel.output(kernel.argument(given), alias="p0")
    execution = kernel.run()
    given[:] = 7
    np.testing.assert_array_equal(execution.outputs[0].values, counted(2, 4))
    assert execution.parameters == {} and execution.outputs[0].last_writers == ()


def test_only_written_parameters_are_reported() -> None:
    kernel = Kernel()
    first, second = kernel.argument(counted(2, 2)), kernel.argument(counted(2, 2) * 10)
    tile = kernel.sbuf(2, 2)
    kernel.copy(tile, second)
    kernel.copy(first[0:1], tile[0:1])
    execution = kernel.run()
    assert list(execution.parameters) == ["p0"]
    np.testing.assert_array_equal(execution.parameters["p0"], [[0, 10], [2, 3]])


def test_rounding_happens_at_the_store_and_once() -> None:
    kernel = Kernel()
    source = kernel.load(np.full((1, 1), 1.0, np.float32))
    narrow = kernel.sbuf(1, 1, dtype="bfloat16")
    # 1 + 2**-9 + 2**-9 = 1 + 2**-8 in float32, a tie in bfloat16 that goes to even: 1.0
    kernel.call(
        "tensor_scalar", dst=narrow, data=source, op0="add", operand0=2.0**-9, op1="add", operand1=2.0**-9
    )
    kernel.store(narrow)
    assert only(kernel)[0, 0] == BF16.type(1.0)
    wide = Kernel()
    source = wide.load(np.full((1, 1), 1.0, np.float32))
    tile = wide.sbuf(1, 1)
    wide.call(
        "tensor_scalar", dst=tile, data=source, op0="add", operand0=2.0**-9, op1="add", operand1=2.0**-9
    )
    wide.store(tile)
    assert only(wide)[0, 0] == np.float32(1 + 2.0**-8)


def test_integers_round_to_even_and_saturate() -> None:
    kernel = Kernel()
    source = kernel.load(np.array([[0.5, 1.5, -2.5, 300.0, -300.0]], np.float32))
    tile = kernel.sbuf(1, 5, dtype="int8")
    kernel.copy(tile, source)
    kernel.store(tile)
    np.testing.assert_array_equal(only(kernel), [[0, 2, -2, 127, -128]])


def test_large_integers_are_copied_bit_for_bit() -> None:
    kernel = Kernel()
    values = np.array([[2**31 - 1, -(2**24) - 1]], np.int32)
    kernel.store(kernel.load(values))
    np.testing.assert_array_equal(only(kernel), values)


def test_float64_compute_still_rounds_in_storage() -> None:
    def kernel() -> Kernel:
        kernel = Kernel()
        source = kernel.load(np.full((1, 1), 1.0, np.float32))
        tile = kernel.sbuf(1, 1)
        step = {"op0": "add", "operand0": 2.0**-24, "op1": "add", "operand1": 2.0**-24}
        kernel.call("tensor_scalar", dst=tile, data=source, **step)
        kernel.store(tile)
        return kernel

    # In float32 each addition is a tie that goes back to 1; in float64 the two add up to one ulp of float32.
    assert only(kernel())[0, 0] == np.float32(1.0)
    double = only(kernel(), compute=np.float64)
    assert double.dtype == np.float32 and double[0, 0] == np.float32(1 + 2.0**-23)


def test_without_rounding_every_float_stays_double() -> None:
    kernel = Kernel()
    source = kernel.load(np.full((2, 2), 1.0, np.float32))
    narrow = kernel.sbuf(2, 2, dtype="bfloat16", address=(0, 6))
    kernel.call("tensor_scalar", dst=narrow, data=source, op0="add", operand0=2.0**-40)
    product = kernel.psum(2, 2)
    kernel.matmul(product, narrow, narrow)
    kernel.store(product)
    counts = kernel.sbuf(2, 2, dtype="int32", address=(0, 16))
    kernel.copy(counts, narrow)
    kernel.store(counts)
    first, second = kernel.run(compute=np.float64, rounding="off").outputs
    assert first.values.dtype == np.float64
    np.testing.assert_array_equal(first.values, np.full((2, 2), 2 * (1 + 2.0**-40) ** 2))
    np.testing.assert_array_equal(second.values, np.ones((2, 2), np.int32))


def test_without_rounding_bits_cannot_be_reinterpreted() -> None:
    kernel = Kernel()
    source = kernel.load(counted(2, 2))
    kernel.store(source.as_dtype("int32", 2, 2))
    fault, _ = kernel.run(compute=np.float64, rounding="off").faults
    assert (fault.kind, fault.message) == (
        "unsupported",
        "dma_copy: src a float32 buffer read as int32 has no meaning without rounding (kernel.py:5)",
    )


def test_a_view_of_another_dtype_shares_the_bits() -> None:
    kernel = Kernel()
    source = kernel.load(np.array([[1.0, -2.0]], np.float32))
    kernel.store(source.as_dtype("uint32", 1, 2))
    halves = kernel.sbuf(1, 4, dtype="uint16")
    kernel.copy(halves, source.as_dtype("uint16", 1, 4))
    kernel.store(halves)
    execution = kernel.run()
    np.testing.assert_array_equal(execution.outputs[0].values, [[0x3F800000, 0xC0000000]])
    np.testing.assert_array_equal(execution.outputs[1].values, [[0, 0x3F80, 0, 0xC000]])
    assert execution.faults == ()


def test_a_write_through_one_view_is_seen_through_every_other() -> None:
    kernel = Kernel()
    tile = kernel.load(counted(2, 6))
    kernel.call("memset", dst=tile.reshape(2, 3, 2)[:, 1:2, :], value=-1.0)
    kernel.store(tile)
    expected = counted(2, 6)
    expected[:, 2:4] = -1
    np.testing.assert_array_equal(only(kernel), expected)


def test_strided_and_reversed_accesses() -> None:
    kernel = Kernel()
    tile = kernel.load(counted(2, 6))
    kernel.store(tile[:, 0:6:2])
    backwards = View(tile.buffer, "float32", 5, ((6, 2), (-1, 6)))
    kernel.store(backwards)
    first, second = kernel.run().outputs
    np.testing.assert_array_equal(first.values, counted(2, 6)[:, ::2])
    np.testing.assert_array_equal(second.values, counted(2, 6)[:, ::-1])


def test_a_stride_of_zero_broadcasts() -> None:
    kernel = Kernel()
    tile, column = kernel.load(counted(2, 3)), kernel.load(np.array([[10.0], [20.0]], np.float32))
    spread = View(column.buffer, "float32", 0, ((1, 2), (0, 3)))
    result = kernel.sbuf(2, 3)
    kernel.call("tensor_tensor", dst=result, data1=tile, data2=spread, op="add")
    kernel.store(result)
    np.testing.assert_array_equal(only(kernel), [[10, 11, 12], [23, 24, 25]])


def test_a_copy_with_another_shape_keeps_element_order() -> None:
    kernel = Kernel()
    out = kernel.hbm(3, 2)
    kernel.copy(out, kernel.load(counted(2, 3)))
    kernel.output(out)
    np.testing.assert_array_equal(only(kernel), counted(3, 2))


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_an_overlapping_copy_reads_before_it_writes(dtype: str) -> None:
    kernel = Kernel()
    tile = kernel.load(counted(1, 6, dtype=dtype))
    kernel.copy(tile[:, 1:6], tile[:, 0:5])
    kernel.store(tile)
    np.testing.assert_array_equal(only(kernel), [[0, 0, 1, 2, 3, 4]])


def test_in_place_instructions() -> None:
    kernel = Kernel()
    tile, total = kernel.load(counted(2, 4)), kernel.sbuf(2, 1)
    kernel.call("tensor_tensor", dst=tile, data1=tile, data2=tile, op="multiply")
    # the reduction is of the values that this instruction computes, though it overwrites its input
    kernel.call(
        "activation_reduce", dst=tile, op="copy", data=tile, reduce_op="add", reduce_res=total, scale=2.0
    )
    kernel.store(tile)
    kernel.store(total)
    first, second = kernel.run().outputs
    squares = 2 * counted(2, 4) ** 2
    np.testing.assert_array_equal(first.values, squares)
    np.testing.assert_array_equal(second.values, squares.sum(axis=1, keepdims=True))


def swap(reader: Reader) -> dict[str, Result]:
    return {"left": reader.value("right"), "right": reader.value("left")}


def test_results_that_are_views_of_other_destinations() -> None:
    row = Row(
        name="swap",
        signature=(Param("left"), Param("right")),
        operands=tuple(
            Operand(name, Role.accumulate, frozenset({Memory.sbuf})) for name in ("left", "right")
        ),
        engines=ROWS["tensor_copy"].engines,
        meaning=swap,
        flow={"left": Flow.elementwise, "right": Flow.elementwise},
        cost=ROWS["tensor_copy"].cost,
        source="this test",
    )
    kernel = Kernel(rows={**ROWS, "swap": row})
    first, second = kernel.load(counted(1, 3)), kernel.load(counted(1, 3) + 10)
    kernel.call("swap", left=first, right=second)
    kernel.store(first)
    kernel.store(second)
    left, right = kernel.run().outputs
    np.testing.assert_array_equal(left.values, [[10, 11, 12]])
    np.testing.assert_array_equal(right.values, [[0, 1, 2]])


def test_engine_state_lasts_between_instructions_of_a_core() -> None:
    kernel = Kernel(lnc=2)
    ones, scratch, total = kernel.load(np.ones((2, 3), np.float32)), kernel.sbuf(2, 3), kernel.sbuf(2, 1)
    common = {"dst": scratch, "op": "copy", "data": ones, "reduce_op": "add", "scale": 1.0}
    kernel.call("activation", reduce_cmd="reset_reduce", **common)
    kernel.call("activation", reduce_cmd="reduce", reduce_res=total, **common)
    kernel.store(total)
    kernel.switch_core()
    ones, scratch, total = kernel.load(np.ones((2, 3), np.float32)), kernel.sbuf(2, 3), kernel.sbuf(2, 1)
    common = {"dst": scratch, "op": "copy", "data": ones, "reduce_op": "add", "scale": 1.0}
    kernel.call("activation", reduce_cmd="reduce", reduce_res=total, **common)
    kernel.store(total)
    first, second = kernel.run().outputs
    np.testing.assert_array_equal(first.values, [[6], [6]])
    np.testing.assert_array_equal(second.values, [[3], [3]])


def test_constants_fill_their_buffers() -> None:
    kernel = Kernel()
    tile = kernel.sbuf(2, 3, dtype="int32")
    kernel.copy(tile, kernel.constant(counted(2, 3, dtype=np.int32)))
    kernel.store(tile)
    np.testing.assert_array_equal(only(kernel), counted(2, 3))


def test_a_constant_that_does_not_fit_its_buffer_is_refused() -> None:
    kernel = Kernel()
    digest = kernel.builder.constant(counted(2, 3))
    buffer = kernel.builder.buffer(memory=Memory.hbm, shape=(2, 3), dtype="int32", core=0, constant=digest)
    kernel.store(View(buffer, "int32", 0, ((3, 2), (1, 3))))
    with pytest.raises(
        ProgramError, match=r"buffer 0 takes a constant of int32 \(2, 3\), got float32 \(2, 3\)"
    ):
        kernel.run()


def test_cores_run_one_after_the_other_and_share_hbm() -> None:
    kernel = Kernel(lnc=2)
    shared = kernel.hbm(2, 4, shared=True)
    tile = kernel.load(counted(1, 4))
    kernel.copy(shared[0:1], tile)
    kernel.switch_core()
    mine = kernel.sbuf(1, 4)
    kernel.copy(mine, shared[0:1])
    kernel.call("tensor_scalar", dst=mine, data=mine, op0="multiply", operand0=2.0)
    kernel.copy(shared[1:2], mine)
    kernel.output(shared)
    np.testing.assert_array_equal(only(kernel), [[0, 1, 2, 3], [0, 2, 4, 6]])


@pytest.mark.parametrize("rounding", ["storage", "off"])
def test_overlapping_addresses_share_storage(rounding: str) -> None:
    kernel = Kernel()
    # partitions 2..3, bytes 8..23 of the first lie under partitions 0..1, bytes 0..15 of the second
    first, second = kernel.sbuf(4, 8, address=(0, 0)), kernel.sbuf(2, 4, address=(2, 8))
    kernel.copy(first, kernel.argument(counted(4, 8)))
    kernel.call("memset", dst=second[:, 0:2], value=-1.0)
    kernel.store(first)
    kernel.store(second)
    execution = kernel.run(rounding=rounding, compute=np.float64)
    expected = counted(4, 8)
    expected[2:, 2:4] = -1
    assert execution.faults == ()
    np.testing.assert_array_equal(execution.outputs[0].values, expected)
    np.testing.assert_array_equal(execution.outputs[1].values, expected[2:, 2:6])


def test_overlapping_addresses_of_two_dtypes_share_bytes() -> None:
    kernel = Kernel()
    words, halves = (
        kernel.sbuf(1, 2, dtype="uint32", address=(0, 4)),
        kernel.sbuf(1, 3, dtype="uint16", address=(0, 6)),
    )
    kernel.copy(words, kernel.argument(np.array([[0x11112222, 0x33334444]], np.uint32)))
    kernel.store(halves[:, 0:3])
    np.testing.assert_array_equal(only(kernel), [[0x1111, 0x4444, 0x3333]])


def test_a_buffer_with_an_address_outside_its_memory_has_its_own_storage() -> None:
    kernel = Kernel()
    inside, outside = kernel.sbuf(1, 2, address=(0, 0)), kernel.sbuf(1, 2, address=(0, 2**40))
    below = kernel.sbuf(2, 2, address=(127, 0))
    for value, tile in enumerate((inside, outside, below)):
        kernel.call("memset", dst=tile, value=float(value))
    for tile in (inside, outside, below):
        kernel.store(tile)
    found = [output.values[0, 0] for output in kernel.run().outputs]
    assert found == [0, 1, 2]


def test_addresses_of_two_cores_and_memories_are_apart() -> None:
    kernel = Kernel(lnc=2)
    first, bank = kernel.sbuf(1, 2, address=(0, 0)), kernel.psum(1, 2, address=(0, 0))
    kernel.call("memset", dst=first, value=1.0)
    kernel.call("memset", dst=bank, value=2.0)
    kernel.store(first)
    kernel.switch_core()
    other = kernel.sbuf(1, 2, address=(0, 0))
    kernel.call("memset", dst=other, value=3.0)
    kernel.store(other)
    first_out, second_out = kernel.run().outputs
    assert (first_out.values[0, 0], second_out.values[0, 0]) == (1, 3)


def test_loops_with_static_bounds_run_their_trips() -> None:
    kernel = Kernel()
    tile = kernel.load(np.zeros((1, 1), np.float32))
    with kernel.loop(3):
        kernel.call("tensor_scalar", dst=tile, data=tile, op0="add", operand0=1.0)
        with kernel.loop(2):
            kernel.call("tensor_scalar", dst=tile, data=tile, op0="add", operand0=10.0)
        kernel.call("tensor_scalar", dst=tile, data=tile, op0="add", operand0=100.0)
    with kernel.loop(0):
        kernel.call("memset", dst=tile, value=-1.0)
    kernel.store(tile)
    execution = kernel.run()
    assert execution.outputs[0].values[0, 0] == 3 * (1 + 20 + 100)
    assert execution.executed == 1 + 3 * 4 + 1


def test_a_tile_used_last_in_a_loop_lasts_for_all_its_trips() -> None:
    kernel = Kernel()
    tile, out = kernel.load(np.zeros((1, 1), np.float32)), kernel.hbm(1, 1)
    with kernel.loop(3):
        kernel.call("tensor_scalar", dst=tile, data=tile, op0="add", operand0=1.0)
        kernel.copy(out, tile)
    kernel.output(out)
    assert only(kernel)[0, 0] == 3


@pytest.mark.parametrize(
    ("pattern", "base", "message"),
    [
        (((8, 4), (1, 9)), 0, "src reaches element 8 of the 8 elements of a partition"),
        (((8, 5), (1, 8)), 0, "src reaches partition 4 of a tile of 4 partitions"),
        (((-8, 2), (1, 8)), 0, "src reaches partition -1 of a tile of 4 partitions"),
        (((8, 4), (-1, 8)), 0, "src reaches element -7 of the 8 elements of a partition"),
        (((4, 4), (1, 4)), 0, "src partition stride 4 is no multiple of the 8 elements of a partition"),
    ],
)
def test_accesses_outside_a_tile(pattern: Any, base: int, message: str) -> None:
    kernel = Kernel()
    tile = kernel.load(counted(4, 8))
    bad = View(tile.buffer, "float32", base, pattern)
    out = kernel.hbm(*(count for _, count in pattern))
    kernel.copy(out, bad)
    kernel.output(out)
    execution = kernel.run()
    assert execution.faults[0].message == f"dma_copy: {message} (kernel.py:5)"
    assert execution.faults[0].kind == ("no meaning" if "stride" in message else "out of bounds")
    assert execution.faults[1].kind == "not executed"
    assert not execution.outputs[0].written.any() and execution.executed == 1


def test_malformed_accesses_have_no_meaning() -> None:
    tile_pattern = ((3, 2), (1, 3))
    cases = (
        (Memory.sbuf, "float32", tile_pattern, None, "src is on chip and has no partition axis"),
        (Memory.hbm, "float32", tile_pattern, 0, "src is in HBM and has a partition axis"),
        (Memory.sbuf, "float32", ((3, 2), (1, 0)), 0, "src has no elements"),
        (
            Memory.sbuf,
            "uint32",
            tile_pattern,
            0,
            "src rows of 6 bytes hold no whole number of uint32 elements",
        ),
    )
    for memory, dtype, pattern, partition, message in cases:
        kernel = Kernel()
        source = kernel.tensor(memory, 2, 3, dtype="float32" if dtype == "float32" else "uint16")
        out = kernel.hbm(2, 3)
        bad = Access(source.buffer.id, dtype, 0, pattern, partition)
        kernel.raw("dma_copy", {"dst": out.access, "src": bad})
        (fault,) = kernel.run().faults
        assert (fault.kind, fault.message) == ("no meaning", f"dma_copy: {message} (kernel.py:3)")


def test_another_set_of_operands_than_the_rows_is_no_known_instruction() -> None:
    kernel = Kernel()
    kernel.raw("dma_copy", {"dst": kernel.hbm(2, 3).access})
    (fault,) = kernel.run().faults
    assert fault.message == "dma_copy: the instruction table has no row with these operands (kernel.py:2)"


@pytest.mark.parametrize(("base", "reached"), [(1, 8), (-1, -1)])
def test_accesses_outside_hbm(base: int, reached: int) -> None:
    kernel = Kernel()
    source = kernel.argument(counted(2, 4))
    tile = kernel.sbuf(2, 4)
    kernel.copy(tile, View(source.buffer, "float32", base, ((4, 2), (1, 4))))
    (fault,) = kernel.run().faults
    assert fault.message == f"dma_copy: src reaches element {reached} of a tensor of 8 elements (kernel.py:3)"
    assert fault.kind == "out of bounds"


def test_an_output_outside_its_buffer() -> None:
    kernel = Kernel()
    out = kernel.hbm(2, 4)
    kernel.output(View(out.buffer, "float32", 0, ((4, 3), (1, 4))))
    execution = kernel.run()
    assert execution.faults[0].message == "output out: reaches element 11 of a tensor of 8 elements"
    assert not execution.outputs[0].written.any() and execution.outputs[0].values.shape == (3, 4)


def test_sizes_that_differ_have_no_meaning() -> None:
    kernel = Kernel()
    tile = kernel.load(counted(2, 4))
    small = kernel.sbuf(2, 3)
    kernel.copy(small, tile)
    (fault,) = kernel.run().faults
    assert fault.message == "tensor_copy: dst takes 6 elements, the instruction gives 8 (kernel.py:5)"
    assert fault.kind == "no meaning"


def test_an_unknown_row_is_unsupported_and_repeats_are_counted() -> None:
    kernel = Kernel()
    tile = kernel.load(counted(2, 4))
    with kernel.loop(3):
        kernel.call("warp_drive", dst=tile, src=tile)
    kernel.store(tile)
    execution = kernel.run()
    first, second = execution.faults
    assert first.message == "warp_drive: the instruction table has no row with these operands (kernel.py:4)"
    assert (first.kind, first.count, first.instruction) == ("unsupported", 3, 1)
    assert second.message == (
        "output out: 8 of 8 elements depend on warp_drive at kernel.py:4, which could not be executed"
    )


def test_an_operator_without_meaning_is_a_fault() -> None:
    kernel = Kernel()
    tile = kernel.load(counted(2, 4))
    kernel.call("tensor_tensor", dst=tile, data1=tile, data2=tile, op="frobnicate")
    (fault,) = kernel.run().faults
    assert fault.kind == "no meaning" and fault.message.startswith(
        "tensor_tensor: frobnicate is no ALU operator"
    )


def test_last_writers_are_those_whose_values_remain() -> None:
    kernel = Kernel()
    tile, out = kernel.load(counted(2, 4)), kernel.hbm(2, 4)
    kernel.copy(out[0:1], tile[0:1])  # replaced by the next two
    left = kernel.copy(out[0:1, 0:2], tile[0:1, 0:2])
    right = kernel.copy(out[:, 2:4], tile[:, 2:4])
    rest = kernel.copy(out[1:2, 0:2], tile[1:2, 0:2])
    kernel.output(out)
    kernel.output(out[0:1, 0:2], name="corner")
    execution = kernel.run()
    assert execution.outputs[0].last_writers == (left, right, rest)
    assert execution.outputs[1].last_writers == (left,)


def test_buffers_go_after_their_last_use_and_come_back_clean() -> None:
    kernel = Kernel()
    for at in range(3):
        tile = kernel.load(counted(2, 4) + at)
        kernel.store(tile)
    kernel.store(kernel.sbuf(2, 4))  # would show the bytes of a freed tile
    execution = kernel.run()
    for at in range(3):
        np.testing.assert_array_equal(execution.outputs[at].values, counted(2, 4) + at)
    assert np.isnan(execution.outputs[3].values).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, r"parameter p0 \(buffer 0\) has no argument"),
        ({0: counted(2, 3)}, r"parameter p0 takes an array of float32 \[2, 4\], got float32 \[2, 3\]"),
        (
            {0: counted(2, 4, dtype=np.int32)},
            r"parameter p0 takes an array of float32 \[2, 4\], got int32 \[2, 4\]",
        ),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments: dict[int, Any], message: str) -> None:
    kernel = Kernel()
    kernel.argument(counted(2, 4))
    with pytest.raises(ValueError, match=message):
        execute(kernel.program(), arguments)


def test_compute_and_rounding_are_checked() -> None:
    program = Kernel().program()
    with pytest.raises(ValueError, match="compute is float16, expected float32 or float64"):
        execute(program, {}, compute=np.float16)
    with pytest.raises(ValueError, match="rounding is off, which needs compute=float64"):
        execute(program, {}, rounding="off")


def test_an_empty_program() -> None:
    program: Program = Kernel().program()
    execution = execute(program, {}, poison=Poison.finite)
    assert (execution.outputs, execution.faults, execution.executed) == ((), (), 0)
    assert isinstance(program.header, Header)


def test_fault_kinds_are_known() -> None:
    with pytest.raises(ValueError, match="fault kind 'odd' is not one of uninitialised, "):
        Fault("odd", 0, 0, "")

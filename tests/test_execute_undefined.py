"""execute: what is undefined, how it flows by `Flow`, and where it is a fault."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from execute_kit import Kernel, View, counted

from nkireview.execute import Execution, Poison
from nkireview.isa.enums import Engine, Memory
from nkireview.isa.row import Flow, Operand, Param, Reader, Result, Role, Row
from nkireview.isa.rows.common import only
from nkireview.isa.table import ROWS

SBUF = frozenset({Memory.sbuf})


def written(execution: Execution, at: int = 0) -> list[Any]:
    mask = execution.outputs[at].written
    assert mask is not None
    return mask.astype(int).tolist()


def half_loaded(kernel: Kernel, rows: int = 2, columns: int = 4, loaded: int = 2) -> View:
    """A tile of which only the first columns are ever written."""
    tile = kernel.sbuf(rows, columns, name="half")
    kernel.copy(tile[:, 0:loaded], kernel.argument(counted(rows, loaded) + 1))
    return tile


def test_a_reduction_over_a_partly_loaded_tile_reaches_the_output() -> None:
    kernel = Kernel()
    tile = half_loaded(kernel)  # lines 1 to 3
    total = kernel.sbuf(2, 1)
    kernel.call("tensor_reduce", dst=total, op="add", data=tile, axis=1)
    kernel.store(total)
    execution = kernel.run()
    (fault,) = execution.faults
    assert fault.message == (
        "output out: 2 of 2 elements depend on SBUF memory never written (tile half declared at kernel.py:1, "
        "first read by tensor_reduce at kernel.py:5)"
    )
    assert (fault.kind, fault.count, kernel.where(fault)) == ("uninitialised", 2, "kernel.py:7")
    assert written(execution) == [[0], [0]] and np.isnan(execution.outputs[0].values).all()


def test_the_origin_is_kept_along_a_chain() -> None:
    kernel = Kernel()
    tile = half_loaded(kernel)
    first, second = kernel.sbuf(2, 4), kernel.sbuf(2, 4)
    kernel.call("tensor_scalar", dst=first, data=tile, op0="add", operand0=1.0)  # line 6
    kernel.call("tensor_scalar", dst=second, data=first, op0="add", operand0=1.0)
    kernel.copy(first, second)
    kernel.store(first)
    execution = kernel.run()
    (fault,) = execution.faults
    assert (
        "4 of 8 elements" in fault.message and "first read by tensor_scalar at kernel.py:6)" in fault.message
    )
    assert written(execution) == [[1, 1, 0, 0]] * 2


def test_reading_what_was_never_written_is_no_fault_by_itself() -> None:
    kernel = Kernel()
    tile = half_loaded(kernel)
    turned = kernel.psum(4, 2)
    kernel.call("nc_transpose", dst=turned, data=tile)
    copied = kernel.sbuf(4, 2)
    kernel.copy(copied, turned)
    kernel.store(copied[0:2])
    execution = kernel.run()
    assert execution.faults == () and execution.outputs[0].written is None
    np.testing.assert_array_equal(execution.outputs[0].values, [[1, 3], [2, 4]])


def test_never_written_elements_of_an_output() -> None:
    kernel = Kernel()
    tile, out = kernel.load(counted(2, 4)), kernel.hbm(4, 4)
    kernel.copy(out[0:2], tile)
    kernel.output(out)
    execution = kernel.run()
    (fault,) = execution.faults
    assert fault.kind == "unwritten output" and fault.count == 8 and fault.instruction == -1
    assert fault.message == "output out: 8 of 16 elements are never written (first at [2, 0])"
    assert kernel.where(fault) == "kernel.py:4"
    assert written(execution) == [[1] * 4] * 2 + [[0] * 4] * 2


def test_an_output_can_be_partly_unwritten_and_partly_undefined() -> None:
    kernel = Kernel()
    tile, out = half_loaded(kernel), kernel.hbm(3, 4)
    kernel.copy(out[0:2], tile)
    kernel.output(out)
    execution = kernel.run()
    assert [(fault.kind, fault.count) for fault in execution.faults] == [
        ("unwritten output", 4),
        ("uninitialised", 4),
    ]
    assert written(execution) == [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0]]


def test_a_later_write_heals() -> None:
    kernel = Kernel()
    tile = half_loaded(kernel)
    copied = kernel.sbuf(2, 4)
    kernel.copy(copied, tile)
    kernel.call("memset", dst=copied[:, 2:4], value=0.0)
    kernel.store(copied)
    execution = kernel.run()
    assert execution.faults == ()
    np.testing.assert_array_equal(execution.outputs[0].values, [[1, 2, 0, 0], [3, 4, 0, 0]])


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 1, 0, 2)])
def test_tiles_that_together_cover_a_buffer_define_it(order: tuple[int, ...]) -> None:
    kernel = Kernel()
    tile, out = kernel.load(counted(2, 8)), kernel.hbm(2, 8)
    for _ in range(2):
        for part in order:
            kernel.copy(out[:, 2 * part : 2 * part + 2], tile[:, 2 * part : 2 * part + 2])
    kernel.output(out)
    execution = kernel.run()
    assert execution.faults == () and execution.outputs[0].written is None
    np.testing.assert_array_equal(execution.outputs[0].values, counted(2, 8))


def test_definedness_of_bytes_through_other_dtypes() -> None:
    kernel = Kernel()
    tile = kernel.sbuf(1, 4, dtype="float32")
    kernel.call("memset", dst=tile.as_dtype("uint16", 1, 8)[:, 1:5], value=0)
    kernel.store(tile)
    kernel.store(tile.as_dtype("uint16", 1, 8))
    execution = kernel.run()
    assert written(execution, 0) == [[0, 1, 0, 0]]
    assert written(execution, 1) == [[0, 1, 1, 1, 1, 0, 0, 0]]


@pytest.mark.parametrize("addressed", [False, True])
def test_explicit_addresses_share_definedness(addressed: bool) -> None:
    kernel = Kernel()
    big = kernel.sbuf(2, 4, address=(0, 0) if addressed else None)
    small = kernel.sbuf(2, 2, address=(0, 8) if addressed else None)
    kernel.call("memset", dst=small, value=1.0)
    kernel.store(big)
    kernel.store(small)
    execution = kernel.run()
    shared = int(addressed)
    assert written(execution, 0) == [[0, 0, shared, shared]] * 2
    assert execution.outputs[1].written is None


def test_an_undefined_write_spoils_what_an_overlapping_buffer_held() -> None:
    kernel = Kernel()
    first, second = kernel.sbuf(1, 4, address=(0, 0)), kernel.sbuf(1, 4, address=(0, 8))
    source = half_loaded(kernel, rows=1, loaded=1)
    kernel.call("memset", dst=first, value=1.0)
    kernel.store(first)
    kernel.copy(second, source)
    kernel.store(first)
    kernel.call("memset", dst=second[:, 1:2], value=1.0)
    kernel.store(first)
    kernel.store(second)
    execution = kernel.run()
    assert [output.written is None for output in execution.outputs] == [True, False, True, False]
    assert written(execution, 1) == [[1, 1, 1, 0]] and written(execution, 3) == [[1, 1, 0, 0]]


def test_addresses_that_no_element_fits_are_kept_apart_by_byte() -> None:
    kernel = Kernel()
    first, second = kernel.sbuf(1, 1, address=(0, 0)), kernel.sbuf(1, 1, address=(0, 2))
    kernel.call("memset", dst=second, value=1.0)
    kernel.store(first)
    kernel.store(second)
    execution = kernel.run()
    assert written(execution, 0) == [[0]] and execution.outputs[1].written is None


def test_writing_one_half_twice_does_not_make_a_whole() -> None:
    kernel = Kernel()
    tile = kernel.sbuf(2, 4)
    for _ in range(2):
        kernel.call("memset", dst=tile[:, 0:2], value=1.0)
    kernel.store(tile)
    assert written(kernel.run()) == [[1, 1, 0, 0]] * 2


def test_a_write_with_a_stride_of_zero_covers_little() -> None:
    kernel = Kernel()
    tile = kernel.sbuf(2, 2)
    kernel.call("memset", dst=View(tile.buffer, "float32", 0, ((2, 2), (0, 2))), value=1.0)
    kernel.store(tile)
    assert written(kernel.run()) == [[1, 0]] * 2


def test_a_skipped_instruction_leaves_its_destination_undefined() -> None:
    kernel = Kernel()
    tile, other = kernel.load(counted(1, 4)), kernel.load(counted(1, 4))
    outside = View(other.buffer, "float32", 0, ((4, 1), (2, 4)))
    kernel.call("tensor_scalar", dst=tile, data=outside, op0="add", operand0=1.0)  # line 7
    kernel.store(tile)
    execution = kernel.run()
    first, second = execution.faults
    assert first.kind == "out of bounds" and first.message.startswith(
        "tensor_scalar: data reaches element 6 "
    )
    assert (second.kind, second.count) == ("not executed", 4)
    assert second.message == (
        "output out: 4 of 4 elements depend on tensor_scalar at kernel.py:7, which could not be executed"
    )


# Flows, one by one: what a mask of the operands makes of the result.


def flowing(target: str = "trn2") -> tuple[Kernel, View]:
    """A 3 x 4 tile of which element [1, 2] alone is undefined."""
    kernel = Kernel(target)
    tile = kernel.sbuf(3, 4)
    values = kernel.argument(counted(3, 4) + 1)
    kernel.copy(tile[0:1], values[0:1])
    kernel.copy(tile[2:3], values[2:3])
    kernel.copy(tile[1:2, 0:2], values[1:2, 0:2])
    kernel.copy(tile[1:2, 3:4], values[1:2, 3:4])
    return kernel, tile


def run_one(kernel: Kernel, opcode: str, shape: tuple[int, ...], **given: Any) -> list[Any]:
    dst = (kernel.psum if opcode.startswith("nc_") else kernel.sbuf)(*shape)
    kernel.call(opcode, dst=dst, **given)
    result = kernel.sbuf(*shape)
    kernel.copy(result, dst)
    kernel.store(result)
    return written(kernel.run(poison=Poison.finite))


HOLE = [[1, 1, 1, 1], [1, 1, 0, 1], [1, 1, 1, 1]]


def test_elementwise_needs_every_operand() -> None:
    kernel, tile = flowing()
    other = kernel.load(counted(3, 4))
    assert run_one(kernel, "tensor_tensor", (3, 4), data1=other, data2=tile, op="add") == HOLE


def test_elementwise_with_two_holes() -> None:
    kernel, tile = flowing()
    other = kernel.sbuf(3, 4)
    kernel.copy(other[0:2], kernel.argument(counted(2, 4)))
    expected = [*HOLE[:2], [0, 0, 0, 0]]
    assert run_one(kernel, "tensor_tensor", (3, 4), data1=other, data2=tile, op="add") == expected


def test_a_vector_spreads_over_its_partition() -> None:
    kernel, tile = flowing()
    data = kernel.load(counted(3, 4))
    found = run_one(kernel, "tensor_scalar", (3, 4), data=data, op0="add", operand0=tile[:, 2:3])
    assert found == [[1] * 4, [0] * 4, [1] * 4]


def test_a_vector_of_more_partitions_than_the_data() -> None:
    kernel, tile = flowing()
    data = kernel.load(counted(1, 3))
    # as many elements as the data, but one a partition: only the first counts
    assert run_one_defined(kernel, data, tile[:, 2:3])


def run_one_defined(kernel: Kernel, data: View, vector: View) -> bool:
    dst = kernel.sbuf(1, 3)
    kernel.call("tensor_scalar", dst=dst, data=data, op0="add", operand0=vector)
    kernel.store(dst)
    return kernel.run().outputs[0].written is None


def test_a_row_needs_all_its_elements() -> None:
    kernel, tile = flowing()
    assert run_one(kernel, "bn_stats", (3, 6), data=tile) == [[1] * 6, [0] * 6, [1] * 6]


def test_a_reduction_of_some_axes_needs_what_it_reduces() -> None:
    kernel, tile = flowing()
    found = run_one(kernel, "tensor_reduce", (3, 2), op="add", data=tile.reshape(3, 2, 2), axis=2)
    assert found == [[1, 1], [1, 0], [1, 1]]


def test_a_scan_needs_what_came_before() -> None:
    kernel, tile = flowing()
    ones = kernel.load(np.ones((3, 4), np.float32))
    found = run_one(
        kernel, "tensor_tensor_scan", (3, 4), data0=ones, data1=tile, initial=0.0, op0="multiply", op1="add"
    )
    assert found == [[1] * 4, [1, 1, 0, 0], [1] * 4]


def test_a_matmul_needs_its_row_and_column() -> None:
    kernel, tile = flowing()
    other = kernel.load(counted(3, 2))
    assert run_one(kernel, "nc_matmul", (4, 2), stationary=tile, moving=other) == [
        [1, 1],
        [1, 1],
        [0, 0],
        [1, 1],
    ]
    kernel, tile = flowing()
    other = kernel.load(counted(3, 2))
    assert run_one(kernel, "nc_matmul", (2, 4), stationary=other, moving=tile) == [[1, 1, 0, 1]] * 2


TURNED = [[1, 1, 1], [1, 1, 1], [1, 0, 1], [1, 1, 1]]
TURNED_BY_MATMUL = [[1, 1, 1], [1, 1, 1], [0, 0, 0], [1, 1, 1]]


def test_a_transpose_moves_the_hole() -> None:
    kernel, tile = flowing()
    assert run_one(kernel, "nc_transpose", (4, 3), data=tile) == TURNED


def test_a_transpose_on_v2_is_a_matmul_and_spreads_the_hole() -> None:
    kernel, tile = flowing("trn1")
    assert run_one(kernel, "nc_transpose", (4, 3), data=tile) == TURNED_BY_MATMUL


@pytest.mark.parametrize(
    ("target", "moving", "expected"),
    [
        ("trn2", np.eye(3), TURNED),
        ("trn2", 2 * np.eye(3), TURNED_BY_MATMUL),
        ("trn1", np.eye(3), TURNED_BY_MATMUL),
    ],
)
def test_the_transpose_mode_moves_the_hole_where_it_only_moves(
    target: str, moving: np.ndarray[Any, Any], expected: list[Any]
) -> None:
    kernel, tile = flowing(target)
    other = kernel.load(moving.astype(np.float32))
    assert run_one(kernel, "nc_matmul", (4, 3), stationary=tile, moving=other, is_transpose=True) == expected


def test_a_selection_hides_the_hole_where_it_takes_the_number() -> None:
    for cmp_op, expected in (("less_equal", [[1] * 4] * 3), ("greater", HOLE)):
        kernel, tile = flowing()
        # keeps column <= 1, or column > 1
        found_kernel = {"pattern": ((1, 4),), "offset": -1, "channel_multiplier": 0, "on_false_value": 0.0}
        dst = kernel.sbuf(3, 4)
        kernel.call("affine_select", dst=dst, on_true_tile=tile, cmp_op=cmp_op, **found_kernel)
        kernel.store(dst)
        mask = kernel.run().outputs[0].written
        assert (np.ones((3, 4)) if mask is None else mask.astype(int)).tolist() == expected


def blend(reader: Reader) -> dict[str, Result]:
    return {
        "dst": np.where(reader.value("predicate") != 0, reader.value("on_true"), reader.imm("on_false_value"))
    }


BLEND = Row(
    name="blend",
    signature=tuple(Param(name) for name in ("dst", "on_true", "predicate", "on_false_value")),
    operands=(
        Operand("dst", Role.write, SBUF),
        Operand("on_true", Role.read, SBUF),
        Operand("predicate", Role.read, SBUF),
    ),
    engines=only(Engine.vector),
    meaning=blend,
    flow={"dst": Flow.select},
    cost=ROWS["tensor_copy"].cost,
    source="this test",
)


def test_a_selection_by_a_tile_needs_the_predicate() -> None:
    kernel, tile = flowing()
    kernel.rows = {**ROWS, "blend": BLEND}
    predicate = kernel.load(np.array([[1, 0, 1, 0]] * 2 + [[0, 0, 0, 0]], np.float32))
    assert run_one(kernel, "blend", (3, 4), on_true=tile, predicate=predicate, on_false_value=0.0) == HOLE
    kernel, tile = flowing()
    kernel.rows = {**ROWS, "blend": BLEND}
    data = kernel.load(counted(3, 4))
    assert run_one(kernel, "blend", (3, 4), on_true=data, predicate=tile, on_false_value=0.0) == HOLE


def test_nothing_read_is_always_defined() -> None:
    kernel = Kernel()
    tile = kernel.sbuf(2, 3, dtype="int32")
    kernel.call("iota", dst=tile, pattern=((1, 3),), channel_multiplier=10)
    kernel.store(tile)
    execution = kernel.run()
    assert execution.outputs[0].written is None
    np.testing.assert_array_equal(execution.outputs[0].values, [[0, 1, 2], [10, 11, 12]])


def test_accumulator_registers_carry_the_hole() -> None:
    kernel, tile = flowing()
    ones = kernel.load(np.ones((3, 4), np.float32))
    totals = [kernel.sbuf(3, 1) for _ in range(3)]
    common: dict[str, Any] = {"dst": kernel.sbuf(3, 4), "op": "copy", "reduce_op": "add", "scale": 1.0}
    kernel.call("activation", data=tile, reduce_cmd="reset_reduce", **common)
    kernel.call("activation", data=ones, reduce_cmd="reduce", reduce_res=totals[0], **common)
    kernel.call("activation", data=ones, reduce_res=totals[1], **common)  # idle: the sum of this call alone
    kernel.call("activation", data=ones, reduce_cmd="reset_reduce", reduce_res=totals[2], **common)
    for total in totals:
        kernel.store(total)
    execution = kernel.run()
    assert written(execution, 0) == [[1], [0], [1]]
    assert execution.outputs[1].written is None and execution.outputs[2].written is None
    np.testing.assert_array_equal(execution.outputs[2].values, [[4]] * 3)


def reduced(kernel: Kernel, tile: View, result: View, command: str) -> None:
    kernel.call(
        "tensor_scalar_reduce",
        dst=tile,
        data=tile,
        op0="multiply",
        operand0=1.0,
        reduce_op="add",
        reduce_res=result,
        reduce_cmd=command,
    )


def test_accumulators_that_nothing_set_are_not_called_memory() -> None:
    kernel = Kernel()
    tile, result = kernel.load(counted(2, 4)), kernel.sbuf(2, 1)
    reduced(kernel, tile, result, "reduce")
    kernel.store(result)
    (fault,) = kernel.run().faults
    assert (fault.kind, fault.message) == (
        "undefined result",
        "output out: 2 of 2 elements depend on an accumulator register that was never set (tensor_scalar_reduce at "
        "kernel.py:5)",
    )
    kernel = Kernel()
    tile, result = kernel.load(counted(2, 4)), kernel.sbuf(2, 1)
    reduced(kernel, tile, result, "reset_reduce")
    reduced(kernel, tile, result, "reduce")
    kernel.store(result)
    assert kernel.run().faults == ()


def test_accumulators_carry_where_undefined_memory_came_from() -> None:
    kernel = Kernel()
    half, whole, result = half_loaded(kernel), kernel.load(counted(2, 4)), kernel.sbuf(2, 1)
    reduced(kernel, half, result, "reset_reduce")
    reduced(kernel, whole, result, "reduce")
    kernel.store(result)
    (fault,) = kernel.run().faults
    assert fault.kind == "uninitialised"
    assert (
        "2 of 2 elements depend on SBUF memory never written (tile half declared at kernel.py:1"
        in fault.message
    )


def test_a_gather_index_out_of_bounds_is_not_called_memory() -> None:
    kernel = Kernel()
    data, dst = kernel.load(counted(16, 8)), kernel.sbuf(16, 4)
    indices = kernel.load(np.tile(np.array([0, 1, 2, 8], np.uint32), (16, 1)))
    kernel.call("nc_n_gather", dst=dst, data=data, indices=indices)
    kernel.store(dst)
    (fault,) = kernel.run().faults
    assert fault.message == (
        "output out: 16 of 64 elements depend on a gather index out of bounds (nc_n_gather at kernel.py:8)"
    )

"""Registers and device-side loops: what they hold, how often bodies run, and what undefined ones do."""

from __future__ import annotations

import numpy as np
import pytest
from execute_kit import Kernel, View, counted
from hypothesis import given, settings
from hypothesis import strategies as st

from nkireview.execute import Execution
from nkireview.isa.enums import Engine
from nkireview.isa.row import Cost, Engines, Param, Row
from nkireview.isa.table import ROWS


def register(number: int) -> tuple[str, int]:
    return ("register", number)


def alloc(kernel: Kernel, number: int, value: int | None = None) -> None:
    kernel.call("register_alloc", x=value, dst=register(number))


def move(kernel: Kernel, number: int, value: int) -> None:
    kernel.call("register_move", dst=register(number), src=value)


def load(kernel: Kernel, number: int, tile: View) -> None:
    kernel.call("register_load", dst=register(number), src=tile)


def stored(kernel: Kernel, number: int, dtype: str = "int32") -> None:
    """Let what a register holds be an output."""
    tile = kernel.sbuf(1, 1, dtype=dtype)
    kernel.call("register_store", dst=tile, src=register(number))
    kernel.store(tile)


def faults(execution: Execution) -> list[tuple[str, str]]:
    return [(fault.kind, fault.message) for fault in execution.faults]


def value(kernel: Kernel) -> int:
    execution = kernel.run()
    assert not execution.faults
    return int(execution.outputs[0].values.item())


def add(kernel: Kernel, tile: View, step: float) -> None:
    kernel.call("tensor_scalar", dst=tile, data=tile, op0="add", operand0=step)


@pytest.mark.parametrize(
    ("dtype", "held", "expected"),
    [
        (np.int32, -7, -7),
        (np.uint32, 2**32 - 1, -1),  # the same 32 bits, read as a signed integer
        (np.int16, -300, -300),
        (np.uint16, 65535, 65535),
        (np.int8, -5, -5),
        (np.uint8, 250, 250),
    ],
)
def test_a_register_is_loaded_with_the_sign_of_its_tile(dtype: type, held: int, expected: int) -> None:
    kernel = Kernel()
    load(kernel, 0, kernel.load(np.array([[held]], dtype)))
    stored(kernel, 0)
    assert value(kernel) == expected


@pytest.mark.parametrize(
    ("given", "held"), [(2**31 - 1, 2**31 - 1), (2**31, -(2**31)), (-(2**31) - 1, 2**31 - 1)]
)
def test_what_a_row_gives_is_cut_to_thirty_two_bits(given: int, held: int) -> None:
    row = Row(
        name="gives",
        signature=(Param("dst"),),
        operands=(),
        engines=Engines(Engine.sync, {}),
        meaning=lambda reader: {"dst": np.asarray(given)},
        flow={},
        cost=Cost(subject="", per_element=0.0),
        source="here",
        registers=("dst",),
    )
    kernel = Kernel(rows={**ROWS, "gives": row})
    kernel.call("gives", dst=register(0))
    stored(kernel, 0)
    assert value(kernel) == held


def test_moves_copy_registers_and_constants() -> None:
    kernel = Kernel()
    alloc(kernel, 0, 5)
    kernel.call("register_move", dst=register(1), src=register(0))
    kernel.call("register_move", dst=register(0), src=9)
    stored(kernel, 1)
    assert value(kernel) == 5


def test_a_register_stands_for_a_number_among_the_immediates() -> None:
    kernel = Kernel()
    tile = kernel.sbuf(1, 4, dtype="int32")
    alloc(kernel, 3, 10)
    kernel.call("iota", dst=tile, pattern=((1, 4),), offset=register(3), channel_multiplier=0)
    kernel.store(tile)
    execution = kernel.run()
    assert not execution.faults
    np.testing.assert_array_equal(execution.outputs[0].values, [[10, 11, 12, 13]])


def test_each_stream_has_registers_of_its_own() -> None:
    kernel = Kernel(lnc=2)
    alloc(kernel, 0, 5)
    kernel.switch_core()
    stored(kernel, 0)
    assert faults(kernel.run())[0] == (
        "undefined register",
        "register_store: src is register 0, which was never written (kernel.py:3)",
    )


def test_storing_a_register_that_was_never_written_is_a_fault() -> None:
    kernel = Kernel()
    stored(kernel, 4)
    assert faults(kernel.run()) == [
        ("undefined register", "register_store: src is register 4, which was never written (kernel.py:2)"),
        (
            "not executed",
            "output out: 1 of 1 elements depend on register_store at kernel.py:2, which could not be executed",
        ),
    ]


def test_storing_a_register_loaded_from_memory_never_written_is_a_fault() -> None:
    kernel = Kernel()
    load(kernel, 2, kernel.sbuf(1, 1, dtype="int32"))
    kernel.call("register_move", dst=register(3), src=register(2))
    stored(kernel, 3)
    assert faults(kernel.run())[0] == (
        "undefined register",
        "register_store: src is register 3, which register_load at kernel.py:2 took from memory never written "
        "(kernel.py:5)",
    )


def test_a_register_that_only_moves_is_no_fault() -> None:
    kernel = Kernel()
    load(kernel, 2, kernel.sbuf(1, 1, dtype="int32"))
    kernel.call("register_move", dst=register(3), src=register(2))
    kernel.call("register_move", dst=register(4), src=register(7))
    assert not kernel.run().faults


def test_a_register_moved_from_one_never_written_says_so() -> None:
    kernel = Kernel()
    kernel.call("register_move", dst=register(4), src=register(7))
    stored(kernel, 4)
    assert faults(kernel.run())[0] == (
        "undefined register",
        "register_store: src is register 4, which comes from register 7, which was never written (kernel.py:3)",
    )


def test_an_allocation_without_a_value_leaves_the_register_undefined() -> None:
    kernel = Kernel()
    alloc(kernel, 0, 1)
    alloc(kernel, 0)
    stored(kernel, 0)
    assert faults(kernel.run())[0] == (
        "undefined register",
        "register_store: src is register 0, which register_alloc at kernel.py:2 left without a value (kernel.py:4)",
    )


def test_a_register_written_again_is_defined_again() -> None:
    kernel = Kernel()
    alloc(kernel, 0)
    kernel.call("register_move", dst=register(0), src=2)
    stored(kernel, 0)
    assert value(kernel) == 2


def test_an_instruction_that_fails_leaves_its_register_undefined() -> None:
    kernel = Kernel()
    alloc(kernel, 0, 1)
    load(kernel, 0, kernel.load(np.array([[1]], np.int32))[:, 1:2])
    stored(kernel, 0)
    assert faults(kernel.run())[:2] == [
        (
            "out of bounds",
            "register_load: src reaches partition 1 of a tile of 1 partitions (kernel.py:5)",
        ),
        (
            "undefined register",
            "register_store: src is register 0, which register_load at kernel.py:5 could not give (kernel.py:7)",
        ),
    ]


@settings(max_examples=40, deadline=None)
@given(st.integers(-6, 6), st.integers(-6, 6), st.integers(1, 4))
def test_for_loops_with_registers_as_bounds_run_as_range_does(lower: int, upper: int, step: int) -> None:
    kernel = Kernel()
    total = kernel.load(np.zeros((1, 1), np.int32))
    each = kernel.sbuf(1, 1, dtype="int32")
    alloc(kernel, 0, lower)
    load(kernel, 1, kernel.load(np.array([[upper]], np.int32)))
    with kernel.loop(register(1), lower=register(0), step=step, register=2):
        kernel.call("register_move", dst=register(1), src=0)  # a bound is read once, before the loop
        kernel.call("register_store", dst=each, src=register(2))
        kernel.call("tensor_scalar", dst=total, data=total, op0="multiply", operand0=3.0)
        kernel.call("tensor_tensor", dst=total, data1=total, data2=each, op="add")
    kernel.store(total)
    expected = 0
    for at in range(lower, upper, step):
        expected = 3 * expected + at
    execution = kernel.run()
    assert not execution.faults
    assert execution.outputs[0].values.item() == expected
    assert execution.executed == 4 + 4 * len(range(lower, upper, step)) + 1


def test_a_while_loop_runs_until_its_register_is_zero() -> None:
    kernel = Kernel()
    left, steps = kernel.load(np.array([[5]], np.int32)), kernel.load(np.zeros((1, 1), np.int32))
    load(kernel, 0, left)
    with kernel.loop(0, "while", register=0):
        add(kernel, steps, 1.0)
        add(kernel, left, -1.0)
        load(kernel, 0, left)
    kernel.store(steps)
    execution = kernel.run()
    assert execution.outputs[0].values.item() == 5
    assert execution.executed == 3 + 3 * 5 + 1


def test_a_while_loop_whose_register_is_zero_does_not_run() -> None:
    kernel = Kernel()
    tile = kernel.load(counted(1, 1))
    alloc(kernel, 0, 0)
    with kernel.loop(0, "while", register=0):
        add(kernel, tile, 1.0)
    kernel.store(tile)
    assert value(kernel) == 0


def test_nested_loops_take_bounds_from_the_loops_around_them() -> None:
    kernel = Kernel()
    tile = kernel.load(np.zeros((1, 1), np.float32))
    with kernel.loop(5, register=0), kernel.loop(register(0), register=1):
        add(kernel, tile, 1.0)
    kernel.store(tile)
    assert value(kernel) == 0 + 1 + 2 + 3 + 4


def test_a_loop_with_an_undefined_bound_is_a_fault_and_its_results_are_undefined() -> None:
    kernel = Kernel()
    tile, other = kernel.load(counted(1, 2)), kernel.load(counted(1, 2))
    with kernel.loop(register(5), placed=True):
        kernel.call("memset", dst=tile[:, 0:1], value=1.0)
    kernel.store(tile)
    kernel.store(other)
    execution = kernel.run()
    assert faults(execution) == [
        (
            "undefined register",
            "the upper bound of a for loop is register 5, which was never written (kernel.py:7)",
        ),
        (
            "not executed",
            "output out: 1 of 2 elements depend on memset at kernel.py:8, which could not be executed",
        ),
    ]
    assert kernel.where(execution.faults[0]) == "kernel.py:7"
    np.testing.assert_array_equal(execution.outputs[0].written, [[False, True]])
    assert execution.outputs[1].written is None


def test_a_lower_bound_and_a_while_condition_must_be_defined() -> None:
    kernel = Kernel()
    load(kernel, 1, kernel.sbuf(1, 1, dtype="int32"))
    with kernel.loop(3, lower=register(1)):
        alloc(kernel, 9, 1)
    with kernel.loop(0, "while", register=1):
        alloc(kernel, 9, 1)
    assert faults(kernel.run()) == [
        (
            "undefined register",
            "the lower bound of a for loop is register 1, which register_load at kernel.py:2 took from memory "
            "never written",
        ),
        (
            "undefined register",
            "a while loop goes on by register 1, which register_load at kernel.py:2 took from memory never written",
        ),
    ]


def endless(kernel: Kernel) -> Kernel:
    tile = kernel.load(counted(1, 1))
    alloc(kernel, 0, 1)
    with kernel.loop(0, "while", register=0, placed=True):
        add(kernel, tile, 1.0)
        move(kernel, 0, 1)
    kernel.store(tile)
    return kernel


def test_an_endless_loop_ends_at_the_limit() -> None:
    execution = endless(Kernel()).run(limit=1000)
    assert faults(execution) == [
        (
            "endless loop",
            "a while loop was ended after 1,000 executed instructions; raise the limit if it is meant to run "
            "longer (kernel.py:5)",
        ),
        (
            "not executed",
            "output out: 1 of 1 elements depend on tensor_scalar at kernel.py:6, which could not be executed",
        ),
    ]
    assert execution.executed < 1100


def test_an_empty_endless_loop_ends_as_well() -> None:
    kernel = Kernel()
    alloc(kernel, 0, 1)
    with kernel.loop(0, "while", register=0):
        pass
    assert [kind for kind, _ in faults(kernel.run(limit=50))] == ["endless loop"]


def test_a_loop_that_nothing_can_end_is_not_run_to_the_limit() -> None:
    kernel = Kernel()
    alloc(kernel, 0, 1)
    with kernel.loop(0, "while", register=0, placed=True):
        kernel.call("unknown_instruction")
    text = (
        "a while loop does not end: nothing in its body writes the register that it goes on by (kernel.py:2)"
    )
    execution = kernel.run()
    assert ("endless loop", text) in faults(execution) and execution.executed == 1


def test_a_loop_that_is_not_entered_ends() -> None:
    kernel = Kernel()
    alloc(kernel, 0, 0)
    with kernel.loop(0, "while", register=0):
        pass
    assert kernel.run().faults == ()


def test_a_loop_of_failing_instructions_ends_as_well() -> None:
    kernel = Kernel()
    alloc(kernel, 0, 1)
    with kernel.loop(0, "while", register=0):
        kernel.call("unknown_instruction")
        move(kernel, 0, 1)
    assert {kind for kind, _ in faults(kernel.run(limit=50))} == {"endless loop", "unsupported"}


@pytest.mark.parametrize(("limit", "ends"), [(10, True), (11, False)])
def test_the_limit_counts_instructions_and_passes(limit: int, ends: bool) -> None:
    kernel = Kernel()
    tile = kernel.load(counted(1, 1))
    with kernel.loop(5):
        add(kernel, tile, 1.0)
    execution = kernel.run(limit=limit - 1)
    assert bool(execution.faults) == ends


def test_a_straight_program_has_no_limit() -> None:
    kernel = Kernel()
    tile = kernel.load(counted(1, 1))
    for _ in range(20):
        add(kernel, tile, 1.0)
    kernel.store(tile)
    execution = kernel.run(limit=1)
    assert not execution.faults
    assert execution.executed == 22


def test_a_limit_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="^limit is 0, expected at least 1 instruction$"):
        Kernel().run(limit=0)

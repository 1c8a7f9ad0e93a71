"""What the checks make of registers, device-side indices, loops of unknown length, lists and meetings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from execute_kit import Kernel, View, counted

from nkireview.checks.chains import chains
from nkireview.checks.counts import counts, loop_trips
from nkireview.checks.dataflow import Dataflow, Slot
from nkireview.checks.duplication import duplicated
from nkireview.checks.provenance import provenance
from nkireview.checks.reduction import reduction_lengths
from nkireview.checks.repetition import repetition
from nkireview.checks.stored import stored_roundings
from nkireview.checks.survey import survey
from nkireview.hardware import target
from nkireview.isa.table import ROWS
from nkireview.program.contiguity import contiguous_run
from nkireview.program.program import Program
from nkireview.program.scope import Scope
from nkireview.program.storage import storage
from nkireview.schedule.uses import uses

TRN2 = target("trn2")
ONE = np.ones((1, 1), np.int32)


def register(number: int) -> tuple[str, int]:
    return ("register", number)


def reaching(program: Program, output: int = 0) -> set[str]:
    """The parameters that reach an output."""
    return set(provenance(program, ROWS).outputs[output].parameters)


def stored(kernel: Kernel, tile: View) -> None:
    """The tile as output."""
    out = kernel.hbm(*tile.shape)
    kernel.copy(out, tile)
    kernel.output(out)


# Data flow


def test_an_offset_in_a_register_reaches_what_it_selects() -> None:
    kernel = Kernel()
    x, offset, other = kernel.argument(counted(8, 4)), kernel.argument(ONE), kernel.argument(ONE)
    kernel.call("register_load", dst=register(0), src=offset)
    kernel.call("register_move", dst=register(1), src=register(0))
    kernel.call("register_load", dst=register(2), src=other)
    tile = kernel.sbuf(1, 4)
    kernel.copy(tile, kernel.indexed(x[0:1], "register", 1))
    stored(kernel, tile)
    program = kernel.program()
    assert reaching(program) == {"p0", "p1"}
    assert provenance(program, ROWS).coverage("p0", 0).all()  # any row may be the one


def test_an_instruction_that_reads_a_register_does_not_write_it() -> None:
    kernel = Kernel()
    x, offset, other = kernel.argument(counted(8, 4)), kernel.argument(ONE), kernel.argument(ONE)
    kernel.call("register_load", dst=register(0), src=offset)
    kernel.call("register_load", dst=register(1), src=other)
    with kernel.loop(register(1), register=2):
        kernel.call("register_store", dst=kernel.sbuf(1, 1, dtype="int32"), src=register(0))
    tile = kernel.sbuf(1, 4)
    kernel.copy(tile, kernel.indexed(x[0:1], "register", 0))
    stored(kernel, tile)
    assert reaching(kernel.program()) == {"p0", "p1"}


def test_bounds_and_conditions_of_loops_reach_what_the_body_writes() -> None:
    kernel = Kernel()
    x, bound, going, step = (kernel.argument(a) for a in (counted(4, 4), ONE, ONE, ONE))
    tile = kernel.sbuf(4, 4)
    kernel.copy(tile, x)
    kernel.call("register_load", dst=register(0), src=bound)
    with kernel.loop(register(0), register=1):
        kernel.call("tensor_scalar", dst=tile, data=tile, op0="add", operand0=1.0)
    out = kernel.sbuf(4, 4)
    kernel.call("memset", dst=out, value=0.0)
    kernel.call("register_load", dst=register(2), src=going)
    with kernel.loop(0, "while", register=2):
        kernel.call("tensor_copy", dst=out, src=tile)
        kernel.call("register_load", dst=register(2), src=step)
    stored(kernel, out)
    assert reaching(kernel.program()) == {"p0", "p1", "p2", "p3"}


def test_a_register_that_is_stored_carries_what_was_loaded() -> None:
    kernel = Kernel()
    number = kernel.argument(ONE)
    kernel.call("register_load", dst=register(0), src=number)
    tile = kernel.sbuf(1, 1, dtype="int32")
    kernel.call("register_store", dst=tile, src=register(0))
    out = kernel.hbm(1, 1, dtype="int32")
    kernel.copy(out, tile)
    kernel.output(out)
    assert reaching(kernel.program()) == {"p0"}


@pytest.mark.parametrize("scatters", [False, True])
def test_index_tiles_reach_what_is_gathered_and_where_it_is_scattered(scatters: bool) -> None:
    kernel = Kernel()
    x, rows = kernel.argument(counted(64, 8)), kernel.argument(np.zeros((16, 1), np.int32))
    index, tile = kernel.sbuf(16, 1, dtype="int32"), kernel.sbuf(16, 8)
    kernel.copy(index, rows)
    out = kernel.hbm(64, 8)
    if scatters:
        kernel.copy(tile, x[0:16])
        kernel.copy(kernel.indexed(out[0:16], "vector", index), tile)
    else:
        kernel.copy(tile, kernel.indexed(x[0:16], "vector", index))
        kernel.copy(out[0:16], tile)
    kernel.output(out)
    program = kernel.program()
    assert reaching(program) == {"p0", "p1"}
    held = storage(program, ROWS)
    used = uses(program, held)
    read = set(used.buffer[used.reads].tolist())
    assert {index.buffer.id, tile.buffer.id} <= read


def test_what_another_core_sends_reaches_what_is_received() -> None:
    kernel = Kernel(lnc=2)
    x, y = kernel.argument(counted(4, 4), shared=True), kernel.argument(counted(4, 4), shared=True)
    for core, source in enumerate((x, y)):
        mine, theirs = kernel.sbuf(4, 4), kernel.sbuf(4, 4)
        kernel.copy(mine, source)
        kernel.call(
            "sendrecv", src=mine, dst=theirs, send_to_rank=1 - core, recv_from_rank=1 - core, pipe_id=0
        )
        stored(kernel, theirs)
        if core == 0:
            kernel.switch_core()
    program = kernel.program()
    assert "p1" in reaching(program, 0) and "p0" in reaching(program, 1)


def test_lists_of_tensors_are_read_and_written() -> None:
    kernel = Kernel()
    x, y = kernel.argument(counted(4, 4)), kernel.argument(counted(2, 2))
    ins, outs = [kernel.hbm(4, 4), kernel.hbm(2, 2)], [kernel.hbm(4, 4), kernel.hbm(2, 2)]
    kernel.copy(ins[0], x)
    kernel.copy(ins[1], y)
    lists = {f"srcs{at}": view for at, view in enumerate(ins)} | {f"dsts{at}": v for at, v in enumerate(outs)}
    kernel.call("all_reduce", **lists, replica_group=((0, 1),), op="add")
    kernel.output(outs[0])
    kernel.output(outs[1])
    program = kernel.program()
    assert reaching(program, 0) >= {"p0"} and reaching(program, 1) >= {"p1"}
    found = survey(program, ROWS, TRN2)
    assert found.traffic.unread == () and found.traffic.round_trips == ()
    assert len(found.moves) == 2  # the copies; what ranks exchange is no DMA of the kernel's


def test_the_index_tile_is_an_operand_that_reads() -> None:
    kernel = Kernel()
    x = kernel.argument(counted(64, 8))
    index = kernel.sbuf(16, 1, dtype="int32")
    made = kernel.call("iota", dst=index, pattern=((1, 1),), offset=0, channel_multiplier=1)
    gather = kernel.call("dma_copy", dst=kernel.sbuf(16, 8), src=kernel.indexed(x[0:16], "vector", index))
    again = kernel.call("memset", dst=index, value=0)
    flow = Dataflow.of(kernel.program(), ROWS)
    slot = Slot(gather, "src.index")
    assert flow.readers(Slot(made, "dst")) == (slot,)
    assert flow.writers(slot) == (Slot(made, "dst"),)
    assert flow.readers(Slot(again, "dst")) == ()
    assert flow.tile_dtype(slot) == "int32" and not flow.operand_writes(slot)


def test_what_an_outer_loop_brings_round_may_have_written_it() -> None:
    kernel = Kernel()
    tile, out = kernel.sbuf(4, 4), kernel.sbuf(4, 4)
    first = kernel.call("memset", dst=tile, value=0.0)
    with kernel.loop(3):
        with kernel.loop(2):
            read = kernel.call("tensor_copy", dst=out, src=tile)
        later = kernel.call("memset", dst=tile, value=1.0)
    flow = Dataflow.of(kernel.program(), ROWS)
    assert set(flow.writers(Slot(read, "src"))) == {Slot(first, "dst"), Slot(later, "dst")}


# Findings that must not come


def test_one_moving_view_is_no_chain_no_repeat_and_no_duplicate() -> None:
    kernel = Kernel(lnc=2)
    x = kernel.argument(counted(64, 8), shared=True)
    out = kernel.hbm(64, 8, shared=True)
    for core in range(2):
        tile = kernel.sbuf(1, 16)
        kernel.call("register_alloc", x=core, dst=register(0))
        half = kernel.indexed(tile[:, 0:8], "register", 0, axis=1)
        loads = [kernel.copy(half, kernel.indexed(x[0:1], "register", 0)) for _ in range(2)]
        kernel.copy(kernel.indexed(out[0:1], "register", 0), half)
        if core == 0:
            kernel.switch_core()
    kernel.output(out)
    program = kernel.program()
    held = storage(program, ROWS)
    found = survey(program, ROWS, TRN2)
    assert len(chains(uses(program, held), held).producer) == 0
    assert all(len(item.repeats) == 0 and item.needed is None for item in found.traffic.loaded)
    assert duplicated(program, found.moves, held) == ()
    assert len(repetition(program, held).instruction) == 0 and loads


def test_random_numbers_and_meetings_are_no_repetition() -> None:
    kernel = Kernel(lnc=2)
    for core in range(2):
        tile, other = kernel.sbuf(4, 4, dtype="uint32"), kernel.sbuf(4, 4, dtype="uint32")
        drawn = [kernel.call("rng", dst=tile) for _ in range(2)]
        for _ in range(2):
            kernel.call(
                "sendrecv", src=tile, dst=other, send_to_rank=1 - core, recv_from_rank=1 - core, pipe_id=0
            )
        if core == 0:
            kernel.switch_core()
    program = kernel.program()
    assert drawn and len(repetition(program, storage(program, ROWS)).instruction) == 0
    again = Kernel()
    tile = again.sbuf(4, 4)
    for _ in range(2):
        again.call("memset", dst=tile, value=0.0)
    plain = again.program()
    assert len(repetition(plain, storage(plain, ROWS)).instruction) == 1


def test_registers_are_no_work_of_an_engine() -> None:
    kernel = Kernel()
    kernel.call("register_alloc", x=1, dst=register(0))
    kernel.call("rank_id", dst=register(1))
    kernel.call("memset", dst=kernel.sbuf(4, 4), value=0.0)
    found = survey(kernel.program(), ROWS, TRN2)
    assert found.work.instruction.tolist() == [2]


# Loops whose trips an execution saw


def summing(kernel: Kernel, trips: int) -> View:
    """The sum of the rows of an argument, one in each pass of a loop that a register bounds."""
    x = kernel.argument(counted(16, 1, 8))
    bound = kernel.load(np.full((1, 1), trips, np.int32))
    total, part = kernel.sbuf(1, 8), kernel.sbuf(1, 8)
    kernel.call("memset", dst=total, value=0.0)
    kernel.call("register_load", dst=register(0), src=bound)
    with kernel.loop(register(0), register=1):
        kernel.copy(part, kernel.indexed(x[0:1], "register", 1).reshape(1, 8))
        kernel.call("tensor_tensor", dst=total, data1=total, data2=part, op="add")
    return total


def test_an_execution_says_how_often_a_loop_ran() -> None:
    kernel = Kernel()
    stored(kernel, summing(kernel, 5))
    ran = kernel.run()
    assert not ran.faults and ran.trips == {0: 5}
    np.testing.assert_array_equal(ran.outputs[0].values, counted(16, 1, 8)[:5].sum(axis=0))
    program = kernel.ran
    # two terms where tiles are added, one more in each further pass
    assert reduction_lengths(program, ROWS, ran.trips) == (6,)
    assert reduction_lengths(program, ROWS) == (2,)
    assert loop_trips(program, ran.trips).tolist() == [1, 1, 1, 5, 5, 1]
    assert counts(program, ROWS, ran.trips).instructions == 14
    assert not counts(program, ROWS, ran.trips).assumed_trips and counts(program, ROWS).assumed_trips
    assert survey(program, ROWS, TRN2, ran.trips).times.tolist() == [1, 1, 1, 5, 5, 1]


def test_trips_of_a_loop_that_is_entered_often_are_an_average_rounded_up() -> None:
    kernel = Kernel()
    numbers = kernel.load(np.array([[1, 4, 2]], np.int32))
    tile = kernel.sbuf(1, 4)
    with kernel.loop(3, register=0):
        kernel.call(
            "register_load", dst=register(1), src=kernel.indexed(numbers[:, 0:1], "register", 0, axis=1)
        )
        with kernel.loop(register(1), register=2):
            kernel.call("memset", dst=tile, value=0.0)
    ran = kernel.run()
    assert not ran.faults and ran.trips == {1: 3}  # (1 + 4 + 2) / 3


def test_rounded_sums_of_a_loop_are_as_many_as_it_ran() -> None:
    kernel = Kernel()
    x = kernel.load(counted(1, 8))
    total = kernel.sbuf(1, 8, dtype="bfloat16")
    kernel.call("memset", dst=total, value=0.0)
    kernel.call("register_alloc", x=4, dst=register(0))
    with kernel.loop(register(0), register=1):
        kernel.call("tensor_tensor", dst=total, data1=total, data2=x, op="add")
    out = kernel.sbuf(1, 8)
    kernel.call("tensor_copy", dst=out, src=total)
    stored(kernel, out)
    program = kernel.program()
    assert [stored_roundings(program, ROWS, {0: trips})[0].count for trips in (1, 2, 4)] == [1, 2, 4]


# Lists, ranks and pieces


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("all_reduce", {"op": "add"}, 4),
        ("all_reduce", {"op": "maximum"}, 1),
        ("reduce_scatter", {"op": "add", "collective_dim": 0}, 4),
        ("all_to_all", {"collective_dim": 0}, 1),
    ],
)
def test_a_sum_over_ranks_has_a_term_for_each(name: str, given: dict[str, Any], expected: int) -> None:
    kernel = Kernel()
    x = kernel.argument(counted(8, 4))
    out = kernel.hbm(2 if name == "reduce_scatter" else 8, 4)
    kernel.call(name, srcs0=x, dsts0=out, replica_group=((0, 1, 2, 3),), **given)
    kernel.output(out)
    assert reduction_lengths(kernel.program(), ROWS) == (expected,)


def test_what_only_moves_rounds_nothing() -> None:
    kernel = Kernel(lnc=1)
    x = kernel.argument(counted(8, 4))
    halves = kernel.sbuf(8, 4, dtype="bfloat16")
    kernel.copy(halves, x)
    moved, out = kernel.hbm(8, 4, dtype="bfloat16"), kernel.hbm(8, 4, dtype="bfloat16")
    kernel.copy(moved, halves)
    kernel.call("all_to_all", srcs0=moved, dsts0=out, replica_group=((0, 1),), collective_dim=0)
    wide = kernel.sbuf(8, 4)
    kernel.copy(wide, out)
    stored(kernel, wide)
    assert stored_roundings(kernel.program(), ROWS)[0].count == 1


def test_pieces_of_a_gather_are_those_of_one_index() -> None:
    kernel = Kernel()
    x, index = kernel.hbm(64, 32), kernel.sbuf(16, 1, dtype="int32")
    numbers = [
        kernel.builder.access(view.access)
        for view in (
            kernel.indexed(x[0:16], "vector", index),
            kernel.indexed(x[0:16], "register", 0),
            kernel.indexed(x[0:16, 0:8], "scalar", index[0:1]),
        )
    ]
    kernel.call("register_alloc", x=0, dst=register(0))
    scope = Scope.of(kernel.program())
    assert [contiguous_run(scope.tile(number)) for number in numbers] == [128, 16 * 128, 32]

"""Instructions at which cores or ranks meet: results, definedness, order, deadlocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from execute_kit import Kernel, View, counted
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from nkireview.execute import Execution, execute_ranks
from nkireview.isa.enums import Engine
from nkireview.isa.row import Bits, Cost, Engines, Flow, Operand, Param, Reader, Result, Role, Row
from nkireview.isa.rows.common import HBM, SBUF
from nkireview.isa.table import ROWS

Array = NDArray[Any]


def meeting(
    name: str, meaning: Callable[[Reader], dict[str, Result]], flow: Flow, meets: str = "ranks"
) -> Row:
    """A row of its own, so that these tests rest on no collective of the table."""
    return Row(
        name=name,
        signature=(Param("dst"), Param("src"), Param("replica_group", None)),
        operands=(Operand("dst", Role.write, HBM | SBUF), Operand("src", Role.read, HBM | SBUF)),
        engines=Engines(Engine.dma, {}),
        meaning=meaning,
        flow={"dst": flow},
        cost=Cost(subject="", per_element=0.0),
        source="here",
        meets=meets,
    )


def total(reader: Reader) -> dict[str, Result]:
    return {"dst": np.sum([peer.value("src") for peer in reader.peers], axis=0)}


def largest(reader: Reader) -> dict[str, Result]:
    return {"dst": np.max([peer.value("src") for peer in reader.peers], axis=0)}


def gathered(reader: Reader) -> dict[str, Result]:
    return {"dst": Bits(np.concatenate([peer.raw("src") for peer in reader.peers]))}


def shifted(reader: Reader) -> dict[str, Result]:
    return {"dst": Bits(reader.peers[reader.position - 1].raw("src"))}


RANK = Row(
    name="own_rank",
    signature=(Param("dst", None),),
    operands=(),
    engines=Engines(Engine.sync, {}),
    meaning=lambda reader: {"dst": reader.state["rank"] * 10 + reader.state["ranks"]},
    flow={},
    cost=Cost(subject="", per_element=0.0),
    source="here",
    registers=("dst",),
)
OWN = (
    meeting("total", total, Flow.elementwise),
    meeting("largest", largest, Flow.elementwise),
    meeting("gathered", gathered, Flow.whole),
    meeting("shifted", shifted, Flow.elementwise),
    meeting("core_total", total, Flow.elementwise, "cores"),
    RANK,
)
TABLE: Mapping[str, Row] = {**ROWS, **{row.name: row for row in OWN}}


def faults(execution: Execution) -> list[tuple[str, str]]:
    return [(fault.kind, fault.message) for fault in execution.faults]


def ranks(name: str, values: list[Array], shape: tuple[int, ...] | None = None, **given: Any) -> list[Array]:
    """What each rank gets from one call."""
    kernel = Kernel(rows=TABLE)
    source = kernel.argument(values[0])
    out = kernel.hbm(*(shape or values[0].shape))
    kernel.call(name, dst=out, src=source, **given)
    kernel.output(out)
    found = kernel.run_ranks(*({source.buffer.id: each} for each in values))
    assert not any(execution.faults for execution in found)
    return [execution.outputs[0].values for execution in found]


def numbered(count: int) -> list[Array]:
    return [counted(2, 3) + 10 * rank for rank in range(count)]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_all_ranks_get_the_total(count: int) -> None:
    values = numbered(count)
    for found in ranks("total", values):
        np.testing.assert_array_equal(found, sum(values))


@settings(max_examples=30, deadline=None)
@given(st.permutations(range(6)), st.integers(1, 5))
def test_peers_are_those_of_the_group_in_its_order(order: list[int], cut: int) -> None:
    values = numbered(6)
    groups = (tuple(order[:cut]), tuple(order[cut:]))
    found = ranks("shifted", values, replica_group=groups)
    for group in groups:
        for position, rank in enumerate(group):
            np.testing.assert_array_equal(found[rank], values[group[position - 1]])


def test_each_rank_has_memory_and_a_number_of_its_own() -> None:
    kernel = Kernel(rows=TABLE)
    tile = kernel.sbuf(1, 1, dtype="int32")
    kernel.call("own_rank", dst=("register", 0))
    kernel.call("register_store", dst=tile, src=("register", 0))
    kernel.store(tile)
    found = kernel.run_ranks({}, {}, {})
    assert [execution.outputs[0].values.item() for execution in found] == [3, 13, 23]


def test_one_rank_alone_is_rank_zero_of_one() -> None:
    kernel = Kernel(rows=TABLE)
    tile = kernel.sbuf(1, 1, dtype="int32")
    kernel.call("own_rank", dst=("register", 0))
    kernel.call("register_store", dst=tile, src=("register", 0))
    kernel.store(tile)
    assert kernel.run().outputs[0].values.item() == 1


def test_ranks_meet_again_and_again_in_a_loop() -> None:
    kernel = Kernel(rows=TABLE)
    source = kernel.argument(np.zeros((1, 1), np.float32))
    here, there = kernel.sbuf(1, 1), kernel.sbuf(1, 1)
    kernel.copy(here, source)
    with kernel.loop(3):
        kernel.call("total", dst=there, src=here)
        kernel.call("tensor_scalar", dst=here, data=there, op0="add", operand0=1.0)
    kernel.store(here)
    found = kernel.run_ranks({source.buffer.id: np.float32([[1]])}, {source.buffer.id: np.float32([[2]])})
    value = 3.0  # of both: every pass doubles what both hold
    value = value + 1
    for _ in range(2):
        value = 2 * value + 1
    assert [execution.outputs[0].values.item() for execution in found] == [value, value]
    assert [execution.executed for execution in found] == [8, 8]


def test_a_swap_in_place_gives_every_rank_the_old_values() -> None:
    kernel = Kernel(rows=TABLE)
    source = kernel.argument(counted(2, 2))
    tile = kernel.sbuf(2, 2)
    kernel.copy(tile, source)
    kernel.call("shifted", dst=tile, src=tile)
    kernel.store(tile)
    values = [counted(2, 2), counted(2, 2) + 10, counted(2, 2) + 20]
    found = kernel.run_ranks(*({source.buffer.id: each} for each in values))
    for at, execution in enumerate(found):
        np.testing.assert_array_equal(execution.outputs[0].values, values[at - 1])


# Definedness


def definedness(name: str, rank: int, shape: tuple[int, int] = (2, 2)) -> list[Array]:
    """What is written on each of three ranks, of which one reads element (0, 1) undefined."""
    kernel = Kernel(rows=TABLE)
    which = kernel.argument(np.zeros((1, 1), np.int32))
    tile, out = kernel.sbuf(2, 2), kernel.hbm(*shape)
    kernel.call("memset", dst=tile, value=1.0)
    hole = kernel.sbuf(2, 2)
    number = kernel.sbuf(1, 1, dtype="int32")
    kernel.copy(number, which)
    kernel.call("register_load", dst=("register", 0), src=number)
    with kernel.loop(("register", 0), register=1):
        kernel.copy(tile[0:1, 1:2], hole[0:1, 1:2])
    kernel.call(name, dst=out, src=tile)
    kernel.output(out)
    given = [{which.buffer.id: np.array([[at == rank]], np.int32)} for at in range(3)]
    written = []
    for execution in kernel.run_ranks(*given):
        mask = execution.outputs[0].written
        written.append(np.ones(shape, np.bool_) if mask is None else mask)
    return written


@pytest.mark.parametrize("name", ["total", "largest"])
def test_what_one_rank_reads_undefined_is_undefined_in_every_sum(name: str) -> None:
    for written in definedness(name, 1):
        np.testing.assert_array_equal(written, [[True, False], [True, True]])


def test_only_the_successor_gets_what_is_undefined() -> None:
    for rank, written in enumerate(definedness("shifted", 1)):
        np.testing.assert_array_equal(written, [[True, rank != 2], [True, True]])


def test_a_row_of_flow_whole_is_undefined_altogether() -> None:
    for written in definedness("gathered", 1, (6, 2)):
        assert not written.any()


def test_the_fault_names_the_memory_that_a_peer_never_wrote() -> None:
    kernel = Kernel(rows=TABLE)
    out, tile = kernel.hbm(1, 1), kernel.sbuf(1, 1, name="hole")
    kernel.call("total", dst=out, src=tile)
    kernel.output(out)
    assert faults(kernel.run_ranks({}, {})[1]) == [
        (
            "uninitialised",
            "output out: 1 of 1 elements depend on SBUF memory never written (tile hole declared at kernel.py:2, "
            "first read by total at kernel.py:3)",
        )
    ]


@pytest.mark.oracle("ncc.all_gather", "ncc.all_reduce")
def test_the_collectives_of_the_table_follow_all_ranks() -> None:
    kernel = Kernel()
    which = kernel.argument(np.zeros((1, 1), np.int32))
    tile, hole = kernel.sbuf(2, 2), kernel.sbuf(2, 2)
    number = kernel.sbuf(1, 1, dtype="int32")
    kernel.copy(number, which)
    kernel.call("register_load", dst=("register", 0), src=number)
    kernel.call("memset", dst=tile, value=2.0)
    with kernel.loop(("register", 0), register=1):
        kernel.copy(tile[0:1, 1:2], hole[0:1, 1:2])
    every, summed = kernel.sbuf(4, 2), kernel.sbuf(2, 2)
    kernel.call("all_gather", dsts0=every, srcs0=tile, replica_group=((0, 1),), collective_dim=0)
    kernel.call("all_reduce", dsts0=summed, srcs0=tile, replica_group=((0, 1),), op="add")
    kernel.store(every)
    kernel.store(summed)
    given = [{which.buffer.id: np.array([[rank]], np.int32)} for rank in range(2)]
    for execution in kernel.run_ranks(*given):
        gathers, sums = execution.outputs
        np.testing.assert_array_equal(
            gathers.written, [[True, True], [True, True], [True, False], [True, True]]
        )
        np.testing.assert_array_equal(sums.written, [[True, False], [True, True]])
        np.testing.assert_array_equal(gathers.values[gathers.written], np.full(7, 2))
        np.testing.assert_array_equal(sums.values[sums.written], np.full(3, 4))


# Who is not there


def test_a_group_of_ranks_that_do_not_run_says_how_to_run_them() -> None:
    kernel = Kernel(rows=TABLE)
    out = kernel.hbm(1, 1)
    kernel.call("total", dst=out, src=kernel.argument(counted(1, 1)), replica_group=((0, 1, 2),))
    kernel.output(out)
    execution = kernel.run()
    assert faults(execution)[0] == (
        "unsupported",
        "total: replica_group names ranks 1, 2, but only rank 0 runs: run all of them with execute_ranks, which "
        "takes the arguments of each rank (kernel.py:3)",
    )
    assert execution.outputs[0].written is not None and not execution.outputs[0].written.any()


def test_one_missing_rank_of_three() -> None:
    kernel = Kernel(rows=TABLE)
    out = kernel.hbm(1, 1)
    kernel.call("total", dst=out, src=kernel.argument(counted(1, 1)), replica_group=((0, 1, 2),))
    assert faults(kernel.run_ranks({}, {})[1]) == [
        (
            "unsupported",
            "total: replica_group names rank 2, but only ranks 0 to 1 run: run all of them with execute_ranks, "
            "which takes the arguments of each rank (kernel.py:3)",
        )
    ]


def test_a_rank_outside_every_group_has_no_meaning() -> None:
    kernel = Kernel(rows=TABLE)
    out = kernel.hbm(1, 1)
    kernel.call("total", dst=out, src=kernel.argument(counted(1, 1)), replica_group=((0,),))
    first, second = kernel.run_ranks({}, {})
    assert not first.faults
    assert faults(second) == [
        ("no meaning", "total: rank 1 is in no group of replica_group ((0,),) (kernel.py:3)")
    ]


def by_rank(kernel: Kernel, body: Callable[[], None]) -> None:
    """Let only ranks other than 0 run a body."""
    kernel.call("own_rank", dst=("register", 0))
    with kernel.loop(("register", 0), lower=9, step=100, register=1):
        body()


def test_a_rank_that_does_not_come_is_a_deadlock() -> None:
    kernel = Kernel(rows=TABLE)
    out, source = kernel.hbm(1, 1), kernel.argument(counted(1, 1))
    by_rank(kernel, lambda: kernel.call("total", dst=out, src=source) and None)
    kernel.output(out)
    first, second = kernel.run_ranks({}, {})
    assert [kind for kind, _ in faults(first)] == ["unwritten output"]
    assert faults(second) == [
        (
            "deadlock",
            "total: rank 1 waits here for rank 0, which has finished with total at kernel.py:4 (kernel.py:4)",
        ),
        (
            "not executed",
            "output out: 1 of 1 elements depend on total at kernel.py:4, which could not be executed",
        ),
    ]


def test_a_peer_that_cannot_take_part_is_named() -> None:
    kernel = Kernel(rows=TABLE)
    which = kernel.argument(np.zeros((1, 1), np.int32))
    tile, idx, out = kernel.load(counted(2, 2)), kernel.sbuf(1, 1, dtype="int32"), kernel.hbm(1, 2)
    kernel.copy(idx, which)
    kernel.call("total", dst=out, src=kernel.indexed(tile[0:1], "scalar", idx))
    kernel.output(out)
    first, second = kernel.run_ranks({}, {which.buffer.id: np.array([[7]], np.int32)})
    assert faults(second)[0] == (
        "out of bounds",
        "total: src index 7 reaches partition 7 of a tile of 2 partitions (kernel.py:8)",
    )
    assert faults(first)[0] == ("no meaning", "total: rank 1 could not take part (kernel.py:8)")
    assert not any(execution.outputs[0].written.any() for execution in (first, second))


def test_arguments_of_a_rank_are_checked() -> None:
    kernel = Kernel(rows=TABLE)
    source = kernel.argument(counted(1, 2))
    program = kernel.program()
    with pytest.raises(ValueError, match="^rank 1: parameter p0 \\(buffer 0\\) has no argument$"):
        execute_ranks(program, [{source.buffer.id: counted(1, 2)}, {}])
    with pytest.raises(
        ValueError, match="^arguments_per_rank is empty, expected the arguments of at least one rank$"
    ):
        execute_ranks(program, [])


# Cores


def test_cores_add_what_both_hold() -> None:
    kernel = Kernel(lnc=2, rows=TABLE)
    outputs = []
    for core in range(2):
        tile, out = kernel.load(counted(2, 2) + 10 * core), kernel.hbm(2, 2)
        kernel.call("core_total", dst=out, src=tile)
        outputs.append(out)
        if core == 0:
            kernel.switch_core()
    for out in outputs:
        kernel.output(out)
    execution = kernel.run()
    assert not execution.faults
    for output in execution.outputs:
        np.testing.assert_array_equal(output.values, 2 * counted(2, 2) + 10)
    assert execution.executed == 4


def barrier(kernel: Kernel, data: View) -> int:
    return kernel.call("core_barrier", data=data, cores=(0, 1))


def crossed(kernel: Kernel, meet: bool, **options: Any) -> Execution:
    """Each core writes its half of a shared tensor, then reads the other's."""
    shared = kernel.hbm(2, 2, shared=True)
    outputs = []
    for core in range(2):
        mine = kernel.load(np.full((1, 2), core + 1, np.float32))
        kernel.copy(shared[core : core + 1], mine)
        if meet:
            barrier(kernel, shared)
        other, out = kernel.sbuf(1, 2), kernel.hbm(1, 2)
        kernel.copy(other, shared[1 - core : 2 - core])
        kernel.copy(out, other)
        outputs.append(out)
        if core == 0:
            kernel.switch_core()
    for out in outputs:
        kernel.output(out)
    return kernel.run(**options)


@pytest.mark.oracle("nisa.core_barrier")
def test_behind_a_barrier_each_core_sees_what_the_other_wrote() -> None:
    for turns in (False, True):
        execution = crossed(Kernel(lnc=2), meet=True, turns=turns)
        assert not execution.faults
        assert [output.values.tolist() for output in execution.outputs] == [[[2, 2]], [[1, 1]]]


def test_without_a_barrier_the_first_core_reads_too_early() -> None:
    execution = crossed(Kernel(lnc=2), meet=False)
    assert [kind for kind, _ in faults(execution)] == ["uninitialised"]


def test_by_turns_cores_execute_one_instruction_each() -> None:
    def both_clear_then_store() -> Kernel:
        kernel = Kernel(lnc=2)
        shared = kernel.hbm(2, 2, shared=True)
        for core in range(2):
            zeros = kernel.load(np.zeros((2, 2), np.float32))
            mine = kernel.load(np.full((1, 2), core + 1, np.float32))
            kernel.copy(shared, zeros)
            kernel.copy(shared[core : core + 1], mine)
            if core == 0:
                kernel.switch_core()
        kernel.output(shared)
        return kernel

    assert both_clear_then_store().run().outputs[0].values.tolist() == [[0, 0], [2, 2]]
    assert both_clear_then_store().run(turns=True).outputs[0].values.tolist() == [[1, 1], [2, 2]]


def test_a_buffer_of_both_cores_lasts_until_both_are_done() -> None:
    kernel = Kernel(lnc=2)
    shared, gate = kernel.hbm(1, 4, shared=True), kernel.hbm(1, 1, shared=True)
    kernel.copy(shared, kernel.argument(counted(1, 4)))
    barrier(kernel, gate)
    barrier(kernel, gate)  # the other core has read `shared` for its last time
    tile = kernel.sbuf(1, 4)
    kernel.copy(tile, shared)
    kernel.store(tile)
    kernel.switch_core()
    barrier(kernel, gate)
    other = kernel.sbuf(1, 4)
    kernel.copy(other, shared)
    barrier(kernel, gate)
    kernel.store(other)
    execution = kernel.run()
    assert not execution.faults
    for output in execution.outputs:
        np.testing.assert_array_equal(output.values, counted(1, 4))


def test_cores_that_wait_at_different_calls_are_a_deadlock() -> None:
    kernel = Kernel(lnc=2)
    gate = kernel.hbm(1, 1, shared=True)
    barrier(kernel, gate)
    kernel.store(kernel.load(counted(1, 1)))
    kernel.switch_core()
    a, b = kernel.sbuf(1, 1), kernel.sbuf(1, 1)
    kernel.call("sendrecv", src=a, dst=b, send_to_rank=0, recv_from_rank=0, pipe_id=3)
    execution = kernel.run()
    assert faults(execution) == [
        (
            "deadlock",
            "core_barrier: core 0 waits here for core 1, which waits at sendrecv at kernel.py:10 with pipe_id 3 "
            "(kernel.py:2)",
        ),
        (
            "deadlock",
            "sendrecv: core 1 waits here for core 0, which waits at core_barrier at kernel.py:2 (kernel.py:10)",
        ),
        (
            "not executed",
            "output out: 1 of 1 elements depend on dma_copy at kernel.py:7, which could not be executed",
        ),
    ]


def test_a_core_that_finishes_leaves_the_other_waiting() -> None:
    kernel = Kernel(lnc=2)
    gate = kernel.hbm(1, 1, shared=True)
    barrier(kernel, gate)
    kernel.switch_core()
    kernel.store(kernel.load(counted(1, 1)))
    execution = kernel.run()
    assert faults(execution) == [
        (
            "deadlock",
            "core_barrier: core 0 waits here for core 1, which has finished with dma_copy at kernel.py:7 "
            "(kernel.py:2)",
        )
    ]
    assert execution.outputs[0].written is None


def test_a_core_that_does_not_run_is_named() -> None:
    kernel = Kernel()
    barrier(kernel, kernel.hbm(1, 1, shared=True))
    assert faults(kernel.run()) == [
        ("deadlock", "core_barrier: core 0 waits here for core 1, which does not run (kernel.py:2)")
    ]


def test_a_deadlock_in_a_loop_takes_the_whole_loop_with_it() -> None:
    kernel = Kernel(lnc=2)
    gate = kernel.hbm(1, 1, shared=True)
    tile = kernel.load(counted(1, 2))
    with kernel.loop(2):
        kernel.call("memset", dst=tile[:, 0:1], value=1.0)
        barrier(kernel, gate)
    kernel.store(tile)
    kernel.switch_core()
    barrier(kernel, gate)
    execution = kernel.run()
    assert [kind for kind, _ in faults(execution)] == ["deadlock", "not executed"]
    np.testing.assert_array_equal(execution.outputs[0].written, [[False, False]])


def test_a_barrier_of_other_cores_has_no_meaning() -> None:
    kernel = Kernel(lnc=2)
    gate = kernel.hbm(1, 1, shared=True)
    kernel.call("core_barrier", data=gate, cores=(1,))
    kernel.switch_core()
    kernel.call("core_barrier", data=gate, cores=(1,))
    assert faults(kernel.run()) == [
        ("no meaning", "core_barrier: core 0 takes part but is none of cores (1,) (kernel.py:2)")
    ]


def test_each_core_of_a_rank_meets_the_same_core_of_the_others() -> None:
    kernel = Kernel(lnc=2, rows=TABLE)
    sources, outputs = [], []
    for core in range(2):
        source, out = kernel.argument(counted(1, 2)), kernel.hbm(1, 2)
        kernel.call("total", dst=out, src=source)
        sources.append(source.buffer.id)
        outputs.append(out)
        if core == 0:
            kernel.switch_core()
    for out in outputs:
        kernel.output(out)
    given = [
        {sources[core]: np.full((1, 2), 10 * rank + core, np.float32) for core in range(2)}
        for rank in range(3)
    ]
    for execution in kernel.run_ranks(*given):
        assert not execution.faults
        assert [output.values.tolist() for output in execution.outputs] == [[[30, 30]], [[33, 33]]]


def test_instances_of_a_core_run_one_after_the_other() -> None:
    kernel = Kernel(lnc=2)
    gate = kernel.hbm(1, 1, shared=True)
    out = kernel.hbm(1, 1)
    kernel.copy(out, kernel.argument(np.float32([[7]])))
    barrier(kernel, gate)
    kernel.switch_core()
    barrier(kernel, gate)
    kernel.switch_core()
    kernel.core = 0  # a second stream of core 0
    kernel.output(out)
    kernel.copy(out, kernel.argument(np.float32([[8]])))
    execution = kernel.run()
    assert not execution.faults
    assert execution.outputs[0].values.item() == 8

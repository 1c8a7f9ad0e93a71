"""The schedule of what is only known on the device: registers, indices, loops, meetings; against times by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from execute_kit import Kernel, View, counted

from nkireview.hardware import target
from nkireview.isa.enums import Engine
from nkireview.isa.table import ROWS
from nkireview.program.storage import storage
from nkireview.schedule.costs import GPSIMD, LANES
from nkireview.schedule.lifetime import lifetimes
from nkireview.schedule.reuse import reuse
from nkireview.schedule.timing import Timing
from nkireview.schedule.uses import uses
from nkireview.timeline.timeline import Timeline, Wait

TRN2 = target("trn2")
HOP = TRN2.number("dma.ring_hop_ns")
VECTOR = TRN2.number("vector.clock_ghz")


def register(number: int) -> tuple[str, int]:
    return ("register", number)


def first(line: Timeline, instruction: int) -> int:
    """The first slice of an instruction."""
    return int(np.flatnonzero(line.instruction == instruction)[0])


def last(line: Timeline, instruction: int) -> int:
    return int(np.flatnonzero(line.instruction == instruction)[-1])


def long_copy(kernel: Kernel, dst: View | None = None) -> int:
    """Some microseconds of work on Vector."""
    return kernel.call(
        "tensor_copy", dst=dst or kernel.sbuf(128, 2048), src=kernel.psum(128, 2048), engine=Engine.vector
    )


def test_an_offset_is_waited_for_from_its_tile_to_the_register_to_the_address() -> None:
    kernel = Kernel()
    x, number = kernel.argument(counted(64, 128)), kernel.load(np.ones((1, 1), np.int32))
    load = kernel.call("register_load", dst=register(0), src=number)
    row = kernel.indexed(x[0:1], "register", 0)
    copy = kernel.call("dma_copy", dst=kernel.sbuf(1, 128), src=row)
    free = kernel.call("dma_copy", dst=kernel.sbuf(1, 128), src=x[0:1], engine=Engine.scalar)
    line = Timing(kernel.program()).timeline
    assert line.start[first(line, load)] == line.ready[last(line, load - 1)]
    assert line.start[first(line, copy)] == line.ready[first(line, load)]
    assert line.wait[first(line, copy)] == int(Wait.data)
    assert line.start[first(line, free)] == 0.0


def test_registers_are_read_by_many_and_waited_for_by_writers_and_readers_only() -> None:
    kernel = Kernel()
    tile = kernel.load(np.ones((1, 1), np.int32))
    load = kernel.call("register_load", dst=register(0), src=tile)
    moved = kernel.call("register_move", dst=register(1), src=register(0))
    other = kernel.call("register_alloc", x=3, dst=register(2))
    line = Timing(kernel.program()).timeline
    assert line.start[first(line, moved)] >= line.ready[first(line, load)]
    assert line.wait[first(line, other)] == int(Wait.order)  # nothing but its queue


def test_a_gather_waits_for_its_indices_and_its_descriptors_are_made_by_software() -> None:
    kernel = Kernel()
    x, rows = kernel.argument(counted(512, 256)), kernel.load(np.zeros((128, 1), np.int32))
    source = kernel.indexed(x[0:128], "vector", rows)
    gather = kernel.call("dma_copy", dst=kernel.sbuf(128, 256), src=source)
    plain = kernel.call("dma_copy", dst=kernel.sbuf(128, 256), src=x[0:128])
    timing = Timing(kernel.program())
    line, costs = timing.timeline, timing.plan.costs
    assert line.start[first(line, gather)] == line.ready[last(line, gather - 1)]
    assert costs.lane[gather] == GPSIMD and costs.held[gather] == TRN2.number("dma.issue_ns.gpsimd")
    assert LANES[costs.lane[plain]] == "sync"
    # 128 descriptors of one row (1 KiB) each, over 16 engines
    each = max(
        TRN2.number("dma.packet_ns") + 1024 / TRN2.number("dma.bytes_per_ns"),
        TRN2.number("dma.software_packet_floor_ns"),
    )
    assert costs.transfer[gather] == pytest.approx(128 * each / 16)


def test_a_moved_address_costs_compute_engines_the_documented_interval() -> None:
    kernel = Kernel()
    tile = kernel.sbuf(128, 64)
    kernel.call("memset", dst=tile, value=0.0)
    kernel.call("register_alloc", x=1, dst=register(0))
    out = kernel.sbuf(128, 4)
    plain = kernel.call("tensor_copy", dst=out, src=tile[:, 0:4], engine=Engine.vector)
    source = kernel.indexed(tile[:, 0:4], "register", 0, axis=1)
    moved = kernel.call("tensor_copy", dst=out, src=source, engine=Engine.vector)
    timing = Timing(kernel.program())
    overhead = timing.held_ns[plain] - 2 / VECTOR  # float32 in SBUF: two elements a cycle
    assert timing.held_ns[moved] == pytest.approx(600 / VECTOR + overhead)


@pytest.mark.parametrize("kind", ["for", "while"])
def test_a_loop_begins_when_its_bound_is_known(kind: str) -> None:
    kernel = Kernel()
    tile = kernel.load(np.ones((1, 1), np.int32))
    load = kernel.call("register_load", dst=register(0), src=tile)
    bound: Any = register(0) if kind == "for" else 0
    with kernel.loop(bound, kind, register=1 if kind == "for" else 0):
        body = kernel.call("memset", dst=kernel.sbuf(128, 8), value=0.0, engine=Engine.vector)
    timing = Timing(kernel.program(), trips={0: 2})
    line = timing.timeline
    assert line.start[first(line, body)] == line.ready[first(line, load)]
    assert len(np.flatnonzero(line.instruction == body)) == 2


def test_the_trips_of_a_while_loop_are_those_that_are_given() -> None:
    kernel = Kernel()
    kernel.call("register_alloc", x=1, dst=register(0))
    with kernel.loop(0, "while", register=0):
        long_copy(kernel)
    program = kernel.program()
    once, often = Timing(program), Timing(program, trips={0: 40})
    assert once.timeline.assumed == ("the loop at instruction 1 is taken to run once",)
    assert often.timeline.assumed == ()
    assert often.total_ns == pytest.approx(40 * often.held_ns[1], rel=0.03)


def test_cores_have_registers_of_their_own() -> None:
    kernel = Kernel(lnc=2)
    tile = kernel.sbuf(1, 1, dtype="int32")
    kernel.copy(tile, kernel.argument(np.ones((1, 1), np.int32), shared=True))
    kernel.call("register_load", dst=register(0), src=tile)
    kernel.switch_core()
    mine = kernel.call("register_alloc", x=7, dst=register(0))
    moved = kernel.call("register_move", dst=register(1), src=register(0))
    line = Timing(kernel.program()).timeline
    assert line.start[first(line, mine)] == 0.0
    assert line.start[first(line, moved)] < TRN2.number("dma.fixed_latency_ns")


def exchanging(early: int, late: int, rounds: int = 1) -> tuple[Timeline, list[list[int]]]:
    """Two cores that swap tiles after some work; the instructions by which they meet, core by core."""
    kernel, meetings = Kernel(lnc=2), []
    for core, work in enumerate((early, late)):
        tiles = [kernel.sbuf(128, 2048) for _ in range(2)]
        met = []
        for _ in range(rounds):
            for _ in range(work):
                long_copy(kernel, tiles[0])
            met.append(
                kernel.call(
                    "sendrecv",
                    src=tiles[0],
                    dst=tiles[1],
                    send_to_rank=1 - core,
                    recv_from_rank=1 - core,
                    pipe_id=0,
                    dma_engine="dma",
                )
            )
        meetings.append(met)
        if core == 0:
            kernel.switch_core()
    return Timing(kernel.program()).timeline, meetings


@pytest.mark.parametrize(("early", "late"), [(1, 6), (6, 1)])
def test_cores_that_meet_wait_for_the_later_one(early: int, late: int) -> None:
    line, meetings = exchanging(early, late, rounds=3)
    for one, other in zip(*meetings, strict=True):
        assert line.start[first(line, one)] == line.start[first(line, other)]
    waiting = meetings[0 if early < late else 1]
    working = meetings[1 if early < late else 0]
    assert all(line.wait[first(line, met)] == int(Wait.peer) for met in waiting)
    assert not any(line.wait[first(line, met)] == int(Wait.peer) for met in working)
    # the idle core's blocker is what held up the busy one
    assert line.instruction[line.blocker[first(line, waiting[0])]] == working[0] - 1


def test_a_barrier_holds_up_both_and_a_core_that_meets_nobody_goes_on() -> None:
    kernel = Kernel(lnc=2)
    shared = kernel.hbm(128, 2048, shared=True)
    kernel.call("core_barrier", data=shared, cores=(0, 1))
    after = long_copy(kernel)
    kernel.switch_core()
    for _ in range(4):
        before = long_copy(kernel)
    tile = kernel.sbuf(128, 2048)
    kernel.call("memset", dst=tile, value=0.0)
    stored = kernel.copy(shared, tile)
    kernel.call("core_barrier", data=shared, cores=(0, 1))
    kernel.call("core_barrier", data=shared, cores=(0, 1))
    line = Timing(kernel.program()).timeline
    barriers = [at for at, name in enumerate(_names(kernel)) if name == "core_barrier"]
    starts = [float(line.start[first(line, at)]) for at in barriers]
    assert starts[0] == starts[1] == float(line.ready[last(line, stored)])
    assert starts[2] >= starts[1] and line.start[first(line, after)] < line.stop[first(line, before)]


def _names(kernel: Kernel) -> list[str]:
    return [instruction.opcode for instruction in kernel.program()]


@pytest.mark.parametrize(("name", "hops"), [("all_gather", 3), ("all_reduce", 6), ("all_to_all", 3)])
def test_collectives_take_a_hop_for_each_step_of_the_ring(name: str, hops: int) -> None:
    kernel = Kernel()
    size = 4 if name == "all_gather" else 1
    source, whole = kernel.hbm(128, 64), kernel.hbm(128 * size, 64)
    given: dict[str, Any] = {"replica_group": ((0, 1, 2, 3),)}
    given |= {"op": "add"} if name == "all_reduce" else {"collective_dim": 0}
    met = kernel.call(name, srcs0=source, dsts0=whole, **given)
    after = kernel.call("dma_copy", dst=kernel.sbuf(128, 64), src=whole[0:128])
    timing = Timing(kernel.program())
    line = timing.timeline
    assert line.ready[last(line, met)] - line.stop[last(line, met)] == pytest.approx(hops * HOP)
    assert line.start[first(line, after)] >= line.ready[last(line, met)]
    assert any("a step of its ring takes 1.5 us (1 to 2 are documented)" in text for text in line.assumed)


def test_a_permute_is_one_hop_and_several_tensors_move_all_their_bytes() -> None:
    kernel = Kernel()
    one = {"srcs0": kernel.hbm(128, 1024), "dsts0": kernel.hbm(128, 1024)}
    two = {**one, "srcs1": kernel.hbm(128, 1024), "dsts1": kernel.hbm(128, 1024)}
    group = {"replica_group": ((0, 1, 2, 3),), "counts": ((1,), (1,))}
    first_ = kernel.call("collective_permute_implicit", **one, **group)
    second = kernel.call("collective_permute_implicit", **two, **group)
    costs = Timing(kernel.program()).plan.costs
    assert costs.latency[first_] == HOP == costs.latency[second]
    assert costs.transfer[second] == pytest.approx(2 * costs.transfer[first_])


# Lifetimes around loops


def spans(kernel: Kernel) -> tuple[list[int], list[int]]:
    program = kernel.program()
    used = uses(program, storage(program, ROWS))
    found = lifetimes(program, used, used.buffer, program.columns.buffers)
    return found.first.tolist(), found.last.tolist()


def test_what_a_loop_carries_lives_through_it() -> None:
    kernel = Kernel()
    before, local, parts, carried, out = (kernel.sbuf(128, 8) for _ in range(5))
    kernel.call("memset", dst=before, value=0.0)  # 0
    with kernel.loop(4):
        kernel.call("tensor_copy", dst=local, src=before)  # 1: before is used in the loop, local is whole
        kernel.call("tensor_copy", dst=kernel.sbuf(128, 8), src=carried)  # 2: read before it is written
        kernel.call(
            "tensor_copy", dst=kernel.indexed(parts[:, 0:1], "register", 9, axis=1), src=local[:, 0:1]
        )
        kernel.call("tensor_copy", dst=carried, src=local)  # 4
        kernel.call("memset", dst=kernel.sbuf(128, 8), value=0.0)  # 5
    kernel.call("tensor_copy", dst=out, src=parts)  # 6: written part by part in the loop
    first_, last_ = spans(kernel)
    at = [view.buffer.id for view in (before, local, parts, carried, out)]
    assert [first_[b] for b in at] == [0, 1, 1, 1, 6]
    assert [last_[b] for b in at] == [5, 4, 6, 5, 6]


def test_a_sum_in_psum_that_begins_in_a_loop_is_not_carried_out_of_its_pass() -> None:
    kernel = Kernel()
    weights, bank = kernel.sbuf(128, 128), kernel.psum(128, 128)
    kernel.call("memset", dst=weights, value=0.0)
    with kernel.loop(4):
        kernel.call("memset", dst=kernel.sbuf(128, 8), value=0.0)
        kernel.matmul(bank, weights, weights)
        kernel.call("tensor_copy", dst=kernel.sbuf(128, 128), src=bank)
        kernel.call("memset", dst=kernel.sbuf(128, 8), value=0.0)
    first_, last_ = spans(kernel)
    assert (first_[bank.buffer.id], last_[bank.buffer.id]) == (2, 3)


def test_a_carried_buffer_is_not_given_away_inside_its_loop() -> None:
    def taken(carried: bool) -> set[int]:
        kernel = Kernel()
        columns = TRN2.sbuf_usable_bytes // 4 // 4  # four tiles fit
        kept = kernel.sbuf(128, columns)
        kernel.call("memset", dst=kept, value=0.0)
        if carried:
            with kernel.loop(3):
                kernel.call("tensor_copy", dst=kernel.sbuf(128, 1), src=kept[:, 0:1])
                for _ in range(4):
                    kernel.call("memset", dst=kernel.sbuf(128, columns), value=0.0)
        else:
            kernel.call("tensor_copy", dst=kernel.sbuf(128, 1), src=kept[:, 0:1])
            for _ in range(4):
                kernel.call("memset", dst=kernel.sbuf(128, columns), value=0.0)
        program = kernel.program()
        arrivals, _ = reuse(program, storage(program, ROWS), TRN2)
        assert all(isinstance(index, int) for index in arrivals)
        return {place for found in arrivals.values() for _, before in found for place in before} & {
            kept.buffer.id
        }

    assert taken(carried=False) and not taken(carried=True)


def test_time_is_linear_in_meetings() -> None:
    """Each meeting is looked at twice, whatever the number of the others: slices grow with the trace alone."""
    few, many = exchanging(1, 2, rounds=4)[0], exchanging(1, 2, rounds=40)[0]
    assert len(many) == 10 * len(few) and math.isclose(many.total_ns / few.total_ns, 10, rel_tol=0.1)

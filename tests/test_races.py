"""Races of two cores: programs by hand with their lines, and against every order that small programs may run in."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest
from execute_kit import Kernel, View, counted
from hypothesis import given, settings
from hypothesis import strategies as st

from nkireview import hardware
from nkireview.checks.meetings import Mismatch
from nkireview.checks.overlaps import shared
from nkireview.checks.races import READ_WRITE, WRITE_READ, WRITE_WRITE, Races, races
from nkireview.checks.survey import survey
from nkireview.isa.enums import Engine
from nkireview.isa.table import ROWS
from nkireview.program.access import Access
from nkireview.program.program import Program
from nkireview.program.scope import Scope
from nkireview.program.storage import storage
from nkireview.rules.facts import Difference, Facts, Orders, WorkloadFacts
from nkireview.rules.finding import Finding, Severity
from nkireview.rules.registry import judge
from nkireview.schedule.uses import uses

ROWS_EACH, COLUMNS = 64, 8
SEMAPHORES = (Engine.gpsimd, Engine.vector)


def looked(program: Program) -> Races:
    stored = storage(program, ROWS)
    return races(Scope.of(program, ROWS), stored, uses(program, stored))


@dataclass
class Cores:
    """Two shared tensors of 128 rows, and the steps of each core."""

    kernel: Kernel

    def __post_init__(self) -> None:
        self.a = self.kernel.hbm(128, COLUMNS, shared=True, name="a")
        self.b = self.kernel.hbm(128, COLUMNS, shared=True, name="b")

    def tile(self, rows: int = 128, columns: int = COLUMNS) -> View:
        return self.kernel.sbuf(rows, columns)

    def write(self, view: View) -> int:
        """The line of a store from a fresh tile."""
        tile = self.tile(*view.shape)
        self.kernel.call("memset", dst=tile, value=1.0)
        return self.line(self.kernel.copy, view, tile)

    def read(self, view: View) -> int:
        return self.line(self.kernel.copy, self.tile(*view.shape), view)

    def barrier(self, data: View, **given: Any) -> int:
        return self.line(self.kernel.call, "core_barrier", data=data, cores=(0, 1), **given)

    def line(self, call: Callable[..., int], *args: Any, **given: Any) -> int:
        call(*args, **given)
        return self.kernel.line

    def other_core(self) -> None:
        self.kernel.switch_core()


def made(*steps: Callable[[Cores], Any]) -> tuple[Program, list[Any]]:
    """A program of one step for each core, and what the steps returned."""
    cores = Cores(Kernel(lnc=2))
    returned = []
    for number, step in enumerate(steps):
        if number:
            cores.other_core()
        returned.append(step(cores))
    return cores.kernel.program(), returned


def lines(program: Program) -> list[tuple[str, str, str, int]]:
    """(line of the first core, line of the second, kind, elements) of each race."""
    found = looked(program)
    assert found.mismatched is None and found.undecided == 0
    columns = program.columns

    def at(instruction: int) -> str:
        return program.place_text(int(columns.place[instruction]))

    return [(at(r.first), at(r.second), r.kind, r.elements) for r in found.races]


def here(line: int) -> str:
    return f"kernel.py:{line}"


def test_a_read_of_what_the_other_core_wrote_without_a_barrier() -> None:
    program, (wrote, read) = made(lambda c: c.write(c.a), lambda c: c.read(c.a))
    assert lines(program) == [(here(wrote), here(read), WRITE_READ, 128 * COLUMNS)]


def test_one_core_overwrites_what_the_other_reads() -> None:
    program, (read, wrote) = made(lambda c: c.read(c.a[:32]), lambda c: c.write(c.a))
    assert lines(program) == [(here(read), here(wrote), READ_WRITE, 32 * COLUMNS)]


def test_both_cores_write_one_place() -> None:
    program, (one, other) = made(lambda c: c.write(c.a[:70]), lambda c: c.write(c.a[60:]))
    assert lines(program) == [(here(one), here(other), WRITE_WRITE, 10 * COLUMNS)]


def test_both_cores_read_one_place() -> None:
    program, _ = made(lambda c: c.read(c.a), lambda c: c.read(c.a))
    assert lines(program) == []


def test_a_barrier_on_the_tensor_orders_a_write_and_a_read() -> None:
    program, _ = made(lambda c: (c.write(c.a), c.barrier(c.a)), lambda c: (c.barrier(c.a), c.read(c.a)))
    assert lines(program) == []


def test_a_barrier_on_the_tensor_orders_a_read_and_a_later_write() -> None:
    program, _ = made(lambda c: (c.read(c.a), c.barrier(c.a)), lambda c: (c.barrier(c.a), c.write(c.a)))
    assert lines(program) == []


def test_a_barrier_on_another_tensor_does_not_wait_for_the_write() -> None:
    program, ((wrote, _), (_, read)) = made(
        lambda c: (c.write(c.a), c.barrier(c.b)), lambda c: (c.barrier(c.b), c.read(c.a))
    )
    assert lines(program) == [(here(wrote), here(read), WRITE_READ, 128 * COLUMNS)]


def test_uses_with_a_meeting_between_them_are_not_abreast() -> None:
    for before, after in ((0, 0), (1, 1), (1, 0)):
        program, _ = made(
            *(
                lambda c, first=first, use=use: (
                    (use(c), c.barrier(c.b)) if first else (c.barrier(c.b), use(c))
                )
                for first, use in ((before, lambda c: c.write(c.a)), (after, lambda c: c.read(c.a)))
            )
        )
        assert [race.abreast for race in looked(program).races] == [before == after]


def test_a_barrier_on_other_rows_does_not_wait_for_the_write() -> None:
    program, ((wrote, _), (_, read)) = made(
        lambda c: (c.write(c.a[:64]), c.barrier(c.a[64:])),
        lambda c: (c.barrier(c.a[64:]), c.read(c.a[:64])),
    )
    assert lines(program) == [(here(wrote), here(read), WRITE_READ, 64 * COLUMNS)]


def test_a_barrier_before_the_write_comes_too_early() -> None:
    program, ((_, wrote), (_, read)) = made(
        lambda c: (c.barrier(c.a), c.write(c.a)), lambda c: (c.barrier(c.a), c.read(c.a))
    )
    assert lines(program) == [(here(wrote), here(read), WRITE_READ, 128 * COLUMNS)]


def test_a_read_before_the_barrier_comes_too_early() -> None:
    program, ((wrote, _), (read, _)) = made(
        lambda c: (c.write(c.a), c.barrier(c.a)), lambda c: (c.read(c.a), c.barrier(c.a))
    )
    assert lines(program) == [(here(wrote), here(read), WRITE_READ, 128 * COLUMNS)]


def test_a_barrier_of_one_core_alone_orders_nothing() -> None:
    def first(cores: Cores) -> int:
        wrote = cores.write(cores.a)
        cores.kernel.call("core_barrier", data=cores.a, cores=(0,))
        return wrote

    program, (wrote, read) = made(first, lambda c: c.read(c.a))
    assert lines(program) == [(here(wrote), here(read), WRITE_READ, 128 * COLUMNS)]


def test_what_was_written_before_the_barrier_may_be_overwritten_after_the_next_one() -> None:
    def core(cores: Cores) -> None:
        mine, theirs = cores.a[:64], cores.a[64:]
        for part, other in ((mine, theirs), (theirs, mine)):
            if cores.kernel.core:
                part, other = other, part
            cores.write(part)
            cores.barrier(cores.a)
            cores.read(other)
            cores.barrier(cores.a)

    assert lines(made(core, core)[0]) == []


def test_the_second_barrier_left_out() -> None:
    found: dict[int, list[int]] = {0: [], 1: []}

    def core(cores: Cores) -> None:
        halves = [cores.a[:64], cores.a[64:]]
        number = cores.kernel.core
        found[number] += [cores.write(halves[number]), cores.barrier(cores.a), cores.read(halves[1 - number])]
        found[number] += [cores.write(halves[number])]

    program, _ = made(core, core)
    (_, _, read, again), (_, _, read1, again1) = found[0], found[1]
    assert lines(program) == [
        (here(read), here(again1), READ_WRITE, 64 * COLUMNS),
        (here(again), here(read1), WRITE_READ, 64 * COLUMNS),
    ]


@pytest.mark.parametrize(
    "parts",
    [
        (lambda a: a[:64], lambda a: a[64:]),
        (lambda a: a[:, :4], lambda a: a[:, 4:]),
        (lambda a: a[::2], lambda a: a[1::2]),
        (lambda a: a[:, ::2], lambda a: a[:, 1::2]),
        (lambda a: a[::2, 2:4], lambda a: a[:, 4:6]),
        (lambda a: a.reshape(32, 4, 8)[:, 0:2], lambda a: a.reshape(32, 4, 8)[:, 2:4]),
    ],
    ids=["rows", "columns", "every other row", "every other column", "both", "groups of rows"],
)
def test_parts_without_a_common_element_are_no_race(parts: Any) -> None:
    program, _ = made(*(lambda c, part=part: c.kernel.copy(part(c.a), part(c.b)) for part in parts))
    assert lines(program) == []


def test_every_other_row_and_every_third_share_every_sixth() -> None:
    program, (one, other) = made(lambda c: c.write(c.a[::2]), lambda c: c.write(c.a[1::3]))
    shared_rows = len(set(range(0, 128, 2)) & set(range(1, 128, 3)))
    assert lines(program) == [(here(one), here(other), WRITE_WRITE, shared_rows * COLUMNS)]


def test_another_dtype_of_the_same_bytes() -> None:
    program, (one, other) = made(
        lambda c: c.write(c.a[:1]), lambda c: c.write(c.a[:2].as_dtype("bfloat16", 32)[10:20].reshape(1, 10))
    )
    # 16-bit elements 10 to 19 are bytes 20 to 39: 32-bit elements 5 to 7 of the first row
    assert lines(program) == [(here(one), here(other), WRITE_WRITE, 3)]


def exchange(cores: Cores, sent: View, to: int, pipe: int = 0) -> View:
    received = cores.tile(*sent.shape)
    cores.kernel.call("sendrecv", src=sent, dst=received, send_to_rank=to, recv_from_rank=to, pipe_id=pipe)
    return received


def test_an_exchange_carries_the_order() -> None:
    def first(cores: Cores) -> None:
        tile = cores.tile()
        cores.read(cores.a)
        cores.kernel.copy(tile, cores.a)
        exchange(cores, tile, 1)

    def second(cores: Cores) -> None:
        token = cores.tile()
        cores.kernel.call("memset", dst=token, value=0.0)
        cores.kernel.copy(cores.a, exchange(cores, token, 0))

    program, _ = made(first, second)
    assert [(kind, count) for _, _, kind, count in lines(program)] == [(READ_WRITE, 128 * COLUMNS)]
    # the read into the tile that is sent has ended before the exchange, the other one need not have
    found = looked(program).races
    assert len(found) == 1 and found[0].first == 0 and found[0].count == 1


def test_a_store_is_not_waited_for_by_what_follows_it_on_its_queue() -> None:
    def first(cores: Cores) -> int:
        wrote = cores.write(cores.a)
        cores.barrier(cores.b, engine=Engine.sync)
        return wrote

    program, (wrote, (_, read)) = made(first, lambda c: (c.barrier(c.b, engine=Engine.sync), c.read(c.a)))
    assert lines(program) == [(here(wrote), here(read), WRITE_READ, 128 * COLUMNS)]


def through_a_tile(engine: Engine, barrier: Engine) -> tuple[Program, list[Any]]:
    """Core 0 reads `a`, works on the tile on an engine, and meets core 1, which then overwrites `a`."""

    def first(cores: Cores) -> int:
        tile, result = cores.tile(), cores.tile()
        read = cores.line(cores.kernel.copy, tile, cores.a)
        cores.kernel.call("tensor_copy", dst=result, src=tile, engine=engine)
        cores.barrier(cores.b, engine=barrier)
        return read

    return made(first, lambda c: (c.barrier(c.b, engine=barrier), c.write(c.a))[1])


def test_the_queue_of_the_barrier_has_waited_for_the_read() -> None:
    def second(cores: Cores) -> None:
        tile = cores.tile()
        cores.barrier(cores.b, engine=Engine.vector)
        cores.kernel.call("memset", dst=tile, value=0.0, engine=Engine.vector)
        cores.kernel.copy(cores.a, tile)

    def first(cores: Cores) -> None:
        tile, result = cores.tile(), cores.tile()
        cores.kernel.copy(tile, cores.a)
        cores.kernel.call("tensor_copy", dst=result, src=tile, engine=Engine.vector)
        cores.barrier(cores.b, engine=Engine.vector)

    assert lines(made(first, second)[0]) == []


def test_the_read_is_waited_for_by_another_engine_than_that_of_the_barrier() -> None:
    program, (read, wrote) = through_a_tile(Engine.scalar, Engine.vector)
    assert lines(program) == [(here(read), here(wrote), READ_WRITE, 128 * COLUMNS)]


def test_a_dependence_that_the_kernel_names() -> None:
    cores = Cores(Kernel(lnc=2))
    builder = cores.kernel.builder
    cores.write(cores.a)
    cores.barrier(cores.b)
    builder.depend(len(builder) - 1, (len(builder) - 2,))
    cores.other_core()
    cores.barrier(cores.b)
    cores.read(cores.a)
    builder.depend(len(builder) - 1, (len(builder) - 2,))
    assert lines(cores.kernel.program()) == []


def test_an_accumulating_store_of_both_cores_is_a_race() -> None:
    def core(cores: Cores) -> None:
        tile = cores.tile()
        cores.kernel.call("memset", dst=tile, value=1.0)
        cores.kernel.call("dma_compute", dst=cores.a, srcs=(cores.a,), reduce_op="add")

    program, _ = made(core, core)
    assert {kind for _, _, kind, _ in lines(program)} >= {WRITE_WRITE}


def test_lines_in_a_host_loop_are_one_race() -> None:
    cores = Cores(Kernel(lnc=2))
    tiles = [cores.tile(16) for _ in range(2)]
    for tile in tiles:
        place = cores.kernel.place()
        cores.kernel.place = partial(int, place)  # type: ignore[method-assign]
        for row in range(0, 128, 16):
            cores.kernel.copy(cores.a[row : row + 16], tile)
        del cores.kernel.place
        if tile is tiles[0]:
            cores.other_core()
    (race,) = looked(cores.kernel.program()).races
    assert (race.kind, race.elements, race.count, race.cores) == (WRITE_WRITE, 16 * COLUMNS, 8, (0, 1))


def test_an_address_from_the_device_is_not_decided() -> None:
    def first(cores: Cores) -> None:
        rows = cores.kernel.indexed(cores.a[:16], "register", 0)
        cores.kernel.call("register_move", dst=("register", 0), imm=3)
        cores.write(rows)

    found = looked(made(first, lambda c: c.read(c.a))[0])
    assert found.races == () and found.undecided == 1


def doubled(cores: Cores, number: int, factor: float = 2.0) -> None:
    """Rows of `b`, times a factor, into rows of `a`, a quarter at a time."""
    for row in range(0, 128, 32):
        tile = cores.tile(32)
        cores.kernel.copy(tile, cores.b[row : row + 32])
        cores.kernel.call(
            "tensor_scalar", dst=tile, data=tile, op0="multiply", operand0=factor + (row == 64 * number)
        )
        cores.kernel.copy(cores.a[row : row + 32], tile)


def test_cores_that_write_the_same_values_are_told_apart() -> None:
    found = looked(made(lambda c: doubled(c, 5), lambda c: doubled(c, 5))[0]).races
    assert [(race.kind, race.same) for race in found] == [(WRITE_WRITE, True)] * 4
    # the third quarter has another factor on the second core
    found = looked(made(lambda c: doubled(c, 5), lambda c: doubled(c, 1))[0]).races
    assert [race.same for race in found] == [True, True, False, True]


def test_the_same_values_in_views_that_overlap_in_part_are_not_known_to_be_the_same() -> None:
    def core(first: int) -> Callable[[Cores], None]:
        def step(cores: Cores) -> None:
            tile = cores.tile(64)
            cores.kernel.call("memset", dst=tile, value=1.0)
            cores.kernel.copy(cores.a[first : first + 64], tile)

        return step

    assert [race.same for race in looked(made(core(0), core(32))[0]).races] == [False]
    assert [race.same for race in looked(made(core(32), core(32))[0]).races] == [True]


def test_values_are_followed_through_the_memory_of_each_core() -> None:
    def core(value: float) -> Callable[[Cores], None]:
        def step(cores: Cores) -> None:
            own, tile = cores.kernel.hbm(128, COLUMNS), cores.tile()
            cores.kernel.call("memset", dst=tile, value=value)
            cores.kernel.copy(own, tile)
            cores.kernel.copy(tile, own)
            cores.kernel.copy(cores.a, tile)

        return step

    assert [race.same for race in looked(made(core(1.0), core(1.0))[0]).races] == [True]
    assert [race.same for race in looked(made(core(1.0), core(2.0))[0]).races] == [False]


def test_values_from_private_memory_or_an_exchange_are_not_known_to_be_the_same() -> None:
    def private(cores: Cores) -> None:
        tile = cores.tile()
        cores.kernel.copy(tile, cores.kernel.hbm(128, COLUMNS))
        cores.kernel.copy(cores.a, tile)

    def exchanged(cores: Cores) -> None:
        tile = cores.tile()
        cores.kernel.call("memset", dst=tile, value=1.0)
        cores.kernel.copy(cores.a, exchange(cores, tile, 1 - cores.kernel.core))

    for step in (private, exchanged):
        assert [race.same for race in looked(made(step, step)[0]).races] == [False]


def test_what_is_private_to_a_core_is_no_race() -> None:
    kernel = Kernel(lnc=2)
    for core in range(2):
        private, tile = kernel.hbm(128, 8), kernel.sbuf(128, 8)
        kernel.copy(tile, private)
        kernel.copy(private, tile)
        if not core:
            kernel.switch_core()
    assert looked(kernel.program()) == Races()


def met(*steps: Callable[[Cores], Any]) -> tuple[Races, list[Any]]:
    program, returned = made(*steps)
    return looked(program), returned


def test_one_core_never_comes_to_the_barrier() -> None:
    found, (line, _) = met(lambda c: c.barrier(c.a), lambda c: c.read(c.a))
    assert line and found == Races(mismatched=Mismatch(0, -1, (0, 1), (1, 0), (1, 0)))


def test_one_core_comes_to_one_barrier_more() -> None:
    found, _ = met(lambda c: c.barrier(c.a), lambda c: (c.barrier(c.a), c.read(c.a), c.barrier(c.a)))
    assert found.mismatched is not None
    assert found.mismatched.cores == (1, 0) and found.mismatched.totals == (2, 1)


def test_a_barrier_and_an_exchange_in_another_order() -> None:
    def first(cores: Cores) -> None:
        cores.barrier(cores.a)
        exchange(cores, cores.tile(), 1)

    def second(cores: Cores) -> None:
        exchange(cores, cores.tile(), 0)
        cores.barrier(cores.a)

    found, _ = met(first, second)
    assert found.mismatched is not None and found.races == ()


def test_pipes_in_another_order_are_no_mismatch() -> None:
    def core(order: tuple[int, int]) -> Callable[[Cores], None]:
        def step(cores: Cores) -> None:
            for pipe in order:
                exchange(cores, cores.tile(), 1 - cores.kernel.core, pipe)

        return step

    assert met(core((0, 1)), core((1, 0)))[0].mismatched is None
    assert met(core((0, 1)), core((1, 1)))[0].mismatched is not None


def looped(trips: int | tuple[str, int], unrolled: int = 0) -> Callable[[Cores], None]:
    def step(cores: Cores) -> None:
        if unrolled:
            for _ in range(unrolled):
                cores.barrier(cores.a)
            return
        with cores.kernel.loop(trips):
            cores.barrier(cores.a)

    return step


def test_loops_of_barriers_pair_by_their_trips() -> None:
    assert met(looped(4), looped(4))[0] == Races()
    found = met(looped(4), looped(3))[0].mismatched
    assert found is not None and (found.cores, found.times, found.totals) == ((0, 1), (4, 0), (4, 3))
    assert met(looped(4), looped(0, unrolled=4))[0].mismatched is None
    assert met(looped(("register", 7)), looped(4))[0].mismatched is None


def test_cores_that_meet_in_loops_that_differ_are_not_decided() -> None:
    def second(cores: Cores) -> None:
        looped(0, unrolled=4)(cores)
        cores.read(cores.a)

    found, _ = met(lambda c: (looped(4)(c), c.write(c.a)), second)
    assert found == Races(undecided=1)


def test_barriers_in_the_loops_of_both_cores_order_their_bodies() -> None:
    def first(cores: Cores) -> None:
        with cores.kernel.loop(4):
            cores.write(cores.a)
            cores.barrier(cores.a)

    def second(cores: Cores) -> None:
        with cores.kernel.loop(4):
            cores.barrier(cores.a)
            cores.read(cores.a)

    assert met(first, second)[0] == Races()


# small programs against their happens-before relation, made of explicit edges and closed

TENSORS = 2
STEPS = st.one_of(
    st.tuples(
        st.sampled_from(["load", "store"]), st.integers(0, TENSORS - 1), st.integers(0, 2), st.integers(0, 1)
    ),
    st.tuples(
        st.just("compute"), st.sampled_from([Engine.vector, Engine.scalar, Engine.gpsimd]), st.integers(0, 1)
    ),
    st.tuples(st.just("barrier"), st.integers(0, 2)),
)
SLICES = (slice(0, 8), slice(0, 4), slice(4, 8))


@dataclass
class Node:
    """An instruction of the model: its core, queue, whether it is a DMA, what it touches."""

    core: int
    queue: str
    dma: bool
    reads: frozenset[Any]
    writes: frozenset[Any]
    meets: bool = False


@settings(max_examples=400, deadline=None)
@given(
    st.lists(STEPS, max_size=8),
    st.lists(STEPS, max_size=8),
    st.lists(st.sampled_from(SEMAPHORES), min_size=8, max_size=8),
    st.lists(st.integers(0, TENSORS - 1), min_size=8, max_size=8),
)
def test_races_are_those_of_the_closed_relation(
    one: list[Any], other: list[Any], engines: list[Engine], on: list[int]
) -> None:
    barriers = [sum(step[0] == "barrier" for step in steps) for steps in (one, other)]
    kernel = Kernel(lnc=2)
    tensors = [kernel.hbm(8, 2, shared=True) for _ in range(TENSORS)]
    nodes: list[Node] = []
    for core, steps in enumerate((one, other)):
        tiles = [{size: kernel.sbuf(size, 2) for size in (4, 8)} for _ in range(2)]
        left = min(barriers)
        at = 0

        def cells(tensor: int, part: int) -> frozenset[Any]:
            return frozenset(("hbm", tensor, row) for row in range(8)[SLICES[part]])

        def tile(number: int, size: int, core: int = core) -> frozenset[Any]:
            return frozenset({("sbuf", core, number, size)})

        for step in steps:
            if step[0] == "barrier":
                if at == left:
                    continue
                (_, part), tensor = step, on[at]
                data = tensors[tensor][SLICES[part]]
                kernel.call("core_barrier", engine=engines[at], data=data, cores=(0, 1))
                held = cells(tensor, part)
                nodes.append(Node(core, engines[at].name, False, held, held, True))
                at += 1
            elif step[0] == "compute":
                _, engine, number = step
                kernel.call("tensor_copy", dst=tiles[1 - number][8], src=tiles[number][8], engine=engine)
                nodes.append(Node(core, engine.name, False, tile(number, 8), tile(1 - number, 8)))
            else:
                _, tensor, part, number = step
                view = tensors[tensor][SLICES[part]]
                size = 8 if part == 0 else 4
                mine = tiles[number][size]
                held, chip = cells(tensor, part), tile(number, size)
                if step[0] == "load":
                    kernel.copy(mine, view)
                    nodes.append(Node(core, "sync", True, held, chip))
                else:
                    kernel.copy(view, mine)
                    nodes.append(Node(core, "sync", True, chip, held))
        if core == 0:
            kernel.switch_core()
    found = looked(kernel.program())
    assert found.mismatched is None and found.undecided == 0
    assert {(race.first, race.second, race.kind) for race in found.races} == expected(nodes)


def expected(nodes: list[Node]) -> set[tuple[int, int, str]]:
    """The races by Floyd and Warshall over the start (2 i) and the end (2 i + 1) of every instruction."""
    before = np.zeros((2 * len(nodes), 2 * len(nodes)), bool)
    meetings: dict[int, list[int]] = {0: [], 1: []}
    for i, node in enumerate(nodes):
        before[2 * i, 2 * i + 1] = True
        if node.meets:
            meetings[node.core].append(i)
        for j in range(i + 1, len(nodes)):
            later = nodes[j]
            if later.core != node.core:
                continue
            if later.queue == node.queue:
                before[2 * i + (not node.dma), 2 * j] = True
            if node.writes & (later.reads | later.writes) or node.reads & later.writes:
                before[2 * i + 1, 2 * j] = True
    for i, j in zip(meetings[0], meetings[1], strict=True):
        # whoever meets starts when both have come
        before[2 * i, 2 * j] = before[2 * j, 2 * i] = True
    for k in range(len(before)):
        before |= before[:, k, None] & before[None, k, :]
    found = set()
    for i, j in product(range(len(nodes)), repeat=2):
        one, other = nodes[i], nodes[j]
        if (one.core, other.core) != (0, 1) or one.meets or other.meets:
            continue
        if before[2 * i + 1, 2 * j] or before[2 * j + 1, 2 * i]:
            continue
        hbm = [
            {cell for cell in cells if cell[0] == "hbm"}
            for cells in (one.reads, one.writes, other.reads, other.writes)
        ]
        for kind, mine, theirs in ((READ_WRITE, 0, 3), (WRITE_READ, 1, 2), (WRITE_WRITE, 1, 3)):
            if hbm[mine] & hbm[theirs]:
                found.add((i, j, kind))
    return found


AXES = st.lists(st.tuples(st.sampled_from([-3, 0, 1, 2, 3, 4, 6, 8, 12, 16]), st.integers(0, 4)), max_size=3)


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 40), AXES, st.integers(0, 40), AXES, st.sampled_from(["float32", "bfloat16"]))
def test_shared_elements_are_those_of_both_sets(
    base: int, mine: list[Any], start: int, theirs: list[Any], dtype: str
) -> None:
    kernel = Kernel()
    kernel.sbuf(1, 1)
    views = [Access(0, "float32", base, tuple(mine)), Access(0, dtype, start, tuple(theirs))]
    numbers = [kernel.builder.access(view) for view in views]
    program = kernel.program()
    halves = []
    for view in views:
        each = 2 if view.dtype == "float32" else 1
        offsets = {
            view.base + sum(stride * at for (stride, _), at in zip(view.pattern, ats, strict=True))
            for ats in product(*(range(count) for _, count in view.pattern))
        }
        halves.append({offset * each + half for offset in offsets for half in range(each)})
    common = len(halves[0] & halves[1])
    assert shared(program, *numbers) == -(-common // 2)


def test_bounds_and_tables_are_taken_element_by_element() -> None:
    kernel = Kernel()
    tensor = kernel.argument(counted(128, 8))
    odd = kernel.table(tensor, np.arange(1, 1024, 2))
    even = kernel.table(tensor, np.arange(0, 1024, 2))
    numbers = [kernel.builder.access(view.access) for view in (odd, even, tensor[:1])]
    program = kernel.program()
    assert shared(program, numbers[0], numbers[1]) == 0
    assert shared(program, numbers[0], numbers[2]) == 4


def test_views_of_very_many_elements_are_not_counted_one_by_one() -> None:
    kernel = Kernel()
    kernel.sbuf(1, 1)
    axes = ((2**23, 2**20), (4, 2**20))
    numbers = [kernel.builder.access(Access(0, "float32", base, axes)) for base in (0, 1, 2**23 + 8)]
    program = kernel.program()
    assert shared(program, numbers[0], numbers[1]) == 0
    assert shared(program, numbers[0], numbers[2]) == (2**20 - 1) * (2**20 - 2)


# what is made of them


def told(program: Program, orders: Orders | None = None) -> list[Finding]:
    facts = WorkloadFacts(
        "w", program=program, survey=survey(program, ROWS, hardware.target("trn2")), orders=orders
    )
    found = judge(Facts("kernel", (facts,), target="trn2"))
    return [finding for finding in found if finding.code in ("NKR025", "NKR026", "NKR033")]


def unordered_read() -> Program:
    return made(lambda c: c.write(c.a), lambda c: c.read(c.a))[0]


def test_a_race_that_nothing_was_executed_for_is_major_and_says_what_is_missing() -> None:
    (found,) = told(unordered_read())
    assert (found.code, found.severity) == ("NKR025", Severity.major)
    assert found.places == (here(5), here(7))
    assert found.message == (
        "core 0 writes a (kernel.py:5) and core 1 reads it (kernel.py:7) in any order, 1,024 elements in common"
    )
    assert found.change == (
        "Let both cores call nisa.core_barrier on a between the write and the read (kernel.py:5 and kernel.py:7), "
        "whichever of them is to come first; where a later pass writes it again, also after the read."
    )


def test_a_race_that_changes_a_value_is_a_blocker_and_shows_both() -> None:
    other = Difference("out", (3, 1), 1.5, math.nan, "cores reversed", 7)
    (found,) = told(unordered_read(), Orders(("cores reversed",), (other,)))
    assert (found.code, found.severity) == ("NKR025", Severity.blocker)
    assert found.message.endswith(
        "; out[3, 1] is 1.5 in the order of the program and undefined with cores reversed"
    )
    within = replace(other, second=1.25, within=True)
    (found,) = told(unordered_read(), Orders(("cores reversed",), (within,)))
    assert found.severity is Severity.major and found.message.endswith("both within its limits")


def test_a_race_that_changes_nothing_is_benign() -> None:
    (found,) = told(unordered_read(), Orders(("cores reversed", "cores by turns")))
    assert found.severity is Severity.minor
    assert found.message.endswith("; benign on these inputs: the same bits in 3 orders of execution")


def test_an_execution_says_nothing_of_uses_with_a_meeting_between_them() -> None:
    program, _ = made(lambda c: (c.write(c.a), c.barrier(c.b)), lambda c: (c.barrier(c.b), c.read(c.a)))
    (found,) = told(program, Orders(("cores reversed", "cores by turns")))
    assert found.severity is Severity.major
    assert found.message.endswith("; the cores meet in between, but nothing there waits for either")


def test_the_same_values_of_both_cores_are_minor_without_an_execution() -> None:
    (found,) = told(made(lambda c: doubled(c, 5), lambda c: doubled(c, 5))[0])
    assert found.severity is Severity.minor and found.count == 4
    assert found.message.endswith("; so at 3 more pairs of lines; benign: they write the same values")


def test_barriers_that_one_core_does_not_reach_are_told_with_their_number() -> None:
    (found,) = told(made(lambda c: c.barrier(c.a), lambda c: c.read(c.a))[0])
    assert (found.code, found.severity) == ("NKR026", Severity.blocker)
    assert found.message == (
        "core 0 reaches core_barrier (kernel.py:3) once, core 1 never: they meet once and never"
    )


def test_barriers_on_other_tensors_are_told_with_both_lines() -> None:
    (found,) = told(
        made(lambda c: (c.barrier(c.a), c.barrier(c.b)), lambda c: (c.barrier(c.b), c.barrier(c.a)))[0]
    )
    assert found.message == (
        "core 0 comes to core_barrier (kernel.py:3) where core 1 comes to core_barrier (kernel.py:5)"
    )

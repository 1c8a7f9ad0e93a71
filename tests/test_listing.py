"""The order that a free compiler chooses: legal, within memory, and no other engine than the kernel allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from execute_kit import Kernel, View
from hypothesis import given, settings
from hypothesis import strategies as st

from nkireview.hardware import Figure, Hardware, target
from nkireview.isa.enums import Engine
from nkireview.isa.table import ROWS
from nkireview.program.program import Program
from nkireview.program.scope import Scope
from nkireview.program.storage import storage
from nkireview.schedule.compiled import choices, wanted
from nkireview.schedule.costs import SCALAR, VECTOR, costs
from nkireview.schedule.fusing import Fusions
from nkireview.schedule.listing import Choice, Listing, Pace, listing
from nkireview.schedule.orders import needed
from nkireview.schedule.parameters import Figures, Parameters
from nkireview.schedule.residence import Residence
from nkireview.schedule.reuse import Places
from nkireview.schedule.timing import Timing
from nkireview.schedule.uses import uses

TRN2 = target("trn2")
TILE = 256
"""Bytes a partition of a tile of [128, 64] in float32."""


def with_room(tiles: int) -> Hardware:
    """trn2 with SBUF for so many tiles."""
    path = "sbuf.usable_bytes_per_partition"
    figure = TRN2.entries[path]
    assert isinstance(figure, Figure)
    return replace(TRN2, entries={**TRN2.entries, path: replace(figure, value=tiles * TILE)})


@dataclass
class Chosen:
    """A listing with what it was made of."""

    program: Program
    found: Listing
    needs: list[set[int]]  # of each instruction
    touched: list[set[int]]  # tiles in SBUF
    order: list[int]


def chosen(
    program: Program,
    room: int = 800,
    window: int = 256,
    order: Sequence[int] | None = None,
    group: Sequence[int] | None = None,
    skipped: Sequence[int] = (),
    sources: Sequence[int] = (),
) -> Chosen:
    """Listed with nothing fused but `group`, and without `skipped`, for which `sources` stand in."""
    scope, held = Scope.of(program), storage(program, ROWS)
    count = len(program)
    priced, needs = costs(scope, Figures(TRN2), Parameters()), needed(program, held)
    used, places = uses(program, held), Places.of(program, held)
    dropped, source = np.zeros(count, bool), np.full(count, -1, np.int64)
    dropped[list(skipped)] = True
    source[list(skipped)] = list(sources)
    fused = Fusions(
        np.zeros(count, bool),
        np.full(count, -1, np.int64),
        {},
        np.full(count, -1, np.int64) if group is None else np.array(group, np.int64),
        np.zeros(count, bool),
    )
    preferred = np.arange(count) if order is None else np.array(order, np.int64)
    found = listing(
        priced,
        needs,
        places,
        used,
        Residence(dropped, source, ()),
        with_room(room),
        choices(scope, priced, Parameters()),
        Pace(TRN2.number("dma.fixed_latency_ns"), 16),
        window,
        fused,
        preferred,
    )
    sbuf = [
        {at for at in each if places.memory[at] >= 0 and places.size[at] == TILE} for each in by(used, count)
    ]
    stands = {int(at): int(source[at]) for at in np.flatnonzero(dropped)}
    follow = [{stands.get(int(each), int(each)) for each in needs.of(at)} - {-1} for at in range(count)]
    return Chosen(program, found, follow, sbuf, preferred.tolist())


def by(used: Any, count: int) -> list[set[int]]:
    places: list[set[int]] = [set() for _ in range(count)]
    for at, place in zip(used.instruction.tolist(), used.place.tolist(), strict=True):
        places[at].add(place)
    return places


OPS = st.lists(
    st.tuples(
        st.sampled_from(["load", "load", "free", "vector", "gpsimd", "store", "exp"]),
        st.integers(0, 6),
        st.integers(0, 6),
    ),
    min_size=1,
    max_size=30,
)


def built(ops: Sequence[tuple[str, int, int]]) -> Program:
    """Seven tiles that are written and read in any way."""
    kernel = Kernel(nki="0.1")
    tiles = [kernel.sbuf(128, 64) for _ in range(7)]
    x, out = kernel.argument(np.zeros((128, 64), np.float32)), kernel.hbm(128, 64)
    for what, one, two in ops:
        if what == "load":
            kernel.copy(tiles[one], x)
        elif what == "store":
            kernel.copy(out, tiles[one])
        elif what == "exp":
            kernel.call("activation", dst=tiles[one], data=tiles[two], op="exp")
        else:
            engine = {"free": Engine.unknown, "vector": Engine.vector, "gpsimd": Engine.gpsimd}[what]
            kernel.call(
                "tensor_scalar", engine, dst=tiles[one], data=tiles[two], op0="multiply", operand0=2.0
            )
    return kernel.program()


def legal(made: Chosen, skipped: Sequence[int] = ()) -> None:
    """Everything runs once, and after all that it needs."""
    order = list(made.found.order)
    assert sorted(order) == [at for at in range(len(made.program)) if at not in skipped]
    position = {at: number for number, at in enumerate(order)}
    for at in order:
        assert all(position[producer] < position[at] for producer in made.needs[at])


def within(made: Chosen, room: int) -> None:
    """Replay: tiles take room when they are first used, and give it back after their last use, when another needs it.

    Where there is not enough, no instruction that could run and comes before would have had enough either.
    """
    order = list(made.found.order)
    users = {place: sum(place in each for each in made.touched) for each in made.touched for place in each}
    rank = {at: number for number, at in enumerate(made.order)}
    left, held, done = room, set[int](), set[int]()
    ended: set[int] = set()
    for at in order:
        fresh = made.touched[at] - held
        gave = [place for _, before in made.found.arrivals.get(at, ()) for place in before]
        assert set(gave) <= ended, "what gives way is no longer used"
        if gave:
            assert {place for place, _ in made.found.arrivals[at]} <= fresh
        ended -= set(gave)
        left += len(gave) - len(fresh)
        if left < 0 and fresh:
            # all room that there is was asked for
            assert not ended
            for other in made.order[: rank[at]]:
                ready = other in order and other not in done and made.needs[other] <= done
                assert not ready or len(made.touched[other] - held) > left + len(fresh)
        held |= fresh
        done.add(at)
        for place in made.touched[at]:
            users[place] -= 1
            if not users[place]:
                ended.add(place)


@given(OPS, st.integers(1, 7), st.sampled_from([1, 2, 5, 256]))
@settings(max_examples=150, deadline=None)
def test_any_order_is_legal_and_fits(ops: list[tuple[str, int, int]], room: int, window: int) -> None:
    made = chosen(built(ops), room, window)
    legal(made)
    within(made, room)


@given(OPS, st.sampled_from([1, 2, 3, 5]))
@settings(max_examples=80, deadline=None)
def test_nothing_runs_from_beyond_the_window(ops: list[tuple[str, int, int]], window: int) -> None:
    """When one begins, it is fewer than `window` instructions after the oldest that has not begun."""
    made = chosen(built(ops), window=window)
    left = sorted(range(len(made.program)))
    for at in made.found.order:
        assert at < left[0] + window
        left.remove(at)
    if window == 1:
        assert list(made.found.order) == sorted(made.found.order)


@given(OPS)
@settings(max_examples=80, deadline=None)
def test_another_engine_only_where_the_kernel_names_none(ops: list[tuple[str, int, int]]) -> None:
    made = chosen(built(ops))
    for at in np.flatnonzero(made.found.moved).tolist():
        instruction = made.program.instruction(at)
        assert made.program.opcodes[made.program.columns.opcode[at]].name == "tensor_scalar"
        assert instruction.engine is Engine.unknown


@given(OPS, st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_any_preferred_order_that_is_legal(ops: list[tuple[str, int, int]], random: Any) -> None:
    """The preferred order is one drawn by the test, instruction by instruction, of those that need nothing more."""
    program = built(ops)
    needs = chosen(program).needs
    order: list[int] = []
    while len(order) < len(program):
        ready = [at for at in range(len(program)) if at not in order and needs[at] <= set(order)]
        order.append(random.choice(ready))
    made = chosen(program, room=4, window=3, order=order)
    legal(made)
    within(made, 4)


@given(OPS, st.lists(st.integers(-1, 2), min_size=30, max_size=30))
@settings(max_examples=80, deadline=None)
def test_groups_of_any_kind_leave_the_order_legal(ops: list[tuple[str, int, int]], groups: list[int]) -> None:
    program = built(ops)
    group = groups[: len(program)]
    made = chosen(program, group=group)
    legal(made)
    follows = set(np.flatnonzero(made.found.follows).tolist())
    assert all(group[at] >= 0 for at in follows)


@given(OPS)
@settings(max_examples=60, deadline=None)
def test_the_whole_model_runs_all_that_is_not_dropped(ops: list[tuple[str, int, int]]) -> None:
    """What waits for something dropped waits for what stands in, which runs."""
    timing = Timing(built(ops))
    changes, order = timing.plan.changes, timing.plan.changes.order
    assert order is not None
    assert sorted([*order, *changes.dropped]) == list(range(len(timing.program)))
    position = {at: number for number, at in enumerate(order)}
    for late, early in changes.stands_in.items():
        assert all(position[each] < position[late] for each in early)
    assert np.isfinite(timing.total_ns) and timing.total_ns > 0


# by hand


def test_what_is_ready_runs_before_what_waits() -> None:
    """A store that waits for the slow activation does not hold up the loads behind it."""
    kernel = Kernel(nki="0.1")
    x = kernel.argument(np.zeros((128 * 4, 64), np.float32))
    out = kernel.hbm(128, 64)
    first, made = kernel.sbuf(128, 64), kernel.sbuf(128, 64)
    kernel.copy(first, x[:128])  # 0
    kernel.call("activation", dst=made, data=first, op="exp")  # 1
    kernel.copy(out, made)  # 2
    for at in (1, 2, 3):
        kernel.copy(kernel.sbuf(128, 64), x[128 * at : 128 * at + 128])  # 3, 4, 5
    program = kernel.program()
    order = list(chosen(program).found.order)
    assert order.index(2) == 5 and order.index(5) < order.index(1)
    assert list(chosen(program, window=1).found.order) == [0, 1, 2, 3, 4, 5]


def test_a_tile_waits_for_room_and_says_what_gave_way() -> None:
    """Room for one tile: each load waits for the use of the one before."""
    kernel = Kernel(nki="0.1")
    x = kernel.argument(np.zeros((128 * 3, 64), np.float32))
    tiles = []
    for at in range(3):
        tiles.append(kernel.sbuf(128, 64))
        kernel.copy(tiles[-1], x[128 * at : 128 * at + 128])
    for tile in tiles:
        kernel.call("activation", dst=kernel.psum(128, 64), data=tile, op="exp")
    program = kernel.program()
    # in the order as written three tiles are alive; here a use follows its load
    made = chosen(program, room=1)
    assert list(made.found.order) == [0, 3, 1, 4, 2, 5]
    assert dict(made.found.arrivals) == {
        1: [(tiles[1].buffer.id, (tiles[0].buffer.id,))],
        2: [(tiles[2].buffer.id, (tiles[1].buffer.id,))],
    }
    assert not chosen(program, room=3).found.arrivals


def test_what_cannot_fit_is_forced() -> None:
    kernel = Kernel(nki="0.1")
    x = kernel.argument(np.zeros((128 * 2, 64), np.float32))
    tiles = [kernel.sbuf(128, 64) for _ in range(2)]
    for at, tile in enumerate(tiles):
        kernel.copy(tile, x[128 * at : 128 * at + 128])
    views = {"dst": kernel.psum(128, 64), "data1": tiles[0], "data2": tiles[1]}
    kernel.call("tensor_tensor", Engine.vector, op="add", **views)
    made = chosen(kernel.program(), room=1)
    assert list(made.found.order) == [0, 1, 2] and not made.found.arrivals


def simple(kernel: Kernel, engine: Engine = Engine.unknown, op: str = "multiply") -> None:
    kernel.call(
        "tensor_scalar", engine, dst=kernel.sbuf(128, 512), data=kernel.psum(128, 512), op0=op, operand0=2.0
    )


@pytest.mark.parametrize(
    ("engine", "op", "shared"),
    [
        (Engine.unknown, "multiply", True),
        (Engine.vector, "multiply", False),
        (Engine.gpsimd, "multiply", False),
        (Engine.unknown, "maximum", False),
    ],
)
def test_two_engines_share_what_the_kernel_leaves_open(engine: Engine, op: str, shared: bool) -> None:
    """Each takes the next where it is done first: from PSUM, Scalar is about as fast as Vector."""
    kernel = Kernel(nki="0.1")
    for _ in range(10):
        simple(kernel, engine, op)
    moved = chosen(kernel.program()).found.moved
    assert (3 <= np.count_nonzero(moved) <= 7) if shared else not moved.any()


def test_an_instruction_moves_only_where_it_is_done_sooner() -> None:
    """By hand: the one queue is free, and the other takes ten times as long."""
    kernel = Kernel(nki="0.1")
    for _ in range(3):
        simple(kernel)
    program = kernel.program()
    scope, priced = Scope.of(program), costs(Scope.of(program), Figures(TRN2), Parameters())
    choice = choices(scope, priced, Parameters())
    now = int(priced.lane[0])
    assert now in (VECTOR, SCALAR) and choice.queue.tolist() == [VECTOR + SCALAR - now] * 3
    figures = {
        VECTOR: (TRN2.number("vector.overhead_cycles"), TRN2.number("vector.clock_ghz")),
        SCALAR: (TRN2.number("scalar.overhead_cycles"), TRN2.number("scalar.clock_ghz")),
    }
    overhead, clock = figures[VECTOR + SCALAR - now]
    assert choice.held == pytest.approx([(512 + overhead) / clock] * 3)


def test_a_group_runs_as_one_when_the_last_is_ready() -> None:
    kernel = Kernel(nki="0.1")
    x = kernel.argument(np.zeros((128 * 3, 64), np.float32))
    for at in range(3):
        tile = kernel.sbuf(128, 64)
        kernel.copy(tile, x[128 * at : 128 * at + 128])
        kernel.call("activation", dst=kernel.psum(128, 64), data=tile, op="exp")
    program = kernel.program()
    alone = chosen(program)
    assert not alone.found.follows.any()
    made = chosen(program, group=[-1, 0, -1, 0, -1, 0])
    assert list(made.found.order) == [0, 2, 4, 1, 3, 5]
    assert np.flatnonzero(made.found.follows).tolist() == [3, 5]


def test_what_is_dropped_does_not_run_and_another_is_waited_for() -> None:
    kernel = Kernel(nki="0.1")
    x = kernel.argument(np.zeros((128, 64), np.float32))
    tiles: list[View] = [kernel.sbuf(128, 64) for _ in range(2)]
    for tile in tiles:
        kernel.copy(tile, x)
        kernel.call("activation", dst=kernel.psum(128, 64), data=tile, op="exp")
    made = chosen(kernel.program(), skipped=(2,), sources=(0,))
    legal(made, skipped=(2,))
    assert made.needs[3] == {0}


def test_loads_come_where_they_are_needed_and_stores_right_after_their_data() -> None:
    """The order as wanted: by hand from the program below."""
    kernel = Kernel(nki="0.1")
    x = kernel.argument(np.zeros((128 * 2, 64), np.float32))
    tiles = [kernel.sbuf(128, 64) for _ in range(4)]
    kernel.copy(tiles[0], x[:128])  # 0, for 2
    kernel.copy(tiles[1], x[128:])  # 1, for 3
    kernel.call("activation", dst=tiles[2], data=tiles[0], op="exp")  # 2
    kernel.call("activation", dst=tiles[3], data=tiles[1], op="exp")  # 3
    kernel.store(tiles[2])  # 4
    kernel.store(tiles[3])  # 5
    program = kernel.program()
    priced = costs(Scope.of(program), Figures(TRN2), Parameters())
    order = wanted(priced, needed(program, storage(program, ROWS)))
    assert order.tolist() == [0, 2, 4, 1, 3, 5]


@given(OPS)
@settings(max_examples=80, deadline=None)
def test_the_wanted_order_is_legal(ops: list[tuple[str, int, int]]) -> None:
    program = built(ops)
    needs = needed(program, storage(program, ROWS))
    order = wanted(costs(Scope.of(program), Figures(TRN2), Parameters()), needs).tolist()
    position = {at: number for number, at in enumerate(order)}
    for at in range(len(program)):
        assert all(position[int(producer)] < position[at] for producer in needs.of(at))


def test_a_choice_of_none() -> None:
    kernel = Kernel(nki="0.1")
    simple(kernel, Engine.gpsimd)
    program = kernel.program()
    scope = Scope.of(program)
    found: Choice = choices(scope, costs(scope, Figures(TRN2), Parameters()), Parameters())
    assert found.queue.tolist() == [-1]

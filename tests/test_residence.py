"""What a compiler keeps in SBUF, fetches again, saves or need not make: by hand, by a brute-force LRU, by values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from execute_kit import Kernel, View
from hypothesis import given, settings
from hypothesis import strategies as st
from legacy_tiles_kit import nl, numbers, stored, traced

from nkireview.hardware import Figure, Hardware, target
from nkireview.isa.enums import Engine, Memory
from nkireview.isa.table import ROWS
from nkireview.program.program import Program
from nkireview.program.scope import Scope
from nkireview.program.storage import storage
from nkireview.schedule.residence import Fetch, Residence, residence
from nkireview.schedule.uses import uses

TRN2 = target("trn2")
COLUMNS = 64
TILE = 4 * COLUMNS
"""Bytes a partition of a tile of [128, 64] in float32."""
BYTES = 128 * TILE


def with_room(tiles: float) -> Hardware:
    """trn2 with SBUF for so many tiles."""
    path = "sbuf.usable_bytes_per_partition"
    figure = TRN2.entries[path]
    assert isinstance(figure, Figure)
    return replace(TRN2, entries={**TRN2.entries, path: replace(figure, value=int(tiles * TILE))})


def followed(
    program: Program, room: float = 800, spare: float = 0.25, order: Sequence[int] | None = None
) -> Residence:
    held = storage(program, ROWS)
    places = np.array(range(len(program)) if order is None else order, np.int64)
    return residence(Scope.of(program), held, uses(program, held), with_room(room), places, spare)


def dropped(found: Residence) -> dict[int, int]:
    """Instruction that need not run -> the one that stands in for it."""
    return {int(at): int(found.source[at]) for at in np.flatnonzero(found.dropped)}


def untouched(found: Residence) -> bool:
    return not found.dropped.any() and not found.fetches and not found.repeats and (found.source == -1).all()


class Tiles(Kernel):
    """A legacy kernel over tiles of [128, 64], whose regions of HBM are as large."""

    def __init__(self, **options: Any) -> None:
        super().__init__(nki="0.1", **options)

    def tile(self, **fields: Any) -> View:
        return self.sbuf(128, COLUMNS, **fields)

    def regions(self, count: int) -> list[View]:
        whole = self.argument(np.zeros((128 * count, COLUMNS), np.float32))
        return [whole[128 * at : 128 * at + 128] for at in range(count)]

    def loaded(self, region: View) -> View:
        tile = self.tile()
        self.copy(tile, region)
        return tile

    def used(self, *tiles: View) -> int:
        """Read one or two tiles, and leave something in PSUM."""
        into = self.psum(128, COLUMNS)
        if len(tiles) == 1:
            return self.call("activation", dst=into, data=tiles[0], op="exp")
        return self.call("tensor_tensor", Engine.vector, dst=into, data1=tiles[0], data2=tiles[1], op="add")


# loads of one region


def test_a_region_that_is_loaded_twice_is_loaded_once() -> None:
    def kernel(x: Any) -> Any:
        return stored(nl.load(x) * 2.0, nl.load(x) * 3.0)

    held = traced(kernel, numbers(128, 64))
    assert held.opcodes == ["dma_copy", "tensor_scalar", "dma_copy", "tensor_scalar", "dma_copy", "dma_copy"]
    found = followed(held.program)
    assert dropped(found) == {2: 0} and found.repeats and not found.fetches


def test_what_is_not_the_same_is_loaded_again() -> None:
    kernel = Tiles()
    x, y = kernel.regions(2)
    kernel.used(kernel.loaded(x))
    kernel.used(kernel.loaded(y))
    other = kernel.sbuf(128, COLUMNS, dtype="bfloat16")  # cast on its way
    kernel.copy(other, x)
    kernel.used(other)
    half = kernel.sbuf(128, COLUMNS)
    kernel.copy(half[:, :32], x[:, :32])
    kernel.used(half[:, :32])
    assert untouched(followed(kernel.program()))


def test_a_region_that_the_kernel_writes_is_loaded_again() -> None:
    for where in ("between", "before", "never"):
        kernel = Tiles()
        shared, (x,) = kernel.hbm(128, COLUMNS), kernel.regions(1)
        first = kernel.loaded(x)
        if where == "before":
            kernel.copy(shared, first)
        kernel.used(kernel.loaded(shared))
        if where == "between":
            kernel.copy(shared, first)
        again = len(kernel.builder)
        kernel.used(kernel.loaded(shared))
        found = followed(kernel.program())
        assert dropped(found) == ({again: 1} if where == "never" else {}), where
        assert found.repeats is (where == "never")


def test_a_tile_that_changed_does_not_stand_in() -> None:
    kernel = Tiles()
    (x,) = kernel.regions(1)
    first = kernel.loaded(x)
    kernel.call("tensor_scalar", dst=first, data=first, op0="multiply", operand0=2.0)
    kernel.used(first)
    second = kernel.loaded(x)
    kernel.used(second)
    assert untouched(followed(kernel.program()))


def test_a_tile_that_is_read_before_it_changes_is_not_taken_for_what_it_is_in_the_end() -> None:
    kernel = Tiles()
    (x,) = kernel.regions(1)
    tiles = []
    for read in (False, True):
        tiles.append(kernel.loaded(x))
        if read:
            kernel.used(tiles[-1])
        kernel.call("tensor_scalar", dst=tiles[-1], data=tiles[-1], op0="multiply", operand0=2.0)
        kernel.used(tiles[-1])
    assert not dropped(followed(kernel.program()))


def test_what_is_computed_of_merged_loads_goes_with_its_producers() -> None:
    """The transposes of a batch of products that share their left factor; opcodes by hand from the kernel."""

    def kernel(x: Any, y: Any) -> Any:
        out = nl.ndarray((3, 128, 128), dtype=x.dtype, buffer=nl.shared_hbm)
        for i in range(3):
            turned = nl.transpose(nl.load(x))
            nl.store(out[i], nl.matmul(turned, nl.load(y[i]), transpose_x=True))
        return out

    held = traced(kernel, numbers(128, 128), numbers(3, 128, 128))
    once = ["dma_copy", "nc_transpose", "dma_copy", "tensor_copy", "nc_matmul", "tensor_copy", "dma_copy"]
    assert held.opcodes == once * 3
    found = followed(held.program)
    # load, transpose and its copy; nobody needs a transpose in PSUM but the copy that is dropped
    assert dropped(found) == {7: 0, 8: -1, 10: 3, 14: 0, 15: -1, 17: 3}


def test_random_numbers_are_never_the_same() -> None:
    kernel = Tiles()
    for _ in range(2):
        tile = kernel.tile()
        kernel.call("rng", dst=tile)
        kernel.used(tile)
    assert untouched(followed(kernel.program()))


def test_what_nobody_read_stays() -> None:
    kernel = Tiles()
    (x,) = kernel.regions(1)
    kernel.used(kernel.loaded(x))
    kernel.loaded(x)
    spent = kernel.tile()
    kernel.call("memset", dst=spent, value=0.0)
    found = followed(kernel.program())
    assert dropped(found) == {2: 0}


# room


@pytest.mark.parametrize(("others", "spare", "merged"), [(2, 0.25, True), (3, 0.25, False), (3, 0.0, True)])
def test_spare_room_is_not_filled_with_what_is_only_kept(others: int, spare: float, merged: bool) -> None:
    """Room for four: the first tile is done with, then `others` come that are all needed to the end."""
    kernel = Tiles()
    x, *rest = kernel.regions(1 + others)
    kernel.used(kernel.loaded(x))
    tiles = [kernel.loaded(region) for region in rest]
    again = len(kernel.builder)
    kernel.used(kernel.loaded(x))
    for tile in tiles:
        kernel.used(tile)
    found = followed(kernel.program(), room=4, spare=spare)
    assert dropped(found) == ({again: 0} if merged else {})
    assert found.repeats and not found.fetches


def test_a_live_tile_stands_in_whatever_is_spare() -> None:
    kernel = Tiles()
    (x,) = kernel.regions(1)
    first = kernel.loaded(x)
    kernel.used(kernel.loaded(x))
    kernel.used(first)
    assert dropped(followed(kernel.program(), room=1, spare=1.0)) == {1: 0}


def test_what_was_used_longest_ago_gives_way_and_is_fetched() -> None:
    kernel = Tiles()
    a, b, c = (kernel.loaded(region) for region in kernel.regions(3))  # 0, 1, 2: `a` gives way to `c`
    kernel.used(b, c)  # 3
    kernel.used(a, c)  # 4: `b` gives way to `a`
    kernel.used(b, c)  # 5: `b` comes back, for nobody needs `a` any more
    found = followed(kernel.program(), room=2)
    assert list(found.fetches) == [Fetch(4, 0, 3, 0), Fetch(5, 1, -1, 0)]
    assert not found.repeats and not found.dropped.any()


def test_a_fetched_tile_serves_at_once_what_could_run_by_then() -> None:
    kernel = Tiles()
    x = kernel.regions(4)
    a, b, c = (kernel.loaded(region) for region in x[:3])  # 0, 1, 2
    kernel.used(a, c)  # 3: `a` comes back
    d = kernel.loaded(x[3])  # 4: `c` was there when `a` came, `d` was not
    kernel.used(c, d)  # 5
    kernel.used(b, c)  # 6: `b` was away since 2
    kernel.used(a, c)  # 7: could run at 3
    kernel.used(a)  # 8: waits for nothing else
    kernel.used(a, d)  # 9: could not
    found = followed(kernel.program(), room=2)
    assert [(fetch.before, fetch.load) for fetch in found.fetches] == brute_fetches(
        [
            *((at, (), (at,)) for at in range(3)),
            (3, (0, 2), ()),
            (4, (), (3,)),
            (5, (2, 3), ()),
            (6, (1, 2), ()),
            (7, (0, 2), ()),
            (8, (0,), ()),
            (9, (0, 3), ()),
        ],
        room=2,
    )
    assert {fetch.before for fetch in found.fetches} == {3, 6, 9}


def test_a_sum_of_products_waits_for_its_factors_alone() -> None:
    """What was added to the bank before does not matter, but a sum on Vector has to come after the one before."""
    for product in (True, False):
        kernel = Tiles()
        a, b, c = (kernel.loaded(region) for region in kernel.regions(3))  # 0, 1, 2: `a` gives way
        bank = kernel.psum(64, COLUMNS)
        total = kernel.psum(128, COLUMNS)
        kernel.call("memset", dst=total, value=0.0)  # 3
        for tile in (b, c, a):  # 4, 5, 6
            if product:
                kernel.matmul(bank, tile, tile, accumulate=True)
            else:
                views = {"dst": total, "data1": total, "data2": tile}
                kernel.call("tensor_tensor", Engine.vector, op="add", **views)
        found = followed(kernel.program(), room=2)
        assert [(each.before, each.load) for each in found.fetches] == ([] if product else [(6, 0)])


def test_what_was_computed_is_saved_once_and_fetched() -> None:
    kernel = Tiles()
    made = kernel.tile()
    kernel.call("memset", dst=made, value=1.0)  # 0
    x = kernel.regions(3)
    a, b = kernel.loaded(x[0]), kernel.loaded(x[1])  # 1, 2: `made` gives way
    kernel.used(a, b)  # 3
    kernel.used(made, b)  # 4: it comes back in the place of `a`
    kernel.used(a, b)  # 5: `a` in its place, and nothing is saved that is so already
    c = kernel.loaded(x[2])  # 6: in the place of `a`
    kernel.used(made, c)  # 7: it comes back in the place of `b`
    kernel.used(a, b)  # 8: could run at 5
    found = followed(kernel.program(), room=2)
    assert list(found.fetches) == [
        Fetch(2, -1, 0, BYTES, saves=True),
        Fetch(4, -1, 3, BYTES),
        Fetch(5, 1, 4, 0),
        Fetch(7, -1, 5, BYTES),
    ]


@dataclass
class Brute:
    """SBUF of so many tiles, from which the one used longest ago gives way."""

    room: int
    clean: frozenset[int] = frozenset()
    held: list[int] = field(default_factory=list)  # oldest first
    used: dict[int, int] = field(default_factory=dict)
    came: dict[int, int] = field(default_factory=dict)
    written: dict[int, int] = field(default_factory=dict)
    saved: dict[int, int] = field(default_factory=dict)
    log: list[tuple[int, str, int]] = field(default_factory=list)

    def enter(self, tile: int, now: int, needed: set[int]) -> None:
        while len(self.held) >= self.room:
            old = [each for each in self.held if each not in needed]
            if not old:
                break
            self.held.remove(old[0])
            if old[0] not in self.clean and old[0] not in self.saved:
                self.saved[old[0]] = now
                self.log.append((now, "save", old[0]))
        self.held.append(tile)
        self.came[tile] = now

    def run(self, steps: Sequence[tuple[int, tuple[int, ...], tuple[int, ...]]]) -> None:
        ends = {tile: now for now, reads, writes in steps for tile in (*reads, *writes)}
        for now, reads, writes in steps:
            needed = {*reads, *writes}
            for tile in dict.fromkeys(reads):
                waits = any(self.written[each] >= self.came[tile] for each in reads if each != tile)
                if tile not in self.held and waits:
                    self.enter(tile, now, needed)
                    self.log.append((now, "fetch", tile))
            for tile in writes:
                begun = tile in self.came
                self.written[tile] = now
                if tile not in self.held:
                    self.enter(tile, now, needed)
                    if begun:
                        self.log.append((now, "fetch", tile))
            for tile in sorted(needed):
                if tile in self.held:
                    self.held.remove(tile)
                    self.held.append(tile)
            self.held = [tile for tile in self.held if ends[tile] > now]


def brute_fetches(
    steps: Sequence[tuple[int, tuple[int, ...], tuple[int, ...]]], room: int
) -> list[tuple[int, int]]:
    """(before, load) where every tile is loaded by the instruction of its number, but for 3 by 4."""
    brute = Brute(room, frozenset(range(8)))
    brute.run(steps)
    return [(now, {3: 4}.get(tile, tile)) for now, what, tile in brute.log if what == "fetch"]


@st.composite
def programs(draw: st.DrawFn) -> tuple[int, list[tuple[str, int, int, int]]]:
    """Room, and operations (what, tile, one, other) over at most eight tiles that are made before they are read."""
    made: list[int] = []
    steps: list[tuple[str, int, int, int]] = []
    for _ in range(draw(st.integers(4, 40))):
        what = draw(st.sampled_from(["make", "load", "load", "use", "use", "use", "use", "add"]))
        if what in ("make", "load") and len(made) < 8:
            made.append(len(made))
            steps.append((what, made[-1], -1, -1))
        elif len(made) >= 2:
            one, other = draw(st.lists(st.sampled_from(made), min_size=2, max_size=2, unique=True))
            steps.append(("add" if what == "add" else "use", one, one, other))
    return draw(st.integers(2, 6)), steps


@given(programs())
@settings(max_examples=150, deadline=None)
def test_fetches_and_saves_against_a_brute_force_lru(
    given_: tuple[int, list[tuple[str, int, int, int]]],
) -> None:
    """No two tiles have one value, so nothing is merged; places of tiles are 0 to 7."""
    room, given_steps = given_
    kernel = Tiles()
    tiles = [kernel.tile() for _ in range(8)]
    regions = kernel.regions(8)
    steps: list[tuple[int, tuple[int, ...], tuple[int, ...]]] = []
    loads: dict[int, int] = {}
    dirty: set[int] = set()
    for now, (what, tile, one, other) in enumerate(given_steps):
        if what == "load":
            kernel.copy(tiles[tile], regions[tile])
            loads[tile] = now
            steps.append((now, (), (tile,)))
        elif what == "make":
            kernel.call("memset", dst=tiles[tile], value=float(tile))
            dirty.add(tile)
            steps.append((now, (), (tile,)))
        elif what == "add":
            views = {"dst": tiles[one], "data1": tiles[one], "data2": tiles[other]}
            kernel.call("tensor_tensor", Engine.vector, op="add", **views)
            dirty.add(one)
            steps.append((now, (one, other), (one,)))
        else:
            kernel.used(tiles[one], tiles[other])
            steps.append((now, (one, other), ()))
    if not steps:
        return
    brute = Brute(room, frozenset(range(8)) - dirty)
    brute.run(steps)
    found = followed(kernel.program(), room=room)
    wanted = [
        (now, loads[tile], 0) if what == "fetch" and tile not in dirty else (now, -1, BYTES)
        for now, what, tile in brute.log
    ]
    assert [(each.before, each.load, each.bytes) for each in found.fetches] == wanted
    assert [each.saves for each in found.fetches] == [what == "save" for _, what, _ in brute.log]
    assert all(-1 <= each.after < each.before for each in found.fetches)
    assert not found.dropped.any() and not found.repeats


# values


@st.composite
def mixed(draw: st.DrawFn) -> list[tuple[str, int, int, int]]:
    """Operations over four tiles and two halves, with loads that repeat."""
    whole: set[int] = set()
    steps: list[tuple[str, int, int, int]] = []
    for _ in range(draw(st.integers(3, 30))):
        what = draw(
            st.sampled_from(
                ["load", "load", "half", "add", "double", "double", "store", "store", "spill", "back"]
            )
        )
        tile, one, two = draw(st.integers(0, 3)), draw(st.integers(0, 3)), draw(st.integers(0, 1))
        if what in ("load", "back"):
            whole.add(tile)
        elif what == "half":
            steps.append((what, tile, 0, two))
            one = 1
            whole.add(tile)
        elif what == "add":
            if one not in whole or two not in whole:
                continue
            whole.add(tile)
        elif tile not in whole:
            continue
        steps.append((what, tile, one, two))
    return steps


@st.composite
def alike(draw: st.DrawFn) -> list[tuple[str, int, int, int]]:
    """The same few steps over one tile after the other, in turns."""
    left = []
    for tile in range(4):
        script = draw(st.lists(st.sampled_from(["store", "double", "add"]), min_size=1, max_size=4))
        left.append([("load", tile, tile, 0), *((what, tile, tile, tile) for what in script)])
    steps = []
    while any(left):
        steps.append(draw(st.sampled_from([each for each in left if each])).pop(0))
    return steps


def values(steps: Sequence[tuple[str, int, int, int]], skip: dict[int, int]) -> list[tuple[object, ...]]:
    """What each store stores, as terms; an instruction in `skip` does not run, its tile is that of what stands in."""
    tile: dict[int, list[object]] = {}
    alias: dict[int, int] = {}
    shared: object = "shared"
    out: list[tuple[object, ...]] = []
    for now, (what, dst, one, two) in enumerate(steps):
        if now in skip:
            if skip[now] >= 0:
                home = steps[skip[now]][1]
                alias[dst] = alias.get(home, home)
            continue
        at = alias.get(dst, dst)
        if what == "load":
            tile[at] = [("x", two, 0), ("x", two, 1)]
        elif what == "half":
            tile.setdefault(at, [None, None])[one] = ("x", two, one)
        elif what == "add":
            left, right = tile[alias.get(one, one)], tile[alias.get(two, two)]
            tile[at] = [("add", left[side], right[side]) for side in (0, 1)]
        elif what == "double":
            tile[at] = [("double", each) for each in tile[at]]
        elif what == "store":
            out.append(tuple(tile[at]))
        elif what == "spill":
            shared = tuple(tile[at])
        else:
            assert what == "back"
            tile[at] = [("shared", shared, 0), ("shared", shared, 1)]
    return out


@given(st.one_of(mixed(), alike()), st.integers(2, 8))
@settings(max_examples=300, deadline=None)
def test_what_is_stored_does_not_change(steps: list[tuple[str, int, int, int]], room: int) -> None:
    """Brute force over terms: each tile that is dropped has the value of the one that stands in for it."""
    kernel = Tiles()
    tiles = [kernel.tile() for _ in range(4)]
    x, shared = kernel.regions(2), kernel.hbm(128, COLUMNS)
    for what, dst, one, two in steps:
        tile, half = tiles[dst], slice(one * 32, one * 32 + 32)
        if what == "load":
            kernel.copy(tile, x[two])
        elif what == "half":
            kernel.copy(tile[:, half], x[two][:, half])
        elif what == "add":
            views = {"dst": tile, "data1": tiles[one], "data2": tiles[two]}
            kernel.call("tensor_tensor", Engine.vector, op="add", **views)
        elif what == "double":
            kernel.call("tensor_scalar", dst=tile, data=tile, op0="multiply", operand0=2.0)
        elif what == "store":
            kernel.store(tile)
        elif what == "spill":
            kernel.copy(shared, tile)
        else:
            kernel.copy(tile, shared)
    if not steps:
        return
    found = followed(kernel.program(), room=room)
    assert values(steps, dropped(found)) == values(steps, {})


# orders, and what is left alone


def test_an_order_decides_which_of_two_loads_stays() -> None:
    kernel = Tiles()
    (x,) = kernel.regions(1)
    first, second = kernel.tile(), kernel.tile()
    kernel.copy(first, x)  # 0
    kernel.used(first)  # 1
    kernel.copy(second, x)  # 2
    kernel.used(second)  # 3
    program = kernel.program()
    assert dropped(followed(program)) == {2: 0}
    assert dropped(followed(program, order=(2, 0, 1, 3))) == {0: 2}


def test_fetches_are_named_by_their_instructions() -> None:
    """The program of three loads, recorded backwards and followed in the other order."""
    kernel = Tiles()
    tiles, x = [kernel.tile() for _ in range(3)], kernel.regions(3)
    order = [5, 4, 3, 2, 1, 0]
    for step in reversed(range(6)):
        if step < 3:
            kernel.copy(tiles[step], x[step])
        else:
            kernel.used(tiles[{3: 1, 4: 0, 5: 1}[step]], tiles[2])
    found = followed(kernel.program(), room=2, order=order)
    assert list(found.fetches) == [Fetch(1, 5, 2, 0), Fetch(0, 4, -1, 0)]


def test_renaming() -> None:
    found = Residence(
        np.array([False, True, False]),
        np.array([-1, 0, -1]),
        (Fetch(2, -1, -1, 64, saves=True), Fetch(2, 0, 1, 0)),
        repeats=True,
    ).renamed(np.array([2, 0, 1]))
    assert found.dropped.tolist() == [True, False, False]
    assert found.source.tolist() == [2, -1, -1] and found.repeats
    assert found.fetches == (Fetch(1, -1, -1, 64, saves=True), Fetch(1, 2, 0, 0))


def in_a_loop(kernel: Tiles, x: View) -> None:
    with kernel.loop(3):
        kernel.used(kernel.loaded(x))
        kernel.used(kernel.loaded(x))


def at_addresses(kernel: Tiles, x: View) -> None:
    for at in (0, 4096):
        tile = kernel.tile(address=(0, at))
        kernel.copy(tile, x)
        kernel.used(tile)


def on_two_cores(kernel: Tiles, x: View) -> None:
    for core in range(2):
        for _ in range(2):
            kernel.used(kernel.loaded(x))
        if not core:
            kernel.switch_core()


@pytest.mark.parametrize("build", [in_a_loop, at_addresses, on_two_cores])
def test_loops_addresses_and_several_cores_are_left_alone(build: Callable[[Tiles, View], None]) -> None:
    kernel = Tiles(lnc=2 if build is on_two_cores else 1)
    build(kernel, kernel.regions(1)[0])
    program = kernel.program()
    assert untouched(followed(program, room=1))


def test_instances_of_one_core_share_what_they_load() -> None:
    """A grid of two, one after the other on a core, or on a core each: then neither has what the other loaded."""

    def kernel(x: Any) -> Any:
        out = nl.ndarray((2, 128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out[nl.program_id(0)], nl.load(x) * 2.0)
        return out

    one = traced(kernel, numbers(128, 64), grid=(2,)).program
    assert dropped(followed(one)) == {3: 0, 4: 1}
    two = traced(kernel, numbers(128, 64), grid=(nl.nc(2),)).program
    assert len(two) == len(one) == 6 and untouched(followed(two))


def test_an_address_in_psum_does_not_matter() -> None:
    kernel = Tiles()
    (x,) = kernel.regions(1)
    for _ in range(2):
        tile = kernel.loaded(x)
        bank = kernel.tensor(Memory.psum, 128, COLUMNS, address=(0, 0))
        kernel.call("activation", dst=bank, data=tile, op="exp")
    assert dropped(followed(kernel.program())) == {2: 0}


def test_an_empty_program() -> None:
    kernel = Tiles()
    found = followed(kernel.program(), order=[])
    assert len(found.dropped) == 0 and not found.fetches

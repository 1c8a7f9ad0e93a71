"""What no order of a program avoids, held against every order of small programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np
import pytest
from execute_kit import Kernel, View
from hypothesis import given, settings
from hypothesis import strategies as st

from nkireview import hardware
from nkireview.checks.changes import Change
from nkireview.checks.space import Space
from nkireview.checks.survey import survey
from nkireview.checks.unavoidable import Orders, Unavoidable
from nkireview.checks.values import full_box, values
from nkireview.isa.enums import Memory
from nkireview.isa.table import ROWS
from nkireview.program.footprint import offsets
from nkireview.program.program import Program
from nkireview.program.scope import Scope
from nkireview.program.storage import storage
from nkireview.schedule.uses import uses

Pair = tuple[int, int, int]
"""Writer, reader, buffer."""


@dataclass
class Traced:
    """A small kernel, and what it does to which elements, noted beside it."""

    kernel: Kernel = field(default_factory=Kernel)
    area: dict[int, int] = field(default_factory=dict)
    last: dict[tuple[int, int], tuple[int, str]] = field(
        default_factory=dict
    )  # element -> its last use and what
    writer: dict[tuple[int, int], int] = field(default_factory=dict)
    pairs: set[Pair] = field(default_factory=set)
    count: int = 0

    def buffer(self, memory: str, rows: int, columns: int) -> View:
        view: View = getattr(self.kernel, memory)(rows, columns)
        self.area[view.buffer.id] = rows * columns * 4
        return view

    def run(
        self, opcode: str, reads: list[View], writes: View, adds: bool | None = False, **given: object
    ) -> None:
        """adds: True: also reads what it writes; None: only if a matmul was the last to touch the element."""
        self.kernel.call(opcode, dst=writes, **given)
        for view in reads:
            for element in elements(view):
                self._read(element)
                self.last[element] = self.count, "read"
        for element in elements(writes):
            if adds or (adds is None and self.last.get(element, (0, ""))[1] == "matmul"):
                self._read(element)
        for element in elements(writes):
            self.writer[element] = self.count
            self.last[element] = self.count, "matmul" if opcode == "nc_matmul" else "write"
        self.count += 1

    def _read(self, element: tuple[int, int]) -> None:
        if element in self.writer and self.writer[element] != self.count:
            self.pairs.add((self.writer[element], self.count, element[0]))


def elements(view: View) -> set[tuple[int, int]]:
    return {(view.buffer.id, int(offset)) for offset in offsets(view.access).reshape(-1)}


@st.composite
def small(draw: st.DrawFn) -> tuple[Traced, list[tuple[int, int]]]:
    """Up to seven instructions over a few buffers, on parts of them, and what comes after what by name."""
    traced = Traced()
    tiles = [
        traced.buffer("sbuf", 8, draw(st.sampled_from([4, 6, 8]))) for _ in range(draw(st.integers(2, 4)))
    ]
    banks = [traced.buffer("psum", 4, 4) for _ in range(draw(st.integers(0, 2)))]

    def view(length: int) -> View:
        tile = draw(st.sampled_from(tiles))
        room = tile.shape[1]
        step = draw(st.sampled_from([1, 1, 1, 2])) if 2 * length <= room else 1
        start = draw(st.integers(0, room - length * step))
        return tile[:, start : start + length * step : step]

    for _ in range(draw(st.integers(2, 7))):
        length = draw(st.sampled_from([2, 4, 4]))
        kind = draw(
            st.sampled_from(
                ["memset", "copy", "add", "matmul", "drain"] if banks else ["memset", "copy", "add"]
            )
        )
        if kind == "memset":
            traced.run("memset", [], view(length), value=0.0)
        elif kind == "copy":
            source = view(length)
            traced.run("tensor_copy", [source], view(length), src=source)
        elif kind == "add":
            a, b = view(length), view(length)
            traced.run("tensor_tensor", [a, b], view(length), data1=a, data2=b, op="add")
        elif kind == "matmul":
            a, b = view(4), view(4)
            adds = draw(st.sampled_from([None, True, False]))
            bank = draw(st.sampled_from(banks))
            traced.run("nc_matmul", [a, b], bank, adds, stationary=a, moving=b, accumulate=adds)
        else:
            bank, target = draw(st.sampled_from(banks)), traced.buffer("sbuf", 4, 4)
            traced.run("tensor_copy", [bank], target, src=bank)
    named = []
    if traced.count > 2 and draw(st.booleans()):
        later = draw(st.integers(1, traced.count - 1))
        named = [(later, draw(st.integers(0, later - 1)))]
    return traced, named


def orders(count: int, before: list[set[int]]) -> Iterator[list[int]]:
    """Every order of the instructions in which each comes after those it has to come after."""

    def extended(done: list[int]) -> Iterator[list[int]]:
        if len(done) == count:
            yield list(done)
            return
        for each in range(count):
            if each not in done and before[each] <= set(done):
                yield from extended([*done, each])

    return extended([])


def unavoidable(program: Program, area: dict[int, int]) -> Unavoidable | None:
    scope = Scope.of(program, ROWS)
    stored = storage(program, ROWS)
    sizes = np.zeros(stored.count + 1, np.int64)
    sizes[list(area)] = list(area.values())
    found = Orders(scope, stored, uses(program, stored))
    return found.unavoidable(sizes, np.array(sorted(area), np.int64))


def with_names(program: Program, named: list[tuple[int, int]]) -> Program:
    at = np.zeros(len(program) + 1, np.int64)
    for consumer, _ in named:
        at[consumer + 1 :] += 1
    producers = np.array([producer for _, producer in named], np.int32)
    return replace(program, columns=replace(program.columns, dependency_at=at, dependency=producers))


@given(small())
@settings(max_examples=400, deadline=None)
def test_only_true_values_are_told(made: tuple[Traced, list[tuple[int, int]]]) -> None:
    """Element by element, an instruction reads what the writer that is told of wrote."""
    traced, _ = made
    program = traced.kernel.program()
    stored = storage(program, ROWS)
    found = values(Scope.of(program, ROWS), stored, uses(program, stored))
    told = set(zip(found.writer.tolist(), found.reader.tolist(), found.place.tolist(), strict=True))
    assert told <= traced.pairs
    if all(axes[-1][0] == 1 for axes in _patterns(program)) and not _guessing(program):
        assert told == traced.pairs


@given(small())
@settings(max_examples=400, deadline=None)
def test_it_is_never_more_than_the_best_order_needs(made: tuple[Traced, list[tuple[int, int]]]) -> None:
    traced, named = made
    found = unavoidable(with_names(traced.kernel.program(), named), traced.area)
    before = [set[int]() for _ in range(traced.count)]
    for writer, reader in chain(((w, r) for w, r, _ in traced.pairs), ((p, c) for c, p in named)):
        before[reader].add(writer)
    best = None
    for order in orders(traced.count, before):
        at = {instruction: position for position, instruction in enumerate(order)}
        peak = 0
        for moment in range(traced.count - 1):  # between two instructions
            alive = {b for w, r, b in traced.pairs if at[w] <= moment < at[r]}
            peak = max(peak, sum(traced.area[b] for b in alive))
        best = peak if best is None else min(best, peak)
    assert (found.bytes if found else 0) <= (best or 0)


@given(small())
@settings(max_examples=200, deadline=None)
def test_it_is_what_every_order_has_alive_at_an_instruction(
    made: tuple[Traced, list[tuple[int, int]]],
) -> None:
    """Exactly so where all views are whole boxes and no matmul leaves it to the compiler whether it adds."""
    traced, named = made
    program = with_names(traced.kernel.program(), named)
    if any(step != 1 for step, _ in (axes[-1] for axes in _patterns(program))) or _guessing(program):
        return
    found = unavoidable(program, traced.area)
    before = [set[int]() for _ in range(traced.count)]
    for writer, reader in chain(((w, r) for w, r, _ in traced.pairs), ((p, c) for c, p in named)):
        before[reader].add(writer)
    always: dict[tuple[int, int], set[Pair]] = {}
    for order in orders(traced.count, before):
        at = {instruction: position for position, instruction in enumerate(order)}
        for instruction, position in at.items():
            for shift in (0, 1):  # just before, just after
                alive = {p for p in traced.pairs if at[p[0]] < position + shift <= at[p[1]]}
                key = instruction, shift
                always[key] = always[key] & alive if key in always else alive
    most = max(sum(traced.area[b] for b in {b for _, _, b in pairs}) for pairs in always.values())
    assert (found.bytes if found else 0) == most


def _patterns(program: Program) -> list[tuple[tuple[int, int], ...]]:
    return [program.access(number).pattern for number in range(program.columns.accesses)]


def _guessing(program: Program) -> bool:
    return any(dict(given).get("accumulate", True) is None for given in program.immediates)


@pytest.mark.parametrize(("again", "needed"), [(False, 1), (True, 2)])
def test_a_matmul_that_says_nothing_may_begin_anew_once_its_bank_was_read(again: bool, needed: int) -> None:
    """Two results in one bank: the second can be made first, unless it is added to the first one."""
    traced = Traced()
    large, first, other = (traced.buffer("sbuf", 128, 4000) for _ in range(3))
    small, left, right = (traced.buffer("sbuf", 4, 4) for _ in range(3))
    bank = traced.buffer("psum", 4, 4)
    adds = True if again else None
    traced.run("memset", [], large, value=0.0)
    traced.run("tensor_copy", [large[0:4, 0:4]], small, src=large[0:4, 0:4])
    traced.run("nc_matmul", [small, small], bank, False, stationary=small, moving=small, accumulate=False)
    traced.run("tensor_copy", [bank], left, src=bank)
    traced.run("memset", [], first, value=0.0)
    part = first[0:4, 0:4]
    traced.run("nc_matmul", [part, part], bank, adds, stationary=part, moving=part, accumulate=adds)
    traced.run("tensor_copy", [bank], right, src=bank)
    traced.run("tensor_tensor", [large[0:4, 0:4], right], other[0:4, 0:4], data1=large[0:4, 0:4], data2=right)
    found = unavoidable(traced.kernel.program(), traced.area)
    assert found is not None
    assert found.bytes // traced.area[large.buffer.id] == needed


@given(
    st.tuples(st.integers(1, 5), st.integers(1, 6)),
    st.integers(0, 20),
    st.lists(st.tuples(st.integers(1, 12), st.integers(1, 4)), min_size=1, max_size=3),
)
@settings(max_examples=600, deadline=None)
def test_a_full_box_is_exactly_what_is_touched(
    shape: tuple[int, int], base: int, pattern: list[tuple[int, int]]
) -> None:
    touched = {base}
    for stride, count in pattern:
        touched = {at + stride * step for at in touched for step in range(count)}
    box = full_box(shape, base, tuple(pattern))
    if box is not None:
        (a, b), (c, d) = box
        assert touched == {row * shape[1] + column for row in range(a, b) for column in range(c, d)}
        assert 0 <= a < b <= shape[0] and 0 <= c < d <= shape[1]


def test_a_full_box_is_found_in_the_usual_views() -> None:
    assert full_box((128, 512), 0, ((512, 128), (1, 512))) == ((0, 128), (0, 512))
    assert full_box((128, 512), 64, ((512, 128), (1, 64))) == ((0, 128), (64, 128))
    assert full_box((128, 512), 32 * 512, ((512, 32), (64, 4), (1, 64))) == ((32, 64), (0, 256))
    assert full_box((128, 4, 8), 8, ((32, 128), (1, 8))) == ((0, 128), (1, 2), (0, 8))
    assert full_box((128, 512), 0, ((512, 128), (2, 256))) is None


def summed(sizes: tuple[int, ...], again: bool) -> Kernel:
    """Tiles of 128 rows are summed up, and if `again` each is divided by the sum of all."""
    kernel = Kernel()
    tiles = [kernel.sbuf(128, size) for size in sizes]
    total, part = kernel.sbuf(128, 1), kernel.sbuf(128, 1)
    kernel.call("memset", dst=total, value=0.0)
    for tile in tiles:
        kernel.call("memset", dst=tile, value=1.0)
    for tile in tiles:
        kernel.call("tensor_reduce", dst=part, op="add", data=tile, axis=1)
        kernel.call("tensor_tensor", dst=total, data1=total, data2=part, op="add")
    for tile in tiles if again else ():
        kernel.call("tensor_tensor", dst=tile[:, 0:1], data1=tile[:, 0:1], data2=total, op="multiply")
        kernel.copy(kernel.hbm(128, tile.shape[1]), tile)
    return kernel


def space(kernel: Kernel) -> Space:
    found = survey(kernel.program(), ROWS, hardware.target(kernel.target)).space
    return next(each for each in found if each.memory is Memory.sbuf)


def test_tiles_that_are_used_again_after_a_sum_over_all_are_all_needed() -> None:
    found = space(summed((20_000, 20_000, 20_000), again=True))
    assert found.packed == 3 * 80_000 + 2 * 4
    assert found.bound is not None
    assert 3 * 80_000 <= found.bound.bytes <= 3 * 80_000 + 2 * 4
    assert [(held.bytes, held.place) for held in found.bound.alive[:3]] == [
        (80_000, f"kernel.py:{line}") for line in (1, 2, 3)
    ]


def test_tiles_that_are_used_once_are_not() -> None:
    found = space(summed((20_000, 20_000, 20_000), again=False))
    assert found.packed == 3 * 80_000 + 2 * 4
    assert found.bound is not None and found.bound.bytes <= 80_000 + 2 * 4


def test_what_fits_has_no_bound_and_needs_no_change() -> None:
    found = space(summed((20_000, 20_000), again=True))
    assert found.bound is None and found.change is None


def test_what_a_loop_on_the_device_repeats_is_not_counted_on() -> None:
    kernel = Kernel()
    tiles = [kernel.sbuf(128, 20_000) for _ in range(3)]
    out = kernel.sbuf(128, 1)
    for tile in tiles:
        kernel.call("memset", dst=tile, value=0.0)
    with kernel.loop(4):
        for tile in tiles:
            kernel.copy(out, tile[:, 0:1])
    found = space(kernel)
    assert found.packed > found.usable and found.bound is None


def alive(*groups: tuple[int, int, int, str]) -> Kernel:
    """Groups of (count, rows, columns, dtype), each made at one line, all alive at once."""
    kernel = Kernel()
    views = []
    for count, rows, columns, dtype in groups:
        line = kernel.line
        for _ in range(count):
            kernel.line = line
            views.append(kernel.sbuf(rows, columns, dtype=dtype))
    for _ in range(2):
        for view in views:
            kernel.call("memset", dst=view, value=0.0)
    return kernel


def test_the_smallest_change_gives_up_the_fewest_bytes() -> None:
    # 4 x 40,000 + 10 x 8,000 = 240,000 B; 27,016 too many: four of the small ones, or one of the large ones
    found = space(alive((4, 128, 10_000, "float32"), (10, 128, 2_000, "float32"))).change
    assert found == Change("fewer", "kernel.py:2", "", 8_000, 128, 10, 6)


def test_a_group_with_too_little_to_give_is_not_named() -> None:
    # 227,016 B, 14,032 too many: only one of the large ones, though two of the small ones are less
    found = space(alive((5, 128, 10_000, "float32"), (2, 128, 3_377, "float32"))).change
    assert found == Change("fewer", "kernel.py:1", "", 40_000, 128, 5, 4)


def test_one_tile_of_a_kind_can_be_half_as_wide() -> None:
    # 120,000 + 100,000 B; 7,016 too many
    found = space(alive((1, 128, 30_000, "float32"), (1, 128, 25_000, "float32"))).change
    assert found == Change("narrower", "kernel.py:2", "", 100_000, 128, 1, 1)


def test_else_it_can_be_shorter_by_what_is_too_much() -> None:
    found = space(alive((1, 128, 60_000, "bfloat16"), (1, 128, 50_000, "bfloat16"))).change
    assert found is not None
    assert (found.kind, found.cut, found.tiles) == ("shorter", 120_000 + 100_000 - 212_984, 1)


def test_a_change_has_to_suffice_at_every_moment() -> None:
    kernel = Kernel()
    for line in (100, 200):  # two moments with nothing in common
        views = []
        for _ in range(3):
            kernel.line = line
            views.append(kernel.sbuf(128, 20_000))
        for _ in range(2):
            for view in views:
                kernel.call("memset", dst=view, value=0.0)
    assert space(kernel).change is None


def test_tiles_of_few_partitions_give_up_what_they_take() -> None:
    # eight of 32 partitions and 40,000 B take 80,000 B of all partitions, one takes 10,000
    found = space(alive((8, 32, 10_000, "float32"), (1, 128, 34_000, "float32"))).change
    # 216,000 B, 3,016 too many
    assert found == Change("fewer", "kernel.py:1", "", 40_000, 32, 8, 7)

"""provenance: which parameters reach which outputs, and which of their elements."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from execute_kit import Kernel, View, counted
from hypothesis import given, settings
from hypothesis import strategies as st

from nkireview.checks import provenance as module
from nkireview.checks.provenance import Provenance, provenance
from nkireview.isa.table import ROWS
from nkireview.program.access import Access, Bound, Index
from nkireview.program.model import Loop
from nkireview.program.storage import whole_accesses

ALL = slice(None)


def paths(kernel: Kernel) -> Provenance:
    return provenance(kernel.program(), kernel.rows)


def reaching(kernel: Kernel, output: int = 0) -> set[str]:
    return set(paths(kernel).outputs[output].parameters)


def add(kernel: Kernel, dst: View, left: View, right: View) -> int:
    return kernel.call("tensor_tensor", dst=dst, data1=left, data2=right, op="add")


def two(kernel: Kernel) -> tuple[View, View]:
    return kernel.load(counted(128, 8)), kernel.load(counted(128, 8))


def test_a_parameter_reaches_what_is_computed_from_it() -> None:
    kernel = Kernel()
    x, _ = two(kernel)
    add(kernel, x, x, x)
    kernel.store(x)
    found = paths(kernel)
    assert set(found.outputs[0].parameters) == {"p0"}
    assert found.complete and found.constant_outputs == ()
    assert [kernel.program().place_text(place) for place in found.outputs[0].writers] == ["kernel.py:9"]


def test_each_output_has_its_own_paths() -> None:
    kernel = Kernel()
    x, y = two(kernel)
    kernel.store(x)
    add(kernel, y, x, y)
    kernel.store(y)
    assert reaching(kernel, 0) == {"p0"}
    assert reaching(kernel, 1) == {"p0", "p1"}


def test_a_constant_output() -> None:
    kernel = Kernel()
    x, _ = two(kernel)
    constant = kernel.sbuf(128, 8)
    kernel.call("memset", dst=constant, value=1.0)
    kernel.store(constant)
    kernel.store(x)
    assert paths(kernel).constant_outputs == (0,)


def test_an_unwritten_output_is_constant() -> None:
    kernel = Kernel()
    two(kernel)
    kernel.output(kernel.hbm(128, 8))
    found = paths(kernel)
    assert found.constant_outputs == (0,) and found.outputs[0].writers == ()


def test_a_full_overwrite_ends_what_was_there() -> None:
    kernel = Kernel()
    x, y = two(kernel)
    t = kernel.sbuf(128, 8)
    kernel.copy(t, x)
    kernel.copy(t, y)
    kernel.store(t)
    assert reaching(kernel) == {"p1"}


@pytest.mark.parametrize("part", [(slice(0, 64),), (ALL, slice(0, 7)), (ALL, slice(0, 8, 2))])
def test_a_part_overwritten_keeps_the_rest(part: tuple[slice, ...]) -> None:
    kernel = Kernel()
    x, y = two(kernel)
    t = kernel.sbuf(128, 8)
    kernel.copy(t, x)
    kernel.copy(t[part], y[part])
    kernel.store(t)
    assert reaching(kernel) == {"p0", "p1"}


def test_an_instruction_that_reads_what_it_overwrites() -> None:
    kernel = Kernel()
    x, y = two(kernel)
    add(kernel, x, x, y)
    kernel.store(x)
    assert reaching(kernel) == {"p0", "p1"}


def test_a_matmul_accumulates_unless_it_says_otherwise() -> None:
    for accumulate, wanted in ((None, {"p0", "p1", "p2"}), (True, {"p0", "p1", "p2"}), (False, {"p0", "p2"})):
        kernel = Kernel()
        w = kernel.load(counted(128, 128))
        x, y = kernel.load(counted(128, 8)), kernel.load(counted(128, 8))
        p, t = kernel.psum(128, 8), kernel.sbuf(128, 8)
        kernel.matmul(p, w, x)
        kernel.matmul(p, w, y, accumulate=accumulate)
        kernel.copy(t, p)
        kernel.store(t)
        assert reaching(kernel) == wanted


def test_the_mode_that_only_writes() -> None:
    kernel = Kernel()
    w, x = kernel.load(counted(128, 128)), kernel.load(counted(128, 128))
    p, t = kernel.psum(128, 128), kernel.sbuf(128, 128)
    kernel.copy(p, w)
    kernel.matmul(p, x, x, is_transpose=True)
    kernel.copy(t, p)
    kernel.store(t)
    assert reaching(kernel) == {"p1"}


def test_a_copy_through_hbm_is_followed() -> None:
    kernel = Kernel()
    x, _ = kernel.argument(counted(128, 8)), kernel.argument(counted(128, 8))
    scratch, t = kernel.hbm(128, 8), kernel.sbuf(128, 4)
    kernel.copy(scratch, x)
    kernel.copy(t, scratch[:, 4:])
    kernel.store(t)
    found = paths(kernel)
    assert set(found.outputs[0].parameters) == {"p0"}
    assert found.coverage("p0", 0).all()


def test_places_tell_through_which_writer_a_parameter_comes() -> None:
    kernel = Kernel()
    x, y = two(kernel)
    out = kernel.hbm(128, 8)
    first = kernel.line + 1
    kernel.copy(out[:, :4], x[:, :4])
    kernel.copy(out[:, 4:], y[:, 4:])
    kernel.output(out)
    program = kernel.program()
    found = provenance(program, ROWS).outputs[0]
    assert [program.place_text(place) for place in found.writers] == [
        f"kernel.py:{first}",
        f"kernel.py:{first + 1}",
    ]
    assert [program.place_text(place) for place in found.parameters["p0"]] == [f"kernel.py:{first}"]
    assert [program.place_text(place) for place in found.parameters["p1"]] == [f"kernel.py:{first + 1}"]


def test_many_writers_share_what_comes_through_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PLACES", 2)
    kernel = Kernel()
    tiles = [kernel.load(counted(128, 1)) for _ in range(4)]
    out = kernel.hbm(128, 4)
    for at, tile in enumerate(tiles):
        kernel.copy(out[:, at : at + 1], tile)
    kernel.output(out)
    found = paths(kernel).outputs[0]
    assert len(found.writers) == 4
    assert sorted(len(places) for places in found.parameters.values()) == [1, 3, 3, 3]


def test_a_returned_parameter_reaches_itself() -> None:
    kernel = Kernel()
    x, y = kernel.argument(counted(128, 8)), kernel.load(counted(128, 8))
    kernel.output(x, alias="p0")
    found = paths(kernel)
    assert found.outputs[0].parameters == {"p0": ()} and found.coverage("p0", 0).all()
    kernel = Kernel()
    x, y = kernel.argument(counted(128, 8)), kernel.load(counted(128, 8))
    kernel.copy(x, y)
    kernel.output(x, alias="p0")
    assert reaching(kernel) == {"p1"}


def test_a_parameter_overwritten_before_it_is_read() -> None:
    kernel = Kernel()
    x, y = kernel.argument(counted(128, 8)), kernel.load(counted(128, 8))
    kernel.copy(x, y)
    t = kernel.sbuf(128, 8)
    kernel.copy(t, x)
    kernel.store(t)
    assert reaching(kernel) == {"p1"}


# coverage


def test_coverage_is_what_live_reads_touch() -> None:
    kernel = Kernel()
    x = kernel.argument(counted(128, 16))
    live, dead = kernel.sbuf(64, 4), kernel.sbuf(128, 4)
    kernel.copy(live, x[32:96, 3:15:3])
    kernel.copy(dead, x[:, 8:12])
    kernel.store(live)
    wanted = np.zeros((128, 16), bool)
    wanted[32:96, 3:15:3] = True
    found = paths(kernel)
    assert np.array_equal(found.coverage("p0", 0), wanted)
    assert found.covers("p0", 0, (slice(0, 33), slice(3, 4)))
    assert not found.covers("p0", 0, (slice(0, 32), ALL))
    assert not found.covers("p0", 0, (ALL, slice(13, 16)))


def test_coverage_of_an_unknown_parameter_or_output() -> None:
    kernel = Kernel()
    kernel.store(kernel.load(counted(4, 4)))
    found = paths(kernel)
    with pytest.raises(KeyError):
        found.coverage("p7", 0)
    with pytest.raises(IndexError):
        found.coverage("p0", 1)


def test_coverage_of_a_parameter_that_does_not_reach() -> None:
    kernel = Kernel()
    x, _ = two(kernel)
    kernel.store(x)
    assert not paths(kernel).covers("p1", 0, (ALL, ALL))


@pytest.mark.parametrize(("dtype", "width"), [("bfloat16", 2), ("float32", 1), ("float8_e5m2", 4)])
def test_coverage_of_a_reinterpreted_parameter(dtype: str, width: int) -> None:
    kernel = Kernel()
    x = kernel.argument(counted(8, 8))
    t = kernel.sbuf(8, 1, dtype=dtype)
    view = x.as_dtype(dtype, 8, 8 * width)
    kernel.copy(t, view[:, 3 * width : 3 * width + 1])
    kernel.store(t)
    wanted = np.zeros((8, 8), bool)
    wanted[:, 3] = True
    assert np.array_equal(paths(kernel).coverage("p0", 0), wanted)


def test_coverage_by_wider_elements() -> None:
    kernel = Kernel()
    x = kernel.argument(counted(8, 8))
    half = kernel.hbm(8, 8, dtype="bfloat16")
    kernel.parameters.append(half.buffer)
    t = kernel.sbuf(8, 1)
    kernel.copy(t, half.as_dtype("float32", 8, 4)[:, 1:2])
    kernel.copy(kernel.sbuf(8, 8), x)
    kernel.store(t)
    wanted = np.zeros((8, 8), bool)
    wanted[:, 2:4] = True
    assert np.array_equal(paths(kernel).coverage("p1", 0), wanted)


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_coverage_is_what_enumerating_the_elements_finds(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    pattern = tuple(
        data.draw(st.lists(st.tuples(st.integers(-5, 5), st.integers(1, 4)), min_size=1, max_size=3))
    )
    base = data.draw(st.integers(-2, 20))
    bounds = ()
    if data.draw(st.booleans()):
        coefficients = data.draw(st.tuples(*[st.integers(-2, 2)] * len(pattern)))
        bounds = (Bound(coefficients, data.draw(st.integers(-3, 6))),)
    kernel = Kernel()
    x = kernel.argument(counted(*shape))
    tile = kernel.sbuf(1, math.prod(count for _, count in pattern))
    access = Access(x.buffer.id, "float32", base, pattern, bounds=bounds)
    kernel.raw("dma_copy", {"dst": tile.access, "src": access})
    kernel.store(tile)
    wanted = np.zeros(math.prod(shape), bool)
    for index in itertools.product(*(range(count) for _, count in pattern)):
        at = base + sum(stride * i for (stride, _), i in zip(pattern, index, strict=True))
        let = all(
            sum(c * i for c, i in zip(b.coefficients, index, strict=True)) + b.constant >= 0 for b in bounds
        )
        if let and 0 <= at < wanted.size:
            wanted[at] = True
    assert np.array_equal(paths(kernel).coverage("p0", 0), wanted.reshape(shape))


def test_coverage_by_a_table_and_by_an_index() -> None:
    kernel = Kernel()
    x, i = kernel.argument(counted(4, 4)), kernel.load(counted(4, 1, dtype=np.int32))
    t, u = kernel.sbuf(1, 3), kernel.sbuf(4, 4)
    table = kernel.builder.constant(np.array([1, 6, 15], np.int64))
    kernel.raw(
        "dma_copy", {"dst": t.access, "src": Access(x.buffer.id, "float32", 0, ((0, 3),), table=table)}
    )
    index = Index("vector", kernel.builder.access(i.access), 0, 4)
    kernel.raw("dma_copy", {"dst": u.access, "src": replace(x.access, index=index)})
    kernel.store(t)
    kernel.store(u)
    found = paths(kernel)
    assert np.flatnonzero(found.coverage("p0", 0)).tolist() == [1, 6, 15]
    assert found.coverage("p0", 1).all()
    assert set(found.outputs[0].parameters) == {"p0"}
    assert set(found.outputs[1].parameters) == {"p0", "p1"}


def test_an_index_taken_from_a_parameter_itself() -> None:
    kernel = Kernel()
    x, i = kernel.argument(counted(4, 4)), kernel.argument(counted(8, 1, dtype=np.int32))
    u = kernel.sbuf(4, 4)
    index = Index("scalar", kernel.builder.access(i[2:3].access), 0, 4)
    kernel.raw("dma_copy", {"dst": u.access, "src": replace(x.access, index=index)})
    kernel.store(u)
    assert np.flatnonzero(paths(kernel).coverage("p1", 0)).tolist() == [2]


def test_the_index_of_what_is_written_counts() -> None:
    kernel = Kernel()
    i, x = kernel.load(counted(128, 1, dtype=np.int32)), kernel.load(counted(128, 8))
    out = kernel.hbm(128, 8)
    index = Index("vector", kernel.builder.access(i.access), 0, 8)
    kernel.raw("dma_copy", {"dst": replace(out.access, index=index), "src": x.access})
    kernel.output(out)
    assert reaching(kernel) == {"p0", "p1"}


# storage


def test_overlapping_addresses_share_what_they_hold() -> None:
    kernel = Kernel()
    x, y = kernel.load(counted(128, 4)), kernel.load(counted(128, 4))
    low = kernel.sbuf(128, 8, address=(0, 0))
    apart = kernel.sbuf(128, 4, address=(0, 32))
    across = kernel.sbuf(128, 8, address=(0, 16))
    kernel.copy(low[:, 4:], x)
    kernel.copy(apart, y)
    kernel.store(across)
    kernel.store(apart)
    assert reaching(kernel, 0) == {"p0", "p1"}
    assert reaching(kernel, 1) == {"p1"}


def test_an_overwrite_ends_what_lies_inside_it() -> None:
    kernel = Kernel()
    x, y = kernel.load(counted(128, 4)), kernel.load(counted(128, 8))
    small, large = kernel.sbuf(128, 4, address=(0, 8)), kernel.sbuf(128, 8, address=(0, 0))
    kernel.copy(small, x)
    kernel.copy(large, y)
    kernel.store(small)
    assert reaching(kernel) == {"p1"}


def test_buffers_at_one_address_are_one_place() -> None:
    kernel = Kernel()
    x, y = kernel.load(counted(128, 4)), kernel.load(counted(128, 4))
    first = kernel.sbuf(128, 4, address=(0, 64))
    second = kernel.sbuf(128, 8, dtype="bfloat16", address=(0, 64))
    kernel.copy(first, x)
    kernel.store(second)
    kernel.copy(first, y)
    kernel.store(first)
    assert reaching(kernel, 0) == {"p0"} and reaching(kernel, 1) == {"p1"}


def test_too_many_overlaps_are_taken_for_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nkireview.program.storage.OVERLAPS", 2)
    kernel = Kernel()
    x, y = kernel.load(counted(128, 4)), kernel.load(counted(128, 4))
    tiles = [kernel.sbuf(128, 4, address=(0, 4 * at)) for at in range(4)]
    kernel.copy(tiles[0], x)
    kernel.copy(tiles[0], y)
    kernel.store(tiles[3])
    assert reaching(kernel) == {"p0", "p1"}


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_a_whole_access_touches_every_element(data: st.DataObject) -> None:
    """Sound by enumeration, and complete for permuted and reversed axes."""
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    pattern = tuple(
        data.draw(st.lists(st.tuples(st.integers(-6, 6), st.integers(1, 4)), min_size=1, max_size=3))
    )
    kernel = Kernel()
    x = kernel.hbm(*shape)
    base = -sum(min(stride * (count - 1), 0) for stride, count in pattern)
    kernel.builder.access(Access(x.buffer.id, "float32", base, pattern))
    kernel.builder.access(replace(x.access, pattern=x.access.pattern[::-1]))
    elements = {
        base + sum(stride * i for (stride, _), i in zip(pattern, index, strict=True))
        for index in itertools.product(*(range(count) for _, count in pattern))
    }
    size = math.prod(count for _, count in pattern)
    whole, permuted = whole_accesses(kernel.program()).tolist()[0], True
    assert whole == (elements == set(range(math.prod(shape))) and size == len(elements))
    assert whole_accesses(kernel.program()).tolist()[-1] == permuted


# loops, registers, streams


def test_a_loop_carries_what_its_end_wrote_to_its_beginning() -> None:
    kernel = Kernel()
    x, _ = two(kernel)
    a, b = kernel.sbuf(128, 8), kernel.sbuf(128, 8)
    with kernel.loop(4):
        kernel.copy(b, a)
        kernel.copy(a, x)
    kernel.store(b)
    assert reaching(kernel) == {"p0"}


def test_a_chain_over_several_trips() -> None:
    kernel = Kernel()
    x, _ = two(kernel)
    tiles = [kernel.sbuf(128, 8) for _ in range(4)]
    with kernel.loop(9):
        for left, right in itertools.pairwise(tiles):
            kernel.copy(left, right)
        kernel.copy(tiles[-1], x)
    kernel.store(tiles[0])
    assert reaching(kernel) == {"p0"}


def test_a_loop_may_run_never_and_replaces_inside_a_trip() -> None:
    kernel = Kernel()
    x, y = two(kernel)
    a, b = kernel.sbuf(128, 8), kernel.sbuf(128, 8)
    kernel.copy(b, x)
    with kernel.loop(("register", 5)):
        kernel.copy(a, x)
        kernel.copy(a, y)
        kernel.copy(b, a)
    kernel.store(b)
    kernel.store(a)
    assert reaching(kernel, 0) == {"p0", "p1"}
    assert reaching(kernel, 1) == {"p1"}


def test_a_parameter_replaced_in_a_loop_still_reaches() -> None:
    kernel = Kernel()
    x, y = kernel.argument(counted(128, 8)), kernel.load(counted(128, 8))
    with kernel.loop(("register", 5)):
        kernel.copy(x, y)
    t = kernel.sbuf(128, 8)
    kernel.copy(t, x)
    kernel.store(t)
    assert reaching(kernel) == {"p0", "p1"}


def test_nested_loops() -> None:
    kernel = Kernel()
    x, _ = two(kernel)
    a, b, c = (kernel.sbuf(128, 8) for _ in range(3))
    with kernel.loop(3):
        kernel.copy(c, b)
        with kernel.loop(3):
            kernel.copy(b, a)
            kernel.copy(a, x)
    kernel.store(c)
    assert reaching(kernel) == {"p0"}


def test_loops_that_are_not_nested_are_taken_to_reach_everything() -> None:
    kernel = Kernel()
    x, _ = two(kernel)
    kernel.store(x)
    program = replace(kernel.program(), loops=(Loop("for", 0, 2, 0, 0, 2), Loop("for", 1, 3, 1, 0, 2)))
    found = provenance(program, ROWS)
    assert not found.complete and set(found.outputs[0].parameters) == {"p0", "p1"}


def test_the_register_of_a_loop_is_a_source() -> None:
    kernel = Kernel()
    n, x = kernel.argument(counted(1, 1, dtype=np.int32)), kernel.load(counted(128, 8))
    t = kernel.sbuf(128, 8)
    kernel.raw("register_load", {"src": n.access}, dst=("register", 3))
    with kernel.loop(("register", 3)):
        kernel.copy(t, x)
    kernel.store(t)
    assert reaching(kernel) == {"p0", "p1"}


def test_a_register_in_an_address_is_a_source() -> None:
    kernel = Kernel()
    n, x = kernel.argument(counted(1, 1, dtype=np.int32)), kernel.argument(counted(128, 8))
    t = kernel.sbuf(1, 8)
    kernel.raw("register_load", {"src": n.access}, dst=("register", 3))
    access = replace(x[0:1].access, index=Index("register", 3, 0, 8))
    kernel.raw("dma_copy", {"dst": t.access, "src": access})
    kernel.store(t)
    assert reaching(kernel) == {"p0", "p1"}


def test_operands_of_an_unknown_row_are_read_and_written() -> None:
    kernel = Kernel()
    x, _ = two(kernel)
    t = kernel.sbuf(128, 8)
    kernel.raw("frobnicate", {"a": t.access, "b": x.access})
    kernel.store(t)
    assert reaching(kernel) == {"p0"}


@pytest.mark.parametrize("reader_first", [True, False])
def test_cores_may_run_in_any_order(reader_first: bool) -> None:
    kernel = Kernel(lnc=2)
    x = kernel.argument(counted(128, 8), shared=True)
    scratch = kernel.hbm(128, 8, shared=True)
    out = kernel.hbm(128, 8, shared=True)

    def write() -> None:
        tile = kernel.sbuf(128, 8)
        kernel.copy(tile, x)
        kernel.copy(scratch, tile)

    def read() -> None:
        tile = kernel.sbuf(128, 8)
        kernel.copy(tile, scratch)
        kernel.copy(out, tile)

    for at, step in enumerate((read, write) if reader_first else (write, read)):
        if at:
            kernel.switch_core()
        step()
    kernel.output(out)
    assert reaching(kernel) == {"p0"}


def test_what_two_cores_write_is_never_ended() -> None:
    kernel = Kernel(lnc=2)
    x, y = (kernel.argument(counted(128, 8), shared=True) for _ in range(2))
    out = kernel.hbm(128, 8, shared=True)
    kernel.copy(out, x)
    kernel.switch_core()
    kernel.copy(out, y)
    kernel.output(out)
    assert reaching(kernel) == {"p0", "p1"}


def test_an_entangled_program_is_taken_to_reach_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROUNDS", 1)
    kernel = Kernel()
    x, _ = two(kernel)
    with kernel.loop(3):
        add(kernel, x, x, x)
    kernel.store(x)
    found = paths(kernel)
    assert not found.complete
    assert set(found.outputs[0].parameters) == {"p0", "p1"} and found.coverage("p1", 0).all()


@given(st.lists(st.tuples(*[st.integers(0, 5)] * 3), min_size=1, max_size=12), st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_straight_programs_against_sets_followed_forwards(steps: list[tuple[int, ...]], last: int) -> None:
    """The oracle carries sets of sources forward through whole-tile additions."""
    kernel = Kernel()
    tiles = [kernel.load(counted(4, 2)) for _ in range(6)]
    sources: list[set[str]] = [{f"p{at}"} for at in range(6)]
    for dst, left, right in steps:
        add(kernel, tiles[dst], tiles[left], tiles[right])
        sources[dst] = sources[left] | sources[right]
    kernel.store(tiles[last])
    assert reaching(kernel) == sources[last]


def values_change(kernel: Kernel, parameter: int) -> list[bool]:
    """Which outputs change in value when a parameter does."""
    before: Any = kernel.run()
    buffer = kernel.parameters[parameter]
    kernel.arguments[buffer.id] = kernel.arguments[buffer.id] + 1
    after: Any = kernel.run()
    return [
        not np.array_equal(old.values, new.values)
        for old, new in zip(before.outputs, after.outputs, strict=True)
    ]


def test_an_input_that_changes_an_output_has_a_path_to_it() -> None:
    kernel = Kernel()
    x, y = two(kernel)
    w = kernel.load(counted(128, 128))
    p, t = kernel.psum(128, 8), kernel.sbuf(128, 8)
    kernel.matmul(p, w, x)
    kernel.copy(t, p)
    kernel.store(t)
    kernel.store(y)
    for parameter, path in enumerate(("p0", "p1", "p2")):
        for output, changed in enumerate(values_change(kernel, parameter)):
            assert changed == (path in paths(kernel).outputs[output].parameters)

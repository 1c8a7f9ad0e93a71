"""Loops, grids and loop_reduce of the legacy generation: which pass runs where, and what the passes give together."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from legacy_tiles_kit import Array, Traced, counted, nisa, nl, numbers, result, stored, traced, values

from nkireview.nki.errors import Refusal
from nkireview.nki.legacy.loops import LaunchGrid, running
from nkireview.nki.trace import active


def filled(source: Any) -> Any:
    """A declared tile with the content of an HBM tensor."""
    tile = nl.ndarray(source.shape, dtype=source.dtype, buffer=nl.sbuf)
    tile[...] = nl.load(source)
    return tile


# grids


@st.composite
def grids(draw: st.DrawFn) -> tuple[Any, tuple[int, ...], list[int]]:
    """A launch grid, its shape, and the core of each instance by the comments of nki/test/test_nki_spmd_grid.py.

    The instances of a dimension a * b are laid out with a as the outer part; nl.nc(n) parts choose the core, the outer
    one first.
    """
    axes, parts = [], []
    for _ in range(draw(st.integers(0, 3))):
        inner = [(draw(st.integers(1, 3)), False) for _ in range(draw(st.integers(1, 2)))]
        parts.append(inner)
    if parts and draw(st.booleans()):
        at = draw(st.integers(0, len(parts) - 1))
        parts[at].insert(draw(st.integers(0, len(parts[at]))), (2, True))
    for inner in parts:
        made = [nl.nc(size) if cores else size for size, cores in inner]
        if len(made) == 1:
            axes.append(made[0])
        elif draw(st.booleans()):
            axes.append(nl.spmd_dim(*made))
        else:
            product = made[0]
            for each in made[1:]:
                product = product * each
            axes.append(product)
    shape = tuple(int(np.prod([size for size, _ in inner])) for inner in parts)
    flat = [part for inner in parts for part in inner]
    cores = []
    for place in itertools.product(*(range(size) for size, _ in flat)):
        core = 0
        for index, (size, own) in zip(place, flat, strict=True):
            core = core * size + index if own else core
        cores.append(core)
    return (tuple(axes) if axes else None), shape, cores


@pytest.mark.oracle("nl.nc", "nl.spmd_dim")
@settings(deadline=None)
@given(grids())
def test_a_grid_has_a_core_for_each_instance(drawn: tuple[Any, tuple[int, ...], list[int]]) -> None:
    grid, shape, cores = drawn
    found = LaunchGrid.of(grid)
    assert (found.shape, list(found.cores), found.lnc) == (shape, cores, max(cores) + 1)


FIRST = [(0, 0), (0, 1), (1, 0), (1, 1)]
ALTERNATE = [(0, 0), (0, 1), (2, 0), (2, 1)]
# nki/test/test_nki_spmd_grid.py: the instances of physical NC 0 of each example
DOCUMENTED: dict[str, tuple[Callable[[], Any], list[tuple[int, int]]]] = {
    "spmd_dim(nc(2), 2), 2": (lambda: (nl.spmd_dim(nl.nc(2), 2), 2), FIRST),
    "nc(2) * 2, 2": (lambda: (nl.nc(2) * 2, 2), FIRST),
    "spmd_dim(2, nc(2)), 2": (lambda: (nl.spmd_dim(2, nl.nc(2)), 2), ALTERNATE),
    "2 * nc(2), 2": (lambda: (2 * nl.nc(2), 2), ALTERNATE),
}


@pytest.mark.oracle("nl.nc", "nl.spmd_dim", "nl.program_id")
@pytest.mark.parametrize("form", DOCUMENTED)
def test_the_cores_of_a_grid_are_the_documented_ones(form: str) -> None:
    make, first = DOCUMENTED[form]
    seen: dict[int, list[tuple[int, int]]] = {0: [], 1: []}

    def kernel(a: Any) -> Any:
        trace = active()
        assert trace is not None
        i, j = nl.program_id(0), nl.program_id(1)
        seen[trace.core].append((i, j))
        b = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        nl.store(b[i, j], nl.load(a[i, j]))
        return b

    a = counted(4, 2, 3, 5)
    found = traced(kernel, a, grid=make())
    assert seen[0] == first
    assert seen[1] == [pair for pair in itertools.product(range(4), range(2)) if pair not in first]
    streams = [(stream.core, stream.instance) for stream in found.program.streams]
    assert sorted(streams) == sorted(
        (int(pair not in first), at) for at, pair in enumerate(itertools.product(range(4), range(2)))
    )
    np.testing.assert_array_equal(result(kernel, a, grid=make()), a)


@pytest.mark.oracle("nl.program_id", "nl.num_programs", "nl.program_ndim")
@pytest.mark.parametrize("grid", [(3,), (2, 3), (2, 1, 3), (2, 2, 1, 2)])
def test_each_instance_knows_its_place(grid: tuple[int, ...]) -> None:
    seen = []

    def kernel(x: Any) -> Any:
        seen.append(tuple(nl.program_id(axis) for axis in range(nl.program_ndim())))
        assert nl.num_programs() == np.prod(grid)
        assert [nl.num_programs(axis) for axis in range(len(grid))] == list(grid)
        assert nl.num_programs((0, len(grid) - 1)) == (grid[0] * grid[-1] if len(grid) > 1 else grid[0] ** 2)
        out = nl.ndarray((*grid, *x.shape), dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out[seen[-1]], nl.multiply(filled(x), float(len(seen))))
        return out

    x = counted(2, 3) + 1
    found = result(kernel, x, grid=grid)
    assert seen == list(itertools.product(*map(range, grid)))
    for at, place in enumerate(seen):
        np.testing.assert_array_equal(found[place], x * (at + 1))


def test_without_a_grid_there_is_one_program() -> None:
    def kernel(x: Any) -> None:
        assert (nl.program_id(0), nl.num_programs(), nl.num_programs(0), nl.program_ndim()) == (0, 1, 1, 0)

    assert traced(kernel, counted(2, 2)).events == [
        "note: nl.program_id(0) is 0, for the kernel is launched without a grid"
    ]


def test_an_instance_keeps_its_sbuf_to_itself() -> None:
    def kernel(x: Any) -> Any:
        out = nl.ndarray((2, *x.shape), dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.zeros(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        tile += nl.multiply(filled(x), float(nl.program_id(0) + 1))
        nl.store(out[nl.program_id(0)], tile)
        return out

    x = counted(4, 3)
    for grid in ((2,), (nl.nc(2),)):
        np.testing.assert_array_equal(result(kernel, x, grid=grid), [x, x * 2])


# loops


@pytest.mark.oracle("nl.affine_range", "nl.sequential_range", "nl.static_range")
@pytest.mark.parametrize("name", ["affine_range", "sequential_range", "static_range"])
@pytest.mark.parametrize("bounds", [(4,), (0,), (2, 5), (1, 8, 3), (8, 1, -3), (np.int64(3),)])
def test_a_loop_gives_the_numbers_of_range(name: str, bounds: tuple[int, ...]) -> None:
    found = []

    def kernel(x: Any) -> None:
        for i in getattr(nl, name)(*bounds):
            trace = active()
            assert trace is not None and list(running(trace).values()) == [i] and isinstance(i, int)
            found.append(i)
        assert running(active()) == {}  # type: ignore[arg-type]

    traced(kernel, counted(2, 2))
    assert found == list(range(*bounds))


def test_loop_indices_make_indices_and_masks() -> None:
    x = counted(10, 8)

    def kernel(x: Any) -> Any:
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        i_p, i_f = nl.arange(4)[:, None], nl.arange(8)[None, :]
        for i in nl.affine_range(3):
            tile = nl.load(x[4 * i + i_p, i_f], mask=4 * i + i_p < 10)
            nl.store(out[i * 4 + i_p, i_f], nl.multiply(tile, i + 1), mask=i * 4 + i_p <= 9)
        return out

    np.testing.assert_array_equal(result(kernel, x), x * np.repeat([1, 2, 3], 4)[:10, None])


def test_a_loop_that_is_left_is_over() -> None:
    def kernel(x: Any) -> None:
        for i in nl.affine_range(4):
            for j in nl.affine_range(4):
                if j == 1:
                    break
            assert list(running(active()).values()) == [i]  # type: ignore[arg-type]

    traced(kernel, counted(2, 2))


# loop_reduce


OPS: dict[str, tuple[Any, Any]] = {
    "add": (np.add, np.add),
    "max": (np.max, np.maximum),
    "min": (nl.minimum, np.minimum),
    "multiply": (np.multiply, np.multiply),
}
Y = numbers(3, 4, 8, 6, seed=5)


def reduced(op: str, values: Array, axis: Any) -> Array:
    found: Array = OPS[op][1].reduce(values.astype(np.float64), axis=axis)
    return found


def check(kernel: Callable[..., Any], counts: dict[str, int], *wanted: Array, y: Array = Y) -> Traced:
    found = traced(kernel, y)
    assert found.counts == counts
    mine = values(kernel, y)
    for each, its in zip(mine, wanted, strict=True):
        np.testing.assert_allclose(each, its, rtol=1e-5, atol=1e-6)
    return found


@pytest.mark.oracle("nl.loop_reduce")
@pytest.mark.parametrize("form", ["assigned", "block", "named", "list"])
@pytest.mark.parametrize("op", OPS)
def test_one_loop_is_reduced(op: str, form: str) -> None:
    def kernel(y: Any) -> Any:
        total = nl.ndarray((2, nl.par_dim(8), 6), dtype=y.dtype)
        held: Any = [None]
        for i in nl.affine_range(4):
            tile = nl.load(y[0, i])
            if form == "assigned":
                total[1] = nl.loop_reduce(tile, op=OPS[op][0], loop_indices=[i])
            elif form == "block":
                rows, columns = nl.arange(8)[:, None], nl.arange(6)[None, :]
                total[1, rows, columns] = nl.loop_reduce(
                    tile[rows, columns], op=OPS[op][0], loop_indices=(i,), mask=None, dtype=np.float32
                )
            elif form == "named":
                held = nl.loop_reduce(tile, OPS[op][0], i)
            else:
                held[0] = nl.loop_reduce(tile, OPS[op][0], loop_indices=i)
        return stored(total[1] if form in ("assigned", "block") else held if form == "named" else held[0])

    counts = {"dma_copy": 5, "tensor_copy": 1, "tensor_tensor": 3}
    check(kernel, counts, reduced(op, Y[0], 0))


@pytest.mark.parametrize("assigned", [True, False])
@pytest.mark.parametrize("order", ["outer", "inner", "both", "swapped"])
def test_two_loops_are_reduced_together_or_one_of_them(order: str, assigned: bool) -> None:
    def kernel(y: Any) -> Any:
        totals = nl.ndarray((4, nl.par_dim(8), 6), dtype=y.dtype)
        held: dict[int, Any] = {}
        for i in nl.affine_range(3):
            for j in nl.affine_range(4):
                at = {"outer": j, "inner": i, "both": 0, "swapped": 0}[order]
                loops = {"outer": [i], "inner": [j], "both": [i, j], "swapped": [j, i]}[order]
                if assigned:
                    totals[at] = nl.loop_reduce(nl.load(y[i, j]), np.max, loop_indices=loops)
                else:
                    held[at] = nl.loop_reduce(nl.load(y[i, j]), np.max, loop_indices=loops)
        count = {"outer": 4, "inner": 3}.get(order, 1)
        return stored(*(totals[at] if assigned else held[at] for at in range(count)))

    wanted = {"outer": Y.max(0), "inner": Y.max(1)}.get(order, Y.max((0, 1))[None])
    counts = {"dma_copy": 12 + len(wanted), "tensor_copy": len(wanted), "tensor_tensor": 12 - len(wanted)}
    check(kernel, counts, *wanted)


@pytest.mark.parametrize("assigned", [True, False])
def test_a_loop_between_two_that_are_reduced_is_not(assigned: bool) -> None:
    y = numbers(3, 2, 4, 8, 6)

    def kernel(y: Any) -> Any:
        totals = nl.ndarray((2, nl.par_dim(8), 6), dtype=y.dtype)
        held: dict[int, Any] = {}
        for i in nl.affine_range(3):
            for k in nl.affine_range(2):
                for j in nl.affine_range(4):
                    if assigned:
                        totals[k] = nl.loop_reduce(nl.load(y[i, k, j]), np.add, loop_indices=[i, j])
                    else:
                        held[k] = nl.loop_reduce(nl.load(y[i, k, j]), np.add, loop_indices=[i, j])
        return stored(*(totals[k] if assigned else held[k] for k in range(2)))

    counts = {"dma_copy": 26, "tensor_copy": 2, "tensor_tensor": 22}
    check(kernel, counts, *reduced("add", y, (0, 2)), y=y)


def test_loops_of_python_and_calls_of_one_line_have_sums_of_their_own() -> None:
    def kernel(y: Any) -> Any:
        def summed(tile: Any, i: Any) -> Any:
            return nl.loop_reduce(tile, np.add, loop_indices=[i])

        held: dict[int, Any] = {}
        twice: Any = None
        for i in nl.affine_range(4):
            for k in range(2):
                held[k] = nl.loop_reduce(nl.load(y[k, i]), np.add, loop_indices=[i])
            twice = summed(nl.load(y[0, i]), i), summed(nl.load(y[2, i]), i)
        return stored(held[0], held[1], *twice)

    sums = reduced("add", Y, 1)
    counts = {"dma_copy": 20, "tensor_copy": 4, "tensor_tensor": 12}
    check(kernel, counts, sums[0], sums[1], sums[0], sums[2])


@pytest.mark.parametrize("assigned", [True, False])
def test_a_loop_that_runs_again_begins_again(assigned: bool) -> None:
    def kernel(y: Any) -> Any:
        total = nl.ndarray((8, 6), dtype=y.dtype)
        found = []
        for k in range(3):
            held = None
            for i in nl.affine_range(4):
                if assigned:
                    total[...] = nl.loop_reduce(nl.load(y[k, i]), np.max, loop_indices=[i])
                else:
                    held = nl.loop_reduce(nl.load(y[k, i]), np.max, loop_indices=[i])
            found.append(stored(total if assigned else held))
        return found

    counts = {"dma_copy": 15, "tensor_copy": 3, "tensor_tensor": 9}
    check(kernel, counts, *Y.max(1))


def test_the_sum_in_the_loop_is_that_of_the_passes_so_far() -> None:
    def kernel(y: Any) -> Any:
        found = []
        for i in nl.affine_range(4):
            total = nl.loop_reduce(nl.load(y[0, i]), np.add, loop_indices=[i])
            found.append(stored(total))
        return found

    wanted = np.cumsum(Y[0].astype(np.float64), axis=0)
    check(kernel, {"dma_copy": 8, "tensor_copy": 1, "tensor_tensor": 3}, *wanted)


@pytest.mark.parametrize("assigned", [True, False])
def test_products_in_psum_are_reduced(assigned: bool) -> None:
    a = numbers(4, 16, 8)

    def kernel(a: Any) -> Any:
        total: Any = nl.zeros((8, 8), dtype=nl.float32, buffer=nl.sbuf)
        for i in nl.affine_range(4):
            bank = nl.zeros((8, 8), dtype=nl.float32, buffer=nl.psum)
            tile = nl.load(a[i])
            bank += nisa.nc_matmul(tile, tile)
            bank += nisa.nc_matmul(tile, tile)
            if assigned:
                total[...] = nl.loop_reduce(bank, op=np.add, loop_indices=[i], dtype=nl.float32)
            else:
                total = nl.loop_reduce(bank, op=np.add, loop_indices=[i], dtype=nl.float32)
        return stored(total)

    counts = {"memset": 1, "dma_copy": 5, "nc_matmul": 8, "tensor_copy": 1, "tensor_tensor": 3}
    wide = a.astype(np.float64)
    check(kernel, counts, 2 * np.einsum("ikm,ikn->mn", wide, wide), y=a)


def test_the_dtype_of_a_sum_is_that_of_what_it_is_assigned_to() -> None:
    y = numbers(4, 8, 6, dtype=ml_dtypes.bfloat16)

    def kernel(y: Any) -> Any:
        wide, narrow = nl.ndarray((8, 6), dtype=nl.float32), nl.ndarray((8, 6), dtype=nl.float32)
        held = None
        for i in nl.affine_range(4):
            wide[...] = nl.loop_reduce(nl.load(y[i]), np.add, [i])
            narrow[...] = nl.loop_reduce(nl.load(y[i]), np.add, [i], dtype=nl.bfloat16)
            held = nl.loop_reduce(nl.load(y[i]), np.add, [i], dtype=nl.float32)
        return stored(wide, narrow, held)

    wide, narrow, held = values(kernel, y)
    exact = y.astype(np.float64).sum(0)
    np.testing.assert_allclose(wide, exact, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(held, exact, rtol=1e-6, atol=1e-6)
    rounded = y[0]
    for each in y[1:]:
        rounded = (rounded.astype(np.float32) + each.astype(np.float32)).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(narrow, rounded.astype(np.float32))


@pytest.mark.parametrize("assigned", [True, False])
@pytest.mark.parametrize("op", ["add", "max"])
@pytest.mark.parametrize("shape", ["constant", "growing", "shrinking", "triangle", "late", "never"])
def test_a_mask_leaves_elements_out_of_a_pass(shape: str, op: str, assigned: bool) -> None:
    def held(i: int, rows: Any, columns: Any) -> Any:
        return {
            "constant": rows < 5,
            "growing": rows < 2 * i + 2,
            "shrinking": (columns > i) & (rows >= i),
            "triangle": rows + columns <= 3 + 2 * i,
            "late": i > 1,
            "never": i > 9,
        }[shape]

    def kernel(y: Any) -> Any:
        rows, columns = nl.arange(8)[:, None], nl.arange(6)[None, :]
        total: Any = nl.ndarray((8, 6), dtype=y.dtype)
        total[...] = 7.0
        for i in nl.affine_range(4):
            tile, mask = nl.load(y[0, i]), held(i, rows, columns)
            if assigned:
                total[...] = nl.loop_reduce(tile, OPS[op][0], loop_indices=[i], mask=mask)
            else:
                total = nl.loop_reduce(tile, OPS[op][0], loop_indices=[i], mask=mask)
        if assigned:
            return stored(total)
        out = nl.ndarray((8, 6), dtype=y.dtype, buffer=nl.shared_hbm)
        nl.store(out, filled(y[0, 0]))
        for i in range(4):  # of a name only what some mask left is known
            nl.store(out, total, mask=held(i, rows, columns))
        return out

    seen = np.zeros((8, 6), np.bool_)
    wanted = np.full((8, 6), 7.0) if assigned else Y[0, 0].astype(np.float64)
    rows, columns = np.arange(8)[:, None], np.arange(6)[None, :]
    for i in range(4):
        now = np.broadcast_to(held(i, rows, columns), (8, 6))
        both = OPS[op][1](wanted, Y[0, i].astype(np.float64))
        wanted = np.where(now & seen, both, np.where(now, Y[0, i], wanted))
        seen = seen | now
    np.testing.assert_allclose(result(kernel, Y), wanted, rtol=1e-5, atol=1e-6)


def test_a_mask_that_is_the_same_in_each_pass_costs_nothing() -> None:
    def kernel(y: Any) -> Any:
        total = nl.zeros((8, 6), dtype=y.dtype)
        for i in nl.affine_range(4):
            tile = nl.load(y[0, i])
            total[...] = nl.loop_reduce(tile, np.add, loop_indices=[i], mask=nl.arange(8)[:, None] < 5)
        return stored(total)

    wanted = reduced("add", Y[0], 0)
    wanted[5:] = 0
    check(kernel, {"memset": 1, "dma_copy": 5, "tensor_copy": 1, "tensor_tensor": 3}, wanted)


def test_numbers_combine_with_what_is_there() -> None:
    # nki/api/nki/language/__init__.py:990-1031 (2.26): loop_indices can be numbers; the destination is an input of op
    def kernel(y: Any) -> Any:
        total = filled(y[1, 0])
        for i in range(4):
            total[...] = nl.loop_reduce(nl.load(y[0, i]), op=np.max, loop_indices=[i])
        return stored(total)

    check(kernel, {"dma_copy": 6, "tensor_tensor": 4}, np.maximum(Y[0].max(0), Y[1, 0]))


REFUSALS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "grid": (
        lambda x: LaunchGrid.of((2, 1.5)),
        "kernel[1.5]: a grid dimension is an integer from 1 on, nl.nc(n) or nl.spmd_dim, got float",
    ),
    "grid size": (
        lambda x: LaunchGrid.of(0),
        "kernel[0]: a grid dimension is an integer from 1 on, nl.nc(n) or nl.spmd_dim, got int",
    ),
    "spmd_dim": (lambda x: nl.spmd_dim(2, "a"), "nl.spmd_dim takes integers from 1 on and nl.nc(n), got str"),
    "spmd_dim size": (
        lambda x: nl.spmd_dim(2, 0),
        "nl.spmd_dim takes integers from 1 on and nl.nc(n), got 0",
    ),
    "nc": (lambda x: nl.nc(0), "nl.nc takes a number of cores, got 0"),
    "nc kind": (lambda x: nl.nc(True), "nl.nc takes a number of cores, got True"),
    "nc product": (lambda x: nl.nc(2) * 1.5, "nl.spmd_dim takes integers from 1 on and nl.nc(n), got float"),
    "axis": (
        lambda x: nl.program_id(1),
        "nl.program_id: there is no axis 1, for the kernel is launched without a grid; launch it over one, as "
        "kernel[4, 2] or with --grid 4,2",
    ),
    "axis kind": (lambda x: nl.program_id("x"), "nl.program_id takes an axis, got 'x'"),
    "bounds": (
        lambda x: list(nl.affine_range(x)),
        "nl.affine_range: bounds must be integers known while tracing, got Tile",
    ),
    "truth": (
        lambda x: list(nl.static_range(True)),
        "nl.static_range: bounds must be integers known while tracing, got bool",
    ),
    "many bounds": (
        lambda x: list(nl.sequential_range(1, 2, 3, 4)),
        "nl.sequential_range takes a stop, or start, stop and step, got 4 arguments",
    ),
    "step": (lambda x: list(nl.affine_range(0, 4, 0)), "nl.affine_range: step must not be 0"),
    "indices": (
        lambda x: nl.loop_reduce(nl.load(x), np.add, loop_indices=["i"]),
        "nl.loop_reduce: loop_indices must be the indices of the loops it reduces over",
    ),
    "no indices": (
        lambda x: nl.loop_reduce(nl.load(x), np.add, loop_indices=[]),
        "nl.loop_reduce: loop_indices must be the indices of the loops it reduces over",
    ),
    "tile": (lambda x: nl.loop_reduce(3, np.add, [0]), "nl.loop_reduce: x must be a tile, got int"),
    "op": (
        lambda x: nl.loop_reduce(nl.load(x), "sum", [0]),
        "nl.loop_reduce: op must be a reduction such as np.add, np.max or np.min, got 'sum'",
    ),
    "numbers": (
        lambda x: nl.copy(nl.loop_reduce(nl.load(x), np.add, loop_indices=[0])),
        "nl.loop_reduce: loop_indices are numbers, which do not say when their loop begins; assign the result to a "
        "tensor with a first value, as in total[...] = nl.loop_reduce(...), or give the indices of nl.affine_range",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_each_refusal_is_one_sentence(case: str) -> None:
    call, message = REFUSALS[case]

    def kernel(x: Any) -> None:
        call(x)

    with pytest.raises(Refusal) as found:
        traced(kernel, counted(4, 4))
    assert str(found.value) == message


def test_an_axis_of_a_grid_is_one_of_its_own() -> None:
    with pytest.raises(Refusal, match=r"^nl.num_programs: axis 2 is not one of the grid's 2$"):
        traced(lambda x: nl.num_programs(2), counted(2, 2), grid=(2, 2))
    traced(lambda x: nl.num_programs(1), counted(2, 2), grid=(2, 2))


def test_a_loop_outside_of_a_kernel_is_refused() -> None:
    with pytest.raises(Refusal, match=r"^nl.affine_range is only available inside a kernel"):
        list(nl.affine_range(3))

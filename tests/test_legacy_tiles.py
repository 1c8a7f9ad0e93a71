"""Tiles of the legacy generation against NumPy: what an index selects, and which instruction an assignment leaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from legacy_tiles_kit import counted, nisa, nl, numbers, result, stored, traced, values
from numpy.typing import NDArray

from nkireview.nki.errors import NotYetSupported, Refusal
from nkireview.nki.legacy import references
from nkireview.nki.legacy.tile import Tile

Array = NDArray[Any]
Case = tuple[Callable[[Any], tuple[Any, ...]], tuple[Any, ...]]
"""The index that a kernel makes of the namespace, and NumPy's."""


# what an index selects


@st.composite
def affine(draw: st.DrawFn, shape: tuple[int, ...], on_chip: bool) -> Case:
    """An index by nl.arange or nl.mgrid, one expression or integer for each dimension."""
    rank = draw(st.integers(2, 3))
    sizes = [draw(st.integers(1, 3)) for _ in range(rank)]
    grid = draw(st.booleans())
    steps: list[list[int]] = []
    bases: list[int] = []
    for dim, size in enumerate(shape):
        # on chip the partitions are the first dimension, and nothing else is
        axes = range(rank) if not on_chip else range(1) if dim == 0 else range(1, rank)
        row = [draw(st.sampled_from([0, 1, 1, 2, -1])) if axis in axes else 0 for axis in range(rank)]
        low = sum(min(step * (count - 1), 0) for step, count in zip(row, sizes, strict=True))
        high = sum(max(step * (count - 1), 0) for step, count in zip(row, sizes, strict=True))
        if high - low >= size:
            row, low, high = [0] * rank, 0, 0
        steps.append(row)
        bases.append(draw(st.integers(-low, size - 1 - high)))
    if on_chip and sizes[0] > 1 and not steps[0][0]:
        steps[0][0], bases[0] = 1, min(bases[0], shape[0] - sizes[0])
    plain = [draw(st.booleans()) and not any(row) for row in steps]

    def index(arange: Any, mgrid: Any) -> tuple[Any, ...]:
        if grid:
            runs: Any = mgrid[tuple(slice(0, size) for size in sizes)]
        else:
            runs = [
                arange(size)[tuple(slice(None) if at == axis else None for at in range(rank))]
                for axis, size in enumerate(sizes)
            ]
        found = []
        for base, row, number in zip(bases, steps, plain, strict=True):
            total: Any = base
            if not number:
                for axis, step in enumerate(row):
                    total = total + step * runs[axis] if step or axis == 0 else total
            found.append(total)
        return tuple(found)

    if all(plain):
        plain[-1] = False
    return (lambda language: index(language.arange, language.mgrid)), index(np.arange, np.mgrid)


@st.composite
def basic(draw: st.DrawFn, shape: tuple[int, ...]) -> Case:
    """An index by slices, nl.ds, integers, an ellipsis; at least the last dimension is kept."""
    mine: list[Any] = []
    its: list[Any] = []
    for dim, size in enumerate(shape):
        kind = draw(st.sampled_from(["all", "slice", "ds", "step", "integer", "negative"]))
        start = draw(st.integers(0, size - 1))
        stop = draw(st.integers(start + 1, size))
        if kind in ("integer", "negative") and dim < len(shape) - 1:
            number = start - size if kind == "negative" else start
            mine.append(number)
            its.append(number)
        elif kind == "ds":
            mine.append(("ds", start, stop - start))
            its.append(slice(start, stop))
        else:
            one = {"all": slice(None), "step": slice(start, stop, 2)}.get(kind, slice(start, stop))
            mine.append(one)
            its.append(one)
    if draw(st.booleans()) and its[-1] == slice(None):
        mine[-1] = Ellipsis
    elif len(shape) > 1 and draw(st.booleans()):
        # an ellipsis in the place of the first dimensions
        mine, its = [Ellipsis, mine[-1]], [Ellipsis, its[-1]]

    def index(language: Any) -> tuple[Any, ...]:
        return tuple(language.ds(*item[1:]) if isinstance(item, tuple) else item for item in mine)

    return index, tuple(its)


def cases(shape: tuple[int, ...], on_chip: bool) -> st.SearchStrategy[list[Case]]:
    return st.lists(affine(shape, on_chip) | basic(shape), min_size=4, max_size=10)


HBM = (7, 5, 6, 8)
CHIP = (8, 5, 6)
BLOCKS = (2, 3)


@pytest.mark.oracle("nl.arange", "nl.mgrid", "nl.ds", "nl.load", "nl.store")
@settings(deadline=None, max_examples=30)
@given(
    st.integers(1, 4).flatmap(lambda rank: st.tuples(st.just(HBM[4 - rank :]), cases(HBM[4 - rank :], False)))
)
def test_a_view_of_hbm_holds_what_numpy_selects(drawn: tuple[tuple[int, ...], list[Case]]) -> None:
    shape, views = drawn
    x = counted(*shape)

    def kernel(x: Any) -> Any:
        loaded = [nl.load(x[mine(nl)]) for mine, _ in views]
        written = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(written[...], nl.load(x))
        for tile, (mine, _) in zip(loaded, views, strict=True):
            fresh = nl.multiply(tile, -1.0)
            nl.store(written[mine(nl)], fresh)
        return stored(*loaded) if len(loaded) > 1 else (stored(*loaded),), written

    *found, written = values(kernel, x)
    wanted = x.copy()
    for mine, (_, its) in zip(found, views, strict=True):
        np.testing.assert_array_equal(mine.reshape(-1), x[its].reshape(-1))
        wanted[its] = -x[its]
    np.testing.assert_array_equal(written, wanted)


@pytest.mark.oracle("nl.arange", "nl.mgrid", "nl.ds", "nl.par_dim", "nl.ndarray", "nl.copy")
@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2), st.booleans(), st.data())
def test_a_view_of_a_tile_holds_what_numpy_selects(blocks: int, marked: bool, data: st.DataObject) -> None:
    sizes = BLOCKS[:blocks]
    views = data.draw(cases(CHIP, True))
    places = [data.draw(st.tuples(*(st.integers(-size, size - 1) for size in sizes))) for _ in views]
    x = counted(*sizes, *CHIP)

    def kernel(x: Any) -> Any:
        first = nl.par_dim(CHIP[0]) if marked or blocks else CHIP[0]
        tile = nl.ndarray((*sizes, first, *CHIP[1:]), dtype=x.dtype, buffer=nl.sbuf)
        assert tile.shape == (*sizes, *CHIP)
        for at in np.ndindex(*sizes):
            tile[tuple(map(int, at)) or ...] = nl.load(x[tuple(map(int, at)) or ...])
        copies = [nl.copy(tile[(*at, *mine(nl))]) for at, (mine, _) in zip(places, views, strict=True)]
        for copy, at, (mine, _) in zip(copies, places, views, strict=True):
            tile[(*at, *mine(nl))] = nl.multiply(copy, -1.0)
        after = [stored(tile[tuple(map(int, at)) or ...]) for at in np.ndindex(*sizes)]
        return [stored(copy) for copy in copies], after

    found = values(kernel, x)
    copies, after = found[: len(views)], found[len(views) :]
    wanted = x.copy()
    for mine, at, (_, its) in zip(copies, places, views, strict=True):
        np.testing.assert_array_equal(mine.reshape(-1), x[at][its].reshape(-1))
        wanted[at][its] = -x[at][its]
    np.testing.assert_array_equal(np.array(after).reshape(wanted.shape), wanted)


@pytest.mark.oracle("nl.mgrid")
def test_a_mesh_grid_is_an_index_as_it_is() -> None:
    # nki/test/test_nki_isa_reciprocal.py: nl.load(in_tensor[nl.mgrid[0:128, 0:512]])
    x = counted(8, 6)

    def kernel(x: Any) -> Any:
        blocks = nl.ndarray((2, nl.par_dim(4), 3), dtype=x.dtype)
        blocks[1] = nl.load(x[nl.mgrid[2:6, 1:6:2]])
        return stored(blocks[1][nl.mgrid[0:4, 0:3]])

    np.testing.assert_array_equal(result(kernel, x), x[2:6, 1:6:2])


# which instruction an assignment leaves


Kernel = Callable[..., Any]


def filled(source: Any) -> Any:
    """A declared tile with the content of an HBM tensor."""
    tile = nl.ndarray(source.shape, dtype=source.dtype, buffer=nl.sbuf)
    tile[...] = nl.load(source)
    return tile


def check(kernel: Kernel, x: Array, counts: dict[str, int], *wanted: Array, rtol: float = 0) -> None:
    """The instructions of a kernel beside loads and stores of `filled` and `stored`, and what it returns."""
    found = traced(kernel, x)
    assert found.counts == counts
    for mine, its in zip(values(kernel, x), wanted, strict=True):
        np.testing.assert_allclose(mine, its, rtol=rtol, atol=rtol)


X = numbers(8, 6)
WIDE = X.astype(np.float64)


@pytest.mark.oracle("nl.load", "nl.ndarray")
def test_a_load_into_a_declared_tile_is_one_dma() -> None:
    check(lambda x: stored(filled(x)), X, {"dma_copy": 2}, X)
    found = traced(lambda x: stored(filled(x)), X).program
    # the parameter, the tile and the output; what a result would have had is gone
    assert len(found.columns.buffer_dtype) == 3


def test_a_result_into_an_indexed_tile_is_one_instruction() -> None:
    def kernel(x: Any) -> Any:
        i, j = nl.arange(8)[:, None], nl.arange(6)[None, :]
        tile, half = nl.ndarray((2, nl.par_dim(8), 6), dtype=x.dtype), nl.ndarray((8, 12), dtype=x.dtype)
        tile[1, i, j] = nl.load(x[i, j])
        tile[0, :, :] = nisa.tensor_scalar(tile[1, i, j], np.add, 1.0)
        half[...] = 0.0
        half[i, 6 + j] = nl.add(tile[0], tile[1])
        half[0:8, 0:6] = nisa.activation(np.square, tile[0])
        return stored(half)

    counts = {"dma_copy": 2, "tensor_scalar": 1, "memset": 1, "tensor_tensor": 1, "activation": 1}
    check(kernel, X, counts, np.concatenate([(WIDE + 1) ** 2, 2 * WIDE + 1], 1), rtol=1e-6)


def test_a_result_that_has_a_name_is_copied() -> None:
    def kernel(x: Any) -> Any:
        tile, other = filled(x), nl.ndarray(x.shape, dtype=x.dtype)
        named = nl.add(tile, 1.0)
        other[...] = named
        tile[...] = nl.multiply(named, 2.0)
        return stored(named, other, tile)

    counts = {"dma_copy": 4, "tensor_scalar": 2, "tensor_copy": 1}
    check(kernel, X, counts, X + 1, X + 1, (X + 1) * 2)


@pytest.mark.parametrize("holder", ["list", "tuple", "attribute", "default"])
def test_a_result_that_anything_else_holds_is_copied(holder: str) -> None:
    class Held:
        tile: Any

    def kernel(x: Any) -> Any:
        tile = filled(x)
        if holder == "list":
            kept = [nl.add(tile, 1.0)]
            tile[...] = kept[0]
            return stored(kept[0], tile)
        if holder == "tuple":
            pair = nl.add(tile, 1.0), 3
            tile[...] = pair[0]
            return stored(pair[0], tile)
        if holder == "attribute":
            held = Held()
            held.tile = nl.add(tile, 1.0)
            tile[...] = held.tile
            return stored(held.tile, tile)
        made = {"tile": nl.add(tile, 1.0)}
        tile[...] = made["tile"]
        return stored(made["tile"], tile)

    check(kernel, X, {"dma_copy": 3, "tensor_scalar": 1, "tensor_copy": 1}, X + 1, X + 1)


def test_two_results_that_are_exchanged_are_both_computed_first() -> None:
    def kernel(x: Any) -> Any:
        a, b = filled(x), filled(x)
        b[...] = nl.multiply(b, 3.0)
        a[...], b[...] = nl.add(b, 1.0), nl.add(a, 2.0)
        return stored(a, b)

    found = values(kernel, X)
    np.testing.assert_array_equal(found[0], X * np.float32(3) + 1)
    np.testing.assert_array_equal(found[1], X + 2)


def test_what_an_index_computes_comes_after_the_result() -> None:
    def kernel(x: Any) -> Any:
        tile = filled(x)

        def rows() -> slice:
            nl.store(x, tile)  # reads the tile between the result and its assignment
            return slice(0, 4)

        tile[rows(), :] = nl.add(tile[4:8, :], 1.0)
        return stored(tile), x

    changed, before = values(kernel, X)
    np.testing.assert_array_equal(before, X)
    np.testing.assert_array_equal(changed, np.concatenate([X[4:] + 1, X[4:]]))


def test_a_name_is_looked_for_where_references_do_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    # from Python 3.14 on a statement borrows what a name of its frame holds
    monkeypatch.setattr(references, "BORROWED", True)
    monkeypatch.setattr(references, "STORED", 99)
    monkeypatch.setattr(references, "ADDED", 99)
    test_a_result_that_has_a_name_is_copied()
    test_a_load_into_a_declared_tile_is_one_dma()
    test_a_product_that_has_a_name_stays_what_it_is()


BF16 = ml_dtypes.bfloat16
KEPT: dict[tuple[str, str], bool] = {
    # written at once: no value that rounding to the first dtype first would have changed less
    ("float32", "float32"): True,
    ("float32", "bfloat16"): True,
    ("float32", "float16"): True,
    ("bfloat16", "bfloat16"): True,
    ("bfloat16", "float32"): False,
    ("bfloat16", "float16"): False,
    ("float16", "bfloat16"): False,
    ("float32", "int32"): False,
    ("int32", "float32"): False,
}


@pytest.mark.parametrize(("first", "last"), KEPT)
def test_a_result_is_not_widened_silently(first: str, last: str) -> None:
    x = (numbers(8, 6) * 100).astype(np.float32)

    def kernel(x: Any) -> Any:
        tile = nl.ndarray(x.shape, dtype=getattr(nl, last), buffer=nl.sbuf)
        tile[...] = nisa.tensor_scalar(filled(x), np.multiply, 1.0, dtype=getattr(nl, first))
        return stored(tile)

    copies = 0 if KEPT[first, last] else 1
    assert traced(kernel, x).counts.get("tensor_copy", 0) == copies
    kinds = {"bfloat16": BF16, "float32": np.float32, "float16": np.float16, "int32": np.int32}
    narrow = np.rint(x) if first == "int32" else x
    narrow = narrow.astype(kinds[first])
    wanted = np.rint(narrow.astype(np.float64)) if last == "int32" else narrow
    np.testing.assert_array_equal(result(kernel, x), np.asarray(wanted).astype(kinds[last]))


def test_a_result_goes_into_another_memory_where_its_instruction_can_write_it() -> None:
    def kernel(x: Any) -> Any:
        bank = nl.ndarray(x.shape, dtype=np.float32, buffer=nl.psum)
        bank[...] = nl.add(filled(x), 1.0)  # the Vector engine writes PSUM
        tile = nl.ndarray((6, 6), dtype=np.float32, buffer=nl.sbuf)
        tile[...] = nisa.nc_matmul(filled(x), filled(x))  # a matmul writes nothing else
        return stored(nl.copy(bank), tile)

    counts = {"dma_copy": 5, "tensor_scalar": 1, "nc_matmul": 1, "tensor_copy": 2}
    check(kernel, X, counts, X + 1, WIDE.T @ WIDE, rtol=1e-5)


def test_a_dma_does_not_write_psum() -> None:
    def kernel(x: Any) -> Any:
        bank = nl.ndarray(x.shape, dtype=np.float32, buffer=nl.psum)
        bank[...] = nl.load(x)
        return stored(nl.copy(bank))

    check(kernel, X, {"dma_copy": 2, "tensor_copy": 2}, X)


def test_a_masked_result_writes_its_part_alone() -> None:
    def kernel(x: Any) -> Any:
        tile, i = filled(x), nl.arange(8)[:, None]
        tile[...] = nl.multiply(tile, 3.0, mask=i < 5)
        tile[...] = nl.multiply(tile, 3.0, mask=i < 0)
        tile[...] = nl.multiply(tile, 2.0, mask=i + nl.arange(6)[None, :] > 9)
        return stored(tile)

    rows, columns = np.indices((8, 6))
    wanted = np.where(rows < 5, X * np.float32(3), X)
    check(kernel, X, {"dma_copy": 2, "tensor_scalar": 2}, np.where(rows + columns > 9, wanted * 2, wanted))


def test_a_broadcast_is_a_copy() -> None:
    def kernel(x: Any) -> Any:
        tile, wide = filled(x), nl.ndarray(x.shape, dtype=x.dtype)
        wide[...] = nl.max(tile, axis=1, keepdims=True)
        return stored(wide)

    counts = {"dma_copy": 2, "tensor_reduce": 1, "tensor_copy": 1}
    check(kernel, X, counts, np.broadcast_to(X.max(1, keepdims=True), X.shape))


def test_a_tile_keeps_its_name_and_its_address() -> None:
    def kernel(x: Any) -> Any:
        tile = nl.ndarray((2, nl.par_dim(8), 6), dtype=x.dtype, name="held")
        tile[0] = nl.load(x)
        tile[1, nl.arange(8)[:, None], nl.arange(6)[None, :]] = nl.add(tile[0], 1.0)
        return stored(tile[0], tile[1])

    program = traced(kernel, X).program
    names = [program.buffer(at).name for at in range(len(program.columns.buffer_dtype))]
    assert names.count("held[0]") == names.count("held[1]") == 1
    for mine, wanted in zip(values(kernel, X), (X, X + 1), strict=True):
        np.testing.assert_array_equal(mine, wanted)


# products in PSUM


A, B = numbers(32, 16, seed=1), numbers(32, 24, seed=2)
PRODUCT = A.astype(np.float64).T @ B.astype(np.float64)


def product(body: Callable[[Any, Any], Any]) -> tuple[dict[str, int], list[Array]]:
    """Instructions, but for loads and stores, and results of a kernel on two loaded tiles."""

    def kernel(a: Any, b: Any) -> Any:
        found = body(filled(a), filled(b))
        return stored(*(found if isinstance(found, tuple) else (found,)))

    counts = traced(kernel, A, B).counts
    counts.pop("dma_copy")
    return counts, values(kernel, A, B)


def accumulates(kernel: Kernel) -> list[bool]:
    """The accumulate flag of each matmul."""
    program = traced(kernel, A, B).program
    immediates = [program.immediates[row] for row in program.columns.immediates.tolist()]
    return [bool(row["accumulate"]) for row in immediates if "accumulate" in row]


def zeros(shape: Any = (16, 24)) -> Any:
    return nl.zeros(shape, dtype=np.float32, buffer=nl.psum)


@pytest.mark.oracle("nisa.nc_matmul", "nl.zeros", "nl.affine_range")
def test_products_that_a_loop_adds_need_no_zeros() -> None:
    def body(a: Any, b: Any) -> Any:
        total = zeros()
        for _ in nl.affine_range(3):
            total += nisa.nc_matmul(a, b)
        return nl.copy(total)

    counts, (found,) = product(body)
    assert counts == {"nc_matmul": 3, "tensor_copy": 1}
    np.testing.assert_allclose(found, 3 * PRODUCT, rtol=1e-5, atol=1e-5)
    assert accumulates(lambda a, b: stored(body(filled(a), filled(b)))) == [False, True, True]


def test_parts_of_a_bank_are_accumulated_each() -> None:
    def body(a: Any, b: Any) -> Any:
        total, i = zeros(), nl.arange(16)[:, None]
        for half in nl.affine_range(2):
            j = 12 * half + nl.arange(12)[None, :]
            for _ in nl.affine_range(2):
                total[i, j] += nisa.nc_matmul(a, b[nl.arange(32)[:, None], j])
        return nl.copy(total)

    counts, (found,) = product(body)
    assert counts == {"nc_matmul": 4, "tensor_copy": 1}
    np.testing.assert_allclose(found, 2 * PRODUCT, rtol=1e-5, atol=1e-5)
    assert accumulates(lambda a, b: stored(body(filled(a), filled(b)))) == [False, True] * 2


def test_zeros_that_are_read_before_a_product_are_written() -> None:
    def body(a: Any, b: Any) -> Any:
        total = zeros()
        before = nl.copy(total)
        total += nisa.nc_matmul(a, b)
        return before, nl.copy(total)

    counts, (before, found) = product(body)
    # what memset wrote is no product: the matmul has a bank of its own, and the sum is the Vector engine's
    assert counts == {"memset": 1, "nc_matmul": 1, "tensor_tensor": 1, "tensor_copy": 3}
    np.testing.assert_array_equal(before, 0)
    np.testing.assert_allclose(found, PRODUCT, rtol=1e-5, atol=1e-5)


def test_zeros_around_a_product_are_written_once() -> None:
    def body(a: Any, b: Any) -> Any:
        total = zeros((16, 40))
        total[:, 8:32] += nisa.nc_matmul(a, b)
        return nl.copy(total), nl.copy(total)

    counts, found = product(body)
    assert counts == {"nc_matmul": 1, "memset": 2, "tensor_copy": 2}
    wanted = np.zeros((16, 40))
    wanted[:, 8:32] = PRODUCT
    for each in found:
        np.testing.assert_allclose(each, wanted, rtol=1e-5, atol=1e-5)


def test_a_product_that_covers_a_part_of_others_is_added_apart() -> None:
    def body(a: Any, b: Any) -> Any:
        total = zeros()
        total[:, 0:12] += nisa.nc_matmul(a, b[:, 0:12])
        total += nisa.nc_matmul(a, b)
        return nl.copy(total)

    counts, (found,) = product(body)
    assert counts == {"nc_matmul": 2, "memset": 1, "tensor_copy": 2, "tensor_tensor": 1}
    wanted = PRODUCT.copy()
    wanted[:, :12] *= 2
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_a_product_that_is_assigned_begins_a_sum() -> None:
    def body(a: Any, b: Any) -> Any:
        total = nl.ndarray((16, 24), dtype=np.float32, buffer=nl.psum)
        total[...] = nisa.nc_matmul(a, b)
        total += nisa.nc_matmul(a, b)
        total[...] = nisa.nc_matmul(a, b)
        total[...] += nisa.nc_matmul(a, b)
        return nl.copy(total)

    counts, (found,) = product(body)
    assert counts == {"nc_matmul": 4, "tensor_copy": 1}
    np.testing.assert_allclose(found, 2 * PRODUCT, rtol=1e-5, atol=1e-5)
    flags = accumulates(lambda a, b: stored(body(filled(a), filled(b))))
    assert flags == [False, True, False, True]


@pytest.mark.parametrize("written", ["copy", "number", "add"])
def test_a_product_onto_anything_else_is_added_by_another_engine(written: str) -> None:
    def body(a: Any, b: Any) -> Any:
        total = zeros()
        if written == "copy":
            total[...] = b[0:16, :]
        elif written == "number":
            total[...] = 2.0
        else:
            total += b[0:16, :]
        total += nisa.nc_matmul(a, b)
        return nl.copy(total)

    counts, (found,) = product(body)
    assert counts["nc_matmul"] == 1 and counts["tensor_tensor"] == (2 if written == "add" else 1)
    assert accumulates(lambda a, b: stored(body(filled(a), filled(b)))) == [False]
    first = 2.0 if written == "number" else B[:16]
    np.testing.assert_allclose(found, PRODUCT + first, rtol=1e-5, atol=1e-5)


def test_a_product_that_has_a_name_stays_what_it_is() -> None:
    def body(a: Any, b: Any) -> Any:
        total = zeros()
        total += nisa.nc_matmul(a, b)
        one = nisa.nc_matmul(a, b)
        total += one
        return nl.copy(one), nl.copy(total)

    counts, (one, total) = product(body)
    assert counts == {"nc_matmul": 2, "tensor_copy": 3, "tensor_tensor": 1}
    np.testing.assert_allclose(one, PRODUCT, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(total, 2 * PRODUCT, rtol=1e-5, atol=1e-5)


def test_blocks_of_psum_are_banks_of_their_own() -> None:
    def body(a: Any, b: Any) -> Any:
        total = zeros((3, nl.par_dim(16), 24))
        for block in nl.affine_range(3):
            for _ in nl.affine_range(2):
                total[block] += nisa.nc_matmul(a, nl.multiply(b, float(block + 1)))
        return tuple(nl.copy(total[block]) for block in range(3))

    counts, found = product(body)
    assert counts == {"nc_matmul": 6, "tensor_scalar": 6, "tensor_copy": 3}
    for block, each in enumerate(found):
        np.testing.assert_allclose(each, 2 * (block + 1) * PRODUCT, rtol=1e-5, atol=1e-4)


@pytest.mark.oracle("nl.matmul")
def test_a_masked_product_is_added_to_its_part() -> None:
    def body(a: Any, b: Any) -> Any:
        total, m, n = zeros(), nl.arange(16)[None, :], nl.arange(24)[None, :]
        total += nl.matmul(a[m < 10], b[n < 20], transpose_x=True)
        total += nl.matmul(a[m < 10], b[n < 20], transpose_x=True)
        return nl.copy(total)

    counts, (found,) = product(body)
    assert counts == {"nc_matmul": 2, "memset": 2, "tensor_copy": 1}
    wanted = np.zeros((16, 24))
    wanted[:10, :20] = 2 * PRODUCT[:10, :20]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


# in place


@pytest.mark.oracle("nl.add", "nl.subtract", "nl.multiply", "nl.divide")
@pytest.mark.parametrize("view", ["tile", "...", "slice", "arange", "block", "table"])
@pytest.mark.parametrize("op", ["+=", "-=", "*=", "/="])
def test_what_is_changed_in_place_is_one_instruction(op: str, view: str) -> None:
    x = numbers(8, 6) + 3

    def kernel(x: Any) -> Any:
        i, j = nl.arange(8)[:, None], nl.arange(6)[None, :]
        blocks = nl.ndarray((2, nl.par_dim(8), 6), dtype=x.dtype)
        blocks[0] = nl.load(x)
        blocks[1] = nl.load(x)
        tile, other = blocks[1], blocks[0]
        if view == "tile":
            if op == "+=":
                tile += other
            elif op == "-=":
                tile -= other
            elif op == "*=":
                tile *= other
            else:
                tile /= other
            return stored(blocks[1])
        target = {"...": tile, "slice": tile, "arange": tile, "block": blocks, "table": tile}[view]
        at = {
            "...": ...,
            "slice": (slice(0, 8), slice(0, 6)),
            "arange": (i, j),
            "block": 1,
            "table": (i, (j + 2) % 6),
        }[view]
        if op == "+=":
            target[at] += other
        elif op == "-=":
            target[at] -= other
        elif op == "*=":
            target[at] *= other
        else:
            target[at] /= other
        return stored(blocks[1])

    turned = np.roll(x, 2, axis=1) if view == "table" else x
    wanted = {"+=": x + turned, "-=": x - turned, "*=": x * turned, "/=": x / turned}[op]
    copies = {"tensor_copy": 1} if view == "table" and op != "+=" else {}
    check(kernel, x, {"dma_copy": 3, "tensor_tensor": 1, **copies}, wanted, rtol=1e-6)


@pytest.mark.parametrize("op", ["&=", "|=", "^=", "<<=", ">>="])
def test_bits_are_changed_in_place(op: str) -> None:
    x = np.random.default_rng(0).integers(0, 100, (8, 6)).astype(np.int32)
    wanted, more = x.copy(), np.full_like(x, 3)

    def kernel(x: Any) -> Any:
        tile = filled(x)
        kept = tile
        exec(f"tile {op} 3", {}, {"tile": tile})
        return stored(kept)

    exec(f"wanted {op} more", {}, {"wanted": wanted, "more": more})
    check(kernel, x, {"dma_copy": 2, "tensor_scalar": 1}, wanted)


def test_a_number_is_added_in_place() -> None:
    def kernel(x: Any) -> Any:
        tile = filled(x)
        tile += 1.5
        tile[0:4, :] *= np.float32(2)
        tile -= np.float64(0.5)
        return stored(tile)

    wanted = X + np.float32(1.5)
    wanted[:4] *= 2
    check(kernel, X, {"dma_copy": 2, "tensor_scalar": 3}, wanted - np.float32(0.5))


# indices that are not affine


def test_an_index_that_is_not_affine_selects_what_numpy_selects() -> None:
    x = counted(8, 12)

    def kernel(x: Any) -> Any:
        i, j = nl.arange(8)[:, None], nl.arange(6)[None, :]
        tile = filled(x)
        odd = tile[i, (5 * j) % 12]
        loaded = nl.load(x[i // 2, j * 2])
        part, whole = nl.copy(odd[2:5, 1:4]), nl.copy(odd[...])
        tile[i, (5 * j) % 12] = nl.multiply(whole, -1.0)
        return stored(loaded, part, whole, tile)

    rows, columns = np.arange(8)[:, None], np.arange(6)[None, :]
    loaded, part, whole, tile = values(kernel, x)
    np.testing.assert_array_equal(loaded, x[rows // 2, columns * 2])
    np.testing.assert_array_equal(whole, x[rows, (5 * columns) % 12])
    np.testing.assert_array_equal(part, whole[2:5, 1:4])
    x[rows, (5 * columns) % 12] *= -1
    np.testing.assert_array_equal(tile, x)


# refusals


def tile_of(*shape: Any, **more: Any) -> Any:
    return nl.ndarray(shape, dtype=np.float32, **more)


REFUSALS: dict[str, tuple[Callable[[Any, Any, Any, Any], Any], type[Exception], str]] = {
    "one dimension": (
        lambda x, t, i, j: t[nl.arange(8), 0],
        Refusal,
        "nl.arange as an index has one dimension, expected two or more: write nl.arange(n)[:, None] or "
        "nl.arange(n)[None, :]",
    ),
    "mixed": (
        lambda x, t, i, j: t[i, :],
        Refusal,
        "tensor held is indexed by slices and by index expressions at once; use one kind: slices and nl.ds, or "
        "nl.arange and nl.mgrid for each dimension",
    ),
    "new axis": (
        lambda x, t, i, j: t[i, None, j],
        Refusal,
        "tensor held is indexed by slices and by index expressions at once; use one kind: slices and nl.ds, or "
        "nl.arange and nl.mgrid for each dimension",
    ),
    "ellipsis": (
        lambda x, t, i, j: t[..., j],
        Refusal,
        "tensor held is indexed by slices and by index expressions at once; use one kind: slices and nl.ds, or "
        "nl.arange and nl.mgrid for each dimension",
    ),
    "broadcast": (
        lambda x, t, i, j: t[i, nl.arange(5)[:, None]],
        Refusal,
        "the index expressions of shapes (8, 1), (5, 1) do not broadcast",
    ),
    "few": (lambda x, t, i, j: x[i], Refusal, "1 indices are given to the 2-D tensor p0"),
    "many": (lambda x, t, i, j: t[i, j, 0], Refusal, "3 indices are given to the 2-D tensor held"),
    "many slices": (lambda x, t, i, j: t[:, :, :], Refusal, "3 indices are given to the 2-D tensor held"),
    "kind": (lambda x, t, i, j: t[i, 1.5], Refusal, "index of dimension 1 is a float, expected an integer"),
    "truth": (lambda x, t, i, j: t[i, True], Refusal, "index of dimension 1 is a bool, expected an integer"),
    "partitions": (
        lambda x, t, i, j: t[nl.arange(6)[None, :], i],
        Refusal,
        "an index of an on-chip tensor has the partitions in its first dimension, and there alone: dimension 0 is "
        "indexed by nl.arange(n)[:, None], the others by nl.arange(n)[None, :]",
    ),
    "diagonal": (
        lambda x, t, i, j: t[i, i + j],
        Refusal,
        "an index of an on-chip tensor has the partitions in its first dimension, and there alone: dimension 0 is "
        "indexed by nl.arange(n)[:, None], the others by nl.arange(n)[None, :]",
    ),
    "rows of one partition": (
        lambda x, t, i, j: t[0, i],
        Refusal,
        "an index of an on-chip tensor has the partitions in its first dimension, and there alone: dimension 0 is "
        "indexed by nl.arange(n)[:, None], the others by nl.arange(n)[None, :]",
    ),
    "diagonal table": (
        lambda x, t, i, j: t[i, (i + j) % 6],
        Refusal,
        "an index of an on-chip tensor has the partitions in its first dimension, and there alone: dimension 0 is "
        "indexed by nl.arange(n)[:, None], the others by nl.arange(n)[None, :]",
    ),
    "block kind": (
        lambda x, t, i, j: tile_of(4, nl.par_dim(8), 6, name="b")[i, i, j],
        Refusal,
        "block dimension 0 of tensor b is indexed by a Symbol, expected an integer known while tracing: each block is "
        "a tile of its own",
    ),
    "block slice": (
        lambda x, t, i, j: tile_of(4, nl.par_dim(8), 6, name="b")[0:2],
        Refusal,
        "block dimension 0 of tensor b is indexed by a slice, expected an integer known while tracing: each block is "
        "a tile of its own",
    ),
    "block beyond": (
        lambda x, t, i, j: tile_of(4, nl.par_dim(8), 6, name="b")[4],
        Refusal,
        "block index 4 is outside of the 4 blocks of tensor b",
    ),
    "block before": (
        lambda x, t, i, j: tile_of(4, nl.par_dim(8), 6, name="b")[-5, i, j],
        Refusal,
        "block index -5 is outside of the 4 blocks of tensor b",
    ),
    "blocks left": (
        lambda x, t, i, j: nl.copy(tile_of(4, 2, nl.par_dim(8), 6, name="b")[1]),
        Refusal,
        "tensor b has block dimensions (2) left; an instruction takes one tile: index them",
    ),
    "blocks skipped": (
        lambda x, t, i, j: tile_of(4, 2, nl.par_dim(8), 6, name="b")[1, ..., 0],
        Refusal,
        "tensor b has 1 more block dimensions than are indexed before its tile is",
    ),
    "all blocks skipped": (
        lambda x, t, i, j: tile_of(4, nl.par_dim(8), 6, name="b")[..., 0],
        Refusal,
        "tensor b has 1 more block dimensions than are indexed before its tile is",
    ),
    "two marks": (
        lambda x, t, i, j: tile_of(nl.par_dim(8), nl.par_dim(6)),
        Refusal,
        "nl.ndarray: nl.par_dim marks 2 dimensions, a tensor has one partition dimension",
    ),
    "size": (
        lambda x, t, i, j: tile_of(8, 0),
        Refusal,
        "nl.ndarray: shape (8, 0) has a dimension below 1",
    ),
    "size kind": (
        lambda x, t, i, j: tile_of(8, 6.0),
        Refusal,
        "nl.ndarray: shape holds a float, expected integers known while tracing",
    ),
    "two index tiles": (
        lambda x, t, i, j: x[t, t],
        NotYetSupported,
        "not yet supported: a tensor indexed by two index tiles",
    ),
    "part of a gather": (
        lambda x, t, i, j: x[t[i, 0], j][0:4],
        NotYetSupported,
        "not yet supported: a part of a tensor that is indexed by an index tile",
    ),
    "index of a gather": (
        lambda x, t, i, j: x[t[i, 0], j][i, j],
        NotYetSupported,
        "not yet supported: an index of a tensor that is indexed by an index tile, or by // or % of nl.arange",
    ),
    "reshape": (
        lambda x, t, i, j: t[i, j % 2].reshape((4, 12)),
        NotYetSupported,
        "not yet supported: reshape of a tensor indexed by an index tile, or by // or % of nl.arange",
    ),
    "view": (
        lambda x, t, i, j: t[i, j % 2].view(nl.int32),
        NotYetSupported,
        "not yet supported: view of a tensor indexed by an index tile, or by // or % of nl.arange",
    ),
    "view of nothing": (lambda x, t, i, j: t.view(), Refusal, "view takes a dtype"),
    "shape": (
        lambda x, t, i, j: t.assert_shape((8, 7)),
        Refusal,
        "tensor held has shape (8, 6), expected (8, 7)",
    ),
    "index": (
        lambda x, t, i, j: range(t),
        Refusal,
        "tensor held has no value while the kernel is traced, an index of it cannot be taken",
    ),
    "float": (
        lambda x, t, i, j: float(t),
        Refusal,
        "tensor held has no value while the kernel is traced, float() of it cannot be taken",
    ),
    "int": (
        lambda x, t, i, j: int(t),
        Refusal,
        "tensor held has no value while the kernel is traced, int() of it cannot be taken",
    ),
    "array": (
        lambda x, t, i, j: np.asarray(t),
        Refusal,
        "tensor held has no value while the kernel is traced, a NumPy array of it cannot be taken",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_each_refusal_is_one_sentence(case: str) -> None:
    call, kind, message = REFUSALS[case]

    def kernel(x: Any) -> Any:
        call(x, tile_of(8, 6, name="held"), nl.arange(8)[:, None], nl.arange(6)[None, :])

    with pytest.raises(kind) as found:
        traced(kernel, counted(8, 6))
    assert str(found.value) == message


@pytest.mark.parametrize(
    ("index", "event"),
    [
        (lambda i, j: (i, j + 1), "index 1:7 of dimension 1 (size 6)"),
        (lambda i, j: (i - 1, j), "index -1:7 of dimension 0 (size 8)"),
        (lambda i, j: (i, 6 + 0 * j), "index 6 of dimension 1 (size 6)"),
        (lambda i, j: (i, (j % 4) * 2), "index 0:7 of dimension 1 (size 6)"),
        (lambda i, j: (i, 7), "index 7 of dimension 1 (size 6)"),
    ],
)
def test_an_index_beyond_a_dimension_is_noted(index: Any, event: str) -> None:
    def kernel(x: Any, index: Any) -> Any:
        i, j = nl.arange(8)[:, None], nl.arange(6)[None, :]
        return stored(nl.load(x[index(i, j)]))

    x = counted(8, 6)
    (found,) = traced(lambda x: kernel(x, index), x).events
    assert found == f"overrun: {event} of tensor p0 runs into other elements of its memory"
    assert traced(lambda x: kernel(x, lambda i, j: (i, 5 - j)), x).events == []


def test_the_truth_of_a_tensor_is_true_and_noted() -> None:
    def kernel(x: Any) -> Any:
        assert bool(x[0:4, 0:2]) is True
        assert len(tile_of(4, nl.par_dim(8), 6)) == 4

    found = traced(kernel, counted(8, 6))
    assert found.events == ["truth: the truth of tensor p0 was asked for and is True"]


def test_a_tile_says_what_it_is() -> None:
    def kernel(x: Any) -> Any:
        tile = tile_of(4, nl.par_dim(8), 6, name="held", buffer=nl.psum)
        assert (tile.shape, tile.ndim, tile.size, tile.itemsize) == ((4, 8, 6), 3, 192, 4)
        assert tile.dtype == np.float32 and tile.buffer == nl.psum and tile.on_chip
        part = tile[2, nl.arange(8)[:, None], nl.arange(3)[None, :]]
        assert repr(part) == "Tile((8, 3), float32, psum, held)"
        assert isinstance(part, Tile) and part.assert_shape((8, 3)) is part
        assert nl.ndarray((4, 2), dtype=nl.tfloat32).dtype == nl.tfloat32
        assert x.name == "p0" and x[0:2].name == "p0"

    assert traced(kernel, counted(8, 6)).counts == {}

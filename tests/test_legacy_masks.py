"""Masks of the legacy generation against NumPy: what they leave is computed, everything else is untouched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from legacy_tiles_kit import Array, counted, masks, nisa, nl, numbers, result, stored, traced, values
from numpy.typing import NDArray

from nkireview.nki.errors import NotYetSupported, Refusal

Made = tuple[Callable[[Any], Any], NDArray[np.bool_]]
SHAPES = ((6, 7), (5, 3, 4), (4, 1), (1, 9))
drawn = st.sampled_from(SHAPES).flatmap(
    lambda shape: st.tuples(st.just(shape), st.lists(masks(shape), min_size=3, max_size=6))
)


def axes(shape: tuple[int, ...], language: Any = nl) -> tuple[Any, ...]:
    """One nl.arange for each dimension."""
    return tuple(
        language.arange(size)[tuple(slice(None) if at == dim else None for at in range(len(shape)))]
        for dim, size in enumerate(shape)
    )


def filled(source: Any) -> Any:
    """A declared tile with the content of an HBM tensor."""
    tile = nl.ndarray(source.shape, dtype=source.dtype, buffer=nl.sbuf)
    tile[...] = nl.load(source)
    return tile


@pytest.mark.oracle("nl.load", "nl.store", "nl.arange")
@settings(deadline=None, max_examples=40)
@given(drawn)
def test_loads_and_stores_move_what_a_mask_leaves(case: tuple[tuple[int, ...], list[Made]]) -> None:
    shape, made = case
    x, y = counted(*shape), -counted(*shape) - 1

    def kernel(x: Any, y: Any) -> Any:
        found = []
        for make, _ in made:
            mask, places = make(nl.arange), axes(shape)
            tile = filled(y)
            tile[places] = nl.load(x[places], mask=mask)
            out = nl.ndarray(shape, dtype=x.dtype, buffer=nl.shared_hbm)
            nl.store(out, filled(y))
            nl.store(out[places], value=filled(x)[places], mask=mask)
            found += [stored(tile), out]
        return found

    found = values(kernel, x, y)
    for at, (_, held) in enumerate(made):
        np.testing.assert_array_equal(found[2 * at], np.where(held, x, y), err_msg="load")
        np.testing.assert_array_equal(found[2 * at + 1], np.where(held, x, y), err_msg="store")


def computed(language: Any, a: Any, b: Any, mask: Any) -> list[Any]:
    """Elementwise instructions of several engines under a mask."""
    column = a[(slice(0, a.shape[0]), *(slice(0, 1) for _ in a.shape[1:]))]
    return [
        language.add(a, b, mask=mask),
        language.multiply(a, 3.0, mask=mask),
        nisa.tensor_scalar(a, np.subtract, 1.0, op1=np.multiply, operand1=2.0, mask=mask),
        nisa.tensor_tensor(a, b, op=np.maximum, mask=mask),
        nisa.activation(np.abs, a, scale=2.0, mask=mask),
        nisa.tensor_copy(a, mask=mask),
        nisa.memset(a.shape, 7.0, dtype=np.float32, mask=mask),
        nisa.scalar_tensor_tensor(data=a, op0=np.add, operand0=1.0, op1=np.multiply, operand1=b, mask=mask),
        *([nisa.tensor_scalar(a, np.add, column, mask=mask)] if a.ndim == 2 else []),
    ]


def expected(a: Array, b: Array) -> list[Array]:
    a, b = a.astype(np.float64), b.astype(np.float64)
    each = [a + b, a * 3, (a - 1) * 2, np.maximum(a, b), abs(a * 2), a, np.full(a.shape, 7.0), (a + 1) * b]
    return [*each, a + a[:, :1]] if a.ndim == 2 else each


@pytest.mark.oracle(
    *("nl.add", "nl.multiply", "nisa.tensor_scalar", "nisa.tensor_tensor", "nisa.activation"),
    *("nisa.tensor_copy", "nisa.memset", "nisa.scalar_tensor_tensor"),
)
@settings(deadline=None, max_examples=25)
@given(drawn)
def test_elementwise_instructions_work_on_what_a_mask_leaves(
    case: tuple[tuple[int, ...], list[Made]],
) -> None:
    shape, made = case
    x, y = counted(*shape), counted(*shape)[::-1] - 4

    def kernel(x: Any, y: Any) -> Any:
        found = []
        for make, _ in made:
            count = len(computed(nl, filled(x), filled(y), False))
            for at in range(count):
                mask, a, b = make(nl.arange), filled(x), filled(y)
                tile = nl.ndarray(shape, dtype=x.dtype, buffer=nl.sbuf)
                tile[...] = -1.0
                every = computed(nl, a, b, mask)
                tile[...] = every.pop(at)
                found.append(stored(tile))
        return found

    found = iter(values(kernel, x, y))
    for _, held in made:
        for number, wanted in enumerate(expected(x, y)):
            np.testing.assert_array_equal(next(found), np.where(held, wanted, -1.0), err_msg=str(number))


@settings(deadline=None, max_examples=25)
@given(drawn)
def test_a_masked_result_that_has_a_name_is_stored_under_the_mask(
    case: tuple[tuple[int, ...], list[Made]],
) -> None:
    shape, made = case
    x = counted(*shape)

    def kernel(x: Any) -> Any:
        found = []
        for make, _ in made:
            mask, a = make(nl.arange), filled(x)
            named = nl.add(a, 1.0, mask=mask)
            twice = nl.multiply(named, 2.0, mask=mask)
            out = nl.ndarray(shape, dtype=x.dtype, buffer=nl.shared_hbm)
            nl.store(out, a)
            nl.store(out, twice, mask=mask)
            found.append(out)
        return found

    for mine, (_, held) in zip(values(kernel, x), made, strict=True):
        np.testing.assert_array_equal(mine, np.where(held, (x + 1) * 2, x))


@settings(deadline=None, max_examples=25)
@given(drawn)
def test_a_masked_result_of_a_narrower_dtype_is_copied_under_the_mask(
    case: tuple[tuple[int, ...], list[Made]],
) -> None:
    shape, made = case
    x = (counted(*shape) + 257) / 3

    def kernel(x: Any) -> Any:
        found = []
        for make, _ in made:
            tile = filled(x)
            tile[...] = nl.multiply(tile, 3.0, dtype=nl.bfloat16, mask=make(nl.arange))
            found.append(stored(tile))
        return found

    rounded = (x * np.float32(3)).astype(ml_dtypes.bfloat16).astype(np.float32)
    for mine, (_, held) in zip(values(kernel, x), made, strict=True):
        np.testing.assert_array_equal(mine, np.where(held, rounded, x))


@pytest.mark.parametrize("form", ["first block", "second block", "integers", "squeezed"])
def test_a_masked_result_reaches_blocks_and_tiles_of_another_rank(form: str) -> None:
    x = counted(8, 6)
    rows, columns = np.arange(8)[:, None], np.arange(6)[None, :]
    held = (rows + columns < 9) & (rows > 1)

    def kernel(x: Any) -> Any:
        i, j = axes((8, 6))
        mask = (i + j < 9) & (i > 1)
        tile = nl.zeros((2, nl.par_dim(8), 1, 6), dtype=x.dtype, buffer=nl.sbuf)
        flat = filled(x)
        if form == "first block":
            tile[0, i, 0, j] = nl.add(flat, 1.0, mask=mask)
        elif form == "second block":
            tile[1, :, 0, :] = nl.add(flat, 1.0, mask=mask)
        elif form == "integers":
            tile[1, i, 0, j] = nl.load(x[i, j], mask=mask)
        else:
            tile[1] = nl.add(flat, 1.0, mask=mask)
        return stored(tile[0]), stored(tile[1])

    found = values(kernel, x)
    wanted = np.where(held, x if form == "integers" else x + 1, 0)
    at = 0 if form == "first block" else 1
    np.testing.assert_array_equal(found[at][:, 0, :], wanted)
    np.testing.assert_array_equal(found[1 - at], 0)


@pytest.mark.oracle("nisa.tensor_reduce", "nl.sum", "nl.max")
def test_a_reduction_reduces_what_a_box_leaves() -> None:
    x = numbers(8, 10)

    def kernel(x: Any) -> Any:
        i, j = axes((8, 10))
        tile, rows = filled(x), nl.ndarray((8, 1), dtype=x.dtype, buffer=nl.sbuf)
        rows[...] = -1.0
        rows[...] = nisa.tensor_reduce(np.add, tile, axis=(1,), mask=(i < 5) & (j >= 2) & (j < 9))
        top = nl.ndarray((8, 1), dtype=x.dtype, buffer=nl.sbuf)
        top[...] = -1.0
        top[...] = nl.max(tile, axis=1, keepdims=True, mask=(i > 2) & (j < 4))
        return stored(rows, top)

    rows, top = values(kernel, x)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(rows[:5, 0], wide[:5, 2:9].sum(1), rtol=1e-6)
    np.testing.assert_array_equal(rows[5:], -1)
    np.testing.assert_array_equal(top[3:, 0], x[3:, :4].max(1))
    np.testing.assert_array_equal(top[:3], -1)


@pytest.mark.oracle("nisa.nc_transpose")
def test_a_transpose_turns_what_a_box_leaves() -> None:
    x = numbers(16, 32)

    def kernel(x: Any) -> Any:
        i, j = axes((16, 32))
        tile = nl.zeros((32, 16), dtype=x.dtype, buffer=nl.sbuf)
        tile[...] = nisa.nc_transpose(filled(x), engine=nisa.vector_engine, mask=(i < 9) & (j >= 20))
        return stored(tile)

    wanted = np.zeros((32, 16), np.float32)
    wanted[20:, :9] = x[:9, 20:].T
    np.testing.assert_array_equal(result(kernel, x), wanted)


MATMULS: dict[str, tuple[Callable[..., Any], tuple[slice, slice, slice]]] = {
    # nki/api/nki.api.shared.rst:216-262 (2.26): the contraction by mask=, the free dimensions by operand masks
    "contraction": (
        lambda a, b, k, m, n: nisa.nc_matmul(a, b, mask=k < 20),
        (slice(20), slice(16), slice(24)),
    ),
    "operands": (
        lambda a, b, k, m, n: nisa.nc_matmul(a[m <= 9], b[n > 4]),
        (slice(32), slice(10), slice(5, 24)),
    ),
    "both": (
        lambda a, b, k, m, n: nisa.nc_matmul(a[(m <= 9) & (k > 3)], b[n > 4], mask=k < 20),
        (slice(4, 20), slice(10), slice(5, 24)),
    ),
    "free": (
        lambda a, b, k, m, n: nisa.nc_matmul(a, b, mask=(k < 20) & (n < 7)),
        (slice(20), slice(16), slice(7)),
    ),
    "rows": (lambda a, b, k, m, n: nisa.nc_matmul(a, b, mask=m < 5), (slice(32), slice(5), slice(24))),
    "three axes": (
        lambda a, b, k, m, n: nisa.nc_matmul(
            a,
            b,
            mask=(nl.arange(16)[None, :, None] < 5)
            & (nl.arange(24)[None, None, :] >= 7)
            & (k[:, :, None] > 1),
        ),
        (slice(2, 32), slice(5), slice(7, 24)),
    ),
}


@pytest.mark.oracle("nisa.nc_matmul")
@pytest.mark.parametrize("form", MATMULS)
def test_a_matmul_multiplies_what_masks_leave(form: str) -> None:
    call, (k, m, n) = MATMULS[form]
    a, b = numbers(32, 16), numbers(32, 24, seed=1)

    def kernel(a: Any, b: Any) -> Any:
        rows, left, right = nl.arange(32)[:, None], nl.arange(16)[None, :], nl.arange(24)[None, :]
        total = nl.zeros((16, 24), dtype=np.float32, buffer=nl.psum)
        total += call(filled(a), filled(b), rows, left, right)
        total += call(filled(a), filled(b), rows, left, right)
        return stored(nl.copy(total))

    wanted = np.zeros((16, 24))
    wanted[m, n] = 2 * (a[k, m].astype(np.float64).T @ b[k, n].astype(np.float64))
    np.testing.assert_allclose(result(kernel, a, b), wanted, rtol=1e-5, atol=1e-5)


def test_a_mask_that_leaves_nothing_records_nothing() -> None:
    x = counted(8, 6)

    def kernel(x: Any) -> Any:
        i, j = axes((8, 6))
        tile = filled(x)
        for mask in (
            i < 0,
            (i < 3) & (i > 4),
            (i < 2) & (j > 3) & (i > j),
            i + j > 99,
            False,
            np.bool_(False),
        ):
            tile[...] = nl.add(tile, 1.0, mask=mask)
            tile[i, j] = nl.load(x, mask=mask)
            nl.store(x, tile, mask=mask)
        return stored(tile)

    found = traced(kernel, x)
    assert found.counts == {"dma_copy": 2}
    np.testing.assert_array_equal(result(kernel, x), x)


def test_a_mask_that_leaves_everything_changes_nothing() -> None:
    x = counted(8, 6)

    def kernel(x: Any) -> Any:
        i, j = axes((8, 6))
        tile = nl.ndarray((8, 6), dtype=x.dtype, buffer=nl.sbuf)
        tile[...] = nl.load(x, mask=(i >= 0) & (j < 6) & (i + j <= 12) & True)
        return stored(tile)

    found = traced(kernel, x)
    assert found.counts == {"dma_copy": 2} and found.events == []
    assert all(not extra.bounds for extra in found.program.extras.values())
    np.testing.assert_array_equal(result(kernel, x), x)


def test_the_part_that_a_mask_leaves_may_not_leave_its_tensor() -> None:
    x = counted(8, 6)

    def kernel(x: Any, limit: int) -> Any:
        i, j = axes((8, 6))
        tile = nl.zeros((8, 6), dtype=x.dtype, buffer=nl.sbuf)
        tile[i, j] = nl.load(x[0 * i, i + j], mask=i + j < limit)
        return stored(tile)

    inside = traced(lambda x: kernel(x, 6), x)
    assert inside.events == []
    rows, columns = np.indices((8, 6))
    wanted = np.where(rows + columns < 6, np.minimum(rows + columns, 5), 0)
    np.testing.assert_array_equal(result(lambda x: kernel(x, 6), x), wanted)
    (event,) = traced(lambda x: kernel(x, 7), x).events
    assert event == (
        "overrun: index 0:7 of dimension 1 (size 6) of tensor p0 runs into other elements of its memory"
    )


REFUSALS: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "kind": (
        lambda t: nl.add(t, t, mask=t),
        Refusal,
        "mask must be a comparison of index expressions, or several joined by &, got Tile",
    ),
    "shape": (
        lambda t: nl.add(t, t, mask=nl.arange(4)[:, None] < 3),
        Refusal,
        "a mask of shape (4, 1) does not fit a tile of shape (8, 6): each comparison restricts the dimensions of the "
        "tile",
    ),
    "not affine": (
        lambda t: nl.add(t, t, mask=nl.arange(8)[:, None] % 2 < 1),
        Refusal,
        "a mask is a conjunction of affine comparisons, this one divides or multiplies index expressions and leaves "
        "no box",
    ),
    "reduction": (
        lambda t: nl.sum(t, axis=1, mask=nl.arange(8)[:, None] < nl.arange(6)[None, :]),
        NotYetSupported,
        "not yet supported: a reduction with a mask that leaves no box",
    ),
    "free dimensions": (
        lambda t: nisa.nc_matmul(t, t, mask=nl.arange(6)[None, :] < 3),
        Refusal,
        "nc_matmul: mask cannot tell the free dimensions of stationary and moving apart; mask the operands, as in "
        "stationary[i_m < m]",
    ),
    "operand": (
        lambda t: nisa.nc_matmul(t[nl.arange(8)[:, None] < nl.arange(6)[None, :]], t),
        NotYetSupported,
        "not yet supported: an operand of a matmul with a mask that leaves no box",
    ),
    "other rank": (
        lambda t: nl.zeros((8, 12), dtype=t.dtype).__setitem__(
            ..., nl.add(t, t, dtype=nl.bfloat16, mask=nl.arange(8)[:, None] < nl.arange(6)[None, :])
        ),
        NotYetSupported,
        "not yet supported: a result of shape (8, 6) with a mask, assigned to a tensor of shape (8, 12)",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_each_refusal_is_one_sentence(case: str) -> None:
    call, kind, message = REFUSALS[case]
    with pytest.raises(kind) as found:
        traced(lambda x: call(filled(x)), counted(8, 6))
    assert message in str(found.value)

"""Index expressions of the legacy generation against NumPy: arithmetic, indexing, broadcasting, masks, refusals."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from legacy_tiles_kit import COMPARISONS, SMALL, masks
from numpy.typing import NDArray

from nkireview.isa.release import LEGACY
from nkireview.nki.errors import Refusal
from nkireview.nki.legacy.masks import restriction, taken
from nkireview.nki.legacy.symbols import Mask, MeshGrid, Symbol, arange
from nkireview.nki.trace import Trace, tracing

mgrid = MeshGrid()
Pair = tuple[Symbol, NDArray[np.int64]]


@st.composite
def starts(draw: st.DrawFn) -> Pair:
    """An arange with new axes, or one symbol of a mesh grid, and NumPy's of the same."""
    if draw(st.booleans()):
        start, count = draw(st.integers(-5, 5)), draw(st.integers(1, 4))
        key = [None] * draw(st.integers(0, 2))
        key.insert(draw(st.integers(0, len(key))), slice(None))
        places = tuple(key)
        return arange(start, start + count)[places], np.arange(start, start + count)[places]
    parts = tuple(
        slice(start, start + count * step, step)
        for start, count, step in draw(
            st.lists(st.tuples(SMALL, st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=3)
        )
    )
    at = draw(st.integers(0, len(parts) - 1))
    return mgrid[parts][at], np.mgrid[parts][at]


@st.composite
def keys(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """An index of integers, slices, new axes and an ellipsis that leaves something of an array of this shape."""
    found: list[Any] = []
    for size in shape[: draw(st.integers(0, len(shape)))]:
        kind = draw(st.sampled_from(["slice", "step", "integer", "all"]))
        start = draw(st.integers(0, size - 1))
        found.append(
            {
                "slice": slice(start, draw(st.integers(start + 1, size))),
                "step": slice(start, None, draw(st.integers(1, 3))),
                "integer": draw(st.integers(-size, size - 1)),
                "all": slice(None),
            }[kind]
        )
    if draw(st.booleans()):
        found.insert(draw(st.integers(0, len(found))), None)
    if len(found) < 3 and draw(st.booleans()):
        found.append(Ellipsis)
    return tuple(found)


@st.composite
def chains(draw: st.DrawFn) -> Pair:
    """A chain of arithmetic, indexing and broadcasting on symbols, and on NumPy's arrays."""
    symbol, array = draw(starts())
    for _ in range(draw(st.integers(0, 5))):
        what = draw(st.sampled_from(["add", "sub", "mul", "neg", "rsub", "index", "join", "div", "mod"]))
        number = draw(SMALL)
        numbers = [number, np.int64(number), np.int32(number)]
        other = numbers[draw(st.integers(0, 2))]
        if what == "index":
            key = draw(keys(array.shape))
            if array[key].size:
                symbol, array = symbol[key], array[key]
        elif what == "join":
            more, its = draw(starts())
            try:
                np.broadcast_shapes(array.shape, its.shape)
            except ValueError:
                continue
            function = draw(st.sampled_from([operator.add, operator.sub, operator.mul]))
            symbol, array = function(symbol, more), function(array, its)
        else:
            functions: dict[str, Callable[[Any], Any]] = {
                "add": lambda x, n=other: x + n,
                "sub": lambda x, n=other: x - n,
                "mul": lambda x, n=other: n * x,
                "neg": lambda x: -x,
                "rsub": lambda x, n=other: n - x,
                "div": lambda x, n=other: x // (n or 3),
                "mod": lambda x, n=other: x % (n or 3),
            }
            symbol, array = functions[what](symbol), functions[what](array)
    return symbol, np.asarray(array)


@pytest.mark.oracle("nl.arange", "nl.mgrid")
@settings(deadline=None)
@given(chains())
def test_a_chain_of_arithmetic_and_indexing_is_numpys(chain: Pair) -> None:
    symbol, array = chain
    assert symbol.shape == array.shape and symbol.ndim == array.ndim
    np.testing.assert_array_equal(symbol.values(), array)
    assert symbol.extent() == (array.min(), array.max())
    wider = (2, *array.shape)
    np.testing.assert_array_equal(symbol.expanded(wider).values(), np.broadcast_to(array, wider))


@settings(deadline=None)
@given(st.lists(st.tuples(chains(), st.sampled_from(COMPARISONS), st.integers(-9, 9) | starts()), max_size=3))
def test_comparisons_joined_by_and_are_numpys(atoms: list[Any]) -> None:
    mask: Any = True
    held: Any = np.bool_(True)
    for (symbol, array), compare, other in atoms:
        mine, its = other if isinstance(other, tuple) else (other, other)
        try:
            np.broadcast_shapes(held.shape, array.shape, np.shape(its))
        except ValueError:
            continue
        mask, held = mask & compare(symbol, mine), held & compare(array, its)
    if not isinstance(mask, Mask):
        return
    assert mask.shape == held.shape
    np.testing.assert_array_equal(mask.values(held.shape), held)


@settings(deadline=None)
@given(st.integers(-9, 9), chains(), st.sampled_from(COMPARISONS))
def test_a_number_may_stand_on_the_left_of_a_comparison(number: int, chain: Pair, compare: Any) -> None:
    symbol, array = chain
    np.testing.assert_array_equal(compare(number, symbol).values(array.shape), compare(number, array))
    wide = np.int64(number)
    np.testing.assert_array_equal(compare(wide, symbol).values(array.shape), compare(number, array))


def test_a_truth_value_joins_a_mask() -> None:
    mask = arange(4)[:, None] < 2
    assert (mask & True) is mask and (True & mask) is mask and (mask & np.bool_(True)) is mask
    assert (mask & False) is False and (False & mask) is False


@settings(deadline=None)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=3).flatmap(lambda sizes: masks(tuple(sizes))))
def test_what_a_mask_leaves_is_what_numpy_selects(drawn: tuple[Any, NDArray[np.bool_]]) -> None:
    make, held = drawn
    part = restriction(make(arange), held.shape)
    found = np.zeros(held.shape, np.bool_)
    places = np.indices(held.shape)
    inside = np.ones(held.shape, np.bool_)
    for steps, constant in part.bounds:
        inside &= sum(step * place for step, place in zip(steps, places, strict=True)) + constant >= 0
    assert part.empty == (not held.any())
    if not part.empty:
        box = tuple(slice(start, stop) for start, stop in part.ranges)
        found[box] = inside[box]
        np.testing.assert_array_equal(part.kept(), held[box])
    np.testing.assert_array_equal(found, held)


@pytest.mark.oracle("nl.mgrid")
def test_the_symbols_of_a_grid_have_names() -> None:
    # nki/api/nki/language/__init__.py:50-69 (2.26): as NumPy's mgrid; nki/test/test_nki_isa_nc_matmul.py: .p and .x
    grid = mgrid[0:2, 0:3, 1:9:4]
    for mine, its in zip((grid.p, grid.x, grid.y), np.mgrid[0:2, 0:3, 1:9:4], strict=True):
        np.testing.assert_array_equal(mine.values(), its)
    with pytest.raises(AttributeError, match="nl.mgrid of 3 dimensions has no 'z'"):
        _ = grid.z


def refused(call: Callable[[], Any]) -> str:
    """The message of a refusal."""
    with pytest.raises(Refusal) as found:
        call()
    return str(found.value)


ROWS = arange(4)[:, None]
REFUSALS: dict[str, tuple[Callable[[], Any], str]] = {
    "shapes": (
        lambda: ROWS[0:3] + arange(4)[:, None],
        "index expressions of shapes (3, 1) and (4, 1) do not broadcast",
    ),
    "expanded": (lambda: ROWS.expanded((3, 2)), "index shapes (4, 1) and (3, 2) do not broadcast"),
    "too many": (lambda: ROWS[0, 0, 0], "3 indices are given to an index expression of shape (4, 1)"),
    "empty": (lambda: ROWS[2:2], "the part 2:2 of an index expression of size 4 is empty"),
    "beyond": (lambda: ROWS[4], "index 4 is outside of dimension 0 of an index expression, whose size is 4"),
    "before": (
        lambda: ROWS[-5],
        "index -5 is outside of dimension 0 of an index expression, whose size is 4",
    ),
    "kind": (lambda: ROWS["a"], "an index expression cannot be indexed by a str"),
    "float key": (lambda: ROWS[1.0], "an index expression cannot be indexed by a float"),
    "division": (lambda: ROWS // 0, "an index expression is divided by an integer other than 0 only"),
    "modulus": (lambda: ROWS % 2.0, "an index expression is divided by an integer other than 0 only"),
    "!=": (lambda: ROWS != 3, "a mask takes no !=; it is a conjunction of <, <=, >, >= and =="),
    "truth": (
        lambda: bool(ROWS),
        "an index expression of nl.arange has no truth value; a condition needs integers known while tracing, and "
        "mask= takes comparisons",
    ),
    "integer": (
        lambda: range(ROWS),  # type: ignore[call-overload]
        "an index expression of nl.arange is no integer; it can only index tensors and make masks",
    ),
    "loop": (
        lambda: list(ROWS),
        "an index expression of nl.arange cannot be looped over; use nl.affine_range",
    ),
    "compared": (
        lambda: ROWS < 1.5,
        "an index expression is compared with index expressions and integers, got float",
    ),
    "or": (
        lambda: (ROWS < 1) | (ROWS > 2),
        "a mask takes no |; it is a conjunction (&) of comparisons of affine index expressions",
    ),
    "not": (
        lambda: ~(ROWS < 1),
        "a mask takes no ~; it is a conjunction (&) of comparisons of affine index expressions",
    ),
    "mask shapes": (
        lambda: ((ROWS < 1) & (arange(3)[:, None] < 1)).shape,
        "the shapes (4, 1) and (3, 1) of a mask's comparisons do not broadcast",
    ),
    "arange": (lambda: arange(), "nl.arange takes a stop, or a start and a stop, got 0 arguments"),
    "step": (lambda: arange(0, 8, 2), "nl.arange takes a stop, or a start and a stop, got 3 arguments"),
    "no index": (lambda: arange(3, 3), "nl.arange: 3 to 3 holds no index"),
    "float": (lambda: arange(3.0), "nl.arange takes integers known while tracing, got float"),
    "bool": (lambda: arange(True), "nl.arange takes integers known while tracing, got bool"),
    "grid end": (lambda: mgrid[0:2, 3:], "nl.mgrid takes slices with an end, as in nl.mgrid[0:128, 0:512]"),
    "grid number": (lambda: mgrid[4], "nl.mgrid takes slices with an end, as in nl.mgrid[0:128, 0:512]"),
    "grid step": (lambda: mgrid[0:2:0], "nl.mgrid: the step of 0:2 is 0"),
    "grid float": (lambda: mgrid[0:2.5], "nl.mgrid takes integers known while tracing, got float"),
    "mask kind": (
        lambda: taken(3, "nl.add"),
        "nl.add: mask must be a comparison of index expressions, or several joined by &, got int",
    ),
    "mask fit": (
        lambda: restriction(ROWS < 3, (3, 8)),
        "a mask of shape (4, 1) does not fit a tile of shape (3, 8): each comparison restricts the dimensions of the "
        "tile",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_each_refusal_is_one_sentence(case: str) -> None:
    call, message = REFUSALS[case]
    assert refused(call) == message


def test_what_is_just_inside_is_taken() -> None:
    assert ROWS[3].values() == [3] and ROWS[-4].values() == [0] and ROWS[2:3].shape == (1, 1)
    assert arange(3, 4).shape == (1,) and mgrid[0:2:2][0].shape == (1,)
    assert taken(None, "") is True and taken(np.bool_(False), "") is False


def test_a_mask_that_is_not_affine_is_taken_where_it_leaves_a_box() -> None:
    odd = arange(4)[:, None] % 2 == 1
    with pytest.raises(
        Refusal, match="^a mask is a conjunction of affine comparisons, this one divides or multiplies "
    ):
        restriction(odd, (4, 2))
    half = arange(4)[:, None] // 2 == 1
    assert restriction(half, (4, 2)).ranges == ((2, 4), (0, 2))


def test_the_truth_of_a_mask_is_true_and_noted() -> None:
    mask = (arange(4)[:, None] < 0) & (arange(4)[:, None] > 2)
    assert bool(mask) is True
    trace = Trace("trn2", LEGACY)
    with tracing(trace):
        assert bool(mask) is True
    (event,) = trace.builder._events
    assert (event.kind, event.detail) == (
        "truth",
        "the truth of a mask was asked for and is True; join comparisons by &, not by and",
    )


def test_integers_that_are_affine_after_all_need_no_table() -> None:
    columns = arange(2048)[None, :]
    assert (columns // 2048).table is None
    assert (columns % 2048).table is None
    assert (columns % 2048).coefficients == (0, 1)
    assert (columns * 6 // 3).coefficients == (0, 2)
    assert (columns % 1024).table is not None

"""Patterns of a mismatch: each built by hand from random data, named first, and none seen in honest noise."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nkireview.numerics.patterns import Name, Pattern, patterns

Array = npt.NDArray[Any]
SHAPES = [(24, 40), (130, 70), (3, 16, 48)]
TALL = [(256, 24), (384, 40), (1024, 8)]
RELATIVE = 2.0**-8


def drawn(shape: tuple[int, ...], seed: int = 0) -> Array:
    return np.random.default_rng([*shape, seed]).standard_normal(shape)


def stored(values: Array) -> Array:
    """Values as bfloat16 stores them: each within 2**-9 of itself."""
    return values.astype(ml_dtypes.bfloat16).astype(np.float64)


def allowed(ref: Array) -> Array:
    return RELATIVE * np.abs(ref) + 1e-4


def found(got: Array, ref: Array, limit: Array | float | None = None) -> tuple[Pattern, ...]:
    return patterns(got, ref, allowed(ref) if limit is None else limit)


def first(got: Array, ref: Array, limit: Array | float | None = None) -> Pattern:
    return found(got, ref, limit)[0]


def names(result: tuple[Pattern, ...]) -> list[str]:
    return [str(pattern.name) for pattern in result]


def rows_of(shape: tuple[int, ...]) -> tuple[int, int]:
    return math.prod(shape[:-1]), shape[-1]


def by_row(shape: tuple[int, ...], low: float, high: float) -> Array:
    return np.random.default_rng(5).uniform(low, high, (*shape[:-1], 1))


def by_column(shape: tuple[int, ...], low: float, high: float) -> Array:
    return np.random.default_rng(6).uniform(low, high, shape[-1])


def derangement(count: int) -> npt.NDArray[np.intp]:
    """A cycle through all places in random order: every line is elsewhere, at no common distance."""
    order = np.random.default_rng(7).permutation(count)
    moved = np.empty(count, dtype=np.intp)
    moved[order] = np.roll(order, 1)
    return moved


# Exactly what each defect does to a right reference; the output is then stored in bfloat16.
VALUES: dict[Name, Callable[[Array], Array]] = {
    Name.ZEROS: lambda ref: 0 * ref,
    Name.CONSTANT: lambda ref: 0 * ref + 2.5,
    Name.SATURATED: lambda ref: np.clip(ref, -0.8, 0.8),
    Name.SIGN: lambda ref: -ref,
    Name.SCALED: lambda ref: 1.7 * ref,
    Name.OFFSET: lambda ref: ref - 0.4,
    Name.ROW_FACTORS: lambda ref: ref * by_row(ref.shape, 1.2, 2),
    Name.COLUMN_FACTORS: lambda ref: ref * by_column(ref.shape, 1.2, 2),
    Name.RANK_ONE: lambda ref: ref * by_row(ref.shape, 1.2, 2) * by_column(ref.shape, 1.2, 2),
    Name.ROW_OFFSETS: lambda ref: ref + by_row(ref.shape, 1, 2),
    Name.COLUMN_OFFSETS: lambda ref: ref + by_column(ref.shape, 1, 2),
    Name.TRANSPOSED: lambda ref: np.swapaxes(ref, -1, -2).reshape(ref.shape),
    Name.SHIFTED: lambda ref: np.roll(ref, 3, axis=-2),
    Name.ROWS_PERMUTED: lambda ref: ref.reshape(rows_of(ref.shape))[
        derangement(rows_of(ref.shape)[0])
    ].reshape(ref.shape),
    Name.COLUMNS_PERMUTED: lambda ref: ref[..., derangement(ref.shape[-1])],
}

# The whole output must be clipped for its extremes to be those values; a part of it has another shape to transpose.
IN_PART = [name for name in VALUES if name not in (Name.SATURATED, Name.TRANSPOSED)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", VALUES, ids=str)
def test_a_pattern_of_values_is_named_first(name: Name, shape: tuple[int, ...]) -> None:
    for seed in range(3):
        ref = drawn(shape, seed)
        pattern = first(stored(VALUES[name](ref)), ref)
        assert pattern.name == name, pattern
        assert pattern.explains >= 0.95


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", IN_PART, ids=str)
def test_a_pattern_of_values_is_also_named_in_one_part_of_the_output(
    name: Name, shape: tuple[int, ...]
) -> None:
    ref = drawn(shape)
    got = stored(ref)
    half = shape[-1] // 2
    got[..., half:] = stored(VALUES[name](ref[..., half:]))
    result = found(got, ref)
    assert result[0].name == name, result
    place = next(pattern for pattern in result if pattern.name == Name.REGION)
    assert (place.figure["start"], place.figure["stop"]) == (half, shape[-1])


@pytest.mark.parametrize("shape", [*SHAPES, *TALL, (), (1,), (300,), (64, 64)], ids=str)
def test_nothing_is_found_in_honest_noise(shape: tuple[int, ...]) -> None:
    for seed in range(3):
        ref = drawn(shape, seed)
        assert found(stored(ref), ref) == ()


def garbage(ref: Array) -> Array:
    return 3 + drawn(ref.shape, 77)


PLACES: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    (
        "region",
        np.s_[128:256, :],
        {"axis": 0, "start": 128, "stop": 256, "box": "[128:256, 0:640]"},
        "rows 128 to 255 (partition block 1 of 128 rows).",
    ),
    (
        "region",
        np.s_[:, 512:],
        {"axis": 1, "start": 512, "stop": 640},
        "the tail columns from 512 on (column block 1 of 512 columns).",
    ),
    (
        "region",
        np.s_[256:, :],
        {"axis": 0, "start": 256, "stop": 300},
        "the tail rows from 256 on (partition block 2 of 128 rows).",
    ),
    ("region", np.s_[290:, :], {"start": 290, "stop": 300}, "lie in the tail rows from 290 on."),
    (
        "region",
        np.s_[75:150, :320],
        {"start_0": 75, "stop_0": 150, "start_1": 0, "stop_1": 320},
        "rows 75 to 149 (the second quarter of the rows), columns 0 to 319 (the first half of the columns).",
    ),
    ("region", np.s_[7, :], {"start": 7, "stop": 8}, "lie in row 7."),
    ("every-nth", np.s_[:, 1::2], {"axis": 1, "period": 2, "phase": 1}, "every second column, from 1 on."),
    ("every-nth", np.s_[:, 3::22], {"axis": 1, "period": 22, "phase": 3}, "every 22nd column, from 3 on."),
    (
        "every-nth",
        np.s_[:, [*range(64, 128), *range(192, 256), *range(320, 384), *range(448, 512), *range(576, 640)]],
        {"axis": 1, "period": 128, "phase": 64, "width": 64},
        "64 of every 128 columns, from 64 on.",
    ),
    ("every-nth", np.s_[5::50, :], {"axis": 0, "period": 50, "phase": 5}, "every 50th row, from 5 on."),
]


@pytest.mark.parametrize(("name", "where", "figure", "words"), PLACES)
def test_a_place_is_named(name: str, where: tuple[Any, ...], figure: dict[str, Any], words: str) -> None:
    ref = drawn((300, 640))
    got = stored(ref)
    got[where] = garbage(ref)[where]
    result = found(got, ref)
    assert names(result) == [name]
    assert figure.items() <= result[0].figure.items()
    assert result[0].sentence.endswith(words)


@pytest.mark.parametrize("shape", [(64, 64), (40, 96), (2, 48, 48)], ids=str)
@pytest.mark.parametrize("offset", [-5, 0, 1])
def test_diagonals_and_triangles_are_named_with_their_offset(shape: tuple[int, ...], offset: int) -> None:
    ref = drawn(shape)
    distance = np.arange(shape[-1]) - np.arange(shape[-2])[:, None]
    for mask, name, figure in (
        (distance == offset, Name.DIAGONAL, {"start": offset, "stop": offset + 1}),
        (distance >= offset, Name.TRIANGLE, {"side": "above", "offset": offset}),
        (distance <= offset, Name.TRIANGLE, {"side": "below", "offset": offset}),
    ):
        result = found(np.where(mask, garbage(ref), stored(ref)), ref)
        if np.mean(mask) > 0.8:
            continue
        assert result[0].name == name, result
        assert figure.items() <= result[0].figure.items()


@pytest.mark.parametrize("offset", [(0, "(i, i)"), (1, "(i, i + 1)"), (-3, "(i, i - 3)")])
def test_the_sentence_of_a_diagonal(offset: tuple[int, str]) -> None:
    ref = drawn((32, 32))
    got = stored(ref)
    got += 3 * np.eye(32, k=offset[0]) * np.random.default_rng(0).uniform(1, 2, (32, 32))
    pattern = first(got, ref)
    assert pattern.sentence == f"All {32 - abs(offset[0])} wrong elements lie on the diagonal {offset[1]}."


@pytest.mark.parametrize("shape", TALL, ids=str)
@pytest.mark.parametrize("power", [0.5, 1.0])
def test_growing_errors_are_named_with_their_law(shape: tuple[int, ...], power: float) -> None:
    ref = drawn(shape)
    steps = np.arange(shape[0], dtype=np.float64)[:, None] / shape[0]
    pattern = first(stored(ref) + 0.5 * steps**power * drawn(shape, 9), ref)
    assert pattern.name == Name.GROWING
    assert (pattern.figure["axis"], pattern.figure["law"]) == (0, "n" if power == 1 else "sqrt(n)")
    # The median of |N(0, s)| is 0.6745 s.
    assert pattern.figure["last"] == pytest.approx(0.5 * 0.6745, rel=0.25)


@pytest.mark.parametrize("shape", TALL, ids=str)
@pytest.mark.parametrize("tile", [64, 128])
def test_blocks_that_add_up_are_named_with_their_tile(shape: tuple[int, ...], tile: int) -> None:
    ref = drawn(shape)
    got = np.empty(shape)
    for start in range(0, shape[0], tile):
        got[start : start + tile] = sum(ref[other : other + tile] for other in range(0, start + 1, tile))
    limit = RELATIVE * np.abs(got) + RELATIVE * np.abs(ref) + 1e-3
    pattern = first(stored(got), ref, limit)
    assert pattern.name == Name.STALE
    assert (pattern.figure["axis"], pattern.figure["tile"], pattern.figure["how"]) == (0, tile, "running")


def test_a_last_block_that_is_shorter_adds_up_as_well() -> None:
    ref = drawn((300, 20))
    got = ref.copy()
    got[128:256] += ref[:128]
    got[256:] += got[128:172]
    pattern = first(stored(got), ref, 1e-2)
    assert pattern.name == Name.STALE
    assert pattern.sentence == (
        f"All {np.count_nonzero(np.abs(stored(got) - ref) > 1e-2):,} wrong elements are explained by sums: each "
        "block of 128 rows along axis 0 holds its own reference plus that of all earlier blocks."
    )


def test_each_block_plus_the_one_before_it() -> None:
    ref = drawn((512, 20))
    got = ref.copy()
    got[128:] += ref[:-128]
    pattern = first(stored(got), ref, 1e-2)
    assert (pattern.name, pattern.figure["how"]) == (Name.STALE, "previous")


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.float32])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_whole_numbers_one_off(shape: tuple[int, ...], dtype: type) -> None:
    generator = np.random.default_rng(1)
    ref = generator.integers(20, 200, shape).astype(dtype)
    got = (ref + generator.integers(-1, 2, shape)).astype(dtype)
    pattern = first(got, ref, 0)
    assert pattern.name == Name.OFF_BY_ONE
    assert pattern.sentence.endswith("wrong elements are whole numbers one above or below the reference.")
    above = first((ref + 1).astype(dtype), ref, 0)
    assert above.sentence == "The output is whole numbers one above the reference."


@pytest.mark.parametrize(
    ("factor", "name"),
    [
        (2.0, "2"),
        (0.5, "1/2"),
        (1 / math.sqrt(96), "1/sqrt(96)"),
        (math.sqrt(40), "sqrt(40)"),
        (1 / math.sqrt(128), "1/sqrt(128)"),
        (40 / 39, "40/(40-1)"),
        (95 / 96, "(96-1)/96"),
        (math.log(2), "ln 2"),
        (1 / math.log(2), "1/ln 2"),
        (-2.0, "-2"),
        (1 / 40, "1/40"),
    ],
)
def test_simple_factors_have_a_name(factor: float, name: str) -> None:
    ref = drawn((40, 96))
    pattern = first(factor * ref * (1 + 1e-7 * drawn(ref.shape, 3)), ref, 1e-6 * np.abs(ref) + 1e-9)
    assert pattern.name == Name.SCALED
    assert pattern.figure["factor"] == pytest.approx(factor, rel=1e-6)
    assert pattern.figure["factor_name"] == name


def test_other_factors_have_none() -> None:
    ref = drawn((40, 96))
    pattern = first(1.2345 * ref, ref, 1e-6 * np.abs(ref) + 1e-9)
    assert "factor_name" not in pattern.figure
    assert pattern.sentence == "The output is the reference times 1.2345."


SENTENCES: dict[str, tuple[Callable[[Array], Array], str]] = {
    "zeros": (VALUES[Name.ZEROS], "The output is 0."),
    "constant": (VALUES[Name.CONSTANT], "The output is one value, 2.5."),
    "sign": (VALUES[Name.SIGN], "The output is the reference with its sign turned."),
    "half": (lambda ref: 0.5 * ref, "The output is the reference times 0.5, which is 1/2."),
    "offset": (lambda ref: ref + 3, "The output is the reference plus 3."),
    "transposed": (
        VALUES[Name.TRANSPOSED],
        "The output holds the reference transposed, written as (40, 24) into the shape (24, 40).",
    ),
    "rotated": (
        lambda ref: np.roll(ref, -5, axis=1),
        "The output holds the reference rotated by 5 along axis 1 (columns): index i holds index i + 5 of the "
        "reference.",
    ),
    "moved": (
        lambda ref: np.concatenate([np.zeros((4, 40)), ref[:-4]]),
        "The output holds the reference moved by 4 along axis 0 (rows): index i holds index i - 4 of the reference, "
        "with 0 in the gap.",
    ),
    "flat": (
        lambda ref: np.roll(ref.ravel(), 7).reshape(ref.shape),
        "The output holds the reference rotated by 7 along the flattened output: index i holds index i - 7 of the "
        "reference.",
    ),
    "reversed": (
        lambda ref: ref[::-1],
        "All 960 wrong elements lie in rows that hold other rows of the reference: in reversed order "
        "(0 holds 23, 1 holds 22, 2 holds 21).",
    ),
    "repeated": (
        lambda ref: np.repeat(ref[:1], 24, axis=0),
        "All 920 wrong elements lie in rows that hold other rows of the reference: all of them hold row 0 "
        "(1 holds 0, 2 holds 0, 3 holds 0).",
    ),
    "interleaved": (
        lambda ref: ref.reshape(3, 8, 40).transpose(1, 0, 2).reshape(24, 40),
        "All 880 wrong elements lie in rows that hold other rows of the reference: 24 rows split as 8 x 3 and read "
        "as 3 x 8 (1 holds 8, 2 holds 16, 3 holds 1).",
    ),
    "blocks": (
        lambda ref: ref[np.r_[8:16, 0:8, 16:24]],
        "All 640 wrong elements lie in rows that hold other rows of the reference: blocks of 8 rows are exchanged, "
        "number 0 to 1 (0 holds 8, 1 holds 9, 2 holds 10).",
    ),
    "columns": (
        lambda ref: ref[:, np.r_[10:20, 0:10, 20:40]],
        "All 480 wrong elements lie in columns that hold other columns of the reference: blocks of 10 columns are "
        "exchanged, number 0 to 1 (0 holds 10, 1 holds 11, 2 holds 12).",
    ),
    "row offsets": (
        lambda ref: ref + np.arange(1, 25)[:, None] ** 2,
        "All 960 wrong elements are the reference plus one offset for each row, from 1 to 576.",
    ),
    "column factors": (
        lambda ref: ref * np.arange(2, 42) ** 2,
        "All 960 wrong elements are the reference times one factor for each column, from 4 to 1681.",
    ),
    "rank one": (
        lambda ref: ref * np.arange(2, 26)[:, None] ** 2 * np.where(np.arange(40) % 3, 4, 2),
        "All 960 wrong elements are the reference times a factor of the row times a factor of the column, together "
        "from 8 to 2500.",
    ),
}


@pytest.mark.parametrize("case", SENTENCES)
def test_the_sentence(case: str) -> None:
    make, sentence = SENTENCES[case]
    ref = 1 + np.abs(drawn((24, 40)))
    assert first(make(ref), ref, 1e-9).sentence == sentence


def test_saturation_says_at_which_value() -> None:
    ref = 200 * drawn((30, 50))
    pattern = first(np.clip(ref, None, 240.0), ref, 1e-6)
    wrong = int(np.count_nonzero(ref > 240))
    assert pattern.sentence == (
        f"All {wrong} wrong elements are stuck at the largest value, 240, where the reference is larger."
    )
    assert pattern.figure["largest"] == 240


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    ("where", "word", "words"),
    [
        (np.s_[[3, 7, 8], :], "rows", "whole rows, 3, 7 to 8."),
        (np.s_[:, 11], "columns", "one whole column, 11."),
        (np.s_[[0, 4, 9], [5, 2, 17]], "scattered", "scattered over 3 of 24 rows."),
        (np.s_[:, :], "everywhere", "100% of the output."),
    ],
)
def test_values_that_are_not_finite(value: float, where: Any, word: str, words: str) -> None:
    ref = drawn((24, 40))
    got = stored(ref)
    got[where] = value
    pattern = first(got, ref)
    kind = {"nan": "NaN"}.get(str(value), str(value))
    assert (pattern.name, pattern.figure["where"], pattern.figure["value"]) == (Name.NOT_FINITE, word, kind)
    assert pattern.sentence.endswith(f"wrong elements are {kind} where the reference is not: {words}")


def test_infinities_that_are_missing_are_wrong_whatever_is_allowed() -> None:
    ref = drawn((24, 40))
    ref[:, :4] = -np.inf
    got = np.where(np.isinf(ref), -1e4, ref)
    pattern = first(got, ref, RELATIVE * np.abs(ref))
    assert (pattern.name, pattern.figure["missing"]) == (Name.NOT_FINITE, 1)
    assert (
        pattern.sentence
        == "All 96 wrong elements are no longer the -inf of the reference: whole columns, 0 to 3."
    )
    assert found(ref, ref, RELATIVE * np.abs(ref)) == ()
    everywhere_nan = np.full((3, 4), np.nan)
    assert found(everywhere_nan, everywhere_nan, np.nan) == ()


def test_a_value_pattern_tells_where_it_holds() -> None:
    ref = drawn((256, 96))
    got = stored(ref)
    got[128:] = 0
    result = found(got, ref)
    assert names(result) == ["zeros", "region"]
    assert result[0].figure["place"] == "where wrong"
    # Elements right under the factor, too, are no sign of a place.
    lower = np.tril(ref[:96])
    assert names(found(stored(2 * lower), lower)) == ["scaled"]


def test_a_few_stray_elements_hide_neither_value_nor_place() -> None:
    ref = drawn((300, 640))
    got = stored(ref)
    got[128:256] = garbage(ref)[128:256]
    for index in ((0, 0), (299, 639), (20, 300)):
        got[index] += 5
    place = first(got, ref)
    assert place.name == Name.REGION
    assert (place.figure["start"], place.figure["stop"]) == (128, 256)
    assert 0.99 <= place.explains < 1
    scaled = stored(3 * ref)
    scaled[::25, ::10] = 1e30
    assert first(scaled, ref).name == Name.SCALED


def test_what_has_no_pattern_is_scattered() -> None:
    ref = drawn((24, 40))
    got = stored(ref)
    for step, index in enumerate(((3, 5), (11, 38), (20, 0), (7, 21), (16, 9))):
        got[index] += 2.0 + step * step
    (pattern,) = found(got, ref)
    assert pattern.name == Name.SCATTERED
    assert pattern.sentence == (
        "5 of 960 elements (0.521%) are wrong, in 5 of 24 rows and 5 of 40 columns, in no pattern that has a name."
    )
    (pattern,) = found(garbage(ref), ref)
    assert pattern.name == Name.SCATTERED


def test_one_element_alone() -> None:
    ref = drawn((24, 40))
    got = ref.copy()
    got[3, 5] = 2.5
    (pattern,) = found(got, ref)
    assert pattern.sentence == (
        f"One of 960 elements, that at (3, 5), is wrong: 2.5 instead of {ref[3, 5]:.6g}."
    )
    (pattern,) = patterns(np.float32(3.0), np.float64(1.0), 0.5)
    assert (pattern.name, pattern.sentence) == (
        Name.SCATTERED,
        "The only element is wrong: 3 instead of 1.",
    )
    assert names(patterns(np.zeros(1), np.ones(1), 0.5)) == ["zeros"]
    assert names(patterns(np.asarray(np.nan), np.ones(()), 0.5)) == ["not-finite"]
    assert patterns(np.ones(()), np.ones(()), 0) == ()
    assert patterns(np.ones((0, 3)), np.ones((0, 3)), 0) == ()


@pytest.mark.parametrize("count", [1000, 2048])
def test_one_axis(count: int) -> None:
    ref = drawn((count,))
    rolled = first(stored(np.roll(ref, 2)), ref)
    assert (rolled.name, rolled.figure["shift"], rolled.figure["axis"]) == (Name.SHIFTED, 2, 0)
    got = stored(ref)
    got[3::8] = garbage(ref)[3::8]
    assert first(got, ref).sentence.endswith("wrong elements lie in every 8th element, from 3 on.")
    got = stored(ref)
    got[count - 100 :] = garbage(ref)[-100:]
    assert first(got, ref).sentence.endswith(f"lie in the tail elements from {count - 100} on.")


def test_bool_and_integer_outputs() -> None:
    generator = np.random.default_rng(2)
    mask = generator.random((64, 48)) < 0.5
    assert names(found(np.zeros_like(mask), mask, 0)) == ["zeros"]
    assert names(found(~mask, mask, 0)) == ["scattered"]
    assert first(np.roll(mask, 1, axis=1), mask, 0).name == Name.SHIFTED
    index = generator.integers(0, 1000, (64, 48))
    assert first(np.roll(index, 1, axis=0), index, 0).name == Name.SHIFTED
    assert first(np.minimum(index, 255), index, 0).figure["largest"] == 255


def test_zeros_in_the_reference() -> None:
    ref = np.maximum(drawn((64, 48)), 0)
    assert names(found(stored(3 * ref), ref)) == ["scaled"]
    assert names(found(0 * ref, ref)) == ["zeros"]
    assert names(found(np.ones_like(ref), 0 * ref, 0.1)) == ["constant"]


def test_moves_take_what_is_allowed_with_them() -> None:
    ref = drawn((48, 64)) * np.logspace(-3, 3, 48)[:, None]
    assert first(stored(ref[::-1]), ref, RELATIVE * np.abs(ref) + 1e-9).figure["order"] == "reversed"
    assert first(stored(np.roll(ref, 1, axis=0)), ref, RELATIVE * np.abs(ref) + 1e-9).name == Name.SHIFTED


@pytest.mark.parametrize("pair", [(0, 1), (0, 2), (1, 2)])
def test_any_two_axes_may_be_swapped(pair: tuple[int, int]) -> None:
    ref = drawn((16, 16, 16))
    pattern = first(stored(np.swapaxes(ref, *pair)), ref)
    assert (pattern.name, pattern.figure["axes"]) == (Name.TRANSPOSED, f"{pair[0]} and {pair[1]}")
    assert pattern.figure["layout_only"] == 0


def test_large_outputs_are_decided_on_a_sample() -> None:
    ref = drawn((1100, 1024))
    got = ref.copy()
    got[640:768] *= 2
    result = found(got, ref)
    assert names(result) == ["scaled", "region"]
    assert (result[1].figure["start"], result[1].figure["stop"]) == (640, 768)
    assert first(ref[np.random.default_rng(0).permutation(1100)], ref).name == Name.ROWS_PERMUTED
    assert first(np.roll(ref, -7, axis=1), ref).figure["shift"] == -7


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    shape=st.lists(st.integers(1, 12), max_size=4).map(tuple),
    size=st.sampled_from([0.0, 1e-6, 0.01, 1.0, 100.0]),
    kind=st.sampled_from(["normal", "integers", "zeros", "huge", "constant"]),
    extreme=st.booleans(),
)
def test_no_pattern_is_reported_within_what_is_allowed(
    seed: int, shape: tuple[int, ...], size: float, kind: str, extreme: bool
) -> None:
    generator = np.random.default_rng(seed)
    ref = {
        "normal": lambda: generator.standard_normal(shape),
        "integers": lambda: generator.integers(-3, 4, shape).astype(np.float64),
        "zeros": lambda: np.zeros(shape),
        "huge": lambda: 1e300 * generator.standard_normal(shape),
        "constant": lambda: np.full(shape, 7.0),
    }[kind]()
    limit = size * (np.abs(ref) + 1) * generator.random(shape)
    # Everything as far off as it may be, in patterns too: all one sign, or random.
    got = ref + limit * (1 if extreme else generator.uniform(-1, 1, shape))
    limit = np.maximum(limit, np.abs(got - ref))
    assert patterns(got, ref, limit) == ()


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**31), rows=st.integers(8, 40), columns=st.integers(8, 40))
def test_independent_outputs_show_no_pattern(seed: int, rows: int, columns: int) -> None:
    generator = np.random.default_rng(seed)
    ref, got = generator.standard_normal((2, rows, columns))
    assert names(found(got, ref)) == ["scattered"]


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    shape=st.lists(st.integers(1, 9), max_size=3).map(tuple),
    values=st.sampled_from(["nan", "inf", "huge", "tiny", "zero", "mixed"]),
)
def test_any_values_give_shares_and_sentences(seed: int, shape: tuple[int, ...], values: str) -> None:
    generator = np.random.default_rng(seed)
    choice = {
        "nan": [np.nan, 1.0],
        "inf": [np.inf, -np.inf, 2.0],
        "huge": [1e308, -1e308, 1.0],
        "tiny": [5e-324, 0.0, -5e-324],
        "zero": [0.0, 1.0],
        "mixed": [np.nan, np.inf, 0.0, 1e308, -3.0],
    }[values]
    got, ref = np.asarray(generator.choice(choice, shape)), np.asarray(generator.choice(choice, shape))
    same = (got == ref) | (np.isnan(got) & np.isnan(ref))
    result = patterns(got, ref, 0)
    assert bool(result) != bool(np.all(same))
    for pattern in result:
        assert pattern.explains >= 0.95
        assert not pattern.sentence[0].islower()
        assert pattern.sentence.endswith(".")
        assert all(isinstance(value, int | float | str) for value in pattern.figure.values())


@pytest.mark.parametrize(
    ("got", "ref", "limit", "message"),
    [
        (np.ones((2, 3)), np.ones((3, 2)), 0, "shape (2, 3) and the reference (3, 2)"),
        (np.ones(3), np.ones(3), -1, "an allowed error is -1"),
        (np.ones(3), np.ones(3), np.nan, "NaN where the reference is a number"),
        (np.ones(3), np.ones(3), np.ones(2), "the allowed error has shape (2,)"),
        (np.ones(3, complex), np.ones(3), 0, "the output holds complex128"),
        (np.ones(3), np.array(["a"] * 3), 0, "the reference holds <U1"),
    ],
)
def test_bad_input(got: Array, ref: Array, limit: Any, message: str) -> None:
    with pytest.raises(ValueError) as raised:
        patterns(got, ref, limit)
    assert message in str(raised.value)


def test_a_share_is_from_0_to_1() -> None:
    with pytest.raises(ValueError, match="scattered explains 1.5"):
        Pattern(Name.SCATTERED, "a sentence", 1.5)

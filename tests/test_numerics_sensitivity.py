"""Which input regions count, on references whose dependence is known by construction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nkireview.numerics.sensitivity import Region, changed, conditioning, perturb, probe

Array = npt.NDArray[Any]


def draw(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


def whole(array: Array) -> Region:
    return Region("whole", tuple((0, size) for size in array.shape))


class Counting:
    """A reference that counts its calls."""

    def __init__(self, function: Any) -> None:
        self.function, self.calls = function, 0

    def __call__(self, args: list[Array]) -> Sequence[Array]:
        self.calls += 1
        result: Sequence[Array] = self.function(*args)
        return result


def test_probe_finds_what_each_output_depends_on() -> None:
    reference = Counting(lambda x, w, unused: [x[:6] @ w, np.sum(w)])
    args = {"x": draw(8, 16), "w": draw(16, 4), "unused": draw(5)}
    found = {(i.input_path, i.region.name, i.output_index): i.changed for i in probe(reference, args, seed=1)}
    assert found[("x", "whole", 0)]
    assert not found[("x", "whole", 1)]
    assert not found[("x", "last quarter of rows", 0)]
    assert found[("x", "last quarter of columns", 0)]
    assert all(found[("w", region, output)] for region in ("whole", "random block") for output in (0, 1))
    assert not found[("unused", "whole", 0)]
    assert not found[("unused", "whole", 1)]
    assert {region for path, region, _ in found if path == "unused"} == {"whole"}
    assert reference.calls == 1 + 4 + 4 + 1


def test_probe_honours_the_number_of_regions() -> None:
    reference = Counting(lambda x: [x * 2])
    assert len(probe(reference, {"x": draw(8, 8)}, 0, regions_per_input=5)) == 5
    assert reference.calls == 6
    assert [i.region.name for i in probe(reference, {"x": draw(8, 8)}, 0, regions_per_input=1)] == ["whole"]
    with pytest.raises(ValueError, match=r"^0 regions for each input: expected at least 1$"):
        probe(reference, {"x": draw(8, 8)}, 0, regions_per_input=0)


def test_regions_are_the_quarters_they_are_named_after() -> None:
    found = probe(lambda args: [args[0] + 0.0], {"x": draw(1, 8, 3, 16)}, 0, regions_per_input=5)
    ranges = {i.region.name: i.region.ranges for i in found}
    assert ranges["last quarter of rows"] == ((0, 1), (6, 8), (0, 3), (0, 16))
    assert ranges["first quarter of rows"] == ((0, 1), (0, 2), (0, 3), (0, 16))
    assert ranges["last quarter of columns"] == ((0, 1), (0, 8), (0, 3), (12, 16))
    sizes = [stop - start for start, stop in ranges["random block"]]
    assert sizes == [1, 2, 1, 4]


def test_a_vector_has_no_region_twice() -> None:
    found = probe(lambda args: [args[0] + 0.0], {"x": draw(8)}, 0, regions_per_input=5)
    ranges = [i.region.ranges for i in found]
    assert len(ranges) == len(set(ranges))
    assert [i.region.name for i in probe(lambda args: [args[0]], {"x": np.array([2.0])}, 0)] == ["whole"]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3])
def test_perturbing_floats_moves_every_element_of_the_region_and_no_other(dtype: Any) -> None:
    array = draw(12, 20).astype(dtype)
    region = Region("block", ((3, 7), (5, 20)))
    moved = perturb(array, region, 3)
    assert moved is not None
    assert moved.dtype == array.dtype
    distance = np.abs(moved.astype(float) - array.astype(float))
    size = np.sqrt(np.mean(array.astype(float) ** 2))
    assert distance[region.slices].min() > 0.8 * size
    distance[region.slices] = 0
    assert distance.max() == 0
    again = perturb(array, region, 3)
    assert again is not None
    assert np.array_equal(moved, again)


def test_perturbed_floats_stay_positive_and_finite_where_they_were() -> None:
    positive = np.abs(draw(8, 8)).astype(ml_dtypes.float8_e4m3) * ml_dtypes.float8_e4m3(64)
    moved = perturb(positive, whole(positive), 0)
    assert moved is not None
    assert moved.astype(float).min() >= 0
    assert np.isfinite(moved.astype(float)).all()
    mask = np.array([[0.0, -np.inf], [0.0, 0.0]])
    masked = perturb(mask, whole(mask), 0)
    assert masked is not None
    assert masked[0, 1] == -np.inf
    assert np.all(masked[mask == 0] != 0)


@given(
    values=st.lists(st.integers(-100, 100), min_size=2, max_size=40),
    seed=st.integers(0, 1000),
)
@settings(deadline=None)
def test_perturbed_integers_change_everywhere_and_stay_among_their_values(
    values: list[int], seed: int
) -> None:
    array = np.array(values, dtype=np.int32)
    moved = perturb(array, whole(array), seed)
    if len(set(values)) == 1:
        assert moved is None
        return
    assert moved is not None
    assert np.all(moved != array)
    assert set(moved.tolist()) <= set(values)
    if len(set(values)) == len(values):
        assert sorted(moved.tolist()) == sorted(values)


def test_one_of_distinct_integers_cannot_change_alone() -> None:
    array = np.arange(4)
    assert perturb(array, Region("one", ((1, 2),)), 0) is None
    found = probe(lambda args: [args[0] + 0], {"i": array}, 0)
    assert [i.region.name for i in found] == ["whole"]


def test_bool_flips() -> None:
    array = np.array([True, False, True])
    moved = perturb(array, Region("some", ((1, 3),)), 0)
    assert moved is not None
    assert moved.tolist() == [True, True, False]


def test_integer_indices_show_through_a_gather() -> None:
    table = draw(10, 4)
    args = {"table": table, "index": np.random.default_rng(0).integers(0, 10, 32)}
    found = probe(lambda args: [args[0][args[1]]], args, 0)
    assert all(i.changed for i in found if i.input_path == "index")


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ([1.0, 2.0], [1.0, 2.0], False),
        ([1.0, 2.0], [1.0, 2.0 + 1e-7], False),
        ([1.0, 2.0], [1.0, 2.0 + 1e-5], True),
        ([0.0, 0.0], [0.0, 1e-30], True),
        ([np.nan, 1.0], [np.nan, 1.0], False),
        ([np.nan, 1.0], [1.0, 1.0], True),
        ([np.inf, 1.0], [-np.inf, 1.0], True),
        ([np.inf, 1.0], [np.inf, 1.0], False),
        ([1, 2], [1, 3], True),
        ([10**7, 2], [10**7 + 1, 2], True),
        ([1.0], [1.0, 1.0], True),
        ([], [], False),
    ],
)
def test_changed(before: list[float], after: list[float], expected: bool) -> None:
    assert changed(np.array(before), np.array(after)) == expected


def test_what_the_reference_raises_is_not_caught() -> None:
    def reference(args: list[Array]) -> list[Array]:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match=r"^no$"):
        probe(reference, {"x": draw(2)}, 0)


def test_conditioning_by_known_derivatives() -> None:
    x = draw(64, 256)
    # Relative moves of +-u: x -> u |x|; x**8 -> 8 u |x**8|; x + 1000 -> u |x| beside 1000, clipped to 1.
    found = conditioning(
        lambda args: [args[0], args[0] ** 8, args[0] + 1000, np.sum(args[0] * 0, dtype=int)], {"x": x}, 0
    )
    assert found == pytest.approx([1, 8, 1, 1], rel=1e-5)
    centred = conditioning(lambda args: [args[0] - args[0].mean()], {"x": x + 100}, 0)
    assert centred[0] == pytest.approx(100, rel=0.05)


def test_conditioning_takes_stored_formats_and_leaves_integers() -> None:
    args = {"x": draw(4, 8).astype(ml_dtypes.bfloat16), "i": np.arange(4)}
    found = conditioning(lambda args: [args[0][args[1]]], args, 0)
    assert found == pytest.approx([1.0], rel=1e-6)
    assert conditioning(lambda args: [args[0] * 0, np.full(2, np.nan)], args, 0) == [1.0, 1.0]

"""Void tasks: a kernel that computes nothing must fail, or the task cannot grade."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from nkireview.numerics.limits import Policy, limits_for
from nkireview.numerics.verdict import Verdict, judge
from nkireview.numerics.void import VoidCheck, void_checks

Array = npt.NDArray[Any]


def check(
    references: Mapping[str, Array],
    inputs: Mapping[str, Array],
    dtype: str = "float32",
    policy: Policy | None = None,
) -> VoidCheck:
    def judge_output(name: str, candidate: Array) -> Verdict:
        return judge(candidate, references[name], limits_for(dtype, 1, policy))

    return void_checks(references, inputs, judge_output)


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


def draw(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape)


def test_a_sound_task_is_not_void() -> None:
    x = draw(16, 64)
    for dtype in ("float32", "bfloat16", "float8_e4m3"):
        found = check({"out0": softmax(x)}, {"x": x}, dtype)
        assert found == VoidCheck((), ())
        assert not found.void


def test_an_absolute_tolerance_above_the_output_voids_the_task() -> None:
    x = draw(4, 4096)
    found = check({"out0": softmax(x)}, {"x": x}, policy=Policy(rtol=1e-2, absolute=1e-2))
    assert found.void
    assert [reason.baseline for reason in found.reasons] == [
        "zeros",
        "the mean of the reference in every element",
        "the reference with its rows rotated by one",
    ]
    peak = softmax(x).max()
    assert peak < 1e-2
    assert found.reasons[0].output == "out0"
    assert found.reasons[0].sentence.startswith(
        "zeros would pass the tolerance of output out0 (scaled max error "
    )
    assert f"largest error {peak:.2g}," in found.reasons[0].sentence
    assert found.reasons[0].sentence.endswith("): this test cannot grade this task")


def test_an_input_that_would_pass_as_the_output_voids_the_task() -> None:
    x = draw(16, 64).astype(ml_dtypes.bfloat16)
    found = check({"y": x.astype(float) * (1 + 1e-4)}, {"x": x, "z": x.T}, "bfloat16")
    assert [(r.output, r.baseline) for r in found.reasons] == [("y", "a copy of input x")]


def test_inputs_of_another_shape_or_class_are_no_baselines() -> None:
    mask = np.ones((2, 8), dtype=bool)
    seen: list[Array] = []

    def judge_output(name: str, candidate: Array) -> Verdict:
        seen.append(candidate)
        return judge(candidate, reference, limits_for("float32", 1))

    reference = draw(2, 8)
    void_checks({"y": reference}, {"m": mask, "i": np.ones((2, 8), np.int32), "f": draw(8)}, judge_output)
    assert len(seen) == 3  # zeros, mean and rotated rows


def test_a_copy_kernel_skips_the_copy() -> None:
    x = draw(4, 8)
    found = check({"y": x}, {"x": x})
    assert not found.void
    assert [entry.sentence for entry in found.skipped] == [
        "output y is not held against a copy of input x: the reference equals it exactly"
    ]


def test_rotating_a_constant_is_skipped() -> None:
    found = check({"y": np.full((4, 8), 2.0)}, {})
    assert not found.void
    assert [entry.baseline for entry in found.skipped] == [
        "the mean of the reference in every element",
        "the reference with its rows rotated by one",
    ]


@pytest.mark.parametrize("shape", [(8,), (1, 8), (8, 1), (1, 1, 8)])
def test_one_row_is_rotated_along_itself(shape: tuple[int, ...]) -> None:
    reference = np.zeros(shape)
    reference[...] = np.arange(8.0).reshape(shape)
    seen = []

    def judge_output(name: str, candidate: Array) -> Verdict:
        seen.append(candidate)
        return judge(candidate, reference, limits_for("float32", 1))

    void_checks({"y": reference}, {}, judge_output)
    assert np.array_equal(seen[-1].reshape(-1), [7, 0, 1, 2, 3, 4, 5, 6])
    assert seen[-1].shape == shape


def test_rows_are_rotated_along_the_first_axis_longer_than_one() -> None:
    reference = draw(1, 3, 4)
    seen = []

    def judge_output(name: str, candidate: Array) -> Verdict:
        seen.append(candidate)
        return judge(candidate, reference, limits_for("float32", 1))

    void_checks({"y": reference}, {}, judge_output)
    assert np.array_equal(seen[-1], reference[:, [2, 0, 1]])


def test_a_reference_of_zeros_alone_voids_the_task() -> None:
    found = check({"y": np.zeros((4, 8)), "z": np.zeros(3)}, {})
    assert [reason.sentence for reason in found.reasons] == [
        "every output of the reference is zero, so a kernel that only writes zeros passes: "
        "this test cannot grade this task"
    ]
    assert not check({"y": np.zeros((4, 8)), "z": np.ones(3)}, {}).void


def test_whole_number_outputs_are_held_against_zeros_and_rotation() -> None:
    reference = np.arange(12).reshape(3, 4)
    assert check({"y": reference}, {}, "int32") == VoidCheck((), ())


def test_a_reference_with_nan_has_a_mean_of_its_finite_values() -> None:
    reference = draw(4, 8)
    reference[0, 0] = np.nan
    assert not check({"y": reference}, {}).void
    assert check({"y": np.full((2, 2), np.nan)}, {}).reasons == ()


def test_an_output_without_elements_shows_nothing() -> None:
    assert check({"y": np.zeros((2, 0)), "z": np.ones(3)}, {}).reasons == ()

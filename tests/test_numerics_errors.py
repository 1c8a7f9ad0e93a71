"""Error figures against plain NumPy float64 arithmetic, and the verdicts made from them."""

from __future__ import annotations

import math
import re
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nkireview.numerics import arrays
from nkireview.numerics.errors import (
    ErrorFigures,
    ExactFigures,
    LimitUse,
    NonFinite,
    ShapeMismatch,
    Worst,
    compare,
)
from nkireview.numerics.limits import Policy, limits_for
from nkireview.numerics.verdict import Verdict, judge, judge_figures

BF16 = ml_dtypes.bfloat16
Array = npt.NDArray[Any]


def floats(got: Array, ref: Array, dtype: str, **keywords: Any) -> ErrorFigures:
    figures = compare(got, ref, dtype, **keywords)
    assert isinstance(figures, ErrorFigures)
    return figures


@given(
    seed=st.integers(0, 2**31),
    shape=st.lists(st.integers(1, 7), min_size=0, max_size=3).map(tuple),
    block=st.integers(1, 40),
    per_row=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_figures_equal_whole_array_arithmetic(
    seed: int, shape: tuple[int, ...], block: int, per_row: bool
) -> None:
    generator = np.random.default_rng(seed)
    ref = generator.standard_normal(shape)
    got = np.asarray(ref + 0.01 * generator.standard_normal(shape)).astype(np.float32)
    limits = limits_for("float32", 4, Policy(rtol=1e-3, atol=5e-3, rms=4e-3, absolute=1e-3, per_row=per_row))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrays, "BLOCK_ELEMENTS", block)
        figures = floats(got, ref, "float32", limits=limits)

    width = next((size for size in reversed(shape) if size > 1), 1)
    want = ref.reshape(-1, width)
    error = np.abs(got.astype(np.float64).reshape(-1, width) - want)
    by_row = np.sqrt(np.mean(want**2, axis=1, keepdims=True))
    scale = by_row if per_row else np.sqrt(np.mean(want**2))
    weight = (want / scale) ** 2
    rms_limit = 4e-3 * (1 + 1.5 / math.sqrt(np.sum(weight) ** 2 / np.sum(weight**2)))
    counted = np.abs(want) > by_row / 64
    ulps = error / 2.0 ** (np.floor(np.log2(np.abs(want))) - 23)
    allowed = 1e-3 * np.abs(want) + 5e-3 * scale + 1e-3

    assert figures.elements == figures.finite == ref.size
    assert figures.rms_ref == pytest.approx(np.sqrt(np.mean(want**2)))
    assert figures.scaled_max == pytest.approx(np.max(error / scale))
    assert figures.rms_ratio == pytest.approx(np.sqrt(np.mean((error / scale) ** 2)))
    assert figures.worst_ulps == pytest.approx(np.max(ulps[counted]))
    assert figures.max_error == error.max()
    assert figures.worst is not None
    flat = int(error.argmax())
    assert figures.worst.index == tuple(np.unravel_index(flat, shape))
    assert (figures.worst.got, figures.worst.ref) == (got.reshape(-1)[flat], ref.reshape(-1)[flat])
    assert figures.use is not None
    assert figures.use.over == np.count_nonzero(error > allowed)
    assert figures.fraction_over == figures.use.over / ref.size
    assert figures.use.element == pytest.approx(np.max(error / allowed))
    assert figures.use.rms_limit == pytest.approx(rms_limit)
    assert figures.use.rms == pytest.approx(np.sqrt(np.mean((error / (rms_limit * scale + 1e-3)) ** 2)))


def test_figures_by_hand() -> None:
    ref = np.array([[3.0, 4.0], [0.0, 0.0]])
    got = np.array([[3.0, 4.5], [0.0, 0.0]], dtype=np.float32)
    figures = floats(got, ref, "bfloat16")
    assert figures.rms_ref == 2.5  # sqrt((9 + 16) / 4)
    assert figures.scaled_max == 0.2
    assert figures.rms_ratio == 0.1  # sqrt(0.25 / 4) / 2.5
    assert figures.worst_ulps == 16  # 0.5 over the bf16 spacing 2**-5 from 4 to 8
    assert figures.worst == Worst((0, 1), 4.5, 4.0, 0.5)
    assert figures.use is None
    assert figures.fraction_over == 0


def test_the_ulp_count_leaves_out_elements_far_below_their_row() -> None:
    ref = np.array([[1.0, 1e-3], [1e-3, 1e-3]])
    got = ref.copy()
    got[0, 1] = 2e-3
    assert floats(got, ref, "float32").worst_ulps == 0
    got[1, 1] = 2e-3
    assert floats(got, ref, "float32").worst_ulps == pytest.approx(1e-3 / 2**-33)


def test_an_all_zero_reference_is_matched_by_zeros_only() -> None:
    zero = np.zeros((2, 3))
    exact = floats(zero.astype(BF16), zero, "bfloat16")
    assert (exact.scaled_max, exact.rms_ratio) == (0, 0)
    got = zero.copy()
    got[1, 2] = 1e-30
    wrong = floats(got, zero, "bfloat16")
    assert (wrong.scaled_max, wrong.rms_ratio) == (math.inf, math.inf)
    limits = limits_for("bfloat16", 1)
    assert judge(zero.astype(BF16), zero, limits).passed
    assert not judge(got, zero, limits).passed


def test_an_all_zero_row_counts_alone_when_scaled_by_row() -> None:
    ref = np.array([[1.0, 1.0], [0.0, 0.0]])
    got = np.array([[1.0, 1.0], [0.0, 1e-6]])
    assert judge(got, ref, limits_for("float32", 1)).passed is False
    assert judge(got, ref, limits_for("bfloat16", 1)).passed
    assert not judge(got, ref, limits_for("bfloat16", 1, Policy(per_row=True))).passed


def test_values_that_underflow_in_the_output_dtype_are_allowed_their_rounding() -> None:
    ref = np.full((8, 64), 4e-4)  # below half the smallest float8_e4m3 number, 2**-10
    assert judge(np.zeros(ref.shape), ref, limits_for("float8_e4m3", 64)).passed
    assert not judge(np.zeros(ref.shape), ref, limits_for("float16", 64)).passed


@pytest.mark.parametrize(
    ("got", "ref", "matches"),
    [
        (np.nan, np.nan, True),
        (np.inf, np.inf, True),
        (-np.inf, -np.inf, True),
        (np.inf, -np.inf, False),
        (np.nan, np.inf, False),
        (np.nan, 1.0, False),
        (np.inf, 1.0, False),
        (1.0, np.nan, False),
        (1.0, np.inf, False),
        (np.inf, 70000.0, True),
        (-np.inf, 70000.0, False),
        (65504.0, 65530.0, False),
        (65504.0, 65510.0, True),
        (np.inf, 65504.0, False),
    ],
)
def test_non_finite_values_match_only_themselves_as_float16_stores_them(
    got: float, ref: float, matches: bool
) -> None:
    filler = np.linspace(1, 2, 15)
    have, want = np.append(filler, got).reshape(2, 8), np.append(filler, ref).reshape(2, 8)
    figures = floats(have.astype(np.float16), want, "float16")
    assert (figures.nonfinite is None) == matches
    if not matches:
        assert figures.nonfinite is not None
        assert figures.nonfinite.count == 1
        assert figures.nonfinite.index == (1, 7)
    assert not math.isnan(figures.scaled_max)
    assert judge(have.astype(np.float16), want, limits_for("float16", 1)).passed == matches


def test_float8_e4m3fn_overflows_to_nan() -> None:
    ref = np.array([1.0, 1000.0])
    limits = limits_for("float8_e4m3fn", 1)
    assert judge(ref.astype(ml_dtypes.float8_e4m3fn), ref, limits).passed
    assert not judge(np.array([1.0, 448.0]).astype(ml_dtypes.float8_e4m3fn), ref, limits).passed


def test_nan_never_passes() -> None:
    ref = np.ones((4, 4))
    got = ref.copy()
    got[2, 3] = np.nan
    verdict = judge(got, ref, limits_for("float32", 1, Policy(rtol=1e6, atol=1e6, rms=1e6, absolute=1e6)))
    assert verdict.reason == (
        "1 of 16 elements (6.2%) differ in NaN or infinity; the first is at [2, 3]: got nan, expected 1"
    )


def test_a_reference_without_finite_elements_judges_nothing() -> None:
    nothing = np.full(4, np.nan)
    assert judge(nothing, nothing, limits_for("float32", 1)).reason == (
        "no element of the reference is finite, so nothing can be judged"
    )


def test_a_number_in_place_of_an_overflow_is_a_mismatch() -> None:
    ref, got = np.array([1.0, 1e200]), np.array([1.0, 1.0], dtype=np.float32)
    figures = floats(got, ref, "float32")
    assert (figures.rms_ref, figures.rms_ratio, figures.finite) == (1.0, 0.0, 1)
    assert judge(got, ref, limits_for("float32", 1)).reason == (
        "1 of 2 elements (50%) differ in NaN or infinity; the first is at [1]: got 1, expected inf"
    )


@pytest.mark.parametrize("dtype", ["int8", "int32", "uint16", "bool"])
def test_whole_numbers_must_be_equal(dtype: str) -> None:
    ref = np.array([[0, 1, 1], [1, 0, 1]], dtype=np.dtype(dtype))
    assert judge(ref.copy(), ref, limits_for(dtype, 1)).passed
    got = ref.copy()
    got[1, 1] = 1
    verdict = judge(got, ref, limits_for(dtype, 1))
    name = "bool_" if dtype == "bool" else dtype
    assert verdict.reason == (
        f"1 of 6 elements (17%) differ and {name} must match exactly; "
        "the largest difference is at [1, 1]: got 1, expected 0"
    )


def test_large_whole_numbers_are_compared_without_rounding() -> None:
    ref = np.array([2**31 - 1, 2**24 + 1])
    figures = compare(np.array([2**31 - 2, 2**24 + 1], dtype=np.int32), ref, "int32")
    assert figures == ExactFigures("int32", 2, 1, Worst((0,), 2**31 - 2, 2**31 - 1, 1.0))


def test_nan_in_place_of_a_whole_number_is_a_mismatch() -> None:
    figures = compare(np.array([np.nan, 2.0]), np.array([1, 2]), "int32")
    assert isinstance(figures, ExactFigures)
    assert figures.mismatches == 1
    assert figures.worst is not None
    assert figures.worst.error == math.inf


def test_block_scales_must_be_equal() -> None:
    ref = np.array([0.5, 4.0, 8.0])
    got = ref.astype(ml_dtypes.float8_e8m0fnu)
    assert judge(got, ref, limits_for("float8_e8m0fnu", 1)).passed
    assert not judge(np.array([0.5, 4.0, 16.0]), ref, limits_for("float8_e8m0fnu", 1)).passed
    assert isinstance(compare(got, ref, "float8_e8m0fnu"), ExactFigures)


def test_a_shape_mismatch_is_its_own_outcome() -> None:
    got, ref = np.zeros((4, 8), np.float32), np.zeros((8, 4))
    assert compare(got, ref, "float32") == ShapeMismatch((4, 8), (8, 4))
    assert judge(got, ref, limits_for("float32", 1)).reason == (
        "the output has shape (4, 8) and the reference (8, 4)"
    )


def test_the_reason_quotes_figures_and_limits() -> None:
    ref = np.ones((4, 8))
    got = ref.copy()
    got[1, 2] = 1.5
    limits = limits_for("float32", 1, Policy(rtol=0.1, atol=0.0, rms=1e-3, absolute=0.05))
    assert judge(got, ref, limits).reason == (
        "1 of 32 elements (3.1%) exceed 0.1 x |ref| + 0 x rms(ref) + 0.05; the largest error 0.5 is at "
        "[1, 2]: got 1.5, expected 1 (scaled max error 0.5); "
        "the rms error is 0.0884 of the reference's rms, limit 0.00127"
    )
    by_row = limits_for("float32", 1, Policy(rtol=0.1, atol=0.0, rms=1.0, per_row=True))
    assert "exceed 0.1 x |ref| + 0 x the rms of its row; the largest" in judge(got, ref, by_row).reason


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: compare(np.zeros(2), np.zeros(2), "float8_e4m3fn_x4"),
            "float8_e4m3fn_x4 outputs are packed: compare their unpacked values",
        ),
        (
            lambda: compare(np.zeros(2), np.zeros(2), "float32", limits_for("bfloat16", 1)),
            "limits for bfloat16 cannot judge an output of float32",
        ),
        (
            lambda: compare(np.zeros((0, 2)), np.zeros((0, 2)), "float32"),
            "an output of shape (0, 2) has no elements to compare",
        ),
        (
            lambda: judge_figures(compare(np.ones(2), np.ones(2), "float32"), limits_for("float32", 1)),
            "these figures were made without limits: give compare the limits to judge by",
        ),
        (
            lambda: Worst((0,), 1.0, 2.0, math.nan),
            "the largest absolute error is nan: expected a number of at least 0",
        ),
        (
            lambda: NonFinite(0, (0,), 1.0, 2.0),
            "0 non-finite mismatches: leave the field None where there are none",
        ),
        (lambda: LimitUse(0, math.nan, 0.0, 0.0), "element is nan: expected a number of at least 0"),
        (
            lambda: ErrorFigures("float32", 1, 1, 1.0, math.nan, 0.0, 0.0, Worst((0,), 1, 1, 0), None, None),
            "scaled_max is nan: expected a number of at least 0",
        ),
        (
            lambda: ErrorFigures("float32", 1, 2, 1.0, 0.0, 0.0, 0.0, Worst((0,), 1, 1, 0), None, None),
            "2 finite elements of 1: expected no more than all",
        ),
        (
            lambda: ErrorFigures("float32", 1, 1, 1.0, 0.0, 0.0, 0.0, None, None, None),
            "the worst element must be given exactly where finite elements were compared",
        ),
        (
            lambda: ErrorFigures(
                "float32", 1, 1, 1.0, 0.0, 0.0, 0.0, Worst((0,), 1, 1, 0), None, LimitUse(2, 0, 0, 0)
            ),
            "2 elements over their limit of 1 compared",
        ),
        (lambda: ExactFigures("int8", 1, 2, None), "2 mismatches of 1 elements"),
        (
            lambda: ExactFigures("int8", 2, 1, None),
            "the worst element must be given exactly where elements differ",
        ),
        (lambda: ShapeMismatch((1,), (1,)), "both shapes are (1,): that is no mismatch"),
        (
            lambda: Verdict(True, "why", ShapeMismatch((1,), (2,))),
            "a failed verdict needs a reason, and a passed one has none",
        ),
        (
            lambda: Verdict(False, "", ShapeMismatch((1,), (2,))),
            "a failed verdict needs a reason, and a passed one has none",
        ),
        (
            lambda: Verdict(True, "", ShapeMismatch((1,), (2,))),
            "an output of another shape cannot pass",
        ),
    ],
)
def test_refusals(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        call()

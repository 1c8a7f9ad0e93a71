"""Activation functions against the math module, their derivatives against differences, their documented ranges."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nkireview.isa.act import ACTIVATIONS, BY_NAME, Activation, of, outside
from nkireview.isa.release import LATEST, LEGACY, Release

pytestmark = [pytest.mark.filterwarnings("error"), pytest.mark.usefixtures("as_executed")]


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


FORMULAS: dict[str, Callable[[float], float]] = {
    "copy": lambda x: x,
    "square": lambda x: x * x,
    "sigmoid": sigmoid,
    "relu": lambda x: max(x, 0.0),
    "gelu": lambda x: x * math.erfc(-x / math.sqrt(2)) / 2,
    "gelu_apprx_tanh": lambda x: x * sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)),
    "gelu_apprx_sigmoid": lambda x: x * sigmoid(1.702 * x),
    "silu": lambda x: x * sigmoid(x),
    "tanh": math.tanh,
    "softplus": softplus,
    "mish": lambda x: x * math.tanh(softplus(x)),
    "erf": math.erf,
    "exp": math.exp,
    "sin": math.sin,
    "arctan": math.atan,
    "sign": lambda x: float((x > 0) - (x < 0)),
    "abs": abs,
}
POSITIVE: dict[str, Callable[[float], float]] = {
    "log": math.log,
    "sqrt": math.sqrt,
    "rsqrt": lambda x: 1 / math.sqrt(x),
    "reciprocal": lambda x: 1 / x,
}
DERIVATIVES = {
    "gelu_dx": "gelu",
    "gelu_apprx_sigmoid_dx": "gelu_apprx_sigmoid",
    "silu_dx": "silu",
    "erf_dx": "erf",
}
GRID = np.linspace(-12, 12, 97)
TOLERANCE = {np.float32: 3e-6, np.float64: 1e-13}


def test_every_function_is_tested_here() -> None:
    assert {*FORMULAS, *POSITIVE, *DERIVATIVES, "prelu"} == set(BY_NAME)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", FORMULAS)
def test_values(name: str, dtype: type) -> None:
    got = BY_NAME[name].fn(GRID.astype(dtype))
    assert got.dtype == dtype
    expected = [FORMULAS[name](float(x)) for x in GRID]
    np.testing.assert_allclose(got, expected, rtol=TOLERANCE[dtype], atol=1e-16)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", POSITIVE)
def test_values_on_the_positive_numbers(name: str, dtype: type) -> None:
    x = np.array([1e-9, 0.1, 0.5, 1.0, 2.0, 7.0, 1e9], dtype)
    got = BY_NAME[name].fn(x)
    assert got.dtype == dtype
    np.testing.assert_allclose(got, [POSITIVE[name](float(value)) for value in x], rtol=TOLERANCE[dtype])


@pytest.mark.parametrize("name", DERIVATIVES)
def test_derivatives_are_the_slopes_of_their_functions(name: str) -> None:
    step = 1e-5
    formula = FORMULAS[DERIVATIVES[name]]
    slopes = [(formula(x + step) - formula(x - step)) / (2 * step) for x in GRID.tolist()]
    exact = BY_NAME[name].fn(GRID)
    np.testing.assert_allclose(exact, slopes, rtol=1e-8, atol=1e-9)
    single = BY_NAME[name].fn(GRID.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, exact, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("name", "x", "expected"),
    [
        ("gelu", 1.0, 0.8413447460685429),
        ("gelu_dx", 1.0, 0.8413447460685429 + 0.24197072451914337),
        ("gelu_dx", 0.0, 0.5),
        ("silu", 1.0, 0.7310585786300049),
        ("silu_dx", 0.0, 0.5),
        ("gelu_apprx_sigmoid_dx", 0.0, 0.5),
        ("softplus", 0.0, math.log(2)),
        ("mish", 1.0, 0.8650983882673103),
        ("erf_dx", 0.0, 2 / math.sqrt(math.pi)),
        ("gelu_apprx_tanh", 1.0, 0.8411919906082768),
        ("sign", -0.0, 0.0),
    ],
)
def test_known_values(name: str, x: float, expected: float) -> None:
    assert BY_NAME[name].fn(np.array(x)) == pytest.approx(expected, rel=1e-14)


ENDS = {
    "sigmoid": (0.0, 1.0),
    "relu": (0.0, None),
    "gelu": (0.0, None),
    "gelu_dx": (0.0, 1.0),
    "gelu_apprx_tanh": (0.0, None),
    "gelu_apprx_sigmoid": (0.0, None),
    "gelu_apprx_sigmoid_dx": (0.0, 1.0),
    "silu": (0.0, None),
    "silu_dx": (0.0, 1.0),
    "tanh": (-1.0, 1.0),
    "softplus": (0.0, None),
    "mish": (0.0, None),
    "erf": (-1.0, 1.0),
    "erf_dx": (0.0, 0.0),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ENDS)
def test_far_out_the_limits_are_reached_without_warning(name: str, dtype: type) -> None:
    low, high = ENDS[name]
    x = np.array([-math.inf, -1e30, -100.0, 100.0, 1e30, math.inf], dtype)
    got = BY_NAME[name].fn(x)
    np.testing.assert_allclose(got[:3], [low] * 3, atol=1e-40)
    np.testing.assert_allclose(got[3:], x[3:] if high is None else [high] * 3, rtol=1e-6)


def test_far_out_values_keep_their_precision() -> None:
    got = BY_NAME["softplus"].fn(np.array([-30.0, 30.0]))
    np.testing.assert_allclose(got, [math.log1p(math.exp(-30)), 30 + math.log1p(math.exp(-30))], rtol=1e-15)
    gelu = BY_NAME["gelu"].fn(np.array([-10.0]))
    np.testing.assert_allclose(gelu, [-10 * math.erfc(10 / math.sqrt(2)) / 2], rtol=1e-12)


def test_overflow_and_forbidden_inputs_are_results() -> None:
    x = np.array([1000.0, 0.0, -1.0], np.float32)
    assert BY_NAME["exp"].fn(x)[0] == np.inf
    assert BY_NAME["log"].fn(x)[1] == -np.inf
    assert np.isnan(BY_NAME["log"].fn(x)[2])
    assert np.isnan(BY_NAME["sqrt"].fn(x)[2])
    assert BY_NAME["rsqrt"].fn(x)[1] == np.inf
    assert BY_NAME["reciprocal"].fn(x)[1] == np.inf
    assert BY_NAME["square"].fn(np.array([1e30], np.float32))[0] == np.inf
    assert np.isnan(BY_NAME["sin"].fn(np.array([np.inf]))[0])


@pytest.mark.parametrize("name", [row.name for row in ACTIVATIONS if row.needs is None])
def test_nan_is_not_swallowed(name: str) -> None:
    assert np.isnan(BY_NAME[name].fn(np.array([np.nan], np.float32)))[0]


@pytest.mark.parametrize("row", ACTIVATIONS, ids=lambda row: row.name)
@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_shapes_and_float32_are_kept(row: Activation, shape: tuple[int, ...]) -> None:
    parameters = (0.25,) if row.needs else ()
    got = row.fn(np.ones(shape, np.float32), *parameters)
    assert (type(got), got.dtype, got.shape) == (np.ndarray, np.float32, shape)


@given(st.floats(-50, 50))
def test_softplus_grows_like_its_slope(x: float) -> None:
    softplus_of, sigmoid_of = BY_NAME["softplus"].fn, BY_NAME["sigmoid"].fn
    both = softplus_of(np.array([x, -x]))
    assert both[0] - both[1] == pytest.approx(x, abs=1e-12)
    assert sigmoid_of(np.array([x, -x])).sum() == pytest.approx(1.0, abs=1e-15)


def test_prelu_takes_its_slope_as_number_or_per_partition() -> None:
    x = np.array([[-2.0, 3.0], [-4.0, 5.0]], np.float32)
    row = BY_NAME["prelu"]
    assert row.needs == "relu_param"
    assert row.fn(x, 0.25).tolist() == [[-0.5, 3.0], [-1.0, 5.0]]
    assert row.fn(x, np.array([[0.5], [0.0]])).tolist() == [[-1.0, 3.0], [-0.0, 5.0]]
    assert row.fn(x, 0.1).dtype == np.float32
    assert (row.generations, Release(0, 3) in row.releases, LATEST in row.releases) == (("v4",), False, True)


def test_documented_ranges() -> None:
    limited = {row.name: row.valid_range for row in ACTIVATIONS if row.valid_range is not None}
    assert limited == {
        "log": (2.0**-64, 2.0**64),
        "sin": (-math.pi, math.pi),
        "arctan": (-math.pi / 2, math.pi / 2),
        "sqrt": (2.0**-116, 2.0**118),
        "rsqrt": (2.0**-87, 2.0**97),
        "reciprocal": (2.0**-42, 2.0**42),
    }
    assert [row.name for row in ACTIVATIONS if row.symmetric] == ["reciprocal"]
    assert all(row.source for row in ACTIVATIONS)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_outside_marks_what_the_engine_gets_wrong(dtype: type) -> None:
    pi = dtype(math.pi)
    x = np.array([9.0, pi, -pi, np.nextafter(pi, dtype(4)), np.nan, np.inf], dtype)
    assert outside("sin", x).tolist() == [True, False, False, True, False, True]
    x = np.array([2.0**-42, -(2.0**-43), -(2.0**42), 2.0**43, 0.0, -1.0], dtype)
    assert outside("reciprocal", x).tolist() == [False, True, False, True, True, False]
    x = np.array([0.0, 2.0**-64, 2.0**65, -1.0], dtype)
    assert outside("log", x).tolist() == [True, False, True, True]
    assert not outside("exp", np.array([1e30, np.inf, np.nan], dtype)).any()
    assert outside("sqrt", np.zeros((2, 3), dtype)).shape == (2, 3)
    assert outside("gelu", dtype(1)).shape == outside("sin", dtype(1)).shape == ()


def test_releases() -> None:
    assert {row.name for row in ACTIVATIONS if LEGACY not in row.releases} == {
        "prelu",
        "gelu_apprx_sigmoid_dx",
    }
    assert all(row.generations == ("v2", "v3", "v4") for row in ACTIVATIONS if row.name != "prelu")


def test_refusals() -> None:
    with pytest.raises(ValueError) as caught:
        of("cos")
    assert str(caught.value) == f"cos is no activation function: expected one of {', '.join(BY_NAME)}"
    with pytest.raises(ValueError, match=r"^tan is no activation function"):
        outside("tan", np.zeros(1))
    with pytest.raises(ValueError) as caught:
        BY_NAME["exp"].fn(np.zeros(1, np.int32))
    assert str(caught.value) == "exp: expected float32 or float64 values, got int32: convert them first"
    assert of("exp") is BY_NAME["exp"]


def test_importing_does_not_load_scipy() -> None:
    code = "import sys, nkireview.isa.act; print('scipy' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.strip() == "False"

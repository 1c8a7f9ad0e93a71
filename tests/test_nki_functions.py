"""Each function of `nki.language` against NumPy in float64, and each of its refusals by the message."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nl_kernels import nisa, nl, opcodes, record, run, sample
from scipy import special

from nkireview import hardware
from nkireview.checks.survey import survey
from nkireview.execute import execute
from nkireview.isa.release import Release
from nkireview.isa.table import ROWS
from nkireview.nki.errors import Refusal
from nkireview.nki.spans import Absent
from nkireview.nki.tensor import NkiTensor
from nkireview.nki.trace import Trace, tracing
from nkireview.program.prints import prints
from nkireview.program.verify import verify

Function = Callable[[np.ndarray], np.ndarray]


def phi(x: np.ndarray) -> np.ndarray:
    """The density of the normal distribution."""
    return np.exp(-x * x / 2) / np.sqrt(2 * np.pi)


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def gelu_sigmoid_dx(x: np.ndarray) -> np.ndarray:
    s = special.expit(1.702 * x)
    return s + 1.702 * x * s * (1 - s)


def silu_dx(x: np.ndarray) -> np.ndarray:
    s = special.expit(x)
    return s * (1 + x * (1 - s))


UNARY: dict[str, tuple[Function, float, float]] = {
    "exp": (np.exp, -3, 3),
    "log": (np.log, 0.1, 9),
    "sqrt": (np.sqrt, 0.1, 9),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 0.1, 9),
    "reciprocal": (lambda x: 1 / x, 0.1, 9),
    "tanh": (np.tanh, -3, 3),
    "sigmoid": (special.expit, -3, 3),
    "relu": (lambda x: np.maximum(x, 0), -3, 3),
    "gelu": (lambda x: x * special.ndtr(x), -3, 3),
    "gelu_dx": (lambda x: special.ndtr(x) + x * phi(x), -3, 3),
    "gelu_apprx_tanh": (gelu_tanh, -3, 3),
    "gelu_apprx_sigmoid": (lambda x: x * special.expit(1.702 * x), -3, 3),
    "gelu_apprx_sigmoid_dx": (gelu_sigmoid_dx, -3, 3),
    "silu": (lambda x: x * special.expit(x), -3, 3),
    "silu_dx": (silu_dx, -3, 3),
    "softplus": (lambda x: np.log1p(np.exp(x)), -3, 3),
    "mish": (lambda x: x * np.tanh(np.log1p(np.exp(x))), -3, 3),
    "erf": (special.erf, -3, 3),
    "erf_dx": (lambda x: 2 / np.sqrt(np.pi) * np.exp(-x * x), -3, 3),
    "arctan": (np.arctan, -1.5, 1.5),
    "square": (np.square, -3, 3),
    "abs": (np.abs, -3, 3),
    "sign": (np.sign, -3, 3),
    "negative": (np.negative, -3, 3),
    "copy": (lambda x: x, -3, 3),
    "sin": (np.sin, -200, 200),
    "cos": (np.cos, -200, 200),
    "tan": (np.tan, -1.3, 1.3),
    "floor": (np.floor, -50, 50),
    "ceil": (np.ceil, -50, 50),
    "trunc": (np.trunc, -50, 50),
}


def named(*names: str) -> list[Any]:
    """Parameters that carry the name they prove."""
    return [pytest.param(name, marks=pytest.mark.oracle(f"nl.{name}")) for name in names]


@pytest.mark.parametrize("name", named(*sorted(UNARY)))
@pytest.mark.parametrize("release", ["0.3", "0.6"])
def test_unary_functions(name: str, release: str) -> None:
    function, low, high = UNARY[name]
    x = sample(low, high)
    got = run(lambda t: getattr(nl, name)(nl.load(t)), x, release=release)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, function(x.astype(np.float64)), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", sorted(set(UNARY) - {"sin", "cos", "tan"}))
def test_unary_functions_round_once_to_bfloat16(name: str) -> None:
    function, low, high = UNARY[name]
    x = sample(low, high)
    got = run(lambda t: getattr(nl, name)(nl.load(t), dtype=nl.bfloat16), x)
    wanted = function(x.astype(np.float64))
    assert got.dtype == ml_dtypes.bfloat16
    # half a unit in the last of eight bits, and what float32 adds
    np.testing.assert_allclose(got.astype(np.float64), wanted, rtol=2**-8 + 2e-5, atol=2e-5)


@pytest.mark.parametrize("name", sorted(UNARY))
def test_unary_functions_keep_the_dtype_of_a_bfloat16_tile(name: str) -> None:
    function, low, high = UNARY[name]
    x = sample(low, high).astype(ml_dtypes.bfloat16)
    got = run(lambda t: getattr(nl, name)(nl.load(t)), x)
    assert got.dtype == ml_dtypes.bfloat16
    wanted = function(x.astype(np.float64))
    np.testing.assert_allclose(got.astype(np.float64), wanted, rtol=2**-8, atol=1e-4)


@pytest.mark.oracle("nl.floor", "nl.ceil", "nl.trunc")
@pytest.mark.parametrize("name", ["floor", "ceil", "trunc"])
def test_rounding_keeps_integers_halves_and_what_no_int32_holds(name: str) -> None:
    x = np.array(
        [
            [-2.5, -2.0, -1.5, -0.5, -0.0, 0.5, 1.0, 1.5, 2.5, 1e6 + 0.5],
            [2.0**23 + 1, -(2.0**23) - 1, 2.0**31, -(2.0**31), 3e9, -3e9, 1e30, -1e30, np.inf, -np.inf],
        ],
        dtype=np.float32,
    )
    assert np.array_equal(run(lambda t: getattr(nl, name)(nl.load(t)), x), getattr(np, name)(x))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(-(2.0**40), 2.0**40, width=32), min_size=1, max_size=40))
def test_rounding_of_any_finite_value(values: list[float]) -> None:
    x = np.array([values], dtype=np.float32)
    for name in ("floor", "ceil", "trunc"):
        got = run(lambda t, name=name: getattr(nl, name)(nl.load(t)), x)
        np.testing.assert_array_equal(got, getattr(np, name)(x))


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_sines_of_large_angles(name: str) -> None:
    """The error stays below what one unit in the last place of the float32 angle makes."""
    x = sample(-1e5, 1e5)
    got = run(lambda t: getattr(nl, name)(nl.load(t)), x)
    error = np.abs(got - getattr(np, name)(x.astype(np.float64)))
    assert (error <= np.spacing(np.abs(x)) + 1e-6).all()


BINARY = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
}


@pytest.mark.parametrize("name", named(*sorted(BINARY)))
def test_binary_functions(name: str) -> None:
    x, y = np.round(sample()), np.round(sample()[::-1])
    function, wanted = getattr(nl, name), BINARY[name]
    got = run(lambda a, b: function(nl.load(a), nl.load(b)), x, y)
    np.testing.assert_array_equal(got, wanted(x, y).astype(np.float32))
    np.testing.assert_array_equal(
        run(lambda a: function(nl.load(a), 2.0), x), wanted(x, 2).astype(np.float32)
    )
    np.testing.assert_array_equal(
        run(lambda a: function(2.0, nl.load(a)), x), wanted(2, x).astype(np.float32)
    )


@pytest.mark.parametrize("name", ["equal", "less", "greater_equal", "logical_and"])
@pytest.mark.parametrize("release", ["0.3", "0.4", "0.5", "0.6"])
def test_comparisons_keep_the_input_dtype_and_take_another(name: str, release: str) -> None:
    x, y = np.round(sample(0, 1)), np.round(sample(0, 1)[::-1])
    function, wanted = getattr(nl, name), getattr(np, name)(x, y)
    assert run(lambda a, b: function(nl.load(a), nl.load(b)), x, y, release=release).dtype == np.float32
    as_bytes = run(lambda a, b: function(nl.load(a), nl.load(b), nl.uint8), x, y, release=release)
    assert as_bytes.dtype == np.uint8
    np.testing.assert_array_equal(as_bytes, wanted.astype(np.uint8))
    half = run(lambda a, b: function(nl.load(a, nl.float16), nl.load(b, nl.float16)), x, y, release=release)
    assert half.dtype == np.float16


def test_the_widest_float_is_the_dtype_of_a_mixed_result() -> None:
    x = np.round(sample())
    mixed = run(lambda a: nl.add(nl.load(a, nl.bfloat16), nl.load(a)), x)
    assert mixed.dtype == np.float32
    with_integers = run(lambda a: nl.add(nl.load(a, nl.int32), nl.load(a, nl.bfloat16)), x)
    assert with_integers.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(with_integers.astype(np.float32), 2 * x)


@pytest.mark.parametrize("name", named("logical_and", "logical_or", "logical_xor"))
def test_logical_functions(name: str) -> None:
    x = np.array([[0, 0, 1, 1]], np.float32)
    y = np.array([[0, 1, 0, 1]], np.float32)
    got = run(lambda a, b: getattr(nl, name)(nl.load(a), nl.load(b)), x, y)
    np.testing.assert_array_equal(got, getattr(np, name)(x, y).astype(np.float32))


@pytest.mark.oracle("nl.logical_not")
def test_logical_not() -> None:
    x = np.array([[0, 1]], np.float32)
    np.testing.assert_array_equal(run(lambda a: nl.logical_not(nl.load(a)), x), [[1, 0]])


@pytest.mark.parametrize(
    "name", named("bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift")
)
@pytest.mark.parametrize("dtype", [np.uint32, np.uint16, np.uint8])
def test_bitvec_functions(name: str, dtype: type[np.unsignedinteger[Any]]) -> None:
    top = np.iinfo(dtype).max
    x = np.random.default_rng(1).integers(0, top, (32, 8), dtype=dtype)
    y = np.random.default_rng(2).integers(0, 8, (32, 8), dtype=dtype)
    function, wanted = getattr(nl, name), getattr(np, name)
    np.testing.assert_array_equal(run(lambda a, b: function(nl.load(a), nl.load(b)), x, y), wanted(x, y))
    np.testing.assert_array_equal(run(lambda a: function(nl.load(a), 3), x), wanted(x, dtype(3)))


@pytest.mark.oracle("nl.right_shift")
def test_right_shift_is_logical() -> None:
    x = np.array([[-8, -1, 8]], np.int32)
    got = run(lambda a: nl.right_shift(nl.load(a), 1), x)
    np.testing.assert_array_equal(got, [[0x7FFFFFFC, 0x7FFFFFFF, 4]])


@pytest.mark.oracle("nl.invert")
@pytest.mark.parametrize("dtype", [np.uint16, np.int16, np.uint8, np.int32, np.uint32])
def test_invert(dtype: type[Any]) -> None:
    x = np.arange(64).astype(dtype).reshape(8, 8)
    np.testing.assert_array_equal(run(lambda a: nl.invert(nl.load(a)), x), np.invert(x))


@pytest.mark.oracle("nl.power")
def test_power() -> None:
    base, exponent = sample(0.5, 2), sample(-2, 2)
    got = run(lambda a, b: nl.power(nl.load(a), nl.load(b)), base, exponent)
    np.testing.assert_allclose(got, base.astype(np.float64) ** exponent, rtol=1e-5)


def test_power_of_a_psum_tile_is_illegal() -> None:
    def kernel(a: Any) -> Any:
        tile = nl.ndarray(a.shape, nl.float32, nl.psum)
        nisa.memset(tile, 1.0)
        return nl.power(tile, tile)

    assert any("cannot access" in found.message for found in verify(record(kernel, [sample()])))


# The examples that the stub of nki.language prints, with the values it states.
STUB_EXAMPLES = [
    pytest.param("abs_max", -5.0, 3.0, -5.0, marks=pytest.mark.oracle("nl.abs_max")),
    pytest.param("abs_max", 1.0, -1.0, -1.0, marks=pytest.mark.oracle("nl.abs_max")),
    pytest.param("abs_min", 5.0, -3.0, -3.0, marks=pytest.mark.oracle("nl.abs_min")),
    pytest.param("abs_min", 1.0, -1.0, -1.0, marks=pytest.mark.oracle("nl.abs_min")),
]


@pytest.mark.parametrize(("name", "x", "y", "expected"), STUB_EXAMPLES)
def test_magnitudes_as_the_stub_shows_them(name: str, x: float, y: float, expected: float) -> None:
    def kernel(_: Any) -> Any:
        a = nl.full((128, 512), x, dtype=nl.float32, buffer=nl.sbuf)
        b = nl.full((128, 1), y, dtype=nl.float32, buffer=nl.sbuf)
        return getattr(nl, name)(a, b)

    np.testing.assert_array_equal(run(kernel, sample(), target="trn3"), np.full((128, 512), expected))


@pytest.mark.parametrize("name", ["abs_max", "abs_min"])
def test_magnitudes_of_two_tiles_and_of_a_vector_first(name: str) -> None:
    x, y = sample(), sample()[::-1].copy()
    column = y[:, :1].copy()

    def expected(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        first = np.abs(a) > np.abs(b) if name == "abs_max" else np.abs(a) < np.abs(b)
        return np.where(first, a, b)

    function = getattr(nl, name)
    got = run(lambda a, b: function(nl.load(a), nl.load(b)), x, y, target="trn3")
    np.testing.assert_array_equal(got, expected(x, y))
    got = run(lambda a, b: function(nl.load(b), nl.load(a)), x, column, target="trn3")
    np.testing.assert_array_equal(got, expected(column, x))
    found = verify(record(lambda a, b: function(nl.load(a), nl.load(b)), [x, y]))
    assert any("is an ALU operator on v4 only" in violation.message for violation in found)


REDUCE = {"sum": np.sum, "max": np.max, "min": np.min, "mean": np.mean, "var": np.var, "prod": np.prod}


@pytest.mark.parametrize("name", named(*sorted(REDUCE)))
@pytest.mark.parametrize("columns", [40, 700])
def test_reductions(name: str, columns: int) -> None:
    low, high = (0.99, 1.01) if name == "prod" else (-3, 3)
    x = sample(low, high, shape=(64, columns))
    wanted = REDUCE[name](x.astype(np.float64), axis=1, keepdims=True)
    got = run(lambda t: getattr(nl, name)(nl.load(t), axis=1, keepdims=True), x)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


@settings(max_examples=40, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 9), st.integers(1, 5), st.integers(1, 5), st.integers(1, 5)),
    kept=st.integers(1, 3),
    negative=st.booleans(),
    keepdims=st.booleans(),
    name=st.sampled_from(["sum", "max", "min", "mean", "prod"]),
)
def test_reductions_over_any_trailing_axes(
    shape: tuple[int, ...], kept: int, negative: bool, keepdims: bool, name: str
) -> None:
    x = sample(0.5, 1.5, shape)
    axes = tuple(range(kept, 4))
    given_axes = tuple(axis - 4 for axis in axes) if negative else axes
    got = run(lambda t: getattr(nl, name)(nl.load(t), axis=given_axes, keepdims=keepdims), x)
    wanted = REDUCE[name](x.astype(np.float64), axis=axes, keepdims=keepdims)
    assert got.shape == (wanted.shape if wanted.ndim > 1 else (*wanted.shape, 1))
    np.testing.assert_allclose(got.reshape(wanted.shape), wanted, rtol=1e-5)


@pytest.mark.oracle("nl.var")
@pytest.mark.parametrize("axis", [(1, 2), (2,), 2, -1, [1, 2]])
def test_variance_keeps_its_axes(axis: Any) -> None:
    x = sample(shape=(8, 5, 60)) + np.float32(10)
    dims = tuple(axis) if isinstance(axis, tuple | list) else (axis,)
    wanted = np.var(x.astype(np.float64), axis=dims, keepdims=True)
    got = run(lambda t: nl.var(nl.load(t), axis=axis), x)
    assert got.shape == wanted.shape
    np.testing.assert_allclose(got, wanted, rtol=1e-4)


def test_the_mean_of_bfloat16_is_summed_in_float32() -> None:
    x = np.full((4, 4096), 1.0, ml_dtypes.bfloat16)
    got = run(lambda t: nl.mean(nl.load(t), axis=1), x)
    np.testing.assert_array_equal(got.astype(np.float32), np.ones((4, 1)))


@pytest.mark.oracle("nl.all")
def test_all() -> None:
    ones = np.ones((4, 8), np.float32)
    ones[1, 3] = 0
    np.testing.assert_array_equal(run(lambda t: nl.all(nl.load(t), axis=1), ones), [[1], [0], [1], [1]])


def softmax(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    powers = np.exp(x - x.max(axis=axes, keepdims=True))
    return powers / powers.sum(axis=axes, keepdims=True)


@pytest.mark.oracle("nl.softmax")
@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
@pytest.mark.parametrize(
    ("shape", "axis"), [((64, 300), -1), ((64, 300), 1), ((8, 6, 50), (1, 2)), ((8, 6, 50), 2)]
)
def test_softmax(shape: tuple[int, ...], axis: Any, target: str) -> None:
    x = sample(-30, 30, shape)
    axes = axis if isinstance(axis, tuple) else (axis,)
    got = run(lambda t: nl.softmax(nl.load(t), axis=axis), x, target=target)
    np.testing.assert_allclose(got, softmax(x.astype(np.float64), axes), rtol=2e-5, atol=1e-7)
    np.testing.assert_allclose(got.sum(axis=axes), 1, rtol=1e-5)


@pytest.mark.oracle("nl.softmax")
def test_softmax_of_large_values_and_of_bfloat16() -> None:
    x = sample(990, 1000)
    np.testing.assert_allclose(
        run(lambda t: nl.softmax(nl.load(t)), x), softmax(x.astype(np.float64), (1,)), rtol=2e-5
    )
    half = x.astype(ml_dtypes.bfloat16)
    got = run(lambda t: nl.softmax(nl.load(t)), half)
    assert got.dtype == ml_dtypes.bfloat16
    wanted = softmax(half.astype(np.float64), (1,))
    np.testing.assert_allclose(got.astype(np.float64), wanted, rtol=2**-8 + 2e-5, atol=1e-9)


def test_softmax_is_four_instructions_over_a_whole_row() -> None:
    program = record(lambda t: nl.softmax(nl.load(t)), [sample()])
    assert opcodes(program)[1:-1] == ["tensor_reduce", "activation", "reciprocal", "tensor_scalar"]


@pytest.mark.oracle("nl.rms_norm")
@pytest.mark.parametrize("release", ["0.3", "0.6"])
@pytest.mark.parametrize(("shape", "axis"), [((64, 300), 1), ((8, 6, 50), (1, 2)), ((8, 6, 50), 2)])
def test_rms_norm(shape: tuple[int, ...], axis: Any, release: str) -> None:
    x, w = sample(shape=shape), sample(0.5, 2, shape)
    n = 77
    got = run(lambda a, b: nl.rms_norm(nl.load(a), nl.load(b), axis, n, epsilon=0.125), x, w, release=release)
    wide = x.astype(np.float64)
    wanted = wide / np.sqrt((wide**2).sum(axis=axis, keepdims=True) / n + 0.125) * w
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.oracle("nl.rms_norm")
def test_rms_norm_as_the_stub_shows_it_and_its_dtypes() -> None:
    def example(_: Any) -> Any:
        x = nl.full((128, 512), 2.0, dtype=nl.float32, buffer=nl.sbuf)
        w = nl.full((128, 512), 1.0, dtype=nl.float32, buffer=nl.sbuf)
        return nl.rms_norm(x, w, axis=1, n=512)

    np.testing.assert_allclose(run(example, sample()), 1, rtol=1e-6)

    def halved(a: Any) -> Any:
        tile = nl.load(a)
        return nl.rms_norm(tile, tile, 1, 40, dtype=nl.float16, compute_dtype=nl.bfloat16)

    x = sample().astype(np.float64)
    got = run(halved, sample())
    assert got.dtype == np.float16
    wanted = x / np.sqrt((x**2).mean(axis=1, keepdims=True) + 1e-6) * x
    np.testing.assert_allclose(got, wanted, rtol=2**-8, atol=1e-3)


@pytest.mark.oracle("nl.where")
@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
def test_where_chooses_bits_and_spreads_nothing(target: str) -> None:
    x, y = sample(), sample()[::-1].copy()
    keep = np.round(sample(0, 1)).astype(np.float32)
    x[keep == 0], y[keep == 1] = np.nan, np.inf
    got = run(lambda c, a, b: nl.where(nl.load(c), nl.load(a), nl.load(b)), keep, x, y, target=target)
    np.testing.assert_array_equal(got, np.where(keep == 1, x, y))


@pytest.mark.oracle("nl.where")
@pytest.mark.parametrize("predicate", [np.uint8, np.uint32, ml_dtypes.bfloat16, np.int32])
def test_where_with_other_conditions_and_dtypes(predicate: Any) -> None:
    x, y = np.round(sample()), np.round(sample()[::-1])
    keep = np.round(sample(0, 1)).astype(predicate)
    got = run(
        lambda c, a, b: nl.where(nl.load(c), nl.load(a), nl.load(b, nl.bfloat16), nl.bfloat16), keep, x, y
    )
    assert got.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(got.astype(np.float32), np.where(keep.astype(bool), x, y))


@pytest.mark.oracle("nl.where")
def test_where_as_the_stub_shows_it() -> None:
    def example(_: Any) -> Any:
        cond = nl.full((128, 512), 0.0, dtype=nl.float32, buffer=nl.sbuf)
        x = nl.full((128, 512), 10.0, dtype=nl.float32, buffer=nl.sbuf)
        y = nl.full((128, 512), 5.0, dtype=nl.float32, buffer=nl.sbuf)
        return nl.where(cond, x, y)

    np.testing.assert_array_equal(run(example, sample()), np.full((128, 512), 5.0))


@pytest.mark.oracle("nl.matmul", "nl.transpose")
@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
def test_matmul_and_transpose(target: str) -> None:
    a, b = sample(shape=(128, 64)), sample(shape=(128, 96))
    got = run(lambda x, y: nl.matmul(nl.load(x), nl.load(y), transpose_x=True), a, b, target=target)
    np.testing.assert_allclose(got, a.astype(np.float64).T @ b, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(run(lambda x: nl.transpose(nl.load(x)), a, target=target), a.T)


@pytest.mark.oracle("nl.transpose")
def test_transpose_into_another_dtype() -> None:
    a = np.round(sample(shape=(128, 64)))
    got = run(lambda x: nl.transpose(nl.load(x), nl.bfloat16), a)
    assert got.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(got.astype(np.float32), a.T)


@pytest.mark.oracle("nl.copy")
def test_copy_by_release() -> None:
    """Release notes 0.6: Vector, bit-accurate, PSUM allowed, result in SBUF; before, float32 on Scalar."""
    x = np.array([[2**24 + 1, -(2**30) - 1]], np.int32)
    np.testing.assert_array_equal(run(lambda t: nl.copy(nl.load(t)), x), x)
    lossy = run(lambda t: nl.copy(nl.load(t)), x, release="0.5")
    np.testing.assert_array_equal(lossy, x.astype(np.float32).astype(np.int32))

    def from_psum(t: Any) -> Any:
        tile = nl.ndarray(t.shape, nl.float32, nl.psum)
        nisa.memset(tile, 3.0)
        copied = nl.copy(tile)
        kept.append(copied.buffer)
        return copied

    kept: list[Any] = []
    np.testing.assert_array_equal(run(from_psum, sample()), np.full((64, 40), 3.0))
    np.testing.assert_array_equal(run(from_psum, sample(), release="0.5"), np.full((64, 40), 3.0))
    assert kept == [nl.sbuf, nl.psum]


@pytest.mark.parametrize(
    ("release", "engine"), [("0.3", None), ("0.4", None), ("0.5", "gpsimd"), ("0.6", "gpsimd")]
)
def test_rsqrt_runs_where_the_release_says(release: str, engine: str | None) -> None:
    program = record(lambda t: nl.rsqrt(nl.load(t)), [sample(1, 2)], release=release)
    instruction = program.instruction(1)
    assert instruction.opcode == ("activation" if engine is None else "tensor_scalar")
    assert instruction.engine.name == (engine or "unknown")


def test_rsqrt_of_psum_is_illegal_since_05() -> None:
    def kernel(t: Any) -> Any:
        tile = nl.ndarray(t.shape, nl.float32, nl.psum)
        nisa.memset(tile, 3.0)
        return nl.rsqrt(tile)

    assert verify(record(kernel, [sample()], release="0.4")) == ()
    messages = [found.message for found in verify(record(kernel, [sample()], release="0.5"))]
    assert any("data is in PSUM, which the GpSimd engine cannot access" in text for text in messages)


@pytest.mark.oracle("nl.load", "nl.store")
def test_load_and_store_cast() -> None:
    x = sample()

    def kernel(t: Any) -> Any:
        tile = nl.load(t, dtype=nl.bfloat16)
        assert tile.buffer is nl.sbuf and tile.dtype == nl.bfloat16
        out = nl.ndarray(t.shape, nl.float32, nl.shared_hbm)
        nl.store(out, tile)
        return out

    np.testing.assert_array_equal(run(kernel, x), x.astype(ml_dtypes.bfloat16).astype(np.float32))


def test_a_psum_tile_cannot_be_stored() -> None:
    def kernel(t: Any) -> Any:
        tile = nl.ndarray(t.shape, t.dtype, nl.psum)
        nisa.memset(tile, 0.0)
        out = nl.ndarray(t.shape, t.dtype, nl.shared_hbm)
        nl.store(out, tile)
        return out

    messages = [found.message for found in verify(record(kernel, [sample()]))]
    assert any("src is in PSUM, which a DMA cannot read" in text for text in messages)


@pytest.mark.oracle("nl.load_transpose2d")
def test_load_transpose2d() -> None:
    x = sample(shape=(64, 96)).astype(ml_dtypes.bfloat16)
    got = run(lambda t: nl.load_transpose2d(t), x)
    np.testing.assert_array_equal(got, x.T)
    wide = run(lambda t: nl.load_transpose2d(t, nl.float32), x)
    np.testing.assert_array_equal(wide, x.T.astype(np.float32))


@pytest.mark.oracle("nl.gather_flattened")
def test_gather_flattened() -> None:
    data = sample(shape=(32, 4, 10))
    indices = np.random.default_rng(3).integers(0, 40, (32, 7)).astype(np.uint32)
    got = run(lambda d, i: nl.gather_flattened(nl.load(d), nl.load(i)), data, indices)
    np.testing.assert_array_equal(got, np.take_along_axis(data.reshape(32, 40), indices.astype(int), axis=1))
    half = run(lambda d, i: nl.gather_flattened(nl.load(d), nl.load(i), dtype=nl.float16), data, indices)
    assert half.dtype == np.float16


@pytest.mark.oracle("nl.zeros", "nl.ones", "nl.full", "nl.zeros_like", "nl.empty_like", "nl.ndarray")
@pytest.mark.parametrize("buffer", ["sbuf", "psum", "private_hbm", "shared_hbm"])
def test_filled_tensors(buffer: str) -> None:
    region = getattr(nl, buffer)
    shape = (64, 40) if buffer in ("sbuf", "psum") else (7, 129, 33)

    def through(t: Any) -> Any:
        if not nl.is_hbm(t.buffer):
            return t
        out = nl.ndarray(t.shape, t.dtype, nl.shared_hbm)
        nisa.dma_copy(dst=out, src=t)
        return out

    for make, value in (
        (lambda: nl.zeros(shape, nl.float32, region), 0.0),
        (lambda: nl.ones(shape, nl.float32, region, "n"), 1.0),
        (lambda: nl.full(shape, 3.5, dtype=nl.float32, buffer=region), 3.5),
        (lambda: nl.zeros_like(nl.ndarray(shape, nl.float32, region), buffer=region), 0.0),
    ):
        got = run(lambda _, make=make: through(make()), sample())
        np.testing.assert_array_equal(got, np.full(shape, value, np.float32))

    def empty(_: Any) -> Any:
        like = nl.empty_like(nl.ndarray(shape, nl.bfloat16, region))
        assert (like.shape, like.dtype, like.buffer) == (shape, nl.bfloat16, region)
        return through(like)

    program = record(empty, [sample()])
    assert any(fault.kind.startswith(("unini", "unwri")) for fault in execute(program, {0: sample()}).faults)


def test_filled_tensors_of_integers_and_their_defaults() -> None:
    got = run(lambda t: nl.full((4, 4), 7, nl.int32), sample())
    np.testing.assert_array_equal(got, np.full((4, 4), 7, np.int32))

    def kernel(t: Any) -> Any:
        assert nl.zeros_like(t).buffer is nl.sbuf and nl.empty_like(t).buffer is nl.shared_hbm
        assert nl.ones((2, 2), nl.int8).buffer is nl.sbuf
        return nl.full((4, 4), 2.5, nl.int32)

    messages = [found.message for found in verify(record(kernel, [sample()]))]
    assert any("value 2.5 is a float, dst dtype int32 needs an integer" in text for text in messages)


@pytest.mark.oracle("nl.expand_dims", "nl.broadcast_to")
def test_views() -> None:
    x = sample()
    assert run(lambda t: nl.expand_dims(nl.load(t), 2), x).shape == (64, 40, 1)
    assert run(lambda t: nl.expand_dims(nl.load(t), -1), x).shape == (64, 40, 1)
    assert run(lambda t: nl.expand_dims(nl.load(t), 1), x).shape == (64, 1, 40)

    def scaled(t: Any) -> Any:
        tile = nl.load(t)
        assert nl.broadcast_to(tile, tile.shape) is tile
        return nl.multiply(tile, nl.broadcast_to(nl.max(tile, axis=1, keepdims=True), tile.shape))

    np.testing.assert_array_equal(run(scaled, x), x * x.max(1, keepdims=True))
    cast = run(lambda t: nl.broadcast_to(nl.load(t), t.shape, nl.bfloat16), x)
    np.testing.assert_array_equal(cast, x.astype(ml_dtypes.bfloat16))


@pytest.mark.oracle("nl.broadcast_to")
@pytest.mark.parametrize("row", [0, 5, 32])
@pytest.mark.parametrize("count", [3, 32, 100, 128])
def test_broadcast_to_over_partitions(row: int, count: int) -> None:
    x = sample(shape=(64, 2, 9))
    got = run(lambda t: nl.broadcast_to(nl.load(t)[row : row + 1], (count, 2, 9)), x)
    np.testing.assert_array_equal(got, np.broadcast_to(x[row : row + 1], (count, 2, 9)))


@settings(max_examples=20, deadline=None)
@given(st.tuples(st.booleans(), st.booleans(), st.booleans()), st.tuples(*[st.integers(1, 6)] * 3))
def test_broadcast_to_as_numpy_does(ones: tuple[bool, ...], shape: tuple[int, ...]) -> None:
    x = sample(shape=tuple(1 if one else size for one, size in zip(ones, shape, strict=True)))
    got = run(lambda t: nl.broadcast_to(nl.load(t), shape), x)
    np.testing.assert_array_equal(got, np.broadcast_to(x, shape))


@pytest.mark.oracle("nl.rand", "nl.random_seed")
@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
def test_random_values_are_uniform_and_follow_the_seed(target: str) -> None:
    def kernel(_: Any) -> Any:
        seed = nl.full((1, 1), 42, dtype=nl.int32, buffer=nl.sbuf)
        both = nl.ndarray((128, 1024), nl.float32)
        for half in range(2):
            nl.random_seed(seed)
            values = nl.rand((128, 512), dtype=nl.float32)
            nisa.tensor_copy(dst=both[:, half * 512 : half * 512 + 512], src=values)
        return both

    got = run(kernel, sample(), target=target)
    np.testing.assert_array_equal(got[:, :512], got[:, 512:])
    values = got[:, :512].astype(np.float64)
    assert values.min() >= 0 and values.max() < 1
    # mean and variance of 65536 values, within five standard errors
    assert abs(values.mean() - 0.5) < 5 * np.sqrt(1 / 12 / values.size)
    assert abs(values.var() - 1 / 12) < 5 * np.sqrt(1 / 180 / values.size)
    assert len(np.unique(values)) > 1000


@pytest.mark.parametrize("buffer", ["psum", "shared_hbm"])
def test_random_values_in_other_memories(buffer: str) -> None:
    got = run(lambda _: nl.rand((100, 300), nl.float32, getattr(nl, buffer)), sample())
    assert got.shape == (100, 300) and 0 <= got.min() < 0.01 and 0.99 < got.max() < 1


@pytest.mark.oracle("nl.dropout")
@pytest.mark.parametrize("tiled", [False, True])
def test_dropout_zeroes_and_scales_nothing(tiled: bool) -> None:
    x = sample(1, 2, (128, 512))

    def kernel(t: Any) -> Any:
        rate: Any = nl.full((128, 1), 0.25, nl.float32) if tiled else 0.25
        return nl.dropout(nl.load(t), rate)

    got = run(kernel, x)
    assert np.array_equal(got, np.where(got == 0, 0, x))
    share = float((got == 0).mean())
    assert abs(share - 0.25) < 5 * np.sqrt(0.25 * 0.75 / x.size)
    np.testing.assert_array_equal(run(lambda t: nl.dropout(nl.load(t), 0.0), x), x)
    np.testing.assert_array_equal(run(lambda t: nl.dropout(nl.load(t), 1.0, nl.float16), x), x * 0)


@pytest.mark.oracle("nl.shared_constant")
@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.uint32, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2])
def test_shared_constant(dtype: Any, tmp_path: Path) -> None:
    values = np.arange(12).reshape(3, 4).astype(dtype)

    def kernel(_: Any) -> Any:
        constant = nl.shared_constant(values)
        assert constant.buffer is nl.shared_hbm and constant.shape == (3, 4)
        assert nl.shared_constant(values.copy()).storage == constant.storage
        return nl.load(constant)

    np.testing.assert_array_equal(run(kernel, sample()), values)
    file = tmp_path / "values.npy"
    np.save(file, values.astype(np.float32))
    np.testing.assert_array_equal(
        run(lambda _: nl.load(nl.shared_constant(str(file))), sample()), values.astype(np.float32)
    )


@pytest.mark.oracle("nl.shared_identity_matrix")
@pytest.mark.parametrize("dtype", ["uint8", "float32", "bfloat16", "float8_e4m3"])
def test_shared_identity_matrix(dtype: str) -> None:
    got = run(lambda _: nl.shared_identity_matrix(128, getattr(nl, dtype)), sample())
    np.testing.assert_array_equal(got.astype(np.float32), np.eye(128))


@pytest.mark.oracle("nl.shared_identity_matrix")
def test_identity_matrices_are_one_for_each_dtype() -> None:
    def kernel(_: Any) -> Any:
        first = nl.shared_identity_matrix(64)
        assert first.dtype == nl.uint8 and first.buffer is nl.sbuf
        assert nl.shared_identity_matrix(64).storage == first.storage
        small = nl.shared_identity_matrix(5)
        assert small.storage == first.storage and small.shape == (5, 5)
        assert nl.shared_identity_matrix(64, nl.float32).storage != first.storage
        into = nl.ndarray((5, 5), nl.bfloat16)
        assert nl.shared_identity_matrix(5, dst=into) is into
        return nl.add(into, small, nl.float32)

    np.testing.assert_array_equal(run(kernel, sample()), 2 * np.eye(5))
    sizes = [
        program.buffer(at).shape
        for program in [record(kernel, [sample()])]
        for at in range(program.columns.buffers)
        if program.buffer(at).dtype == "uint8" and program.buffer(at).memory.on_chip
    ]
    assert sizes == [(64, 64)]


@pytest.mark.oracle("nl.device_print")
def test_device_print_gives_prefix_and_value() -> None:
    def kernel(t: Any) -> Any:
        tile = nl.load(t)
        nl.device_print("loaded", tile)
        doubled = nl.multiply(tile, 2.0)
        nl.device_print("doubled", doubled[0:4])
        nl.device_print("given", t)
        return doubled

    x = sample()
    program = record(kernel, [x])
    assert verify(program) == ()
    shown = prints(program)
    assert [output.name for output in shown] == ["loaded", "doubled", "given"]
    execution = execute(dataclasses.replace(program, outputs=program.outputs + shown), {0: x})
    values = [output.values for output in execution.outputs]
    for got, wanted in zip(values, (2 * x, x, 2 * x[:4], x), strict=True):
        np.testing.assert_array_equal(got, wanted)
    notes = [event.detail for event in program.events if event.kind == "note"]
    assert notes[0] == "nl.device_print('loaded') copies (64, 40) float32 to the debug stream"


def test_device_print_of_psum_is_illegal() -> None:
    def kernel(t: Any) -> Any:
        tile = nl.ndarray(t.shape, t.dtype, nl.psum)
        nisa.memset(tile, 0.0)
        nl.device_print("psum", tile)
        return tile

    messages = [found.message for found in verify(record(kernel, [sample()]))]
    assert any("src is in PSUM, which a DMA cannot read" in text for text in messages)


@pytest.mark.oracle("nl.no_reorder")
def test_no_reorder_chains_what_runs_inside_it() -> None:
    def helper(tile: Any) -> Any:
        return nl.add(tile, 1.0)

    def kernel(t: Any) -> Any:
        tile = nl.load(t)
        with nl.no_reorder():
            a = helper(tile)
            with nl.no_reorder():
                b = helper(tile)
            c = helper(tile)
        return nl.add(nl.add(a, b), c)

    x = sample()
    program = record(kernel, [x])
    assert [program.instruction(at).depends_on for at in range(7)] == [(), (), (1,), (2,), (), (), ()]
    assert verify(program) == ()
    np.testing.assert_array_equal(run(kernel, x), 3 * (x + 1))


def test_no_reorder_ends_with_its_block_also_by_an_error() -> None:
    trace = Trace("trn2", Release.parse("0.6"))
    with tracing(trace):
        with pytest.raises(ValueError, match="stop"), nl.no_reorder():
            assert trace.ordered == 1
            raise ValueError("stop")
        assert trace.ordered == 0 and trace.on_append is None


def test_no_reorder_holds_no_device_loop() -> None:
    def kernel(t: Any) -> Any:
        with nl.no_reorder():
            nl.fori_loop(0, 4, lambda i: None)
        return t

    with pytest.raises(Refusal, match="no_reorder"):
        record(kernel, [sample()])


@pytest.mark.oracle("NkiTensor.__setitem__")
def test_assignment_to_views() -> None:
    x = sample()

    def kernel(t: Any) -> Any:
        tile = nl.ndarray(t.shape, t.dtype)
        tile[...] = 0
        tile[:, 0:20] = t[:, 20:40]
        tile[:, 20:30] = tile[:, 0:10]
        tile[:, 30:35] = 2.5
        tile[:, 35:40] = tile[:, 0:1]
        out = nl.ndarray(t.shape, t.dtype, nl.shared_hbm)
        out[...] = tile
        out[3, 5:9] = -1
        out[60:64] = t[0:4]
        return out

    wanted = np.zeros_like(x)
    wanted[:, 0:20] = x[:, 20:40]
    wanted[:, 20:30] = wanted[:, 0:10]
    wanted[:, 30:35] = 2.5
    wanted[:, 35:40] = wanted[:, 0:1]
    wanted[3, 5:9] = -1
    wanted[60:64] = x[0:4]
    np.testing.assert_array_equal(run(kernel, x), wanted)
    program = record(kernel, [x])
    assert opcodes(program) == [
        *("memset", "dma_copy", "tensor_copy", "memset", "tensor_copy", "dma_copy"),
        *("memset", "dma_copy", "dma_copy"),
    ]


def test_assignment_of_something_else_is_refused() -> None:
    def kernel(t: Any) -> Any:
        t[...] = "a"
        return t

    with pytest.raises(Refusal, match="assignment to a tensor takes a tensor or a number, got str"):
        record(kernel, [sample()])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: nl.where(t, t, 1.0), "nl.where: y must be a tensor, got float"),
        (
            lambda t: nl.where(t, t[:, :4], t),
            r"nl.where: x has shape \(64, 4\), expected \(64, 40\); nl functions do not broadcast",
        ),
        (lambda t: nl.softmax(t, axis=(1, 1)), r"nl.softmax: axis \(1, 1\) names a dimension twice"),
        (
            lambda t: nl.sum(t, axis=1.0),
            "nl.sum: axis must be an integer or a tuple of integers, got 1.0",
        ),
        (lambda t: nl.sum(t, axis=()), r"nl.sum: axis \(\) does not fit a 2-D tensor"),
        (lambda t: nl.sum(t, axis=-3), "nl.sum: axis -3 does not fit a 2-D tensor"),
        (lambda t: nl.rms_norm(t, t, 1, 0), "nl.rms_norm: n is 0, expected the number of values in the mean"),
        (lambda t: nl.rms_norm(t, t, 1, t), "nl.rms_norm: n must be a number, got NkiTensor"),
        (
            lambda t: nl.rms_norm(t, t[:, :1], 1, 4),
            r"nl.rms_norm: w has shape \(64, 1\), expected \(64, 40\)",
        ),
        (lambda t: nl.random_seed(7), r"nl.random_seed: seed must be a \[1, 1\] tensor of 32 bits"),
        (lambda t: nl.dropout(t, 1.5), "nl.dropout: rate is 1.5, expected a probability from 0 to 1"),
        (lambda t: nl.dropout(t, "a"), "nl.dropout: rate must be a number, got str"),
        (lambda t: nl.gather_flattened(t, t, axis=1), "axis 1 has no documented meaning"),
        (lambda t: nl.load_transpose2d(t), "nl.load_transpose2d: src must be in HBM, it is in sbuf"),
        (lambda t: nl.transpose(nl.expand_dims(t, 2)), "nl.transpose: x has 3 dimensions, expected 2"),
        (lambda t: nl.store(t, t), "nl.store: dst must be in HBM, it is in sbuf; use nl.copy on chip"),
        (lambda t: nl.full((4, 4), "a", nl.int8), "nl.full: fill_value must be a number, got str"),
        (lambda t: nl.shared_constant(3), "expected a NumPy array or the path of an .npy file, got int"),
        (lambda t: nl.shared_constant("no/such.npy"), "no/such.npy cannot be read as an .npy file"),
        (lambda t: nl.shared_constant(np.zeros((2, 2))), "nl.shared_constant: .*float64"),
        (
            lambda t: nl.shared_constant(np.zeros((2, 2), ml_dtypes.float8_e4m3)),
            "nl.shared_constant: a constant of dtype float8_e4m3 is not supported",
        ),
        (lambda t: nl.shared_constant(np.float32(1) * np.ones(())), "expected a NumPy array|at least one"),
        (lambda t: nl.shared_identity_matrix(0), "n must be a positive integer, got 0"),
        (
            lambda t: nl.shared_identity_matrix(4, dst=t),
            r"nl.shared_identity_matrix: dst has shape \(64, 40\), expected \(4, 4\)",
        ),
        (
            lambda t: nl.shared_identity_matrix(4, nl.float8_e5m2_x4),
            "dtype float8_e5m2_x4 has no number 1",
        ),
        (lambda t: nl.device_print(t, t), "print_prefix must be a constant string, got NkiTensor"),
        (lambda t: nl.device_print("a", 1), "nl.device_print: tensor must be a tensor, got int"),
        (lambda t: nl.average(t), "nl.average is a name for the op= of an instruction, it cannot be called"),
        (lambda t: nl.fmod(t, t), "nl.fmod is not supported on hardware; there is no such operator"),
        (lambda t: list(nl.affine_range(0, 4, 0)), "nl.affine_range: step must not be 0"),
        (lambda t: nl.num_programs((0, 1)), "axis 1 is not one of the grid's 0"),
    ],
)
def test_refusals(call: Callable[[Any], Any], message: str) -> None:
    def kernel(t: Any) -> Any:
        tile = nl.load(t)
        call(tile)
        return tile

    with pytest.raises(Refusal, match=message):
        record(kernel, [sample()])


@pytest.mark.oracle("nl.divide", "nl.mod", "nl.fmod")
@pytest.mark.parametrize("name", ["divide", "mod", "fmod"])
def test_what_hardware_has_not_is_refused(name: str) -> None:
    """Release notes 0.3, known issues: these three do not run on hardware."""
    with pytest.raises(Refusal, match=f"nl.{name} is not supported on hardware"):
        record(lambda t: getattr(nl, name)(t, t), [sample()])


# Name, a release without it, the first release with it: the stubs of nki.language, and the release notes.
SINCE = [
    *(
        (name, "0.2", "0.3")
        for name in ("load", "store", "matmul", "softmax", "ones", "sum", "where", "rand")
    ),
    *((name, "0.3", "0.4") for name in ("abs_max", "abs_min", "prelu", "bypass")),
    *((name, "0.4", "0.5") for name in ("average", "float8_e8m0fnu")),
    *((name, "0.5", "0.6") for name in ("fori_loop", "while_loop")),
]


@pytest.mark.parametrize(("name", "without", "since"), SINCE)
def test_names_are_there_since_their_release(name: str, without: str, since: str) -> None:
    with tracing(Trace("trn2", Release.parse(without))):
        message = f"nl.{name} exists since NKI {since}, this kernel is judged by {without}"
        with pytest.raises(Absent, match=message):
            getattr(nl, name)
        assert not hasattr(nl, name)
    with tracing(Trace("trn2", Release.parse(since))):
        assert hasattr(nl, name)


@pytest.mark.parametrize("name", ["add", "equal", "exp", "copy", "sin", "rsqrt"])
def test_operators_are_names_only_in_02(name: str) -> None:
    def kernel(t: Any) -> Any:
        tile = nl.ndarray(t.shape, t.dtype)
        nisa.dma_copy(dst=tile, src=t)
        getattr(nl, name)(tile)
        return tile

    message = (
        f"nl.{name} can be called since NKI 0.3, this kernel is judged by 0.2, where it is a name for op="
    )
    with pytest.raises(Absent, match=message):
        record(kernel, [sample()], release="0.2")


@pytest.mark.parametrize(
    ("member", "without"),
    [("psum_bank_fmax", "0.3"), ("sbuf_fmax_bytes", "0.3"), ("psum_num_banks", "0.4")],
)
def test_members_of_tile_size_are_there_since_their_release(member: str, without: str) -> None:
    with tracing(Trace("trn2", Release.parse(without))):
        with pytest.raises(Absent, match=f"nl.tile_size.{member} exists since NKI"):
            getattr(nl.tile_size, member)
        assert nl.tile_size.pmax == 128


def test_dst_of_an_identity_matrix_is_there_since_03() -> None:
    def kernel(t: Any) -> Any:
        nl.shared_identity_matrix(4, dst=nl.ndarray((4, 4), nl.float32))
        return t

    with pytest.raises(Absent, match="nl.shared_identity_matrix.dst exists since NKI 0.3"):
        record(kernel, [sample()], release="0.2")


# Documented figures: nki/api/nki.language.tile_size.rst, the architecture guides and the stub.
FIGURES = {
    "pmax": (128, 128, 128),
    "psum_fmax": (512, 512, 512),
    "psum_bank_fmax": (512, 512, 512),
    "psum_bank_fmax_bytes": (2048, 2048, 2048),
    "psum_num_banks": (8, 8, 8),
    "gemm_stationary_fmax": (128, 128, 128),
    "gemm_moving_fmax": (512, 512, 512),
    "bn_stats_fmax": (512, 512, 512),
    "psum_min_align": (4, 4, 4),
    "sbuf_min_align": (1, 1, 1),
    "sbuf_size_bytes": (24 * 2**20, 28 * 2**20, 32 * 2**20),
    "sbuf_fmax": (180224 // 4, 212984 // 4, 245752 // 4),
    "sbuf_fmax_bytes": (180224, 212984, 245752),
    "total_available_sbuf_size": (180224, 212984, 245752),
}


@pytest.mark.oracle("nl.tile_size")
@pytest.mark.parametrize(
    "member", [pytest.param(name, marks=pytest.mark.oracle(f"nl.tile_size.{name}")) for name in FIGURES]
)
def test_tile_size(member: str) -> None:
    for target, wanted in zip(("trn1", "trn2", "trn3"), FIGURES[member], strict=True):
        with tracing(Trace(target, Release.parse("0.6"))):
            assert getattr(nl.tile_size, member) == wanted


def test_a_bank_is_reserved_where_dma_transposes_go_to_the_tensor_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """nki/api/nki.language.tile_size.rst: 7 banks on trn2 and newer with the variable set to true."""
    monkeypatch.setenv("NKI_DMA_TRANSPOSE_AS_PE_TRANSPOSE", "true")
    found = []
    for target in ("trn1", "trn2", "trn3"):
        with tracing(Trace(target, Release.parse("0.6"))):
            found.append(nl.tile_size.psum_num_banks)
    assert found == [8, 7, 7]


@pytest.mark.oracle(
    *("nl.MemoryRegion", "nl.MemoryRegion.sbuf", "nl.MemoryRegion.psum"),
    *("nl.MemoryRegion.private_hbm", "nl.MemoryRegion.shared_hbm"),
    *("nl.sbuf", "nl.psum", "nl.hbm", "nl.private_hbm", "nl.shared_hbm"),
    *("nl.is_hbm", "nl.is_sbuf", "nl.is_psum", "nl.is_on_chip"),
)
def test_memory_regions() -> None:
    """The values that the stub prints; hbm is an alias of private_hbm."""
    assert nl.hbm is nl.private_hbm
    values = {region.name: region.value for region in nl.MemoryRegion}
    assert values == {
        "sbuf": "sbuf",
        "psum": "psum",
        "private_hbm": "private_hbm",
        "shared_hbm": "shared_hbm",
    }
    rows = {
        nl.sbuf: (False, True, False, True),
        nl.psum: (False, False, True, True),
        nl.hbm: (True, False, False, False),
        nl.shared_hbm: (True, False, False, False),
        "psum": (False, False, True, True),
        "hbm": (True, False, False, False),
        None: (False, False, False, False),
    }
    for buffer, wanted in rows.items():
        found = (nl.is_hbm(buffer), nl.is_sbuf(buffer), nl.is_psum(buffer), nl.is_on_chip(buffer))
        assert found == wanted


@pytest.mark.parametrize("name", ["prelu", "bypass", "average"])
def test_names_that_are_for_instructions_only(name: str) -> None:
    """The stub gives them no signature: they stand as op= of activate2 and tensor_partition_reduce."""
    token = getattr(nl, name)
    assert repr(token) == f"nl.{name}" and token.name == name


@pytest.mark.oracle("nl.average")
def test_average_is_the_mean_over_partitions() -> None:
    def kernel(t: Any) -> Any:
        dst = nl.ndarray((1, 40), nl.float32)
        nisa.tensor_partition_reduce(dst=dst, op=nl.average, data=nl.load(t))
        return dst

    x = sample()
    wanted = x.astype(np.float64).mean(axis=0, keepdims=True)
    np.testing.assert_allclose(run(kernel, x), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.oracle("nl.bypass")
def test_bypass_passes_data_through() -> None:
    def kernel(t: Any) -> Any:
        tile = nl.load(t)
        dst = nl.ndarray(t.shape, t.dtype)
        nisa.activate2(
            dst=dst, op=nl.copy, data=tile, imm0=5.0, imm1=7.0, op0=nl.bypass, op1=nl.bypass, relu_param=0.0
        )
        return dst

    x = sample()
    np.testing.assert_array_equal(run(kernel, x, target="trn3"), x)


@pytest.mark.oracle("nl.prelu")
def test_prelu_keeps_its_slope_for_negative_values() -> None:
    def kernel(t: Any) -> Any:
        tile = nl.load(t)
        dst = nl.ndarray(t.shape, t.dtype)
        nisa.activate2(
            dst=dst,
            op=nl.prelu,
            data=tile,
            imm0=1.0,
            imm1=0.0,
            op0=nl.multiply,
            op1=nl.add,
            relu_param=0.25,
        )
        return dst

    x = sample()
    np.testing.assert_allclose(
        run(kernel, x, target="trn3"), np.where(x > 0, x, 0.25 * x.astype(np.float64)), rtol=1e-6
    )


@pytest.mark.oracle("nl.ds")
def test_ds_is_a_slice() -> None:
    x = sample()
    np.testing.assert_array_equal(run(lambda t: nl.load(t)[:, nl.ds(3, 7)], x), x[:, 3:10])


@pytest.mark.oracle(
    *("nl.affine_range", "nl.sequential_range", "nl.static_range"),
    *("nl.program_id", "nl.num_programs", "nl.program_ndim"),
)
def test_ranges_and_programs() -> None:
    with tracing(Trace("trn2", Release.parse("0.6"), lnc=2, grid=(2,))) as trace:
        trace.start_core(1)
        for loop in (nl.affine_range, nl.sequential_range, nl.static_range):
            assert list(loop(3)) == [0, 1, 2] and list(loop(2, 9, 3)) == [2, 5, 8]
            assert list(loop(5, 0, -2)) == [5, 3, 1]
        assert (nl.program_id(), nl.program_id(0), nl.num_programs(), nl.program_ndim()) == (1, 1, 2, 1)
        assert nl.num_programs(None) == nl.num_programs([0]) == 2
    with tracing(Trace("trn2", Release.parse("0.6"))):
        assert (nl.program_id(0), nl.num_programs(0), nl.program_ndim()) == (0, 1, 0)


@pytest.mark.oracle("nl.NkiTensor", "NkiTensor.__init__")
def test_a_tensor_over_the_storage_of_another() -> None:
    x = sample(shape=(8, 24))

    def kernel(t: Any) -> Any:
        tile = nl.load(t)
        other = nl.NkiTensor((8, 4, 6), nl.float32, tile.storage, nl.sbuf, "again")
        assert isinstance(tile, nl.NkiTensor) and isinstance(other, nl.NkiTensor)
        return nl.multiply(other, 2.0)

    np.testing.assert_array_equal(run(kernel, x), 2 * x.reshape(8, 4, 6))
    assert nl.NkiTensor is NkiTensor


def test_the_debug_mode_prints_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    """The stub: in CPU simulation device_print prints immediately to stdout."""
    trace = Trace("trn2", Release.parse("0.6"))
    trace.shown = lambda tensor: f"<{tensor.shape}>"
    with tracing(trace), trace.builder.stream():
        tile = nl.zeros((4, 4), nl.float32)
        nl.device_print("value of a:", tile)
    assert capsys.readouterr().out == "value of a: <(4, 4)>\n"


def test_what_is_printed_is_no_useless_store() -> None:
    def kernel(t: Any) -> Any:
        tile = nl.load(t)
        nl.device_print("tile", tile)
        unused = nl.ndarray(t.shape, t.dtype, nl.private_hbm)
        nisa.dma_copy(dst=unused, src=tile)
        return tile

    program = record(kernel, [sample()])
    found = survey(program, ROWS, hardware.target("trn2")).traffic.unread
    names = [program.buffer(buffer).name for buffer in found]
    assert names == [""]


def test_cores_share_constants_and_have_an_identity_each() -> None:
    trace = Trace("trn2", Release.parse("0.6"), lnc=2, grid=(2,))
    constants, identities = [], []
    with tracing(trace):
        for core in range(2):
            trace.start_core(core)
            with trace.builder.stream(core):
                constants.append(nl.shared_constant(np.arange(4, dtype=np.float32)).storage)
                identities.append(nl.shared_identity_matrix(4).storage)
    assert constants[0] == constants[1] and identities[0] != identities[1]


def test_an_identity_made_in_a_device_loop_stays_there() -> None:
    def kernel(t: Any) -> Any:
        total = nl.zeros((4, 4), nl.float32)

        def body(_: Any) -> None:
            inside = nl.shared_identity_matrix(4, nl.float32)
            assert nl.shared_identity_matrix(3, nl.float32).storage == inside.storage
            nisa.tensor_tensor(dst=total, data1=total, data2=inside, op=nl.add)

        nl.fori_loop(0, 3, body)
        return nl.add(total, nl.shared_identity_matrix(4, nl.float32))

    np.testing.assert_array_equal(run(kernel, sample()), 4 * np.eye(4))

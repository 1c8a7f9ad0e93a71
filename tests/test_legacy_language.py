"""Each function of the legacy ``nki.language`` against NumPy in float64, its rows, its masks and its refusals."""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from legacy_stubs import CONSTANTS, LANGUAGE, TILE_SIZES
from legacy_tiles_kit import Array, nl, numbers, result, stored, traced, values
from scipy import special

from nkireview.isa.release import LEGACY
from nkireview.nki.errors import NotYetSupported, Refusal
from nkireview.nki.legacy.operators import Function
from nkireview.nki.trace import Trace, tracing

Kernel = Callable[..., Any]
P, F = 16, 24
HALF_UNIT = {np.dtype(np.float32): 2e-5, np.dtype(ml_dtypes.bfloat16): 2.0**-8}


def phi(x: Array) -> Array:
    """The density of the normal distribution."""
    return np.exp(-x * x / 2) / np.sqrt(2 * np.pi)


UNARY: dict[str, tuple[Callable[[Array], Array], float, float]] = {
    "abs": (np.abs, -3, 3),
    "arctan": (np.arctan, -1.5, 1.5),
    "ceil": (np.ceil, -50, 50),
    "copy": (lambda x: x, -3, 3),
    "cos": (np.cos, -50, 50),
    "erf": (special.erf, -3, 3),
    "erf_dx": (lambda x: 2 / np.sqrt(np.pi) * np.exp(-x * x), -3, 3),
    "exp": (np.exp, -3, 3),
    "floor": (np.floor, -50, 50),
    "gelu": (lambda x: x * special.ndtr(x), -3, 3),
    "gelu_apprx_sigmoid": (lambda x: x * special.expit(1.702 * x), -3, 3),
    "gelu_apprx_tanh": (
        lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
        -3,
        3,
    ),
    "gelu_dx": (lambda x: special.ndtr(x) + x * phi(x), -3, 3),
    "log": (np.log, 0.1, 9),
    "mish": (lambda x: x * np.tanh(np.log1p(np.exp(x))), -3, 3),
    "negative": (np.negative, -3, 3),
    "reciprocal": (lambda x: 1 / x, 0.1, 9),
    "relu": (lambda x: np.maximum(x, 0), -3, 3),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 0.1, 9),
    "sigmoid": (special.expit, -3, 3),
    "sign": (np.sign, -3, 3),
    "silu": (lambda x: x * special.expit(x), -3, 3),
    "silu_dx": (lambda x: special.expit(x) * (1 + x * (1 - special.expit(x))), -3, 3),
    "sin": (np.sin, -3, 3),
    "softplus": (lambda x: np.log1p(np.exp(x)), -3, 3),
    "sqrt": (np.sqrt, 0.1, 9),
    "square": (np.square, -3, 3),
    "tan": (np.tan, -1.3, 1.3),
    "tanh": (np.tanh, -3, 3),
    "trunc": (np.trunc, -50, 50),
}
SEVERAL = frozenset({"ceil", "cos", "floor", "tan", "trunc"})
"""Functions of one argument that are more than one instruction."""
ON_VECTOR = {"copy": "tensor_copy", "negative": "tensor_scalar", "reciprocal": "reciprocal"}
"""The instruction of those that are no activation."""


def named(*names: str) -> list[Any]:
    """Parameters that carry the name they prove."""
    return [pytest.param(name, marks=pytest.mark.oracle(f"nl.{name}")) for name in names]


def drawn(low: float, high: float, shape: tuple[int, ...] = (P, F), dtype: Any = np.float32) -> Array:
    """Uniform values, always the same."""
    return np.random.default_rng(5).uniform(low, high, shape).astype(dtype)


def each(*functions: Callable[..., Any]) -> Kernel:
    """A kernel of several functions of the same loaded tiles."""

    def kernel(*args: Any) -> Any:
        tiles = [nl.load(arg) for arg in args]
        return stored(*(function(*tiles) for function in functions))

    return kernel


def one_of(function: Callable[..., Any]) -> list[str]:
    """The instructions of a function of loaded tiles, without the loads and the store."""

    def kernel(*args: Any) -> Any:
        return stored(function(*(nl.load(arg) for arg in args)))

    x = drawn(1, 2)
    found = traced(kernel, *[x] * len(inspect.signature(function).parameters)).opcodes
    return [name for name in found if name != "dma_copy"]


def refusal(kernel: Kernel, *args: Any, **options: Any) -> str:
    """The sentence that a kernel is refused with."""
    with pytest.raises((Refusal, NotYetSupported, TypeError)) as caught:
        traced(kernel, *args, **options)
    return str(caught.value)


# the names


def parameters(function: Any) -> list[tuple[str, Any, Any]]:
    """Name, kind and default of each parameter; the names of those that gather the rest say nothing."""
    gathering = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    found = inspect.signature(function).parameters.values()
    return [("" if each.kind in gathering else each.name, each.kind, each.default) for each in found]


@pytest.mark.parametrize("name", sorted(LANGUAGE))
def test_every_function_has_the_signature_of_the_stubs(name: str) -> None:
    scope: dict[str, Any] = {"np": np}
    exec(f"def wanted({LANGUAGE[name]}): ...", scope)
    if name == "program_id":  # a launch without a grid has no axis to name
        assert [each[0] for each in parameters(nl.program_id)] == ["axis"]
        return
    if name in ("affine_range", "sequential_range", "static_range"):
        assert parameters(getattr(nl, name))[0][1] is inspect.Parameter.VAR_POSITIONAL
        return
    assert parameters(getattr(nl, name)) == parameters(scope["wanted"])


@pytest.mark.parametrize("name", CONSTANTS)
def test_every_constant_is_there(name: str) -> None:
    assert getattr(nl, name) is not None


def test_what_came_later_is_not_there() -> None:
    for name in ("abs_max", "abs_min", "gelu_apprx_sigmoid_dx", "dynamic_range", "is_sbuf"):
        with pytest.raises(NotYetSupported):
            getattr(nl, name)


@pytest.mark.parametrize(
    ("target", "figures"),
    [("trn1", (512, 512, 128, 128, 512, 4)), ("trn2", (512, 512, 128, 128, 512, 4))],
)
def test_tile_sizes(target: str, figures: tuple[int, ...]) -> None:
    with tracing(Trace(target, LEGACY)):
        found = [getattr(nl.tile_size, name) for name in TILE_SIZES]
        # the order of TILE_SIZES: nki/api/nki.language.tile_size.rst
        assert tuple(found[:6]) == figures
        assert all(isinstance(value, int) and value > 0 for value in found)


def test_host_constants() -> None:
    assert nl.fp32.min == float(np.finfo(np.float32).min) == np.float32(-3.4028235e38)
    assert nl.bfp16.min == float(ml_dtypes.finfo(ml_dtypes.bfloat16).min)
    assert (nl.finfo(np.float16).max, nl.finfo("float16").eps) == (65504.0, 2.0**-10)
    assert nl.float32 is np.float32
    assert np.dtype(nl.bfloat16) == np.dtype(ml_dtypes.bfloat16)
    half = nl.static_cast(np.array([1.0, 2.5]), nl.bfloat16)
    assert (half.dtype, half.tolist()) == (np.dtype(ml_dtypes.bfloat16), [1.0, 2.5])
    assert nl.static_cast(2.75, np.int32) == 2


# one argument


@pytest.mark.parametrize("name", named(*sorted(UNARY)))
def test_functions_of_one_argument(name: str) -> None:
    function, low, high = UNARY[name]
    x = drawn(low, high)
    call = getattr(nl, name)
    kernel = each(call, lambda a: call(a, dtype=nl.bfloat16))
    exact = function(x.astype(np.float64))
    for got in values(kernel, x):
        np.testing.assert_allclose(
            got.astype(np.float64), exact, rtol=HALF_UNIT[got.dtype], atol=HALF_UNIT[got.dtype] / 4
        )
    half = x.astype(ml_dtypes.bfloat16)
    (got,) = values(each(call), half)
    assert got.dtype == half.dtype
    exact = function(half.astype(np.float64))
    np.testing.assert_allclose(got.astype(np.float64), exact, rtol=2.0**-8, atol=1e-4)


@pytest.mark.parametrize("name", sorted(set(UNARY) - SEVERAL))
def test_a_function_of_one_argument_is_one_instruction(name: str) -> None:
    assert one_of(lambda a: getattr(nl, name)(a)) == [ON_VECTOR.get(name, "activation")]


@pytest.mark.parametrize("name", sorted(UNARY))
def test_a_mask_leaves_what_it_hides_as_it_was(name: str) -> None:
    function, low, high = UNARY[name]
    x = drawn(low, high)

    def kernel(a: Any) -> Any:
        tile, out = nl.load(a), nl.full((P, F), -7.0, dtype=nl.float32)
        i_p, i_f = nl.arange(P)[:, None], nl.arange(F)[None, :]
        out[...] = getattr(nl, name)(tile, mask=(i_p < 5) & (i_f >= 3))
        triangle = nl.full((P, F), -7.0, dtype=nl.float32)
        triangle[...] = getattr(nl, name)(tile, mask=i_p >= i_f)
        return stored(out, triangle)

    boxed, triangle = values(kernel, x)
    exact = function(x.astype(np.float64))
    rows, columns = np.indices((P, F))
    for got, left in ((boxed, (rows < 5) & (columns >= 3)), (triangle, rows >= columns)):
        np.testing.assert_allclose(got, np.where(left, exact, -7.0), rtol=2e-5, atol=2e-5)


def test_psum_tiles_are_read_where_they_are() -> None:
    x = drawn(0.5, 2)

    def loaded(a: Any) -> Any:
        tile = nl.ndarray((P, F), dtype=nl.float32, buffer=nl.psum)
        tile[...] = nl.copy(nl.load(a))
        return stored(nl.exp(tile), nl.power(tile, 2.0), nl.power(tile, tile), nl.floor(tile), tile + tile)

    exact = x.astype(np.float64)
    wanted = [np.exp(exact), exact**2, exact**exact, np.floor(exact), 2 * exact]
    for got, want in zip(values(loaded, x), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5)


# two arguments

ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "mod": np.mod,
    "fmod": np.fmod,
    "power": np.power,
}
COMPARISONS = {
    name: getattr(np, name)
    for name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
}
LOGICAL = {name: getattr(np, name) for name in ("logical_and", "logical_or", "logical_xor")}


def sides(name: str) -> tuple[Array, Array]:
    """Two arrays on which a function is exact enough to be compared."""
    if name in COMPARISONS or name in LOGICAL:
        return np.round(drawn(-1.4, 1.4)), np.round(drawn(-1.4, 1.4)[::-1]).copy()
    low = 0.5 if name == "power" else -4.0
    return drawn(low, 4), drawn(0.6, 4)[::-1].copy()


@pytest.mark.parametrize("name", named(*ARITHMETIC, *COMPARISONS, *LOGICAL))
def test_functions_of_two_arguments(name: str) -> None:
    call, function = getattr(nl, name), {**ARITHMETIC, **COMPARISONS, **LOGICAL}[name]
    x, y = sides(name)
    kernel = each(
        lambda a, b: call(a, b),
        lambda a, b: call(a, 1.25),
        lambda a, b: call(1.25, b),
        lambda a, b: call(a, b, dtype=nl.float32),
        lambda a, b: call(a, b[:, 3:4]),
        lambda a, b: call(a[:, 3:4], b),
        lambda a, b: call(a, b[2:3, :]),
        lambda a, b: call(a[2:3, :], b),
        lambda a, b: call(a[:, 3:4], b[2:3, :]),
    )
    u, v = x.astype(np.float64), y.astype(np.float64)
    wanted = [
        *(function(u, v), function(u, 1.25), function(1.25, v), function(u, v)),
        *(function(u, v[:, 3:4]), function(u[:, 3:4], v)),
        *(function(u, v[2:3]), function(u[2:3], v), function(u[:, 3:4], v[2:3])),
    ]
    found = values(kernel, x, y)
    for got, want in zip(found, wanted, strict=True):
        assert got.shape == want.shape
        np.testing.assert_allclose(got.astype(np.float64), want, rtol=2e-5, atol=2e-6)
    truths = name not in ARITHMETIC
    assert [got.dtype for got in found[:4]] == [
        *[np.dtype(bool if truths else np.float32)] * 3,
        np.dtype(np.float32),
    ]


@pytest.mark.parametrize("name", [*ARITHMETIC, *COMPARISONS, *LOGICAL])
def test_a_function_of_two_arguments_is_one_instruction(name: str) -> None:
    call = getattr(nl, name)
    assert one_of(lambda a, b: call(a, b)) == ["tensor_tensor"]
    assert one_of(lambda a: call(a, 2.0)) == ["tensor_scalar"]
    assert one_of(lambda a: call(2.0, a)) == ["tensor_scalar"]
    assert one_of(lambda a, b: call(a, b[:, 0:1])) == ["tensor_scalar"]
    assert one_of(lambda a, b: call(a[:, 0:1], b)) == ["tensor_scalar"]
    # one partition is first moved to the 16 others, which is one shuffle
    assert one_of(lambda a, b: call(a, b[0:1, :])) == ["nc_stream_shuffle", "tensor_tensor"]


BITS = ("bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift")


@pytest.mark.parametrize("name", named(*BITS))
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32])
def test_functions_of_bits(name: str, dtype: type[np.unsignedinteger[Any]]) -> None:
    draw = np.random.default_rng(1)
    x, y = draw.integers(0, np.iinfo(dtype).max, (P, F), dtype), draw.integers(0, 8, (P, F), dtype)
    call, function = getattr(nl, name), getattr(np, name)
    kernel = each(lambda a, b: call(a, b), lambda a, b: call(a, dtype(3)), lambda a, b: nl.invert(a))
    for got, want in zip(values(kernel, x, y), (function(x, y), function(x, dtype(3)), ~x), strict=True):
        assert got.dtype == dtype
        np.testing.assert_array_equal(got, want)


@pytest.mark.oracle("nl.invert", "nl.logical_not", "nl.bitwise_and", "nl.bitwise_or", "nl.bitwise_xor")
def test_truth_values_are_joined_by_operators() -> None:
    x, y = numbers(P, F), numbers(P, F, seed=1)
    kernel = each(
        lambda a, b: (a > 0.0) & (b > 0.0),
        lambda a, b: (a > 0.0) | (b > 0.0),
        lambda a, b: (a > 0.0) ^ (b > 0.0),
        lambda a, b: ~(a > 0.0),
        lambda a, b: nl.logical_not(nl.relu(a)),
        lambda a, b: nl.bitwise_and(nl.greater(a, 0.0), 1),
    )
    p, q = x > 0, y > 0
    wanted = [p & q, p | q, p ^ q, ~p, ~p, p.astype(np.int32)]
    for got, want in zip(values(kernel, x, y), wanted, strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", ["add", "less", "power", "divide"])
def test_masks_of_functions_of_two_arguments(name: str) -> None:
    call, function = getattr(nl, name), {**ARITHMETIC, **COMPARISONS}[name]
    x, y = sides(name)

    def kernel(a: Any, b: Any) -> Any:
        left, right = nl.load(a), nl.load(b)
        i_p, i_f = nl.mgrid[0:P, 0:F]
        outs = []
        for sides_ in ((left, right), (left, 2.0), (left, right[:, 0:1]), (left, right[0:1, :])):
            out = nl.full((P, F), 9.0, dtype=nl.float32)
            out[...] = call(*sides_, mask=i_p + i_f < 12)
            outs.append(out)
        return stored(*outs)

    rows, columns = np.indices((P, F))
    for got, other in zip(values(kernel, x, y), (y, 2.0, y[:, :1], y[:1]), strict=True):
        want = np.where(rows + columns < 12, function(x.astype(np.float64), other), 9.0)
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)


# the dtypes of nki/api/nki.api.shared.rst:318-400
PROMOTIONS = [
    ("int32", "float16", "float16"),
    ("uint16", "tfloat32", "tfloat32"),
    ("float32", "tfloat32", "float32"),
    ("float32", "bfloat16", "float32"),
    ("float16", "bfloat16", "float32"),
    ("float8_e4m3", "float16", "float16"),
    ("float8_e4m3", "bfloat16", "bfloat16"),
    ("float8_e4m3", "float8_e5m2", "bfloat16"),
    ("int16", "int32", "int32"),
    ("uint8", "uint16", "uint16"),
    ("uint16", "int32", "int32"),
    ("int8", "uint8", "int16"),
    ("int8", "uint16", "int32"),
    ("int32", "uint32", "float32"),
]


@pytest.mark.parametrize(("left", "right", "wanted"), PROMOTIONS)
def test_promotion_of_two_tiles_is_the_documented_one(left: str, right: str, wanted: str) -> None:
    found: list[Any] = []

    def kernel(out: Any) -> Any:
        x, y = (nl.ndarray((4, 4), dtype=getattr(nl, name)) for name in (left, right))
        for tile in (x, y):
            tile[...] = 1.0
        found.extend((nl.add(x, y).kind.name, (y * x).kind.name))
        return out

    traced(kernel, np.zeros((4, 4), np.float32))
    assert found == [wanted, wanted]


SCALARS = [
    (np.int8, 2, np.int32),
    (np.float16, 1.2, np.float32),
    (ml_dtypes.bfloat16, 2, ml_dtypes.bfloat16),
    (np.float16, np.float16(1.5), np.float16),
    (np.int8, np.int8(2), np.int8),
    (np.int32, 0.5, np.float32),
    (np.uint8, True, np.uint8),
]


@pytest.mark.parametrize(("dtype", "number", "wanted"), SCALARS)
def test_a_plain_number_is_as_wide_as_the_hardware_has_it(dtype: Any, number: Any, wanted: Any) -> None:
    x = np.array([[1, 2, 3]], dtype)
    got = result(each(lambda a: nl.add(a, number)), x)
    assert got.dtype == wanted
    np.testing.assert_allclose(got.astype(np.float64), x.astype(np.float64) + float(number), rtol=1e-7)


@pytest.mark.oracle("nl.divide", "nl.floor", "nl.mod")
def test_integers_divide_into_fractions_as_the_samples_need_it() -> None:
    x = np.arange(24, dtype=np.int32).reshape(1, 24)
    kernel = each(
        lambda a: a / 7,
        lambda a: nl.floor(a / 7, dtype=nl.int32),
        lambda a: nl.mod(a, 7, nl.int32),
        lambda a: nl.fmod(0 - a, 7, dtype=nl.int32),
    )
    quotient, floor, mod, fmod = values(kernel, x)
    assert (quotient.dtype, floor.dtype, mod.dtype) == (np.float32, np.int32, np.int32)
    np.testing.assert_allclose(quotient, x / 7, rtol=1e-6)
    np.testing.assert_array_equal(floor, x // 7)
    np.testing.assert_array_equal(mod, x % 7)
    np.testing.assert_array_equal(fmod, np.fmod(-x, 7))


# reductions

REDUCE: dict[str, Callable[..., Array]] = {
    "sum": np.sum,
    "max": np.max,
    "min": np.min,
    "prod": np.prod,
    "mean": np.mean,
    "var": np.var,
    "all": np.all,
}


@pytest.mark.parametrize("name", named(*REDUCE))
def test_reductions_over_free_axes(name: str) -> None:
    call, function = getattr(nl, name), REDUCE[name]
    x = np.round(drawn(0, 1, (8, 3, 4, 5))) if name == "all" else drawn(0.7, 1.3, (8, 3, 4, 5))
    keeps = name not in ("var", "all")
    axes: list[Any] = [3, -1, [3], (2, 3), [-1, -2], [1, 2, 3], (-3, -2, -1)]
    kernel = each(
        *(lambda a, axis=axis: call(a, axis) for axis in axes),
        *((lambda a, axis=axis: call(a, axis, keepdims=True)) for axis in axes if keeps),
    )
    wanted = [function(x.astype(np.float64), axis=tuple(np.atleast_1d(axis))) for axis in axes]
    if keeps:
        wanted += [
            function(x.astype(np.float64), axis=tuple(np.atleast_1d(axis)), keepdims=True) for axis in axes
        ]
    for got, want in zip(values(kernel, x), wanted, strict=True):
        # a tile has a free dimension, so that one number a partition is (P, 1)
        assert got.shape == (want.shape if want.ndim > 1 else (*want.shape, 1))
        assert got.dtype == (np.bool_ if name == "all" else np.float32)
        np.testing.assert_allclose(got.reshape(want.shape).astype(np.float64), want, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", ["sum", "max", "mean", "var", "softmax"])
def test_reductions_of_what_a_mask_leaves(name: str) -> None:
    x = drawn(-2, 2, (P, 40))

    def kernel(a: Any) -> Any:
        tile = nl.load(a)
        i_p, i_f = nl.mgrid[0:P, 0:40]
        shape = (P, 40) if name == "softmax" else (P, 1)
        first, second = (nl.full(shape, -7.0, dtype=nl.float32) for _ in range(2))
        first[...] = getattr(nl, name)(tile, axis=1, mask=i_p < 9)
        second[...] = getattr(nl, name)(tile, axis=[1], mask=(i_p >= 2) & (i_f < 33))
        return stored(first, second)

    def exact(part: Array) -> Array:
        if name == "softmax":
            return special.softmax(part, axis=1)
        return REDUCE[name](part, axis=1, keepdims=True)

    u = x.astype(np.float64)
    wanted = [np.full((P, 40 if name == "softmax" else 1), -7.0) for _ in range(2)]
    wanted[0][:9] = exact(u[:9])
    wanted[1][2:, : 33 if name == "softmax" else 1] = exact(u[2:, :33])
    for got, want in zip(values(kernel, x), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)


@pytest.mark.oracle("nl.mean", "nl.var")
def test_integers_have_float32_statistics() -> None:
    x = np.arange(P * F, dtype=np.int32).reshape(P, F)
    for got, function in zip(
        values(each(lambda a: nl.mean(a, 1), lambda a: nl.var(a, 1)), x), (np.mean, np.var), strict=True
    ):
        assert got.dtype == np.float32
        np.testing.assert_allclose(got[:, 0], function(x, axis=1), rtol=1e-5)


@pytest.mark.oracle("nl.softmax", "nl.rms_norm")
def test_softmax_and_rms_norm() -> None:
    x, w = drawn(-3, 3, (P, 4, 40)), drawn(0.5, 2, (1, 4, 40))
    kernel = each(
        lambda a, b: nl.softmax(a, [1, 2]),
        lambda a, b: nl.softmax(a, -1, dtype=nl.bfloat16),
        lambda a, b: nl.softmax(a, 2, compute_dtype=nl.bfloat16),
        lambda a, b: nl.rms_norm(a, b, (1, 2), 160, 1e-3),
        lambda a, b: nl.rms_norm(a, a, axis=2, n=10),
    )
    u, v = x.astype(np.float64), w.astype(np.float64)
    last = u / np.sqrt((u * u).sum(axis=2, keepdims=True) / 10 + 1e-6) * u
    wanted = [
        special.softmax(u, axis=(1, 2)),
        *[special.softmax(u, axis=2)] * 2,
        u / np.sqrt((u * u).mean(axis=(1, 2), keepdims=True) + 1e-3) * v,
        last,
    ]
    found = values(kernel, x, w)
    assert [got.dtype for got in found] == [np.float32, *[ml_dtypes.bfloat16] * 2, *[np.float32] * 2]
    for got, want in zip(found, wanted, strict=True):
        rtol = 2e-5 if got.dtype == np.float32 else 2.0**-8
        np.testing.assert_allclose(got.astype(np.float64), want, rtol=rtol, atol=1e-6)


def test_rms_norm_of_what_a_mask_leaves() -> None:
    x, w = drawn(-3, 3), drawn(0.5, 2)

    def kernel(a: Any, b: Any) -> Any:
        i_p, i_f = nl.mgrid[0:P, 0:F]
        out = nl.zeros((P, F), dtype=nl.float32)
        out[...] = nl.rms_norm(nl.load(a), nl.load(b), 1, n=20, mask=(i_p < 7) & (i_f < 20))
        return stored(out)

    u, v = x[:7, :20].astype(np.float64), w[:7, :20].astype(np.float64)
    want = np.zeros((P, F))
    want[:7, :20] = u / np.sqrt((u * u).mean(axis=1, keepdims=True) + 1e-6) * v
    np.testing.assert_allclose(result(kernel, x, w), want, rtol=2e-5, atol=1e-6)


def test_rows_of_reductions() -> None:
    assert one_of(lambda a: nl.sum(a, 1)) == ["tensor_reduce"]
    assert one_of(lambda a: nl.all(a, 1)) == ["tensor_reduce"]
    assert one_of(lambda a: nl.mean(a, 1)) == ["tensor_reduce", "tensor_scalar"]
    assert one_of(lambda a: nl.var(a, 1)) == ["bn_stats", "bn_aggr", "tensor_copy"]
    assert one_of(lambda a: nl.softmax(a, 1)) == [
        *("tensor_reduce", "activation", "reciprocal", "tensor_scalar")
    ]


def test_the_last_instruction_of_several_writes_where_it_is_assigned() -> None:
    def kernel(a: Any) -> Any:
        out = nl.ndarray((P, F), dtype=nl.float32)
        out[...] = nl.softmax(nl.load(a), 1)
        return stored(out)

    names = ["tensor_reduce", "activation", "reciprocal", "tensor_scalar"]
    assert traced(kernel, drawn(-1, 1)).opcodes == ["dma_copy", *names, "dma_copy"]


# choices


@pytest.mark.oracle("nl.where")
def test_where() -> None:
    x, y = numbers(P, F), numbers(P, F, seed=1)
    y[0, :4] = np.nan, np.inf, -np.inf, np.nan
    x[0, :4] = 1.0
    kernel = each(
        lambda a, b: nl.where(a > 0.0, a, b),
        lambda a, b: nl.where(nl.relu(a), a, b),
        lambda a, b: nl.where(nl.greater(a, 0.0, dtype=nl.uint8), a, 0.25),
        lambda a, b: nl.where(a > 0.0, 2.0, a),
        lambda a, b: nl.where(a > 0.0, 2.0, -1),
        lambda a, b: nl.where(a > 0.0, a[:, 3:4], a[2:3, :]),
        lambda a, b: nl.where(a[:, 0:1] > 0.0, a, 0.0, dtype=nl.bfloat16),
    )
    p = x > 0
    wanted = [
        *(np.where(p, x, y), np.where(p, x, y), np.where(p, x, np.float32(0.25)), np.where(p, 2, x)),
        *(np.where(p, 2.0, -1.0), np.where(p, x[:, 3:4], x[2:3])),
        np.where(p[:, :1], x, 0).astype(ml_dtypes.bfloat16),
    ]
    for got, want in zip(values(kernel, x, y), wanted, strict=True):
        np.testing.assert_array_equal(got.astype(np.float32), want.astype(np.float32))


def test_where_a_mask_leaves_it() -> None:
    x = numbers(P, F)

    def kernel(a: Any) -> Any:
        tile, out = nl.load(a), nl.full((P, F), -7.0, dtype=nl.float32)
        i_p = nl.arange(P)[:, None]
        out[0:4, :] = nl.where(tile > 0.0, tile, 0.0, mask=i_p < 4)[0:4, :]
        return stored(out)

    want = np.full((P, F), -7.0)
    want[:4] = np.maximum(x[:4], 0)
    np.testing.assert_array_equal(result(kernel, x), want)
    assert one_of(lambda a: nl.where(a > 1.0, a, 0.0)) == [
        *("tensor_scalar", "memset", "tensor_copy_predicated")
    ]


# data movement


@pytest.mark.oracle("nl.load", "nl.store", "nl.copy", "nl.transpose", "nl.load_transpose2d", "nl.matmul")
def test_movement() -> None:
    x, y = numbers(P, F), numbers(P, 40, seed=2)

    def kernel(a: Any, b: Any) -> Any:
        left, right = nl.load(a), nl.load(b, dtype=nl.bfloat16)
        turned = nl.transpose(left)
        product = nl.matmul(left, nl.load(b), transpose_x=True)
        assert (turned.buffer, product.buffer, product.dtype) == (nl.psum, nl.psum, np.float32)
        return stored(
            right,
            turned,
            nl.transpose(left, dtype=nl.bfloat16),
            nl.load_transpose2d(b),
            product,
            nl.matmul(nl.copy(turned), nl.load(b)),
            nl.matmul(left, nl.copy(turned)),
        )

    u, v = x.astype(np.float64), y.astype(np.float64)
    wanted = [
        *(y.astype(ml_dtypes.bfloat16), x.T, x.T.astype(ml_dtypes.bfloat16), y.T),
        *(u.T @ v, u.T @ v, u @ u.T),
    ]
    for got, want in zip(values(kernel, x, y), wanted, strict=True):
        assert got.dtype == (want.dtype if want.dtype != np.float64 else np.float32)
        np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=1e-5, atol=1e-5)


def test_masks_of_movement() -> None:
    x = numbers(P, F)

    def kernel(a: Any) -> Any:
        i_p, i_f = nl.mgrid[0:P, 0:F]
        outs = [nl.full(shape, -7.0, dtype=nl.float32) for shape in ((P, F), (F, P), (P, F))]
        mask = (i_p < 5) & (i_f >= 3)
        outs[0][...] = nl.load(a, mask=mask)
        outs[1][...] = nl.load_transpose2d(a, mask=mask)
        outs[2][...] = nl.copy(nl.load(a), mask=mask)
        turned = nl.full((F, P), -7.0, dtype=nl.float32)
        moved = nl.transpose(nl.load(a), mask=mask)
        turned[3:F, 0:5] = nl.copy(moved[3:F, 0:5])
        cast = nl.full((F, P), -7.0, dtype=nl.float32)
        cast[3:F, 0:5] = nl.copy(nl.transpose(nl.load(a), dtype=nl.bfloat16, mask=mask)[3:F, 0:5])
        return stored(*outs, turned, cast)

    want = np.full((P, F), -7.0, np.float32)
    want[:5, 3:] = x[:5, 3:]
    cast = want.T.astype(ml_dtypes.bfloat16).astype(np.float32)
    for got, expected in zip(values(kernel, x), (want, want.T, want, want.T, cast), strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.oracle("nl.store", "nl.atomic_rmw")
def test_stores_of_numbers_and_additions_in_hbm() -> None:
    x = numbers(P, F)
    rows = np.random.default_rng(0).permutation(P)[:, None].astype(np.int32)

    def kernel(a: Any, index: Any) -> Any:
        out, sums = (nl.ndarray((P, F), dtype=nl.float32, buffer=nl.shared_hbm) for _ in range(2))
        nl.store(out, 3.0)
        i_p, i_f = nl.arange(P)[:, None], nl.arange(F)[None, :]
        nl.store(out[i_p, i_f], nl.load(a), mask=i_p < 4)
        nl.store(sums, nl.load(a))
        at = nl.load(index)
        nl.atomic_rmw(sums[at[i_p, 0], i_f], nl.load(a), op=np.add)
        nl.atomic_rmw(sums[at[i_p, 0], i_f], 0.5, op=np.add, mask=i_p < 3)
        return out, sums

    out, sums = values(kernel, x, rows)
    want = np.full((P, F), 3.0)
    want[:4] = x[:4]
    np.testing.assert_array_equal(out, want)
    added = x.astype(np.float64)
    added[rows[:, 0]] += x
    added[rows[:3, 0]] += 0.5
    np.testing.assert_allclose(sums, added, rtol=1e-6, atol=1e-6)


def test_numbers_that_are_assigned_are_cast_to_the_dtype() -> None:
    def kernel(a: Any) -> Any:
        whole, half = nl.ndarray((P, F), dtype=nl.int32), nl.ndarray((P, F), dtype=nl.bfloat16)
        whole[...], half[...] = 2.75, 3
        out = nl.ndarray((P, F), dtype=nl.int32, buffer=nl.shared_hbm)
        nl.store(out, 5.0)
        return (*stored(whole, half), out)

    whole, half, out = values(kernel, numbers(P, F))
    assert (np.unique(whole).tolist(), np.unique(half).tolist(), np.unique(out).tolist()) == ([2], [3], [5])


@pytest.mark.oracle("nl.gather_flattened")
def test_gather_flattened() -> None:
    # the example of nki/api/nki/language/__init__.py:678-695, and one of another size
    data = np.array([[[1.0, 2], [3, 4]], [[5, 6], [7, 8]]], np.float32)
    indices = np.array([[[0, 1], [1, 3]], [[3, 3], [1, 0]]], np.uint32)
    got = result(each(lambda a, b: nl.gather_flattened(a, b)), data, indices)
    np.testing.assert_array_equal(got, [[[1, 2], [2, 4]], [[8, 8], [6, 5]]])
    x, at = numbers(P, F), np.random.default_rng(3).integers(0, F, (P, 9)).astype(np.uint32)

    def kernel(a: Any, b: Any) -> Any:
        source, where = nl.load(a), nl.load(b)
        i_p, i_f = nl.mgrid[0:P, 0:9]
        out = nl.full((P, 9), -7.0, dtype=nl.float32)
        out[...] = nl.gather_flattened(source, where, mask=(i_p < 6) & (i_f < 4))
        return stored(out, nl.gather_flattened(source, where, dtype=nl.bfloat16))

    masked, half = values(kernel, x, at)
    want = np.take_along_axis(x, at.astype(np.int64), axis=1)
    np.testing.assert_array_equal(half, want.astype(ml_dtypes.bfloat16))
    partly = np.full((P, 9), -7.0, np.float32)
    partly[:6, :4] = want[:6, :4]
    np.testing.assert_array_equal(masked, partly)


@pytest.mark.oracle("nl.broadcast_to", "nl.expand_dims")
def test_views() -> None:
    x = numbers(1, 1, F)

    def kernel(a: Any) -> Any:
        tile = nl.load(a)
        rows = nl.broadcast_to(tile, shape=(P, 4, F))
        assert nl.broadcast_to(tile, shape=(1, 1, F)) is tile
        assert nl.expand_dims(rows, -1).shape == (P, 4, F, 1)
        assert nl.expand_dims(rows, [1, 4]).shape == (P, 1, 4, F, 1)
        return stored(rows, nl.copy(nl.expand_dims(rows, 3)))

    rows, column = values(kernel, x)
    np.testing.assert_array_equal(rows, np.broadcast_to(x, (P, 4, F)))
    np.testing.assert_array_equal(column, np.broadcast_to(x, (P, 4, F))[..., None])


# where tensors come from


@pytest.mark.oracle(
    *("nl.zeros", "nl.ones", "nl.full", "nl.zeros_like", "nl.empty_like"),
    *("nl.shared_constant", "nl.shared_identity_matrix"),
)
def test_fills() -> None:
    table = numbers(8, 6)

    def kernel(a: Any) -> Any:
        like = nl.load(a)
        empty = nl.empty_like(like, dtype=nl.int32, buffer=nl.sbuf, name="e")
        empty[...] = 4
        assert (empty.dtype, empty.shape) == (np.int32, like.shape)
        blocks = nl.zeros((2, nl.par_dim(P), F), dtype=nl.float32)
        sums = nl.zeros((P, F), dtype=nl.float32, buffer=nl.psum)
        return stored(
            nl.zeros((P, F), dtype=nl.bfloat16),
            nl.ones((P, F), nl.float32),
            nl.full((P, F), 2.5, nl.float32, buffer=nl.sbuf),
            nl.zeros_like(like),
            empty,
            nl.load(nl.shared_constant(table)),
            nl.load(nl.shared_constant(table, dtype=nl.bfloat16)),
            nl.load(nl.shared_identity_matrix(6)),
            nl.load(nl.shared_identity_matrix(6, dtype=nl.bfloat16)),
            nl.copy(blocks[1]),
            nl.copy(sums),
        )

    wanted = [
        *(np.zeros((P, F), ml_dtypes.bfloat16), np.ones((P, F), np.float32)),
        *(np.full((P, F), 2.5, np.float32), np.zeros((P, F), np.float32), np.full((P, F), 4, np.int32)),
        *(table, table.astype(ml_dtypes.bfloat16), np.eye(6, dtype=np.uint8)),
        np.eye(6).astype(ml_dtypes.bfloat16),
        *[np.zeros((P, F), np.float32)] * 2,
    ]
    for got, want in zip(values(kernel, numbers(P, F)), wanted, strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


@pytest.mark.oracle("nl.rand", "nl.random_seed", "nl.dropout")
def test_random_numbers() -> None:
    x = np.ones((128, 400), np.float32)

    def kernel(a: Any, chances: Any, seed: Any) -> Any:
        tile = nl.load(a)
        nl.random_seed(7)
        first = nl.rand((128, 400))
        nl.random_seed(7, mask=False)
        other = nl.rand((128, 400), dtype=nl.bfloat16)
        nl.random_seed(seed=nl.load(seed))
        again = nl.rand((128, 400))
        some = nl.dropout(tile, 0.25)
        rows = nl.dropout(tile, rate=nl.load(chances)[:, 0], dtype=nl.bfloat16)
        none = nl.dropout(tile, rate=nl.load(chances)[0, 0])
        return stored(first, other, again, some, rows, none)

    chances = np.linspace(0, 1, 128, dtype=np.float32)[:, None]
    first, other, again, some, rows, none = values(kernel, x, chances, np.array([[7]], np.int32))
    assert (first.min() >= 0, first.max() < 1) == (True, True)
    assert abs(first.mean() - 0.5) < 0.005  # 51200 draws: one standard deviation is 0.0013
    assert abs(first.var() - 1 / 12) < 0.002
    assert other.dtype == ml_dtypes.bfloat16
    assert (other.astype(np.float32) != first).mean() > 0.9
    np.testing.assert_array_equal(again, first)
    assert set(np.unique(some)) == {0.0, 1.0}
    assert abs((some == 0).mean() - 0.25) < 0.01
    assert rows.dtype == ml_dtypes.bfloat16
    np.testing.assert_allclose((rows == 0).mean(axis=1), chances[:, 0], atol=0.13)
    assert (none == 1).all()


def test_random_numbers_on_the_host() -> None:
    found = nl.rand((3, 5), dtype=nl.float16)
    assert (found.shape, found.dtype) == ((3, 5), np.float16)
    assert (found.min() >= 0, found.max() <= 1) == (True, True)


# instances and loops


@pytest.mark.oracle("nl.loop_reduce")
@pytest.mark.parametrize(("op", "function"), [(np.add, np.sum), (np.max, np.max), ("minimum", np.min)])
def test_loop_reduce_combines_the_passes(op: Any, function: Callable[..., Array]) -> None:
    x = numbers(5, P, F)
    found = getattr(nl, op) if isinstance(op, str) else op

    def kernel(a: Any) -> Any:
        whole, partly = (nl.ndarray((P, F), dtype=nl.float32) for _ in range(2))
        for i in nl.affine_range(5):
            tile = nl.load(a[i])
            whole[...] = nl.loop_reduce(tile, op=found, loop_indices=[i], dtype=nl.float32)
            partly[...] = nl.loop_reduce(tile, op=found, loop_indices=i, mask=i < 3)
        return stored(whole, partly)

    whole, partly = values(kernel, x)
    np.testing.assert_allclose(whole, function(x.astype(np.float64), axis=0), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(partly, function(x[:3].astype(np.float64), axis=0), rtol=1e-5, atol=1e-5)


@pytest.mark.oracle("nl.all_reduce")
def test_all_reduce_of_one_instance_is_the_tile() -> None:
    x = numbers(P, F)

    def kernel(a: Any) -> Any:
        return stored(nl.all_reduce(nl.load(a), np.add, program_axes=[0]))

    np.testing.assert_array_equal(result(kernel, x), x)
    assert refusal(kernel, x, grid=(2,)) == (
        "not yet supported: nl.all_reduce over several instances of a launch grid, which run one after another here"
    )


@pytest.mark.oracle("nl.device_print")
def test_device_print_takes_what_a_mask_leaves() -> None:
    from nkireview.program.prints import prints

    def kernel(a: Any) -> Any:
        tile = nl.load(a)
        i_p = nl.arange(P)[:, None]
        nl.device_print("whole", tile)
        nl.device_print("part", tile, mask=i_p < 2)
        nl.device_print("none", tile, mask=i_p < 0)
        return stored(tile)

    program = traced(kernel, numbers(P, F)).program
    shown = [(each.name, program.access(each.access).shape) for each in prints(program)]
    assert [(name.split(":")[0].strip(), shape) for name, shape in shown] == [
        ("whole", (P, F)),
        ("part", (2, F)),
    ]


# refusals

T = "expected a tile, got float"
REFUSED: list[tuple[Kernel, str]] = [
    (lambda t: nl.exp(1.0), f"nl.exp: {T}"),
    (lambda t: nl.add(1.0, 2.0), "nl.add: one side must be a tile, got two numbers"),
    (lambda t: nl.add(t, "x"), "nl.add: expected tiles or numbers, got str"),
    (
        lambda t: nl.add(t, t[:, 0:5]),
        "nl.add: shapes (16, 24) and (16, 5) do not broadcast",
    ),
    (
        lambda t: nl.add(t[0:8, 0:8], nl.zeros((8, 8, 8), dtype=nl.float32)),
        "nl.add: shapes (8, 8) and (8, 8, 8) are of different ranks, which NumPy aligns at their last dimensions, so "
        "that partitions would meet a free dimension; give all tiles the same rank",
    ),
    (lambda t: nl.sum(t, 1.5), "nl.sum: axis must be an integer or a list of integers, got 1.5"),
    (lambda t: nl.max(t, []), "nl.max: axis must be an integer or a list of integers, got []"),
    (lambda t: nl.sum(t, 2), "nl.sum: axis 2 does not fit a 2-D tile"),
    (lambda t: nl.mean(t, (1, -1)), "nl.mean: axis (1, -1) does not fit a 2-D tile"),
    (lambda t: nl.softmax(3, 1), "nl.softmax: x must be a tile, got int"),
    (lambda t: nl.rms_norm(t, t, 1, "n"), "nl.rms_norm: n must be a number, got str"),
    (lambda t: nl.where(t, t, "y"), "nl.where: y must be a tile or a number, got str"),
    (lambda t: nl.where(True, t, t), "nl.where: condition must be a tile, got bool"),
    (lambda t: nl.load(t), "nl.load: src must be in HBM, it is in sbuf"),
    (lambda t: nl.store(t, t), "nl.store: dst must be in HBM, it is in sbuf"),
    (lambda t: nl.atomic_rmw(t, t, np.add), "nl.atomic_rmw: dst must be in HBM, it is in sbuf"),
    (lambda t: nl.load_transpose2d(t), "nl.load_transpose2d: src must be in HBM, it is in sbuf"),
    (
        lambda t: nl.transpose(nl.zeros((4, 4, 4), dtype=nl.float32)),
        "nl.transpose: x has 3 dimensions, expected 2",
    ),
    (
        lambda t: nl.expand_dims(t, 0),
        "nl.expand_dims: axis 0 comes before the partitions, the new dimension must be a free one",
    ),
    (lambda t: nl.expand_dims(t, 4), "nl.expand_dims: axis 4 does not fit a 2-D tile"),
    (
        lambda t: nl.broadcast_to(t, shape=(16, 48)),
        "nl.broadcast_to: (16, 24) does not broadcast to (16, 48)",
    ),
    (lambda t: nl.gather_flattened(t, t), "nl.gather_flattened: indices must be uint32, they are float32"),
    (lambda t: nl.dropout(t, 1.5), "nl.dropout: rate is 1.5, expected a probability from 0 to 1 or a tile"),
    (lambda t: nl.random_seed(2**32), "nl.random_seed: seed 4294967296 has more than 32 bits"),
    (lambda t: nl.random_seed(0.5), "nl.random_seed: seed must be a tile, got float"),
    (
        lambda t: nl.full((4, 4), 1.0, nl.float32, buffer=nl.shared_hbm),
        "nl.full: a tensor in shared_hbm takes no initial value; fill a tile and nl.store it",
    ),
    (lambda t: nl.full((4, 4), t, nl.float32), "nl.full: fill_value must be a number, got Tile"),
    (
        lambda t: nl.ndarray((4, 4), nl.float32, buffer="dram"),
        "nl.ndarray: buffer must be nl.sbuf, nl.psum, nl.hbm, nl.shared_hbm or an allocator of nki.compiler, "
        "got 'dram'",
    ),
    (lambda t: nl.zeros_like(3), "nl.zeros_like: a must be a tile, got int"),
    (
        lambda t: nl.shared_identity_matrix(0),
        "nl.shared_identity_matrix: n must be a positive integer, got 0",
    ),
    (lambda t: nl.gemm_grid(), "nl.gemm_grid has no documented meaning: write the loops over tiles"),
    (
        lambda t: nl.static_cast(t, nl.float32),
        "nl.static_cast: takes a number or an array of the host, not a tile; nl.copy casts tiles",
    ),
    (lambda t: nl.finfo(np.int32), "nl.finfo: int32 is no float that the host knows"),
    (
        lambda t: [nl.loop_reduce(t, np.exp, [i]) for i in nl.affine_range(2)],
        "nl.loop_reduce: op must be a reduction such as np.add, np.max or np.min, got <ufunc 'exp'>",
    ),
    (
        lambda t: nl.softmax(t, 1, mask=nl.arange(P)[:, None] > nl.arange(F)[None, :]),
        "not yet supported: nl.softmax with a mask that leaves no box",
    ),
    (
        lambda t: nl.matmul(t, t, mask=nl.arange(P)[:, None] > 3),
        "nl.matmul: a mask needs transpose_x=True, it names the dimensions of the transposed x",
    ),
    (lambda t: nl.add(t, t, nl.float32), "nl.add() takes 2 positional arguments but 3 were given"),
    (lambda t: nl.exp(t, nl.float32), "nl.exp() takes 1 positional argument but 2 were given"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED, ids=[re.sub(r"\W.*", "", m[3:]) for _, m in REFUSED])
def test_refusals(call: Kernel, message: str) -> None:
    def kernel(a: Any) -> Any:
        call(nl.load(a))
        return a

    assert refusal(kernel, numbers(P, F)) == message


def test_atomic_addition_is_the_only_one() -> None:
    def kernel(a: Any) -> Any:
        nl.atomic_rmw(a, nl.load(a), op=np.maximum)

    assert refusal(kernel, numbers(P, F)) == "nl.atomic_rmw: op must be np.add, got <ufunc 'maximum'>"


def test_keywords_of_later_compilers_are_ignored() -> None:
    """Each stub ends in **kwargs."""
    x = numbers(P, F)
    kernel = each(lambda a: nl.exp(a, name="e", lowering=3), lambda a: nl.sum(a, 1, name="s"))
    np.testing.assert_allclose(values(kernel, x)[0], np.exp(x.astype(np.float64)), rtol=2e-5)


def test_functions_name_operators() -> None:
    operators = {name for name in LANGUAGE if isinstance(getattr(nl, name), Function)}
    assert {"add", "maximum", "exp", "sum", "invert", "copy", "divide"} <= operators
    assert [getattr(nl, name).name for name in ("sum", "max", "min", "prod", "all", "add")] == [
        *("add", "maximum", "minimum", "multiply", "logical_and", "add")
    ]
    assert all(name == getattr(nl, name).name for name in (*ARITHMETIC, *COMPARISONS, *LOGICAL, *BITS))


def test_every_function_of_the_stubs_is_tested_here() -> None:
    """By its name in this file; others test the loops and the launch grid."""
    text = inspect.getsource(inspect.getmodule(test_functions_name_operators))  # type: ignore[arg-type]
    elsewhere = {"affine_range", "sequential_range", "static_range", "num_programs", "program_ndim", "ds"}
    known = set(itertools.chain(UNARY, ARITHMETIC, COMPARISONS, LOGICAL, BITS, REDUCE))
    missing = {name for name in LANGUAGE if name not in known and f"nl.{name}" not in text}
    assert missing <= elsewhere | {"gemm_stationary_grid"}


def test_reductions_over_inner_dimensions() -> None:
    held = numbers(4, 3, 5, 2, seed=5)

    def kernel(x: Any) -> Any:
        tile = nl.load(x)
        return stored(nl.max(tile, axis=[1, 3]), nl.sum(tile, axis=(1,)), nl.min(tile, axis=[1, 2]))

    largest, total, least = values(kernel, held)
    np.testing.assert_array_equal(largest, held.max(axis=(1, 3)))
    np.testing.assert_allclose(total, held.astype(np.float64).sum(axis=1), rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(least, held.min(axis=(1, 2)))

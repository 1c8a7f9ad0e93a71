"""The default limits by simulation: honest kernels pass with margin, known defects fail.

Tests named ``cannot_separate`` record what these limits let through; a task needs other inputs there.
"""

from __future__ import annotations

import math
import re
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from scipy import special

from nkireview.numerics.errors import ErrorFigures
from nkireview.numerics.hostile import hostile
from nkireview.numerics.limits import Growth, Policy, limits_for, table
from nkireview.numerics.sensitivity import conditioning
from nkireview.numerics.verdict import Verdict, judge

Array = npt.NDArray[Any]
BF16, F32, F64 = ml_dtypes.bfloat16, np.float32, np.float64
SEEDS = (0, 1, 2)
# An honest kernel stays below this share of its limits.
MARGIN = 0.75

seeds = pytest.mark.parametrize("seed", SEEDS)


def operands(seed: int, k: int, dtype: Any, positive: bool = False) -> tuple[Array, Array]:
    generator = np.random.default_rng(seed)
    draw = generator.random if positive else generator.standard_normal
    return draw((64, k)).astype(dtype).astype(F32), draw((k, 64)).astype(dtype).astype(F32)


def matmul(a: Array, b: Array, tile: int = 128, stored: Any = F32) -> Array:
    """Tile by tile over K, the running sum stored as ``stored``."""
    total = np.zeros((a.shape[0], b.shape[1]), F32)
    for k in range(0, a.shape[1], tile):
        total = (total + a[:, k : k + tile] @ b[k : k + tile]).astype(stored).astype(F32)
    return total


def exact(a: Array, b: Array) -> Array:
    return np.asarray(a.astype(F64) @ b.astype(F64))


def softmax(x: Array, scale: float = 1.0) -> Array:
    x = x * x.dtype.type(scale)
    e = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


def rmsnorm(x: Array, weight: Array, eps: float = 1e-6) -> Array:
    return np.asarray(x / np.sqrt((x * x).mean(-1, keepdims=True) + x.dtype.type(eps)) * weight)


def layernorm(x: Array, lost: int = 0) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    variance = (centred * centred).sum(-1, keepdims=True) / x.dtype.type(x.shape[-1] - lost)
    return np.asarray(centred / np.sqrt(variance + x.dtype.type(1e-5)))


def layernorm_one_pass(x: Array) -> Array:
    mean = x.mean(-1, keepdims=True)
    variance = (x * x).mean(-1, keepdims=True) - mean * mean
    return np.asarray((x - mean) / np.sqrt(variance + x.dtype.type(1e-5)))


def gelu(x: Array) -> Array:
    return np.asarray(x.dtype.type(0.5) * x * (1 + special.erf(x * x.dtype.type(math.sqrt(0.5)))))


def gelu_tanh(x: Array) -> Array:
    kind = x.dtype.type
    inner = kind(math.sqrt(2 / math.pi)) * (x + kind(0.044715) * x * x * x)
    return np.asarray(kind(0.5) * x * (1 + np.tanh(inner)))


def silu(x: Array) -> Array:
    return np.asarray(x / (1 + np.exp(-x)))


def sweep() -> Array:
    return np.linspace(-5, 5, 1 << 15).reshape(64, 512).astype(F32)


def passes_with_margin(verdict: Verdict) -> bool:
    figures = verdict.comparison
    assert isinstance(figures, ErrorFigures)
    assert figures.use is not None
    return verdict.passed and max(figures.use.element, figures.use.rms) < MARGIN


# Honest kernels.


@seeds
@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("k", [128, 1024, 8192])
def test_bf16_matmul_with_float32_accumulation_passes(seed: int, k: int, positive: bool) -> None:
    a, b = operands(seed, k, BF16, positive)
    assert passes_with_margin(judge(matmul(a, b).astype(BF16), exact(a, b), limits_for("bfloat16", k)))


@seeds
@pytest.mark.parametrize("positive", [False, True])
def test_float32_matmul_passes_in_any_order(seed: int, positive: bool) -> None:
    a, b = operands(seed, 4096, F32, positive)
    limits = limits_for("float32", 4096)
    for got in (matmul(a, b), matmul(a[:, ::-1], b[::-1]), matmul(a, b, tile=1), matmul(a, b, tile=512)):
        assert passes_with_margin(judge(got, exact(a, b), limits))


@seeds
@pytest.mark.parametrize("columns", [64, 1024, 16384])
@pytest.mark.parametrize("per_row", [False, True])
def test_softmax_passes(seed: int, columns: int, per_row: bool) -> None:
    x = np.random.default_rng(seed).standard_normal((64, columns)).astype(BF16).astype(F32)
    ref, policy = softmax(x.astype(F64)), Policy(per_row=per_row)
    assert passes_with_margin(judge(softmax(x), ref, limits_for("float32", columns, policy)))
    assert passes_with_margin(judge(softmax(x).astype(BF16), ref, limits_for("bfloat16", columns, policy)))


@seeds
@pytest.mark.parametrize("columns", [512, 4096])
def test_rmsnorm_passes(seed: int, columns: int) -> None:
    generator = np.random.default_rng(seed)
    x = generator.standard_normal((64, columns)).astype(BF16).astype(F32)
    weight = generator.standard_normal(columns).astype(BF16).astype(F32)
    ref = rmsnorm(x.astype(F64), weight.astype(F64))
    limits = limits_for("bfloat16", columns)
    assert passes_with_margin(judge(rmsnorm(x, weight).astype(BF16), ref, limits))
    stored_once_more = rmsnorm(x, np.ones_like(weight)).astype(BF16).astype(F32) * weight
    assert judge(stored_once_more.astype(BF16), ref, limits).passed


@pytest.mark.parametrize(
    "function",
    [
        gelu,
        gelu_tanh,
        silu,
        np.tanh,
        np.exp,
        np.sin,
        lambda x: np.log1p(np.exp(x)),
        lambda x: 1 / (1 + np.exp(-x)),
    ],
    ids=["gelu", "gelu_tanh", "silu", "tanh", "exp", "sin", "softplus", "sigmoid"],
)
def test_activation_functions_in_float32_pass(function: Any) -> None:
    x = sweep()
    ref = function(x.astype(F64))
    assert passes_with_margin(judge(function(x), ref, limits_for("float32", 1)))
    assert passes_with_margin(judge(function(x).astype(BF16), ref, limits_for("bfloat16", 1)))


@seeds
@pytest.mark.parametrize("length", [128, 2048])
def test_attention_with_its_probabilities_stored_in_bf16_passes(seed: int, length: int) -> None:
    generator = np.random.default_rng(seed)
    q, k, v = (generator.standard_normal((n, 128)).astype(BF16).astype(F32) for n in (64, length, length))
    scale = 128**-0.5
    ref = softmax(q.astype(F64) @ k.T.astype(F64), scale) @ v.astype(F64)
    scaled = (q * F32(scale)).astype(BF16).astype(F32)
    scores = scaled @ k.T
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    got = (weights.astype(BF16).astype(F32) @ v) / weights.sum(-1, keepdims=True)
    assert judge(got.astype(BF16), ref, limits_for("bfloat16", length)).passed


@seeds
def test_one_element_may_be_a_whole_roundoff_off(seed: int) -> None:
    ref = np.random.default_rng(seed).uniform(1, 2, (200, 1))
    ref[0] = 1 + 2.0**-8
    limits = limits_for("bfloat16", 1)
    for value in ref:
        assert judge(value.astype(BF16), value, limits).passed


# Defects.


@seeds
@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize(("k", "dtype"), [(1024, "bfloat16"), (8192, "bfloat16"), (4096, "float32")])
def test_a_dropped_k_tile_fails(seed: int, k: int, dtype: str, positive: bool) -> None:
    stored = BF16 if dtype == "bfloat16" else F32
    a, b = operands(seed, k, stored, positive)
    got = matmul(a[:, 128:], b[128:]).astype(stored)
    assert not judge(got, exact(a, b), limits_for(dtype, k)).passed


@seeds
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float8_e4m3", "float8_e5m2"])
def test_zeros_and_shifted_rows_fail(seed: int, dtype: str) -> None:
    a, b = operands(seed, 512, BF16)
    for ref in (exact(a, b) / 32, softmax(exact(a, b))):
        limits = limits_for(dtype, 512)
        assert not judge(np.zeros_like(ref), ref, limits).passed
        assert not judge(np.roll(ref, 1, axis=0), ref, limits).passed


@seeds
@pytest.mark.parametrize("k", [1024, 8192])
def test_a_running_sum_stored_in_bf16_fails(seed: int, k: int) -> None:
    a, b = operands(seed, k, BF16)
    assert not judge(matmul(a, b, stored=BF16).astype(BF16), exact(a, b), limits_for("bfloat16", k)).passed


@seeds
@pytest.mark.parametrize("positive", [False, True])
def test_a_running_sum_of_single_products_in_bf16_fails(seed: int, positive: bool) -> None:
    a, b = operands(seed, 1024, BF16, positive)
    got = matmul(a, b, tile=1, stored=BF16).astype(BF16)
    assert not judge(got, exact(a, b), limits_for("bfloat16", 1024)).passed


@seeds
def test_bf16_operands_in_a_float32_task_fail(seed: int) -> None:
    a, b = operands(seed, 4096, F32)
    rounded = [x.astype(BF16).astype(F32) for x in (a, b)]
    assert not judge(matmul(*rounded), exact(a, b), limits_for("float32", 4096)).passed
    low = [(x - high).astype(BF16).astype(F32) for x, high in zip((a, b), rounded, strict=True)]
    three_products = matmul(*rounded) + matmul(rounded[0], low[1]) + matmul(low[0], rounded[1])
    assert not judge(three_products, exact(a, b), limits_for("float32", 4096)).passed


@seeds
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_dropped_epsilon_fails_on_tiny_rows_only(seed: int, dtype: str) -> None:
    stored = BF16 if dtype == "bfloat16" else F32
    x = np.random.default_rng(seed).standard_normal((64, 512)).astype(stored)
    tiny = hostile({"x": x}, "tiny-rows")
    assert tiny is not None
    weight, limits = np.ones(512, F32), limits_for(dtype, 512)
    for values, noticed in ((x, False), (tiny["x"], True)):
        wide = values.astype(F32)
        ref = rmsnorm(values.astype(F64), weight.astype(F64))
        assert judge(rmsnorm(wide, weight).astype(stored), ref, limits).passed
        assert judge(rmsnorm(wide, weight, eps=0.0).astype(stored), ref, limits).passed != noticed


@seeds
def test_variance_over_n_minus_1_fails_in_float32(seed: int) -> None:
    x = np.random.default_rng(seed).standard_normal((64, 512)).astype(F32)
    ref = layernorm(x.astype(F64))
    assert passes_with_margin(judge(layernorm(x), ref, limits_for("float32", 512)))
    assert not judge(layernorm(x, lost=1), ref, limits_for("float32", 512)).passed


def test_the_tanh_form_of_gelu_fails_in_float32() -> None:
    x = sweep()
    assert not judge(gelu_tanh(x), gelu(x.astype(F64)), limits_for("float32", 1)).passed


@seeds
@pytest.mark.parametrize("columns", [512, 4096])
def test_a_large_mean_separates_one_pass_from_two_pass_variance(seed: int, columns: int) -> None:
    x = np.random.default_rng(seed).standard_normal((64, columns)).astype(F32)
    args = hostile({"x": x}, "large-mean")
    assert args is not None
    amplification = conditioning(lambda values: [layernorm(values[0].astype(F64))], args, seed)[0]
    assert 50 < amplification < 200
    limits = limits_for("float32", columns, amplification=amplification)
    ref = layernorm(args["x"].astype(F64))
    assert judge(layernorm(args["x"]), ref, limits).passed
    assert not judge(layernorm_one_pass(args["x"]), ref, limits).passed


@seeds
def test_a_hundredfold_input_separates_softmax_with_and_without_its_maximum(seed: int) -> None:
    x = np.random.default_rng(seed).standard_normal((64, 1024)).astype(F32)
    args = hostile({"x": x}, "scale-100")
    assert args is not None
    scale = 0.0883883
    amplification = conditioning(
        lambda values: [softmax(values[0].astype(F64), float(F32(scale)))], args, seed
    )[0]
    limits = limits_for("float32", 1024, amplification=amplification)
    ref = softmax(args["x"].astype(F64), float(F32(scale)))
    assert judge(softmax(args["x"], scale), ref, limits).passed
    with np.errstate(over="ignore", invalid="ignore"):
        e = np.exp(args["x"])
        unshifted = e / e.sum(-1, keepdims=True)
    assert "differ in NaN or infinity" in judge(unshifted, ref, limits).reason


# What bf16 outputs cannot show.


@seeds
def test_cannot_separate_variance_over_n_minus_1_in_bf16(seed: int) -> None:
    x = np.random.default_rng(seed).standard_normal((64, 512)).astype(BF16).astype(F32)
    got = layernorm(x, lost=1).astype(BF16)
    assert judge(got, layernorm(x.astype(F64)), limits_for("bfloat16", 512)).passed


def test_cannot_separate_the_tanh_form_of_gelu_in_bf16() -> None:
    x = sweep().astype(BF16).astype(F32)
    assert judge(gelu_tanh(x).astype(BF16), gelu(x.astype(F64)), limits_for("bfloat16", 1)).passed


@seeds
def test_cannot_separate_a_short_bf16_running_sum_of_positive_tiles(seed: int) -> None:
    a, b = operands(seed, 1024, BF16, positive=True)
    assert judge(matmul(a, b, stored=BF16).astype(BF16), exact(a, b), limits_for("bfloat16", 1024)).passed


@seeds
def test_cannot_separate_one_pass_variance_of_bf16_inputs(seed: int) -> None:
    x = np.random.default_rng(seed).standard_normal((64, 512)).astype(BF16)
    args = hostile({"x": x}, "large-mean")
    assert args is not None
    got = layernorm_one_pass(args["x"].astype(F32)).astype(BF16)
    assert judge(got, layernorm(args["x"].astype(F64)), limits_for("bfloat16", 512)).passed


# The table and policies.


def test_limits_follow_the_formula_of_the_table() -> None:
    limits = limits_for("bfloat16", 1024)
    u_out, u_acc = 2.0**-8, 2.0**-24
    assert limits.rtol == pytest.approx(2 * u_out + (8 + 2.5 * 32) * u_acc)
    assert limits.atol == pytest.approx(3 * u_out + (8 + 2.5 * 32) * u_acc)
    assert limits.rms == pytest.approx(0.8 * u_out + (2 + 0.6 * 32) * u_acc)
    assert limits.absolute == 2.0**-134  # half of the smallest bf16 number, 2**-133
    assert limits_for("float32", 4).rms == pytest.approx((0.8 + 2 + 0.6 * 2) * u_acc)
    assert limits_for("float16", 1).absolute == 2.0**-25
    assert limits_for("float32", 4, amplification=10).rms == pytest.approx((0.8 + 10 * (2 + 0.6 * 2)) * u_acc)


def test_every_unpacked_dtype_has_limits() -> None:
    from nkireview.isa import dtypes

    unpacked = {row.name for row in dtypes.DATA_TYPES if row.kind != "packed"}
    assert set(table().floating) | table().exact == unpacked


def test_growth_with_reduction_length() -> None:
    assert Growth(1.0, 2.0, 3.0).at(0.5, 0.25, 16) == 0.5 + (2 + 3 * 4) * 0.25


def test_a_policy_overrides_and_moves_rms_with_it() -> None:
    default = limits_for("bfloat16", 128)
    wide = limits_for("bfloat16", 128, Policy(rtol=10 * default.rtol, per_row=True))
    assert wide.rtol == pytest.approx(10 * default.rtol)
    assert wide.rms == pytest.approx(10 * default.rms)
    assert (wide.atol, wide.absolute, wide.per_row) == (default.atol, default.absolute, True)
    both = limits_for("bfloat16", 128, Policy(rtol=default.rtol / 2, atol=default.atol / 4))
    assert both.rms == pytest.approx(default.rms / 2)
    given = limits_for("bfloat16", 128, Policy(rtol=0.1, atol=0.2, rms=0.3, absolute=0.4))
    assert (given.rtol, given.atol, given.rms, given.absolute) == (0.1, 0.2, 0.3, 0.4)
    assert limits_for("int32", 1, Policy(per_row=True)).exact


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: limits_for("bfloat16", 0),
            "reduction length 0 is below 1: elementwise work has length 1",
        ),
        (
            lambda: limits_for("bfloat16", 1, amplification=math.inf),
            "amplification inf is no finite number of at least 1",
        ),
        (
            lambda: limits_for("float4_e2m1fn_x4", 1),
            "no limits for outputs of dtype float4_e2m1fn_x4: compare its unpacked values instead",
        ),
        (
            lambda: limits_for("int8", 1, Policy(absolute=1.0)),
            "int8 outputs must match exactly: remove the tolerance given for them",
        ),
        (lambda: Policy(rtol=-1.0), "tolerance rtol is -1.0: expected a finite number of at least 0"),
        (lambda: Policy(atol=math.nan), "tolerance atol is nan: expected a finite number of at least 0"),
        (lambda: Policy(rms=math.inf), "tolerance rms is inf: expected a finite number of at least 0"),
    ],
)
def test_refusals(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        call()

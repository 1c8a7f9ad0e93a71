"""Platforms apart: their sums, functions and casts against exact arithmetic and documented figures; their spread."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from execute_kit import Kernel, View
from numpy.typing import NDArray
from scipy import special

from nkireview.diagnosis.platforms import Arithmetic, Platform, Spread, platform, spread, table
from nkireview.diagnosis.platforms import sums as taken
from nkireview.diagnosis.platforms.arithmetic import Kinds
from nkireview.diagnosis.tolerance import Derivation
from nkireview.execute import execute

Array = NDArray[Any]
BF16 = ml_dtypes.bfloat16
GPU = ("gpu-fp32", "gpu-tf32", "gpu-tensor-fp16", "gpu-tensor-bf16", "gpu-fast-math")
ULP1 = 2.0**-23


def drawn(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def on(kernel: Kernel, where: str | Platform, seed: int = 0) -> list[Array]:
    """What a kernel gives on a platform."""
    program = kernel.program()
    chosen = platform(where) if isinstance(where, str) else where
    around = Arithmetic(Kinds.of_program(program), chosen, seed)
    ran = execute(program, kernel.arguments, compute=np.float64, rounding="off", around=around)
    assert not ran.faults
    return [np.asarray(output.values, np.float64) for output in ran.outputs]


def spread_of(kernel: Kernel, *names: str | Platform, seeds: Sequence[int] = (0, 1, 2)) -> Spread:
    chosen = [platform(name) if isinstance(name, str) else name for name in names]
    return spread(Derivation.of_program(kernel.program()), kernel.arguments, chosen, seeds)


def matmul(left: Array, right: Array, out: str = "float32") -> Kernel:
    """``left.T @ right``, the contraction in tiles of 128; left: (K, M), right: (K, N)."""
    kernel = Kernel()
    one, other = kernel.argument(left), kernel.argument(right)
    total = kernel.psum(left.shape[1], right.shape[1])
    for at in range(0, len(left), 128):
        rows = slice(at, min(at + 128, len(left)))
        tiles = []
        for whole in (one, other):
            tile = kernel.sbuf(rows.stop - rows.start, whole.shape[1], dtype=whole.dtype)
            kernel.copy(tile, whole[rows])
            tiles.append(tile)
        kernel.matmul(total, *tiles)
    result = kernel.sbuf(*total.shape, dtype=out)
    kernel.copy(result, total)
    kernel.store(result)
    return kernel


def relative_l2(got: Array, wanted: Array) -> float:
    return float(np.linalg.norm(got - wanted) / np.linalg.norm(wanted))


def wide(values: Array) -> Array:
    return np.asarray(values, np.float64)


# the table


def test_every_row_has_a_source_and_every_platform_of_the_issue_is_there() -> None:
    found = table()
    wanted = {*GPU, *(f"trn{n}{more}" for n in (1, 2, 3) for more in ("", "-stochastic"))}
    assert set(found.platforms) == wanted
    rows = [*found.facts.values(), *found.units.values()]
    rows += [row for rows_ in found.functions.values() for row in rows_.values()]  # type: ignore[misc]
    assert all(row.source and row.basis in ("documented", "published", "derived", "hole") for row in rows)
    assert all(each.facts for each in found.platforms.values())
    used = {fact.name for each in found.platforms.values() for fact in each.facts}
    assert used == set(found.facts)


def test_what_no_document_states_is_a_named_placeholder_that_can_be_replaced() -> None:
    trn2 = platform("trn2")
    row = trn2.function("gelu", "scalar")
    assert row is not None and row.basis == "hole" and row.relative == 1.5e-5
    changed = trn2.with_function("scalar", relative=3e-6, source="measured by the caller")
    row = changed.function("gelu", "scalar")
    assert row is not None and row.relative == 3e-6 and row.source == "measured by the caller"
    only_exp = trn2.with_function("scalar", "exp", ulps=4.0, source="measured by the caller")
    exp, log = only_exp.function("exp", "scalar"), only_exp.function("log", "scalar")
    assert exp is not None and exp.ulps == 4.0 and log is not None and log.relative == 1.5e-5


def test_a_bad_name_or_bound_gets_one_sentence() -> None:
    with pytest.raises(ValueError, match="there is no platform 'gpu': expected one of gpu-fp32, "):
        platform("gpu")
    with pytest.raises(ValueError, match="ulp is no bound of a function: expected one of ulps, "):
        platform("trn2").with_function("scalar", ulp=1.0, source="x")
    with pytest.raises(ValueError, match="relative of \\* is -1: expected a finite number of at least 0"):
        platform("trn2").with_function("scalar", relative=-1, source="x")
    with pytest.raises(ValueError, match="operands of platform gpu-tf32 is 'float8'"):
        replace(platform("gpu-tf32"), operands="float8")
    with pytest.raises(ValueError, match="matmul 'tensor' and unit None: only tensor has one"):
        replace(platform("gpu-tf32"), unit=None)


# sums, against exact arithmetic


def exponent(value: Fraction) -> int:
    """The exponent of the leading bit."""
    size = abs(value)
    found = size.numerator.bit_length() - size.denominator.bit_length()
    return found if size >= Fraction(2) ** found else found - 1


def toward_zero(value: Fraction, step: Fraction) -> Fraction:
    return step * int(value / step)


def as_float32_toward_zero(value: Fraction) -> Fraction:
    return value if value == 0 else toward_zero(value, Fraction(2) ** (exponent(value) - 23))


def tensor_core(left: Array, right: Array, products: int, extra: int, start: float = 0.0) -> float:
    """One element by exact rational numbers: blocks aligned to the largest exponent and cut."""
    total = Fraction(start)
    for at in range(0, len(left), products):
        pairs = [
            (Fraction(float(x)), Fraction(float(y)))
            for x, y in zip(left[at : at + products], right[at : at + products], strict=True)
        ]
        exponents = [exponent(x) + exponent(y) for x, y in pairs if x and y]
        exponents += [exponent(total)] if total else []
        if not exponents:
            continue
        step = Fraction(2) ** (max(exponents) - 23 - extra)
        terms = [toward_zero(x * y, step) for x, y in pairs] + [toward_zero(total, step)]
        total = as_float32_toward_zero(sum(terms, Fraction(0)))
    return float(total)


@pytest.mark.parametrize("unit", ["volta", "ampere", "hopper"])
def test_a_tensor_core_adds_truncated_blocks(unit: str) -> None:
    row = table().units[unit]
    rng = np.random.default_rng(3)
    for kind in (np.float16, BF16):
        left = (rng.standard_normal((40, 3)) * 2.0 ** rng.integers(-6, 6, (40, 3))).astype(kind)
        right = rng.standard_normal((40, 2)).astype(kind)
        start = rng.standard_normal((3, 2)).astype(np.float32)
        left[5], right[16:33] = 0, 0
        got = taken.blocks(start, wide(left), wide(right), row.products, row)
        wanted = [
            [
                tensor_core(left[:, m], right[:, n], row.products, row.extra_bits, float(start[m, n]))
                for n in range(2)
            ]
            for m in range(3)
        ]
        assert got.tolist() == wanted


def test_the_figures_of_the_paper_on_tensor_cores() -> None:
    """Four products of 2**-24 beside 1: lost one by one on Volta, kept by Ampere's one more bit, and cut off odd."""
    ones = np.ones((4, 1))
    small = np.full((4, 1), 2.0**-24)
    start = np.ones((1, 1))
    volta, ampere = table().units["volta"], table().units["ampere"]
    assert taken.blocks(start, ones, small, 4, volta).item() == 1.0
    assert taken.blocks(start, ones, small, 4, ampere).item() == 1 + 2.0**-22
    three = small.copy()
    three[3] = 0
    assert taken.blocks(start, ones, three, 4, ampere).item() == 1 + 2.0**-23  # to nearest it were 1 + 2**-22
    assert taken.blocks(-start, -ones, three, 4, ampere).item() == -1 - 2.0**-23
    # the products of a block are added in no order, those of two blocks are
    assert taken.blocks(None, ones, np.array([[2.0**24], [1], [1], [-(2.0**24)]]), 4, ampere).item() == 2.0
    assert (
        taken.blocks(None, np.ones((5, 1)), np.array([[2.0**26], [1], [1], [0], [-(2.0**26)]]), 4, ampere)
        == 0.0
    )


def rounded32(value: Fraction) -> Fraction:
    """To nearest even, for numbers of the normal range."""
    if not value:
        return value
    step = Fraction(2) ** (exponent(value) - 23)
    return step * round(value / step)


def test_a_chain_of_fused_multiply_adds_rounds_once_a_product() -> None:
    left, right = drawn(50, 2, seed=1), drawn(50, 2, seed=2)
    got = taken.fma_chain(None, left, right)
    for m in range(2):
        for n in range(2):
            total = Fraction(0)
            for x, y in zip(left[:, m], right[:, n], strict=True):
                total = rounded32(total + Fraction(float(x)) * Fraction(float(y)))
            assert got[m, n] == float(total)


def test_a_column_rounds_products_and_sums_and_psum_adds_it() -> None:
    left, right, start = drawn(50, 2, seed=1), drawn(50, 2, seed=2), drawn(2, 2, seed=3)
    got = taken.columns(start, left, right)
    for m in range(2):
        for n in range(2):
            total = np.float32(0)
            for x, y in zip(left[:, m], right[:, n], strict=True):
                total = np.float32(total + np.float32(x * y))
            assert got[m, n] == np.float32(start[m, n] + total)


@pytest.mark.parametrize("count", [1, 2, 5, 256, 300, 1000])
def test_a_tree_sums_strides_and_then_halves(count: int) -> None:
    terms = drawn(2, count, seed=count)
    for row, got in zip(terms, taken.tree(terms), strict=True):
        threads = [np.float32(0)] * min(256, 2 ** math.ceil(math.log2(count)))
        for at, term in enumerate(row):
            threads[at % len(threads)] = np.float32(threads[at % len(threads)] + term)
        while len(threads) > 1:
            half = len(threads) // 2
            threads = [np.float32(threads[at] + threads[at + half]) for at in range(half)]
        assert got == threads[0]


def test_a_stream_adds_one_after_the_other() -> None:
    terms = np.array([[2.0**24, 1, 1, 1]], np.float32)
    assert taken.stream(terms).tolist() == [2.0**24]
    assert taken.tree(terms).tolist() == [2.0**24 + 2]


def test_what_is_cut_off_goes_toward_zero_and_overflows() -> None:
    values = np.array([1 + 2.0**-24, -1 - 2.0**-23 - 2.0**-30, 2.0**128, -np.inf, 0.0])
    assert taken.cut(values).tolist() == [1.0, -1 - 2.0**-23, np.inf, -np.inf, 0.0]
    assert np.isnan(taken.cut(np.array([np.nan]))).all()


# matmuls, against documented figures


@pytest.mark.parametrize("where", ["trn1", "trn2", "trn3", "gpu-tensor-bf16", "gpu-fp32"])
def test_a_bf16_matmul_is_one_output_ulp_from_float64_of_the_same_inputs_flat_in_k(where: str) -> None:
    found = []
    for terms in (64, 512, 2048):
        left, right = drawn(terms, 64, seed=terms).astype(BF16), drawn(terms, 96, seed=1).astype(BF16)
        kernel = matmul(left, right, "bfloat16")
        got, wanted = on(kernel, where)[0], wide(left).T @ wide(right)
        counted = np.abs(wanted) > 2.0**-6 * np.sqrt(np.mean(np.square(wanted), axis=1, keepdims=True))
        worst = float(np.max((np.abs(got - wanted) / np.abs(wanted))[counted]))
        # half a spacing of 8 bits is at most 2**-8 of the value, 3.9e-3; elements near zero cancelled
        assert 3.6e-3 < worst < 4.4e-3
        found.append(relative_l2(got, wanted))
    assert max(found) < 1.05 * min(found)


def test_products_of_16_bit_operands_are_exact() -> None:
    """One product in a sum is what float64 gives, to the last bit."""
    for kind in (np.float16, BF16):
        left, right = drawn(1, 100, seed=4).astype(kind), drawn(1, 100, seed=5).astype(kind)
        for where in ("gpu-fp32", "gpu-tf32", "gpu-tensor-fp16", "gpu-tensor-bf16", "trn2"):
            if kind is np.float16 and where == "gpu-tensor-bf16":
                continue  # which rounds float16 operands to fewer bits
            assert np.array_equal(on(matmul(left, right), where)[0], wide(left).T @ wide(right)), where


def to_bits(values: Array, bits: int) -> Array:
    """Rounded to so many significant bits, written here by frexp alone."""
    fraction, at = np.frexp(wide(values))
    return np.ldexp(np.rint(np.ldexp(fraction, bits)), at - bits)


@pytest.mark.parametrize("terms", [64, 512, 2048])
def test_tf32_is_what_operands_of_eleven_bits_give(terms: int) -> None:
    left, right = drawn(terms, 48, seed=terms), drawn(terms, 64, seed=1)
    exact = wide(left).T @ wide(right)
    by_hand = relative_l2(to_bits(left, 11).T @ to_bits(right, 11), exact)
    found = relative_l2(on(matmul(left, right), "gpu-tf32")[0], exact)
    assert 2.0**-12 < by_hand < 2.0**-11
    assert found == pytest.approx(by_hand, rel=0.01)


def test_a_plain_bf16_cast_of_float32_inputs_is_off_by_2_35e_3() -> None:
    left, right = drawn(1024, 96, seed=1), drawn(1024, 128, seed=2)
    exact = wide(left).T @ wide(right)
    assert relative_l2(to_bits(left, 8).T @ to_bits(right, 8), exact) == pytest.approx(2.35e-3, rel=0.03)
    kernel = split_matmul(left, right, products=1)
    for where in ("trn2", "gpu-fp32"):
        assert relative_l2(on(kernel, where)[0], exact) == pytest.approx(2.35e-3, rel=0.03)
    assert relative_l2(on(matmul(left, right), "gpu-tensor-bf16")[0], exact) == pytest.approx(
        2.35e-3, rel=0.03
    )


def split_matmul(left: Array, right: Array, products: int) -> Kernel:
    """float32 operands as bfloat16 numbers and their bfloat16 rests; one or three of the four products are added."""
    kernel = Kernel()
    one, other = kernel.argument(left), kernel.argument(right)
    total = kernel.psum(left.shape[1], right.shape[1])
    for at in range(0, len(left), 128):
        parts = []
        for whole in (one, other):
            shape = (128, whole.shape[1])
            tile, rest = kernel.sbuf(*shape), kernel.sbuf(*shape)
            high, low = kernel.sbuf(*shape, dtype="bfloat16"), kernel.sbuf(*shape, dtype="bfloat16")
            kernel.copy(tile, whole[at : at + 128])
            kernel.copy(high, tile)
            kernel.call("tensor_tensor", dst=rest, data1=tile, data2=high, op="subtract")
            kernel.copy(low, rest)
            parts.append((high, low))
        (high, low), (other_high, other_low) = parts
        pairs = [(high, other_high), (high, other_low), (low, other_high)]
        for stationary, moving in pairs[:products]:
            kernel.matmul(total, stationary, moving)
    result = kernel.sbuf(*total.shape)
    kernel.copy(result, total)
    kernel.store(result)
    return kernel


@pytest.mark.parametrize("where", ["trn1", "trn2", "trn3", "gpu-fp32"])
def test_a_bf16_split_of_three_products_is_off_by_4_45e_6(where: str) -> None:
    left, right = drawn(1024, 96, seed=1), drawn(1024, 128, seed=2)
    exact = wide(left).T @ wide(right)
    found = relative_l2(on(split_matmul(left, right, products=3), where)[0], exact)
    assert found == pytest.approx(4.45e-6, rel=0.05)


def test_truncation_costs_a_split_on_tensor_cores_a_part_of_what_it_gains() -> None:
    """As Ootomo and Yokota (2022) found, who therefore add up outside of the tensor core."""
    left, right = drawn(1024, 96, seed=1), drawn(1024, 128, seed=2)
    exact = wide(left).T @ wide(right)
    assert 5e-6 < relative_l2(on(split_matmul(left, right, products=3), "gpu-tensor-bf16")[0], exact) < 1e-5


def test_a_float32_matmul_on_trainium_is_of_the_class_that_was_measured() -> None:
    """1.83e-7 at K = 64 and 3.99e-7 at K = 2048 on trn2, of which a factor of two is the data's and the order's."""
    for terms, measured in ((64, 1.83e-7), (2048, 3.99e-7)):
        left, right = drawn(terms, 64, seed=1), drawn(terms, 96, seed=2)
        found = relative_l2(on(matmul(left, right), "trn2")[0], wide(left).T @ wide(right))
        assert measured / 2 < found < measured * 2


def test_truncation_pulls_a_sum_of_positive_products_down_and_rounding_does_not() -> None:
    left, right = np.abs(drawn(2048, 32, seed=1)).astype(BF16), np.abs(drawn(2048, 32, seed=2)).astype(BF16)
    exact = wide(left).T @ wide(right)
    bias = {
        where: float(np.mean(on(matmul(left, right), where)[0] / exact - 1))
        for where in ("gpu-tensor-bf16", "trn2")
    }
    # half a spacing for each of 256 blocks and their operands, and no such drift to nearest even
    assert bias["gpu-tensor-bf16"] < -20 * 2.0**-24
    assert abs(bias["trn2"]) < 2 * 2.0**-24


def test_a_psum_that_is_added_to_by_a_matmul_after_a_memset_is_overwritten() -> None:
    kernel = Kernel()
    left, right = drawn(8, 4, seed=1), drawn(8, 6, seed=2)
    total = kernel.psum(4, 6)
    kernel.call("memset", dst=total, value=0.1)
    kernel.matmul(total, kernel.load(left), kernel.load(right))
    kernel.store(total)
    for where in ("trn2", "gpu-fp32", "gpu-tf32"):
        assert relative_l2(on(kernel, where)[0], wide(left).T @ wide(right)) < 1e-3


# functions


def activation(values: Array, op: str, **given: Any) -> Kernel:
    kernel = Kernel()
    source = kernel.load(values)
    result = kernel.sbuf(*values.shape)
    for name in ("bias", "scale"):
        if isinstance(given.get(name), np.ndarray):
            given[name] = kernel.load(given[name])
    kernel.call("activation", dst=result, data=source, op=op, **given)
    kernel.store(result)
    return kernel


def ulps_off(got: Array, exact: Array) -> Array:
    return np.asarray(np.abs(got - exact) / np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64))


def test_expf_and_the_fast_one_stay_within_their_documented_ulps_and_use_them() -> None:
    values = np.random.default_rng(0).uniform(-80, 80, (64, 512)).astype(np.float32)
    exact = np.exp(wide(values))
    fast = 2 + np.floor(np.abs(1.16 * wide(values)))
    share: dict[str, list[float]] = {"gpu-fp32": [], "gpu-fast-math": []}
    for seed in range(3):
        for where, bound in (("gpu-fp32", np.full(values.shape, 2.0)), ("gpu-fast-math", fast)):
            off = ulps_off(on(activation(values, "exp"), where, seed)[0], exact)
            # the bound is of the difference from the correctly rounded result
            assert (off <= bound + 0.5001).all()
            share[where].append(float((off / (bound + 0.5)).max()))
    assert min(share["gpu-fp32"] + share["gpu-fast-math"]) > 0.9


@pytest.mark.parametrize(
    ("op", "function", "ulps"),
    [
        ("log", np.log, 1.0),
        ("tanh", np.tanh, 2.0),
        ("erf", special.erf, 2.0),
        ("rsqrt", lambda x: 1 / np.sqrt(x), 2.0),
        ("sqrt", np.sqrt, 0.0),
        ("reciprocal", np.reciprocal, 0.0),
        ("silu", lambda x: x * special.expit(x), 3.0),
    ],
)
def test_standard_functions_stay_within_their_ulps(
    op: str, function: Callable[[Array], Array], ulps: float
) -> None:
    values = np.random.default_rng(1).uniform(0.01, 5, (16, 512)).astype(np.float32)
    off = ulps_off(on(activation(values, op), "gpu-fp32")[0], function(wide(values)))
    assert off.max() <= ulps + 0.5001
    assert off.max() > 0.8 * (ulps + 0.5)


def test_the_fast_logarithm_is_off_by_an_absolute_error_near_one() -> None:
    values = np.random.default_rng(2).uniform(0.5, 2, (16, 512)).astype(np.float32)
    off = np.abs(on(activation(values, "log"), "gpu-fast-math")[0] - np.log(wide(values)))
    assert 0.9 * 2**-21.41 < off.max() < 2**-21.41 + 2.0**-25
    values = np.random.default_rng(2).uniform(2.1, 50, (16, 512)).astype(np.float32)
    off = ulps_off(on(activation(values, "log"), "gpu-fast-math")[0], np.log(wide(values)))
    assert 2 < off.max() <= 3.5001


def test_gelu_cancels_for_negative_arguments_on_a_gpu() -> None:
    """x / 2 * (1 + erff(x / sqrt 2)) in float32, by hand, is as far off there as the bound says, and no further."""
    values = np.linspace(-5, -2, 4096, dtype=np.float32).reshape(8, 512)
    exact = wide(values) * special.ndtr(wide(values))
    half, root = np.float32(0.5), np.float32(math.sqrt(0.5))
    one = np.float32(1) + special.erf((values * root).astype(np.float32)).astype(np.float32)
    by_hand = np.abs(half * values * one - exact).max()
    found = np.abs(on(activation(values, "gelu"), "gpu-fp32")[0] - exact).max()
    assert by_hand <= found * 1.5 and found <= 8 * by_hand


def test_trainium_functions_are_off_by_the_placeholder_band() -> None:
    values = np.random.default_rng(3).uniform(0.5, 5, (16, 512)).astype(np.float32)
    for op, function in (
        ("exp", np.exp),
        ("rsqrt", lambda x: 1 / np.sqrt(x)),
        ("gelu", lambda x: x * special.ndtr(x)),
    ):
        exact = function(wide(values))
        off = np.abs(on(activation(values, op), "trn2")[0] / exact - 1)
        assert 1.4e-5 < off.max() < 1.5e-5 + 2.0**-24
        better = platform("trn2").with_function("scalar", relative=1e-6, source="a test")
        assert np.abs(on(activation(values, op), better)[0] / exact - 1).max() < 1e-6 + 2.0**-24
    assert ulps_off(on(activation(values, "relu"), "trn2")[0], wide(values)).max() == 0


def test_equal_inputs_get_equal_results_and_seeds_are_implementations() -> None:
    values = np.tile(drawn(1, 37, seed=1), (5, 3))
    for where in ("gpu-fp32", "gpu-fast-math", "trn2"):
        got = on(activation(values, "exp"), where)[0]
        assert np.array_equal(got, np.tile(got[:1, :37], (5, 3)))
        assert np.array_equal(got, on(activation(values, "exp"), where)[0])
        assert not np.array_equal(got, on(activation(values, "exp"), where, seed=1)[0])


def test_the_argument_of_a_function_is_rounded_to_float32() -> None:
    """exp(x * scale + bias) with a large argument: half a spacing of the argument is a large error of the result."""
    values = np.random.default_rng(4).uniform(30, 60, (16, 256)).astype(np.float32)
    bias = np.full((16, 1), 0.7, np.float32)
    one = replace(platform("gpu-fp32"), scalar={})
    two = replace(one, contraction=False)
    kernel = activation(values, "exp", scale=1.1, bias=bias)
    scale = float(np.float32(1.1))
    fused = (wide(values) * scale + wide(bias)).astype(np.float32)
    apart = ((wide(values) * scale).astype(np.float32) + bias).astype(np.float32)
    assert not np.array_equal(fused, apart)
    assert np.array_equal(on(kernel, one)[0], np.exp(wide(fused)).astype(np.float32))
    assert np.array_equal(on(kernel, two)[0], np.exp(wide(apart)).astype(np.float32))


# contraction, subnormals, other instructions


def multiply_add(values: Array, factor: float, term: float) -> Kernel:
    kernel = Kernel()
    source = kernel.load(values)
    result = kernel.sbuf(*values.shape)
    kernel.call(
        "tensor_scalar", dst=result, data=source, op0="multiply", operand0=factor, op1="add", operand1=term
    )
    kernel.store(result)
    return kernel


def test_a_gpu_contracts_a_product_that_is_added_on_and_trainium_does_not() -> None:
    """(1 + 2**-12)**2 - (1 + 2**-11) is 2**-24 exactly, and 0 if the product is rounded."""
    values = np.full((2, 4), 1 + 2.0**-12, np.float32)
    kernel = multiply_add(values, 1 + 2.0**-12, -(1 + 2.0**-11))
    assert (on(kernel, "gpu-fp32")[0] == 2.0**-24).all()
    assert (on(kernel, "trn2")[0] == 0).all()


def test_an_operand_that_is_moved_to_round_an_intermediate_keeps_its_own_value() -> None:
    values = drawn(4, 32, seed=5)
    kernel = Kernel()
    source = kernel.load(values)
    kernel.call(
        "tensor_scalar",
        dst=half(source, 0),
        data=half(source, 1),
        op0="multiply",
        operand0=1.1,
        op1="add",
        operand1=0.3,
    )
    kernel.store(source)
    got = on(kernel, "trn2")[0]
    assert np.array_equal(got[:, 16:], wide(values[:, 16:]))
    wanted = values[:, 16:] * np.float32(1.1) + np.float32(0.3)
    assert np.array_equal(got[:, :16], wanted)


def half(view: View, which: int) -> View:
    return view[slice(0, view.shape[0]), slice(16 * which, 16 * which + 16)]


def test_subnormals_are_flushed_where_fast_math_is_asked_for() -> None:
    values = np.array([[1e-20, -1e-20, 1.0]], np.float32)
    kernel = multiply_add(values, 1e-20, 0.0)
    kept = on(kernel, "gpu-fp32")[0]
    assert (kept != 0).all() and abs(kept[0, 0]) < np.finfo(np.float32).tiny
    assert on(kernel, "gpu-fast-math")[0].tolist() == [[0.0, -0.0, float(np.float32(1e-20))]]
    assert np.array_equal(on(kernel, "trn2")[0], kept)


def test_sums_along_a_row_are_a_tree_on_a_gpu_and_a_stream_on_trainium() -> None:
    values = drawn(3, 700, seed=6)
    kernel = Kernel()
    total = kernel.sbuf(3, 1)
    kernel.call("tensor_reduce", dst=total, op="add", data=kernel.load(values), axis=1)
    kernel.store(total)
    sequential = np.cumsum(values, axis=1, dtype=np.float32)[:, -1]
    assert np.array_equal(on(kernel, "trn2")[0][:, 0], sequential)
    assert np.array_equal(on(kernel, "gpu-fp32")[0][:, 0], taken.tree(values))
    assert not np.array_equal(taken.tree(values), sequential)


def test_the_sum_of_what_an_activation_gives_is_taken_before_its_tile_rounds() -> None:
    values = drawn(3, 300, seed=7)
    kernel = Kernel()
    result, total = kernel.sbuf(3, 300, dtype="bfloat16"), kernel.sbuf(3, 1)
    given = {"op": "square", "reduce_op": "add", "reduce_res": total}
    kernel.call("activation_reduce", dst=result, data=kernel.load(values), **given)
    kernel.store(result)
    kernel.store(total)
    squares, sums_ = on(kernel, "trn2")
    wanted = np.square(values)
    assert np.array_equal(squares, wide(wanted.astype(BF16)))
    assert np.array_equal(sums_[:, 0], np.cumsum(wanted, axis=1, dtype=np.float32)[:, -1])


def test_statistics_are_means_and_squared_deviations_in_float32() -> None:
    values = drawn(3, 400, seed=8) + np.float32(50)
    kernel = Kernel()
    result = kernel.sbuf(3, 6)
    kernel.call("bn_stats", dst=result, data=kernel.load(values))
    kernel.store(result)
    got = on(kernel, "trn2")[0]
    for at, part in ((0, values[:, 0::2]), (3, values[:, 1::2])):
        mean = np.cumsum(part, axis=1, dtype=np.float32)[:, -1] / np.float32(part.shape[1])
        squares = np.square(part - mean[:, None])
        assert (got[:, at] == part.shape[1]).all()
        assert np.array_equal(got[:, at + 1], mean)
        assert np.array_equal(got[:, at + 2], np.cumsum(squares, axis=1, dtype=np.float32)[:, -1])


def test_a_scan_rounds_each_state() -> None:
    left, right = drawn(2, 60, seed=9), drawn(2, 60, seed=10)
    kernel = Kernel()
    result = kernel.sbuf(2, 60)
    given = {"initial": 0.5, "op0": "multiply", "op1": "add"}
    kernel.call("tensor_tensor_scan", dst=result, data0=kernel.load(left), data1=kernel.load(right), **given)
    kernel.store(result)
    apart, fused = np.full(2, 0.5, np.float32), np.full(2, 0.5, np.float32)
    got, contracted = on(kernel, "trn2")[0], on(kernel, "gpu-fp32")[0]
    for at in range(60):
        apart = (left[:, at] * apart) + right[:, at]
        fused = (wide(left[:, at]) * wide(fused) + wide(right[:, at])).astype(np.float32)
        assert np.array_equal(got[:, at], apart)
        assert np.array_equal(contracted[:, at], fused)


def test_constants_are_rounded_to_their_tiles() -> None:
    kernel = Kernel()
    tile = kernel.sbuf(2, 4, dtype="bfloat16")
    kernel.call("memset", dst=tile, value=0.1)
    kernel.store(tile)
    assert (on(kernel, "trn2-stochastic")[0] == float(BF16(0.1))).all()


# stochastic rounding


def cast(values: Array, dtype: str) -> Kernel:
    kernel = Kernel()
    tile = kernel.sbuf(*values.shape, dtype=dtype)
    kernel.copy(tile, kernel.load(values))
    kernel.store(tile)
    return kernel


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float8_e4m3", "tfloat32"])
def test_stochastic_rounding_goes_to_a_neighbour_and_has_no_bias(dtype: str) -> None:
    held = {"bfloat16": 8, "float16": 11, "float8_e4m3": 4, "tfloat32": 11}[dtype]
    values = np.full((128, 512), 1 + 0.3 * 2.0 ** (1 - held), np.float32)
    got = on(cast(values, dtype), "trn2-stochastic")[0]
    step = 2.0 ** (1 - held)
    assert set(np.unique(got)) == {1.0, 1 + step}
    share = float(np.mean(got > 1))
    assert abs(share - 0.3) < 5 * math.sqrt(0.3 * 0.7 / got.size)
    error = got - wide(values)
    assert abs(error.mean()) < 5 * error.std() / math.sqrt(error.size)
    # to nearest even all of these go down
    assert (on(cast(values, dtype), "trn2")[0] == 1).all()


def test_stochastic_rounding_of_random_numbers_is_seeded_and_unbiased() -> None:
    values = drawn(128, 512, seed=11)
    first, again, other = (on(cast(values, "bfloat16"), "trn1-stochastic", seed)[0] for seed in (0, 0, 1))
    assert np.array_equal(first, again) and not np.array_equal(first, other)
    spacing = 2.0 ** (np.floor(np.log2(np.abs(wide(values)))) - 7)
    error = (first - wide(values)) / spacing
    assert np.abs(error).max() < 1
    assert abs(error.mean()) < 5 * error.std() / math.sqrt(error.size)
    kept = values.astype(BF16).astype(np.float32)
    assert np.array_equal(on(cast(kept, "bfloat16"), "trn3-stochastic")[0], wide(kept))


def test_stochastic_rounding_past_the_largest_number_overflows() -> None:
    values = np.array([[np.inf, -np.inf, 3.4e38, 0.0]], np.float32)
    got = on(cast(values, "float16"), "trn2-stochastic")[0]
    assert got.tolist() == [[np.inf, -np.inf, np.inf, 0.0]]


# the spread


def softmax(values: Array, out: str = "float32") -> Kernel:
    kernel = Kernel()
    source = kernel.load(values)
    lanes, count = values.shape
    shift, total, factor = kernel.sbuf(lanes, 1), kernel.sbuf(lanes, 1), kernel.sbuf(lanes, 1)
    kernel.call("tensor_reduce", dst=shift, op="maximum", data=source, axis=1, negate=True)
    powers = kernel.sbuf(lanes, count)
    given = {"op": "exp", "bias": shift, "scale": 1.0, "reduce_op": "add", "reduce_res": total}
    kernel.call("activation_reduce", dst=powers, data=source, **given)
    kernel.call("reciprocal", dst=factor, data=total)
    result = kernel.sbuf(lanes, count, dtype=out)
    kernel.call("tensor_scalar", dst=result, data=powers, op0="multiply", operand0=factor)
    kernel.store(result)
    return kernel


def layer_norm(values: Array, out: str = "float32") -> Kernel:
    kernel = Kernel()
    source = kernel.load(values)
    lanes, count = values.shape
    parts, moments = kernel.sbuf(lanes, 6), kernel.sbuf(lanes, 2)
    kernel.call("bn_stats", dst=parts, data=source)
    kernel.call("bn_aggr", dst=moments, data=parts)
    factor = kernel.sbuf(lanes, 1)
    eps = kernel.sbuf(lanes, 1)
    kernel.call("memset", dst=eps, value=1e-5)
    variance = moments[slice(0, lanes), slice(1, 2)]
    kernel.call("activation", dst=factor, data=variance, op="rsqrt", bias=eps, scale=1.0)
    result = kernel.sbuf(lanes, count, dtype=out)
    mean = moments[slice(0, lanes), slice(0, 1)]
    given = {"op0": "subtract", "operand0": mean, "op1": "multiply", "operand1": factor}
    kernel.call("tensor_scalar", dst=result, data=source, **given)
    kernel.store(result)
    return kernel


KERNELS: dict[str, Callable[[], Kernel]] = {
    "matmul float32": lambda: matmul(drawn(300, 32, seed=1), drawn(300, 64, seed=2)),
    "matmul bfloat16": lambda: matmul(
        drawn(300, 32, seed=1).astype(BF16), drawn(300, 64, seed=2).astype(BF16), "bfloat16"
    ),
    "softmax float32": lambda: softmax(drawn(32, 300, seed=3) * 4),
    "softmax bfloat16": lambda: softmax(drawn(32, 300, seed=3) * 4, "bfloat16"),
    "peaked softmax float32": lambda: softmax(drawn(32, 300, seed=3) * 40),
    "gelu float32": lambda: activation(drawn(32, 300, seed=5) * 2, "gelu"),
    "layer norm float32": lambda: layer_norm(drawn(32, 300, seed=4) + 3),
    "layer norm float16": lambda: layer_norm(drawn(32, 300, seed=4) + 3, "float16"),
}


@pytest.mark.parametrize("name", KERNELS)
def test_no_pair_of_platforms_differs_by_more_than_is_allowed_and_seeds_not_seen_stay_within(
    name: str,
) -> None:
    kernel = KERNELS[name]()
    program = kernel.program()
    names = [*GPU, "trn2", "trn2-stochastic"]
    found = spread_of(kernel, *names).outputs[0]
    assert len(found.pairs) == len(names) * (len(names) - 1) // 2
    for pair in found.pairs:
        assert (np.abs(pair.first.values - pair.second.values) <= pair.allowed).all(), pair.sentence
        # and an allowance that is of use: at most ten times the largest difference
        with np.errstate(invalid="ignore"):
            used = np.nanmax(np.abs(pair.first.values - pair.second.values) / pair.allowed)
        sides = {pair.first.platform, pair.second.platform}
        if found.dtype == "float32" and "trn2" in sides and "trn2-stochastic" not in sides:
            assert used > 0.1, pair.sentence
    kinds = Kinds.of_program(program)
    for row in found.platforms:
        for seed in (77, 78, 79):
            around = Arithmetic(kinds, platform(row.platform), seed)
            ran = execute(program, kernel.arguments, compute=np.float64, rounding="off", around=around)
            assert (np.abs(ran.outputs[0].values - found.exact) <= row.band).all(), (row.platform, seed)


@pytest.mark.parametrize("name", KERNELS)
def test_the_exact_run_is_float64_and_errors_are_counted_against_it(name: str) -> None:
    found = spread_of(KERNELS[name](), "trn2").outputs[0]
    exact, row = found.exact, found.platforms[0]
    off = row.values - exact
    by_row = np.sqrt(np.mean(np.square(exact), axis=1, keepdims=True))
    assert row.error.max_relative >= float((np.abs(off) / by_row).max()) * (1 - 1e-12)
    assert row.error.rms_relative >= float(np.sqrt(np.mean(np.square(off / by_row)))) * (1 - 1e-12)
    assert (
        row.error.rms_relative < 1.5e-5 if found.dtype == "float32" else 0.0 < row.error.rms_relative < 4e-3
    )


def test_the_sentence_asks_for_a_ratio_where_platforms_are_of_one_class() -> None:
    pair = spread_of(KERNELS["softmax bfloat16"](), "gpu-fp32", "trn2").outputs[0].pair("trn2", "gpu-fp32")
    assert pair.comparable and 0.9 < pair.ratio < 1.1
    wanted = (
        r"out: compare gpu-fp32 and trn2 each with the float64 reference and ask for a ratio of errors of at most 2; "
        r"compared with each other, they may differ by up to \d\.\de-\d\d of their row's rms \(\d\.\d ulps\)"
    )
    assert re.fullmatch(wanted, pair.sentence)
    assert 1 <= pair.allowed_ulps < 1.2  # each may round to the other neighbour


def test_the_sentence_does_not_ask_tf32_for_what_float32_gives() -> None:
    pair = spread_of(KERNELS["matmul float32"](), "gpu-tf32", "trn2").outputs[0].pairs[0]
    assert not pair.comparable
    wanted = (
        r"out: compare gpu-tf32 and trn2 each with the float64 reference; the errors of gpu-tf32 are \d{3,4} times "
        r"those of trn2 by its arithmetic alone, so ask trn2 for at most 2 times those of gpu-tf32, "
        r"and gpu-tf32 for its own band; "
        r"compared with each other, they may differ by up to \d\.\de-0[34] of their row's rms \(\d+\.\d ulps\)"
    )
    assert re.fullmatch(wanted, pair.sentence)


def test_the_sentence_says_where_it_rests_on_an_assumed_accuracy() -> None:
    pair = spread_of(KERNELS["softmax float32"](), "gpu-fp32", "trn2").outputs[0].pairs[0]
    assert pair.second.assumed and not pair.first.assumed
    wanted = (
        r"the errors of trn2 are \d+ times those of gpu-fp32 if its functions are as exact as is assumed, "
        r"which is unpublished, so ask gpu-fp32 for at most 2 times those of trn2, and trn2 for its own band;"
    )
    assert re.search(wanted, pair.sentence)


def test_what_is_only_moved_must_be_equal() -> None:
    kernel = Kernel()
    kernel.store(kernel.load(drawn(4, 8)))
    found = spread_of(kernel, "gpu-fp32", "trn2")
    pair = found.outputs[0].pairs[0]
    assert not pair.allowed.any()
    assert pair.sentence == "out: gpu-fp32 and trn2 give the same numbers; ask for equality"


def test_integers_may_differ_where_rounding_decides() -> None:
    kernel = Kernel()
    source = kernel.load(np.linspace(0.05, 3, 512, dtype=np.float32).reshape(1, 512))
    result = kernel.sbuf(1, 512, dtype="int32")
    scaled = kernel.sbuf(1, 512)
    kernel.call("activation", dst=scaled, data=source, op="exp", scale=1.0)
    kernel.call("tensor_scalar", dst=result, data=scaled, op0="multiply", operand0=1e4)
    kernel.store(result)
    found = spread_of(kernel, "gpu-fp32", "trn2").outputs[0]
    assert found.dtype == "int32"
    differing = found.platforms[1].differing
    assert 10 < differing < 512
    pair = found.pairs[0]
    assert (np.abs(pair.first.values - pair.second.values) <= pair.allowed).all()
    assert pair.sentence.startswith(
        f"out: up to {differing} of 512 elements are rounded the other way; compared with"
    )
    kernel = Kernel()
    kernel.store(kernel.load(np.arange(12, dtype=np.int32).reshape(3, 4)))
    assert "ask for equality" in spread_of(kernel, "gpu-fp32", "trn2").outputs[0].pairs[0].sentence


def test_operands_past_the_range_of_float16_are_named() -> None:
    left, right = drawn(16, 4, seed=1), drawn(16, 6, seed=2)
    left[3, 2] = 1e5
    found = spread_of(matmul(left, right), "gpu-tensor-fp16", "trn2").outputs[0]
    assert found.platforms[0].nonfinite == 6 and found.platforms[1].nonfinite == 0
    sentence = found.pairs[0].sentence
    assert sentence == (
        "out: 6 elements are not finite on gpu-tensor-fp16, though finite in exact arithmetic; "
        "no tolerance compares that"
    )


def test_holes_name_what_the_figures_rest_on_and_only_what_is_used() -> None:
    lines = spread_of(KERNELS["softmax float32"](), "gpu-fp32", "trn2").holes
    assert any(
        line.startswith("trn2: exp is off by up to 1.5e-05 of the value (accuracy of the") for line in lines
    )
    assert any(line.startswith("trn2: reciprocal is off by up to 2 ulps") for line in lines)
    assert any(line.startswith("trn2: a reduction along the free axis adds in the order") for line in lines)
    assert not any("column" in line or "chain" in line for line in lines)
    known = platform("trn2").with_function("scalar", relative=1e-6, source="measured")
    lines = spread_of(KERNELS["softmax float32"](), known).holes
    assert not any("exp is off" in line for line in lines)


def test_a_band_follows_the_placeholder_it_rests_on() -> None:
    kernel = KERNELS["softmax float32"]()
    finer = replace(platform("trn2").with_function("scalar", relative=1.5e-6, source="a test"), name="finer")
    wide_, narrow = (row.band for row in spread_of(kernel, "trn2", finer).outputs[0].platforms)
    assert 5 < float(np.median(wide_ / narrow)) < 11


def test_a_spread_without_platforms_or_with_one_twice_gets_one_sentence() -> None:
    kernel = KERNELS["matmul float32"]()
    with pytest.raises(ValueError, match="platforms and seeds are needed"):
        spread_of(kernel)
    with pytest.raises(ValueError, match="expected each once, give a changed one another name"):
        spread_of(kernel, "trn2", "trn2")
    with pytest.raises(ValueError, match="was not compared on trn1 and trn2: expected two of trn2, trn3"):
        spread_of(kernel, "trn2", "trn3").outputs[0].pair("trn1", "trn2")

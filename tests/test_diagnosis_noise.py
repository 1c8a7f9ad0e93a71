"""Noise against rounding itself: spreads measured on real roundings, partial sums by brute force."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from execute_kit import Kernel, View
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from nkireview.diagnosis.arithmetic import works
from nkireview.diagnosis.noise import FLOAT32, Granted, Noise, partial_sums
from nkireview.execute import execute
from nkireview.isa import dtypes
from nkireview.isa.table import ROWS

Array = NDArray[Any]
Float64 = NDArray[np.float64]

NONE = Granted()
NARROW = ("bfloat16", "float16", "float32")


def sampled(kernel: Kernel, seeds: int, granted: Granted = NONE, every: int = 1) -> tuple[Float64, Float64]:
    """The first output without rounding, and with the noise of each seed along the first axis."""
    program = kernel.program()
    kinds, of = works(program, ROWS)

    def run(around: Noise | None) -> Float64:
        found = execute(program, kernel.arguments, compute=np.float64, rounding="off", around=around)
        assert not found.faults, [fault.message for fault in found.faults]
        return np.asarray(found.outputs[0].values, np.float64)

    return run(None), np.stack([run(Noise(kinds, of, granted, seed, every)) for seed in range(seeds)])


def thirds(kernel: Kernel, values: Array, dtype: str) -> View:
    """A tile of that dtype that holds a third of the values, rounded in one store."""
    tile = kernel.sbuf(*values.shape, dtype=dtype)
    kernel.call("tensor_scalar", dst=tile, data=kernel.load(values), op0="multiply", operand0=1 / 3)
    return tile


def spread_out(rows: int, columns: int, seed: int = 0) -> Array:
    """Numbers whose logarithms are uniform over four octaves, of both signs."""
    generator = np.random.default_rng(seed)
    size = 2.0 ** generator.uniform(-2, 2, (rows, columns))
    return (size * generator.choice([-1, 1], size.shape)).astype(np.float32)


def rms(values: Array) -> float:
    return float(np.sqrt(np.mean(np.square(values.astype(np.float64)))))


def random_orders(terms: Float64, start: float, orders: int, seed: int) -> Float64:
    """The partial sums of many random orders, one in each row; the start is none of them."""
    generator = np.random.default_rng(seed)
    drawn = generator.permuted(np.broadcast_to(terms, (orders, len(terms))), axis=1)
    return np.asarray(start + np.cumsum(drawn, axis=1))


@settings(max_examples=25, deadline=None)
@given(
    st.integers(24, 96), st.floats(-3, 3), st.floats(-20, 20), st.floats(0.05, 4), st.integers(0, 2**32 - 1)
)
def test_partial_sums_are_those_of_random_orders(
    count: int, mean: float, start: float, scale: float, seed: int
) -> None:
    terms = mean + scale * np.random.default_rng(seed).standard_normal(count)
    sums = np.square(random_orders(terms, start, 1500, seed)).sum(axis=1)
    squares = float(np.square(terms).sum())
    brute = float(sums.mean()) + squares
    drawn = 4.5 * float(sums.std()) / math.sqrt(len(sums))
    ends = start**2 + float(terms.sum() + start) ** 2
    found = float(partial_sums(start, np.float64(start + terms.sum()), np.float64(squares), count)) ** 2
    # integrals stand for sums over whole numbers: apart by half of each end, and one part in `count`
    assert abs(found - brute) <= drawn + ends / 2 + 1.5 * brute / count


def test_partial_sums_of_equal_terms_are_a_straight_line() -> None:
    count = 100
    steps = np.arange(1, count + 1.0)
    expected = np.square(7 + 3 * steps).sum() + 9 * count
    found = partial_sums(7.0, np.float64(307.0), np.float64(9.0 * count), count)
    assert float(found) ** 2 == pytest.approx(expected, rel=2 / count)


def test_the_error_of_a_sum_is_that_of_sums_in_float32_in_random_orders() -> None:
    """Matmuls of 128 products each, the second added to the first."""
    generator = np.random.default_rng(3)
    left, right = (generator.standard_normal((256, 24)).astype(np.float32) for _ in range(2))
    kernel = Kernel()
    total = kernel.psum(24, 24)
    for at in (0, 128):
        kernel.matmul(total, kernel.load(left[at : at + 128]), kernel.load(right[at : at + 128]))
    result = kernel.sbuf(24, 24)
    kernel.copy(result, total)
    kernel.store(result)
    exact, noisy = sampled(kernel, 40)
    real = []
    for seed in range(40):
        order = np.random.default_rng(seed).permutation(256)
        held = np.zeros((24, 24), np.float32)
        for row in order:
            held += left[row][:, None] * right[row]
        real.append(held - exact)
    np.testing.assert_allclose(exact, left.astype(np.float64).T @ right.astype(np.float64), rtol=1e-12)
    assert rms(noisy - exact) == pytest.approx(rms(np.stack(real)), rel=0.15)
    assert abs(float((noisy - exact).mean())) < 4 * rms(noisy - exact) / math.sqrt(noisy.size)


@pytest.mark.parametrize(("mean", "columns"), [(0.0, 512), (1.0, 512), (0.0, 96)])
def test_the_error_of_a_reduction_is_that_of_float32_sums_in_random_orders(mean: float, columns: int) -> None:
    values = (mean + np.random.default_rng(4).standard_normal((64, columns))).astype(np.float32)
    kernel = Kernel()
    total = kernel.sbuf(64, 1)
    kernel.call("tensor_reduce", dst=total, data=kernel.load(values), op="add", axis=(1,), keepdims=True)
    kernel.store(total)
    exact, noisy = sampled(kernel, 40)
    real = []
    for seed in range(40):
        order = np.random.default_rng(seed).permutation(columns)
        real.append(np.add.accumulate(values[:, order], axis=1)[:, -1:] - exact)
    assert rms(noisy - exact) == pytest.approx(rms(np.stack(real)), rel=0.2)


@pytest.mark.parametrize("dtype", NARROW)
def test_a_store_errs_as_rounding_does(dtype: str) -> None:
    values = spread_out(128, 128)
    kernel = Kernel()
    kernel.store(thirds(kernel, values, dtype))
    exact, noisy = sampled(kernel, 8)
    storage = dtypes.BY_NAME[dtype].storage
    real = (exact.astype(storage).astype(np.float64) - exact) / exact
    errors = (noisy - exact) / exact
    assert rms(errors) == pytest.approx(rms(real), rel=0.15)
    for sample in errors:
        assert rms(sample) == pytest.approx(rms(real), rel=0.15)


@pytest.mark.parametrize("dtype", NARROW)
def test_the_errors_of_one_number_have_no_mean(dtype: str) -> None:
    kernel = Kernel()
    kernel.store(thirds(kernel, spread_out(16, 16), dtype))
    exact, noisy = sampled(kernel, 150)
    errors = (noisy - exact) / exact
    mean, deviation = errors.mean(axis=0), errors.std(axis=0)
    assert (np.abs(mean) < 5 * deviation / math.sqrt(len(errors))).all()
    assert abs(float(mean.mean())) < 1.5 * rms(errors) / math.sqrt(errors.size)


@pytest.mark.parametrize("dtype", [*NARROW, "float8_e4m3", "float8_e5m2"])
def test_no_store_errs_by_more_than_its_unit_roundoff(dtype: str) -> None:
    kernel = Kernel()
    kernel.store(thirds(kernel, spread_out(128, 64), dtype))
    exact, noisy = sampled(kernel, 20)
    limit = dtypes.unit_roundoff(dtypes.BY_NAME[dtype])
    share = np.abs(noisy - exact) / np.abs(exact) / limit
    assert share.max() <= 1 + 1e-9
    assert share.max() > 0.85


def test_subnormal_numbers_err_by_a_spacing_at_most() -> None:
    values = (spread_out(32, 32) * 2.0**-20).astype(np.float32)
    kernel = Kernel()
    kernel.store(thirds(kernel, values, "float16"))
    exact, noisy = sampled(kernel, 20)
    spacing = float(np.finfo(np.float16).smallest_subnormal)
    assert rms(noisy - exact) == pytest.approx(spacing / math.sqrt(12) * 1.4, rel=0.2)
    assert np.abs(noisy - exact).max() <= spacing


@pytest.mark.parametrize("dtype", NARROW)
def test_equal_numbers_err_equally_in_one_sample(dtype: str) -> None:
    values = np.repeat(spread_out(8, 1), 16, axis=1)
    kernel = Kernel()
    kernel.store(thirds(kernel, values, dtype))
    _, noisy = sampled(kernel, 6)
    assert (noisy == noisy[:, :, :1]).all()
    assert len({float(sample[0, 0]) for sample in noisy}) == 6


def test_numbers_stay_equal_to_their_negatives() -> None:
    values = spread_out(8, 8)
    kernel = Kernel()
    kernel.store(thirds(kernel, np.concatenate([values, -values]), "bfloat16"))
    _, noisy = sampled(kernel, 4)
    np.testing.assert_array_equal(noisy[:, :8], -noisy[:, 8:])


def test_copies_and_choices_add_nothing() -> None:
    values = spread_out(64, 32).astype(dtypes.BY_NAME["bfloat16"].storage)
    kernel = Kernel()
    given = kernel.load(values)
    wide = kernel.sbuf(64, 32)
    kernel.copy(wide, given)
    largest = kernel.sbuf(64, 32, dtype="bfloat16")
    kernel.call("tensor_scalar", dst=largest, data=given, op0="maximum", operand0=0.25)
    both = kernel.sbuf(64, 32)
    kernel.call("tensor_tensor", dst=both, data1=wide, data2=largest, op="maximum")
    turned = kernel.psum(32, 64)
    kernel.call("nc_transpose", dst=turned, data=both)
    back = kernel.sbuf(32, 64)
    kernel.copy(back, turned)
    kernel.store(back)
    exact, noisy = sampled(kernel, 3)
    np.testing.assert_array_equal(exact, np.maximum(values.astype(np.float64), 0.25).T)
    for sample in noisy:
        np.testing.assert_array_equal(sample, exact)


def test_a_copy_to_fewer_digits_rounds() -> None:
    kernel = Kernel()
    narrow = kernel.sbuf(32, 32, dtype="bfloat16")
    kernel.copy(narrow, kernel.load(spread_out(32, 32)))
    kernel.store(narrow)
    exact, noisy = sampled(kernel, 3)
    assert (np.abs(noisy - exact) > 1e-4 * np.abs(exact)).mean() > 0.9


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_what_is_granted_decides_what_a_store_may_do(dtype: str) -> None:
    kernel = Kernel()
    tile = thirds(kernel, spread_out(64, 64), dtype)
    kernel.store(tile)
    program = kernel.program()
    (index,) = [at for at in range(len(program)) if program.instruction(at).opcode == "tensor_scalar"]
    exact, _ = sampled_again(kernel, program, Granted())
    narrow = dtypes.unit_roundoff(dtypes.BY_NAME[dtype])
    wide = dtypes.unit_roundoff(FLOAT32)
    for granted, expected in (
        (Granted(), narrow),
        (Granted(wide=frozenset({index})), wide),
        (Granted(exact=frozenset({index})), wide),
    ):
        _, noisy = sampled_again(kernel, program, granted)
        # rms of a relative error that is uniform on its grid, with logarithms of numbers uniform
        assert rms((noisy - exact) / exact) == pytest.approx(expected / math.sqrt(8 * math.log(2)), rel=0.1)


def sampled_again(kernel: Kernel, program: Any, granted: Granted) -> tuple[Float64, Float64]:
    kinds, of = works(program, ROWS)
    runs = [
        execute(program, kernel.arguments, compute=np.float64, rounding="off", around=around)
        for around in (None, Noise(kinds, of, granted, 1))
    ]
    exact, noisy = (np.asarray(run.outputs[0].values, np.float64) for run in runs)
    return exact, noisy


def test_the_last_store_in_float32_is_left_exact() -> None:
    kernel = Kernel()
    kernel.store(thirds(kernel, spread_out(16, 16), "float32"))
    program = kernel.program()
    (index,) = [at for at in range(len(program)) if program.instruction(at).opcode == "tensor_scalar"]
    exact, noisy = sampled_again(kernel, program, Granted(exact=frozenset({index})))
    np.testing.assert_array_equal(noisy, exact)


def test_thinned_noise_has_the_spread_of_all_of_it() -> None:
    generator = np.random.default_rng(9)
    left, right = (generator.standard_normal((16 * 64, 16)).astype(np.float32) for _ in range(2))
    kernel = Kernel()
    total = kernel.psum(16, 16)
    for at in range(0, len(left), 64):
        kernel.matmul(total, kernel.load(left[at : at + 64]), kernel.load(right[at : at + 64]))
    result = kernel.sbuf(16, 16)
    kernel.copy(result, total)
    kernel.store(result)
    exact, all_of_it = sampled(kernel, 60)
    _, some = sampled(kernel, 60, every=4)
    assert rms(some - exact) == pytest.approx(rms(all_of_it - exact), rel=0.2)


@pytest.mark.parametrize("offset", [0.0, 1000.0])
@pytest.mark.parametrize("tile", [False, True])
def test_the_first_of_two_operations_errs_by_its_own_result(offset: float, tile: bool) -> None:
    """(x - offset) * 0.7, in float32 after each operation, however small x is against the offset."""
    values = (1e-2 * np.random.default_rng(2).standard_normal((64, 64))).astype(np.float32)
    kernel = Kernel()
    given = kernel.load(values)
    operand: Any = kernel.load(np.full((64, 1), offset, np.float32)) if tile else offset
    result = kernel.sbuf(64, 64)
    kernel.call(
        "tensor_scalar",
        dst=result,
        data=given,
        op0="subtract",
        operand0=operand,
        op1="multiply",
        operand1=0.7,
    )
    kernel.store(result)
    program = kernel.program()
    (index,) = [at for at in range(len(program)) if program.instruction(at).opcode == "tensor_scalar"]
    exact, noisy = sampled_again(kernel, program, Granted(exact=frozenset({index})))
    first = values - np.float32(offset)
    real = 0.7 * (first - (values.astype(np.float64) - offset))
    assert rms(noisy - exact) > 0.6 * rms(real)


def test_a_sample_is_drawn_by_its_seed_alone() -> None:
    kernel = Kernel()
    kernel.store(thirds(kernel, spread_out(16, 16), "bfloat16"))
    _, one = sampled(kernel, 3)
    again = Kernel()
    again.store(thirds(again, spread_out(16, 16), "bfloat16"))
    _, other = sampled(again, 3)
    np.testing.assert_array_equal(one, other)


def test_infinite_and_missing_numbers_stay_what_they_are() -> None:
    values = spread_out(4, 4)
    values[0, 0], values[1, 1] = np.inf, np.nan
    kernel = Kernel()
    kernel.store(thirds(kernel, values, "bfloat16"))
    exact, noisy = sampled(kernel, 4)
    assert np.isinf(noisy[:, 0, 0]).all() and np.isnan(noisy[:, 1, 1]).all()
    assert np.isfinite(np.delete(noisy.reshape(4, -1), (0, 5), axis=1)).all()
    assert np.isfinite(exact).sum() == 14

"""Mutants against the same mistakes made in NumPy, and what tests of given tolerances notice of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from execute_kit import Kernel
from numpy.typing import NDArray

from nkireview.execute import execute
from nkireview.mutants import MOST, Mutant, Outputs, killed, mutants
from nkireview.program.program import Program

Array = NDArray[Any]
EPS = 1e-6


def drawn(*shape: int, seed: int = 3, dtype: Any = np.float32) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def rms_norm(x: Array, out: str = "float32") -> Kernel:
    """x / sqrt(mean(x*x) + EPS) of the rows of x [128, columns]."""
    kernel = Kernel()
    columns = x.shape[1]
    t = kernel.load(x)
    squares, total, y = kernel.sbuf(128, columns), kernel.sbuf(128, 1), kernel.sbuf(128, columns, dtype=out)
    kernel.call("tensor_tensor", dst=squares, data1=t, data2=t, op="multiply")
    kernel.call("tensor_reduce", dst=total, op="add", data=squares, axis=(1,), negate=False, keepdims=True)
    scale = {"op0": "multiply", "operand0": 1 / columns, "op1": "add", "operand1": EPS}
    kernel.call("tensor_scalar", dst=total, data=total, reverse0=False, reverse1=False, **scale)
    kernel.call("activation", dst=total, op="rsqrt", data=total, bias=0.0, scale=1.0)
    multiply = {"op0": "multiply", "reverse0": False, "op1": None, "operand1": None, "reverse1": False}
    kernel.call("tensor_scalar", dst=y, data=t, operand0=total, **multiply)
    kernel.store(y)
    return kernel


def causal_softmax(x: Array, fill: float = -3e38) -> Kernel:
    """softmax of the rows of x [128, 128] scaled by 1/8, of which row r keeps the columns up to r."""
    kernel = Kernel()
    t = kernel.load(x)
    kept, most, total = kernel.sbuf(128, 128), kernel.sbuf(128, 1), kernel.sbuf(128, 1)
    pattern = {"pattern": ((-1, 128),), "offset": 0, "channel_multiplier": 1, "cmp_op": "greater_equal"}
    kernel.call("affine_select", dst=kept, on_true_tile=t, on_false_value=fill, **pattern)
    alone = {"op1": None, "operand1": None, "reverse0": False, "reverse1": False}
    kernel.call("tensor_scalar", dst=kept, data=kept, op0="multiply", operand0=0.125, **alone)
    kernel.call("tensor_reduce", dst=most, op="maximum", data=kept, axis=(1,), negate=True, keepdims=True)
    kernel.call("activation", dst=kept, op="exp", data=kept, bias=most, scale=1.0)
    kernel.call("tensor_reduce", dst=total, op="add", data=kept, axis=(1,), negate=False, keepdims=True)
    kernel.call("reciprocal", dst=total, data=total)
    kernel.call("tensor_scalar", dst=kept, data=kept, op0="multiply", operand0=total, **alone)
    kernel.store(kept)
    return kernel


def gelu_matmul(a: Array, b: Array) -> Kernel:
    """gelu(a.T @ b) with a [4*128, 128] and b [4*128, 256]."""
    kernel = Kernel()
    psum, out = kernel.psum(128, b.shape[1]), kernel.sbuf(128, b.shape[1])
    left, right = kernel.argument(a), kernel.argument(b)
    for at in range(0, a.shape[0], 128):
        lhs, rhs = kernel.sbuf(128, 128), kernel.sbuf(128, b.shape[1])
        kernel.copy(lhs, left[at : at + 128])
        kernel.copy(rhs, right[at : at + 128])
        kernel.matmul(psum, lhs, rhs, accumulate=None if at else False)
    kernel.call("activation", dst=out, op="gelu", data=psum, bias=0.0, scale=1.0)
    kernel.store(out)
    return kernel


def run(mutant: Mutant, kernel: Kernel) -> Array:
    honest = tuple(output.values for output in execute(mutant.program, kernel.arguments).outputs)
    (got,) = mutant.run(kernel.arguments, honest)
    return got


def named(program: Program, name: str) -> list[Mutant]:
    return [mutant for mutant in mutants(program, most=1000) if mutant.name == name]


def rms(x: Array, eps: float = EPS, terms: int | None = None) -> Array:
    wide = x.astype(np.float64)
    mean = np.square(wide).sum(axis=1, keepdims=True) / (terms or x.shape[1])
    return wide / np.sqrt(mean + eps)


def softmax(
    x: Array, base: int = 0, fill: float = -math.inf, shift: bool = True, scale: float = 0.125
) -> Array:
    rows, columns = np.indices(x.shape)
    wide = np.where(columns <= rows + base, x.astype(np.float64), fill) * scale
    e = np.exp(wide - (wide.max(axis=1, keepdims=True) if shift else 0))
    return e / e.sum(axis=1, keepdims=True)


def close(got: Array, wanted: Array, rtol: float = 2e-6, atol: float = 1e-7) -> None:
    np.testing.assert_allclose(got.astype(np.float64), wanted, rtol=rtol, atol=atol)


# What each mutant computes, against NumPy.


def test_the_guard_of_a_root_is_dropped_or_too_large() -> None:
    tiny = drawn(128, 64) * np.float32(1e-3)
    kernel = rms_norm(tiny)
    program = kernel.program()
    (dropped,), (large,) = named(program, "eps dropped"), named(program, "eps too large")
    close(execute(program, kernel.arguments).outputs[0].values, rms(tiny))
    close(run(dropped, kernel), rms(tiny, eps=0.0))
    close(run(large, kernel), rms(tiny, eps=1000 * EPS))
    assert dropped.sentence == "nothing is added before the root, not 1e-06"
    assert dropped.place.startswith("kernel.py:")


def test_a_guard_that_is_the_bias_of_the_root_is_found_in_the_tile_that_holds_it() -> None:
    x = drawn(128, 1)[:, :1] ** 2 * np.float32(1e-6)
    kernel = Kernel()
    t, guard, y = kernel.load(x), kernel.sbuf(128, 1), kernel.sbuf(128, 1)
    kernel.call("memset", dst=guard, value=1e-5)
    kernel.call("activation", dst=y, op="rsqrt", data=t, bias=guard, scale=1.0)
    kernel.store(y)
    (dropped,) = named(kernel.program(), "eps dropped")
    close(run(dropped, kernel), 1 / np.sqrt(x.astype(np.float64)))


def test_a_mean_over_n_minus_one() -> None:
    x = drawn(128, 64)
    kernel = rms_norm(x)
    (mutant,) = named(kernel.program(), "N-1 for N")
    close(run(mutant, kernel), rms(x, terms=63))


def test_the_variance_of_bn_aggr_over_n_minus_one() -> None:
    x = drawn(128, 64)
    kernel = Kernel()
    t, stats, both = kernel.load(x), kernel.sbuf(128, 6), kernel.sbuf(128, 2)
    kernel.call("bn_stats", dst=stats, data=t)
    kernel.call("bn_aggr", dst=both, data=stats)
    kernel.store(both)
    (mutant,) = named(kernel.program(), "N-1 for N")
    wide = x.astype(np.float64)
    wanted = np.stack([wide.mean(axis=1), wide.var(axis=1, ddof=1)], axis=1)
    close(run(mutant, kernel), wanted, rtol=1e-5)


def test_the_other_forms_of_gelu() -> None:
    a, b = drawn(512, 128) / np.float32(16), drawn(512, 256, seed=4)
    kernel = gelu_matmul(a, b)
    z = a.T.astype(np.float64) @ b.astype(np.float64)
    tanh, sigmoid = named(kernel.program(), "activation form")
    wanted = 0.5 * z * (1 + np.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)))
    close(run(tanh, kernel), wanted, rtol=1e-4, atol=1e-5)
    close(run(sigmoid, kernel), z / (1 + np.exp(-1.702 * z)), rtol=1e-4, atol=1e-5)


def test_a_last_tile_of_k_is_lost_and_a_sum_overwritten() -> None:
    a, b = drawn(512, 128), drawn(512, 256, seed=4)
    kernel = Kernel()
    psum, out = kernel.psum(128, 256), kernel.sbuf(128, 256)
    for at in range(0, 512, 128):
        kernel.matmul(psum, kernel.load(a[at : at + 128]), kernel.load(b[at : at + 128]), accumulate=None)
    kernel.copy(out, psum)
    kernel.store(out)
    program = kernel.program()
    (dropped,), (flag,) = named(program, "K tile dropped"), named(program, "accumulate flag")
    left, right = a.astype(np.float64), b.astype(np.float64)
    close(run(dropped, kernel), left[:384].T @ right[:384], rtol=1e-4, atol=1e-4)
    close(run(flag, kernel), left[384:].T @ right[384:], rtol=1e-4, atol=1e-4)
    # the sum in bfloat16 after each matmul, as ml_dtypes rounds
    (low,) = named(program, "running sum in bf16")
    total = np.zeros((128, 256), np.float32)
    for at in range(0, 512, 128):
        total = (total + a[at : at + 128].T @ b[at : at + 128]).astype(ml_dtypes.bfloat16).astype(np.float32)
    close(run(low, kernel), total.astype(np.float64), rtol=8e-3, atol=1e-3)
    assert np.array_equal(run(low, kernel), run(low, kernel).astype(ml_dtypes.bfloat16).astype(np.float32))


def test_a_sum_over_the_row_in_bfloat16() -> None:
    x = np.full((128, 1024), 1.0, np.float32)
    kernel = Kernel()
    t, total = kernel.load(x), kernel.sbuf(128, 1)
    kernel.call("tensor_reduce", dst=total, op="add", data=t, axis=(1,), negate=True, keepdims=True)
    kernel.store(total)
    (low,) = named(kernel.program(), "running sum in bf16")
    assert (run(low, kernel) == -256.0).all()  # 256 + 1 rounds to 256


def test_masks_that_are_off_by_one_or_too_small() -> None:
    x = drawn(128, 128) * np.float32(4)
    kernel = causal_softmax(x, fill=-30000.0)
    program = kernel.program()
    close(execute(program, kernel.arguments).outputs[0].values, softmax(x), rtol=1e-5)
    after, before = named(program, "mask off by one")
    (small,) = named(program, "mask too small")
    close(run(after, kernel), softmax(x, base=1), rtol=1e-5)
    # row 0 keeps nothing at all: of equal fills each gets its share
    close(run(before, kernel)[1:], softmax(x, base=-1, fill=-30000.0)[1:], rtol=1e-5)
    close(run(before, kernel)[0], np.full(128, 1 / 128))
    close(run(small, kernel), softmax(x, fill=-30.0), rtol=1e-5)
    (far,) = named(causal_softmax(x).program(), "mask too small")
    assert far.sentence == "what is masked gets -300, not -3e+38"


def test_the_shift_by_the_maximum_is_removed_and_a_factor_applied_twice() -> None:
    x = drawn(128, 128)
    kernel = causal_softmax(x)
    (shift,), (twice,) = (named(kernel.program(), name) for name in ("max shift removed", "factor twice"))
    close(run(shift, kernel), softmax(x), rtol=1e-5)
    close(run(twice, kernel), softmax(x, scale=0.125**2), rtol=1e-5)
    large = causal_softmax(x * np.float32(1000))
    (shift,) = named(large.program(), "max shift removed")
    assert np.isnan(run(shift, large)).any()
    # the tile that was zero for a while is as it was: a second run is the same
    np.testing.assert_array_equal(run(shift, large), run(shift, large))


def test_a_tile_goes_through_bfloat16() -> None:
    x = drawn(128, 64)
    kernel = rms_norm(x)
    found = {mutant.sentence: mutant for mutant in named(kernel.program(), "cast to bf16")}
    last = found["the result of tensor_scalar is rounded to bfloat16"]
    honest = execute(last.program, kernel.arguments).outputs[0].values
    kept = [run(m, kernel) for m in named(kernel.program(), "cast to bf16")]
    assert any(np.array_equal(each, honest.astype(ml_dtypes.bfloat16).astype(np.float32)) for each in kept)


def test_what_becomes_of_outputs() -> None:
    x = drawn(128, 64)
    kernel = rms_norm(x)
    program = kernel.program()
    honest = execute(program, kernel.arguments).outputs[0].values
    (zeros,) = named(program, "output zeros")
    (scaled,) = named(program, "output scaled")
    (swapped,) = named(program, "rows swapped")
    (hole,) = named(program, "tile left out")
    assert not run(zeros, kernel).any()
    close(run(scaled, kernel), honest.astype(np.float64) * 1.01)
    assert np.array_equal(run(swapped, kernel)[[0, -1]], honest[[-1, 0]])
    assert np.array_equal(run(swapped, kernel)[1:-1], honest[1:-1])
    assert np.array_equal(run(hole, kernel)[:64], honest[:64]) and not run(hole, kernel)[64:].any()


def test_at_most_so_many_and_of_each_kind_the_first() -> None:
    program = causal_softmax(drawn(128, 128)).program()
    assert len(mutants(program)) <= MOST
    few = mutants(program, most=9)
    assert len(few) == len({mutant.name for mutant in few}) == 9
    assert len({(m.name, m.sentence, m.place) for m in mutants(program)}) == len(mutants(program))


def test_the_arguments_and_the_honest_program_stay_as_they_are() -> None:
    x = drawn(128, 128)
    kernel = causal_softmax(x)
    program = kernel.program()
    before = execute(program, kernel.arguments).outputs[0].values.copy()
    held = {number: value.copy() for number, value in kernel.arguments.items()}
    for mutant in mutants(program):
        run(mutant, kernel)
    assert all(np.array_equal(kernel.arguments[number], value) for number, value in held.items())
    assert np.array_equal(execute(program, kernel.arguments).outputs[0].values, before)


# What a test notices.


def allclose(rtol: float, atol: float) -> Any:
    def passes(got: Outputs, wanted: Outputs) -> bool:
        pairs = zip(got, wanted, strict=True)
        return all(np.allclose(a.astype(np.float64), b.astype(np.float64), rtol, atol) for a, b in pairs)

    return passes


def states(
    kernel: Kernel, rtol: float, atol: float, others: tuple[Mapping[int, Array], ...] = ()
) -> dict[str, set[str]]:
    program = kernel.program()
    found: dict[str, set[str]] = {}
    for outcome in killed(program, kernel.arguments, mutants(program), allclose(rtol, atol), others):
        found.setdefault(outcome.mutant.name, set()).add(outcome.state)
    return found


def test_a_test_on_normal_data_does_not_notice_eps() -> None:
    found = states(rms_norm(drawn(128, 256)), 1e-2, 1e-4)
    assert found["eps dropped"] == {"survived"} and found["N-1 for N"] == {"survived"}
    for name in ("output zeros", "rows swapped", "tile left out", "factor twice"):
        assert found[name] == {"killed"}, name
    assert found["output scaled"] == {"survived"}  # by 1%, which is the rtol
    assert states(rms_norm(drawn(128, 256)), 5e-3, 1e-4)["output scaled"] == {"killed"}
    assert found["cast to bf16"] == {"survived"}


def test_a_test_on_tiny_rows_notices_eps() -> None:
    found = states(rms_norm(drawn(128, 256) * np.float32(1e-3)), 1e-3, 1e-6)
    assert found["eps dropped"] == {"killed"} and found["N-1 for N"] == {"killed"}


def test_a_mutant_below_the_rounding_of_the_output_is_equal_unless_other_inputs_show_it() -> None:
    kernel = rms_norm(drawn(128, 256), out="bfloat16")
    assert states(kernel, 1e-2, 1e-4)["eps dropped"] == {"equal"}
    tiny = {number: value * np.float32(1e-3) for number, value in kernel.arguments.items()}
    assert states(kernel, 1e-2, 1e-4, (tiny,))["eps dropped"] == {"survived"}


def test_a_missing_shift_is_equal_on_normal_data_and_killed_on_large() -> None:
    x = drawn(128, 128)
    assert states(causal_softmax(x), 1e-3, 1e-5)["max shift removed"] == {"equal"}
    assert states(causal_softmax(x * np.float32(1000)), 1e-3, 1e-5)["max shift removed"] == {"killed"}


def test_a_tolerance_that_lets_zeros_pass_kills_next_to_nothing() -> None:
    found = states(causal_softmax(drawn(128, 128)), 1e-2, 2.0)
    assert set().union(*found.values()) <= {"survived", "equal"}
    assert found["output zeros"] == {"survived"}


def test_a_test_that_the_honest_program_fails_says_nothing() -> None:
    kernel = rms_norm(drawn(128, 64))
    program = kernel.program()
    with pytest.raises(ValueError, match="do not pass this test"):
        killed(program, kernel.arguments, mutants(program), lambda got, wanted: False)

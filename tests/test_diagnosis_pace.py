"""Time for a diagnosis: counted where nothing may depend on the machine; integers that float32 does not hold."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from execute_kit import Kernel

from nkireview.diagnosis import diagnose, pace
from nkireview.diagnosis.integers import narrowed
from nkireview.diagnosis.pace import Pace, nominal
from nkireview.isa.enums import Engine

Array = np.ndarray[Any, Any]


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


# Pace


def test_executions_are_counted_and_the_clock_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Pace(1.0, 0.25, 0.0, counted=True)
    monkeypatch.setattr(time, "monotonic", lambda: 1e9)
    held.ran()
    held.ran(2)
    assert (held.spent, held.left) == (0.75, 0.25)
    assert Pace(1.0, 0.25, 1e9 - 3, counted=False).left == -2.0


def test_an_execution_takes_what_its_instructions_elements_and_products_do() -> None:
    kernel = Kernel()
    left, right = kernel.load(normal(64, 128)), kernel.load(normal(64, 32, seed=1))
    product = kernel.psum(128, 32)
    kernel.call("nc_matmul", dst=product, stationary=left, moving=right)
    result = kernel.sbuf(128, 32)
    kernel.copy(result, product)
    kernel.store(result)
    program = kernel.program()
    read, written = 64 * 128 + 64 * 32, 128 * 32
    elements = 2 * read + (read + written) + 2 * written + 2 * written
    expected = (
        pace.START
        + pace.INSTRUCTION * len(program)
        + pace.ELEMENT * elements
        + pace.MULTIPLICATION * written * 128
    )
    assert len(program) == 5
    assert nominal(program) == pytest.approx(expected, rel=1e-9)


def wrong(seed: int) -> Kernel:
    """x * 3 + 1, where x * 2 - x^2 is meant: no repair helps."""
    kernel = Kernel()
    tile = kernel.load(normal(32, 16, seed=seed))
    kernel.call("tensor_scalar", dst=tile, data=tile, op0="multiply", operand0=3.0, op1="add", operand1=1.0)
    kernel.store(tile)
    return kernel


def test_a_repeatable_diagnosis_tries_the_same_on_a_slow_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = wrong(0)
    (given,) = kernel.arguments.values()
    wanted = [2.0 * given.astype(np.float64) - given.astype(np.float64) ** 2]
    seconds = 5 * nominal(kernel.program())
    first = diagnose(kernel.program(), kernel.arguments, wanted, seconds=seconds, repeatable=True)
    clock = iter(range(10**9))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    again = diagnose(kernel.program(), kernel.arguments, wanted, seconds=seconds, repeatable=True)
    assert first.skipped == again.skipped and any("repairs after the first" in each for each in first.skipped)
    assert [each.use for each in first.outputs] == [each.use for each in again.outputs]
    hurried = diagnose(kernel.program(), kernel.arguments, wanted, seconds=seconds)
    assert "repairs after the first 1, for want of time" in hurried.skipped


# Integers


def ages(large: int, dtype: Any = np.int32) -> Kernel:
    """float32(now - then) of integers."""
    kernel = Kernel()
    now = kernel.load(np.arange(large, large + 64, dtype=dtype).reshape(4, 16))
    then = kernel.load(np.arange(large, large - 64, -1, dtype=dtype).reshape(4, 16))
    apart = kernel.sbuf(4, 16)
    kernel.call("tensor_tensor", dst=apart, data1=now, data2=then, op="subtract")
    kernel.store(apart)
    return kernel


@pytest.mark.parametrize("dtype", [np.int32, np.uint32])
def test_integers_beyond_float32_are_the_cause_of_what_they_spoil(dtype: Any) -> None:
    kernel = ages(1_700_000_000, dtype)
    wanted = [2.0 * np.arange(64.0).reshape(4, 16)]
    found = diagnose(kernel.program(), kernel.arguments, wanted)
    assert [each.name for each in found.causes] == ["integers-beyond-float32"]
    assert found.causes[0].sentence.startswith(
        "tensor_tensor computes in float32, which does not hold every integer above 16,777,216: its operands reach "
        "1,700,000,063, where they are read as multiples of 128"
    )
    seen, (output,) = narrowed(kernel.program(), kernel.arguments)
    assert set(seen.values()) == {1_700_000_063.0}
    now, then = (each.astype(np.float32).astype(np.float64) for each in kernel.arguments.values())
    np.testing.assert_array_equal(output, now - then)


def test_integers_that_float32_holds_are_read_as_they_are() -> None:
    kernel = ages(2**20)
    found = diagnose(kernel.program(), kernel.arguments, [2.0 * np.arange(64.0).reshape(4, 16)])
    assert found.verdict == "rounding" and narrowed(kernel.program(), kernel.arguments)[0] == {}
    assert narrowed(wrong(0).program(), wrong(0).arguments) == ({}, ())


@pytest.mark.parametrize("engine", [Engine.gpsimd, Engine.vector])
def test_gpsimd_computes_integers_of_integers_as_they_are(engine: Engine) -> None:
    kernel = Kernel()
    large = np.arange(1_700_000_000, 1_700_000_064, dtype=np.int32).reshape(4, 16)
    apart = kernel.sbuf(4, 16, dtype="int32")
    kernel.call(
        "tensor_tensor", engine=engine, dst=apart, data1=kernel.load(large), data2=kernel.load(large[::-1]),
        op="subtract",
    )  # fmt: skip
    kernel.store(apart)
    right = (large - large[::-1]).astype(np.float64)
    found = diagnose(kernel.program(), kernel.arguments, [right])
    seen, _ = narrowed(kernel.program(), kernel.arguments)
    exact = engine is Engine.gpsimd
    assert (found.verdict == "rounding") is exact and (seen == {}) is exact
    assert [each.name for each in found.causes] == ([] if exact else ["integers-beyond-float32"])

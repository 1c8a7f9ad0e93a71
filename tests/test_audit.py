"""The audit of dtypes: narrower and wider lines by experiment, against errors and times worked out by hand."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from execute_kit import Kernel, View
from numpy.typing import NDArray

from nkireview.audit import Audit, LineVerdict, audit, retyped, used
from nkireview.program.verify import verify

Array = NDArray[Any]
ROWS_OF_K = 512


def factors(dtype: Any = np.float32) -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((ROWS_OF_K, n)).astype(np.float32) for n in (128, 512))
    left: Array = a.astype(dtype)
    return left, b.astype(dtype)


def product(dtype: str, a: Array, b: Array) -> Kernel:
    """a.T @ b, tiles of 128 rows; both factors cast to a dtype on chip where it is not that of the inputs."""
    kernel = Kernel()
    left, right = kernel.argument(a), kernel.argument(b)
    own = "float32" if a.dtype == np.float32 else "bfloat16"
    total, out = kernel.psum(128, 512), kernel.sbuf(128, 512)
    for row in range(0, ROWS_OF_K, 128):
        kernel.line = 50
        tiles = [kernel.sbuf(128, 128, dtype=own), kernel.sbuf(128, 512, dtype=own)]
        for tile, source in zip(tiles, (left, right), strict=True):
            kernel.copy(tile, source[row : row + 128])
        if dtype != own:
            cast = [kernel.sbuf(128, 128, dtype=dtype), kernel.sbuf(128, 512, dtype=dtype)]
            for tile, low in zip(tiles, cast, strict=True):
                kernel.copy(low, tile)
            tiles = cast
        kernel.matmul(total, *tiles, accumulate=row > 0)
    kernel.copy(out, total)
    kernel.store(out)
    return kernel


def audited(kernel: Kernel, wanted: Array, tolerance: float, **more: Any) -> Audit:
    program = kernel.program()
    return audit(program, kernel.arguments, [wanted], [np.full(wanted.shape, tolerance)], **more)


def of(found: Audit, verdict: str) -> list[LineVerdict]:
    return [line for line in found.lines if line.verdict == verdict]


def exact() -> Array:
    a, b = factors()
    found: Array = a.astype(np.float64).T @ b.astype(np.float64)
    return found


def rounded_error() -> float:
    """Largest error of the product where both factors are rounded to bfloat16 by hand."""
    a, b = (each.astype(ml_dtypes.bfloat16).astype(np.float64) for each in factors())
    return float(np.abs(a.T @ b - exact()).max())


# What is used of a bound.


def test_the_largest_ratio_counts() -> None:
    assert used(np.array([1.0, 2.0]), np.array([1.5, 2.1]), np.array([1.0, 1.0])) == 0.5
    assert used(np.array([1.0, 2.0]), np.array([1.0, 2.0]), np.zeros(2)) == 0.0
    assert used(np.array([1.0]), np.array([2.0]), np.zeros(1)) == np.inf
    assert used(np.zeros(0), np.zeros(0), np.zeros(0)) == 0.0


@pytest.mark.parametrize(
    ("got", "wanted", "ratio"),
    [(np.nan, np.nan, 0.0), (np.inf, np.inf, 0.0), (np.nan, 1.0, np.inf), (np.inf, -np.inf, np.inf)],
)
def test_what_is_not_finite(got: float, wanted: float, ratio: float) -> None:
    assert used(np.array([got]), np.array([wanted]), np.ones(1)) == ratio


# Narrower.


def test_float32_factors_could_be_bfloat16_where_the_bound_allows_it() -> None:
    a, b = factors()
    error = rounded_error()
    found = audited(product("float32", a, b), exact(), 2 * error)
    (line,) = of(found, "could be")
    assert (line.dtype, line.to) == ("float32", "bfloat16")
    # stationary and moving must have one dtype: both change, and nothing else does
    assert len(line.places) == 2
    assert line.use == pytest.approx(0.5, rel=1e-3)
    assert "the error uses 50% of the bound" in line.sentence


def test_the_gain_is_that_of_the_passes_of_a_float32_matmul() -> None:
    """Four matmuls of 512 columns at 2.4 GHz, 5 cycles to switch: float32 takes two passes of twice the columns."""
    a, b = factors()
    found = audited(product("float32", a, b), exact(), 1.0)
    (line,) = of(found, "could be")
    (tensor,) = [gain for gain in line.gains if gain.lane == "tensor"]
    assert tensor.ns == pytest.approx(4 * (2 * (2 * 512 + 5) - (512 + 5)) / 2.4, rel=1e-9)
    assert tensor.bound and found.bound_by == "tensor"


def test_a_gain_that_a_cast_by_dma_costs_again_is_told_and_not_taken() -> None:
    """Tiles are loaded for each product: GpSimd writes the descriptors of as many casting DMAs."""
    x = np.random.default_rng(0).standard_normal((1024, 1024)).astype(np.float32)
    kernel = Kernel()
    source, out = kernel.argument(x), kernel.hbm(1024, 1024)
    for left in range(0, 1024, 128):
        for right in range(0, 1024, 512):
            kernel.line = 50
            total, made = kernel.psum(128, 512), kernel.sbuf(128, 512)
            for row in range(0, 1024, 128):
                kernel.line = 60
                tiles = [kernel.sbuf(128, 128), kernel.sbuf(128, 512)]
                kernel.copy(tiles[0], source[row : row + 128, left : left + 128])
                kernel.copy(tiles[1], source[row : row + 128, right : right + 512])
                kernel.matmul(total, *tiles, accumulate=row > 0)
            kernel.copy(made, total)
            kernel.copy(out[left : left + 128, right : right + 512], made)
    kernel.output(out)
    found = audited(kernel, x.astype(np.float64).T @ x.astype(np.float64), 10.0)
    (line,) = [line for line in found.lines if len(line.places) == 2]
    gains = {gain.lane: gain.ns for gain in line.gains}
    assert gains["tensor"] > 0 > gains["gpsimd"] and line.use is not None and line.use < 1
    assert found.bound_by != "tensor" and line.verdict == "keep"
    assert "of the bound, but it costs as much: tensor" in line.sentence


def test_a_tight_bound_keeps_float32() -> None:
    a, b = factors()
    error = rounded_error()
    found = audited(product("float32", a, b), exact(), error / 100)
    assert of(found, "could be") == [] and of(found, "must be") == []
    (line,) = [line for line in of(found, "keep") if len(line.places) == 2]
    assert line.use == pytest.approx(100, rel=1e-3)
    assert "as bfloat16 the error is 100 times the bound" in line.sentence


def test_a_line_without_gain_is_not_executed() -> None:
    def make() -> Kernel:
        kernel = Kernel()
        most = kernel.sbuf(128, 1)
        kernel.call("tensor_reduce", dst=most, data=kernel.load(x), op="maximum", axis=(1,))
        kernel.store(most)
        return kernel

    x = np.random.default_rng(0).standard_normal((128, 64)).astype(np.float32)
    found = audited(make(), x.max(axis=1, keepdims=True), 1.0, most=0)
    assert all(line.verdict == "keep" and line.use is None for line in found.lines)
    small = [line for line in found.lines if "would save no time" in line.why]
    assert small and found.untried == 0


def elementwise(kernel: Kernel, x: View, steps: int) -> View:
    """x with 1 added, again and again, each time in a tile of its own line."""
    here = x
    for _ in range(steps):
        made = kernel.sbuf(*x.shape)
        kernel.call("tensor_scalar", dst=made, data=here, op0="add", operand0=1.0)
        here = made
    return here


def test_sixteen_bits_are_faster_on_vector_only_where_all_tiles_have_them() -> None:
    """float32 runs at two elements a cycle in SBUF, 16 bits at four: a line alone gains nothing, all together do."""
    x = np.random.default_rng(0).standard_normal((128, 2048)).astype(np.float32)
    kernel = Kernel()
    kernel.store(elementwise(kernel, kernel.load(x), 3))
    found = audited(kernel, x + 3.0, 1.0)
    assert found.together is not None
    (vector,) = [gain for gain in found.together.gains if gain.lane == "vector"]
    # 2048 elements: 1024 cycles at two a cycle, 512 at four, at 0.96 GHz
    assert vector.ns == pytest.approx(3 * 512 / 0.96, rel=1e-6)


def test_a_buffer_in_hbm_of_the_kernel_itself_moves_half_the_bytes() -> None:
    x = np.random.default_rng(0).standard_normal((128, 4096)).astype(np.float32)
    kernel = Kernel()
    here, between, back = kernel.load(x), kernel.hbm(128, 4096), kernel.sbuf(128, 4096)
    kernel.copy(between, here)
    kernel.copy(back, between)
    kernel.store(back)
    found = audited(kernel, x, 0.1, most=50)
    assert found.together is not None and found.together.to == "bfloat16"
    assert sum(gain.ns for gain in found.together.gains if gain.lane == "dma") > 0
    # bfloat16 keeps 8 digits: half a unit of the last of them
    bound = float(np.abs(x.astype(ml_dtypes.bfloat16).astype(np.float64) - x).max()) / 0.1
    assert found.together.use == pytest.approx(bound, rel=1e-6)


def test_no_more_variants_than_asked_for() -> None:
    a, b = factors()
    found = audited(product("float32", a, b), exact(), 1.0, most=0)
    assert found.untried == 3 and of(found, "could be") == []  # bfloat16, float16, and all lines together
    assert any(line.why == "bfloat16 was not tried" for line in found.lines)


# Narrower than the inputs.


def test_a_gain_that_was_bought_with_correctness() -> None:
    a, b = factors()
    error = rounded_error()
    found = audited(product("bfloat16", a, b), exact(), error / 20)
    (line,) = of(found, "must be")
    assert (line.dtype, line.to, len(line.places)) == ("bfloat16", "float32", 2)
    assert line.use == pytest.approx(20, rel=1e-3) and found.use[0] == pytest.approx(20, rel=1e-3)
    assert found.wide_use is not None and found.wide_use < 1
    assert "bought with correctness: because of it the error is 20 times the bound" in line.sentence
    assert [gain.ns > 0 for gain in line.gains if gain.lane == "tensor"] == [True]


def test_a_gain_within_the_bound_stays() -> None:
    a, b = factors()
    found = audited(product("bfloat16", a, b), exact(), rounded_error() * 4)
    (line,) = [line for line in found.lines if line.dtype == "bfloat16"]
    assert line.verdict == "keep" and line.use == pytest.approx(0.25, rel=1e-3)
    assert line.sentence.count("the error uses 25% of the bound") == 1 and "it saves" in line.sentence


def test_inputs_of_few_digits_ask_for_no_more() -> None:
    a, b = factors(ml_dtypes.bfloat16)
    wanted = a.astype(np.float64).T @ b.astype(np.float64)
    found = audited(product("bfloat16", a, b), wanted, 1e-3)
    assert found.wide_use is None and of(found, "must be") == []


def test_an_error_that_is_no_rounding_is_not_blamed_on_a_dtype() -> None:
    a, b = factors()
    found = audited(product("bfloat16", a, b), 2 * exact(), rounded_error())
    assert of(found, "must be") == [] and found.wide_use is not None and found.wide_use > 1
    (line,) = found.lines
    assert "with float32 throughout" in line.why


def test_only_the_line_at_fault_must_be_wider() -> None:
    """A sum that cancels is kept in bfloat16; a copy that only decides a sign is, too."""
    x = np.random.default_rng(1).uniform(1000, 1001, (128, 64)).astype(np.float32)
    kernel = Kernel()
    tile = kernel.load(x)
    kernel.line = 100
    low = kernel.sbuf(128, 64, dtype="bfloat16")
    kernel.line = 200
    other = kernel.sbuf(128, 64, dtype="bfloat16")
    kernel.copy(low, tile)
    kernel.call("activation", dst=other, data=tile, op="sign")
    a, out = kernel.sbuf(128, 64), kernel.sbuf(128, 64)
    kernel.call("tensor_scalar", dst=a, data=low, op0="subtract", operand0=1000.0)
    kernel.call("tensor_tensor", dst=out, data1=a, data2=other, op="add")
    kernel.store(out)
    found = audited(kernel, x.astype(np.float64) - 1000 + 1, 1e-3)
    (line,) = of(found, "must be")
    assert line.places == ("kernel.py:101",)
    kept = [each for each in of(found, "keep") if each.places == ("kernel.py:201",)]
    assert kept and "comes from other lines" in kept[0].why


# Programs.


def test_other_dtypes_are_programs_like_any_other() -> None:
    a, b = factors()
    program = product("float32", a, b).program()
    columns = program.columns
    sbuf = [n for n in range(columns.buffers) if program.buffer(n).memory.name == "sbuf"]
    made = retyped(program, sbuf[1:3], "bfloat16")
    assert [made.buffer(n).dtype for n in sbuf[:4]] == ["float32", "bfloat16", "bfloat16", "float32"]
    assert [program.buffer(n).dtype for n in sbuf[:4]] == ["float32"] * 4
    assert all(
        each.dtype == made.buffer(each.buffer).dtype for each in map(made.access, range(columns.accesses))
    )
    assert verify(retyped(program, [], "bfloat16")) == verify(program)


def test_both_cores_are_one_line() -> None:
    x = np.random.default_rng(0).standard_normal((128, 2048)).astype(np.float32)
    kernel = Kernel(lnc=2)
    source, out = kernel.argument(x, shared=True), kernel.hbm(128, 2048, shared=True)
    for core in range(2):
        half = slice(core * 1024, core * 1024 + 1024)
        kernel.line = 300
        here, made = kernel.sbuf(128, 1024), kernel.sbuf(128, 1024)
        kernel.copy(here, source[:, half])
        kernel.call("tensor_scalar", dst=made, data=here, op0="add", operand0=1.0)
        kernel.copy(out[:, half], made)
        if not core:
            kernel.switch_core()
    kernel.output(out)
    found = audited(kernel, x + 1.0, 1.0)
    assert len({place for line in found.lines for place in line.places}) == 2


@pytest.mark.parametrize(
    ("wanted", "allowed", "text"),
    [
        ([], [], "for each of 1 outputs, got 0 and 0"),
        ([np.zeros((4, 4))], [np.zeros((128, 8))], r"shape \[128, 8\], its wanted array has \[4, 4\]"),
        ([np.zeros((128, 8))], [np.zeros(3)], r"its allowed array has \[3\]"),
        ([np.zeros((128, 8))], [np.full((128, 8), -1.0)], "is negative or NaN in places"),
        ([np.zeros((128, 8))], [np.full((128, 8), np.nan)], "is negative or NaN in places"),
    ],
)
def test_arrays_that_do_not_fit(wanted: list[Array], allowed: list[Array], text: str) -> None:
    kernel = Kernel()
    kernel.store(kernel.load(np.zeros((128, 8), np.float32)))
    with pytest.raises(ValueError, match=text):
        audit(kernel.program(), kernel.arguments, wanted, allowed)


def test_a_verdict_is_one_of_three() -> None:
    with pytest.raises(ValueError, match="verdict 'maybe' is not one of keep, could be, must be"):
        LineVerdict((), "float32", "maybe", "bfloat16", (), None, None, "")

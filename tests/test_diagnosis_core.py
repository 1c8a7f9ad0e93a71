"""The core of a diagnosis: granted roundings, ties, shadows, orders, causes of rounding, and what diagnose says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from diagnosis_chains import Chain, built, chains, moved
from execute_kit import Kernel, View
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from nkireview.diagnosis import Derivation, Diagnosis, diagnose
from nkireview.diagnosis.arithmetic import works
from nkireview.diagnosis.noise import Granted
from nkireview.diagnosis.orders import BLOCK, Order, Ordered
from nkireview.diagnosis.shadow import Digest
from nkireview.diagnosis.symptoms import NotFinite
from nkireview.execute import execute
from nkireview.isa import dtypes
from nkireview.isa.table import ROWS
from nkireview.program.edited import edited
from nkireview.program.errors import ProgramError

Array = NDArray[Any]
Float64 = NDArray[np.float64]

BF16 = dtypes.BY_NAME["bfloat16"].storage


def normal(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def scaled(kernel: Kernel, source: View, factor: float, dtype: str = "float32") -> tuple[View, int]:
    """A tile that holds a multiple of another, and the instruction that makes it."""
    tile = kernel.sbuf(*source.shape, dtype=dtype)
    return tile, kernel.call("tensor_scalar", dst=tile, data=source, op0="multiply", operand0=factor)


def granted(kernel: Kernel) -> Granted:
    return Derivation.of_program(kernel.program()).granted


def asked(kernel: Kernel, *wanted: Array, **options: Any) -> Diagnosis:
    return diagnose(kernel.program(), kernel.arguments, wanted, **options)


# Granting


def running_sum(kernel: Kernel, given: Array, dtype: str, out: str = "float32") -> list[int]:
    """Add the rows of an array of [terms, P, N] one after the other; the instructions that add."""
    total = kernel.sbuf(*given.shape[1:], dtype=dtype)
    kernel.call("memset", dst=total, value=0.0)
    added = [
        kernel.call("tensor_tensor", dst=total, data1=total, data2=kernel.load(each), op="add")
        for each in given
    ]
    result = kernel.sbuf(*given.shape[1:], dtype=out)
    kernel.copy(result, total)
    kernel.store(result)
    return added


@pytest.mark.parametrize("storage", [np.float32, BF16])
def test_a_long_sum_kept_in_bf16_is_not_granted(storage: Any) -> None:
    kernel = Kernel()
    added = running_sum(
        kernel, normal(8, 16, 8).astype(storage), "bfloat16", dtypes.of(np.dtype(storage)).name
    )
    assert set(added) <= granted(kernel).wide


def test_sums_in_float32_and_short_ones_in_the_inputs_own_dtype_are_granted() -> None:
    wide = Kernel()
    running_sum(wide, normal(8, 16, 8), "float32")
    assert not granted(wide).wide
    short = Kernel()
    running_sum(short, normal(3, 16, 8).astype(BF16), "bfloat16", "bfloat16")
    assert not granted(short).wide


@pytest.mark.parametrize(("tiles", "wide"), [(1, False), (8, True)])
def test_psum_of_few_digits_is_granted_for_one_matmul_only(tiles: int, wide: bool) -> None:
    kernel = Kernel()
    total = kernel.psum(16, 16, dtype="bfloat16")
    made = [
        kernel.matmul(
            total, kernel.load(normal(32, 16, seed=at, dtype=BF16)), kernel.load(normal(32, 16, dtype=BF16))
        )
        for at in range(tiles)
    ]
    tile = kernel.sbuf(16, 16, dtype="bfloat16")
    kernel.copy(tile, total)
    kernel.store(tile)
    assert (set(made) <= granted(kernel).wide) == wide


def quantised(kernel: Kernel, given: Array, by_maximum: bool) -> int:
    """Round to fp8 and back; scaled by the largest magnitude of each row or by a number."""
    source = kernel.load(given)
    factor: Any = 8.0
    if by_maximum:
        factor = kernel.sbuf(len(given), 1)
        kernel.call("tensor_reduce", dst=factor, data=source, op="abs_max", axis=(1,), keepdims=True)
        kernel.call("reciprocal", dst=factor, data=factor)
        kernel.call("tensor_scalar", dst=factor, data=factor, op0="multiply", operand0=240.0)
    narrow = kernel.sbuf(*given.shape, dtype="float8_e4m3")
    made = kernel.call("tensor_scalar", dst=narrow, data=source, op0="multiply", operand0=factor)
    wide = kernel.sbuf(*given.shape)
    kernel.copy(wide, narrow)
    back = kernel.sbuf(*given.shape)
    kernel.call("tensor_scalar", dst=back, data=wide, op0="divide", operand0=factor)
    kernel.store(back)
    return made


@pytest.mark.parametrize("by_maximum", [True, False])
def test_a_store_in_fp8_is_granted_where_it_is_scaled_by_a_maximum(by_maximum: bool) -> None:
    kernel = Kernel()
    made = quantised(kernel, normal(16, 32), by_maximum)
    assert (made in granted(kernel).wide) != by_maximum


def test_narrow_stores_are_granted_as_far_as_outputs_are_narrow() -> None:
    for dtype, expected in (("float32", True), ("bfloat16", False)):
        kernel = Kernel()
        tile, made = scaled(kernel, kernel.load(normal(8, 8, dtype=BF16)), 1.7, "bfloat16")
        result, _ = scaled(kernel, tile, 1.3, dtype)
        kernel.store(result)
        assert (made in granted(kernel).wide) == expected


def test_the_last_rounding_of_an_output_is_its_last_computation() -> None:
    kernel = Kernel()
    first, made = scaled(kernel, kernel.load(normal(8, 8)), 1.1)
    last, kept = scaled(kernel, first, 1.3)
    moved_on = kernel.sbuf(8, 8)
    kernel.copy(moved_on, last)
    kernel.store(moved_on)
    found = granted(kernel).exact
    assert kept in found and made not in found


def in_place(kernel: Kernel, times: int, as_loop: bool) -> list[int]:
    """Multiply a tile in place, in a loop on the device or by so many instructions of one line."""
    tile = kernel.load(normal(8, 8))
    line = kernel.place()
    made = []

    def step() -> None:
        kernel.line = line
        made.append(kernel.call("tensor_scalar", dst=tile, data=tile, op0="multiply", operand0=1.3))

    if as_loop:
        with kernel.loop(times):
            step()
    else:
        for _ in range(times):
            step()
    kernel.store(tile)
    return made


def test_of_a_line_that_writes_what_it_reads_only_the_last_instruction_is_a_last_rounding() -> None:
    kernel = Kernel()
    made = in_place(kernel, 3, as_loop=False)
    program = kernel.program()
    assert len({int(program.columns.place[at]) for at in made}) == 1
    assert granted(kernel).exact & set(made) == {made[-1]}


def test_in_a_loop_on_the_device_a_line_that_writes_what_it_reads_is_no_last_rounding() -> None:
    kernel = Kernel()
    assert not granted(kernel).exact & set(in_place(kernel, 3, as_loop=True))
    assert not granted(kernel).exact


# Numbers of the Program


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("given", "reference"),
    [
        ({"op0": "multiply", "operand0": 0.7}, lambda x: x * 0.7),
        ({"op0": "add", "operand0": 0.1}, lambda x: x + 0.1),
        ({"op0": "divide", "operand0": 3.3}, lambda x: x / 3.3),
        ({"op0": "subtract", "operand0": 1000.1}, lambda x: x - 1000.1),
        (
            {"op0": "subtract", "operand0": 1000.1, "op1": "multiply", "operand1": 0.7},
            lambda x: (x - 1000.1) * 0.7,
        ),
        ({"op0": "multiply", "operand0": 1 / 3, "op1": "add", "operand1": 0.1}, lambda x: x / 3 + 0.1),
    ],
)
def test_numbers_that_float32_does_not_hold_are_no_defect(
    given: dict[str, Any], reference: Callable[[Float64], Float64], dtype: str
) -> None:
    for seed in range(3):
        values = normal(64, 64, seed=seed).astype(dtypes.BY_NAME[dtype].storage)
        kernel = Kernel()
        tile = kernel.sbuf(64, 64, dtype=dtype)
        kernel.call("tensor_scalar", dst=tile, data=kernel.load(values), **given)
        kernel.store(tile)
        wanted = reference(values.astype(np.float64))
        found = asked(kernel, wanted)
        assert found.verdict == "rounding", found.outputs[0].use
        # a thousandth of it is one
        assert asked(kernel, wanted * (1.001 if dtype == "float32" else 1.1)).verdict == "defect"


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_a_memset_is_granted_the_digits_of_the_kernels_own_result(dtype: str) -> None:
    """0.1 kept in bf16 is 1e-4 off: as good as a bf16 result, but not as a float32 one."""
    values = normal(32, 32).astype(dtypes.BY_NAME[dtype].storage)
    kernel = Kernel()
    offset, total = kernel.sbuf(32, 32, dtype="bfloat16"), kernel.sbuf(32, 32, dtype=dtype)
    filled = kernel.call("memset", dst=offset, value=0.1)
    kernel.call("tensor_tensor", dst=total, data1=kernel.load(values), data2=offset, op="add")
    result, _ = scaled(kernel, total, 1.0, dtype)
    kernel.store(result)
    held = Derivation.of_program(kernel.program()).held.instruction(filled).immediates["value"]
    assert held == float(np.float64(0.1).astype(BF16 if dtype == "bfloat16" else np.float32))
    found = asked(kernel, values.astype(np.float64) + 0.1)
    assert found.verdict == ("rounding" if dtype == "bfloat16" else "defect")


@pytest.mark.parametrize("name", ["minimum", "maximum"])
def test_a_bound_is_held_in_the_dtype_of_the_tile_that_it_is_stored_in(name: str) -> None:
    """Nearly all elements are the bound, of which bf16 makes another number in one store."""
    bound = -3.14 if name == "minimum" else 3.14
    values = normal(16, 32, dtype=BF16)
    kernel = Kernel()
    narrow = kernel.sbuf(16, 32, dtype="bfloat16")
    kernel.call("tensor_scalar", dst=narrow, data=kernel.load(values), op0=name, operand0=bound)
    result, _ = scaled(kernel, narrow, 1.3, "bfloat16")
    kernel.store(result)
    exact = values.astype(np.float64)
    wanted = 1.3 * (np.minimum(exact, bound) if name == "minimum" else np.maximum(exact, bound))
    assert asked(kernel, wanted).verdict == "rounding"
    assert asked(kernel, wanted * 1.02).verdict == "defect"


def test_a_program_whose_numbers_are_whole_is_held_as_it_is() -> None:
    kernel = Kernel()
    tile, _ = scaled(kernel, kernel.load(normal(8, 8)), 0.375)
    kernel.store(tile)
    derivation = Derivation.of_program(kernel.program())
    assert derivation.held is derivation.program


# Ties


def near_ties(steps: Float64, seed: int) -> Array:
    """Numbers whose multiples by 1 / 3.7 lie within float32's roundings of a half."""
    generator = np.random.default_rng(seed)
    return ((steps + 0.5) * 3.7 * (1 + 1e-7 * generator.uniform(-1, 1, steps.shape))).astype(np.float32)


def to_int8(kernel: Kernel, values: Array, twice: bool) -> None:
    source = kernel.load(values)
    if twice:
        source, _ = scaled(kernel, source, 1.9)
    result = kernel.sbuf(*values.shape, dtype="int8")
    factor = 1 / 3.7 / (1.9 if twice else 1)
    kernel.call("tensor_scalar", dst=result, data=source, op0="multiply", operand0=factor)
    kernel.store(result)


@pytest.mark.parametrize("twice", [False, True])
def test_integers_beside_ties_are_either_neighbour(twice: bool) -> None:
    steps = np.tile(np.arange(-60, 60, dtype=np.float64), (16, 1))
    differ = 0
    for seed in range(5):
        values = near_ties(steps, seed)
        kernel = Kernel()
        to_int8(kernel, values, twice)
        wanted = np.rint(values.astype(np.float64) / 3.7)
        found = asked(kernel, wanted)
        assert found.verdict == "rounding", found.outputs[0].use
        differ += int((found.outputs[0].values != wanted).sum())
    assert differ > 50


@pytest.mark.parametrize("mode", [np.trunc, np.floor, np.ceil])
def test_another_rounding_of_integers_is_a_defect(mode: Callable[[Float64], Float64]) -> None:
    values = 30 * normal(16, 64)
    kernel = Kernel()
    to_int8(kernel, values, twice=False)
    exact = values.astype(np.float64) / 3.7
    found = asked(kernel, mode(exact))
    assert found.verdict == "defect"
    assert found.outputs[0].over == np.count_nonzero(mode(exact) != np.rint(exact))


# Digits that cancel


def variance(kernel: Kernel, values: Array, single_pass: bool) -> None:
    """The variance of each row, by E[x^2] - E[x]^2 or from the deviations."""
    rows, columns = values.shape
    source = kernel.load(values)
    mean, result, square = kernel.sbuf(rows, 1), kernel.sbuf(rows, 1), kernel.sbuf(rows, columns)

    def averaged(data: View, into: View) -> None:
        kernel.call("tensor_reduce", dst=into, data=data, op="add", axis=(1,), keepdims=True)
        kernel.call("tensor_scalar", dst=into, data=into, op0="multiply", operand0=1 / columns)

    averaged(source, mean)
    if single_pass:
        kernel.call("tensor_tensor", dst=square, data1=source, data2=source, op="multiply")
        squared, averages = kernel.sbuf(rows, 1), kernel.sbuf(rows, 1)
        averaged(square, averages)
        kernel.call("tensor_tensor", dst=squared, data1=mean, data2=mean, op="multiply")
        kernel.call("tensor_tensor", dst=result, data1=averages, data2=squared, op="subtract")
    else:
        centred = kernel.sbuf(rows, columns)
        kernel.call("tensor_scalar", dst=centred, data=source, op0="subtract", operand0=mean)
        kernel.call("tensor_tensor", dst=square, data1=centred, data2=centred, op="multiply")
        averaged(square, result)
    kernel.store(result)


@pytest.mark.parametrize("columns", [256, 300])
@pytest.mark.parametrize("mean", [0.0, 1000.0])
def test_a_single_pass_is_cancellation_where_the_mean_is_large(mean: float, columns: int) -> None:
    for seed in range(3):
        values = (mean + np.random.default_rng(seed).standard_normal((32, columns))).astype(np.float32)
        wanted = values.astype(np.float64).var(axis=1, keepdims=True)
        stable, unstable = Kernel(), Kernel()
        variance(stable, values, single_pass=False)
        variance(unstable, values, single_pass=True)
        assert asked(stable, wanted).verdict == "rounding"
        found = asked(unstable, wanted)
        assert found.verdict == ("defect" if mean else "rounding")
        if mean:
            assert [cause.name for cause in found.causes] == ["cancellation"]


# Shadows


@pytest.mark.parametrize("spoilt", range(1, 5))
def test_the_first_deviating_instruction_is_the_one_that_rounds(spoilt: int) -> None:
    kernel = Kernel()
    values = normal(32, 32)
    tile, at = kernel.load(values), -1
    exact = values.astype(np.float64)
    for number in range(6):
        tile, made = scaled(kernel, tile, 1.1 + number, "bfloat16" if number == spoilt else "float32")
        exact = exact * (1.1 + number)
        at = made if number == spoilt else at
    kernel.store(tile)
    found = asked(kernel, exact)
    program = kernel.program()
    place = program.place_text(int(program.columns.place[at]))
    assert found.verdict == "defect"
    assert found.deviation.startswith(f"{place}: tensor_scalar writes")
    assert [(cause.name, cause.line) for cause in found.causes] == [("low-precision", place)]
    assert [(cost.line, cost.dtype, cost.count) for cost in found.costs] == [(place, "bfloat16", 1)]
    # half a unit of bf16, of the largest number of that store
    assert found.costs[0].error <= 2.0**-8 * np.abs(exact).max()
    assert found.costs[0].error == pytest.approx(
        found.costs[0].share * found.outputs[0].tolerance.allowed.max(), rel=1
    )


def test_nothing_deviates_where_all_is_rounding() -> None:
    kernel = Kernel()
    values = normal(32, 32)
    tile, _ = scaled(kernel, kernel.load(values), 1.3)
    kernel.store(tile)
    found = asked(kernel, values.astype(np.float64) * 1.3)
    assert (found.verdict, found.deviation, found.causes, found.growth, found.costs) == (
        "rounding", "", (), (), ()
    )  # fmt: skip


def test_the_error_of_a_sum_in_bf16_grows_with_the_root_of_its_length() -> None:
    """Sums of n numbers around 1 are near n; each of n stores errs by half a unit of its own size."""
    terms = 1 + 0.25 * normal(64, 32, 32)
    kernel = Kernel()
    total = kernel.sbuf(32, 32, dtype="bfloat16")
    kernel.call("memset", dst=total, value=0.0)
    with kernel.loop(8):  # repeated, so that one line adds
        for each in terms[:8]:
            kernel.call("tensor_tensor", dst=total, data1=total, data2=kernel.load(each), op="add")
    result = kernel.sbuf(32, 32)
    kernel.copy(result, total)
    kernel.store(result)
    found = asked(kernel, 8 * terms[:8].astype(np.float64).sum(axis=0))
    assert found.verdict == "defect"
    assert "low-precision-sum" in [cause.name for cause in found.causes]
    assert found.growth
    for series in found.growth:
        assert series.additions[0] == 1 and series.additions[-1] == 8
        assert series.error[-1] > 2 * series.error[0]
        # after 57 additions and more
        law = 2.0**-8 / np.sqrt(8 * np.log(2)) * np.sqrt(60 / 3)
        assert law / 2 < series.error[-1] < 2 * law


def looped(kernel: Kernel, values: Array, times: int, as_loop: bool) -> None:
    tile = kernel.load(values)

    def step() -> None:
        kernel.call("tensor_scalar", dst=tile, data=tile, op0="multiply", operand0=1.25)

    if as_loop:
        with kernel.loop(times):
            step()
    else:
        for _ in range(times):
            step()
    kernel.store(tile)


def test_digests_of_a_loop_are_those_of_its_trips() -> None:
    values = normal(16, 16)
    kept = []
    for as_loop in (True, False):
        kernel = Kernel()
        looped(kernel, values, 5, as_loop)
        program = kernel.program()
        digest = Digest(*works(program, ROWS))
        execute(program, kernel.arguments, around=digest)
        kept.append([values for _, values in digest.found])
    assert len(kept[0]) == len(kept[1]) == 7
    for one, other in zip(*kept, strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_allclose(kept[0][5].max() / kept[0][0].max(), 1.25**5, rtol=1e-6)


def test_digests_keep_few_elements_of_large_writes() -> None:
    kernel = Kernel()
    tile, _ = scaled(kernel, kernel.load(normal(128, 2000)), 1.5)
    kernel.store(tile)
    program = kernel.program()
    digest = Digest(*works(program, ROWS))
    execute(program, kernel.arguments, around=digest)
    assert [values.size for _, values in digest.found] == [64] * 3


# Symptoms


def test_infinities_begin_where_no_operand_has_any() -> None:
    kernel = Kernel()
    values = np.full((4, 4), 50.0, np.float32)
    tile = kernel.load(values)
    made = []
    for _ in range(3):
        result = kernel.sbuf(4, 4)
        made.append(kernel.call("activation", dst=result, data=tile, op="exp"))
        tile = result
    kernel.store(tile)
    program = kernel.program()
    watch = NotFinite(*works(program, ROWS))
    execute(program, kernel.arguments, around=watch)
    ((index, (value, largest)),) = watch.found.items()
    assert index == made[1] and np.isinf(value)
    assert largest == pytest.approx(np.exp(50.0), rel=1e-6)


def test_what_only_float32_cannot_hold_is_named() -> None:
    kernel = Kernel()
    values = np.linspace(1, 100, 64).reshape(8, 8).astype(np.float32)
    power, logged = kernel.sbuf(8, 8), kernel.sbuf(8, 8)
    kernel.call("activation", dst=power, data=kernel.load(values), op="exp")
    kernel.call("activation", dst=logged, data=power, op="log")
    kernel.store(logged)
    found = asked(kernel, values.astype(np.float64))
    assert found.verdict == "defect"
    assert found.causes[0].name == "exp-unshifted"
    assert found.outputs[0].use == np.inf
    assert found.outputs[0].over == np.count_nonzero(~np.isfinite(found.outputs[0].values))


@pytest.mark.parametrize(("dtype", "name"), [("float16", "saturation-lost"), ("float8_e5m2", "fp8-overflow")])
def test_what_a_narrow_dtype_cannot_hold_is_named(dtype: str, name: str) -> None:
    kernel = Kernel()
    values = normal(8, 8)
    values[3, 3] = 100
    narrow, _ = scaled(kernel, kernel.load(values), 1000.0, dtype)
    result, _ = scaled(kernel, narrow, 0.001)
    kernel.store(result)
    found = asked(kernel, values.astype(np.float64))
    assert found.causes[0].name == name
    assert found.causes[0].evidence == "not finite"


# Orders


def by_hand(order: Order, terms: Array, seed: int) -> Array:
    """The float32 sum of the first axis in that order."""
    terms = terms.astype(np.float32)
    if order is Order.reversed:
        terms = terms[::-1]
    if order is Order.shuffled:
        terms = terms[np.random.default_rng(seed).permutation(len(terms))]
    if order is Order.pairwise:
        while len(terms) > 1:
            paired = [one + other for one, other in zip(terms[::2], terms[1::2], strict=False)]
            terms = np.stack(paired + ([terms[-1]] if len(terms) % 2 else []))
        return terms[0]
    if order is Order.blocks:
        blocks = []
        for at in range(0, len(terms), BLOCK):
            total = terms[at]
            for each in terms[at + 1 : at + BLOCK]:
                total = total + each
            blocks.append(total)
        terms = np.stack(blocks)
    total = terms[0]
    for each in terms[1:]:
        total = total + each
    return total


def ordered(kernel: Kernel, order: Order, seed: int) -> Array:
    program = kernel.program()
    kinds, of = works(program, ROWS)
    return execute(program, kernel.arguments, around=Ordered(kinds, of, order, seed)).outputs[0].values


@pytest.mark.parametrize("order", Order)
@pytest.mark.parametrize("columns", [1, 5, 64, 100])
@pytest.mark.parametrize("negate", [False, True])
def test_sums_of_rows_are_taken_in_that_order(order: Order, columns: int, negate: bool) -> None:
    values = normal(16, columns)
    kernel = Kernel()
    total = kernel.sbuf(16, 1)
    kernel.call(
        "tensor_reduce",
        dst=total,
        data=kernel.load(values),
        op="add",
        axis=(1,),
        keepdims=True,
        negate=negate,
    )
    kernel.store(total)
    expected = by_hand(order, values.T, 7)
    found = ordered(kernel, order, 7)[:, 0]
    if order is Order.blocks:  # NumPy adds up to eight of a block side by side
        np.testing.assert_allclose(found, -expected if negate else expected, rtol=2e-5, atol=1e-6)
    else:
        np.testing.assert_array_equal(found, -expected if negate else expected)


@pytest.mark.parametrize("order", [Order.sequential, Order.reversed, Order.shuffled])
def test_products_of_a_matmul_are_added_in_that_order(order: Order) -> None:
    left, right = normal(80, 8), normal(80, 12, seed=1)
    kernel = Kernel()
    total = kernel.psum(8, 12)
    for part in (slice(0, 48), slice(48, 80)):
        kernel.matmul(total, kernel.load(left[part]), kernel.load(right[part]))
    result = kernel.sbuf(8, 12)
    kernel.copy(result, total)
    kernel.store(result)
    held = np.zeros((8, 12), np.float32)
    for part in (slice(0, 48), slice(48, 80)):
        terms = left[part][:, :, None] * right[part][:, None, :]
        if order is Order.reversed:
            terms = terms[::-1]
        if order is Order.shuffled:
            terms = terms[np.random.default_rng(3).permutation(len(terms))]
        for term in terms:
            held = held + term
    np.testing.assert_array_equal(ordered(kernel, order, 3), held)


@pytest.mark.parametrize("order", [Order.blocks, Order.pairwise])
def test_products_in_blocks_and_pairs_are_the_same_sum(order: Order) -> None:
    left, right = normal(100, 8), normal(100, 12, seed=1)
    kernel = Kernel()
    total = kernel.psum(8, 12)
    kernel.matmul(total, kernel.load(left), kernel.load(right))
    result = kernel.sbuf(8, 12)
    kernel.copy(result, total)
    kernel.store(result)
    exact = left.astype(np.float64).T @ right.astype(np.float64)
    found = ordered(kernel, order, 0)
    np.testing.assert_allclose(found, exact, rtol=0, atol=2e-5)
    parts = [left[at : at + BLOCK].T @ right[at : at + BLOCK] for at in range(0, 100, BLOCK)]
    if order is Order.blocks:
        held = np.zeros((8, 12), np.float32)
        for part in parts:
            held = held + part
        np.testing.assert_array_equal(found, held)


def test_sums_of_results_are_taken_in_that_order() -> None:
    values = normal(16, 40)
    kernel = Kernel()
    power, total = kernel.sbuf(16, 40), kernel.sbuf(16, 1)
    kernel.call(
        "activation", dst=power, data=kernel.load(values), op="exp", reduce_op="add", reduce_res=total
    )
    kernel.store(total)
    kernel.store(power)
    program = kernel.program()
    kinds, of = works(program, ROWS)
    for order in (Order.sequential, Order.reversed):
        sums, powers = execute(program, kernel.arguments, around=Ordered(kinds, of, order)).outputs
        np.testing.assert_array_equal(sums.values[:, 0], by_hand(order, powers.values.T, 0))


# The hook of `execute`, and edited Programs


def test_around_sees_every_instruction_and_may_change_what_it_writes() -> None:
    values = normal(8, 8)
    kernel = Kernel()
    tile, made = scaled(kernel, kernel.load(values), 2.0)
    kernel.store(tile)
    program = kernel.program()
    seen = []

    def around(step: Any, core: Any, index: int, operands: Any) -> None:
        seen.append((index, step.row.name))
        if index == made:
            np.testing.assert_array_equal(operands[step.slots["data"]].load(core.formats), values)
        step.run(core, index, operands)
        if index == made:
            operands[step.slots["dst"]].target()[...] += 1

    found = execute(program, kernel.arguments, around=around).outputs[0].values
    np.testing.assert_array_equal(found, 2 * values + 1)
    assert seen == [(at, program.instruction(at).opcode) for at in range(len(program))]
    np.testing.assert_array_equal(execute(program, kernel.arguments).outputs[0].values, 2 * values)


def test_an_edited_program_differs_in_the_instructions_that_are_named_only() -> None:
    values = normal(8, 8)
    kernel = Kernel()
    first, one = scaled(kernel, kernel.load(values), 2.0)
    second, two = scaled(kernel, first, 2.0)
    kernel.store(second)
    program = kernel.program()
    other = edited(program, {two: {**program.instruction(two).immediates, "operand0": 5.0}})
    np.testing.assert_array_equal(execute(other, kernel.arguments).outputs[0].values, 10 * values)
    np.testing.assert_array_equal(execute(program, kernel.arguments).outputs[0].values, 4 * values)
    assert other.instruction(one).immediates == program.instruction(one).immediates
    assert edited(program, {}).immediates == program.immediates
    with pytest.raises(ProgramError, match=f"instruction 99 of {len(program)} cannot be edited"):
        edited(program, {99: {}})
    with pytest.raises(ProgramError, match="instruction -1 of"):
        edited(program, {-1: {}})


# diagnose


def simple(values: Array, factor: float = 1.3) -> Kernel:
    kernel = Kernel()
    tile, _ = scaled(kernel, kernel.load(values), factor)
    kernel.store(tile)
    return kernel


def test_numbers_and_shapes_that_do_not_fit_are_refused_in_one_sentence() -> None:
    values = normal(8, 16)
    kernel, exact = simple(values), values.astype(np.float64) * 1.3
    with pytest.raises(ValueError, match="^the kernel returns 1 tensors, the reference 2$"):
        asked(kernel, exact, exact)
    with pytest.raises(ValueError, match="^the kernel returns 1 tensors, the reference 0$"):
        asked(kernel)
    with pytest.raises(ValueError, match=r"^output out has shape \[8, 16\], the reference's \[16, 8\]$"):
        asked(kernel, exact.T)
    with pytest.raises(ValueError, match=r"^output out has shape \[8\], the reference's \[8, 16\]$"):
        asked(kernel, exact, got=[values[:, 0]])
    for got in ([], [exact, exact]):
        with pytest.raises(
            ValueError, match=f"^the kernel returns 1 tensors, {len(got)} were computed elsewhere"
        ):
            asked(kernel, exact, got=got)
    with pytest.raises(ValueError, match="^the kernel returns 1 tensors, 2 were computed elsewhere"):
        asked(kernel, exact, exact, got=[exact, exact])


def test_outputs_from_elsewhere_are_judged_in_place_of_the_programs_own() -> None:
    values = normal(16, 16)
    kernel, exact = simple(values), values.astype(np.float64) * 1.3
    stored = (values * np.float32(1.3)).astype(np.float32)
    assert asked(kernel, exact, got=[stored]).verdict == "rounding"
    assert asked(kernel, exact, got=[stored.astype(np.float64)]).verdict == "rounding"
    spoilt = stored.copy()
    spoilt[3, 4] += 1e-3
    found = asked(kernel, exact, got=[spoilt])
    assert (found.verdict, found.outputs[0].over, found.outputs[0].index) == ("defect", 1, (3, 4))
    assert found.outputs[0].got == float(spoilt[3, 4]) and found.outputs[0].wanted == exact[3, 4]
    assert found.sentence.startswith("the Program is right: ")


def test_outputs_from_elsewhere_are_numbers_of_the_outputs_dtype() -> None:
    values = normal(16, 16).astype(BF16)
    kernel = Kernel()
    tile, _ = scaled(kernel, kernel.load(values), 1.5, "bfloat16")
    kernel.store(tile)
    exact = values.astype(np.float64) * 1.5
    assert asked(kernel, exact, got=[exact.astype(BF16)]).verdict == "rounding"
    assert asked(kernel, exact, got=[np.zeros_like(exact).astype(BF16)]).verdict == "defect"


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_right_where_it_is_wanted(special: float) -> None:
    values = normal(16, 16)
    values[2, 3] = special
    kernel, exact = simple(values), values.astype(np.float64) * 1.3
    assert asked(kernel, exact).verdict == "rounding"
    for other in (0.0, 1.0, -special if np.isinf(special) else np.inf):
        wrong = exact.copy()
        wrong[2, 3] = other
        found = asked(kernel, wrong)
        assert (found.verdict, found.outputs[0].over, found.outputs[0].use) == ("defect", 1, np.inf)


def test_what_overflows_in_the_output_is_right_where_the_reference_does_not_fit() -> None:
    values = np.full((4, 4), 60000.0, np.float32)
    values[0] = 1000.0
    kernel = Kernel()
    tile, _ = scaled(kernel, kernel.load(values), 2.0, "float16")
    kernel.store(tile)
    assert asked(kernel, values.astype(np.float64) * 2).verdict == "rounding"
    assert asked(kernel, values.astype(np.float64)).verdict == "defect"


def test_each_of_several_outputs_is_judged() -> None:
    values = normal(16, 16)
    kernel = Kernel()
    source = kernel.load(values)
    for factor, name in ((1.3, "one"), (1.7, "two")):
        tile, _ = scaled(kernel, source, factor)
        out = kernel.hbm(16, 16)
        kernel.copy(out, tile)
        kernel.output(out, name=name)
    exact = values.astype(np.float64)
    assert asked(kernel, exact * 1.3, exact * 1.7).verdict == "rounding"
    found = asked(kernel, exact * 1.3, exact * 1.9)
    assert found.verdict == "defect"
    assert [(each.name, each.verdict) for each in found.outputs] == [("one", "rounding"), ("two", "defect")]


def test_integers_that_are_off_by_one_are_wrong() -> None:
    values = np.arange(64, dtype=np.int32).reshape(8, 8)
    kernel = Kernel()
    tile = kernel.sbuf(8, 8, dtype="int32")
    kernel.call("tensor_scalar", dst=tile, data=kernel.load(values), op0="add", operand0=3)
    kernel.store(tile)
    assert asked(kernel, values + 3).verdict == "rounding"
    wrong = (values + 3).astype(np.float64)
    wrong[7, 7] += 1
    found = asked(kernel, wrong)
    assert (found.verdict, found.outputs[0].over, found.outputs[0].index) == ("defect", 1, (7, 7))


def test_a_defect_without_a_known_cause_is_told_by_its_pattern() -> None:
    values = normal(64, 64)
    kernel, exact = simple(values), values.astype(np.float64) * 1.3
    exact[48:] = np.sin(exact[48:] * 7) + 5
    found = asked(kernel, exact)
    assert found.verdict == "defect" and found.causes == ()
    assert found.outputs[0].over == 16 * 64
    assert found.outputs[0].patterns
    assert found.outputs[0].patterns[0].sentence.rstrip(".").lower() in found.sentence.lower()


@pytest.mark.parametrize("wrong", [False, True])
def test_no_time_still_gives_a_verdict_and_says_what_was_left_out(wrong: bool) -> None:
    values = normal(16, 16)
    kernel, exact = simple(values), values.astype(np.float64) * (1.9 if wrong else 1.3)
    found = asked(kernel, exact, seconds=0.0)
    assert found.verdict == ("defect" if wrong else "rounding")
    assert bool(found.skipped) == wrong


def test_arguments_references_and_outputs_are_left_as_they_were() -> None:
    values = normal(16, 16)
    values.flags.writeable = False
    kernel = Kernel()
    source = kernel.load(values)
    tile = kernel.sbuf(16, 16)
    kernel.call(
        "tensor_scalar", dst=tile, data=source, op0="subtract", operand0=1.1, op1="multiply", operand1=0.7
    )
    kernel.call("tensor_scalar", dst=tile, data=tile, op0="add", operand0=1.1, op1="multiply", operand1=0.7)
    kernel.store(tile)
    wanted = [values.astype(np.float64)]
    got = [values.copy()]
    before = [values.copy(), wanted[0].copy(), got[0].copy()]

    def reference(arrays: Any) -> list[Array]:
        return [np.asarray(arrays[0], np.float64)]

    program = kernel.program()
    for given_got in (None, got):
        diagnose(program, kernel.arguments, wanted, reference=reference, got=given_got)
    for now, then in zip((values, wanted[0], got[0]), before, strict=True):
        assert now.tobytes() == then.tobytes()
    assert (
        execute(program, kernel.arguments).outputs[0].values.tobytes()
        == execute(kernel.program(), kernel.arguments).outputs[0].values.tobytes()
    )


@pytest.mark.parametrize("wrong", [False, True])
def test_two_cores_are_judged_together(wrong: bool) -> None:
    values = normal(2, 16, 16)
    kernel = Kernel(lnc=2)
    outputs = []
    for core in range(2):
        tile, _ = scaled(kernel, kernel.load(values[core]), 1.3 if core == 0 or not wrong else 1.4)
        out = kernel.hbm(16, 16)
        kernel.copy(out, tile)
        outputs.append(out)
        if core == 0:
            kernel.switch_core()
    for at, out in enumerate(outputs):
        kernel.output(out, name=f"out{at}")
    found = asked(kernel, *(values.astype(np.float64) * 1.3))
    assert [each.verdict for each in found.outputs] == ["rounding", "defect" if wrong else "rounding"]


@pytest.mark.parametrize("wrong", [False, True])
def test_loops_on_the_device_are_run_in_every_experiment(wrong: bool) -> None:
    values = normal(16, 16)
    kernel = Kernel()
    looped(kernel, values, 6, as_loop=True)
    found = asked(kernel, values.astype(np.float64) * 1.25 ** (5 if wrong else 6))
    assert found.verdict == ("defect" if wrong else "rounding")


def test_undefined_memory_is_a_defect_where_it_shows() -> None:
    values = normal(16, 16)
    kernel = Kernel()
    source, tile = kernel.load(values), kernel.sbuf(16, 16)
    kernel.call("tensor_scalar", dst=tile[:8], data=source[:8], op0="multiply", operand0=1.3)
    kernel.store(tile)
    found = asked(kernel, values.astype(np.float64) * 1.3)
    assert found.verdict == "defect"
    assert found.outputs[0].over == 8 * 16


def test_an_instruction_without_a_meaning_is_a_defect() -> None:
    values = normal(16, 16)
    kernel = Kernel()
    tile, _ = scaled(kernel, kernel.load(values), 1.3)
    result = kernel.sbuf(16, 16)
    kernel.call("tensor_tensor", dst=result, data1=tile, data2=tile[:, :8], op="add")
    kernel.store(result)
    assert asked(kernel, values.astype(np.float64) * 2.6).verdict == "defect"


# Random chains of elementwise instructions


def diagnosed(chain: Chain) -> tuple[Diagnosis, Kernel, Float64] | None:
    """None where digits cancel, or numbers leave the range in which all of this is about rounding."""
    kernel, exact, fine = built(chain)
    if not fine:
        return None
    return asked(kernel, exact), kernel, exact


quick = settings(deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


@settings(quick, max_examples=100)
@given(chains())
def test_honest_chains_are_never_called_a_defect(chain: Chain) -> None:
    found = diagnosed(chain)
    assume(found is not None)
    assert found is not None
    assert found[0].verdict == "rounding", found[0].outputs[0].use


@settings(quick, max_examples=10)
@given(chains(), st.data())
def test_a_number_that_is_one_in_a_hundred_off_is_called_a_defect(chain: Chain, data: Any) -> None:
    found = diagnosed(chain)
    assume(found is not None and chain.numbered)
    assert found is not None
    other, _, fine = built(moved(chain, data.draw(st.sampled_from(chain.numbered))))
    assume(fine)
    allowed = found[0].outputs[0].tolerance.allowed
    have = execute(other.program(), other.arguments).outputs[0].values.astype(np.float64)
    distance = np.abs(have - found[2])
    assume(float((distance / allowed).max()) > 20)
    assert asked(other, found[2]).verdict == "defect"

"""ALU operators against formulas in plain Python, and their engines, releases and reductions as documented."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nkireview.isa.alu import ALU_OPS, BY_NAME, of, ops_for, reduce_fn
from nkireview.isa.release import LATEST, LEGACY, Release

pytestmark = [pytest.mark.filterwarnings("error"), pytest.mark.usefixtures("as_executed")]

BINARY: dict[str, Callable[[float, float], float]] = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "maximum": lambda x, y: x if x > y else y,
    "minimum": lambda x, y: x if x < y else y,
    "equal": lambda x, y: float(x == y),
    "not_equal": lambda x, y: float(x != y),
    "greater_equal": lambda x, y: float(x >= y),
    "greater": lambda x, y: float(x > y),
    "less_equal": lambda x, y: float(x <= y),
    "less": lambda x, y: float(x < y),
    "logical_and": lambda x, y: float(bool(x) and bool(y)),
    "logical_or": lambda x, y: float(bool(x) or bool(y)),
    "logical_xor": lambda x, y: float(bool(x) != bool(y)),
    "abs_max": lambda x, y: x if abs(x) > abs(y) else y,
    "abs_min": lambda x, y: x if abs(x) < abs(y) else y,
}


def quotient(x: float, y: float) -> float:
    """IEEE division, which Python's refuses by zero."""
    if y:
        return x / y
    return math.copysign(math.inf, x) * math.copysign(1.0, y) if x else math.nan


DIVISIONS: dict[str, Callable[[float, float], float]] = {
    "divide": quotient,
    "mod": lambda x, y: x - math.floor(x / y) * y if y else math.nan,
    "fmod": lambda x, y: math.fmod(x, y) if y else math.nan,
}
"""Those of the legacy generation alone: mod has the sign of the divisor, fmod that of the dividend."""
UNARY: dict[str, Callable[[float], float]] = {
    "logical_not": lambda x: float(x == 0),
    "abs": abs,
    "square": lambda x: x * x,
    "relu": lambda x: x if x > 0 else 0.0,
    "bypass": lambda x: x,
}
POSITIVE: dict[str, Callable[[float], float]] = {
    "rsqrt": lambda x: 1 / math.sqrt(x),
    "reciprocal": lambda x: 1 / x,
}
BITVEC: dict[str, Callable[[int, int], int]] = {
    "bitwise_and": lambda x, y: x & y,
    "bitwise_or": lambda x, y: x | y,
    "bitwise_xor": lambda x, y: x ^ y,
}
SHIFTS = ("left_shift", "right_shift")
WRAPPING: dict[str, Callable[[int, int], int]] = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
}
GRID = [-4.0, -2.5, -1.0, -0.0, 0.0, 0.5, 1.0, 2.5, 3.0]
INT32 = st.integers(-(2**31), 2**31 - 1)


def wrapped(value: int, dtype: type) -> int:
    """``value`` as two's complement or unsigned number of the width of ``dtype``."""
    limits = np.iinfo(dtype)
    return (value - int(limits.min)) % (1 << limits.bits) + int(limits.min)


def test_every_operator_is_tested_here() -> None:
    tested = {*BINARY, *DIVISIONS, *UNARY, *POSITIVE, *BITVEC, *SHIFTS, "invert", "power"}
    assert tested == set(BY_NAME)
    assert {op.name for op in ops_for("bitvec")} == {*BITVEC, *SHIFTS, "invert"}
    assert len(ops_for("bitvec")) + len(ops_for("arithmetic")) == len(ALU_OPS)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", BINARY)
def test_binary_operators_broadcast_and_keep_the_dtype(name: str, dtype: type) -> None:
    rows, columns = np.array(GRID, dtype)[:, None], np.array(GRID, dtype)[None, :]
    expected = [[BINARY[name](x, y) for y in GRID] for x in GRID]
    got = BY_NAME[name].fn(rows, columns)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("number", [2.5, -1, 0, np.float64(0.5), np.array(0.5)])
def test_a_number_on_either_side_follows_the_array(name: str, dtype: type, number: float) -> None:
    array = np.array(GRID, dtype)
    right, left = BY_NAME[name].fn(array, number), BY_NAME[name].fn(number, array)
    assert right.dtype == left.dtype == dtype
    np.testing.assert_array_equal(right, [BINARY[name](x, float(number)) for x in GRID])
    np.testing.assert_array_equal(left, [BINARY[name](float(number), x) for x in GRID])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", DIVISIONS)
def test_divisions_take_tiles_and_numbers_on_either_side(name: str, dtype: type) -> None:
    formula, op = DIVISIONS[name], BY_NAME[name]
    rows, columns = np.array(GRID, dtype)[:, None], np.array(GRID, dtype)[None, :]
    got = op.fn(rows, columns)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, np.array([[formula(x, y) for y in GRID] for x in GRID]).astype(dtype))
    for number in (2.5, -3, 0):
        right, left = op.fn(np.array(GRID, dtype), number), op.fn(number, np.array(GRID, dtype))
        assert right.dtype == left.dtype == dtype
        wanted = [formula(x, float(number)) for x in GRID]
        np.testing.assert_array_equal(right, np.array(wanted).astype(dtype))
        wanted = [formula(float(number), x) for x in GRID]
        np.testing.assert_array_equal(left, np.array(wanted).astype(dtype))


def test_divisions_are_of_the_legacy_generation_alone_and_run_on_vector() -> None:
    for name in DIVISIONS:
        op = BY_NAME[name]
        assert LEGACY in op.releases
        assert Release(0, 2) not in op.releases
        assert not op.reduce
        assert set(op.engines.values()) == {("vector",)}


@pytest.mark.parametrize("name", [op.name for op in ops_for("arithmetic")])
def test_zero_dimensions_keep_float32(name: str) -> None:
    for x in (np.float32(2), np.array(2, np.float32)):
        got = BY_NAME[name].fn(x, 0.1)
        assert (type(got), got.dtype, got.shape) == (np.ndarray, np.float32, ())


def test_a_number_is_rounded_to_the_compute_dtype_first() -> None:
    got = BY_NAME["multiply"].fn(np.array([1.0], np.float32), 0.1)
    assert got[0] == np.float32(0.1)
    assert BY_NAME["equal"].fn(np.array([np.float32(0.1)]), 0.1)[0] == 1.0
    assert BY_NAME["add"].fn(np.array([0.0], np.float32), 1e300)[0] == np.inf


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", [*UNARY, *POSITIVE])
def test_unary_operators_ignore_their_operand(name: str, dtype: type) -> None:
    formula = {**UNARY, **POSITIVE}[name]
    grid = GRID if name in UNARY else [0.25, 0.5, 1.0, 3.0, 1e20]
    array = np.array(grid, dtype)
    expected = np.array([formula(float(x)) for x in array])
    op = BY_NAME[name]
    assert op.arity == 1
    for got in (op.fn(array), op.fn(array, 0.0), op.fn(array, None), op.fn(array, np.full(1, 7, dtype))):
        assert got.dtype == dtype
        np.testing.assert_allclose(got, expected, rtol=2 * np.finfo(dtype).eps, atol=0)


def test_power() -> None:
    x, y = (
        np.array([2.0, 9.0, -2.0, -2.0, 0.0], np.float32),
        np.array([10.0, 0.5, 3.0, 0.5, -1.0], np.float32),
    )
    got = BY_NAME["power"].fn(x, y)
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, [1024.0, 3.0, -8.0, np.nan, np.inf])


def test_ties_of_magnitude_give_the_second_operand() -> None:
    one = np.ones(1, np.float32)
    assert BY_NAME["abs_max"].fn(one, -1.0)[0] == -1.0
    assert BY_NAME["abs_min"].fn(one, -1.0)[0] == -1.0


def test_nan_and_overflow_pass_without_warning() -> None:
    x = np.array([np.nan, 3e38, 0.0, -1.0], np.float32)
    assert np.isnan(BY_NAME["maximum"].fn(x, 0.0)[0])
    assert np.isnan(BY_NAME["minimum"].fn(0.0, x)[0])
    assert BY_NAME["square"].fn(x)[1] == np.inf
    assert BY_NAME["reciprocal"].fn(x)[2] == np.inf
    assert np.isnan(BY_NAME["rsqrt"].fn(x)[3])
    assert BY_NAME["equal"].fn(x, x).tolist() == [0.0, 1.0, 1.0, 1.0]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32])
@pytest.mark.parametrize("name", BITVEC)
def test_bitwise_operators_work_on_patterns(name: str, dtype: type) -> None:
    limits = np.iinfo(dtype)
    values = [int(limits.min), int(limits.max), 0, 1, 85]
    x, y = np.array(values, dtype)[:, None], np.array(values, dtype)[None, :]
    got = BY_NAME[name].fn(x, y)
    assert got.dtype == dtype
    assert got.tolist() == [[BITVEC[name](a, b) for b in values] for a in values]


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32, np.uint32])
def test_shifts_are_logical_and_lose_what_leaves_the_width(dtype: type) -> None:
    bits = np.iinfo(dtype).bits
    values = np.array([np.iinfo(dtype).min, np.iinfo(dtype).max, 1, 5], dtype)
    unsigned = [int(value) % (1 << bits) for value in values]
    for count in (0, 1, bits - 1, bits):
        left, right = BY_NAME["left_shift"].fn(values, count), BY_NAME["right_shift"].fn(values, count)
        assert left.dtype == right.dtype == dtype
        assert left.tolist() == [wrapped(value << count, dtype) for value in unsigned]
        assert right.tolist() == [wrapped(value >> count, dtype) for value in unsigned]


def test_the_reversed_shift_takes_the_number_first() -> None:
    counts = np.array([0, 3, 31], np.int32)
    assert BY_NAME["left_shift"].fn(1, counts).tolist() == [1, 8, -(2**31)]


@settings(deadline=None)
@given(st.lists(INT32, min_size=1))
def test_invert_is_xor_with_all_ones(values: list[int]) -> None:
    array = np.array(values, np.int32)
    assert BY_NAME["invert"].fn(array).tolist() == [~value for value in values]
    assert BY_NAME["bitwise_xor"].fn(array, -1).tolist() == [~value for value in values]
    assert BY_NAME["bitwise_xor"].fn(array, 0xFFFFFFFF).tolist() == [~value for value in values]


def test_bit_patterns_of_other_types() -> None:
    assert BY_NAME["invert"].fn(np.array([0], np.uint8), 0).tolist() == [255]
    signed, unsigned = np.array([-1], np.int32), np.array([0x80000000], np.uint32)
    got = BY_NAME["bitwise_and"].fn(signed, unsigned)
    assert (got.dtype, got.tolist()) == (np.int32, [-(2**31)])
    narrow = BY_NAME["bitwise_or"].fn(np.array([0x100], np.int32), np.array([-1], np.int8))
    assert (narrow.dtype, narrow.tolist()) == (np.int32, [0x1FF])


@pytest.mark.parametrize("dtype", [np.int32, np.uint32])
@pytest.mark.parametrize("name", WRAPPING)
@settings(deadline=None)
@given(pairs=st.lists(st.tuples(INT32, INT32), min_size=1))
def test_integer_arithmetic_wraps_around(name: str, dtype: type, pairs: list[tuple[int, int]]) -> None:
    xs, ys = ([wrapped(value, dtype) for value in side] for side in zip(*pairs, strict=True))
    int_fn = BY_NAME[name].int_fn
    assert int_fn is not None
    got = int_fn(np.array(xs, dtype), np.array(ys, dtype))
    assert got.dtype == dtype
    assert got.tolist() == [wrapped(WRAPPING[name](x, y), dtype) for x, y in zip(xs, ys, strict=True)]


@pytest.mark.parametrize("name", sorted({*BINARY} - {*WRAPPING, "abs_max", "abs_min"}))
@settings(deadline=None)
@given(x=INT32, y=INT32, near=st.booleans())
def test_integer_order_is_exact(name: str, x: int, y: int, near: bool) -> None:
    y = min(x + 1, 2**31 - 1) if near else y
    int_fn = BY_NAME[name].int_fn
    assert int_fn is not None
    got = int_fn(np.array([x], np.int32), np.array([y], np.int32))
    assert (got.dtype, got[0]) == (np.int32, int(BINARY[name](x, y)))


@pytest.mark.parametrize("name", [op.name for op in ALU_OPS if op.int_fn is None])
def test_no_integer_form_where_none_is_documented(name: str) -> None:
    assert BY_NAME[name].kind == "bitvec" or name in {
        *("power", "abs_max", "abs_min"),
        *DIVISIONS,
        *UNARY,
        *POSITIVE,
    }


def test_legal_reductions_are_those_of_the_operator_table() -> None:
    assert [op.name for op in ALU_OPS if op.reduce] == [
        "bitwise_and",
        "bitwise_or",
        "bitwise_xor",
        "add",
        "subtract",
        "multiply",
        "maximum",
        "minimum",
        "logical_and",
        "logical_or",
        "logical_xor",
    ]


@pytest.mark.parametrize("name", [op.name for op in ALU_OPS if op.identity is not None])
@settings(deadline=None)
@given(value=st.sampled_from([-3, 0, 1, 7]))
def test_the_identity_changes_nothing_the_operator_would_keep(name: str, value: int) -> None:
    op = BY_NAME[name]
    dtype = np.int32 if op.kind == "bitvec" else np.float32
    assert op.identity is not None
    got = op.fn(np.array([value], dtype), op.identity)[0]
    assert got == (float(value != 0) if name.startswith("logical") else value)


@pytest.mark.parametrize(
    ("name", "identity"),
    [("add", 0), ("subtract", 0), ("multiply", 1), ("maximum", -math.inf), ("minimum", math.inf)],
)
def test_documented_reset_values(name: str, identity: float) -> None:
    assert BY_NAME[name].identity == identity


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axes", [(2,), (1, 2), (-1, -2), (0,), (0, 2), (0, 1, 2)])
@pytest.mark.parametrize("name", [op.name for op in ALU_OPS if op.identity is not None])
def test_reductions_fold_in_stream_order(name: str, axes: tuple[int, ...], keepdims: bool) -> None:
    op = BY_NAME[name]
    random = np.random.default_rng(7)
    dtype = np.int32 if op.kind == "bitvec" else np.float32
    values = random.integers(-3, 4, (2, 3, 4)).astype(dtype)
    formula = BITVEC[name] if op.kind == "bitvec" else BINARY[name]
    reduced = sorted(axis % 3 for axis in axes)
    kept = [axis for axis in range(3) if axis not in reduced]
    lanes = values.transpose(*kept, *reduced).reshape(-1, math.prod(values.shape[axis] for axis in reduced))
    expected = [functools.reduce(formula, lane) for lane in lanes.tolist()]
    shape = [1 if axis in reduced else values.shape[axis] for axis in range(3)]
    got = reduce_fn(op)(values, axes, keepdims)
    assert got.dtype == dtype
    assert list(got.shape) == (shape if keepdims else [values.shape[axis] for axis in kept])
    np.testing.assert_array_equal(got.ravel(), expected)


def test_reductions_accumulate_in_float32() -> None:
    got = reduce_fn(BY_NAME["multiply"])(np.full((2, 4), 1e20, np.float32), (1,))
    assert (got.dtype, got.tolist()) == (np.float32, [np.inf, np.inf])


@pytest.mark.parametrize("name", [op.name for op in ALU_OPS if op.identity is None])
def test_what_does_not_accumulate_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name} is no reduction operator: expected one of bitwise_and, "):
        reduce_fn(BY_NAME[name])


@pytest.mark.parametrize("name", ["average", "exp", "negative"])
def test_what_is_no_alu_operator_is_refused(name: str) -> None:
    with pytest.raises(ValueError) as caught:
        of(name)
    assert str(caught.value) == f"{name} is no ALU operator: expected one of {', '.join(BY_NAME)}"
    assert of("add") is BY_NAME["add"]


def test_operands_of_the_wrong_kind_are_refused() -> None:
    floats, integers = np.zeros(1, np.float32), np.zeros(1, np.int8)
    cases = [
        (
            lambda: BY_NAME["add"].fn(integers, 1),
            "add: expected two float32 or float64 operands, got int8, 1",
        ),
        (
            lambda: BY_NAME["add"].fn(floats, None),
            "add: expected two float32 or float64 operands, got float32, None",
        ),
        (lambda: BY_NAME["add"].fn(1.0, 2.0), "add: expected an array among the operands, got (1.0, 2.0)"),
        (
            lambda: BY_NAME["abs"].fn(integers),
            "abs: expected float32 or float64 values, got int8: convert them first",
        ),
        (
            lambda: BY_NAME["invert"].fn(floats),
            "invert: expected integer operands, one of them an array, got float32",
        ),
        (
            lambda: BY_NAME["bitwise_or"].fn(integers, 256),
            "bitwise_or: expected an integer of 8 bits beside int8, got 256",
        ),
        (
            lambda: BY_NAME["left_shift"].fn(integers, 1.0),
            "left_shift: expected an integer of 8 bits beside int8, got 1.0",
        ),
        (
            lambda: BY_NAME["maximum"].int_fn(integers, floats),
            "maximum: expected two integer operands, got int8, float32",
        ),
        (
            lambda: reduce_fn(BY_NAME["bitwise_or"])(floats, (0,)),
            "bitwise_or: expected integer operands, one of them an array, got float32",
        ),
    ]
    for call, sentence in cases:
        with pytest.raises(ValueError) as caught:
            call()
        assert str(caught.value) == sentence


def test_engines_by_generation() -> None:
    assert BY_NAME["add"].engines["v2"] == ("vector", "gpsimd")
    assert BY_NAME["multiply"].engines["v3"] == ("vector", "gpsimd", "scalar")
    assert BY_NAME["bitwise_and"].engines["v4"] == ("vector",)
    assert BY_NAME["power"].engines["v3"] == ("gpsimd",)
    assert BY_NAME["rsqrt"].engines["v3"] == ("gpsimd", "scalar")
    assert BY_NAME["reciprocal"].engines["v3"] == ("vector", "scalar")


def test_operators_that_came_with_trn3() -> None:
    late = {op.name for op in ALU_OPS if op.generations != ("v2", "v3", "v4")}
    assert late == {"abs_max", "abs_min", "square", "relu", "bypass"}
    assert {op.generations for op in ALU_OPS if op.name in late} == {("v4",)}
    assert {op.name for op in ALU_OPS if Release(0, 3) not in op.releases} == {
        *late,
        *DIVISIONS,
        "logical_not",
    }
    assert LEGACY in BY_NAME["logical_not"].releases
    assert LATEST not in BY_NAME["logical_not"].releases


def test_operators_can_be_dictionary_keys() -> None:
    assert {op: op.name for op in ALU_OPS}[of("add")] == "add"

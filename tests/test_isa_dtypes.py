"""Data types against bit layouts decoded in Python, and rounding against an exact nearest-even search."""

from __future__ import annotations

import math
import os
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nkireview.isa import dtypes
from nkireview.isa.dtypes import BY_NAME, DATA_TYPES, cast, of, to_compute, ulp, unit_roundoff

pytestmark = pytest.mark.filterwarnings("error")

# name: (exponent bits, fraction bits, bias, top exponent holds inf and NaN)
LAYOUTS = {
    "float16": (5, 10, 15, True),
    "bfloat16": (8, 7, 127, True),
    "tfloat32": (8, 10, 127, True),
    "float8_e4m3": (4, 3, 7, True),
    "float8_e4m3fn": (4, 3, 7, False),
    "float8_e5m2": (5, 2, 15, True),
}
INTEGERS = ("int8", "int16", "int32", "uint8", "uint16", "uint32")
PACKED = ("float8_e5m2_x4", "float8_e4m3fn_x4", "float4_e2m1fn_x4")


def magnitudes(name: str) -> np.ndarray:
    """Every nonnegative finite value, in the order of its bit pattern, decoded from the layout."""
    exponent_bits, fraction_bits, bias, reserves_top = LAYOUTS[name]
    pattern = np.arange(1 << (exponent_bits + fraction_bits))
    exponent, fraction = pattern >> fraction_bits, pattern & ((1 << fraction_bits) - 1)
    normal = np.ldexp(1 + fraction / 2.0**fraction_bits, exponent - bias)
    subnormal = np.ldexp(fraction / 2.0**fraction_bits, 1 - bias)
    values = np.where(exponent == 0, subnormal, normal)
    finite = exponent < (1 << exponent_bits) - 1 if reserves_top else pattern < pattern[-1]
    return values[finite]


def nearest_even(name: str, values: np.ndarray) -> np.ndarray:
    """Round float64 values by searching the table; midpoints of these formats are exact in float64."""
    table = magnitudes(name)
    beyond = 2 * table[-1] - table[-2]
    ladder = np.append(table, beyond)
    size = np.minimum(np.abs(values), beyond)
    lower = np.minimum(np.searchsorted(ladder, size, side="right") - 1, len(ladder) - 2)
    middle = (ladder[lower] + ladder[lower + 1]) / 2
    up = (size > middle) | ((size == middle) & (lower % 2 == 1))
    overflow = np.inf if LAYOUTS[name][3] else np.nan
    rounded = np.append(table, overflow)[lower + up]
    return np.copysign(rounded, values)


def probes(name: str, dtype: type) -> np.ndarray:
    """Every value, every midpoint, and their neighbours in ``dtype``, positive and negative."""
    table = magnitudes(name)
    beyond = 2 * table[-1] - table[-2]
    points = np.concatenate([table, (table + np.append(table[1:], beyond)) / 2, [beyond * 1.5]])
    with np.errstate(over="ignore"):
        points = points.astype(dtype)
    around = [points, np.nextafter(points, dtype(np.inf)), np.nextafter(points, dtype(0))]
    unsigned = np.concatenate(around)
    return np.concatenate([unsigned, -unsigned])


def test_the_table_holds_the_documented_types() -> None:
    assert [row.name for row in DATA_TYPES] == [
        "bool_",
        *INTEGERS,
        "float16",
        "float32",
        "bfloat16",
        "tfloat32",
        "float8_e4m3",
        "float8_e4m3fn",
        "float8_e5m2",
        "float8_e8m0fnu",
        *PACKED,
    ]
    assert all(row.bits == 8 * row.storage.itemsize for row in DATA_TYPES)
    assert all(row.source for row in DATA_TYPES)


@pytest.mark.parametrize("name", LAYOUTS)
def test_limits_agree_with_the_bit_layout(name: str) -> None:
    row = BY_NAME[name]
    table = magnitudes(name)
    assert row.max_finite == table[-1]
    assert row.has_inf == LAYOUTS[name][3]
    assert row.significand_bits == LAYOUTS[name][1] + 1
    assert row.min_exponent == 1 - LAYOUTS[name][2]


@pytest.mark.parametrize(
    ("name", "largest"),
    [
        ("float8_e4m3", 240.0),
        ("float8_e4m3fn", 448.0),
        ("float8_e5m2", 57344.0),
        ("float16", 65504.0),
        ("float32", float(np.finfo(np.float32).max)),
        ("bfloat16", float(ml_dtypes.finfo(ml_dtypes.bfloat16).max)),
        ("float8_e8m0fnu", 2.0**127),
        ("float4_e2m1fn_x4", 6.0),
        ("int8", 127.0),
        ("uint32", 4294967295.0),
        ("bool_", 1.0),
    ],
)
def test_documented_largest_values(name: str, largest: float) -> None:
    assert BY_NAME[name].max_finite == largest


@pytest.mark.parametrize(
    ("name", "bits"), [("float8_e5m2_x4", 32), ("float8_e4m3fn_x4", 32), ("float4_e2m1fn_x4", 16)]
)
def test_packed_types_are_storage(name: str, bits: int) -> None:
    row = BY_NAME[name]
    assert (row.kind, row.bits, row.packed_count, row.numpy) == ("packed", bits, 4, None)


class TorchLike:
    """Looks like torch.dtype: known only by its text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text


class JaxLike:
    """Looks like jnp.bfloat16: a callable object with a NumPy dtype."""

    dtype = np.dtype(ml_dtypes.bfloat16)


@pytest.mark.parametrize("name", BY_NAME)
def test_a_type_is_known_by_its_name_and_by_itself(name: str) -> None:
    assert of(name) is BY_NAME[name]
    assert of(BY_NAME[name]) is BY_NAME[name]


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        (np.float32, "float32"),
        (np.dtype("float16"), "float16"),
        (ml_dtypes.bfloat16, "bfloat16"),
        (np.dtype(ml_dtypes.float8_e4m3fn), "float8_e4m3fn"),
        (ml_dtypes.float8_e4m3, "float8_e4m3"),
        (ml_dtypes.float8_e8m0fnu, "float8_e8m0fnu"),
        (bool, "bool_"),
        (np.bool_, "bool_"),
        ("bool", "bool_"),
        (np.uint32, "uint32"),
        ("torch.bfloat16", "bfloat16"),
        (TorchLike("torch.float8_e5m2"), "float8_e5m2"),
        (TorchLike("torch.bool"), "bool_"),
        (TorchLike("tfloat32"), "tfloat32"),
        (JaxLike(), "bfloat16"),
    ],
)
def test_other_spellings(spelling: object, name: str) -> None:
    assert of(spelling) is BY_NAME[name]


@pytest.mark.parametrize(
    ("spelling", "shown"),
    [
        ("float64", "float64"),
        (np.float64, "float64"),
        (float, "float64"),
        (int, "int64"),
        (None, "None"),
        (np.dtype(">f4"), ">f4"),
        (TorchLike("torch.float64"), "torch.float64"),
        (ml_dtypes.float8_e4m3fnuz, "float8_e4m3fnuz"),
        ("f4", "f4"),
        (3, "3"),
    ],
)
def test_what_is_no_nki_type_is_refused_in_a_sentence(spelling: object, shown: str) -> None:
    with pytest.raises(ValueError, match="no NKI dtype") as caught:
        of(spelling)
    assert str(caught.value) == f"{shown} is no NKI dtype: expected one of {', '.join(BY_NAME)}"


@pytest.mark.parametrize("name", [*LAYOUTS, "float8_e8m0fnu"])
@pytest.mark.parametrize("compute", [np.float32, np.float64])
def test_every_pattern_survives_the_way_to_compute_and_back(name: str, compute: type) -> None:
    row = BY_NAME[name]
    if name == "tfloat32":
        stored = (np.arange(1 << 19, dtype=np.uint32) << np.uint32(13)).view(np.float32)
    else:
        stored = np.arange(1 << row.bits).astype(f"u{row.bits // 8}").view(row.storage)
    values = to_compute(stored, row, compute)
    assert values.dtype == compute
    back = cast(values, row)
    assert back.dtype == row.storage
    nan = np.isnan(values)
    raw = f"u{row.bits // 8}"
    np.testing.assert_array_equal(back.view(raw)[~nan], stored.view(raw)[~nan])
    assert np.isnan(back.astype(np.float32)[nan]).all()


@pytest.mark.parametrize("name", [*LAYOUTS])
def test_stored_patterns_mean_what_the_layout_says(name: str) -> None:
    row = BY_NAME[name]
    table = magnitudes(name)
    if name == "tfloat32":
        stored = (np.arange(len(table), dtype=np.uint32) << np.uint32(13)).view(np.float32)
    else:
        stored = np.arange(len(table)).astype(f"u{row.bits // 8}").view(row.storage)
    np.testing.assert_array_equal(to_compute(stored, row, np.float64), table)


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("source", [np.float32, np.float64])
def test_rounding_is_nearest_even_and_happens_once(name: str, source: type) -> None:
    values = probes(name, source)
    got = cast(values, BY_NAME[name]).astype(np.float64)
    expected = nearest_even(name, values.astype(np.float64))
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(np.signbit(got[got == 0]), np.signbit(expected[got == 0]))


@pytest.mark.parametrize("name", LAYOUTS)
def test_no_double_rounding_from_float64(name: str) -> None:
    # A hair beside a tie: float32 would take it back to the tie, and the tie goes to even.
    half = 2.0 ** -BY_NAME[name].significand_bits
    above, below = np.float64(1 + half + 2.0**-45), np.float64(1 + 3 * half - 2.0**-45)
    got = cast(np.array([above, 1 + half, below]), BY_NAME[name]).astype(np.float64)
    np.testing.assert_array_equal(got, [1 + 2 * half, 1, 1 + 2 * half])


@pytest.mark.parametrize(
    ("name", "positive"),
    [
        ("float16", math.inf),
        ("bfloat16", math.inf),
        ("tfloat32", math.inf),
        ("float32", math.inf),
        ("float8_e4m3", math.inf),
        ("float8_e5m2", math.inf),
        ("float8_e4m3fn", math.nan),
    ],
)
def test_overflow_becomes_inf_or_nan(name: str, positive: float) -> None:
    values = np.array([1e300, -1e300, math.inf, -math.inf])
    got = cast(values, BY_NAME[name]).astype(np.float64)
    np.testing.assert_array_equal(got, [positive, -positive, positive, -positive])


def test_fp32_min_is_minus_inf_in_narrow_types() -> None:
    smallest = np.array([np.finfo(np.float32).min])
    for name in ("bfloat16", "float16", "float8_e4m3", "float8_e5m2"):
        assert cast(smallest, BY_NAME[name]).astype(np.float64) == -math.inf


@pytest.mark.parametrize("name", [*LAYOUTS, "float32", "float8_e8m0fnu"])
def test_nan_stays_nan(name: str) -> None:
    noisy = np.array([0x7F800001, 0xFFFFFFFF, 0x7FC00000], np.uint32).view(np.float32)
    assert np.isnan(cast(noisy, BY_NAME[name]).astype(np.float32)).all()


def test_e8m0_rounds_ties_up_and_has_no_code_for_zero_or_negative() -> None:
    values = [1.0, 1.49, 1.5, 3.0, 2.0**-127, 2.0**-127 * 1.2, 2.0**-140, 2.0**127, 2.0**127 * 1.49]
    expected = [1.0, 1.0, 2.0, 4.0, 2.0**-127, 2.0**-127, 2.0**-127, 2.0**127, 2.0**127]
    for source in (np.float32, np.float64):
        got = cast(np.array(values, source), BY_NAME["float8_e8m0fnu"]).astype(np.float64)
        np.testing.assert_array_equal(got, expected)
        none = cast(np.array([0, -1, 2.0**127 * 1.5, np.inf, np.nan], source), BY_NAME["float8_e8m0fnu"])
        np.testing.assert_array_equal(none.view(np.uint8), [0xFF] * 5)


@pytest.mark.parametrize("source", [np.float32, np.float64])
@pytest.mark.parametrize("name", INTEGERS)
def test_floats_to_integers_round_to_even_and_saturate(name: str, source: type) -> None:
    limits = np.iinfo(name)
    values = np.array([0.5, 1.5, 2.5, -0.5, 2.51, 3e10, -3e10, np.inf, -np.inf, np.nan, -1.5], source)
    low = max(-2, limits.min)
    expected = [0, 2, 2, 0, 3, limits.max, limits.min, limits.max, limits.min, 0, low]
    got = cast(values, BY_NAME[name])
    assert got.dtype == np.dtype(name)
    np.testing.assert_array_equal(got, expected)


def test_float32_near_the_int32_limit() -> None:
    values = np.array([2147483520.0, 2147483648.0, -2147483648.0, -2147483904.0], np.float32)
    assert cast(values, BY_NAME["int32"]).tolist() == [2147483520, 2**31 - 1, -(2**31), -(2**31)]


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        (np.array([-1, 300, 5], np.int32), "uint8", [0, 255, 5]),
        (np.array([255, 200, 5], np.uint8), "int8", [127, 127, 5]),
        (np.array([-(2**40), 2**40, 7], np.int64), "int32", [-(2**31), 2**31 - 1, 7]),
        (np.array([2**32 - 1, 0], np.uint32), "int32", [2**31 - 1, 0]),
        (np.array([True, False]), "int16", [1, 0]),
        (np.array([0, 2, -1], np.int32), "bool_", [False, True, True]),
        (np.array([0.0, -0.0, 0.25, np.nan], np.float32), "bool_", [False, False, True, True]),
        (np.array([True, False]), "bfloat16", [1.0, 0.0]),
        (np.array([2**24 + 1, 2**24 + 3], np.int32), "float32", [2.0**24, 2.0**24 + 4]),
        (np.array([257, 259, -257], np.int16), "bfloat16", [256.0, 260.0, -256.0]),
        (np.array([1.5, 2.5], ml_dtypes.bfloat16), "int8", [2, 2]),
        (np.array([240.0, 1.0], np.float16), "float8_e4m3", [240.0, 1.0]),
    ],
)
def test_casts_between_stored_types(source: np.ndarray, target: str, expected: list[float]) -> None:
    got = cast(source, BY_NAME[target])
    assert got.dtype == BY_NAME[target].storage
    assert got.astype(np.float64).tolist() == [float(value) for value in expected]


def test_int32_to_bfloat16_is_rounded_once() -> None:
    # 2**24 + 2**16 + 1 lies a hair above the bfloat16 tie; float32 would drop the hair.
    got = cast(np.array([2**24 + 2**16 + 1], np.int32), BY_NAME["bfloat16"])
    assert float(got[0]) == 2.0**24 + 2.0**17


@given(st.integers(-(2**31), 2**31 - 1))
def test_int32_survives_float64(value: int) -> None:
    stored = np.array([value], np.int32)
    assert cast(to_compute(stored, BY_NAME["int32"], np.float64), BY_NAME["int32"])[0] == value


@pytest.mark.parametrize("name", ["float32", "int32", "bool_", "bfloat16"])
def test_what_is_stored_already_is_not_copied(name: str) -> None:
    stored = np.zeros(3, BY_NAME[name].storage)
    assert cast(stored, BY_NAME[name]) is stored
    values = np.zeros(3, np.float32)
    assert to_compute(values, BY_NAME["float32"], np.float32) is values
    assert to_compute(values, BY_NAME["tfloat32"], np.dtype("float32")) is values


@pytest.mark.parametrize("name", [row.name for row in DATA_TYPES if row.kind != "packed"])
@pytest.mark.parametrize("source", [np.float32, np.float64, np.int32])
def test_shapes_are_kept(name: str, source: type) -> None:
    for shape in ((), (0,), (2, 3)):
        got = cast(np.ones(shape, source), BY_NAME[name])
        assert isinstance(got, np.ndarray)
        assert (got.shape, got.dtype) == (shape, BY_NAME[name].storage)
        assert to_compute(got, BY_NAME[name], np.float32).shape == shape
        assert ulp(np.ones(shape, source), BY_NAME[name]).shape == shape


@pytest.mark.parametrize("name", PACKED)
def test_packed_types_are_refused(name: str) -> None:
    row = BY_NAME[name]
    sentence = (
        f"{name} packs 4 elements in one {row.storage}: expected an unpacked type, "
        "its elements have no value without their scales"
    )
    with pytest.raises(ValueError, match=f"^cast: {sentence}$"):
        cast(np.zeros(1, np.float32), row)
    with pytest.raises(ValueError, match=f"^to_compute: {sentence}$"):
        to_compute(np.zeros(1, row.storage), row, np.float32)
    with pytest.raises(ValueError, match=f"^ulp: {sentence}$"):
        ulp(np.zeros(1), row)


def test_refusals_name_what_was_expected() -> None:
    with pytest.raises(ValueError) as caught:
        cast(np.array([1j]), BY_NAME["bfloat16"])
    assert str(caught.value) == (
        "cast: complex128 values cannot be stored as bfloat16: "
        "expected float32, float64, integers, bool or an NKI dtype"
    )
    with pytest.raises(ValueError) as caught:
        to_compute(np.zeros(1, np.float32), BY_NAME["bfloat16"], np.float32)
    assert str(caught.value) == (
        "to_compute: bfloat16 is stored as bfloat16, got an array of float32: use cast first"
    )
    with pytest.raises(ValueError) as caught:
        unit_roundoff(BY_NAME["int8"])
    assert str(caught.value) == (
        "unit_roundoff: int8 is no float type and has no relative rounding error: use ulp"
    )
    with pytest.raises(ValueError) as caught:
        dtypes.compute_array(np.zeros(1, np.int32), "add")
    assert str(caught.value) == "add: expected float32 or float64 values, got int32: convert them first"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("float32", 2.0**-24),
        ("bfloat16", 2.0**-8),
        ("float16", 2.0**-11),
        ("tfloat32", 2.0**-11),
        ("float8_e4m3", 0.0625),
    ],
)
def test_unit_roundoff(name: str, expected: float) -> None:
    assert unit_roundoff(BY_NAME[name]) == expected


@pytest.mark.parametrize("name", LAYOUTS)
def test_ulp_is_the_distance_to_the_next_value(name: str) -> None:
    table = magnitudes(name)
    np.testing.assert_array_equal(ulp(table[:-1], BY_NAME[name]), np.diff(table))
    np.testing.assert_array_equal(ulp(-table[:-1], BY_NAME[name]), np.diff(table))
    assert ulp(table[-1], BY_NAME[name]) == table[-1] - table[-2]
    assert ulp(table[-1] * 1e3, BY_NAME[name]) == table[-1] - table[-2]


def test_ulp_of_float32_integers_and_infinities() -> None:
    values = np.array([0.0, 1e-45, 1e-38, 1.0, 1.5, 3e38], np.float32)
    np.testing.assert_array_equal(ulp(values, BY_NAME["float32"]), np.spacing(values).astype(np.float64))
    np.testing.assert_array_equal(ulp([0.0, 1e9], BY_NAME["int32"]), [1.0, 1.0])
    assert np.isnan(ulp([np.inf, np.nan], BY_NAME["bfloat16"])).all()
    assert ulp(8.0, BY_NAME["float8_e8m0fnu"]) == 8.0


@pytest.mark.parametrize("name", [*LAYOUTS, *INTEGERS])
@given(values=st.lists(st.floats(-1e5, 1e5), min_size=2), narrow=st.booleans())
def test_casting_is_monotone_and_within_half_an_ulp(name: str, values: list[float], narrow: bool) -> None:
    row = BY_NAME[name]
    lowest = -row.max_finite if row.kind == "float" else np.iinfo(name).min
    array = np.clip(np.sort(np.array(values)), lowest, row.max_finite)
    array = array.astype(np.float32).astype(np.float64) if narrow else array
    array = np.clip(array, lowest, row.max_finite)
    got = cast(array, row).astype(np.float64)
    assert (np.diff(got) >= 0).all()
    assert (np.abs(got - array) <= ulp(array, row) / 2).all()


def test_importing_brings_in_neither_torch_nor_scipy() -> None:
    code = "import sys, nkireview.isa.dtypes; print({'torch', 'scipy'} & set(sys.modules))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.strip() == "set()"

"""MX formats: quantisation, dequantisation and their matmul, against float64 written from the OCP definition."""

from __future__ import annotations

import itertools
import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from call_kit import Made, T
from execute_kit import Kernel, View
from numpy.typing import NDArray

from nkireview.isa import mx
from nkireview.isa.enums import Engine, Memory
from nkireview.isa.release import Release
from nkireview.isa.row import Role
from nkireview.isa.table import row
from nkireview.program.verify import verify

Array = NDArray[Any]
BF16 = ml_dtypes.bfloat16
FLOAT64 = np.dtype(np.float64)
LATEST, OLD = Release(0, 6), Release(0, 4)

# The oracle: every element format of the OCP specification as sign, exponent and mantissa bits, read bit by bit.


def ocp_value(code: int, exponent_bits: int, mantissa_bits: int, bias: int, specials: str) -> float:
    """The value of one element by the definition: (-1)**S * 2**(E - bias) * 1.M, or 2**(1 - bias) * 0.M."""
    sign = -1.0 if code >> (exponent_bits + mantissa_bits) & 1 else 1.0
    exponent = code >> mantissa_bits & (1 << exponent_bits) - 1
    mantissa = code & (1 << mantissa_bits) - 1
    top = (1 << exponent_bits) - 1
    if specials == "ieee" and exponent == top:
        return math.nan if mantissa else sign * math.inf
    if specials == "fn" and exponent == top and mantissa == (1 << mantissa_bits) - 1:
        return math.nan
    fraction = mantissa / (1 << mantissa_bits)
    if exponent == 0:
        return sign * 2.0 ** (1 - bias) * fraction
    return float(sign * 2.0 ** (exponent - bias) * (1 + fraction))


FORMATS = {
    "float8_e4m3fn_x4": (8, [ocp_value(code, 4, 3, 7, "fn") for code in range(256)]),
    "float8_e5m2_x4": (8, [ocp_value(code, 5, 2, 15, "ieee") for code in range(256)]),
    "float4_e2m1fn_x4": (4, [ocp_value(code, 2, 1, 1, "none") for code in range(16)]),
}
EMAX = {"float8_e4m3fn_x4": 8, "float8_e5m2_x4": 15}  # nki/api/nki/isa/__init__.py:2793-2795
MOST = {"float8_e4m3fn_x4": 448.0, "float8_e5m2_x4": 57344.0}
QUANTISED = tuple(EMAX)


def oracle_unpack(packed: Array, name: str) -> Array:
    """(P, N) packed as float64 (P, N, 4), element by element."""
    bits, values = FORMATS[name]
    out = np.empty((*packed.shape, 4))
    for at in np.ndindex(packed.shape):
        for lane in range(4):
            out[at][lane] = values[int(packed[at]) >> bits * lane & (1 << bits) - 1]
    return out


def oracle_nearest(value: float, name: str) -> float:
    """The finite element nearest to a value; of two, the one with an even mantissa. Beyond the largest: itself."""
    _, values = FORMATS[name]
    sign = math.copysign(1.0, value)
    half = [(v, code) for code, v in enumerate(values[:128]) if math.isfinite(v)]
    best = min(half, key=lambda pair: (abs(pair[0] - abs(value)), pair[1] & 1))
    return sign * best[0]


def oracle_exponent(block: Array, name: str, headroom: int) -> int:
    largest = float(np.abs(block).max())
    if largest == 0:
        return -127
    return max(math.floor(math.log2(largest)) - (EMAX[name] - headroom), -127)


def oracle_quantise(values: Array, name: str, headroom: int) -> tuple[Array, Array]:
    """(P, 4 N) as element values (P, 4 N) and scale exponents (P / 8, N), block by block."""
    partitions, free = values.shape
    elements, scales = np.empty(values.shape), np.empty((partitions // 8, free // 4), int)
    for i, j in np.ndindex(scales.shape):
        rows, columns = slice(8 * i, 8 * i + 8), slice(4 * j, 4 * j + 4)
        block = values[rows, columns].astype(np.float64)
        scales[i, j] = exponent = oracle_exponent(block, name, headroom)
        scaled = np.clip(block / 2.0**exponent, -MOST[name], MOST[name])
        elements[rows, columns] = np.vectorize(lambda value: oracle_nearest(value, name))(scaled)
    return elements, scales


def layout(scales: Array, partitions: int, fill: int = 77) -> Array:
    """Scales (P / 8, N) at their places: block b at row 32 * (b // 4) + b % 4; other rows hold `fill`."""
    tile = np.full((partitions, scales.shape[1]), fill, scales.dtype)
    for block, line in enumerate(scales):
        tile[32 * (block // 4) + block % 4] = line
    return tile


def drawn(*shape: int, seed: int = 0, spread: float = 4.0) -> Array:
    """Values over many binades, and a block of zeros where there is room."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape) * 2.0 ** np.round(rng.normal(0, spread, shape))
    values[:8, :4] = 0
    return values.astype(BF16)


# Elements and scales


@pytest.mark.parametrize("name", FORMATS)
def test_every_code_of_every_element_has_its_ocp_value(name: str) -> None:
    bits, values = FORMATS[name]
    storage = np.dtype(np.uint32 if bits == 8 else np.uint16)
    codes = np.arange(1 << bits, dtype=storage)
    for lane in range(4):
        found = mx.unpack(codes << storage.type(bits * lane), name, FLOAT64)
        assert np.array_equal(found[:, lane], values, equal_nan=True)


def test_elements_are_packed_lowest_bits_first() -> None:
    assert mx.unpack(np.array([0x40383000], np.uint32), "float8_e4m3fn_x4", FLOAT64).tolist() == [
        [0.0, 0.5, 1.0, 2.0]
    ]
    assert mx.unpack(np.array([0x7A21], np.uint16), "float4_e2m1fn_x4", FLOAT64).tolist() == [
        [0.5, 1.0, -1.0, 6.0]
    ]
    assert mx.pack(np.array([[0.0, 0.5, 1.0, 2.0]]), "float8_e4m3fn_x4").tolist() == [0x40383000]
    assert mx.pack(np.array([[1.0, -1.0, 57344.0, 0.0]]), "float8_e5m2_x4").tolist() == [0x007BBC3C]


def test_fp4_is_never_written() -> None:
    with pytest.raises(ValueError, match=r"^float4_e2m1fn_x4 cannot be packed: no instruction writes it$"):
        mx.pack(np.zeros((1, 4)), "float4_e2m1fn_x4")


@pytest.mark.parametrize("compute", [np.float32, np.float64])
def test_scales_are_powers_of_two_and_255_is_nan(compute: type) -> None:
    codes = np.arange(256, dtype=np.uint8)
    found = mx.scale_value(codes, np.dtype(compute))
    assert found.dtype == compute
    assert [float(value) for value in found[:255]] == [2.0 ** (code - 127) for code in range(255)]
    assert np.isnan(found[255])


def test_scales_lie_in_the_quadrant_of_their_block() -> None:
    assert mx.scale_rows(128).tolist() == [*range(4), *range(32, 36), *range(64, 68), *range(96, 100)]
    assert mx.scale_rows(32).tolist() == [0, 1, 2, 3]
    assert [mx.scale_partitions(count) for count in (32, 64, 96, 128)] == [4, 36, 68, 100]


# Quantisation


@pytest.mark.oracle("nisa.quantize_mx")
@pytest.mark.parametrize("name", QUANTISED)
@pytest.mark.parametrize(("release", "headroom"), [(OLD, 0), (Release(0, 5), 1), (LATEST, 1)])
def test_quantise_against_the_definition(name: str, release: Release, headroom: int) -> None:
    values = drawn(32, 32, seed=3)
    packed, codes = mx.quantise(values.astype(np.float32), name, release)
    elements, exponents = oracle_quantise(values, name, headroom)
    assert (codes.astype(int) - 127).tolist() == exponents.tolist()
    assert np.array_equal(oracle_unpack(packed, name).reshape(32, 32), elements)
    assert len(set(exponents.ravel())) > 5, "the drawn values exercise several scales"


@pytest.mark.oracle("nisa.quantize_mx")
@pytest.mark.parametrize(
    ("largest", "name", "release", "exponent", "stored"),
    [
        # 3.9 = 1.95 * 2**1: since 0.5 scale 2**(1 - 7) and 3.9 * 64 = 249.6 -> 256; before, 2**(1 - 8) saturates
        (3.90625, "float8_e4m3fn_x4", LATEST, -6, 256.0),
        (3.90625, "float8_e4m3fn_x4", OLD, -7, 448.0),
        (1.0, "float8_e4m3fn_x4", LATEST, -7, 128.0),
        (1.0, "float8_e4m3fn_x4", OLD, -8, 256.0),
        (1.0, "float8_e5m2_x4", LATEST, -14, 16384.0),
        (-1.96875, "float8_e5m2_x4", OLD, -15, -57344.0),
        (-1.96875, "float8_e5m2_x4", LATEST, -14, -32768.0),
        (0.0, "float8_e4m3fn_x4", LATEST, -127, 0.0),
        (0.0, "float8_e5m2_x4", OLD, -127, 0.0),
        # the scale cannot fall below 2**-127: 2**-130 / 2**-127 = 0.125
        (2.0**-130, "float8_e4m3fn_x4", LATEST, -127, 0.125),
    ],
)
def test_one_block_by_hand(largest: float, name: str, release: Release, exponent: int, stored: float) -> None:
    values = np.zeros((8, 4), np.float32)
    values[5, 2] = largest
    packed, codes = mx.quantise(values, name, release)
    assert codes.tolist() == [[exponent + 127]]
    found = oracle_unpack(packed, name).reshape(8, 4)
    assert found[5, 2] == stored and np.count_nonzero(found) == (stored != 0)


def test_infinities_and_nan_take_the_largest_scale() -> None:
    values = np.zeros((8, 4), np.float32)
    values[0] = [np.inf, -np.inf, np.nan, 1.0]
    packed, codes = mx.quantise(values, "float8_e5m2_x4", LATEST)
    assert codes.tolist() == [[128 - 14 + 127]]
    found = oracle_unpack(packed, "float8_e5m2_x4").reshape(8, 4)[0]
    assert found[:2].tolist() == [np.inf, -np.inf] and np.isnan(found[2]) and found[3] == 0
    packed, _ = mx.quantise(values, "float8_e4m3fn_x4", LATEST)
    assert np.isnan(oracle_unpack(packed, "float8_e4m3fn_x4").reshape(8, 4)[0, :3]).all()


def quantising(
    kernel: Kernel, values: Array, name: str = "float8_e4m3fn_x4", scale: str = "uint8", start: int = 0
) -> tuple[View, View]:
    """quantize_mx of values, scales beginning at a partition of a tile of 128."""
    partitions, free = values.shape[0], values.shape[1] // 4
    data = kernel.sbuf(partitions, free, dtype=name)
    scales = kernel.sbuf(128, free, dtype=scale)
    held = scales[start:128]
    kernel.call("quantize_mx", dst=data, src=kernel.load(values), dst_scale=held)
    return data, scales


@pytest.mark.oracle("nisa.quantize_mx")
@pytest.mark.parametrize("scale", ["uint8", "float8_e8m0fnu"])
@pytest.mark.parametrize("nki", ["0.4", "0.6"])
def test_quantize_mx_writes_data_and_scales_at_their_places(scale: str, nki: str) -> None:
    values = drawn(128, 16, seed=5)
    kernel = Kernel("trn3", nki=nki)
    data, scales = quantising(kernel, values, scale=scale, start=4)
    kernel.store(data)
    kernel.output(stored_rows(kernel, scales, mx.scale_rows(128) + 4))
    execution = kernel.run()
    assert execution.faults == ()
    elements, exponents = oracle_quantise(values, "float8_e4m3fn_x4", 0 if nki == "0.4" else 1)
    found = oracle_unpack(execution.outputs[0].values, "float8_e4m3fn_x4")
    assert np.array_equal(found.reshape(128, 16), elements)
    codes = execution.outputs[1].values.view(np.uint8)
    assert (codes.astype(int) - 127).tolist() == exponents.tolist()


def stored_rows(kernel: Kernel, tile: View, rows: Any) -> View:
    """A copy of some partitions of a tile in HBM."""
    out = kernel.hbm(len(rows), tile.pattern[1][1], dtype=tile.dtype)
    for at, line in enumerate(rows):
        kernel.copy(out[at : at + 1], tile[int(line) : int(line) + 1])
    return out


@pytest.mark.oracle("nisa.quantize_mx")
def test_scales_of_several_tensors_share_a_tile() -> None:
    """nki/deep-dives/mxfp-matmul.rst:244-266: what lies between the scales keeps its content."""
    kernel = Kernel("trn3")
    scales = kernel.sbuf(128, 4, dtype="uint8")
    given = [drawn(128, 16, seed=seed) for seed in range(4)]
    for number, values in enumerate(given):
        data = kernel.sbuf(128, 4, dtype="float8_e5m2_x4")
        kernel.call("quantize_mx", dst=data, src=kernel.load(values), dst_scale=scales[4 * number : 128])
    for number in range(4):
        kernel.output(stored_rows(kernel, scales, mx.scale_rows(128) + 4 * number))
    execution = kernel.run()
    assert execution.faults == ()
    for values, output in zip(given, execution.outputs, strict=True):
        _, exponents = oracle_quantise(values, "float8_e5m2_x4", 1)
        assert (output.values.astype(int) - 127).tolist() == exponents.tolist()


def test_an_undefined_element_spoils_its_block_only() -> None:
    kernel = Kernel("trn3")
    src = kernel.sbuf(32, 16, dtype="bfloat16")
    kernel.copy(src[0:32, 0:12], kernel.argument(np.ones((32, 12), BF16)))
    kernel.copy(src[8:32, 12:16], kernel.argument(np.ones((24, 4), BF16)))
    data, scales = kernel.sbuf(32, 4, dtype="float8_e4m3fn_x4"), kernel.sbuf(4, 4, dtype="uint8")
    kernel.call("quantize_mx", dst=data, src=src, dst_scale=scales)
    kernel.store(data)
    kernel.store(scales)
    outputs = kernel.run().outputs
    wanted = np.ones((4, 4), bool)
    wanted[0, 3] = False
    assert np.array_equal(outputs[1].written, wanted)
    assert np.array_equal(outputs[0].written, np.repeat(wanted, 8, axis=0))


# Matmul


def operand(
    kernel: Kernel, name: str, partitions: int, columns: int, seed: int, scale: str = "uint8"
) -> tuple[View, View, Array]:
    """Random packed data and scales, the tile of scales otherwise never written; and its values (P, N, 4)."""
    rng = np.random.default_rng(seed)
    bits, values = FORMATS[name]
    finite = [code for code, value in enumerate(values) if math.isfinite(value) and abs(value) <= 448]
    codes = rng.choice(finite, (partitions, columns, 4))
    storage = np.uint32 if bits == 8 else np.uint16
    packed = np.zeros((partitions, columns), storage)
    for lane in range(4):
        packed |= codes[..., lane].astype(storage) << storage(bits * lane)
    exponents = rng.integers(-6, 7, (partitions // 8, columns))
    data = kernel.sbuf(partitions, columns, dtype=name)
    kernel.copy(data, kernel.argument(packed).as_dtype(name, partitions, columns))
    scales = kernel.sbuf(max(mx.scale_partitions(partitions), 4), columns, dtype=scale)
    stored = (exponents + 127).astype(np.uint8)
    if scale != "uint8":
        stored = stored.view(ml_dtypes.float8_e8m0fnu)
    lines = kernel.argument(stored)
    for quadrant in range(partitions // 32):
        kernel.copy(scales[32 * quadrant : 32 * quadrant + 4], lines[4 * quadrant : 4 * quadrant + 4])
    scaled = oracle_unpack(packed, name) * 2.0 ** np.repeat(exponents, 8, axis=0)[..., None]
    return data, scales, scaled


PAIRS = list(itertools.product(FORMATS, FORMATS))


@pytest.mark.oracle("nisa.nc_matmul_mx")
@pytest.mark.parametrize(("stationary", "moving"), PAIRS)
def test_nc_matmul_mx_against_float64(stationary: str, moving: str) -> None:
    kernel = Kernel("trn3")
    left = operand(kernel, stationary, 64, 6, seed=1)
    right = operand(kernel, moving, 64, 10, seed=2, scale="float8_e8m0fnu")
    dst = kernel.psum(6, 10)
    multiply(kernel, dst, left, right)
    kernel.store(dst_copy(kernel, dst))
    execution = kernel.run(compute=np.float64)
    assert execution.faults == ()
    # Every product is exact in float64; what rounds is the store to float32.
    wanted = np.einsum("kmq,knq->mn", left[2], right[2])
    assert np.allclose(
        execution.outputs[0].values, wanted, rtol=2**-23, atol=1e-3 * np.abs(wanted).max() * 2**-20
    )


def multiply(kernel: Kernel, dst: View, left: Any, right: Any, **given: Any) -> None:
    kernel.call(
        "nc_matmul_mx",
        dst=dst,
        stationary=left[0],
        moving=right[0],
        stationary_scale=left[1],
        moving_scale=right[1],
        **given,
    )


def dst_copy(kernel: Kernel, dst: View) -> View:
    tile = kernel.sbuf(*(count for _, count in dst.pattern), dtype=dst.dtype)
    kernel.copy(tile, dst)
    return tile


@pytest.mark.oracle("nisa.nc_matmul_mx")
def test_one_block_product_by_hand() -> None:
    """Eight partitions of four ones each against twos: 32 * 1 * 2 = 64 a block, times both scales."""
    kernel = Kernel("trn3")
    ones, twos = np.full((32, 2), 0x38383838, np.uint32), np.full((32, 3), 0x40404040, np.uint32)
    tiles = []
    for packed, exponents in ((ones, [0, 1, 2, 3]), (twos, [0, 0, -1, -3])):
        columns = packed.shape[1]
        data, scales = (
            kernel.sbuf(32, columns, dtype="float8_e4m3fn_x4"),
            kernel.sbuf(4, columns, dtype="uint8"),
        )
        kernel.copy(data, kernel.argument(packed).as_dtype("float8_e4m3fn_x4", 32, columns))
        codes = np.repeat(np.array(exponents)[:, None] + 127, columns, axis=1).astype(np.uint8)
        kernel.copy(scales, kernel.argument(codes))
        tiles.append((data, scales))
    dst = kernel.psum(2, 3)
    multiply(kernel, dst, *tiles)
    kernel.store(dst_copy(kernel, dst))
    # 64 * (1 * 1 + 2 * 1 + 4 / 2 + 8 / 8)
    assert kernel.run().outputs[0].values.tolist() == [[384.0] * 3] * 2


@pytest.mark.oracle("nisa.nc_matmul_mx")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_products_accumulate_and_each_rounds_to_its_destination(dtype: str) -> None:
    kernel = Kernel("trn3")
    dst = kernel.psum(4, 8, dtype=dtype)
    total = np.zeros((4, 8), np.float32)
    storage = np.float32 if dtype == "float32" else BF16
    for seed in range(3):
        left, right = (operand(kernel, "float8_e4m3fn_x4", 32, n, seed=10 * seed + n) for n in (4, 8))
        multiply(kernel, dst, left, right, accumulate=seed > 0)
        product = np.einsum("kmq,knq->mn", left[2], right[2])
        total = (total.astype(np.float64) + product).astype(storage).astype(np.float32)
    kernel.store(dst_copy(kernel, dst))
    execution = kernel.run(compute=np.float64)
    assert execution.faults == ()
    assert np.array_equal(execution.outputs[0].values.astype(np.float32), total)


def test_scales_that_were_never_written_reach_their_columns_only() -> None:
    kernel = Kernel("trn3")
    left = operand(kernel, "float8_e4m3fn_x4", 32, 4, seed=1)
    data, scales, _ = operand(kernel, "float8_e4m3fn_x4", 32, 8, seed=2)
    holed = kernel.sbuf(4, 8, dtype="uint8")
    kernel.copy(holed[0:4, 0:5], scales[0:4, 0:5])
    kernel.copy(holed[1:4, 5:8], scales[1:4, 5:8])
    dst = kernel.psum(4, 8)
    multiply(kernel, dst, left, (data, holed))
    kernel.store(dst_copy(kernel, dst))
    assert kernel.run().outputs[0].written.tolist() == [[True] * 5 + [False] * 3] * 4


@pytest.mark.oracle("nisa.quantize_mx", "nisa.nc_matmul_mx")
def test_quantise_then_multiply_comes_close_to_the_product() -> None:
    """The round trip of the guide; its error is that of rounding 32 values to 4 significant bits (2**-4) each."""
    left, right = (
        np.random.default_rng(seed).standard_normal((128, 4 * n)).astype(BF16)
        for seed, n in ((1, 6), (2, 10))
    )
    kernel = Kernel("trn3")
    tiles = [quantising(kernel, values) for values in (left, right)]
    dst = kernel.psum(6, 10)
    multiply(kernel, dst, *tiles)
    kernel.store(dst_copy(kernel, dst))
    execution = kernel.run()
    assert execution.faults == ()
    a, b = (values.astype(np.float64).reshape(128, -1, 4) for values in (left, right))
    wanted, size = np.einsum("kmq,knq->mn", a, b), np.einsum("kmq,knq->mn", np.abs(a), np.abs(b))
    found = execution.outputs[0].values
    assert np.all(np.abs(found - wanted) <= 2 * 2.0**-4 * 1.1 * size)
    assert np.linalg.norm(found - wanted) < 0.05 * np.linalg.norm(wanted)


def test_verify_accepts_the_round_trip_on_trn3_only() -> None:
    for target, wanted in (
        ("trn3", []),
        ("trn2", ["quantize_mx: needs NeuronCore-v4, not v3 on trn2 (kernel.py:6)"]),
    ):
        kernel = Kernel(target)
        quantising(kernel, drawn(32, 16))
        assert [found.message for found in verify(kernel.program()) if found.number == 51] == wanted


# Limits

SBUF, PSUM = Memory.sbuf, Memory.psum
X4, E5, FP4 = "float8_e4m3fn_x4", "float8_e5m2_x4", "float4_e2m1fn_x4"
QUANTIZE = Made(
    "quantize_mx",
    {
        "dst": T((128, 128), X4),
        "src": T((128, 512), "bfloat16"),
        "dst_scale": T((128, 128), "uint8"),
    },
    {},
    target="trn3",
)
MATMUL = Made(
    "nc_matmul_mx",
    {
        "dst": T((128, 512), memory=PSUM),
        "stationary": T((128, 128), X4),
        "moving": T((128, 512), X4),
        "stationary_scale": T((128, 128), "uint8"),
        "moving_scale": T((128, 512), "uint8"),
    },
    {"tile_position": None, "tile_size": None},
    target="trn3",
)
INDEX = T((128, 16), "uint32")


def shapes(columns: int, dtype: str = "float32", **more: Any) -> dict[str, Any]:
    """A matmul of so many columns of moving."""
    return {
        "moving.shape": (128, columns),
        "moving_scale.shape": (128, columns),
        "dst": T((128, columns), dtype, PSUM),
        **more,
    }


def rows_of_32(count: int, scale: int, **more: Any) -> dict[str, Any]:
    """A matmul of fewer partitions, with scales in so many partitions."""
    return {
        "stationary.shape": (count, 128),
        "moving.shape": (count, 512),
        "stationary_scale.shape": (scale, 128),
        "moving_scale.shape": (scale, 512),
        **more,
    }


def snake(*names: str, by: T = INDEX) -> dict[str, Any]:
    """Operands made by indirect() with one index."""
    return {f"{name}.{part}": value for name in names for part, value in (("index", "snake"), ("by", by))}


LIMITS: list[tuple[Made, dict[str, Any], str | None]] = [
    (QUANTIZE, {"nki": "0.2"}, None),
    (QUANTIZE, {"src.dtype": "float16", "dst.dtype": E5}, None),
    (QUANTIZE, {"src.shape": (129, 512)}, "src partition size 129 exceeds 128"),
    (QUANTIZE, {"dst.shape": (129, 128)}, "dst partition size 129 exceeds 128"),
    (
        QUANTIZE,
        {"src.start": 32},
        "src starts at partition 32, a tile of 128 partitions may start at 0",
    ),
    (
        QUANTIZE,
        {"dst.start": 32},
        "dst starts at partition 32, a tile of 128 partitions may start at 0",
    ),
    (QUANTIZE, {"src.shape": (120, 512)}, "src partition size 120 is no multiple of 32"),
    (QUANTIZE, {"src.shape": (96, 512), "dst.shape": (96, 128), "dst_scale.shape": (68, 128)}, None),
    (QUANTIZE, {"src.shape": (128, 510)}, "src free size 510 is no multiple of 4"),
    (QUANTIZE, {"dst.shape": (96, 128)}, "dst partition size 96 differs from src partition size 128"),
    (
        QUANTIZE,
        {"dst.shape": (128, 512)},
        "dst free size 512 must be a quarter of src free size 512: each element of dst packs 4",
    ),
    (QUANTIZE, {"dst_scale.shape": (128, 512)}, "dst_scale free size 512 differs from dst free size 128"),
    (QUANTIZE, {"dst_scale.shape": (100, 128)}, None),
    (
        QUANTIZE,
        {"dst_scale.shape": (16, 128)},
        "dst_scale has 16 partitions, the scales of 128 partitions take 100: 4 in each quadrant of 32",
    ),
    (QUANTIZE, {"dst_scale.start": 12, "dst_scale.shape": (116, 128)}, None),
    (
        QUANTIZE,
        {"dst_scale.start": 16, "dst_scale.shape": (112, 128)},
        "dst_scale starts at partition 16, scales may start at 0, 4, 8, 12 of a quadrant of 32",
    ),
    (
        QUANTIZE,
        {"dst_scale.start": 36, "dst_scale.placed": True, "src.placed": True},
        "dst_scale starts in quadrant 1, src in quadrant 0: scales lie in the quadrant of their data",
    ),
    (QUANTIZE, {"dst_scale.start": 4, "dst_scale.placed": True, "src.placed": True}, None),
    (QUANTIZE, {"dst_scale.dtype": "float8_e8m0fnu"}, None),
    (
        QUANTIZE,
        {"dst_scale.dtype": "float8_e8m0fnu", "nki": "0.4"},
        "dst_scale dtype float8_e8m0fnu is not allowed, expected one of uint8",
    ),
    (QUANTIZE, {"nki": "0.4"}, None),
    (MATMUL, {"nki": "0.2"}, None),
    (MATMUL, {"moving.dtype": FP4, "stationary.dtype": E5}, None),
    (MATMUL, {"dst.shape": (129, 512)}, "dst partition size 129 exceeds 128"),
    (MATMUL, {"stationary.shape": (129, 128)}, "stationary partition size 129 exceeds 128"),
    (MATMUL, {"moving.shape": (129, 512)}, "moving partition size 129 exceeds 128"),
    (MATMUL, {"dst.start": 32}, "dst starts at partition 32, a tile of 128 partitions may start at 0"),
    (
        MATMUL,
        {"stationary.start": 64},
        "stationary starts at partition 64, a tile of 128 partitions may start at 0",
    ),
    (MATMUL, {"moving.start": 64}, "moving starts at partition 64, a tile of 128 partitions may start at 0"),
    (
        MATMUL,
        {"moving.shape": (96, 512)},
        "moving partition size 96 differs from stationary partition size 128",
    ),
    (MATMUL, {"stationary.shape": (72, 128)}, "stationary partition size 72 is no multiple of 32"),
    (MATMUL, rows_of_32(32, 4), None),
    (MATMUL, rows_of_32(64, 36), None),
    (
        MATMUL,
        rows_of_32(64, 35),
        "stationary_scale has 35 partitions, the scales of 64 partitions take 36: 4 in each quadrant of 32",
    ),
    (
        MATMUL,
        rows_of_32(64, 8),
        "moving_scale has 8 partitions, the scales of 64 partitions take 36: 4 in each quadrant of 32",
    ),
    (
        MATMUL,
        {"stationary.shape": (128, 127), "stationary_scale.shape": (128, 127), "dst.shape": (127, 512)},
        "stationary free size 127 must be even",
    ),
    (
        MATMUL,
        {"stationary.shape": (128, 130), "stationary_scale.shape": (128, 130)},
        "stationary free size 130 exceeds 128",
    ),
    (MATMUL, shapes(4096), None),
    (MATMUL, shapes(4097), "moving free size 4097 exceeds 4096"),
    (MATMUL, shapes(8192, "bfloat16"), None),
    (MATMUL, shapes(8193, "bfloat16"), "moving free size 8193 exceeds 8192"),
    (MATMUL, shapes(512, nki="0.4"), None),
    (MATMUL, shapes(513, nki="0.4"), "moving free size 513 exceeds 512 before NKI 0.5"),
    (MATMUL, shapes(1024, "bfloat16", nki="0.4"), None),
    (MATMUL, shapes(1025, "bfloat16", nki="0.4"), "moving free size 1025 exceeds 1024 before NKI 0.5"),
    (
        MATMUL,
        {"dst.first_byte": 4, "nki": "0.4"},
        "dst spans PSUM banks 0 to 1, a matmul result must lie in one bank of 2048 bytes",
    ),
    (MATMUL, {"dst.first_byte": 4}, None),
    (
        MATMUL,
        {"dst.shape": (64, 512)},
        "dst is 64 x 512 (partitions x elements), stationary and moving give 128 x 512",
    ),
    (
        MATMUL,
        {"stationary_scale.shape": (128, 64)},
        "stationary_scale free size 64 differs from stationary free size 128",
    ),
    (
        MATMUL,
        {"moving_scale.shape": (128, 64)},
        "moving_scale free size 64 differs from moving free size 512",
    ),
    (MATMUL, {"stationary_scale.start": 4, "moving_scale.start": 12}, None),
    (
        MATMUL,
        {"stationary_scale.start": 2},
        "stationary_scale starts at partition 2, scales may start at 0, 4, 8, 12 of a quadrant of 32",
    ),
    (
        MATMUL,
        {"moving_scale.start": 20},
        "moving_scale starts at partition 20, scales may start at 0, 4, 8, 12 of a quadrant of 32",
    ),
    (
        MATMUL,
        {"moving_scale.start": 32, "moving_scale.placed": True, "moving.placed": True},
        "moving_scale starts in quadrant 1, moving in quadrant 0: scales lie in the quadrant of their data",
    ),
    (
        MATMUL,
        {"stationary_scale.start": 96, "stationary_scale.placed": True, "stationary.placed": True},
        "stationary_scale starts in quadrant 3, stationary in quadrant 0: scales lie in the quadrant of their data",
    ),
    (MATMUL, {"moving_scale.dtype": "float8_e8m0fnu", "stationary_scale.dtype": "float8_e8m0fnu"}, None),
    (
        MATMUL,
        {"moving_scale.dtype": "float8_e8m0fnu", "nki": "0.4"},
        "moving_scale dtype float8_e8m0fnu is not allowed, expected one of uint8",
    ),
    (
        MATMUL,
        {"stationary_scale.dtype": "float8_e8m0fnu", "nki": "0.4"},
        "stationary_scale dtype float8_e8m0fnu is not allowed, expected one of uint8",
    ),
    (MATMUL, {"tile_position": (64, 0), "tile_size": (64, 128), **rows_of_32(64, 36)}, None),
    (
        MATMUL,
        {"tile_position": (64, 0)},
        "tile_position (64, 0) and tile_size None must both be pairs of integers, or both be left out",
    ),
    (
        MATMUL,
        {"tile_position": (32, 0), "tile_size": (64, 128), **rows_of_32(64, 36)},
        "tile_position row 32 must be one of 0, 64 for 64 rows",
    ),
    (
        MATMUL,
        {"tile_position": (0, 64), "tile_size": (128, 64)},
        "tile_position column 64 must be 0, an MX matmul has no column tiles",
    ),
    (
        MATMUL,
        {"tile_position": (0, 0), "tile_size": (128, 64)},
        "tile_size columns 64 must be 128, an MX matmul has no column tiles",
    ),
    (
        MATMUL,
        {"tile_position": (0, 0), "tile_size": (64, 128)},
        "stationary partition size 128 exceeds 64, the rows of tile_size",
    ),
]


@pytest.mark.parametrize(("call", "changes", "text"), LIMITS)
def test_limit(call: Made, changes: dict[str, Any], text: str | None) -> None:
    found = call.changed(changes).breaches()
    assert found == [] if text is None else text in found


INDIRECT = ("dst", "stationary", "moving", "stationary_scale", "moving_scale")
MANY = T((128, 32), "uint32")
SNAKES: list[tuple[dict[str, Any], str | None]] = [
    (snake("moving", "moving_scale"), None),
    (snake(*INDIRECT), None),
    (
        snake("moving"),
        "moving and moving_scale must be views made by indirect() with the same index, or neither",
    ),
    (
        snake("stationary") | snake("stationary_scale", by=MANY),
        "stationary and stationary_scale must be views made by indirect() with the same index, or neither",
    ),
    (
        {**snake("dst"), "tile_position": (64, 0), "tile_size": (64, 128), **rows_of_32(64, 36)},
        "dst is a view made by indirect(), tile_position (64, 0) must then be (0, 0)",
    ),
]


@pytest.mark.parametrize(("changes", "text"), SNAKES)
def test_indirect_operands(changes: dict[str, Any], text: str | None) -> None:
    found = MATMUL.changed(changes).breaches()
    assert found == [] if text is None else text in found


def test_what_the_rows_declare() -> None:
    matmul, quantise = row("nc_matmul_mx"), row("quantize_mx")
    assert matmul.generations == quantise.generations == {"v4"}
    assert [param.name for param in matmul.parameters(Release(0, 2))] == [
        *(
            "dst",
            "stationary",
            "moving",
            "stationary_scale",
            "moving_scale",
            "tile_position",
            "tile_size",
            "name",
        )
    ]
    assert [param.name for param in matmul.parameters(Release(0, 3))][-2:] == ["accumulate", "name"]
    assert matmul.operand("dst").dtypes == {"float32", "bfloat16"}
    assert matmul.operand("moving").dtypes == {X4, E5, FP4}
    assert quantise.operand("dst").dtypes == {X4, E5}
    assert quantise.operand("src").dtypes == {"float16", "bfloat16"}
    assert all(operand.memories == {SBUF} for operand in quantise.operands)
    assert quantise.operand("dst_scale").role is Role.accumulate
    assert quantise.engines.resolve(QUANTIZE.view()) is Engine.vector
    assert matmul.engines.resolve(MATMUL.view()) is Engine.tensor
    assert Release(0, 1) not in matmul.releases and matmul.legacy is None


def test_costs() -> None:
    """Four elements a cycle to quantise (trainium3_arch.rst:172); a matmul as long as a bfloat16 one (:79)."""
    assert row("quantize_mx").cost.interval(QUANTIZE.view()) == 128
    assert row("quantize_mx").cost.interval(QUANTIZE.changed({"src.shape": (128, 32)}).view()) == 64
    assert row("nc_matmul_mx").cost.interval(MATMUL.view()) == 512

"""Meanings of the instruction rows against float64 NumPy written independently, and values worked out by hand."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from nkireview.isa import dtypes
from nkireview.isa.dtypes import DataType
from nkireview.isa.enums import Engine
from nkireview.isa.release import Release
from nkireview.isa.row import Bits, Flow, Row
from nkireview.isa.table import ROWS, row

pytestmark = [pytest.mark.filterwarnings("error"), pytest.mark.usefixtures("as_executed")]

Array = NDArray[Any]
BF16 = ml_dtypes.bfloat16
FP8 = ml_dtypes.float8_e4m3
SPECIAL = np.array([[np.nan, np.inf, -0.0], [1.5, -np.inf, 3.0]], np.float32)


class FakeReader:
    """Operands made by hand; it satisfies `row.Reader`. A dst is named by its shape and dtype."""

    def __init__(
        self,
        tiles: Mapping[str, Array],
        imms: Mapping[str, Any],
        written: Mapping[str, tuple[tuple[int, ...], str]],
        *,
        compute: type = np.float32,
        generation: str = "v3",
        nki: str = "0.6",
        engine: Engine = Engine.vector,
        state: dict[str, Array] | None = None,
    ) -> None:
        self.tiles, self.imms, self.written = tiles, imms, written
        self.compute = np.dtype(compute)
        self.generation = generation
        self.release = Release.parse(nki)
        self.engine = engine
        self.state = {} if state is None else state

    def has(self, name: str) -> bool:
        return name in self.tiles or name in self.written

    def value(self, name: str) -> Array:
        return dtypes.to_compute(self.tiles[name], self.dtype(name), self.compute)

    def raw(self, name: str) -> Array:
        return self.tiles[name]

    def dtype(self, name: str) -> DataType:
        return dtypes.of(self.written[name][1] if name in self.written else self.tiles[name].dtype)

    def shape(self, name: str) -> tuple[int, ...]:
        return self.written[name][0] if name in self.written else self.tiles[name].shape

    def imm(self, name: str) -> Any:
        return self.imms.get(name)

    def room(self, name: str, shape: tuple[int, ...]) -> Array | None:
        return None


def run(
    name: str,
    tiles: Mapping[str, Array],
    imms: Mapping[str, Any] | None = None,
    dst: tuple[tuple[int, ...], str] = ((1,), "float32"),
    more: Mapping[str, tuple[tuple[int, ...], str]] | None = None,
    **how: Any,
) -> dict[str, Array]:
    """The results of a row; an array wrapped in `Bits` must have the storage dtype of its operand."""
    reader = FakeReader(tiles, imms or {}, {"dst": dst, **(more or {})}, **how)
    results = row(name).meaning(reader)
    arrays = {}
    for operand, result in results.items():
        if isinstance(result, Bits):
            assert result.array.dtype == reader.dtype(operand).storage
            arrays[operand] = result.array
        else:
            assert result.dtype == reader.compute
            arrays[operand] = result
    return arrays


def dst_of(name: str, tiles: Mapping[str, Array], imms: Mapping[str, Any] | None = None, **how: Any) -> Array:
    return run(name, tiles, imms, **how)["dst"]


def is_bits(
    name: str, tiles: Mapping[str, Array], dst: str, imms: Mapping[str, Any] | None = None, **how: Any
) -> bool:
    reader = FakeReader(tiles, imms or {}, {"dst": ((1,), dst)}, **how)
    return isinstance(row(name).meaning(reader)["dst"], Bits)


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def same_bits(left: Array, right: Array) -> bool:
    return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()


# Copies


@pytest.mark.parametrize(("name", "src"), [("tensor_copy", "src"), ("dma_copy", "src")])
@pytest.mark.oracle("nisa.tensor_copy", "nisa.dma_copy")
def test_copies_of_one_dtype_keep_every_bit(name: str, src: str) -> None:
    for tile in (SPECIAL, SPECIAL.astype(BF16), np.array([[2**31 - 1, -(2**31)]], np.int32)):
        dtype = dtypes.of(tile.dtype).name
        assert is_bits(name, {src: tile}, dtype)
        assert same_bits(dst_of(name, {src: tile}, dst=(tile.shape, dtype)), tile)


def test_copies_between_dtypes_go_through_a_float() -> None:
    tile = np.array([[2**24 + 1, -3]], np.int32)
    assert dst_of("dma_copy", {"src": tile}, dst=((1, 2), "float32")).tolist() == [[2.0**24, -3.0]]
    assert dst_of("tensor_copy", {"src": SPECIAL.astype(BF16)}, dst=((2, 3), "float32"))[1].tolist()[0] == 1.5


def test_scalar_copies_through_float32_on_v2() -> None:
    tile = np.array([[2**24 + 1]], np.int32)
    how = {"engine": Engine.scalar, "dst": ((1, 1), "int32")}
    assert dst_of("tensor_copy", {"src": tile}, generation="v2", **how).tolist() == [[2.0**24]]
    assert dst_of("tensor_copy", {"src": tile}, generation="v3", **how).tolist() == [[2**24 + 1]]


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (0, "float8_e5m2_x4", np.zeros((2, 3), np.uint32)),
        (2**31 - 1, "int32", np.full((2, 3), 2**31 - 1, np.int32)),
        (0xFFFFFFFF, "uint32", np.full((2, 3), 0xFFFFFFFF, np.uint32)),
        (1, "bool_", np.ones((2, 3), np.bool_)),
        (0.1, "bfloat16", np.full((2, 3), 0.1, np.float32)),
        (-math.inf, "float32", np.full((2, 3), -math.inf, np.float32)),
        (3, "float32", np.full((2, 3), 3.0, np.float32)),
    ],
)
@pytest.mark.oracle("nisa.memset")
def test_memset(value: float, dtype: str, expected: Array) -> None:
    assert same_bits(dst_of("memset", {}, {"value": value}, dst=((2, 3), dtype)), expected)


# The Tensor engine


@pytest.mark.oracle("nisa.nc_matmul")
def test_matmul_is_the_plain_product() -> None:
    stationary, moving = normal(128, 64), normal(128, 8, 16, seed=1)
    expected = np.einsum(
        "km,kn->mn", stationary.astype(np.float64), moving.reshape(128, 128).astype(np.float64)
    )
    found = dst_of("nc_matmul", {"stationary": stationary, "moving": moving}, engine=Engine.tensor)
    assert found.shape == (64, 128) and np.allclose(found, expected, rtol=0, atol=2e-5)
    exact = dst_of("nc_matmul", {"stationary": stationary, "moving": moving}, compute=np.float64)
    assert np.allclose(exact, expected, rtol=1e-12, atol=1e-12)


def test_double_row_contracts_the_first_free_dimension_too() -> None:
    stationary, moving = normal(128, 2, 3).astype(FP8), normal(128, 2, 5, seed=1).astype(FP8)
    expected = np.einsum("kim,kin->mn", stationary.astype(np.float64), moving.astype(np.float64))
    imms = {"perf_mode": "double_row"}
    found = dst_of("nc_matmul", {"stationary": stationary, "moving": moving}, imms, compute=np.float64)
    assert np.allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_matmul_of_bf16_by_hand() -> None:
    stationary = np.array([[1, 2], [3, 4]], BF16)
    moving = np.array([[5, 6], [7, 8]], BF16)
    found = dst_of("nc_matmul", {"stationary": stationary, "moving": moving})
    assert found.tolist() == [[26.0, 30.0], [38.0, 44.0]]


@pytest.mark.parametrize("dtype", [np.float32, BF16, FP8])
def test_transposing_matmul_moves_bits_from_v3_on(dtype: type) -> None:
    stationary, moving = SPECIAL.astype(dtype), np.eye(2, dtype=np.float32).astype(dtype)
    tiles, imms = {"stationary": stationary, "moving": moving}, {"is_transpose": True}
    name = dtypes.of(stationary.dtype).name
    assert is_bits("nc_matmul", tiles, name, imms)
    assert same_bits(dst_of("nc_matmul", tiles, imms, dst=((3, 2), name)), np.ascontiguousarray(stationary.T))


def test_transposing_matmul_to_another_dtype_and_by_other_matrices() -> None:
    stationary, imms = normal(3, 2), {"is_transpose": True}
    swap = np.array([[0, 1, 0], [1, 0, 0], [0, 0, 1]], np.float32)
    moved = dst_of("nc_matmul", {"stationary": stationary, "moving": swap}, imms, dst=((2, 3), "float32"))
    assert np.array_equal(moved, stationary.T[:, [1, 0, 2]])
    halves = {"stationary": stationary.astype(BF16), "moving": np.eye(3).astype(BF16)}
    values = dst_of("nc_matmul", halves, imms, dst=((2, 3), "float32"))
    assert np.array_equal(values, stationary.astype(BF16).astype(np.float32).T)
    full = np.full((3, 3), 2.0, np.float32)
    product = dst_of("nc_matmul", {"stationary": stationary, "moving": full}, imms, dst=((2, 3), "float32"))
    assert np.allclose(product, stationary.T @ full)


def test_transposing_matmul_spreads_nan_on_v2() -> None:
    tiles = {"stationary": SPECIAL, "moving": np.eye(2, dtype=np.float32)}
    how = {"generation": "v2", "dst": ((3, 2), "float32"), "engine": Engine.tensor}
    found = dst_of("nc_matmul", tiles, {"is_transpose": True}, **how)
    assert np.isnan(found[:2]).any(axis=1).all() and found[2].tolist() == [0.0, 3.0]
    assert np.array_equal(found, dst_of("nc_transpose", {"data": SPECIAL}, **how), equal_nan=True)


@pytest.mark.parametrize("engine", [Engine.tensor, Engine.vector])
@pytest.mark.oracle("nisa.nc_transpose")
def test_transpose_flattens_the_free_axes(engine: Engine) -> None:
    data = SPECIAL.astype(BF16).reshape(2, 3, 1).repeat(2, axis=2)
    found = dst_of("nc_transpose", {"data": data}, engine=engine, dst=((6, 2), "bfloat16"))
    assert same_bits(np.ascontiguousarray(found), np.ascontiguousarray(data.reshape(2, 6).T))
    wide = dst_of("nc_transpose", {"data": data}, engine=engine, dst=((6, 2), "float32"))
    assert np.array_equal(wide, data.astype(np.float32).reshape(2, 6).T, equal_nan=True)


def test_vector_transposes_bits_on_v2() -> None:
    found = dst_of("nc_transpose", {"data": SPECIAL}, generation="v2", dst=((3, 2), "float32"))
    assert same_bits(np.ascontiguousarray(found), np.ascontiguousarray(SPECIAL.T))


# Elementwise


@pytest.mark.oracle("nisa.tensor_tensor")
def test_tensor_tensor_takes_element_order() -> None:
    data1, data2 = normal(4, 2, 3), normal(4, 6, seed=1)
    found = dst_of("tensor_tensor", {"data1": data1, "data2": data2}, {"op": "subtract"})
    assert np.array_equal(found.reshape(4, 6), data1.reshape(4, 6) - data2)


@pytest.mark.oracle("nisa.tensor_tensor")
def test_integers_are_exact_on_gpsimd_and_floats_on_vector() -> None:
    data1, data2 = np.array([[2**24 + 1, 2**31 - 1]], np.int32), np.array([[1, 1]], np.int32)
    tiles, dst = {"data1": data1, "data2": data2}, ((1, 2), "int32")
    exact = dst_of("tensor_tensor", tiles, {"op": "add"}, engine=Engine.gpsimd, dst=dst)
    assert exact.tolist() == [[2**24 + 2, -(2**31)]]
    rounded = dst_of("tensor_tensor", tiles, {"op": "add"}, engine=Engine.vector, dst=dst)
    assert rounded.tolist() == [[2.0**24, 2.0**31]]
    mixed = {"data1": data1, "data2": data2.view(np.uint32)}
    largest = dst_of("tensor_tensor", mixed, {"op": "maximum"}, engine=Engine.gpsimd, dst=((1, 2), "uint32"))
    assert largest.tolist() == [[2**24 + 1, 2**31 - 1]]


def test_bitvec_operators_see_patterns() -> None:
    data1, data2 = np.array([[0b1100, -1]], np.int16), np.array([[0b1010, 255]], np.uint16)
    tiles = {"data1": data1, "data2": data2}
    found = dst_of("tensor_tensor", tiles, {"op": "bitwise_xor"}, dst=((1, 2), "uint16"))
    assert found.tolist() == [[0b0110, 0xFF00]]
    assert dst_of("tensor_tensor", tiles, {"op": "bitwise_or"}, dst=((1, 2), "uint8")).tolist() == [[14, 255]]


DATA = np.array([[1.0, -2.0, 4.0], [8.0, 0.5, -1.0]], np.float32)


@pytest.mark.parametrize(
    ("imms", "expected"),
    [
        ({"op0": "multiply", "operand0": 2.0}, DATA * 2),
        ({"op0": "subtract", "operand0": 1.0}, DATA - 1),
        ({"op0": "subtract", "operand0": 1.0, "reverse0": True}, 1 - DATA),
        ({"op0": "multiply", "operand0": 2, "op1": "add", "operand1": 1}, DATA * 2 + 1),
        (
            {"op0": "add", "operand0": 1.0, "op1": "subtract", "operand1": 0.5, "reverse1": True},
            0.5 - (DATA + 1),
        ),
        ({"op0": None, "operand0": None, "op1": "maximum", "operand1": 0.0}, np.maximum(DATA, 0)),
        ({"op0": "abs", "operand0": 0}, np.abs(DATA)),
        ({"op0": "greater", "operand0": 0.75}, (DATA > 0.75).astype(np.float32)),
        (
            {"op0": "abs", "operand0": 0, "op1": "rsqrt", "operand1": 0.0},
            1 / np.sqrt(np.abs(DATA.astype(np.float64))),
        ),
    ],
)
@pytest.mark.oracle("nisa.tensor_scalar")
def test_tensor_scalar_of_numbers(imms: dict[str, Any], expected: Array) -> None:
    assert np.allclose(dst_of("tensor_scalar", {"data": DATA}, imms), expected, rtol=1e-7, atol=0)


@pytest.mark.parametrize("shape", [(2,), (2, 1), (2, 1, 1), (3, 1)])
def test_vectors_broadcast_over_every_free_dimension(shape: tuple[int, ...]) -> None:
    data = normal(2, 3, 4)
    vector = np.arange(1, 1 + math.prod(shape), dtype=np.float32).reshape(shape)
    lanes = np.array([1, 2], np.float64).reshape(2, 1, 1)
    found = dst_of("tensor_scalar", {"data": data, "operand0": vector}, {"op0": "multiply"})
    assert np.array_equal(found, data * lanes)
    activated = dst_of("activation", {"data": data, "bias": vector, "scale": vector}, {"op": "copy"})
    assert np.allclose(activated, data * lanes + lanes, rtol=1e-6, atol=1e-6)


def test_tensor_scalar_bitvec() -> None:
    data = np.array([[0x0F, 0x80]], np.uint8)
    imms = {"op0": "left_shift", "operand0": 1, "op1": "bitwise_and", "operand1": 0x1E}
    assert dst_of("tensor_scalar", {"data": data}, imms, dst=((1, 2), "uint8")).tolist() == [[0x1E, 0]]
    vector = {"data": data, "operand0": np.array([[0xF0]], np.uint8)}
    assert dst_of("tensor_scalar", vector, {"op0": "bitwise_and"}, dst=((1, 2), "uint8")).tolist() == [
        [0, 0x80]
    ]


def test_tensor_scalar_addresses_are_exact_on_gpsimd() -> None:
    data, vector = np.array([[2**24 + 1, 7]], np.int32), np.array([[3]], np.int32)
    tiles, imms = {"data": data, "operand1": vector}, {"op0": "multiply", "operand0": 2, "op1": "add"}
    dst = ((1, 2), "int32")
    exact = dst_of("tensor_scalar", tiles, imms, engine=Engine.gpsimd, dst=dst)
    assert exact.tolist() == [[2**25 + 5, 17]]
    rounded = dst_of("tensor_scalar", tiles, imms, engine=Engine.vector, dst=dst)
    assert rounded.tolist() == [[2.0**25 + 4, 17.0]]


@pytest.mark.oracle("nisa.scalar_tensor_tensor")
def test_scalar_tensor_tensor() -> None:
    data, operand1 = normal(4, 6), normal(4, 2, 3, seed=1)
    tiles = {"data": data, "operand0": normal(4, 1, seed=2), "operand1": operand1}
    imms = {"op0": "multiply", "op1": "subtract", "reverse1": True}
    wide = {name: tile.astype(np.float64) for name, tile in tiles.items()}
    expected = wide["operand1"].reshape(4, 6) - wide["data"] * wide["operand0"]
    assert np.allclose(dst_of("scalar_tensor_tensor", tiles, imms), expected, rtol=1e-6, atol=1e-6)
    number = {"data": data, "operand1": operand1}
    reversed0 = {"op0": "subtract", "operand0": 1.0, "reverse0": True, "op1": "add"}
    found = dst_of("scalar_tensor_tensor", number, reversed0, compute=np.float64)
    assert np.allclose(found, 1.0 - data.astype(np.float64) + operand1.reshape(4, 6))


@pytest.mark.oracle("nisa.reciprocal")
def test_reciprocal() -> None:
    found = dst_of("reciprocal", {"data": np.array([[4.0, 0.0, -0.0]], BF16)})
    assert found.tolist() == [[0.25, math.inf, -math.inf]]


# Scans


OPS = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "maximum": max,
    "minimum": min,
    "greater": lambda x, y: np.float32(x > y),
}


def scan(data0: Array, data1: Array, start: Array, imms: Mapping[str, Any]) -> Array:
    """The recurrence, one float32 number at a time."""
    result = np.empty(data0.shape, np.float32)
    for lane in range(data0.shape[0]):
        state = np.float32(start[lane])
        for at in range(data0.shape[1]):
            pair = (data0[lane, at], state)
            first = OPS[imms["op0"]](*(pair[::-1] if imms.get("reverse0") else pair))
            pair = (np.float32(first), data1[lane, at])
            state = np.float32(OPS[imms["op1"]](*(pair[::-1] if imms.get("reverse1") else pair)))
            result[lane, at] = state
    return result


@pytest.mark.parametrize("op0", ["add", "multiply", "subtract", "maximum", "greater"])
@pytest.mark.parametrize("op1", ["add", "multiply", "subtract", "minimum", "maximum"])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("ones", [False, True])
@pytest.mark.oracle("nisa.tensor_tensor_scan")
def test_scan_rounds_each_step(op0: str, op1: str, reverse: bool, ones: bool) -> None:
    data0 = np.ones((3, 40), np.float32) if ones else normal(3, 40)
    data1, start = normal(3, 40, seed=1), normal(3, seed=2)
    imms = {"op0": op0, "op1": op1, "reverse0": reverse, "reverse1": reverse}
    tiles = {"data0": data0, "data1": data1.reshape(3, 5, 8), "initial": start.reshape(3, 1)}
    assert np.array_equal(dst_of("tensor_tensor_scan", tiles, imms), scan(data0, data1, start, imms))


def test_scan_of_ones_is_a_running_sum_in_order() -> None:
    data1 = np.array([[2.0**24, 1.0, 1.0]], np.float32)
    imms = {"op0": "multiply", "op1": "add", "initial": 0.0}
    found = dst_of("tensor_tensor_scan", {"data0": np.ones((1, 3), np.float32), "data1": data1}, imms)
    assert found.tolist() == [[2.0**24, 2.0**24, 2.0**24]]
    exact = dst_of(
        "tensor_tensor_scan", {"data0": np.ones((1, 3), BF16), "data1": data1}, imms, compute=np.float64
    )
    assert exact.tolist() == [[2.0**24, 2.0**24 + 1, 2.0**24 + 2]]


# Reductions


@pytest.mark.parametrize(
    ("axis", "axes"), [(3, (3,)), (-1, (3,)), ((2, 3), (2, 3)), ((3, 2), (2, 3)), ((1, 2, 3), (1, 2, 3))]
)
@pytest.mark.parametrize("op", ["add", "maximum", "minimum", "multiply"])
@pytest.mark.oracle("nisa.tensor_reduce")
def test_tensor_reduce(axis: Any, axes: tuple[int, ...], op: str) -> None:
    data = normal(4, 3, 5, 2)
    reduce = {"add": np.sum, "maximum": np.max, "minimum": np.min, "multiply": np.prod}[op]
    expected = reduce(data.astype(np.float64), axis=axes)
    found = dst_of("tensor_reduce", {"data": data}, {"op": op, "axis": axis})
    assert found.shape == expected.shape and np.allclose(found, expected, rtol=1e-5, atol=1e-6)
    negated = dst_of("tensor_reduce", {"data": data}, {"op": op, "axis": axis, "negate": True})
    assert np.array_equal(negated, -found)


def test_axis_1_meant_the_last_one_up_to_release_02() -> None:
    data = normal(4, 3, 5)
    old = dst_of("tensor_reduce", {"data": data}, {"op": "maximum", "axis": 1}, nki="0.2")
    new = dst_of("tensor_reduce", {"data": data}, {"op": "maximum", "axis": 1}, nki="0.3")
    assert np.array_equal(old, data.max(axis=2)) and np.array_equal(new, data.max(axis=1))
    flat = dst_of("tensor_reduce", {"data": data[:, :, 0]}, {"op": "maximum", "axis": 1}, nki="0.2")
    assert np.array_equal(flat, data[:, :, 0].max(axis=1))


def test_bitvec_reduction() -> None:
    data = np.array([[0b1100, 0b1010, 0b0001], [1, 1, 1]], np.uint16)
    imms = {"op": "bitwise_xor", "axis": 1}
    assert dst_of("tensor_reduce", {"data": data}, imms, dst=((2, 1), "uint16")).tolist() == [0b0111, 1]


# Batch-norm statistics


@pytest.mark.oracle("nisa.bn_stats")
def test_bn_stats_by_hand() -> None:
    data = np.array([[1.0, 10.0, 3.0, 20.0, 5.0]], np.float32)
    # Even elements 1, 3, 5: mean 3, squared distance 8. Odd elements 10, 20: mean 15, squared distance 50.
    assert dst_of("bn_stats", {"data": data}).tolist() == [[3.0, 3.0, 8.0, 2.0, 15.0, 50.0]]
    assert dst_of("bn_stats", {"data": data[:, :1]}).tolist() == [[1.0, 1.0, 0.0, 0.0, 0.0, 0.0]]


@given(st.integers(1, 40), st.integers(1, 4), st.integers(0, 2**32 - 1))
@pytest.mark.oracle("nisa.bn_aggr")
def test_bn_aggr_of_bn_stats_is_mean_and_variance(size: int, tiles: int, seed: int) -> None:
    data = np.random.default_rng(seed).standard_normal((3, tiles, size))
    stats = [
        dst_of("bn_stats", {"data": data[:, tile].astype(np.float32)}, compute=np.float64)
        for tile in range(tiles)
    ]
    merged = np.concatenate(stats, axis=1).astype(np.float32)
    flat = data.astype(np.float32).reshape(3, -1).astype(np.float64)
    found = dst_of("bn_aggr", {"data": merged}, compute=np.float64)
    assert np.allclose(found, np.stack([flat.mean(axis=1), flat.var(axis=1)], axis=1), rtol=1e-5, atol=1e-6)


# Searches


@pytest.mark.oracle("nisa.max8")
def test_max8_descends() -> None:
    data = normal(5, 4, 4)
    expected = np.array([sorted(lane, reverse=True)[:8] for lane in data.reshape(5, 16).tolist()], np.float32)
    assert np.array_equal(dst_of("max8", {"src": data}), expected)


def find8(data: Array, wanted: Array, missing: int) -> list[list[int]]:
    """Each value takes the first place where data holds it and no earlier value did."""
    result = []
    for lane, values in zip(data.tolist(), wanted.tolist(), strict=True):
        taken: set[int] = set()
        places = []
        for value in values:
            free = [at for at, held in enumerate(lane) if held == value and at not in taken]
            taken.update(free[:1])
            places.append(free[0] if free else missing)
        result.append(places)
    return result


@pytest.mark.parametrize(("dtype", "missing"), [("uint32", 0xFFFFFFFF), ("uint16", 0xFFFF)])
@pytest.mark.oracle("nisa.nc_find_index8")
def test_find_index8(dtype: str, missing: int) -> None:
    rng = np.random.default_rng(0)
    data = rng.integers(0, 6, (7, 12)).astype(np.float32)
    wanted = rng.integers(0, 8, (7, 8)).astype(np.float32)
    found = dst_of("nc_find_index8", {"data": data.reshape(7, 3, 4), "vals": wanted}, dst=((7, 8), dtype))
    assert found.tolist() == find8(data, wanted, missing)


def test_find_index8_of_nan_finds_nothing() -> None:
    data = np.full((1, 8), np.nan, np.float32)
    found = dst_of("nc_find_index8", {"data": data, "vals": data}, dst=((1, 8), "uint16"))
    assert found.tolist() == [[0xFFFF] * 8]


# The Scalar engine

REDUCED = {"reduce_res": ((2, 1), "float32")}


@pytest.mark.oracle("nisa.activation")
def test_activation_scales_then_adds() -> None:
    data = normal(2, 4)
    tiles = {"data": data, "bias": np.array([[1.0], [-1.0]], BF16)}
    found = dst_of("activation", tiles, {"op": "exp", "scale": 0.5})
    expected = np.exp(data.astype(np.float64) * 0.5 + np.array([[1.0], [-1.0]]))
    assert np.allclose(found, expected, rtol=1e-6)
    number = dst_of("activation", {"data": data}, {"op": "tanh", "scale": 1.0, "bias": 2})
    assert np.allclose(number, np.tanh(data.astype(np.float64) + 2), rtol=1e-6)


def test_accumulator_commands() -> None:
    data, state = (
        np.array([[1.0, 2.0], [3.0, 4.0]], np.float32),
        {"scalar_accumulator": np.full(128, 9.0, np.float32)},
    )

    def step(command: str, reduce_op: str | None = "add") -> list[float]:
        imms = {"op": "copy", "reduce_op": reduce_op, "reduce_cmd": command}
        found = run("activation", {"data": data}, imms, more=REDUCED, state=state)["reduce_res"]
        assert found.shape == (2, 1)
        return [float(value) for value in found.ravel()]

    assert step("reset_reduce") == [3.0, 7.0]
    assert step("reduce") == [6.0, 14.0]
    assert step("idle", None) == [6.0, 14.0]
    assert step("idle") == [3.0, 7.0], "reduce_op and reduce_res ask for the sum of this call"
    assert step("idle", None) == [6.0, 14.0], "idle leaves the registers alone"
    assert step("reset") == [0.0, 0.0]
    assert state["scalar_accumulator"].tolist() == [0.0] * 128


def test_accumulator_without_a_result() -> None:
    data, state = np.ones((2, 3), np.float32), dict[str, Array]()
    imms = {"op": "copy", "reduce_op": "add", "reduce_cmd": "reset_reduce"}
    assert set(run("activation", {"data": data}, imms, state=state)) == {"dst"}
    assert state["scalar_accumulator"][:3].tolist() == [3.0, 3.0, 0.0]
    assert set(run("activation", {"data": data}, {"op": "copy", "reduce_cmd": "idle"}, state=state)) == {
        "dst"
    }
    assert state["scalar_accumulator"][:3].tolist() == [3.0, 3.0, 0.0]


@pytest.mark.oracle("nisa.activation_reduce")
def test_activation_reduce_resets_and_reads_out() -> None:
    data = normal(2, 3, 5)
    state = {"scalar_accumulator": np.full(128, 9.0, np.float32)}
    found = run(
        "activation_reduce", {"data": data}, {"op": "square", "reduce_op": "add"}, more=REDUCED, state=state
    )
    squares = data.astype(np.float64) ** 2
    assert np.allclose(found["dst"], squares, rtol=1e-6)
    assert np.allclose(found["reduce_res"].ravel(), squares.reshape(2, -1).sum(axis=1), rtol=1e-6)
    assert np.array_equal(state["scalar_accumulator"][:2], found["reduce_res"].ravel())
    assert not state["scalar_accumulator"][2:].any()


def test_meanings_go_on_beyond_the_partition_limit() -> None:
    found = run("activation_reduce", {"data": np.ones((200, 2), np.float32)}, {"op": "copy"}, more=REDUCED)
    assert found["reduce_res"].shape == (200, 1) and (found["reduce_res"] == 2).all()


# GpSimd

PATTERN = ((10, 2), (-1, 3))


@pytest.mark.oracle("nisa.iota")
def test_iota() -> None:
    imms = {"pattern": PATTERN, "offset": 5, "channel_multiplier": 100}
    expected = [[5, 4, 3, 15, 14, 13], [105, 104, 103, 115, 114, 113]]
    assert dst_of("iota", {}, imms, dst=((2, 2, 3), "int32")).tolist() == expected
    assert dst_of("iota", {}, imms, dst=((2, 6), "bfloat16")).tolist() == expected
    assert dst_of("iota", {}, {"pattern": ((1, 2),), "offset": 254}, dst=((1, 2), "uint8")).tolist() == [
        [254, 255]
    ]


def test_iota_beyond_float32_and_beyond_32_bits() -> None:
    imms = {"pattern": ((1, 2),), "offset": 2**24}
    assert dst_of("iota", {}, imms, dst=((1, 2), "int32")).tolist() == [[2**24, 2**24 + 1]]
    wrapped = dst_of("iota", {}, {"pattern": ((1, 2),), "offset": 2**31 - 1}, dst=((1, 2), "int32"))
    assert wrapped.tolist() == [[2**31 - 1, -(2**31)]]


@pytest.mark.parametrize("cmp_op", ["equal", "not_equal", "greater_equal", "greater", "less_equal", "less"])
@pytest.mark.parametrize("dtype", [np.float32, BF16])
@pytest.mark.oracle("nisa.affine_select")
def test_affine_select(cmp_op: str, dtype: type) -> None:
    compare = {
        "equal": np.equal,
        "not_equal": np.not_equal,
        "greater_equal": np.greater_equal,
        "greater": np.greater,
        "less_equal": np.less_equal,
        "less": np.less,
    }[cmp_op]
    tile = normal(4, 2, 3).astype(dtype)
    imms = {
        "pattern": ((-1, 6),),
        "channel_multiplier": 1,
        "offset": 2,
        "on_false_value": -9.5,
        "cmp_op": cmp_op,
    }
    keep = compare(2 + np.arange(4)[:, None] - np.arange(6)[None, :], 0)
    expected = np.where(keep, tile.reshape(4, 6).astype(np.float64), -9.5)
    name = dtypes.of(tile.dtype).name
    assert is_bits("affine_select", {"on_true_tile": tile}, name, imms)
    found = dst_of("affine_select", {"on_true_tile": tile}, imms, dst=((4, 6), name))
    assert found.shape == tile.shape and np.array_equal(found.reshape(4, 6).astype(np.float64), expected)
    other = "float16" if dtype is np.float32 else "float32"
    values = dst_of("affine_select", {"on_true_tile": tile}, imms, dst=((4, 6), other))
    assert np.array_equal(values.reshape(4, 6), expected)


def test_affine_select_keeps_bits_and_rounds_the_number() -> None:
    imms = {"pattern": ((1, 3),), "channel_multiplier": 0, "on_false_value": -3.4028235e38, "cmp_op": "equal"}
    tile = SPECIAL.astype(BF16)
    found = dst_of("affine_select", {"on_true_tile": tile}, imms, dst=((2, 3), "bfloat16"))
    assert found[:, 0].tobytes() == tile[:, 0].tobytes()
    assert np.isneginf(found[:, 1:].astype(np.float32)).all()


def test_affine_select_with_no_comparison_has_no_meaning() -> None:
    imms = {"pattern": ((1, 3),), "channel_multiplier": 0, "on_false_value": 0.0, "cmp_op": "abs"}
    with pytest.raises(ValueError, match="affine_select: cmp_op abs is no comparison"):
        dst_of("affine_select", {"on_true_tile": SPECIAL}, imms, dst=((2, 3), "float32"))


# The table


@pytest.mark.parametrize("found", ROWS.values(), ids=lambda found: found.name)
def test_flows_follow_the_operands(found: Row) -> None:
    reads = [operand for operand in found.operands if operand.role.reads]
    assert all((flow is Flow.nothing) == (not reads) for flow in found.flow.values())
    assert set(found.immediates) >= {operand.name for operand in found.operands if operand.number}


def test_importing_the_table_is_light() -> None:
    code = (
        "import sys, nkireview.isa.table; print('scipy' in sys.modules, 'nkireview.program' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]

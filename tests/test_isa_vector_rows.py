"""Predicated rows and the shuffle against what the documentation says, and the limits of the Vector and Scalar rows."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from execute_kit import Kernel, View
from numpy.typing import NDArray
from row_kit import BASES, COLUMN, PSUM, T, sentences
from test_isa_rows import FakeReader, run

from nkireview.execute import execute
from nkireview.isa import dtypes
from nkireview.isa.enums import Engine
from nkireview.isa.release import LEGACY, Release
from nkireview.isa.row import Bits, Role
from nkireview.isa.table import row
from nkireview.program.verify import verify

pytestmark = [pytest.mark.filterwarnings("error"), pytest.mark.usefixtures("as_executed")]

Array = NDArray[Any]
FP32_MIN = -3.4028234663852886e38
BF16 = ml_dtypes.bfloat16


def mask_of(seed: int, *shape: int, dtype: str = "uint8") -> Array:
    return np.random.default_rng(seed).integers(0, 3, shape).astype(dtype)


def values_of(seed: int, *shape: int) -> Array:
    return (np.random.default_rng(seed).standard_normal(shape) * 100).astype(np.float32)


# tensor_copy_predicated


def copied(old: Array, new: Array, predicate: Array, reverse: bool) -> Array:
    """Element by element, as the behaviour section of the stub says."""
    result = old.copy().reshape(len(old), -1)
    for lane in range(result.shape[0]):
        for at in range(result.shape[1]):
            holds = predicate.reshape(result.shape)[lane, at] != 0
            if holds != reverse:
                result[lane, at] = new.reshape(result.shape)[lane, at]
    return result.reshape(old.shape)


@pytest.mark.oracle("nisa.tensor_copy_predicated")
@pytest.mark.parametrize(
    "dtype", ["float32", "bfloat16", "float16", "float8_e4m3", "int32", "uint8", "bool_"]
)
@pytest.mark.parametrize("compute", [np.float32, np.float64])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_predicated_copy_moves_bits(dtype: str, compute: type, reverse: bool) -> None:
    storage = dtypes.of(dtype).storage
    rng = np.random.default_rng(1)
    old, new = (
        rng.integers(0, 2 if dtype == "bool_" else 256, (3, 4 * storage.itemsize), np.uint8).view(storage)
        for _ in range(2)
    )
    for kind in ("uint8", "uint16", "uint32"):
        tiles = {"dst": old, "src": new, "predicate": mask_of(2, 3, 4, dtype=kind)}
        reader = FakeReader(tiles, {"reverse_pred": reverse}, {}, compute=compute)
        result = row("tensor_copy_predicated").meaning(reader)["dst"]
        assert isinstance(result, Bits) and result.array.dtype == storage
        assert result.array.tobytes() == copied(old, new, tiles["predicate"], reverse).tobytes()


@pytest.mark.oracle("nisa.tensor_copy_predicated")
@pytest.mark.parametrize(
    ("dtype", "number", "stored"),
    [
        ("float32", 0.1, np.float32(0.1)),
        ("bfloat16", 1.00390625, BF16(1.0)),
        ("float16", -np.inf, np.float16(-np.inf)),
        ("float32", np.nan, np.float32(np.nan)),
        ("int32", 2**31 - 1, np.int32(2**31 - 1)),
        ("uint8", 2.5, np.uint8(2)),
        ("int8", -200, np.int8(-128)),
    ],
)
def test_a_number_is_copied_as_the_destination_holds_it(dtype: str, number: float, stored: Any) -> None:
    old = np.zeros((1, 2), dtypes.of(dtype).storage)
    predicate = np.array([[4, 0]], np.uint16)
    found = run(
        "tensor_copy_predicated", {"dst": old, "predicate": predicate}, {"src": number}, ((1, 2), dtype)
    )
    np.testing.assert_array_equal(found["dst"], np.array([[stored, 0]], old.dtype))


def test_operands_of_another_rank_are_taken_in_element_order() -> None:
    tiles = {
        "dst": np.zeros((2, 2, 3), np.float32),
        "src": np.arange(12, dtype=np.float32).reshape(2, 6),
        "predicate": np.array([[0, 1, 0, 1, 1, 0]] * 2, np.uint8),
    }
    found = run("tensor_copy_predicated", tiles, dst=((2, 2, 3), "float32"))["dst"]
    assert found.tolist() == [[[0, 1, 0], [3, 4, 0]], [[0, 7, 0], [9, 10, 0]]]


@pytest.mark.oracle("nisa.tensor_copy_predicated")
def test_a_predicated_copy_keeps_what_was_there_through_the_executor() -> None:
    old, new, predicate = values_of(3, 4, 6), values_of(4, 4, 6), mask_of(5, 4, 6)
    for alias in (False, True):
        kernel = Kernel()
        dst, src, mask = kernel.load(old), kernel.load(new), kernel.load(predicate)
        kernel.call("tensor_copy_predicated", dst=dst, src=dst if alias else src, predicate=mask)
        kernel.call("tensor_copy_predicated", dst=dst, src=0.0, predicate=mask, reverse_pred=True)
        kernel.store(dst)
        program = kernel.program()
        assert not [found.message for found in verify(program) if found.row == "tensor_copy_predicated"]
        for compute in (np.float32, np.float64):
            output = execute(program, kernel.arguments, compute=compute).outputs[0]
            kept = old if alias else new
            np.testing.assert_array_equal(output.values, np.where(predicate != 0, kept, 0).astype(np.float32))
            assert output.written is None
        shadow = execute(program, kernel.arguments, compute=np.float64, rounding="off")
        np.testing.assert_array_equal(shadow.outputs[0].values, output.values)


def holed(kernel: Kernel, values: Array) -> View:
    """A tile in which element [1, 1] was never written."""
    tile = kernel.sbuf(*values.shape)
    source = kernel.argument(values)
    for lane in range(values.shape[0]):
        for at in range(values.shape[1]):
            if (lane, at) != (1, 1):
                kernel.copy(tile[lane : lane + 1, at : at + 1], source[lane : lane + 1, at : at + 1])
    return tile


def written(kernel: Kernel, *tiles: View) -> list[Any]:
    for tile in tiles:
        kernel.store(tile)
    found = []
    for output in kernel.run().outputs:
        found.append(None if output.written is None else output.written.astype(int).tolist())
    return found


def test_only_what_is_taken_must_be_defined() -> None:
    predicate = np.array([[1, 1, 0], [1, 0, 1], [0, 1, 1]], np.uint8)
    hole = [[1, 1, 1], [1, 0, 1], [1, 1, 1]]
    values = values_of(6, 3, 3)
    kernel = Kernel()
    kept, dropped = kernel.load(values), kernel.load(values)
    hole_dst, hole_src = holed(kernel, values), holed(kernel, values)
    kernel.call("tensor_copy_predicated", dst=hole_dst, src=kept, predicate=kernel.load(predicate))
    kernel.call("tensor_copy_predicated", dst=dropped, src=hole_src, predicate=kernel.load(predicate))
    filled = holed(kernel, values)
    zero = kernel.load(1 - predicate)
    kernel.call("tensor_copy_predicated", dst=filled, src=0.0, predicate=zero)
    assert written(kernel, hole_dst, dropped, filled) == [hole, None, None]


# range_select

COMPARE = {
    "equal": lambda a, b: a == b,
    "less": lambda a, b: a < b,
    "less_equal": lambda a, b: a <= b,
    "greater": lambda a, b: a > b,
    "greater_equal": lambda a, b: a >= b,
}


def ranged(data: Array, ops: tuple[str, str], bounds: tuple[Array, Array], start: int) -> Array:
    """The stub's NumPy text, element by element in float64."""
    rows = data.astype(np.float64).reshape(len(data), -1)
    result = np.empty_like(rows)
    for lane in range(rows.shape[0]):
        for at in range(rows.shape[1]):
            index = float(start + at)
            inside = all(
                COMPARE[op](index, float(bound[lane, 0])) for op, bound in zip(ops, bounds, strict=True)
            )
            result[lane, at] = rows[lane, at] if inside else FP32_MIN
    return result.reshape(data.shape)


@pytest.mark.oracle("nisa.range_select")
@pytest.mark.parametrize("ops", [("greater_equal", "less"), ("less_equal", "greater"), ("equal", "equal")])
@pytest.mark.parametrize("dtype", [np.float32, BF16, np.float16])
@pytest.mark.parametrize("compute", [np.float32, np.float64])
def test_range_select(ops: tuple[str, str], dtype: type, compute: type) -> None:
    data = values_of(7, 4, 2, 5).astype(dtype)
    bounds = np.array([[3], [12], [7], [-1]], np.float32), np.array([[9], [4], [7], [100]], np.float32)
    for start in (0, 4, -2):
        tiles = {"on_true_tile": data, "bound0": bounds[0], "bound1": bounds[1]}
        imms = {"comp_op0": ops[0], "comp_op1": ops[1], "range_start": start, "reduce_cmd": "reset_reduce"}
        found = run("range_select", tiles, imms, more={"reduce_res": ((4, 1), "float32")}, compute=compute)
        expected = ranged(data, ops, bounds, start)
        np.testing.assert_array_equal(found["dst"], expected.astype(compute))
        np.testing.assert_array_equal(
            found["reduce_res"][:, 0], expected.reshape(4, -1).max(axis=1).astype(compute)
        )


@pytest.mark.oracle("nisa.range_select")
def test_what_is_out_of_range_is_minus_infinity_in_narrow_tiles_but_not_in_the_float32_maximum() -> None:
    kernel = Kernel()
    dst, top = kernel.sbuf(2, 3, dtype="bfloat16"), kernel.sbuf(2, 1)
    narrow_top = kernel.sbuf(2, 1, dtype="bfloat16")
    bounds = kernel.load(np.array([[0], [9]], np.float32)), kernel.load(np.array([[2], [9]], np.float32))
    data = kernel.load(np.array([[1, 2, np.nan], [4, 5, 6]], np.float32))
    for result in (top, narrow_top):
        kernel.call(
            "range_select",
            dst=dst,
            on_true_tile=data,
            comp_op0="greater_equal",
            comp_op1="less",
            bound0=bounds[0],
            bound1=bounds[1],
            reduce_res=result,
        )
    for tile in (dst, top, narrow_top):
        kernel.store(tile)
    values = [output.values.astype(np.float64).tolist() for output in kernel.run().outputs]
    assert values == [[[1, 2, -np.inf], [-np.inf] * 3], [[2], [FP32_MIN]], [[2], [-np.inf]]]


@pytest.mark.oracle("nisa.range_select")
def test_indices_are_compared_in_float32() -> None:
    tiles = {"on_true_tile": np.ones((1, 2), np.float32), "bound0": np.full((1, 1), 2**24, np.float32)}
    tiles["bound1"] = tiles["bound0"]
    imms = {"comp_op0": "equal", "comp_op1": "equal", "range_start": 2**24}
    for compute in (np.float32, np.float64):
        # 2**24 + 1 rounds to 2**24 in float32
        assert run("range_select", tiles, imms, compute=compute)["dst"].tolist() == [[1, 1]]


def test_what_is_selected_away_may_be_undefined() -> None:
    kernel = Kernel()
    data = holed(kernel, values_of(8, 3, 3))
    tiles = [kernel.sbuf(3, 3), kernel.sbuf(3, 1), kernel.sbuf(3, 3), kernel.sbuf(3, 1)]
    low = kernel.load(np.zeros((3, 1), np.float32))
    for limit, (dst, top) in zip((1, 2), (tiles[:2], tiles[2:]), strict=True):
        high = kernel.load(np.full((3, 1), limit, np.float32))
        kernel.call(
            "range_select",
            dst=dst,
            on_true_tile=data,
            comp_op0="greater_equal",
            comp_op1="less",
            bound0=low,
            bound1=high,
            reduce_res=top,
        )
    hole = [[1, 1, 1], [1, 0, 1], [1, 1, 1]]
    assert written(kernel, *tiles) == [None, None, hole, [[1], [0], [1]]]


def test_an_undefined_bound_leaves_its_partition_undefined() -> None:
    kernel = Kernel()
    bound, dst = kernel.sbuf(3, 1), kernel.sbuf(3, 2)
    kernel.copy(bound[0:1], kernel.argument(np.ones((1, 1), np.float32)))
    data = kernel.load(values_of(9, 3, 2))
    given = {"comp_op0": "less", "comp_op1": "less", "bound0": bound, "bound1": bound}
    kernel.call("range_select", dst=dst, on_true_tile=data, **given)
    assert written(kernel, dst) == [[[1, 1], [0, 0], [0, 0]]]


# select_reduce


@pytest.mark.oracle("nisa.select_reduce")
@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "uint16"])
@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("compute", [np.float32, np.float64])
def test_select_reduce(kind: str, vector: bool, reverse: bool, compute: type) -> None:
    data, predicate = values_of(10, 3, 2, 4), mask_of(11, 3, 8, dtype=kind)
    column = np.array([[-1.5], [250.0], [0.0]], np.float32)
    tiles = {"on_true": data, "predicate": predicate, **({"on_false": column} if vector else {})}
    imms = {"reverse_pred": reverse, "reduce_cmd": "reset_reduce", **({} if vector else {"on_false": 7.25})}
    found = run("select_reduce", tiles, imms, more={"reduce_res": ((3, 1), "float32")}, compute=compute)
    truth = (predicate != 0).reshape(3, 2, 4) != reverse
    other = column.reshape(3, 1, 1) if vector else 7.25
    expected = np.where(truth, data.astype(np.float64), other)
    np.testing.assert_array_equal(found["dst"], expected)
    np.testing.assert_array_equal(found["reduce_res"], np.max(expected.reshape(3, -1), axis=1, keepdims=True))


def test_a_selection_by_an_undefined_predicate_is_undefined() -> None:
    kernel = Kernel()
    predicate, dst, top = kernel.sbuf(3, 2, dtype="uint8"), kernel.sbuf(3, 2), kernel.sbuf(3, 1)
    kernel.copy(predicate[0:2], kernel.argument(mask_of(12, 2, 2)))
    data = kernel.load(values_of(13, 3, 2))
    given = {"predicate": predicate, "on_true": data, "on_false": 0.0, "reduce_res": top}
    kernel.call("select_reduce", dst=dst, reduce_cmd="reset_reduce", **given)
    assert written(kernel, dst, top) == [[[1, 1], [1, 1], [0, 0]], [[1], [1], [0]]]


# nc_stream_shuffle

REVERSED = tuple(reversed(range(32)))


def shuffled(src: Array, dst: Array, mask: tuple[int, ...]) -> Array:
    result = dst.copy()
    for lane in range(len(dst)):
        quadrant, within = divmod(lane, 32)
        if mask[within] != 255:
            result[lane] = src[32 * quadrant + mask[within]].reshape(dst.shape[1:])
    return result


@pytest.mark.oracle("nisa.nc_stream_shuffle")
@pytest.mark.parametrize("dtype", [np.float32, BF16, np.int32])
@pytest.mark.parametrize(
    ("lanes", "sources", "mask"),
    [
        (128, 128, REVERSED),
        (32, 1, (0,) * 32),
        (20, 32, tuple(range(12, 32)) + (0,) * 12),
        (64, 64, (16,) + (255,) * 31),
        (40, 64, tuple(255 if at % 3 else (at * 7) % 32 for at in range(32))),
    ],
)
def test_shuffle(dtype: type, lanes: int, sources: int, mask: tuple[int, ...]) -> None:
    src, dst = (values_of(seed, rows, 6).astype(dtype) for seed, rows in ((14, sources), (15, lanes)))
    tiles = {"src": src, "dst": dst.reshape(lanes, 2, 3)}
    name = dtypes.of(src.dtype).name
    for compute in (np.float32, np.float64):
        found = run(
            "nc_stream_shuffle",
            tiles,
            {"shuffle_mask": mask},
            ((lanes, 2, 3), name),
            compute=compute,
        )["dst"]
        assert found.dtype == src.dtype
        assert found.tobytes() == shuffled(src, dst, mask).tobytes()


@pytest.mark.oracle("nisa.nc_stream_shuffle")
def test_a_shuffle_may_be_in_place_and_broadcast_to_another_quadrant() -> None:
    values = values_of(16, 64, 3)
    kernel = Kernel()
    tile = kernel.load(values)
    kernel.call("nc_stream_shuffle", dst=tile, src=tile, shuffle_mask=REVERSED)
    kernel.call("nc_stream_shuffle", dst=tile[32:64], src=tile[0:1], shuffle_mask=(0,) * 32)
    kernel.store(tile)
    program = kernel.program()
    assert verify(program) == ()
    found = execute(program, kernel.arguments).outputs[0].values
    np.testing.assert_array_equal(found[:32], values[31::-1])
    np.testing.assert_array_equal(found[32:], np.broadcast_to(values[31], (32, 3)))


def test_a_shuffle_reads_its_destination_only_where_it_keeps_partitions() -> None:
    dst = row("nc_stream_shuffle").operand("dst")
    assert dst.role_in({"shuffle_mask": (255,) + (0,) * 31}) is Role.accumulate
    assert dst.role_in({"shuffle_mask": (0,) * 32}) is Role.write
    kernel = Kernel()
    fresh, kept = kernel.sbuf(32, 2), kernel.sbuf(32, 2)
    src = kernel.load(values_of(17, 32, 2))
    kernel.call("nc_stream_shuffle", dst=fresh, src=src, shuffle_mask=(0,) * 32)
    kernel.call("nc_stream_shuffle", dst=kept, src=src, shuffle_mask=(3, 255) * 16)
    assert written(kernel, fresh, kept) == [None, [[1, 1], [0, 0]] * 16]


def test_an_undefined_partition_moves_with_the_shuffle() -> None:
    kernel = Kernel()
    src, dst = kernel.sbuf(32, 1), kernel.sbuf(32, 1)
    kernel.copy(src[0:31], kernel.argument(values_of(18, 31, 1)))
    kernel.call("nc_stream_shuffle", dst=dst, src=src, shuffle_mask=REVERSED)
    assert written(kernel, dst) == [[[0]] + [[1]] * 31]


def test_a_shuffle_beyond_its_source_has_no_meaning() -> None:
    tiles = {"src": np.zeros((1, 2), np.float32)}
    with pytest.raises(ValueError, match="shuffle_mask reads partition 3 of src, which has 1"):
        run("nc_stream_shuffle", tiles, {"shuffle_mask": (3,) * 32}, ((2, 2), "float32"))


# What was there before, in the parts that the table of operators adds


@pytest.mark.oracle("nisa.tensor_scalar")
@pytest.mark.parametrize(
    ("imms", "expected"),
    [
        ({"op0": "square"}, [[9.0, 0.25, 4.0]]),
        ({"op0": "relu"}, [[0.0, 0.5, 2.0]]),
        ({"op0": "abs_max", "operand0": -2.5}, [[-3.0, -2.5, -2.5]]),
        ({"op0": "abs_min", "operand0": -1.0}, [[-1.0, 0.5, -1.0]]),
        ({"op0": "square", "op1": "subtract", "operand1": 1.0, "reverse1": True}, [[-8.0, 0.75, -3.0]]),
    ],
)
def test_operators_of_trn3(imms: dict[str, Any], expected: list[list[float]]) -> None:
    data = np.array([[-3.0, 0.5, 2.0]], np.float32)
    assert run("tensor_scalar", {"data": data}, imms, generation="v4")["dst"].tolist() == expected
    legal = {"operand0": 0, **imms}
    assert sentences("tensor_scalar", {**legal, "target": "trn3"}) == []
    name = imms["op0"]
    assert f"op0 {name} is an ALU operator on v4 only" in sentences("tensor_scalar", legal)
    text = f"op0 {name} is no ALU operator in NKI 0.3"
    assert text in sentences("tensor_scalar", {**legal, "target": "trn3", "nki": "0.3"})


# Limits

MINE = (
    "tensor_copy_predicated",
    "range_select",
    "select_reduce",
    "tensor_scalar_reduce",
    "tensor_scalar_cumulative",
    "exponential",
    "activate2",
    "nc_match_replace8",
    "nc_stream_shuffle",
)
EXTRA = {  # operands that the base call leaves out
    "tensor_scalar_reduce": {"reduce_init": T(COLUMN), "reduce_cmd": "load_reduce"},
    "tensor_scalar_cumulative": {"imm1": T(COLUMN), "reduce_cmd": "load_reduce"},
    "exponential": {"reduce_init": T(COLUMN), "reduce_cmd": "load_reduce"},
    "activate2": {"relu_param": T(COLUMN)},
}
TILES = [
    (name, operand.name)
    for name in MINE
    for operand in row(name).operands
    if operand.name in BASES[name].tiles or operand.name in EXTRA.get(name, {})
]
NATIVE = {  # the others name their dtypes, or are in rows of v4
    *(("tensor_copy_predicated", "dst"), ("tensor_copy_predicated", "src")),
    *(("range_select", "dst"), ("range_select", "on_true_tile"), ("range_select", "reduce_res")),
    *(("select_reduce", name) for name in ("dst", "on_true", "on_false", "reduce_res")),
    *(("tensor_scalar_reduce", name) for name in ("dst", "data", "reduce_res")),
    *(("tensor_scalar_cumulative", "dst"), ("tensor_scalar_cumulative", "src")),
    *(("nc_match_replace8", name) for name in ("dst", "data", "vals")),
    *(("nc_stream_shuffle", "dst"), ("nc_stream_shuffle", "src")),
}


@pytest.mark.parametrize(("name", "operand"), TILES)
def test_partitions_start_and_formats_of_every_tile(name: str, operand: str) -> None:
    extra = EXTRA.get(name, {}) if operand not in BASES[name].tiles else {}
    base = BASES[name].changed(extra)
    assert base.sentences() == []
    free = base.tiles[operand].shape[1:]
    found = base.changed({f"{operand}.shape": (129, *free)}).sentences()
    assert f"{operand} partition size 129 exceeds 128" in found
    found = base.changed({f"{operand}.start": 32}).sentences()
    kind = "shuffle" if name == "nc_stream_shuffle" else "tile"
    assert f"{operand} starts at partition 32, a {kind} of 128 partitions may start at 0" in found
    fp8 = {f"{operand}.dtype": "float8_e4m3fn"}
    text = f"{operand} dtype float8_e4m3fn needs NeuronCore-v4 or newer, use another dtype"
    assert text not in base.changed({**fp8, "target": "trn3"}).sentences()
    refused = base.changed({**fp8, "target": "trn2"}).sentences()
    assert (text in refused) is ((name, operand) in NATIVE)
    assert base.changed({f"{operand}.start": 0, "target": "trn3"}).sentences() == []


LAYOUT = [
    ("tensor_copy_predicated", "src", "predicate"),
    ("tensor_copy_predicated", "dst", "predicate"),
    ("range_select", "dst", "on_true_tile"),
    ("select_reduce", "predicate", "on_true"),
    ("select_reduce", "dst", "on_true"),
    ("tensor_scalar_reduce", "dst", "data"),
    ("tensor_scalar_cumulative", "dst", "src"),
    ("exponential", "dst", "src"),
    ("activate2", "dst", "data"),
    ("nc_match_replace8", "dst", "data"),
]


@pytest.mark.parametrize(("name", "other", "first"), LAYOUT)
def test_equal_layout(name: str, other: str, first: str) -> None:
    text = f"{other} free size 511 differs from {first} free size 512"
    assert text in sentences(name, {f"{other}.shape": (128, 511)})
    text = f"{other} partition size 64 differs from {first} partition size 128"
    assert text in sentences(name, {f"{other}.shape": (64, 512)})
    assert sentences(name, {f"{other}.shape": (128, 8, 64)}) == []


VECTORS = [
    ("range_select", "bound0", "on_true_tile", True),
    ("range_select", "bound1", "on_true_tile", True),
    ("select_reduce", "on_false", "on_true", False),
    ("tensor_scalar_reduce", "operand0", "data", True),
    ("tensor_scalar_reduce", "reduce_init", "data", True),
    ("tensor_scalar_cumulative", "imm0", "src", True),
    ("tensor_scalar_cumulative", "imm1", "src", True),
    ("exponential", "max_value", "src", True),
    ("exponential", "reduce_init", "src", True),
    ("activate2", "imm0", "data", False),
    ("activate2", "imm1", "data", False),
    ("activate2", "relu_param", "data", False),
]


@pytest.mark.parametrize(("name", "operand", "data", "fp32"), VECTORS)
def test_vectors(name: str, operand: str, data: str, fp32: bool) -> None:
    base = BASES[name].changed(EXTRA.get(name, {}) if operand not in BASES[name].tiles else {})
    text = f"{operand} free size is 2, must be 1; a vector has one element a partition"
    assert text in base.changed({f"{operand}.shape": (128, 2)}).sentences()
    text = f"{operand} partition size 64 is below {data} partition size 128"
    assert text in base.changed({f"{operand}.shape": (64, 1)}).sentences()
    text = f"{operand} dtype bfloat16 is not allowed, expected one of float32"
    assert (text in base.changed({f"{operand}.dtype": "bfloat16"}).sentences()) is fp32
    assert base.sentences() == []


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("range_select", "on_true_tile"),
        ("select_reduce", "on_true"),
        ("tensor_scalar_reduce", "data"),
        ("exponential", "src"),
        ("activate2", "data"),
    ],
)
def test_a_result_of_a_reduction_is_a_column(name: str, data: str) -> None:
    text = "reduce_res free size is 2, must be 1"
    assert sentences(name, {"reduce_res.shape": (128, 2)}) == [text]
    text = f"reduce_res partition size 64 differs from {data} partition size 128"
    assert sentences(name, {"reduce_res.shape": (64, 1)}) == [text]
    if name != "tensor_scalar_reduce":
        assert sentences(name, {"reduce_res": None}) == []


PAIRS_TEXT = (
    "expected one of multiply with add; multiply with subtract; multiply with bypass; add with bypass; "
    "subtract with bypass; bypass with bypass"
)
CASES: list[tuple[str, dict[str, Any], list[str]]] = [
    # tensor_copy_predicated
    ("tensor_copy_predicated", {"src.memory": PSUM}, []),
    ("tensor_copy_predicated", {"predicate.memory": PSUM}, []),
    (
        "tensor_copy_predicated",
        {"src.memory": PSUM, "predicate.memory": PSUM},
        ["src and predicate are both in PSUM, one must be in SBUF"],
    ),
    ("tensor_copy_predicated", {"predicate.dtype": "uint32"}, []),
    (
        "tensor_copy_predicated",
        {"predicate.dtype": "int8"},
        ["predicate dtype int8 is not allowed, expected one of uint16, uint32, uint8"],
    ),
    (
        "tensor_copy_predicated",
        {"src.dtype": "bfloat16"},
        ["src dtype bfloat16 differs from dst dtype float32"],
    ),
    ("tensor_copy_predicated", {"src": 0.5}, []),
    ("tensor_copy_predicated", {"src": None}, ["src is missing"]),
    # range_select
    ("range_select", {"target": "trn1"}, ["needs NeuronCore-v3 or v4, not v2"]),
    ("range_select", {"on_true_tile.dtype": "bfloat16"}, []),
    (
        "range_select",
        {"on_true_tile.dtype": "int32"},
        [
            "on_true_tile dtype int32 is not allowed, expected one of bfloat16, float16, float32, float8_e4m3, "
            "float8_e4m3fn, float8_e5m2, float8_e8m0fnu, tfloat32"
        ],
    ),
    ("range_select", {"comp_op0": "equal", "comp_op1": "greater"}, []),
    (
        "range_select",
        {"comp_op0": "not_equal"},
        ["comp_op0 is not_equal, must be one of equal, less, less_equal, greater, greater_equal"],
    ),
    (
        "range_select",
        {"comp_op1": "not_equal"},
        ["comp_op1 is not_equal, must be one of equal, less, less_equal, greater, greater_equal"],
    ),
    ("range_select", {"reduce_op": "add"}, ["reduce_op is add, must be maximum"]),
    ("range_select", {"reduce_cmd": "idle", "reduce_res": None}, []),
    (
        "range_select",
        {"reduce_cmd": "load_reduce"},
        ["reduce_cmd is load_reduce, must be one of reset_reduce, reduce, reset, idle"],
    ),
    ("range_select", {"reduce_cmd": "load_reduce", "nki": "0.2"}, []),
    ("range_select", {"on_false_value": -3.4028235e38}, []),
    (
        "range_select",
        {"on_false_value": -1e30},
        ["on_false_value is -1e+30, must be FP32_MIN (-3.4028235e+38)"],
    ),
    ("range_select", {"on_false_value": -1e30, "nki": "0.2"}, []),
    (
        "range_select",
        {"range_start": ("register", 3)},
        ["range_start is ('register', 3), must be an integer known at compile time"],
    ),
    ("range_select", {"range_start": 2**24 - 511}, []),
    (
        "range_select",
        {"range_start": 2**24 - 510},
        ["indices run from 16776706 to 16777217, float32 compares them exactly up to 16777216 only"],
    ),
    # select_reduce
    ("select_reduce", {"on_true.memory": PSUM}, []),
    (
        "select_reduce",
        {"on_true.memory": PSUM, "predicate.memory": PSUM},
        ["on_true and predicate are both in PSUM, one must be in SBUF"],
    ),
    ("select_reduce", {"on_true.dtype": "int16"}, []),
    (
        "select_reduce",
        {"on_true.dtype": "int32"},
        ["on_true dtype int32 is not allowed, expected any but int32, tfloat32, uint32"],
    ),
    ("select_reduce", {"predicate.dtype": "int16"}, []),
    (
        "select_reduce",
        {"predicate.dtype": "uint32"},
        ["predicate dtype uint32 is not allowed, expected one of int16, int8, uint16, uint8"],
    ),
    ("select_reduce", {"reduce_res.dtype": "bfloat16"}, []),
    (
        "select_reduce",
        {"reduce_res.dtype": "int32"},
        [
            "reduce_res dtype int32 is not allowed, expected one of bfloat16, float16, float32, float8_e4m3, "
            "float8_e4m3fn, float8_e5m2, float8_e8m0fnu, tfloat32"
        ],
    ),
    ("select_reduce", {"reduce_op": "add"}, ["reduce_op is add, must be maximum"]),
    (
        "select_reduce",
        {"reduce_cmd": "load_reduce"},
        ["reduce_cmd is load_reduce, must be one of reset_reduce, reduce, idle"],
    ),
    # nc_stream_shuffle
    ("nc_stream_shuffle", {"src.shape": (64, 512), "dst.shape": (64, 512), "dst.start": 64}, []),
    (
        "nc_stream_shuffle",
        {"src.shape": (33, 512), "dst.shape": (33, 512), "src.start": 32},
        ["src starts at partition 32, a shuffle of 64 partitions may start at 0, 64"],
    ),
    (
        "nc_stream_shuffle",
        {"src.shape": (65, 512), "dst.shape": (1, 512), "dst.start": 64},
        ["dst starts at partition 64, a shuffle of 96 partitions may start at 0"],
    ),
    (
        "nc_stream_shuffle",
        {
            "src.shape": (1, 512),
            "dst.shape": (32, 512),
            "dst.start": 96,
            "src.start": 32,
            "shuffle_mask": (0,) * 32,
        },
        [],
    ),
    ("nc_stream_shuffle", {"src.dtype": "int32"}, ["dst dtype float32 differs from src dtype int32"]),
    ("nc_stream_shuffle", {"src.shape": (128, 511)}, ["dst free size 512 differs from src free size 511"]),
    (
        "nc_stream_shuffle",
        {"shuffle_mask": (0,) * 31},
        ["shuffle_mask has 31 entries, must be a list of 32 partitions"],
    ),
    ("nc_stream_shuffle", {"shuffle_mask": (31,) * 31 + (255,)}, []),
    (
        "nc_stream_shuffle",
        {"shuffle_mask": (0,) * 31 + (32,)},
        ["shuffle_mask[31] is 32, must be 0 to 31, or 255 to keep dst"],
    ),
    (
        "nc_stream_shuffle",
        {"src.shape": (40, 512)},
        ["partition 40 of dst takes partition 40 of src, which has 40"],
    ),
]


@pytest.mark.parametrize(("name", "changes", "expected"), CASES)
def test_limit(name: str, changes: dict[str, Any], expected: list[str]) -> None:
    assert sentences(name, changes) == expected


# Views made by indirect: (row, the operand beside dst)
INDIRECT = [
    ("tensor_tensor", "data1"),
    ("tensor_scalar", "data"),
    ("tensor_reduce", "data"),
    ("activation", "data"),
    ("activation_reduce", "data"),
    ("activate2", "data"),
    ("exponential", "src"),
    ("tensor_scalar_reduce", "data"),
    ("tensor_scalar_cumulative", "src"),
    ("tensor_copy_predicated", "predicate"),
]
INDEX = T((128, 32), "uint32")


@pytest.mark.parametrize(("name", "beside"), INDIRECT)
def test_indirect_views(name: str, beside: str) -> None:
    base = BASES[name].changed({"target": "trn3"})
    both = base.changed({f"{beside}.index": INDEX, "dst.index": T((128, 32), "uint32")})
    assert both.sentences() == []
    for operand in (beside, "dst"):
        view = base.changed({f"{operand}.index": INDEX})
        text = f"{operand} is a view made by indirect(), which"
        if name not in ("activate2", "exponential"):
            assert f"{text} needs NeuronCore-v4 or newer" in view.changed({"target": "trn2"}).sentences()
        assert f"{text} exists since NKI 0.5" in view.changed({"nki": "0.4"}).sentences()
        found = base.changed({f"{operand}.index": T((128, 32), "uint32", PSUM)}).sentences()
        assert found == [f"index of {operand} is in PSUM, it must be in SBUF"]
        found = base.changed({f"{operand}.index": T((128, 32), "uint32", start=16)}).sentences()
        assert f"index of {operand} starts at partition 16, must be a multiple of 32" in found
    placed = base.changed({"dst.index": T((32, 32), "uint32", start=32), f"{beside}.start": 0})
    text = f"index of dst starts at partition 32, {beside} at 0: they must start together"
    assert text in placed.sentences()


@pytest.mark.parametrize("name", ["tensor_scalar", "activation", "activation_reduce", "activate2"])
def test_scalar_scatters_to_sbuf_only(name: str) -> None:
    on_scalar = {"engine": Engine.scalar} if name == "tensor_scalar" else {}
    scattered = {"dst.index": INDEX, "target": "trn3", **on_scalar}
    assert sentences(name, scattered) == []
    text = "dst is a view made by indirect() in PSUM, where the Scalar engine cannot scatter to"
    assert sentences(name, {**scattered, "dst.memory": PSUM}) == [text]


@pytest.mark.parametrize(
    ("name", "operand"),
    [
        ("tensor_copy_predicated", "src"),
        ("tensor_tensor", "data2"),
        ("tensor_scalar_reduce", "operand0"),
        ("tensor_scalar_reduce", "reduce_res"),
        ("range_select", "on_true_tile"),
        ("select_reduce", "predicate"),
        ("nc_match_replace8", "data"),
        ("nc_stream_shuffle", "src"),
    ],
)
def test_other_operands_take_no_indirect_view(name: str, operand: str) -> None:
    text = f"{operand} is a view made by indirect(), which this instruction does not take there"
    assert text in sentences(name, {f"{operand}.index": INDEX, "target": "trn3"})


def test_the_integer_address_form_takes_no_indirect_view() -> None:
    address = {"dst.dtype": "int32", "data.dtype": "int32", "operand0": T(COLUMN, "int32"), "target": "trn3"}
    assert sentences("tensor_scalar", address) == []
    found = sentences("tensor_scalar", {**address, "data.index": INDEX})
    assert found == ["data is a view made by indirect(), which the 32-bit integer address form does not take"]


# Costs, by the published formulas for N = 512


@pytest.mark.parametrize(
    ("name", "changes", "cycles"),
    [
        ("tensor_copy_predicated", {}, 1024),
        ("tensor_copy_predicated", {"src.memory": PSUM}, 512),
        ("tensor_copy_predicated", {"src": 1.0}, 512),
        ("range_select", {}, 512),
        ("range_select", {"on_true_tile.shape": (128, 8)}, 64),
        ("select_reduce", {}, 1024),
        ("select_reduce", {"predicate.memory": PSUM}, 512),
        ("tensor_scalar_reduce", {}, 512 + 64),
        ("tensor_scalar_reduce", {"reduce_res": None}, 512),
        ("tensor_scalar_cumulative", {}, 512),
        ("exponential", {}, 128),
        ("activate2", {}, 512 + 64),
        ("activate2", {"reduce_res": None}, 512),
        ("nc_match_replace8", {}, 512),
        ("nc_match_replace8", {"data.shape": (128, 16)}, 64),
        ("nc_stream_shuffle", {}, 512),
    ],
)
def test_interval(name: str, changes: dict[str, Any], cycles: float) -> None:
    assert BASES[name].changed(changes).cycles() == pytest.approx(cycles)


# Signatures by release


def names(name: str, release: str) -> list[str]:
    return [param.name for param in row(name).parameters(Release.parse(release))]


def test_parameters_by_release() -> None:
    late = {"reduce_cmd", "reduce_init"}
    assert not late & set(names("tensor_scalar_reduce", "0.3"))
    assert late <= set(names("tensor_scalar_reduce", "0.4"))
    assert "reduce_res_negate" not in names("tensor_scalar_reduce", "0.5")
    assert "reduce_res_negate" in names("tensor_scalar_reduce", "0.6")
    assert names("nc_stream_shuffle", "legacy")[:3] == ["src", "dst", "shuffle_mask"]
    assert names("nc_stream_shuffle", "0.2")[:3] == ["dst", "src", "shuffle_mask"]
    assert names("nc_match_replace8", "legacy") == ["dst", "data", "vals", "imm", "dst_idx", "name"]


@pytest.mark.parametrize(
    ("name", "target", "first"),
    [
        ("exponential", "trn3", "0.2"),
        ("activate2", "trn3", "0.4"),
    ],
)
def test_first_release_and_generation(name: str, target: str, first: str) -> None:
    releases = [f"0.{minor}" for minor in range(1, 7)]
    for nki in releases:
        found = sentences(name, {"nki": nki, "target": target})
        assert (f"exists since NKI {first}, not in NKI {nki}" in found) is (nki < first)
    if target == "trn3":
        assert sentences(name, {"target": "trn2"}) == ["needs NeuronCore-v4, not v3"]
    assert (LEGACY in row(name).releases) is False


def test_legacy_forms() -> None:
    forms = {name: found.form for name in MINE if (found := row(name).legacy)}
    assert forms == {
        "tensor_copy_predicated": "dst",
        "select_reduce": "dst",
        "nc_stream_shuffle": "dst",
        # AWS tests it in that namespace, though the stubs of 2.26 lack it
        "tensor_scalar_cumulative": "dst",
        "range_select": "returns",
        "tensor_scalar_reduce": "returns",
        "nc_match_replace8": "returns",
    }

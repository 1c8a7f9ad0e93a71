"""Rows of gather.py against loops written from the documentation, their limits, and what undefined elements reach."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from execute_kit import Kernel, View
from hypothesis import given, settings
from hypothesis import strategies as st
from judge_kit import At, assert_tile_limits, call_of, judged, judgements
from numpy.typing import NDArray
from test_isa_rows import FakeReader, run

from nkireview.isa.enums import Memory
from nkireview.isa.row import Bits
from nkireview.isa.table import row

pytestmark = [pytest.mark.filterwarnings("error"), pytest.mark.usefixtures("as_executed")]

Array = NDArray[Any]
BF16 = ml_dtypes.bfloat16
FP8 = ml_dtypes.float8_e4m3
PSUM = Memory.psum
DTYPES = [np.float32, BF16, np.float16, FP8, ml_dtypes.float8_e5m2, np.int8, np.uint16, np.int32, np.uint32]
NAMES = {np.dtype(dtype): np.dtype(dtype).name for dtype in DTYPES}
COMPUTES = [np.float32, np.float64]


def filled(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(-100, 100, shape).astype(dtype)


def same(left: Array, right: Array) -> bool:
    return left.dtype == right.dtype and left.tobytes() == right.tobytes()


def reach_of(name: str, reader: FakeReader, written: str = "dst", **masks: Array) -> Array:
    return row(name).reach[written](reader, masks)


# local_gather


def gathered(src: Array, index: Array, length: int, valid: int) -> Array:
    """Every processor reads its 16 partitions of `index` down the columns, and takes runs of `length` elements."""
    flat = src.reshape(src.shape[0], -1)
    result = np.empty((src.shape[0], valid, length), src.dtype)
    for partition in range(src.shape[0]):
        first = partition // 16 * 16
        for place in range(valid):
            start = int(index[first + place % 16, place // 16])
            for step in range(length):
                result[partition, place, step] = flat[partition, start + step]
    return result


@pytest.mark.oracle("nisa.local_gather")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("length", "valid", "columns"), [(1, None, 4), (4, 64, 4), (2, 37, 3), (32, 5, 1), (8, 16, 1)]
)
def test_local_gather_reads_indices_down_the_columns(
    dtype: type, length: int, valid: int | None, columns: int
) -> None:
    src, count = filled(32, 16, 8, dtype=dtype), valid or 16 * columns
    index = np.random.default_rng(1).integers(0, 128 - length + 1, (32, columns)).astype(np.uint16)
    imms = {"num_elem_per_idx": length, "num_valid_indices": valid}
    tiles = {"src_buffer": src, "index": index}
    dst = ((32, count, length), NAMES[src.dtype])
    found = run("local_gather", tiles, imms, dst)["dst"]
    assert same(found, gathered(src, index, length, count).reshape(32, -1))


@pytest.mark.oracle("nisa.local_gather")
def test_local_gather_of_the_documented_example() -> None:
    # Public test of the documentation: (128, 512, 4) by 64 indices a processor, scaled by 4, four elements each.
    src = np.random.default_rng(0).random((128, 512, 4)).astype(np.float32)
    index = np.tile(np.random.default_rng(1).integers(0, 512, (16, 4)), (8, 1))
    expected = np.empty((128, 64, 4), np.float32)
    for core in range(8):
        part = slice(16 * core, 16 * core + 16)
        expected[part] = np.take(src[part], index[part].flatten(order="F")[:64], axis=1)
    tiles = {"src_buffer": src, "index": (index * 4).astype(np.uint16)}
    imms = {"num_elem_per_idx": 4, "num_valid_indices": 64}
    found = run("local_gather", tiles, imms, ((128, 4, 16, 4), "float32"))["dst"]
    assert np.array_equal(found.reshape(expected.shape), expected)


@pytest.mark.oracle("nisa.local_gather")
def test_local_gather_ignores_the_run_in_0_6_where_sizes_disagree() -> None:
    src, index = filled(16, 64), np.arange(32, dtype=np.uint16).reshape(2, 16).T * 2
    imms = {"num_elem_per_idx": 4}
    found = run("local_gather", {"src_buffer": src, "index": index}, imms, ((16, 32), "float32"))["dst"]
    assert np.array_equal(found, gathered(src, index, 1, 32)[:, :, 0])


def local(**changes: Any) -> dict[str, At]:
    tiles = {"dst": At((128, 64)), "src_buffer": At((128, 512)), "index": At((128, 4), "uint16")}
    return {**tiles, **changes}


GATHERS: list[tuple[dict[str, At], dict[str, Any], str | None]] = [
    (local(), {}, None),
    (local(), {"num_elem_per_idx": 1, "num_valid_indices": 64}, None),
    (local(dst=At((128, 50, 32))), {"num_elem_per_idx": 32, "num_valid_indices": 50}, None),
    (
        local(dst=At((40, 64)), src_buffer=At((40, 512)), index=At((40, 4), "uint16")),
        {},
        "src_buffer partition size 40 is no multiple of 16",
    ),
    (
        local(index=At((112, 4), "uint16")),
        {},
        "index partition size 112 differs from src_buffer partition size 128",
    ),
    (local(dst=At((64, 64))), {}, "dst partition size 64 differs from src_buffer partition size 128"),
    (
        local(dst=At((128, 192))),
        {"num_elem_per_idx": 3},
        "num_elem_per_idx is 3, expected one of 1, 2, 4, 8, 16, 32",
    ),
    (
        local(dst=At((128, 65))),
        {"num_valid_indices": 65},
        "num_valid_indices is 65, each 16 partitions of index hold 64",
    ),
    (local(dst=At((128, 1))), {"num_valid_indices": 1}, None),
    (
        local(dst=At((128, 0))),
        {"num_valid_indices": 0},
        "num_valid_indices is 0, it must be a positive number",
    ),
    (
        local(),
        {"num_valid_indices": ("register", 3)},
        "num_valid_indices is ('register', 3), it must be a positive number",
    ),
    (local(dst=At((128, 4096)), index=At((128, 256), "uint16")), {}, None),
    (
        local(dst=At((128, 4112)), index=At((128, 257), "uint16")),
        {},
        "4112 indices for each 16 partitions exceed 4096",
    ),
    (local(dst=At((128, 4096)), index=At((128, 257), "uint16")), {"num_valid_indices": 4096}, None),
    (
        local(dst=At((128, 63))),
        {"num_elem_per_idx": 2},
        "dst free size is 63, 64 indices of 2 elements give 128",
    ),
    (
        local(dst=At((128, 64), "bfloat16")),
        {},
        "dst dtype bfloat16 differs from src_buffer dtype float32",
    ),
    (
        local(index=At((128, 4), "uint32")),
        {},
        "index dtype uint32 is not allowed, expected one of uint16",
    ),
    (local(src_buffer=At((128, 512), memory=PSUM)), {}, "src_buffer is in PSUM, expected SBUF"),
]


@pytest.mark.parametrize(("tiles", "imms", "text"), GATHERS)
@pytest.mark.parametrize("where", ["trn1", "trn2", "trn3"])
def test_limits_of_local_gather(
    where: str, tiles: dict[str, At], imms: dict[str, Any], text: str | None
) -> None:
    assert judged("local_gather", tiles, imms, where=where) == ([] if text is None else [text])


def test_local_gather_with_a_run_that_is_ignored() -> None:
    imms = {"num_elem_per_idx": 2}
    text = "num_elem_per_idx 2 is ignored: dst free size is 64, for 64 indices it must be 128"
    (found,) = judgements("local_gather", local(), imms)
    assert (found.text, found.number, found.blocking) == (text, 68, False)
    (found,) = judgements("local_gather", local(), imms, nki="0.5")
    assert found.text == "dst free size is 64, 64 indices of 2 elements give 128" and found.blocking
    assert judged("local_gather", local(dst=At((128, 128))), imms) == []


@pytest.mark.parametrize(
    ("dtype", "length", "expected"),
    # 150 + 64 * e / C with C = ((28 + 4e) / 4e) / min(4 / size, e), by hand
    [
        ("float32", 1, 150 + 64 / 8),
        ("float32", 4, 150 + 256 / (44 / 16)),
        ("bfloat16", 1, 150 + 64 / 8),
        ("bfloat16", 4, 150 + 256 / (44 / 16 / 2)),
        ("int8", 32, 150 + 2048 / (156 / 128 / 4)),
    ],
)
def test_cost_of_local_gather(dtype: str, length: int, expected: float) -> None:
    tiles = local(dst=At((128, 64 * length), dtype), src_buffer=At((128, 512), dtype))
    call = call_of("local_gather", tiles, {"num_elem_per_idx": length})
    assert row("local_gather").cost.interval(call) == pytest.approx(expected)


def test_local_gather_reaches_what_an_index_names() -> None:
    src, index = filled(32, 8), np.zeros((32, 1), np.uint16)
    index[:, 0] = np.arange(32) % 7
    index[3, 0], index[20, 0] = 8, 7  # the first is out of bounds, the second takes the last element
    tiles, imms = {"src_buffer": src, "index": index}, {"num_valid_indices": 10}
    reader = FakeReader(tiles, imms, {"dst": ((32, 10), "float32")})
    expected = np.ones((32, 10), bool)
    expected[:16, 3] = False
    assert np.array_equal(reach_of("local_gather", reader), expected)
    held, known = np.ones((32, 8), bool), np.ones((32, 1), bool)
    held[17, 2] = False  # element 2 of partition 17 only
    known[5] = known[12] = False  # index 5 of the first processor; the index at partition 12 is not valid
    expected[17, 0] = expected[17, 7] = False  # where 16 + k is 2 modulo 7
    expected[:16, 5] = False
    assert np.array_equal(reach_of("local_gather", reader, src_buffer=held, index=known), expected)


# nc_n_gather


@pytest.mark.oracle("nisa.nc_n_gather")
@pytest.mark.parametrize("dtype", DTYPES)
def test_nc_n_gather_takes_flat_elements_of_the_same_partition(dtype: type) -> None:
    data = filled(7, 3, 5, dtype=dtype)
    indices = np.random.default_rng(2).integers(0, 15, (7, 2, 9)).astype(np.uint32)
    expected = np.empty((7, 2, 9), data.dtype)
    for p, i, j in np.ndindex(7, 2, 9):
        at = int(indices[p, i, j])
        expected[p, i, j] = data[p, at // 5, at % 5]
    found = run("nc_n_gather", {"data": data, "indices": indices}, {}, ((7, 18), NAMES[data.dtype]))["dst"]
    assert same(found, expected.reshape(7, 18))


def flat(**changes: Any) -> dict[str, At]:
    return {"dst": At((64, 10)), "data": At((64, 99)), "indices": At((64, 2, 5), "uint32"), **changes}


@pytest.mark.parametrize(
    ("tiles", "text"),
    [
        (flat(), None),
        (flat(dst=At((64, 5, 2))), None),
        (flat(dst=At((64, 11))), "indices free size 10 differs from dst free size 11"),
        (flat(data=At((32, 99))), "data partition size 32 differs from dst partition size 64"),
        (
            flat(indices=At((32, 10), "uint32")),
            "indices partition size 32 differs from dst partition size 64",
        ),
        (flat(dst=At((64, 10), "int32")), "dst dtype int32 differs from data dtype float32"),
        (
            flat(indices=At((64, 10), "int32")),
            "indices dtype int32 is not allowed, expected one of uint32",
        ),
        (flat(dst=At((64, 10), memory=PSUM)), "dst is in PSUM, expected SBUF"),
    ],
)
def test_limits_of_nc_n_gather(tiles: dict[str, At], text: str | None) -> None:
    assert judged("nc_n_gather", tiles) == ([] if text is None else [text])


def test_nc_n_gather_reaches_what_an_index_names() -> None:
    data, indices = filled(2, 4), np.array([[0, 3, 4, 1], [2, 2, 0, 1]], np.uint32)
    reader = FakeReader({"data": data, "indices": indices}, {}, {"dst": ((2, 4), "float32")})
    assert reach_of("nc_n_gather", reader).tolist() == [[1, 1, 0, 1], [1, 1, 1, 1]]
    held = np.array([[0, 1, 1, 1], [1, 1, 0, 1]], bool)
    known = np.array([[1, 1, 1, 1], [1, 1, 1, 0]], bool)
    found = reach_of("nc_n_gather", reader, data=held, indices=known)
    assert found.tolist() == [[0, 1, 0, 1], [0, 0, 1, 0]]


@pytest.mark.parametrize(("count", "expected"), [(512, 662), (513, 813), (10, 160)])
def test_cost_of_nc_n_gather_counts_its_instructions(count: int, expected: float) -> None:
    tiles = flat(dst=At((64, count)), indices=At((64, count), "uint32"))
    assert row("nc_n_gather").cost.interval(call_of("nc_n_gather", tiles)) == pytest.approx(expected)


# tensor_partition_reduce


@pytest.mark.oracle("nisa.tensor_partition_reduce")
@pytest.mark.parametrize("compute", COMPUTES)
@pytest.mark.parametrize("dtype", [np.float32, BF16, FP8, np.int8, np.uint16])
@pytest.mark.parametrize("op", ["add", "average", "max"])
def test_tensor_partition_reduce(op: str, dtype: type, compute: type) -> None:
    data = (filled(100, 3, 4).astype(np.float32) % 16).astype(dtype)
    wide = data.astype(np.float64)
    expected = wide.max(axis=0) if op == "max" else wide.sum(axis=0) / (100 if op == "average" else 1)
    found = run(
        "tensor_partition_reduce", {"data": data}, {"op": op}, ((1, 3, 4), "float32"), compute=compute
    )
    assert found["dst"].shape == (1, 3, 4)
    assert np.allclose(found["dst"][0], expected, rtol=1e-6 if compute is np.float32 else 1e-14, atol=0)


@pytest.mark.oracle("nisa.tensor_partition_reduce")
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint32])
@pytest.mark.parametrize("op", ["bitwise_or", "bitwise_and"])
def test_tensor_partition_reduce_of_bits(op: str, dtype: type) -> None:
    data = np.random.default_rng(3).integers(0, 2**32, (9, 5)).astype(np.uint32).astype(dtype)
    expected = [[_fold(op, [int(number) for number in data[:, f]]) for f in range(5)]]
    found = run("tensor_partition_reduce", {"data": data}, {"op": op}, ((1, 5), np.dtype(dtype).name))["dst"]
    assert found.tolist() == expected


def _fold(op: str, numbers: list[int]) -> int:
    result = numbers[0]
    for number in numbers[1:]:
        result = result | number if op == "bitwise_or" else result & number
    return result


@pytest.mark.oracle("nisa.tensor_partition_reduce")
def test_tensor_partition_reduce_of_32_bit_integers_is_exact_and_wraps() -> None:
    data = np.array([[2**24, 2**31 - 1, -5], [1, 1, -6]], np.int32)
    dst = ((1, 3), "int32")
    found = run("tensor_partition_reduce", {"data": data}, {"op": "add"}, dst)["dst"]
    assert found.tolist() == [[2**24 + 1, -(2**31), -11]]
    assert run("tensor_partition_reduce", {"data": data + 1}, {"op": "max"}, dst)["dst"].tolist() == [
        [2**24 + 1, 2, -4]
    ]


def across(**changes: Any) -> dict[str, At]:
    return {"dst": At((1, 4, 8)), "data": At((100, 32)), **changes}


REDUCING: list[tuple[dict[str, At], dict[str, Any], str, str | None]] = [
    (across(), {"op": "add"}, "0.6", None),
    (across(), {"op": "max"}, "0.2", None),
    (across(), {"op": "average"}, "0.5", None),
    (across(), {"op": "average"}, "0.4", "op average exists since NKI 0.5, not in NKI 0.4"),
    (
        across(),
        {"op": "multiply"},
        "0.6",
        "op multiply is no reduction over partitions, expected one of add, average, max, bitwise_or, bitwise_and",
    ),
    (
        across(),
        {"op": "multiply"},
        "0.4",
        "op multiply is no reduction over partitions, expected one of add, max, bitwise_or, bitwise_and",
    ),
    (
        across(dst=At((2, 32))),
        {"op": "add"},
        "0.6",
        "dst partition size is 2, must be 1; all partitions become one",
    ),
    (across(dst=At((1, 31))), {"op": "add"}, "0.6", "dst free size 31 differs from data free size 32"),
    (
        across(dst=At((1, 32), "int32")),
        {"op": "bitwise_or"},
        "0.6",
        "data dtype float32 is not allowed, bitwise_or needs integers",
    ),
    (
        across(data=At((9, 32), "int32")),
        {"op": "bitwise_and"},
        "0.6",
        "dst dtype float32 is not allowed, bitwise_and needs integers",
    ),
    (across(data=At((9, 32), "int32"), dst=At((1, 32), "int32")), {"op": "bitwise_and"}, "0.6", None),
    (across(data=At((9, 32), memory=PSUM)), {"op": "add"}, "0.6", "data is in PSUM, expected SBUF"),
]


@pytest.mark.parametrize(("tiles", "imms", "nki", "text"), REDUCING)
def test_limits_of_tensor_partition_reduce(
    tiles: dict[str, At], imms: dict[str, Any], nki: str, text: str | None
) -> None:
    assert judged("tensor_partition_reduce", tiles, imms, nki=nki) == ([] if text is None else [text])


def test_tensor_partition_reduce_reaches_its_column() -> None:
    reader = FakeReader({"data": filled(3, 4)}, {"op": "add"}, {"dst": ((1, 4), "float32")})
    held = np.ones((3, 4), bool)
    held[1, 2] = False
    assert reach_of("tensor_partition_reduce", reader, data=held).tolist() == [True, True, False, True]


# sequence_bounds


def bounds(ids: list[float]) -> list[list[float]]:
    """First element of the segment and the one behind its last; n and -1 for padding."""
    count, first, behind = len(ids), [], []
    for at, segment in enumerate(ids):
        left, right = at, at
        while left > 0 and ids[left - 1] == segment:
            left -= 1
        while right < count - 1 and ids[right + 1] == segment:
            right += 1
        first.append(left if segment else count)
        behind.append(right + 1 if segment else -1)
    return [first, behind]


@pytest.mark.oracle("nisa.sequence_bounds")
def test_sequence_bounds_of_the_documented_example() -> None:
    ids = np.array([[0, 1, 1, 2, 2, 2, 0, 3, 3]], np.int32)
    expected = [[[9, 1, 1, 3, 3, 3, 9, 7, 7], [-1, 3, 3, 6, 6, 6, -1, 9, 9]]]
    found = run("sequence_bounds", {"segment_ids": ids}, {}, ((1, 2, 9), "int32"))["dst"]
    assert found.dtype == np.int32 and found.tolist() == expected
    as_float = run("sequence_bounds", {"segment_ids": ids.astype(np.float32)}, {}, ((1, 2, 9), "float32"))
    assert as_float["dst"].dtype == np.float32 and as_float["dst"].tolist() == expected


@pytest.mark.oracle("nisa.sequence_bounds")
@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.sampled_from([np.int32, np.float32]))
@settings(deadline=None)
def test_sequence_bounds(ids: list[int], dtype: type) -> None:
    tile = np.array([ids], dtype)
    found = run("sequence_bounds", {"segment_ids": tile}, {}, ((1, 2, len(ids)), tile.dtype.name))["dst"]
    assert found.tolist() == [bounds(list(ids))]


def segments(**changes: Any) -> dict[str, At]:
    return {"dst": At((1, 2, 16)), "segment_ids": At((1, 16)), **changes}


@pytest.mark.parametrize(
    ("tiles", "text"),
    [
        (segments(), None),
        (segments(dst=At((1, 2, 16), "int32"), segment_ids=At((1, 16), "int32")), None),
        (segments(dst=At((1, 2, 15))), "dst free size is 30, 16 segment ids have 32 bounds"),
        (segments(segment_ids=At((2, 16))), "segment_ids partition size is 2, must be 1"),
        (segments(dst=At((2, 32))), "dst partition size is 2, must be 1"),
        (
            segments(segment_ids=At((1, 16), "uint32")),
            "segment_ids dtype uint32 is not allowed, expected one of float32, int32",
        ),
        (
            segments(dst=At((1, 32), "bfloat16")),
            "dst dtype bfloat16 is not allowed, expected one of float32, int32",
        ),
        (segments(segment_ids=At((1, 16), memory=PSUM)), "segment_ids is in PSUM, expected SBUF"),
    ],
)
def test_limits_of_sequence_bounds(tiles: dict[str, At], text: str | None) -> None:
    assert judged("sequence_bounds", tiles) == ([] if text is None else [text])


@given(st.lists(st.integers(0, 2), min_size=1, max_size=5), st.data())
@settings(max_examples=100, deadline=None)
def test_sequence_bounds_are_known_where_no_unknown_id_changes_them(
    ids: list[int], data: st.DataObject
) -> None:
    known = np.array(data.draw(st.lists(st.booleans(), min_size=len(ids), max_size=len(ids))))
    found = [
        bounds([value if sure else other for value, sure, other in zip(ids, known, others, strict=True)])
        for others in _fillings(len(ids))
    ]
    constant = np.all(np.array(found) == np.array(found[0]), axis=0)
    reader = FakeReader({"segment_ids": np.array([ids], np.int32)}, {}, {"dst": ((1, 2, len(ids)), "int32")})
    assert np.array_equal(reach_of("sequence_bounds", reader, segment_ids=known[None]), constant)


def _fillings(count: int) -> Array:
    return np.stack(np.meshgrid(*[[0, 1, 2, 3]] * count, indexing="ij"), axis=-1).reshape(-1, count)


# nonzero_with_count


def places(line: Array, offset: int, padding: int) -> list[int]:
    found = [at + offset for at, value in enumerate(line) if value != 0]
    return found + [padding] * (len(line) - len(found)) + [len(found)]


@pytest.mark.oracle("nisa.nonzero_with_count")
def test_nonzero_with_count_of_the_documented_example() -> None:
    src = np.array([[0, 1, 1, 0, 0, 1, 0, 0]], np.int32)
    imms = {"index_offset": 16, "padding_val": -1}
    tiles = {"src": src, "dst": np.zeros((1, 9), np.int32)}
    found = run("nonzero_with_count", tiles, imms, ((1, 9), "int32"))["dst"]
    assert found.tolist() == [[17, 18, 21, -1, -1, -1, -1, -1, 3]]


@pytest.mark.oracle("nisa.nonzero_with_count")
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
@pytest.mark.parametrize("partitions", [1, 16, 40, 128])
def test_nonzero_with_count_leaves_other_partitions(dtype: type, partitions: int) -> None:
    src = (filled(partitions, 5, 7, seed=4) * (filled(partitions, 5, 7, seed=5) > 40)).astype(dtype)
    if dtype is np.float32:
        src[0, 0, :2] = np.nan, -0.0
    held = filled(partitions, 36, dtype=np.int32, seed=6)
    expected = held.copy()
    for partition in range(0, partitions, 16):
        expected[partition] = places(src[partition].reshape(-1), 7, -3)
    tiles, imms = {"src": src, "dst": held}, {"index_offset": 7, "padding_val": -3}
    found = run("nonzero_with_count", tiles, imms, ((partitions, 36), "int32"))["dst"]
    assert np.array_equal(found, expected)


@pytest.mark.oracle("nisa.nonzero_with_count")
def test_nonzero_with_count_by_default() -> None:
    tiles = {"src": np.array([[0.0, 2.0]], np.float32), "dst": np.zeros((1, 3), np.int32)}
    assert run("nonzero_with_count", tiles, {}, ((1, 3), "int32"))["dst"].tolist() == [[1, -1, 1]]


def marked(**changes: Any) -> dict[str, At]:
    return {"dst": At((128, 33), "int32"), "src": At((128, 4, 8)), **changes}


@pytest.mark.parametrize(
    ("tiles", "imms", "text"),
    [
        (marked(), {}, None),
        (marked(src=At((128, 32), "int32")), {"index_offset": 2**31 - 1, "padding_val": -(2**31)}, None),
        (
            marked(dst=At((128, 32), "int32")),
            {},
            "dst free size is 32, src has 32 elements: it must be 33",
        ),
        (
            marked(dst=At((64, 33), "int32")),
            {},
            "dst partition size 64 differs from src partition size 128",
        ),
        (
            marked(src=At((128, 32), "bfloat16")),
            {},
            "src dtype bfloat16 is not allowed, expected one of float32, int32",
        ),
        (marked(dst=At((128, 33))), {}, "dst dtype float32 is not allowed, expected one of int32"),
        (marked(), {"index_offset": 2**31}, "index_offset is 2147483648, it must be a 32-bit integer"),
        (marked(), {"padding_val": 1.0}, "padding_val is 1.0, it must be a 32-bit integer"),
        (marked(src=At((128, 32), memory=PSUM)), {}, "src is in PSUM, expected SBUF"),
    ],
)
def test_limits_of_nonzero_with_count(tiles: dict[str, At], imms: dict[str, Any], text: str | None) -> None:
    assert judged("nonzero_with_count", tiles, imms) == ([] if text is None else [text])


def test_nonzero_with_count_needs_v3() -> None:
    text = "needs NeuronCore-v3 or v4, not v2"
    assert judged("nonzero_with_count", marked(), where="trn1") == [text]
    assert judged("nonzero_with_count", marked(), where="trn3") == []


@given(st.lists(st.integers(0, 1), min_size=1, max_size=8), st.data())
@settings(max_examples=100, deadline=None)
def test_places_are_known_where_no_unknown_element_changes_them(line: list[int], data: st.DataObject) -> None:
    count = len(line)
    known = np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)))
    found = []
    for others in np.ndindex(*[2] * count):
        mixed = [value if sure else other for value, sure, other in zip(line, known, others, strict=True)]
        found.append(places(np.array(mixed), 0, -1))
    constant = np.all(np.array(found) == np.array(found[0]), axis=0)
    tiles = {"src": np.array([line], np.int32), "dst": np.zeros((1, count + 1), np.int32)}
    reader = FakeReader(tiles, {}, {"dst": ((1, count + 1), "int32")})
    masks = {"src": known[None], "dst": np.zeros((1, count + 1), bool)}
    assert np.array_equal(reach_of("nonzero_with_count", reader, **masks)[0], constant)


# topk


def largest(snake: Array, wanted: int) -> list[tuple[float, int]]:
    """The largest elements and their places, ascending; of equals the first are taken."""
    ranked = sorted(((-float(value), at) for at, value in enumerate(snake)))[:wanted]
    return [(-value, at) for value, at in reversed(ranked)]


@pytest.mark.oracle("nisa.topk")
@pytest.mark.parametrize("compute", COMPUTES)
@pytest.mark.parametrize(("groups", "count", "wanted"), [(1, 42, 8), (8, 512, 64), (2, 8, 8), (3, 100, 1)])
def test_topk_ranks_the_snake_of_each_16_partitions(
    groups: int, count: int, wanted: int, compute: type
) -> None:
    columns = -(-count // 16)
    src = np.random.default_rng(count).standard_normal((16 * groups, columns + 1)).astype(BF16)
    old, old_index = filled(16 * groups, wanted, dtype=BF16), filled(16 * groups, wanted, dtype=np.uint32)
    values, places_ = old.copy(), old_index.copy()
    for group in range(groups):
        snake = [src[16 * group + at % 16, at // 16] for at in range(count)]
        for rank, (value, place) in enumerate(largest(np.array(snake), wanted)):
            values[16 * group + rank % 16, rank // 16] = value
            places_[16 * group + rank % 16, rank // 16] = place
    tiles = {"src": src, "val_dst": old, "idx_dst": old_index}
    shape = (16 * groups, wanted)
    reader = FakeReader(
        tiles, {"n": count}, {"val_dst": (shape, "bfloat16"), "idx_dst": (shape, "uint32")}, compute=compute
    )
    found = row("topk").meaning(reader)
    assert isinstance(found["val_dst"], Bits) and isinstance(found["idx_dst"], Bits)
    assert same(found["val_dst"].array, values) and same(found["idx_dst"].array, places_)


@pytest.mark.oracle("nisa.topk")
def test_topk_takes_the_first_of_equals_and_nan_last() -> None:
    snake = np.array([1, 5, np.nan, 5, 2, 5, -np.inf, 0, 0, 0, 0, 0, 0, 0, 0, 0], BF16)
    tiles = {
        "src": snake.reshape(16, 1),
        "val_dst": np.zeros((16, 2), BF16),
        "idx_dst": np.zeros((16, 2), np.uint32),
    }
    reader = FakeReader(tiles, {"n": 8}, {"val_dst": ((16, 2), "bfloat16"), "idx_dst": ((16, 2), "uint32")})
    found = row("topk").meaning(reader)
    assert found["val_dst"].array[:3, 0].tolist() == [5, 5, 0]  # type: ignore[union-attr]
    assert found["idx_dst"].array[:3, 0].tolist() == [3, 1, 0]  # type: ignore[union-attr]


def ranked(**changes: Any) -> dict[str, At]:
    tiles = {"val_dst": At((128, 64), "bfloat16"), "idx_dst": At((128, 64), "uint32")}
    return {**tiles, "src": At((128, 32), "bfloat16"), **changes}


def of_size(wanted: int) -> dict[str, At]:
    return ranked(val_dst=At((128, wanted), "bfloat16"), idx_dst=At((128, wanted), "uint32"))


RANKS: list[tuple[dict[str, At], Any, str | None]] = [
    (ranked(), 512, None),
    (ranked(), 513, "n is 513, each 16 partitions of src hold 512"),
    (of_size(8), 8, None),
    (of_size(7), 7, "n is 7, it must lie between 8 and 65535"),
    (ranked(src=At((128, 4096), "bfloat16")), 65535, None),
    (ranked(src=At((128, 4096), "bfloat16")), 65536, "n is 65536, it must lie between 8 and 65535"),
    (ranked(), 63, "val_dst free size 64 must lie between 1 and 63"),
    (ranked(), 64, None),
    (ranked(), 64.0, "n is 64.0, it must be a number"),
    (ranked(), ("register", 1), "n is ('register', 1), it must be a number"),
    (
        {**of_size(32768), "src": At((128, 4096), "bfloat16")},
        60000,
        "val_dst free size 32768 must lie between 1 and 32767",
    ),
    ({**of_size(32767), "src": At((128, 4096), "bfloat16")}, 60000, None),
    (
        {
            "val_dst": At((24, 64), "bfloat16"),
            "idx_dst": At((24, 64), "uint32"),
            "src": At((24, 32), "bfloat16"),
        },
        512,
        "src partition size 24 is no multiple of 16",
    ),
    (
        ranked(val_dst=At((64, 64), "bfloat16")),
        512,
        "val_dst partition size 64 differs from src partition size 128",
    ),
    (
        ranked(idx_dst=At((64, 64), "uint32")),
        512,
        "idx_dst partition size 64 differs from src partition size 128",
    ),
    (ranked(idx_dst=At((128, 65), "uint32")), 512, "idx_dst free size 65 differs from val_dst free size 64"),
    (ranked(src=At((128, 32))), 512, "src dtype float32 is not allowed, expected one of bfloat16"),
    (
        ranked(val_dst=At((128, 64))),
        512,
        "val_dst dtype float32 is not allowed, expected one of bfloat16",
    ),
    (
        ranked(idx_dst=At((128, 64), "int32")),
        512,
        "idx_dst dtype int32 is not allowed, expected one of uint32",
    ),
    (ranked(src=At((128, 32), "bfloat16", PSUM)), 512, "src is in PSUM, expected SBUF"),
]


@pytest.mark.parametrize(("tiles", "count", "text"), RANKS)
def test_limits_of_topk(tiles: dict[str, At], count: Any, text: str | None) -> None:
    assert judged("topk", tiles, {"n": count}) == ([] if text is None else [text])


@pytest.mark.parametrize("nki", ["0.1", "0.2", "0.3", "0.4", "0.5"])
def test_topk_is_new_in_0_6(nki: str) -> None:
    assert judged("topk", ranked(), {"n": 512}, nki=nki) == [f"exists since NKI 0.6, not in NKI {nki}"]


@pytest.mark.parametrize(
    ("name", "tiles", "found"),
    [
        ("nc_n_gather", flat(), []),  # what nl.gather_flattened is in 0.1, which has no name for it
        ("nonzero_with_count", marked(), ["exists since NKI 0.2, not in NKI 0.1"]),
    ],
)
def test_gathers_of_the_second_generation(name: str, tiles: dict[str, At], found: list[str]) -> None:
    assert judged(name, tiles, nki="0.1") == found
    assert judged(name, tiles, nki="0.2") == []


def test_cost_of_topk() -> None:
    assert row("topk").cost.interval(call_of("topk", ranked(), {"n": 500})) == 4 * 500 + 64


def test_topk_reaches_the_results_of_its_snake() -> None:
    tiles = {
        "src": filled(32, 2, dtype=BF16),
        "val_dst": np.zeros((32, 17), BF16),
        "idx_dst": np.zeros((32, 17), np.uint32),
    }
    reader = FakeReader(
        tiles, {"n": 20}, {"val_dst": ((32, 17), "bfloat16"), "idx_dst": ((32, 17), "uint32")}
    )
    held, old = np.ones((32, 2), bool), np.zeros((32, 17), bool)
    held[4, 1] = False  # place 20 of the first snake, beyond n
    held[19, 1] = False  # place 19 of the second
    for written in ("val_dst", "idx_dst"):
        expected = old.copy()
        expected[:16, 0] = expected[0, 1] = True
        found = reach_of("topk", reader, written, src=held, **{written: old})
        assert np.array_equal(found, expected)


# In programs: definedness, and what is out of bounds


def program(make: Callable[[Kernel], View]) -> tuple[list[str], Array]:
    kernel = Kernel()
    kernel.store(make(kernel))
    result = kernel.run()
    return [fault.kind for fault in result.faults], result.outputs[0].values


def test_an_index_out_of_bounds_gathers_nothing_defined() -> None:
    def make(kernel: Kernel, last: int) -> View:
        data, dst = kernel.load(filled(16, 8)), kernel.sbuf(16, 4)
        indices = kernel.load(np.tile(np.array([0, 1, 2, last], np.uint32), (16, 1)))
        kernel.call("nc_n_gather", dst=dst, data=data, indices=indices)
        return dst

    assert program(lambda kernel: make(kernel, 7))[0] == []
    assert program(lambda kernel: make(kernel, 8))[0] == ["undefined result"]
    assert program(lambda kernel: make(kernel, 8)[:, 0:3])[0] == []


def test_partitions_that_nonzero_with_count_leaves_are_undefined_if_never_written() -> None:
    def make(kernel: Kernel, clear: bool) -> View:
        src, dst = kernel.load(filled(32, 4)), kernel.sbuf(32, 5, dtype="int32")
        if clear:
            kernel.call("memset", dst=dst, value=9)
        kernel.call("nonzero_with_count", dst=dst, src=src, index_offset=0, padding_val=-1)
        return dst

    assert program(lambda kernel: make(kernel, False))[0] == ["uninitialised"]
    faults, found = program(lambda kernel: make(kernel, True))
    assert faults == [] and np.all(found[1:16] == 9)
    assert program(lambda kernel: make(kernel, False)[0:1])[0] == []
    assert program(lambda kernel: make(kernel, False)[16:17])[0] == []


def test_topk_in_a_program_leaves_what_it_does_not_rank() -> None:
    def make(kernel: Kernel) -> View:
        src = kernel.load(filled(16, 2, dtype=BF16))
        values, places_ = kernel.sbuf(16, 16, dtype="bfloat16"), kernel.sbuf(16, 16, dtype="uint32")
        kernel.call("topk", val_dst=values, idx_dst=places_, src=src, n=32)
        return values

    assert program(make)[0] == ["uninitialised"]
    faults, found = program(lambda kernel: make(kernel)[:, 0:1])
    assert faults == []
    assert np.array_equal(found.ravel(), np.sort(filled(16, 2).ravel())[-16:].astype(BF16))


@pytest.mark.parametrize("where", ["trn1", "trn2", "trn3"])
@pytest.mark.parametrize(
    ("name", "tiles", "imms", "native"),
    [
        ("local_gather", local(), {}, ("dst", "src_buffer")),
        ("nc_n_gather", flat(), {}, ("dst", "data")),
        ("tensor_partition_reduce", across(), {"op": "add"}, ("dst", "data")),
        ("sequence_bounds", segments(), {}, ()),
        ("nonzero_with_count", marked(), {}, ()),
        ("topk", ranked(), {"n": 512}, ()),
    ],
)
def test_where_the_tiles_may_lie(
    name: str, tiles: dict[str, At], imms: dict[str, Any], native: tuple[str, ...], where: str
) -> None:
    assert_tile_limits(name, tiles, imms, where, native)

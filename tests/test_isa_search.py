"""max8, nc_find_index8 and nc_match_replace8 against searches written out element by element."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from execute_kit import Kernel
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from row_kit import T, sentences
from test_isa_rows import run

from nkireview.execute import execute
from nkireview.program.verify import verify

pytestmark = [pytest.mark.filterwarnings("error"), pytest.mark.usefixtures("as_executed")]

Array = NDArray[Any]
MISSING = {"uint16": 0xFFFF, "uint32": 0xFFFFFFFF}


def found_at(data: list[float], vals: list[float], missing: int) -> list[int]:
    """nc_find_index8: equal values of vals take the places of data in ascending order."""
    taken: set[int] = set()
    result = []
    for value in vals:
        place = next((at for at, held in enumerate(data) if held == value and at not in taken), None)
        if place is not None:
            taken.add(place)
        result.append(missing if place is None else place)
    return result


def replaced_at(
    data: list[float], vals: list[float], imm: float, missing: int
) -> tuple[list[float], list[int]]:
    """nc_match_replace8: vals from the last to the first, each at the first place that none took before."""
    taken: set[int] = set()
    slots = [missing] * 8
    for slot in range(7, -1, -1):
        place = next((at for at, held in enumerate(data) if held == vals[slot] and at not in taken), None)
        if place is not None:
            taken.add(place)
            slots[slot] = place
    return [imm if at in taken else held for at, held in enumerate(data)], slots


@pytest.mark.oracle("nisa.nc_match_replace8")
def test_the_example_of_the_documentation() -> None:
    data = np.array([[1, 2, 3, 4, 8, 8, 8, 8, 8, 8, 8]], np.float32)
    vals = np.array([[3, 8, 8, 8, 8, 8, 8, 8]], np.float32)
    found = run(
        "nc_match_replace8",
        {"data": data, "vals": vals},
        {"imm": 0.5},
        ((1, 11), "float32"),
        {"dst_idx": ((1, 8), "uint32")},
    )
    assert found["dst_idx"].tolist() == [[2, 10, 9, 8, 7, 6, 5, 4]]
    assert found["dst"].tolist() == [[1, 2, 0.5, 4, *[0.5] * 7]]
    ascending = run("nc_find_index8", {"data": data, "vals": vals}, {}, ((1, 8), "uint32"))
    assert ascending["dst"].tolist() == [[2, 4, 5, 6, 7, 8, 9, 10]]


rows = st.lists(st.integers(-3, 3), min_size=8, max_size=24)


@pytest.mark.oracle("nisa.nc_match_replace8", "nisa.nc_find_index8")
@settings(max_examples=120, deadline=None)
@given(
    rows,
    st.lists(st.integers(-4, 4), min_size=8, max_size=8),
    st.sampled_from(["float32", "bfloat16", "int8"]),
    st.sampled_from(["uint16", "uint32"]),
    st.sampled_from([-np.inf, 2.0]),
)
def test_searches(data: list[int], vals: list[int], dtype: str, index: str, imm: float) -> None:
    storage = np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)
    tiles = {
        "data": np.array([data, data[::-1]]).astype(storage),
        "vals": np.array([vals] * 2).astype(storage),
    }
    for compute in (np.float32, np.float64):
        for nki in ("legacy", "0.5", "0.6"):
            found = run(
                "nc_match_replace8",
                tiles,
                {"imm": imm},
                ((2, len(data)), dtype),
                {"dst_idx": ((2, 8), index)},
                compute=compute,
                nki=nki,
            )
            where = run("nc_find_index8", tiles, {}, ((2, 8), index), compute=compute, nki=nki)["dst"]
            for lane, line in enumerate((data, data[::-1])):
                values, slots = replaced_at(list(line), list(vals), imm, MISSING[index])
                assert found["dst"][lane].tolist() == values
                assert found["dst_idx"][lane].tolist() == slots
                assert where[lane].tolist() == found_at(list(line), list(vals), MISSING[index])


@pytest.mark.oracle("nisa.nc_match_replace8")
def test_nan_matches_nothing_and_zeros_of_both_signs_are_one() -> None:
    data = np.array([[np.nan, -0.0, 1, 2, 3, 4, 5, 6]], np.float32)
    vals = np.array([[np.nan, 0.0, *[9] * 6]], np.float32)
    found = run(
        "nc_match_replace8",
        {"data": data, "vals": vals},
        {"imm": 7.0},
        ((1, 8), "float32"),
        {"dst_idx": ((1, 8), "uint16")},
    )
    np.testing.assert_array_equal(found["dst"], [[np.nan, 7, 1, 2, 3, 4, 5, 6]])
    assert found["dst_idx"].tolist() == [[0xFFFF, 1, *[0xFFFF] * 6]]


@pytest.mark.oracle("nisa.nc_match_replace8", "nisa.max8")
def test_sixteen_largest_by_two_rounds_in_place() -> None:
    """The loop of a top-k kernel: take eight, strike them out, take the next eight."""
    data = np.random.default_rng(1).permutation(40).astype(np.float32).reshape(1, 40)
    data = np.concatenate([data, data[:, ::-1]])
    kernel = Kernel()
    tile = kernel.load(data.copy())
    top, index = kernel.sbuf(2, 16), kernel.sbuf(2, 16, dtype="uint32")
    for at in (0, 8):
        part = slice(None), slice(at, at + 8)
        kernel.call("max8", dst=top[part], src=tile)
        kernel.call(
            "nc_match_replace8", dst=tile, data=tile, vals=top[part], imm=float("-inf"), dst_idx=index[part]
        )
    for view in (top, index, tile):
        kernel.store(view)
    program = kernel.program()
    assert verify(program) == ()
    execution = execute(program, kernel.arguments)
    assert execution.faults == ()
    values, places, left = (output.values for output in execution.outputs)
    assert values.tolist() == [list(range(39, 23, -1))] * 2
    assert places.tolist() == [[line.index(value) for value in range(39, 23, -1)] for line in data.tolist()]
    np.testing.assert_array_equal(left, np.where(data > 23, -np.inf, data))


def searched(opcode: str, index: str, data: Array, vals: Array, release: str) -> list[Any]:
    kernel = Kernel()
    result, dst = kernel.sbuf(*vals.shape, dtype="uint32"), kernel.sbuf(*data.shape)
    given: dict[str, Any] = {"data": kernel.load(data), "vals": kernel.load(vals), index: result}
    if opcode == "nc_match_replace8":
        given |= {"dst": dst, "imm": 0.0}
    kernel.call(opcode, **given)
    kernel.store(result)
    program = kernel.program()
    program = replace(program, header=replace(program.header, release=release))
    written = execute(program, kernel.arguments).outputs[0].written
    return [] if written is None else written.astype(int).tolist()


def test_the_index_of_an_absent_value_is_known_where_a_document_says_it() -> None:
    data = np.arange(8, dtype=np.float32).reshape(1, 8)
    vals = np.array([[0, 1, 2, 99, 4, 5, 6, 7]], np.float32)
    hole = [[1, 1, 1, 0, 1, 1, 1, 1]]
    assert searched("nc_find_index8", "dst", data, vals, "0.6") == []
    assert searched("nc_find_index8", "dst", data, vals, "0.5") == hole
    for release in ("0.5", "0.6"):
        assert searched("nc_match_replace8", "dst_idx", data, vals, release) == hole
        assert searched("nc_match_replace8", "dst_idx", data, data, release) == []


@pytest.mark.parametrize("opcode", ["nc_find_index8", "nc_match_replace8"])
def test_a_search_needs_the_whole_partition(opcode: str) -> None:
    kernel = Kernel()
    data, dst = kernel.sbuf(2, 9), kernel.sbuf(2, 9)
    result = kernel.sbuf(2, 8, dtype="uint32")
    source = kernel.argument(np.arange(18, dtype=np.float32).reshape(2, 9))
    kernel.copy(data[0:1], source[0:1])
    kernel.copy(data[1:2, 0:8], source[1:2, 0:8])
    vals = kernel.load(np.arange(18, dtype=np.float32).reshape(2, 9)[:, :8].copy())
    if opcode == "nc_find_index8":
        kernel.call(opcode, dst=result, data=data, vals=vals)
        kernel.store(result)
    else:
        kernel.call(opcode, dst=dst, data=data, vals=vals, imm=0.0, dst_idx=result)
        kernel.store(result)
        kernel.store(dst)
    for output in kernel.run().outputs:
        assert output.written is not None
        assert output.written.all(axis=1).tolist() == [True, False]
        assert not output.written[1].any()


# Limits

CASES: list[tuple[str, dict[str, Any], list[str]]] = [
    ("max8", {"src.shape": (128, 8)}, []),
    ("max8", {"src.shape": (128, 7)}, ["src free size 7 is below 8"]),
    ("max8", {"src.shape": (128, 16384)}, []),
    ("max8", {"src.shape": (128, 16385)}, ["src free size 16385 exceeds 16384"]),
    ("max8", {"src.shape": (128, 4, 128)}, []),
    ("max8", {"src.shape": (128, 2, 2, 128)}, ["src number of dimensions 4 exceeds 3"]),
    ("max8", {"src.shape": (128, 2, 2, 2, 64), "nki": "0.3"}, []),
    ("max8", {"src.shape": (128, 2, 2, 2, 2, 32), "nki": "0.3"}, ["src number of dimensions 6 exceeds 5"]),
    ("max8", {"dst.shape": (128, 9)}, ["dst free size is 9, must be 8"]),
    ("max8", {"dst.shape": (64, 8)}, ["dst partition size 64 differs from src partition size 128"]),
    ("nc_find_index8", {"vals.shape": (128, 2, 4)}, []),
    ("nc_find_index8", {"vals.shape": (128, 2, 2, 2)}, ["vals number of dimensions 4 exceeds 3"]),
    ("nc_find_index8", {"vals.shape": (128, 7)}, ["vals free size is 7, must be 8"]),
    ("nc_find_index8", {"dst.dtype": "uint16"}, []),
    (
        "nc_find_index8",
        {"dst.dtype": "int32"},
        ["dst dtype int32 is not allowed, expected one of uint16, uint32"],
    ),
    ("nc_match_replace8", {"dst_idx": None}, []),
    ("nc_match_replace8", {"imm": float("-inf"), "dst_idx.dtype": "uint16"}, []),
    (
        "nc_match_replace8",
        {"dst_idx.dtype": "int32"},
        ["dst_idx dtype int32 is not allowed, expected one of uint16, uint32"],
    ),
    ("nc_match_replace8", {"dst_idx.shape": (128, 9)}, ["dst_idx free size is 9, must be 8"]),
    (
        "nc_match_replace8",
        {"dst_idx.shape": (64, 8)},
        ["dst_idx partition size 64 differs from data partition size 128"],
    ),
    ("nc_match_replace8", {"vals.shape": (128, 7)}, ["vals free size is 7, must be 8"]),
    (
        "nc_match_replace8",
        {"vals.shape": (64, 8)},
        ["vals partition size 64 differs from data partition size 128"],
    ),
    ("nc_match_replace8", {"data": T((128, 16384)), "dst": T((128, 16384))}, []),
    (
        "nc_match_replace8",
        {"data": T((128, 16385)), "dst": T((128, 16385))},
        ["data free size 16385 exceeds 16384"],
    ),
    ("nc_match_replace8", {"data.shape": (128, 2, 2, 2, 64), "nki": "0.2"}, []),
    ("nc_match_replace8", {"data.shape": (128, 2, 2, 2, 2, 32), "nki": "0.3"}, []),
    (
        "nc_match_replace8",
        {"data.shape": (128, 2, 2, 2, 2, 32), "nki": "0.2"},
        ["data number of dimensions 6 exceeds 5"],
    ),
    ("nc_match_replace8", {"vals.shape": (128, 2, 4), "nki": "0.2"}, []),
    (
        "nc_match_replace8",
        {"vals.shape": (128, 2, 2, 2), "nki": "0.2"},
        ["vals number of dimensions 4 exceeds 3"],
    ),
    ("nc_match_replace8", {"imm": None}, ["imm is missing"]),
]


@pytest.mark.parametrize(("name", "changes", "expected"), CASES)
def test_limit(name: str, changes: dict[str, Any], expected: list[str]) -> None:
    assert sentences(name, changes) == expected

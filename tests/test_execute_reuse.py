"""execute: tiles that take over what freed ones left, results computed in place, and tiles filled by parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from execute_kit import Kernel, View, counted
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from nkireview.execute import Execution
from nkireview.isa import dtypes

ROWS, COLUMNS = 4, 12


def values(execution: Execution) -> NDArray[Any]:
    assert not execution.faults
    return execution.outputs[0].values


def used_and_freed(kernel: Kernel) -> None:
    """A tile that is written, read, and used no more."""
    first = kernel.load(counted(ROWS, COLUMNS) + 1)
    kernel.call("tensor_scalar", dst=first, data=first, op0="add", operand0=1.0)
    kernel.store(first)


def test_a_tile_in_the_place_of_a_freed_one_is_undefined() -> None:
    kernel = Kernel()
    used_and_freed(kernel)
    fresh = kernel.sbuf(ROWS, COLUMNS, name="fresh")
    kernel.store(fresh)
    execution = kernel.run()
    (fault,) = execution.faults
    assert fault.kind == "uninitialised" and fault.count == ROWS * COLUMNS and "tile fresh" in fault.message
    assert execution.outputs[1].written is not None and not execution.outputs[1].written.any()


def test_a_tile_in_the_place_of_a_partly_written_one_forgets_the_parts() -> None:
    kernel = Kernel()
    first = kernel.sbuf(ROWS, COLUMNS)
    kernel.call("memset", dst=first[:, 0:6], value=1.0)
    kernel.store(first[:, 0:6])
    second = kernel.sbuf(ROWS, COLUMNS)
    kernel.call("memset", dst=second[:, 6:12], value=2.0)
    kernel.store(second)
    written = kernel.run().outputs[1].written
    assert written is not None
    np.testing.assert_array_equal(written, np.arange(COLUMNS)[None, :] >= np.full((ROWS, 1), 6))


def test_psum_in_the_place_of_a_freed_one_starts_anew() -> None:
    kernel = Kernel()
    a, b = kernel.load(counted(3, 2)), kernel.load(counted(3, 4))
    for _ in range(3):
        bank = kernel.psum(2, 4)
        kernel.matmul(bank, a, b)
        tile = kernel.sbuf(2, 4)
        kernel.copy(tile, bank)
        kernel.store(tile)
    execution = kernel.run()
    assert not execution.faults
    for output in execution.outputs:
        np.testing.assert_array_equal(output.values, counted(3, 2).T @ counted(3, 4))


@pytest.mark.parametrize("shift", [-3, -1, 0, 1, 3])
@pytest.mark.parametrize("name", ["tensor_tensor", "tensor_scalar", "activation"])
def test_a_result_may_overlap_its_operands(name: str, shift: int) -> None:
    kernel, start = Kernel(), 4
    tile, held = kernel.load(counted(ROWS, COLUMNS) + 1), counted(ROWS, COLUMNS) + 1
    src, dst = tile[:, start : start + 4], tile[:, start + shift : start + shift + 4]
    old = held[:, start : start + 4].copy()
    if name == "tensor_tensor":
        kernel.call(name, dst=dst, data1=src, data2=dst, op="subtract")
        new = old - held[:, start + shift : start + shift + 4]
    elif name == "tensor_scalar":
        vector = tile[:, start + shift : start + shift + 1]  # the first column that the result replaces
        kernel.call(
            name,
            dst=dst,
            data=src,
            op0="multiply",
            operand0=vector,
            op1="add",
            operand1=vector,
            reverse1=True,
        )
        column = held[:, start + shift : start + shift + 1].copy()
        new = old * column + column
    else:
        kernel.call(name, dst=dst, data=src, op="square", scale=0.5)
        new = np.square(old * np.float32(0.5))
    held[:, start + shift : start + shift + 4] = new
    kernel.store(tile)
    np.testing.assert_array_equal(values(kernel.run()), held)


def test_an_instruction_that_fails_leaves_its_tile_undefined() -> None:
    kernel = Kernel()
    tile = kernel.sbuf(ROWS, COLUMNS)
    data = kernel.load(counted(ROWS, COLUMNS))
    kernel.call("tensor_scalar", dst=tile, data=data, op0="add", operand0=1.0, op1="nonsense", operand1=1.0)
    kernel.store(tile)
    execution = kernel.run()
    assert {fault.kind for fault in execution.faults} == {"no meaning", "not executed"}
    assert execution.outputs[0].written is not None and not execution.outputs[0].written.any()


def test_zeros_keep_their_sign() -> None:
    kernel = Kernel()
    for zero in (0.0, -0.0, 0.0):
        tile = kernel.sbuf(2, 2)
        kernel.call("memset", dst=tile, value=zero)
        kernel.store(tile)
    signs = [np.signbit(output.values).all() for output in kernel.run().outputs]
    assert signs == [False, True, False]


EDGES = (
    0.0,
    -0.0,
    1.0,
    1.0625,
    3.1415927,
    -2.5,
    464.0,
    65519.0,
    65520.0,
    3.4e38,
    1e-8,
    1e-40,
    np.inf,
    -np.inf,
    np.nan,
)


@pytest.mark.parametrize(
    "dtype", ["float32", "float16", "bfloat16", "float8_e4m3", "float8_e4m3fn", "float8_e5m2", "tfloat32"]
)
@pytest.mark.parametrize("opcode", ["tensor_copy", "dma_copy", "activation"])
def test_a_result_is_rounded_once_as_a_store_does(dtype: str, opcode: str) -> None:
    kernel = Kernel()
    edges = np.array([EDGES, EDGES[::-1]], np.float32)
    tile, held = kernel.load(edges), kernel.sbuf(*edges.shape, dtype=dtype)
    if opcode == "activation":
        kernel.call(opcode, dst=held, data=tile, op="copy")
    else:
        kernel.call(opcode, dst=held, src=tile)
    kernel.store(held)
    wanted = dtypes.cast(edges.astype(np.float64), dtypes.BY_NAME[dtype])
    found = values(kernel.run())
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found.astype(np.float64), wanted.astype(np.float64))
    np.testing.assert_array_equal(np.signbit(found)[~np.isnan(edges)], np.signbit(edges)[~np.isnan(edges)])


def part(tile: View, rows: tuple[int, int], columns: tuple[int, int, int]) -> View:
    return tile[slice(*rows), slice(*columns)]


PARTS = st.lists(
    st.tuples(
        st.tuples(st.integers(0, ROWS - 1), st.integers(1, ROWS)).map(
            lambda pair: (pair[0], max(pair[1], pair[0] + 1))
        ),
        st.tuples(st.integers(0, COLUMNS - 1), st.integers(1, COLUMNS), st.integers(1, 3)).map(
            lambda three: (three[0], max(three[1], three[0] + 1), three[2])
        ),
    ),
    min_size=1,
    max_size=24,
)


@given(parts=PARTS, dtype=st.sampled_from(["float32", "bfloat16", "int32"]))
def test_any_parts_define_what_they_hold(
    parts: list[tuple[tuple[int, int], tuple[int, int, int]]], dtype: str
) -> None:
    kernel = Kernel()
    used_and_freed(kernel)
    tile = kernel.sbuf(ROWS, COLUMNS, dtype=dtype)
    known, held = np.zeros((ROWS, COLUMNS), np.bool_), np.zeros((ROWS, COLUMNS))
    for at, (rows, columns) in enumerate(parts):
        kernel.call("memset", dst=part(tile, rows, columns), value=at + 1)
        known[slice(*rows), slice(*columns)] = True
        held[slice(*rows), slice(*columns)] = at + 1
    kernel.store(tile)
    output = kernel.run().outputs[1]
    written = np.ones_like(known) if output.written is None else output.written
    np.testing.assert_array_equal(written, known)
    np.testing.assert_array_equal(output.values.astype(np.float64)[known], held[known])

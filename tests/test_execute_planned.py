"""Instructions whose computation is planned once for operands of one kind: kinds that change, undefined operands,
operands that lie in the result. The oracle is NumPy on copies, and dtypes rounded by ml_dtypes.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from execute_kit import Kernel
from numpy.typing import NDArray

pytestmark = pytest.mark.filterwarnings("error")

BF16 = ml_dtypes.bfloat16


def drawn(*shape: int, dtype: type = np.float32, seed: int = 0) -> NDArray[np.float32]:
    values = np.random.default_rng(seed).uniform(0.5, 2, shape)
    return values.astype(dtype)


def wide(values: NDArray[np.float32]) -> NDArray[np.float32]:
    return values.astype(np.float32)


def test_one_call_on_operands_of_many_kinds() -> None:
    kernel, wanted = Kernel(), []
    for rows, columns, source, result in (
        (4, 8, np.float32, "float32"),
        (4, 8, BF16, "float32"),
        (4, 8, np.float32, "bfloat16"),
        (3, 5, np.float32, "float32"),
        (4, 8, np.float16, "int32"),
        (4, 8, np.float32, "float32"),
    ):
        held = drawn(rows, columns, dtype=source, seed=rows)
        tile = kernel.sbuf(rows, columns, dtype=result)
        kernel.call(
            "tensor_scalar",
            dst=tile,
            data=kernel.load(held),
            op0="multiply",
            operand0=3.0,
            op1="add",
            operand1=0.25,
        )
        kernel.store(tile)
        exact = wide(held) * np.float32(3) + np.float32(0.25)
        wanted.append(np.rint(exact).astype(np.int32) if result == "int32" else exact)
    for output, right in zip(kernel.run().outputs, wanted, strict=True):
        dtype = output.values.dtype
        np.testing.assert_array_equal(output.values, right.astype(dtype))


@pytest.mark.parametrize("undefined", ["data", "operand0", "data1"])
def test_an_undefined_operand_after_defined_ones(undefined: str) -> None:
    kernel = Kernel()
    name = "tensor_tensor" if undefined == "data1" else "tensor_scalar"
    vector = {"tensor_scalar": {"op0": "add"}, "tensor_tensor": {"op": "add"}}[name]
    for part in (4, 2):
        tile = kernel.sbuf(4, 6)
        given = {
            "data": kernel.load(drawn(4, 6)),
            "data1": kernel.load(drawn(4, 6)),
            "data2": kernel.load(drawn(4, 6, seed=1)),
            "operand0": kernel.load(drawn(4, 1, seed=2)),
        }
        names = ("data1", "data2") if name == "tensor_tensor" else ("data", "operand0")
        if part < 4:
            lacking = kernel.sbuf(*given[undefined].shape)
            kernel.copy(lacking[0:part], kernel.load(drawn(part, given[undefined].shape[1])))
            given[undefined] = lacking
        kernel.call(name, dst=tile, **{key: given[key] for key in names}, **vector)
        kernel.store(tile)
    whole, partly = kernel.run().outputs
    assert whole.written is None or whole.written.all()
    assert partly.written is not None
    np.testing.assert_array_equal(partly.written, np.arange(4)[:, None] + np.zeros(6) < 2)


@pytest.mark.parametrize("opcode", ["tensor_scalar", "activation", "scalar_tensor_tensor"])
def test_a_vector_of_a_later_step_may_lie_in_the_result(opcode: str) -> None:
    kernel, held = Kernel(), drawn(4, 8)
    tile, data = kernel.load(held), kernel.load(drawn(4, 8, seed=1))
    values, vector = drawn(4, 8, seed=1), held[:, 2:3].copy()
    if opcode == "tensor_scalar":
        kernel.call(
            opcode, dst=tile, data=data, op0="multiply", operand0=2.0, op1="add", operand1=tile[:, 2:3]
        )
        wanted = values * np.float32(2) + vector
    elif opcode == "activation":
        kernel.call(opcode, dst=tile, data=data, op="square", scale=2.0, bias=tile[:, 2:3])
        wanted = np.square(values * np.float32(2) + vector)
    else:
        kernel.call(
            opcode,
            dst=tile,
            data=data,
            op0="multiply",
            operand0=tile[:, 2:3],
            op1="subtract",
            operand1=tile,
            reverse1=True,
        )
        wanted = held - values * vector
    kernel.store(tile)
    np.testing.assert_array_equal(kernel.run().outputs[0].values, wanted)


def test_a_constant_is_rounded_for_each_kind_of_tile() -> None:
    kernel, value = Kernel(), 1.00390625 + 2.0**-12
    kinds = {"float32": np.float32, "bfloat16": BF16, "float8_e4m3": ml_dtypes.float8_e4m3}
    for dtype in kinds:
        for columns in (4, 7, 4):
            tile = kernel.sbuf(2, columns, dtype=dtype)
            kernel.call("memset", dst=tile, value=value)
            kernel.store(tile)
    outputs = iter(kernel.run().outputs)
    for numpy in kinds.values():
        for columns in (4, 7, 4):
            found = next(outputs).values
            np.testing.assert_array_equal(wide(found), np.full((2, columns), np.float32(numpy(value))))


@pytest.mark.parametrize(
    ("shape", "axis", "kept"), [((4, 6), 1, 1), ((4, 2, 3), (1, 2), 1), ((4, 2, 3), 2, 2)]
)
@pytest.mark.parametrize("negate", [False, True])
def test_reductions_of_several_shapes(
    shape: tuple[int, ...], axis: int | tuple[int, ...], kept: int, negate: bool
) -> None:
    kernel, held = Kernel(), drawn(*shape)
    tile = kernel.sbuf(4, kept)
    kernel.call("tensor_reduce", dst=tile, data=kernel.load(held), op="maximum", axis=axis, negate=negate)
    kernel.store(tile)
    wanted = held.max(axis=axis).reshape(4, kept)
    np.testing.assert_array_equal(kernel.run().outputs[0].values, -wanted if negate else wanted)


def test_a_transpose_moves_bits_and_an_old_one_multiplies() -> None:
    held = drawn(4, 6)
    held[1, 2] = np.nan
    for target in ("trn2", "trn1"):
        kernel = Kernel(target)
        bank = kernel.psum(6, 4)
        kernel.call("nc_transpose", dst=bank, data=kernel.load(held))
        kernel.store(bank)
        found = kernel.run().outputs[0].values
        if target == "trn2":
            np.testing.assert_array_equal(found, held.T)
        else:
            # 0 * NaN spreads over the row of the transposed matrix
            assert np.isnan(found[2]).all()
            np.testing.assert_array_equal(np.delete(found, 2, axis=0), np.delete(held.T, 2, axis=0))


@pytest.mark.parametrize("rounding", ["storage", "off"])
def test_float64_rounds_to_integers_as_float32_does(rounding: str) -> None:
    kernel, held = Kernel(), np.array([[-2.7, -1.5, 0.5, 1.5, 2.6, 200.0, -200.0]], np.float32)
    tile = kernel.sbuf(1, 7, dtype="int8")
    kernel.call("tensor_scalar", dst=tile, data=kernel.load(held), op0="multiply", operand0=1.0)
    kernel.store(tile)
    (output,) = kernel.run(compute=np.float64, rounding=rounding).outputs
    assert output.values.tolist() == [[-3, -2, 0, 2, 3, 127, -128]]

"""Rows that use accumulator registers: their results, and what the registers hold over several instructions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from execute_kit import Kernel, View
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from row_kit import COLUMN, T, sentences
from test_isa_rows import run

from nkireview.execute import Poison, execute
from nkireview.execute.flow import Registers, register_use
from nkireview.isa.enums import Engine
from nkireview.isa.release import Release
from nkireview.isa.table import row
from nkireview.program.verify import verify

pytestmark = [pytest.mark.filterwarnings("error"), pytest.mark.usefixtures("as_executed")]

Array = NDArray[Any]
COMPUTES = (np.float32, np.float64)
FP32_MIN = -3.4028234663852886e38
BINARY: dict[str, Callable[[float, float], float]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "maximum": max,
    "minimum": min,
}
# nki/api/nki/isa/__init__.py:2541-2543 and 1266-1274
STARTS = {"add": 0.0, "subtract": 0.0, "multiply": 1.0, "maximum": -math.inf, "minimum": math.inf}


def small(seed: int, *shape: int) -> Array:
    """Small whole numbers, whose sums and products float32 holds exactly."""
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float32)


def folded(op: str, values: Array, start: Array) -> Array:
    """The register of each partition after all its values, one by one."""
    rows = values.astype(np.float64).reshape(len(values), -1)
    result = start.astype(np.float64).copy()
    for lane in range(len(rows)):
        for value in rows[lane]:
            result[lane] = BINARY[op](result[lane], value)
    return result


def outputs(kernel: Kernel, *tiles: View) -> list[Array]:
    """What the tiles hold at the end, in both compute dtypes, which must agree; nothing may be undefined."""
    for tile in tiles:
        kernel.store(tile)
    program = kernel.program()
    assert [found.message for found in verify(program)] == []
    first, second = (execute(program, kernel.arguments, compute=compute) for compute in COMPUTES)
    assert first.faults == second.faults == ()
    for one, other in zip(first.outputs, second.outputs, strict=True):
        np.testing.assert_array_equal(one.values, other.values)
    return [output.values for output in second.outputs]


def undefined(kernel: Kernel, *tiles: View) -> list[Any]:
    """For each tile which partitions are defined in its first column; None where all of it is."""
    for tile in tiles:
        kernel.store(tile)
    found = kernel.run().outputs
    return [None if item.written is None else item.written[:, 0].astype(int).tolist() for item in found]


# tensor_scalar_reduce


@pytest.mark.oracle("nisa.tensor_scalar_reduce")
@pytest.mark.parametrize("op", ["add", "multiply", "maximum", "minimum"])
@pytest.mark.parametrize("op0", ["add", "subtract", "maximum"])
@pytest.mark.parametrize("compute", COMPUTES)
def test_tensor_scalar_reduce(op: str, op0: str, compute: type) -> None:
    data, column = small(1, 3, 2, 4), np.array([[1], [-2], [0.5]], np.float32)
    for nki in ("0.3", "0.4", "0.6"):  # the identity of the operator in every release
        found = run(
            "tensor_scalar_reduce",
            {"data": data, "operand0": column},
            {"op0": op0, "reduce_op": op},
            more={"reduce_res": ((3, 1), "float32")},
            compute=compute,
            nki=nki,
        )
        expected = np.vectorize(BINARY[op0])(data.astype(np.float64), column.reshape(3, 1, 1))
        np.testing.assert_array_equal(found["dst"], expected)
        np.testing.assert_array_equal(found["reduce_res"][:, 0], folded(op, expected, np.full(3, STARTS[op])))


@pytest.mark.oracle("nisa.tensor_scalar_reduce")
def test_an_absolute_maximum_of_each_row() -> None:
    data = np.array([[-5, 2], [1, -0.5]], np.float32)
    imms = {"op0": "abs", "operand0": 0.0, "reduce_op": "maximum"}
    found = run("tensor_scalar_reduce", {"data": data}, imms, more={"reduce_res": ((2, 1), "float32")})
    assert found["dst"].tolist() == [[5, 2], [1, 0.5]] and found["reduce_res"].tolist() == [[5], [1]]


@pytest.mark.oracle("nisa.tensor_scalar_reduce")
def test_nan_reaches_the_reduction() -> None:
    data = np.array([[1, np.nan], [1, 2]], np.float32)
    for op in ("add", "multiply", "maximum", "minimum"):
        imms = {"op0": "multiply", "operand0": 1.0, "reduce_op": op}
        found = run("tensor_scalar_reduce", {"data": data}, imms, more={"reduce_res": ((2, 1), "float32")})
        assert np.isnan(found["reduce_res"][:, 0]).tolist() == [True, False]


@pytest.mark.oracle("nisa.tensor_scalar_reduce")
@pytest.mark.parametrize("op", ["add", "multiply", "maximum", "minimum"])
def test_a_reduction_over_several_tiles(op: str) -> None:
    tiles = [small(seed, 4, 3) for seed in (2, 3, 4)]
    first = np.array([[2], [-1], [0.5], [9]], np.float32)
    kernel = Kernel()
    dst = kernel.sbuf(4, 3)
    results = [kernel.sbuf(4, 1) for _ in range(4)]

    def step(data: Array, command: str, **more: Any) -> None:
        kernel.call(
            "tensor_scalar_reduce",
            dst=dst,
            data=kernel.load(data),
            op0="multiply",
            operand0=1.0,
            reduce_op=op,
            reduce_cmd=command,
            **more,
        )

    step(tiles[0], "reset_reduce")
    step(tiles[1], "reduce", reduce_res=results[0], reduce_res_negate=True)
    step(tiles[2], "reduce", reduce_res=results[1])
    step(tiles[1], "load_reduce", reduce_init=kernel.load(first), reduce_res=results[2])
    step(tiles[2], "load_reduce", reduce_init=-1.5, reduce_res=results[3])
    found = outputs(kernel, *results)
    fresh = np.full(4, STARTS[op])
    two = folded(op, np.concatenate(tiles[:2], axis=1), fresh)
    np.testing.assert_array_equal(found[0][:, 0], -two)
    np.testing.assert_array_equal(found[1][:, 0], folded(op, tiles[2], two))
    np.testing.assert_array_equal(found[2][:, 0], folded(op, tiles[1], first[:, 0]))
    np.testing.assert_array_equal(found[3][:, 0], folded(op, tiles[2], np.full(4, -1.5)))


@pytest.mark.oracle("nisa.tensor_scalar_reduce")
def test_registers_sum_what_was_not_rounded() -> None:
    """Each 1 + 2**-8 is 1 in bfloat16; the sum of 256 of them is 257 in float32."""
    kernel = Kernel()
    dst, total = kernel.sbuf(1, 256, dtype="bfloat16"), kernel.sbuf(1, 1)
    data = kernel.load(np.full((1, 256), 2.0**-8, np.float32))
    given = {"op0": "add", "operand0": 1.0, "reduce_op": "add", "reduce_res": total}
    kernel.call("tensor_scalar_reduce", dst=dst, data=data, **given)
    rounded, summed = outputs(kernel, dst, total)
    assert set(rounded.astype(np.float64).ravel()) == {1.0} and summed.tolist() == [[257.0]]


@pytest.mark.oracle("nisa.tensor_scalar_reduce")
def test_integers_pass_through_float32_and_saturate() -> None:
    kernel = Kernel()
    dst, total = kernel.sbuf(1, 2, dtype="int8"), kernel.sbuf(1, 1, dtype="int32")
    data = kernel.load(np.array([[100, -100]], np.int8))
    given = {"op0": "multiply", "operand0": 2.0, "reduce_op": "maximum", "reduce_res": total}
    kernel.call("tensor_scalar_reduce", dst=dst, data=data, **given)
    values, top = outputs(kernel, dst, total)
    assert values.tolist() == [[127, -128]] and top.tolist() == [[200]]


@pytest.mark.oracle("nisa.tensor_scalar_reduce")
def test_where_dst_and_reduce_res_meet_the_reduction_wins() -> None:
    kernel = Kernel()
    tile = kernel.load(np.array([[1, 2, 3]], np.float32))
    given = {"op0": "add", "operand0": 1.0, "reduce_op": "add", "reduce_res": tile[:, 1:2]}
    kernel.call("tensor_scalar_reduce", dst=tile, data=tile, **given)
    assert outputs(kernel, tile)[0].tolist() == [[2, 9, 4]]


def test_subtraction_before_04() -> None:
    data = np.array([[9, 2, 3]], np.float32)
    imms = {"op0": "multiply", "operand0": 1.0, "reduce_op": "subtract"}
    more = {"reduce_res": ((1, 1), "float32")}
    found = run("tensor_scalar_reduce", {"data": data}, imms, more=more, nki="0.3")
    assert found["reduce_res"].tolist() == [[4]], "the first element less all others, as tensor_reduce"


# tensor_scalar_cumulative


def cumulated(op0: str, op1: str, src: Array, imm0: Array, start: Array) -> tuple[Array, Array]:
    """The pseudo-code of the stub in float64: the results, and the registers at the end."""
    rows = src.astype(np.float64).reshape(len(src), -1)
    result, state = np.empty_like(rows), start.astype(np.float64).copy()
    for lane in range(len(rows)):
        for at, value in enumerate(rows[lane]):
            state[lane] = BINARY[op1](BINARY[op0](value, float(imm0[lane])), state[lane])
            result[lane, at] = state[lane]
    return result.reshape(src.shape), state


@pytest.mark.oracle("nisa.tensor_scalar_cumulative")
@pytest.mark.parametrize("op1", ["add", "subtract", "multiply", "maximum", "minimum"])
@pytest.mark.parametrize("op0", ["add", "multiply", "minimum"])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.int16])
def test_tensor_scalar_cumulative(op0: str, op1: str, dtype: type) -> None:
    src = small(5, 3, 2, 3).astype(dtype)
    column = np.array([[1], [-1], [2]], np.float32)
    start = np.array([[3], [-2], [1]], np.float32)
    for compute in COMPUTES:
        for number in (False, True):
            tiles = {"src": src, **({} if number else {"imm0": column})}
            imms: dict[str, Any] = {"op0": op0, "op1": op1, **({"imm0": 2.0} if number else {})}
            operand = np.full(3, 2.0) if number else column[:, 0]
            found = run("tensor_scalar_cumulative", tiles, imms, compute=compute)["dst"]
            expected, _ = cumulated(op0, op1, src, operand, np.full(3, STARTS[op1]))
            np.testing.assert_array_equal(found, expected)
            imms["reduce_cmd"] = "load_reduce"
            found = run("tensor_scalar_cumulative", {**tiles, "imm1": start}, imms, compute=compute)["dst"]
            expected, _ = cumulated(op0, op1, src, operand, start[:, 0])
            np.testing.assert_array_equal(found, expected)


@pytest.mark.oracle("nisa.tensor_scalar_cumulative")
@pytest.mark.parametrize("op1", ["add", "subtract", "maximum"])
def test_a_running_value_goes_on_in_the_next_tile(op1: str) -> None:
    src = small(6, 4, 10)
    kernel = Kernel()
    dst, total = kernel.sbuf(4, 10), kernel.sbuf(4, 1)
    tile = kernel.load(src)
    for at, command in ((0, "reset_reduce"), (4, "reduce"), (7, "reduce")):
        part = slice(None), slice(at, {0: 4, 4: 7, 7: 10}[at])
        given = {"op0": "multiply", "imm0": 1.0, "op1": op1, "reduce_cmd": command}
        kernel.call("tensor_scalar_cumulative", dst=dst[part], src=tile[part], **given)
    # The registers are those of tensor_scalar_reduce.
    given = {
        "op0": "multiply",
        "operand0": 1.0,
        "reduce_op": "add",
        "reduce_cmd": "reduce",
        "reduce_res": total,
    }
    kernel.call("tensor_scalar_reduce", dst=kernel.sbuf(4, 10), data=tile, **given)
    found = outputs(kernel, dst, total)
    expected, state = cumulated("multiply", op1, src, np.ones(4), np.full(4, STARTS[op1]))
    np.testing.assert_array_equal(found[0], expected)
    np.testing.assert_array_equal(found[1][:, 0], state + src.sum(axis=1))


@pytest.mark.oracle("nisa.tensor_scalar_cumulative")
def test_the_running_value_is_not_rounded_to_dst() -> None:
    kernel = Kernel()
    tile = kernel.load(np.full((1, 512), 1.0, ml_dtypes.bfloat16))
    given = {"op0": "multiply", "imm0": 1.0, "op1": "add"}
    kernel.call("tensor_scalar_cumulative", dst=tile, src=tile, **given)  # in place
    assert float(outputs(kernel, tile)[0][0, -1]) == 512.0, "a sum kept in bfloat16 would stop at 256"


# exponential


@pytest.mark.oracle("nisa.exponential")
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.int8])
def test_exponential(dtype: type) -> None:
    src, top = small(7, 3, 2, 4).astype(dtype), np.array([[3], [1], [0]], np.float32)
    for compute, rtol in ((np.float32, 1e-6), (np.float64, 1e-14)):
        for tiles, shift in (({"max_value": top}, top.reshape(3, 1, 1)), ({}, 0.5)):
            imms = {"reduce_cmd": "reset_reduce", **({} if tiles else {"max_value": 0.5})}
            found = run(
                "exponential",
                {"src": src, **tiles},
                imms,
                more={"reduce_res": ((3, 1), "float32")},
                compute=compute,
                generation="v4",
            )
            expected = np.exp(src.astype(np.float64) - shift)
            np.testing.assert_allclose(found["dst"], expected, rtol=rtol)
            np.testing.assert_allclose(
                found["reduce_res"][:, 0], expected.reshape(3, -1).sum(axis=1), rtol=rtol
            )


@pytest.mark.oracle("nisa.exponential")
def test_sums_of_exponentials_over_several_tiles() -> None:
    """exp(0) is 1, so the sums are counts, and exact."""
    kernel = Kernel("trn3")
    zeros, init = kernel.load(np.zeros((2, 5), np.float32)), kernel.load(np.array([[10], [20]], np.float32))
    dst, results = kernel.sbuf(2, 5), [kernel.sbuf(2, 1) for _ in range(3)]
    for command, more in (
        ("reset_reduce", {}),
        ("reduce", {}),
        ("reduce", {"reduce_res": results[0]}),
        ("load_reduce", {"reduce_init": init, "reduce_res": results[1]}),
        ("load_reduce", {"reduce_res": results[2]}),
    ):
        given = {"max_value": 0.0, "reduce_init": 0.0, **more}
        kernel.call("exponential", dst=dst, src=zeros, reduce_cmd=command, **given)
    assert [found[:, 0].tolist() for found in outputs(kernel, *results)] == [[15, 15], [15, 25], [5, 5]]


# activate2

STAGE: dict[str, Callable[[Any, Any], Any]] = {
    "multiply": lambda a, b: a * b,
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "bypass": lambda a, b: a,
}


@pytest.mark.oracle("nisa.activate2")
@pytest.mark.parametrize(
    ("op0", "op1"),
    [
        ("multiply", "add"),
        ("multiply", "subtract"),
        ("multiply", "bypass"),
        ("add", "bypass"),
        ("subtract", "bypass"),
        ("bypass", "bypass"),
    ],
)
@pytest.mark.parametrize("reverse", [(False, False), (True, True)])
@pytest.mark.parametrize("compute", COMPUTES)
def test_activate2(op0: str, op1: str, reverse: tuple[bool, bool], compute: type) -> None:
    data = small(8, 3, 2, 4)
    imm0, imm1 = np.array([[2], [0.5], [-1]], np.float32), np.array([[1], [3], [-2]], np.float32)
    imms = {"op": "square", "op0": op0, "op1": op1, "reverse0": reverse[0], "reverse1": reverse[1]}
    for numbers in (False, True):
        tiles = {"data": data} if numbers else {"data": data, "imm0": imm0, "imm1": imm1}
        given = {**imms, "imm0": 2.0, "imm1": -0.5} if numbers else imms
        found = run("activate2", tiles, given, compute=compute, generation="v4")["dst"]
        one, two = (2.0, -0.5) if numbers else (imm0.reshape(3, 1, 1), imm1.reshape(3, 1, 1))
        value = data.astype(np.float64)
        for op, operand, swap in ((op0, one, reverse[0]), (op1, two, reverse[1])):
            if op != "bypass":
                value = STAGE[op](operand, value) if swap else STAGE[op](value, operand)
        np.testing.assert_array_equal(found, value**2)


@pytest.mark.oracle("nisa.activate2", "nl.prelu")
def test_prelu_takes_its_slope_from_relu_param() -> None:
    data = np.array([[-4, 2], [-4, -1]], np.float32)
    imms = {"op": "prelu", "op0": "bypass", "op1": "bypass", "imm0": 0.0, "imm1": 0.0}
    slopes = np.array([[0.25], [0.5]], np.float32)
    assert run("activate2", {"data": data, "relu_param": slopes}, imms)["dst"].tolist() == [
        [-1, 2],
        [-2, -0.5],
    ]
    found = run("activate2", {"data": data}, {**imms, "relu_param": 0.5})["dst"]
    assert found.tolist() == [[-2, 2], [-2, -0.5]]


@pytest.mark.oracle("nisa.activate2")
@pytest.mark.parametrize(
    ("op", "first", "second"),
    [
        ("add", [2.0, 6.0], [-2.0, 12.0]),
        ("maximum", [3.0, 5.0], [3.0, 6.0]),
        ("minimum", [-4.0, 1.0], [-5.0, 0.0]),
        ("abs_max", [-4.0, 5.0], [-5.0, 6.0]),
        ("abs_min", [3.0, 1.0], [1.0, 0.0]),
    ],
)
def test_reductions_of_activate2(op: str, first: list[float], second: list[float]) -> None:
    kernel = Kernel("trn3")
    tiles = [np.array([[3, 3, -4], [1, 5, 0.0]], np.float32), np.array([[-5, 1], [6, 0]], np.float32)]
    tiles[0][1, 2] = {"abs_min": 1.0, "minimum": 1.0}.get(op, 0.0)
    results = [kernel.sbuf(2, 1) for _ in tiles]
    for data, command, result in zip(tiles, ("reset_reduce", "reduce"), results, strict=True):
        kernel.call(
            "activate2",
            dst=kernel.sbuf(*data.shape),
            data=kernel.load(data),
            op="copy",
            op0="bypass",
            op1="bypass",
            imm0=0.0,
            imm1=0.0,
            reduce_op=op,
            reduce_cmd=command,
            reduce_res=result,
        )
    assert [found[:, 0].tolist() for found in outputs(kernel, *results)] == [first, second]


# Registers that several rows share


def activated(kernel: Kernel, data: View, command: str, result: View | None = None, **more: Any) -> None:
    given = {"op": "copy", "scale": 1.0, "reduce_op": "add", "reduce_cmd": command, **more}
    rows, columns = (count for _, count in data.pattern)
    kernel.call("activation", dst=kernel.sbuf(rows, columns), data=data, reduce_res=result, **given)


def scaled(
    kernel: Kernel, data: View, command: str, result: View | None = None, op: str = "add", **more: Any
) -> None:
    given = {"op0": "multiply", "operand0": 1.0, "reduce_op": op, "reduce_cmd": command, **more}
    rows, columns = (count for _, count in data.pattern)
    kernel.call("tensor_scalar_reduce", dst=kernel.sbuf(rows, columns), data=data, reduce_res=result, **given)


def through(kernel: Kernel, data: View, command: str, result: View | None = None, **more: Any) -> None:
    """The second activate2 of a chain: it passes its data on and sums it."""
    given = {
        "op": "copy",
        "op0": "bypass",
        "op1": "bypass",
        "imm0": 0.0,
        "imm1": 0.0,
        "reduce_op": "add",
        **more,
    }
    rows, columns = (count for _, count in data.pattern)
    kernel.call(
        "activate2", dst=kernel.sbuf(rows, columns), data=data, reduce_cmd=command, reduce_res=result, **given
    )


@pytest.mark.oracle("nisa.activation", "nisa.activate2")
def test_activation_and_activate2_share_the_scalar_registers() -> None:
    kernel = Kernel("trn3")
    data = kernel.load(np.array([[1, 2], [3, 4]], np.float32))
    results = [kernel.sbuf(2, 1) for _ in range(4)]
    activated(kernel, data, "reset_reduce")
    through(kernel, data, "idle", results[0], reduce_op=None)  # reads what activation left
    through(kernel, data, "reduce")
    activated(kernel, data, "idle")  # leaves them alone
    activated(kernel, data, "reduce", results[1])
    through(kernel, data, "reset", results[2])
    scaled(kernel, data, "reset_reduce")  # Vector has registers of its own
    activated(kernel, data, "reduce", results[3])
    found = [values[:, 0].tolist() for values in outputs(kernel, *results)]
    assert found == [[3, 7], [9, 21], [0, 0], [3, 7]]


@pytest.mark.oracle("nisa.range_select", "nisa.select_reduce", "nisa.tensor_scalar_reduce")
def test_maxima_go_on_from_row_to_row() -> None:
    kernel = Kernel()
    data = kernel.load(np.array([[1, 5], [-9, -8]], np.float32))
    low, high = (kernel.load(np.full((2, 1), value, np.float32)) for value in (0, 1))
    predicate = kernel.load(np.array([[0, 0], [1, 1]], np.uint8))
    results = [kernel.sbuf(2, 1) for _ in range(4)]
    ranged = {"comp_op0": "greater_equal", "comp_op1": "less", "bound0": low, "bound1": high}
    dst = kernel.sbuf(2, 2)
    kernel.call("range_select", dst=dst, on_true_tile=data, reduce_res=results[0], **ranged)
    picked = {"predicate": predicate, "on_true": data, "on_false": -20.0, "reduce_cmd": "reduce"}
    kernel.call("select_reduce", dst=dst, reduce_res=results[1], **picked)
    scaled(kernel, data, "reduce", results[2], op="maximum", operand0=-2.0)
    kernel.call(
        "range_select", dst=dst, on_true_tile=data, reduce_cmd="reduce", reduce_res=results[3], **ranged
    )
    found = [values[:, 0].tolist() for values in outputs(kernel, *results)]
    assert found == [[1, -9], [1, -8], [1, 18], [1, 18]]


@pytest.mark.oracle("nisa.tensor_scalar_reduce")
def test_registers_live_through_a_loop() -> None:
    kernel = Kernel()
    data, total = kernel.load(np.array([[1, 2], [3, 4]], np.float32)), kernel.sbuf(2, 1)
    scaled(kernel, data, "reset_reduce")
    with kernel.loop(3):
        scaled(kernel, data, "reduce", total)
    assert outputs(kernel, total)[0].tolist() == [[12], [28]]


def test_cores_have_registers_of_their_own() -> None:
    kernel = Kernel(lnc=2)
    totals = []
    for core in range(2):
        data = kernel.load(np.full((2, 2), 1.0 + core, np.float32))
        total = kernel.sbuf(2, 1)
        scaled(kernel, data, "reset_reduce", total)
        kernel.store(total)
        totals.append(total)
        if core == 0:
            kernel.switch_core()
    assert [output.values.tolist() for output in kernel.run().outputs] == [[[2], [2]], [[4], [4]]]


# Which registers are known


def test_vector_registers_are_unknown_until_they_are_set() -> None:
    kernel = Kernel()
    data, results = kernel.load(small(9, 3, 4)), [kernel.sbuf(3, 1) for _ in range(3)]
    dst = kernel.sbuf(3, 4)
    scaled(kernel, data, "reduce", results[0])
    given = {"op0": "multiply", "imm0": 1.0, "op1": "add", "reduce_cmd": "reduce"}
    kernel.call("tensor_scalar_cumulative", dst=dst, src=data, **given)
    scaled(kernel, data, "load_reduce", results[1], reduce_init=1.0)
    scaled(kernel, data, "reduce", results[2])
    assert undefined(kernel, results[0], dst, *results[1:]) == [[0] * 3, [0] * 3, None, None]


def test_loading_some_partitions_leaves_the_others_unknown() -> None:
    kernel = Kernel()
    data, result = kernel.load(small(10, 4, 2)), kernel.sbuf(4, 1)
    scaled(kernel, data[0:2], "load_reduce", reduce_init=0.0)
    scaled(kernel, data, "reduce", result)
    assert undefined(kernel, result) == [[1, 1, 0, 0]]


@pytest.mark.parametrize("opcode", ["exponential", "select_reduce", "range_select"])
def test_an_idle_instruction_leaves_the_vector_registers_unknown(opcode: str) -> None:
    kernel = Kernel("trn3")
    data, results = kernel.load(small(11, 3, 4)), [kernel.sbuf(3, 1) for _ in range(4)]
    dst, low = kernel.sbuf(3, 4), kernel.load(np.zeros((3, 1), np.float32))
    predicate = kernel.load(np.ones((3, 4), np.uint8))
    calls: dict[str, dict[str, Any]] = {
        "exponential": {"src": data, "max_value": 0.0, "reduce_init": 0.0},
        "select_reduce": {"on_true": data, "on_false": 0.0, "predicate": predicate},
        "range_select": {
            "on_true_tile": data,
            "comp_op0": "less",
            "comp_op1": "less",
            "bound0": low,
            "bound1": low,
        },
    }
    scaled(kernel, data, "reset_reduce", results[0])
    kernel.call(opcode, dst=dst, reduce_cmd="idle", reduce_res=results[1], **calls[opcode])
    scaled(kernel, data, "reduce", results[2])
    scaled(kernel, data, "reset_reduce", results[3])
    assert undefined(kernel, dst, *results) == [None, None, [0] * 3, [0] * 3, None]


def test_registers_carry_what_is_undefined() -> None:
    kernel = Kernel()
    partial, ones = kernel.sbuf(3, 4), kernel.load(np.ones((3, 4), np.float32))
    kernel.copy(partial[0:2], kernel.argument(small(12, 2, 4)))
    start = kernel.sbuf(3, 1)
    kernel.copy(start[1:3], kernel.argument(small(13, 2, 1)))
    results = [kernel.sbuf(3, 1) for _ in range(4)]
    scaled(kernel, partial, "reset_reduce")
    scaled(kernel, ones, "reduce", results[0])
    scaled(kernel, ones, "reset_reduce", results[1])
    dst = kernel.sbuf(3, 4)
    given = {"op0": "multiply", "operand0": 1.0, "reduce_op": "add", "reduce_cmd": "load_reduce"}
    kernel.call("tensor_scalar_reduce", dst=dst, data=ones, reduce_init=start, reduce_res=results[2], **given)
    scaled(kernel, partial, "reduce", results[3])
    found = undefined(kernel, *results, dst)
    assert found == [[1, 1, 0], None, [0, 1, 1], [0, 1, 0], None]


def test_a_running_value_is_undefined_from_the_hole_on() -> None:
    kernel = Kernel()
    src, dst, rest = kernel.sbuf(1, 4), kernel.sbuf(1, 4), kernel.sbuf(1, 2)
    given = {"op0": "multiply", "imm0": 1.0, "op1": "add"}
    source = kernel.argument(np.ones((1, 4), np.float32))
    kernel.copy(src[:, 0:2], source[:, 0:2])
    kernel.copy(src[:, 3:4], source[:, 3:4])
    kernel.call("tensor_scalar_cumulative", dst=dst, src=src, **given)
    kernel.call("tensor_scalar_cumulative", dst=rest, src=src[:, 0:2], reduce_cmd="reduce", **given)
    kernel.store(dst)
    kernel.store(rest)
    found = [output.written for output in kernel.run().outputs]
    assert found[0] is not None and found[0].tolist() == [[True, True, False, False]]
    assert found[1] is not None and found[1].tolist() == [[False, False]]


def test_range_select_heeds_its_command_from_03_on() -> None:
    use = register_use(row("range_select"), {"reduce_cmd": "idle", "reduce_op": "maximum"})
    assert use is not None and use.engine is Engine.vector
    for nki, known in (("0.2", True), ("0.3", False)):
        found = Registers().update(use, 2, {}, Release.parse(nki))
        assert (found is None) is known
    tiles = {"on_true_tile": np.array([[5, 7]], np.float32)}
    tiles.update({name: np.zeros((1, 1), np.float32) for name in ("bound0", "bound1")})
    imms = {"comp_op0": "equal", "comp_op1": "equal", "reduce_cmd": "reduce", "on_false_value": 0.0}
    for nki, top in (("0.2", 5), ("0.3", 9)):
        state = {"vector_accumulator": np.full(128, 9, np.float32)}
        found = run(
            "range_select", tiles, imms, more={"reduce_res": ((1, 1), "float32")}, nki=nki, state=state
        )
        assert found["reduce_res"].tolist() == [[top]] and found["dst"].tolist() == [[5, FP32_MIN]]


F = 9


@st.composite
def programs(draw: st.DrawFn) -> list[tuple[Any, ...]]:
    """Instructions over tiles of which some parts were never written."""
    tile, command = st.integers(0, 3), st.sampled_from(["reset_reduce", "reduce"])
    idle = st.sampled_from(["reset_reduce", "reduce", "idle"])
    column = st.integers(0, F - 1)
    step = st.one_of(
        st.tuples(st.just("load"), tile, st.integers(0, 2), st.integers(1, 3), column, st.integers(1, F)),
        st.tuples(st.just("scaled"), tile, tile, command, st.sampled_from(["add", "maximum"])),
        st.tuples(st.just("loaded"), tile, tile, tile),
        st.tuples(st.just("running"), tile, tile, command, st.sampled_from(["add", "subtract"])),
        st.tuples(st.just("select"), tile, tile, tile, idle),
        st.tuples(st.just("range"), tile, tile, tile, idle),
        st.tuples(st.just("copy"), tile, tile),
        st.tuples(st.just("number"), tile),
        st.tuples(st.just("replace"), tile, tile, tile),
        st.tuples(st.just("shuffle"), tile, tile),
        st.tuples(st.just("exponential"), tile, tile, idle),
        st.tuples(
            st.just("activate2"), tile, tile, st.sampled_from(["idle", "reset", "reduce", "reset_reduce"])
        ),
    )
    return draw(st.lists(step, min_size=1, max_size=14))


def perform(
    kernel: Kernel, tiles: list[View], index: View, step: tuple[Any, ...], given: dict[str, View]
) -> None:
    name, dst, *parts = step
    result = tiles[(dst + 1) % 4][:, 2:3]
    if name == "load":
        top, rows, left, columns = parts
        area = slice(top, min(top + rows, 3)), slice(left, min(left + columns, F))
        kernel.copy(tiles[dst][area], given["source"][area])
        return
    common: dict[str, Any] = {"dst": tiles[dst]}
    src = tiles[parts[0] if parts else dst]
    if name in ("scaled", "loaded"):
        more = {"reduce_init": tiles[parts[1]][:, 3:4]} if name == "loaded" else {}
        command, op = ("load_reduce", "add") if name == "loaded" else parts[1:]
        common |= {
            "data": src,
            "op0": "multiply",
            "operand0": 0.5,
            "reduce_op": op,
            "reduce_cmd": command,
            **more,
        }
        kernel.call("tensor_scalar_reduce", reduce_res=result, **common)
    elif name == "running":
        common |= {"src": src, "op0": "multiply", "imm0": 0.5, "reduce_cmd": parts[1], "op1": parts[2]}
        kernel.call("tensor_scalar_cumulative", **common)
    elif name == "select":
        common |= {"on_true": src, "on_false": tiles[parts[1]][:, 1:2], "predicate": given["predicate"]}
        kernel.call("select_reduce", reduce_cmd=parts[2], reduce_res=result, reduce_op="maximum", **common)
    elif name == "range":
        bounds = {"bound0": tiles[parts[1]][:, 0:1], "bound1": tiles[parts[1]][:, 4:5]}
        common |= {"on_true_tile": src, "comp_op0": "greater_equal", "comp_op1": "less_equal", **bounds}
        kernel.call("range_select", reduce_cmd=parts[2], reduce_res=result, reduce_op="maximum", **common)
    elif name == "copy":
        kernel.call("tensor_copy_predicated", src=src, predicate=given["predicate"], **common)
    elif name == "number":
        kernel.call("tensor_copy_predicated", src=0.0, predicate=given["predicate"], **common)
    elif name == "replace":
        common |= {"data": src, "vals": tiles[parts[1]][:, 0:8], "imm": 5.0, "dst_idx": index}
        kernel.call("nc_match_replace8", **common)
    elif name == "shuffle":
        kernel.call("nc_stream_shuffle", src=src, shuffle_mask=(1, 255, 0) + (0,) * 29, **common)
    elif name == "exponential":
        # Beyond -100 all is 0, so that no sum depends on the order of its terms.
        common |= {"src": src, "max_value": 1e4, "reduce_init": 0.0, "reduce_cmd": parts[1]}
        kernel.call("exponential", reduce_res=result, **common)
    else:
        common |= {"data": src, "op": "copy", "op0": "bypass", "op1": "bypass", "imm0": 0.0, "imm1": 0.0}
        kernel.call("activate2", reduce_op="maximum", reduce_cmd=parts[1], reduce_res=result, **common)


@settings(max_examples=150, deadline=None)
@drawn(programs())
def test_defined_values_do_not_depend_on_the_poison(steps: list[tuple[Any, ...]]) -> None:
    kernel = Kernel("trn3")
    given = {
        "source": kernel.argument(small(14, 3, F) * 2),
        "predicate": kernel.load(np.random.default_rng(15).integers(0, 2, (3, F)).astype(np.uint8)),
    }
    tiles, index = [kernel.sbuf(3, F) for _ in range(4)], kernel.sbuf(3, 8, dtype="uint32")
    for tile in tiles[:2]:
        kernel.copy(tile, given["source"])
    for step in steps:
        perform(kernel, tiles, index, step, given)
    for tile in (*tiles, index):
        kernel.store(tile)
    program = kernel.program()
    first, second = (execute(program, kernel.arguments, poison=poison) for poison in Poison)
    assert [(fault.kind, fault.count) for fault in first.faults] == [
        (fault.kind, fault.count) for fault in second.faults
    ]
    assert not [fault for fault in first.faults if fault.kind == "no meaning"]
    for one, other in zip(first.outputs, second.outputs, strict=True):
        known = np.ones(one.values.shape, bool) if one.written is None else one.written
        np.testing.assert_array_equal(known, True if other.written is None else other.written)
        np.testing.assert_array_equal(one.values[known], other.values[known])


def test_rows_without_registers() -> None:
    assert register_use(row("tensor_tensor"), {}) is None
    assert register_use(row("nc_match_replace8"), {}) is None


# Limits

PAIRS = (
    "expected one of multiply with add; multiply with subtract; multiply with bypass; add with bypass; "
    "subtract with bypass; bypass with bypass"
)
LOADED = {"reduce_cmd": "load_reduce"}
CASES: list[tuple[str, dict[str, Any], list[str]]] = [
    ("tensor_scalar_reduce", {"operand0": 2.0}, []),
    (
        "tensor_scalar_reduce",
        {"op0": "bitwise_and"},
        ["op0 bitwise_and is a bitvec operator, only arithmetic ones are allowed"],
    ),
    ("tensor_scalar_reduce", {"op0": "square", "operand0": 0, "target": "trn3"}, []),
    (
        "tensor_scalar_reduce",
        {"op0": "square", "operand0": 0},
        ["op0 square is an ALU operator on v4 only"],
    ),
    ("tensor_scalar_reduce", {"op0": "abs", "operand0": 0.0}, []),
    (
        "tensor_scalar_reduce",
        {"op0": "abs", "operand0": 1.0},
        ["op0 abs is unary, operand0 must be None or 0"],
    ),
    ("tensor_scalar_reduce", {"op0": "add", "operand0": None}, ["op0 add needs operand0"]),
    ("tensor_scalar_reduce", {"reduce_op": "minimum"}, []),
    (
        "tensor_scalar_reduce",
        {"reduce_op": "subtract"},
        ["reduce_op is subtract, must be one of add, multiply, maximum, minimum"],
    ),
    ("tensor_scalar_reduce", {"reduce_op": "subtract", "nki": "0.3"}, []),
    (
        "tensor_scalar_reduce",
        {"reduce_op": "logical_and", "nki": "0.3"},
        ["reduce_op is logical_and, must be one of add, subtract, multiply, maximum, minimum"],
    ),
    ("tensor_scalar_reduce", {"reverse0": True}, ["reverse0 is True, which is not supported yet"]),
    ("tensor_scalar_reduce", {"reduce_cmd": "reduce"}, []),
    (
        "tensor_scalar_reduce",
        {"reduce_cmd": "idle"},
        ["reduce_cmd is idle, must be one of reset_reduce, reduce, load_reduce"],
    ),
    ("tensor_scalar_reduce", {**LOADED, "reduce_init": 0.0}, []),
    ("tensor_scalar_reduce", LOADED, ["reduce_init is missing, reduce_cmd load_reduce needs it"]),
    (
        "tensor_scalar_reduce",
        {"reduce_init": 0.0},
        ["reduce_init is 0.0, only reduce_cmd load_reduce takes it, reduce_cmd is reset_reduce"],
    ),
    ("tensor_scalar_reduce", {"reduce_res": None}, []),
    (
        "tensor_scalar_reduce",
        {"reduce_res": None, "nki": "0.5"},
        ["reduce_res is missing, it may be left out since NKI 0.6"],
    ),
    ("tensor_scalar_reduce", {"nki": "0.5"}, []),
    (
        "tensor_scalar_reduce",
        {"reduce_cmd": "reduce", "nki": "0.3"},
        ["parameter reduce_cmd exists since NKI 0.4, not in NKI 0.3"],
    ),
    (
        "tensor_scalar_reduce",
        {"reduce_res_negate": True, "nki": "0.5"},
        ["parameter reduce_res_negate exists since NKI 0.6, not in NKI 0.5"],
    ),
    ("tensor_scalar_cumulative", {"imm0": 2.0, "op1": "subtract"}, []),
    (
        "tensor_scalar_cumulative",
        {"op0": "left_shift"},
        ["op0 left_shift is a bitvec operator, only arithmetic ones are allowed"],
    ),
    (
        "tensor_scalar_cumulative",
        {"op0": "relu"},
        ["op0 relu is an ALU operator on v4 only"],
    ),
    (
        "tensor_scalar_cumulative",
        {"op1": "logical_or"},
        ["op1 is logical_or, must be one of add, subtract, multiply, maximum, minimum"],
    ),
    ("tensor_scalar_cumulative", {"src.dtype": "int16", "dst.dtype": "uint16"}, []),
    (
        "tensor_scalar_cumulative",
        {"src.dtype": "int32"},
        [
            "src dtype int32 is not allowed, expected one of bfloat16, float16, float32, float8_e4m3, "
            "float8_e4m3fn, float8_e5m2, int16, int8, uint16, uint8"
        ],
    ),
    (
        "tensor_scalar_cumulative",
        {"dst.dtype": "uint32"},
        [
            "dst dtype uint32 is not allowed, expected one of bfloat16, float16, float32, float8_e4m3, "
            "float8_e4m3fn, float8_e5m2, int16, int8, uint16, uint8"
        ],
    ),
    ("tensor_scalar_cumulative", {**LOADED, "imm1": 0.0}, []),
    ("tensor_scalar_cumulative", LOADED, ["imm1 is missing, reduce_cmd load_reduce starts from it"]),
    (
        "tensor_scalar_cumulative",
        {"reduce_cmd": "idle"},
        ["reduce_cmd is idle, must be one of reset_reduce, load_reduce, reduce"],
    ),
    ("exponential", {"src.shape": (128, 2, 4, 64), "dst.shape": (128, 2, 4, 64)}, []),
    (
        "exponential",
        {"src.shape": (128, 2, 2, 2, 64)},
        ["src number of dimensions 5 exceeds 4"],
    ),
    (
        "exponential",
        {"dst.shape": (128, 2, 2, 2, 64)},
        ["dst number of dimensions 5 exceeds 4"],
    ),
    ("exponential", {"src.dtype": "uint32", "dst.dtype": "tfloat32", "reduce_res.dtype": "float8_e5m2"}, []),
    (
        "exponential",
        {"dst.dtype": "uint32"},
        [
            "dst dtype uint32 is not allowed, expected one of bfloat16, float16, float32, float8_e4m3, "
            "float8_e5m2, int16, int32, int8, tfloat32, uint16, uint8"
        ],
    ),
    (
        "exponential",
        {"src.dtype": "tfloat32"},
        [
            "src dtype tfloat32 is not allowed, expected one of bfloat16, float16, float32, float8_e4m3, "
            "float8_e5m2, int16, int32, int8, uint16, uint32, uint8"
        ],
    ),
    (
        "exponential",
        {"reduce_res.dtype": "int32"},
        [
            "reduce_res dtype int32 is not allowed, expected one of bfloat16, float16, float32, float8_e4m3, "
            "float8_e5m2, tfloat32"
        ],
    ),
    ("exponential", {"max_value": 1.5}, []),
    (
        "exponential",
        {"reduce_cmd": "reset"},
        ["reduce_cmd is reset, must be one of idle, reset_reduce, reduce, load_reduce"],
    ),
    ("exponential", LOADED, []),
    (
        "exponential",
        {"reduce_init": 1.0},
        ["reduce_init is 1.0, only reduce_cmd load_reduce takes it, reduce_cmd is reset_reduce"],
    ),
    (
        "exponential",
        {"reduce_init": T(COLUMN), "reduce_cmd": "reduce"},
        ["reduce_init is a tile, only reduce_cmd load_reduce takes it, reduce_cmd is reduce"],
    ),
    ("activate2", {"op0": "bypass", "op1": "bypass", "imm0": 0.0, "imm1": 0.0}, []),
    ("activate2", {"op1": "subtract", "reverse0": True, "reverse1": True}, []),
    ("activate2", {"op0": "add"}, [f"op0 add with op1 add is not possible, {PAIRS}"]),
    ("activate2", {"op1": None}, ["op1 is missing"]),
    ("activate2", {"imm0": None}, ["op0 multiply needs imm0"]),
    ("activate2", {"imm1": None}, ["op1 add needs imm1"]),
    ("activate2", {"op1": "bypass", "reverse1": True}, ["reverse1 is True, but op1 is bypass"]),
    (
        "activate2",
        {"op0": "bypass", "op1": "bypass", "reverse0": True},
        ["reverse0 is True, but op0 is bypass"],
    ),
    ("activate2", {"imm0.dtype": "bfloat16", "imm1.dtype": "bfloat16"}, []),
    (
        "activate2",
        {"imm0.dtype": "bfloat16"},
        ["imm1 dtype float32 differs from imm0 dtype bfloat16"],
    ),
    ("activate2", {"op": "prelu", "relu_param": 0.1}, []),
    ("activate2", {"op": "cos"}, ["op cos is no activation function in NKI 0.6"]),
    ("activate2", {"reduce_op": "abs_min"}, []),
    (
        "activate2",
        {"reduce_op": "multiply"},
        ["reduce_op is multiply, must be one of add, maximum, minimum, abs_max, abs_min"],
    ),
    ("activate2", {"reduce_cmd": "reset"}, []),
    (
        "activate2",
        {"reduce_cmd": "load_reduce"},
        ["reduce_cmd is load_reduce, must be one of reset_reduce, reduce, reset, idle"],
    ),
]


@pytest.mark.parametrize(("name", "changes", "expected"), CASES)
def test_limit(name: str, changes: dict[str, Any], expected: list[str]) -> None:
    assert sentences(name, changes) == expected


@pytest.mark.parametrize(
    ("name", "tiles", "imms"),
    [
        ("tensor_scalar_reduce", ["data"], {"op0": "add", "operand0": 1.0, "reduce_op": "add"}),
        ("tensor_scalar_cumulative", ["src"], {"op0": "add", "imm0": 1.0, "op1": "add"}),
    ],
)
def test_loading_nothing_has_no_meaning(name: str, tiles: list[str], imms: dict[str, Any]) -> None:
    start = "imm1" if "op1" in imms else "reduce_init"
    with pytest.raises(ValueError, match=f"reduce_cmd load_reduce needs {start}"):
        run(name, {tile: np.ones((1, 2), np.float32) for tile in tiles}, {**imms, **LOADED})

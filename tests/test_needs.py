"""What a Program's arithmetic is sensitive to, of programs written by hand; and of those that need nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from execute_kit import Kernel, View

from nkireview.checks.dataflow import Dataflow
from nkireview.checks.needs import NAMES, Need, needs
from nkireview.isa.table import ROWS

Make = Callable[[Kernel], Any]
DTYPES: dict[str, Any] = {
    "float32": np.float32,
    "float16": np.float16,
    "int32": np.int32,
    "uint8": np.uint8,
    "bfloat16": ml_dtypes.bfloat16,
}


def of(make: Make) -> tuple[Need, ...]:
    kernel = Kernel()
    make(kernel)
    return needs(Dataflow.of(kernel.program(), ROWS))


def named(make: Make) -> dict[str, Need]:
    found = of(make)
    assert {need.name for need in found} <= NAMES
    assert all(need.place.startswith("kernel.py:") and need.count > 0 and need.why for need in found)
    return {need.name: need for need in found}


def loaded(kernel: Kernel, *shape: int, dtype: str = "float32") -> View:
    tile = kernel.sbuf(*shape, dtype=dtype)
    kernel.copy(tile, kernel.argument(np.zeros(shape, DTYPES[dtype])))
    return tile


def test_a_copy_needs_nothing() -> None:
    assert of(lambda kernel: kernel.store(loaded(kernel, 128, 64))) == ()


def matmul(kernel: Kernel) -> None:
    result = kernel.psum(128, 64)
    given = {"stationary": loaded(kernel, 128, 128), "moving": loaded(kernel, 128, 64)}
    kernel.call("nc_matmul", dst=result, is_transpose=False, accumulate=None, **given)
    out = kernel.sbuf(128, 64)
    kernel.copy(out, result)
    kernel.store(out)


def test_a_matmul_needs_nothing() -> None:
    assert of(matmul) == ()


def softmax(kernel: Kernel) -> None:
    x, top, total = loaded(kernel, 128, 64), kernel.sbuf(128, 1), kernel.sbuf(128, 1)
    kernel.call("tensor_reduce", dst=top, data=x, op="maximum", axis=(1,), negate=True, keepdims=True)
    kernel.call(
        "activation_reduce", dst=x, data=x, op="exp", bias=top, scale=1.0, reduce_op="add", reduce_res=total
    )
    kernel.call("reciprocal", dst=total, data=total)
    kernel.call("tensor_scalar", dst=x, data=x, op0="multiply", operand0=total, reverse0=False)
    kernel.store(x)


def test_softmax_needs_its_exponential_and_maximum_and_not_the_division_by_a_sum_of_exponentials() -> None:
    found = named(softmax)
    assert set(found) == {"exp", "maximum"}
    assert found["exp"].instruction == 2 and found["exp"].inputs == ("p0",)
    assert found["maximum"].instruction == 1


def norm(eps: float | None, inside: bool = True) -> Make:
    """x / sqrt(mean(x * x) + eps), or with eps added to the root."""

    def make(kernel: Kernel) -> None:
        x, square, total = loaded(kernel, 128, 64), kernel.sbuf(128, 64), kernel.sbuf(128, 1)
        kernel.call(
            "activation_reduce",
            dst=square,
            data=x,
            op="square",
            bias=None,
            scale=1.0,
            reduce_op="add",
            reduce_res=total,
        )
        kernel.call("tensor_scalar", dst=total, data=total, op0="multiply", operand0=1 / 64, reverse0=False)
        if eps is not None and inside:
            kernel.call("tensor_scalar", dst=total, data=total, op0="add", operand0=eps, reverse0=False)
        kernel.call("activation", dst=total, data=total, op="sqrt", bias=None, scale=1.0)
        if eps is not None and not inside:
            kernel.call("tensor_scalar", dst=total, data=total, op0="add", operand0=eps, reverse0=False)
        kernel.call("reciprocal", dst=total, data=total)
        kernel.call("tensor_scalar", dst=x, data=x, op0="multiply", operand0=total, reverse0=False)
        kernel.store(x)

    return make


@pytest.mark.parametrize(
    ("make", "eps", "says"),
    [
        (norm(1e-5), 1e-5, "the root of a sum of squares: 1e-05 is added before it"),
        (norm(None), 0.0, "the root of a sum of squares: nothing is added before it"),
        (norm(1e-5, inside=False), 0.0, "the root of a sum of squares: nothing is added before it"),
    ],
    ids=["inside", "none", "outside"],
)
def test_a_root_tells_its_epsilon(make: Make, eps: float, says: str) -> None:
    found = named(make)
    assert set(found) == {"root", "division"}
    assert found["root"].number == eps and found["root"].why.endswith(says)


def test_a_root_of_what_is_no_sum_is_no_need() -> None:
    def make(kernel: Kernel) -> None:
        x = loaded(kernel, 128, 64)
        kernel.call("activation", dst=x, data=x, op="relu", bias=None, scale=1.0)
        kernel.call("activation", dst=x, data=x, op="sqrt", bias=None, scale=1.0)
        kernel.store(x)

    assert named(make) == {}


def test_an_epsilon_in_a_tile_and_one_in_the_same_instruction_are_found_too() -> None:
    def tile(kernel: Kernel) -> None:
        total, eps = kernel.sbuf(128, 1), kernel.sbuf(128, 1)
        kernel.call("memset", dst=eps, value=1e-6)
        kernel.call(
            "tensor_reduce", dst=total, data=loaded(kernel, 128, 64), op="add", axis=(1,), negate=False
        )
        kernel.call("activation", dst=total, data=total, op="rsqrt", bias=eps, scale=1 / 64)
        kernel.store(total)

    def power(kernel: Kernel) -> None:
        total = kernel.sbuf(128, 1)
        kernel.call(
            "tensor_reduce", dst=total, data=loaded(kernel, 128, 64), op="add", axis=(1,), negate=False
        )
        given = {"op0": "add", "operand0": 1e-3, "op1": "power", "operand1": -0.5}
        kernel.call("tensor_scalar", dst=total, data=total, reverse0=False, reverse1=False, **given)
        kernel.store(total)

    assert named(tile)["root"].number == 1e-6
    assert named(power)["root"].number == 1e-3


def test_a_mean_that_is_taken_off_is_a_need_and_a_maximum_is_none() -> None:
    def centred(op: str) -> Make:
        def make(kernel: Kernel) -> None:
            x, total = loaded(kernel, 128, 64), kernel.sbuf(128, 1)
            kernel.call("tensor_reduce", dst=total, data=x, op=op, axis=(1,), negate=False)
            kernel.call(
                "tensor_scalar", dst=total, data=total, op0="multiply", operand0=1 / 64, reverse0=False
            )
            kernel.call("tensor_scalar", dst=x, data=x, op0="subtract", operand0=total, reverse0=False)
            kernel.store(x)

        return make

    def stats(kernel: Kernel) -> None:
        x, six, two = loaded(kernel, 128, 64), kernel.sbuf(128, 6), kernel.sbuf(128, 2)
        kernel.call("bn_stats", dst=six, data=x)
        kernel.call("bn_aggr", dst=two, data=six)
        kernel.store(two)

    assert set(named(centred("add"))) == {"variance"}
    assert set(named(centred("maximum"))) == {"maximum"}
    assert set(named(stats)) == {"variance"}


@pytest.mark.parametrize("op", ["gelu", "gelu_apprx_tanh", "erf", "tanh", "silu", "sigmoid"])
def test_functions_with_several_forms(op: str) -> None:
    def make(kernel: Kernel) -> None:
        x = loaded(kernel, 128, 64)
        kernel.call("activation", dst=x, data=x, op=op, bias=None, scale=1.0)
        kernel.store(x)

    assert set(named(make)) == {"activation"}


@pytest.mark.parametrize("op", ["copy", "relu", "square", "abs"])
def test_functions_without(op: str) -> None:
    def make(kernel: Kernel) -> None:
        x = loaded(kernel, 128, 64)
        kernel.call("activation", dst=x, data=x, op=op, bias=None, scale=1.0)
        kernel.store(x)

    assert named(make) == {}


def test_a_mask_tells_which_input_it_is() -> None:
    def predicated(kernel: Kernel) -> None:
        x, mask = loaded(kernel, 128, 64), loaded(kernel, 128, 64, dtype="uint8")
        out = kernel.sbuf(128, 64)
        kernel.call("memset", dst=out, value=0.0)
        kernel.call("tensor_copy_predicated", dst=out, src=x, predicate=mask, reverse_pred=False)
        kernel.store(out)

    def causal(kernel: Kernel) -> None:
        x = loaded(kernel, 128, 64)
        given = {"pattern": ((-1, 64),), "channel_multiplier": 1, "offset": 0, "cmp_op": "greater_equal"}
        kernel.call("affine_select", dst=x, on_true_tile=x, on_false_value=-1e9, **given)
        kernel.store(x)

    def counted(kernel: Kernel) -> None:
        x, at = loaded(kernel, 128, 64), kernel.sbuf(128, 64, dtype="float32")
        kernel.call("iota", dst=at, pattern=((1, 64),), offset=0, channel_multiplier=0)
        kernel.call("tensor_scalar", dst=at, data=at, op0="less", operand0=7.0, reverse0=False)
        kernel.call("tensor_tensor", dst=x, data1=x, data2=at, op="multiply")
        kernel.store(x)

    assert named(predicated)["mask"].inputs == ("p1",)
    assert set(named(causal)) == {"mask"} and named(causal)["mask"].inputs == ()
    assert set(named(counted)) == {"mask"}


def test_searches_and_equality_with_a_maximum() -> None:
    def search(kernel: Kernel) -> None:
        x, best, at = loaded(kernel, 128, 64), kernel.sbuf(128, 8), kernel.sbuf(128, 8, dtype="uint32")
        kernel.call("max8", dst=best, src=x)
        kernel.call("nc_find_index8", dst=at, data=x, vals=best)
        kernel.store(at)

    def equal(kernel: Kernel) -> None:
        x, best = loaded(kernel, 128, 64), kernel.sbuf(128, 1)
        kernel.call("tensor_reduce", dst=best, data=x, op="maximum", axis=(1,), negate=False)
        kernel.call("tensor_scalar", dst=x, data=x, op0="equal", operand0=best, reverse0=False)
        kernel.store(x)

    assert {need.name: need.inputs for need in of(search)} == {"search": ("p0",)}
    assert set(named(equal)) == {"maximum", "search"}


@pytest.mark.parametrize(("dtype", "first"), [("bfloat16", 257), ("float16", 2049)])
def test_positions_in_a_dtype_that_cannot_hold_them_all(dtype: str, first: int) -> None:
    def make(size: int) -> Make:
        def positions(kernel: Kernel) -> None:
            at = kernel.sbuf(128, size, dtype=dtype)
            kernel.call("iota", dst=at, pattern=((1, size),), offset=0, channel_multiplier=0)
            kernel.store(at)

        return positions

    few, many = (
        [need for need in of(make(size)) if need.name == "low-precision index"] for size in (64, 4096)
    )
    assert [need.number for need in few] == [first]
    assert {need.number for need in many} == {first}
    assert any("does not hold the index" in need.why for need in many)


def test_integers_of_an_input_and_floats_of_one() -> None:
    def make(dtype: str, op: str = "add") -> Make:
        def added(kernel: Kernel) -> None:
            x = loaded(kernel, 128, 64, dtype=dtype)
            kernel.call("tensor_scalar", dst=x, data=x, op0=op, operand0=1, reverse0=False)
            kernel.store(x)

        return added

    assert named(make("int32"))["integer arithmetic"].inputs == ("p0",)
    assert named(make("float32")) == {}
    assert named(make("int32", "maximum")) == {}


def test_divisions_by_a_tile_and_by_a_number() -> None:
    def by_tile(kernel: Kernel) -> None:
        x = loaded(kernel, 128, 64)
        kernel.call("tensor_tensor", dst=x, data1=x, data2=loaded(kernel, 128, 64), op="divide")
        kernel.store(x)

    def by_number(reverse: bool) -> Make:
        def make(kernel: Kernel) -> None:
            x = loaded(kernel, 128, 64)
            kernel.call("tensor_scalar", dst=x, data=x, op0="divide", operand0=3.0, reverse0=reverse)
            kernel.store(x)

        return make

    assert set(named(by_tile)) == {"division"}
    assert named(by_number(False)) == {}
    assert set(named(by_number(True))) == {"division"}


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("float32", {}),
        ("bfloat16", {}),
        ("float16", {"float16 result": 65504.0}),
        ("float8_e4m3", {"fp8 result": 240.0}),
        ("float8_e4m3fn", {"fp8 result": 448.0}),
    ],
)
def test_narrow_results_name_their_largest_number(dtype: str, expected: dict[str, float]) -> None:
    def make(kernel: Kernel) -> None:
        narrow = kernel.sbuf(128, 64, dtype=dtype)
        kernel.copy(narrow, loaded(kernel, 128, 64))
        kernel.store(narrow)

    assert {need.name: need.number for need in of(make)} == expected


def test_the_same_line_is_told_once_with_its_count() -> None:
    kernel = Kernel()
    x = loaded(kernel, 128, 64)
    line = kernel.line
    for _ in range(3):
        kernel.line = line
        first = kernel.call("activation", dst=x, data=x, op="exp", bias=None, scale=1.0)
    kernel.store(x)
    (found,) = needs(Dataflow.of(kernel.program(), ROWS))
    assert (found.name, found.count, found.instruction) == ("exp", 3, first - 2)
    assert found.place == f"kernel.py:{line + 1}"

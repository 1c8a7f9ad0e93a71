"""Dataflow, and the rules over dtypes and over ways of computing: what is reported, and what is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from execute_kit import Kernel, View

from nkireview.checks import precision, stability
from nkireview.checks.dataflow import UNKNOWN, Dataflow, Slot
from nkireview.checks.steps import Step, steps
from nkireview.isa.table import ROWS
from nkireview.rules.facts import Facts, RoundedOutput, WorkloadFacts, WrongOutput
from nkireview.rules.finding import Dimension, Finding, Severity
from nkireview.rules.registry import judge

Make = Callable[[Kernel], None]
WRONG = WrongOutput("out", "too far off", 3, "as drawn", True)


def flow(make: Make, target: str = "trn2") -> Dataflow:
    kernel = Kernel(target)
    make(kernel)
    return Dataflow.of(kernel.program(), ROWS)


def found(make: Make, code: str, target: str = "trn2", wrong: tuple[WrongOutput, ...] = ()) -> list[Finding]:
    kernel = Kernel(target)
    make(kernel)
    facts = Facts("k", (WorkloadFacts("w", program=kernel.program(), wrong=wrong),), target=target)
    return [finding for finding in judge(facts) if finding.code == code]


def tile(kernel: Kernel, *shape: int, dtype: str = "float32") -> View:
    """A tile that was loaded from a parameter of that dtype."""
    made = kernel.sbuf(*shape, dtype=dtype)
    names = {"float32": np.float32, "float16": np.float16, "int32": np.int32}
    if dtype in names:
        kernel.copy(made, kernel.argument(np.zeros(shape, names[dtype])))
    else:
        import ml_dtypes

        kernel.copy(made, kernel.argument(np.zeros(shape, getattr(ml_dtypes, dtype))))
    return made


# Dataflow: who wrote what is read, by hand.


def test_writers_are_the_last_that_cover() -> None:
    kernel = Kernel()
    t, out = kernel.sbuf(128, 8), kernel.sbuf(128, 8)
    kernel.call("memset", dst=t, value=1.0)
    first = kernel.call("memset", dst=t, value=2.0)
    half = kernel.call("memset", dst=t[:, 0:4], value=3.0)
    read = kernel.copy(out, t)
    right = kernel.copy(out[:, 0:4], t[:, 4:8])
    made = Dataflow.of(kernel.program(), ROWS)
    assert made.writers(Slot(read, "src")) == (Slot(half, "dst"), Slot(first, "dst"))
    assert made.writers(Slot(right, "src")) == (Slot(first, "dst"),)


def test_what_a_parameter_holds_has_no_writer() -> None:
    made = flow(lambda kernel: kernel.copy(kernel.sbuf(4, 4), kernel.argument(np.zeros((4, 4), np.float32))))
    assert made.writers(Slot(0, "src")) == () and made.parameter(Slot(0, "src")) == "p0"
    assert made.parameter(Slot(0, "dst")) == ""


def test_readers_end_where_all_is_overwritten_and_reads_come_before_writes() -> None:
    kernel = Kernel()
    t, out = kernel.sbuf(128, 8), kernel.sbuf(128, 8)
    wrote = kernel.call("memset", dst=t, value=1.0)
    read = kernel.copy(out, t)
    again = kernel.call("tensor_scalar", dst=t, data=t, op0="add", operand0=1.0)
    kernel.copy(out, t)
    made = Dataflow.of(kernel.program(), ROWS)
    assert made.readers(Slot(wrote, "dst")) == (Slot(read, "src"), Slot(again, "data"))


def test_an_iteration_reads_what_the_one_before_wrote() -> None:
    kernel = Kernel()
    t, out = kernel.sbuf(128, 8), kernel.sbuf(128, 8)
    before = kernel.call("memset", dst=t, value=1.0)
    with kernel.loop(4):
        read = kernel.copy(out, t)
        wrote = kernel.call("memset", dst=t, value=2.0)
    made = Dataflow.of(kernel.program(), ROWS)
    assert set(made.writers(Slot(read, "src"))) == {Slot(wrote, "dst"), Slot(before, "dst")}


def test_what_another_core_writes_cannot_be_told() -> None:
    kernel = Kernel(lnc=2)
    shared = kernel.hbm(4, 4, shared=True)
    t = kernel.sbuf(4, 4)
    kernel.call("memset", dst=t, value=1.0)
    kernel.copy(shared, t)
    kernel.switch_core()
    other = kernel.sbuf(4, 4)
    read = kernel.copy(other, shared)
    made = Dataflow.of(kernel.program(), ROWS)
    assert made.writers(Slot(read, "src")) == (Slot(UNKNOWN, ""),)


def test_steps_of_instructions() -> None:
    kernel = Kernel()
    t, v = kernel.sbuf(128, 8), kernel.sbuf(128, 1)
    kernel.call(
        "tensor_scalar",
        dst=t,
        data=t,
        op0="subtract",
        operand0=v,
        reverse0=True,
        op1="multiply",
        operand1=2.0,
    )
    kernel.call("activation", dst=t, op="exp", data=t, scale=0.5, bias=v)
    kernel.call("tensor_tensor", dst=t, data1=t, data2=t, op="add")
    kernel.call("memset", dst=t, value=0.0)
    made = Dataflow.of(kernel.program(), ROWS)
    taken = [steps(call) for call in map(made.call, range(4)) if call is not None]
    assert taken == [
        (Step("subtract", operand="operand0", reverse=True), Step("multiply", 2.0)),
        (Step("multiply", 0.5), Step("add", operand="bias"), Step("exp")),
        (Step("add", operand="data2"),),
        None,
    ]


def test_sites_gather_what_is_alike() -> None:
    kernel = Kernel()
    t = kernel.sbuf(128, 8)
    for _ in range(3):
        kernel.line = 7
        kernel.call("memset", dst=t, value=1.0)
    kernel.call("memset", dst=t, value=2.0)
    sites = list(Dataflow.of(kernel.program(), ROWS).sites(("memset",)))
    assert [(site.instruction, site.count) for site in sites] == [(0, 3), (3, 1)]


# Indices. bfloat16 has 8 digits and holds integers to 256, float16 11 and 2048, float8_e4m3 4 and 16.


@pytest.mark.parametrize(
    ("dtype", "columns", "first"),
    [("bfloat16", 258, 257), ("float16", 2050, 2049), ("float8_e4m3", 18, 17), ("uint8", 257, 256)],
)
def test_the_first_index_that_is_lost(dtype: str, columns: int, first: int) -> None:
    def make(kernel: Kernel, count: int) -> None:
        kernel.call("iota", dst=kernel.sbuf(128, count, dtype=dtype), pattern=[[1, count]])

    (item,) = precision.lossy_indices(flow(lambda kernel: make(kernel, columns)))
    assert (item.first, item.largest, item.dtype) == (first, columns - 1, dtype)
    assert list(precision.lossy_indices(flow(lambda kernel: make(kernel, columns - 1)))) == []


@pytest.mark.parametrize("pattern", [[[2, 257]], [[256, 4]], [[0, 999]]])
def test_large_indices_that_are_held(pattern: list[list[int]]) -> None:
    def make(kernel: Kernel) -> None:
        kernel.call("iota", dst=kernel.sbuf(1, pattern[0][1], dtype="bfloat16"), pattern=pattern)

    assert list(precision.lossy_indices(flow(make))) == []


def test_partitions_and_offsets_count() -> None:
    def make(kernel: Kernel) -> None:
        kernel.call(
            "iota",
            dst=kernel.sbuf(128, 4, dtype="bfloat16"),
            pattern=[[1, 4]],
            channel_multiplier=4,
            offset=1,
        )

    (item,) = precision.lossy_indices(flow(make))
    assert (item.largest, item.first, item.becomes) == (512, 257, 256.0)


def test_a_copy_of_exact_indices_into_few_digits() -> None:
    def make(kernel: Kernel) -> None:
        t = kernel.sbuf(128, 1000, dtype="int32")
        kernel.call("iota", dst=t, pattern=[[1, 1000]])
        kernel.copy(kernel.sbuf(128, 1000, dtype="bfloat16"), t)

    (finding,) = found(make, "NKR070")
    assert finding.severity is Severity.major and finding.dimension is Dimension.precision
    assert finding.message == (
        "tensor_copy: integers up to 999 are kept in bfloat16, which does not hold 257 (it becomes 256) (kernel.py:4)"
    )
    (blocked,) = found(make, "NKR070", wrong=(WRONG,))
    assert blocked.severity is Severity.blocker and blocked.failing == "seed 3"


@pytest.mark.parametrize("by", ["an operand", "the index of a DMA"])
def test_indices_that_say_what_is_copied_are_not_copied(by: str) -> None:
    """As in nki-library's topk_reduce.py: rows of bfloat16 are gathered at positions that nc_find_index8 found."""

    def make(kernel: Kernel) -> None:
        found = kernel.sbuf(128, 8, dtype="uint32")
        kernel.call("nc_find_index8", dst=found, data=kernel.sbuf(128, 512), vals=kernel.sbuf(128, 8))
        rows = kernel.sbuf(128, 8, dtype="bfloat16")
        if by == "an operand":
            data = kernel.sbuf(128, 512, dtype="bfloat16")
            kernel.call("nc_n_gather", dst=rows, data=data, indices=found)
        else:
            table = kernel.hbm(512, 8, dtype="bfloat16")
            source = kernel.indexed(table[0:128, :], "vector", found[:, 0:1], 0, 8)
            kernel.call("dma_copy", dst=rows, src=source)

    assert list(precision.lossy_indices(flow(make))) == []


# Sums.


def accumulate(kernel: Kernel, dtype: str, times: int) -> None:
    s, t = kernel.sbuf(128, 8, dtype=dtype), tile(kernel, 128, 8, dtype="bfloat16")
    kernel.call("memset", dst=s, value=0.0)
    for _ in range(times):
        kernel.call("tensor_tensor", dst=s, data1=s, data2=t, op="add")


@pytest.mark.parametrize(
    ("dtype", "times", "severity"),
    [
        ("bfloat16", 3, None),
        ("bfloat16", 4, Severity.minor),
        ("bfloat16", 15, Severity.minor),
        ("bfloat16", 16, Severity.major),
        ("float16", 16, Severity.major),
        ("float32", 64, None),
    ],
)
def test_running_sums(dtype: str, times: int, severity: Severity | None) -> None:
    def make(kernel: Kernel) -> None:
        for _ in range(1):
            accumulate(kernel, dtype, times)

    assert [item.severity for item in found(make, "NKR071")] == ([severity] if severity else [])


def test_a_loop_on_the_device_counts_its_trips() -> None:
    def make(kernel: Kernel) -> None:
        with kernel.loop(20):
            accumulate(kernel, "bfloat16", 1)

    (item,) = precision.running_sums(flow(make))
    assert item.terms == 20
    (finding,) = found(make, "NKR071")
    # 20 roundings of half a unit in the last of 8 digits, against 20 of one in 24
    assert "a sum of 20 terms is kept in bfloat16" in finding.message and "0.078" in finding.message


def test_a_maximum_in_place_rounds_nothing() -> None:
    def make(kernel: Kernel) -> None:
        s, t = kernel.sbuf(128, 8, dtype="bfloat16"), tile(kernel, 128, 8, dtype="bfloat16")
        for _ in range(20):
            kernel.call("tensor_tensor", dst=s, data1=s, data2=t, op="maximum")

    assert found(make, "NKR071") == []


@pytest.mark.parametrize(
    ("target", "dtype", "count"), [("trn3", "bfloat16", 1), ("trn3", "float32", 0), ("trn2", "bfloat16", 0)]
)
def test_matmuls_into_low_psum_are_asked_for_on_v4_only(target: str, dtype: str, count: int) -> None:
    def make(kernel: Kernel) -> None:
        p = kernel.psum(64, 96, dtype=dtype)
        for step in range(4):
            left, right = tile(kernel, 128, 64, dtype="bfloat16"), tile(kernel, 128, 96, dtype="bfloat16")
            kernel.matmul(p, left, right, accumulate=step > 0)

    findings = found(make, "NKR072", target)
    assert len(findings) == count
    if findings:
        assert findings[0].message.startswith("4 matmuls accumulate in a bfloat16 PSUM tile")


@pytest.mark.parametrize(
    ("middle", "after", "code"),
    [
        ("bfloat16", "float32", "NKR073"),
        ("float16", "bfloat16", "NKR074"),
        ("bfloat16", "bfloat16", None),
        ("float32", "bfloat16", None),
    ],
)
def test_dtypes_in_between(middle: str, after: str, code: str | None) -> None:
    def make(kernel: Kernel) -> None:
        m = kernel.sbuf(128, 8, dtype=middle)
        kernel.call("tensor_scalar", dst=m, data=tile(kernel, 128, 8), op0="multiply", operand0=3.0)
        out = kernel.hbm(128, 8, dtype=after)
        kernel.copy(out, m)
        kernel.output(out)

    for wanted in ("NKR073", "NKR074"):
        assert len(found(make, wanted)) == (wanted == code)


def test_a_narrow_tile_that_is_also_computed_with_is_no_passage() -> None:
    def make(kernel: Kernel) -> None:
        m = kernel.sbuf(128, 8, dtype="bfloat16")
        kernel.call("tensor_scalar", dst=m, data=tile(kernel, 128, 8), op0="multiply", operand0=3.0)
        kernel.copy(kernel.sbuf(128, 8), m)
        kernel.call("tensor_tensor", dst=kernel.sbuf(128, 8), data1=m, data2=m, op="multiply")

    assert found(make, "NKR073") == []


# fp8: float8_e4m3 ends at 240.


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"op0": "add", "operand0": 1.0}, "NKR075"),
        ({"op0": "multiply", "operand0": 0.1}, None),
        ({"op0": "minimum", "operand0": 240.0, "op1": "maximum", "operand1": -240.0}, None),
        ({"op0": "minimum", "operand0": 448.0, "op1": "maximum", "operand1": -448.0}, "NKR076"),
        ({"op0": "minimum", "operand0": 240.5}, "NKR076"),
    ],
)
def test_conversions_to_fp8(fields: dict[str, Any], code: str | None) -> None:
    def make(kernel: Kernel) -> None:
        kernel.call(
            "tensor_scalar", dst=kernel.sbuf(128, 8, dtype="float8_e4m3"), data=tile(kernel, 128, 8), **fields
        )

    for wanted in ("NKR075", "NKR076"):
        assert len(found(make, wanted)) == (wanted == code)


def test_a_bound_before_the_copy_into_fp8() -> None:
    def make(kernel: Kernel) -> None:
        t = tile(kernel, 128, 8)
        kernel.call("tensor_scalar", dst=t, data=t, op0="minimum", operand0=448.0)
        kernel.copy(kernel.sbuf(128, 8, dtype="float8_e4m3"), t)

    (finding,) = found(make, "NKR076")
    assert "bounded at 448, but float8_e4m3 ends at 240" in finding.message
    assert found(make, "NKR075") == []


# Constants.


@pytest.mark.parametrize(
    ("dtype", "value", "code"),
    [
        ("float16", -1e9, "NKR077"),
        ("float16", -65504.0, None),
        ("bfloat16", -3.4028234e38, "NKR077"),
        ("bfloat16", -3.3e38, None),
        ("float32", -3.4028234e38, None),
        ("float16", float("-inf"), None),
        ("float16", 1e-9, "NKR078"),
        ("float16", 1e-7, None),
        ("bfloat16", 1e-9, None),
        ("float8_e4m3", 1e-3, None),
        ("float8_e4m3", 1e-4, "NKR078"),
        ("float16", 0.0, None),
        ("int32", 7, None),
    ],
)
def test_constants_in_tiles(dtype: str, value: float, code: str | None) -> None:
    def make(kernel: Kernel) -> None:
        kernel.call("memset", dst=kernel.sbuf(128, 8, dtype=dtype), value=value)

    for wanted in ("NKR077", "NKR078"):
        assert len(found(make, wanted)) == (wanted == code)


# Integers: float32 holds them to 2**24 = 16777216, and multiples of a power of two as far again.


@pytest.mark.parametrize(
    ("count", "factor", "reported"),
    [
        (4096, 4096, False),
        (4097, 4097, False),  # 4096 * 4097 is beyond 2**24, and a multiple of 4096
        (4100, 4097, True),
        (4096, 8192, False),
        (64, 262145, False),
        (66, 262145, True),
    ],
)
def test_products_of_integers(count: int, factor: int, reported: bool) -> None:
    def make(kernel: Kernel) -> None:
        t = kernel.sbuf(1, count, dtype="int32")
        kernel.call("iota", dst=t, pattern=[[1, count]])
        kernel.call("tensor_scalar", dst=t, data=t, op0="multiply", operand0=factor)

    wanted = [n * factor for n in range(count) if int(np.float32(n * factor)) != n * factor]
    assert bool(wanted) is reported
    assert [item.number for item in precision.inexact_integers(flow(make))] == [float(n) for n in wanted[:1]]


def test_integers_from_outside_say_nothing() -> None:
    def make(kernel: Kernel) -> None:
        t = tile(kernel, 128, 8, dtype="int32")
        kernel.call("tensor_scalar", dst=t, data=t, op0="multiply", operand0=4097)

    assert list(precision.inexact_integers(flow(make))) == []


# Divisors.


@pytest.mark.parametrize(
    ("dtype", "columns", "count"), [("bfloat16", 64, 1), ("bfloat16", 31, 0), ("float32", 64, 0)]
)
def test_divisors_in_few_digits(dtype: str, columns: int, count: int) -> None:
    def make(kernel: Kernel) -> None:
        s = kernel.sbuf(128, 1, dtype=dtype)
        kernel.call("tensor_reduce", dst=s, op="add", data=tile(kernel, 128, columns), axis=1)
        kernel.call("reciprocal", dst=kernel.sbuf(128, 1), data=s)

    assert len(found(make, "NKR080")) == count


def test_a_sum_that_divides_nothing_is_no_divisor() -> None:
    def make(kernel: Kernel) -> None:
        s = kernel.sbuf(128, 1, dtype="bfloat16")
        kernel.call("tensor_reduce", dst=s, op="add", data=tile(kernel, 128, 64), axis=1)
        kernel.store(s)

    assert found(make, "NKR080") == []


# Softmax, norms, variances.


def softmax(kernel: Kernel, data: View, **fields: Any) -> None:
    e, s = kernel.sbuf(128, 64), kernel.sbuf(128, 1)
    kernel.call("activation_reduce", dst=e, op="exp", data=data, reduce_op="add", reduce_res=s, **fields)
    kernel.call("reciprocal", dst=s, data=s)
    kernel.call("tensor_scalar", dst=e, data=e, op0="multiply", operand0=s)


def test_a_softmax_without_a_shift() -> None:
    (finding,) = found(lambda kernel: softmax(kernel, tile(kernel, 128, 64), scale=0.125), "NKR061")
    assert finding.severity is Severity.major and finding.dimension is Dimension.numerics


def test_softmaxes_that_are_shifted() -> None:
    def by_bias(kernel: Kernel) -> None:
        t, m = tile(kernel, 128, 64), kernel.sbuf(128, 1)
        kernel.call("tensor_reduce", dst=m, op="maximum", data=t, axis=1, negate=True)
        softmax(kernel, t, bias=m)

    def by_subtraction(kernel: Kernel) -> None:
        t, m = tile(kernel, 128, 64), kernel.sbuf(128, 1)
        kernel.call("tensor_reduce", dst=m, op="maximum", data=t, axis=1)
        kernel.call("tensor_scalar", dst=t, data=t, op0="subtract", operand0=m)
        softmax(kernel, t)

    def bounded(kernel: Kernel) -> None:
        t = tile(kernel, 128, 64)
        kernel.call("activation", dst=t, op="tanh", data=t)
        softmax(kernel, t)

    for make in (by_bias, by_subtraction, bounded):
        assert found(make, "NKR061") == []


def test_an_exponential_that_nothing_divides_by_is_no_softmax() -> None:
    def make(kernel: Kernel) -> None:
        t = tile(kernel, 128, 64)
        kernel.call("activation", dst=t, op="exp", data=t)
        kernel.store(t)

    assert found(make, "NKR061") == []


def norm(kernel: Kernel, *, epsilon: float = 0.0, bias: bool = False, how: str = "rsqrt") -> None:
    s, q = kernel.sbuf(128, 1), kernel.sbuf(128, 64)
    kernel.call(
        "activation_reduce", dst=q, op="square", data=tile(kernel, 128, 64), reduce_op="add", reduce_res=s
    )
    if epsilon:
        kernel.call(
            "tensor_scalar", dst=s, data=s, op0="multiply", operand0=1 / 64, op1="add", operand1=epsilon
        )
    given: dict[str, Any] = {}
    if bias:
        given["bias"] = kernel.sbuf(128, 1)
        kernel.call("memset", dst=given["bias"], value=1e-6)
    if how == "power":
        kernel.call("tensor_scalar", dst=s, data=s, op0="power", operand0=-0.5)
    else:
        kernel.call("activation", dst=s, op=how, data=s, scale=1 / 64, **given)


@pytest.mark.parametrize(
    ("fields", "count"),
    [({}, 1), ({"how": "power"}, 1), ({"epsilon": 1e-6}, 0), ({"bias": True}, 0), ({"how": "sqrt"}, 0)],
)
def test_norms_and_their_epsilon(fields: dict[str, Any], count: int) -> None:
    assert len(found(lambda kernel: norm(kernel, **fields), "NKR062")) == count


def layer_norm(kernel: Kernel, fill: float | None, dtype: str = "float32", how: str = "bias") -> None:
    """The inverse root of the variance that bn_stats and bn_aggr find; `fill` is what its epsilon tile holds."""
    stats, moments = kernel.sbuf(128, 6, dtype=dtype), kernel.sbuf(128, 2)
    epsilon, root = kernel.sbuf(128, 1), kernel.sbuf(128, 1)
    if fill is None:
        kernel.copy(epsilon, kernel.argument(np.zeros((128, 1), np.float32)))
    else:
        kernel.call("memset", dst=epsilon, value=fill)
    kernel.call("bn_stats", dst=stats, data=tile(kernel, 128, 64))
    kernel.call("bn_aggr", dst=moments, data=stats)
    if how == "bias":
        kernel.call("activation", dst=root, op="rsqrt", data=moments[:, 1:2], bias=epsilon)
    else:
        fields = {"op0": "add", "operand0": epsilon, "op1": "power", "operand1": -0.5}
        kernel.call("tensor_scalar", dst=root, data=moments[:, 1:2], **fields)


@pytest.mark.parametrize(
    ("fill", "how", "count"),
    [
        (0.0, "bias", 1),
        (0, "bias", 1),
        (1e-5, "bias", 0),
        (None, "bias", 0),
        (0.0, "power", 1),
        (1e-5, "power", 0),
    ],
)
def test_an_epsilon_tile_of_zero_is_no_epsilon(fill: float | None, how: str, count: int) -> None:
    items = found(lambda kernel: layer_norm(kernel, fill, how=how), "NKR062")
    assert len(items) == count
    assert all("variance to which nothing, or zero, was added" in item.message for item in items)


def test_statistics_in_low_precision() -> None:
    (item,) = found(lambda kernel: layer_norm(kernel, 1e-5, "bfloat16"), "NKR084")
    assert (item.severity, item.dimension) == (Severity.minor, Dimension.precision)
    # eight digits: half a unit in the last place is 2**-8 of the number at most
    assert item.message.startswith(
        "bn_stats: means and variances are written as bfloat16: the mean is off by up to 0.0039"
    )
    assert "256 standard deviations" in item.message
    assert found(lambda kernel: layer_norm(kernel, 1e-5), "NKR084") == []


def test_a_reciprocal_of_a_plain_sum_is_no_norm() -> None:
    def make(kernel: Kernel) -> None:
        s = kernel.sbuf(128, 1)
        kernel.call("tensor_reduce", dst=s, op="add", data=tile(kernel, 128, 64), axis=1)
        kernel.call("reciprocal", dst=s, data=s)

    assert found(make, "NKR062") == []


def variance(kernel: Kernel, dtype: str = "float32", other: bool = False) -> None:
    t, q = tile(kernel, 128, 64), kernel.sbuf(128, 64)
    mean, squares, v = kernel.sbuf(128, 1), kernel.sbuf(128, 1, dtype=dtype), kernel.sbuf(128, 1)
    kernel.call("activation", dst=q, op="square", data=t)
    kernel.call("tensor_reduce", dst=squares, op="add", data=q, axis=1)
    kernel.call("tensor_reduce", dst=mean, op="add", data=tile(kernel, 128, 64) if other else t, axis=1)
    kernel.call("tensor_scalar", dst=mean, data=mean, op0="multiply", operand0=1 / 64)
    kernel.call("tensor_tensor", dst=v, data1=mean, data2=mean, op="multiply")
    kernel.call("tensor_tensor", dst=v, data1=squares, data2=v, op="subtract")


@pytest.mark.parametrize(
    ("fields", "severities"),
    [({}, [Severity.minor]), ({"dtype": "bfloat16"}, [Severity.major]), ({"other": True}, [])],
)
def test_variances_by_difference(fields: dict[str, Any], severities: list[Severity]) -> None:
    assert [f.severity for f in found(lambda kernel: variance(kernel, **fields), "NKR063")] == severities


@pytest.mark.parametrize(
    ("op", "before", "count"),
    [("sin", None, 1), ("arctan", None, 1), ("tanh", None, 0), ("sin", "mod", 0), ("sin", "minimum", 0)],
)
def test_functions_with_a_range(op: str, before: str | None, count: int) -> None:
    def make(kernel: Kernel) -> None:
        t = tile(kernel, 128, 64)
        if before:
            kernel.call("tensor_scalar", dst=t, data=t, op0=before, operand0=3.14)
        kernel.call("activation", dst=t, op=op, data=t)

    assert len(found(make, "NKR064")) == count


@pytest.mark.parametrize(
    ("dtype", "value", "op", "count"),
    [
        ("float32", float("-inf"), "maximum", 1),
        ("bfloat16", -3.4028234e38, "maximum", 1),
        ("float32", -3e38, "maximum", 0),
        ("float32", float("-inf"), "add", 0),
    ],
)
def test_fills_of_minus_infinity(dtype: str, value: float, op: str, count: int) -> None:
    def make(kernel: Kernel) -> None:
        t = kernel.sbuf(128, 64, dtype=dtype)
        kernel.call("memset", dst=t, value=value)
        kernel.call("tensor_reduce", dst=kernel.sbuf(128, 1), op=op, data=t, axis=1)

    assert len(found(make, "NKR065")) == count


# PSUM.


def evacuated(kernel: Kernel, op: str, number: float, then: str = "") -> None:
    p, s = kernel.psum(64, 96), kernel.sbuf(64, 96)
    kernel.matmul(p, tile(kernel, 128, 64), tile(kernel, 128, 96))
    kernel.call("tensor_scalar", dst=s, data=p, op0=op, operand0=number)
    if then:
        kernel.call("tensor_reduce", dst=kernel.sbuf(64, 1), op=then, data=s, axis=1)


@pytest.mark.parametrize(
    ("op", "number", "then", "wrong", "severity"),
    [
        ("add", 1.0, "", (), Severity.note),
        ("add", 1.0, "maximum", (), Severity.minor),
        ("add", 1.0, "", (WRONG,), Severity.blocker),
        ("multiply", 1.0, "", (WRONG,), None),
        ("add", 0.5, "", (), None),
    ],
)
def test_evacuation_with_a_constant(
    op: str, number: float, then: str, wrong: tuple[WrongOutput, ...], severity: Severity | None
) -> None:
    findings = found(lambda kernel: evacuated(kernel, op, number, then), "NKR060", wrong=wrong)
    assert [f.severity for f in findings] == ([severity] if severity else [])
    assert all(f.dimension is Dimension.correctness for f in findings)


def test_one_added_to_what_was_no_matmul_is_a_formula() -> None:
    def make(kernel: Kernel) -> None:
        t = tile(kernel, 128, 64)
        kernel.call("tensor_scalar", dst=t, data=t, op0="add", operand0=1.0)

    assert list(stability.shifted_evacuations(flow(make))) == []


def test_parameters_that_nothing_touches() -> None:
    kernel = Kernel()
    used, left = kernel.argument(np.zeros((4, 4), np.float32)), kernel.argument(np.zeros((4, 4), np.float32))
    kernel.copy(kernel.sbuf(4, 4), used)
    program = kernel.program()
    assert left.buffer.id != used.buffer.id
    assert stability.unread_parameters(Dataflow.of(program, ROWS)) == ("p1",)


def test_a_float32_input_rounded_for_the_matmul_is_a_note() -> None:
    def make(kernel: Kernel, wide: str) -> None:
        a, b = kernel.sbuf(128, 64, dtype="bfloat16"), kernel.sbuf(128, 96, dtype="bfloat16")
        kernel.copy(a, tile(kernel, 128, 64))
        kernel.copy(b, tile(kernel, 128, 96))
        p, out = kernel.psum(64, 96), kernel.sbuf(64, 96, dtype=wide)
        kernel.matmul(p, a, b)
        kernel.copy(out, p)
        kernel.store(out)

    (finding,) = found(lambda kernel: make(kernel, "float32"), "NKR081")
    assert finding.severity is Severity.note and "input p0 is rounded to bfloat16" in finding.message
    assert found(lambda kernel: make(kernel, "bfloat16"), "NKR081") == []


@pytest.mark.parametrize(
    ("dtype", "source", "count"),
    [("bfloat16", "float32", 1), ("float32", "float32", 0), ("bfloat16", "bfloat16", 0)],
)
def test_equality_with_a_rounded_maximum(dtype: str, source: str, count: int) -> None:
    def make(kernel: Kernel) -> None:
        t, m = tile(kernel, 128, 64, dtype=source), kernel.sbuf(128, 1, dtype=dtype)
        kernel.call("tensor_reduce", dst=m, op="maximum", data=t, axis=1)
        kernel.call("tensor_scalar", dst=kernel.sbuf(128, 64), data=t, op0="equal", operand0=m)

    assert len(found(make, "NKR082")) == count


# NKR083: outputs that only their stored roundings take beyond their limits.


def rounded(**changes: Any) -> RoundedOutput:
    given: dict[str, Any] = {
        "output": "out",
        "seed": 3,
        "inputs": "as drawn",
        "in_contract": True,
        "over": 3,
        "elements": 163_840,
        "rms": 0.76,
        "roundings": 2,
        "dtype": "bfloat16",
        "places": ("kernel.py:4", "kernel.py:7"),
    }
    return RoundedOutput(**(given | changes))


def of_rounded(*items: RoundedOutput) -> list[Finding]:
    facts = Facts("k", (WorkloadFacts("w", rounded=items),), target="trn2")
    return [finding for finding in judge(facts) if finding.code == "NKR083"]


def test_single_elements_beyond_their_limit_are_minor() -> None:
    (finding,) = of_rounded(rounded(over=1, seed=2), rounded())
    assert (finding.severity, finding.dimension) == (Severity.minor, Dimension.precision)
    assert finding.places == ("kernel.py:4", "kernel.py:7") and finding.count == 2
    assert finding.failing == "workload w, seed 3"
    assert finding.message == (
        "output out exceeds the elementwise limit of a float32 accumulator on 3 of 163,840 elements (seed 3); computed "
        "without rounding it does not: the intermediates on the way are rounded to bfloat16 2 times"
    )


def test_a_whole_output_beyond_its_limit_is_major() -> None:
    (finding,) = of_rounded(rounded(), rounded(over=0, rms=1.25, roundings=1, inputs="tiny-rows"))
    assert finding.severity is Severity.major
    assert finding.message == (
        "output out exceeds the limit of the rms error by a factor of 1.25 (tiny-rows inputs, seed 3); computed "
        "without rounding it does not: the intermediates on the way are rounded to bfloat16 once"
    )


def test_roundings_outside_the_contract_are_nothing_to_report() -> None:
    assert of_rounded(rounded(in_contract=False)) == []

"""Routes from inputs to outputs and what is said of them, and the rules over quantised values: all by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from execute_kit import Kernel, View

from nkireview.checks import routes as routes_module
from nkireview.checks.dataflow import Dataflow, Slot
from nkireview.checks.precision import largest
from nkireview.checks.routes import MOST, Remark, Route, routes
from nkireview.checks.routes_faults import other_scales, wrong_axes
from nkireview.checks.routes_scales import dequantised, quantised, scale_of
from nkireview.isa.table import ROWS
from nkireview.rules.facts import Facts, WorkloadFacts
from nkireview.rules.finding import Finding, Severity
from nkireview.rules.registry import judge

Make = Callable[[Kernel], None]
QUANTISATION = ("NKR085", "NKR086", "NKR087", "NKR088", "NKR089")


def flow_of(make: Make, target: str = "trn2", lnc: int = 1) -> Dataflow:
    kernel = Kernel(target, lnc=lnc)
    make(kernel)
    return Dataflow.of(kernel.program(), ROWS)


def found(make: Make, target: str = "trn2") -> list[Finding]:
    """The findings of the rules over quantised values."""
    kernel = Kernel(target)
    make(kernel)
    facts = Facts("k", (WorkloadFacts("w", program=kernel.program()),), target=target)
    return [finding for finding in judge(facts) if finding.code in QUANTISATION]


def loaded(kernel: Kernel, *shape: int, dtype: Any = np.float32) -> View:
    return kernel.load(np.zeros(shape, dtype))


def kinds(route: Route) -> list[str]:
    return [remark.kind for remark in route.remarks]


def texts(route: Route, kind: str) -> list[str]:
    return [remark.text for remark in route.remarks if remark.kind == kind]


# Stations.


def test_a_copy_is_one_route_of_three_stations() -> None:
    (route,) = routes(flow_of(lambda kernel: kernel.store(loaded(kernel, 128, 8))))
    assert (route.output, route.input, route.cut) == ("out", "p0", False)
    assert [(leg.station.opcode, leg.station.memory) for leg in route.legs] == [
        ("", "shared_hbm"),
        ("dma_copy", "sbuf"),
        ("dma_copy", "shared_hbm"),
    ]
    assert [leg.through for leg in route.legs] == ["", "src", "src"] and route.dtypes == ("float32",)
    assert route.remarks == ()


def test_tiles_of_one_line_are_one_station() -> None:
    def make(kernel: Kernel) -> None:
        x, out = kernel.argument(np.zeros((512, 8), np.float32)), kernel.hbm(512, 8)
        for row in range(0, 512, 128):
            kernel.line = 50
            tile = kernel.sbuf(128, 8)
            kernel.copy(tile, x[row : row + 128])
            kernel.copy(out[row : row + 128], tile)
        kernel.output(out)

    (route,) = routes(flow_of(make))
    assert [leg.station.count for leg in route.legs] == [0, 4, 4]


def test_each_input_and_output_has_its_own_routes() -> None:
    def make(kernel: Kernel) -> None:
        a, b, c = (loaded(kernel, 128, 8) for _ in range(3))
        both = kernel.sbuf(128, 8)
        kernel.call("tensor_tensor", dst=both, data1=a, data2=b, op="add")
        for tile, name in ((both, "sum"), (c, "other")):
            out = kernel.hbm(128, 8)
            kernel.copy(out, tile)
            kernel.output(out, name=name)

    assert [(route.output, route.input) for route in routes(flow_of(make))] == [
        ("sum", "p0"),
        ("sum", "p1"),
        ("other", "p2"),
    ]


def test_two_ways_between_the_same_ends_the_shortest_first() -> None:
    def make(kernel: Kernel) -> None:
        x, low, out = loaded(kernel, 128, 8), kernel.sbuf(128, 8, dtype="bfloat16"), kernel.sbuf(128, 8)
        kernel.copy(low, x)
        kernel.call("tensor_tensor", dst=out, data1=x, data2=low, op="add")
        kernel.store(out)

    short, long = routes(flow_of(make))
    assert (short.narrowest, long.narrowest) == ("float32", "bfloat16") and len(long.legs) == len(
        short.legs
    ) + 1
    assert long.legs[-2].through == "data2" and short.legs[-2].through == "data1"


def test_what_was_overwritten_is_on_no_route() -> None:
    def make(kernel: Kernel) -> None:
        tile = loaded(kernel, 128, 8)
        kernel.copy(tile, kernel.argument(np.zeros((128, 8), np.float32)))
        kernel.store(tile)

    assert [route.input for route in routes(flow_of(make))] == ["p1"]


def test_halves_of_a_tile_are_told_apart() -> None:
    def make(kernel: Kernel) -> None:
        tile = kernel.sbuf(128, 8)
        kernel.copy(tile[:, 0:4], kernel.argument(np.zeros((128, 4), np.float32)))
        kernel.copy(tile[:, 4:8], kernel.argument(np.zeros((128, 4), np.float32)))
        kernel.store(tile[:, 4:8])

    assert [route.input for route in routes(flow_of(make))] == ["p1"]


def test_what_a_pass_of_a_loop_leaves_reaches_the_next() -> None:
    def make(kernel: Kernel) -> None:
        x, carried, out = loaded(kernel, 128, 8), kernel.sbuf(128, 8), kernel.sbuf(128, 8)
        kernel.call("memset", dst=carried, value=0.0)
        with kernel.loop(5):
            kernel.copy(out, carried)
            kernel.copy(carried, x)
        kernel.store(out)

    (route,) = routes(flow_of(make))
    assert [leg.station.opcode for leg in route.legs] == [
        "",
        "dma_copy",
        "tensor_copy",
        "tensor_copy",
        "dma_copy",
    ]
    assert [leg.station.count for leg in route.legs[2:4]] == [5, 5]


def test_routes_cross_cores() -> None:
    def make(kernel: Kernel) -> None:
        shared = kernel.hbm(128, 8, shared=True)
        x = kernel.argument(np.zeros((128, 8), np.float32), shared=True)
        kernel.copy(shared, x)
        kernel.switch_core()
        tile, out = kernel.sbuf(128, 8), kernel.hbm(128, 8, shared=True)
        kernel.copy(tile, shared)
        kernel.copy(out, tile)
        kernel.output(out)

    (route,) = routes(flow_of(make, lnc=2))
    assert len(route.legs) == 4 and route.input == "p0"


def test_many_ways_are_cut_and_said_to_be() -> None:
    def make(kernel: Kernel) -> None:
        here = loaded(kernel, 128, 8)
        for _ in range(6):
            left, right, both = (kernel.sbuf(128, 8) for _ in range(3))
            kernel.copy(left, here)
            kernel.copy(right, here)
            kernel.call("tensor_tensor", dst=both, data1=left, data2=right, op="add")
            here = both
        kernel.store(here)

    made = routes(flow_of(make))
    # 2**6 ways
    assert len(made) == MOST and all(route.cut for route in made)


def test_one_way_is_told_where_there_are_too_many_to_look_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes_module, "LOOKED_AT", 1)
    (route,) = routes(flow_of(lambda kernel: kernel.store(loaded(kernel, 128, 8))))
    assert route.cut and [leg.station.opcode for leg in route.legs] == ["", "dma_copy", "dma_copy"]


# Remarks.


def test_casts_and_the_environment_that_rounds_them_stochastically() -> None:
    def make(kernel: Kernel) -> None:
        low = kernel.sbuf(128, 8, dtype="bfloat16")
        kernel.copy(low, loaded(kernel, 128, 8))
        kernel.store(low)

    (route,) = routes(flow_of(make))
    assert texts(route, "cast") == [
        "float32 -> bfloat16, to nearest even unless NEURON_RT_STOCHASTIC_ROUNDING_EN is set"
    ]
    assert (route.dtypes, route.narrowest) == (("float32", "bfloat16"), "bfloat16")


@pytest.mark.parametrize(
    ("first", "second", "kind", "text"),
    [
        ("float16", "bfloat16", "rounded twice", "rounded from float32 to float16 and again to bfloat16"),
        (
            "bfloat16",
            "float32",
            "widened again",
            "rounded from float32 to bfloat16 and kept as float32 afterwards",
        ),
        ("float32", "bfloat16", "", ""),
        ("bfloat16", "bfloat16", "", ""),
    ],
)
def test_two_roundings_in_a_row(first: str, second: str, kind: str, text: str) -> None:
    def make(kernel: Kernel) -> None:
        middle, last = kernel.sbuf(128, 8, dtype=first), kernel.sbuf(128, 8, dtype=second)
        kernel.call("tensor_scalar", dst=middle, data=loaded(kernel, 128, 8), op0="multiply", operand0=2.0)
        kernel.copy(last, middle)
        kernel.store(last)

    (route,) = routes(flow_of(make))
    both = {"rounded twice", "widened again"}
    assert [remark.text for remark in route.remarks if remark.kind in both] == ([text] if text else [])
    assert both & set(kinds(route)) == ({kind} if kind else set())


@pytest.mark.parametrize(
    ("tiles", "told", "terms"),
    [(1, True, 128), (4, True, 512), (4, False, 512), (4, None, 128)],
)
def test_the_length_of_an_accumulation(tiles: int, told: bool | None, terms: int) -> None:
    """told: accumulate as it is recommended; False: not said at all; None: each tile begins anew."""

    def make(kernel: Kernel) -> None:
        a, b = loaded(kernel, 128, 64), loaded(kernel, 128, 32)
        p, out = kernel.psum(64, 32), kernel.sbuf(64, 32)
        for tile in range(tiles):
            kernel.line = 100
            given = {} if told is False else {"accumulate": bool(told and tile)}
            kernel.matmul(p, a, b, **given)
        kernel.copy(out, p)
        kernel.store(out)

    for route in routes(flow_of(make)):
        assert texts(route, "accumulation") == [f"sums of {terms} terms in float32 PSUM"]


def test_a_low_psum_rounds_at_each_matmul() -> None:
    def make(kernel: Kernel) -> None:
        a, b = (loaded(kernel, 128, n, dtype=ml_dtypes.bfloat16) for n in (64, 32))
        p, out = kernel.psum(64, 32, dtype="bfloat16"), kernel.sbuf(64, 32, dtype="bfloat16")
        for tile in range(3):
            kernel.line = 100
            kernel.matmul(p, a, b, accumulate=tile > 0)
        kernel.copy(out, p)
        kernel.store(out)

    route = routes(flow_of(make, "trn3"))[0]
    assert texts(route, "accumulation") == [
        "sums of 384 terms in bfloat16 PSUM, rounded to 8 digits at each matmul"
    ]


def test_a_running_sum_in_few_digits() -> None:
    def make(kernel: Kernel) -> None:
        total = kernel.sbuf(128, 8, dtype="bfloat16")
        x = loaded(kernel, 128, 8)
        kernel.call("memset", dst=total, value=0.0)
        for _ in range(6):
            kernel.line = 100
            kernel.call("tensor_tensor", dst=total, data1=total, data2=x, op="add")
        kernel.store(total)

    (route,) = routes(flow_of(make))
    assert texts(route, "running sum") == ["a running sum of 6 terms, rounded to bfloat16 at each"]


@pytest.mark.parametrize(
    ("target", "dtype", "most"),
    [
        ("trn2", "float8_e4m3", 240.0),
        ("trn2", "float8_e5m2", 57344.0),
        ("trn2", "float8_e4m3fn", 240.0),
        ("trn3", "float8_e4m3fn", 448.0),
        ("trn3", "float8_e4m3", 240.0),
    ],
)
def test_the_range_of_fp8_by_target_and_dtype(target: str, dtype: str, most: float) -> None:
    def make(kernel: Kernel) -> None:
        low = kernel.sbuf(128, 8, dtype=dtype)
        kernel.copy(low, loaded(kernel, 128, 8))
        kernel.store(low)

    (route,) = routes(flow_of(make, target))
    (remark,) = [remark for remark in route.remarks if remark.kind == "fp8"]
    assert remark.number == most and remark.text.endswith("neither scaled nor bounded before")
    assert remark.text.startswith(f"{dtype} ends at {most:g}")
    assert largest(dtype, "v4" if target == "trn3" else "v3") == most


@pytest.mark.parametrize(
    ("fields", "end"),
    [
        (
            {"op0": "minimum", "operand0": 240.0, "op1": "maximum", "operand1": -240.0},
            "bounded at 240 before",
        ),
        ({"op0": "minimum", "operand0": 448.0}, "bounded at 448 before, beyond its range"),
        ({"op0": "multiply", "operand0": 0.125}, "scaled before by 0.125"),
        ({"op0": "add", "operand0": 1.0}, "neither scaled nor bounded before"),
    ],
)
def test_what_keeps_values_inside_fp8(fields: dict[str, Any], end: str) -> None:
    def make(kernel: Kernel) -> None:
        wide, low = kernel.sbuf(128, 8), kernel.sbuf(128, 8, dtype="float8_e4m3")
        kernel.call("tensor_scalar", dst=wide, data=loaded(kernel, 128, 8), **fields)
        kernel.copy(low, wide)
        kernel.store(low)

    (route,) = routes(flow_of(make))
    assert texts(route, "fp8") == [f"float8_e4m3 ends at 240: {end}"]


def test_a_sigmoid_bounds_but_not_before_a_matmul() -> None:
    def make(kernel: Kernel) -> None:
        inside, w = kernel.sbuf(128, 64), loaded(kernel, 128, 32)
        kernel.call("activation", dst=inside, data=loaded(kernel, 128, 64), op="sigmoid")
        first, p = kernel.sbuf(128, 64, dtype="float8_e4m3"), kernel.psum(64, 32)
        kernel.copy(first, inside)
        kernel.store(first)
        kernel.matmul(p, inside, w)
        second = kernel.sbuf(64, 32, dtype="float8_e4m3")
        kernel.copy(second, p)
        kernel.store(second)

    said = [texts(route, "fp8")[0] for route in routes(flow_of(make))]
    assert said[0].endswith("bounded by sigmoid before") and all("neither" in text for text in said[1:])


def test_integers_saturate_when_written_and_wrap_by_bits() -> None:
    def make(kernel: Kernel) -> None:
        wide, low = kernel.sbuf(128, 8, dtype="int32"), kernel.sbuf(128, 8, dtype="int32")
        kernel.copy(wide, loaded(kernel, 128, 8))
        kernel.call("tensor_scalar", dst=low, data=wide, op0="bitwise_and", operand0=255)
        kernel.store(low)

    (route,) = routes(flow_of(make))
    assert texts(route, "integer") == ["rounded to int32, which saturates"]
    assert texts(route, "bits") == ["bitwise_and keeps bits as they are: what does not fit wraps"]


def test_a_remark_has_a_known_kind() -> None:
    with pytest.raises(ValueError, match="remark kind 'cost' is not one of cast, accumulation"):
        Remark("cost", 0, "")


# MX: a scale for 8 partitions x 4 elements, deep-dives/mxfp-matmul.rst:28-112.


def mx_product(kernel: Kernel, crossed: bool) -> None:
    """Two quantised operands and their product; crossed: each with the other's scales."""
    sides = []
    for _ in range(2):
        kernel.line += 10
        x = loaded(kernel, 128, 256, dtype=ml_dtypes.bfloat16)
        data = kernel.sbuf(128, 64, dtype="float8_e4m3fn_x4")
        scale = kernel.sbuf(128, 64, dtype="uint8")
        kernel.call("memset", dst=scale, value=0)
        kernel.call("quantize_mx", dst=data, src=x, dst_scale=scale)
        sides.append((data, scale))
    (a, a_scale), (b, b_scale) = sides
    if crossed:
        a_scale, b_scale = b_scale, a_scale
    p, out = kernel.psum(64, 64), kernel.sbuf(64, 64)
    kernel.call("nc_matmul_mx", dst=p, stationary=a, moving=b, stationary_scale=a_scale, moving_scale=b_scale)
    kernel.copy(out, p)
    kernel.store(out)


def test_mx_scales_lie_along_the_contraction() -> None:
    route = routes(flow_of(lambda kernel: mx_product(kernel, False), "trn3"))[0]
    assert texts(route, "mx scales") == [
        "a power-of-two scale for each 8 partitions x 4 elements of the free axis",
        "scales of 8 partitions x 4 elements, both along the contraction, are multiplied in",
    ]
    # 128 partitions of four elements each
    assert texts(route, "accumulation") == ["sums of 512 terms in float32 PSUM"]


@pytest.mark.parametrize(("crossed", "count"), [(False, 0), (True, 1)])
def test_mx_data_with_the_scales_of_other_data(crossed: bool, count: int) -> None:
    findings = found(lambda kernel: mx_product(kernel, crossed), "trn3")
    assert [finding.code for finding in findings] == ["NKR087"] * count
    if count:
        assert "were written by another quantize_mx" in findings[0].message


# Scales.


def maxima(kernel: Kernel, tile: View) -> View:
    """The largest magnitude of each row."""
    size, most = kernel.sbuf(*tile.shape), kernel.sbuf(tile.shape[0], 1)
    kernel.call("activation", dst=size, data=tile, op="abs")
    kernel.call("tensor_reduce", dst=most, data=size, op="maximum", axis=(1,))
    return most


def scaled(kernel: Kernel, most: View, factor: float, *, inverse: bool = True) -> View:
    """factor / most, or factor * most."""
    here = most
    if inverse:
        here = kernel.sbuf(*most.shape)
        kernel.call("reciprocal", dst=here, data=most)
    made = kernel.sbuf(*most.shape)
    kernel.call("tensor_scalar", dst=made, data=here, op0="multiply", operand0=factor)
    return made


def coded(kernel: Kernel, tile: View, scale: View, dtype: str = "int8", **more: Any) -> View:
    codes = kernel.sbuf(*tile.shape, dtype=dtype)
    kernel.call("tensor_scalar", dst=codes, data=tile, op0="multiply", operand0=scale, **more)
    return codes


def back(kernel: Kernel, codes: View, scale: View) -> View:
    values = kernel.sbuf(*codes.shape)
    kernel.call("tensor_scalar", dst=values, data=codes, op0="multiply", operand0=scale)
    return values


def turned(kernel: Kernel, tile: View) -> View:
    p, made = kernel.psum(*tile.shape[::-1]), kernel.sbuf(*tile.shape[::-1])
    kernel.call("nc_transpose", dst=p, data=tile)
    kernel.copy(made, p)
    return made


def test_a_scale_is_followed_to_its_maximum() -> None:
    def make(kernel: Kernel) -> None:
        x = loaded(kernel, 128, 64)
        kernel.store(coded(kernel, x, scaled(kernel, maxima(kernel, x), 127.0)))

    flow = flow_of(make)
    (item,) = quantised(flow)
    assert item.scale is not None and (item.scale.power, item.scale.factor, item.scale.per) == (
        -1,
        127.0,
        "row",
    )
    assert (item.dtype, item.zero, item.by_row, item.granularity) == ("int8", 0.0, True, "one for each row")
    (route,) = [route for route in routes(flow) if "quantised" in kinds(route)][:1]
    assert texts(route, "quantised") == ["quantised to int8, one for each row"]


def test_a_maximum_of_maxima_across_the_rows_is_of_the_whole_tensor() -> None:
    def make(kernel: Kernel) -> None:
        x = loaded(kernel, 128, 64)
        rows = turned(kernel, maxima(kernel, x))
        whole = kernel.sbuf(1, 1)
        kernel.call("tensor_reduce", dst=whole, data=rows, op="maximum", axis=(1,))
        spread = kernel.sbuf(1, 1)
        kernel.call("reciprocal", dst=spread, data=whole)
        kernel.store(spread)

    flow = flow_of(make)
    last = len(flow.program) - 1
    scale = scale_of(flow, Slot(last, "src"))
    assert scale is not None and (scale.per, scale.power) == ("tensor", -1)


def test_a_group_of_a_row_and_a_number_around_a_zero_point() -> None:
    def make(kernel: Kernel) -> None:
        x = loaded(kernel, 128, 64)
        most, scale = kernel.sbuf(128, 4), kernel.sbuf(128, 4)
        groups = replace(x, pattern=((64, 128), (16, 4), (1, 16)))
        kernel.call("tensor_reduce", dst=most, data=groups, op="maximum", axis=(2,))
        kernel.call("reciprocal", dst=scale, data=most)
        codes = kernel.sbuf(128, 4, 16, dtype="uint8")
        spread = replace(scale, pattern=((4, 128), (1, 4), (0, 16)))
        kernel.call("tensor_tensor", dst=codes, data1=groups, data2=spread, op="multiply")
        kernel.store(codes)
        around = kernel.sbuf(128, 64, dtype="uint8")
        kernel.call(
            "tensor_scalar", dst=around, data=x, op0="multiply", operand0=8.0, op1="add", operand1=128.0
        )
        kernel.store(around)

    flow = flow_of(make)
    grouped, number = quantised(flow)
    assert (grouped.granularity, grouped.by_row) == ("one for each group of a row", False)
    assert (number.granularity, number.zero) == ("one number for the whole tensor", 128.0)
    said = [text for route in routes(flow) for text in texts(route, "quantised")]
    assert "quantised to uint8, one number for the whole tensor, zero point 128" in said


def test_bounds_before_the_codes_are_told() -> None:
    def make(kernel: Kernel) -> None:
        x, wide = loaded(kernel, 128, 64), kernel.sbuf(128, 64)
        scale = scaled(kernel, maxima(kernel, x), 240.0)
        kernel.call("tensor_scalar", dst=wide, data=x, op0="multiply", operand0=scale)
        low = kernel.sbuf(128, 64, dtype="float8_e4m3")
        kernel.call(
            "tensor_scalar", dst=low, data=wide, op0="minimum", operand0=240.0, op1="maximum", operand1=-240.0
        )
        kernel.store(low)

    (item,) = quantised(flow_of(make))
    assert item.clamped == (-240.0, 240.0) and item.scale is not None and item.scale.factor == 240.0


# NKR085: bounded too late.


@pytest.mark.parametrize(
    ("before", "dtype", "bound", "count"),
    [
        (None, "float8_e4m3", 240.0, 1),
        (None, "float8_e5m2", 57344.0, 1),
        (None, "float8_e4m3", 0.0, 0),  # a relu
        (None, "float8_e4m3", 6.0, 0),  # a relu6
        (None, "float16", 65504.0, 0),  # overflow to infinity is documented there
        ({"op0": "multiply", "operand0": 0.125}, "float8_e4m3", 240.0, 0),
        ({"op0": "minimum", "operand0": 240.0}, "float8_e4m3", 240.0, 0),
        ({"op0": "add", "operand0": 1.0}, "float8_e4m3", 240.0, 1),
    ],
)
def test_bounds_after_the_conversion(
    before: dict[str, Any] | None, dtype: str, bound: float, count: int
) -> None:
    def make(kernel: Kernel) -> None:
        x = loaded(kernel, 128, 8)
        if before:
            wide = kernel.sbuf(128, 8)
            kernel.call("tensor_scalar", dst=wide, data=x, **before)
            x = wide
        low, last = kernel.sbuf(128, 8, dtype=dtype), kernel.sbuf(128, 8)
        kernel.copy(low, x)
        kernel.call(
            "tensor_scalar", dst=last, data=low, op0="minimum", operand0=bound, op1="maximum", operand1=-bound
        )
        kernel.store(last)

    findings = found(make)
    assert [(finding.code, finding.severity) for finding in findings] == [("NKR085", Severity.major)] * count
    if count:
        assert findings[0].message.startswith(
            f"tensor_scalar: values are bounded near {bound:g} after they became {dtype}, when those beyond it have "
            "overflowed (kernel.py:"
        )


def test_the_unbounded_conversion_says_to_mend_the_late_bound_first() -> None:
    kernel = Kernel()
    low, last = kernel.sbuf(128, 8, dtype="float8_e4m3"), kernel.sbuf(128, 8)
    kernel.copy(low, loaded(kernel, 128, 8))
    kernel.call("tensor_scalar", dst=last, data=low, op0="minimum", operand0=240.0)
    kernel.store(last)
    facts = Facts("k", (WorkloadFacts("w", program=kernel.program()),), target="trn2")
    (finding,) = [finding for finding in judge(facts) if finding.code == "NKR075"]
    assert finding.change.startswith("Mend NKR085 at kernel.py:")


# NKR086: axes of scales. Square tiles, on which every one of them runs.


def rows_before_a_transpose(kernel: Kernel, mode: str) -> None:
    x = loaded(kernel, 128, 128)
    t = turned(kernel, x)
    of, to = {"wrong": (x, t), "after": (t, t), "before": (x, x), "back": (x, turned(kernel, t))}[mode]
    kernel.store(coded(kernel, to, scaled(kernel, maxima(kernel, of), 127.0)))


@pytest.mark.parametrize(("mode", "count"), [("wrong", 1), ("after", 0), ("before", 0), ("back", 0)])
def test_maxima_of_rows_and_what_they_scale(mode: str, count: int) -> None:
    findings = found(lambda kernel: rows_before_a_transpose(kernel, mode))
    assert [finding.code for finding in findings] == ["NKR086"] * count
    if count:
        assert (
            "were taken of the tile before it was transposed: they belong to its columns"
            in findings[0].message
        )


@pytest.mark.parametrize(("turns", "count"), [(False, 0), (True, 1)])
def test_a_view_of_hbm_may_be_the_transpose(turns: bool, count: int) -> None:
    def make(kernel: Kernel) -> None:
        x = kernel.argument(np.zeros((128, 128), np.float32))
        straight, other = kernel.sbuf(128, 128), kernel.sbuf(128, 128)
        kernel.copy(straight, x)
        kernel.copy(other, replace(x, pattern=((1, 128), (128, 128))) if turns else x)
        kernel.store(coded(kernel, other, scaled(kernel, maxima(kernel, straight), 127.0)))

    assert [finding.code for finding in found(make)] == ["NKR086"] * count


def product_of_codes(kernel: Kernel, per_contraction: bool, again: bool) -> None:
    """x [128, 128] times w: x quantised by its rows, which the matmul contracts or keeps."""
    x, w = loaded(kernel, 128, 128), loaded(kernel, 128, 64)
    most = maxima(kernel, x)
    codes = coded(kernel, x, scaled(kernel, most, 240.0), "float8_e4m3")
    weights = kernel.sbuf(128, 64, dtype="float8_e4m3")
    kernel.call("tensor_scalar", dst=weights, data=w, op0="multiply", operand0=8.0)
    if not per_contraction:
        p = kernel.psum(128, 128, dtype="float8_e4m3")
        kernel.call("nc_transpose", dst=p, data=codes)
        codes = kernel.sbuf(128, 128, dtype="float8_e4m3")
        kernel.copy(codes, p)
    p = kernel.psum(128, 64)
    kernel.matmul(p, codes, weights)
    out = kernel.sbuf(128, 64)
    if again:
        kernel.call(
            "tensor_scalar",
            dst=out,
            data=p,
            op0="multiply",
            operand0=scaled(kernel, most, 1 / 240, inverse=False),
        )
    else:
        kernel.copy(out, p)
    kernel.store(out)


@pytest.mark.parametrize(
    ("per_contraction", "again", "count"), [(True, True, 1), (False, True, 0), (True, False, 0)]
)
def test_a_scale_that_varies_along_the_contraction(per_contraction: bool, again: bool, count: int) -> None:
    findings = found(lambda kernel: product_of_codes(kernel, per_contraction, again))
    assert [finding.code for finding in findings] == ["NKR086"] * count
    if count:
        assert "over which the matmul (kernel.py:" in findings[0].message


def test_the_axis_is_seen_in_the_values() -> None:
    """The finding is right: on a tile with unequal rows the codes are not those of its own maxima."""
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((128, 128)) * np.linspace(1, 4, 128)[:, None]).astype(np.float32)

    def codes_of(mode: str) -> Any:
        kernel = Kernel()
        made = loaded(kernel, 128, 128)
        kernel.arguments[kernel.parameters[0].id] = x
        t = turned(kernel, made)
        kernel.store(coded(kernel, t, scaled(kernel, maxima(kernel, made if mode == "wrong" else t), 127.0)))
        return kernel.run().outputs[0].values

    wanted = np.rint(x.T * (127 / np.abs(x.T).max(axis=1, keepdims=True)))
    assert np.abs(codes_of("right") - wanted).max() <= 1
    assert np.abs(codes_of("wrong") - wanted).max() > 20


# NKR087: the way back.


@pytest.mark.parametrize(
    ("mode", "text"),
    [
        ("same", ""),
        ("recomputed", ""),
        ("other tensor", "by a scale of another tensor's maximum"),
        ("not inverted", "by the scale that they were multiplied by already"),
        ("range", "were scaled to 127, and back from 128"),
        ("a factor", ""),
        ("half", ""),
    ],
)
def test_the_scale_of_the_way_back(mode: str, text: str) -> None:
    def make(kernel: Kernel) -> None:
        x, y = loaded(kernel, 128, 64), loaded(kernel, 128, 64)
        most = maxima(kernel, x)
        codes = coded(kernel, x, scaled(kernel, most, 127.0))
        of = {"recomputed": maxima(kernel, x), "other tensor": maxima(kernel, y)}.get(mode, most)
        factor = {"range": 1 / 128, "a factor": 0.3 / 127, "half": 0.5 / 127, "not inverted": 127.0}.get(
            mode, 1 / 127
        )
        kernel.store(back(kernel, codes, scaled(kernel, of, factor, inverse=mode == "not inverted")))

    findings = found(make)
    assert [finding.code for finding in findings] == (["NKR087"] if text else [])
    assert not text or text in findings[0].message


@pytest.mark.parametrize(
    ("added", "taken", "text"), [(128.0, 128.0, ""), (128.0, 127.0, "and 127 is taken off")]
)
def test_the_zero_point_of_the_way_back(added: float, taken: float, text: str) -> None:
    def make(kernel: Kernel) -> None:
        x = loaded(kernel, 128, 64)
        most = maxima(kernel, x)
        codes = coded(kernel, x, scaled(kernel, most, 127.0), "uint8", op1="add", operand1=added)
        values = kernel.sbuf(128, 64)
        kernel.call(
            "tensor_scalar",
            dst=values,
            data=codes,
            op0="subtract",
            operand0=taken,
            op1="multiply",
            operand1=scaled(kernel, most, 1 / 127, inverse=False),
        )
        kernel.store(values)

    findings = found(make)
    assert [finding.code for finding in findings] == (["NKR087"] if text else [])
    assert not text or f"have the zero point {added:g}, {text}" in findings[0].message


def test_scales_from_outside_say_nothing() -> None:
    def make(kernel: Kernel) -> None:
        x, there, home = loaded(kernel, 128, 64), loaded(kernel, 128, 1), loaded(kernel, 128, 1)
        kernel.store(back(kernel, coded(kernel, x, there), home))

    flow = flow_of(make)
    assert list(other_scales(flow)) == [] and list(wrong_axes(flow)) == []
    (item,) = dequantised(flow)
    assert item.scale is None and item.quantised.granularity == "one for each partition"
    said = [text for route in routes(flow) for text in texts(route, "dequantised")]
    assert said[0] == "multiplied back by a scale that cannot be followed"


# NKR088: saturation.


@pytest.mark.parametrize(
    ("factor", "bound", "mask", "last", "count"),
    [
        (2.0, None, 255, "uint8", 1),
        (2.0, 255.0, 255, "uint8", 0),  # bounded before
        (2.0, None, 255, "int32", 0),  # an index modulo 256
        (2.0, None, 7, "uint8", 0),  # a field of bits
        (None, None, 255, "uint8", 0),  # nothing was scaled: no code
    ],
)
def test_low_bits_of_a_scaled_value(
    factor: float | None, bound: float | None, mask: int, last: str, count: int
) -> None:
    def make(kernel: Kernel) -> None:
        x, wide = loaded(kernel, 128, 8), kernel.sbuf(128, 8, dtype="int32")
        fields: dict[str, Any] = (
            {"op0": "multiply", "operand0": factor} if factor else {"op0": "add", "operand0": 1.0}
        )
        if bound:
            fields |= {"op1": "minimum", "operand1": bound}
        kernel.call("tensor_scalar", dst=wide, data=x, **fields)
        low, codes = kernel.sbuf(128, 8, dtype="int32"), kernel.sbuf(128, 8, dtype=last)
        kernel.call("tensor_scalar", dst=low, data=wide, op0="bitwise_and", operand0=mask)
        kernel.copy(codes, low)
        kernel.store(codes)

    findings = found(make)
    assert [finding.code for finding in findings] == ["NKR088"] * count
    if count:
        assert "are kept: 256 becomes 0 instead of 255" in findings[0].message


def test_the_low_byte_of_a_wider_integer() -> None:
    def make(kernel: Kernel) -> None:
        wide, codes = kernel.sbuf(128, 8, dtype="int32"), kernel.sbuf(128, 8, dtype="uint8")
        kernel.call("tensor_scalar", dst=wide, data=loaded(kernel, 128, 8), op0="multiply", operand0=2.0)
        bytes_ = replace(wide, dtype="uint8", pattern=((32, 128), (4, 8)))
        kernel.copy(codes, bytes_)
        kernel.store(codes)

    assert [finding.code for finding in found(make)] == ["NKR088"]


def test_wrapping_and_saturating_as_executed() -> None:
    """What the rule says happens: 256 becomes 0 by bits, 255 by the engine's conversion."""
    kernel = Kernel()
    x = kernel.load(np.full((128, 8), 128.0, np.float32))
    wide, low = (kernel.sbuf(128, 8, dtype="int32") for _ in range(2))
    kernel.call("tensor_scalar", dst=wide, data=x, op0="multiply", operand0=2.0)
    kernel.call("tensor_scalar", dst=low, data=wide, op0="bitwise_and", operand0=255)
    direct = kernel.sbuf(128, 8, dtype="uint8")
    kernel.call("tensor_scalar", dst=direct, data=x, op0="multiply", operand0=2.0)
    kernel.store(low)
    kernel.store(direct)
    by_bits, by_engine = kernel.run().outputs
    assert (by_bits.values == 0).all() and (by_engine.values == 255).all()


# NKR089: what a mask writes among codes.


@pytest.mark.parametrize(
    ("how", "fill", "zero", "count"),
    [
        ("select", 0.0, 128.0, 1),
        ("select", 128.0, 128.0, 0),
        ("select", 0.0, 0.0, 0),
        ("mask", 0.0, 128.0, 1),
    ],
)
def test_fills_among_codes(how: str, fill: float, zero: float, count: int) -> None:
    def make(kernel: Kernel) -> None:
        x, codes = loaded(kernel, 128, 8), kernel.sbuf(128, 8, dtype="uint8")
        kernel.call(
            "tensor_scalar", dst=codes, data=x, op0="multiply", operand0=8.0, op1="add", operand1=zero
        )
        kept, values = kernel.sbuf(128, 8, dtype="uint8"), kernel.sbuf(128, 8)
        if how == "select":
            kernel.call(
                "affine_select",
                dst=kept,
                pattern=[[-1, 8]],
                offset=5,
                channel_multiplier=0,
                on_true_tile=codes,
                on_false_value=fill,
                cmp_op="greater_equal",
            )
        else:
            mask = kernel.sbuf(128, 8)
            kernel.call("tensor_scalar", dst=mask, data=loaded(kernel, 128, 8), op0="less", operand0=1.0)
            kernel.call("tensor_tensor", dst=kept, data1=codes, data2=mask, op="multiply")
        kernel.call(
            "tensor_scalar",
            dst=values,
            data=kept,
            op0="subtract",
            operand0=zero,
            op1="multiply",
            operand1=0.125,
        )
        kernel.store(values)

    findings = found(make)
    assert [finding.code for finding in findings] == ["NKR089"] * count
    if count:
        assert "they become -128 times the scale, not 0" in findings[0].message


def test_a_fill_among_floats_is_no_code() -> None:
    def make(kernel: Kernel) -> None:
        x, kept, values = loaded(kernel, 128, 8), kernel.sbuf(128, 8), kernel.sbuf(128, 8)
        kernel.call(
            "affine_select",
            dst=kept,
            pattern=[[-1, 8]],
            offset=5,
            channel_multiplier=0,
            on_true_tile=x,
            on_false_value=0.0,
            cmp_op="greater_equal",
        )
        kernel.call("tensor_scalar", dst=values, data=kept, op0="subtract", operand0=3.0)
        kernel.store(values)

    assert found(make) == []

"""Repairs by immediates and elementwise meaning: each defect of hand-written kernels, repaired to NumPy's float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np
import pytest
from execute_kit import Kernel, View
from numpy.typing import NDArray
from scipy import special

from nkireview.checks.dataflow import Dataflow
from nkireview.diagnosis import algebra
from nkireview.diagnosis.repair import Repair
from nkireview.execute import execute
from nkireview.isa.table import ROWS
from nkireview.program.program import Program

Array = NDArray[Any]
P, N = 8, 12


def drawn(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def result(program: Program, arguments: Any, repair: Repair | None = None) -> Array | None:
    """The one output of an unrounded run; None where it faults."""
    around = None if repair is None else repair.around
    ran = execute(program, arguments, compute=np.float64, rounding="off", around=around)
    return None if ran.faults else ran.outputs[0].values


def same(got: Array | None, wanted: Array) -> bool:
    if got is None or not np.isfinite(got).all():
        return False
    return float(np.abs(got - wanted).max()) <= 1e-13 * max(float(np.abs(wanted).max()), 1e-300)


def found(kernel: Kernel, wanted: Array) -> tuple[list[Repair], list[Repair]]:
    """All repairs of a kernel, and those of them that give what is wanted."""
    program = kernel.program()
    every = list(algebra.repairs(Dataflow.of(program, ROWS)))
    right = [
        repair
        for repair in every
        if same(result(repair.program, {**kernel.arguments, **repair.arguments}, repair), wanted)
    ]
    return every, right


GUARD = frozenset({"mask-fully-masked"})
"""What does nothing where no row is masked whole."""
SHIFT = GUARD | {"operator"}
"""And what changes only by how much a softmax is shifted, which cancels."""


def check(
    build: Callable[[Any], Kernel],
    defect: Any,
    honest: Any,
    wanted: Array,
    cause: str,
    sentence: str,
    neutral: frozenset[str] = frozenset(),
) -> list[Repair]:
    """Only the cause repairs the defective kernel; none but neutral repairs leave the honest one right, which it is."""
    bad, good = build(defect), build(honest)
    assert not same(result(bad.program(), bad.arguments), wanted)
    every, right = found(bad, wanted)
    assert len(every) <= algebra.LIMIT
    assert right, [repair.sentence for repair in every]
    assert {repair.cause for repair in right} == {cause}, [repair.sentence for repair in right]
    assert any(sentence in repair.sentence for repair in right), [repair.sentence for repair in right]
    kept = unchanged(good, wanted)
    assert kept <= neutral
    return right


def unchanged(kernel: Kernel, wanted: Array) -> set[str]:
    """The causes of the repairs that leave a kernel right, which it is."""
    assert same(result(kernel.program(), kernel.arguments), wanted)
    return {repair.cause for repair in found(kernel, wanted)[1]}


def column(kernel: Kernel, dtype: str = "float32") -> View:
    return kernel.sbuf(P, 1, dtype=dtype)


# norms

X = drawn(P, N) * np.float32(0.01)
ROW = X.astype(np.float64)


def rms(eps: float, *, factor: float = 1 / N, way: str = "activation") -> Kernel:
    """x / sqrt(mean(x^2) + eps)."""
    k = Kernel()
    x, square, total, root = k.load(X), k.sbuf(P, N), column(k), column(k)
    k.call("activation", dst=square, op="square", data=x, scale=1.0, reduce_op="add", reduce_res=total)
    if way == "activation":
        k.call("activation", dst=root, op="rsqrt", data=total, scale=factor, **({"bias": eps} if eps else {}))
    elif way == "tile":
        tile = column(k)
        k.call("memset", dst=tile, value=eps)
        k.call("activation", dst=root, op="rsqrt", data=total, scale=factor, bias=tile)
    elif way == "power":
        k.call(
            "tensor_scalar", dst=total, data=total, op0="multiply", operand0=factor, op1="add", operand1=eps
        )
        k.call("tensor_scalar", dst=root, data=total, op0="power", operand0=-0.5)
    elif way == "reciprocal":
        k.call("activation", dst=total, op="sqrt", data=total, scale=factor, **({"bias": eps} if eps else {}))
        k.call("reciprocal", dst=root, data=total)
    elif way == "outside":
        k.call("activation", dst=total, op="sqrt", data=total, scale=factor)
        k.call("tensor_scalar", dst=total, data=total, op0="add", operand0=eps)
        k.call("reciprocal", dst=root, data=total)
    elif way == "outside tile":
        tile = column(k)
        k.call("memset", dst=tile, value=eps)
        k.call("activation", dst=total, op="sqrt", data=total, scale=factor)
        k.call("tensor_scalar", dst=total, data=total, op0="add", operand0=tile)
        k.call("reciprocal", dst=root, data=total)
    k.call("tensor_scalar", dst=x, data=x, op0="multiply", operand0=root)
    k.store(x)
    return k


def rms_wanted(eps: float, outside: bool = False) -> Array:
    mean = np.square(ROW).mean(axis=1, keepdims=True)
    return ROW / (np.sqrt(mean) + eps) if outside else ROW / np.sqrt(mean + eps)


@pytest.mark.parametrize("eps", [1e-5, 1e-6, 1e-8, 1e-3])
@pytest.mark.parametrize("way", ["activation", "reciprocal"])
def test_missing_epsilon(eps: float, way: str) -> None:
    right = check(
        lambda given: rms(given, way=way), 0.0, eps, rms_wanted(eps), "eps-missing", f"with {eps:g} added"
    )
    assert len(right) == 1
    assert "the square root is taken of its argument alone" in right[0].sentence
    assert "(kernel.py:" in right[0].sentence


@pytest.mark.parametrize("way", ["activation", "tile", "power", "reciprocal"])
def test_epsilon_of_another_size(way: str) -> None:
    right = check(
        lambda given: rms(given, way=way),
        *(1e-5, 1e-6, rms_wanted(1e-6), "eps-missing"),
        "an epsilon of 1e-05 is added: with 1e-06 the output matches",
    )
    assert len(right) == 1


@pytest.mark.parametrize("way", ["outside", "outside tile"])
def test_epsilon_outside_the_root(way: str) -> None:
    check(
        lambda given: rms(1e-4, way=given),
        *(way, "activation", rms_wanted(1e-4), "eps-outside-root"),
        "0.0001 is added to the square root: added before it the output matches",
    )


@pytest.mark.parametrize("way", ["activation", "tile", "power", "reciprocal"])
def test_epsilon_inside_that_is_meant_outside(way: str) -> None:
    check(
        lambda given: rms(1e-4, way=given),
        *(way, "outside", rms_wanted(1e-4, outside=True), "eps-outside-root"),
        "0.0001 is added before the square root: added to",
    )


@pytest.mark.parametrize(("defect", "honest"), [(N - 1, N), (N, N - 1)])
def test_divisor_of_a_variance(defect: int, honest: int) -> None:
    wanted = ROW / np.sqrt(np.square(ROW).sum(axis=1, keepdims=True) / honest + 1e-5)
    right = check(
        lambda given: rms(1e-5, factor=1 / given),
        *(defect, honest, wanted, "variance-divisor"),
        f"a sum is divided by {defect}: divided by {honest} the output matches",
    )
    assert len(right) == 1


def test_mean_over_the_wrong_count() -> None:
    check(
        lambda given: rms(1e-5, factor=1 / given),
        *(P, N, rms_wanted(1e-5), "variance-divisor"),
        f"a sum is divided by {P}: divided by {N} the output matches",
    )


def test_variance_of_bn_aggr() -> None:
    def build(ddof: int) -> Kernel:
        k = Kernel()
        x, held, both = k.load(X), k.sbuf(P, 6), k.sbuf(P, 2)
        k.call("bn_stats", dst=held, data=x)
        k.call("bn_aggr", dst=both, data=held)
        scale = N / (N - ddof)
        k.call("activation", dst=both, op="copy", data=both, scale=scale) if ddof else None
        k.store(both[:, 1:2])
        return k

    wanted = ROW.var(axis=1, ddof=1, keepdims=True)
    right = check(build, 0, 1, wanted, "variance-divisor", f"bn_aggr divides the variance by {N}")
    assert f"divided by {N - 1}" in right[0].sentence


# activation functions

Y = np.linspace(-5, 5, P * N).reshape(P, N).astype(np.float32)
WIDE = Y.astype(np.float64)
ROOT = math.sqrt(2 / math.pi)
GELU = {
    "gelu": WIDE * special.ndtr(WIDE),
    "gelu_apprx_tanh": 0.5 * WIDE * (1 + np.tanh(ROOT * (WIDE + 0.044715 * WIDE**3))),
    "gelu_apprx_sigmoid": WIDE / (1 + np.exp(-1.702 * WIDE)),
    "silu": WIDE / (1 + np.exp(-WIDE)),
}


def activated(op: str, scale: float = 1.0) -> Kernel:
    k = Kernel()
    y = k.load(Y)
    k.call("activation", dst=y, op=op, data=y, scale=scale)
    k.store(y)
    return k


@pytest.mark.parametrize("honest", GELU)
@pytest.mark.parametrize("defect", GELU)
def test_gelu_of_another_form(defect: str, honest: str) -> None:
    if defect != honest:
        right = check(
            *(activated, defect, honest, GELU[honest], "gelu-form"),
            f"the activation function is {defect}: with {honest} the output matches",
        )
        assert len(right) == 1


@pytest.mark.parametrize(
    ("defect", "honest", "wanted"),
    [
        ("relu", "softplus", np.log1p(np.exp(WIDE))),
        ("softplus", "relu", np.maximum(WIDE, 0)),
        ("sigmoid", "tanh", np.tanh(WIDE)),
        ("relu", "gelu", GELU["gelu"]),
        ("gelu", "relu", np.maximum(WIDE, 0)),
        ("mish", "silu", GELU["silu"]),
    ],
)
def test_functions_taken_for_one_another(defect: str, honest: str, wanted: Array) -> None:
    check(activated, defect, honest, wanted, "activation-function", f"with {honest} the output matches")


def by_hand(form: str) -> Kernel:
    """gelu of one form, written out."""
    k = Kernel()
    y, u, t = k.load(Y), k.sbuf(P, N), k.sbuf(P, N)
    if form == "gelu_apprx_tanh":
        k.call("tensor_tensor", dst=u, data1=y, data2=y, op="multiply")
        k.call("tensor_scalar", dst=u, data=u, op0="multiply", operand0=0.044715, op1="add", operand1=1.0)
        k.call("tensor_tensor", dst=u, data1=u, data2=y, op="multiply")
        k.call("activation", dst=t, op="tanh", data=u, scale=ROOT)
    elif form == "gelu":
        k.call("activation", dst=t, op="erf", data=y, scale=math.sqrt(0.5))
    else:
        slope = 1.702 if form == "gelu_apprx_sigmoid" else 1.0
        k.call("activation", dst=t, op="sigmoid", data=y, scale=slope)
        k.call("tensor_tensor", dst=t, data1=t, data2=y, op="multiply")
        k.store(t)
        return k
    k.call("tensor_scalar", dst=t, data=t, op0="add", operand0=1.0, op1="multiply", operand1=0.5)
    k.call("tensor_tensor", dst=t, data1=t, data2=y, op="multiply")
    k.store(t)
    return k


@pytest.mark.parametrize("honest", GELU)
@pytest.mark.parametrize("defect", GELU)
def test_gelu_by_hand(defect: str, honest: str) -> None:
    """Every form is recognised at its function and becomes every other; silu is only ever written as a sigmoid."""
    if defect == honest or (honest == "silu" and defect != "gelu_apprx_sigmoid"):
        return
    bad = by_hand(defect)
    assert not same(result(bad.program(), bad.arguments), GELU[honest])
    every, right = found(by_hand(defect), GELU[honest])
    assert right, [repair.sentence for repair in every]
    assert right[0].cause == "gelu-form"
    assert not unchanged(by_hand(honest), GELU[honest])


def test_constant_typed_wrong() -> None:
    def build(slope: float) -> Kernel:
        k = Kernel()
        y, t = k.load(Y), k.sbuf(P, N)
        k.call("activation", dst=t, op="sigmoid", data=y, scale=slope)
        k.call("tensor_tensor", dst=t, data1=t, data2=y, op="multiply")
        k.store(t)
        return k

    wanted = GELU["gelu_apprx_sigmoid"]
    bad = found(build(1.7), wanted)[1]
    assert [repair.cause for repair in bad] == ["gelu-form"]
    assert "1.7 is near 1.702" in bad[0].sentence
    assert not unchanged(build(1.702), wanted)


# factors

Q, K = drawn(4, P, seed=1), drawn(4, N, seed=2)
SCORES = Q.astype(np.float64).T @ K.astype(np.float64)


def scores(kernel: Kernel) -> View:
    product = kernel.psum(P, N)
    kernel.matmul(product, kernel.load(Q), kernel.load(K))
    return product


def evacuated(op: str, number: float) -> Kernel:
    k = Kernel()
    s = k.sbuf(P, N)
    k.call("tensor_scalar", dst=s, data=scores(k), op0=op, operand0=number)
    k.store(s)
    return k


def test_one_added_where_it_is_meant_to_multiply() -> None:
    """Case R18: a repair that is suspected, and comes first."""
    every, right = found(evacuated("add", 1.0), SCORES)
    assert every[0] is right[0]
    assert right[0].cause == "factor"
    assert right[0].sentence == "1 is added: multiplied with instead the output matches (kernel.py:10)"
    assert not unchanged(evacuated("multiply", 1.0), SCORES)


def test_one_multiplied_with_where_it_is_meant_to_be_added() -> None:
    check(
        lambda given: evacuated(*given),
        *(("multiply", 1.0), ("add", 1.0), SCORES + 1, "factor"),
        "1 is multiplied with: added instead",
    )


@pytest.mark.parametrize(
    ("defect", "honest", "said"),
    [
        (0.3, 1.0, "is not needed"),
        (0.3, 0.09, "is applied once where twice is meant"),
        (0.25, 4.0, "is meant inverted"),
        (0.25, 0.5, "is meant as its root"),
        (0.3, -0.3, "has the wrong sign"),
        (P**-0.5, N**-0.5, f"the factor is 1/sqrt({P}): with 1/sqrt({N})"),
    ],
)
def test_factor(defect: float, honest: float, said: str) -> None:
    build = lambda given: evacuated("multiply", given)  # noqa: E731
    right = found(build(defect), SCORES * honest)[1]
    assert right
    assert said in right[0].sentence
    assert {repair.cause for repair in right} <= {"factor", "variance-divisor"}
    assert not unchanged(build(honest), SCORES * honest)


@pytest.mark.parametrize(("factor", "said"), [(4**-0.5, "1/sqrt(4)"), (1 / 4, "1/4"), (2.0, "2")])
def test_missing_factor(factor: float, said: str) -> None:
    """The contracted dimension is 4."""
    right = check(
        lambda given: evacuated("multiply", given),
        *(1.0, factor, SCORES * factor, "factor"),
        f"lacks a factor: times {said} the output matches",
    )
    assert any("the matmul's result" in repair.sentence or said == "2" for repair in right)


def test_sum_for_a_mean() -> None:
    def build(factor: float) -> Kernel:
        k = Kernel()
        x, total = k.load(X), column(k)
        k.call("tensor_reduce", dst=total, op="add", data=x, axis=1, negate=False, keepdims=True)
        k.call("activation", dst=total, op="copy", data=total, scale=factor)
        k.store(total)
        return k

    wanted = ROW.mean(axis=1, keepdims=True)
    right = found(build(1.0), wanted)[1]
    assert f"the sum lacks a factor: times 1/{N} the output matches" in right[0].sentence
    assert not unchanged(build(1 / N), wanted)


def test_lines_that_are_alike_are_repaired_together() -> None:
    """Two sums of squares each want an epsilon: only the repair of both lines is right."""

    def build(eps: float) -> Kernel:
        k = Kernel()
        out = k.sbuf(P, 1)
        roots = []
        for seed in (3, 4):
            x, total, root = k.load(drawn(P, N, seed=seed) * np.float32(0.01)), column(k), column(k)
            k.call("activation", dst=x, op="square", data=x, scale=1.0, reduce_op="add", reduce_res=total)
            k.call("activation", dst=root, op="rsqrt", data=total, scale=1.0, bias=eps)
            roots.append(root)
        k.call("tensor_tensor", dst=out, data1=roots[0], data2=roots[1], op="add")
        k.store(out)
        return k

    sums = [
        np.square((drawn(P, N, seed=seed) * np.float32(0.01)).astype(np.float64)).sum(1) for seed in (3, 4)
    ]
    wanted = sum(1 / np.sqrt(each + 1e-6) for each in sums)[:, None]
    right = check(build, 0.0, 1e-6, wanted, "eps-missing", "with 1e-06 added")
    assert len(right) == 1
    assert right[0].sentence.count("kernel.py:") == 2


# masks

S = drawn(P, P, seed=5) * np.float32(3)
KEEP = np.tril(np.ones((P, P), bool))


def softmax(values: Array) -> Array:
    shifted = np.exp(values - values.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


def masked(keep: Array) -> Array:
    return softmax(np.where(keep, S.astype(np.float64), -np.inf))


def causal(
    fill: float = -1e30,
    compare: str = "greater_equal",
    offset: int = 0,
    pattern: int = -1,
    multiplier: int = 1,
    guard: bool = False,
    shift: str = "bias",
) -> Kernel:
    """softmax of the scores that affine_select keeps: partition p sees column c where p - c + offset compares."""
    k = Kernel()
    s, m, total = k.load(S), column(k), column(k)
    where = {
        "pattern": [[pattern, P]],
        "channel_multiplier": multiplier,
        "cmp_op": compare,
        "offset": offset,
    }
    k.call("affine_select", dst=s, on_true_tile=s, on_false_value=fill, **where)
    if shift == "bias":
        k.call("tensor_reduce", dst=m, op="maximum", data=s, axis=1, negate=True, keepdims=True)
        k.call("activation", dst=s, op="exp", data=s, scale=1.0, bias=m)
    else:
        k.call("tensor_reduce", dst=m, op="maximum", data=s, axis=1, negate=False, keepdims=True)
        k.call("tensor_scalar", dst=s, data=s, op0="subtract", operand0=m)
        k.call("activation", dst=s, op="exp", data=s, scale=1.0)
    if guard:
        k.call("affine_select", dst=s, on_true_tile=s, on_false_value=0.0, **where)
    k.call("tensor_reduce", dst=total, op="add", data=s, axis=1, negate=False, keepdims=True)
    if guard:
        k.call("tensor_scalar", dst=total, data=total, op0="maximum", operand0=1e-30)
    k.call("reciprocal", dst=total, data=total)
    k.call("tensor_scalar", dst=s, data=s, op0="multiply", operand0=total)
    k.store(s)
    return k


@pytest.mark.parametrize("fill", [-5.0, -1.0, 0.0])
def test_fill_that_is_too_small(fill: float) -> None:
    check(
        *(causal, fill, -1e30, masked(KEEP), "mask-too-small"),
        f"masked elements get {fill:g}: with -1e+30 the output matches",
        SHIFT,
    )


@pytest.mark.parametrize(
    ("defect", "honest", "keep", "said"),
    [
        ("greater_equal", "greater", np.tril(KEEP, -1), "compares with greater_equal: with greater"),
        ("greater", "greater_equal", KEEP, "compares with greater: with greater_equal"),
    ],
)
def test_edge_that_is_off_by_one(defect: str, honest: str, keep: Array, said: str) -> None:
    """Row 0 of the stricter mask is empty: the guarded kernel gives zeros there."""
    wanted = np.zeros((P, P))
    rows = keep.any(axis=1)
    wanted[rows] = softmax(np.where(keep, S, -np.inf)[rows].astype(np.float64))
    build = lambda given: causal(compare=given, guard=True)  # noqa: E731
    right = found(build(defect), wanted)[1]
    assert {repair.cause for repair in right} == {"mask-off-by-one"}
    assert said in right[0].sentence
    # the guard masks again what the first mask lets through
    assert unchanged(build(honest), wanted) <= SHIFT | {"mask-off-by-one"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"offset": 1}, "one less, and the output matches"),
        ({"compare": "less"}, "with the mask inverted the output matches"),
        ({"pattern": 1, "multiplier": -1}, "with it turned over the output matches"),
    ],
)
def test_mask_of_other_elements(given: dict[str, Any], said: str) -> None:
    check(
        lambda settings: causal(**settings),
        *(given, {}, masked(KEEP), "mask-off-by-one"),
        said if "offset" not in given else "greater_equal: with greater",
        SHIFT,
    )


@pytest.mark.parametrize("fill", [float("-inf"), -3e38, -1e30, -30000.0])
@pytest.mark.parametrize("shift", ["bias", "subtract"])
def test_row_that_is_masked_whole(fill: float, shift: str) -> None:
    """Case R10: row 0 of a strict causal mask sees nothing and is to give zeros."""
    wanted = np.zeros((P, P))
    keep = np.tril(KEEP, -1)
    wanted[1:] = softmax(np.where(keep, S, -np.inf)[1:].astype(np.float64))
    bad = causal(fill=fill, compare="greater", shift=shift)
    assert not same(result(bad.program(), bad.arguments), wanted)
    right = found(bad, wanted)[1]
    assert [repair.cause for repair in right] == ["mask-fully-masked"]
    assert right[0].sentence.startswith("a row whose elements are all masked gives")
    good = causal(fill=-3e38, compare="greater", guard=True)
    assert same(result(good.program(), good.arguments), wanted)


def test_row_that_is_masked_whole_and_is_to_give_its_mean() -> None:
    wanted = np.full((P, P), 1 / P)
    keep = np.tril(KEEP, -1)
    wanted[1:] = softmax(np.where(keep, S, -np.inf)[1:].astype(np.float64))
    right = found(causal(fill=-np.inf, compare="greater"), wanted)[1]
    assert [repair.cause for repair in right] == ["mask-fully-masked"]
    assert "with the mean of the row" in right[0].sentence


def test_mask_that_is_added() -> None:
    """(mask - 1) * 20, where a masked element is to get no weight."""

    def build(weight: float) -> Kernel:
        k = Kernel()
        s, mask, m, total = k.load(S), k.load(KEEP.astype(np.float32)), column(k), column(k)
        k.call(
            "tensor_scalar",
            dst=mask,
            data=mask,
            op0="multiply",
            operand0=weight,
            op1="add",
            operand1=-weight,
        )
        k.call("tensor_tensor", dst=s, data1=s, data2=mask, op="add")
        k.call("tensor_reduce", dst=m, op="maximum", data=s, axis=1, negate=True, keepdims=True)
        k.call("activation", dst=s, op="exp", data=s, scale=1.0, bias=m, reduce_op="add", reduce_res=total)
        k.call("reciprocal", dst=total, data=total)
        k.call("tensor_scalar", dst=s, data=s, op0="multiply", operand0=total)
        k.store(s)
        return k

    right = found(build(10.0), masked(KEEP))[1]
    assert right[0].cause == "mask-too-small"
    assert right[0].sentence.startswith("a mask weighs 10: with 1e+30 in its place the output matches")


@pytest.mark.parametrize(
    ("defect", "honest"), [("less", "less_equal"), ("less_equal", "less"), ("greater", "less")]
)
def test_comparison_with_an_iota(defect: str, honest: str) -> None:
    """Columns up to, or below, the length of a row keep their scores; the others become zero."""
    lengths = np.arange(P, dtype=np.float32)[:, None]

    def build(compare: str) -> Kernel:
        k = Kernel()
        s, columns, length = k.load(S), k.sbuf(P, P), k.load(lengths)
        k.call("iota", dst=columns, pattern=[[1, P]], offset=0, channel_multiplier=0)
        k.call("tensor_scalar", dst=columns, data=columns, op0=compare, operand0=length)
        k.call("tensor_tensor", dst=s, data1=s, data2=columns, op="multiply")
        k.store(s)
        return k

    kept = {"less": np.arange(P) < lengths, "less_equal": np.arange(P) <= lengths}[honest]
    wanted = np.where(kept, S.astype(np.float64), 0.0)
    check(build, defect, honest, wanted, "mask-off-by-one", "the output matches")


@pytest.mark.parametrize(("defect", "honest", "said"), [(3, 2, "one less"), (2, 3, "one more")])
def test_bounds_of_range_select(defect: int, honest: int, said: str) -> None:
    def build(bound: int) -> Kernel:
        k = Kernel()
        s, low, high, out = k.load(S), column(k), column(k), k.sbuf(P, P)
        k.call("memset", dst=low, value=1.0)
        k.call("memset", dst=high, value=float(bound))
        fields = {"comp_op0": "greater_equal", "comp_op1": "less", "reduce_cmd": "reset_reduce"}
        k.call("range_select", dst=out, on_true_tile=s, bound0=low, bound1=high, **fields, range_start=0)
        k.call("activation", dst=out, op="exp", data=out, scale=1.0)
        k.store(out)
        return k

    kept = (np.arange(P) >= 1) & (np.arange(P) < honest)
    wanted = np.where(kept, np.exp(S.astype(np.float64)), 0.0)
    right = found(build(defect), wanted)[1]
    assert right[0].cause == "mask-off-by-one"
    assert any(said in repair.sentence or "less_equal" in repair.sentence for repair in right)
    assert not unchanged(build(honest), wanted)


# order, sign, operator

A, B = drawn(P, N, seed=6), np.abs(drawn(P, N, seed=7)) + np.float32(0.5)
BIAS = drawn(P, 1, seed=8)


def paired(op: str, first: Array = A, second: Array = B) -> Kernel:
    k = Kernel()
    a, b = k.load(first), k.load(second)
    k.call("tensor_tensor", dst=a, data1=a, data2=b, op=op)
    k.store(a)
    return k


def test_difference_the_other_way_round() -> None:
    wanted = B.astype(np.float64) - A
    right = found(paired("subtract"), wanted)[1]
    assert "operand-order" in {repair.cause for repair in right}
    assert not unchanged(paired("subtract", B, A), wanted)


@pytest.mark.parametrize(("op", "turned"), [("subtract", False), ("divide", True)])
def test_number_and_tile_the_other_way_round(op: str, turned: bool) -> None:
    def build(reverse: bool) -> Kernel:
        k = Kernel(nki="0.1")
        b, bias = k.load(B), k.load(BIAS)
        k.call("tensor_scalar", dst=b, data=b, op0=op, operand0=bias, reverse0=reverse)
        k.store(b)
        return k

    sides = (BIAS.astype(np.float64), B.astype(np.float64))
    left, right = sides if turned else sides[::-1]
    wanted = left - right if op == "subtract" else left / right
    causes = {repair.cause for repair in found(build(not turned), wanted)[1]}
    assert "operand-order" in causes
    assert causes <= {"operand-order", "factor"}
    assert not unchanged(build(turned), wanted)


@pytest.mark.parametrize(
    ("defect", "honest", "wanted"),
    [
        ("maximum", "minimum", np.minimum(A, B)),
        ("minimum", "maximum", np.maximum(A, B)),
        ("add", "subtract", A.astype(np.float64) - B),
        ("subtract", "add", A.astype(np.float64) + B),
        ("add", "multiply", A.astype(np.float64) * B),
        ("multiply", "add", A.astype(np.float64) + B),
    ],
)
def test_operator_taken_for_another(defect: str, honest: str, wanted: Array) -> None:
    check(paired, defect, honest, wanted.astype(np.float64), "operator", f"with {honest} the output matches")


@pytest.mark.parametrize(("defect", "honest"), [(False, True), (True, False)])
def test_sign_of_a_reduction(defect: bool, honest: bool) -> None:
    def build(negate: bool) -> Kernel:
        k = Kernel()
        x, m = k.load(X), column(k)
        k.call("tensor_reduce", dst=m, op="maximum", data=x, axis=1, negate=negate, keepdims=True)
        k.call("activation", dst=x, op="exp", data=x, scale=1.0, bias=m)
        k.store(x)
        return k

    largest = ROW.max(axis=1, keepdims=True)
    wanted = np.exp(ROW - largest) if honest else np.exp(ROW + largest)
    check(build, defect, honest, wanted, "operator", "the output matches", GUARD)


# biases


def test_bias_with_a_column_for_each_element() -> None:
    """Case R14: the engine takes one element a partition, where each column has its own."""
    row = drawn(1, N, seed=9)

    def build(elementwise: bool) -> Kernel:
        k = Kernel()
        a, b = k.load(A), k.load(np.repeat(row, P, axis=0))
        if elementwise:
            k.call("tensor_tensor", dst=a, data1=a, data2=b, op="add")
            k.call("activation", dst=a, op="relu", data=a, scale=1.0)
        else:
            k.call("activation", dst=a, op="relu", data=a, scale=1.0, bias=b)
        k.store(a)
        return k

    wanted = np.maximum(A.astype(np.float64) + row, 0)
    every, right = found(build(False), wanted)
    assert every[0] is right[0]
    assert [repair.cause for repair in right] == ["bias-axis"]
    assert f"bias of activation has {N} elements a partition where one is taken" in right[0].sentence
    assert not unchanged(build(True), wanted)


@pytest.mark.parametrize("opcode", ["activation", "tensor_scalar"])
def test_bias_by_row_where_columns_are_meant(opcode: str) -> None:
    k = Kernel()
    s, bias = k.load(S), k.load(BIAS)
    if opcode == "activation":
        k.call("activation", dst=s, op="tanh", data=s, scale=0.5, bias=bias)
    else:
        k.call("tensor_scalar", dst=s, data=s, op0="multiply", operand0=0.5, op1="add", operand1=bias)
        k.call("activation", dst=s, op="tanh", data=s, scale=1.0)
    k.store(s)
    right = found(k, np.tanh(S.astype(np.float64) * 0.5 + BIAS.T))[1]
    assert [repair.cause for repair in right] == ["bias-axis"]
    assert "goes by row: applied by column the output matches" in right[0].sentence


# all of them


def test_repairs_are_made_one_at_a_time() -> None:
    flow = Dataflow.of(causal().program(), ROWS)
    assert len(list(islice(algebra.repairs(flow), 3))) == 3


def test_repairs_of_a_long_program_are_bounded() -> None:
    k = Kernel()
    x, root = k.load(X), column(k)
    for step in range(60):
        k.call("tensor_scalar", dst=x, data=x, op0="multiply", operand0=0.5 + step, op1="add", operand1=1e-5)
        k.call("activation", dst=root, op="rsqrt", data=x[:, 0:1], scale=1.0)
    k.store(x)
    assert len(list(algebra.repairs(Dataflow.of(k.program(), ROWS)))) <= algebra.LIMIT


def test_what_an_operand_holds_is_given_back() -> None:
    """The root's argument is read again afterwards: the repair adds to what the root sees only."""

    def build(eps: float) -> Kernel:
        k = Kernel()
        x, total, root = k.load(X), column(k), column(k)
        k.call("activation", dst=x, op="square", data=x, scale=1.0, reduce_op="add", reduce_res=total)
        k.call("activation", dst=root, op="rsqrt", data=total, scale=1.0, bias=eps)
        k.call("tensor_tensor", dst=root, data1=root, data2=total, op="multiply")
        k.store(root)
        return k

    total = np.square(ROW).sum(axis=1, keepdims=True)
    check(build, 0.0, 1e-5, total / np.sqrt(total + 1e-5), "eps-missing", "with 1e-05 added")


def test_instructions_of_one_line_keep_their_own_numbers() -> None:
    """Two tiles of a causal mask, of one line with an offset each: both edges move together."""

    def build(compare: str) -> Kernel:
        k = Kernel()
        s = k.load(S)
        line = k.line
        for half in (0, 1):
            k.line = line
            tile = s[:, half * P // 2 : (half + 1) * P // 2]
            k.call(
                "affine_select",
                dst=tile,
                pattern=[[-1, P // 2]],
                channel_multiplier=1,
                on_true_tile=tile,
                on_false_value=0.5,
                cmp_op=compare,
                offset=-half * P // 2,
            )
        k.store(s)
        return k

    wanted = np.where(KEEP, S.astype(np.float64), 0.5)
    right = check(build, "greater", "greater_equal", wanted, "mask-off-by-one", "with greater_equal")
    assert right[0].sentence.count("kernel.py:") == 1


def test_factor_in_a_loop_of_the_device() -> None:
    """An instruction that runs three times is repaired in each pass."""

    def build(factor: float) -> Kernel:
        k = Kernel()
        x = k.load(X)
        with k.loop(3):
            k.call("tensor_scalar", dst=x, data=x, op0="multiply", operand0=factor)
        k.store(x)
        return k

    check(build, 0.3, 0.09, ROW * 0.09**3, "factor", "is applied once where twice is meant")

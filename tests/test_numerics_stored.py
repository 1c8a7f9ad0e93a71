"""Roundings of stored intermediates: what they explain, what they do not, and what is left of the limits then."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from execute_kit import Kernel, View
from numpy.typing import NDArray

from nkireview import runs
from nkireview.checks.stored import REPEATED, Stored, stored_roundings
from nkireview.execute import execute
from nkireview.isa.table import ROWS
from nkireview.numerics.limits import Policy, limits_for, table
from nkireview.numerics.stored import Roundings, explains, widened
from nkireview.numerics.verdict import judge
from nkireview.record import Figures, OutputResult, Run, StoredRoundings
from nkireview.requests import from_file
from nkireview.review import review
from nkireview.runner import ForkServer
from nkireview.tracing import Request

Array = NDArray[Any]
BF16, F32, F64 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float32), np.dtype(np.float64)
U = 2.0**-8

KERNELS = '''
import nki
import nki.isa as nisa
import nki.language as nl


def load(x):
    t = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=x)
    return t


def store(t, dtype=nl.bfloat16):
    out = nl.ndarray(t.shape, dtype=dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=t)
    return out


def of(a, b, op, dtype):
    t = nl.ndarray(a.shape, dtype=dtype, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=t, data1=a, data2=b, op=op)
    return t


@nki.jit
def turned(x, y, c, s):
    """One stored intermediate: x c - y s."""
    x, y, c, s = load(x), load(y), load(c), load(s)
    a, b = of(x, c, nl.multiply, nl.bfloat16), of(y, s, nl.multiply, nl.bfloat16)
    return store(of(a, b, nl.subtract, nl.bfloat16))


@nki.jit
def turned_in_fp8(x, y, c, s):
    x, y, c, s = load(x), load(y), load(c), load(s)
    a, b = of(x, c, nl.multiply, nl.float8_e4m3), of(y, s, nl.multiply, nl.float8_e4m3)
    return store(of(a, b, nl.subtract, nl.bfloat16))


@nki.jit
def turned_to_float32(x, y, c, s):
    x, y, c, s = load(x), load(y), load(c), load(s)
    a, b = of(x, c, nl.multiply, nl.bfloat16), of(y, s, nl.multiply, nl.bfloat16)
    return store(of(a, b, nl.subtract, nl.float32), nl.float32)


@nki.jit
def product(x, y, c, s):
    """Five stored intermediates: x y c s x y c, elementwise."""
    x, y, c, s = load(x), load(y), load(c), load(s)
    t = x
    for other in (y, c, s, x, y, c):
        t = of(t, other, nl.multiply, nl.bfloat16)
    return store(t)


@nki.jit
def product_enlarged(x, y, c, s):
    """Three thousandths too large, which the limits that allow for the roundings would let pass."""
    x, y, c, s = load(x), load(y), load(c), load(s)
    t = of(x, y, nl.multiply, nl.float32)
    nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=1.003)
    for other in (c, s, x, y, c):
        t = of(t, other, nl.multiply, nl.bfloat16)
    return store(t)


@nki.jit
def product_without_one(x, y, c, s):
    x, y, c, s = load(x), load(y), load(c), load(s)
    t = x
    for other in (y, c, s, x, y):
        t = of(t, other, nl.multiply, nl.bfloat16)
    return store(t)


def chained(w, x, layers):
    h = load(x)
    for layer in range(layers):
        total = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=total, stationary=load(w[layer]), moving=h)
        h = nl.ndarray(x.shape, dtype=nl.bfloat16, buffer=nl.sbuf)
        nisa.tensor_copy(dst=h, src=total)
    return store(h)


@nki.jit
def matmuls(w, x):
    """One stored intermediate fewer than there are layers."""
    return chained(w, x, w.shape[0])


@nki.jit
def matmuls_without_the_last(w, x):
    return chained(w, x, w.shape[0] - 1)


def attended(q, k, v, scores_in):
    scores = nl.ndarray((128, k.shape[1]), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=scores, stationary=load(q), moving=load(k))
    held = nl.ndarray(scores.shape, dtype=scores_in, buffer=nl.sbuf)
    nisa.tensor_copy(dst=held, src=scores)
    p = nl.ndarray(scores.shape, dtype=nl.bfloat16, buffer=nl.sbuf)
    total = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.activation_reduce(
        dst=p, op=nl.exp, data=held, scale=128**-0.5, reduce_op=nl.add, reduce_res=total
    )
    turned = nl.ndarray((128, 128), dtype=nl.bfloat16, buffer=nl.psum)
    nisa.nc_transpose(dst=turned, data=p)
    weights = nl.ndarray((128, 128), dtype=nl.bfloat16, buffer=nl.sbuf)
    nisa.tensor_copy(dst=weights, src=turned)
    o = nl.ndarray((128, v.shape[1]), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=o, stationary=weights, moving=load(v))
    one = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.reciprocal(dst=one, data=total)
    out = nl.ndarray(o.shape, dtype=nl.bfloat16, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=out, data=o, op0=nl.multiply, operand0=one)
    return store(out)


@nki.jit
def attention(q, k, v):
    """q [D, 128], k [D, S], v [S, N]; one stored intermediate, the probabilities."""
    return attended(q, k, v, nl.float32)


@nki.jit
def attention_with_scores(q, k, v):
    """Two: the scores too."""
    return attended(q, k, v, nl.bfloat16)


@nki.jit
def running(x):
    """x [terms, 128, columns] summed in one bf16 tile."""
    s = nl.ndarray(x.shape[1:], dtype=nl.bfloat16, buffer=nl.sbuf)
    nisa.memset(dst=s, value=0.0)
    for term in range(x.shape[0]):
        nisa.tensor_tensor(dst=s, data1=s, data2=load(x[term]), op=nl.add)
    return store(s)


@nki.jit
def running_in_fresh_tiles(x):
    s = load(x[0])
    for term in range(1, x.shape[0]):
        s = of(s, load(x[term]), nl.add, nl.bfloat16)
    return store(s)


@nki.jit
def running_by_copies(x):
    """Added in float32 and rounded by a copy of its own."""
    s = load(x[0])
    for term in range(1, x.shape[0]):
        wide = of(s, load(x[term]), nl.add, nl.float32)
        s = nl.ndarray(x.shape[1:], dtype=nl.bfloat16, buffer=nl.sbuf)
        nisa.tensor_copy(dst=s, src=wide)
    return store(s)


def turned_inputs(seed=0):
    import ml_dtypes
    import numpy as np
    draw = np.random.default_rng(seed)
    given = draw.standard_normal((4, 128, 1024))
    given[:, :, :32] = draw.uniform(2.6, 2.8, (4, 128, 32))
    return list(given.astype(ml_dtypes.bfloat16))


def product_inputs(seed=0):
    import ml_dtypes
    import numpy as np
    return list(np.random.default_rng(seed).uniform(0.5, 2, (4, 128, 512)).astype(ml_dtypes.bfloat16))


def matmuls_inputs(seed=0, layers=6):
    import ml_dtypes
    import numpy as np
    draw = np.random.default_rng(seed)
    w = draw.standard_normal((layers, 128, 128)) / 128**0.5
    return [item.astype(ml_dtypes.bfloat16) for item in (w, draw.standard_normal((128, 512)))]


def attention_inputs(seed=0):
    import ml_dtypes
    import numpy as np
    draw = np.random.default_rng(seed)
    shapes = ((128, 128), (128, 128), (128, 64))
    return [draw.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in shapes]


def running_inputs(seed=0):
    import ml_dtypes
    import numpy as np
    return [np.random.default_rng(seed).standard_normal((32, 128, 128)).astype(ml_dtypes.bfloat16)]


def turned_ref(x, y, c, s):
    return x * c - y * s


def product_ref(x, y, c, s):
    return x**2 * y**2 * c**2 * s


def matmuls_ref(w, x):
    for layer in w:
        x = layer.T @ x
    return x


def attention_ref(q, k, v):
    import numpy as np
    p = np.exp(q.T @ k / 128**0.5)
    return p / p.sum(-1, keepdims=True) @ v


def running_ref(x):
    return x.sum(axis=0)
'''


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stored") / "kernels.py"
    path.write_text(KERNELS)
    return path


def asked(kernels: Path, kernel: str, family: str, seed: int) -> Request:
    request = from_file(
        kernels,
        kernel=kernel,
        reference=f"{kernels}:{family}_ref",
        inputs=(),
        inputs_from=f"{kernels}:{family}_inputs",
        target="trn2",
        nki="",
        lnc=1,
        seed=seed,
    )
    return replace(request, workloads=tuple(replace(item, hostile=()) for item in request.workloads))


def drawn(server: ForkServer, kernels: Path, kernel: str, family: str, seed: int = 1) -> list[Run]:
    """The runs on inputs as drawn, of several seeds."""
    found = review(asked(kernels, kernel, family, seed), server)
    assert found.status != "not reviewed", found.reason
    return [run for run in found.runs if run.inputs == "as drawn"]


# Whole reviews: honest kernels, and defects beside them.


@pytest.mark.parametrize(
    ("kernel", "family", "count"),
    [
        ("turned", "turned", 1),
        ("product", "product", 5),
        ("matmuls", "matmuls", 5),
        ("attention", "attention", 1),
        ("attention_with_scores", "attention", 2),
    ],
)
def test_honest_intermediates_are_no_fault(
    server: ForkServer, kernels: Path, kernel: str, family: str, count: int
) -> None:
    for seed in (1, 4):
        for run in drawn(server, kernels, kernel, family, seed):
            (output,) = run.outputs
            assert (run.status, output.status) == ("correct", "correct"), output.reason
            if output.stored is not None:
                assert (output.stored.count, output.stored.dtype) == (count, "bfloat16")
                assert output.stored.unrounded_scaled_max < 1e-5
                assert output.stored.limits["rms"] > output.limits["rms"]


@pytest.mark.parametrize(
    ("kernel", "family"), [("turned", "turned"), ("product", "product"), ("matmuls", "matmuls")]
)
def test_they_would_exceed_the_limits_of_a_float32_accumulator(
    server: ForkServer, kernels: Path, kernel: str, family: str
) -> None:
    for run in drawn(server, kernels, kernel, family):
        assert run.outputs[0].stored is not None


@pytest.mark.parametrize(
    ("kernel", "family"),
    [
        ("turned_in_fp8", "turned"),
        ("turned_to_float32", "turned"),
        ("product_enlarged", "product"),
        ("product_without_one", "product"),
        ("matmuls_without_the_last", "matmuls"),
        ("running", "running"),
        ("running_in_fresh_tiles", "running"),
        ("running_by_copies", "running"),
    ],
)
def test_defects_stay_wrong(server: ForkServer, kernels: Path, kernel: str, family: str) -> None:
    for run in drawn(server, kernels, kernel, family):
        assert (run.status, run.outputs[0].stored) == ("wrong", None)


def test_a_tolerance_of_the_task_is_not_widened(server: ForkServer, kernels: Path) -> None:
    own = Policy(rtol=0.0078, atol=0.0117)
    request = replace(asked(kernels, "turned", "turned", 1), policy=lambda _: own)
    assert {run.status for run in review(request, server).runs if run.inputs == "as drawn"} == {"wrong"}


@pytest.mark.parametrize(
    ("kernel", "family", "extra"), [("turned", "turned", 1), ("attention", "attention", 0)]
)
def test_one_more_execution_and_only_where_a_limit_is_exceeded(
    server: ForkServer,
    kernels: Path,
    monkeypatch: pytest.MonkeyPatch,
    kernel: str,
    family: str,
    extra: int,
) -> None:
    made: list[str] = []

    def counted(*given: Any, **named: Any) -> Any:
        made.append(named.get("rounding", "storage"))
        return execute(*given, **named)

    monkeypatch.setattr(runs, "execute", counted)
    found = review(asked(kernels, kernel, family, 1), server)
    exceeded = sum(run.outputs[0].stored is not None for run in found.runs if run.outputs)
    assert made.count("storage") == len(found.runs)
    assert made.count("off") == exceeded if extra else made.count("off") == 0
    assert bool(exceeded) == bool(extra)
    again = review(asked(kernels, kernel, family, 1), server)
    assert again.runs == found.runs


# What the data flow says, counted by hand.


def counted_roundings(kernel: Kernel) -> Stored:
    (found,) = stored_roundings(kernel.program(), kernel.rows)
    return found


def tile(kernel: Kernel, dtype: Any = BF16) -> View:
    return kernel.load(np.ones((128, 8), dtype))


def through(kernel: Kernel, view: View, opcode: str, dtype: str = "bfloat16", **given: Any) -> View:
    made = kernel.sbuf(128, 8, dtype=dtype)
    kernel.call(opcode, dst=made, **({"src": view} if opcode == "tensor_copy" else {"data": view}), **given)
    return made


def twice(kernel: Kernel, view: View, dtype: str = "bfloat16") -> View:
    return through(kernel, view, "tensor_scalar", dtype, op0="multiply", operand0=3.0)


def returned(kernel: Kernel, view: View, dtype: str = "bfloat16") -> Stored:
    out = kernel.hbm(128, 8, dtype=dtype)
    kernel.copy(out, view)
    kernel.output(out)
    return counted_roundings(kernel)


def test_the_rounding_of_the_output_itself_does_not_count() -> None:
    kernel = Kernel()
    assert returned(kernel, twice(kernel, tile(kernel))) == Stored((), "", 0)
    kernel = Kernel()
    assert returned(kernel, twice(kernel, tile(kernel), "float32")) == Stored((), "", 0)


def test_each_rounding_on_the_longest_path_counts() -> None:
    kernel = Kernel()
    view = tile(kernel)
    for _ in range(3):
        view = twice(kernel, view)
    assert returned(kernel, view) == Stored((1, 2), "bfloat16", 0)


def test_wide_tiles_round_nothing() -> None:
    kernel = Kernel()
    view = tile(kernel)
    for _ in range(3):
        view = twice(kernel, view, "float32")
    assert returned(kernel, view).count == 0


def test_moves_and_selections_round_nothing_that_the_tile_holds() -> None:
    kernel = Kernel()
    view = through(kernel, twice(kernel, tile(kernel)), "tensor_copy")
    view = through(kernel, view, "tensor_scalar", op0="maximum", operand0=0.0)
    assert returned(kernel, view).count == 0
    kernel = Kernel()
    view = through(kernel, tile(kernel, F32), "tensor_copy")
    assert returned(kernel, twice(kernel, view)).instructions == (1,)


def test_a_bf16_intermediate_of_a_float32_output_counts() -> None:
    kernel = Kernel()
    view = twice(kernel, twice(kernel, tile(kernel)), "float32")
    assert returned(kernel, view, "float32") == Stored((1,), "bfloat16", 0)


def test_the_coarsest_dtype_is_named() -> None:
    kernel = Kernel()
    view = twice(kernel, twice(kernel, tile(kernel), "float8_e4m3"), "float16")
    assert returned(kernel, twice(kernel, view)).dtype == "float8_e4m3"


def test_an_overwritten_tile_forgets() -> None:
    kernel = Kernel()
    view = twice(kernel, twice(kernel, tile(kernel)))
    kernel.call("memset", dst=view, value=0.0)
    assert returned(kernel, twice(kernel, view)).count == 0


def test_halves_of_a_tile_are_told_apart() -> None:
    kernel = Kernel()
    view, once = kernel.sbuf(128, 16, dtype="bfloat16"), tile(kernel)
    kernel.call("tensor_scalar", dst=view[:, 0:8], data=twice(kernel, once), op0="multiply", operand0=3.0)
    kernel.copy(view[:, 8:16], once)
    assert returned(kernel, twice(kernel, view[:, 8:16])).count == 0
    kernel = Kernel()
    view, once = kernel.sbuf(128, 16, dtype="bfloat16"), tile(kernel)
    kernel.call("tensor_scalar", dst=view[:, 0:8], data=twice(kernel, once), op0="multiply", operand0=3.0)
    assert returned(kernel, twice(kernel, view[:, 0:8])).count == 2


@pytest.mark.parametrize("terms", [1, 3, 5])
def test_a_running_sum_has_its_terms(terms: int) -> None:
    kernel = Kernel()
    total = kernel.sbuf(128, 8, dtype="bfloat16")
    kernel.call("memset", dst=total, value=0.0)
    for _ in range(terms):
        kernel.call("tensor_tensor", dst=total, data1=total, data2=tile(kernel), op="add")
    assert returned(kernel, total).terms == terms


def test_a_factor_does_not_end_a_running_sum_and_a_function_does() -> None:
    for opcode, given, wanted in (
        ("tensor_scalar", {"op0": "multiply", "operand0": 0.5}, 3),
        ("activation", {"op": "exp"}, 1),
    ):
        kernel = Kernel()
        total = tile(kernel)
        for _ in range(3):
            total = through(
                kernel, through(kernel, total, opcode, **given), "tensor_scalar", op0="add", operand0=1.0
            )
        assert returned(kernel, total).terms == wanted


@pytest.mark.parametrize("first", [True, False])
def test_a_matmul_that_carries_a_sum_on_does_not_end_it(first: bool) -> None:
    kernel = Kernel()
    ones, total = kernel.load(np.ones((128, 128), BF16)), tile(kernel)
    for _ in range(5):
        wide = kernel.psum(128, 8)
        for operand in (total, tile(kernel)) if first else (tile(kernel), total):
            kernel.matmul(wide, ones, operand)
        total = through(kernel, wide, "tensor_copy")
    assert returned(kernel, total).terms == 5


def test_layers_of_matmuls_are_no_running_sum() -> None:
    kernel = Kernel()
    ones, held = kernel.load(np.ones((128, 128), BF16)), (tile(kernel), tile(kernel))
    for _ in range(5):
        wide = kernel.psum(128, 8), kernel.psum(128, 8)
        for dst in wide:
            for operand in held:
                kernel.matmul(dst, ones, operand)
        held = through(kernel, wide[0], "tensor_copy"), through(kernel, wide[1], "tensor_copy")
    assert returned(kernel, held[0]).terms == 1


def test_a_loop_on_the_device_is_followed_several_times() -> None:
    kernel = Kernel()
    total = tile(kernel)
    with kernel.loop(64):
        kernel.call("tensor_scalar", dst=total, data=total, op0="add", operand0=1.0)
    assert returned(kernel, total).terms == REPEATED


def test_an_unknown_instruction_lets_nothing_be_concluded() -> None:
    kernel = Kernel()
    view, made = twice(kernel, twice(kernel, tile(kernel))), kernel.sbuf(128, 8, dtype="bfloat16")
    kernel.call("no_such_row", dst=made, src=view)
    found = returned(kernel, made)
    assert not found.known


# The figures.


def stored(seed: int, count: int) -> tuple[Array, Array]:
    """A chain of products with `count` bf16 intermediates, and the same in float64."""
    given = np.random.default_rng(seed).standard_normal((count + 2, 64, 512)).astype(BF16)
    got = given[0].astype(F32)
    for item in given[1:]:
        got = (got * item.astype(F32)).astype(BF16).astype(F32)
    return got.astype(BF16), np.asarray(np.prod(given.astype(F64), axis=0))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("count", [1, 2, 5])
def test_what_independent_roundings_do_is_within(seed: int, count: int) -> None:
    got, ref = stored(seed, count)
    limits = widened(limits_for("bfloat16", 1), ref, Roundings(count, "bfloat16"))
    assert limits is not None and judge(got, ref, limits).passed


@pytest.mark.parametrize("seed", range(3))
def test_a_running_sum_is_beyond_even_without_its_terms(seed: int) -> None:
    terms = np.random.default_rng(seed).standard_normal((64, 64, 512)).astype(BF16)
    total = np.zeros((64, 512), F32)
    for term in terms:
        total = (total + term.astype(F32)).astype(BF16).astype(F32)
    ref = terms.astype(F64).sum(axis=0)
    limits = widened(limits_for("bfloat16", 64), ref, Roundings(1, "bfloat16"))
    assert limits is not None and not judge(total.astype(BF16), ref, limits).passed


def test_the_formula() -> None:
    ref = np.array([[1.0, -1.0, 1.0, -5.0]])
    rms = math.sqrt(7.0)
    base = limits_for("bfloat16", 1)
    limits = widened(base, ref, Roundings(4, "bfloat16"))
    assert limits is not None
    assert limits.atol == pytest.approx(base.atol + 2 * U * 5 / rms)
    assert limits.rms == pytest.approx(math.hypot(base.rms, 0.8 * 2 * U))
    assert (limits.rtol, limits.absolute, limits.spread) == (base.rtol, base.absolute, base.spread)
    finer = widened(base, ref, Roundings(4, "float16"))
    assert finer is not None and finer.atol == pytest.approx(base.atol + 2 * 2.0**-11 * 5 / rms)


def test_rows_count_by_the_least_of_their_peaks_where_rows_are_judged() -> None:
    ref = np.array([[3.0, 4.0, 0.0, 0.0], [100.0, 100.0, 100.0, 100.0], [0.0] * 4])
    base = limits_for("bfloat16", 1, Policy(per_row=True))
    limits = widened(base, ref, Roundings(1, "bfloat16"))
    assert limits is not None and limits.atol == pytest.approx(base.atol + U)


def test_paths_and_peaks_are_bounded() -> None:
    ref = np.zeros((1, 10_000))
    ref[0, 0], ref[0, 1] = 1.0, np.inf
    base, allowed = limits_for("bfloat16", 1), table().stored
    limits = widened(base, ref, Roundings(10_000, "bfloat16"))
    assert limits is not None
    assert limits.atol == pytest.approx(base.atol + math.sqrt(allowed.most) * U * allowed.reach)
    nothing = widened(base, np.zeros((2, 2)), Roundings(1, "bfloat16"))
    assert nothing is not None and nothing.atol == base.atol


@pytest.mark.parametrize(
    ("dtype", "roundings"),
    [
        ("float32", Roundings(1, "bfloat16")),
        ("float16", Roundings(1, "bfloat16")),
        ("bfloat16", Roundings(1, "float8_e4m3")),
        ("bfloat16", Roundings(3, "bfloat16", terms=4)),
        ("int32", Roundings(1, "bfloat16")),
    ],
)
def test_nothing_is_granted(dtype: str, roundings: Roundings) -> None:
    assert widened(limits_for(dtype, 1), np.ones((2, 2)), roundings) is None


@pytest.mark.parametrize(("error", "passed"), [(0.49, True), (0.51, False)])
def test_half_of_a_limit_is_left_without_rounding(error: float, passed: bool) -> None:
    ref = np.ones((64, 64))
    limits = limits_for("bfloat16", 1)
    got = ref.copy()
    got[3, 4] += error * (limits.rtol + limits.atol)
    assert explains(got, ref, limits).passed == passed
    assert explains(ref * (1 + error * limits.rms * (1 + limits.spread / 64)), ref, limits).passed == passed


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Roundings(0, "bfloat16"), "0 roundings: expected at least 1"),
        (
            lambda: Roundings(1, "int8"),
            "unit_roundoff: int8 is no float type and has no relative rounding error: use ulp",
        ),
    ],
)
def test_refusals(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        make()


# The record.

FIGURES = Figures(
    scaled_max=0.03,
    rms_ratio=0.002,
    max_ulps=2.0,
    max_abs=0.03,
    at=(0,),
    got="1.0",
    expected="1.03",
    elements=4,
    nonfinite_mismatches=0,
)


def recorded(status: str, limits: dict[str, float], wider: dict[str, float]) -> OutputResult:
    held = StoredRoundings(
        count=1, dtype="bfloat16", over=1, limits=wider, unrounded_scaled_max=0.0, unrounded_rms_ratio=0.0
    )
    fields: dict[str, Any] = {"name": "out", "dtype": "bfloat16", "shape": (4,), "reason": "too far off"}
    return OutputResult(status=status, figures=FIGURES, limits=limits, stored=held, **fields)


def test_the_record_holds_both_limits() -> None:
    found = recorded("correct", {"atol": 0.01, "rms": 0.001}, {"atol": 0.02, "rms": 0.001})
    assert found.stored is not None and found.stored.limits["atol"] == 0.02


@pytest.mark.parametrize(
    ("status", "wider", "message"),
    [
        ("wrong", {"atol": 0.02}, "an output that is wrong is not allowed any stored roundings"),
        ("correct", {"atol": 0.005}, "the limits that allow for stored roundings are none that are wider"),
        ("correct", {"rms": 0.02}, "the limits that allow for stored roundings are none that are wider"),
    ],
)
def test_a_record_is_bound(status: str, wider: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        recorded(status, {"atol": 0.01}, wider)


def test_the_rows_of_the_table_are_all_that_is_read() -> None:
    assert stored_roundings(Kernel().program(), ROWS) == ()

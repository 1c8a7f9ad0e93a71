"""Each function of the legacy ``nki.isa``: values by its stub, shape, dtype and memory of the result, refusals."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from legacy_stubs import ISA, MEMBERS
from legacy_tiles_kit import Array, Traced, nisa, nl, numbers, result, stored, traced, values

from nkireview.isa.release import LEGACY
from nkireview.isa.table import ROWS
from nkireview.nki.errors import NotYetSupported, Refusal
from nkireview.nki.legacy.signatures import NAMES, SIGNATURES
from nkireview.nki.operators import Operator
from nkireview.program.verify import verify

Kernel = Callable[..., Any]
P, F = 16, 24
BF16 = ml_dtypes.bfloat16
FP32_MIN = float(np.finfo(np.float32).min)


def each(*functions: Callable[..., Any]) -> Kernel:
    """A kernel of several functions of the same loaded tiles."""

    def kernel(*args: Any) -> Any:
        tiles = [nl.load(arg) for arg in args]
        return stored(*(function(*tiles) for function in functions))

    return kernel


def close(found: list[Array], wanted: list[Any], rtol: float = 2e-5, atol: float = 1e-6) -> None:
    """Compare arrays of any dtype with float64 ones of the same shapes."""
    for got, want in zip(found, wanted, strict=True):
        assert got.shape == np.shape(want)
        np.testing.assert_allclose(got.astype(np.float64), want, rtol=rtol, atol=atol)


def refusal(kernel: Kernel, *args: Any) -> str:
    """The sentence that a kernel is refused with."""
    with pytest.raises((Refusal, NotYetSupported)) as caught:
        traced(kernel, *args)
    return str(caught.value)


def shown(kernel: Kernel, *args: Any) -> list[tuple[tuple[int, ...], Any, Any]]:
    """Shape, dtype and memory of what a kernel returns as a list of tiles."""
    found: list[Any] = []

    def outer(*inner: Any) -> Any:
        found.extend((tile.shape, tile.dtype, tile.buffer) for tile in kernel(*map(nl.load, inner)))
        return inner[0]

    traced(outer, *args)
    return found


# the names


def signature(function: Any) -> list[tuple[str, Any, Any]]:
    """Name, kind and default of each parameter; the name of what gathers the rest says nothing."""
    gathering = inspect.Parameter.VAR_KEYWORD
    found = inspect.signature(function).parameters.values()
    return [("" if each.kind is gathering else each.name, each.kind, each.default) for each in found]


@pytest.mark.parametrize("name", sorted(ISA))
def test_every_function_has_the_signature_of_the_stubs(name: str) -> None:
    scope: dict[str, Any] = {"np": np, **{each: getattr(nisa, each) for each in MEMBERS}}
    exec(f"def wanted({ISA[name]}): ...", scope)
    assert signature(getattr(nisa, name)) == signature(scope["wanted"])


@pytest.mark.parametrize("name", MEMBERS)
def test_every_member_is_there(name: str) -> None:
    assert getattr(nisa, name) is not None


def test_what_came_later_is_not_there() -> None:
    for name in ("rng", "set_rng_seed", "nc_n_gather", "dma_compute", "register_alloc", "activate2"):
        with pytest.raises(NotYetSupported):
            getattr(nisa, name)


def test_integers_of_enumerations_are_those_of_the_stubs() -> None:
    engines = {"tensor": 1, "vector": 5, "scalar": 2, "gpsimd": 3, "sync": 6, "unknown": 0}
    assert {name: int(nisa.engine[name].value) for name in engines} == engines
    assert [nisa.reduce_cmd[name].value for name in ("idle", "reset", "reset_reduce", "reduce")] == [
        0,
        1,
        3,
        2,
    ]
    assert [nisa.oob_mode[name].value for name in ("error", "skip")] == [0, 1]
    assert [nisa.nc_version[name].value for name in ("gen2", "gen3")] == [2, 3]
    assert nisa.vector_engine is nisa.engine.vector
    assert nisa.fp32.min == FP32_MIN


@pytest.mark.parametrize("name", sorted(set(ISA) & set(ROWS)))
def test_a_row_has_the_defaults_of_the_stub(name: str) -> None:
    """A call that leaves an argument out means what the stub says."""
    row = {param.name: param.default for param in ROWS[name].parameters(LEGACY)}
    for param in SIGNATURES[name].signature.parameters.values():
        if param.name not in row or param.default is inspect.Parameter.empty:
            continue
        default, found = param.default, row[param.name]
        if name == "range_select" and param.name == "reduce_cmd":
            # every command meant reset_reduce: nki/migration/index.rst:765-775
            assert found is nisa.reduce_cmd.reset_reduce
        elif default is NAMES["np.amax"]:
            assert str(getattr(found, "name", found)) in ("max", "maximum")
        elif default in ((), None):
            assert found in ((), None)
        else:
            assert (found.name if isinstance(found, Operator) else found) == default


# the Scalar and the Vector engine


@pytest.mark.oracle("nisa.activation", "nisa.activation_reduce")
def test_activation() -> None:
    x, bias, scale = numbers(P, F), numbers(P, 1, seed=1), numbers(P, 1, seed=2)

    def kernel(a: Any, b: Any, s: Any) -> Any:
        tile, shift, factor = nl.load(a), nl.load(b), nl.load(s)
        sums, both = (nl.ndarray((P, 1), dtype=nl.float32) for _ in range(2))
        last = nl.ndarray((P, 1), dtype=nl.float32)
        first = nisa.activation(np.exp, tile)
        second = nisa.activation(op=nl.tanh, data=tile, bias=shift, scale=factor, dtype=nl.bfloat16)
        third = nisa.activation_reduce(np.square, tile, reduce_op=np.sum, reduce_res=sums, scale=2.0)
        nisa.activation(
            np.abs, tile, reduce_op=np.add, reduce_cmd=nisa.reduce_cmd.reset_reduce, reduce_res=both
        )
        nisa.activation(np.exp, tile, reduce_op=nl.add, reduce_cmd=nisa.reduce_cmd.reduce, reduce_res=last)
        return stored(first, second, third, sums, both, last)

    u, v, w = (each.astype(np.float64) for each in (x, bias, scale))
    found = values(kernel, x, bias, scale)
    assert [got.dtype for got in found[:3]] == [np.float32, BF16, np.float32]
    total = np.abs(u).sum(axis=1, keepdims=True)
    close(
        [found[0], *found[2:]],
        [
            *(np.exp(u), (2 * u) ** 2, ((2 * u) ** 2).sum(axis=1, keepdims=True)),
            *(total, total + np.exp(u).sum(axis=1, keepdims=True)),
        ],
    )
    close(found[1:2], [np.tanh(u * w + v)], rtol=2.0**-8)


@pytest.mark.oracle(
    "nisa.tensor_scalar", "nisa.tensor_tensor", "nisa.scalar_tensor_tensor", "nisa.reciprocal"
)
def test_vector_instructions() -> None:
    x, y, v = numbers(P, F), numbers(P, F, seed=1), numbers(P, 1, seed=2)
    kernel = each(
        lambda a, b, c: nisa.tensor_scalar(a, np.multiply, 2.0),
        lambda a, b, c: nisa.tensor_scalar(a, np.subtract, c, True, op1=np.maximum, operand1=0.25),
        lambda a, b, c: nisa.tensor_scalar(a, nl.add, 1, dtype=nl.bfloat16, engine=nisa.vector_engine),
        lambda a, b, c: nisa.tensor_scalar(data=a, op0=np.power, operand0=2.0),
        lambda a, b, c: nisa.tensor_scalar(data=a, op0=np.greater, operand0=c, dtype=np.uint8),
        lambda a, b, c: nisa.tensor_tensor(a, b, np.subtract),
        lambda a, b, c: nisa.tensor_tensor(a, b, op=nl.maximum, dtype=nl.bfloat16),
        lambda a, b, c: nisa.scalar_tensor_tensor(
            data=a, op0=np.multiply, operand0=c, op1=np.add, operand1=b
        ),
        lambda a, b, c: nisa.scalar_tensor_tensor(
            data=a, op0=np.subtract, operand0=3.0, op1=np.subtract, operand1=b, reverse0=True, reverse1=True
        ),
        lambda a, b, c: nisa.reciprocal(data=a),
        lambda a, b, c: nisa.tensor_copy(a, dtype=nl.bfloat16, engine=nisa.scalar_engine),
    )
    u, w, c = (each.astype(np.float64) for each in (x, y, v))
    found = values(kernel, x, y, v)
    wanted = [
        *(u * 2, np.maximum(c - u, 0.25), u + 1, u**2, u > c, u - w, np.maximum(u, w)),
        *(u * c + w, w - (3 - u), 1 / u, u),
    ]
    for at, (got, want) in enumerate(zip(found, wanted, strict=True)):
        assert got.dtype == {2: BF16, 4: np.uint8, 6: BF16, 10: BF16}.get(at, np.float32)
        close([got], [want], rtol=2.0**-8 if got.dtype == BF16 else 2e-5)


@pytest.mark.oracle("nisa.tensor_tensor", "nisa.tensor_scalar")
@pytest.mark.parametrize("name", ["divide", "mod", "fmod", "logical_not"])
def test_operators_of_this_generation_alone(name: str) -> None:
    x, y = numbers(P, F), np.abs(numbers(P, F, seed=1)) + 0.5
    op, function = getattr(nl, name), getattr(np, name)
    u, v = x.astype(np.float64), y.astype(np.float64)
    if name == "logical_not":
        close(values(each(lambda a, b: nisa.tensor_scalar(a, op, 0.0)), x, y), [function(u)])
        return
    numpy = {"mod": np.remainder, "divide": np.true_divide, "fmod": np.fmod}[name]
    kernel = each(
        lambda a, b: nisa.tensor_tensor(a, b, op),
        lambda a, b: nisa.tensor_tensor(a, b, numpy),
        lambda a, b: nisa.tensor_scalar(a, op, 0.75),
    )
    close(values(kernel, x, y), [function(u, v), function(u, v), function(u, 0.75)])


REDUCTIONS: list[tuple[Any, Callable[..., Array]]] = [
    (np.add, np.sum),
    (np.sum, np.sum),
    (np.max, np.max),
    (np.amax, np.max),
    (np.maximum, np.max),
    (np.min, np.min),
    (np.amin, np.min),
    (np.multiply, np.prod),
    (np.prod, np.prod),
    ("max", np.max),
    ("add", np.sum),
    ("sum", np.sum),
]


@pytest.mark.oracle("nisa.tensor_reduce")
@pytest.mark.parametrize(("op", "function"), REDUCTIONS)
def test_tensor_reduce(op: Any, function: Callable[..., Array]) -> None:
    x = numbers(P, 4, 6)
    found = getattr(nl, op) if isinstance(op, str) else op
    kernel = each(
        lambda a: nisa.tensor_reduce(found, a, axis=[1, 2]),
        lambda a: nisa.tensor_reduce(found, a, (-1,), keepdims=True),
        lambda a: nisa.tensor_reduce(found, a, 2, negate=True, dtype=nl.bfloat16),
    )
    u = x.astype(np.float64)
    whole, kept, negated = values(kernel, x)
    close([whole, kept], [function(u, axis=(1, 2))[:, None], function(u, axis=2, keepdims=True)], atol=1e-5)
    assert negated.dtype == BF16
    close([negated], [-function(u, axis=2)], rtol=2.0**-8, atol=1e-3)


@pytest.mark.oracle("nisa.tensor_scalar_reduce", "nisa.tensor_tensor_scan", "nisa.tensor_scalar_cumulative")
def test_reductions_beside_a_result_and_scans() -> None:
    x, y, first = numbers(P, F), numbers(P, F, seed=1), numbers(P, 1, seed=2)

    def kernel(a: Any, b: Any, c: Any) -> Any:
        left, right, initial = nl.load(a), nl.load(b), nl.load(c)
        sums = nl.ndarray((P, 1), dtype=nl.float32)
        shifted = nisa.tensor_scalar_reduce(
            data=left, op0=np.add, operand0=1.5, reduce_op=np.max, reduce_res=sums
        )
        scan = nisa.tensor_tensor_scan(left, right, initial, np.multiply, np.add)
        turned = nisa.tensor_tensor_scan(
            left, right, initial=0.5, op0=np.subtract, op1=np.maximum, reverse0=True, dtype=nl.float32
        )
        running = nl.ndarray((P, F), dtype=nl.float32)
        nisa.tensor_scalar_cumulative(
            src=left,
            dst=running,
            op0=np.multiply,
            op1=np.add,
            imm0=2.0,
            imm1=0.0,
            reduce_cmd=nisa.reduce_cmd.reset_reduce,
        )
        return stored(shifted, sums, scan, turned, running)

    u, v = x.astype(np.float64), y.astype(np.float64)
    scan, turned = np.empty_like(u), np.empty_like(u)
    before, other = first[:, 0].astype(np.float64), np.full(P, 0.5)
    for at in range(F):
        before = scan[:, at] = u[:, at] * before + v[:, at]
        # reverse0: data0 is the right operand
        other = turned[:, at] = np.maximum(other - u[:, at], v[:, at])
    wanted = [u + 1.5, (u + 1.5).max(axis=1, keepdims=True), scan, turned, np.cumsum(2 * u, axis=1)]
    close(values(kernel, x, y, first), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.oracle("nisa.bn_stats", "nisa.bn_aggr")
def test_statistics() -> None:
    x = numbers(P, 40)
    kernel = each(
        lambda a: nisa.bn_stats(a),
        lambda a: nisa.bn_aggr(nisa.bn_stats(a)),
        lambda a: nisa.bn_stats(a, dtype=np.float16),
    )
    u = x.astype(np.float64)
    parts = [
        part
        for half in (u[:, ::2], u[:, 1::2])
        for part in (np.full(P, half.shape[1]), half.mean(axis=1), half.var(axis=1) * half.shape[1])
    ]
    stats, both, half = values(kernel, x)
    close(
        [stats, both],
        [np.stack(parts, axis=1), np.stack([u.mean(axis=1), u.var(axis=1)], axis=1)],
        rtol=1e-4,
        atol=1e-5,
    )
    assert half.dtype == np.float16


# choices


@pytest.mark.oracle("nisa.tensor_copy_predicated", "nisa.select_reduce", "nisa.range_select")
def test_predicates() -> None:
    x, y, mask = (
        numbers(P, F),
        numbers(P, F, seed=1),
        np.random.default_rng(2).integers(0, 2, (P, F), np.uint8),
    )
    low, high = np.full((P, 1), 3, np.float32), np.arange(P, dtype=np.float32)[:, None] + 6

    def kernel(a: Any, b: Any, m: Any, first: Any, last: Any) -> Any:
        left, right, predicate = nl.load(a), nl.load(b), nl.load(m)
        kept, turned = nl.copy(right), nl.copy(right)
        nisa.tensor_copy_predicated(src=left, dst=kept, predicate=predicate)
        nisa.tensor_copy_predicated(src=4.0, dst=turned, predicate=left > 0.0, reverse_pred=True)
        chosen, sums = nl.ndarray((P, F), dtype=nl.float32), nl.ndarray((P, 1), dtype=nl.float32)
        nisa.select_reduce(
            dst=chosen,
            predicate=predicate,
            on_true=left,
            on_false=-9.0,
            reduce_res=sums,
            reduce_cmd=nisa.reduce_cmd.reset_reduce,
            reduce_op=np.max,
        )
        most = nl.ndarray((P, 1), dtype=nl.float32)
        within = nisa.range_select(
            on_true_tile=left,
            comp_op0=np.greater_equal,
            comp_op1=np.less,
            bound0=nl.load(first),
            bound1=nl.load(last),
            reduce_cmd=nisa.reduce_cmd.reset_reduce,
            reduce_res=most,
            range_start=1,
        )
        return stored(kept, turned, chosen, sums, within, most)

    at = 1 + np.arange(F)
    inside = (at >= 3) & (at < high)
    chosen, within = np.where(mask, x, -9.0), np.where(inside, x, FP32_MIN)
    wanted = [
        *(np.where(mask, x, y), np.where(x > 0, y, 4.0), chosen, chosen.max(axis=1, keepdims=True)),
        *(within, within.max(axis=1, keepdims=True)),
    ]
    close(values(kernel, x, y, mask, low, high), wanted, atol=0)


COMPARISONS: list[tuple[str, Callable[[Any, Any], Any]]] = [
    ("<", lambda p, f: 2 * p + 1 < f),
    ("<=", lambda p, f: 2 * p + 1 <= f),
    (">", lambda p, f: f > 9 - p),
    (">=", lambda p, f: 9 - p >= f),
    ("==", lambda p, f: p == f),
    ("== shifted", lambda p, f: 3 * p == f + 6),
    ("one side", lambda p, f: p < 7),
    ("free side", lambda p, f: f <= 7),
    ("always", lambda p, f: p + f >= 0),
    ("never", lambda p, f: p + f < 0),
]


@pytest.mark.oracle("nisa.affine_select")
@pytest.mark.parametrize(("name", "compare"), COMPARISONS)
def test_affine_select(name: str, compare: Callable[[Any, Any], Any]) -> None:
    x = numbers(P, F)

    def kernel(a: Any) -> Any:
        tile = nl.load(a)
        i_p, i_f = nl.arange(P)[:, None], nl.arange(F)[None, :]
        outs = [nisa.affine_select(compare(i_p, i_f), tile, -3.5)]
        outs.append(
            nisa.affine_select(pred=compare(i_p, i_f), on_true_tile=tile, on_false_value=2, dtype=np.float16)
        )
        for i in nl.affine_range(2):
            outs.append(nisa.affine_select(compare(i * 4 + i_p, i * 2 + i_f), tile, 0.25))
        return stored(*outs)

    rows, columns = np.indices((P, F))
    wanted = [np.where(compare(rows, columns), x, -3.5)]
    wanted.append(np.where(compare(rows, columns), x.astype(np.float16), 2))
    wanted += [np.where(compare(rows + 4 * i, columns + 2 * i), x, 0.25) for i in range(2)]
    found = traced(kernel, x)
    assert found.counts["affine_select"] == 4
    got = [each.values for each in found.run().outputs]
    assert got[1].dtype == np.float16
    close(got, wanted, atol=0)


def test_affine_select_of_what_is_known_while_tracing_and_under_a_mask() -> None:
    x = numbers(P, F)

    def kernel(a: Any) -> Any:
        tile, out = nl.load(a), nl.full((P, F), -7.0, dtype=nl.float32)
        i_p, i_f = nl.arange(P)[:, None], nl.arange(F)[None, :]
        out[...] = nisa.affine_select(i_p > i_f, tile, 0.0, mask=(i_p >= 3) & (i_f >= 2) & (i_f < 20))
        return stored(nisa.affine_select(True, tile, 0.0), nisa.affine_select(3 < 2, tile, 5.0), out)

    rows, columns = np.indices((P, F))
    left = (rows >= 3) & (columns >= 2) & (columns < 20)
    wanted = np.where(left, np.where(rows > columns, x, 0.0), -7.0)
    close(values(kernel, x), [x, np.full((P, F), 5.0), wanted], atol=0)


# index expressions and fills


@pytest.mark.oracle("nisa.iota")
def test_iota_of_every_affine_expression() -> None:
    def kernel(a: Any) -> Any:
        i_p, i_f = nl.arange(P)[:, None], nl.arange(F)[None, :]
        g_p, g_x, g_y = nl.mgrid[0:4, 2:6, 0:3]
        outs = [
            nisa.iota(i_f, dtype=nl.int32),
            nisa.iota(i_p, np.int32),
            nisa.iota(7 - 3 * i_p + 2 * i_f, dtype=np.float32),
            nisa.iota(100 * g_p - 10 * g_x + g_y * 5 + 1, np.int32),
            nisa.iota(nl.arange(3, 9)[None, :], np.uint8),
        ]
        for k in nl.affine_range(2):
            outs.append(nisa.iota(expr=i_f + k * F, dtype=nl.int32))
        out = nl.full((P, F), -7, dtype=np.int32)
        out[...] = nisa.iota(i_p + i_f, np.int32, mask=(i_p >= 4) & (i_f < 5) & (i_f >= 2))
        return stored(*outs, out)

    rows, columns = np.indices((P, F))
    p, x, y = np.mgrid[0:4, 2:6, 0:3]
    wanted = [
        *(columns[:1], rows[:, :1], 7 - 3 * rows + 2 * columns, 100 * p - 10 * x + 5 * y + 1),
        *(np.arange(3, 9)[None, :], columns[:1], columns[:1] + F),
        np.where((rows >= 4) & (columns < 5) & (columns >= 2), rows + columns, -7),
    ]
    found = values(kernel, numbers(P, F))
    kinds = [np.int32, np.int32, np.float32, np.int32, np.uint8, np.int32, np.int32, np.int32]
    assert [got.dtype for got in found] == kinds
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.oracle("nisa.memset")
def test_memset() -> None:
    def kernel(a: Any) -> Any:
        out = nl.full((P, F), 1.0, dtype=nl.float32)
        out[...] = nisa.memset((P, F), 2.5, np.float32, mask=nl.arange(P)[:, None] < 3)
        return stored(
            nisa.memset((P, F), 0.1, nl.bfloat16),
            nisa.memset(shape=(P, 2, 3), value=3.9, dtype=np.int32, engine=nisa.gpsimd_engine),
            nisa.memset([P, 1], np.float32(-2), dtype=np.int8, engine=nisa.vector_engine),
            out,
        )

    found = values(kernel, numbers(P, F))
    assert [got.dtype for got in found] == [BF16, np.int32, np.int8, np.float32]
    rows = np.indices((P, F))[0]
    wanted = [
        *(np.full((P, F), np.float64(BF16(0.1))), np.full((P, 2, 3), 3), np.full((P, 1), -2)),
        np.where(rows < 3, 2.5, 1.0),
    ]
    close(found, wanted, atol=0)


# the Tensor engine


@pytest.mark.oracle("nisa.nc_matmul", "nisa.nc_transpose")
def test_matmul_and_transpose() -> None:
    x, y = numbers(32, F), numbers(32, 40, seed=1)

    def kernel(a: Any, b: Any) -> Any:
        left, right = nl.load(a), nl.load(b)
        eye = nl.load(nl.shared_identity_matrix(32, dtype=nl.float32))
        product = nisa.nc_matmul(left, right, is_stationary_onezero=False, name="p")
        turned = nisa.nc_matmul(left, eye, is_moving_onezero=True, is_transpose=True)
        half = nisa.nc_transpose(left, dtype=nl.bfloat16)
        vector = nisa.nc_transpose(left, engine=nisa.vector_engine)
        back = nisa.nc_transpose(vector)
        again = nisa.nc_transpose(nisa.nc_transpose(left, engine=nisa.tensor_engine))
        sums = nl.zeros((F, 40), dtype=nl.float32, buffer=nl.psum)
        for _ in nl.affine_range(3):
            sums += nisa.nc_matmul(left, right)
        kinds = [(tile.buffer, tile.dtype) for tile in (product, turned, half, vector, back, again)]
        assert kinds == [
            *((nl.psum, np.float32), (nl.psum, np.float32), (nl.psum, BF16), (nl.sbuf, np.float32)),
            *((nl.psum, np.float32), (nl.sbuf, np.float32)),
        ]
        return stored(product, turned, half, vector, back, again, sums)

    u, v = x.astype(np.float64), y.astype(np.float64)
    found = values(kernel, x, y)
    close(found, [u.T @ v, u.T, x.T.astype(BF16), u.T, u, u, 3 * (u.T @ v)], atol=2e-5)


@pytest.mark.oracle("nisa.nc_matmul")
def test_tiles_of_the_tensor_engine() -> None:
    x, y = numbers(32, 32), numbers(32, 40, seed=1)

    def kernel(a: Any, b: Any) -> Any:
        left, right = nl.load(a), nl.load(b)
        return stored(nisa.nc_matmul(left, right, tile_position=(0, 0), tile_size=(32, 64)))

    close([result(kernel, x, y)], [x.astype(np.float64).T @ y], atol=2e-5)
    found = traced(kernel, x, y)
    (product,) = [
        found.program.instruction(at) for at, name in enumerate(found.opcodes) if name == "nc_matmul"
    ]
    assert product.immediates["tile_size"] == (32, 64)


@pytest.mark.oracle("nisa.nc_matmul")
def test_two_rows_at_once_of_float8() -> None:
    draw = np.random.default_rng(0)
    x, y = (draw.integers(-3, 4, (128, 2, n)).astype(ml_dtypes.float8_e5m2) for n in (16, 40))

    def kernel(a: Any, b: Any) -> Any:
        found = nisa.nc_matmul(nl.load(a), nl.load(b), perf_mode="double_row_gen3")
        assert (found.shape, found.buffer) == ((16, 40), nl.psum)
        return stored(found)

    u, v = x.astype(np.float64), y.astype(np.float64)
    close([result(kernel, x, y)], [np.einsum("kri,krj->ij", u, v)], atol=0)


# movement


@pytest.mark.oracle("nisa.dma_copy", "nisa.dma_transpose")
def test_dma() -> None:
    x = numbers(P, F)
    x3, x4 = numbers(4, 6, 8, seed=1), numbers(4, 3, 5, 8, seed=2)
    rows = np.random.default_rng(0).permutation(P)[:, None].astype(np.int32)

    def kernel(a: Any, b: Any, c: Any, index: Any) -> Any:
        tile = nl.ndarray((P, F), dtype=nl.bfloat16)
        nisa.dma_copy(dst=tile, src=a, dge_mode=nisa.dge_mode.none)
        sums, spread = (nl.ndarray((P, F), dtype=nl.float32, buffer=nl.shared_hbm) for _ in range(2))
        nisa.dma_copy(dst=sums, src=nl.load(a))
        nisa.dma_copy(dst=sums, src=nl.load(a), dst_rmw_op=np.add, unique_indices=True)
        at = nl.load(index)
        i_p, i_f = nl.arange(P)[:, None], nl.arange(F)[None, :]
        gathered = nl.ndarray((P, F), dtype=nl.float32)
        nisa.dma_copy(src=a[at[i_p, 0], i_f], dst=gathered[i_p, i_f])
        nisa.dma_copy(dst=spread[at[i_p, 0], i_f], src=nl.load(a))
        nisa.dma_copy(dst=sums[i_p, i_f], src=nl.load(a), dst_rmw_op=np.add, mask=i_p < 3)
        return (
            *stored(tile, nisa.dma_transpose(a), nisa.dma_transpose(b), nisa.dma_transpose(c), gathered),
            *(stored(nisa.dma_transpose(b, axes=(2, 1, 0), dtype=nl.bfloat16)), sums, spread),
        )

    scattered, sums = np.empty_like(x), 2 * x
    scattered[rows[:, 0]] = x
    sums[:3] += x[:3]
    wanted = [
        *(x.astype(BF16), x.T, x3.transpose(2, 1, 0), x4.transpose(3, 1, 2, 0), x[rows[:, 0]]),
        *(x3.transpose(2, 1, 0).astype(BF16), sums, scattered),
    ]
    close(values(kernel, x, x3, x4, rows), wanted, rtol=1e-6, atol=0)


@pytest.mark.oracle("nisa.dma_copy")
def test_an_index_out_of_bounds_is_skipped_or_an_error() -> None:
    x = numbers(P, F)
    rows = np.arange(P, dtype=np.int32)[:, None].copy()
    rows[3], rows[5] = 99, 1000

    def kernel(mode: Any) -> Kernel:
        def inner(a: Any, index: Any) -> Any:
            at = nl.load(index)
            i_p, i_f = nl.arange(P)[:, None], nl.arange(F)[None, :]
            out = nl.full((P, F), -7.0, dtype=nl.float32)
            nisa.dma_copy(src=a[at[i_p, 0], i_f], dst=out[i_p, i_f], oob_mode=mode)
            return stored(out)

        return inner

    want = x.copy()
    want[[3, 5]] = -7.0
    np.testing.assert_array_equal(result(kernel(nisa.oob_mode.skip), x, rows), want)
    faults = traced(kernel(nisa.oob_mode.error), x, rows).run().faults
    assert [fault.kind for fault in faults][:1] == ["out of bounds"]


@pytest.mark.oracle("nisa.tensor_copy_dynamic_src", "nisa.tensor_copy_dynamic_dst")
def test_copies_at_places_known_on_the_device() -> None:
    x, x3 = numbers(P, F), numbers(P, 6, 4, seed=1)
    places = np.array([[3, 5, 1]], np.int32)

    def kernel(a: Any, b: Any, index: Any) -> Any:
        tile, wide, at = nl.load(a), nl.load(b), nl.load(index)
        picked, rows = nl.ndarray((P, 3), dtype=nl.float32), nl.ndarray((P, 3, 4), dtype=nl.bfloat16)
        put = nl.zeros((P, F), dtype=nl.float32)
        i_p, i_one = nl.mgrid[0:P, 0:1]
        j_p, j_x, j_y = nl.mgrid[0:P, 0:1, 0:4]
        for i in nl.affine_range(3):
            picked[i_p, i + i_one] = nisa.tensor_copy_dynamic_src(tile[i_p, at[0, i]])
            rows[j_p, i + j_x, j_y] = nisa.tensor_copy_dynamic_src(
                wide[j_p, at[0, i], j_y], dtype=nl.bfloat16
            )
            nisa.tensor_copy_dynamic_dst(
                dst=put[i_p, at[0, i]], src=tile[i_p, i_one], engine=nisa.vector_engine, mask=i_p < 9
            )
        return stored(picked, rows, put)

    wanted = [x[:, places[0]], x3[:, places[0]].astype(BF16), np.zeros((P, F))]
    wanted[2][:9, places[0]] = x[:9, :1]
    close(values(kernel, x, x3, places), wanted, atol=0)


@pytest.mark.oracle("nisa.nc_stream_shuffle", "nisa.local_gather", "nisa.tensor_partition_reduce")
def test_movement_between_partitions() -> None:
    x = numbers(32, F)
    index = np.random.default_rng(0).integers(0, F, (32, 2)).astype(np.uint16)
    order = [(7 * at) % 32 for at in range(31)] + [255]

    def kernel(a: Any, i: Any) -> Any:
        tile, at = nl.load(a), nl.load(i)
        moved = nl.full((32, F), -7.0, dtype=nl.float32)
        nisa.nc_stream_shuffle(tile, moved, shuffle_mask=order)
        return stored(
            moved,
            nisa.local_gather(tile, at),
            nisa.local_gather(src_buffer=tile, index=at, num_elem_per_idx=1, num_valid_indices=20),
            nisa.tensor_partition_reduce(np.add, tile),
            nisa.tensor_partition_reduce(np.max, tile, dtype=nl.bfloat16),
        )

    moved = x[order[:-1]]
    moved = np.concatenate([moved, np.full((1, F), -7.0, np.float32)])
    gathered = np.empty((32, 32), np.float32)
    for core in range(2):
        lanes = slice(16 * core, 16 * core + 16)
        flat = index[lanes].T.reshape(-1)  # along the partitions first
        gathered[lanes] = x[lanes][:, flat]
    u = x.astype(np.float64)
    wanted = [
        *(moved, gathered, gathered[:, :20], u.sum(axis=0, keepdims=True)),
        x.max(axis=0, keepdims=True).astype(BF16),
    ]
    close(values(kernel, x, index), wanted, rtol=1e-5)


@pytest.mark.oracle("nisa.local_gather")
def test_local_gather_of_several_elements() -> None:
    x = numbers(16, 8, 4)
    index = np.random.default_rng(0).integers(0, 8, (16, 1)).astype(np.uint16)
    kernel = each(lambda a, i: nisa.local_gather(a, i, 4))
    assert shown(lambda a, i: [nisa.local_gather(a, i, 4)], x, index) == [((16, 16, 4), np.float32, nl.sbuf)]
    # an index counts elements: nki/test/test_nki_isa_local_gather.py
    np.testing.assert_array_equal(result(kernel, x, index * np.uint16(4)), x[:, index[:, 0]])


# searches


@pytest.mark.oracle("nisa.max8", "nisa.nc_find_index8", "nisa.nc_match_replace8")
def test_searches() -> None:
    x = np.random.default_rng(0).permuted(np.tile(np.arange(40, dtype=np.float32), (P, 1)), axis=1)

    def kernel(a: Any) -> Any:
        tile = nl.load(a)
        top = nisa.max8(src=tile)
        where = nisa.nc_find_index8(data=tile, vals=top)
        short = nisa.nc_find_index8(data=tile, vals=top, dtype=np.uint16)
        at = nl.ndarray((P, 8), dtype=nl.uint32)
        replaced = nisa.nc_match_replace8(data=tile, vals=top, imm=-1.0, dst_idx=at)
        plain = nisa.nc_match_replace8(data=tile, vals=top, imm=0.0, dtype=nl.bfloat16)
        return stored(top, where, short, at, replaced, plain)

    order = np.argsort(-x, axis=1)[:, :8]
    found = values(kernel, x)
    assert [got.dtype for got in found] == [np.float32, np.uint32, np.uint16, np.uint32, np.float32, BF16]
    replaced, zeroed = x.copy(), x.copy()
    np.put_along_axis(replaced, order, -1.0, axis=1)
    np.put_along_axis(zeroed, order, 0.0, axis=1)
    close(found, [-np.sort(-x, axis=1)[:, :8], order, order, order, replaced, zeroed], atol=0)


@pytest.mark.oracle("nisa.sequence_bounds")
def test_sequence_bounds() -> None:
    ids = np.array([[1, 1, 1, 0, 0, 2, 2, 5, 0]], np.int32)
    # by nki/api/nki/isa/__init__.py:1340-1348: the start and end of the segment, n and -1 for padding
    starts, ends = [0, 0, 0, 9, 9, 5, 5, 7, 9], [3, 3, 3, -1, -1, 7, 7, 8, -1]
    kernel = each(
        lambda a: nisa.sequence_bounds(segment_ids=a),
        lambda a: nisa.sequence_bounds(segment_ids=a, dtype=np.float32),
    )
    whole, half = values(kernel, ids)
    assert (whole.dtype, half.dtype) == (np.int32, np.float32)
    close([whole, half], [np.array([[starts, ends]])] * 2, atol=0)


@pytest.mark.oracle("nisa.dropout")
def test_dropout() -> None:
    x = np.ones((128, 400), np.float32)

    def kernel(a: Any, chances: Any) -> Any:
        tile = nl.load(a)
        return stored(nisa.dropout(tile, 0.25), nisa.dropout(tile, prob=nl.load(chances), dtype=nl.bfloat16))

    chances = np.linspace(0, 1, 128, dtype=np.float32)[:, None]
    some, rows = values(kernel, x, chances)
    assert abs((some == 0).mean() - 0.25) < 0.01  # 51200 draws: one standard deviation is 0.002
    assert rows.dtype == BF16
    np.testing.assert_allclose((rows == 0).mean(axis=1), chances[:, 0], atol=0.13)


# masks


def masked(kernel: Callable[[Any, Any, Any], Any], *args: Array) -> list[Array]:
    """A kernel of tiles and of the two index expressions of (P, F)."""

    def outer(*inner: Any) -> Any:
        i_p, i_f = nl.arange(P)[:, None], nl.arange(F)[None, :]
        return stored(*kernel([nl.load(each) for each in inner], i_p, i_f))

    return values(outer, *args)


def test_masks_of_instructions() -> None:
    x, y, predicate = numbers(P, F), numbers(P, F, seed=1), np.ones((P, F), np.uint8)

    def kernel(tiles: Any, i_p: Any, i_f: Any) -> Any:
        a, b, p = tiles
        mask = (i_p < 6) & (i_f >= 2)
        outs = [nl.full((P, F), -7.0, dtype=nl.float32) for _ in range(9)]
        outs[0][...] = nisa.activation(np.exp, a, mask=mask)
        outs[1][...] = nisa.tensor_scalar(a, np.add, 1.0, mask=mask)
        outs[2][...] = nisa.tensor_tensor(a, b, np.add, mask=mask)
        outs[3][...] = nisa.tensor_copy(a, mask=mask)
        outs[4][...] = nisa.scalar_tensor_tensor(
            data=a, op0=np.add, operand0=1.0, op1=np.add, operand1=b, mask=mask
        )
        outs[5][...] = nisa.reciprocal(a, mask=mask)
        nisa.tensor_copy_predicated(src=a, dst=outs[6], predicate=p, mask=mask)
        nisa.select_reduce(dst=outs[7], predicate=p, on_true=a, on_false=0.0, mask=mask)
        outs[8][...] = nisa.tensor_scalar(a, np.add, 1.0, mask=i_p + i_f < 9)
        return outs

    u, v = x.astype(np.float64), y.astype(np.float64)
    rows, columns = np.indices((P, F))
    left = (rows < 6) & (columns >= 2)
    inner = [np.exp(u), u + 1, u + v, u, u + 1 + v, 1 / u, u, u]
    wanted = [*(np.where(left, each, -7.0) for each in inner), np.where(rows + columns < 9, u + 1, -7.0)]
    close(masked(kernel, x, y, predicate), wanted)


def test_masks_of_reductions_and_transposes() -> None:
    x = numbers(P, F)

    def kernel(tiles: Any, i_p: Any, i_f: Any) -> Any:
        (a,) = tiles
        mask = (i_p < 6) & (i_f >= 2)
        column, turned, product = (
            nl.full(shape, -7.0, dtype=nl.float32) for shape in ((P, 1), (F, P), (F, F))
        )
        column[...] = nisa.tensor_reduce(np.max, a, axis=[1], mask=mask)
        turned[...] = nisa.nc_transpose(a, engine=nisa.vector_engine, mask=mask)
        product[...] = nisa.nc_matmul(a, a, mask=i_p < 6)
        sums = nl.full((P, 1), -7.0, dtype=nl.float32)
        nisa.activation_reduce(np.abs, a, reduce_op=np.add, reduce_res=sums, mask=mask)
        return column, turned, product, sums

    u = x.astype(np.float64)
    column, turned, sums = np.full((P, 1), -7.0), np.full((F, P), -7.0), np.full((P, 1), -7.0)
    column[:6, 0] = u[:6, 2:].max(axis=1)
    turned[2:, :6] = u[:6, 2:].T
    sums[:6, 0] = np.abs(u[:6, 2:]).sum(axis=1)
    close(masked(kernel, x), [column, turned, u[:6].T @ u[:6], sums])


def test_masks_of_movement_between_partitions() -> None:
    x = numbers(32, F)
    order = [(7 * at) % 32 for at in range(32)]

    def kernel(a: Any) -> Any:
        tile = nl.load(a)
        i_p, i_f = nl.arange(32)[:, None], nl.arange(F)[None, :]
        mask = (i_p < 6) & (i_f >= 2)
        moved, swapped = nl.full((32, F), -7.0, dtype=nl.float32), nl.full((F, 32), -7.0, dtype=nl.float32)
        nisa.nc_stream_shuffle(tile, moved, order, mask=mask)
        nisa.nc_stream_shuffle(tile, moved, order, mask=i_p < 0)
        swapped[...] = nisa.dma_transpose(a, mask=mask)
        sums = nl.full((1, F), -7.0, dtype=nl.float32)
        sums[...] = nisa.tensor_partition_reduce(np.add, tile, mask=mask)
        return stored(moved, swapped, sums)

    moved, swapped = np.full((32, F), -7.0), np.full((F, 32), -7.0)
    moved[:6, 2:] = x[order[:6], 2:]
    swapped[2:, :6] = x[:6, 2:].T
    sums = np.full((1, F), -7.0)
    sums[0, 2:] = x[:6, 2:].astype(np.float64).sum(axis=0)
    close(values(kernel, x), [moved, swapped, sums])


# shape, dtype and memory


def test_results_by_the_stubs() -> None:
    x, ids = numbers(P, 4, 6), np.ones((1, 40), np.int32)
    half = numbers(P, F).astype(BF16)

    def kernel(a: Any, b: Any, i: Any) -> Any:
        eights = nl.full((P, 8), 1.0, dtype=nl.float32)
        return [
            nisa.activation(np.exp, a),
            nisa.activation(np.exp, b),
            nisa.tensor_scalar(b, np.add, 1.0),
            nisa.tensor_reduce(np.add, a, [1, 2]),
            nisa.tensor_reduce(np.add, a, 2),
            nisa.tensor_reduce(np.add, a, [2], keepdims=True),
            nisa.bn_stats(b),
            nisa.max8(src=b),
            nisa.nc_find_index8(data=a, vals=eights),
            nisa.nc_match_replace8(data=a, vals=eights, imm=0.0),
            nisa.sequence_bounds(segment_ids=i),
            nisa.tensor_partition_reduce(np.add, b),
            nisa.nc_transpose(b),
            nisa.nc_transpose(a),
            nisa.nc_matmul(b, b),
            nisa.tensor_copy(a),
        ]

    f32, sbuf, psum = np.dtype(np.float32), nl.sbuf, nl.psum
    bf16 = np.dtype(BF16)
    assert shown(kernel, x, half, ids) == [
        *(((P, 4, 6), f32, sbuf), ((P, F), bf16, sbuf), ((P, F), bf16, sbuf)),
        *(((P, 1), f32, sbuf), ((P, 4), f32, sbuf), ((P, 4, 1), f32, sbuf)),
        *(((P, 6), bf16, sbuf), ((P, 8), bf16, sbuf), ((P, 8), np.dtype(np.uint32), sbuf)),
        *(((P, 4, 6), f32, sbuf), ((1, 2, 40), np.dtype(np.int32), sbuf), ((1, F), bf16, sbuf)),
        *(((F, P), bf16, psum), ((F, P), f32, psum), ((F, F), f32, psum), ((P, 4, 6), f32, sbuf)),
    ]


PAIRS = [
    ("float16", "bfloat16", np.float32),
    ("bfloat16", "float32", np.float32),
    ("int8", "uint8", np.int16),
]


@pytest.mark.parametrize(("left", "right", "wanted"), PAIRS)
def test_two_tiles_have_the_promoted_dtype(left: str, right: str, wanted: Any) -> None:
    found: list[Any] = []

    def kernel(out: Any) -> Any:
        x, y = (nl.full((4, 4), 1.0, dtype=getattr(nl, name)) for name in (left, right))
        found.append(nisa.tensor_tensor(x, y, np.add).dtype)
        found.append(nisa.tensor_tensor_scan(x, y, 0.0, np.add, np.add).dtype)
        return out

    traced(kernel, np.zeros((4, 4), np.float32))
    assert found == [np.dtype(wanted)] * 2


def test_each_call_is_one_instruction() -> None:
    def kernel(a: Any) -> Any:
        tile, out = nl.load(a), nl.ndarray((P, F), dtype=nl.bfloat16)
        out[...] = nisa.activation(np.exp, tile)
        out[...] = nisa.tensor_tensor(tile, tile, np.add)
        out[...] = nisa.tensor_scalar(out, np.add, 1.0)
        return stored(out)

    names = ["dma_copy", "activation", "tensor_tensor", "tensor_scalar", "dma_copy"]
    assert traced(kernel, numbers(P, F)).opcodes == names


def messages(found: Traced) -> list[str]:
    """What verify says, without places."""
    return [each.message.rpartition(" (")[0] for each in verify(found.program)]


@pytest.mark.parametrize(("given", "name"), [(0, "none"), (1, "swdge"), (2, "hwdge"), (3, "unknown")])
def test_integers_of_dge_mode_are_those_of_this_generation(given: int, name: str) -> None:
    def kernel(a: Any) -> Any:
        tile = nl.ndarray((P, F), dtype=nl.float32)
        nisa.dma_copy(dst=tile, src=a, dge_mode=given)
        return a

    program = traced(kernel, numbers(P, F)).program
    assert program.instruction(0).dge.name == name


def test_an_operator_that_is_none_is_named() -> None:
    def kernel(op: Any) -> Traced:
        def inner(a: Any) -> Any:
            return stored(nisa.tensor_scalar(nl.load(a), op, 1.0))

        return traced(inner, numbers(P, F))

    for op, name in ((np.negative, "negative"), (np.hypot, "hypot")):
        (message,) = messages(kernel(op))
        assert name in message


# refusals

REFUSED: list[tuple[Callable[[Any], Any], str]] = [
    (
        lambda t: nisa.activation(np.exp),
        "activation: argument 'data' is missing: activation(op, data, *, bias=None, scale=1.0, reduce_op=None, "
        "reduce_res=None, reduce_cmd=reduce_cmd.idle, mask=None, dtype=None, **kwargs)",
    ),
    (
        lambda t: nisa.activation(np.exp, t, t),
        "activation: takes 2 by position, got 3: activation(op, data, *, bias=None, scale=1.0, reduce_op=None, "
        "reduce_res=None, reduce_cmd=reduce_cmd.idle, mask=None, dtype=None, **kwargs)",
    ),
    (
        lambda t: nisa.max8(t),
        "max8: takes its arguments by name alone, got 1: max8(*, src, mask=None, dtype=None, **kwargs)",
    ),
    (lambda t: nisa.bn_stats(t, data=t), "bn_stats: argument 'data' is given twice"),
    (
        lambda t: nisa.sequence_bounds(segment_ids=t, mask=None),
        "sequence_bounds: unknown argument 'mask': sequence_bounds(*, segment_ids, dtype=None)",
    ),
    (lambda t: nisa.bn_stats(3), "bn_stats: data must be a tile, got int"),
    (lambda t: nisa.nc_matmul(t, None), "nc_matmul: moving must be a tile, got NoneType"),
    (lambda t: nisa.dma_copy(dst=t, src=4.0), "dma_copy: src must be a tile, got float"),
    (
        lambda t: nisa.tensor_scalar(t, np.add, nl.arange(F)[None, :]),
        "tensor_scalar: operand0 must be a tensor, got Symbol",
    ),
    (lambda t: nisa.tensor_reduce(np.add, t, 2), "tensor_reduce: axis 2 does not fit a 2-D tile"),
    (
        lambda t: nisa.dma_transpose(t, axes=(0, 0)),
        "dma_transpose: axes (0, 0) do not fit a 2-D tensor, expected one of (1, 0), (2, 1, 0), (3, 1, 2, 0)",
    ),
    (lambda t: nisa.iota(4, np.int32), "iota: expr must be an index expression of nl.arange, got int"),
    (
        lambda t: nisa.iota(nl.arange(4), np.int32),
        "iota: expr has one dimension, expected two or more: write nl.arange(n)[:, None]",
    ),
    (
        lambda t: nisa.iota(nl.arange(4)[:, None] // 2, np.int32),
        "iota: expr must be affine: sums of nl.arange, of its multiples and of integers",
    ),
    (
        lambda t: nisa.affine_select(t, t, 0.0),
        "affine_select: pred must be a comparison of index expressions, got Tile",
    ),
    (
        lambda t: nisa.affine_select(nl.arange(P)[:, None] < 3, 1.0, 0.0),
        "affine_select: on_true_tile must be a tile, got float",
    ),
    (
        lambda t: nisa.affine_select(nl.arange(P)[:, None] < 3, t, t),
        "affine_select: on_false_value must be a number, got Tile",
    ),
    (
        lambda t: nisa.affine_select((nl.arange(P)[:, None] < 3) & (nl.arange(F)[None, :] < 3), t, 0.0),
        "affine_select: pred must be one comparison, not several joined by &; use nl.where",
    ),
    (lambda t: nisa.memset((4, 4), t, np.float32), "memset: value must be a number, got Tile"),
    (
        lambda t: nisa.builtin_custom_op("f", "lib.so", 1, 1, [t], [t]),
        "nisa.builtin_custom_op runs code that the compiler ships, whose meaning is in no documentation: write the "
        "computation with instructions of nki.isa",
    ),
    (
        lambda t: nisa.tensor_scalar(t, np.add, 1.0, mask=t),
        "tensor_scalar: mask must be a comparison of index expressions, or several joined by &, got Tile",
    ),
]


@pytest.mark.parametrize(
    ("call", "message"), REFUSED, ids=[f"{m.split(':')[0]}-{at}" for at, (_, m) in enumerate(REFUSED)]
)
def test_refusals(call: Callable[[Any], Any], message: str) -> None:
    def kernel(a: Any) -> Any:
        call(nl.load(a))
        return a

    assert refusal(kernel, numbers(P, F)) == message


def test_keywords_that_nothing_knows_are_noted() -> None:
    def kernel(a: Any) -> Any:
        return stored(nisa.bn_stats(nl.load(a), lowering=3, name="s"))

    assert traced(kernel, numbers(P, F)).events == [
        "note: bn_stats: lowering is no argument of it and ignored"
    ]


def test_every_function_of_the_stubs_is_called_here() -> None:
    text = inspect.getsource(inspect.getmodule(test_refusals))  # type: ignore[arg-type]
    assert {name for name in ISA if f"nisa.{name}(" not in text} <= {"get_nc_version"}


@pytest.mark.oracle("nisa.tensor_tensor")
def test_two_tiles_of_which_one_has_a_single_column() -> None:
    x, y = numbers(128, 64), numbers(128, 1, seed=1)

    def kernel(a: Any, b: Any) -> Any:
        wide, narrow = nl.load(a), nl.load(b)
        return stored(
            nisa.tensor_tensor(wide, narrow, nl.subtract), nisa.tensor_tensor(narrow, wide, nl.subtract)
        )

    first, second = values(kernel, x, y)
    np.testing.assert_array_equal(first, x - y)
    np.testing.assert_array_equal(second, y - x)

"""`nl` functions end to end against NumPy in float64; ranges, grids, jit, stubs and refusals."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import special

from nkireview.execute import execute
from nkireview.isa.enums import Engine, Memory
from nkireview.isa.release import Release
from nkireview.nki import isa, language, stubs
from nkireview.nki.errors import NotYetSupported, Refusal
from nkireview.nki.jit import Kernel, jit
from nkireview.nki.tensor import NkiTensor
from nkireview.nki.trace import Trace, tracing
from nkireview.program.model import Header, Output
from nkireview.program.program import Program
from nkireview.program.verify import verify

nl = language.module("nl")
nisa = isa.module("nisa")


def record(
    kernel: Callable[..., Any], arrays: list[np.ndarray], release: str = "0.6", target: str = "trn2"
) -> Program:
    """The Program of a kernel over HBM arguments; what it returns is stored to HBM if it is on chip."""
    trace = Trace(target, Release.parse(release))
    with tracing(trace):
        arguments = [
            NkiTensor.whole(trace, trace.buffer(Memory.shared_hbm, a.shape, a.dtype.name)) for a in arrays
        ]
        with trace.builder.stream():
            result = kernel(*arguments)
            if result.on_chip:
                if nl.is_psum(result.buffer):
                    tile = nl.ndarray(result.shape, result.dtype)
                    nisa.tensor_copy(dst=tile, src=result)
                    result = tile
                out = nl.ndarray(result.shape, result.dtype, nl.shared_hbm)
                nisa.dma_copy(dst=out, src=result)
                result = out
    header = Header("k", target, release, sources=tuple(trace.places.sources))
    return trace.builder.finish(header, outputs=(Output(result.access()),))


def run(kernel: Callable[..., Any], *arrays: np.ndarray, **options: str) -> np.ndarray:
    """The kernel's result; the Program must be legal and without faults."""
    program = record(kernel, list(arrays), **options)
    assert verify(program) == ()
    execution = execute(program, dict(enumerate(arrays)))
    assert execution.faults == ()
    return np.asarray(execution.outputs[0].values)


def sample(low: float = -3.0, high: float = 3.0, shape: tuple[int, ...] = (64, 40)) -> np.ndarray:
    return np.random.default_rng(5).uniform(low, high, shape).astype(np.float32)


UNARY: dict[str, tuple[Callable[[np.ndarray], np.ndarray], float, float]] = {
    "exp": (np.exp, -3, 3),
    "log": (np.log, 0.1, 9),
    "sqrt": (np.sqrt, 0.1, 9),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 0.1, 9),
    "reciprocal": (lambda x: 1 / x, 0.1, 9),
    "tanh": (np.tanh, -3, 3),
    "sigmoid": (special.expit, -3, 3),
    "relu": (lambda x: np.maximum(x, 0), -3, 3),
    "gelu": (lambda x: x * special.ndtr(x), -3, 3),
    "silu": (lambda x: x * special.expit(x), -3, 3),
    "softplus": (lambda x: np.log1p(np.exp(x)), -3, 3),
    "erf": (special.erf, -3, 3),
    "arctan": (np.arctan, -1.5, 1.5),
    "square": (np.square, -3, 3),
    "abs": (np.abs, -3, 3),
    "sign": (np.sign, -3, 3),
    "negative": (np.negative, -3, 3),
    "copy": (lambda x: x, -3, 3),
    "sin": (np.sin, -40, 40),
    "cos": (np.cos, -40, 40),
    "tan": (np.tan, -1.3, 1.3),
    "floor": (np.floor, -50, 50),
    "ceil": (np.ceil, -50, 50),
    "trunc": (np.trunc, -50, 50),
}


@pytest.mark.parametrize("name", sorted(UNARY))
@pytest.mark.parametrize("release", ["0.3", "0.6"])
def test_unary_functions(name: str, release: str) -> None:
    function, low, high = UNARY[name]
    x = sample(low, high)
    got = run(lambda t: getattr(nl, name)(nl.load(t)), x, release=release)
    np.testing.assert_allclose(got, function(x.astype(np.float64)), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", ["floor", "ceil", "trunc"])
def test_rounding_keeps_integers_and_halves(name: str) -> None:
    x = np.array([[-2.5, -2.0, -1.5, -0.5, -0.0, 0.5, 1.0, 1.5, 2.5, 1e6 + 0.5]], dtype=np.float32)
    assert np.array_equal(run(lambda t: getattr(nl, name)(nl.load(t)), x), getattr(np, name)(x))


BINARY = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
}


@pytest.mark.parametrize("name", sorted(BINARY))
def test_binary_functions(name: str) -> None:
    x, y = np.round(sample()), np.round(sample()[::-1])
    function, wanted = getattr(nl, name), BINARY[name]
    got = run(lambda a, b: function(nl.load(a), nl.load(b)), x, y)
    np.testing.assert_array_equal(got, wanted(x, y).astype(np.float32))
    np.testing.assert_array_equal(
        run(lambda a: function(nl.load(a), 2.0), x), wanted(x, 2).astype(np.float32)
    )
    np.testing.assert_array_equal(
        run(lambda a: function(2.0, nl.load(a)), x), wanted(2, x).astype(np.float32)
    )


@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"])
def test_bitvec_functions(name: str) -> None:
    x = np.random.default_rng(1).integers(0, 2**31, (32, 8)).astype(np.uint32)
    y = np.random.default_rng(2).integers(0, 8, (32, 8)).astype(np.uint32)
    got = run(lambda a, b: getattr(nl, name)(nl.load(a), nl.load(b)), x, y)
    np.testing.assert_array_equal(got, getattr(np, name)(x, y))


def test_invert_and_power() -> None:
    x = np.arange(64, dtype=np.uint16).reshape(8, 8)
    np.testing.assert_array_equal(run(lambda a: nl.invert(nl.load(a)), x), np.invert(x))
    base, exponent = sample(0.5, 2), sample(-2, 2)
    got = run(lambda a, b: nl.power(nl.load(a), nl.load(b)), base, exponent)
    np.testing.assert_allclose(got, base.astype(np.float64) ** exponent, rtol=1e-5)


REDUCE = {"sum": np.sum, "max": np.max, "min": np.min, "mean": np.mean, "var": np.var}


@pytest.mark.parametrize("name", sorted(REDUCE))
@pytest.mark.parametrize("columns", [40, 700])
def test_reductions(name: str, columns: int) -> None:
    x = sample(shape=(64, columns))
    wanted = REDUCE[name](x.astype(np.float64), axis=1, keepdims=True)
    got = run(lambda t: getattr(nl, name)(nl.load(t), axis=1, keepdims=True), x) if name != "var" else None
    got = run(lambda t: nl.var(nl.load(t), axis=1), x) if got is None else got
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


def test_reductions_over_several_axes_and_prod_and_all() -> None:
    x = sample(0.5, 1.5, (8, 4, 6))
    got = run(lambda t: nl.sum(nl.load(t), axis=(1, 2)), x)
    np.testing.assert_allclose(got, x.sum((1, 2), dtype=np.float64)[:, None], rtol=1e-6)
    np.testing.assert_allclose(run(lambda t: nl.prod(nl.load(t), axis=-1), x), x.prod(-1), rtol=1e-5)
    ones = np.ones((4, 8), np.float32)
    ones[1, 3] = 0
    np.testing.assert_array_equal(run(lambda t: nl.all(nl.load(t), axis=1), ones), [[1], [0], [1], [1]])


def test_matmul_and_transpose() -> None:
    a, b = sample(shape=(128, 64)), sample(shape=(128, 96))
    got = run(lambda x, y: nl.matmul(nl.load(x), nl.load(y), transpose_x=True), a, b)
    np.testing.assert_allclose(got, a.astype(np.float64).T @ b, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(run(lambda x: nl.transpose(nl.load(x)), a), a.T)


def test_filled_tensors_views_and_dtypes() -> None:
    x = sample()
    np.testing.assert_array_equal(run(lambda t: nl.add(nl.load(t), nl.ones(t.shape, nl.float32)), x), x + 1)
    np.testing.assert_array_equal(run(lambda t: nl.zeros_like(nl.load(t)), x), x * 0)
    np.testing.assert_array_equal(run(lambda t: nl.full(t.shape, 3.5, nl.float32), x), x * 0 + 3.5)
    bf16 = run(lambda t: nl.load(t, dtype=nl.bfloat16), x)
    assert bf16.dtype.name == "bfloat16"

    def scaled(t: Any) -> Any:
        tile = nl.load(t)
        return nl.multiply(tile, nl.broadcast_to(nl.max(tile, axis=1, keepdims=True), tile.shape))

    np.testing.assert_array_equal(run(scaled, x), x * x.max(1, keepdims=True))
    assert run(lambda t: nl.expand_dims(nl.load(t), 2), x).shape == (64, 40, 1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda t: nl.add(t, t[:, 0:4]),
            r"nl.add: shapes \(64, 40\) and \(64, 4\) differ; nl functions do not broadcast",
        ),
        (lambda t: nl.add(1, 2), "nl.add: one side must be a tensor, got int and int"),
        (lambda t: nl.add(t, "a"), "nl.add: expected a tensor or a number, got str"),
        (lambda t: nl.power(t, 2.0), "nl.power: both sides must be tiles"),
        (lambda t: nl.divide(t, t), "nl.divide is not supported on hardware; write nl.multiply"),
        (lambda t: nl.mod(t, 2), "nl.mod is not supported on hardware"),
        (lambda t: nl.matmul(t, t), "transpose_x=False is not supported on hardware"),
        (lambda t: nl.exp(3), "nl.exp: expected a tensor, got int"),
        (lambda t: nl.sum(t, axis=5), "nl.sum: axis 5 does not fit a 2-D tensor"),
        (lambda t: nl.load(t), "nl.load: src must be in HBM, it is in sbuf"),
        (lambda t: nl.store(t, 1.0), "nl.store: value must be an SBUF tensor, got float"),
        (
            lambda t: nl.broadcast_to(t, (64, 41)),
            r"nl.broadcast_to: \(64, 40\) does not broadcast to \(64, 41\)",
        ),
        (lambda t: nl.broadcast_to(t, (64,)), "has another rank"),
        (lambda t: nl.expand_dims(t, 9), "nl.expand_dims: axis 9 does not fit"),
        (lambda t: nl.ndarray((4, 0), nl.float32), "has a dimension below 1"),
        (lambda t: nl.ndarray((4, 2.0), nl.float32), r"shape \(4, 2.0\) holds a float, expected integers"),
        (lambda t: nl.ndarray((), nl.float32), "needs at least one dimension"),
        (lambda t: nl.ndarray((4, 4), "float64"), "float64"),
        (lambda t: nl.ndarray((4, 4), nl.float32, "sbuf"), "buffer must be nl.sbuf, nl.psum"),
        (lambda t: nl.ndarray((4, 4), nl.float32, address=3), r"address must be \(partition, byte offset\)"),
        (lambda t: nl.ndarray((4, 4), nl.float32, address=(-1, 0)), r"address \(-1, 0\) is negative"),
        (lambda t: nl.program_id(3), "axis 3 is not one of the grid's 0"),
        (lambda t: list(nl.affine_range(1.5)), "nl.affine_range: bounds must be integers, got float"),
        (lambda t: nisa.memset(t), "memset: argument 'value' is missing"),
        (lambda t: nisa.memset(t, 0, dst=t), "memset: argument 'dst' is given twice"),
        (lambda t: nisa.memset(t, 0, nisa.engine.vector, "n", 1), "memset: takes 4 arguments, got 5"),
        (
            lambda t: nisa.memset(t, 0, engine="vector"),
            "memset: engine must be a member of nisa.engine, got 'vector'",
        ),
        (lambda t: nisa.tensor_copy(dst=t, src=3), "tensor_copy: src"),
        (lambda t: nisa.tensor_copy(dst=t, src="x"), "tensor_copy: src must be a tensor, got str"),
        (lambda t: nisa.activation(dst=t, op=object(), data=t), "activation: op cannot be a object"),
    ],
)
def test_refusals(call: Callable[[Any], Any], message: str) -> None:
    def kernel(t: Any) -> Any:
        tile = nl.ndarray(t.shape, t.dtype)
        nisa.dma_copy(dst=tile, src=t)
        call(tile)
        return tile

    if "src" in message and "must" not in message:
        assert any(message in violation.message for violation in verify(record(kernel, [sample()])))
        return
    with pytest.raises(Refusal, match=message):
        record(kernel, [sample()])


@pytest.mark.parametrize(
    "name", ["softmax", "where", "dropout", "rand", "fori_loop", "dynamic_range", "no_reorder"]
)
def test_functions_that_are_not_there_yet(name: str) -> None:
    with pytest.raises(NotYetSupported, match=f"not yet supported: nl.{name}"):
        getattr(nl, name)()


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="nl has no 'arange' in the current generation"):
        _ = nl.arange
    with pytest.raises(AttributeError, match="nisa has no 'frobnicate'"):
        _ = nisa.frobnicate


def test_ranges_and_grid_and_versions() -> None:
    trace = Trace("trn3", Release.parse("0.6"), lnc=2, grid=(2,))
    with tracing(trace):
        trace.start_core(1)
        assert list(nl.affine_range(3)) == [0, 1, 2] and list(nl.sequential_range(2, 8, 3)) == [2, 5]
        assert (nl.program_id(0), nl.num_programs(0), nl.program_ndim()) == (1, 2, 1)
        assert nisa.get_nc_version() is nisa.nc_version.gen4 and nisa.get_nc_sub_version() == 0
        assert nl.tile_size.pmax == 128 and nl.tile_size.psum_bank_fmax == 512
        assert nl.tile_size.sbuf_fmax_bytes == 245752 and nl.tile_size.sbuf_size_bytes == 32 * 2**20
    assert {event.kind for event in trace.builder._events} == {"deprecated"}
    with pytest.raises(Refusal, match="nl.program_id is only available inside a kernel"):
        nl.program_id(0)


def test_shared_buffers_of_two_cores_are_one() -> None:
    trace = Trace("trn2", Release.parse("0.6"), lnc=2, grid=(2,))
    with tracing(trace):
        first = (
            nl.ndarray((4, 4), nl.float32, nl.shared_hbm, "a"),
            nl.ndarray((8, 8), nl.float32, nl.shared_hbm),
        )
        trace.start_core(1)
        second = (
            nl.ndarray((4, 4), nl.float32, nl.shared_hbm, "a"),
            nl.ndarray((8, 8), nl.float32, nl.shared_hbm),
        )
        assert [t.storage.id for t in first] == [t.storage.id for t in second]
        nl.ndarray((2, 2), nl.float32, nl.shared_hbm)
    assert any("cores diverge" in event.detail for event in trace.builder._events)


def test_jit_forms() -> None:
    def kernel(x: Any) -> Any:
        return x

    for made in (jit(kernel), jit(mode="trace")(kernel), jit(jit(kernel)), jit(kernel)[2]):
        assert isinstance(made, Kernel) and made.__name__ == "kernel"
    with pytest.raises(Refusal, match="kernel kernel is called outside a review"):
        jit(kernel)(1)
    with pytest.raises(Refusal, match="platform_target= is refused since NKI 0.3"):
        jit(kernel, platform_target="trn2")


def test_raw_integers_are_accepted_and_noted() -> None:
    def kernel(t: Any) -> Any:
        tile = nl.ndarray(t.shape, t.dtype)
        nisa.dma_copy(dst=tile, src=t, dge_mode=3)
        return tile

    program = record(kernel, [sample()])
    assert program.instruction(0).dge.name == "none"
    assert [e.detail for e in program.events] == ["dma_copy: dge_mode=3 is a raw integer for dge_mode.none"]


def test_zero_and_minus_zero_are_different_immediates() -> None:
    def kernel(t: Any) -> Any:
        tile = nl.ndarray(t.shape, t.dtype)
        for value in (0.0, -0.0, 0, False):
            nisa.memset(tile, value, engine=nisa.engine.vector)
        return tile

    program = record(kernel, [sample()])
    values = [repr(program.instruction(at).immediates["value"]) for at in range(4)]
    assert values == ["0.0", "-0.0", "0", "False"]
    assert program.instruction(0).engine is Engine.vector


def test_stubs_are_inert_until_a_kernel_calls_them() -> None:
    stub: Any = stubs.stub("torch")

    class Module(stub.nn.Module):  # type: ignore[misc]
        def forward(self) -> int:
            return 1

    @stub.no_grad()
    def host(x: int) -> int:
        return x + 1

    assert host(1) == 2 and Module().forward() == 1 and repr(stub.nn) == "<stub torch.nn>"
    refusal = pytest.raises(Refusal, match="torch.zeros is host code and has no meaning inside a kernel")
    with tracing(Trace("trn2", Release.parse("0.6"))), refusal:
        stub.zeros(3)


def test_the_finder_stubs_listed_packages_only() -> None:
    finder = stubs.StubFinder()
    assert finder.find_spec("numpy") is None and finder.find_spec("json") is None
    spec = finder.find_spec("torch_xla.core.xla_model")
    assert spec is not None and spec.loader is not None
    with pytest.raises(NotYetSupported, match="neuronxcc.nki, the legacy generation"):
        finder.find_spec("neuronxcc.nki.language")
    assert "nki" not in sys.modules


def test_versions_of_the_core_are_ordered() -> None:
    """Kernels of nki-library ask ``nisa.get_nc_version() >= nisa.nc_version.gen3``."""
    from nkireview.isa.enums import NcVersion

    assert NcVersion.gen2 < NcVersion.gen3 <= NcVersion.gen3 < NcVersion.gen4
    assert NcVersion.gen4 >= NcVersion.gen3 and not NcVersion.gen2 > NcVersion.gen3
    with pytest.raises(TypeError):
        _ = NcVersion.gen2 < 3

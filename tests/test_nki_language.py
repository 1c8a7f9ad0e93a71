"""What surrounds the functions of `nki.language`: refusals, ranges, grids, jit, stubs and raw arguments."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
from nl_kernels import nisa, nl, record, sample

from nkireview.isa.enums import Engine
from nkireview.isa.release import Release
from nkireview.nki import stubs
from nkireview.nki.errors import Refusal
from nkireview.nki.jit import Kernel, jit
from nkireview.nki.trace import Trace, tracing
from nkireview.program.verify import verify


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
        (
            lambda t: nl.ndarray((4, 4), nl.float32, "sbuf"),
            "the string 'sbuf' for buffer was taken before NKI 0.3, this kernel is judged by 0.6",
        ),
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
    assert "nki" not in sys.modules


def test_versions_of_the_core_are_ordered() -> None:
    """Kernels of nki-library ask ``nisa.get_nc_version() >= nisa.nc_version.gen3``."""
    from nkireview.isa.enums import NcVersion

    assert NcVersion.gen2 < NcVersion.gen3 <= NcVersion.gen3 < NcVersion.gen4
    assert NcVersion.gen4 >= NcVersion.gen3 and not NcVersion.gen2 > NcVersion.gen3
    with pytest.raises(TypeError):
        _ = NcVersion.gen2 < 3

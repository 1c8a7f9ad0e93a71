"""The enumerations, aliases and attributes of the namespaces, against the values that the public stubs print."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from nl_kernels import nisa, nl, run

from nkireview.isa.enums import Memory
from nkireview.isa.release import Release
from nkireview.nki import collectives
from nkireview.nki.control import LOOPS
from nkireview.nki.errors import Refusal
from nkireview.nki.modules import TypingTensor
from nkireview.nki.tensor import NkiTensor
from nkireview.nki.trace import Trace, tracing
from nkireview.program.model import Header

VERSIONS = {"trn1": 2, "inf2": 2, "trn2": 3, "trn3": 4}


@contextmanager
def traced(target: str = "trn2", release: str = "0.6") -> Iterator[Trace]:
    trace = Trace(target, Release.parse(release))
    with tracing(trace), trace.builder.stream():
        yield trace


def tensor(trace: Trace, shape: tuple[int, ...], dtype: str = "float32") -> NkiTensor:
    return NkiTensor.whole(trace, trace.buffer(Memory.shared_hbm, shape, dtype, name="given"))


def enumeration(name: str, **members: Any) -> Any:
    return pytest.param(name, members, id=name, marks=pytest.mark.oracle(f"nisa.{name}"))


@pytest.mark.parametrize(
    ("name", "members"),
    [
        enumeration("engine", tensor=1, vector=5, scalar=2, gpsimd=3, dma=4, sync=6, unknown=0),
        enumeration("reduce_cmd", idle=0, reset=1, reduce=2, reset_reduce=3, load_reduce=4),
        enumeration("dge_mode", unknown=0, swdge=1, hwdge=2, none=3),
        enumeration("oob_mode", error=0, skip=1),
        enumeration("matmul_perf_mode", none="none", double_row="double_row"),
        enumeration("nc_version", gen2=2, gen3=3, gen4=4),
        enumeration("dma_engine", dma=1, gpsimd_dma=2),
    ],
)
def test_an_enumeration_has_the_members_of_the_stub(name: str, members: dict[str, Any]) -> None:
    assert {member.name: member.value for member in getattr(nisa, name)} == members


@pytest.mark.oracle(
    "nisa.tensor_engine",
    "nisa.vector_engine",
    "nisa.scalar_engine",
    "nisa.gpsimd_engine",
    "nisa.unknown_engine",
)
@pytest.mark.parametrize("name", ["tensor", "vector", "scalar", "gpsimd", "unknown"])
def test_the_old_names_of_engines(name: str) -> None:
    assert getattr(nisa, f"{name}_engine") is nisa.engine[name]


@pytest.mark.oracle("nisa.get_nc_version", "nisa.get_nc_sub_version")
@pytest.mark.parametrize("target", VERSIONS)
def test_the_version_of_the_target(target: str) -> None:
    with traced(target):
        assert nisa.get_nc_version() is nisa.nc_version(VERSIONS[target])
        assert nisa.get_nc_version() >= nisa.nc_version.gen2
        assert nisa.get_nc_sub_version() == 0


@pytest.mark.oracle("nisa.NkiInstruction")
def test_an_instruction_is_returned_and_orders_others() -> None:
    with traced() as trace:
        tile = nl.ndarray((128, 8), nl.float32)
        other = nl.ndarray((128, 8), nl.float32)
        first = nisa.memset(dst=tile, value=0.0)
        second = nisa.memset(dst=other, value=1.0)
        assert isinstance(first, nisa.NkiInstruction)
        assert second.depends_on(first) is second
    program = trace.builder.finish(_header(trace))
    assert program.instruction(1).depends_on == (0,)


@pytest.mark.oracle("nisa.NkiValidationError")
def test_a_refusal_is_the_error_that_kernels_may_catch() -> None:
    with traced(), pytest.raises(nisa.NkiValidationError, match="^memset: argument 'value' is missing$"):
        nisa.memset(dst=nl.ndarray((128, 8), nl.float32))


def attribute(name: str, read: Callable[[NkiTensor], Any], expected: Any) -> Any:
    return pytest.param(read, expected, id=name, marks=pytest.mark.oracle(f"NkiTensor.{name}"))


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        attribute("shape", lambda t: t.shape, (2, 3)),
        attribute("strides", lambda t: t.strides, (10, 2)),
        attribute("offset", lambda t: t.offset, 11),
        attribute("ndim", lambda t: t.ndim, 2),
        attribute("size", lambda t: t.size, 6),
        attribute("name", lambda t: t.name, "given"),
        attribute("dtype", lambda t: t.dtype, nl.bfloat16),
        attribute("buffer", lambda t: t.buffer, nl.shared_hbm),
    ],
)
def test_an_attribute_of_a_view(read: Callable[[NkiTensor], Any], expected: Any) -> None:
    with traced() as trace:
        view = tensor(trace, (4, 10), "bfloat16")[1:3, 1:7:2]
        assert read(view) == expected
        like = np.zeros((4, 10))[1:3, 1:7:2]
        assert (view.shape, view.size, view.ndim) == (like.shape, like.size, like.ndim)
        assert view.strides == tuple(step // like.itemsize for step in like.strides)


@pytest.mark.oracle("nki.typing.tensor")
def test_an_annotation_of_a_tensor() -> None:
    annotation = TypingTensor()
    assert annotation[128, 512] is NkiTensor
    with traced() as trace:
        assert isinstance(tensor(trace, (2, 2)), annotation[2, 2])


@pytest.mark.oracle("ncc.ReplicaGroup")
def test_a_replica_group_holds_ranks() -> None:
    group = collectives.namespace()["ReplicaGroup"]([[0, 1], [2, 3]])
    assert group.groups == [[0, 1], [2, 3]]


@pytest.mark.oracle("nki.experimental.while_loop", "nl.while_loop")
def test_a_while_loop_counts_down() -> None:
    def kernel(x: NkiTensor) -> NkiTensor:
        total = nl.zeros((1, 1), nl.float32)
        left = nl.ndarray((1, 1), nl.int32)
        nisa.memset(dst=left, value=3)
        register = nisa.register_alloc()
        nisa.register_load(register, left)

        def body(count: Any) -> Any:
            nisa.tensor_scalar(dst=total, data=total, op0=nl.add, operand0=2.0)
            nisa.tensor_scalar(dst=left, data=left, op0=nl.subtract, operand0=1)
            nisa.register_load(count, left)
            return count

        LOOPS["while_loop"](register, body)
        return total

    assert run(kernel, np.zeros((1, 1), np.float32)).item() == 6.0


def _header(trace: Trace) -> Any:
    return Header("k", "trn2", "0.6", sources=tuple(trace.places.sources))


def test_refusals_are_type_errors() -> None:
    assert issubclass(Refusal, TypeError)

"""sendrecv and core_barrier: the examples of the documentation on two cores, what they move, and their limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from call_kit import Made, T
from execute_kit import Kernel, counted
from nl_kernels import nisa, nl
from numpy.typing import NDArray

from nkireview.execute import Execution, execute
from nkireview.isa.enums import Engine, Memory
from nkireview.isa.release import Release
from nkireview.isa.table import row
from nkireview.nki import launch
from nkireview.nki.tensor import NkiTensor
from nkireview.nki.trace import Trace
from nkireview.program.judge import judge
from nkireview.program.model import Header
from nkireview.program.verify import verify

Array = NDArray[Any]
LANES = 16


def on_two_cores(kernel: Callable[..., Any], *arrays: Array) -> list[Array]:
    """What a kernel returns when it is launched on LNC=2; it must be legal and without faults."""
    state = Trace("trn2", Release(0, 6), lnc=2, grid=(2,))
    buffers = [
        state.builder.buffer(memory=Memory.shared_hbm, shape=array.shape, dtype=array.dtype.name)
        for array in arrays
    ]
    returned = launch.run_cores(
        state, kernel, lambda: ([NkiTensor.whole(state, buffer) for buffer in buffers], {})
    )
    header = Header("k", "trn2", "0.6", lnc=2, grid=(2,), sources=tuple(state.places.sources))
    program = state.builder.finish(header, outputs=tuple(launch.outputs(state, returned, {})))
    assert verify(program) == ()
    execution = execute(program, {buffer.id: a for buffer, a in zip(buffers, arrays, strict=True)})
    assert not execution.faults
    return [output.values for output in execution.outputs]


@pytest.mark.oracle("nisa.sendrecv")
def test_the_ring_of_the_documentation_gives_each_core_the_data_of_the_other() -> None:
    # nki/api/nki/isa/__init__.py:3024-3046
    def kernel(data: Any) -> Any:
        core = nl.program_id(0)
        send, received = nl.ndarray((4, 6), nl.float32), nl.ndarray((4, 6), nl.float32)
        nisa.dma_copy(dst=send, src=data[core])
        following, previous = (core + 1) % 2, (core - 1) % 2
        nisa.sendrecv(src=send, dst=received, send_to_rank=following, recv_from_rank=previous, pipe_id=0)
        out = nl.ndarray((2, 4, 6), nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out[core], src=received)
        return out

    data = counted(2, 4, 6)
    np.testing.assert_array_equal(on_two_cores(kernel, data)[0], data[::-1])


@pytest.mark.oracle("nisa.core_barrier")
def test_the_barrier_of_the_documentation_lets_both_cores_read_the_whole_tensor() -> None:
    # nki/api/nki/isa/__init__.py:2633-2652
    def kernel(data: Any) -> Any:
        core = nl.program_id(0)
        shared = nl.ndarray((8, 6), nl.float32, buffer=nl.shared_hbm)
        half, whole = nl.ndarray((4, 6), nl.float32), nl.ndarray((8, 6), nl.float32)
        nisa.dma_copy(dst=half, src=data[core * 4 : core * 4 + 4])
        nisa.dma_copy(dst=shared[core * 4 : core * 4 + 4], src=half)
        nisa.core_barrier(data=shared, cores=(0, 1))
        nisa.dma_copy(dst=whole, src=shared)
        out = nl.ndarray((2, 8, 6), nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out[core], src=whole)
        return out

    data = counted(8, 6)
    np.testing.assert_array_equal(on_two_cores(kernel, data)[0], np.stack([data, data]))


def exchange(
    values: tuple[Array, Array], ranks: Mapping[str, tuple[int, int]], dtypes: tuple[str, str] | None = None
) -> Execution:
    """One sendrecv on each core: what a core sends, and by parameter the ranks it names."""
    kernel = Kernel(lnc=2)
    outputs = []
    for core, array in enumerate(values):
        src = kernel.load(array)
        dst = kernel.sbuf(*array.shape, dtype=dtypes[core] if dtypes else src.dtype)
        given = {name: each[core] for name, each in ranks.items()}
        kernel.call("sendrecv", src=src, dst=dst, **{"pipe_id": 0, **given})
        out = kernel.hbm(*array.shape, dtype=dst.dtype)
        kernel.copy(out, dst)
        outputs.append(out)
        if core == 0:
            kernel.switch_core()
    for out in outputs:
        kernel.output(out)
    return kernel.run()


SWAP = {"send_to_rank": (1, 0), "recv_from_rank": (1, 0)}
ITSELF = {"send_to_rank": (0, 1), "recv_from_rank": (0, 1)}


@pytest.mark.oracle("nisa.sendrecv")
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.int32, np.uint8])
@pytest.mark.parametrize(("ranks", "from_"), [(SWAP, (1, 0)), (ITSELF, (0, 1))])
def test_bits_arrive_as_they_were_sent(dtype: Any, ranks: Any, from_: tuple[int, int]) -> None:
    values = (counted(4, 3, dtype=dtype), counted(4, 3, dtype=dtype) + dtype(50))
    execution = exchange(values, ranks)
    assert not execution.faults
    for core, output in enumerate(execution.outputs):
        np.testing.assert_array_equal(output.values, values[from_[core]])


def test_a_nan_and_a_large_integer_survive() -> None:
    bits = np.array([[0x7FC12345, 0xFFFFFFFF]], np.uint32)
    execution = exchange((bits.view(np.float32), bits.view(np.float32)), SWAP)
    np.testing.assert_array_equal(execution.outputs[0].values.view(np.uint32), bits)


@pytest.mark.parametrize(
    ("ranks", "message"),
    [
        (
            {"send_to_rank": (1, 1), "recv_from_rank": (1, 0)},
            "sendrecv: core 0 receives from core 1, which sends to core 1 (kernel.py:5)",
        ),
        (
            {"send_to_rank": (1, 0), "recv_from_rank": (1, 1)},
            "sendrecv: core 0 sends to core 1, which receives from core 1 (kernel.py:5)",
        ),
        (
            {"send_to_rank": (2, 0), "recv_from_rank": (1, 0)},
            "sendrecv: send_to_rank is 2, the launch has cores 0 to 1 (kernel.py:5)",
        ),
        (
            {"send_to_rank": (1, 0), "recv_from_rank": (-1, 0)},
            "sendrecv: recv_from_rank is -1, the launch has cores 0 to 1 (kernel.py:5)",
        ),
    ],
)
def test_ranks_that_do_not_pair_up_have_no_meaning(ranks: Any, message: str) -> None:
    execution = exchange((counted(1, 1), counted(1, 1)), ranks)
    assert (execution.faults[0].kind, execution.faults[0].message) == ("no meaning", message)
    assert execution.outputs[0].written is not None and not execution.outputs[0].written.any()


def test_cores_that_send_another_dtype_have_no_meaning() -> None:
    execution = exchange((counted(1, 1), counted(1, 1, dtype=np.int32)), SWAP)
    assert [fault.message for fault in execution.faults][:2] == [
        "sendrecv: core 1 sends int32, dst of core 0 holds float32: use one dtype (kernel.py:5)",
        "sendrecv: core 0 sends float32, dst of core 1 holds int32: use one dtype (kernel.py:12)",
    ]


def test_only_the_receiver_of_an_undefined_element_gets_one() -> None:
    kernel = Kernel(lnc=2)
    outputs = []
    for core in range(2):
        src, dst, out = kernel.sbuf(1, 3), kernel.sbuf(1, 3), kernel.hbm(1, 3)
        kernel.call("memset", dst=src[:, 0 : 3 - core], value=1.0)
        kernel.call(
            "sendrecv", src=src, dst=dst, pipe_id=0, **{name: each[core] for name, each in SWAP.items()}
        )
        kernel.copy(out, dst)
        outputs.append(out)
        if core == 0:
            kernel.switch_core()
    for out in outputs:
        kernel.output(out)
    written = [output.written for output in kernel.run().outputs]
    np.testing.assert_array_equal(written[0], [[True, True, False]])
    assert written[1] is None


def test_another_pipe_is_another_call() -> None:
    execution = exchange((counted(1, 1), counted(1, 1)), {**SWAP, "pipe_id": (0, 1)})
    assert [fault.message for fault in execution.faults][:2] == [
        "sendrecv: core 0 waits here for core 1, which waits at sendrecv at kernel.py:12 with pipe_id 1 "
        "(kernel.py:5)",
        "sendrecv: core 1 waits here for core 0, which waits at sendrecv at kernel.py:5 with pipe_id 0 "
        "(kernel.py:12)",
    ]


# Limits

SENDRECV = Made(
    "sendrecv",
    {"src": T((LANES, 256)), "dst": T((LANES, 256))},
    {"send_to_rank": 1, "recv_from_rank": 1, "pipe_id": 0},
)
BARRIER = Made("core_barrier", {"data": T((8, 6), memory=Memory.shared_hbm)}, {"cores": (0, 1)})
GPSIMD = {"dma_engine": "gpsimd_dma"}


def breaches(call: Made, lnc: int = 2) -> list[str]:
    """What is wrong with a call of a launch on so many cores."""
    view = call.view()
    return [found.text for found in judge(replace(view, lnc=lnc))]


@pytest.mark.parametrize("call", [SENDRECV, BARRIER])
@pytest.mark.parametrize("release", ["0.2", "0.3", "0.4", "0.5", "0.6"])
@pytest.mark.parametrize("target", ["trn2", "trn3"])
def test_the_plain_calls_are_legal(call: Made, release: str, target: str) -> None:
    imms = {key: value for key, value in call.imms.items() if key != "dma_engine"}
    assert breaches(replace(call, imms=imms, nki=release, target=target)) == []


@pytest.mark.parametrize("call", [SENDRECV, BARRIER])
def test_both_need_two_cores(call: Made) -> None:
    assert breaches(call, lnc=1) == ["needs LNC=2, the kernel is launched with LNC=1"]


@pytest.mark.parametrize("call", [SENDRECV, BARRIER])
def test_both_need_the_third_generation(call: Made) -> None:
    assert breaches(call.changed({"target": "trn1"})) == ["needs NeuronCore-v3 or v4, not v2"]


@pytest.mark.parametrize("call", [SENDRECV, BARRIER])
def test_both_are_new_in_release_two(call: Made) -> None:
    assert "exists since NKI 0.2, not in NKI 0.1" in breaches(call.changed({"nki": "0.1"}))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"send_to_rank": 0, "recv_from_rank": 0}, []),
        ({"send_to_rank": 2}, ["send_to_rank is 2, must be 0 or 1"]),
        ({"recv_from_rank": -1}, ["recv_from_rank is -1, must be 0 or 1"]),
        ({"src.memory": Memory.psum}, ["src is in PSUM, expected SBUF"]),
        ({"dst.memory": Memory.hbm}, None),
        (
            {"dst.dtype": "int32"},
            ["dst dtype int32 differs from src dtype float32"],
        ),
        ({"src.shape": (32, 256)}, ["src partition size 32 differs from dst partition size 16"]),
        ({"src.shape": (LANES, 8)}, ["src free size 8 differs from dst free size 256"]),
        ({"src.shape": (128, 4), "dst.shape": (128, 4)}, []),
        (
            {"src.shape": (129, 4), "dst.shape": (129, 4)},
            ["src partition size 129 exceeds 128", "dst partition size 129 exceeds 128"],
        ),
        ({"src.shape": (LANES, 4096), "dst.shape": (LANES, 4096)}, []),
        (GPSIMD, []),
        (
            {**GPSIMD, "src.shape": (LANES, 257), "dst.shape": (LANES, 257)},
            ["src has 1028 bytes a partition, gpsimd_dma moves at most 1024 of dtype float32"],
        ),
        (
            {
                **GPSIMD,
                **{
                    f"{name}.{part}": value
                    for name in ("src", "dst")
                    for part, value in (("shape", (16, 257)), ("dtype", "bfloat16"))
                },
            },
            ["src has 514 bytes a partition, gpsimd_dma moves at most 512 of dtype bfloat16"],
        ),
        (
            {
                **GPSIMD,
                **{
                    f"{name}.{part}": value
                    for name in ("src", "dst")
                    for part, value in (("shape", (16, 257)), ("dtype", "uint8"))
                },
            },
            ["src has 257 bytes a partition, gpsimd_dma moves at most 256 of dtype uint8"],
        ),
        ({**GPSIMD, "src.shape": (17, 4), "dst.shape": (17, 4)}, []),
        (
            {**GPSIMD, "src.shape": (17, 4), "dst.shape": (17, 4), "nki": "0.3"},
            ["src has 17 partitions, gpsimd_dma needs a multiple of 16"],
        ),
        ({**GPSIMD, "src.shape": (32, 4), "dst.shape": (32, 4), "nki": "0.3"}, []),
        ({"src.shape": (17, 4), "dst.shape": (17, 4), "nki": "0.3"}, []),
        (
            {
                "use_gpsimd_dma": True,
                "src.shape": (17, 4),
                "dst.shape": (17, 4),
                "nki": "0.2",
            },
            ["src has 17 partitions, gpsimd_dma needs a multiple of 16"],
        ),
        (
            {
                "use_gpsimd_dma": False,
                "src.shape": (17, 4),
                "dst.shape": (17, 4),
                "nki": "0.2",
            },
            [],
        ),
    ],
)
def test_limits_of_sendrecv(changes: dict[str, Any], expected: list[str] | None) -> None:
    found = breaches(SENDRECV.changed(changes))
    if expected is None:
        assert "dst is in HBM, expected SBUF" in found
    else:
        assert found == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"cores": [0, 1]}, []),
        ({"cores": (1, 0)}, ["cores is (1, 0), must be (0, 1)"]),
        ({"cores": (0,)}, ["cores is (0,), must be (0, 1)"]),
        ({"cores": 2}, ["cores is 2, must be (0, 1)"]),
        ({"data.memory": Memory.hbm}, ["data is in HBM, expected shared_hbm or SBUF"]),
        ({"engine": Engine.scalar}, []),
        (
            {"engine": Engine.dma},
            ["engine dma is not allowed, expected gpsimd or tensor or vector or scalar or sync"],
        ),
    ],
)
def test_limits_of_core_barrier(changes: dict[str, Any], expected: list[str]) -> None:
    assert breaches(BARRIER.changed(changes)) == expected


@pytest.mark.parametrize(("release", "engine"), [("0.2", Engine.unknown), ("0.3", Engine.gpsimd)])
def test_the_default_engine_of_a_barrier_is_named_since_release_three(release: str, engine: Engine) -> None:
    params = {param.name: param.default for param in row("core_barrier").parameters(Release.parse(release))}
    assert params["engine"] is engine
    assert (
        BARRIER.changed({"nki": release, "engine": params["engine"]}).view().resolved_engine()
        is Engine.gpsimd
    )


@pytest.mark.parametrize("release", ["0.2", "0.6"])
def test_the_engine_of_sendrecv_replaced_a_flag(release: str) -> None:
    names = {param.name for param in row("sendrecv").parameters(Release.parse(release))}
    assert ("use_gpsimd_dma" in names, "dma_engine" in names) == (release == "0.2", release == "0.6")

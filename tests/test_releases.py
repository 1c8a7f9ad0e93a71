"""What each release of the current generation changes in a verdict: both sides of its border, and "
"the sentence"

Each case names the line of the public documents that announces the change: RN is release-notes/components/nki.rst, MIG
nki/migration/index.rst, STUB a function of nki/api/nki/{isa,language}/__init__.py, a tag one of that repository.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from nl_kernels import nisa, nl

from nkireview.execute import execute
from nkireview.execute.result import Execution
from nkireview.isa.enums import Memory
from nkireview.isa.names import changed_names
from nkireview.isa.release import KNOWN, LEGACY, Release
from nkireview.nki import collectives, jit, launch
from nkireview.nki.errors import NotYetSupported, Refusal
from nkireview.nki.tensor import NkiTensor
from nkireview.nki.trace import Trace, tracing
from nkireview.program.model import Header
from nkireview.program.program import Program
from nkireview.program.verify import verify

ncc = collectives.namespace()
CURRENT = [str(release) for release in KNOWN if release != LEGACY]
FP32_MIN = -3.4028235e38


def record(
    kernel: Callable[..., Any],
    release: str,
    arrays: tuple[np.ndarray, ...] = (),
    target: str = "trn2",
    lnc: int = 1,
) -> Program:
    """The Program of a kernel over arrays in shared HBM."""
    trace = Trace(target, Release.parse(release), lnc)
    buffers = [trace.buffer(Memory.shared_hbm, array.shape, array.dtype.name) for array in arrays]
    returned = launch.run_cores(
        trace, kernel, lambda: ([NkiTensor.whole(trace, buffer) for buffer in buffers], {})
    )
    outputs = tuple(launch.outputs(trace, returned, {}))
    header = Header("k", target, release, lnc, sources=tuple(trace.places.sources))
    return trace.builder.finish(header, outputs=outputs)


def said(kernel: Callable[..., Any], release: str, target: str = "trn2", lnc: int = 1) -> list[str]:
    """What is wrong with a kernel: why it is refused, else the sentences of `verify`, without "
    "target and place."""
    try:
        program = record(kernel, release, target=target, lnc=lnc)
    except Refusal as refusal:
        return [str(refusal)]
    return [re.sub(r" on trn\d( \(.*\))?$", "", found.message) for found in verify(program)]


def ran(kernel: Callable[..., Any], release: str, *arrays: np.ndarray, target: str = "trn2") -> Execution:
    """A legal kernel on arrays."""
    program = record(kernel, release, arrays, target)
    assert verify(program) == ()
    return execute(program, dict(enumerate(arrays)))


def value(kernel: Callable[..., Any], release: str, *arrays: np.ndarray, target: str = "trn2") -> np.ndarray:
    """What a legal kernel returns, without faults."""
    execution = ran(kernel, release, *arrays, target=target)
    assert execution.faults == ()
    return np.asarray(execution.outputs[0].values)


def events(kernel: Callable[..., Any], release: str, kind: str) -> list[str]:
    """The events of a kind that a trace leaves."""
    return [event.detail for event in record(kernel, release).events if event.kind == kind]


def sbuf(*shape: int, dtype: Any = None) -> NkiTensor:
    return nl.ndarray(shape, dtype or nl.float32, buffer=nl.sbuf)


def psum(*shape: int, dtype: Any = None) -> NkiTensor:
    return nl.ndarray(shape, dtype or nl.float32, buffer=nl.psum)


def hbm(*shape: int, dtype: Any = None) -> NkiTensor:
    return nl.ndarray(shape, dtype or nl.float32, buffer=nl.shared_hbm)


def loaded(x: NkiTensor) -> NkiTensor:
    tile = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    return tile


def stored(tile: NkiTensor) -> NkiTensor:
    out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


@dataclass(frozen=True)
class Border:
    """A change: the kernel that shows it and, for a release on each side, what is wrong with it there."""

    name: str
    source: str
    kernel: Callable[..., Any]
    found: Mapping[str, list[str]]
    target: str = "trn2"
    lnc: int = 1


def since(keyword: str, first: str, before: str) -> dict[str, list[str]]:
    """A parameter (``row.name``) that came: legal in `first`, refused by `verify` in `before`."""
    row, name = keyword.split(".")
    return {
        before: [f"{row}: parameter {name} exists since NKI {first}, not in NKI {before}"],
        first: [],
    }


def until(keyword: str, last: str, first: str) -> dict[str, list[str]]:
    """A parameter (``row.name``) that went: legal in `last`, refused by `verify` in `first`."""
    row, name = keyword.split(".")
    return {
        last: [],
        first: [f"{row}: parameter {name} exists before NKI {first}, not in NKI {first}"],
    }


def named(what: str, first: str, before: str) -> dict[str, list[str]]:
    """An instruction that came."""
    return {before: [f"{what}: exists since NKI {first}, not in NKI {before}"], first: []}


COPY_TYPES = "MIG:435-454"


def _indirect_transpose(columns: int, source_dims: int = 2) -> Callable[[], None]:
    def kernel() -> None:
        index = sbuf(64, 1, dtype=nl.uint32)
        nisa.memset(index, 0)
        src = hbm(512, *([1] * (source_dims - 2)), columns, dtype=nl.bfloat16)
        inner = [[columns, 64], *([[columns, 1]] * (source_dims - 2)), [1, columns]]
        view = src.ap(inner, offset=0, vector_offset=index, indirect_dim=0)
        shape = (columns, *([1] * (source_dims - 2)), 64)
        nisa.dma_transpose(dst=sbuf(*shape, dtype=nl.bfloat16), src=view)

    return kernel


def _register_offset_transpose(oob: bool) -> Callable[[], None]:
    def kernel() -> None:
        src = hbm(64, 64, dtype=nl.bfloat16)
        row = nisa.register_alloc(0)
        view = src.ap([[64, 32], [1, 64]], offset=0, scalar_offset=row, indirect_dim=0)
        mode = {"oob_mode": nisa.oob_mode.skip} if oob else {}
        nisa.dma_transpose(dst=sbuf(64, 32, dtype=nl.bfloat16), src=view, **mode)

    return kernel


def _gather_add() -> None:
    index = sbuf(64, 1, dtype=nl.uint32)
    src = hbm(512, 32)
    view = src.ap([[32, 64], [1, 32]], offset=0, vector_offset=index, indirect_dim=0)
    dst = sbuf(64, 32)
    nisa.dma_compute(dst, [view, dst], reduce_op=nl.add, scales=[1.0, 1.0])


def _tile_from(*arguments: Any, **named_arguments: Any) -> NkiTensor:
    return nl.ndarray((128, 64), nl.float32, *arguments, **named_arguments)


def _in_loop(body: Callable[[Any, NkiTensor], object]) -> Callable[[], None]:
    def kernel() -> None:
        tile = sbuf(128, 64)
        for i in nl.dynamic_range(4):
            body(i, tile)

    return kernel


def _max8(name: str, *free: int) -> Callable[[], None]:
    def kernel() -> None:
        data = sbuf(128, *free)
        if name == "max8":
            nisa.max8(sbuf(128, 8), data)
        else:
            nisa.nc_find_index8(sbuf(128, 8, dtype=nl.uint32), data, sbuf(128, 8))

    return kernel


def _mx(columns: int, scale: str = "uint8") -> Callable[[], None]:
    def kernel() -> None:
        four = nl.float8_e5m2_x4
        stationary, moving = sbuf(128, 128, dtype=four), sbuf(128, columns, dtype=four)
        scales = [sbuf(128, n, dtype=getattr(nl, scale)) for n in (128, columns)]
        nisa.nc_matmul_mx(
            psum(128, columns, dtype=nl.bfloat16),
            stationary,
            moving,
            stationary_scale=scales[0],
            moving_scale=scales[1],
        )

    return kernel


def _send(**mode: Any) -> Callable[[], None]:
    def kernel() -> None:
        other = 1 - nl.program_id(0)
        rows = mode.pop("rows", 128) if "rows" in mode else 128
        nisa.sendrecv(
            src=sbuf(rows, 4), dst=sbuf(rows, 4), send_to_rank=other, recv_from_rank=other, pipe_id=0, **mode
        )
        mode["rows"] = rows

    return kernel


def _hardware_transpose(*shape: int) -> Callable[[], None]:
    def kernel() -> None:
        nisa.dma_transpose(
            dst=sbuf(*shape[::-1], dtype=nl.bfloat16),
            src=hbm(*shape, dtype=nl.bfloat16),
            dge_mode=nisa.dge_mode.hwdge,
        )

    return kernel


BORDERS = [
    # 0.2
    *(
        Border(
            f"{name}= is gone with the legacy generation",
            "RN:713-714; MIG:896-916; RN:639-643",
            lambda name=name: nisa.memset(sbuf(128, 64), 0.0, **{name: None}),
            {"0.2": [], "0.3": [f"memset: unknown argument {name!r}, expected dst, value, engine, name"]},
        )
        for name in ("mask", "dtype")
    ),
    Border(
        "the operation is no first argument any more",
        "RN:713-714",
        lambda: nisa.activation(nl.exp, sbuf(128, 64)),
        {release: ["activation: dst must be a tensor, got Operator"] for release in ("0.2", "0.6")},
    ),
    Border(
        "memset has no shape",
        "RN:715-718",
        lambda: nisa.memset(shape=(128, 64), value=0.0),
        {
            "0.2": ["memset: argument 'dst' is missing"],
            "0.6": ["memset: unknown argument 'shape', expected dst, value, engine, name"],
        },
    ),
    Border(
        "nc_stream_shuffle: dst comes first",
        "RN:715-718",
        lambda: nisa.nc_stream_shuffle(hbm(128, 64)[0:32, :], sbuf(32, 64), list(range(32))),
        {
            release: [
                "nc_stream_shuffle: dst is in shared_hbm, expected SBUF or PSUM",
                "nc_stream_shuffle: dst free size 2048 differs from src free size 64",
            ]
            for release in ("0.2", "0.6")
        },
    ),
    Border(
        "the bias of an activation is one column",
        "RN:629-633",
        lambda: nisa.activation(sbuf(128, 64), nl.exp, sbuf(128, 64), bias=sbuf(128, 64)),
        {
            release: ["activation: bias free size is 64, must be 1; a vector has one element a partition"]
            for release in ("0.2", "0.6")
        },
    ),
    *(
        Border(
            f"an indirect dma_transpose: {name}",
            source,
            kernel,
            found,
        )
        for name, source, kernel, found in (
            (
                "three dimensions in 0.2",
                "RN:560; STUB dma_transpose at v2.28.1",
                _indirect_transpose(128),
                {
                    "0.2": [
                        "dma_transpose: src shape (64, 128) must have 3 dimensions in an indirect transpose"
                    ],
                    "0.3": [],
                },
            ),
            (
                "exactly 128 columns before 0.4",
                "RN:253",
                _indirect_transpose(64),
                {
                    "0.3": [
                        "dma_transpose: last dimension of src is 64, must be 128 in an indirect transpose"
                    ],
                    "0.4": [],
                },
            ),
        )
    ),
    # 0.3
    Border(
        "dma_copy reads no PSUM",
        "MIG:419-433",
        lambda: nisa.dma_copy(dst=hbm(128, 64), src=psum(128, 64)),
        {
            "0.2": [],
            "0.3": [
                "dma_copy: src is in PSUM, which a DMA cannot read; copy it to SBUF with tensor_copy first"
            ],
        },
    ),
    Border(
        "hardware DGE does not cast",
        COPY_TYPES,
        lambda: nisa.dma_copy(
            dst=sbuf(128, 64, dtype=nl.bfloat16), src=hbm(128, 64), dge_mode=nisa.dge_mode.hwdge
        ),
        {
            "0.2": [],
            "0.3": [
                "dma_copy: src dtype float32 differs from dst dtype bfloat16, which dge_mode=hwdge "
                "cannot cast"
            ],
        },
    ),
    Border(
        "dma_copy adds no more",
        "MIG:456-495",
        lambda: nisa.dma_copy(dst=hbm(128, 64), src=sbuf(128, 64), dst_rmw_op=nl.add),
        until("dma_copy.dst_rmw_op", "0.2", "0.3"),
    ),
    Border(
        "dma_copy has no unique_indices, not even at its default",
        "MIG:456-495",
        lambda: nisa.dma_copy(dst=hbm(128, 64), src=sbuf(128, 64), unique_indices=True),
        {
            "0.2": [],
            "0.3": [
                "dma_copy: parameter unique_indices exists since NKI 0.2 and before NKI 0.3, not in NKI 0.3"
            ],
        },
    ),
    Border(
        "memset fills integers with integers",
        "MIG:497-512",
        lambda: nisa.memset(sbuf(128, 64, dtype=nl.int32), 2.0),
        {"0.2": [], "0.3": ["memset: value 2.0 is a float, dst dtype int32 needs an integer"]},
    ),
    Border(
        "packed types take 0 alone",
        "MIG:745-763",
        lambda: nisa.memset(sbuf(128, 64, dtype=nl.float8_e5m2_x4), 1),
        {"0.2": [], "0.3": ["memset: value is 1, packed dst dtype float8_e5m2_x4 takes only 0"]},
        "trn3",
    ),
    Border(
        "dma_compute: the order of its arguments",
        "MIG:524-536",
        lambda: nisa.dma_compute(hbm(128, 64), [sbuf(128, 64), sbuf(128, 64)], [1.0, 1.0], nl.add),
        {
            "0.2": [],
            "0.3": [
                "dma_compute: reduce_op (1.0, 1.0) is not supported, a DMA only adds",
                "dma_compute: scales add must all be 1.0",
            ],
        },
    ),
    Border(
        "dma_compute needs scales",
        "STUB dma_compute at v2.28.1 and v2.29.1",
        lambda: nisa.dma_compute(hbm(128, 64), [sbuf(128, 64)], reduce_op=nl.add),
        {"0.2": ["dma_compute: scales is missing, NKI before 0.3 needs a 1.0 for each of srcs"], "0.3": []},
    ),
    Border(
        "dma_compute gathers",
        "STUB dma_compute at v2.28.1 and v2.29.1",
        _gather_add,
        {
            "0.2": ["dma_compute: srcs[0] has a vector index, which dma_compute takes since NKI 0.3"],
            "0.3": [],
        },
    ),
    Border(
        "sendrecv: use_gpsimd_dma",
        "MIG:538-551",
        _send(use_gpsimd_dma=True),
        {
            "0.2": [],
            "0.3": ["sendrecv: parameter use_gpsimd_dma exists before NKI 0.3, not in NKI 0.3"],
        },
        lnc=2,
    ),
    Border(
        "sendrecv: dma_engine",
        "MIG:538-551,669-676",
        _send(dma_engine=nisa.dma_engine.dma),
        {"0.2": ["sendrecv: parameter dma_engine exists since NKI 0.3, not in NKI 0.2"], "0.3": []},
        lnc=2,
    ),
    Border(
        "sendrecv by GpSimd of any partitions",
        "RN:251",
        _send(dma_engine=nisa.dma_engine.gpsimd_dma, rows=17),
        {
            "0.3": [
                "sendrecv: src has 17 partitions, gpsimd_dma needs a multiple of 16",
            ],
            "0.4": [],
        },
        lnc=2,
    ),
    Border(
        "affine_select: offset in third place",
        "MIG:553-565",
        lambda: nisa.affine_select(sbuf(128, 64), [[1, 64]], 0, 1, sbuf(128, 64), 0.0),
        {"0.2": [], "0.3": ["affine_select: on_false_value cannot be a NkiTensor"]},
    ),
    Border(
        "affine_select: a default for offset",
        "STUB affine_select at v2.28.1 and v2.29.1",
        lambda: nisa.affine_select(
            dst=sbuf(128, 64),
            pattern=[[1, 64]],
            channel_multiplier=1,
            on_true_tile=sbuf(128, 64),
            on_false_value=0.0,
        ),
        {
            "0.2": ["affine_select: argument 'offset' is missing, it has a default since NKI 0.3"],
            "0.3": [],
        },
    ),
    Border(
        "iota: a default for offset",
        "RN:425",
        lambda: nisa.iota(sbuf(128, 64), [[1, 64]]),
        {"0.2": ["iota: argument 'offset' is missing, it has a default since NKI 0.3"], "0.3": []},
    ),
    Border(
        "register_move: imm is called src",
        "MIG:567-581",
        lambda: nisa.register_move(nisa.register_alloc(0), imm=1),
        {"0.2": [], "0.3": ["register_move: argument 'src' is missing"]},
    ),
    Border(
        "results are in shared HBM",
        "MIG:608-620",
        lambda: (out := nl.ndarray((128, 64), nl.float32, buffer=nl.hbm), nisa.dma_copy(out, sbuf(128, 64)))[
            0
        ],
        {"0.2": [], "0.3": ["output out: is returned from nl.hbm, expected nl.shared_hbm since NKI 0.3"]},
    ),
    Border(
        "buffers have no string names",
        "MIG:645-667",
        lambda: _tile_from(buffer="psum") and None,
        {
            "0.2": [],
            "0.3": [
                "nl.ndarray: the string 'psum' for buffer was taken before NKI 0.3, this kernel is "
                "judged by 0.3; "
                "use nl.psum"
            ],
        },
    ),
    Border(
        "platform_target= of a decorator",
        "MIG:387-412",
        lambda: jit.jit(platform_target="trn2"),
        {
            "0.2": [],
            "0.3": ["nki.jit: platform_target= is refused since NKI 0.3; set the target outside the kernel"],
        },
    ),
    Border(
        "mode= of a decorator has no effect",
        "MIG:387-412",
        lambda: jit.jit(mode="trace"),
        {"0.2": [], "0.3": [], "0.6": []},
    ),
    Border(
        "range_select: on_false_value is FP32_MIN",
        "RN:448; MIG:765-775",
        lambda: nisa.range_select(
            sbuf(128, 64),
            on_true_tile=sbuf(128, 64),
            comp_op0=nl.greater_equal,
            comp_op1=nl.less,
            bound0=sbuf(128, 1),
            bound1=sbuf(128, 1),
            on_false_value=0.0,
        ),
        {
            "0.2": [],
            "0.3": ["range_select: on_false_value is 0.0, must be FP32_MIN (-3.4028235e+38)"],
        },
    ),
    *(
        Border(
            f"accumulate= of {name}",
            "MIG:353-364",
            kernel,
            since(f"{name}.accumulate", "0.3", "0.2"),
            target,
        )
        for name, target, kernel in (
            (
                "nc_matmul",
                "trn2",
                lambda: nisa.nc_matmul(psum(128, 64), sbuf(128, 128), sbuf(128, 64), accumulate=False),
            ),
            (
                "nc_matmul_mx",
                "trn3",
                lambda: nisa.nc_matmul_mx(
                    psum(128, 512),
                    sbuf(128, 128, dtype=nl.float8_e5m2_x4),
                    sbuf(128, 512, dtype=nl.float8_e5m2_x4),
                    stationary_scale=sbuf(128, 128, dtype=nl.uint8),
                    moving_scale=sbuf(128, 512, dtype=nl.uint8),
                    accumulate=False,
                ),
            ),
        )
    ),
    Border(
        "program_id: a default for its axis",
        "RN:431",
        lambda: nl.program_id() and None,
        {
            "0.2": [
                "nl.program_id needs an axis: there are defaults since NKI 0.3, this kernel is judged by 0.2"
            ],
            "0.3": [],
        },
    ),
    *(
        Border(
            f"name= of {name}",
            f"STUB {name} at v2.28.1 and v2.29.1",
            kernel,
            {
                "0.2": [f"{name}: argument 'name' exists since NKI 0.3, this kernel is judged by 0.2"],
                "0.3": [],
            },
            target,
        )
        for name, target, kernel in (
            (
                "tensor_scalar_cumulative",
                "trn2",
                lambda: nisa.tensor_scalar_cumulative(
                    sbuf(128, 64), sbuf(128, 64), nl.multiply, nl.add, 1.0, name="a"
                ),
            ),
            ("exponential", "trn3", lambda: nisa.exponential(sbuf(128, 64), sbuf(128, 64), name="a")),
            (
                "nonzero_with_count",
                "trn2",
                lambda: nisa.nonzero_with_count(sbuf(128, 65, dtype=nl.int32), sbuf(128, 64), name="a"),
            ),
        )
    ),
    Border(
        "engine= of dma_copy",
        "STUB dma_copy at v2.28.1 and v2.29.1",
        lambda: nisa.dma_copy(dst=sbuf(128, 64), src=hbm(128, 64), engine=nisa.engine.unknown),
        {
            "0.2": ["dma_copy: argument 'engine' exists since NKI 0.3, this kernel is judged by 0.2"],
            "0.3": [],
        },
    ),
    Border(
        "the bias of an activation has any dtype",
        "STUB activation at v2.28.1 and v2.29.1",
        lambda: nisa.activation(sbuf(128, 64), nl.exp, sbuf(128, 64), bias=sbuf(128, 1, dtype=nl.int32)),
        {
            "0.2": [
                "activation: bias dtype int32 is not allowed, expected one of bfloat16, float16, float32"
            ],
            "0.3": [],
        },
    ),
    Border(
        "an induction variable as an offset",
        "RN:300,483",
        _in_loop(
            lambda i, tile: nisa.dma_copy(
                dst=tile[0:1, :], src=hbm(4, 64).ap([[64, 1], [1, 64]], scalar_offset=i, indirect_dim=0)
            )
        ),
        {
            "0.3": [
                "ap scalar_offset: the induction variable of nl.dynamic_range is a plain scalar "
                "until NKI 0.4 and "
                "cannot address a tensor; count in a (1, 1) tile and pass that"
            ],
            "0.4": [],
        },
    ),
    # 0.4
    Border(
        "an induction variable cannot be written",
        "RN:300",
        _in_loop(lambda i, tile: nisa.register_move(i, 5) and None),
        {
            "0.3": [],
            "0.4": [
                "register_move: dst is the induction variable of a device-side loop, which cannot be "
                "written; move it to "
                "a register of its own with nisa.register_move"
            ],
        },
    ),
    Border(
        "dma_transpose: the exact shape of dst",
        "RN:271",
        lambda: nisa.dma_transpose(
            dst=sbuf(64, 1, 32, dtype=nl.bfloat16),
            src=hbm(32, 1, 1, 64, dtype=nl.bfloat16),
        ),
        {
            "0.3": [],
            "0.4": [
                "dma_transpose: dst shape (64, 1, 32) must be (64, 1, 1, 32), that of src "
                "transposed, in rank too"
            ],
        },
    ),
    Border(
        "nc_transpose on Vector",
        "RN:302",
        lambda: nisa.nc_transpose(psum(64, 64), sbuf(64, 64), engine=nisa.engine.vector),
        {
            "0.3": [],
            "0.4": [
                "nc_transpose: data is 64 x 64 (partitions x elements), the vector engine transposes "
                "at most 32 x 32; the "
                "tensor engine, which writes to PSUM, takes more"
            ],
        },
    ),
    Border(
        "activate2",
        "RN:224-246",
        lambda: nisa.activate2(
            sbuf(128, 64), nl.exp, sbuf(128, 64), imm0=1.0, imm1=0.0, op0=nl.multiply, op1=nl.add
        ),
        named("activate2", "0.4", "0.3"),
        "trn3",
    ),
    *(
        Border(
            f"{op} as op0",
            "RN:224-246",
            lambda op=op: nisa.tensor_scalar(sbuf(128, 64), sbuf(128, 64), getattr(nl, op), None),
            {"0.3": [f"tensor_scalar: op0 {op} is no ALU operator in NKI 0.3"], "0.4": []},
            "trn3",
        )
        for op in ("square", "relu")
    ),
    Border(
        "a unary op0 takes no operand",
        "STUB tensor_scalar at v2.29.1 and v2.30.0",
        lambda: nisa.tensor_scalar(sbuf(128, 64), sbuf(128, 64), nl.abs, 1.0),
        {"0.3": [], "0.4": ["tensor_scalar: op0 abs is unary, operand0 must be None or 0"]},
    ),
    Border(
        "e4m3fn in nc_matmul",
        "RN:244",
        lambda: nisa.nc_matmul(
            psum(128, 64), sbuf(128, 128, dtype=nl.float8_e4m3fn), sbuf(128, 64, dtype=nl.float8_e4m3fn)
        ),
        {
            "0.3": [
                "nc_matmul: stationary dtype float8_e4m3fn is not allowed before NKI 0.4",
            ],
            "0.4": [],
        },
        "trn3",
    ),
    Border(
        "oob_mode of dma_compute",
        "RN:224-246",
        lambda: nisa.dma_compute(
            hbm(128, 64), [sbuf(128, 64)], reduce_op=nl.add, oob_mode=nisa.oob_mode.error
        ),
        since("dma_compute.oob_mode", "0.4", "0.3"),
    ),
    Border(
        "priority of a DMA",
        "RN:224-246",
        lambda: nisa.dma_copy(dst=sbuf(128, 64), src=hbm(128, 64), priority=1),
        since("dma_copy.priority", "0.4", "0.3"),
        "trn3",
    ),
    Border(
        "priority without DGE",
        "STUB dma_copy at v2.30.0",
        lambda: nisa.dma_copy(dst=sbuf(128, 64), src=hbm(128, 64), priority=1, dge_mode=nisa.dge_mode.none),
        {"0.4": ["dma_copy: priority=1 is not supported with dge_mode=none in NKI 0.4"], "0.5": []},
        "trn3",
    ),
    *(
        Border(
            f"{name} of three dimensions at most",
            "STUB max8, nc_find_index8 at v2.29.1 and v2.30.0",
            _max8(name, 2, 2, 8),
            {"0.3": [], "0.4": [f"{name}: {data} number of dimensions 4 exceeds 3"]},
        )
        for name, data in (("max8", "src"), ("nc_find_index8", "data"))
    ),
    *(
        Border(
            f"{name} of tensor_scalar_reduce",
            "STUB tensor_scalar_reduce at v2.29.1 and v2.30.0",
            lambda name=name, given=given: nisa.tensor_scalar_reduce(
                sbuf(128, 64), sbuf(128, 64), nl.multiply, 2.0, nl.add, sbuf(128, 1), **{name: given}
            ),
            {
                before: ["tensor_scalar_reduce: parameter reduce_init exists since NKI 0.4, not in NKI 0.3"],
                first: [
                    "tensor_scalar_reduce: reduce_init is 0.5, only reduce_cmd load_reduce takes it, "
                    "reduce_cmd is "
                    "reset_reduce"
                ],
            }
            if name == "reduce_init"
            else since(f"tensor_scalar_reduce.{name}", first, before),
        )
        for name, given, first, before in (
            ("reduce_cmd", nisa.reduce_cmd.reset_reduce, "0.4", "0.3"),
            ("reduce_init", 0.5, "0.4", "0.3"),
            ("reduce_res_negate", False, "0.6", "0.5"),
        )
    ),
    Border(
        "an operand that is left out by name",
        "STUB tensor_scalar_reduce at v2.29.1 and v2.30.0",
        lambda: nisa.tensor_scalar_reduce(
            sbuf(128, 64), sbuf(128, 64), nl.multiply, 2.0, nl.add, sbuf(128, 1), reduce_init=None
        ),
        {
            "0.3": [
                "tensor_scalar_reduce: argument 'reduce_init' exists since NKI 0.4, this kernel is "
                "judged by 0.3"
            ],
            "0.4": [],
        },
    ),
    Border(
        "subtract as reduce_op of tensor_scalar_reduce",
        "STUB tensor_scalar_reduce at v2.29.1 and v2.30.0",
        lambda: nisa.tensor_scalar_reduce(
            sbuf(128, 64), sbuf(128, 64), nl.multiply, 2.0, nl.subtract, sbuf(128, 1)
        ),
        {
            "0.3": [],
            "0.4": [
                "tensor_scalar_reduce: reduce_op is subtract, must be one of add, multiply, maximum, minimum"
            ],
        },
    ),
    *(
        Border(
            f"{name} left NKI",
            "RN:264",
            lambda name=name: getattr(nisa, name)(sbuf(128, 64), sbuf(128, 64)),
            {
                "0.4": [
                    f"nisa.{name} exists before NKI 0.4, this kernel is judged by 0.4; use nisa.tensor_copy with "
                    ".ap(scalar_offset=...)"
                ]
            },
        )
        for name in ("tensor_copy_dynamic_src", "tensor_copy_dynamic_dst")
    ),
    # 0.5
    Border(
        "nl.rsqrt takes no PSUM",
        "MIG:159-164",
        lambda: nl.rsqrt(psum(128, 64)) and None,
        {
            "0.4": [],
            "0.5": [
                "tensor_scalar: data is in PSUM, which the GpSimd engine cannot access; copy it to SBUF first"
            ],
        },
    ),
    Border(
        "reshape keeps the number of elements: before 0.5 nothing said so",
        "MIG:166-173",
        lambda: hbm(128, 64).reshape((128, 32)) and None,
        {release: ["reshape(128, 32) has not the 8192 elements of the view"] for release in ("0.4", "0.5")},
    ),
    *(
        Border(
            f"NkiTensor.{name}",
            "RN:127-148",
            lambda call=call: call(hbm(128, 64)) and None,
            {
                "0.4": [f"NkiTensor.{name} exists since NKI 0.5, this kernel is judged by 0.4"],
                "0.5": [],
            },
        )
        for name, call in (
            ("slice", lambda t: t.slice(1, 0, 8)),
            ("select", lambda t: t.select(1, 0)),
            ("permute", lambda t: t.permute((1, 0))),
            ("broadcast", lambda t: t[0:1, :].broadcast(0, 4)),
            ("expand_dim", lambda t: t.expand_dim(1)),
            ("squeeze_dim", lambda t: t[0:1, :].squeeze_dim(0)),
            ("reshape_dim", lambda t: t.reshape_dim(1, (8, 8))),
            ("flatten_dims", lambda t: t.flatten_dims(0, 1)),
            ("rearrange", lambda t: t.rearrange(("a", "b"), ("b", "a"))),
            ("vector_select", lambda t: t.vector_select(0, sbuf(64, 1, dtype=nl.int32))),
            ("is_contiguous", lambda t: t.is_contiguous()),
            ("is_indirect", lambda t: t.is_indirect()),
            ("indirect", lambda t: sbuf(128, 64).indirect(sbuf(128, 1, dtype=nl.uint16))),
        )
    ),
    Border(
        "a bfloat16 matmul of 8192 columns",
        "RN:150-152",
        lambda: nisa.nc_matmul(
            psum(128, 4097, dtype=nl.bfloat16),
            sbuf(128, 128, dtype=nl.bfloat16),
            sbuf(128, 4097, dtype=nl.bfloat16),
        ),
        {"0.4": ["nc_matmul: moving free size 4097 exceeds 4096"], "0.5": []},
        "trn3",
    ),
    Border(
        "nc_matmul_mx of more than 1024 columns",
        "STUB nc_matmul_mx at v2.30.0 and v2.31.1",
        _mx(1026),
        {
            "0.4": [
                "nc_matmul_mx: moving free size 1026 exceeds 1024 before NKI 0.5",
                "nc_matmul_mx: dst spans PSUM banks 0 to 1, a matmul result must lie in one bank of "
                "2048 bytes",
            ],
            "0.5": [],
        },
        "trn3",
    ),
    Border(
        "scales in float8_e8m0fnu",
        "RN:123-125",
        _mx(512, "float8_e8m0fnu"),
        {
            "0.4": ["nl.float8_e8m0fnu exists since NKI 0.5, this kernel is judged by 0.4"],
            "0.5": [],
        },
        "trn3",
    ),
    Border(
        "scales in uint8 are still taken",
        "RN:123-125",
        _mx(512),
        {"0.4": [], "0.5": [], "0.6": []},
        "trn3",
    ),
    Border(
        "dma_transpose skips with a scalar offset",
        "RN:154",
        _register_offset_transpose(oob=True),
        {
            "0.4": [
                "dma_transpose: oob_mode=skip needs a vector index on src before NKI 0.5, it has a "
                "register index",
            ],
            "0.5": [],
        },
    ),
    # 0.6
    Border(
        "local_gather ignores num_elem_per_idx, a known issue",
        "RN:100-103",
        lambda: nisa.local_gather(
            sbuf(128, 64), sbuf(128, 512), sbuf(128, 4, dtype=nl.uint16), num_elem_per_idx=2
        ),
        {
            "0.5": ["local_gather: dst free size is 64, 64 indices of 2 elements give 128"],
            "0.6": [
                "local_gather: num_elem_per_idx 2 is ignored: dst free size is 64, for 64 indices it "
                "must be 128"
            ],
        },
    ),
    Border(
        "dma_compute: an address from a register needs a vector offset",
        "STUB dma_compute:2692-2699",
        lambda: nisa.dma_compute(
            dst := sbuf(4, 64),
            [hbm(16, 64).ap([[64, 4], [1, 64]], scalar_offset=nisa.register_alloc(0)), dst],
            reduce_op=nl.add,
        ),
        {
            release: [
                "dma_compute: srcs[0] has a register index: dma_compute needs addresses known at "
                "compile time, or a "
                "vector index"
            ]
            for release in ("0.4", "0.6")
        },
    ),
    Border(
        "more than 128 partitions: the same verdict, whatever the release",
        "RN:50-51",
        lambda: nisa.memset(sbuf(129, 64), 0.0),
        {release: ["memset: dst partition size 129 exceeds 128"] for release in ("0.5", "0.6")},
    ),
    Border(
        "nl.copy reads PSUM",
        "RN:43-45",
        lambda: nl.copy(psum(128, 64)) and None,
        {"0.5": [], "0.6": []},
    ),
    Border(
        "dma_transpose by hardware: fewer rows",
        "RN:37-39; STUB dma_transpose at v2.30.0",
        _hardware_transpose(8, 4, 128),
        {
            "0.5": ["dma_transpose: src shape (8, 4, 128) must begin with 16 with dge_mode=hwdge"],
            "0.6": [],
        },
    ),
    Border(
        "dma_transpose by hardware: fewer columns",
        "RN:37-39; STUB dma_transpose at v2.30.0",
        _hardware_transpose(16, 64),
        {
            "0.5": ["dma_transpose: src shape (16, 64) must end with a multiple of 128 with dge_mode=hwdge"],
            "0.6": [],
        },
    ),
    Border(
        "tensor_scalar_reduce without reduce_res",
        "RN:40-42",
        lambda: nisa.tensor_scalar_reduce(sbuf(128, 64), sbuf(128, 64), nl.multiply, 2.0, nl.add),
        {
            "0.5": ["tensor_scalar_reduce: reduce_res is missing, it may be left out since NKI 0.6"],
            "0.6": [],
        },
    ),
    Border(
        "topk",
        "RN:33-36",
        lambda: nisa.topk(
            sbuf(16, 1, dtype=nl.bfloat16),
            sbuf(16, 1, dtype=nl.uint32),
            sbuf(16, 64, dtype=nl.bfloat16),
            n=1024,
        ),
        named("topk", "0.6", "0.5"),
    ),
    Border(
        "depends_on",
        "STUB NkiInstruction",
        lambda: bool([nisa.memset(sbuf(128, 64), 0.0).depends_on()]),
        {
            "0.5": ["NkiInstruction.depends_on exists since NKI 0.6, this kernel is judged by 0.5"],
            "0.6": [],
        },
    ),
]


@pytest.mark.parametrize(
    ("border", "release"),
    [
        pytest.param(border, release, id=f"{border.name}, {release}")
        for border in BORDERS
        for release in border.found
    ],
)
def test_both_sides_of_a_border(border: Border, release: str) -> None:
    assert said(border.kernel, release, border.target, border.lnc) == border.found[release], border.source


NAMES = sorted(
    name
    for name in changed_names()
    # a parameter is no name of the namespace: test_a_parameter_of_a_function has it
    if name.startswith("nki.language.") and not name.endswith(".dst")
)


@pytest.mark.parametrize("full", NAMES)
def test_names_of_the_language_are_there_in_their_releases(full: str) -> None:
    """Every name of the table is refused in the releases that lack it, and only there."""
    name = changed_names()[full]
    path = full.removeprefix("nki.language.").split(".")
    for release in map(Release.parse, CURRENT):
        with tracing(Trace("trn2", release)):
            found: Any = nl
            try:
                for part in path:
                    found = getattr(found, part)
            except Refusal as refusal:
                assert release not in name
                sentence = rf"nl\.{'.'.join(path)} exists (since|before) NKI 0\.\d, this kernel is judged by {release}"
                assert re.match(sentence, str(refusal))
            else:
                assert release in name, f"{full} is not refused in {release}"


# By hand from the stubs at the tags of the releases and the release notes: the releases that have the name.
HELD = {
    "nki.language.arange": [],
    "nki.language.par_dim": [],
    "nki.language.fp32": [],
    "nki.language.load": ["0.3", "0.4", "0.5", "0.6"],
    "nki.language.softmax": ["0.3", "0.4", "0.5", "0.6"],
    "nki.language.no_reorder": CURRENT,
    "nki.language.is_hbm": ["0.3", "0.4", "0.5", "0.6"],
    "nki.language.abs_max": ["0.4", "0.5", "0.6"],
    "nki.language.prelu": ["0.4", "0.5", "0.6"],
    "nki.language.tile_size.sbuf_fmax": ["0.4", "0.5", "0.6"],
    "nki.language.average": ["0.5", "0.6"],
    "nki.language.tile_size.psum_num_banks": ["0.5", "0.6"],
    "nki.language.fori_loop": ["0.6"],
    "nki.language.DType": ["0.6"],
    "nki.isa.VirtualRegister": ["0.3", "0.4", "0.5", "0.6"],
    "nki.isa.get_nc_sub_version": ["0.5", "0.6"],
    "nki.isa.NkiInstruction": ["0.6"],
    "nki.isa.tensor_copy_dynamic_src": ["0.2", "0.3"],
    "nki.isa.exponential": CURRENT,
    "nki.isa.activate2": ["0.4", "0.5", "0.6"],
    "nki.isa.topk": ["0.6"],
    "nki.collectives.all_reduce": CURRENT,
    "nki.collectives.all_to_all_v": ["0.3", "0.4", "0.5", "0.6"],
    "nki.collectives.all_gather_v": ["0.6"],
    "nki.simulate": ["0.3", "0.4", "0.5", "0.6"],
    "nki.typing": ["0.3", "0.4", "0.5", "0.6"],
    "nki.benchmark": [],
}


@pytest.mark.parametrize("name", HELD)
def test_the_table_of_names(name: str) -> None:
    held = [release for release in CURRENT if Release.parse(release) in changed_names()[name]]
    assert held == HELD[name]


@pytest.mark.parametrize(
    ("name", "without", "sentence"),
    [
        ("VirtualRegister", "0.2", "nisa.VirtualRegister exists since NKI 0.3, this kernel is judged by 0.2"),
        (
            "get_nc_sub_version",
            "0.4",
            "nisa.get_nc_sub_version exists since NKI 0.5, this kernel is judged by 0.4",
        ),
        ("NkiInstruction", "0.5", "nisa.NkiInstruction exists since NKI 0.6, this kernel is judged by 0.5"),
        (
            "builtin_custom_op",
            "0.2",
            "nisa.builtin_custom_op exists before NKI 0.2, this kernel is judged by 0.2; use the "
            "instructions of nki.isa",
        ),
    ],
)
def test_names_of_the_instructions(name: str, without: str, sentence: str) -> None:
    with tracing(Trace("trn2", Release.parse(without))):
        with pytest.raises(Refusal, match=f"^{re.escape(sentence)}$"):
            getattr(nisa, name)
        assert not hasattr(nisa, name)


def test_a_dynamic_copy_of_an_old_release_is_not_supported_yet() -> None:
    """RN:264: it left in 0.4."""
    with pytest.raises(NotYetSupported, match="nisa.tensor_copy_dynamic_src"):
        record(lambda: nisa.tensor_copy_dynamic_src(sbuf(128, 64), sbuf(128, 64)), "0.3")


def test_a_parameter_of_a_function() -> None:
    """STUB shared_identity_matrix at v2.28.1 and v2.29.1."""

    def kernel() -> None:
        nl.shared_identity_matrix(4, nl.float32, dst=sbuf(4, 4))

    assert said(kernel, "0.2") == [
        "nl.shared_identity_matrix.dst exists since NKI 0.3, this kernel is judged by 0.2"
    ]
    assert said(kernel, "0.3") == []


def test_keywords_of_collectives() -> None:
    """RN:156,224-246; MIG:583-606."""
    group = ncc["ReplicaGroup"]([[0, 1]])

    def gather(**more: Any) -> Callable[[], None]:
        def kernel() -> None:
            tile, out = hbm(64, 4), hbm(128, 4)
            nisa.dma_copy(tile, sbuf(64, 4))
            ncc["all_gather"]([tile], [out], group, collective_dim=0, **more)

        return kernel

    message = "all_gather: argument {!r} exists since NKI {}, this kernel is judged by {}"
    assert said(gather(priority=1), "0.3", "trn3") == [message.format("priority", "0.4", "0.3")]
    assert said(gather(priority=1), "0.4", "trn3") == []
    assert said(gather(name="g"), "0.4") == [message.format("name", "0.5", "0.4")]
    assert said(gather(name="g"), "0.5") == []


def _noted(release: str) -> list[str]:
    return events(lambda: nisa.memset(sbuf(128, 64), 0.0, mask=None), release, "note")


def test_an_unknown_keyword_is_noted_in_0_2() -> None:
    """RN:639-643."""
    assert _noted("0.2") == ["memset: mask is no argument of it, which NKI 0.2 at first ignored"]


@pytest.mark.parametrize("release", CURRENT)
def test_integers_for_enumerations_are_noted_since_0_3(release: str) -> None:
    """MIG:622-643."""
    found = events(lambda: nisa.memset(sbuf(128, 64), 0.0, engine=5), release, "deprecated")
    assert found == ([] if release == "0.2" else ["memset: engine=5 is a raw integer for engine.vector"])


@pytest.mark.parametrize("release", CURRENT)
def test_deprecations(release: str) -> None:
    """RN:29-32,56-59,266; LANG:2317-2405."""

    def kernel() -> None:
        if release != "0.2":
            for _ in nl.dynamic_range(2):
                pass
        for name in ("affine_range", "sequential_range", "static_range"):
            assert list(getattr(nl, name)(0, 2, 1)) == [0, 1]
        assert nl.tile_size.total_available_sbuf_size > 0

    old_size = (
        "nl.tile_size.total_available_sbuf_size is deprecated since NKI 0.4: use nl.tile_size.sbuf_fmax_bytes"
    )
    ranges = [
        f"nl.{name} is a deprecated alias of range since NKI 0.6"
        for name in ("affine_range", "sequential_range", "static_range")
    ]
    expected = {
        "0.6": ["nl.dynamic_range is deprecated since NKI 0.6: use nl.fori_loop", *ranges, old_size],
        "0.5": [old_size],
        "0.4": [old_size],
    }
    assert events(kernel, release, "deprecated") == expected.get(release, [])


def test_dependences_across_a_dynamic_loop_are_tracked_since_0_4() -> None:
    """RN:298."""
    kernel = _in_loop(lambda i, tile: nisa.memset(tile, 0.0))
    assert events(kernel, "0.4", "note") == []
    assert events(kernel, "0.3", "note") == [
        "nl.dynamic_range: dependencies across the boundary of the loop are tracked since NKI 0.4; "
        "until then what is "
        "used both inside and outside of it may race"
    ]


# What a call computes in one release and not in another


def test_the_axis_of_a_reduction() -> None:
    """MIG:514-522: axis=1 of three dimensions was the last one, and is refused since."""
    data = np.arange(2 * 3 * 4, dtype=np.float32).reshape(2, 3, 4)

    def kernel(x: NkiTensor, axis: int = 1) -> NkiTensor:
        out = sbuf(2, 3)
        nisa.tensor_reduce(dst=out, op=nl.add, data=loaded(x), axis=axis)
        return stored(out)

    np.testing.assert_array_equal(value(kernel, "0.2", data), data.sum(axis=2))
    np.testing.assert_array_equal(value(lambda x: kernel(x, 2), "0.3", data), data.sum(axis=2))
    (found,) = verify(record(kernel, "0.3", (data,)))
    assert found.message.startswith(
        "tensor_reduce: axis 1 must name the last free dimensions of the 3-dimensional data, without "
        "axis 0 on trn2"
    )


def test_accumulation_without_a_word() -> None:
    """MIG:353-364: the first matmul overwrites and later ones add, before 0.3 and with "
    "accumulate=None since."""
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-4, 5, (128, n)).astype(np.float32) for n in (32, 48))

    def kernel(x: NkiTensor, y: NkiTensor, **second: Any) -> NkiTensor:
        p, s = psum(32, 48), sbuf(32, 48)
        left, right = loaded(x), loaded(y)
        nisa.nc_matmul(p, left, right)
        nisa.nc_matmul(p, left, right, **second)
        nisa.tensor_copy(s, p)
        return stored(s)

    once = a.T.astype(np.float64) @ b
    for release in ("0.2", "0.3", "0.6"):
        np.testing.assert_array_equal(value(kernel, release, a, b), 2 * once)
    again = value(lambda x, y: kernel(x, y, accumulate=False), "0.3", a, b)
    np.testing.assert_array_equal(again, once)


def test_range_select_honours_its_command() -> None:
    """RN:448,674-676: every command was reset_reduce before 0.3."""
    first, second = (np.full((4, 8), number, np.float32) for number in (9, 5))

    def kernel(x: NkiTensor, y: NkiTensor) -> NkiTensor:
        low, high, top = sbuf(4, 1), sbuf(4, 1), sbuf(4, 1)
        nisa.memset(low, 0.0)
        nisa.memset(high, 8.0)
        for tile, command in ((x, nisa.reduce_cmd.reset_reduce), (y, nisa.reduce_cmd.reduce)):
            nisa.range_select(
                sbuf(4, 8),
                on_true_tile=loaded(tile),
                comp_op0=nl.greater_equal,
                comp_op1=nl.less,
                bound0=low,
                bound1=high,
                reduce_cmd=command,
                reduce_res=top,
                on_false_value=FP32_MIN,
            )
        return stored(top)

    assert value(kernel, "0.2", first, second).tolist() == [[5]] * 4
    assert value(kernel, "0.3", first, second).tolist() == [[9]] * 4


def test_the_offset_of_ap() -> None:
    """RN (0.5); STUB NkiTensor.ap at v2.30.0 and v2.31.1: 0 before 0.5, that of the view since."""
    data = np.arange(32, dtype=np.float32).reshape(4, 8)

    def kernel(x: NkiTensor, **offset: Any) -> NkiTensor:
        return stored(loaded(x[2:4, :].ap([[8, 2], [1, 8]], **offset)))

    np.testing.assert_array_equal(value(kernel, "0.4", data), data[:2])
    np.testing.assert_array_equal(value(kernel, "0.5", data), data[2:])
    for release in ("0.4", "0.5"):
        np.testing.assert_array_equal(value(lambda x: kernel(x, offset=8), release, data), data[1:3])


@pytest.mark.parametrize(("release", "expected"), [("0.5", 2.0**24), ("0.6", 2.0**24 + 1)])
def test_copies_of_integers(release: str, expected: float) -> None:
    """RN:43-45,479: a Scalar activation through float32 before 0.6, bit for bit on Vector since."""
    data = np.full((4, 4), 2**24 + 1, np.int32)
    assert value(lambda x: stored(nl.copy(loaded(x))), release, data).tolist() == [[int(expected)] * 4] * 4


def test_an_absent_value_of_a_search() -> None:
    """STUB nc_find_index8 at v2.30.0 and today: a sentinel since 0.6, undefined before."""
    data, wanted = np.arange(32, dtype=np.float32).reshape(4, 8), np.full((4, 8), 99, np.float32)

    def kernel(x: NkiTensor, y: NkiTensor) -> NkiTensor:
        found = sbuf(4, 8, dtype=nl.uint32)
        nisa.nc_find_index8(found, loaded(x), loaded(y))
        return stored(found)

    assert (value(kernel, "0.6", data, wanted) == 2**32 - 1).all()
    (fault,) = ran(kernel, "0.5", data, wanted).faults
    assert fault.kind == "undefined result"
    assert "32 of 32 elements depend on a value that the search did not find (nc_find_index8" in fault.message


@pytest.mark.parametrize(("release", "scale"), [("0.4", 127 + 1 - 8), ("0.5", 127 + 1 - 7)])
def test_the_scale_of_quantize_mx(release: str, scale: int) -> None:
    """RN:166-169: the largest value 3.9 has exponent 1; Emax of e4m3fn is 8, Emax - 1 is taken since 0.5."""
    data = np.full((32, 4), 3.9, np.float32).astype(ml_dtypes.bfloat16)

    def kernel(x: NkiTensor) -> NkiTensor:
        scales = sbuf(32, 1, dtype=nl.uint8)
        nisa.memset(scales, 0)
        nisa.quantize_mx(sbuf(32, 1, dtype=nl.float8_e4m3fn_x4), loaded(x), scales)
        return stored(scales)

    assert int(value(kernel, release, data, target="trn3").max()) == scale


def test_engines_of_random_numbers_do_not_depend_on_their_defaults() -> None:
    """STUB rng at v2.30.0 and v2.31.1: engine=unknown until 0.4, vector since; both are Vector."""
    for release in ("0.4", "0.5"):
        program = record(lambda: [nisa.rng(sbuf(128, 4, dtype=nl.uint32))], release)
        assert verify(program) == ()


def test_lnc2_cores_that_go_separate_ways() -> None:
    """RN:487; LNC:142-148: a core that waits alone never goes on."""

    def kernel() -> None:
        if nl.program_id(0) == 0:
            nisa.core_barrier(hbm(4, 4), (0, 1))

    program = record(kernel, "0.3", lnc=2)
    assert [fault.kind for fault in execute(program, {}).faults] == ["deadlock"]

"""dma_copy, dma_transpose and dma_compute against NumPy written from the documentation, and their limits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from call_kit import Made, T
from execute_kit import Kernel, View, counted
from nl_kernels import nisa, nl, record
from nl_kernels import run as run_kernel
from numpy.typing import NDArray
from test_isa_rows import FakeReader, run, same_bits

from nkireview.isa.enums import DgeMode, Engine, Memory
from nkireview.isa.release import Release
from nkireview.isa.row import Bits, Role
from nkireview.isa.table import row
from nkireview.program.access import Access, Index

Array = NDArray[Any]
BF16 = ml_dtypes.bfloat16
HBM, SBUF, PSUM = Memory.hbm, Memory.sbuf, Memory.psum
RELEASES = tuple(f"0.{minor}" for minor in range(2, 7))
ALL_TARGETS = ("trn1", "trn2", "trn3")


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


# dma_transpose: the permutations of nki/api/nki/isa/__init__.py:872-876


@pytest.mark.oracle("nisa.dma_transpose")
@pytest.mark.parametrize(
    ("shape", "axes"),
    [((5, 3), (1, 0)), ((4, 3, 2), (2, 1, 0)), ((2, 3, 4, 5), (3, 1, 2, 0)), ((16, 1, 1, 8), (3, 1, 2, 0))],
)
@pytest.mark.parametrize("dtype", [np.float32, BF16, np.int32, np.uint16])
def test_dma_transpose_moves_bits_by_the_permutation_of_its_rank(
    shape: tuple[int, ...], axes: tuple[int, ...], dtype: Any
) -> None:
    src = counted(*shape, dtype=dtype)
    turned = tuple(shape[axis] for axis in axes)
    kernel = Kernel()
    dst = kernel.sbuf(*turned, dtype=np.dtype(dtype).name)
    kernel.call("dma_transpose", dst=dst, src=kernel.argument(src), axes=axes)
    kernel.store(dst)
    execution = kernel.run()
    assert execution.faults == ()
    wanted = np.empty(turned, dtype)
    for index in np.ndindex(turned):
        # the i-th axis of dst is axis axes[i] of src
        at = [0] * len(shape)
        for to, axis in enumerate(axes):
            at[axis] = index[to]
        wanted[index] = src[tuple(at)]
    assert same_bits(execution.outputs[0].values, wanted)


@pytest.mark.oracle("nisa.dma_transpose")
def test_dma_transpose_keeps_nan_and_works_in_sbuf() -> None:
    src = np.array([[np.nan, np.inf, -0.0], [1.5, -np.inf, 3.0]], np.float32)
    kernel = Kernel()
    dst = kernel.sbuf(3, 2)
    kernel.call("dma_transpose", dst=dst, src=kernel.load(src))
    kernel.store(dst)
    assert same_bits(kernel.run().outputs[0].values, np.ascontiguousarray(src.T))


@pytest.mark.oracle("nisa.dma_transpose")
def test_dma_transpose_of_gathered_rows() -> None:
    """dst = src[indices.T.flatten()].T (isa/__init__.py:908-911): the reader shows the gathered rows."""
    src, indices = counted(64, 8, dtype=BF16), np.random.default_rng(1).permutation(64)[:32].reshape(16, 2)
    gathered = src[indices.T.flatten()]
    found = run("dma_transpose", {"src": gathered}, dst=((8, 32), "bfloat16"))["dst"]
    wanted = [[src[indices[k % 16, k // 16], f] for k in range(32)] for f in range(8)]
    assert np.array_equal(found, np.array(wanted, BF16))


@pytest.mark.oracle("nisa.dma_transpose")
def test_undefined_elements_move_with_the_rest() -> None:
    kernel = Kernel()
    src, dst = kernel.sbuf(4, 3), kernel.sbuf(3, 4)
    kernel.copy(src[0:4, 0:2], kernel.argument(normal(4, 2)))
    kernel.copy(src[2:4, 2:3], kernel.argument(normal(2, 1)))
    kernel.call("dma_transpose", dst=dst, src=src)
    kernel.store(dst)
    written = np.ones((4, 3), bool)
    written[0:2, 2] = False
    assert np.array_equal(kernel.run().outputs[0].written, written.T)


@pytest.mark.oracle("nisa.dma_transpose")
def test_a_dst_of_lower_rank_is_padded_before_04() -> None:
    src = counted(4, 1, 1, 6)
    kernel = Kernel(nki="0.3")
    dst = kernel.sbuf(6, 1, 4)
    kernel.call("dma_transpose", dst=dst, src=kernel.argument(src))
    kernel.store(dst)
    assert kernel.run().outputs[0].values.reshape(6, 4).tolist() == src.reshape(4, 6).T.tolist()


def test_the_legacy_dma_transpose_casts() -> None:
    found = run("dma_transpose", {"src": counted(2, 3)}, dst=((3, 2), "bfloat16"), nki="0.1")["dst"]
    assert found.dtype == np.float32 and found.tolist() == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]


def test_dma_transpose_has_no_meaning_beyond_four_dimensions() -> None:
    with pytest.raises(ValueError, match=r"^dma_transpose takes 2 to 4 dimensions, src has 5$"):
        run("dma_transpose", {"src": counted(1, 1, 1, 2, 3)}, dst=((6, 1), "float32"))


# dma_compute


@pytest.mark.oracle("nisa.dma_compute")
@pytest.mark.parametrize("count", [1, 2, 3, 16])
def test_dma_compute_adds_in_float32(count: int) -> None:
    terms = [normal(4, 6, seed=seed).astype(BF16) for seed in range(count)]
    kernel = Kernel()
    dst = kernel.hbm(4, 6, dtype="bfloat16")
    sources = {f"srcs{number}": kernel.argument(term) for number, term in enumerate(terms)}
    kernel.call("dma_compute", dst=dst, **sources, reduce_op="add", scales=(1.0,) * count)
    kernel.output(dst)
    execution = kernel.run()
    assert execution.faults == ()
    # bf16 terms: the float64 sum rounded once; float32 sums of 16 of them are exact enough to round alike
    exact = sum(term.astype(np.float64) for term in terms)
    nearest = exact.astype(np.float32).astype(BF16)
    close = np.abs(execution.outputs[0].values.astype(float) - exact) <= np.abs(exact) * 2.0**-8 + 1e-6
    assert close.all() and np.mean(execution.outputs[0].values == nearest) > 0.95


@pytest.mark.oracle("nisa.dma_compute")
def test_dma_compute_casts_to_float32_first() -> None:
    big = np.array([[2**24 + 1, 7]], np.int32)
    tiles = {"srcs0": big, "srcs1": np.array([[1, 1]], np.int32)}
    found = run("dma_compute", tiles, {"reduce_op": "add"}, dst=((1, 2), "int32"))["dst"]
    assert found.dtype == np.float32 and found.tolist() == [[2.0**24, 8.0]]


@pytest.mark.oracle("nisa.dma_compute")
def test_dma_compute_without_a_matching_source_overwrites() -> None:
    """dst = reduce_op(srcs[0] * scales[0], ..) (isa/__init__.py:2661): dst itself counts only where it is a source."""
    kernel = Kernel()
    held = kernel.load(np.full((2, 3), 10, np.float32))
    kernel.call("dma_compute", dst=held, srcs0=kernel.argument(counted(2, 3)), reduce_op="add")
    kernel.store(held)
    assert kernel.run().outputs[0].values.tolist() == counted(2, 3).tolist()


@pytest.mark.oracle("nisa.dma_compute")
def test_dma_compute_adds_to_a_dst_that_is_a_source() -> None:
    kernel = Kernel()
    held = kernel.load(np.full((2, 3), 10, np.float32))
    kernel.call("dma_compute", dst=held, srcs0=kernel.argument(counted(2, 3)), srcs1=held, reduce_op="add")
    kernel.store(held)
    assert kernel.run().outputs[0].values.tolist() == (counted(2, 3) + 10).tolist()


def test_dma_compute_without_sources_has_no_meaning() -> None:
    with pytest.raises(ValueError, match=r"^dma_compute has no srcs$"):
        run("dma_compute", {}, {"reduce_op": "add"}, dst=((1, 2), "float32"))


@pytest.mark.oracle("nisa.dma_compute")
def test_an_undefined_term_spoils_its_sum() -> None:
    kernel = Kernel()
    tile, dst = kernel.sbuf(2, 3), kernel.hbm(2, 3)
    kernel.copy(tile[0:2, 0:2], kernel.argument(counted(2, 2)))
    kernel.call("dma_compute", dst=dst, srcs0=tile, srcs1=kernel.argument(counted(2, 3)), reduce_op="add")
    kernel.output(dst)
    assert kernel.run().outputs[0].written.tolist() == [[True, True, False]] * 2


# Gathers and scatters, executed


def rows_by(kernel: Kernel, view: View, index: View, oob: str = "error") -> Access:
    """Rows of an HBM tensor by an index tile, read column by column."""
    (stride, _), *inner = view.pattern
    count = index.pattern[0][1] * index.pattern[1][1]
    held = Index("vector", kernel.builder.access(index.access), 0, stride, oob=oob)
    return replace(view.access, pattern=((stride, count), *inner), index=held)


def call(kernel: Kernel, opcode: str, operands: dict[str, Access], **given: Any) -> None:
    """A call with accesses as they are, and none for the other operands of the row."""
    names = tuple(operand.name for operand in row(opcode).operands)
    ids = [kernel.builder.access(operands[name]) if name in operands else -1 for name in names]
    kernel._open()
    kernel.builder.append(opcode, names, ids, given, place=kernel.place())


@pytest.mark.oracle("nisa.dma_transpose")
def test_dma_transpose_gathers_by_a_two_dimensional_index() -> None:
    """flat_indices = indices.T.flatten(); gathered = src[flat_indices]; dst = gathered.T."""
    src = counted(64, 8, dtype=BF16)
    indices = np.random.default_rng(1).permutation(64)[:32].reshape(16, 2).astype(np.uint32)
    kernel = Kernel()
    given, index, dst = kernel.argument(src), kernel.load(indices), kernel.sbuf(8, 32, dtype="bfloat16")
    call(kernel, "dma_transpose", {"dst": dst.access, "src": rows_by(kernel, given, index)})
    kernel.store(dst)
    execution = kernel.run()
    assert execution.faults == ()
    assert np.array_equal(execution.outputs[0].values, src[indices.T.flatten()].T)


@pytest.mark.oracle("nisa.dma_compute")
def test_dma_compute_scatters_a_sum() -> None:
    """dst(HBM)[indices] = dst(HBM)[indices] + src(SB)."""
    base, added, indices = counted(8, 4), 100 * counted(3, 4), np.array([[6], [1], [3]], np.uint32)
    kernel = Kernel()
    out = kernel.hbm(8, 4)
    kernel.copy(out, kernel.argument(base))
    rows = rows_by(kernel, out, kernel.load(indices))
    sources = {"srcs0": rows, "srcs1": kernel.load(added).access}
    call(kernel, "dma_compute", {"dst": rows, **sources}, reduce_op="add")
    kernel.output(out)
    execution = kernel.run()
    assert execution.faults == ()
    wanted = base.copy()
    wanted[indices[:, 0]] += added
    assert np.array_equal(execution.outputs[0].values, wanted)


@pytest.mark.oracle("nisa.dma_compute")
def test_dma_compute_adds_gathered_rows() -> None:
    """dst(SB) = dst(SB) + src(HBM)[indices]."""
    base, held, indices = counted(8, 4), 100 * counted(3, 4), np.array([[6], [1], [6]], np.uint32)
    kernel = Kernel()
    tile = kernel.load(held)
    rows = rows_by(kernel, kernel.argument(base), kernel.load(indices))
    operands = {"dst": tile.access, "srcs0": rows, "srcs1": tile.access}
    call(kernel, "dma_compute", operands, reduce_op="add")
    kernel.store(tile)
    assert np.array_equal(kernel.run().outputs[0].values, held + base[[6, 1, 6]])


@pytest.mark.oracle("nisa.dma_copy")
def test_dma_copy_leaves_out_what_is_out_of_bounds() -> None:
    base, indices = counted(8, 4), np.array([[6], [99], [3]], np.uint32)
    kernel = Kernel()
    tile = kernel.load(np.full((3, 4), -1, np.float32))
    rows = rows_by(kernel, kernel.argument(base), kernel.load(indices), "skip")
    call(kernel, "dma_copy", {"dst": tile.access, "src": rows}, oob_mode="skip")
    kernel.store(tile)
    assert kernel.run().outputs[0].values.tolist() == [base[6].tolist(), [-1.0] * 4, base[3].tolist()]


@pytest.mark.oracle("nisa.dma_transpose")
def test_dma_transpose_leaves_out_what_is_out_of_bounds() -> None:
    base, indices = counted(8, 4), np.array([[6], [99], [3]], np.uint32)
    kernel = Kernel()
    tile = kernel.load(np.full((4, 3), -1, np.float32))
    rows = rows_by(kernel, kernel.argument(base), kernel.load(indices), "skip")
    call(kernel, "dma_transpose", {"dst": tile.access, "src": rows}, oob_mode="skip")
    kernel.store(tile)
    wanted = [[base[6, f], -1.0, base[3, f]] for f in range(4)]
    assert kernel.run().outputs[0].values.tolist() == wanted


# dma_copy of NKI 0.2 and before: dst = dst_rmw_op(dst, src)


@pytest.mark.oracle("nisa.dma_copy")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_old_dma_copy_adds_to_its_destination(dtype: str) -> None:
    kernel = Kernel(nki="0.2")
    storage = np.float32 if dtype == "float32" else BF16
    held, added = normal(4, 8, seed=1).astype(storage), normal(4, 8, seed=2).astype(storage)
    tile = kernel.load(held)
    kernel.call("dma_copy", dst=tile, src=kernel.argument(added), dst_rmw_op="add")
    kernel.store(tile)
    execution = kernel.run()
    assert execution.faults == ()
    # a sum of two is exact in float64, and rounds once
    wanted = (held.astype(np.float64) + added.astype(np.float64)).astype(np.float32).astype(storage)
    assert same_bits(execution.outputs[0].values, wanted)


def test_an_old_dma_copy_adds_to_undefined_memory() -> None:
    kernel = Kernel(nki="0.2")
    tile = kernel.sbuf(2, 2)
    kernel.call("dma_copy", dst=tile, src=kernel.argument(counted(2, 2)), dst_rmw_op="add")
    kernel.store(tile)
    assert kernel.run().outputs[0].written.tolist() == [[False, False]] * 2


def test_the_role_of_an_added_destination() -> None:
    dst = row("dma_copy").operand("dst")
    assert dst.role_in({"dst_rmw_op": "add"}) is Role.accumulate
    assert dst.role_in({"dst_rmw_op": None}) is dst.role_in({}) is Role.write


def test_old_and_new_copies_of_equal_dtypes_move_bits() -> None:
    tile = np.array([[np.nan, -0.0]], np.float32)
    reader = FakeReader({"src": tile}, {"dst_rmw_op": None}, {"dst": ((1, 2), "float32")}, nki="0.2")
    assert isinstance(row("dma_copy").meaning(reader)["dst"], Bits)


# Parameters by release


def names(instruction: str, nki: str) -> list[str]:
    return [param.name for param in row(instruction).parameters(Release.parse(nki))]


def test_parameters_by_release() -> None:
    """The stubs of tags v2.26.1 to v2.30.0 and of the snapshot."""
    assert names("dma_copy", "0.1") == ["dst", "src", "dst_rmw_op", "oob_mode", "dge_mode", "name"]
    assert names("dma_copy", "0.2") == [
        *("dst", "src", "dst_rmw_op", "oob_mode", "dge_mode", "unique_indices", "name")
    ]
    assert names("dma_copy", "0.3") == ["dst", "src", "oob_mode", "dge_mode", "engine", "name"]
    assert names("dma_copy", "0.6") == ["dst", "src", "priority", "oob_mode", "dge_mode", "engine", "name"]
    assert names("dma_transpose", "0.2") == ["dst", "src", "axes", "dge_mode", "oob_mode", "name"]
    assert names("dma_transpose", "0.4") == [
        *("dst", "src", "axes", "priority", "dge_mode", "oob_mode", "name")
    ]
    assert names("dma_compute", "0.2") == ["dst", "srcs", "scales", "reduce_op", "name"]
    assert names("dma_compute", "0.3") == ["dst", "srcs", "reduce_op", "scales", "unique_indices", "name"]
    assert names("dma_compute", "0.4") == [
        *("dst", "srcs", "reduce_op", "scales", "unique_indices", "oob_mode", "name")
    ]
    assert Release(0, 1) not in row("dma_compute").releases and row("dma_compute").legacy is None


# As a kernel writes them


@pytest.mark.oracle("nisa.dma_compute", "nisa.dma_transpose")
def test_a_kernel_that_adds_three_tensors_and_turns_the_sum() -> None:
    def kernel(a: Any, b: Any, c: Any) -> Any:
        total = nl.ndarray((16, 24), nl.float32, buffer=nl.shared_hbm)
        nisa.dma_compute(total, [a, b, c], nl.add, scales=[1.0, 1.0, 1.0])
        turned = nl.ndarray((24, 16), nl.float32, buffer=nl.sbuf)
        nisa.dma_transpose(dst=turned, src=total, axes=(1, 0))
        return turned

    given = [np.random.default_rng(seed).integers(-9, 9, (16, 24)).astype(np.float32) for seed in range(3)]
    assert np.array_equal(run_kernel(kernel, *given), sum(given).T)


def test_the_old_order_puts_scales_before_the_operator() -> None:
    def kernel(a: Any, b: Any) -> Any:
        total = nl.ndarray((16, 24), nl.float32, buffer=nl.shared_hbm)
        nisa.dma_compute(total, [a, b], [1.0, 1.0], nl.add)
        return total

    program = record(kernel, [counted(16, 24), counted(16, 24)], release="0.2")
    assert program.instruction(0).immediates == {"reduce_op": "add", "scales": (1.0, 1.0)}


# Limits

INDEX = T((128, 1), "uint32")
COPY = Made("dma_copy", {"dst": T((128, 512)), "src": T((128, 512), memory=HBM)})
GATHER = COPY.changed({"src.index": "vector", "src.by": INDEX})
SCALAR = COPY.changed({"src.index": "scalar", "src.by": T((1, 1), "int32")})
TURN = Made("dma_transpose", {"dst": T((128, 512), "bfloat16"), "src": T((512, 128), "bfloat16", HBM)})
INDICES = T((128, 4), "uint32")
FETCH = TURN.changed({"src.index": "vector", "src.by": INDICES})
ADD = Made(
    "dma_compute",
    {"dst": T((128, 512)), "srcs0": T((128, 512), memory=HBM), "srcs1": T((128, 512))},
    {"reduce_op": "add", "scales": None},
)
GATHER_ADD = ADD.changed({"srcs0.index": "vector", "srcs0.by": INDEX})
SCATTER_ADD = GATHER_ADD.changed({"dst.memory": HBM, "dst.index": "vector", "dst.by": INDEX})
BY_COLUMN = {"src.index": "vector", "src.by": T((64, 1), "uint32")}


def turn(*shape: int, **more: Any) -> dict[str, Any]:
    """A transpose of a src of that shape."""
    order = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}[len(shape)]
    return {"src.shape": shape, "dst.shape": tuple(shape[axis] for axis in order), **more}


HARDWARE = {"dge": DgeMode.hwdge}
COPIES: list[tuple[Made, dict[str, Any], str | None]] = [
    (COPY, {}, None),
    (COPY, {"dst.shape": (129, 512), "src.shape": (129, 512)}, "dst partition size 129 exceeds 128"),
    (COPY, {"src": T((129, 512)), "dst": T((129, 512), memory=HBM)}, "src partition size 129 exceeds 128"),
    (GATHER, {}, None),
    (GATHER, {"dge": DgeMode.swdge}, None),
    (
        GATHER,
        {"dge": DgeMode.none},
        "src has a vector index, which dge_mode=none cannot do; use swdge or unknown",
    ),
    (
        GATHER,
        {"dge": DgeMode.hwdge},
        "src has a vector index, which dge_mode=hwdge cannot do; use swdge or unknown",
    ),
    (SCALAR, {"dge": DgeMode.hwdge}, None),
    (SCALAR, {"dge": DgeMode.none}, None),
    (GATHER, {"target": "trn1"}, "src has a vector index, which needs NeuronCore-v3 or newer"),
    (GATHER, {"target": "trn1", "nki": "0.1"}, None),
    (SCALAR, {"target": "trn1"}, None),
    (
        GATHER,
        {"src.memory": SBUF},
        "src is in SBUF, a vector index needs a tensor in HBM",
    ),
    (GATHER, {"src.index_axis": 1}, "vector index of src replaces dimension 1, must be 0"),
    (
        GATHER,
        {"src.by": T((128, 1), "uint32", PSUM)},
        "index of src is in PSUM, it must be in SBUF",
    ),
    (
        GATHER,
        {"src.by": T((64, 2), "uint32")},
        "index of src is 64 x 2, must be one column: one index a partition",
    ),
    (GATHER, {"src.by": T((127, 1), "uint32")}, "index of src holds 127 indices, src takes 128"),
    (GATHER, {"src.by": T((128, 1), "int32")}, None),
    (
        GATHER,
        {"src.by": T((128, 1), "int16")},
        "index of src has dtype int16, expected int32 or uint32",
    ),
    (SCALAR, {"src.by": T((2, 1), "int32")}, "scalar index of src has 2 elements, must have one"),
    (SCALAR, {"src.by": T((1, 1), "uint16")}, "index of src has dtype uint16, expected int32 or uint32"),
    (COPY, {"src.index": "register"}, None),
    (
        COPY,
        {"dst": T((128, 512), memory=HBM, index="vector", by=T((64, 1), "uint32")), "src": T((128, 512))},
        "index of dst holds 64 indices, dst takes 128",
    ),
    (
        COPY,
        {"dst": T((128, 512), memory=HBM, index="vector", by=T((128, 1), "uint8")), "src": T((128, 512))},
        "index of dst has dtype uint8, expected int32 or uint32",
    ),
    (
        COPY,
        {"dst": T((128, 512), memory=HBM, index="vector", by=INDEX), "src": T((128, 512))},
        None,
    ),
    (COPY, {"priority": 3, "target": "trn3"}, None),
    (COPY, {"priority": 3}, "priority=3 needs NeuronCore-v4 or newer"),
    (COPY, {"priority": 4, "target": "trn3"}, "priority=4 must be a level of 0 (first) to 3 (last)"),
    (COPY, {"priority": 0, "target": "trn3", "dge": DgeMode.none}, None),
    (COPY, {"priority": 0, "target": "trn3", "nki": "0.4"}, None),
    (
        COPY,
        {"priority": 0, "target": "trn3", "dge": DgeMode.none, "nki": "0.4"},
        "priority=0 is not supported with dge_mode=none in NKI 0.4",
    ),
    (
        COPY,
        {"priority": 1, "target": "trn3", "nki": "0.3"},
        "parameter priority exists since NKI 0.4, not in NKI 0.3",
    ),
    (COPY, {"dst_rmw_op": "add", "nki": "0.2"}, None),
    (COPY, {"dst_rmw_op": "add", "nki": "0.1"}, None),
    (COPY, {"dst_rmw_op": "add"}, "parameter dst_rmw_op exists before NKI 0.3, not in NKI 0.6"),
    (
        COPY,
        {"dst_rmw_op": "multiply", "nki": "0.2"},
        "dst_rmw_op multiply is not supported, a DMA only adds",
    ),
    (
        COPY,
        {"dst_rmw_op": "add", "oob_mode": "skip", "nki": "0.2"},
        "oob_mode=skip cannot be combined with dst_rmw_op, only error",
    ),
    (COPY, {"oob_mode": "skip", "nki": "0.2"}, None),
    (COPY, {"unique_indices": False, "nki": "0.2"}, None),
    (
        COPY,
        {"unique_indices": False, "nki": "0.1"},
        "parameter unique_indices exists since NKI 0.2 and before NKI 0.3, not in NKI 0.1",
    ),
    (
        COPY,
        {
            "dst.dtype": "float8_e5m2_x4",
            "src.dtype": "float8_e5m2_x4",
            "dst_rmw_op": "add",
            "nki": "0.2",
            "target": "trn3",
        },
        "dst_rmw_op cannot add dtype float8_e5m2_x4: a DMA computes with no packed dtype",
    ),
    (COPY, {"oob_mode": "skip"}, None),
]

TURNS: list[tuple[Made, dict[str, Any], str | None]] = [
    *((TURN, {"nki": nki, "target": target}, None) for nki in ("0.1", *RELEASES) for target in ALL_TARGETS),
    (TURN, turn(4, 3, 2), None),
    (TURN, turn(2, 3, 4, 5), None),
    (
        TURN,
        {"src.shape": (512,), "dst.shape": (512, 1)},
        "src has 1 dimensions, expected 2, 3 or 4",
    ),
    (TURN, {"axes": (1, 0)}, None),
    (TURN, {"axes": (0, 1)}, "axes (0, 1) cannot be done on a src of 2 dimensions, must be (1, 0)"),
    (
        TURN,
        turn(4, 3, 2, axes=(1, 2, 0)),
        "axes (1, 2, 0) cannot be done on a src of 3 dimensions, must be (2, 1, 0)",
    ),
    (
        TURN,
        turn(2, 3, 4, 5, axes=(3, 2, 1, 0)),
        "axes (3, 2, 1, 0) cannot be done on a src of 4 dimensions, must be (3, 1, 2, 0)",
    ),
    (TURN, {"dst.shape": (128, 511)}, "src element count 65536 differs from dst element count 65408"),
    (
        TURN,
        {"src.shape": (512, 1, 1, 128)},
        "dst shape (128, 512) must be (128, 1, 1, 512), that of src transposed, in rank too",
    ),
    (TURN, {"src.shape": (512, 1, 1, 128), "nki": "0.3"}, None),
    (TURN, {"src.dtype": "float16"}, "dst dtype bfloat16 differs from src dtype float16"),
    (TURN, {"src.dtype": "float16", "nki": "0.1"}, None),
    (TURN, {"src.memory": SBUF, **turn(128, 64)}, None),
    (TURN, {"src.memory": SBUF, **turn(129, 64)}, "src partition size 129 exceeds 128"),
    (TURN, turn(512, 129), "dst partition size 129 exceeds 128"),
    (TURN, {"dst.memory": HBM}, "dst is in HBM, expected SBUF"),
    (TURN, {"src.memory": PSUM}, "src is in PSUM, expected HBM or SBUF"),
    (TURN, {"dge": DgeMode.none}, None),
    (TURN, {"dge": DgeMode.swdge}, "dge_mode=swdge needs an indirect src; use hwdge, none or unknown"),
    (TURN, {"dge": DgeMode.swdge, "src.index": "register"}, None),
    (TURN, {**HARDWARE, "target": "trn1", **turn(16, 128)}, "dge_mode=hwdge needs NeuronCore-v3 or newer"),
    (TURN, {**HARDWARE, **turn(16, 128)}, None),
    (TURN, {**HARDWARE, **turn(16, 64)}, None),
    (TURN, {**HARDWARE, **turn(8, 128)}, "src shape (8, 128) must begin with 16 with dge_mode=hwdge"),
    (TURN, {**HARDWARE, **turn(4, 4, 128)}, None),
    (TURN, {**HARDWARE, **turn(2, 3, 8, 128)}, None),
    (
        TURN,
        {**HARDWARE, **turn(3, 16, 128)},
        "src shape (3, 16, 128) must begin with one of 1, 2, 4, 8, 16 with dge_mode=hwdge",
    ),
    (
        TURN,
        {**HARDWARE, **turn(4, 16, 2, 128)},
        "src shape (4, 16, 2, 128) must have a multiple of 16 as its first times last but one with dge_mode=hwdge",
    ),
    (
        TURN,
        {**HARDWARE, "src.shape": (16, 256), "dst.shape": (256, 16)},
        "src shape (16, 256) must end with at most 128 with dge_mode=hwdge",
    ),
    (TURN, {**HARDWARE, **turn(16, 128), "nki": "0.5"}, None),
    (
        TURN,
        {**HARDWARE, **turn(16, 64), "nki": "0.5"},
        "src shape (16, 64) must end with a multiple of 128 with dge_mode=hwdge",
    ),
    (
        TURN,
        {**HARDWARE, **turn(4, 4, 128), "nki": "0.5"},
        "src shape (4, 4, 128) must begin with 16 with dge_mode=hwdge",
    ),
    (
        TURN,
        {**HARDWARE, **turn(16, 128), "src.dtype": "float32", "dst.dtype": "float32"},
        "src dtype float32 is not allowed, expected 2 bytes with dge_mode=hwdge",
    ),
    (TURN, {"src.dtype": "float32", "dst.dtype": "float32"}, None),
    (TURN, {"priority": 1}, "priority=1 needs NeuronCore-v4 or newer"),
    (TURN, {"priority": 1, "target": "trn3"}, None),
    (TURN, {"priority": -1, "target": "trn3"}, "priority=-1 must be a level of 0 (first) to 3 (last)"),
    (
        TURN,
        {"priority": 1, "target": "trn3", "nki": "0.4", "dge": DgeMode.none},
        "priority=1 is not supported with dge_mode=none in NKI 0.4",
    ),
    (TURN, {"priority": 1, "target": "trn3", "nki": "0.4"}, None),
    (FETCH, {}, None),
    (FETCH, {"nki": "0.3"}, None),
    (FETCH, {"dge": DgeMode.swdge, "oob_mode": "skip"}, None),
    (FETCH, {"target": "trn1"}, "src has a vector index, which needs NeuronCore-v3 or newer"),
    (
        FETCH,
        {"dge": DgeMode.hwdge},
        "src has a vector index, which dge_mode=hwdge cannot do; use swdge or unknown",
    ),
    (
        FETCH,
        {"dge": DgeMode.none},
        "src has a vector index, which dge_mode=none cannot do; use swdge or unknown",
    ),
    (
        FETCH,
        {"src.dtype": "float32", "dst.dtype": "float32"},
        "src dtype float32 is not allowed, expected 2 bytes in an indirect transpose",
    ),
    (FETCH, {"src.memory": SBUF}, "src is in SBUF, a vector index needs a tensor in HBM"),
    (FETCH, turn(512, 1, 1, 128), None),
    (FETCH, turn(512, 4, 1, 32), None),
    (
        FETCH,
        turn(512, 2, 2, 32),
        "src shape (512, 2, 2, 32) must have 1 as its second or third dimension in an indirect transpose",
    ),
    (FETCH, turn(512, 64), None),
    (FETCH, turn(512, 64, nki="0.3"), "last dimension of src is 64, must be 128 in an indirect transpose"),
    (FETCH, turn(512, 256), "last dimension of src is 256, must be at most 128 in an indirect transpose"),
    (
        FETCH,
        turn(504, 128),
        "first dimension of src is 504, must be a multiple of 16 in an indirect transpose",
    ),
    (FETCH, {"src.by": T((128, 3), "uint32")}, "index of src holds 384 indices, src takes 512"),
    (
        FETCH,
        {"src.by": T((128, 4), "int32")},
        "index of src has dtype int32, must be uint32 in an indirect transpose",
    ),
    (
        FETCH,
        {"src.by": T((64, 8), "uint32")},
        "index of src is 64 x 8, must have 128 rows where it has several columns in an indirect transpose",
    ),
    (
        FETCH,
        {"src.by": T((128, 2, 2), "uint32")},
        "index of src has 3 dimensions, must have 2 in an indirect transpose",
    ),
    (FETCH, turn(64, 128) | {"src.by": T((64, 1), "uint32")}, None),
    (
        FETCH,
        turn(16, 128) | {"src.by": T((24, 1), "uint32")},
        "index of src has 24 rows, must have a multiple of 16 up to 128 in an indirect transpose",
    ),
    (
        FETCH,
        turn(64, 1, 128) | {"src.by": T((64, 1), "uint32"), "nki": "0.2"},
        None,
    ),
    (
        FETCH,
        turn(64, 128) | {"src.by": T((64, 1), "uint32"), "nki": "0.2"},
        "src shape (64, 128) must have 3 dimensions in an indirect transpose",
    ),
    (
        FETCH,
        {"nki": "0.2"},
        "index of src is 128 x 4, must be one column of a multiple of 16 indices in an indirect transpose",
    ),
    (
        TURN,
        {"dst.index": "vector", "dst.by": INDICES},
        "dst has a vector index, a transpose only gathers its src",
    ),
    (TURN, {"oob_mode": "skip"}, "oob_mode=skip needs an operand whose address is only known on the device"),
    (TURN, {"oob_mode": "skip", "src.index": "register"}, None),
    (
        TURN,
        {"oob_mode": "skip", "src.index": "register", "nki": "0.4"},
        "oob_mode=skip needs a vector index on src before NKI 0.5, it has a register index",
    ),
    (
        TURN,
        {"oob_mode": "skip", "src.index": "scalar", "src.by": T((1, 1), "int32"), "nki": "0.4"},
        "oob_mode=skip needs a vector index on src before NKI 0.5, it has a scalar index",
    ),
    (FETCH, {"oob_mode": "skip", "nki": "0.4"}, None),
]

MANY = {f"srcs{number}": T((128, 512)) for number in range(16)}
ADDS: list[tuple[Made, dict[str, Any], str | None]] = [
    *((ADD, {"nki": nki, "target": target}, None) for nki in RELEASES[1:] for target in ALL_TARGETS),
    (ADD, MANY, None),
    (ADD, {"srcs0": None, "srcs1": None}, "srcs is empty, expected 1 to 16 tensors"),
    (ADD, {"dst.shape": (129, 512)}, "dst partition size 129 exceeds 128"),
    (ADD, {"srcs1.shape": (128, 511)}, "srcs[1] has 65408 elements, dst has 65536"),
    (
        ADD,
        {"srcs0.dtype": "float8_e4m3fn_x4", "target": "trn3"},
        "srcs[0] dtype float8_e4m3fn_x4 is not allowed: a DMA computes with no packed dtype",
    ),
    (ADD, {"srcs0.dtype": "int32", "dst.dtype": "bfloat16"}, None),
    (ADD, {"reduce_op": "maximum"}, "reduce_op maximum is not supported, a DMA only adds"),
    (ADD, {"scales": (1.0, 1)}, None),
    (ADD, {"scales": (1.0, 0.5)}, "scales (1.0, 0.5) must all be 1.0"),
    (ADD, {"scales": (1.0,)}, "scales has 1 entries, srcs has 2"),
    (ADD, {"nki": "0.2"}, "scales is missing, NKI before 0.3 needs a 1.0 for each of srcs"),
    (ADD, {"nki": "0.2", "scales": (1.0, 1.0)}, None),
    (ADD, {"nki": "0.1", "scales": (1.0, 1.0)}, "exists since NKI 0.2, not in NKI 0.1"),
    (GATHER_ADD, {}, None),
    (GATHER_ADD, {"nki": "0.3"}, None),
    (
        GATHER_ADD,
        {"nki": "0.2", "scales": (1.0, 1.0)},
        "srcs[0] has a vector index, which dma_compute takes since NKI 0.3",
    ),
    (SCATTER_ADD, {}, None),
    (SCATTER_ADD, {"oob_mode": "skip"}, None),
    (GATHER_ADD, {"oob_mode": "skip"}, None),
    (ADD, {"oob_mode": "skip"}, "oob_mode=skip needs an operand whose address is only known on the device"),
    (
        ADD,
        {"oob_mode": "skip", "nki": "0.3"},
        "parameter oob_mode exists since NKI 0.4, not in NKI 0.3",
    ),
    (GATHER_ADD, {"srcs2": T((128, 512))}, "srcs holds 3 tensors, a gather or scatter takes exactly 2"),
    (GATHER_ADD, {"srcs1": None}, "srcs holds 1 tensors, a gather or scatter takes exactly 2"),
    (
        GATHER_ADD,
        {"srcs1": T((128, 512), memory=HBM, index="vector", by=INDEX)},
        "both of srcs have a vector index, one must match dst",
    ),
    (GATHER_ADD, {"dst.memory": HBM}, "dst is in HBM, a gather adds to a dst in SBUF"),
    (
        SCATTER_ADD,
        {"srcs0.by": T((128, 1), "int32")},
        "dst has a vector index, one of srcs must be the same view as dst",
    ),
    (
        SCATTER_ADD,
        {"srcs1.memory": HBM},
        "dst has a vector index, one of srcs must be in SBUF, without an index",
    ),
    (
        ADD,
        {"srcs0.index": "register"},
        "srcs[0] has a register index: dma_compute needs addresses known at compile time, or a vector index",
    ),
    (
        ADD,
        {"dst.index": "scalar", "dst.by": T((1, 1), "int32")},
        "dst has a scalar index: dma_compute needs addresses known at compile time, or a vector index",
    ),
    (
        SCATTER_ADD,
        {"unique_indices": False},
        "unique_indices=False is not supported yet, indices must be unique",
    ),
    (ADD, {"unique_indices": False}, None),
    (GATHER_ADD, {"target": "trn1"}, "srcs[0] has a vector index, which needs NeuronCore-v3 or newer"),
    (GATHER_ADD, {"srcs0.by": T((64, 1), "uint32")}, "index of srcs[0] holds 64 indices, srcs[0] takes 128"),
    (
        GATHER_ADD,
        {"srcs0.by": T((128, 1), "int8")},
        "index of srcs[0] has dtype int8, expected int32 or uint32",
    ),
    (
        SCATTER_ADD,
        {"dst.by": T((128, 2), "uint32")},
        "index of dst is 128 x 2, must be one column: one index a partition",
    ),
    (SCATTER_ADD, {"dst.by": T((128, 1), "int8")}, "index of dst has dtype int8, expected int32 or uint32"),
    (
        ADD,
        {"srcs0": T((128, 512)), "srcs1": T((128, 512), memory=HBM, index="vector", by=T((4, 1), "uint16"))},
        "index of srcs[1] holds 4 indices, srcs[1] takes 128",
    ),
    (
        ADD,
        {
            "srcs0": T((128, 512)),
            "srcs1": T((128, 512), memory=HBM, index="vector", by=T((128, 1), "uint16")),
        },
        "index of srcs[1] has dtype uint16, expected int32 or uint32",
    ),
    (
        ADD,
        {"srcs0": T((128, 512)), "srcs1": T((128, 512), memory=HBM, index="vector", by=INDEX)},
        None,
    ),
]


@pytest.mark.parametrize(("call", "changes", "text"), [*COPIES, *TURNS, *ADDS])
def test_limit(call: Made, changes: dict[str, Any], text: str | None) -> None:
    found = call.changed(changes).breaches()
    assert found == [] if text is None else text in found


def test_engines_and_costs() -> None:
    for call in (COPY, TURN, ADD):
        view = call.view()
        assert view.resolved_engine() is Engine.dma and view.row.cost.interval(view) == 0
    assert TURN.changed({"engine": Engine.sync}).breaches() == [
        "engine sync is not allowed, none can be chosen on NeuronCore-v3"
    ]

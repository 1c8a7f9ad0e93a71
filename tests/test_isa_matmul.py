"""nc_matmul in all its modes and nc_transpose against float64 written from the documentation, and their limits."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from call_kit import Made, T
from execute_kit import Kernel, View, counted
from numpy.typing import NDArray

from nkireview.isa.enums import Engine, Memory
from nkireview.isa.release import Release
from nkireview.isa.table import row
from nkireview.program.verify import verify

Array = NDArray[Any]
BF16, FP8, FP8_5, FN = (
    ml_dtypes.bfloat16,
    ml_dtypes.float8_e4m3,
    ml_dtypes.float8_e5m2,
    ml_dtypes.float8_e4m3fn,
)
SBUF, PSUM = Memory.sbuf, Memory.psum


def drawn(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def result(kernel: Kernel, dst: View) -> Array:
    """What a PSUM tile holds at the end."""
    tile = kernel.sbuf(*(count for _, count in dst.pattern), dtype=dst.dtype)
    kernel.copy(tile, dst)
    kernel.store(tile)
    execution = kernel.run(compute=np.float64)
    assert execution.faults == ()
    return execution.outputs[0].values


# double_row: the contraction is split between partitions and the first free dimension (isa/__init__.py:596-599)


@pytest.mark.oracle("nisa.nc_matmul")
@pytest.mark.parametrize("target", ["trn2", "trn3"])
@pytest.mark.parametrize(("left", "right"), [(FP8, FP8), (FP8_5, FP8), (FP8, FP8_5)])
def test_double_row_contracts_two_rows_of_each_partition(target: str, left: Any, right: Any) -> None:
    stationary, moving = drawn(128, 2, 5, dtype=left, seed=1), drawn(128, 2, 7, dtype=right, seed=2)
    kernel = Kernel(target)
    dst = kernel.psum(5, 7)
    kernel.matmul(dst, kernel.load(stationary), kernel.load(moving), perf_mode="double_row")
    found = result(kernel, dst)
    # the [5, 256] @ [256, 7] product of matrices whose rows k and k + 128 share partition k
    flat = [values.astype(np.float64).transpose(1, 0, 2).reshape(256, -1) for values in (stationary, moving)]
    assert np.array_equal(found, (flat[0].T @ flat[1]).astype(np.float32))


@pytest.mark.oracle("nisa.nc_matmul")
def test_the_documented_shapes_of_double_row() -> None:
    """[1, 256] @ [256, 3] = [1, 3] with stationary [128, 2, 1] and moving [128, 2, 3] (isa/__init__.py:597-599)."""
    kernel = Kernel()
    dst = kernel.psum(1, 3)
    stationary = np.ones((128, 2, 1), FP8)
    moving = np.broadcast_to(np.array([1, 2, 4], FP8), (128, 2, 3)).copy()
    moving[:, 1] = 0  # padded
    kernel.matmul(dst, kernel.load(stationary), kernel.load(moving), perf_mode="double_row")
    assert result(kernel, dst).tolist() == [[128.0, 256.0, 512.0]]
    assert verify(kernel.program()) == ()


def test_an_undefined_half_spoils_its_column() -> None:
    kernel = Kernel()
    dst = kernel.psum(2, 3)
    moving = kernel.sbuf(4, 2, 3, dtype="float8_e4m3")
    kernel.copy(moving[0:4, 0:1, 0:3], kernel.argument(np.ones((4, 1, 3), FP8)))
    kernel.copy(moving[0:4, 1:2, 0:2], kernel.argument(np.ones((4, 1, 2), FP8)))
    kernel.matmul(dst, kernel.load(np.ones((4, 2, 2), FP8)), moving, perf_mode="double_row")
    tile = kernel.sbuf(2, 3)
    kernel.copy(tile, dst)
    kernel.store(tile)
    assert kernel.run().outputs[0].written.tolist() == [[True, True, False]] * 2


# Tiles of the array compute the same product, side by side


@pytest.mark.oracle("nisa.nc_matmul")
def test_row_and_column_tiles_give_the_plain_product() -> None:
    """nki/test/test_nki_isa_nc_matmul.py: 64 x 64 tiles at ((i % 2) * 64, (j % 2) * 64)."""
    kernel = Kernel()
    bank = kernel.psum(128, 32)
    wanted = []
    for column in (0, 64):
        stationary, moving = drawn(64, 64, seed=column), drawn(64, 32, seed=column + 1)
        tiles = {"tile_position": (column, column), "tile_size": (64, 64), "accumulate": False}
        kernel.matmul(bank[column : column + 64], kernel.load(stationary), kernel.load(moving), **tiles)
        wanted.append(stationary.astype(np.float64).T @ moving.astype(np.float64))
    assert np.array_equal(result(kernel, bank), np.concatenate(wanted).astype(np.float32))


# PSUM in bfloat16 on v4: upcast, add in float32, round at each instruction (trainium3_arch.rst:129-141)


@pytest.mark.oracle("nisa.nc_matmul")
def test_bf16_psum_rounds_at_each_instruction() -> None:
    kernel = Kernel("trn3")
    dst = kernel.psum(3, 4, dtype="bfloat16")
    total = np.zeros((3, 4), np.float64)
    exact = total.copy()
    for step in range(6):
        stationary = drawn(32, 3, dtype=BF16, seed=2 * step)
        moving = drawn(32, 4, dtype=BF16, seed=2 * step + 1)
        kernel.matmul(dst, kernel.load(stationary), kernel.load(moving), accumulate=step > 0)
        product = stationary.astype(np.float64).T @ moving.astype(np.float64)
        total = (total + product).astype(np.float32).astype(BF16).astype(np.float64)
        exact += product
    found = result(kernel, dst).astype(np.float64)
    assert np.array_equal(found, total)
    assert not np.array_equal(found, exact.astype(np.float32).astype(BF16).astype(np.float64))


@pytest.mark.oracle("nisa.nc_matmul")
def test_accumulation_by_hand_in_bf16() -> None:
    """256 + 1 is 256 in bfloat16 (8 significant bits), so ones are lost one at a time."""
    kernel = Kernel("trn3")
    dst = kernel.psum(1, 1, dtype="bfloat16")
    one = kernel.load(np.ones((1, 1), BF16))
    kernel.matmul(dst, kernel.load(np.full((1, 1), 256, BF16)), one)
    for _ in range(3):
        kernel.matmul(dst, one, one)
    assert result(kernel, dst).tolist() == [[256.0]]


# Transposes


@pytest.mark.oracle("nisa.nc_transpose")
@pytest.mark.parametrize("dtype", [np.float32, BF16, np.int32, np.uint8])
@pytest.mark.parametrize("shape", [(32, 32), (17, 5), (8, 2, 4)])
def test_vector_transposes_bits(dtype: Any, shape: tuple[int, ...]) -> None:
    data = counted(*shape, dtype=dtype)
    kernel = Kernel()
    flat = data.reshape(shape[0], -1)
    dst = kernel.sbuf(flat.shape[1], shape[0], dtype=np.dtype(dtype).name)
    kernel.call("nc_transpose", engine=Engine.vector, dst=dst, data=kernel.load(data))
    kernel.store(dst)
    found = kernel.run().outputs[0].values
    assert [[found[f, p] for f in range(found.shape[0])] for p in range(shape[0])] == flat.tolist()


# Limits


MATMUL = Made(
    "nc_matmul",
    {
        "dst": T((128, 512), memory=PSUM),
        "stationary": T((128, 128), "bfloat16"),
        "moving": T((128, 512), "bfloat16"),
    },
)
V4 = MATMUL.changed({"target": "trn3"})
MX = Made(
    "nc_matmul_mx",
    {
        "dst": T((128, 512), memory=PSUM),
        "stationary": T((128, 128), "float8_e4m3fn_x4"),
        "moving": T((128, 512), "float8_e4m3fn_x4"),
        "stationary_scale": T((128, 128), "uint8"),
        "moving_scale": T((128, 512), "uint8"),
    },
    target="trn3",
)
INDEX = T((128, 16), "uint32", placed=True)


def snake(*names: str, by: T = INDEX) -> dict[str, Any]:
    """Operands made by indirect() with one index."""
    return {f"{name}.{part}": value for name in names for part, value in (("index", "snake"), ("by", by))}


def columns(count: int, dtype: str = "float32", **more: Any) -> dict[str, Any]:
    """A matmul of so many columns."""
    return {"moving.shape": (128, count), "dst": T((128, count), dtype, PSUM), **more}


def double(stationary: str = "float8_e4m3", moving: str = "float8_e5m2", **more: Any) -> dict[str, Any]:
    return {
        "stationary": T((128, 2, 128), stationary),
        "moving": T((128, 2, 512), moving),
        "perf_mode": "double_row",
        **more,
    }


CASES: list[tuple[Made, dict[str, Any], str | None]] = [
    (V4, columns(4096), None),
    (V4, columns(4097), "moving free size 4097 exceeds 4096"),
    (V4, columns(8192, "bfloat16"), None),
    (V4, columns(8193, "bfloat16"), "moving free size 8193 exceeds 8192"),
    (V4, columns(4096, "bfloat16", nki="0.4"), None),
    (V4, columns(4097, "bfloat16", nki="0.4"), "moving free size 4097 exceeds 4096"),
    (MATMUL, columns(513), "moving free size 513 exceeds 512"),
    (MATMUL, {"dst.dtype": "bfloat16"}, "dst dtype bfloat16 is not allowed, a matmul writes float32"),
    (V4, {"dst.dtype": "bfloat16"}, None),
    (V4, {"dst.dtype": "float16"}, "dst dtype float16 is not allowed, a matmul writes float32 or bfloat16"),
    (V4, {"dst.first_byte": 1024}, None),
    (
        MATMUL,
        {"dst.first_byte": 1024},
        "dst spans PSUM banks 0 to 1, a matmul result must lie in one bank of 2048 bytes",
    ),
    (MATMUL, double(), None),
    (MATMUL, double("float8_e5m2", "float8_e5m2"), None),
    (V4, double("float8_e4m3fn", "float8_e5m2"), None),
    (
        V4,
        double("float8_e4m3fn", "float8_e4m3"),
        "float8_e4m3 and float8_e4m3fn cannot be mixed in one matmul",
    ),
    (
        V4,
        double("float8_e4m3fn", "float8_e5m2", nki="0.3"),
        "stationary dtype float8_e4m3fn is not allowed before NKI 0.4",
    ),
    (MATMUL, double(target="trn1"), "perf_mode=double_row needs NeuronCore-v3 or newer"),
    (
        MATMUL,
        double("bfloat16"),
        "stationary dtype bfloat16 is not allowed, double_row needs 8-bit floats",
    ),
    (
        MATMUL,
        {**double(), "moving": T((128, 4, 256), "float8_e4m3")},
        "moving shape (128, 4, 256) must have 2 as its first free dimension in double_row; pad with zeros",
    ),
    (MATMUL, {**double(), "moving": T((128, 2, 513), "float8_e4m3")}, "moving free size 513 exceeds 512"),
    (
        MATMUL,
        {**double(), "tile_position": (0, 64), "tile_size": (128, 64)},
        "perf_mode=double_row cannot be combined with tiles of 64 columns",
    ),
    (MATMUL, double(is_transpose=True), "perf_mode=double_row cannot be combined with is_transpose"),
    (MATMUL, {"accumulate": True}, None),
    (
        MATMUL,
        {"accumulate": True, "nki": "0.2"},
        "parameter accumulate exists since NKI 0.3, not in NKI 0.2",
    ),
    (
        MATMUL,
        {"is_transpose": True, "dst": T((128, 128), "bfloat16", PSUM), "moving": T((128, 128), "bfloat16")},
        None,
    ),
    (
        MATMUL,
        {"is_transpose": True, "dst": T((128, 128), "float32", PSUM), "moving": T((128, 128), "bfloat16")},
        "dst dtype float32 differs from stationary dtype bfloat16 in a transpose",
    ),
    (
        MATMUL,
        {
            "is_transpose": True,
            "dst": T((128, 128), "float32", PSUM),
            "moving": T((128, 128), "bfloat16"),
            "target": "trn1",
        },
        None,
    ),
    # rule 145
    (V4, snake("dst", "stationary", "moving"), None),
    (V4, snake("moving") | {"nki": "0.5"}, None),
    (
        V4,
        snake("moving") | {"nki": "0.4"},
        "moving is a view made by indirect(), which exists since NKI 0.5",
    ),
    (MATMUL, snake("moving"), "moving is a view made by indirect(), which needs NeuronCore-v4 or newer"),
    (
        V4,
        {**snake("stationary", "moving"), "stationary.dtype": "float32", "moving.dtype": "float32"},
        "stationary dtype float32 is not allowed in a view made by indirect(), use 8 or 16 bits",
    ),
    (V4, {**snake("dst"), "stationary.dtype": "float32", "moving.dtype": "float32"}, None),
    (
        V4,
        {
            **snake("moving"),
            "is_transpose": True,
            "dst": T((128, 512), "bfloat16", PSUM),
        },
        "moving is a view made by indirect(), which is_transpose cannot be combined with",
    ),
    (V4, {**snake("stationary"), "is_transpose": True, "dst": T((128, 512), "bfloat16", PSUM)}, None),
    (
        V4,
        {
            **snake("dst"),
            "tile_position": (64, 0),
            "tile_size": (64, 128),
            "stationary.shape": (64, 128),
            "moving.shape": (64, 512),
        },
        "dst is a view made by indirect(), tile_position (64, 0) must then be (0, 0)",
    ),
    (V4, {**snake("dst"), "tile_position": (0, 0), "tile_size": (128, 128)}, None),
    *(
        case
        for call, names in (
            (V4, ("dst", "stationary", "moving")),
            (MX, ("dst", "stationary", "moving", "stationary_scale", "moving_scale")),
        )
        for name in names
        for case in (
            (
                call,
                snake(name, by=T((128, 16), "uint32", PSUM)),
                f"index of {name} is in PSUM, it must be in SBUF",
            ),
            (
                call,
                snake(name, by=T((64, 32), "uint32")),
                f"index of {name} has 64 partitions, {name} has 128",
            ),
            (
                call,
                snake(name, by=T((128, 3), "uint32")),
                f"{name} takes {128 if name.startswith('stationary') else 512} offsets, "
                "its index holds 96 for each group of 32 partitions",
            ),
            (
                call,
                snake(name, by=T((128, 16), "uint32", start=16, placed=True)),
                f"index of {name} starts at partition 16, must be a multiple of 32",
            ),
        )
    ),
    (
        V4,
        {**snake("moving", by=T((128, 16), "uint32", start=32, placed=True)), "moving.placed": True},
        "index of moving starts at partition 32, moving at 0: they must start together",
    ),
    (V4, {**snake("moving"), "moving.placed": True}, None),
    (
        V4,
        {**snake("dst", by=T((128, 16), "uint32", start=96, placed=True)), "stationary.placed": True},
        "index of dst starts at partition 96, stationary at 0: they must start together",
    ),
    (MX, snake("dst") | {"nki": "0.4"}, "dst is a view made by indirect(), which exists since NKI 0.5"),
    # nc_transpose
    (
        Made("nc_transpose", {"dst": T((512, 128)), "data": T((128, 512))}, engine=Engine.vector),
        {},
        "data is 128 x 512 (partitions x elements), the vector engine transposes at most 32 x 32; "
        "the tensor engine, which writes to PSUM, takes more",
    ),
    (
        Made("nc_transpose", {"dst": T((32, 32)), "data": T((32, 32), memory=PSUM)}, engine=Engine.vector),
        {},
        None,
    ),
]


@pytest.mark.parametrize(("call", "changes", "text"), CASES)
def test_limit(call: Made, changes: dict[str, Any], text: str | None) -> None:
    found = call.changed(changes).breaches()
    assert found == [] if text is None else text in found


@pytest.mark.parametrize(
    ("changes", "cycles"),
    [
        ({}, 512),
        (columns(32), 64),
        (double(), 512),
        ({"stationary.dtype": "float32", "moving.dtype": "float32"}, 2048),
        ({"stationary.dtype": "float32", "moving.dtype": "float32", "is_moving_onezero": True}, 1024),
        ({"is_moving_onezero": True}, 512),
        ({"moving.dtype": "float32", "stationary.dtype": "float32", "is_transpose": True}, 1024),
    ],
)
def test_cost(changes: dict[str, Any], cycles: float) -> None:
    """Tag v2.26.1 isa/__init__.py:896-916; half the float32 cost: NKI 0.6 :665-670; trainium2_arch.rst:101,201."""
    assert row("nc_matmul").cost.interval(MATMUL.changed(changes).view()) == cycles


def test_no_other_operand_is_indirect() -> None:
    transpose = Made(
        "nc_transpose",
        {"dst": T((128, 128), memory=PSUM), "data": T((128, 128), index="snake", by=INDEX)},
        target="trn3",
    )
    assert transpose.breaches() == [
        "data is a view made by indirect(), which this instruction does not take there"
    ]
    assert transpose.changed({"data.index": "vector"}).breaches() == [
        "data has a vector index, which only a DMA takes"
    ]
    assert transpose.changed({"data.index": "register"}).breaches() == []


def test_accumulate_by_release() -> None:
    def names(nki: str) -> list[str]:
        return [param.name for param in row("nc_matmul").parameters(Release.parse(nki))]

    assert names("0.2") == [
        *("dst", "stationary", "moving", "is_stationary_onezero", "is_moving_onezero", "is_transpose"),
        *("tile_position", "tile_size", "perf_mode", "name"),
    ]
    assert names("0.3")[5:8] == ["is_transpose", "accumulate", "tile_position"]

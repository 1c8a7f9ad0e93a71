"""Copies, fills and affine patterns: what the rows of copy.py and gpsimd.py take, by generation and release."""

from __future__ import annotations

import operator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from execute_kit import Kernel
from judge_kit import At, call_of, judged
from numpy.typing import NDArray
from test_isa_rows import dst_of, same_bits

from nkireview.hardware import target
from nkireview.isa import dtypes
from nkireview.isa.enums import Engine, Memory
from nkireview.isa.release import Release
from nkireview.isa.table import row
from nkireview.program.access import Access, Index
from nkireview.program.call import CallView, Tile
from nkireview.program.judge import judge
from nkireview.program.model import Buffer

pytestmark = [pytest.mark.filterwarnings("error"), pytest.mark.usefixtures("as_executed")]

Array = NDArray[Any]
PSUM = Memory.psum
SCALAR, GPSIMD, VECTOR = Engine.scalar, Engine.gpsimd, Engine.vector
COMPARE = {
    "equal": operator.eq,
    "not_equal": operator.ne,
    "greater": operator.gt,
    "greater_equal": operator.ge,
    "less": operator.lt,
    "less_equal": operator.le,
}


def affine(pattern: Any, offset: int, multiplier: int, partitions: int) -> list[list[int]]:
    """The documented loop nest, padded to four dimensions."""
    (sw, nw), (sz, nz), (sy, ny), (sx, nx) = [(0, 1)] * (4 - len(pattern)) + list(pattern)
    return [
        [
            offset + channel * multiplier + w * sw + z * sz + y * sy + x * sx
            for w in range(nw)
            for z in range(nz)
            for y in range(ny)
            for x in range(nx)
        ]
        for channel in range(partitions)
    ]


PATTERNS = [
    ((1, 5),),
    ((-3, 4), (7, 2)),
    ((0, 3), (100, 2), (1, 4)),
    ((1000, 2), (-100, 2), (10, 3), (1, 2)),
]


@pytest.mark.oracle("nisa.iota")
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("dtype", ["int32", "uint32", "float32", "bfloat16"])
def test_iota_is_the_documented_loop_nest(pattern: Any, dtype: str) -> None:
    offset = 3000
    expected = np.array(affine(pattern, offset, 11, 5), np.float64)
    imms = {"pattern": pattern, "offset": offset, "channel_multiplier": 11}
    found = dst_of("iota", {}, imms, dst=((5, expected.shape[1]), dtype))
    assert np.array_equal(found.astype(np.float64), expected)


@pytest.mark.oracle("nisa.affine_select")
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("cmp_op", COMPARE)
def test_affine_select_is_the_documented_loop_nest(pattern: Any, cmp_op: str) -> None:
    numbers = affine(pattern, -2, 3, 6)
    tile = np.random.default_rng(0).standard_normal((6, len(numbers[0]))).astype(np.float32)
    expected = tile.copy()
    for p, line in enumerate(numbers):
        for f, value in enumerate(line):
            if not COMPARE[cmp_op](value, 0):
                expected[p, f] = -7.5
    imms = {
        "pattern": pattern,
        "channel_multiplier": 3,
        "offset": -2,
        "cmp_op": cmp_op,
        "on_false_value": -7.5,
    }
    found = dst_of("affine_select", {"on_true_tile": tile}, imms, dst=(tile.shape, "float32"))
    assert same_bits(np.ascontiguousarray(found), expected)


@pytest.mark.oracle("nisa.affine_select")
@pytest.mark.parametrize(
    ("number", "dtype", "expected"),
    [
        (16777217, np.int32, 16777216),  # the engine holds a float32
        (2**31 - 1, np.int32, 2**31 - 1),  # 2**31 as float32, which saturates
        (1.0 + 2.0**-8 + 2.0**-30, ml_dtypes.bfloat16, 1.0),  # a float32 first, then a tie to even
        (1e39, np.float32, np.inf),
        (-3.4028234663852886e38, ml_dtypes.bfloat16, -np.inf),
    ],
)
def test_affine_select_takes_its_number_as_float32(number: float, dtype: type, expected: float) -> None:
    tile = np.ones((1, 2), dtype)
    imms = {"pattern": ((1, 2),), "channel_multiplier": 0, "on_false_value": number}
    found = dst_of("affine_select", {"on_true_tile": tile}, imms, dst=((1, 2), tile.dtype.name))
    assert found.astype(np.float64).tolist() == [[1.0, expected]]


IOTA = {"dst": At((128, 32), "int32")}
IMMS = {"pattern": ((1, 32),), "offset": 0, "channel_multiplier": 1}
SELECT = {"dst": At((128, 32)), "on_true_tile": At((128, 32))}
SELECTING = {**IMMS, "on_false_value": -1.0, "cmp_op": "less"}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"offset": ("register", 3)}, None),
        ({"offset": 2**31 - 1, "channel_multiplier": -(2**31)}, None),
        ({"offset": 2**31}, "offset is 2147483648, it must be a 32-bit integer"),
        ({"offset": 0.5}, "offset is 0.5, it must be a 32-bit integer"),
        ({"channel_multiplier": True}, "channel_multiplier is True, it must be a 32-bit integer"),
        (
            {"channel_multiplier": -(2**31) - 1},
            "channel_multiplier is -2147483649, it must be a 32-bit integer",
        ),
        ({"pattern": ((1, 2),) * 5}, "pattern has 5 dimensions, at most 4 are allowed"),
        ({"pattern": ((1, 2),) * 4}, "pattern covers 16 elements, {} free size is 32"),
        ({"pattern": ((1, 2), (1, 2), (1, 2), (1, 4))}, None),
    ],
)
def test_numbers_of_iota_and_affine_select(changes: dict[str, Any], text: str | None) -> None:
    for name, tiles, imms in (("iota", IOTA, IMMS), ("affine_select", SELECT, SELECTING)):
        expected = [] if text is None else [text.format("dst")]
        found = judged(name, tiles, {**imms, **changes})
        # a pattern that does not fit leaves the offset unjudged
        assert found == expected


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (-1e30, None),
        (0, None),
        ("x", "on_false_value is 'x', it must be a number, which the engine takes as float32"),
        (None, "on_false_value is None, it must be a number, which the engine takes as float32"),
    ],
)
def test_the_number_of_affine_select(value: Any, text: str | None) -> None:
    assert judged("affine_select", SELECT, {**SELECTING, "on_false_value": value}) == (
        [] if text is None else [text]
    )


@pytest.mark.parametrize("name", ["iota", "affine_select"])
def test_patterns_reach_no_psum(name: str) -> None:
    tiles, imms = (IOTA, IMMS) if name == "iota" else (SELECT, SELECTING)
    placed = {**tiles, "dst": At((128, 32), tiles["dst"].dtype, PSUM)}
    assert judged(name, placed, imms) == ["dst is in PSUM, expected SBUF"]


def test_positions_of_affine_select_by_release() -> None:
    names = {
        nki: [param.name for param in row("affine_select").parameters(Release.parse(nki))]
        for nki in ("0.2", "0.3")
    }
    assert names["0.2"][1:4] == ["pattern", "offset", "channel_multiplier"]
    assert names["0.3"][1:4] == ["pattern", "channel_multiplier", "on_true_tile"]
    assert names["0.3"][-3:] == ["cmp_op", "offset", "name"]


# memset


@pytest.mark.oracle("nisa.memset")
@pytest.mark.parametrize("dtype", sorted(dtypes.BY_NAME))
def test_memset_of_zero_clears_every_bit(dtype: str) -> None:
    kernel = Kernel(target="trn3")
    tile = kernel.sbuf(4, 8, dtype=dtype)
    kernel.call("memset", dst=tile, value=0)
    kernel.store(tile)
    result = kernel.run()
    assert result.faults == () and result.outputs[0].values.tobytes() == bytes(
        result.outputs[0].values.nbytes
    )


@pytest.mark.oracle("nisa.memset")
@pytest.mark.parametrize(
    ("value", "dtype", "code"),
    [
        (1.0, "float8_e8m0fnu", 127),
        (2.0, "float8_e8m0fnu", 128),
        (0.25, "float8_e8m0fnu", 125),
        (1, "float8_e4m3", 0x38),
    ],
)
def test_memset_of_8_bit_floats(value: float, dtype: str, code: int) -> None:
    kernel = Kernel(target="trn3")
    tile = kernel.sbuf(2, 4, dtype=dtype)
    kernel.call("memset", dst=tile, value=value)
    kernel.store(tile)
    assert np.all(kernel.run().outputs[0].values.view(np.uint8) == code)


@pytest.mark.parametrize(
    ("dtype", "value", "how", "text"),
    [
        ("float32", 0.5, {}, None),
        ("float32", 1, {}, None),
        ("int32", 1, {}, None),
        ("int32", 1.0, {}, "value 1.0 is a float, dst dtype int32 needs an integer"),
        ("int32", 1.0, {"nki": "0.2"}, None),
        ("bool_", 1.0, {}, "value 1.0 is a float, dst dtype bool_ needs an integer"),
        ("float8_e4m3fn_x4", 0, {"where": "trn3"}, None),
        (
            "float8_e4m3fn_x4",
            1,
            {"where": "trn3"},
            "value is 1, packed dst dtype float8_e4m3fn_x4 takes only 0",
        ),
        (
            "float32",
            ("register", 2),
            {},
            "value is a register, it must be a number known when the kernel is traced",
        ),
        ("float32", "0", {}, "value is '0', it must be a number known when the kernel is traced"),
        ("float32", 0.0, {"engine": GPSIMD}, None),
        ("float32", 0.0, {"engine": SCALAR}, "engine scalar is not allowed, expected vector or gpsimd"),
    ],
)
def test_values_of_memset(dtype: str, value: Any, how: dict[str, Any], text: str | None) -> None:
    found = judged("memset", {"dst": At((128, 32), dtype)}, {"value": value}, **how)
    assert found == ([] if text is None else [text])


def test_memset_of_psum_is_not_for_gpsimd() -> None:
    tiles = {"dst": At((128, 32), memory=PSUM)}
    text = "dst is in PSUM, which the GpSimd engine cannot access; copy it to SBUF first"
    assert judged("memset", tiles, {"value": 0.0}, engine=GPSIMD) == [text]
    assert judged("memset", tiles, {"value": 0.0}) == []


# tensor_copy


@pytest.mark.parametrize(
    ("tiles", "how", "text"),
    [
        ({}, {"engine": SCALAR}, None),
        ({}, {"engine": SCALAR, "where": "trn1"}, "engine scalar is not allowed, expected vector or gpsimd"),
        ({}, {"engine": GPSIMD, "where": "trn1"}, None),
        ({}, {"engine": Engine.tensor}, "engine tensor is not allowed, expected vector or gpsimd or scalar"),
        (
            {"src": At((128, 32), memory=PSUM)},
            {"engine": GPSIMD},
            "src is in PSUM, which the GpSimd engine cannot access; copy it to SBUF first",
        ),
        (
            {"dst": At((128, 32), memory=PSUM)},
            {"engine": GPSIMD},
            "dst is in PSUM, which the GpSimd engine cannot access; copy it to SBUF first",
        ),
        ({"src": At((128, 32), memory=PSUM)}, {"engine": SCALAR}, None),
    ],
)
def test_engines_of_tensor_copy(tiles: dict[str, At], how: dict[str, Any], text: str | None) -> None:
    both = {"dst": At((128, 32)), "src": At((128, 32)), **tiles}
    assert judged("tensor_copy", both, **how) == ([] if text is None else [text])


INDEX = At((32, 2), "uint32")


def indirect_copy(
    operand: str,
    *,
    where: str = "trn3",
    nki: str = "0.6",
    engine: Engine = Engine.unknown,
    memory: Memory = Memory.sbuf,
    index: At = INDEX,
    starts: tuple[int, int] | None = None,
) -> list[str]:
    """What is wrong with a copy of 32 columns by an index of `NkiTensor.indirect` on one operand."""
    held = index.start if index.start else None
    tile_of = {
        "index": Tile(
            Access(2, index.dtype, 0, ((index.shape[1], index.shape[0]), (1, index.shape[1])), 0),
            Buffer(
                2,
                index.memory,
                index.shape,
                index.dtype,
                None if held is None and starts is None else (index.start, 0),
            ),
        )
    }
    tiles = {}
    for number, name in enumerate(("dst", "src")):
        snake = Index("snake", 2, 1, 1, group=16) if name == operand else None
        place = memory if name == "dst" else Memory.sbuf
        address = None if starts is None else (starts[number], 0)
        tiles[name] = Tile(
            Access(number, "float32", 0, ((64, 32), (1, 32)), 0, index=snake),
            Buffer(number, place, (32, 64), "float32", address),
        )
    tiles[f"{operand}.index"] = tile_of["index"]
    call = CallView(row("tensor_copy"), target(where), Release.parse(nki), tiles, {}, engine)
    return [found.text for found in judge(call)]


@pytest.mark.parametrize("operand", ["dst", "src"])
def test_an_indirect_copy_needs_v4_and_0_5_and_vector_or_scalar(operand: str) -> None:
    what = f"{operand} is a view made by indirect()"
    assert indirect_copy(operand) == []
    assert indirect_copy(operand, engine=SCALAR) == [] and indirect_copy(operand, engine=VECTOR) == []
    assert f"{what}, which needs NeuronCore-v4 or newer" in indirect_copy(operand, where="trn2")
    assert f"{what}, which exists since NKI 0.5" in indirect_copy(operand, nki="0.4")
    text = f"{what}, which the gpsimd engine does not take, use scalar or vector"
    assert text in indirect_copy(operand, engine=GPSIMD)


@pytest.mark.parametrize("operand", ["dst", "src"])
def test_the_index_of_an_indirect_copy(operand: str) -> None:
    assert f"index of {operand} is in PSUM, it must be in SBUF" in indirect_copy(
        operand, index=At((32, 2), "uint32", PSUM)
    )
    found = indirect_copy(operand, index=At((64, 2), "uint32"))
    assert f"index of {operand} has 64 partitions, {operand} has 32" in found
    found = indirect_copy(operand, index=At((32, 1), "uint32"))
    assert f"{operand} takes 32 offsets, its index holds 16 for each group of 16 partitions" in found


def test_where_an_indirect_copy_starts() -> None:
    index = At((32, 2), "uint32", start=32)
    assert indirect_copy("src", index=index, starts=(0, 32)) == []
    text = "index of src starts at partition 32, src at 0: they must start together"
    assert indirect_copy("src", index=index, starts=(0, 0)) == [text]
    text = "index of dst starts at partition 32, src at 0: they must start together"
    assert indirect_copy("dst", index=index, starts=(64, 0)) == [text]
    assert indirect_copy("dst", index=index, starts=(64, 32)) == []
    text = "index of src starts at partition 16, must be a multiple of 32"
    assert text in indirect_copy("src", index=At((32, 2), "uint32", start=16), starts=(0, 0))


def test_scalar_scatters_to_no_psum() -> None:
    text = "dst is a view made by indirect() in PSUM, where the Scalar engine cannot scatter to"
    assert indirect_copy("dst", engine=SCALAR, memory=PSUM) == [text]
    assert indirect_copy("dst", engine=VECTOR, memory=PSUM) == []
    assert indirect_copy("src", engine=SCALAR, memory=PSUM) == []


@pytest.mark.parametrize(
    ("name", "tiles", "imms", "expected"),
    [
        ("iota", {"dst": At((128, 100), "int32")}, {}, 250),
        ("affine_select", {"dst": At((128, 100)), "on_true_tile": At((128, 100))}, {}, 250),
        ("memset", {"dst": At((128, 200), "bfloat16")}, {"value": 0}, 100),
        ("memset", {"dst": At((128, 200), "bfloat16")}, {"value": 1}, 200),
        ("memset", {"dst": At((128, 8))}, {"value": 1}, 64),
    ],
)
def test_costs(name: str, tiles: dict[str, At], imms: dict[str, Any], expected: float) -> None:
    assert row(name).cost.interval(call_of(name, tiles, imms)) == expected


@pytest.mark.oracle("nisa.iota", "nisa.affine_select")
def test_an_offset_read_from_a_register() -> None:
    kernel = Kernel()
    counted, chosen = kernel.sbuf(4, 3, dtype="int32"), kernel.sbuf(4, 3)
    ones = kernel.load(np.ones((4, 3), np.float32))
    with kernel.loop(3):
        offset = ("register", 0)
        kernel.call("iota", dst=counted, pattern=((1, 3),), offset=offset, channel_multiplier=10)
        kernel.call(
            "affine_select",
            dst=chosen,
            on_true_tile=ones,
            pattern=((-1, 3),),
            offset=offset,
            channel_multiplier=-1,
            on_false_value=0.0,
            cmp_op="greater_equal",
        )
    kernel.store(counted)
    kernel.store(chosen)
    result = kernel.run()
    assert result.faults == ()
    # the last pass holds 2 in the register
    assert result.outputs[0].values.tolist() == affine(((1, 3),), 2, 10, 4)
    assert result.outputs[1].values.tolist() == [[1, 1, 1], [1, 1, 0], [1, 0, 0], [0, 0, 0]]

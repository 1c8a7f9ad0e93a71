"""Limits of the instruction rows at their bound and one beyond, by generation and release, with their sentences."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from nkireview.hardware import Hardware, target
from nkireview.isa import alu, dtypes, table
from nkireview.isa.enums import DgeMode, Engine, Memory
from nkireview.isa.limit import Call
from nkireview.isa.release import Release
from nkireview.isa.row import Role
from nkireview.isa.table import KNOWN_NAMES, ROWS, row

pytestmark = pytest.mark.filterwarnings("error")

SBUF, PSUM, HBM = Memory.sbuf, Memory.psum, Memory.hbm
TARGETS = ("trn1", "trn2", "trn3")
RELEASES = tuple(f"0.{minor}" for minor in range(1, 7))


@dataclass(frozen=True)
class Tile:
    """A tile as a call sees it."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    memory: Memory = SBUF
    start: int = 0
    stride: int = 1
    first_byte: int = 0
    index: str = ""
    index_axis: int = 0
    placed: bool = False


@dataclass(frozen=True)
class FakeCall:
    """One call of a row, made by hand; it satisfies `limit.Call`."""

    name: str
    tiles: Mapping[str, Tile]
    imms: Mapping[str, Any]
    target: str = "trn2"
    nki: str = "0.6"
    engine: Engine = Engine.unknown
    dge: DgeMode = DgeMode.unknown
    lnc: int = 1
    hardware: Hardware = field(init=False)
    release: Release = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "hardware", target(self.target))
        object.__setattr__(self, "release", Release.parse(self.nki))

    def has(self, operand: str) -> bool:
        return operand in self.tiles

    def measure(self, operand: str, measure: str) -> int:
        tile = self.tiles[operand]
        on_chip = tile.memory.on_chip
        elements = math.prod(tile.shape)
        return {
            "partitions": tile.shape[0] if on_chip else 1,
            "free": elements // tile.shape[0] if on_chip else elements,
            "elements": elements,
            "dims": len(tile.shape),
            "start": tile.start,
            "stride": tile.stride,
        }[measure]

    def counts(self, operand: str) -> tuple[int, ...]:
        return self.tiles[operand].shape

    def span(self, operand: str) -> tuple[int, int]:
        tile = self.tiles[operand]
        free_bits = dtypes.BY_NAME[tile.dtype].bits * self.measure(operand, "free")
        return tile.first_byte, tile.first_byte + free_bits // 8 - 1

    def index(self, operand: str) -> str:
        return self.tiles[operand].index

    def index_axis(self, operand: str) -> int:
        return self.tiles[operand].index_axis if self.tiles[operand].index in ("vector", "snake") else -1

    def same_index(self, one: str, other: str) -> bool:
        return self.tiles.get(f"{one}.index") == self.tiles.get(f"{other}.index")

    def placed(self, operand: str) -> bool:
        return self.tiles[operand].placed

    def memory(self, operand: str) -> Memory:
        return self.tiles[operand].memory

    def dtype(self, operand: str) -> str:
        return self.tiles[operand].dtype

    def imm(self, name: str) -> Any:
        return self.imms.get(name)

    def resolved_engine(self) -> Engine:
        return row(self.name).engines.resolve(self)

    def breaches(self) -> list[str]:
        """The sentences of every limit that applies, without instruction and place."""
        call: Call = self
        limits = [limit for limit in row(self.name).limits if limit.applies(call)]
        return [breach.text for limit in limits if (breach := limit.breach(call))]


P = (128, 512)
BASES: dict[str, FakeCall] = {
    name: FakeCall(name, tiles, imms)
    for name, tiles, imms in (
        ("dma_copy", {"dst": Tile(P), "src": Tile((512, 128), memory=HBM)}, {}),
        (
            "nc_matmul",
            {
                "dst": Tile(P, memory=PSUM),
                "stationary": Tile((128, 128), "bfloat16"),
                "moving": Tile(P, "bfloat16"),
            },
            {"tile_position": (), "tile_size": (), "perf_mode": "none", "is_transpose": False},
        ),
        (
            "nc_transpose",
            {"dst": Tile((128, 128), "bfloat16", PSUM), "data": Tile((128, 128), "bfloat16")},
            {},
        ),
        ("tensor_copy", {"dst": Tile(P), "src": Tile(P, memory=PSUM)}, {}),
        ("memset", {"dst": Tile(P)}, {"value": 0}),
        (
            "tensor_tensor",
            {"dst": Tile(P), "data1": Tile(P, memory=PSUM), "data2": Tile(P)},
            {"op": "add"},
        ),
        ("tensor_scalar", {"dst": Tile(P), "data": Tile(P)}, {"op0": "multiply", "operand0": 2.0}),
        (
            "scalar_tensor_tensor",
            {"dst": Tile(P), "data": Tile(P), "operand0": Tile((128, 1)), "operand1": Tile(P)},
            {"op0": "multiply", "op1": "add"},
        ),
        (
            "tensor_tensor_scan",
            {"dst": Tile(P), "data0": Tile(P), "data1": Tile(P), "initial": Tile((128, 1))},
            {"op0": "multiply", "op1": "add"},
        ),
        ("tensor_reduce", {"dst": Tile((128, 1)), "data": Tile(P)}, {"op": "add", "axis": 1}),
        ("reciprocal", {"dst": Tile(P), "data": Tile(P)}, {}),
        ("bn_stats", {"dst": Tile((128, 6)), "data": Tile(P)}, {}),
        ("bn_aggr", {"dst": Tile((128, 2)), "data": Tile((128, 12))}, {}),
        ("max8", {"dst": Tile((128, 8)), "src": Tile(P)}, {}),
        (
            "nc_find_index8",
            {"dst": Tile((128, 8), "uint32"), "data": Tile(P), "vals": Tile((128, 8))},
            {},
        ),
        (
            "activation",
            {"dst": Tile(P), "data": Tile(P), "bias": Tile((128, 1)), "reduce_res": Tile((128, 1))},
            {"op": "exp", "scale": 1.0, "reduce_op": "add", "reduce_cmd": "reset_reduce"},
        ),
        (
            "activation_reduce",
            {"dst": Tile(P), "data": Tile(P), "reduce_res": Tile((128, 1))},
            {"op": "square", "scale": 1.0, "reduce_op": "add"},
        ),
        ("iota", {"dst": Tile(P, "int32")}, {"pattern": ((1, 512),), "offset": 0, "channel_multiplier": 0}),
        (
            "affine_select",
            {"dst": Tile(P), "on_true_tile": Tile(P)},
            {
                "pattern": ((-1, 512),),
                "channel_multiplier": 1,
                "on_false_value": -1.0,
                "cmp_op": "greater_equal",
            },
        ),
    )
}


def changed(name: str, changes: Mapping[str, Any], bases: Mapping[str, FakeCall] = BASES) -> FakeCall:
    """The base call of a row with other tiles, tile fields (``data.shape``), immediates or call fields."""
    base = bases[name]
    tiles, imms, fields = dict(base.tiles), dict(base.imms), {}
    for key, value in changes.items():
        operand, dot, part = key.partition(".")
        if dot:
            tiles[operand] = replace(tiles[operand], **{part: value})
        elif isinstance(value, Tile):
            tiles[operand] = value
            imms.pop(operand, None)
        elif operand in tiles:
            del tiles[operand]
            imms[operand] = value
        elif operand in ("target", "nki", "engine", "dge"):
            fields[operand] = value
        else:
            imms[operand] = value
    return FakeCall(name, tiles, imms, **fields)


# The same calls with every optional tile that they may have.
FULL: dict[str, FakeCall] = {
    **BASES,
    "tensor_scalar": changed(
        "tensor_scalar", {"operand0": Tile((128, 1)), "op1": "add", "operand1": Tile((128, 1))}
    ),
    "activation": changed("activation", {"scale": Tile((128, 1))}),
    "activation_reduce": changed("activation_reduce", {"bias": Tile((128, 1)), "scale": Tile((128, 1))}),
}

# Rows whose limits other files trip, from base calls of their own.
ELSEWHERE: dict[str, tuple[str, ...]] = {
    "test_isa_dma.py": ("dma_transpose", "dma_compute"),
    "test_isa_mx.py": ("nc_matmul_mx", "quantize_mx"),
    "row_kit.py": (
        *("tensor_copy_predicated", "range_select", "select_reduce", "tensor_scalar_reduce"),
        *("tensor_scalar_cumulative", "exponential", "activate2", "nc_match_replace8", "nc_stream_shuffle"),
    ),
    "test_isa_gather.py": (
        *("local_gather", "nc_n_gather", "tensor_partition_reduce", "sequence_bounds"),
        *("nonzero_with_count", "topk"),
    ),
    "test_isa_random.py": ("rng", "rand2", "dropout", "set_rng_seed", "rand_set_state", "rand_get_state"),
    "test_isa_limits_more.py": (
        *("register_alloc", "register_move", "register_load", "register_store", "sendrecv", "core_barrier"),
    ),
    "test_collectives.py": tuple(
        name for name, found in ROWS.items() if found.namespace == "nki.collectives"
    ),
}


def test_every_row_has_a_base_call() -> None:
    listed = [*BASES, *(name for names in ELSEWHERE.values() for name in names)]
    assert sorted(listed) == sorted(ROWS)


@pytest.mark.parametrize("file", ELSEWHERE)
def test_rows_listed_elsewhere_have_calls_there(file: str) -> None:
    text = (Path(__file__).parent / file).read_text(encoding="utf-8")
    assert [name for name in ELSEWHERE[file] if f'"{name}"' not in text] == []


@pytest.mark.parametrize("name", BASES)
@pytest.mark.parametrize("where", TARGETS)
@pytest.mark.parametrize("nki", RELEASES)
def test_a_legal_call_breaches_nothing(name: str, where: str, nki: str) -> None:
    for bases in (BASES, FULL):
        assert replace(bases[name], target=where, nki=nki).breaches() == []


def test_the_sentence_with_instruction_target_and_place() -> None:
    call = changed("nc_matmul", {"moving.shape": (128, 1024), "dst.shape": (128, 1024)})
    messages = [f"{call.name}: {text} on {call.target} (kernel.py:41)" for text in call.breaches()]
    assert "nc_matmul: moving free size 1024 exceeds 512 on trn2 (kernel.py:41)" in messages


ON_CHIP = [
    (name, operand.name)
    for name, call in FULL.items()
    for operand in row(name).operands
    if call.has(operand.name) and call.memory(operand.name).on_chip
]


@pytest.mark.parametrize(("name", "operand"), ON_CHIP)
def test_partitions_of_every_tile_on_chip(name: str, operand: str) -> None:
    free = FULL[name].tiles[operand].shape[1:]
    found = changed(name, {f"{operand}.shape": (129, *free)}, FULL).breaches()
    assert f"{operand} partition size 129 exceeds 128" in found
    found = changed(name, {f"{operand}.shape": (128, *free)}, FULL).breaches()
    assert not [text for text in found if text.startswith(f"{operand} partition size")]


@pytest.mark.parametrize("name", [name for name, call in FULL.items() if len(call.tiles) > 1])
def test_partitions_of_all_tiles_on_chip_together(name: str) -> None:
    tiles = FULL[name].tiles
    operands = [operand for owner, operand in ON_CHIP if owner == name]
    for count, exceeds in ((128, False), (129, True)):
        shapes = {f"{operand}.shape": (count, *tiles[operand].shape[1:]) for operand in operands}
        found = changed(name, shapes, FULL).breaches()
        texts = [f"{operand} partition size 129 exceeds 128" for operand in operands]
        assert sorted(text for text in found if "partition size" in text) == (
            sorted(texts) if exceeds else []
        )


@pytest.mark.parametrize(
    ("name", "operand"), [pair for pair in ON_CHIP if pair[0] not in ("dma_copy", "memset")]
)
def test_start_partition_of_every_compute_operand(name: str, operand: str) -> None:
    free = FULL[name].tiles[operand].shape[1:]
    for count, start, allowed in (
        (128, 32, "0"),
        (64, 32, "0, 64"),
        (33, 32, "0, 64"),
        (32, 16, "0, 32, 64, 96"),
    ):
        found = changed(
            name, {f"{operand}.shape": (count, *free), f"{operand}.start": start}, FULL
        ).breaches()
        text = f"{operand} starts at partition {start}, a tile of {count} partitions may start at {allowed}"
        assert text in found
    for count, start in ((64, 64), (32, 96), (1, 32)):
        found = changed(
            name, {f"{operand}.shape": (count, *free), f"{operand}.start": start}, FULL
        ).breaches()
        assert not [text for text in found if "starts at" in text]


def test_start_partition_of_memset() -> None:
    odd = {"dst.shape": (3, 512), "dst.start": 5}
    text = "dst starts at partition 5, a tile of 3 partitions may start at 0, 32, 64, 96"
    assert changed("memset", odd).breaches() == []
    assert changed("memset", {**odd, "engine": Engine.gpsimd}).breaches() == []
    assert changed("memset", {**odd, "engine": Engine.vector}).breaches() == [text]
    assert changed("memset", {**odd, "dst.memory": PSUM}).breaches() == [text]


def test_a_dma_starts_anywhere() -> None:
    assert changed("dma_copy", {"dst.start": 5}).breaches() == []


# The dtypes of these are named, and no format of v4 is among them: another limit speaks on every target.
NAMED = {
    ("tensor_scalar", "operand0"),
    ("tensor_scalar", "operand1"),
    ("nc_find_index8", "dst"),
    ("activation", "scale"),
    ("activation_reduce", "scale"),
}


@pytest.mark.parametrize(
    ("name", "operand"), [pair for pair in ON_CHIP if pair[0] != "dma_copy" and pair not in NAMED]
)
@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e8m0fnu", "float8_e5m2_x4"])
def test_formats_of_v4(name: str, operand: str, dtype: str) -> None:
    text = f"{operand} dtype {dtype} needs NeuronCore-v4 or newer, use another dtype"
    for where, refused in (("trn1", True), ("trn2", True), ("trn3", False)):
        found = changed(name, {f"{operand}.dtype": dtype, "target": where}, FULL).breaches()
        assert (text in found) is refused


@pytest.mark.parametrize(("name", "operand"), sorted(NAMED))
@pytest.mark.parametrize("where", TARGETS)
def test_a_format_of_v4_where_dtypes_are_named(name: str, operand: str, where: str) -> None:
    allowed = "uint16, uint32" if operand == "dst" else "float32"
    changes = {f"{operand}.dtype": "float8_e4m3fn", "target": where}
    text = f"{operand} dtype float8_e4m3fn is not allowed, expected one of {allowed}"
    assert changed(name, changes, FULL).breaches() == [text]


ELEMENTWISE = [
    ("tensor_copy", "dst", "src"),
    ("tensor_tensor", "data2", "data1"),
    ("tensor_tensor", "dst", "data1"),
    ("tensor_scalar", "dst", "data"),
    ("scalar_tensor_tensor", "operand1", "data"),
    ("scalar_tensor_tensor", "dst", "data"),
    ("tensor_tensor_scan", "data1", "data0"),
    ("tensor_tensor_scan", "dst", "data0"),
    ("reciprocal", "dst", "data"),
    ("activation", "dst", "data"),
    ("activation_reduce", "dst", "data"),
    ("affine_select", "dst", "on_true_tile"),
]


@pytest.mark.parametrize(("name", "other", "first"), ELEMENTWISE)
def test_equal_layout_of_elementwise_operands(name: str, other: str, first: str) -> None:
    assert (
        f"{other} free size 511 differs from {first} free size 512"
        in changed(name, {f"{other}.shape": (128, 511)}).breaches()
    )
    assert (
        f"{other} partition size 64 differs from {first} partition size 128"
        in changed(name, {f"{other}.shape": (64, 512)}).breaches()
    )
    assert changed(name, {f"{other}.shape": (128, 8, 64)}).breaches() == []


@pytest.mark.parametrize(
    ("name", "written", "data"),
    [
        ("tensor_reduce", "dst", "data"),
        ("bn_stats", "dst", "data"),
        ("bn_aggr", "dst", "data"),
        ("max8", "dst", "src"),
        ("nc_find_index8", "vals", "data"),
        ("nc_find_index8", "dst", "data"),
        ("activation", "reduce_res", "data"),
        ("activation_reduce", "reduce_res", "data"),
    ],
)
def test_equal_partitions_of_reductions(name: str, written: str, data: str) -> None:
    free = BASES[name].tiles[written].shape[1:]
    text = f"{written} partition size 64 differs from {data} partition size 128"
    assert text in changed(name, {f"{written}.shape": (64, *free)}).breaches()


# Each case: row, changes, and the one sentence expected, None where the call is legal.
Case = tuple[str, dict[str, Any], str | None]
FP8 = {"stationary.dtype": "float8_e4m3", "moving.dtype": "float8_e5m2"}
DOUBLE = {**FP8, "stationary.shape": (128, 2, 128), "moving.shape": (128, 2, 512), "perf_mode": "double_row"}
TRANSPOSE = {
    "is_transpose": True,
    "moving.shape": (128, 128),
    "dst.shape": (128, 128),
    "dst.dtype": "bfloat16",
}
WIDE_BF16 = {"dst.dtype": "bfloat16", "target": "trn3"}
MM_DTYPES = "bfloat16, float16, float32, float8_e4m3, float8_e4m3fn, float8_e5m2, tfloat32"


def columns(count: int) -> dict[str, Any]:
    return {"moving.shape": (128, count), "dst.shape": (128, count)}


def tiled(position: Any, size: Any, rows: int = 32, cols: int = 32, **more: Any) -> dict[str, Any]:
    return {
        "stationary.shape": (rows, cols),
        "moving.shape": (rows, 512),
        "dst.shape": (cols, 512),
        "tile_position": position,
        "tile_size": size,
        **more,
    }


MATMUL: list[Case] = [
    ("nc_matmul", {**columns(513), "target": "trn1"}, "moving free size 513 exceeds 512"),
    ("nc_matmul", columns(513), "moving free size 513 exceeds 512"),
    ("nc_matmul", {**columns(4096), "target": "trn3"}, None),
    ("nc_matmul", {**columns(4097), "target": "trn3"}, "moving free size 4097 exceeds 4096"),
    ("nc_matmul", {**columns(8192), **WIDE_BF16}, None),
    ("nc_matmul", {**columns(8193), **WIDE_BF16}, "moving free size 8193 exceeds 8192"),
    ("nc_matmul", {**columns(4097), **WIDE_BF16, "nki": "0.4"}, "moving free size 4097 exceeds 4096"),
    (
        "nc_matmul",
        {"stationary.shape": (128, 129), "dst.shape": (128, 512)},
        "stationary free size 129 exceeds 128",
    ),
    (
        "nc_matmul",
        {"moving.shape": (64, 512)},
        "stationary partition size 128 differs from moving partition size 64",
    ),
    (
        "nc_matmul",
        {"dst.shape": (64, 512)},
        "dst is 64 x 512 (partitions x elements), stationary and moving give 128 x 512",
    ),
    ("nc_matmul", {"dst.shape": (128, 8, 64)}, None),
    (
        "nc_matmul",
        {"dst.first_byte": 4},
        "dst spans PSUM banks 0 to 1, a matmul result must lie in one bank of 2048 bytes",
    ),
    ("nc_matmul", {"dst.first_byte": 4, "target": "trn3"}, None),
    ("nc_matmul", {"dst.first_byte": 2048}, None),
    (
        "nc_matmul",
        {"stationary.dtype": "int8"},
        f"stationary dtype int8 is not allowed, expected one of {MM_DTYPES}",
    ),
    (
        "nc_matmul",
        {"moving.dtype": "uint8"},
        f"moving dtype uint8 is not allowed, expected one of {MM_DTYPES}",
    ),
    (
        "nc_matmul",
        {"stationary.dtype": "float32"},
        "stationary dtype float32 and moving dtype bfloat16: float32 and tfloat32 mix with each other only",
    ),
    ("nc_matmul", {"stationary.dtype": "float32", "moving.dtype": "tfloat32"}, None),
    ("nc_matmul", {"stationary.dtype": "float16"}, None),
    (
        "nc_matmul",
        {"stationary.dtype": "float8_e4m3", "moving.dtype": "float8_e4m3fn", "target": "trn3"},
        "float8_e4m3 and float8_e4m3fn cannot be mixed in one matmul",
    ),
    (
        "nc_matmul",
        {"moving.dtype": "float8_e4m3fn", "target": "trn3", "nki": "0.3"},
        "moving dtype float8_e4m3fn is not allowed before NKI 0.4",
    ),
    ("nc_matmul", {"moving.dtype": "float8_e4m3fn", "target": "trn3", "nki": "0.4"}, None),
    ("nc_matmul", {"dst.dtype": "bfloat16"}, "dst dtype bfloat16 is not allowed, a matmul writes float32"),
    ("nc_matmul", {"dst.dtype": "bfloat16", "target": "trn3"}, None),
    (
        "nc_matmul",
        {"dst.dtype": "float16", "dst.shape": P, "target": "trn3"},
        "dst dtype float16 is not allowed, a matmul writes float32 or bfloat16",
    ),
    ("nc_matmul", TRANSPOSE, None),
    ("nc_matmul", {**TRANSPOSE, "dst.dtype": "float32", "target": "trn1"}, None),
    (
        "nc_matmul",
        {**TRANSPOSE, "dst.dtype": "float32"},
        "dst dtype float32 differs from stationary dtype bfloat16 in a transpose",
    ),
    ("nc_matmul", DOUBLE, None),
    ("nc_matmul", {**DOUBLE, "target": "trn1"}, "perf_mode=double_row needs NeuronCore-v3 or newer"),
    (
        "nc_matmul",
        {**DOUBLE, "moving.shape": (128, 2, 513), "dst.shape": (128, 513), "dst.first_byte": 2044},
        "moving free size 513 exceeds 512",
    ),
    (
        "nc_matmul",
        {**DOUBLE, "moving.dtype": "bfloat16"},
        "moving dtype bfloat16 is not allowed, double_row needs 8-bit floats",
    ),
    (
        "nc_matmul",
        {**DOUBLE, "stationary.shape": (128, 256)},
        "stationary shape (128, 256) must have 2 as its first free dimension in double_row; pad with zeros",
    ),
    (
        "nc_matmul",
        {**DOUBLE, "is_transpose": True, "dst.dtype": "float32"},
        "perf_mode=double_row cannot be combined with is_transpose",
    ),
    (
        "nc_matmul",
        {
            **DOUBLE,
            "stationary.shape": (128, 2, 64),
            "dst.shape": (64, 512),
            "tile_position": (0, 0),
            "tile_size": (128, 64),
        },
        "perf_mode=double_row cannot be combined with tiles of 64 columns",
    ),
    ("nc_matmul", tiled((32, 96), (32, 32)), None),
    ("nc_matmul", tiled((64, 0), (64, 128)), None),
    (
        "nc_matmul",
        tiled((), (64, 128)),
        "tile_position None and tile_size (64, 128) must both be pairs of integers, or both be left out",
    ),
    ("nc_matmul", tiled((0, 0), (32, 128), target="trn1"), "tile_size rows 32 must be one of 64, 128"),
    ("nc_matmul", tiled((0, 0), (48, 128)), "tile_size rows 48 must be one of 32, 64, 128"),
    (
        "nc_matmul",
        tiled((0, 48), (32, 32)),
        "tile_position column 48 must be one of 0, 32, 64, 96 for 32 columns",
    ),
    ("nc_matmul", tiled((32, 0), (64, 128)), "tile_position row 32 must be one of 0, 64 for 64 rows"),
    ("nc_matmul", tiled((0, 0), (32, 64), target="trn1", nki="0.1"), None),
    (
        "nc_matmul",
        tiled((0, 0), (32, 32), target="trn1", nki="0.1"),
        "tile_size (32, 32) cannot be 32 on both sides",
    ),
    ("nc_matmul", tiled((0, 16), (32, 64), nki="0.1"), "tile_position (0, 16) must be multiples of 32"),
    (
        "nc_matmul",
        tiled((0, 0), (32, 32), rows=33),
        "stationary partition size 33 exceeds 32, the rows of tile_size",
    ),
    ("nc_matmul", tiled((0, 0), (32, 32), cols=33), "stationary free size 33 exceeds 32"),
]


def square(size: int, memory: Memory, dtype: str = "bfloat16") -> dict[str, Any]:
    return {"data": Tile((size, size), dtype), "dst": Tile((size, size), dtype, memory)}


TRANSPOSES: list[Case] = [
    ("nc_transpose", square(32, SBUF), None),
    (
        "nc_transpose",
        square(33, SBUF),
        "data is 33 x 33 (partitions x elements), the vector engine transposes at most 32 x 32; "
        "the tensor engine, which writes to PSUM, takes more",
    ),
    (
        "nc_transpose",
        {**square(33, PSUM), "engine": Engine.vector},
        "data is 33 x 33 (partitions x elements), the vector engine transposes at most 32 x 32; "
        "the tensor engine, which writes to PSUM, takes more",
    ),
    ("nc_transpose", {**square(33, PSUM), "engine": Engine.vector, "nki": "0.3"}, None),
    (
        "nc_transpose",
        {"data.shape": (128, 129), "dst.shape": (128, 128)},
        "data is 128 x 129 (partitions x elements), the tensor engine transposes at most 128 x 128",
    ),
    (
        "nc_transpose",
        {**square(32, SBUF), "engine": Engine.tensor},
        "dst is in SBUF, the tensor engine transposes from SBUF to PSUM",
    ),
    (
        "nc_transpose",
        {"data.memory": PSUM},
        "data is in PSUM, the tensor engine transposes from SBUF to PSUM",
    ),
    (
        "nc_transpose",
        {"dst.shape": (64, 128)},
        "dst is 64 x 128 (partitions x elements), the transposed data is 128 x 128",
    ),
    ("nc_transpose", {"data.shape": (128, 4, 32)}, None),
    ("nc_transpose", {"dst.dtype": "float32"}, "dst dtype float32 differs from data dtype bfloat16"),
    ("nc_transpose", {"dst.dtype": "float32", "target": "trn1"}, None),
    (
        "nc_transpose",
        {**square(32, SBUF), "dst.dtype": "float32", "target": "trn1"},
        "dst dtype float32 differs from data dtype bfloat16",
    ),
]

DMA: list[Case] = [
    ("dma_copy", {"src.shape": (511, 128)}, "src element count 65408 differs from dst element count 65536"),
    (
        "dma_copy",
        {"src": Tile(P, memory=PSUM)},
        "src is in PSUM, which a DMA cannot read; copy it to SBUF with tensor_copy first",
    ),
    ("dma_copy", {"src": Tile(P, memory=PSUM), "nki": "0.2"}, None),
    ("dma_copy", {"dst.dtype": "bfloat16"}, None),
    (
        "dma_copy",
        {"dst.dtype": "bfloat16", "dge": DgeMode.hwdge},
        "src dtype float32 differs from dst dtype bfloat16, which dge_mode=hwdge cannot cast",
    ),
    ("dma_copy", {"dst.dtype": "bfloat16", "dge": DgeMode.hwdge, "nki": "0.2"}, None),
    (
        "dma_copy",
        {"src.dtype": "float8_e5m2_x4"},
        "src dtype float8_e5m2_x4 cannot be cast to float32: a DMA does not cast packed dtypes",
    ),
    ("dma_copy", {"src.dtype": "float8_e5m2_x4", "dst.dtype": "float8_e5m2_x4"}, None),
    ("dma_copy", {"dge": DgeMode.hwdge, "target": "trn1"}, "dge_mode=hwdge needs NeuronCore-v3 or newer"),
    ("dma_copy", {"dge": DgeMode.hwdge, "engine": Engine.sync}, None),
    ("dma_copy", {"engine": Engine.sync}, "engine=sync needs dge_mode=hwdge, got unknown"),
    ("dma_copy", {"priority": 1}, "priority=1 needs NeuronCore-v4 or newer"),
    ("dma_copy", {"priority": 1, "target": "trn3"}, None),
]

COPIES: list[Case] = [
    (
        "tensor_copy",
        {"engine": Engine.gpsimd},
        "src is in PSUM, which the GpSimd engine cannot access; copy it to SBUF first",
    ),
    ("tensor_copy", {"engine": Engine.gpsimd, "src.memory": SBUF}, None),
    (
        "memset",
        {"dst.dtype": "int32", "value": 2.0},
        "value 2.0 is a float, dst dtype int32 needs an integer",
    ),
    ("memset", {"dst.dtype": "int32", "value": 2.0, "nki": "0.2"}, None),
    ("memset", {"dst.dtype": "int32", "value": 2}, None),
    ("memset", {"dst.dtype": "float32", "value": 2}, None),
    ("memset", {"dst.dtype": "float8_e5m2_x4", "value": 0, "target": "trn3"}, None),
    (
        "memset",
        {"dst.dtype": "float8_e5m2_x4", "value": 1, "target": "trn3"},
        "value is 1, packed dst dtype float8_e5m2_x4 takes only 0",
    ),
    (
        "memset",
        {"dst.memory": PSUM, "engine": Engine.gpsimd},
        "dst is in PSUM, which the GpSimd engine cannot access; copy it to SBUF first",
    ),
]

INTS = {"dst.dtype": "int32", "data1.dtype": "int32", "data2.dtype": "int32"}
BITS = {**INTS, "op": "bitwise_and"}
SCALAR_INTS = {"dst.dtype": "int32", "data.dtype": "int32"}
VECTOR = Tile((128, 1))
INT_VECTOR = Tile((128, 1), "int32")
ELEMENTWISE_CASES: list[Case] = [
    ("tensor_tensor", {"data2.memory": PSUM}, "data1 and data2 are both in PSUM, one must be in SBUF"),
    ("scalar_tensor_tensor", {"data.memory": PSUM}, None),
    (
        "scalar_tensor_tensor",
        {"data.memory": PSUM, "operand1.memory": PSUM},
        "data and operand1 are both in PSUM, one must be in SBUF",
    ),
    (
        "tensor_tensor_scan",
        {"data0.memory": PSUM, "data1.memory": PSUM},
        "data0 and data1 are both in PSUM, one must be in SBUF",
    ),
    ("tensor_tensor", BITS, None),
    (
        "tensor_tensor",
        {**BITS, "data2.dtype": "float32"},
        "data2 dtype float32 is not allowed, bitvec operators need integers",
    ),
    (
        "tensor_tensor",
        {**BITS, "data1.memory": SBUF, "engine": Engine.gpsimd},
        "op bitwise_and is a bitvec operator, which the gpsimd engine cannot run",
    ),
    ("tensor_tensor", {"op": "exp"}, "op exp is no ALU operator"),
    ("tensor_tensor", {"op": "abs"}, "op abs is a unary operator, expected a binary one"),
    ("tensor_tensor", {"op": "abs_max"}, "op abs_max is an ALU operator on v4 only"),
    ("tensor_tensor", {"op": "abs_max", "target": "trn3"}, None),
    (
        "tensor_tensor",
        {"op": "abs_max", "target": "trn3", "nki": "0.3"},
        "op abs_max is no ALU operator in NKI 0.3",
    ),
    ("tensor_tensor", {"op": "power", "data1.memory": SBUF}, None),
    *(
        (
            "tensor_tensor",
            {"op": "power", "data1.memory": SBUF, f"{operand}.memory": PSUM},
            f"{operand} is in PSUM, which the GpSimd engine cannot access; copy it to SBUF first",
        )
        for operand in ("data2", "dst")
    ),
    (
        "tensor_tensor",
        {"op": "power"},
        "data1 is in PSUM, which the GpSimd engine cannot access; copy it to SBUF first",
    ),
    (
        "tensor_tensor",
        {"op": "power", "data1.memory": SBUF, "engine": Engine.vector},
        "op power runs on gpsimd, engine is vector",
    ),
    ("tensor_scalar", {"op0": "bitwise_and", "operand0": 1, **SCALAR_INTS}, None),
    (
        "tensor_scalar",
        {"op0": "bitwise_and", "operand0": 1, "op1": "add", "operand1": 1.0, **SCALAR_INTS},
        "op0 bitwise_and and op1 add mix bitvec and arithmetic operators",
    ),
    (
        "tensor_scalar",
        {"op0": "bitwise_and", "operand0": 1.0, **SCALAR_INTS},
        "operand0 1.0 is a float, bitvec operators need integers",
    ),
    (
        "tensor_scalar",
        {"op0": "bitwise_and", "operand0": 1},
        "data dtype float32 is not allowed, bitvec operators need integers",
    ),
    ("tensor_scalar", {"operand1": 1.0}, "operand1 is given without op1"),
    ("tensor_scalar", {"op1": "add"}, "op1 add needs operand1"),
    ("tensor_scalar", {"operand0": None}, "op0 multiply needs operand0"),
    ("tensor_scalar", {"op0": None, "operand0": None, "op1": "maximum", "operand1": 0.0}, None),
    ("tensor_scalar", {"op0": "abs", "operand0": 0}, None),
    ("tensor_scalar", {"op0": "abs", "operand0": 1.0}, "op0 abs is unary, operand0 must be None or 0"),
    ("tensor_scalar", {"op0": "abs", "operand0": 1.0, "nki": "0.3"}, None),
    ("tensor_scalar", {"op0": "square", "operand0": None}, "op0 square is an ALU operator on v4 only"),
    ("tensor_scalar", {"op0": "square", "operand0": None, "target": "trn3"}, None),
    ("tensor_scalar", {"operand0": VECTOR}, None),
    ("tensor_scalar", {"operand0": Tile((128, 1, 1))}, None),
    (
        "tensor_scalar",
        {"operand0": Tile((128, 2))},
        "operand0 free size is 2, must be 1; a vector has one element a partition",
    ),
    (
        "tensor_scalar",
        {"operand0": Tile((1, 1))},
        "operand0 partition size 1 is below data partition size 128",
    ),
    (
        "tensor_scalar",
        {"operand0": Tile((128, 1), "bfloat16")},
        "operand0 dtype bfloat16 is not allowed, expected one of float32",
    ),
    ("tensor_scalar", {"operand0": INT_VECTOR, "op0": "bitwise_or", **SCALAR_INTS}, None),
    ("tensor_scalar", {"operand0": INT_VECTOR, "op0": "add", **SCALAR_INTS}, None),
    (
        "tensor_scalar",
        {"operand0": INT_VECTOR, "op0": "add"},
        "operand0 dtype int32 is not allowed, expected one of float32",
    ),
    ("scalar_tensor_tensor", {"operand0.dtype": "bfloat16"}, None),
    (
        "scalar_tensor_tensor",
        {"op1": "bitwise_and"},
        "op1 bitwise_and is a bitvec operator, only arithmetic ones are allowed",
    ),
    ("tensor_tensor_scan", {"initial": 0.0}, None),
    (
        "tensor_tensor_scan",
        {"initial.shape": (128, 2)},
        "initial free size is 2, must be 1; a vector has one element a partition",
    ),
    ("tensor_tensor_scan", {"initial.dtype": "bfloat16"}, None),
    (
        "tensor_tensor_scan",
        {"op0": "reciprocal"},
        "op0 reciprocal is a unary operator, expected a binary one",
    ),
    ("tensor_scalar", {"engine": Engine.scalar}, None),
    ("tensor_scalar", {"engine": Engine.scalar, "op1": "add", "operand1": 1.0}, None),
    (
        "tensor_scalar",
        {"engine": Engine.scalar, "op0": "maximum"},
        "op0 maximum with op1 None cannot run on Scalar: only multiply then add, multiply, or add",
    ),
    ("tensor_scalar", {"engine": Engine.scalar, "op0": "maximum", "target": "trn3"}, None),
    (
        "tensor_scalar",
        {"engine": Engine.gpsimd},
        "op0 multiply cannot run on GpSimd, which tensor_scalar offers for rsqrt only",
    ),
    ("tensor_scalar", {"engine": Engine.gpsimd, "op0": "rsqrt", "operand0": 0.0}, None),
    (
        "tensor_scalar",
        {"engine": Engine.gpsimd, "op0": "rsqrt", "operand0": 0.0, "data.memory": PSUM},
        "data is in PSUM, which the GpSimd engine cannot access; copy it to SBUF first",
    ),
    ("tensor_scalar", {"op0": "rsqrt", "operand0": 0.0, "data.memory": PSUM}, None),
    (
        "tensor_scalar",
        {"engine": Engine.gpsimd, "op0": "rsqrt", "operand0": 0.0, "dst.memory": PSUM},
        "dst is in PSUM, which the GpSimd engine cannot access; copy it to SBUF first",
    ),
    *(
        (
            "tensor_scalar",
            {
                "engine": Engine.gpsimd,
                "op0": "power",
                "operand0": VECTOR,
                "op1": "add",
                "operand1": VECTOR,
                operand: Tile((128, 1), memory=PSUM),
            },
            f"{operand} is in PSUM, which the GpSimd engine cannot access; copy it to SBUF first",
        )
        for operand in ("operand0", "operand1")
    ),
    ("tensor_scalar", {"op1": "add", "operand1": VECTOR}, None),
    (
        "tensor_scalar",
        {"op1": "add", "operand1": Tile((128, 2))},
        "operand1 free size is 2, must be 1; a vector has one element a partition",
    ),
    (
        "tensor_scalar",
        {"op1": "add", "operand1": Tile((127, 1))},
        "operand1 partition size 127 is below data partition size 128",
    ),
    (
        "tensor_scalar",
        {"op1": "add", "operand1": Tile((128, 1), "int32")},
        "operand1 dtype int32 is not allowed, expected one of float32",
    ),
    ("scalar_tensor_tensor", {"op0": "abs", "operand0": 0}, None),
    ("scalar_tensor_tensor", {"op0": "abs"}, "op0 abs is unary, operand0 must be None or 0"),
    ("scalar_tensor_tensor", {"operand0": None}, "op0 multiply needs operand0"),
    ("scalar_tensor_tensor", {"op1": "abs_min"}, "op1 abs_min is an ALU operator on v4 only"),
    ("scalar_tensor_tensor", {"op1": "abs_min", "target": "trn3"}, None),
    (
        "scalar_tensor_tensor",
        {"operand0": Tile((128, 2))},
        "operand0 free size is 2, must be 1; a vector has one element a partition",
    ),
    (
        "scalar_tensor_tensor",
        {"operand0": Tile((127, 1))},
        "operand0 partition size 127 is below data partition size 128",
    ),
]

VECTOR_CASES: list[Case] = [
    ("tensor_tensor_scan", {"op1": "abs_max"}, "op1 abs_max is an ALU operator on v4 only"),
    ("tensor_tensor_scan", {"op1": "abs_max", "target": "trn3"}, None),
    (
        "tensor_tensor_scan",
        {"initial.shape": (127, 1)},
        "initial partition size 127 is below data0 partition size 128",
    ),
    ("tensor_reduce", {"op": "abs_max", "target": "trn3"}, "op abs_max is no reduction operator"),
    ("tensor_reduce", {"data.shape": (128, 4, 8), "dst.shape": (128, 4), "axis": 2}, None),
    ("tensor_reduce", {"data.shape": (128, 4, 8), "dst.shape": (128, 4), "axis": -1}, None),
    ("tensor_reduce", {"data.shape": (128, 4, 8), "axis": (1, 2)}, None),
    ("tensor_reduce", {"data.shape": (128, 4, 8), "axis": (-2, -1)}, None),
    (
        "tensor_reduce",
        {"data.shape": (128, 4, 8), "dst.shape": (128, 8), "axis": 1},
        "axis 1 must name the last free dimensions of the 3-dimensional data, without axis 0",
    ),
    ("tensor_reduce", {"data.shape": (128, 4, 8), "dst.shape": (128, 4), "axis": 1, "nki": "0.2"}, None),
    (
        "tensor_reduce",
        {"axis": (0, 1)},
        "axis (0, 1) must name the last free dimensions of the 2-dimensional data, without axis 0",
    ),
    (
        "tensor_reduce",
        {"axis": 2},
        "axis 2 must name the last free dimensions of the 2-dimensional data, without axis 0",
    ),
    ("tensor_reduce", {"dst.shape": (128, 2)}, "dst free size is 2, the reduction leaves 1"),
    ("tensor_reduce", {"op": "equal"}, "op equal is no reduction operator"),
    (
        "tensor_reduce",
        {"op": "bitwise_or", "negate": True, "data.dtype": "int32", "dst.dtype": "int32"},
        "negate needs an arithmetic operator, op is bitwise_or",
    ),
    ("tensor_reduce", {"negate": True}, None),
    ("bn_stats", {"data.shape": (128, 513)}, "data free size 513 exceeds 512"),
    (
        "bn_stats",
        {"dst.shape": (128, 5)},
        "dst free size is 5, must be 6; count, mean and variance * count of the even and of the odd elements",
    ),
    ("bn_aggr", {"data.shape": (128, 13)}, "data free size 13 is no multiple of 3"),
    ("bn_aggr", {"dst.shape": (128, 3)}, "dst free size is 3, must be 2; mean and variance"),
    ("max8", {"src.shape": (128, 8)}, None),
    ("max8", {"src.shape": (128, 7)}, "src free size 7 is below 8"),
    ("max8", {"src.shape": (128, 16384)}, None),
    ("max8", {"src.shape": (128, 16385)}, "src free size 16385 exceeds 16384"),
    ("max8", {"src.shape": (128, 4, 8)}, None),
    ("max8", {"src.shape": (128, 2, 2, 8)}, "src number of dimensions 4 exceeds 3"),
    ("max8", {"src.shape": (128, 2, 2, 8), "nki": "0.3"}, None),
    ("max8", {"src.shape": (128, 1, 2, 2, 2, 8), "nki": "0.3"}, "src number of dimensions 6 exceeds 5"),
    ("max8", {"dst.shape": (128, 9)}, "dst free size is 9, must be 8"),
    ("nc_find_index8", {"data.shape": (128, 8)}, None),
    ("nc_find_index8", {"data.shape": (128, 7)}, "data free size 7 is below 8"),
    ("nc_find_index8", {"data.shape": (128, 16384)}, None),
    ("nc_find_index8", {"data.shape": (128, 16385)}, "data free size 16385 exceeds 16384"),
    ("nc_find_index8", {"data.shape": (128, 4, 8)}, None),
    ("nc_find_index8", {"data.shape": (128, 2, 2, 8)}, "data number of dimensions 4 exceeds 3"),
    ("nc_find_index8", {"data.shape": (128, 2, 2, 2, 8), "nki": "0.3"}, None),
    (
        "nc_find_index8",
        {"data.shape": (128, 1, 2, 2, 2, 8), "nki": "0.3"},
        "data number of dimensions 6 exceeds 5",
    ),
    ("nc_find_index8", {"dst.shape": (128, 9)}, "dst free size is 9, must be 8"),
    ("nc_find_index8", {"vals.shape": (128, 7)}, "vals free size is 7, must be 8"),
    ("nc_find_index8", {"dst.dtype": "uint16"}, None),
    (
        "nc_find_index8",
        {"dst.dtype": "int32"},
        "dst dtype int32 is not allowed, expected one of uint16, uint32",
    ),
]

BIASED = ("activation", "activation_reduce")
WITH_BIAS = {"bias": VECTOR}
SCALAR_CASES: list[Case] = [
    *((name, {**WITH_BIAS, "scale": VECTOR}, None) for name in BIASED),
    *(
        (name, {**WITH_BIAS, **changes}, text)
        for name in BIASED
        for changes, text in (
            ({"bias": 1.0}, None),
            (
                {"bias": 1.0, "target": "trn1"},
                "bias is the number 1.0, must be a tile with one element a partition on NeuronCore-v2",
            ),
            (
                {"bias.shape": (128, 2)},
                "bias free size is 2, must be 1; a vector has one element a partition",
            ),
            ({"bias.shape": (127, 1)}, "bias partition size 127 is below data partition size 128"),
            ({"bias.dtype": "float16", "nki": "0.2"}, None),
            (
                {"bias.dtype": "int32", "nki": "0.2"},
                "bias dtype int32 is not allowed, expected one of bfloat16, float16, float32",
            ),
            ({"bias.dtype": "tfloat32"}, "bias dtype tfloat32 is not allowed, use float32"),
            ({"op": "reciprocal", "target": "trn1"}, "op reciprocal takes no bias on NeuronCore-v2"),
            ({"op": "reciprocal"}, None),
            (
                {"scale": Tile((128, 2))},
                "scale free size is 2, must be 1; a vector has one element a partition",
            ),
            ({"scale": Tile((127, 1))}, "scale partition size 127 is below data partition size 128"),
            (
                {"scale": Tile((128, 1), "bfloat16")},
                "scale dtype bfloat16 is not allowed, expected one of float32",
            ),
            ({"reduce_res.shape": (128, 2)}, "reduce_res free size is 2, must be 1"),
            ({"op": "add"}, "op add is no activation function"),
        )
    ),
    ("activation", {"bias": 1.0}, None),
    ("activation", {"bias": None, "target": "trn1"}, None),
    (
        "activation",
        {"bias": 1.0, "target": "trn1"},
        "bias is the number 1.0, must be a tile with one element a partition on NeuronCore-v2",
    ),
    (
        "activation",
        {"bias.shape": (128, 64)},
        "bias free size is 64, must be 1; a vector has one element a partition",
    ),
    ("activation", {"bias.shape": (64, 1)}, "bias partition size 64 is below data partition size 128"),
    ("activation", {"bias.dtype": "int32"}, None),
    (
        "activation",
        {"bias.dtype": "int32", "nki": "0.2"},
        "bias dtype int32 is not allowed, expected one of bfloat16, float16, float32",
    ),
    ("activation", {"bias.dtype": "bfloat16", "nki": "0.2"}, None),
    ("activation", {"bias.dtype": "tfloat32"}, "bias dtype tfloat32 is not allowed, use float32"),
    ("activation", {"op": "reciprocal", "target": "trn1"}, "op reciprocal takes no bias on NeuronCore-v2"),
    ("activation", {"op": "reciprocal", "bias": None, "target": "trn1"}, None),
    ("activation", {"scale": VECTOR}, None),
    (
        "activation",
        {"scale": Tile((128, 1), "bfloat16")},
        "scale dtype bfloat16 is not allowed, expected one of float32",
    ),
    (
        "activation",
        {"scale": Tile((128, 2))},
        "scale free size is 2, must be 1; a vector has one element a partition",
    ),
    ("activation", {"reduce_res.shape": (128, 2)}, "reduce_res free size is 2, must be 1"),
    ("activation", {"reduce_op": "maximum"}, "reduce_op is maximum, must be add"),
    (
        "activation",
        {"reduce_cmd": "load_reduce"},
        "reduce_cmd is load_reduce, must be one of idle, reset, reduce, reset_reduce",
    ),
    ("activation", {"op": "add"}, "op add is no activation function"),
    (
        "activation",
        {"op": "prelu", "target": "trn3"},
        "op prelu needs relu_param, which only activate2 takes",
    ),
    (
        "activation",
        {"op": "gelu_apprx_sigmoid_dx", "nki": "0.1"},
        "op gelu_apprx_sigmoid_dx is no activation function in NKI 0.1 on NeuronCore-v3",
    ),
    ("activation_reduce", {"op": "square", "reduce_res": None}, None),
    ("activation_reduce", {"reduce_op": "maximum"}, "reduce_op is maximum, must be add"),
    ("activation_reduce", {"data.shape": (128, 16384), "dst.shape": (128, 16384)}, None),
    (
        "activation_reduce",
        {"data.shape": (128, 16385), "dst.shape": (128, 16385)},
        "data free size 16385 exceeds 16384",
    ),
]

GPSIMD_CASES: list[Case] = [
    (name, changes, text)
    for name in ("iota", "affine_select")
    for changes, text in (
        ({"pattern": ((1, 2), (1, 4), (1, 8), (1, 8))}, None),
        (
            {"pattern": ((1, 2), (1, 2), (1, 2), (1, 8), (1, 8))},
            "pattern has 5 dimensions, at most 4 are allowed",
        ),
        ({"pattern": ((1, 511),)}, "pattern covers 511 elements, dst free size is 512"),
        ({"pattern": (1, 512)}, "pattern (1, 512) must be a list of [step, count] pairs of integers"),
    )
] + [
    (
        "affine_select",
        {"cmp_op": "add"},
        "cmp_op add is no comparison, expected one of equal, not_equal, greater_equal, greater, less_equal, less",
    ),
]


@pytest.mark.parametrize(
    ("name", "changes", "text"),
    [*MATMUL, *TRANSPOSES, *DMA, *COPIES, *ELEMENTWISE_CASES, *VECTOR_CASES, *SCALAR_CASES, *GPSIMD_CASES],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_limit(name: str, changes: dict[str, Any], text: str | None) -> None:
    found = changed(name, changes).breaches()
    if text is None:
        assert found == []
    else:
        assert text in found


@pytest.mark.parametrize(
    ("name", "changes", "engine"),
    [
        ("dma_copy", {"engine": Engine.sync, "dge": DgeMode.hwdge}, Engine.dma),
        ("nc_matmul", {}, Engine.tensor),
        ("nc_transpose", {}, Engine.tensor),
        ("nc_transpose", square(32, SBUF), Engine.vector),
        ("nc_transpose", {"engine": Engine.vector}, Engine.vector),
        ("nc_transpose", {"engine": Engine.vector, "nki": "0.3"}, Engine.tensor),
        ("tensor_copy", {}, Engine.vector),
        ("tensor_copy", {"engine": Engine.scalar}, Engine.scalar),
        ("memset", {}, Engine.vector),
        ("tensor_tensor", {}, Engine.vector),
        ("tensor_tensor", {**INTS, "data1.memory": SBUF}, Engine.gpsimd),
        ("tensor_tensor", INTS, Engine.vector),
        ("tensor_tensor", {**INTS, "data1.memory": SBUF, "engine": Engine.vector}, Engine.vector),
        ("tensor_tensor", {**BITS, "data1.memory": SBUF}, Engine.vector),
        ("tensor_tensor", {"op": "power", "data1.memory": SBUF}, Engine.gpsimd),
        ("tensor_scalar", {}, Engine.vector),
        ("tensor_scalar", {"op0": "rsqrt", "operand0": 0.0}, Engine.gpsimd),
        ("tensor_scalar", {"op0": "add", "operand0": 1e-6, "op1": "rsqrt", "operand1": 0.0}, Engine.gpsimd),
        ("tensor_scalar", {"op0": "rsqrt", "operand0": 0.0, "data.memory": PSUM}, Engine.scalar),
        ("tensor_scalar", {"op0": "power", "operand0": -0.5}, Engine.gpsimd),
        ("tensor_scalar", {"op0": "add", "operand0": INT_VECTOR, **SCALAR_INTS}, Engine.gpsimd),
        (
            "tensor_scalar",
            {"op0": "add", "operand0": INT_VECTOR, **SCALAR_INTS, "data.memory": PSUM},
            Engine.vector,
        ),
        ("tensor_scalar", {"op0": "add", "operand0": 1, **SCALAR_INTS}, Engine.vector),
        ("tensor_scalar", {"op0": "mystery"}, Engine.vector),
        ("activation", {}, Engine.scalar),
        ("iota", {}, Engine.gpsimd),
        ("affine_select", {}, Engine.gpsimd),
    ],
)
def test_engine_of_a_call(name: str, changes: dict[str, Any], engine: Engine) -> None:
    assert changed(name, changes).resolved_engine() is engine


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("dma_copy", {Engine.sync: "v3 v4", Engine.scalar: "v3 v4"}),
        ("nc_transpose", {Engine.tensor: "v2 v3 v4", Engine.vector: "v2 v3 v4"}),
        (
            "tensor_copy",
            {Engine.vector: "v2 v3 v4", Engine.gpsimd: "v2 v3 v4", Engine.scalar: "v3 v4"},
        ),
        (
            "tensor_scalar",
            {Engine.vector: "v2 v3 v4", Engine.gpsimd: "v2 v3 v4", Engine.scalar: "v3 v4"},
        ),
        ("tensor_tensor", {Engine.vector: "v2 v3 v4", Engine.gpsimd: "v2 v3 v4"}),
        ("memset", {Engine.vector: "v2 v3 v4", Engine.gpsimd: "v2 v3 v4"}),
    ],
)
def test_engines_that_may_be_asked_for(name: str, allowed: dict[Engine, str]) -> None:
    assert row(name).engines.allowed == {engine: frozenset(text.split()) for engine, text in allowed.items()}


def test_reductions_are_in_every_generation_and_release() -> None:
    reductions = [op for op in alu.BY_NAME.values() if op.reduce]
    assert {"add", "multiply", "maximum", "minimum"} < {op.name for op in reductions}
    for op in reductions:
        assert set(op.generations) == {"v2", "v3", "v4"}
        assert all(Release.parse(nki) in op.releases for nki in RELEASES)


def test_memories() -> None:
    matmul, copy, iota = row("nc_matmul"), row("dma_copy"), row("iota")
    assert matmul.operand("stationary").memories == matmul.operand("moving").memories == {SBUF}
    assert matmul.operand("dst").memories == iota.operand("dst").memories ^ {SBUF, PSUM} == {PSUM}
    assert copy.operand("dst").memories == {SBUF, HBM, Memory.shared_hbm}
    assert PSUM in copy.operand("src").memories, "legal before NKI 0.3: rule 21 refuses it since"


def test_a_transposing_matmul_only_writes() -> None:
    dst = row("nc_matmul").operand("dst")
    assert dst.role_in({"is_transpose": False}) is Role.accumulate
    assert dst.role_in({"is_transpose": True}) is Role.write
    assert row("nc_transpose").operand("dst").role is Role.write


def names(instruction: str, nki: str) -> list[str]:
    return [param.name for param in row(instruction).parameters(Release.parse(nki))]


def test_parameters_by_release() -> None:
    assert "accumulate" in names("nc_matmul", "0.3") and "accumulate" not in names("nc_matmul", "0.2")
    assert "priority" in names("dma_copy", "0.4") and "priority" not in names("dma_copy", "0.3")
    assert "engine" in names("dma_copy", "0.3") and "engine" not in names("dma_copy", "0.2")
    assert names("affine_select", "0.2")[:4] == ["dst", "pattern", "offset", "channel_multiplier"]
    assert names("affine_select", "0.3")[:4] == ["dst", "pattern", "channel_multiplier", "on_true_tile"]


# Names that came after the legacy generation, in which no row was spelled differently.
NEW_SINCE_02 = {
    *("activate2", "core_barrier", "dma_compute", "exponential", "nc_matmul_mx"),
    *("nonzero_with_count", "quantize_mx", "rand2", "rand_get_state", "rand_set_state", "register_alloc"),
    *("register_load", "register_move", "register_store", "sendrecv", "topk"),
}

# Limits of one row alone, which the numbered list of constraints does not hold.
UNNUMBERED = {
    "nc_stream_shuffle": {"shuffle_mask.entries"},
    "tensor_scalar_reduce": {"reverse0.kind"},
    "register_alloc": {"x.value"},
    "register_move": {"src.value", "imm.value"},
    "register_load": {"src.elements"},
    "register_store": {"dst.elements"},
}


def test_every_row_is_a_known_name_with_sources() -> None:
    assert {name for name, found in ROWS.items() if found.namespace == "nki.isa"} == set(KNOWN_NAMES)
    for found in ROWS.values():
        assert found.source and found.cost.source and found.cost.formula
        assert all(limit.source for limit in found.limits)
        unnumbered = {limit.subject for limit in found.limits if not limit.number}  # type: ignore[attr-defined]
        assert unnumbered == UNNUMBERED.get(found.name, set())
        assert all(limit.exemption for limit in found.limits if limit.exempt)
        if found.legacy is not None:
            assert found.legacy.form in ("returns", "dst", "inside")
    new = {name for name, found in ROWS.items() if found.legacy is None}
    assert new == NEW_SINCE_02 | set(ELSEWHERE["test_collectives.py"])


def test_names_without_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "ROWS", {name: found for name, found in ROWS.items() if name != "topk"})
    with pytest.raises(
        ValueError, match=r"^nisa\.topk is not supported yet: supported are activate2, activation, "
    ):
        row("topk")
    with pytest.raises(ValueError, match=r"^tensor_sum is no nki\.isa instruction: known are activate2, "):
        row("tensor_sum")


# Cycles by the published formulas, worked out by hand for N = 512 (MIN_II = 64).
@pytest.mark.parametrize(
    ("name", "changes", "cycles"),
    [
        ("nc_matmul", {}, 512),
        ("nc_matmul", columns(16), 64),
        ("nc_matmul", {"stationary.dtype": "float32", "moving.dtype": "float32"}, 2048),
        (
            "nc_matmul",
            {"stationary.dtype": "float32", "moving.dtype": "float32", "is_moving_onezero": True},
            1024,
        ),
        ("nc_matmul", DOUBLE, 512),
        ("nc_transpose", {}, 128),
        ("tensor_copy", {}, 512),
        ("tensor_copy", {"dst": Tile(P, "bfloat16"), "src": Tile(P, "bfloat16")}, 128),
        ("tensor_copy", {"dst": Tile(P, "bfloat16"), "src": Tile(P, "bfloat16"), "target": "trn1"}, 512),
        ("tensor_copy", {"dst": Tile(P, "bfloat16"), "src": Tile(P, "bfloat16", stride=2)}, 256),
        ("memset", {}, 512),
        ("memset", {"dst.dtype": "bfloat16"}, 256),
        ("memset", {"dst.dtype": "bfloat16", "value": 1}, 512),
        ("tensor_tensor", {}, 512),
        # fitted on trn1: 1.5 cycles an element, documented as 2
        ("tensor_tensor", {"data1.memory": SBUF, "target": "trn1"}, 768),
        ("tensor_tensor", {"data1.memory": SBUF}, 512),  # measured on trn2
        ("tensor_scalar", {"data.stride": 2}, 512),
        ("tensor_scalar", {}, 256),
        ("tensor_scalar", {"op0": "rsqrt", "operand0": 0.0}, 2048),
        ("scalar_tensor_tensor", {"target": "trn1"}, 768),
        ("scalar_tensor_tensor", {}, 512),
        ("tensor_tensor_scan", {}, 1024),
        ("tensor_reduce", {}, 512),
        ("tensor_reduce", {"data.dtype": "bfloat16", "dst.dtype": "bfloat16"}, 256),
        ("reciprocal", {}, 4096),
        # fitted on trn1: 3 cycles an element, documented as 8
        ("reciprocal", {"target": "trn1"}, 1536),
        ("bn_stats", {}, 512),
        ("bn_aggr", {"data.shape": (128, 48)}, 208),
        ("max8", {}, 512),
        ("nc_find_index8", {}, 512),
        ("activation", {}, 576),
        ("activation", {"reduce_res": None}, 512),
        ("activation", {"reduce_res": None, "data.shape": (128, 4)}, 64),
        ("activation_reduce", {}, 576),
        ("iota", {}, 662),
        ("affine_select", {}, 662),
    ],
)
def test_published_interval(name: str, changes: dict[str, Any], cycles: float) -> None:
    call = changed(name, changes)
    assert row(name).cost.interval(call) == pytest.approx(cycles)

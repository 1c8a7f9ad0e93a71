"""nki.collectives: every rank's result against NumPy over the arrays of all ranks, and every limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from execute_kit import row_major

from nkireview.execute import Execution, Fault, execute_ranks
from nkireview.hardware import target as hardware_of
from nkireview.isa import dtypes
from nkireview.isa.dtypes import DataType
from nkireview.isa.enums import Engine, Memory
from nkireview.isa.release import Release
from nkireview.isa.row import Bits
from nkireview.isa.rows import collectives as rows
from nkireview.isa.rows import ranks
from nkireview.isa.table import row
from nkireview.nki import collectives, isa, language
from nkireview.nki.errors import Refusal
from nkireview.nki.tensor import NkiTensor
from nkireview.nki.trace import Trace, tracing
from nkireview.program.access import Access
from nkireview.program.call import CallView, Tile
from nkireview.program.model import Buffer, Header, Output
from nkireview.program.program import Program
from nkireview.program.tree import Group as Parameters
from nkireview.program.tree import TensorLeaf
from nkireview.program.verify import verify

Array = np.ndarray
BF16 = ml_dtypes.bfloat16
SIZES = (2, 4)


class RankReader:
    """One rank's operands made by hand, among those of other ranks; it satisfies `row.Reader`."""

    engine, generation, release = Engine.dma, "v3", Release(0, 6)

    def __init__(
        self,
        tiles: Mapping[str, Array],
        imms: Mapping[str, Any],
        written: Mapping[str, tuple[tuple[int, ...], str]],
        state: dict[str, Array] | None = None,
    ) -> None:
        self.tiles, self.imms, self.written, self.state = tiles, imms, written, state or {}
        self.compute = np.dtype(np.float32)

    def meet(self, peers: tuple[RankReader, ...], position: int) -> RankReader:
        self.peers, self.position = peers, position
        return self

    def has(self, name: str) -> bool:
        return name in self.tiles or name in self.written

    def value(self, name: str) -> Array:
        return dtypes.to_compute(self.tiles[name], self.dtype(name), self.compute)

    def raw(self, name: str) -> Array:
        return self.tiles[name]

    def dtype(self, name: str) -> DataType:
        return dtypes.of(self.written[name][1] if name in self.written else self.tiles[name].dtype)

    def shape(self, name: str) -> tuple[int, ...]:
        return self.written[name][0] if name in self.written else self.tiles[name].shape

    def imm(self, name: str) -> Any:
        return self.imms.get(name)


def meet(
    name: str,
    tiles: Sequence[Mapping[str, Array]],
    imms: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    written: Mapping[str, tuple[tuple[int, ...], str]],
) -> list[dict[str, Array]]:
    """What each rank gets, as stored; `tiles` by rank."""
    each = imms if isinstance(imms, list | tuple) else [imms] * len(tiles)
    readers = tuple(RankReader(held, given, written) for held, given in zip(tiles, each, strict=True))
    found = []
    for position, reader in enumerate(readers):
        results = row(name).meaning(reader.meet(readers, position))
        found.append({})
        for operand, result in results.items():
            if isinstance(result, Bits):
                assert result.array.dtype == reader.dtype(operand).storage
                array = result.array
            else:
                array = dtypes.cast(result, reader.dtype(operand))
            found[-1][operand] = np.asarray(array).reshape(written[operand][0])
    return found


def group_of(size: int) -> tuple[tuple[int, ...], ...]:
    return (tuple(range(size)),)


def drawn(size: int, *shape: int, dtype: Any = np.float32) -> list[Array]:
    """One array for each rank."""
    random = np.random.default_rng(size)
    return [(random.standard_normal(shape) * 8).astype(dtype) for _ in range(size)]


# What ranks compute


@pytest.mark.oracle("ncc.all_reduce")
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("op", "function"), [("add", np.sum), ("minimum", np.min), ("maximum", np.max)])
def test_all_reduce(size: int, op: str, function: Any) -> None:
    first, second = drawn(size, 6, 5), drawn(size, 3)
    tiles = [{"srcs0": a, "srcs1": b} for a, b in zip(first, second, strict=True)]
    written = {"dsts0": ((6, 5), "float32"), "dsts1": ((3,), "float32")}
    found = meet("all_reduce", tiles, {"op": op, "replica_group": group_of(size)}, written)
    for got in found:
        for name, arrays in (("dsts0", first), ("dsts1", second)):
            expected = function(np.stack(arrays).astype(np.float64), axis=0)
            np.testing.assert_allclose(got[name], expected, rtol=1e-6, atol=1e-6)


@pytest.mark.oracle("ncc.all_reduce")
def test_a_sum_of_halves_is_rounded_once_and_one_of_integers_is_exact() -> None:
    halves = [np.array([value], BF16) for value in (256.0, 1.0, 1.0, 1.0)]
    imms = {"op": "add", "replica_group": group_of(4)}
    found = meet("all_reduce", [{"srcs0": a} for a in halves], imms, {"dsts0": ((1,), "bfloat16")})
    assert [float(got["dsts0"][0]) for got in found] == [
        260.0
    ] * 4  # 259 goes to the even neighbour; rounded at each hop it would stay 256
    whole = [np.array([value], np.int32) for value in (2**24 + 1, 1, 2**31 - 2, 3)]
    found = meet("all_reduce", [{"srcs0": a} for a in whole], imms, {"dsts0": ((1,), "int32")})
    assert int(found[0]["dsts0"][0]) == (2**24 + 1 + 1 + 2**31 - 2 + 3) - 2**32


@pytest.mark.oracle("ncc.all_reduce", "ncc.all_gather", "ncc.reduce_scatter", "ncc.all_to_all")
def test_small_arrays_by_hand() -> None:
    ones = np.arange(1.0, 7.0, dtype=np.float32).reshape(2, 3)
    sevens = ones + 6
    pair = group_of(2)
    summed = meet("all_reduce", [{"srcs0": ones}] * 2, {"op": "add", "replica_group": pair}, hbm(2, 3))
    assert summed[0]["dsts0"].tolist() == [[2, 4, 6], [8, 10, 12]] == summed[1]["dsts0"].tolist()
    dim = {"collective_dim": 0, "replica_group": pair}
    gathered = meet("all_gather", [{"srcs0": ones}, {"srcs0": sevens}], dim, hbm(4, 3))
    assert all(got["dsts0"].tolist() == np.arange(1, 13).reshape(4, 3).tolist() for got in gathered)
    steps = np.repeat(np.arange(1.0, 5.0, dtype=np.float32)[:, None], 3, axis=1)
    scattered = meet("reduce_scatter", [{"srcs0": steps}] * 2, {"op": "add", **dim}, hbm(2, 3))
    assert scattered[0]["dsts0"].tolist() == [[2] * 3, [4] * 3]
    assert scattered[1]["dsts0"].tolist() == [[6] * 3, [8] * 3]
    swapped = meet("all_to_all", [{"srcs0": ones}, {"srcs0": sevens}], dim, hbm(2, 3))
    assert swapped[0]["dsts0"].tolist() == [[1, 2, 3], [7, 8, 9]]
    assert swapped[1]["dsts0"].tolist() == [[4, 5, 6], [10, 11, 12]]


def hbm(*shape: int, dtype: str = "float32") -> dict[str, tuple[tuple[int, ...], str]]:
    return {"dsts0": (shape, dtype)}


@pytest.mark.oracle("ncc.all_gather")
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dim", [0, 1])
def test_all_gather(size: int, dim: int) -> None:
    arrays = drawn(size, 8, 3, dtype=BF16)
    shape = (8 * size, 3) if dim == 0 else (8, 3 * size)
    imms = {"collective_dim": dim, "replica_group": group_of(size)}
    found = meet("all_gather", [{"srcs0": a} for a in arrays], imms, hbm(*shape, dtype="bfloat16"))
    expected = np.empty(shape, BF16)
    for rank, array in enumerate(arrays):
        for i in range(8):
            for j in range(3):
                at = (rank * 8 + i, j) if dim == 0 else (i, rank * 3 + j)
                expected[at] = array[i, j]
    assert all(np.array_equal(got["dsts0"], expected) for got in found)


@pytest.mark.oracle("ncc.reduce_scatter")
@pytest.mark.parametrize("size", SIZES)
def test_reduce_scatter(size: int) -> None:
    arrays = drawn(size, 2 * size, 5)
    imms = {"collective_dim": 0, "op": "maximum", "replica_group": group_of(size)}
    found = meet("reduce_scatter", [{"srcs0": a} for a in arrays], imms, hbm(2, 5))
    highest = np.stack(arrays).max(axis=0)
    for rank, got in enumerate(found):
        assert np.array_equal(got["dsts0"], highest[2 * rank : 2 * rank + 2])


@pytest.mark.oracle("ncc.all_to_all")
@pytest.mark.parametrize("size", SIZES)
def test_all_to_all(size: int) -> None:
    arrays = drawn(size, 3 * size, 2)
    imms = {"collective_dim": 0, "replica_group": group_of(size)}
    found = meet("all_to_all", [{"srcs0": a} for a in arrays], imms, hbm(3 * size, 2))
    for rank, got in enumerate(found):
        for sender in range(size):
            part = got["dsts0"][3 * sender : 3 * sender + 3]
            assert np.array_equal(part, arrays[sender][3 * rank : 3 * rank + 3])


def test_a_collective_does_not_convert() -> None:
    arrays = drawn(2, 4)
    imms = {"op": "add", "collective_dim": 0, "replica_group": group_of(2)}
    message = "srcs0 is float32 and dsts0 bfloat16: a collective does not convert, use one dtype"
    for name, shape in (
        ("all_reduce", (4,)),
        ("all_gather", (8,)),
        ("reduce_scatter", (2,)),
        ("all_to_all", (4,)),
    ):
        with pytest.raises(ValueError, match=message):
            meet(name, [{"srcs0": a} for a in arrays], imms, hbm(*shape, dtype="bfloat16"))


# Variable lengths


def metadata(*lines: Sequence[int]) -> Array:
    return np.array(lines, np.uint32)


@pytest.mark.oracle("ncc.all_gather_v")
def test_all_gather_v_sends_one_chunk_to_all() -> None:
    arrays = [np.arange(10, dtype=np.float32) + 100 * rank for rank in range(4)]
    counts, begins = (3, 0, 2, 1), (1, 0, 8, 9)
    old = np.full(12, -1, np.float32)
    tiles = [
        {"srcs0": a, "dsts0": old, "metadata_tensor": metadata([count], [begin])}
        for a, count, begin in zip(arrays, counts, begins, strict=True)
    ]
    written = {"dsts0": ((12,), "float32"), "recv_counts": ((1, 4), "uint32")}
    found = meet("all_gather_v", tiles, {"replica_group": group_of(4)}, written)
    expected = [1, 2, 3, -1, -1, -1, 208, 209, -1, 309, -1, -1]  # four slots of three elements
    for got in found:
        assert got["dsts0"].tolist() == expected
        assert got["recv_counts"].tolist() == [[3, 0, 2, 1]]


@pytest.mark.oracle("ncc.all_to_all_v")
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("displaced", [False, True])
@pytest.mark.parametrize("known", [False, True])
def test_all_to_all_v(size: int, displaced: bool, known: bool) -> None:
    random = np.random.default_rng(size)
    slot, send = 5, random.integers(0, 6, (size, size))
    begins = random.integers(0, 20, (size, size))
    arrays = [np.arange(30, dtype=np.float32) + 1000 * rank for rank in range(size)]
    places = np.array([[slot * ((s + 1) % size) for s in range(size)]] * size)
    tiles, written = [], {"dsts0": ((slot * size,), "float32")}
    if not known:
        written["recv_counts"] = ((1, size), "uint32")
    for rank in range(size):
        held = {
            "srcs0": arrays[rank],
            "dsts0": np.full(slot * size, -1, np.float32),
            "metadata_tensor": metadata(send[rank], begins[rank]),
        }
        if displaced:
            held["recv_displs"] = metadata(places[rank])
        tiles.append(held)
    imms = {"replica_group": group_of(size), "has_rdispls": displaced, "recv_counts_known": known}
    found = meet("all_to_all_v", tiles, imms, written)
    for rank, got in enumerate(found):
        expected = np.full(slot * size, -1, np.float32)
        for sender in range(size):
            count, first = send[sender, rank], begins[sender, rank]
            at = places[rank, sender] if displaced else slot * sender
            expected[at : at + count] = arrays[sender][first : first + count]
        assert np.array_equal(got["dsts0"], expected)
        if known:
            assert "recv_counts" not in got
        else:
            assert got["recv_counts"].tolist() == [send[:, rank].tolist()]


def test_chunks_that_do_not_fit() -> None:
    def tiles(count: int, first: int) -> list[dict[str, Array]]:
        told = metadata([count, count], [first, first])
        return [
            {"srcs0": np.zeros(6, np.float32), "dsts0": np.zeros(8, np.float32), "metadata_tensor": told}
        ] * 2

    imms = {"replica_group": group_of(2)}
    meet("all_to_all_v", tiles(4, 2), imms, hbm(8))
    with pytest.raises(
        ValueError, match=r"position 0 of the group sends elements \[3, 7\) of srcs0, which has 6"
    ):
        meet("all_to_all_v", tiles(4, 3), imms, hbm(8))
    with pytest.raises(
        ValueError, match=r"5 elements from position 0 of the group do not fit dsts0 \[0, 4\)"
    ):
        meet("all_to_all_v", tiles(5, 0), imms, hbm(8))


# Permutes and ranks


@pytest.mark.oracle("ncc.collective_permute")
def test_collective_permute() -> None:
    arrays = drawn(4, 3, 2)
    pairs = ((0, 2), (2, 0), (1, 3))
    imms = {"source_target_pairs": pairs}
    found = meet("collective_permute", [{"srcs0": a} for a in arrays], imms, hbm(3, 2))
    assert np.array_equal(found[2]["dsts0"], arrays[0]) and np.array_equal(found[0]["dsts0"], arrays[2])
    assert np.array_equal(found[3]["dsts0"], arrays[1])
    assert found[1] == {}  # no target: it keeps what it has


@pytest.mark.oracle("ncc.collective_permute_implicit")
@pytest.mark.parametrize("size", SIZES)
def test_collective_permute_implicit(size: int) -> None:
    left, right = drawn(size, 4, 2), drawn(size + 1, 4, 2)[:size]
    tiles = [{"srcs0": a, "srcs1": b} for a, b in zip(left, right, strict=True)]
    written = dict.fromkeys(("dsts0", "dsts1"), ((4, 2), "float32"))
    found = meet("collective_permute_implicit", tiles, {"replica_group": group_of(size)}, written)
    for rank, got in enumerate(found):
        assert np.array_equal(got["dsts0"], left[rank - 1]) and np.array_equal(got["dsts1"], right[rank - 1])


@pytest.mark.oracle("ncc.collective_permute_implicit_reduce")
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("op", "function"), [("add", np.add), ("minimum", np.minimum), ("maximum", np.maximum)]
)
def test_collective_permute_implicit_reduce(size: int, op: str, function: Any) -> None:
    left, right = drawn(size, 4, 2), drawn(size + 1, 4, 2)[:size]
    tiles = [{"srcs0_0": a, "srcs1_0": b} for a, b in zip(left, right, strict=True)]
    imms = {"replica_group": group_of(size), "op": op}
    found = meet("collective_permute_implicit_reduce", tiles, imms, hbm(4, 2))
    for rank, got in enumerate(found):
        np.testing.assert_array_equal(got["dsts0"], function(left[rank - 1], right[rank - 1]))


def test_a_ring_of_reducing_permutes_is_a_reduce_scatter() -> None:
    """Each step adds the own part to what came round; after size - 1 steps every rank lacks only its own."""
    size, parts = 4, drawn(4, 4, 3)
    imms = {"replica_group": group_of(size), "op": "add"}
    held = [np.zeros(3, np.float32)] * size
    for step in range(1, size):
        tiles = [{"srcs0_0": held[r], "srcs1_0": parts[r][(r - step) % size]} for r in range(size)]
        received = meet("collective_permute_implicit_reduce", tiles, imms, hbm(3))
        held = [got["dsts0"] for got in received]
    for rank in range(size):
        expected = sum(parts[r][rank].astype(np.float64) for r in range(size))
        np.testing.assert_allclose(held[rank] + parts[rank][rank], expected, rtol=1e-5)


def rank_reader(rank: int, imms: Mapping[str, Any]) -> RankReader:
    return RankReader({}, imms, {}, {"rank": np.array([rank])})


@pytest.mark.oracle("ncc.rank_id")
def test_rank_id() -> None:
    assert [int(row("rank_id").meaning(rank_reader(rank, {}))["dst"]) for rank in range(4)] == [0, 1, 2, 3]
    assert int(row("rank_id").meaning(RankReader({}, {}, {}))["dst"]) == 0


@pytest.mark.oracle("ncc.collective_permute_implicit_current_processing_rank_id")
def test_the_rank_whose_data_has_come_round() -> None:
    """It is the owner of what `collective_permute_implicit` has brought, step after step."""
    name = "collective_permute_implicit_current_processing_rank_id"
    group = ((3, 0, 2, 1),)
    held = dict(enumerate(range(4)))  # whose data each rank holds
    for step in range(5):
        for rank in range(4):
            imms = {"iteration_id": step, "replica_group": group}
            assert int(row(name).meaning(rank_reader(rank, imms))["dst"]) == held[rank]
        ring = group[0]
        held = {rank: held[ring[ring.index(rank) - 1]] for rank in ring}


# Limits

PAIR = ((0, 1),)
QUAD = ((0, 1, 2, 3),)
DEVICES = ((0, 1, 2, 3), (4, 5, 6, 7))


def tile(*shape: int, memory: Memory = Memory.shared_hbm, dtype: str = "float32") -> Tile:
    held = Buffer(0, memory, shape, dtype)
    return Tile(Access(0, dtype, 0, row_major(shape), 0 if memory.on_chip else None), held)


def chip(*shape: int) -> Tile:
    return tile(*shape, memory=Memory.sbuf)


GOOD: dict[str, tuple[dict[str, Tile], dict[str, Any]]] = {
    "all_reduce": ({"srcs0": tile(8, 4), "dsts0": tile(8, 4)}, {"replica_group": PAIR, "op": "add"}),
    "all_gather": ({"srcs0": tile(8, 4), "dsts0": tile(16, 4)}, {"replica_group": PAIR, "collective_dim": 0}),
    "reduce_scatter": (
        {"srcs0": tile(8, 4), "dsts0": tile(4, 4)},
        {"replica_group": PAIR, "collective_dim": 0, "op": "add"},
    ),
    "all_to_all": ({"srcs0": tile(8, 4), "dsts0": tile(8, 4)}, {"replica_group": PAIR, "collective_dim": 0}),
    "all_gather_v": (
        {"srcs0": tile(32), "dsts0": tile(64), "metadata_tensor": tile(2, 1, dtype="uint32")},
        {"replica_group": QUAD, "metadata_shape": (3, 4), "has_rdispls": False},
    ),
    "all_to_all_v": (
        {"srcs0": tile(32), "dsts0": tile(64), "metadata_tensor": tile(2, 4, dtype="uint32")},
        {"replica_group": DEVICES, "metadata_shape": (3, 4), "has_rdispls": False},
    ),
    "collective_permute": (
        {"srcs0": tile(8, 4), "dsts0": tile(8, 4)},
        {"source_target_pairs": ((0, 1), (1, 0))},
    ),
    "collective_permute_implicit": (
        {"srcs0": tile(8, 4), "dsts0": tile(8, 4)},
        {"replica_group": PAIR, "channel_ids": (0,), "counts": ((1,), (1,))},
    ),
    "collective_permute_implicit_reduce": (
        {"srcs0_0": tile(8, 4), "srcs1_0": tile(8, 4), "dsts0": tile(8, 4)},
        {"replica_group": PAIR, "channel_ids": (0,), "counts": ((1,), (1,), (1,)), "op": "maximum"},
    ),
    "collective_permute_implicit_current_processing_rank_id": (
        {},
        {"replica_group": PAIR, "iteration_id": 0, "channel_id": 3},
    ),
}


def breaches(
    name: str,
    tiles: Mapping[str, Tile | None] | None = None,
    imms: Mapping[str, Any] | None = None,
    *,
    target: str = "trn3",
    lnc: int = 2,
) -> list[tuple[int, str]]:
    """What the limits of a row say about its good call with some of it changed; None takes a tile away."""
    held, given = GOOD[name]
    call = CallView(
        row(name),
        hardware_of(target),
        Release(0, 6),
        {key: one for key, one in {**held, **(tiles or {})}.items() if one is not None},
        {**given, **(imms or {})},
        lnc=lnc,
    )
    found = [(limit.number, limit.breach(call)) for limit in row(name).limits if limit.applies(call)]
    return [(number, breach.text) for number, breach in found if breach]


@pytest.mark.parametrize("name", sorted(GOOD))
@pytest.mark.parametrize("priority", [None, 0, 3])
def test_good_calls_break_nothing(name: str, priority: int | None) -> None:
    assert breaches(name, imms={"priority": priority}) == []
    if name not in ("all_to_all_v",):
        assert breaches(name, target="trn2") == []


WITH_PRIORITY = sorted(set(GOOD) - {"collective_permute_implicit_current_processing_rank_id"})


@pytest.mark.parametrize("name", WITH_PRIORITY)
def test_priority(name: str) -> None:
    wanted = {"priority": 1}
    assert (51, "priority=1 needs NeuronCore-v4 or newer") in breaches(name, imms=wanted, target="trn2")
    assert breaches(name, imms={"priority": 4}) == [(110, "priority is 4, must be 0 to 3")]
    assert breaches(name, imms={"priority": -1}) == [(110, "priority is -1, must be 0 to 3")]


@pytest.mark.parametrize("name", sorted(set(GOOD) - {"collective_permute"}))
@pytest.mark.parametrize(
    ("group", "text"),
    [
        (((0, 1), (1, 2)), "rank 1 is in replica_group twice: lists of ranks must not overlap"),
        (((0, 1), ()), "replica_group holds an empty list of ranks"),
        (((0, -1),), "replica_group holds -1, a rank is an integer from 0 on"),
        ((), "replica_group () must be a list of lists of ranks"),
        ((0, 1), "replica_group (0, 1) must be a list of lists of ranks"),
    ],
)
def test_replica_groups(name: str, group: Any, text: str) -> None:
    assert (110, text) in breaches(name, imms={"replica_group": group}, target="trn2")


CASES: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("all_reduce", {"srcs0": None}, {}, "srcs holds no tensor, at least one is needed"),
    ("all_reduce", {"dsts0": None}, {}, "dsts holds no tensor, at least one is needed"),
    ("all_gather", {"srcs1": tile(8, 4)}, {}, "srcs holds 2 tensors and dsts 1, as many are needed"),
    (
        "all_reduce",
        {"dsts0": chip(8, 4)},
        {},
        "srcs0 is in HBM and dsts0 in SBUF: all tensors must be in one of them",
    ),
    (
        "all_reduce",
        {"srcs0": chip(8, 4), "dsts0": chip(8, 4), "srcs1": chip(8, 4), "dsts1": chip(8, 4)},
        {},
        "srcs holds 2 tensors in SBUF, where one is possible; several must be in HBM",
    ),
    (
        "all_reduce",
        {"srcs0": chip(8, 2, 2), "dsts0": chip(8, 4)},
        {},
        "srcs0 has 3 dimensions, a tensor in SBUF must have 2",
    ),
    (
        "all_reduce",
        {},
        {"op": "multiply"},
        "op multiply is not allowed, expected one of add, minimum, maximum",
    ),
    (
        "collective_permute_implicit_reduce",
        {},
        {"op": "subtract"},
        "op subtract is not allowed, expected one of add, minimum, maximum",
    ),
    (
        "reduce_scatter",
        {},
        {"op": "bitwise_or"},
        "op bitwise_or is not allowed, expected one of add, minimum, maximum",
    ),
    ("all_reduce", {"dsts0": tile(8, 5)}, {}, "dsts0 has 40 elements and srcs0 32, as many are needed"),
    ("all_gather", {}, {"collective_dim": 1}, "collective_dim is 1, only 0 is supported in HBM"),
    (
        "all_gather",
        {"srcs0": chip(8, 4), "dsts0": chip(8, 8)},
        {"collective_dim": 2},
        "collective_dim is 2, 0 or 1 is supported in SBUF",
    ),
    ("all_gather", {"dsts0": tile(8, 4)}, {}, "dsts0 has 32 elements, 2 ranks with srcs0 fill 64"),
    (
        "all_gather",
        {"srcs0": chip(8, 4), "dsts0": chip(16, 4)},
        {"collective_dim": 1},
        "dsts0 has shape [16, 4], must be [8, 8]",
    ),
    ("reduce_scatter", {}, {"collective_dim": 1}, "collective_dim is 1, only 0 is supported"),
    ("reduce_scatter", {"dsts0": tile(8, 4)}, {}, "dsts0 on 2 ranks holds 64 elements, srcs0 has 32"),
    (
        "reduce_scatter",
        {"srcs0": tile(5, 4), "dsts0": tile(5, 2)},
        {},
        "srcs0 has 5 rows in dim 0, which 2 ranks cannot share equally",
    ),
    ("all_to_all", {}, {"collective_dim": 1}, "collective_dim is 1, only 0 is supported"),
    ("all_to_all", {"dsts0": tile(4, 4)}, {}, "dsts0 has 16 elements and srcs0 32, as many are needed"),
    (
        "all_to_all",
        {"srcs0": tile(3, 4), "dsts0": tile(3, 4)},
        {},
        "srcs0 has 3 rows in dim 0, which 2 ranks cannot share equally",
    ),
    ("all_gather_v", {"srcs1": tile(4)}, {}, "srcs holds 2 tensors, must be exactly 1"),
    ("all_to_all_v", {"dsts0": None}, {}, "dsts holds 0 tensors, must be exactly 1"),
    (
        "all_gather_v",
        {},
        {"metadata_shape": (4, 3)},
        "metadata_tensor has shape [4, 3], must be [3, 4]",
    ),
    (
        "all_to_all_v",
        {"metadata_tensor": tile(1, 2, 4, memory=Memory.sbuf, dtype="uint32")},
        {"metadata_shape": (3, 4)},
        "metadata_tensor has shape [3, 4], must be [1, 3, 4]",
    ),
    (
        "all_to_all_v",
        {},
        {"metadata_shape": (3, 4), "has_rdispls": True},
        "metadata_tensor has shape [3, 4], must be [4, 4]",
    ),
    (
        "all_gather_v",
        {},
        {"has_rdispls": True, "metadata_shape": (4, 4)},
        "has_rdispls=True is not supported by all_gather_v",
    ),
    (
        "all_gather_v",
        {},
        {"replica_group": PAIR, "metadata_shape": (3, 2)},
        "replica_group holds a list of 2 ranks, must be 4 (one chip)",
    ),
    (
        "all_to_all_v",
        {},
        {"replica_group": ((0, 1, 2, 3), (4, 6, 8, 10))},
        "replica_group holds the ranks [4, 6, 8, 10]: with a NeuronSwitch a list must hold all 4 ranks of each of its "
        "devices, in sequence",
    ),
    (
        "all_to_all_v",
        {},
        {"replica_group": QUAD},
        "replica_group lies within one device: with a NeuronSwitch more than one must take part",
    ),
    ("collective_permute", {"srcs1": tile(8, 4)}, {}, "srcs holds 2 tensors, must be exactly 1"),
    ("collective_permute", {"dsts0": tile(8)}, {}, "dsts0 has 8 elements and srcs0 32, as many are needed"),
    (
        "collective_permute",
        {},
        {"source_target_pairs": ((0, 1), (2, 1))},
        "source_target_pairs name rank 1 as a target twice, it can receive one tensor",
    ),
    (
        "collective_permute",
        {},
        {"source_target_pairs": (0, 1)},
        "source_target_pairs (0, 1) must be a list of (source, target) ranks",
    ),
    (
        "collective_permute_implicit",
        {"srcs1": tile(8, 4)},
        {"counts": ((2,), (1,))},
        "srcs_by_channel[0] holds 2 tensors, must be exactly 1",
    ),
    (
        "collective_permute_implicit_reduce",
        {},
        {"counts": ((1,), (0,), (1,))},
        "srcs1_by_channel[0] holds 0 tensors, must be exactly 1",
    ),
    (
        "collective_permute_implicit",
        {},
        {"counts": ((1, 1), (1,)), "channel_ids": (0, 1)},
        "lists have different numbers of channels: srcs_by_channel 2, dsts_by_channel 1",
    ),
    (
        "collective_permute_implicit",
        {},
        {"channel_ids": (1,)},
        "channel_ids are [1], must be consecutive from 0",
    ),
    (
        "collective_permute_implicit",
        {},
        {"channel_ids": (0, 1)},
        "channel_ids are [0, 1], but there are 1 channels",
    ),
    (
        "collective_permute_implicit_reduce",
        {},
        {"counts": ((1,) * 5,) * 3, "channel_ids": (0, 1, 2, 3, 4)},
        "there are 5 channels, at most 4 are possible",
    ),
    ("collective_permute_implicit", {}, {"counts": ((), ())}, "there is no channel, at least one is needed"),
    (
        "collective_permute_implicit",
        {"dsts0": tile(8, 2)},
        {},
        "dsts0 has 16 elements and srcs0 32, as many are needed",
    ),
    (
        "collective_permute_implicit_reduce",
        {"srcs0_0": tile(8, 2)},
        {},
        "dsts0 has 32 elements and srcs0_0 16, as many are needed",
    ),
    (
        "collective_permute_implicit_reduce",
        {"srcs1_0": tile(8, 2)},
        {},
        "dsts0 has 32 elements and srcs1_0 16, as many are needed",
    ),
    (
        "collective_permute_implicit_current_processing_rank_id",
        {},
        {"iteration_id": -1},
        "iteration_id is -1, must be 0 or more",
    ),
    (
        "collective_permute_implicit_current_processing_rank_id",
        {},
        {"channel_id": 4},
        "channel_id is 4, must be 0 to 3",
    ),
]


@pytest.mark.parametrize(("name", "tiles", "imms", "text"), CASES, ids=[f"{c[0]}-{c[3][:40]}" for c in CASES])
def test_limits(name: str, tiles: dict[str, Any], imms: dict[str, Any], text: str) -> None:
    assert (110, text) in breaches(name, tiles, imms)


def test_just_inside_the_limits() -> None:
    many = {f"{kind}{at}": tile(8, 4) for kind in ("srcs", "dsts") for at in range(ranks.TENSORS)}
    assert breaches("all_reduce", many) == []
    assert breaches("all_reduce", {"srcs0": chip(8, 4), "dsts0": chip(8, 4)}, {"op": "minimum"}) == []
    for dim, shape in ((0, (16, 4)), (1, (8, 8))):
        on_chip = {"srcs0": chip(8, 4), "dsts0": chip(*shape)}
        assert breaches("all_gather", on_chip, {"collective_dim": dim}) == []
    four = {f"{kind}{at}": tile(8, 4) for kind in ("srcs", "dsts") for at in range(4)}
    channels = {"counts": ((1,) * 4,) * 2, "channel_ids": (0, 1, 2, 3)}
    assert breaches("collective_permute_implicit", four, channels) == []
    wide = {"metadata_tensor": tile(1, 2, 4, memory=Memory.sbuf, dtype="uint32")}
    assert breaches("all_to_all_v", wide, {"metadata_shape": (1, 3, 4)}) == []
    assert breaches("all_to_all_v", wide, {"metadata_shape": (1, 4, 4), "has_rdispls": True}) == []
    assert breaches("all_to_all_v", imms={"metadata_shape": (4, 4)}) == []  # the fourth row may be there


def test_variable_lengths_need_two_cores_and_a_switch() -> None:
    assert breaches("all_gather_v", lnc=1) == [(110, "needs LNC=2, the kernel is launched with LNC=1")]
    assert breaches("all_gather_v", lnc=2) == []
    assert breaches("all_to_all_v", lnc=1) == [(110, "needs LNC=2, the kernel is launched with LNC=1")]
    assert breaches("all_to_all_v", lnc=1, target="trn2") == []
    placed = {"has_rdispls": True, "metadata_shape": (4, 4)}
    assert breaches("all_to_all_v", imms=placed) == []
    text = "has_rdispls=True needs an instance with a NeuronSwitch, which trn3 has"
    assert breaches("all_to_all_v", imms=placed, target="trn2") == [(110, text)]


# What a kernel calls

nl, nisa = language.module("nl"), isa.module("nisa")
ncc = collectives.namespace()
Group = collectives.ReplicaGroup


def traced(kernel: Any, *, target: str = "trn2", release: str = "0.6", lnc: int = 1) -> Program:
    trace = Trace(target, Release.parse(release), lnc)
    with tracing(trace):
        for core in range(lnc):
            trace.start_core(core)
            with trace.builder.stream(core):
                kernel()
    return trace.builder.finish(Header("k", target, release, lnc=lnc, sources=tuple(trace.places.sources)))


def buffer(*shape: int, dtype: Any = None, where: Any = None) -> NkiTensor:
    return nl.ndarray(shape, dtype or nl.float32, where or nl.shared_hbm)


def test_lists_become_operands() -> None:
    def kernel() -> None:
        ncc["all_reduce"](
            [buffer(8, 4), buffer(2, 2)], [buffer(8, 4), buffer(2, 2)], Group([[0, 1], (2, 3)]), nl.add
        )

    program = traced(kernel)
    call = program.instruction(0)
    given = {name for name, access in call.operands.items() if access is not None}
    assert given == {"srcs0", "srcs1", "dsts0", "dsts1"}
    assert call.immediates == {"replica_group": ((0, 1), (2, 3)), "op": "add", "priority": None}
    assert verify(program) == ()


def test_channels_are_flattened_and_counted() -> None:
    def kernel() -> None:
        tensors = [buffer(8, 4) for _ in range(6)]
        ncc["collective_permute_implicit_reduce"](
            [[tensors[0]], [tensors[1]]],
            [[tensors[2]], [tensors[3]]],
            ((tensors[4],), (tensors[5],)),
            replica_group=Group([[0, 1]]),
            op=nl.maximum,
            channel_ids=[0, 1],
        )

    program = traced(kernel)
    call = program.instruction(0)
    given = {name for name, access in call.operands.items() if access is not None}
    assert given == {"srcs0_0", "srcs0_1", "srcs1_0", "srcs1_1", "dsts0", "dsts1"}
    assert call.immediates["counts"] == ((1, 1),) * 3 and call.immediates["channel_ids"] == (0, 1)
    assert verify(program) == ()


@pytest.mark.parametrize("chip", [False, True])
@pytest.mark.parametrize("known", [False, True])
def test_rows_of_metadata_become_operands(chip: bool, known: bool) -> None:
    def kernel() -> None:
        shape = (1, 4, 8) if chip else (4, 8)
        told = buffer(*shape, dtype=nl.uint32, where=nl.sbuf if chip else nl.shared_hbm)
        group = Group([list(range(8))])
        ncc["all_to_all_v"]([buffer(64)], [buffer(64)], group, told, known, True)

    program = traced(kernel, target="trn3", lnc=2)
    call = program.instruction(0)
    columns = slice(1, None) if chip else slice(None)
    assert call.operands["metadata_tensor"].shape[columns] == (2, 8)
    assert call.operands["recv_displs"].shape[columns] == (1, 8) and call.operands["recv_displs"].base == 24
    assert (call.operands["recv_counts"] is None) == known
    if not known:
        assert call.operands["recv_counts"].base == 16
    assert call.immediates["metadata_shape"] == ((1, 4, 8) if chip else (4, 8))
    assert verify(program) == ()


def test_only_the_first_column_of_gathered_counts_is_read() -> None:
    def kernel() -> None:
        told = buffer(3, 4, dtype=nl.uint32)
        ncc["all_gather_v"]([buffer(64)], [buffer(64)], Group([[0, 1, 2, 3]]), told)

    program = traced(kernel, target="trn3", lnc=2)
    assert program.instruction(0).operands["metadata_tensor"].shape == (2, 1)
    assert verify(program) == ()


def test_verify_says_what_is_wrong() -> None:
    def kernel() -> None:
        told = buffer(2, 3, dtype=nl.int32)
        ncc["all_gather_v"]([buffer(64)], [buffer(64)], Group([[0, 1, 2, 3]]), told)
        ncc["all_to_all"]([buffer(8, 4, where=nl.sbuf)], [buffer(8, 4)], Group([[0, 1]]), 0)

    found = [violation.message for violation in verify(traced(kernel, target="trn3"))]
    for text in (
        "metadata_tensor dtype int32 is not allowed, expected one of uint32",
        "metadata_tensor has shape [2, 3], must be [3, 4]",
        "needs LNC=2, the kernel is launched with LNC=1",
        "srcs0 is in SBUF, expected HBM",
    ):
        assert any(text in message for message in found), text


def test_releases() -> None:
    def gather() -> None:
        told = buffer(3, 4, dtype=nl.uint32)
        ncc["all_gather_v"]([buffer(64)], [buffer(64)], Group([[0, 1, 2, 3]]), told)

    (only,) = verify(traced(gather, target="trn3", release="0.5", lnc=1))[:1]
    assert "exists since NKI 0.6, not in NKI 0.5" in only.message

    def permute(**more: Any) -> Any:
        return lambda: ncc["collective_permute_implicit"](
            [[buffer(8)]], [[buffer(8)]], Group([[0, 1]]), **more
        )

    assert verify(traced(permute(num_channels=1), release="0.2")) == ()
    with pytest.raises(
        Refusal,
        match="^collective_permute_implicit: argument 'num_channels' exists before NKI 0.3, "
        "this kernel is judged by 0.3$",
    ):
        traced(permute(num_channels=1), release="0.3")


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: Group([0, 1]), r"ReplicaGroup takes a list of lists of ranks, got \[0, 1\]"),
        (lambda: Group([[0, 1.5]]), r"ReplicaGroup: a rank is an integer, got 1.5"),
        (
            lambda: ncc["all_reduce"]([buffer(8)], [buffer(8)], [[0, 1]], nl.add),
            "all_reduce: replica_group must be a ReplicaGroup, got list",
        ),
        (
            lambda: ncc["all_reduce"](buffer(8), [buffer(8)], Group([[0, 1]]), nl.add),
            "all_reduce: srcs must be a list of tensors, got NkiTensor",
        ),
        (
            lambda: ncc["all_reduce"]([buffer(8)] * 17, [buffer(8)], Group([[0, 1]]), nl.add),
            "all_reduce: srcs holds 17 tensors, at most 16 are possible",
        ),
        (
            lambda: ncc["all_reduce"]([buffer(8)], [buffer(8)], Group([[0]])),
            "all_reduce: argument 'op' is missing",
        ),
        (
            lambda: ncc["all_gather"]([buffer(8)], [buffer(8)], Group([[0]]), 0, counts=()),
            "all_gather: unknown argument 'counts', expected srcs, dsts, replica_group, collective_dim, priority, name",
        ),
        (
            lambda: ncc["all_gather"]([buffer(8)], [buffer(8)], Group([[0]]), 0, None, "n", 1),
            "all_gather: takes 6 arguments, got 7",
        ),
        (
            lambda: ncc["all_gather"]([buffer(8)], [buffer(8)], Group([[0]]), 0, srcs=[]),
            "all_gather: argument 'srcs' is given twice",
        ),
        (
            lambda: ncc["collective_permute_implicit"]([buffer(8)], [[buffer(8)]], Group([[0]])),
            "collective_permute_implicit: srcs_by_channel must be a list with a list of tensors for each channel",
        ),
        (
            lambda: ncc["all_to_all_v"]([buffer(8)], [buffer(8)], Group([[0]]), None),
            "all_to_all_v: metadata_tensor must be a tensor, got NoneType",
        ),
    ],
)
def test_refusals(call: Any, text: str) -> None:
    with pytest.raises(Refusal, match=text):
        traced(call)


# End to end: traced, verified, executed on every rank


def on_ranks(kernel: Any, arrays: Sequence[Array]) -> tuple[list[Array], tuple[Fault, ...]]:
    """What the kernel returns on each rank, given that rank's array; and the faults of all."""
    ran = executed(kernel, arrays)
    return [np.asarray(each.outputs[0].values) for each in ran], tuple(f for each in ran for f in each.faults)


def executed(
    kernel: Any, arrays: Sequence[Array], *, target: str = "trn2", lnc: int = 1
) -> tuple[Execution, ...]:
    """The executions of a legal kernel, rank by rank; what it returns are its outputs."""
    trace = Trace(target, Release(0, 6), lnc)
    first = arrays[0]
    with tracing(trace):
        held = trace.buffer(Memory.shared_hbm, first.shape, dtypes.of(first.dtype).name)
        argument = NkiTensor.whole(trace, held)
        for core in range(lnc):
            trace.start_core(core)
            with trace.builder.stream(core):
                returned = kernel(argument)
    header = Header("k", target, "0.6", lnc=lnc, sources=tuple(trace.places.sources))
    parameters = Parameters("tuple", ("x",), (TensorLeaf(held.id),))
    outputs = returned if isinstance(returned, tuple) else (returned,)
    program = trace.builder.finish(header, parameters, tuple(Output(out.access()) for out in outputs))
    assert verify(program) == ()
    return execute_ranks(program, [{held.id: array} for array in arrays])


def copied(x: NkiTensor) -> NkiTensor:
    """An HBM buffer of the kernel's own with the content of another."""
    made = buffer(*x.shape, dtype=x.dtype)
    nisa.dma_copy(dst=made, src=x)
    return made


@pytest.mark.oracle("ncc.all_reduce", "ncc.all_gather", "ncc.reduce_scatter", "ncc.all_to_all")
@pytest.mark.parametrize("size", SIZES)
def test_kernels_of_one_collective(size: int) -> None:
    group = Group([list(range(size))])
    arrays = drawn(size, 4 * size, 3)
    stacked = np.stack(arrays).astype(np.float64)

    def reducing(x: NkiTensor) -> NkiTensor:
        out = buffer(*x.shape)
        ncc["all_reduce"]([copied(x)], [out], group, nl.add)
        return out

    found, faults = on_ranks(reducing, arrays)
    assert not faults
    for got in found:
        np.testing.assert_allclose(got, stacked.sum(axis=0), rtol=1e-5, atol=1e-5)

    def gathering(x: NkiTensor) -> NkiTensor:
        tile, whole = nl.ndarray(x.shape, x.dtype), nl.ndarray((x.shape[0], 3 * size), x.dtype)
        nisa.dma_copy(dst=tile, src=x)
        ncc["all_gather"](srcs=[tile], dsts=[whole], replica_group=group, collective_dim=1)
        return copied(whole)

    found, faults = on_ranks(gathering, arrays)
    assert not faults and all(np.array_equal(got, np.concatenate(arrays, axis=1)) for got in found)

    def scattering(x: NkiTensor) -> NkiTensor:
        part, turned = buffer(4, 3), buffer(4 * size, 3)
        ncc["reduce_scatter"]([copied(x)], [part], group, 0, nl.minimum)
        for at in range(size):
            nisa.dma_copy(dst=turned[4 * at : 4 * at + 4], src=part)
        out = buffer(4 * size, 3)
        ncc["all_to_all"]([turned], [out], group, 0)
        return out

    found, faults = on_ranks(scattering, arrays)
    assert not faults and all(np.array_equal(got, np.stack(arrays).min(axis=0)) for got in found)


@pytest.mark.oracle("ncc.rank_id")
def test_a_rank_selects_its_part() -> None:
    def kernel(x: NkiTensor) -> NkiTensor:
        out = buffer(2, 3)
        nisa.dma_copy(
            dst=out, src=x.ap(pattern=[[3, 2], [1, 3]], scalar_offset=ncc["rank_id"](), indirect_dim=0)
        )
        return out

    table = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
    found, faults = on_ranks(kernel, [table] * 4)
    assert not faults and all(np.array_equal(got, table[rank]) for rank, got in enumerate(found))


@pytest.mark.oracle(
    "ncc.collective_permute_implicit", "ncc.collective_permute_implicit_current_processing_rank_id"
)
@pytest.mark.parametrize("size", SIZES)
def test_a_ring_gathers(size: int) -> None:
    """Each step stores what is there under the number of its owner, and passes it on."""
    group = Group([list(range(size))])

    def kernel(x: NkiTensor) -> NkiTensor:
        out, here = buffer(size, 2, 3), copied(x)
        for step in range(size):
            owner = ncc["collective_permute_implicit_current_processing_rank_id"](step, group)
            nisa.dma_copy(dst=out.ap(pattern=[[3, 2], [1, 3]], scalar_offset=owner, indirect_dim=0), src=here)
            there = buffer(2, 3)
            if step < size - 1:
                ncc["collective_permute_implicit"]([[here]], [[there]], group, channel_ids=[0])
                here = there
        return out

    arrays = drawn(size, 2, 3)
    found, faults = on_ranks(kernel, arrays)
    assert not faults and all(np.array_equal(got, np.stack(arrays)) for got in found)


@pytest.mark.oracle("ncc.collective_permute")
def test_two_groups_and_a_swap() -> None:
    def kernel(x: NkiTensor) -> NkiTensor:
        summed, out = buffer(2, 3), buffer(2, 3)
        ncc["all_reduce"]([copied(x)], [summed], Group([[0, 2], [3, 1]]), nl.add)
        ncc["collective_permute"]([summed], [out], [(0, 1), (1, 0), (2, 3), (3, 2)])
        return out

    arrays = drawn(4, 2, 3)
    found, faults = on_ranks(kernel, arrays)
    even, odd = arrays[0] + arrays[2], arrays[3] + arrays[1]
    assert not faults
    for rank, got in enumerate(found):
        np.testing.assert_allclose(got, odd if rank % 2 == 0 else even, rtol=1e-6)


@pytest.mark.oracle("ncc.all_to_all_v", "ncc.all_gather_v")
def test_chunks_of_many_lengths_leave_the_rest_undefined() -> None:
    """Counts come from the argument; the slots are larger than what is sent, and nobody fills their ends."""
    size, slot = 4, 6

    def kernel(x: NkiTensor) -> tuple[NkiTensor, NkiTensor]:
        told, source, out = buffer(3, size, dtype=nl.uint32), buffer(1, 20), buffer(1, slot * size)
        nisa.dma_copy(dst=told[0:2, :], src=x[0:2, 0:size])
        nisa.dma_copy(dst=source, src=x[2:3, :])
        ncc["all_gather_v"]([source], [out], Group([list(range(size))]), told)
        counts = buffer(1, size, dtype=nl.uint32)
        nisa.dma_copy(dst=counts, src=told[2:3, :])
        return out, counts

    def given(rank: int) -> Array:
        array = np.zeros((3, 20), np.uint32)
        array[0, :size], array[1, :size] = rank + 1, 2 * rank
        array[2] = np.arange(20) + 100 * rank
        return array

    for ran in executed(kernel, [given(rank) for rank in range(size)], target="trn3", lnc=2):
        out, counts = ran.outputs
        assert counts.written is None and counts.values.tolist() == [[1, 2, 3, 4]]
        assert [fault.kind for fault in ran.faults] == ["uninitialised"]
        for sender in range(size):
            chunk = [100 * sender + 2 * sender + at for at in range(sender + 1)]
            begin, end = slot * sender, slot * sender + sender + 1
            assert out.values[0, begin:end].tolist() == chunk
            assert out.written is not None
            assert out.written[0, begin:end].all() and not out.written[0, end : begin + slot].any()


def test_a_group_that_does_not_run_is_a_fault() -> None:
    def kernel(x: NkiTensor) -> NkiTensor:
        out = buffer(2, 3)
        ncc["all_reduce"]([copied(x)], [out], Group([[0, 1]]), nl.add)
        return out

    _, faults = on_ranks(kernel, drawn(1, 2, 3))
    assert any("replica_group names rank 1" in fault.message for fault in faults)


def test_every_name_of_the_module_is_there() -> None:
    assert set(ncc) == {
        *("ReplicaGroup", "all_reduce", "all_gather", "all_gather_v", "reduce_scatter", "all_to_all"),
        *("all_to_all_v", "collective_permute", "collective_permute_implicit"),
        *("collective_permute_implicit_reduce", "rank_id"),
        "collective_permute_implicit_current_processing_rank_id",
    }
    assert {each.name for each in rows.ROWS} == set(ncc) - {"ReplicaGroup"}

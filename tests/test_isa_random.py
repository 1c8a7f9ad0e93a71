"""Rows of random.py: the documented generator step by step, repeatable streams, their statistics, and their limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from execute_kit import Kernel
from judge_kit import At, assert_tile_limits, call_of, judged, judgements
from numpy.typing import NDArray
from scipy import stats
from test_isa_rows import FakeReader

from nkireview.isa.enums import Engine, Memory
from nkireview.isa.row import Bits
from nkireview.isa.table import row

pytestmark = [pytest.mark.filterwarnings("error"), pytest.mark.usefixtures("as_executed")]

Array = NDArray[Any]
PSUM = Memory.psum
VECTOR, GPSIMD = Engine.vector, Engine.gpsimd
INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32"]
FAR = 1e-6  # a p-value below says that a fixed stream is not what it should be


def meaning(
    name: str,
    reader_of: Mapping[str, Array],
    imms: Mapping[str, Any],
    dst: tuple[tuple[int, ...], str] | None,
    **how: Any,
) -> Any:
    reader = FakeReader(reader_of, imms, {} if dst is None else {"dst": dst}, **how)
    results = row(name).meaning(reader)
    if dst is None:
        assert results == {}
        return None
    result = results["dst"]
    if isinstance(result, Bits):
        assert result.array.dtype == reader.dtype("dst").storage
        return result.array
    assert result.dtype == reader.compute
    return result


def bits(
    state: dict[str, Array],
    shape: tuple[int, ...],
    dtype: str = "uint32",
    engine: Engine = VECTOR,
    **how: Any,
) -> Array:
    return meaning("rng", {}, {}, (shape, dtype), state=state, engine=engine, **how)


def seed(state: dict[str, Array], number: int) -> None:
    meaning("set_rng_seed", {"src_seeds": np.array([[number]], np.uint32)}, {}, None, state=state)


def set_state(state: dict[str, Array], words: Array, engine: Engine) -> None:
    meaning("rand_set_state", {"src_seeds": words}, {}, None, state=state, engine=engine)


def get_state(state: dict[str, Array], lanes: int, engine: Engine) -> Array:
    words = 24 if engine is VECTOR else 6
    return meaning("rand_get_state", {}, {}, ((lanes, words), "uint32"), state=state, engine=engine)


def words(lanes: int, count: int, number: int = 1) -> Array:
    return np.random.default_rng(number).integers(0, 2**32, (lanes, count), dtype=np.uint32)


def stepped(start: list[int], steps: int) -> tuple[list[int], list[int]]:
    """Marsaglia's XORWOW in Python integers: the numbers and the words after them."""
    x, y, z, w, v, d = start
    numbers = []
    for _ in range(steps):
        t = x ^ (x >> 2)
        x, y, z, w = y, z, w, v
        v = (v ^ (v << 4) ^ t ^ (t << 1)) % 2**32
        d = (d + 362437) % 2**32
        numbers.append((v + d) % 2**32)
    return numbers, [x, y, z, w, v, d]


# The generator


@pytest.mark.oracle("nisa.rng", "nisa.rand_set_state", "nisa.rand_get_state")
@pytest.mark.parametrize("count", [1, 4, 5, 6, 11, 64])
def test_gpsimd_draws_xorwow_from_six_words_a_lane(count: int) -> None:
    state: dict[str, Array] = {}
    start = words(128, 6)
    set_state(state, start, GPSIMD)
    found = bits(state, (128, count), engine=GPSIMD)
    after = get_state(state, 128, GPSIMD)
    for lane in (0, 1, 77, 127):
        numbers, held = stepped(start[lane].tolist(), count)
        assert found[lane].tolist() == numbers
        assert after[lane].tolist() == held


@pytest.mark.oracle("nisa.rng", "nisa.rand_set_state", "nisa.rand_get_state")
@pytest.mark.parametrize("count", [1, 4, 7, 32])
def test_vector_draws_in_turn_from_four_states_a_lane(count: int) -> None:
    state: dict[str, Array] = {}
    start = words(32, 24)
    set_state(state, start, VECTOR)
    found = bits(state, (32, count), engine=VECTOR, generation="v4")
    after = get_state(state, 32, VECTOR)
    rounds = -(-count // 4)
    for lane in (0, 31):
        ran = [stepped(start[lane, 6 * at : 6 * at + 6].tolist(), rounds) for at in range(4)]
        assert found[lane].tolist() == [ran[at % 4][0][at // 4] for at in range(count)]
        assert after[lane].tolist() == [word for _, held in ran for word in held]


def test_the_published_numbers_of_xorwow() -> None:
    # Marsaglia's listing starts at these words; the first number worked out by hand from it.
    x, v, d = 123456789, 5783321, 6615241
    t = x ^ (x >> 2)
    first = ((v ^ (v << 4) ^ t ^ (t << 1)) % 2**32 + d + 362437) % 2**32
    state: dict[str, Array] = {}
    set_state(state, np.array([[x, 362436069, 521288629, 88675123, v, d]], np.uint32), GPSIMD)
    assert bits(state, (1, 1), engine=GPSIMD).tolist() == [[first]]


@pytest.mark.oracle("nisa.rand_get_state", "nisa.rand_set_state")
@pytest.mark.parametrize("engine", [VECTOR, GPSIMD])
def test_a_state_that_is_set_again_continues_its_stream(engine: Engine) -> None:
    state: dict[str, Array] = {"seed": np.array([7], np.uint64)}
    bits(state, (128, 9), engine=engine)
    held = get_state(state, 128, engine)
    expected = bits(state, (128, 40), engine=engine)
    bits(state, (128, 3), engine=engine)
    set_state(state, held, engine)
    assert np.array_equal(bits(state, (128, 40), engine=engine), expected)


@pytest.mark.oracle("nisa.set_rng_seed")
def test_a_seed_decides_the_stream_of_vector_alone() -> None:
    streams = []
    for run, number in ((0, 42), (99, 42), (0, 43)):
        state: dict[str, Array] = {"seed": np.array([run], np.uint64)}
        bits(state, (16, 5))
        seed(state, number)
        streams.append(bits(state, (16, 64)))
    assert np.array_equal(streams[0], streams[1]) and not np.array_equal(streams[0], streams[2])
    one: dict[str, Array] = {}
    other: dict[str, Array] = {}
    seed(other, 42)
    assert np.array_equal(bits(one, (16, 8), engine=GPSIMD), bits(other, (16, 8), engine=GPSIMD))


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_a_seed_is_taken_bit_for_bit(dtype: type) -> None:
    state: dict[str, Array] = {}
    other: dict[str, Array] = {}
    tile = np.array([[-3]], dtype)
    meaning("set_rng_seed", {"src_seeds": tile}, {}, None, state=state)
    seed(other, int(tile.view(np.uint32)[0, 0]))
    assert np.array_equal(bits(state, (4, 4)), bits(other, (4, 4)))


def test_the_seed_of_a_run_decides_what_no_kernel_seeds() -> None:
    drawn = [
        bits({"seed": np.array([run], np.uint64)}, (128, 16), engine=engine)
        for engine in (VECTOR, GPSIMD)
        for run in (0, 0, 1)
    ]
    assert np.array_equal(drawn[0], drawn[1]) and np.array_equal(drawn[3], drawn[4])
    different = [drawn[0], drawn[2], drawn[3], drawn[5]]
    assert len({each.tobytes() for each in different}) == 4
    assert len({lane.tobytes() for lane in drawn[0]}) == 128


def test_only_the_lanes_of_a_tile_move() -> None:
    state: dict[str, Array] = {}
    start = words(128, 6)
    set_state(state, start, GPSIMD)
    bits(state, (32, 8), engine=GPSIMD)
    assert np.array_equal(get_state(state, 128, GPSIMD)[32:], start[32:])
    assert not np.any(np.all(get_state(state, 32, GPSIMD) == start[:32], axis=1))


# rng


@pytest.mark.oracle("nisa.rng")
@pytest.mark.parametrize("engine", [VECTOR, GPSIMD])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_rng_keeps_the_least_significant_bits(dtype: str, engine: Engine) -> None:
    whole, part = ({"seed": np.array([5], np.uint64)} for _ in range(2))
    full = bits(whole, (128, 8, 4), engine=engine).astype(np.int64)
    found = bits(part, (128, 8, 4), dtype, engine)
    width = 8 * found.dtype.itemsize
    expected = full % 2**width
    if dtype.startswith("int"):
        expected = np.where(expected >= 2 ** (width - 1), expected - 2**width, expected)
    assert np.array_equal(found.astype(np.int64), expected)


@pytest.mark.oracle("nisa.rng")
@pytest.mark.parametrize("engine", [VECTOR, GPSIMD])
def test_rng_is_uniform(engine: Engine) -> None:
    drawn = bits({"seed": np.array([11], np.uint64)}, (128, 1024), engine=engine)
    assert stats.kstest(drawn.ravel() / 2**32, "uniform").pvalue > FAR
    for shift in (0, 8, 16, 24):
        counts = np.bincount((drawn >> shift & 255).ravel(), minlength=256)
        assert stats.chisquare(counts).pvalue > FAR
    ones = np.array([(drawn >> bit & 1).sum() for bit in range(32)])
    assert np.all(np.abs(ones - drawn.size / 2) < 6 * np.sqrt(drawn.size) / 2)
    pairs = np.histogram2d(drawn[:, :-1].ravel(), drawn[:, 1:].ravel(), bins=16, range=[[0, 2**32]] * 2)[0]
    assert stats.chisquare(pairs.ravel()).pvalue > FAR
    lanes = np.corrcoef(drawn.astype(np.float64))
    assert np.abs(lanes - np.eye(128)).max() < 6 / np.sqrt(1024)


def number(**changes: Any) -> dict[str, At]:
    return {"dst": At((128, 32), "uint32"), **changes}


@pytest.mark.parametrize(
    ("tiles", "how", "text"),
    [
        (number(), {}, None),
        (number(), {"engine": GPSIMD}, None),
        (number(), {"engine": VECTOR, "where": "trn1"}, None),
        (number(), {"engine": GPSIMD, "where": "trn1"}, "engine gpsimd is not allowed, expected vector"),
        (
            number(),
            {"engine": Engine.scalar},
            "engine scalar is not allowed, expected vector or gpsimd",
        ),
        (number(dst=At((128, 32), "uint32", PSUM)), {}, None),
        (
            number(dst=At((128, 32), "uint32", PSUM)),
            {"engine": GPSIMD},
            "dst is in PSUM, which the GpSimd engine cannot access; copy it to SBUF first",
        ),
        (
            number(dst=At((128, 32))),
            {},
            "dst dtype float32 is not allowed, expected one of int16, int32, int8, uint16, uint32, uint8",
        ),
        (number(dst=At((129, 1), "int8")), {}, "dst partition size 129 exceeds 128"),
        (number(), {"nki": "0.1"}, None),  # what nl.rand is there
        (number(), {"nki": "0.2"}, None),
    ],
)
def test_limits_of_rng(tiles: dict[str, At], how: dict[str, Any], text: str | None) -> None:
    assert judged("rng", tiles, **how) == ([] if text is None else [text])


def test_engine_and_cost_of_rng() -> None:
    tiles = number(dst=At((128, 4096), "uint32"))
    assert call_of("rng", tiles).resolved_engine() is VECTOR
    cost = row("rng").cost
    assert cost.interval(call_of("rng", tiles)) == 4096
    assert cost.interval(call_of("rng", tiles, where="trn3")) == 1024
    assert cost.interval(call_of("rng", tiles, where="trn3", engine=GPSIMD)) == 4096


# rand2


@pytest.mark.oracle("nisa.rand2")
@pytest.mark.parametrize("compute", [np.float32, np.float64])
def test_rand2_is_uniform_between_its_bounds(compute: type) -> None:
    state: dict[str, Array] = {"seed": np.array([3], np.uint64)}
    how: dict[str, Any] = {"state": state, "compute": compute, "generation": "v4"}
    found = meaning("rand2", {}, {"min": -2.0, "max": 6.0}, ((128, 512), "float32"), **how)
    assert found.shape == (128, 512) and found.min() >= -2 and found.max() <= 6
    assert stats.kstest(found.ravel(), stats.uniform(-2, 8).cdf).pvalue > FAR


@pytest.mark.oracle("nisa.rand2")
def test_rand2_takes_the_upper_bits_as_a_float32() -> None:
    one, other = ({"seed": np.array([3], np.uint64)} for _ in range(2))
    full = bits(one, (4, 9), generation="v4")
    found = meaning("rand2", {}, {"min": 0.0, "max": 1.0}, ((4, 9), "float32"), state=other, generation="v4")
    assert found.tolist() == [[(number_ // 256) / 2**24 for number_ in lane] for lane in full.tolist()]


@pytest.mark.oracle("nisa.rand2")
def test_rand2_with_bounds_for_each_partition() -> None:
    low, high = np.array([[0], [5], [-1]], np.float32), np.array([[1], [5.5], [100]], np.float32)
    state: dict[str, Array] = {}
    found = meaning("rand2", {"min": low, "max": high}, {}, ((3, 20, 50), "float32"), state=state)
    lanes = found.reshape(3, -1)
    assert np.all(lanes >= low) and np.all(lanes <= high)
    assert np.allclose(lanes.mean(axis=1), (low + high)[:, 0] / 2, rtol=0.1)
    mixed = meaning("rand2", {"min": low}, {"max": 200}, ((3, 1000), "bfloat16"), state=state)
    assert np.all(mixed >= low) and mixed.max() > 150


def uniform(**changes: Any) -> dict[str, At]:
    return {"dst": At((128, 32)), **changes}


RAND2: list[tuple[dict[str, At], dict[str, Any], str | None]] = [
    (uniform(), {"min": 0.0, "max": 1.0}, None),
    (uniform(dst=At((128, 32), "bfloat16", PSUM)), {"min": 0, "max": 1}, None),
    (uniform(min=At((128, 1)), max=At((128, 1))), {}, None),
    (uniform(), {"min": 1.0, "max": 1.0}, "min 1.0 must be below max 1.0"),
    (uniform(min=At((128, 1))), {"max": -5.0}, None),
    (
        uniform(min=At((128, 2))),
        {"max": 1.0},
        "min free size is 2, must be 1; a vector has one element a partition",
    ),
    (
        uniform(max=At((128, 2))),
        {"min": 1.0},
        "max free size is 2, must be 1; a vector has one element a partition",
    ),
    (
        uniform(min=At((64, 1))),
        {"max": 1.0},
        "min partition size 64 is below dst partition size 128",
    ),
    (
        uniform(max=At((64, 1))),
        {"min": 1.0},
        "max partition size 64 is below dst partition size 128",
    ),
    (
        uniform(min=At((128, 1), "bfloat16")),
        {"max": 1.0},
        "min dtype bfloat16 is not allowed, expected one of float32",
    ),
    (
        uniform(max=At((128, 1), "bfloat16")),
        {"min": 1.0},
        "max dtype bfloat16 is not allowed, expected one of float32",
    ),
    (
        uniform(dst=At((128, 32), "bool_")),
        {"min": 0.0, "max": 1.0},
        "dst dtype bool_ is not allowed, expected one of bfloat16, float16, float32, float8_e4m3, float8_e5m2, "
        "int16, int32, int8, tfloat32, uint16, uint32, uint8",
    ),
]


@pytest.mark.parametrize(("tiles", "imms", "text"), RAND2)
def test_limits_of_rand2(tiles: dict[str, At], imms: dict[str, Any], text: str | None) -> None:
    assert judged("rand2", tiles, imms, where="trn3") == ([] if text is None else [text])


@pytest.mark.parametrize("where", ["trn1", "trn2"])
def test_rand2_needs_v4(where: str) -> None:
    (found,) = judgements("rand2", uniform(), {"min": 0.0, "max": 1.0}, where=where)
    assert (
        found.number == 51 and found.text == f"needs NeuronCore-v4, not {'v2' if where == 'trn1' else 'v3'}"
    )


def test_cost_of_rand2() -> None:
    call = call_of("rand2", uniform(dst=At((128, 4096))), {"min": 0.0, "max": 1.0}, where="trn3")
    assert row("rand2").cost.interval(call) == 1024


# dropout


def dropped(data: Array, prob: Any, dst: str | None = None, **how: Any) -> Array:
    tiles, imms = {"data": data}, {}
    if isinstance(prob, np.ndarray):
        tiles["prob"] = prob
    else:
        imms["prob"] = prob
    return meaning("dropout", tiles, imms, (data.shape, dst or np.dtype(data.dtype).name), **how)


DATA = [np.float32, ml_dtypes.bfloat16, np.float16, ml_dtypes.float8_e4m3, np.int8, np.int32, np.uint16]


@pytest.mark.oracle("nisa.dropout")
@pytest.mark.parametrize("compute", [np.float32, np.float64])
@pytest.mark.parametrize("dtype", DATA)
def test_dropout_zeroes_elements_and_scales_none(dtype: type, compute: type) -> None:
    data = (np.arange(64 * 100).reshape(64, 5, 20) % 100 + 1).astype(dtype)
    found = dropped(data, 0.25, compute=compute)
    gone = found == 0
    assert 0.2 < gone.mean() < 0.3
    assert np.array_equal(found[~gone], data[~gone])


@pytest.mark.oracle("nisa.dropout")
def test_dropout_of_nothing_and_of_everything() -> None:
    data = np.array([[1.5, np.nan, np.inf, -0.0]], np.float32)
    assert dropped(data, 0.0).tobytes() == data.tobytes()
    assert dropped(data, 1.0).tolist() == [[0.0] * 4]
    assert dropped(data, 1).tolist() == [[0.0] * 4]


@pytest.mark.oracle("nisa.dropout")
@pytest.mark.parametrize("prob", [0.05, 0.5, 0.9])
def test_dropout_drops_with_its_probability(prob: float) -> None:
    gone = dropped(np.ones((128, 1024), np.float32), prob, state={"seed": np.array([2], np.uint64)}) == 0
    count = int(gone.sum())
    assert stats.binomtest(count, gone.size, prob).pvalue > FAR
    runs = np.histogram2d(gone[:, :-1].ravel(), gone[:, 1:].ravel(), bins=2)[0]
    assert stats.chi2_contingency(runs).pvalue > FAR


@pytest.mark.oracle("nisa.dropout")
def test_dropout_with_a_probability_for_each_partition() -> None:
    prob = np.array([[0.0], [0.1], [0.5], [1.0]], ml_dtypes.bfloat16)
    gone = (dropped(np.ones((4, 8000), np.float32), prob) == 0).mean(axis=1)
    assert gone[0] == 0 and gone[3] == 1
    assert abs(gone[1] - float(prob[1, 0])) < 0.02 and abs(gone[2] - 0.5) < 0.03


@pytest.mark.oracle("nisa.dropout", "nisa.set_rng_seed")
def test_dropout_repeats_with_its_seed() -> None:
    state: dict[str, Array] = {}
    data, masks = np.ones((128, 64), np.float32), []
    for again in (1, 1, 2):
        seed(state, again)
        masks.append(dropped(data, 0.5, state=state))
    assert np.array_equal(masks[0], masks[1]) and not np.array_equal(masks[0], masks[2])


def drops(**changes: Any) -> dict[str, At]:
    return {"dst": At((128, 32)), "data": At((128, 32), memory=PSUM), **changes}


DROPS: list[tuple[dict[str, At], dict[str, Any], str | None]] = [
    (drops(), {"prob": 0.5}, None),
    (drops(prob=At((128, 1))), {}, None),
    (drops(prob=At((128, 1), "float16")), {}, None),
    (
        drops(dst=At((128, 32), "bfloat16")),
        {"prob": 0.5},
        "dst dtype bfloat16 differs from data dtype float32",
    ),
    (drops(dst=At((128, 31))), {"prob": 0.5}, "dst free size 31 differs from data free size 32"),
    (
        drops(dst=At((64, 32))),
        {"prob": 0.5},
        "dst partition size 64 differs from data partition size 128",
    ),
    (
        drops(prob=At((128, 2))),
        {},
        "prob free size is 2, must be 1; a vector has one element a partition",
    ),
    (drops(prob=At((32, 1))), {}, "prob partition size 32 is below data partition size 128"),
    (drops(prob=At((128, 1), "int32")), {}, "prob dtype int32 is not allowed, it must be a float"),
    (
        drops(dst=At((128, 32), "int16"), data=At((128, 32), "int16"), prob=At((128, 1), "bfloat16")),
        {},
        "prob dtype bfloat16 is not allowed, with integer data (int16) it must be float32",
    ),
    (drops(dst=At((128, 32), "int16"), data=At((128, 32), "int16"), prob=At((128, 1))), {}, None),
]


@pytest.mark.parametrize(("tiles", "imms", "text"), DROPS)
@pytest.mark.parametrize("nki", ["0.1", "0.2", "0.6"])
@pytest.mark.parametrize("where", ["trn1", "trn2", "trn3"])
def test_limits_of_dropout(
    where: str, nki: str, tiles: dict[str, At], imms: dict[str, Any], text: str | None
) -> None:
    assert judged("dropout", tiles, imms, where=where, nki=nki) == ([] if text is None else [text])


def test_cost_of_dropout() -> None:
    cost = row("dropout").cost
    assert cost.interval(call_of("dropout", drops(), {"prob": 0.5})) == 64
    wide = {"dst": At((128, 500)), "data": At((128, 500))}
    assert cost.interval(call_of("dropout", wide, {"prob": 0.5})) == 500


# Seeds and states


@pytest.mark.parametrize(
    ("tiles", "how", "text"),
    [
        ({"src_seeds": At((1, 1), "uint32")}, {}, None),
        ({"src_seeds": At((1, 1), "int32", PSUM)}, {"where": "trn1"}, None),
        (
            {"src_seeds": At((1, 2), "uint32")},
            {},
            "src_seeds element count is 2, must be 1; one seed for all lanes",
        ),
        (
            {"src_seeds": At((1, 1), "int16")},
            {},
            "src_seeds dtype int16 is not allowed, expected one of float32, int32, uint32",
        ),
        ({"src_seeds": At((1, 1), "uint32")}, {"nki": "0.1"}, None),  # what nl.random_seed is there
    ],
)
def test_limits_of_set_rng_seed(tiles: dict[str, At], how: dict[str, Any], text: str | None) -> None:
    assert judged("set_rng_seed", tiles, **how) == ([] if text is None else [text])


SIX, TWENTY_FOUR = At((128, 6), "uint32"), At((128, 24), "uint32")
WORDS_HINT = "6 words a lane on GpSimd, 24 on Vector"
STATES: list[tuple[At, dict[str, Any], str | None]] = [
    (SIX, {}, None),
    (SIX, {"where": "trn3"}, None),
    (SIX, {"engine": GPSIMD}, None),
    (TWENTY_FOUR, {}, f"{{}} free size is 24, must be 6; {WORDS_HINT}"),
    (TWENTY_FOUR, {"where": "trn3", "engine": VECTOR}, None),
    (TWENTY_FOUR, {"where": "trn3"}, f"{{}} free size is 24, must be 6; {WORDS_HINT}"),
    (TWENTY_FOUR, {"where": "trn3", "nki": "0.4"}, None),
    (SIX, {"where": "trn3", "nki": "0.4"}, None),
    (SIX, {"where": "trn3", "engine": VECTOR}, f"{{}} free size is 6, must be 24; {WORDS_HINT}"),
    (TWENTY_FOUR, {"engine": VECTOR}, "engine vector is not allowed, expected gpsimd"),
    (SIX, {"where": "trn1"}, "needs NeuronCore-v3 or v4, not v2"),
    (SIX, {"nki": "0.1"}, "exists since NKI 0.2, not in NKI 0.1"),
    (At((128, 6), "int32"), {}, "{} dtype int32 is not allowed, expected one of uint32"),
]


@pytest.mark.parametrize(("tile", "how", "text"), STATES)
@pytest.mark.parametrize(("name", "operand"), [("rand_set_state", "src_seeds"), ("rand_get_state", "dst")])
def test_limits_of_states(name: str, operand: str, tile: At, how: dict[str, Any], text: str | None) -> None:
    assert judged(name, {operand: tile}, **how) == ([] if text is None else [text.format(operand)])


def test_where_a_state_may_lie() -> None:
    in_psum = At((128, 24), "uint32", PSUM)
    how: dict[str, Any] = {"where": "trn3", "engine": VECTOR}
    assert judged("rand_get_state", {"dst": in_psum}, **how) == []
    assert judged("rand_get_state", {"dst": in_psum}, where="trn3", nki="0.4") == []
    assert judged("rand_set_state", {"src_seeds": in_psum}, **how) == ["src_seeds is in PSUM, expected SBUF"]
    text = "dst is in PSUM, which the GpSimd engine cannot access; copy it to SBUF first"
    assert judged("rand_get_state", {"dst": At((128, 6), "uint32", PSUM)}) == [text]


@pytest.mark.parametrize("where", ["trn1", "trn2", "trn3"])
@pytest.mark.parametrize(
    ("name", "tiles", "imms", "native"),
    [
        ("rng", number(), {}, ()),
        ("rand2", uniform(min=At((128, 1)), max=At((128, 1))), {}, ()),
        ("dropout", drops(prob=At((128, 1))), {}, ("dst", "data", "prob")),
        ("set_rng_seed", {"src_seeds": At((1, 1), "uint32")}, {}, ()),
        ("rand_set_state", {"src_seeds": SIX}, {}, ()),
        ("rand_get_state", {"dst": SIX}, {}, ()),
    ],
)
def test_where_the_tiles_may_lie(
    name: str, tiles: dict[str, At], imms: dict[str, Any], native: tuple[str, ...], where: str
) -> None:
    assert_tile_limits(name, tiles, imms, where, native)


# In programs


def drawing(seed_of_run: int, **run: Any) -> tuple[Array, Array]:
    kernel = Kernel(target="trn3")
    data, seeds = kernel.load(np.ones((128, 64), np.float32)), kernel.load(np.array([[5]], np.uint32))
    free, seeded = kernel.sbuf(128, 64), kernel.sbuf(128, 64)
    kernel.call("dropout", dst=free, data=data, prob=0.5)
    kernel.call("set_rng_seed", src_seeds=seeds)
    kernel.call("dropout", dst=seeded, data=data, prob=0.5)
    kernel.store(free)
    kernel.store(seeded)
    result = kernel.run(seed=seed_of_run, **run)
    assert result.faults == ()
    return result.outputs[0].values, result.outputs[1].values


def test_a_program_draws_from_the_seed_of_its_run() -> None:
    first, again, other = drawing(1), drawing(1), drawing(2)
    assert np.array_equal(first[0], again[0]) and not np.array_equal(first[0], other[0])
    assert np.array_equal(first[1], other[1])
    wide = drawing(1, compute=np.float64, rounding="off")
    assert np.array_equal(first[0], wide[0]) and np.array_equal(first[1], wide[1])


def test_a_program_keeps_and_continues_its_states() -> None:
    kernel = Kernel(target="trn3")
    held = kernel.sbuf(128, 6, dtype="uint32")
    before, after = (kernel.sbuf(128, 10, dtype="int32") for _ in range(2))
    kernel.call("rand_get_state", engine=GPSIMD, dst=held)
    kernel.call("rng", engine=GPSIMD, dst=before)
    kernel.call("rand_set_state", engine=GPSIMD, src_seeds=held)
    kernel.call("rng", engine=GPSIMD, dst=after)
    kernel.store(before)
    kernel.store(after)
    result = kernel.run()
    assert result.faults == ()
    assert np.array_equal(result.outputs[0].values, result.outputs[1].values)

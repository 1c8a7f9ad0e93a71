"""Rows that draw random numbers, and keep the state of the generators.

No document gives the streams of the hardware bit for bit, so a documented generator draws here: XORWOW (G. Marsaglia,
Xorshift RNGs, 2003), which NeuronCore-v4 and GpSimd name. A state is six 32-bit words x, y, z, w, v, d. A step gives
``t = x ^ (x >> 2)``, ``v' = v ^ (v << 4) ^ t ^ (t << 1)``, ``d' = d + 362437`` and the number ``v' + d'``. A lane of
GpSimd holds one state, a lane of Vector four, which give the elements of a partition in turn; an instruction takes
whole steps of all four. The first partition of a tile is lane 0. Until a kernel sets a state, the seed of the run does.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nkireview.isa import dtypes
from nkireview.isa.enums import Engine
from nkireview.isa.limit import Call, Check, Exactly, SameDtype
from nkireview.isa.release import Release, Span
from nkireview.isa.row import (
    Bits,
    Cost,
    Engines,
    Flow,
    Legacy,
    Operand,
    Param,
    Rate,
    Reader,
    Result,
    Role,
    Row,
)
from nkireview.isa.rows.arrays import move, operand_value, rows_of
from nkireview.isa.rows.common import (
    ALL,
    BEFORE_05,
    ENGINE,
    INT32,
    MIN_INTERVAL,
    NAME,
    ON_CHIP,
    SBUF,
    STUB,
    STUB_2_26,
    V3_UP,
    V4,
    gpsimd_limits,
    in_psum,
    is_integer,
    on_vector,
    only,
    placed_limits,
    returns,
    same_layout,
    tile_limits,
    vector_limits,
)

Words = NDArray[np.uint32]

ARCH_V4 = "nki/guides/architecture/trainium3_arch.rst"
SINCE_02 = Span(since=Release(0, 2))  # release-notes/components/nki.rst: new in SDK 2.27
LANES = 128
WORDS = 6  # of one state: nki/guides/architecture/trainium3_arch.rst:208
STATES = {Engine.vector: 4, Engine.gpsimd: 1}  # of one lane: trainium3_arch.rst:208, nki.isa stub:2197
WEYL = 362437
INTEGERS = frozenset({"int8", "int16", "int32", "uint8", "uint16", "uint32"})
UNIFORM = INTEGERS | {"float8_e4m3", "float8_e5m2", "float16", "bfloat16", "float32", "tfloat32"}
FROM_RUN, FROM_SEED = 1, 2  # what a state comes from, so that one number gives different streams


def xorwow(states: Words, steps: int) -> tuple[Words, Words]:
    """The next `steps` numbers of each state, as (states, steps), and the states after them.

    states: (states, 6), the words x, y, z, w, v, d.
    """
    history = np.empty((steps + 5, len(states)), np.uint32)
    history[:5] = states[:, :5].T
    spare = np.empty(len(states), np.uint32)
    for start in range(0, steps, 5):
        # x runs five steps behind v, so that five steps know theirs
        shifted = history[start : start + 5] ^ (history[start : start + 5] >> 2)
        shifted ^= shifted << 1
        for at in range(start, min(start + 5, steps)):
            newest = history[at + 4]
            np.left_shift(newest, 4, out=spare)
            spare ^= newest
            np.bitwise_xor(spare, shifted[at - start], out=history[at + 5])
    added = np.arange(1, steps + 1, dtype=np.uint32) * np.uint32(WEYL)
    weyl = states[:, 5:] + added
    after = np.concatenate([history[steps:].T, states[:, 5:] + np.uint32(steps * WEYL & 0xFFFFFFFF)], axis=1)
    return history[5:].T + weyl, after


def seeded(seed: int, salt: int, states: int) -> Words:
    """The states (lanes, states, 6) that a number stands for: the upper halves of a SplitMix64 sequence."""
    at = np.arange(1, LANES * states * WORDS + 1, dtype=np.uint64)
    mixed = np.uint64((seed + (salt << 56)) % 2**64) + at * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    words: Words = ((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(32)).astype(np.uint32)
    return words.reshape(LANES, states, WORDS)


def _name(engine: Engine) -> str:
    return f"{engine.name}_random"


def _states(reader: Reader, engine: Engine) -> Words:
    """The states of an engine, (lanes, states, 6); changes to them stay."""
    name = _name(engine)
    if name not in reader.state:
        seed = int(reader.state["seed"][0]) if "seed" in reader.state else 0
        reader.state[name] = seeded(seed, FROM_RUN | engine.value << 4, STATES[engine])
    states: Words = reader.state[name]
    return states


def draw(reader: Reader, lanes: int, count: int) -> Words:
    """The next `count` numbers of 32 bits of the first lanes of the engine that runs the call, as (lanes, count)."""
    engine = reader.engine
    states, each = _states(reader, engine), STATES[engine]
    numbers, after = xorwow(states[:lanes].reshape(lanes * each, WORDS), -(-count // each))
    states[:lanes] = after.reshape(lanes, each, WORDS)
    in_turn: Words = numbers.reshape(lanes, each, -1).transpose(0, 2, 1).reshape(lanes, -1)
    return in_turn[:, :count]


def _drawn(reader: Reader, name: str) -> Words:
    """A number for each element of a tile, in its shape."""
    shape = reader.shape(name)
    return draw(reader, shape[0], int(np.prod(shape[1:], dtype=np.int64))).reshape(shape)


def _rng(reader: Reader) -> dict[str, Result]:
    storage = reader.dtype("dst").storage
    return {"dst": Bits(_drawn(reader, "dst").astype(f"u{storage.itemsize}").view(storage))}


rng = Row(
    name="rng",
    signature=(Param("dst"), ENGINE, NAME),
    operands=(Operand("dst", Role.write, ON_CHIP, dtypes=INTEGERS),),
    engines=Engines(Engine.vector, {Engine.vector: ALL, Engine.gpsimd: V3_UP}),
    meaning=_rng,
    flow={"dst": Flow.nothing},
    cost=Cost(
        subject="dst",
        per_element=1.0,
        minimum=MIN_INTERVAL,
        formula="N/4 on Vector of v4; no other figure is published, taken as max(MIN_II, N)",
        source=f"{ARCH_V4}:206",
        rates=(Rate(0.25, "Vector of v4", on_vector, V4, f"{ARCH_V4}:206"),),
    ),
    source=f"{STUB}:2087-2121",
    limits=(*placed_limits("dst"), *gpsimd_limits(f"{STUB}:2116", "dst")),
    releases=SINCE_02,
    legacy=Legacy("rand", "inside"),
)


def _uniform(reader: Reader) -> dict[str, Result]:
    # 24 bits: a float32 in [0, 1) without rounding
    unit = (_drawn(reader, "dst") >> 8).astype(reader.compute) * reader.compute.type(2.0**-24)
    low, high = (np.asarray(operand_value(reader, name, unit), reader.compute) for name in ("min", "max"))
    return {"dst": np.minimum(low + unit * (high - low), high)}


def _range(call: Call) -> str | None:
    low, high = call.imm("min"), call.imm("max")
    numbers = all(isinstance(number, int | float) for number in (low, high))
    return f"min {low!r} must be below max {high!r}" if numbers and not low < high else None


rand2 = Row(
    name="rand2",
    signature=(Param("dst"), Param("min"), Param("max"), NAME),
    operands=(
        Operand("dst", Role.write, ON_CHIP, dtypes=UNIFORM),
        Operand("min", Role.read, ON_CHIP, number=True, vector=True),
        Operand("max", Role.read, ON_CHIP, number=True, vector=True),
    ),
    engines=only(Engine.vector),
    meaning=_uniform,
    flow={"dst": Flow.elementwise},
    cost=Cost(
        subject="dst",
        per_element=0.25,
        minimum=MIN_INTERVAL,
        formula="N/4: four 32-bit numbers a lane and cycle",
        source=f"{ARCH_V4}:206",
    ),
    source=f"{STUB}:2242-2281",
    limits=(
        *placed_limits("dst", "min", "max"),
        *vector_limits("min", "dst", 159, f"{STUB}:2279"),
        *vector_limits("max", "dst", 159, f"{STUB}:2280"),
        Check(number=159, source=f"{STUB}:2276", subject="min.range", find=_range),
    ),
    generations=V4,
    releases=SINCE_02,
)


def _dropout(reader: Reader) -> dict[str, Result]:
    kept = move(reader, "data", "dst")
    held = kept.array if isinstance(kept, Bits) else kept
    # A number is float32 on the engine, whatever the meanings compute in.
    chance = np.asarray(operand_value(reader, "prob", held), np.float32).astype(np.float64)
    result = np.where(_drawn(reader, "data") * 2.0**-32 < chance, np.zeros((), held.dtype), held)
    return {"dst": Bits(result) if isinstance(kept, Bits) else result}


def _probability_dtype(call: Call) -> str | None:
    if not (call.has("prob") and call.has("data")):
        return None
    prob, data = call.dtype("prob"), call.dtype("data")
    if is_integer(data) and prob != "float32":
        return f"prob dtype {prob} is not allowed, with integer data ({data}) it must be float32"
    if dtypes.BY_NAME[prob].kind != "float":
        return f"prob dtype {prob} is not allowed, it must be a float"
    return None


dropout = Row(
    name="dropout",
    signature=(Param("dst"), Param("data"), Param("prob"), NAME),
    operands=(
        Operand("dst", Role.write, ON_CHIP),
        Operand("data", Role.read, ON_CHIP),
        Operand("prob", Role.read, ON_CHIP, number=True, vector=True),
    ),
    engines=only(Engine.vector),
    meaning=_dropout,
    flow={"dst": Flow.elementwise},
    cost=Cost(
        subject="data",
        per_element=1.0,
        minimum=MIN_INTERVAL,
        formula="max(MIN_II, N)",
        source=f"{STUB_2_26}:527-531",
    ),
    source=f"{STUB}:2123-2151",
    limits=(
        *tile_limits("dst", "data", "prob"),
        *same_layout(f"{STUB}:2145-2149", "data", "dst"),
        *vector_limits("prob", "data", 159, f"{STUB}:2131-2135", fp32=False),
        SameDtype(number=45, source=f"{STUB}:2145", left="dst", right="data"),
        Check(number=159, source=f"{STUB}:2139-2143", subject="prob.dtype", find=_probability_dtype),
    ),
    legacy=returns("dropout"),
)


def _seed(reader: Reader) -> dict[str, Result]:
    stored = dtypes.cast(reader.raw("src_seeds"), reader.dtype("src_seeds"))
    word = int(stored.ravel().view(np.uint32)[0])
    reader.state[_name(Engine.vector)] = seeded(word, FROM_SEED, STATES[Engine.vector])
    return {}


set_rng_seed = Row(
    name="set_rng_seed",
    signature=(Param("src_seeds"), NAME),
    operands=(Operand("src_seeds", Role.read, ON_CHIP, dtypes=INT32 | {"float32"}),),
    engines=only(Engine.vector),
    meaning=_seed,
    flow={},
    cost=Cost(
        subject="src_seeds",
        per_element=1.0,
        minimum=MIN_INTERVAL,
        formula="no figure is published; taken as max(MIN_II, N)",
        source=f"{STUB}:2153-2175",
    ),
    source=f"{STUB}:2153-2175",
    limits=(
        *placed_limits("src_seeds"),
        Exactly(
            number=158,
            source=f"{STUB}:2172",
            subject="src_seeds.elements",
            bound=1,
            hint="one seed for all lanes",
        ),
    ),
    releases=SINCE_02,
    legacy=Legacy("random_seed", "inside"),
)


def _state_engine(tile: str) -> Engines:
    """GpSimd by default; before 0.5 the compiler chose, and only Vector of v4 has four states or reaches PSUM."""

    def choose(call: Call) -> Engine:
        vector = call.measure(tile, "free") == STATES[Engine.vector] * WORDS or in_psum(call, tile)
        chosen = call.hardware.generation in V4 and call.release in BEFORE_05 and vector
        return Engine.vector if chosen else Engine.gpsimd

    return Engines(Engine.gpsimd, {Engine.gpsimd: V3_UP, Engine.vector: V4}, choose)


def _state_words(call: Call) -> int:
    return STATES.get(call.resolved_engine(), 1) * WORDS


def _state_cost(tile: str) -> Cost:
    return Cost(
        subject=tile,
        per_element=1.0,
        minimum=MIN_INTERVAL,
        formula="no figure is published; taken as max(MIN_II, N)",
        source=f"{STUB}:2177-2240",
    )


def _set_state(reader: Reader) -> dict[str, Result]:
    words = rows_of(reader.raw("src_seeds"))
    _states(reader, reader.engine)[: len(words)] = words.reshape(len(words), -1, WORDS)
    return {}


rand_set_state = Row(
    name="rand_set_state",
    signature=(Param("src_seeds"), ENGINE, NAME),
    operands=(Operand("src_seeds", Role.read, SBUF, dtypes=frozenset({"uint32"})),),
    engines=_state_engine("src_seeds"),
    meaning=_set_state,
    flow={},
    cost=_state_cost("src_seeds"),
    source=f"{STUB}:2177-2210",
    limits=(
        *placed_limits("src_seeds"),
        Exactly(
            number=158,
            source=f"{STUB}:2197",
            subject="src_seeds.free",
            bound=_state_words,
            hint="6 words a lane on GpSimd, 24 on Vector",
        ),
    ),
    generations=V3_UP,
    releases=SINCE_02,
)


def _get_state(reader: Reader) -> dict[str, Result]:
    shape = reader.shape("dst")
    return {"dst": Bits(_states(reader, reader.engine)[: shape[0]].reshape(shape).copy())}


rand_get_state = Row(
    name="rand_get_state",
    signature=(Param("dst"), ENGINE, NAME),
    operands=(Operand("dst", Role.write, ON_CHIP, dtypes=frozenset({"uint32"})),),
    engines=_state_engine("dst"),
    meaning=_get_state,
    flow={"dst": Flow.nothing},
    cost=_state_cost("dst"),
    source=f"{STUB}:2212-2240",
    limits=(
        *placed_limits("dst"),
        *gpsimd_limits(f"{STUB}:2221,2235", "dst"),
        Exactly(
            number=158,
            source=f"{STUB}:2229",
            subject="dst.free",
            bound=_state_words,
            hint="6 words a lane on GpSimd, 24 on Vector",
        ),
    ),
    generations=V3_UP,
    releases=SINCE_02,
)

ROWS = (rng, rand2, dropout, set_rng_seed, rand_set_state, rand_get_state)

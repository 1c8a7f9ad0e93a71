"""What rows share: scopes, memory and dtype sets, parameters, and the limits that hold for many operands."""

from __future__ import annotations

import math
from collections.abc import Callable

from nkireview.isa import alu, dtypes
from nkireview.isa.enums import GENERATIONS, Engine, Memory
from nkireview.isa.limit import (
    AtMost,
    Call,
    Check,
    DtypeIn,
    Equal,
    Exactly,
    Limit,
    NotBothIn,
)
from nkireview.isa.release import LEGACY, Release, Span
from nkireview.isa.row import Engines, Legacy, Param, Rate

STUB = "nki/api/nki/isa/__init__.py"
STUB_2_26 = "nki/api/nki/isa/__init__.py at tag v2.26.1"
SHARED = "nki/api/nki.api.shared.rst"
ARCH_V2 = "nki/guides/architecture/trainium_inferentia2_arch.rst"
ARCH_V3 = "nki/guides/architecture/trainium2_arch.rst"
NOTES = "release-notes/components/nki.rst"
MIGRATION = "nki/migration/index.rst"
DGE = "nki/deep-dives/nki-dge.rst"
ACCESS_PATTERNS = "nki/deep-dives/nki-aps.rst"
LANGUAGE_INDIRECT = "nki/api/nki/language/__init__.py:546-564"

SINCE_03 = Span(since=Release(0, 3))
SINCE_04 = Span(since=Release(0, 4))
SINCE_05 = Span(since=Release(0, 5))
SINCE_06 = Span(since=Release(0, 6))
LEGACY_ONLY = Span(until=Release(0, 2))
BEFORE_03 = Span(until=Release(0, 3))
BEFORE_04 = Span(until=Release(0, 4))
BEFORE_05 = Span(until=Release(0, 5))
BEFORE_06 = Span(until=Release(0, 6))
NEVER = Span(until=LEGACY)

ALL = frozenset(GENERATIONS)
V2 = frozenset({"v2"})
V3_UP = frozenset({"v3", "v4"})
BEFORE_V4 = frozenset({"v2", "v3"})
V4 = frozenset({"v4"})

SBUF = frozenset({Memory.sbuf})
PSUM = frozenset({Memory.psum})
ON_CHIP = SBUF | PSUM
HBM = frozenset({Memory.hbm, Memory.shared_hbm})

PACKED = frozenset(name for name, dtype in dtypes.BY_NAME.items() if dtype.kind == "packed")
NATIVE_ON_V4 = PACKED | {"float8_e4m3fn", "float8_e8m0fnu"}
FP8 = frozenset({"float8_e4m3", "float8_e5m2", "float8_e4m3fn"})
HALF = frozenset({"bfloat16", "float16"})
INT32 = frozenset({"int32", "uint32"})

MIN_INTERVAL = "overhead.min_interval_cycles"
NAME = Param("name", None)
NAME_SINCE_03 = Param("name", None, SINCE_03)
ENGINE = Param("engine", Engine.unknown)
SCALAR_V3_UP = {Engine.vector: ALL, Engine.gpsimd: ALL, Engine.scalar: V3_UP}
COMPARISONS = ("equal", "not_equal", "greater_equal", "greater", "less_equal", "less")


def returns(name: str) -> Legacy:
    """The legacy spelling that returns its result."""
    return Legacy(name, "returns")


def only(engine: Engine) -> Engines:
    """Engines of a row that runs on one engine and takes no ``engine=``."""
    return Engines(engine, {engine: ALL})


def partition_limits(*operands: str) -> tuple[Limit, ...]:
    """Rule 1 for each operand."""
    return tuple(
        AtMost(
            number=1,
            source="nki/get-started/about/tiling-overview.rst:96",
            subject=f"{operand}.partitions",
            bound="partitions",
        )
        for operand in operands
    )


def start_limits(
    *operands: str, exempt: Callable[[Call], bool] | None = None, why: str = ""
) -> tuple[Limit, ...]:
    """Rule 2 for each operand: where a tile of so many partitions may start."""
    return tuple(
        Check(
            number=2,
            source=f"{ARCH_V2}:708-713",
            subject=f"{operand}.start",
            find=_start(operand),
            exempt=exempt,
            exemption=why,
        )
        for operand in operands
    )


def _start(operand: str) -> Callable[[Call], str | None]:
    def find(call: Call) -> str | None:
        if not call.has(operand):
            return None
        count, start = call.measure(operand, "partitions"), call.measure(operand, "start")
        if not 1 <= count <= call.hardware.partitions:
            return None
        allowed = call.hardware.start_partitions(count)
        if start in allowed:
            return None
        places = ", ".join(map(str, allowed))
        return f"{operand} starts at partition {start}, a tile of {count} partitions may start at {places}"

    return find


def native_limits(*operands: str) -> tuple[Limit, ...]:
    """Rule 35 for each operand: formats that only v4 computes with."""
    return tuple(
        Check(
            number=35,
            source="compiler/error-codes/EVRF051.rst",
            generations=BEFORE_V4,
            subject=f"{operand}.dtype",
            find=_native(operand),
        )
        for operand in operands
    )


def _native(operand: str) -> Callable[[Call], str | None]:
    def find(call: Call) -> str | None:
        if not call.has(operand) or call.dtype(operand) not in NATIVE_ON_V4:
            return None
        return f"{operand} dtype {call.dtype(operand)} needs NeuronCore-v4 or newer, use another dtype"

    return find


def placed_limits(*operands: str) -> tuple[Limit, ...]:
    """Rules 1 and 2: what holds for every tile of a compute instruction that names its dtypes."""
    return partition_limits(*operands) + start_limits(*operands)


def tile_limits(*operands: str) -> tuple[Limit, ...]:
    """Rules 1, 2 and 35: what holds for every tile of a compute instruction."""
    return placed_limits(*operands) + native_limits(*operands)


def same_layout(source: str, *operands: str) -> tuple[Limit, ...]:
    """Rules 4 and 8: equal partitions, and equal elements a partition, of the first operand and each other."""
    first, *others = operands
    limits: list[Limit] = []
    for other in others:
        limits.append(same_partitions(other, first))
        limits.append(Equal(number=8, source=source, left=f"{other}.free", right=f"{first}.free"))
    return tuple(limits)


def same_partitions(left: str, right: str) -> Limit:
    """Rule 4: equal partition counts."""
    return Equal(
        number=4, source=f"{ARCH_V2}:732-737", left=f"{left}.partitions", right=f"{right}.partitions"
    )


def vector_limits(
    operand: str,
    data: str,
    number: int,
    source: str,
    *,
    fp32: bool = True,
    exempt: Callable[[Call], bool] | None = None,
    exemption: str = "",
) -> tuple[Limit, ...]:
    """A tile of shape (P, 1) broadcast over `data`: one element for each of its partitions, float32 if `fp32`."""

    def too_few(call: Call) -> str | None:
        if not (call.has(operand) and call.has(data)):
            return None
        found, needed = call.measure(operand, "partitions"), call.measure(data, "partitions")
        if found >= needed:
            return None
        return f"{operand} partition size {found} is below {data} partition size {needed}"

    shape: tuple[Limit, ...] = (
        Exactly(
            number=number,
            source=source,
            subject=f"{operand}.free",
            bound=1,
            hint="a vector has one element a partition",
        ),
        Check(number=number, source=source, subject=f"{operand}.partitions", find=too_few),
    )
    if not fp32:
        return shape
    dtype = DtypeIn(
        number=number,
        source=source,
        operand=operand,
        allowed=frozenset({"float32"}),
        exempt=exempt,
        exemption=exemption,
    )
    return (*shape, dtype)


def column_limits(operand: str, data: str, source: str) -> tuple[Limit, ...]:
    """A written tile of shape (P, 1)."""
    return (
        same_partitions(operand, data),
        Exactly(number=8, source=source, subject=f"{operand}.free", bound=1),
    )


def not_both_psum(left: str, right: str, source: str) -> Limit:
    """Rule 20: one port into PSUM."""
    return NotBothIn(number=20, source=source, left=left, right=right, memory=Memory.psum)


def gpsimd_limits(source: str, *operands: str) -> tuple[Limit, ...]:
    """Rule 18 for each operand of a row that may run on GpSimd."""
    return tuple(
        Check(number=18, source=source, subject=f"{operand}.memory", find=_gpsimd_psum(operand))
        for operand in operands
    )


def _gpsimd_psum(operand: str) -> Callable[[Call], str | None]:
    def find(call: Call) -> str | None:
        if not call.has(operand) or call.memory(operand) is not Memory.psum:
            return None
        if call.resolved_engine() is not Engine.gpsimd:
            return None
        return f"{operand} is in PSUM, which the GpSimd engine cannot access; copy it to SBUF first"

    return find


def in_psum(call: Call, *operands: str) -> bool:
    """True where one of the tiles lives in PSUM."""
    return any(call.has(operand) and call.memory(operand) is Memory.psum for operand in operands)


def all_sbuf(call: Call, *operands: str) -> bool:
    """True where all of the tiles live in SBUF."""
    return all(call.has(operand) and call.memory(operand) is Memory.sbuf for operand in operands)


def all_dtypes(call: Call, names: frozenset[str], *operands: str) -> bool:
    """True where every tile has one of the dtypes."""
    return all(call.has(operand) and call.dtype(operand) in names for operand in operands)


def _half_sbuf(*operands: str) -> Callable[[Call], bool]:
    def applies(call: Call) -> bool:
        contiguous = all(call.measure(operand, "stride") == 1 for operand in operands)
        return (
            on_vector(call) and all_dtypes(call, HALF, *operands) and all_sbuf(call, *operands) and contiguous
        )

    return applies


def _half(*operands: str) -> Callable[[Call], bool]:
    def applies(call: Call) -> bool:
        one_side = any(call.memory(operand) is Memory.sbuf for operand in operands)
        return on_vector(call) and all_dtypes(call, HALF, *operands) and one_side

    return applies


def on_vector(call: Call) -> bool:
    """True where the Vector engine runs the call."""
    return call.resolved_engine() is Engine.vector


def _fp32_sbuf(*operands: str) -> Callable[[Call], bool]:
    def applies(call: Call) -> bool:
        fp32 = all_dtypes(call, frozenset({"float32"}), *operands) and all_sbuf(call, *operands)
        return on_vector(call) and fp32 and all(call.measure(operand, "stride") == 1 for operand in operands)

    return applies


def performance_modes(*operands: str) -> tuple[Rate, ...]:
    """Vector performance modes of one-input instructions."""
    return (
        Rate(0.25, "16-bit floats, SBUF, contiguous", _half_sbuf(*operands), V3_UP, f"{ARCH_V3}:224-235"),
        Rate(
            0.5, "16-bit floats, strided or one side in PSUM", _half(*operands), V3_UP, f"{ARCH_V3}:224-235"
        ),
        Rate(
            0.5,
            "float32, SBUF, contiguous",
            _fp32_sbuf(*operands),
            V3_UP,
            "measured on trn2: tensor_scalar of N=512 issues every 395 ns",
        ),
    )


def known_op(name: object) -> alu.AluOp | None:
    """The ALU operator of that name, if there is one."""
    return alu.BY_NAME.get(name) if isinstance(name, str) else None


def is_integer(name: str) -> bool:
    """True for dtypes whose bits a bitvec operator may take."""
    return dtypes.BY_NAME[name].kind in ("int", "uint", "bool")


def operator_limits(
    source: str,
    names: tuple[str, ...],
    tiles: tuple[str, ...],
    *,
    bitvec: bool = True,
    binary: bool = False,
    reduction: bool = False,
) -> tuple[Limit, ...]:
    """Rules 36 and 53 for the operators in the immediates `names`, which work on `tiles`.

    `bitvec`: bitvec operators are legal, on integer tiles; `binary`: unary operators are not; `reduction`: only
    operators that the table calls reductions are.
    """

    def kinds(call: Call) -> str | None:
        ops = [(name, call.imm(name)) for name in names if call.imm(name) is not None]
        for name, given in ops:
            op = known_op(given)
            if op is None:
                return f"{name} {given} is no ALU operator"
            if op.kind == "bitvec" and not bitvec:
                return f"{name} {given} is a bitvec operator, only arithmetic ones are allowed"
            if binary and op.arity == 1:
                return f"{name} {given} is a unary operator, expected a binary one"
            if reduction and not op.reduce:
                return f"{name} {given} is no reduction operator"
        return _bitvec_breach(call, [(name, alu.of(given)) for name, given in ops], tiles)

    def scope(call: Call) -> str | None:
        generation = call.hardware.generation
        for name in names:
            op = known_op(call.imm(name))
            if op is None:
                continue
            if generation not in op.generations:
                return f"{name} {op.name} is an ALU operator on {', '.join(op.generations)} only"
            if call.release not in op.releases:
                return f"{name} {op.name} is no ALU operator in NKI {call.release}"
        return None

    subject = f"{names[0]}.kind"
    kind = Check(number=36, source=source, subject=subject, find=kinds)
    # reductions are in every generation and release
    scopes = Check(number=53, source=f"{NOTES}:224-228", subject=subject, find=scope)
    return (kind,) if reduction else (kind, scopes)


def _bitvec_breach(call: Call, ops: list[tuple[str, alu.AluOp]], tiles: tuple[str, ...]) -> str | None:
    bits = [f"{name} {op.name}" for name, op in ops if op.kind == "bitvec"]
    if not bits:
        return None
    if len(bits) != len(ops):
        mixed = " and ".join(f"{name} {op.name}" for name, op in ops)
        return f"{mixed} mix bitvec and arithmetic operators"
    for tile in tiles:
        if call.has(tile) and not is_integer(call.dtype(tile)):
            return f"{tile} dtype {call.dtype(tile)} is not allowed, bitvec operators need integers"
    engine = call.resolved_engine()
    if engine is not Engine.vector:
        return f"{bits[0]} is a bitvec operator, which the {engine.name} engine cannot run"
    return None


def pattern_limits(data: str, source: str) -> tuple[Limit, ...]:
    """Rule 66: an affine pattern of up to four dimensions that covers the tile."""

    def dims(call: Call) -> str | None:
        pattern = call.imm("pattern")
        if not _is_pattern(pattern):
            return f"pattern {pattern} must be a list of [step, count] pairs of integers"
        allowed = call.hardware.integer("limits.access_free_dims_max")
        if len(pattern) > allowed:
            return f"pattern has {len(pattern)} dimensions, at most {allowed} are allowed"
        return None

    def covers(call: Call) -> str | None:
        pattern = call.imm("pattern")
        if not (call.has(data) and _is_pattern(pattern)):
            return None
        product, free = math.prod(count for _, count in pattern), call.measure(data, "free")
        if product == free:
            return None
        return f"pattern covers {product} elements, {data} free size is {free}"

    return (
        Check(number=66, source=source, subject="pattern.dims", find=dims),
        Check(number=66, source=source, subject="pattern.elements", find=covers),
    )


def _is_pattern(pattern: object) -> bool:
    return isinstance(pattern, tuple | list) and all(
        isinstance(pair, tuple | list)
        and len(pair) == 2
        and all(isinstance(part, int) and not isinstance(part, bool) for part in pair)
        for pair in pattern
    )


TENSOR_GROUP = 32  # offsets of a snake index in one column: nki/api/nki/language/__init__.py:553-555
OTHER_GROUP = 16


def indirect_limits(
    source: str,
    *operands: str,
    engines: frozenset[Engine],
    beside: str = "",
    group: int = OTHER_GROUP,
    others: bool = False,
) -> tuple[Limit, ...]:
    """Rules 145, 95 and 27 for the operands that may be views made by `NkiTensor.indirect`.

    The operands carry ``indirect=True`` too; `judge` refuses such a view as any other operand. `engines` run the
    instruction then; `others`: without such views others do as well. `group` offsets lie in one column of an index
    tile. `beside`: the operand (in SBUF), or its index (in PSUM), whose start partition the index of a scattered dst
    shares.
    """
    scope = Check(
        number=145,
        source=f"{NOTES}:138-148; {source}",
        subject=f"{operands[0]}.index_scope",
        find=_indirect_scope(operands),
    )
    engine = Check(
        number=145,
        source=source,
        subject=f"{operands[0]}.index_engine",
        find=_indirect_engine(operands, engines),
    )
    shapes = tuple(
        Check(
            number=145,
            source=LANGUAGE_INDIRECT,
            subject=f"{operand}.index_shape",
            find=_index_tile(operand, group),
        )
        for operand in operands
    )
    starts = tuple(
        Check(number=95, source=source, subject=f"{operand}.index_start", find=_index_start(operand, beside))
        for operand in operands
    )
    scatter = Check(number=27, source=source, subject="dst.memory", find=_scattered_to_psum)
    scatters = "dst" in operands and Engine.scalar in engines
    return (scope, *((engine,) if others else ()), *shapes, *starts, *((scatter,) if scatters else ()))


def snakes(call: Call, *operands: str) -> tuple[str, ...]:
    """Those of the operands that are views made by `NkiTensor.indirect`."""
    return tuple(name for name in operands if call.has(name) and call.index(name) == "snake")


def _indirect_scope(operands: tuple[str, ...]) -> Callable[[Call], str | None]:
    def find(call: Call) -> str | None:
        found = snakes(call, *operands)
        if not found:
            return None
        if call.hardware.generation not in V4:
            return f"{found[0]} is a view made by indirect(), which needs NeuronCore-v4 or newer"
        if call.release not in SINCE_05:
            return f"{found[0]} is a view made by indirect(), which exists since NKI {SINCE_05.since}"
        return None

    return find


def _indirect_engine(operands: tuple[str, ...], engines: frozenset[Engine]) -> Callable[[Call], str | None]:
    def find(call: Call) -> str | None:
        found, engine = snakes(call, *operands), call.resolved_engine()
        if not found or engine in engines:
            return None
        names = " or ".join(each.name for each in Engine if each in engines)
        return f"{found[0]} is a view made by indirect(), which the {engine.name} engine does not take, use {names}"

    return find


def _index_tile(operand: str, group: int) -> Callable[[Call], str | None]:
    def find(call: Call) -> str | None:
        if not snakes(call, operand):
            return None
        index = f"{operand}.index"
        if call.memory(index) is not Memory.sbuf:
            return f"index of {operand} is in {call.memory(index).name.upper()}, it must be in SBUF"
        found, needed = call.measure(index, "partitions"), call.measure(operand, "partitions")
        if found != needed:
            return f"index of {operand} has {found} partitions, {operand} has {needed}"
        offsets, most = call.measure(operand, "free"), call.measure(index, "free") * min(group, found)
        if offsets > most:
            return f"{operand} takes {offsets} offsets, its index holds {most} for each group of {group} partitions"
        return None

    return find


def _index_start(operand: str, beside: str) -> Callable[[Call], str | None]:
    def find(call: Call) -> str | None:
        index = f"{operand}.index"
        if not snakes(call, operand) or not call.placed(index):
            return None
        start = call.measure(index, "start")
        if start % 32:
            return f"index of {operand} starts at partition {start}, must be a multiple of 32"
        other = operand if operand != "dst" else beside
        if other != operand and in_psum(call, other):
            other = f"{other}.index"
        if other and call.has(other) and call.placed(other) and call.measure(other, "start") != start:
            what = f"index of {other.removesuffix('.index')}" if other.endswith(".index") else other
            found = call.measure(other, "start")
            return (
                f"index of {operand} starts at partition {start}, {what} at {found}: they must start together"
            )
        return None

    return find


def _scattered_to_psum(call: Call) -> str | None:
    if not snakes(call, "dst") or not in_psum(call, "dst") or call.resolved_engine() is not Engine.scalar:
        return None
    return "dst is a view made by indirect() in PSUM, where the Scalar engine cannot scatter to"

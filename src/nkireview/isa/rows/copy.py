"""Copies and fills: rows that run on Vector, or on Scalar or GpSimd by choice."""

from __future__ import annotations

import numpy as np

from nkireview.isa import dtypes
from nkireview.isa.enums import Engine
from nkireview.isa.limit import Call, Check
from nkireview.isa.row import (
    Bits,
    Cost,
    Engines,
    Flow,
    Operand,
    Param,
    Plan,
    Planned,
    Rate,
    Reader,
    Result,
    Role,
    Row,
    Shapes,
)
from nkireview.isa.rows.arrays import (
    move,
)
from nkireview.isa.rows.common import (
    ALL,
    ARCH_V3,
    ENGINE,
    HALF,
    MIGRATION,
    MIN_INTERVAL,
    NAME,
    ON_CHIP,
    PACKED,
    SCALAR_V3_UP,
    SINCE_03,
    STUB,
    STUB_2_26,
    all_dtypes,
    all_sbuf,
    gpsimd_limits,
    indirect_limits,
    is_integer,
    native_limits,
    partition_limits,
    performance_modes,
    returns,
    same_layout,
    start_limits,
    tile_limits,
)


def _copy(reader: Reader) -> dict[str, Result]:
    if reader.generation == "v2" and reader.engine is Engine.scalar:
        return {"dst": reader.value("src")}  # there the Scalar engine copies through float32
    return {"dst": move(reader, "src", "dst")}


tensor_copy = Row(
    name="tensor_copy",
    signature=(Param("dst"), Param("src"), ENGINE, NAME),
    operands=(
        Operand("dst", Role.write, ON_CHIP, indirect=True),
        Operand("src", Role.read, ON_CHIP, indirect=True),
    ),
    engines=Engines(Engine.vector, SCALAR_V3_UP),
    meaning=_copy,
    flow={"dst": Flow.elementwise},
    cost=Cost(
        subject="src",
        per_element=1.0,
        minimum=MIN_INTERVAL,
        formula="max(MIN_II, N); on Vector from v3 on N/4 or N/2 for 16-bit floats, N/2 for float32 in SBUF",
        source=f"{STUB_2_26}:1396-1400; {ARCH_V3}:222-239",
        rates=performance_modes("dst", "src"),
    ),
    source=f"{STUB}:384-429",
    limits=(
        *tile_limits("dst", "src"),
        *same_layout(f"{STUB}:387-388", "src", "dst"),
        *gpsimd_limits(f"{STUB}:399-401", "src", "dst"),
        *indirect_limits(
            f"{STUB}:405-423",
            "src",
            "dst",
            engines=frozenset({Engine.vector, Engine.scalar}),
            beside="src",
            others=True,
        ),
    ),
    legacy=returns("tensor_copy"),
)


def _fill_plan(call: Shapes) -> Plan | None:
    dtype, value = call.dtype("dst"), call.imm("value")
    if dtype.kind != "float":
        return None
    if dtype.name == "float8_e8m0fnu" and value == 0:
        # no code stands for zero; a fill of zeros clears the bits
        value = 2.0**-127
    number = np.asarray(value, call.compute)
    return Plan((), call.shape("dst"), lambda out: out.fill(number))


def _fill_bits(reader: Reader) -> dict[str, Result]:
    dtype, shape, value = reader.dtype("dst"), reader.shape("dst"), reader.imm("value")
    if dtype.kind == "packed":
        return {"dst": Bits(np.zeros(shape, dtype.storage))}
    return {"dst": Bits(np.full(shape, dtypes.cast(np.asarray(value), dtype)))}


def _float_into_integer(call: Call) -> str | None:
    value = call.imm("value")
    if not call.has("dst") or not isinstance(value, float) or not is_integer(call.dtype("dst")):
        return None
    return f"value {value!r} is a float, dst dtype {call.dtype('dst')} needs an integer"


def _constant(call: Call) -> str | None:
    value = call.imm("value")
    if isinstance(value, int | float):
        return None
    what = "a register" if isinstance(value, tuple) and value[:1] == ("register",) else repr(value)
    return f"value is {what}, it must be a number known when the kernel is traced"


def _packed_value(call: Call) -> str | None:
    if not call.has("dst") or call.dtype("dst") not in PACKED or call.imm("value") == 0:
        return None
    return f"value is {call.imm('value')!r}, packed dst dtype {call.dtype('dst')} takes only 0"


def _may_be_gpsimd(call: Call) -> bool:
    return call.engine is Engine.gpsimd or (call.engine is Engine.unknown and all_sbuf(call, "dst"))


def _zero_half(call: Call) -> bool:
    return call.imm("value") == 0 and all_dtypes(call, HALF, "dst")


memset = Row(
    name="memset",
    signature=(Param("dst"), Param("value"), ENGINE, NAME),
    operands=(Operand("dst", Role.write, ON_CHIP),),
    engines=Engines(Engine.vector, {Engine.vector: ALL, Engine.gpsimd: ALL}),
    meaning=Planned(_fill_plan, _fill_bits),
    flow={"dst": Flow.nothing},
    cost=Cost(
        subject="dst",
        per_element=1.0,
        minimum=MIN_INTERVAL,
        formula="max(MIN_II, N/2) for 0 in bfloat16 or float16, else max(MIN_II, N)",
        source=f"{STUB_2_26}:709-715",
        rates=(Rate(0.5, "0 in a 16-bit float", _zero_half, source=f"{STUB_2_26}:709-715"),),
    ),
    source=f"{STUB}:431-444",
    limits=(
        *partition_limits("dst"),
        *start_limits(
            "dst",
            exempt=_may_be_gpsimd,
            why="GpSimd fills from any partition, and the compiler may choose it",
        ),
        *native_limits("dst"),
        *gpsimd_limits(f"{STUB}:399-401", "dst"),
        Check(number=42, source=f"{STUB}:432-436", subject="value.kind", find=_constant),
        Check(
            number=42,
            source=f"{MIGRATION}:497-512",
            releases=SINCE_03,
            subject="value.dtype",
            find=_float_into_integer,
        ),
        Check(
            number=42, source=f"{STUB}:441-443", releases=SINCE_03, subject="value.packed", find=_packed_value
        ),
    ),
    legacy=returns("memset"),
)


ROWS = (
    tensor_copy,
    memset,
)

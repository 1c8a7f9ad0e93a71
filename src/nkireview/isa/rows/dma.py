"""Rows of the DMA engines."""

from __future__ import annotations

from nkireview.isa.enums import DgeMode, Engine, OobMode
from nkireview.isa.limit import Call, Check, Equal
from nkireview.isa.row import Cost, Engines, Flow, Legacy, Operand, Param, Reader, Result, Role, Row
from nkireview.isa.rows.arrays import move
from nkireview.isa.rows.common import (
    BEFORE_V4,
    ENGINE,
    HBM,
    MIGRATION,
    NAME,
    NEVER,
    ON_CHIP,
    PACKED,
    SBUF,
    SINCE_03,
    SINCE_04,
    STUB,
    V2,
    V3_UP,
    in_psum,
    partition_limits,
)


def _copy(reader: Reader) -> dict[str, Result]:
    return {"dst": move(reader, "src", "dst")}


def _from_psum(call: Call) -> str | None:
    if not in_psum(call, "src"):
        return None
    return "src is in PSUM, which a DMA cannot read; copy it to SBUF with tensor_copy first"


def _dtypes_differ(call: Call) -> bool:
    return call.has("src") and call.has("dst") and call.dtype("src") != call.dtype("dst")


def _hardware_cast(call: Call) -> str | None:
    if call.dge is not DgeMode.hwdge or not _dtypes_differ(call):
        return None
    return f"src dtype {call.dtype('src')} differs from dst dtype {call.dtype('dst')}, which dge_mode=hwdge cannot cast"


def _packed_cast(call: Call) -> str | None:
    if not _dtypes_differ(call) or not {call.dtype("src"), call.dtype("dst")} & PACKED:
        return None
    return f"src dtype {call.dtype('src')} cannot be cast to {call.dtype('dst')}: a DMA does not cast packed dtypes"


def _hardware_dge(call: Call) -> str | None:
    return "dge_mode=hwdge needs NeuronCore-v3 or newer" if call.dge is DgeMode.hwdge else None


def _trigger(call: Call) -> str | None:
    if call.engine is Engine.unknown or call.dge is DgeMode.hwdge:
        return None
    return f"engine={call.engine.name} needs dge_mode=hwdge, got {call.dge.name}"


def _priority(call: Call) -> str | None:
    priority = call.imm("priority")
    return None if priority is None else f"priority={priority} needs NeuronCore-v4 or newer"


dma_copy = Row(
    name="dma_copy",
    signature=(
        Param("dst"),
        Param("src"),
        Param("priority", None, SINCE_04),
        Param("oob_mode", OobMode.error),
        Param("dge_mode", DgeMode.unknown),
        Param("engine", ENGINE.default, SINCE_03),
        NAME,
    ),
    operands=(
        Operand("dst", Role.write, HBM | SBUF),
        Operand("src", Role.read, HBM | ON_CHIP),
    ),
    engines=Engines(
        Engine.dma,
        {Engine.sync: V3_UP, Engine.scalar: V3_UP},
        honoured=NEVER,  # engine= names the queue that triggers the DMA, not who runs it
    ),
    meaning=_copy,
    flow={"dst": Flow.elementwise},
    cost=Cost(
        subject="src",
        per_element=0.0,
        formula="no cycles: packets of bytes over the DMA engines, see the figures dma.*",
        source="nki/deep-dives/nki-dma-bandwidth-guide.rst:39-85",
    ),
    source=f"{STUB}:246-382",
    limits=(
        *partition_limits("dst", "src"),
        Equal(number=82, source=f"{STUB}:289", left="src.elements", right="dst.elements"),
        Check(
            number=21,
            source=f"{MIGRATION}:419-433",
            releases=SINCE_03,
            subject="src.memory",
            find=_from_psum,
        ),
        Check(
            number=43,
            source=f"{MIGRATION}:435-454",
            releases=SINCE_03,
            subject="src.dtype",
            find=_hardware_cast,
        ),
        Check(
            number=44,
            source="nki/get-started/about/nki-dma-overview.rst:19",
            subject="src.dtype",
            find=_packed_cast,
        ),
        Check(
            number=52, source=f"{STUB}:372", generations=V2, subject="dge_mode.generation", find=_hardware_dge
        ),
        Check(number=49, source=f"{STUB}:380-381", subject="engine.dge_mode", find=_trigger),
        Check(
            number=51,
            source=f"{STUB}:371",
            generations=BEFORE_V4,
            subject="priority.generation",
            find=_priority,
        ),
    ),
    legacy=Legacy("dma_copy", "dst"),
)

ROWS = (dma_copy,)

"""The row of dma_copy, and what the rows of all DMAs share: index tiles, descriptor generation, priority."""

from __future__ import annotations

from collections.abc import Callable

from nkireview.isa.enums import DgeMode, Engine, Memory, OobMode
from nkireview.isa.limit import Call, Check, Equal, Limit
from nkireview.isa.release import Release, Span
from nkireview.isa.row import Cost, Engines, Flow, Legacy, Operand, Param, Reader, Result, Role, Row
from nkireview.isa.rows.arrays import move
from nkireview.isa.rows.common import (
    ACCESS_PATTERNS,
    BEFORE_03,
    BEFORE_V4,
    DGE,
    ENGINE,
    HBM,
    INT32,
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
    is_integer,
    partition_limits,
)

STUB_2_28 = "nki/api/nki/isa/__init__.py at tag v2.28.1"
STUB_2_30 = "nki/api/nki/isa/__init__.py at tag v2.30.0"
ONLY_02 = Span(since=Release(0, 2), until=Release(0, 3))
ONLY_04 = Span(since=Release(0, 4), until=Release(0, 5))
SINCE_02 = Span(since=Release(0, 2))
PRIORITIES = range(4)
DMA_COST = "no cycles: packets of bytes over the DMA engines, see the figures dma.*"
DMA_COST_SOURCE = "nki/deep-dives/nki-dma-bandwidth-guide.rst:39-85"


def label(operand: str) -> str:
    """An operand as a kernel writes it: an element of a list by its position."""
    number = operand.removeprefix("srcs")
    return f"srcs[{number}]" if number.isdigit() else operand


def vectors(call: Call, *operands: str) -> tuple[str, ...]:
    """Those of the operands that a vector index gathers or scatters."""
    return tuple(name for name in operands if call.has(name) and call.index(name) == "vector")


def index_limits(source: str, *operands: str, column: bool = True) -> tuple[Limit, ...]:
    """Rules 84 and 46 for operands that may have an index tile; `column`: a vector index is one of shape (P, 1)."""
    limits: list[Limit] = []
    for operand in operands:
        limits.append(
            Check(
                number=84,
                source=f"{source}; {ACCESS_PATTERNS}:74-76,377-382",
                subject=f"{operand}.index",
                find=_index_tile(operand, column),
            )
        )
        if column:
            limits.append(
                Check(
                    number=46,
                    source=f"{ACCESS_PATTERNS}:363,388; {MIGRATION}:1267",
                    subject=f"{operand}.index_dtype",
                    find=_index_dtype(operand),
                )
            )
    return tuple(limits)


def _index_tile(operand: str, column: bool) -> Callable[[Call], str | None]:
    name = label(operand)

    def find(call: Call) -> str | None:
        index = f"{operand}.index"
        if not call.has(operand) or call.index(operand) not in ("vector", "scalar"):
            return None
        if call.memory(index) is not Memory.sbuf:
            return f"index of {name} is in {call.memory(index).name.upper()}, it must be in SBUF"
        if call.index(operand) == "scalar":
            held = call.measure(index, "elements")
            return None if held == 1 else f"scalar index of {name} has {held} elements, must have one"
        if call.index_axis(operand):
            return f"vector index of {name} replaces dimension {call.index_axis(operand)}, must be 0"
        if call.memory(operand) not in HBM:
            return f"{name} is in {call.memory(operand).name.upper()}, a vector index needs a tensor in HBM"
        if column and call.measure(index, "free") != 1:
            rows, columns = call.measure(index, "partitions"), call.measure(index, "free")
            return f"index of {name} is {rows} x {columns}, must be one column: one index a partition"
        held, wanted = call.measure(index, "elements"), call.counts(operand)[0]
        if held < wanted:
            return f"index of {name} holds {held} indices, {name} takes {wanted}"
        return None

    return find


def _index_dtype(operand: str) -> Callable[[Call], str | None]:
    name = label(operand)

    def find(call: Call) -> str | None:
        index = f"{operand}.index"
        if not (call.has(operand) and call.has(index)) or call.dtype(index) in INT32:
            return None
        if not is_integer(call.dtype(index)):
            return None  # refused wherever an index tile stands
        return f"index of {name} has dtype {call.dtype(index)}, expected int32 or uint32"

    return find


def descriptor_limits(*operands: str, modes: bool = True) -> tuple[Limit, ...]:
    """Rules 52, 86 and 87: who can generate the descriptors of a gather or scatter; `modes`: a call may choose."""

    def generation(call: Call) -> str | None:
        found = vectors(call, *operands)
        return f"{label(found[0])} has a vector index, which needs NeuronCore-v3 or newer" if found else None

    def mode(refused: DgeMode) -> Callable[[Call], str | None]:
        def find(call: Call) -> str | None:
            found = vectors(call, *operands)
            if not found or call.dge is not refused:
                return None
            name = label(found[0])
            return f"{name} has a vector index, which dge_mode={refused.name} cannot do; use swdge or unknown"

        return find

    limits: list[Limit] = [
        Check(
            number=52,
            source=f"{DGE}:168-170",
            generations=V2,
            releases=SINCE_02,
            subject=f"{operands[-1]}.index_generation",
            find=generation,
        )
    ]
    if modes:
        limits += [
            Check(
                number=number,
                source=f"{DGE}:125,192-210",
                releases=SINCE_02,
                subject=f"dge_mode.{refused.name}",
                find=mode(refused),
            )
            for number, refused in ((86, DgeMode.none), (87, DgeMode.hwdge))
        ]
    return tuple(limits)


def priority_limits(source: str) -> tuple[Limit, ...]:
    """Rules 51 and 150: DMA priorities."""
    return (
        Check(number=51, source=source, generations=BEFORE_V4, subject="priority.generation", find=_priority),
        Check(number=150, source=source, subject="priority.level", find=_level),
        Check(
            number=150,
            source=f"{STUB_2_30}:314,816",
            releases=ONLY_04,
            subject="priority.dge_mode",
            find=_static_priority,
        ),
    )


def _priority(call: Call) -> str | None:
    priority = call.imm("priority")
    return None if priority is None else f"priority={priority} needs NeuronCore-v4 or newer"


def _level(call: Call) -> str | None:
    priority = call.imm("priority")
    if priority is None or priority in PRIORITIES:
        return None
    return f"priority={priority} must be a level of {PRIORITIES[0]} (first) to {PRIORITIES[-1]} (last)"


def _static_priority(call: Call) -> str | None:
    if call.imm("priority") is None or call.dge is not DgeMode.none:
        return None
    return f"priority={call.imm('priority')} is not supported with dge_mode=none in NKI {call.release}"


def hardware_generation(source: str) -> Limit:
    """Rule 52: which generations have hardware DGE."""
    return Check(number=52, source=source, generations=V2, subject="dge_mode.generation", find=_hardware_dge)


def _hardware_dge(call: Call) -> str | None:
    return "dge_mode=hwdge needs NeuronCore-v3 or newer" if call.dge is DgeMode.hwdge else None


def _copy(reader: Reader) -> dict[str, Result]:
    if reader.imm("dst_rmw_op"):
        return {"dst": reader.value("dst") + reader.value("src").reshape(reader.shape("dst"))}
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
    if not (call.has("src") and call.has("dst")) or not {call.dtype("src"), call.dtype("dst")} & PACKED:
        return None
    if call.imm("dst_rmw_op"):
        return f"dst_rmw_op cannot add dtype {call.dtype('dst')}: a DMA computes with no packed dtype"
    if not _dtypes_differ(call):
        return None
    return f"src dtype {call.dtype('src')} cannot be cast to {call.dtype('dst')}: a DMA does not cast packed dtypes"


def _trigger(call: Call) -> str | None:
    if call.engine is Engine.unknown or call.dge is DgeMode.hwdge:
        return None
    return f"engine={call.engine.name} needs dge_mode=hwdge, got {call.dge.name}"


def _added(call: Call) -> str | None:
    op = call.imm("dst_rmw_op")
    return None if op in (None, "add") else f"dst_rmw_op {op} is not supported, a DMA only adds"


def _added_beyond(call: Call) -> str | None:
    if call.imm("dst_rmw_op") is None or call.imm("oob_mode") != OobMode.skip.name:
        return None
    return "oob_mode=skip cannot be combined with dst_rmw_op, only error"


dma_copy = Row(
    name="dma_copy",
    signature=(
        Param("dst"),
        Param("src"),
        Param("dst_rmw_op", None, BEFORE_03),
        Param("priority", None, SINCE_04),
        Param("oob_mode", OobMode.error),
        Param("dge_mode", DgeMode.unknown),
        Param("unique_indices", True, ONLY_02),
        Param("engine", ENGINE.default, SINCE_03),
        NAME,
    ),
    operands=(
        Operand("dst", Role.write, HBM | SBUF, adds_if="dst_rmw_op"),
        Operand("src", Role.read, HBM | ON_CHIP),
    ),
    engines=Engines(
        Engine.dma,
        {Engine.sync: V3_UP, Engine.scalar: V3_UP},
        honoured=NEVER,  # engine= names the queue that triggers the DMA, not who runs it
    ),
    meaning=_copy,
    flow={"dst": Flow.elementwise},
    cost=Cost(subject="src", per_element=0.0, formula=DMA_COST, source=DMA_COST_SOURCE),
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
        hardware_generation(f"{STUB}:372"),
        Check(number=49, source=f"{STUB}:380-381", subject="engine.dge_mode", find=_trigger),
        *priority_limits(f"{STUB}:371"),
        *index_limits(f"{STUB}:300-310", "dst", "src"),
        *descriptor_limits("dst", "src"),
        Check(
            number=89,
            source=f"{STUB_2_28}:567",
            releases=BEFORE_03,
            subject="dst_rmw_op.kind",
            find=_added,
        ),
        Check(
            number=70,
            source=f"{STUB_2_28}:530",
            releases=BEFORE_03,
            subject="oob_mode.dst_rmw_op",
            find=_added_beyond,
        ),
    ),
    legacy=Legacy("dma_copy", "dst"),
    orders=(
        (Span(until=Release(0, 2)), ("dst", "src", "dst_rmw_op", "oob_mode", "dge_mode", "name")),
        (
            ONLY_02,
            ("dst", "src", "dst_rmw_op", "oob_mode", "dge_mode", "unique_indices", "name"),
        ),
    ),
)

ROWS = (dma_copy,)

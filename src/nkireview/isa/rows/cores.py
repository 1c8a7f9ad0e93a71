"""Rows by which the two cores of a launch meet."""

from __future__ import annotations

from nkireview.isa import dtypes
from nkireview.isa.enums import DmaEngine, Engine, Memory
from nkireview.isa.limit import Call, Check, Limit, SameDtype
from nkireview.isa.release import Release, Span
from nkireview.isa.row import Bits, Cost, Engines, Flow, Operand, Param, Reader, Result, Role, Row
from nkireview.isa.rows.common import (
    ALL,
    BEFORE_03,
    BEFORE_04,
    NAME,
    NOTES,
    SBUF,
    SINCE_03,
    STUB,
    V3_UP,
    partition_limits,
    same_layout,
)

SINCE_02 = Span(since=Release(0, 2))
CORES = (0, 1)
GPSIMD_ELEMENTS = 256  # a partition: 1024 bytes of 32-bit, 512 of 16-bit, 256 of 8-bit types
GPSIMD_LANES = 16


def _two_cores(source: str) -> Limit:
    """Rule 111: both instructions need a launch on two cores."""

    def find(call: Call) -> str | None:
        return None if call.lnc == 2 else f"needs LNC=2, the kernel is launched with LNC={call.lnc}"

    return Check(number=111, source=source, subject="lnc.value", find=find)


def _rank(name: str) -> Limit:
    def find(call: Call) -> str | None:
        rank = call.imm(name)
        return None if type(rank) is int and rank in CORES else f"{name} is {rank}, must be 0 or 1"

    return Check(number=111, source=f"{STUB}:2988-2991", subject=f"{name}.value", find=find)


def _swaps(call: Call) -> bool:
    """True where the DMA of GpSimd moves the data."""
    return call.imm("dma_engine") == DmaEngine.gpsimd_dma.name or bool(call.imm("use_gpsimd_dma"))


def _swap_size(call: Call) -> str | None:
    for name in ("src", "dst"):
        if not (call.has(name) and _swaps(call)):
            continue
        each = dtypes.BY_NAME[call.dtype(name)].bits // 8
        found = call.measure(name, "free") * each
        if found > GPSIMD_ELEMENTS * each:
            return (
                f"{name} has {found} bytes a partition, gpsimd_dma moves at most {GPSIMD_ELEMENTS * each} of "
                f"dtype {call.dtype(name)}"
            )
    return None


def _swap_lanes(call: Call) -> str | None:
    for name in ("src", "dst"):
        if call.has(name) and _swaps(call) and call.measure(name, "partitions") % GPSIMD_LANES:
            found = call.measure(name, "partitions")
            return f"{name} has {found} partitions, gpsimd_dma needs a multiple of {GPSIMD_LANES}"
    return None


def _all_cores(call: Call) -> str | None:
    cores = call.imm("cores")
    found = tuple(cores) if isinstance(cores, tuple | list) else cores
    return None if found == CORES else f"cores is {found}, must be {CORES}"


def _exchange(reader: Reader) -> dict[str, Result]:
    mine, peers = reader.position, reader.peers
    target, source = reader.imm("send_to_rank"), reader.imm("recv_from_rank")
    for name, core in (("send_to_rank", target), ("recv_from_rank", source)):
        if not 0 <= core < len(peers):
            raise ValueError(f"{name} is {core}, the launch has cores 0 to {len(peers) - 1}")
    sends, receives = peers[source].imm("send_to_rank"), peers[target].imm("recv_from_rank")
    if sends != mine:
        raise ValueError(f"core {mine} receives from core {source}, which sends to core {sends}")
    if receives != mine:
        raise ValueError(f"core {mine} sends to core {target}, which receives from core {receives}")
    sent, kept = peers[source].dtype("src"), reader.dtype("dst")
    if sent != kept:
        raise ValueError(
            f"core {source} sends {sent.name}, dst of core {mine} holds {kept.name}: use one dtype"
        )
    return {"dst": Bits(peers[source].raw("src"))}


sendrecv = Row(
    name="sendrecv",
    signature=(
        Param("src"),
        Param("dst"),
        Param("send_to_rank"),
        Param("recv_from_rank"),
        Param("pipe_id"),
        Param("use_gpsimd_dma", False, BEFORE_03),
        Param("dma_engine", DmaEngine.dma, SINCE_03),
        NAME,
    ),
    operands=(Operand("src", Role.read, SBUF), Operand("dst", Role.write, SBUF)),
    engines=Engines(Engine.dma, {}),
    meaning=_exchange,
    flow={"dst": Flow.elementwise},
    cost=Cost(
        subject="src",
        per_element=0.0,
        formula="no cycles: packets of bytes over the DMA engines, see the figures dma.*",
        source=f"{STUB}:2998-3007; nki/guides/architecture/trainium2_arch.rst:251",
    ),
    source=f"{STUB}:2971-3047",
    limits=(
        *partition_limits("src", "dst"),
        *same_layout(f"{STUB}:3012-3014", "dst", "src"),
        SameDtype(number=45, source=f"{STUB}:3012", left="dst", right="src"),
        _two_cores(f"{STUB}:2988-2990"),
        _rank("send_to_rank"),
        _rank("recv_from_rank"),
        Check(number=111, source=f"{STUB}:3001-3007", subject="src.swapped", find=_swap_size),
        Check(
            number=149,
            source=f"{NOTES}:251",
            releases=BEFORE_04,
            subject="src.swapped_lanes",
            find=_swap_lanes,
        ),
    ),
    generations=V3_UP,
    releases=SINCE_02,
    meets="cores",
)

core_barrier = Row(
    name="core_barrier",
    signature=(
        Param("data"),
        Param("cores"),
        Param("engine", Engine.unknown, BEFORE_03),
        Param("engine", Engine.gpsimd, SINCE_03),
        NAME,
    ),
    operands=(Operand("data", Role.read, SBUF | {Memory.shared_hbm}),),
    engines=Engines(
        Engine.gpsimd,
        dict.fromkeys((Engine.gpsimd, Engine.tensor, Engine.vector, Engine.scalar, Engine.sync), ALL),
    ),
    meaning=lambda reader: {},
    flow={},
    cost=Cost(
        subject="",
        per_element=0.0,
        formula="none published: a semaphore is written to the other core and waited for",
        source=f"{STUB}:2608-2628",
    ),
    source=f"{STUB}:2601-2654",
    limits=(
        _two_cores(f"{STUB}:2617-2621"),
        Check(number=111, source=f"{STUB}:2619-2620", subject="cores.value", find=_all_cores),
    ),
    generations=V3_UP,
    releases=SINCE_02,
    meets="cores",
)

ROWS: tuple[Row, ...] = (sendrecv, core_barrier)

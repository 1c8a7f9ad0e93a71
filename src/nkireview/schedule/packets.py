"""What a DMA puts on the engines: descriptors of contiguous bytes, what each costs, and how many engines share them."""

from __future__ import annotations

from dataclasses import dataclass

from nkireview.isa.enums import DgeMode
from nkireview.program.call import CallView, Tile
from nkireview.program.contiguity import contiguous_run
from nkireview.program.placement import REPLACING
from nkireview.schedule.parameters import Figures


@dataclass(frozen=True)
class Packets:
    """The descriptors of one DMA. Each moves `run` bytes in `each` ns on one of `engines` engines.

    `hbm_bytes` counts both ends; `software`: GpSimd writes the descriptors; `static`: the compiler has written them.
    """

    descriptors: int
    run: int
    each: float
    engines: int
    hbm_bytes: int
    software: bool = False
    static: bool = False

    @property
    def transfer(self) -> float:
        """Time in ns for which the engines are held if nothing else moves."""
        return self.descriptors * self.each / self.engines


def packet_ns(run: int, figures: Figures, *, stores: bool = False, software: bool = False) -> float:
    """Time in ns for which a descriptor of `run` bytes holds its engine; `stores`: it writes to HBM."""
    fixed = figures.number("dma.store_packet_ns" if stores else "dma.packet_ns")
    each = fixed + run / figures.number("dma.bytes_per_ns")
    return max(each, figures.number("dma.software_packet_floor_ns")) if software else each


def packets(call: CallView, figures: Figures, static: bool) -> Packets | None:
    """The descriptors of a DMA; None where it moves nothing. static: the compiler writes those that it can.

    A piece is as long as what follows each other in memory at both ends; between two places in HBM it is cut to
    `dma.packet_bytes`. Where an index tile names what moves, or the dtype changes, software makes the descriptors; an
    offset in a register, or one scalar, leaves them to whoever makes those of a plain copy.
    """
    sources, target = _ends(call)
    if target is None:
        return None
    ends = (*sources, target)
    elements = sum(source.access.size for source in sources)
    widest = max(end.bits for end in ends)
    length = max(min(contiguous_run(end) * 8 // end.bits for end in ends), 1)
    if not any(end.on_chip for end in ends):
        length = min(length, max(int(figures.number("dma.packet_bytes")) * 8 // widest, 1))
    descriptors = max(-(-elements // length), 1)
    run = max(length * widest // 8, 1)
    scattered = any(_scattered(end) for end in ends)
    cast = call.has("src") and call.has("dst") and call.dtype("src") != call.dtype("dst")
    written = call.dge is DgeMode.none or (static and call.dge is DgeMode.unknown)
    written = written and not any(end.access.index is not None for end in ends)
    software = not written and (scattered or cast or call.dge is DgeMode.swdge)
    stores = not target.on_chip
    each = packet_ns(run, figures, stores=stores, software=software)
    if stores and length == 1 and figures.target.knows("dma.element_store_ns"):
        each = max(each, figures.number("dma.element_store_ns"))
    return Packets(
        descriptors=descriptors,
        run=run,
        each=each / _efficiency(call, figures),
        engines=_engines(sources[0], target, descriptors, figures),
        hbm_bytes=sum(end.access.size * end.bits // 8 for end in ends if not end.on_chip),
        software=software,
        static=written,
    )


def _efficiency(call: CallView, figures: Figures) -> float:
    """The share of a copy's throughput that is left where a DMA transposes or adds."""
    if call.row.name == "dma_transpose":
        on_chip = call.memory("src").on_chip and call.memory("dst").on_chip
        return figures.number(f"dma.transpose_efficiency_{'sbuf' if on_chip else 'hbm'}")
    adds = call.row.name == "dma_compute" or bool(
        "dst_rmw_op" in call.row.immediates and call.imm("dst_rmw_op")
    )
    return figures.number("dma.accumulate_efficiency") if adds else 1.0


def _ends(call: CallView) -> tuple[tuple[Tile, ...], Tile | None]:
    """What a DMA reads, and what it writes; None where the call has nothing of one of them.

    Of lists all elements are read; else the first operand that is read, the others only steer.
    """
    reads = [o.name for o in call.row.operands if not o.role.writes and call.has(o.name)]
    listed = {name for names in call.row.lists.values() for name in names}
    sources = [name for name in reads if name in listed] or reads[:1]
    written = [o.name for o in call.row.operands if o.role.writes and call.has(o.name)]
    if not (sources and written):
        return (), None
    return tuple(call.tiles[name] for name in sources), call.tiles[written[0]]


def _scattered(tile: Tile) -> bool:
    """True where an index tile names what is touched."""
    index = tile.access.index
    return index is not None and index.kind in REPLACING


def _engines(source: Tile, target: Tile, descriptors: int, figures: Figures) -> int:
    """DMA engines at work: one for each few partitions; HBM to HBM one for each descriptor."""
    most = int(figures.number("dma.engines_per_core"))
    on_chip = [end.access.partitions for end in (source, target) if end.on_chip]
    if not on_chip:
        return max(min(most, descriptors), 1)
    return max(min(most, -(-max(on_chip) // int(figures.number("dma.partitions_per_engine")))), 1)

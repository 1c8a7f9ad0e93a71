"""Where an operand and a buffer may lie: the rules that hold for every instruction."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from nkireview.hardware import Hardware
from nkireview.isa import dtypes
from nkireview.isa.enums import Memory
from nkireview.program.call import Tile
from nkireview.program.footprint import Form, Range, allowed, ranges
from nkireview.program.model import Buffer

_ARCH = "nki/guides/architecture/trainium_inferentia2_arch.rst"
_APS = "nki/deep-dives/nki-aps.rst"
_LANGUAGE = "nki/api/nki/language/__init__.py"
CONTRACT = "the contract of a recorded program"
REPLACING = ("vector", "snake")
"""Kinds of index that replace an axis; the others move the whole view."""


@dataclass(frozen=True)
class Misplaced:
    """A breach of a placement rule.

    `measure` names what is wrong, `text` follows the operand's name. `blocking`: the instruction has no meaning then.
    """

    number: int
    measure: str
    text: str
    source: str
    blocking: bool = False


def misplaced(tile: Tile, hardware: Hardware, table: NDArray[Any] | None = None) -> tuple[Misplaced, ...]:
    """What is wrong with where an access lies; `table` holds its explicit offsets, where it has any."""
    broken = tuple(_malformed(tile, table))
    if broken:
        return broken
    if tile.on_chip:
        return (*_shape(tile, hardware), *_on_chip_bounds(tile, table))
    return tuple(_flat_bounds(tile, table))


def _malformed(tile: Tile, table: NDArray[Any] | None) -> Iterator[Misplaced]:
    access, rank = tile.access, len(tile.access.pattern)
    if any(len(bound.coefficients) != rank for bound in access.bounds):
        yield _broken("bounds", "has a bound of another rank than its access")
    if access.index and access.index.kind in REPLACING and not 0 <= access.index.axis < rank:
        yield _broken("index", f"is indexed along axis {access.index.axis} of {rank}")
    if table is not None and (table.dtype.kind not in "iu" or table.shape != access.shape):
        yield _broken("table", "has a table of offsets of another shape or dtype than its access")
    if tile.on_chip and access.partition is None:
        yield _broken("partition", "is on chip and has no partition axis")
    row = row_bits(tile.buffer)
    if tile.on_chip and row % tile.bits:
        yield _broken(
            "dtype", f"reads rows of {row // 8} bytes as {access.dtype}, which they hold no whole number of"
        )
    if not tile.on_chip and access.partition is not None:
        yield _broken("partition", "is in HBM and has a partition axis")
    if access.size == 0:
        yield _broken("elements", "has no elements")


def _broken(measure: str, text: str) -> Misplaced:
    return Misplaced(0, measure, text, CONTRACT, blocking=True)


def _shape(tile: Tile, hardware: Hardware) -> Iterator[Misplaced]:
    """Rules 1, 3 and 6; rule 2 and the number of partitions of an operand depend on the row."""
    access = tile.access
    if access.table is not None:
        return
    if access.partition != 0:
        yield Misplaced(
            3, "partition", f"has its partition axis at {access.partition}, expected 0", f"{_APS}:192-206"
        )
    stride = access.pattern[access.partition or 0][0]
    if access.partitions > 1 and stride != tile.row:
        text = f"partition stride is {stride}, must be {tile.row}, the elements of a row of {name_of(tile.buffer)}"
        yield Misplaced(3, "partition_stride", text, f"{_ARCH}:704-706; {_APS}:192-206")
    end = tile.start + access.partitions
    if access.partitions <= hardware.partitions < end:
        text = f"partitions {tile.start}..{end} end beyond the {hardware.partitions} of the memory"
        yield Misplaced(1, "start", text, "nki/get-started/about/tiling-overview.rst:96")
    yield from _pattern(tile, hardware)


def _pattern(tile: Tile, hardware: Hardware) -> Iterator[Misplaced]:
    source = f"{_ARCH}:715-719; {_APS}:33-39"
    merged = merge(tile.free_axes)
    most = hardware.integer("limits.access_free_dims_max")
    if len(merged) > most:
        yield Misplaced(
            6, "free_dims", f"needs {len(merged)} free dimensions, at most {most} are possible", source
        )
    largest = hardware.integer("limits.access_count_max")
    wide = [count for _, count in tile.free_axes if count > largest]
    if wide:
        yield Misplaced(6, "count", f"free dimension of {wide[0]} elements exceeds {largest}", source)
    low, high = (hardware.integer(f"limits.access_stride_{end}") for end in ("min", "max"))
    far = [stride for stride, _ in merged if not low <= stride <= high]
    if far:
        yield Misplaced(6, "stride", f"free stride {far[0]} is outside {low}..{high}", source)


def merge(axes: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """The axes (stride, count) without those of one element, neighbours joined where they are one run."""
    found: list[tuple[int, int]] = []
    for stride, count in axes:
        if count == 1:
            continue
        if found and found[-1][0] == stride * count:
            found[-1] = (stride, found[-1][1] * count)
        else:
            found.append((stride, count))
    return tuple(found)


def _steps(tile: Tile) -> list[int]:
    """Strides, 0 along the axis that a device-side index replaces."""
    index = tile.access.index
    replaced = index.axis if index and index.kind in REPLACING else None
    return [0 if axis == replaced else stride for axis, (stride, _) in enumerate(tile.access.pattern)]


def _moved(tile: Tile) -> bool:
    """True where a device-side offset moves the whole view, so that only its extent is known."""
    index = tile.access.index
    return index is not None and index.kind not in REPLACING


def _on_chip_bounds(tile: Tile, table: NDArray[Any] | None) -> Iterator[Misplaced]:
    """Rule 115 on chip: partitions of the buffer, elements of the storage row; rule 90: no device-side partition."""
    access, buffer = tile.access, tile.buffer
    held, name = buffer.shape[0] if buffer.shape else 1, name_of(buffer)
    axis = access.partition or 0
    if table is not None or not tile.row or (access.partitions > 1 and access.pattern[axis][0] % tile.row):
        yield from _flat_bounds(tile, table)
        return
    steps = _steps(tile)
    across = [step // tile.row if at == axis else 0 for at, step in enumerate(steps)]
    along = [0 if at == axis else step for at, step in enumerate(steps)]
    first = tile.first_partition
    found = ranges(access, (Form(first, tuple(across)), Form(access.base - first * tile.row, tuple(along))))
    if found is None:
        return
    (low, high), (begin, end) = found
    index = access.index
    if index is not None and _moved(tile):
        if index.stride and index.stride % tile.row == 0:
            text = "has a device-side offset along its partition dimension, which must be known while tracing"
            yield Misplaced(90, "index.dim", text, f"{_LANGUAGE}:443-447")
        begin, end = 0, end - begin
    if low < 0 or high >= held:
        text = f"partitions {low}..{high + 1} lie outside tile {name} of {_count(held, 'partition')}"
        yield Misplaced(115, "partitions", text, f"{_LANGUAGE}:410", blocking=True)
    if begin < 0 or end >= tile.row:
        text = f"elements {begin}..{end + 1} lie outside a row of tile {name}, which has {_count(tile.row, 'element')}"
        yield Misplaced(115, "free", text, f"{_LANGUAGE}:410", blocking=True)


def _flat_bounds(tile: Tile, table: NDArray[Any] | None) -> Iterator[Misplaced]:
    found = _table_range(tile, table) if table is not None else _flat_range(tile)
    if found and _moved(tile):
        reach = found[1] - found[0] + 1
        if reach > tile.elements:
            text = f"reaches over {reach} elements of {name_of(tile.buffer)}, which has {tile.elements}"
            yield Misplaced(115, "elements", text, f"{_LANGUAGE}:410", blocking=True)
        return
    if found is None or (found[0] >= 0 and found[1] < tile.elements):
        return
    name, wrong = name_of(tile.buffer), found[0] if found[0] < 0 else found[1]
    text = f"reaches element {wrong} of {name}, which has {tile.elements}"
    if table is None:
        text = _dimension_text(tile) or text
    yield Misplaced(115, "elements", text, f"{_LANGUAGE}:410", blocking=True)


def _flat_range(tile: Tile) -> Range | None:
    found = ranges(tile.access, (Form(tile.access.base, tuple(_steps(tile))),))
    return found[0] if found else None


def _table_range(tile: Tile, table: NDArray[Any]) -> Range | None:
    values = table[allowed(tile.access)] if tile.access.bounds else table
    return (int(values.min()), int(values.max())) if values.size else None


def _dimension_text(tile: Tile) -> str | None:
    """The same breach in terms of an index of the buffer, where each axis steps along one dimension."""
    access, buffer = tile.access, tile.buffer
    if access.dtype != buffer.dtype or not buffer.shape or min(buffer.shape) < 1:
        return None
    strides = [math.prod(buffer.shape[dim + 1 :]) for dim in range(len(buffer.shape))]
    begin, rest = [], access.base
    for stride in strides:
        begin.append(rest // stride)
        rest -= begin[-1] * stride
    forms = [[0] * len(access.pattern) for _ in strides]
    for axis, step in enumerate(_steps(tile)):
        dim = next((dim for dim, stride in enumerate(strides) if step and step % stride == 0), None)
        if step and dim is None:
            return None
        if dim is not None:
            forms[dim][axis] = step // strides[dim]
    found = ranges(access, [Form(at, tuple(form)) for at, form in zip(begin, forms, strict=True)])
    for dim, (low, high) in enumerate(found or ()):
        if low < 0 or high >= buffer.shape[dim]:
            wrong = low if low < 0 else high
            shape = " x ".join(map(str, buffer.shape))
            return f"index {wrong} lies outside dimension {dim} of {name_of(buffer)}, whose shape is {shape}"
    return None


def misindexed(tile: Tile, source: Tile) -> Iterator[Misplaced]:
    """Rules 84 and 46 for the (1, 1) tile that holds the device-side offset of an operand."""
    index = tile.access.index
    if index is None or index.kind != "scalar":
        return
    if source.buffer.memory is not Memory.sbuf:
        text = f"takes its offset from {source.buffer.memory.name.upper()}, it must be in SBUF"
        yield Misplaced(84, "index.memory", text, f"{_APS}:74")
    if source.access.size != 1:
        text = f"takes its offset from a tile of {source.access.size} elements, must have one"
        yield Misplaced(84, "index.elements", text, f"{_APS}:74", blocking=True)
    if source.access.dtype not in ("int32", "uint32"):
        text = f"takes its offset from a tile of dtype {source.access.dtype}, expected int32 or uint32"
        yield Misplaced(46, "index.dtype", text, f"{_APS}:363,388")


def unaligned(buffer: Buffer, hardware: Hardware) -> Iterator[Misplaced]:
    """Rules 9, 11, 12 and 14, and addresses outside the memory, for an on-chip buffer."""
    if not buffer.memory.on_chip:
        return
    sbuf = buffer.memory is Memory.sbuf
    room = hardware.sbuf_usable_bytes if sbuf else hardware.psum_bytes
    row = row_bytes(buffer)
    what = "usable" if sbuf else "of PSUM"
    number, figure = (9, "sbuf.usable_bytes_per_partition") if sbuf else (11, "psum.bytes_per_partition")
    source = hardware.figure(figure).source
    if row > room:
        text = f"{row} bytes a partition exceed the {room} {what}"
        yield Misplaced(number, "bytes", text, source, blocking=True)
    if buffer.address is None:
        return
    partition, byte = buffer.address
    align = hardware.figure("sbuf.min_align" if sbuf else "psum.min_align")
    if not sbuf and byte % hardware.psum_bank_bytes:
        text = f"address {byte} is not the start of a bank of {hardware.psum_bank_bytes} bytes"
        yield Misplaced(12, "address", text, "nki/migration/index.rst:1109-1114")
    elif byte % align.value:
        yield Misplaced(14, "address", f"address {byte} is no multiple of {align.value} bytes", align.source)
    if row <= room < byte + row:
        text = f"address {byte} and {row} bytes end beyond the {room} {what}"
        yield Misplaced(number, "end", text, source, blocking=True)
    held = buffer.shape[0] if buffer.shape else 1
    if held <= hardware.partitions < partition + held:
        text = (
            f"partitions {partition}..{partition + held} end beyond the {hardware.partitions} of the memory"
        )
        yield Misplaced(1, "address", text, "nki/get-started/about/tiling-overview.rst:96", blocking=True)


def row_bytes(buffer: Buffer) -> int:
    """Bytes of an on-chip buffer in one partition."""
    return -(-row_bits(buffer) // 8)


def row_bits(buffer: Buffer) -> int:
    """Bits of an on-chip buffer in one partition."""
    return math.prod(buffer.shape[1:]) * dtypes.BY_NAME[buffer.dtype].bits


def name_of(buffer: Buffer) -> str:
    """The name of a buffer, or its number."""
    return buffer.name or f"#{buffer.id}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"

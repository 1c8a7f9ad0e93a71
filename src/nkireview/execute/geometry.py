"""Geometry: where each buffer of a Program lies in what store, for all buffers at once."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.hardware import Hardware
from nkireview.isa import dtypes
from nkireview.isa.dtypes import DataType
from nkireview.isa.enums import Memory as Region
from nkireview.program.interning import Classes, intern, padded
from nkireview.program.program import MEMORIES, Program

Ints = NDArray[np.int64]

ROW_ALIGNMENT = 64


@dataclass(frozen=True)
class Arena:
    """The explicitly addressed buffers of one core's memory: partitions, bytes between them, unit of the masks."""

    rows: int
    row_stride: int
    unit: int


@dataclass(frozen=True, eq=False)
class Geometry:
    """For each buffer: rows and bytes a row, unit of its mask, bytes between rows and of the first in its store.

    arena: the number of the store that it shares, -1 where it has one of its own; a buffer whose address lies
    outside its memory has one. layouts: classes of buffers that are equal in all of this, their memory and dtype;
    forms: classes of accesses that are the same in every buffer of a layout.
    """

    on_chip: NDArray[np.bool_]
    rows: Ints
    row_bytes: Ints
    unit: Ints
    row_stride: Ints
    offset: Ints
    arena: Ints
    arenas: tuple[Arena, ...]
    layouts: Classes
    forms: Classes


def geometry(
    program: Program, kinds: Sequence[DataType], hardware: Hardware, wide: NDArray[np.bool_]
) -> Geometry:
    """The geometry of a Program whose dtypes are `kinds`; wide: which buffers are held unrounded."""
    columns = program.columns
    sizes = np.array([kind.storage.itemsize for kind in kinds], dtype=np.int64)
    on_chip = np.array([region.on_chip for region in MEMORIES])[columns.buffer_memory]
    dims = np.stack(padded(columns.dim_at, columns.dim, 1), axis=-1)
    rows = np.where(on_chip, dims[:, 0], 1)
    row_bytes = np.prod(dims[:, 1:], axis=1) * np.where(on_chip, 1, dims[:, 0]) * sizes[columns.buffer_dtype]
    unit = sizes[columns.buffer_dtype]
    np.minimum.at(unit, columns.access_buffer, sizes[columns.access_dtype])
    row_stride, offset = row_bytes.copy(), np.zeros(columns.buffers, np.int64)
    partition, byte = columns.buffer_partition_address.astype(np.int64), columns.buffer_byte_address
    capacity = {Region.sbuf: hardware.sbuf_bytes, Region.psum: hardware.psum_bytes}
    room = np.array([capacity.get(region, 0) for region in MEMORIES], dtype=np.int64)[columns.buffer_memory]
    addressed = (
        on_chip & (partition >= 0) & (partition + rows <= hardware.partitions) & (byte + row_bytes <= room)
    )
    arena = np.full(columns.buffers, -1, np.int64)
    arenas: list[Arena] = []
    places = columns.buffer_core.astype(np.int64) * len(MEMORIES) + columns.buffer_memory
    for place in np.unique(places[addressed]).tolist():
        members = addressed & (places == place)
        stride = -(-int((byte + row_bytes)[members].max()) // ROW_ALIGNMENT) * ROW_ALIGNMENT
        steps = np.concatenate([unit[members], byte[members]])
        found = Arena(int((partition + rows)[members].max()), stride, int(np.gcd.reduce(steps)))
        arena[members] = len(arenas)
        arenas.append(found)
        row_stride[members], unit[members] = stride, found.unit
        offset[members] = partition[members] * stride + byte[members]
    fields: list[NDArray[Any]] = [columns.buffer_memory, rows, row_bytes, unit, row_stride, offset]
    fields += [columns.buffer_dtype, wide]
    layouts = intern(fields, columns.buffers)
    accesses: list[NDArray[Any]] = [
        layouts.of[columns.access_buffer],
        columns.access_dtype,
        columns.access_base,
        columns.access_partition,
        np.diff(columns.axis_at),
        *padded(columns.axis_at, columns.axis_stride, 0),
        *padded(columns.axis_at, columns.axis_count, 1),
    ]
    forms = intern(accesses, columns.accesses)
    return Geometry(on_chip, rows, row_bytes, unit, row_stride, offset, arena, tuple(arenas), layouts, forms)


def wide_buffers(program: Program, unrounded: Collection[int]) -> NDArray[np.bool_]:
    """Which of these buffers can be held unrounded: floats on chip, read as nothing else, at no given address."""
    columns = program.columns
    found = np.zeros(columns.buffers, np.bool_)
    found[list(unrounded)] = True
    floats = np.array([dtypes.of(name).kind == "float" for name in program.dtypes], dtype=np.bool_)
    found &= floats[columns.buffer_dtype] & (columns.buffer_partition_address < 0)
    found &= np.array([region.on_chip for region in MEMORIES])[columns.buffer_memory]
    otherwise = columns.access_dtype != columns.buffer_dtype[columns.access_buffer]
    found[columns.access_buffer[otherwise]] = False
    return found

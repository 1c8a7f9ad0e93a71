"""Storage places of a Program, and what each operand of each instruction does to which of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.isa import dtypes
from nkireview.isa.row import Operand, Role, Row
from nkireview.program.interning import Ints, by_opcode, by_rank, intern
from nkireview.program.model import Loop
from nkireview.program.placement import row_bytes
from nkireview.program.program import Program
from nkireview.program.registers import named_registers

READS, WRITES, WHOLE, INDEXED = 1, 2, 4, 8
OVERLAPS = 2**20
"""Pairs of overlapping places of one memory, above which its places with an address are taken for one."""


@dataclass(frozen=True)
class Region:
    """The bytes of a buffer with an explicit address: memory and core, partitions and bytes (half open)."""

    home: tuple[str, int | None]
    partitions: tuple[int, int]
    bytes: tuple[int, int]

    def touches(self, other: Region) -> bool:
        """True where the two share a byte."""
        return all(a[0] < b[1] and b[0] < a[1] for a, b in self._sides(other))

    def holds(self, other: Region) -> bool:
        """True where the other lies within this one."""
        return all(a[0] <= b[0] and b[1] <= a[1] for a, b in self._sides(other))

    def _sides(self, other: Region) -> tuple[tuple[tuple[int, int], tuple[int, int]], ...]:
        return (self.partitions, other.partitions), (self.bytes, other.bytes)


@dataclass(frozen=True, eq=False)
class Storage:
    """Storage places of a Program, numbered, and how its operands use them.

    A place is a buffer, the region of buffers with one explicit address and extent, or a register. `of_buffer` is the
    place of each buffer; `touching` names the other places that share bytes with a place, `inside` those of them that
    lie within it. For each operand, in the order of the program's columns: `place` (-1: none) and `use`, a sum of
    READS, WRITES, WHOLE (a write of all of the place, nothing read) and INDEXED: its access is in `indices`, which
    gives what its address depends on, as (place, access id), -1 for a register. `registers`: immediates id -> places
    of the registers it names, which count as read and written; `register_of`: register -> place.
    """

    count: int
    of_buffer: Ints
    touching: Mapping[int, tuple[int, ...]]
    inside: Mapping[int, tuple[int, ...]]
    place: Ints
    use: NDArray[np.int8]
    indices: Mapping[int, tuple[tuple[int, int], ...]]
    registers: Mapping[int, tuple[int, ...]]
    register_of: Mapping[int, int]


def storage(program: Program, rows: Mapping[str, Row]) -> Storage:
    """The storage places of a Program. Operands of unknown rows count as read and written."""
    of_buffer, regions = _places(program)
    touching, inside, merged = _overlaps(regions)
    if merged:
        into = np.arange(len(of_buffer))
        into[list(merged)] = list(merged.values())
        of_buffer = into[of_buffer]
    columns = program.columns
    register_of = _registers(program, int(of_buffer.max()) + 1 if len(of_buffer) else 0)
    indices: dict[int, tuple[tuple[int, int], ...]] = {}
    for access, extra in sorted(program.extras.items()):
        if extra.index is None:
            continue
        source = extra.index.source
        if extra.index.kind == "register":
            indices[access] = ((register_of[source], -1),)
        else:
            tile = int(of_buffer[columns.access_buffer[source]])
            indices[access] = ((tile, source), *indices.get(source, ()))
    operand = columns.operand.astype(np.int64)
    present = operand >= 0
    place = np.full(len(operand), -1, np.int64)
    place[present] = of_buffer[columns.access_buffer[operand[present]]]
    flags = np.where(whole_accesses(program), WHOLE, 0).astype(np.int8)
    flags[list(indices)] |= INDEXED
    use = _roles(program, rows)
    use[~present] = 0
    use[present] |= flags[operand[present]]
    several = np.isin(place, np.array(sorted(set(merged.values())), np.int64))
    use[((use & (READS | WRITES)) != WRITES) | several] &= ~np.int8(WHOLE)
    return Storage(
        count=max([int(of_buffer.max()) if len(of_buffer) else -1, *register_of.values()]) + 1,
        of_buffer=of_buffer,
        touching=touching,
        inside=inside,
        place=place,
        use=use,
        indices=indices,
        registers={
            number: tuple(register_of[register] for register in found)
            for number, row in enumerate(program.immediates)
            if (found := named_registers(tuple(row.values())))
        },
        register_of=register_of,
    )


def loop_registers(loop: Loop) -> tuple[int, ...]:
    """The registers that decide how often a loop runs, its own first."""
    return (loop.register, *(bound[1] for bound in (loop.lower, loop.upper) if isinstance(bound, tuple)))


def role_of(operand: Operand, immediates: Mapping[str, Any]) -> Role:
    """What a call does with an operand; accumulate=False makes an accumulation a plain write."""
    role = operand.role_in(immediates)
    if role is Role.accumulate and immediates.get("accumulate") is False:
        return Role.write
    return role


def whole_accesses(program: Program) -> NDArray[np.bool_]:
    """For each access whether it surely touches every bit of its buffer."""
    columns = program.columns
    bits = np.array([dtypes.BY_NAME[name].bits for name in program.dtypes], np.float64)
    sizes = np.ones(columns.buffers)
    for rank, rows, at in by_rank(columns.dim_at):
        if rank:
            sizes[rows] = columns.dim[at].astype(np.float64).prod(axis=1)
    held = sizes * bits[columns.buffer_dtype]
    found = np.zeros(columns.accesses, bool)
    for rank, rows, at in by_rank(columns.axis_at):
        counts = columns.axis_count[at].astype(np.float64)
        strides = np.where(counts > 1, columns.axis_stride[at], 0).astype(np.float64)
        lowest = columns.axis_stride[at].astype(np.float64) * np.maximum(counts - 1, 0)
        begin = columns.access_base[rows] + np.minimum(lowest, 0).sum(axis=1)
        order = np.argsort(np.abs(strides), axis=1, kind="stable")
        strides, counts = np.take_along_axis(strides, order, 1), np.take_along_axis(counts, order, 1)
        inner = np.cumprod(np.column_stack([np.ones(len(rows)), counts]), axis=1)[:, :rank]
        dense = np.all((np.abs(strides) == inner) | (counts == 1), axis=1)
        touched = counts.prod(axis=1) * bits[columns.access_dtype[rows]]
        found[rows] = dense & (begin == 0) & (touched == held[columns.access_buffer[rows]])
    found[list(program.extras)] = False
    return found


def _places(program: Program) -> tuple[Ints, dict[int, Region]]:
    """The place of each buffer, and the region of places with an explicit address."""
    columns = program.columns
    of_buffer = np.arange(columns.buffers, dtype=np.int64)
    regions: dict[int, Region] = {}
    numbers: dict[Region, int] = {}
    for number in np.flatnonzero(columns.buffer_partition_address >= 0).tolist():
        buffer = program.buffer(number)
        if buffer.address is None or not buffer.memory.on_chip:
            continue
        partition, byte = buffer.address
        held = buffer.shape[0] if buffer.shape else 1
        region = Region(
            (buffer.memory.name, buffer.core),
            (partition, partition + held),
            (byte, byte + row_bytes(buffer)),
        )
        of_buffer[number] = numbers.setdefault(region, number)
        regions[int(of_buffer[number])] = region
    return of_buffer, regions


Links = dict[int, tuple[int, ...]]


def _overlaps(regions: Mapping[int, Region]) -> tuple[Links, Links, dict[int, int]]:
    touching: Links = {}
    inside: Links = {}
    merged: dict[int, int] = {}
    homes: dict[tuple[str, int | None], list[int]] = {}
    for place in sorted(regions, key=lambda place: regions[place].bytes):
        homes.setdefault(regions[place].home, []).append(place)
    for places in homes.values():
        pairs = _pairs(places, regions)
        if pairs is None:
            merged.update(dict.fromkeys(places, min(places)))
            continue
        for place, others in pairs.items():
            touching[place] = tuple(others)
            inside[place] = tuple(other for other in others if regions[place].holds(regions[other]))
    return touching, inside, merged


def _pairs(places: Sequence[int], regions: Mapping[int, Region]) -> dict[int, list[int]] | None:
    """The places that touch each place, which come in order of their first byte; None where there are too many."""
    found: dict[int, list[int]] = {}
    live: list[int] = []
    total = 0
    for place in places:
        region = regions[place]
        live = [other for other in live if regions[other].bytes[1] > region.bytes[0]]
        total += len(live)
        if total > OVERLAPS:
            return None
        for other in live:
            if region.touches(regions[other]):
                found.setdefault(place, []).append(other)
                found.setdefault(other, []).append(place)
        live.append(place)
    return found


def _registers(program: Program, first: int) -> dict[int, int]:
    """Every register that the program mentions, and its place."""
    mentioned = {register for row in program.immediates for register in named_registers(tuple(row.values()))}
    mentioned.update(register for loop in program.loops for register in loop_registers(loop))
    for extra in program.extras.values():
        if extra.index is not None and extra.index.kind == "register":
            mentioned.add(extra.index.source)
    return {register: first + at for at, register in enumerate(sorted(mentioned))}


def _roles(program: Program, rows: Mapping[str, Row]) -> NDArray[np.int8]:
    """READS and WRITES of each operand."""
    columns = program.columns
    use = np.full(len(columns.operand), READS | WRITES, np.int8)
    for code, instructions, _ in by_opcode(program):
        opcode = program.opcodes[code]
        row = rows.get(opcode.name)
        if row is None:
            continue
        operands = {operand.name: operand for operand in row.operands}
        immediates = columns.immediates[instructions]
        classes = intern([immediates], len(instructions))
        distinct = [program.immediates[immediates[first]] for first in classes.first]
        for slot, name in enumerate(opcode.operands):
            operand = operands.get(name)
            if operand is None:
                continue
            by_class = np.array([_use(role_of(operand, each)) for each in distinct], np.int8)
            use[columns.operand_at[instructions] + slot] = by_class[classes.of]
    return use


def _use(role: Role) -> int:
    return (READS if role.reads else 0) | (WRITES if role.writes else 0)

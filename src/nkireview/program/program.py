"""Program: what a kernel is once its Python has run, and the only thing later rooms know of it.

Instructions are columns; buffers, accesses and instructions are handed out as records on demand. Order and data
dependencies are derived from streams and accesses, never stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.isa.enums import DgeMode, Engine, Memory
from nkireview.program.access import Access, Bound, Index
from nkireview.program.columns import Columns, check
from nkireview.program.errors import ProgramError
from nkireview.program.model import Buffer, Event, Header, Instruction, Loop, Output, Place, Stream
from nkireview.program.tree import Node, TensorLeaf, leaves

MEMORIES = tuple(Memory)
ENGINES = {engine.value: engine for engine in Engine}
DGES = {mode.value: mode for mode in DgeMode}


@dataclass(frozen=True, eq=False)
class Opcode:
    """A row of the instruction table as this Program uses it: its name and its operand names, in order."""

    name: str
    operands: tuple[str, ...]


@dataclass(frozen=True)
class AccessExtra:
    """The rare parts of an access: affine bounds, a device-side index, an explicit table."""

    bounds: tuple[Bound, ...] = ()
    index: Index | None = None
    table: str | None = None


@dataclass(frozen=True, eq=False)
class Program:
    """A traced kernel: plain data, validated on construction; ProgramError names what is malformed."""

    header: Header
    parameters: Node
    outputs: tuple[Output, ...]
    streams: tuple[Stream, ...]
    loops: tuple[Loop, ...]
    events: tuple[Event, ...]
    places: tuple[Place, ...]
    opcodes: tuple[Opcode, ...]
    immediates: tuple[Mapping[str, Any], ...]
    strings: tuple[str, ...]
    dtypes: tuple[str, ...]
    columns: Columns
    extras: Mapping[int, AccessExtra] = field(default_factory=dict)
    buffer_constants: Mapping[int, str] = field(default_factory=dict)
    constants: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        sizes = {
            "opcodes": len(self.opcodes),
            "places": len(self.places),
            "immediates": len(self.immediates),
            "strings": len(self.strings),
            "dtypes": len(self.dtypes),
            "memories": len(MEMORIES),
            "cores": max(self.header.lnc, 1),
            "engines": len(ENGINES),
            "dges": len(DGES),
        }
        check(self.columns, sizes)
        self._check_operands()
        self._check_streams()
        self._check_references()

    def __len__(self) -> int:
        return self.columns.instructions

    def __iter__(self) -> Iterator[Instruction]:
        return (self.instruction(index) for index in range(len(self)))

    def instruction(self, index: int) -> Instruction:
        """The instruction at a position of the columns."""
        columns = self.columns
        opcode = self.opcodes[columns.opcode[index]]
        ids = columns.operand[columns.operand_at[index] : columns.operand_at[index + 1]].tolist()
        operands = {
            name: None if access < 0 else self.access(access)
            for name, access in zip(opcode.operands, ids, strict=True)
        }
        depends = columns.dependency[columns.dependency_at[index] : columns.dependency_at[index + 1]]
        name = int(columns.name[index])
        return Instruction(
            index=index,
            opcode=opcode.name,
            operands=operands,
            immediates=self.immediates[columns.immediates[index]],
            engine=ENGINES[int(columns.engine[index])],
            dge=DGES[int(columns.dge[index])],
            name="" if name < 0 else self.strings[name],
            depends_on=tuple(depends.tolist()),
            place=int(columns.place[index]),
        )

    @cached_property
    def _access_cache(self) -> dict[int, Access]:
        return {}

    def access(self, index: int) -> Access:
        """The interned access of that id."""
        found = self._access_cache.get(index)
        if found is None:
            columns = self.columns
            span = slice(columns.axis_at[index], columns.axis_at[index + 1])
            strides, counts = columns.axis_stride[span].tolist(), columns.axis_count[span].tolist()
            partition = int(columns.access_partition[index])
            extra = self.extras.get(index, _PLAIN)
            found = Access(
                buffer=int(columns.access_buffer[index]),
                dtype=self.dtypes[columns.access_dtype[index]],
                base=int(columns.access_base[index]),
                pattern=tuple(zip(strides, counts, strict=True)),
                partition=None if partition < 0 else partition,
                bounds=extra.bounds,
                index=extra.index,
                table=extra.table,
            )
            self._access_cache[index] = found
        return found

    @cached_property
    def _buffer_cache(self) -> dict[int, Buffer]:
        return {}

    def buffer(self, index: int) -> Buffer:
        """The buffer of that id."""
        found = self._buffer_cache.get(index)
        if found is None:
            columns = self.columns
            shape = columns.dim[columns.dim_at[index] : columns.dim_at[index + 1]].tolist()
            core, name = int(columns.buffer_core[index]), int(columns.buffer_name[index])
            partition = int(columns.buffer_partition_address[index])
            byte = int(columns.buffer_byte_address[index])
            found = Buffer(
                id=index,
                memory=MEMORIES[columns.buffer_memory[index]],
                shape=tuple(shape),
                dtype=self.dtypes[columns.buffer_dtype[index]],
                address=None if partition < 0 else (partition, byte),
                core=None if core < 0 else core,
                name="" if name < 0 else self.strings[name],
                place=int(columns.buffer_place[index]),
                constant=self.buffer_constants.get(index),
            )
            self._buffer_cache[index] = found
        return found

    @cached_property
    def parameter_buffers(self) -> tuple[tuple[str, int], ...]:
        """Path and buffer of every tensor parameter, in order."""
        return tuple(
            (path, leaf.buffer) for path, leaf in leaves(self.parameters) if isinstance(leaf, TensorLeaf)
        )

    def place_text(self, place: int) -> str:
        """``file:line`` of the innermost frame, or an empty string."""
        if place < 0 or not self.places[place]:
            return ""
        frame = self.places[place][0]
        path = self.header.sources[frame.file].path if frame.file < len(self.header.sources) else "?"
        return f"{path.rsplit('/', 1)[-1]}:{frame.line}"

    def _check_operands(self) -> None:
        widths = np.array([len(opcode.operands) for opcode in self.opcodes], dtype=np.int64)
        found = np.diff(self.columns.operand_at)
        if len(found) and not np.array_equal(found, widths[self.columns.opcode]):
            raise ProgramError("an instruction has another number of operands than its row")

    def _check_streams(self) -> None:
        at = 0
        for stream in self.streams:
            if stream.start != at or stream.stop < stream.start:
                raise ProgramError(f"stream of core {stream.core} starts at {stream.start}, expected {at}")
            if not 0 <= stream.core < max(self.header.lnc, 1) or stream.instance < 0:
                raise ProgramError(f"stream names core {stream.core} of {self.header.lnc}")
            at = stream.stop
        if at != len(self):
            raise ProgramError(f"streams hold {at} instructions, the columns {len(self)}")
        for number, loop in enumerate(self.loops):
            home = (
                (self.streams[0].start, len(self))
                if loop.parent < 0
                else (self.loops[loop.parent].start, self.loops[loop.parent].stop)
                if loop.parent < number
                else (1, 0)
            )
            if not home[0] <= loop.start <= loop.stop <= home[1]:
                raise ProgramError(f"loop {number} [{loop.start}, {loop.stop}) is not inside its parent")

    def _check_references(self) -> None:
        buffers, accesses = self.columns.buffers, self.columns.accesses
        for path, buffer in self.parameter_buffers:
            if not 0 <= buffer < buffers:
                raise ProgramError(f"parameter {path} names buffer {buffer} of {buffers}")
        for output in self.outputs:
            if not 0 <= output.access < accesses:
                raise ProgramError(f"an output names access {output.access} of {accesses}")
        for event in self.events:
            if not -1 <= event.place < len(self.places):
                raise ProgramError(f"an event names place {event.place} of {len(self.places)}")
        for number, extra in self.extras.items():
            if not 0 <= number < accesses:
                raise ProgramError(f"an access extra names access {number} of {accesses}")
            index = extra.index
            if index and index.kind != "register" and not 0 <= index.source < number:
                raise ProgramError(
                    f"access {number} is indexed by access {index.source}, which is no earlier one"
                )
            if extra.table is not None and extra.table not in self.constants:
                raise ProgramError(f"access {number} uses the unknown table {extra.table}")
        for buffer, digest in self.buffer_constants.items():
            if not 0 <= buffer < buffers or digest not in self.constants:
                raise ProgramError(f"buffer {buffer} uses the unknown constant {digest}")
        for place in self.places:
            for frame in place:
                if not 0 <= frame.file < len(self.header.sources):
                    raise ProgramError(f"a place names source {frame.file} of {len(self.header.sources)}")


_PLAIN = AccessExtra()

"""ProgramBuilder: appends what a trace sees, interning accesses, immediates, places and strings."""

from __future__ import annotations

import copy
from array import array
from collections.abc import Hashable, Iterable, Mapping
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkireview.isa.enums import DgeMode, Engine
from nkireview.program.access import Access
from nkireview.program.columns import Columns
from nkireview.program.errors import ProgramError
from nkireview.program.model import (
    DEFAULT_LIMITS,
    Buffer,
    Event,
    Header,
    Limits,
    Loop,
    Output,
    Place,
    Stream,
)
from nkireview.program.program import MEMORIES, AccessExtra, Opcode, Program
from nkireview.program.tree import Group, Node

NO_PARAMETERS = Group("tuple", (), ())


class ProgramBuilder:
    """Collects one Program; `finish` validates it.

    Streams are opened one after the other with `stream`; what is appended belongs to the open one.
    """

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        self.limits = limits
        self._opcodes: dict[str, int] = {}
        self._opcode_rows: list[Opcode] = []
        self._strings: dict[str, int] = {}
        self._dtypes: dict[str, int] = {}
        self._places: dict[Place, int] = {}
        self._accesses: dict[tuple[Any, ...], int] = {}
        self._special: dict[Access, int] = {}
        self._immediates: dict[Hashable, int] = {}
        self._immediate_rows: list[Mapping[str, Any]] = []
        self._extras: dict[int, AccessExtra] = {}
        self._constants: dict[str, NDArray[Any]] = {}
        self._buffer_constants: dict[int, str] = {}
        self._streams: list[Stream] = []
        self._loops: list[Loop | None] = []
        self._events: dict[Event, None] = {}
        self.buffers: list[Buffer] = []
        self._calls: dict[tuple[int, int, int, int, int], int] = {}
        self._widths: list[int] = []
        self._edges: dict[tuple[int, int], None] = {}
        self._call_keys: list[tuple[int, int, int, int, int]] = []
        self._call, self._place_of, self._operand = array("i"), array("i"), array("i")
        self._int32 = {"access_buffer": array("i")}
        self._int8 = {name: array("b") for name in ("access_dtype", "access_partition")}
        self._int64 = {name: array("q") for name in ("axis_at", "axis_stride", "axis_count", "access_base")}
        self._int64["axis_at"].append(0)

    def __len__(self) -> int:
        return len(self._call)

    def place(self, frames: Place) -> int:
        """Intern a chain of frames."""
        found = self._places.get(frames)
        if found is None:
            self._limit("places", len(self._places))
            found = self._places[frames] = len(self._places)
        return found

    def buffer(self, **fields: Any) -> Buffer:
        """Declare a buffer; see `Buffer` for the fields (all but `id`)."""
        self._limit("buffers", len(self.buffers))
        buffer = Buffer(id=len(self.buffers), **fields)
        self.buffers.append(buffer)
        if buffer.constant is not None:
            self._buffer_constants[buffer.id] = buffer.constant
        return buffer

    def constant(self, values: NDArray[Any]) -> str:
        """Store an array beside the stream; the digest of its bytes, dtype and shape names it."""
        values = np.ascontiguousarray(values)
        digest = sha256(f"{values.dtype}{values.shape}".encode() + values.tobytes()).hexdigest()
        held = sum(item.nbytes for item in self._constants.values())
        if digest not in self._constants and held + values.nbytes > self.limits.constant_bytes:
            raise ProgramError(f"constants exceed {self.limits.constant_bytes} bytes")
        self._constants[digest] = values
        return digest

    def access(self, access: Access) -> int:
        """Intern an access."""
        if not (access.bounds or access.index or access.table):
            strides, counts = zip(*access.pattern, strict=True) if access.pattern else ((), ())
            return self.affine(access.buffer, access.dtype, access.base, strides, counts, access.partition)
        found = self._special.get(access)
        if found is None:
            strides, counts = zip(*access.pattern, strict=True) if access.pattern else ((), ())
            found = self._special[access] = self._add_access(
                access.buffer, access.dtype, access.base, strides, counts, access.partition
            )
            self._extras[found] = AccessExtra(access.bounds, access.index, access.table)
        return found

    def affine(
        self,
        buffer: int,
        dtype: str,
        base: int,
        strides: tuple[int, ...],
        counts: tuple[int, ...],
        partition: int | None,
    ) -> int:
        """Intern an access without bounds, index or table; the fields are those of `Access`."""
        key = (buffer, dtype, base, strides, counts, partition)
        found = self._accesses.get(key)
        if found is None:
            found = self._accesses[key] = self._add_access(*key)
        return found

    def _add_access(
        self,
        buffer: int,
        dtype: str,
        base: int,
        strides: tuple[int, ...],
        counts: tuple[int, ...],
        partition: int | None,
    ) -> int:
        int64, number = self._int64, len(self._int32["access_buffer"])
        self._limit("accesses", number)
        self._int32["access_buffer"].append(buffer)
        self._int8["access_dtype"].append(self._intern(self._dtypes, dtype))
        self._int8["access_partition"].append(-1 if partition is None else partition)
        int64["access_base"].append(base)
        int64["axis_stride"].extend(strides)
        int64["axis_count"].extend(counts)
        int64["axis_at"].append(len(int64["axis_stride"]))
        return number

    def append(
        self,
        opcode: str,
        operand_names: tuple[str, ...],
        operands: Iterable[int],
        immediates: Mapping[str, Any] | int,
        *,
        place: int = -1,
        engine: Engine = Engine.unknown,
        dge: DgeMode = DgeMode.unknown,
        name: str = "",
    ) -> int:
        """Append an instruction to the open stream; the index of the instruction.

        immediates: the values by name, or the number that `intern_immediates` gave for them.
        """
        call = self.call(opcode, operand_names, immediates, engine=engine, dge=dge, name=name)
        return self.record(call, operands, place)

    def call(
        self,
        opcode: str,
        operand_names: tuple[str, ...],
        immediates: Mapping[str, Any] | int,
        *,
        engine: Engine = Engine.unknown,
        dge: DgeMode = DgeMode.unknown,
        name: str = "",
    ) -> int:
        """Intern what an instruction is but for its accesses and place; its number, for `record`."""
        code = self._opcodes.get(opcode)
        if code is None:
            code = self._opcodes[opcode] = len(self._opcode_rows)
            self._opcode_rows.append(Opcode(opcode, operand_names))
            self._widths.append(len(operand_names))
        row = immediates if isinstance(immediates, int) else self.intern_immediates(immediates)
        label = self._intern(self._strings, name) if name else -1
        return self._interned((code, row, engine.value, dge.value, label))

    def _interned(self, key: Any) -> int:
        found = self._calls.get(key)
        if found is None:
            found = self._calls[key] = len(self._calls)
            self._call_keys.append(key)
        return found

    def record(self, call: int, operands: Iterable[int], place: int) -> int:
        """Append an instruction: an interned call, the accesses of its operands (-1: none) and its place."""
        index = len(self._call)
        if index >= self.limits.instructions:
            self._limit("instructions", index)
        self._call.append(call)
        self._place_of.append(place)
        self._operand.extend(operands)
        return index

    def operand(self, index: int, name: str) -> int:
        """The access of an operand of a recorded instruction, -1: none."""
        return self._operand[self._slot(index, name)]

    def opcode(self, index: int) -> str:
        """The name of the row of a recorded instruction."""
        return self._opcode_rows[self._call_keys[self._call[index]][0]].name

    def retarget(self, index: int, name: str, access: int) -> None:
        """Give an operand of a recorded instruction another access."""
        self._operand[self._slot(index, name)] = access

    def change(self, index: int, **immediates: Any) -> None:
        """Give a recorded instruction other immediates of these names."""
        code, row, *others = self._call_keys[self._call[index]]
        made = self.intern_immediates({**self._immediate_rows[row], **immediates})
        self._call[index] = self._interned((code, made, *others))

    def take_back(self, index: int, name: str) -> None:
        """Forget the access of an operand, and its buffer, where they are the last made; `retarget` it next."""
        slot, int32, int64 = self._slot(index, name), self._int32, self._int64
        access, last = self._operand[slot], len(int32["access_buffer"]) - 1
        if access != last or int32["access_buffer"][last] != len(self.buffers) - 1 or last in self._extras:
            return
        key = next(reversed(self._accesses))
        if self._accesses[key] != last:
            return
        del self._accesses[key]
        for table in (int32, self._int8):
            for column in table.values():
                column.pop()
        int64["access_base"].pop()
        int64["axis_at"].pop()
        for column_name in ("axis_stride", "axis_count"):
            del int64[column_name][int64["axis_at"][-1] :]
        self._buffer_constants.pop(self.buffers.pop().id, None)
        self._operand[slot] = -1

    def _slot(self, index: int, name: str) -> int:
        """Where the access of an operand of a recorded instruction stands."""
        at = len(self._operand)
        operands: tuple[str, ...] = ()
        for number in range(len(self._call) - 1, index - 1, -1):
            operands = self._opcode_rows[self._call_keys[self._call[number]][0]].operands
            at -= len(operands)
        return at + operands.index(name)

    def depend(self, consumer: int, producers: Iterable[int]) -> None:
        """Add explicit dependencies of an instruction on earlier ones."""
        self._edges.update(dict.fromkeys((consumer, producer) for producer in producers))

    def named(self, first: int = 0) -> dict[str, list[int]]:
        """The instructions from `first` on that have a name, by name."""
        labels = [call[4] for call in self._calls]
        texts = list(self._strings)
        found: dict[str, list[int]] = {}
        for index in range(first, len(self._call)):
            label = labels[self._call[index]]
            if label >= 0:
                found.setdefault(texts[label], []).append(index)
        return found

    def written(self, writes: Mapping[str, tuple[bool, ...]]) -> set[int]:
        """Buffers that some instruction writes; `writes` says which operands of an opcode are written."""
        return set(self.first_writes(writes))

    def first_writes(self, writes: Mapping[str, tuple[bool, ...]]) -> dict[int, int]:
        """The place of the first instruction that writes each written buffer; `writes` as for `written`."""
        codes = [call[0] for call in self._calls]
        flags = [writes[row.name] for row in self._opcode_rows]
        buffers, operand = self._int32["access_buffer"], self._operand
        found: dict[int, int] = {}
        at = 0
        for call, place in zip(self._call, self._place_of, strict=True):
            for flag in flags[codes[call]]:
                if flag and operand[at] >= 0:
                    found.setdefault(buffers[operand[at]], place)
                at += 1
        return found

    def event(self, kind: str, place: int, detail: str) -> None:
        """Record an event once for each place and detail."""
        self._limit("events", len(self._events))
        self._events.setdefault(Event(kind, place, detail))

    @contextmanager
    def stream(self, core: int = 0, instance: int = 0) -> Any:
        """Open the stream of a (core, instance)."""
        start = len(self)
        yield
        self._streams.append(Stream(core, instance, start, len(self)))

    def open_loop(self) -> tuple[int, int]:
        """Reserve a loop that starts at the next instruction; (loop number, start) for `close_loop`."""
        self._loops.append(None)
        return len(self._loops) - 1, len(self)

    def close_loop(self, number: int, loop: Loop) -> None:
        """Fill in a reserved loop."""
        self._loops[number] = loop

    def so_far(self, core: int, loops: Mapping[int, Loop]) -> ProgramBuilder:
        """A copy to be finished early: the open stream of `core` ends here, `loops` fill in what is still open."""
        made = copy.copy(self)
        begun = self._streams[-1].stop if self._streams else 0
        made._streams = [*self._streams, Stream(core, 0, begun, len(self))]
        made._loops = [loops.get(number, loop) for number, loop in enumerate(self._loops)]
        return made

    def finish(
        self, header: Header, parameters: Node = NO_PARAMETERS, outputs: tuple[Output, ...] = ()
    ) -> Program:
        """The validated Program."""
        loops = tuple(loop for loop in self._loops if loop is not None)
        if len(loops) != len(self._loops):
            raise ProgramError("a device-side loop was left open")
        vectors = self._instruction_columns()
        for table, dtype in ((self._int32, np.int32), (self._int64, np.int64), (self._int8, np.int8)):
            vectors.update({name: np.array(values, dtype=dtype) for name, values in table.items()})
        vectors.update(self._buffer_columns())
        return Program(
            header=header,
            parameters=parameters,
            outputs=outputs,
            streams=tuple(self._streams),
            loops=loops,
            events=tuple(self._events),
            places=tuple(self._places),
            opcodes=tuple(self._opcode_rows),
            immediates=tuple(self._immediate_rows),
            strings=tuple(self._strings),
            dtypes=tuple(self._dtypes),
            columns=Columns(**vectors),
            extras=self._extras,
            buffer_constants=self._buffer_constants,
            constants=self._constants,
        )

    def _instruction_columns(self) -> dict[str, NDArray[Any]]:
        calls = np.array(list(self._calls), np.int64).reshape(-1, 5)
        opcode, immediates, engine, dge, name = calls[np.array(self._call, np.int64)].T
        widths = np.array(self._widths, np.int64)
        edges = np.array(list(self._edges), np.int64).reshape(-1, 2)
        edges = edges[np.argsort(edges[:, 0], kind="stable")]
        if len(edges) and not 0 <= edges[0, 0] <= edges[-1, 0] < len(self):
            raise ProgramError(f"a dependency names instruction {edges[-1, 0]} of {len(self)}")
        depends = np.bincount(edges[:, 0], minlength=len(self))
        return {
            "opcode": opcode.astype(np.int32),
            "immediates": immediates.astype(np.int32),
            "engine": engine.astype(np.int8),
            "dge": dge.astype(np.int8),
            "name": name.astype(np.int32),
            "place": np.array(self._place_of, np.int32),
            "operand": np.array(self._operand, np.int32),
            "operand_at": np.concatenate([np.zeros(1, np.int64), np.cumsum(widths[opcode], dtype=np.int64)]),
            "dependency": edges[:, 1].astype(np.int32),
            "dependency_at": np.concatenate([np.zeros(1, np.int64), np.cumsum(depends, dtype=np.int64)]),
        }

    def _buffer_columns(self) -> dict[str, NDArray[Any]]:
        buffers = self.buffers
        ranks = np.array([len(buffer.shape) for buffer in buffers], dtype=np.int64)
        return {
            "buffer_memory": np.array([MEMORIES.index(b.memory) for b in buffers], dtype=np.int8),
            "buffer_dtype": np.array([self._intern(self._dtypes, b.dtype) for b in buffers], dtype=np.int8),
            "buffer_core": np.array([-1 if b.core is None else b.core for b in buffers], dtype=np.int8),
            "buffer_name": np.array(
                [self._intern(self._strings, b.name) if b.name else -1 for b in buffers], dtype=np.int32
            ),
            "buffer_place": np.array([b.place for b in buffers], dtype=np.int32),
            "buffer_partition_address": np.array(
                [-1 if b.address is None else b.address[0] for b in buffers], dtype=np.int32
            ),
            "buffer_byte_address": np.array(
                [-1 if b.address is None else b.address[1] for b in buffers], dtype=np.int64
            ),
            "dim_at": np.concatenate([np.zeros(1, np.int64), np.cumsum(ranks, dtype=np.int64)]),
            "dim": np.array([size for b in buffers for size in b.shape], dtype=np.int64),
        }

    def intern_immediates(self, immediates: Mapping[str, Any]) -> int:
        """Intern the immediates of an instruction."""
        # True, 1 and 1.0 are equal keys but different immediates
        key = tuple((name, _typed(value)) for name, value in immediates.items())
        found = self._immediates.get(key)
        if found is None:
            found = self._immediates[key] = len(self._immediate_rows)
            self._immediate_rows.append(dict(immediates))
        return found

    @staticmethod
    def _intern(table: dict[str, int], text: str) -> int:
        return table.setdefault(text, len(table))

    def _limit(self, what: str, count: int) -> None:
        allowed = getattr(self.limits, what)
        if count >= allowed:
            raise ProgramError(f"the program has more than {allowed} {what}")


def _typed(value: Any) -> Hashable:
    if isinstance(value, list | tuple):
        return tuple(_typed(item) for item in value)
    return type(value).__name__, repr(value) if isinstance(value, float) else value

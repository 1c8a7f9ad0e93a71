"""A timeline as a Perfetto trace, with the tracks and arguments of the Neuron profiler's own; every slice simulated.

The file is a ``perfetto.protos.Trace`` in protobuf's wire format. Fields are numbered as in google/perfetto,
protos/perfetto/trace: trace.proto, trace_packet.proto, interned_data/interned_data.proto, and in track_event/
track_descriptor.proto, process_descriptor.proto, thread_descriptor.proto, track_event.proto, debug_annotation.proto.
"""

from __future__ import annotations

import os
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from nkireview.drawing import stacked_by
from nkireview.report import profiler_names as names
from nkireview.slices import SliceTable

PROCESS = "Instructions (simulated)"
"""Beside the profiler's own process, which is called ``Instructions``."""
BUFFERED = 1 << 20
VARINT, FIXED64, BYTES = 0, 1, 2
"""Wire types."""

TRACE_PACKET = 1
TIMESTAMP, SEQUENCE, TRACK_EVENT, INTERNED, FLAGS, DESCRIPTOR = 8, 10, 11, 12, 13, 60
"""Of TracePacket."""
CLEARED, NEEDED = 1, 2
"""Of TracePacket.SequenceFlags: incremental state begins, incremental state is needed."""
EVENT_NAMES, ANNOTATION_NAMES, ANNOTATION_STRINGS = 2, 3, 29
"""Of InternedData; each entry has an iid (1) and a text (2)."""
UUID, NAME, PROCESS_OF, THREAD_OF = 1, 2, 3, 4
"""Of TrackDescriptor."""
PID, PROCESS_NAME = 1, 6
"""Of ProcessDescriptor."""
TID, SORT, THREAD_NAME = 2, 3, 5
"""Of ThreadDescriptor, which has a pid (1) as well."""
ANNOTATION, TYPE, NAME_IID, TRACK_UUID, FLOWS, ENDING_FLOWS = 4, 9, 10, 11, 47, 48
"""Of TrackEvent."""
BEGIN, END = 1, 2
"""Of TrackEvent.Type."""
BOOL, UNSIGNED, STRING_IID = 2, 3, 17
"""Of DebugAnnotation, which has a name_iid (1)."""

TRANSFERS = "dma"
"""The lane of transfers; all others are queues of engines."""
UNKNOWN_QUEUE = "DMA Queue"
UNNAMED = "UNKNOWN"
ENGINE_TRACKS = (f"{names.MATRIX} Engine", *(f"{name} Engine" for name in names.ENGINES.values()))
FIRST_PID = 1_000_000


def varint(value: int) -> bytes:
    """A number of at least 0 in base 128, the low digits first."""
    if value < 0x80:
        return bytes((value,))
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def number(field: int, value: int) -> bytes:
    """A field that holds a number."""
    return varint(field << 3 | VARINT) + varint(value)


def fixed(field: int, value: int) -> bytes:
    """A field that holds a number in eight bytes."""
    return varint(field << 3 | FIXED64) + value.to_bytes(8, "little")


def message(field: int, body: bytes) -> bytes:
    """A field that holds a message, or bytes."""
    return varint(field << 3 | BYTES) + varint(len(body)) + body


def text(field: int, value: str) -> bytes:
    """A field that holds a text; what UTF-8 cannot write is replaced."""
    return message(field, value.encode("utf-8", "replace"))


PACKET = varint(TRACE_PACKET << 3 | BYTES)
TIMESTAMPED = varint(TIMESTAMP << 3 | VARINT)


@dataclass(frozen=True, eq=False)
class Tracks:
    """The track of each slice, and for each track its core and name, in the order in which they are shown."""

    track: NDArray[np.int64]
    core: tuple[int, ...]
    name: tuple[str, ...]


def write_trace(table: SliceTable, stream: BinaryIO, name: str) -> None:
    """Write a timeline as a trace; `name` is what it is of, and stands in the name of its process.

    Times are whole ns from the first work. The traces of several timelines can be joined one after the other.
    """
    parts: list[bytes] = []
    size = 0
    for packet in _Trace(table, name).packets():
        parts += (PACKET, varint(len(packet)), packet)
        size += len(packet)
        if size > BUFFERED:
            stream.write(b"".join(parts))
            parts, size = [], 0
    stream.write(b"".join(parts))


def save_trace(table: SliceTable, path: Path, name: str) -> None:
    """Write a timeline into a file, which appears when it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            write_trace(table, stream, name)
        Path(draft).replace(path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise


def tracks_of(table: SliceTable) -> Tracks:
    """A track for each engine and queue, and more rows of it where its slices overlap."""
    issuers = _issuers(table)
    columns = np.column_stack([table.lane, table.name, issuers]).astype(np.int64)
    kinds, inverse = np.unique(columns, axis=0, return_inverse=True)
    titles = [
        (table.lanes[lane].core, _title(table, lane, named, issuer)) for lane, named, issuer in kinds.tolist()
    ]
    ordered = sorted(set(titles), key=lambda title: (title[0], _rank(title[1]), title[1]))
    group = np.array([ordered.index(title) for title in titles], np.int64)[inverse.ravel()]
    rows = stacked_by(group, np.rint(table.start), np.rint(table.stop))
    width = int(rows.max(initial=0)) + 1
    used, track = np.unique(group * width + rows, return_inverse=True)
    return Tracks(
        track.ravel(),
        tuple(ordered[at // width][0] for at in used.tolist()),
        tuple(f"{ordered[at // width][1]} - Row {at % width}" for at in used.tolist()),
    )


def _issuers(table: SliceTable) -> NDArray[np.int64]:
    """For each transfer the lane that issued it, -1 where none is known and for all other slices."""
    moves = np.array([lane.name == TRANSFERS for lane in table.lanes], bool)[table.lane]
    lane_of = np.full(int(table.instruction.max(initial=-1)) + 2, -1, np.int64)
    issues = ~moves & (table.instruction >= 0)
    lane_of[table.instruction[issues]] = table.lane[issues]
    found = np.where(moves, lane_of[table.instruction], -1)
    # a later trip of a device loop belongs to no instruction, and may name its issue as what it waited for
    unknown = moves & (found < 0) & (table.blocker >= 0)
    unknown &= ~moves[np.where(unknown, table.blocker, 0)]
    return np.where(unknown, table.lane[np.where(unknown, table.blocker, 0)], found)


def _title(table: SliceTable, lane: int, named: int, issuer: int) -> str:
    name = table.lanes[lane].name
    if name != TRANSFERS:
        return f"{names.label(names.opcode(_text(table.names, named), name), name)} Engine"
    return names.queue(table.lanes[issuer].name)[0] if issuer >= 0 else UNKNOWN_QUEUE


def _rank(title: str) -> int:
    return ENGINE_TRACKS.index(title) if title in ENGINE_TRACKS else len(ENGINE_TRACKS)


def _text(texts: tuple[str, ...], at: int) -> str:
    return texts[at] if at >= 0 else ""


class _Texts:
    """Texts that are written once: new ones stand in the packet that first refers to them."""

    def __init__(self, field: int) -> None:
        self.new: list[bytes] = []
        self._field = field
        self._iids: dict[str, int] = {}

    def iid(self, value: str) -> int:
        found = self._iids.get(value)
        if found is None:
            found = self._iids[value] = len(self._iids) + 1
            self.new.append(message(self._field, number(1, found) + text(2, value)))
        return found


class _Trace:
    """The packets of one timeline."""

    def __init__(self, table: SliceTable, name: str) -> None:
        self.table = table
        self.name = name
        self.start = np.rint(table.start).astype(np.int64)
        self.stop = np.rint(table.stop).astype(np.int64)
        self.tracks = tracks_of(table)
        self.issuers = _issuers(table)
        self.events = _Texts(EVENT_NAMES)
        self.arguments = _Texts(ANNOTATION_NAMES)
        self.strings = _Texts(ANNOTATION_STRINGS)
        # another number for each timeline, so that traces can be joined
        figures = f"{name} {len(table)} {self.start.sum()} {self.stop.sum()}"
        self.own = zlib.crc32(figures.encode("utf-8", "replace")) | 1
        self.head = number(SEQUENCE, self.own)

    def packets(self) -> Iterator[bytes]:
        yield self.head + number(FLAGS, CLEARED)
        uuid, pid = self.own << 20, FIRST_PID + self.own % FIRST_PID
        cores = sorted(set(self.tracks.core))
        for at, core in enumerate(cores):
            title = f"{PROCESS} {self.name}" + (f", core {core}" if len(cores) > 1 else "")
            process = number(PID, pid + at) + text(PROCESS_NAME, title)
            yield self.head + message(DESCRIPTOR, number(UUID, uuid + at) + message(PROCESS_OF, process))
        tracks = []
        for at, (core, name) in enumerate(zip(self.tracks.core, self.tracks.name, strict=True)):
            tracks.append(uuid + len(cores) + at)
            thread = number(PID, pid + cores.index(core)) + number(TID, pid + len(cores) + at)
            thread += number(SORT, at) + text(THREAD_NAME, name)
            yield self.head + message(DESCRIPTOR, number(UUID, tracks[at]) + message(THREAD_OF, thread))
        yield from self._slices([number(TRACK_UUID, each) for each in tracks])

    def _slices(self, tracks: list[bytes]) -> Iterator[bytes]:
        """The begin and end of each slice in order of time; of what lies on one track, in the order there."""
        table = self.table
        order = np.lexsort((self.stop, self.start, self.tracks.track))
        edges = np.column_stack([self.start[order], self.stop[order]]).ravel()
        sequence = np.argsort(edges, kind="stable")
        slices = order[sequence >> 1].tolist()
        begins = (sequence & 1 == 0).tolist()
        times = edges[sequence].tolist()
        track = self.tracks.track.tolist()
        length = (self.stop - self.start).tolist()
        kinds = list(
            zip(
                *(
                    column.tolist()
                    for column in (
                        table.lane,
                        table.name,
                        table.place,
                        table.operands,
                        table.bytes,
                        table.flops,
                        table.wait,
                        self.issuers,
                    )
                ),
                strict=True,
            )
        )
        flows, ending = self._flows()
        tail = self.head + number(FLAGS, NEEDED)
        opening = number(TYPE, BEGIN)
        closing = [message(TRACK_EVENT, number(TYPE, END) + each) + tail for each in tracks]
        made: dict[tuple[int, ...], bytes] = {}
        own = {name: number(1, self.arguments.iid(name)) for name in ("id", "timestamp", "duration")}
        for at, begin, time in zip(slices, begins, times, strict=True):
            moment = TIMESTAMPED + varint(time)
            if not begin:
                yield moment + closing[track[at]]
                continue
            kind = kinds[at]
            body = made.get(kind)
            if body is None:
                body = made[kind] = self._event(*kind)
            numbers = b"".join(
                message(ANNOTATION, own[name] + number(UNSIGNED, value))
                for name, value in (("id", at), ("timestamp", time), ("duration", length[at]))
            )
            event = opening + tracks[track[at]] + body + numbers + flows.get(at, b"") + ending.get(at, b"")
            yield moment + message(TRACK_EVENT, event) + tail + self._interned()

    def _interned(self) -> bytes:
        parts = [part for texts in (self.events, self.arguments, self.strings) for part in texts.new]
        if not parts:
            return b""
        for texts in (self.events, self.arguments, self.strings):
            texts.new.clear()
        return message(INTERNED, b"".join(parts))

    def _event(
        self, lane: int, named: int, place: int, operands: int, size: int, flops: int, wait: int, issuer: int
    ) -> bytes:
        """Name and arguments of a slice, without those that every slice has for itself."""
        table = self.table
        name, queue = _text(table.names, named), table.lanes[lane].name
        given: dict[str, str | int | bool] = {"simulated": True}
        if queue == TRANSFERS:
            shown = name or "DMA"
            if issuer >= 0:
                given["dma_queue"], given["queue_type"] = names.queue(table.lanes[issuer].name)
            given["transfer_size"] = size
        else:
            shown = names.opcode(name, queue) or UNNAMED
            label = names.label(shown, queue)
            given |= {"opcode": shown, "label": label, "subgroup": names.ENGINES[queue]}
            if label == names.MATRIX:
                given["instruction_type"] = names.TRANSPOSE if name == "nc_transpose" else names.REGULAR
                given["elements"] = flops // 2
            if size:
                given["bytes"] = size
        given |= {
            "operands": _text(table.operand_texts, operands),
            "nki_source_location": _text(table.places, place),
            "nki_instruction": name,
            "waits_for": _text(table.waits, wait),
        }
        parts = [number(NAME_IID, self.events.iid(shown))]
        for key, value in given.items():
            if value != "":
                parts.append(message(ANNOTATION, number(1, self.arguments.iid(key)) + self._value(value)))
        return b"".join(parts)

    def _value(self, value: str | int | bool) -> bytes:
        if isinstance(value, bool):
            return number(BOOL, value)
        if isinstance(value, int):
            return number(UNSIGNED, value)
        return number(STRING_IID, self.strings.iid(value))

    def _flows(self) -> tuple[dict[int, bytes], dict[int, bytes]]:
        """For each slice the arrows that begin and that end at it: from what another lane waited for."""
        table = self.table
        waiting = np.flatnonzero(table.blocker >= 0)
        waiting = waiting[table.lane[table.blocker[waiting]] != table.lane[waiting]]
        begin: dict[int, bytes] = {}
        end: dict[int, bytes] = {}
        for at, blocker in zip(waiting.tolist(), table.blocker[waiting].tolist(), strict=True):
            flow = self.own << 31 | at
            begin[blocker] = begin.get(blocker, b"") + fixed(FLOWS, flow)
            end[at] = fixed(ENDING_FLOWS, flow)
        return begin, end

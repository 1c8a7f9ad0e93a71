"""The Perfetto trace read back by a decoder of its own, written from protobuf's encoding and Perfetto's schema."""

from __future__ import annotations

import io
import struct
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profile_kit import drawn, table

from nkireview.drawing import stacked
from nkireview.report.perfetto import save_trace, varint, write_trace
from nkireview.slices import SliceTable

# name and kind of the fields that may occur, by message, as in google/perfetto protos/perfetto/trace/*.proto
SCHEMA: dict[str, dict[int, tuple[str, str]]] = {
    "Trace": {1: ("packet", "TracePacket")},
    "TracePacket": {
        8: ("timestamp", "uint"),
        10: ("trusted_packet_sequence_id", "uint"),
        11: ("track_event", "TrackEvent"),
        12: ("interned_data", "InternedData"),
        13: ("sequence_flags", "uint"),
        60: ("track_descriptor", "TrackDescriptor"),
    },
    "InternedData": {
        2: ("event_names", "Entry"),
        3: ("debug_annotation_names", "Entry"),
        29: ("debug_annotation_string_values", "Entry"),
    },
    "Entry": {1: ("iid", "uint"), 2: ("text", "string")},
    "TrackDescriptor": {
        1: ("uuid", "uint"),
        2: ("name", "string"),
        3: ("process", "ProcessDescriptor"),
        4: ("thread", "ThreadDescriptor"),
        5: ("parent_uuid", "uint"),
    },
    "ProcessDescriptor": {1: ("pid", "uint"), 6: ("process_name", "string")},
    "ThreadDescriptor": {
        1: ("pid", "uint"),
        2: ("tid", "uint"),
        3: ("legacy_sort_index", "uint"),
        5: ("thread_name", "string"),
    },
    "TrackEvent": {
        4: ("debug_annotations", "DebugAnnotation"),
        9: ("type", "uint"),
        10: ("name_iid", "uint"),
        11: ("track_uuid", "uint"),
        47: ("flow_ids", "fixed64"),
        48: ("terminating_flow_ids", "fixed64"),
    },
    "DebugAnnotation": {
        1: ("name_iid", "uint"),
        2: ("bool_value", "bool"),
        3: ("uint_value", "uint"),
        17: ("string_value_iid", "uint"),
    },
}
WIRE = {"uint": 0, "bool": 0, "fixed64": 1}


def number(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def parse(data: bytes, kind: str) -> dict[str, list[Any]]:
    """A message: the values of each field, in order. Fails on a field that the schema does not have."""
    found: dict[str, list[Any]] = defaultdict(list)
    at = 0
    while at < len(data):
        tag, at = number(data, at)
        name, what = SCHEMA[kind][tag >> 3]
        assert tag & 7 == WIRE.get(what, 2), f"{kind}.{name}"
        if tag & 7 == 0:
            value: Any
            value, at = number(data, at)
            value = bool(value) if what == "bool" else value
        elif tag & 7 == 1:
            (value,) = struct.unpack_from("<Q", data, at)
            at += 8
        else:
            length, at = number(data, at)
            assert at + length <= len(data)
            value, at = data[at : at + length], at + length
            value = value.decode() if what == "string" else parse(value, what)
        found[name].append(value)
    return dict(found)


class Read:
    """A trace as its reader sees it: processes and tracks by number, and slices by their ``id``."""

    def __init__(self, data: bytes) -> None:
        self.processes: dict[int, str] = {}
        self.tracks: dict[int, tuple[str, str]] = {}
        self.slices: dict[int, dict[str, Any]] = {}
        self.flows: dict[int, list[int]] = defaultdict(list)
        texts: dict[str, dict[int, str]] = defaultdict(dict)
        open_slices: dict[int, list[dict[str, Any]]] = defaultdict(list)
        cleared: set[int] = set()
        last = 0
        for packet in parse(data, "Trace")["packet"]:
            (sequence,) = packet["trusted_packet_sequence_id"]
            assert 0 < sequence < 1 << 32
            (flags,) = packet.get("sequence_flags", [0])
            if flags & 1:
                cleared.add(sequence)
            for kind, entries in packet.get("interned_data", [{}])[0].items():
                for entry in entries:
                    assert entry["iid"][0] not in texts[kind]
                    texts[kind][entry["iid"][0]] = entry["text"][0]
            for each in packet.get("track_descriptor", []):
                if "process" in each:
                    self.processes[each["process"][0]["pid"][0]] = each["process"][0]["process_name"][0]
                else:
                    thread = each["thread"][0]
                    process = self.processes[thread["pid"][0]]
                    self.tracks[each["uuid"][0]] = process, thread["thread_name"][0]
            for event in packet.get("track_event", []):
                (time,), (track,) = packet["timestamp"], event["track_uuid"]
                assert time >= last and track in self.tracks
                last = time
                if event["type"] == [2]:
                    made = open_slices[track].pop()
                    made["stop"] = time
                    continue
                assert event["type"] == [1] and flags & 2 and sequence in cleared
                assert not open_slices[track], "a slice within a slice"
                args = {}
                for note in event["debug_annotations"]:
                    key = texts["debug_annotation_names"][note["name_iid"][0]]
                    if "string_value_iid" in note:
                        args[key] = texts["debug_annotation_string_values"][note["string_value_iid"][0]]
                    else:
                        args[key] = (note.get("bool_value") or note["uint_value"])[0]
                made = {
                    "name": texts["event_names"][event["name_iid"][0]],
                    "track": self.tracks[track],
                    "start": time,
                    "args": args,
                }
                assert args["id"] not in self.slices
                self.slices[args["id"]] = made
                open_slices[track].append(made)
                for flow in event.get("flow_ids", []) + event.get("terminating_flow_ids", []):
                    self.flows[flow].append(args["id"])
        assert not any(open_slices.values()), "a slice without an end"


def read(found: SliceTable, name: str = "k.py inputs") -> Read:
    stream = io.BytesIO()
    write_trace(found, stream, name)
    return Read(stream.getvalue())


HAND = table(
    [
        ("sync", 0.0, 50.4, "dma_copy", "k.py:3"),
        ("dma", 40.0, 900.0, "dma_copy", "k.py:3"),
        ("gpsimd", 0.0, 60.0, "dma_transpose", "k.py:4"),
        ("dma", 100.0, 800.0, "dma_transpose", "k.py:4"),
        ("tensor", 900.0, 1113.0, "nc_matmul", "k.py:5"),
        ("tensor", 1113.0, 1200.0, "nc_transpose", "k.py:6"),
        ("tensor", 1200.0, 1254.0, "dma_copy", "k.py:7"),
        ("scalar", 1113.0, 1400.0, "activation", "k.py:8"),
        ("vector", 1113.0, 1300.0, "tensor_tensor", "k.py:9"),
        ("vector", 1300.0, 1300.2, "tensor_copy", ""),
        ("dma", 1400.0, 1500.0, "", ""),
    ],
    blockers={1: (0, 2), 3: (2, 2), 4: (1, 2), 5: (4, 1), 7: (4, 2), 8: (4, 2)},
    instructions=[0, 0, 1, 1, 2, 3, 4, 5, 6, 7, -1],
)


def test_tracks_opcodes_and_arguments_are_the_profilers() -> None:
    found = read(HAND)
    assert list(found.processes.values()) == ["Instructions (simulated) k.py inputs"]
    assert 1 not in found.processes
    slices = [found.slices[at] for at in range(len(HAND))]
    assert [(each["track"][1], each["name"]) for each in slices] == [
        ("Sync Engine - Row 0", "DMA_DIRECT2D"),
        ("qSyncDynamicHW - Row 0", "dma_copy"),
        ("GpSimd Engine - Row 0", "DMA_DIRECT2D"),
        ("qGpSimdDynamic - Row 0", "dma_transpose"),
        ("TensorMatrix Engine - Row 0", "MATMUL"),
        ("TensorMatrix Engine - Row 0", "MATMUL"),
        ("Tensor Engine - Row 0", "DMA_DIRECT2D"),
        ("Scalar Engine - Row 0", "ACTIVATE"),
        ("Vector Engine - Row 0", "TENSOR_TENSOR"),
        ("Vector Engine - Row 0", "COPY"),
        ("DMA Queue - Row 0", "DMA"),
    ]
    assert all(each["args"]["simulated"] is True for each in slices)
    assert slices[5]["args"] == {
        "simulated": True,
        "opcode": "MATMUL",
        "label": "TensorMatrix",
        "subgroup": "Tensor",
        "instruction_type": "TRANSPOSE",
        "operands": HAND.operands_of(5),
        "nki_source_location": "k.py:6",
        "nki_instruction": "nc_transpose",
        "elements": 128 * 128 * 512,
        "bytes": 4096 * 6,
        "waits_for": "its turn in the queue",
        "id": 5,
        "timestamp": 1113,
        "duration": 87,
    }
    assert slices[3]["args"] == {
        "simulated": True,
        "dma_queue": "qGpSimdDynamic",
        "queue_type": "software_dynamic",
        "transfer_size": 4096 * 4,
        "operands": HAND.operands_of(3),
        "nki_source_location": "k.py:4",
        "nki_instruction": "dma_transpose",
        "waits_for": "data",
        "id": 3,
        "timestamp": 100,
        "duration": 700,
    }
    assert "nki_source_location" not in slices[9]["args"] and "dma_queue" not in slices[10]["args"]


def test_an_arrow_for_each_wait_for_another_lane() -> None:
    arrows = sorted(read(HAND).flows.values())
    assert arrows == [[0, 1], [1, 4], [2, 3], [4, 7], [4, 8]]


@pytest.mark.parametrize("cores", [1, 2])
def test_every_slice_comes_back(cores: int) -> None:
    found = drawn(3000, seed=cores, cores=cores)
    made = read(found, "many")
    assert len(made.slices) == len(found)
    engines = {"tensor": "Tensor", "vector": "Vector", "scalar": "Scalar", "gpsimd": "GpSimd", "sync": "Sync"}
    for at in range(len(found)):
        each, lane = made.slices[at], found.lanes[int(found.lane[at])]
        start, stop = round(float(found.start[at])), round(float(found.stop[at]))
        assert (each["start"], each["stop"]) == (start, stop)
        assert (each["args"]["timestamp"], each["args"]["duration"]) == (start, stop - start)
        assert each["args"]["nki_instruction"] == found.name_of(at)
        assert each["args"]["nki_source_location"] == found.place_of(at)
        assert each["args"]["operands"] == found.operands_of(at)
        process, track = each["track"]
        assert process.endswith(f"many, core {lane.core}" if cores > 1 else "many")
        if lane.name == "dma":
            assert track.startswith("qSyncDynamicHW - Row ")
            assert each["args"]["transfer_size"] == int(found.bytes[at])
        else:
            assert each["args"]["subgroup"] == engines[lane.name]
            assert track == f"{each['args']['label']} Engine - Row 0"


def test_two_traces_can_be_joined() -> None:
    first, second = io.BytesIO(), io.BytesIO()
    write_trace(HAND, first, "one")
    write_trace(drawn(100), second, "two")
    packets = parse(first.getvalue() + second.getvalue(), "Trace")["packet"]
    uuids = [each["uuid"][0] for packet in packets for each in packet.get("track_descriptor", [])]
    assert len(uuids) == len(set(uuids))
    assert len({packet["trusted_packet_sequence_id"][0] for packet in packets}) == 2
    pids = {
        each["process"][0]["pid"][0]
        for packet in packets
        for each in packet.get("track_descriptor", [])
        if "process" in each
    }
    assert len(pids) == 2


def test_nothing_is_a_trace_too() -> None:
    found = read(table([]))
    assert not found.slices and not found.tracks


def test_a_file_appears_whole(tmp_path: Path) -> None:
    save_trace(HAND, tmp_path / "deep" / "k.pftrace", "k")
    assert [item.name for item in (tmp_path / "deep").iterdir()] == ["k.pftrace"]
    assert len(Read((tmp_path / "deep" / "k.pftrace").read_bytes()).slices) == len(HAND)


@given(st.integers(0, 2**64 - 1))
def test_numbers_are_written_as_they_are_read(value: int) -> None:
    assert number(varint(value), 0) == (value, len(varint(value)))


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)), max_size=30))
def test_rows_hold_no_overlap_and_are_as_few_as_can_be(spans: list[tuple[int, int]]) -> None:
    start = np.array([begin for begin, _ in spans], np.float64)
    stop = start + np.array([length for _, length in spans])
    rows = stacked(start, stop).tolist()
    for a in range(len(spans)):
        for b in range(a):
            if rows[a] == rows[b]:
                assert min(stop[a], stop[b]) <= max(start[a], start[b])
    moments = [float(at) + 0.5 for at in range(60)]
    deepest = max(
        (sum(begin < at < end for begin, end in zip(start, stop, strict=True)) for at in moments), default=0
    )
    assert len(set(rows)) <= max(deepest, 1) or any(length == 0 for _, length in spans)

"""Messages: what is packed comes back; whatever is malformed or too large is refused before it costs anything."""

from __future__ import annotations

import socket
import struct
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nkireview.runner import wire
from nkireview.runner.wire import ChannelClosed, WireError, pack, receive, send, unpack

LIMIT = 1 << 20
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def raw(
    header: bytes, blobs: int = 0, lengths: tuple[int, ...] = (), body: bytes = b"", magic: bytes = wire.MAGIC
) -> bytes:
    """A message from its documented layout, written without the code under test."""
    prefix = (
        magic + struct.pack("<II", len(header), blobs) + b"".join(struct.pack("<Q", each) for each in lengths)
    )
    return prefix + header + body


@given(st.dictionaries(st.text(), JSON, max_size=4), st.lists(st.binary(max_size=64), max_size=4))
def test_round_trip(header: dict[str, Any], blobs: list[bytes]) -> None:
    assert unpack(pack(header, blobs), LIMIT) == (header, blobs)


def test_layout() -> None:
    assert pack({"a": 1}, [b"xy", b""]) == raw(b'{"a":1}', 2, (2, 0), b"xy")


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_by_name(data: bytes) -> None:
    with pytest.raises(WireError):
        unpack(data, LIMIT)


@given(st.data())
def test_a_cut_message_is_refused(data: st.DataObject) -> None:
    message = pack({"key": [1, 2]}, [b"abc", b"defg"])
    end = data.draw(st.integers(0, len(message) - 1))
    with pytest.raises(WireError):
        unpack(message[:end], LIMIT)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (raw(b"{}", magic=b"NOTMAGIC"), "a message must begin with b'NKRMSG01', not b'NOTMAGIC'"),
        (raw(b"{}") + b"x", "1 bytes follow the end of a message"),
        (raw(b"{}", 1, (1 << 63,)), "a message of .* bytes exceeds the limit of 1048576"),
        (raw(b"{}", 1, (5,), b"abc"), "a message ends after .* bytes, in the middle of a field"),
        (
            wire.MAGIC + struct.pack("<II", (32 << 20) + 1, 0),
            "a message header of 33554433 bytes exceeds 33554432",
        ),
        (wire.MAGIC + struct.pack("<II", 2, 65537), "a message of 65537 blobs exceeds 65536"),
        (raw(b"[]"), "a message header must be a JSON object, not list"),
        (raw(b"{'a': 1}"), "a message header is not JSON"),
        (raw(b'{"a": NaN}'), "a message header is not JSON: NaN is not JSON"),
        (raw(b'{"a": -Infinity}'), "a message header is not JSON: -Infinity is not JSON"),
        (raw(b'{"a": 1e999}'), "a message header is not JSON: 1e999 is not a finite number"),
        (raw(b'{"a": "\xff"}'), "a message header is not JSON"),
        (raw(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"), "a message header is not JSON"),
        (raw(b"{}" + b" " * LIMIT), "a message of .* bytes exceeds the limit of 1048576"),
    ],
)
def test_malformed(message: bytes, text: str) -> None:
    with pytest.raises(WireError, match=text):
        unpack(message, LIMIT)


def test_a_header_of_many_values_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(WireError, match="a message header holds more than 2000000 values"):
        unpack(raw(b'{"a":[' + b"[]," * 1_000_001 + b"0]}"), 32 << 20)


def test_a_huge_announced_length_is_refused_before_it_is_read() -> None:
    asked: list[int] = []

    def take(count: int) -> bytes:
        asked.append(count)
        return (raw(b"{}", 1, (1 << 40,)) + bytes(64))[sum(asked) - count : sum(asked)]

    with pytest.raises(WireError, match="exceeds the limit"):
        wire.read(take, LIMIT)
    assert asked == [16, 8]


@pytest.mark.parametrize(
    ("header", "text"),
    [
        ({"a": float("nan")}, "a message header must be plain JSON data"),
        ({"a": b"bytes"}, "a message header must be plain JSON data"),
        ([1], "a message header must be a dict, not list"),
        ({"a": "x" * (32 << 20)}, "a message header of .* bytes exceeds 33554432"),
    ],
)
def test_what_cannot_be_packed(header: Any, text: str) -> None:
    with pytest.raises(WireError, match=text):
        pack(header, [])


def test_too_many_blobs_cannot_be_packed() -> None:
    with pytest.raises(WireError, match="a message of 65537 blobs exceeds 65536"):
        pack({}, [b""] * 65537)


def test_over_a_socket() -> None:
    left, right = socket.socketpair()
    with left, right:
        sender = threading.Thread(target=send, args=(left, {"n": 1}, [bytes(500_000), memoryview(b"view")]))
        sender.start()
        assert receive(right, LIMIT) == ({"n": 1}, [bytes(500_000), b"view"])
        sender.join()


def test_a_socket_that_closes_early() -> None:
    left, right = socket.socketpair()
    with right:
        left.sendall(pack({}, [b"abc"])[:-1])
        left.close()
        with pytest.raises(ChannelClosed, match="closed before a whole message had arrived"):
            receive(right, LIMIT)

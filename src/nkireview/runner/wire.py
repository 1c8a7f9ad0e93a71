"""Messages between processes: a JSON header and binary blobs, never a pickle.

Layout, little endian: 8 bytes of magic, u32 header bytes, u32 blob count, one u64 for each blob's length, the header
(UTF-8 JSON, an object), then the blobs. The reader may face a hostile writer, so every length is checked against the
limit before anything of that length is read or allocated.
"""

from __future__ import annotations

import json
import math
import socket
import struct
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

MAGIC = b"NKRMSG01"
HEADER_LIMIT = 32 << 20
BLOB_COUNT_LIMIT = 1 << 16
# JSON values in one header: "[[],[],...]" costs forty times its length once it is parsed.
NODE_LIMIT = 2_000_000

Blob = bytes | bytearray | memoryview

_PREFIX = struct.Struct("<8sII")

# Orders to the fork server: what to do, and the number of the job.
ORDER = struct.Struct("<cQ")
RUN, KILL = b"R", b"K"


class WireError(ValueError):
    """A message is malformed, truncated, or over its limit."""


class ChannelClosed(WireError):
    """The other side closed the channel before a whole message had arrived."""


def parts(header: dict[str, Any], blobs: Sequence[Blob]) -> list[Blob]:
    """The message as buffers to be written one after the other (no copy of the blobs)."""
    try:
        text = json.dumps(header, allow_nan=False, separators=(",", ":")).encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        raise WireError(f"a message header must be plain JSON data: {error}") from error
    if not isinstance(header, dict):
        raise WireError(f"a message header must be a dict, not {type(header).__name__}")
    if len(text) > HEADER_LIMIT:
        raise WireError(f"a message header of {len(text)} bytes exceeds {HEADER_LIMIT}")
    if len(blobs) > BLOB_COUNT_LIMIT:
        raise WireError(f"a message of {len(blobs)} blobs exceeds {BLOB_COUNT_LIMIT}")
    views = [memoryview(blob).cast("B") for blob in blobs]
    lengths = struct.pack(f"<{len(views)}Q", *(len(view) for view in views))
    return [_PREFIX.pack(MAGIC, len(text), len(views)) + lengths + text, *views]


def pack(header: dict[str, Any], blobs: Sequence[Blob]) -> bytes:
    """One message as bytes."""
    return b"".join(parts(header, blobs))


def unpack(data: Blob, limit: int) -> tuple[dict[str, Any], list[bytes]]:
    """The header and blobs of exactly one message of at most `limit` bytes; else `WireError`."""
    view = memoryview(data).cast("B")
    if len(view) > limit:
        raise WireError(f"a message of {len(view)} bytes exceeds the limit of {limit}")
    position = 0

    def take(count: int) -> bytes:
        nonlocal position
        if count > len(view) - position:
            raise WireError(f"a message ends after {len(view)} bytes, in the middle of a field")
        position += count
        return bytes(view[position - count : position])

    message = read(take, limit)
    if position != len(view):
        raise WireError(f"{len(view) - position} bytes follow the end of a message")
    return message


def read(take: Callable[[int], bytes], limit: int) -> tuple[dict[str, Any], list[bytes]]:
    """Read one message of at most `limit` bytes; `take(n)` gives exactly `n` bytes or raises."""
    magic, header_bytes, count = _PREFIX.unpack(take(_PREFIX.size))
    if magic != MAGIC:
        raise WireError(f"a message must begin with {MAGIC!r}, not {magic!r}")
    if header_bytes > HEADER_LIMIT:
        raise WireError(f"a message header of {header_bytes} bytes exceeds {HEADER_LIMIT}")
    if count > BLOB_COUNT_LIMIT:
        raise WireError(f"a message of {count} blobs exceeds {BLOB_COUNT_LIMIT}")
    lengths = struct.unpack(f"<{count}Q", take(8 * count))
    total = _PREFIX.size + 8 * count + header_bytes + sum(lengths)
    if total > limit:
        raise WireError(f"a message of {total} bytes exceeds the limit of {limit}")
    header = _header(take(header_bytes))
    return header, [take(length) for length in lengths]


def send(channel: socket.socket, header: dict[str, Any], blobs: Sequence[Blob]) -> None:
    """Write one message to a socket."""
    for part in parts(header, blobs):
        channel.sendall(part)


def receive(channel: socket.socket, limit: int) -> tuple[dict[str, Any], list[bytes]]:
    """Read one message of at most `limit` bytes from a socket."""

    def take(count: int) -> bytes:
        buffer = bytearray(count)
        view = memoryview(buffer)
        while view:
            got = channel.recv_into(view)
            if got == 0:
                raise ChannelClosed("the channel was closed before a whole message had arrived")
            view = view[got:]
        return bytes(buffer)

    return read(take, limit)


def _header(text: bytes) -> dict[str, Any]:
    if text.count(b",") + text.count(b"[") + text.count(b"{") > NODE_LIMIT:
        raise WireError(f"a message header holds more than {NODE_LIMIT} values")
    try:
        header = json.loads(text.decode("utf-8"), parse_constant=_no_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise WireError(f"a message header is not JSON: {error}") from error
    if not isinstance(header, dict):
        raise WireError(f"a message header must be a JSON object, not {type(header).__name__}")
    return header


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is not a finite number")
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")

"""The records a Program is made of. See `program.program.Program` for how they hang together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nkireview.isa.enums import DgeMode, Engine, Memory
from nkireview.program.access import Access

SCHEMA = 2


@dataclass(frozen=True)
class Source:
    """A source file that took part in the trace, with its SHA-256."""

    path: str
    sha256: str


@dataclass(frozen=True)
class Header:
    """What a kernel can branch on, and what it was made from."""

    kernel: str
    target: str
    release: str
    lnc: int = 1
    grid: tuple[int, ...] = ()
    scalars: tuple[tuple[str, Any], ...] = ()
    sources: tuple[Source, ...] = ()
    schema: int = SCHEMA


@dataclass(frozen=True)
class Frame:
    """One user frame: index into the header's sources, line and function."""

    file: int
    line: int
    function: str


Place = tuple[Frame, ...]
"""A chain of user frames, innermost first."""


@dataclass(frozen=True)
class Event:
    """Something the trace saw that is no instruction; `kind` is one of `KINDS`."""

    kind: str
    place: int
    detail: str

    KINDS = ("truth", "stub", "rebound", "deprecated", "overrun", "parameter", "note")

    def __post_init__(self) -> None:
        if self.kind not in self.KINDS:
            raise ValueError(f"event kind {self.kind!r} is not one of {', '.join(self.KINDS)}")


@dataclass(frozen=True)
class Buffer:
    """A piece of memory: ``core`` is None where all cores share it; address = (partition, byte offset)."""

    id: int
    memory: Memory
    shape: tuple[int, ...]
    dtype: str
    address: tuple[int, int] | None = None
    core: int | None = None
    name: str = ""
    place: int = -1
    constant: str | None = None


@dataclass(frozen=True)
class Output:
    """A returned tensor, as a view: its path in what the kernel returned, and the parameter it aliases, if any."""

    access: int
    alias: str | None = None
    name: str = "out"


@dataclass(frozen=True)
class Loop:
    """A device-side loop over the instructions [start, stop) of its stream.

    ``for``: `register` runs from `lower` to `upper` by `step`; a bound is a number or, as ("register", n), a
    register, read once before the loop. ``while``: repeated as long as `register`, read before each pass, is not 0.
    Registers are 32-bit integers, numbered from 0 in each stream.
    """

    kind: str
    start: int
    stop: int
    register: int
    lower: int | tuple[str, int] = 0
    upper: int | tuple[str, int] = 0
    step: int = 1
    parent: int = -1
    place: int = -1

    KINDS = ("for", "while")

    def __post_init__(self) -> None:
        if self.kind not in self.KINDS:
            raise ValueError(f"loop kind {self.kind!r} is not one of {', '.join(self.KINDS)}")
        if self.step < 1:
            raise ValueError(f"loop step {self.step} must be a positive integer")

    @property
    def trips(self) -> int | None:
        """Trip count, where both bounds are numbers."""
        if self.kind == "for" and isinstance(self.lower, int) and isinstance(self.upper, int):
            return max(0, -(-(self.upper - self.lower) // self.step))
        return None


@dataclass(frozen=True)
class Stream:
    """The instructions [start, stop) of one (core, instance), in program order."""

    core: int
    instance: int
    start: int
    stop: int


@dataclass(frozen=True)
class Instruction:
    """One recorded call; an operand that was a number stands in `immediates`."""

    index: int
    opcode: str
    operands: Mapping[str, Access | None]
    immediates: Mapping[str, Any]
    engine: Engine = Engine.unknown
    dge: DgeMode = DgeMode.unknown
    name: str = ""
    depends_on: tuple[int, ...] = ()
    place: int = -1


@dataclass(frozen=True)
class Limits:
    """What a Program may be at most; loading checks them before it allocates."""

    instructions: int = 4_000_000
    accesses: int = 4_000_000
    buffers: int = 1_000_000
    operands: int = 32_000_000
    places: int = 200_000
    events: int = 200_000
    table_bytes: int = 512 * 2**20
    constant_bytes: int = 256 * 2**20
    metadata_bytes: int = 128 * 2**20
    buffer_bytes: int = 64 * 2**30
    total_buffer_elements: int = field(default=2**36)


DEFAULT_LIMITS = Limits()

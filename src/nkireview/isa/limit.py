"""Limits of instructions as data: a subject, a bound by generation, release and dtype, and the public source.

A limit is checked against a `Call`, a read-only view of one recorded instruction that `program.verify` supplies.
A subject is ``operand.measure`` with a measure of `MEASURES`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from nkireview.hardware import Hardware
from nkireview.isa.enums import GENERATIONS, DgeMode, Engine, Memory
from nkireview.isa.release import ALWAYS, Release, Span

MEASURES = {
    "partitions": "partition size",
    "free": "free size",
    "elements": "element count",
    "dims": "number of dimensions",
    "start": "start partition",
    "stride": "innermost stride",
}


class Call(Protocol):
    """One recorded instruction as limits see it."""

    hardware: Hardware
    release: Release
    engine: Engine  # as asked for by the kernel; unknown: left to the compiler
    dge: DgeMode  # as asked for by the kernel
    lnc: int  # cores of the launch

    def has(self, operand: str) -> bool:
        """True where the operand is a tile."""

    def measure(self, operand: str, measure: str) -> int:
        """partitions, free (elements a partition), elements, dims, start (partition) or stride of a tile.

        dims counts the partition axis; stride is that of the innermost dimension, in elements of the dtype.
        """

    def counts(self, operand: str) -> tuple[int, ...]:
        """The shape of a tile's access."""

    def span(self, operand: str) -> tuple[int, int]:
        """First and last byte, within a partition, of a tile on chip, from the start of its memory if its buffer
        has an address, else from the start of the buffer."""

    def index(self, operand: str) -> str:
        """The kind of a tile's device-side index, "" where its address is known; see `program.access.Index`.

        The index tile of an operand is itself a tile, named ``operand.index``, unless the index is a register.
        """

    def index_axis(self, operand: str) -> int:
        """The axis that a tile's vector or snake index replaces, -1 where there is none."""

    def same_index(self, one: str, other: str) -> bool:
        """True where two tiles have the same device-side index, or none."""

    def placed(self, operand: str) -> bool:
        """True where the kernel chose the address of a tile's buffer."""

    def memory(self, operand: str) -> Memory:
        """Where a tile lives."""

    def dtype(self, operand: str) -> str:
        """A tile's dtype name."""

    def imm(self, name: str) -> Any:
        """An immediate (operators by name, enumerations by member name); None if absent."""

    def resolved_engine(self) -> Engine:
        """The engine that will run the instruction."""


@dataclass(frozen=True)
class Breach:
    """What a limit found: the sentence without instruction, target and place."""

    subject: str
    text: str


Bound = int | str | Callable[[Call], int]
"""A number, the path of a hardware figure, or a function of the call that reads hardware figures."""


@dataclass(frozen=True, kw_only=True)
class Limit:
    """What every limit carries: rule number in the constraint list, source, and the scope in which it holds."""

    number: int
    source: str
    generations: frozenset[str] = frozenset(GENERATIONS)
    releases: Span = ALWAYS
    exempt: Callable[[Call], bool] | None = None
    exemption: str = ""  # what `exempt` lets through, and why

    def applies(self, call: Call) -> bool:
        """True where generation and release are in scope and no exemption holds."""
        in_scope = call.hardware.generation in self.generations and call.release in self.releases
        return in_scope and not (self.exempt and self.exempt(call))

    def breach(self, call: Call) -> Breach | None:
        """The breach of this limit in the call, or None."""
        raise NotImplementedError


def _split(subject: str) -> tuple[str, str]:
    operand, _, measure = subject.rpartition(".")
    return operand, measure


def _bound(bound: Bound, call: Call) -> int:
    if callable(bound):
        return bound(call)
    if isinstance(bound, str):
        return int(call.hardware.value(bound))
    return bound


def _present(call: Call, *operands: str) -> bool:
    return all(call.has(operand) for operand in operands)


@dataclass(frozen=True, kw_only=True)
class AtMost(Limit):
    """``subject <= bound``."""

    subject: str
    bound: Bound

    def breach(self, call: Call) -> Breach | None:
        """See `Limit.breach`."""
        operand, measure = _split(self.subject)
        if not _present(call, operand):
            return None
        found, allowed = call.measure(operand, measure), _bound(self.bound, call)
        if found <= allowed:
            return None
        return Breach(self.subject, f"{operand} {MEASURES[measure]} {found} exceeds {allowed}")


@dataclass(frozen=True, kw_only=True)
class AtLeast(Limit):
    """``subject >= bound``."""

    subject: str
    bound: Bound

    def breach(self, call: Call) -> Breach | None:
        """See `Limit.breach`."""
        operand, measure = _split(self.subject)
        if not _present(call, operand):
            return None
        found, allowed = call.measure(operand, measure), _bound(self.bound, call)
        if found >= allowed:
            return None
        return Breach(self.subject, f"{operand} {MEASURES[measure]} {found} is below {allowed}")


@dataclass(frozen=True, kw_only=True)
class Exactly(Limit):
    """``subject == bound``."""

    subject: str
    bound: Bound
    hint: str = ""

    def breach(self, call: Call) -> Breach | None:
        """See `Limit.breach`."""
        operand, measure = _split(self.subject)
        if not _present(call, operand):
            return None
        found, allowed = call.measure(operand, measure), _bound(self.bound, call)
        if found == allowed:
            return None
        tail = f"; {self.hint}" if self.hint else ""
        return Breach(self.subject, f"{operand} {MEASURES[measure]} is {found}, must be {allowed}{tail}")


@dataclass(frozen=True, kw_only=True)
class MultipleOf(Limit):
    """``subject % bound == 0``."""

    subject: str
    bound: Bound

    def breach(self, call: Call) -> Breach | None:
        """See `Limit.breach`."""
        operand, measure = _split(self.subject)
        if not _present(call, operand):
            return None
        found, allowed = call.measure(operand, measure), _bound(self.bound, call)
        if found % allowed == 0:
            return None
        text = f"{operand} {MEASURES[measure]} {found} is no multiple of {allowed}"
        return Breach(self.subject, text)


@dataclass(frozen=True, kw_only=True)
class Equal(Limit):
    """Two subjects must agree."""

    left: str
    right: str

    def breach(self, call: Call) -> Breach | None:
        """See `Limit.breach`."""
        (a, measure_a), (b, measure_b) = _split(self.left), _split(self.right)
        if not _present(call, a, b):
            return None
        found, allowed = call.measure(a, measure_a), call.measure(b, measure_b)
        if found == allowed:
            return None
        text = f"{a} {MEASURES[measure_a]} {found} differs from {b} {MEASURES[measure_b]} {allowed}"
        return Breach(self.left, text)


@dataclass(frozen=True, kw_only=True)
class SameDtype(Limit):
    """Two operands must have one dtype."""

    left: str
    right: str

    def breach(self, call: Call) -> Breach | None:
        """See `Limit.breach`."""
        if not _present(call, self.left, self.right):
            return None
        found, allowed = call.dtype(self.left), call.dtype(self.right)
        if found == allowed:
            return None
        return Breach(
            f"{self.left}.dtype", f"{self.left} dtype {found} differs from {self.right} dtype {allowed}"
        )


@dataclass(frozen=True, kw_only=True)
class DtypeIn(Limit):
    """An operand's dtype must be one of a set."""

    operand: str
    allowed: frozenset[str]

    def breach(self, call: Call) -> Breach | None:
        """See `Limit.breach`."""
        if not _present(call, self.operand) or call.dtype(self.operand) in self.allowed:
            return None
        names = ", ".join(sorted(self.allowed))
        text = f"{self.operand} dtype {call.dtype(self.operand)} is not allowed, expected one of {names}"
        return Breach(f"{self.operand}.dtype", text)


@dataclass(frozen=True, kw_only=True)
class NotBothIn(Limit):
    """Two operands may not both live in one memory."""

    left: str
    right: str
    memory: Memory

    def breach(self, call: Call) -> Breach | None:
        """See `Limit.breach`."""
        if not _present(call, self.left, self.right):
            return None
        if call.memory(self.left) is not self.memory or call.memory(self.right) is not self.memory:
            return None
        text = f"{self.left} and {self.right} are both in {self.memory.name.upper()}, one must be in SBUF"
        return Breach(f"{self.left}.memory", text)


@dataclass(frozen=True, kw_only=True)
class Check(Limit):
    """A limit over several fields at once: `find` returns the sentence of a breach, or None."""

    subject: str
    find: Callable[[Call], str | None]

    def breach(self, call: Call) -> Breach | None:
        """See `Limit.breach`."""
        text = self.find(call)
        return Breach(self.subject, text) if text else None

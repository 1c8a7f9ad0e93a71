"""Which sums are read out and added to again, and what is overwritten before anything reads it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from nkireview.checks.dataflow import Dataflow
from nkireview.checks.steps import steps
from nkireview.diagnosis.flows.lines import Lines
from nkireview.program.call import CallView
from nkireview.program.program import Program
from nkireview.program.storage import READS

FILLS = frozenset({"memset", "iota"})
MATMULS = frozenset({"nc_matmul", "nc_matmul_mx"})
IDENTITY: Mapping[str, float] = {
    "add": 0.0,
    "maximum": -float("inf"),
    "minimum": float("inf"),
    "multiply": 1.0,
}
"""What each operator starts from."""


class Touch(NamedTuple):
    """An operand: its storage place, access and name."""

    place: int
    access: int
    operand: str


class Event(NamedTuple):
    """What an instruction does to storage. op: that by which it adds to `added`; kept: tiles changed in place."""

    line: int
    fill: bool
    reads: tuple[Touch, ...]
    added: Touch | None
    op: str
    plain: tuple[Touch, ...]


class Seen(NamedTuple):
    """What shows at an instruction.

    stale: the lines that read out what it adds to, with no fresh start since. lost: an operand that it overwrites
    before anything has read what the same line, or a sum, left there; empty where there is none.
    """

    stale: tuple[int, ...]
    lost: str


NONE = Seen((), "")


def added(flow: Dataflow, lines: Lines, instruction: int, call: CallView) -> str:
    """The operator by which an instruction takes up its own destination; empty where it takes up nothing."""
    if call.row.name in MATMULS:
        taken = call.imm("accumulate") is not False and not call.imm("is_transpose")
        return "add" if taken else ""
    written = lines.written(instruction)
    if not written or written[0].operand != "dst":
        return ""
    if call.row.name == "dma_copy":
        return "add" if call.imm("dst_rmw_op") else ""
    target = lines.access(written[0])
    same = [slot.operand for slot in flow.operands(instruction, READS) if lines.access(slot) == target]
    if call.row.name == "dma_compute":
        return "add" if same and call.imm("reduce_op") in (None, "add") else ""
    taken_steps = steps(call)
    if not same or not taken_steps:
        return ""
    last = taken_steps[-1]
    joins = bool(last.operand) and last.op in IDENTITY and last.op != "multiply"
    return last.op if joins else ""


def events(flow: Dataflow, lines: Lines) -> Mapping[int, Event]:
    """What each instruction does, by its number."""
    found = {}
    for line in lines.all:
        for index in line.instructions:
            call = flow.call(index)
            if call is None:
                continue
            op = added(flow, lines, index, call)
            writes = [
                Touch(flow.place(slot), lines.access(slot), slot.operand) for slot in lines.written(index)
            ]
            own = {touch.access for touch in writes}
            reads = []
            within = False
            for slot in flow.operands(index, READS):
                touch = Touch(flow.place(slot), lines.access(slot), slot.operand)
                if touch.access in own:
                    within = within or line.opcode not in MATMULS
                else:
                    reads.append(touch)
            target = next((touch for touch in writes if touch.operand == "dst"), None)
            plain = tuple(touch for touch in writes if not (touch is target and (op or within)))
            found[index] = Event(
                line.number, line.opcode in FILLS, tuple(reads), target if op else None, op, plain
            )
    return found


def order(program: Program) -> Iterator[int]:
    """The instructions in program order, the body of each device-side loop twice."""
    inside: dict[int, list[int]] = {}
    for number, loop in enumerate(program.loops):
        inside.setdefault(loop.parent, []).append(number)

    def walk(start: int, stop: int, parent: int) -> Iterator[int]:
        at = start
        for number in inside.get(parent, ()):
            loop = program.loops[number]
            if not start <= loop.start <= loop.stop <= stop:
                continue
            yield from range(at, loop.start)
            for _ in range(2):
                yield from walk(loop.start, loop.stop, number)
            at = loop.stop
        yield from range(at, stop)

    for stream in program.streams:
        yield from walk(stream.start, stream.stop, -1)


class _Left(NamedTuple):
    line: int
    adds: bool


@dataclass
class Ledger:
    """Follows an execution, instruction by instruction."""

    lines: Lines
    events: Mapping[int, Event]
    _out: dict[int, dict[tuple[int, int], list[int]]] = field(default_factory=dict)
    _unread: dict[int, dict[int, _Left]] = field(default_factory=dict)

    def clear(self) -> None:
        """Begin anew."""
        self._out.clear()
        self._unread.clear()

    def step(self, index: int) -> Seen:
        """Note an instruction; what shows at it."""
        event = self.events.get(index)
        if event is None:
            return NONE
        for touch in event.reads:
            self._read(event, touch)
        stale: tuple[int, ...] = ()
        lost = ""
        if event.added is not None:
            stale = self._add(event, event.added)
        for touch in event.plain:
            if self._write(event, touch):
                lost = touch.operand
        return Seen(stale, lost) if stale or lost else NONE

    def _read(self, event: Event, touch: Touch) -> None:
        unread = self._unread.get(touch.place)
        if unread:
            for access in [access for access in unread if self.lines.overlap(access, touch.access)]:
                del unread[access]
        self._out.setdefault(touch.place, {})[touch.access, event.line] = []

    def _add(self, event: Event, touch: Touch) -> tuple[int, ...]:
        self._unread.setdefault(touch.place, {})[touch.access] = _Left(event.line, True)
        stale = []
        for (access, line), fresh in self._out.get(touch.place, {}).items():
            if self.lines.overlap(access, touch.access):
                if not any(self.lines.holds(each, touch.access) for each in fresh):
                    stale.append(line)
                    fresh.append(touch.access)
        return tuple(stale)

    def _write(self, event: Event, touch: Touch) -> bool:
        lines, unread = self.lines, self._unread.setdefault(touch.place, {})
        lost = False
        for access, left in list(unread.items()):
            if not lines.overlap(access, touch.access):
                continue
            again = access == touch.access and left.line == event.line and not event.fill
            lost = lost or again or (left.adds and lines.holds(touch.access, access))
            del unread[access]
        if not event.fill:
            unread[touch.access] = _Left(event.line, False)
        for (access, _), fresh in self._out.get(touch.place, {}).items():
            if lines.overlap(access, touch.access):
                fresh.append(touch.access)
        return lost

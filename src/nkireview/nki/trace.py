"""Trace: what is being recorded at this moment. One trace is current at a time in a process."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from nkireview import hardware
from nkireview.isa.enums import Memory
from nkireview.isa.release import Release
from nkireview.nki.errors import Refusal
from nkireview.nki.places import Places
from nkireview.program.builder import ProgramBuilder
from nkireview.program.model import Buffer, Loop

Bound = int | tuple[str, int]
Schedule = tuple[tuple[str, tuple[str, ...]], ...]
"""Pairs of the name of an instruction and the names of those it waits for."""

SCHEDULE = "nki_schedule"
"""The attribute of a kernel's function that holds its schedule."""


@dataclass(eq=False)
class OpenLoop:
    """A device-side loop of the stream being recorded: `what` made it, `stop` is -1 until it is closed.

    `key` tells a ``while`` statement and the frame it runs in; `local`: tensors made in its body stay there.
    """

    number: int
    what: str
    loop: Loop
    parent: OpenLoop | None
    key: Any = None
    local: bool = False
    buffers: int = 0
    stop: int = -1


class Trace:
    """The state of one trace: builder, target, release, core, loops, and the buffers that cores share.

    `on_append(index)` is called after each appended instruction; `shown(tensor)`, which only the debug mode sets, is
    the text of a tensor's values. `registers`: how many the open stream has; `kept`: tensors that `nl` hands out more
    than once; `ordered`: depth of ``nl.no_reorder`` blocks; `loop`: the innermost open device-side loop; `confined`:
    buffers made in the body of a closed loop that keeps its tensors, and what made that loop; `results`: buffers that
    calls of the legacy generation returned.
    """

    def __init__(self, target: str, release: Release, lnc: int = 1, grid: tuple[int, ...] = ()) -> None:
        self.hardware = hardware.target(target)
        self.release = release
        self.lnc = lnc
        self.grid = grid
        self.core = self.instance = 0
        self.builder = ProgramBuilder()
        self.places = Places(self.builder)
        self.prepared: dict[tuple[Any, ...], int] = {}
        self.kept: dict[Any, Any] = {}
        self.on_append: Callable[[int], None] | None = None
        self.shown: Callable[[Any], str] | None = None
        self._shared: list[Buffer] = []
        self._shared_at = 0
        self._names: set[str] = set()
        self.registers = 0
        self.ordered = 0
        self.loop: OpenLoop | None = None
        self.confined: dict[int, str] = {}
        self.results: set[int] = set()
        self._loops: list[OpenLoop] = []
        self._stream = 0

    def place(self) -> int:
        """The place of the user's call."""
        return self.places.here()

    def event(self, kind: str, detail: str) -> None:
        """Record an event at the user's call."""
        self.builder.event(kind, self.place(), detail)

    def start_core(self, core: int, instance: int = 0) -> None:
        """Begin the stream of a core, or of an instance on it: its shared buffers are those of the first stream, by
        allocation order.
        """
        self.core, self.instance = core, instance
        self._shared_at = 0
        self.registers = 0
        self._loops = []
        self._stream = len(self.builder)

    def end_core(self, schedule: Schedule = ()) -> None:
        """End the stream of a core and add the dependencies of a schedule to it, in whatever order it names them.

        Refusal where a loop was left before its end, or the schedule does not fit.
        """
        self.places.forget()
        if self.loop is not None:
            self.left(self.loop)
        if not schedule:
            return
        named = self.builder.named(self._stream)
        for consumer, producers in schedule:
            for name in (consumer, *producers):
                count = len(named.get(name, ()))
                if count != 1:
                    found = f"{count} instructions have" if count else "no instruction has"
                    raise Refusal(f"with_schedule: {found} the name {name!r}, exactly one must have it")
            waits = [named[name][0] for name in producers]
            self.depend(named[consumer][0], waits, f"with_schedule: {consumer!r}")

    def open_loop(
        self,
        kind: str,
        what: str,
        register: int,
        lower: Bound = 0,
        upper: Bound = 0,
        step: int = 1,
        *,
        key: Any = None,
        local: bool = False,
    ) -> OpenLoop:
        """Begin a device-side loop with the next instruction; the fields are those of `Loop`."""
        number, start = self.builder.open_loop()
        parent = self.loop
        around = -1 if parent is None else parent.number
        loop = Loop(kind, start, start, register, lower, upper, step, around, self.place())
        self.loop = OpenLoop(number, what, loop, parent, key, local, len(self.builder.buffers))
        self._loops.append(self.loop)
        return self.loop

    def close_loop(self, opened: OpenLoop) -> None:
        """End a device-side loop before the next instruction; Refusal where one inside it was left before its end."""
        if self.loop is not opened:
            self.left(self.loop or opened)
        opened.stop, opened.key = len(self.builder), None
        self.builder.close_loop(opened.number, replace(opened.loop, stop=opened.stop))
        if opened.local:
            made = range(opened.buffers, len(self.builder.buffers))
            self.confined.update(dict.fromkeys(made, opened.what))
        self.loop = opened.parent

    def left(self, opened: OpenLoop) -> NoReturn:
        """Refuse to leave a loop before its end."""
        where = self.places.text(opened.loop.place)
        raise Refusal(
            f"{opened.what}{f' ({where})' if where else ''} is left by break, return or an exception; it runs on the "
            "device, where it ends when its bound is reached or its register is 0"
        )

    def around(self, index: int) -> tuple[OpenLoop, ...]:
        """The device-side loops of this stream around an instruction of it, outermost first."""
        return tuple(each for each in self._loops if each.loop.start <= index and not 0 <= each.stop <= index)

    def depend(self, consumer: int, producers: Sequence[int], what: str) -> None:
        """Let an instruction of this stream run after others of it, by the rule that loops set (107).

        One that is recorded later may be a producer: whether the order can be kept shows once all is recorded.
        """
        around = set(self.around(consumer))
        for producer in producers:
            if producer < self._stream:
                raise Refusal(f"{what}: an instruction can only wait for one on the same core")
            if producer == consumer:
                raise Refusal(f"{what}: an instruction cannot wait for itself")
            if not around.issuperset(self.around(producer)):
                raise Refusal(
                    f"{what}: the producer lies inside a device-side loop that the consumer is outside of; both must "
                    "be at the same loop, or the producer in an enclosing one"
                )
        self.builder.depend(consumer, producers)

    def buffer(
        self,
        memory: Memory,
        shape: tuple[int, ...],
        dtype: str,
        address: tuple[int, int] | None = None,
        name: str = "",
    ) -> Buffer:
        """Declare a buffer of the current core, or join a shared one of an earlier core."""
        place = self.place()
        if memory is Memory.shared_hbm and (self.lnc > 1 or math.prod(self.grid) > 1):
            return self._join(shape, dtype, name, place)
        return self.builder.buffer(
            memory=memory, shape=shape, dtype=dtype, address=address, core=self.core, name=name, place=place
        )

    def _join(self, shape: tuple[int, ...], dtype: str, name: str, place: int) -> Buffer:
        if self.core == 0 and self.instance == 0:
            fresh = self._declare(shape, dtype, name, place)
            self._shared.append(fresh)
            return fresh
        named = [buffer for buffer in self._shared if name and buffer.name == name]
        at = self._shared_at
        self._shared_at += 1
        candidates = named or self._shared[at : at + 1]
        if candidates and (candidates[0].shape, candidates[0].dtype) == (shape, dtype):
            return candidates[0]
        self.builder.event("note", place, f"cores diverge: core {self.core} allocates shared {shape} {dtype}")
        return self._declare(shape, dtype, name, place)

    def _declare(self, shape: tuple[int, ...], dtype: str, name: str, place: int) -> Buffer:
        return self.builder.buffer(
            memory=Memory.shared_hbm, shape=shape, dtype=dtype, core=None, name=name, place=place
        )


_current: list[Trace] = []
_loading: list[Trace] = []
outside: Callable[[], Trace] | None = None
"""Where host code may ask for figures of the target: gives a trace that stands for it; set in hosted processes."""


def active() -> Trace | None:
    """The current trace, or None outside a kernel."""
    return _current[-1] if _current else None


def nearest() -> Trace | None:
    """The current trace or, while a kernel's file is imported, the one that is about to begin; None in neither."""
    found = _current or _loading
    if not found and outside is not None:
        return outside()
    return found[-1] if found else None


def surroundings(what: str) -> Trace:
    """The trace that is nearest; Refusal where there is none."""
    return nearest() or current(what)


@contextmanager
def loading(trace: Trace) -> Iterator[None]:
    """Let figures of the target be asked for while files are imported."""
    _loading.append(trace)
    try:
        yield
    finally:
        _loading.pop()


def current(what: str) -> Trace:
    """The current trace; Refusal where there is none."""
    if not _current:
        raise Refusal(
            f"{what} is only available inside a kernel; run the file through nkireview run or review"
        )
    return _current[-1]


@contextmanager
def tracing(trace: Trace) -> Iterator[Any]:
    """Make a trace current."""
    _current.append(trace)
    try:
        yield trace
    finally:
        _current.pop()

"""Trace: what is being recorded at this moment. One trace is current at a time in a process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from nkireview import hardware
from nkireview.isa.enums import Memory
from nkireview.isa.release import Release
from nkireview.nki.errors import Refusal
from nkireview.nki.places import Places
from nkireview.program.builder import ProgramBuilder
from nkireview.program.model import Buffer


class Trace:
    """The state of one trace: builder, target, release, core, and the buffers that cores share.

    `on_append(index)` is called after each appended instruction; only the debug mode sets it.
    """

    def __init__(self, target: str, release: Release, lnc: int = 1, grid: tuple[int, ...] = ()) -> None:
        self.hardware = hardware.target(target)
        self.release = release
        self.lnc = lnc
        self.grid = grid
        self.core = 0
        self.builder = ProgramBuilder()
        self.places = Places(self.builder)
        self.prepared: dict[Any, Any] = {}
        self.on_append: Callable[[int], None] | None = None
        self._shared: list[Buffer] = []
        self._shared_at = 0
        self._names: set[str] = set()

    def place(self) -> int:
        """The place of the user's call."""
        return self.places.here()

    def event(self, kind: str, detail: str) -> None:
        """Record an event at the user's call."""
        self.builder.event(kind, self.place(), detail)

    def start_core(self, core: int) -> None:
        """Begin the stream of a core: its shared buffers are those of core 0, by allocation order."""
        self.core = core
        self._shared_at = 0

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
        if memory is Memory.shared_hbm and self.lnc > 1:
            return self._join(shape, dtype, name, place)
        return self.builder.buffer(
            memory=memory, shape=shape, dtype=dtype, address=address, core=self.core, name=name, place=place
        )

    def _join(self, shape: tuple[int, ...], dtype: str, name: str, place: int) -> Buffer:
        if self.core == 0:
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


def active() -> Trace | None:
    """The current trace, or None outside a kernel."""
    return _current[-1] if _current else None


def surroundings(what: str) -> Trace:
    """The current trace or, while a kernel's file is imported, the one that is about to begin."""
    found = _current or _loading
    return found[-1] if found else current(what)


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

"""Whether a value is held by nothing but the statement that runs, by its references as Python counts them."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any


class _Probe:
    """Counts references as `Tile` does, to a value that nothing but the statement holds."""

    found = 0

    def __setitem__(self, key: Any, value: Any) -> None:
        self.found = sys.getrefcount(value)

    def __iadd__(self, other: Any) -> _Probe:
        self.found = sys.getrefcount(other)
        return self


def _counts() -> tuple[int, int, bool]:
    """References to a value that only an assignment, only a ``+=`` holds; and whether a name adds none."""
    probe = _Probe()
    probe[0] = object()
    stored = probe.found
    held = object()
    probe[0] = held
    by_name = probe.found
    probe += object()
    return stored, probe.found, by_name <= stored


STORED, ADDED, BORROWED = _counts()


def named(value: object, frame: FrameType) -> bool:
    """True where a name of a frame holds a value: from Python 3.14 on a statement borrows it, which counts nothing."""
    return any(held is value for held in frame.f_locals.values())

"""Turns: the instructions of a line one after the other, and which of them go on from which."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

MOST = 7
"""Ways of grouping that are tried."""


@dataclass(frozen=True)
class Turns:
    """Groups of the executions of a line: `size` in a row, 0 for all; or each with those `apart` places before it."""

    size: int = 0
    apart: int = 1

    def before(self, at: int) -> int:
        """The execution that one goes on from, -1 for none."""
        if self.apart == 1 and self.size and at % self.size == 0:
            return -1
        return max(at - self.apart, -1)

    def group(self, at: int) -> int:
        """The number of the group of an execution."""
        if self.apart > 1:
            return at % self.apart
        return at // self.size if self.size else 0

    @property
    def said(self) -> str:
        """For a sentence: which executions belong together; empty where all do."""
        if self.apart > 1:
            return f", every {self.apart}th together"
        return f", {self.size} at a time" if self.size else ""


def turns(count: int) -> Iterator[Turns]:
    """The ways in which so many executions may belong together; all of them for 0, which is not known."""
    yield Turns()
    made = 1
    for size in range(count // 2, 1, -1):
        if count % size == 0 and made < MOST:
            made += 1
            yield Turns(size)
    for apart in range(2, count // 2 + 1):
        if count % apart == 0 and made < MOST:
            made += 1
            yield Turns(apart=apart)

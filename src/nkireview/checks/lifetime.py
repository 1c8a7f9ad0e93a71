"""Lifetimes of buffers, from the first use to the last, in instruction positions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nkireview.checks.uses import Uses
from nkireview.program.interning import Ints
from nkireview.program.program import Program


@dataclass(frozen=True, eq=False)
class Lifetimes:
    """For each buffer the positions of its first and last use, -1 where it is never used.

    A buffer that lives into a device-side loop and is used there lives to the loop's end.
    """

    first: Ints
    last: Ints


def lifetimes(program: Program, used: Uses) -> Lifetimes:
    """The lifetimes of all buffers of a Program."""
    first = np.full(program.columns.buffers, -1, np.int64)
    last = first.copy()
    first[used.buffer[::-1]] = used.instruction[::-1]
    last[used.buffer] = used.instruction
    for loop in sorted(program.loops, key=lambda loop: loop.start - loop.stop):
        carried = (first >= 0) & (first < loop.start) & (last >= loop.start) & (last < loop.stop)
        last[carried] = loop.stop - 1
    return Lifetimes(first, last)

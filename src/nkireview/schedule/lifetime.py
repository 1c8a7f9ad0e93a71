"""Lifetimes of buffers or storage places, from the first use to the last, in instruction positions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nkireview.program.interning import Ints
from nkireview.program.program import Program
from nkireview.schedule.uses import Uses


@dataclass(frozen=True, eq=False)
class Lifetimes:
    """By number, the positions of the first and last use, -1 where there is none.

    What a device-side loop carries from one trip to the next lives all through the loop: what lives before it and is
    used in it, what its body reads before it writes it, and what its body writes in part and is used after it.
    `opened` is the position of the first use itself.
    """

    first: Ints
    last: Ints
    opened: Ints


def lifetimes(program: Program, used: Uses, what: Ints, count: int) -> Lifetimes:
    """The lifetimes of what the uses use: `what` is the number of each, below `count`."""
    first = np.full(count, -1, np.int64)
    last = first.copy()
    opening = first.copy()
    opening[what[::-1]] = np.arange(len(what))[::-1]
    held = opening >= 0
    first[held] = used.instruction[opening[held]]
    last[what] = used.instruction
    opened = first.copy()
    reads, partly = np.zeros(count, bool), np.zeros(count, bool)
    reads[held] = (used.reads & ~used.writes)[opening[held]]
    partly[held] = ~used.whole[opening[held]]
    for loop in sorted(program.loops, key=lambda loop: loop.start - loop.stop):
        inside = held & (opened >= loop.start) & (opened < loop.stop)
        kept = inside & (reads | (partly & (last >= loop.stop)))
        first[kept] = np.minimum(first[kept], loop.start)
        carried = held & (first <= loop.start) & (last >= loop.start) & (last < loop.stop)
        carried &= kept | (opened < loop.start)
        last[carried] = loop.stop - 1
    return Lifetimes(first, last, opened)

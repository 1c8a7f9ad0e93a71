"""Device-side loops as a tree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from nkireview.program.model import Loop


@dataclass
class Nest:
    """A loop and the loops inside it, in order."""

    loop: Loop
    inner: list[Nest] = field(default_factory=list)


def nests(loops: Sequence[Loop], start: int, stop: int) -> list[Nest]:
    """The outermost loops over the instructions [start, stop), with those inside them.

    Raise ValueError where two loops overlap and neither is inside the other.
    """
    found: list[Nest] = []
    open_: list[Nest] = []
    held = [loop for loop in loops if start <= loop.start and loop.stop <= stop and loop.start < loop.stop]
    for loop in sorted(held, key=lambda loop: (loop.start, -loop.stop)):
        while open_ and open_[-1].loop.stop <= loop.start:
            open_.pop()
        if open_ and loop.stop > open_[-1].loop.stop:
            raise ValueError(
                f"loops [{open_[-1].loop.start}, {open_[-1].loop.stop}) and [{loop.start}, {loop.stop}) overlap"
            )
        nest = Nest(loop)
        (open_[-1].inner if open_ else found).append(nest)
        open_.append(nest)
    return found

"""Device-side loops as trees, one list for each stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nkireview.program.model import Loop
from nkireview.program.program import Program

DEPTH = 64


@dataclass
class Nest:
    """A loop and the loops inside it, in order."""

    loop: Loop
    inner: list[Nest] = field(default_factory=list)


def nests(program: Program) -> tuple[tuple[Nest, ...], ...]:
    """The outermost loops of each stream that hold instructions, with the loops inside them.

    Raise ValueError where loops overlap without one being inside the other, leave their stream, or lie deeper than
    `DEPTH`.
    """
    outer: list[Nest] = []
    around: list[Nest] = []
    held = [loop for loop in program.loops if loop.start < loop.stop]
    for loop in sorted(held, key=lambda loop: (loop.start, -loop.stop)):
        while around and around[-1].loop.stop <= loop.start:
            around.pop()
        if around and loop.stop > around[-1].loop.stop:
            raise ValueError(f"loops {_span(around[-1].loop)} and {_span(loop)} overlap")
        if len(around) == DEPTH:
            raise ValueError(
                f"loop {_span(loop)} lies inside {DEPTH} others, which is deeper than can be followed"
            )
        nest = Nest(loop)
        (around[-1].inner if around else outer).append(nest)
        around.append(nest)
    found = []
    at = 0
    for stream in program.streams:
        first = at
        while at < len(outer) and outer[at].loop.stop <= stream.stop:
            at += 1
        found.append(tuple(outer[first:at]))
        if at < len(outer) and outer[at].loop.start < stream.stop:
            raise ValueError(f"loop {_span(outer[at].loop)} leaves the stream of core {stream.core}")
    return tuple(found)


def known_trips(program: Program, observed: Mapping[int, int] | None = None) -> dict[int, int]:
    """The trip count of each loop, by the identity of its record: as its bounds say, else as it was observed.

    observed: index of a loop in the program -> its trip count, at least 0. A loop of unknown count is left out.
    """
    found = {}
    for number, loop in enumerate(program.loops):
        trips = (observed or {}).get(number) if loop.trips is None else loop.trips
        if trips is not None:
            found[id(loop)] = trips
    return found


def _span(loop: Loop) -> str:
    return f"[{loop.start}, {loop.stop})"

"""The order in which a stream runs, with device-side loops: two passes of a body, the rest as time that passes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from nkireview.program.loops import Nest, nests
from nkireview.program.model import Loop
from nkireview.program.program import Program

PASSES = 2
"""Passes of a loop body that are scheduled; the later ones take as long as the last of them."""


@dataclass(frozen=True)
class Step:
    """Run the instructions [start, stop); or, with `extra`, let the time since `mark` pass so many times more.

    A mark is a Step of its own, numbered by `mark`, without instructions; before it goes on, the registers that it
    `waits` for must be known.
    """

    start: int = 0
    stop: int = 0
    mark: int = -1
    extra: int = 0
    waits: tuple[int, ...] = ()


def steps(program: Program, trips: Mapping[int, int]) -> tuple[tuple[tuple[Step, ...], ...], tuple[str, ...]]:
    """The steps of each stream, and what had to be assumed.

    trips: index of a loop in the program -> its trip count, where its bounds are not numbers.
    """
    numbers = {id(loop): at for at, loop in enumerate(program.loops)}
    assumed: list[str] = []

    def count(nest: Nest) -> int:
        number = numbers[id(nest.loop)]
        if nest.loop.trips is not None:
            return nest.loop.trips
        if number in trips:
            return trips[number]
        place = program.place_text(nest.loop.place)
        assumed.append(f"the loop at {place or f'instruction {nest.loop.start}'} is taken to run once")
        return 1

    marks = iter(range(2**62))

    def walk(start: int, stop: int, inner: Sequence[Nest]) -> Iterator[Step]:
        at = start
        for nest in inner:
            loop = nest.loop
            if at < loop.start:
                yield Step(at, loop.start)
            times = count(nest)
            for number in range(min(times, PASSES)):
                mark = next(marks)
                yield Step(mark=mark, waits=_asked(loop, number))
                yield from walk(loop.start, loop.stop, nest.inner)
                if number == PASSES - 1 and times > PASSES:
                    yield Step(mark=mark, extra=times - PASSES)
            at = loop.stop
        if at < stop:
            yield Step(at, stop)

    if not program.loops:
        return tuple((Step(stream.start, stream.stop),) for stream in program.streams), ()
    found = tuple(
        tuple(walk(stream.start, stream.stop, nested))
        for stream, nested in zip(program.streams, nests(program), strict=True)
    )
    return found, tuple(dict.fromkeys(assumed))


def _asked(loop: Loop, turn: int) -> tuple[int, ...]:
    """The registers that decide whether a pass begins: bounds before the first one, a condition before each."""
    if loop.kind == "while":
        return (loop.register,)
    return (
        tuple(bound[1] for bound in (loop.lower, loop.upper) if isinstance(bound, tuple)) if turn == 0 else ()
    )

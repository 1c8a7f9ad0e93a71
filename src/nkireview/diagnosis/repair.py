"""A repair: a change after which a Program may give the right answer, and what it would then have been wrong with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

from numpy.typing import NDArray

from nkireview.execute import Around
from nkireview.program.program import Program

Given = TypeVar("Given")


@dataclass(frozen=True, eq=False)
class Repair:
    """One change: of immediates (`program` is the edited one), of execution (`around`), or of arguments.

    cause: the stable name of what is wrong if the change makes the output right, said in `sentence` with its place.
    instruction: the first that is changed, -1 where none is. arguments: new values of parameter buffers.
    """

    cause: str
    sentence: str
    instruction: int
    program: Program
    around: Around | None = None
    arguments: Mapping[int, NDArray[Any]] = field(default_factory=dict)


def once(found: Iterator[Repair]) -> Iterator[Repair]:
    """Repairs without those that are said before."""
    said = set()
    for repair in found:
        key = repair.instruction, repair.sentence
        if key not in said:
            said.add(key)
            yield repair


def by_turns(
    families: Iterable[tuple[int, int, Callable[[Given], Iterator[Repair]]]], given: Given
) -> Iterator[Repair]:
    """The first few of each family, then some more of each: (how many at once, how many more, what makes them)."""
    made = [(first, more, found(given)) for first, more, found in families]
    for first, _, found in made:
        yield from islice(found, first)
    for _, more, found in made:
        yield from islice(found, more)

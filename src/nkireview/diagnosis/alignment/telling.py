"""Telling: what an edge reads, and what the reference has in the place of what it writes, in words."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from nkireview.diagnosis.alignment.edges import Edge
from nkireview.diagnosis.alignment.figures import Figure, Figures, Place, Sight
from nkireview.observed import RESULT, Observation
from nkireview.program.program import Program

MOVED = frozenset({"concatenate", "stack", "split", "repeat", "tile", "broadcast_to", "pad", "roll", "flip"})
"""Operations of NumPy that only move values."""


def reads(edge: Edge, figures: Figures, program: Program) -> str:
    """What an edge reads of the reference."""
    sizes = edge.read.sizes[edge.example]
    names = [
        _named(figures[sight.figure], sight, sizes[name], program)
        for name, sight in edge.read.found[edge.example].items()
        if sight.figure >= 0
    ]
    return " and ".join(dict.fromkeys(names)) or "what is none of the reference's"


def step(observation: Observation) -> str:
    """``its exp (line 12)``."""
    if observation.name == RESULT:
        return "the reference's result"
    return f"its {observation.name}" + (f" (line {observation.line})" if observation.line else "")


def quoted(observation: Observation) -> str:
    """A step with the text of its line."""
    if observation.name == RESULT or not observation.text:
        return step(observation)
    return f"its {observation.name} (line {observation.line}: `{observation.text}`)"


def counterpart(observed: Sequence[Observation], figures: Collection[int]) -> Observation | None:
    """The reference's first step of all of those figures, but for how they are arranged."""
    wanted = set(figures)
    for each in observed:
        if each.name not in MOVED and each.name != RESULT and wanted <= _sources(observed, each):
            return each
    return None


def below(observed: Sequence[Observation], figures: Collection[int]) -> set[int]:
    """The observations that are made of some of those, and themselves."""
    found = set(figures)
    for number, each in enumerate(observed):
        if found.intersection(each.reads):
            found.add(number)
    return found


def _sources(observed: Sequence[Observation], observation: Observation) -> set[int]:
    found: set[int] = set()
    for number in observation.reads:
        other = observed[number]
        found |= _sources(observed, other) if other.name in MOVED else {number}
    return found


def _named(figure: Figure, sight: Sight, shape: tuple[int, int], program: Program) -> str:
    """An input with the part of it that is read, or a step."""
    times = "" if sight.factor == 1 else f"{sight.factor:.6g} times "
    if not figure.given:
        return times + step(figure.observation)
    paths = [path for path, _ in program.parameter_buffers]
    name = paths[figure.number] if figure.number < len(paths) else f"argument {figure.number}"
    part = "" if sight.place is None else _part(sight.place, shape, figure.values.shape)
    return f"{times}{name}{part}"


def _part(place: Place, shape: tuple[int, int], of: tuple[int, ...]) -> str:
    """``[0:128, 0:64:2]``: the rows and columns of an array that a tile's elements are; empty where it is neither."""
    width = of[-1] if of else 1
    down, beside = (shape[0], place.row), (shape[1], place.column)
    if shape[0] > 1 and place.row % width and not place.column % width:
        down, beside = beside, down
    if down[1] % width or abs(beside[1]) >= width:
        return ""
    first = divmod(place.first, width)
    return f"[{_range(first[0], down[0], down[1] // width)}, {_range(first[1], *beside)}]"


def _range(first: int, count: int, step: int) -> str:
    stop = first + (count - 1) * step + (1 if step >= 0 else -1)
    return f"{first}:{stop}" + (f":{step}" if count > 1 and step not in (0, 1) else "")

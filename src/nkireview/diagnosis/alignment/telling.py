"""Telling: what an edge reads, and what the reference has in the place of what it writes, in words."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np

from nkireview.diagnosis.alignment.edges import Edge
from nkireview.diagnosis.alignment.figures import Figure, Figures, Float64, Place, Sight
from nkireview.observed import RESULT, VIEW, Observation
from nkireview.program.program import Program

MOVED = frozenset(
    {VIEW, "concatenate", "stack", "split", "repeat", "tile", "broadcast_to", "pad", "roll", "flip"}
    | {"swapaxes", "transpose", "reshape", "moveaxis", "take", "take_along_axis"}
)
"""Operations of NumPy that only move values."""


def reads(edge: Edge, figures: Figures, program: Program) -> str:
    """What an edge reads of the reference."""
    names = [
        operand(edge, name, figures, program)
        for name, sight in edge.read.found[edge.example].items()
        if sight.figure >= 0
    ]
    return " and ".join(dict.fromkeys(names)) or "what is none of the reference's"


def operand(edge: Edge, name: str, figures: Figures, program: Program) -> str:
    """What an edge reads as one operand."""
    sight = edge.read.found[edge.example][name]
    if sight.figure < 0:
        return f"what it reads as {name}"
    return _named(figures[sight.figure], sight, edge.read.sizes[edge.example][name], program)


def part(figure: Figure, values: Float64, beside: Sight, program: Program) -> str:
    """Some of a figure's values, with the text of its line; `beside`: what they are put in the place of."""
    place, share = figure.place(values)
    place = place if share == 1 else None
    name = _named(figure, Sight("known", figure.number, place), (values.shape[0], values.shape[1]), program)
    if beside.place is not None and place is not None and beside.figure == figure.number:
        turned = (place.row, place.column) == (beside.place.column, beside.place.row)
        name += " transposed" if turned else ""
    line = "" if figure.given or not figure.observation.text else f" `{figure.observation.text}`"
    return f"{name}{line}"


def step(observation: Observation) -> str:
    """``its exp (line 12)``."""
    if observation.name == RESULT:
        return "the reference's result"
    return _called(observation) + (f" (line {observation.line})" if observation.line else "")


def quoted(observation: Observation) -> str:
    """A step with the text of its line."""
    if observation.name == RESULT or not observation.text:
        return step(observation)
    return f"{_called(observation)} (line {observation.line}: `{observation.text}`)"


def _called(observation: Observation) -> str:
    return "what it takes" if observation.name == VIEW else f"its {observation.name}"


def counterpart(observed: Sequence[Observation], figures: Collection[int]) -> Observation | None:
    """The reference's first step of all of those figures, but for how they are arranged."""
    wanted = set(figures)
    for each in observed:
        if each.name not in MOVED and each.name != RESULT and wanted <= _sources(observed, each):
            return each
    return None


def below(observed: Sequence[Observation], figures: Collection[int]) -> set[int]:
    """The observations that are made of some of those, and themselves."""
    found, size = set(figures), -1
    while len(found) > size:  # what a loop carries is read before it is made
        size = len(found)
        found.update(number for number, each in enumerate(observed) if found.intersection(each.reads))
    return found


def arranged(observed: Sequence[Observation], figure: int) -> set[int]:
    """The observations that have values of one, and of nothing else, in other order."""
    found = {figure}
    for number, each in enumerate(observed):
        if each.name in MOVED and each.reads and found.issuperset(each.reads):
            found.add(number)
    return found


def beside(observed: Sequence[Observation], figure: int) -> list[int]:
    """The observations that one reads, and those that read it."""
    below = [number for number, each in enumerate(observed) if figure in each.reads]
    return [*below, *observed[figure].reads]


def _sources(observed: Sequence[Observation], observation: Observation) -> set[int]:
    found: set[int] = set()
    left, seen = list(observation.reads), set(observation.reads)
    while left:
        number = left.pop()
        if observed[number].name not in MOVED:
            found.add(number)
            continue
        new = set(observed[number].reads) - seen
        seen |= new
        left += new
    return found


def _named(figure: Figure, sight: Sight, shape: tuple[int, int], program: Program) -> str:
    """A step or an input, with the part of it that is read."""
    times = "" if sight.factor == 1 else f"{sight.factor:.6g} times "
    times += "1 / " if sight.inverse else ""
    part = "" if sight.place is None else region(sight.place, shape, figure.values.shape)
    name = step(figure.observation)
    if figure.given:
        paths = [path for path, _ in program.parameter_buffers]
        name = paths[figure.number] if figure.number < len(paths) else f"argument {figure.number}"
    elif part and sight.place is not None and shape[0] * shape[1] != figure.values.size:
        return f"{times}{part} of {name}"
    return f"{times}{name}{part if figure.given else ''}"


def region(place: Place, shape: tuple[int, int], of: tuple[int, ...]) -> str:
    """``[0:128, 0:64:2]``: the elements of an array that a tile's are; empty where they are no slice of it."""
    rows, columns = shape
    if not of or place.row == 0 < rows - 1:
        return ""
    flat = place.of(rows, columns).reshape(-1)
    if flat.min() < 0 or flat.max() >= math.prod(of):
        return ""
    at = np.stack(np.unravel_index(flat, of))
    ranges, count = [], 1
    for along in at:
        found = np.unique(along)
        steps = np.unique(np.diff(found))
        if len(steps) > 1:
            return ""
        count *= len(found)
        stop = f"{found[0]}:{found[-1] + 1}"
        ranges.append(stop if not len(steps) or steps[0] == 1 else f"{stop}:{steps[0]}")
    return f"[{', '.join(ranges)}]" if count == rows * columns else ""

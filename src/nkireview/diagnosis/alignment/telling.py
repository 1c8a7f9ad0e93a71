"""Telling: what an edge reads, and what the reference has in the place of what it writes, in words."""

from __future__ import annotations

import math

import numpy as np

from nkireview.diagnosis.alignment.edges import Edge
from nkireview.diagnosis.alignment.figures import Figure, Figures, Float64, Place, Sight
from nkireview.observed import VIEW, Observation
from nkireview.program.program import Program


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
    return _named(figures[sight.figure], sight, edge.read.sizes[edge.example][name], program)


def replaced(edge: Edge, name: str, figures: Figures, program: Program) -> str:
    """The same where it was named before."""
    sight = edge.read.found[edge.example][name]
    if sight.figure < 0:
        return f"what it reads as {name}"
    figure = figures[sight.figure]
    return operand(edge, name, figures, program) if figure.given else f"the {figure.observation.name}"


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
    """``the reference's exp (line 12)``."""
    return _called(observation) + (f" (line {observation.line})" if observation.line else "")


def quoted(observation: Observation) -> str:
    """A step with the text of its line."""
    if not observation.text:
        return step(observation)
    return f"{_called(observation)} (line {observation.line}: `{observation.text}`)"


def _called(observation: Observation) -> str:
    return "what the reference takes" if observation.name == VIEW else f"the reference's {observation.name}"


def _named(figure: Figure, sight: Sight, shape: tuple[int, int], program: Program) -> str:
    """A step or an input, with the part of it that is read."""
    times = "" if sight.factor == 1 else f"{sight.factor:.6g} times "
    times += "1 / " if sight.inverse else ""
    part = "" if sight.place is None else region(sight.place, shape, figure.values.shape)
    name = step(figure.observation)
    if figure.given:
        name = f"argument {figure.number} of the reference"
        for number, (path, buffer) in enumerate(program.parameter_buffers):
            if number == figure.number and program.buffer(buffer).shape == figure.values.shape:
                name = path
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

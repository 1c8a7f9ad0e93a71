"""Parameters of quantisation: a zero point left out, one taken along the wrong axis, one of another tensor."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice

import numpy as np

from nkireview.checks.dataflow import Slot
from nkireview.checks.steps import ACTIVATIONS, steps
from nkireview.diagnosis.algebra.hooks import Running, Values
from nkireview.diagnosis.algebra.lines import Line
from nkireview.diagnosis.arrangement.places import Arranged, Corner, Places
from nkireview.diagnosis.arrangement.stepping import Compute, Recomputed, through, views
from nkireview.diagnosis.flows.acting import Array
from nkireview.diagnosis.habits.survey import Parameter, Survey
from nkireview.diagnosis.repair import Repair
from nkireview.isa import dtypes

ZERO, AXIS, OTHER = "zero-point", "scale-axis", "wrong-parameter"
OPERATORS = frozenset({"add", "subtract", "multiply", "divide"})
FEW = 4
"""Parameters that are tried in each line."""


def missing(survey: Arranged) -> Iterator[Repair]:
    """A parameter subtracted from what integers are read as, that no line does; those never loaded come first."""
    places = survey.places
    for line in survey.of("tensor_copy", "tensor_scalar", *ACTIVATIONS):
        name = "src" if line.call.has("src") else "data"
        if not line.call.has(name) or line.floats(name) or not line.floats("dst"):
            continue
        source = _parameter(survey, places, line.slot(name))
        if source is None:
            continue
        for one in sorted(survey.parameters, key=lambda each: bool(each.loads))[:FEW]:
            if one is source or int(np.prod(one.shape)) >= int(np.prod(source.shape)):
                continue
            for axis in _axes(one, source):
                along = "" if axis is None else f" along axis {axis}"
                sentence = (
                    f"{source.path} is read as it is: less the zero point {one.path}{along} of it the output "
                    "matches"
                )
                around = Recomputed(
                    line.instructions, _shifted(survey, places, line, name, one, source, axis)
                )
                yield from line.repair(ZERO, sentence, None, around)


def _axes(one: Parameter, of: Parameter) -> Iterator[int | None]:
    """The axes of a parameter along which another one may lie; None for one number."""
    size = int(np.prod(one.shape))
    if size == 1:
        yield None
    else:
        yield from (axis for axis, length in enumerate(of.shape) if length == size)


def _shifted(
    survey: Survey, places: Places, line: Line, name: str, one: Parameter, source: Parameter, axis: int | None
) -> Compute:
    vector = widened(survey, one).reshape(-1)

    def compute(running: Running, index: int) -> Values | None:
        call = line.flow.call(index)
        taken = steps(call) if call is not None else None
        data = running.value(name)
        if taken is None or call is None:
            return None
        zero: Values = vector
        if axis is not None:
            corner = places.corner(Slot(index, name))
            found = _spread(vector, data, corner, source.buffer, axis)
            if found is None:
                return None
            zero = found
        return through(data - zero, taken, running.value)

    return compute


def _spread(vector: Array, data: Values, corner: Corner, buffer: int, axis: int) -> Values | None:
    """The part of a vector that belongs to a tile, spread along the axis of the tile that is that of the buffer."""
    lanes, wide = data.shape[0], data.size // data.shape[0]
    for start, count, shape in ((corner.row, lanes, (lanes, 1)), (corner.column, wide, (1, wide))):
        if start is not None and start.buffer == buffer and start.axis == axis:
            part = vector[start.index : start.index + count]
            if len(part) == count:
                return np.array(np.broadcast_to(part.reshape(shape), (lanes, wide)).reshape(data.shape))
    return None


def _parameter(survey: Survey, places: Places, slot: Slot) -> Parameter | None:
    """The parameter that an operand holds elements of."""
    found = places.origin(slot, 0)
    return next((one for one in survey.parameters if found is not None and one.buffer == found[0]), None)


def axes(survey: Arranged) -> Iterator[Repair]:
    """A vector taken along the rows of a tile that is meant along its columns, and the other way round."""
    places = survey.places
    for line, main, name, op, one in _operands(survey, places):
        vector = widened(survey, one).reshape(-1)
        if not _vector(one) or _across(places, vector, line, line.first, main, name) is None:
            continue
        wide = line.call.measure(name, "free") > 1
        sentence = (
            f"{line.opcode} takes {one.path} along the {'columns' if wide else 'rows'} of its tile: along the "
            f"{'rows' if wide else 'columns'} the output matches"
        )
        cause = AXIS if op in ("multiply", "divide") else ZERO
        around = Recomputed(line.instructions, _turned(places, vector, line, main, name))
        yield from line.repair(cause, sentence, None, around)


def _operands(survey: Survey, places: Places) -> Iterator[tuple[Line, str, str, str, Parameter]]:
    """Lines with an operand that holds a part of a parameter: (line, main, operand, operator, the parameter)."""
    for line in survey.lines:
        for main, taken in views(line.call):
            for step in taken:
                if step.op not in OPERATORS or not step.operand or line.call.measure(main, "free") == 1:
                    continue
                one = _parameter(survey, places, line.slot(step.operand))
                if one is not None:
                    yield line, main, step.operand, step.op, one


def _vector(one: Parameter) -> bool:
    return sum(length > 1 for length in one.shape) == 1


def _across(places: Places, vector: Array, line: Line, index: int, main: str, name: str) -> Values | None:
    """The part of a vector that lies along the other axis of a tile, for all of it; None where it has none."""
    call = line.flow.call(index)
    if call is None:
        return None
    shape = call.counts(main)
    lanes, wide = shape[0], math.prod(shape[1:])
    along_rows = call.measure(name, "free") == 1
    corner, count = places.corner(Slot(index, main)), wide if along_rows else lanes
    start = corner.column if along_rows else corner.row
    begin = start.index if start is not None else 0
    part = vector[begin : begin + count]
    if len(part) != count:
        return None
    spread = np.broadcast_to(part.reshape((1, wide) if along_rows else (lanes, 1)), (lanes, wide))
    return np.array(spread.reshape(shape))


def _turned(places: Places, vector: Array, line: Line, main: str, name: str) -> Compute:
    def compute(running: Running, index: int) -> Values | None:
        other = _across(places, vector, line, index, main, name)
        return None if other is None else _with(running, line, index, main, name, other)

    return compute


def _with(running: Running, line: Line, index: int, main: str, name: str, other: Values) -> Values | None:
    """What an instruction would give with other values of an operand."""
    call = line.flow.call(index)
    taken = next((found for each, found in views(call) if each == main), ()) if call is not None else ()
    if not taken:
        return None
    return through(running.value(main), taken, lambda each: other if each == name else running.value(each))


def others(survey: Arranged) -> Iterator[Repair]:
    """Another parameter of the same shape and kind taken in one line, where it is smaller than what it scales."""
    places = survey.places
    for line, main, name, _, one in _operands(survey, places):
        small = math.prod(one.shape) < line.call.measure(main, "elements")
        if not small or _addresses(places, line, line.first, name, one.buffer) is None:
            continue
        alike = (each for each in survey.floats if each.shape == one.shape and each.kind == one.kind)
        for other in islice((each for each in alike if each is not one), FEW):
            sentence = f"{line.opcode} takes {one.path}: with {other.path} there the output matches"
            vector = widened(survey, other).reshape(-1)
            around = Recomputed(line.instructions, _replaced(places, vector, line, main, name, one))
            yield from line.repair(OTHER, sentence, None, around)


def _replaced(places: Places, vector: Array, line: Line, main: str, name: str, one: Parameter) -> Compute:
    def compute(running: Running, index: int) -> Values | None:
        at = _addresses(places, line, index, name, one.buffer)
        if at is None or int(at.max()) >= vector.size:
            return None
        return _with(running, line, index, main, name, vector[at].reshape(running.value(name).shape))

    return compute


def _addresses(places: Places, line: Line, index: int, name: str, buffer: int) -> Array | None:
    """Where the elements of an operand lie in a parameter, if that is an affine map of two axes."""
    call = line.flow.call(index)
    if call is None:
        return None
    slot, shape = Slot(index, name), call.counts(name)
    lanes, wide = shape[0], math.prod(shape[1:])
    asked = (0, 1 if wide > 1 else 0, wide if lanes > 1 else 0, lanes * wide - 1)
    found = [places.origin(slot, place) for place in asked]
    if any(each is None or each[0] != buffer for each in found):
        return None
    first, across, down, last = (each[1] for each in found if each is not None)
    at = first + (down - first) * np.arange(lanes)[:, None] + (across - first) * np.arange(wide)[None, :]
    return at if last == at[-1, -1] else None


def widened(survey: Survey, one: Parameter) -> Array:
    """The argument of a parameter as float64."""
    held = survey.arguments[one.buffer]
    return np.asarray(
        dtypes.widened(held, one.kind, np.float64) if one.kind.kind == "float" else held, np.float64
    )

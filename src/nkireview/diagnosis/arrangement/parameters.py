"""Parameters of quantisation: a zero point left out, one taken along the wrong axis, one of another tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from nkireview.checks.dataflow import Slot
from nkireview.checks.steps import ACTIVATIONS, steps
from nkireview.diagnosis.algebra.hooks import Running, Values
from nkireview.diagnosis.algebra.lines import Line
from nkireview.diagnosis.arrangement.places import Corner, Places
from nkireview.diagnosis.arrangement.stepping import Recomputed, through, views
from nkireview.diagnosis.flows.acting import Array
from nkireview.diagnosis.habits.survey import Parameter, Survey
from nkireview.diagnosis.repair import Repair
from nkireview.isa import dtypes

ZERO, AXIS, OTHER = "zero-point", "scale-axis", "wrong-parameter"
OPERATORS = frozenset({"add", "subtract", "multiply", "divide"})
FEW = 4
"""Parameters that are tried in each line."""


def missing(survey: Survey) -> Iterator[Repair]:
    """A parameter subtracted from what integers are read as, that no line does; those never loaded come first."""
    places = Places(survey.flow)
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
                sentence = f"{source.path} is read as it is: less the zero point {one.path}{along} of it the output matches"
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
) -> Callable[[Running, int], Values | None]:
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


def axes(survey: Survey) -> Iterator[Repair]:
    """A vector taken along the rows of a tile that is meant along its columns, and the other way round."""
    places = Places(survey.flow)
    for line, main, name, op, one in _vectors(survey, places):
        wide = line.call.measure(name, "free") > 1
        sentence = (
            f"{line.opcode} takes {one.path} along the {'columns' if wide else 'rows'} of its tile: along the "
            f"{'rows' if wide else 'columns'} the output matches"
        )
        cause = AXIS if op in ("multiply", "divide") else ZERO
        around = Recomputed(line.instructions, _turned(survey, places, line, main, name, one))
        yield from line.repair(cause, sentence, None, around)


def _vectors(survey: Survey, places: Places) -> Iterator[tuple[Line, str, str, str, Parameter]]:
    """Lines with an operand that holds a part of a one-dimensional parameter: (line, main, operand, operator, it)."""
    for line in survey.lines:
        for main, taken in views(line.call):
            for step in taken:
                if step.op not in OPERATORS or not step.operand or line.call.measure(main, "free") == 1:
                    continue
                one = _parameter(survey, places, line.slot(step.operand))
                if one is not None and _vector(one):
                    yield line, main, step.operand, step.op, one


def _vector(one: Parameter) -> bool:
    return sum(length > 1 for length in one.shape) == 1


def _turned(
    survey: Survey, places: Places, line: Line, main: str, name: str, one: Parameter
) -> Callable[[Running, int], Values | None]:
    vector = widened(survey, one).reshape(-1)

    def compute(running: Running, index: int) -> Values | None:
        call = line.flow.call(index)
        taken = next((found for each, found in views(call) if each == main), ()) if call is not None else ()
        data, held = running.value(main), running.value(name)
        lanes, wide = data.shape[0], data.size // data.shape[0]
        along_rows = held.size == held.shape[0]
        corner = places.corner(Slot(index, main))
        start = corner.column if along_rows else corner.row
        count = wide if along_rows else lanes
        begin = start.index if start is not None else 0
        part = vector[begin : begin + count]
        if not taken or len(part) != count:
            return None
        shape = (1, wide) if along_rows else (lanes, 1)
        other = np.array(np.broadcast_to(part.reshape(shape), (lanes, wide)).reshape(data.shape))
        return through(data, taken, lambda each: other if each == name else running.value(each))

    return compute


def others(survey: Survey) -> Iterator[Repair]:
    """Another parameter of the same shape and kind taken in one line."""
    places = Places(survey.flow)
    for line in survey.sites:
        for main, taken in views(line.call):
            for step in taken:
                one = _parameter(survey, places, line.slot(step.operand)) if step.operand else None
                alike = [
                    each
                    for each in survey.floats
                    if one is not None
                    and each is not one
                    and each.shape == one.shape
                    and each.kind == one.kind
                ]
                for other in alike[:FEW]:
                    assert one is not None
                    sentence = f"{line.opcode} takes {one.path}: with {other.path} there the output matches"
                    around = Recomputed(
                        line.instructions, _replaced(survey, places, line, main, step.operand, one, other)
                    )
                    yield from line.repair(OTHER, sentence, None, around)


def _replaced(
    survey: Survey, places: Places, line: Line, main: str, name: str, one: Parameter, other: Parameter
) -> Callable[[Running, int], Values | None]:
    vector = widened(survey, other).reshape(-1)

    def compute(running: Running, index: int) -> Values | None:
        call = line.flow.call(index)
        taken = next((found for each, found in views(call) if each == main), ()) if call is not None else ()
        held = running.value(name)
        at = _addresses(places, Slot(index, name), held, one.buffer)
        if not taken or at is None or int(at.max()) >= vector.size:
            return None
        changed = vector[at].reshape(held.shape)
        return through(
            running.value(main), taken, lambda each: changed if each == name else running.value(each)
        )

    return compute


def _addresses(places: Places, slot: Slot, like: Values, buffer: int) -> Array | None:
    """Where the elements of an operand lie in a parameter, if that is an affine map of two axes."""
    lanes, wide = like.shape[0], like.size // like.shape[0]
    found = [places.origin(slot, place) for place in (0, 1 if wide > 1 else 0, wide if lanes > 1 else 0)]
    if any(each is None or each[0] != buffer for each in found):
        return None
    first, across, down = (each[1] for each in found if each is not None)
    at = first + (down - first) * np.arange(lanes)[:, None] + (across - first) * np.arange(wide)[None, :]
    last = places.origin(slot, like.size - 1)
    return at if last is not None and last[1] == at[-1, -1] else None


def widened(survey: Survey, one: Parameter) -> Array:
    """The argument of a parameter as float64."""
    held = survey.arguments[one.buffer]
    return np.asarray(
        dtypes.widened(held, one.kind, np.float64) if one.kind.kind == "float" else held, np.float64
    )

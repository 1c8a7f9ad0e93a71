"""Experiments on what a kernel is given: a parameter transposed, two of them exchanged, one laid out another way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from nkireview.checks.dataflow import Dataflow
from nkireview.diagnosis.flows.acting import Array
from nkireview.diagnosis.repair import Repair
from nkireview.isa import dtypes

MOST = 12
"""Experiments of one kind."""


def transposed(flow: Dataflow, arguments: Mapping[int, Array]) -> Iterator[Repair]:
    """Each parameter transposed, one after the other and two at once; then those that are no squares."""
    squares = [each for each in _floats(flow) if _square(arguments[each[1]])][:MOST]
    for name, buffer in squares:
        yield _given(flow, transposed_sentence(name), {buffer: turned(arguments[buffer])})
    for at, (name, buffer) in enumerate(squares[:4]):
        for other, second in squares[at + 1 : 4]:
            both = {number: turned(arguments[number]) for number in (buffer, second)}
            yield _given(flow, f"{name} and {other} are used transposed: rows taken for columns", both)
    oblong = [each for each in _floats(flow) if _oblong(arguments[each[1]])][:MOST]
    for name, buffer in oblong:
        held = arguments[buffer]
        read = f"{name} {list(held.shape)} is read as if its rows and columns were exchanged in memory"
        yield _given(flow, read, {buffer: turned(held).reshape(held.shape)})


def exchanged(flow: Dataflow, arguments: Mapping[int, Array]) -> Iterator[Repair]:
    """Two parameters of one shape and dtype exchanged."""
    made = 0
    found = _floats(flow)
    for at, (name, buffer) in enumerate(found):
        for other, second in found[at + 1 :]:
            one, two = arguments[buffer], arguments[second]
            if one.shape != two.shape or one.dtype != two.dtype or made == MOST or _same(one, two):
                continue
            made += 1
            sentence = f"{name} and {other} are taken for each other"
            yield _given(flow, sentence, {buffer: two, second: one})


def backwards(flow: Dataflow, arguments: Mapping[int, Array]) -> Iterator[Repair]:
    """The rows or columns of a parameter in reverse order."""
    for name, buffer in _floats(flow)[:MOST]:
        held = arguments[buffer]
        for axis in range(held.ndim)[-2:]:
            if held.shape[axis] > 1:
                what = axis_name(held.ndim, axis)
                given = np.ascontiguousarray(np.flip(held, axis))
                if not _same(given, held):
                    sentence = f"{what} of {name} are taken in reverse order"
                    yield _given(flow, sentence, {buffer: given})


def transposed_sentence(name: str) -> str:
    """What is wrong with a kernel that is right for one parameter transposed."""
    return f"{name} is used transposed: rows taken for columns"


def turned(array: Array) -> Array:
    """The last two axes exchanged, in memory order."""
    return np.ascontiguousarray(np.swapaxes(array, -1, -2))


def axis_name(rank: int, axis: int) -> str:
    """``rows``, ``columns`` or ``elements``, or the axis by its number in arrays of more than two."""
    if rank == 1:
        return "elements"
    return ("rows", "columns")[axis] if rank == 2 else f"indices of axis {axis}"


def _floats(flow: Dataflow) -> list[tuple[str, int]]:
    program = flow.program
    return [
        (path, buffer)
        for path, buffer in program.parameter_buffers
        if dtypes.BY_NAME[program.buffer(buffer).dtype].kind == "float"
    ]


def _square(array: Array) -> bool:
    square = array.ndim >= 2 and array.shape[-1] == array.shape[-2] > 1
    return square and not _same(turned(array), array)


def _oblong(array: Array) -> bool:
    return array.ndim >= 2 and array.shape[-1] != array.shape[-2] and min(array.shape[-2:]) > 1


def _same(one: Array, two: Array) -> bool:
    return one.tobytes() == two.tobytes()


def _given(flow: Dataflow, sentence: str, changed: Mapping[int, Array]) -> Repair:
    return Repair("operand-transposed", sentence, -1, flow.program, arguments=changed)
